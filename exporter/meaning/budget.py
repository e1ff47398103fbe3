"""The budget of a training step: how long its network should take, how long it does, and what is left for computing.

What a step must move follows from the model: gradients of all parameters, in their precision, are added up over the
data-parallel ranks, and parameters that are kept in parts are collected before they are used. How much of it crosses
each rank's link follows from the algorithm; how long that takes at best, from the speed of the links. Beside it stands
what was measured: steps are told by the bytes that were moved, and the time of the network from the last rank to come,
so without waiting.

Timings do not tell how much of the network's time is hidden behind computing. What depends on it is given as its lower
end, where nothing is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from exporter.kinds import bus_factor
from exporter.meaning.collectives import HISTORY, Communicator, Job, nodes_of, summed
from exporter.meaning.verdicts import MATCHED
from exporter.vocabulary import Ending, gauge

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number as it is sent."""

Algorithm = Literal["ring", "tree", "sharp"]

WHOLE: Mapping[str, float] = {"tree": 2.0, "sharp": 1.0}
"""What a rank sends for an AllReduce, over its size, where not a ring does it: up and down a tree; or once, where
switches add up."""

FLOPS = 6
"""Floating-point operations for each parameter and token: two forwards, four backwards. Attention comes on top."""

FULL_STEPS = 3.0
"""Steps that must have been moved within the window for their time to be told."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a job from its configuration.

    Attributes:
        parameters: Of the whole model.
        data_parallel: Ranks that each hold the same part of the model and see other data.
        model_parallel: Ranks that share one copy of the model: tensor times pipeline.
        precision: Of gradients and parameters as they are sent.
        sharding: Stage of ZeRO: 0 none, 1 states of the optimiser, 2 also gradients, 3 also parameters (FSDP).
        nodes: Hosts that a data-parallel group spans; None for one rank on each.
        algorithm: How AllReduce is done.
        bandwidth: Bytes per second of each rank's share of its host's links; None where not known.
        tokens_per_second: Of the whole job.
        peak_flops: Floating-point operations per second of one GPU.
    """

    parameters: float
    data_parallel: int
    model_parallel: int = 1
    precision: Precision = "bf16"
    sharding: Literal[0, 1, 2, 3] = 0
    nodes: int | None = None
    algorithm: Algorithm = "ring"
    bandwidth: float | None = None
    tokens_per_second: float | None = None
    peak_flops: float | None = None


class Operation(NamedTuple):
    """What a step does once: a collective of a size in bytes, as nccl-tests counts it."""

    kind: str
    size: float


class Measured(NamedTuple):
    """What was measured of the data-parallel communicators of a job, as the mean of them.

    Attributes:
        step: Seconds of a step.
        network: Seconds in a step that the network moved data; None where too few ranks are heard of to tell that from
            waiting.
    """

    step: float
    network: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A step as it should be, beside as it is; None where it is not known.

    Attributes:
        payload: Bytes that the collectives of a step are about.
        traffic: Bytes that each rank sends over its link.
        expected_network: Seconds that the network needs for it at best.
        measured: What was seen.
        mfu: Share of the GPUs' peak that the model gets.
    """

    payload: float
    traffic: float
    expected_network: float | None = None
    measured: Measured | None = None
    mfu: float | None = None

    @property
    def excess(self) -> float | None:
        """The measured time of the network over the expected one."""
        if self.measured is None or self.measured.network is None or not self.expected_network:
            return None
        return self.measured.network / self.expected_network

    @property
    def compute(self) -> float | None:
        """Seconds of a step that are left for computing where none of the network's time is hidden behind it."""
        if self.measured is None or self.measured.network is None:
            return None
        return max(0.0, self.measured.step - self.measured.network)

    @property
    def utilization(self) -> float | None:
        """The least share of the step in which GPUs compute: more where computing hides some of the network's time."""
        return None if self.measured is None or self.compute is None else self.compute / self.measured.step


def operations(plan: Plan) -> tuple[Operation, ...]:
    """List the collectives of a step over the data-parallel ranks, each as one.

    Without sharding, gradients are added up everywhere. With it, each rank gets the sum of its part; then parameters
    are collected: once, after they were changed, or for each pass through the model where they are kept in parts.
    """
    size = plan.parameters * BYTES[plan.precision] / plan.model_parallel
    if plan.sharding == 0:
        return (Operation("AllReduce", size),)
    collected = 2 if plan.sharding == 3 else 1
    return (Operation("ReduceScatter", size), *[Operation("AllGather", size)] * collected)


def sent(operation: Operation, ranks: int, algorithm: Algorithm = "ring") -> float:
    """Give the bytes that each rank sends for a collective, and as many that it gets; nothing for a single rank."""
    if operation.kind == "AllReduce" and algorithm in WHOLE:
        return operation.size * WHOLE[algorithm] if ranks > 1 else 0.0
    return operation.size * (bus_factor(operation.kind, ranks) or 0.0)


