"""Rendering of saved topologies and their differences: as a text tree, and as a Graphviz graph.

Each link is listed once, at its lower end: below a leaf its hosts and uplinks, below a spine its uplinks. Names come
from the network and are escaped.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from exporter.sources.ibfabric.saved_topology import (
    SavedEnd,
    SavedFabric,
    SavedLink,
    SavedNode,
    SavedPort,
    SavedPortId,
    ports_of,
)
from exporter.sources.ibfabric.topology_diff import (
    ADAPTER_LEVEL,
    LinkRate,
    LinkRateChange,
    NamedEnd,
    TopologyDiff,
    node_level,
)

RED, YELLOW, GREEN, DIM, BOLD, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[1m", "\x1b[0m"

LEVEL_TITLES = MappingProxyType({ADAPTER_LEVEL: "adapters", 0: "leaves", 1: "spines", 2: "core", 3: "switches"})
"""Titles of the nodes of a level."""

HEADINGS = ("hosts", "others", "peers", "uplinks")
"""Headings of the links of a node, in the order of the tree."""

SHAPES = MappingProxyType({"switch": "box", "adapter": "ellipse"})


def escape(text: str) -> str:
    """Escape characters that are not printable, such as terminal control sequences."""
    return "".join(one if one.isprintable() else _escape_code(ord(one)) for one in text)


def _escape_code(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def colouriser(*, colours: bool) -> Callable[[str, str], str]:
    """Return a function that wraps text in a colour's escape sequence; without colours it returns the text."""
    return (lambda colour, text: f"{colour}{text}{PLAIN}") if colours else (lambda _, text: text)


def format_speed(bytes_per_second: float | None) -> str:
    """Return a link's speed in Gb/s, such as `400 Gb/s`; empty where it is not known."""
    return "" if bytes_per_second is None else f"{bytes_per_second * 8 / 1e9:g} Gb/s"


@dataclass(frozen=True, slots=True)
class _LinkSide:
    """A link as seen from one of its nodes."""

    here: SavedEnd
    there: SavedEnd
    link: SavedLink


class _Renderer:
    """A saved topology with its indexes."""

    def __init__(self, fabric: SavedFabric, *, colours: bool) -> None:
        self.paint = colouriser(colours=colours)
        self.nodes = {node.guid: node for node in fabric.nodes}
        self.ports: Mapping[SavedPortId, SavedPort] = ports_of(fabric)
        self.sides: dict[str, list[_LinkSide]] = {}
        for link in fabric.links:
            one, other = link.ends
            self.sides.setdefault(one.guid, []).append(_LinkSide(one, other, link))
            if one != other:
                self.sides.setdefault(other.guid, []).append(_LinkSide(other, one, link))

    def levels(self, side: _LinkSide) -> tuple[int, int]:
        """Return the levels of both ends."""
        return node_level(self.nodes[side.here.guid]), node_level(self.nodes[side.there.guid])

    def is_listed_here(self, side: _LinkSide) -> bool:
        """Return whether a link is listed at this end: the switch of a switch and an adapter, else the lower end."""
        here, there = self.levels(side)
        if (here == ADAPTER_LEVEL) != (there == ADAPTER_LEVEL):
            return here != ADAPTER_LEVEL
        return (here, side.here.port_id) <= (there, side.there.port_id)

    def heading(self, side: _LinkSide) -> str:
        """Return the heading for a link at this end."""
        here, there = self.levels(side)
        if there == ADAPTER_LEVEL:
            return "hosts" if self.nodes[side.there.guid].kind == "adapter" else "others"
        return "uplinks" if here < there else "peers"

    def name(self, end: SavedEnd) -> str:
        """Return the name of a port."""
        return f"{escape(self.nodes[end.guid].name)} port {end.port}"

    def errors(self, end: SavedEnd, link: SavedLink) -> str:
        """Return the error counters of one end of a link as text."""
        port = self.ports.get(end.port_id)
        saturated = () if port is None else port.saturated
        return _counters((link.errors or {}).get(f"{end.guid}:{end.port}", {}), saturated)


def _counters(errors: Mapping[str, int], saturated: Sequence[str]) -> str:
    return ", ".join(
        f"{escape(name)}={value}" + (" (saturated)" if name in saturated else "") for name, value in errors.items()
    )


def render_tree(fabric: SavedFabric, *, colours: bool = False) -> Iterator[str]:
    """Render a topology as the lines of a tree: leaves with their hosts and uplinks, spines, and a summary.

    Args:
        fabric: The topology.
        colours: Whether to use the colours of a terminal.
    """
    renderer = _Renderer(fabric, colours=colours)
    origin = "" if fabric.origin is None else f", read from {_origin(renderer, fabric.origin)}"
    yield f"fabric {escape(fabric.subnet)}{origin}, {fabric.taken:%Y-%m-%d %H:%M:%S} UTC"
    for node in sorted(fabric.nodes, key=_node_sort_key):
        block = list(_render_node(renderer, node))
        if block or node.kind == "switch" or not renderer.sides.get(node.guid):
            yield ""
            yield f"{node.role or escape(node.kind)} {renderer.paint(BOLD, escape(node.name))} ({node.guid})"
            yield from block
    yield ""
    yield summary(fabric)


