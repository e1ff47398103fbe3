"""Datagrams of `fabric_timing.py`: what a process of a training job says about its collectives.

One is a JSON object of at most MAX_DATAGRAM bytes. Times of begin are microseconds of the host's monotonic clock, and
`clock` tells both clocks at the time of sending, so a wall clock that jumps moves nothing. Unknown keys are passed
over, so that newer versions are read as far as they are understood; a VERSION above ours changed what is there.

The bytes of a collective are those that NCCL counts and Inspector writes: what one rank hands in, and of a
ReduceScatter what one rank gets.
"""

from typing import Annotated, Literal

import msgspec

from exporter.nccl.decoding import (
    MAX_RANKS,
    Count,
    MessageBytes,
    Rank,
    Ranks,
    Took,
)

VERSION = 1

MAX_DATAGRAM = 8192
"""Bytes of a datagram."""

REASONS = ("too_long", "malformed", "version", "invalid")
"""Why a datagram is refused."""

MAX_ROWS = 512
"""Records, communicators, and rows of how far they are, in one datagram."""

Place = Annotated[int, msgspec.Meta(ge=0, lt=MAX_ROWS)]
Kind = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,32}\Z")]
Text = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,128}\Z")]
"""Printable ASCII alone: what becomes a label or a line of a log holds no line ends and no tricks of writing."""


class Communicator(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A communicator, and this process in it.

    Attributes:
        id: Its name on all its ranks, of hexadecimal digits; no other run has one of the same.
        title: What the job calls it.
        rank: Rank in it.
        size: Its ranks.
        nodes: Its nodes; 0 where not known.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
    title: Text
    rank: Rank
    size: Ranks
    nodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)]

    def __post_init__(self) -> None:
        """Check what the fields alone cannot show."""
        if self.rank >= self.size:
            raise ValueError(f"rank {self.rank} of {self.size} ranks")


class Operation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A collective that ended on this rank.

    Attributes:
        communicator: Place in the list of the datagram.
        kind: As NCCL names it, as it stands; Barrier and SendRecv (a batch) beside those.
        sequence: Number among those of the kind in the communicator, from 0.
        message_bytes: Bytes as NCCL counts them.
        microseconds: From when this rank reached it, or the one before it in the communicator ended, until it ended.
        began: When the host asked for it, in microseconds of the monotonic clock.
        timing: `gpu` (events on the stream) or `host` (the clock of the process).
    """

    communicator: Place
    kind: Kind
    sequence: Count
    message_bytes: MessageBytes
    microseconds: Took
    began: Count
    timing: Literal["gpu", "host"]


class Progress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far a rank is with a kind in a communicator: what it began, and what is over, since it was first met."""

    communicator: Place
    kind: Kind
    begun: Count
    ended: Count


class Step(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a step of the training.

    Attributes:
        number: From 1.
        at: Microseconds of the monotonic clock.
        tokens: Tokens on all ranks together; None where not told.
        flops: Floating-point operations on all ranks together; None where not told.
    """

    number: Count
    at: Count
    tokens: Count | None = None
    flops: Annotated[float, msgspec.Meta(ge=0, le=1e30)] | None = None


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """The GPU, as far as torch tells."""

    uuid: Text = ""
    pci: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?\Z")] = ""


class Clock(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Both clocks at the time of sending, in microseconds."""

    monotonic: Count
    wall: Count


class Datagram(msgspec.Struct, frozen=True, rename={"version": "v", "number": "n", "operations": "ops"}):
    """What one process says at one time.

    Attributes:
        version: Of the form.
        number: Of the datagrams of this process, from 0; a gap is a loss on the way.
        pid: As the process sees itself.
        host: As the process sees it.
        clock: Both clocks.
        env: Facts of the environment, of a list of names that the hook keeps.
        gpu: The GPU.
        epoch: Of the numbers, by chance; another one means that a process began anew.
        dropped: Records that found no room or nobody to hear them, so far.
        untimed: Collectives that could not be timed, so far.
        faults: Failures of the hook itself, so far.
        rank: In the job; None where not known.
        world: Ranks of the job; None where not known.
        groups: The communicators of the rest.
        operations: Collectives that ended.
        counts: How far communicators are.
        steps: Steps that ended.
    """

    version: int
    number: Count
    pid: Count
    host: Text
    clock: Clock
    env: Annotated[dict[Annotated[str, msgspec.Meta(pattern=r"^[A-Z_]{1,40}\Z")], Text], msgspec.Meta(max_length=32)]
    gpu: Gpu = Gpu()
    epoch: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")] = "0" * 16
    dropped: Count = 0
    untimed: Count = 0
    faults: Count = 0
    rank: Rank | None = None
    world: Ranks | None = None
    groups: Annotated[tuple[Communicator, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    operations: Annotated[tuple[Operation, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    counts: Annotated[tuple[Progress, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    steps: Annotated[tuple[Step, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()

    def __post_init__(self) -> None:
        """Check what the fields alone cannot show."""
        if self.rank is not None and self.rank >= (self.world or MAX_RANKS):
            raise ValueError(f"rank {self.rank} of {self.world} ranks")
        places = [one.communicator for one in self.operations] + [one.communicator for one in self.counts]
        if max(places, default=-1) >= len(self.groups):
            raise ValueError(f"communicator {max(places)} of {len(self.groups)}")

    def age(self, operation: Operation) -> float:
        """Give the seconds between when a collective was asked for and the sending."""
        return (self.clock.monotonic - operation.began) / 1e6


class DatagramError(ValueError):
    """A datagram that cannot be used.

    Attributes:
        reason: One of REASONS.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class _Versioned(msgspec.Struct):
    v: int


_decoder = msgspec.json.Decoder(Datagram)
_version_decoder = msgspec.json.Decoder(_Versioned)


def parse(data: bytes) -> Datagram:
    """Read a datagram.

    Raises:
        DatagramError: It cannot be used.
    """
    if len(data) > MAX_DATAGRAM:
        raise DatagramError("too_long", f"{len(data)} bytes; {MAX_DATAGRAM} are read")
    try:
        told = _decoder.decode(data)
    except msgspec.ValidationError as error:
        _check_version(data)
        raise DatagramError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatagramError("malformed", str(error)) from None
    if told.version != VERSION:
        raise DatagramError("version", f"version {told.version}; {VERSION} is read")
    return told


def _check_version(data: bytes) -> None:
    """Tell a newer form from a wrong one.

    Raises:
        DatagramError: It is of another version.
    """
    try:
        version = _version_decoder.decode(data).v
    except msgspec.MsgspecError:
        return
    if version != VERSION:
        raise DatagramError("version", f"version {version}; {VERSION} is read")
