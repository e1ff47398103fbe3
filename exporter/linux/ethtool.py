"""Driver, statistics and link settings of a network device, by the ioctl that ethtool uses.

There is no netlink command for driver statistics. Layouts: include/uapi/linux/ethtool.h. Everything here works without
privileges, in the network namespace of the thread that opened the socket. A call runs driver code, and often firmware
commands, under the kernel's RTNL lock: it may take milliseconds or, on a sick device, a minute in which it cannot be
cancelled. The caller keeps calls apart and off the event loop.
"""

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

_SIOCETHTOOL = 0x8946
_IFREQ = struct.Struct("@16sP16x")  # device name, address of the command; the union behind is 24 bytes long

_GDRVINFO = 0x03
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GSSET_INFO = 0x37
_GLINKSETTINGS = 0x4C
_COMMANDS = {
    _GDRVINFO: "GDRVINFO",
    _GSTRINGS: "GSTRINGS",
    _GSTATS: "GSTATS",
    _GSSET_INFO: "GSSET_INFO",
    _GLINKSETTINGS: "GLINKSETTINGS",
}

_DRVINFO = struct.Struct("=I32s32s32s32s64x")  # what follows is sizes of other answers
_SSET_INFO = struct.Struct("=I4xQI4x")  # mask of the sets asked for, then a count for each set in the answer's mask
_STRINGS = struct.Struct("=III")  # set, count; then 32 bytes a string
_STATS = struct.Struct("=II")  # count; then 64 bits a value
# speed, duplex, port, phy, autoneg, three of MDIO, words per link mode mask, four more, reserved; then three masks
_SETTINGS = struct.Struct("=IIBBBB3xb4x28x")
_SET_STATS = 1
_STRING = 32
_VALUE = 8

_NAMES_ATTEMPTS = 4
_SLACK = 256  # statistics; see Ethtool.statistics
_STATISTICS_LIMIT = 200_000  # a NIC with 64 channels has 7,000 to 20,000

_SPEED_LIMIT = 10_000_000  # Mb/s; 65535 and 4294967295 are the drivers' ways to say "unknown"
_SPEEDS_UNKNOWN = frozenset({0, 0xFFFF})
_DUPLEX = {0: "half", 1: "full"}
_PORTS = {0: "tp", 1: "aui", 2: "mii", 3: "fibre", 4: "bnc", 5: "da", 0xEF: "none", 0xFF: "other"}

Call = Callable[[str, "array[int]"], None]
"""Has the kernel carry out the ethtool command in the buffer on a device; the answer replaces it. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's own words; "" where it says nothing. `bus` is the PCI address of a PCI device."""

    name: str
    version: str = ""
    firmware: str = ""
    bus: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Names and values side by side, in the driver's order; a name may repeat, and some are headings or gauges.

    `names` is the same object from read to read while the names stay the same, so work done on it can be kept.
    """

    names: tuple[str, ...]
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Speed in bits per second, None if unknown; some drivers report a speed also while the link is down.

    `duplex` is full or half; `port` tp, fibre, da (direct attach copper), none or other.
    """

    speed_bits_per_second: int | None = None
    duplex: str | None = None
    autoneg: bool | None = None
    port: str | None = None


def parse_driver(data: bytes | bytearray | memoryview) -> Driver:
    """Read struct ethtool_drvinfo."""
    _, name, version, firmware, bus = _DRVINFO.unpack_from(data)
    return Driver(_text(name), _text(version), _text(firmware), _text(bus))


def parse_names(data: bytes) -> tuple[str, ...]:
    """Read statistics' names of 32 bytes each: padded with NULs or blanks, or filled to the last byte."""
    return tuple([_text(data[at : at + _STRING]) for at in range(0, len(data), _STRING)])


def parse_settings(data: bytes | bytearray | memoryview) -> LinkSettings:
    """Read struct ethtool_link_settings; its masks of link modes are of no interest here."""
    _, speed, duplex, port, _, autoneg, _ = _SETTINGS.unpack_from(data)
    known = speed < _SPEED_LIMIT and speed not in _SPEEDS_UNKNOWN
    return LinkSettings(speed * 1_000_000 if known else None, _DUPLEX.get(duplex), autoneg == 1, _PORTS.get(port))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()


