"""Alignment of collective timings: which timings of which ranks belong to one operation, and what they show.

An operation is identified by job, communicator, kind and sequence number. It is settled when all known ranks of its
communicator have reported their time, or after some seconds with those that did, if they are enough to compare. No
clocks are compared, and times that were not measured on the GPU are left out. All storage is bounded, and shared by job
and host, so that none takes the room of another.

All ranks of a synchronising operation end together, so the last rank to start has the shortest time. The transfer took
about that time, and every other rank waited for the difference of its own time to it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from exporter.core.collectives import COMMON, POINT_TO_POINT, SYNCHRONISING
from exporter.core.shares import Admission, Shares
from exporter.meaning.training.records import (
    Arrivals,
    Communicator,
    Exchange,
    Job,
    Pending,
    Progress,
    SettledNumbers,
    Stream,
    Tick,
    Timing,
    Traffic,
)

PATIENCE_SECONDS = 7.0
"""Seconds that an operation waits for timings of further ranks: one second of the hook, five of the hosts, delivery."""

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

MAX_HOST_COMMUNICATORS = 4096
"""Communicators of one job that one host reported first."""

MAX_MEMBERS = 16_384
"""Ranks of one communicator."""

MAX_HOST_MEMBERS = 16_384
"""Ranks on one host, counted in each of their communicators: of ten runs of a job with 128 processes."""

MAX_ALL_MEMBERS = 1 << 20
"""Ranks of all hosts, likewise."""

MAX_RANKS = 32_768
"""Ranks of a job whose hosts are stored, before those that are in no communicator any more are dropped."""

MAX_PENDING_JOB = 65_536
"""Operations of one job that wait for further ranks."""

MAX_PENDING = 262_144
"""The same of all jobs: some 100 MB."""

MAX_EXCHANGES = 16
"""Communicators and kinds in which the progress of one rank's operations between two ranks is stored."""

MAX_LATE = 32
"""Ranks of an operation whose lateness is stored, or an eighth of its ranks if that is more."""

MAX_UNFOLDED = 4096
"""Operations of one kind of a communicator that are stored for the evidence on steps."""

HISTORY_SECONDS = 60.0
"""Seconds of evidence that are stored, and at least …"""

HISTORY_TICKS = 12
"""… so many sums, if they are of the last …"""

MAX_HISTORY_SECONDS = 400.0
"""… seconds: steps may take tens of seconds."""


