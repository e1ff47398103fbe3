"""Poller: runs one source at its interval, derives tables by meaning steps, tracks failures and staleness.

A poller never reads its source twice at a time. Tables become stale two intervals after the last successful read and
are then no longer exported, because a counter that stays flat looks like an idle link. A failure is logged when it
begins and when it ends, not on each read.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from zlib import crc32

from exporter.core import found_failures
from exporter.core.clock import REAL_TIME, Clock
from exporter.core.source import (
    Failure,
    Source,
    SourceError,
    is_exported,
)
from exporter.core.suspension import SHORTEST, suspended_seconds
from exporter.core.table import Metric, Table

Step: TypeAlias = Callable[[Any, Table], tuple[Any, Sequence[Table]]]

logger = logging.getLogger(__name__)

MIN_GAP_SECONDS = 0.2
"""Seconds between two reads at least, however often the source reports a change."""

START_SPREAD = 0.9
"""Share of the interval over which the polls of targets that start together are spread."""

TABLES_PER_YIELD = 8
"""Tables processed by meaning without yielding to the event loop: some milliseconds of work."""

MAX_INLINE_ROWS = 2000
"""Rows of a table above which the steps run in a thread: tens of milliseconds of work."""

MAX_LOGGED_FAILURES = 20
"""Failures logged one by one that begin with one read, and likewise that end with it."""

MAX_FAILURE_KINDS = 500
"""Pairs (device, reason) counted separately; further ones are counted under the device `other`."""


@dataclass(slots=True)
class Status:
    """State of a source, for the metrics about the exporter itself and for the status page.

    Attributes:
        up: Whether the last read succeeded; None while there is nothing to read.
        last_success: Unix time of the last successful read; None before the first.
        succeeded_at: Its monotonic time, for its age: the time of day may be stepped.
        duration: Seconds that the last read took, successful or not.
        reads: Reads started.
        overruns: Ticks skipped because the read before was still running or ended late.
        failures: Number of failures by (device, reason).
        reason: Reason for which the source as a whole is down; empty while it is not.
        detail: Error text of `reason`.
    """

    up: bool | None = None
    last_success: float | None = None
    succeeded_at: float | None = None
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
        steps_in_thread: bool = False,
        clock: Clock = REAL_TIME,
    ) -> None:
        """Create a poller; `run` starts it.

        Args:
            source: The source to read.
            steps: Meaning steps, in order; each gets the tables that the step before returned.
            drop: Shell patterns of metric names that are not exported.
            keep: Shell patterns of names of details that are exported.
            deadline: Seconds that one read may take; the interval by default.
            on_late: Called at each tick with the seconds by which the event loop was late.
            steps_in_thread: Whether the steps run in a thread, because they may take seconds.
            clock: The clocks; `run` waits in real time.
        """
        self.source = source
        self.status = Status()
        self.tables: Sequence[Table] = ()
        self.first_read = asyncio.Event()
        self._steps = steps
        self._step_states: dict[Hashable, object] = {}
        self._drop, self._keep = drop, keep
        self._exported_metrics: dict[Metric, bool] = {}
        self._deadline = source.interval if deadline is None else deadline
        self._on_late = on_late
        self._steps_in_thread = steps_in_thread
        self._clock = clock
        self._fresh_until = 0.0
        self._last_read = float("-inf")
        self._suspended = suspended_seconds()  # at the last successful read
        self._ongoing_failures: frozenset[tuple[str, str]] = frozenset()
        self._name = f"{source.name} {source.target}".strip()

    async def run(self) -> None:
        """Poll until cancelled; the source is not closed."""
        interval = self.source.interval
        # Targets that start together are spread over the interval, each by the same share at every start: polling a
        # thousand switches in one burst would delay all of them, and lose datagrams of SNMP.
        spread = crc32(self.source.target.encode()) / 2**32 * interval * START_SPREAD if self.source.target else 0.0
        begin = self._clock.monotonic() - spread
        tick = 1
        await self.poll()
        while True:
            due = begin + tick * interval
            await self._wait(due)
            await self.poll()
            now = self._clock.monotonic()
            # A read that takes longer than the interval skips the ticks that it missed and counts them: catching up
            # would read twice within one interval, and leave no pause to a device that is already slow. A poll that a
            # change caused ends before the tick, which then is still to come.
            if now >= due:
                late = int((now - due) / interval)
                self.status.overruns += late
                tick += 1 + late

    async def _wait(self, due: float) -> None:
        """Wait for the tick, or until the source reports a change."""
        changed = self.source.changed
        wait = max(0.0, due - self._clock.monotonic())
        if changed is None:
            await asyncio.sleep(wait)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await changed.wait()
                    await asyncio.sleep(max(0.0, self._last_read + MIN_GAP_SECONDS - self._clock.monotonic()))
            changed.clear()
        late = self._clock.monotonic() - due
        if wait and late >= 0 and self._on_late is not None:
            self._on_late(late)

    async def poll(self) -> None:
        """Read the source once and keep the resulting tables."""
        begun = self._last_read = self._clock.monotonic()
        self.status.reads += 1
        try:
            async with asyncio.timeout(self._deadline) as limit:
                if self.status.up is not True and not await self.source.applies():
                    self._set_absent()
                    return
                reading = await self.source.read()
                if not reading.tables and not reading.failures and not await self.source.applies():
                    self._set_absent()  # the hardware or the files are gone
                    return
            tables = await self._apply_steps_to_all(reading.tables)
        except TimeoutError as error:  # of the deadline, or raised by the source
            text = f"no answer within {self._deadline:g} s" if limit.expired() else str(error)
            self._failed(SourceError("timeout", text))
        except SourceError as error:
            self._failed(error)
        except Exception as error:
            if self.status.reason != "internal":
                logger.exception("%s: error in this program; other sources continue", self._name)
            self._failed(SourceError("internal", f"{type(error).__name__}: {error}"))
        else:
            self._succeeded(reading.failures, tables)
        finally:
            self.status.duration = self._clock.monotonic() - begun
            self.first_read.set()

    def fresh_tables(self) -> Sequence[Table]:
        """Return the tables of the last successful read, none once they are stale; callable from any thread."""
        return self.tables if self._clock.monotonic() <= self._fresh_until and not self._was_suspended() else ()

    def _was_suspended(self) -> bool:
        """Return whether the machine was suspended after the last successful read."""
        return suspended_seconds() - self._suspended >= SHORTEST

    def count_rows(self) -> int:
        """Return the number of rows of all tables that are not stale."""
        return sum(len(table.rows) for table in self.fresh_tables())

    async def _apply_steps_to_all(self, tables: Sequence[Table]) -> Sequence[Table]:
        """Apply the steps to all tables; where there are many, yield to other tasks in between."""
        derived: list[Table] = []
        for number, table in enumerate(tables, 1):
            derived += (
                await asyncio.to_thread(self._apply_steps, table)
                if self._steps_in_thread or len(table.rows) > MAX_INLINE_ROWS
                else self._apply_steps(table)
            )
            if number % TABLES_PER_YIELD == 0:
                await asyncio.sleep(0)
        return derived

    def _apply_steps(self, table: Table) -> Sequence[Table]:
        """Apply the steps to one table; each step may replace a table by several."""
        tables: list[Table] = [table]
        for place, step in enumerate(self._steps):
            derived: list[Table] = []
            for one in tables:
                key = (place, one.schema, one.part)
                self._step_states[key], results = step(self._step_states.get(key), one)
                derived += results
            tables = derived
        return [self._without_unexported(one) for one in tables]

    def _without_unexported(self, table: Table) -> Table:
        """Remove the columns of metrics that are not exported."""
        columns = {ending: column for ending, column in table.columns.items() if self._is_exported(column.metric)}
        return table if len(columns) == len(table.columns) else replace(table, columns=columns)

    def _is_exported(self, metric: Metric) -> bool:
        exported = self._exported_metrics.get(metric)
        if exported is None:
            exported = self._exported_metrics[metric] = is_exported(metric, self._drop, self._keep)
        return exported

    def _set_absent(self) -> None:
        """Record that there is nothing to read, which is not a failure."""
        if self.status.up is False:
            logger.info("%s: nothing left to read", self._name)
        self.tables = ()
        self.status.up, self.status.reason, self.status.detail = None, "", ""

    def _succeeded(self, failures: Sequence[Failure], tables: Sequence[Table]) -> None:
        if self.status.up is False:
            logger.info("%s: is read again", self._name)
        self.status.up, self.status.reason, self.status.detail = True, "", ""
        found = [table for table in tables if table.schema is found_failures.SCHEMA]
        own = [table for table in tables if table.schema is not found_failures.SCHEMA]
        # Rates after a suspension are not of the seconds that have passed: that read is only where the next ones begin.
        self.tables = () if self._was_suspended() else own
        self._suspended = suspended_seconds()
        now = self._clock.monotonic()
        self.status.last_success, self.status.succeeded_at = self._clock.unix(), now
        # Stale after two intervals: one failed read is no gap in the graphs, but values older than that would show an
        # outage as an idle link. The duration of the read is added, because the next may take as long.
        self._fresh_until = now + 2 * self.source.interval + (now - self._last_read)
        self._record_failures([*failures, *(one for table in found for one in found_failures.failures_in(table))])

    def _failed(self, error: SourceError) -> None:
        if self.status.up is not False or self.status.reason != error.reason:
            logger.warning("%s: cannot be read (%s): %s", self._name, error.reason, error)
        self.status.up, self.status.reason, self.status.detail = False, error.reason, str(error)
        self._count_failure("", error.reason)

    def _count_failure(self, device: str, reason: str) -> None:
        failures = self.status.failures
        key = (device, reason)
        if key not in failures and len(failures) >= MAX_FAILURE_KINDS:
            key = ("other", reason)
        failures[key] = failures.get(key, 0) + 1

    def _record_failures(self, failures: Sequence[Failure]) -> None:
        """Count the failures beside a successful read; log those that are new and those that ended."""
        if not failures and not self._ongoing_failures:
            return
        now: dict[tuple[str, str], Failure] = {}
        for failure in failures:
            self._count_failure(failure.device, failure.reason)
            now.setdefault((failure.device, failure.reason), failure)
        new, ended = sorted(now.keys() - self._ongoing_failures), sorted(self._ongoing_failures - now.keys())
        for key in new[:MAX_LOGGED_FAILURES]:
            logger.warning("%s: %s (%s): %s", self._name, now[key].device, now[key].reason, now[key].detail)
        for device, reason in ended[:MAX_LOGGED_FAILURES]:
            logger.info("%s: %s (%s): ended", self._name, device, reason)
        for count, what in ((len(new) - MAX_LOGGED_FAILURES, "failures"), (len(ended) - MAX_LOGGED_FAILURES, "ended")):
            if count > 0:
                logger.info("%s: and %d more %s", self._name, count, what)
        self._ongoing_failures = frozenset(now)
