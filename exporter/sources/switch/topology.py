"""Where a switch stands in the fabric, and which of its ports lead where: by configuration, else by its neighbours.

A switch with hosts at it is a leaf; one at which there are leaves, and nothing but them and cores, is a spine. Of all
others nobody knows, and the configuration may say it. Ports that lead up are measured against each other.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from exporter.sources.switch.links import HOST, SWITCH, Link
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical

LEAF, SPINE, CORE = "leaf", "spine", "core"

UPLINK = "uplink"

_ETHERNET = frozenset({"6", "62", "69", "117"})
"""ifType of ports of Ethernet, the newer and the older ones."""

_MANAGEMENT = re.compile(r"management.*|mgmt.*|eth[01]|em[01]|fxp\d.*|me0|vme.*")
"""Names, in lower case, of ports that only manage the switch."""

_VIRTUAL = (
    "port-channel",
    "vlan",
    "loopback",
    "lo",
    "mpo",
    "mlag",
    "bond",
    "bridge",
    "br",
    "peerlink",
    "null",
    "nve",
    "vxlan",
    "tunnel",
    "recirc-channel",
)
"""How canonical names begin of what stands for other ports, or for none."""


class Topology:
    """What is known of one switch's place, from poll to poll.

    A link that is down has no neighbour any more: its port is taken to lead where it led.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._links: dict[str, Sequence[Link]] = {}

    def note(self, links: Iterable[Link], ups: Mapping[str, object]) -> None:
        """Take note of the neighbours of now.

        Args:
            links: All of them.
            ups: By port that there is: 1 where the link is up.
        """
        now: dict[str, list[Link]] = {}
        for link in links:
            now.setdefault(link.port, []).append(link)
        kept = {port: old for port, old in self._links.items() if port in ups and ups[port] != 1}
        self._links = {**kept, **now}

    def role(self) -> str:
        """Give the role of the switch; empty where it is not known."""
        if self._target.role is not None:
            return self._target.role
        links = [link for port, links in self._links.items() if not is_management(port) for link in links]
        if any(link.kind == HOST for link in links):
            return LEAF
        roles = {link.role for link in links if link.polled}
        return SPINE if LEAF in roles and roles <= {LEAF, CORE} else ""

    def group(self, port: str, if_type: str, role: str) -> str | None:
        """Give the kind of a port: `uplink`, `host`, or None for all that is compared with nothing.

        Args:
            port: Its label.
            if_type: Number of its type, where it is known.
            role: That of the switch.
        """
        if not is_physical(port, if_type):
            return None
        links = self._links.get(port, ())
        if self._target.uplinks:
            if any(fnmatchcase(port, pattern) for pattern in self._target.uplinks):
                return UPLINK
        elif any(_leads_up(link, role) for link in links):
            return UPLINK
        if any(link.kind == HOST for link in links):
            return HOST
        return HOST if role == LEAF and not any(link.kind == SWITCH for link in links) else None


def _leads_up(link: Link, role: str) -> bool:
    """Tell whether the switch at the other end is above one of this role."""
    if link.kind != SWITCH:
        return False
    if role == LEAF:
        return link.role != LEAF  # two leaves that are one to their hosts have links between them
    return link.role == CORE or (link.role == SPINE and role == "")


def is_management(port: str) -> bool:
    """Tell by its name a port that only manages the switch."""
    return bool(_MANAGEMENT.fullmatch(port.lower()) or _MANAGEMENT.fullmatch(canonical(port)))


def is_physical(port: str, if_type: str) -> bool:
    """Tell a port of the fabric that has a cable from bundles, networks and all else that an agent lists.

    Args:
        port: Its label.
        if_type: Number of its type; the name alone tells where that is not known.
    """
    if is_management(port):
        return False
    if if_type.isdecimal():
        return if_type in _ETHERNET
    return not canonical(port).startswith(_VIRTUAL) and "." not in port
