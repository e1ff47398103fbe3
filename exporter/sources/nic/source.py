"""Network devices of this host: links and what the kernel saw by rtnetlink, what the hardware saw by ethtool.

One dump gives the links of all devices, another one how they queue what they send; statistics are asked device by
device, in turn, since the calls take the kernel's network lock and run firmware commands. Only devices that stand for
hardware are asked, and of virtual functions nothing but their links and queues: a read there can block in the
firmware's mailbox while a job runs. A port of InfiniBand is asked through its device for IP how its link, its PCIe and
its module fare; its traffic is the RDMA port's.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
    is_exported,
)
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    PortOptions,
    is_hardware,
    is_infiniband_port,
    list_devices,
    nic_place,
    nic_reader,
)
from exporter.sources.nic.device import UNKNOWN, Device, DeviceReading
from exporter.sources.nic.metrics import (
    PRIORITY,
    QUEUE,
    QUEUED,
    RAW,
    SCHEMA,
)
from exporter.sources.nic.queues import QUESTION, AskingQueues, Queues
from exporter.sources.nic.tables import NicTables

CALL_DEADLINE = 2.0
"""Seconds that the calls into one device may take, or half the interval: one that hangs costs no other its read."""

QUEUES = "/queues"
"""Name of the call that asks how devices queue; no device can be named so."""


class NicOptions(PortOptions, frozen=True):
    """Configuration of `sources.nic`.

    Attributes:
        virtual_functions: Whether statistics of virtual functions are read too.
        raw: Names of drivers' statistics, as shell patterns, that are exported as they are.
        software: Names of software devices, as shell patterns, that are read too, such as the links of pods.
    """

    virtual_functions: bool = False
    raw: tuple[str, ...] = ()
    software: tuple[str, ...] = ()


class NicSource:
    """Reads the network devices of this host."""

    name = "nic"
    target = ""

    def __init__(self, options: NicOptions, host: Host, open_reader: Callable[[], NicReader]) -> None:
        """Take the configuration and how to open what is read; opening waits until the loop runs."""
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = asyncio.Event()
        self.settings = self._options = options
        self._host = host
        self._open = open_reader
        self._reader: NicReader | None = None
        self._serial = BlockingCalls("nic", min(CALL_DEADLINE, self.interval / 2), nic_place(host))
        self._devices: dict[str, Device] = {}
        self._names: frozenset[str] = frozenset()
        self._unread = options.unread(SCHEMA, PRIORITY)
        shown = [is_exported(metric, options.drop, options.keep) for metric in QUEUED]
        self._queues = AskingQueues() if any(shown) else None
        self._tables = NicTables(host.name, options.rails, self._unread)

    async def applies(self) -> bool:
        """Tell whether there is any device to read."""
        return bool(await self._links() or self._left_out())

    async def read(self) -> Reading:
        """Read all devices; they fail alone."""
        links = await self._links()
        failures = self._left_out()
        for gone in self._devices.keys() - links.keys() - self._serial.hanging:
            del self._devices[gone]
            self._running_reader().forget(gone)
        now = monotonic()
        queues, more = await self._read_queues(links.values())
        failures += more
        results = await self._serial.run([(name, partial(self._read_device, link)) for name, link in links.items()])
        readings: dict[str, DeviceReading] = {}
        for name, result in results.items():
            if isinstance(result, DeviceReading):
                readings[name] = result
                failures += result.failures
            else:
                device = self._devices.get(name)
                readings[name] = UNKNOWN if device is None else device.last_known()
                failures.append(failure_of(name, result, name))
        return Reading(self._tables.make(links, readings, now, queues), failures)

    async def close(self) -> None:
        """Stop listening for events and close the sockets."""
        self._serial.close()
        if self._reader is not None:
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().remove_reader(descriptor)
            self._reader.close()
            self._reader = None

    def _running_reader(self) -> NicReader:
        """Open the reader once, and listen for its events."""
        if self._reader is None:
            self._reader = self._open()
            descriptor = self._reader.event_fd()
            if descriptor is not None:
                asyncio.get_running_loop().add_reader(descriptor, self._on_event)
        return self._reader

    def _on_event(self) -> None:
        """Read at once when a link of ours changed, or when events were lost; others' links are no concern of ours."""
        if self._reader is None or self.changed is None:
            return
        for event in self._reader.events():
            if event.link is None or event.link.name in self._names or self._is_ours(event.link):
                self.changed.set()

    async def _links(self) -> dict[str, Link]:
        """Dump the links and keep those that are ours.

        Raises:
            SourceError: The dump failed.
        """
        try:
            reader = self._running_reader()
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        links = await list_devices(self._serial, "links", reader.links, "rtnetlink")
        ours = {link.name: link for link in links if self._is_ours(link)}
        self._names = frozenset(ours)
        return ours

    def _left_out(self) -> list[Failure]:
        """Say which devices are missing among the links, as theirs could not be read."""
        left = self._running_reader().left_out().items()
        return [failure_of(name, error, name) for name, error in left if self._options.matches(name)]

    async def _read_queues(self, links: Collection[Link]) -> tuple[Queues | None, Sequence[Failure]]:
        """Ask how the devices queue, where that is shown; None if it is not known, with the reason where it should be.

        The call goes before those into devices, and like them, one that hangs holds up no other.
        """
        if self._queues is None or not links:
            return None, ()
        call = partial(self._queues.read, self._running_reader(), links)
        found = (await self._serial.run([(QUEUES, call)]))[QUEUES]
        if isinstance(found, Exception):
            return None, (failure_of("", found, QUESTION),)
        return found, found.failures

    def _is_ours(self, link: Link) -> bool:
        """Tell hardware, bonds and what is named from all else, and what is wanted from what is not."""
        named = any(fnmatchcase(link.name, pattern) for pattern in self._options.software)
        ours = named or is_hardware(link) or is_infiniband_port(link) or link.kind == "bond"
        return ours and self._options.matches(link.name)

    def _read_device(self, link: Link) -> DeviceReading:
        """Ask one device; runs in the thread."""
        reader = self._reader
        if reader is None:
            raise OSError(errno.EBADF, "closed")
        device = self._devices.get(link.name)
        if device is None or device.ifindex != link.ifindex:
            options = self._options
            device = self._devices[link.name] = Device(
                link,
                self._host.sysfs,
                virtual_functions=options.virtual_functions,
                raw=options.raw,
                unread=self._unread,
            )
            reader.forget(link.name)
        return device.read(link, reader)


def _build(options: NicOptions, host: Host) -> list[Source]:
    return [NicSource(options, host, nic_reader(host))]


DEFINITION = Definition("nic", NicOptions, (SCHEMA, PRIORITY, QUEUE, RAW), _build)
