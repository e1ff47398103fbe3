"""The running model: a job on a fabric with its faults, and the ports of all its devices.

model = FabricModel(faults=["pause-storm:gpu-002/4@60s-120s"])
collectives = model.advance(1.0)
model.ports[model.topology.adapter("gpu-002", 4)].counters["sent_pause_frames"]
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from exporter.simulator.fabric.conditions import Conditions
from exporter.simulator.fabric.congestion import Exchange
from exporter.simulator.fabric.counting import count_background, count_exchange, count_timeouts
from exporter.simulator.fabric.faults import Plan, parse_fault
from exporter.simulator.fabric.job import Job, Transfer
from exporter.simulator.fabric.topology import Cable, End, Shape, Topology
from exporter.simulator.ports import CounterSet, SimulatedPort, new_port
from exporter.simulator.training.engine import Ended


class Queue(NamedTuple):
    """Bytes in the queue of a port of a switch in the last advance: the mean, and the most."""

    mean: float
    peak: float


class FabricModel:
    """The cluster.

    Attributes:
        plan: Its faults.
        topology: How it is meant to be cabled.
        time: Simulated seconds since the start.
        ports: All ports; their counters only grow, except for those of devices that restart.
        queues: Queues of ports in the last advance; none for ports without traffic.
        booted: Simulated second of the last start of each switch.
        job: Its job.
    """

    def __init__(self, faults: Iterable[str] = (), *, shape: Shape | None = None, seed: int = 1) -> None:
        """Create the cluster at its start.

        Args:
            faults: Faults, see `faults.GRAMMAR`.
            shape: Its sizes.
            seed: Seed of all random numbers.

        Raises:
            ValueError: A fault is invalid.
        """
        self.topology = Topology(shape or Shape())
        self.plan = Plan([parse_fault(text, self.topology) for text in faults], self.topology)
        self.time = 0.0
        self.job = Job(self.plan, seed=seed)
        self.ports = _ports(self.topology, random.Random(seed))
        self.queues: dict[End, Queue] = {}
        self.booted = dict.fromkeys((*self.topology.leaves, *self.topology.spines), 0.0)
        self._conditions, self._cabling = Conditions(), self.topology
        self._change()

    @property
    def conditions(self) -> Conditions:
        """What is wrong now."""
        return self._conditions

    @property
    def cabling(self) -> Topology:
        """How the cluster is cabled now."""
        return self._cabling

    def advance(self, seconds: float) -> list[Ended]:
        """Advance by some simulated seconds; return the collectives that ended."""
        end = self.time + seconds
        ended: list[Ended] = []
        filled: dict[End, list[tuple[float, float]]] = defaultdict(list)
        while self.time < end:
            until = min(end, self.plan.next_change(self.time))
            ended += self.job.run(self.time, until)
            self._count(until, filled)
            self.time = until
            self._change()
        self.queues = {
            port: Queue(sum(depth * busy for depth, busy in found) / seconds, max(depth for depth, _ in found))
            for port, found in filled.items()
        }
        return ended

    def _count(self, until: float, filled: dict[End, list[tuple[float, float]]]) -> None:
        """Count what happens up to a time at which conditions may change."""
        seconds = until - self.time
        for exchange, (moved, busy) in _parts(self.job.transfers, self.time, until).items():
            count_exchange(exchange, moved, busy, self.ports, self._conditions)
            for hop, traffic in exchange.hops.items():
                if traffic.queue:
                    filled[hop.sender].append((traffic.queue, busy))
        self.job.transfers = [one for one in self.job.transfers if one.end > until]
        count_background(seconds, self.ports, self._cabling, self._conditions)
        count_timeouts(seconds, self.ports, self._conditions, self._cabling)

    def _change(self) -> None:
        """Set the links as the conditions of this time have them."""
        conditions, cabling = self.plan.conditions(self.time), self.plan.cabling(self.time)
        for device in self.booted:
            if conditions.switch(device).running and not self._conditions.switch(device).running:
                self.booted[device] = self.time
                self._reset(device)
        for adapter in self._conditions.adapters:
            if conditions.adapter(adapter).present and not self._conditions.adapter(adapter).present:
                self.ports[adapter].counters = CounterSet({})  # an adapter that is added again counts from 0
        moved = {cable for cable in cabling.cables if self._cabling is not cabling} - set(self._cabling.cables)
        self._conditions, self._cabling = conditions, cabling
        for cable in cabling.cables:
            self._set_link(cable, conditions, plugged=cable in moved)

    def _reset(self, device: str) -> None:
        for end, port in self.ports.items():
            if end.device == device:
                port.counters = CounterSet({})

    def _set_link(self, cable: Cable, conditions: Conditions, *, plugged: bool) -> None:
        """Set both ends of a link, and count the changes."""
        state, shape = conditions.cable(cable), self.topology.shape
        full = shape.adapter_speed if cable.lower.device in self.topology.hosts else shape.uplink_speed
        for end, other in (cable, reversed(cable)):
            port = self.ports[end]
            speed = round(full * state.speed)
            if port.up and (plugged or (state.up and port.speed != speed)):  # it goes down and comes up
                port.counters.add("carrier_changes", 2)
                port.counters.add("link_down", 1)
                port.changed = self.time
            if port.up != state.up:
                port.counters.add("carrier_changes", 1)
                port.counters.add("link_down", not state.up)
                port.changed = self.time
            port.up, port.speed, port.alias = state.up, speed, f"{other.device} {other.port}"


def _parts(transfers: Iterable[Transfer], since: float, until: float) -> dict[Exchange, tuple[float, float]]:
    """Return the bytes moved and the seconds of each exchange that are in a period."""
    found: dict[Exchange, tuple[float, float]] = {}
    for one in transfers:
        busy = min(one.end, until) - max(one.begin, since)
        if busy > 0:
            moved, before = found.get(one.exchange, (0.0, 0.0))
            found[one.exchange] = moved + one.moved * busy / (one.end - one.begin), before + busy
    return found


def _ports(topology: Topology, rng: random.Random) -> dict[End, SimulatedPort]:
    """Create the ports of all devices, with the counters of some days."""
    ports = {}
    for cable in topology.cables:
        access = cable.lower.device in topology.hosts
        speed = topology.shape.adapter_speed if access else topology.shape.uplink_speed
        for end, other in (cable, reversed(cable)):
            kinds = ("rdma", "kernel", "multicast") if access else ("rdma", "multicast")
            ports[end] = new_port(rng, end.port, f"{other.device} {other.port}", speed, *kinds)
    return ports
