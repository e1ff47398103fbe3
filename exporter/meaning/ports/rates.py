"""Counters to what is exported of them: extended to 64 bits, in base units, with their rates.

A counter that falls either wrapped or started anew. It is a wrap only if nothing speaks for a restart (the row's
epoch changed, another counter of the row fell too), the counter is one that wraps, and the wrapped delta is under
half the range and possible on the link. All else is a reset: no rate for that interval, and a new baseline. Baselines
advance for each value alone: a read that misses one keeps that one's baseline and measures over the longer time.

Where the time of a row did not move on since the last read, its device answered from what it had counted by then: the
row keeps its baselines and its rates, so that a cache makes no rate of 0 now and of twice the truth next time.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import NamedTuple, TypeAlias, TypeVar

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Kind,
    Metric,
    Rows,
    Schema,
    Table,
)
from exporter.core.vocabulary import RESETS

Times: TypeAlias = list[float]

Deltas: TypeAlias = list[tuple[int, float] | None]
"""What each row of a column rose by, and the seconds that took; None where that is not known."""

Cell = TypeVar("Cell")

SMALLEST_PACKET = 64
"""Bytes of the smallest Ethernet frame, which bounds the packets a link can carry."""

SLACK = 1.25
"""How far above the link's nominal speed a delta may be and still be believed; clocks and speeds are rounded."""

IMPOSSIBLE = 16
"""Times what the link can carry, or time passed, above which a rise is none: the device answered nonsense, or 0, for a
moment. So much since the speed that a switch tells may be one that somebody configured."""

FASTEST = 1.6e12 / 8
"""Bytes per second of the fastest link there is, for those whose speed is not known."""

UNBOUNDED_WIDTH = 32
"""Counters wider than this do not wrap in practice: without a link speed to judge by, a fall of one is a reset."""

LONGEST_HOLD = 600.0
"""Seconds for which a row keeps a rate while its time stands still: no cache that is known lasts longer, and a device
whose time stamps stand for ever has no rates."""

SATURATED = "saturated"

_SATURATED_LABEL = "counter"


class Baseline(NamedTuple):
    """What is remembered of a column.

    Attributes:
        raw: The column as it was read last.
        values: The last good raw value of each row.
        times: When each was read; None for all at the time, or the times, of the state.
        offsets: What was added to each for wraps so far; None while that is nothing.
        exported: What was made of it.
    """

    raw: Column
    values: Sequence[int | None]
    times: Times | None
    offsets: Sequence[int] | None
    exported: Column


@dataclass(frozen=True, slots=True)
class State:
    """What a table's counters were.

    Attributes:
        time: When the rows were read, and `times` that of each, where that differs.
        rows: Its rows, in whose order all else is.
        epochs: The last known of each row.
        columns: What is remembered of each column, by ending.
        resets: How often each row started anew.
        rates: By ending of the counter, what each row rose by per second up to its last good value.
        saturated: The rows of the table that names saturated counters, kept for their text.
    """

    time: float
    times: Sequence[float] | None
    rows: Rows
    epochs: Sequence[Hashable] | None
    columns: dict[str, Baseline]
    resets: Sequence[int]
    rates: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    saturated: Rows | None = None


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema."""
    counters = [one for one in schema.metrics.values() if one.kind is Kind.COUNTER]
    if schema.internal or not counters:
        return []
    endings = [vocabulary.RATES[one.ending] for one in counters if one.ending in vocabulary.RATES]
    if vocabulary.SPEED in schema.metrics:
        endings += [vocabulary.UTILIZATION[one] for one in endings if one in vocabulary.UTILIZATION]
    derived = [_derived(schema, ending) for ending in endings]
    if RESETS in schema.metrics:
        derived += [schema.metrics[RESETS], _saturated_schema(schema).metrics[SATURATED]]
    return derived


_made: dict[tuple[Schema, str], Metric] = {}


def _derived(schema: Schema, ending: str) -> Metric:
    """Give the one Metric object of a derived ending."""
    made = _made.get((schema, ending))
    if made is None:
        made = _made[schema, ending] = vocabulary.metric(
            schema.prefix, schema.labels, ending, detail=ending in schema.details
        )
    return made


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Turn raw counters into exported ones and add rates, utilisation, resets and saturation.

    Returns the new state and the tables: the given one with its counters made ready, and where counters stand at
    their top, a table that names them.
    """
    counters = [column for column in table.columns.values() if column.metric.kind is Kind.COUNTER]
    if table.schema.internal or not counters:
        return state, (table,)
    time, times = _read_at(table)
    before = _aligned(state, table, time, times)
    suspects = _suspects(before, times, counters)
    suspected = {column.metric.ending for column in suspects}
    restarted = _restarted(before, table, suspects)
    resets = [count + (place in restarted) for place, count in enumerate(before.resets)]
    held = time == before.time  # all of them, where rows have no times of their own
    baselines: dict[str, Baseline] = {}
    known_rates = dict(before.rates)
    columns: list[Column] = []
    for column in counters:
        ending = column.metric.ending
        old = before.columns.get(ending)
        deltas: Deltas | None = None
        slow = bool(restarted) or ending in suspected
        if old is None:
            baseline = _begin(column, time, times)
        elif slow:
            baseline, deltas = _advance_slowly(old, before, table, column, restarted, resets)
        else:
            baseline = _advance(old, column, held=held)
            deltas = _deltas(old, time - before.time, column) if ending in vocabulary.RATES else None
        baselines[ending] = baseline
        columns.append(baseline.exported)
        if deltas is not None and ending in vocabulary.RATES:
            rates = _rates(table, column, deltas)
            last = known_rates.get(ending)
            if last is not None and (slow or held):
                rates = _with_held(rates, last, table, deltas)
                known_rates[ending] = _last_known_rates(rates, last, column)
            else:
                known_rates[ending] = rates
            columns += _rate_columns(table, ending, rates)
    missing = {ending: old for ending, old in before.columns.items() if ending not in baselines}
    baselines |= {ending: _without(old, before, restarted) for ending, old in missing.items()}
    if RESETS in table.schema.metrics:
        columns.append(Column(table.schema.metrics[RESETS], resets))
    saturated = _saturated(before.saturated, table, counters)
    done = State(
        time,
        times,
        table.rows,
        _last_known(before.epochs, table.epochs),
        baselines,
        resets,
        known_rates,
        None if saturated is None else saturated.rows,
    )
    ready = table.with_columns(columns)
    return done, (ready,) if saturated is None else (ready, saturated)


