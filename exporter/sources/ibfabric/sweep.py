"""One pass over a fabric: what changed in it is followed, then its ports are counted.

All of it is surveyed now and then, and when the subnet manager changed or something came that cannot be told from
here. Between that, one end of each link is asked how it is, and so is each port of a switch that has none, since the
other end of a link that is down is down too: so a cable that was pulled, or plugged, is seen in the next pass. Where a
port says that its link went down and is up again, its peer is asked who it is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

from exporter.core.source import Selection
from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    NO_ANSWER,
    PERMISSIVE,
    Answer,
    Attribute,
    Path,
    Problem,
    Request,
    Route,
)
from exporter.linux.mad.subnet import IS_SM, PortInfo, SmInfo
from exporter.linux.mad.umad import LocalPort
from exporter.linux.mad.window import Window
from exporter.sources.ibfabric.counting import LINK_DOWN, Count, Counted
from exporter.sources.ibfabric.model import (
    End,
    Fabric,
    Node,
    guid_text,
)
from exporter.sources.ibfabric.survey import Survey, down, leads_on

FORGET = 3600.0
"""Seconds for which a node that is gone is still told of."""

M_KEY_LEVEL = 2
"""Level of protection from which on questions without the key are dropped in silence."""


class SweepError(Exception):
    """Nothing could be found; `reason` is a word for a label."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which ports are counted.

    Attributes:
        only_switches: Whether adapters are left to their own hosts.
        nodes: Which GUIDs, as 16 hex digits.
        service_levels: Whether traffic is told by service level.
    """

    only_switches: bool = False
    nodes: Selection = field(default_factory=Selection)
    service_levels: bool = False

    def wants(self, node: Node) -> bool:
        """Tell whether a node's ports are counted."""
        return (node.is_switch or not self.only_switches) and self.nodes.matches(guid_text(node.guid))


@dataclass(slots=True)
class Outcome:
    """What a pass gave.

    Attributes:
        fabric: How it is now.
        counted: What its ports counted.
        problems: By port, why what was asked of it is missing.
        node_problems: By node, the same.
        managers: The subnet managers, by the port that they are at.
        gone: Nodes that are not reached any more.
        surveyed: Whether all of it was looked for anew.
        seconds: That the pass took.
    """

    fabric: Fabric
    counted: Mapping[End, Counted]
    problems: Mapping[End, Problem]
    node_problems: Mapping[int, Problem]
    managers: Mapping[End, SmInfo]
    gone: Collection[Node]
    surveyed: bool
    seconds: float


