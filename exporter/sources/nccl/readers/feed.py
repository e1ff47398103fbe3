"""A feed: one source of collective timings of the training jobs' processes.

At each poll, a feed returns a report per process: its identity as far as known, its totals, and its single collectives
where these can be compared across ranks. Each feed counts its own lines, files or datagrams.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from exporter.core.collectives import JUDGED, algorithm_bytes
from exporter.core.source import Failure
from exporter.core.table import Schema, Table
from exporter.nccl.decoding import MAX_BYTES

UnusedReason = Literal["over_limit", "duplicate", "excluded"]
"""Why a report is not used: too many processes, a preferred feed reports the same process, or the job is excluded."""


class Membership(NamedTuple):
    """Membership in a communicator: rank, number of ranks, and number of nodes; 0 nodes if unknown."""

    rank: int
    ranks: int
    nodes: int = 0


class CollectiveRecord(NamedTuple):
    """One synchronising collective on one rank.

    Attributes:
        sequence: Sequence number, equal on all ranks.
        size: Bytes as nccl-tests counts them.
        microseconds: Execution time on this rank.
        timed: Whether the time is that of the kernel alone; None if unknown.
        queued: Microseconds for which it waited before that, behind the previous one of the communicator; None if
            unknown.
    """

    sequence: int
    size: int
    microseconds: int
    timed: bool | None
    queued: int | None = None


class CollectiveProgress(NamedTuple):
    """Collectives of one kind in one communicator that a process began, and how many of them completed."""

    membership: Membership
    begun: int
    ended: int


class CollectiveStream(NamedTuple):
    """Collectives of one kind in one communicator, with the process's membership."""

    membership: Membership
    records: list[CollectiveRecord]


@dataclass(slots=True)
class CollectiveTotals:
    """Totals over the collectives of one kind."""

    count: int = 0
    microseconds: int = 0
    size: int = 0

    def add(self, other: "CollectiveTotals") -> None:
        """Add other totals."""
        self.count += other.count
        self.microseconds += other.microseconds
        self.size += other.size


@dataclass(slots=True)
class ProcessFacts:
    """Identity of a process; what is unknown is empty, 0 or None.

    Attributes:
        job: Job name, or `unknown`.
        folder: Job name from the folder of its files.
        pid: Process ID in its innermost PID namespace.
        host: Host name as the process sees it.
        host_pid: Process ID on this host.
        uid: User ID on this host; None if unknown.
        world_rank: Rank in the job.
        gpu: PCI address of its GPU, or the GPU's UUID.
        nic: RDMA devices nearest to the GPU, separated by commas.
        ports: Ports of these with all their names, see `gpu_affinity.port_names`, separated by commas.
        pod: Name of its pod, or the pod's UID.
    """

    job: str
    folder: str = ""
    pid: int = 0
    host: str = ""
    host_pid: int = 0
    uid: int | None = None
    world_rank: int | None = None
    gpu: str = ""
    nic: str = ""
    ports: str = ""
    pod: str = ""

    def fill_in(self, other: "ProcessFacts") -> None:
        """Fill in what is unknown from another feed's facts of the same process."""
        self.pid = self.pid or other.pid
        self.host_pid = self.host_pid or other.host_pid
        if not self.gpu:
            self.gpu, self.nic, self.ports = other.gpu, other.nic, other.ports
        self.pod = self.pod or other.pod
        if self.world_rank is None:
            self.world_rank = other.world_rank


@dataclass(slots=True)
class ProcessReport:
    """What a feed read about one process since the last poll.

    Attributes:
        key: Identifies the process within its feed.
        facts: Identity of the process.
        largest: Membership in the largest communicator reported, the first of several of that size.
        totals: Totals by kind.
        streams: Single collectives that can be compared across ranks, by communicator and kind.
        progress: Progress of kinds that all ranks take part in, by communicator and kind.
        restarted: Whether its file or stream was restarted, so that it may be another process.
        lost: Records that it reports as lost, by type of record.
        steps: Training steps that it marked: `steps`, and where reported `tokens` and `flops`.
    """

    key: str
    facts: ProcessFacts
    largest: Membership | None = None
    totals: dict[str, CollectiveTotals] = field(default_factory=dict)
    streams: dict[tuple[str, str], CollectiveStream] = field(default_factory=dict)
    progress: dict[tuple[str, str], CollectiveProgress] = field(default_factory=dict)
    restarted: bool = False
    lost: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)

    def add_membership(self, membership: Membership) -> None:
        """Record a communicator of the process."""
        if self.largest is None or membership.ranks > self.largest.ranks:
            self.largest = membership

    def add_collective(
        self,
        communicator: str,
        membership: Membership,
        kind: str,
        sequence: int,
        message_bytes: int,
        microseconds: int,
        timed: bool | None,
        queued: int | None = None,
    ) -> None:
        """Add one collective.

        Args:
            communicator: Identifier, equal on all ranks.
            membership: Membership of the process.
            kind: One of `collectives.KINDS`, or `other`.
            sequence: Sequence number, equal on all ranks.
            message_bytes: Bytes as NCCL counts them; those of all ranks together may be implausibly many: then the
                collective is in the totals only.
            microseconds: Execution time on this rank.
            timed: Whether that is the time of the kernel alone; None if unknown.
            queued: Microseconds for which it waited behind the previous one of the communicator; None if unknown.
        """
        size = algorithm_bytes(kind, message_bytes, membership.ranks)
        totals = self.totals.get(kind)
        if totals is None:
            totals = self.totals[kind] = CollectiveTotals()
        totals.count += 1
        totals.microseconds += microseconds
        totals.size += size
        if kind in JUDGED and size <= MAX_BYTES:
            stream = self.streams.get((communicator, kind))
            if stream is None:
                stream = self.streams[communicator, kind] = CollectiveStream(membership, [])
            stream.records.append(CollectiveRecord(sequence, size, microseconds, timed, queued))

    @property
    def count(self) -> int:
        """Number of collectives in the totals."""
        return sum(totals.count for totals in self.totals.values())


@dataclass(slots=True)
class FeedReport:
    """Result of polling a feed: reports of processes, keys of processes that are gone, and failures."""

    processes: list[ProcessReport] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    failures: Sequence[Failure] = ()


class Feed(Protocol):
    """One source of timings. The failure of one feed does not affect the others."""

    @property
    def name(self) -> str:
        """Return the name of the feed."""

    @property
    def schemas(self) -> Sequence[Schema]:
        """Return the schemas of its tables."""

    async def applies(self) -> bool:
        """Return whether its folders exist. Cheap.

        Raises:
            SourceError: They cannot be accessed.
        """

    async def poll(self) -> FeedReport:
        """Return the reports since the last poll.

        Raises:
            SourceError: Nothing could be read.
        """

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Count the collectives of a report as unused."""

    def tables(self, now: float) -> list[Table]:
        """Return the feed's own counters."""

    async def close(self) -> None:
        """Release threads and sockets."""
