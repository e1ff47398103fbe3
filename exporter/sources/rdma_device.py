"""One RDMA device: which of its ports are read, what is known of them, and whether netlink knows the device too."""

import errno
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.linux.infiniband import IWARP, parse_guid, parse_numbered, port_numbers
from exporter.linux.kept import read_once, read_text
from exporter.linux.pci import is_virtual_function, pci_address, pci_function
from exporter.linux.rdma import RdmaReader
from exporter.linux.rdma_netlink import RdmaDevice
from exporter.source import Failure
from exporter.sources.failures import failure_of
from exporter.sources.rdma_counters import Ask, Counters, Wanted
from exporter.sources.rdma_drivers import DRIVERS, UNKNOWN
from exporter.sources.rdma_files import PMA, Choices, RdmaNames, choices
from exporter.sources.rdma_netdevs import is_uplink, netdev_by_files
from exporter.sources.rdma_port import Port, PortReading
from exporter.sources.rdma_recognition import recognise

MAX_PORTS = 8
"""Ports of one device that are read. Cards have two; a switched one shows a port for each virtual function too."""

MAX_LISTED = 1024
"""Ports of one device that are looked at to find those."""

PLANE = "smi"
"""Kind of a device whose ports are the planes of another device's port: the traffic of both is the same."""

NO_NETLINK = frozenset({errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT})
"""What the kernel answers that has no RDMA netlink: no failure."""


def same_device(listed: Iterable[RdmaDevice], name: str, node_guid: str) -> RdmaDevice | None:
    """Find a device of sysfs among those of netlink: the same name, and the same GUID.

    The name alone would take a device of this machine for one of a tree that was recorded on another.
    """
    return next((one for one in listed if one.name == name and one.node_guid == node_guid != ""), None)


class DeviceReading(NamedTuple):
    """What one read of a device gave: its ports, what is counted of it as a whole, and what failed beside the ports."""

    ports: list[PortReading]
    device: "Device"
    values: list[int | None]
    failures: list[Failure]
    time: float


