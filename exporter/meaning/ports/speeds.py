"""Stated speeds of links, as devices report them, that cannot be true: impossible ones, and those below the traffic.

For a bundle, switches and hosts report the speed of one member, or a configured default, and agents confuse units. No
physical port is faster than 1.6 Tb/s, and no bundle is faster than 1.6 Tb/s times its members. Traffic of more than
110 % of the stated speed in three consecutive intervals disproves it, if that much traffic is possible; a single value
above it is an error of the device. A reset, a wrap or an impossible value is no evidence. A disproved speed is believed
again when the device states another one, or after an hour in which the traffic did not exceed it.

A speed that is not believed is removed from the table, so that no later step uses it, and is reported as a failure.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import le, lt, sub
from typing import NamedTuple

from exporter.core.found_failures import failure_table
from exporter.core.source import Failure
from exporter.core.table import Column, LabelValues, Metric, Rows, Schema, Table
from exporter.core.vocabulary import SPEED
from exporter.meaning.ports.counters import MAX_WRAPPING_WIDTH

MAX_LINK_SPEED = 1.6e12 / 8
"""Bytes per second of the fastest physical port that exists (IEEE 802.3dj, 1.6 Tb/s)."""

ASSUMED_MEMBERS = 64
"""Members that a bundle is assumed to have if their number is not known: the most that a switch supports."""

EXCESS = 1.1
"""Traffic over stated speed, above which they contradict each other: clocks, caches and speeds are rounded."""

INTERVALS = 3
"""Consecutive intervals with more traffic than that which disprove a speed."""

BELIEVED_AFTER = 3600.0
"""Seconds without traffic above a disproved speed after which it is believed again."""

MAX_KEPT = 4096
"""Rows that are missing from a table, and whose doubts are kept meanwhile."""

BYTES = ("receive_bytes_total", "transmit_bytes_total")

IMPOSSIBLE, DISPROVED = "speed_impossible", "speed_disproved"
"""Reasons of failures."""


class Doubt(NamedTuple):
    """Doubt about the stated speed of one row, in bytes per second.

    Attributes:
        stated: The speed.
        intervals: Consecutive intervals with more than EXCESS times as much traffic, up to the one that disproved it.
        exceeded: Time at which the traffic was last above the speed.
        carried: Bytes per second at that time.
    """

    stated: float
    intervals: int
    exceeded: float
    carried: float

    @property
    def disproves(self) -> bool:
        """Whether the speed is disproved."""
        return self.intervals >= INTERVALS


class Counts(NamedTuple):
    """Last byte count of each row in one direction, without factor and divisor of its column, and its time."""

    values: Sequence[int | None]
    times: Sequence[float]


@dataclass(frozen=True, slots=True)
class SpeedState:
    """State of a table: its rows, their epochs, last counts by the ending of the metric, and the doubts of few rows."""

    rows: Rows
    epochs: Sequence[Hashable] | None = None
    counts: Mapping[str, Counts] = field(default_factory=dict)
    doubts: Mapping[LabelValues, Doubt] = field(default_factory=dict)


def outputs(schema: Schema) -> list[Metric]:  # noqa: ARG001  # the signature of all steps
    """Return no metrics: speeds are only removed."""
    return []


def next_doubt(doubt: Doubt | None, stated: float | None, rate: float | None, limit: float, now: float) -> Doubt | None:
    """Return the doubt about a speed after one interval.

    Args:
        doubt: The doubt before.
        stated: The stated speed, None while none is.
        rate: Bytes per second in the interval; None if not measured, infinite for an error of the device.
        limit: Bytes per second that are impossible.
        now: Time of the reading.
    """
    if doubt is not None and stated and stated != doubt.stated:
        doubt = None
    speed = stated or (None if doubt is None else doubt.stated)
    if speed is None or rate is None:
        return doubt
    if doubt is not None and doubt.disproves:
        if rate >= limit:
            return doubt
        if rate > speed:
            return doubt._replace(exceeded=now, carried=rate)
        return None if now - doubt.exceeded >= BELIEVED_AFTER else doubt
    if not EXCESS * speed < rate < limit:
        return None
    return Doubt(speed, 1 if doubt is None else doubt.intervals + 1, now, rate)


def limit_of(members: int | None) -> float:
    """Return the bytes per second that are impossible for a number of links; None if it is not known."""
    return MAX_LINK_SPEED * (members or ASSUMED_MEMBERS)


def step(state: SpeedState | None, table: Table) -> tuple[SpeedState | None, Sequence[Table]]:
    """Remove speeds that are not believed from a table, before any other step; add a table of failures about them."""
    speeds = table.numbers(SPEED)
    if table.schema.internal or speeds is None:
        return state, (table,)
    before = _aligned(state, table)
    times = [table.time] * len(speeds) if table.times is None else table.times
    columns = [column for ending in BYTES if (column := table.columns.get(ending)) is not None]
    doubts, impossible = _doubts(before, table, columns, times, speeds)
    counts = {one.metric.ending: _last_counts(before.counts.get(one.metric.ending), one, times) for one in columns}
    epochs = before.epochs if table.epochs is None else table.epochs
    after = SpeedState(table.rows, epochs, {**before.counts, **counts}, doubts)
    failures = _failures(table, speeds, doubts)
    if not failures and not impossible:
        return after, (table,)
    table = _without_speeds(table, failures, impossible)
    return after, (table, _failure_table(table, failures)) if failures else (table,)


def _aligned(state: SpeedState | None, table: Table) -> SpeedState:
    """Return the state in the order of the table's rows; rows that are gone keep their doubts only."""
    if state is None:
        return SpeedState(table.rows)
    if state.rows is table.rows:
        return state
    places = [state.rows.index.get(key) for key in table.rows.keys]
    counts = {
        ending: Counts(
            [None if place is None else old.values[place] for place in places],
            [0.0 if place is None else old.times[place] for place in places],
        )
        for ending, old in state.counts.items()
    }
    known = state.epochs
    epochs = None if known is None else [None if place is None else known[place] for place in places]
    return SpeedState(table.rows, epochs, counts, state.doubts)


