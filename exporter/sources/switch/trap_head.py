"""The first fields of a trap or inform: whether its credentials can be those of a target, before pysnmp gets it.

pysnmp decodes a whole datagram before it compares a community: 0.4 s of the event loop for 64 kB. The fields that are
read here come first, cost microseconds at any size, and are not secret except for the community. A signature is
checked by pysnmp, so what passes is not yet accepted.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from exporter.snmp import v3
from exporter.snmp.ber import OCTET_STRING, SEQUENCE, read_header, read_integer
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import V1, V2C, V3
from exporter.snmp.security import Community
from exporter.sources.switch.trap_credentials import Security, security_of

MAX_BYTES: Final = 4096
"""Maximum size of a datagram: above the 1472 bytes that every receiver should accept (RFC 3417, section 3.2)."""

TOO_LARGE, MALFORMED, CREDENTIALS = "too_large", "malformed", "credentials"
"""Reasons to refuse a datagram."""

_NOTIFICATIONS: Final = frozenset({(V1, 0xA4), (V2C, 0xA6), (V2C, 0xA7)})
"""Version and PDU type: Trap-PDU of version 1, InformRequest-PDU and SNMPv2-Trap-PDU (RFC 1157, RFC 3416)."""


class TrapSender(NamedTuple):
    """A target whose traps are accepted from an address.

    Attributes:
        target: Its name.
        security: None as long as its credentials cannot be read.
        engine_id: Its snmpEngineID, which signs its traps of version 3; empty where it is not configured.
    """

    target: str
    security: Security | None
    engine_id: bytes = b""


def refusal(datagram: bytes, senders: Sequence[TrapSender], own_engine_id: bytes) -> str | None:
    """Return why a datagram is refused, None where pysnmp has to check it.

    Args:
        datagram: The datagram.
        senders: The targets of the address that it comes from.
        own_engine_id: Our snmpEngineID, which signs informs.
    """
    if len(datagram) > MAX_BYTES:
        return TOO_LARGE
    try:
        _, at, end = _element(datagram, 0, len(datagram), SEQUENCE)
        version, at = read_integer(datagram, at, end)
        if version == V3:
            right = _is_v3_right(v3.decode(datagram), senders, own_engine_id)
        else:
            right = _is_community_right(datagram, version, at, end, senders)
    except DecodeError:
        return MALFORMED
    return None if right else CREDENTIALS


def _is_community_right(datagram: bytes, version: int, at: int, end: int, senders: Sequence[TrapSender]) -> bool:
    """Return whether the community of a message of version 1 or 2c is that of a sender.

    Raises:
        DecodeError: It is not a trap or inform.
    """
    _, start, at = _element(datagram, at, end, OCTET_STRING)
    kind, _, _ = read_header(datagram, at, end)
    if (version, kind) not in _NOTIFICATIONS:
        raise DecodeError(f"byte {at}: PDU type 0x{kind:02x} of version {version} is neither a trap nor an inform")
    security = security_of(Community(datagram[start:at]))
    return any(one.security == security for one in senders)


def _is_v3_right(message: v3.V3Message, senders: Sequence[TrapSender], own_engine_id: bytes) -> bool:
    """Return whether user, engine and level can be those of a sender, or its user discovers our engine."""
    level = 1 + bool(message.flags & v3.AUTHENTICATED) + bool(message.flags & v3.ENCRYPTED)
    for _, security, engine_id in senders:
        if security is None or not security.is_user:
            continue
        if not message.engine_id:  # the discovery that begins an inform (RFC 3414, section 4)
            return True
        is_engine = message.engine_id in (own_engine_id, engine_id)
        if is_engine and message.user == security.name.encode() and level >= security.level:
            return True
    return False


def _element(data: bytes, at: int, stop: int, expected: int) -> tuple[int, int, int]:
    tag, start, end = read_header(data, at, stop)
    if tag != expected:
        raise DecodeError(f"byte {at}: tag 0x{tag:02x}, not 0x{expected:02x}")
    return tag, start, end
