"""The tables of a fabric, made of what a pass gave.

Each switch has a table of its own, so that what is made of one is a small piece of work, and its uplinks are compared
with each other; adapters share a few.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeAlias

from exporter.core.table import (
    Column,
    LabelValues,
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
    Value,
)
from exporter.linux.mad.datagram import NO_ANSWER
from exporter.linux.mad.performance import (
    DISCARDS,
    ERRORS,
    RECEIVE_ERRORS,
    TRAFFIC,
    WIDTHS,
    WORD,
)
from exporter.linux.mad.subnet import ACTIVE, PortInfo
from exporter.sources.ibfabric import metrics
from exporter.sources.ibfabric.counting import Counted
from exporter.sources.ibfabric.metrics import (
    MANAGERS,
    NODES,
    PORTS,
    SERVICE_LEVELS,
)
from exporter.sources.ibfabric.model import (
    End,
    Fabric,
    Node,
    guid_text,
    width_text,
)
from exporter.sources.ibfabric.sweep import Outcome, Wanted

ADAPTER_TABLES = 16
"""Tables among which the ports of adapters are divided."""

Form: TypeAlias = tuple[bool, bool]
"""Whether errors are of 64 bits, and whether traffic is: what the rows of one table have in common."""

_NARROW: Form = (False, False)


@dataclass(slots=True)
class _Row:
    """One port and what it counted."""

    end: End
    port: PortInfo
    counted: Counted | None


@dataclass(slots=True)
class FabricTables:
    """Makes the tables of each pass; rows keep their text."""

    wanted: Wanted
    _keepers: dict[tuple[Schema, str], RowKeeper] = field(default_factory=dict)
    _forms: dict[int, Form] = field(default_factory=dict)

    def make(self, outcome: Outcome) -> list[Table]:
        """Make all tables."""
        self._forms = {guid: form for guid, form in self._forms.items() if guid in outcome.fabric.nodes}
        levels = outcome.fabric.levels()
        tables = [self._ports(outcome, levels, part, rows) for part, rows in self._parts(outcome)]
        tables.append(self._nodes(outcome, levels))
        if outcome.managers:
            tables.append(self._managers(outcome))
        if self.wanted.service_levels:
            tables.append(self._service_levels(outcome))
        return tables

    def _keeper(self, schema: Schema, part: str = "") -> RowKeeper:
        return self._keepers.setdefault((schema, part), RowKeeper(schema.labels))

    def _parts(self, outcome: Outcome) -> Iterator[tuple[str, list[_Row]]]:
        """Divide the ports among tables."""
        parts: dict[str, list[_Row]] = {}
        for guid, node in sorted(outcome.fabric.nodes.items()):
            if not self.wanted.wants(node):
                continue
            rows = list(_rows(node, outcome))
            form = self._form(guid, rows)
            name = guid_text(guid) if node.is_switch else f"adapters {guid % ADAPTER_TABLES} {form[0]:d}{form[1]:d}"
            parts.setdefault(name, []).extend(rows)
        return iter([(name, rows) for name, rows in parts.items() if rows])

    def _form(self, guid: int, rows: Sequence[_Row]) -> Form:
        """Tell of which widths a node's counters are; what it was is kept while it tells nothing."""
        told = next((row.counted for row in rows if row.counted is not None and row.counted.traffic), None)
        if told is not None:
            self._forms[guid] = (told.wide, told.extended)
        return self._forms.get(guid, _NARROW)

    def _ports(self, outcome: Outcome, levels: Mapping[int, int], part: str, rows: Sequence[_Row]) -> Table:
        now = max((row.counted.time for row in rows if row.counted is not None), default=monotonic())
        wide, extended = self._forms.get(rows[0].end.guid, _NARROW)
        fabric = outcome.fabric
        columns = [
            *_link_columns(outcome, rows),
            *_counters(rows, wide=wide, extended=extended),
            _column("port_answers", [_answers(row, outcome) for row in rows]),
        ]
        groups = [_group(fabric, levels, row.end) for row in rows]
        columns.append(_column("group_info", [None if group is None else (group,) for group in groups]))
        return Table(
            PORTS,
            self._keeper(PORTS, part).rows([(guid_text(row.end.guid), str(row.end.port)) for row in rows]),
            {column.metric.ending: column for column in columns if any(value is not None for value in column.values)},
            now,
            kinds=groups,
            part=part,
            times=[now if row.counted is None else row.counted.time for row in rows],
        )

    def _nodes(self, outcome: Outcome, levels: Mapping[int, int]) -> Table:
        built = TableBuilder(NODES)
        for node in sorted(outcome.fabric.nodes.values(), key=lambda one: one.guid):
            built.row(*_node_row(node, role(node, levels), up=1))
        for node in sorted(outcome.gone, key=lambda one: one.guid):
            built.row(*_node_row(node, "", up=0))
        return built.table(self._keeper(NODES), monotonic())

    def _managers(self, outcome: Outcome) -> Table:
        built = TableBuilder(MANAGERS)
        for end, manager in sorted(outcome.managers.items()):
            values: dict[str, Value | None] = {
                "sm_state": manager.state,
                "sm_priority": manager.priority,
                "sm_activity_total": manager.activity,
            }
            built.row((guid_text(end.guid), str(end.port)), values)
        return built.table(self._keeper(MANAGERS), monotonic())

    def _service_levels(self, outcome: Outcome) -> Table:
        keys: list[LabelValues] = []
        cells: tuple[list[int | None], list[int | None]] = ([], [])
        for end, counted in sorted(outcome.counted.items()):
            for level in range(16):
                sent, received = (None if words is None else words[level] for words in counted.by_sl)
                if sent or received:  # of sixteen one or two are used
                    keys.append((guid_text(end.guid), str(end.port), str(level)))
                    cells[0].append(sent)
                    cells[1].append(received)
        columns = {
            ending: Column(SERVICE_LEVELS.metrics[ending], values, 32, saturates=True, factor=WORD)
            for ending, values in zip(SERVICE_LEVELS.metrics, cells, strict=True)
        }
        return Table(SERVICE_LEVELS, self._keeper(SERVICE_LEVELS).rows(keys), columns, monotonic())


