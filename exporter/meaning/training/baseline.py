"""A baseline for the bandwidth of collectives, from measurements at some sizes.

What is too high would blame the network for what it never did, so that between two sizes the lower one counts.
"""

from collections.abc import Iterable, Mapping

from exporter.core.collectives import SYNCHRONISING
from exporter.meaning.training.alignment import size_bucket
from exporter.meaning.training.verdicts import LEAST_BYTES, Baseline

LARGEST = 1 << 40
"""Size up to which what the largest measured operation reached is expected."""


def baseline(measurements: Iterable[Mapping[tuple[str, int], float]], theory: float | None = None) -> Baseline:
    """Make a baseline of bus bandwidths by kind and size, in bytes per second.

    Of several measurements of one size the best counts; of several sizes of one bucket the lowest, which operations of
    the bucket may be as small as. Buckets between two that were measured get the lower of both, and those above the
    last get what that reached, for bandwidth hardly changes there. Below the first nothing is known.

    Args:
        measurements: One for each run of the benchmark.
        theory: What the links can do, where nothing was measured.
    """
    best: dict[tuple[str, int], float] = {}
    for measured in measurements:
        for key, bandwidth in measured.items():
            best[key] = max(bandwidth, best.get(key, 0.0))
    lowest: dict[str, dict[int, float]] = {}
    for (kind, size), bandwidth in best.items():
        if kind in SYNCHRONISING and size >= LEAST_BYTES and bandwidth > 0:
            buckets = lowest.setdefault(kind, {})
            bucket = size_bucket(size)
            buckets[bucket] = min(bandwidth, buckets.get(bucket, bandwidth))
    filled = {(kind, size): found for kind, buckets in lowest.items() for size, found in _filled(buckets).items()}
    return Baseline(filled, theory)


def _filled(buckets: Mapping[int, float]) -> dict[int, float]:
    """Fill the gaps between measured buckets, and the room above."""
    known = sorted(buckets)
    filled: dict[int, float] = {}
    for below, above in zip(known, [*known[1:], None], strict=True):
        size = below
        while size < (above or LARGEST + 1):
            lower = buckets[below] if above is None or size == below else min(buckets[below], buckets[above])
            filled[size] = lower
            size <<= 1
    return filled
