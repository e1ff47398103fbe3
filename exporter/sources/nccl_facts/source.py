"""Source `nccl_facts`: NCCL's logs, Inspector's text files and, where enabled, the RAS service of this host's jobs.

A log shows how each process reaches the others, once at its start, and later the errors, often minutes before the job
fails. Each of the three parts fails alone, and is absent where there is nothing to read.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
)
from exporter.linux.tail import FILE_BUDGET, START_WINDOW, Chunk
from exporter.linux.untrusted_files import read_untrusted
from exporter.nccl.debug_log import ScanStats, scan
from exporter.nccl.log_facts import LogEntry
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.job_files import JobFileSearch
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS, SEARCH, JobLog, JobLogs
from exporter.sources.nccl_facts.inspector_windows import (
    TextfileReading,
    TextfileWindows,
    is_textfile,
    read_file,
)
from exporter.sources.nccl_facts.log_process import LoggedProcess
from exporter.sources.nccl_facts.log_state import LogState
from exporter.sources.nccl_facts.metrics import SCHEMAS
from exporter.sources.nccl_facts.options import NcclFactsOptions
from exporter.sources.nccl_facts.ras_poller import LogEvidence, RasPoller
from exporter.sources.nccl_facts.ras_status import listening_inodes
from exporter.sources.nccl_facts.tables import LogTables

POLL_BUDGET = 2 * FILE_BUDGET
"""Bytes of logs read per poll: half a second of work if every line is a fact."""

MAX_HEAD = START_WINDOW
"""Bytes at the beginning of a long log that are read when it is first seen: processes log their configuration there."""

MAX_SOCKETS = 16 << 20
"""Bytes of /proc/net/tcp that are read."""

INIT_COMPLETE_SECONDS = 60.0
"""Time after a line about a complete communicator within which others may be initialised."""

INIT_TIMEOUT_SECONDS = 600.0
"""Time after which a communicator without a line about its completion is no longer being initialised."""

_NOT_A_LOG = re.compile(r"-pid\d{1,20}\.log\Z|\.(?:prom|json|jsonl|pickle|pkl|gz|zst|xz|bz2|so|py|pt)\Z", re.ASCII)
"""Names of files that are not logs: Inspector's, and others in the same folders."""


@dataclass(slots=True)
class _LogReading:
    """Facts in a log from before the start, new facts, lines by outcome, and whether the log was rewritten."""

    history: list[LogEntry] = field(default_factory=list)
    new: list[LogEntry] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    restarted: bool = False


