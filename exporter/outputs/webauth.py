"""HTTP basic authentication against bcrypt hashes, off the event loop and remembered."""

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import bcrypt

_REMEMBERED = 256
_MAX_WAITING = 16
_BCRYPT_BYTES = 72  # bcrypt reads no more of a password; the library refuses longer ones, Go's cuts them


class Verdict(Enum):
    """What came out of an Authorization header."""

    ALLOWED = "allowed"
    DENIED = "denied"
    BUSY = "busy"


class BasicAuth:
    """Checks passwords one at a time in a thread of its own, since each costs tens of milliseconds of CPU.

    Only right passwords are remembered, so a wrong one costs the same for a known and an unknown user, each time.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-auth")
        self._salt = os.urandom(16)
        self._users: Mapping[str, bytes] = {}
        self._right: set[bytes] = set()
        self._waiting = 0

    async def check(self, authorization: str, users: Mapping[str, bytes]) -> Verdict:
        """Check an Authorization header against bcrypt hashes by user; BUSY when too many checks wait already."""
        if users is not self._users and users != self._users:
            self._users, self._right = users, set()
        credentials = parse_basic(authorization)
        if credentials is None:
            return Verdict.DENIED
        user, password = credentials
        fingerprint = hashlib.blake2b(user.encode() + b":" + password, key=self._salt).digest()
        if fingerprint in self._right:
            return Verdict.ALLOWED
        if self._waiting >= _MAX_WAITING:
            return Verdict.BUSY
        # For an unknown user the dearest of the known hashes is computed, so that time tells nothing.
        hashed = users.get(user) or max(users.values(), key=_cost)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._thread, _matches, password, hashed)
        finally:
            self._waiting -= 1
        if not right or user not in users:
            return Verdict.DENIED
        if users is self._users and len(self._right) < _REMEMBERED:
            self._right.add(fingerprint)
        return Verdict.ALLOWED

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """Split an Authorization header into user and password, or None when it is not of the Basic kind."""
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
    except ValueError:  # a NUL byte, in the releases that refuse it
        return False


def _cost(hashed: bytes) -> int:
    return int(hashed.split(b"$")[2])
