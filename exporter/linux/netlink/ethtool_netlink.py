"""Ethtool netlink: link modes, link state, pause, FEC, standard statistics and module EEPROM of network devices.

Layouts: include/uapi/linux/ethtool_netlink.h. Only GET requests are sent. Attributes that a driver does not fill in are
omitted by the kernel and are None here, as are attributes of an unexpected size. All parsers take the attributes of an
answer and never raise, whatever they contain.
"""

import errno
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from exporter.linux.ethernet_link_modes import FEC, KNOWN_BITS, MODES
from exporter.linux.netlink.generic_netlink import GenericNetlinkFamily
from exporter.linux.netlink.messages import (
    NESTED,
    attribute,
    attribute_device,
    attribute_u32,
    attributes,
    number,
    text,
)

_U64 = struct.Struct("=Q")

# The header of every request and answer.
_HEADER = 1
_DEV_NAME = 2
_FLAGS = 3
_COMPACT_BITSETS = 1
_WITH_STATISTICS = 4

# A bitset in its compact form.
_NOMASK = 1
_SIZE = 2
_VALUE = 4
_MASK = 5

_SPEED_LIMIT = 10_000_000  # Mb/s; 65535 and 4294967295 are the values of SPEED_UNKNOWN in use
_SPEEDS_UNKNOWN = frozenset({0, 0xFFFF})
_DUPLEX = MappingProxyType({0: "half", 1: "full"})

_EXTENDED_STATES = MappingProxyType(
    dict(  # enum ethtool_link_ext_state
        enumerate(
            (
                *("autoneg", "link_training_failure", "link_logical_mismatch", "bad_signal_integrity", "no_cable"),
                *("cable_issue", "eeprom_issue", "calibration_failure", "power_budget_exceeded", "overheat", "module"),
            )
        )
    )
)

_GROUPS = (
    ("SymbolErrorDuringCarrier",),
    (
        *("FramesTransmittedOK", "SingleCollisionFrames", "MultipleCollisionFrames", "FramesReceivedOK"),
        *("FrameCheckSequenceErrors", "AlignmentErrors", "OctetsTransmittedOK", "FramesWithDeferredXmissions"),
        *("LateCollisions", "FramesAbortedDueToXSColls", "FramesLostDueToIntMACXmitError", "CarrierSenseErrors"),
        *("OctetsReceivedOK", "FramesLostDueToIntMACRcvError", "MulticastFramesXmittedOK", "BroadcastFramesXmittedOK"),
        *("FramesWithExcessiveDeferral", "MulticastFramesReceivedOK", "BroadcastFramesReceivedOK"),
        *("InRangeLengthErrors", "OutOfRangeLengthField", "FrameTooLongErrors"),
    ),
    ("MACControlFramesTransmitted", "MACControlFramesReceived", "UnsupportedOpcodesReceived"),
    ("undersize", "oversize", "fragments", "jabbers"),
)
STANDARD_STATISTICS: Mapping[tuple[int | None, int], str] = MappingProxyType(
    {(group, number): name for group, names in enumerate(_GROUPS) for number, name in enumerate(names)}
)
"""(group, number) -> name: the IEEE 802.3 clause 30 attribute in the groups eth-phy, eth-mac and eth-ctrl, without its
leading `a`; then RMON (RFC 2819)."""


class _Command(NamedTuple):
    """A request: its name and number, the attribute type of its header, and the header's flags."""

    name: str
    number: int
    header: int = _HEADER
    flags: int = _COMPACT_BITSETS


_LINKMODES = _Command("LINKMODES", 4)
_LINKSTATE = _Command("LINKSTATE", 6)
_PAUSE = _Command("PAUSE", 21, flags=_COMPACT_BITSETS | _WITH_STATISTICS)
_FEC = _Command("FEC", 29, flags=_COMPACT_BITSETS | _WITH_STATISTICS)
_MODULE_EEPROM = _Command("MODULE_EEPROM", 31)
_STATS = _Command("STATS", 32, header=2)  # ETHTOOL_A_STATS_PAD is 1


