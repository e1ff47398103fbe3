"""Feed of PyTorch's Flight Recorder: JSON dumps, one per rank; the rank is the number at the end of the file name.

A dump holds the last collectives of its rank, with durations if the job measures them (TORCH_NCCL_ENABLE_TIMING).
Consecutive dumps of a rank overlap; entries are counted once. Pickles are rejected. Collectives that have not ended
show how far each rank was (`recorder_progress`).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.nccl.decoding import FormatError
from exporter.nccl.flight_recorder import (
    ProcessGroup,
    RecorderDump,
    RecorderEntry,
    parse_dump,
)
from exporter.sources.common.job_files import UNKNOWN, JobFile, JobFileSearch
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS, JobDumps
from exporter.sources.nccl.metrics import RECORDER_DUMPS, RECORDER_ENTRIES
from exporter.sources.nccl.readers.feed import (
    FeedReport,
    Membership,
    ProcessFacts,
    ProcessReport,
    UnusedReason,
)
from exporter.sources.nccl.readers.recorder_progress import HeldProgress, progress_of, waited

DUMP_OUTCOMES = ("accepted", "pickle", "malformed", "invalid", "too_large", "unreadable")
ENTRY_OUTCOMES = (
    "collective",
    "point_to_point",
    "unfinished",
    "untimed",
    "incomplete",
    "invalid",
    "over_limit",
    "duplicate",
    "excluded",
)

_RANK = re.compile(r"(?:^|[^0-9])([0-9]{1,7})(?:\.json)?$", re.ASCII)

MAX_RANKS = 256
"""Ranks (one dump file each) whose entries are remembered; if there are more, the most recently read."""

EntryKey = tuple[int, int, int]
"""Identity of an entry within its rank: record ID, group, and sequence number in the group."""


class _DumpReading(NamedTuple):
    """Result of reading one dump."""

    report: ProcessReport
    entries: Counter[str]
    failures: list[Failure]
    waited: float


class FlightRecorderFeed:
    """Reads dumps of the Flight Recorder."""

    name = "recorder"
    schemas = (RECORDER_DUMPS, RECORDER_ENTRIES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name: files of others are not opened."""
        self._serial = BlockingCalls("recorder", CALL_TIMEOUT_SECONDS)
        search = JobFileSearch(tuple(folders), lambda name: _RANK.search(name) is not None, is_selected)
        self._dumps = JobDumps(self._serial, search, self._parse, settled=True)
        self._completed: dict[str, frozenset[EntryKey]] = {}
        self._progress = HeldProgress()
        self._outcomes: Counter[str] = Counter()
        self._entries: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool((await self._dumps.search()).folders)

    async def poll(self) -> FeedReport:
        """Read the dumps that are new and complete; the failure of one does not affect the others."""
        poll = await self._dumps.poll()
        for path in poll.gone:
            self._completed.pop(path, None)
            self._progress.forget(path)
        failures, now = poll.failures, monotonic()
        for reading in poll.parsed.values():
            self._progress.add(reading.report, reading.waited, now)
            self._outcomes["accepted"] += 1
            self._entries.update(reading.entries)
            failures += reading.failures
        self._outcomes.update(error.reason if isinstance(error, FormatError) else "unreadable" for error in poll.errors)
        reports = {**self._progress.due(now), **{path: reading.report for path, reading in poll.parsed.items()}}
        return FeedReport(list(reports.values()), poll.gone, failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Move the report's collectives to another outcome."""
        self._entries["collective"] -= report.count
        self._entries[reason] += report.count

    def tables(self, now: float) -> list[Table]:
        """Return outcomes of dumps and entries; nothing before the first dump."""
        if not self._outcomes:
            return []
        tables = []
        for schema, ending, names, counts in (
            (RECORDER_DUMPS, "dumps_total", DUMP_OUTCOMES, self._outcomes),
            (RECORDER_ENTRIES, "entries_total", ENTRY_OUTCOMES, self._entries),
        ):
            column = Column(schema.metrics[ending], [counts[name] for name in names])
            tables.append(Table(schema, self._keepers[schema].rows([(name,) for name in names]), {ending: column}, now))
        return tables

    async def close(self) -> None:
        """Stop the thread."""
        self._serial.close()

    def _parse(self, path: str, file: JobFile, data: bytes) -> _DumpReading:
        """Parse one dump; runs in the thread."""
        dump = parse_dump(data)
        named, job = _RANK.search(path), file.job
        rank = int(named[1]) if named else 0
        facts = ProcessFacts(job, folder="" if job == UNKNOWN else job, uid=file.status.st_uid, world_rank=rank)
        report = ProcessReport(path, facts)
        entries = Counter({"invalid": dump.bad} if dump.bad else {})
        self._add_dump(dump, rank, report, entries)
        failures = []
        if dump.bad:
            failures.append(
                Failure(job, "invalid", f"{path}: {dump.bad} entries or groups; the first: {dump.first_error}")
            )
        return _DumpReading(report, entries, failures, waited(dump.entries, file.status.st_mtime))

    def _add_dump(self, dump: RecorderDump, rank: int, report: ProcessReport, outcomes: Counter[str]) -> None:
        """Add the completed entries that no earlier dump contained."""
        before = self._completed.pop(report.key, frozenset())
        if max((one.record_id for one in dump.entries), default=0) < max(
            (number for number, _, _ in before), default=0
        ):
            before, report.restarted = frozenset(), True  # record IDs restarted: another process
        memberships = _Memberships(dump, rank)
        completed = set()
        for one in dump.entries:
            key = (one.record_id, one.pg_id, one.sequence)
            if one.state == "completed":
                completed.add(key)
            if key not in before:
                outcomes[_add_entry(one, memberships.of(one), report)] += 1
        report.progress = progress_of(dump.entries, memberships.of)
        for progress in report.progress.values():
            report.add_membership(progress.membership)
        self._completed[report.key] = frozenset(completed)
        if len(self._completed) > MAX_RANKS:
            del self._completed[next(iter(self._completed))]


class _Memberships:
    """Memberships of a rank in the groups of a dump."""

    def __init__(self, dump: RecorderDump, rank: int) -> None:
        self._dump, self._rank = dump, rank
        self._found: dict[tuple[int, str], tuple[str, Membership] | None] = {}

    def of(self, entry: RecorderEntry) -> tuple[str, Membership] | None:
        """Return the identifier of an entry's group, and the membership in it; None where its ranks are unknown."""
        group = (entry.pg_id, entry.process_group[0] if entry.process_group else "")
        if group not in self._found:
            self._found[group] = _membership(_group_of(self._dump, *group), self._rank)
        return self._found[group]


def _group_of(dump: RecorderDump, number: int, name: str) -> ProcessGroup | None:
    """Return a group by its number, else by its name."""
    found = dump.groups.get(str(number))
    if found is not None and name in {"", found.name}:
        return found
    return dump.groups.get(name) or next((one for one in dump.groups.values() if one.name == name), None)


def _membership(group: ProcessGroup | None, rank: int) -> tuple[str, Membership] | None:
    """Return an identifier that is equal on all ranks of a group, and the membership; None where ranks are unknown."""
    if group is None or group.ranks is None or rank not in group.ranks:
        return None
    identity = repr((group.name, group.ranks)).encode("utf-8", "backslashreplace")
    name = f"recorder-{blake2b(identity, digest_size=8).hexdigest()}"
    return name, Membership(group.ranks.index(rank), len(group.ranks))


def _add_entry(entry: RecorderEntry, membership: tuple[str, Membership] | None, report: ProcessReport) -> str:
    """Add an entry to the report, and return its outcome."""
    if entry.is_p2p:
        return "point_to_point"
    if entry.state != "completed":
        return "unfinished"
    if entry.duration_ms is None:
        return "untimed"
    microseconds = round(entry.duration_ms * 1000)
    size = entry.input_bytes
    if membership is None or size is None or not microseconds:
        return "incomplete"
    name, member = membership
    report.add_membership(member)
    if entry.kind == "ReduceScatter":
        size //= member.ranks  # PyTorch records the whole input, NCCL counts what one rank receives
    report.add_collective(name, member, entry.kind, entry.sequence, size, microseconds, timed=True)
    return "collective"
