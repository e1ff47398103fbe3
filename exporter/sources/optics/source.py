"""Source `optics`: optical modules and cables of this host: temperature, voltage, optical power and bias of each lane.

Modules are read over I2C through the driver, which takes some time and can delay packets, so the source is disabled by
default, reads once a minute at most, and yields to other calls to NICs between two devices. Latched flags, which
reading would clear, are never read. Devices that are down are read too: their module may show the cause. The module of
an InfiniBand port is read through its IPoIB device, where its driver supports that.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
    SourceError,
)
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.optics.module import OpticalModule
from exporter.linux.pci import is_virtual_function
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    LINK_SCAN,
    is_hardware,
    is_infiniband_port,
    nic_reader,
    nic_turns,
)
from exporter.sources.optics.metrics import LANE, MODULE, THRESHOLD
from exporter.sources.optics.module_cage import CageReading, ModuleCage
from exporter.sources.optics.options import OpticsOptions
from exporter.sources.optics.tables import OpticsTables

DEVICE_DEADLINE = 2.0
"""Seconds for the requests to one device."""


class OpticsSource:
    """Reads the modules of this host's network devices."""

    name = "optics"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: OpticsOptions, host: Host, open_reader: Callable[[], NicReader]) -> None:
        """Open nothing yet: the reader is opened at the first read."""
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._net = host.sysfs / "class" / "net"
        self._open_reader = open_reader
        self._reader: NicReader | None = None
        self._serial = BlockingCalls("optics", DEVICE_DEADLINE, nic_turns(host))
        self._cages: dict[str, ModuleCage] = {}
        self._tables = OpticsTables()

    async def applies(self) -> bool:
        """Return whether there is any device to read."""
        return bool(await self._links())

    async def read(self) -> Reading:
        """Read all modules; the failure of one does not affect the others."""
        links = await self._links()
        for gone in self._cages.keys() - {link.name for link in links} - self._serial.hanging:
            del self._cages[gone]
        time = monotonic()
        modules: dict[str, OpticalModule] = {}
        failures = self._unreadable_links()
        for link in links:  # one run per device: other sources' calls are served in between
            result = (await self._serial.run([(link.name, partial(self._read_cage, link))]))[link.name]
            if isinstance(result, CageReading):
                failures += result.failures
                if result.module is not None:
                    modules[link.name] = result.module
            else:
                failures.append(failure_of(link.name, result, link.name))
        return Reading(self._tables.make(modules, time), failures)

    async def close(self) -> None:
        """Close the sockets."""
        self._serial.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _links(self) -> list[NetworkLink]:
        """Dump the links and return those that may have a module.

        Raises:
            SourceError: The dump failed.
        """
        try:
            if self._reader is None:
                self._reader = self._open_reader()
            self._reader.events()  # discarded: unread events would fill the socket
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        return await make_call(self._serial, LINK_SCAN, partial(self._list_ports, self._reader), "rtnetlink")

    def _unreadable_links(self) -> list[Failure]:
        """Return a failure for each selected device whose link could not be read."""
        unreadable = {} if self._reader is None else self._reader.unreadable_links()
        return [failure_of(name, error, name) for name, error in unreadable.items() if self._options.matches(name)]

    def _list_ports(self, reader: NicReader) -> list[NetworkLink]:
        """Return the devices that may have a module; runs in the worker thread."""
        return [link for link in reader.links() if self._may_have_module(link)]

    def _may_have_module(self, link: NetworkLink) -> bool:
        """Return whether a selected device is a hardware port; virtual functions and representors share its module."""
        is_port = link.parent_dev_bus_name == "pci" and (is_hardware(link) or is_infiniband_port(link))
        is_selected = is_port and self._options.matches(link.name)
        return is_selected and not is_virtual_function(self._net / link.name / "device")

    def _read_cage(self, link: NetworkLink) -> CageReading:
        """Read one module; runs in the worker thread."""
        reader = self._reader
        if reader is None:
            return CageReading()  # closed meanwhile
        cage = self._cages.get(link.name)
        if cage is None or cage.ifindex != link.ifindex:
            cage = self._cages[link.name] = ModuleCage(link.name, link.ifindex)
        return cage.read(reader, carrier=link.carrier)


def _build(options: OpticsOptions, context: Context) -> list[Source]:
    return [OpticsSource(options, context.host, nic_reader(context.host))]


DEFINITION = Definition("optics", OpticsOptions, (MODULE, LANE, THRESHOLD), _build)
