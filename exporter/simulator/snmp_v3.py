"""The authoritative SNMPv3 engine of a simulated agent: users, keys, boots, time and reports (RFC 3414, section 3.2).

Its counterpart is `exporter.snmp.session`.
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
    PasswordKeys,
    Signer,
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


class OpenedRequest(NamedTuple):
    """An authenticated request: its PDU, and a function that wraps an encoded response PDU in a message."""

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
        users: Its users.
        engine_id: snmpEngineID.
        boots: snmpEngineBoots.
        clock: Returns seconds of a monotonic clock.
        reports: Counters of usmStats by their number.
        password_keys: Keys of the users' passwords.
    """

    users: Iterable[User]
    engine_id: bytes = bytes.fromhex("80000000056661627269630001")
    boots: int = 1
    clock: Callable[[], float] = time.monotonic
    reports: dict[int, int] = field(default_factory=dict)
    password_keys: PasswordKeys = field(default_factory=PasswordKeys)
    _started: float = 0.0
    _keys: dict[bytes, _Keys] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the keys, and start the time."""
        self._started = self.clock()
        self.set_engine_id(self.engine_id)

    def set_engine_id(self, engine_id: bytes) -> None:
        """Change the engine ID, as of a replaced device."""
        self.engine_id = engine_id
        self._keys = {user.name.encode(): _keys(user, engine_id, self.password_keys) for user in self.users}

    def open(self, data: bytes) -> OpenedRequest | bytes | None:
        """Return the request in a datagram, a report to send, or None where no response is due."""
        try:
            message = decode(data)
        except DecodeError:
            return None
        keys = self._keys.get(message.user)
        statistic = self._failed_check(data, message, keys)
        if statistic is not None or keys is None:
            signing = keys if statistic == _WINDOWS else None
            return self._report(statistic or _USERS, message, signing)
        try:
            scoped = _decrypt(message, keys)
        except DecodeError:
            return self._report(_DECRYPTIONS, message)
        return OpenedRequest(scoped.pdu, partial(self._wrap, keys, scoped.context, message.number))

    def _failed_check(self, data: bytes, message: V3Message, keys: _Keys | None) -> int | None:
        """Return the statistic that counts the failed check of a message; None where all succeed."""
        if message.engine_id != self.engine_id:
            return _ENGINES
        if keys is None:
            return _USERS
        if message.flags & LEVEL != keys.flags:
            return _LEVELS
        if keys.signer is None:
            return None
        if message.signature_size != keys.signer.size or not keys.signer.is_signed(data, message.signature_offset):
            return _DIGESTS
        return _WINDOWS if message.boots != self.boots or abs(message.time - self._time()) > TIME_WINDOW else None

    def _wrap(self, keys: _Keys, context: bytes, number: int, pdu: bytes) -> bytes:
        boots, now = self.boots, self._time()
        content, salt = encode_scoped(self.engine_id, context, pdu), b""
        if keys.cipher is not None:
            content, salt = keys.cipher.encrypt(content, boots, now)
        size = keys.signer.size if keys.signer is not None else 0
        name = keys.user.name.encode()
        engine = (self.engine_id, boots, now)
        encoded, at = encode(number, keys.flags, engine, name, content, signature_size=size, salt=salt)
        if keys.signer is None:
            return encoded
        return encoded[:at] + keys.signer.sign(encoded) + encoded[at + size :]

    def _report(self, statistic: int, message: V3Message, keys: _Keys | None = None) -> bytes | None:
        """Return a report, authenticated where the user is known and the message was."""
        self.reports[statistic] = self.reports.get(statistic, 0) + 1
        if not message.flags & REPORTABLE:
            return None
        value = encode_value(COUNTER32, self.reports[statistic])
        pdu = encode_pdu(REPORT, 0, 0, 0, [encode_varbind(encode_oid((*_STATISTICS, statistic, 0)), value)])
        if keys is not None:
            signing = keys._replace(flags=AUTHENTICATED, cipher=None)
            return self._wrap(signing, b"", message.number, pdu)
        engine = (self.engine_id, self.boots, self._time())
        return encode(message.number, 0, engine, message.user, encode_scoped(self.engine_id, b"", pdu))[0]

    def _time(self) -> int:
        return int(self.clock() - self._started)


def _keys(user: User, engine_id: bytes, password_keys: PasswordKeys) -> _Keys:
    flags, signer, cipher = 0, None, None
    if user.authentication is not None:
        flags |= AUTHENTICATED
        signer = Signer(user.authentication, password_keys.authentication_key(user, engine_id))
    if user.privacy is not None:
        flags |= ENCRYPTED
        cipher = Cipher(user.privacy, password_keys.privacy_key(user, engine_id))
    return _Keys(user, flags, signer, cipher)


def _decrypt(message: V3Message, keys: _Keys) -> ScopedPdu:
    """Decrypt the scoped PDU of a message, if it is encrypted, and decode it."""
    content = message.content
    if keys.cipher is not None:
        content = keys.cipher.decrypt(content, message.salt, message.boots, message.time)
    return decode_scoped(content)
