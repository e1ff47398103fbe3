"""Feed of xpu_timer: Prometheus text files of one rank or of all, which are rewritten periodically.

They contain statistics, not single collectives, so nothing can be compared across ranks.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import MappingProxyType

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.nccl.decoding import FormatError
from exporter.nccl.prometheus_text import LineErrors
from exporter.nccl.xpu_timer import XpuTiming, parse_timings
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import MAX_NAME, UNKNOWN
from exporter.sources.nccl.metrics import XPU_COLLECTIVES, XPU_LINES, XPU_RANKS
from exporter.sources.nccl.readers.dump_files import DumpFiles
from exporter.sources.nccl.readers.feed import FeedReport, ProcessReport, UnusedReason
from exporter.sources.nccl.readers.files import (
    CALL_TIMEOUT_SECONDS,
    Found,
    find,
    find_folders,
    off_loop,
)

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


class XpuTimerFeed:
    """Reads the files of xpu_timer."""

    name = "xpu_timer"
    schemas = (XPU_COLLECTIVES, XPU_RANKS, XPU_LINES)

    def __init__(self, folders: Sequence[str], is_selected: Callable[[str], bool]) -> None:
        """Create the feed; `is_selected` filters jobs by name."""
        self._folders, self._is_selected = folders, is_selected
        self._serial = BlockingCalls("xpu_timer", CALL_TIMEOUT_SECONDS)
        self._dumps = DumpFiles(settled=False)
        self._readings: dict[str, _FileReading] = {}
        self._lost: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Return whether any of the folders exists."""
        return bool(await off_loop(self._serial, partial(find_folders, self._folders)))

    async def poll(self) -> FeedReport:
        """Read the files that were rewritten; the failure of one does not affect the others."""
        failures: list[Failure] = []
        found = await off_loop(self._serial, partial(self._find, failures))
        ready, gone, _ = self._dumps.update({path: state for path, (_, state) in found.files.items()})
        for path in gone:
            self._readings.pop(path, None)
        results = await self._serial.run((path, partial(self._read, path, found.files[path][0])) for path in ready)
        now = monotonic()
        for path in ready:
            result = results[path]
            if isinstance(result, _FileReading):
                result.at = now
                self._readings[path] = result
                self._lost.update(result.lost)
            elif isinstance(result, FormatError):
                self._lost[result.reason] += 1
                failures.append(Failure(found.files[path][0], result.reason, f"{path}: {result}"))
            elif not isinstance(result, FileNotFoundError):
                failures.append(failure_of(found.files[path][0], result, path))
        self._readings = {path: one for path, one in self._readings.items() if now - one.at < STALE_SECONDS}
        return FeedReport(failures=failures)

    def mark_unused(self, report: ProcessReport, reason: UnusedReason) -> None:
        """Do nothing: the feed reports no processes."""

    def tables(self, now: float) -> list[Table]:
        """Return the values of files that are not stale, and the rejected lines; nothing before the first file."""
        kinds, ranks, lost = TableBuilder(XPU_COLLECTIVES), TableBuilder(XPU_RANKS), TableBuilder(XPU_LINES)
        values: dict[tuple[str, str, str], Mapping[str, float]] = {}
        hangs: dict[tuple[str, str], int] = {}
        for one in self._readings.values():
            if len(values) + len(hangs) + len(one.kinds) + len(one.hangs) <= MAX_ROWS:
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

    def _find(self, failures: list[Failure]) -> Found:
        return find(self._folders, ("",), self._is_selected, failures)

    def _read(self, path: str, job: str) -> _FileReading:
        """Read one file; runs in the thread."""
        read, lost = _FileReading(), LineErrors()
        for one in parse_timings(self._dumps.read(path), lost):
            # The folder, which the administrator laid out, takes precedence over the content of the file.
            named = job if job != UNKNOWN else one.job[:MAX_NAME] or UNKNOWN
            if not self._is_selected(named):
                continue
            if len(read.kinds) + len(read.hangs) >= MAX_ROWS:
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
