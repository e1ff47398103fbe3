"""Alignment: which timings of which ranks belong to one collective.

A collective is told by its job, communicator, kind and number. The ranks of this host that are heard of in a
communicator are its members here, and a collective is complete when all of them have told their time; one of which a
rank does not tell is given up. No clocks are compared. Times that are not those of the kernel are left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from exporter.table import LabelValues, Table

LABELS = ("train_job", "communicator", "collective", "sequence", "rank")
FOOD = ("operation_duration", "operation_size", "operation_ranks", "operation_kernel_timed")
"""Labels, and endings of the columns, of the internal table that is understood here."""

SYNCHRONISING = frozenset({"AllReduce", "AllGather", "ReduceScatter"})
"""Kinds whose ranks end together; the times of others are no measure of each other."""

PATIENCE = 15.0
"""Seconds that a collective waits for its other ranks of this host: three polls, as files are flushed unevenly."""

MEMBER_SILENCE = 60.0
"""Seconds after which a rank that is not heard of in a communicator is no longer waited for."""

FORGET = 600.0
"""Seconds after which what is known of a rank or job that is not heard of is dropped."""

MAX_JOBS = 32
"""Jobs on this host."""

MAX_COMMUNICATORS = 256
"""Communicators of one job on this host: eight ranks in groups of eight kinds make 64 at most."""

MAX_MEMBERS = 128
"""Ranks of one communicator on this host."""

MAX_PENDING = 65_536
"""Collectives that wait for ranks, in all …"""

MAX_PENDING_JOB = 8192
"""… and of one job, so that no job takes the room of all others at once."""

Group: TypeAlias = tuple[str, str]
"""A job and a communicator."""


class Operation(NamedTuple):
    """One collective that waits for its other ranks; durations in microseconds by rank."""

    since: float
    size: int
    n_ranks: int
    durations: dict[str, int]


class JobSums(NamedTuple):
    """Collectives of a job by what became of them, and when it was last heard of."""

    matched: int
    unmatched: int
    dropped: int
    heard: float


@dataclass(slots=True)
class State:
    """What is remembered of collectives that are under way."""

    pending: dict[LabelValues, Operation] = field(default_factory=dict)
    members: dict[Group, dict[str, float]] = field(default_factory=dict)
    known_since: dict[Group, float] = field(default_factory=dict)
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
            {job: sums for job, sums in self.jobs.items() if now - sums.heard < FORGET},
        )

    def count(self, job: str, *, matched: int = 0, unmatched: int = 0, dropped: int = 0) -> None:
        """Count collectives of a job; one that was forgotten is not counted any more."""
        sums = self.jobs.get(job)
        if sums is not None:
            self.jobs[job] = JobSums(
                sums.matched + matched, sums.unmatched + unmatched, sums.dropped + dropped, sums.heard
            )


class Settled(NamedTuple):
    """A collective that is done: all its ranks here told their time, or it has only one here."""

    group: Group
    kind: str
    operation: Operation
    matched: bool


def collect(state: State, table: Table) -> None:
    """Take the timings of a table into the collectives that wait."""
    now = table.time
    waiting = Counter(key[0] for key in state.pending)
    communicators = Counter(job for job, _ in state.members)
    touched: set[LabelValues] = set()
    columns = (table.values(ending) or () for ending in FOOD)
    for key, duration, size, n_ranks, timed in zip(table.rows.keys, *columns, strict=True):
        job, communicator, kind, _, rank = key
        if kind not in SYNCHRONISING or timed == 0 or n_ranks == 1 or not _known_job(state, job, now):
            continue
        if not _joined(state, (job, communicator), rank, communicators, now):
            state.count(job, dropped=1)
            continue
        name = key[:4]
        operation = state.pending.get(name)
        if operation is None:
            if len(state.pending) >= MAX_PENDING or waiting[job] >= MAX_PENDING_JOB:
                state.count(job, dropped=1)
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


def settle(state: State, now: float) -> Sequence[Settled]:
    """Take out the collectives that are done, and give up those that waited too long."""
    done: list[Settled] = []
    for key, operation in list(state.pending.items()):
        job, communicator, kind, _ = key
        group = (job, communicator)
        members = state.members.get(group, {})
        several = len(members) > 1
        if several and operation.durations.keys() >= members.keys():
            state.count(job, matched=1)
            done.append(Settled(group, kind, operation, matched=True))
        elif several:
            if now - operation.since <= PATIENCE:
                continue
            state.count(job, unmatched=1)
        else:
            if now - min(operation.since, state.known_since.get(group, operation.since)) <= PATIENCE:
                continue  # other ranks may still show up in it
            # Nothing here to be matched with, but its speed can be told.
            done.append(Settled(group, kind, operation, matched=False))
        del state.pending[key]
    return done
