"""Encoding of batches of collective timings in MessagePack.

A batch is one array. Names are in tables at its front, and the operations of a stream in columns: sequence numbers as
differences (none where all are 1), sizes as indices into a table (none where there is one size), times in tenths of a
microsecond. An operation thus takes about five bytes instead of the hundreds of an Inspector line, and decoding creates
few objects. MessagePack rather than JSON: the same columns of numbers take a third fewer bytes.

Publishers are untrusted: decoding is bounded and strict, and rejects input with `FormatError` only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Annotated, TypeAlias

import msgspec

from exporter.nccl.batch import (
    MAX_BATCH,
    MAX_OPERATIONS,
    MAX_PROGRESS,
    MAX_STREAMS,
    VERSION,
    Batch,
    Operation,
    Progress,
    Stream,
)
from exporter.nccl.batch_columns import QUEUED, Columns, Index, check_columns, columns_of, operations_of, queued_columns
from exporter.nccl.decoding import (
    Count,
    FormatError,
    Rank,
    Ranks,
    decode_versioned,
)

Name = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,128}\Z")]
"""Printable ASCII only: labels and log lines that contain the text get neither line ends nor look-alike characters."""

Host = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,253}\Z")]
Epoch = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
Kind = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,32}\Z")]
Hash = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,64}\Z")]
Gpu = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{0,64}\Z")]
Ports = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{0,1024}\Z")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


_Place: TypeAlias = tuple[int, int, int, int]
"""What identifies a stream in a message: indices of its communicator, process and kind, and its rank."""


class _Communicator(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    hash: Hash
    ranks: Ranks
    nodes: Ranks | None


class _Process(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    pid: Count
    world_rank: Rank | None
    gpu: Gpu
    ports: Ports


class _Progress(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    communicator: Index
    process: Index
    kind: Index
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
    streams: Annotated[list[Columns], msgspec.Meta(max_length=MAX_STREAMS)]
    progress: Annotated[list[_Progress], msgspec.Meta(max_length=MAX_PROGRESS)]


class _Versioned(msgspec.Struct, array_like=True):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)
_version_decoder = msgspec.msgpack.Decoder(_Versioned)


# --- encoding


def encode(batch: Batch) -> list[bytes]:
    """Encode a batch as one message, or as several with consecutive ticks where it exceeds the limits.

    Empty streams are omitted, operations sorted, and of operations with the same sequence number the first is kept.

    Raises:
        FormatError: A value would be rejected by the decoder.
    """
    streams = [(stream, _in_order(operations)) for stream, operations in batch.streams if operations]
    found: list[bytes] = []
    progress = [batch.progress[at : at + MAX_PROGRESS] for at in range(0, len(batch.progress), MAX_PROGRESS)]
    for part, rows in zip_longest(_split(streams), progress, fillvalue=()):
        _encode_part(replace(batch, streams=part, progress=rows), found)
    return found


def _encode_part(batch: Batch, found: list[bytes]) -> None:
    """Append the encoded batch to `found`, or its halves where it exceeds MAX_BATCH."""
    try:
        wire = _wire(replace(batch, tick=batch.tick + len(found)))
        data = _encoder.encode(wire)
        if len(data) <= MAX_BATCH and len(wire.streams) <= MAX_STREAMS and _length(wire) <= MAX_OPERATIONS:
            _decode_wire(data)  # a batch that collectors would reject is an error of the sender
            found.append(data)
            return
    except (OverflowError, ValueError) as error:  # NaN or infinity
        if isinstance(error, FormatError):
            raise
        raise FormatError("invalid", str(error)) from None
    count = batch.operations()
    if count <= 1:
        raise FormatError("too_large", f"{count} operations in {len(data)} bytes")
    for place, part in enumerate(_split(batch.streams, (count + 1) // 2)):
        _encode_part(replace(batch, streams=part, progress=() if place else batch.progress), found)


def _split(
    streams: Sequence[tuple[Stream, Sequence[Operation]]], limit: int = MAX_OPERATIONS
) -> Iterator[list[tuple[Stream, Sequence[Operation]]]]:
    """Split streams into parts of at most `limit` operations and MAX_STREAMS streams; a stream may span parts."""
    part: list[tuple[Stream, Sequence[Operation]]] = []
    room = limit
    for stream, operations in streams:
        begin = 0
        while begin < len(operations):
            if room == 0 or len(part) == MAX_STREAMS:
                yield part
                part, room = [], limit
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

    def table_indices(stream: Stream) -> tuple[int, int, int, int]:
        """Return the table indices of a stream, and its rank."""
        if stream.job != batch.job or stream.host != batch.host:
            raise FormatError("invalid", f"a stream of {stream.job} on {stream.host} does not belong to this batch")
        communicator = _Communicator(stream.communicator, stream.ranks, stream.nodes)
        process = _Process(stream.pid, stream.world_rank, stream.gpu, stream.ports)
        return (
            communicators.setdefault(communicator, len(communicators)),
            processes.setdefault(process, len(processes)),
            kinds.setdefault(stream.kind, len(kinds)),
            stream.rank,
        )

    streams = []
    for stream, operations in batch.streams:
        streams.append(columns_of(*table_indices(stream), operations))
        if any(one.queued is not None for one in operations):
            streams.append(queued_columns(*table_indices(stream._replace(kind=stream.kind + QUEUED)), operations))
    progress = [_Progress(*table_indices(one.stream), one.begun, one.ended) for one in batch.progress]
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


# --- decoding


def decode(data: bytes) -> Batch:
    """Decode and validate a batch.

    Raises:
        FormatError: It cannot be used.
    """
    (batch,) = decode_parts(data, MAX_OPERATIONS)
    return batch


def decode_parts(data: bytes, operations: int) -> Iterator[Batch]:
    """Decode and validate a batch, and return it in parts of at most so many operations; progress is in the first.

    Only the values of the operations are converted part by part; all is validated before.

    Raises:
        FormatError: It cannot be used; no part is returned.
    """
    wire = _decode_wire(data)
    streams = _streams(wire)
    head = Batch(
        wire.job,
        wire.host,
        (),
        wire.sent,
        wire.dropped,
        [Progress(streams[_place(one)], one.begun, one.ended) for one in wire.progress],
        wire.epoch,
        wire.tick,
        wire.version,
    )
    return _parts(head, wire, streams, operations)


def _parts(head: Batch, wire: _Wire, streams: Mapping[_Place, Stream], limit: int) -> Iterator[Batch]:
    part: list[tuple[Stream, Sequence[Operation]]] = []
    room, progress = limit, head.progress
    queueing = {index for index, kind in enumerate(wire.kinds) if kind.endswith(QUEUED)}
    queued = {_key(wire, one): one for one in wire.streams if one.kind in queueing} if queueing else {}
    for columns in wire.streams:
        if columns.kind in queueing:
            continue
        # once: many streams must not each expand a long one
        waits = queued.pop(_key(wire, columns, QUEUED), None) if queued else None
        stream, operations, left = streams[_place(columns)], operations_of(columns, waits), len(columns.tenths)
        while left:
            taken = list(islice(operations, room))
            part.append((stream, taken))
            left -= len(taken)
            room -= len(taken)
            if room == 0:
                yield replace(head, streams=part, progress=progress)
                part, room, progress = [], limit, ()
    if part or progress is head.progress:
        yield replace(head, streams=part, progress=progress)


def _decode_wire(data: bytes) -> _Wire:
    """Decode a message and validate it.

    Raises:
        FormatError: It cannot be used.
    """
    wire = decode_versioned(_decoder, _version_decoder.decode, data, MAX_BATCH, VERSION)
    if _length(wire) > MAX_OPERATIONS:
        raise FormatError("too_large", f"more than {MAX_OPERATIONS} operations")
    for columns in wire.streams:
        check_columns(columns)
    _check_indices(wire)
    return wire


def _length(wire: _Wire) -> int:
    """Return the sum of the lengths of all streams."""
    return sum([len(columns.tenths) for columns in wire.streams])


def _check_indices(wire: _Wire) -> None:
    """Validate the table indices and ranks of all rows.

    Raises:
        FormatError: One is out of range.
    """
    rows = _rows(wire)
    used: Iterable[tuple[str, Sequence[int], Sequence[object]]] = (
        ("communicator", [one.communicator for one in rows], wire.communicators),
        ("process", [one.process for one in rows], wire.processes),
        ("kind", [one.kind for one in rows], wire.kinds),
    )
    for name, indices, table in used:
        if rows and max(indices) >= len(table):
            raise FormatError("invalid", f"{name} {max(indices)} of {len(table)}")
    ranks = [one.ranks for one in wire.communicators]
    for one in rows:
        if one.rank >= ranks[one.communicator]:
            raise FormatError("invalid", f"rank {one.rank} of {ranks[one.communicator]} ranks")


def _rows(wire: _Wire) -> list[Columns | _Progress]:
    return [*wire.streams, *wire.progress]


def _place(one: Columns | _Progress) -> _Place:
    return one.communicator, one.process, one.kind, one.rank


def _streams(wire: _Wire) -> dict[_Place, Stream]:
    """Return the streams of all rows: most are in the columns of operations and in the progress."""
    found = {}
    for place in {_place(one) for one in _rows(wire)}:
        communicator, process, kind = wire.communicators[place[0]], wire.processes[place[1]], wire.kinds[place[2]]
        found[place] = Stream(
            wire.job,
            communicator.hash,
            kind,
            place[3],
            communicator.ranks,
            communicator.nodes,
            process.world_rank,
            wire.host,
            process.pid,
            process.gpu,
            process.ports,
        )
    return found


def _key(wire: _Wire, columns: Columns, ending: str = "") -> tuple[int, int, int, str]:
    """Return what identifies a stream in a batch, with an ending of its kind."""
    return columns.communicator, columns.process, columns.rank, wire.kinds[columns.kind] + ending
