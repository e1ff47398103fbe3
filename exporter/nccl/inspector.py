"""Lines of NCCL Inspector's files: one JSON object each, of which only what is asked for is decoded.

Formats v4.0 to v4.2 carry who speaks (`header`, `metadata`) in every line, and from v4.1 on a marker (`dump_stats`)
stands before what is dumped of a communicator. v4.3 says who speaks only in this marker, and the lines that follow
inherit it. Unknown keys are passed over, so that newer versions and forks are read as far as they are understood.
The version itself is not tested: releases differ more in what they write than in what they say they write.
"""

from typing import Annotated

import msgspec

from exporter.nccl.decoding import (
    MAX_RANKS,
    Count,
    Host,
    MessageBytes,
    Rank,
    Ranks,
    ShortText,
    Text,
    Took,
    Word,
    decode_json,
)

MAX_LINE = 1 << 20
"""Bytes of a line: a verbose one tells every channel."""

KERNEL_TIMING = "kernel_gpu"
"""The timing source that tells the time on the GPU; others add what the host was doing."""

Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Header(msgspec.Struct, frozen=True, gc=False):
    """Who speaks: the communicator and the rank in it.

    Attributes:
        id: Hash of the communicator, as it stands; `commId` in NCCL's log, `hash` in RAS.
        rank: Rank in this communicator; not the rank of the job.
        n_ranks: Its ranks.
        nnodes: Its nodes; 0 where not told.
        comm_name: Its name; empty or "unknown" as a rule.
    """

    id: Word
    rank: Rank
    n_ranks: Ranks
    nnodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)] = 0
    comm_name: Text = ""

    def __post_init__(self) -> None:
        """Check what the fields alone cannot show."""
        if self.rank >= self.n_ranks:
            raise ValueError(f"rank {self.rank} of {self.n_ranks} ranks")


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Which process speaks, and when it wrote the line.

    Attributes:
        hostname: Its host.
        pid: Its number in its own namespace of processes; 0 where not told.
        dump_timestamp_us: Microseconds since 1970 of the dump, which may be long after the operation; 0 where not told.
        inspector_output_format_version: "v4.0" …; to be shown, not to be relied on.
    """

    hostname: Host = ""
    pid: Count = 0
    dump_timestamp_us: Count = 0
    inspector_output_format_version: ShortText = ""


class KernelEvent(msgspec.Struct, frozen=True, gc=False, rename={"start_us": "kernel_start_ts"}):
    """The kernel on one channel.

    Attributes:
        start_us: Microseconds since 1970 at which it began; 0 where not seen.
    """

    start_us: Count = 0


class Trace(msgspec.Struct, frozen=True, gc=False, rename={"start_us": "coll_start_ts"}):
    """Times of a verbose line, by the clock of the host.

    Attributes:
        start_us: Microseconds since 1970 at which the host enqueued the collective; 0 where not told.
        kernel_events: What the channels did.
    """

    start_us: Count = 0
    kernel_events: Annotated[tuple[KernelEvent, ...], msgspec.Meta(max_length=1024)] = ()


class Collective(
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
        "trace": "event_trace_ts",
    },
):
    """One collective as one rank saw it.

    The bandwidths of the file are not read: they are rounded, and 0 for kinds that Inspector does not know by name.

    Attributes:
        kind: AllReduce, AllGather …, as it stands; `bus.known_kind` makes a name of it that may be shown.
        sequence: Number among those of the kind in the communicator.
        message_bytes: Bytes that one rank handed in (count times the size of the type).
        microseconds: Time it took on this rank.
        timing_source: kernel_gpu, kernel_cpu or collective_cpu; empty in the oldest versions.
        algorithm: Ring, Tree …; empty before v4.2.
        protocol: LL, LL128, Simple; empty before v4.2.
        trace: Times of a verbose line.
    """

    kind: Kind
    sequence: Count
    message_bytes: MessageBytes
    microseconds: Took
    timing_source: ShortText = ""
    algorithm: ShortText = ""
    protocol: ShortText = ""
    trace: Trace | None = None


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
    """A send or a receive as one rank saw it; its two ends do not end together.

    Attributes:
        kind: Send or Recv, as it stands.
        sequence: Number among those of the kind in the communicator.
        peer: Rank of the other end.
        message_bytes: Bytes of the message.
        microseconds: Time it took on this rank.
        timing_source: As for collectives.
    """

    kind: Kind
    sequence: Count
    peer: Rank
    message_bytes: MessageBytes
    microseconds: Took
    timing_source: ShortText = ""


class DumpStats(msgspec.Struct, frozen=True, gc=False):
    """What a dump wrote of a communicator, and what the ring lost since the dump before.

    Attributes:
        coll_records: Collectives that follow.
        coll_dropped_since_last_dump: Collectives that were overwritten before they were written.
        p2p_records: Sends and receives that follow.
        p2p_dropped_since_last_dump: Sends and receives that were overwritten.
    """

    coll_records: Count = 0
    coll_dropped_since_last_dump: Count = 0
    p2p_records: Count = 0
    p2p_dropped_since_last_dump: Count = 0


class Proxy(msgspec.Struct, frozen=True, gc=False):
    """Steps of a proxy thread, of which only their presence is read."""


class Line(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"collective": "coll_perf", "point_to_point": "p2p_perf", "proxy": "proxy_trace"},
):
    """One line; what it lacks is None. A line with a header and nothing else is a marker for those that follow."""

    header: Header | None = None
    metadata: Metadata | None = None
    collective: Collective | None = None
    point_to_point: PointToPoint | None = None
    dump_stats: DumpStats | None = None
    proxy: Proxy | None = None


_decoder = msgspec.json.Decoder(Line)


def parse_line(line: bytes) -> Line:
    """Read one line.

    Raises:
        FormatError: It cannot be used.
    """
    return decode_json(_decoder, line, MAX_LINE)


class Speaker:
    """Who speaks in one file: the header and the process of the line at hand, own or inherited.

    One for each file, and a new one when the file begins anew: what a file says of itself holds for no other.

    Attributes:
        header: Of the last line that had one; None before.
        metadata: Likewise.
    """

    __slots__ = ("header", "metadata")

    def __init__(self) -> None:
        self.header: Header | None = None
        self.metadata: Metadata | None = None

    def hears(self, line: Line) -> Header | None:
        """Give whose line it is; None where no line yet said so."""
        if line.metadata is not None:
            self.metadata = line.metadata
        if line.header is not None:
            self.header = line.header
        return self.header
