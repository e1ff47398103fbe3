"""Sweep of a fabric: topology changes are detected, then the counters of its ports are read.

A discovery of the whole fabric runs at an interval, when the subnet manager changed, and when a change was detected
that cannot be followed. Between discoveries a link poll detects cables that were pulled or plugged in; ports whose
LinkDownedCounter increased get their peer identified again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from exporter.core.source import Selection
from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    NO_RESPONSE,
    Attribute,
    Problem,
    Request,
    Result,
    Route,
)
from exporter.linux.mad.subnet import IS_SM, SmInfo
from exporter.linux.mad.umad import LocalPort
from exporter.linux.mad.window import RequestWindow
from exporter.sources.ibfabric.counters import LINK_DOWN, CounterRead, PortCounts
from exporter.sources.ibfabric.discovery import Discovery, without_link
from exporter.sources.ibfabric.link_poll import LinkPoll
from exporter.sources.ibfabric.model import (
    IbFabric,
    IbNode,
    LinkEnd,
    format_guid,
)

UNREACHABLE_SECONDS = 3600.0
"""Seconds for which a node that is not reachable any more is exported with node_up 0."""

M_KEY_DROP_LEVEL = 2
"""M_KeyProtectBits from which on requests without the M_Key are dropped without a response."""


class SweepError(Exception):
    """The fabric cannot be read; `reason` is a label value."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CounterSelection:
    """Which counters are read.

    Attributes:
        only_switches: Whether ports of adapters are skipped.
        nodes: Selection of nodes by GUID, 16 hexadecimal digits.
        service_levels: Whether traffic by service level is read.
    """

    only_switches: bool = False
    nodes: Selection = field(default_factory=Selection)
    service_levels: bool = False

    def matches(self, node: IbNode) -> bool:
        """Return whether the ports of a node are read."""
        return (node.is_switch or not self.only_switches) and self.nodes.matches(format_guid(node.guid))


@dataclass(slots=True)
class SweepResult:
    """Result of a sweep.

    Attributes:
        fabric: The topology.
        counts: Counters by port.
        problems: Why counters are missing, by port.
        node_problems: Problems of subnet management, by node.
        managers: SMInfo of the subnet managers, by their ports.
        unreachable: Nodes that were reachable before.
        discovered: Whether the sweep included a discovery of the whole fabric.
        seconds: Duration.
    """

    fabric: IbFabric
    counts: Mapping[LinkEnd, PortCounts]
    problems: Mapping[LinkEnd, Problem]
    node_problems: Mapping[int, Problem]
    managers: Mapping[LinkEnd, SmInfo]
    unreachable: Collection[IbNode]
    discovered: bool
    seconds: float


