"""The placement of one switch in the fabric, added to its tables: its links, group and members of each port.

Ports of one group are compared with each other by `exporter.meaning`, which knows nothing of fabrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.core.table import (
    Column,
    Schema,
    Table,
    Value,
)
from exporter.sources.switch.links import LinkTable, PortLink, resolve_link
from exporter.sources.switch.metrics import KIND, PORTS
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_kinds import PortKind, kind_of
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.topology import Topology
from exporter.switch_api.neighbour import LldpNeighbour

GROUP = "group_info"

_LINKS = frozenset({PortKind.PHYSICAL, PortKind.MANAGEMENT})
"""Kinds of rows that are one link; the members of all others are unknown unless the switch lists them."""


class SwitchPlacement:
    """The placement of one switch, from poll to poll.

    Attributes:
        role: leaf, spine or core; empty while it is not known.
    """

    def __init__(self, target: Target, registry: SwitchRegistry) -> None:
        self.role: str = target.role or ""
        self._target = target.name
        self._registry = registry
        self._topology = Topology(target)
        self._table = LinkTable()
        self._links: Sequence[PortLink] = ()
        self._links_key: tuple[Sequence[LldpNeighbour], int] | None = None
        self._names: Sequence[str] = ()
        self._kinds: Mapping[str, str] = {}
        self._members: Mapping[str, int] = {}

    def tables(
        self, label: str, tables: Sequence[Table], neighbours: Sequence[LldpNeighbour] | None, chassis: str, time: float
    ) -> list[Table]:
        """Return the tables of a switch with groups and members of its ports, and the table of its links.

        Args:
            label: The label of the switch.
            tables: All its tables.
            neighbours: Its current neighbours; None if they are not known, and then there is no table of links.
            chassis: Its LLDP chassis ID, where it is known.
            time: Time of the reading.
        """
        ports = [table for table in tables if _has_ports(table.schema)]
        link_up, kinds = _cells(ports, "link_up"), _kinds(ports)
        self._register(list(link_up), neighbours, chassis)
        if neighbours is not None:
            self._topology.update(self._resolve_links(neighbours), link_up, kinds)
        self.role = self._topology.role()
        self._registry.update(self._target, role=self.role)
        groups = self._groups(kinds)
        if kinds != self._kinds:
            self._kinds = kinds
            self._members = {name: 1 for name, kind in kinds.items() if kind in _LINKS}
        placed = [_with_groups(table, groups, self._members) if _has_ports(table.schema) else table for table in tables]
        if neighbours:
            placed.append(self._table.make(self._links, time, switch=label))
        return placed

    def _register(self, names: Sequence[str], neighbours: Sequence[LldpNeighbour] | None, chassis: str) -> None:
        """Update the registry of switches; what is not known now keeps its last value."""
        if names and names != self._names:
            self._names = names
            self._registry.update(self._target, ports=_by_canonical_name(names))
        if chassis:
            self._registry.update(self._target, chassis=chassis)
        if neighbours is not None:
            self._registry.update(self._target, neighbours=neighbours)

    def _resolve_links(self, neighbours: Sequence[LldpNeighbour]) -> Sequence[PortLink]:
        """Return the links; they are resolved again only if the neighbours or the registry changed."""
        key = (neighbours, self._registry.version)
        if self._links_key != key:
            self._links = [resolve_link(self._target, one, self._registry) for one in neighbours]
            self._links_key = key
        return self._links

    def _groups(self, kinds: Mapping[str, str]) -> Mapping[str, str]:
        """Return the group of each port that has one."""
        found = {name: self._topology.group(name, kind, self.role) for name, kind in kinds.items()}
        return {name: group for name, group in found.items() if group is not None}


def _has_ports(schema: Schema) -> bool:
    return schema.prefix == PORTS.prefix and schema.labels == PORTS.labels and GROUP in schema.metrics


def _cells(tables: Sequence[Table], ending: str) -> dict[str, Value | None]:
    """Return a column by port; every port is a key, its value may be None."""
    found: dict[str, Value | None] = {}
    for table in tables:
        values = table.values(ending) or [None] * len(table.rows)
        for (_, port), value in zip(table.rows.keys, values, strict=True):
            if value is not None or port not in found:
                found[port] = value
    return found


def _kinds(ports: Sequence[Table]) -> dict[str, str]:
    """Return the kind of each port, by its name alone where no protocol has more of it."""
    infos = _cells(ports, "info")
    return {name: str(info[KIND]) if isinstance(info, tuple) else kind_of(name) for name, info in infos.items()}


def _by_canonical_name(names: Sequence[str]) -> dict[str, str]:
    """Return the port labels by canonical name, without names that two ports share."""
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for name in names:
        same = found.setdefault(canonical(name), name)
        if same != name:
            ambiguous.add(canonical(name))
    return {name: port for name, port in found.items() if name not in ambiguous}


def _with_groups(table: Table, groups: Mapping[str, str], members: Mapping[str, int]) -> Table:
    """Return a table of ports with groups and members; the one with the link state exports `group_info` too."""
    kinds = [groups.get(port) for _, port in table.rows.keys]
    listed = table.members or [None] * len(kinds)
    counts = [members.get(port, count) for (_, port), count in zip(table.rows.keys, listed, strict=True)]
    grouped = replace(table, kinds=kinds, members=counts)
    if table.values("link_up") is None or not groups:
        return grouped
    infos = [None if kind is None else (kind,) for kind in kinds]
    return grouped.with_columns([Column(PORTS.metrics[GROUP], infos)])
