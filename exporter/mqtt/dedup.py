"""Deduplication of received batches and operations, in bounded memory, by their sequence numbers.

Names of jobs, hosts and streams are the publishers': each bound is shared, so that invented names take no room from
jobs that run, see `exporter.core.shares`.

Of each sequence the highest number is kept, and which of the numbers just below it were received. So a message that is
delivered twice, and operations that a sender reads twice from a file, count once. A skipped number counts as lost until
it is received. Numbers below the window count as duplicates.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from exporter.core.shares import Admission, Shares
from exporter.nccl.batch import Batch, Operation, Stream

BATCH_WINDOW = 64
"""Size of the window of batch numbers."""

OPERATION_WINDOW = 1024
"""Size of the window of operation numbers."""

MAX_GAP = 1 << 20
"""Numbers that can be lost at once; the numbers skipped by a larger jump are not counted."""

MAX_EPOCHS = 64
"""Sequences of batches of one job on one host: processes that publish themselves have one each."""

MAX_STREAMS = 4096
"""Streams of one host; beyond that the least recently received one of the job is forgotten."""

MAX_HOSTS = 16_384
"""Hosts of one job; beyond that one that was idle gives way."""

MAX_JOBS = 512

MAX_HOST_JOBS = 32
"""Jobs that one host alone publishes: as many as its daemon reads."""

MAX_ALL_STREAMS = 500_000
"""Streams of all jobs; beyond that a new stream replaces another one of its job and host."""

MAX_ALL_HOSTS = 65_536
"""Hosts of all jobs, counted once per job; a job has its share of them."""

IDLE_SECONDS = 900.0
"""Seconds without a batch after which a host of a job, and a job without hosts, may be forgotten."""

HOST_IDLE_SECONDS = 60.0
"""The same where another host of the job needs the room."""

EXPIRE_SECONDS = 10.0
"""Seconds between two searches for what may be forgotten where there is no room: a search takes milliseconds."""


class SequenceWindow:
    """The highest number of a sequence, and which of the numbers just below it were received.

    Attributes:
        highest: The highest number; -1 before the first one.
        lost: Numbers above the first one that were skipped and not received later.
    """

    __slots__ = ("_mask", "_received", "_size", "highest", "lost")

    def __init__(self, size: int) -> None:
        self._size = size
        self._mask = (1 << size) - 1
        self._received = 0  # bit n: the number `highest - n` was received
        self.highest = -1
        self.lost = 0

    def add_next(self, last: int) -> None:
        """Add all numbers from the one after the highest up to `last`."""
        count = min(last - self.highest, self._size)
        self._received = ((self._received << count) | ((1 << count) - 1)) & self._mask
        self.highest = last

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        ahead = number - self.highest
        if self.highest < 0:
            self._received = self._mask  # earlier numbers are not expected
            self.highest = number
            return True
        if ahead > MAX_GAP:
            self._received, self.highest = self._mask, number
            return True
        if ahead > 0:
            self._received = ((self._received << min(ahead, self._size)) | 1) & self._mask
            self.highest = number
            self.lost += ahead - 1
            return True
        bit = 1 << -ahead if -ahead < self._size else 0
        if bit == 0 or self._received & bit:
            return False
        self._received |= bit
        self.lost -= 1
        return True


@dataclass(slots=True)
class StreamSequence:
    """The sequence of one stream.

    Attributes:
        pid: The sending process; another process starts a new sequence.
        window: Received sequence numbers.
    """

    pid: int
    window: SequenceWindow

    def filter_new(self, stream: Stream, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Return the operations that were not received before.

        Args:
            stream: Their stream.
            operations: In order of their numbers, as in batches.
        """
        if stream.pid != self.pid:
            self.pid, self.window = stream.pid, SequenceWindow(OPERATION_WINDOW)
        first, last = operations[0].sequence, operations[-1].sequence
        if first == self.window.highest + 1 and last - first == len(operations) - 1:  # the usual case
            self.window.add_next(last)
            return operations
        return [one for one in operations if self.window.add(one.sequence)]


@dataclass(slots=True)
class _Host:
    epochs: OrderedDict[str, SequenceWindow] = field(default_factory=OrderedDict)
    streams: OrderedDict[tuple[str, int, str], StreamSequence] = field(default_factory=OrderedDict)
    received_at: float = field(default_factory=monotonic)


@dataclass(slots=True)
class DeliveryLosses:
    """Counts of what was not received, or received and discarded.

    Attributes:
        batches: Batches that were lost, by gaps in their numbers; decreases when one arrives late.
        duplicate_batches: Batches received again.
        duplicate_operations: Operations received again.
        jobs: Batches discarded because of the limit of jobs.
        hosts: Batches discarded because of the limit of hosts.
        evicted: Jobs that were forgotten because others needed the room.
    """

    batches: int = 0
    duplicate_batches: int = 0
    duplicate_operations: int = 0
    jobs: int = 0
    hosts: int = 0
    evicted: int = 0


