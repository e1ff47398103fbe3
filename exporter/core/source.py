"""What a source is: where numbers come from, behind one small interface.

A source reads and says what failed, piece by piece; it knows nothing of meaning, outputs or the clock. Its module
declares its metrics as data and one Definition, which the daemon registers by one line.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import msgspec

from exporter.config.errors import check_patterns
from exporter.config.units import Duration
from exporter.core.table import Metric, Schema, Table

LEAST_INTERVAL = 0.1
"""Seconds that lie at least between two reads of a source."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that could not be read; all else was.

    Attributes:
        device: The port, NIC, column or file's owner it concerns; empty for the source as a whole.
        reason: One word from a small set, a label: `timeout`, `einval`, `malformed` …
        detail: For the log: place, value, remedy.
    """

    device: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read gave: tables, and what failed beside them."""

    tables: Sequence[Table]
    failures: Sequence[Failure] = ()


class SourceError(Exception):
    """The whole read failed; `reason` becomes a label, the text goes to the log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Source(Protocol):
    """Something that can be read.

    Attributes:
        name: The kind of source: `rdma`, `switch` …
        target: Which one, where there are several of the kind; else empty.
        interval: Seconds between reads.
        changed: Set by the source when it should be read at once; None where nothing tells it.
    """

    name: str
    target: str
    interval: float
    changed: asyncio.Event | None

    @property
    def settings(self) -> object:
        """Give what it was made from: a source of equal settings need not be made anew."""

    async def applies(self) -> bool:
        """Tell whether there is anything to read: hardware or files are there. Cheap; re-asked now and then."""

    async def read(self) -> Reading:
        """Read once.

        Raises:
            SourceError: Nothing could be read.
        """

    async def close(self) -> None:
        """Let go of sockets and descriptors; bounded in time."""


@dataclass(frozen=True, slots=True)
class Host:
    """What sources may know of the host and the process that they run in."""

    name: str
    sysfs: Path
    procfs: Path
    nic_replay: Path | None = None


def _fits(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a name fits one of the shell patterns, from its first character to its last."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def exports(metric: Metric, drop: Sequence[str], keep: Sequence[str]) -> bool:
    """Tell whether a metric is exported.

    Args:
        metric: The metric.
        drop: Shell patterns of the names of metrics that are not; they win.
        keep: Shell patterns of the names of details that are.
    """
    return (not metric.detail or _fits(metric.name, keep)) and not _fits(metric.name, drop)


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which of several named things are wanted.

    Attributes:
        include: Names to read, as shell patterns.
        exclude: Names never to be touched, as shell patterns; wins over include.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that the patterns are whole."""
        check_patterns("include", self.include)
        check_patterns("exclude", self.exclude)

    def wants(self, name: str) -> bool:
        """Tell whether a name is wanted."""
        return _fits(name, self.include) and not _fits(name, self.exclude)


class Options(Selection, frozen=True, kw_only=True):
    """What every source takes in the configuration; a source adds its own keys by subclassing.

    Attributes:
        enabled: False switches the source off.
        interval: Time between reads.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    enabled: bool = True
    interval: Duration = Duration(5.0)
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an interval in which nothing can be read: one letter too many, on every node of a fleet."""
        super().__post_init__()
        if self.interval < LEAST_INTERVAL:
            raise ValueError(f"interval is {self.interval * 1000:g}ms; give {LEAST_INTERVAL * 1000:g}ms or more")


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind of source, as the daemon registers it.

    Attributes:
        name: Label `source`, and key under `sources:` in the configuration.
        options: Type of its part of the configuration.
        schemas: All that its tables can hold.
        build: Makes the sources from options; several where there are several targets.
        section: Key at the top of the configuration, for a source that is not configured under `sources:`.
        complete: Takes in what stands in other files that the options name; given the folder of the configuration. May
            block, and raises ConfigError.
    """

    name: str
    options: type[msgspec.Struct]
    schemas: Sequence[Schema]
    build: Callable[[Any, Host], Sequence[Source]]
    section: str = ""
    complete: Callable[[Any, Path], Any] | None = None
