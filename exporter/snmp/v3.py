"""Messages of SNMPv3 with the user-based security model (RFC 3412, RFC 3414): bytes in, fields out, and back.

Only the form is checked here: signature and encryption are the session's, which has the keys.
"""

from typing import Final, NamedTuple

from exporter.snmp.ber import (
    OCTET_STRING,
    SEQUENCE,
    encode_integer,
    encode_tlv,
    read_header,
    read_integer,
)
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import V3, Pdu, decode_pdu

AUTHENTICATED: Final = 0x01
ENCRYPTED: Final = 0x02
REPORTABLE: Final = 0x04
LEVEL: Final = AUTHENTICATED | ENCRYPTED
"""msgFlags; the security level is the first two."""

MAX_MESSAGE: Final = 65_507
"""msgMaxSize in bytes: the most that UDP can carry."""

_USM: Final = 3  # the number of the user-based security model


class V3Message(NamedTuple):
    """A message with decoded security parameters, its content not decoded.

    Attributes:
        number: msgID, which is the same in the response.
        flags: msgFlags, see the constants.
        engine_id: msgAuthoritativeEngineID: the agent's.
        boots: msgAuthoritativeEngineBoots.
        time: msgAuthoritativeEngineTime in seconds.
        user: msgUserName.
        signature_offset: Offset of msgAuthenticationParameters in the datagram.
        signature_size: Their size in bytes.
        salt: msgPrivacyParameters.
        encrypted: Whether the content is encrypted.
        content: The scoped PDU, with its tag where it is not encrypted.
    """

    number: int
    flags: int
    engine_id: bytes
    boots: int
    time: int
    user: bytes
    signature_offset: int
    signature_size: int
    salt: bytes
    encrypted: bool
    content: bytes


class ScopedPdu(NamedTuple):
    """A PDU with its contextEngineID and contextName."""

    engine_id: bytes
    context: bytes
    pdu: Pdu


def decode(data: bytes) -> V3Message:
    """Decode a datagram up to its content.

    Raises:
        DecodeError: it is not a v3 message with the user-based security model.
    """
    tag, at, end = read_header(data, 0, len(data))
    if tag != SEQUENCE:
        raise DecodeError(f"byte 0: a message begins with a SEQUENCE, tag 0x{tag:02x} found")
    version, at = read_integer(data, at, end)
    if version != V3:
        raise DecodeError(f"version {version} of SNMP, not 3")
    start, stop = _content(data, at, end, SEQUENCE, "the header")
    number, at = read_integer(data, start, stop)
    _, at = read_integer(data, at, stop)  # msgMaxSize
    flags_at, flags_end = _content(data, at, stop, OCTET_STRING, "the flags")
    if flags_end != flags_at + 1:
        raise DecodeError(f"byte {flags_at}: flags of {flags_end - flags_at} bytes")
    model, _ = read_integer(data, flags_end, stop)
    if model != _USM:
        raise DecodeError(f"security model {model}, not the user-based one ({_USM})")
    parameters_at, content_at = _content(data, stop, end, OCTET_STRING, "the security parameters")
    fields = _parameters(data, parameters_at, content_at)
    flags = data[flags_at]
    tag, start, stop = read_header(data, content_at, end)
    encrypted = tag == OCTET_STRING
    if encrypted != bool(flags & ENCRYPTED) or not (encrypted or tag == SEQUENCE):
        raise DecodeError(f"byte {content_at}: content of tag 0x{tag:02x} under flags 0x{flags:02x}")
    return V3Message(number, flags, *fields, encrypted, data[start if encrypted else content_at : stop])


def _parameters(data: bytes, at: int, stop: int) -> tuple[bytes, int, int, bytes, int, int, bytes]:
    """Decode the security parameters; return them in the order of V3Message."""
    at, stop = _content(data, at, stop, SEQUENCE, "the security parameters")
    engine_at, at = _content(data, at, stop, OCTET_STRING, "the engine's identity")
    engine_id = data[engine_at:at]
    boots, at = read_integer(data, at, stop)
    time, at = read_integer(data, at, stop)
    if not (0 <= boots < 2**31 and 0 <= time < 2**31):
        raise DecodeError(f"boots {boots} and time {time} of the engine: both are 0 to 2^31 - 1")
    user_at, at = _content(data, at, stop, OCTET_STRING, "the user")
    user = data[user_at:at]
    signature_at, at = _content(data, at, stop, OCTET_STRING, "the signature")
    size = at - signature_at
    salt_at, at = _content(data, at, stop, OCTET_STRING, "the salt")
    return engine_id, boots, time, user, signature_at, size, data[salt_at:at]


def _content(data: bytes, at: int, stop: int, expected_tag: int, what: str) -> tuple[int, int]:
    """Return start and end of the content of an element with the expected tag."""
    tag, start, end = read_header(data, at, stop)
    if tag != expected_tag:
        raise DecodeError(f"byte {at}: {what} has tag 0x{tag:02x}")
    return start, end


def decode_scoped(content: bytes) -> ScopedPdu:
    """Decode a scoped PDU in clear text; bytes after it are padding.

    Raises:
        DecodeError: it is not a scoped PDU; if it was encrypted, the key may be wrong.
    """
    at, stop = _content(content, 0, len(content), SEQUENCE, "the content")
    start, at = _content(content, at, stop, OCTET_STRING, "the context's engine")
    engine_id = content[start:at]
    start, at = _content(content, at, stop, OCTET_STRING, "the context's name")
    return ScopedPdu(engine_id, content[start:at], decode_pdu(content, at, stop))


def encode_scoped(engine_id: bytes, context: bytes, pdu: bytes) -> bytes:
    """Encode a scoped PDU with an encoded PDU."""
    return encode_tlv(SEQUENCE, encode_tlv(OCTET_STRING, engine_id) + encode_tlv(OCTET_STRING, context) + pdu)


def encode(
    number: int,
    flags: int,
    engine: tuple[bytes, int, int],
    user: bytes,
    content: bytes,
    *,
    signature_size: int = 0,
    salt: bytes = b"",
) -> tuple[bytes, int]:
    """Encode a message whose signature field is zeros; return it with the offset of the signature.

    Args:
        number: msgID.
        flags: msgFlags, see the constants.
        engine: The authoritative engine's snmpEngineID, boots and time.
        user: msgUserName.
        content: The scoped PDU; with the flag ENCRYPTED it is encrypted, and without its tag.
        signature_size: Size of the signature in bytes.
        salt: msgPrivacyParameters.
    """
    header = encode_integer(number) + encode_integer(MAX_MESSAGE) + bytes((OCTET_STRING, 1, flags))
    header = encode_tlv(SEQUENCE, header + encode_integer(_USM))
    engine_id, boots, time = engine
    privacy_parameters = encode_tlv(OCTET_STRING, salt)
    parameters = encode_tlv(
        SEQUENCE,
        encode_tlv(OCTET_STRING, engine_id)
        + encode_integer(boots)
        + encode_integer(time)
        + encode_tlv(OCTET_STRING, user)
        + encode_tlv(OCTET_STRING, bytes(signature_size))
        + privacy_parameters,
    )
    content = encode_tlv(OCTET_STRING, content) if flags & ENCRYPTED else content
    message = encode_tlv(SEQUENCE, encode_integer(V3) + header + encode_tlv(OCTET_STRING, parameters) + content)
    return message, len(message) - len(content) - len(privacy_parameters) - signature_size
