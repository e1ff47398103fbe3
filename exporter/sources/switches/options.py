"""Configuration of `switches`: the targets, and each way to ask one."""

import re
from collections import Counter
from typing import Literal

import msgspec

from exporter.secret import check_one
from exporter.source import Selection
from exporter.units import Duration


class Snmp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a switch is asked by SNMP; the community is given in one of three ways.

    Attributes:
        address: Where, if not at the target's address: host, or host and port.
        version: Version of the protocol.
        timeout: Time to wait for the first try of a question.
        retries: Tries after the first.
    """

    address: str | None = None
    version: Literal["2c"] = "2c"
    community: str | None = None
    community_file: str | None = None
    community_env: str | None = None
    timeout: Duration = Duration(1.0)
    retries: int = 2

    def __post_init__(self) -> None:
        """See that there is one community."""
        check_one("community", self.community, self.community_file, self.community_env)


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
        check_one("password", self.password, self.password_file, self.password_env)
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


class Redis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
            raise ValueError(f"gives no way to ask it; give one or more of {', '.join(WAYS)}")
        if self.snmp is not None:
            from exporter.snmp.client import parse_address  # noqa: PLC0415  # only where there are switches

            parse_address(self.snmp.address or self.address)

    def ways(self) -> dict[str, object]:
        """Give the options of each way that is given, by its name."""
        return {way: options for way in WAYS if (options := getattr(self, way)) is not None}


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for every switch that does not say otherwise."""

    interval: Duration = Duration(15.0)


class SwitchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `switches`.

    Attributes:
        defaults: What holds for all targets.
        targets: The switches.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    defaults: Defaults = Defaults()
    targets: tuple[Target, ...] = ()
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that no name stands twice."""
        names = [target.name for target in self.targets]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two targets are named {twice!r}; names tell them apart")