class Sweeper:
    """Sweeps a fabric and keeps its topology between sweeps; used by one thread."""

    def __init__(self, window: RequestWindow, selection: CounterSelection, discovery_interval: float) -> None:
        """Create a sweeper.

        Args:
            window: Sends the requests.
            selection: Which counters are read.
            discovery_interval: Seconds between discoveries of the whole fabric.
        """
        self.fabric = IbFabric()
        self._window = window
        self._selection = selection
        self._interval = discovery_interval
        self._discovered_at = float("-inf")
        self._managed_by: tuple[int, int] = (0, 0)
        self._counts: Mapping[LinkEnd, PortCounts] = {}
        self._unreachable: dict[int, tuple[IbNode, float]] = {}
        self._needs_discovery = True

    def discover(self) -> Mapping[int, Problem]:
        """Discover the whole fabric. Blocks.

        Returns:
            Problems of nodes that were found.

        Raises:
            SweepError: No node beyond this host responds, though the link is up.
            OSError: The port is gone.
        """
        before, now = self.fabric, monotonic()
        fabric = IbFabric(leaves=before.leaves)
        fabric.nodes.update(before.nodes)  # for attributes that do not change; nodes that are not found are removed
        discovery = Discovery(fabric)
        self._window.run(discovery.start())
        self._check_origin(discovery)
        missing = fabric.nodes.keys() - discovery.visited
        present = discovery.visited | self._find_by_lid(before, fabric, missing)
        hanging = _nodes_with_trained_peers(before, fabric, missing - present)
        present |= hanging
        for guid in hanging:
            discovery.problems[guid] = Problem.TIMEOUT
        for node in fabric.remove_nodes(fabric.nodes.keys() - present):
            self._unreachable[node.guid] = (node, now)
        for guid in present:
            self._unreachable.pop(guid, None)
        self.fabric, self._discovered_at = fabric, now
        self._needs_discovery = Problem.STOPPED in discovery.problems.values()
        return discovery.problems

    def _find_by_lid(self, before: IbFabric, fabric: IbFabric, missing: Collection[int]) -> set[int]:
        """Read NodeInfo by LID from nodes that the discovery did not reach; return those that respond.

        A switch whose management hangs does not forward directed routes, but it still forwards LID routed packets.
        The nodes keep their links to each other and to nodes that were discovered.
        """
        found: set[int] = set()

        def on_node_info(guid: int, result: Result) -> None:
            if isinstance(result, bytes) and mad_subnet.parse_node_info(result).guid == guid:
                found.add(guid)

        requests = []
        for guid in missing:
            node = before.nodes[guid]
            ports = [0] if node.is_switch else list(node.ports)
            routes = [Route(lid) for port in ports if (lid := node.lid(port)) is not None]
            requests += [Request(guid, route, Attribute.NODE_INFO, on_node_info, guid) for route in routes[:1]]
        self._window.run(requests)
        if found:
            present = fabric.nodes.keys() - (set(missing) - found)
            for one, other in before.peers.items():
                is_free = one not in fabric.peers and other not in fabric.peers
                if is_free and one.guid in present and other.guid in present and {one.guid, other.guid} & found:
                    fabric.add_link(one, other)
        return found

    def sweep(self, local: LocalPort) -> SweepResult:
        """Sweep the fabric. Blocks.

        Args:
            local: Current state of the local port.

        Raises:
            SweepError: No node beyond this host responds, though the link is up.
            OSError: The port is gone.
        """
        begun = monotonic()
        managed_by = (local.lid, local.sm_lid)
        discovers = (
            self._needs_discovery or begun - self._discovered_at >= self._interval or managed_by != self._managed_by
        )
        self._managed_by = managed_by
        problems = dict(self.discover()) if discovers else self._poll_links()
        read = CounterRead(self.fabric, self._counts, service_levels=self._selection.service_levels)
        self._window.run(read.start(self._selected_ports()))
        downed = [end for end, counts in read.counts.items() if self._link_downed(end, counts)]
        if downed and not discovers:
            removed = [self.fabric.remove_link(end) for end in downed]
            self._explore([*downed, *(end for end in removed if end is not None)], problems)
        self._counts = read.counts
        managers = self._read_managers(local)
        self._expire_unreachable(begun)
        unreachable = [node for node, _ in self._unreachable.values()]
        seconds = monotonic() - begun
        return SweepResult(self.fabric, read.counts, read.problems, problems, managers, unreachable, discovers, seconds)

    def _check_origin(self, discovery: Discovery) -> None:
        """Raise a SweepError if the local port or its peer did not respond."""
        fabric, origin = discovery.fabric, discovery.fabric.origin
        if origin is None:
            self._needs_discovery = True
            text = "the local port does not respond to management datagrams: if its link is up, the fabric is"
            raise SweepError("m_key", f"{text} protected by an M_Key; set m_key_file")
        port = fabric.port(origin)
        if port is not None and not port.is_trained:
            self._needs_discovery = True
            raise _no_link_error(fabric, origin)
        if port is None or origin in fabric.peers:
            return
        if fabric.unanswered.get(origin) in NO_RESPONSE:
            self._needs_discovery = True
            is_protected = port.m_key_protect >= M_KEY_DROP_LEVEL
            text = "the link is up, but its peer does not respond to management datagrams"
            cause = (
                f"the fabric is protected by an M_Key (level {port.m_key_protect})"
                if is_protected
                else "an M_Key may protect it"
            )
            raise SweepError("m_key" if is_protected else "timeout", f"{text}: {cause}; set m_key_file")

    def _selected_ports(self) -> list[LinkEnd]:
        """List the selected ports whose link is up."""
        return [
            LinkEnd(guid, number)
            for guid, node in self.fabric.nodes.items()
            if self._selection.matches(node)
            for number, port in node.ports.items()
            if port.state >= mad_subnet.INIT and self._has_counters(node, number)
        ]

    def _has_counters(self, node: IbNode, number: int) -> bool:
        """Return whether a port has counters in this subnet: the second port of an adapter may be in another one."""
        if node.is_switch and number == 0:
            return node.enhanced_port_0
        return self.fabric.contains(LinkEnd(node.guid, number))

    def _link_downed(self, end: LinkEnd, counts: PortCounts) -> bool:
        """Return whether LinkDownedCounter of a port increased since the last sweep."""
        before = self._counts.get(end)
        if before is None or before.errors is None or counts.errors is None:
            return False
        was, now = before.errors[LINK_DOWN], counts.errors[LINK_DOWN]
        return was is not None and now is not None and now > was

    def _poll_links(self) -> dict[int, Problem]:
        """Poll the links, and explore the peers of those that came up; return problems by node."""
        poll = LinkPoll(self.fabric)
        self._window.run(poll.start())
        problems: dict[int, Problem] = dict(poll.problems)
        if self.fabric.origin in poll.went_down:
            self._needs_discovery = True
            raise _no_link_error(self.fabric, self.fabric.origin)
        if poll.changed_lids:
            self._needs_discovery = True  # requests by LID may have been answered by other nodes
        for end in poll.went_down:
            self._set_down(end)
        self._explore(poll.came_up, problems)
        return problems

    def _set_down(self, end: LinkEnd) -> None:
        """Remove a link, and mark the ports at both its ends as down."""
        for one in (end, self.fabric.remove_link(end)):
            node = self.fabric.nodes.get(one.guid) if one is not None else None
            if one is not None and node is not None and one.port in node.ports:
                node.ports[one.port] = without_link(node.ports[one.port])

    def _explore(self, ends: Iterable[LinkEnd], problems: dict[int, Problem]) -> None:
        """Explore the peers of some ports, and remove nodes that are not reachable any more.

        Routes use known links, so a port behind another one of these ports is explored after that one.
        """
        remaining = set(ends)
        while reachable := self._explorable(remaining):
            discovery = Discovery(self.fabric, full=False)
            self._window.run([request for end in reachable for request in discovery.explore(end)])
            problems.update(discovery.problems)
            remaining -= reachable
        now = monotonic()
        reached = self.fabric.update_routes()
        for node in self.fabric.remove_nodes(self.fabric.nodes.keys() - reached):
            self._unreachable[node.guid] = (node, now)
        for guid in reached & self._unreachable.keys():
            del self._unreachable[guid]

    def _explorable(self, ends: Collection[LinkEnd]) -> set[LinkEnd]:
        """Return the ports to which a directed route leads and whose peer is not known."""
        if not ends:
            return set()
        fabric, reached = self.fabric, self.fabric.update_routes()
        return {end for end in ends if end.guid in reached and end not in fabric.peers and fabric.can_forward(end)}

    def _read_managers(self, local: LocalPort) -> dict[LinkEnd, SmInfo]:
        """Read SMInfo of all subnet managers."""
        found: dict[LinkEnd, SmInfo] = {}

        def on_sm_info(end: LinkEnd, result: Result) -> None:
            if isinstance(result, bytes):
                found[end] = mad_subnet.parse_sm_info(result)

        # A subnet manager is a process apart from the SMA of its node, hence a separate destination.
        requests = [
            Request(("sm", guid), node.route(number), Attribute.SM_INFO, on_sm_info, LinkEnd(guid, number))
            for guid, node in self.fabric.nodes.items()
            for number, port in node.ports.items()
            if (port.capabilities & IS_SM and not (node.is_switch and number))
            or (port.lid and port.lid == local.sm_lid and node.lid(number) == port.lid)
        ]
        self._window.run(requests)
        return found

    def _expire_unreachable(self, now: float) -> None:
        expired = [guid for guid, (_, since) in self._unreachable.items() if now - since >= UNREACHABLE_SECONDS]
        for guid in expired:
            del self._unreachable[guid]


def _nodes_with_trained_peers(before: IbFabric, fabric: IbFabric, missing: Collection[int]) -> set[int]:
    """Return missing nodes whose links are still trained at their other ends; these links are kept.

    The management of such a node hangs; it forwards the traffic of others.
    """
    found = set()
    for one, other in before.peers.items():
        port = fabric.port(other)
        is_trained = port is not None and port.is_trained and other not in fabric.peers
        if one.guid in missing and other.guid not in missing and is_trained:
            fabric.add_link(one, other)
            found.add(one.guid)
    return found


def _no_link_error(fabric: IbFabric, origin: LinkEnd) -> SweepError:
    name = fabric.nodes[origin.guid].name
    return SweepError("link", f"{name}, port {origin.port}: the local port has no link; check its cable")