class Sweeper:
    """Makes passes, and remembers the fabric between them. Of one thread."""

    def __init__(self, window: Window, wanted: Wanted, survey_interval: float) -> None:
        """Take what to look for.

        Args:
            window: Asks.
            wanted: Which ports are counted.
            survey_interval: Seconds after which all is looked for anew.
        """
        self.fabric = Fabric()
        self._window = window
        self._wanted = wanted
        self._interval = survey_interval
        self._surveyed = float("-inf")
        self._managed_by: tuple[int, int] = (0, 0)
        self._counted: Mapping[End, Counted] = {}
        self._gone: dict[int, tuple[Node, float]] = {}
        self._stale = True

    def survey(self) -> Mapping[int, Problem]:
        """Look for all of the fabric. Blocks.

        Returns:
            What went wrong with nodes that were found.

        Raises:
            SweepError: There is nothing beyond this host, though its link is up.
            OSError: The port is gone.
        """
        before, now = self.fabric, monotonic()
        fabric = Fabric(leaves=before.leaves)
        fabric.nodes.update(before.nodes)  # for what of them does not change; those not met again are dropped
        survey = Survey(fabric)
        self._window.run(survey.begin())
        self._check(survey)
        unmet = fabric.nodes.keys() - survey.met
        met = survey.met | self._still_there(before, fabric, unmet)
        silent = _hanging(before, fabric, unmet - met)
        met |= silent
        for guid in silent:
            survey.problems[guid] = Problem.TIMEOUT
        for node in fabric.drop(fabric.nodes.keys() - met):
            self._gone[node.guid] = (node, now)
        for guid in met:
            self._gone.pop(guid, None)
        self.fabric, self._surveyed = fabric, now
        self._stale = Problem.STOPPED in survey.problems.values()
        return survey.problems

    def _still_there(self, before: Fabric, fabric: Fabric, unmet: Collection[int]) -> set[int]:
        """Ask nodes that no directed route led to by their LIDs: where a switch's management hangs, it still forwards.

        They keep the links that they had with each other, and with the nodes that were met.
        """
        found: set[int] = set()

        def take(guid: int, answer: Answer) -> None:
            if isinstance(answer, bytes) and mad_subnet.node_info(answer).guid == guid:
                found.add(guid)

        asked = []
        for guid in unmet:
            node = before.nodes[guid]
            ports = [0] if node.is_switch else list(node.ports)
            routes = [Route(lid) for port in ports if (lid := node.lid(port)) is not None]
            asked += [Request(guid, route, Attribute.NODE_INFO, take, guid) for route in routes[:1]]
        self._window.run(asked)
        if found:
            there = fabric.nodes.keys() - (set(unmet) - found)
            for one, other in before.peers.items():
                is_free = one not in fabric.peers and other not in fabric.peers
                if is_free and one.guid in there and other.guid in there and {one.guid, other.guid} & found:
                    fabric.join(one, other)
        return found

    def sweep(self, local: LocalPort) -> Outcome:
        """Make a pass. Blocks.

        Args:
            local: The port that it is looked from, as it is now.

        Raises:
            SweepError: There is nothing beyond this host, though its link is up.
            OSError: The port is gone.
        """
        begun = monotonic()
        managed_by = (local.lid, local.sm_lid)
        surveys = self._stale or begun - self._surveyed >= self._interval or managed_by != self._managed_by
        self._managed_by = managed_by
        problems = dict(self.survey()) if surveys else self._follow()
        count = Count(self.fabric, self._counted, service_levels=self._wanted.service_levels)
        self._window.run(count.begin(self._ends()))
        moved = [end for end, found in count.counted.items() if self._went_down(end, found)]
        if moved and not surveys:
            parted = [self.fabric.part(end) for end in moved]
            self._explore([*moved, *(end for end in parted if end is not None)], problems)
        self._counted = count.counted
        managers = self._managers(local)
        self._forget(begun)
        gone = [node for node, _ in self._gone.values()]
        return Outcome(
            self.fabric, count.counted, count.problems, problems, managers, gone, surveys, monotonic() - begun
        )

    def _check(self, survey: Survey) -> None:
        """See that the fabric answers."""
        origin = survey.fabric.origin
        if origin is None:
            self._stale = True
            text = "this host's own port does not answer management datagrams: where its link is up the fabric is"
            raise SweepError("m_key", f"{text} protected by an M_Key: give m_key_file")
        port = survey.fabric.port(origin)
        if port is not None and not port.is_trained:
            self._stale = True
            raise _no_link(survey.fabric, origin)
        if port is None or origin in survey.fabric.peers:
            return
        if survey.fabric.unanswered.get(origin) in NO_ANSWER:
            self._stale = True
            told = port.protect >= M_KEY_LEVEL
            text = "the link is up, but the node at its other end answers no management datagram"
            why = f"the fabric is protected by an M_Key (level {port.protect})" if told else "an M_Key may protect it"
            raise SweepError("m_key" if told else "timeout", f"{text}: {why}; give m_key_file")

    def _ends(self) -> list[End]:
        """List the ports to be counted: those whose link is up."""
        return [
            End(guid, number)
            for guid, node in self.fabric.nodes.items()
            if self._wanted.wants(node)
            for number, port in node.ports.items()
            if port.state >= mad_subnet.INIT and self._is_counted(node, number)
        ]

    def _is_counted(self, node: Node, number: int) -> bool:
        """Tell whether a port is of this subnet; an adapter's second one may be of another, with a LID of that."""
        if node.is_switch and number == 0:
            return node.enhanced_port_0
        return self.fabric.has(End(node.guid, number))

    def _went_down(self, end: End, found: Counted) -> bool:
        """Tell whether a port says that its link went down since the last pass."""
        before = self._counted.get(end)
        if before is None or before.errors is None or found.errors is None:
            return False
        was, now = before.errors[LINK_DOWN], found.errors[LINK_DOWN]
        return was is not None and now is not None and now > was

    def _follow(self) -> dict[int, Problem]:
        """Ask how links are now, and look behind those that came up."""
        watch = _Watch(self.fabric)
        self._window.run(watch.begin())
        problems: dict[int, Problem] = dict(watch.problems)
        if self.fabric.origin in watch.fell:
            self._stale = True
            raise _no_link(self.fabric, self.fabric.origin)
        if watch.moved:
            self._stale = True  # the subnet manager gave out other LIDs: what is asked by them is another's
        for end in watch.fell:
            self._fall(end)
        self._explore(watch.rose, problems)
        return problems

    def _fall(self, end: End) -> None:
        """Take a link that is down, at both its ends."""
        for one in (end, self.fabric.part(end)):
            node = self.fabric.nodes.get(one.guid) if one is not None else None
            if one is not None and node is not None and one.port in node.ports:
                node.ports[one.port] = down(node.ports[one.port])

    def _explore(self, ends: Iterable[End], problems: dict[int, Problem]) -> None:
        """Look behind some ports, and drop what no link leads to any more.

        Routes lead by links that are known: what is behind one of these ports has its turn when that was found.
        """
        left = set(ends)
        while near := self._within_reach(left):
            survey = Survey(self.fabric, anew=False)
            self._window.run([request for end in near for request in survey.behind(end)])
            problems.update(survey.problems)
            left -= near
        now = monotonic()
        reached = self._route()
        for node in self.fabric.drop(self.fabric.nodes.keys() - reached):
            self._gone[node.guid] = (node, now)
        for guid in reached & self._gone.keys():
            del self._gone[guid]

    def _within_reach(self, ends: Collection[End]) -> set[End]:
        """Give those of some ports that a route leads to and on from, and whose peer is not known."""
        if not ends:
            return set()
        reached, fabric = self._route(), self.fabric
        return {end for end in ends if end.guid in reached and end not in fabric.peers and leads_on(fabric, end)}

    def _route(self) -> set[int]:
        """Let routes lead by links that there are; gives the nodes that are reached."""
        routes = _routes(self.fabric)
        for guid, path in routes.items():
            self.fabric.nodes[guid].path = path
        return set(routes)

    def _managers(self, local: LocalPort) -> dict[End, SmInfo]:
        """Ask the subnet managers how they are."""
        found: dict[End, SmInfo] = {}

        # The manager is a program, whose node answers all else: it is a destination of its own.
        def take(end: End, answer: Answer) -> None:
            if isinstance(answer, bytes):
                found[end] = mad_subnet.sm_info(answer)

        asked = [
            Request(("sm", guid), node.route(number), Attribute.SM_INFO, take, End(guid, number))
            for guid, node in self.fabric.nodes.items()
            for number, port in node.ports.items()
            if (port.capabilities & IS_SM and not (node.is_switch and number))
            or (port.lid and port.lid == local.sm_lid and node.lid(number) == port.lid)
        ]
        self._window.run(asked)
        return found

    def _forget(self, now: float) -> None:
        for guid in [guid for guid, (_, since) in self._gone.items() if now - since >= FORGET]:
            del self._gone[guid]


