"""RDMA devices that are in the namespace of a pod, in the exclusive mode of namespaces: read by RDMA netlink there.

Their files are in that namespace only. Netlink returns the counters of `hw_counters/` and the state of the link, but
neither the counters of `counters/` nor the speed. What else was known of a device on the host remains.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from exporter.core.source import Failure
from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.infiniband import ACTIVE
from exporter.linux.netlink.rdma import RdmaPort
from exporter.sources.common.failures import failure_of
from exporter.sources.common.moved_devices import MovedDevices, MovedRdmaDevice
from exporter.sources.rdma.counter_files import PMA, counter_alternatives
from exporter.sources.rdma.counters import CounterReader, CounterSelection
from exporter.sources.rdma.device import DeviceReader, PortReader, PortReading
from exporter.sources.rdma.drivers import DRIVERS, UNKNOWN, recognise_driver
from exporter.sources.rdma.metrics import LINK, SCHEMA
from exporter.sources.rdma.ports import MAX_PORTS

NOWHERE = Path("/nowhere")
"""Where the files of such a device are not."""


class MovedPortReader(PortReader):
    """Reads one port by netlink."""

    def __init__(self, number: int, moved: MovedRdmaDevice, epoch: int, counters: CounterReader) -> None:
        super().__init__(moved.device.name, number, str(NOWHERE), epoch, counters)
        self._moved = moved

    def read(self) -> PortReading:
        """Read the link and the counters; blocks. What cannot be read is a failure, and does not affect the rest."""
        failures: list[Failure] = []
        now = monotonic()
        port = RdmaPort()
        try:
            with self._moved.use() as reader:
                port = reader.port(self._moved.device.index, self.number)
        except OSError as error:
            failures.append(failure_of(self.device, error, f"port {self.number} by RDMA netlink"))
        up = None if port.state is None else int(port.state >= ACTIVE)
        state = {"link_up": up, "port_state": port.state, "port_physical_state": port.physical_state}
        values = self.counters.read(now, failures)
        return PortReading(self, {**dict.fromkeys(LINK), **state}, values, failures, now)


class MovedDeviceReader(DeviceReader):
    """Reads one device by netlink. What was known of it on the host remains; else there is what netlink returns."""

    def __init__(self, moved: MovedRdmaDevice, known: DeviceReader | None, selection: CounterSelection) -> None:
        """Find its ports; blocks.

        Raises:
            OSError: It has gone meanwhile.
        """
        device = moved.device
        epoch = -device.index if known is None else known.epoch
        with moved.use() as reader:
            super().__init__(
                device.name, epoch, NOWHERE, reader, port_selection=selection, device_selection=CounterSelection()
            )
        self.index = device.index
        self.node_guid = device.node_guid or ""
        self._identify(moved, known)
        before = {} if known is None else {port.number: port for port in known.ports}
        numbers = sorted(before) or range(1, min(device.ports, MAX_PORTS) + 1)
        self.ports = [self._make_port(number, moved, before.get(number), selection) for number in numbers]

    def _identify(self, moved: MovedRdmaDevice, known: DeviceReader | None) -> None:
        if known is not None:
            self.driver, self.port_alternatives = known.driver, known.port_alternatives
            return
        self.driver = recognise_driver(self.name, "", _statistics(moved, 1).names)
        declared = DRIVERS.get(self.driver, UNKNOWN)
        self.port_alternatives = counter_alternatives(declared.port_counters(virtual=False, iwarp=False), PMA)

    def _make_port(
        self, number: int, moved: MovedRdmaDevice, before: PortReader | None, selection: CounterSelection
    ) -> PortReader:
        counters = CounterReader(self.name, str(NOWHERE), self.port_alternatives, selection)
        counters.scan(partial(_statistics, moved, number), has_files=False)
        port = MovedPortReader(number, moved, self.epoch, counters)
        if before is not None:
            port.set_attributes(before.attributes, before.kind)
            port.has_mads = before.has_mads
        else:
            found = {"driver": self.driver, "node_guid": self.node_guid, "firmware": moved.device.firmware}
            port.set_attributes({**dict.fromkeys(SCHEMA.metrics["info"].extra, ""), **found}, self.driver)
        return port


def _statistics(moved: MovedRdmaDevice, number: int) -> Statistics:
    with moved.use() as reader:
        return reader.statistics(moved.device.index, number)


class MovedRdma:
    """The devices that are in other namespaces.

    Attributes:
        devices: Their readers, by name.
    """

    def __init__(self, shared: MovedDevices, selection: CounterSelection) -> None:
        """Store what finds them, and which counters are read."""
        self.devices: dict[str, MovedDeviceReader] = {}
        self._shared, self._selection = shared, selection

    async def are_there(self) -> bool:
        """Return whether any device is in another namespace."""
        return bool(await self._shared.find_rdma(search=False))

    async def find(
        self, here: Collection[str], known: Mapping[str, DeviceReader], selects: Callable[[str], bool]
    ) -> dict[str, Callable[[], object]]:
        """Return the calls that read the selected devices in other namespaces, by name.

        Args:
            here: Names of the devices of the host.
            known: The devices of the host at the last read: one that has gone is searched for.
            selects: Whether a device is selected, by its name.
        """
        if not self._shared.is_provided:
            self.devices = {}
            return {}
        gone = {name: device for name, device in known.items() if name not in here}
        found = await self._shared.find_rdma(search=bool(gone))
        moved = {one.device.name: one for one in found if one.device.name not in here and selects(one.device.name)}
        self.devices = {name: device for name, device in self.devices.items() if name in moved}
        return {name: partial(self._read, one, gone.get(name)) for name, one in moved.items()}

    def _read(self, moved: MovedRdmaDevice, known: DeviceReader | None) -> object:
        """Read one device; blocks."""
        device = self.devices.get(moved.device.name)
        if device is None or device.index != moved.device.index:
            device = MovedDeviceReader(moved, known or device, self._selection)
            self.devices[moved.device.name] = device
        return device.read()
