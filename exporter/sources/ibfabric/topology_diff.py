"""Differences between two saved topologies. A cable that was moved to another port is one difference, not two."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from exporter.sources.ibfabric.saved_topology import (
    SavedEnd,
    SavedFabric,
    SavedLink,
    SavedNode,
    SavedPortId,
    ports_of,
)

ROLES_BY_LEVEL = ("leaf", "spine", "core", "")
"""Roles of switches by level; the last one for switches whose level is not known."""

ADAPTER_LEVEL = -1
"""Level of nodes that are not switches."""


class TopologyId(msgspec.Struct, frozen=True):
    """Subnet and time of a saved topology."""

    subnet: str
    taken: datetime


class NodeChange(msgspec.Struct, frozen=True):
    """A missing or new node."""

    guid: str
    name: str
    kind: str


class NodeRename(msgspec.Struct, frozen=True):
    """A node whose description changed."""

    guid: str
    before: str
    after: str


class NamedEnd(msgspec.Struct, frozen=True):
    """One end of a link, with the name of its node."""

    guid: str
    port: int
    name: str


class LinkChange(msgspec.Struct, frozen=True):
    """A missing or new link.

    Attributes:
        ends: In the order of the saved topology.
        now: Of a missing link the states of its ends in the later topology, or `unanswered`; None for an end that
            does not exist.
    """

    ends: tuple[NamedEnd, NamedEnd]
    now: tuple[str | None, str | None] | None = None


class PortMove(msgspec.Struct, frozen=True):
    """A port that is linked to another port than before."""

    end: NamedEnd
    before: NamedEnd
    after: NamedEnd


class LinkRate(msgspec.Struct, frozen=True):
    """State and speed of a link; `speed_bytes_per_second` is None while it is not active."""

    state: str
    width: str
    generation: str
    speed_bytes_per_second: float | None


class LinkRateChange(msgspec.Struct, frozen=True):
    """A link that is slower or faster than before."""

    ends: tuple[NamedEnd, NamedEnd]
    before: LinkRate
    after: LinkRate


class TopologyDiff(msgspec.Struct, frozen=True):
    """All differences between two topologies.

    Attributes:
        version: Version of the JSON format.
        before: The earlier topology.
        after: The later topology.
        missing_nodes: Nodes in the earlier topology only.
        new_nodes: Nodes in the later topology only.
        renamed_nodes: Nodes with another description, by GUID.
        missing_links: Links in the earlier topology only, without those of moved ports.
        new_links: Links in the later topology only, without those of moved ports.
        moved: Ports that are linked to another port.
        slower: Links that are slower, or not active any more.
        faster: Links that are faster, or active now and not before.
    """

    version: int
    before: TopologyId
    after: TopologyId
    missing_nodes: tuple[NodeChange, ...]
    new_nodes: tuple[NodeChange, ...]
    renamed_nodes: tuple[NodeRename, ...]
    missing_links: tuple[LinkChange, ...]
    new_links: tuple[LinkChange, ...]
    moved: tuple[PortMove, ...]
    slower: tuple[LinkRateChange, ...]
    faster: tuple[LinkRateChange, ...]

    @property
    def count(self) -> int:
        """Number of differences."""
        kinds = (self.missing_nodes, self.new_nodes, self.renamed_nodes, self.missing_links, self.new_links)
        return sum(map(len, (*kinds, self.moved, self.slower, self.faster)))


def compare(before: SavedFabric, after: SavedFabric) -> TopologyDiff:
    """Compare two topologies."""
    old, new = {node.guid: node for node in before.nodes}, {node.guid: node for node in after.nodes}
    were, are = _by_ends(before), _by_ends(after)
    moved = list(_moved(before, after, new))
    explained_before = {frozenset((end, was)) for end, was, _ in moved}
    explained_after = {frozenset((end, now)) for end, _, now in moved}
    common = [(link, are[ends]) for ends, link in were.items() if ends in are]
    ports = ports_of(after)

    def state_now(port_id: SavedPortId) -> str | None:
        port = ports.get(port_id)
        return None if port is None else "unanswered" if port.unanswered is not None else port.state or None

    return TopologyDiff(
        1,
        TopologyId(before.subnet, before.taken),
        TopologyId(after.subnet, after.taken),
        tuple(_node(node) for guid, node in sorted(old.items()) if guid not in new),
        tuple(_node(node) for guid, node in sorted(new.items()) if guid not in old),
        tuple(
            NodeRename(guid, node.name, new[guid].name)
            for guid, node in sorted(old.items())
            if guid in new and new[guid].name != node.name
        ),
        tuple(
            LinkChange(_ends(link, old), (state_now(link.port_ids[0]), state_now(link.port_ids[1])))
            for ends, link in were.items()
            if ends not in are and ends not in explained_before
        ),
        tuple(
            LinkChange(_ends(link, new))
            for ends, link in are.items()
            if ends not in were and ends not in explained_after
        ),
        tuple(PortMove(_named(end, new), _named(was, old), _named(is_now, new)) for end, was, is_now in moved),
        tuple(_rate_change(one, other, new) for one, other in common if _speed_change(one, other) < 0),
        tuple(_rate_change(one, other, new) for one, other in common if _speed_change(one, other) > 0),
    )


def _by_ends(fabric: SavedFabric) -> dict[frozenset[SavedPortId], SavedLink]:
    return {frozenset(link.port_ids): link for link in fabric.links}


def _peers(fabric: SavedFabric) -> dict[SavedPortId, SavedPortId]:
    found = {}
    for link in fabric.links:
        one, other = link.port_ids
        found[one], found[other] = other, one
    return found


def _moved(
    before: SavedFabric, after: SavedFabric, nodes: Mapping[str, SavedNode]
) -> Iterator[tuple[SavedPortId, SavedPortId, SavedPortId]]:
    """Find ports that are linked to another port than before: of each cable the end at the lower level.

    A missing link and a new link each explain at most one move.
    """
    were, are = _peers(before), _peers(after)
    used_before: set[frozenset[SavedPortId]] = set()
    used_after: set[frozenset[SavedPortId]] = set()
    for end in sorted(were.keys() & are.keys(), key=lambda port_id: (node_level(nodes[port_id.guid]), port_id)):
        was, now = frozenset((end, were[end])), frozenset((end, are[end]))
        if was != now and was not in used_before and now not in used_after:
            used_before.add(was)
            used_after.add(now)
            yield end, were[end], are[end]


def node_level(node: SavedNode) -> int:
    """Return the level of a node: adapters lowest, switches without a known role highest."""
    if node.kind != "switch":
        return ADAPTER_LEVEL
    return ROLES_BY_LEVEL.index(node.role) if node.role in ROLES_BY_LEVEL else len(ROLES_BY_LEVEL)


def _speed_change(before: SavedLink, after: SavedLink) -> int:
    """Return 1 if a link is faster, -1 if slower, 0 if neither or unknown; inactive is slower than any speed."""
    was, now = before.state == "active", after.state == "active"
    if was and now:
        speeds = before.speed_bytes_per_second, after.speed_bytes_per_second
        if speeds[0] is None or speeds[1] is None:
            return 0
        was, now = speeds[0] > speeds[1], speeds[1] > speeds[0]
    return int(now) - int(was)


def _node(node: SavedNode) -> NodeChange:
    return NodeChange(node.guid, node.name, node.kind)


def _named(end: SavedPortId | SavedEnd, nodes: Mapping[str, SavedNode]) -> NamedEnd:
    return NamedEnd(end.guid, end.port, nodes[end.guid].name)


def _ends(link: SavedLink, nodes: Mapping[str, SavedNode]) -> tuple[NamedEnd, NamedEnd]:
    return _named(link.ends[0], nodes), _named(link.ends[1], nodes)


def _rate_change(one: SavedLink, other: SavedLink, nodes: Mapping[str, SavedNode]) -> LinkRateChange:
    return LinkRateChange(_ends(other, nodes), _link_rate(one), _link_rate(other))


def _link_rate(link: SavedLink) -> LinkRate:
    return LinkRate(link.state, link.width, link.generation, link.speed_bytes_per_second)
