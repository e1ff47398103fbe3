"""Imbalance between peers, and asymmetry between the directions of a port.

The ports of one kind on a host (its rails) or on a switch (its uplinks) are peers of each other. Over a window,
imbalance is the traffic of the busiest peer over the mean of all, minus one; the deficit is one minus the traffic of
the least busy peer over the mean, because one idle rail of eight raises the imbalance by only 14 %. Both are absent if
there is little traffic, or if a member that is up was not read during the whole window. Asymmetry compares what a port
received with what it transmitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    LabelValues,
    Metric,
    Rows,
    Schema,
    Table,
)

WINDOW = 60.0
"""Seconds over which traffic is compared."""

MIN_UTILIZATION = 0.01
"""Share of its speed that the mean member must use for imbalance to be reported."""

MIN_RATE = 10e6
"""The same minimum in bytes per second, for links of unknown speed."""

COVERAGE = 0.9
"""Share of the window, or of the time since the longest known member was first read, that each member must have been
read."""

SWITCH_LABELS = frozenset({"switch", "guid"})
"""Labels of switch ports that groups of them have too; groups of a host need none."""

DIRECTIONS = ("receive", "transmit")

ASYMMETRY = "asymmetry_ratio"

SYMMETRIC_PREFIX = "fabric_rdma_"
"""Prefix of ports whose directions should be balanced; elsewhere asymmetry is a detail, as storage and web traffic is
not."""


class Sample(NamedTuple):
    """Traffic of one row up to a time, since it was first read: seconds with a rate, and bytes in each direction."""

    time: float
    seconds: float
    receive: float
    transmit: float


@dataclass(frozen=True, slots=True)
class ImbalanceState:
    """The samples of each row within the window, and the time of the last step."""

    time: float
    samples: Mapping[LabelValues, tuple[Sample, ...]] = field(default_factory=dict)


GroupRatios: TypeAlias = Mapping[str, float | None]
"""The ratios of one group, by ending."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema whose ports have siblings.

    Those are the schemas with an expected speed, for which links are compared with their siblings.
    """
    if vocabulary.EXPECTED_SPEED not in schema.metrics:
        return []
    return [*_group_schema(schema).metrics.values(), _asymmetry_metric(schema)]


@lru_cache(maxsize=1024)
def _group_schema(schema: Schema) -> Schema:
    endings = [f"{way}_{what}_ratio" for way in DIRECTIONS for what in ("imbalance", "deficit")]
    switch_labels = tuple(label for label in schema.labels if label in SWITCH_LABELS)
    return vocabulary.schema(schema.prefix, (*switch_labels, "group"), endings)


@lru_cache(maxsize=1024)
def _asymmetry_metric(schema: Schema) -> Metric:
    detail = schema.prefix != SYMMETRIC_PREFIX or ASYMMETRY in schema.details
    return vocabulary.metric(schema.prefix, schema.labels, ASYMMETRY, detail=detail)


def step(state: ImbalanceState | None, table: Table) -> tuple[ImbalanceState | None, Sequence[Table]]:
    """Add asymmetry to a table of ports that have siblings and rates, and a table of their groups."""
    rates = [table.numbers(f"{way}_bytes_per_second") for way in DIRECTIONS]
    receive, transmit = rates
    if table.kinds is None or receive is None or transmit is None:
        return state, (table,)
    interval = 0.0 if state is None else table.time - state.time
    old = {} if state is None else state.samples
    times = table.times or [table.time] * len(table.rows)
    samples: dict[LabelValues, tuple[Sample, ...]] = {}
    for key, time, received, sent in zip(table.rows.keys, times, receive, transmit, strict=True):
        samples_before = old.get(key)
        if received is None or sent is None:
            continue  # the window of this row starts again, as it must be covered without gaps
        if samples_before and time == samples_before[-1].time:
            samples[key] = samples_before  # its device has not counted since: not a new sample
        elif interval > 0:
            samples_before = samples_before or (Sample(time - interval, 0.0, 0.0, 0.0),)
            total = samples_before[-1]
            seconds = time - total.time  # rows may have intervals of their own
            moved = (total.seconds + seconds, total.receive + received * seconds, total.transmit + sent * seconds)
            samples[key] = (*samples_before[_expired(samples_before, time - WINDOW) :], Sample(time, *moved))
    new = ImbalanceState(table.time, samples)
    groups = _groups(table)
    found = {group: ratios for group, places in groups.items() if (ratios := _group_ratios(new, table, places))}
    ports = _with_asymmetry(new, table)
    return new, (ports, _table_of(table, found)) if found else (ports,)


def _groups(table: Table) -> dict[LabelValues, list[int]]:
    """Return the rows of each kind whose link is not down, where there are at least two."""
    ups = table.values("link_up")
    labels = table.schema.labels
    switch_labels = [place for place, label in enumerate(labels) if label in SWITCH_LABELS]
    groups: dict[LabelValues, list[int]] = {}
    for place, (key, kind) in enumerate(zip(table.rows.keys, table.kinds or (), strict=True)):
        if kind is not None and (ups is None or ups[place] == 1):
            groups.setdefault((*(key[one] for one in switch_labels), kind), []).append(place)
    return {group: places for group, places in groups.items() if len(places) > 1}


def _expired(samples: Sequence[Sample], begin: float) -> int:
    """Count the samples before the window, except for the last of them, from which the window is measured."""
    gone = 0
    while gone + 1 < len(samples) and samples[gone + 1].time <= begin:
        gone += 1
    return gone


def _group_ratios(state: ImbalanceState, table: Table, places: Sequence[int]) -> GroupRatios:
    """Return the ratios of a group in each direction with enough traffic.

    Empty if a member was not read long enough.
    """
    spans = []
    for place in places:
        samples = state.samples.get(table.rows.keys[place])
        if samples is None:
            return {}
        spans.append((samples[0], samples[-1]))
    covered = [last.seconds - first.seconds for first, last in spans]
    if min(covered) < COVERAGE * min(max(covered), WINDOW) or not min(covered) > 0:
        return {}
    floor = _min_rate(table, places)
    moved = (
        [(last.receive - first.receive) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
        [(last.transmit - first.transmit) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
    )
    ratios: dict[str, float | None] = {}
    for way, means in zip(DIRECTIONS, moved, strict=True):
        mean = sum(means) / len(means)
        if mean >= floor:
            ratios[f"{way}_imbalance_ratio"] = max(means) / mean - 1
            ratios[f"{way}_deficit_ratio"] = 1 - min(means) / mean
    return ratios


def _min_rate(table: Table, places: Sequence[int]) -> float:
    """Return the bytes per second that ports must move on average."""
    speeds = table.numbers(vocabulary.SPEED)
    known = [speed for place in places if speeds is not None and (speed := speeds[place])]
    return MIN_UTILIZATION * sum(known) / len(known) if known else MIN_RATE


def _with_asymmetry(state: ImbalanceState, table: Table) -> Table:
    """Add the asymmetry of each port with enough traffic."""
    if vocabulary.EXPECTED_SPEED not in table.schema.metrics:
        return table
    ratios = [
        _asymmetry(state.samples.get(key), _min_rate(table, (place,))) for place, key in enumerate(table.rows.keys)
    ]
    if ratios.count(None) == len(ratios):
        return table
    return table.with_columns([Column(_asymmetry_metric(table.schema), ratios)])


def _asymmetry(samples: Sequence[Sample] | None, floor: float) -> float | None:
    """Return (received - sent) / (received + sent) of one port over its window, or None for too little traffic."""
    if samples is None:
        return None
    first, last = samples[0], samples[-1]
    received, sent = last.receive - first.receive, last.transmit - first.transmit
    both, seconds = received + sent, last.seconds - first.seconds
    return (received - sent) / both if both > 0 and both >= 2 * floor * seconds else None


def _table_of(table: Table, found: Mapping[LabelValues, GroupRatios]) -> Table:
    schema = _group_schema(table.schema)
    rows = Rows(schema.labels, found, {})
    columns = {
        ending: Column(metric, [ratios.get(ending) for ratios in found.values()])
        for ending, metric in schema.metrics.items()
    }
    return Table(schema, rows, columns, table.time, part=table.part)
