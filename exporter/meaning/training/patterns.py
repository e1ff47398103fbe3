"""Patterns in the lateness of the operations of a communicator, which repeat with each step.

The period is that of the changes of lateness from one operation to the next. Where lateness is carried, the pattern has
teeth; where each collective blocks the pass, what repeats is which operations are late.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log, sqrt
from statistics import median

from exporter.meaning.training.teeth import (
    FLOOR,
    FLOOR_SHARE,
    TOGETHER,
    Lateness,
    Pattern,
    find_teeth,
    high,
    of_last,
    of_others,
)

MAX_SERIES = 1024
"""Operations of one communicator in which a pattern is searched."""

KEPT_SERIES = 2048
"""The same, of which the lateness at each place of a step is taken: a step may have 600."""

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

MIN_BLOCKED = 0.5
"""Correlation from which on a pattern counts in which lateness is not carried, or …"""

MIN_BLOCKED_SIGMAS = 5.0
"""… so many standard deviations of the correlation by chance, if that is more."""

MAX_CHANGE = 1.5
"""Change of the logarithm of lateness from one operation to the next that is more than a reset."""

MIN_POWER = 1e-4
"""Mean square of the changes below which there is no pattern."""

PASSED_ON = 0.5
"""Correlation of lateness from one operation to the next from which on it is passed on."""


def is_passed_on(values: Mapping[int, Lateness]) -> bool:
    """Return whether lateness passes from an operation to the next: then steps are longer than what was seen."""
    row = [log(FLOOR + values[number].others) for number in sorted(values)]
    mean = sum(row) / len(row)
    row = [one - mean for one in row]
    power = sum(one * one for one in row) / len(row)
    return power >= MIN_POWER and _correlation(row, 1) > PASSED_ON * power


def find_pattern(values: Mapping[int, Lateness], known: int | None = None) -> Pattern | None:
    """Return the pattern in a series, or None.

    Its period is that of the other ranks' lateness, since the last one may be missing, or far too late to vary; or else
    of that of the last one. Patterns in which lateness is carried come first.

    Args:
        values: Lateness by sequence number.
        known: The period that was found before: it is tried first.
    """
    rows = list(_rows(values))
    if known is not None:
        for row in rows:
            pattern = _teeth_of(values, _near(row, known), len(row))
            if pattern is not None:
                return pattern
    periods = [_period(row) for row in rows]
    for row, period in zip(rows, periods, strict=True):
        pattern = _teeth_of(values, period, len(row))
        if pattern is not None:
            return pattern
    for row, period in [*((row, known) for row in rows), *zip(rows, periods, strict=True)]:
        if (
            period is not None
            and period < len(row)
            and _correlation(row, period) >= max(MIN_BLOCKED, MIN_BLOCKED_SIGMAS / sqrt(len(row)))
        ):
            return Pattern(period, 0, ())
    return None


def _rows(values: Mapping[int, Lateness]) -> Iterator[list[float]]:
    """Yield the changes of lateness from one operation to the next, as logarithms, in which a period is searched.

    Their mean is 0, and the mean of their squares 1.
    """
    last = max(values)
    first = max(min(values), last - MAX_SERIES)
    alone = _unqueued(values)
    attempts: list[tuple[Mapping[int, Lateness], Callable[[Lateness], float], float]] = [
        (values, of_others, FLOOR),
        (values, of_last, FLOOR),
        (values, of_last, max(FLOOR, FLOOR_SHARE * high(values))),
    ]
    if 2 * len(alone) > len(values):
        attempts.insert(0, (alone, of_others, FLOOR))
    for seen, which, floor in attempts:
        logarithms = {number: log(floor + which(one)) for number, one in seen.items()}
        changes = [_change(logarithms, number) for number in range(first, last)]
        mean = sum(changes) / max(len(changes), 1)
        power = sum((one - mean) ** 2 for one in changes) / max(len(changes), 1)
        if power >= MIN_POWER:
            yield [(one - mean) / sqrt(power) for one in changes]


def _teeth_of(values: Mapping[int, Lateness], period: int | None, count: int) -> Pattern | None:
    """Return the teeth of a period, or of two: passes may be alike in part."""
    if period is None:
        return None
    pattern = find_teeth(values, period)
    return find_teeth(values, 2 * period) if pattern is None and 2 * period * MIN_REPETITIONS <= count else pattern


def _unqueued(values: Mapping[int, Lateness]) -> dict[int, Lateness]:
    """Return the operations that the others did not start together: in some steps a late rank may hide the pattern."""
    most = sorted(one.others for one in values.values())[len(values) * 9 // 10]
    usual = median(one.last for one in values.values())
    return {number: one for number, one in values.items() if one.others > TOGETHER * most or one.last < usual}


def _change(values: Mapping[int, float], number: int) -> float:
    """Return by how much the logarithm of the lateness grows to the next operation; 0 where one of both is missing.

    How late ranks are varies from step to step more than within a step, which cancels.
    """
    if number not in values or number + 1 not in values:
        return 0.0
    return max(-MAX_CHANGE, min(values[number + 1] - values[number], MAX_CHANGE))


def _correlation(row: Sequence[float], shift: int) -> float:
    count = len(row) - shift
    return sum(map(float.__mul__, row[:count], row[shift:])) / count


def _near(row: Sequence[float], known: int) -> int | None:
    """Return a known period, or the next to it that is better; None if it is found no more."""
    if len(row) < known * MIN_REPETITIONS:
        return None
    found = {shift: _correlation(row, shift) for shift in (known - 1, known, known + 1)}
    best = max(found, key=found.__getitem__)
    best = known if found[known] >= SAME * found[best] else best
    return best if found[best] >= _least(row) else None


def _least(row: Sequence[float]) -> float:
    """Return the correlation that is not by chance."""
    return max(MIN_CORRELATION, MIN_SIGMAS / sqrt(len(row)))


def _period(row: Sequence[float]) -> int | None:
    """Return the smallest shift at which the series resembles itself, as a peak of the correlation."""
    largest = len(row) // MIN_REPETITIONS
    found = [1.0] + [_correlation(row, shift) for shift in range(1, largest + 2)]
    best = max(found[2 : largest + 1], default=0.0)
    lowest, least = found[1], _least(row)
    for shift in range(2, largest + 1):
        one = found[shift]
        lowest = min(lowest, found[shift - 1])
        is_peak = one >= found[shift - 1] and one >= found[shift + 1]
        if is_peak and one >= least and one >= SMALLEST * best and one - lowest >= MIN_CONTRAST:
            near = range(shift, min(shift + max(shift // NEAR, 1), largest) + 1)
            return max(near, key=found.__getitem__)
    return None
