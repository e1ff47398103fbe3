"""Long periods: those of hundreds of operations, in which a reset is an edge between many operations.

From one operation to the next little changes but noise. What shows a step of many small layers is how late ranks are on
average before and after: where records are lost, too.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from math import log

from exporter.meaning.training.periods import MIN_REPETITIONS, SAME, correlation, find_period, normalised
from exporter.meaning.training.teeth import FLOOR, FLOOR_SHARE, Lateness, high, of_last, of_others

WIDTH = 16
"""Operations before and after an edge."""

STRIDE = 8
"""Operations from one edge to the next, where a period is searched."""

SMALLEST = 96
"""Operations of a long period, at least."""

SHARP_WIDTH = 4
"""Operations before and after an edge, where the exact period is searched."""


def find_long_period(values: Mapping[int, Lateness], known: int | None = None) -> int | None:
    """Return the long period of a series, the known one if it is right; None if it has none."""
    if len(values) < MIN_REPETITIONS * SMALLEST:
        return None
    for row in _edges(values, WIDTH, STRIDE):
        period = find_period(row, SMALLEST // STRIDE, 2 * WIDTH // STRIDE)
        if period is not None:
            about = period * STRIDE
            return exact_period(values, about if known is None or abs(known - about) > STRIDE else known)
    return None


def exact_period(values: Mapping[int, Lateness], about: int) -> int:
    """Return a long period, or one near it at which, and at whose multiples, a series resembles itself more."""
    rows = _edges(values, SHARP_WIDTH, 1)
    near = range(about - STRIDE, about + STRIDE + 1)
    found = {period: sum(_resembles(row, period) for row in rows) for period in near}
    best = max(found, key=found.__getitem__)
    return about if found[about] >= SAME * found[best] else best


def _resembles(row: list[float], period: int) -> float:
    """Return the mean correlation at the multiples of a period, the last of which is of a whole one."""
    multiples = range(period, max(len(row) - period, period) + 1, period)
    return sum(correlation(row, shift) for shift in multiples) / len(multiples)


def _edges(values: Mapping[int, Lateness], width: int, stride: int) -> list[list[float]]:
    """Return by how much lateness is higher after an operation than before, of the others and of the last rank."""
    attempts: list[tuple[Callable[[Lateness], float], float]] = [
        (of_others, FLOOR),
        (of_last, max(FLOOR, FLOOR_SHARE * high(values))),
    ]
    found = (normalised(_edges_of(values, which, floor, width, stride)) for which, floor in attempts)
    return [row for row in found if row is not None]


def _edges_of(
    values: Mapping[int, Lateness], which: Callable[[Lateness], float], floor: float, width: int, stride: int
) -> list[float]:
    numbers = range(min(values), max(values) + 1)
    known = [values.get(number) for number in numbers]
    sums = [0.0, *accumulate(0.0 if one is None else log(floor + which(one)) for one in known)]
    counts = [0, *accumulate(one is not None for one in known)]

    def mean(begin: int, end: int) -> float:
        return (sums[end] - sums[begin]) / max(counts[end] - counts[begin], 1)

    return [
        mean(at, at + width) - mean(at - width, at) if counts[at - width] < counts[at] < counts[at + width] else 0.0
        for at in range(width, len(known) - width, stride)
    ]
