"""Configuration of one switch: its target, and the protocols to poll it."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

import msgspec

from exporter.config.addresses import is_host_name, is_ip_address
from exporter.config.errors import RuleError, check_patterns
from exporter.config.secret import check_exactly_one
from exporter.config.units import Duration
from exporter.core.source import Selection


class SecretStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options with secrets, which its repr masks."""

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = {name: "***" if name.endswith(_SECRETS) and value else value for name, value in values.items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_SECRETS = ("community", "password")
"""Suffixes of the keys of secrets."""

MIN_PASSWORD_BYTES = 8
MAX_NAME_BYTES = 32
"""Limits of SNMPv3: of passwords (RFC 3414, section 11.2), and of names of users and contexts (RFC 3414, section 5, and
RFC 3415, section 4)."""


class Snmp(SecretStruct, frozen=True, kw_only=True):
    """SNMP: a community for versions 1 and 2c, a user for version 3.

    Each secret is set by one of three keys: the value, a file or an environment variable.

    Attributes:
        address: Host, or host and port; the target's address if not set.
        version: Version of the protocol.
        user: User name, version 3.
        auth: Authentication protocol; no authentication if not set.
        priv: Privacy protocol; no encryption if not set.
        context: Context name, version 3.
        engine_id: snmpEngineID of the switch in hexadecimal digits, needed to verify signed traps.
        timeout: Time to wait for the first try of a request.
        retries: Tries after the first.
        window: Requests in flight at the same time; many agents cannot serve more than one.
        any_source: Whether to accept responses from other addresses and ports too, as some switches send them.
    """

    address: str | None = None
    version: Literal["1", "2c", "3"] | int = "2c"
    community: str | None = None
    community_file: str | None = None
    community_env: str | None = None
    user: str | None = None
    auth: Literal["md5", "sha", "sha224", "sha256", "sha384", "sha512"] | None = None
    auth_password: str | None = None
    auth_password_file: str | None = None
    auth_password_env: str | None = None
    priv: Literal["des", "aes", "aes192", "aes256", "aes192c", "aes256c"] | None = None
    priv_password: str | None = None
    priv_password_file: str | None = None
    priv_password_env: str | None = None
    context: str = ""
    engine_id: str | None = None
    timeout: Duration = Duration(1.0)
    retries: int = 2
    window: int = 1
    any_source: bool = False

    def __post_init__(self) -> None:
        """Check that the version has the options it needs, and none of another version."""
        if self.version not in ("1", "2c", "3", 1, 3):
            raise ValueError(f"version is {self.version}; SNMP has 1, 2c and 3")
        if not 0 <= self.retries <= 10:
            raise ValueError(f"retries is {self.retries}; give 0 to 10")
        if not 1 <= self.window <= 4:
            raise ValueError(f"window is {self.window}; give 1 to 4 requests at a time")
        if self.is_v3:
            self._check_user()
        else:
            check_exactly_one("community", self.community, self.community_file, self.community_env)
            _check_not_empty("community", self.community)
            self._refuse("user", "auth", "priv", "engine_id", "context", why=f"version {self.version} has communities")

    @property
    def is_v3(self) -> bool:
        """Whether the version is 3, which has users in place of communities."""
        return str(self.version) == "3"

    def _check_user(self) -> None:
        self._refuse("community", "community_file", "community_env", why="version 3 has users")
        if not self.user:
            raise ValueError("version 3 needs a user; give its name")
        if self.priv is not None and self.auth is None:
            raise ValueError("priv needs auth: version 3 has no encryption without a signature")
        for what in ("auth", "priv"):
            passwords = [getattr(self, f"{what}_password{end}") for end in ("", "_file", "_env")]
            if getattr(self, what) is not None:
                check_exactly_one(f"{what}_password", *passwords)
                _check_length(f"{what}_password", passwords[0])
            elif any(password is not None for password in passwords):
                raise ValueError(f"{what}_password is given without {what}; name the algorithm too")
        for what in ("user", "context"):
            if len(getattr(self, what).encode(errors="replace")) > MAX_NAME_BYTES:
                raise ValueError(f"{what} has more than {MAX_NAME_BYTES} bytes, which SNMPv3 forbids; give another")
        if self.engine_id is not None and not re.fullmatch("(?:0x)?(?:[0-9A-Fa-f]{2}){5,32}", self.engine_id):
            raise ValueError("engine_id is not an snmpEngineID; give 10 to 64 hexadecimal digits")

    def _refuse(self, *names: str, why: str) -> None:
        for name in names:
            if getattr(self, name):
                raise ValueError(f"{name} does not go with version {self.version}: {why}")


def _check_not_empty(key: str, secret: str | None) -> None:
    if secret == "":
        raise ValueError(f"{key} is empty; give it, or the name of its file or variable")


def _check_length(key: str, password: str | None) -> None:
    """Check a password of version 3 that is in the configuration; those of files are checked when they are read."""
    if password is not None and len(password.encode(errors="replace")) < MIN_PASSWORD_BYTES:
        raise ValueError(
            f"{key} has fewer than {MIN_PASSWORD_BYTES} bytes, which SNMPv3 forbids (RFC 3414, section 11.2); set a"
            " longer one here and on the switch"
        )


class Login(SecretStruct, frozen=True, kw_only=True):
    """Login to an API of a switch; the password is set by one of three keys: value, file or environment variable.

    Attributes:
        address: Host, host and port, or a URL; the target's address if not set.
        username: User, preferably with read-only permissions.
        ca_file: PEM file of the CAs to trust in place of the system's.
        sha256: Fingerprint of the switch's own certificate, the only one that is trusted then.
        insecure: Whether to skip the verification of the certificate.
        timeout: Time for one request.
    """

    address: str | None = None
    username: str
    password: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca_file: str | None = None
    sha256: str | None = None
    insecure: bool = False
    timeout: Duration = Duration(10.0)

    def __post_init__(self) -> None:
        """Check that there is one password, and at most one way to verify the certificate."""
        check_exactly_one("password", self.password, self.password_file, self.password_env)
        _check_not_empty("password", self.password)
        if (self.ca_file is not None) + (self.sha256 is not None) + self.insecure > 1:
            raise ValueError("ca_file, sha256 and insecure exclude each other; give one of them")
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256.replace(":", "").strip()):
            raise ValueError("sha256 is not a fingerprint; give 64 hexadecimal digits, with or without colons")


