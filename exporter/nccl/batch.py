"""Batches: what the daemon of a host tells collectors of one job's collectives, once a tick.

One is a MessagePack array. Names stand once in tables at its front, and the operations of a stream in columns: sequence
numbers as steps from one to the next (none where all are 1), sizes as places in a table (none where there is one size),
times in tenths of a microsecond. So an operation takes some five bytes rather than the hundreds of Inspector's lines,
and a decoder meets few objects. MessagePack and not JSON: numbers of the same columns take a third fewer bytes.

Whoever may publish may publish anything: decoding is bounded and strict, and what it refuses leaves as `FormatError`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise, repeat, zip_longest
from typing import Annotated, Any, NamedTuple

import msgspec

from exporter.nccl.decoding import (
    MAX_MICROSECONDS,
    Count,
    FormatError,
    MessageBytes,
    Rank,
    Ranks,
)

VERSION = 1

MAX_BATCH = 256 * 1024
"""Bytes of a batch; more is split."""

MAX_OPERATIONS = 65_536
"""Operations of a batch: columns may say much in few bytes."""

MAX_STREAMS = 8192
"""Streams of a batch, and rows of each of its tables."""

MAX_PROGRESS = 1024
"""Rows of a batch that tell how far ranks are."""

TENTHS = 10
"""Parts of a microsecond that are told."""

_TIMED = (False, True, None)
"""What the numbers of the column `timed` stand for."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,128}\Z")]
"""Printable ASCII alone: what becomes a label or a line of a log holds no line ends and no tricks of writing."""

Host = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,253}\Z")]
Epoch = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
Kind = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,32}\Z")]
Hash = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,64}\Z")]
Gpu = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,64}\Z")]
Ports = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{0,1024}\Z")]
Place = Annotated[int, msgspec.Meta(ge=0, lt=MAX_OPERATIONS)]
Step = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Tenths = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICROSECONDS * TENTHS)]


@dataclass(frozen=True, slots=True)
class Stream:
    """The collectives of one kind that one rank takes part in, in one communicator.

    Attributes:
        job: The job.
        communicator: Hash of the communicator, as text.
        kind: AllReduce, AllGather ….
        rank: Rank in the communicator.
        ranks: Ranks of the communicator.
        nodes: Its nodes; None where not known.
        world_rank: Rank in the job; None where not known.
        host: The host.
        pid: The process.
        gpu: The GPU: its UUID or place; empty where not known.
        ports: Ports of RDMA devices nearest to it, with commas between: each as NCCL spells it, and after `=` its other
            names.
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
        sequence: Number among those of the stream.
        size: Bytes as NCCL counts them.
        microseconds: Time it took on this rank.
        timed: Whether the time was taken on the GPU; None where not known.
    """

    sequence: int
    size: int
    microseconds: float
    timed: bool | None


class Progress(NamedTuple):
    """How far a rank is with the kind of a stream: how many it began, and how many of these ended."""

    stream: Stream
    begun: int
    ended: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one host tells of one job at one time.

    Attributes:
        job: The job.
        host: The host.
        streams: Streams of this job and host, each with its operations by sequence number, none twice.
        sent: Seconds since 1970 of the sending.
        dropped: Operations that the sender lost since its start, before they came into a batch.
        progress: How far ranks are; what is not told did not change.
        epoch: Begin of the numbering, by chance; another one means that the sender began anew.
        tick: Number among the batches of the epoch, from 0; a gap is a loss on the way.
        version: Of the form.
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
        """Count the operations."""
        return sum(len(operations) for _, operations in self.streams)


