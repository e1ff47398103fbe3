"""Paces: how many operations of a communicator go with one of the clock of the steps.

Hosts report at different times, by as much as several steps take. A host reports all its communicators at once: its own
numbers are those of one moment, and differ only by what part of a step has passed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf, sqrt
from statistics import mean
from typing import NamedTuple

from exporter.meaning.training.records import Job

MIN_PACED = 4
"""Steps of one rank from which on its own numbers show the operations of a step."""

PART_STEPS = 1.0
"""Steps by which counts of one rank are uncertain: reports are of any part of a step."""

REPORT_STEPS = 1.8
"""The same of counts of all ranks, which report at different times."""

LIMITED = 10
"""First and last reports of a rank that limit the operations of a step."""

LOST = 2
"""Operations by which a report may be less than what was done: the latest records may be lost."""

SAME_WORK = 1.05
"""Operations of one communicator over those of another one with the same work, at most, but for what is uncertain."""

SPREAD = (0.1, 0.9)
"""Quantiles between which the clock is before or behind: records of some reports may be lost."""

SEEN = 0.25
"""Operations of the clock by which it is before or behind at least: else reports are always of the same part of a step
and show nothing."""


StreamName = tuple[str, str]
"""Communicator and kind."""

Group = tuple[str, int, int]
"""Kind, ranks and nodes: communicators that probably have the same part in the job."""


class Pace(NamedTuple):
    """Sequence numbers that a host reported at one time.

    Attributes:
        number: That of one rank in a communicator and kind.
        clock: That of the clock.
        host: The host.
    """

    number: int
    clock: int
    host: str


class Counted(NamedTuple):
    """Operations of a step.

    Attributes:
        operations: Their number.
        error: By how many it is uncertain.
        host: Where they were counted; empty if everywhere.
    """

    operations: float
    error: float
    host: str = ""


def observe(job: Job, streams: Iterable[StreamName], clock: Iterable[StreamName]) -> dict[StreamName, Pace]:
    """Return how far one rank of each communicator is, by communicator and kind.

    Args:
        job: The job.
        streams: Communicators and kinds.
        clock: Those that are the clock.
    """
    reached: dict[str, int] = {}  # by host: the latest record of one rank may be lost
    for name, kind in clock:
        communicator = job.communicators[name]
        for rank in communicator.members:
            host = job.hosts.get(rank, "")
            reached[host] = max(communicator.reached.get((kind, rank), -1), reached.get(host, -1))
    found: dict[StreamName, Pace] = {}
    for name, kind in streams:
        communicator = job.communicators[name]
        for rank in communicator.members:
            number, host = communicator.reached.get((kind, rank)), job.hosts.get(rank, "")
            if number is not None and reached.get(host, -1) >= 0:
                found[name, kind] = Pace(number, reached[host], host)
                break
    return found


def is_even(history: Sequence[Mapping[StreamName, Pace]], streams: Iterable[StreamName], period: int) -> bool:
    """Return whether operations of the clock are spread evenly among others, so that several are not of one step.

    Those of one step follow each other, at its end or within one pass.

    Args:
        history: How far ranks were, over time.
        streams: Communicators and kinds with more operations than the clock.
        period: Operations of the clock that may be of one step.
    """
    ahead = sorted(one for stream in streams for one in _ahead([seen[stream] for seen in history if stream in seen]))
    if not ahead:
        return False
    low, high = (ahead[int(share * (len(ahead) - 1))] for share in SPREAD)
    return SEEN <= high - low < period / 2


def _ahead(seen: Sequence[Pace]) -> list[float]:
    """Return by how many operations the clock was before, or behind, its mean pace."""
    if len(seen) < 2 or seen[-1].number <= seen[0].number:
        return []
    pace = (seen[-1].clock - seen[0].clock) / (seen[-1].number - seen[0].number)
    return [one.clock - seen[0].clock - (one.number - seen[0].number) * pace for one in seen]


def of_a_step(
    history: Sequence[Mapping[StreamName, Pace]], streams: Iterable[StreamName], period: int
) -> dict[StreamName, Counted]:
    """Return the operations of each stream in a step, where one rank shows enough steps.

    Args:
        history: How far ranks were, over time.
        streams: Communicators and kinds.
        period: Operations of the clock in a step.
    """
    found: dict[StreamName, Counted] = {}
    for stream in streams:
        seen = [one[stream] for one in history if stream in one]
        passed = (seen[-1].clock - seen[0].clock) / period if seen else 0
        if passed >= MIN_PACED:
            operations = (seen[-1].number - seen[0].number) / passed
            low, high = _limits(seen, period)
            found[stream] = (
                Counted((low + high) / 2, (high - low) / 2, seen[-1].host)
                if low <= high
                else Counted(operations, operations * PART_STEPS / passed, seen[-1].host)
            )
    return found


def _limits(seen: Sequence[Pace], period: int) -> tuple[float, float]:
    """Return the limits of the operations of a step: between two reports there are whole steps, and a part of two.

    The lower one is above the higher one where more records are lost.
    """
    ends = [*seen[:LIMITED], *seen[-LIMITED:]] if len(seen) > 2 * LIMITED else seen
    pairs = combinations([(one.number, one.clock) for one in ends], 2)
    spans = [(number - before, (clock - since) / period) for (before, since), (number, clock) in pairs]
    low = [(moved - LOST) / (passed + PART_STEPS) for moved, passed in spans]
    high = [(moved + LOST) / (passed - PART_STEPS) for moved, passed in spans if passed > PART_STEPS]
    return max(low, default=0.0), min(high, default=inf)


def by_all_reports(moved: int, steps: float) -> Counted:
    """Return the operations of a step, from those that any rank reported in a number of steps."""
    return Counted(moved / steps, REPORT_STEPS * moved / steps**2)


def whole_numbers(
    before: Mapping[StreamName, int], exact: Mapping[StreamName, Counted], part: int = 1
) -> dict[StreamName, int]:
    """Return the operations of a step of streams; those with the same work have the same.

    A count stays the same while it may be right, and is that of whole parts of a step if it may be.

    Args:
        before: Counts of before.
        exact: Operations of each stream.
        part: Operations of a pattern that repeats within a step, such as with each micro-batch.
    """
    counts: dict[StreamName, int] = {}
    for streams in _of_same_work(exact):
        operations = mean(exact[stream].operations for stream in streams)
        hosts = len({exact[stream].host for stream in streams})
        error = max(exact[stream].error for stream in streams) / sqrt(hosts)
        count = max(round(operations / part), 1) * part
        if abs(operations - count) > error:
            count = max(round(operations), 1)
        usual = Counter(before[stream] for stream in streams if stream in before).most_common(1)
        if usual and abs(operations - usual[0][0]) <= 0.5 + error:
            count = usual[0][0]
        counts |= dict.fromkeys(streams, count)
    return counts


def _of_same_work(exact: Mapping[StreamName, Counted]) -> list[list[StreamName]]:
    """Return the streams whose counts differ by no more than is uncertain, together."""
    found: list[list[StreamName]] = []
    least: Counted | None = None
    for stream in sorted(exact, key=lambda stream: (exact[stream].operations, stream)):
        one = exact[stream]
        if least is None or one.operations - one.error > least.operations * SAME_WORK + least.error:
            least = one
            found.append([])
        found[-1].append(stream)
    return found
