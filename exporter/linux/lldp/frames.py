"""Parser of LLDP frames (IEEE 802.1AB), and of the files in which systemd-networkd stores them.

A frame consists of TLVs: seven bits of type, nine of length. The first three (Chassis ID, Port ID, Time To Live) are
mandatory, in this order; an optional one that is malformed is skipped.
"""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.linux.lldp.peer_settings import (
    NO_SETTINGS,
    ORGANIZATIONALLY_SPECIFIC,
    PeerSettings,
    parse_peer_settings,
)

ETHERTYPE = 0x88CC

GROUP_ADDRESS = bytes.fromhex("0180c200000e")
"""The Nearest Bridge group address: bridges do not forward it."""

MAX_FRAME = 1536
"""Bytes of the longest frame that is parsed; the payload of a valid one has at most 1500."""

MAX_FRAMES = 64
"""Frames read from one file, which has one for each neighbour of the port."""

CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""System capabilities by their bit, from the lowest."""

_HEADER = struct.Struct(">6s6sH")
_SIZE = struct.Struct("<Q")
_U16 = struct.Struct(">H")

_END, _CHASSIS, _PORT, _TTL, _PORT_DESCRIPTION, _NAME, _DESCRIPTION, _CAPABILITIES, _ADDRESS = range(9)
_CHASSIS_MAC, _CHASSIS_ADDRESS = 4, 5
_PORT_MAC, _PORT_ADDRESS = 3, 4
_IPV4, _IPV6 = 1, 2


class LldpDecodeError(ValueError):
    """Not a valid LLDP frame; the text names the offset and the reason."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The contents of one frame; texts are "" where the TLV is absent.

    Attributes:
        chassis: Chassis ID: a MAC address as `aa:bb:cc:dd:ee:ff`, an IP address, else text.
        port: Port ID, likewise.
        ttl: Time To Live in seconds; 0 for a neighbour that shuts down.
        port_description: Port Description.
        name: System Name.
        description: System Description.
        capabilities: Enabled System Capabilities, of `CAPABILITIES`.
        addresses: Management Addresses that are IP addresses.
        settings: Settings of the port, by organizationally specific TLVs.
    """

    chassis: str
    port: str
    ttl: int
    port_description: str = ""
    name: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()
    settings: PeerSettings = NO_SETTINGS


def parse_frame(frame: bytes) -> Advertisement:
    """Parse a frame, Ethernet header included.

    Raises:
        LldpDecodeError: It is not LLDP, or it is truncated.
    """
    if len(frame) < _HEADER.size:
        raise LldpDecodeError(f"{len(frame)} bytes are not an Ethernet frame")
    if (ethertype := _HEADER.unpack_from(frame)[2]) != ETHERTYPE:
        raise LldpDecodeError(f"ethertype {ethertype:#06x} is not {ETHERTYPE:#06x}")
    tlvs = list(_parse_tlvs(frame[:MAX_FRAME], _HEADER.size))
    if [kind for kind, _ in tlvs[:3]] != [_CHASSIS, _PORT, _TTL]:
        raise LldpDecodeError("does not begin with chassis, port and time to live")
    (_, chassis), (_, port), (_, ttl), *others = tlvs
    if len(chassis) < 2 or len(port) < 2 or len(ttl) < 2:
        raise LldpDecodeError("chassis, port or time to live is empty")
    optional: dict[int, bytes] = {}
    addresses: dict[str, None] = {}
    for kind, content in others:
        if kind == _ADDRESS:
            if address := _management_address(content):
                addresses[address] = None
        elif kind != ORGANIZATIONALLY_SPECIFIC:
            optional.setdefault(kind, content)
    return Advertisement(
        _format_id(chassis, _CHASSIS_MAC, _CHASSIS_ADDRESS),
        _format_id(port, _PORT_MAC, _PORT_ADDRESS),
        _U16.unpack_from(ttl)[0],
        _text(optional.get(_PORT_DESCRIPTION, b"")),
        _text(optional.get(_NAME, b"")),
        _text(optional.get(_DESCRIPTION, b"")),
        _enabled_capabilities(optional.get(_CAPABILITIES, b"")),
        tuple(addresses),
        parse_peer_settings(content for kind, content in others if kind == ORGANIZATIONALLY_SPECIFIC),
    )


def split_networkd_file(content: bytes) -> list[bytes]:
    """Split a file of systemd-networkd into frames: each follows its length, eight bytes in little-endian order.

    Raises:
        LldpDecodeError: A length is invalid, or the file is truncated.
    """
    frames: list[bytes] = []
    offset = 0
    while offset < len(content) and len(frames) < MAX_FRAMES:
        if len(content) - offset < _SIZE.size:
            raise LldpDecodeError(f"ends within a length, at byte {offset}")
        (size,) = _SIZE.unpack_from(content, offset)
        offset += _SIZE.size
        if not 0 < size <= len(content) - offset:
            raise LldpDecodeError(f"the frame at byte {offset} has {size} bytes, and {len(content) - offset} are left")
        frames.append(content[offset : offset + size])
        offset += size
    return frames


def _parse_tlvs(frame: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each TLV, up to the End Of LLDPDU TLV or the end of the frame."""
    while offset < len(frame):
        if len(frame) - offset < 2:
            raise LldpDecodeError(f"ends within a TLV, at byte {offset}")
        (head,) = _U16.unpack_from(frame, offset)
        kind, size = head >> 9, head & 0x1FF
        offset += 2
        if kind == _END:
            return
        if size > len(frame) - offset:
            raise LldpDecodeError(f"the TLV at byte {offset} has {size} bytes, and {len(frame) - offset} are left")
        yield kind, frame[offset : offset + size]
        offset += size


def _format_id(content: bytes, mac: int, address: int) -> str:
    """Format a Chassis ID or Port ID; its first byte is the subtype."""
    kind, value = content[0], content[1:]
    if kind == mac and len(value) == 6:
        return value.hex(":")
    if kind == address and (formatted := _network_address(value)):
        return formatted
    return _text(value)


def _text(value: bytes) -> str:
    """Decode text; bytes that are not UTF-8 are kept as surrogates, for the output to escape."""
    return value.rstrip(b"\0 ").decode("utf-8", "surrogateescape")


def _enabled_capabilities(content: bytes) -> frozenset[str]:
    if len(content) < 4:
        return frozenset()
    (enabled,) = _U16.unpack_from(content, 2)
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if enabled & 1 << bit)


def _management_address(content: bytes) -> str:
    """Parse a Management Address TLV: length, address family, address; "" unless it is an IP address."""
    size = content[0] if content else 0
    return _network_address(content[1 : 1 + size]) if size < len(content) else ""


def _network_address(value: bytes) -> str:
    """Format a network address that follows its family; "" unless it is an IP address."""
    if (len(value), value[:1]) in ((5, bytes([_IPV4])), (17, bytes([_IPV6]))):
        return str(ipaddress.ip_address(value[1:]))
    return ""
