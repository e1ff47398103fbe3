"""Stragglers: which rank do the others wait for.

All ranks of a synchronising collective end together, so the late one shows the shortest time and its victims the
longest. Of the ranks on this host that took part in one collective (told by communicator, kind and number), a rank
waited t - min t and was late by max t - t, and the transfer itself took about min t. No clocks are compared, only
durations. Times that are not those of the kernel are left out.

The verdict is per communicator first: its origin is the rank that is the shortest in most of the collectives that
tell anything. A rank is a straggler if it is the origin somewhere, and nowhere waits for another origin: who is late
in one group because it waited in another is a victim. A rank on another host makes all ranks here wait alike, and
gives no verdict here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from exporter import vocabulary
from exporter.table import Column, LabelValues, Metric, Rows, Schema, Table
from exporter.vocabulary import counter, gauge

WINDOW = 60.0
"""Seconds over which verdicts and bandwidths are formed: some steps of most trainings, soon enough for an alert."""

PATIENCE = 15.0
"""Seconds that a collective waits for its other ranks of this host: three polls, as files are flushed unevenly."""

MEMBER_SILENCE = 60.0
"""Seconds after which a rank that is not heard of in a communicator is no longer waited for."""

FORGET = 600.0
"""Seconds after which the sums of a rank or job that is not heard of are dropped."""

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

MAX_JOBS = 32
"""Jobs on this host."""

MAX_RANKS = 4096
"""Ranks on this host, of all jobs."""

MAX_COMMUNICATORS = 256
"""Communicators of one job on this host: eight ranks in groups of eight kinds make 64 at most."""

MAX_MEMBERS = 128
"""Ranks of one communicator on this host."""

MAX_PENDING = 65_536
"""Collectives that wait for ranks, in all …"""

MAX_PENDING_JOB = 8192
"""… and of one job, so that no job takes the room of all others at once."""

FACTORS = {"AllReduce": 2, "AllGather": 1, "ReduceScatter": 1}
"""Of each kind whose ranks end together, the factor k of nccl-tests: bus bandwidth = size / time * k * (n - 1) / n."""

FOOD = ("operation_duration", "operation_size", "operation_ranks", "operation_kernel_timed")
"""Endings of the internal table that is understood here."""

LABELS = ("train_job", "communicator", "collective", "sequence", "rank")

Group: TypeAlias = tuple[str, str]
"""A job and a communicator."""


class Outputs(NamedTuple):
    """The schemas of what is made here: by rank, by job, and by job and kind."""

    ranks: Schema
    jobs: Schema
    kinds: Schema


class Operation(NamedTuple):
    """One collective that waits for its other ranks; durations in microseconds by rank."""

    since: float
    size: int
    n_ranks: int
    durations: dict[str, int]


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


class JobSums(NamedTuple):
    """Collectives of a job by what became of them, and when it was last heard of."""

    matched: int
    unmatched: int
    dropped: int
    heard: float


@dataclass(slots=True)
class State:
    """All that is remembered. A step makes a new one and leaves the old as it was."""

    pending: dict[LabelValues, Operation] = field(default_factory=dict)
    members: dict[Group, dict[str, float]] = field(default_factory=dict)
    known_since: dict[Group, float] = field(default_factory=dict)
    evidence: dict[Group, tuple[Evidence, ...]] = field(default_factory=dict)
    speeds: dict[tuple[str, str], tuple[Speed, ...]] = field(default_factory=dict)
    ranks: dict[tuple[str, str], RankSums] = field(default_factory=dict)
    jobs: dict[str, JobSums] = field(default_factory=dict)

    def aged(self, now: float) -> "State":
        """Give a copy that may be changed, without what is too old."""
        members = {
            group: alive
            for group, ranks in self.members.items()
            if (alive := {rank: heard for rank, heard in ranks.items() if now - heard <= MEMBER_SILENCE})
        }
        return State(
            dict(self.pending),
            members,
            {group: since for group, since in self.known_since.items() if group in members},
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
            {key: sums for key, sums in self.ranks.items() if now - sums.heard < FORGET},
            {job: sums for job, sums in self.jobs.items() if now - sums.heard < FORGET},
        )


_schemas: dict[Schema, Outputs] = {}


def _outputs(schema: Schema) -> Outputs | None:
    """Give the schemas made from an internal schema of collectives; None for any other."""
    made = _schemas.get(schema)
    if made is None and schema.internal and schema.labels == LABELS and all(one in schema.metrics for one in FOOD):
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
    _collect(new, table)
    _settle(new, now)
    return new, [one for one in _tables(new, made, table) if len(one.rows)]


def _collect(state: State, table: Table) -> None:
    """Take the timings of a table into the collectives that wait."""
    now = table.time
    waiting = Counter(key[0] for key in state.pending)
    communicators = Counter(job for job, _ in state.members)
    touched: set[LabelValues] = set()
    columns = (table.values(ending) or () for ending in FOOD)
    for key, duration, size, n_ranks, timed in zip(table.rows.keys, *columns, strict=True):
        job, communicator, kind, _, rank = key
        if kind not in FACTORS or timed == 0 or n_ranks == 1 or not _known_job(state, job, now):
            continue
        if not _joined(state, (job, communicator), rank, communicators, now):
            _count(state, job, dropped=1)
            continue
        name = key[:4]
        operation = state.pending.get(name)
        if operation is None:
            if len(state.pending) >= MAX_PENDING or waiting[job] >= MAX_PENDING_JOB:
                _count(state, job, dropped=1)
                continue
            waiting[job] += 1
            operation = state.pending[name] = Operation(now, size, n_ranks, {})
            touched.add(name)
        elif name not in touched:  # it belongs to the state before, too
            operation = state.pending[name] = operation._replace(durations=dict(operation.durations))
            touched.add(name)
        operation.durations.setdefault(rank, duration)


def _known_job(state: State, job: str, now: float) -> bool:
    """Note that a job was heard of; False where there is no room for one more, nor a row to count that under."""
    sums = state.jobs.get(job)
    if sums is None:
        if len(state.jobs) >= MAX_JOBS:
            return False
        state.jobs[job] = JobSums(0, 0, 0, now)
    elif sums.heard != now:
        state.jobs[job] = sums._replace(heard=now)
    return True


def _joined(state: State, group: Group, rank: str, communicators: Counter[str], now: float) -> bool:
    """Note that a rank was heard of in a communicator; False where there is no room for one more."""
    members = state.members.get(group)
    if members is None:
        if communicators[group[0]] >= MAX_COMMUNICATORS:
            return False
        communicators[group[0]] += 1
        members = state.members[group] = {}
        state.known_since[group] = now
    elif rank not in members and len(members) >= MAX_MEMBERS:
        return False
    members[rank] = now
    return True


def _count(state: State, job: str, *, matched: int = 0, unmatched: int = 0, dropped: int = 0) -> None:
    """Count collectives of a job; one that was forgotten is not counted any more."""
    sums = state.jobs.get(job)
    if sums is None:
        return
    state.jobs[job] = JobSums(sums.matched + matched, sums.unmatched + unmatched, sums.dropped + dropped, sums.heard)


def _settle(state: State, now: float) -> None:
    """Evaluate the collectives that are complete, and give up those that waited too long."""
    complete: dict[Group, list[Operation]] = {}
    for key, operation in list(state.pending.items()):
        job, communicator, kind, _ = key
        members = state.members.get((job, communicator), {})
        if len(members) > 1 and operation.durations.keys() >= members.keys():
            complete.setdefault((job, communicator), []).append(operation)
            _count(state, job, matched=1)
        elif len(members) > 1:
            if now - operation.since <= PATIENCE:
                continue
            _count(state, job, unmatched=1)
            del state.pending[key]
            continue
        elif now - min(operation.since, state.known_since.get((job, communicator), operation.since)) <= PATIENCE:
            continue  # other ranks may still show up in it
        # A communicator with one rank here has nothing to be matched with, but its speed can be told.
        _add_speed(state, (job, kind), operation, now)
        del state.pending[key]
    for group, operations in complete.items():
        _judge(state, group, operations, now)


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
            _count(state, group[0], dropped=1)
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
        members = state.members.get(group, {})
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
    jobs = state.jobs.values()
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
            [(job,) for job in state.jobs],
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
