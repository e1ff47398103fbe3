"""Budget of a training step: the time that its network should take, the time that it takes, and the rest for computing.

The bytes of a step follow from the model: gradients of all parameters are summed over the data-parallel ranks, and
sharded parameters are gathered before use. The bytes on each rank's link follow from the algorithm, and the least time
from the speed of the links. The measured values are beside it: steps are derived from the bytes moved, and network time
is counted from the last rank to start, without waiting.

Timings do not show how much of the network time overlaps with computing. Values that depend on it are lower bounds: as
if nothing overlapped.
"""

from collections import deque
from collections.abc import Mapping, Reversible
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from types import MappingProxyType
from typing import Literal, NamedTuple

from exporter.core.collectives import bus_factor
from exporter.core.vocabulary import Ending, gauge
from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.records import Communicator, Job
from exporter.meaning.training.verdicts import MIN_MATCHED_SHARE

BYTES: Mapping[str, int] = MappingProxyType({"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1})
"""Bytes of a number as transmitted."""

WHOLE: Mapping[str, float] = MappingProxyType({"tree": 2.0, "sharp": 1.0})
"""Bytes that a rank sends for an AllReduce over its size, for other algorithms than a ring: up and down a tree, or once
with in-network reduction."""

FLOPS = 6
"""Floating-point operations per parameter and token: two forward, four backward. Attention is not included."""

WINDOWS = (60.0, 180.0, 600.0)
"""Seconds that are measured: the shortest with ENOUGH steps, or the longest if it has a FEW."""

ENOUGH, FEW = 10.0, 3.0

SAME_WORK = 0.5
"""Share of the busiest communicator's traffic that others of its size need to count as equivalent."""

STOPPED = 3.0
"""Steps without traffic after which a job counts as stopped."""

MAX_MEASURED = 256
"""Communicators of a job that are measured: all do the same steps."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a job, from its configuration.

    Attributes:
        parameters: Parameters of the whole model.
        data_parallel: Ranks that hold the same part of the model and process different data.
        model_parallel: Ranks that share one copy of the model: tensor parallel size times pipeline parallel size.
        precision: Number format of parameters as transmitted, a key of BYTES.
        gradient_precision: Number format of gradients; None for that of parameters.
        sharding: ZeRO stage: 0 none, 1 optimizer states, 2 also gradients, 3 also parameters (FSDP).
        accumulation: Micro-batches whose gradients are accumulated into one step.
        nodes: Hosts that a data-parallel group spans; None for one rank on each.
        algorithm: Algorithm of AllReduce: `ring`, or a key of WHOLE.
        bandwidth: Bytes per second of each rank's share of its host's links; None if unknown.
        active_parameters: Parameters used by one token, for a mixture of experts; None for all.
        tokens_per_step: Tokens of one step of the whole job.
        peak_flops: Peak floating-point operations per second of one GPU.
        least_mfu: Model FLOPs utilization below which an alert fires; None for no alert.
    """

    parameters: float
    data_parallel: int
    model_parallel: int = 1
    precision: str = "bf16"
    gradient_precision: str | None = None
    sharding: Literal[0, 1, 2, 3] = 0
    accumulation: int = 1
    nodes: int | None = None
    algorithm: str = "ring"
    bandwidth: float | None = None
    active_parameters: float | None = None
    tokens_per_step: float | None = None
    peak_flops: float | None = None
    least_mfu: float | None = None

    @property
    def hosts(self) -> int:
        """Hosts that a data-parallel group spans."""
        return self.data_parallel if self.nodes is None else self.nodes


class Operation(NamedTuple):
    """Collectives of a step: kind, size of each in bytes as nccl-tests counts it, and their number."""

    kind: str
    size: float
    times: int = 1

    @property
    def payload(self) -> float:
        """Sum of the sizes."""
        return self.size * self.times


class Measured(NamedTuple):
    """Measured values of the data-parallel communicators of a job.

    Attributes:
        step: Seconds of a step.
        network: Seconds of a step in which the network of the slowest one moved data; None if too few ranks report to
            separate it from waiting.
    """

    step: float
    network: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Expected and measured values of a step; None where unknown.

    Attributes:
        payload: Sum of the sizes of the collectives of a step, in bytes.
        traffic: Bytes that each rank sends over its link.
        expected_network: Least seconds that the network needs for that.
        measured: Measured values.
        mfu: Model FLOPs utilization.
    """

    payload: float
    traffic: float
    expected_network: float | None = None
    measured: Measured | None = None
    mfu: float | None = None

    @property
    def excess(self) -> float | None:
        """Measured over expected network time."""
        if self.measured is None or self.measured.network is None or not self.expected_network:
            return None
        return self.measured.network / self.expected_network

    @property
    def compute(self) -> float | None:
        """Seconds of a step left for computing if no network time overlaps with it."""
        if self.measured is None or self.measured.network is None:
            return None
        return max(0.0, self.measured.step - self.measured.network)

    @property
    def utilization(self) -> float | None:
        """Lower bound of the share of the step in which GPUs compute.

        The rest if no network time overlaps, or the operations of the model at peak speed, whichever is more.
        """
        if self.measured is None or self.compute is None:
            return None
        return max(self.compute / self.measured.step, min(self.mfu or 0.0, 1.0))


def operations(plan: Plan) -> tuple[Operation, ...]:
    """Return the collectives of a step over the data-parallel ranks, each as one for all parameters.

    Without sharding, gradients are summed on all ranks, once. With it, each rank gets the sum of its part: once, or for
    each micro-batch if gradients are sharded. Then parameters are gathered: once after the update, or for both passes
    of each micro-batch if they are sharded.
    """
    numbers = plan.parameters / plan.model_parallel
    gradients = numbers * BYTES[plan.gradient_precision or plan.precision]
    if plan.sharding == 0:
        return (Operation("AllReduce", gradients),)
    return (
        Operation("ReduceScatter", gradients, plan.accumulation if plan.sharding >= 2 else 1),
        Operation("AllGather", numbers * BYTES[plan.precision], 2 * plan.accumulation if plan.sharding == 3 else 1),
    )


def sent(operation: Operation, ranks: int, algorithm: str = "ring") -> float:
    """Return the bytes that each rank sends for collectives, and receives; 0 for a single rank."""
    if operation.kind == "AllReduce" and algorithm in WHOLE:
        return operation.payload * WHOLE[algorithm] if ranks > 1 else 0.0
    return operation.payload * (bus_factor(operation.kind, ranks) or 0.0)


def over_links(plan: Plan) -> float:
    """Return the bytes that each rank sends between hosts in a step.

    If several ranks of a group share a host, NCCL builds as many rings as they have links, each for a part of the data,
    so that each link carries that part of what a ring sends.
    """
    if plan.data_parallel < 2 or plan.hosts < 2:
        return 0.0
    whole = sum(sent(one, plan.data_parallel, plan.algorithm) for one in operations(plan))
    return whole * plan.hosts / plan.data_parallel


def operations_per_token(plan: Plan) -> float:
    """Return the floating-point operations per token."""
    return FLOPS * (plan.active_parameters or plan.parameters)


def peak(plan: Plan) -> float | None:
    """Return the peak floating-point operations per second of all GPUs of a job; None if unknown."""
    return None if plan.peak_flops is None else plan.peak_flops * plan.data_parallel * plan.model_parallel


def mfu(plan: Plan, step: float) -> float | None:
    """Return the model FLOPs utilization for a measured step in seconds; None if unknown."""
    most = peak(plan)
    if plan.tokens_per_step is None or most is None:
        return None
    return operations_per_token(plan) * plan.tokens_per_step / step / most


class StepSample(NamedTuple):
    """Traffic of a communicator since the sample before.

    Attributes:
        time: Time of the sample.
        steps: Number of steps that the traffic corresponds to.
        network: Seconds that it took without waiting; None if too few ranks report.
    """

    time: float
    steps: float
    network: float | None


class _Steps(NamedTuple):
    """Steps of one communicator in a window: their number, seconds per step, and network seconds per step if known."""

    steps: float
    step: float
    network: float | None


@dataclass(slots=True)
class StepMeter:
    """Measures the steps of one job.

    Attributes:
        plan: Plan of the job.
        samples: Samples of the last minutes with traffic, by communicator.
    """

    plan: Plan
    samples: dict[str, deque[StepSample]] = field(default_factory=dict)

    def add(self, job: Job, now: float) -> None:
        """Add what was settled now.

        Counts communicators that have as many ranks as the data-parallel size, span hosts if those do, and move the
        kinds of the plan.
        """
        plan, wanted = self.plan, operations(self.plan)
        payload, kinds = sum(one.payload for one in wanted), {one.kind for one in wanted}
        for name in [name for name, samples in self.samples.items() if now - samples[-1].time > WINDOWS[-1]]:
            del self.samples[name]
        for name, communicator in job.communicators.items():
            if communicator.ranks != plan.data_parallel or (nodes_of(job, communicator) == 1) != (plan.hosts == 1):
                continue
            size, took = _moved_now(communicator, kinds, now)
            if size and (name in self.samples or len(self.samples) < MAX_MEASURED):
                samples = self.samples.setdefault(name, deque())
                samples.append(StepSample(now, size / payload, took if _has_enough_ranks(communicator) else None))
                while now - samples[0].time > WINDOWS[-1]:
                    samples.popleft()

    def measured(self, now: float) -> Measured | None:
        """Return the measured values; None while too few steps were measured, and after steps stopped.

        The communicators with about as many steps as the busiest count: others have that size by coincidence. The step
        is the median of theirs, and the network time that of the slowest: the step ends when it ends.
        """
        for window in WINDOWS:
            found = [one for samples in self.samples.values() if (one := _steps_of(samples, window, now)) is not None]
            most = max((one.steps for one in found), default=0.0)
            found = [one for one in found if one.steps >= SAME_WORK * most]
            if most >= (FEW if window == WINDOWS[-1] else ENOUGH):
                network_times = [one.network for one in found if one.network is not None]
                return Measured(median(one.step for one in found), max(network_times, default=None))
        return None


def _steps_of(samples: Reversible[StepSample], window: float, now: float) -> _Steps | None:
    """Return the steps of one communicator; None if it had none, or is of an earlier run."""
    samples_in_window = list(takewhile(lambda one: now - one.time <= window, reversed(samples)))  # the newest first
    steps = sum(one.steps for one in samples_in_window[:-1])  # the oldest only marks when the rest began
    if not steps:
        return None
    step = (samples_in_window[0].time - samples_in_window[-1].time) / steps
    if now - samples_in_window[0].time > max(WINDOWS[0], STOPPED * step):
        return None
    network = [one.network for one in samples_in_window]
    whole = steps + samples_in_window[-1].steps
    return _Steps(steps, step, None if None in network else sum(one or 0.0 for one in network) / whole)


def _moved_now(communicator: Communicator, kinds: set[str], now: float) -> tuple[float, float]:
    """Return the bytes settled now, and the seconds that they took without waiting."""
    if not communicator.ticks or communicator.ticks[-1].time != now:
        return 0.0, 0.0
    found = [moved for (kind, _), moved in communicator.ticks[-1].bus.items() if kind in kinds]
    return sum(one.size for one in found), sum(one.microseconds for one in found) / 1e6


def _has_enough_ranks(communicator: Communicator) -> bool:
    """Return whether enough ranks report for the last one to start to be among them."""
    return len(communicator.members) >= MIN_MATCHED_SHARE * communicator.ranks


def budget(plan: Plan, measured: Measured | None = None) -> Budget:
    """Return the expected values of a step together with the measured ones."""
    payload = sum(one.payload for one in operations(plan)) if plan.data_parallel > 1 else 0.0
    traffic = over_links(plan)
    expected = traffic / plan.bandwidth if plan.bandwidth else None
    return Budget(payload, traffic, expected, measured, None if measured is None else mfu(plan, measured.step))


MEASURED: Mapping[str, Ending] = MappingProxyType(
    {
        "step_seconds": gauge(
            "Time of a training step, derived from the bytes that data-parallel collectives moved and the bytes that"
            " the configured model moves in a step."
        ),
        "step_network_seconds": gauge(
            "Time of the data-parallel collectives of a step in the slowest group, from the last rank to start, so"
            " without waiting; only of groups of which nine tenths of the ranks report here."
        ),
        "step_network_excess_ratio": gauge("Measured network time of a step over the least time that it needs."),
        "step_exposed_compute_seconds": gauge(
            "Time of a step left for computing if no network time overlaps with it: a lower bound."
        ),
        "step_utilization_least_ratio": gauge(
            "Lower bound of the share of a step in which GPUs compute: the rest if no network time overlaps with"
            " computing, or the operations of the model at peak speed, whichever is more."
        ),
        "model_flops_utilization_ratio": gauge(
            "Model FLOPs utilization (MFU): share of the peak of all GPUs, by the configured tokens of a step and its"
            " measured time."
        ),
    }
)
"""Exported values that are measured."""

CONFIGURED: Mapping[str, Ending] = MappingProxyType(
    {
        "step_network_expected_seconds": gauge(
            "Least time that the data-parallel collectives of a step need, by the configured model and its links."
        ),
        "model_flops_utilization_wanted_ratio": gauge("Model FLOPs utilization below which an alert fires."),
        "model_operations_per_token": gauge(
            "Floating-point operations per token: six for each parameter that it uses."
        ),
        "peak_operations_per_second": gauge("Peak floating-point operations per second of all GPUs of the job."),
    }
)
"""Exported values that follow from the configuration alone."""


def values(plan: Plan, found: Budget) -> dict[str, float | None]:
    """Return the exported values of a plan and its budget, by ending."""
    measured = found.measured
    return {
        "step_seconds": None if measured is None else measured.step,
        "step_network_seconds": None if measured is None else measured.network,
        "step_network_excess_ratio": found.excess,
        "step_exposed_compute_seconds": found.compute,
        "step_utilization_least_ratio": found.utilization,
        "model_flops_utilization_ratio": found.mfu,
        "step_network_expected_seconds": found.expected_network,
        "model_flops_utilization_wanted_ratio": plan.least_mfu,
        "model_operations_per_token": operations_per_token(plan),
        "peak_operations_per_second": peak(plan),
    }
