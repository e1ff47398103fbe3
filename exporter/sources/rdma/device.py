"""One RDMA device and its ports: what is known of each, the state of its link, and its counters."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.core.table import LabelValues
from exporter.linux.cached_file import COUNTER_SIZE, CachedFile, read_once, read_text
from exporter.linux.infiniband import ACTIVE, IWARP, parse_numbered, port_numbers
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.linux.pci import is_virtual_function, pci_address, pci_function
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.attributes import LinkSpeed, identify_driver
from exporter.sources.rdma.counter_files import (
    LINK_FILES,
    PMA,
    Alternatives,
    DriverCounters,
    counter_alternatives,
)
from exporter.sources.rdma.counters import CounterReader, CounterSelection, NetlinkRead
from exporter.sources.rdma.drivers import DRIVERS, UNKNOWN
from exporter.sources.rdma.ports import select_ports


class PortReading(NamedTuple):
    """Result of one read of a port: state of its link, counters in the order of their plan, and failures."""

    port: "PortReader"
    link: Mapping[str, int | float | None]
    values: list[int | None]
    failures: list[Failure]
    time: float


class DeviceReading(NamedTuple):
    """Result of one read of a device: its ports, the counters of the device as a whole, and failures beside ports'."""

    ports: list[PortReading]
    device: "DeviceReader"
    values: list[int | None]
    failures: list[Failure]
    time: float


class PortReader:
    """Reads one port.

    Attributes:
        device: Name of its device.
        number: Its number in the device.
        epoch: Changes when the device is re-created.
        counters: Its counters.
        attributes: Its attributes, by the labels of the info metric.
        kind: The same for all ports that it can be compared with.
        speed: Speed of its link.
        has_mads: Whether it is a port of an InfiniBand fabric, managed by MADs.
        info: Values of the labels of the info metric; None until the ports of all devices are numbered.
    """

    def __init__(self, device: str, number: int, folder: str, epoch: int, counters: CounterReader) -> None:
        self.device, self.number, self.epoch, self.counters = device, number, epoch, counters
        self.attributes: Mapping[str, str] = {}
        self.kind = ""
        self.speed = LinkSpeed()
        self.has_mads = False
        self.info: LabelValues | None = None
        self._link_files = [CachedFile(f"{folder}/{name}") for name in LINK_FILES]
        self._link_texts: list[bytes] = []
        self._link: Mapping[str, int | float | None] = {}
        self._was_up = False

    def close(self) -> None:
        """Close all files."""
        for file in self._link_files:
            file.close()
        self._link_texts = []
        self.counters.close()

    def set_attributes(self, attributes: Mapping[str, str], kind: str) -> None:
        """Set the attributes found by a scan, and read the link's state from its files again."""
        self.attributes, self.kind = attributes, kind
        self._link_texts = []  # the link's speed depends on them

    def read(self) -> PortReading:
        """Read the link and the counters; blocks. What cannot be read is a failure, and does not affect the rest."""
        failures: list[Failure] = []
        now = monotonic()
        came_up = self._read_link(failures, now)
        values = self.counters.read(now, failures, link_came_up=came_up)
        return PortReading(self, self._link, values, failures, now)

    def _read_link(self, failures: list[Failure], now: float) -> bool:
        """Read the state of the link; return whether it came up."""
        if self._link_texts:
            try:
                if [os.pread(file.descriptor, COUNTER_SIZE, 0) for file in self._link_files] == self._link_texts:
                    return False
            except OSError:
                self._link_texts = []
        before = len(failures)
        # `state` itself is never suspended: its change ends the suspension of the others.
        texts = [self._read_link_file(self._link_files[0], failures, now)]
        up = (parse_numbered(texts[0]) or 0) >= ACTIVE
        came_up, self._was_up = up and not self._was_up, up
        for file in self._link_files[1:]:
            suspended = file.is_suspended(now, link_came_up=came_up)
            texts.append(b"" if suspended else self._read_link_file(file, failures, now))
        self._link_texts = texts if len(failures) == before and b"" not in texts else []
        self._link = self._parse_link(*texts)
        return came_up

    def _read_link_file(self, file: CachedFile, failures: list[Failure], now: float) -> bytes:
        try:
            return file.read(now)
        except OSError as error:
            failures.append(failure_of(self.device, error, file.path))
            return b""

    def _parse_link(self, state: bytes, physical_state: bytes, rate: bytes) -> dict[str, int | float | None]:
        number = parse_numbered(state)
        speed = self.speed.parse(state, rate)
        return {
            "link_up": None if number is None else int(number >= ACTIVE),
            "link_speed_bytes_per_second": None if speed is None else speed.bytes_per_second,
            "link_lanes": None if speed is None else speed.lanes,
            "port_state": number,
            "port_physical_state": parse_numbered(physical_state),
        }


