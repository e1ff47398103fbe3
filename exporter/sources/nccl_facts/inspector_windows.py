"""The text files of NCCL Inspector, one a GPU: means over its last window, without a rank, so that nobody is named.

Of the GPUs of this host the extremes are told, since means over GPUs would hide what matters: in a collective the last
to come waits for nobody and has the shortest time. A file is not rewritten in a hang: its numbers vanish when it is
old, and its age is told as long as it is there.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.collectives import algorithm_bytes
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import counter, gauge
from exporter.linux.untrusted_files import file_version
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector_textfile import Window, gpu_of_file, windows
from exporter.nccl.prometheus_text import MAX_TEXT, Lost
from exporter.sources.nccl.identity import UNKNOWN
from exporter.sources.nccl_facts.files import read_whole

MAX_FILES = 64
"""Files that are read; of more, those written last."""

STALE = 180.0
"""Seconds after which what a file tells is no longer how things are. Inspector rewrites it every 30 s or later."""

FORGOTTEN = 86_400.0
"""Seconds after which a file is that of a job that ended, and its age nobody's concern."""

AHEAD = 60.0
"""Seconds that a file may come from the future by: clocks of file servers differ."""

MAX_ROWS = 2048
"""Rows of windows: jobs, kinds, sizes and classes."""

MAX_JOBS = 32
"""Jobs that files lying in one folder claim to be of."""

TEXTFILE = ["nccl_inspector_metrics_<GPU>.prom"]
OF_GPUS = " by the mean over its last window, of this host's GPUs; absent when the file is older than three minutes."

WINDOWS = vocabulary.schema(
    "fabric_nccl_window_",
    ("train_job", "collective", "size", "class"),
    own={
        "shortest_seconds": gauge("Time of a collective with the least waiting in it," + OF_GPUS),
        "longest_seconds": gauge("Time of a collective with the most waiting in it," + OF_GPUS),
        "highest_bus_bandwidth_bytes_per_second": gauge("Bus bandwidth of the GPU that waited least," + OF_GPUS),
        "lowest_bus_bandwidth_bytes_per_second": gauge("Bus bandwidth of the GPU that waited most," + OF_GPUS),
        "gpus": gauge("GPUs of this host that told of such collectives in their last window."),
    },
    origins={
        "shortest_seconds": ["nccl_collective_exec_time_microseconds"],
        "longest_seconds": ["nccl_collective_exec_time_microseconds"],
        "highest_bus_bandwidth_bytes_per_second": ["nccl_bus_bandwidth_gbs"],
        "lowest_bus_bandwidth_bytes_per_second": ["nccl_bus_bandwidth_gbs"],
        "gpus": TEXTFILE,
    },
)

TEXTFILES = vocabulary.schema(
    "fabric_nccl_textfile_",
    ("gpu",),
    own={
        "age_seconds": gauge(
            "Time since Inspector wrote the text file of the GPU. It grows while there are no collectives: in a hang,"
            " and when the job ended without removing the file."
        ),
        "collectives_total": counter("Collectives that Inspector counted on the GPU."),
        "collectives_dropped_total": counter("Collectives of which Inspector lost the record."),
    },
    origins={
        "age_seconds": TEXTFILE,
        "collectives_total": ["nccl_collectives_total"],
        "collectives_dropped_total": ["nccl_collectives_dropped_total"],
    },
)

TEXT_LINES = vocabulary.schema(
    "fabric_nccl_textfile_",
    ("outcome",),
    own={
        "lines_total": counter(
            "Lines of Inspector's text files, of each version of a file that was read: used, passed_over (another"
            " statistic, a single rank, no bytes), unknown, torn, malformed, invalid and too_large."
        )
    },
    origins={"lines_total": TEXTFILE},
)

SCHEMAS = (WINDOWS, TEXTFILES, TEXT_LINES)

OUTCOMES = ("used", "passed_over", "unknown", "torn", "malformed", "invalid", "too_large")

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_label(size: int) -> str:
    """Write the power of two at or below a size: "512MiB"."""
    power = max(size, 1).bit_length() - 1
    return f"{1 << power % 10}{_UNITS[power // 10]}"


def class_of(n_ranks: int | None, n_nodes: int | None) -> str:
    """Tell what connects a communicator's ranks: `one_node`, `rail_only` (one rank a node) or `mixed`."""
    if n_ranks is None or n_nodes is None:
        return ""
    if n_nodes == 1:
        return "one_node"
    return "rail_only" if n_nodes == n_ranks else "mixed"


class Told(NamedTuple):
    """What a file told, and what became of its lines.

    Attributes:
        stamp: Identity, size and time of the version that was read.
        values: Kind, size label, class and metric, with each value.
        jobs: The job of each of them; empty where the file does not tell.
        counts: Sums by name of a count.
        lines: Lines by outcome.
        whole: Whether its last line was.
    """

    stamp: tuple[int, ...]
    values: list[tuple[LabelValues, str, float]]
    jobs: list[str]
    counts: dict[str, int]
    lines: Counter[str]
    whole: bool


@dataclass(slots=True)
class TextFile:
    """A file: whose it is, its GPU, when it was written (Unix time), and what it told last."""

    path: str
    job: str
    gpu: str
    written: float = 0.0
    told: Told | None = None


def _new(path: str, job: str) -> TextFile:
    return TextFile(path, job, gpu_of_file(path.rsplit("/", 1)[-1]) or "")


def takes(name: str) -> bool:
    """Tell whether a file is one of these by its name."""
    return gpu_of_file(name) is not None