def _rows(node: Node, outcome: Outcome) -> Iterator[_Row]:
    """Give the rows of a node: all physical ports of a switch, and of others those that are of this fabric."""
    fabric = outcome.fabric
    for number, port in sorted(node.ports.items()):
        end = End(node.guid, number)
        counted = outcome.counted.get(end)
        if number == 0:
            if counted is not None:
                yield _Row(end, port, counted)
        elif fabric.has(end):
            yield _Row(end, port, counted)


def _column(ending: str, values: Sequence[Value | None]) -> Column:
    return Column(PORTS.metrics[ending], values)


def _link_columns(outcome: Outcome, rows: Sequence[_Row]) -> Iterator[Column]:
    """Give what is known of the links of some ports."""
    fabric = outcome.fabric
    known = [_is_known(outcome, row.end) for row in rows]
    speeds = [fabric.speed(row.end) for row in rows]
    yield _column(
        "link_up", [int(row.port.state >= ACTIVE) if one else None for row, one in zip(rows, known, strict=True)]
    )
    yield _column("port_state", [row.port.state if one else None for row, one in zip(rows, known, strict=True)])
    yield _column(
        "port_physical_state",
        [(row.port.physical_state or None) if one else None for row, one in zip(rows, known, strict=True)],
    )
    yield _column("link_speed_bytes_per_second", speeds)
    yield _column(
        "link_expected_speed_bytes_per_second",
        [None if speed is None else fabric.expected_speed(row.end) for row, speed in zip(rows, speeds, strict=True)],
    )
    yield _column("link_lanes", [row.port.lanes if row.port.state >= ACTIVE else None for row in rows])
    yield _column("link_info", [_link(fabric, row) for row in rows])


