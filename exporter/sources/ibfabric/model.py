"""The topology of a fabric: nodes, their ports, and the links between ports."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.linux.mad.datagram import (
    MAX_UNICAST_LID,
    PERMISSIVE_LID,
    Attribute,
    DirectedPath,
    Problem,
    Route,
)
from exporter.linux.mad.performance import PmaCapabilities
from exporter.linux.mad.subnet import (
    ACTIVE,
    ASSUMED_MASKS,
    CHANNEL_ADAPTER,
    ROUTER,
    SWITCH,
    CapabilityMasks,
    NodeInfo,
    PortInfo,
    fastest_generation,
    link_speed,
)

AGGREGATION_NODE = re.compile(r"aggregation node", re.IGNORECASE)
"""In the description of the channel adapter inside a switch that performs in-network reductions (SHARP)."""

MIN_LEAF_SHARE = 0.25
"""Share of a switch's links that lead to adapters from which on it is a leaf; a spine may have one or two of them."""

_HOST_DESCRIPTION = re.compile(r"(\S{1,64}) ((?:mlx\d|hfi\d|qib|ib|rdma|roce|HCA-)\S{0,64})")


class LinkEnd(NamedTuple):
    """One end of a link: NodeGUID and port number."""

    guid: int
    port: int


@dataclass(slots=True, eq=False)
class IbNode:
    """One node.

    Attributes:
        info: NodeInfo.
        path: Directed route to the node.
        description: NodeDescription; empty where it could not be read.
        ports: PortInfo by port number, of the ports that could be read. Port 0 of a switch is its management port.
        capabilities: Capabilities of the PMA; None while they are not known.
        enhanced_port_0: Whether port 0 of a switch has counters.
        fec_modes: FECModeActive by port, where the port reports it.
        supported: Optional attributes that the node has answered.
        unsupported: Optional attributes that the node does not support.
        missed: Timeouts in a row of an optional attribute that the node has never answered.
    """

    info: NodeInfo
    path: DirectedPath
    description: str = ""
    ports: dict[int, PortInfo] = field(default_factory=dict)
    capabilities: PmaCapabilities | None = None
    enhanced_port_0: bool = False
    fec_modes: dict[int, int] = field(default_factory=dict)
    supported: set[Attribute] = field(default_factory=set)
    unsupported: set[Attribute] = field(default_factory=set)
    missed: dict[Attribute, int] = field(default_factory=dict)

    @property
    def guid(self) -> int:
        """NodeGUID."""
        return self.info.guid

    @property
    def name(self) -> str:
        """The description; where there is none, the GUID."""
        return self.description or format_guid(self.guid)

    @property
    def is_switch(self) -> bool:
        """Whether NodeType is switch."""
        return self.info.node_type == SWITCH

    @property
    def kind(self) -> str:
        """Kind of the node as a label value: switch, adapter, aggregation, router or unknown."""
        if self.info.node_type == CHANNEL_ADAPTER:
            return "aggregation" if AGGREGATION_NODE.search(self.description) else "adapter"
        return {SWITCH: "switch", ROUTER: "router"}.get(self.info.node_type, "unknown")

    @property
    def host_and_device(self) -> tuple[str, str]:
        """Host and device of an adapter whose description has Linux's form `gpu-17 mlx5_0`; empty for others."""
        found = _HOST_DESCRIPTION.fullmatch(self.description) if self.kind == "adapter" else None
        return (found[1], found[2]) if found else ("", "")

    def capability_masks(self, port: int) -> CapabilityMasks | None:
        """Return the capability masks that apply to a port; None where its own PortInfo has them."""
        if not self.is_switch or port == 0:
            return None
        base = self.ports.get(0)
        return ASSUMED_MASKS if base is None else (base.capabilities, base.capabilities_2)

    def lid(self, port: int) -> int | None:
        """Return the LID by which a port is managed; None while none is assigned."""
        info = self.ports.get(0 if self.is_switch else port)
        return info.lid if info is not None and 0 < info.lid <= MAX_UNICAST_LID else None

    def route(self, port: int) -> Route:
        """Return the route to the SMA of a port: LID routed where it has a LID, else the directed route."""
        lid = self.lid(port)
        return Route(PERMISSIVE_LID, self.path) if lid is None else Route(lid)


