"""Where one switch stands, put into its tables: the links that it sees, and the kinds of its ports.

Ports of one kind are measured against each other by what makes meaning of the tables, which knows nothing of fabrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.core.table import (
    Column,
    Schema,
    Table,
    Value,
)
from exporter.sources.switch.links import Link, LinkTable, resolved
from exporter.sources.switch.merge import Neighbour
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import Roster
from exporter.sources.switch.topology import Topology

GROUP = "group_info"

_IF_TYPE = PORTS.metrics["info"].extra.index("if_type")


class Place:
    """Keeps what is known of a switch's place from poll to poll.

    Attributes:
        role: leaf, spine or core; empty while it is not known.
    """

    def __init__(self, target: Target, roster: Roster) -> None:
        self.role: str = target.role or ""
        self._target = target.name
        self._roster = roster
        self._topology = Topology(target)
        self._table = LinkTable()
        self._links: Sequence[Link] = ()
        self._links_of: tuple[Sequence[Neighbour], int] | None = None
        self._names: Sequence[str] = ()

    def tables(
        self, label: str, tables: Sequence[Table], neighbours: Sequence[Neighbour] | None, chassis: str, time: float
    ) -> list[Table]:
        """Give the tables of a switch with the kinds of its ports, and that of its links.

        Args:
            label: The switch's.
            tables: All that it has.
            neighbours: Those of now; None where they are not known, and then there is no table of links.
            chassis: What identifies it in LLDP, where it tells.
            time: Of the reading.
        """
        ports = [table for table in tables if _is_of_ports(table.schema)]
        ups = _cells(ports, "link_up")
        self._note(list(ups), neighbours, chassis)
        if neighbours is not None:
            self._topology.note(self._seen(neighbours), ups)
        self.role = self._topology.role()
        self._roster.note(self._target, role=self.role)
        groups = self._groups(ports, ups)
        made = [_grouped(table, groups) if _is_of_ports(table.schema) else table for table in tables]
        if neighbours:
            made.append(self._table.make(self._links, time, switch=label))
        return made

    def _note(self, names: Sequence[str], neighbours: Sequence[Neighbour] | None, chassis: str) -> None:
        """Tell the other switches of this one; what is not known now is what it was."""
        if names and names != self._names:
            self._names = names
            self._roster.note(self._target, ports=_by_canonical(names))
        if chassis:
            self._roster.note(self._target, chassis=chassis)
        if neighbours is not None:
            self._roster.note(self._target, neighbours=neighbours)

    def _seen(self, neighbours: Sequence[Neighbour]) -> Sequence[Link]:
        """Give the links; they are worked out anew only when a neighbour, or what is known of a switch, is another."""
        known = (neighbours, self._roster.version)
        if self._links_of != known:
            self._links = [resolved(self._target, one, self._roster) for one in neighbours]
            self._links_of = known
        return self._links

    def _groups(self, ports: Sequence[Table], names: Mapping[str, object]) -> Mapping[str, str]:
        """Give the kind of each port that has one."""
        facts = _cells(ports, "info")
        groups: dict[str, str] = {}
        for name in names:
            fact = facts.get(name)
            if_type = str(fact[_IF_TYPE]) if isinstance(fact, tuple) else ""
            group = self._topology.group(name, if_type, self.role)
            if group is not None:
                groups[name] = group
        return groups


def _is_of_ports(schema: Schema) -> bool:
    return schema.prefix == PORTS.prefix and schema.labels == PORTS.labels and GROUP in schema.metrics


def _cells(tables: Sequence[Table], ending: str) -> dict[str, Value | None]:
    """Give a column by port; every port that there is has one, which may be None."""
    found: dict[str, Value | None] = {}
    for table in tables:
        values = table.values(ending) or [None] * len(table.rows)
        for (_, port), value in zip(table.rows.keys, values, strict=True):
            if value is not None or port not in found:
                found[port] = value
    return found


def _by_canonical(names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    twice: set[str] = set()
    for name in names:
        same = found.setdefault(canonical(name), name)
        if same != name:
            twice.add(canonical(name))
    return {name: port for name, port in found.items() if name not in twice}


def _grouped(table: Table, groups: Mapping[str, str]) -> Table:
    """Give a table of ports their kinds; the one that tells of links says them to users too."""
    kinds = [groups.get(port) for _, port in table.rows.keys]
    grouped = replace(table, kinds=kinds)
    if table.values("link_up") is None or not groups:
        return grouped
    words = [None if kind is None else (kind,) for kind in kinds]
    return grouped.with_columns([Column(PORTS.metrics[GROUP], words)])