@dataclass(frozen=True, slots=True)
class LinkModes:
    """The current link mode, and the highest supported speed.

    `duplex` is full or half. `lanes` is what the driver reports, else the number that all its supported modes of this
    speed share. What is derived from the supported modes is None if one of them is newer than the table of modes.
    """

    speed_bits_per_second: int | None = None
    duplex: str | None = None
    autoneg: bool | None = None
    lanes: int | None = None
    max_speed_bits_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class LinkState:
    """Whether the link is up and, while it is down, the reason.

    `reason` is the kernel's extended link state, such as no_cable, or unknown_<number> for a newer one. `down_count`
    (EXT_DOWN_CNT, 32 bits) counts how often the physical link went down.
    """

    up: bool | None = None
    reason: str | None = None
    down_count: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """IEEE 802.3x pause: whether it is negotiated, honoured on receive, transmitted; and the pause frame counters."""

    autoneg: bool | None = None
    receive: bool | None = None
    transmit: bool | None = None
    receive_frames: int | None = None
    transmit_frames: int | None = None


@dataclass(frozen=True, slots=True)
class Fec:
    """Active FEC: none, rs, baser or llrs (unknown_<number> for a newer one), and the counters, totals of all lanes."""

    active: str | None = None
    corrected_blocks: int | None = None
    uncorrectable_blocks: int | None = None
    corrected_bits: int | None = None


def parse_link_modes(answer: bytes) -> LinkModes:
    """Parse the answer to LINKMODES_GET."""
    found = dict(attributes(answer))
    speed = number(found.get(5))
    if speed is not None and (speed in _SPEEDS_UNKNOWN or speed >= _SPEED_LIMIT):
        speed = None
    supported = _parse_supported(found.get(3, b""))
    modes = [] if supported >> KNOWN_BITS else [mode for bit, mode in MODES.items() if supported >> bit & 1]
    possible = {mode.lanes for mode in modes if mode.speed == speed}
    return LinkModes(
        None if speed is None else speed * 1_000_000,
        _parse_enum(_DUPLEX, found.get(6)),
        _parse_bool(found.get(2)),
        number(found.get(9)) or (possible.pop() if len(possible) == 1 else None),
        max((mode.speed for mode in modes), default=0) * 1_000_000 or None,
    )


def parse_link_state(answer: bytes) -> LinkState:
    """Parse the answer to LINKSTATE_GET."""
    found = dict(attributes(answer))
    return LinkState(
        _parse_bool(found.get(2)),
        _parse_enum(_EXTENDED_STATES, found.get(5), "unknown_"),
        number(found.get(7)),
    )


def parse_pause(answer: bytes) -> Pause:
    """Parse the answer to PAUSE_GET."""
    found = dict(attributes(answer))
    counts = dict(attributes(found.get(5, b"")))
    return Pause(
        _parse_bool(found.get(2)),
        _parse_bool(found.get(3)),
        _parse_bool(found.get(4)),
        receive_frames=number(counts.get(3)),
        transmit_frames=number(counts.get(2)),
    )


def parse_fec(answer: bytes) -> Fec:
    """Parse the answer to FEC_GET."""
    found = dict(attributes(answer))
    counts = dict(attributes(found.get(5, b"")))
    return Fec(_parse_enum(FEC, found.get(4), "unknown_"), *(_parse_total(counts.get(kind)) for kind in (2, 3, 4)))


def parse_standard_statistics(answer: bytes) -> dict[str, int]:
    """Parse the answer to STATS_GET; groups and statistics without a name here are skipped, as are histograms."""
    found = {}
    for group in _payloads(answer, 4):
        group_number = number(dict(attributes(group)).get(2))
        for statistic in _payloads(group, 4):
            for kind, payload in attributes(statistic):
                name, value = STANDARD_STATISTICS.get((group_number, kind)), number(payload)
                if name is not None and value is not None:
                    found[name] = value
    return found


def parse_module_page(answer: bytes) -> bytes:
    """Parse the answer to MODULE_EEPROM_GET; b"" if it has no data."""
    return dict(attributes(answer)).get(7, b"")


def parse_device_name(answer: bytes, header: int = _HEADER) -> str | None:
    """Parse the name of the device that an answer is about."""
    return text(dict(attributes(dict(attributes(answer)).get(header, b""))).get(_DEV_NAME))