def _node_sort_key(node: SavedNode) -> tuple[bool, int, list[tuple[int, str]], str]:
    """Return the sort key of nodes: switches by level, then by name with numbers in order, `leaf2` before `leaf10`."""
    parts = re.split(r"([0-9]+)", node.name)
    numbers = (len(part.lstrip("0")) if part.isdecimal() else 0 for part in parts)
    key = [(number, part.lstrip("0") if number else part) for number, part in zip(numbers, parts, strict=True)]
    return node_level(node) == ADAPTER_LEVEL, node_level(node), key, node.guid


def _origin(renderer: _Renderer, end: SavedEnd) -> str:
    return renderer.name(end) if end.guid in renderer.nodes else f"{end.guid} port {end.port}"


def _render_node(renderer: _Renderer, node: SavedNode) -> Iterator[str]:
    """Render the lines below a node."""
    sections: dict[str, list[_LinkSide]] = {}
    elsewhere: list[SavedLink] = []
    for side in renderer.sides.get(node.guid, []):
        if renderer.is_listed_here(side):
            sections.setdefault(renderer.heading(side), []).append(side)
        else:
            elsewhere.append(side.link)
    for heading in HEADINGS:
        found = sorted(sections.get(heading, []), key=lambda side: side.here.port)
        width = max((len(renderer.name(side.there)) for side in found), default=0)
        if found:
            yield f"  {heading}"
        yield from (_render_link(renderer, side, width) for side in found)
    if elsewhere and node.kind == "switch":
        yield f"  listed at their lower ends: {_plural(len(elsewhere), 'link')}{_count_marks(elsewhere)}"
    yield from _render_unlinked_ports(renderer, node)


def _render_unlinked_ports(renderer: _Renderer, node: SavedNode) -> Iterator[str]:
    """Render the lines of the ports of a node without a link or with an unknown peer."""
    linked = {side.here.port for side in renderer.sides.get(node.guid, [])}
    free = [port for port in node.ports if port.port not in linked]
    for port in free:
        if port.unanswered is not None:
            text = f"the link is up, its peer does not respond ({escape(port.unanswered)})"
            errors = _counters(port.errors or {}, port.saturated)
            mark = renderer.paint(RED, text + (f"; errors here: {errors}" if errors else ""))
            yield f"  {port.port:>4}  {mark}"
    states: dict[str, list[int]] = {}
    for port in free:
        if port.unanswered is None:
            states.setdefault(port.state, []).append(port.port)
    for state, numbers in sorted(states.items()):
        yield renderer.paint(DIM, f"  {escape(state) or 'unknown'}: {format_ranges(numbers)}")


def _render_link(renderer: _Renderer, side: _LinkSide, width: int) -> str:
    """Render the line of a link."""
    link = side.link
    parts = [link.width, link.generation, format_speed(link.speed_bytes_per_second)]
    line = (
        f"  {side.here.port:>4}  {renderer.name(side.there):<{width}}  {escape(' '.join(filter(None, parts)))}".rstrip()
    )
    marks = []
    if link.state != "active":
        marks.append(renderer.paint(RED, escape(link.state) or "state unknown"))
    if link.degraded:
        marks.append(renderer.paint(YELLOW, f"degraded (supports {_expected(link)})"))
    for word, end in (("here", side.here), ("there", side.there)):
        errors = renderer.errors(end, link)
        if errors:
            marks.append(renderer.paint(RED, f"errors {word}: {errors}"))
    return "  ".join([line, *marks])


def _expected(link: SavedLink) -> str:
    parts = (link.expected_width, link.expected_generation, format_speed(link.expected_speed_bytes_per_second))
    return escape(" ".join(filter(None, parts)))


def has_errors(link: SavedLink) -> bool:
    """Return whether an error counter at one of the link's ends is above 0."""
    return any((link.errors or {}).values())


def _count_marks(links: Iterable[SavedLink]) -> str:
    """Return the numbers of degraded, erroneous and inactive links as text."""
    found = list(links)
    counts = {
        "degraded": sum(link.degraded is True for link in found),
        "with errors": sum(map(has_errors, found)),
        "not active": sum(link.state != "active" for link in found),
    }
    return "".join(f", {count} {word}" for word, count in counts.items() if count)


def format_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as ranges: `1, 4-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def summary(fabric: SavedFabric) -> str:
    """Return the numbers of nodes and links in one line."""
    links = fabric.links
    kinds = [node.kind for node in fabric.nodes]
    unanswered = sum(port.unanswered is not None for node in fabric.nodes for port in node.ports)
    not_active = sum(link.state != "active" for link in links)
    has_counters = not links or any(link.errors is not None for link in links)
    parts = [
        _plural(kinds.count("switch"), "switch", "es"),
        _plural(kinds.count("adapter"), "adapter"),
        *([_plural(kinds.count("aggregation"), "aggregation node")] if "aggregation" in kinds else []),
        _plural(len(links), "link"),
        f"{sum(link.degraded is True for link in links)} degraded",
        f"{sum(map(has_errors, links))} with errors" if has_counters else "errors not known",
        *([f"{not_active} not active"] if not_active else []),
        *([f"{unanswered} unanswered"] if unanswered else []),
    ]
    return ", ".join(parts)


def _plural(count: int, word: str, plural: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else plural}"


# --- Graphviz


def quote_dot(text: str) -> str:
    r"""Return text as a quoted string of Graphviz, with `\`, `&` and `"` escaped."""
    text = escape(text).replace("\\", "\\\\").replace("&", "&amp;").replace('"', '\\"')
    return f'"{text}"'


