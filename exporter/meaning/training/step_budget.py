"""The budget of a training step: how long its network should take, how long it does, and what is left for computing.

What a step must move follows from the model: gradients of all parameters are added up over the data-parallel ranks, and
parameters that are kept in parts are collected before they are used. How much of it crosses each rank's link follows
from the algorithm; how long that takes at best, from the speed of the links. Beside it stands what was measured: steps
are told by the bytes that were moved, and the time of the network from the last rank to come, so without waiting.

Timings do not tell how much of the network's time is hidden behind computing. What depends on it is given as its lower
end: as if nothing were.
"""

from collections import deque
from collections.abc import Mapping, Reversible
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import fmean, median
from typing import Literal, NamedTuple

from exporter.core.collectives import bus_factor
from exporter.core.vocabulary import Ending, gauge
from exporter.meaning.training.alignment import Communicator, Job, nodes_of
from exporter.meaning.training.verdicts import MATCHED

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number as it is sent."""

Algorithm = Literal["ring", "tree", "sharp"]

WHOLE: Mapping[str, float] = {"tree": 2.0, "sharp": 1.0}
"""What a rank sends for an AllReduce, over its size, where not a ring does it: up and down a tree; or once, where
switches add up."""

FLOPS = 6
"""Floating-point operations for each parameter and token: two forwards, four backwards. Attention comes on top."""

LEAST_MFU = 0.4
"""Share of the GPUs' peak below which something is wrong, where the configuration says nothing else."""

WINDOWS = (60.0, 180.0, 600.0)
"""Seconds that are measured: the shortest that have ENOUGH steps, or the longest if they have a FEW."""

ENOUGH, FEW = 10.0, 3.0

SAME_WORK = 0.5
"""Share of what the busiest communicator moved that others of its size must have moved to be taken for its like."""

STOPPED = 3.0
"""Steps without any traffic after which a job is taken to have stopped."""

MAX_MEASURED = 256
"""Communicators of a job that are measured: all do the same steps."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a job from its configuration.

    Attributes:
        parameters: Of the whole model.
        data_parallel: Ranks that each hold the same part of the model and see other data.
        model_parallel: Ranks that share one copy of the model: tensor times pipeline.
        precision: Of parameters as they are sent.
        gradient_precision: Of gradients; None where it is the same.
        sharding: Stage of ZeRO: 0 none, 1 states of the optimiser, 2 also gradients, 3 also parameters (FSDP).
        accumulation: Batches whose gradients make one step.
        nodes: Hosts that a data-parallel group spans; None for one rank on each.
        algorithm: How AllReduce is done.
        bandwidth: Bytes per second of each rank's share of its host's links; None where not known.
        active_parameters: Those that a token uses, as of a mixture of experts; None for all.
        tokens_per_step: Of the whole job.
        peak_flops: Floating-point operations per second of one GPU.
        least_mfu: Share of the peak below which something is wrong.
    """

    parameters: float
    data_parallel: int
    model_parallel: int = 1
    precision: Precision = "bf16"
    gradient_precision: Precision | None = None
    sharding: Literal[0, 1, 2, 3] = 0
    accumulation: int = 1
    nodes: int | None = None
    algorithm: Algorithm = "ring"
    bandwidth: float | None = None
    active_parameters: float | None = None
    tokens_per_step: float | None = None
    peak_flops: float | None = None
    least_mfu: float = LEAST_MFU

    @property
    def hosts(self) -> int:
        """Hosts that a data-parallel group spans."""
        return self.data_parallel if self.nodes is None else self.nodes


class Operation(NamedTuple):
    """Collectives that a step does some times: each of a size in bytes, as nccl-tests counts it."""

    kind: str
    size: float
    times: int = 1

    @property
    def payload(self) -> float:
        """Bytes that all of them are about."""
        return self.size * self.times


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
        """The least share of the step in which GPUs compute.

        What is left where nothing is hidden; or the model's own operations at full speed, where that is more.
        """
        if self.measured is None or self.compute is None:
            return None
        return max(self.compute / self.measured.step, min(self.mfu or 0.0, 1.0))