class _Communicator(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    hash: Hash
    ranks: Ranks
    nodes: Ranks | None


class _Process(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    pid: Count
    world_rank: Rank | None
    gpu: Gpu
    ports: Ports


class _Columns(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One stream: places in the tables, and its operations by column."""

    communicator: Place
    process: Place
    kind: Place
    rank: Rank
    first: Count
    steps: Annotated[list[Step], msgspec.Meta(max_length=MAX_OPERATIONS)]
    sizes: Annotated[list[MessageBytes], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)]
    size_of: Annotated[list[Place], msgspec.Meta(max_length=MAX_OPERATIONS)]
    tenths: Annotated[list[Tenths], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)]
    timed: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, le=2)]], msgspec.Meta(min_length=1, max_length=MAX_OPERATIONS)
    ]


class _Progress(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    communicator: Place
    process: Place
    kind: Place
    rank: Rank
    begun: Count
    ended: Count


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    job: Name
    host: Host
    epoch: Epoch
    tick: Count
    sent: Seconds
    dropped: Count
    communicators: Annotated[list[_Communicator], msgspec.Meta(max_length=MAX_STREAMS)]
    processes: Annotated[list[_Process], msgspec.Meta(max_length=MAX_STREAMS)]
    kinds: Annotated[list[Kind], msgspec.Meta(max_length=MAX_STREAMS)]
    streams: Annotated[list[_Columns], msgspec.Meta(max_length=MAX_STREAMS)]
    progress: Annotated[list[_Progress], msgspec.Meta(max_length=MAX_PROGRESS)]


class _Versioned(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)
_version_decoder = msgspec.msgpack.Decoder(_Versioned)
_operation: Callable[[tuple[Any, ...]], Operation] = partial(tuple.__new__, Operation)
"""Makes an operation of its values without a function of Python in between: three times as fast."""


# --- encoding


def encode(batch: Batch) -> list[bytes]:
    """Write a batch as one message, or as several of consecutive ticks where it is too large for one.

    Streams without operations are left out, operations are put in order, and of those with one number the first stays.

    Raises:
        FormatError: A value is one that no decoder would take.
    """
    streams = [(stream, _in_order(operations)) for stream, operations in batch.streams if operations]
    found: list[bytes] = []
    progress = [batch.progress[at : at + MAX_PROGRESS] for at in range(0, len(batch.progress), MAX_PROGRESS)]
    for part, rows in zip_longest(_parts(streams), progress, fillvalue=()):
        _encode_part(replace(batch, streams=part, progress=rows), found)
    return found


def _encode_part(batch: Batch, found: list[bytes]) -> None:
    """Write a batch, or its halves where it is too large still."""
    try:
        data = _encoder.encode(_wire(replace(batch, tick=batch.tick + len(found))))
        if len(data) <= MAX_BATCH:
            _decode_wire(data)  # what no collector would take is an error here, where it was made
            found.append(data)
            return
    except (OverflowError, ValueError) as error:  # no number, or one without end
        if isinstance(error, FormatError):
            raise
        raise FormatError("invalid", str(error)) from None
    count = batch.operations()
    if count <= 1:
        raise FormatError("too_large", f"{count} operations in {len(data)} bytes")
    for place, part in enumerate(_parts(batch.streams, (count + 1) // 2)):
        _encode_part(replace(batch, streams=part, progress=() if place else batch.progress), found)


def _parts(
    streams: Sequence[tuple[Stream, Sequence[Operation]]], most: int = MAX_OPERATIONS
) -> Iterator[list[tuple[Stream, Sequence[Operation]]]]:
    """Split streams into parts of at most `most` operations and MAX_STREAMS streams; a stream may go on in the next."""
    part: list[tuple[Stream, Sequence[Operation]]] = []
    room = most
    for stream, operations in streams:
        begin = 0
        while begin < len(operations):
            if room == 0 or len(part) == MAX_STREAMS:
                yield part
                part, room = [], most
            taken = operations[begin : begin + room]
            part.append((stream, taken))
            begin += len(taken)
            room -= len(taken)
    if part:
        yield part


def _in_order(operations: Sequence[Operation]) -> Sequence[Operation]:
    numbers = [one.sequence for one in operations]
    if all(map(int.__lt__, numbers, numbers[1:])):
        return operations
    first = {one.sequence: one for one in reversed(operations)}
    return [first[number] for number in sorted(first)]


def _wire(batch: Batch) -> _Wire:
    communicators: dict[_Communicator, int] = {}
    processes: dict[_Process, int] = {}
    kinds: dict[str, int] = {}

    def placed(stream: Stream) -> tuple[int, int, int, int]:
        """Give the places of a stream in the tables, and its rank."""
        if stream.job != batch.job or stream.host != batch.host:
            raise FormatError("invalid", f"a stream of {stream.job} on {stream.host} is none of this batch")
        communicator = _Communicator(stream.communicator, stream.ranks, stream.nodes)
        process = _Process(stream.pid, stream.world_rank, stream.gpu, stream.ports)
        return (
            communicators.setdefault(communicator, len(communicators)),
            processes.setdefault(process, len(processes)),
            kinds.setdefault(stream.kind, len(kinds)),
            stream.rank,
        )

    streams = [_columns(*placed(stream), operations) for stream, operations in batch.streams]
    progress = [_Progress(*placed(one.stream), one.begun, one.ended) for one in batch.progress]
    return _Wire(
        batch.version,
        batch.job,
        batch.host,
        batch.epoch,
        batch.tick,
        float(batch.sent),
        batch.dropped,
        list(communicators),
        list(processes),
        list(kinds),
        streams,
        progress,
    )


def _columns(communicator: int, process: int, kind: int, rank: int, operations: Sequence[Operation]) -> _Columns:
    numbers, sizes, times, timed = (list(column) for column in zip(*operations, strict=True))
    steps = [after - before for before, after in pairwise(numbers)]
    places = {size: place for place, size in enumerate(dict.fromkeys(sizes))}
    known = [_TIMED.index(one) for one in timed]
    return _Columns(
        communicator,
        process,
        kind,
        rank,
        numbers[0],
        steps if any(step != 1 for step in steps) else [],
        list(places),
        [places[size] for size in sizes] if len(places) > 1 else [],
        [round(time * TENTHS) for time in times],
        known if any(one != known[0] for one in known) else known[:1],
    )


# --- decoding


def decode(data: bytes) -> Batch:
    """Read a batch.

    Raises:
        FormatError: It cannot be used.
    """
    wire = _decode_wire(data)
    return Batch(
        wire.job,
        wire.host,
        [(_stream(wire, columns), _operations(columns)) for columns in wire.streams],
        wire.sent,
        wire.dropped,
        [Progress(_stream(wire, one), one.begun, one.ended) for one in wire.progress],
        wire.epoch,
        wire.tick,
        wire.version,
    )


def _decode_wire(data: bytes) -> _Wire:
    """Read what is on the wire, and check all of it.

    Raises:
        FormatError: It cannot be used.
    """
    if len(data) > MAX_BATCH:
        raise FormatError("too_large", f"{len(data)} bytes; at most {MAX_BATCH} are read")
    try:
        wire = _decoder.decode(data)
    except msgspec.ValidationError as error:
        _check_version(data)
        raise FormatError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError("malformed", str(error) or "nested too deeply") from None
    if wire.version != VERSION:
        raise FormatError("unsupported", f"version {wire.version}; {VERSION} is read")
    if sum(len(columns.tenths) for columns in wire.streams) > MAX_OPERATIONS:
        raise FormatError("too_large", f"more than {MAX_OPERATIONS} operations")
    for columns in wire.streams:
        _check_places(wire, columns)
        _check_columns(columns)
    for progress in wire.progress:
        _check_places(wire, progress)
    return wire


def _check_version(data: bytes) -> None:
    """Tell a newer form from a wrong one.

    Raises:
        FormatError: It is of another version.
    """
    try:
        version = _version_decoder.decode(data).version
    except msgspec.MsgspecError:
        return
    if version != VERSION:
        raise FormatError("unsupported", f"version {version}; {VERSION} is read")


def _check_places(wire: _Wire, one: _Columns | _Progress) -> None:
    """See that places are in the tables.

    Raises:
        FormatError: One is not.
    """
    tables: Iterable[tuple[str, int, Sequence[object]]] = (
        ("communicator", one.communicator, wire.communicators),
        ("process", one.process, wire.processes),
        ("kind", one.kind, wire.kinds),
    )
    for name, place, table in tables:
        if place >= len(table):
            raise FormatError("invalid", f"{name} {place} of {len(table)}")
    ranks = wire.communicators[one.communicator].ranks
    if one.rank >= ranks:
        raise FormatError("invalid", f"rank {one.rank} of {ranks} ranks")


def _check_columns(columns: _Columns) -> None:
    """See that columns have one length.

    Raises:
        FormatError: They have not.
    """
    count = len(columns.tenths)
    if max(columns.size_of, default=0) >= len(columns.sizes):
        raise FormatError("invalid", f"size {max(columns.size_of)} of {len(columns.sizes)}")
    if len(columns.steps) not in (0, count - 1):
        raise FormatError("invalid", f"{len(columns.steps)} steps for {count} operations")
    if len(columns.size_of) != count and (columns.size_of or len(columns.sizes) != 1):
        raise FormatError("invalid", f"{len(columns.size_of)} sizes for {count} operations")
    if len(columns.timed) not in (1, count):
        raise FormatError("invalid", f"{len(columns.timed)} values of timed for {count} operations")
    if columns.first + (sum(columns.steps) or count) >= 1 << 63:
        raise FormatError("invalid", "sequence numbers beyond belief")


def _stream(wire: _Wire, one: _Columns | _Progress) -> Stream:
    communicator = wire.communicators[one.communicator]
    process = wire.processes[one.process]
    return Stream(
        wire.job,
        communicator.hash,
        wire.kinds[one.kind],
        one.rank,
        communicator.ranks,
        communicator.nodes,
        process.world_rank,
        wire.host,
        process.pid,
        process.gpu,
        process.ports,
    )


def _operations(columns: _Columns) -> list[Operation]:
    count = len(columns.tenths)
    first, steps, sizes, timed = columns.first, columns.steps, columns.sizes, columns.timed
    numbers = accumulate(chain((first,), steps)) if steps else range(first, first + count)
    size = map(sizes.__getitem__, columns.size_of) if columns.size_of else repeat(sizes[0], count)
    known = map(_TIMED.__getitem__, timed) if len(timed) == count else repeat(_TIMED[timed[0]], count)
    times = [tenths / TENTHS for tenths in columns.tenths]
    return list(map(_operation, zip(numbers, size, times, known, strict=True)))
