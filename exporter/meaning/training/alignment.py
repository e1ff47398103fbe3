"""Collectives: which timings of which ranks belong to one operation, and what it says of them.

An operation is told by its job, communicator, kind and number. It is settled when all ranks that are heard of in its
communicator told their time, or after some patience with those that did, if they are enough to be compared. No clocks
are compared, and times that are not those of the kernel are left out. What is kept is bounded for each job, so that
none takes the room of another.

All ranks of a synchronising operation end together, so the last to come shows the shortest time: the transfer took
about that, and every other rank waited for what its own time is longer.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.collectives import COMMON, SYNCHRONISING

PATIENCE = 3.0
"""Seconds that an operation waits for its other ranks: a tick of the nodes, and the way here."""

TOLD = 15.0
"""Seconds after which what a rank told of its progress no longer holds: its process may be gone."""

SILENCE = 60.0
"""Seconds after which a rank that is not heard of in a communicator is no longer waited for."""

FORGET = 600.0
"""Seconds after which what is known of a communicator or job that is not heard of is dropped."""

COMPARED = 0.5
"""Share of the ranks that must have told their time for an operation to be compared."""

NOISE = 50.0
"""Microseconds below which a difference of times tells nothing: starting a kernel varies by tens of them."""

MAX_JOBS = 512
MAX_COMMUNICATORS = 16_384
"""Of one job: a rank of 1,024 is in some, and each group of ranks has its own."""

MAX_MEMBERS = 16_384
"""Ranks of one communicator."""

MAX_RANKS = 32_768
"""Ranks of a job of which it is kept where they run, before those that are in no communicator any more are dropped."""

MAX_PENDING_JOB = 65_536
"""Operations of one job that wait for ranks."""

SETTLED_KEPT = 1024
"""Numbers of settled operations of one kind that are remembered, so that a late record makes no operation anew."""

HISTORY = 60.0
"""Seconds of evidence that are kept."""


class Timing(NamedTuple):
    """One operation on one rank: number, bytes as nccl-tests counts them, microseconds, whether the kernel's own."""

    sequence: int
    size: float
    microseconds: float
    timed: float | None = None


class Stream(NamedTuple):
    """Whose timings: a rank in a communicator.

    Attributes:
        job: Its job.
        communicator: What tells it from others of the job.
        kind: AllReduce …
        rank: The process, by the name that it has in the whole job.
        ranks: Of the communicator.
        nodes: That the communicator spans; 0 where unknown.
        host: Where the process runs.
        expected: Ranks of the communicator that should be heard of here; 0 where those that are will do, as on one of
            its hosts.
        ports: Ports nearest to its GPU, each with all its names; empty where unknown.
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
    """One operation that waits for its other ranks: microseconds by rank."""

    since: float
    size: float
    times: dict[str, float] = field(default_factory=dict)


class Progress(NamedTuple):
    """How far a rank is with one kind.

    Attributes:
        begun: How many it began.
        ended: How many of these ended, as far as it looked.
        told: When it said so last.
        since: Since when it has said the same, again and again.
    """

    begun: int
    ended: int
    told: float
    since: float


class Moved(NamedTuple):
    """What operations of one kind and size moved: bytes, microseconds, and bytes in a microsecond of the fastest.

    Where the time of the last rank to come is missing an operation looks slower than it was; the fastest is one whose
    time was there.
    """

    size: float
    microseconds: float
    best: float


NOTHING = Moved(0.0, 0.0, 0.0)


@dataclass(slots=True)
class Tick:
    """What the operations that were settled at one time said of the ranks of a communicator.

    Attributes:
        time: When.
        compared: Operations.
        telling: Of them those in which one rank came last by more than noise.
        last: How often each rank was that.
        late: Microseconds that each rank came after the middle one.
        waited: Microseconds that each rank waited for the last.
        bus: By kind and size, the bytes and the microseconds of the transfers, and the most bytes in a microsecond.
    """

    time: float
    compared: int = 0
    telling: int = 0
    last: dict[str, int] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    bus: dict[tuple[str, int], Moved] = field(default_factory=dict)


@dataclass(slots=True)
class Communicator:
    """One communicator of a job.

    Attributes:
        ranks: That it has.
        nodes: That it spans; 0 where unknown.
        expected: Ranks that should be heard of; 0 where those that are will do.
        heard: When it was last heard of.
        members: The ranks that are heard of, and when each last was.
        reached: The highest number that each rank told, by kind and rank.
        progress: How far each rank is, where that is told, by kind and rank.
        pending: Operations that wait, by kind and number.
        settled: Numbers that were settled of late, by kind.
        ticks: The evidence.
    """

    ranks: int
    nodes: int
    expected: int
    heard: float
    members: dict[str, float] = field(default_factory=dict)
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    pending: dict[tuple[str, int], Pending] = field(default_factory=dict)
    settled: dict[str, dict[int, None]] = field(default_factory=dict)
    ticks: deque[Tick] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """One job: its communicators, hosts of its ranks and the ports nearest to them, what became of its timings."""

    heard: float
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
    """All jobs that are heard of. Changed in place: it may hold a hundred thousand timings."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def take(self, stream: Stream, timings: Iterable[Timing], now: float) -> None:
        """Take timings of one rank in one communicator."""
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

    def note(self, stream: Stream, begun: int, ended: int, now: float) -> None:
        """Note how many collectives of its kind a rank began in one communicator, and how many of them ended."""
        if stream.kind not in COMMON or stream.ranks < 2:
            return
        job = self._job(stream.job, now)
        communicator = None if job is None else self._communicator(job, stream, now)
        if communicator is not None:
            before = communicator.progress.get((stream.kind, stream.rank))
            same = before is not None and before[:2] == (begun, ended) and now - before.told <= TOLD
            since = before.since if before is not None and same else now
            communicator.progress[stream.kind, stream.rank] = Progress(begun, ended, now, since)

    def settle(self, now: float) -> None:
        """Settle what is complete, or waited long enough, and drop what is too old."""
        for name in [name for name, job in self.jobs.items() if now - job.heard > FORGET]:
            del self.jobs[name]
        for job in self.jobs.values():
            for name in [name for name, one in job.communicators.items() if now - one.heard > FORGET]:
                job.pending -= len(job.communicators.pop(name).pending)
            for communicator in job.communicators.values():
                _settle(job, communicator, now)
            if len(job.hosts) > MAX_RANKS:
                there = {rank for one in job.communicators.values() for rank in one.members}
                job.hosts = {rank: host for rank, host in job.hosts.items() if rank in there}
                job.ports = {rank: ports for rank, ports in job.ports.items() if rank in there}

    def _job(self, name: str, now: float) -> Job | None:
        job = self.jobs.get(name)
        if job is None:
            if len(self.jobs) >= MAX_JOBS:
                return None
            job = self.jobs[name] = Job(now, now)
        job.heard = now
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
        found.heard = found.members[stream.rank] = now
        if job.hosts.get(stream.rank) != stream.host or job.ports.get(stream.rank) != stream.ports:
            job.hosts[stream.rank], job.ports[stream.rank] = stream.host, stream.ports
        return found

    @staticmethod
    def _make_room(communicator: Communicator, now: float) -> None:
        """Forget members that are silent: a rank that was started anew has another name."""
        silent = {rank for rank, heard in communicator.members.items() if now - heard > SILENCE}
        if silent:
            communicator.members = {rank: at for rank, at in communicator.members.items() if rank not in silent}
            communicator.reached = {key: one for key, one in communicator.reached.items() if key[1] not in silent}
            communicator.progress = {key: one for key, one in communicator.progress.items() if key[1] not in silent}


