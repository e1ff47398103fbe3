"""Virtual functions of the ports of this host: which port each belongs to, how many there are, and their traffic."""

import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from exporter.core.source import Failure
from exporter.linux.cached_file import read_text
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.netlink.virtual_functions import GET_LINK, parse_virtual_functions, virtual_functions_request
from exporter.linux.pci import bus_device_driver
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import is_hardware, is_infiniband_port

STATISTICS_DRIVERS = frozenset({"mlx5_core", "ice", "i40e", "ixgbe", "ionic"})
"""Drivers of Linux 6.12 with ndo_get_vf_stats; for the others the kernel sends zeros."""

MAX_DIGITS = 5
"""Digits of 65,535, the most functions that PCI Express allows."""

_LINK_NAME = re.compile(r"virtfn(\d{1,5})")


class Function(NamedTuple):
    """A virtual function: the network device of its port, and its number there."""

    port: str
    number: int


class Port(NamedTuple):
    """A port with virtual functions.

    Attributes:
        device: Its network device.
        ifindex: Index of that.
        has_statistics: Whether its driver counts the traffic of its functions.
        enabled: Number of functions.
        limit: Most functions that it can have; None if not known.
    """

    device: str
    ifindex: int
    has_statistics: bool
    enabled: int
    limit: int | None


class Functions(NamedTuple):
    """The ports with virtual functions by network device, and the functions by PCI address."""

    ports: Mapping[str, Port]
    functions: Mapping[str, Function]


FunctionReadings: TypeAlias = tuple[Mapping[Function, Mapping[str, int]], Sequence[Failure]]
"""Counters by function, and the failures of ports."""


def find_functions(sysfs: Path, links: Iterable[NetworkLink]) -> Functions:
    """Find the virtual functions of network devices of the host; blocks.

    Of two ports of one PCI function the first counts.
    """
    ports: dict[str, Port] = {}
    functions: dict[str, Function] = {}
    seen: set[str] = set()
    for link in links:
        address = link.parent_dev_name or ""
        is_port = is_hardware(link) or is_infiniband_port(link)
        if not is_port or link.parent_dev_bus_name != "pci" or address in seen:
            continue
        folder = sysfs / "bus" / "pci" / "devices" / address
        limit = _count(read_text(folder / "sriov_totalvfs"))
        if not limit:
            continue
        seen.add(address)
        enabled = _count(read_text(folder / "sriov_numvfs")) or 0
        has_statistics = bus_device_driver(folder) in STATISTICS_DRIVERS
        ports[link.name] = Port(link.name, link.ifindex, has_statistics, enabled, limit)
        if enabled:
            functions |= {one: Function(link.name, number) for number, one in _functions(folder)}
    return Functions(ports, functions)


def _functions(folder: Path) -> Iterable[tuple[int, str]]:
    """Yield the numbers and PCI addresses of the functions of a port; none if it has gone meanwhile."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        found = _LINK_NAME.fullmatch(entry.name)
        if found:
            yield int(found[1]), entry.resolve().name


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


class FunctionCounters:
    """Reads the counters of virtual functions from their ports, which are in the namespace of the host."""

    def __init__(self, open_socket: Callable[[], NetlinkSocket] = lambda: NetlinkSocket(socket.NETLINK_ROUTE)) -> None:
        """Open nothing yet."""
        self._open_socket = open_socket
        self._socket: NetlinkSocket | None = None

    def read(self, ports: Iterable[Port]) -> FunctionReadings:
        """Read the counters of the functions of these ports; blocks."""
        found: dict[Function, Mapping[str, int]] = {}
        failures = []
        for port in ports:
            try:
                if self._socket is None:
                    self._socket = self._open_socket()
                answer = self._socket.request(GET_LINK, virtual_functions_request(port.ifindex))
                found |= {Function(port.device, one.number): one.stats for one in parse_virtual_functions(answer)}
            except OSError as error:
                failures.append(failure_of(port.device, error, f"{port.device}: virtual functions"))
        return found, failures

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
