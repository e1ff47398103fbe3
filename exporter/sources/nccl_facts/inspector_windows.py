"""Text files of NCCL Inspector, one per GPU: means over its last window, without ranks.

Of this host's GPUs the minimum and maximum are exported, since a mean would hide the differences: in a collective, the
last rank to arrive waits for no other and has the shortest time. A file is not rewritten during a hang: its values
expire, and its age is exported while it exists.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.collectives import algorithm_bytes
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Table,
    TableBuilder,
)
from exporter.linux.untrusted_files import file_version, read_untrusted
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector_textfile import TextfileValue, gpu_of_file, parse_textfile
from exporter.nccl.prometheus_text import MAX_TEXT, LineErrors
from exporter.sources.common.job_files import UNKNOWN, JobFile
from exporter.sources.nccl_facts.metrics import TEXT_LINES, TEXTFILES, WINDOW_SCHEMAS, WINDOWS

MAX_FILES = 64
"""Files that are read; of more, the most recently written."""

STALE_SECONDS = 180.0
"""Age after which the values of a file expire. Inspector rewrites it every 30 s or less often."""

MAX_AGE_SECONDS = 86_400.0
"""Age after which a file is that of a job that ended, and its age is no longer exported."""

MAX_CLOCK_SKEW_SECONDS = 60.0
"""Time by which a file's time may be in the future: clocks of file servers differ."""

MAX_ROWS = 2048
"""Rows of windows: jobs, kinds, sizes and classes."""

MAX_JOBS = 32
"""Jobs claimed by files in one folder."""

OUTCOMES = ("used", "skipped", "unknown", "truncated", "malformed", "invalid", "too_large")

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_label(size: int) -> str:
    """Return the power of two at or below a size: "512MiB"."""
    power = max(size, 1).bit_length() - 1
    return f"{1 << power % 10}{_UNITS[power // 10]}"


def class_of(n_ranks: int | None, n_nodes: int | None) -> str:
    """Return the class of a communicator: `one_node`, `rail_only` (one rank per node) or `mixed`; empty if unknown."""
    if n_ranks is None or n_nodes is None:
        return ""
    if n_nodes == 1:
        return "one_node"
    return "rail_only" if n_nodes == n_ranks else "mixed"


class TextfileReading(NamedTuple):
    """Result of reading a file.

    Attributes:
        version: Identity, size and time of the version that was read.
        values: Kind, size label, class and metric, with each value.
        jobs: The job of each value; empty where absent.
        counts: Sums by name of a count.
        lines: Lines by outcome.
        complete: Whether its last line was complete.
    """

    version: tuple[int, ...]
    values: list[tuple[LabelValues, str, float]]
    jobs: list[str]
    counts: dict[str, int]
    lines: Counter[str]
    complete: bool


@dataclass(slots=True)
class TextFile:
    """A file: job, GPU, modification time (Unix time), and what was last read."""

    path: str
    job: str
    gpu: str
    written: float = 0.0
    reading: TextfileReading | None = None


def _new(path: str, job: str) -> TextFile:
    return TextFile(path, job, gpu_of_file(path.rsplit("/", 1)[-1]) or "")


def is_textfile(name: str) -> bool:
    """Return whether a file name is that of an Inspector text file."""
    return gpu_of_file(name) is not None


def read_file(path: str) -> TextfileReading:
    """Read a file. Blocks.

    Raises:
        OSError: It cannot be read.
    """
    data, state = read_untrusted(path, MAX_TEXT)
    lost, lines = LineErrors(), Counter[str]()
    values: list[tuple[LabelValues, str, float]] = []
    jobs: list[str] = []
    counts: dict[str, int] = {}
    try:
        for one in parse_textfile(data, lost):
            if one.metric in {"collectives", "collectives_dropped"}:
                counts[one.metric] = counts.get(one.metric, 0) + int(one.value)
                lines["used"] += 1
            elif key := _key(one):
                values.append((key, one.metric, one.value))
                jobs.append(one.job)
                lines["used"] += 1
            else:
                lines["skipped"] += 1
    except FormatError as error:
        lines[error.reason] += 1
    lines += lost.reasons
    return TextfileReading(
        file_version(state), values, jobs, counts, lines, not lost.reasons["truncated"] and bool(data)
    )


