"""Reading of port counters (PMA), with as few requests per port as the node supports.

ClassPortInfo of each node is read once. Newer nodes return 64-bit error counters in PortCountersExtended, so one
request per port is enough; others need two. PortRcvErrorDetails and PortXmitDiscardDetails are read only for ports
whose PortRcvErrors or PortXmitDiscards increased.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from time import monotonic
from typing import TypeAlias

from exporter.linux.mad import performance, subnet
from exporter.linux.mad.datagram import (
    Attribute,
    Problem,
    Request,
    Result,
    ResultHandler,
    Route,
)
from exporter.linux.mad.performance import ERROR_COUNTERS, PmaCapabilities
from exporter.sources.ibfabric.model import IbFabric, IbNode, LinkEnd

RECEIVE_ERRORS = ERROR_COUNTERS.index("receive_errors")
TRANSMIT_DISCARDS = ERROR_COUNTERS.index("transmit_discards")
LINK_DOWN = ERROR_COUNTERS.index("link_down")
"""Indexes into ERROR_COUNTERS."""

MAX_MISSED = 2
"""Timeouts in a row of an optional attribute that a node has never answered, after which it is not requested again."""

NO_CAPABILITIES = PmaCapabilities(0, 0)
"""Of a node without ClassPortInfo: only PortCounters is read, which is mandatory."""


@dataclass(slots=True)
class PortCounts:
    """Counters of one port.

    Attributes:
        time: Monotonic seconds of the last reply.
        errors: In the order of ERROR_COUNTERS, each None that the node does not have; None if not read.
        has_extended_errors: Whether the errors are 64 bits wide, not those of PortCounters.
        traffic: In the order of TRAFFIC_COUNTERS, or its first four; None if not read.
        has_extended_traffic: Whether the traffic counters are 64 bits wide, not 32.
        fec: Corrected and uncorrectable FEC blocks.
        receive_errors: In the order of RECEIVE_ERROR_DETAILS.
        discards: In the order of DISCARD_DETAILS.
        by_sl: Words transmitted and received by service level.
    """

    time: float = 0.0
    errors: tuple[int | None, ...] | None = None
    has_extended_errors: bool = False
    traffic: tuple[int, ...] | None = None
    has_extended_traffic: bool = False
    fec: tuple[int, int] | None = None
    receive_errors: tuple[int, ...] | None = None
    discards: tuple[int, ...] | None = None
    by_sl: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)


AttributeHandler: TypeAlias = "Callable[[CounterRead, LinkEnd, bytes], Iterable[Request] | None]"


def _records_problems(method: AttributeHandler) -> "Callable[[CounterRead, LinkEnd, Result], Iterable[Request] | None]":
    """Make a result handler of a method that handles the attribute's bytes: problems are recorded for the port."""

    @wraps(method)
    def handler(self: "CounterRead", end: LinkEnd, result: Result) -> Iterable[Request] | None:
        if isinstance(result, Problem):
            self.problems.setdefault(end, result)
            return None
        return method(self, end, result)

    return handler


