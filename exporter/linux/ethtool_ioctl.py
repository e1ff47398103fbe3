"""The ethtool ioctl (SIOCETHTOOL): driver, driver statistics and link settings of network devices.

There is no netlink command for driver statistics. Layouts: include/uapi/linux/ethtool.h. Everything here works without
privileges, in the network namespace of the thread that opened the socket. A call runs driver code, and often firmware
commands, under the kernel's RTNL lock: it may take milliseconds or, on a faulty device, a minute in which it cannot be
cancelled. The caller serialises calls and keeps them off the event loop.
"""

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

_SIOCETHTOOL = 0x8946
_IFREQ = struct.Struct("@16sP16x")  # device name, address of the command; the union has 24 bytes

_GDRVINFO = 0x03
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GSSET_INFO = 0x37
_GLINKSETTINGS = 0x4C
_COMMANDS = MappingProxyType(
    {
        _GDRVINFO: "GDRVINFO",
        _GSTRINGS: "GSTRINGS",
        _GSTATS: "GSTATS",
        _GSSET_INFO: "GSSET_INFO",
        _GLINKSETTINGS: "GLINKSETTINGS",
    }
)

_DRVINFO = struct.Struct("=I32s32s32s32s64x")  # the sizes of other answers follow
_SSET_INFO = struct.Struct("=I4xQI4x")  # mask of the requested sets, then a count for each set in the answer's mask
_STRINGS = struct.Struct("=III")  # set, count; then 32 bytes per string
_STATS = struct.Struct("=II")  # count; then 64 bits per value
# speed, duplex, port, phy, autoneg, three of MDIO, words per link mode mask, four more, reserved; then three masks
_SETTINGS = struct.Struct("=IIBBBB3xb4x28x")
_ETH_SS_STATS = 1
_ETH_GSTRING_LEN = 32
_VALUE_SIZE = 8

_MAX_STATISTICS_ATTEMPTS = 4
_SPARE_STATISTICS = 256  # see EthtoolIoctl.statistics
_MAX_STATISTICS = 200_000  # a NIC with 64 channels has 7,000 to 20,000

_MAX_SPEED = 10_000_000  # Mb/s; 65535 and 4294967295 are values of SPEED_UNKNOWN in use
_SPEEDS_UNKNOWN = frozenset({0, 0xFFFF})
_DUPLEX = MappingProxyType({0: "half", 1: "full"})
_PORTS = MappingProxyType({0: "tp", 1: "aui", 2: "mii", 3: "fibre", 4: "bnc", 5: "da", 0xEF: "none", 0xFF: "other"})

EthtoolCall = Callable[[str, "array[int]"], None]
"""Executes the ethtool command in the buffer on a device; the answer overwrites the buffer. Raises OSError."""


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The driver's name, its version, the firmware's version and the bus address, "" for what it does not report."""

    name: str
    version: str = ""
    firmware: str = ""
    bus: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Names and values in the driver's order; a name may repeat, and some are headings or gauges.

    `names` is the same object from read to read while the names do not change, so what is derived from it can be
    cached.
    """

    names: tuple[str, ...]
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Speed in bits per second, None if unknown; some drivers report a speed while the link is down.

    `duplex` is full or half; `port` is tp, fibre, da (direct attach copper), none or other.
    """

    speed_bits_per_second: int | None = None
    duplex: str | None = None
    autoneg: bool | None = None
    port: str | None = None


def parse_driver_info(data: bytes | bytearray | memoryview) -> DriverInfo:
    """Parse struct ethtool_drvinfo."""
    _, name, version, firmware, bus = _DRVINFO.unpack_from(data)
    return DriverInfo(_text(name), _text(version), _text(firmware), _text(bus))


def parse_names(data: bytes) -> tuple[str, ...]:
    """Parse ETH_GSTRING_LEN names of statistics: padded with NULs or blanks, or filled to the last byte."""
    return tuple([_text(data[at : at + _ETH_GSTRING_LEN]) for at in range(0, len(data), _ETH_GSTRING_LEN)])


def parse_settings(data: bytes | bytearray | memoryview) -> LinkSettings:
    """Parse struct ethtool_link_settings, without its link mode masks."""
    _, speed, duplex, port, _, autoneg, _ = _SETTINGS.unpack_from(data)
    known = speed < _MAX_SPEED and speed not in _SPEEDS_UNKNOWN
    return LinkSettings(speed * 1_000_000 if known else None, _DUPLEX.get(duplex), autoneg == 1, _PORTS.get(port))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()


class _IoctlSocket:
    """Sends commands to the kernel by ioctl on a datagram socket; its protocol family does not matter."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __call__(self, device: str, buffer: "array[int]") -> None:
        name = os.fsencode(device)
        if not 0 < len(name) < 16 or b"\0" in name:  # the kernel would truncate it, and might find another device
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), device)
        address, _ = buffer.buffer_info()
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, _IFREQ.pack(name, address))
        except OSError as error:
            command = _COMMANDS[struct.unpack_from("=I", buffer)[0]]
            raise OSError(error.errno, f"ethtool {command}: {error.strerror}", device) from None

    def close(self) -> None:
        self._socket.close()


