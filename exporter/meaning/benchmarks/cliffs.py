"""Cliffs: bandwidth that falls when messages grow, in one run.

Small messages are excluded: NCCL changes its protocol (LL, LL128, Simple) with the size, and bandwidth may fall there.
"""

from collections.abc import Iterator

from exporter.meaning.benchmarks.results import Finding, Point, Run, Tool, Verdict, size_text

FROM = 4 << 20
"""Bytes from which sizes are compared."""

WARN, FAIL = 0.7, 0.5
"""Shares of the highest bandwidth of smaller messages below which a result is a warning, and fails."""


def cliffs(run: Run) -> Iterator[Finding]:
    """List the first cliff of a run; nothing if there is none. The lowest bandwidth after it decides the verdict."""
    if run.kind.tool is Tool.LATENCY:
        return
    best: dict[str, Point] = {}
    first: tuple[float, Point, Point] | None = None
    lowest = 1.0
    for point in sorted(run.values):
        if point.size < FROM:
            continue
        top = best.setdefault(point.place, point)
        share = run.values[point] / run.values[top] if run.values[top] else 1.0
        if share >= 1:
            best[point.place] = point
        elif share < WARN:
            first = first or (share, point, top)
        lowest = min(lowest, share)
    if first is not None:
        share, point, top = first
        yield Finding(
            Verdict.FAIL if lowest < FAIL else Verdict.WARN,
            "cliff",
            run.nodes,
            (run.source,),
            run.kind,
            f"bandwidth falls to {share:.0%} from {size_text(top.size)} to {size_text(point.size)}",
            "look for another algorithm, protocol or transport from that size on, pauses, and lost packets",
            point,
            run.values[point],
            run.values[top],
            f"result at {size_text(top.size)}",
        )