class Device:
    """One device.

    Attributes:
        name: Its name, which can change.
        epoch: Changes when the device is made anew.
        driver: What it is bound to, or what it looks like; empty where neither is told.
        node_guid: As `parse_guid` has it.
        ports: Those that are read.
        counters: What is counted of the device as a whole; None before it was scanned.
    """

    def __init__(
        self, name: str, epoch: int, sysfs: Path, reader: RdmaReader, *, of_port: Wanted, of_device: Wanted
    ) -> None:
        """Take where the device is.

        Args:
            name: Its name.
            epoch: Number of its inode.
            sysfs: Root of sysfs.
            reader: Asks the kernel.
            of_port: Which counters of its ports are read.
            of_device: Which of its own.
        """
        self.name, self.epoch = name, epoch
        self.driver, self.node_guid = "", ""
        self.ports: list[Port] = []
        self.counters: Counters | None = None
        self._folder = sysfs / "class" / "infiniband" / name
        self._net = sysfs / "class" / "net"
        self._reader = reader
        self._of_port, self._of_device = of_port, of_device
        self._standing: list[Failure] = []  # what is the matter until the device is scanned again
        self._looks = ""
        self._port_ways = choices(UNKNOWN.port, PMA)
        self._is_plane = False

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to be found by looking again at once."""
        return bool(self.ports) or self._is_plane

    def close(self) -> None:
        """Close all files."""
        for port in self.ports:
            port.close()
        if self.counters is not None:
            self.counters.close()
        self.ports, self.counters = [], None

    def scan(self) -> None:
        """Find the ports and what there is to know of each; files of known ports stay open.

        Raises:
            OSError: The ports cannot be listed.
        """
        numbers = port_numbers(self._folder)
        self._standing = []
        self.node_guid = parse_guid(read_once(self._folder / "node_guid") or b"") or ""
        known = self._by_netlink()
        self._is_plane = known is not None and known.kind == PLANE
        if self._is_plane:
            self.close()
            return
        hca_type = read_text(self._folder / "hca_type")
        found = recognise(self._folder, numbers)
        self.driver, self._looks = found.bound or found.looks, found.looks
        names = DRIVERS.get(found.looks, UNKNOWN)
        self._port_ways = self._ways(names)
        netdevs = self._uplinks(numbers, known)
        shared = {
            "pci": pci_address(self._folder),
            "driver": self.driver,
            "hca_type": hca_type,
            "node_guid": self.node_guid,
            "board_id": read_text(self._folder / "board_id"),
            "firmware": read_text(self._folder / "fw_ver"),
        }
        before = {port.number: port for port in self.ports}
        self.ports = [
            self._port(number, netdev, shared, known, before.pop(number, None)) for number, netdev in netdevs.items()
        ]
        for gone in before.values():
            gone.close()
        ways = choices(names.device)
        if self.counters is None or self.counters.choices is not ways:
            if self.counters is not None:
                self.counters.close()
            self.counters = Counters(self.name, str(self._folder), ways, self._of_device)
        self.counters.find()

    def read(self) -> DeviceReading:
        """Read all; blocks. What cannot be read is said in the reading and costs nothing else."""
        now = monotonic()
        failures = list(self._standing)
        ports = [port.read() for port in self.ports]
        values = [] if self.counters is None else self.counters.read(now, failures)
        return DeviceReading(ports, self, values, failures, now)

    def _by_netlink(self) -> RdmaDevice | None:
        """Find the device among those that the kernel lists; None where it is none of them, or it lists none."""
        try:
            return same_device(self._reader.devices(), self.name, self.node_guid)
        except OSError as error:
            if error.errno not in NO_NETLINK:
                self._standing.append(failure_of(self.name, error, "RDMA netlink"))
            return None

    def _ways(self, names: RdmaNames) -> Choices:
        """Tell how each counter of a port can be read, by what the device is."""
        function = pci_function(self._folder)
        virtual = function is not None and is_virtual_function(function)
        iwarp = parse_numbered(read_once(self._folder / "node_type") or b"") == IWARP
        return choices(names.of_port(virtual=virtual, iwarp=iwarp), PMA)

    def _uplinks(self, numbers: Sequence[int], known: RdmaDevice | None) -> dict[int, str]:
        """Choose the ports to be read; by number, their network devices.

        Where the card is switched, each virtual function has a port too, whose traffic the uplink's port counts.
        """
        several = len(numbers) > 1
        netdevs = {number: self._netdev(number, known, several=several) for number in numbers[:MAX_LISTED]}
        if several:
            netdevs = {number: netdev for number, netdev in netdevs.items() if is_uplink(self._net, netdev)}
        if len(netdevs) > MAX_PORTS or len(numbers) > MAX_LISTED:
            kept = sorted(netdevs, key=lambda number: (not netdevs[number], number))[:MAX_PORTS]
            detail = f"{self._folder}: {len(numbers)} ports; {len(kept)} are read: those of uplinks, then the first"
            self._standing.append(Failure(self.name, "too_many", detail))
            netdevs = {number: netdevs[number] for number in sorted(kept)}
        return netdevs

    def _netdev(self, number: int, known: RdmaDevice | None, *, several: bool) -> str:
        """Name the network device of a port: by the kernel, which tells whether it is in this network namespace.

        The kernel does not name those of InfiniBand ports.
        """
        ethernet = read_text(self._folder / "ports" / str(number) / "link_layer") == "Ethernet"
        if known is not None and ethernet:
            try:
                return self._reader.port(known.index, number).netdev or ""
            except OSError as error:
                self._standing.append(failure_of(self.name, error, f"port {number} by RDMA netlink"))
        return netdev_by_files(self._net, self._folder, number, several=several)

    def _port(
        self,
        number: int,
        netdev: str,
        shared: Mapping[str, str],
        known: RdmaDevice | None,
        before: Port | None,
    ) -> Port:
        """Make a port, or look at it anew."""
        folder = self._folder / "ports" / str(number)
        ways = self._port_ways
        port = before
        if port is None or port.counters.choices is not ways:
            if port is not None:
                port.close()
            counters = Counters(self.name, str(folder), ways, self._of_port)
            port = Port(self.name, number, str(folder), self.epoch, counters)
        link_layer = read_text(folder / "link_layer")
        mac = read_text(self._net / netdev / "address") if netdev else ""
        kind = " ".join(filter(None, (link_layer, shared["hca_type"] or self.driver, shared["board_id"])))
        port.know({**shared, "netdev": netdev, "link_layer": link_layer, "mac": mac}, kind)
        port.speed.know(self._looks, link_layer, self._net / netdev if netdev else None)
        ask: Ask | None = None if known is None else partial(self._reader.statistics, known.index, number)
        port.counters.find(ask)
        return port
