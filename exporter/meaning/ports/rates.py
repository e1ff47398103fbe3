"""Rates of counters, with utilization, resets and saturation.

The counters of a table are made ready for export (see `counters`), and those of `vocabulary.RATES` get a column with
their increase per second. Where the time of a row did not advance since the last read, its device answered from a
cache: the row keeps its baselines and its rates, so that a cache does not make the rate 0 now and too high next time.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

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
from exporter.meaning.ports import counters
from exporter.meaning.ports.counters import Baseline, CounterState, Deltas
from exporter.meaning.ports.speeds import MAX_LINK_SPEED

MAX_EXCESS = 16
"""Factor over what the link can carry, or over the time passed, above which a delta gets no rate: the device returned a
wrong value, or 0, for a moment. It is that large because the speed that a switch reports may be a configured one."""

MAX_HELD_SECONDS = 600.0
"""Seconds for which a row keeps its rate while its time does not advance: no known cache lasts longer, and a device
whose time stamps never advance has no rates."""

SATURATED = "saturated"

_SATURATED_LABEL = "counter"

Rates: TypeAlias = Sequence[float | None]
"""Increase per second of each row; None where unknown."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` adds to tables of a schema."""
    metrics = [one for one in schema.metrics.values() if one.kind is Kind.COUNTER]
    if schema.internal or not metrics:
        return []
    endings = [vocabulary.RATES[one.ending] for one in metrics if one.ending in vocabulary.RATES]
    if vocabulary.SPEED in schema.metrics:
        endings += [vocabulary.UTILIZATION[one] for one in endings if one in vocabulary.UTILIZATION]
    derived = [_derived(schema, ending) for ending in endings]
    if RESETS in schema.metrics:
        derived += [schema.metrics[RESETS], _saturated_schema(schema).metrics[SATURATED]]
    return derived


@lru_cache(maxsize=8192)
def _derived(schema: Schema, ending: str) -> Metric:
    """Return the Metric of a derived ending: one object, as metrics are compared by identity."""
    return vocabulary.metric(schema.prefix, schema.labels, ending, detail=ending in schema.details)


def step(state: CounterState | None, table: Table) -> tuple[CounterState | None, Sequence[Table]]:
    """Turn raw counters into exported ones and add rates, utilization, resets and saturation.

    Returns:
        The new state and the tables: the given one with its counters made ready, and if counters are saturated, a table
        that lists them.
    """
    raw = [column for column in table.columns.values() if column.metric.kind is Kind.COUNTER]
    if table.schema.internal or not raw:
        return state, (table,)
    time, times = _read_times(table)
    before = counters.aligned(state, table, time, times)
    unsteady = counters.unsteady_columns(before, times, raw)
    restarted = counters.restarted_rows(before, table, unsteady)
    resets = [count + (row in restarted) for row, count in enumerate(before.resets)]
    baselines, rates, columns = _advance_all(before, table, time, times, raw, unsteady, restarted, resets)
    if RESETS in table.schema.metrics:
        columns.append(Column(table.schema.metrics[RESETS], resets))
    saturated = _saturated(before.saturated, table, raw)
    after = CounterState(
        time,
        times,
        table.rows,
        counters.last_known_epochs(before.epochs, table.epochs),
        baselines,
        resets,
        rates,
        None if saturated is None else saturated.rows,
    )
    ready = table.with_columns(columns)
    return after, (ready,) if saturated is None else (ready, saturated)


def _read_times(table: Table) -> tuple[float, Sequence[float] | None]:
    """Return the time at which the rows were read, and that of each row where these differ."""
    times = table.times
    if not times:
        return table.time, None
    return times[0], None if times.count(times[0]) == len(times) else times


def _advance_all(
    before: CounterState,
    table: Table,
    time: float,
    times: Sequence[float] | None,
    raw: Sequence[Column],
    unsteady: Sequence[Column],
    restarted: frozenset[int],
    resets: list[int],
) -> tuple[dict[str, Baseline], dict[str, Rates], list[Column]]:
    """Advance all counters; return baselines and rates by ending, and the columns to export. Adds to `resets`."""
    unsteady_endings = {column.metric.ending for column in unsteady}
    held = time == before.time  # all rows at once; where rows have times of their own, the slow path looks at each
    baselines: dict[str, Baseline] = {}
    known_rates = dict(before.rates)
    columns: list[Column] = []
    for column in raw:
        ending = column.metric.ending
        old = before.columns.get(ending)
        deltas: Deltas | None = None
        # A restart concerns all columns, also steady ones: a counter that was reset may have risen above its baseline
        # since, and its delta would be wrong.
        slow = bool(restarted) or ending in unsteady_endings
        if old is None:
            baseline = counters.begin(column, time, times)
        elif slow:
            baseline, deltas = counters.advance_by_row(old, before, table, column, restarted, resets)
        else:
            baseline = counters.advance(old, column, held=held)
            deltas = counters.deltas_of(old, time - before.time, column) if ending in vocabulary.RATES else None
        baselines[ending] = baseline
        columns.append(baseline.exported)
        if deltas is not None and ending in vocabulary.RATES:
            rates: Rates = _rates(table, column, deltas)
            last = known_rates.get(ending)
            if last is not None and (slow or held):
                rates = _with_held(rates, last, table, deltas)
                known_rates[ending] = _last_known_rates(rates, last, column)
            else:
                known_rates[ending] = rates
            columns += _rate_columns(table, ending, rates)
    missing = {ending: old for ending, old in before.columns.items() if ending not in baselines}
    baselines |= {ending: counters.without_restarted(old, before, restarted) for ending, old in missing.items()}
    return baselines, known_rates, columns