def _key(one: TextfileValue) -> LabelValues | None:
    """Return kind, size and class of a value that is used; None for others."""
    if one.metric not in {"time", "bus_bandwidth"} or one.statistic != "mean" or not one.kind:
        return None
    if one.n_ranks == 1 or one.max_bytes == 0:
        return None
    size = ""
    if one.min_bytes is not None and one.max_bytes is not None and one.n_ranks is not None:
        # The middle: "2.00GB" is any size that rounds to it.
        size = size_label(algorithm_bytes(one.kind, (one.min_bytes + one.max_bytes) // 2, one.n_ranks))
    return one.kind, size, class_of(one.n_ranks, one.n_nodes)


@dataclass(slots=True)
class Extremes:
    """Minimum and maximum of values, and their GPUs."""

    lowest: float | None = None
    highest: float | None = None
    gpus: set[str] = field(default_factory=set)

    def add(self, value: float, gpu: str) -> None:
        """Add a value."""
        self.lowest = value if self.lowest is None else min(self.lowest, value)
        self.highest = value if self.highest is None else max(self.highest, value)
        self.gpus.add(gpu)


class TextfileWindows:
    """Keeps the values of this host's text files.

    Attributes:
        dropped: Values that the last tables lack because there were too many jobs, kinds and sizes.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._files: dict[str, TextFile] = {}
        self._lines: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in WINDOW_SCHEMAS}

    def update(self, found: Mapping[str, JobFile]) -> list[TextFile]:
        """Update the files that exist, and return those to be read.

        Args:
            found: The files by path.
        """
        newest = sorted(found, key=lambda path: found[path].status.st_mtime_ns, reverse=True)[:MAX_FILES]
        self._files = {path: self._files.get(path) or _new(path, found[path].job) for path in newest}
        due = []
        for path, one in self._files.items():
            state = found[path].status
            one.written = state.st_mtime_ns / 1e9
            if one.reading is None or one.reading.version != file_version(state):
                due.append(one)
        return due

    def add(self, path: str, reading: TextfileReading) -> None:
        """Store what was read; the values of a file that is being written are those of its previous version."""
        one = self._files.get(path)
        if one is None:
            return
        before = one.reading
        self._lines.update(reading.lines)
        if before is not None and not reading.complete:
            reading = reading._replace(values=before.values, jobs=before.jobs, counts=before.counts)
        one.reading = reading

    def tables(self, wall: float, now: float) -> list[Table]:
        """Return the tables; none without files."""
        if not self._files:
            return []
        builders = [self._windows(wall), self._ages(wall), TableBuilder(TEXT_LINES)]
        for outcome in OUTCOMES:
            builders[2].row((outcome,), {"lines_total": self._lines[outcome]})
        return [one.table(self._keepers[one.schema], now) for one in builders if one.keys]

    def _windows(self, wall: float) -> TableBuilder:
        rows: dict[LabelValues, dict[str, Extremes]] = {}
        jobs: set[str] = set()
        self.dropped = 0
        for one in self._files.values():
            if one.reading is None or not -MAX_CLOCK_SKEW_SECONDS <= wall - one.written <= STALE_SECONDS:
                continue
            for (key, metric, value), claimed in zip(one.reading.values, one.reading.jobs, strict=True):
                job = claimed if one.job == UNKNOWN and claimed else one.job
                row = (job, *key)
                if row not in rows and (len(rows) >= MAX_ROWS or (job not in jobs and len(jobs) >= MAX_JOBS)):
                    self.dropped += 1
                    continue
                jobs.add(job)
                rows.setdefault(row, {}).setdefault(metric, Extremes()).add(value, one.gpu)
        builder = TableBuilder(WINDOWS)
        for row, metrics in rows.items():
            times, bandwidths = metrics.get("time", Extremes()), metrics.get("bus_bandwidth", Extremes())
            builder.row(
                row,
                {
                    "shortest_seconds": times.lowest,
                    "longest_seconds": times.highest,
                    "highest_bus_bandwidth_bytes_per_second": bandwidths.highest,
                    "lowest_bus_bandwidth_bytes_per_second": bandwidths.lowest,
                    "gpus": len(times.gpus | bandwidths.gpus),
                },
            )
        return builder

    def _ages(self, wall: float) -> TableBuilder:
        builder = TableBuilder(TEXTFILES)
        for gpu, one in _newest(self._files.values()).items():
            age = wall - one.written
            if -MAX_CLOCK_SKEW_SECONDS <= age <= MAX_AGE_SECONDS:
                counts = one.reading.counts if one.reading is not None else {}
                builder.row(
                    (gpu,),
                    {
                        "age_seconds": max(0.0, age),
                        "collectives_total": counts.get("collectives"),
                        "collectives_dropped_total": counts.get("collectives_dropped"),
                    },
                )
        return builder


def _newest(files: Iterable[TextFile]) -> dict[str, TextFile]:
    """Return the most recently written file of each GPU: another job may have left one in another folder."""
    found: dict[str, TextFile] = {}
    for one in files:
        if one.gpu not in found or found[one.gpu].written < one.written:
            found[one.gpu] = one
    return found
