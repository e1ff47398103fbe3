"""Scenarios: a job on some hardware with its faults, run to the end: its records, and the loss that faults cause."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from exporter.simulator.training.engine import Execution, Machine
from exporter.simulator.training.faults import (
    DeadAdapter,
    Event,
    Restart,
    SlowAdapter,
    SlowHost,
    SlowNetwork,
    SlowRank,
    StoppedRank,
)
from exporter.simulator.training.hardware import Bandwidth, Hardware, Variation
from exporter.simulator.training.programs import Layout
from exporter.simulator.training.records import Record, Reporter, Reporting

FAULTS = (SlowRank, SlowHost, SlowAdapter, SlowNetwork, StoppedRank, DeadAdapter)
"""Events that a healthy job does not have."""


@dataclass(frozen=True)
class Scenario:
    """One job.

    Attributes:
        layout: Its parallelism.
        seconds: Length.
        events: Faults, and what happens in healthy jobs.
        variation: What varies.
        bandwidth: Bandwidth of its links.
        reporting: How its ranks report.
        job: Its name.
        seed: Seed of all random numbers.
        gpus_per_node: GPUs of each host.
    """

    layout: Layout
    seconds: float = 180.0
    events: Sequence[Event] = ()
    variation: Variation = field(default_factory=Variation)
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    reporting: Reporting = field(default_factory=Reporting)
    job: str = "llm"
    seed: int = 1
    gpus_per_node: int = 8


@dataclass(frozen=True, slots=True)
class Simulated:
    """Records in order of their arrival, and the times at which rank 0 completed steps."""

    records: list[Record]
    steps: list[float]


def simulate(scenario: Scenario) -> Simulated:
    """Run a scenario."""
    records: list[Record] = []
    steps: list[float] = []
    begin = 0.0
    ends = [(one.at, one.pause) for one in scenario.events if isinstance(one, Restart)]
    for run, (end, pause) in enumerate([*ends, (scenario.seconds, 0.0)]):
        execution, reporter = _run(scenario, run, begin)
        found = reporter.records(execution.run(end), scenario.seconds)
        records += [one for one in found if one.arrived <= min(end + scenario.reporting.interval, scenario.seconds)]
        steps += execution.steps
        begin = end + pause
    records.sort(key=lambda one: one.arrived)
    return Simulated(records, steps)


def _run(scenario: Scenario, run: int, begin: float) -> tuple[Execution, Reporter]:
    layout = scenario.layout
    seed = scenario.seed * 1000 + run
    hardware = Hardware(layout, scenario.events, scenario.variation, scenario.bandwidth, scenario.gpus_per_node, seed)
    machine = Machine(hardware.program, hardware.compute, hardware.transfer)
    execution = Execution(layout.communicators, machine, layout.ranks, begin)
    reporter = Reporter(
        scenario.job, list(layout.communicators), scenario.gpus_per_node, scenario.reporting, scenario.seed, run
    )
    return execution, reporter


def true_loss(scenario: Scenario, since: float = 0.0) -> float:
    """Return the share of time that the faults of a scenario cost from a time on: from rates of steps with and without.

    The step in which the faults begin is left out.
    """
    healthy = replace(scenario, events=[one for one in scenario.events if not isinstance(one, FAULTS)])
    with_faults, without = (_steps_per_second(one, since) for one in (scenario, healthy))
    return 1 - with_faults / without


def _steps_per_second(scenario: Scenario, since: float) -> float:
    execution, _ = _run(scenario, 0, 0.0)
    for _ in execution.run(scenario.seconds):
        pass
    first, *others = [time for time in execution.steps if time >= since][1 if since else 0 :]
    return len(others) / (others[-1] - first)
