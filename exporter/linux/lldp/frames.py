"""LLDP: what a neighbour says of itself, in the frames of IEEE 802.1AB and in the files of systemd-networkd.

A frame has TLVs: seven bits of kind, nine of length. The first three (chassis, port, time to live) must be there, in
this order; of the others, one that makes no sense is left out and costs nothing else.
"""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ETHERTYPE = 0x88CC

GROUP = bytes.fromhex("0180c200000e")
"""Group address to which neighbours send: no bridge passes it on."""

MAX_FRAME = 1536
"""Bytes of the longest frame that is taken; neighbours keep to 1500 of contents."""

MAX_FRAMES = 64
"""Neighbours of one port that are taken from a file."""

CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""Bits of a map of capabilities, from the lowest."""

_HEADER = struct.Struct(">6s6sH")
_SIZE = struct.Struct("<Q")
_U16 = struct.Struct(">H")

_END, _CHASSIS, _PORT, _TTL, _PORT_DESCRIPTION, _NAME, _DESCRIPTION, _CAPABILITIES, _ADDRESS = range(9)
_CHASSIS_MAC, _CHASSIS_ADDRESS = 4, 5
_PORT_MAC, _PORT_ADDRESS = 3, 4
_IPV4, _IPV6 = 1, 2


class DecodeError(ValueError):
    """Bytes are no frame of LLDP; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What a neighbour says of itself; a text is empty where it says nothing.

    Attributes:
        chassis: Its identity: a MAC address as `aa:bb:cc:dd:ee:ff`, an IP address, else text.
        port: That of its port, likewise.
        ttl: Seconds for which this holds; 0 says that it holds no more.
        port_description: What it says of its port.
        name: Its system name.
        description: What it says of its system.
        capabilities: Of `CAPABILITIES`, what it has switched on.
        addresses: Its management addresses.
    """

    chassis: str
    port: str
    ttl: int
    port_description: str = ""
    name: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()


def parse_frame(frame: bytes) -> Advertisement:
    """Read a frame with its Ethernet header.

    Raises:
        DecodeError: It is none of LLDP, or it is cut.
    """
    if len(frame) < _HEADER.size:
        raise DecodeError(f"{len(frame)} bytes are no Ethernet frame")
    if (ethertype := _HEADER.unpack_from(frame)[2]) != ETHERTYPE:
        raise DecodeError(f"ethertype {ethertype:#06x} is not {ETHERTYPE:#06x}")
    tlvs = list(_tlvs(frame[:MAX_FRAME], _HEADER.size))
    if [kind for kind, _ in tlvs[:3]] != [_CHASSIS, _PORT, _TTL]:
        raise DecodeError("does not begin with chassis, port and time to live")
    (_, chassis), (_, port), (_, ttl), *others = tlvs
    if len(chassis) < 2 or len(port) < 2 or len(ttl) < 2:
        raise DecodeError("chassis, port or time to live is empty")
    told: dict[int, bytes] = {}
    addresses: dict[str, None] = {}
    for kind, content in others:
        if kind == _ADDRESS:
            if address := _management_address(content):
                addresses[address] = None
        else:
            told.setdefault(kind, content)
    return Advertisement(
        _identity(chassis, _CHASSIS_MAC, _CHASSIS_ADDRESS),
        _identity(port, _PORT_MAC, _PORT_ADDRESS),
        _U16.unpack_from(ttl)[0],
        _text(told.get(_PORT_DESCRIPTION, b"")),
        _text(told.get(_NAME, b"")),
        _text(told.get(_DESCRIPTION, b"")),
        _enabled(told.get(_CAPABILITIES, b"")),
        tuple(addresses),
    )


def split_file(content: bytes) -> list[bytes]:
    """Take apart a file of systemd-networkd: each frame behind its length in eight bytes, the lowest first.

    Raises:
        DecodeError: A length is wrong, or the file is cut.
    """
    frames: list[bytes] = []
    offset = 0
    while offset < len(content) and len(frames) < MAX_FRAMES:
        if len(content) - offset < _SIZE.size:
            raise DecodeError(f"ends within a length, at byte {offset}")
        (size,) = _SIZE.unpack_from(content, offset)
        offset += _SIZE.size
        if not 0 < size <= len(content) - offset:
            raise DecodeError(f"the frame at byte {offset} has {size} bytes, and {len(content) - offset} are left")
        frames.append(content[offset : offset + size])
        offset += size
    return frames


def _tlvs(frame: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Give kind and content of each TLV; the end is where one says so, or where the frame ends."""
    while offset < len(frame):
        if len(frame) - offset < 2:
            raise DecodeError(f"ends within a TLV, at byte {offset}")
        (head,) = _U16.unpack_from(frame, offset)
        kind, size = head >> 9, head & 0x1FF
        offset += 2
        if kind == _END:
            return
        if size > len(frame) - offset:
            raise DecodeError(f"the TLV at byte {offset} has {size} bytes, and {len(frame) - offset} are left")
        yield kind, frame[offset : offset + size]
        offset += size


def _identity(content: bytes, mac: int, address: int) -> str:
    """Write the identity of a chassis or port; the first byte says of which kind it is."""
    kind, value = content[0], content[1:]
    if kind == mac and len(value) == 6:
        return value.hex(":")
    if kind == address and (written := _network_address(value)):
        return written
    return _text(value)


def _text(value: bytes) -> str:
    """Read text; bytes that are no UTF-8 stay as they are, to be shown where the text is."""
    return value.rstrip(b"\0 ").decode("utf-8", "surrogateescape")


def _enabled(content: bytes) -> frozenset[str]:
    if len(content) < 4:
        return frozenset()
    (enabled,) = _U16.unpack_from(content, 2)
    return frozenset(name for place, name in enumerate(CAPABILITIES) if enabled & 1 << place)


def _management_address(content: bytes) -> str:
    """Read a management address: the length of what follows, its family, itself; empty where it is no IP address."""
    size = content[0] if content else 0
    return _network_address(content[1 : 1 + size]) if size < len(content) else ""


def _network_address(value: bytes) -> str:
    """Write a network address behind its family; empty where it is no IP address."""
    if (len(value), value[:1]) in ((5, bytes([_IPV4])), (17, bytes([_IPV6]))):
        return str(ipaddress.ip_address(value[1:]))
    return ""