class _Socket:
    """Carries commands to the kernel through a datagram socket, which any protocol family would do for."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __call__(self, device: str, buffer: "array[int]") -> None:
        name = os.fsencode(device)
        if not 0 < len(name) < 16 or b"\0" in name:  # the kernel would cut it, and might find another device
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), device)
        address, _ = buffer.buffer_info()
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, _IFREQ.pack(name, address))
        except OSError as error:
            command = _COMMANDS[struct.unpack_from("=I", buffer)[0]]
            raise OSError(error.errno, f"ethtool {command}: {error.strerror}", device) from None

    def close(self) -> None:
        self._socket.close()


class Ethtool:
    """Asks drivers. Threads may share it as long as each device is asked by one at a time.

    OSError passes through, with the device as its file name; EOPNOTSUPP is what bonds and other software devices say.
    """

    def __init__(self, call: Call | None = None) -> None:
        self._socket: _Socket | None = None
        if call is None:
            call = self._socket = _Socket()
        self._call = call
        self._names: dict[str, tuple[bytes, tuple[str, ...]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; closing twice does no harm."""
        if self._socket is not None:
            self._socket.close()

    def driver(self, device: str) -> Driver:
        """Ask for the driver's name, version and firmware, and the device's bus address."""
        return parse_driver(memoryview(self._ask(device, _DRVINFO.pack(_GDRVINFO, b"", b"", b"", b""), 0)))

    def settings(self, device: str) -> LinkSettings:
        """Ask for speed, duplex, autonegotiation and the kind of port."""
        # The first answer only says, as a negative number, how many words a mask of link modes has in this kernel.
        answer = self._ask(device, _SETTINGS.pack(_GLINKSETTINGS, 0, 0, 0, 0, 0, 0), 0)
        words = -_SETTINGS.unpack_from(answer)[-1]
        if words <= 0:
            raise OSError(errno.EPROTO, "ethtool GLINKSETTINGS: the kernel named no size for link modes", device)
        request = _SETTINGS.pack(_GLINKSETTINGS, 0, 0, 0, 0, 0, words)
        return parse_settings(memoryview(self._ask(device, request, 3 * 4 * words)))

    def statistics(self, device: str) -> Statistics:
        """Ask for the driver's statistics.

        The number of statistics may change between any two calls (priority flow control switched on, channels added).
        Newer kernels then answer with none; older ones write as many as there are now, whatever room there is. So
        there is room for twice the number and more, every answer's own number is compared, and all starts again when
        they differ. Names are asked for each time, since a set may change and keep its size; that costs the kernel no
        firmware command, and they are decoded only when they differ from the last ones.

        Raises:
            OSError: the driver has none (EOPNOTSUPP), failed, or never agreed with itself (EAGAIN).
        """
        for _ in range(_NAMES_ATTEMPTS):
            count = self._count(device)
            if not count:  # to ask for no names is a warning in the kernel's log
                return Statistics((), ())
            names = self._read_names(device, count)
            if names is None:
                continue
            answer = self._ask(device, _STATS.pack(_GSTATS, count), _VALUE * (2 * count + _SLACK))
            if _STATS.unpack_from(answer)[1] == count:
                values = array("Q")
                values.frombytes(memoryview(answer)[_STATS.size : _STATS.size + _VALUE * count])
                return Statistics(names, values)
        raise OSError(errno.EAGAIN, "ethtool GSTATS: the number of statistics kept changing", device)

    def forget(self, device: str) -> None:
        """Drop the names kept for a device, when it is gone or is no longer read."""
        self._names.pop(device, None)

    def _ask(self, device: str, request: bytes, room: int) -> "array[int]":
        buffer = array("B", request)
        buffer.extend(array("B", [0]) * room)
        self._call(device, buffer)
        return buffer

    def _count(self, device: str) -> int:
        _, mask, count = _SSET_INFO.unpack_from(self._ask(device, _SSET_INFO.pack(_GSSET_INFO, 1 << _SET_STATS, 0), 0))
        if not mask:
            raise OSError(errno.EOPNOTSUPP, "ethtool GSSET_INFO: the driver has no statistics", device)
        if count > _STATISTICS_LIMIT:
            raise OSError(errno.EOVERFLOW, f"ethtool GSSET_INFO: {count} statistics are too many to be true", device)
        return int(count)

    def _read_names(self, device: str, count: int) -> tuple[str, ...] | None:
        """Ask for names; None when their number is no longer the one given."""
        answer = self._ask(device, _STRINGS.pack(_GSTRINGS, _SET_STATS, count), _STRING * (2 * count + _SLACK))
        if _STRINGS.unpack_from(answer)[2] != count:
            return None
        raw = memoryview(answer)[_STRINGS.size : _STRINGS.size + _STRING * count].tobytes()
        kept = self._names.get(device)
        if kept is None or kept[0] != raw:
            # The eight NICs of a node have the same thousands of names: they are kept once.
            kept = next((other for other in list(self._names.values()) if other[0] == raw), None)
            kept = kept or (raw, parse_names(raw))
            self._names[device] = kept
        return kept[1]