class Onyx(Login, frozen=True, kw_only=True):
    """The JSON API of NVIDIA Onyx."""

    timeout: Duration = Duration(35.0)


class BasicLogin(Login, frozen=True, kw_only=True):
    """Login by HTTP Basic authentication."""

    def __post_init__(self) -> None:
        """Check the name too: its first colon would end it (RFC 7617, section 2)."""
        super().__post_init__()
        if ":" in self.username:
            raise RuleError(["username"], "has a colon, which HTTP Basic authentication forbids; give another user")


class Nvue(BasicLogin, frozen=True, kw_only=True):
    """NVUE, the REST API of Cumulus Linux."""


class Eapi(BasicLogin, frozen=True, kw_only=True):
    """Arista's eAPI."""


class Nxapi(BasicLogin, frozen=True, kw_only=True):
    """Cisco's NX-API, and its object store (DME)."""


class Restconf(BasicLogin, frozen=True, kw_only=True):
    """RESTCONF of SONiC."""


class Redis(SecretStruct, frozen=True, kw_only=True):
    """SONiC's databases in redis; the password is optional, set by value, file or environment variable.

    Attributes:
        address: Host, host and port (6379), or the path of a socket; the target's address if not set.
        username: User of the database; empty for the default one.
        tls: Whether to use TLS.
        timeout: Time for one request.
    """

    address: str | None = None
    username: str = ""
    password: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    tls: bool = False
    ca_file: str | None = None
    timeout: Duration = Duration(5.0)


PROTOCOLS = ("snmp", "onyx", "nvue", "eapi", "nxapi", "restconf", "redis")
"""Keys of a target with a protocol, in order of preference: a metric of two is taken from the first."""


