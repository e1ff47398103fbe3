"""Basic Encoding Rules as used by SNMP: tags, lengths, numbers, identifiers and typed values (X.690, RFC 3416).

The decoder accepts known deviations of real agents whose meaning is clear: padded integers, padded lengths, unsigned
values with the top bit set. Everything else raises `DecodeError`, and no other exception. Nothing here recurses, and
every length is checked against the bytes received, so malformed input cannot exhaust stack or memory.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, NamedTuple

from exporter.snmp.errors import DecodeError

Oid = tuple[int, ...]
"""An object identifier as numbers, `(1, 3, 6, 1, …)`; also the index part of one."""

Value = int | bytes | Oid | None
"""int for the number types, bytes for strings, addresses and Opaque, numbers for an OID, None for types without a
value."""

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
IP_ADDRESS: Final = 0x40
COUNTER32: Final = 0x41
GAUGE32: Final = 0x42
TIME_TICKS: Final = 0x43
OPAQUE: Final = 0x44
COUNTER64: Final = 0x46
UINTEGER32: Final = 0x47
NO_SUCH_OBJECT: Final = 0x80
NO_SUCH_INSTANCE: Final = 0x81
END_OF_MIB_VIEW: Final = 0x82
MALFORMED: Final = -1
"""Not a BER tag: marks a variable binding whose value could not be decoded."""

TAG_NAMES: Final = MappingProxyType(
    {
        INTEGER: "INTEGER",
        OCTET_STRING: "OCTET STRING",
        NULL: "NULL",
        OBJECT_IDENTIFIER: "OBJECT IDENTIFIER",
        IP_ADDRESS: "IpAddress",
        COUNTER32: "Counter32",
        GAUGE32: "Gauge32",
        TIME_TICKS: "TimeTicks",
        OPAQUE: "Opaque",
        COUNTER64: "Counter64",
        UINTEGER32: "UInteger32",
        NO_SUCH_OBJECT: "noSuchObject",
        NO_SUCH_INSTANCE: "noSuchInstance",
        END_OF_MIB_VIEW: "endOfMibView",
        MALFORMED: "malformed",
    }
)

UNSIGNED_BYTES: Final = MappingProxyType({COUNTER32: 4, GAUGE32: 4, TIME_TICKS: 4, UINTEGER32: 4, COUNTER64: 8})
"""Unsigned types, and the size of their largest value in bytes."""

VALUELESS: Final = frozenset((NULL, NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_MIB_VIEW))
"""Types that carry no value: NULL and the three exceptions of SNMPv2."""

_INTEGER_BYTES: Final = 8  # 4 in SMIv2, but some agents send 64-bit counters as INTEGER
_LENGTH_BYTES: Final = 4
_MAX_SUBIDENTIFIER: Final = 2**32 - 1
_MAX_SUBIDENTIFIERS: Final = 128  # RFC 3416, section 4.1
_MAX_IDENTIFIER_BYTES: Final = 5 * _MAX_SUBIDENTIFIERS


class Typed(NamedTuple):
    """A value with the tag it has on the wire."""

    tag: int
    value: Value


# --- decoding ----------------------------------------------------------------------------------------------------


def read_header(data: bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Read tag and length at offset `at`; return (tag, start of content, end of content), all within `stop`.

    Raises:
        DecodeError: the header is truncated, the length is indefinite or too large, or the content ends after `stop`.
    """
    if at + 2 > stop:
        raise DecodeError(f"byte {at}: a tag and a length were expected, {max(stop - at, 0)} bytes are left")
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= 0x80:
        count = length & 0x7F
        if count == 0:
            raise DecodeError(f"byte {at + 1}: indefinite length, which SNMP forbids")
        field = data[start : min(start + count, stop)]
        length = int.from_bytes(field, "big")
        # Padding with zeros is valid BER, so the length is checked and not the number of its bytes.
        if len(field) < count or length >= 1 << 8 * _LENGTH_BYTES:
            raise DecodeError(f"byte {at + 1}: a length of {count} bytes")
        start += count
    if start + length > stop:
        raise DecodeError(f"byte {at}: {length} bytes announced, {stop - start} are left")
    return tag, start, start + length


