"""What differs from a healthy cluster at one time: the state of each cable, adapter and switch, and of the job.

Faults act on these fields only; counters and durations follow from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from exporter.simulator.fabric.topology import Cable, End


@dataclass(frozen=True, slots=True)
class CableState:
    """State of a link.

    Attributes:
        speed: Share of its speed at which it came up.
        up: Whether it is up.
        flaps: Whether it comes up again before RDMA gives up: what needs it waits, and uses no other.
        loss_up: Share of the frames towards the spines that arrive damaged.
        loss_down: Share of the frames towards the hosts that arrive damaged.
        light: Share of the usual optical power that the lower end receives.
    """

    speed: float = 1.0
    up: bool = True
    flaps: bool = False
    loss_up: float = 0.0
    loss_down: float = 0.0
    light: float = 1.0


@dataclass(frozen=True, slots=True)
class AdapterState:
    """State of an adapter.

    Attributes:
        present: Whether it is on its PCIe bus.
        storm: Share of all time for which it pauses its leaf.
        pausing: Share of the time with traffic for which it pauses its leaf.
        memory_rate: Bits per second between it and memory.
        staged: Whether data passes through the memory of the CPU: GPUDirect RDMA is off.
        reacts: Whether it reduces its rate when it receives CNPs.
        forwards: Whether what it sends arrives.
        swapped: Whether its cable leads to the leaf of another rail.
    """

    present: bool = True
    storm: float = 0.0
    pausing: float = 0.0
    memory_rate: float = 500e9
    staged: bool = False
    reacts: bool = True
    forwards: bool = True
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class SwitchState:
    """State of a switch.

    Attributes:
        running: Whether it forwards; False while it restarts.
        answers: Whether its management answers.
        favoured: For a spine, the share of all flows that are hashed to it; 0 for an equal part.
    """

    running: bool = True
    answers: bool = True
    favoured: float = 0.0


@dataclass(frozen=True, slots=True)
class RankState:
    """State of the process of a rank.

    Attributes:
        slower: Share by which it computes longer.
        stopped: Whether it hangs.
    """

    slower: float = 0.0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class JobState:
    """State of the job.

    Attributes:
        rdma: Whether it uses RDMA; otherwise TCP.
        lossless: Whether its traffic has a priority with PFC.
        every: It uses every n-th adapter only.
        slower: Share by which all ranks compute longer.
        rotating: Share by which one rank computes longer, each few steps another one.
    """

    rdma: bool = True
    lossless: bool = True
    every: int = 1
    slower: float = 0.0
    rotating: float = 0.0


@dataclass(frozen=True, slots=True)
class MonitoringState:
    """Which parts of the monitoring run: the poller of switches, and the broker."""

    poller: bool = True
    broker: bool = True


State = TypeVar("State", CableState, AdapterState, SwitchState, RankState, JobState, MonitoringState)


def worst(one: State, other: State) -> State:
    """Return of each field of two states the value that is farther from the healthy one."""
    healthy = type(one)()
    changes = {}
    for name in (found.name for found in fields(one)):
        values = getattr(one, name), getattr(other, name)
        changes[name] = max(values, key=lambda value: abs(value - getattr(healthy, name)))
    return replace(one, **changes)


@dataclass(frozen=True)
class Conditions:
    """The state of everything; what is not listed is healthy.

    Attributes:
        cables: States of links, by their lower end.
        adapters: States of adapters, by their ports.
        switches: States of switches, by name.
        ranks: States of processes, by rank.
        job: State of the job.
        monitoring: State of the monitoring.
    """

    cables: Mapping[End, CableState] = field(default_factory=dict)
    adapters: Mapping[End, AdapterState] = field(default_factory=dict)
    switches: Mapping[str, SwitchState] = field(default_factory=dict)
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    job: JobState = JobState()
    monitoring: MonitoringState = MonitoringState()

    def cable(self, cable: Cable) -> CableState:
        """Return the state of a link; it is down where a device at one of its ends is gone or does not run."""
        state = self.cables.get(cable.lower, CableState())
        ends = cable.lower.device, cable.upper.device
        if self.adapter(cable.lower).present and all(self.switch(device).running for device in ends):
            return state
        return replace(state, up=False)

    def adapter(self, adapter: End) -> AdapterState:
        """Return the state of an adapter."""
        return self.adapters.get(adapter, AdapterState())

    def switch(self, name: str) -> SwitchState:
        """Return the state of a switch."""
        return self.switches.get(name, SwitchState())

    def rank(self, rank: int) -> RankState:
        """Return the state of a rank."""
        return self.ranks.get(rank, RankState())
