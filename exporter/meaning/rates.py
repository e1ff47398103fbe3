"""Counters to what is exported of them: extended to 64 bits, in base units, with their rates.

A counter that falls either wrapped or started anew. It is a wrap only if nothing speaks for a restart (the row's
epoch changed, another counter of the row fell too), the counter is one that wraps, and the wrapped delta is under
half the range and possible on the link. All else is a reset: no rate for that interval, and a new baseline. Baselines
advance for each value alone: a read that misses one keeps that one's baseline and measures over the longer time.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import ge
from typing import TypeAlias

from exporter import vocabulary
from exporter.table import Column, Kind, Metric, Rows, Schema, Table

Times: TypeAlias = list[float]

SMALLEST_PACKET = 64
"""Bytes of the smallest Ethernet frame, which bounds the packets a link can carry."""

SLACK = 1.25
"""How far above the link's nominal speed a delta may be and still be believed; clocks and speeds are rounded."""

UNBOUNDED_WIDTH = 32
"""Counters wider than this do not wrap in practice: without a link speed to judge by, a fall of one is a reset."""

RESETS = "counter_resets_total"
"""Filled in where the schema declares it: a port's tables of finer rows start anew together with the port's own."""

_SATURATED_LABEL = "counter"


@dataclass(frozen=True, slots=True)
class Baseline:
    """The last good raw value of each row, when it was read, and what was added to it for wraps so far."""

    values: Sequence[int | None]
    times: Times
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class State:
    """What a table's counters were."""

    rows: Rows
    epochs: Sequence[Hashable] | None
    columns: dict[str, Baseline] = field(default_factory=dict)
    resets: Sequence[int] = ()


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
        labels = (*schema.labels, _SATURATED_LABEL)
        derived += [schema.metrics[RESETS], vocabulary.metric(schema.prefix, labels, "counter_saturated")]
    return derived


_made: dict[tuple[Schema, str], Metric] = {}


def _derived(schema: Schema, ending: str) -> Metric:
    """Give the one Metric object of a derived ending."""
    made = _made.get((schema, ending))
    if made is None:
        made = _made[schema, ending] = vocabulary.metric(schema.prefix, schema.labels, ending)
    return made


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Turn raw counters into exported ones and add rates, utilisation, resets and saturation.

    Returns the new state and the tables: the given one with its counters made ready, and where counters stand at
    their top, a table that names them.
    """
    counters = [column for column in table.columns.values() if column.metric.kind is Kind.COUNTER]
    if table.schema.internal or not counters:
        return state, (table,)
    before = _aligned(state, table)
    restarted = _restarted(before, table, counters)
    resets = [count + (place in restarted) for place, count in enumerate(before.resets)]
    baselines: dict[str, Baseline] = {}
    columns: list[Column] = []
    for column in counters:
        baseline, exported, deltas = _advance(before, table, column, restarted, resets)
        baselines[column.metric.ending] = baseline
        columns.append(Column(column.metric, exported))
        if deltas is not None and column.metric.ending in vocabulary.RATES:
            columns += _rate_columns(table, column, deltas)
    for ending, baseline in before.columns.items():
        if ending not in baselines:  # a column that is missing from this read keeps its baseline
            baselines[ending] = _without(baseline, restarted)
    if RESETS in table.schema.metrics:
        columns.append(Column(table.schema.metrics[RESETS], resets))
    done = State(table.rows, _last_known(before.epochs, table.epochs), baselines, resets)
    saturated = _saturated(table, counters)
    ready = table.with_columns(columns)
    return done, (ready,) if saturated is None else (ready, saturated)


def _aligned(state: State | None, table: Table) -> State:
    """Bring the state into the order of the table's rows; rows that are gone are forgotten, new ones start empty."""
    size = len(table.rows)
    if state is None:
        return State(table.rows, table.epochs, {}, [0] * size)
    if state.rows is table.rows:
        return state
    places = [state.rows.index.get(key) for key in table.rows.keys]
    columns = {
        ending: Baseline(
            [None if place is None else old.values[place] for place in places],
            [0.0 if place is None else old.times[place] for place in places],
            [0 if place is None else old.offsets[place] for place in places],
        )
        for ending, old in state.columns.items()
    }
    resets = [0 if place is None else state.resets[place] for place in places]
    epochs = None
    if state.epochs is not None:
        epochs = [None if place is None else state.epochs[place] for place in places]
    return State(table.rows, epochs, columns, resets)


