"""A fabric as a document: what `ib topology --json` writes, and what `ib diff` reads again.

Nodes are sorted by GUID, links by their lower end, each once; so what did not change is the same byte for byte.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from exporter.config.errors import dotted
from exporter.config.yaml_reader import ConfigError
from exporter.core.table import clean_label
from exporter.linux.mad.performance import ERRORS, WIDTHS
from exporter.linux.mad.subnet import (
    ACTIVE,
    ARMED,
    DEFERRED,
    DOWN,
    INIT,
    PortInfo,
    speed,
)
from exporter.sources.ibfabric.counting import Counted
from exporter.sources.ibfabric.model import (
    End,
    Node,
    guid_text,
    width_text,
)
from exporter.sources.ibfabric.sweep import Outcome
from exporter.sources.ibfabric.tables import role

VERSION = 1

MAX_SIZE = 256 * 1024 * 1024
"""Bytes of a file: more than any subnet takes."""

STATES = {DOWN: "down", INIT: "init", ARMED: "armed", ACTIVE: "active", DEFERRED: "active"}

NO_ERROR = frozenset({"transmit_wait"})
"""Of the error counters those that tell of no error: waiting is congestion."""

REMEDY = "save the fabric anew with `fabric-exporter ib topology --json`"

Guid: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
Errors: TypeAlias = dict[str, int]


class Place(NamedTuple):
    """One port, by its node's GUID as text: what places are compared and looked up by."""

    guid: str
    port: int


class SavedEnd(msgspec.Struct, frozen=True):
    """One end of a link."""

    guid: Guid
    port: Number

    @property
    def place(self) -> Place:
        """Give it as what ports are looked up by."""
        return Place(self.guid, self.port)


class SavedPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port; what is left out is not so, or not known.

    Attributes:
        port: Its number.
        state: A value of STATES; empty where it has none of them.
        lid: What it is managed by.
        unanswered: Where the link is up and the node at its other end does not say what it is: why.
        errors: What it counted above 0; None where it told no counters.
        saturated: Of these the counters that cannot go on, so that there may have been more.
    """

    port: Number
    state: str = ""
    lid: int | None = None
    unanswered: str | None = None
    errors: Errors | None = None
    saturated: tuple[str, ...] = ()


class SavedNode(msgspec.Struct, frozen=True):
    """One node; the names are as in the metrics.

    Attributes:
        guid: What it is known by.
        kind: switch, adapter, router, aggregation or unknown.
        name: Its description, else its GUID.
        host: Of an adapter, where its description tells.
        device: Likewise.
        role: Of a switch: leaf, spine or core.
        system_guid: Of the chassis.
        ports: Those of this fabric.
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
        ends: The lower one first.
        state: A value of STATES: of both ends that which is further from active.
        width: Such as `4X`; empty where not known, as what follows.
        generation: Such as `NDR`.
        speed_bytes_per_second: None while the link is not active.
        expected_width: What both ends can do.
        expected_generation: Likewise.
        expected_speed_bytes_per_second: Likewise.
        degraded: Whether it is slower than that; None where one of the two is not known.
        errors: What its ends counted above 0, by `GUID:port`; None where neither told its counters.
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
    def places(self) -> tuple[Place, Place]:
        """Give both ends as what ports are looked up by."""
        return self.ends[0].place, self.ends[1].place


class SavedFabric(msgspec.Struct, frozen=True):
    """All of a fabric.

    Attributes:
        version: Of the form, VERSION.
        subnet: Its prefix and its subnet manager's GUID.
        taken: When.
        origin: The port that it was looked at from.
        nodes: By GUID.
        links: By their lower ends.
    """

    version: int
    subnet: str
    taken: datetime
    origin: SavedEnd | None
    nodes: tuple[SavedNode, ...]
    links: tuple[SavedLink, ...]


def document_of(outcome: Outcome, subnet: str, taken: datetime) -> SavedFabric:
    """Make the document of what a pass gave.

    Args:
        outcome: That.
        subnet: Name of the subnet.
        taken: When, with its time zone.
    """
    fabric = outcome.fabric
    levels = fabric.levels()
    nodes = tuple(_node(outcome, node, role(node, levels)) for _, node in sorted(fabric.nodes.items()))
    links = tuple(_link(outcome, one, other) for one, other in fabric.links())
    origin = None if fabric.origin is None else _end(fabric.origin)
    return SavedFabric(VERSION, subnet, taken.astimezone(UTC).replace(microsecond=0), origin, nodes, links)


def written(what: msgspec.Struct) -> str:
    """Give a document as text, with a line for each value."""
    return msgspec.json.format(msgspec.json.encode(what), indent=2).decode() + "\n"


