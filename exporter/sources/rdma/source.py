"""RDMA ports of this host, from the files of /sys/class/infiniband and from RDMA netlink.

Each counter file is one firmware command on real hardware, so descriptors are kept, devices are read in turn in one
thread, and what is excluded is never opened.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Reading,
    Source,
)
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.counter_file import InUse
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    SCAN,
    PortOptions,
    Seat,
    not_listed,
    number_rails,
)
from exporter.sources.rdma.counters import Wanted
from exporter.sources.rdma.device import Device, DeviceReading
from exporter.sources.rdma.metrics import (
    DEVICE,
    QUEUE_PAIRS,
    RAW,
    SCHEMA,
)
from exporter.sources.rdma.ports import rdma_reader
from exporter.sources.rdma.queue_pairs import QueuePairsWatch
from exporter.sources.rdma.tables import RdmaTables

RESCAN = 60.0
"""Seconds after which folders are listed again and facts that change rarely are read again."""

CALL_DEADLINE = 2.0
"""Seconds that one device may take."""


class RdmaOptions(PortOptions, frozen=True):
    """Configuration of `sources.rdma`; include and exclude are names of devices.

    Attributes:
        raw: Names of drivers' counters that have no metric here, as shell patterns, to be exported as they are.
        queue_pairs: Whether to count the queue pairs of each program, once a minute.
    """

    raw: tuple[str, ...] = ()
    queue_pairs: bool = False


class RdmaSource:
    """Reads the RDMA ports of this host."""

    name = "rdma"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: RdmaOptions, host: Host, open_reader: Callable[[], RdmaReader]) -> None:
        """Take what is wanted.

        Args:
            options: The configuration.
            host: The roots of the file systems.
            open_reader: Opens what answers that is not a file.
        """
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._host = host
        self._class = host.sysfs / "class" / "infiniband"
        self._serial = BlockingCalls("rdma", CALL_DEADLINE, self._class)
        self._of_port = Wanted(options.raw, options.unread(SCHEMA))
        self._of_device = Wanted(unread=options.unread(DEVICE))
        self._reader = open_reader()
        self._watch = QueuePairsWatch(self.interval, self._class, open_reader) if options.queue_pairs else None
        self._devices: dict[str, Device] = {}
        self._in_use = InUse()
        self._scanned = float("-inf")
        self._scanned_any = False
        self._listed: list[str] = []
        self._wanted: list[str] = []
        self._tables = RdmaTables()

    async def applies(self) -> bool:
        """Tell whether there is any RDMA device that is not excluded."""
        found = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        return not isinstance(found, list) or bool(found)  # what cannot be listed is for the read to say

    async def read(self) -> Reading:
        """Read every port; devices fail alone."""
        rescan = monotonic() - self._scanned >= RESCAN
        if rescan:
            self._scanned = monotonic()
        hung = {name for name in self._serial.hanging if "/" not in name}  # others' calls to this place are no devices
        calls: dict[str, Callable[[], object]] = {
            name: partial(self._read_device, name, rescan) for name in self._devices.keys() | hung
        }
        # The list and what is known already are one batch: a second is made only for devices that are new.
        results = await self._serial.run([(SCAN, self._names), *sorted(calls.items())])
        names = results.pop(SCAN)
        if not isinstance(names, list):
            raise not_listed(names)
        fresh = [name for name in names if name not in calls]
        if fresh:
            results |= await self._serial.run([(name, partial(self._read_device, name, rescan)) for name in fresh])
        for gone in self._devices.keys() - set(names) - self._serial.hanging:
            self._devices.pop(gone).close()
        readings, failures = self._sorted_out(names, results)
        if self._scanned_any:
            self._scanned_any = False
            self._number_rails()
        tables = self._tables.make(readings)
        if self._watch is not None:
            self._watch.begin({name: device.node_guid for name, device in sorted(self._devices.items())})
            failures += self._watch.failures()
            counted = self._watch.table()
            tables += [] if counted is None else [counted]
        return Reading(tables, failures)

    async def close(self) -> None:
        """Close all files; those that a hung call may be using are closed when it comes back."""
        if self._watch is not None:
            self._watch.close()
        self._serial.close()
        for name in self._in_use.end(tuple(self._devices)):
            self._close_device(name)
        self._reader.close()

    def _sorted_out(
        self, names: Sequence[str], results: Mapping[str, object]
    ) -> tuple[list[DeviceReading], list[Failure]]:
        """Tell what was read from what failed."""
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
        """List the devices that may be touched."""
        try:
            names = sorted(os.listdir(self._class))  # noqa: PTH208  # at each poll; Path objects cost ten times this
        except FileNotFoundError:
            return []
        if names != self._listed:
            self._listed = names
            self._wanted = [name for name in names if self._options.matches(name)]
        return self._wanted

    def _read_device(self, name: str, rescan: bool) -> DeviceReading:
        """Read all ports of one device; runs in the thread."""
        with self._in_use.use(name, self._close_device):
            return self._device(name, rescan).read()

    def _device(self, name: str, rescan: bool) -> Device:
        """Give a device, made and looked at anew where that is due; runs in the thread."""
        before = device = self._devices.get(name)
        epoch = os.stat(f"{self._class}/{name}").st_ino  # noqa: PTH116  # follows the link: another inode is another device
        if device is None or device.epoch != epoch:
            sysfs, reader = self._host.sysfs, self._reader
            device = Device(name, epoch, sysfs, reader, of_port=self._of_port, of_device=self._of_device)
        if device is not before or rescan or not device.is_complete:
            device.scan()
            self._scanned_any = True
            self._devices[name] = device
            if before is not None and before is not device:
                before.close()
        return device

    def _close_device(self, name: str) -> None:
        device = self._devices.pop(name, None)
        if device is not None:
            device.close()

    def _number_rails(self) -> None:
        """Number the ports of each kind in the order of their PCI addresses, which completes what is told of them."""
        # A copy: a call that hung may come back meanwhile and add its device.
        ports = [port for device in tuple(self._devices.values()) for port in device.ports]
        seats = [Seat(port.kind, port.facts["pci"], port.device, port.number) for port in ports]
        for port, rail in zip(ports, number_rails(seats, self._options.rails), strict=True):
            facts = {**port.facts, "rail": rail, "host": self._host.name}
            port.info = tuple(facts[name] for name in SCHEMA.metrics["info"].extra)


def _build(options: RdmaOptions, host: Host) -> list[Source]:
    return [RdmaSource(options, host, rdma_reader(host))]


DEFINITION = Definition("rdma", RdmaOptions, (SCHEMA, DEVICE, RAW, QUEUE_PAIRS), _build)
