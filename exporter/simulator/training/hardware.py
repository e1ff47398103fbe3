"""Hardware of a simulated job: how long computing and transfers take, with what varies and what is at fault."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from exporter.simulator.training.engine import NEVER
from exporter.simulator.training.faults import (
    Compilation,
    DeadAdapter,
    Event,
    RotatingWork,
    SlowAdapter,
    SlowHost,
    SlowNetwork,
    SlowRank,
    Stall,
    StoppedRank,
)
from exporter.simulator.training.programs import CommunicatorLayout, Compute, Instruction, Layout

SMALL = 64 << 10
"""Bytes below which a transfer has latency only."""


@dataclass(frozen=True, slots=True)
class Variation:
    """What varies in a healthy job: standard deviations of logarithms, and pauses.

    Attributes:
        gpus: Speed of GPUs, constant over the run.
        work: Work of a rank in a step.
        transfers: Time of a transfer.
        pauses: Number of pauses of each process in a minute, such as those of garbage collection.
        pause_seconds: Mean length of a pause.
    """

    gpus: float = 0.005
    work: float = 0.01
    transfers: float = 0.04
    pauses: float = 0.2
    pause_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second of one GPU's links within a node and of its adapter, and the latency of a collective."""

    inside: float = 350e9
    between: float = 45e9
    latency: float = 30e-6


class Hardware:
    """Computes the durations of one run; the same seed gives the same durations."""

    def __init__(
        self,
        layout: Layout,
        events: Iterable[Event],
        variation: Variation,
        bandwidth: Bandwidth,
        gpus_per_node: int,
        seed: int,
    ) -> None:
        """Create the hardware of one run."""
        self._layout, self._events, self._variation, self._bandwidth = layout, tuple(events), variation, bandwidth
        self._gpus_per_node = gpus_per_node
        self._chance = Random(seed)
        self._speeds = [math.exp(self._chance.gauss(0, variation.gpus)) for _ in range(layout.ranks)]
        self._compiling = [one for one in self._events if isinstance(one, Compilation)]
        self._stopped = {one.rank: one.at for one in self._events if isinstance(one, StoppedRank)}
        self._adapters = [one for one in self._events if isinstance(one, SlowAdapter | DeadAdapter)]
        self._networks = [one for one in self._events if isinstance(one, SlowNetwork)]

    def program(self, rank: int, step: int, time: float) -> Sequence[Instruction]:
        """Return the program of a step, with the stalls at its beginning."""
        chance, variation = self._chance, self._variation
        work = math.exp(chance.gauss(0, variation.work)) * self._speeds[rank]
        stalls: list[Instruction] = []
        for one in self._events:
            if isinstance(one, Stall):
                if step >= one.first and (step - one.first) % one.every == 0 and (not one.ranks or rank in one.ranks):
                    stalls.append(Compute(one.seconds / self._speeds[rank]))
            else:
                work *= self._factor(one, rank, step, time)
        return [*stalls, *self._layout.program(rank, work)]

    def _factor(self, event: Event, rank: int, step: int, time: float) -> float:
        """Return the factor by which an event multiplies the work of a rank."""
        match event:
            case SlowRank() if event.rank == rank and step % event.every == 0 and event.active(time):
                return 1 + event.share
            case SlowHost() if event.host == rank // self._gpus_per_node and event.active(time):
                return 1 + event.share
            case RotatingWork() if event.active(time):
                groups = max(self._layout.ranks // event.ranks, 1)
                turn = Random(step // event.steps).randrange(groups)
                return 1 + event.share if rank // event.ranks == turn else 1.0
            case Compilation() if step < event.steps:
                return 1 + (event.factor - 1) * self._chance.random()
        return 1.0

    def compute(self, rank: int, time: float, seconds: float) -> float:
        """Return the seconds that computing takes, with pauses; NEVER for a rank that stopped."""
        if time + seconds >= self._stopped.get(rank, NEVER):
            return NEVER
        if self._chance.random() < self._variation.pauses * seconds / 60:
            return seconds + self._chance.expovariate(1 / self._variation.pause_seconds)
        return seconds

    def transfer(self, communicator: int, kind: str, size: int, time: float) -> float:
        """Return the seconds of a transfer; NEVER where an adapter is dead."""
        layout, bandwidth = self._layout.communicators[communicator], self._bandwidth
        speed = bandwidth.inside
        if layout.nodes > 1:
            share = self._share(layout, time)
            if share == 0.0:
                return NEVER
            speed = bandwidth.between * share
            if layout.nodes < len(layout.members):  # one ring for each adapter of a node, each with a part of the data
                speed *= len(layout.members) / layout.nodes
                speed = min(speed, bandwidth.inside)
        moved = size * bus_bytes(kind, len(layout.members)) if size >= SMALL else 0.0
        return bandwidth.latency + moved / speed * math.exp(self._chance.gauss(0, self._variation.transfers))

    def _share(self, layout: CommunicatorLayout, time: float) -> float:
        """Return the share of the bandwidth that the slowest adapter of a communicator has."""
        share = 1.0
        for network in self._networks:
            if network.active(time):
                share = min(share, network.share)
        for one in self._adapters:
            if not any(self._is_at(one, rank) for rank in layout.members):
                continue
            if isinstance(one, DeadAdapter):
                share = 0.0 if time >= one.at else share
            elif one.active(time):
                share = min(share, one.share * math.exp(self._chance.gauss(0, one.variation)))
        return share

    def _is_at(self, adapter: SlowAdapter | DeadAdapter, rank: int) -> bool:
        host, place = divmod(rank, self._gpus_per_node)
        return place == adapter.place and adapter.host in {None, host}


def bus_bytes(kind: str, ranks: int) -> float:
    """Return the bytes that a rank sends for each byte that it passes in, by rings (nccl-tests, doc/PERFORMANCE.md)."""
    if kind == "AllReduce":
        return 2 * (ranks - 1) / ranks
    if kind == "AllGather":
        return ranks - 1
    if kind == "ReduceScatter":
        return ranks - 1
    if kind == "AlltoAll":
        return (ranks - 1) / ranks
    return 1.0
