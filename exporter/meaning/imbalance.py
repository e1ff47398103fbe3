"""Imbalance: does one of several peers carry more than its share.

The ports of one kind on a host (its rails) are peers of each other. Over a window, imbalance is what the busiest
moved over the mean of all, minus one. It is said only when there is traffic to speak of and every member that is up
was read all along; else nothing is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter import vocabulary
from exporter.table import Column, LabelValues, Metric, Rows, Schema, Table

WINDOW = 60.0
"""Seconds over which traffic is compared."""

FLOOR = 0.01
"""Share of its speed that the mean member must use before imbalance is worth a word."""

LEAST_RATE = 10e6
"""The same floor in bytes per second where speeds are not known."""

COVERAGE = 0.9
"""Share of the window of the longest known member that each member must have been read in."""

DIRECTIONS = ("receive", "transmit")


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


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema: one a direction, where ports have siblings.

    Those are the schemas whose links are measured against their siblings' speed.
    """
    return list(_group_schema(schema).metrics.values()) if vocabulary.EXPECTED_SPEED in schema.metrics else []


_schemas: dict[Schema, Schema] = {}


def _group_schema(schema: Schema) -> Schema:
    made = _schemas.get(schema)
    if made is None:
        endings = [f"{way}_imbalance_ratio" for way in DIRECTIONS]
        made = _schemas[schema] = vocabulary.schema(schema.prefix, ("group",), endings)
    return made


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Add a table of groups to a table of ports that have siblings and rates."""
    rates = [table.numbers(f"{way}_bytes_per_second") for way in DIRECTIONS]
    receive, transmit = rates
    if table.kinds is None or receive is None or transmit is None:
        return state, (table,)
    seconds = 0.0 if state is None else table.time - state.time
    old = {} if state is None else state.samples
    samples: dict[LabelValues, tuple[Sample, ...]] = {}
    for key, received, sent in zip(table.rows.keys, receive, transmit, strict=True):
        if received is not None and sent is not None and seconds > 0:
            kept = old.get(key) or (Sample(table.time - seconds, 0.0, 0.0, 0.0),)
            total = kept[-1]
            moved = (total.seconds + seconds, total.receive + received * seconds, total.transmit + sent * seconds)
            samples[key] = (*kept[_expired(kept, table.time - WINDOW) :], Sample(table.time, *moved))
        # Else the window of this row begins anew: what was not read all along is no measure.
    new = State(table.time, samples)
    groups = _groups(table)
    found = {kind: ratios for kind, places in groups.items() if (ratios := _ratios(new, table, places)) is not None}
    if not found:
        return new, (table,)
    return new, (table, _table_of(table, found))


def _groups(table: Table) -> dict[str, list[int]]:
    """Collect the places of the rows of each kind whose link is not down; a group needs two."""
    ups = table.values("link_up")
    groups: dict[str, list[int]] = {}
    for place, kind in enumerate(table.kinds or ()):
        if kind is not None and (ups is None or ups[place] == 1):
            groups.setdefault(kind, []).append(place)
    return {kind: places for kind, places in groups.items() if len(places) > 1}


def _expired(samples: Sequence[Sample], begin: float) -> int:
    """Count the samples that lie before the window, but for the last of them, from which the window is measured."""
    gone = 0
    while gone + 1 < len(samples) and samples[gone + 1].time <= begin:
        gone += 1
    return gone


def _ratios(state: State, table: Table, places: Sequence[int]) -> tuple[float | None, ...] | None:
    """Give a group's imbalance in each direction, None where traffic is low; None if a member lacks reads."""
    spans = []
    for place in places:
        samples = state.samples.get(table.rows.keys[place])
        if samples is None:
            return None
        spans.append((samples[0], samples[-1]))
    covered = [last.seconds - first.seconds for first, last in spans]
    if min(covered) < COVERAGE * max(covered) or not min(covered) > 0:
        return None
    speeds = table.numbers(vocabulary.SPEED)
    known = [speed for place in places if speeds is not None and (speed := speeds[place])]
    floor = FLOOR * sum(known) / len(known) if known else LEAST_RATE
    moved = [
        [(last.receive - first.receive) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
        [(last.transmit - first.transmit) / seconds for (first, last), seconds in zip(spans, covered, strict=True)],
    ]
    ratios = []
    for means in moved:
        mean = sum(means) / len(means)
        ratios.append(max(means) / mean - 1 if mean >= floor else None)
    return None if all(ratio is None for ratio in ratios) else tuple(ratios)


def _table_of(table: Table, found: Mapping[str, tuple[float | None, ...]]) -> Table:
    schema = _group_schema(table.schema)
    rows = Rows(schema.labels, [(kind,) for kind in found], {})
    columns = {
        metric.ending: Column(metric, [ratios[direction] for ratios in found.values()])
        for direction, metric in enumerate(schema.metrics.values())
    }
    return Table(schema, rows, columns, table.time, part=table.part)
