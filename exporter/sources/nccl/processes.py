"""The processes of training jobs on this host whose timings are read, and the ranks that they are exported with.

The exported rank is the rank in the job if known, else the rank in the largest communicator (the first of several of
that size). Where two processes of a job claim the same rank at the same time, the later one is exported as
`<rank>-<pid>`. A rank in the job that several processes claim at once is ignored: processes started by one rank inherit
its environment.

A process that several feeds report is counted once, by the preferred feed: Inspector, then the hook, then the Flight
Recorder. All ranks of a job must use the same feed, since each has its own identifiers of communicators.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from exporter.core.shares import Admission
from exporter.core.source import Failure
from exporter.sources.nccl.readers.feed import (
    CollectiveTotals,
    Membership,
    ProcessFacts,
    ProcessReport,
    UnusedReason,
)

PREFERENCE = ("inspector", "hook", "recorder")
"""Feeds that report processes, in order of preference."""

MAX_JOBS = 32
"""Jobs on this host; the user with most of them loses one to a user with fewer."""

MAX_PROCESSES = 128
"""Processes of one job on this host."""

EXPIRY_SECONDS = 600.0
"""Time without a record after which a process expires."""

FEED_TIMEOUT_SECONDS = 60.0
"""Time without a record after which a less preferred feed takes over a process."""

ProcessKey = tuple[str, str]
"""Identity of a process: its feed, and its key in the feed."""


@dataclass(slots=True)
class TrainingProcess:
    """One process, with its totals since it was first seen.

    Attributes:
        number: Unique number, so that a process differs from an earlier one with the same rank.
        feed: Feed that reports it.
        facts: Identity of the process.
        first_poll: Number of the first poll with a record of it.
        last_poll: Number of the last poll with a record of it.
        last_seen: Monotonic time of the last poll with a record of it.
        last_timed: Monotonic time of the last poll with times of collectives.
        largest: Membership in its largest communicator.
        totals: Totals by kind.
        lost: Records that it reports as lost, by type of record; None where not reported.
        steps: Training steps that it marked, with their tokens and floating-point operations.
        label: Exported rank; empty while another process has its rank.
        superseded: Whether a preferred feed reports it too.
        rank_conflict: Whether other processes claim the same rank in the job, so that it is ignored.
    """

    number: int
    feed: str
    facts: ProcessFacts
    first_poll: int
    last_poll: int
    last_seen: float
    largest: Membership
    totals: dict[str, CollectiveTotals] = field(default_factory=dict)
    lost: Counter[str] | None = None
    steps: Counter[str] = field(default_factory=Counter)
    label: str = ""
    superseded: bool = False
    rank_conflict: bool = False
    last_timed: float = float("-inf")

    @property
    def job(self) -> str:
        """Job name."""
        return self.facts.job


class ProcessRegistry:
    """Keeps processes from poll to poll."""

    def __init__(self) -> None:
        self._found: dict[ProcessKey, TrainingProcess] = {}
        self._polls = 0
        self._created = 0
        self._by_identity: dict[tuple[object, ...], list[TrainingProcess]] = {}
        self._admission: Admission[str, int] = Admission()

    def begin_poll(self) -> None:
        """Start a poll; `add` and `end_poll` follow."""
        self._polls += 1
        self._by_identity = {}
        for process in self._found.values():
            self._index(process)

    def __contains__(self, key: ProcessKey) -> bool:
        """Return whether a process is known."""
        return key in self._found

    def add(
        self, feed: str, report: ProcessReport, now: float, failures: list[Failure]
    ) -> TrainingProcess | UnusedReason | None:
        """Add a report to its process, which is created if there is room; feeds are added in order of preference.

        Returns:
            The process; why the report is not used; None where it contains no collectives.
        """
        process = self._found.get((feed, report.key))
        preferred = self._preferred(feed, report.facts, now - FEED_TIMEOUT_SECONDS)
        if process is not None:
            _update(process, report)
        if preferred is not None:
            preferred.steps += report.steps
        elif process is not None:
            process.steps += report.steps
        if not report.totals and (not report.progress or self.timed_by_other(feed, report.facts) is not None):
            if process is not None and report.progress:
                process.superseded = True  # another feed has the times; the progress is added to its process
            return None
        process = process or self._create(feed, report, now, failures)
        if process is None:
            return "over_limit"
        self._is_admitted(process.facts, now)
        process.last_poll, process.last_seen = (
            self._polls,
            now,
        )  # also without completions: it may be waiting
        process.superseded = preferred is not None
        process.last_timed = now if report.totals else process.last_timed
        if report.totals and preferred is None and (replaced := self._preferred(feed, report.facts)) is not None:
            replaced.superseded = True  # the preferred feed timed out, and this one takes over
        if preferred is not None:
            preferred.facts.fill_in(process.facts)
            return "duplicate"
        for kind, totals in report.totals.items():
            process.totals.setdefault(kind, CollectiveTotals()).add(totals)
        return process

    def timed_by_other(self, feed: str, facts: ProcessFacts) -> TrainingProcess | None:
        """Return the entry of the same process in another feed that has its times; None where there is none."""
        return next((one for one in self._same_process(facts) if one.feed != feed and not one.superseded), None)

    def _preferred(self, feed: str, facts: ProcessFacts, since: float = float("-inf")) -> TrainingProcess | None:
        """Return the entry of the same process in a preferred feed with times after `since`; None if there is none."""
        place = PREFERENCE.index(feed)
        return next(
            (one for one in self._same_process(facts) if PREFERENCE.index(one.feed) < place and one.last_timed > since),
            None,
        )

    def _same_process(self, facts: ProcessFacts) -> Iterator[TrainingProcess]:
        """Yield the entries of the same process, in any feed, that have times."""
        for key in _identity_keys(facts):
            for other in self._by_identity.get(key, ()):
                if other.last_timed > float("-inf") and _is_same_process(facts, other.facts):
                    yield other

    def end_poll(self, gone: Mapping[str, set[str]], now: float) -> None:
        """Drop the processes that are gone or expired, and label the others.

        Args:
            gone: Keys of processes that are gone, by feed.
            now: Monotonic time.
        """
        self._found = {
            (feed, key): process
            for (feed, key), process in self._found.items()
            if key not in gone.get(feed, ()) and now - process.last_seen < EXPIRY_SECONDS
        }
        for job in self._admission.keys() - {process.job for process in self._found.values()}:
            self._admission.forget(job)
        _label(self._found.values())

    def labelled(self) -> list[TrainingProcess]:
        """Return the processes that are exported, ordered by job and by when they were first seen."""
        found = (process for process in self._found.values() if process.label)
        return sorted(found, key=lambda one: (one.job, one.number))

    def _create(self, feed: str, report: ProcessReport, now: float, failures: list[Failure]) -> TrainingProcess | None:
        job = report.facts.job
        admitted = self._is_admitted(report.facts, now)
        if not admitted or sum(process.job == job for process in self._found.values()) >= MAX_PROCESSES:
            detail = f"{feed} {report.key}: more than {MAX_JOBS} jobs or {MAX_PROCESSES} processes of one; not exported"
            failures.append(Failure(job if admitted else "", "over_limit", detail))
            return None
        assert report.largest is not None  # noqa: S101  # totals are of collectives, which have a communicator
        self._created += 1
        process = TrainingProcess(self._created, feed, report.facts, self._polls, self._polls, now, report.largest)
        process.lost = Counter(report.lost) if report.lost else None
        process.steps = Counter(report.steps)
        self._found[feed, report.key] = process
        self._index(process)
        return process

    def _is_admitted(self, facts: ProcessFacts, now: float) -> bool:
        """Return whether there is room for a job; one that gives way to it is removed with its processes."""
        uid = -1 if facts.uid is None else facts.uid
        admitted, evicted = self._admission.report(facts.job, uid, now, MAX_JOBS)
        if evicted is not None:
            self._found = {key: process for key, process in self._found.items() if process.job != evicted}
        return admitted

    def _index(self, process: TrainingProcess) -> None:
        for key in _identity_keys(process.facts):
            self._by_identity.setdefault(key, []).append(process)


def _update(process: TrainingProcess, report: ProcessReport) -> None:
    """Update facts and losses; after a restart the report may be of another process."""
    if report.largest is not None and (report.restarted or report.largest.ranks > process.largest.ranks):
        process.largest = report.largest
    if report.restarted or report.totals:
        process.facts = report.facts
    if report.lost:
        process.lost = (process.lost or Counter()) + report.lost


def _identity_keys(facts: ProcessFacts) -> Iterable[tuple[object, ...]]:
    """Yield keys that reports of the same process share in all feeds."""
    if facts.host_pid:
        yield "host", facts.host_pid
    if facts.pid:
        yield "inside", facts.host.split(".", 1)[0], facts.pid
    if facts.world_rank is not None:
        yield "rank", facts.job, facts.world_rank


def _is_same_process(one: ProcessFacts, other: ProcessFacts) -> bool:
    """Return whether facts of two feeds, which share a key, are of the same process."""
    if one.host_pid and other.host_pid:
        return one.host_pid == other.host_pid
    if one.job != other.job and "unknown" not in {one.job, other.job}:
        return False
    return not one.pid or not other.pid or one.pid == other.pid


def _label(processes: Iterable[TrainingProcess]) -> None:
    """Set the exported ranks. A process whose last record precedes the first of another with its rank was replaced."""
    active = [process for process in processes if not process.superseded]
    for process in processes:
        process.label, process.rank_conflict = "", False
    claims = _claims(active, set())
    conflicts = {
        one.number
        for claimants in claims.values()
        if len(claimants) > 1
        for one in claimants
        if one.facts.world_rank is not None
    }
    for (_, rank), claimants in (_claims(active, conflicts) if conflicts else claims).items():
        used: set[str] = set()
        for one in claimants:
            label = str(rank) if not used else f"{rank}-{one.facts.pid}"
            one.rank_conflict = one.number in conflicts
            one.label = label if label not in used else f"{rank}-{one.facts.pid}-{one.number}"
            used.add(one.label)


def _claims(processes: Iterable[TrainingProcess], conflicts: set[int]) -> dict[tuple[str, int], list[TrainingProcess]]:
    """Return the processes that currently claim each rank of each job, in the order in which they were first seen."""
    claims: dict[tuple[str, int], list[TrainingProcess]] = {}
    for one in processes:
        world_rank = one.facts.world_rank
        rank = one.largest.rank if world_rank is None or one.number in conflicts else world_rank
        claims.setdefault((one.job, rank), []).append(one)
    return {
        key: sorted((one for one in claimants if one.last_poll >= newest), key=lambda one: one.number)
        for key, claimants in claims.items()
        for newest in [max(one.first_poll for one in claimants)]
    }
