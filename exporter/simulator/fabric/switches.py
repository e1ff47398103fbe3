"""A leaf or spine of the fabric, as its agent or API is filled from the model."""

import random
from collections.abc import Mapping, Sequence

from exporter.simulator.fabric.hosts import UPTIME, FabricHost
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.topology import End
from exporter.simulator.lldp_rows import HOSTS, SWITCHES, Neighbour, mac
from exporter.simulator.ports import SimulatedPort, new_port


class FabricSwitch:
    """A switch; its ports are those of the model.

    Attributes:
        name: System name.
        management: Its management port.
        chassis: MAC address of its chassis.
    """

    def __init__(self, model: FabricModel, name: str, hosts: Mapping[str, FabricHost]) -> None:
        """Args: model: The model. name: Name of the switch. hosts: The hosts by name, for their addresses."""
        self.name = name
        self.management: SimulatedPort = new_port(random.Random(name), "mgmt0", "oob-sw-01", 1_000_000_000, "bulk")
        self.chassis = _chassis(model, name)
        self._model, self._hosts = model, hosts
        ends = [end for end in model.ports if end.device == name]
        self._ends = sorted(ends, key=lambda end: int(end.port.rpartition("/")[2]))

    @property
    def ports(self) -> Sequence[SimulatedPort]:
        """All ports but the management port."""
        return [self._model.ports[end] for end in self._ends]

    @property
    def uptime(self) -> float:
        """Seconds since its start."""
        booted = self._model.booted[self.name]
        return self._model.time - booted if booted else UPTIME + self._model.time

    def last_change(self, port: SimulatedPort) -> float:
        """Return the uptime at which the link of a port went up or down last; 0 if that was before its start."""
        return max(self.uptime - (self._model.time - port.changed), 0.0) if port.changed else 0.0

    @property
    def silent(self) -> bool:
        """Whether its management does not answer: also while it restarts."""
        state = self._model.conditions.switch(self.name)
        return not (state.answers and state.running)

    def neighbours(self) -> Mapping[str, Neighbour]:
        """Return the neighbours by port, of links that are up."""
        others = {cable.upper: cable.lower for cable in self._model.cabling.cables}
        others |= {cable.lower: cable.upper for cable in self._model.cabling.cables}
        return {end.port: self._neighbour(others[end]) for end in self._ends if self._model.ports[end].up}

    def _neighbour(self, other: End) -> Neighbour:
        topology = self._model.topology
        if other.device not in topology.hosts:
            chassis = _chassis(self._model, other.device)
            return Neighbour(
                other.device, "Simulated switch", SWITCHES, chassis, other.port, "", (10, 255, *chassis[-2:])
            )
        number = topology.hosts.index(other.device)
        nic = self._hosts[other.device].rails[topology.adapters(other.device).index(other)]
        address = bytes.fromhex(nic.mac.replace(":", ""))
        chassis = mac(0x0A, 1, number + 1)
        return Neighbour(
            other.device,
            "Simulated host, Linux 6.8.0",
            HOSTS,
            chassis,
            address,
            other.port,
            (10, 1, *divmod(number + 1, 256)),
        )


def _chassis(model: FabricModel, name: str) -> bytes:
    """Return the MAC address of a switch: of leaves and spines in different ranges."""
    topology = model.topology
    if name in topology.leaves:
        return mac(0x02, 1 + topology.leaves.index(name))
    return mac(0x06, 1 + topology.spines.index(name))