def _hanging(before: Fabric, fabric: Fabric, unmet: Collection[int]) -> set[int]:
    """Tell which nodes that do not answer are still linked, as the nodes at the other ends of their links say.

    They keep these links: their management hangs, and they pass on what others send.
    """
    found = set()
    for one, other in before.peers.items():
        port = fabric.port(other)
        linked = port is not None and port.is_trained and other not in fabric.peers
        if one.guid in unmet and other.guid not in unmet and linked:
            fabric.join(one, other)
            found.add(one.guid)
    return found


class _Watch:
    """Asks how the links of a fabric are.

    Attributes:
        fell: Ports whose link is down and was not.
        rose: Ports whose link is up and was not, or whose peer is not known.
        moved: Switches that have another LID than before.
        problems: Nodes that do not answer.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.moved: set[int] = set()
        self.fell: list[End] = []
        self.rose: list[End] = []
        self.problems: dict[int, Problem] = {}
        self._fabric = fabric
        self._asked: set[End] = set()

    def begin(self) -> Iterator[Request]:
        """Ask one end of each link, that of a switch, the ports of switches without one, and what LIDs they have."""
        for guid, node in self._fabric.nodes.items():
            if not node.is_switch:
                continue
            for number in range(node.info.ports + 1):
                end = End(guid, number)
                other = self._fabric.peers.get(end)
                if number == 0:
                    yield self._lid_of(node)
                elif other is None or end < other or not self._fabric.nodes[other.guid].is_switch:
                    yield self._request(end, node.route(number))
        origin = self._fabric.origin
        if origin is not None and not self._fabric.nodes[origin.guid].is_switch:
            yield self._request(origin, Route(PERMISSIVE, b""))
        yield from self._without_lid()

    def _without_lid(self) -> Iterator[Request]:
        """Ask linked nodes that had no LID whether the subnet manager has given them one."""
        for end in self._fabric.peers:
            node = self._fabric.nodes[end.guid]
            one = End(end.guid, 0) if node.is_switch else end
            if node.lid(end.port) is None and one not in self._asked:
                yield self._request(one, node.route(one.port))

    def _request(self, end: End, route: Route) -> Request:
        self._asked.add(end)
        node = self._fabric.nodes[end.guid]
        return Request(end.guid, route, Attribute.PORT_INFO, self._told, (node, end.port), modifier=end.port)

    def _lid_of(self, node: Node) -> Request:
        """Ask a switch what LID it has, by directed route: what is asked by LID may be answered by another by now.

        That route may lead over others that hang: it is no fault of this one if nothing comes.
        """
        self._asked.add(End(node.guid, 0))
        route = Route(PERMISSIVE, node.path)
        return Request(("lid", node.guid), route, Attribute.PORT_INFO, self._has_lid, node)

    def _has_lid(self, node: Node, answer: Answer) -> None:
        if isinstance(answer, Problem):
            return
        before, port = node.ports.get(0), mad_subnet.port_info(answer)
        node.ports[0] = port
        if before is not None and before.lid and before.lid != port.lid:
            self.moved.add(node.guid)

    def _told(self, tag: tuple[Node, int], answer: Answer) -> Iterable[Request] | None:
        node, number = tag
        if isinstance(answer, Problem):
            self.problems.setdefault(node.guid, answer)
            other = self._fabric.peers.get(End(node.guid, number))
            if other is None or other in self._asked or answer is Problem.STOPPED:
                return None
            return [self._request(other, self._fabric.nodes[other.guid].route(other.port))]  # it knows as well
        end = End(node.guid, number)
        port = mad_subnet.port_info(answer, node.masks(number))
        before = node.ports.get(number)  # missing of a port that was asked before and did not tell
        was_trained = before is None or before.is_trained
        if before is not None and port.generation == "QDR" and before.generation == "FDR10":  # the vendor's to tell
            port = port._replace(generation="FDR10", generations_supported=before.generations_supported)
        node.ports[number] = port
        other = self._fabric.peers.get(end)
        if not port.is_trained:
            if was_trained:
                self.fell.append(end)
            return None
        if other is None:
            self.rose.append(end)
            return None
        came_up = before is not None and before.state < mad_subnet.ACTIVE <= port.state
        return self._at_other_end(other, port, came_up=came_up)

    def _at_other_end(self, other: End, port: PortInfo, *, came_up: bool) -> Iterable[Request] | None:
        """Take how the other end of a link is: both are of one speed, and of one state but for moments."""
        peer = self._fabric.nodes[other.guid]
        there = peer.ports.get(other.port)
        if there is not None:
            peer.ports[other.port] = there._replace(
                state=port.state,
                physical_state=port.physical_state,
                lanes=port.lanes,
                generation=port.generation,
            )
        if not came_up:
            return None
        route = Route(PERMISSIVE, peer.path)  # its host may have booted, and have a name by now
        return [Request(peer.guid, route, Attribute.NODE_DESCRIPTION, _described, peer)]


def _described(node: Node, answer: Answer) -> None:
    """Take what a node calls itself now."""
    if isinstance(answer, bytes):
        node.description = mad_subnet.node_description(answer)


def _no_link(fabric: Fabric, origin: End) -> SweepError:
    """Say that the port that the fabric is looked at from has no link: nothing is known of any other then."""
    name = fabric.nodes[origin.guid].name
    return SweepError("link", f"{name}, port {origin.port}, from which the fabric is looked at, has no link")


def _routes(fabric: Fabric) -> dict[int, Path]:
    """Give a directed route to each node that links lead to from the port that the fabric is looked at from."""
    origin = fabric.origin
    if origin is None:
        return {}
    beside: dict[int, list[tuple[int, int]]] = {}
    for one, other in fabric.peers.items():
        if one == origin or fabric.nodes[one.guid].is_switch:  # others pass nothing on
            beside.setdefault(one.guid, []).append((one.port, other.guid))
    routes = {origin.guid: b""}
    ring = [origin.guid]
    for guid in ring:  # which grows meanwhile
        for port, other_guid in beside.get(guid, ()):
            if other_guid not in routes:
                routes[other_guid] = routes[guid] + bytes([port])
                ring.append(other_guid)
    return routes
