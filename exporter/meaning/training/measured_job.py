"""A running job's own figures, from the metrics of exporters, for estimates with other links."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple, Protocol

JOB_INFO = "fabric_nccl_job_info"
NETWORK_BYTES = "fabric_job_network_bytes_per_second"
NETWORK_SECONDS = "fabric_nccl_step_network_seconds"
STEP_SECONDS = ("fabric_nccl_step_interval_seconds", "fabric_nccl_step_seconds")
"""Times of a step, the better one first: that of the model needs a configured plan."""

METRICS = (JOB_INFO, NETWORK_BYTES, NETWORK_SECONDS, *STEP_SECONDS)


class JobSample(Protocol):
    """A sample of an exporter."""

    @property
    def name(self) -> str:
        """Name of the metric."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def value(self) -> float:
        """Its value."""


class MeasuredJob(NamedTuple):
    """Figures of a job; None where no exporter has them.

    Attributes:
        ranks: Its ranks, …
        hosts: … and its nodes.
        step: Seconds of a step.
        network: Seconds of its data-parallel collectives in a step, without waiting.
        sent: Bytes that each rank sends to other nodes in a step at least.
    """

    ranks: int | None
    hosts: int | None
    step: float | None
    network: float | None
    sent: float | None

    @property
    def compute(self) -> float | None:
        """Seconds of a step without network time, a lower bound of computing."""
        if self.step is None or self.network is None:
            return None
        return max(self.step - self.network, 0.0)


def measured_jobs(samples: Iterable[JobSample]) -> Mapping[str, MeasuredJob]:
    """Return the figures by job, from the samples of one or several exporters.

    A value that several exporters have is their median.
    """
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    sizes: dict[str, tuple[int, int]] = {}
    jobs: set[str] = set()
    for one in samples:
        job = one.labels.get("train_job", "")
        if not job or one.name not in METRICS:
            continue
        jobs.add(job)
        ranks, nodes = one.labels.get("ranks", ""), one.labels.get("nodes", "")
        if one.name != JOB_INFO:
            values[job, one.name].append(one.value)
        elif ranks.isdecimal() and nodes.isdecimal():
            sizes[job] = max(sizes.get(job, (0, 0)), (int(ranks), int(nodes)))
    return {job: _figures(sizes.get(job), {name: values[job, name] for name in METRICS}) for job in sorted(jobs)}


def _figures(size: tuple[int, int] | None, values: Mapping[str, list[float]]) -> MeasuredJob:
    ranks, hosts = size if size and min(size) > 0 else (None, None)
    step = next((median(values[name]) for name in STEP_SECONDS if values[name]), None)
    network = median(values[NETWORK_SECONDS]) if values[NETWORK_SECONDS] else None
    sent = None
    if ranks and hosts and step is not None and values[NETWORK_BYTES]:
        # What a host sends and receives is counted, which is the same for the collectives of training.
        sent = median(values[NETWORK_BYTES]) / 2 * step / (ranks / hosts)
    return MeasuredJob(ranks, hosts, step, network, sent)
