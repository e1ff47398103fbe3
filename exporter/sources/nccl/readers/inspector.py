"""Feed of NCCL Inspector: files of JSON lines, `<host name>-pid<pid>.log`, one per process.

Files are read from where the last poll ended; content from before the start is used for identity only, and not
counted. A line that is rejected does not affect the others.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.collectives import known_kind
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.tail import FILE_BUDGET, MAX_LINE, Chunk
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector import (
    KERNEL_TIMING,
    Header,
    InspectorCollective,
    InspectorContext,
    InspectorLine,
    parse_line,
)
from exporter.sources.common.job_files import UNKNOWN, JobFileSearch
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS, JobLog, JobLogs
from exporter.sources.nccl.metrics import INSPECTOR_FILES, INSPECTOR_LINES
from exporter.sources.nccl.readers.feed import (
    FeedReport,
    Membership,
    ProcessFacts,
    ProcessReport,
    UnusedReason,
)

POLL_BUDGET = 4 * FILE_BUDGET
"""Bytes read per poll, some 20,000 records; the remainder is read at the next poll."""

OUTCOMES = (
    "collective",
    "point_to_point",
    "marker",
    "unknown",
    "malformed",
    "invalid",
    "no_header",
    "too_long",
    "over_limit",
    "duplicate",
    "excluded",
)

_FILE_NAME = re.compile(r"(?:^|/)([^/]*)-pid(\d{1,10})\.log$")


class LogReading(NamedTuple):
    """Result of reading one file: report of its process, outcome of its lines, and failures."""

    report: ProcessReport
    outcomes: Counter[str]
    failures: list[Failure]


class InspectorFeed:
    """Follows the files of NCCL Inspector."""

    name = "inspector"
    schemas = (INSPECTOR_LINES, INSPECTOR_FILES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name: files of others are not opened."""
        self._serial = BlockingCalls("nccl", CALL_TIMEOUT_SECONDS)
        search = JobFileSearch(tuple(folders), lambda name: name.endswith(".log"), is_selected)
        self._logs = JobLogs(self._serial, search, parse_log)
        self._outcomes: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool((await self._logs.search()).folders)

    async def poll(self) -> FeedReport:
        """Read every file that grew; the failure of one does not affect the others."""
        poll = await self._logs.poll(POLL_BUDGET)
        failures = poll.failures
        for reading in poll.parsed.values():
            self._outcomes.update(reading.outcomes)
            failures += reading.failures
        return FeedReport([reading.report for reading in poll.parsed.values()], poll.gone, failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Move the report's collectives to another outcome."""
        self._outcomes["collective"] -= report.count
        self._outcomes[reason] += report.count

    def tables(self, now: float) -> list[Table]:
        """Return line outcomes and the number of files."""
        lines = Column(INSPECTOR_LINES.metrics["lines_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        files = Column(INSPECTOR_FILES.metrics["files"], [len(self._logs.files)])
        rows = self._keepers[INSPECTOR_LINES].rows([(outcome,) for outcome in OUTCOMES])
        return [
            Table(INSPECTOR_LINES, rows, {"lines_total": lines}, now),
            Table(INSPECTOR_FILES, self._keepers[INSPECTOR_FILES].rows([()]), {"files": files}, now),
        ]

    async def close(self) -> None:
        """Stop the thread; no file is open between reads."""
        self._serial.close()


def parse_log(log: JobLog, chunk: Chunk) -> LogReading:
    """Parse the lines of a file; each fails alone. Of each kind of failure the first is reported, with its offset."""
    if chunk.restarted or not isinstance(log.state, InspectorContext):
        log.state = InspectorContext()
    context = log.state
    report = ProcessReport(log.path, ProcessFacts(log.job, uid=log.uid), restarted=chunk.restarted)
    outcomes: Counter[str] = Counter()
    bad: dict[str, tuple[int, str]] = {}
    for offset, text, history in chunk.lines:
        try:
            outcome = _add_line(context, report, parse_line(text), history=history)
        except FormatError as error:
            outcome = "too_long" if error.reason == "too_large" else error.reason
            bad.setdefault(outcome, (offset, str(error)))
        if outcome == "no_header":
            bad.setdefault(outcome, (offset, "no header in this line or before it"))
        if not history:
            outcomes[outcome] += 1
    if chunk.too_long:
        outcomes["too_long"] += len(chunk.too_long)
        bad["too_long"] = (chunk.too_long[0], f"a line of more than {MAX_LINE} bytes; skipped")
    failures = [
        Failure(log.job, reason, f"{log.path}: at byte {offset}: {detail}") for reason, (offset, detail) in bad.items()
    ]
    _identify(log, context, report.facts)
    return LogReading(report, outcomes, failures)


def _identify(log: JobLog, context: InspectorContext, facts: ProcessFacts) -> None:
    """Set folder, host and PID: from the file name, else from the metadata of its lines."""
    facts.folder = "" if log.job == UNKNOWN else log.job
    named, metadata = _FILE_NAME.search(log.path), context.metadata
    facts.host = named[1] if named else metadata.hostname if metadata else ""
    facts.pid = int(named[2]) if named else metadata.pid if metadata else 0


def _add_line(context: InspectorContext, report: ProcessReport, line: InspectorLine, *, history: bool) -> str:
    """Add one line to the report, and return its outcome."""
    header = context.update(line)
    if line.header is not None:
        report.add_membership(_membership(line.header))
    if line.dump_stats is not None and not history:
        report.lost["collective"] += line.dump_stats.coll_dropped_since_last_dump
        report.lost["point_to_point"] += line.dump_stats.p2p_dropped_since_last_dump
    if line.collective is None:
        if line.point_to_point is not None:
            return "point_to_point"
        return "unknown" if line.header is None and line.dump_stats is None else "marker"
    if header is None:
        return "no_header"
    if not history:
        _add_collective(report, header, line.collective)
    return "collective"


def _membership(header: Header) -> Membership:
    return Membership(header.rank, header.n_ranks, header.nnodes)


def _add_collective(report: ProcessReport, header: Header, one: InspectorCollective) -> None:
    timed = one.timing_source == KERNEL_TIMING if one.timing_source else None
    membership = _membership(header)
    report.add_membership(membership)
    report.add_collective(
        header.id, membership, known_kind(one.kind), one.sequence, one.message_bytes, int(one.microseconds), timed
    )
