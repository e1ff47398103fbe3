"""The baseline of a fleet: what its healthy nodes reach over the network, by collective and size."""

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import NamedTuple

from exporter.meaning.benchmarks.results import Kind, Run, Tool


class Level(NamedTuple):
    """What is expected: bytes per second of bus bandwidth, and the ranks and nodes with which it was measured."""

    bus_bandwidth: float
    n_ranks: int | None
    n_nodes: int | None


def network_baseline(runs: Iterable[Run], failed: Collection[str]) -> Mapping[tuple[str, int], Level]:
    """Return the expected bandwidth by collective and size in bytes: medians of runs between nodes.

    A baseline that is too high would report a slow network that is not. So it is the median and not the best, and of
    several numbers of nodes the results over the most, which are nearest to those of jobs. Results out of place are
    preferred, as the judge of jobs does.

    Args:
        runs: Runs.
        failed: Sources of runs that failed or cannot be judged, which are left out.
    """
    by_kind: dict[str, dict[Kind, list[Run]]] = {}
    for run in runs:
        kind = run.kind
        between = kind.tool is Tool.NCCL and kind.test and (kind.nodes or 0) > 1
        if between and run.source not in failed:
            by_kind.setdefault(kind.test, {}).setdefault(kind, []).append(run)
    found: dict[tuple[str, int], Level] = {}
    for test, kinds in sorted(by_kind.items()):
        chosen = max(kinds, key=lambda kind: (kind.nodes or 0, kind.ranks or 0, len(kinds[kind])))
        values: dict[int, list[float]] = {}
        for run in kinds[chosen]:
            for size, value in _preferred(run).items():
                values.setdefault(size, []).append(value)
        for size in sorted(values):
            found[test, size] = Level(median(values[size]), chosen.ranks, chosen.nodes)
    return found


def _preferred(run: Run) -> dict[int, float]:
    """Return the results by size, those out of place where both are measured."""
    found: dict[int, float] = {}
    for point, value in run.values.items():
        if value > 0 and point.size and (point.size not in found or point.place == "out of place"):
            found[point.size] = value
    return found
