"""Steps of a job, from its operations alone: how many operations of each communicator make one step.

Nothing in a record names its step. Two things show it. Communicators count in fixed proportions, so that the one with
the fewest operations is the clock of the others: one operation is one step, unless it repeats a pattern itself. And
lateness that is carried from one operation to the next grows within a step and is reset at its end, which repeats with
each step: a saw.

The saw also shows whether waiting costs time. Where a pass computes on while its collectives run, a rank that is slow
by a little is later with each operation, and the others wait once, at the end of the pass. Where each collective blocks
the pass, all ranks leave it together, and lateness begins at zero again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt
from statistics import median
from typing import NamedTuple

from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.records import Arrivals, Job

SNAPSHOT_SECONDS = 4.0
"""Seconds between two snapshots of how far communicators are."""

COUNTED_SECONDS = 60.0
"""Seconds over which operations are counted, or those of COUNTED_STEPS steps if they take longer, up to …"""

COUNTED_STEPS = 8

MAX_COUNTED_SECONDS = 400.0
"""… this long."""

MIN_STEPS = 3
"""Operations of the clock that must be counted."""

MAX_SERIES = 1024
"""Operations of one communicator in which a pattern is searched."""

MIN_REPETITIONS = 3
"""Times that a pattern must repeat."""

MIN_CORRELATION = 0.25
"""Correlation of the series with itself, shifted by its period, or …"""

MIN_SIGMAS = 3.5
"""… as many standard deviations of the correlation by chance, if that is more …"""

MIN_CONTRAST = 0.3
"""… and how much more that is than at a smaller shift."""

SMALLEST = 0.45
"""Correlation over the highest one from which on the smallest shift is the period: some steps hide theirs."""

MAX_FALLS = 0.3
"""Falls within a saw over its rises, except for the one at its end."""

MAX_FAILED = 4
"""Searches that do not find a known pattern again before it is given up."""

FULL_SERIES = 48
"""Operations of a series that is searched only now and then."""

ENOUGH_SERIES = 512
"""Operations of a clock in which a pattern would be found, if they are of at least …"""

SEARCHED_SECONDS = 40.0
"""… this many seconds; or those of …"""

ENOUGH_SECONDS = 60.0
"""… this many seconds; needed unless other communicators have …"""

SAME_COUNT = 4
"""… this many times as many operations: then the clock counts steps."""

SAME_WORK = 1.05
"""Operations of one communicator over those of another one with the same work, at most; more by …"""

REPORT_STEPS = 1.2
"""… this many steps by which reports differ."""

SEARCH_SECONDS = 16.0
"""Seconds between two searches for a pattern where none was found."""

TOGETHER = 0.15
"""Mean lateness of the others, over the most in a step, below which they start together: their operation was queued."""

MIN_LEVEL_SHARE = 0.2
"""Share of a step's operations that the others start together, from which on lateness is at its level."""

MAX_CHANGE = 1.5
"""Change of the logarithm of lateness from one operation to the next that is more than a reset."""

MIN_POWER = 1e-4
"""Mean square of the changes below which there is no pattern."""

FLOOR = 50.0
"""Microseconds that are added to lateness before its logarithm is compared."""

MAX_GROUPS = 32
"""Groups of communicators whose pattern is searched."""

StreamName = tuple[str, str]
"""Communicator and kind."""

Group = tuple[str, int, int]
"""Kind, ranks and nodes: communicators that probably have the same part in the job."""


class Saw(NamedTuple):
    """A pattern in which lateness grows and is reset.

    Attributes:
        period: Operations of one step.
        phase: Sequence number of the first operation of a step, modulo the period.
    """

    period: int
    phase: int


@dataclass(slots=True)
class Series:
    """Lateness of all ranks but the last one in the operations of one communicator: that one may be missing, or slow.

    Attributes:
        name: The communicator.
        values: Microseconds of the last rank, and of the mean of the others, by sequence number.
        begun: Time of the first operation.
        searched: Time of the last search for a pattern.
        saw: The pattern that was found.
        failed: Searches in a row that did not find it again.
    """

    name: str
    values: dict[int, tuple[float, float]] = field(default_factory=dict)
    begun: float | None = None
    searched: float = float("-inf")
    saw: Saw | None = None
    failed: int = 0


@dataclass(slots=True)
class Steps:
    """What is known of the steps of a job.

    Attributes:
        snapshots: Time, and highest sequence number of each communicator and kind.
        series: Lateness by group, of one communicator each.
        seconds: Seconds of a step; None while unknown.
        counts: Operations of one step, by communicator and kind.
        saws: Patterns in which lateness is carried, by group.
    """

    snapshots: deque[tuple[float, dict[StreamName, int]]] = field(default_factory=deque)
    series: dict[Group, Series] = field(default_factory=dict)
    seconds: float | None = None
    counts: dict[StreamName, int] = field(default_factory=dict)
    saws: dict[Group, Saw] = field(default_factory=dict)


