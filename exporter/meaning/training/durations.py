"""Distribution of the times of collectives, by kind and size class.

The time of a collective is that of the last rank to start among those that report here, so that it does not contain
what they waited for each other. It counts if all of these reported it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType

from exporter.core.table import HistogramValue
from exporter.core.vocabulary import Ending, histogram

SMALL_BYTES, LARGE_BYTES = 1 << 20, 1 << 26
"""Sizes from which collectives are medium, and large: latency dominates the time of small ones, and pipelining over
many chunks hides it in large ones."""

HELP = (
    "Time of a collective, from the start of the last rank to the end, so without waiting; of those that all ranks"
    " reported that report here. Size classes: small below 1 MiB, medium below 64 MiB, large from there. Only ranks of"
    " this host report to a host without a collector: then the time contains their waiting for ranks of other hosts."
)

DURATIONS: Mapping[str, Ending] = MappingProxyType(
    {"collective_transfer_seconds": histogram(HELP, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)}
)
"""By job, kind and size class."""

BUCKETS = DURATIONS["collective_transfer_seconds"].buckets
_BOUNDS = tuple(bound * 1e6 for bound in BUCKETS)


@dataclass(slots=True)
class _Class:
    """Collectives of one kind and size class: their number by bucket, +Inf last, and the sum of their microseconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    microseconds: float = 0.0


@dataclass(slots=True)
class Durations:
    """Collectives of one job, by kind and size class."""

    classes: dict[tuple[str, str], _Class] = field(default_factory=dict)

    def add(self, kind: str, size: float, microseconds: float) -> None:
        """Add a collective of a size in bytes."""
        key = kind, size_class(size)
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = _Class()
        found.counts[bisect_left(_BOUNDS, microseconds)] += 1
        found.microseconds += microseconds

    def histograms(self) -> dict[tuple[str, str], HistogramValue]:
        """Return the histogram of each kind and size class, in seconds."""
        return {
            key: HistogramValue(tuple(accumulate(one.counts)), one.microseconds / 1e6)
            for key, one in self.classes.items()
        }


def size_class(size: float) -> str:
    """Return the class of a size in bytes."""
    return "small" if size < SMALL_BYTES else "medium" if size < LARGE_BYTES else "large"
