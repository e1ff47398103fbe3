"""The job of the cluster: the programs of its ranks, and the transfers of their collectives over the fabric.

Computing is that of the verdicts' simulator (`exporter.simulator.training`); how long a transfer takes comes from the
flows of the collective and the conditions at its time.
"""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from exporter.simulator.fabric.conditions import Conditions, JobState, RankState
from exporter.simulator.fabric.congestion import Exchange
from exporter.simulator.fabric.faults import Plan, ranks_of
from exporter.simulator.fabric.network import Network
from exporter.simulator.fabric.topology import Topology
from exporter.simulator.training.data_parallel import FullyShardedDataParallel
from exporter.simulator.training.engine import NEVER, Ended, Execution, Machine
from exporter.simulator.training.faults import Event, RotatingWork, SlowRank, StoppedRank
from exporter.simulator.training.hardware import SMALL, Bandwidth, Hardware, Variation, bus_bytes
from exporter.simulator.training.programs import CommunicatorLayout, Layout

INSIDE = 450e9
"""Bytes per second of the links of a GPU within its host."""

LATENCY = 30e-6
"""Seconds of a collective without data."""

TRANSFERS_VARY = 0.02
"""Standard deviation of the logarithm of the time of a transfer."""

RESTART = 5.0
"""Seconds from the end of what made the job hang to its next start."""

COMPUTE, LAYERS, LAYER_BYTES = 0.41, 12, 2400 << 20
"""Parts of a step of about 450 ms, in which adapters are busy for more than half of the time."""


class Transfer(NamedTuple):
    """A transfer of a collective between hosts.

    Attributes:
        begin: Second at which the last of its ranks had started it, and its links were up.
        end: Second at which it ends.
        moved: Bytes that its ring moves from each host to the next.
        exchange: How they are sent.
    """

    begin: float
    end: float
    moved: float
    exchange: Exchange


class Job:
    """The ranks of a job, which is started again when what made it hang is over.

    Attributes:
        layout: Its parallelism.
        steps: Times at which rank 0 completed each step.
        transfers: Transfers between hosts that were begun, for the reader to remove.
        unfinished: Collectives that had begun and not ended at the end of the last period.
        runs: Number of its starts.
    """

    def __init__(self, plan: Plan, layout: Layout | None = None, *, seed: int = 1) -> None:
        """Args: plan: The faults. layout: Its parallelism; by default FSDP over all GPUs. seed: Seed of the run."""
        ranks, rails = plan.topology.ranks, plan.topology.shape.rails
        self.layout: Layout = layout or FullyShardedDataParallel(ranks, COMPUTE, LAYERS, LAYER_BYTES, rails)
        self.steps: list[float] = []
        self.transfers: list[Transfer] = []
        self.unfinished: Sequence[Ended] = ()
        self.runs = 0
        self._hung_in: Conditions | None = None
        self._plan, self._seed = plan, seed
        self._network = Network(plan, seed)
        self._members = [_hosts_and_rails(one, plan.topology) for one in self.layout.communicators]
        self._start(0.0)

    @property
    def hangs(self) -> bool:
        """Whether it hangs, until what made it hang is over."""
        return self._hung_in is not None

    def run(self, since: float, until: float) -> list[Ended]:
        """Run in a period in which conditions do not change; return the collectives that ended."""
        conditions = self._plan.conditions(since)
        if self.hangs and conditions is not self._hung_in and not _makes_hang(conditions):
            self._start(since + RESTART)
        found = list(self._execution.run(until))
        self.unfinished = [one for one in found if one.end == NEVER]
        if _makes_hang(conditions):
            self._hung_in = conditions
        self.steps += self._execution.steps
        self._execution.steps.clear()
        return [one for one in found if one.end != NEVER]

    def _start(self, begin: float) -> None:
        self.runs += 1
        self._hung_in = None
        self.transfers = [one for one in self.transfers if one.end <= begin]
        seed = self._seed * 1000 + self.runs
        self._network.seed = seed
        self._noise = random.Random(seed)
        ranks, rails = self.layout.ranks, self._plan.topology.shape.rails
        events = _events(self._plan, ranks, begin)
        hardware = Hardware(self.layout, events, Variation(), Bandwidth(), rails, seed)
        machine = Machine(hardware.program, hardware.compute, self._transfer)
        self._execution = Execution(self.layout.communicators, machine, ranks, begin)

    def _transfer(self, communicator: int, kind: str, size: int, time: float) -> float:
        """Return the seconds of a transfer, from the last start of a rank; NEVER where it does not end."""
        members = len(self.layout.communicators[communicator].members)
        hosts, rails = self._members[communicator]
        moved = size * bus_bytes(kind, members) if size >= SMALL else 0.0
        inside = moved / INSIDE
        noise = math.exp(self._noise.gauss(0, TRANSFERS_VARY))
        if len(hosts) < 2:
            return LATENCY + inside * noise
        begin = time
        way = self._network.way(hosts, rails, begin)
        while way.waits and begin < NEVER:
            begin = self._plan.next_change(begin)
            way = self._network.way(hosts, rails, begin)
        if way.exchange is None:
            self._hung_in = self._plan.conditions(begin)
            return NEVER
        end = begin + LATENCY + max(moved * way.exchange.seconds_a_byte, inside) * noise
        self.transfers.append(Transfer(begin, end, moved, way.exchange))
        return end - time


def _hosts_and_rails(layout: CommunicatorLayout, topology: Topology) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the hosts of a communicator, and the rails nearest to its GPUs."""
    rails = topology.shape.rails
    hosts = sorted({rank // rails for rank in layout.members})
    return tuple(topology.hosts[host] for host in hosts), tuple(sorted({rank % rails for rank in layout.members}))


def _makes_hang(conditions: Conditions) -> bool:
    stopped = any(state.stopped for state in conditions.ranks.values())
    return stopped or not all(state.forwards for state in conditions.adapters.values())


def _events(plan: Plan, ranks: int, begin: float) -> list[Event]:
    """Return what makes ranks slow or stops them, as events of the verdicts' simulator."""
    events: list[Event] = []
    for fault in plan.faults:
        state, slow = fault.kind.state, range(0)
        if isinstance(state, RankState):
            slow = ranks_of(fault, plan.topology)
            if state.stopped and fault.end > begin:
                events += [StoppedRank(rank=rank, at=max(fault.start, begin)) for rank in slow]
        elif isinstance(state, JobState):
            slow = range(ranks)
            if state.rotating:
                events.append(RotatingWork(share=state.rotating, since=fault.start, until=fault.end))
        if isinstance(state, RankState | JobState) and state.slower:
            events += [SlowRank(rank=rank, share=state.slower, since=fault.start, until=fault.end) for rank in slow]
    return events
