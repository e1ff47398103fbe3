"""SNMP messages of versions 1 and 2c, and the PDUs and variable bindings of all versions (RFC 1157, 1901, 3416)."""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, NamedTuple

from exporter.snmp.ber import (
    INTEGER,
    MALFORMED,
    NULL,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    UNSIGNED_BYTES,
    Value,
    decode_oid,
    decode_value,
    encode_integer,
    encode_tlv,
    read_header,
    read_integer,
)
from exporter.snmp.errors import DecodeError

V1: Final = 0
V2C: Final = 1
V3: Final = 3
VERSION_NAMES: Final = MappingProxyType({V1: "1", V2C: "2c", V3: "3"})

GET: Final = 0xA0
GETNEXT: Final = 0xA1
RESPONSE: Final = 0xA2
GETBULK: Final = 0xA5
REPORT: Final = 0xA8
PDU_NAMES: Final = MappingProxyType(
    {GET: "GET", GETNEXT: "GETNEXT", RESPONSE: "RESPONSE", GETBULK: "GETBULK", REPORT: "REPORT"}
)

NO_ERROR: Final = 0
TOO_BIG: Final = 1
NO_SUCH_NAME: Final = 2
GEN_ERR: Final = 5
STATUS_NAMES: Final = (
    "noError",
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
)

VarBind = tuple[bytes, int, Value]
"""(object identifier as encoded, tag, value). A plain tuple, since a poll creates thousands of them.

The identifier stays encoded: a walk compares its head with the column's, and looks its tail up in a cache. It is
either empty or valid, so decoding it does not fail. What could not be decoded has the tag MALFORMED, in its place.
"""

_NULL_VALUE: Final = bytes((NULL, 0))


class Pdu(NamedTuple):
    """One protocol data unit.

    For GETBULK, `error_status` carries non-repeaters and `error_index` max-repetitions, as on the wire.
    """

    kind: int
    request_id: int
    error_status: int
    error_index: int
    varbinds: list[VarBind]


class Message(NamedTuple):
    """One datagram: version (0 is v1, 1 is v2c), community and PDU."""

    version: int
    community: bytes
    pdu: Pdu


def status_name(status: int) -> str:
    """Return the name of an error-status (RFC 3416)."""
    return STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else f"error-status {status}"


def decode_message(data: bytes) -> Message:
    """Decode a datagram.

    A malformed value affects only its own variable binding (tag MALFORMED), as long as its length is valid.

    Raises:
        DecodeError: anything else in the datagram is malformed.
    """
    tag, at, end = read_header(data, 0, len(data))
    if tag != SEQUENCE:
        raise DecodeError(f"byte 0: a message begins with a SEQUENCE, tag 0x{tag:02x} found")
    version, at = read_integer(data, at, end)
    if version not in (V1, V2C):
        raise DecodeError(f"version {version} of SNMP, neither 1 (0) nor 2c (1)")
    tag, start, at = read_header(data, at, end)
    if tag != OCTET_STRING:
        raise DecodeError(f"byte {start}: the community is an OCTET STRING, tag 0x{tag:02x} found")
    return Message(version, data[start:at], decode_pdu(data, at, end))


def decode_pdu(data: bytes, at: int, stop: int) -> Pdu:
    """Decode a PDU between two offsets; bytes after it are ignored.

    Raises:
        DecodeError: it is not a PDU; see `decode_message` about its variable bindings.
    """
    kind, at, end = read_header(data, at, stop)
    if kind not in PDU_NAMES:
        raise DecodeError(f"byte {at}: PDU type 0x{kind:02x} is none of {', '.join(PDU_NAMES.values())}")
    request_id, at = read_integer(data, at, end)
    status, at = read_integer(data, at, end)
    index, at = read_integer(data, at, end)
    tag, start, end = read_header(data, at, end)
    if tag != SEQUENCE:
        raise DecodeError(f"byte {at}: the list of variables is a SEQUENCE, tag 0x{tag:02x} found")
    return Pdu(kind, request_id, status, index, _decode_varbinds(data, start, end))


