"""What differs between two documents of a fabric. A cable that was plugged elsewhere is one difference, not two."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from exporter.sources.ibfabric.document import (
    Place,
    SavedEnd,
    SavedFabric,
    SavedLink,
    SavedNode,
    ports_of,
)

ORDER = ("leaf", "spine", "core", "")
"""Roles from the adapters on upwards."""

ADAPTER = -1
"""Height of what is no switch."""


class Of(msgspec.Struct, frozen=True):
    """Which of two documents."""

    subnet: str
    taken: datetime


class NodeChange(msgspec.Struct, frozen=True):
    """A node that is missing, or new."""

    guid: str
    name: str
    kind: str


class Renamed(msgspec.Struct, frozen=True):
    """A node that calls itself otherwise."""

    guid: str
    before: str
    after: str


class NamedEnd(msgspec.Struct, frozen=True):
    """One end of a link, with its node's name."""

    guid: str
    port: int
    name: str


class LinkChange(msgspec.Struct, frozen=True):
    """A link that is missing, or new.

    Attributes:
        ends: As in the document.
        now: Of one that is missing how its ends are now, as far as they are there: a state, or `unanswered`.
    """

    ends: tuple[NamedEnd, NamedEnd]
    now: tuple[str | None, str | None] | None = None


class Moved(msgspec.Struct, frozen=True):
    """A port that is linked to another one than before."""

    end: NamedEnd
    before: NamedEnd
    after: NamedEnd


class Pace(msgspec.Struct, frozen=True):
    """How fast a link is; `speed_bytes_per_second` is None while it is not active."""

    state: str
    width: str
    generation: str
    speed_bytes_per_second: float | None


class PaceChange(msgspec.Struct, frozen=True):
    """A link that is slower, or faster."""

    ends: tuple[NamedEnd, NamedEnd]
    before: Pace
    after: Pace


class Difference(msgspec.Struct, frozen=True):
    """All that differs.

    Attributes:
        version: Of the form.
        before: The document that is compared with.
        after: The one that is compared.
        missing_nodes: Those of the first alone.
        new_nodes: Those of the second alone.
        renamed_nodes: By GUID.
        missing_links: Those of the first alone that no move explains.
        new_links: Those of the second alone, likewise.
        moved: Ports that are linked to something else.
        slower: Links that are slower, or were active and are not.
        faster: Links that are faster, or were not active and are.
    """

    version: int
    before: Of
    after: Of
    missing_nodes: tuple[NodeChange, ...]
    new_nodes: tuple[NodeChange, ...]
    renamed_nodes: tuple[Renamed, ...]
    missing_links: tuple[LinkChange, ...]
    new_links: tuple[LinkChange, ...]
    moved: tuple[Moved, ...]
    slower: tuple[PaceChange, ...]
    faster: tuple[PaceChange, ...]

    @property
    def count(self) -> int:
        """Give the number of differences."""
        kinds = (self.missing_nodes, self.new_nodes, self.renamed_nodes, self.missing_links, self.new_links)
        return sum(map(len, (*kinds, self.moved, self.slower, self.faster)))


def compare(before: SavedFabric, after: SavedFabric) -> Difference:
    """Compare two documents."""
    old, new = {node.guid: node for node in before.nodes}, {node.guid: node for node in after.nodes}
    were, are = _by_ends(before), _by_ends(after)
    moved = list(_moved(before, after, new))
    explained_before = {frozenset((end, was)) for end, was, _ in moved}
    explained_after = {frozenset((end, now)) for end, _, now in moved}
    kept = [(link, are[ends]) for ends, link in were.items() if ends in are]
    ports = ports_of(after)

    def now(place: Place) -> str | None:
        port = ports.get(place)
        return None if port is None else "unanswered" if port.unanswered is not None else port.state or None

    return Difference(
        1,
        Of(before.subnet, before.taken),
        Of(after.subnet, after.taken),
        tuple(_node(node) for guid, node in sorted(old.items()) if guid not in new),
        tuple(_node(node) for guid, node in sorted(new.items()) if guid not in old),
        tuple(
            Renamed(guid, node.name, new[guid].name)
            for guid, node in sorted(old.items())
            if guid in new and new[guid].name != node.name
        ),
        tuple(
            LinkChange(_ends(link, old), (now(link.places[0]), now(link.places[1])))
            for ends, link in were.items()
            if ends not in are and ends not in explained_before
        ),
        tuple(
            LinkChange(_ends(link, new))
            for ends, link in are.items()
            if ends not in were and ends not in explained_after
        ),
        tuple(Moved(_named(end, new), _named(was, old), _named(is_now, new)) for end, was, is_now in moved),
        tuple(_pace_change(one, other, new) for one, other in kept if _faster(one, other) < 0),
        tuple(_pace_change(one, other, new) for one, other in kept if _faster(one, other) > 0),
    )


def _by_ends(fabric: SavedFabric) -> dict[frozenset[Place], SavedLink]:
    return {frozenset(link.places): link for link in fabric.links}


def _peers(fabric: SavedFabric) -> dict[Place, Place]:
    found = {}
    for link in fabric.links:
        one, other = link.places
        found[one], found[other] = other, one
    return found


def _moved(
    before: SavedFabric, after: SavedFabric, nodes: Mapping[str, SavedNode]
) -> Iterator[tuple[Place, Place, Place]]:
    """Find ports that were linked and are linked to something else: of one cable the end that is further down.

    A link that is gone and one that is new are told of by one port at most.
    """
    were, are = _peers(before), _peers(after)
    told_before: set[frozenset[Place]] = set()
    told_after: set[frozenset[Place]] = set()
    for end in sorted(were.keys() & are.keys(), key=lambda place: (height(nodes[place.guid]), place)):
        was, now = frozenset((end, were[end])), frozenset((end, are[end]))
        if was != now and was not in told_before and now not in told_after:
            told_before.add(was)
            told_after.add(now)
            yield end, were[end], are[end]


def height(node: SavedNode) -> int:
    """Tell how far up a node is: an adapter lowest, a switch that nothing is known of highest."""
    if node.kind != "switch":
        return ADAPTER
    return ORDER.index(node.role) if node.role in ORDER else len(ORDER)


def _faster(before: SavedLink, after: SavedLink) -> int:
    """Tell whether a link is faster (1), slower (-1), or neither, as far as is known; not active is slower than any."""
    was, now = before.state == "active", after.state == "active"
    if was and now:
        speeds = before.speed_bytes_per_second, after.speed_bytes_per_second
        if speeds[0] is None or speeds[1] is None:
            return 0
        was, now = speeds[0] > speeds[1], speeds[1] > speeds[0]
    return int(now) - int(was)


def _node(node: SavedNode) -> NodeChange:
    return NodeChange(node.guid, node.name, node.kind)


def _named(end: Place | SavedEnd, nodes: Mapping[str, SavedNode]) -> NamedEnd:
    return NamedEnd(end.guid, end.port, nodes[end.guid].name)


def _ends(link: SavedLink, nodes: Mapping[str, SavedNode]) -> tuple[NamedEnd, NamedEnd]:
    return _named(link.ends[0], nodes), _named(link.ends[1], nodes)


def _pace_change(one: SavedLink, other: SavedLink, nodes: Mapping[str, SavedNode]) -> PaceChange:
    return PaceChange(_ends(other, nodes), _pace(one), _pace(other))


def _pace(link: SavedLink) -> Pace:
    return Pace(link.state, link.width, link.generation, link.speed_bytes_per_second)
