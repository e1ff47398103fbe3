"""Candidates: which ranks or hosts of a pool are the last in the steps of a window, and what that costs.

Each step of a pool is one try. What a rank costs a step is how much later it is than the last rank that is not
suspected: so much would be won without it. A suspect must cost that in several steps, and most of what is lost must be
lost to it, now and over the last minutes: work that is imbalanced makes one rank after the other the last.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil, comb, log
from statistics import median
from typing import NamedTuple

from exporter.meaning.training.losses import Window, cost_of_latest, recent_steps

WINDOWS = ((12.0, 4), (30.0, 10), (60.0, 24))
"""Seconds and least number of steps of evidence: short windows, to detect a new straggler soon, and a long one."""

MIN_LAPS = 4
"""Steps that must be known."""

MIN_LATE_LAPS = 3
"""Steps in which a suspect must be the last, and …"""

MIN_LATE_SHARE = 0.12
"""… share of the steps of the longest window: fewer are checkpoints and stalls of loaders; …"""

MIN_LONG_LAPS = 12
"""… if it has at least so many: work that moves has not moved yet in fewer; …"""

MIN_SHORT_LATE_SHARE = 0.75
"""… and of shorter ones, in which a cause that comes and goes weighs too much."""

RECENT_PART = 3
"""Part of a window, the last one, in which a suspect must have been the last: else the cause is gone."""

MIN_MEMBER_SHARE = 0.7
"""Share of these steps in which each of several suspects must be late, and …"""

ALIKE = 0.4
"""… share of the latest one's lateness that it must have then."""

MAX_CHANCE = 1e-3
"""Probability with which any rank would be the last that often, if it were another one at random in each step."""

MAX_CHANCE_STEADY = 1e-2
"""The same, if it costs about the same in each step: what is last at random is late by a little or by much."""

ALIKE_TIMES = 2.0
"""Cost of a step over the middle one of a window, above which it is not usual."""

BEFORE = 4
"""Steps before the first late one in which another rank may have had the work that moved to the suspects, …"""

MOVED_STEPS = 2
"""… of them in which it must have had it: a pause is in one alone; and …"""

FIRST_LAPS = 8
"""Steps since the start of a job of which one may be all that is known from before the suspects; …"""

MOVED_SHARE = 0.5
"""… share of one's lateness that the other's must be, and of the other's up to which it has lost it since."""

MIN_LOSS = 0.02
"""Share of the time that a suspect must cost, …"""

MIN_KEPT_LOSS = 0.015
"""… and that one must cost that is named now: noise moves what it costs by a quarter."""

MORE_LOSS = 0.5
"""Share of that which each further suspect must cost: of many ranks, some are always the slowest."""

MIN_WON_SHARE = 0.6
"""Share of the lost time that must be lost to the suspects."""

MIN_REMEMBERED_SHARE = 0.75
"""The same over all steps that are stored."""

MAX_SUSPECTS_SHARE = 0.125
"""Share of a pool's ranks, or of its hosts, that may be suspects together: fewer than a stage of a pipeline."""


class Candidate(NamedTuple):
    """Ranks or hosts that are late together.

    Attributes:
        names: Their names.
        loss: Seconds per second that they cost.
        late: Number of steps in which they were the last.
        laps: Number of steps.
    """

    names: frozenset[str]
    loss: float
    late: int
    laps: int


def candidate(
    laps: Mapping[int, tuple[float, Mapping[str, float]]],
    members: int,
    seconds: float,
    now: float,
    window: Window,
    kept: Collection[frozenset[str]] = (),
) -> Candidate | None:
    """Return those that are late together in a window; None if the evidence does not suffice.

    Args:
        laps: Time, and cost by name, by number of the step.
        members: Number of names that could be late.
        seconds: Seconds of a step.
        now: Current time.
        window: Seconds, and least number of steps.
        kept: Those that are named now.
    """
    if len(laps) < MIN_LAPS or members < 2:
        return None
    recent = recent_steps(laps, now, (window[0], max(window[1], _least_laps(members))))
    costs = [laps[number][1] for number in recent]
    latest = [max(one.values(), default=0.0) for one in costs]
    if sum(latest) / 1e6 / len(recent) / seconds < MIN_KEPT_LOSS:
        return None
    attempts = {_apart(costs, members): None}
    usual = ALIKE_TIMES * median(latest)
    if max(latest) > usual:
        # A long pause of another rank in one step hides a rank that is late in each: then the usual costs count alone.
        attempts[_apart([{name: min(cost, usual) for name, cost in one.items()} for one in costs], members)] = None
    for names in attempts:
        least = MIN_KEPT_LOSS if names in kept else MIN_LOSS * (1 + MORE_LOSS * (len(names) - 1))
        found = _examined(laps, recent, names, members, seconds, window, least)
        if found is not None:
            return found
    return None


