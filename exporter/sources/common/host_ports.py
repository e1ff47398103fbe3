"""Shared by the sources of this host's ports: names of calls, selecting hardware ports, numbering rails."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.blocking import Turns
from exporter.core.source import (
    Host,
    Options,
    is_exported,
)
from exporter.core.table import Schema
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import KernelNic, NicReader, ReplayNic
from exporter.linux.pci import pci_sort_key

MIN_TIME_SPREAD = 0.05
"""Seconds between the first and the last row's reading from which each row has its own time: a device hung between."""

SCAN = "/"
"""Name of the call that lists the devices of a place; no device can have this name. All sources of a place use the same
name, since a listing that hangs for one of them hangs for all."""

LINK_SCAN = "/links"
"""Name of the call that lists the network devices by rtnetlink; see SCAN."""

DERIVED_FROM = frozenset({*vocabulary.RATES, vocabulary.SPEED, vocabulary.MAX_SPEED})
"""Endings from which other metrics are derived: they are read even if they are details that are not exported."""

_ARPHRD_INFINIBAND = 32

_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")


class PortOptions(Options, frozen=True):
    """Configuration of a source of ports; include and exclude are names of devices.

    Attributes:
        rails: Rail of each device, for nodes whose rails do not follow the order of the PCI addresses.
    """

    rails: dict[str, str] = {}  # noqa: RUF012  # msgspec copies mutable defaults

    def unread_endings(self, *schemas: Schema) -> frozenset[str]:
        """Return the endings of details that are not exported, so that nothing has to be read for them.

        Metrics that are not details are read even if they are dropped, since others are derived from them.
        """
        return frozenset(
            ending
            for schema in schemas
            for ending, metric in schema.metrics.items()
            if metric.detail and ending not in DERIVED_FROM and not is_exported(metric, self.drop, self.keep)
        )


def nic_turns(host: Host) -> Turns:
    """Return the turns of all calls into network devices, which must not overlap, even of different sources."""
    return host.hardware.turns(("nic", host.nic_replay))


def nic_reader(host: Host) -> Callable[[], NicReader]:
    """Return a function that opens the reader of network devices: of the kernel, or of recordings."""
    return KernelNic if host.nic_replay is None else partial(ReplayNic, host.nic_replay)


def is_hardware(link: NetworkLink) -> bool:
    """Return whether a network device is hardware, or a function of it, and not virtual or a representor.

    IP over InfiniBand is not, though its parent is the card: see `is_infiniband_port`.
    """
    of_card = bool(link.parent_dev_name) and not link.kind and not _is_over_infiniband(link)
    return of_card and not is_representor(link.phys_port_name or "")


def is_infiniband_port(link: NetworkLink) -> bool:
    """Return whether a network device is IP over an InfiniBand port, and not over one of its partitions."""
    return _is_over_infiniband(link) and bool(link.parent_dev_name) and link.lower is None


def _is_over_infiniband(link: NetworkLink) -> bool:
    """Return whether a network device is IP over InfiniBand; some out-of-tree drivers do not set its kind."""
    return link.kind == "ipoib" or (not link.kind and link.hardware == _ARPHRD_INFINIBAND)


def is_representor(phys_port_name: str) -> bool:
    """Return whether a phys_port_name is that of a representor of a virtual function or subfunction."""
    return _REPRESENTOR.fullmatch(phys_port_name) is not None


class PortPosition(NamedTuple):
    """Position of a port: `kind` is the same for ports that are numbered together, `number` is that in its device."""

    kind: str | None
    pci: str
    device: str
    number: int = 0


class RailNumbers:
    """Numbers the ports of a host as rails, so that a port that disappears does not change the rails of others.

    A port that fell off its bus, or was moved into a container, keeps its number until it is back, or until another
    one has its place. What was gone before the start is not known: then `rails` can be configured.
    """

    def __init__(self, configured: Mapping[str, str]) -> None:
        """Args: configured: Rails by device, which take precedence."""
        self._configured = configured
        self._gone: list[PortPosition] = []
        self._present: list[PortPosition] = []

    def of(self, ports: Sequence[PortPosition]) -> list[str]:
        """Return the rails of all ports that are present."""
        places = {(port.pci, port.number) for port in ports}
        before = [*self._gone, *self._present]
        self._gone = [port for port in before if port.pci and (port.pci, port.number) not in places][:MAX_GONE]
        self._present = list(ports)
        return number_rails([*ports, *self._gone], self._configured)[: len(ports)]


MAX_GONE = 256
"""Ports that are gone and keep their numbers: more than a host has."""


def number_rails(ports: Sequence[PortPosition], configured: Mapping[str, str]) -> list[str]:
    """Return the rail of each port.

    Args:
        ports: The ports.
        configured: Rails by device, which take precedence.

    Returns:
        The index of each port among those of its kind in the order of their PCI addresses, from 0; empty for a port
        without a kind.
    """
    rails = [""] * len(ports)
    counted: Counter[str] = Counter()
    order = sorted(
        range(len(ports)),
        key=lambda index: (pci_sort_key(ports[index].pci, ports[index].device), ports[index].number),
    )
    for index in order:
        port = ports[index]
        if port.kind is not None:
            rails[index] = str(counted[port.kind])
            counted[port.kind] += 1
        rails[index] = configured.get(port.device, rails[index])
    return rails


def row_times(time: float, times: Sequence[float]) -> Sequence[float] | None:
    """Return the time of each row's reading if some are much later than the table's `time`; else None."""
    return times if max(times) - time > MIN_TIME_SPREAD else None
