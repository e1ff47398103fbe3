"""The user-based security model of SNMPv3: keys from passwords, signatures, encryption (RFC 3414, 3826, 7860).

Functions and small classes without I/O. The primitives are those of hashlib and of the package cryptography, which is
loaded only for users with encryption.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from exporter.snmp.errors import DecodeError
from exporter.snmp.security import Authentication, Privacy, User

_PASSWORD_BYTES: Final = 2**20
"""Bytes of the repeated password that are hashed to a key: a megabyte, so that guessing is slow."""

_SALT_BYTES: Final = 8
_DES_BLOCK: Final = 8


class Algorithm(NamedTuple):
    """An authentication protocol: the name of its hash, and the length of the truncated digest in bytes."""

    hash: str
    size: int


ALGORITHMS: Final = MappingProxyType(
    {
        Authentication.MD5: Algorithm("md5", 12),
        Authentication.SHA: Algorithm("sha1", 12),
        Authentication.SHA224: Algorithm("sha224", 16),
        Authentication.SHA256: Algorithm("sha256", 24),
        Authentication.SHA384: Algorithm("sha384", 32),
        Authentication.SHA512: Algorithm("sha512", 48),
    }
)
"""The first two are from RFC 3414, the others from RFC 7860."""

KEY_BYTES: Final = MappingProxyType(
    {
        Privacy.DES: 16,  # eight of the key, eight of the pre-IV
        Privacy.AES: 16,
        Privacy.AES192: 24,
        Privacy.AES256: 32,
        Privacy.AES192C: 24,
        Privacy.AES256C: 32,
    }
)


MAX_KEYS: Final = 256
KEY_SECONDS: Final = 3600.0
"""Passwords whose keys are kept, and how long: passwords are changed."""


def password_key(authentication: Authentication, password: bytes) -> bytes:
    """Derive a key from a password (RFC 3414, A.2). It costs milliseconds, see `PasswordKeys`."""
    repeated = password * (_PASSWORD_BYTES // len(password) + 1)
    return hashlib.new(ALGORITHMS[authentication].hash, repeated[:_PASSWORD_BYTES]).digest()


def localized_key(authentication: Authentication, key: bytes, engine_id: bytes) -> bytes:
    """Derive the key of one engine from the key of a password (RFC 3414, 2.6)."""
    return hashlib.new(ALGORITHMS[authentication].hash, key + engine_id + key).digest()


class PasswordKeys:
    """Derives the keys of users, and keeps those of their passwords for a while: many switches share passwords.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._keys: dict[tuple[Authentication, bytes], tuple[float, bytes]] = {}  # oldest first

    def authentication_key(self, user: User, engine_id: bytes) -> bytes:
        """Return the key that signs a user's messages to an engine."""
        assert user.authentication is not None  # noqa: S101  # called only for users with authentication
        key = self._password_key(user.authentication, user.authentication_password)
        return localized_key(user.authentication, key, engine_id)

    def privacy_key(self, user: User, engine_id: bytes) -> bytes:
        """Return the key that encrypts a user's messages to an engine, in the length of the algorithm."""
        assert user.authentication is not None  # noqa: S101  # User has no encryption without it
        assert user.privacy is not None  # noqa: S101  # called only for users with encryption
        key = self._password_key(user.authentication, user.privacy_password)
        key = localized_key(user.authentication, key, engine_id)
        size = KEY_BYTES[user.privacy]
        extend = _extend_reeder if user.privacy in (Privacy.AES192C, Privacy.AES256C) else _extend_blumenthal
        while len(key) < size:
            key = extend(user.authentication, key, engine_id)
        return key[:size]

    def _password_key(self, authentication: Authentication, password: bytes) -> bytes:
        now = self._clock()
        self._keys = {one: known for one, known in self._keys.items() if now - known[0] < KEY_SECONDS}
        known = self._keys.get((authentication, password))
        if known is None:
            if len(self._keys) >= MAX_KEYS:
                del self._keys[next(iter(self._keys))]
            known = self._keys[authentication, password] = (now, password_key(authentication, password))
        return known[1]


def _extend_blumenthal(authentication: Authentication, key: bytes, _: bytes) -> bytes:
    """Append the hash of the key so far (draft-blumenthal-aes-usm-04)."""
    return key + hashlib.new(ALGORITHMS[authentication].hash, key).digest()


def _extend_reeder(authentication: Authentication, key: bytes, engine_id: bytes) -> bytes:
    """Append the key derived from the last digest as if that were a password (draft-reeder-snmpv3-usm-3desede)."""
    size = hashlib.new(ALGORITHMS[authentication].hash).digest_size
    return key + localized_key(authentication, password_key(authentication, key[-size:]), engine_id)


