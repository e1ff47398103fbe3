"""The files of NCCL Inspector: where they lie, whose they are, and what a read of one gives.

Files are `<host name>-pid<pid>.log`, in a folder of the job's (`nccl-inspector-<job>`, or any name) or in the common
one. Each line fails alone.
"""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from exporter.linux.inspector import (
    Collective,
    Header,
    Line,
    LineError,
    known_kind,
    parse_line,
    traffic_bytes,
)
from exporter.linux.tail import MAX_LINE, Chunk, Followed
from exporter.source import Failure
from exporter.sources.failures import failure_of

MAX_ENTRIES = 20_000
"""Entries of all folders together that are looked at."""

SYNCHRONISING = ("AllReduce", "AllGather", "ReduceScatter")
"""Kinds whose ranks end together, so that their times can be compared."""

KERNEL_TIMING = "kernel_gpu"
"""The timing source that tells the time on the GPU; others add what the host was doing."""


class Record(NamedTuple):
    """One synchronising collective on one rank."""

    communicator: str
    kind: str
    sequence: int
    microseconds: int
    size: int
    n_ranks: int
    nodes: int | None
    kernel_timed: bool | None


@dataclass(slots=True)
class Totals:
    """Sums over the collectives of one kind."""

    count: int = 0
    microseconds: int = 0
    size: int = 0

    def add(self, other: "Totals") -> None:
        """Add other sums."""
        self.count += other.count
        self.microseconds += other.microseconds
        self.size += other.size


@dataclass(slots=True)
class Log:
    """One file: whose it is, and who spoke last in it."""

    file: Followed
    job: str
    marker: Header | None = None


@dataclass(slots=True)
class Parsed:
    """What one read of a file gave."""

    outcomes: Counter[str] = field(default_factory=Counter)
    totals: dict[str, Totals] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    largest: Header | None = None
    pid: int = 0
    restarted: bool = False
    failures: list[Failure] = field(default_factory=list)


_JOB_FOLDER = "nccl-inspector-"
"""How Inspector begins the name of the folder that it makes for a job of Slurm."""


def find_folders(patterns: Iterable[str]) -> list[str]:
    """Give the folders that are there."""
    found: dict[str, None] = {}
    for pattern in patterns:
        # Path.glob takes no absolute patterns
        paths = islice(glob.iglob(pattern), MAX_ENTRIES) if glob.has_magic(pattern) else (pattern,)  # noqa: PTH207
        found.update((path, None) for path in paths if os.path.isdir(path))  # noqa: PTH112  # one call a folder and poll
    return list(found)


def find_logs(folders: Iterable[str], failures: list[Failure]) -> Iterator[tuple[str, str] | None]:
    """Find the files in folders and one level below, each with its job; links below the folders are not followed.

    Other entries are None, so that who asks can bound how many are looked at.
    """
    for folder in folders:
        name = os.path.basename(folder.rstrip("/"))  # noqa: PTH119
        own = _job(name) if name.startswith(_JOB_FOLDER) else "unknown"
        for entry in _entries(folder, "", failures):
            if entry.name.endswith(".log"):
                yield entry.path, own
                continue
            yield None
            if entry.is_dir(follow_symlinks=False):
                job = _job(entry.name)
                for below in _entries(entry.path, job, failures):
                    yield (below.path, job) if below.name.endswith(".log") else None


def _entries(folder: str, job: str, failures: list[Failure]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(failure_of(job, error, folder))


def _job(folder: str) -> str:
    """Read the name of a job off the name of its folder."""
    job = folder.removeprefix(_JOB_FOLDER)
    return "unknown" if job in {"", "unknown-jobid"} else job


def parse(log: Log, chunk: Chunk) -> Parsed:
    """Parse the lines of a file; each fails alone, of each kind of failure the first is told with its place."""
    parsed = Parsed(restarted=chunk.restarted)
    if chunk.restarted:
        log.marker = None
    bad: dict[str, tuple[int, str]] = {}
    for offset, text, history in chunk.lines:
        try:
            outcome = _take(log, parsed, parse_line(text), history=history)
        except LineError as error:
            outcome = error.reason
            bad.setdefault(outcome, (offset, str(error)))
        if outcome == "orphan":
            bad.setdefault(outcome, (offset, "no line before it says whose it is"))
        if not history:
            parsed.outcomes[outcome] += 1
    if chunk.too_long:
        parsed.outcomes["too_long"] += len(chunk.too_long)
        bad["too_long"] = (chunk.too_long[0], f"a line of more than {MAX_LINE} bytes; skipped")
    path = log.file.path
    parsed.failures += [
        Failure(log.job, reason, f"{path}: at byte {offset}: {detail}") for reason, (offset, detail) in bad.items()
    ]
    if chunk.skipped:
        detail = f"{path}: grows faster than it is read; {chunk.skipped} bytes passed over"
        parsed.failures.append(Failure(log.job, "backlog", detail))
    return parsed


def _take(log: Log, parsed: Parsed, line: Line, *, history: bool) -> str:
    """Add one line to what was parsed, and say what it was."""
    if line.header is not None:
        log.marker = line.header
        if parsed.largest is None or line.header.n_ranks > parsed.largest.n_ranks:
            parsed.largest = line.header
    if line.metadata is not None and line.metadata.pid:
        parsed.pid = line.metadata.pid
    if line.collective is None:
        if line.point_to_point is not None:
            return "point_to_point"
        return "unknown" if line.header is None else "marker"
    if log.marker is None:
        return "orphan"
    if not history:
        if parsed.largest is None:
            parsed.largest = log.marker
        _count(parsed, log.marker, line.collective)
    return "collective"


def _count(parsed: Parsed, header: Header, one: Collective) -> None:
    kind = known_kind(one.kind)
    size = traffic_bytes(kind, one.message_bytes, header.n_ranks)
    totals = parsed.totals.get(kind)
    if totals is None:
        totals = parsed.totals[kind] = Totals()
    totals.count += 1
    totals.microseconds += one.microseconds
    totals.size += size
    if kind in SYNCHRONISING:
        timed = one.timing_source == KERNEL_TIMING if one.timing_source else None
        parsed.records.append(
            Record(header.id, kind, one.sequence, one.microseconds, size, header.n_ranks, header.nnodes, timed)
        )
