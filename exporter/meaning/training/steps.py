"""Steps of a job, from its operations alone: how many operations of each communicator make one step.

Nothing in a record names its step. Two things show it. Communicators count in fixed proportions, so that the one with
the fewest operations is the clock of the others: one operation is one step, unless it repeats a pattern itself. And
lateness that is carried from one operation to the next grows within a step and is reset at its end, which repeats with
each step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.meaning.training import paces
from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.clock import SAME_COUNT, has_fewer
from exporter.meaning.training.connected import are_connected
from exporter.meaning.training.long_periods import SMALLEST, exact_period
from exporter.meaning.training.paces import Group, Pace, StreamName
from exporter.meaning.training.patterns import KEPT_SERIES, find_pattern, is_passed_on, without_missing
from exporter.meaning.training.periods import MIN_REPETITIONS
from exporter.meaning.training.records import Arrivals, Job
from exporter.meaning.training.teeth import (
    Lateness,
    Pattern,
    are_last_in_turns,
    find_teeth,
    is_growing,
    is_later_than,
    is_same_rank_last,
)

SNAPSHOT_SECONDS = 4.0
"""Seconds between two snapshots of how far communicators are."""

COUNTED_SECONDS = 60.0
"""Seconds over which operations are counted, or those of COUNTED_STEPS steps if they take longer, up to …"""

COUNTED_STEPS = 16

MAX_COUNTED_SECONDS = 400.0
"""… this long."""

MIN_STEPS = 3
"""Operations of the clock that must be counted."""

MAX_FAILED = 4
"""Searches that do not find a known pattern again before it is given up, or as many as found it."""

ENOUGH_SERIES = 48
"""Operations of a clock without a pattern of which each is a step, if they are of at least …"""

SEARCHED_SECONDS = 20.0
"""… this many seconds, and lateness does not pass from one to the next; or else, if the last rank does not, after …"""

ENOUGH_SECONDS = 120.0
"""… this many seconds; not needed where other communicators have several times as many operations (`clock`)."""

RARE_SECONDS = 60.0
"""Seconds for which groups with a few operations may become the clock, or …"""

RARE_PAUSES = 2.5
"""… so many times as long as until the last of these operations: they may be of long steps."""

SAME_CLOCK = 1.05
"""Operations of the clock over those of the group with the fewest up to which, and one more, it stays the clock."""

MAX_REPEATS = 4
"""Times that a pattern repeats in a step, at most."""

SEARCH_SECONDS = 16.0
"""Seconds between two searches for a pattern where none was found."""

SILENT_SECONDS = 15.0
"""Seconds without timings, while other communicators have some, after which one has no part in the job, or …"""

SILENT_STEPS = 2.5
"""… this many steps, if that is longer."""

MAX_GROUPS = 32
"""Groups of communicators whose pattern is searched."""


@dataclass(slots=True)
class Series:
    """Lateness of all ranks but the last one in the operations of one communicator: that one may be missing, or slow.

    Attributes:
        name: The communicator.
        values: Lateness by sequence number.
        begun: Time of the first operation.
        searched: Time of the last search for a pattern.
        pattern: The pattern that was found.
        failed: Searches in a row that did not find it again, and …
        confirmed: … that did, of which MAX_FAILED count.
        rival: What the last search found.
        whole: The pattern, how often it repeats in a step, and the pattern of a step.
    """

    name: str
    values: dict[int, Lateness] = field(default_factory=dict)
    begun: float | None = None
    searched: float = float("-inf")
    pattern: Pattern | None = None
    failed: int = 0
    confirmed: int = 0
    rival: Pattern | None = None
    whole: tuple[Pattern, int, Pattern] | None = None


class Snapshot(NamedTuple):
    """How far a job was.

    Attributes:
        time: The time.
        highest: Highest sequence number of each communicator and kind.
        paces: The same of one rank each, beside that of the clock.
    """

    time: float
    highest: dict[StreamName, int]
    paces: dict[StreamName, Pace]


@dataclass(slots=True)
class Steps:
    """What is known of the steps of a job.

    Attributes:
        snapshots: How far it was, over time.
        clock: Group of which one operation, or one period, is a step.
        series: Lateness by group, of one communicator each.
        seconds: Seconds of a step; None while unknown.
        counts: Operations of one step, by communicator and kind.
        carried: Patterns in which lateness is carried, by group.
    """

    snapshots: deque[Snapshot] = field(default_factory=deque)
    clock: Group | None = None
    series: dict[Group, Series] = field(default_factory=dict)
    seconds: float | None = None
    counts: dict[StreamName, int] = field(default_factory=dict)
    carried: dict[Group, Pattern] = field(default_factory=dict)


def group_of(job: Job, name: str, kind: str) -> Group:
    """Return the group of a communicator."""
    communicator = job.communicators[name]
    return kind, communicator.ranks, nodes_of(job, communicator)


def is_live(job: Job, name: str, seconds: float | None) -> bool:
    """Return whether a communicator has a part in the job: after a restart others have the same parts.

    Args:
        job: The job.
        name: The communicator.
        seconds: Seconds of a step, if known.
    """
    silent = job.last_seen - job.communicators[name].last_seen
    return silent <= max(SILENT_SECONDS, SILENT_STEPS * (seconds or 0.0))


def observe(job: Job, steps: Steps, name: str, kind: str, operations: Sequence[Arrivals]) -> None:
    """Add operations to the series of their group, if the communicator is the one that is observed."""
    group = group_of(job, name, kind)
    series = steps.series.get(group)
    if series is None or series.name not in job.communicators or not is_live(job, series.name, steps.seconds):
        if series is None and len(steps.series) >= MAX_GROUPS:
            return
        series = steps.series[group] = Series(name)
    if series.name != name:
        return
    for one in operations:
        rank, last = next(iter(one.late.items()), ("", 0.0))
        series.values[one.sequence] = Lateness(last, one.others, rank, one.share >= 1.0)
    while len(series.values) > KEPT_SERIES:
        del series.values[next(iter(series.values))]


def update(job: Job, steps: Steps, now: float) -> None:
    """Count the operations of a step again, if it is time to."""
    if steps.snapshots and now - steps.snapshots[-1].time < SNAPSHOT_SECONDS:
        return
    highest = {
        (name, kind): number
        for name, communicator in job.communicators.items()
        if is_live(job, name, steps.seconds)
        for kind, number in communicator.highest.items()
    }
    steps.snapshots.append(Snapshot(now, highest, {}))
    groups: dict[Group, list[StreamName]] = {}
    for stream in highest:
        groups.setdefault(group_of(job, *stream), []).append(stream)
    moved = _moved(steps, highest)
    counted = {group: max(moved.get(stream, 0) for stream in streams) for group, streams in groups.items()}
    counted = {group: count for group, count in counted.items() if count >= MIN_STEPS}
    _search(steps, counted, now)
    _choose_clock(job, steps, groups, counted)
    _conclude(steps, groups, counted, moved, may_be_longer=_may_be_longer(job, steps, groups, counted))


def _moved(steps: Steps, highest: dict[StreamName, int]) -> dict[StreamName, int]:
    """Return the operations of each stream since a snapshot long enough ago, and drop older ones."""
    now = steps.snapshots[-1].time
    enough = COUNTED_SECONDS
    if steps.seconds is not None:
        enough = min(max(enough, COUNTED_STEPS * steps.seconds), MAX_COUNTED_SECONDS)
    elif len(steps.snapshots) > 1:
        enough = MAX_COUNTED_SECONDS
    while len(steps.snapshots) > 2 and highest and not steps.snapshots[0].highest.keys() & highest.keys():
        steps.snapshots.popleft()
    while any(highest.get(stream, number) < number for stream, number in steps.snapshots[0].highest.items()):
        steps.snapshots.popleft()  # a communicator began again since
    while len(steps.snapshots) > 2 and now - steps.snapshots[1].time >= enough:
        steps.snapshots.popleft()
    before = steps.snapshots[0].highest
    return {stream: number - before.get(stream, -1) for stream, number in highest.items()}


def _search(steps: Steps, counted: dict[Group, int], now: float) -> None:
    """Search for patterns in the series of groups, now and then."""
    for series in steps.series.values():
        series.begun = now if series.begun is None else series.begun
    for group in [group for group in steps.series if group not in counted]:
        series = steps.series[group]
        if now - max(series.searched, series.begun or now) > MAX_COUNTED_SECONDS:
            del steps.series[group]
    for series in (steps.series[group] for group in counted if group in steps.series):
        if now - series.searched >= SEARCH_SECONDS and len(series.values) >= MIN_REPETITIONS * 2:
            series.searched = now if len(series.values) >= ENOUGH_SERIES else series.searched
            found = find_pattern(without_missing(series.values), series.pattern)
            _compare(series, found)


def _compare(series: Series, found: Pattern | None) -> None:
    """Take a pattern that was found, or none; a known one is given up only when it is not found again repeatedly."""
    known, rival, series.rival = series.pattern, series.rival, found
    if known is not None and found is not None and known.is_like(found):
        series.failed, series.confirmed = 0, min(series.confirmed + 1, MAX_FAILED)
        return
    series.failed += 1
    is_carried_at_last = found is not None and found.resets and (known is None or not known.resets)
    is_found_twice = found is None or series.confirmed == 0 or (rival is not None and rival.is_like(found))
    if known is None or is_carried_at_last or (series.failed > series.confirmed and is_found_twice):
        series.pattern, series.failed, series.confirmed = found, 0, 0


def _choose_clock(job: Job, steps: Steps, groups: dict[Group, list[StreamName]], counted: dict[Group, int]) -> None:
    """Choose the group with the fewest operations as the clock, and observe how others advance beside it."""
    fewest = min(counted.values(), default=0)
    if steps.clock not in counted or counted[steps.clock] > SAME_CLOCK * fewest + 1:
        steps.clock = min(counted, key=lambda group: (counted[group], group), default=None)
        for snapshot in steps.snapshots:
            snapshot.paces.clear()
    if steps.clock is not None:
        latest = steps.snapshots[-1]
        latest.paces.update(paces.observe(job, latest.highest, groups[steps.clock]))


def _conclude(
    steps: Steps,
    groups: dict[Group, list[StreamName]],
    counted: dict[Group, int],
    moved: dict[StreamName, int],
    *,
    may_be_longer: bool,
) -> None:
    """Derive seconds and operations of a step."""
    steps.carried = {}
    clock = steps.clock
    if clock is None:
        steps.seconds, steps.counts = None, {}
        return
    series = steps.series.get(clock)
    period = _period_of_clock(steps, groups, counted, clock)
    span = steps.snapshots[-1].time - steps.snapshots[0].time
    number = counted[clock] / period
    if number < MIN_STEPS or span <= 0 or may_be_longer or not _is_clock(groups, clock, series, steps, span / number):
        steps.seconds, steps.counts = None, {}
        return
    steps.seconds = span / number
    counts: dict[StreamName, int] = {}
    for group, streams in groups.items():
        if group not in counted:
            continue
        here = steps.series.get(group)
        found = None if here is None else here.pattern
        expected = counted[group] / number
        times = 1 if found is None or group == clock else round(expected / found.period)
        if found is not None and found.resets and (group == clock or _repeats(found.period, times, expected)):
            steps.carried[group] = found if times == 1 or here is None else _whole(here, found, times)
        if group in steps.carried:
            counts |= dict.fromkeys(streams, steps.carried[group].period)
        else:
            exact = paces.of_a_step([one.paces for one in steps.snapshots], streams, period)
            for stream in streams:
                exact.setdefault(stream, paces.by_all_reports(moved.get(stream, 0), number))
            is_part = found is not None and not found.resets and group != clock and times > 1
            counts |= paces.whole_numbers(steps.counts, exact, found.period if found is not None and is_part else 1)
    steps.counts = counts


def _period_of_clock(
    steps: Steps, groups: dict[Group, list[StreamName]], counted: dict[Group, int], clock: Group
) -> int:
    """Return the operations of the clock in a step: those of the pattern that it repeats.

    One that repeats in several steps, as of a rank that is late in each fifth one, is none.
    """
    series = steps.series.get(clock)
    if series is None or series.pattern is None:
        return 1
    period = series.pattern.period
    finer = [group for group in counted if counted[group] >= SAME_COUNT * counted[clock]]
    streams = [stream for group in finer for stream in groups[group]]
    history = [snapshot.paces for snapshot in steps.snapshots]
    return 1 if not series.pattern.resets and paces.is_even(history, streams, period) else period


def _whole(series: Series, pattern: Pattern, times: int) -> Pattern:
    """Return the pattern of a step in which one repeats: the passes of a step may be alike in part."""
    if series.whole is None or series.whole[:2] != (pattern, times):
        period = pattern.period * times
        period = exact_period(series.values, period) if period >= SMALLEST else period
        series.whole = pattern, times, find_teeth(series.values, period) or pattern.repeated(times)
    return series.whole[2]


def _repeats(period: int, times: int, expected: float) -> bool:
    """Return whether a pattern repeats so many times in a step of about the expected operations."""
    return 1 <= times <= MAX_REPEATS and abs(period * times - expected) <= max(1.0, expected / 8)


def _is_clock(
    groups: dict[Group, list[StreamName]], clock: Group, series: Series | None, steps: Steps, seconds: float
) -> bool:
    """Return whether one operation, or one period, of the clock is one step.

    Args:
        groups: Communicators and kinds by group.
        clock: The group with the fewest.
        series: Its series.
        steps: What is known of the steps.
        seconds: Seconds of a step, if it is.
    """
    begun = None if series is None else series.begun
    lasted = 0.0 if begun is None else steps.snapshots[-1].time - begun
    seen = () if series is None or len(series.values) >= KEPT_SERIES else series.values.keys()
    if has_fewer([one.highest for one in steps.snapshots], groups, clock, seen):
        return True
    if series is None or series.pattern is not None:
        return series is not None or len(steps.series) >= MAX_GROUPS
    if series.values and is_later_than(series.values, seconds * 1e6):
        return False
    was_one = any(steps.counts.get(stream) == 1 for stream in groups[clock])
    if lasted < SEARCHED_SECONDS or (not was_one and is_same_rank_last(series.values)):
        return lasted >= MAX_COUNTED_SECONDS and not are_last_in_turns(series.values)
    if lasted >= ENOUGH_SECONDS:
        return not are_last_in_turns(series.values)
    return len(series.values) >= ENOUGH_SERIES and not is_passed_on(series.values) and not is_growing(series.values)


def _may_be_longer(
    job: Job,
    steps: Steps,
    groups: dict[Group, list[StreamName]],
    counted: dict[Group, int],
) -> bool:
    """Return whether a step may end with communicators that have too few operations to count them yet, or none."""
    series = None if steps.clock is None else steps.series.get(steps.clock)
    now = steps.snapshots[-1].time
    begun = now if series is None or series.begun is None else series.begun
    if now - begun > MAX_COUNTED_SECONDS:
        return False
    since = max(begun, steps.snapshots[0].time)
    counted_names = {name for group in counted for name, _ in groups[group]}
    rarer = [
        one.last_seen - since
        for name, one in job.communicators.items()
        if name not in counted_names and one.highest and one.last_seen > since
    ]
    if rarer and now - since < max(RARE_SECONDS, RARE_PAUSES * max(rarer)):
        return True
    if job.exchanges and now - begun > ENOUGH_SECONDS:
        return False  # the stages of a pipeline without replicas
    return not are_connected(job, {name for of_group in groups.values() for name, _ in of_group})
