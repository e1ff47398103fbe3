"""Runs of the simulated fabric, each with a fault at a random place and time, and the alerts of the shipped rules."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from exporter.simulator.fabric.fault_table import KINDS
from exporter.simulator.fabric.faults import targets
from exporter.simulator.fabric.topology import Shape, Topology

from .shipped_rules import RecordedSeries, alerts_of, rule_names
from .truth import is_shown, samples
from .virtual_fabric import INTERVAL, Scrape, VirtualFabric

HEALTHY = "healthy"
"""Name of a run without a fault."""

HEALTHY_SECONDS = 3600.0

LEAD = (300.0, 420.0)
"""Seconds before a fault begins, from and to: rules look for ports that were used in steps of five minutes."""

LONG_LEAD = (960.0, 1080.0)
"""The same for faults that are compared with the quarter of an hour before."""

FAULT_SECONDS, CRITICAL_SECONDS = 1080.0, 480.0
"""Seconds of a fault: warnings take a quarter of an hour, pages some minutes."""

LOGGED = frozenset({"gpudirect-off"})
"""Faults that only NCCL's log shows; all other jobs run without a log."""

SPARSE, DENSE_SECONDS = 2, 180.0
"""Of scrapes at which nothing is expected to change, each SPARSE-th is enough: rules are made for up to a minute. All
of the first seconds after an onset are needed, for the time to evidence."""

_COMPARED = frozenset({"flapping-link", "slower-job"})

_CRITICAL = frozenset(
    {
        "flapping-link",
        "missing-port",
        "pause-storm",
        "spine-gone",
        "switch-silent",
        "switch-rebooted",
        "tcp",
        "hanging-process",
        "hanging-link",
        "broker-gone",
    }
)
"""Faults that page within minutes if at all."""

_OFTEN = frozenset({"link-down"})
"""Those of which some page within minutes, and others, as that of an uplink, are a ticket later."""


class Plan(msgspec.Struct, frozen=True):
    """A run: its number, fault, target (empty if it has none), onset and end in seconds."""

    number: int
    fault: str
    target: str
    onset: float
    seconds: float

    @property
    def faults(self) -> list[str]:
        """The fault, as the simulator reads it."""
        if self.fault == HEALTHY:
            return []
        return [f"{self.fault}{':' if self.target else ''}{self.target}@{self.onset * 1000:.0f}ms"]


class AlertSeen(msgspec.Struct, frozen=True):
    """An alert, with the seconds at which its expression was first true, it fired, and it was last active."""

    labels: dict[str, str]
    true: float
    fired: float | None
    last: float


class Evidence(msgspec.Struct, frozen=True):
    """Verdict on the job and likely causes at a time: those that differ from the time before.

    Attributes:
        sign: Whether the metric of the fault's detector shows it, by `truth.SIGNS`.
        states: Host or switch, port and kind of published states of ports.
        causes: Kind, host or switch, port and confidence of each, most likely first.
    """

    time: float
    sign: bool
    states: tuple[tuple[str, str, str], ...]
    verdict: str
    stragglers: tuple[str, ...]
    causes: tuple[tuple[str, str, str, float], ...]

    @property
    def findings(self) -> tuple[object, ...]:
        """All but the time and the confidence."""
        return self.sign, self.states, self.verdict, self.stragglers, [one[:3] for one in self.causes]


class Outcome(msgspec.Struct, frozen=True):
    """What a run showed."""

    plan: Plan
    alerts: list[AlertSeen]
    evidence: list[Evidence]


def plans(seed: int) -> Iterator[Plan]:
    """Yield runs without end: all faults and one run without, again and again, each at another place and time."""
    topology, number = Topology(Shape()), 0
    while True:
        for fault in (*KINDS, HEALTHY):
            number += 1
            yield _plan(number, fault, Random(f"{seed} {number}"), topology)


def _plan(number: int, fault: str, chance: Random, topology: Topology) -> Plan:
    if fault == HEALTHY:
        return Plan(number, fault, "", HEALTHY_SECONDS, HEALTHY_SECONDS)
    kind = KINDS[fault]
    places = targets(kind.place, topology)
    target = chance.choice(places) if places else ""
    onset = chance.uniform(*(LONG_LEAD if fault in _COMPARED else LEAD))
    return Plan(number, fault, target, onset, onset + (CRITICAL_SECONDS if fault in _CRITICAL else FAULT_SECONDS))


def scrape_times(plan: Plan) -> Iterator[float]:
    """Yield the times of scrapes: each minute where nothing is expected to change, else each INTERVAL.

    A job has no level of before where it is read each minute.
    """
    often = plan.fault in _CRITICAL | _COMPARED | _OFTEN
    for place in range(1, int(plan.seconds / INTERVAL) + 1):
        time = place * INTERVAL
        if place % SPARSE == 0 or often or 0 < time - plan.onset < DENSE_SECONDS:
            yield time


def run(plan: Plan) -> Outcome:
    """Simulate a run; in a process of its own."""
    return asyncio.run(_run(plan))


async def _run(plan: Plan) -> Outcome:
    series, evidence = RecordedSeries(rule_names(), INTERVAL), list[Evidence]()
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        async with VirtualFabric(
            Path(folder), faults=plan.faults, seed=plan.number, logs=plan.fault in LOGGED
        ) as fabric:
            async for scrape in fabric.scrapes(scrape_times(plan)):
                series.add(scrape.time, scrape.pages)
                found = evidence_in(plan, scrape)
                if not evidence or evidence[-1].findings != found.findings:
                    evidence.append(found)
    alerts = await asyncio.to_thread(alerts_of, series)
    return Outcome(
        plan,
        [AlertSeen(dict(one.labels), one.true, one.fired, one.last) for one in alerts],
        evidence,
    )


def evidence_in(plan: Plan, scrape: Scrape) -> Evidence:
    """Return what a scrape shows of a fault and of the job."""
    sign = plan.fault != HEALTHY and is_shown(plan.fault, plan.target, scrape.pages)
    verdict, stragglers, causes = "", [], []
    for name, labels, value in samples(scrape.pages["collector"] or ()):
        if name == "fabric_nccl_verdict" and value == 1:
            verdict = labels["verdict"]
        elif name == "fabric_nccl_straggler" and value == 1:
            stragglers.append(labels["rank"])
        elif name == "fabric_nccl_cause_confidence":
            causes.append((labels["cause"], labels.get("name", ""), labels.get("port", ""), value))
    causes.sort(key=lambda one: -one[3])
    return Evidence(scrape.time, sign, tuple(scrape.states), verdict, tuple(stragglers), tuple(causes))


def _memory() -> str | None:
    """Return a folder in memory, where there is one: files of simulated devices change all the time."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
