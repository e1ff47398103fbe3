"""Comparison of units (nodes, pairs, files) with the median of their group, and of nodes over all of their pairs.

A slow pair convicts neither of its ends. A node is convicted by its best result of two pairs or more, if one of these
had a partner that is fast elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from exporter.meaning.benchmarks.groups import ENOUGH, FEW
from exporter.meaning.benchmarks.results import Finding, Group, Point, Run, Tool, Unit, Verdict, counted

LATENCY_WARN, LATENCY_FAIL = 1 / 1.5, 1 / 2
"""Median over latency below which a pair is a warning, and fails. Each switch on a path adds to its latency."""


class Levels(NamedTuple):
    """Shares of the median below which a result is a warning, and below which it fails."""

    warn: float
    fail: float


class Share(NamedTuple):
    """The lowest share of the median that a unit reaches, and where."""

    share: float
    point: Point


@dataclass(slots=True)
class Comparison:
    """A group with its medians.

    Attributes:
        group: The group.
        levels: Shares of the median that are demanded.
        medians: By point.
        shares: Of each unit.
        best: The best share of each node over its units.
        units_of: Units of each node.
        convicted: Nodes that are slow in each of their units, also with partners that are fast elsewhere.
        fastest: The node with the best share.
    """

    group: Group
    levels: Levels
    medians: Mapping[Point, float]
    shares: dict[tuple[str, ...], Share] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    units_of: dict[str, list[Unit]] = field(default_factory=dict)
    convicted: frozenset[str] = frozenset()
    fastest: str = ""

    @property
    def name(self) -> str:
        """What results are compared with."""
        return f"median of {counted(len(self.group.units), self.group.what)}"

    def share_of(self, run: Run) -> Share:
        """Return the lowest share of the medians that a run reaches."""
        return min(Share(self.share(run.values[point], point), point) for point in self.medians)

    def share(self, value: float, point: Point) -> float:
        """Return the share of the median that a value is; for latency that of the value that the median is."""
        middle = self.medians[point]
        return middle / value if self.group.kind.tool is Tool.LATENCY else value / middle

    def is_slow(self, share: float) -> bool:
        """Return whether a share is too low."""
        return share < self.levels.warn

    def verdict(self, share: float) -> Verdict:
        """Return the verdict on a share; with few units it is at most a warning."""
        if not self.is_slow(share):
            return Verdict.OK
        return Verdict.FAIL if share < self.levels.fail and len(self.group.units) >= ENOUGH else Verdict.WARN


def levels_of(tool: Tool, threshold: float) -> Levels:
    """Return the shares of the median that are demanded."""
    return Levels(LATENCY_WARN, LATENCY_FAIL) if tool is Tool.LATENCY else Levels(threshold, threshold)


def compare(group: Group, threshold: float) -> Comparison | None:
    """Compare the units of a group; None if they are too few, or have no size in common."""
    points = [point for point in group.points() if len(group.units) >= FEW]
    medians = {point: median(unit.best(point) for unit in group.units.values()) for point in points}
    medians = {point: middle for point, middle in medians.items() if middle > 0}
    if not medians:
        return None
    found = Comparison(group, levels_of(group.kind.tool, threshold), medians)
    for nodes, unit in group.units.items():
        share = min(Share(found.share(unit.best(point), point), point) for point in medians)
        found.shares[nodes] = share
        for node in nodes:
            found.units_of.setdefault(node, []).append(unit)
            found.best[node] = max(share.share, found.best.get(node, 0.0))
    found.fastest = max(found.best, key=found.best.__getitem__)
    found.convicted = frozenset(node for node, units in found.units_of.items() if _is_convicted(found, node, units))
    return found


def _is_convicted(found: Comparison, node: str, units: Sequence[Unit]) -> bool:
    if len(units) < 2 or not found.is_slow(found.best[node]):
        return False
    return any(not any(found.is_slow(found.best[other]) for other in unit.nodes if other != node) for unit in units)


def node_findings(found: Comparison) -> Iterator[Finding]:
    """List the nodes that are convicted by their pairs."""
    for node in sorted(found.convicted):
        units = found.units_of[node]
        best = max(units, key=lambda unit: found.shares[unit.nodes].share)
        share, point = found.shares[best.nodes]
        yield Finding(
            found.verdict(share),
            "node",
            (node,),
            tuple(source for unit in units for source in unit.sources),
            found.group.kind,
            f"slow in all of its {counted(len(units), found.group.what)}, the best one with"
            f" {', '.join(other for other in best.nodes if other != node)}",
            "test it again with a partner that is fast elsewhere; then look at its adapters, cables and PCIe",
            point,
            best.best(point),
            found.medians[point],
            found.name,
        )


def unit_finding(found: Comparison, unit: Unit) -> Finding:
    """Return what the median shows about a unit."""
    share, point = found.shares[unit.nodes]
    verdict = found.verdict(share)
    reason, remedy = _explained(found, unit) if verdict is not Verdict.OK else _not_always(found, unit)
    is_explained = bool(found.convicted.intersection(unit.nodes))
    if (verdict is Verdict.OK and reason) or (verdict is Verdict.FAIL and is_explained):
        verdict = Verdict.WARN
    return Finding(
        verdict,
        "median",
        unit.nodes,
        unit.sources,
        found.group.kind,
        reason,
        remedy,
        point,
        unit.best(point),
        found.medians[point],
        found.name,
    )


def _explained(found: Comparison, unit: Unit) -> tuple[str, str]:
    """Return the reason and the remedy of a slow unit."""
    rule = _rule(found)
    if len(found.group.units) < ENOUGH:
        rule += f"; a median of fewer than {ENOUGH} does not convict"
    if len(unit.nodes) == 1:
        remedy = "run it again; then look at clocks, temperature, ECC and NVLink of its GPUs"
        return rule, remedy if found.group.kind.nodes == 1 else "run it again"
    convicted = [node for node in unit.nodes if node in found.convicted]
    if convicted:
        return f"{rule}; {', '.join(convicted)} is slow with every partner", ""
    suspects = [node for node in unit.nodes if found.is_slow(found.best[node])]
    if not suspects:
        return f"{rule}; all ends are fast elsewhere, so the path between them is suspect", "compare routes and uplinks"
    if len(suspects) == len(unit.nodes):
        return (
            f"{rule}; that convicts none of its ends",
            f"test each with a known-good partner{_partner(found, unit)}",
        )
    return f"{rule}; the other ends are fast elsewhere", f"test {_some(suspects)} with a known-good partner"


def _partner(found: Comparison, unit: Unit) -> str:
    """Return a node that is fast, as a proposal."""
    slow = found.fastest in unit.nodes or found.is_slow(found.best[found.fastest])
    return "" if slow else f", such as {found.fastest}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _rule(found: Comparison) -> str:
    if found.group.kind.tool is Tool.LATENCY:
        return f"more than {1 / found.levels.warn:.2g} times the median"
    return f"below {found.levels.warn:.0%} of the median"


def _not_always(found: Comparison, unit: Unit) -> tuple[str, str]:
    """Return the reason of a warning about a unit whose best run is fast, and others are not; empty if all are."""
    slow = [run for run in unit.runs if found.is_slow(found.share_of(run).share)]
    if not slow:
        return "", ""
    reason = f"{len(slow)} of its {len(unit.runs)} runs are slow: {_some([run.source for run in slow])}"
    return reason, "run it some times more: a fault that comes and goes, or another job"
