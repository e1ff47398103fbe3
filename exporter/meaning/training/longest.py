"""The longest collective of the last minute over the mean of those that are like it.

Those alike have one kind, size, ranks and nodes. Only collectives count whose ranks all report here: of others it is
unknown how long the last rank took, so that one that writes a checkpoint would look like a slow network. The first
minute of a shape does not count either, as NCCL connects ranks when it is first used.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.core.vocabulary import Ending, gauge
from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.bandwidth import MAX_SHAPES, Shape
from exporter.meaning.training.durations import size_class
from exporter.meaning.training.records import Job, Traffic

WINDOW_SECONDS = 60.0
"""Seconds over which the longest and the mean are taken."""

WARM_UP_SECONDS = 60.0
"""Seconds after the first collective of a shape in which it does not count."""

MIN_OPERATIONS = 20
"""Collectives of a shape from which a mean says what is usual: one of n is at most n times the mean."""

LONGEST: Mapping[str, Ending] = MappingProxyType(
    {
        "collective_longest_ratio": gauge(
            "Longest time of a collective in the last minute over the mean of those of its kind, ranks, nodes and size"
            " (to a power of two), the highest of the size class; times are those of the last rank to start. Only of"
            " collectives whose ranks all report here; absent below 20 of them, and in their first minute."
        )
    }
)
"""By job, kind and size class."""


@dataclass(slots=True)
class _Alike:
    """Collectives that are alike, settled at one time: their number, microseconds, and those of the longest."""

    count: int = 0
    microseconds: float = 0.0
    longest: float = 0.0

    def add(self, count: int, microseconds: float, longest: float) -> None:
        self.count += count
        self.microseconds += microseconds
        self.longest = max(self.longest, longest)


@dataclass(slots=True)
class RecentTimes:
    """Times of collectives of one job.

    Attributes:
        begun: Time of the first collective of each shape.
        recent: Time of each evaluation of the last minute, with what was settled then.
    """

    begun: dict[Shape, float] = field(default_factory=dict)
    recent: deque[tuple[float, Mapping[Shape, _Alike]]] = field(default_factory=deque)


def observe(times: RecentTimes, job: Job, now: float) -> None:
    """Add what was settled now, and drop what is older than a minute."""
    settled: dict[Shape, _Alike] = {}
    for shape, moved in _settled_now(job, now):
        if shape in times.begun or len(times.begun) < MAX_SHAPES:
            begun = times.begun.setdefault(shape, now)
            if now - begun >= WARM_UP_SECONDS:
                settled.setdefault(shape, _Alike()).add(moved.whole, moved.whole_microseconds, moved.longest)
    if settled:
        times.recent.append((now, settled))
    while times.recent and now - times.recent[0][0] > WINDOW_SECONDS:
        times.recent.popleft()


def _settled_now(job: Job, now: float) -> Iterable[tuple[Shape, Traffic]]:
    """Yield the traffic settled now in which there are collectives of all ranks."""
    for communicator in job.communicators.values():
        if communicator.ticks and communicator.ticks[-1].time == now:
            for (kind, size), moved in communicator.ticks[-1].bus.items():
                if moved.whole:
                    yield Shape(kind, size, communicator.ranks, nodes_of(job, communicator)), moved


def ratios(times: RecentTimes) -> dict[tuple[str, str], float]:
    """Return the longest time over the mean, by kind and size class."""
    sums: dict[Shape, _Alike] = {}
    for _, settled in times.recent:
        for shape, one in settled.items():
            sums.setdefault(shape, _Alike()).add(one.count, one.microseconds, one.longest)
    found: dict[tuple[str, str], float] = {}
    for shape, one in sums.items():
        if one.count >= MIN_OPERATIONS:
            key = shape.kind, size_class(shape.size)
            found[key] = max(found.get(key, 0.0), one.longest * one.count / one.microseconds)
    return found
