"""Netlink messages and attributes (nlmsghdr, nlattr): encoding, parsing, and the errors that a kernel answers with.

Layouts: netlink(7), include/uapi/linux/netlink.h. All numbers are in the byte order of the machine.
"""

import errno
import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

MESSAGE = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""

ATTRIBUTE = struct.Struct("=HH")
"""nlattr: length including these four bytes, type."""

ERROR = 2
DONE = 3
REQUEST = 0x1
DUMP_INTERRUPTED = 0x10
DUMP = 0x300

NESTED = 0x8000
"""NLA_F_NESTED, a flag in the type of an attribute; older kernels do not set it."""

TYPE_MASK = 0x3FFF

_U32 = struct.Struct("=I")


class NetlinkError(OSError):
    """The kernel refused a request; `errno` is the code of its NLMSG_ERROR."""


class DumpInterrupted(NetlinkError):  # noqa: N818 - the name of the kernel's flag
    """The kernel set NLM_F_DUMP_INTR: objects changed during the dump, so one may be missing or listed twice."""

    def __init__(self) -> None:
        super().__init__(errno.EINTR, "the listed objects changed during the dump; read it again")


class Message(NamedTuple):
    """One message without its header."""

    kind: int
    flags: int
    sequence: int
    body: bytes


def message(kind: int, flags: int, sequence: int, body: bytes = b"") -> bytes:
    """Encode a message."""
    return MESSAGE.pack(MESSAGE.size + len(body), kind, flags, sequence, 0) + body


def attribute(kind: int, payload: bytes) -> bytes:
    """Encode an attribute, padded to four bytes; a nested one has NESTED in its kind and attributes as its payload."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(payload), kind) + payload + bytes(-len(payload) & 3)


def attribute_u32(kind: int, value: int) -> bytes:
    """Encode an attribute with a 32-bit number."""
    return attribute(kind, _U32.pack(value))


def attribute_text(kind: int, value: str) -> bytes:
    """Encode an attribute with a NUL-terminated string."""
    return attribute(kind, os.fsencode(value) + b"\0")


def attribute_device(kind: int, device: str) -> bytes:
    """Encode an attribute with the name of a network device.

    Raises:
        OSError: ENODEV for an invalid name: the kernel would truncate it and might find another device.
    """
    if not 0 < len(os.fsencode(device)) < 16 or "\0" in device:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), device)
    return attribute_text(kind, device)


def messages(data: bytes) -> Iterator[Message]:
    """Parse the messages of a datagram; a truncated or malformed one ends it."""
    offset, end = 0, len(data)
    while end - offset >= MESSAGE.size:
        length, kind, flags, sequence, _ = MESSAGE.unpack_from(data, offset)
        if length < MESSAGE.size or offset + length > end:
            return
        yield Message(kind, flags, sequence, data[offset + MESSAGE.size : offset + length])
        offset += length + (-length & 3)


def attributes(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Parse attributes in their order: type without flags, payload. A truncated or malformed one ends the list."""
    end = len(data)
    while end - start >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data, start)
        if length < ATTRIBUTE.size or start + length > end:
            return
        yield kind & TYPE_MASK, data[start + ATTRIBUTE.size : start + length]
        start += (length + 3) & -4


def number(payload: bytes | None) -> int | None:
    """Parse an unsigned number of 1, 2, 4 or 8 bytes; None for a missing payload or one of another size."""
    if payload is None or len(payload) not in {1, 2, 4, 8}:
        return None
    return int.from_bytes(payload, sys.byteorder)


def text(payload: bytes | None) -> str | None:
    """Parse a NUL-terminated string; names may contain any byte, and two different names must stay different."""
    if payload is None:
        return None
    return payload.partition(b"\0")[0].decode("utf-8", "backslashreplace")
