"""Feed of NCCL Inspector: files of JSON lines, `<host name>-pid<pid>.log`, one per process.

Files are read from where the last poll ended; content from before the start is used for identity only, and not
counted. A line that is rejected does not affect the others.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.collectives import known_kind
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux.tail import (
    FILE_BUDGET,
    MAX_LINE,
    Chunk,
    FollowedFile,
    Tail,
)
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector import (
    KERNEL_TIMING,
    Header,
    InspectorCollective,
    InspectorContext,
    InspectorLine,
    parse_line,
)
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl.metrics import INSPECTOR_FILES, INSPECTOR_LINES
from exporter.sources.nccl.readers.feed import (
    FeedReport,
    Membership,
    ProcessFacts,
    ProcessReport,
    UnusedReason,
)
from exporter.sources.nccl.readers.files import CALL_TIMEOUT_SECONDS, find, off_loop

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


@dataclass(slots=True)
class InspectorLog:
    """One file: job from its folder, owner, and the header in effect."""

    file: FollowedFile
    job: str
    uid: int
    context: InspectorContext = field(default_factory=InspectorContext)


class LogReading(NamedTuple):
    """Result of reading one file: report of its process, outcome of its lines, and failures."""

    report: ProcessReport
    outcomes: Counter[str]
    failures: list[Failure]


class _Survey(NamedTuple):
    """Number of existing folders, files that grew, and failures."""

    folders: int
    grown: list[InspectorLog]
    failures: list[Failure]


class InspectorFeed:
    """Follows the files of NCCL Inspector."""

    name = "inspector"
    schemas = (INSPECTOR_LINES, INSPECTOR_FILES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name: files of others are not opened."""
        self._folders, self._is_selected = folders, is_selected
        self._serial = BlockingCalls("nccl", CALL_TIMEOUT_SECONDS)
        self._tail = Tail()
        self._logs: dict[str, InspectorLog] = {}
        self._budget = 0
        self._gone: set[str] = set()
        self._outcomes: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return (await off_loop(self._serial, self._survey)).folders > 0

    async def poll(self) -> FeedReport:
        """Read every file that grew; the failure of one does not affect the others."""
        survey = await off_loop(self._serial, self._survey)
        self._budget = POLL_BUDGET
        results = await self._serial.run((log.file.path, partial(self._read, log)) for log in survey.grown)
        gone, self._gone = self._gone, set()
        feed_report = FeedReport(gone=gone, failures=(failures := list(survey.failures)))
        for log in survey.grown:
            result = results[log.file.path]
            if isinstance(result, FileNotFoundError):
                continue  # removed since it was listed, as for jobs that ended
            if isinstance(result, Exception):
                failures.append(failure_of(log.job, result, log.file.path))
            else:
                feed_report.processes.append(result.report)
                self._outcomes.update(result.outcomes)
                failures += result.failures
        return feed_report

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Move the report's collectives to another outcome."""
        self._outcomes["collective"] -= report.count
        self._outcomes[reason] += report.count

    def tables(self, now: float) -> list[Table]:
        """Return line outcomes and the number of files."""
        lines = Column(INSPECTOR_LINES.metrics["lines_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        files = Column(INSPECTOR_FILES.metrics["files"], [len(self._tail.files)])
        rows = self._keepers[INSPECTOR_LINES].rows([(outcome,) for outcome in OUTCOMES])
        return [
            Table(INSPECTOR_LINES, rows, {"lines_total": lines}, now),
            Table(INSPECTOR_FILES, self._keepers[INSPECTOR_FILES].rows([()]), {"files": files}, now),
        ]

    async def close(self) -> None:
        """Stop the thread; no file is open between reads."""
        self._serial.close()

    def _survey(self) -> _Survey:
        """Find the files and those that grew; runs in the thread."""
        failures: list[Failure] = []
        found = find(self._folders, (".log",), self._is_selected, failures)
        look = self._tail.scan({path: state for path, (_, state) in found.files.items()})
        for one in look.gone:
            self._logs.pop(one.path, None)
            self._gone.add(one.path)  # returned by the next poll; `applies` does not return it
        if look.too_many or found.truncated:
            where = ", ".join(found.folders)
            detail = f"more than {len(self._tail.files)} files below {where}; remove those of old jobs"
            failures.append(Failure("", "too_many_files", detail))
        grown = []
        for file in look.grown:
            log = self._logs.get(file.path)
            if log is None:
                job, state = found.files[file.path]
                log = self._logs[file.path] = InspectorLog(file, job, state.st_uid)
            grown.append(log)
        return _Survey(len(found.folders), grown, failures)

    def _read(self, log: InspectorLog) -> LogReading:
        """Read what was appended to one file; runs in the thread."""
        if self._budget <= MAX_LINE:
            return parse_log(log, Chunk([]))  # it is among the first at the next poll
        chunk = self._tail.read(log.file, min(FILE_BUDGET, self._budget))
        self._budget -= chunk.read
        return parse_log(log, chunk)


def parse_log(log: InspectorLog, chunk: Chunk) -> LogReading:
    """Parse the lines of a file; each fails alone. Of each kind of failure the first is reported, with its offset."""
    path = log.file.path
    report = ProcessReport(path, ProcessFacts(log.job, uid=log.uid), restarted=chunk.restarted)
    outcomes: Counter[str] = Counter()
    if chunk.restarted:
        log.context = InspectorContext()
    bad: dict[str, tuple[int, str]] = {}
    for offset, text, history in chunk.lines:
        try:
            outcome = _add_line(log.context, report, parse_line(text), history=history)
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
        Failure(log.job, reason, f"{path}: at byte {offset}: {detail}") for reason, (offset, detail) in bad.items()
    ]
    if chunk.skipped:
        detail = f"{path}: grows faster than it is read; {chunk.skipped} bytes skipped"
        failures.append(Failure(log.job, "backlog", detail))
    _identify(log, report.facts)
    return LogReading(report, outcomes, failures)


def _identify(log: InspectorLog, facts: ProcessFacts) -> None:
    """Set folder, host and PID: from the file name, else from the metadata of its lines."""
    facts.folder = "" if log.job == UNKNOWN else log.job
    named, metadata = _FILE_NAME.search(log.file.path), log.context.metadata
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
        header.id, membership, known_kind(one.kind), one.sequence, one.message_bytes, one.microseconds, timed
    )
