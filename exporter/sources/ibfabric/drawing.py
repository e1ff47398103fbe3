"""A document of a fabric for eyes: as a tree of text, and as a graph for Graphviz. Names are of the network.

Each link stands once, at its lower end: below a leaf its hosts and its uplinks, below a spine what is above that.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.sources.ibfabric.difference import (
    ADAPTER,
    Difference,
    NamedEnd,
    Pace,
    PaceChange,
    height,
)
from exporter.sources.ibfabric.document import (
    Place,
    SavedEnd,
    SavedFabric,
    SavedLink,
    SavedNode,
    SavedPort,
    ports_of,
)

RED, YELLOW, GREEN, DIM, BOLD, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[1m", "\x1b[0m"

LEVELS = {ADAPTER: "adapters", 0: "leaves", 1: "spines", 2: "core", 3: "switches"}
"""What nodes of a height are called together."""

HEADINGS = ("hosts", "others", "peers", "uplinks")
"""What links of a node stand below, in this order."""

SHAPES = {"switch": "box", "adapter": "ellipse"}


def shown(text: str) -> str:
    """Show a name as it is, but for what a terminal would take as a command, or would not show."""
    return "".join(one if one.isprintable() else _escaped(ord(one)) for one in text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def painter(*, colours: bool) -> Callable[[str, str], str]:
    """Give what puts text into a colour, or leaves it as it is."""
    return (lambda colour, text: f"{colour}{text}{PLAIN}") if colours else (lambda _, text: text)


def rate(bytes_per_second: float | None) -> str:
    """Give a link's speed as its makers do; empty where it is not known."""
    return "" if bytes_per_second is None else f"{bytes_per_second * 8 / 1e9:g} Gb/s"


@dataclass(frozen=True, slots=True)
class _Side:
    """A link as one of its nodes has it."""

    here: SavedEnd
    there: SavedEnd
    link: SavedLink


class _Drawing:
    """A document with what is looked up in it."""

    def __init__(self, fabric: SavedFabric, *, colours: bool) -> None:
        self.paint = painter(colours=colours)
        self.nodes = {node.guid: node for node in fabric.nodes}
        self.ports: Mapping[Place, SavedPort] = ports_of(fabric)
        self.sides: dict[str, list[_Side]] = {}
        for link in fabric.links:
            one, other = link.ends
            self.sides.setdefault(one.guid, []).append(_Side(one, other, link))
            if one != other:
                self.sides.setdefault(other.guid, []).append(_Side(other, one, link))

    def heights(self, side: _Side) -> tuple[int, int]:
        """Give how far up both ends are."""
        return height(self.nodes[side.here.guid]), height(self.nodes[side.there.guid])

    def stands_here(self, side: _Side) -> bool:
        """Tell whether a link stands at this end: at the lower one of switches, and with a switch rather than not."""
        here, there = self.heights(side)
        if (here == ADAPTER) != (there == ADAPTER):
            return here != ADAPTER
        return (here, side.here.place) <= (there, side.there.place)

    def heading(self, side: _Side) -> str:
        """Say below what a link stands at this end."""
        here, there = self.heights(side)
        if there == ADAPTER:
            return "hosts" if self.nodes[side.there.guid].kind == "adapter" else "others"
        return "uplinks" if here < there else "peers"

    def name(self, end: SavedEnd) -> str:
        """Name a port."""
        return f"{shown(self.nodes[end.guid].name)} port {end.port}"

    def errors(self, end: SavedEnd, link: SavedLink) -> str:
        """List what a port of a link counted."""
        port = self.ports.get(end.place)
        saturated = () if port is None else port.saturated
        return _counters((link.errors or {}).get(f"{end.guid}:{end.port}", {}), saturated)


def _counters(errors: Mapping[str, int], saturated: Sequence[str]) -> str:
    return ", ".join(
        f"{shown(name)}={value}" + (" (saturated)" if name in saturated else "") for name, value in errors.items()
    )


def tree(fabric: SavedFabric, *, colours: bool = False) -> Iterator[str]:
    """Give the lines of a fabric's tree: leaves with their hosts and uplinks, spines, and a summary.

    Args:
        fabric: What to show.
        colours: Whether for a terminal.
    """
    drawing = _Drawing(fabric, colours=colours)
    origin = "" if fabric.origin is None else f", seen from {_origin(drawing, fabric.origin)}"
    yield f"fabric {shown(fabric.subnet)}{origin}, {fabric.taken:%Y-%m-%d %H:%M:%S} UTC"
    for node in sorted(fabric.nodes, key=_order):
        block = list(_block(drawing, node))
        if block or node.kind == "switch" or not drawing.sides.get(node.guid):
            yield ""
            yield f"{node.role or shown(node.kind)} {drawing.paint(BOLD, shown(node.name))} ({node.guid})"
            yield from block
    yield ""
    yield summary(fabric)