def parse(raw: bytes, name: str) -> SavedFabric:
    """Read a document.

    Args:
        raw: What stands in the file.
        name: Of the file, for errors.

    Raises:
        ConfigError: It is none.
    """
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}{_line(raw, str(error))}: is no JSON: {error}; {REMEDY}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version != VERSION:
        text = f"is {version}, and {VERSION} is what is read here; read it with what wrote it, or {REMEDY}"
        raise ConfigError(f"{name}: version: {text}")
    try:
        found = msgspec.convert(data, SavedFabric)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `")
        steps = _steps(at)
        text = text[0].lower() + text[1:].replace("`", "")
        raise ConfigError(f"{name}: {dotted(steps)}{text}{_shown(data, steps)}; {REMEDY}") from None
    for text in _contradictions(found):
        raise ConfigError(f"{name}: {text}; {REMEDY}")
    return found


def _end(end: End) -> SavedEnd:
    return SavedEnd(guid_text(end.guid), end.port)


def _node(outcome: Outcome, node: Node, its_role: str) -> SavedNode:
    host, device = node.host_and_device
    return SavedNode(
        guid_text(node.guid),
        node.kind,
        clean_label(node.name),
        clean_label(host),
        clean_label(device),
        its_role,
        guid_text(node.info.system_guid),
        tuple(_ports(outcome, node)),
    )


def _ports(outcome: Outcome, node: Node) -> Iterator[SavedPort]:
    """Give all physical ports of a switch, and of others those that are of this fabric."""
    fabric = outcome.fabric
    for number, port in sorted(node.ports.items()):
        end = End(node.guid, number)
        if number == 0 or not fabric.has(end):
            continue
        problem = fabric.unanswered.get(end)
        counted = outcome.counted.get(end)
        errors = _errors(counted)
        yield SavedPort(
            number,
            STATES.get(port.state, ""),
            node.lid(number),
            None if problem is None else problem.value,
            errors,
            () if counted is None or counted.wide else _saturated(errors),
        )


def _errors(counted: Counted | None) -> Errors | None:
    """Give what a port counted above 0; None where it did not tell."""
    if counted is None or counted.errors is None:
        return None
    return {name: value for name, value in zip(ERRORS, counted.errors, strict=True) if value and name not in NO_ERROR}


def _saturated(errors: Errors | None) -> tuple[str, ...]:
    return tuple(name for name, value in (errors or {}).items() if value == (1 << WIDTHS[name]) - 1)


def _link(outcome: Outcome, one: End, other: End) -> SavedLink:
    fabric = outcome.fabric
    ports = [port for port in (fabric.port(one), fabric.port(other)) if port is not None]
    state = min((port.state for port in ports), default=0)
    link = ports[0] if ports else None
    now = speed(link.generation, link.lanes) if link is not None and state >= ACTIVE else None
    generation, lanes = fabric.best(one)
    expected = fabric.expected_speed(one)
    errors = {f"{guid_text(end.guid)}:{end.port}": _errors(outcome.counted.get(end)) for end in (one, other)}
    told = {place: found for place, found in errors.items() if found is not None}
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
        {place: found for place, found in told.items() if found} if told else None,
    )


def _width(port: PortInfo | None) -> str:
    return "" if port is None else width_text(port)


def _line(raw: bytes, text: str) -> str:
    """Give the line of the byte that an error names, if it names one."""
    found = re.search(r"\(byte (\d+)\)|position (\d+)", text)
    if not found:
        return ""
    line = raw.count(b"\n", 0, int(found[1] or found[2])) + 1
    return f":{line}"


def _steps(at: str) -> list[str | int]:
    """Split msgspec's `$.nodes[3].ports[...].port`, as far as it is told."""
    steps: list[str | int] = []
    for index, key in re.findall(r"\[(\d+|\.\.\.)\]|\.([^.\[`]+)", at):
        if index == "...":
            break
        steps.append(int(index) if index else key)
    return steps


def _shown(data: object, steps: list[str | int]) -> str:
    """Show what stands at a place, where that is a plain value."""
    with suppress(KeyError, IndexError, TypeError):
        for step in steps:
            data = data[step]  # type: ignore[index]  # what is no container is caught
        if data is None or isinstance(data, str | int | float):
            text = ascii(data)
            return f", and this is {text if len(text) <= 60 else text[:57] + '...'}"
    return ""


def _contradictions(fabric: SavedFabric) -> Iterator[str]:
    """Find what cannot be of any fabric."""
    seen: set[str] = set()
    for place, node in enumerate(fabric.nodes):
        if node.guid in seen:
            yield f"nodes[{place}].guid: {node.guid} stands there twice"
        seen.add(node.guid)
    linked: set[Place] = set()
    for number, link in enumerate(fabric.links):
        for place, end in enumerate(link.places):
            at = f"links[{number}].ends[{place}]"
            if end.guid not in seen:
                yield f"{at}.guid: {end.guid} is none of the nodes"
            if end in linked:
                yield f"{at}: port {end.port} of {end.guid} is an end of two links"
        linked.update(link.places)


def ports_of(fabric: SavedFabric) -> Mapping[Place, SavedPort]:
    """Give all ports by place."""
    return {Place(node.guid, port.port): port for node in fabric.nodes for port in node.ports}