def _read_at(table: Table) -> tuple[float, Sequence[float] | None]:
    """Give the time at which the rows were read, and that of each row where these differ."""
    times = table.times
    if not times:
        return table.time, None
    return times[0], None if times.count(times[0]) == len(times) else times


def _aligned(state: State | None, table: Table, time: float, times: Sequence[float] | None) -> State:
    """Bring the state into the order of the table's rows; rows that are gone are forgotten, new ones start empty."""
    size = len(table.rows)
    if state is None:
        return State(time, times, table.rows, table.epochs, {}, [0] * size)
    if state.rows is table.rows:
        return state
    places = [state.rows.index.get(key) for key in table.rows.keys]

    def moved(cells: Sequence[Cell], empty: Cell) -> list[Cell]:
        return [empty if place is None else cells[place] for place in places]

    columns = {
        ending: Baseline(
            old.raw,
            moved(old.values, None),
            moved(_times(old, state), 0.0),
            None if old.offsets is None else moved(old.offsets, 0),
            old.exported._replace(values=moved(old.exported.values, None)),
        )
        for ending, old in state.columns.items()
    }
    rates = {ending: moved(last, None) for ending, last in state.rates.items()}
    epochs = None if state.epochs is None else moved(state.epochs, None)
    return State(state.time, None, table.rows, epochs, columns, moved(state.resets, 0), rates, state.saturated)


def _times(old: Baseline, before: State) -> Times:
    """Give the time of each row's last good value."""
    if old.times is not None:
        return old.times
    return [before.time] * len(old.values) if before.times is None else list(before.times)


def _last_known(old: Sequence[Hashable] | None, new: Sequence[Hashable] | None) -> Sequence[Hashable] | None:
    """Keep the epoch of a row that was not told this time, so that a restart is seen however long that lasts."""
    if old is None or (new is not None and None not in new):
        return new
    return old if new is None else [last if now is None else now for last, now in zip(old, new, strict=True)]


def _without(old: Baseline, before: State, restarted: frozenset[int]) -> Baseline:
    """Keep a column that is missing from a read, but for rows that started anew."""
    values = [None if place in restarted else value for place, value in enumerate(old.values)]
    offsets = old.offsets
    if offsets is not None:
        offsets = [0 if place in restarted else value for place, value in enumerate(offsets)]
    return Baseline(old.raw, values, _times(old, before), offsets, old.exported)


def _fallen(before: State, column: Column) -> list[int]:
    """List the rows whose value is below its baseline."""
    old = before.columns.get(column.metric.ending)
    if old is None:
        return []
    pairs = zip(column.values, old.values, strict=True)
    return [
        place
        for place, (new, last) in enumerate(pairs)
        if new is not None and last is not None and new < last  # type: ignore[operator]  # counters are integers
    ]


