"""What stands around a PDU between us and one target, by version: a community, or a user with keys and the time.

A session turns a PDU into a datagram and back, without I/O. That of v3 first has to learn whom it talks to: the
engine's identity, of which the keys are made, and its time, without which it answers nothing. Both change when the
agent restarts or is replaced, and the session follows: it is told so by reports, each of which is heeded once a
question.
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
    encode_head,
    encode_pdu,
)
from exporter.snmp.security import Community, Credentials, User
from exporter.snmp.usm import (
    Cipher,
    Signer,
    authentication_key,
    privacy_key,
)
from exporter.snmp.v3 import (
    AUTHENTICATED,
    ENCRYPTED,
    LEVEL,
    REPORTABLE,
    Message,
    decode,
    decode_scoped,
    encode,
    encode_scoped,
)

TIME_WINDOW: Final = 150
"""Seconds that a message may be old (RFC 3414, 2.2.3)."""

_STATISTICS: Final = (1, 3, 6, 1, 6, 3, 15, 1, 1)  # usmStats

_MAX_ENGINE_ID: Final = 32


class ForeignError(Exception):
    """A datagram that is well formed, but not for us: of another community, version, user or time, or not signed."""


class Verdict(enum.Enum):
    """What to do after a report."""

    AGAIN = "ask again"  # the session has learnt what was missing
    REFUSED = "give up"


class Session(Protocol):
    """What stands around PDUs; see CommunitySession and UserSession.

    Attributes:
        hint: What else silence may mean, for an error.
        boots: How often the agent has started; None where that is not known.
        engine_id: Identity of the agent's engine; empty where it is not known.
    """

    hint: str
    boots: int | None
    engine_id: bytes

    @property
    def known(self) -> bool:
        """Whether `wrap` can be used; else the answer to `hello` comes first."""

    def hello(self, number: int) -> bytes:
        """Make the datagram that asks who is there."""

    def wrap(self, number: int, pdu: bytes) -> bytes:
        """Make a datagram of an encoded PDU; `number` is its request-id."""

    def unwrap(self, data: bytes) -> Pdu:
        """Give the PDU of a datagram; that of v3 may be a REPORT, whose request_id is then the number of the message.

        Raises:
            DecodeError: It is no SNMP.
            ForeignError: It is not for us.
        """

    def reported(self, report: Pdu) -> tuple[Verdict, str]:
        """Give the verdict on a REPORT that `unwrap` gave, and what it says, in words."""

    def forget(self) -> None:
        """Begin anew, as if the agent had never been met."""


class CommunitySession:
    """SNMP v1 and v2c: the community, in the clear."""

    hint = " (a wrong community looks like this too)"
    known = True

    def __init__(self, credentials: Community) -> None:
        self.boots: int | None = None
        self.engine_id = b""
        self._version = credentials.version
        self._community = credentials.community
        self._head = encode_head(credentials.version, credentials.community)

    def hello(self, number: int) -> bytes:
        """Ask nothing: there is nothing to learn."""
        raise NotImplementedError(number)

    def wrap(self, _: int, pdu: bytes) -> bytes:
        """Put the community before a PDU."""
        return encode_tlv(SEQUENCE, self._head + pdu)

    def unwrap(self, data: bytes) -> Pdu:
        """Give the PDU of an answer of the same version and community."""
        message = decode_message(data)
        if message.version != self._version or message.community != self._community:
            raise ForeignError(f"version {VERSION_NAMES[message.version]}, or another community")
        return message.pdu

    def reported(self, report: Pdu) -> tuple[Verdict, str]:
        """Refuse: these versions have no reports."""
        return Verdict.REFUSED, f"a report of {len(report.varbinds)} variables, which only v3 has"

    def forget(self) -> None:
        """Do nothing: there is nothing that was learnt."""


class UserSession:
    """SNMP v3 with the user-based security model, towards one agent.

    Attributes:
        engine_id: Identity of the agent's engine; empty while it is not known.
        boots: How often the agent has started, as it says under signature where there is one; None before.

    Args:
        user: Who asks.
        clock: Monotonic seconds.
    """

    hint = " (an agent that does not speak v3 looks like this too)"

    def __init__(self, user: User, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine_id = b""
        self.boots: int | None = None
        self._user = user
        self._name = user.name.encode()
        self._clock = clock
        self._flags = REPORTABLE
        if user.authentication is not None:
            self._flags |= AUTHENTICATED
        if user.privacy is not None:
            self._flags |= ENCRYPTED
        self._signer: Signer | None = None
        self._cipher: Cipher | None = None
        self._boots = 0
        self._time = 0  # of the agent, when it was learnt
        self._learnt = 0.0
        self._last: Message | None = None

    @property
    def known(self) -> bool:
        """Whether the engine is."""
        return bool(self.engine_id)

    def hello(self, number: int) -> bytes:
        """Ask who is there (RFC 3414, section 4): an empty question, of nobody, that any agent answers by a report."""
        pdu = encode_pdu(GET, number, 0, 0, ())
        return encode(number, REPORTABLE, (b"", 0, 0), b"", encode_scoped(b"", b"", pdu))[0]

    def wrap(self, number: int, pdu: bytes) -> bytes:
        """Encrypt and sign a PDU, as the user has it."""
        engine = (self.engine_id, self._boots, self._now())
        content, salt, size = encode_scoped(self.engine_id, self._user.context, pdu), b"", 0
        if self._cipher is not None:
            content, salt = self._cipher.encrypt(content, engine[1], engine[2])
        if self._signer is not None:
            size = self._signer.size
        message, at = encode(number, self._flags, engine, self._name, content, signature_size=size, salt=salt)
        if self._signer is None:
            return message
        return b"".join((message[:at], self._signer.sign(message), message[at + size :]))

    def unwrap(self, data: bytes) -> Pdu:
        """Give the PDU of an answer that is signed and encrypted as the user has it, or of a report.

        A report may come without either: an agent that does not know us cannot sign for us.
        """
        message = decode(data)
        level, wanted = message.flags & LEVEL, self._flags & LEVEL
        if len(message.engine_id) > _MAX_ENGINE_ID:
            raise ForeignError(f"of an engine whose identity has {len(message.engine_id)} bytes")
        signed = bool(level & AUTHENTICATED)
        if signed:
            self._check(data, message)
        content = message.content
        if message.encrypted:
            if self._cipher is None:
                raise ForeignError("encrypted, by an agent that is not known yet")
            content = self._cipher.decrypt(content, message.salt, message.boots, message.time)
        scoped = decode_scoped(content)
        if scoped.pdu.kind == REPORT:
            self._last = message
            return scoped.pdu._replace(request_id=message.number)
        if level != wanted or message.engine_id != self.engine_id or message.user != self._name:
            raise ForeignError("of another engine or user, or less secure than what was asked")
        if message.number != scoped.pdu.request_id:
            raise DecodeError(f"message {message.number} answers request {scoped.pdu.request_id}")
        return scoped.pdu

    def reported(self, report: Pdu) -> tuple[Verdict, str]:
        """Learn from a report who is there and what time it is there, or hear why the agent will not answer."""
        message, self._last = self._last, None
        if message is None or not report.varbinds:
            return Verdict.REFUSED, "a report that says nothing"
        name = decode_oid(report.varbinds[0][0])
        statistic = name[len(_STATISTICS)] if name[: len(_STATISTICS)] == _STATISTICS and len(name) > 9 else 0
        signed = bool(message.flags & AUTHENTICATED)
        match statistic:
            case 4:  # usmStatsUnknownEngineIDs
                return self._meet(message)
            case 2 if signed or self._signer is None:  # usmStatsNotInTimeWindows
                self._set_clock(message)
                return Verdict.AGAIN, "the agent's clock is another"
            case 2:
                return Verdict.REFUSED, "the agent says that our time is wrong, but does not sign it"
            case _:
                return Verdict.REFUSED, _complaint(statistic, name, self._user)

    def forget(self) -> None:
        """Begin anew, as if the agent had never been met."""
        self.engine_id, self.boots = b"", None
        self._signer = self._cipher = None
        self._boots = self._time = 0

    def _meet(self, message: Message) -> tuple[Verdict, str]:
        """Take the identity of an engine, and make the keys for it."""
        if len(message.engine_id) < 5:  # RFC 3411: 5 to 32 bytes
            return Verdict.REFUSED, f"the agent gives no identity of its engine ({message.engine_id.hex() or 'none'})"
        if message.engine_id == self.engine_id:  # another question that was under way has met it meanwhile
            return Verdict.AGAIN, "the agent does not know the identity that it gave itself"
        self.forget()
        self.engine_id = message.engine_id
        if self._user.authentication is not None:
            key = authentication_key(self._user, self.engine_id)
            self._signer = Signer(self._user.authentication, key)
        if self._user.privacy is not None:
            self._cipher = Cipher(self._user.privacy, privacy_key(self._user, self.engine_id))
        self._set_clock(message)
        if self._signer is not None:
            self.boots = None  # nobody signed it
        return Verdict.AGAIN, "the agent has told who it is"

    def _check(self, data: bytes, message: Message) -> None:
        """See that a message is signed by the agent, and is of now."""
        signer = self._signer
        if signer is None or message.engine_id != self.engine_id or message.signature_size != signer.size:
            raise ForeignError("signed by somebody who is not known yet")
        if not signer.is_signed(data, message.signature_at):
            raise ForeignError("its signature is wrong")
        restarted = message.boots > self._boots
        if not restarted and (message.boots < self._boots or message.time < self._now() - TIME_WINDOW):
            raise ForeignError("it is of an earlier time")
        # What counts is the latest time that the agent told and not ours (RFC 3414, 3.2.7 b): the clock of one that is
        # slow is set back with each answer, and never gets out of the window.
        if restarted or message.time > self._time:
            self._set_clock(message)
        self.boots = self._boots

    def _set_clock(self, message: Message) -> None:
        self._boots, self._time, self._learnt = message.boots, message.time, self._clock()
        self.boots = message.boots

    def _now(self) -> int:
        return min(self._time + int(self._clock() - self._learnt), 2**31 - 1)


def _complaint(statistic: int, name: Oid, user: User) -> str:
    """Say in words why an agent refuses."""
    match statistic:
        case 1:
            return f"it does not speak to the user {user.name!r} at this level; check authentication and privacy"
        case 3:
            return f"it does not know the user {user.name!r}"
        case 5:
            kind = user.authentication.value if user.authentication else "none"
            return f"it finds our signature wrong; check the authentication password and algorithm ({kind})"
        case 6:
            kind = user.privacy.value if user.privacy else "none"
            return f"it cannot decrypt what we send; check the privacy password and algorithm ({kind})"
    return f"it reports {'.'.join(map(str, name)) or 'nothing'}"


def make_session(
    credentials: Credentials, clock: Callable[[], float] = time.monotonic
) -> CommunitySession | UserSession:
    """Make the session that credentials need."""
    if isinstance(credentials, Community):
        return CommunitySession(credentials)
    return UserSession(credentials, clock)
