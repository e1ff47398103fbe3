"""Lines of NCCL Inspector's files: one JSON object each, of which only what is asked for is decoded.

Formats v4.0 to v4.2 carry who speaks (`header`, `metadata`) in every line; v4.3 says it once, and the lines that
follow inherit it. Unknown keys are passed over, so that newer versions are read as far as they are understood.
"""

from typing import Annotated

import msgspec

MAX_RANKS = 1 << 20
"""Ranks of a communicator that are still believed."""

MAX_BYTES = 1 << 50
"""Bytes of one message that are still believed."""

MAX_MICROSECONDS = 86_400_000_000
"""Microseconds (a day) of one collective that are still believed."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Header(msgspec.Struct, frozen=True, gc=False):
    """Who speaks: the communicator and the rank in it.

    Attributes:
        id: Hash of the communicator, as it stands.
        rank: Rank in this communicator; not the rank of the job.
        n_ranks: Its ranks.
        nnodes: Its nodes; 0 where not told.
    """

    id: Word
    rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
    n_ranks: Ranks
    nnodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)] = 0

    def __post_init__(self) -> None:
        """Check what the fields alone cannot show."""
        if self.rank >= self.n_ranks:
            raise ValueError(f"rank {self.rank} of {self.n_ranks} ranks")


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Which process speaks."""

    hostname: Annotated[str, msgspec.Meta(max_length=256)] = ""
    pid: Count = 0


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
    },
):
    """One collective as one rank saw it.

    Attributes:
        kind: AllReduce, AllGather …, as it stands.
        sequence: Number among those of the kind in the communicator.
        message_bytes: Bytes that one rank handed in (count times the size of the type).
        microseconds: Time it took on this rank.
        timing_source: kernel_gpu, kernel_cpu or collective_cpu; empty in the oldest versions.
    """

    kind: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_]{1,32}$")]
    sequence: Count
    message_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
    microseconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_MICROSECONDS)]
    timing_source: Annotated[str, msgspec.Meta(max_length=64)] = ""


class PointToPoint(msgspec.Struct, frozen=True, gc=False):
    """A send or a receive; nothing of it is used, since its two ends do not end together."""


class Line(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"collective": "coll_perf", "point_to_point": "p2p_perf"},
):
    """One line; what it lacks is None. A line with a header and nothing else is a marker for those that follow."""

    header: Header | None = None
    metadata: Metadata | None = None
    collective: Collective | None = None
    point_to_point: PointToPoint | None = None


class LineError(ValueError):
    """A line that cannot be used.

    Attributes:
        reason: `malformed` (no JSON object) or `invalid` (a value is missing, of a wrong type or beyond belief).
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


_decoder = msgspec.json.Decoder(Line)


def parse_line(line: bytes) -> Line:
    """Read one line.

    Raises:
        LineError: It cannot be used.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise LineError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError("malformed", str(error)) from None


_KINDS = {
    name.lower(): name
    for name in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter")
}
_KINDS["all2all"] = "AlltoAll"

OTHER = "other"
"""What kinds are called that are not known here: names from a file must not become labels without bound."""


def known_kind(kind: str) -> str:
    """Give the one spelling of a kind: the core of NCCL and Inspector spell AlltoAll differently."""
    return _KINDS.get(kind.lower(), OTHER)


def traffic_bytes(kind: str, message_bytes: int, n_ranks: int) -> int:
    """Give the size of a collective as nccl-tests counts it: for AllGather and ReduceScatter that of all ranks.

    Bandwidths are computed from this and the time. Those of the file are not used: they are rounded, and 0 for kinds
    that Inspector does not know by name.
    """
    return message_bytes * n_ranks if kind in {"AllGather", "ReduceScatter"} else message_bytes
