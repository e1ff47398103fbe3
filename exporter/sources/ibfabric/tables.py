"""Tables of a sweep.

Each switch has a table of its own, so that its uplinks are compared with each other; adapters are distributed over a
fixed number of tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
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
from exporter.linux.mad.datagram import NO_RESPONSE
from exporter.linux.mad.performance import (
    DISCARD_DETAILS,
    ERROR_COUNTER_BITS,
    ERROR_COUNTERS,
    OCTETS_PER_WORD,
    RECEIVE_ERROR_DETAILS,
    TRAFFIC_COUNTERS,
)
from exporter.linux.mad.subnet import ACTIVE, PortInfo
from exporter.linux.mad.window import DatagramCounts
from exporter.sources.ibfabric import metrics
from exporter.sources.ibfabric.counters import PortCounts
from exporter.sources.ibfabric.metrics import (
    DATAGRAMS,
    MANAGERS,
    NODES,
    PORTS,
    SERVICE_LEVELS,
    SWEEPS,
)
from exporter.sources.ibfabric.model import (
    IbFabric,
    IbNode,
    LinkEnd,
    format_guid,
    format_width,
)
from exporter.sources.ibfabric.sweep import CounterSelection, SweepResult

ADAPTER_TABLES = 16
"""Tables over which the ports of adapters are distributed."""

CounterWidths: TypeAlias = tuple[bool, bool]
"""Whether error counters are 64 bits wide, and whether traffic counters are: the same in all rows of a table."""

_PORT_COUNTERS_ONLY: CounterWidths = (False, False)

_DATAGRAM_OUTCOMES = MappingProxyType(
    {
        "sent": "sent",
        "received": "answered",
        "timeouts": "timed_out",
        "retries": "retried",
        "unmatched": "unmatched",
        "malformed": "malformed",
    }
)
"""Values of the label `outcome` by the fields of DatagramCounts."""


@dataclass(slots=True)
class _PortRow:
    """A port and its counters."""

    end: LinkEnd
    port: PortInfo
    counts: PortCounts | None


@dataclass(slots=True)
class FabricTables:
    """Builds the tables of each sweep; the text of rows is kept between sweeps."""

    selection: CounterSelection
    _keepers: dict[tuple[Schema, str], RowKeeper] = field(default_factory=dict)
    _widths: dict[int, CounterWidths] = field(default_factory=dict)

    def make(self, result: SweepResult) -> list[Table]:
        """Build all tables."""
        self._widths = {guid: widths for guid, widths in self._widths.items() if guid in result.fabric.nodes}
        levels = result.fabric.levels()
        tables = [self._port_table(result, levels, part, rows) for part, rows in self._partition(result)]
        tables.append(self._node_table(result, levels))
        if result.managers:
            tables.append(self._manager_table(result))
        if self.selection.service_levels:
            tables.append(self._service_level_table(result))
        return tables

    def _keeper(self, schema: Schema, part: str = "") -> RowKeeper:
        return self._keepers.setdefault((schema, part), RowKeeper(schema.labels))

    def _partition(self, result: SweepResult) -> Iterator[tuple[str, list[_PortRow]]]:
        """Distribute the ports over tables."""
        parts: dict[str, list[_PortRow]] = {}
        for guid, node in sorted(result.fabric.nodes.items()):
            if not self.selection.matches(node):
                continue
            rows = list(_port_rows(node, result))
            widths = self._update_widths(guid, rows)
            name = (
                format_guid(guid) if node.is_switch else f"adapters {guid % ADAPTER_TABLES} {widths[0]:d}{widths[1]:d}"
            )
            parts.setdefault(name, []).extend(rows)
        return iter([(name, rows) for name, rows in parts.items() if rows])

    def _update_widths(self, guid: int, rows: Sequence[_PortRow]) -> CounterWidths:
        """Return the counter widths of a node; the last ones while it does not respond."""
        counts = next((row.counts for row in rows if row.counts is not None and row.counts.traffic), None)
        if counts is not None:
            self._widths[guid] = (counts.has_extended_errors, counts.has_extended_traffic)
        return self._widths.get(guid, _PORT_COUNTERS_ONLY)

    def _port_table(self, result: SweepResult, levels: Mapping[int, int], part: str, rows: Sequence[_PortRow]) -> Table:
        now = max((row.counts.time for row in rows if row.counts is not None), default=monotonic())
        extended_errors, extended_traffic = self._widths.get(rows[0].end.guid, _PORT_COUNTERS_ONLY)
        fabric = result.fabric
        columns = [
            *_link_columns(result, rows),
            *_counter_columns(rows, extended_errors=extended_errors, extended_traffic=extended_traffic),
            _column("port_responding", [_is_responding(row, result) for row in rows]),
        ]
        groups = [_group(fabric, levels, row.end) for row in rows]
        columns.append(_column("group_info", [None if group is None else (group,) for group in groups]))
        return Table(
            PORTS,
            self._keeper(PORTS, part).rows([(format_guid(row.end.guid), str(row.end.port)) for row in rows]),
            {column.metric.ending: column for column in columns if any(value is not None for value in column.values)},
            now,
            kinds=groups,
            part=part,
            times=[now if row.counts is None else row.counts.time for row in rows],
        )

    def _node_table(self, result: SweepResult, levels: Mapping[int, int]) -> Table:
        built = TableBuilder(NODES)
        for node in sorted(result.fabric.nodes.values(), key=lambda one: one.guid):
            built.row(*_node_row(node, node_role(node, levels), up=1))
        for node in sorted(result.unreachable, key=lambda one: one.guid):
            built.row(*_node_row(node, "", up=0))
        return built.table(self._keeper(NODES), monotonic())

    def _manager_table(self, result: SweepResult) -> Table:
        built = TableBuilder(MANAGERS)
        for end, manager in sorted(result.managers.items()):
            values: dict[str, Value | None] = {
                "sm_state": manager.state,
                "sm_priority": manager.priority,
                "sm_activity_total": manager.activity,
            }
            built.row((format_guid(end.guid), str(end.port)), values)
        return built.table(self._keeper(MANAGERS), monotonic())

    def _service_level_table(self, result: SweepResult) -> Table:
        keys: list[LabelValues] = []
        cells: tuple[list[int | None], list[int | None]] = ([], [])
        for end, counts in sorted(result.counts.items()):
            for level in range(16):
                sent, received = (None if words is None else words[level] for words in counts.by_sl)
                if sent or received:  # one or two of the sixteen service levels are used as a rule
                    keys.append((format_guid(end.guid), str(end.port), str(level)))
                    cells[0].append(sent)
                    cells[1].append(received)
        columns = {
            ending: Column(SERVICE_LEVELS.metrics[ending], values, 32, saturates=True, factor=OCTETS_PER_WORD)
            for ending, values in zip(SERVICE_LEVELS.metrics, cells, strict=True)
        }
        return Table(SERVICE_LEVELS, self._keeper(SERVICE_LEVELS).rows(keys), columns, monotonic())


class SweepTables:
    """Builds the tables about the sweeps themselves."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (SWEEPS, DATAGRAMS)}

    def waiting(self, local_port: str, holder: str, subnet: str, discoveries: int) -> Table:
        """Build the table of an exporter that waits for the holder of the subnet's lock."""
        built = TableBuilder(SWEEPS)
        built.row((local_port,), {"info": ("waiting", holder, subnet), "discoveries_total": discoveries})
        return built.table(self._keepers[SWEEPS], monotonic())

    def sweeping(self, local_port: str, result: SweepResult, subnet: str, discoveries: int) -> Table:
        """Build the table of a sweep."""
        built = TableBuilder(SWEEPS)
        nodes = result.fabric.nodes.values()
        built.row(
            (local_port,),
            {
                "info": ("sweeping", "", subnet),
                "duration_seconds": result.seconds,
                "discoveries_total": discoveries,
                "switches": sum(node.is_switch for node in nodes),
                "adapters": sum(node.kind == "adapter" for node in nodes),
                "links": sum(one <= other for one, other in result.fabric.peers.items()),
                "unanswered_links": len(result.fabric.unanswered),
            },
        )
        return built.table(self._keepers[SWEEPS], monotonic())

    def datagrams(self, local_port: str, counts: DatagramCounts) -> Table:
        """Build the table of datagrams by outcome."""
        built = TableBuilder(DATAGRAMS)
        for name, outcome in _DATAGRAM_OUTCOMES.items():
            built.row((local_port, outcome), {"datagrams_total": getattr(counts, name)})
        return built.table(self._keepers[DATAGRAMS], monotonic())


