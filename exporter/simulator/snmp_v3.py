"""The engine of a simulated agent that speaks SNMPv3: users, keys, boots and time, and the reports that go with them.

It is the authoritative side of what `exporter.snmp.session` is the other side of (RFC 3414, section 3.2).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from exporter.snmp.ber import COUNTER32, encode_oid, encode_value
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import (
    REPORT,
    Pdu,
    encode_pdu,
    encode_varbind,
)
from exporter.snmp.security import User
from exporter.snmp.session import TIME_WINDOW
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
    ScopedPdu,
    V3Message,
    decode,
    decode_scoped,
    encode,
    encode_scoped,
)

_STATISTICS: Final = (1, 3, 6, 1, 6, 3, 15, 1, 1)  # usmStats
_LEVELS, _WINDOWS, _USERS, _ENGINES, _DIGESTS, _DECRYPTIONS = range(1, 7)


class Asked(NamedTuple):
    """A question that may be answered: its PDU, and what makes a datagram of an encoded answer."""

    pdu: Pdu
    wrap: Callable[[bytes], bytes]


class _Keys(NamedTuple):
    user: User
    flags: int
    signer: Signer | None
    cipher: Cipher | None


@dataclass(slots=True)
class Engine:
    """One engine.

    Attributes:
        users: Who may ask.
        engine_id: Its identity.
        boots: How often it has started.
        clock: Seconds, from wherever.
        reports: How often each statistic of usmStats was reported, by its number.
    """

    users: Iterable[User]
    engine_id: bytes = bytes.fromhex("80000000056661627269630001")
    boots: int = 1
    clock: Callable[[], float] = time.monotonic
    reports: dict[int, int] = field(default_factory=dict)
    _started: float = 0.0
    _keys: dict[bytes, _Keys] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the keys, and start the time."""
        self._started = self.clock()
        self.become(self.engine_id)

    def become(self, engine_id: bytes) -> None:
        """Take another identity, as an agent that was replaced."""
        self.engine_id = engine_id
        self._keys = {user.name.encode(): _keys(user, engine_id) for user in self.users}

    def reboot(self, boots: int | None = None) -> None:
        """Start anew; `boots` is then how often, one more than before where not given."""
        self.boots = self.boots + 1 if boots is None else boots
        self._started = self.clock()

    def open(self, data: bytes) -> Asked | bytes | None:
        """Give the question in a datagram, or the report that answers it, or None for what is to be passed over."""
        try:
            message = decode(data)
        except DecodeError:
            return None
        keys = self._keys.get(message.user)
        wrong = self._wrong(data, message, keys)
        if wrong is not None or keys is None:
            signing = keys if wrong == _WINDOWS else None
            return self._report(wrong or _USERS, message, signing)
        try:
            scoped = _content(message, keys)
        except DecodeError:
            return self._report(_DECRYPTIONS, message)
        return Asked(scoped.pdu, partial(self._wrapped, keys, scoped.context, message.number))

    def _wrong(self, data: bytes, message: V3Message, keys: _Keys | None) -> int | None:
        """Give the statistic that counts what is wrong with a message, None where it is well."""
        if message.engine_id != self.engine_id:
            return _ENGINES
        if keys is None:
            return _USERS
        if message.flags & LEVEL != keys.flags:
            return _LEVELS
        if keys.signer is None:
            return None
        right = message.signature_size == keys.signer.size
        if not right or not keys.signer.is_signed(data, message.signature_offset):
            return _DIGESTS
        return _WINDOWS if message.boots != self.boots or abs(message.time - self._time()) > TIME_WINDOW else None

    def _wrapped(self, keys: _Keys, context: bytes, number: int, pdu: bytes) -> bytes:
        boots, now = self.boots, self._time()
        content, salt = encode_scoped(self.engine_id, context, pdu), b""
        if keys.cipher is not None:
            content, salt = keys.cipher.encrypt(content, boots, now)
        size = keys.signer.size if keys.signer is not None else 0
        name = keys.user.name.encode()
        engine = (self.engine_id, boots, now)
        made, at = encode(number, keys.flags, engine, name, content, signature_size=size, salt=salt)
        if keys.signer is None:
            return made
        return made[:at] + keys.signer.sign(made) + made[at + size :]

    def _report(self, statistic: int, message: V3Message, keys: _Keys | None = None) -> bytes | None:
        """Make a report, which is signed where the user is known and its signature was right."""
        self.reports[statistic] = self.reports.get(statistic, 0) + 1
        if not message.flags & REPORTABLE:
            return None
        value = encode_value(COUNTER32, self.reports[statistic])
        pdu = encode_pdu(REPORT, 0, 0, 0, [encode_varbind(encode_oid((*_STATISTICS, statistic, 0)), value)])
        if keys is not None:
            signing = keys._replace(flags=AUTHENTICATED, cipher=None)
            return self._wrapped(signing, b"", message.number, pdu)
        engine = (self.engine_id, self.boots, self._time())
        return encode(message.number, 0, engine, message.user, encode_scoped(self.engine_id, b"", pdu))[0]

    def _time(self) -> int:
        return int(self.clock() - self._started)


def _keys(user: User, engine_id: bytes) -> _Keys:
    flags, signer, cipher = 0, None, None
    if user.authentication is not None:
        flags |= AUTHENTICATED
        signer = Signer(user.authentication, authentication_key(user, engine_id))
    if user.privacy is not None:
        flags |= ENCRYPTED
        cipher = Cipher(user.privacy, privacy_key(user, engine_id))
    return _Keys(user, flags, signer, cipher)


def _content(message: V3Message, keys: _Keys) -> ScopedPdu:
    """Decrypt, where it is, and decode what a message holds."""
    content = message.content
    if keys.cipher is not None:
        content = keys.cipher.decrypt(content, message.salt, message.boots, message.time)
    return decode_scoped(content)