def _order(node: SavedNode) -> tuple[bool, int, list[tuple[int, str]], str]:
    """Give what nodes are sorted by: switches from the leaves on upwards, and by name, `leaf2` before `leaf10`."""
    parts = re.split(r"([0-9]+)", node.name)
    numbers = (len(part.lstrip("0")) if part.isdecimal() else 0 for part in parts)
    key = [(number, part.lstrip("0") if number else part) for number, part in zip(numbers, parts, strict=True)]
    return height(node) == ADAPTER, height(node), key, node.guid


def _origin(drawing: _Drawing, end: SavedEnd) -> str:
    return drawing.name(end) if end.guid in drawing.nodes else f"{end.guid} port {end.port}"


def _block(drawing: _Drawing, node: SavedNode) -> Iterator[str]:
    """Give the lines below a node."""
    sections: dict[str, list[_Side]] = {}
    elsewhere: list[SavedLink] = []
    for side in drawing.sides.get(node.guid, []):
        if drawing.stands_here(side):
            sections.setdefault(drawing.heading(side), []).append(side)
        else:
            elsewhere.append(side.link)
    for heading in HEADINGS:
        found = sorted(sections.get(heading, []), key=lambda side: side.here.port)
        width = max((len(drawing.name(side.there)) for side in found), default=0)
        if found:
            yield f"  {heading}"
        yield from (_line(drawing, side, width) for side in found)
    if elsewhere and node.kind == "switch":
        yield f"  listed at their lower ends: {_many(len(elsewhere), 'link')}{_marks(elsewhere)}"
    yield from _without_link(drawing, node)


def _without_link(drawing: _Drawing, node: SavedNode) -> Iterator[str]:
    """Give the lines of the ports of a node that have no link, or one to nobody known."""
    linked = {side.here.port for side in drawing.sides.get(node.guid, [])}
    free = [port for port in node.ports if port.port not in linked]
    for port in free:
        if port.unanswered is not None:
            text = f"the link is up, its peer does not say what it is ({shown(port.unanswered)})"
            errors = _counters(port.errors or {}, port.saturated)
            mark = drawing.paint(RED, text + (f"; errors here: {errors}" if errors else ""))
            yield f"  {port.port:>4}  {mark}"
    states: dict[str, list[int]] = {}
    for port in free:
        if port.unanswered is None:
            states.setdefault(port.state, []).append(port.port)
    for state, numbers in sorted(states.items()):
        yield drawing.paint(DIM, f"  {shown(state) or 'unknown'}: {spans(numbers)}")


def _line(drawing: _Drawing, side: _Side, width: int) -> str:
    """Give the line of a link."""
    link = side.link
    parts = [link.width, link.generation, rate(link.speed_bytes_per_second)]
    line = (
        f"  {side.here.port:>4}  {drawing.name(side.there):<{width}}  {shown(' '.join(filter(None, parts)))}".rstrip()
    )
    marks = []
    if link.state != "active":
        marks.append(drawing.paint(RED, shown(link.state) or "state unknown"))
    if link.degraded:
        marks.append(drawing.paint(YELLOW, f"degraded (could be {_best(link)})"))
    for word, end in (("here", side.here), ("there", side.there)):
        errors = drawing.errors(end, link)
        if errors:
            marks.append(drawing.paint(RED, f"errors {word}: {errors}"))
    return "  ".join([line, *marks])


def _best(link: SavedLink) -> str:
    parts = (link.expected_width, link.expected_generation, rate(link.expected_speed_bytes_per_second))
    return shown(" ".join(filter(None, parts)))


def is_erring(link: SavedLink) -> bool:
    """Tell whether one of a link's ends counted errors."""
    return any((link.errors or {}).values())


def _marks(links: Iterable[SavedLink]) -> str:
    """Say how many links are to be marked."""
    found = list(links)
    counts = {
        "degraded": sum(link.degraded is True for link in found),
        "erring": sum(map(is_erring, found)),
        "not active": sum(link.state != "active" for link in found),
    }
    return "".join(f", {count} {word}" for word, count in counts.items() if count)


