"""Source: the interface of all sources.

A source returns tables and failures; it does not depend on `exporter.meaning`, the outputs or the poller. Its
package declares its metrics as data, and one Definition (`exporter.core.definition`) that the daemon registers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

import msgspec

from exporter.config.errors import check_patterns
from exporter.config.units import Duration
from exporter.core.blocking import Hardware
from exporter.core.table import Metric, Table

MIN_INTERVAL_SECONDS = 0.1
"""Seconds between two reads of a source at least."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that could not be read, while the rest was.

    Attributes:
        device: The port, NIC, column or owner of the file that failed; empty for the source as a whole.
        reason: One word of a small set, used as a label value: `timeout`, `einval`, `malformed` …
        detail: Text for the log: place, value, remedy.
    """

    device: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of one read: the tables, and what could not be read."""

    tables: Sequence[Table]
    failures: Sequence[Failure] = ()


class SourceError(Exception):
    """The whole read failed. `reason` becomes a label value, the text is logged."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Source(Protocol):
    """Interface of a source.

    Attributes:
        name: The kind of source: `rdma`, `switch` …
        target: Which one, where there are several of the kind; else empty.
        interval: Seconds between reads.
        changed: Set by the source when it should be read at once; None if it never is.
    """

    name: str
    target: str
    interval: float
    changed: asyncio.Event | None

    @property
    def settings(self) -> object:
        """Options that the source was built from; a reload keeps a source whose settings are equal."""

    async def applies(self) -> bool:
        """Return whether there is anything to read, such as hardware or files. Cheap; called repeatedly."""

    async def read(self) -> Reading:
        """Read once.

        Raises:
            SourceError: Nothing could be read.
        """

    async def close(self) -> None:
        """Close sockets and descriptors; bounded in time."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host that sources read: its name, and the roots of sysfs, procfs and of recordings of NICs.

    Attributes:
        dev: The host's /dev; None if it is not known which one this process has, that of the host or of a container.
        hardware: The turns of the blocking calls of its sources.
    """

    name: str
    sysfs: Path
    procfs: Path
    nic_replay: Path | None = None
    hardware: Hardware = field(default_factory=Hardware, repr=False, compare=False)
    dev: Path | None = None


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_exported(metric: Metric, drop: Sequence[str], keep: Sequence[str]) -> bool:
    """Return whether a metric is exported.

    Args:
        metric: The metric.
        drop: Shell patterns of metric names that are not exported; they take precedence.
        keep: Shell patterns of names of details that are exported.
    """
    return (not metric.detail or _matches_any(metric.name, keep)) and not _matches_any(metric.name, drop)


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Selection of named things by shell patterns.

    Attributes:
        include: Names to read.
        exclude: Names never to access; takes precedence over include.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the patterns."""
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)

    def matches(self, name: str) -> bool:
        """Return whether a name is included and not excluded."""
        return _matches_any(name, self.include) and not _matches_any(name, self.exclude)


class Options(Selection, frozen=True, kw_only=True):
    """Options that every source has; a source adds its own keys in a subclass.

    Attributes:
        enabled: False switches the source off.
        interval: Time between reads.
        drop: Shell patterns of metric names that are not exported.
        keep: Shell patterns of names of details that are exported too.
    """

    enabled: bool = True
    interval: Duration = Duration(5.0)
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject an interval too short to read anything: `5ms` for `5m`, on every node of a fleet."""
        super().__post_init__()
        if self.interval < MIN_INTERVAL_SECONDS:
            raise ValueError(f"interval is {self.interval * 1000:g}ms; give {MIN_INTERVAL_SECONDS * 1000:g}ms or more")
