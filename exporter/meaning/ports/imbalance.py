"""Imbalance: does one of several peers carry more or less than its share, and one direction of a port more than other.

The ports of one kind on a host (its rails) or on a switch (its uplinks) are peers of each other. Over a window,
imbalance is what the busiest moved over the mean of all, minus one; the deficit is one minus what the idlest moved over
the mean, since one idle rail of eight lifts the busiest by 14 % only. Both are said only when there is traffic to speak
of and every member that is up was read all along; else nothing is said. Asymmetry sets what a port received against
what it sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

FLOOR = 0.01
"""Share of its speed that the mean member must use before imbalance is worth a word."""

LEAST_RATE = 10e6
"""The same floor in bytes per second where speeds are not known."""

COVERAGE = 0.9
"""Share of the window, or of that part of it in which the longest known member was read, that each must have been."""

WHOLE = frozenset({"switch", "guid"})
"""Labels of a switch's ports that a group of them has too; what one source reads on a host needs none."""

DIRECTIONS = ("receive", "transmit")

ASYMMETRY = "asymmetry_ratio"

SYMMETRIC = "fabric_rdma_"
"""Prefix of ports whose directions should balance; elsewhere asymmetry is a detail: storage and web need not."""


class Sample(NamedTuple):
    """What one row moved up to a time, counted from when it was first seen: seconds with a rate, bytes each way."""

    time: float
    seconds: float
    receive: float
    transmit: float


@dataclass(frozen=True, slots=True)
class State:
    """The samples within the window of each row, and when the last step was."""

    time: float
    samples: Mapping[LabelValues, tuple[Sample, ...]] = field(default_factory=dict)


Verdict: TypeAlias = Mapping[str, float | None]
"""What is said of one group, by ending."""


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema, where ports have siblings.

    Those are the schemas whose links are measured against their siblings' speed.
    """
    if vocabulary.EXPECTED_SPEED not in schema.metrics:
        return []
    return [*_group_schema(schema).metrics.values(), _asymmetry_metric(schema)]


_schemas: dict[Schema, Schema] = {}


def _group_schema(schema: Schema) -> Schema:
    made = _schemas.get(schema)
    if made is None:
        endings = [f"{way}_{what}_ratio" for way in DIRECTIONS for what in ("imbalance", "deficit")]
        whole = tuple(label for label in schema.labels if label in WHOLE)
        made = _schemas[schema] = vocabulary.schema(schema.prefix, (*whole, "group"), endings)
    return made


_metrics: dict[Schema, Metric] = {}


def _asymmetry_metric(schema: Schema) -> Metric:
    made = _metrics.get(schema)
    if made is None:
        detail = schema.prefix != SYMMETRIC or ASYMMETRY in schema.details
        made = _metrics[schema] = vocabulary.metric(schema.prefix, schema.labels, ASYMMETRY, detail=detail)
    return made


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
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
        kept = old.get(key)
        if received is None or sent is None:
            continue  # the window of this row begins anew: what was not read all along is no measure
        if kept and time == kept[-1].time:
            samples[key] = kept  # its device had not counted since: that is no new sample
        elif interval > 0:
            kept = kept or (Sample(time - interval, 0.0, 0.0, 0.0),)
            total = kept[-1]
            seconds = time - total.time  # a row that was read late has its own interval
            moved = (total.seconds + seconds, total.receive + received * seconds, total.transmit + sent * seconds)
            samples[key] = (*kept[_expired(kept, time - WINDOW) :], Sample(time, *moved))
    new = State(table.time, samples)
    groups = _groups(table)
    found = {group: verdict for group, places in groups.items() if (verdict := _verdict(new, table, places))}
    ports = _with_asymmetry(new, table)
    return new, (ports, _table_of(table, found)) if found else (ports,)


def _groups(table: Table) -> dict[LabelValues, list[int]]:
    """Collect the places of the rows of each kind whose link is not down; a group needs two."""
    ups = table.values("link_up")
    labels = table.schema.labels
    whole = [place for place, label in enumerate(labels) if label in WHOLE]
    groups: dict[LabelValues, list[int]] = {}
    for place, (key, kind) in enumerate(zip(table.rows.keys, table.kinds or (), strict=True)):
        if kind is not None and (ups is None or ups[place] == 1):
            groups.setdefault((*(key[one] for one in whole), kind), []).append(place)
    return {group: places for group, places in groups.items() if len(places) > 1}


def _expired(samples: Sequence[Sample], begin: float) -> int:
    """Count the samples that lie before the window, but for the last of them, from which the window is measured."""
    gone = 0
    while gone + 1 < len(samples) and samples[gone + 1].time <= begin:
        gone += 1
    return gone


def _verdict(state: State, table: Table, places: Sequence[int]) -> Verdict:
    """Judge a group in each direction with enough traffic; nothing if a member lacks reads."""
    spans = []
    for place in places:
        samples = state.samples.get(table.rows.keys[place])
        if samples is None:
            return {}
        spans.append((samples[0], samples[-1]))
    covered = [last.seconds - first.seconds for first, last in spans]
    if min(covered) < COVERAGE * min(max(covered), WINDOW) or not min(covered) > 0:
        return {}
    floor = _floor(table, places)
    moved = (
        [(last.receive - first.receive) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
        [(last.transmit - first.transmit) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
    )
    verdict: dict[str, float | None] = {}
    for way, means in zip(DIRECTIONS, moved, strict=True):
        mean = sum(means) / len(means)
        if mean >= floor:
            verdict[f"{way}_imbalance_ratio"] = max(means) / mean - 1
            verdict[f"{way}_deficit_ratio"] = 1 - min(means) / mean
    return verdict


def _floor(table: Table, places: Sequence[int]) -> float:
    """Give the bytes per second that some ports must move on average to be judged."""
    speeds = table.numbers(vocabulary.SPEED)
    known = [speed for place in places if speeds is not None and (speed := speeds[place])]
    return FLOOR * sum(known) / len(known) if known else LEAST_RATE


def _with_asymmetry(state: State, table: Table) -> Table:
    """Add how far each port's directions differ, where their mean is above the floor."""
    if vocabulary.EXPECTED_SPEED not in table.schema.metrics:
        return table
    ratios = [_asymmetry(state.samples.get(key), _floor(table, (place,))) for place, key in enumerate(table.rows.keys)]
    if ratios.count(None) == len(ratios):
        return table
    return table.with_columns([Column(_asymmetry_metric(table.schema), ratios)])


def _asymmetry(samples: Sequence[Sample] | None, floor: float) -> float | None:
    """Give (received - sent) / (received + sent) of one port over its window, or None for too little traffic."""
    if samples is None:
        return None
    first, last = samples[0], samples[-1]
    received, sent = last.receive - first.receive, last.transmit - first.transmit
    both, seconds = received + sent, last.seconds - first.seconds
    return (received - sent) / both if both > 0 and both >= 2 * floor * seconds else None


def _table_of(table: Table, found: Mapping[LabelValues, Verdict]) -> Table:
    schema = _group_schema(table.schema)
    rows = Rows(schema.labels, found, {})
    columns = {
        ending: Column(metric, [verdict.get(ending) for verdict in found.values()])
        for ending, metric in schema.metrics.items()
    }
    return Table(schema, rows, columns, table.time, part=table.part)
