"""Bursts: how full was a link over each tick.

Samples taken at a fixed tick become shares of the link's speed. All of them are counted in a histogram that only ever
rises, so a burst of a tick or longer is seen by whoever scrapes, however seldom; the highest of the last minute is told
beside it. A sample is passed over when its counters fell, or when the link changed its speed or was re-created since
the one before. Where ticks were left out, the next sample is measured over its true time, and counted once.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
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
"""Seconds of which the highest sample is told."""

DIRECTIONS = ("receive", "transmit")

BUCKETS = vocabulary.ENDINGS["receive_utilization_samples"].buckets


Taken: TypeAlias = tuple[tuple[float, ...], ...]
"""Samples in the order of their times; none, or one, where only the last is meant."""


class Seen(NamedTuple):
    """What was seen in one direction of a row.

    Attributes:
        counts: Samples up to each bound, cumulative, +Inf last.
        sum: Sum of all samples.
        highest: Time and share of each sample of the window that none after it exceeds, so that the first is the
            highest; there are but a few.
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    sum: float = 0.0
    highest: tuple[tuple[float, float], ...] = ()


class Row(NamedTuple):
    """What is remembered of a row: its last sample, the epoch of that, and what was seen in each direction."""

    last: Taken = ()
    epoch: Hashable = None
    seen: tuple[Seen, ...] = (Seen(),) * len(DIRECTIONS)


State: TypeAlias = Mapping[LabelValues, Row]

_schemas: dict[Schema, Schema] = {}


def _made_of(schema: Schema) -> Schema | None:
    """Give the schema that is made of an internal schema of samples; None for any other."""
    made = _schemas.get(schema)
    if made is None and schema.internal and vocabulary.SAMPLES in schema.metrics:
        endings = [
            f"{way}_{what}" for what in ("utilization_samples", "utilization_highest_ratio") for way in DIRECTIONS
        ]
        made = _schemas[schema] = vocabulary.schema(schema.prefix, schema.labels, endings, details=schema.details)
    return made


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes of tables of a schema."""
    made = _made_of(schema)
    return [] if made is None else list(made.metrics.values())


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Put a table of histograms in the place of an internal table of samples; other tables pass."""
    made = _made_of(table.schema)
    samples = table.values(vocabulary.SAMPLES)
    if made is None or samples is None:
        return state, (table,)
    old: State = {} if state is None else state
    epochs = [None] * len(samples) if table.epochs is None else table.epochs
    rows = {
        key: _advanced(old.get(key, Row()), one.taken if isinstance(one, Samples) else (), epoch, table.time)
        for key, one, epoch in zip(table.rows.keys, samples, epochs, strict=True)
    }
    columns = []
    for direction, way in enumerate(DIRECTIONS):
        seen = [row.seen[direction] for row in rows.values()]
        counted = [HistogramValue(one.counts, one.sum) for one in seen]
        highest = [one.highest[0][1] if one.highest else None for one in seen]
        columns += [
            Column(made.metrics[f"{way}_utilization_samples"], counted),
            Column(made.metrics[f"{way}_utilization_highest_ratio"], highest),
        ]
    return rows, (Table(made, table.rows, {one.metric.ending: one for one in columns}, table.time, part=table.part),)


def _advanced(row: Row, taken: Taken, epoch: Hashable, now: float) -> Row:
    """Add samples to what was seen of a row."""
    before = row.last if epoch == row.epoch else ()
    shares = list(_shares((*before, *taken)))
    seen = [
        _seen(one, [(time, share) for time, *both in shares if (share := both[direction]) <= SLACK], now)
        for direction, one in enumerate(row.seen)
    ]
    return Row(taken[-1:] or before, epoch, tuple(seen))


def _shares(samples: Taken) -> Iterator[tuple[float, ...]]:
    """Give the time of each sample and the shares of the link's speed, received and sent since the one before it."""
    for (then, *old, old_speed), (now, *new, speed) in pairwise(samples):
        moved = [after - before for after, before in zip(new, old, strict=True)]
        if now > then and speed == old_speed and min(moved) >= 0:
            yield (now, *(one / (now - then) / speed for one in moved))


def _seen(before: Seen, shares: Sequence[tuple[float, float]], now: float) -> Seen:
    """Count shares, and keep those that may yet be the highest."""
    counts = [
        count + sum(share <= bound for _, share in shares)
        for count, bound in zip(before.counts, (*BUCKETS, float("inf")), strict=True)
    ]
    highest = list(before.highest)
    for time, share in shares:
        while highest and highest[-1][1] <= share:
            highest.pop()
        highest.append((time, share))
    recent = tuple(one for one in highest if now - one[0] < WINDOW)
    return Seen(tuple(counts), before.sum + sum(share for _, share in shares), recent)
