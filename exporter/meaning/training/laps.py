"""Laps: how late the ranks of a communicator were in one step, from the operations of the step.

Where lateness is carried, a rank costs the step how late it is at its end, of which a level shows a part only.
Elsewhere ranks leave each operation together, and the lateness of all operations adds up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean

import msgspec

from exporter.meaning.training import steps as step_counts
from exporter.meaning.training.levels import Placed, lateness_at_the_end, lateness_behind_the_first
from exporter.meaning.training.patterns import MAX_SERIES
from exporter.meaning.training.records import Arrivals, Communicator, Job
from exporter.meaning.training.steps import Steps
from exporter.meaning.training.teeth import TOGETHER, Pattern

MAX_LAPS = 96
"""Laps of a communicator that are stored, of …"""

KEPT_SECONDS = 400.0
"""… this many seconds."""

KEPT_OPERATIONS = 8192
"""Operations of complete laps that are stored of a job: several steps of a thousand."""

WARM_UP = 3
"""First steps of a communicator, which compile and allocate, and are not judged."""

MIN_SHARE = 0.5
"""Share of the operations of a step that must be known where lateness is carried, and …"""

MIN_ADDED_SHARE = 0.25
"""… where it adds up: those that are known show the others, and of two ranks that lose a third half is compared."""

USUAL_LAPS = 10
"""Latest steps that show what a rank costs on average."""

NOT_GROWN = 1.5
"""Lateness of the others over that in the first operation of a step, up to which it does not grow: they leave each
operation together."""


class Lap(msgspec.Struct, frozen=True, gc=False):
    """A step of one communicator.

    Attributes:
        time: Time at which it was complete.
        costs: Microseconds that the step took longer because of each late rank.
        waited: Microseconds that the median rank waited for others.
        carried: Whether lateness is carried from operation to operation.
    """

    time: float
    costs: Mapping[str, float]
    waited: float
    carried: bool


@dataclass(slots=True)
class StreamLaps:
    """Operations of one kind of a communicator that wait for their lap to be complete.

    Attributes:
        count: Operations of a lap.
        pattern: The pattern of a lap, if lateness is carried.
        operations: By sequence number.
        folded: Operations of complete laps, which are folded again when another pattern is found.
    """

    count: int
    pattern: Pattern | None = None
    operations: dict[int, Arrivals] = field(default_factory=dict)
    folded: dict[int, Arrivals] = field(default_factory=dict)

    def reopen(self) -> None:
        """Let operations of complete laps wait again."""
        self.operations = self.folded | self.operations
        self.folded = {}


@dataclass(slots=True)
class Laps:
    """Laps of a job.

    Attributes:
        steps: What is known of its steps.
        streams: Operations that wait, by communicator and kind.
        done: Complete laps by communicator and kind, by number.
        added: Communicator, kind and number of laps that were completed since they were last added to pools.
        unplaced: Communicators and kinds whose place in a step is unknown, beside another kind that carries lateness.
        revision: Number of times that complete laps were renumbered or dropped.
    """

    steps: Steps = field(default_factory=Steps)
    streams: dict[tuple[str, str], StreamLaps] = field(default_factory=dict)
    done: dict[tuple[str, str], dict[int, Lap]] = field(default_factory=dict)
    added: list[tuple[str, str, int]] = field(default_factory=list)
    unplaced: set[tuple[str, str]] = field(default_factory=set)
    revision: int = 0


def fold(job: Job, laps: Laps, now: float) -> None:
    """Fold the operations that were compared into laps."""
    for name, communicator in job.communicators.items():
        for kind, taken in communicator.arrivals.items():
            if taken:
                found = list(taken)
                taken.clear()
                step_counts.observe(job, laps.steps, name, kind, found)
                _stream(laps, name, kind).operations.update((one.sequence, one) for one in found)
    step_counts.update(job, laps.steps, now)
    for stream in [stream for stream in laps.streams if stream[0] not in job.communicators]:
        del laps.streams[stream]
        laps.done.pop(stream, None)
        laps.unplaced.discard(stream)
    carried = {name for name, kind in laps.streams if step_counts.group_of(job, name, kind) in laps.steps.carried}
    for (name, kind), waiting in laps.streams.items():
        if waiting.operations:
            pattern = laps.steps.carried.get(step_counts.group_of(job, name, kind))
            if pattern is None and name in carried:
                waiting.operations.clear()
                laps.unplaced.add((name, kind))
                laps.revision += laps.done.pop((name, kind), None) is not None
                continue
            laps.unplaced.discard((name, kind))
            _fold_stream(laps, job.communicators[name], (name, kind), pattern, now)


def _stream(laps: Laps, name: str, kind: str) -> StreamLaps:
    found = laps.streams.get((name, kind))
    if found is None:
        found = laps.streams[name, kind] = StreamLaps(0)
    return found


def _fold_stream(
    laps: Laps, communicator: Communicator, stream: tuple[str, str], pattern: Pattern | None, now: float
) -> None:
    waiting, count = laps.streams[stream], laps.steps.counts.get(stream, 0)
    room = KEPT_OPERATIONS // len(laps.streams)
    if not count:
        _keep(waiting.operations, max(MAX_SERIES, room))
        return
    if waiting.count != count or waiting.pattern != pattern:
        kept = laps.done.get(stream, {}) if pattern is None and waiting.count else {}
        laps.done[stream] = _renumbered(kept, waiting.count, count)
        if not laps.done[stream]:
            waiting.reopen()
        waiting.count, waiting.pattern = count, pattern
        laps.revision += 1
    phase = 0 if pattern is None else pattern.phase
    pending = min(communicator.pending.get(stream[1], ()), default=None)
    until = communicator.highest.get(stream[1], -1) + 1 if pending is None else pending
    done = laps.done.setdefault(stream, {})
    operations, folded = waiting.operations, waiting.folded
    by_lap: dict[int, list[int]] = {}
    for number in operations:
        by_lap.setdefault((number - phase) // count, []).append(number)
    for lap in sorted(by_lap):
        if (lap + 1) * count + phase > until:
            continue
        found = [operations.pop(number) for number in sorted(by_lap[lap])]
        folded.update((one.sequence, one) for one in found)
        least = MIN_ADDED_SHARE if pattern is None else MIN_SHARE
        if lap < WARM_UP or len(found) < least * count:
            continue
        if pattern is None:
            costs = _added(found, count)
        else:
            costs = _carried(found, pattern, laps.steps.seconds or 0.0, list(done.values())[-USUAL_LAPS:])
        most = max(costs.values(), default=0.0)
        waited = most if pattern is not None else sum(max(one.late.values(), default=0.0) for one in found)
        done[lap] = Lap(max(one.time for one in found), costs, waited, pattern is not None)
        laps.added.append((*stream, lap))
    _keep(folded, room)
    while len(done) > MAX_LAPS or (done and now - done[min(done)].time > KEPT_SECONDS):
        del done[min(done)]


def _keep(operations: dict[int, Arrivals], most: int) -> None:
    """Drop operations but so many."""
    for number in list(operations)[: max(len(operations) - most, 0)]:
        del operations[number]


def _renumbered(done: Mapping[int, Lap], before: int, count: int) -> dict[int, Lap]:
    """Return laps by the number of the steps in which most of their operations are, after their count changed."""
    if not done or any(lap.carried for lap in done.values()) or not count / 2 <= before <= 2 * count:
        return {}
    return {
        int((number + 0.5) * before / count): msgspec.structs.replace(
            lap,
            costs={rank: cost * count / before for rank, cost in lap.costs.items()},
            waited=lap.waited * count / before,
        )
        for number, lap in done.items()
    }


def _added(operations: Sequence[Arrivals], count: int) -> dict[str, float]:
    """Return the cost of ranks where ranks leave each operation together: their lateness in all of them."""
    costs: dict[str, float] = {}
    for one in operations:
        weight = count / len(operations) / one.share
        for rank, lateness in one.late.items():
            costs[rank] = costs.get(rank, 0.0) + lateness * weight
    return costs


def _carried(
    operations: Sequence[Arrivals], pattern: Pattern, seconds: float, before: Sequence[Lap]
) -> dict[str, float]:
    """Return the cost of ranks where lateness is carried: how late they are each time before it is reset.

    Args:
        operations: Those of a step that are known.
        pattern: Their pattern.
        seconds: Seconds of a step, of which the mean counts.
        before: Latest steps before this one.
    """
    costs: dict[str, float] = {}
    teeth = pattern.teeth()
    for begin, tooth in groupby(operations, lambda one: teeth[(one.sequence - pattern.phase) % pattern.period]):
        phase, count = (pattern.phase + begin) % pattern.period, teeth.count(begin)
        for rank, row in _of_tooth(list(tooth), phase, pattern.period).items():
            late = lateness_at_the_end(row, count)
            if count == pattern.period:
                usual = fmean(lap.costs.get(rank, 0.0) for lap in before) if before else 0.0
                late = max(late, lateness_behind_the_first(row, count, max(seconds * 1e6 - usual, 0.0)))
            costs[rank] = costs.get(rank, 0.0) + late
    return costs


def _of_tooth(operations: Sequence[Arrivals], phase: int, period: int) -> dict[str, list[Placed]]:
    """Return the lateness of ranks in some operations without a reset.

    Args:
        operations: Those that are known.
        phase: Sequence number of the first one, modulo the period.
        period: Operations of a step.
    """
    together_at = max(TOGETHER * max(one.others for one in operations), NOT_GROWN * operations[0].others)
    rows: dict[str, list[Placed]] = {}
    for one in operations:
        together = one.others <= together_at
        for rank, lateness in one.late.items():
            rows.setdefault(rank, []).append(Placed((one.sequence - phase) % period + 1, lateness, together))
    return rows