def _restarted(before: State, table: Table, suspects: Sequence[Column]) -> frozenset[int]:
    """Find the rows that started anew: by their epoch, or because more than one of their counters fell.

    `suspects` are the columns that did not simply rise.
    """
    restarted: set[int] = set()
    if table.epochs is not None and before.epochs is not None and table.epochs != before.epochs:
        for place, (new, old) in enumerate(zip(table.epochs, before.epochs, strict=True)):
            if new is not None and old is not None and new != old:
                restarted.add(place)
    once: set[int] = set()
    for column in suspects:
        for place in _fallen(before, column):
            (restarted if place in once else once).add(place)
    return frozenset(restarted)


def _suspects(before: State, times: Sequence[float] | None, counters: list[Column]) -> list[Column]:
    """Find the columns that are not all there, or fell somewhere, at the speed of C; the others are steady.

    Args:
        before: What the counters were.
        times: The time of each row, where these differ.
        counters: The columns.
    """
    if before.times is not None or times is not None:  # each row has its own interval
        return counters
    known = before.columns
    return [
        column
        for column in counters
        if (old := known.get(column.metric.ending)) is not None
        and not (old.times is None and (column.values is old.values or _is_steady(column, old)))
    ]


def _is_steady(column: Column, old: Baseline) -> bool:
    """Tell whether every value of a column is there and none fell."""
    return (
        None not in column.values and None not in old.values and all(map(ge, column.values, old.values))  # type: ignore[arg-type]  # integers, and none is missing
    )


def _begin(column: Column, time: float, times: Sequence[float] | None) -> Baseline:
    """Take the first values of a column."""
    values: Sequence[int | None] = column.values  # type: ignore[assignment]  # counters are integers
    own = None
    if None in values:
        own = [time] * len(values) if times is None else list(times)
    return Baseline(column, values, own, None, _exported(column, values))


def _advance(old: Baseline, column: Column, *, held: bool) -> Baseline:
    """Move a column on of which every value is there and none fell; where time stood still, its baseline stays."""
    if column is old.raw and (held or column.values is old.values):
        return old
    values: Sequence[int] = column.values  # type: ignore[assignment]  # integers, and none is missing
    extended = values if old.offsets is None else list(map(int.__add__, values, old.offsets))
    return Baseline(column, old.values if held else values, None, old.offsets, _exported(column, extended))


def _deltas(old: Baseline, seconds: float, column: Column) -> Deltas:
    """Give what each row of a steady column rose by."""
    values: Sequence[int] = column.values  # type: ignore[assignment]  # integers, and none is missing
    last: Sequence[int] = old.values  # type: ignore[assignment]  # likewise
    return [(new - was, seconds) for new, was in zip(values, last, strict=True)]


def _advance_slowly(
    old: Baseline, before: State, table: Table, column: Column, restarted: frozenset[int], resets: list[int]
) -> tuple[Baseline, Deltas]:
    """Move a column on where values are missing, fell, or the row started anew; lone falls are counted in `resets`."""
    values, times = list(old.values), list(_times(old, before))
    offsets = [0] * len(values) if old.offsets is None else list(old.offsets)
    exported: list[int | None] = [None] * len(values)
    deltas: Deltas = [None] * len(values)
    for place, new in enumerate(column.values):
        if not isinstance(new, int):
            if place in restarted:  # its next value is not to be set against one from before the restart
                values[place] = None
                offsets[place] = 0
            continue
        now = table.time if table.times is None else table.times[place]
        last, seconds = values[place], now - times[place]
        held = False
        if last is None or place in restarted:
            offsets[place] = 0
        elif new >= last:
            deltas[place] = (new - last, seconds)
            held = seconds == 0
        else:
            delta = new - last + (1 << column.width)
            if _is_wrap(table, column, place, delta, seconds):
                offsets[place] += 1 << column.width
                deltas[place] = (delta, seconds)
            else:
                offsets[place] = 0
                resets[place] += 1
        if not held:
            values[place], times[place] = new, now
        exported[place] = new + offsets[place]
    kept = offsets if any(offsets) else None
    all_new = None not in column.values
    return Baseline(column, values, None if all_new else times, kept, _exported(column, exported)), deltas