def operations(plan: Plan) -> tuple[Operation, ...]:
    """List the collectives of a step over the data-parallel ranks, each as one for all parameters.

    Without sharding, gradients are added up everywhere, once. With it, each rank gets the sum of its part: once, or for
    each batch where gradients are kept in parts. Then parameters are collected: once, after they were changed, or for
    both passes of each batch where they are kept in parts.
    """
    numbers = plan.parameters / plan.model_parallel
    gradients = numbers * BYTES[plan.gradient_precision or plan.precision]
    if plan.sharding == 0:
        return (Operation("AllReduce", gradients),)
    return (
        Operation("ReduceScatter", gradients, plan.accumulation if plan.sharding >= 2 else 1),
        Operation("AllGather", numbers * BYTES[plan.precision], 2 * plan.accumulation if plan.sharding == 3 else 1),
    )


def sent(operation: Operation, ranks: int, algorithm: Algorithm = "ring") -> float:
    """Give the bytes that each rank sends for collectives, and as many that it gets; nothing for a single rank."""
    if operation.kind == "AllReduce" and algorithm in WHOLE:
        return operation.payload * WHOLE[algorithm] if ranks > 1 else 0.0
    return operation.payload * (bus_factor(operation.kind, ranks) or 0.0)


def over_links(plan: Plan) -> float:
    """Give the bytes that each rank sends between hosts in a step.

    Where several ranks of a group share a host, NCCL makes as many rings as they have links, each of a part of the
    data, so that each link carries that part of what a ring does.
    """
    if plan.data_parallel < 2 or plan.hosts < 2:
        return 0.0
    whole = sum(sent(one, plan.data_parallel, plan.algorithm) for one in operations(plan))
    return whole * plan.hosts / plan.data_parallel


def operations_per_token(plan: Plan) -> float:
    """Give the floating-point operations that a token takes."""
    return FLOPS * (plan.active_parameters or plan.parameters)


def peak(plan: Plan) -> float | None:
    """Give what all GPUs of a job can do, in floating-point operations per second; None where it is not known."""
    return None if plan.peak_flops is None else plan.peak_flops * plan.data_parallel * plan.model_parallel


def mfu(plan: Plan, step: float) -> float | None:
    """Give the share of the GPUs' peak that the model gets, by the seconds of a step; None where it is not known."""
    most = peak(plan)
    if plan.tokens_per_step is None or most is None:
        return None
    return operations_per_token(plan) * plan.tokens_per_step / step / most


class Look(NamedTuple):
    """What a communicator moved since the look before.

    Attributes:
        time: When.
        steps: As many steps as that is.
        network: Seconds that it took without waiting; None where too few ranks are heard of to tell.
    """

    time: float
    steps: float
    network: float | None


class _Course(NamedTuple):
    """How it went with one communicator in a window: its steps, their seconds, and those of the network, if known."""

    steps: float
    step: float
    network: float | None


@dataclass(slots=True)
class Meter:
    """Measures the steps of one job.

    Attributes:
        plan: What is known of it.
        looks: By communicator, those at which it moved anything, of the last minutes.
    """

    plan: Plan
    looks: dict[str, deque[Look]] = field(default_factory=dict)

    def look(self, job: Job, now: float) -> None:
        """Take what was settled now.

        A communicator may count that has as many ranks as there are data-parallel ones, spans hosts if they do, and
        moves the kinds of the plan.
        """
        plan, wanted = self.plan, operations(self.plan)
        payload, kinds = sum(one.payload for one in wanted), {one.kind for one in wanted}
        for name in [name for name, looks in self.looks.items() if now - looks[-1].time > WINDOWS[-1]]:
            del self.looks[name]
        for name, communicator in job.communicators.items():
            if communicator.ranks != plan.data_parallel or (nodes_of(job, communicator) == 1) != (plan.hosts == 1):
                continue
            size, took = _moved_now(communicator, kinds, now)
            if size and (name in self.looks or len(self.looks) < MAX_MEASURED):
                looks = self.looks.setdefault(name, deque())
                looks.append(Look(now, size / payload, took if _is_heard(communicator) else None))
                while now - looks[0].time > WINDOWS[-1]:
                    looks.popleft()

    def measured(self, now: float) -> Measured | None:
        """Give what was measured; None while too few steps were seen, or where none are done any more.

        Of communicators that did about as many steps as the busiest the middle one counts: others are as large by
        chance.
        """
        for window in WINDOWS:
            courses = [one for looks in self.looks.values() if (one := _course(looks, window, now)) is not None]
            most = max((one.steps for one in courses), default=0.0)
            courses = [one for one in courses if one.steps >= SAME_WORK * most]
            if most >= (FEW if window == WINDOWS[-1] else ENOUGH):
                heard = [one.network for one in courses if one.network is not None]
                return Measured(median(one.step for one in courses), fmean(heard) if heard else None)
        return None


