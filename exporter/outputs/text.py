"""Rendering of tables in the text formats of Prometheus: text 0.0.4 and OpenMetrics 1.0.

Each family is rendered once, from all tables with that metric: name, the row's cached label text, and value. Rows
without a value are skipped. The text is rendered in pieces, so that its thread never holds the GIL for long.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

from exporter.core.table import (
    Column,
    HistogramValue,
    Kind,
    Metric,
    Rows,
    Table,
    Value,
    label_text,
    utf8_as_latin1,
)

PIECE = 2000
"""Rows rendered at a time; about a millisecond."""

_HELP_ESCAPES = MappingProxyType(str.maketrans({"\\": r"\\", "\n": r"\n"}))


class Renderer:
    """Renders tables, and caches the text: a column whose values did not change is not rendered again.

    Most error counters of a healthy fabric do not change, so most of a scrape is cached text.
    """

    def __init__(self, *, openmetrics: bool) -> None:
        """Args: openmetrics: Whether to render OpenMetrics 1.0 instead of text 0.0.4."""
        self._openmetrics = openmetrics
        self._cache: dict[tuple[str, int], tuple[Rows, Sequence[Value | None], tuple[bytes, ...]]] = {}
        self._heads: dict[Metric, bytes] = {}

    def render(self, tables: Iterable[Table]) -> Iterator[bytes]:
        """Render tables, families in order of their names; those of internal schemas are skipped.

        Yields:
            Pieces of UTF-8 text, each of whole lines.
        """
        families: dict[str, list[tuple[Rows, Column]]] = {}
        for table in tables:
            if not table.schema.internal:
                for column in table.columns.values():
                    families.setdefault(column.metric.name, []).append((table.rows, column))
        cache, self._cache = self._cache, {}
        for name in sorted(families):
            headed = False
            for part, (rows, column) in enumerate(families[name]):
                cached = cache.get((name, part))
                if cached is not None and cached[0] is rows and cached[1] == column.values:
                    pieces = cached[2]
                else:
                    pieces = tuple(_pieces(rows, column))
                self._cache[name, part] = (rows, column.values, pieces)
                if pieces and not headed:  # a family without a value has no head either
                    yield self._head(column.metric)
                    headed = True
                yield from pieces
        if self._openmetrics:
            yield b"# EOF\n"

    def _head(self, metric: Metric) -> bytes:
        head = self._heads.get(metric)
        if head is None:
            head = self._heads[metric] = _head(metric, openmetrics=self._openmetrics).encode()
        return head


def _pieces(rows: Rows, column: Column) -> Iterator[bytes]:
    """Yield the text of one column, `PIECE` rows at a time."""
    for start in range(0, len(rows), PIECE):
        piece = _lines(column.metric, rows.texts[start : start + PIECE], column.values[start : start + PIECE])
        if piece:
            yield piece.encode("latin-1")  # the rows' texts are bytewise, the rest is ASCII


def _head(metric: Metric, *, openmetrics: bool) -> str:
    """Return the lines TYPE, UNIT and HELP."""
    name, kind = metric.name, metric.kind.value
    text = metric.help.translate(_HELP_ESCAPES)
    if not openmetrics:
        kind = {Kind.INFO: "gauge", Kind.UNKNOWN: "untyped"}.get(metric.kind, kind)
        return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    if metric.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    elif metric.kind is Kind.INFO:
        name = name.removesuffix("_info")
    unit = f"# UNIT {name} {metric.unit}\n" if metric.unit else ""
    text = text.replace('"', r"\"")
    return f"# TYPE {name} {kind}\n{unit}# HELP {name} {text}\n"


def _lines(metric: Metric, texts: Sequence[str], values: Sequence[Value | None]) -> str:
    """Return the lines of rows with a value; empty where none has one."""
    name = metric.name
    if metric.kind is Kind.INFO:
        return "".join(
            [_info_line(metric, text, value) for text, value in zip(texts, values, strict=True) if value is not None]
        )
    if metric.kind is Kind.HISTOGRAM:
        return "".join(
            [_histogram(metric, text, value) for text, value in zip(texts, values, strict=True) if value is not None]
        )
    lines = [f"{text} {value}" for text, value in zip(texts, values, strict=True) if value is not None]
    between = f"\n{name}"  # faster than a format with the name in each line
    return f"{name}{between.join(lines)}\n" if lines else ""


def _joined(text: str, more: str) -> str:
    """Add labels to a row's text."""
    return f"{text[:-1]},{more}}}" if text else f"{{{more}}}"


def _info_line(metric: Metric, text: str, value: Value) -> str:
    extra = utf8_as_latin1(label_text(metric.extra, value))  # type: ignore[arg-type]  # an info's value is its label values
    return f"{metric.name}{_joined(text, extra) if extra else text} 1\n"


def _histogram(metric: Metric, text: str, value: Value) -> str:
    assert isinstance(value, HistogramValue)  # noqa: S101  # guaranteed by the kind of the metric
    bounds = [*(f"{float(bound)}" for bound in metric.buckets), "+Inf"]
    lines = []
    for bound, count in zip(bounds, value.counts, strict=True):
        le = f'le="{bound}"'
        lines.append(f"{metric.name}_bucket{_joined(text, le)} {count}\n")
    return f"{''.join(lines)}{metric.name}_count{text} {value.counts[-1]}\n{metric.name}_sum{text} {value.sum}\n"
