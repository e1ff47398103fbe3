"""Conversion of raw counters to exported ones: extended to 64 bits, in base units; wraps and resets are distinguished.

A counter that falls either wrapped or was reset. It is a wrap only if nothing indicates a restart (the epoch of the row
changed, another counter of the row fell too), the counter is one that wraps, and the wrapped delta is under half the
range and possible on the link. Everything else is a reset: no rate for that interval, and a new baseline. Baselines
advance for each value separately: a read that lacks a value keeps its baseline and measures over the longer time.

In most reads no value is missing and none fell. Then a column advances as a whole, with functions that run in C
(`_is_steady`, `advance`, `deltas_of`). Other columns are processed row by row (`advance_by_row`).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import NamedTuple, TypeAlias, TypeVar

from exporter.core import vocabulary
from exporter.core.table import Column, Rows, Table

Deltas: TypeAlias = list[tuple[int, float] | None]
"""Increase of each row of a column with the seconds that it took; None where unknown."""

Cell = TypeVar("Cell")

SMALLEST_PACKET = 64
"""Bytes of the smallest Ethernet frame, which bounds the packets that a link can carry."""

SLACK = 1.25
"""Factor by which a delta may exceed the nominal speed of the link: clocks and speeds are rounded."""

MAX_WRAPPING_WIDTH = 32
"""Bits up to which counters wrap in practice: without a link speed to check against, a fall of a wider
one is a reset."""


class Baseline(NamedTuple):
    """State of one column.

    Attributes:
        raw: The column as it was last read.
        values: Last good raw value of each row.
        times: Time of each value; None if all have the time, or the times, of the state.
        offsets: Sum added to each value for wraps so far; None while all are 0.
        exported: The exported column made from it.
    """

    raw: Column
    values: Sequence[int | None]
    times: list[float] | None
    offsets: Sequence[int] | None
    exported: Column


@dataclass(frozen=True, slots=True)
class CounterState:
    """State of the counters of a table; sequences are in the order of its rows.

    Attributes:
        time: Time of the last read.
        times: Time of the last read of each row, where these differ.
        rows: The rows.
        epochs: Last known epoch of each row.
        columns: Baseline of each column, by ending.
        resets: Resets of each row so far.
        rates: By ending of the counter, increase per second of each row up to its last good value.
        saturated: Rows of the table that lists saturated counters, cached for their text.
    """

    time: float
    times: Sequence[float] | None
    rows: Rows
    epochs: Sequence[Hashable] | None
    columns: dict[str, Baseline]
    resets: Sequence[int]
    rates: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    saturated: Rows | None = None


def aligned(state: CounterState | None, table: Table, time: float, times: Sequence[float] | None) -> CounterState:
    """Return the state in the order of the table's rows: rows that are gone are dropped, new ones start empty."""
    size = len(table.rows)
    if state is None:
        return CounterState(time, times, table.rows, table.epochs, {}, [0] * size)
    if state.rows is table.rows:
        return state
    positions = [state.rows.index.get(key) for key in table.rows.keys]

    def reordered(cells: Sequence[Cell], empty: Cell) -> list[Cell]:
        return [empty if position is None else cells[position] for position in positions]

    columns = {
        ending: Baseline(
            old.raw,
            reordered(old.values, None),
            reordered(_times(old, state), 0.0),
            None if old.offsets is None else reordered(old.offsets, 0),
            old.exported._replace(values=reordered(old.exported.values, None)),
        )
        for ending, old in state.columns.items()
    }
    rates = {ending: reordered(last, None) for ending, last in state.rates.items()}
    epochs = None if state.epochs is None else reordered(state.epochs, None)
    resets = reordered(state.resets, 0)
    return CounterState(state.time, None, table.rows, epochs, columns, resets, rates, state.saturated)


def _times(old: Baseline, before: CounterState) -> list[float]:
    """Return the time of each row's last good value."""
    if old.times is not None:
        return old.times
    return [before.time] * len(old.values) if before.times is None else list(before.times)


def last_known_epochs(old: Sequence[Hashable] | None, new: Sequence[Hashable] | None) -> Sequence[Hashable] | None:
    """Keep the epoch of a row that this read lacks, so that a restart is detected however long that lasts."""
    if old is None or (new is not None and None not in new):
        return new
    return old if new is None else [last if now is None else now for last, now in zip(old, new, strict=True)]


def without_restarted(old: Baseline, before: CounterState, restarted: frozenset[int]) -> Baseline:
    """Keep the baseline of a column that this read lacks, except for rows that restarted."""
    values = [None if row in restarted else value for row, value in enumerate(old.values)]
    offsets = old.offsets
    if offsets is not None:
        offsets = [0 if row in restarted else value for row, value in enumerate(offsets)]
    return Baseline(old.raw, values, _times(old, before), offsets, old.exported)


def unsteady_columns(before: CounterState, times: Sequence[float] | None, counters: list[Column]) -> list[Column]:
    """Return the columns that lack values or of which one fell; compares whole columns in C.

    Args:
        before: State of the last read.
        times: Time of each row, where these differ.
        counters: The columns.
    """
    if before.times is not None or times is not None:  # each row has its own interval
        return counters
    baselines = before.columns
    return [
        column
        for column in counters
        if (old := baselines.get(column.metric.ending)) is not None
        and not (old.times is None and (column.values is old.values or _is_steady(column, old)))
    ]


def _is_steady(column: Column, old: Baseline) -> bool:
    return (
        None not in column.values and None not in old.values and all(map(ge, column.values, old.values))  # type: ignore[arg-type]  # integers, and none is missing
    )