def group_of(job: Job, name: str, kind: str) -> Group:
    """Return the group of a communicator."""
    communicator = job.communicators[name]
    return kind, communicator.ranks, nodes_of(job, communicator)


def observe(job: Job, steps: Steps, name: str, kind: str, operations: Sequence[Arrivals]) -> None:
    """Add operations to the series of their group, if the communicator is the one that is observed."""
    group = group_of(job, name, kind)
    series = steps.series.get(group)
    if series is None or series.name not in job.communicators:
        if series is None and len(steps.series) >= MAX_GROUPS:
            return
        series = steps.series[group] = Series(name)
    if series.name != name:
        return
    for one in operations:
        series.values[one.sequence] = (next(iter(one.late.values()), 0.0), one.others)
    while len(series.values) > MAX_SERIES:
        del series.values[next(iter(series.values))]


def update(job: Job, steps: Steps, now: float) -> None:
    """Count the operations of a step again, if it is time to."""
    if steps.snapshots and now - steps.snapshots[-1][0] < SNAPSHOT_SECONDS:
        return
    highest = {
        (name, kind): number
        for name, communicator in job.communicators.items()
        for kind, number in communicator.highest.items()
    }
    steps.snapshots.append((now, highest))
    groups: dict[Group, list[StreamName]] = {}
    for stream in highest:
        groups.setdefault(group_of(job, *stream), []).append(stream)
    moved = _moved(steps, highest)
    counted = {group: max(moved.get(stream, 0) for stream in streams) for group, streams in groups.items()}
    counted = {group: count for group, count in counted.items() if count >= MIN_STEPS}
    _search(steps, counted, now)
    _conclude(steps, groups, counted, moved)


def _moved(steps: Steps, highest: dict[StreamName, int]) -> dict[StreamName, int]:
    """Return the operations of each stream since a snapshot long enough ago, and drop older ones."""
    now = steps.snapshots[-1][0]
    enough = COUNTED_SECONDS
    if steps.seconds is not None:
        enough = min(max(enough, COUNTED_STEPS * steps.seconds), MAX_COUNTED_SECONDS)
    elif len(steps.snapshots) > 1:
        enough = MAX_COUNTED_SECONDS
    while len(steps.snapshots) > 2 and now - steps.snapshots[1][0] >= enough:
        steps.snapshots.popleft()
    before = steps.snapshots[0][1]
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
            series.searched = now if len(series.values) >= FULL_SERIES else series.searched
            found = find_saw(series.values, series.saw.period if series.saw else None)
            series.failed = 0 if found is not None else series.failed + 1
            if found is not None or series.failed >= MAX_FAILED:
                series.saw = found


