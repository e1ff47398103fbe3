"""The running sources of a daemon, and what its pages and its log report about them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from exporter.core.poller import Poller
from exporter.core.source import is_exported
from exporter.core.table import Table
from exporter.meaning.ports import expectations
from exporter.outputs.page import SourceStatus

READY_AFTER = 10.0
"""Seconds after which a source that has not been read yet no longer keeps the daemon from being ready."""


@dataclass(slots=True)
class RunningSource:
    """A source with its poller.

    Attributes:
        poller: Its poller.
        built_from: Options and environment it was built from: a reload keeps the source where these are equal.
        task: Runs the poller.
        ports: Expected number of its ports; None where none is configured.
        drop: Patterns of metrics that are not exported.
        since: Monotonic time of its start.
    """

    poller: Poller
    built_from: tuple[object, ...]
    task: asyncio.Task[None]
    ports: int | None
    drop: tuple[str, ...]
    since: float = field(default_factory=monotonic)

    def tables(self) -> Sequence[Table]:
        """Return the fresh tables; where ports are expected, with their number, even if nothing could be read."""
        tables = self.poller.fresh_tables()
        now = monotonic()
        is_starting = not self.poller.first_read.is_set() and now - self.since <= READY_AFTER
        if self.ports is None or is_starting:
            return tables
        *others, counted = expectations.summed(self.ports, tables, now)
        exported = {
            ending: column for ending, column in counted.columns.items() if is_exported(column.metric, self.drop, ())
        }
        return [*others, replace(counted, columns=exported)]


RunningSources = Mapping[tuple[str, str], RunningSource]
"""Running sources by name and target."""


def statuses(running: RunningSources, now: float) -> list[SourceStatus]:
    """Return the status of each source for the page; `now` is Unix time."""
    rows = []
    for (name, target), one in sorted(running.items()):
        status = one.poller.status
        failures: dict[str, int] = {}
        for (_, reason), count in status.failures.items():
            failures[reason] = failures.get(reason, 0) + count
        age = None if status.last_success is None else now - status.last_success
        rows.append(SourceStatus(name, target, status.up, age, one.poller.count_rows(), failures, status.detail))
    return rows


def describe_first_reads(running: RunningSources) -> str:
    """Return one line with the sources that are read, those that found no device, and those that failed."""
    found: dict[str, list[str]] = {"reading": [], "nothing found for": [], "not readable": []}
    for key, one in running.items():
        poller = one.poller
        state = {True: "reading", None: "nothing found for", False: "not readable"}[poller.status.up]
        count = poller.count_rows()
        rows = f" ({count} {'row' if count == 1 else 'rows'})" if poller.status.up else ""
        found[state].append(f"{' '.join(key).strip()}{rows}")
    return "; ".join(f"{state} {', '.join(names)}" for state, names in found.items() if names)


def unread(running: RunningSources) -> list[str]:
    """Return the sorted names of sources whose first read has not ended."""
    return sorted(" ".join(key).strip() for key, one in running.items() if not one.poller.first_read.is_set())