def read_integer(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Read an INTEGER at `at`; return (value, offset after it).

    Raises:
        DecodeError: it has another type, is empty, or is longer than 64 bits.
    """
    tag, start, end = read_header(data, at, stop)
    if tag != INTEGER:
        raise DecodeError(f"byte {at}: INTEGER expected, tag 0x{tag:02x} found")
    return _signed(data[start:end]), end


def decode_value(tag: int, content: bytes) -> Value:
    """Decode the content of a variable of type `tag`.

    Unsigned types are decoded as unsigned even if the top bit is set: agents that omit the leading zero are common.

    Raises:
        DecodeError: the type is unknown, or the content is not a value of the type.
    """
    if tag in UNSIGNED_BYTES:
        return _unsigned(tag, content)
    if tag == INTEGER:
        return _signed(content)
    if tag in (OCTET_STRING, OPAQUE):
        return content
    if tag == OBJECT_IDENTIFIER:
        return decode_oid(content)
    if tag == IP_ADDRESS and len(content) == 4:
        return content
    if tag in VALUELESS:
        return None
    raise DecodeError(f"{TAG_NAMES.get(tag, f'unknown type 0x{tag:02x}')} of {len(content)} bytes")


def decode_oid(content: bytes) -> Oid:
    """Decode an object identifier; an empty one, which some agents send for "none", is the empty tuple.

    Raises:
        DecodeError: the last number is truncated, or the identifier is longer than the maximum.
    """
    numbers = decode_index(content)
    if not numbers:
        return ()
    first = min(numbers[0] // 40, 2)
    return (first, numbers[0] - 40 * first, *numbers[1:])


def decode_index(content: bytes) -> Oid:
    """Decode the sub-identifiers of a row's index, which follow the column in an object identifier.

    Numbers above 2^32 - 1 are invalid but harmless, and are accepted.

    Raises:
        DecodeError: the last number is truncated, or there are more numbers than the maximum.
    """
    if content and content[-1] & 0x80:
        raise DecodeError(f"object identifier {content[:32].hex()} ends inside a number")
    # One number of 60,000 bytes would take a second to decode, and could not be printed.
    if len(content) > _MAX_IDENTIFIER_BYTES:
        raise DecodeError(f"object identifier of {len(content)} bytes")
    if content.isascii():  # all numbers below 128, one byte each
        return tuple(content)
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return tuple(numbers)


def _signed(content: bytes) -> int:
    if not 1 <= len(content) <= _INTEGER_BYTES:
        raise DecodeError(f"INTEGER of {len(content)} bytes")
    return int.from_bytes(content, "big", signed=True)


def _unsigned(tag: int, content: bytes) -> int:
    value = int.from_bytes(content, "big")
    if not content or value >> 8 * UNSIGNED_BYTES[tag]:
        raise DecodeError(f"{TAG_NAMES[tag]} of {len(content)} bytes: {content[:32].hex()}")
    return value


# --- encoding ----------------------------------------------------------------------------------------------------


def encode_tlv(tag: int, content: bytes) -> bytes:
    """Encode an element: tag, length and `content`."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def encode_integer(value: int, tag: int = INTEGER) -> bytes:
    """Encode a number in the fewest bytes that preserve its sign; unsigned types are encoded the same way."""
    size = (value.bit_length() if value >= 0 else (value + 1).bit_length()) // 8 + 1
    return encode_tlv(tag, value.to_bytes(size, "big", signed=True))


def encode_oid(oid: Oid) -> bytes:
    """Encode the content of an object identifier, without tag and length; the empty one has no bytes.

    Raises:
        ValueError: fewer than two numbers, or a number that is out of range.
    """
    if not oid:
        return b""
    if len(oid) < 2 or not 0 <= oid[0] <= 2 or oid[1] < 0 or (oid[0] < 2 and oid[1] > 39):
        raise ValueError(f"{format_oid(oid)} does not begin like an object identifier")
    return encode_index((oid[0] * 40 + oid[1], *oid[2:]))


def encode_index(numbers: Iterable[int]) -> bytes:
    """Encode the tail of an object identifier, in base 128.

    Raises:
        ValueError: a number is negative or above 2^32 - 1.
    """
    out = bytearray()
    for number in numbers:
        if not 0 <= number <= _MAX_SUBIDENTIFIER:
            raise ValueError(f"{number} cannot be a part of an object identifier (0 to 2^32 - 1)")
        if number >= 0x80:
            shift = (number.bit_length() - 1) // 7 * 7
            while shift:
                out.append(0x80 | number >> shift & 0x7F)
                shift -= 7
        out.append(number & 0x7F)
    return bytes(out)


def encode_value(tag: int, value: Value) -> bytes:
    """Encode a typed value with its tag and length.

    Raises:
        ValueError: the value does not fit the type.
    """
    if tag in UNSIGNED_BYTES and isinstance(value, int) and 0 <= value < 1 << 8 * UNSIGNED_BYTES[tag]:
        return encode_integer(value, tag)
    if tag == INTEGER and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return encode_integer(value)
    if tag in (OCTET_STRING, OPAQUE) and isinstance(value, bytes):
        return encode_tlv(tag, value)
    if tag == IP_ADDRESS and isinstance(value, bytes) and len(value) == 4:
        return encode_tlv(tag, value)
    if tag == OBJECT_IDENTIFIER and isinstance(value, tuple):
        return encode_tlv(tag, encode_oid(value))
    if tag in VALUELESS and value is None:
        return bytes((tag, 0))
    raise ValueError(f"{TAG_NAMES.get(tag, hex(tag))} cannot be {value!r:.80}")


# --- text --------------------------------------------------------------------------------------------------------


def parse_oid(text: str) -> Oid:
    """Parse `1.3.6.1` or `.1.3.6.1`.

    Raises:
        ValueError: it is not numbers separated by dots, or its first two numbers are invalid.
    """
    parts = text.removeprefix(".").split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 10 for part in parts):
        raise ValueError(f"{text!r:.80} is not an object identifier: numbers between dots, such as 1.3.6.1.2.1.1.3.0")
    oid = tuple(map(int, parts))
    encode_oid(oid)
    return oid


def format_oid(oid: Oid) -> str:
    """Format an object identifier as `1.3.6.1`."""
    return ".".join(map(str, oid))
