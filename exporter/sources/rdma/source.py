"""RDMA ports of this host, from the files of /sys/class/infiniband and from RDMA netlink.

Each counter file is one firmware command on real hardware, so descriptors stay open, devices are read one after the
other in one thread, and excluded devices are never opened.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition, ExpectKeys
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
)
from exporter.core.table import Table
from exporter.linux.character_devices import CharacterDevices, is_listed, read_character_devices
from exporter.linux.infiniband import MAX_DEVICES, limit_devices
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.blocking_call import call_error
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    SCAN,
    PortPosition,
    RailNumbers,
)
from exporter.sources.common.in_use import InUse
from exporter.sources.common.moved_devices import MovedDevices
from exporter.sources.rdma.counters import CounterSelection
from exporter.sources.rdma.device import DeviceReader, DeviceReading
from exporter.sources.rdma.metrics import (
    CHARACTER_DEVICES,
    DEVICE,
    QUEUE_PAIRS,
    RAW,
    SCHEMA,
)
from exporter.sources.rdma.moved_devices import MovedRdma
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.ports import rdma_reader
from exporter.sources.rdma.queue_pairs import QueuePairPoller
from exporter.sources.rdma.tables import RdmaTables

RESCAN_SECONDS = 60.0
"""Seconds after which folders are listed again, and attributes that rarely change are read again."""

CHARACTER_DEVICES_SCAN = "/character devices"
"""Name of the call that lists the character devices; see SCAN."""

CALL_DEADLINE = 2.0
"""Seconds that one device may take."""


class RdmaSource:
    """Reads the RDMA ports of this host.

    Args:
        options: The configuration.
        host: The roots of the file systems.
        open_reader: Opens RDMA netlink, or recordings of it.
        moved: Finds devices in namespaces of pods.
    """

    name = "rdma"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(
        self,
        options: RdmaOptions,
        host: Host,
        open_reader: Callable[[], RdmaReader],
        moved: MovedDevices | None = None,
    ) -> None:
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._class = host.sysfs / "class" / "infiniband"
        turns = host.hardware.turns(self._class)
        self._serial = BlockingCalls("rdma", CALL_DEADLINE, turns)
        self._port_selection = CounterSelection(options.raw, options.unread_endings(SCHEMA))
        self._device_selection = CounterSelection(unread=options.unread_endings(DEVICE))
        self._reader = open_reader()
        self._queue_pairs = QueuePairPoller(self.interval, turns, open_reader) if options.queue_pairs else None
        self._devices: dict[str, DeviceReader] = {}
        self._moved = MovedRdma(moved or MovedDevices(), self._port_selection)
        self._rails = RailNumbers(options.rails)
        self._in_use = InUse()
        self._last_scan = float("-inf")
        self._has_scanned = False
        self._character_devices: CharacterDevices | None = None
        self._listed: list[str] = []
        self._selected: list[str] = []
        self._left_out = 0
        self._tables = RdmaTables()

    async def applies(self) -> bool:
        """Return whether there is an RDMA device that is not excluded."""
        found = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        # An error of the listing is reported by `read`.
        return not isinstance(found, list) or bool(found) or await self._moved.are_there()

    async def read(self) -> Reading:
        """Read every port; a device that fails does not affect others."""
        rescan = monotonic() - self._last_scan >= RESCAN_SECONDS
        if rescan:
            self._last_scan = monotonic()
        hung = {
            name for name in self._serial.hanging if "/" not in name
        }  # other sources' calls have a slash in their name
        calls: dict[str, Callable[[], object]] = {
            name: partial(self._read_device, name, rescan) for name in self._devices.keys() | hung
        }
        # The listing and the known devices are one batch; a second one is needed for new devices only.
        listing: list[tuple[str, Callable[[], object]]] = [(CHARACTER_DEVICES_SCAN, self._list_character_devices)]
        results = await self._serial.run([(SCAN, self._names), *(listing if rescan else []), *sorted(calls.items())])
        names = results.pop(SCAN)
        if not isinstance(names, list):
            raise call_error(names)
        new = [name for name in names if name not in calls]
        if new:
            listing = [] if rescan else listing
            new_calls: list[tuple[str, Callable[[], object]]] = [
                (name, partial(self._read_device, name, rescan)) for name in new
            ]
            results |= await self._serial.run([*listing, *new_calls])
        moved = await self._read_moved(names)
        for removed in self._devices.keys() - set(names) - self._serial.hanging:
            self._devices.pop(removed).close()
        readings, failures = self._split_results([*names, *moved], results | moved)
        if self._left_out:
            detail = f"{self._class}: {self._left_out} devices beyond {MAX_DEVICES} are not read; exclude some"
            failures.insert(0, Failure("", "too_many", detail))  # before those of the devices: kinds are bounded
        if self._has_scanned:
            self._has_scanned = False
            self._number_rails()
        tables = self._tables.make(readings)
        tables += self._character_device_tables(readings, results.get(CHARACTER_DEVICES_SCAN), failures)
        if self._queue_pairs is not None:
            self._queue_pairs.poll({name: device.node_guid for name, device in sorted(self._devices.items())})
            failures += self._queue_pairs.take_failures()
            queue_pairs = self._queue_pairs.table()
            tables += [] if queue_pairs is None else [queue_pairs]
        return Reading(tables, failures)

    async def close(self) -> None:
        """Close all files; files of a call that hangs are closed when it returns."""
        if self._queue_pairs is not None:
            self._queue_pairs.close()
        self._serial.close()
        for name in self._in_use.end(tuple(self._devices)):
            self._close_device(name)
        self._reader.close()

    async def _read_moved(self, names: Sequence[str]) -> dict[str, object]:
        """Read the devices in namespaces of pods; the results by name."""
        before = self._moved.devices.keys()
        calls = await self._moved.find(names, self._devices, self._options.matches)
        results = await self._serial.run(sorted(calls.items())) if calls else {}
        self._has_scanned = self._has_scanned or self._moved.devices.keys() != before
        return results

    def _split_results(
        self, names: Sequence[str], results: Mapping[str, object]
    ) -> tuple[list[DeviceReading], list[Failure]]:
        """Return the readings, and the failures of devices and of their ports."""
        readings: list[DeviceReading] = []
        failures: list[Failure] = []
        for name in names:
            result = results[name]
            if isinstance(result, Exception):
                failures.append(failure_of(name, result, self._class / name))
            elif isinstance(result, DeviceReading):
                readings.append(result)
                failures += result.failures
        for reading in readings:
            for port in reading.ports:
                failures += port.failures
        return readings, failures

    def _names(self) -> list[str]:
        """List the selected devices."""
        try:
            names = sorted(os.listdir(self._class))  # noqa: PTH208  # at each poll; Path objects cost ten times this
        except FileNotFoundError:
            return []
        if names != self._listed:
            self._listed = names
            selected = [name for name in names if self._options.matches(name)]
            self._selected = list(limit_devices(selected, self._devices))
            self._left_out = len(selected) - len(self._selected)
        return self._selected

    def _list_character_devices(self) -> CharacterDevices | None:
        """List the character devices; None for a recording without them. Runs in the thread."""
        if self._host.nic_replay is not None and not is_listed(self._host.sysfs):
            return None
        return read_character_devices(self._host.sysfs, self._host.dev)

    def _character_device_tables(
        self, readings: Sequence[DeviceReading], result: object, failures: list[Failure]
    ) -> list[Table]:
        """Return the table of character devices, of this listing or the last one; none after one that failed."""
        if isinstance(result, Exception):
            self._character_devices = None
            failures.append(failure_of("", result, self._host.sysfs / "class"))
        elif isinstance(result, CharacterDevices):
            self._character_devices = result
        known = self._character_devices
        table = self._tables.character_devices(readings, known) if known is not None and readings else None
        return [] if table is None else [table]

    def _read_device(self, name: str, rescan: bool) -> DeviceReading:
        """Read all ports of one device; runs in the thread."""
        with self._in_use.use(name, self._close_device):
            return self._device(name, rescan).read()

    def _device(self, name: str, rescan: bool) -> DeviceReader:
        """Return the reader of a device, created and scanned if that is due; runs in the thread."""
        before = device = self._devices.get(name)
        epoch = os.stat(f"{self._class}/{name}").st_ino  # noqa: PTH116  # follows the link: another inode is another device
        if device is None or device.epoch != epoch:
            device = DeviceReader(
                name,
                epoch,
                self._host.sysfs,
                self._reader,
                port_selection=self._port_selection,
                device_selection=self._device_selection,
            )
        if device is not before or rescan or not device.is_complete:
            device.scan()
            self._has_scanned = True
            self._devices[name] = device
            if before is not None and before is not device:
                before.close()
        return device

    def _close_device(self, name: str) -> None:
        device = self._devices.pop(name, None)
        if device is not None:
            device.close()

    def _number_rails(self) -> None:
        """Number the ports of each kind in the order of their PCI addresses, and set the info labels of all ports."""
        # A copy: a call that hung may return meanwhile and add its device.
        devices = (*tuple(self._devices.values()), *self._moved.devices.values())
        ports = [port for device in devices for port in device.ports]
        positions = [PortPosition(port.kind, port.attributes["pci"], port.device, port.number) for port in ports]
        for port, rail in zip(ports, self._rails.of(positions), strict=True):
            attributes = {**port.attributes, "rail": rail, "host": self._host.name}
            port.info = tuple(attributes[name] for name in SCHEMA.metrics["info"].extra)


def _build(options: RdmaOptions, context: Context) -> list[Source]:
    return [RdmaSource(options, context.host, rdma_reader(context.host), context.shared.get(MovedDevices))]


DEFINITION = Definition(
    "rdma",
    RdmaOptions,
    (SCHEMA, DEVICE, RAW, CHARACTER_DEVICES, QUEUE_PAIRS),
    _build,
    expect=ExpectKeys(speed="rdma_speed", ports="rdma_ports"),
)