def read_file(path: str) -> Told:
    """Read a file. Blocks.

    Raises:
        OSError: It cannot be read.
    """
    data, state = read_whole(path, MAX_TEXT)
    lost, lines = Lost(), Counter[str]()
    values: list[tuple[LabelValues, str, float]] = []
    jobs: list[str] = []
    counts: dict[str, int] = {}
    try:
        for one in windows(data, lost):
            if one.metric in {"collectives", "collectives_dropped"}:
                counts[one.metric] = counts.get(one.metric, 0) + int(one.value)
                lines["used"] += 1
            elif key := _key(one):
                values.append((key, one.metric, one.value))
                jobs.append(one.job)
                lines["used"] += 1
            else:
                lines["passed_over"] += 1
    except FormatError as error:
        lines[error.reason] += 1
    lines += lost.reasons
    return Told(file_version(state), values, jobs, counts, lines, not lost.reasons["torn"] and bool(data))


def _key(one: Window) -> LabelValues | None:
    """Give kind, size and class of a number that is used; None for others."""
    if one.metric not in {"time", "bus_bandwidth"} or one.statistic != "mean" or not one.kind:
        return None
    if one.n_ranks == 1 or one.most_bytes == 0:
        return None
    size = ""
    if one.least_bytes is not None and one.most_bytes is not None and one.n_ranks is not None:
        # the middle: "2.00GB" is any size that rounds to it, and most likely just that
        size = size_label(algorithm_bytes(one.kind, (one.least_bytes + one.most_bytes) // 2, one.n_ranks))
    return one.kind, size, class_of(one.n_ranks, one.n_nodes)


@dataclass(slots=True)
class Extremes:
    """The least and the most of some values, and of which GPUs they are."""

    least: float | None = None
    most: float | None = None
    gpus: set[str] = field(default_factory=set)

    def add(self, value: float, gpu: str) -> None:
        """Take a value."""
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)
        self.gpus.add(gpu)


class Textfiles:
    """Keeps what the text files of this host told.

    Attributes:
        left_out: Numbers that the last tables lack since there were too many jobs, kinds and sizes.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._files: dict[str, TextFile] = {}
        self._lines: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    def look(self, found: Mapping[str, tuple[str, os.stat_result]]) -> list[TextFile]:
        """Take note of the files there are, and give those to be read.

        Args:
            found: By path the job, and the state.
        """
        newest = sorted(found, key=lambda path: found[path][1].st_mtime_ns, reverse=True)[:MAX_FILES]
        self._files = {path: self._files.get(path) or _new(path, found[path][0]) for path in newest}
        due = []
        for path, one in self._files.items():
            state = found[path][1]
            one.written = state.st_mtime_ns / 1e9
            if one.told is None or one.told.stamp != file_version(state):
                due.append(one)
        return due

    def take(self, path: str, told: Told) -> None:
        """Take what a file told; of one that is just being written, what it told before is kept."""
        one = self._files.get(path)
        if one is None:
            return
        before = one.told
        self._lines.update(told.lines)
        if before is not None and not told.whole:
            told = told._replace(values=before.values, jobs=before.jobs, counts=before.counts)
        one.told = told

    def tables(self, wall: float, now: float) -> list[Table]:
        """Make the tables; none where there are no files."""
        if not self._files:
            return []
        made = [self._windows(wall), self._ages(wall), TableBuilder(TEXT_LINES)]
        for outcome in OUTCOMES:
            made[2].row((outcome,), {"lines_total": self._lines[outcome]})
        return [one.table(self._keepers[one.schema], now) for one in made if one.keys]

    def _windows(self, wall: float) -> TableBuilder:
        rows: dict[LabelValues, dict[str, Extremes]] = {}
        jobs: set[str] = set()
        self.left_out = 0
        for one in self._files.values():
            if one.told is None or not -AHEAD <= wall - one.written <= STALE:
                continue
            for (key, metric, value), claimed in zip(one.told.values, one.told.jobs, strict=True):
                job = claimed if one.job == UNKNOWN and claimed else one.job
                row = (job, *key)
                if row not in rows and (len(rows) >= MAX_ROWS or (job not in jobs and len(jobs) >= MAX_JOBS)):
                    self.left_out += 1
                    continue
                jobs.add(job)
                rows.setdefault(row, {}).setdefault(metric, Extremes()).add(value, one.gpu)
        made = TableBuilder(WINDOWS)
        for row, metrics in rows.items():
            times, speeds = metrics.get("time", Extremes()), metrics.get("bus_bandwidth", Extremes())
            made.row(
                row,
                {
                    "shortest_seconds": times.least,
                    "longest_seconds": times.most,
                    "highest_bus_bandwidth_bytes_per_second": speeds.most,
                    "lowest_bus_bandwidth_bytes_per_second": speeds.least,
                    "gpus": len(times.gpus | speeds.gpus),
                },
            )
        return made

    def _ages(self, wall: float) -> TableBuilder:
        made = TableBuilder(TEXTFILES)
        for gpu, one in _newest(self._files.values()).items():
            age = wall - one.written
            if -AHEAD <= age <= FORGOTTEN:
                counts = one.told.counts if one.told is not None else {}
                made.row(
                    (gpu,),
                    {
                        "age_seconds": max(0.0, age),
                        "collectives_total": counts.get("collectives"),
                        "collectives_dropped_total": counts.get("collectives_dropped"),
                    },
                )
        return made


def _newest(files: Iterable[TextFile]) -> dict[str, TextFile]:
    """Give the file of each GPU that was written last: another job may have left one in another folder."""
    found: dict[str, TextFile] = {}
    for one in files:
        if one.gpu not in found or found[one.gpu].written < one.written:
            found[one.gpu] = one
    return found
