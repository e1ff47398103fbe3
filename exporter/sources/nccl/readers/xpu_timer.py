"""Feed of xpu_timer: Prometheus text files of one rank or of all, which are rewritten periodically.

They contain statistics, not single collectives, so nothing can be compared across ranks.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType

from exporter.core.blocking import BlockingCalls
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.nccl.decoding import FormatError
from exporter.nccl.prometheus_text import LineErrors
from exporter.nccl.xpu_timer import XpuTiming, parse_timings
from exporter.sources.common.job_files import MAX_NAME, UNKNOWN, JobFile, JobFileSearch
from exporter.sources.common.job_readers import CALL_TIMEOUT_SECONDS, JobDumps
from exporter.sources.nccl.metrics import XPU_COLLECTIVES, XPU_LINES, XPU_RANKS
from exporter.sources.nccl.readers.feed import FeedReport, ProcessReport, UnusedReason

STALE_SECONDS = 120.0
"""Age after which the values of a file that does not change are no longer exported."""

MAX_ROWS = 4096
"""Rows of one file, and of all together."""

REASONS = ("malformed", "invalid", "too_large", "truncated", "unknown", "over_limit")


@dataclass(slots=True)
class _FileReading:
    """Values of one file, by job, rank and kind, and by metric ending; hangs by job and rank; rejected lines."""

    kinds: dict[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    hangs: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    at: float = 0.0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.kinds) + len(self.hangs)


class XpuTimerFeed:
    """Reads the files of xpu_timer."""

    name = "xpu_timer"
    schemas = (XPU_COLLECTIVES, XPU_RANKS, XPU_LINES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name."""
        self._is_selected = is_selected
        self._serial = BlockingCalls("xpu_timer", CALL_TIMEOUT_SECONDS)
        search = JobFileSearch(tuple(folders), lambda _: True, is_selected)
        self._dumps = JobDumps(self._serial, search, self._parse, settled=False)
        self._readings: dict[str, _FileReading] = {}
        self._lost: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool((await self._dumps.search()).folders)

    async def poll(self) -> FeedReport:
        """Read the files that were rewritten; the failure of one does not affect the others."""
        poll = await self._dumps.poll()
        now = monotonic()
        self._readings = {
            path: one
            for path, one in self._readings.items()
            if path not in poll.gone and path not in poll.parsed and now - one.at < STALE_SECONDS
        }
        rows = sum(one.rows for one in self._readings.values())
        for path, reading in poll.parsed.items():
            self._lost.update(reading.lost)
            rows += reading.rows
            if rows <= MAX_ROWS:
                reading.at = now
                self._readings[path] = reading
            else:
                rows -= reading.rows
                self._lost["over_limit"] += reading.rows
        self._lost.update(error.reason for error in poll.errors if isinstance(error, FormatError))
        return FeedReport(failures=poll.failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Do nothing: the feed reports no processes."""

    def tables(self, now: float) -> list[Table]:
        """Return the values of files that are not stale, and the rejected lines; nothing before the first file."""
        kinds, ranks, lost = TableBuilder(XPU_COLLECTIVES), TableBuilder(XPU_RANKS), TableBuilder(XPU_LINES)
        values: dict[tuple[str, str, str], Mapping[str, float]] = {}
        hangs: dict[tuple[str, str], int] = {}
        for one in self._readings.values():
            values |= one.kinds
            hangs |= {rank: max(hang, hangs.get(rank, 0)) for rank, hang in one.hangs.items()}
        for kind, row in values.items():
            kinds.row(kind, row)
        for rank, hang in hangs.items():
            ranks.row(rank, {"hang": hang})
        if self._readings or self._lost:
            for reason in REASONS:
                lost.row((reason,), {"lost_lines_total": self._lost[reason]})
        tables = [one.table(self._keepers[one.schema], now) for one in (kinds, ranks, lost)]
        return [table for table in tables if len(table.rows)]

    async def close(self) -> None:
        """Stop the thread."""
        self._serial.close()

    def _parse(self, _: str, file: JobFile, data: bytes) -> _FileReading:
        """Parse one file; runs in the thread."""
        read, lost, job = _FileReading(), LineErrors(), file.job
        for one in parse_timings(data, lost):
            # The folder, which the administrator laid out, takes precedence over the content of the file.
            named = job if job != UNKNOWN else one.job[:MAX_NAME] or UNKNOWN
            if not self._is_selected(named):
                continue
            if read.rows >= MAX_ROWS:
                lost.reasons["over_limit"] += 1
            else:
                _add(read, one, named)
        read.lost = lost.reasons
        return read


_ENDINGS: Mapping[tuple[str, str], tuple[str, Callable[[float, float], float]]] = MappingProxyType(
    {
        ("time", "max"): ("collective_longest_seconds", max),
        ("time", "min"): ("collective_shortest_seconds", min),
        ("bandwidth", ""): ("highest_bytes_per_second", max),
    }
)
"""By metric and statistic: the metric ending, and how algorithms, transports and buckets are combined."""


def _add(read: _FileReading, one: XpuTiming, job: str) -> None:
    rank = str(one.rank)
    if one.metric == "hang":
        read.hangs[job, rank] = max(int(one.value), read.hangs.get((job, rank), 0))
        return
    ending, better = _ENDINGS.get((one.metric, one.statistic), ("", max))
    if ending:
        values = read.kinds.setdefault((job, rank, one.kind), {})
        values[ending] = better(one.value, values.get(ending, one.value))
