"""Stragglers: which rank do the others wait for.

All ranks of a synchronising collective end together, so the late one shows the shortest time and its victims the
longest. Of the ranks on this host that took part in one collective, a rank waited t - min t and was late by max t - t,
and the transfer itself took about min t. No clocks are compared, only durations.

The verdict is per communicator first: its origin is the rank that is the shortest in most of the collectives that
tell anything. A rank is a straggler if it is the origin somewhere, and nowhere waits for another origin: who is late
in one group because it waited in another is a victim. A rank on another host makes all ranks here wait alike, and
gives no verdict here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter import vocabulary
from exporter.meaning import alignment
from exporter.meaning.alignment import Group, Operation
from exporter.table import Column, LabelValues, Metric, Rows, Schema, Table
from exporter.vocabulary import counter, gauge

WINDOW = 60.0
"""Seconds over which verdicts and bandwidths are formed: some steps of most trainings, soon enough for an alert."""

SPREAD = 0.2
"""(max - min) / max that a collective must show to tell who is late; those of one transfer differ by a few per cent."""

NOISE = 50
"""Microseconds of spread below which a collective tells nothing: starting a kernel varies by tens of them."""

LEAST_COLLECTIVES = 20
"""Matched collectives of a communicator in the window before there is a verdict, and telling ones before a blame."""

SHARE = 0.6
"""Share of the telling collectives in which the same rank must be the shortest."""

ABOVE_CHANCE = 0.4
"""How far the share must exceed what chance gives (1 / ranks).

For two ranks that is 90 %, since a coin gives 60 % of 20 every fourth time; from five ranks on SHARE is the stricter.
"""

LEAST_BYTES = 1 << 20
"""Size of a collective below which its bandwidth is latency."""

MAX_RANKS = 4096
"""Ranks on this host, of all jobs."""

FACTORS = {"AllReduce": 2, "AllGather": 1, "ReduceScatter": 1}
"""Of each kind whose ranks end together, the factor k of nccl-tests: bus bandwidth = size / time * k * (n - 1) / n."""


class Outputs(NamedTuple):
    """The schemas of what is made here: by rank, by job, and by job and kind."""

    ranks: Schema
    jobs: Schema
    kinds: Schema


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one step found in one communicator: matched collectives, those that tell, and who was the shortest."""

    time: float
    matched: int
    telling: int
    shortest: Mapping[str, int]


class Speed(NamedTuple):
    """What one step found of one kind in one job: bytes on the bus, and the microseconds they took."""

    time: float
    bus_bytes: float
    microseconds: int


class RankSums(NamedTuple):
    """Microseconds that a rank waited and was late, and when it was last heard of."""

    waited: int
    late: int
    heard: float


@dataclass(slots=True)
class State:
    """All that is remembered. A step makes a new one and leaves the old as it was."""

    collectives: alignment.State = field(default_factory=alignment.State)
    evidence: dict[Group, tuple[Evidence, ...]] = field(default_factory=dict)
    speeds: dict[tuple[str, str], tuple[Speed, ...]] = field(default_factory=dict)
    ranks: dict[tuple[str, str], RankSums] = field(default_factory=dict)

    def aged(self, now: float) -> "State":
        """Give a copy that may be changed, without what is too old."""
        return State(
            self.collectives.aged(now),
            {
                group: kept
                for group, found in self.evidence.items()
                if (kept := tuple(one for one in found if now - one.time < WINDOW))
            },
            {
                key: recent
                for key, speeds in self.speeds.items()
                if (recent := tuple(speed for speed in speeds if now - speed.time < WINDOW))
            },
            {key: sums for key, sums in self.ranks.items() if now - sums.heard < alignment.FORGET},
        )


_schemas: dict[Schema, Outputs] = {}


def _outputs(schema: Schema) -> Outputs | None:
    """Give the schemas made from an internal schema of collectives; None for any other."""
    made = _schemas.get(schema)
    food = (
        schema.internal and schema.labels == alignment.LABELS and all(one in schema.metrics for one in alignment.FOOD)
    )
    if made is None and food:
        made = _schemas[schema] = _declare(schema.prefix)
    return made


