"""Feed of CoMMA, Google's profiler plugin: files to which each process appends a JSON object per collective.

CoMMA does not report the size of a communicator, so its times cannot be compared across ranks; they are summed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.tail import FILE_BUDGET, Chunk
from exporter.nccl.comma import CommaEvent, parse_events
from exporter.sources.common.job_files import JobFileSearch
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS, JobLog, JobLogs
from exporter.sources.nccl.metrics import COMMA_COLLECTIVES, COMMA_OBJECTS
from exporter.sources.nccl.readers.feed import (
    CollectiveTotals,
    FeedReport,
    ProcessReport,
    UnusedReason,
)

POLL_BUDGET = 2 * FILE_BUDGET
"""Bytes read per poll; the remainder is read at the next poll."""

MAX_JOBS = 32
"""Jobs whose totals are kept."""

EXPIRY_SECONDS = 3600.0
"""Time without a new object after which a job's totals expire."""

OUTCOMES = (
    "collective",
    "untimed",
    "other_category",
    "malformed",
    "invalid",
    "too_large",
    "too_long",
    "over_limit",
)


class _Objects(NamedTuple):
    """Objects of a file, and those that were rejected by outcome."""

    outcomes: Counter[str]
    events: list[CommaEvent]


@dataclass(slots=True)
class _JobTotals:
    """Totals of a job by kind, and the monotonic time of its last object."""

    kinds: dict[str, CollectiveTotals] = field(default_factory=dict)
    last_seen: float = 0.0


class CommaFeed:
    """Follows the files of CoMMA."""

    name = "comma"
    schemas = (COMMA_OBJECTS, COMMA_COLLECTIVES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name: files of others are not opened."""
        self._serial = BlockingCalls("comma", CALL_TIMEOUT_SECONDS)
        search = JobFileSearch(tuple(folders), lambda name: name.endswith((".txt", ".json", ".log")), is_selected)
        self._logs = JobLogs(self._serial, search, _parse)
        self._outcomes: Counter[str] = Counter()
        self._jobs: dict[str, _JobTotals] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool((await self._logs.search()).folders)

    async def poll(self) -> FeedReport:
        """Read every file that grew; the failure of one does not affect the others."""
        poll = await self._logs.poll(POLL_BUDGET)
        now = monotonic()
        self._expire(now)
        for path, objects in poll.parsed.items():
            self._outcomes.update(objects.outcomes)
            for event in objects.events:
                self._count(event, self._logs.files[path].job, now)
        return FeedReport(failures=poll.failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Do nothing: the feed reports no processes."""

    def tables(self, now: float) -> list[Table]:
        """Return outcomes of objects and totals by kind; nothing before the first object."""
        if not self._outcomes:
            return []
        outcomes = Column(COMMA_OBJECTS.metrics["objects_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        rows = self._keepers[COMMA_OBJECTS].rows([(outcome,) for outcome in OUTCOMES])
        by_kind = {(job, kind): one for job, of_job in self._jobs.items() for kind, one in of_job.kinds.items()}
        totals, metrics = by_kind.values(), COMMA_COLLECTIVES.metrics
        columns = (
            Column(metrics["collectives_total"], [one.count for one in totals]),
            Column(
                metrics["collective_duration_seconds_total"], [one.microseconds for one in totals], divisor=1_000_000
            ),
        )
        tables = [Table(COMMA_OBJECTS, rows, {"objects_total": outcomes}, now)]
        if by_kind:
            kinds = self._keepers[COMMA_COLLECTIVES].rows(list(by_kind))
            tables.append(Table(COMMA_COLLECTIVES, kinds, {column.metric.ending: column for column in columns}, now))
        return tables

    async def close(self) -> None:
        """Stop the thread; no file is open between reads."""
        self._serial.close()

    def _expire(self, now: float) -> None:
        """Drop the totals of jobs whose files were removed, or do not grow any more."""
        present = {log.job for log in self._logs.files.values()}
        self._jobs = {
            job: totals
            for job, totals in self._jobs.items()
            if job in present and now - totals.last_seen < EXPIRY_SECONDS
        }

    def _count(self, event: CommaEvent, job: str, now: float) -> None:
        if event.microseconds is None:
            self._outcomes["untimed"] += 1
            return
        if job not in self._jobs and len(self._jobs) >= MAX_JOBS:
            self._outcomes["over_limit"] += 1
            return
        of_job = self._jobs.setdefault(job, _JobTotals())
        of_job.last_seen = now
        totals = of_job.kinds.setdefault(event.kind, CollectiveTotals())
        totals.count += 1
        totals.microseconds += event.microseconds
        self._outcomes["collective"] += 1


def _parse(_: JobLog, chunk: Chunk) -> _Objects:
    """Parse new objects of a file: one object per line, or all of them in one line."""
    objects = _Objects(Counter({"too_long": len(chunk.too_long)}), [])
    for text in (line.text.strip() for line in chunk.lines if not line.history):
        if text not in {b"", b"[", b"]"}:
            objects.events.extend(parse_events(text, objects.outcomes))
    return objects