def render_dot(fabric: SavedFabric) -> Iterator[str]:
    """Render a topology as the lines of a Graphviz graph: a cluster and a rank per level, coloured problem links."""
    nodes = {node.guid: node for node in fabric.nodes}
    yield "graph fabric {"
    yield f"  graph [label={quote_dot(summary(fabric))}, rankdir=BT, newrank=true];"
    yield '  node [fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=9];'
    for level, title in LEVEL_TITLES.items():
        members = [node for node in fabric.nodes if node_level(node) == level]
        if members:
            yield f"  subgraph cluster_{level - ADAPTER_LEVEL} {{"
            yield f"    graph [label={quote_dot(title)}, rank=same, color=gray];"
            for node in members:
                shape = SHAPES.get(node.kind, "diamond")
                yield f"    {quote_dot(node.guid)} [label={quote_dot(node.name)}, shape={shape}];"
            yield "  }"
    for link in fabric.links:
        low, high = sorted(link.ends, key=lambda end: (node_level(nodes[end.guid]), end.port_id))
        yield f"  {quote_dot(low.guid)} -- {quote_dot(high.guid)} [{_edge_attributes(low, high, link)}];"
    for node in fabric.nodes:
        for port in node.ports:
            if port.unanswered is not None:
                name = quote_dot(f"{node.guid}:{port.port}")
                yield f'  {name} [label="?", shape=plaintext, fontcolor=red];'
                yield f'  {quote_dot(node.guid)} -- {name} [taillabel="{port.port}", color=red, style=dashed];'
    yield "}"


def _edge_attributes(low: SavedEnd, high: SavedEnd, link: SavedLink) -> str:
    """Return the attributes of an edge: red for errors, orange for a degraded link."""
    colours = (["red"] if has_errors(link) else []) + (["orange"] if link.degraded else [])
    text = " ".join(filter(None, (link.width, link.generation)))
    found = [f'taillabel="{low.port}"', f'headlabel="{high.port}"', f"label={quote_dot(text)}"]
    if link.state != "active":
        found += ["style=dashed", "color=gray"]
    elif colours:
        found.append(f'color="{":".join(colours)}"')
    return ", ".join(found)


# --- differences


def render_diff(found: TopologyDiff, *, colours: bool = False) -> Iterator[str]:
    """Render differences, one line each.

    Args:
        found: The differences.
        colours: Whether to use the colours of a terminal.
    """
    paint = colouriser(colours=colours)
    for word, what in (("before", found.before), ("after", found.after)):
        yield f"{word + ':':<8}{escape(what.subnet)}, {what.taken:%Y-%m-%d %H:%M:%S} UTC"
    for node in found.missing_nodes:
        yield paint(RED, f"missing {escape(node.kind)} {escape(node.name)} ({node.guid})")
    for node in found.new_nodes:
        yield paint(GREEN, f"new {escape(node.kind)} {escape(node.name)} ({node.guid})")
    for name in found.renamed_nodes:
        yield paint(YELLOW, f"renamed {name.guid}: was {escape(name.before)}, is {escape(name.after)}")
    for moved in found.moved:
        yield paint(YELLOW, f"moved {_at(moved.end)}: was at {_at(moved.before)}, is at {_at(moved.after)}")
    for link in found.missing_links:
        states = [
            f"{_at(end)} is {escape(state)}" for end, state in zip(link.ends, link.now or (), strict=True) if state
        ]
        yield paint(RED, f"missing link {_between(link.ends)}" + (f": {', '.join(states)}" if states else ""))
    for link in found.new_links:
        yield paint(GREEN, f"new link {_between(link.ends)}")
    for word, colour, changes in (("slower", RED, found.slower), ("faster", GREEN, found.faster)):
        yield from (paint(colour, f"{word} {_rate_change(change)}") for change in changes)
    yield _plural(found.count, "difference") if found.count else "no difference"


def _at(end: NamedEnd) -> str:
    return f"{escape(end.name)} port {end.port}"


def _between(ends: tuple[NamedEnd, NamedEnd]) -> str:
    return f"{_at(ends[0])} -- {_at(ends[1])}"


def _rate_change(change: LinkRateChange) -> str:
    return f"link {_between(change.ends)}: was {_rate(change.before)}, is {_rate(change.after)}"


def _rate(rate: LinkRate) -> str:
    words = (
        rate.width,
        rate.generation,
        format_speed(rate.speed_bytes_per_second),
        "" if rate.state == "active" else rate.state,
    )
    return escape(" ".join(filter(None, words))) or "not known"
