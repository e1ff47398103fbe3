"""The placement of one switch in the fabric, added to its tables: its links, and the group of each port.

Ports of one group are compared with each other by `exporter.meaning`, which knows nothing of fabrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.core.table import (
    Column,
    Schema,
    Table,
    Value,
)
from exporter.sources.switch.links import LinkTable, PortLink, resolve_link
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.topology import Topology, is_management, is_physical
from exporter.switch_api.neighbour import LldpNeighbour

GROUP = "group_info"

_IF_TYPE = PORTS.metrics["info"].extra.index("if_type")


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
        self._types: Mapping[str, str] = {}
        self._members: Mapping[str, int | None] = {}

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
        link_up = _cells(ports, "link_up")
        self._register(list(link_up), neighbours, chassis)
        if neighbours is not None:
            self._topology.update(self._resolve_links(neighbours), link_up)
        self.role = self._topology.role()
        self._registry.update(self._target, role=self.role)
        types = _if_types(ports, link_up)
        groups = self._groups(types)
        if types != self._types:
            self._types = types
            self._members = {name: 1 if _is_one_link(name, if_type) else None for name, if_type in types.items()}
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

    def _groups(self, types: Mapping[str, str]) -> Mapping[str, str]:
        """Return the group of each port that has one."""
        groups: dict[str, str] = {}
        for name, if_type in types.items():
            group = self._topology.group(name, if_type, self.role)
            if group is not None:
                groups[name] = group
        return groups


def _is_one_link(name: str, if_type: str) -> bool:
    """Return whether an interface is one link; bundles, and what runs over several ports, have unknown members."""
    return is_physical(name, if_type) or is_management(name)


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


def _if_types(tables: Sequence[Table], names: Iterable[str]) -> dict[str, str]:
    """Return the ifType of each port, empty where it is not known."""
    infos = _cells(tables, "info")
    return {name: str(info[_IF_TYPE]) if isinstance(info := infos.get(name), tuple) else "" for name in names}


def _by_canonical_name(names: Sequence[str]) -> dict[str, str]:
    """Return the port labels by canonical name, without names that two ports share."""
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for name in names:
        same = found.setdefault(canonical(name), name)
        if same != name:
            ambiguous.add(canonical(name))
    return {name: port for name, port in found.items() if name not in ambiguous}


def _with_groups(table: Table, groups: Mapping[str, str], members: Mapping[str, int | None]) -> Table:
    """Return a table of ports with groups and members; the one with the link state exports `group_info` too."""
    kinds = [groups.get(port) for _, port in table.rows.keys]
    grouped = replace(table, kinds=kinds, members=[members.get(port) for _, port in table.rows.keys])
    if table.values("link_up") is None or not groups:
        return grouped
    infos = [None if kind is None else (kind,) for kind in kinds]
    return grouped.with_columns([Column(PORTS.metrics[GROUP], infos)])
