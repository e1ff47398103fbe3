"""Configuration of `mqtt`."""

import re
from dataclasses import dataclass

import msgspec

from exporter.config.errors import RuleError
from exporter.config.secret import read_secret
from exporter.config.units import Duration

PLAIN_PORT = 1883
TLS_PORT = 8883

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/@\s]+))(?::(?P<port>\d{1,5}))?")


class MqttOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `mqtt`: the broker, and how it is told who comes.

    Files are read anew at each connect, so that what is in them may be replaced at any time.

    Attributes:
        broker: Host, or host and port; nothing is published or heard where it is not given.
        username: Name to log in with.
        password_file: File of its password.
        password_env: Environment variable of its password.
        tls: Whether the broker speaks TLS.
        ca_file: PEM file of the CAs to trust in place of the system's.
        sha256: Fingerprint of the broker's own certificate, which then is all that is trusted.
        insecure: Whether to trust whoever answers.
        cert_file: PEM file of the certificate to show.
        key_file: PEM file of its key, not encrypted; that of the certificate where not given.
        expiry: Time after which a batch that nobody fetched is worthless, at the broker and in the buffer.
    """

    broker: str | None = None
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    tls: bool = False
    ca_file: str | None = None
    sha256: str | None = None
    insecure: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    expiry: Duration = Duration(300.0)

    def __post_init__(self) -> None:
        """See that the broker is an address, and that what is given goes together.

        Raises:
            RuleError: Something is not so.
        """
        if self.broker is not None:
            try:
                parse_broker(self.broker, tls=self.tls)
            except ValueError as error:
                raise RuleError(["broker"], str(error)) from None
        if self.password_file is not None and self.password_env is not None:
            raise RuleError(["password_env"], "excludes password_file; give one of them")
        if self.username is None and (self.password_file or self.password_env):
            raise RuleError(["username"], "is missing; a password needs one")
        tls_keys = ("ca_file", "sha256", "insecure", "cert_file", "key_file")
        given = [key for key in tls_keys if getattr(self, key)]
        if given and not self.tls:
            raise RuleError([given[0]], "needs `tls: true`; without it nothing is encrypted")
        if (self.ca_file is not None) + (self.sha256 is not None) + self.insecure > 1:
            raise RuleError([given[1]], "ca_file, sha256 and insecure exclude each other; give one of them")
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256.replace(":", "").strip()):
            raise RuleError(["sha256"], "is no fingerprint: it has 64 hexadecimal digits, with or without colons")
        if self.key_file is not None and self.cert_file is None:
            raise RuleError(["key_file"], "needs cert_file, the certificate that it belongs to")
        if not 1 <= self.expiry <= 86400:
            raise RuleError(["expiry"], f"is {float(self.expiry):g} s; give 1s to 1d")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        return parse_broker(self.broker or "", tls=self.tls)

    def password(self) -> str | None:
        """Give the password; None where none is set. Blocks for a file.

        Raises:
            SecretError: It cannot be had.
        """
        if self.password_file is None and self.password_env is None:
            return None
        return read_secret(None, self.password_file, self.password_env)


@dataclass(frozen=True, slots=True)
class Section:
    """What the configuration needs to know of a part at the top of the file."""

    name: str
    section: str
    options: type[msgspec.Struct]


SECTION = Section("mqtt", "mqtt", MqttOptions)


def parse_broker(text: str, *, tls: bool) -> tuple[str, int]:
    """Read the address of a broker: `HOST`, `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ValueError: It is none.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or (TLS_PORT if tls else PLAIN_PORT)) if found else 0
    if found is None or not 0 < port < 65536:
        raise ValueError(f"{text[:100]!r} is no address; write HOST, HOST:PORT or [IPV6]:PORT, and `tls: true` for TLS")
    return found["six"] or found["host"], port