class Deduplicator:
    """Filters batches: returns what was not received before, within limits of jobs, hosts and streams.

    Args:
        max_jobs: Jobs at the same time.
        max_hosts: Hosts of one job.
        max_streams: Streams of one host.
        max_all_hosts: Hosts of all jobs.
        max_all_streams: Streams of all jobs.
    """

    def __init__(
        self,
        max_jobs: int = MAX_JOBS,
        max_hosts: int = MAX_HOSTS,
        max_streams: int = MAX_STREAMS,
        max_all_hosts: int = MAX_ALL_HOSTS,
        max_all_streams: int = MAX_ALL_STREAMS,
    ) -> None:
        self.losses = DeliveryLosses()
        self._jobs: dict[str, OrderedDict[str, _Host]] = {}
        self._max_jobs, self._max_hosts, self._max_streams = max_jobs, max_hosts, max_streams
        self._max_all_hosts, self._max_all_streams = max_all_hosts, max_all_streams
        self._admission: Admission[str, str] = Admission()
        self._hosts: Shares[str] = Shares()  # by job
        self._streams: Shares[str] = Shares()  # by host
        self._searched_at = float("-inf")

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of jobs, of hosts counted per job, and of streams."""
        return len(self._jobs), self._hosts.total, self._streams.total

    def filter_new(self, batch: Batch) -> Batch | None:
        """Return a batch without duplicate operations; None for a duplicate batch, or where a limit is exceeded."""
        return self.without_duplicates(batch) if self.admits(batch) else None

    def admits(self, batch: Batch) -> bool:
        """Return whether a batch is no duplicate and within the limits; called once for a batch."""
        host = self._host(batch.job, batch.host)
        if host is None:
            return False
        is_new = self._is_new(host, batch)
        self.losses.duplicate_batches += not is_new
        return is_new

    def without_duplicates(self, batch: Batch) -> Batch:
        """Return an admitted batch, or a part of it, without duplicate operations."""
        hosts = self._jobs.get(batch.job)
        host = None if hosts is None else hosts.get(batch.host)
        if host is None:  # forgotten between two parts
            return replace(batch, streams=())
        streams = []
        for stream, operations in batch.streams:
            new = self._sequence(host, stream).filter_new(stream, operations)
            self.losses.duplicate_operations += len(operations) - len(new)
            if new:
                streams.append((stream, new))
        return replace(batch, streams=streams)

    def _is_new(self, host: _Host, batch: Batch) -> bool:
        window = host.epochs.get(batch.epoch)
        if window is None:
            if len(host.epochs) >= MAX_EPOCHS:
                host.epochs.popitem(last=False)
            window = host.epochs[batch.epoch] = SequenceWindow(BATCH_WINDOW)
        host.epochs.move_to_end(batch.epoch)
        before = window.lost
        new = window.add(batch.tick)
        self.losses.batches += window.lost - before
        return new

    def _sequence(self, host: _Host, stream: Stream) -> StreamSequence:
        key = (stream.communicator, stream.rank, stream.kind)
        found = host.streams.get(key)
        if found is None:
            has_room = self._streams.total < self._max_all_streams
            if host.streams and not (has_room and self._streams.held(stream.host) < self._max_streams):
                host.streams.popitem(last=False)
                self._streams.remove(stream.host)
            self._streams.add(stream.host)
            found = host.streams[key] = StreamSequence(stream.pid, SequenceWindow(OPERATION_WINDOW))
        host.streams.move_to_end(key)
        return found

    def _host(self, job: str, name: str) -> _Host | None:
        """Return a host of a job, which is added where there is room; None where there is none."""
        if not self._admits_job(job, name):
            self.losses.jobs += 1
            return None
        hosts = self._jobs.setdefault(job, OrderedDict())
        host = hosts.get(name)
        if host is None:
            if not self._has_room(job, hosts):
                self.losses.hosts += 1
                return None
            host = hosts[name] = _Host()
            self._hosts.add(job)
        hosts.move_to_end(name)
        host.received_at = monotonic()
        return host

    def _admits_job(self, job: str, host: str) -> bool:
        if job not in self._jobs and len(self._jobs) >= self._max_jobs:
            self._search()
        admitted, evicted = self._admission.report(job, host, monotonic(), self._max_jobs, MAX_HOST_JOBS)
        if evicted is not None:
            self.losses.evicted += 1
            self._forget_job(evicted)
        return admitted

    def _has_room(self, job: str, hosts: OrderedDict[str, _Host]) -> bool:
        """Return whether a job may have one more host; the one that was idle for longest may give way."""
        if self._hosts.has_room(job, self._max_all_hosts, self._max_hosts):
            return True
        self._search()
        oldest = next(iter(hosts), None)
        if oldest is not None and hosts[oldest].received_at < monotonic() - HOST_IDLE_SECONDS:
            self._forget_host(job, oldest)
        return self._hosts.has_room(job, self._max_all_hosts, self._max_hosts)

    def _search(self) -> None:
        """Forget what is idle, unless that was done just before."""
        if monotonic() - self._searched_at >= EXPIRE_SECONDS:
            self._searched_at = monotonic()
            self.expire_idle()

    def expire_idle(self) -> None:
        """Forget hosts without a batch for IDLE_SECONDS, and jobs without hosts; called periodically."""
        oldest = monotonic() - IDLE_SECONDS
        for job, hosts in list(self._jobs.items()):
            for name in [name for name, host in hosts.items() if host.received_at < oldest]:
                self._forget_host(job, name)
            if not hosts:
                del self._jobs[job]
                self._admission.forget(job)

    def _forget_job(self, job: str) -> None:
        for name in list(self._jobs.get(job, ())):
            self._forget_host(job, name)
        self._jobs.pop(job, None)

    def _forget_host(self, job: str, name: str) -> None:
        self._streams.remove(name, len(self._jobs[job].pop(name).streams))
        self._hosts.remove(job)
