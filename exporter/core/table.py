"""Table: the type that flows from sources through meaning to outputs.

A table has one set of label names. A row is one thing (a port, a priority of a port, a rank) whose escaped label text
is made once and reused while the row exists. A column is one metric with a value, or None, for each row. Most polls
return the same rows with new values, so that a rate is a column minus a column, and rendering is text plus number.
"""

import enum
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

LabelValues: TypeAlias = tuple[str, ...]

MAX_LABEL_LENGTH = 256
"""Characters of a label value; longer ones are truncated, so that no device can flood a scrape."""


class Kind(enum.Enum):
    """Metric type of the exposition formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    INFO = "info"
    HISTOGRAM = "histogram"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Value of a histogram in one row: cumulative counts per bucket, +Inf last, and the sum."""

    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Samples:
    """Several readings of one row within one poll interval: numbers, or None where one is unknown, see the column."""

    taken: tuple[tuple[Any, ...], ...]


Value: TypeAlias = int | float | LabelValues | HistogramValue | Samples
"""A number for counters and gauges (finite), label values for infos, a HistogramValue for histograms; Samples only in
tables of internal schemas."""


Number = TypeVar("Number", int, float)


def complete_sum(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of values; None if there are none, or one is missing: the sum of the others is another value."""
    known = list(values)
    return None if None in known or not known else sum(value for value in known if value is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A declared metric family.

    Attributes:
        name: The exported name, with `_total` or `_info`.
        kind: Counter, gauge, info or histogram; unknown where a driver does not document which of them a value is.
        help: HELP text, the same for every driver.
        labels: Label names of the rows.
        ending: The name without the prefix of its schema.
        unit: Base unit, in which the name then ends; empty for plain numbers.
        extra: Label names that an info adds to those of the row.
        buckets: Upper bounds of a histogram's buckets, without +Inf.
        origins: Where the values come from, for the documentation: files, OIDs, keys.
        detail: Whether it is exported only if the configuration lists it under `keep`.
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
    """What a table can contain: a prefix, the label names of its rows, and metrics by ending.

    Tables of an `internal` schema are input of meaning and are never exported. `details` are the endings of metrics
    that are details, also of those that meaning derives from the table.
    """

    prefix: str
    labels: tuple[str, ...]
    metrics: Mapping[str, Metric]
    internal: bool = False
    details: frozenset[str] = frozenset()


_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]|\\(?=x[0-9a-f]{2}|u[0-9a-f]{4})")
"""Control characters, surrogates, and backslashes that would make text look like an escape sequence of
`clean_label`."""

_NEEDS_ESCAPE = re.compile(r'[\\"\n]')
_ESCAPES = MappingProxyType({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def clean_label(value: str) -> str:
    r"""Return a text made valid as a label value.

    Bytes that are not UTF-8 (surrogates in Python) and control characters are replaced by `\xNN`. A value that is too
    long is truncated and ends in a hash of the whole, so that two different names never become one.
    """
    if len(value) >= MAX_LABEL_LENGTH:
        value = _truncated(value)
    if _UNSAFE.search(value):
        value = _UNSAFE.sub(_escape_sequence, value)
    return value


def escape_label(value: str) -> str:
    """Return a text made valid as a label value and escaped for the exposition formats."""
    value = clean_label(value)
    if _NEEDS_ESCAPE.search(value):
        value = _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], value)
    return value


def _escape_sequence(found: re.Match[str]) -> str:
    r"""Return the escape sequence of an invalid character: `\xNN` for a byte, `\uNNNN` for half of a UTF-16 pair."""
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _truncated(value: str) -> str:
    """Truncate a value to MAX_LABEL_LENGTH, with a hash at its end that cannot be chosen to match another value."""
    import hashlib  # noqa: PLC0415  # such names are rare, and this imports OpenSSL

    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{value[: MAX_LABEL_LENGTH - 17]}~{digest}"


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Return `name="value",…` without braces; a label with an empty value is left out, which is equivalent."""
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True) if value)


def utf8_as_latin1(text: str) -> str:
    """Return the UTF-8 bytes of a text, each as the character of that number.

    Texts in this form are encoded by a mere copy (`encode("latin-1")`), even where one of thousands is not ASCII.
    """
    return text if text.isascii() else text.encode().decode("latin-1")


