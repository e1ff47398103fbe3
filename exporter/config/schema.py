"""Types of the configuration file, and its loading. Every error names the place, the value and the remedy.

Each source brings the type of its own part, so this module knows no source. Nothing is guessed: an unknown key is an
error, because a misspelled key that is ignored is a check that silently does not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from exporter.config import yaml_reader
from exporter.config.errors import check_pattern, check_patterns
from exporter.config.jobs import JobPlan
from exporter.config.units import BitRate

MIN_MTU, MAX_MTU = 68, 65535
"""Bytes of the smallest and largest MTU of IPv4 (RFC 791)."""

PRIORITIES = 8
"""Priorities of IEEE 802.1Q."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is expected of a host; None where nothing is.

    Attributes:
        rdma_ports: Number of RDMA ports that should be up and not slower than expected.
        rdma_speed: Speed of each RDMA port.
        nic_speed: Speed of each NIC.
        gpus: Number of GPUs on the PCI bus.
        mtu: MTU in bytes of network devices that carry RDMA.
        pfc: Priorities with priority flow control on network devices that carry RDMA.
        trust: What these classify packets by.
        firmware: Version of the firmware by board of RDMA devices; both are shell patterns.
        kernel: Release of the kernel, as a shell pattern.
        nvidia_driver: Version of NVIDIA's driver, as a shell pattern.
    """

    rdma_ports: int | None = None
    rdma_speed: BitRate | None = None
    nic_speed: BitRate | None = None
    gpus: int | None = None
    mtu: int | None = None
    pfc: tuple[int, ...] | None = None
    trust: Literal["dscp", "pcp"] | None = None
    firmware: dict[str, str] | None = None
    kernel: str | None = None
    nvidia_driver: str | None = None

    def __post_init__(self) -> None:
        """Reject numbers that no host can have, and patterns that match nothing."""
        if self.rdma_ports is not None and self.rdma_ports < 0:
            raise ValueError(f"rdma_ports is {self.rdma_ports}; give a number of ports, 0 for none")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus}; give a number of GPUs, 0 for none")
        if self.mtu is not None and not MIN_MTU <= self.mtu <= MAX_MTU:
            raise ValueError(f"mtu is {self.mtu}; give {MIN_MTU} to {MAX_MTU} bytes")
        for priority in self.pfc or ():
            if not 0 <= priority < PRIORITIES:
                raise ValueError(f"pfc has {priority}; give priorities from 0 to {PRIORITIES - 1}")
        for key, pattern in (("kernel", self.kernel), ("nvidia_driver", self.nvidia_driver)):
            check_pattern([key], pattern or "")
        for board, version in (self.firmware or {}).items():
            check_pattern(["firmware"], board)
            check_pattern(["firmware", board], version)


class HostClass(Expected, frozen=True, kw_only=True):
    """What is expected of one class of hosts.

    Attributes:
        hosts: Names of the hosts, as shell patterns.
    """

    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject a class without hosts, which would never be used."""
        super().__post_init__()
        if not self.hosts:
            raise ValueError("hosts is empty; name at least one host or pattern, such as 'gpu-*'")
        check_patterns("hosts", self.hosts)


class Expect(Expected, frozen=True, kw_only=True):
    """What is expected, by class of host: one file serves a fleet of several kinds of hosts.

    Attributes:
        classes: Classes with other expectations; the first whose patterns match the name of the host applies.
        bandwidth_share: Share of the speed of its links that large collectives of a job reach.
    """

    classes: tuple[HostClass, ...] = ()
    bandwidth_share: float = 0.8

    def __post_init__(self) -> None:
        """Reject a share that is none."""
        super().__post_init__()
        if not 0 < self.bandwidth_share <= 1:
            raise ValueError(f"bandwidth_share is {self.bandwidth_share:g}; give a share above 0, up to 1, such as 0.8")

    def for_host(self, host: str) -> Expected:
        """Return the expectations of a host: those of its class, completed by the general ones.

        Args:
            host: Name of the host, as in the label `host`.
        """
        index = self._class_index(host)
        own = Expected() if index is None else self.classes[index]
        names = Expected.__struct_fields__
        return Expected(
            **{name: getattr(self, name) if getattr(own, name) is None else getattr(own, name) for name in names}
        )

    def path_of(self, name: str, host: str) -> tuple[str | int, ...]:
        """Return the path, relative to this object, of the value that applies to a host; for errors.

        Args:
            name: A key such as `rdma_ports`.
            host: Name of the host.
        """
        index = self._class_index(host)
        if index is None or getattr(self.classes[index], name) is None:
            return (name,)
        return ("classes", index, name)

    def _class_index(self, host: str) -> int | None:
        matching = (
            index for index, one in enumerate(self.classes) if any(fnmatchcase(host, pattern) for pattern in one.hosts)
        )
        return next(matching, None)


@dataclass(frozen=True, slots=True)
class Config:
    """A loaded configuration; keys that the file lacks have their defaults.

    Attributes:
        host: Name of this host; None for the default.
        expect: What is expected of hosts.
        sources: Options of each source by its name.
        jobs: Plans of training jobs by pattern of their names; the first that matches applies.
        measured: Results of benchmark runs: for each run the bus bandwidth in bytes per second by kind and size.
    """

    host: str | None
    expect: Expect
    sources: Mapping[str, Any]
    jobs: Mapping[str, JobPlan] = field(default_factory=dict)
    measured: Sequence[Mapping[tuple[str, int], float]] = ()


class Section(Protocol):
    """What this module needs of the definition of a source."""

    @property
    def name(self) -> str:
        """Name of the source."""

    @property
    def section(self) -> str:
        """Its top-level key in the file; empty for a source under `sources:`."""

    @property
    def options(self) -> type[msgspec.Struct]:
        """Type of its part of the configuration."""


def load(path: Path, sections: Sequence[Section]) -> Config:
    """Load a configuration file.

    Raises:
        ConfigError: The file cannot be read, or its content is invalid.
    """
    return _config_of(yaml_reader.read(path, _root_type(sections), "--config.file and its permissions"), sections)


def default(sections: Sequence[Section]) -> Config:
    """Return the configuration of an empty file."""
    return parse(b"", "", sections)


def parse(raw: bytes, name: str, sections: Sequence[Section]) -> Config:
    """Parse a configuration; `name` is the name of the file in errors.

    Raises:
        ConfigError: The content is invalid.
    """
    return _config_of(yaml_reader.parse(raw, name, _root_type(sections)), sections)


def _config_of(parsed: Any, sections: Sequence[Section]) -> Config:  # noqa: ANN401  # of the type assembled from the sections
    options = {
        one.name: getattr(parsed, one.section) if one.section else getattr(parsed.sources, one.name) for one in sections
    }
    return Config(parsed.host, parsed.expect, options, parsed.jobs)


def _root_type(sections: Sequence[Section]) -> type[msgspec.Struct]:
    """Return the type of the whole file, assembled from the parts of the sources."""
    under_sources = [(one.name, one.options, one.options()) for one in sections if not one.section]
    sources = msgspec.defstruct("Sources", under_sources, frozen=True, forbid_unknown_fields=True)
    top_level = [(one.section, one.options, one.options()) for one in sections if one.section]
    return msgspec.defstruct(
        "Configuration",
        [
            ("host", str | None, None),
            ("sources", sources, sources()),
            ("expect", Expect, Expect()),
            ("jobs", dict[str, JobPlan], {}),
            *top_level,
        ],
        frozen=True,
        forbid_unknown_fields=True,
    )
