"""Periods: at which shift a series resembles itself."""

from collections.abc import Iterable, Sequence
from math import sqrt
from operator import mul

MIN_REPETITIONS = 3
"""Times that a pattern must repeat."""

MIN_CORRELATION = 0.25
"""Correlation of the series with itself, shifted by its period, or …"""

MIN_SIGMAS = 3.5
"""… as many standard deviations of the correlation by chance, if that is more …"""

MIN_CONTRAST = 0.3
"""… and how much more that is than at a smaller shift."""

SAME = 0.8
"""Correlation at a known period over that at the next one, from which on it is still the period."""

NEAR = 50
"""Part of a period within which a higher correlation shows the period better."""

SMALLEST = 0.45
"""Correlation over the highest one from which on the smallest shift is the period: some steps hide theirs."""

MIN_EVEN = 0.5
"""Correlation of all periods with the next one but the best over that of all."""

MIN_POWER = 1e-4
"""Mean square of the changes below which there is no pattern."""


def normalised(row: Sequence[float]) -> list[float] | None:
    """Return a series whose mean is 0 and whose mean square is 1; None if it does not vary."""
    mean = sum(row) / max(len(row), 1)
    power = sum((one - mean) ** 2 for one in row) / max(len(row), 1)
    return [(one - mean) / sqrt(power) for one in row] if power >= MIN_POWER else None


def correlation(row: Sequence[float], shift: int) -> float:
    """Return the correlation of a series with itself."""
    products: Iterable[float] = map(mul, row, row[shift:])
    return sum(products) / (len(row) - shift)


def least_correlation(independent: int) -> float:
    """Return the correlation that so many independent values do not have by chance."""
    return max(MIN_CORRELATION, MIN_SIGMAS / sqrt(independent))


def is_even(row: Sequence[float], shift: int, found: float) -> bool:
    """Return whether not just one period resembles the next one: by chance two pauses make one that does."""
    products: list[float] = list(map(mul, row, row[shift:]))
    parts = [sum(products[begin : begin + shift]) / shift for begin in range(0, len(products) - shift + 1, shift)]
    return sum(parts) - max(parts) >= MIN_EVEN * found * (len(parts) - 1)


def find_period(row: Sequence[float], smallest: int = 2, part: int = 1) -> int | None:
    """Return the smallest shift at which a series resembles itself, as a peak of the correlation.

    Args:
        row: The series.
        smallest: The smallest shift that may be found.
        part: Number of values of which one is independent of those before.
    """
    largest = len(row) // MIN_REPETITIONS
    if largest < smallest:
        return None
    found = [1.0] + [correlation(row, shift) for shift in range(1, largest + 2)]
    best = max(found[smallest : largest + 1])
    lowest, least = min(found[1:smallest]), least_correlation(len(row) // part)
    for shift in range(smallest, largest + 1):
        one = found[shift]
        lowest = min(lowest, found[shift - 1])
        is_peak = one >= found[shift - 1] and one >= found[shift + 1]
        if is_peak and one >= least and one >= SMALLEST * best and one - lowest >= MIN_CONTRAST:
            near = range(shift, min(shift + max(shift // NEAR, 1), largest) + 1)
            highest = max(near, key=found.__getitem__)
            if is_even(row, highest, found[highest]):
                return highest
    return None
