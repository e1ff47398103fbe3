"""Teeth: whether lateness is carried from one operation to the next, in a series whose period is known.

Where a pass computes on while its collectives run, a rank that is slow by a little is later with each operation, and
the others wait once, at the end of the pass: lateness is carried, grows like the teeth of a saw, and is reset. Where
each collective blocks the pass, all ranks leave it together, and lateness begins at zero again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, pairwise
from math import sqrt
from statistics import median
from typing import NamedTuple

import msgspec

MAX_FALLS = 0.3
"""Falls within a tooth over its rises, at most."""

TOGETHER = 0.15
"""Mean lateness of the others, over the most in a step, below which they start together: their operation was queued."""

MIN_LEVEL = 0.5
"""Lateness of the last rank, over the most in a step, while the others start together."""

MIN_FULLNESS = 0.25
"""Lateness in the operations before the latest one over that of it: little for an operation that is late alone."""

MIN_LEVEL_SHARE = 0.2
"""Share of a step's operations that the others start together, from which on lateness is at its level."""

SAME_PHASE = 16
"""Part of a period by which the phase of the same pattern may differ."""

MAX_RESETS = 4
"""Resets in a step, at most, with …"""

MIN_TOOTH = 3
"""… so many operations between them at least, on average."""

QUEUED = 0.25
"""Lateness of the others over that of the last rank, relative to that in the first operation of a step, up to which
they were queued, in …"""

MIN_QUEUED = 0.8
"""… this share of the operations after the first."""

MAX_JUMP = 0.6
"""Highest rise from one operation to the next over all rises of a tooth, at most: operations of the backward pass are
later than those of the forward pass also where they block."""

MAX_UNEVEN = 16
"""Operations of a period up to which each repetition shows whether it is a ramp."""

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

RECENT_VALUES = 128
"""Latest operations that show whether the same rank is the last in several, …"""

MAX_SLOW = 2
"""… but for so many ranks, which may be slow, if it is that more often, by …"""

GROWING = 0.75
"""Share of the operations from which on lateness grows to the next that shows that they are of one step."""

MIN_TURN = 8
"""Operations in a row of which a rank is the last, by which it has a turn, if it is the last of at most …"""

MAX_TURNS = 0.6
"""… this share of all: one that is slow is the last of many in a row."""

SAME_SIGMAS = 3.5
"""… standard deviations, than chance makes it."""

ENOUGH_VALUES = 8
"""Values at a place of which the middle one counts."""

MIN_SMOOTHED = 100
"""Operations of a period from which on a place that differs from all around it is noise: there are few of each."""

MIN_TIMES = 0.1
"""Lateness of a step over the middle one from which on its places show how lateness grows."""

FLOOR = 50.0
"""Microseconds that are added to lateness before its logarithm is compared."""

FLOOR_SHARE = 0.1
"""The same over the highest lateness, where small differences are noise."""


class Lateness(msgspec.Struct, frozen=True, gc=False):
    """Lateness in one operation.

    Attributes:
        last: Microseconds of the last rank to start.
        others: Mean of those between the median and the last quarter.
        rank: The last rank.
        whole: Whether all ranks reported.
    """

    last: float
    others: float
    rank: str
    whole: bool = True


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