def _is_wrap(table: Table, column: Column, place: int, delta: int, seconds: float) -> bool:
    """Judge a fall that no restart explains; `delta` is what the counter rose by if it wrapped."""
    if column.saturates or seconds <= 0 or not 0 <= delta < 1 << (column.width - 1):
        return False  # below zero where the counter was wider than its declared width
    limit = _limits(table, column.metric.ending)[place]
    if limit is None:
        return column.width <= UNBOUNDED_WIDTH
    return delta * column.factor / column.divisor <= limit * seconds * SLACK


def _limits(table: Table, ending: str, unknown: float | None = None) -> Sequence[float | None]:
    """Give for each row the most that a counter can rise in a second on its link, None where nothing tells.

    Args:
        table: The table that the counter is of.
        ending: The counter's.
        unknown: Bytes per second to reckon with where the link's speed is not known.
    """
    size = len(table.rows)
    if ending.endswith("_seconds_total"):
        return [1.0] * size
    of_bytes = ending.endswith("_bytes_total")
    if not of_bytes and ending not in vocabulary.RATES:
        return [None] * size
    speeds = [speed or unknown for speed in table.numbers(vocabulary.SPEED) or [None] * size]
    return speeds if of_bytes else [speed and speed / SMALLEST_PACKET for speed in speeds]


def _exported(column: Column, values: Sequence[int | None]) -> Column:
    """Bring raw values into base units."""
    factor, divisor = column.factor, column.divisor
    if divisor != 1:
        return Column(column.metric, [None if value is None else value * factor / divisor for value in values])
    if factor != 1:
        return Column(column.metric, [None if value is None else value * factor for value in values])
    return Column(column.metric, values)


def _rates(table: Table, column: Column, deltas: Deltas) -> list[float | None]:
    """Divide deltas by the seconds they took."""
    scale = column.factor / column.divisor
    limits = _limits(table, column.metric.ending, FASTEST)
    return [
        None
        if pair is None or pair[1] <= 0 or (limit is not None and pair[0] * scale > IMPOSSIBLE * limit * pair[1])
        else pair[0] * scale / pair[1]
        for pair, limit in zip(deltas, limits, strict=True)
    ]


def _with_held(
    rates: Sequence[float | None], last: Sequence[float | None], table: Table, deltas: Deltas
) -> list[float | None]:
    """Put the last rates in the place of those of rows whose time stands still, but not for ever."""
    times = table.times or [table.time] * len(rates)
    return [
        was if pair is not None and pair[1] == 0 and table.time - time <= LONGEST_HOLD else rate
        for rate, was, pair, time in zip(rates, last, deltas, times, strict=True)
    ]


def _last_known_rates(
    rates: Sequence[float | None], last: Sequence[float | None], column: Column
) -> Sequence[float | None]:
    """Keep the rate of a row whose value was not told this time, as its baseline is kept."""
    return [was if value is None else rate for rate, was, value in zip(rates, last, column.values, strict=True)]


def _rate_columns(table: Table, counted: str, rates: Sequence[float | None]) -> list[Column]:
    """Make columns of the rates of a counter, of the ending `counted`; bytes are set against the link's speed."""
    ending = vocabulary.RATES[counted]
    speeds = table.numbers(vocabulary.SPEED)
    made = [Column(_derived(table.schema, ending), rates)]
    if ending in vocabulary.UTILIZATION and speeds is not None:
        shares = [
            rate / speed if rate is not None and speed else None for rate, speed in zip(rates, speeds, strict=True)
        ]
        made.append(Column(_derived(table.schema, vocabulary.UTILIZATION[ending]), shares))
    return made


def _saturated(before: Rows | None, table: Table, counters: Sequence[Column]) -> Table | None:
    """Name the counters that stand at their top; None where there are none. They rarely change: rows are kept."""
    stuck = tuple(
        (*key, column.metric.ending.removesuffix("_total"))
        for column in counters
        if column.saturates and (1 << column.width) - 1 in column.values
        for key, value in zip(table.rows.keys, column.values, strict=True)
        if value == (1 << column.width) - 1
    )
    if not stuck:
        return None
    schema = _saturated_schema(table.schema)
    rows = before if before is not None and before.keys == stuck else Rows(schema.labels, stuck, {})
    column = Column(schema.metrics[SATURATED], [1] * len(stuck))
    return Table(schema, rows, {SATURATED: column}, table.time, part=table.part)


_saturated_schemas: dict[Schema, Schema] = {}


def _saturated_schema(schema: Schema) -> Schema:
    """Give the one schema that names the saturated counters of a schema's tables."""
    made = _saturated_schemas.get(schema)
    if made is None:
        labels = (*schema.labels, _SATURATED_LABEL)
        made = _saturated_schemas[schema] = vocabulary.schema(schema.prefix, labels, [SATURATED])
    return made