def _doubts(
    before: SpeedState, table: Table, columns: Sequence[Column], times: Sequence[float], speeds: Sequence[float | None]
) -> tuple[Mapping[LabelValues, Doubt], set[int]]:
    """Return the doubts after this reading, and the rows with more traffic than is possible.

    Only rows with traffic above their speed, and those that had a doubt, are examined.
    """
    index, keys, doubts = table.rows.index, table.rows.keys, before.doubts
    rows = {index[key] for key in doubts if key in index}
    seconds: Sequence[float] = ()
    measured: Sequence[float] | None = None
    for column in columns:
        old = before.counts.get(column.metric.ending)
        if old is not None and column.values is not old.values:
            if old.times is not measured:  # both directions are read together as a rule
                measured, seconds = old.times, list(map(sub, times, old.times))
            rows.update(_contradicting(old, column, seconds, speeds))
    impossible: set[int] = set()
    if not rows and not doubts:
        return doubts, impossible
    kept = _kept(doubts, index, table.time)
    for row in rows:
        limit = limit_of(_members(table, row))
        rate = inf if _restarted(before, table, row) else _rate(before, columns, row, times[row], limit)
        doubt = next_doubt(doubts.get(keys[row]), speeds[row], rate, limit, times[row])
        if doubt is not None:
            kept[keys[row]] = doubt
        if rate is not None and limit <= rate < inf:
            impossible.add(row)
    return kept, impossible


def _kept(
    doubts: Mapping[LabelValues, Doubt], index: Mapping[LabelValues, int], now: float
) -> dict[LabelValues, Doubt]:
    """Return the doubts of rows that are missing now, for as long as they hold and while there is room."""
    missing = [
        (key, doubt)
        for key, doubt in doubts.items()
        if key not in index and doubt.disproves and now - doubt.exceeded < BELIEVED_AFTER
    ]
    return dict(missing[-MAX_KEPT:])


def _contradicting(
    old: Counts, column: Column, seconds: Sequence[float], speeds: Sequence[float | None]
) -> Iterable[int]:
    """Return the rows whose count fell, or rose by more than EXCESS times their speed.

    In most reads there are none: operations on whole columns show that without a loop over rows.
    """
    most = EXCESS * column.divisor / column.factor
    highest = [most * speed * passed if speed else inf for speed, passed in zip(speeds, seconds, strict=True)]
    new: Sequence[int] = column.values  # type: ignore[assignment]  # counters are integers; None is excluded below
    last: Sequence[int] = old.values  # type: ignore[assignment]  # likewise
    if None not in column.values and None not in old.values:
        rises = list(map(sub, new, last))
        if min(rises, default=0) >= 0 and all(map(le, rises, highest)):
            return ()
    return [
        row
        for row, (now, was, limit) in enumerate(zip(column.values, old.values, highest, strict=True))
        if limit != inf and isinstance(now, int) and was is not None and not 0 <= now - was <= limit
    ]