def _profile(values: Mapping[int, Lateness], period: int) -> list[float]:
    """Return the middle lateness of the last rank at each place of a period.

    Steps differ in how late ranks are more than the places of a step: each step counts relative to what it has in all.
    """
    usual = _middles({number: one.last for number, one in values.items()}, period)
    changes = _changes(usual)
    begin = (min(range(period), key=changes.__getitem__) + 1) % period
    repetitions: dict[int, dict[int, float]] = {}
    for number, one in values.items():
        repetitions.setdefault((number - begin) // period, {})[number] = one.last
    alike: dict[int, float] = {}
    for of_one in repetitions.values():
        expected = sum(usual[number % period] for number in of_one)
        times = sum(of_one.values()) / expected if expected else 0.0
        if 2 * len(of_one) >= period and times >= MIN_TIMES:
            alike.update((number, one / times) for number, one in of_one.items())
    return _smoothed(_middles(alike, period) if alike else usual)


def _smoothed(profile: Sequence[float]) -> list[float]:
    """Return the profile of a long period without places that differ from all around them."""
    period = len(profile)
    if period < MIN_SMOOTHED:
        return list(profile)
    return [median(profile[(place + near) % period] for near in (-2, -1, 0, 1, 2)) for place in range(period)]


def _middles(values: Mapping[int, float], period: int) -> list[float]:
    """Return the middle value at each place of a period."""
    places: list[list[float]] = [[] for _ in range(period)]
    for number, one in values.items():
        places[number % period].append(one)
    return [_middle(one) for one in places]


def _middle(found: Sequence[float]) -> float:
    """Return the middle value, or of few values the third quartile: a value is too low where a record is missing."""
    if len(found) >= ENOUGH_VALUES:
        return median(found)
    return sorted(found)[len(found) * 3 // 4] if found else 0.0


def is_same_rank_last(values: Mapping[int, Lateness]) -> bool:
    """Return whether the last rank of an operation is often that of the next: then a step has several operations.

    The ranks that are the last most often show nothing: they may be slow.
    """
    recent = list(values.items())[-RECENT_VALUES:]
    counts = Counter(one.rank for _, one in recent if one.rank)
    for rank, _ in counts.most_common(MAX_SLOW):
        del counts[rank]
    pairs = [
        following.rank == one.rank
        for number, one in recent
        if one.rank in counts and (following := values.get(number + 1)) is not None and following.rank in counts
    ]
    if len(pairs) < MIN_PAIRS:
        return False
    chance = sum(count * count for count in counts.values()) / counts.total() ** 2
    by_chance = chance + SAME_SIGMAS * sqrt(chance * (1 - chance) / len(pairs))
    return sum(pairs) >= max(MIN_SAME, by_chance) * len(pairs)


def is_growing(values: Mapping[int, Lateness]) -> bool:
    """Return whether the lateness of the last rank grows from most operations to the next: these are of one step."""
    changes = [values[number + 1].last - one.last for number, one in values.items() if number + 1 in values]
    return sum(change > FLOOR for change in changes) >= GROWING * max(len(changes), 1)


def is_later_than(values: Mapping[int, Lateness], microseconds: float) -> bool:
    """Return whether the last rank is usually later than that: where each operation blocks, it cannot be by a step."""
    return median(one.last for one in values.values()) > microseconds


def are_last_in_turns(values: Mapping[int, Lateness]) -> bool:
    """Return whether several ranks are each the last of many operations in a row: these are of one step."""
    counts = Counter(one.rank for one in values.values() if one.rank)
    ordered = (values[number].rank for number in sorted(values))
    runs = {rank for rank, run in groupby(ordered) if rank and sum(1 for _ in run) >= MIN_TURN}
    return sum(counts[rank] <= MAX_TURNS * len(values) for rank in runs) > MAX_SLOW


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
    least = max(FLOOR, FLOOR_SHARE * high(values))
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


def high(values: Mapping[int, Lateness]) -> float:
    """Return the lateness of the last rank that one operation in ten exceeds."""
    return sorted(one.last for one in values.values())[len(values) * 9 // 10]


def of_last(one: Lateness) -> float:
    """Return the lateness of the last rank."""
    return one.last


def of_others(one: Lateness) -> float:
    """Return the lateness of the others."""
    return one.others


def find_teeth(values: Mapping[int, Lateness], period: int) -> Pattern | None:
    """Return the pattern of a period in which lateness is carried; None if it is not.

    The middle lateness grows, or reaches its level, and is reset; or all operations but the first are queued. Of two
    operations the second one is the later one also where they block.
    """
    if period < MIN_TOOTH:
        return None
    tops = _profile(values, period)
    others = _smoothed(_middles({number: one.others for number, one in values.items()}, period))
    return _gradual_teeth(values, tops, others) or _queued_behind_the_first(tops, others)


def _gradual_teeth(values: Mapping[int, Lateness], tops: Sequence[float], others: Sequence[float]) -> Pattern | None:
    """Return the pattern in which lateness grows over several operations, or is at its level, and is reset."""
    period = len(tops)
    if not _is_gradual(tops):
        return None
    level = max(FLOOR, MIN_LEVEL * max(tops))
    together = [rest <= TOGETHER * max(others) and top > level for top, rest in zip(tops, others, strict=True)]
    # Of two or three ranks there are no others.
    is_level = max(others) > 0 and sum(together) >= MIN_LEVEL_SHARE * period
    changes = _changes(tops)
    end = min(range(period), key=changes.__getitem__)
    if is_level and changes[end] > -MIN_LEVEL * max(tops):
        return _level_from_the_first(values, others)
    ends = {end} | {place for place in range(period) if _is_reset(tops[place], changes[place], max(tops))}
    is_flat = changes[end] > -MIN_RESET * max(tops)
    if is_flat or len(ends) > min(MAX_RESETS, period // MIN_TOOTH):
        return None
    within = [one for place, one in enumerate(changes) if place not in ends]
    rising, falling = _rises_and_falls(within)
    jumps = len(within) >= MIN_TOOTH and _jumps(changes, ends) > MAX_JUMP * rising
    is_uneven = falling > MAX_FALLS * rising or jumps or _is_uneven(values, period, ends)
    if (not is_level and is_uneven) or not _is_carried(values, period, ends):
        return None
    phase = (end + 1) % period
    return Pattern(period, phase, tuple(sorted((one + 1 - phase) % period for one in ends)))


def _is_uneven(values: Mapping[int, Lateness], period: int, ends: Collection[int]) -> bool:
    """Return whether lateness falls, or rises by one jump, in most repetitions of a short period.

    The middle of all may grow gradually where passes of the pipeline differ, and one place has lateness of both.
    """
    if period > MAX_UNEVEN:
        return False
    begin = max(ends) + 1
    uneven = []
    for first in range((min(values) - begin) // period * period + begin, max(values), period):
        row = [values[number].last for number in range(first, first + period) if number in values]
        if len(row) == period and max(row) > FLOOR:
            changes = [after - before for before, after in pairwise(row)]
            within = [one for place, one in enumerate(changes) if (begin + place) % period not in ends]
            rising, falling = _rises_and_falls(within)
            uneven.append(falling > MAX_FALLS * rising or max(within) > MAX_JUMP * rising)
    return len(uneven) >= MIN_TOOTH and 2 * sum(uneven) > len(uneven)


def _level_from_the_first(values: Mapping[int, Lateness], others: Sequence[float]) -> Pattern | None:
    """Return the pattern in which lateness is at its level from the first operation on, when the others start apart."""
    rises = _changes(others)
    end = max(range(len(others)), key=rises.__getitem__)
    is_carried = rises[end] > 0 and _is_carried(values, len(others), {end})
    return Pattern(len(others), (end + 1) % len(others)) if is_carried else None


def _queued_behind_the_first(tops: Sequence[float], others: Sequence[float]) -> Pattern | None:
    """Return the pattern in which the others wait for the first operation, and all further ones are queued behind it.

    These begin on the others at one moment, when the one before ends. Where each operation blocks, they drift apart in
    each as the last rank does.
    """
    first = max(range(len(tops)), key=tops.__getitem__)
    further = [place for place in range(len(tops)) if place != first and tops[place] > FLOOR]
    queued = sum(others[place] * tops[first] <= QUEUED * others[first] * tops[place] for place in further)
    is_queued = others[first] > FLOOR and queued >= MIN_QUEUED * (len(tops) - 1)
    return Pattern(len(tops), first) if is_queued else None


def _jumps(changes: Sequence[float], ends: Collection[int]) -> float:
    """Return the sum of the highest rise of each tooth."""
    first = min(ends) + 1
    total = highest = 0.0
    for place in [*range(first, len(changes)), *range(first)]:
        if place in ends:
            total, highest = total + highest, 0.0
        else:
            highest = max(highest, changes[place])
    return total


def _is_gradual(tops: Sequence[float]) -> bool:
    """Return whether lateness grows to its highest value over several operations: one may be late alone."""
    highest = max(range(len(tops)), key=tops.__getitem__)
    before = [tops[highest - one] for one in range(1, 2 if len(tops) <= MIN_TOOTH else 3)]
    return sum(before) >= MIN_FULLNESS * tops[highest] * len(before)


def _is_reset(before: float, change: float, most: float) -> bool:
    return before >= MIN_RESET * most and before + change <= RESET * before


def _rises_and_falls(changes: Sequence[float]) -> tuple[float, float]:
    """Return the sum of all rises, and that of all falls."""
    return sum(one for one in changes if one > 0), -sum(one for one in changes if one < 0)


def _changes(profile: Sequence[float]) -> list[float]:
    """Return the changes from each place of a step to the next, and from the last to the first."""
    return [after - before for before, after in zip(profile, [*profile[1:], profile[0]], strict=True)]
