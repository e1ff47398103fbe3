"""Saved topology: the JSON document that `ib topology --json` writes and `ib diff` reads.

Nodes are sorted by GUID, links by their lower end; so the document of an unchanged fabric differs in time and counters
only.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from exporter.config import json_reader
from exporter.config.errors import ConfigError, dotted
from exporter.config.msgspec_errors import explain
from exporter.core.table import clean_label
from exporter.linux.mad.performance import ERROR_COUNTER_BITS, ERROR_COUNTERS
from exporter.linux.mad.subnet import (
    ACTIVE,
    ACTIVE_DEFER,
    ARMED,
    DOWN,
    INIT,
    PortInfo,
    link_speed,
)
from exporter.sources.ibfabric.counters import PortCounts
from exporter.sources.ibfabric.model import (
    IbNode,
    LinkEnd,
    format_guid,
    format_width,
)
from exporter.sources.ibfabric.sweep import SweepResult
from exporter.sources.ibfabric.tables import node_role

VERSION = 1

MAX_SIZE = 256 * 1024 * 1024
"""Bytes of a file; the document of the largest subnet is smaller."""

STATES = MappingProxyType({DOWN: "down", INIT: "init", ARMED: "armed", ACTIVE: "active", ACTIVE_DEFER: "active"})

NOT_ERRORS = frozenset({"transmit_wait"})
"""Counters among the error counters that count congestion and no errors."""

REMEDY = "save the fabric again with `fabric-exporter ib topology --json`"

Guid: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
Errors: TypeAlias = dict[str, int]


class SavedPortId(NamedTuple):
    """Key of a port: GUID of its node as text, and port number."""

    guid: str
    port: int


class SavedEnd(msgspec.Struct, frozen=True):
    """One end of a link."""

    guid: Guid
    port: Number

    @property
    def port_id(self) -> SavedPortId:
        """The key of the port."""
        return SavedPortId(self.guid, self.port)


class SavedPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port; omitted fields are false or not known.

    Attributes:
        port: Port number.
        state: A value of STATES; empty for other states.
        lid: LID of the port.
        unanswered: Why the peer is not known, where the link is up.
        errors: Error counters above 0; None where counters were not read.
        saturated: Error counters that are at their maximum, so that the number of errors may be higher.
    """

    port: Number
    state: str = ""
    lid: int | None = None
    unanswered: str | None = None
    errors: Errors | None = None
    saturated: tuple[str, ...] = ()


class SavedNode(msgspec.Struct, frozen=True):
    """One node; fields are named as in the metrics.

    Attributes:
        guid: NodeGUID.
        kind: switch, adapter, router, aggregation or unknown.
        name: NodeDescription; the GUID where there is none.
        host: Host of an adapter, parsed from its description; else empty.
        device: Device of an adapter, likewise.
        role: Role of a switch: leaf, spine or core; else empty.
        system_guid: SystemImageGUID.
        ports: Ports in this subnet.
    """

    guid: Guid
    kind: str
    name: str
    host: str
    device: str
    role: str
    system_guid: Guid
    ports: tuple[SavedPort, ...]


class SavedLink(msgspec.Struct, frozen=True):
    """One link.

    Attributes:
        ends: The lower end first.
        state: A value of STATES: that of the end which is further from active.
        width: Active width, such as `4X`; empty where not known.
        generation: Active generation, such as `NDR`; empty where not known.
        speed_bytes_per_second: Active speed; None while the link is not active.
        expected_width: Highest width that both ends support; empty where not known.
        expected_generation: Fastest generation that both ends support; empty where not known.
        expected_speed_bytes_per_second: Highest speed that both ends support; None where not known.
        degraded: Whether the active speed is lower than the expected one; None where one of them is not known.
        errors: Error counters above 0 by `GUID:port`; None where counters of neither end were read.
    """

    ends: tuple[SavedEnd, SavedEnd]
    state: str
    width: str
    generation: str
    speed_bytes_per_second: float | None
    expected_width: str
    expected_generation: str
    expected_speed_bytes_per_second: float | None
    degraded: bool | None
    errors: dict[str, Errors] | None

    @property
    def port_ids(self) -> tuple[SavedPortId, SavedPortId]:
        """The keys of both ports."""
        return self.ends[0].port_id, self.ends[1].port_id


class SavedFabric(msgspec.Struct, frozen=True):
    """The document.

    Attributes:
        version: Version of the format, VERSION.
        subnet: Name of the subnet: GID prefix and PortGUID of its subnet manager.
        taken: Time of the discovery.
        origin: The local port from which the fabric was read.
        nodes: Sorted by GUID.
        links: Sorted by their lower ends.
    """

    version: int
    subnet: str
    taken: datetime
    origin: SavedEnd | None
    nodes: tuple[SavedNode, ...]
    links: tuple[SavedLink, ...]


