"""The SNMP message around a PDU, by version: a community (v1, v2c), or the user-based security model (v3).

A session encodes a PDU to a datagram and decodes a datagram to a PDU, without I/O. A v3 session first discovers the
agent's engine: its snmpEngineID, from which the keys are derived, and its time, without which the agent rejects
requests. Both change when the agent restarts or is replaced; a Report PDU announces that, and the session then uses the
new values. The transport limits the number of Reports that it processes for one request.
"""

import enum
import time
from collections.abc import Callable
from typing import Final, Protocol

from exporter.snmp.ber import (
    SEQUENCE,
    Oid,
    decode_oid,
    encode_tlv,
)
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import (
    GET,
    REPORT,
    VERSION_NAMES,
    Pdu,
    decode_message,
    encode_message_header,
    encode_pdu,
)
from exporter.snmp.security import Community, Credentials, User
from exporter.snmp.usm import (
    Cipher,
    PasswordKeys,
    Signer,
)
from exporter.snmp.v3 import (
    AUTHENTICATED,
    ENCRYPTED,
    LEVEL,
    REPORTABLE,
    V3Message,
    decode,
    decode_scoped,
    encode,
    encode_scoped,
)

TIME_WINDOW: Final = 150
"""Seconds that a message may be old (RFC 3414, 2.2.3)."""

_USM_STATS: Final = (1, 3, 6, 1, 6, 3, 15, 1, 1)  # usmStats

_MIN_ENGINE_ID, _MAX_ENGINE_ID = 5, 32  # bytes, RFC 3411


class MismatchError(Exception):
    """A well-formed datagram with another community, version, user or time, or without the required signature."""


class Verdict(enum.Enum):
    """What to do after a Report."""

    RESEND = "send again"  # the session has learned what was missing
    FAIL = "give up"


class Session(Protocol):
    """The message around PDUs; see CommunitySession and UserSession.

    Attributes:
        hint: Another possible cause of a timeout, for error texts.
        boots: snmpEngineBoots; None where it is not known.
        engine_id: snmpEngineID; empty where it is not known.
    """

    hint: str
    boots: int | None
    engine_id: bytes

    @property
    def is_ready(self) -> bool:
        """Whether `wrap` can be used; otherwise engine discovery comes first."""

    def discovery(self, number: int) -> bytes:
        """Return the datagram of an engine discovery."""

    def wrap(self, number: int, pdu: bytes) -> bytes:
        """Return a datagram with an encoded PDU; `number` is its request-id."""

    def unwrap(self, data: bytes) -> Pdu:
        """Return the PDU of a datagram; with v3 it may be a Report, whose request_id is then the msgID.

        Raises:
            DecodeError: It is not an SNMP message.
            MismatchError: It does not match this session.
        """

    def handle_report(self, report: Pdu) -> tuple[Verdict, str]:
        """Process a Report that `unwrap` returned; return what to do, and its meaning for an error text."""

    def reset(self) -> None:
        """Discard all that was learned about the agent."""


class CommunitySession:
    """SNMP v1 and v2c: the community, in clear text."""

    hint = " (a wrong community is a possible cause too)"
    is_ready = True

    def __init__(self, credentials: Community) -> None:
        self.boots: int | None = None
        self.engine_id = b""
        self._version = credentials.version
        self._community = credentials.community
        self._header = encode_message_header(credentials.version, credentials.community)

    def discovery(self, number: int) -> bytes:
        """Raise NotImplementedError: these versions have no engine discovery."""
        raise NotImplementedError(number)

    def wrap(self, _: int, pdu: bytes) -> bytes:
        """Return the datagram: version and community, then the PDU."""
        return encode_tlv(SEQUENCE, self._header + pdu)

    def unwrap(self, data: bytes) -> Pdu:
        """Return the PDU of a response with the same version and community."""
        message = decode_message(data)
        if message.version != self._version or message.community != self._community:
            raise MismatchError(f"version {VERSION_NAMES[message.version]}, or another community")
        return message.pdu

    def handle_report(self, report: Pdu) -> tuple[Verdict, str]:
        """Return Verdict.FAIL: these versions have no Reports."""
        return Verdict.FAIL, f"a report of {len(report.varbinds)} variables, which only v3 has"

    def reset(self) -> None:
        """Do nothing: nothing was learned."""


