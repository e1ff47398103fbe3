"""Alignment of collective timings: which timings of which ranks belong to one operation, and what they show.

An operation is identified by job, communicator, kind and sequence number. It is settled when all known ranks of its
communicator have reported their time, or after some seconds with those that did, if they are enough to compare. No
clocks are compared, and times that were not measured on the GPU are left out. All storage is bounded for each job, so
that none takes the room of another.

All ranks of a synchronising operation end together, so the last rank to start has the shortest time. The transfer took
about that time, and every other rank waited for the difference of its own time to it.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.collectives import COMMON, SYNCHRONISING

PATIENCE_SECONDS = 3.0
"""Seconds that an operation waits for timings of further ranks: the publish interval of the hosts plus delivery."""

PROGRESS_VALID_SECONDS = 15.0
"""Seconds for which a progress report of a rank is valid: its process may be gone."""

SILENT_SECONDS = 60.0
"""Seconds without timings after which a rank of a communicator is no longer waited for."""

FORGET_SECONDS = 600.0
"""Seconds without timings after which a communicator or job is dropped."""

MIN_COMPARED_SHARE = 0.5
"""Share of the ranks that must have reported their time for an operation to be compared."""

NOISE_MICROSECONDS = 50.0
"""Microseconds below which a difference of times is noise: kernel launch times vary by tens of them."""

MAX_JOBS = 512
MAX_COMMUNICATORS = 16_384
"""Communicators of one job: a rank of 1,024 is in several, and each group of ranks has its own."""

MAX_MEMBERS = 16_384
"""Ranks of one communicator."""

MAX_RANKS = 32_768
"""Ranks of a job whose hosts are stored, before those that are in no communicator any more are dropped."""

MAX_PENDING_JOB = 65_536
"""Operations of one job that wait for further ranks."""

MAX_SETTLED_NUMBERS = 1024
"""Sequence numbers of settled operations of one kind that are stored, so that a late record opens no new operation."""

HISTORY_SECONDS = 60.0
"""Seconds of evidence that are stored."""


class Timing(NamedTuple):
    """One operation on one rank.

    Sequence number, size in bytes as nccl-tests counts it, duration, and whether it was measured on the GPU (0: not).
    """

    sequence: int
    size: float
    microseconds: float
    timed: float | None = None


class Stream(NamedTuple):
    """A rank in a communicator: the origin of timings.

    Attributes:
        job: Name of the job.
        communicator: Identifier of the communicator within the job.
        kind: AllReduce …
        rank: The process, by its name in the whole job.
        ranks: Number of ranks of the communicator.
        nodes: Number of nodes that the communicator spans; 0 if unknown.
        host: Host of the process.
        expected: Number of ranks of the communicator whose timings should arrive here; 0 if those that do suffice, as
            on one of its hosts.
        ports: Ports nearest to its GPU, each with all its names; empty if unknown.
    """

    job: str
    communicator: str
    kind: str
    rank: str
    ranks: int
    nodes: int = 0
    host: str = ""
    expected: int = 0
    ports: str = ""


@dataclass(slots=True)
class Pending:
    """An operation that waits for further ranks: microseconds by rank."""

    since: float
    size: float
    times: dict[str, float] = field(default_factory=dict)


class Progress(NamedTuple):
    """Progress of a rank with one kind of operations.

    Attributes:
        begun: Number of operations begun.
        ended: Number of these that ended, as far as the rank has checked.
        reported: Time of the last report.
        since: Time of the first report with these numbers.
    """

    begun: int
    ended: int
    reported: float
    since: float


class Traffic(NamedTuple):
    """Traffic of operations of one kind and size: bytes, microseconds, and bytes per microsecond of the fastest.

    If the time of the last rank to start is missing, an operation appears slower than it was; the fastest had that
    time.
    """

    size: float
    microseconds: float
    best: float


NO_TRAFFIC = Traffic(0.0, 0.0, 0.0)


@dataclass(slots=True)
class Tick:
    """Evidence from the operations of a communicator that were settled at one time.

    Attributes:
        time: The time.
        compared: Number of operations compared.
        decisive: Number of these in which one rank came last by more than noise.
        last: Number of operations in which each rank was the last.
        late: Microseconds that each rank started after the median rank.
        waited: Microseconds that each rank waited for the last.
        bus: Traffic by kind and size.
    """

    time: float
    compared: int = 0
    decisive: int = 0
    last: dict[str, int] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    bus: dict[tuple[str, int], Traffic] = field(default_factory=dict)


@dataclass(slots=True)
class Communicator:
    """One communicator of a job.

    Attributes:
        ranks: Number of its ranks.
        nodes: Number of nodes that it spans; 0 if unknown.
        expected: Number of ranks whose timings should arrive; 0 if those that do suffice.
        last_seen: Time of the last timing or progress report.
        members: Ranks that reported, with the time of the last report of each.
        reached: Highest sequence number by kind and rank.
        progress: Progress by kind and rank, where it is reported.
        pending: Operations that wait, by kind and sequence number.
        settled: Sequence numbers settled recently, by kind.
        ticks: The evidence.
    """

    ranks: int
    nodes: int
    expected: int
    last_seen: float
    members: dict[str, float] = field(default_factory=dict)
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    pending: dict[tuple[str, int], Pending] = field(default_factory=dict)
    settled: dict[str, dict[int, None]] = field(default_factory=dict)
    ticks: deque[Tick] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """One job: communicators, hosts of ranks and the ports nearest to them, and counts of operations by outcome."""

    last_seen: float
    since: float
    communicators: dict[str, Communicator] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    pending: int = 0
    matched: int = 0
    partial: int = 0
    unmatched: int = 0
    dropped: int = 0
    late: int = 0


class Collectives:
    """Timings of all jobs. Changed in place: it may hold a hundred thousand timings."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def add_timings(self, stream: Stream, timings: Iterable[Timing], now: float) -> None:
        """Add timings of one rank in one communicator."""
        if stream.kind not in SYNCHRONISING or stream.ranks < 2:
            return
        job = self._job(stream.job, now)
        if job is None:
            return
        communicator = self._communicator(job, stream, now)
        if communicator is None:
            job.dropped += 1
            return
        kind, rank = stream.kind, stream.rank
        pending, settled = communicator.pending, communicator.settled.setdefault(kind, {})
        reached = communicator.reached.get((kind, rank), -1)
        for timing in timings:
            if timing.timed == 0:
                continue
            number = timing.sequence
            reached = max(reached, number)
            waiting = pending.get((kind, number))
            if waiting is None:
                if number in settled:
                    job.late += 1
                    continue
                if job.pending >= MAX_PENDING_JOB:
                    job.dropped += 1
                    continue
                job.pending += 1
                waiting = pending[kind, number] = Pending(now, timing.size)
            waiting.times.setdefault(rank, timing.microseconds)
        if reached >= 0:
            communicator.reached[kind, rank] = reached

    def add_progress(self, stream: Stream, begun: int, ended: int, now: float) -> None:
        """Record how many collectives of its kind a rank has begun in one communicator, and how many of them ended."""
        if stream.kind not in COMMON or stream.ranks < 2:
            return
        job = self._job(stream.job, now)
        communicator = None if job is None else self._communicator(job, stream, now)
        if communicator is not None:
            before = communicator.progress.get((stream.kind, stream.rank))
            same = (
                before is not None and before[:2] == (begun, ended) and now - before.reported <= PROGRESS_VALID_SECONDS
            )
            since = before.since if before is not None and same else now
            communicator.progress[stream.kind, stream.rank] = Progress(begun, ended, now, since)

    def settle(self, now: float) -> None:
        """Settle operations that are complete or have waited long enough, and drop what is too old."""
        for name in [name for name, job in self.jobs.items() if now - job.last_seen > FORGET_SECONDS]:
            del self.jobs[name]
        for job in self.jobs.values():
            for name in [name for name, one in job.communicators.items() if now - one.last_seen > FORGET_SECONDS]:
                job.pending -= len(job.communicators.pop(name).pending)
            for communicator in job.communicators.values():
                _settle(job, communicator, now)
            if len(job.hosts) > MAX_RANKS:
                present = {rank for one in job.communicators.values() for rank in one.members}
                job.hosts = {rank: host for rank, host in job.hosts.items() if rank in present}
                job.ports = {rank: ports for rank, ports in job.ports.items() if rank in present}

    def _job(self, name: str, now: float) -> Job | None:
        job = self.jobs.get(name)
        if job is None:
            if len(self.jobs) >= MAX_JOBS:
                return None
            job = self.jobs[name] = Job(now, now)
        job.last_seen = now
        return job

    def _communicator(self, job: Job, stream: Stream, now: float) -> Communicator | None:
        found = job.communicators.get(stream.communicator)
        if found is None:
            if len(job.communicators) >= MAX_COMMUNICATORS:
                return None
            found = job.communicators[stream.communicator] = Communicator(
                stream.ranks, stream.nodes, stream.expected, now
            )
        if stream.rank not in found.members and len(found.members) >= min(MAX_MEMBERS, found.ranks):
            self._make_room(found, now)
            if len(found.members) >= min(MAX_MEMBERS, found.ranks):
                return None
        found.last_seen = found.members[stream.rank] = now
        if job.hosts.get(stream.rank) != stream.host or job.ports.get(stream.rank) != stream.ports:
            job.hosts[stream.rank], job.ports[stream.rank] = stream.host, stream.ports
        return found

    @staticmethod
    def _make_room(communicator: Communicator, now: float) -> None:
        """Drop members without recent timings: a restarted rank has another name."""
        silent = {rank for rank, seen in communicator.members.items() if now - seen > SILENT_SECONDS}
        if silent:
            communicator.members = {rank: at for rank, at in communicator.members.items() if rank not in silent}
            communicator.reached = {key: one for key, one in communicator.reached.items() if key[1] not in silent}
            communicator.progress = {key: one for key, one in communicator.progress.items() if key[1] not in silent}


