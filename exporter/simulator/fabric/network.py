"""The way of a collective through the fabric at a time: its flows and their exchange, found once for each situation."""

from dataclasses import dataclass

from exporter.simulator.fabric.conditions import Conditions
from exporter.simulator.fabric.congestion import Exchange, exchange
from exporter.simulator.fabric.faults import Plan
from exporter.simulator.fabric.flows import Flow, flows
from exporter.simulator.fabric.topology import Cable


@dataclass(frozen=True, slots=True)
class Way:
    """How a collective is sent.

    Attributes:
        exchange: Its rates and what is counted; None where some host cannot be reached or what it sends is lost.
        waits: Whether it has to wait for a link that will be up again.
    """

    exchange: Exchange | None
    waits: bool


class Network:
    """Finds the ways of collectives.

    Attributes:
        seed: Seed of the hashes; another one after a restart of the job, which has other queue pairs.
    """

    def __init__(self, plan: Plan, seed: int) -> None:
        """Args: plan: The faults. seed: Seed of the hashes."""
        self.seed = seed
        self._plan = plan
        self._ways: dict[tuple[int, int, tuple[str, ...], tuple[int, ...]], Way] = {}

    def way(self, hosts: tuple[str, ...], rails: tuple[int, ...], time: float) -> Way:
        """Return the way of a collective.

        Args:
            hosts: The hosts of its ranks.
            rails: The rails nearest to the GPUs of its ranks on each host.
            time: Time at which it begins.
        """
        conditions = self._plan.conditions(time)  # the plan keeps the object, so that its id is not used again
        key = self.seed, id(conditions), hosts, rails
        if key not in self._ways:
            self._ways[key] = self._find(hosts, rails, time, conditions)
        return self._ways[key]

    def _find(self, hosts: tuple[str, ...], rails: tuple[int, ...], time: float, conditions: Conditions) -> Way:
        topology = self._plan.cabling(time)
        found = flows(hosts, rails, topology, conditions, self.seed)
        if found is None:
            return Way(None, waits=False)
        if any(_waits(one, conditions) for one in found):
            return Way(None, waits=True)
        if not all(conditions.adapter(one.source).forwards for one in found):
            return Way(None, waits=False)
        return Way(exchange(found, topology, conditions), waits=False)


def _waits(flow: Flow, conditions: Conditions) -> bool:
    cables = (Cable(*ends) for hop in flow.hops for ends in (hop, reversed(hop)))
    return any(not conditions.cable(cable).up for cable in cables)
