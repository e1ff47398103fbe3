"""Patterns in the lateness of the operations of a communicator, which repeat with each step.

Where a pass computes on while its collectives run, a rank that is slow by a little is later with each operation, and
the others wait once, at the end of the pass: lateness is carried, grows like the teeth of a saw, and is reset. Where
each collective blocks the pass, all ranks leave it together, and lateness begins at zero again; what repeats is which
operations are late.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import log, sqrt
from statistics import median
from typing import NamedTuple

import msgspec

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

SAME_PHASE = 16
"""Part of a period by which the phase of the same pattern may differ."""

SMALLEST = 0.45
"""Correlation over the highest one from which on the smallest shift is the period: some steps hide theirs."""

MAX_FALLS = 0.3
"""Falls within a tooth over its rises, at most."""

TOGETHER = 0.15
"""Mean lateness of the others, over the most in a step, below which they start together: their operation was queued."""

MIN_LEVEL = 0.5
"""Lateness of the last rank, over the most in a step, while the others start together."""

MIN_FULLNESS = 0.25
"""Lateness in the operations before the latest one over that of it: little for an operation that is late alone."""

MIN_BLOCKED = 0.5
"""Correlation from which on a pattern counts in which lateness is not carried, or …"""

MIN_BLOCKED_SIGMAS = 5.0
"""… so many standard deviations of the correlation by chance, if that is more."""

MIN_LEVEL_SHARE = 0.2
"""Share of a step's operations that the others start together, from which on lateness is at its level."""

MAX_RESETS = 4
"""Resets in a step, at most, with …"""

MAX_JUMP = 0.6
"""Highest rise from one operation to the next over all rises of a tooth, at most: operations of the backward pass are
later than those of the forward pass also where they block."""

MIN_TOOTH = 3
"""… so many operations between them at least, on average."""

MIN_RESET = 0.2
"""Lateness over the most in a step that a reset ends, at least, and …"""

RESET = 0.5
"""… what is left of it, at most."""

MIN_PAIRS = 12
"""Operations with the next one that show whether lateness is carried from one to the next."""

MIN_SAME = 0.3
"""Share of these with the same last rank, at least: records of some may be lost; or …"""

MORE_SAME = 0.15
"""… so much more than by chance."""

ENOUGH_VALUES = 8
"""Values at a place of which the middle one counts."""

MIN_SMOOTHED = 100
"""Operations of a period from which on a place that differs from all around it is noise: there are few of each."""

MAX_CHANGE = 1.5
"""Change of the logarithm of lateness from one operation to the next that is more than a reset."""

MIN_POWER = 1e-4
"""Mean square of the changes below which there is no pattern."""

FLOOR = 50.0
"""Microseconds that are added to lateness before its logarithm is compared."""

FLOOR_SHARE = 0.1
"""The same over the highest lateness, where small differences are noise."""

PASSED_ON = 0.5
"""Correlation of lateness from one operation to the next from which on it is passed on."""


class Lateness(msgspec.Struct, frozen=True, gc=False):
    """Lateness in one operation.

    Attributes:
        last: Microseconds of the last rank to start.
        others: Mean of those between the median and the last quarter.
        rank: The last rank.
    """

    last: float
    others: float
    rank: str


class Pattern(NamedTuple):
    """A pattern in lateness, which grows and is reset, or repeats without being carried.

    Attributes:
        period: Operations until the pattern repeats.
        phase: Sequence number of the first operation of the pattern, modulo the period.
        resets: Places in the pattern where lateness begins at zero, from 0: the forward and the backward pass may each
            have one. Empty if lateness is not carried from one operation to the next.
    """

    period: int
    phase: int
    resets: tuple[int, ...] = (0,)

    def is_like(self, other: "Pattern") -> bool:
        """Return whether another pattern is the same, but for a small difference of the phases."""
        apart = abs(self.phase - other.phase)
        return (
            self.period == other.period
            and bool(self.resets) == bool(other.resets)
            and min(apart, self.period - apart) <= max(1, self.period // SAME_PHASE)
        )

    def repeated(self, times: int) -> "Pattern":
        """Return the pattern of which a period is so many of this one."""
        resets = tuple(self.period * one + place for one in range(times) for place in self.resets)
        return Pattern(self.period * times, self.phase, resets)

    def teeth(self) -> list[int]:
        """Return for each place the reset before it."""
        return [max(one for one in self.resets if one <= place) for place in range(self.period)]


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
        (values, _of_others, FLOOR),
        (values, _of_last, FLOOR),
        (values, _of_last, max(FLOOR, FLOOR_SHARE * _high(values))),
    ]
    if 2 * len(alone) > len(values):
        attempts.insert(0, (alone, _of_others, FLOOR))
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


