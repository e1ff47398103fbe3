"""Neighbours of this host by LLDP: which port of which switch each network device is plugged into.

What systemd-networkd hears it leaves in files, which cost nothing to read. Where it does not listen, the exporter can:
that needs CAP_NET_RAW and is off unless the configuration says so. It works beside lldpd, whose own socket speaks a
form that changes with its version and the machine's architecture.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time

from exporter.config.units import Duration
from exporter.core.blocking import Serial
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Source,
    SourceError,
)
from exporter.linux.lldp.frames import (
    Advertisement,
    DecodeError,
    parse_frame,
    split_file,
)
from exporter.linux.lldp.packet_socket import LldpSocket
from exporter.linux.netlink.rtnetlink import Link as Device
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import (
    is_hardware,
    listed,
    nic_place,
    nic_reader,
)
from exporter.sources.switch.links import LinkTable, unresolved_link
from exporter.sources.switch.merge import Neighbour
from exporter.sources.switch.metrics import LINKS

CALL_DEADLINE = 2.0
"""Seconds that listing the devices, or reading all files, may take."""

MAX_FILE = 64 << 10
"""Bytes that are read of a file."""

MAX_NEIGHBOURS = 16
"""Neighbours of one device that are kept of what was heard: a switch has one, behind a dumb switch there are more."""

_INDEX = re.compile(r"[0-9]{1,10}")

logger = logging.getLogger(__name__)


class LldpOptions(Options, frozen=True):
    """Configuration of `sources.lldp`; include and exclude are names of devices.

    Attributes:
        folder: Where systemd-networkd leaves what it heard.
        listen: Whether the exporter listens itself.
    """

    interval: Duration = Duration(30.0)
    folder: str = "/run/systemd/netif/lldp"
    listen: bool = False


class Ears:
    """What was heard on devices, for as long as it holds."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[tuple[str, str], tuple[Advertisement, float]]] = {}
        self._bad: dict[str, Exception] = {}

    def take(self, device: str, frame: bytes, now: float) -> None:
        """Take a frame; of too many neighbours of a device, new ones are not.

        A neighbour that goes says that what it said holds for 0 seconds.
        """
        try:
            told = parse_frame(frame)
        except DecodeError as error:
            self._bad[device] = error
            return
        kept = self._heard.setdefault(device, {})
        key = (told.chassis, told.port)
        if key in kept or len(kept) < MAX_NEIGHBOURS:
            kept[key] = (told, now + told.ttl)

    def told(self, devices: Mapping[int, Device], now: float) -> dict[str, list[Advertisement]]:
        """Give what still holds of the devices that there are, and whose link is up."""
        names = {device.name for device in devices.values() if device.carrier}
        self._heard = {
            name: {key: one for key, one in kept.items() if one[1] > now}
            for name, kept in self._heard.items()
            if name in names
        }
        return {name: [told for told, _ in kept.values()] for name, kept in self._heard.items()}

    def failures(self) -> list[Failure]:
        """Give, and forget, what was no LLDP."""
        failures = [failure_of(device, error, f"frame heard on {device}") for device, error in self._bad.items()]
        self._bad.clear()
        return failures


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
        """Take the configuration and how to open what is read; opening waits until the loop runs."""
        self.interval = float(options.interval)
        self.changed: asyncio.Event | None = None
        self.settings = self._options = options
        self._host = host.name
        self._open, self._open_socket = open_reader, open_socket
        self._reader: NicReader | None = None
        self._socket: LldpSocket | None = None
        self._ears = Ears()
        self._serial = Serial("lldp", CALL_DEADLINE, nic_place(host))
        self._table = LinkTable()

    async def applies(self) -> bool:
        """Tell whether anybody listens."""
        return self._options.listen or await asyncio.to_thread(Path(self._options.folder).is_dir)

    async def read(self) -> Reading:
        """Read what is known of all devices; they fail alone."""
        devices = await self._devices()
        now, failures = monotonic(), []
        heard: dict[str, list[Advertisement]] = {}
        if self._options.listen:
            failures += self._listen(devices)
            heard = self._ears.told(devices, now)
            failures += self._ears.failures()
        filed, more = await self._filed(devices)
        failures += more
        told = {**filed, **heard}
        neighbours = [_neighbour(device, one) for device in sorted(told) for one in told[device]]
        tables = (
            [self._table.make([unresolved_link(one) for one in neighbours], now, host=self._host)] if neighbours else []
        )
        return Reading(tables, failures)

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

    async def _devices(self) -> dict[int, Device]:
        """List the devices that are pieces of hardware, by index.

        Raises:
            SourceError: That failed.
        """
        try:
            if self._reader is None:
                self._reader = self._open()
            reader = self._reader
        except OSError as error:
            raise SourceError("unreadable", f"rtnetlink: {error}") from None
        devices = await listed(self._serial, "links", reader.links, "rtnetlink")
        return {one.ifindex: one for one in devices if is_hardware(one) and self._options.wants(one.name)}

    def _listen(self, devices: Mapping[int, Device]) -> list[Failure]:
        """Listen on these devices, and on those alone."""
        if self._socket is None:
            try:
                self._socket = self._open_socket()
            except OSError as error:
                return [
                    failure_of("listen", error, "LLDP: listening needs CAP_NET_RAW; grant it, or set listen: false")
                ]
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_frames)
        failed = self._socket.listen_on({index: device.name for index, device in devices.items()})
        return [failure_of(name, error, name) for name, error in failed.items()]

    def _on_frames(self) -> None:
        if self._socket is None:
            return
        try:
            for device, frame in self._socket.heard():
                if self._options.wants(device):
                    self._ears.take(device, frame, monotonic())
        except OSError as error:
            logger.warning("lldp: listening ended, and begins anew: %s", error)
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def _filed(self, devices: Mapping[int, Device]) -> tuple[dict[str, list[Advertisement]], list[Failure]]:
        """Read the files of those devices that have one."""
        folder = Path(self._options.folder)
        asked = (await self._serial.run([("files", partial(_files, folder, frozenset(devices)))]))["files"]
        if isinstance(asked, Exception):
            return {}, [failure_of("files", asked, folder)]
        told: dict[str, list[Advertisement]] = {}
        failures: list[Failure] = []
        for index, found in asked.items():
            name = devices[index].name
            if isinstance(found, OSError):
                failures.append(failure_of(name, found, folder / str(index)))
            else:
                told[name], problems = _advertisements(*found)
                failures += [failure_of(name, problem, folder / str(index)) for problem in problems]
        return told, failures


