"""Groups of comparable runs, the runs that are not comparable with the rest, and the sizes that are judged."""

from collections import Counter
from collections.abc import Iterable, Sequence
from types import MappingProxyType

from exporter.meaning.benchmarks.results import Finding, Group, Kind, Run, Tool, Unit, Verdict, counted, size_text

LARGE = 1 << 30
"""Bytes from which results of collectives are judged, if all runs have such sizes: latency matters for smaller ones."""

ENOUGH = 5
"""Units from which a median convicts; with FEW only a note is made."""

FEW = 3

LEAST = 1 << 20
"""Bytes below which the time of a collective is that of its latency: its bandwidth is not judged."""


NO_SIZE = MappingProxyType(
    {
        Tool.NCCL: "the runs have no size in common that is large enough to judge bandwidth (1 MiB)",
        Tool.LINK: "the runs have no size in common",
        Tool.LATENCY: "the runs have no size in common",
    }
)
"""Why a group is not judged."""


def grouped(runs: Iterable[Run]) -> tuple[list[Group], list[Finding]]:
    """Return the groups of runs, the largest first, and findings about runs that lack sizes which most have."""
    by_kind: dict[Kind, list[Run]] = {}
    for run in runs:
        by_kind.setdefault(run.kind, []).append(run)
    groups, findings = [], []
    for kind, members in by_kind.items():
        complete, short = _without_short(members)
        findings += short
        group = Group(kind)
        for run in complete:
            group.units.setdefault(run.nodes, Unit(run.nodes)).runs.append(run)
        group.sizes = _judged_sizes(kind.tool, complete)
        groups.append(group)
    groups.sort(key=lambda one: -len(one.units))
    for group in groups:
        group.notes += _notes(group)
    return groups, findings


def _without_short(runs: Sequence[Run]) -> tuple[list[Run], list[Finding]]:
    """Return the runs with all sizes that more than half of them have, and findings about the others."""
    times = Counter(size for run in runs for size in run.sizes)
    expected = frozenset(size for size, count in times.items() if 2 * count > len(runs))
    complete = [run for run in runs if expected <= run.sizes]
    findings = [
        Finding(
            Verdict.UNKNOWN,
            "file",
            run.nodes,
            (run.source,),
            run.kind,
            f"sizes are missing that most runs have, from {size_text(min(expected - run.sizes))}: the test ended early",
            "look for an error in its output, and run it again",
        )
        for run in runs
        if not expected <= run.sizes
    ]
    return complete, findings


def _judged_sizes(tool: Tool, runs: Sequence[Run]) -> tuple[int, ...]:
    """Return the judged sizes: the large ones, else the largest that all runs have; the smallest for latency."""
    common = sorted(frozenset.intersection(*(run.sizes for run in runs))) if runs else []
    if not common:
        return ()
    if tool is Tool.LATENCY:
        return (common[0],)
    large = tuple(size for size in common if size >= LARGE) if tool is Tool.NCCL else ()
    return large or ((common[-1],) if tool is Tool.LINK or common[-1] >= LEAST else ())


def _notes(group: Group) -> list[str]:
    if not group.units:
        return []
    shown = ", ".join(map(size_text, group.sizes))
    notes = [f"judged at {shown}" if group.sizes else NO_SIZE[group.kind.tool]]
    if group.kind.tool is Tool.NCCL:
        if group.sizes and group.sizes[-1] < LARGE:
            notes.append("that is the largest size that all have; results are sure from 1 GiB, as by -e 8G")
        if group.kind.nodes == 1:
            notes.append("each run on one node: NVLink or PCIe is tested, and no NIC, unless P2P and SHM were disabled")
    if not all(run.named for unit in group.units.values() for run in unit.runs):
        notes.append("some outputs do not name all of their hosts: the files are compared")
    return notes


DIFFERENCES = (
    ("ranks", "{} ranks"),
    ("nodes", "{} nodes"),
    ("numbers", "{}"),
    ("version", "library {}"),
    ("model", "{}"),
    ("link", "link type {}"),
    ("factor", "a bus bandwidth of {} times the algorithm bandwidth"),
)
"""Attributes of kinds by which runs of one test differ, and how they are described."""


def odd_ones(groups: Sequence[Group]) -> list[Finding]:
    """Return a warning for each unit that is not comparable with a large group of the same test, and how it differs."""
    largest: dict[tuple[Tool, str], Group] = {}
    findings = []
    for group in groups:
        main = largest.setdefault((group.kind.tool, group.kind.test), group)
        if group is main or len(group.units) >= FEW or len(main.units) < ENOUGH:
            continue
        differences = [
            f"{text.format(_shown(getattr(group.kind, name)))}, and not {_shown(getattr(main.kind, name))}"
            for name, text in DIFFERENCES
            if getattr(group.kind, name) != getattr(main.kind, name)
        ]
        others = counted(len(main.units), main.what)
        findings += [
            Finding(
                Verdict.WARN,
                "median",
                unit.nodes,
                unit.sources,
                group.kind,
                f"not comparable with {others}: {'; '.join(differences)}",
                "find out why it differs: a GPU that is missing, or another image; then run it as the others",
            )
            for unit in group.units.values()
        ]
    return findings


def _shown(value: object) -> str:
    return "an unknown number or name" if value is None or value == "" else f"{value}"
