"""What was heard already, in bounded memory: batches by number, and operations by stream and sequence number.

Of each numbering the highest number is kept, and which of those just below it came; so a message that is delivered
twice, and a file that a sender reads twice, count once. A number that was passed over is a loss, until it comes after
all. What lies below the window is taken for seen: it would be useless by then.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from exporter.nccl.batch import Batch, Operation, Stream

TICKS = 64
"""Numbers below the highest of which it is known whether they came: of batches."""

SEQUENCES = 1024
"""The same of operations."""

MAX_GAP = 1 << 20
"""Numbers that may be lost at once; who leaps further numbers as he likes, and is followed without counting."""

MAX_EPOCHS = 64
"""Numberings that are kept of one job on one host: where its processes publish themselves, each has its own."""

MAX_STREAMS = 4096
"""Streams that are kept of one job on one host; the one that was silent longest makes room."""

MAX_HOSTS = 16_384
"""Hosts of one job."""

MAX_JOBS = 512

MAX_ALL_STREAMS = 500_000
"""Streams of all; beyond that a job on a host keeps no more of them than it has."""

MAX_ALL_HOSTS = 65_536
"""Hosts of all jobs, each counted once for each job."""

IDLE = 900.0
"""Seconds without a batch after which a host of a job, and a job, may be forgotten."""


class Window:
    """Which numbers came, of those up to the highest.

    Attributes:
        highest: The highest number that came; -1 for none.
        lost: Numbers that were passed over since the first one, and did not come after all.
    """

    __slots__ = ("_came", "_mask", "_size", "highest", "lost")

    def __init__(self, size: int) -> None:
        self._size = size
        self._mask = (1 << size) - 1
        self._came = 0  # bit n: the number `highest - n` came
        self.highest = -1
        self.lost = 0

    def follow(self, last: int) -> None:
        """Note all numbers from the one after the highest up to `last`."""
        count = min(last - self.highest, self._size)
        self._came = ((self._came << count) | ((1 << count) - 1)) & self._mask
        self.highest = last

    def add(self, number: int) -> bool:
        """Note a number; tell whether it is new."""
        ahead = number - self.highest
        if self.highest < 0:
            self._came = self._mask  # what was before the first one is not waited for
            self.highest = number
            return True
        if ahead > MAX_GAP:
            self._came, self.highest = self._mask, number
            return True
        if ahead > 0:
            self._came = ((self._came << min(ahead, self._size)) | 1) & self._mask
            self.highest = number
            self.lost += ahead - 1
            return True
        bit = 1 << -ahead if -ahead < self._size else 0
        if bit == 0 or self._came & bit:
            return False
        self._came |= bit
        self.lost -= 1
        return True


@dataclass(slots=True)
class Mark:
    """What came of one stream.

    Attributes:
        pid: The process that it came from; another one numbers anew.
        window: Sequence numbers that came.
    """

    pid: int
    window: Window

    def fresh(self, stream: Stream, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Give the operations that did not come before.

        Args:
            stream: Their stream.
            operations: In order of their numbers, as batches have them.
        """
        if stream.pid != self.pid:
            self.pid, self.window = stream.pid, Window(SEQUENCES)
        first, last = operations[0].sequence, operations[-1].sequence
        if first == self.window.highest + 1 and last - first == len(operations) - 1:  # as a rule: the next ones
            self.window.follow(last)
            return operations
        return [one for one in operations if self.window.add(one.sequence)]


@dataclass(slots=True)
class _Host:
    epochs: OrderedDict[str, Window] = field(default_factory=OrderedDict)
    streams: OrderedDict[tuple[str, int, str], Mark] = field(default_factory=OrderedDict)
    heard: float = field(default_factory=monotonic)


@dataclass(slots=True)
class Losses:
    """What did not arrive, or arrived and was not taken; all count up.

    Attributes:
        batches: Batches that never came, by gaps in their numbers.
        duplicate_batches: Batches that came again.
        duplicate_operations: Operations that came again.
        forgotten_streams: Streams that made room for others; what comes again of them is not known.
        jobs: Batches of one job too many.
        hosts: Batches of one host too many of a job, or of all.
    """

    batches: int = 0
    duplicate_batches: int = 0
    duplicate_operations: int = 0
    forgotten_streams: int = 0
    jobs: int = 0
    hosts: int = 0


