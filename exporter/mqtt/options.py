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
    """Configuration of `mqtt`: the broker and the credentials.

    Files are read at each connect, so they may be replaced at any time.

    Attributes:
        broker: Host, or host and port; without it MQTT is not used.
        username: User name.
        password_file: File with the password.
        password_env: Environment variable with the password.
        tls: Whether to use TLS.
        ca_file: PEM file of the trusted CAs; those of the system if not set.
        sha256: SHA-256 fingerprint of the broker's certificate, which is then the only one trusted.
        insecure: Whether to accept any certificate.
        cert_file: PEM file of the client certificate.
        key_file: PEM file of its key, not encrypted; cert_file if not set.
        expiry: Time after which a batch that was not delivered is dropped, in the queue and at the broker.
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
        """Check the address of the broker, and that keys do not contradict each other.

        Raises:
            RuleError: A key is invalid.
        """
        if self.broker is not None:
            try:
                parse_broker(self.broker, tls=self.tls)
            except ValueError as error:
                raise RuleError(["broker"], str(error)) from None
        if self.password_file is not None and self.password_env is not None:
            raise RuleError(["password_env"], "excludes password_file; set one of them")
        if self.username is None and (self.password_file or self.password_env):
            raise RuleError(["username"], "is missing; a password needs one")
        tls_keys = ("ca_file", "sha256", "insecure", "cert_file", "key_file")
        given = [key for key in tls_keys if getattr(self, key)]
        if given and not self.tls:
            raise RuleError([given[0]], "needs `tls: true`; without it nothing is encrypted")
        if (self.ca_file is not None) + (self.sha256 is not None) + self.insecure > 1:
            raise RuleError([given[1]], "ca_file, sha256 and insecure exclude each other; set one of them")
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256.replace(":", "").strip()):
            raise RuleError(["sha256"], "is not a fingerprint; write 64 hexadecimal digits, with or without colons")
        if self.key_file is not None and self.cert_file is None:
            raise RuleError(["key_file"], "needs cert_file, the certificate of the key")
        if not 1 <= self.expiry <= 86400:
            raise RuleError(["expiry"], f"is {float(self.expiry):g} s; give 1s to 1d")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        return parse_broker(self.broker or "", tls=self.tls)

    def password(self) -> str | None:
        """Read the password; None where none is configured. Blocks for a file.

        Raises:
            SecretError: It cannot be read.
        """
        if self.password_file is None and self.password_env is None:
            return None
        return read_secret(None, self.password_file, self.password_env)


@dataclass(frozen=True, slots=True)
class MqttSection:
    """The top-level section `mqtt` of the configuration file."""

    name: str
    section: str
    options: type[msgspec.Struct]


SECTION = MqttSection("mqtt", "mqtt", MqttOptions)


def parse_broker(text: str, *, tls: bool) -> tuple[str, int]:
    """Parse the address of a broker: `HOST`, `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ValueError: It is not a valid address.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or (TLS_PORT if tls else PLAIN_PORT)) if found else 0
    if "@" in text:  # it is not quoted
        raise ValueError("user and password do not belong into the address; set username and password_file")
    if found is None or not 0 < port < 65536:
        raise ValueError(
            f"{text[:100]!r} is not an address; write HOST, HOST:PORT or [IPV6]:PORT, and `tls: true` for TLS"
        )
    return found["six"] or found["host"], port