def _last_known(old: Sequence[Hashable] | None, new: Sequence[Hashable] | None) -> Sequence[Hashable] | None:
    """Keep the epoch of a row that was not told this time, so that a restart is seen however long that lasts."""
    if old is None or (new is not None and None not in new):
        return new
    return old if new is None else [last if now is None else now for last, now in zip(old, new, strict=True)]


def _without(old: Baseline, restarted: frozenset[int]) -> Baseline:
    """Forget what rows that started anew had: their next value must not be set against one from before."""
    if not restarted:
        return old
    values = [None if place in restarted else value for place, value in enumerate(old.values)]
    return Baseline(values, old.times, [0 if place in restarted else value for place, value in enumerate(old.offsets)])


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


def _restarted(before: State, table: Table, counters: Sequence[Column]) -> frozenset[int]:
    """Find the rows that started anew: by their epoch, or because more than one of their counters fell."""
    restarted: set[int] = set()
    if table.epochs is not None and before.epochs is not None and table.epochs != before.epochs:
        for place, (new, old) in enumerate(zip(table.epochs, before.epochs, strict=True)):
            if new is not None and old is not None and new != old:
                restarted.add(place)
    once: set[int] = set()
    for column in counters:
        if not _risen(before, column):
            for place in _fallen(before, column):
                (restarted if place in once else once).add(place)
    return frozenset(restarted)


def _risen(before: State, column: Column) -> bool:
    """Tell fast, at the speed of C, that every value is there and none fell; False means a closer look."""
    old = before.columns.get(column.metric.ending)
    if old is None or None in column.values or None in old.values:
        return False
    return all(map(ge, column.values, old.values))  # type: ignore[arg-type]  # integers, and none is missing


def _advance(
    before: State, table: Table, column: Column, restarted: frozenset[int], resets: list[int]
) -> tuple[Baseline, Sequence[int | float | None], list[tuple[int, float] | None] | None]:
    """Move one column on: its new baseline, its exported values, and each row's delta with the seconds it took.

    `resets` is counted up for rows that started anew (once a row and step).
    """
    old = before.columns.get(column.metric.ending)
    values: Sequence[int | None] = column.values  # type: ignore[assignment]  # counters are integers
    if old is None:
        fresh = Baseline(values, [table.time] * len(values), [0] * len(values))
        return fresh, _scaled(column, values), None
    wanted = column.metric.ending in vocabulary.RATES
    if not restarted and _risen(before, column):
        deltas: list[tuple[int, float] | None] | None = None
        if wanted:
            deltas = [
                (new - last, table.time - then)  # type: ignore[operator]  # _risen: none is missing
                for new, last, then in zip(values, old.values, old.times, strict=True)
            ]
        offsets = old.offsets
        extended = values if not any(offsets) else list(map(int.__add__, values, offsets))  # type: ignore[arg-type]
        return Baseline(values, [table.time] * len(values), offsets), _scaled(column, extended), deltas
    return _advance_slowly(old, table, column, restarted, resets)


