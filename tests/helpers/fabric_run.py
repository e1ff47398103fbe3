"""A run of the model of a fabric: what was counted in a time, and how long steps took."""

from collections.abc import Iterable

from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.topology import End


class FabricRun:
    """A model that was advanced, after some seconds without counting.

    Attributes:
        model: The model.
        seconds: Seconds that were counted.
        collectives: The collectives that ended in them.
    """

    def __init__(self, faults: Iterable[str] = (), *, seconds: float = 6.0, before: float = 0.0, seed: int = 1) -> None:
        self.model = FabricModel(faults, seed=seed)
        self.seconds = seconds
        self.model.advance(before or 1e-6)
        self._before = {end: port.counters.values() for end, port in self.model.ports.items()}
        self._steps = len(self.model.job.steps)
        self.collectives = []
        for _ in range(round(seconds)):
            self.collectives += self.model.advance(seconds / round(seconds))

    def adapter(self, host: str, rail: int) -> End:
        return self.model.topology.adapter(host, rail)

    def leaf_port(self, host: str, rail: int) -> End:
        return self.model.cabling.access(self.adapter(host, rail)).upper

    def adapters(self) -> list[End]:
        topology = self.model.topology
        return [adapter for host in topology.hosts for adapter in topology.adapters(host)]

    def uplinks(self, leaf: str) -> list[End]:
        """List the ports of a leaf to the spines."""
        topology = self.model.topology
        return [topology.uplink(leaf, spine).lower for spine in topology.spines]

    def counted(self, end: End, name: str) -> int:
        """Return how much a counter grew."""
        return self.model.ports[end].counters[name] - self._before[end].get(name, 0)

    def moved(self, name: str, of: str = "") -> dict[End, int]:
        """Return the ports at which a counter grew, with how much; `of` is the beginning of the names of devices."""
        grown = {end: self.counted(end, name) for end in self.model.ports if end.device.startswith(of)}
        return {end: amount for end, amount in grown.items() if amount}

    @property
    def step(self) -> float:
        """Mean seconds of a step."""
        steps = self.model.job.steps[self._steps :]
        return (steps[-1] - steps[0]) / (len(steps) - 1)

    @property
    def transfer(self) -> float:
        """Median seconds of an AllGather, from its last start to its end."""
        took = sorted(one.end - max(one.starts.values()) for one in self.collectives if one.kind == "AllGather")
        return took[len(took) // 2]
