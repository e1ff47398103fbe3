"""What xpu_timer tells: Prometheus text of all ranks, or of one, that is written anew now and then.

It tells statistics, not single collectives, so nothing can be put together over ranks.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.core.vocabulary import counter, gauge
from exporter.nccl.decoding import FormatError
from exporter.nccl.prometheus_text import Lost
from exporter.nccl.xpu_timer import Timing, timings
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.identity import MAX_NAME, UNKNOWN
from exporter.sources.nccl.readers.dumps import Dumps
from exporter.sources.nccl.readers.feed import Heard, Said, Unused
from exporter.sources.nccl.readers.files import (
    CALL_DEADLINE,
    Found,
    find,
    find_folders,
    off_loop,
)

STALE = 120.0
"""Seconds after which what a file says that does not change any more is not shown."""

MAX_ROWS = 4096
"""Ranks and kinds, of one file and of all together."""

KINDS = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    ("train_job", "rank", "collective"),
    own={
        "collective_longest_seconds": gauge("Longest time of a collective of the kind that xpu_timer tells."),
        "collective_shortest_seconds": gauge("Shortest time of a collective of the kind that xpu_timer tells."),
        "highest_bytes_per_second": gauge("Highest bandwidth of collectives of the kind, as xpu_timer counts it."),
    },
    origins={
        "collective_longest_seconds": ["XPU_TIMER_COLL_KERNEL_MAX_LATENCY"],
        "collective_shortest_seconds": ["XPU_TIMER_COLL_KERNEL_MIN_LATENCY"],
        "highest_bytes_per_second": ["XPU_TIMER_COLL_KERNEL_BANDWIDTH"],
    },
)

RANKS = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    ("train_job", "rank"),
    own={"hang": gauge("Whether xpu_timer says that the rank hangs (1) or not (0).")},
    origins={"hang": ["XPU_TIMER_COMMON_HANG"]},
)

LINES = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    ("reason",),
    own={"lost_lines_total": counter("Lines of xpu_timer's files that could not be used.")},
    origins={"lost_lines_total": ["files of xpu_timer"]},
)

REASONS = ("malformed", "invalid", "too_large", "torn", "unknown", "over_limit")


@dataclass(slots=True)
class _Read:
    """What one file says: values by job, rank and kind, and by ending; hangs by job and rank; and what was lost."""

    kinds: dict[tuple[str, str, str], dict[str, float]] = field(default_factory=dict)
    hangs: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    at: float = 0.0


class XpuTimerFeed:
    """Reads files of xpu_timer."""

    name = "xpu_timer"
    schemas = (KINDS, RANKS, LINES)

    def __init__(self, folders: Sequence[str], wants: Callable[[str], bool]) -> None:
        """Take folders or patterns of folders, and which jobs are wanted."""
        self._folders, self._wants = folders, wants
        self._serial = BlockingCalls("xpu_timer", CALL_DEADLINE)
        self._dumps = Dumps(settled=False)
        self._known: dict[str, _Read] = {}
        self._lost: Counter[str] = Counter()
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Tell whether any of the folders is there."""
        return bool(await off_loop(self._serial, partial(find_folders, self._folders)))

    async def hear(self) -> Heard:
        """Read the files that were written anew; they fail alone."""
        failures: list[Failure] = []
        found = await off_loop(self._serial, partial(self._find, failures))
        ready, gone, _ = self._dumps.look({path: state for path, (_, state) in found.files.items()})
        for path in gone:
            self._known.pop(path, None)
        results = await self._serial.run((path, partial(self._read, path, found.files[path][0])) for path in ready)
        now = monotonic()
        for path in ready:
            result = results[path]
            if isinstance(result, _Read):
                result.at = now
                self._known[path] = result
                self._lost.update(result.lost)
            elif isinstance(result, FormatError):
                self._lost[result.reason] += 1
                failures.append(Failure(found.files[path][0], result.reason, f"{path}: {result}"))
            elif not isinstance(result, FileNotFoundError):
                failures.append(failure_of(found.files[path][0], result, path))
        self._known = {path: one for path, one in self._known.items() if now - one.at < STALE}
        return Heard(failures=failures)

    def unused(self, said: Said, why: Unused) -> None:
        """Do nothing: nothing is said that could be used otherwise."""

    def tables(self, now: float) -> list[Table]:
        """Give what the files say that still change, and what was lost; nothing before the first."""
        kinds, ranks, lost = TableBuilder(KINDS), TableBuilder(RANKS), TableBuilder(LINES)
        values: dict[tuple[str, str, str], Mapping[str, float]] = {}
        hangs: dict[tuple[str, str], int] = {}
        for one in self._known.values():
            if len(values) + len(hangs) + len(one.kinds) + len(one.hangs) <= MAX_ROWS:
                values |= one.kinds
                hangs |= {rank: max(hang, hangs.get(rank, 0)) for rank, hang in one.hangs.items()}
        for kind, row in values.items():
            kinds.row(kind, row)
        for rank, hang in hangs.items():
            ranks.row(rank, {"hang": hang})
        if self._known or self._lost:
            for reason in REASONS:
                lost.row((reason,), {"lost_lines_total": self._lost[reason]})
        made = [one.table(self._keepers[one.schema], now) for one in (kinds, ranks, lost)]
        return [table for table in made if len(table.rows)]

    async def close(self) -> None:
        """End the thread."""
        self._serial.close()

    def _find(self, failures: list[Failure]) -> Found:
        return find(self._folders, ("",), self._wants, failures)

    def _read(self, path: str, job: str) -> _Read:
        """Read one file; runs in the thread."""
        read, lost = _Read(), Lost()
        for one in timings(self._dumps.read(path), lost):
            # Whoever laid the folder is believed before what stands in the file.
            named = job if job != UNKNOWN else one.job[:MAX_NAME] or UNKNOWN
            if not self._wants(named):
                continue
            if len(read.kinds) + len(read.hangs) >= MAX_ROWS:
                lost.reasons["over_limit"] += 1
            else:
                _add(read, one, named)
        read.lost = lost.reasons
        return read


_ENDINGS: dict[tuple[str, str], tuple[str, Callable[[float, float], float]]] = {
    ("time", "max"): ("collective_longest_seconds", max),
    ("time", "min"): ("collective_shortest_seconds", min),
    ("bandwidth", ""): ("highest_bytes_per_second", max),
}
"""By metric and statistic, the ending, and what is made of several algorithms, transports and buckets."""


def _add(read: _Read, one: Timing, job: str) -> None:
    rank = str(one.rank)
    if one.metric == "hang":
        read.hangs[job, rank] = max(int(one.value), read.hangs.get((job, rank), 0))
        return
    ending, better = _ENDINGS.get((one.metric, one.statistic), ("", max))
    if ending:
        values = read.kinds.setdefault((job, rank, one.kind), {})
        values[ending] = better(one.value, values.get(ending, one.value))