def _advance_slowly(
    old: Baseline, table: Table, column: Column, restarted: frozenset[int], resets: list[int]
) -> tuple[Baseline, Sequence[int | float | None], list[tuple[int, float] | None]]:
    """Do what `_advance` does where values are missing, fell, or the row started anew."""
    values, times, offsets = list(old.values), list(old.times), list(old.offsets)
    exported: list[int | None] = [None] * len(values)
    deltas: list[tuple[int, float] | None] = [None] * len(values)
    for place, new in enumerate(column.values):
        if not isinstance(new, int):
            if place in restarted:  # its next value is not to be set against one from before the restart
                values[place] = None
                offsets[place] = 0
            continue
        last, seconds = values[place], table.time - times[place]
        if last is not None and place not in restarted:
            delta = new - last
            if delta < 0:
                delta += 1 << column.width
                if _is_wrap(table, column, place, delta, seconds):
                    offsets[place] += 1 << column.width
                    deltas[place] = (delta, seconds)
                else:
                    offsets[place] = 0
                    resets[place] += 1
            else:
                deltas[place] = (delta, seconds)
        elif place in restarted:
            offsets[place] = 0
        values[place], times[place] = new, table.time
        exported[place] = new + offsets[place]
    return Baseline(values, times, offsets), _scaled(column, exported), deltas


def _is_wrap(table: Table, column: Column, place: int, delta: int, seconds: float) -> bool:
    """Judge a fall that no restart explains; `delta` is what the counter rose by if it wrapped."""
    if column.saturates or seconds <= 0 or not 0 <= delta < 1 << (column.width - 1):
        return False  # below zero where the counter was wider than its declared width
    limit = _limit(table, column.metric.ending, place)
    if limit is None:
        return column.width <= UNBOUNDED_WIDTH
    return delta * column.factor / column.divisor <= limit * seconds * SLACK


def _limit(table: Table, ending: str, place: int) -> float | None:
    """Give the most a counter can rise in a second on this link, or None where that is not known."""
    if ending.endswith("_seconds_total"):
        return 1.0
    speeds = table.numbers(vocabulary.SPEED)
    speed = None if speeds is None else speeds[place]
    if not speed:
        return None
    if ending.endswith("_bytes_total"):
        return speed
    return speed / SMALLEST_PACKET if ending in vocabulary.RATES else None


def _scaled(column: Column, values: Sequence[int | None]) -> Sequence[int | float | None]:
    """Bring raw values into base units."""
    factor, divisor = column.factor, column.divisor
    if divisor != 1:
        return [None if value is None else value * factor / divisor for value in values]
    if factor != 1:
        return [None if value is None else value * factor for value in values]
    return values


def _rate_columns(table: Table, column: Column, deltas: list[tuple[int, float] | None]) -> list[Column]:
    """Divide deltas by the seconds they took; where the link's speed is known, set bytes against it."""
    scale = column.factor / column.divisor
    ending = vocabulary.RATES[column.metric.ending]
    rates = [None if pair is None or pair[1] <= 0 else pair[0] * scale / pair[1] for pair in deltas]
    made = [Column(_derived(table.schema, ending), rates)]
    speeds = table.numbers(vocabulary.SPEED)
    if ending in vocabulary.UTILIZATION and speeds is not None:
        shares = [
            rate / speed if rate is not None and speed else None for rate, speed in zip(rates, speeds, strict=True)
        ]
        made.append(Column(_derived(table.schema, vocabulary.UTILIZATION[ending]), shares))
    return made


_saturated_schemas: dict[Schema, Schema] = {}


def _saturated(table: Table, counters: Sequence[Column]) -> Table | None:
    """Name the counters that stand at their top; None where there are none, which is the rule."""
    stuck = [
        (*key, column.metric.ending.removesuffix("_total"))
        for column in counters
        if column.saturates and (1 << column.width) - 1 in column.values
        for key, value in zip(table.rows.keys, column.values, strict=True)
        if value == (1 << column.width) - 1
    ]
    if not stuck:
        return None
    schema = _saturated_schemas.get(table.schema)
    if schema is None:
        labels = (*table.schema.labels, _SATURATED_LABEL)
        schema = vocabulary.schema(table.schema.prefix, labels, ["counter_saturated"])
        _saturated_schemas[table.schema] = schema
    rows = Rows(schema.labels, stuck, {})
    metric = schema.metrics["counter_saturated"]
    return Table(schema, rows, {metric.ending: Column(metric, [1] * len(stuck))}, table.time, part=table.part)
