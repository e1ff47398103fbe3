"""Facts of NCCL on this host beside timings: its logs, Inspector's text files and, where allowed, the RAS service.

A log says once how each process reaches the others, and later what went wrong: often minutes before anybody notices.
Each of the three parts fails alone, and is absent where there is nothing to read.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, time

from exporter.config.units import Duration
from exporter.core.blocking import BlockingCalls
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Source,
)
from exporter.linux.tail import (
    FILE_BUDGET,
    MAX_LINE,
    START_WINDOW,
    Chunk,
    FollowedFile,
    Tail,
)
from exporter.nccl.debug_log import Scan, scan
from exporter.nccl.log_facts import Entry
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.readers.files import CALL_DEADLINE, off_loop
from exporter.sources.nccl_facts import inspector_windows
from exporter.sources.nccl_facts import ras as nccl_facts_ras
from exporter.sources.nccl_facts import tables as nccl_facts_tables
from exporter.sources.nccl_facts.files import find, read_whole
from exporter.sources.nccl_facts.inspector_windows import (
    TextFile,
    Textfiles,
    Told,
    read_file,
)
from exporter.sources.nccl_facts.ras import (
    Evidence,
    RasOptions,
    RasPoller,
    listeners,
)
from exporter.sources.nccl_facts.state import Book, Process
from exporter.sources.nccl_facts.tables import LogTables

POLL_BUDGET = 2 * FILE_BUDGET
"""Bytes of logs read at one poll: half a second of work where every line says something."""

MAX_HEAD = START_WINDOW
"""Bytes at the beginning of a long log that are read when it is taken up: how a process is connected stands there."""

MAX_SOCKETS = 16 << 20
"""Bytes that are read of a table of sockets."""

SETTLING = 60.0
"""Seconds after a line about a communicator in which others may be in the making."""

STALLED = 600.0
"""Seconds after which a communicator whose end was not told is no longer being made."""

_NO_LOG = re.compile(r"-pid\d{1,20}\.log\Z|\.(?:prom|json|jsonl|pickle|pkl|gz|zst|xz|bz2|so|py|pt)\Z", re.ASCII)
"""Names of files that are no logs: Inspector's, and what lies beside them."""


class NcclFactsOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.nccl_facts`; include and exclude are names of jobs.

    Attributes:
        logs: Logs of NCCL, or of the jobs whole; folders of them, or shell patterns of either.
        textfiles: Folders of Inspector's text files, or shell patterns of folders.
        ras: Whether and how RAS is asked.
    """

    interval: Duration = Duration(5.0)
    logs: tuple[str, ...] = ("/run/fabric-exporter/nccl-logs",)
    textfiles: tuple[str, ...] = ("/run/fabric-exporter/nccl",)
    ras: RasOptions = RasOptions()


@dataclass(slots=True)
class _Look:
    """What there is to read."""

    logs: list[tuple[FollowedFile, str]] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    textfiles: list[TextFile] = field(default_factory=list)
    inodes: frozenset[str] = frozenset()
    failures: list[Failure] = field(default_factory=list)


@dataclass(slots=True)
class _Read:
    """What one read of a log gave: facts from before the start, those that are news, and what became of lines."""

    history: list[Entry] = field(default_factory=list)
    fresh: list[Entry] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    restarted: bool = False
    skipped: int = 0


class NcclFactsSource:
    """Reads what NCCL tells of itself."""

    name = "nccl_facts"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: NcclFactsOptions, host: Host) -> None:
        """Take the configuration."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._serial = BlockingCalls("nccl_facts", CALL_DEADLINE)
        self._tail = Tail()
        self._left = 0
        self._book = Book()
        self._lines: Counter[str] = Counter()
        self._tables = LogTables()
        self._textfiles = Textfiles()
        self._ras = RasPoller(options.ras)

    async def applies(self) -> bool:
        """Tell whether there is any file, or RAS is to be asked."""
        look = await self._looked()
        return self._options.ras.enabled or bool(look.jobs or look.textfiles)

    async def read(self) -> Reading:
        """Read on in logs, read text files anew, and ask RAS when it may be asked; each file fails alone."""
        look = await self._looked()
        now = monotonic()
        self._left = POLL_BUDGET
        logs = {f"log {file.path}": (file, job) for file, job in look.logs}
        texts = {f"text {one.path}": one for one in look.textfiles}
        calls = [(key, partial(self._read_log, file)) for key, (file, _) in logs.items()]
        read = await self._serial.run(calls)
        told = await self._serial.run((key, partial(read_file, one.path)) for key, one in texts.items())
        failures = look.failures
        self._book.forget(look.jobs, look.jobs.values())
        for key, (file, job) in logs.items():
            self._take_log(file.path, job, read[key], now, failures)
        for key, one in texts.items():
            self._take_text(one, told[key], failures)
        tables = self._tables.tables(self._book, self._counted(), len(self._tail.files), now) if look.jobs else []
        tables += self._textfiles.tables(time(), now)
        if self._textfiles.left_out:
            detail = f"{self._textfiles.left_out} numbers of text files left out: too many jobs, kinds and sizes"
            failures.append(Failure("", "over_limit", detail))
        if self._options.ras.enabled:
            evidence = self._evidence(now)
            self._ras.consider(look.inodes, evidence)
            tables += self._ras.tables(evidence.jobs, now)
            if self._ras.problem:
                failures.append(Failure("RAS", "unreachable", self._ras.problem))
        return Reading(tables, failures)

    async def close(self) -> None:
        """End the thread, and a question to RAS under way; no file is open between reads."""
        await self._ras.close()
        self._serial.close()

    async def _looked(self) -> _Look:
        return await off_loop(self._serial, self._look)

    def _look(self) -> _Look:
        """Find the files, and what of them grew or changed; runs in the thread."""
        look = _Look()
        options = self._options
        logs = find(options.logs, lambda name: not _NO_LOG.search(name), options.matches, look.failures)
        texts = find(options.textfiles, inspector_windows.takes, options.matches, look.failures)
        followed = self._tail.look({path: state for path, (_, state) in logs.files.items()})
        look.jobs = {path: logs.files[path][0] for path in self._tail.files}
        grown = {file.path for file in followed.grown}
        # how a process is connected stands in what was there before the start, too
        unread = [file for path, file in self._tail.files.items() if file.last_scan == 0 and path not in grown]
        look.logs = [(file, look.jobs[file.path]) for file in (*followed.grown, *unread)]
        if followed.too_many or logs.cut:
            detail = f"more than {len(self._tail.files)} logs below {', '.join(options.logs)}; remove those of old jobs"
            look.failures.append(Failure("", "too_many_files", detail))
        look.textfiles = self._textfiles.look(texts.files)
        if options.ras.enabled:
            look.inodes = self._listeners()
        return look

    def _listeners(self) -> frozenset[str]:
        """Look up who listens on the port of RAS, without trying it."""
        tables = []
        for name in ("tcp", "tcp6"):
            try:
                data, _ = read_whole(str(self._host.procfs / "net" / name), MAX_SOCKETS)
            except OSError:
                continue  # a kernel without IPv6
            tables.append(data.decode("ascii", "replace"))
        return listeners(tables, self._options.ras.endpoint[1])

    def _read_log(self, file: FollowedFile) -> _Read:
        """Read on in one log; runs in the thread."""
        read = _Read()
        if self._left <= MAX_LINE:
            return read  # it is among the first the next time
        if file.last_scan == 0 and file.offset > 0:
            head, _ = read_whole(file.path, min(MAX_HEAD, file.offset))
            _search(head.rpartition(b"\n")[0], read.history, Counter())
            self._left -= len(head)
        chunk = self._tail.read(file, min(FILE_BUDGET, self._left))
        self._left -= chunk.read
        _parse(chunk, read)
        return read

    def _take_log(self, path: str, job: str, result: _Read | Exception, now: float, failures: list[Failure]) -> None:
        if isinstance(result, FileNotFoundError):
            return  # removed since it was listed, as files of jobs that ended are
        if isinstance(result, Exception):
            failures.append(failure_of(job, result, path))
            return
        if result.restarted:
            self._book.restart(path)
        for entry in result.history:
            self._book.take(job, path, entry, now, history=True)
        for entry in result.fresh:
            self._book.take(job, path, entry, now, history=False)
        self._lines.update(result.lines)
        if result.skipped:
            detail = f"{path}: grows faster than it is read; {result.skipped} bytes passed over"
            failures.append(Failure(job, "backlog", detail))

    def _take_text(self, one: TextFile, result: Told | Exception, failures: list[Failure]) -> None:
        if isinstance(result, Told):
            self._textfiles.take(one.path, result)
        elif not isinstance(result, FileNotFoundError):
            failures.append(failure_of(one.job, result, one.path))

    def _counted(self) -> Counter[str]:
        """Give lines by outcome, with those whose facts found no room."""
        lines = Counter(self._lines)
        lines["over_limit"] = self._book.over_limit
        return lines

    def _evidence(self, now: float) -> Evidence:
        """Tell what logs say that RAS must be asked after."""
        processes = [one for group in self._book.groups.values() for one in group.values()]
        versions = {one.version for one in processes if one.version}
        versions |= {one.version for one in self._book.versions.values()}
        jobs = {
            comm.comm_id: key[0]
            for key, group in self._book.groups.items()
            for one in group.values()
            for comm in one.communicators.values()
            if comm.comm_id
        }
        of_jobs: dict[str, list[Process]] = {}
        for (job, _, _), group in self._book.groups.items():
            of_jobs.setdefault(job, []).extend(group.values())
        # whose service holds the port is not known, so that each of the jobs must be one to ask
        first = [told for of_job in of_jobs.values() if (told := _first_here(of_job, self._host.name)) is not None]
        return Evidence(
            versions.pop() if len(versions) == 1 else "",
            any(_initialising(one, now) for one in processes),
            bool(first) and all(first),
            jobs,
        )


def _parse(chunk: Chunk, read: _Read) -> None:
    """Search the lines of a chunk."""
    read.restarted, read.skipped = chunk.restarted, chunk.skipped
    _search(b"\n".join(line.text for line in chunk.lines if line.history), read.history, Counter())
    _search(b"\n".join(line.text for line in chunk.lines if not line.history), read.fresh, read.lines)
    read.lines["too_long"] += len(chunk.too_long)


def _search(text: bytes, found: list[Entry], lines: Counter[str]) -> None:
    """Search lines for facts, and count them."""
    if not text:
        return
    scanned = Scan()
    before = len(found)
    found.extend(scan(text, scanned))
    lines["fact"] += len(found) - before
    lines["too_long"] += scanned.too_long
    lines["other"] += scanned.lines - scanned.too_long - (len(found) - before)


def _initialising(process: Process, now: float) -> bool:
    """Tell whether a process makes a communicator, or may."""
    return any(
        one.heard is not None and now - one.heard < (SETTLING if one.complete else STALLED)
        for one in process.communicators.values()
    )


def _first_here(processes: Sequence[Process], host: str) -> bool | None:
    """Tell whether rank 0 of the largest communicator runs on this host; None where that is not told."""
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


def _build(options: NcclFactsOptions, host: Host) -> list[Source]:
    return [NcclFactsSource(options, host)]


DEFINITION = Definition(
    "nccl_facts",
    NcclFactsOptions,
    (*nccl_facts_tables.SCHEMAS, *inspector_windows.SCHEMAS, *nccl_facts_ras.SCHEMAS),
    _build,
)
