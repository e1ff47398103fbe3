"""Records of collectives as the exporters of hosts receive them, and their encoding as lines of JSON."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Annotated

import msgspec

from exporter.simulator.training.engine import NEVER, Ended
from exporter.simulator.training.programs import CommunicatorLayout

MICROSECONDS = 1e6

UNFINISHED_SECONDS = 4.0
"""Seconds between two reports of a collective that does not end."""


Name = Annotated[str, msgspec.Meta(pattern=r"^[ -~]{1,128}\Z")]
Host = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,253}\Z")]
Identifier = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,64}\Z")]
Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, le=86_400e6)]
"""The limits are those of batches, in which hosts publish records."""


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A collective on one rank, or how far a rank is.

    Attributes:
        arrived: Seconds at which the exporter of the host receives it, since any time that is the same for all.
        host: Host of the rank.
        job: Name of the job.
        communicator: Identifier of the communicator.
        ranks: Number of ranks of the communicator.
        nodes: Number of nodes of the communicator; 0 if unknown.
        rank: Rank in the job.
        kind: NCCL's name of the operation.
        sequence: Number among the operations of this kind in the communicator, from 0.
        bytes: Bytes that one rank passes in; for ReduceScatter what one rank receives.
        microseconds: Time to the end from when this rank had reached it and the previous one of the communicator had
            ended on this rank; None for one that has not ended.
        start: Microseconds at which this rank reached it, on the clock of its GPU; None if unknown. A feed that cannot
            know it gives the start of the kernel, which is not before the end of the previous one.
        begun: Collectives of this kind that the rank has begun in the communicator; given for one that has not ended.
    """

    arrived: Seconds
    host: Host
    job: Name
    communicator: Identifier
    ranks: Ranks
    nodes: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
    rank: Rank
    kind: Kind
    sequence: Count
    bytes: Bytes
    microseconds: Microseconds | None = None
    start: float | None = None
    begun: Count | None = None


@dataclass(frozen=True, slots=True)
class Reporting:
    """How ranks report.

    Attributes:
        interval: Seconds between two reports of a rank, each rank with its own offset.
        loss: Share of the records that are lost.
        arrivals: Whether records have the time at which they were reached (`Record.start`).
        unfinished: Whether collectives that do not end are reported.
        end_noise: Microseconds by which a rank observes the common end later, at most.
    """

    interval: float = 1.0
    loss: float = 0.0
    arrivals: bool = True
    unfinished: bool = True
    end_noise: float = 5.0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Return a record as a line of JSON."""
    return _encoder.encode(record) + b"\n"


def decode_record(line: bytes) -> Record:
    """Parse a line.

    Raises:
        msgspec.DecodeError: It is not a record; the text names the field.
    """
    return _decoder.decode(line)


class Reporter:
    """Turns collectives of one run of a job into the records of its ranks."""

    def __init__(
        self, job: str, communicators: list[CommunicatorLayout], gpus_per_node: int, how: Reporting, seed: int, run: int
    ) -> None:
        """Create a reporter of one run: after a restart communicators have other identifiers, and GPUs other clocks."""
        self._job, self._communicators, self._gpus_per_node, self._how = job, communicators, gpus_per_node, how
        self._chance = Random(f"{seed} {run} reports")
        ranks = max((max(one.members) for one in communicators), default=0) + 1
        self._phases = [self._chance.random() * how.interval for _ in range(ranks)]
        self._clocks = [self._chance.random() * 1e9 for _ in range(ranks)]
        self._ends: dict[tuple[int, int], float] = {}
        self._names = [
            blake2b(f"{job} {seed} {run} {index}".encode(), digest_size=8).hexdigest()
            for index in range(len(communicators))
        ]

    def records(self, collectives: Iterable[Ended], until: float) -> Iterator[Record]:
        """Yield the records of collectives, not in order of their arrival."""
        chance, loss = self._chance, self._how.loss
        for one in collectives:
            for rank, start in one.starts.items():
                if one.end == NEVER:
                    if self._how.unfinished:
                        yield from self._unfinished(one, rank, start, until)
                elif loss and chance.random() < loss:
                    self._ends[rank, one.communicator] = one.end
                else:
                    yield self._ended(one, rank)

    def _ended(self, one: Ended, rank: int) -> Record:
        """Return the record of a collective; the rank observes its end, as that of the one before, somewhat late."""
        stream = rank, one.communicator
        before = self._ends.get(stream, -math.inf)
        end = self._ends[stream] = one.end + self._chance.random() * self._how.end_noise / MICROSECONDS
        took = max(end - max(before, one.reached[rank]), 0.0)
        return self._record(one, rank, self._arrival(rank, end), round(took * MICROSECONDS, 1))

    def _unfinished(self, one: Ended, rank: int, start: float, until: float) -> Iterator[Record]:
        """Yield the reports of a collective that a rank began."""
        arrived = self._arrival(rank, start)
        while arrived < until:
            if not self._how.loss or self._chance.random() >= self._how.loss:
                yield self._record(one, rank, arrived, None)
            arrived += UNFINISHED_SECONDS

    def _arrival(self, rank: int, time: float) -> float:
        """Return the time of the first report of a rank after a time."""
        phase, interval = self._phases[rank], self._how.interval
        return phase + math.ceil((time - phase) / interval) * interval

    def _record(self, one: Ended, rank: int, arrived: float, microseconds: float | None) -> Record:
        layout = self._communicators[one.communicator]
        return Record(
            round(arrived, 6),
            f"gpu-{rank // self._gpus_per_node:03}",
            self._job,
            self._names[one.communicator],
            len(layout.members),
            layout.nodes,
            rank,
            one.kind,
            one.sequence,
            one.size,
            microseconds,
            round(one.reached[rank] * MICROSECONDS + self._clocks[rank], 1) if self._how.arrivals else None,
            one.sequence + 1 if microseconds is None else None,
        )
