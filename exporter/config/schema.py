"""The configuration file: typed and strict. Every error names the place, the value and the remedy.

Each source brings the type of its own part, so this module knows none of them. Nothing is guessed: a key that nobody
knows is an error, since a typo that is passed over is a check that silently does not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import msgspec

from exporter.config import yaml_reader
from exporter.config.errors import check_patterns
from exporter.config.jobs import JobPlan
from exporter.config.units import BitRate


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the ports and links of a host should be.

    Attributes:
        rdma_ports: RDMA ports that should be ready: up, and not slower than expected.
        rdma_speed: Speed of each RDMA port that is read.
        nic_speed: Speed of each NIC that is read.
    """

    rdma_ports: int | None = None
    rdma_speed: BitRate | None = None
    nic_speed: BitRate | None = None

    def __post_init__(self) -> None:
        """Refuse a number that cannot be one of ports."""
        if self.rdma_ports is not None and self.rdma_ports < 0:
            raise ValueError(f"rdma_ports is {self.rdma_ports}; give a number of ports, 0 for none")


class HostClass(Expected, frozen=True, kw_only=True):
    """What is expected of hosts of one kind.

    Attributes:
        hosts: Their names, as shell patterns.
    """

    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse a class without hosts: it would never be used."""
        super().__post_init__()
        if not self.hosts:
            raise ValueError("hosts is empty; name at least one host or pattern, such as 'gpu-*'")
        check_patterns("hosts", self.hosts)


class Expect(Expected, frozen=True, kw_only=True):
    """What is expected of hosts: one file serves a fleet of several kinds of them.

    Attributes:
        classes: Kinds of hosts of which something else is expected; the first that a host's name fits counts.
    """

    classes: tuple[HostClass, ...] = ()

    def of(self, host: str) -> Expected:
        """Give what is expected of a host: what its class says, and for each key that it leaves out what stands above.

        Args:
            host: Its name, as in the label `host`.
        """
        place = self._class_of(host)
        special = Expected() if place is None else self.classes[place]
        names = Expected.__struct_fields__
        return Expected(
            **{
                name: getattr(self, name) if getattr(special, name) is None else getattr(special, name)
                for name in names
            }
        )

    def place_of(self, name: str, host: str) -> tuple[str | int, ...]:
        """Give the keys and indexes that lead from here to what says what is expected of a host.

        Args:
            name: A key such as `rdma_ports`.
            host: The host's name.
        """
        place = self._class_of(host)
        own = place is not None and getattr(self.classes[place], name) is not None
        return ("classes", place, name) if place is not None and own else (name,)

    def _class_of(self, host: str) -> int | None:
        fits = (
            place for place, one in enumerate(self.classes) if any(fnmatchcase(host, pattern) for pattern in one.hosts)
        )
        return next(fits, None)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration: what is not in the file has its default.

    Attributes:
        host: Name of this host; None for the default.
        expect: What ports and links should be.
        sources: Options of each source by its name.
        jobs: What is known of training jobs, by the pattern of their names; the first that fits counts.
        measured: What collectives reached in runs of a benchmark: bytes per second by kind and size, for each run.
    """

    host: str | None
    expect: Expect
    sources: Mapping[str, Any]
    jobs: Mapping[str, JobPlan] = field(default_factory=dict)
    measured: Sequence[Mapping[tuple[str, int], float]] = ()


class Section(Protocol):
    """What this module needs to know of a source's definition."""

    @property
    def name(self) -> str:
        """Name of the source."""

    @property
    def section(self) -> str:
        """Its key at the top of the file, or empty for one under `sources:`."""

    @property
    def options(self) -> type[msgspec.Struct]:
        """Type of its part."""


def load(path: Path, sections: Sequence[Section]) -> Config:
    """Read a configuration file.

    Raises:
        ConfigError: It cannot be read or used.
    """
    return _made(yaml_reader.read(path, _root_type(sections), "--config.file and its permissions"), sections)


def default(sections: Sequence[Section]) -> Config:
    """Give the configuration of an empty file."""
    return parse(b"", "", sections)


def parse(raw: bytes, name: str, sections: Sequence[Section]) -> Config:
    """Read a configuration from bytes; `name` is that of the file, for errors.

    Raises:
        ConfigError: It cannot be used.
    """
    return _made(yaml_reader.parse(raw, name, _root_type(sections)), sections)


def _made(parsed: Any, sections: Sequence[Section]) -> Config:  # noqa: ANN401  # of the type that the sections make
    options = {
        one.name: getattr(parsed, one.section) if one.section else getattr(parsed.sources, one.name) for one in sections
    }
    return Config(parsed.host, parsed.expect, options, parsed.jobs)


def _root_type(sections: Sequence[Section]) -> type[msgspec.Struct]:
    """Put the type of the whole file together from the parts that the sources bring."""
    under = [(one.name, one.options, one.options()) for one in sections if not one.section]
    sources = msgspec.defstruct("Sources", under, frozen=True, forbid_unknown_fields=True)
    beside = [(one.section, one.options, one.options()) for one in sections if one.section]
    return msgspec.defstruct(
        "Configuration",
        [
            ("host", str | None, None),
            ("sources", sources, sources()),
            ("expect", Expect, Expect()),
            ("jobs", dict[str, JobPlan], {}),
            *beside,
        ],
        frozen=True,
        forbid_unknown_fields=True,
    )