class EthtoolNetlink:
    """Requests settings and statistics of devices.

    Threads may share it; it stays in the network namespace of the thread that opened it.

    OSError passes through, with the device as its file name. EOPNOTSUPP: the driver or the kernel does not support it.
    A device is named as for the ioctl, so that both refer to the same one; the kernel also accepts alternative names,
    whose answers are rejected with ENODEV.
    """

    def __init__(self) -> None:
        self._family = GenericNetlinkFamily("ethtool")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; idempotent."""
        self._family.close()

    def link_modes(self, device: str) -> LinkModes:
        """Request speed, duplex, autonegotiation, lanes, and the highest supported speed."""
        return parse_link_modes(self._request(_LINKMODES, device))

    def link_state(self, device: str) -> LinkState:
        """Request whether the link is up, and the reason if it is not."""
        return parse_link_state(self._request(_LINKSTATE, device))

    def pause(self, device: str) -> Pause:
        """Request the pause settings and pause frame counters."""
        return parse_pause(self._request(_PAUSE, device))

    def fec(self, device: str) -> Fec:
        """Request the active FEC and its counters."""
        return parse_fec(self._request(_FEC, device))

    def standard_statistics(self, device: str) -> dict[str, int]:
        """Request the standard statistics; those that the driver fills in, possibly none."""
        groups = attribute_u32(_SIZE, len(_GROUPS)) + attribute_u32(_VALUE, (1 << len(_GROUPS)) - 1)
        request = attribute(3 | NESTED, attribute(_NOMASK, b"") + groups)
        return parse_standard_statistics(self._request(_STATS, device, request))

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """Read bytes of the module EEPROM; takes milliseconds per range, and needs CAP_NET_ADMIN.

        Args:
            device: Name of the device.
            page: Page of the upper memory, bytes 128 to 255.
            bank: Bank of that page.
            offset: First byte; below 128 the page is 0.
            length: Number of bytes, all in the lower or all in the upper memory.
            address: I2C address: 0x50 (A0h), or 0x51 (A2h) for the diagnostics of an SFP.

        Raises:
            OSError: EINVAL or ERANGE for an invalid range, EPERM without the capability, EIO for an answer of another
                length.
        """
        request = attribute_u32(2, offset) + attribute_u32(3, length)
        for kind, value in ((4, page), (5, bank), (6, address)):
            request += attribute(kind, value.to_bytes(1, sys.byteorder))
        data = parse_module_page(self._request(_MODULE_EEPROM, device, request))
        if len(data) != length:
            raise OSError(errno.EIO, f"ethtool MODULE_EEPROM: {len(data)} bytes instead of {length}", device)
        return data

    def _request(self, command: _Command, device: str, request: bytes = b"") -> bytes:
        """Send a command for a device; return the attributes of its answer."""
        header = attribute_device(_DEV_NAME, device) + attribute_u32(_FLAGS, command.flags)
        try:
            answer = self._family.request(command.number, attribute(command.header | NESTED, header) + request)
        except OSError as error:
            raise OSError(error.errno, f"ethtool {command.name}: {error.strerror}", device) from None
        if parse_device_name(answer, command.header) != device:
            raise OSError(errno.ENODEV, f"ethtool {command.name}: the answer is of another device", device)
        return answer


def _payloads(data: bytes, kind: int) -> Iterator[bytes]:
    """Return the payloads of an attribute that may repeat."""
    return (payload for found, payload in attributes(data) if found == kind)


def _parse_bool(payload: bytes | None) -> bool | None:
    value = number(payload)
    return None if value is None else bool(value)


def _parse_enum(names: Mapping[int, str], payload: bytes | None, unknown_prefix: str = "") -> str | None:
    """Return the name of an enum value; for an unknown one the prefix and its number, or None without a prefix."""
    value = number(payload)
    if value is None:
        return None
    return names.get(value, f"{unknown_prefix}{value}" if unknown_prefix else None)


def _parse_total(payload: bytes | None) -> int | None:
    """Parse the total of a FEC counter: the first of an array, whose other values are those of the lanes."""
    return None if payload is None or len(payload) < _U64.size else int(_U64.unpack_from(payload)[0])


def _parse_supported(bitset: bytes) -> int:
    """Parse the mask of a compact bitset, words of 32 bits: the supported modes (its value: the advertised ones)."""
    words = dict(attributes(bitset)).get(_MASK, b"")
    return sum(
        word << 32 * place for place, (word,) in enumerate(struct.iter_unpack("=I", words[: len(words) // 4 * 4]))
    )
