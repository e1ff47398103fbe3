"""NCCL collectives of the jobs on this host, from the files that NCCL Inspector writes.

A file is a process, hence a rank: `<host name>-pid<pid>.log`, in a folder of the job's or in the common one. Files
are read on from where they ended; what was in them before the start only tells who is who, and is not counted. The
rank of a process is its rank in the largest communicator it was seen in (the first seen of several that large), since
Inspector does not know the rank in the job; where two processes of a job claim the same rank at the same time (they
were only seen in groups of the same size), the later one is named `<rank>-<pid>`.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import monotonic
from typing import NamedTuple

from exporter import vocabulary
from exporter.linux.inspector import Header
from exporter.linux.tail import FILE_BUDGET, MAX_LINE, Tail
from exporter.serial import HungError, Serial
from exporter.source import Definition, Failure, Host, Options, Reading, Source, SourceError
from exporter.sources.failures import failure_of
from exporter.sources.nccl_logs import MAX_ENTRIES, Log, Parsed, Record, Totals, find_folders, find_logs, parse
from exporter.table import Column, LabelValues, RowKeeper, Rows, Samples, Table
from exporter.vocabulary import counter, gauge, info

CALL_DEADLINE = 2.0
"""Seconds that listing, or reading one file, may take."""

POLL_BUDGET = 4 * FILE_BUDGET
"""Bytes read at one poll, some 20,000 records; what is left waits for the next."""

MAX_JOBS = 32
"""Jobs that are told apart on this host."""

MAX_PROCESSES = 128
"""Processes of one job on this host."""

SILENCE = 600.0
"""Seconds without a record after which a process is forgotten."""

LABELS = ("train_job", "rank", "collective")
RANK_LABELS = ("train_job", "rank")
STREAM_LABELS = ("train_job", "communicator", "collective", "rank")

COLLECTIVES = vocabulary.schema(
    "fabric_nccl_",
    LABELS,
    own={
        "collectives_total": counter("Collectives that the rank took part in and that were recorded."),
        "collective_duration_seconds_total": counter(
            "Time of these collectives on the rank, with what it waited for others in them."
        ),
        "collective_bytes_total": counter(
            "Bytes of these collectives as nccl-tests counts them: for AllGather and ReduceScatter those of all ranks."
        ),
    },
    origins={
        "collectives_total": ["coll_perf"],
        "collective_duration_seconds_total": ["coll_perf.coll_exec_time_us"],
        "collective_bytes_total": ["coll_perf.coll_msg_size_bytes", "header.n_ranks"],
    },
)

RANKS = vocabulary.schema(
    "fabric_nccl_",
    RANK_LABELS,
    own={
        "rank_info": info(
            "Where the rank runs, and the ranks and nodes of its largest communicator.", "host", "pid", "ranks", "nodes"
        )
    },
    origins={"rank_info": ["header.rank", "header.n_ranks", "header.nnodes", "metadata.pid"]},
)

STREAMS = vocabulary.schema(
    "fabric_nccl_",
    STREAM_LABELS,
    own={
        "operations": gauge("Single collectives: number, bytes, millionths of a second, whether timed by the kernel."),
        "stream_info": info("Whose they are.", "ranks", "nodes", "host", "expected"),
    },
    origins={"operations": ["coll_perf.coll_exec_time_us"]},
    internal=True,
)

LINES = vocabulary.schema(
    "fabric_nccl_inspector_",
    ("outcome",),
    own={
        "lines_total": counter(
            "Lines of Inspector's files by what became of them: collective (used), point_to_point, marker and unknown"
            " (passed over), malformed, invalid, orphan, too_long and over_limit (lost)."
        )
    },
    origins={"lines_total": ["<host name>-pid<pid>.log"]},
)

FILES = vocabulary.schema(
    "fabric_nccl_inspector_",
    (),
    own={"files": gauge("Files of Inspector that are followed, also those that no process writes any more.")},
    origins={"files": ["<host name>-pid<pid>.log"]},
)

OUTCOMES = (
    "collective",
    "point_to_point",
    "marker",
    "unknown",
    "malformed",
    "invalid",
    "orphan",
    "too_long",
    "over_limit",
)


class NcclOptions(Options, frozen=True):
    """Configuration of `sources.nccl`; include and exclude are names of jobs.

    Attributes:
        inspector: Folders of Inspector's files, or shell patterns of folders. Files lie in them or one level below.
    """

    inspector: tuple[str, ...] = ("/run/fabric-exporter/nccl",)


@dataclass(slots=True)
class Process:
    """One process: its sums since it was first seen.

    Attributes:
        number: Tells it from every other process, also from one that had its rank before.
        job: Its job.
        pid: Its process number, as text; as it is inside its container.
        first: Number of the poll that first brought a record of it.
        last: Number of the poll that last did.
        heard: Monotonic time of that poll.
        largest: Its rank in the largest communicator it was seen in.
        totals: Its sums by kind.
        label: Its rank as it is exported; empty while another process has taken its place.
    """

    number: int
    job: str
    pid: str
    first: int
    last: int
    heard: float
    largest: Header
    totals: dict[str, Totals] = field(default_factory=dict)
    label: str = ""


class NcclSource:
    """Reads the files of NCCL Inspector."""

    name = "nccl"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: NcclOptions, host: Host) -> None:
        """Take the configuration."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host.name
        self._serial = Serial("nccl", CALL_DEADLINE)
        self._tail = Tail()
        self._logs: dict[str, Log] = {}
        self._left = 0
        self._polls = 0
        self._born = 0
        self._processes: dict[str, Process] = {}
        self._outcomes: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (COLLECTIVES, RANKS, LINES, FILES)}

    async def applies(self) -> bool:
        """Tell whether any of the folders is there."""
        return (await self._scan()).folders > 0

    async def read(self) -> Reading:
        """Read on in every file that grew; files fail alone."""
        self._polls += 1
        scanned = await self._scan()
        self._left = POLL_BUDGET
        results = await self._serial.run((log.file.path, partial(self._read_log, log)) for log in scanned.grown)
        failures = list(scanned.failures)
        now = monotonic()
        records: list[tuple[Process, list[Record]]] = []
        for log in scanned.grown:
            result = results[log.file.path]
            if isinstance(result, FileNotFoundError):
                continue  # removed since it was listed, as files of jobs that ended are
            if isinstance(result, Exception):
                failures.append(failure_of(log.job, result, log.file.path))
            else:
                failures += result.failures
                process = self._taken(log, result, now, failures)
                if process is not None:
                    records.append((process, result.records))
        self._forget(now)
        _label(self._processes.values())
        return Reading(self._tables(records, now), failures)

    async def close(self) -> None:
        """End the thread; no file is open between reads."""
        self._serial.close()

    async def _scan(self) -> "_Scan":
        result = (await self._serial.run([("scan", self._look)]))["scan"]
        if isinstance(result, HungError):
            raise SourceError("timeout", str(result))
        if isinstance(result, Exception):
            raise SourceError("unreadable", str(result))
        return result

    def _look(self) -> "_Scan":
        """Find the files and what of them grew; runs in the thread."""
        failures: list[Failure] = []
        folders = find_folders(self._options.inspector)
        entries = find_logs(folders, failures)
        found: dict[str, tuple[str, os.stat_result]] = {}
        for entry in islice(entries, MAX_ENTRIES):
            if entry is None or entry[0] in found:
                continue
            path, job = entry
            if self._options.wants(job):
                try:
                    found[path] = (job, os.lstat(path))
                except OSError:
                    continue  # gone between listing and now
        cut = next(entries, _END) is not _END
        look = self._tail.look({path: state for path, (_, state) in found.items()})
        for gone in look.gone:
            self._logs.pop(gone.path, None)
        if look.too_many or cut:
            detail = f"more than {len(self._tail.files)} files below {', '.join(folders)}; remove those of old jobs"
            failures.append(Failure("", "too_many_files", detail))
        grown = []
        for file in look.grown:
            log = self._logs.get(file.path)
            if log is None:
                log = self._logs[file.path] = Log(file, found[file.path][0])
            grown.append(log)
        return _Scan(len(folders), grown, failures)

    def _read_log(self, log: Log) -> Parsed:
        """Read on in one file; runs in the thread."""
        if self._left <= MAX_LINE:
            return Parsed()  # it is among the first the next time
        chunk = self._tail.read(log.file, min(FILE_BUDGET, self._left))
        self._left -= chunk.read
        return parse(log, chunk)

    def _taken(self, log: Log, parsed: Parsed, now: float, failures: list[Failure]) -> Process | None:
        """Add what a read gave to its process; None where it gave no records, or there are too many processes."""
        process = self._processes.get(log.file.path)
        if parsed.largest is not None:
            if process is None and parsed.totals:
                process = self._born_process(log, parsed, now, failures)
                if process is None:
                    parsed.outcomes["over_limit"] += parsed.outcomes.pop("collective")
            elif process is not None and (parsed.restarted or parsed.largest.n_ranks > process.largest.n_ranks):
                process.largest = parsed.largest
        self._outcomes.update(parsed.outcomes)
        if process is None or not parsed.totals:
            return None
        process.last, process.heard = self._polls, now
        for kind, totals in parsed.totals.items():
            process.totals.setdefault(kind, Totals()).add(totals)
        return process

    def _born_process(self, log: Log, parsed: Parsed, now: float, failures: list[Failure]) -> Process | None:
        """Make a process, where there is room for it."""
        jobs = Counter(process.job for process in self._processes.values())
        if jobs[log.job] >= MAX_PROCESSES or (log.job not in jobs and len(jobs) >= MAX_JOBS):
            detail = f"{log.file.path}: more than {MAX_JOBS} jobs or {MAX_PROCESSES} processes of one; left out"
            failures.append(Failure(log.job if log.job in jobs else "", "over_limit", detail))
            return None
        assert parsed.largest is not None  # noqa: S101  # totals come of records, which have a header
        named = _PID.search(log.file.path)
        pid = named[1] if named else str(parsed.pid or "")
        self._born += 1
        process = Process(self._born, log.job, pid, self._polls, self._polls, now, parsed.largest)
        self._processes[log.file.path] = process
        return process

    def _forget(self, now: float) -> None:
        """Drop the processes whose file is gone, or that were silent for long."""
        files = self._tail.files
        self._processes = {
            path: process
            for path, process in self._processes.items()
            if path in files and now - process.heard < SILENCE
        }

    def _tables(self, records: Sequence[tuple[Process, list[Record]]], now: float) -> list[Table]:
        named = sorted(
            (process for process in self._processes.values() if process.label), key=lambda one: (one.job, one.number)
        )
        tables = [_streams(records, self._host, now), self._lines(now), self._files(now)]
        if named:
            tables += [self._collectives(named, now), self._ranks(named, now)]
        return tables

    def _collectives(self, processes: Sequence[Process], now: float) -> Table:
        rows = [(one, kind, totals) for one in processes for kind, totals in one.totals.items()]
        metrics = COLLECTIVES.metrics
        columns = (
            Column(metrics["collectives_total"], [totals.count for _, _, totals in rows]),
            Column(
                metrics["collective_duration_seconds_total"],
                [totals.microseconds for _, _, totals in rows],
                divisor=1_000_000,
            ),
            Column(metrics["collective_bytes_total"], [totals.size for _, _, totals in rows]),
        )
        return Table(
            COLLECTIVES,
            self._keepers[COLLECTIVES].rows([(one.job, one.label, kind) for one, kind, _ in rows]),
            {column.metric.ending: column for column in columns},
            now,
            epochs=[one.number for one, _, _ in rows],
        )

    def _ranks(self, processes: Sequence[Process], now: float) -> Table:
        facts = [(self._host, one.pid, str(one.largest.n_ranks), str(one.largest.nnodes or "")) for one in processes]
        rows = self._keepers[RANKS].rows([(one.job, one.label) for one in processes])
        return Table(RANKS, rows, {"rank_info": Column(RANKS.metrics["rank_info"], facts)}, now)

    def _lines(self, now: float) -> Table:
        rows = self._keepers[LINES].rows([(outcome,) for outcome in OUTCOMES])
        counts = [self._outcomes[outcome] for outcome in OUTCOMES]
        return Table(LINES, rows, {"lines_total": Column(LINES.metrics["lines_total"], counts)}, now)

    def _files(self, now: float) -> Table:
        column = Column(FILES.metrics["files"], [len(self._tail.files)])
        return Table(FILES, self._keepers[FILES].rows([()]), {"files": column}, now)