class Collectives:
    """Timings of all jobs. Changed in place: it may hold a hundred thousand timings."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._admission: Admission[str, str] = Admission()
        self._waiting: Shares[str] = Shares()  # operations, by host
        self._members: Shares[str] = Shares()  # by host

    def add_timings(self, stream: Stream, timings: Iterable[Timing], now: float) -> None:
        """Add timings of one rank in one communicator."""
        if stream.kind in POINT_TO_POINT:
            self._add_exchange(stream, timings, now)
        elif stream.kind in SYNCHRONISING and stream.ranks > 1:
            self._add_collectives(stream, timings, now)

    def _add_collectives(self, stream: Stream, timings: Iterable[Timing], now: float) -> None:
        job = self._job(stream, now)
        if job is None:
            return
        communicator = self._communicator(job, stream, now)
        if communicator is None:
            job.dropped += 1
            return
        kind, rank = stream.kind, stream.rank
        pending, settled = communicator.pending, communicator.settled.setdefault(kind, SettledNumbers())
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
                if not self._may_wait(job, stream.host):
                    job.dropped += 1
                    continue
                waiting = pending[kind, number] = Pending(now, timing.size, stream.host)
            if rank not in waiting.times:
                waiting.times[rank] = timing.microseconds
                if timing.queued is not None:
                    waiting.queued[rank] = timing.queued
        if reached >= 0:
            communicator.reached[kind, rank] = reached
            communicator.highest[kind] = max(reached, communicator.highest.get(kind, reached))

    def _add_exchange(self, stream: Stream, timings: Iterable[Timing], now: float) -> None:
        """Add the time of operations between two ranks, of a rank that is known by those of communicators."""
        job = self.jobs.get(stream.job)
        if job is None or job.hosts.get(stream.rank) != stream.host:
            return
        exchange = job.exchanges.setdefault(stream.rank, Exchange())
        exchange.add(sum(timing.microseconds for timing in timings), now)

    def add_progress(self, stream: Stream, begun: int, ended: int, now: float) -> None:
        """Record how many collectives of its kind a rank has begun in one communicator, and how many of them ended."""
        if stream.ranks < 2:
            return
        if stream.kind in POINT_TO_POINT:
            job = self.jobs.get(stream.job)
            if job is not None and job.hosts.get(stream.rank) == stream.host:
                known = job.exchanges.setdefault(stream.rank, Exchange()).progress
                key = stream.communicator, stream.kind
                if key in known or len(known) < MAX_EXCHANGES:
                    known[key] = _advanced(known.get(key), begun, ended, now)
        elif stream.kind in COMMON:
            job = self._job(stream, now)
            communicator = None if job is None else self._communicator(job, stream, now)
            if communicator is not None:
                of_kind = stream.kind, stream.rank
                communicator.progress[of_kind] = _advanced(communicator.progress.get(of_kind), begun, ended, now)

    def settle(self, now: float) -> None:
        """Settle operations that are complete or have waited long enough, and drop what is too old."""
        for name in [name for name, job in self.jobs.items() if now - job.last_seen > FORGET_SECONDS]:
            self._forget(name)
            self._admission.forget(name)
        for job in self.jobs.values():
            for name in [name for name, one in job.communicators.items() if now - one.last_seen > FORGET_SECONDS]:
                self._close(job, name)
            for communicator in job.communicators.values():
                self._settle(job, communicator, now)
            if len(job.hosts) > MAX_RANKS:
                present = {rank for one in job.communicators.values() for rank in one.members}
                job.hosts = {rank: host for rank, host in job.hosts.items() if rank in present}
                job.ports = {rank: ports for rank, ports in job.ports.items() if rank in present}
                job.exchanges = {rank: one for rank, one in job.exchanges.items() if rank in present}

    def _job(self, stream: Stream, now: float) -> Job | None:
        name = stream.job
        admitted, evicted = self._admission.report(name, stream.host, now, MAX_JOBS)
        if evicted is not None:
            self._forget(evicted)
        if not admitted:
            return None
        job = self.jobs.get(name)
        if job is None:
            job = self.jobs[name] = Job(now, now)
        job.last_seen = now
        return job

    def _forget(self, name: str) -> None:
        """Remove a job."""
        job = self.jobs.pop(name)
        for one in list(job.communicators):
            self._close(job, one)

    def _close(self, job: Job, name: str) -> None:
        """Remove a communicator."""
        closed = job.communicators.pop(name)
        job.opened.remove(closed.host)
        for pending in closed.pending.values():
            self._end_wait(job, pending)
        for host, members in closed.places.items():
            self._members.remove(host, members)

    def _may_wait(self, job: Job, host: str) -> bool:
        """Count one more operation that waits; return false where a host has no room for it."""
        if not (job.waiting.has_room(host, MAX_PENDING_JOB) and self._waiting.has_room(host, MAX_PENDING)):
            return False
        job.waiting.add(host)
        self._waiting.add(host)
        return True

    def _end_wait(self, job: Job, pending: Pending) -> None:
        job.waiting.remove(pending.host)
        self._waiting.remove(pending.host)

    def _communicator(self, job: Job, stream: Stream, now: float) -> Communicator | None:
        host = stream.host
        found = job.communicators.get(stream.communicator)
        if found is None:
            if not job.opened.has_room(host, MAX_COMMUNICATORS, MAX_HOST_COMMUNICATORS):
                return None
            found = Communicator(stream.ranks, stream.nodes, stream.expected, now, host)
        if stream.rank not in found.members:
            if len(found.members) >= min(MAX_MEMBERS, found.ranks):
                self._make_room(job, found, now)
            if len(found.members) >= min(MAX_MEMBERS, found.ranks) or not self._members.has_room(
                host, MAX_ALL_MEMBERS, MAX_HOST_MEMBERS
            ):
                return None
            found.places[host] = found.places.get(host, 0) + 1
            self._members.add(host)
        if not found.members:
            job.communicators[stream.communicator] = found
            job.opened.add(host)
        found.last_seen = found.members[stream.rank] = now
        before = job.hosts.get(stream.rank)
        if before not in {None, host}:
            job.claims.move(stream.rank, host, now)
        if before != host or job.ports.get(stream.rank) != stream.ports:
            job.hosts[stream.rank], job.ports[stream.rank] = host, stream.ports
        return found

    def _make_room(self, job: Job, communicator: Communicator, now: float) -> None:
        """Drop members without recent timings: a restarted rank has another name."""
        silent = {rank for rank, seen in communicator.members.items() if now - seen > SILENT_SECONDS}
        if not silent:
            return
        communicator.members = {rank: at for rank, at in communicator.members.items() if rank not in silent}
        communicator.reached = {key: one for key, one in communicator.reached.items() if key[1] not in silent}
        communicator.progress = {key: one for key, one in communicator.progress.items() if key[1] not in silent}
        before, communicator.places = communicator.places, {}
        for host in (job.hosts.get(rank, "") for rank in communicator.members):
            communicator.places[host] = communicator.places.get(host, 0) + 1
        for host, members in before.items():
            self._members.remove(host, members)
        for host, members in communicator.places.items():
            self._members.add(host, members)

    def _settle(self, job: Job, communicator: Communicator, now: float) -> None:
        """Settle operations of one communicator."""
        ticks = communicator.ticks
        while ticks and now - ticks[0].time > (MAX_HISTORY_SECONDS if len(ticks) <= HISTORY_TICKS else HISTORY_SECONDS):
            ticks.popleft()
        if not communicator.pending:
            return
        active = [rank for rank, at in communicator.members.items() if now - at <= SILENT_SECONDS]
        members = len(active)
        passed = _passed(communicator, active)
        tick: Tick | None = None
        for key, pending in list(communicator.pending.items()):
            times = pending.times
            is_complete = members > 1 and (len(times) >= members or key[1] < passed[key[0]])
            if not is_complete and now - pending.since < PATIENCE_SECONDS:
                continue  # others may still arrive
            del communicator.pending[key]
            self._end_wait(job, pending)
            communicator.settled[key[0]].add(key[1])
            compared = len(times) >= 2 and len(times) >= MIN_COMPARED_SHARE * members
            if not compared:
                job.unmatched += 1
            elif len(times) < members:
                job.partial += 1
            else:
                job.matched += 1
            tick = tick or Tick(now)
            found = _add_evidence(tick, key, pending, members, compared=compared)
            if found is not None:
                taken = communicator.arrivals.get(key[0])
                if taken is None:
                    taken = communicator.arrivals[key[0]] = deque(maxlen=MAX_UNFOLDED)
                taken.append(found)
        if tick is not None:
            communicator.add_tick(tick)


def _passed(communicator: Communicator, active: Sequence[str]) -> dict[str, int]:
    """Return the lowest number that a rank reached, by kind: each rank reports in order, so that no lower ones follow.

    Of a communicator whose other ranks have not reported yet, none is passed.
    """
    if len(communicator.members) < (communicator.expected or 2):
        return dict.fromkeys(communicator.highest, -1)
    reached = communicator.reached
    return {kind: min(reached.get((kind, rank), -1) for rank in active) for kind in communicator.highest}


def _advanced(before: Progress | None, begun: int, ended: int, now: float) -> Progress:
    """Return the progress of a rank, and since when it is the same: numbers only grow, whatever reports are lost."""
    same = before is not None and before[:2] == (begun, ended)
    return Progress(begun, ended, now, before.since if before is not None and same else now)


def _add_evidence(
    tick: Tick, key: tuple[str, int], pending: Pending, members: int, *, compared: bool
) -> Arrivals | None:
    """Add one operation to the sums, and return which ranks started it late; None if too few reported."""
    times, waits = pending.times, pending.waits()
    least = min(times.values())
    bucket = size_bucket(pending.size)
    moved = tick.bus.get((key[0], bucket))
    if moved is None:
        moved = tick.bus[key[0], bucket] = Traffic()
    share = len(times) / max(members, len(times))
    moved.add(Traffic(pending.size, least, [(pending.size / least, share)] if least > 0 else []))
    if not compared:
        return None
    tick.compared += 1
    tick.arrivals += waits is not None
    waited, sums = tick.waited, tick.late
    for rank, taken in times.items():
        if taken > least:
            waited[rank] = waited.get(rank, 0.0) + taken - least
    ordered = sorted((times if waits is None else waits).items(), key=itemgetter(1))
    count = len(ordered)
    middle = ordered[count // 2][1]
    share = count / max(members, count)
    late = {}
    for rank, taken in ordered:
        lateness = middle - taken
        if lateness <= NOISE_MICROSECONDS:
            break
        late[rank] = lateness
        sums[rank] = sums.get(rank, 0.0) + lateness
    inner = ordered[max(count // 4, 1) : max(count // 2, 2)]  # of a late host all ranks are late
    others = sum(middle - taken for _, taken in inner) / len(inner)
    if len(late) > MAX_LATE:
        late = dict(islice(late.items(), max(MAX_LATE, count // 8)))
    return Arrivals(key[1], pending.size, share, late, others)


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
        whole.arrivals += tick.arrivals
        _add(whole.late, tick.late)
        _add(whole.waited, tick.waited)
        for key, moved in tick.bus.items():
            whole.bus.setdefault(key, Traffic()).add(moved)
    return whole


def _add(into: dict[str, float], more: Mapping[str, float]) -> None:
    for key, value in more.items():
        into[key] = into.get(key, 0.0) + value