def _decode_varbinds(data: bytes, at: int, stop: int) -> list[VarBind]:
    """Decode the variable bindings between two offsets.

    The loop runs thousands of times in each poll, so it has a fast path for the usual form: every length in one byte,
    a counter, a string or a small number. Everything else is decoded by `_decode_varbind`.
    """
    varbinds: list[VarBind] = []
    append = varbinds.append
    from_bytes = int.from_bytes
    unsigned_bytes = UNSIGNED_BYTES
    # The shortest binding is 6 bytes (0x30 4 6 0 5 0); closer to the end, an offset below could be past the datagram.
    safe = stop - 5
    while at < stop:
        if at < safe and data[at] == SEQUENCE and data[at + 2] == OBJECT_IDENTIFIER:
            size = data[at + 1]
            end = at + 2 + size
            content = at + 6 + data[at + 3]
            # A long-form length (0x80 and up) anywhere makes these sums differ. The last test: the name is complete.
            if (
                size < 0x80
                and content <= end <= stop
                and content + data[content - 1] == end
                and data[content - 3] < 0x80
            ):
                tag = data[content - 2]
                if tag in unsigned_bytes:
                    if content < end <= content + unsigned_bytes[tag]:
                        append((data[at + 4 : content - 2], tag, from_bytes(data[content:end], "big")))
                        at = end
                        continue
                elif tag == OCTET_STRING:
                    append((data[at + 4 : content - 2], tag, data[content:end]))
                    at = end
                    continue
                elif tag == INTEGER and content + 1 == end and data[content] < 0x80:
                    append((data[at + 4 : content - 2], tag, data[content]))
                    at = end
                    continue
        varbind, at = _decode_varbind(data, at, stop)
        append(varbind)
    return varbinds


def _decode_varbind(data: bytes, at: int, stop: int) -> tuple[VarBind, int]:
    tag, start, end = read_header(data, at, stop)
    oid = b""
    try:
        if tag != SEQUENCE:
            raise DecodeError(f"byte {at}: a variable is a SEQUENCE, tag 0x{tag:02x} found")
        tag, name, name_end = read_header(data, start, end)
        if tag != OBJECT_IDENTIFIER:
            raise DecodeError(f"byte {start}: a variable begins with its name, tag 0x{tag:02x} found")
        decode_oid(data[name:name_end])
        oid = data[name:name_end]
        tag, content, content_end = read_header(data, name_end, end)
        return (oid, tag, decode_value(tag, data[content:content_end])), end
    except DecodeError:
        return (oid, MALFORMED, None), end


def encode_message(version: int, community: bytes, pdu: bytes) -> bytes:
    """Encode a message with an encoded PDU."""
    return encode_tlv(SEQUENCE, encode_message_header(version, community) + pdu)


def encode_message_header(version: int, community: bytes) -> bytes:
    """Encode version and community, which come before the PDU and are the same in all messages to one target."""
    return encode_integer(version) + encode_tlv(OCTET_STRING, community)


def encode_pdu(kind: int, request_id: int, status: int, index: int, varbinds: Iterable[bytes]) -> bytes:
    """Encode a PDU from encoded variable bindings; for GETBULK see `Pdu` about `status` and `index`."""
    numbers = encode_integer(request_id) + encode_integer(status) + encode_integer(index)
    return encode_tlv(kind, numbers + encode_tlv(SEQUENCE, b"".join(varbinds)))


def encode_varbind(oid: bytes, value: bytes = _NULL_VALUE) -> bytes:
    """Encode a variable binding: `oid` is content only, `value` has tag and length; a request has NULL."""
    size = len(oid)
    if size + len(value) < 0x7E:  # both lengths in one byte, as nearly always; a request has up to 16 of these
        return bytes((SEQUENCE, size + len(value) + 2, OBJECT_IDENTIFIER, size)) + oid + value
    return encode_tlv(SEQUENCE, encode_tlv(OBJECT_IDENTIFIER, oid) + value)