def _profile(values: Mapping[int, Lateness], period: int, which: Callable[[Lateness], float]) -> list[float]:
    """Return the middle lateness at each place of a period, without places that differ from all around them."""
    places: list[list[float]] = [[] for _ in range(period)]
    for number, one in values.items():
        places[number % period].append(which(one))
    found = [_middle(one) for one in places]
    if period < MIN_SMOOTHED:
        return found
    return [median(found[(place + near) % period] for near in (-2, -1, 0, 1, 2)) for place in range(period)]


def _middle(found: Sequence[float]) -> float:
    """Return the middle value, or of few values the third quartile: a value is too low where a record is missing."""
    if len(found) >= ENOUGH_VALUES:
        return median(found)
    return sorted(found)[len(found) * 3 // 4] if found else 0.0


def _is_carried(values: Mapping[int, Lateness], period: int, ends: Collection[int]) -> bool:
    """Return whether the last rank of an operation is often that of the next: else lateness is not carried.

    A rank that is nearly always the last shows nothing.

    Args:
        values: Lateness by sequence number.
        period: Operations until the pattern repeats.
        ends: Places after which lateness is reset.
    """
    counts = Counter(one.rank for one in values.values())
    usual, times = counts.most_common(1)[0]
    shows_nothing = usual if 2 * times > len(values) else None
    least = max(FLOOR, FLOOR_SHARE * _high(values))
    pairs = [
        (one.last, following.rank == one.rank)
        for number, one in values.items()
        if one.last > least
        and one.rank != shows_nothing
        and number % period not in ends
        and (following := values.get(number + 1)) is not None
        and following.rank != shows_nothing
    ]
    same = sum(last for last, is_same in pairs if is_same)
    needed = max(MIN_SAME, 1 / len(counts) + MORE_SAME)
    return len(pairs) < MIN_PAIRS or same >= needed * sum(last for last, _ in pairs)


def _high(values: Mapping[int, Lateness]) -> float:
    """Return the lateness of the last rank that one operation in ten exceeds."""
    return sorted(one.last for one in values.values())[len(values) * 9 // 10]


def _of_last(one: Lateness) -> float:
    return one.last


def _of_others(one: Lateness) -> float:
    return one.others


def find_teeth(values: Mapping[int, Lateness], period: int) -> Pattern | None:
    """Return the pattern of a period if the middle lateness grows, or reaches its level, and is reset; None if not."""
    tops, others = _profile(values, period, _of_last), _profile(values, period, _of_others)
    level = max(FLOOR, MIN_LEVEL * max(tops))
    together = [rest <= TOGETHER * max(others) and top > level for top, rest in zip(tops, others, strict=True)]
    if not _is_gradual(tops):
        return None
    changes = _changes(tops)
    end = min(range(period), key=changes.__getitem__)
    is_level = sum(together) >= MIN_LEVEL_SHARE * period
    if is_level and changes[end] > -MIN_LEVEL * max(tops):  # at the level from the first operation on
        rises = _changes(others)
        end = max(range(period), key=rises.__getitem__)
        return Pattern(period, (end + 1) % period) if _is_carried(values, period, {end}) else None
    ends = {end} | {place for place in range(period) if _is_reset(tops[place], changes[place], max(tops))}
    if len(ends) > min(MAX_RESETS, max(period // MIN_TOOTH, 1)):
        return None
    within = [one for place, one in enumerate(changes) if place not in ends]
    rises = [one for one in within if one > 0]
    rising, falling = sum(rises), -sum(one for one in within if one < 0)
    jumps = len(within) > MIN_TOOTH and max(rises, default=0.0) > MAX_JUMP * rising
    if (not is_level and (falling > MAX_FALLS * rising or jumps)) or not _is_carried(values, period, ends):
        return None
    phase = (end + 1) % period
    return Pattern(period, phase, tuple(sorted((one + 1 - phase) % period for one in ends)))


def _is_gradual(tops: Sequence[float]) -> bool:
    """Return whether lateness grows to its highest value over several operations: one may be late alone."""
    highest = max(range(len(tops)), key=tops.__getitem__)
    before = [tops[highest - one] for one in range(1, 2 if len(tops) <= MIN_TOOTH else 3)]
    return sum(before) >= MIN_FULLNESS * tops[highest] * len(before)


def _is_reset(before: float, change: float, most: float) -> bool:
    return before >= MIN_RESET * most and before + change <= RESET * before


def _changes(profile: Sequence[float]) -> list[float]:
    """Return the changes from each place of a step to the next, and from the last to the first."""
    return [after - before for before, after in zip(profile, [*profile[1:], profile[0]], strict=True)]
