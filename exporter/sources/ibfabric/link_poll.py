"""Poll of the links between two discoveries: which links went down, which came up, and whether LIDs changed.

PortInfo is read from one end of each link, since both ends have the same state and speed, and from each port of a
switch that has no link.
"""

from collections.abc import Iterable, Iterator

from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    PERMISSIVE_LID,
    Attribute,
    Problem,
    Request,
    Result,
    Route,
)
from exporter.linux.mad.subnet import PortInfo
from exporter.sources.ibfabric.model import IbFabric, IbNode, LinkEnd


class LinkPoll:
    """One poll of the links of a fabric; updates the PortInfo of its nodes.

    Attributes:
        went_down: Ports whose link went down.
        came_up: Ports whose link came up, or whose peer is not known.
        changed_lids: GUIDs of switches whose LID changed.
        problems: First problem by node.
    """

    def __init__(self, fabric: IbFabric) -> None:
        self.changed_lids: set[int] = set()
        self.went_down: list[LinkEnd] = []
        self.came_up: list[LinkEnd] = []
        self.problems: dict[int, Problem] = {}
        self._fabric = fabric
        self._requested: set[LinkEnd] = set()

    def start(self) -> Iterator[Request]:
        """Return the requests: one end of each link, at a switch; switch ports without a link; the LIDs of switches."""
        for guid, node in self._fabric.nodes.items():
            if not node.is_switch:
                continue
            for number in range(node.info.num_ports + 1):
                end = LinkEnd(guid, number)
                other = self._fabric.peers.get(end)
                if number == 0:
                    yield self._lid_request(node)
                elif other is None or end < other or not self._fabric.nodes[other.guid].is_switch:
                    yield self._request(end, node.route(number))
        origin = self._fabric.origin
        if origin is not None and not self._fabric.nodes[origin.guid].is_switch:
            yield self._request(origin, Route(PERMISSIVE_LID, b""))
        yield from self._requests_without_lid()

    def _requests_without_lid(self) -> Iterator[Request]:
        """Read linked nodes that had no LID: the subnet manager may have assigned one."""
        for end in self._fabric.peers:
            node = self._fabric.nodes[end.guid]
            lid_port = LinkEnd(end.guid, 0) if node.is_switch else end
            if node.lid(end.port) is None and lid_port not in self._requested:
                yield self._request(lid_port, node.route(lid_port.port))

    def _request(self, end: LinkEnd, route: Route) -> Request:
        self._requested.add(end)
        node = self._fabric.nodes[end.guid]
        return Request(end.guid, route, Attribute.PORT_INFO, self._on_port_info, (node, end.port), modifier=end.port)

    def _lid_request(self, node: IbNode) -> Request:
        """Read the LID of a switch by directed route: its old LID may belong to another node by now.

        The route may lead through a switch that does not forward directed routes, so a missing reply is no problem of
        the node; hence the separate destination.
        """
        self._requested.add(LinkEnd(node.guid, 0))
        route = Route(PERMISSIVE_LID, node.path)
        return Request(("lid", node.guid), route, Attribute.PORT_INFO, self._on_port_0_info, node)

    def _on_port_0_info(self, node: IbNode, result: Result) -> None:
        if isinstance(result, Problem):
            return
        before, port = node.ports.get(0), mad_subnet.parse_port_info(result)
        node.ports[0] = port
        if before is not None and before.lid and before.lid != port.lid:
            self.changed_lids.add(node.guid)

    def _on_port_info(self, tag: tuple[IbNode, int], result: Result) -> Iterable[Request] | None:
        node, number = tag
        if isinstance(result, Problem):
            self.problems.setdefault(node.guid, result)
            other = self._fabric.peers.get(LinkEnd(node.guid, number))
            if other is None or other in self._requested or result is Problem.STOPPED:
                return None
            return [self._request(other, self._fabric.nodes[other.guid].route(other.port))]  # same state
        end = LinkEnd(node.guid, number)
        port = mad_subnet.parse_port_info(result, node.capability_masks(number))
        before = node.ports.get(number)  # None for a port that has not responded yet
        was_trained = before is None or before.is_trained
        if before is not None and port.generation == "QDR" and before.generation == "FDR10":  # a vendor attribute
            port = port._replace(generation="FDR10", generations_supported=before.generations_supported)
        node.ports[number] = port
        other = self._fabric.peers.get(end)
        if not port.is_trained:
            if was_trained:
                self.went_down.append(end)
            return None
        if other is None:
            self.came_up.append(end)
            return None
        became_active = before is not None and before.state < mad_subnet.ACTIVE <= port.state
        return self._update_peer(other, port, became_active=became_active)

    def _update_peer(self, end: LinkEnd, port: PortInfo, *, became_active: bool) -> Iterable[Request] | None:
        """Copy state and speed of a link to its other end."""
        node = self._fabric.nodes[end.guid]
        info = node.ports.get(end.port)
        if info is not None:
            node.ports[end.port] = info._replace(
                state=port.state,
                physical_state=port.physical_state,
                lanes=port.lanes,
                generation=port.generation,
            )
        if not became_active:
            return None
        route = Route(PERMISSIVE_LID, node.path)  # its host may have booted and set its description
        return [Request(node.guid, route, Attribute.NODE_DESCRIPTION, _on_description, node)]


def _on_description(node: IbNode, result: Result) -> None:
    if isinstance(result, bytes):
        node.description = mad_subnet.parse_node_description(result)