class UserSession:
    """SNMP v3 with the user-based security model, towards one agent.

    Attributes:
        engine_id: snmpEngineID of the agent; empty while it is not known.
        boots: snmpEngineBoots, from a signed message where the user has authentication; None before.

    Args:
        user: The user.
        clock: Monotonic seconds.
        password_keys: Shared by sessions; None for a session on its own.
    """

    hint = " (an agent without v3 is a possible cause too)"

    def __init__(
        self, user: User, clock: Callable[[], float] = time.monotonic, password_keys: PasswordKeys | None = None
    ) -> None:
        self.engine_id = b""
        self.boots: int | None = None
        self._user = user
        self._name = user.name.encode()
        self._clock = clock
        self._password_keys = password_keys or PasswordKeys()
        self._flags = REPORTABLE
        if user.authentication is not None:
            self._flags |= AUTHENTICATED
        if user.privacy is not None:
            self._flags |= ENCRYPTED
        self._signer: Signer | None = None
        self._cipher: Cipher | None = None
        self._boots = 0
        self._engine_time = 0  # snmpEngineTime when it was received
        self._received_at = 0.0
        self._last_report: V3Message | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the engine is known."""
        return bool(self.engine_id)

    def discovery(self, number: int) -> bytes:
        """Return an empty request without a user, which any agent answers with a Report (RFC 3414, section 4)."""
        pdu = encode_pdu(GET, number, 0, 0, ())
        return encode(number, REPORTABLE, (b"", 0, 0), b"", encode_scoped(b"", b"", pdu))[0]

    def wrap(self, number: int, pdu: bytes) -> bytes:
        """Return the datagram, encrypted and signed according to the user's security level."""
        engine = (self.engine_id, self._boots, self._time_now())
        content, salt, size = encode_scoped(self.engine_id, self._user.context, pdu), b"", 0
        if self._cipher is not None:
            content, salt = self._cipher.encrypt(content, engine[1], engine[2])
        if self._signer is not None:
            size = self._signer.size
        message, offset = encode(number, self._flags, engine, self._name, content, signature_size=size, salt=salt)
        if self._signer is None:
            return message
        return b"".join((message[:offset], self._signer.sign(message), message[offset + size :]))

    def unwrap(self, data: bytes) -> Pdu:
        """Return the PDU of a response with the user's security level, or of a Report.

        A Report may have a lower level: an agent that does not know the user cannot sign for it.
        """
        message = decode(data)
        level, required = message.flags & LEVEL, self._flags & LEVEL
        if len(message.engine_id) > _MAX_ENGINE_ID:
            raise MismatchError(f"snmpEngineID of {len(message.engine_id)} bytes")
        if level & AUTHENTICATED:
            self._verify(data, message)
        content = message.content
        if message.encrypted:
            if self._cipher is None:
                raise MismatchError("encrypted by an unknown engine")
            content = self._cipher.decrypt(content, message.salt, message.boots, message.time)
        scoped = decode_scoped(content)
        if scoped.pdu.kind == REPORT:
            self._last_report = message
            return scoped.pdu._replace(request_id=message.number)
        if level != required or message.engine_id != self.engine_id or message.user != self._name:
            raise MismatchError("another engine or user, or a lower security level than that of the request")
        if message.number != scoped.pdu.request_id:
            raise DecodeError(f"message {message.number} answers request {scoped.pdu.request_id}")
        return scoped.pdu

    def handle_report(self, report: Pdu) -> tuple[Verdict, str]:
        """Learn engine and time from a Report, or return why the agent rejects the request."""
        message, self._last_report = self._last_report, None
        if message is None or not report.varbinds:
            return Verdict.FAIL, "a report without variables"
        name = decode_oid(report.varbinds[0][0])
        statistic = name[len(_USM_STATS)] if name[: len(_USM_STATS)] == _USM_STATS and len(name) > 9 else 0
        signed = bool(message.flags & AUTHENTICATED)
        match statistic:
            case 4:  # usmStatsUnknownEngineIDs
                return self._learn_engine(message)
            case 2 if signed or self._signer is None:  # usmStatsNotInTimeWindows
                self._set_time(message)
                return Verdict.RESEND, "the agent's clock differs"
            case 2:
                return Verdict.FAIL, "the agent reports a wrong time (usmStatsNotInTimeWindows) in an unsigned Report"
            case _:
                return Verdict.FAIL, _rejection(statistic, name, self._user)

    def reset(self) -> None:
        """Discard the engine, its time and the keys derived for it."""
        self.engine_id, self.boots = b"", None
        self._signer = self._cipher = None
        self._boots = self._engine_time = 0

    def _learn_engine(self, message: V3Message) -> tuple[Verdict, str]:
        """Store the engine's identity, and derive the keys for it."""
        if len(message.engine_id) < _MIN_ENGINE_ID:
            return Verdict.FAIL, f"the agent's snmpEngineID is too short ({message.engine_id.hex() or 'empty'})"
        if message.engine_id == self.engine_id:  # another exchange has discovered it meanwhile
            return Verdict.RESEND, "the agent rejects its own snmpEngineID"
        self.reset()
        self.engine_id = message.engine_id
        if self._user.authentication is not None:
            key = self._password_keys.authentication_key(self._user, self.engine_id)
            self._signer = Signer(self._user.authentication, key)
        if self._user.privacy is not None:
            key = self._password_keys.privacy_key(self._user, self.engine_id)
            self._cipher = Cipher(self._user.privacy, key)
        self._set_time(message)
        if self._signer is not None:
            self.boots = None  # it was not signed
        return Verdict.RESEND, "the agent reports a new snmpEngineID"

    def _verify(self, data: bytes, message: V3Message) -> None:
        """Check that a message is signed by the agent, and is within the time window."""
        signer = self._signer
        if signer is None or message.engine_id != self.engine_id or message.signature_size != signer.size:
            raise MismatchError("signed by an unknown engine")
        if not signer.is_signed(data, message.signature_offset):
            raise MismatchError("its signature is wrong")
        restarted = message.boots > self._boots
        if not restarted and (message.boots < self._boots or message.time < self._time_now() - TIME_WINDOW):
            raise MismatchError("outside of the time window")
        # The reference is the latest time received and not our clock (RFC 3414, 3.2.7 b): the time of a slow agent is
        # set back with each response, and never leaves the window.
        if restarted or message.time > self._engine_time:
            self._set_time(message)
        self.boots = self._boots

    def _set_time(self, message: V3Message) -> None:
        self._boots, self._engine_time, self._received_at = message.boots, message.time, self._clock()
        self.boots = message.boots

    def _time_now(self) -> int:
        return min(self._engine_time + int(self._clock() - self._received_at), 2**31 - 1)


def _rejection(statistic: int, name: Oid, user: User) -> str:
    """Return in words why an agent rejects a request, by the usmStats object of its Report."""
    match statistic:
        case 1:
            return f"the agent rejects the security level of user {user.name!r}; check authentication and privacy"
        case 3:
            return f"the agent does not know the user {user.name!r}"
        case 5:
            kind = user.authentication.value if user.authentication else "none"
            return f"the agent rejects our signature; check the authentication password and algorithm ({kind})"
        case 6:
            kind = user.privacy.value if user.privacy else "none"
            return f"the agent cannot decrypt our request; check the privacy password and algorithm ({kind})"
    return f"the agent reports {'.'.join(map(str, name)) or 'nothing'}"


def make_session(
    credentials: Credentials,
    clock: Callable[[], float] = time.monotonic,
    password_keys: PasswordKeys | None = None,
) -> CommunitySession | UserSession:
    """Return the session for a community or a v3 user."""
    if isinstance(credentials, Community):
        return CommunitySession(credentials)
    return UserSession(credentials, clock, password_keys)