class Seen:
    """Lets through what did not come before, of jobs and hosts within bounds.

    Args:
        max_jobs: Jobs at the same time.
        max_hosts: Hosts of one job.
        max_streams: Streams of one job on one host.
        max_all_hosts: Hosts of all jobs.
        max_all_streams: Streams of all.
    """

    def __init__(
        self,
        max_jobs: int = MAX_JOBS,
        max_hosts: int = MAX_HOSTS,
        max_streams: int = MAX_STREAMS,
        max_all_hosts: int = MAX_ALL_HOSTS,
        max_all_streams: int = MAX_ALL_STREAMS,
    ) -> None:
        self.losses = Losses()
        self._jobs: dict[str, dict[str, _Host]] = {}
        self._max_jobs, self._max_hosts, self._max_streams = max_jobs, max_hosts, max_streams
        self._max_all_hosts, self._max_all_streams = max_all_hosts, max_all_streams
        self._all_hosts = 0
        self._all_streams = 0

    def sizes(self) -> tuple[int, int, int]:
        """Count the jobs, hosts of jobs and streams that are kept."""
        return len(self._jobs), self._all_hosts, self._all_streams

    def fresh(self, batch: Batch) -> Batch | None:
        """Give of a batch what did not come before; None where the whole came, or there is no room for its sender."""
        host = self._host(batch.job, batch.host)
        if host is None:
            return None
        if not self._is_new(host, batch):
            self.losses.duplicate_batches += 1
            return None
        streams = []
        for stream, operations in batch.streams:
            kept = self._mark(host, stream).fresh(stream, operations)
            self.losses.duplicate_operations += len(operations) - len(kept)
            if kept:
                streams.append((stream, kept))
        return replace(batch, streams=streams)

    def _is_new(self, host: _Host, batch: Batch) -> bool:
        window = host.epochs.get(batch.epoch)
        if window is None:
            if len(host.epochs) >= MAX_EPOCHS:
                host.epochs.popitem(last=False)
            window = host.epochs[batch.epoch] = Window(TICKS)
        host.epochs.move_to_end(batch.epoch)
        before = window.lost
        new = window.add(batch.tick)
        self.losses.batches += window.lost - before
        return new

    def _mark(self, host: _Host, stream: Stream) -> Mark:
        key = (stream.communicator, stream.rank, stream.kind)
        mark = host.streams.get(key)
        if mark is None:
            full = self._all_streams >= self._max_all_streams or len(host.streams) >= self._max_streams
            if full and host.streams:
                host.streams.popitem(last=False)
                self.losses.forgotten_streams += 1
                self._all_streams -= 1
            self._all_streams += 1
            mark = host.streams[key] = Mark(stream.pid, Window(SEQUENCES))
        host.streams.move_to_end(key)
        return mark

    # --- who is known

    def _host(self, job: str, name: str) -> _Host | None:
        hosts = self._jobs.get(job)
        if hosts is None:
            if len(self._jobs) >= self._max_jobs:
                self.forget_idle()
            if len(self._jobs) >= self._max_jobs:
                self.losses.jobs += 1
                return None
            hosts = self._jobs[job] = {}
        host = hosts.get(name)
        if host is None:
            if len(hosts) >= self._max_hosts or self._all_hosts >= self._max_all_hosts:
                self.losses.hosts += 1
                return None
            host = hosts[name] = _Host()
            self._all_hosts += 1
        host.heard = monotonic()
        return host

    def forget_idle(self) -> None:
        """Forget the hosts that were silent for IDLE seconds, and jobs without hosts; to be called now and then."""
        old = monotonic() - IDLE
        for job, hosts in list(self._jobs.items()):
            for name in [name for name, host in hosts.items() if host.heard < old]:
                self._all_streams -= len(hosts.pop(name).streams)
                self._all_hosts -= 1
            if not hosts:
                del self._jobs[job]