def restarted_rows(before: CounterState, table: Table, unsteady: Sequence[Column]) -> frozenset[int]:
    """Return the rows that restarted: their epoch changed, or more than one of their counters fell."""
    restarted: set[int] = set()
    if table.epochs is not None and before.epochs is not None and table.epochs != before.epochs:
        for row, (new, old) in enumerate(zip(table.epochs, before.epochs, strict=True)):
            if new is not None and old is not None and new != old:
                restarted.add(row)
    fell_once: set[int] = set()
    for column in unsteady:
        for row in _fallen_rows(before, column):
            (restarted if row in fell_once else fell_once).add(row)
    return frozenset(restarted)


def _fallen_rows(before: CounterState, column: Column) -> list[int]:
    """Return the rows whose value is below its baseline."""
    old = before.columns.get(column.metric.ending)
    if old is None:
        return []
    pairs = zip(column.values, old.values, strict=True)
    return [
        row
        for row, (new, last) in enumerate(pairs)
        if new is not None and last is not None and new < last  # type: ignore[operator]  # counters are integers
    ]


def begin(column: Column, time: float, times: Sequence[float] | None) -> Baseline:
    """Return the baseline of a column that is read for the first time."""
    values: Sequence[int | None] = column.values  # type: ignore[assignment]  # counters are integers
    own = None
    if None in values:
        own = [time] * len(values) if times is None else list(times)
    return Baseline(column, values, own, None, _exported(column, values))


def advance(old: Baseline, column: Column, *, held: bool) -> Baseline:
    """Advance a steady column; its baseline stays if `held`, when the time of the rows did not advance."""
    if column is old.raw and (held or column.values is old.values):
        return old
    values: Sequence[int] = column.values  # type: ignore[assignment]  # integers, and none is missing
    extended = values if old.offsets is None else list(map(int.__add__, values, old.offsets))
    return Baseline(column, old.values if held else values, None, old.offsets, _exported(column, extended))


def deltas_of(old: Baseline, seconds: float, column: Column) -> Deltas:
    """Return the increases of a steady column."""
    values: Sequence[int] = column.values  # type: ignore[assignment]  # integers, and none is missing
    last: Sequence[int] = old.values  # type: ignore[assignment]  # likewise
    return [(new - was, seconds) for new, was in zip(values, last, strict=True)]


def advance_by_row(
    old: Baseline, before: CounterState, table: Table, column: Column, restarted: frozenset[int], resets: list[int]
) -> tuple[Baseline, Deltas]:
    """Advance a column of which values are missing or fell, or rows restarted: the slow path.

    A counter that fell alone and did not wrap is added to `resets`; rows of `restarted` are counted there already.
    """
    values, times = list(old.values), list(_times(old, before))
    offsets = [0] * len(values) if old.offsets is None else list(old.offsets)
    exported: list[int | None] = [None] * len(values)
    deltas: Deltas = [None] * len(values)
    for row, new in enumerate(column.values):
        if not isinstance(new, int):
            # Missing: value and time of the baseline stay, so that the next rate covers the whole gap. After a restart
            # there is no baseline, as the next value must not be compared with one from before it.
            if row in restarted:
                values[row] = None
                offsets[row] = 0
            continue
        now = table.time if table.times is None else table.times[row]
        last, seconds = values[row], now - times[row]
        held = False
        if last is None or row in restarted:  # a first value has no delta, and starts without wraps
            offsets[row] = 0
        elif new >= last:
            deltas[row] = (new - last, seconds)
            # The row's time did not advance: the device answered from a cache. The baseline stays until it does, or the
            # rate would be 0 now and too high next time.
            held = seconds == 0
        else:
            delta = new - last + (1 << column.width)
            if _is_wrap(table, column, row, delta, seconds):
                offsets[row] += 1 << column.width
                deltas[row] = (delta, seconds)
            else:
                offsets[row] = 0
                resets[row] += 1
        if not held:
            values[row], times[row] = new, now
        exported[row] = new + offsets[row]
    # None again as soon as nothing is added and all rows were read at once: the column may be steady next time.
    offsets_or_none = offsets if any(offsets) else None
    times_or_none = times if None in column.values else None
    return Baseline(column, values, times_or_none, offsets_or_none, _exported(column, exported)), deltas


def _is_wrap(table: Table, column: Column, row: int, delta: int, seconds: float) -> bool:
    """Return whether a counter that fell without a restart wrapped; `delta` is its increase in that case."""
    if column.saturates or seconds <= 0 or not 0 <= delta < 1 << (column.width - 1):
        return False  # negative if the counter was wider than its declared width
    limit = limits(table, column.metric.ending)[row]
    if limit is None:
        return column.width <= MAX_WRAPPING_WIDTH
    return delta * column.factor / column.divisor <= limit * seconds * SLACK


def limits(table: Table, ending: str, default_speed: float | None = None) -> Sequence[float | None]:
    """Return for each row the maximum increase per second that its link allows; None where there is no such limit.

    Args:
        table: The table of the counter.
        ending: Ending of the counter.
        default_speed: Bytes per second assumed for links of unknown speed.
    """
    size = len(table.rows)
    if ending.endswith("_seconds_total"):
        return [1.0] * size
    counts_bytes = ending.endswith("_bytes_total")
    if not counts_bytes and ending not in vocabulary.RATES:
        return [None] * size
    speeds = [speed or default_speed for speed in table.numbers(vocabulary.SPEED) or [None] * size]
    return speeds if counts_bytes else [speed and speed / SMALLEST_PACKET for speed in speeds]


def _exported(column: Column, values: Sequence[int | None]) -> Column:
    """Return raw values in base units."""
    factor, divisor = column.factor, column.divisor
    if divisor != 1:
        return Column(column.metric, [None if value is None else value * factor / divisor for value in values])
    if factor != 1:
        return Column(column.metric, [None if value is None else value * factor for value in values])
    return Column(column.metric, values)