def _settle(job: Job, communicator: Communicator, now: float) -> None:
    """Settle operations of one communicator."""
    ticks = communicator.ticks
    while ticks and now - ticks[0].time > HISTORY_SECONDS:
        ticks.popleft()
    if not communicator.pending:
        return
    members = sum(now - at <= SILENT_SECONDS for at in communicator.members.values())
    tick: Tick | None = None
    for key, pending in list(communicator.pending.items()):
        times = pending.times
        if (len(times) < members or members < 2) and now - pending.since < PATIENCE_SECONDS:
            continue  # others may still arrive
        del communicator.pending[key]
        job.pending -= 1
        settled = communicator.settled[key[0]]
        settled[key[1]] = None
        if len(settled) > MAX_SETTLED_NUMBERS:
            del settled[next(iter(settled))]
        compared = len(times) >= 2 and len(times) >= MIN_COMPARED_SHARE * members
        if not compared:
            job.unmatched += 1
        elif len(times) < members:
            job.partial += 1
        else:
            job.matched += 1
        tick = tick or Tick(now)
        _add_evidence(tick, key[0], pending, compared=compared)
    if tick is not None:
        ticks.append(tick)


def _add_evidence(tick: Tick, kind: str, pending: Pending, *, compared: bool) -> None:
    """Add one operation to the evidence."""
    times = pending.times
    ordered = sorted(times.values())
    least = ordered[0]
    bucket = size_bucket(pending.size)
    moved = tick.bus.get((kind, bucket), NO_TRAFFIC)
    best = max(moved.best, pending.size / least) if least > 0 else moved.best
    tick.bus[kind, bucket] = Traffic(moved.size + pending.size, moved.microseconds + least, best)
    if not compared:
        return
    tick.compared += 1
    middle = ordered[len(ordered) // 2]
    for rank, taken in times.items():
        if taken > least:
            tick.waited[rank] = tick.waited.get(rank, 0.0) + taken - least
        if middle - taken > NOISE_MICROSECONDS:
            tick.late[rank] = tick.late.get(rank, 0.0) + middle - taken
            if taken == least and ordered[1] > least:
                tick.decisive += 1
                tick.last[rank] = tick.last.get(rank, 0) + 1


def nodes_of(job: Job, communicator: Communicator) -> int:
    """Return the number of nodes of a communicator: as reported, else from the hosts of all its ranks; 0 if unknown."""
    if communicator.nodes or len(communicator.members) < communicator.ranks:
        return communicator.nodes
    hosts = {job.hosts.get(rank, "") for rank in communicator.members}
    return 0 if "" in hosts else len(hosts)


def size_bucket(size: float) -> int:
    """Return the power of two at or below a size in bytes; operations of one bucket are compared with each other."""
    return 1 << (max(int(size), 1).bit_length() - 1)


def summed(ticks: Iterable[Tick], since: float) -> Tick:
    """Return the sum of the evidence after a time; a tick contains what happened before it."""
    whole = Tick(since)
    for tick in ticks:
        if tick.time <= since:
            continue
        whole.compared += tick.compared
        whole.decisive += tick.decisive
        _add(whole.last, tick.last)
        _add(whole.late, tick.late)
        _add(whole.waited, tick.waited)
        for key, moved in tick.bus.items():
            before = whole.bus.get(key, NO_TRAFFIC)
            best = max(before.best, moved.best)
            whole.bus[key] = Traffic(before.size + moved.size, before.microseconds + moved.microseconds, best)
    return whole


def _add(into: dict[str, float] | dict[str, int], more: Mapping[str, float]) -> None:
    for key, value in more.items():
        into[key] = into.get(key, 0) + value  # type: ignore[assignment]