def _is_known(outcome: Outcome, end: End) -> bool:
    """Tell whether it is known how a port is: its node answers, or that at the other end of its link does."""
    return outcome.node_problems.get(end.guid) not in NO_ANSWER or end in outcome.fabric.peers


def _link(fabric: Fabric, row: _Row) -> LabelValues | None:
    """Name what a port is linked to; None where it is linked to nothing."""
    other = fabric.peers.get(row.end)
    width, generation = width_text(row.port), row.port.generation or ""
    if other is None:
        return ("", "", "", width, generation) if row.end in fabric.unanswered else None
    return (guid_text(other.guid), str(other.port), fabric.nodes[other.guid].name, width, generation)


def _counters(rows: Sequence[_Row], *, wide: bool, extended: bool) -> Iterator[Column]:
    """Give the counters of some ports, all of the same widths."""
    counted = [Counted() if row.counted is None else row.counted for row in rows]
    errors = [one.errors if one.wide == wide else None for one in counted]
    for place, name in enumerate(ERRORS):
        values = [None if one is None else one[place] for one in errors]
        width = 64 if wide else WIDTHS[name]
        yield Column(PORTS.metrics[metrics.ERRORS[name]], values, width, saturates=not wide)
    traffic = [one.traffic if one.extended == extended else None for one in counted]
    for place, name in enumerate(TRAFFIC):
        values = [None if one is None or place >= len(one) else one[place] for one in traffic]
        factor = WORD if name.endswith("words") else 1
        width = 64 if extended else 32
        yield Column(PORTS.metrics[metrics.TRAFFIC[name]], values, width, saturates=not extended, factor=factor)
    for place, ending in enumerate(metrics.FEC):
        blocks = [None if one.fec is None else one.fec[place] for one in counted]
        yield Column(PORTS.metrics[ending], blocks, 32)
    details = (
        (metrics.RECEIVE_DETAILS, RECEIVE_ERRORS, [one.receive_errors for one in counted]),
        (metrics.DISCARD_DETAILS, DISCARDS, [one.discards for one in counted]),
    )
    for endings, names, found in details:
        for place in range(len(names)):
            values = [None if one is None else one[place] for one in found]
            yield Column(PORTS.metrics[endings[place]], values, 16, saturates=True)


def _answers(row: _Row, outcome: Outcome) -> int | None:
    """Tell whether a port that was asked told its counters."""
    if row.counted is not None and row.end not in outcome.problems:
        return 1
    return 0 if row.end in outcome.problems else None


def _group(fabric: Fabric, levels: Mapping[int, int], end: End) -> str | None:
    """Tell what a port of a switch leads to; None for others, and where that is not known."""
    other = fabric.peers.get(end)
    if other is None or not fabric.nodes[end.guid].is_switch:
        return None
    peer = fabric.nodes[other.guid]
    if not peer.is_switch:
        return "host" if peer.kind == "adapter" else None
    here, there = levels.get(end.guid), levels.get(other.guid)
    if here is None or there is None:
        return None
    return "peer" if here == there else "uplink" if here < there else "downlink"


def role(node: Node, levels: Mapping[int, int]) -> str:
    """Name what a switch is by how far above the adapters it is; empty where that is not known."""
    level = levels.get(node.guid)
    return "" if level is None else {0: "leaf", 1: "spine"}.get(level, "core")


def _node_row(node: Node, role: str, *, up: int) -> tuple[LabelValues, Mapping[str, Value | None]]:
    info = node.info
    labels = (
        node.description,
        node.kind,
        *node.host_and_device,
        guid_text(info.system_guid),
        f"{info.vendor:#08x}",
        f"{info.device:#06x}",
        role,
    )
    return (guid_text(node.guid),), {"node_info": labels, "node_up": up, "node_ports": info.ports}
