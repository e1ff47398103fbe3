"""Datagrams of `fabric_timing.py`: what a process of a training job reports about its collectives.

One datagram is a JSON object of at most MAX_DATAGRAM bytes. Start times are microseconds of the host's monotonic clock;
`clock` contains both clocks at the time of sending, so a step of the wall clock has no effect. Unknown keys and further
elements of rows are ignored: what is added leaves VERSION as it is, and one above ours means an incompatible change.

Message sizes follow NCCL and Inspector: the bytes that one rank passes in; for ReduceScatter the bytes that one rank
receives.
"""

from typing import Annotated, Literal

import msgspec

from exporter.nccl.decoding import (
    MAX_RANKS,
    Count,
    MessageBytes,
    Microseconds,
    PositiveMicroseconds,
    Rank,
    Ranks,
    SequenceNumber,
    decode_versioned,
)

VERSION = 1

MAX_DATAGRAM = 8192
"""Bytes of a datagram."""

REASONS = ("too_large", "malformed", "unsupported_version", "invalid")
"""Why a datagram is rejected."""

MAX_ROWS = 512
"""Records, communicators and progress rows in one datagram."""

Index = Annotated[int, msgspec.Meta(ge=0, lt=MAX_ROWS)]
Kind = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,32}\Z")]
Text = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,128}\Z")]
"""Printable ASCII only: labels and log lines that contain the text get neither line ends nor look-alike characters."""


class DatagramCommunicator(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A communicator, and the rank of this process in it.

    Attributes:
        id: Identifier, equal on all ranks and unique to the run: 16 hexadecimal digits.
        title: Name that the job gave it.
        rank: Rank in the communicator.
        size: Number of ranks.
        nodes: Number of nodes; 0 if unknown.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
    title: Text
    rank: Rank
    size: Ranks
    nodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)]

    def __post_init__(self) -> None:
        """Validate rank against size."""
        if self.rank >= self.size:
            raise ValueError(f"rank {self.rank} of {self.size} ranks")


class DatagramOperation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A collective that completed on this rank.

    Attributes:
        communicator: Index in the `groups` of the datagram.
        kind: NCCL's name, unchanged; also Barrier and SendRecv (a batch of sends and receives).
        sequence: Sequence number per kind and communicator, from 0.
        message_bytes: Message size in bytes as NCCL counts it.
        microseconds: Time from when this rank reached it until it completed; on a GPU, from the completion of the
            previous one of the communicator, if that was later.
        began: Host time of the call, in microseconds of the monotonic clock.
        timing: `gpu` (CUDA events on the stream) or `host` (clock of the process).
        queued: Microseconds for which it waited behind the previous one of the communicator before that, from when this
            rank reached it; None if unknown.
    """

    communicator: Index
    kind: Kind
    sequence: SequenceNumber
    message_bytes: MessageBytes
    microseconds: PositiveMicroseconds
    began: Count
    timing: Literal["gpu", "host"]
    queued: Microseconds | None = None


class DatagramProgress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Collectives of one kind in a communicator that a rank began and ended, since the communicator was first used."""

    communicator: Index
    kind: Kind
    begun: Count
    ended: Count


class StepMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of a training step.

    Attributes:
        number: Step number, from 1.
        at: Microseconds of the monotonic clock.
        tokens: Tokens over all ranks; None where absent.
        flops: Floating-point operations over all ranks; None where absent.
    """

    number: Count
    at: Count
    tokens: Count | None = None
    flops: Annotated[float, msgspec.Meta(ge=0, le=1e30)] | None = None


class GpuIdentity(msgspec.Struct, frozen=True, gc=False):
    """Identity of the GPU, as far as torch reports it."""

    uuid: Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,64}\Z")] = ""
    pci: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])?\Z")] = ""


class ClockReading(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Both clocks at the time of sending, in microseconds."""

    monotonic: Count
    wall: Count


class Datagram(msgspec.Struct, frozen=True, rename={"version": "v", "number": "n", "operations": "ops"}):
    """One datagram of one process.

    Attributes:
        version: Format version.
        number: Number of the datagram within its epoch, from 0; a gap is a loss in transit.
        pid: Process ID in the namespace of the process.
        host: Host name in the namespace of the process.
        clock: Both clocks.
        env: Environment variables, from a fixed list of names.
        gpu: Identity of the GPU.
        epoch: Random identifier of the numbering; a change means that the process restarted.
        dropped: Records dropped so far, for lack of room or of a receiver.
        untimed: Collectives so far that could not be timed.
        faults: Failures of the hook itself, so far.
        rank: Rank in the job; None if unknown.
        world: Number of ranks in the job; None if unknown.
        groups: Communicators that the other lists refer to.
        operations: Completed collectives.
        counts: Progress per communicator and kind.
        steps: Completed training steps.
    """

    version: int
    number: Count
    pid: Count
    host: Text
    clock: ClockReading
    env: Annotated[dict[Annotated[str, msgspec.Meta(pattern=r"^[A-Z_]{1,40}\Z")], Text], msgspec.Meta(max_length=32)]
    gpu: GpuIdentity = GpuIdentity()
    epoch: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")] = "0" * 16
    dropped: Count = 0
    untimed: Count = 0
    faults: Count = 0
    rank: Rank | None = None
    world: Ranks | None = None
    groups: Annotated[tuple[DatagramCommunicator, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    operations: Annotated[tuple[DatagramOperation, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    counts: Annotated[tuple[DatagramProgress, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()
    steps: Annotated[tuple[StepMark, ...], msgspec.Meta(max_length=MAX_ROWS)] = ()

    def __post_init__(self) -> None:
        """Validate rank against world, and indices against `groups`."""
        if self.rank is not None and self.rank >= (self.world or MAX_RANKS):
            raise ValueError(f"rank {self.rank} of {self.world} ranks")
        indices = [one.communicator for one in self.operations] + [one.communicator for one in self.counts]
        if max(indices, default=-1) >= len(self.groups):
            raise ValueError(f"communicator {max(indices)} of {len(self.groups)}")

    def age(self, operation: DatagramOperation) -> float:
        """Return the seconds from the call of a collective to the sending."""
        return (self.clock.monotonic - operation.began) / 1e6


class _Version(msgspec.Struct, rename={"version": "v"}):
    version: int


_decoder = msgspec.json.Decoder(Datagram)
_version_decoder = msgspec.json.Decoder(_Version)


def parse_datagram(data: bytes) -> Datagram:
    """Parse and validate a datagram.

    Raises:
        FormatError: It cannot be used; the reason is one of REASONS.
    """
    return decode_versioned(_decoder, _version_decoder.decode, data, MAX_DATAGRAM, VERSION)
