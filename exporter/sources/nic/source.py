"""Source `nic`: network devices of this host, by rtnetlink (links, kernel counters) and ethtool (port counters).

One dump returns the links of all devices, another one their queueing disciplines. Statistics are read one device at a
time, since the calls hold the kernel's RTNL lock and run firmware commands. Only hardware devices are read; of virtual
functions only links and queueing disciplines: reading their statistics can block in the firmware's mailbox while a job
runs. Of an InfiniBand port, link, PCIe and module counters are read through its IPoIB device; its traffic is that of
the RDMA port. A card in the namespace of a pod is read there, where the source `pods` finds it.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic
from typing import NamedTuple

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition, ExpectKeys
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
    is_exported,
)
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    LINK_SCAN,
    is_hardware,
    is_infiniband_port,
    nic_reader,
    nic_turns,
)
from exporter.sources.common.moved_devices import MovedDevices
from exporter.sources.nic.device import UNKNOWN, DeviceReading, NicDevice
from exporter.sources.nic.metrics import (
    PRIORITY,
    QUEUE,
    QUEUEING_METRICS,
    RAW,
    SCHEMA,
)
from exporter.sources.nic.moved_cards import MovedCards, is_card
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.queueing_query import QUERY_NAME, QueueingQuery, QueueingReading
from exporter.sources.nic.tables import NicTables

CALL_DEADLINE = 2.0
"""Seconds for the calls to one device, or half the interval if shorter: one that hangs does not delay the others."""

_QUEUEING_CALL = "/queueing"
"""Name of the call that reads queueing disciplines; no device can have this name."""


class _AllReadings(NamedTuple):
    """Links and readings of all devices, the time of the links, and the queueing disciplines with their failures."""

    links: Mapping[str, NetworkLink]
    results: Mapping[str, DeviceReading | Exception]
    time: float
    queueing: QueueingReading | None
    failures: Sequence[Failure]


class NicSource:
    """Reads the network devices of this host."""

    name = "nic"
    target = ""

    def __init__(
        self,
        options: NicOptions,
        host: Host,
        open_reader: Callable[[], NicReader],
        moved: MovedDevices | None = None,
    ) -> None:
        """Open nothing yet: the reader is opened at the first read, when the event loop runs."""
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = asyncio.Event()
        self.settings = self._options = options
        self._host = host
        self._open_reader = open_reader
        self._reader: NicReader | None = None
        self._serial = BlockingCalls("nic", min(CALL_DEADLINE, self.interval / 2), nic_turns(host))
        self._devices: dict[str, NicDevice] = {}
        self._names: frozenset[str] = frozenset()
        self._shared = moved or MovedDevices()
        self._moved = MovedCards(self._shared)
        self._unread = options.unread_endings(SCHEMA, PRIORITY)
        reads_queueing = any(is_exported(metric, options.drop, options.keep) for metric in QUEUEING_METRICS)
        self._queueing = QueueingQuery() if reads_queueing else None
        self._tables = NicTables(host.name, options.rails, self._unread)

    async def applies(self) -> bool:
        """Return whether there is any device to read."""
        return bool(await self._links() or self._unreadable_links())

    async def read(self) -> Reading:
        """Read all devices; the failure of one does not affect the others."""
        links, results, now, queueing, more = await self._read_all()
        if self._moved.have_moved(results):
            links, results, now, queueing, more = await self._read_all()
        failures = [*self._unreadable_links(), *more]
        readings: dict[str, DeviceReading] = {}
        for name, result in results.items():
            if isinstance(result, DeviceReading):
                readings[name] = result
                failures += result.failures
            else:
                device = self._devices.get(name)
                readings[name] = UNKNOWN if device is None else device.last_known()
                failures.append(failure_of(name, result, name))
        return Reading(self._tables.make(links, readings, now, queueing, self._moved.epochs), failures)

    async def _read_all(self) -> _AllReadings:
        """Read the links and the devices once."""
        links = await self._moved.complete(self._links, self._is_selected, self._is_virtual)
        for gone in self._devices.keys() - links.keys() - self._serial.hanging:
            del self._devices[gone]
            self._opened_reader().forget(gone)
        now = monotonic()
        queueing, failures = await self._read_queueing(links.values())
        results = await self._serial.run([(name, partial(self._read_device, link)) for name, link in links.items()])
        return _AllReadings(links, results, now, queueing, failures)

    async def close(self) -> None:
        """Stop receiving events and close the sockets."""
        self._serial.close()
        if self._reader is not None:
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().remove_reader(descriptor)
            self._reader.close()
            self._reader = None

    def _opened_reader(self) -> NicReader:
        """Return the reader; the first call opens it and registers for its events."""
        if self._reader is None:
            self._reader = self._open_reader()
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().add_reader(descriptor, self._on_event)
        return self._reader

    def _on_event(self) -> None:
        """Request a read when a selected link changed, or when events were dropped."""
        if self._reader is None or self.changed is None:
            return
        for event in self._reader.events():
            if event.link is None or event.link.name in self._names or self._is_selected(event.link):
                self.changed.set()

    async def _links(self) -> dict[str, NetworkLink]:
        """Dump the links and return the selected ones by name.

        Raises:
            SourceError: The dump failed.
        """
        try:
            reader = self._opened_reader()
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        links = await make_call(self._serial, LINK_SCAN, reader.links, "rtnetlink")
        for link in links:
            if is_card(link):
                self._shared.remember(link)
        selected = {link.name: link for link in links if self._is_selected(link)}
        self._names = frozenset(selected)
        return selected

    def _unreadable_links(self) -> list[Failure]:
        """Return a failure for each selected device whose link could not be read."""
        unreadable = self._opened_reader().unreadable_links().items()
        return [failure_of(name, error, name) for name, error in unreadable if self._options.matches(name)]

    async def _read_queueing(self, links: Collection[NetworkLink]) -> tuple[QueueingReading | None, Sequence[Failure]]:
        """Read the queueing disciplines if they are exported; None if not, or if that failed, with the failure.

        The call precedes those to devices; like them, one that hangs does not delay the others.
        """
        if self._queueing is None or not links:
            return None, ()
        call = partial(self._queueing.read, self._opened_reader(), links)
        result = (await self._serial.run([(_QUEUEING_CALL, call)]))[_QUEUEING_CALL]
        if isinstance(result, Exception):
            return None, (failure_of("", result, QUERY_NAME),)
        return result, result.failures

    def _is_selected(self, link: NetworkLink) -> bool:
        """Return whether a device is read: hardware, bonds and configured software devices, unless excluded."""
        is_configured = any(fnmatchcase(link.name, pattern) for pattern in self._options.software)
        is_read = is_configured or is_hardware(link) or is_infiniband_port(link) or link.kind == "bond"
        return is_read and self._options.matches(link.name)

    def _read_device(self, link: NetworkLink) -> DeviceReading:
        """Read one device; runs in the worker thread."""
        reader = self._reader
        if reader is None:
            raise OSError(errno.EBADF, "closed")
        place = self._moved.devices.get(link.name)
        if place is not None:
            with place.use() as there:
                return self._device(link, there).read(link, there, place.link.name)
        return self._device(link, reader).read(link, reader)

    def _device(self, link: NetworkLink, reader: NicReader) -> NicDevice:
        """Return the device of a link: the one of the last read unless it was made again."""
        epoch = self._moved.epochs.get(link.name, link.ifindex)
        device = self._devices.get(link.name)
        if device is None or device.epoch != epoch:
            options = self._options
            device = self._devices[link.name] = NicDevice(
                link,
                self._host.sysfs,
                epoch,
                virtual_functions=options.virtual_functions,
                raw=options.raw,
                unread=self._unread,
            )
            reader.forget(link.name)
        return device

    def _is_virtual(self, name: str) -> bool:
        device = self._devices.get(name)
        return device is not None and device.is_virtual


def _build(options: NicOptions, context: Context) -> list[Source]:
    return [NicSource(options, context.host, nic_reader(context.host), context.shared.get(MovedDevices))]


DEFINITION = Definition(
    "nic",
    NicOptions,
    (SCHEMA, PRIORITY, QUEUE, RAW),
    _build,
    expect=ExpectKeys(speed="nic_speed", carrier_speed="rdma_speed"),
)
