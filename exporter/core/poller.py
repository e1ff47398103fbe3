"""The clock of one source: interval, deadline, in-flight guard, staleness, what is logged, and meaning's memory.

A poller reads its source at each tick, never twice at once, puts the tables through the meanings and keeps the result
for whoever prints it. When two intervals have passed without a good read, its tables vanish: a flat old counter looks
like an idle link. States are logged when they begin and when they end, not each time.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, TypeAlias
from zlib import crc32

from exporter.core.source import (
    Failure,
    Reading,
    Source,
    SourceError,
    exports,
)
from exporter.core.table import Metric, Table

Step: TypeAlias = Callable[[Any, Table], tuple[Any, Sequence[Table]]]

logger = logging.getLogger(__name__)

LEAST_GAP = 0.2
"""Seconds that lie at least between two reads, however often the source says that something changed."""

SPREAD = 0.9
"""Share of the interval over which the polls of targets that start together are spread."""

TABLES_A_TURN = 8
"""Tables that meaning is made of without a pause: some milliseconds of work."""

MAX_LINES = 20
"""Failures that are told one by one when they begin at the same read, and likewise when they end."""

MAX_FAILURE_KINDS = 500
"""Failures told apart by (device, reason); what comes beyond is counted under the device `other`."""


@dataclass(slots=True)
class Status:
    """How a source is doing, for the metrics about the exporter itself and for the page.

    Attributes:
        up: Whether the last read was good; None while there is nothing to read.
        last_success: Unix time of the last good read; None before the first.
        duration: Seconds of the last read, good or bad.
        reads: Reads begun.
        overruns: Ticks that were skipped because a read was still under way or came too late.
        failures: How often what failed: by (device, reason).
        reason: Why the source as a whole is down; empty while it is not.
        detail: The same in words.
    """

    up: bool | None = None
    last_success: float | None = None
    duration: float | None = None
    reads: int = 0
    overruns: int = 0
    failures: dict[tuple[str, str], int] = field(default_factory=dict)
    reason: str = ""
    detail: str = ""


class Poller:
    """Polls one source."""

    def __init__(
        self,
        source: Source,
        steps: Sequence[Step] = (),
        *,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        deadline: float | None = None,
        on_late: Callable[[float], None] | None = None,
        aside: bool = False,
    ) -> None:
        """Take what to poll.

        Args:
            source: What is read.
            steps: The meanings, in order; each sees what the one before it made.
            drop: Shell patterns of metric names that are not exported.
            keep: Shell patterns of the details that are.
            deadline: Seconds that one read may take; the interval where not given.
            aside: Whether the steps are done in a thread, since they may take seconds.
            on_late: Told at each tick how many seconds the event loop was late to it.
        """
        self.source = source
        self.status = Status()
        self.tables: Sequence[Table] = ()
        self.first = asyncio.Event()
        self._steps = steps
        self._memory: dict[Hashable, object] = {}
        self._drop, self._keep = drop, keep
        self._wanted: dict[Metric, bool] = {}
        self._deadline = source.interval if deadline is None else deadline
        self._on_late = on_late
        self._aside = aside
        self._good_until = 0.0
        self._last_read = float("-inf")
        self._ongoing: frozenset[tuple[str, str]] = frozenset()
        self._name = f"{source.name} {source.target}".strip()

    async def run(self) -> None:
        """Poll until cancelled; closes the source at the end."""
        interval = self.source.interval
        # Targets that start together drift apart over the first interval, so that switches are not asked in bursts.
        spread = crc32(self.source.target.encode()) / 2**32 * interval * SPREAD if self.source.target else 0.0
        begin = monotonic() - spread
        tick = 1
        try:
            await self.poll()
            while True:
                due = begin + tick * interval
                await self._wait(due)
                await self.poll()
                now = monotonic()
                if now >= due:
                    late = int((now - due) / interval)
                    self.status.overruns += late
                    tick += 1 + late
        finally:
            with suppress(Exception):
                await self.source.close()

    async def _wait(self, due: float) -> None:
        """Wait for the tick, or until the source says that something changed."""
        changed = self.source.changed
        wait = max(0.0, due - monotonic())
        if changed is None:
            await asyncio.sleep(wait)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await changed.wait()
                    await asyncio.sleep(max(0.0, self._last_read + LEAST_GAP - monotonic()))
            changed.clear()
        late = monotonic() - due
        if wait and late >= 0 and self._on_late is not None:
            self._on_late(late)

    async def poll(self) -> None:
        """Read once, and keep what came of it."""
        begun = self._last_read = monotonic()
        self.status.reads += 1
        try:
            async with asyncio.timeout(self._deadline) as limit:
                if self.status.up is not True and not await self.source.applies():
                    self._absent()
                    return
                reading = await self.source.read()
                if not reading.tables and not reading.failures and not await self.source.applies():
                    self._absent()  # what was there is gone
                    return
            tables = await self._meaning(reading.tables)
        except TimeoutError as error:  # ours, or one that the source let through
            text = f"no answer within {self._deadline:g} s" if limit.expired() else str(error)
            self._failed(SourceError("timeout", text))
        except SourceError as error:
            self._failed(error)
        except Exception as error:
            if self.status.reason != "internal":
                logger.exception("%s: fault in this program; other sources go on", self._name)
            self._failed(SourceError("internal", f"{type(error).__name__}: {error}"))
        else:
            self._succeeded(reading, tables)
        finally:
            self.status.duration = monotonic() - begun
            self.first.set()

    def fresh_tables(self) -> Sequence[Table]:
        """Give the tables of the last good read, or none once they are two intervals old; from any thread."""
        return self.tables if monotonic() <= self._good_until else ()

    def count_rows(self) -> int:
        """Count the rows of the fresh tables."""
        return sum(len(table.rows) for table in self.fresh_tables())

    async def _meaning(self, tables: Sequence[Table]) -> Sequence[Table]:
        """Put tables through the steps; where there are many, others have their turn between them."""
        made: list[Table] = []
        for number, table in enumerate(tables, 1):
            made += await asyncio.to_thread(self._made_of, table) if self._aside else self._made_of(table)
            if number % TABLES_A_TURN == 0:
                await asyncio.sleep(0)
        return made

    def _made_of(self, table: Table) -> Sequence[Table]:
        """Put one table through the steps, each of which may make more of it."""
        tables: list[Table] = [table]
        for place, step in enumerate(self._steps):
            made: list[Table] = []
            for one in tables:
                key = (place, one.schema, one.part)
                self._memory[key], out = step(self._memory.get(key), one)
                made += out
            tables = made
        return [self._exported(one) for one in tables]

    def _exported(self, table: Table) -> Table:
        """Leave out the columns that are not wanted."""
        columns = {ending: column for ending, column in table.columns.items() if self._wants(column.metric)}
        return table if len(columns) == len(table.columns) else replace(table, columns=columns)

    def _wants(self, metric: Metric) -> bool:
        wanted = self._wanted.get(metric)
        if wanted is None:
            wanted = self._wanted[metric] = exports(metric, self._drop, self._keep)
        return wanted

    def _absent(self) -> None:
        """Note that there is nothing to read: no failure, no noise."""
        if self.status.up is False:
            logger.info("%s: nothing to read any more", self._name)
        self.tables = ()
        self.status.up, self.status.reason, self.status.detail = None, "", ""

    def _succeeded(self, reading: Reading, tables: Sequence[Table]) -> None:
        if self.status.up is False:
            logger.info("%s: reads again", self._name)
        self.status.up, self.status.reason, self.status.detail = True, "", ""
        self.status.last_success = time()
        self.tables = tables
        now = monotonic()
        self._good_until = now + 2 * self.source.interval + (now - self._last_read)  # the next may take as long
        self._count(reading.failures)

    def _failed(self, error: SourceError) -> None:
        if self.status.up is not False or self.status.reason != error.reason:
            logger.warning("%s: cannot be read (%s): %s", self._name, error.reason, error)
        self.status.up, self.status.reason, self.status.detail = False, error.reason, str(error)
        self._bump("", error.reason)

    def _bump(self, device: str, reason: str) -> None:
        failures = self.status.failures
        key = (device, reason)
        if key not in failures and len(failures) >= MAX_FAILURE_KINDS:
            key = ("other", reason)
        failures[key] = failures.get(key, 0) + 1

    def _count(self, failures: Sequence[Failure]) -> None:
        """Count what failed beside a good read; log what is new, and what is over."""
        if not failures and not self._ongoing:
            return
        now: dict[tuple[str, str], Failure] = {}
        for failure in failures:
            self._bump(failure.device, failure.reason)
            now.setdefault((failure.device, failure.reason), failure)
        begun, over = sorted(now.keys() - self._ongoing), sorted(self._ongoing - now.keys())
        for key in begun[:MAX_LINES]:
            logger.warning("%s: %s (%s): %s", self._name, now[key].device, now[key].reason, now[key].detail)
        for device, reason in over[:MAX_LINES]:
            logger.info("%s: %s (%s): over", self._name, device, reason)
        for count, what in ((len(begun) - MAX_LINES, "failures"), (len(over) - MAX_LINES, "that are over")):
            if count > 0:
                logger.info("%s: and %d more %s", self._name, count, what)
        self._ongoing = frozenset(now)