def _course(looks: Reversible[Look], window: float, now: float) -> _Course | None:
    """Tell how it went with one communicator; None where it did nothing, or is of a run that is over."""
    seen = list(takewhile(lambda one: now - one.time <= window, reversed(looks)))  # the newest first
    steps = sum(one.steps for one in seen[:-1])  # the oldest only marks when the rest began
    if not steps:
        return None
    step = (seen[0].time - seen[-1].time) / steps
    if now - seen[0].time > max(WINDOWS[0], STOPPED * step):
        return None
    took = [one.network for one in seen]
    whole = steps + seen[-1].steps
    return _Course(steps, step, None if None in took else sum(one or 0.0 for one in took) / whole)


def _moved_now(communicator: Communicator, kinds: set[str], now: float) -> tuple[float, float]:
    """Give the bytes that were settled now, and the seconds that they took without waiting."""
    if not communicator.ticks or communicator.ticks[-1].time != now:
        return 0.0, 0.0
    found = [moved for (kind, _), moved in communicator.ticks[-1].bus.items() if kind in kinds]
    return sum(one.size for one in found), sum(one.microseconds for one in found) / 1e6


def _is_heard(communicator: Communicator) -> bool:
    """Tell whether so many ranks are heard of that the last to come is among them."""
    return len(communicator.members) >= MATCHED * communicator.ranks


def budget(plan: Plan, measured: Measured | None = None) -> Budget:
    """Set a step as it should be beside as it is."""
    payload = sum(one.payload for one in operations(plan)) if plan.data_parallel > 1 else 0.0
    traffic = over_links(plan)
    expected = traffic / plan.bandwidth if plan.bandwidth else None
    return Budget(payload, traffic, expected, measured, None if measured is None else mfu(plan, measured.step))


MEASURED: Mapping[str, Ending] = {
    "step_seconds": gauge(
        "Time of a training step, told from the bytes that data-parallel collectives moved over those that the"
        " configured model moves in a step."
    ),
    "step_network_seconds": gauge(
        "Time of the data-parallel collectives of a step, from the last rank to come, so without waiting; absent where"
        " less than nine tenths of their ranks are heard of here."
    ),
    "step_network_excess_ratio": gauge("Measured time of a step's network over the least that it should need."),
    "step_exposed_compute_seconds": gauge(
        "Time of a step that is left for computing where none of the network's is hidden behind it: there may be more."
    ),
    "step_utilization_least_ratio": gauge(
        "Share of a step in which GPUs compute, at least: what is left where none of the network's time is hidden"
        " behind it, or the model's own operations at full speed, whichever is more. Below 0.5 is bad, below 0.2"
        " severe, as far as the network is not hidden."
    ),
    "model_flops_utilization_ratio": gauge(
        "Share of the GPUs' peak that the model gets (MFU), by the configured tokens of a step and its measured time."
    ),
}
"""What is exported of a budget, by job, where it was measured."""

CONFIGURED: Mapping[str, Ending] = {
    "step_network_expected_seconds": gauge(
        "Time that the data-parallel collectives of a step need at least, by the configured model and its links."
    ),
    "model_flops_utilization_wanted_ratio": gauge("Share of the GPUs' peak below which something is wrong."),
    "model_operations_per_token": gauge(
        "Floating-point operations for a token: six for each of the parameters that it uses."
    ),
    "peak_operations_per_second": gauge("Floating-point operations that all GPUs of the job can do in a second."),
}
"""What follows from the configuration alone."""


def values(plan: Plan, found: Budget) -> dict[str, float | None]:
    """Give what is exported of a plan and its budget, by ending."""
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