class CounterRead:
    """One read of the counters of some ports.

    Attributes:
        counts: Counters by port, of the ports that responded.
        problems: First problem by port.
    """

    def __init__(self, fabric: IbFabric, last: Mapping[LinkEnd, PortCounts], *, service_levels: bool = False) -> None:
        """Create a read.

        Args:
            fabric: The fabric of the ports.
            last: Counters of the last read.
            service_levels: Whether to read traffic by service level.
        """
        self.counts: dict[LinkEnd, PortCounts] = {}
        self.problems: dict[LinkEnd, Problem] = {}
        self._fabric = fabric
        self._last = last
        self._service_levels = service_levels
        self._awaiting_capabilities: dict[int, list[LinkEnd]] = {}  # ports, by node whose ClassPortInfo is requested
        self._held_back: dict[tuple[int, Attribute], list[Request]] = {}  # until one port of the node has responded

    def start(self, ends: Collection[LinkEnd]) -> Iterator[Request]:
        """Return the requests for some ports; ports without a LID get the problem NO_LID."""
        for end in ends:
            node = self._fabric.nodes[end.guid]
            if node.lid(end.port) is None:
                self.problems[end] = Problem.NO_LID
            elif node.capabilities is not None:
                yield from self._port_requests(node, end)
            elif end.guid in self._awaiting_capabilities:
                self._awaiting_capabilities[end.guid].append(end)
            else:
                self._awaiting_capabilities[end.guid] = [end]
                yield self._request(node, end, Attribute.CLASS_PORT_INFO, self._on_class_port_info)

    def _request(self, node: IbNode, end: LinkEnd, attribute: Attribute, handler: ResultHandler) -> Request:
        return Request(end.guid, Route(node.lid(end.port) or 0), attribute, handler, end, port=end.port)

    def _optional_request(
        self, node: IbNode, end: LinkEnd, attribute: Attribute, handler: ResultHandler
    ) -> Iterator[Request]:
        """Request an attribute that not every node supports, and that no capability bit indicates.

        Until a node has answered it once, it is requested from one of its ports at a time: some nodes drop requests
        for unknown attributes, and each of these requests costs the timeout.
        """
        key = (node.guid, attribute)

        def on_result(end: LinkEnd, result: Result) -> Iterable[Request] | None:
            held_back = self._held_back.pop(key, [])
            if isinstance(result, bytes):
                node.supported.add(attribute)
                node.missed.pop(attribute, None)
                return [*held_back, *(handler(end, result) or ())]
            if result in (Problem.UNSUPPORTED, Problem.REFUSED):
                node.unsupported.add(attribute)
                return None
            if attribute in node.supported:
                return handler(end, result)
            if result is Problem.TIMEOUT:  # no problem of the port: the node may not know the attribute
                node.missed[attribute] = node.missed.get(attribute, 0) + 1
                if node.missed[attribute] >= MAX_MISSED:
                    node.unsupported.add(attribute)
            return None

        if attribute in node.unsupported:
            return
        request = self._request(node, end, attribute, on_result)
        if attribute not in node.supported and key in self._held_back:
            self._held_back[key].append(request)
            return
        if attribute not in node.supported:
            self._held_back[key] = []
        yield request

    def _port_requests(self, node: IbNode, end: LinkEnd) -> Iterator[Request]:
        """Return the requests for a port of a node whose capabilities are known."""
        capabilities = node.capabilities or NO_CAPABILITIES
        if not capabilities.has_extended_errors:
            yield self._request(node, end, Attribute.PORT_COUNTERS, self._on_port_counters)
        if capabilities.has_extended_counters:
            yield self._request(node, end, Attribute.PORT_COUNTERS_EXTENDED, self._on_port_counters_extended)
        port = node.ports.get(end.port)
        if port is not None and port.generation in subnet.EXTENDED_GENERATIONS:
            yield from self._optional_request(node, end, Attribute.EXTENDED_SPEEDS_COUNTERS, self._on_fec)
        if self._service_levels:
            yield from self._optional_request(node, end, Attribute.PORT_XMIT_DATA_SL, self._on_xmit_data_sl)
            yield from self._optional_request(node, end, Attribute.PORT_RCV_DATA_SL, self._on_rcv_data_sl)

    def _on_class_port_info(self, end: LinkEnd, result: Result) -> Iterable[Request] | None:
        ends = self._awaiting_capabilities.pop(end.guid, [])
        if isinstance(result, Problem) and result not in (Problem.UNSUPPORTED, Problem.REFUSED):
            self.problems.update(dict.fromkeys(ends, result))
            return None
        node = self._fabric.nodes[end.guid]
        node.capabilities = performance.parse_class_port_info(result) if isinstance(result, bytes) else NO_CAPABILITIES
        return (request for one in ends for request in self._port_requests(node, one))

    def _counts_of(self, end: LinkEnd) -> PortCounts:
        found = self.counts.get(end)
        if found is None:
            found = self.counts[end] = PortCounts()
        found.time = monotonic()
        return found

    @_records_problems
    def _on_port_counters(self, end: LinkEnd, data: bytes) -> Iterable[Request] | None:
        port, errors, traffic = performance.parse_port_counters(data)
        if port != end.port:
            self.problems.setdefault(end, Problem.MALFORMED)
            return None
        found = self._counts_of(end)
        capabilities = self._fabric.nodes[end.guid].capabilities or NO_CAPABILITIES
        found.errors = errors if capabilities.has_xmit_wait else (*errors[:-1], None)
        if found.traffic is None:
            found.traffic = traffic
        return self._detail_requests(end, errors)

    @_records_problems
    def _on_port_counters_extended(self, end: LinkEnd, data: bytes) -> Iterable[Request] | None:
        port, traffic = performance.parse_port_counters_extended(data)
        if port != end.port:
            self.problems.setdefault(end, Problem.MALFORMED)
            return None
        capabilities = self._fabric.nodes[end.guid].capabilities or NO_CAPABILITIES
        found = self._counts_of(end)
        found.traffic = traffic if capabilities.has_unicast_multicast else traffic[:4]
        found.has_extended_traffic = True
        if not capabilities.has_extended_errors:
            return None
        found.errors, found.has_extended_errors = performance.parse_extended_errors(data), True
        return self._detail_requests(end, found.errors)

    def _detail_requests(self, end: LinkEnd, errors: tuple[int | None, ...]) -> Iterator[Request]:
        """Request the details of errors and discards that increased; details of others are kept from the last read."""
        node = self._fabric.nodes[end.guid]
        before = self._last.get(end)
        last = before.errors if before is not None else None
        found = self.counts[end]
        if before is not None:
            found.receive_errors, found.discards = before.receive_errors, before.discards
        if errors[RECEIVE_ERRORS] and (last is None or errors[RECEIVE_ERRORS] != last[RECEIVE_ERRORS]):
            yield from self._optional_request(
                node, end, Attribute.PORT_RCV_ERROR_DETAILS, self._on_receive_error_details
            )
        if errors[TRANSMIT_DISCARDS] and (last is None or errors[TRANSMIT_DISCARDS] != last[TRANSMIT_DISCARDS]):
            yield from self._optional_request(node, end, Attribute.PORT_XMIT_DISCARD_DETAILS, self._on_discard_details)

    @_records_problems
    def _on_receive_error_details(self, end: LinkEnd, data: bytes) -> None:
        self._counts_of(end).receive_errors = performance.parse_receive_error_details(data)

    @_records_problems
    def _on_discard_details(self, end: LinkEnd, data: bytes) -> None:
        self._counts_of(end).discards = performance.parse_discard_details(data)

    @_records_problems
    def _on_fec(self, end: LinkEnd, data: bytes) -> None:
        node = self._fabric.nodes[end.guid]
        mode = node.fec_modes.get(end.port)
        capabilities = node.capabilities or NO_CAPABILITIES
        rs_fec = capabilities.has_rs_fec and (mode is None or mode >= subnet.MIN_RS_FEC_MODE)
        self._counts_of(end).fec = performance.parse_fec_blocks(data, rs_fec=rs_fec)

    @_records_problems
    def _on_xmit_data_sl(self, end: LinkEnd, data: bytes) -> None:
        found = self._counts_of(end)
        found.by_sl = (performance.parse_data_by_sl(data), found.by_sl[1])

    @_records_problems
    def _on_rcv_data_sl(self, end: LinkEnd, data: bytes) -> None:
        found = self._counts_of(end)
        found.by_sl = (found.by_sl[0], performance.parse_data_by_sl(data))