def _port_rows(node: IbNode, result: SweepResult) -> Iterator[_PortRow]:
    """Return the rows of the ports of a node that are in the subnet; port 0 of a switch only if it has counters."""
    fabric = result.fabric
    for number, port in sorted(node.ports.items()):
        end = LinkEnd(node.guid, number)
        counts = result.counts.get(end)
        if number == 0:
            if counts is not None:
                yield _PortRow(end, port, counts)
        elif fabric.contains(end):
            yield _PortRow(end, port, counts)


def _column(ending: str, values: Sequence[Value | None]) -> Column:
    return Column(PORTS.metrics[ending], values)


def _link_columns(result: SweepResult, rows: Sequence[_PortRow]) -> Iterator[Column]:
    fabric = result.fabric
    known = [_has_known_state(result, row.end) for row in rows]
    speeds = [fabric.speed(row.end) for row in rows]
    yield _column(
        "link_up",
        [int(row.port.state >= ACTIVE) if is_known else None for row, is_known in zip(rows, known, strict=True)],
    )
    yield _column(
        "port_state", [row.port.state if is_known else None for row, is_known in zip(rows, known, strict=True)]
    )
    yield _column(
        "port_physical_state",
        [(row.port.physical_state or None) if is_known else None for row, is_known in zip(rows, known, strict=True)],
    )
    yield _column("link_speed_bytes_per_second", speeds)
    yield _column(
        "link_expected_speed_bytes_per_second",
        [None if speed is None else fabric.expected_speed(row.end) for row, speed in zip(rows, speeds, strict=True)],
    )
    yield _column("link_lanes", [row.port.lanes if row.port.state >= ACTIVE else None for row in rows])
    yield _column("link_info", [_link_info(fabric, row) for row in rows])