def _settle(job: Job, communicator: Communicator, now: float) -> None:
    """Settle operations of one communicator."""
    ticks = communicator.ticks
    while ticks and now - ticks[0].time > HISTORY:
        ticks.popleft()
    if not communicator.pending:
        return
    members = sum(now - heard <= SILENCE for heard in communicator.members.values())
    tick: Tick | None = None
    for key, pending in list(communicator.pending.items()):
        times = pending.times
        if (len(times) < members or members < 2) and now - pending.since < PATIENCE:
            continue  # others may still show up
        del communicator.pending[key]
        job.pending -= 1
        settled = communicator.settled[key[0]]
        settled[key[1]] = None
        if len(settled) > SETTLED_KEPT:
            del settled[next(iter(settled))]
        compared = len(times) >= 2 and len(times) >= COMPARED * members
        if not compared:
            job.unmatched += 1
        elif len(times) < members:
            job.partial += 1
        else:
            job.matched += 1
        tick = tick or Tick(now)
        _judge(tick, key[0], pending, compared=compared)
    if tick is not None:
        ticks.append(tick)


def _judge(tick: Tick, kind: str, pending: Pending, *, compared: bool) -> None:
    """Add what one operation says to the evidence."""
    times = pending.times
    ordered = sorted(times.values())
    least = ordered[0]
    bucket = size_bucket(pending.size)
    moved = tick.bus.get((kind, bucket), NOTHING)
    best = max(moved.best, pending.size / least) if least > 0 else moved.best
    tick.bus[kind, bucket] = Moved(moved.size + pending.size, moved.microseconds + least, best)
    if not compared:
        return
    tick.compared += 1
    middle = ordered[len(ordered) // 2]
    for rank, taken in times.items():
        if taken > least:
            tick.waited[rank] = tick.waited.get(rank, 0.0) + taken - least
        if middle - taken > NOISE:
            tick.late[rank] = tick.late.get(rank, 0.0) + middle - taken
            if taken == least and ordered[1] > least:
                tick.telling += 1
                tick.last[rank] = tick.last.get(rank, 0) + 1


def nodes_of(job: Job, communicator: Communicator) -> int:
    """Give the nodes that a communicator spans: as told, else the hosts of its ranks, once all are known; else 0."""
    if communicator.nodes or len(communicator.members) < communicator.ranks:
        return communicator.nodes
    hosts = {job.hosts.get(rank, "") for rank in communicator.members}
    return 0 if "" in hosts else len(hosts)


def size_bucket(size: float) -> int:
    """Give the power of two at or below a size in bytes; operations of one bucket are compared with each other."""
    return 1 << (max(int(size), 1).bit_length() - 1)


def summed(ticks: Iterable[Tick], since: float) -> Tick:
    """Add up evidence of what came after a time: a tick is of what came before it."""
    whole = Tick(since)
    for tick in ticks:
        if tick.time <= since:
            continue
        whole.compared += tick.compared
        whole.telling += tick.telling
        _add(whole.last, tick.last)
        _add(whole.late, tick.late)
        _add(whole.waited, tick.waited)
        for key, moved in tick.bus.items():
            before = whole.bus.get(key, NOTHING)
            best = max(before.best, moved.best)
            whole.bus[key] = Moved(before.size + moved.size, before.microseconds + moved.microseconds, best)
    return whole


def _add(into: dict[str, float] | dict[str, int], more: Mapping[str, float]) -> None:
    for key, value in more.items():
        into[key] = into.get(key, 0) + value  # type: ignore[assignment]
