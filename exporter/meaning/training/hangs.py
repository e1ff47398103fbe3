"""Hangs: whether a job that ran has stopped, in whole or in part, and which ranks went no further.

If ranks report what they began, `waits` shows who waits for whom. Otherwise communicators that do the same work are
compared: the one with the fewest operations is where the job stopped. Operations that do not end are not recorded, so
that within a communicator that hangs all ranks have reported equally many. In a pipeline those with the fewest often
belong to a stage that waits for another one, so that no rank is named.
A job that ended has equally many operations everywhere, and does not hang.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.meaning.training.alignment import SILENT_SECONDS, nodes_of
from exporter.meaning.training.records import Job
from exporter.meaning.training.waits import Hang, find_hang

HANG_SECONDS = 30.0
"""Seconds without any operation of a job after which it hangs, or, if that is longer, …"""

HANG_PAUSE_FACTOR = 10.0
"""… this many times the longest pause while it ran, as checkpoints and evaluations are not hangs; but at most …"""

MAX_HANG_EXTRA_SECONDS = 120.0
"""… this many seconds more than that pause."""

SNAPSHOT_SECONDS = 20.0
"""Seconds between snapshots of the sequence numbers of communicators; those that do the same work are at about the
same."""

SAME_WORK = 0.05
"""Share by which sequence numbers of communicators that do the same work may differ while the job runs."""

MAX_BEHIND_SHARE = 0.25
"""Maximum share of the communicators of one kind that may be behind the others for their ranks to be reported."""


@dataclass(slots=True)
class OperationHistory:
    """When operations of a job were settled, and how far its communicators were.

    Attributes:
        longest_pause: Longest time between two settled operations while the job ran.
        settled: Time of the last settled operation.
        snapshot_time: Time of the last snapshot.
        snapshot: Highest sequence number by communicator and kind at the last snapshot, and …
        before: … at the one before.
    """

    longest_pause: float = 0.0
    settled: float | None = None
    snapshot_time: float = float("-inf")
    snapshot: dict[tuple[str, str], int] = field(default_factory=dict)
    before: dict[tuple[str, str], int] = field(default_factory=dict)


def record(job: Job, history: OperationHistory) -> None:
    """Record the time of the last settled operation and the longest pause; take a snapshot if one is due."""
    newest = max((one.ticks[-1].time for one in job.communicators.values() if one.ticks), default=None)
    if newest is None or newest == history.settled:
        return
    if history.settled is not None:
        history.longest_pause = max(history.longest_pause * 0.999, newest - history.settled)
    history.settled = newest
    if newest - history.snapshot_time >= SNAPSHOT_SECONDS:
        history.snapshot_time, history.before = newest, history.snapshot
        history.snapshot = _highest_sequence_numbers(job)


def _highest_sequence_numbers(job: Job) -> dict[tuple[str, str], int]:
    """Return the highest sequence number of each communicator and kind."""
    found: dict[tuple[str, str], int] = {}
    for name, communicator in job.communicators.items():
        for (kind, rank), number in communicator.reached.items():
            if rank in communicator.members:
                known = min(number, communicator.highest.get(kind, number))  # one rank alone may be far ahead
                found[name, kind] = max(known, found.get((name, kind), known))
    return found


def hang(job: Job, history: OperationHistory, now: float) -> Hang | None:
    """Return what hangs; None if nothing does."""
    pause = history.longest_pause
    if any(communicator.progress for communicator in job.communicators.values()):
        return find_hang(job, pause, now)  # better evidence than how many operations were reported
    stopped_after = max(HANG_SECONDS, min(HANG_PAUSE_FACTOR * pause, pause + MAX_HANG_EXTRA_SECONDS))
    if history.settled is None or now - history.settled < stopped_after:
        return None
    behind: list[str] | None = None
    fewest = 1.0
    is_pipeline = bool(job.exchanges)
    for names, missing in _same_work(job, history):
        if not missing:
            continue
        behind = [] if behind is None else behind
        most = max(missing.values())
        last = [name for name in names if missing.get(name) == most]
        share = len(last) / len(names)
        if share <= MAX_BEHIND_SHARE and share < fewest and not is_pipeline:
            fewest = share
            behind = sorted({rank for name in last for rank in job.communicators[name].members})
    return None if behind is None else Hang(behind)


def _same_work(job: Job, history: OperationHistory) -> Iterator[tuple[Sequence[str], Mapping[str, int]]]:
    """Yield communicators that did the same work while the job ran, and how many operations some of them are behind.

    Communicators of one shape may do different amounts of work by design, such as those of the pipeline stage with the
    loss. They were ahead before, so the snapshot from before the job stopped shows which do the same.
    """
    alike: dict[tuple[str, int, int], list[tuple[int, int, str]]] = {}
    stopped = history.settled or 0.0
    for (name, kind), number in _highest_sequence_numbers(job).items():
        communicator = job.communicators[name]
        before = history.before.get((name, kind))
        # Others are of an earlier run, or began again since.
        if before is not None and before <= number and stopped - communicator.last_seen <= SILENT_SECONDS:
            key = (kind, communicator.ranks, nodes_of(job, communicator))
            alike.setdefault(key, []).append((before, number, name))
    for found in alike.values():
        found.sort()
        same: list[tuple[int, int, str]] = []
        for one in [*found, None]:
            if one is not None and (not same or one[0] <= same[0][0] * (1 + SAME_WORK) + 1):
                same.append(one)
                continue
            furthest = max(same, key=lambda other: other[1])
            yield (
                [name for _, _, name in same],
                {
                    name: furthest[1] - number
                    for before, number, name in same
                    if furthest[1] - number > 2 * max(furthest[0] - before, 0)
                },
            )
            same = [] if one is None else [one]
