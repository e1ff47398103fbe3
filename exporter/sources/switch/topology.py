"""The role of a switch and the groups of its ports: by configuration, else by its LLDP neighbours.

A switch with hosts as neighbours is a leaf; one whose neighbours are leaves, and besides them only cores, is a spine.
The role of all others is unknown unless it is configured. Uplinks are compared with each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from exporter.sources.switch.links import HOST, SWITCH, PortLink
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_kinds import PortKind, kind_of

LEAF, SPINE, CORE = "leaf", "spine", "core"

UPLINK = "uplink"


class Topology:
    """The neighbours of one switch, from poll to poll.

    A link that is down has no neighbour any more: its port keeps its last one.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._links: dict[str, Sequence[PortLink]] = {}

    def update(self, links: Iterable[PortLink], link_up: Mapping[str, object], kinds: Mapping[str, str]) -> None:
        """Replace the links by the current ones, except at ports that are down.

        Args:
            links: All links. One of a sub-interface is one of its port; those outside the fabric are skipped.
            link_up: By port: 1 if the link is up.
            kinds: By port: its PortKind.
        """
        current: dict[str, list[PortLink]] = {}
        for link in links:
            kind = kinds.get(link.port) or kind_of(link.port)
            if kind not in (PortKind.MANAGEMENT, PortKind.VIRTUAL):
                port = link.port.rpartition(".")[0] if kind == PortKind.SUB_INTERFACE else link.port
                current.setdefault(port, []).append(link)
        down = {port: old for port, old in self._links.items() if port in link_up and link_up[port] != 1}
        self._links = {**down, **current}

    def role(self) -> str:
        """Return the role of the switch; empty where it is not known."""
        if self._target.role is not None:
            return self._target.role
        links = [link for links in self._links.values() for link in links]
        if any(link.kind == HOST for link in links):
            return LEAF
        roles = {link.role for link in links if link.polled}
        return SPINE if LEAF in roles and roles <= {LEAF, CORE} else ""

    def group(self, port: str, kind: str, role: str) -> str | None:
        """Return the group of a port: `uplink`, `host`, or None for ports that are not compared.

        Args:
            port: Its label.
            kind: Its PortKind.
            role: The role of the switch.
        """
        if kind != PortKind.PHYSICAL:
            return None
        links = self._links.get(port, ())
        if self._target.uplinks:
            if any(fnmatchcase(port, pattern) for pattern in self._target.uplinks):
                return UPLINK
        elif any(_is_uplink(link, role) for link in links):
            return UPLINK
        if any(link.kind == HOST for link in links):
            return HOST
        return HOST if role == LEAF and not any(link.kind == SWITCH for link in links) else None


def _is_uplink(link: PortLink, role: str) -> bool:
    """Return whether the switch at the other end is above one with this role."""
    if link.kind != SWITCH:
        return False
    if role == LEAF:
        return link.role != LEAF  # an MLAG pair of leaves has links between them
    return link.role == CORE or (link.role == SPINE and role == "")
