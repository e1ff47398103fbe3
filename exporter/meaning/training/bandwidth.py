"""Bus bandwidth of a job's collectives between nodes, compared with the bandwidth that the network should have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import NamedTuple

from exporter.core.collectives import bus_factor
from exporter.meaning.training.alignment import SILENT_SECONDS, nodes_of
from exporter.meaning.training.records import Communicator, Job, Traffic

MIN_BYTES = 1 << 20
"""Size of an operation below which its bandwidth is dominated by latency."""

RECENT_SECONDS = 30.0
"""Seconds of evidence from which the bandwidth is computed, or …"""

MIN_TICKS = 4
"""… this many ticks with traffic in them, however long they take."""

MORE_MISSING = 3.0
"""Standard deviations by which more last ranks may be missing by chance."""

MIN_HISTORY_TICKS = 10
"""Ticks with traffic before the highest bandwidth of the job itself is used as the expected one."""

MAX_SHAPES = 1024
"""Kinds, sizes and shapes of communicators of one job whose highest bandwidth is kept."""


class Shape(NamedTuple):
    """Shape of collectives: their kind, size in bytes (a power of two), ranks and nodes."""

    kind: str
    size: int
    ranks: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """Expected bus bandwidth in bytes per second.

    Attributes:
        measured: By kind and size, from nccl-tests.
        allowed: Returns what the links allow, by communicator and shape; None if they are unknown.
    """

    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    allowed: Callable[[str, Shape], float | None] = lambda _name, _shape: None


@dataclass(slots=True)
class BestBandwidth:
    """Highest bandwidth so far, and the number of ticks with traffic."""

    value: float = 0.0
    ticks: int = 0


def bus_bandwidth(kind: str, ranks: int, bytes_per_microsecond: float) -> float | None:
    """Return the bus bandwidth in bytes per second; None for kinds without a factor."""
    factor = bus_factor(kind, ranks)
    return None if factor is None else bytes_per_microsecond * 1e6 * factor


def bandwidth_shares(job: Job, history: dict[Shape, BestBandwidth], baseline: Baseline, now: float) -> dict[str, float]:
    """Return the share of the expected bandwidth that each communicator of a job reaches, with its slowest operations.

    A slow port slows all ranks of its ring equally, and other communicators of the job not at all.
    """
    shares: dict[str, float] = {}
    for key, by_name in speeds_between_nodes(job, now).items():
        if key not in history and len(history) >= MAX_SHAPES:
            del history[min(history, key=lambda shape: history[shape].ticks)]
        best = history.setdefault(key, BestBandwidth())
        best.ticks += 1
        best.value = max(best.value, sorted(by_name.values())[len(by_name) // 2])
        measured, own = baseline.measured.get(key[:2]), best.value if best.ticks >= MIN_HISTORY_TICKS else 0.0
        for name, speed in by_name.items():
            expected = measured or max(baseline.allowed(name, key) or 0.0, own)
            if expected:
                shares[name] = min(shares.get(name, inf), speed / expected)
    return shares


def speeds_between_nodes(job: Job, now: float) -> dict[Shape, dict[str, float]]:
    """Return the recent bus bandwidth of collectives between nodes, in bytes per second, by shape and communicator."""
    speeds: dict[Shape, dict[str, float]] = {}
    for name, communicator in job.communicators.items():
        nodes = nodes_of(job, communicator)
        if nodes > 1:  # others are limited by the links within a node
            for (kind, size), found in _recent_speeds(communicator, now).items():
                speed = bus_bandwidth(kind, communicator.ranks, found)
                if speed is not None:
                    speeds.setdefault(Shape(kind, size, communicator.ranks, nodes), {})[name] = speed
    return speeds


def by_kind(jobs: Mapping[str, Job]) -> dict[tuple[str, str], float]:
    """Return the bus bandwidth of each kind of each job in bytes per second, weighted by the time that it takes."""
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for name, job in jobs.items():
        for communicator in job.communicators.values():
            for (kind, size), moved in communicator.bus.items():
                took = moved.microseconds
                if size < MIN_BYTES or took <= 0:
                    continue
                speed = bus_bandwidth(kind, communicator.ranks, moved.size / took)
                if speed is not None:
                    amount, microseconds = sums.get((name, kind), (0.0, 0.0))
                    sums[name, kind] = (amount + speed * took, microseconds + took)
    return {key: amount / microseconds for key, (amount, microseconds) in sums.items()}


def moved_per_second(communicator: Communicator) -> dict[tuple[str, int], tuple[float, float]]:
    """Return bytes, and microseconds without waiting, per second over all ticks, by kind and size.

    What the first tick counts began before it, and does not count.
    """
    ticks = communicator.ticks
    span = ticks[-1].time - ticks[0].time if ticks else 0.0
    if not span:
        return {}
    found = {}
    for key, moved in communicator.bus.items():
        before = ticks[0].bus.get(key, Traffic())
        found[key] = (moved.size - before.size) / span, (moved.microseconds - before.microseconds) / span
    return found


def seconds_too_long(job: Job, shares: Mapping[str, float]) -> float:
    """Return the seconds per second that the collectives of one communicator take beyond the expected time.

    This is what a slow network costs, at most: computing may overlap with it.

    Args:
        job: The job.
        shares: Share of the expected bandwidth by communicator; that which loses most counts.
    """
    return max(
        ((1 - share) * _busy(job.communicators[name]) for name, share in shares.items() if name in job.communicators),
        default=0.0,
    )


def _busy(communicator: Communicator) -> float:
    """Return the seconds per second that the collectives of a communicator take, without waiting."""
    moved = moved_per_second(communicator)
    return min(sum(microseconds for (_, size), (_, microseconds) in moved.items() if size >= MIN_BYTES) / 1e6, 1.0)


def _recent_speeds(communicator: Communicator, now: float) -> dict[tuple[str, int], float]:
    """Return the middle speed of recent operations by kind and size, in bytes per microsecond.

    Operations without the time of the last rank to start appear slower than they were. If a share of the times is
    missing, so are about as many of those of last ranks, by chance more, and these operations are not among the
    fastest: the middle of the others is above the middle of all. Nothing is known of a communicator with a rank that
    reports nothing.
    """
    if communicator.expected and any(now - seen > SILENT_SECONDS for seen in communicator.members.values()):
        return {}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    ticks: dict[tuple[str, int], int] = {}
    for place, tick in enumerate(communicator.ticks, 1 - len(communicator.ticks)):
        if now - tick.time <= RECENT_SECONDS or place > -MIN_TICKS:
            for key, moved in tick.bus.items():
                if key[1] >= MIN_BYTES and moved.speeds:
                    found.setdefault(key, []).extend(moved.speeds)
                    ticks[key] = ticks.get(key, 0) + 1
    speeds = {}
    for key, operations in found.items():
        if ticks[key] >= MIN_TICKS:
            known = sum([share for _, share in operations]) / len(operations)
            least = max(known - MORE_MISSING * sqrt(known * (1 - known) / len(operations)), 0.0)
            ordered = sorted([speed for speed, _ in operations])
            speeds[key] = ordered[int((1 - least / 2) * (len(ordered) - 1) + 0.5)]
    return speeds