def _conclude(
    steps: Steps, groups: dict[Group, list[StreamName]], counted: dict[Group, int], moved: dict[StreamName, int]
) -> None:
    """Derive seconds and operations of a step."""
    steps.saws = {}
    if not counted:
        steps.seconds, steps.counts = None, {}
        return
    clock = min(counted, key=lambda group: (counted[group], group))
    series = steps.series.get(clock)
    saw = None if series is None else series.saw
    period = 1 if saw is None else saw.period
    span = steps.snapshots[-1][0] - steps.snapshots[0][0]
    if counted[clock] < period * MIN_STEPS or span <= 0 or not _is_clock(counted, clock, series, steps):
        steps.seconds, steps.counts = None, {}
        return
    number = counted[clock] / period
    steps.seconds = span / number
    counts: dict[StreamName, int] = {}
    for group, streams in groups.items():
        if group not in counted:
            continue
        here = steps.series.get(group)
        found = None if here is None else here.saw
        expected = counted[group] / number
        if found is not None and (group == clock or abs(found.period - expected) <= max(1.0, expected / 8)):
            steps.saws[group] = found
        typical = _typical(streams, moved, number)
        for stream in streams:
            if group in steps.saws:
                counts[stream] = steps.saws[group].period
                continue
            now = max(round(typical[stream] / number), 1)
            before = steps.counts.get(stream, now)
            counts[stream] = before if abs(now - before) <= max(1, before // 8) else now
    steps.counts = counts


def _typical(streams: Sequence[StreamName], moved: dict[StreamName, int], number: float) -> dict[StreamName, int]:
    """Return the operations of each stream, or of the middle one of those that differ by no more than reports do.

    Hosts report at different times: the counts of two streams with the same work differ by those of about a step.
    """
    ordered = sorted(streams, key=lambda stream: moved.get(stream, 0))
    found: dict[StreamName, int] = {}
    same: list[StreamName] = []
    for stream in ordered:
        if same and moved.get(stream, 0) > moved.get(same[0], 0) * (SAME_WORK + REPORT_STEPS / number):
            found |= dict.fromkeys(same, moved.get(same[len(same) // 2], 0))
            same = []
        same.append(stream)
    return found | dict.fromkeys(same, moved.get(same[len(same) // 2], 0))


def _is_clock(counted: dict[Group, int], clock: Group, series: Series | None, steps: Steps) -> bool:
    """Return whether one operation, or one period, of the clock is one step."""
    if series is None:
        return len(steps.series) >= MAX_GROUPS
    if series.saw is not None or max(counted.values()) >= SAME_COUNT * counted[clock]:
        return True
    lasted = steps.snapshots[-1][0] - (series.begun if series.begun is not None else steps.snapshots[-1][0])
    return (len(series.values) >= ENOUGH_SERIES and lasted >= SEARCHED_SECONDS) or lasted >= ENOUGH_SECONDS


# --- patterns in a series


def find_saw(values: Mapping[int, tuple[float, float]], known: int | None = None) -> Saw | None:
    """Return the saw in a series, or None.

    The period is that of the other ranks' lateness, since the last one may be missing, or far too late to vary; or else
    of its own.

    Args:
        values: Lateness of the last rank and mean lateness of the others, by sequence number.
        known: The period that was found before: it is tried first.
    """
    last = max(values)
    first = max(min(values), last - MAX_SERIES)
    alone = _unqueued(values)
    attempts = ((alone, 1), (values, 1), (values, 0)) if 2 * len(alone) > len(values) else ((values, 1), (values, 0))
    for seen, which in attempts:
        logarithms = {number: log(FLOOR + one[which]) for number, one in seen.items()}
        changes = [_change(logarithms, number) for number in range(first, last)]
        mean = sum(changes) / max(len(changes), 1)
        row = [one - mean for one in changes]
        power = sum(one * one for one in row) / max(len(row), 1)
        if power < MIN_POWER:
            continue
        period = known
        if known is None or len(row) < known * MIN_REPETITIONS or _correlation(row, known, power) < _least(row):
            period = _period(row, power)
        saw = None if period is None else _as_saw(seen, period)
        if saw is not None:
            return saw
    return None


def _unqueued(values: Mapping[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Return the operations that the others did not start together: in some steps a late rank may hide the saw."""
    most = sorted(others for _, others in values.values())[len(values) * 9 // 10]
    return {number: one for number, one in values.items() if one[1] > TOGETHER * most}


def _change(values: Mapping[int, float], number: int) -> float:
    """Return by how much the logarithm of the lateness grows to the next operation; 0 where one of both is missing.

    How late ranks are varies from step to step more than within a step, which cancels.
    """
    if number not in values or number + 1 not in values:
        return 0.0
    return max(-MAX_CHANGE, min(values[number + 1] - values[number], MAX_CHANGE))


def _correlation(row: Sequence[float], shift: int, power: float) -> float:
    count = len(row) - shift
    return sum(map(float.__mul__, row[:count], row[shift:])) / count / power


def _least(row: Sequence[float]) -> float:
    """Return the correlation that is not by chance."""
    return max(MIN_CORRELATION, MIN_SIGMAS / sqrt(len(row)))


def _period(row: Sequence[float], power: float) -> int | None:
    """Return the smallest shift at which the series resembles itself, as a peak of the correlation."""
    largest = len(row) // MIN_REPETITIONS
    found = [1.0] + [_correlation(row, shift, power) for shift in range(1, largest + 2)]
    best = max(found[2 : largest + 1], default=0.0)
    lowest, least = found[1], _least(row)
    for shift in range(2, largest + 1):
        one = found[shift]
        lowest = min(lowest, found[shift - 1])
        is_peak = one >= found[shift - 1] and one >= found[shift + 1]
        if is_peak and one >= least and one >= SMALLEST * best and one - lowest >= MIN_CONTRAST:
            return shift
    return None


def _as_saw(values: Mapping[int, tuple[float, float]], period: int) -> Saw | None:
    """Return the saw of a period, if the middle lateness over a step grows and is reset once, or reaches its level."""
    places: list[list[tuple[float, float]]] = [[] for _ in range(period)]
    for number, one in values.items():
        places[number % period].append(one)
    tops = [median(top for top, _ in found) if found else 0.0 for found in places]
    others = [median(rest for _, rest in found) if found else 0.0 for found in places]
    together = [rest <= TOGETHER * max(others) and top > FLOOR for top, rest in zip(tops, others, strict=True)]
    if sum(together) >= MIN_LEVEL_SHARE * period:
        rises = _changes(others)
        return Saw(period, (max(range(period), key=rises.__getitem__) + 1) % period)
    changes = _changes(tops)
    end = min(range(period), key=changes.__getitem__)
    within = [one for place, one in enumerate(changes) if place != end]
    rising, falling = sum(one for one in within if one > 0), -sum(one for one in within if one < 0)
    return None if falling > MAX_FALLS * rising else Saw(period, (end + 1) % period)


def _changes(profile: Sequence[float]) -> list[float]:
    """Return the changes from each place of a step to the next, and from the last to the first."""
    return [after - before for before, after in zip(profile, [*profile[1:], profile[0]], strict=True)]
