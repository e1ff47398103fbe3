"""HTTP basic authentication with bcrypt hashes, in a thread, with a cache of accepted credentials."""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import bcrypt

from exporter.outputs.fair_queue import FairQueue, FullError

MAX_WAITING = 16
"""Checks that may wait, unless another number is given."""

_BCRYPT_BYTES = 72  # bcrypt uses no more of a password; the library refuses longer ones, Go's truncates them


class AuthResult(Enum):
    """The result for an Authorization header."""

    ALLOWED = "allowed"
    DENIED = "denied"
    BUSY = "busy"


class BasicAuth:
    """Checks passwords one at a time in a thread of its own, since each takes tens of milliseconds of CPU.

    Clients, and users of one client, take turns, so that a flood of wrong passwords delays right ones of others by one
    check at most. Only accepted passwords are cached, so a wrong one takes the same time for a known and an unknown
    user.

    Args:
        max_waiting: Checks that may wait.
    """

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-auth")
        self._salt = os.urandom(16)
        self._accepted: dict[str, tuple[bytes, bytes]] = {}  # hash, and fingerprint of its password, by user
        self._turns = FairQueue(max_waiting)

    async def check(self, authorization: str, users: Mapping[str, bytes], client: str = "") -> AuthResult:
        """Check an Authorization header against bcrypt hashes by user.

        Args:
            authorization: The header.
            users: Hashes by user.
            client: Address of the client.

        Returns:
            BUSY where too many checks of this client and user wait already.
        """
        credentials = parse_basic(authorization)
        if credentials is None:
            return AuthResult.DENIED
        user, password = credentials
        hashed = users.get(user)
        fingerprint = hashlib.blake2b(user.encode() + b":" + password, key=self._salt).digest()
        if hashed is not None and self._accepted.get(user) == (hashed, fingerprint):
            return AuthResult.ALLOWED
        # For an unknown user the most expensive of the known hashes is computed, so that timing reveals no user names.
        computed = hashed or max(users.values(), key=_cost)
        try:
            async with self._turns.turn((_network(client), user if hashed is not None else None)):
                loop = asyncio.get_running_loop()
                right = await loop.run_in_executor(self._thread, _matches, password, computed)
        except FullError:
            return AuthResult.BUSY
        if not right or hashed is None:
            return AuthResult.DENIED
        self._accepted = {one: kept for one, kept in self._accepted.items() if one in users}
        self._accepted[user] = (hashed, fingerprint)
        return AuthResult.ALLOWED

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """Split an Authorization header into user and the part of the password that counts; None for another scheme."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password[:_BCRYPT_BYTES]) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # a NUL byte, which some releases refuse
        return False


def _network(client: str) -> str:
    """Return what one client has: an address of IPv4, or a network of 64 bits of IPv6; other text unchanged."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 4 or address.ipv4_mapped is not None:
        return client
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def _cost(hashed: bytes) -> int:
    return int(hashed.split(b"$")[2])
