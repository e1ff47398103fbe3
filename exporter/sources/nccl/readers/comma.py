"""What CoMMA, Google's profiler plugin, tells: files to which each process adds a JSON object for a collective.

It does not tell how many ranks a communicator has, so its times cannot be put together over ranks; they are summed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls
from exporter.core.source import Failure
from exporter.core.table import Column, RowKeeper, Table
from exporter.core.vocabulary import counter
from exporter.linux.tail import (
    FILE_BUDGET,
    MAX_LINE,
    Chunk,
    FollowedFile,
    Tail,
)
from exporter.nccl.comma import Event, events
from exporter.sources.common.failures import failure_of
from exporter.sources.nccl.readers.feed import (
    Heard,
    Said,
    Totals,
    Unused,
)
from exporter.sources.nccl.readers.files import (
    CALL_DEADLINE,
    Found,
    find,
    find_folders,
    off_loop,
)

POLL_BUDGET = 2 * FILE_BUDGET
"""Bytes read at one poll; what is left waits for the next."""

MAX_JOBS = 32
"""Jobs of which sums are kept."""

OUTCOMES = (
    "collective",
    "untimed",
    "other_category",
    "malformed",
    "invalid",
    "too_large",
    "too_long",
    "over_limit",
)

OBJECTS = vocabulary.schema(
    "fabric_nccl_comma_",
    ("outcome",),
    own={
        "objects_total": counter(
            "Objects of CoMMA's files by what became of them: collective (used), untimed (only its enqueueing is),"
            " other_category (passed over), malformed, invalid, too_large, too_long and over_limit (lost)."
        )
    },
    origins={"objects_total": ["NCCL_PROFILER_LATENCY_FILE"]},
)

KINDS = vocabulary.schema(
    "fabric_nccl_comma_",
    ("train_job", "collective"),
    own={
        "collectives_total": counter("Collectives of the job's processes on this host of which CoMMA tells the time."),
        "collective_duration_seconds_total": counter(
            "Time of these collectives, with what the processes waited for others in them."
        ),
    },
    origins={"collectives_total": ["name"], "collective_duration_seconds_total": ["child_dur"]},
)


class CommaFeed:
    """Follows the files of CoMMA."""

    name = "comma"
    schemas = (OBJECTS, KINDS)

    def __init__(self, folders: Sequence[str], wants: Callable[[str], bool]) -> None:
        """Take folders or patterns of folders, and which jobs are wanted: files of others are not opened."""
        self._folders, self._wants = folders, wants
        self._serial = BlockingCalls("comma", CALL_DEADLINE)
        self._tail = Tail()
        self._left = 0
        self._outcomes: Counter[str] = Counter()
        self._totals: dict[tuple[str, str], Totals] = {}
        self._keepers = {schema: RowKeeper(schema.labels) for schema in self.schemas}

    async def applies(self) -> bool:
        """Tell whether any of the folders is there."""
        return bool(await off_loop(self._serial, partial(find_folders, self._folders)))

    async def hear(self) -> Heard:
        """Read on in every file that grew; files fail alone."""
        failures: list[Failure] = []
        found = await off_loop(self._serial, partial(self._find, failures))
        look = self._tail.scan({path: state for path, (_, state) in found.files.items()})
        if look.too_many or found.cut:
            failures.append(Failure("", "too_many_files", "more files than are followed; remove those of old jobs"))
        self._left = POLL_BUDGET
        results = await self._serial.run((one.path, partial(self._read, one)) for one in look.grown)
        for one in look.grown:
            result, job = results[one.path], found.files[one.path][0]
            if isinstance(result, Chunk):
                self._take(result, job)
                if result.skipped:
                    failures.append(Failure(job, "backlog", f"{one.path}: {result.skipped} bytes passed over"))
            elif not isinstance(result, FileNotFoundError):
                failures.append(failure_of(job, result, one.path))
        return Heard(failures=failures)

    def unused(self, said: Said, why: Unused) -> None:
        """Do nothing: no process is told apart."""

    def tables(self, now: float) -> list[Table]:
        """Give what became of objects, and the sums of kinds; nothing before the first."""
        if not self._outcomes:
            return []
        outcomes = Column(OBJECTS.metrics["objects_total"], [self._outcomes[outcome] for outcome in OUTCOMES])
        rows = self._keepers[OBJECTS].rows([(outcome,) for outcome in OUTCOMES])
        totals, metrics = self._totals.values(), KINDS.metrics
        columns = (
            Column(metrics["collectives_total"], [one.count for one in totals]),
            Column(
                metrics["collective_duration_seconds_total"], [one.microseconds for one in totals], divisor=1_000_000
            ),
        )
        made = [Table(OBJECTS, rows, {"objects_total": outcomes}, now)]
        if self._totals:
            kinds = self._keepers[KINDS].rows(list(self._totals))
            made.append(Table(KINDS, kinds, {column.metric.ending: column for column in columns}, now))
        return made

    async def close(self) -> None:
        """End the thread; no file is open between reads."""
        self._serial.close()

    def _find(self, failures: list[Failure]) -> Found:
        return find(self._folders, (".txt", ".json", ".log"), self._wants, failures)

    def _read(self, one: FollowedFile) -> Chunk:
        """Read on in one file; runs in the thread."""
        if self._left <= MAX_LINE:
            return Chunk([])
        chunk = self._tail.read(one, min(FILE_BUDGET, self._left))
        self._left -= chunk.read
        return chunk

    def _take(self, chunk: Chunk, job: str) -> None:
        """Add what is new in a file; an object is a line, or all of them are one."""
        self._outcomes["too_long"] += len(chunk.too_long)
        fresh = (text.strip() for _, text, history in chunk.lines if not history)
        for text in fresh:
            if text not in {b"", b"[", b"]"}:
                for event in events(text, self._outcomes):
                    self._count(event, job)

    def _count(self, event: Event, job: str) -> None:
        if event.microseconds is None:
            self._outcomes["untimed"] += 1
            return
        key = (job, event.kind)
        totals = self._totals.get(key)
        if totals is None:
            if job not in {one for one, _ in self._totals} and len({one for one, _ in self._totals}) >= MAX_JOBS:
                self._outcomes["over_limit"] += 1
                return
            totals = self._totals[key] = Totals()
        totals.count += 1
        totals.microseconds += event.microseconds
        self._outcomes["collective"] += 1