_END = object()


class _Scan(NamedTuple):
    """The folders there are, the files that grew, and what failed."""

    folders: int
    grown: list[Log]
    failures: list[Failure]


_PID = re.compile(r"-pid(\d{1,20})\.log$")


def _label(processes: Iterable[Process]) -> None:
    """Give each process its rank. One that fell silent before another with its rank came was replaced by that."""
    claims: dict[tuple[str, int], list[Process]] = {}
    for process in processes:
        claims.setdefault((process.job, process.largest.rank), []).append(process)
    for (_, rank), claimants in claims.items():
        newest = max(one.first for one in claimants)
        current = sorted((one for one in claimants if one.last >= newest), key=lambda one: one.number)
        for one in claimants:
            one.label = ""
        taken: set[str] = set()
        for one in current:
            label = str(rank) if not taken else f"{rank}-{one.pid}"
            one.label = label if label not in taken else f"{rank}-{one.pid}-{one.number}"
            taken.add(one.label)


_UNPRINTED = "{}"
"""Text of the rows of an internal table, which nobody prints: making it would cost more than all else."""


def _streams(records: Iterable[tuple[Process, list[Record]]], host: str, now: float) -> Table:
    """Make the table of single collectives; of a record that came twice the first counts."""
    found: dict[LabelValues, dict[int, tuple[float, ...]]] = {}
    about: dict[LabelValues, LabelValues] = {}
    for process, of_process in records:
        for one in of_process:
            key = (process.job, one.communicator, one.kind, process.label)
            stream = found.get(key)
            if stream is None:
                stream = found[key] = {}
                about[key] = (str(one.n_ranks), str(one.nodes or ""), host, "")
            timing = (one.sequence, one.size, one.microseconds)
            stream.setdefault(one.sequence, timing if one.kernel_timed is None else (*timing, int(one.kernel_timed)))
    columns = {
        "operations": Column(STREAMS.metrics["operations"], [Samples(tuple(one.values())) for one in found.values()]),
        "stream_info": Column(STREAMS.metrics["stream_info"], list(about.values())),
    }
    return Table(STREAMS, Rows(STREAM_LABELS, found, dict.fromkeys(found, _UNPRINTED)), columns, now)


def _build(options: NcclOptions, host: Host) -> list[Source]:
    return [NcclSource(options, host)]


DEFINITION = Definition("nccl", NcclOptions, (COLLECTIVES, RANKS, STREAMS, LINES, FILES), _build)
