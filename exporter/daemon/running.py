"""The running sources of a daemon, and what its pages and its log report about them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from exporter.core.poller import Poller, Step
from exporter.core.source import is_exported
from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.core.table import Table
from exporter.daemon.pipeline import steps
from exporter.daemon.prepared import ConfiguredSource, Prepared, SourceKey
from exporter.daemon.runtime import LoopLag
from exporter.meaning.ports import expectations
from exporter.outputs.page import SourceStatus

logger = logging.getLogger(__name__)

READY_AFTER = 10.0
"""Seconds after which a source that has not been read yet no longer keeps the daemon from being ready."""

CLOSE_SECONDS = 5.0
"""Time limit for the read of a source to end, and for the source to close, before its successor starts."""


@dataclass(slots=True)
class RunningSource:
    """A source with its poller.

    Attributes:
        configured: The source, and what it was configured with.
        poller: Its poller.
        task: Runs the poller.
        since: Monotonic time of its start.
    """

    configured: ConfiguredSource
    poller: Poller
    task: SupervisedTask
    since: float = field(default_factory=monotonic)

    def tables(self) -> Sequence[Table]:
        """Return the fresh tables; where ports are expected, with their number, even if nothing could be read."""
        tables = self.poller.fresh_tables()
        now = monotonic()
        is_starting = not self.poller.first_read.is_set() and now - self.since <= READY_AFTER
        ports, drop = self.configured.expected.ports, self.configured.drop
        if ports is None or is_starting:
            return tables
        *others, counted = expectations.summed(ports, tables, now)
        exported = {
            ending: column for ending, column in counted.columns.items() if is_exported(column.metric, drop, ())
        }
        return [*others, replace(counted, columns=exported)]

    async def stop(self) -> None:
        """Stop polling, and close the source, each within CLOSE_SECONDS; an error is logged."""
        name = self.task.name
        if not await self.task.stop(CLOSE_SECONDS):
            logger.warning("%s: its read has not ended within %g s", name, CLOSE_SECONDS)
        try:
            async with asyncio.timeout(CLOSE_SECONDS) as limit:
                await self.configured.source.close()
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                logger.warning("%s: not closed within %g s", name, CLOSE_SECONDS)
            else:
                logger.exception("%s: error while closing", name)


class RunningSources:
    """The sources that a daemon runs, by name and target."""

    def __init__(self, supervisor: Supervisor, lag: LoopLag) -> None:
        """Run nothing yet.

        Args:
            supervisor: Runs their tasks.
            lag: Receives the delays of their ticks.
        """
        self._supervisor, self._lag = supervisor, lag
        self._running: dict[SourceKey, RunningSource] = {}

    def all(self) -> list[RunningSource]:
        """Return the running sources; may be called from any thread."""
        return list(self._running.values())

    def tables(self) -> list[Table]:
        """Return the fresh tables of all sources; may be called from any thread."""
        return [table for one in self.all() for table in one.poller.fresh_tables()]

    async def stop_changed(self, prepared: Prepared) -> None:
        """Stop the sources that a configuration lacks or builds otherwise; returns when they have closed.

        A successor may open the same port or socket.
        """
        ending = []
        for key, running in list(self._running.items()):
            if key not in prepared.sources or prepared.sources[key].built_from != running.configured.built_from:
                ending.append(self._running.pop(key))
        await asyncio.gather(*(one.stop() for one in ending))

    def start_missing(self, prepared: Prepared, verdicts: Step) -> None:
        """Start the sources of a configuration that do not run.

        Args:
            prepared: The configuration.
            verdicts: Computes verdicts on jobs, for kinds of sources that have no step of their own.
        """
        for key, one in prepared.sources.items():
            if key in self._running:
                continue
            poller = Poller(
                one.source,
                steps(one.expected, one.steps, verdicts),
                drop=one.drop,
                keep=one.keep,
                on_late=self._lag.note,
                steps_in_thread=one.steps.in_thread,
            )
            task = self._supervisor.start(" ".join(key).strip(), poller.run, kind=one.source.name)
            self._running[key] = RunningSource(one, poller, task)

    async def stop(self) -> None:
        """Stop all sources."""
        ending, self._running = self.all(), {}
        await asyncio.gather(*(one.stop() for one in ending))

    def statuses(self) -> list[SourceStatus]:
        """Return the status of each source for the page."""
        rows = []
        for (name, target), one in sorted(self._running.items()):
            status = one.poller.status
            failures: dict[str, int] = {}
            for (_, reason), count in status.failures.items():
                failures[reason] = failures.get(reason, 0) + count
            age = None if status.succeeded_at is None else monotonic() - status.succeeded_at
            rows.append(SourceStatus(name, target, status.up, age, one.poller.count_rows(), failures, status.detail))
        return rows

    async def wait_until_read(self) -> None:
        """Wait until the first read of each source has ended."""
        for one in self.all():
            await one.poller.first_read.wait()

    def describe_first_reads(self) -> str:
        """Return one line with the sources that are read, those that found no device, and those that failed."""
        found: dict[str, list[str]] = {"reading": [], "nothing found for": [], "not readable": []}
        for one in self.all():
            poller = one.poller
            state = {True: "reading", None: "nothing found for", False: "not readable"}[poller.status.up]
            count = poller.count_rows()
            rows = f" ({count} {'row' if count == 1 else 'rows'})" if poller.status.up else ""
            found[state].append(f"{one.task.name}{rows}")
        return "; ".join(f"{state} {', '.join(names)}" for state, names in found.items() if names)

    def unread(self) -> list[str]:
        """Return the sorted names of sources whose first read has not ended."""
        return sorted(one.task.name for one in self.all() if not one.poller.first_read.is_set())
