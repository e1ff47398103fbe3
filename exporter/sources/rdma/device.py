"""One RDMA device: the ports that are read, what is known of each, and what is counted of the device as a whole."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.cached_file import read_once, read_text
from exporter.linux.infiniband import IWARP, parse_numbered, port_numbers
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.linux.pci import is_virtual_function, pci_address, pci_function
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.rdma.counters import Ask, Counters, Wanted
from exporter.sources.rdma.drivers import DRIVERS, UNKNOWN
from exporter.sources.rdma.files import (
    PMA,
    Choices,
    RdmaNames,
    choices,
)
from exporter.sources.rdma.port import Port, PortReading
from exporter.sources.rdma.ports import choose
from exporter.sources.rdma.recognition import recognise


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
        self._standing: Sequence[Failure] = ()  # what is the matter until the device is scanned again
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
        chosen = choose(self._folder, self._net, numbers, self._reader)
        self.node_guid, known, self._standing = chosen.node_guid, chosen.known, chosen.failures
        self._is_plane = chosen.is_plane
        if self._is_plane:
            self.close()
            return
        hca_type = read_text(self._folder / "hca_type")
        found = recognise(self._folder, numbers)
        self.driver, self._looks = found.bound or found.looks, found.looks
        names = DRIVERS.get(found.looks, UNKNOWN)
        self._port_ways = self._ways(names)
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
            self._port(number, netdev, shared, known, before.pop(number, None))
            for number, netdev in chosen.netdevs.items()
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

    def _ways(self, names: RdmaNames) -> Choices:
        """Tell how each counter of a port can be read, by what the device is."""
        function = pci_function(self._folder)
        virtual = function is not None and is_virtual_function(function)
        iwarp = parse_numbered(read_once(self._folder / "node_type") or b"") == IWARP
        return choices(names.of_port(virtual=virtual, iwarp=iwarp), PMA)

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