def _has_known_state(result: SweepResult, end: LinkEnd) -> bool:
    """Return whether the state of a port is current: its node responds, or it has a peer, which has the same state."""
    return result.node_problems.get(end.guid) not in NO_RESPONSE or end in result.fabric.peers


def _link_info(fabric: IbFabric, row: _PortRow) -> LabelValues | None:
    other = fabric.peers.get(row.end)
    width, generation = format_width(row.port), row.port.generation or ""
    if other is None:
        return ("", "", "", width, generation) if row.end in fabric.unanswered else None
    return (format_guid(other.guid), str(other.port), fabric.nodes[other.guid].name, width, generation)


def _counter_columns(rows: Sequence[_PortRow], *, extended_errors: bool, extended_traffic: bool) -> Iterator[Column]:
    """Return the counter columns; values of ports with other widths than the table's are left out."""
    counts = [PortCounts() if row.counts is None else row.counts for row in rows]
    errors = [one.errors if one.has_extended_errors == extended_errors else None for one in counts]
    for index, name in enumerate(ERROR_COUNTERS):
        values = [None if one is None else one[index] for one in errors]
        bits = 64 if extended_errors else ERROR_COUNTER_BITS[name]
        yield Column(PORTS.metrics[metrics.ERROR_ENDINGS[name]], values, bits, saturates=not extended_errors)
    traffic = [one.traffic if one.has_extended_traffic == extended_traffic else None for one in counts]
    for index, name in enumerate(TRAFFIC_COUNTERS):
        values = [None if one is None or index >= len(one) else one[index] for one in traffic]
        factor = OCTETS_PER_WORD if name.endswith("words") else 1
        bits = 64 if extended_traffic else 32
        metric = PORTS.metrics[metrics.TRAFFIC_ENDINGS[name]]
        yield Column(metric, values, bits, saturates=not extended_traffic, factor=factor)
    for index, ending in enumerate(metrics.FEC_ENDINGS):
        blocks = [None if one.fec is None else one.fec[index] for one in counts]
        yield Column(PORTS.metrics[ending], blocks, 32)
    details = (
        (metrics.RECEIVE_ERROR_DETAIL_ENDINGS, RECEIVE_ERROR_DETAILS, [one.receive_errors for one in counts]),
        (metrics.DISCARD_DETAIL_ENDINGS, DISCARD_DETAILS, [one.discards for one in counts]),
    )
    for endings, names, found in details:
        for index in range(len(names)):
            values = [None if one is None else one[index] for one in found]
            yield Column(PORTS.metrics[endings[index]], values, 16, saturates=True)


def _is_responding(row: _PortRow, result: SweepResult) -> int | None:
    """Return whether a port responded with its counters; None if they were not requested."""
    if row.counts is not None and row.end not in result.problems:
        return 1
    return 0 if row.end in result.problems else None


def _group(fabric: IbFabric, levels: Mapping[int, int], end: LinkEnd) -> str | None:
    """Return the group of a switch port by the kind and level of its peer; None where that is not known."""
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


def node_role(node: IbNode, levels: Mapping[int, int]) -> str:
    """Return the role of a switch by its level: leaf, spine or core; empty where the level is not known."""
    level = levels.get(node.guid)
    return "" if level is None else {0: "leaf", 1: "spine"}.get(level, "core")


def _node_row(node: IbNode, role: str, *, up: int) -> tuple[LabelValues, Mapping[str, Value | None]]:
    info = node.info
    labels = (
        node.description,
        node.kind,
        *node.host_and_device,
        format_guid(info.system_guid),
        f"{info.vendor:#08x}",
        f"{info.device:#06x}",
        role,
    )
    return (format_guid(node.guid),), {"node_info": labels, "node_up": up, "node_ports": info.num_ports}
