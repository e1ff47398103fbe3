"""Baseline of the bus bandwidth of collectives, from benchmark results at some sizes.

A baseline that is too high would report a slow network that is not, so that between two sizes the lower result is used.
"""

from collections.abc import Iterable, Mapping

from exporter.core.collectives import SYNCHRONISING
from exporter.meaning.training.alignment import size_bucket
from exporter.meaning.training.bandwidth import MIN_BYTES, Baseline

MAX_SIZE = 1 << 40
"""Size up to which the bandwidth of the largest measured operation is expected."""


def baseline(measurements: Iterable[Mapping[tuple[str, int], float]]) -> Baseline:
    """Return a baseline of bus bandwidths by kind and size, in bytes per second.

    Of several results for one size the highest is used; of several sizes in one bucket the lowest, as operations of the
    bucket may be as small. Buckets between two measured ones get the lower of both, those above the last one its
    bandwidth, which hardly changes there. Below the first one nothing is known.

    Args:
        measurements: Results of each run of the benchmark.
    """
    best: dict[tuple[str, int], float] = {}
    for measured in measurements:
        for key, bandwidth in measured.items():
            best[key] = max(bandwidth, best.get(key, 0.0))
    lowest: dict[str, dict[int, float]] = {}
    for (kind, size), bandwidth in best.items():
        if kind in SYNCHRONISING and size >= MIN_BYTES and bandwidth > 0:
            buckets = lowest.setdefault(kind, {})
            bucket = size_bucket(size)
            buckets[bucket] = min(bandwidth, buckets.get(bucket, bandwidth))
    filled = {(kind, size): found for kind, buckets in lowest.items() for size, found in _filled(buckets).items()}
    return Baseline(filled)


def _filled(buckets: Mapping[int, float]) -> dict[int, float]:
    """Fill the gaps between measured buckets, and the buckets above the last."""
    known = sorted(buckets)
    filled: dict[int, float] = {}
    for below, above in zip(known, [*known[1:], None], strict=True):
        size = below
        while size < (above or MAX_SIZE + 1):
            lower = buckets[below] if above is None or size == below else min(buckets[below], buckets[above])
            filled[size] = lower
            size <<= 1
    return filled
