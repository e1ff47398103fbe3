"""A job against its own past: its speeds now, and the best level that each had over ten minutes.

Speeds are steps per second, and bus bandwidths between nodes. A step is compared only with steps that do the same work,
a bandwidth only with that of the same kind, size, ranks and nodes: a job that evaluates, or that was restarted with
other sizes, has levels of its own. A level is a median, so that pauses in it do not count. While a job pauses, nothing
is compared.

The best levels are all that has to be kept of a job. They are plain numbers with a name each (`best_levels`), so that
they can be stored elsewhere, and `restore` returns them to a job.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from math import isfinite
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.vocabulary import Ending, gauge
from exporter.meaning.training.bandwidth import Shape, moved_per_second, speeds_between_nodes
from exporter.meaning.training.paces import Group
from exporter.meaning.training.records import Communicator, Job
from exporter.meaning.training.steps import Steps, group_of

SAMPLE_SECONDS = 9.0
"""Seconds between two samples of the speeds."""

LEVEL_SECONDS = 600.0
"""Seconds of a level."""

MIN_LEVEL_SECONDS, MIN_SAMPLES = 540.0, 15
"""Seconds between the first and the last sample of a level, and number of its samples, at least: also where timings are
read each half a minute."""

MAX_LEVELS = 32
"""Levels of one job; the one that was not used for longest is dropped."""

MAX_SHAPES = 16
"""Shapes of collectives that are sampled: those that take most of the time."""

SAME_WORK = 1.25
"""Operations, or bytes, of a step over those of another one that does the same work, at most."""

PAUSE_SECONDS, PAUSE_STEPS = 20.0, 2.5
"""Seconds, or steps if they take longer, without a collective after which a job pauses."""

MIN_TICKS = 4
"""Reports from which the bytes of a step are computed."""

PASTS: Mapping[str, Ending] = MappingProxyType(
    {
        "regression_ratio": gauge(
            "Time that the job needs now over the time in its own best ten minutes, 1 for as fast: of a step"
            " (step_time), or of its collectives of 1 MiB and more between nodes (bus_bandwidth). Absent while it"
            " pauses, and before it did the same work for ten minutes."
        )
    }
)
"""By job and measure."""


class Work(NamedTuple):
    """What a step does.

    Attributes:
        kind: Kind of the collectives that a step has the fewest of, …
        ranks: … number of their ranks, …
        nodes: … and of their nodes.
        operations: Operations in one communicator of each group.
        size: Bytes of these.
    """

    kind: str
    ranks: int
    nodes: int
    operations: float
    size: float

    def is_like(self, other: "Work") -> bool:
        """Return whether the time of one may be compared with the time of the other."""
        return self[:3] == other[:3] and all(map(_are_close, self[3:], other[3:]))

    def closeness(self, other: "Work") -> float:
        """Return the smaller number of bytes over the larger one, 1 for as many."""
        return min(self.size, other.size) / max(self.size, other.size, 1.0)


LevelKey = Work | Shape
"""What a level is of: steps with some work, or bus bandwidth of some shape."""


def _are_close(one: float, other: float) -> bool:
    return max(one, other) <= SAME_WORK * min(one, other)


@dataclass(slots=True)
class Level:
    """A speed over ten minutes, and the best one so far.

    Attributes:
        recent: Time and value of the samples of the last ten minutes.
        best: Highest median of ten minutes; None before there was one.
    """

    recent: deque[tuple[float, float]] = field(default_factory=deque)
    best: float | None = None

    def add(self, value: float, now: float) -> None:
        """Add a sample."""
        recent = self.recent
        recent.append((now, value))
        while now - recent[0][0] > LEVEL_SECONDS:
            recent.popleft()
        if len(recent) >= MIN_SAMPLES and now - recent[0][0] >= MIN_LEVEL_SECONDS:
            self.best = max(self.best or 0.0, median(one for _, one in recent))


@dataclass(slots=True)
class Past:
    """Past of one job.

    Attributes:
        levels: Levels, the one that was not used for longest first.
        sampled: Time of the last sample.
        regressions: Regression by measure, as of the last sample.
        step: Seconds of a step, likewise; None while they are unknown, or the job pauses.
        paused: Time at which the job paused last.
    """

    levels: dict[LevelKey, Level] = field(default_factory=dict)
    sampled: float = float("-inf")
    regressions: Mapping[str, float] = field(default_factory=dict)
    step: float | None = None
    paused: float = float("-inf")

    def level(self, key: LevelKey) -> Level:
        """Return the level of a key, or of another one for the same work; a new one if there is none."""
        found = key
        if key not in self.levels and isinstance(key, Work):
            # Work between two levels is like both: were samples of it by turns of each, few would be compared.
            alike = [one for one in self.levels if isinstance(one, Work) and one.is_like(key)]
            found = max(alike, key=lambda one: (self.levels[one].best is not None, one.closeness(key)), default=key)
        level = self.levels.pop(found, None) or Level()
        while len(self.levels) >= MAX_LEVELS:
            del self.levels[next(iter(self.levels))]
        self.levels[found] = level
        return level


def observe(past: Past, job: Job, steps: Steps, now: float) -> None:
    """Sample the speeds of a job, if it is time to."""
    if now - past.sampled < SAMPLE_SECONDS:
        return
    past.sampled = now
    if steps.seconds is not None and _is_pausing(job, steps.seconds, now):
        past.paused = now
    past.step = steps.seconds if steps.snapshots and steps.snapshots[0].time >= past.paused else None
    found = {"step_time": _step_regression(past, job, steps, now), "bus_bandwidth": _bus_regression(past, job, now)}
    past.regressions = {measure: one for measure, one in found.items() if one is not None}


def _step_regression(past: Past, job: Job, steps: Steps, now: float) -> float | None:
    """Add a sample of the steps; return their time over that in the best level."""
    work = None if past.step is None else work_of(job, steps, past.step)
    if past.step is None or work is None:
        return None
    level = past.level(work)
    level.add(1 / past.step, now)
    return None if level.best is None else level.best * past.step


def _bus_regression(past: Past, job: Job, now: float) -> float | None:
    """Add samples of bus bandwidths; return the time of the collectives over the time that they took at their best."""
    found = speeds_between_nodes(job, now)
    times = {shape: sum(_seconds(job.communicators[name], shape) for name in speeds) for shape, speeds in found.items()}
    took = at_best = 0.0
    for shape in nlargest(MAX_SHAPES, times, key=lambda one: times[one]):
        speed = median(found[shape].values())
        level = past.level(shape)
        level.add(speed, now)
        if level.best is not None:
            took += times[shape]
            at_best += times[shape] * speed / level.best
    return took / at_best if at_best else None


def _seconds(communicator: Communicator, shape: Shape) -> float:
    moved = communicator.bus.get((shape.kind, shape.size))
    return 0.0 if moved is None else moved.microseconds / 1e6


def _is_pausing(job: Job, seconds: float, now: float) -> bool:
    last = max((one.ticks[-1].time for one in job.communicators.values() if one.ticks), default=float("-inf"))
    return now - last > max(PAUSE_SECONDS, PAUSE_STEPS * seconds)


def work_of(job: Job, steps: Steps, seconds: float) -> Work | None:
    """Return what a step does; None if that is unknown.

    Args:
        job: The job.
        steps: Operations of a step.
        seconds: Seconds of a step.
    """
    groups: dict[Group, tuple[int, Communicator]] = {}
    for (name, kind), count in steps.counts.items():
        communicator = job.communicators.get(name)
        if communicator is not None and len(communicator.ticks) >= MIN_TICKS:
            groups.setdefault(group_of(job, name, kind), (count, communicator))
    if not groups:
        return None
    clock = min(groups, key=lambda group: (groups[group][0], group))
    size = seconds * sum(_bytes_per_second(one, kind) for (kind, *_), (_, one) in groups.items())
    return Work(*clock, sum(count for count, _ in groups.values()), size)


def _bytes_per_second(communicator: Communicator, kind: str) -> float:
    return sum(size for (of, _), (size, _) in moved_per_second(communicator).items() if of == kind)


# --- names of levels

_STEPS, _BANDWIDTH = "steps", "bus_bandwidth"

_NAME = re.compile(
    rf"(?P<measure>{_STEPS}|{_BANDWIDTH}) (?P<kind>[A-Za-z]{{1,32}})"
    r" (?P<a>\d{1,15}) (?P<b>\d{1,15}) (?P<c>\d{1,15})(?: (?P<d>\d{1,15}))?"
)


def best_levels(past: Past) -> dict[str, float]:
    """Return the best levels by name: steps per second, and bus bandwidths in bytes per second."""
    return {_name(key): level.best for key, level in past.levels.items() if level.best is not None}


def restore(past: Past, levels: Mapping[str, float]) -> None:
    """Take over best levels that were kept; of two for the same, the higher counts. Unknown names are ignored."""
    for name, value in islice(levels.items(), MAX_LEVELS):
        key = _parse_name(name)
        if key is not None and isfinite(value) and value > 0:
            level = past.level(key)
            level.best = max(level.best or 0.0, value)


def _name(key: LevelKey) -> str:
    measure = _STEPS if isinstance(key, Work) else _BANDWIDTH
    return " ".join([measure, key.kind, *(str(round(one)) for one in key[1:])])


def _parse_name(name: str) -> LevelKey | None:
    match = _NAME.fullmatch(name)
    if match is None or (match["d"] is None) != (match["measure"] == _BANDWIDTH):
        return None
    numbers = [int(match[group]) for group in "abcd" if match[group] is not None]
    return Work(match["kind"], *numbers) if match["measure"] == _STEPS else Shape(match["kind"], *numbers)
