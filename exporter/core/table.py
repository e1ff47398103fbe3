"""The Table: the one type that flows from sources through meaning to outputs.

A table has one set of label names. A row is one thing (a port, a port's priority, a rank) and keeps its escaped
label text for as long as it lives; a column is one metric with a value, or none, for each row. A poll brings new
numbers for mostly the same rows, so a rate is a column minus a column, and printing is text plus number.
"""

import enum
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

LabelValues: TypeAlias = tuple[str, ...]

MAX_LABEL_LENGTH = 256
"""Characters of a label value that are kept; what lies beyond is cut, so that no device can flood a scrape."""


class Kind(enum.Enum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    INFO = "info"
    HISTOGRAM = "histogram"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """One row's value of a histogram: cumulative counts per bucket of the metric, +Inf last, and the sum."""

    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Samples:
    """What was read of one row several times within one interval: each time, followed by the numbers of that time."""

    taken: tuple[tuple[float, ...], ...]


Value: TypeAlias = int | float | LabelValues | HistogramValue | Samples
"""A number for counters and gauges (finite), label values for infos, a HistogramValue for histograms; Samples only in
tables of internal schemas."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric family as it is declared: data, made once at import.

    Attributes:
        name: The name as it is exported, with `_total` or `_info`.
        kind: Counter, gauge, info or histogram; unknown for what a driver counts or measures without saying which.
        help: What the metric means, the same whatever it was read from.
        labels: Label names of the rows.
        ending: The name without the prefix of its schema.
        unit: Base unit, which then is also the end of the name; empty for plain numbers.
        extra: Label names that an info adds to those of the row.
        buckets: Upper bounds of a histogram's buckets, without +Inf.
        origins: Where the values come from, for the documentation: files, OIDs, keys.
        detail: Whether it is exported only where the configuration keeps it: of use to few, for all that it costs.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    ending: str
    unit: str = ""
    extra: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    origins: tuple[str, ...] = ()
    detail: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """What a table can hold: a prefix, the label names of its rows, and the metrics by their endings.

    A table of an `internal` schema is food for meaning and is never exported itself. `details` are the endings of the
    metrics that are details, also of those that meaning makes of the table.
    """

    prefix: str
    labels: tuple[str, ...]
    metrics: Mapping[str, Metric]
    internal: bool = False
    details: frozenset[str] = frozenset()


_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]|\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
"""Control characters, surrogates, and backslashes that would make text look like one of those shown."""

_NEEDS_ESCAPE = re.compile(r'[\\"\n]')
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


def clean_label(value: str) -> str:
    r"""Make any text fit for a label.

    Bytes that are no UTF-8 (kept by Python as surrogates) and control characters are shown as `\xNN`, and a value
    that is too long ends in a hash of the whole, so that two different names never become one.
    """
    if len(value) >= MAX_LABEL_LENGTH:
        value = _cut(value)
    if _UNSAFE.search(value):
        value = _UNSAFE.sub(_shown, value)
    return value


def escape_label(value: str) -> str:
    """Make any text fit for a label, and escape it for the exposition formats."""
    value = clean_label(value)
    if _NEEDS_ESCAPE.search(value):
        value = _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], value)
    return value


def _shown(found: re.Match[str]) -> str:
    r"""Show a character that must not stand in a label: a byte as `\xNN`, half a character of UTF-16 as `\uNNNN`."""
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _cut(value: str) -> str:
    """Shorten a value to MAX_LABEL_LENGTH, with a hash at its end that nobody can aim at another's."""
    import hashlib  # noqa: PLC0415  # such names are rare, and this brings in OpenSSL

    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{value[: MAX_LABEL_LENGTH - 17]}~{digest}"


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Give `name="value",…` without braces; an empty value is the same as no label, and is left out."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True) if value)


def bytewise(text: str) -> str:
    """Give a text's UTF-8 bytes, each as the character of that number.

    Texts in this form are turned into bytes by a mere copy (`encode("latin-1")`), however odd one of thousands is.
    """
    return text if text.isascii() else text.encode().decode("latin-1")


class Rows:
    """The rows of a table: their label values and the text that is printed for them.

    Attributes:
        keys: Label values of each row, in the order of the columns' values.
        texts: `{name="value",…}` for each row, in the form of `bytewise`; empty for a row without labels.
        index: Place of each key.
    """

    __slots__ = ("index", "keys", "texts")

    def __init__(self, names: tuple[str, ...], keys: Iterable[LabelValues], known: Mapping[LabelValues, str]) -> None:
        self.keys = tuple(keys)
        self.index = {key: place for place, key in enumerate(self.keys)}
        if len(self.index) != len(self.keys):
            twice = next(key for place, key in enumerate(self.keys) if self.index[key] != place)
            raise ValueError(f"two rows have the same labels {dict(zip(names, twice, strict=True))}")
        self.texts = tuple(known.get(key) or _braced(names, key) for key in self.keys)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.keys)


