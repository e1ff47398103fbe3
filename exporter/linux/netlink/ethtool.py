"""What drivers say through the netlink family "ethtool": settings, and statistics that mean the same for all of them.

Layouts: include/uapi/linux/ethtool_netlink.h. Only reads are here. Attributes that a driver does not fill in are left
out by the kernel and are None here; so are those of another size than theirs. All parsers take the attributes of an
answer, whatever they hold, and never fail.
"""

import errno
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from exporter.linux.link_modes import FEC, KNOWN_BITS, MODES
from exporter.linux.netlink.generic import GenericFamily
from exporter.linux.netlink.protocol import (
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

_SPEED_LIMIT = 10_000_000  # Mb/s; 65535 and 4294967295 are the drivers' ways to say "unknown"
_SPEEDS_UNKNOWN = frozenset({0, 0xFFFF})
_DUPLEX = {0: "half", 1: "full"}

_REASONS = dict(  # enum ethtool_link_ext_state
    enumerate(
        (
            *("autoneg", "link_training_failure", "link_logical_mismatch", "bad_signal_integrity", "no_cable"),
            *("cable_issue", "eeprom_issue", "calibration_failure", "power_budget_exceeded", "overheat", "module"),
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
STANDARD_STATISTICS: Mapping[tuple[int | None, int], str] = {
    (place, of): name for place, group in enumerate(_GROUPS) for of, name in enumerate(group)
}
"""(group, number) -> name: as IEEE 802.3 has it in the groups PHY, MAC and MAC control; then RMON (RFC 2819)."""


class _Command(NamedTuple):
    """A request: its name, its number, the attribute of its header, and the flags in that."""

    name: str
    number: int
    header: int = _HEADER
    flags: int = _COMPACT_BITSETS


_LINKMODES = _Command("LINKMODES", 4)
_LINKSTATE = _Command("LINKSTATE", 6)
_PAUSE = _Command("PAUSE", 21, flags=_COMPACT_BITSETS | _WITH_STATISTICS)
_FEC = _Command("FEC", 29, flags=_COMPACT_BITSETS | _WITH_STATISTICS)
_MODULE_EEPROM = _Command("MODULE_EEPROM", 31)
_STATS = _Command("STATS", 32, header=2)  # 1 is padding there


@dataclass(frozen=True, slots=True)
class LinkModes:
    """How the link runs, and the fastest that the device can do.

    `duplex` is full or half. `lanes` is what the driver says, else what all its modes of this speed have in common.
    Of a device with a mode that is not known here, what has to be told from its modes is None.
    """

    speed_bits_per_second: int | None = None
    duplex: str | None = None
    autoneg: bool | None = None
    lanes: int | None = None
    max_speed_bits_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class LinkState:
    """Whether the link is up and, while it is down, why.

    `reason` is the kernel's extended state as a word, such as no_cable, or unknown_<number> for a newer one.
    `down_count`, 32 bits wide, is how often the physical link went down.
    """

    up: bool | None = None
    reason: str | None = None
    down_count: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause frames of IEEE 802.3x: whether they are negotiated, obeyed, sent; and how many there were."""

    autoneg: bool | None = None
    receive: bool | None = None
    transmit: bool | None = None
    receive_frames: int | None = None
    transmit_frames: int | None = None


@dataclass(frozen=True, slots=True)
class Fec:
    """Forward error correction: none, rs, baser or llrs (unknown_<number> for a newer one), and totals of all lanes."""

    active: str | None = None
    corrected_blocks: int | None = None
    uncorrectable_blocks: int | None = None
    corrected_bits: int | None = None


def parse_link_modes(answer: bytes) -> LinkModes:
    """Read the answer to LINKMODES."""
    found = dict(attributes(answer))
    speed = number(found.get(5))
    if speed is not None and (speed in _SPEEDS_UNKNOWN or speed >= _SPEED_LIMIT):
        speed = None
    supported = _supported(found.get(3, b""))
    modes = [] if supported >> KNOWN_BITS else [mode for bit, mode in MODES.items() if supported >> bit & 1]
    possible = {mode.lanes for mode in modes if mode.speed == speed}
    return LinkModes(
        None if speed is None else speed * 1_000_000,
        _named(_DUPLEX, found.get(6)),
        _flag(found.get(2)),
        number(found.get(9)) or (possible.pop() if len(possible) == 1 else None),
        max((mode.speed for mode in modes), default=0) * 1_000_000 or None,
    )


def parse_link_state(answer: bytes) -> LinkState:
    """Read the answer to LINKSTATE."""
    found = dict(attributes(answer))
    return LinkState(
        _flag(found.get(2)),
        _named(_REASONS, found.get(5), "unknown_"),
        number(found.get(7)),
    )


def parse_pause(answer: bytes) -> Pause:
    """Read the answer to PAUSE."""
    found = dict(attributes(answer))
    counts = dict(attributes(found.get(5, b"")))
    return Pause(
        _flag(found.get(2)),
        _flag(found.get(3)),
        _flag(found.get(4)),
        receive_frames=number(counts.get(3)),
        transmit_frames=number(counts.get(2)),
    )


def parse_fec(answer: bytes) -> Fec:
    """Read the answer to FEC."""
    found = dict(attributes(answer))
    counts = dict(attributes(found.get(5, b"")))
    return Fec(_named(FEC, found.get(4), "unknown_"), *(_total(counts.get(kind)) for kind in (2, 3, 4)))


def parse_standard_statistics(answer: bytes) -> dict[str, int]:
    """Read the answer to STATS; groups and numbers that have no name here are left out, and so are histograms."""
    found = {}
    for group in _all(answer, 4):
        place = number(dict(attributes(group)).get(2))
        for statistic in _all(group, 4):
            for kind, payload in attributes(statistic):
                name, value = STANDARD_STATISTICS.get((place, kind)), number(payload)
                if name is not None and value is not None:
                    found[name] = value
    return found


def parse_module_page(answer: bytes) -> bytes:
    """Read the answer to MODULE_EEPROM; b"" if it has no data."""
    return dict(attributes(answer)).get(7, b"")


def parse_device(answer: bytes, header: int = _HEADER) -> str | None:
    """Read which device an answer is of."""
    return text(dict(attributes(dict(attributes(answer)).get(header, b""))).get(_DEV_NAME))


class EthtoolNetlink:
    """Asks drivers. Threads may share it; it stays in the network namespace of the thread that made it.

    OSError passes through, with the device as its file name. EOPNOTSUPP: the driver, or the kernel, has no such thing.
    A device is asked by its name, as by the ioctl, so that both mean the same one; the kernel also finds devices by
    their other names, whose answers are refused with ENODEV.
    """

    def __init__(self) -> None:
        self._family = GenericFamily("ethtool")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; closing twice does no harm."""
        self._family.close()

    def link_modes(self, device: str) -> LinkModes:
        """Ask for speed, duplex, autonegotiation, lanes, and what the device can do."""
        return parse_link_modes(self._ask(_LINKMODES, device))

    def link_state(self, device: str) -> LinkState:
        """Ask whether the link is up, and why not."""
        return parse_link_state(self._ask(_LINKSTATE, device))

    def pause(self, device: str) -> Pause:
        """Ask for the settings and counts of pause frames."""
        return parse_pause(self._ask(_PAUSE, device))

    def fec(self, device: str) -> Fec:
        """Ask for the forward error correction in use and what it corrected."""
        return parse_fec(self._ask(_FEC, device))

    def standard_statistics(self, device: str) -> dict[str, int]:
        """Ask for the statistics that standards define; those that the driver sets, which may be none."""
        groups = attribute_u32(_SIZE, len(_GROUPS)) + attribute_u32(_VALUE, (1 << len(_GROUPS)) - 1)
        request = attribute(3 | NESTED, attribute(_NOMASK, b"") + groups)
        return parse_standard_statistics(self._ask(_STATS, device, request))

    def module_page(self, device: str, *, page: int, bank: int, offset: int, length: int, address: int = 0x50) -> bytes:
        """Read from the memory of the module in the port; takes milliseconds a byte range, and CAP_NET_ADMIN.

        Args:
            device: Name of the device.
            page: Number of the page that the upper half, 128 to 255, shows.
            bank: Number of the bank of that page.
            offset: Of the first byte; under 128 the page is 0.
            length: Bytes, of one half alone.
            address: Of the memory on the i2c bus: 0x50, or 0x51 for the diagnostics of an SFP.

        Raises:
            OSError: EINVAL or ERANGE for what is no such range, EPERM without the capability, EIO for an answer of
                another length.
        """
        request = attribute_u32(2, offset) + attribute_u32(3, length)
        for kind, value in ((4, page), (5, bank), (6, address)):
            request += attribute(kind, value.to_bytes(1, sys.byteorder))
        data = parse_module_page(self._ask(_MODULE_EEPROM, device, request))
        if len(data) != length:
            raise OSError(errno.EIO, f"ethtool MODULE_EEPROM: {len(data)} bytes instead of {length}", device)
        return data

    def _ask(self, command: _Command, device: str, request: bytes = b"") -> bytes:
        """Carry out a command on a device; give the attributes of its answer."""
        header = attribute_device(_DEV_NAME, device) + attribute_u32(_FLAGS, command.flags)
        try:
            answer = self._family.ask(command.number, attribute(command.header | NESTED, header) + request)
        except OSError as error:
            raise OSError(error.errno, f"ethtool {command.name}: {error.strerror}", device) from None
        if parse_device(answer, command.header) != device:
            raise OSError(errno.ENODEV, f"ethtool {command.name}: the answer is of another device", device)
        return answer


def _all(data: bytes, wanted: int) -> Iterator[bytes]:
    """Give the payloads of an attribute that may repeat."""
    return (payload for kind, payload in attributes(data) if kind == wanted)


def _flag(payload: bytes | None) -> bool | None:
    value = number(payload)
    return None if value is None else bool(value)


def _named(names: Mapping[int, str], payload: bytes | None, unknown: str = "") -> str | None:
    """Give the word for a number; for one without, what begins as `unknown` says, if it does."""
    value = number(payload)
    if value is None:
        return None
    return names.get(value, f"{unknown}{value}" if unknown else None)


def _total(payload: bytes | None) -> int | None:
    """Read the first of an array of counts, the others of which are those of the lanes; an empty one has none."""
    return None if payload is None or len(payload) < _U64.size else int(_U64.unpack_from(payload)[0])


def _supported(bitset: bytes) -> int:
    """Read the mask of a compact bitset, words of 32 bits: in a set of modes the values are those advertised."""
    words = dict(attributes(bitset)).get(_MASK, b"")
    return sum(
        word << 32 * place for place, (word,) in enumerate(struct.iter_unpack("=I", words[: len(words) // 4 * 4]))
    )
