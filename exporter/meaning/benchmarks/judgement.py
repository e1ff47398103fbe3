"""The judgement on runs of benchmarks: findings, the worst first, and groups with what a reader has to know."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exporter.meaning.benchmarks.cliffs import cliffs
from exporter.meaning.benchmarks.comparison import compare, node_findings, unit_finding
from exporter.meaning.benchmarks.groups import ENOUGH, FEW, NO_SIZE, grouped, odd_ones
from exporter.meaning.benchmarks.marks import TAIL, Limits, Mark, marks
from exporter.meaning.benchmarks.results import (
    WORST_FIRST,
    Finding,
    Group,
    Kind,
    Point,
    Run,
    Tool,
    Unit,
    Verdict,
    counted,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result.

    Attributes:
        findings: The worst first; of each unit of each group at least one.
        groups: The largest first.
    """

    findings: list[Finding]
    groups: list[Group]

    def counts(self) -> dict[Verdict, int]:
        """Return the numbers of nodes, pairs or files by the worst verdict on them."""
        worst: dict[tuple[str, ...], Verdict] = {}
        for one in self.findings:
            worst.setdefault(one.nodes, one.verdict)
        found = Counter(worst.values())
        return {verdict: found[verdict] for verdict in WORST_FIRST}


def judge(runs: Iterable[Run], limits: Limits) -> Judgement:
    """Judge runs of benchmarks, in time linear in their number."""
    findings: list[Finding] = []
    usable: list[Run] = []
    for run in runs:
        if run.failed or run.refused:
            findings.append(_unusable(run))
        else:
            usable.append(run)
    groups, short = grouped(usable)
    odd = odd_ones(groups)
    different = {(one.kind, one.nodes) for one in odd}
    findings += short + odd
    for group in groups:
        findings += _group_findings(group, limits, different)
    for run in usable:
        findings += cliffs(run)
        findings += _tail(run)
        findings += _bad_rows(run)
    findings.sort(key=lambda one: WORST_FIRST.index(one.verdict))
    return Judgement(findings, [group for group in groups if group.units])


def _unusable(run: Run) -> Finding:
    if run.failed:
        remedy = "look at its log; then test each of its nodes alone, and with a known-good partner"
        return Finding(Verdict.FAIL, "result", run.nodes, (run.source,), run.kind, run.failed, remedy)
    return Finding(Verdict.UNKNOWN, "file", run.nodes, (run.source,), run.kind, run.refused)


def _group_findings(
    group: Group, limits: Limits, different: set[tuple[Kind | None, tuple[str, ...]]]
) -> Iterator[Finding]:
    """List the findings about the units of a group, and of nodes in several pairs."""
    found = compare(group, limits.threshold)
    if found is not None:
        yield from node_findings(found)
    points = list(group.points())
    marked = False
    for unit in group.units.values():
        mark = _worst_mark(unit, points, limits)
        marked |= mark is not None
        relative = None if found is None else unit_finding(found, unit)
        one = _of_unit(group, unit, relative, mark, warned=(group.kind, unit.nodes) in different)
        if one is not None:
            yield one
    if not marked:
        flags = {Tool.NCCL: "--mark" if group.kind.nodes == 1 else "--link-speed or --mark", Tool.LINK: "--link-speed"}
        remedy = flags.get(group.kind.tool)
        note = "no absolute mark is known: if all are equally slow, that is not found"
        group.notes.append(f"{note}; give {remedy}" if remedy else note)


def _of_unit(
    group: Group, unit: Unit, relative: Finding | None, mark: Finding | None, *, warned: bool
) -> Finding | None:
    """Return what is wrong with a unit by its median and its marks: the worse of both, with both reasons.

    None where nothing is known but what a warning already reports.
    """
    bad = [one for one in (relative, mark) if one is not None and one.verdict is not Verdict.OK]
    if bad:
        worst = min(bad, key=lambda one: WORST_FIRST.index(one.verdict))
        return replace(worst, reason="; ".join(one.reason for one in bad))
    return relative or mark or (None if warned else _too_few(group, unit))


def _too_few(group: Group, unit: Unit) -> Finding:
    units = counted(len(group.units), group.what)
    reason = f"{units}: a median needs {ENOUGH}, a note {FEW}, and no absolute mark is known"
    remedy = "test more of them"
    if not group.sizes:
        reason = NO_SIZE[group.kind.tool]
        sizes = ", such as -b 1G -e 8G -f 2" if group.kind.tool is Tool.NCCL else ", as by -s 65536"
        remedy = f"run all with the same sizes{sizes}"
    elif len(unit.nodes) > 2:
        reason += "; its bandwidth is that of the slowest of its nodes, which it does not name"
        remedy = "run pairs of nodes"
    point = max(group.points(), default=None)
    value = None if point is None else unit.best(point)
    return Finding(Verdict.UNKNOWN, "median", unit.nodes, unit.sources, group.kind, reason, remedy, point, value)


def _worst_mark(unit: Unit, points: Iterable[Point], limits: Limits) -> Finding | None:
    """Return the finding about the mark that a unit misses most, or is nearest to; None without a mark."""
    found = [
        (WORST_FIRST.index(_verdict(kind.tool, value, mark)), _reached(kind.tool, value, mark), value, point, mark)
        for kind in (unit.runs[0].kind,)
        for point in points
        for value in (unit.best(point),)
        for mark in marks(kind, point, limits)
    ]
    if not found:
        return None
    place, _, value, point, mark = min(found, key=lambda one: one[:2])
    verdict = WORST_FIRST[place]
    reason = remedy = ""
    if verdict is not Verdict.OK:
        latency = unit.runs[0].kind.tool is Tool.LATENCY
        reason = f"{'above' if latency else 'below'} {mark.name}"
        remedy = "compare with other nodes; if all miss it, look at what they share: image, settings, cabling, switches"
    return Finding(
        verdict, "mark", unit.nodes, unit.sources, unit.runs[0].kind, reason, remedy, point, value, mark.warn, mark.name
    )


def _verdict(tool: Tool, value: float, mark: Mark) -> Verdict:
    if tool is Tool.LATENCY:
        return Verdict.FAIL if value > mark.fail else Verdict.WARN if value > mark.warn else Verdict.OK
    return Verdict.FAIL if value < mark.fail else Verdict.WARN if value < mark.warn else Verdict.OK


def _reached(tool: Tool, value: float, mark: Mark) -> float:
    return mark.warn / value if tool is Tool.LATENCY else value / mark.warn


def _tail(run: Run) -> Iterator[Finding]:
    """List a warning about a high 99th percentile."""
    if run.tail is not None and run.tail > TAIL.warn:
        reason = f"above the {TAIL.name}"
        remedy = "pin the test to a core near the adapter, without power saving, and look for congestion on the path"
        point = min(run.values, default=None)
        yield Finding(
            Verdict.WARN,
            "tail",
            run.nodes,
            (run.source,),
            run.kind,
            reason,
            remedy,
            point,
            run.tail,
            TAIL.warn,
            TAIL.name,
        )


def _bad_rows(run: Run) -> Iterator[Finding]:
    """List a warning about rows that were skipped."""
    if run.bad_rows:
        reason = f"{counted(run.bad_rows, 'row')} could not be parsed: incomplete, or of several ranks in one line"
        remedy = "write the output of one process to the file"
        yield Finding(Verdict.WARN, "file", run.nodes, (run.source,), run.kind, reason, remedy)
