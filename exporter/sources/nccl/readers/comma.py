"""Feed of CoMMA, Google's profiler plugin: files to which each process appends a JSON object per collective.

CoMMA does not report the size of a communicator, so its times cannot be compared across ranks; they are summed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.tail import (
    FILE_BUDGET,
    MAX_LINE,
    Chunk,
    FollowedFile,
    Tail,
)
from exporter.nccl.comma import CommaEvent, parse_events
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.metrics import COMMA_COLLECTIVES, COMMA_OBJECTS
from exporter.sources.nccl.readers.feed import (
    CollectiveTotals,
    FeedReport,
    ProcessReport,
    UnusedReason,
)
from exporter.sources.nccl.readers.files import (
    CALL_TIMEOUT_SECONDS,
    Found,
    find,
    find_folders,
    off_loop,
)

POLL_BUDGET = 2 * FILE_BUDGET
"""Bytes read per poll; the remainder is read at the next poll."""

MAX_JOBS = 32
"""Jobs whose totals are kept."""

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


class CommaFeed:
    """Follows the files of CoMMA."""

    name = "comma"
    schemas = (COMMA_OBJECTS, COMMA_COLLECTIVES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name: files of others are not opened."""
        self._folders, self._is_selected = folders, is_selected
        self._serial = BlockingCalls("comma", CALL_TIMEOUT_SECONDS)
        self._tail = Tail()
        self._budget = 0
        self._outcomes: Counter[str] = Counter()
        self._totals: dict[tuple[str, str], CollectiveTotals] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool(await off_loop(self._serial, partial(find_folders, self._folders)))

    async def poll(self) -> FeedReport:
        """Read every file that grew; the failure of one does not affect the others."""
        failures: list[Failure] = []
        found = await off_loop(self._serial, partial(self._find, failures))
        look = self._tail.scan({path: state for path, (_, state) in found.files.items()})
        if look.too_many or found.truncated:
            failures.append(Failure("", "too_many_files", "more files than are followed; remove those of old jobs"))
        self._budget = POLL_BUDGET
        results = await self._serial.run((one.path, partial(self._read, one)) for one in look.grown)
        for one in look.grown:
            result, job = results[one.path], found.files[one.path][0]
            if isinstance(result, Chunk):
                self._add_chunk(result, job)
                if result.skipped:
                    failures.append(Failure(job, "backlog", f"{one.path}: {result.skipped} bytes skipped"))
            elif not isinstance(result, FileNotFoundError):
                failures.append(failure_of(job, result, one.path))
        return FeedReport(failures=failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Do nothing: the feed reports no processes."""

    def tables(self, now: float) -> list[Table]:
        """Return outcomes of objects and totals by kind; nothing before the first object."""
        if not self._outcomes:
            return []
        outcomes = Column(COMMA_OBJECTS.metrics["objects_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        rows = self._keepers[COMMA_OBJECTS].rows([(outcome,) for outcome in OUTCOMES])
        totals, metrics = self._totals.values(), COMMA_COLLECTIVES.metrics
        columns = (
            Column(metrics["collectives_total"], [one.count for one in totals]),
            Column(
                metrics["collective_duration_seconds_total"], [one.microseconds for one in totals], divisor=1_000_000
            ),
        )
        tables = [Table(COMMA_OBJECTS, rows, {"objects_total": outcomes}, now)]
        if self._totals:
            kinds = self._keepers[COMMA_COLLECTIVES].rows(list(self._totals))
            tables.append(Table(COMMA_COLLECTIVES, kinds, {column.metric.ending: column for column in columns}, now))
        return tables

    async def close(self) -> None:
        """Stop the thread; no file is open between reads."""
        self._serial.close()

    def _find(self, failures: list[Failure]) -> Found:
        return find(self._folders, (".txt", ".json", ".log"), self._is_selected, failures)

    def _read(self, one: FollowedFile) -> Chunk:
        """Read what was appended to one file; runs in the thread."""
        if self._budget <= MAX_LINE:
            return Chunk([])
        chunk = self._tail.read(one, min(FILE_BUDGET, self._budget))
        self._budget -= chunk.read
        return chunk

    def _add_chunk(self, chunk: Chunk, job: str) -> None:
        """Add new objects of a file: one object per line, or all of them in one line."""
        self._outcomes["too_long"] += len(chunk.too_long)
        new = (text.strip() for _, text, history in chunk.lines if not history)
        for text in new:
            if text not in {b"", b"[", b"]"}:
                for event in parse_events(text, self._outcomes):
                    self._count(event, job)

    def _count(self, event: CommaEvent, job: str) -> None:
        if event.microseconds is None:
            self._outcomes["untimed"] += 1
            return
        key = (job, event.kind)
        totals = self._totals.get(key)
        if totals is None:
            if job not in {one for one, _ in self._totals} and len({one for one, _ in self._totals}) >= MAX_JOBS:
                self._outcomes["over_limit"] += 1
                return
            totals = self._totals[key] = CollectiveTotals()
        totals.count += 1
        totals.microseconds += event.microseconds
        self._outcomes["collective"] += 1
