"""Batches of collective timings: what a host publishes about the collectives of one job, once per tick.

`batch_codec` and `batch_columns` encode them; this module has the types and the limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

VERSION = 1

MAX_BATCH = 256 * 1024
"""Bytes of an encoded batch; larger ones are split."""

MAX_OPERATIONS = 65_536
"""Operations of a batch: columns can expand to far more than their bytes."""

MAX_STREAMS = 8192
"""Streams of a batch, and rows of each of its tables."""

MAX_PROGRESS = 1024
"""Progress rows of a batch."""


class Stream(NamedTuple):
    """Collectives of one kind in one communicator, as seen by one rank.

    Attributes:
        job: Job name.
        communicator: Hash of the communicator, as text.
        kind: AllReduce, AllGather ….
        rank: Rank in the communicator.
        ranks: Number of ranks of the communicator.
        nodes: Number of nodes; None if unknown.
        world_rank: Rank in the job; None if unknown.
        host: Host name.
        pid: Process ID.
        gpu: UUID or PCI address of the GPU; empty if unknown.
        ports: Ports of the RDMA devices nearest to the GPU, separated by commas: NCCL's name of the port, followed by
            its other names, separated by `=`.
    """

    job: str
    communicator: str
    kind: str
    rank: int
    ranks: int
    nodes: int | None
    world_rank: int | None
    host: str
    pid: int
    gpu: str = ""
    ports: str = ""


class Operation(NamedTuple):
    """One collective as one rank saw it.

    Attributes:
        sequence: Sequence number in the stream.
        size: Bytes as nccl-tests counts them.
        microseconds: Execution time on this rank, without `queued`.
        timed: Whether the time was measured on the GPU; None if unknown.
        queued: Microseconds for which it waited behind the previous collective of the communicator, after this rank
            reached it; None if unknown.
    """

    sequence: int
    size: int
    microseconds: float
    timed: bool | None
    queued: float | None = None


class Progress(NamedTuple):
    """Collectives of a stream that the rank began, and how many of them completed."""

    stream: Stream
    begun: int
    ended: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one host publishes about one job at one time.

    Attributes:
        job: Job name.
        host: Host name.
        streams: Streams of this job and host, each with its operations in order of sequence numbers, and unique.
        sent: Time of sending in seconds since 1970.
        dropped: Operations that the sender dropped since its start, before they were put into a batch.
        progress: Progress of streams; streams that are absent did not change.
        epoch: Random identifier of the numbering; a change means that the sender restarted.
        tick: Number of the batch within its epoch, from 0; a gap is a loss in transit.
        version: Format version.
    """

    job: str
    host: str
    streams: Sequence[tuple[Stream, Sequence[Operation]]]
    sent: float = 0.0
    dropped: int = 0
    progress: Sequence[Progress] = ()
    epoch: str = "0" * 16
    tick: int = 0
    version: int = VERSION

    def operations(self) -> int:
        """Return the number of operations in all streams."""
        return sum(len(operations) for _, operations in self.streams)
