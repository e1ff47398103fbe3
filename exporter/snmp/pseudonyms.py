"""Replacements of names, addresses and serial numbers in recordings: equal ones by equal ones.

They are keyed digests. The key is random and discarded, so the originals cannot be found by guessing names.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final

MAC_BYTES, IPV4_BYTES, IPV6_BYTES = 6, 4, 16


class Pseudonyms:
    """The replacements of one recording."""

    def __init__(self) -> None:
        self._secret: Final = secrets.token_bytes(32)

    def address(self, packed: bytes) -> bytes:
        """Replace an address of any family by one of the same length."""
        replacements: Mapping[int, Callable[[bytes], bytes]] = {
            IPV4_BYTES: self.ipv4,
            IPV6_BYTES: lambda one: b"\x20\x01\x0d\xb8" + self.digest("address", one, 12),
            MAC_BYTES: self.mac,
        }
        replace = replacements.get(len(packed))
        return self.digest("address", packed, len(packed)) if replace is None else replace(packed)

    def ipv4(self, packed: bytes) -> bytes:
        """Replace an address by a reserved one in 240.0.0.0/4; 0.0.0.0 is kept."""
        if packed == bytes(4):
            return packed
        digest = self.digest("address", packed, 4)
        return bytes((0xF0 | digest[0] & 0x0F, *digest[1:]))

    def mac(self, content: bytes) -> bytes:
        """Replace a MAC address by a locally administered one; an all-zero address is kept."""
        return b"\x02" + self.digest("mac", content, 5) if any(content) else content

    def name(self, text: str) -> str:
        """Replace a name; upper and lower case do not differ."""
        return "name-" + self.digest("name", text.lower().encode(), 5).hex()

    def digest(self, kind: str, content: bytes, size: int) -> bytes:
        """Return the digest of a content of this kind, of as many bytes."""
        digest = b""
        while len(digest) < size:
            digest += hmac.digest(self._secret, b"%s %d " % (kind.encode(), len(digest)) + content, "sha256")
        return digest[:size]
