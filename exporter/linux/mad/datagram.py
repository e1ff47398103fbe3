"""InfiniBand management datagrams (MADs): encoding of requests, decoding of replies.

Layouts: InfiniBand Architecture Specification, volume 1, chapters 13 (header), 14 (subnet management) and 16
(performance management). Every request is a Get: nothing is ever set. Attributes are parsed in `subnet` and
`performance`.
"""

import enum
import struct
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

MAD_SIZE = 256
"""Bytes of a MAD."""

DATA_OFFSET = 64
"""Offset of the attribute, in all management classes used here."""

MAX_HOPS = 63
"""Links of a directed route."""

PERMISSIVE_LID = 0xFFFF
"""Source and destination LID of a MAD that is directed-routed all the way."""

MAX_UNICAST_LID = 0xBFFF
"""Highest LID of a port; multicast LIDs are above."""

_GET, _GET_RESPONSE = 0x01, 0x81
_DIRECTION_BIT = 0x8000
"""D bit in the status of a directed-route SMP: it is on its way back."""

_HEADER = struct.Struct(">BBBBHBBQHHI")
"""BaseVersion, MgmtClass, ClassVersion, Method, Status, HopPointer, HopCount, TransactionID, AttributeID, reserved,
AttributeModifier."""

_INITIAL_PATH_OFFSET = 128

_ZEROS = bytes(MAD_SIZE)

_M_KEY = struct.Struct(">Q")
_LIDS = struct.Struct(">HH")


class MadClass(enum.IntEnum):
    """Management classes: subnet management (LID routed and directed route) and performance management."""

    SUBNET = 0x01
    PERFORMANCE = 0x04
    DIRECTED_ROUTE = 0x81


class Attribute(enum.Enum):
    """Attributes that are read: AttributeID, and whether it belongs to performance management."""

    NODE_DESCRIPTION = (0x0010, False)
    NODE_INFO = (0x0011, False)
    SWITCH_INFO = (0x0012, False)
    PORT_INFO = (0x0015, False)
    SM_INFO = (0x0020, False)
    PORT_INFO_EXTENDED = (0x0033, False)
    VENDOR_PORT_INFO = (0xFF90, False)  # vendor specific, Mellanox: FDR10
    CLASS_PORT_INFO = (0x0001, True)
    PORT_COUNTERS = (0x0012, True)
    PORT_RCV_ERROR_DETAILS = (0x0015, True)
    PORT_XMIT_DISCARD_DETAILS = (0x0016, True)
    PORT_COUNTERS_EXTENDED = (0x001D, True)
    EXTENDED_SPEEDS_COUNTERS = (0x001F, True)
    PORT_XMIT_DATA_SL = (0x0036, True)
    PORT_RCV_DATA_SL = (0x0037, True)

    def __init__(self, number: int, performance: bool) -> None:
        self.number = number
        self.performance = performance


class Problem(enum.Enum):
    """Why a request has no result; the values are label values of `reason`."""

    TIMEOUT = "timeout"
    UNRESPONSIVE = "unresponsive"  # not sent: the node did not respond to earlier requests
    BUSY = "busy"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    MALFORMED = "malformed"
    SEND_FAILED = "send_failed"
    NO_LID = "no_lid"  # the subnet manager has not assigned one; counters can be read by LID only
    DUPLICATE = "duplicate_guid"  # another node has the same GUID
    TOO_MANY = "too_many"  # more nodes than a subnet can have
    STOPPED = "stopped"


NO_RESPONSE = frozenset({Problem.TIMEOUT, Problem.UNRESPONSIVE})
"""Problems of a node from which no datagram arrives."""

DirectedPath: TypeAlias = bytes
"""Initial path of a directed route: the egress port at each node, from the local node on; empty for the local node."""


class Route(NamedTuple):
    """How a node is reached: LID routed, or by directed route where `path` is set.

    Attributes:
        lid: Destination LID; PERMISSIVE_LID with a directed route.
        path: The directed route, or None.
    """

    lid: int
    path: DirectedPath | None = None


Result: TypeAlias = "bytes | Problem"
"""Bytes of the requested attribute, or why there are none."""

ResultHandler: TypeAlias = "Callable[[Any, Result], Iterable[Request] | None]"
"""Called with the tag and the result of a request; returns follow-up requests."""


