"""Results of benchmarks, and findings about them, as data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Tool(StrEnum):
    """What measured a result: its values are bytes per second of bus bandwidth or of a link, or seconds of latency."""

    NCCL = "nccl-tests"
    LINK = "perftest bandwidth"
    LATENCY = "perftest latency"


class Kind(NamedTuple):
    """What is equal for results that are comparable.

    Attributes:
        tool: What measured them.
        test: "AllReduce", "RDMA_Write Latency" …; empty where the output does not name it.
        ranks: Number of ranks; None if unknown.
        nodes: Number of hosts; None if unknown.
        numbers: Data type and reduction, such as "float sum".
        version: That of the library; empty if unknown.
        model: That of the GPUs; empty if unknown.
        link: "IB" or "Ethernet"; empty if unknown.
        factor: Bus bandwidth over algorithm bandwidth, which depends on the ranks, where these are unknown.
    """

    tool: Tool
    test: str
    ranks: int | None = None
    nodes: int | None = None
    numbers: str = ""
    version: str = ""
    model: str = ""
    link: str = ""
    factor: float | None = None

    @property
    def text(self) -> str:
        """The parts that are known, such as "AllReduce, 8 ranks on 1 node, float sum"."""
        hosts = "" if self.nodes is None else f" on {counted(self.nodes, 'node')}"
        ranks = "" if self.ranks is None else f"{counted(self.ranks, 'rank')}{hosts}"
        version = self.version and f"library {self.version}"
        parts = (self.test or "a collective without a name", ranks, self.numbers, version, self.model, self.link)
        return ", ".join(part for part in parts if part)


class Point(NamedTuple):
    """A message size in bytes, and "out of place" or "in place" where a test measures both."""

    size: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a benchmark.

    Attributes:
        source: File, with the number of the run where it has several.
        nodes: Sorted hosts or ends of a link; the source where the output names none.
        kind: What it measured.
        values: Results by point.
        named: Whether the nodes are those of the output.
        tail: Seconds of the 99th percentile of the smallest message; None if unknown.
        failed: Why it fails whatever its speed, such as wrong results; empty if it does not.
        refused: Why it cannot be judged; empty if it can.
        bad_rows: Rows that were incomplete and skipped.
    """

    source: str
    nodes: tuple[str, ...]
    kind: Kind
    values: Mapping[Point, float] = field(default_factory=dict)
    named: bool = True
    tail: float | None = None
    failed: str = ""
    refused: str = ""
    bad_rows: int = 0

    @property
    def sizes(self) -> frozenset[int]:
        """Message sizes with a result."""
        return frozenset(point.size for point in self.values)


class Verdict(StrEnum):
    """From worst to best."""

    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"
    OK = "ok"


WORST_FIRST = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about the nodes of one or several runs.

    Attributes:
        verdict: How bad it is.
        check: The rule: `result`, `file`, `median`, `node`, `mark`, `cliff`, `tail`.
        nodes: Hosts, or ends of a link; the file where the output names none.
        sources: Files.
        kind: What was measured; None where that is unknown.
        reason: Why, for people.
        remedy: What to do; empty if nothing.
        point: Where the value is from; None without one.
        value: Measured; None if there is none.
        against: What it was compared with; None if there is nothing.
        against_name: "median of 8 nodes", …
    """

    verdict: Verdict
    check: str
    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    kind: Kind | None
    reason: str
    remedy: str = ""
    point: Point | None = None
    value: float | None = None
    against: float | None = None
    against_name: str = ""


@dataclass(slots=True)
class Unit:
    """Runs of the same kind on the same nodes: one node, a pair, or more.

    Attributes:
        nodes: The nodes.
        runs: The runs.
    """

    nodes: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)

    @property
    def sources(self) -> tuple[str, ...]:
        """Files of the runs."""
        return tuple(run.source for run in self.runs)

    def best(self, point: Point) -> float:
        """Return the best result at a point, which each run has."""
        values = (run.values[point] for run in self.runs)
        return min(values) if self.runs[0].kind.tool is Tool.LATENCY else max(values)


@dataclass(slots=True)
class Group:
    """Units whose results are comparable.

    Attributes:
        kind: What was measured.
        units: By nodes.
        sizes: Message sizes that are judged.
        notes: What a reader has to know about the judgement.
    """

    kind: Kind
    units: dict[tuple[str, ...], Unit] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def what(self) -> str:
        """The word for a unit: node, pair, set of nodes, or file."""
        if not all(run.named for unit in self.units.values() for run in unit.runs):
            return "file"
        return {1: "node", 2: "pair"}.get(max(map(len, self.units), default=0), "set of nodes")

    def points(self) -> Iterator[Point]:
        """List the points of the judged sizes that all runs have."""
        runs = [run for unit in self.units.values() for run in unit.runs]
        for point in runs[0].values if runs else ():
            if point.size in self.sizes and all(point in run.values for run in runs):
                yield point


def counted(count: int, word: str) -> str:
    """Return a number of things, such as "8 nodes"."""
    return f"{count:,} {word if count == 1 else _plural(word)}"


def _plural(word: str) -> str:
    return word.replace("set ", "sets ", 1) if word.startswith("set ") else f"{word}s"


def size_text(size: int) -> str:
    """Return a message size in the units of nccl-tests, such as 8 GiB; in bytes where it is not a whole number."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size and size % (1 << bits) == 0:
            return f"{size >> bits} {unit}"
    return f"{size} B"
