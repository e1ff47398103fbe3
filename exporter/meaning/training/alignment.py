"""Alignment of collective timings: which timings of which ranks belong to one operation, and what they show.

An operation is identified by job, communicator, kind and sequence number. It is settled when all known ranks of its
communicator have reported their time, or after some seconds with those that did, if they are enough to compare. No
clocks are compared, and times that were not measured on the GPU are left out. All storage is bounded, and shared by job
and host, so that none takes the room of another.

All ranks of a synchronising operation end together, so the last rank to start has the shortest time. The transfer took
about that time, and every other rank waited for the difference of its own time to it.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import itemgetter

from exporter.core.collectives import COMMON, POINT_TO_POINT, SYNCHRONISING
from exporter.core.shares import Admission, Shares
from exporter.meaning.training.records import (
    SETTLED_WINDOW,
    Arrivals,
    Communicator,
    Exchange,
    Job,
    Pending,
    Progress,
    SettledNumbers,
    Stream,
    Tick,
    TimingValues,
    Waits,
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

    def add(
        self, stream: Stream, timings: Sequence[TimingValues], now: float, progress: tuple[int, int] | None = None
    ) -> None:
        """Add what a rank reports of one kind of operations in one communicator.

        Args:
            stream: The rank, the communicator and the kind.
            timings: Operations that ended since the last report.
            now: Current time.
            progress: Numbers of operations begun, and ended, so far; None if they are not reported.
        """
        if stream.kind in POINT_TO_POINT:
            self._add_exchange(stream, timings, progress, now)
        elif stream.kind in COMMON and stream.ranks > 1:
            timings = timings if stream.kind in SYNCHRONISING else ()
            job = self._job(stream, now) if timings or progress is not None else None
            if job is None:
                return
            communicator = self._communicator(job, stream, now)
            if communicator is None:
                job.dropped += bool(timings)
                return
            if timings:
                self._add_timings(job, communicator, stream, timings, now)
            if progress is not None:
                of_kind = stream.kind, stream.rank
                communicator.progress[of_kind] = _advanced(communicator.progress.get(of_kind), *progress, now)

    def _add_timings(
        self, job: Job, communicator: Communicator, stream: Stream, timings: Sequence[TimingValues], now: float
    ) -> None:
        kind, rank = stream.kind, stream.rank
        pending = communicator.pending.setdefault(kind, {})
        reached, highest = -1, communicator.highest.get(kind, -1)
        is_alone = len(communicator.members) == 1
        for one in timings:
            value, size, microseconds, timed, queued = one if len(one) == 5 else (*one, None, None)[:5]
            if timed == 0 or microseconds <= 0:
                continue
            number = int(value)
            reached = max(reached, number)
            waiting = pending.get(number)
            if waiting is None:
                waiting = self._begin_wait(job, communicator, stream, number, Pending(now, size, stream.host))
            if waiting is not None and rank not in waiting.times:
                if number > highest and (waiting.times or is_alone):
                    highest = number
                waiting.times[rank] = microseconds
                if queued is not None:
                    waiting.waits[rank] = microseconds + queued
        if reached >= 0:
            communicator.reached[kind, rank] = reached
        if highest >= 0:
            communicator.highest[kind] = highest

    def _begin_wait(
        self, job: Job, communicator: Communicator, stream: Stream, number: int, waiting: Pending
    ) -> Pending | None:
        """Return an operation that begins to wait; None if it was settled before, or if its host has no room for it."""
        settled = communicator.settled.get(stream.kind)
        if settled is not None and number in settled:
            job.late += 1
            return None
        if not (
            job.waiting.has_room(stream.host, MAX_PENDING_JOB) and self._waiting.has_room(stream.host, MAX_PENDING)
        ):
            job.dropped += 1
            return None
        job.waiting.add(stream.host)
        self._waiting.add(stream.host)
        communicator.pending[stream.kind][number] = waiting
        return waiting

    def _add_exchange(
        self, stream: Stream, timings: Sequence[TimingValues], progress: tuple[int, int] | None, now: float
    ) -> None:
        """Add operations between two ranks, of a rank that is known by those of communicators."""
        job = self.jobs.get(stream.job)
        if job is None or job.hosts.get(stream.rank) != stream.host:
            return
        exchange = job.exchanges.setdefault(stream.rank, Exchange())
        if timings:
            exchange.add(sum(microseconds for _, _, microseconds, *_ in timings), now)
        if progress is not None and stream.ranks > 1:
            known, key = exchange.progress, (stream.communicator, stream.kind)
            if key in known or len(known) < MAX_EXCHANGES:
                known[key] = _advanced(known.get(key), *progress, now)

    def settle(self, now: float) -> None:
        """Settle operations that are complete or have waited long enough, and drop what is too old."""
        for name in [name for name, job in self.jobs.items() if now - job.last_seen > FORGET_SECONDS]:
            self._forget(name)
            self._admission.forget(name)
        for job in self.jobs.values():
            for name in [name for name, one in job.communicators.items() if now - one.last_seen > FORGET_SECONDS]:
                self._close(job, name)
            for name in [name for name, one in job.communicators.items() if one.began_again(now - SILENT_SECONDS)]:
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
        for of_kind in closed.pending.values():
            for pending in of_kind.values():
                self._end_waits(job, pending.host, 1)
        for host, members in closed.places.items():
            self._members.remove(host, members)

    def _end_waits(self, job: Job, host: str, operations: int) -> None:
        job.waiting.remove(host, operations)
        self._waiting.remove(host, operations)

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
            communicator.drop_tick()
        if not any(communicator.pending.values()):
            return
        active = [rank for rank, at in communicator.members.items() if now - at <= SILENT_SECONDS]
        members = len(active)
        passed = _passed(communicator, active)
        tick = Tick(now)
        for kind, waiting in communicator.pending.items():
            due = {
                number: pending
                for number, pending in waiting.items()
                if (members > 1 and (len(pending.times) >= members or number < passed[kind]))
                or now - pending.since >= PATIENCE_SECONDS  # else others may still arrive
            }
            if due:
                for number in due:
                    del waiting[number]
                self._settle_kind(job, communicator, tick, kind, due, members)
        if tick.bus:
            communicator.add_tick(tick)

    def _settle_kind(
        self, job: Job, communicator: Communicator, tick: Tick, kind: str, due: Mapping[int, Pending], members: int
    ) -> None:
        """Settle operations of one kind."""
        settled = communicator.settled.setdefault(kind, SettledNumbers())
        arrivals = communicator.arrivals.setdefault(kind, deque(maxlen=MAX_UNFOLDED))
        for host, waited in Counter([pending.host for pending in due.values()]).items():
            self._end_waits(job, host, waited)
        for number, pending in due.items():
            reported = len(pending.times)
            if reported > 1 or number <= communicator.highest.get(kind, -1) + SETTLED_WINDOW:
                settled.add(number)  # else one rank alone is far ahead: its number must not hide those of all others
            least, of_all = min(pending.times.values()), reported >= communicator.ranks
            moved = tick.traffic(kind, size_bucket(pending.size))
            moved.add(pending.size, least, reported / max(members, reported), whole=of_all)
            if reported >= members:
                job.durations.add(kind, pending.size, least)
            if reported < 2 or reported < MIN_COMPARED_SHARE * members:
                job.unmatched += 1
                continue
            if reported < members:
                job.partial += 1
            else:
                job.matched += 1
            tick.compared += 1
            compared = communicator.comparable(pending)
            tick.arrivals += compared is not pending.times
            arrivals.append(_compared(job.waits, number, pending, compared, members, tick.time))


def _passed(communicator: Communicator, active: Sequence[str]) -> dict[str, int]:
    """Return the lowest number that a rank reached, by kind: each rank reports in order, so that no lower ones follow.

    Of a communicator whose other ranks have not reported yet, none is passed.
    """
    if len(communicator.members) < (communicator.expected or 2):
        return dict.fromkeys(communicator.pending, -1)
    reached = communicator.reached
    return {kind: min(reached.get((kind, rank), -1) for rank in active) for kind in communicator.pending}


def _advanced(before: Progress | None, begun: int, ended: int, now: float) -> Progress:
    """Return the progress of a rank, and since when it is the same: numbers only grow, whatever reports are lost."""
    if before is not None and before.begun == begun and before.ended == ended:
        return Progress(begun, ended, now, before.since)
    return Progress(begun, ended, now, now)


def _compared(
    sums: Waits, number: int, pending: Pending, compared: Mapping[str, float], members: int, now: float
) -> Arrivals:
    """Compare the ranks in an operation: add to the sums of ranks, and return which of them started it late."""
    times = pending.times
    least = min(times.values())
    waited = sums.waited
    for rank, taken in times.items():
        if taken > least:
            waited[rank] = waited.get(rank, 0.0) + taken - least
    ordered = sorted(compared.values())
    count = len(ordered)
    middle = ordered[count // 2]
    late = {}
    if middle - ordered[0] > NOISE_MICROSECONDS:
        found = [(rank, after) for rank, taken in compared.items() if (after := middle - taken) > NOISE_MICROSECONDS]
        found.sort(key=itemgetter(1), reverse=True)
        for rank, lateness in found:
            sums.late[rank] = sums.late.get(rank, 0.0) + lateness
        late = dict(found if len(found) <= MAX_LATE else islice(found, max(MAX_LATE, count // 8)))
    inner = ordered[max(count // 4, 1) : max(count // 2, 2)]  # of a late host all ranks are late
    others = sum([middle - taken for taken in inner]) / len(inner)
    return Arrivals(number, pending.size, count / max(members, count), late, others, now)


def nodes_of(job: Job, communicator: Communicator) -> int:
    """Return the number of nodes of a communicator: as reported, else from the hosts of all its ranks; 0 if unknown."""
    if communicator.nodes or len(communicator.members) < communicator.ranks:
        return communicator.nodes
    hosts = {job.hosts.get(rank, "") for rank in communicator.members}
    return 0 if "" in hosts else len(hosts)


def size_bucket(size: float) -> int:
    """Return the power of two at or below a size in bytes; operations of one bucket are compared with each other."""
    return 1 << (max(int(size), 1).bit_length() - 1)
