"""JSON lines of NCCL Inspector: one object per line, of which only the fields used are decoded.

Formats v4.0 to v4.2 have `header` and `metadata` in every line; from v4.1 on, a marker (`dump_stats`) precedes the
records of a communicator. v4.3 has header and metadata in the marker only, and the lines that follow inherit them.
Unknown keys are ignored, so that later versions and forks can be read. The version field is not tested: releases
differ in ways that it does not reflect.
"""

from typing import Annotated, TypeAlias

import msgspec

from exporter.nccl.decoding import (
    MAX_MICROSECONDS,
    MAX_RANKS,
    Count,
    Host,
    MessageBytes,
    PositiveMicroseconds,
    Rank,
    Ranks,
    SequenceNumber,
    ShortText,
    Word,
    decode,
)

MAX_LINE = 1 << 20
"""Bytes of a line: a verbose line lists every channel."""

KERNEL_TIMING = "kernel_gpu"
"""Timing source of times measured on the GPU; the others include host delays."""

Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]

ExecutionTime: TypeAlias = PositiveMicroseconds | Annotated[float, msgspec.Meta(gt=0, le=MAX_MICROSECONDS)]
"""Whole microseconds in all releases of NCCL; some forks write fractions, which are rounded."""


def _round_time(record: "InspectorCollective | PointToPoint") -> None:
    if isinstance(record.microseconds, float):
        msgspec.structs.force_setattr(record, "microseconds", max(1, round(record.microseconds)))


class Header(msgspec.Struct, frozen=True, gc=False):
    """The communicator of a record, and the rank in it.

    Attributes:
        id: Hash of the communicator, unchanged; `commId` in NCCL's log, `hash` in RAS.
        rank: Rank in the communicator, not the global rank.
        n_ranks: Number of ranks.
        nnodes: Number of nodes; 0 where absent.
    """

    id: Word
    rank: Rank
    n_ranks: Ranks
    nnodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)] = 0

    def __post_init__(self) -> None:
        """Validate rank against n_ranks."""
        if self.rank >= self.n_ranks:
            raise ValueError(f"rank {self.rank} of {self.n_ranks} ranks")


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """The process that wrote a line, and when.

    Attributes:
        hostname: Host name.
        pid: Process ID in the PID namespace of the process; 0 where absent.
    """

    hostname: Host = ""
    pid: Count = 0


class InspectorCollective(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "kind": "coll",
        "sequence": "coll_sn",
        "message_bytes": "coll_msg_size_bytes",
        "microseconds": "coll_exec_time_us",
        "timing_source": "coll_timing_source",
        "algorithm": "coll_algo",
        "protocol": "coll_proto",
    },
):
    """One collective as one rank saw it.

    Bandwidths of the file are not read: they are rounded, and 0 for kinds whose name Inspector does not know.

    Attributes:
        kind: AllReduce, AllGather …, unchanged; `collectives.known_kind` normalises it.
        sequence: Sequence number per kind and communicator.
        message_bytes: Bytes that one rank passes in (count times size of the data type).
        microseconds: Execution time on this rank.
        timing_source: kernel_gpu, kernel_cpu or collective_cpu; empty in the oldest versions.
        algorithm: Ring, Tree …; empty before v4.2.
        protocol: LL, LL128, Simple; empty before v4.2.
    """

    kind: Kind
    sequence: SequenceNumber
    message_bytes: MessageBytes
    microseconds: ExecutionTime
    timing_source: ShortText = ""
    algorithm: ShortText = ""
    protocol: ShortText = ""

    def __post_init__(self) -> None:
        """Round a fractional time."""
        _round_time(self)


class PointToPoint(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "kind": "p2p",
        "sequence": "p2p_sn",
        "peer": "p2p_peer",
        "message_bytes": "p2p_msg_size_bytes",
        "microseconds": "p2p_exec_time_us",
        "timing_source": "p2p_timing_source",
    },
):
    """A send or a receive as one rank saw it; its two ends do not complete together.

    Attributes:
        kind: Send or Recv, unchanged.
        sequence: Sequence number per kind and communicator.
        peer: Rank of the peer.
        message_bytes: Bytes of the message.
        microseconds: Execution time on this rank.
        timing_source: As for collectives.
    """

    kind: Kind
    sequence: SequenceNumber
    peer: Rank
    message_bytes: MessageBytes
    microseconds: ExecutionTime
    timing_source: ShortText = ""

    def __post_init__(self) -> None:
        """Round a fractional time."""
        _round_time(self)


class DumpStats(msgspec.Struct, frozen=True, gc=False):
    """Counts of one dump of a communicator.

    Attributes:
        coll_dropped_since_last_dump: Collective records overwritten in the ring before they were written.
        p2p_dropped_since_last_dump: Send and receive records overwritten in the ring.
    """

    coll_dropped_since_last_dump: Count = 0
    p2p_dropped_since_last_dump: Count = 0


class InspectorLine(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"collective": "coll_perf", "point_to_point": "p2p_perf"},
):
    """One line; absent parts are None. A line with a header alone is a marker for the lines that follow."""

    header: Header | None = None
    metadata: Metadata | None = None
    collective: InspectorCollective | None = None
    point_to_point: PointToPoint | None = None
    dump_stats: DumpStats | None = None


_decoder = msgspec.json.Decoder(InspectorLine)


def parse_line(line: bytes) -> InspectorLine:
    """Parse one line.

    Raises:
        FormatError: It cannot be used.
    """
    return decode(_decoder, line, MAX_LINE)


class InspectorContext:
    """Header and metadata in effect in one file: those of the current line, or inherited from an earlier one.

    Create one per file, and a new one when the file is rewritten.

    Attributes:
        header: Header of the last line that had one; None before.
        metadata: Metadata of the last line that had some; None before.
    """

    __slots__ = ("header", "metadata")

    def __init__(self) -> None:
        self.header: Header | None = None
        self.metadata: Metadata | None = None

    def update(self, line: InspectorLine) -> Header | None:
        """Return the header that applies to a line; None where no line so far had one."""
        if line.metadata is not None:
            self.metadata = line.metadata
        if line.header is not None:
            self.header = line.header
        return self.header
