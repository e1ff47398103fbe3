"""Prometheus text files of NCCL Inspector: one per GPU, rewritten every 30 seconds or less often.

Version 2.29.7 writes a series per operation (with sequence number and time as labels); 2.30 and later write a series
per message size, averaged over the time since the previous write, without rank or communicator. Public forks add these
labels and more statistics. Unknown labels are ignored. A file is not rewritten during a hang or after a crash: readers
must check its age.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor
from types import MappingProxyType

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import (
    MAX_BANDWIDTH,
    MAX_BYTES,
    MAX_MICROSECONDS,
    MAX_RANKS,
)
from exporter.nccl.prometheus_text import (
    LineErrors,
    Sample,
    parse_samples,
    whole_number,
)


@dataclass(frozen=True, slots=True)
class TextfileValue:
    """One value over the operations of a kind and size on one GPU.

    Attributes:
        metric: `bus_bandwidth` or `algorithm_bandwidth` (bytes per second), `time` (seconds), or a count:
            `collectives`, `collectives_dropped`, `p2p`, `p2p_dropped`, `operations`.
        statistic: `mean` (geometric for bandwidths), those of forks: min, max, p50, p95, p99, sum, and `single` for
            one slow event; `count` for counts.
        value: In the unit of the metric.
        kind: One of `collectives.KINDS`, or `other`; empty for counts of a GPU.
        min_bytes: Lower bound of the message size; None where absent.
        max_bytes: Exclusive upper bound of the message size; equal to `min_bytes` where the size is exact.
        n_ranks: Ranks of the communicators; None where absent.
        n_nodes: Nodes of the communicators; None where absent.
        gpu: "GPU0" …, numbered within the job.
        node: Host name.
        job: Slurm job ID; empty if unknown.
        comm_name: Name of the communicator; empty if unknown.
        comm_id: Hash of the communicator; empty in NVIDIA's 2.30.
        rank: Rank in the communicator; None in NVIDIA's 2.30.
        world_rank: Global rank; only in forks.
        sequence: Sequence number; only in 2.29.7 and for slow events.
        algorithm: "Ring_ll": algorithm and protocol; empty if unknown.
        timing_source: kernel_gpu …; empty where absent.
    """

    metric: str
    statistic: str
    value: float
    kind: str
    min_bytes: int | None
    max_bytes: int | None
    n_ranks: int | None
    n_nodes: int | None
    gpu: str
    node: str
    job: str
    comm_name: str
    comm_id: str
    rank: int | None
    world_rank: int | None
    sequence: int | None
    algorithm: str
    timing_source: str


_METRIC = re.compile(
    r"nccl_(?:p2p_|collective_)?(slow_event_)?(bus_bandwidth_gbs|algorithm_bandwidth_gbs|exec_time_microseconds)"
    r"(?:_(count|sum|min|max|mean|avg|p50|p95|p99))?"
)
_SCALES = MappingProxyType(
    {
        "bus_bandwidth_gbs": ("bus_bandwidth", 1e9, MAX_BANDWIDTH),
        "algorithm_bandwidth_gbs": ("algorithm_bandwidth", 1e9, MAX_BANDWIDTH),
        "exec_time_microseconds": ("time", 1e-6, MAX_MICROSECONDS / 1e6),
    }
)
_COUNTS = MappingProxyType(
    {
        "nccl_collectives_total": "collectives",
        "nccl_collectives_dropped_total": "collectives_dropped",
        "nccl_p2p_total": "p2p",
        "nccl_p2p_dropped_total": "p2p_dropped",
    }
)
_SIZE = re.compile(r"(\d{1,4}(?:\.\d{1,2})?)(?:-(\d{1,4}))?(B|KB|MB|GB|TB)", re.ASCII)
_UNITS = MappingProxyType({"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40})
_FILE = re.compile(r"nccl_inspector_metrics_([\w-]{1,64})\.prom", re.ASCII)


def parse_textfile(data: bytes, errors: LineErrors) -> Iterator[TextfileValue]:
    """Yield the values of a file; lines that cannot be parsed, and unknown metrics, are counted in `errors`.

    Raises:
        FormatError: The file exceeds prometheus_text.MAX_TEXT.
    """
    for sample in parse_samples(data, errors):
        meaning = _meaning(sample)
        if meaning is None:
            errors.reasons["unknown"] += 1
            continue
        metric, statistic, value, largest = meaning
        if 0 <= value <= largest:
            yield _textfile_value(metric, statistic, value, sample.labels)
        else:
            errors.reasons["invalid"] += 1


def _meaning(sample: Sample) -> tuple[str, str, float, float] | None:
    """Return metric, statistic, value and maximum plausible value."""
    if count := _COUNTS.get(sample.name):
        return count, "count", sample.value, 2.0**63
    found = _METRIC.fullmatch(sample.name)
    if found is None:
        return None
    if found[3] == "count":
        return "operations", "count", sample.value, 2.0**63
    metric, scale, largest = _SCALES[found[2]]
    statistic = "single" if found[1] else (found[3] or "mean").replace("avg", "mean")
    # a sum grows over many operations
    return metric, statistic, sample.value * scale, largest * 1e6 if statistic == "sum" else largest


def _textfile_value(metric: str, statistic: str, value: float, labels: dict[str, str]) -> TextfileValue:
    operation = labels.get("collective") or labels.get("p2p_operation") or ""
    exact = whole_number(labels, "message_size_bytes", 0, MAX_BYTES)
    bounds = (exact, exact) if exact is not None else message_bounds(labels.get("message_size", ""))
    least, most = bounds or (None, None)
    return TextfileValue(
        metric,
        statistic,
        value,
        known_kind(operation) if operation else "",
        least,
        most,
        _first_number(labels, ("nranks", "n_ranks"), 1),
        whole_number(labels, "n_nodes", 1, MAX_RANKS),
        labels.get("gpu") or labels.get("gpu_device_id") or "",
        labels.get("node") or labels.get("hostname") or "",
        _label_value(labels, "slurm_job_id"),
        _label_value(labels, "comm_name"),
        _label_value(labels, "comm_id"),
        _first_number(labels, ("comm_rank", "rank"), 0),
        whole_number(labels, "world_rank", 0, MAX_RANKS),
        _first_number(labels, ("coll_sn", "sequence"), 0, 1 << 63),
        _label_value(labels, "algo_proto"),
        _label_value(labels, "timing_source"),
    )


def _label_value(labels: dict[str, str], name: str) -> str:
    text = labels.get(name, "")
    return "" if text == "unknown" else text


def _first_number(labels: dict[str, str], names: tuple[str, ...], least: int, largest: int = MAX_RANKS) -> int | None:
    return next((found for name in names if (found := whole_number(labels, name, least, largest)) is not None), None)


def message_bounds(text: str) -> tuple[int, int] | None:
    """Return minimum and maximum bytes of "4-5GB", "2.00GB" or "0B" (a GB is 1024³ bytes here); None if malformed.

    A size with two decimals covers all sizes that round to it.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    low, high, unit = found.groups()
    scale = _UNITS[unit]
    if high is not None:
        return (int(low) * scale, int(high) * scale) if low.isdigit() and int(low) < int(high) else None
    if low.isdigit():
        return int(low) * scale, int(low) * scale
    return max(0, ceil((float(low) - 0.005) * scale)), floor((float(low) + 0.005) * scale)


def gpu_of_file(name: str) -> str | None:
    """Return the GPU UUID in a file name, the only identity of the GPU that Inspector writes; None for other files."""
    found = _FILE.fullmatch(name)
    return found[1] if found else None
