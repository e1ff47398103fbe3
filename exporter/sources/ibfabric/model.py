"""What is known of a fabric: nodes, their ports, and which ports are linked."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.linux.mad.datagram import (
    MAX_UNICAST,
    PERMISSIVE,
    Attribute,
    Path,
    Problem,
    Route,
)
from exporter.linux.mad.performance import Capabilities
from exporter.linux.mad.subnet import (
    ACTIVE,
    CHANNEL_ADAPTER,
    ROUTER,
    SWITCH,
    TRUSTING,
    Masks,
    NodeInfo,
    PortInfo,
    fastest,
    speed,
)

AGGREGATION = re.compile(r"aggregation node", re.IGNORECASE)
"""In the description of the adapter inside a switch that sums up for collectives."""

LEAF_SHARE = 0.25
"""Share of a switch's links that lead to adapters, from which on it is a leaf; a spine may have one or two."""

_HOST = re.compile(r"(\S+) ((?:mlx\d|hfi\d|qib|ib|rdma|roce|HCA-)\S*)")


class End(NamedTuple):
    """One end of a link: a node's GUID and a port's number."""

    guid: int
    port: int


@dataclass(slots=True, eq=False)
class Node:
    """One node.

    Attributes:
        info: What it says that it is.
        path: A directed route to it.
        description: What it calls itself, tidied; empty where it did not tell.
        ports: How its ports are, by number; those that did not tell are missing. A switch's port 0 is its own.
        capabilities: What it counts; None while that is not known.
        enhanced_port_0: Whether a switch's port 0 has counters.
        fec_modes: By port, the mode of its forward error correction, where that is told.
        has: What it was asked for and told, of what not every node has.
        lacks: What it does not have of that.
        misses: How often in a row it left such a question unanswered.
    """

    info: NodeInfo
    path: Path
    description: str = ""
    ports: dict[int, PortInfo] = field(default_factory=dict)
    capabilities: Capabilities | None = None
    enhanced_port_0: bool = False
    fec_modes: dict[int, int] = field(default_factory=dict)
    has: set[Attribute] = field(default_factory=set)
    lacks: set[Attribute] = field(default_factory=set)
    misses: dict[Attribute, int] = field(default_factory=dict)

    @property
    def guid(self) -> int:
        """Give its GUID."""
        return self.info.guid

    @property
    def name(self) -> str:
        """Give what it is called, for people: its description, else its GUID."""
        return self.description or guid_text(self.guid)

    @property
    def is_switch(self) -> bool:
        """Tell whether it is a switch."""
        return self.info.kind == SWITCH

    @property
    def kind(self) -> str:
        """Give the word for what it is."""
        if self.info.kind == CHANNEL_ADAPTER:
            return "aggregation" if AGGREGATION.search(self.description) else "adapter"
        return {SWITCH: "switch", ROUTER: "router"}.get(self.info.kind, "unknown")

    @property
    def host_and_device(self) -> tuple[str, str]:
        """Split the description of an adapter as Linux writes it, `gpu-17 mlx5_0`; empty where it is none."""
        found = _HOST.fullmatch(self.description) if self.kind == "adapter" else None
        return (found[1], found[2]) if found else ("", "")

    def masks(self, port: int) -> Masks | None:
        """Give the masks of capabilities that hold for a port; None for those that stand in its own attribute."""
        if not self.is_switch or port == 0:
            return None
        base = self.ports.get(0)
        return TRUSTING if base is None else (base.capabilities, base.capabilities_2)

    def lid(self, port: int) -> int | None:
        """Give the LID that a port is managed by; None while there is none."""
        info = self.ports.get(0 if self.is_switch else port)
        return info.lid if info is not None and 0 < info.lid <= MAX_UNICAST else None

    def route(self, port: int) -> Route:
        """Give how to reach its subnet management: by LID where there is one."""
        lid = self.lid(port)
        return Route(PERMISSIVE, self.path) if lid is None else Route(lid)


