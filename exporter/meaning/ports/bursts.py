"""Bursts: utilization of links sampled at a fixed tick.

Samples become shares of the link speed. All of them are counted in a cumulative histogram, so that a burst of a tick or
longer is visible whatever the scrape interval; beside it are the highest sample of the last minute, and the time in
which there was traffic, by which a pause can be compared with the time in which it can do harm. A sample is skipped if
its counters fell, or if the link changed its speed or was re-created since the sample before. After skipped ticks the
next sample is measured over its true time, and counted once.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    HistogramValue,
    LabelValues,
    Metric,
    Samples,
    Schema,
    Table,
)
from exporter.meaning.ports.counters import SLACK

WINDOW = 60.0
"""Seconds over which the highest sample is reported."""

DIRECTIONS = ("receive", "transmit")

BUSY = 0.01
"""Share of the link speed from which a sample counts as traffic: control messages stay below it."""

ENDINGS = ("utilization_samples", "utilization_highest_ratio", "busy_seconds_total")
"""Metrics of each direction."""

BUCKETS = vocabulary.ENDINGS["receive_utilization_samples"].buckets


Taken: TypeAlias = tuple[tuple[float, ...], ...]
"""Samples (time, bytes received, bytes transmitted, link speed) in order of time; a state keeps only the last one."""


class Share(NamedTuple):
    """One sample of one direction: its end and its duration in seconds, and its share of the link speed."""

    time: float
    seconds: float
    share: float


NO_SHARES: tuple[tuple[Share, ...], ...] = ((),) * len(DIRECTIONS)


class Direction(NamedTuple):
    """Samples of one direction of a row.

    Attributes:
        counts: Samples up to each bound, cumulative, +Inf last.
        sum: Sum of all samples.
        busy: Seconds of the samples with traffic.
        highest: Time and share of each sample of the window that no later one exceeds: the first is the highest, and
            there are few.
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    sum: float = 0.0
    busy: float = 0.0
    highest: tuple[tuple[float, float], ...] = ()


class RowState(NamedTuple):
    """State of a row: its last sample, the epoch of that sample, and the histogram of each direction."""

    last: Taken = ()
    epoch: Hashable = None
    seen: tuple[Direction, ...] = (Direction(),) * len(DIRECTIONS)


BurstState: TypeAlias = Mapping[LabelValues, RowState]


@lru_cache(maxsize=1024)
def _histogram_schema(schema: Schema) -> Schema | None:
    """Return the schema of the histograms made from an internal schema of samples; None for any other schema."""
    if not schema.internal or vocabulary.SAMPLES not in schema.metrics:
        return None
    endings = [f"{way}_{what}" for what in ENDINGS for way in DIRECTIONS]
    return vocabulary.schema(schema.prefix, schema.labels, endings, details=schema.details)


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema."""
    histograms = _histogram_schema(schema)
    return [] if histograms is None else list(histograms.metrics.values())


def step(state: BurstState | None, table: Table) -> tuple[BurstState | None, Sequence[Table]]:
    """Replace an internal table of samples by a table of histograms; other tables pass unchanged."""
    histograms = _histogram_schema(table.schema)
    samples = table.values(vocabulary.SAMPLES)
    if histograms is None or samples is None:
        return state, (table,)
    old: BurstState = {} if state is None else state
    epochs = [None] * len(samples) if table.epochs is None else table.epochs
    rows = {
        key: _advanced(old.get(key, RowState()), one.taken if isinstance(one, Samples) else (), epoch, table.time)
        for key, one, epoch in zip(table.rows.keys, samples, epochs, strict=True)
    }
    columns = []
    for direction, way in enumerate(DIRECTIONS):
        seen = [row.seen[direction] for row in rows.values()]
        counted = [HistogramValue(one.counts, one.sum) for one in seen]
        highest = [one.highest[0][1] if one.highest else None for one in seen]
        columns += [
            Column(histograms.metrics[f"{way}_utilization_samples"], counted),
            Column(histograms.metrics[f"{way}_utilization_highest_ratio"], highest),
            Column(histograms.metrics[f"{way}_busy_seconds_total"], [one.busy for one in seen]),
        ]
    by_ending = {one.metric.ending: one for one in columns}
    return rows, (Table(histograms, table.rows, by_ending, table.time, part=table.part),)


def _advanced(row: RowState, taken: Taken, epoch: Hashable, now: float) -> RowState:
    """Return the state of a row after further samples."""
    before = row.last if epoch == row.epoch else ()
    shares = list(_shares((*before, *taken)))
    seen = [
        _with_shares(one, [sample for sample in of_way if sample.share <= SLACK], now)
        for one, of_way in zip(row.seen, zip(*shares, strict=True) if shares else NO_SHARES, strict=True)
    ]
    return RowState(taken[-1:] or before, epoch, tuple(seen))


def _shares(samples: Taken) -> Iterator[tuple[Share, ...]]:
    """Yield the share of each sample since the previous one, by direction."""
    for (then, *old, old_speed), (now, *new, speed) in pairwise(samples):
        moved = [after - before for after, before in zip(new, old, strict=True)]
        seconds = now - then
        if seconds > 0 and speed == old_speed and min(moved) >= 0:
            yield tuple(Share(now, seconds, one / seconds / speed) for one in moved)


def _with_shares(before: Direction, shares: Sequence[Share], now: float) -> Direction:
    """Return the histogram after further shares, and the shares that may still become the highest."""
    counts = [
        count + sum(one.share <= bound for one in shares)
        for count, bound in zip(before.counts, (*BUCKETS, float("inf")), strict=True)
    ]
    highest = list(before.highest)
    for one in shares:
        while highest and highest[-1][1] <= one.share:
            highest.pop()
        highest.append((one.time, one.share))
    recent = tuple(one for one in highest if now - one[0] < WINDOW)
    busy = sum(one.seconds for one in shares if one.share >= BUSY)
    return Direction(tuple(counts), before.sum + sum(one.share for one in shares), before.busy + busy, recent)
