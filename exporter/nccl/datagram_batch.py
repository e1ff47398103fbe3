"""Datagrams of `fabric_timing.py` as batches: what a process tells a broker itself, where no daemon is on its host."""

from collections.abc import Sequence

from exporter.core.collectives import (
    COMMON,
    SYNCHRONISING,
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


def batch(told: Datagram, job: str) -> Batch:
    """Make the batch of a job that a datagram is as good as; its numbering is that of the process.

    Args:
        told: The datagram.
        job: The job.
    """
    gpu = told.gpu.pci or told.gpu.uuid

    def stream(place: int, kind: str) -> Stream:
        group = told.groups[place]
        return Stream(
            job, group.id, kind, group.rank, group.size, group.nodes or None, told.rank, told.host, told.pid, gpu
        )

    found: dict[Stream, dict[int, Operation]] = {}
    for one in told.operations:
        kind = known_kind(one.kind)
        if kind in SYNCHRONISING:
            of = stream(one.communicator, kind)
            size = algorithm_bytes(kind, one.message_bytes, of.ranks)
            timed = True if one.timing == "gpu" else None
            found.setdefault(of, {}).setdefault(
                one.sequence, Operation(one.sequence, size, float(one.microseconds), timed)
            )
    streams: Sequence[tuple[Stream, Sequence[Operation]]] = [
        (of, [operations[number] for number in sorted(operations)]) for of, operations in found.items()
    ]
    progress = [
        Progress(stream(one.communicator, one.kind), one.begun, one.ended)
        for one in told.counts
        if one.kind in COMMON  # by its own name alone, as on hosts
    ]
    return Batch(
        job,
        told.host,
        streams,
        told.clock.wall / 1e6,
        told.dropped,
        progress,
        told.epoch,
        told.number,
    )
