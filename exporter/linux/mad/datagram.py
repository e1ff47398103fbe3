"""Management datagrams (MADs) of InfiniBand: requests to bytes, replies to what they carry.

Layouts: InfiniBand Architecture Specification, volume 1, chapters 13 (header), 14 (subnet management) and 16
(performance management). Every datagram here is a Get: nothing is ever set. What an attribute holds is read in
`mad_subnet` and `mad_counters`.
"""

import enum
import struct
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

SIZE = 256
"""Bytes of every datagram."""

DATA = 64
"""Where the attribute begins, in all classes that are spoken here."""

MAX_HOPS = 63
"""Links that a directed route may have."""

PERMISSIVE = 0xFFFF
"""The LID that stands for none: both ends of a directed route."""

MAX_UNICAST = 0xBFFF
"""Highest LID of a port; those above are of groups."""

_GET, _GET_RESPONSE = 0x01, 0x81
_DIRECTION = 0x8000
"""In the status of a reply by directed route: it is on its way back."""

_HEADER = struct.Struct(">BBBBHBBQHHI")
"""Base version, class, class version, method, status, hop pointer, hop count, transaction, attribute, -, modifier."""

_PATH = 128
"""Where a directed route stands."""

_ZEROS = bytes(SIZE)

_M_KEY = struct.Struct(">Q")
_LIDS = struct.Struct(">HH")


class Class(enum.IntEnum):
    """Management classes."""

    SUBNET = 0x01
    PERFORMANCE = 0x04
    DIRECTED = 0x81


class Attribute(enum.Enum):
    """What can be asked for: number, and whether it is of performance management."""

    NODE_DESCRIPTION = (0x0010, False)
    NODE_INFO = (0x0011, False)
    SWITCH_INFO = (0x0012, False)
    PORT_INFO = (0x0015, False)
    SM_INFO = (0x0020, False)
    PORT_INFO_EXTENDED = (0x0033, False)
    VENDOR_PORT_INFO = (0xFF90, False)  # of Mellanox: FDR10
    CLASS_PORT_INFO = (0x0001, True)
    PORT_COUNTERS = (0x0012, True)
    RECEIVE_ERROR_DETAILS = (0x0015, True)
    TRANSMIT_DISCARD_DETAILS = (0x0016, True)
    PORT_COUNTERS_EXTENDED = (0x001D, True)
    EXTENDED_SPEEDS_COUNTERS = (0x001F, True)
    TRANSMIT_DATA_BY_SL = (0x0036, True)
    RECEIVE_DATA_BY_SL = (0x0037, True)

    def __init__(self, number: int, performance: bool) -> None:
        self.number = number
        self.performance = performance


class Problem(enum.Enum):
    """Why there is no answer; the values are words for labels."""

    TIMEOUT = "timeout"
    SILENT = "silent"  # its node did not answer what was asked before, so it was not asked
    BUSY = "busy"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    MALFORMED = "malformed"
    SEND = "send"
    NO_LID = "no_lid"  # the subnet manager has not given it one, without which counters cannot be asked for
    DUPLICATE = "duplicate_guid"  # another node goes by the same GUID
    TOO_MANY = "too_many"  # more nodes than a subnet can have
    STOPPED = "stopped"


NO_ANSWER = frozenset({Problem.TIMEOUT, Problem.SILENT})
"""Problems of one that says nothing at all."""

Path: TypeAlias = bytes
"""A directed route: the number of the port to leave by at each node, beginning at this one; empty for this one."""


class Route(NamedTuple):
    """How a node is reached: by LID once it has one, or link by link where `path` is given.

    Attributes:
        lid: Its LID; PERMISSIVE by directed route.
        path: The directed route, or None.
    """

    lid: int
    path: Path | None = None


Answer: TypeAlias = "bytes | Problem"
"""The attribute's bytes, or why there are none."""