def won_without(
    laps: Sequence[Mapping[str, float]],
    names: frozenset[str],
    communicators: Sequence[AbstractSet[str]],
    seconds: float,
) -> float:
    """Return the seconds per second that a job would win without some names; see `candidate`.

    The last one in a communicator counts, and the middle communicator: each shows the same delay, with its own noise.
    """
    gains = (
        median(_gain({name: costs[name] for name in members & costs.keys()}, names) for members in communicators)
        for costs in laps
    )
    return sum(max(gain, 0.0) for gain in gains) / 1e6 / len(laps) / seconds


def _least_laps(members: int) -> int:
    """Return the steps after which chance does not explain any more that the same one of few members is the last."""
    return ceil(log(MAX_CHANCE_STEADY / members) / log(1 / members))


def _examined(
    laps: Mapping[int, tuple[float, Mapping[str, float]]],
    recent: Sequence[int],
    names: frozenset[str],
    members: int,
    seconds: float,
    window: Window,
    least: float,
) -> Candidate | None:
    """Return some names if the others wait for them, and they cost at least a share of the time; see `candidate`."""
    if not names:
        return None
    gains = [_gain(laps[number][1], names) for number in recent]
    positive = sorted(one for one in gains if one > 0)
    typical = _weighted_median(positive)
    won = sum(positive)
    lost = sum(min(-one, typical) for one in gains if one < 0)  # a pause of another rank is long, but one step only
    loss = won / 1e6 / len(recent) / seconds
    if loss < least or won < MIN_WON_SHARE * (won + lost):
        return None
    late = [number for number in recent if cost_of_latest(laps[number][1], names) >= typical / 2]
    is_long = window == WINDOWS[-1] and len(recent) >= MIN_LONG_LAPS
    share = MIN_LATE_SHARE if is_long else MIN_SHORT_LATE_SHARE
    is_over = not late or late[-1] < recent[-max(len(recent) // RECENT_PART, 1)]
    if is_over or len(late) < max(MIN_LATE_LAPS, share * len(recent)):
        return None
    if not _are_alike([laps[one][1] for one in late], names) or _is_chance(gains, typical, len(names), members):
        return None
    if not _is_theirs(laps, names, typical) or _took_over(laps, late, names, typical, members):
        return None
    return Candidate(names, min(loss, 1.0), len(late), len(recent))


def _is_chance(gains: Sequence[float], typical: float, names: int, members: int) -> bool:
    """Return whether any names could be the last that often if each step had another one at random."""
    last = sum(gain >= typical / 3 for gain in gains)
    steps = last + sum(gain <= -typical / 3 for gain in gains)
    share = min(names / members, 1.0)
    probability = sum(comb(steps, one) * share**one * (1 - share) ** (steps - one) for one in range(last, steps + 1))
    is_steady = last == len(gains) and min(gains) >= typical / 2
    return members * probability > (MAX_CHANCE_STEADY if is_steady else MAX_CHANCE)


def _is_theirs(laps: Mapping[int, tuple[float, Mapping[str, float]]], names: frozenset[str], typical: float) -> bool:
    """Return whether most of the lost time of all stored steps is theirs, of what is lost to the same names repeatedly.

    A pause of another rank in one step is no evidence against them.
    """
    theirs = others = 0.0
    lasts: list[tuple[int, str, float]] = []
    for number in sorted(laps):
        costs = laps[number][1]
        gain = _gain(costs, names)
        if gain >= typical / 2:
            theirs += gain
        elif gain <= -typical / 2:
            lasts.append((number, max(costs, key=costs.__getitem__), -gain))
    for before, one, after in zip([None, *lasts], lasts, [*lasts[1:], None], strict=False):
        if any(other is not None and other[1] == one[1] and abs(other[0] - one[0]) <= 2 for other in (before, after)):
            others += one[2]
    return theirs >= MIN_REMEMBERED_SHARE * (theirs + others)


def _took_over(
    laps: Mapping[int, tuple[float, Mapping[str, float]]],
    late: Sequence[int],
    names: frozenset[str],
    typical: float,
    members: int,
) -> bool:
    """Return whether suspects are late since another one, which was late by about as much, is late no more.

    Then work may have moved to them, and may move on: that shows in as many steps as work that moves has moved in.

    Args:
        laps: All steps that are stored.
        late: Those of the window in which the suspects were late.
        names: The suspects.
        typical: What they cost then.
        members: Number of names that could be late.
    """
    numbers = sorted(laps)
    first = numbers.index(next((one for one in late if _gain(laps[one][1], names) >= typical / 2), late[0]))
    while first and any(_gain(laps[one][1], names) >= typical / 2 for one in numbers[max(first - 2, 0) : first]):
        first -= 1
    run = [laps[one][1] for one in numbers[first:]]
    if len(run) >= MIN_LONG_LAPS:
        return False
    before = [laps[one][1] for one in numbers[max(first - BEFORE, 0) : first]]
    had: dict[frozenset[str], list[float]] = {}
    for costs in before:
        without = {name: cost for name, cost in costs.items() if name not in names}
        others = _apart([without], members)
        # Work may move in the middle of a step, which then costs in part for the one and in part for the other.
        gain = _gain(without, others) + cost_of_latest(costs, names)
        if others and MOVED_SHARE * typical <= gain <= typical / MOVED_SHARE:
            had.setdefault(others, []).append(cost_of_latest(costs, others))
    least = MOVED_STEPS if numbers[first] >= FIRST_LAPS else min(MOVED_STEPS, len(before))
    return any(
        len(costs) >= least and median(cost_of_latest(one, others) for one in run) <= MOVED_SHARE * median(costs)
        for others, costs in had.items()
    )


def _weighted_median(ordered: Sequence[float]) -> float:
    """Return the value up to which half of the sum of sorted values lies."""
    half, total = sum(ordered) / 2, 0.0
    for one in ordered:
        total += one
        if total >= half:
            return one
    return 0.0


def _apart(laps: Sequence[Mapping[str, float]], members: int) -> frozenset[str]:
    """Return the names whose cost is the farthest above that of all others, at most an eighth of the members."""
    totals: dict[str, float] = {}
    for costs in laps:
        for name, cost in costs.items():
            totals[name] = totals.get(name, 0.0) + cost
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    most, gap = 0, 0.0
    for count in range(1, min(max(1, int(MAX_SUSPECTS_SHARE * members)), len(ordered)) + 1):
        following = totals[ordered[count]] if count < len(ordered) else 0.0
        if totals[ordered[count - 1]] - following > gap:
            most, gap = count, totals[ordered[count - 1]] - following
    return frozenset(ordered[:most])


def _are_alike(laps: Sequence[Mapping[str, float]], names: frozenset[str]) -> bool:
    """Return whether each of several suspects is late in most of some steps: else another one is the last each time."""
    if len(names) < 2:
        return True
    counts = dict.fromkeys(names, 0)
    for costs in laps:
        most = max(costs.get(name, 0.0) for name in names)
        for name in names:
            counts[name] += costs.get(name, 0.0) >= ALIKE * most
    return min(counts.values()) >= MIN_MEMBER_SHARE * len(laps)


def _gain(costs: Mapping[str, float], names: frozenset[str]) -> float:
    """Return by how much a step would be shorter without the suspects; negative if others were the last."""
    inside = outside = 0.0
    for name, cost in costs.items():
        if name in names:
            inside = max(inside, cost)
        elif cost > outside:
            outside = cost
    return inside - outside