def spans(numbers: Sequence[int]) -> str:
    """Write sorted numbers shortly: `1, 4-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def summary(fabric: SavedFabric) -> str:
    """Say in a line what there is, and how well it is."""
    links = fabric.links
    kinds = [node.kind for node in fabric.nodes]
    unanswered = sum(port.unanswered is not None for node in fabric.nodes for port in node.ports)
    not_active = sum(link.state != "active" for link in links)
    asked = not links or any(link.errors is not None for link in links)
    parts = [
        _many(kinds.count("switch"), "switch", "es"),
        _many(kinds.count("adapter"), "adapter"),
        *([_many(kinds.count("aggregation"), "aggregation node")] if "aggregation" in kinds else []),
        _many(len(links), "link"),
        f"{sum(link.degraded is True for link in links)} degraded",
        f"{sum(map(is_erring, links))} erring" if asked else "errors not known",
        *([f"{not_active} not active"] if not_active else []),
        *([f"{unanswered} unanswered"] if unanswered else []),
    ]
    return ", ".join(parts)


def _many(count: int, word: str, plural: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else plural}"


# --- Graphviz


def quoted(text: str) -> str:
    r"""Write any text as a string of Graphviz: it reads `\N` and `&amp;` in labels, and `"` ends them."""
    text = shown(text).replace("\\", "\\\\").replace("&", "&amp;").replace('"', '\\"')
    return f'"{text}"'


def graph(fabric: SavedFabric) -> Iterator[str]:
    """Give the lines of a graph for Graphviz: a cluster and a rank for each level, colours for what is wrong."""
    nodes = {node.guid: node for node in fabric.nodes}
    yield "graph fabric {"
    yield f"  graph [label={quoted(summary(fabric))}, rankdir=BT, newrank=true];"
    yield '  node [fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=9];'
    for level, title in LEVELS.items():
        members = [node for node in fabric.nodes if height(node) == level]
        if members:
            yield f"  subgraph cluster_{level - ADAPTER} {{"
            yield f"    graph [label={quoted(title)}, rank=same, color=gray];"
            for node in members:
                yield f"    {quoted(node.guid)} [label={quoted(node.name)}, shape={SHAPES.get(node.kind, 'diamond')}];"
            yield "  }"
    for link in fabric.links:
        low, high = sorted(link.ends, key=lambda end: (height(nodes[end.guid]), end.place))
        yield f"  {quoted(low.guid)} -- {quoted(high.guid)} [{_edge(low, high, link)}];"
    for node in fabric.nodes:
        for port in node.ports:
            if port.unanswered is not None:
                name = quoted(f"{node.guid}:{port.port}")
                yield f'  {name} [label="?", shape=plaintext, fontcolor=red];'
                yield f'  {quoted(node.guid)} -- {name} [taillabel="{port.port}", color=red, style=dashed];'
    yield "}"


def _edge(low: SavedEnd, high: SavedEnd, link: SavedLink) -> str:
    """Give the attributes of a link's line: red for errors, orange where it is slower than it could be."""
    colours = (["red"] if is_erring(link) else []) + (["orange"] if link.degraded else [])
    text = " ".join(filter(None, (link.width, link.generation)))
    found = [f'taillabel="{low.port}"', f'headlabel="{high.port}"', f"label={quoted(text)}"]
    if link.state != "active":
        found += ["style=dashed", "color=gray"]
    elif colours:
        found.append(f'color="{":".join(colours)}"')
    return ", ".join(found)


# --- differences


def differences(found: Difference, *, colours: bool = False) -> Iterator[str]:
    """Give the lines of what differs.

    Args:
        found: That.
        colours: Whether for a terminal.
    """
    paint = painter(colours=colours)
    for word, what in (("before", found.before), ("after", found.after)):
        yield f"{word + ':':<8}{shown(what.subnet)}, {what.taken:%Y-%m-%d %H:%M:%S} UTC"
    for node in found.missing_nodes:
        yield paint(RED, f"missing {shown(node.kind)} {shown(node.name)} ({node.guid})")
    for node in found.new_nodes:
        yield paint(GREEN, f"new {shown(node.kind)} {shown(node.name)} ({node.guid})")
    for name in found.renamed_nodes:
        yield paint(YELLOW, f"renamed {name.guid}: was {shown(name.before)}, is {shown(name.after)}")
    for moved in found.moved:
        yield paint(YELLOW, f"moved {_at(moved.end)}: was at {_at(moved.before)}, is at {_at(moved.after)}")
    for link in found.missing_links:
        states = [
            f"{_at(end)} is {shown(state)}" for end, state in zip(link.ends, link.now or (), strict=True) if state
        ]
        yield paint(RED, f"missing link {_between(link.ends)}" + (f": {', '.join(states)}" if states else ""))
    for link in found.new_links:
        yield paint(GREEN, f"new link {_between(link.ends)}")
    for word, colour, changes in (("slower", RED, found.slower), ("faster", GREEN, found.faster)):
        yield from (paint(colour, f"{word} {_pace_change(change)}") for change in changes)
    yield _many(found.count, "difference") if found.count else "no difference"


def _at(end: NamedEnd) -> str:
    return f"{shown(end.name)} port {end.port}"


def _between(ends: tuple[NamedEnd, NamedEnd]) -> str:
    return f"{_at(ends[0])} -- {_at(ends[1])}"


def _pace_change(change: PaceChange) -> str:
    return f"link {_between(change.ends)}: was {_pace(change.before)}, is {_pace(change.after)}"


def _pace(pace: Pace) -> str:
    words = (
        pace.width,
        pace.generation,
        rate(pace.speed_bytes_per_second),
        "" if pace.state == "active" else pace.state,
    )
    return shown(" ".join(filter(None, words))) or "not known"