def over_links(plan: Plan) -> float:
    """Give the bytes that each rank sends between hosts in a step.

    Where several ranks of a group share a host, they add up there first: of what each sends, (k - 1) / (n - 1) leaves
    the host, with n ranks on k of them.
    """
    ranks = plan.data_parallel
    nodes = ranks if plan.nodes is None else plan.nodes
    if ranks < 2 or nodes < 2:
        return 0.0
    return sum(sent(one, ranks, plan.algorithm) for one in operations(plan)) * (nodes - 1) / (ranks - 1)


def peak(plan: Plan) -> float | None:
    """Give what all GPUs of a job can do, in floating-point operations per second; None where it is not known."""
    return None if plan.peak_flops is None else plan.peak_flops * plan.data_parallel * plan.model_parallel


def mfu(plan: Plan) -> float | None:
    """Give the share of the GPUs' peak that the model gets; None where tokens or the peak are not known."""
    most = peak(plan)
    if plan.tokens_per_second is None or most is None:
        return None
    return FLOPS * plan.parameters * plan.tokens_per_second / most


def measure(plan: Plan, job: Job, now: float) -> Measured | None:
    """Measure steps of a job; None while too few were seen.

    A communicator counts that has as many ranks as there are data-parallel ones and moves the kinds of the plan; of
    several that do, such as those of each part of the model, the mean is taken. Groups of tensor parallelism that
    happen to be as large are told apart only where they do not span hosts.
    """
    nodes = plan.data_parallel if plan.nodes is None else plan.nodes
    wanted = operations(plan)
    payload = sum(one.size for one in wanted)
    kinds = {one.kind for one in wanted}
    since = max(now - HISTORY, job.since)
    seconds = now - since
    steps: list[float] = []
    network: list[float] = []
    for communicator in job.communicators.values():
        if communicator.ranks == plan.data_parallel and (nodes_of(job, communicator) or nodes) == nodes:
            size, took = _moved(communicator, kinds, since)
            if size:
                steps.append(size / payload)
                if len(communicator.members) >= MATCHED * communicator.ranks:
                    network.append(took * payload / size)
    if not steps or fmean(steps) < FULL_STEPS or seconds <= 0:
        return None
    return Measured(seconds / fmean(steps), fmean(network) if network else None)


def _moved(communicator: Communicator, kinds: set[str], since: float) -> tuple[float, float]:
    """Give the bytes that a communicator moved, and the seconds that it took without waiting."""
    bus = summed(communicator.ticks, since).bus
    found = [moved for (kind, _), moved in bus.items() if kind in kinds]
    return sum(one.size for one in found), sum(one.microseconds for one in found) / 1e6


def budget(plan: Plan, measured: Measured | None = None) -> Budget:
    """Set a step as it should be beside as it is."""
    payload = sum(one.size for one in operations(plan)) if plan.data_parallel > 1 else 0.0
    traffic = over_links(plan)
    return Budget(payload, traffic, traffic / plan.bandwidth if plan.bandwidth else None, measured, mfu(plan))


ENDINGS: Mapping[str, Ending] = {
    "step_seconds": gauge(
        "Time of a training step, told from the bytes that data-parallel collectives moved over those that the"
        " configured model moves in a step."
    ),
    "step_network_expected_seconds": gauge(
        "Time that the data-parallel collectives of a step need at least, by the configured model and its links."
    ),
    "step_network_seconds": gauge(
        "Time of the data-parallel collectives of a step, from the last rank to come, so without waiting; absent where"
        " less than nine tenths of their ranks are heard of here."
    ),
    "step_network_excess_ratio": gauge("Measured time of a step's network over the expected one."),
    "step_exposed_compute_seconds": gauge(
        "Time of a step that is left for computing where none of the network's is hidden behind it: there may be more."
    ),
    "step_utilization_least_ratio": gauge(
        "Share of a step in which GPUs compute, where none of the network's time is hidden behind it: it may be more."
        " Below 0.5 is bad, below 0.2 severe."
    ),
    "model_flops_utilization_ratio": gauge(
        "Share of the GPUs' peak that the model gets, by the configured tokens per second: 0.55 to 0.70 is good, below"
        " 0.40 something is wrong."
    ),
    "model_operations_per_token": gauge(
        "Floating-point operations for a token, by the configured parameters: six for each."
    ),
    "peak_operations_per_second": gauge(
        "Floating-point operations that all GPUs of the job can do in a second, by the configuration."
    ),
}
"""What is exported of a budget, by job."""


def values(plan: Plan, found: Budget) -> dict[str, float | None]:
    """Give what is exported of a plan and its budget, by ending."""
    measured = found.measured
    return {
        "step_seconds": None if measured is None else measured.step,
        "step_network_expected_seconds": found.expected_network,
        "step_network_seconds": None if measured is None else measured.network,
        "step_network_excess_ratio": found.excess,
        "step_exposed_compute_seconds": found.compute,
        "step_utilization_least_ratio": found.utilization,
        "model_flops_utilization_ratio": found.mfu,
        "model_operations_per_token": FLOPS * plan.parameters,
        "peak_operations_per_second": peak(plan),
    }