class Rows:
    """The rows of a table: label values, and the text that is rendered for them.

    Attributes:
        keys: Label values of each row, in the order of the columns' values.
        texts: `{name="value",…}` of each row, in the form of `utf8_as_latin1`; empty for a row without labels.
        index: Position of each key.
    """

    __slots__ = ("index", "keys", "texts")

    def __init__(self, names: tuple[str, ...], keys: Iterable[LabelValues], known: Mapping[LabelValues, str]) -> None:
        self.keys = tuple(keys)
        self.index = {key: position for position, key in enumerate(self.keys)}
        if len(self.index) != len(self.keys):
            duplicate = next(key for position, key in enumerate(self.keys) if self.index[key] != position)
            raise ValueError(f"two rows have the same labels {dict(zip(names, duplicate, strict=True))}")
        self.texts = tuple(known.get(key) or _braced(names, key) for key in self.keys)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)


def _braced(names: tuple[str, ...], key: LabelValues) -> str:
    text = utf8_as_latin1(label_text(names, key))
    return f"{{{text}}}" if text else ""


class RowKeeper:
    """Caches the rows of one table between polls, so that unchanged rows cost nothing and keep their text."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._rows = Rows(names, (), {})

    def rows(self, keys: Sequence[LabelValues]) -> Rows:
        """Return the Rows of these keys: the same object as last time if the keys are the same."""
        if self._rows.keys != tuple(keys):
            known = dict(zip(self._rows.keys, self._rows.texts, strict=True))
            self._rows = Rows(self._names, keys, known)
        return self._rows


class Column(NamedTuple):
    """Values of one metric, one for each row; None where the device reports none.

    Values are never changed in place, since tables, states of meaning and outputs share them between polls and threads.
    Values of counters are raw: the integers that were read. `width` is the size of a counter in bits, `saturates`
    whether it stays at its maximum instead of wrapping, and the exported value is raw x factor / divisor.
    """

    metric: Metric
    values: Sequence[Value | None]
    width: int = 64
    saturates: bool = False
    factor: int = 1
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One reading of a set of rows.

    Attributes:
        schema: What it may contain.
        rows: The rows.
        columns: By the ending of their metric.
        time: Monotonic seconds of the reading.
        epochs: For each row a hashable that changes when the thing restarted or was re-created; None where unknown.
        kinds: For each row a word that is the same for its siblings, the rows it can be compared with (the rails of a
            node); None for a row without siblings.
        part: Distinguishes several tables of one schema from one source (for example one per driver).
        times: Monotonic seconds of each row's reading, where rows are read far apart.
        members: For each row the number of physical links that it consists of, None where unknown, as of most bundles;
            None for the whole where every row is one link.
        ceilings: For each row whose stated speed, or whose traffic now, is not believed, the bytes per second that it
            cannot reach; set by `exporter.meaning.ports.speeds`.
    """

    schema: Schema
    rows: Rows
    columns: Mapping[str, Column]
    time: float
    epochs: Sequence[Hashable] | None = None
    kinds: Sequence[str | None] | None = None
    part: str = ""
    times: Sequence[float] | None = None
    members: Sequence[int | None] | None = None
    ceilings: Sequence[float | None] | None = None

    def values(self, ending: str) -> Sequence[Value | None] | None:
        """Return the values of a column, or None if the table lacks it."""
        column = self.columns.get(ending)
        return None if column is None else column.values

    def numbers(self, ending: str) -> Sequence[float | None] | None:
        """Return the values of a numeric column, or None if the table lacks it."""
        return self.values(ending)  # type: ignore[return-value]  # the caller knows that it is a counter or a gauge

    def with_columns(self, columns: Iterable[Column]) -> "Table":
        """Return a copy of the table with these columns added or replaced."""
        return replace(self, columns={**self.columns, **{column.metric.ending: column for column in columns}})


@dataclass(slots=True)
class TableBuilder:
    """Collects a table row by row, for sources that read values in that order.

    Columns are created on first use; rows without a value get None.
    """

    schema: Schema
    keys: list[LabelValues] = field(default_factory=list)
    cells: dict[str, list[Value | None]] = field(default_factory=dict)

    def row(self, key: LabelValues, values: Mapping[str, Value | None]) -> None:
        """Add one row; `values` are by ending."""
        position = len(self.keys)
        self.keys.append(key)
        for ending, value in values.items():
            if value is not None:
                cells = self.cells.setdefault(ending, [])
                cells.extend([None] * (position - len(cells)))
                cells.append(value)

    def columns(self) -> dict[str, Column]:
        """Return the columns of the rows added so far, by ending."""
        metrics, size = self.schema.metrics, len(self.keys)
        return {
            ending: Column(metrics[ending], cells + [None] * (size - len(cells)))
            for ending, cells in self.cells.items()
        }

    def table(self, keeper: RowKeeper, time: float, **options: object) -> Table:
        """Return the finished table; `options` are fields of Table."""
        return Table(self.schema, keeper.rows(self.keys), self.columns(), time, **options)  # type: ignore[arg-type]
