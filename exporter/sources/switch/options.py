"""Configuration of one switch: its target, and each way to ask it."""

import re
from typing import Literal

import msgspec

from exporter.config.errors import check_patterns
from exporter.config.secret import check_exactly_one
from exporter.config.units import Duration
from exporter.core.source import Selection


class Secretive(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds secrets, and shows none of them."""

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        shown = {name: "***" if name.endswith(_SECRETS) and value else value for name, value in values.items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_SECRETS = ("community", "password")
"""Ends of the keys of secrets."""


class Snmp(Secretive, frozen=True, kw_only=True):
    """How a switch is asked by SNMP: by a community in versions 1 and 2c, by a user in version 3.

    Secrets are given in one of three ways each.

    Attributes:
        address: Where, if not at the target's address: host, or host and port.
        version: Version of the protocol.
        user: Name of the user, of version 3.
        auth: How its messages are signed; not at all where not given.
        priv: How they are encrypted; not at all where not given.
        context: Name of the context that is asked, of version 3.
        engine_id: Identity of the switch's engine in hexadecimal digits, by which signed traps are understood.
        timeout: Time to wait for the first try of a question.
        retries: Tries after the first.
        window: Questions under way at the same time; many agents starve at more than one.
        any_source: Whether answers are taken from other addresses and ports too, as some switches send them.
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
        """See that the version has what it needs, and nothing that belongs to another."""
        if self.version not in ("1", "2c", "3", 1, 3):
            raise ValueError(f"version is {self.version}; SNMP has 1, 2c and 3")
        if not 0 <= self.retries <= 10:
            raise ValueError(f"retries is {self.retries}; give 0 to 10")
        if not 1 <= self.window <= 4:
            raise ValueError(f"window is {self.window}; give 1 to 4 questions at a time")
        if self.is_v3:
            self._check_user()
        else:
            check_exactly_one("community", self.community, self.community_file, self.community_env)
            self._refuse("user", "auth", "priv", "engine_id", "context", why=f"version {self.version} has communities")

    @property
    def is_v3(self) -> bool:
        """Whether it is the version with users."""
        return str(self.version) == "3"

    def _check_user(self) -> None:
        self._refuse("community", "community_file", "community_env", why="version 3 has users")
        if not self.user:
            raise ValueError("version 3 needs a user; give its name")
        if self.priv is not None and self.auth is None:
            raise ValueError("priv needs auth: version 3 has no encryption without a signature")
        for what in ("auth", "priv"):
            ways = [getattr(self, f"{what}_password{end}") for end in ("", "_file", "_env")]
            if getattr(self, what) is not None:
                check_exactly_one(f"{what}_password", *ways)
            elif any(way is not None for way in ways):
                raise ValueError(f"{what}_password is given without {what}; name the algorithm too")
        if self.engine_id is not None and not re.fullmatch("(?:0x)?(?:[0-9A-Fa-f]{2}){5,32}", self.engine_id):
            raise ValueError("engine_id is no identity: it has 10 to 64 hexadecimal digits")

    def _refuse(self, *names: str, why: str) -> None:
        for name in names:
            if getattr(self, name):
                raise ValueError(f"{name} does not go with version {self.version}: {why}")


class Login(Secretive, frozen=True, kw_only=True):
    """How to log in to an API of a switch; the password is given in one of three ways.

    Attributes:
        address: Where, if not at the target's address: host, host and port, or a URL.
        username: User with the right to look, and better none to change anything.
        ca_file: PEM file of the CAs to trust in place of the system's.
        sha256: Fingerprint of the switch's own certificate, which then is all that is trusted.
        insecure: Whether to trust whoever answers.
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
        """See that there is one password, and one way to trust."""
        check_exactly_one("password", self.password, self.password_file, self.password_env)
        if (self.ca_file is not None) + (self.sha256 is not None) + self.insecure > 1:
            raise ValueError("ca_file, sha256 and insecure exclude each other; give one of them")
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256.replace(":", "").strip()):
            raise ValueError("sha256 is no fingerprint: it has 64 hexadecimal digits, with or without colons")


class Onyx(Login, frozen=True, kw_only=True):
    """The JSON API of NVIDIA Onyx."""

    timeout: Duration = Duration(35.0)


class Nvue(Login, frozen=True, kw_only=True):
    """NVUE, the REST API of Cumulus Linux."""


class Eapi(Login, frozen=True, kw_only=True):
    """Arista's eAPI."""


class Nxapi(Login, frozen=True, kw_only=True):
    """Cisco's NX-API, and the object store (DME) beside it."""


class Restconf(Login, frozen=True, kw_only=True):
    """RESTCONF, as SONiC has it."""


class Redis(Secretive, frozen=True, kw_only=True):
    """SONiC's counters database, where it can be reached; the password is given in one of three ways, or not at all.

    Attributes:
        address: Where, if not at the target's address: host, host and port (6379), or the path of a socket.
        username: User of the database; empty for the default one.
        tls: Whether it speaks TLS.
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


WAYS = ("snmp", "onyx", "nvue", "eapi", "nxapi", "restconf", "redis")
"""Keys of a target, each a way to ask it, in order of preference: what two tell is taken from the first."""


class Target(Selection, frozen=True, kw_only=True):
    """One switch; include and exclude are names of its ports.

    Attributes:
        name: Its name in the exporter; also its label where it does not tell its own.
        address: Host, or host and port.
        interval: Time between polls; that of the defaults, else of its profile where not given.
        profile: Which profile of SNMP fits it; by its sysObjectID where not given.
        role: What it is in the fabric; by its neighbours where not given.
        uplinks: Ports that lead up, as shell patterns; by the roles of neighbours where not given.
        optics: Whether the modules in its ports are read: many rows on most switches, so they are asked seldom.
        lldp: Whether its neighbours are asked for.
        poll: Whether it is polled in the background; if not, only when somebody asks by `/probe`.
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
        """See that there is a name, a way to ask and an address fit for it."""
        if not self.name:
            raise ValueError("the name is empty; give one, it becomes a label")
        if not self.ways():
            raise ValueError(f"{self.name} gives no way to ask it; give one or more of {', '.join(WAYS)}")
        super().__post_init__()
        check_patterns("uplinks", self.uplinks)
        if self.snmp is not None:
            from exporter.snmp.client import parse_address  # noqa: PLC0415  # only where there are switches

            parse_address(self.snmp.address or self.address)

    def ways(self) -> dict[str, object]:
        """Give the options of each way that is given, by its name."""
        return {way: options for way in WAYS if (options := getattr(self, way)) is not None}


class Traps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where traps and informs are listened for. They are heeded from targets alone, by the credentials of their `snmp`.

    Attributes:
        listen: Addresses with ports.
    """

    listen: tuple[str, ...] = (":162",)

    def __post_init__(self) -> None:
        """See that there are addresses, and what they are."""
        if not self.listen:
            raise ValueError("listen is empty; give an address such as ':162'")
        for address in self.listen:
            host, colon, port = address.rpartition(":")
            if not colon or (":" in host and not host.startswith("[")) or not (port.isdecimal() and int(port) < 65536):
                raise ValueError(f"listen has {address!r}; write :PORT, HOST:PORT or [IPV6]:PORT")