@dataclass(slots=True, eq=False)
class Fabric:
    """All that was found.

    Attributes:
        nodes: By GUID.
        peers: What is linked to what; each link stands there from both ends.
        unanswered: Ports whose link is up, and whose peer does not say what it is.
        origin: The port that the fabric is looked at from; None before anything was found.
        leaves: Switches that were leaves at some time, also while most of their hosts are down.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    peers: dict[End, End] = field(default_factory=dict)
    unanswered: dict[End, Problem] = field(default_factory=dict)
    origin: End | None = None
    leaves: set[int] = field(default_factory=set)

    def has(self, end: End) -> bool:
        """Tell whether a port of a node is of this fabric: an adapter's second one may be of another."""
        return self.nodes[end.guid].is_switch or end in self.peers or end == self.origin

    def join(self, one: End, other: End) -> None:
        """Note a link; what either end was linked to before is no more."""
        for end in (one, other):
            self.part(end)
        self.peers[one], self.peers[other] = other, one

    def part(self, end: End) -> End | None:
        """Note that an end has no link; gives what was at the other end."""
        self.unanswered.pop(end, None)
        other = self.peers.pop(end, None)
        if other is not None and other != end:
            self.peers.pop(other, None)
        return other

    def drop(self, guids: Collection[int]) -> list[Node]:
        """Forget nodes and their links; gives the nodes."""
        dropped = [self.nodes.pop(guid) for guid in guids]
        for end in [end for end in (*self.peers, *self.unanswered) if end.guid in guids]:
            self.part(end)
        return dropped

    def links(self) -> Iterator[tuple[End, End]]:
        """Give each link once, beginning with its lower end."""
        return ((one, other) for one, other in sorted(self.peers.items()) if one <= other)

    def port(self, end: End) -> PortInfo | None:
        """Give how a port is; None where that is not known."""
        node = self.nodes.get(end.guid)
        return None if node is None else node.ports.get(end.port)

    def speed(self, end: End) -> float | None:
        """Give bytes per second of a port's link; None where it is down or not known."""
        port = self.port(end)
        return speed(port.generation, port.lanes) if port is not None and port.state >= ACTIVE else None

    def best(self, end: End) -> tuple[str | None, int | None]:
        """Give the generation and the lanes that both ends of a link can do; None each where not known."""
        other = self.peers.get(end)
        here, there = self.port(end), None if other is None else self.port(other)
        if here is None or there is None:
            return None, None
        lanes = max(here.lanes_supported & there.lanes_supported, default=None)
        return fastest(here.generations_supported & there.generations_supported), lanes

    def expected_speed(self, end: End) -> float | None:
        """Give bytes per second that both ends of a link can do; None where one of them is not known."""
        return speed(*self.best(end))

    def levels(self) -> dict[int, int]:
        """Tell how far above the adapters each switch is: 0 for a leaf."""
        beside: dict[int, list[int]] = {}
        adapters: dict[int, int] = {}
        for one, other in self.peers.items():
            node, peer = self.nodes.get(one.guid), self.nodes.get(other.guid)
            if node is None or peer is None or not node.is_switch:
                continue
            if peer.is_switch:
                beside.setdefault(one.guid, []).append(other.guid)
            elif peer.kind == "adapter":
                adapters[one.guid] = adapters.get(one.guid, 0) + 1
        self.leaves |= {
            guid for guid, count in adapters.items() if count >= LEAF_SHARE * (count + len(beside.get(guid, ())))
        }
        found = dict.fromkeys(self.leaves & self.nodes.keys(), 0)
        ring, level = list(found), 0
        while ring:
            level += 1
            ring = list({peer for guid in ring for peer in beside.get(guid, ()) if peer not in found})
            found.update(dict.fromkeys(ring, level))
        return found


def guid_text(guid: int) -> str:
    """Give a GUID as 16 hex digits."""
    return f"{guid:016x}"


def width_text(port: PortInfo) -> str:
    """Give the width of a link, `4X`; empty where unknown."""
    return "" if port.lanes is None else f"{port.lanes}X"