def _restarted(before: SpeedState, table: Table, row: int) -> bool:
    """Return whether the epoch of a row changed: its counters do not continue."""
    new = None if table.epochs is None else table.epochs[row]
    old = None if before.epochs is None else before.epochs[row]
    return new is not None and old is not None and new != old


def _rate(before: SpeedState, columns: Sequence[Column], row: int, now: float, limit: float) -> float | None:
    """Return the bytes per second of the busier direction; None if not measured or wrapped, infinite after a reset."""
    rates: list[float] = []
    wrapped = False
    for column in columns:
        old = before.counts.get(column.metric.ending)
        new, last = column.values[row], None if old is None else old.values[row]
        if old is None or last is None or not isinstance(new, int) or now <= old.times[row]:
            continue
        scale = column.factor / column.divisor / (now - old.times[row])
        if new >= last:
            rates.append((new - last) * scale)
        elif _may_wrap(column, new - last, scale, limit):
            wrapped = True
        else:
            return inf
    return max(rates) if rates and not wrapped else None


def _may_wrap(column: Column, fall: int, scale: float, limit: float) -> bool:
    """Return whether a counter that fell may have wrapped, at any speed that is possible."""
    delta = fall + (1 << column.width)
    narrow = column.width <= MAX_WRAPPING_WIDTH and not column.saturates
    return narrow and 0 <= delta < 1 << (column.width - 1) and delta * scale < limit


def _last_counts(old: Counts | None, column: Column, times: Sequence[float]) -> Counts:
    """Return the last counts: where a value is missing, or not later than the last one, the last one is kept."""
    values: Sequence[int | None] = column.values  # type: ignore[assignment]  # counters are integers
    if old is None:
        return Counts(values, times)
    if None not in values and all(map(lt, old.times, times)):
        return Counts(values, times)
    cells = list(zip(values, old.values, times, old.times, strict=True))
    kept = [new is None or (last is not None and now <= then) for new, last, now, then in cells]
    return Counts(
        [last if keep else new for keep, (new, last, _, _) in zip(kept, cells, strict=True)],
        [then if keep else now for keep, (_, _, now, then) in zip(kept, cells, strict=True)],
    )


def _failures(
    table: Table, speeds: Sequence[float | None], doubts: Mapping[LabelValues, Doubt]
) -> dict[int, tuple[str, str]]:
    """Return reason and description for each row that states a speed that is not believed."""
    failures: dict[int, tuple[str, str]] = {}
    if max(filter(None, speeds), default=0) > MAX_LINK_SPEED:  # no limit is below it: most tables need no look at rows
        for row, speed in enumerate(speeds):
            if speed is not None and speed > limit_of(_members(table, row)):
                failures[row] = IMPOSSIBLE, f"states {_bits(speed)}, which no such link has"
    for key, doubt in doubts.items():
        row_or_none = table.rows.index.get(key)
        if row_or_none is not None and doubt.disproves and speeds[row_or_none]:
            text = f"states {_bits(doubt.stated)} and carried {_bits(doubt.carried)}"
            failures[row_or_none] = DISPROVED, text
    return failures


def _members(table: Table, row: int) -> int | None:
    """Return the number of links that a row consists of; None if it is not known."""
    return 1 if table.members is None else table.members[row]


def _bits(speed: float) -> str:
    """Return a speed in Gb/s as text, from bytes per second."""
    return f"{speed * 8 / 1e9:.6g} Gb/s"


def _without_speeds(table: Table, failures: Mapping[int, object], impossible: set[int]) -> Table:
    """Remove the speeds of rows with failures; set the ceilings of these rows, and of those with impossible traffic."""
    column = table.columns[SPEED]
    believed = [None if row in failures else speed for row, speed in enumerate(column.values)]
    marked = failures.keys() | impossible
    ceilings = [limit_of(_members(table, row)) if row in marked else None for row in range(len(believed))]
    return replace(table.with_columns([column._replace(values=believed)]), ceilings=ceilings)


def _failure_table(table: Table, failures: Mapping[int, tuple[str, str]]) -> Table:
    """Return the failures of rows, under the name of the port: the target of the source is its switch."""
    skipped = 1 if table.schema.labels[:1] == ("switch",) else 0
    names = {row: ":".join(table.rows.keys[row][skipped:]) for row in failures}
    remedy = "; its speed, and what is computed from it, is not exported: correct the speed that the device states"
    found = [Failure(names[row], reason, f"{names[row]}: {text}{remedy}") for row, (reason, text) in failures.items()]
    return failure_table(found, table.time)