class EthtoolIoctl:
    """Reads from drivers. Threads may share it if no two of them read the same device at the same time.

    OSError passes through, with the device as its file name; bonds and other software devices answer EOPNOTSUPP.
    """

    def __init__(self, call: EthtoolCall | None = None) -> None:
        self._socket: _IoctlSocket | None = None
        if call is None:
            call = self._socket = _IoctlSocket()
        self._ioctl = call
        self._names: dict[str, tuple[bytes, tuple[str, ...]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket is not None:
            self._socket.close()

    def driver(self, device: str) -> DriverInfo:
        """Read the driver's name, version and firmware version, and the device's bus address (GDRVINFO)."""
        return parse_driver_info(memoryview(self._exchange(device, _DRVINFO.pack(_GDRVINFO, b"", b"", b"", b""), 0)))

    def settings(self, device: str) -> LinkSettings:
        """Read speed, duplex, autonegotiation and port type (GLINKSETTINGS)."""
        # The first answer has only the number of words of a link mode mask in this kernel, negated.
        answer = self._exchange(device, _SETTINGS.pack(_GLINKSETTINGS, 0, 0, 0, 0, 0, 0), 0)
        words = -_SETTINGS.unpack_from(answer)[-1]
        if words <= 0:
            raise OSError(
                errno.EPROTO, "ethtool GLINKSETTINGS: the kernel did not report the size of its link mode masks", device
            )
        request = _SETTINGS.pack(_GLINKSETTINGS, 0, 0, 0, 0, 0, words)
        return parse_settings(memoryview(self._exchange(device, request, 3 * 4 * words)))

    def statistics(self, device: str) -> Statistics:
        """Read the driver's statistics (GSSET_INFO, GSTRINGS, GSTATS).

        The number of statistics may change between any two calls (priority flow control enabled, channels added).
        Newer kernels then return none; older ones write as many as there are now, whatever the size of the buffer. So
        the buffer is more than twice as large as needed, the count in each answer is compared, and the read starts
        again when they differ. The names are read each time, since a set may change without changing its size; that
        needs no firmware command, and they are decoded only when they differ from the cached ones.

        Raises:
            OSError: The driver has none (EOPNOTSUPP), failed, or changed their number during each attempt (EAGAIN).
        """
        for _ in range(_MAX_STATISTICS_ATTEMPTS):
            count = self._count(device)
            if not count:  # a request for no names makes the kernel log a warning
                return Statistics((), ())
            names = self._read_names(device, count)
            if names is None:
                continue
            answer = self._exchange(device, _STATS.pack(_GSTATS, count), _VALUE_SIZE * (2 * count + _SPARE_STATISTICS))
            if _STATS.unpack_from(answer)[1] == count:
                values = array("Q")
                values.frombytes(memoryview(answer)[_STATS.size : _STATS.size + _VALUE_SIZE * count])
                return Statistics(names, values)
        raise OSError(errno.EAGAIN, "ethtool GSTATS: the number of statistics kept changing", device)

    def forget(self, device: str) -> None:
        """Drop the cached names of a device that is gone or no longer read."""
        self._names.pop(device, None)

    def _exchange(self, device: str, request: bytes, answer_size: int) -> "array[int]":
        buffer = array("B", request)
        buffer.extend(array("B", [0]) * answer_size)
        self._ioctl(device, buffer)
        return buffer

    def _count(self, device: str) -> int:
        _, mask, count = _SSET_INFO.unpack_from(
            self._exchange(device, _SSET_INFO.pack(_GSSET_INFO, 1 << _ETH_SS_STATS, 0), 0)
        )
        if not mask:
            raise OSError(errno.EOPNOTSUPP, "ethtool GSSET_INFO: the driver has no statistics", device)
        if count > _MAX_STATISTICS:
            raise OSError(errno.EOVERFLOW, f"ethtool GSSET_INFO: {count} statistics are implausibly many", device)
        return int(count)

    def _read_names(self, device: str, count: int) -> tuple[str, ...] | None:
        """Read the names; None if their number is no longer `count`."""
        answer = self._exchange(
            device, _STRINGS.pack(_GSTRINGS, _ETH_SS_STATS, count), _ETH_GSTRING_LEN * (2 * count + _SPARE_STATISTICS)
        )
        if _STRINGS.unpack_from(answer)[2] != count:
            return None
        raw = memoryview(answer)[_STRINGS.size : _STRINGS.size + _ETH_GSTRING_LEN * count].tobytes()
        cached = self._names.get(device)
        if cached is None or cached[0] != raw:
            # The eight NICs of a node share one copy of their thousands of names.
            cached = next((other for other in list(self._names.values()) if other[0] == raw), None)
            cached = cached or (raw, parse_names(raw))
            self._names[device] = cached
        return cached[1]