class NcclFactsSource:
    """Reads what NCCL reports about itself."""

    name = "nccl_facts"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: NcclFactsOptions, host: Host) -> None:
        """Create the source."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._serial = BlockingCalls("nccl_facts", CALL_TIMEOUT_SECONDS)
        logs = JobFileSearch(options.logs, lambda name: not _NOT_A_LOG.search(name), options.matches)
        self._logs = JobLogs(self._serial, logs, _parse, first_bytes=MAX_HEAD)
        self._state = LogState()
        self._lines: Counter[str] = Counter()
        self._tables = LogTables()
        self._text_search = JobFileSearch(options.textfiles, is_textfile, options.matches)
        self._textfiles = TextfileWindows()
        self._ras = RasPoller(options.ras)

    async def applies(self) -> bool:
        """Return whether there is any file, or RAS is enabled."""
        if self._options.ras.enabled or (await self._logs.search()).files:
            return True
        return bool((await make_call(self._serial, SEARCH, partial(self._text_search.find, []))).files)

    async def read(self) -> Reading:
        """Read new lines of logs and changed text files, and poll RAS if due; each file fails alone."""
        poll = await self._logs.poll(POLL_BUDGET)
        now, failures = monotonic(), poll.failures
        self._state.retain(self._logs.files, {log.job for log in self._logs.files.values()})
        for path, reading in poll.parsed.items():
            self._add_log(path, self._logs.files[path].job, reading, now)
        tables = (
            self._tables.tables(self._state, self._line_counts(), self._log_ages(), now) if self._logs.files else []
        )
        await self._read_textfiles(failures)
        tables += self._textfiles.tables(time(), now)
        if self._textfiles.dropped:
            detail = f"{self._textfiles.dropped} values of text files dropped: too many jobs, kinds and sizes"
            failures.append(Failure("", "over_limit", detail))
        if self._options.ras.enabled:
            evidence = self._evidence(now)
            self._ras.poll_if_due(await self._inodes(failures), evidence)
            tables += self._ras.tables(evidence.jobs, now)
            if self._ras.problem:
                failures.append(Failure("RAS", "unreachable", self._ras.problem))
        return Reading(tables, failures)

    async def close(self) -> None:
        """Stop the thread, and cancel a running RAS poll; no file is open between reads."""
        await self._ras.close()
        self._serial.close()

    async def _read_textfiles(self, failures: list[Failure]) -> None:
        """Read the text files that changed."""
        try:
            found = await make_call(self._serial, SEARCH, partial(self._text_search.find, failures))
        except SourceError as error:
            failures.append(Failure("", error.reason, f"text files: {error}"))
            return
        due = self._textfiles.update(found.files)
        results = await self._serial.run((one.path, partial(read_file, one.path)) for one in due)
        for one in due:
            result = results[one.path]
            if isinstance(result, TextfileReading):
                self._textfiles.add(one.path, result)
            elif not isinstance(result, FileNotFoundError):
                failures.append(failure_of(one.job, result, one.path))

    async def _inodes(self, failures: list[Failure]) -> frozenset[str]:
        """Return the sockets that listen on the RAS port; none if that is unknown."""
        try:
            return await make_call(self._serial, "listeners", self._listeners)
        except SourceError as error:
            failures.append(Failure("RAS", error.reason, str(error)))
            return frozenset()

    def _listeners(self) -> frozenset[str]:
        """Return the sockets that listen on the RAS port, without connecting to it."""
        tables = []
        for name in ("tcp", "tcp6"):
            try:
                data, _ = read_untrusted(str(self._host.procfs / "net" / name), MAX_SOCKETS)
            except OSError:
                continue  # a kernel without IPv6
            tables.append(data.decode("ascii", "replace"))
        return listening_inodes(tables, self._options.ras.endpoint[1])

    def _add_log(self, path: str, job: str, reading: _LogReading, now: float) -> None:
        if reading.restarted:
            self._state.restart(path)
        for entry in reading.history:
            self._state.add(job, path, entry, now, history=True)
        for entry in reading.new:
            self._state.add(job, path, entry, now, history=False)
        self._lines.update(reading.lines)

    def _log_ages(self) -> dict[str, float]:
        """Return the seconds since the last write to each log."""
        now = time()
        return {path: max(0.0, now - log.modified) for path, log in self._logs.files.items()}

    def _line_counts(self) -> Counter[str]:
        """Return lines by outcome; facts that were dropped are added as over_limit."""
        lines = Counter(self._lines)
        lines["over_limit"] = self._state.over_limit
        return lines

    def _evidence(self, now: float) -> LogEvidence:
        """Return what the logs show about the jobs that RAS would be polled for."""
        processes = [one for group in self._state.groups.values() for one in group.values()]
        versions = {one.version for one in processes if one.version}
        versions |= {one.version for one in self._state.versions.values()}
        jobs = {
            comm.comm_id: key[0]
            for key, group in self._state.groups.items()
            for one in group.values()
            for comm in one.communicators.values()
            if comm.comm_id
        }
        of_jobs: dict[str, list[LoggedProcess]] = {}
        for (job, _, _), group in self._state.groups.items():
            of_jobs.setdefault(job, []).extend(group.values())
        # It is unknown which job's service has the port, so rank 0 of each of the jobs must be here.
        rank_zero = [
            here for of_job in of_jobs.values() if (here := _has_rank_zero(of_job, self._host.name)) is not None
        ]
        return LogEvidence(
            versions.pop() if len(versions) == 1 else "",
            any(_initialising(one, now) for one in processes),
            bool(rank_zero) and all(rank_zero),
            jobs,
        )


def _parse(_: JobLog, chunk: Chunk) -> _LogReading:
    """Search the lines of a log for facts."""
    read = _LogReading(restarted=chunk.restarted)
    _search(b"\n".join(line.text for line in chunk.lines if line.history), read.history, Counter())
    _search(b"\n".join(line.text for line in chunk.lines if not line.history), read.new, read.lines)
    read.lines["too_long"] += len(chunk.too_long)
    return read


def _search(text: bytes, found: list[LogEntry], lines: Counter[str]) -> None:
    """Search lines for facts, and count lines by outcome."""
    if not text:
        return
    scanned = ScanStats()
    before = len(found)
    found.extend(scan(text, scanned))
    lines["fact"] += len(found) - before
    lines["too_long"] += scanned.too_long
    lines["other"] += scanned.lines - scanned.too_long - (len(found) - before)


def _initialising(process: LoggedProcess, now: float) -> bool:
    """Return whether a process is, or may be, initialising a communicator."""
    return any(
        one.last_seen is not None
        and now - one.last_seen < (INIT_COMPLETE_SECONDS if one.complete else INIT_TIMEOUT_SECONDS)
        for one in process.communicators.values()
    )


def _has_rank_zero(processes: Sequence[LoggedProcess], host: str) -> bool | None:
    """Return whether rank 0 of the largest communicator runs on this host; None if unknown."""
    sizes = [comm.n_ranks for one in processes for comm in one.communicators.values()]
    if not sizes:
        return None
    largest = max(sizes)
    here = host.partition(".")[0]
    return any(
        comm.n_ranks == largest and comm.rank == 0 and one.host.partition(".")[0] == here
        for one in processes
        for comm in one.communicators.values()
    )


def _build(options: NcclFactsOptions, context: Context) -> list[Source]:
    return [NcclFactsSource(options, context.host)]


DEFINITION = Definition("nccl_facts", NcclFactsOptions, SCHEMAS, _build)
