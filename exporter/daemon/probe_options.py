"""The section `probe` of the configuration, and which hosts its list `allow` permits."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

import msgspec

from exporter.config.addresses import Address, canonical_name, forms_of, parse_numeric
from exporter.config.errors import RuleError, check_patterns
from exporter.snmp.client import parse_address
from exporter.sources.switch.options import PROTOCOLS, Target
from exporter.sources.switch.targets import CommonOptions, SwitchOptions, resolve_targets

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

EVERYTHING = ("*", "0.0.0.0/0", "::/0")
"""All names and all networks."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")

_ADDRESS_PATTERN = re.compile(r"[\d.]{0,15}\d\.[\d.*?\[\]!-]{0,64}")
"""A pattern of addresses rather than names: it would also match names such as `10.0.example.com`."""


class ProbeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `probe`.

    Attributes:
        allow: Targets that may be probed besides configured switches: names, as shell patterns, and networks. A name
            that matches no pattern may be probed if all its addresses are in the networks.
        modules: Options of a switch, by the value of the parameter `module`; they are merged into the defaults of
            `switches`.
        auths: Credentials, by the value of the parameter `auth`; they replace those of the module.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    allow: tuple[str, ...] = ()
    modules: dict[str, CommonOptions] = {}  # msgspec copies mutable defaults
    auths: dict[str, CommonOptions] = {}
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the networks, that `auths` hold credentials only, and that no module or auth names an address.

        Raises:
            RuleError: One of these does not hold.
        """
        check_patterns("allow", self.allow)
        for place, pattern in enumerate(self.allow):
            try:
                parse_network(pattern)
            except ValueError as error:
                raise RuleError(["allow", place], str(error)) from None
        for name, auth in self.auths.items():
            others = auth.explicit_options().keys() - set(PROTOCOLS)
            if others:
                raise RuleError(["auths", name, min(others)], f"does not belong here; known are {', '.join(PROTOCOLS)}")
        for key, named in (("modules", self.modules), ("auths", self.auths)):
            for name, common in named.items():
                for way in PROTOCOLS:
                    if getattr(getattr(common, way), "address", None) is not None:
                        text = "does not belong here: the address is that of the probe's target"
                        raise RuleError([key, name, way, "address"], text)


@dataclass(frozen=True, slots=True)
class ProbeSection:
    """The section's name, place and type, as `exporter.config.schema` uses them."""

    name: str = "probe"
    section: str = "probe"
    options: type[msgspec.Struct] = ProbeOptions


def is_allowed(host: str, allow: Iterable[str]) -> bool:
    """Return whether a host is allowed as it is written, without a DNS lookup.

    Args:
        host: A name or an address.
        allow: Shell patterns of names, and networks.
    """
    patterns = list(allow)
    address = parse_numeric(host)
    if address is None:
        return is_allowed_name(host, patterns)
    return is_allowed_address(address, networks_of(patterns))


def is_allowed_name(host: str, allow: Iterable[str]) -> bool:
    """Return whether a name matches a pattern; False for an address in any form, which only networks allow."""
    if parse_numeric(host) is not None:
        return False
    names = {host.lower(), canonical_name(host)}
    patterns = [pattern.lower() for pattern in allow if parse_network(pattern) is None]
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def is_allowed_address(address: Address, networks: Iterable[Network]) -> bool:
    """Return whether networks allow an address, and each one that it embeds: that is where its packets are sent."""
    known = list(networks)
    return all(any(form in network for network in known) for form in forms_of(address))


def networks_of(allow: Iterable[str]) -> list[Network]:
    """Return the networks of a list of patterns and networks; of an IPv4-mapped one the IPv4 network too."""
    found = [network for pattern in allow if (network := parse_network(pattern)) is not None]
    mapped = [network for network in found if network.version == 6 and network.subnet_of(_MAPPED)]
    return found + [_ipv4_of(network) for network in mapped]


def parse_network(pattern: str) -> Network | None:
    """Parse a network or an address; return None for the pattern of a name.

    Raises:
        ValueError: The text looks like a network and is not one.
    """
    try:
        return ipaddress.ip_network(pattern)
    except ValueError as error:
        if "/" in pattern:
            raise ValueError(f"is not a network: {error}") from None
        if ":" in pattern or _ADDRESS_PATTERN.fullmatch(pattern):
            raise ValueError(f"{pattern!r} is not a name; write addresses as a network, such as 192.0.2.0/24") from None
        return None


def _ipv4_of(mapped: ipaddress.IPv6Network) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((int(mapped.network_address) & 0xFFFFFFFF, mapped.prefixlen - 96))


def places_of(host: str) -> frozenset[str]:
    """Return what identifies a host: its name, or its address in each form."""
    address = parse_numeric(host)
    return frozenset({canonical_name(host)} if address is None else map(str, forms_of(address)))


def endpoints_of(target: Target) -> Iterator[tuple[str, int]]:
    """Yield host, as configured, and port of each address; paths of sockets are skipped, as no probe names one."""
    addresses = [
        target.address,
        *(str(own) for way in target.protocols().values() if (own := getattr(way, "address", ""))),
    ]
    for address in addresses:
        try:
            host, port = parse_address(address.rpartition("://")[2].rstrip("/"))
        except ValueError:
            continue
        yield host, port


def check_probe(options: ProbeOptions, switches: SwitchOptions) -> None:
    """Check that `probe.allow` allows no switch that is polled in the background.

    Raises:
        RuleError: It does.
    """
    for target, _ in resolve_targets(switches):
        if target.poll and any(is_allowed(host, options.allow) for host, _ in endpoints_of(target)):
            raise RuleError(
                ["probe", "allow"],
                f"allows {target.address!r}, which is the switch {target.name!r} that is polled in the background; give"
                " that `poll: false`, or allow less",
            )
