"""Output of the command `validate`: a table whose first rows are the worst, and JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from exporter.commands.terminal import BOLD, GREEN, PLAIN, RED, YELLOW, listed
from exporter.meaning.benchmarks.judgement import Judgement
from exporter.meaning.benchmarks.marks import Limits
from exporter.meaning.benchmarks.results import Finding, Group, Kind, Run, Tool, Verdict, counted, size_text

MAX_FINE = 20
"""Findings without a fault that are printed, unless all are wanted."""

MAX_NAMES = 3
"""Nodes or files that are printed in one place."""

COLOURS = ((Verdict.FAIL, RED), (Verdict.WARN, YELLOW), (Verdict.UNKNOWN, BOLD), (Verdict.OK, GREEN))

HEAD = ("verdict", "node", "test", "size", "result", "compared with", "share")


def as_text(found: Judgement, runs: Sequence[Run], *, shows_all: bool) -> Iterator[str]:
    """Yield the lines of the table, with colours."""
    fine = [one for one in found.findings if one.verdict is Verdict.OK]
    shown = found.findings if shows_all else [*_faults(found), *fine[:MAX_FINE]]
    yield _summary(found, runs)
    if shown:
        yield ""
        yield from _table(shown)
    if len(fine) > MAX_FINE and not shows_all:
        yield f"… and {len(fine) - MAX_FINE:,} more ok; --all prints them"
    if found.groups:
        yield ""
        yield from map(_group_text, found.groups)


def _faults(found: Judgement) -> list[Finding]:
    return [one for one in found.findings if one.verdict is not Verdict.OK]


def _summary(found: Judgement, runs: Sequence[Run]) -> str:
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in found.counts().items())
    return f"{counted(len(runs), 'run')}; nodes, pairs or files: {counts}"


def _table(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [HEAD, *map(_cells, findings)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    indent = " " * (widths[0] + 2)
    colours = dict(COLOURS)
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        if number == 0:
            yield f"{BOLD}{line}{PLAIN}"
            continue
        one = findings[number - 1]
        length = len(one.verdict)
        yield f"{colours[one.verdict]}{line[:length]}{PLAIN}{line[length:]}"
        if one.reason:
            yield f"{indent}{one.reason}"
        if one.remedy:
            yield f"{indent}→ {one.remedy}"


def _cells(one: Finding) -> tuple[str, ...]:
    tool = one.kind.tool if one.kind is not None else Tool.NCCL
    point = one.point
    size = "" if point is None else f"{size_text(point.size)} {point.place}".strip()
    value = "" if one.value is None else _value(tool, one.value)
    against = one.against_name if one.against is None else f"{_value(tool, one.against)}, {one.against_name}"
    share = _share(one)
    test = one.kind.test if one.kind is not None else ""
    return (
        one.verdict,
        listed(one.nodes, MAX_NAMES),
        test,
        size,
        value,
        against,
        "" if share is None else f"{share:.0%}",
    )


def _share(one: Finding) -> float | None:
    return None if one.value is None or not one.against else one.value / one.against


def _value(tool: Tool, value: float) -> str:
    if tool is Tool.LATENCY:
        return f"{value * 1e6:.3g} µs"
    return f"{value / 1e9:.4g} GB/s"


def _group_text(group: Group) -> str:
    return f"{group.kind.text}: {counted(len(group.units), group.what)}; {'; '.join(group.notes)}"


def as_json(found: Judgement, runs: Sequence[Run], limits: Limits) -> dict[str, Any]:
    """Return all findings in base units; what is not known is missing."""
    return {
        "verdict": min((one.verdict for one in found.findings), key=list(Verdict).index, default=Verdict.UNKNOWN),
        "counts": found.counts(),
        "runs": len(runs),
        "threshold": limits.threshold,
        "findings": [_finding_json(one) for one in found.findings],
        "groups": [
            {
                **_kind_json(group.kind),
                "units": len(group.units),
                "unit": group.what,
                "judged_bytes": list(group.sizes),
                "notes": group.notes,
            }
            for group in found.groups
        ],
    }


def _finding_json(one: Finding) -> dict[str, Any]:
    unit = "seconds" if one.kind is not None and one.kind.tool is Tool.LATENCY else "bytes_per_second"
    result = {
        "verdict": one.verdict,
        "check": one.check,
        "nodes": list(one.nodes),
        "nodes_from": "file" if set(one.nodes) <= set(one.sources) else "output",
        "files": list(one.sources),
        **(_kind_json(one.kind) if one.kind is not None else {}),
        "size_bytes": None if one.point is None else one.point.size,
        "place": None if one.point is None else one.point.place or None,
        unit: one.value,
        f"compared_{unit}": one.against,
        "compared_with": one.against_name or None,
        "ratio": _share(one),
        "reason": one.reason or None,
        "remedy": one.remedy or None,
    }
    return {key: value for key, value in result.items() if value is not None}


def _kind_json(kind: Kind) -> dict[str, Any]:
    names = {"ranks": "n_ranks", "nodes": "n_nodes"}
    return {names.get(key, key): value for key, value in kind._asdict().items() if value not in {None, ""}}