@dataclass(slots=True, eq=False)
class IbFabric:
    """Topology of one subnet.

    Attributes:
        nodes: Nodes by GUID.
        peers: The other end of each linked port; contains each link in both directions.
        unanswered: Ports whose link is up and whose peer could not be identified.
        origin: The local port from which the fabric is read; None before the first discovery.
        leaves: Switches that were classified as leaves before, which they stay while most of their hosts are down.
    """

    nodes: dict[int, IbNode] = field(default_factory=dict)
    peers: dict[LinkEnd, LinkEnd] = field(default_factory=dict)
    unanswered: dict[LinkEnd, Problem] = field(default_factory=dict)
    origin: LinkEnd | None = None
    leaves: set[int] = field(default_factory=set)

    def contains(self, end: LinkEnd) -> bool:
        """Return whether a port is in this subnet: the second port of an adapter may be in another one."""
        return self.nodes[end.guid].is_switch or end in self.peers or end == self.origin

    def add_link(self, one: LinkEnd, other: LinkEnd) -> None:
        """Add a link; earlier links of both ends are removed."""
        for end in (one, other):
            self.remove_link(end)
        self.peers[one], self.peers[other] = other, one

    def remove_link(self, end: LinkEnd) -> LinkEnd | None:
        """Remove the link of a port; return its other end, if there was a link."""
        self.unanswered.pop(end, None)
        other = self.peers.pop(end, None)
        if other is not None and other != end:
            self.peers.pop(other, None)
        return other

    def remove_nodes(self, guids: Collection[int]) -> list[IbNode]:
        """Remove nodes and their links; return the removed nodes."""
        removed = [self.nodes.pop(guid) for guid in guids]
        for end in [end for end in (*self.peers, *self.unanswered) if end.guid in guids]:
            self.remove_link(end)
        return removed

    def links(self) -> Iterator[tuple[LinkEnd, LinkEnd]]:
        """Return each link once, as its lower and its higher end, sorted."""
        return ((one, other) for one, other in sorted(self.peers.items()) if one <= other)

    def port(self, end: LinkEnd) -> PortInfo | None:
        """Return the PortInfo of a port; None where it is not known."""
        node = self.nodes.get(end.guid)
        return None if node is None else node.ports.get(end.port)

    def speed(self, end: LinkEnd) -> float | None:
        """Return the link speed of a port in bytes per second; None while the link is not active."""
        port = self.port(end)
        return link_speed(port.generation, port.lanes) if port is not None and port.state >= ACTIVE else None

    def common_capability(self, end: LinkEnd) -> tuple[str | None, int | None]:
        """Return the fastest generation and the width that both ends of a link support; None where not known."""
        other = self.peers.get(end)
        here, there = self.port(end), None if other is None else self.port(other)
        if here is None or there is None:
            return None, None
        lanes = max(here.lanes_supported & there.lanes_supported, default=None)
        return fastest_generation(here.generations_supported & there.generations_supported), lanes

    def expected_speed(self, end: LinkEnd) -> float | None:
        """Return the speed that both ends of a link support, in bytes per second; None where not known."""
        return link_speed(*self.common_capability(end))

    def levels(self) -> dict[int, int]:
        """Return the level of each switch by GUID: 0 for a leaf, 1 for a switch linked to a leaf, and so on."""
        neighbours: dict[int, list[int]] = {}
        adapters: dict[int, int] = {}
        for one, other in self.peers.items():
            node, peer = self.nodes.get(one.guid), self.nodes.get(other.guid)
            if node is None or peer is None or not node.is_switch:
                continue
            if peer.is_switch:
                neighbours.setdefault(one.guid, []).append(other.guid)
            elif peer.kind == "adapter":
                adapters[one.guid] = adapters.get(one.guid, 0) + 1
        self.leaves |= {
            guid
            for guid, count in adapters.items()
            if count >= MIN_LEAF_SHARE * (count + len(neighbours.get(guid, ())))
        }
        found = dict.fromkeys(self.leaves & self.nodes.keys(), 0)
        current, level = list(found), 0
        while current:
            level += 1
            current = list({peer for guid in current for peer in neighbours.get(guid, ()) if peer not in found})
            found.update(dict.fromkeys(current, level))
        return found

    def can_forward(self, end: LinkEnd) -> bool:
        """Return whether a directed route can leave by a port: an external port of a switch, or the local port."""
        return (self.nodes[end.guid].is_switch and end.port > 0) or end == self.origin

    def directed_routes(self) -> dict[int, DirectedPath]:
        """Return the shortest directed route to each node that can be reached over known links."""
        origin = self.origin
        if origin is None:
            return {}
        neighbours: dict[int, list[tuple[int, int]]] = {}
        for one, other in self.peers.items():
            if one == origin or self.nodes[one.guid].is_switch:  # adapters do not forward
                neighbours.setdefault(one.guid, []).append((one.port, other.guid))
        routes = {origin.guid: b""}
        queue = [origin.guid]
        for guid in queue:  # grows during the loop
            for port, other_guid in neighbours.get(guid, ()):
                if other_guid not in routes:
                    routes[other_guid] = routes[guid] + bytes([port])
                    queue.append(other_guid)
        return routes

    def update_routes(self) -> set[int]:
        """Set the directed route of each reachable node; return the GUIDs of the reachable nodes."""
        routes = self.directed_routes()
        for guid, path in routes.items():
            self.nodes[guid].path = path
        return set(routes)


def format_guid(guid: int) -> str:
    """Return a GUID as 16 hexadecimal digits."""
    return f"{guid:016x}"


def format_width(port: PortInfo) -> str:
    """Return the width of a link, such as `4X`; empty where unknown."""
    return "" if port.lanes is None else f"{port.lanes}X"
