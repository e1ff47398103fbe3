"""Patterns in the lateness of the operations of a communicator, which repeat with each step.

The period is that of the changes of lateness from one operation to the next. Where lateness is carried, the pattern has
teeth; where each collective blocks the pass, what repeats is which operations are late.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log, sqrt
from statistics import median

from exporter.meaning.training.long_periods import find_long_period
from exporter.meaning.training.periods import (
    MIN_REPETITIONS,
    NEAR,
    SAME,
    correlation,
    find_period,
    is_even,
    least_correlation,
    normalised,
)
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

NEIGHBOURS = 2
"""Operations before and after one that show whether its last rank is missing: another one is in …"""

MOST_NEIGHBOURS = 0.5
"""… this share of them, and …"""

MISSING = 2.0
"""… so many times later."""

MIN_BLOCKED = 0.5
"""Correlation from which on a pattern counts in which lateness is not carried, or …"""

MIN_BLOCKED_SIGMAS = 5.0
"""… so many standard deviations of the correlation by chance, if that is more."""

MAX_CHANGE = 1.5
"""Change of the logarithm of lateness from one operation to the next that is more than a reset."""

PASSED_ON = 0.5
"""Correlation of lateness from one operation to the next from which on it is passed on."""


def is_passed_on(values: Mapping[int, Lateness]) -> bool:
    """Return whether lateness passes from an operation to the next: then steps are longer than what was seen."""
    row = normalised([log(FLOOR + values[number].others) for number in sorted(values)])
    return row is not None and correlation(row, 1) > PASSED_ON


def without_missing(values: Mapping[int, Lateness]) -> dict[int, Lateness]:
    """Return the operations without those whose last rank is missing: that of most around them, which is far later.

    Where all ranks reported, another rank was the last one.
    """
    found = dict(values)
    for number, one in values.items():
        if one.whole:
            continue
        near = [found[at] for at in range(number - NEIGHBOURS, number + NEIGHBOURS + 1) if at in found and at != number]
        later = [other.rank for other in near if other.rank != one.rank and other.last > MISSING * one.last]
        if later and max(map(later.count, later)) >= MOST_NEIGHBOURS * len(near):
            del found[number]
    return found


def find_pattern(values: Mapping[int, Lateness], before: Pattern | None = None) -> Pattern | None:
    """Return the pattern in a series, or None.

    Its period is that of the other ranks' lateness, since the last one may be missing, or far too late to vary; or else
    of that of the last one. Patterns in which lateness is carried come first.

    Args:
        values: Lateness by sequence number.
        before: The pattern that was found before: its period is tried first, and shows it still if nothing else does.
    """
    rows = list(_rows(values))
    known = None if before is None else before.period
    again = None if known is None else _nearest(rows, known, 1)
    pattern = _teeth_of(values, again, MAX_SERIES)
    if pattern is not None:
        return pattern
    periods = [find_period(row) for row in rows]
    tried = {again}
    for row, period in zip(rows, periods, strict=True):
        near = None if period is None else _nearest(rows, period, period // NEAR)
        pattern = None if near in tried else _teeth_of(values, near, len(row))
        if pattern is not None:
            return pattern
        tried.add(near)
    pattern = _teeth_of(values, find_long_period(values, known), len(values))
    if pattern is not None:
        return pattern
    for row, period in [*((row, known) for row in rows), *zip(rows, periods, strict=True)]:
        if (
            period is not None
            and period < len(row)
            and correlation(row, period) >= max(MIN_BLOCKED, MIN_BLOCKED_SIGMAS / sqrt(len(row)))
        ):
            return Pattern(period, 0, ())
    return before if again == known else None


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
        row = normalised(changes)
        if row is not None:
            yield row


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


def _nearest(rows: Sequence[Sequence[float]], known: int, apart: int) -> int | None:
    """Return a period, or one near it that any of the rows shows better; None if none shows it."""
    found: dict[int, float] = {}
    for row in rows:
        for shift in range(known - apart, min(known + apart, len(row) // MIN_REPETITIONS) + 1):
            one = correlation(row, shift)
            if one > max(found.get(shift, 0.0), least_correlation(len(row))) and is_even(row, shift, one):
                found[shift] = one
    best = max(found, key=found.__getitem__, default=None)
    return known if best is not None and found.get(known, 0.0) >= SAME * found[best] else best
