"""A host of the fabric, as its files and the recordings of its NICs are written from the model."""

import random
from collections.abc import Sequence
from dataclasses import replace

from exporter.simulator import ports
from exporter.simulator.fabric.counting import is_slow
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.ports import Nic

UPTIME = 6 * 86400.0
"""Seconds for which hosts and switches had run at the start of the model."""

MANAGEMENT_PACKETS = 24_000
"""Packets per second that the management NIC receives; it sends a third."""


class FabricHost:
    """A host; its rails have the ports of the model, so that they always count what the model counts."""

    def __init__(self, model: FabricModel, name: str, *, seed: int = 1) -> None:
        """Args: model: The model. name: Name of the host. seed: Seed of what the management NIC counted before."""
        self.name = name
        self._model = model
        number = model.topology.hosts.index(name)
        rng = random.Random(f"{seed} {name}")
        self._management = _numbered(ports.management(rng), number)
        self._rails = tuple(
            replace(_numbered(nic, number), port=model.ports[adapter])
            for nic, adapter in zip(ports.rails(rng), model.topology.adapters(name), strict=True)
        )
        self._counted = model.time

    @property
    def management(self) -> Nic:
        """Its management NIC."""
        return self._management

    @property
    def rails(self) -> Sequence[Nic]:
        """Its RDMA ports, by rail."""
        return self._rails

    @property
    def uptime(self) -> float:
        """Seconds since its start."""
        return UPTIME + self._model.time

    def count_management(self) -> None:
        """Count the packets of the management NIC up to the time of the model."""
        seconds, self._counted = self._model.time - self._counted, self._model.time
        counters = self._management.port.counters
        counters.add("receive_bulk", MANAGEMENT_PACKETS * seconds)
        counters.add("transmit_bulk", MANAGEMENT_PACKETS / 3 * seconds)
        counters.add("receive_multicast", seconds / 30)

    def has_fault(self, fault: str, nic: Nic) -> bool:
        """Return whether a NIC has a fault that is seen in its files and not in its counters alone."""
        if not nic.device:
            return False
        conditions, adapter = self._model.conditions, self._model.topology.adapter(self.name, nic.number)
        cable, state = conditions.cable(self._model.cabling.access(adapter)), conditions.adapter(adapter)
        return {
            "missing-port": not state.present,
            "slow-pcie": is_slow(state),
            "dirty-optic": cable.light < 1,
            "link-down": not cable.up and not cable.flaps,
            "flapping-link": not cable.up and cable.flaps,
        }.get(fault, False)


def _numbered(nic: Nic, number: int) -> Nic:
    """Return a NIC with the MAC address that it has on the host of a number; the first one keeps its own."""
    octets = nic.mac.split(":")
    octets[4] = f"{int(octets[4], 16) + number:02x}"
    return replace(nic, mac=":".join(octets))