def _braced(names: tuple[str, ...], key: LabelValues) -> str:
    text = bytewise(label_text(names, key))
    return f"{{{text}}}" if text else ""


class RowKeeper:
    """Keeps the rows of one table from poll to poll, so that unchanged rows cost nothing and keep their text."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._rows = Rows(names, (), {})

    def rows(self, keys: Sequence[LabelValues]) -> Rows:
        """Give the Rows of these keys: the very same object as last time where nothing changed."""
        if self._rows.keys != tuple(keys):
            known = dict(zip(self._rows.keys, self._rows.texts, strict=True))
            self._rows = Rows(self._names, keys, known)
        return self._rows


class Column(NamedTuple):
    """One metric's values, one a row, None where the device did not tell.

    A counter's values are raw: what was read, as an integer. `width` is the counter's size in bits, `saturates` says
    that it sticks at its top instead of wrapping, and what is exported is raw x factor / divisor.
    """

    metric: Metric
    values: Sequence[Value | None]
    width: int = 64
    saturates: bool = False
    factor: int = 1
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One reading of some rows.

    Attributes:
        schema: What may be in it.
        rows: The rows.
        columns: By the ending of their metric.
        time: Monotonic seconds, taken at the reading.
        epochs: One hashable a row, that changes when the thing was restarted or re-created; None where unknown.
        kinds: One word a row that is the same for its siblings, the things it can be measured against (the rails of
            a node); None for a row that has none.
        part: Tells apart several tables of one schema from one source (for example one per driver).
        times: The time of each row's reading, where rows were read far apart.
    """

    schema: Schema
    rows: Rows
    columns: Mapping[str, Column]
    time: float
    epochs: Sequence[Hashable] | None = None
    kinds: Sequence[str | None] | None = None
    part: str = ""
    times: Sequence[float] | None = None

    def values(self, ending: str) -> Sequence[Value | None] | None:
        """Give the values of a column, or None where the table lacks it."""
        column = self.columns.get(ending)
        return None if column is None else column.values

    def numbers(self, ending: str) -> Sequence[float | None] | None:
        """Give the values of a numeric column, or None where the table lacks it."""
        return self.values(ending)  # type: ignore[return-value]  # asked for by number: a counter or a gauge

    def with_columns(self, columns: Iterable[Column]) -> "Table":
        """Give a table with these columns added or put in place of older ones."""
        return replace(self, columns={**self.columns, **{column.metric.ending: column for column in columns}})


@dataclass(slots=True)
class TableBuilder:
    """Collects a table row by row, where a source meets its values in that order.

    Columns are made on first use; rows that lack a value get None.
    """

    schema: Schema
    keys: list[LabelValues] = field(default_factory=list)
    cells: dict[str, list[Value | None]] = field(default_factory=dict)

    def row(self, key: LabelValues, values: Mapping[str, Value | None]) -> None:
        """Add one row; `values` are by ending."""
        place = len(self.keys)
        self.keys.append(key)
        for ending, value in values.items():
            if value is not None:
                cells = self.cells.setdefault(ending, [])
                cells.extend([None] * (place - len(cells)))
                cells.append(value)

    def columns(self) -> dict[str, Column]:
        """Give the columns of the rows so far, by ending."""
        metrics, size = self.schema.metrics, len(self.keys)
        return {
            ending: Column(metrics[ending], cells + [None] * (size - len(cells)))
            for ending, cells in self.cells.items()
        }

    def table(self, keeper: RowKeeper, time: float, **options: object) -> Table:
        """Finish; `options` are those of Table."""
        return Table(self.schema, keeper.rows(self.keys), self.columns(), time, **options)  # type: ignore[arg-type]
