"""Source `lldp`: LLDP neighbours of this host, the switch port at each network device, and the settings it announces.

systemd-networkd stores the frames that it receives in files, which are cheap to read. Where it does not run, the
exporter can receive them itself: that needs CAP_NET_RAW and is disabled by default. lldpd may run at the same time; its
own socket is not read, since its format depends on the version and on the architecture.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
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
from exporter.linux.lldp.frames import Advertisement
from exporter.linux.lldp.packet_socket import LldpSocket
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    LINK_SCAN,
    is_hardware,
    nic_reader,
    nic_turns,
)
from exporter.sources.lldp.neighbour_cache import NeighbourCache
from exporter.sources.lldp.neighbour_settings import settings_cells
from exporter.sources.lldp.networkd_files import parse_file, read_files
from exporter.sources.lldp.options import LldpOptions
from exporter.sources.switch.links import LinkTable, PortLink, unresolved_link
from exporter.sources.switch.metrics import LINKS
from exporter.switch_api.neighbour import LldpNeighbour

CALL_DEADLINE = 2.0
"""Seconds for the dump of the links, and for reading all files."""

logger = logging.getLogger(__name__)


class LldpSource:
    """Reads the neighbours of this host's network devices."""

    name = "lldp"
    target = ""

    def __init__(
        self,
        options: LldpOptions,
        host: Host,
        open_reader: Callable[[], NicReader],
        open_socket: Callable[[], LldpSocket] = LldpSocket,
    ) -> None:
        """Open nothing yet: reader and socket are opened at the first read, when the event loop runs."""
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = None
        self.settings = self._options = options
        self._host = host.name
        self._open_reader, self._open_socket = open_reader, open_socket
        self._reader: NicReader | None = None
        self._socket: LldpSocket | None = None
        self._received = NeighbourCache()
        self._serial = BlockingCalls("lldp", CALL_DEADLINE, nic_turns(host))
        self._table = LinkTable()

    async def applies(self) -> bool:
        """Return whether frames are received, by the exporter or by systemd-networkd."""
        return self._options.listen or await asyncio.to_thread(Path(self._options.folder).is_dir)

    async def read(self) -> Reading:
        """Read the neighbours of all devices; the failure of one does not affect the others."""
        links = await self._links()
        now, failures = monotonic(), []
        received: dict[str, list[Advertisement]] = {}
        if self._options.listen:
            failures += self._join_group(links)
            received = self._received.advertisements(links, now)
            failures += self._received.take_failures()
        stored, more = await self._read_files(links)
        failures += more
        advertisements = {**stored, **received}
        found = [_link(device, one) for device in sorted(advertisements) for one in advertisements[device]]
        return Reading([self._table.make(found, now, host=self._host)] if found else [], failures)

    async def close(self) -> None:
        """Close the sockets."""
        self._serial.close()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _links(self) -> dict[int, NetworkLink]:
        """Dump the links and return those of selected hardware devices, by ifindex.

        Raises:
            SourceError: The dump failed.
        """
        try:
            if self._reader is None:
                self._reader = self._open_reader()
            reader = self._reader
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        links = await make_call(self._serial, LINK_SCAN, reader.links, "rtnetlink")
        return {one.ifindex: one for one in links if is_hardware(one) and self._options.matches(one.name)}

    def _join_group(self, links: Mapping[int, NetworkLink]) -> list[Failure]:
        """Receive on these devices, and on no others; the first call opens the socket."""
        if self._socket is None:
            try:
                self._socket = self._open_socket()
            except OSError as error:
                return [
                    failure_of("listen", error, "LLDP: receiving needs CAP_NET_RAW; grant it, or set listen: false")
                ]
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_frames)
        failed = self._socket.listen_on({index: link.name for index, link in links.items()})
        return [failure_of(name, error, name) for name, error in failed.items()]

    def _on_frames(self) -> None:
        if self._socket is None:
            return
        try:
            for device, frame in self._socket.receive():
                if self._options.matches(device):
                    self._received.receive(device, frame, monotonic())
        except OSError as error:
            logger.warning("lldp: receiving failed, the socket is reopened at the next read: %s", error)
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def _read_files(
        self, links: Mapping[int, NetworkLink]
    ) -> tuple[dict[str, list[Advertisement]], list[Failure]]:
        """Read the files of those devices that have one; return advertisements by device."""
        folder = Path(self._options.folder)
        result = (await self._serial.run([("/files", partial(read_files, folder, frozenset(links)))]))["/files"]
        if isinstance(result, Exception):
            return {}, [failure_of("files", result, folder)]
        advertisements: dict[str, list[Advertisement]] = {}
        failures: list[Failure] = []
        for index, found in result.items():
            name = links[index].name
            if isinstance(found, OSError):
                failures.append(failure_of(name, found, folder / str(index)))
            else:
                advertisements[name], errors = parse_file(*found)
                failures += [failure_of(name, error, folder / str(index)) for error in errors]
        return advertisements, failures


def _link(device: str, advertisement: Advertisement) -> PortLink:
    neighbour = LldpNeighbour(
        device,
        advertisement.chassis,
        advertisement.port,
        advertisement.name,
        advertisement.port_description,
        advertisement.description,
        advertisement.capabilities,
        advertisement.addresses,
    )
    return unresolved_link(neighbour)._replace(settings=settings_cells(advertisement.settings))


def _build(options: LldpOptions, context: Context) -> Sequence[Source]:
    # The ifindexes of recorded devices are those of another host, so this host's neighbours do not match them.
    return [] if context.host.nic_replay is not None else [LldpSource(options, context.host, nic_reader(context.host))]


DEFINITION = Definition("lldp", LldpOptions, (LINKS,), _build)
