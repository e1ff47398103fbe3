"""A feed: one way in which processes of training jobs tell the timings of their collectives.

Whatever the way, at one poll a feed gives what each process said: who it is as far as is told, its sums, and its single
operations where others can be told by them. What became of lines, files or datagrams the feed counts itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from exporter.core.collectives import SYNCHRONISING, algorithm_bytes
from exporter.core.source import Failure
from exporter.core.table import Schema, Table

Unused = Literal["over_limit", "duplicate", "excluded"]
"""Why what was said is not used: there are too many processes, a better feed tells the same, or the job is excluded."""


class Membership(NamedTuple):
    """A process in a communicator: its rank, and the communicator's ranks and nodes; 0 nodes where not known."""

    rank: int
    ranks: int
    nodes: int = 0


class Record(NamedTuple):
    """One synchronising collective on one rank.

    Attributes:
        sequence: Its number, the same on all its ranks.
        size: Bytes as nccl-tests counts them.
        microseconds: Time it took on this rank.
        timed: Whether the time is that of the collective alone; None where not told.
    """

    sequence: int
    size: int
    microseconds: int
    timed: bool | None


class Progress(NamedTuple):
    """How far a process is with a kind in a communicator: where it is there, what it began, and what of that ended."""

    place: Membership
    begun: int
    ended: int


class Stream(NamedTuple):
    """Where a process is in a communicator, and the collectives of one kind that it took part in there."""

    place: Membership
    records: list[Record]


@dataclass(slots=True)
class Totals:
    """Sums over the collectives of one kind."""

    count: int = 0
    microseconds: int = 0
    size: int = 0

    def add(self, other: "Totals") -> None:
        """Add other sums."""
        self.count += other.count
        self.microseconds += other.microseconds
        self.size += other.size


@dataclass(slots=True)
class Facts:
    """What is known of a process; what is not is empty, 0 or None.

    Attributes:
        job: Its job; `unknown` where nobody says.
        folder: Name of the job by the folder that its files lie in.
        pid: Its number as it sees it itself, inside its container.
        host: Its host as it calls it.
        host_pid: Its number on this host.
        uid: Its user on this host; None where not known.
        world_rank: Its rank in the job.
        gpu: PCI address of its GPU, or the GPU's UUID.
        nic: RDMA devices that are nearest to its GPU, with commas between.
        ports: Their ports with all their names, see `nearness.names_of`, with commas between.
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

    def fill_in(self, other: "Facts") -> None:
        """Take what is not known from another feed's facts of the same process."""
        self.pid = self.pid or other.pid
        self.host_pid = self.host_pid or other.host_pid
        if not self.gpu:
            self.gpu, self.nic, self.ports = other.gpu, other.nic, other.ports
        self.pod = self.pod or other.pod
        if self.world_rank is None:
            self.world_rank = other.world_rank


@dataclass(slots=True)
class Said:
    """What one process said since the last poll.

    Attributes:
        speaker: Tells it from all others of its feed.
        facts: Who it is.
        largest: Where it is in the largest communicator that was told, the first of several that large.
        totals: Its sums by kind.
        streams: Its single operations that can be compared with those of others, by communicator and kind.
        progress: How far it is with kinds that all ranks of a communicator take part in, by communicator and kind.
        restarted: Whether what tells of it was begun anew, so that it may be another process.
        lost: Records that it says it lost itself, by what they were.
        steps: Steps of the training that it marked: `steps`, and where it tells them their `tokens` and `flops`.
    """

    speaker: str
    facts: Facts
    largest: Membership | None = None
    totals: dict[str, Totals] = field(default_factory=dict)
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    restarted: bool = False
    lost: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)

    def meets(self, place: Membership) -> None:
        """Take note of a communicator that it is in."""
        if self.largest is None or place.ranks > self.largest.ranks:
            self.largest = place

    def did(
        self,
        communicator: str,
        place: Membership,
        kind: str,
        sequence: int,
        message_bytes: int,
        microseconds: int,
        timed: bool | None,
    ) -> None:
        """Add one collective.

        Args:
            communicator: Its name on all its ranks.
            place: Where the process is in it.
            kind: As `kinds.KINDS`.
            sequence: Its number, the same on all its ranks.
            message_bytes: Bytes as NCCL counts them.
            microseconds: Time it took on this rank.
            timed: Whether that is the time of the collective alone; None where not told.
        """
        size = algorithm_bytes(kind, message_bytes, place.ranks)
        totals = self.totals.get(kind)
        if totals is None:
            totals = self.totals[kind] = Totals()
        totals.count += 1
        totals.microseconds += microseconds
        totals.size += size
        if kind in SYNCHRONISING:
            stream = self.streams.get((communicator, kind))
            if stream is None:
                stream = self.streams[communicator, kind] = Stream(place, [])
            stream.records.append(Record(sequence, size, microseconds, timed))

    @property
    def count(self) -> int:
        """Collectives that it told."""
        return sum(totals.count for totals in self.totals.values())


@dataclass(slots=True)
class Heard:
    """What a feed heard at one poll: what processes said, who is gone for good, and what failed beside."""

    said: list[Said] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    failures: Sequence[Failure] = ()


class Feed(Protocol):
    """One way in which timings are told. It fails alone."""

    @property
    def name(self) -> str:
        """Give a word for it."""

    @property
    def schemas(self) -> Sequence[Schema]:
        """Give all that its tables can hold."""

    async def applies(self) -> bool:
        """Tell whether there is anything to hear: its folders are there. Cheap.

        Raises:
            SourceError: That cannot be told.
        """

    async def hear(self) -> Heard:
        """Give what was said since the last time.

        Raises:
            SourceError: Nothing could be read.
        """

    def unused(self, said: Said, why: Unused) -> None:
        """Take note that what was said is not used, so that it is counted as that."""

    def tables(self, now: float) -> list[Table]:
        """Give what the feed counts of itself."""

    async def close(self) -> None:
        """Let go of threads and sockets."""
