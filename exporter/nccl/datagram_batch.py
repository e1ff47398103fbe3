"""Conversion of datagrams of `fabric_timing.py` to batches, for processes that publish to a broker themselves."""

from collections.abc import Sequence

from exporter.core.collectives import (
    COMMON,
    JUDGED,
    POINT_TO_POINT,
    algorithm_bytes,
    known_kind,
)
from exporter.nccl.batch import (
    Batch,
    Operation,
    Progress,
    Stream,
)
from exporter.nccl.datagram import Datagram
from exporter.nccl.decoding import MAX_BYTES


def batch_of(received: Datagram, job: str) -> Batch:
    """Convert a datagram to a batch of a job; epoch and tick are those of the process."""
    gpu = received.gpu.pci or received.gpu.uuid

    def stream(index: int, kind: str) -> Stream:
        group = received.groups[index]
        return Stream(
            job,
            group.id,
            kind,
            group.rank,
            group.size,
            group.nodes or None,
            received.rank,
            received.host,
            received.pid,
            gpu,
        )

    found: dict[Stream, dict[int, Operation]] = {}
    for one in received.operations:
        kind = known_kind(one.kind)
        if kind in JUDGED:
            key = stream(one.communicator, kind)
            size = algorithm_bytes(kind, one.message_bytes, key.ranks)
            if size > MAX_BYTES:
                continue  # implausible, as of a batch of the host
            timed = True if one.timing == "gpu" else None
            found.setdefault(key, {}).setdefault(
                one.sequence, Operation(one.sequence, size, float(one.microseconds), timed, one.queued)
            )
    streams: Sequence[tuple[Stream, Sequence[Operation]]] = [
        (key, [operations[number] for number in sorted(operations)]) for key, operations in found.items()
    ]
    progress = [
        Progress(stream(one.communicator, one.kind), one.begun, one.ended)
        for one in received.counts
        if one.kind in COMMON | POINT_TO_POINT  # not its aliases: each alias has its own count
    ]
    return Batch(
        job,
        received.host,
        streams,
        received.clock.wall / 1e6,
        received.dropped,
        progress,
        received.epoch,
        received.number,
    )