class DeviceReader:
    """Reads one device.

    Args:
        name: Its name.
        epoch: Number of its inode.
        sysfs: Root of sysfs.
        reader: RDMA netlink, or recordings of it.
        port_selection: Which counters of its ports are read.
        device_selection: Which counters of the device as a whole.

    Attributes:
        name: Its name, which can change.
        epoch: Changes when the device is re-created.
        driver: Driver that it is bound to, or the recognised one; empty if neither is known.
        node_guid: 16 hex digits, or empty.
        ports: The ports that are read.
        counters: Counters of the device as a whole; None before the first scan.
        port_alternatives: The ways to read each counter of a port.
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        sysfs: Path,
        reader: RdmaReader,
        *,
        port_selection: CounterSelection,
        device_selection: CounterSelection,
    ) -> None:
        self.name, self.epoch = name, epoch
        self.driver, self.node_guid = "", ""
        self.ports: list[PortReader] = []
        self.counters: CounterReader | None = None
        self._folder = sysfs / "class" / "infiniband" / name
        self._net = sysfs / "class" / "net"
        self._reader = reader
        self._port_selection, self._device_selection = port_selection, device_selection
        self._scan_failures: Sequence[Failure] = ()  # reported until the next scan
        self._recognised_driver = ""
        self.port_alternatives = counter_alternatives(UNKNOWN.port, PMA)
        self._is_plane = self._is_iwarp = False

    @property
    def is_complete(self) -> bool:
        """Whether the last scan found everything, so that the next one can wait."""
        return bool(self.ports) or self._is_plane

    def close(self) -> None:
        """Close all files."""
        for port in self.ports:
            port.close()
        if self.counters is not None:
            self.counters.close()
        self.ports, self.counters = [], None

    def scan(self) -> None:
        """Find the ports and their attributes; the files of known ports stay open.

        Raises:
            OSError: The ports cannot be listed.
        """
        numbers = port_numbers(self._folder)
        selection = select_ports(self._folder, self._net, numbers, self._reader)
        self.node_guid, self._scan_failures = selection.node_guid, selection.failures
        self._is_plane = selection.is_plane
        if self._is_plane:
            self.close()
            return
        hca_type = read_text(self._folder / "hca_type")
        identity = identify_driver(self._folder, numbers)
        self.driver, self._recognised_driver = identity.bound or identity.recognised, identity.recognised
        declared = DRIVERS.get(identity.recognised, UNKNOWN)
        self.port_alternatives = self._alternatives_of_ports(declared)
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
            self._scan_port(number, netdev, shared, selection.netlink_device, before.pop(number, None))
            for number, netdev in selection.netdevs.items()
        ]
        for removed in before.values():
            removed.close()
        alternatives = counter_alternatives(declared.device)
        if self.counters is None or self.counters.alternatives is not alternatives:
            if self.counters is not None:
                self.counters.close()
            self.counters = CounterReader(self.name, str(self._folder), alternatives, self._device_selection)
        self.counters.scan()

    def read(self) -> DeviceReading:
        """Read all ports and counters; blocks. What cannot be read is a failure, and does not affect the rest."""
        now = monotonic()
        failures = list(self._scan_failures)
        ports = [port.read() for port in self.ports]
        values = [] if self.counters is None else self.counters.read(now, failures)
        return DeviceReading(ports, self, values, failures, now)

    def _alternatives_of_ports(self, declared: DriverCounters) -> Alternatives:
        """Return the ways to read each counter of a port, by the type of the device."""
        function = pci_function(self._folder)
        virtual = function is not None and is_virtual_function(function)
        self._is_iwarp = parse_numbered(read_once(self._folder / "node_type") or b"") == IWARP
        return counter_alternatives(declared.port_counters(virtual=virtual, iwarp=self._is_iwarp), PMA)

    def _scan_port(
        self,
        number: int,
        netdev: str,
        shared: Mapping[str, str],
        netlink_device: RdmaDevice | None,
        before: PortReader | None,
    ) -> PortReader:
        """Return the reader of a port, the one from before if its counters are the same, with its attributes set."""
        folder = self._folder / "ports" / str(number)
        alternatives = self.port_alternatives
        port = before
        if port is None or port.counters.alternatives is not alternatives:
            if port is not None:
                port.close()
            counters = CounterReader(self.name, str(folder), alternatives, self._port_selection)
            port = PortReader(self.name, number, str(folder), self.epoch, counters)
        link_layer = read_text(folder / "link_layer")
        mac = read_text(self._net / netdev / "address") if netdev else ""
        kind = " ".join(filter(None, (link_layer, shared["hca_type"] or self.driver, shared["board_id"])))
        port.has_mads = link_layer == "InfiniBand" and not self._is_iwarp  # old kernels show that for iWARP too
        port.set_attributes({**shared, "netdev": netdev, "link_layer": link_layer, "mac": mac}, kind)
        port.speed.configure(self._recognised_driver, link_layer, self._net / netdev if netdev else None)
        read_netlink: NetlinkRead | None = None
        if netlink_device is not None:
            read_netlink = partial(self._reader.statistics, netlink_device.index, number)
        port.counters.scan(read_netlink)
        return port