def _declare(prefix: str) -> Outputs:
    timings = ["coll_perf.coll_exec_time_us"]
    ranks = vocabulary.schema(
        prefix,
        ("train_job", "rank"),
        own={
            "wait_seconds_total": counter("Time the rank waited in collectives for the last rank of its host."),
            "lateness_seconds_total": counter("Time the rank came to collectives after the first rank of its host."),
            "straggler": gauge(
                "Whether the other ranks of this host keep waiting for this one (1) or not (0), over a minute;"
                " absent while there is not enough data."
            ),
        },
        origins={"wait_seconds_total": timings, "lateness_seconds_total": timings, "straggler": timings},
    )
    jobs = vocabulary.schema(
        prefix,
        ("train_job",),
        own={
            "matched_collectives_total": counter("Collectives whose times were had from all their ranks on this host."),
            "unmatched_collectives_total": counter(
                "Collectives of which the time of some rank on this host did not come: they tell nothing."
            ),
            "dropped_collectives_total": counter(
                "Timings that were left out because too many collectives, communicators or ranks were told apart."
            ),
        },
        origins={
            f"{what}_collectives_total": ["header.id", "coll_perf.coll", "coll_perf.coll_sn"]
            for what in ("matched", "unmatched", "dropped")
        },
    )
    kinds = vocabulary.schema(
        prefix,
        ("train_job", "collective"),
        own={
            "bus_bandwidth_bytes_per_second": gauge(
                "Bus bandwidth as nccl-tests defines it, from the time of the fastest rank of this host, so without"
                " its waiting, for collectives of 1 MiB and more, over a minute."
            )
        },
        origins={
            "bus_bandwidth_bytes_per_second": [*timings, "coll_perf.coll_msg_size_bytes", "header.n_ranks"],
        },
    )
    return Outputs(ranks, jobs, kinds)


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes of tables of a schema."""
    made = _outputs(schema)
    return [] if made is None else [metric for one in made for metric in one.metrics.values()]


def step(state: State | None, table: Table) -> tuple[State | None, Sequence[Table]]:
    """Put tables of ranks, jobs and kinds in the place of an internal table of collectives.

    The counters start at 0 and are made ready for export, since nothing turns them into rates. Other tables pass.
    """
    made = _outputs(table.schema)
    if made is None:
        return state, (table,)
    now = table.time
    new = (State() if state is None else state).aged(now)
    alignment.collect(new.collectives, table)
    complete: dict[Group, list[Operation]] = {}
    for one in alignment.settle(new.collectives, now):
        _add_speed(new, (one.group[0], one.kind), one.operation, now)
        if one.matched:
            complete.setdefault(one.group, []).append(one.operation)
    for group, operations in complete.items():
        _judge(new, group, operations, now)
    return new, [one for one in _tables(new, made, table) if len(one.rows)]


def _judge(state: State, group: Group, operations: Iterable[Operation], now: float) -> None:
    """Add up who waited and who was late, and keep who was the shortest as evidence."""
    matched = telling = 0
    shortest: dict[str, int] = {}
    waited: dict[str, int] = {}
    late: dict[str, int] = {}
    for operation in operations:
        durations = operation.durations
        least, most = min(durations.values()), max(durations.values())
        for rank, duration in durations.items():
            waited[rank] = waited.get(rank, 0) + duration - least
            late[rank] = late.get(rank, 0) + most - duration
        matched += 1
        if most - least >= max(NOISE, SPREAD * most):
            telling += 1
            first, *others = (rank for rank, duration in durations.items() if duration == least)
            if not others:  # ranks that are the shortest together blame nobody
                shortest[first] = shortest.get(first, 0) + 1
    for rank, microseconds in waited.items():
        sums = state.ranks.get((group[0], rank))
        if sums is None and len(state.ranks) >= MAX_RANKS:
            state.collectives.count(group[0], dropped=1)
            continue
        before = (sums.waited, sums.late) if sums else (0, 0)
        state.ranks[group[0], rank] = RankSums(before[0] + microseconds, before[1] + late[rank], now)
    state.evidence[group] = (*state.evidence.get(group, ()), Evidence(now, matched, telling, shortest))


def _add_speed(state: State, key: tuple[str, str], operation: Operation, now: float) -> None:
    """Add one collective to the bandwidth of its kind."""
    if operation.size < LEAST_BYTES:
        return
    n_ranks, least = operation.n_ranks, min(operation.durations.values())
    bus_bytes = operation.size * FACTORS[key[1]] * (n_ranks - 1) / n_ranks
    found = state.speeds.get(key, ())
    if found and found[-1].time == now:
        last = found[-1]
        found = found[:-1]
        bus_bytes, least = last.bus_bytes + bus_bytes, last.microseconds + least
    state.speeds[key] = (*found, Speed(now, bus_bytes, least))


def _origin(found: Iterable[Evidence], members: int) -> tuple[bool, str | None]:
    """Tell whether the evidence of a communicator is enough, and which rank it blames, if any."""
    matched = telling = 0
    shortest: dict[str, int] = {}
    for one in found:
        matched += one.matched
        telling += one.telling
        for rank, count in one.shortest.items():
            shortest[rank] = shortest.get(rank, 0) + count
    if matched < LEAST_COLLECTIVES:
        return False, None
    if telling < LEAST_COLLECTIVES or not shortest:
        return True, None
    rank = max(shortest, key=shortest.__getitem__)
    return True, rank if shortest[rank] >= max(SHARE, 1 / members + ABOVE_CHANCE) * telling else None


def _verdicts(state: State) -> dict[tuple[str, str], int]:
    """Give the verdict of each rank that there is enough data on."""
    blamed: set[tuple[str, str]] = set()
    cleared: set[tuple[str, str]] = set()
    judged: set[tuple[str, str]] = set()
    for group, found in state.evidence.items():
        members = state.collectives.members.get(group, {})
        if len(members) < 2:
            continue
        enough, origin = _origin(found, len(members))
        if enough:
            ranks = {(group[0], rank) for rank in members}
            judged |= ranks
            if origin is not None:
                culprit = (group[0], origin)
                blamed.add(culprit)
                cleared |= ranks - {culprit}
    return {key: int(key in blamed and key not in cleared) for key in judged}


def _tables(state: State, made: Outputs, table: Table) -> list[Table]:
    verdicts = _verdicts(state)
    ranks = state.ranks.values()
    jobs = state.collectives.jobs.values()
    return [
        _table(
            made.ranks,
            state.ranks,
            {
                "wait_seconds_total": [one.waited / 1e6 for one in ranks],
                "lateness_seconds_total": [one.late / 1e6 for one in ranks],
                "straggler": [verdicts.get(key) for key in state.ranks],
            },
            table,
        ),
        _table(
            made.jobs,
            [(job,) for job in state.collectives.jobs],
            {
                "matched_collectives_total": [one.matched for one in jobs],
                "unmatched_collectives_total": [one.unmatched for one in jobs],
                "dropped_collectives_total": [one.dropped for one in jobs],
            },
            table,
        ),
        _table(
            made.kinds,
            state.speeds,
            {
                "bus_bandwidth_bytes_per_second": [
                    sum(one.bus_bytes for one in found) * 1e6 / sum(one.microseconds for one in found)
                    for found in state.speeds.values()
                ]
            },
            table,
        ),
    ]


def _table(
    schema: Schema, keys: Iterable[LabelValues], values: Mapping[str, Sequence[float | None]], table: Table
) -> Table:
    columns = {ending: Column(schema.metrics[ending], cells) for ending, cells in values.items()}
    return Table(schema, Rows(schema.labels, keys, {}), columns, table.time, part=table.part)
