"""Absolute marks: what results should reach whatever the others do, so that a fleet that is slow everywhere is found.

Pass marks of public checkers hold for the GPUs that they name, at large sizes. What the links allow is computed from
their speed. A result below the lower of both values of a mark fails; between them it is a warning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.meaning.benchmarks.results import Kind, Point, Tool, size_text
from exporter.meaning.training.bandwidth import Shape
from exporter.meaning.training.link_limits import expected

GIB = 1 << 30


class Mark(NamedTuple):
    """A mark.

    Attributes:
        name: What it is, for people.
        warn: Value below which (latency: above which) a result is a warning.
        fail: … and a failure.
    """

    name: str
    warn: float
    fail: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What results are compared with.

    Attributes:
        threshold: Share of the median, or of what links allow, below which a result fails.
        line: Bytes per second of a link; None if unknown.
        achievable: Bytes per second that large messages reach on it; None if unknown.
        links: Links of a node.
        own: Bytes per second of bus bandwidth that results of collectives have to reach; None for the marks here.
    """

    threshold: float = 0.9
    line: float | None = None
    achievable: float | None = None
    links: int = 8
    own: float | None = None


class PassMark(NamedTuple):
    """Bus bandwidth of AllReduce that a public checker demands.

    Attributes:
        model: Part of the model of the GPUs.
        bandwidth: Bytes per second.
        checker: Who demands it.
        size: Bytes from which it holds.
        network: Bytes per second of all links of a node; 0 for eight ranks on one node.
    """

    model: str
    bandwidth: float
    checker: str
    size: int = 8 * GIB
    network: float = 0.0


PASS_MARKS = (
    PassMark("A100-SXM", 228e9, "Azure's node health checks", GIB),
    PassMark("H100 80GB HBM3", 460e9, "Azure's node health checks"),
    PassMark("NVIDIA H200", 431e9, "Azure's node health checks"),
    PassMark("NVIDIA B300", 800e9, "Oracle's checks"),
    PassMark("MI300X", 314e9, "Azure's node health checks"),
    PassMark("A100-SXM", 185e9, "Oracle's checks", GIB, 200e9),
    PassMark("H100 80GB HBM3", 440e9, "Oracle's checks", network=400e9),
    PassMark("NVIDIA H200", 440e9, "Oracle's checks", network=400e9),
    PassMark("NVIDIA B200", 440e9, "Oracle's checks", network=400e9),
    PassMark("NVIDIA B300", 700e9, "Oracle's checks", network=800e9),
    PassMark("MI300X", 350e9, "Oracle's checks", network=400e9),
    PassMark("MI355X", 350e9, "Oracle's checks", network=400e9),
)

NVLINK = (
    ("A100-SXM", 300e9),
    ("H100 80GB HBM3", 450e9),
    ("NVIDIA H200", 450e9),
    ("NVIDIA B200", 900e9),
    ("NVIDIA B300", 900e9),
)
"""Bytes per second one way of a GPU over NVLink 3, 4 and 5, by a part of its model."""

OTHER_FORMS = (" NVL", "PCIE")
"""In the models of cards without the switches of NVLink, to which these marks do not apply."""

NVLINK_SHARE = 0.8
"""Share of NVLink that large collectives of eight GPUs reach."""

RINGS = frozenset({"AllReduce", "AllGather", "ReduceScatter"})
"""Collectives whose bus bandwidth is that of the links."""

LINK_SHARE = 0.96
"""Share of a link's speed that ib_write_bw reaches (Oracle's marks: 96, 192 and 384 Gb/s of 100, 200 and 400)."""

LATENCY_MARKS = (
    ("RDMA_Write Latency", Mark("pass marks of ib_write_lat: 5 µs, on GB200 and GB300 9 µs", 5e-6, 9e-6)),
    ("RDMA_Read Latency", Mark("pass mark of ib_read_lat on average: 6 µs", 6e-6, 6e-6)),
)

ONE_WAY = frozenset({"RDMA_Write Latency", "Send Latency"})
"""Tests of latency that divide the round trip by two."""

LATENCY_BANDS = (("IB", "InfiniBand", 1e-6), ("Ethernet", "RoCE", 5e-6))
"""Usual latency between two ports of one network, up to: link type, name, seconds."""

TAIL = Mark("mark of the 99th percentile: 4.2 µs", 4.2e-6, float("inf"))


def marks(kind: Kind, point: Point, limits: Limits) -> Iterator[Mark]:
    """List the marks for a result."""
    if kind.tool is Tool.LATENCY:
        yield from _latency_marks(kind)
    elif kind.tool is Tool.LINK:
        if limits.line is not None and "Bidirectional" not in kind.test and "Atomic" not in kind.test:
            yield _share_mark(f"{LINK_SHARE:.0%} of the link", LINK_SHARE * limits.line, limits)
    elif limits.own is not None:
        yield Mark("the demanded bandwidth", limits.own, limits.own)
    elif kind.nodes is not None and kind.ranks is not None and kind.test:
        yield from _node_marks(kind, point, limits) if kind.nodes == 1 else _network_marks(kind, point, limits)


def _latency_marks(kind: Kind) -> Iterator[Mark]:
    yield from (mark for test, mark in LATENCY_MARKS if test == kind.test)
    for link, name, seconds in LATENCY_BANDS:
        if kind.link == link and kind.test in ONE_WAY:
            yield Mark(f"usual latency of {name}, up to {seconds * 1e6:g} µs", seconds, float("inf"))


def _share_mark(name: str, bandwidth: float, limits: Limits) -> Mark:
    return Mark(name, bandwidth, limits.threshold * bandwidth)


def _node_marks(kind: Kind, point: Point, limits: Limits) -> Iterator[Mark]:
    if kind.ranks != 8 or any(form in kind.model.upper() for form in OTHER_FORMS):
        return
    for one in PASS_MARKS:
        if not one.network and one.model in kind.model and kind.test == "AllReduce" and point.size >= one.size:
            yield Mark(f"pass mark of {one.checker} from {size_text(one.size)}", one.bandwidth, one.bandwidth)
    for model, peak in NVLINK:
        if model in kind.model and kind.test in RINGS and point.size >= GIB:
            yield _share_mark(f"{NVLINK_SHARE:.0%} of NVLink", NVLINK_SHARE * peak, limits)


def _network_marks(kind: Kind, point: Point, limits: Limits) -> Iterator[Mark]:
    """List the marks of runs over several nodes. Without the speed of the links there are none.

    Marks of checkers are warnings only: on other networks with the same speed healthy nodes reach less.
    """
    if limits.line is None or limits.achievable is None or not kind.nodes or not kind.ranks or kind.test not in RINGS:
        return
    used = min(limits.links, max(kind.ranks // kind.nodes, 1))
    share = limits.achievable / limits.line
    shape = Shape(kind.test, point.size, kind.ranks, kind.nodes)
    bandwidth = expected(shape, limits.line * used, share)
    if bandwidth is not None:
        yield _share_mark(f"what {used} links of a node allow", bandwidth, limits)
    for one in PASS_MARKS:
        same = abs(one.network - limits.line * used) < 1e-6 * one.network and one.model in kind.model
        if one.network and same and kind.test == "AllReduce" and point.size >= one.size:
            yield Mark(f"pass mark of {one.checker} between nodes", one.bandwidth, 0.0)
