"""Finding the fabric: from the local port on, link by link, breadth first, with many questions at a time.

Each node is asked what it is, what it calls itself and how its ports are, by directed route, which works before any
port has a LID. From each port of a switch whose link is trained the node at the other end is asked for; where it does
not answer, the port is remembered as one whose peer is unknown.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    MAX_HOPS,
    PERMISSIVE,
    Answer,
    Attribute,
    Path,
    Problem,
    Request,
    Route,
    Then,
)
from exporter.linux.mad.subnet import PortInfo
from exporter.sources.ibfabric.model import End, Fabric, Node

MAX_NODES = 65_536
"""More than there are LIDs: nodes beyond are none, but nonsense."""

_VENDORS_OF_FDR10 = frozenset({0x0002C9, 0x00066A})

Asked: TypeAlias = Iterator[Request]


class Survey:
    """Adds to a fabric what is found.

    Attributes:
        fabric: What was found so far.
        problems: By node, what went wrong with a question to one that had answered others.
        met: The nodes that were met this time.
    """

    def __init__(self, fabric: Fabric, *, anew: bool = True) -> None:
        """Take what to add to.

        Args:
            fabric: Its nodes may be those of the last time; its links are those found this time.
            anew: Whether nodes that are known are asked all again; else only how the port is that was come in by.
        """
        self.fabric = fabric
        self._anew = anew
        self.problems: dict[int, Problem] = {}
        self.met: set[int] = set()

    def begin(self) -> Asked:
        """Ask this host's own node, and all that is behind it."""
        yield self._who(b"", None)

    def behind(self, end: End) -> Asked:
        """Ask the node at the other end of a port, and all that is behind that and new."""
        node = self.fabric.nodes[end.guid]
        if len(node.path) < MAX_HOPS:
            yield self._who(node.path + bytes([end.port]), end)

    def _who(self, path: Path, via: End | None) -> Request:
        """Ask who is at the end of a route."""
        return Request(path, Route(PERMISSIVE, path), Attribute.NODE_INFO, self._met, (path, via))

    def _met(self, tag: tuple[Path, End | None], answer: Answer) -> Iterable[Request] | None:
        """Take who is at the end of a route."""
        path, via = tag
        fabric = self.fabric
        if isinstance(answer, Problem):
            if via is not None and answer is not Problem.STOPPED:
                fabric.part(via)
                fabric.unanswered[via] = answer
            return None
        info = mad_subnet.node_info(answer)
        here = End(info.guid, info.local_port)
        problem = self._conflict(info.guid, here, via)
        if problem is not None:
            if via is not None:
                fabric.unanswered[via] = problem
            return None
        if via is None:
            fabric.origin = here
        elif fabric.peers.get(via) != here:
            fabric.join(via, here)
        if info.guid in self.met:
            return None
        self.met.add(info.guid)
        before = fabric.nodes.get(info.guid)
        if before is not None and not self._anew:
            before.path = path  # it may have been plugged in elsewhere
            return [
                self._of(before, Attribute.PORT_INFO, self._port, info.local_port),
                self._of(before, Attribute.NODE_DESCRIPTION, self._described),  # a host's begins with its boot
            ]
        node = fabric.nodes[info.guid] = Node(info, path)
        if before is not None:  # what does not change is kept until it is told anew
            node.description, node.capabilities = before.description, before.capabilities
            node.has, node.lacks, node.misses = before.has, before.lacks, before.misses
        return self._about(node)

    def _conflict(self, guid: int, here: End, via: End | None) -> Problem | None:
        """Tell what is wrong with a node that was met: there are too many, or another goes by its GUID."""
        if guid not in self.fabric.nodes and len(self.fabric.nodes) >= MAX_NODES:
            return Problem.TOO_MANY
        if via is not None and self.fabric.peers.get(here, via) != via:  # of one that was moved the old link is parted
            return Problem.DUPLICATE  # the first that was met keeps it
        return None

    def _about(self, node: Node) -> Asked:
        """Ask all about a node that is new."""
        yield self._of(node, Attribute.NODE_DESCRIPTION, self._described)
        if node.is_switch:
            yield self._of(node, Attribute.SWITCH_INFO, self._is_switch)
        for port in range(0 if node.is_switch else 1, node.info.ports + 1):
            yield self._of(node, Attribute.PORT_INFO, self._port, port)

    def _of(self, node: Node, attribute: Attribute, then: Then, port: int = 0) -> Request:
        route = Route(PERMISSIVE, node.path)
        return Request(node.guid, route, attribute, then, (node, port), modifier=port)

    def _described(self, tag: tuple[Node, int], answer: Answer) -> None:
        if isinstance(answer, bytes):
            tag[0].description = mad_subnet.node_description(answer)
        else:
            self.problems.setdefault(tag[0].guid, answer)

    def _is_switch(self, tag: tuple[Node, int], answer: Answer) -> None:
        if isinstance(answer, bytes):
            tag[0].enhanced_port_0 = mad_subnet.switch_info(answer).enhanced_port_0
        else:
            self.problems.setdefault(tag[0].guid, answer)

    def _port(self, tag: tuple[Node, int], answer: Answer) -> Iterable[Request] | None:
        """Take how a port is, and ask who is behind it."""
        node, number = tag
        if isinstance(answer, Problem):
            self.problems.setdefault(node.guid, answer)
            return None
        port = node.ports[number] = mad_subnet.port_info(answer, node.masks(number))
        return self._beyond(node, number, port)

    def _beyond(self, node: Node, number: int, port: PortInfo) -> Asked:
        if port.generation == "QDR" and port.is_trained and node.info.vendor in _VENDORS_OF_FDR10:
            yield self._of(node, Attribute.VENDOR_PORT_INFO, self._vendor, number)
        if port.generation in mad_subnet.EXTENDED_GENERATIONS and port.capabilities_2 & mad_subnet.HAS_EXTENDED_INFO:
            yield self._of(node, Attribute.PORT_INFO_EXTENDED, self._extended, number)
        end = End(node.guid, number)
        if not port.is_trained:
            self.fabric.part(end)
        elif leads_on(self.fabric, end) and end not in self.fabric.peers:
            yield from self.behind(end)

    def _vendor(self, tag: tuple[Node, int], answer: Answer) -> None:
        """Take whether a link of 10 Gb/s a lane is one of FDR10."""
        node, number = tag
        if not isinstance(answer, bytes):
            return  # an older device: it has none
        supported, active = mad_subnet.fdr10(answer)
        port = node.ports[number]
        generations = port.generations_supported | {"FDR10"} if supported else port.generations_supported
        generation = "FDR10" if active else port.generation
        node.ports[number] = port._replace(generation=generation, generations_supported=generations)

    def _extended(self, tag: tuple[Node, int], answer: Answer) -> None:
        """Take how a link's errors are corrected."""
        node, number = tag
        mode = mad_subnet.fec_mode(answer) if isinstance(answer, bytes) else None
        if mode is not None:
            node.fec_modes[number] = mode


def leads_on(fabric: Fabric, end: End) -> bool:
    """Tell whether a directed route can lead out of a port: one of a switch, or that of this host."""
    return (fabric.nodes[end.guid].is_switch and end.port > 0) or end == fabric.origin


def down(port: PortInfo) -> PortInfo:
    """Give a port as it is without a link."""
    return port._replace(state=mad_subnet.DOWN, physical_state=0, lanes=None, generation=None)