Then: TypeAlias = "Callable[[Any, Answer], Iterable[Request] | None]"
"""Takes the tag of a request and its answer, and gives what is to be asked next."""


@dataclass(slots=True, eq=False)
class Request:
    """One question.

    Attributes:
        destination: Whom it burdens: requests of one destination are not in flight together.
        route: How that is reached.
        attribute: What is asked for.
        then: Is told the answer.
        tag: For `then`.
        modifier: The attribute's modifier: a port's number in subnet management.
        port: The port that is selected in performance management.
    """

    destination: Hashable
    route: Route
    attribute: Attribute
    then: Then
    tag: Any = None
    modifier: int = 0
    port: int = 0

    @property
    def mad_class(self) -> Class:
        """Give its management class."""
        if self.attribute.performance:
            return Class.PERFORMANCE
        return Class.SUBNET if self.route.path is None else Class.DIRECTED


def encode_into(buffer: bytearray | memoryview, at: int, request: Request, transaction: int, m_key: int = 0) -> None:
    """Write a request.

    Args:
        buffer: Where to; its SIZE bytes from `at` on are written anew.
        at: Where in it.
        request: What is asked.
        transaction: What its reply is recognised by; the upper half is the kernel's.
        m_key: The key of subnet management, where the fabric is protected by one.

    Raises:
        ValueError: Its directed route is longer than any.
    """
    buffer[at : at + SIZE] = _ZEROS
    mad_class = request.mad_class
    path = request.route.path if mad_class is Class.DIRECTED else None
    hops = len(path or b"")
    if hops > MAX_HOPS:
        raise ValueError(f"a route of {hops} links; {MAX_HOPS} are the most")
    number = request.attribute.number
    _HEADER.pack_into(buffer, at, 1, mad_class, 1, _GET, 0, 0, hops, transaction, number, 0, request.modifier)
    if mad_class is Class.PERFORMANCE:
        buffer[at + DATA + 1] = request.port
        return
    _M_KEY.pack_into(buffer, at + 24, m_key)
    if path is not None:
        _LIDS.pack_into(buffer, at + 32, PERMISSIVE, PERMISSIVE)
        buffer[at + _PATH + 1 : at + _PATH + 1 + hops] = path  # the first place is no hop


def encode(request: Request, transaction: int, m_key: int = 0) -> bytes:
    """Give the bytes of a request; as encode_into."""
    buffer = bytearray(SIZE)
    encode_into(buffer, 0, request, transaction, m_key)
    return bytes(buffer)


class Reply(NamedTuple):
    """A datagram that came: what it answers, and whether that is well.

    Attributes:
        transaction: The lower half of its transaction number.
        mad_class: Its class.
        attribute: Number of its attribute.
        status: As the header has it, without the direction bit.
        is_response: Whether it is the answer to a Get.
        datagram: All of it.
    """

    transaction: int
    mad_class: int
    attribute: int
    status: int
    is_response: bool
    datagram: bytes


def decode(datagram: bytes) -> Reply | None:
    """Read the header of a datagram; None for what is none."""
    if len(datagram) < SIZE or datagram[0] != 1:
        return None
    _, mad_class, _, method, status, _, _, transaction, attribute, _, _ = _HEADER.unpack_from(datagram)
    if mad_class == Class.DIRECTED:
        status &= ~_DIRECTION
    return Reply(transaction & 0xFFFFFFFF, mad_class, attribute, status, method == _GET_RESPONSE, datagram)


def answer_of(request: Request, reply: Reply) -> Answer:
    """Give what a reply says to a request: its attribute, or what is wrong with it."""
    if not reply.is_response or reply.mad_class != request.mad_class or reply.attribute != request.attribute.number:
        return Problem.MALFORMED
    if reply.status == 0:
        return reply.datagram[DATA:]
    if reply.status & 1:
        return Problem.BUSY
    return Problem.UNSUPPORTED if (reply.status >> 2) & 7 in (1, 2, 3) else Problem.REFUSED
