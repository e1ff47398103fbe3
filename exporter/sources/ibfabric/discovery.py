"""Discovery of a fabric: a breadth-first walk from the local port, by directed route, with many requests in flight.

Directed routes work before ports have LIDs. Each node is asked for NodeInfo, NodeDescription and the PortInfo of its
ports. From each port of a switch whose link is trained, the node at the other end is asked for NodeInfo; if it does not
respond, the port is recorded as one with an unknown peer.
"""

from collections.abc import Iterable, Iterator

from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    MAX_HOPS,
    PERMISSIVE_LID,
    Attribute,
    DirectedPath,
    Problem,
    Request,
    Result,
    ResultHandler,
    Route,
)
from exporter.linux.mad.subnet import PortInfo
from exporter.sources.ibfabric.model import IbFabric, IbNode, LinkEnd

MAX_NODES = 65_536
"""More than there are LIDs: replies with further GUIDs are not plausible."""

_FDR10_VENDORS = frozenset({0x0002C9, 0x00066A})


class Discovery:
    """Adds the nodes and links that it finds to a fabric.

    Attributes:
        fabric: The fabric.
        problems: First problem of each node that responded to NodeInfo and failed at another attribute.
        visited: GUIDs of the nodes that responded.
    """

    def __init__(self, fabric: IbFabric, *, full: bool = True) -> None:
        """Create a discovery.

        Args:
            fabric: It may contain nodes of the last discovery; its links are those found in this one.
            full: Whether known nodes are read again; else only the port through which the node was reached.
        """
        self.fabric = fabric
        self._full = full
        self.problems: dict[int, Problem] = {}
        self.visited: set[int] = set()

    def start(self) -> Iterator[Request]:
        """Return the requests that begin the walk at the local node."""
        yield self._node_info_request(b"", None)

    def explore(self, end: LinkEnd) -> Iterator[Request]:
        """Return the requests that begin the walk at the peer of a port."""
        node = self.fabric.nodes[end.guid]
        if len(node.path) < MAX_HOPS:
            yield self._node_info_request(node.path + bytes([end.port]), end)

    def _node_info_request(self, path: DirectedPath, via: LinkEnd | None) -> Request:
        return Request(path, Route(PERMISSIVE_LID, path), Attribute.NODE_INFO, self._on_node_info, (path, via))

    def _on_node_info(self, tag: tuple[DirectedPath, LinkEnd | None], result: Result) -> Iterable[Request] | None:
        path, via = tag
        fabric = self.fabric
        if isinstance(result, Problem):
            if via is not None and result is not Problem.STOPPED:
                fabric.remove_link(via)
                fabric.unanswered[via] = result
            return None
        info = mad_subnet.parse_node_info(result)
        here = LinkEnd(info.guid, info.local_port)
        problem = self._conflict(info.guid, here, via)
        if problem is not None:
            if via is not None:
                fabric.unanswered[via] = problem
            return None
        if via is None:
            fabric.origin = here
        elif fabric.peers.get(via) != here:
            fabric.add_link(via, here)
        if info.guid in self.visited:
            return None
        self.visited.add(info.guid)
        before = fabric.nodes.get(info.guid)
        if before is not None and not self._full:
            before.path = path  # the node may have been connected to another port
            return [
                self._request(before, Attribute.PORT_INFO, self._on_port_info, info.local_port),
                self._request(before, Attribute.NODE_DESCRIPTION, self._on_description),  # a host sets it when it boots
            ]
        node = fabric.nodes[info.guid] = IbNode(info, path)
        if before is not None:  # kept until it is read again
            node.description, node.capabilities = before.description, before.capabilities
            node.supported, node.unsupported, node.missed = before.supported, before.unsupported, before.missed
        return self._node_requests(node)

    def _conflict(self, guid: int, here: LinkEnd, via: LinkEnd | None) -> Problem | None:
        """Return the problem of a NodeInfo that cannot be added: too many nodes, or a duplicate GUID."""
        if guid not in self.fabric.nodes and len(self.fabric.nodes) >= MAX_NODES:
            return Problem.TOO_MANY
        if via is not None and self.fabric.peers.get(here, via) != via:  # the old link of a moved node is removed
            return Problem.DUPLICATE  # the node that was found first keeps the GUID
        return None

    def _node_requests(self, node: IbNode) -> Iterator[Request]:
        yield self._request(node, Attribute.NODE_DESCRIPTION, self._on_description)
        if node.is_switch:
            yield self._request(node, Attribute.SWITCH_INFO, self._on_switch_info)
        for port in range(0 if node.is_switch else 1, node.info.num_ports + 1):
            yield self._request(node, Attribute.PORT_INFO, self._on_port_info, port)

    def _request(self, node: IbNode, attribute: Attribute, handler: ResultHandler, port: int = 0) -> Request:
        route = Route(PERMISSIVE_LID, node.path)
        return Request(node.guid, route, attribute, handler, (node, port), modifier=port)

    def _on_description(self, tag: tuple[IbNode, int], result: Result) -> None:
        if isinstance(result, bytes):
            tag[0].description = mad_subnet.parse_node_description(result)
        else:
            self.problems.setdefault(tag[0].guid, result)

    def _on_switch_info(self, tag: tuple[IbNode, int], result: Result) -> None:
        if isinstance(result, bytes):
            tag[0].enhanced_port_0 = mad_subnet.has_enhanced_port_0(result)
        else:
            self.problems.setdefault(tag[0].guid, result)

    def _on_port_info(self, tag: tuple[IbNode, int], result: Result) -> Iterable[Request] | None:
        node, number = tag
        if isinstance(result, Problem):
            self.problems.setdefault(node.guid, result)
            return None
        port = node.ports[number] = mad_subnet.parse_port_info(result, node.capability_masks(number))
        return self._port_requests(node, number, port)

    def _port_requests(self, node: IbNode, number: int, port: PortInfo) -> Iterator[Request]:
        """Return the requests that follow from a PortInfo: details of the link, and its peer."""
        if port.generation == "QDR" and port.is_trained and node.info.vendor in _FDR10_VENDORS:
            yield self._request(node, Attribute.VENDOR_PORT_INFO, self._on_vendor_port_info, number)
        if port.generation in mad_subnet.EXTENDED_GENERATIONS and port.capabilities_2 & mad_subnet.HAS_EXTENDED_INFO:
            yield self._request(node, Attribute.PORT_INFO_EXTENDED, self._on_port_info_extended, number)
        end = LinkEnd(node.guid, number)
        if not port.is_trained:
            self.fabric.remove_link(end)
        elif self.fabric.can_forward(end) and end not in self.fabric.peers:
            yield from self.explore(end)

    def _on_vendor_port_info(self, tag: tuple[IbNode, int], result: Result) -> None:
        """Set whether a link with 10 Gb/s per lane is FDR10."""
        node, number = tag
        if not isinstance(result, bytes):
            return  # older devices do not support the attribute
        supported, active = mad_subnet.parse_vendor_port_info(result)
        port = node.ports[number]
        generations = port.generations_supported | {"FDR10"} if supported else port.generations_supported
        generation = "FDR10" if active else port.generation
        node.ports[number] = port._replace(generation=generation, generations_supported=generations)

    def _on_port_info_extended(self, tag: tuple[IbNode, int], result: Result) -> None:
        node, number = tag
        mode = mad_subnet.parse_fec_mode(result) if isinstance(result, bytes) else None
        if mode is not None:
            node.fec_modes[number] = mode


def without_link(port: PortInfo) -> PortInfo:
    """Return a PortInfo with the link down."""
    return port._replace(state=mad_subnet.DOWN, physical_state=0, lanes=None, generation=None)
