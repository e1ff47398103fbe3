"""Who is at the other end of a link: what a neighbour says of itself, in the labels that its own series have.

A switch that is polled too is told by its label and the label of its port, so that both ends of a link and the series
of both switches join. All else goes by the name that it sends; a MAC address joins the port of a host.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.sources.switch.merge import Neighbour
from exporter.sources.switch.metrics import LINKS
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import Known, Roster, is_mac

SWITCH, HOST, UNKNOWN = "switch", "host", "unknown"

_FORWARDS = frozenset({"bridge", "router"})

_PORT_OF_HOST = re.compile(r"en[opsx][0-9a-f].*|ib[0-9].*|ibp.*")
"""How Linux names the ports of hosts, and no maker the ports of switches."""

_LINUX = re.compile(r"\blinux \d", re.IGNORECASE)
_OF_SWITCH = re.compile(r"cumulus|sonic|onyx|mlnx|arista|nx-os|switch|dent", re.IGNORECASE)


class Link(NamedTuple):
    """One neighbour at one port; empty texts are not known.

    Attributes:
        port: The port here.
        peer: Label of the switch, or name of whatever it is.
        peer_port: Label of the port there, or what it says of it.
        kind: `switch`, `host` or `unknown`.
        mac: MAC address of the port there.
        description: What it says of its port.
        polled: Whether it is a switch that is polled too.
        role: Of that, where it is known.
    """

    port: str
    peer: str
    peer_port: str
    kind: str
    mac: str
    description: str
    polled: bool = False
    role: str = ""


def kind_of(neighbour: Neighbour) -> str:
    """Tell a switch from a host by what it says of itself.

    Hosts that forward packets for containers call themselves bridges and routers; their ports, or their system, tell
    them. A neighbour that is all one port, without more to say, is the firmware of a NIC.
    """
    port = neighbour.peer_port
    if not neighbour.capabilities & _FORWARDS:
        lone_port = is_mac(port) and port == neighbour.chassis
        return HOST if "station" in neighbour.capabilities or lone_port or _PORT_OF_HOST.fullmatch(port) else UNKNOWN
    says_linux = _LINUX.search(neighbour.description) and not _OF_SWITCH.search(neighbour.description)
    return HOST if _PORT_OF_HOST.fullmatch(port) or (says_linux and is_mac(port)) else SWITCH


def mac_of(neighbour: Neighbour) -> str:
    """Give the MAC address of a neighbour's port: that of its chassis only where nothing else tells the port."""
    if is_mac(neighbour.peer_port):
        return neighbour.peer_port
    return neighbour.chassis if is_mac(neighbour.chassis) and not (neighbour.name or neighbour.peer_port) else ""


def stranger(neighbour: Neighbour) -> Link:
    """Tell of a neighbour that is not polled here, by its own words."""
    peer = neighbour.name or neighbour.chassis or next(iter(neighbour.addresses), "")
    peer_port = neighbour.peer_port or neighbour.port_description
    description = neighbour.port_description
    return Link(neighbour.port, peer, peer_port, kind_of(neighbour), mac_of(neighbour), description)


def resolved(here: str, neighbour: Neighbour, roster: Roster) -> Link:
    """Tell of a neighbour, with the labels of its own series where it is polled too.

    Args:
        here: The target that has this neighbour.
        neighbour: What it says.
        roster: The switches that are polled.
    """
    told = stranger(neighbour)
    known = roster.find(neighbour)
    if known is None or known.target == here:  # a switch that sees itself is a loop of cables, and no other end
        return told
    port = _port_there(here, neighbour, known, roster) or told.peer_port
    return told._replace(peer=known.label, peer_port=port, kind=SWITCH, polled=True, role=known.role)


def _port_there(here: str, neighbour: Neighbour, known: Known, roster: Roster) -> str | None:
    """Find the label of the port at the other end: by its name there, else by whom the switch there sees on its ports.

    The latter tells where a switch sends a number or a MAC address of its port.
    """
    for text in (neighbour.peer_port, neighbour.port_description):
        if text and (port := known.ports.get(canonical(text))) is not None:
            return port
    own = canonical(neighbour.port)
    back = {
        one.port
        for one in known.neighbours
        if own in (canonical(one.peer_port), canonical(one.port_description))
        and (met := roster.find(one)) is not None
        and met.target == here
    }
    return back.pop() if len(back) == 1 else None


class LinkTable:
    """Makes the table of links, seen from one end; neighbours that say the same twice are one."""

    def __init__(self) -> None:
        self._rows = RowKeeper(LINKS.labels)

    def make(self, links: Sequence[Link], time: float, *, host: str = "", switch: str = "") -> Table:
        """Make it; what is given of `host` and `switch` says whose ports these are."""
        builder = TableBuilder(LINKS)
        seen: set[tuple[str, ...]] = set()
        for link in links:
            ends = (host, link.port, "", "") if host else ("", "", switch, link.port)
            key = (*ends, link.peer, link.peer_port)
            if key not in seen:
                seen.add(key)
                builder.row(key, {"info": (link.kind, link.mac, link.description)})
        return builder.table(self._rows, time)
