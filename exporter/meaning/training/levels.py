"""Levels: how late a rank is at the end of a pass, where the others wait for it before.

The others cannot be seen to wait longer than one operation lasts, since the next one is queued by then, or longer than
for the layers that are gathered ahead: lateness that grew from operation to operation then stays at a level, at which
all others start together. It is continued at the rate at which it grew before. A pass may have several levels, as the
backward pass is slower than the forward pass; and while the others wait for another rank, what shows of a rank is its
own rate.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import fmean, median_low
from typing import NamedTuple

from exporter.meaning.training.teeth import MIN_QUEUED

LEVEL = 0.85
"""Lateness of a rank over that of before from which on it is at the same level, in …"""

MIN_LEVEL = 3
"""… so many operations that follow each other; and …"""

MAX_GROWTH = 6.0
"""Lateness at the end of a step over that in its first operation, at most: a forward pass comes before that."""

MIN_GROWTH = 0.3
"""… share of that lateness by which it must have grown before, to show its rate."""


class Placed(NamedTuple):
    """Lateness of a rank in one operation.

    Attributes:
        place: Number of the operation since the last reset, from 1.
        lateness: Microseconds.
        together: Whether all others start together.
    """

    place: int
    lateness: float
    together: bool


def lateness_at_the_end(row: Sequence[Placed], count: int) -> float:
    """Return how late a rank is before lateness is reset.

    Args:
        row: Its lateness since the last reset.
        count: Operations from one reset to the next.
    """
    most = max(one.lateness for one in row)
    row = _without_glitches(row)
    extra, rate, since = 0.0, 0.0, 0
    for begin, end in _levels(row):
        rate = _later_rate(row[since : begin + 1]) or rate if since else _first_rate(row[: end + 1])
        until = count if end == len(row) - 1 else row[end].place
        extra += max(rate * (until - row[begin].place) - (row[end].lateness - row[begin].lateness), 0.0)
        since = end
    return most + extra


def lateness_behind_the_first(row: Sequence[Placed], count: int, others_step: float) -> float:
    """Return how late a rank is at the end of a step of which all operations but the first are queued on the others.

    Then these show how long the rank needs for one, and only the first how late it is. It becomes later at the same
    rate in the rest of the step: its lateness at the end is to the step what that in the first operation is to the part
    before it.

    Args:
        row: Its lateness since the last reset.
        count: Operations of the step.
        others_step: Microseconds of a step in which the rank is not late.

    Returns:
        0 if they are not queued.
    """
    first, further = row[0], row[1:]
    queued = [one.lateness for one in further if one.together and one.lateness <= LEVEL * first.lateness]
    if first.place != 1 or len(further) < MIN_LEVEL or len(queued) < MIN_QUEUED * len(further):
        return 0.0
    # x / (others_step + x) = first / (others_step + x - queued)
    linear = others_step - fmean(queued) * (count - 1) - first.lateness
    late = (sqrt(linear * linear + 4 * first.lateness * others_step) - linear) / 2
    return min(late, MAX_GROWTH * first.lateness)


def _levels(row: Sequence[Placed]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of operations in which a rank is late by the same, and the others together."""
    begin = 0
    while begin < len(row):
        end, least, most = begin + 1, LEVEL * row[begin].lateness, row[begin].lateness / LEVEL
        while end < len(row) and least <= row[end].lateness <= most:
            end += 1
        together = sum(one.together for one in row[begin + 1 : end])
        if end - begin >= MIN_LEVEL and 2 * together >= end - begin - 1:
            yield begin, end - 1
        begin = end


def _first_rate(row: Sequence[Placed]) -> float:
    """Return by how much lateness grew from one operation to the next until the first level, at which the row ends."""
    low, top = _rise(row)
    reached = (one for one in row[low + 1 :] if one.lateness >= LEVEL * row[top].lateness)
    place, lateness, _ = next(reached, row[low])
    return (lateness - row[low].lateness) / max(place - row[low].place, 1)


def _later_rate(row: Sequence[Placed]) -> float:
    """Return the middle rate of the rise to a further level; 0 if there is none, or a single jump: a pause."""
    low, top = _rise(row)
    if row[top].lateness - row[low].lateness < MIN_GROWTH * row[-1].lateness or top - low < 2:
        return 0.0
    rises = [
        (row[one + 1].lateness - row[one].lateness) / (row[one + 1].place - row[one].place) for one in range(low, top)
    ]
    return max(median_low(rises), 0.0)


def _rise(row: Sequence[Placed]) -> tuple[int, int]:
    """Return the indexes between which lateness rises most: before it is what is left of the last pass."""
    growth, low, first, last = 0.0, 0, 0, 0
    for index, (_, lateness, _) in enumerate(row):
        if lateness < row[low].lateness:
            low = index
        elif lateness - row[low].lateness > growth:
            growth, first, last = lateness - row[low].lateness, low, index
    return first, last


def _without_glitches(row: Sequence[Placed]) -> Sequence[Placed]:
    """Return a row with the middle lateness of each operation and its neighbours: one record may be missing."""
    inner = [
        Placed(one.place, sorted((before.lateness, one.lateness, after.lateness))[1], one.together)
        for before, one, after in zip(row, row[1:], row[2:], strict=False)
    ]
    return [row[0], *inner, row[-1]] if inner else row
