"""Counting: what the ports of a fabric counted, each asked with as few questions as its node allows.

A node is first asked once what it counts. A newer one tells errors in 64 bits beside its traffic, all at once; others
take two questions a port. Details are asked for only where what they divide has risen.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from time import monotonic
from typing import TypeAlias

from exporter.linux.mad import performance as mad_counters
from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    Answer,
    Attribute,
    Problem,
    Request,
    Route,
    Then,
)
from exporter.linux.mad.performance import ERRORS, Capabilities
from exporter.sources.ibfabric.model import End, Fabric, Node

RECEIVE_ERRORS, DISCARDS = ERRORS.index("receive_errors"), ERRORS.index("transmit_discards")
LINK_DOWN = ERRORS.index("link_down")

MOST_MISSES = 2
"""Times in a row that a node may leave a question unanswered, which it never answered, before it is not asked again."""

NOTHING = Capabilities(0, 0)
"""Of a node that cannot say what it counts: then PortCounters is asked for alone, which every node has."""


@dataclass(slots=True)
class Counted:
    """What one port counted.

    Attributes:
        time: Monotonic seconds of its last answer.
        errors: In the order of ERRORS, each None that the node does not count; None while they were not told.
        wide: Whether these are of 64 bits, not of those of PortCounters.
        traffic: In the order of TRAFFIC, or its first four; None while it was not told.
        extended: Whether that is of 64 bits, not of 32.
        fec: Blocks corrected, and not correctable.
        receive_errors: What the receive errors were, in the order of mad_counters.RECEIVE_ERRORS.
        discards: What the discards were, in the order of mad_counters.DISCARDS.
        by_sl: Words transmitted and received by service level.
    """

    time: float = 0.0
    errors: tuple[int | None, ...] | None = None
    wide: bool = False
    traffic: tuple[int, ...] | None = None
    extended: bool = False
    fec: tuple[int, int] | None = None
    receive_errors: tuple[int, ...] | None = None
    discards: tuple[int, ...] | None = None
    by_sl: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)


Taker: TypeAlias = "Callable[[Count, End, bytes], Iterable[Request] | None]"


def _taker(method: Taker) -> "Callable[[Count, End, Answer], Iterable[Request] | None]":
    """Make what takes the bytes of an attribute one that is told of problems too."""

    @wraps(method)
    def then(self: "Count", end: End, answer: Answer) -> Iterable[Request] | None:
        if isinstance(answer, Problem):
            self.problems.setdefault(end, answer)
            return None
        return method(self, end, answer)

    return then


class Count:
    """One pass over the counters of some ports.

    Attributes:
        counted: What each told; ports that told nothing are missing.
        problems: By port, the first thing that went wrong.
    """

    def __init__(self, fabric: Fabric, last: Mapping[End, Counted], *, service_levels: bool = False) -> None:
        """Take what to ask.

        Args:
            fabric: Of which nodes and ports.
            last: What was counted the last time.
            service_levels: Whether to ask for traffic by service level.
        """
        self.counted: dict[End, Counted] = {}
        self.problems: dict[End, Problem] = {}
        self._fabric = fabric
        self._last = last
        self._service_levels = service_levels
        self._waiting: dict[int, list[End]] = {}  # ports of nodes that are asked what they count
        self._held: dict[tuple[int, Attribute], list[Request]] = {}  # until one port of the node has answered the like

    def begin(self, ends: Collection[End]) -> Iterator[Request]:
        """Ask these ports; those without a LID cannot be asked."""
        for end in ends:
            node = self._fabric.nodes[end.guid]
            if node.lid(end.port) is None:
                self.problems[end] = Problem.NO_LID
            elif node.capabilities is not None:
                yield from self._questions(node, end)
            elif end.guid in self._waiting:
                self._waiting[end.guid].append(end)
            else:
                self._waiting[end.guid] = [end]
                yield self._request(node, end, Attribute.CLASS_PORT_INFO, self._can)

    def _request(self, node: Node, end: End, attribute: Attribute, then: Then) -> Request:
        return Request(end.guid, Route(node.lid(end.port) or 0), attribute, then, end, port=end.port)

    def _optional(self, node: Node, end: End, attribute: Attribute, then: Then) -> Iterator[Request]:
        """Ask for what not every node has, and no mask tells of.

        Until a node told it once, one of its ports is asked at a time: some drop in silence what they do not know, and
        each such question takes its time.
        """
        key = (node.guid, attribute)

        def take(end: End, answer: Answer) -> Iterable[Request] | None:
            held = self._held.pop(key, [])
            if isinstance(answer, bytes):
                node.has.add(attribute)
                node.misses.pop(attribute, None)
                return [*held, *(then(end, answer) or ())]
            if answer in (Problem.UNSUPPORTED, Problem.REFUSED):
                node.lacks.add(attribute)
                return None
            if attribute in node.has:
                return then(end, answer)
            if answer is Problem.TIMEOUT:  # which says nothing of the port: it may not know the question
                node.misses[attribute] = node.misses.get(attribute, 0) + 1
                if node.misses[attribute] >= MOST_MISSES:
                    node.lacks.add(attribute)
            return None

        if attribute in node.lacks:
            return
        request = self._request(node, end, attribute, take)
        if attribute not in node.has and key in self._held:
            self._held[key].append(request)
            return
        if attribute not in node.has:
            self._held[key] = []
        yield request

    def _questions(self, node: Node, end: End) -> Iterator[Request]:
        """Ask a port whose node's capabilities are known."""
        can = node.capabilities or NOTHING
        if not can.has_extended_errors:
            yield self._request(node, end, Attribute.PORT_COUNTERS, self._counters)
        if can.has_extended:
            yield self._request(node, end, Attribute.PORT_COUNTERS_EXTENDED, self._extended)
        port = node.ports.get(end.port)
        if port is not None and port.generation in mad_subnet.EXTENDED_GENERATIONS:
            yield from self._optional(node, end, Attribute.EXTENDED_SPEEDS_COUNTERS, self._fec)
        if self._service_levels:
            yield from self._optional(node, end, Attribute.TRANSMIT_DATA_BY_SL, self._transmitted)
            yield from self._optional(node, end, Attribute.RECEIVE_DATA_BY_SL, self._received)

    def _can(self, end: End, answer: Answer) -> Iterable[Request] | None:
        ends = self._waiting.pop(end.guid, [])
        if isinstance(answer, Problem) and answer not in (Problem.UNSUPPORTED, Problem.REFUSED):
            self.problems.update(dict.fromkeys(ends, answer))
            return None
        node = self._fabric.nodes[end.guid]
        node.capabilities = mad_counters.capabilities(answer) if isinstance(answer, bytes) else NOTHING
        return (request for one in ends for request in self._questions(node, one))

    def _of(self, end: End) -> Counted:
        found = self.counted.get(end)
        if found is None:
            found = self.counted[end] = Counted()
        found.time = monotonic()
        return found

    @_taker
    def _counters(self, end: End, answer: bytes) -> Iterable[Request] | None:
        port, errors, traffic = mad_counters.port_counters(answer)
        if port != end.port:
            self.problems.setdefault(end, Problem.MALFORMED)
            return None
        found = self._of(end)
        can = self._fabric.nodes[end.guid].capabilities or NOTHING
        found.errors = errors if can.has_wait else (*errors[:-1], None)
        if found.traffic is None:
            found.traffic = traffic
        return self._details(end, errors)

    @_taker
    def _extended(self, end: End, answer: bytes) -> Iterable[Request] | None:
        port, traffic = mad_counters.extended(answer)
        if port != end.port:
            self.problems.setdefault(end, Problem.MALFORMED)
            return None
        can = self._fabric.nodes[end.guid].capabilities or NOTHING
        found = self._of(end)
        found.traffic, found.extended = (traffic if can.has_casts else traffic[:4]), True
        if not can.has_extended_errors:
            return None
        found.errors, found.wide = mad_counters.extended_errors(answer), True
        return self._details(end, found.errors)

    def _details(self, end: End, errors: tuple[int | None, ...]) -> Iterator[Request]:
        """Ask what risen errors and discards were; what is known of those that did not rise is kept."""
        node = self._fabric.nodes[end.guid]
        before = self._last.get(end)
        known = before.errors if before is not None else None
        found = self.counted[end]
        if before is not None:
            found.receive_errors, found.discards = before.receive_errors, before.discards
        if errors[RECEIVE_ERRORS] and (known is None or errors[RECEIVE_ERRORS] != known[RECEIVE_ERRORS]):
            yield from self._optional(node, end, Attribute.RECEIVE_ERROR_DETAILS, self._received_wrong)
        if errors[DISCARDS] and (known is None or errors[DISCARDS] != known[DISCARDS]):
            yield from self._optional(node, end, Attribute.TRANSMIT_DISCARD_DETAILS, self._discarded)

    @_taker
    def _received_wrong(self, end: End, answer: bytes) -> None:
        self._of(end).receive_errors = mad_counters.receive_error_details(answer)

    @_taker
    def _discarded(self, end: End, answer: bytes) -> None:
        self._of(end).discards = mad_counters.transmit_discard_details(answer)

    @_taker
    def _fec(self, end: End, answer: bytes) -> None:
        node = self._fabric.nodes[end.guid]
        mode = node.fec_modes.get(end.port)
        can = node.capabilities or NOTHING
        reed_solomon = can.has_rs_fec and (mode is None or mode >= mad_subnet.REED_SOLOMON)
        self._of(end).fec = mad_counters.fec_blocks(answer, reed_solomon=reed_solomon)

    @_taker
    def _transmitted(self, end: End, answer: bytes) -> None:
        found = self._of(end)
        found.by_sl = (mad_counters.words_by_sl(answer), found.by_sl[1])

    @_taker
    def _received(self, end: End, answer: bytes) -> None:
        found = self._of(end)
        found.by_sl = (found.by_sl[0], mad_counters.words_by_sl(answer))
