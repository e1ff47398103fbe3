"""Metrics of xpu_timer in Prometheus text: latencies and bandwidths of collectives, and hangs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import MAX_BANDWIDTH, MAX_MICROSECONDS, MAX_RANKS
from exporter.nccl.prometheus_text import (
    LineErrors,
    Sample,
    parse_samples,
    whole_number,
)


@dataclass(frozen=True, slots=True)
class XpuTiming:
    """One value of one rank.

    Attributes:
        metric: `time` (seconds) and `bandwidth` (bytes per second) of collectives, `hang` (1 while the rank hangs).
        statistic: mean, max, p99, min; empty for bandwidth and hangs.
        value: In the unit of the metric.
        kind: One of `collectives.KINDS`, or `other`; empty for hangs.
        level: Bucket of throughput, from low to high; None where absent.
        rank: Rank in the job.
        local_rank: Rank on the host; None where absent.
        job: Name of the job; empty where not set.
        pod: Name of the pod; empty where not set.
        address: Address of the host; empty where not set.
        transport: IntraNode, InterNode …; empty where absent.
        algorithm: "RING_LL"; empty where absent.
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
_STATISTICS = MappingProxyType({"AVG": "mean", "MAX": "max", "P99": "p99", "MIN": "min"})
_COMPUTE_PREFIXES = ("XPU_TIMER_MM_", "XPU_TIMER_COMMON_", "exposer_")


def parse_timings(data: bytes, errors: LineErrors) -> Iterator[XpuTiming]:
    """Yield the timings of collectives and the hangs; lines that cannot be parsed are counted in `errors`.

    Other metrics of xpu_timer are skipped without being counted.

    Raises:
        FormatError: The file exceeds prometheus_text.MAX_TEXT.
    """
    for sample in parse_samples(data, errors):
        meaning = _meaning(sample)
        if meaning is None:
            if not sample.name.startswith(_COMPUTE_PREFIXES):
                errors.reasons["unknown"] += 1
            continue
        rank = whole_number(sample.labels, "rank", 0, MAX_RANKS - 1)
        if rank is None or not 0 <= meaning[2] <= meaning[3]:
            errors.reasons["invalid"] += 1
            continue
        yield _timing(meaning, rank, sample.labels)


def _meaning(sample: Sample) -> tuple[str, str, float, float] | None:
    """Return metric, statistic, value and maximum plausible value."""
    if sample.name == "XPU_TIMER_COMMON_HANG":
        return "hang", "", sample.value, 1.0
    found = _COLLECTIVE.fullmatch(sample.name)
    if found is None:
        return None
    if found[1] is None:
        return "bandwidth", "", sample.value * 1e9, MAX_BANDWIDTH
    return "time", _STATISTICS[found[1]], sample.value / 1e6, MAX_MICROSECONDS / 1e6


def _timing(meaning: tuple[str, str, float, float], rank: int, labels: dict[str, str]) -> XpuTiming:
    def text(name: str) -> str:
        value = labels.get(name, "")
        return "" if value == "NOT_SET" else value

    return XpuTiming(
        *meaning[:3],
        kind="" if meaning[0] == "hang" else known_kind(text("operation")),
        level=whole_number(labels, "level", 0, 1000),
        rank=rank,
        local_rank=whole_number(labels, "local_rank", 0, 1 << 16),
        job=text("job_name"),
        pod=text("pod_name"),
        address=text("ip"),
        transport=text("transport"),
        algorithm=text("algorithm"),
    )