@dataclass(slots=True, eq=False)
class Request:
    """One Get.

    Attributes:
        destination: Key of the node that processes it: limits apply to each destination.
        route: Route to that node.
        attribute: The attribute to read.
        handler: Called with the result.
        tag: First argument of `handler`.
        modifier: AttributeModifier: a port number in subnet management.
        port: PortSelect in performance management.
    """

    destination: Hashable
    route: Route
    attribute: Attribute
    handler: ResultHandler
    tag: Any = None
    modifier: int = 0
    port: int = 0

    @property
    def mad_class(self) -> MadClass:
        """Management class, which follows from the attribute and the route."""
        if self.attribute.performance:
            return MadClass.PERFORMANCE
        return MadClass.SUBNET if self.route.path is None else MadClass.DIRECTED_ROUTE


def encode_into(
    buffer: bytearray | memoryview, offset: int, request: Request, transaction: int, m_key: int = 0
) -> None:
    """Encode a request into a buffer.

    Args:
        buffer: The buffer; MAD_SIZE bytes from `offset` on are overwritten.
        offset: Where the MAD begins.
        request: The request.
        transaction: TransactionID; the kernel uses the upper 32 bits.
        m_key: M_Key of the subnet, 0 where it has none.

    Raises:
        ValueError: The directed route has more than MAX_HOPS links.
    """
    buffer[offset : offset + MAD_SIZE] = _ZEROS
    mad_class = request.mad_class
    path = request.route.path if mad_class is MadClass.DIRECTED_ROUTE else None
    hops = len(path or b"")
    if hops > MAX_HOPS:
        raise ValueError(f"a directed route of {hops} links; the maximum is {MAX_HOPS}")
    number = request.attribute.number
    _HEADER.pack_into(buffer, offset, 1, mad_class, 1, _GET, 0, 0, hops, transaction, number, 0, request.modifier)
    if mad_class is MadClass.PERFORMANCE:
        buffer[offset + DATA_OFFSET + 1] = request.port
        return
    _M_KEY.pack_into(buffer, offset + 24, m_key)
    if path is not None:
        _LIDS.pack_into(buffer, offset + 32, PERMISSIVE_LID, PERMISSIVE_LID)
        first = offset + _INITIAL_PATH_OFFSET + 1  # byte 0 of the initial path is reserved
        buffer[first : first + hops] = path


def encode(request: Request, transaction: int, m_key: int = 0) -> bytes:
    """Encode a request; arguments and errors as in encode_into."""
    buffer = bytearray(MAD_SIZE)
    encode_into(buffer, 0, request, transaction, m_key)
    return bytes(buffer)


class Reply(NamedTuple):
    """A received MAD with its decoded header.

    Attributes:
        transaction: Lower 32 bits of the TransactionID.
        mad_class: MgmtClass.
        attribute: AttributeID.
        status: Status, without the direction bit.
        is_response: Whether the method is GetResp.
        datagram: All bytes.
    """

    transaction: int
    mad_class: int
    attribute: int
    status: int
    is_response: bool
    datagram: bytes


def decode(datagram: bytes) -> Reply | None:
    """Decode the header of a MAD; None for a datagram that is too short or has another base version."""
    if len(datagram) < MAD_SIZE or datagram[0] != 1:
        return None
    _, mad_class, _, method, status, _, _, transaction, attribute, _, _ = _HEADER.unpack_from(datagram)
    if mad_class == MadClass.DIRECTED_ROUTE:
        status &= ~_DIRECTION_BIT
    return Reply(transaction & 0xFFFFFFFF, mad_class, attribute, status, method == _GET_RESPONSE, datagram)


def result_of(request: Request, reply: Reply) -> Result:
    """Return the attribute that a reply carries, or the problem that its status reports."""
    if not reply.is_response or reply.mad_class != request.mad_class or reply.attribute != request.attribute.number:
        return Problem.MALFORMED
    if reply.status == 0:
        return reply.datagram[DATA_OFFSET:]
    if reply.status & 1:
        return Problem.BUSY
    return Problem.UNSUPPORTED if (reply.status >> 2) & 7 in (1, 2, 3) else Problem.REFUSED