def _rates(table: Table, column: Column, deltas: Deltas) -> list[float | None]:
    """Divide deltas by the seconds that they took."""
    scale = column.factor / column.divisor
    limits = _highest_rates(table, column.metric.ending)
    return [
        None
        if pair is None or pair[1] <= 0 or (limit is not None and pair[0] * scale > limit * pair[1])
        else pair[0] * scale / pair[1]
        for pair, limit in zip(deltas, limits, strict=True)
    ]


def _highest_rates(table: Table, ending: str) -> Sequence[float | None]:
    """Return for each row the increase per second above which a delta is an error of the device.

    A row whose stated speed is not believed has no speed that may be wrong by some factor: the limit is what is
    possible at all.
    """
    if table.ceilings is None or ending.endswith("_seconds_total"):
        limits = counters.limits(table, ending, MAX_LINK_SPEED)
        return [None if limit is None else MAX_EXCESS * limit for limit in limits]
    share = 1 if ending.endswith("_bytes_total") else counters.SMALLEST_PACKET
    highest: list[float | None] = []
    for stated, ceiling in zip(counters.limits(table, ending), table.ceilings, strict=True):
        tolerated = MAX_EXCESS * (stated or MAX_LINK_SPEED / share)
        possible = tolerated if ceiling is None else ceiling / share
        highest.append(min(possible, tolerated) if stated else possible)
    return highest


def _with_held(rates: Rates, last: Rates, table: Table, deltas: Deltas) -> list[float | None]:
    """Return the rates with those of rows whose time did not advance replaced by the last ones, for a limited time."""
    times = table.times or [table.time] * len(rates)
    return [
        was if pair is not None and pair[1] == 0 and table.time - time <= MAX_HELD_SECONDS else rate
        for rate, was, pair, time in zip(rates, last, deltas, times, strict=True)
    ]


def _last_known_rates(rates: Rates, last: Rates, column: Column) -> list[float | None]:
    """Return the rates with the last one for rows that this read lacks, as their baselines are kept too."""
    return [was if value is None else rate for rate, was, value in zip(rates, last, column.values, strict=True)]


def _rate_columns(table: Table, counter_ending: str, rates: Rates) -> list[Column]:
    """Return the column of a counter's rates, and for bytes one of their share of the link speed."""
    ending = vocabulary.RATES[counter_ending]
    speeds = table.numbers(vocabulary.SPEED)
    columns = [Column(_derived(table.schema, ending), rates)]
    if ending in vocabulary.UTILIZATION and speeds is not None:
        shares = [
            rate / speed if rate is not None and speed else None for rate, speed in zip(rates, speeds, strict=True)
        ]
        columns.append(Column(_derived(table.schema, vocabulary.UTILIZATION[ending]), shares))
    return columns


def _saturated(before: Rows | None, table: Table, raw: Sequence[Column]) -> Table | None:
    """Return a table of the counters at the top of their range, None if there are none. Reuses unchanged rows."""
    keys = tuple(
        (*key, column.metric.ending.removesuffix("_total"))
        for column in raw
        if column.saturates and (1 << column.width) - 1 in column.values
        for key, value in zip(table.rows.keys, column.values, strict=True)
        if value == (1 << column.width) - 1
    )
    if not keys:
        return None
    schema = _saturated_schema(table.schema)
    rows = before if before is not None and before.keys == keys else Rows(schema.labels, keys, {})
    column = Column(schema.metrics[SATURATED], [1] * len(keys))
    return Table(schema, rows, {SATURATED: column}, table.time, part=table.part)


@lru_cache(maxsize=1024)
def _saturated_schema(schema: Schema) -> Schema:
    """Return the schema of the table that lists the saturated counters of a schema's tables."""
    return vocabulary.schema(schema.prefix, (*schema.labels, _SATURATED_LABEL), [SATURATED])