def _files(folder: Path, indexes: frozenset[int]) -> dict[int, tuple[bytes, float] | OSError]:
    """Read the file of each device that has one, and how many seconds ago it was written; runs in the thread.

    Raises:
        OSError: The folder cannot be listed; that there is none is no error.
    """
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return {}
    found: dict[int, tuple[bytes, float] | OSError] = {}
    for path in paths:
        if _INDEX.fullmatch(path.name) and int(path.name) in indexes:
            try:
                found[int(path.name)] = _file(path)
            except FileNotFoundError:
                continue  # networkd took it away just now
            except OSError as error:
                found[int(path.name)] = error
    return found


def _file(path: Path) -> tuple[bytes, float]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        return os.pread(descriptor, MAX_FILE, 0), time() - os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _advertisements(content: bytes, age: float) -> tuple[list[Advertisement], list[DecodeError]]:
    """Read the frames of a file, and what is wrong with them; one that outlived its time is left out.

    networkd writes the file with each frame that it hears, so that one older than that was left by one that ended.
    """
    told: list[Advertisement] = []
    problems: list[DecodeError] = []
    try:
        frames = split_file(content)
    except DecodeError as error:
        return [], [error]
    for frame in frames:
        try:
            one = parse_frame(frame)
        except DecodeError as error:
            problems.append(error)
        else:
            if age <= one.ttl:
                told.append(one)
    return told, problems


def _neighbour(device: str, told: Advertisement) -> Neighbour:
    return Neighbour(
        device,
        told.chassis,
        told.port,
        told.name,
        told.port_description,
        told.description,
        told.capabilities,
        told.addresses,
    )


def _build(options: LldpOptions, host: Host) -> Sequence[Source]:
    # Recorded devices have indexes of their own host, and no neighbours of this one.
    return [] if host.nic_replay is not None else [LldpSource(options, host, nic_reader(host))]


DEFINITION = Definition("lldp", LldpOptions, (LINKS,), _build)
