"""IP addresses and host names in texts, and which addresses lead to the same host."""

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_EMBEDDING = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible (RFC 4291, section 2.5.5.1)
        "::ffff:0:0/96",  # IPv4-mapped (RFC 4291, section 2.5.5.2): the kernel itself uses IPv4
        "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765)
        "64:ff9b::/96",  # NAT64 (RFC 6052)
        "64:ff9b:1::/48",  # NAT64 of a site (RFC 8215)
    )
)
"""Networks whose addresses have an IPv4 address in their last 32 bits."""

_ISATAP = (0x00005EFE, 0x02005EFE)
"""Bits 64 to 95 of addresses that end with an IPv4 address (RFC 5214)."""

_LOOPBACK: Mapping[int, Address] = MappingProxyType(
    {4: ipaddress.IPv4Address("127.0.0.1"), 6: ipaddress.IPv6Address("::1")}
)


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, and not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """Return whether the resolver accepts a text as a name, or an IPv4 address: labels of 1 to 63 characters."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return re.fullmatch(r"[^\s:/@%\[\]]+", text) is not None


def canonical_name(host: str) -> str:
    """Return a name as the resolver uses it: in ASCII and lower case, without the dot of the root."""
    try:
        host = host.encode("idna").decode("ascii")
    except UnicodeError:
        return host.lower()
    return host.lower().removesuffix(".")


def parse_numeric(host: str) -> Address | None:
    """Return the address that the resolver takes a text for without a name server; None for a name.

    IPv4 has many forms for it: 127.1, 0x7f.1, 2130706433, and digits of other scripts.
    """
    name = canonical_name(host)
    for text in (host, name):  # the zone of an address is not in lower case
        with suppress(ValueError):
            return ipaddress.ip_address(text)
    if not re.fullmatch(r"[0-9a-fx.]+", name):
        return None
    with suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(name))
    return None


def forms_of(address: Address) -> frozenset[Address]:
    """Return an address, without its zone, and those that packets to it can be sent to: the ones that it embeds.

    A prefix of NAT64 that a network has chosen itself cannot be recognised.
    """
    found: set[Address] = {address if address.version == 4 else ipaddress.IPv6Address(int(address))}
    for one in tuple(found):
        for embedded in _embedded(one):
            found |= forms_of(embedded)
        if one.is_unspecified:  # Linux connects to itself
            found.add(_LOOPBACK[one.version])
    return frozenset(found)


def _embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    if address.version == 4:
        return
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if number > 1 and (number >> 32 & 0xFFFFFFFF in _ISATAP or any(address in network for network in _EMBEDDING)):
        yield last
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield address.teredo[1]