def save_topology(result: SweepResult, subnet: str, taken: datetime) -> SavedFabric:
    """Convert the result of a sweep into a document.

    Args:
        result: The result.
        subnet: Name of the subnet.
        taken: Time of the sweep, with a time zone.
    """
    fabric = result.fabric
    levels = fabric.levels()
    nodes = tuple(_node(result, node, node_role(node, levels)) for _, node in sorted(fabric.nodes.items()))
    links = tuple(_link(result, one, other) for one, other in fabric.links())
    origin = None if fabric.origin is None else _end(fabric.origin)
    return SavedFabric(VERSION, subnet, taken.astimezone(UTC).replace(microsecond=0), origin, nodes, links)


def encode_json(document: msgspec.Struct) -> str:
    """Encode a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def parse_topology(raw: bytes, name: str) -> SavedFabric:
    """Parse a document.

    Args:
        raw: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ConfigError: It is not a valid document.
    """
    data = json_reader.parse(raw, name, REMEDY)
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version != VERSION:
        text = f"is {version}, supported is {VERSION}; use the release that wrote the file, or {REMEDY}"
        raise ConfigError(f"{name}: version: {text}")
    try:
        found = msgspec.convert(data, SavedFabric)
    except msgspec.ValidationError as error:
        steps, text = explain(error, data, SavedFabric)
        raise ConfigError(f"{name}: {dotted(steps)}{text}; {REMEDY}") from None
    for text in _contradictions(found):
        raise ConfigError(f"{name}: {text}; {REMEDY}")
    return found


def _end(end: LinkEnd) -> SavedEnd:
    return SavedEnd(format_guid(end.guid), end.port)


def _node(result: SweepResult, node: IbNode, role: str) -> SavedNode:
    host, device = node.host_and_device
    return SavedNode(
        format_guid(node.guid),
        node.kind,
        clean_label(node.name),
        clean_label(host),
        clean_label(device),
        role,
        format_guid(node.info.system_guid),
        tuple(_ports(result, node)),
    )


def _ports(result: SweepResult, node: IbNode) -> Iterator[SavedPort]:
    """Return all external ports of a switch, and the ports of other nodes that are in this subnet."""
    fabric = result.fabric
    for number, port in sorted(node.ports.items()):
        end = LinkEnd(node.guid, number)
        if number == 0 or not fabric.contains(end):
            continue
        problem = fabric.unanswered.get(end)
        counts = result.counts.get(end)
        errors = _errors(counts)
        yield SavedPort(
            number,
            STATES.get(port.state, ""),
            node.lid(number),
            None if problem is None else problem.value,
            errors,
            () if counts is None or counts.has_extended_errors else _saturated(errors),
        )


def _errors(counts: PortCounts | None) -> Errors | None:
    """Return the error counters above 0; None where counters were not read."""
    if counts is None or counts.errors is None:
        return None
    return {
        name: value
        for name, value in zip(ERROR_COUNTERS, counts.errors, strict=True)
        if value and name not in NOT_ERRORS
    }


def _saturated(errors: Errors | None) -> tuple[str, ...]:
    return tuple(name for name, value in (errors or {}).items() if value == (1 << ERROR_COUNTER_BITS[name]) - 1)


def _link(result: SweepResult, one: LinkEnd, other: LinkEnd) -> SavedLink:
    fabric = result.fabric
    ports = [port for port in (fabric.port(one), fabric.port(other)) if port is not None]
    state = min((port.state for port in ports), default=0)
    link = ports[0] if ports else None
    now = link_speed(link.generation, link.lanes) if link is not None and state >= ACTIVE else None
    generation, lanes = fabric.common_capability(one)
    expected = fabric.expected_speed(one)
    errors = {f"{format_guid(end.guid)}:{end.port}": _errors(result.counts.get(end)) for end in (one, other)}
    known = {port_id: found for port_id, found in errors.items() if found is not None}
    return SavedLink(
        (_end(one), _end(other)),
        STATES.get(state, ""),
        _width(link),
        (link.generation or "") if link is not None else "",
        now,
        f"{lanes}X" if lanes else "",
        generation or "",
        expected,
        None if now is None or expected is None else now < expected,
        {port_id: found for port_id, found in known.items() if found} if known else None,
    )


def _width(port: PortInfo | None) -> str:
    return "" if port is None else format_width(port)


def _contradictions(fabric: SavedFabric) -> Iterator[str]:
    """Return errors of a document whose structure is valid: duplicate GUIDs, and links with invalid ends."""
    guids: set[str] = set()
    for index, node in enumerate(fabric.nodes):
        if node.guid in guids:
            yield f"nodes[{index}].guid: {node.guid} occurs twice"
        guids.add(node.guid)
    linked: set[SavedPortId] = set()
    for number, link in enumerate(fabric.links):
        for index, end in enumerate(link.port_ids):
            at = f"links[{number}].ends[{index}]"
            if end.guid not in guids:
                yield f"{at}.guid: {end.guid} is not in nodes"
            if end in linked:
                yield f"{at}: port {end.port} of {end.guid} is an end of two links"
        linked.update(link.port_ids)


def ports_of(fabric: SavedFabric) -> Mapping[SavedPortId, SavedPort]:
    """Return all ports by key."""
    return {SavedPortId(node.guid, port.port): port for node in fabric.nodes for port in node.ports}
