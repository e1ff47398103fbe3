"""What a dump of the Flight Recorder shows of collectives that do not end: how far its rank was in each group.

PyTorch numbers the collectives of a group from 1, whatever their kind; so the highest number of a kind is compared
between ranks in place of a count. A dump is one moment. A rank that had waited in a collective for a minute when it
wrote its dump is taken to wait on, for some minutes: the job writes dumps when its watchdog gives up, and then ends.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from exporter.core.collectives import COMMON
from exporter.nccl.flight_recorder import RecorderEntry
from exporter.sources.nccl.readers.feed import CollectiveProgress, Membership, ProcessReport

STUCK_SECONDS = 60.0
"""Seconds since a collective was enqueued after which a rank whose dump has it unfinished is taken to wait on."""

HOLD_SECONDS = 480.0
"""Seconds after a dump for which its progress is reported again: longer than ranks must wait for the verdict, and the
verdict lasts before its alert fires."""

MAX_HELD = 128
"""Ranks whose progress is reported again; a host has fewer processes of a job."""

Group = tuple[str, Membership]
"""Identifier of a group, and the membership of the rank."""


def progress_of(
    entries: Iterable[RecorderEntry], group_of: Callable[[RecorderEntry], Group | None]
) -> dict[tuple[str, str], CollectiveProgress]:
    """Return the highest number that was begun, and that ended, by group and kind."""
    found: dict[tuple[str, str], CollectiveProgress] = {}
    for entry in entries:
        group = None if entry.is_p2p or entry.kind not in COMMON else group_of(entry)
        if group is None:
            continue
        name, membership = group
        known = found.get((name, entry.kind), CollectiveProgress(membership, 0, 0))
        ended = entry.sequence if entry.state == "completed" else 0
        found[name, entry.kind] = CollectiveProgress(
            membership, max(known.begun, entry.sequence), max(known.ended, ended)
        )
    return found


def waited(entries: Iterable[RecorderEntry], at: float) -> float:
    """Return for how many seconds the oldest unfinished collective had waited at a Unix time; 0 if there is none."""
    times = [
        one.time_created_ns
        for one in entries
        if one.state != "completed" and not one.is_p2p and one.time_created_ns is not None
    ]
    return max(at - min(times) / 1e9, 0.0) if times else 0.0


class HeldProgress:
    """Progress of the dumps of a job that waits, to be reported again; keys are those of reports."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[ProcessReport, float]] = {}
        self._waits: dict[str, float] = {}

    def add(self, report: ProcessReport, seconds: float, now: float) -> None:
        """Add the report of a dump whose rank had waited for some seconds."""
        self.forget(report.key)
        self._held[report.key] = replace(report, streams={}, totals={}, restarted=False), now
        if len(self._held) > MAX_HELD:
            self.forget(next(iter(self._held)))
        if seconds >= STUCK_SECONDS:
            self._waits[report.facts.job] = now

    def forget(self, key: str) -> None:
        """Drop the progress of a rank."""
        self._held.pop(key, None)

    def due(self, now: float) -> Mapping[str, ProcessReport]:
        """Return what is to be reported again: of jobs with a rank that waits, also of ranks that do not."""
        self._held = {key: one for key, one in self._held.items() if now - one[1] < HOLD_SECONDS}
        self._waits = {job: at for job, at in self._waits.items() if now - at < HOLD_SECONDS}
        return {
            key: replace(report, facts=replace(report.facts))
            for key, (report, _) in self._held.items()
            if report.facts.job in self._waits
        }