class Target(Selection, frozen=True, kw_only=True):
    """One switch; include and exclude are names of its ports.

    Attributes:
        name: Its name in the exporter; also its label if it has no system name.
        address: Host, or host and port.
        interval: Time between polls; that of the defaults, else of its profile if not set.
        profile: SNMP profile; chosen by sysDescr and sysObjectID if not set.
        role: Role in the fabric; derived from its neighbours if not set.
        uplinks: Uplink ports, as shell patterns; derived from the roles of neighbours if not set.
        optics: Whether to read the modules in its ports: many rows on most switches, so they are read seldom.
        lldp: Whether to read its neighbours.
        poll: Whether to poll it in the background; if not, only by `/probe`.
        pfc_swapped: Whether its agent has the directions of PFC swapped, as old images of SONiC do.
    """

    name: str
    address: str
    interval: Duration | None = None
    profile: str | None = None
    role: Literal["leaf", "spine", "core"] | None = None
    uplinks: tuple[str, ...] = ()
    optics: bool = False
    lldp: bool = True
    poll: bool = True
    pfc_swapped: bool = False
    snmp: Snmp | None = None
    onyx: Onyx | None = None
    nvue: Nvue | None = None
    eapi: Eapi | None = None
    nxapi: Nxapi | None = None
    restconf: Restconf | None = None
    redis: Redis | None = None

    def __post_init__(self) -> None:
        """Check that there is a name, at least one protocol, and that the addresses are valid."""
        if not self.name:
            raise ValueError("the name is empty; give one, it becomes a label")
        if not self.protocols():
            raise ValueError(f"{self.name} has no protocol to poll it; give one or more of {', '.join(PROTOCOLS)}")
        super().__post_init__()
        check_patterns("uplinks", self.uplinks)
        if self.snmp is not None:
            from exporter.snmp.client import parse_address  # noqa: PLC0415  # only where there are switches

            parse_address(self.snmp.address or self.address)
        for protocol, options in self.protocols().items():
            if isinstance(options, Login):
                steps = [protocol, "address"] if options.address else ["address"]
                _check_api_address(steps, options.address or self.address)
        if self.redis is not None and "@" in (self.redis.address or self.address):  # it is not quoted
            steps = ["redis", "address"] if self.redis.address else ["address"]
            raise RuleError(steps, "user and password do not belong into the address; set username and password")

    def protocols(self) -> dict[str, object]:
        """Return the options of each protocol that is set, by its name."""
        return {protocol: options for protocol in PROTOCOLS if (options := getattr(self, protocol)) is not None}


_API_ADDRESS = re.compile(r"(?i:https?://)?(\[[^\[\]]+\]|[^\[\]:/]+)(?::([0-9]{1,5}))?/?")
"""Host and port of the address of an API."""


def _check_api_address(steps: Sequence[str], address: str) -> None:
    """Check the address of an API; without the library that its client uses, which loads slowly.

    Raises:
        RuleError: It is not a host, `host:port` or URL; the place is `steps`.
    """
    if "@" in address:  # it is not quoted
        raise RuleError(steps, "user and password do not belong into the address; set username and password")
    found = _API_ADDRESS.fullmatch(address)
    host, port = found.groups() if found is not None else (f"[{address}]", None)  # an IPv6 address without brackets
    is_host = is_ip_address(host[1:-1]) if host.startswith("[") else is_host_name(host)
    if not is_host or (port is not None and not 0 < int(port) < 65536):
        raise RuleError(steps, f"{address!r} is not a host, host:port, https:// or http:// address")


class Traps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The trap receiver. Traps and informs are accepted only from targets, with the credentials of their `snmp`.

    Attributes:
        listen: IP addresses with ports.
    """

    listen: tuple[str, ...] = (":162",)

    def __post_init__(self) -> None:
        """Check that there are addresses, and their syntax."""
        if not self.listen:
            raise ValueError("listen is empty; give an address such as ':162'")
        for address in self.listen:
            if not _is_listen_address(address):
                raise ValueError(
                    f"listen has {address!r}; write :PORT, IPV4:PORT or [IPV6]:PORT, not the name of a host"
                )


def _is_listen_address(text: str) -> bool:
    """Return whether a text is an IP address with a port; an empty address is any IPv4 address."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        return False
    try:
        if host.startswith("[") and host.endswith("]"):
            IPv6Address(host[1:-1])
        elif host:
            IPv4Address(host)
    except ValueError:
        return False
    return True