class Signer:
    """Signs messages to one engine, and verifies its signatures.

    Args:
        authentication: The algorithm.
        key: The user's key for the engine.
    """

    def __init__(self, authentication: Authentication, key: bytes) -> None:
        algorithm = ALGORITHMS[authentication]
        self.size = algorithm.size
        self._keyed = hmac.new(key, digestmod=algorithm.hash)  # the two passes over the key are done once

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message whose signature field is zeros."""
        digest = self._keyed.copy()
        digest.update(message)
        return digest.digest()[: self.size]

    def is_signed(self, message: bytes, at: int) -> bool:
        """Return whether the signature at an offset of a message is correct."""
        found = message[at : at + self.size]
        unsigned = b"".join((message[:at], bytes(self.size), message[at + self.size :]))
        return hmac.compare_digest(found, self.sign(unsigned))


class Cipher:
    """Encrypts messages to one engine, and decrypts its messages; the salt is sent in msgPrivacyParameters.

    Args:
        privacy: The algorithm.
        key: The user's key for the engine.
    """

    def __init__(self, privacy: Privacy, key: bytes) -> None:
        self._salt = int.from_bytes(os.urandom(_SALT_BYTES), "big")
        if privacy is Privacy.DES:
            self._encrypt, self._decrypt = _des(key)
        else:
            self._encrypt, self._decrypt = _aes(key)
        self._is_des = privacy is Privacy.DES

    def encrypt(self, plain: bytes, boots: int, time: int) -> tuple[bytes, bytes]:
        """Return an encrypted scoped PDU and its salt, which is never used twice."""
        self._salt = (self._salt + 1) % 2 ** (8 * _SALT_BYTES)
        if self._is_des:  # RFC 3414, 8.1.1.1: snmpEngineBoots, then a local counter
            salt = boots.to_bytes(4, "big") + (self._salt % 2**32).to_bytes(4, "big")
        else:
            salt = self._salt.to_bytes(_SALT_BYTES, "big")
        return self._encrypt(plain, salt, boots, time), salt

    def decrypt(self, secret: bytes, salt: bytes, boots: int, time: int) -> bytes:
        """Decrypt a scoped PDU. A wrong key is not detected here: the result is noise.

        Raises:
            DecodeError: The salt or the ciphertext has a wrong size.
        """
        if len(salt) != _SALT_BYTES or (self._is_des and len(secret) % _DES_BLOCK):
            raise DecodeError(f"{len(secret)} encrypted bytes with a salt of {len(salt)} cannot be decrypted")
        return self._decrypt(secret, salt, boots, time)


Transform = Callable[[bytes, bytes, int, int], bytes]
"""(text, salt, boots, time) to text."""


def _aes(key: bytes) -> tuple[Transform, Transform]:
    """AES in CFB mode; the IV is snmpEngineBoots, snmpEngineTime and the salt (RFC 3826, 3.1.2.1)."""
    from cryptography.hazmat.primitives.ciphers import Cipher as Block  # noqa: PLC0415  # only where it is used
    from cryptography.hazmat.primitives.ciphers.algorithms import AES  # noqa: PLC0415

    mode, algorithm = _cfb(), AES(key)

    def block(salt: bytes, boots: int, time: int) -> Any:  # noqa: ANN401  # a cipher of cryptography
        return Block(algorithm, mode(boots.to_bytes(4, "big") + time.to_bytes(4, "big") + salt))

    def encrypt(plain: bytes, salt: bytes, boots: int, time: int) -> bytes:
        working = block(salt, boots, time).encryptor()
        return bytes(working.update(plain) + working.finalize())

    def decrypt(secret: bytes, salt: bytes, boots: int, time: int) -> bytes:
        working = block(salt, boots, time).decryptor()
        return bytes(working.update(secret) + working.finalize())

    return encrypt, decrypt


def _cfb() -> Any:  # noqa: ANN401  # a class of cryptography
    """Import CFB, which newer versions of cryptography have among the decrepit modes."""
    try:
        from cryptography.hazmat.decrepit.ciphers.modes import CFB  # noqa: PLC0415
    except ImportError:
        from cryptography.hazmat.primitives.ciphers.modes import CFB  # noqa: PLC0415
    return CFB


def _des(key: bytes) -> tuple[Transform, Transform]:
    """DES in CBC mode: eight bytes of key, and eight of pre-IV, which with the salt make the IV (RFC 3414, 8.1.1.1)."""
    from cryptography.hazmat.primitives.ciphers import Cipher as Block  # noqa: PLC0415  # only where it is used
    from cryptography.hazmat.primitives.ciphers.modes import CBC  # noqa: PLC0415

    algorithm, before = _triple_des()(key[:8] * 3), int.from_bytes(key[8:16], "big")

    def block(salt: bytes) -> Any:  # noqa: ANN401  # a cipher of cryptography
        return Block(algorithm, CBC((before ^ int.from_bytes(salt, "big")).to_bytes(8, "big")))

    def encrypt(plain: bytes, salt: bytes, _boots: int, _time: int) -> bytes:
        working = block(salt).encryptor()
        return bytes(working.update(plain + bytes(-len(plain) % _DES_BLOCK)) + working.finalize())

    def decrypt(secret: bytes, salt: bytes, _boots: int, _time: int) -> bytes:
        working = block(salt).decryptor()
        return bytes(working.update(secret) + working.finalize())

    return encrypt, decrypt


def _triple_des() -> Any:  # noqa: ANN401  # a class of cryptography
    """Import triple DES, which with the same key three times is DES; newer versions have it among the decrepit ones."""
    try:
        from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES  # noqa: PLC0415
    except ImportError:
        from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES  # noqa: PLC0415
    return TripleDES
