"""SNMP credentials: a community of v1 or v2c, or a v3 user with its algorithms and passwords."""

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from exporter.snmp.message import V1, V2C

MIN_PASSWORD = 8
"""Minimum length of a v3 password in bytes (RFC 3414, section 11.2); agents reject shorter ones."""


@dataclass(frozen=True, slots=True)
class Community:
    """The community of v1 or v2c.

    Attributes:
        community: The community string, which is a password; never shown.
        version: `message.V1` or `message.V2C`.
    """

    community: bytes = field(repr=False)
    version: int = V2C

    def __post_init__(self) -> None:
        """Raise ValueError for other versions."""
        if self.version not in (V1, V2C):
            raise ValueError("a community belongs to version 1 or 2c; version 3 has users")


class Authentication(enum.Enum):
    """Authentication protocol of a v3 user: HMAC with this hash (RFC 3414, RFC 7860)."""

    MD5 = "md5"
    SHA = "sha"
    SHA224 = "sha224"
    SHA256 = "sha256"
    SHA384 = "sha384"
    SHA512 = "sha512"


class Privacy(enum.Enum):
    """Privacy protocol of a v3 user.

    DES in CBC mode (RFC 3414), AES in CFB mode (RFC 3826 for 128 bits). No RFC specifies how longer AES keys are
    derived from a password: names without `c` follow Blumenthal's draft, names with `c` Reeder's draft, as Cisco does.
    """

    DES = "des"
    AES = "aes"
    AES192 = "aes192"
    AES256 = "aes256"
    AES192C = "aes192c"
    AES256C = "aes256c"


@dataclass(frozen=True, slots=True)
class User:
    """A v3 user.

    Attributes:
        name: The user name (msgUserName).
        authentication: Authentication protocol; None for no authentication.
        authentication_password: Never shown.
        privacy: Privacy protocol; None for no encryption.
        privacy_password: Never shown.
        context: Name of the context, empty for the default one.
    """

    name: str
    authentication: Authentication | None = None
    authentication_password: bytes = field(default=b"", repr=False)
    privacy: Privacy | None = None
    privacy_password: bytes = field(default=b"", repr=False)
    context: bytes = b""

    def __post_init__(self) -> None:
        """Check what every agent would reject.

        Raises:
            ValueError: The name is empty or too long, encryption lacks a signature, or a password is too short.
        """
        if not 1 <= len(self.name.encode()) <= 32:
            raise ValueError("the name of a user of v3 has 1 to 32 bytes")
        if self.privacy is not None and self.authentication is None:
            raise ValueError("encryption needs authentication: v3 has no level with the first alone")
        for what, kind, password in (
            ("authentication", self.authentication, self.authentication_password),
            ("privacy", self.privacy, self.privacy_password),
        ):
            if kind is not None and len(password) < MIN_PASSWORD:
                raise ValueError(f"the {what} password is shorter than {MIN_PASSWORD} bytes, which v3 forbids")


Credentials: TypeAlias = Community | User
