"""HTTP basic authentication with bcrypt hashes, in a thread, with a cache of accepted credentials."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import bcrypt

_MAX_CACHED = 256
_MAX_WAITING = 16
_BCRYPT_BYTES = 72  # bcrypt uses no more of a password; the library refuses longer ones, Go's truncates them


class AuthResult(Enum):
    """The result for an Authorization header."""

    ALLOWED = "allowed"
    DENIED = "denied"
    BUSY = "busy"


class BasicAuth:
    """Checks passwords one at a time in a thread of its own, since each takes tens of milliseconds of CPU.

    Only accepted passwords are cached, so a wrong one takes the same time for a known and an unknown user.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-auth")
        self._salt = os.urandom(16)
        self._users: Mapping[str, bytes] = {}
        self._accepted: set[bytes] = set()
        self._waiting = 0

    async def check(self, authorization: str, users: Mapping[str, bytes]) -> AuthResult:
        """Check an Authorization header against bcrypt hashes by user; BUSY where too many checks wait already."""
        if users is not self._users and users != self._users:
            self._users, self._accepted = users, set()
        credentials = parse_basic(authorization)
        if credentials is None:
            return AuthResult.DENIED
        user, password = credentials
        fingerprint = hashlib.blake2b(user.encode() + b":" + password, key=self._salt).digest()
        if fingerprint in self._accepted:
            return AuthResult.ALLOWED
        if self._waiting >= _MAX_WAITING:
            return AuthResult.BUSY
        # For an unknown user the most expensive of the known hashes is computed, so that timing reveals no user names.
        hashed = users.get(user) or max(users.values(), key=_cost)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._thread, _matches, password, hashed)
        finally:
            self._waiting -= 1
        if not right or user not in users:
            return AuthResult.DENIED
        if users is self._users and len(self._accepted) < _MAX_CACHED:
            self._accepted.add(fingerprint)
        return AuthResult.ALLOWED

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """Split an Authorization header into user and password, or None where its scheme is not Basic."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:  # a NUL byte, which some releases refuse
        return False


def _cost(hashed: bytes) -> int:
    return int(hashed.split(b"$")[2])
