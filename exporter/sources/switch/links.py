"""Links by LLDP: the other end of a port, with the labels of its own series where that switch is polled too.

A peer that is polled has its `switch` and `port` labels, so that both ends of a link and the series of both switches
join. All other peers have the name that they send; a MAC address joins the port of a host.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.table import RowKeeper, Table, TableBuilder, Value
from exporter.sources.switch.metrics import LINKS
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import KnownSwitch, SwitchRegistry, is_mac
from exporter.switch_api.neighbour import LldpNeighbour

SWITCH, HOST, UNKNOWN = "switch", "host", "unknown"

_FORWARDING = frozenset({"bridge", "router"})

_HOST_PORT = re.compile(r"en[opsx][0-9a-f].*|ib[0-9].*|ibp.*")
"""Names of host ports on Linux, which no vendor uses for switch ports."""

_LINUX = re.compile(r"\blinux \d", re.IGNORECASE)
_SWITCH_SOFTWARE = re.compile(r"cumulus|sonic|onyx|mlnx|arista|nx-os|switch|dent", re.IGNORECASE)


class PortLink(NamedTuple):
    """One neighbour at one port; empty texts are not known.

    Attributes:
        port: The local port.
        peer: Label of the peer switch, or name of any other peer.
        peer_port: Label of the port there, or its name as received.
        kind: `switch`, `host` or `unknown`.
        mac: MAC address of the port there.
        description: Its Port Description.
        polled: Whether it is a switch that is polled too.
        role: Role of that switch, where it is known.
        settings: Cells of the settings that it announces, by ending.
    """

    port: str
    peer: str
    peer_port: str
    kind: str
    mac: str
    description: str
    polled: bool = False
    role: str = ""
    settings: Mapping[str, Value] = MappingProxyType({})


def peer_kind(neighbour: LldpNeighbour) -> str:
    """Classify a neighbour as switch, host or unknown.

    Hosts that forward packets for containers have the capabilities of bridges and routers, and some APIs report none:
    the names of their ports, or their System Description, identify them. A neighbour with the same MAC address as
    chassis ID and port ID, and without capabilities, is the firmware of a NIC.
    """
    port = neighbour.peer_port
    runs_linux = _LINUX.search(neighbour.description) and not _SWITCH_SOFTWARE.search(neighbour.description)
    if _HOST_PORT.fullmatch(port) or (runs_linux and is_mac(port)):
        return HOST
    if neighbour.capabilities & _FORWARDING:
        return SWITCH
    nic_firmware = is_mac(port) and port == neighbour.chassis
    return HOST if "station" in neighbour.capabilities or nic_firmware else UNKNOWN


def peer_mac(neighbour: LldpNeighbour) -> str:
    """Return the MAC address of a neighbour's port; that of its chassis only if nothing else identifies the port."""
    if is_mac(neighbour.peer_port):
        return neighbour.peer_port
    return neighbour.chassis if is_mac(neighbour.chassis) and not (neighbour.name or neighbour.peer_port) else ""


def unresolved_link(neighbour: LldpNeighbour) -> PortLink:
    """Return the link to a neighbour that is not polled here, with the names that it sends."""
    peer = neighbour.name or neighbour.chassis or next(iter(neighbour.addresses), "")
    peer_port = neighbour.peer_port or neighbour.port_description
    description = neighbour.port_description
    return PortLink(neighbour.port, peer, peer_port, peer_kind(neighbour), peer_mac(neighbour), description)


def resolve_link(here: str, neighbour: LldpNeighbour, registry: SwitchRegistry) -> PortLink:
    """Return the link to a neighbour, with the labels of its own series where it is polled too.

    Args:
        here: The target that has this neighbour.
        neighbour: The neighbour.
        registry: The switches that are polled.
    """
    link = unresolved_link(neighbour)
    known = registry.find(neighbour)
    if known is None or known.target == here:  # a switch that is its own neighbour has a loop of cables
        return link
    port = _peer_port(here, neighbour, known, registry) or link.peer_port
    return link._replace(peer=known.label, peer_port=port, kind=SWITCH, polled=True, role=known.role)


def _peer_port(here: str, neighbour: LldpNeighbour, known: KnownSwitch, registry: SwitchRegistry) -> str | None:
    """Find the label of the port at the other end: by its name there, else by the neighbours of the switch there.

    The latter is needed where a switch sends a number or a MAC address as port ID.
    """
    for text in (neighbour.peer_port, neighbour.port_description):
        if text and (port := known.ports.get(canonical(text))) is not None:
            return port
    own = canonical(neighbour.port)
    ports = {
        one.port
        for one in known.neighbours
        if own in (canonical(one.peer_port), canonical(one.port_description))
        and (peer := registry.find(one)) is not None
        and peer.target == here
    }
    return ports.pop() if len(ports) == 1 else None


class LinkTable:
    """Builds the table of links, seen from one end; duplicate neighbours are one row."""

    def __init__(self) -> None:
        self._rows = RowKeeper(LINKS.labels)

    def make(self, links: Sequence[PortLink], time: float, *, host: str = "", switch: str = "") -> Table:
        """Return the table; either `host` or `switch` is the device with these ports."""
        builder = TableBuilder(LINKS)
        keys: set[tuple[str, ...]] = set()
        for link in links:
            ends = (host, link.port, "", "") if host else ("", "", switch, link.port)
            key = (*ends, link.peer, link.peer_port)
            if key not in keys:
                keys.add(key)
                builder.row(key, {"info": (link.kind, link.mac, link.description), **link.settings})
        return builder.table(self._rows, time)
