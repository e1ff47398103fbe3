"""Metrics of xpu_timer (Prometheus text, a scrape or a dump of it): latencies of kernels by operation, and hangs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import MAX_BANDWIDTH, MAX_MICROSECONDS, MAX_RANKS
from exporter.nccl.prometheus_text import (
    Lost,
    Sample,
    samples,
    whole_number,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """One number of one rank.

    Attributes:
        metric: `time` (seconds) and `bandwidth` (bytes per second) of collectives, `hang` (1 while the rank hangs).
        statistic: mean, max, p99, min; empty for bandwidth and hangs.
        value: In the unit of the metric.
        kind: Kind of the collective, as `kinds.KINDS`; empty for hangs.
        level: Bucket of throughput, from low to high; None where not told.
        rank: Rank in the job.
        local_rank: Rank on the host; None where not told.
        job: Name of the job; empty where not set.
        pod: Name of the pod; empty where not set.
        address: Address of the host; empty where not set.
        transport: IntraNode, InterNode …; empty where not told.
        algorithm: "RING_LL"; empty where not told.
    """

    metric: str
    statistic: str
    value: float
    kind: str
    level: int | None
    rank: int
    local_rank: int | None
    job: str
    pod: str
    address: str
    transport: str
    algorithm: str


_COLLECTIVE = re.compile(r"XPU_TIMER_COLL_KERNEL_(?:(AVG|MAX|P99|MIN)_LATENCY|BANDWIDTH)")
_STATISTICS = {"AVG": "mean", "MAX": "max", "P99": "p99", "MIN": "min"}
_OF_COMPUTE = ("XPU_TIMER_MM_", "XPU_TIMER_COMMON_", "exposer_")


def timings(data: bytes, lost: Lost) -> Iterator[Timing]:
    """Give the timings of collectives and the hangs; what cannot be used is counted in `lost`.

    Metrics of xpu_timer that are about something else are no loss.

    Raises:
        FormatError: The file is larger than any that is believed.
    """
    for sample in samples(data, lost):
        told = _meaning(sample)
        if told is None:
            if not sample.name.startswith(_OF_COMPUTE):
                lost.reasons["unknown"] += 1
            continue
        rank = whole_number(sample.labels, "rank", 0, MAX_RANKS - 1)
        if rank is None or not 0 <= told[2] <= told[3]:
            lost.reasons["invalid"] += 1
            continue
        yield _timing(told, rank, sample.labels)


def _meaning(sample: Sample) -> tuple[str, str, float, float] | None:
    """Give metric, statistic, value and the largest value that is believed."""
    if sample.name == "XPU_TIMER_COMMON_HANG":
        return "hang", "", sample.value, 1.0
    found = _COLLECTIVE.fullmatch(sample.name)
    if found is None:
        return None
    if found[1] is None:
        return "bandwidth", "", sample.value * 1e9, MAX_BANDWIDTH
    return "time", _STATISTICS[found[1]], sample.value / 1e6, MAX_MICROSECONDS / 1e6


def _timing(told: tuple[str, str, float, float], rank: int, labels: dict[str, str]) -> Timing:
    def text(name: str) -> str:
        value = labels.get(name, "")
        return "" if value == "NOT_SET" else value

    return Timing(
        *told[:3],
        kind="" if told[0] == "hang" else known_kind(text("operation")),
        level=whole_number(labels, "level", 0, 1000),
        rank=rank,
        local_rank=whole_number(labels, "local_rank", 0, 1 << 16),
        job=text("job_name"),
        pod=text("pod_name"),
        address=text("ip"),
        transport=text("transport"),
        algorithm=text("algorithm"),
    )
