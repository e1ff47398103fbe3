"""Simulated switches on the network, by an SNMP agent or the JSON API of Onyx."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from exporter.simulator import lldp_rows
from exporter.simulator.lldp_rows import HOSTS, SWITCHES, Neighbour, mac
from exporter.simulator.onyx import OnyxNeighbour, OnyxPort, OnyxSwitch
from exporter.simulator.ports import (
    HOST,
    UNICAST,
    LeafSwitch,
    SimulatedPort,
)
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.traffic import Training
from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    GAUGE32,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Oid,
    Typed,
)

_SYSTEM = (1, 3, 6, 1, 2, 1, 1)
_IF_NUMBER = (1, 3, 6, 1, 2, 1, 2, 1, 0)
_IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)

_CISCO_PFC = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1, 2, 1)  # CISCO-PFC-EXT-MIB, frames by priority
_PFC_SENT, _PFC_RECEIVED = (*_CISCO_PFC, 2), (*_CISCO_PFC, 3)
PRIORITIES = range(8)
LOSSLESS = 3
"""The priority of RDMA traffic, as on the host."""

_MTU = 9216
_ETHERNET = 6
_UP, _DOWN = 1, 2
_LARGEST_GAUGE = 2**32 - 1
_MANAGEMENT_INDEX = 999001
_DESCRIPTION = "Simulated switch of fabric-exporter's demo"


class Switch(Protocol):
    """What a simulated switch shows."""

    @property
    def name(self) -> str:
        """System name."""

    @property
    def management(self) -> SimulatedPort:
        """The management port."""

    @property
    def ports(self) -> Sequence[SimulatedPort]:
        """All ports but the management port."""

    @property
    def uptime(self) -> float:
        """Seconds since its start."""

    @property
    def silent(self) -> bool:
        """Whether its management does not answer."""

    @property
    def chassis(self) -> bytes:
        """MAC address of its chassis."""

    def last_change(self, port: SimulatedPort) -> float:
        """Return the uptime at which the link of a port went up or down last; 0 if that was before its start."""

    def neighbours(self) -> Mapping[str, Neighbour]:
        """Return the neighbours by port."""


class DemoLeaf:
    """A leaf of the demo with one host."""

    def __init__(self, leaf: LeafSwitch, training: Training) -> None:
        """Args: leaf: The leaf. training: The model."""
        self.name, self.management, self.chassis = leaf.name, leaf.management, mac(0x02, 1)
        self._leaf, self._training = leaf, training

    @property
    def ports(self) -> Sequence[SimulatedPort]:
        """All ports but the management port."""
        return self._leaf.ports

    @property
    def uptime(self) -> float:
        """Seconds since its start."""
        return self._training.uptime

    @property
    def silent(self) -> bool:
        """Whether its management does not answer."""
        return "switch-silent" in self._training.faults

    def last_change(self, port: SimulatedPort) -> float:
        """Return the uptime at which the link of a port went up or down last; 0 if it never did."""
        return port.changed

    def neighbours(self) -> Mapping[str, Neighbour]:
        """Return the neighbours by port."""
        return _neighbours(self._leaf, self._training)


def fill_agent(agent: SnmpAgent, switch: Switch) -> None:
    """Set all rows of a switch in an agent: system group, ifTable, ifXTable, LLDP and PFC."""
    indexed = _indexed(switch)
    rows: dict[Oid, Typed] = {
        (*_SYSTEM, 1, 0): _text(_DESCRIPTION),
        # 2.999 is the arc for examples.
        (*_SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (2, 999, 1)),
        (*_SYSTEM, 4, 0): _text("demo@example.com"),
        (*_SYSTEM, 5, 0): _text(switch.name),
        (*_SYSTEM, 6, 0): _text("row 1, rack 7"),
        _IF_NUMBER: Typed(INTEGER, len(indexed)),
    }
    for index, port in indexed.items():
        rows |= {
            (*_IF, 1, index): Typed(INTEGER, index),
            (*_IF, 2, index): _text(port.name),
            (*_IF, 3, index): Typed(INTEGER, _ETHERNET),
            (*_IF, 4, index): Typed(INTEGER, _MTU),
            (*_IFX, 1, index): _text(port.name),
            (*_IFX, 18, index): _text(port.alias),
        }
    rows |= lldp_rows.local_system(switch.name, _DESCRIPTION, switch.chassis)
    neighbours = switch.neighbours()
    for index, port in indexed.items():
        rows |= lldp_rows.port(port.name, port.alias, index, neighbours.get(port.name))
    agent.clear()
    agent.set_many(rows)
    update_agent(agent, switch)


def update_agent(agent: SnmpAgent, switch: Switch) -> None:
    """Update the states and counters of an agent from the model, all at once."""
    rows: dict[Oid, Typed] = {(*_SYSTEM, 3, 0): Typed(TIME_TICKS, round(switch.uptime * 100) % 2**32)}
    for index, port in _indexed(switch).items():
        rows |= _states(index, port)
        rows[*_IF, 9, index] = Typed(TIME_TICKS, round(switch.last_change(port) * 100) % 2**32)
        # First columns of a direction: octets, then packets by cast; discards, then errors.
        rows |= _traffic(index, port, "receive", (*_IFX, 6), (*_IF, 13))
        rows |= _traffic(index, port, "transmit", (*_IFX, 10), (*_IF, 19))
        if index != _MANAGEMENT_INDEX:
            rows |= _pfc(index, port)
    agent.set_many(rows)
    agent.faults.silent = switch.silent


def fill_onyx(onyx: OnyxSwitch, switch: Switch) -> None:
    """Set the chassis ID of an Onyx switch, its ports and their neighbours."""
    onyx.chassis = switch.chassis.hex(":").upper()
    update_onyx(onyx, switch)
    for interface in onyx.ports.values():
        interface.neighbours = []
    for name, one in switch.neighbours().items():
        port = one.port if isinstance(one.port, str) else one.port.hex(":")
        described = one.port_description or "N/A"
        neighbour = OnyxNeighbour(one.chassis.hex(":"), port, one.name, one.description, described)
        onyx.ports[name].neighbours = [neighbour]


def update_onyx(onyx: OnyxSwitch, switch: Switch) -> None:
    """Update an Onyx switch from the model."""
    onyx.uptime = switch.uptime
    for port in switch.ports:
        interface = onyx.ports.setdefault(port.name, OnyxPort(description=port.alias or "N/A"))
        interface.up = port.up
        interface.speed = f"{port.speed // 10**9}G" if port.up else "Unknown"
        interface.ecn_marked_packets = port.counters["ecn_marked"]
        for direction, traffic in (("receive", interface.receive), ("transmit", interface.transmit)):
            traffic.packets = port.packets(direction)
            traffic.bytes = port.wire_bytes(direction)
            traffic.error_packets = port.counters[f"{direction}_errors"]
        interface.transmit.pause_packets = port.counters["sent_pause_frames"]
        interface.receive.pause_packets = port.counters["pause_frames"]
        interface.pfc = {LOSSLESS: (port.counters["pause_frames"], port.counters["sent_pause_frames"])}


def _indexed(switch: Switch) -> dict[int, SimulatedPort]:
    return {_MANAGEMENT_INDEX: switch.management} | dict(enumerate(switch.ports, start=1))


def _neighbours(leaf: LeafSwitch, training: Training) -> dict[str, Neighbour]:
    """Return the neighbours by port: four hosts with a NIC on each rail, and four spines with two links each."""
    found = {}
    for rail, hosts in leaf.hosts.items():
        for place, port in enumerate(hosts):
            name, _, device = port.alias.partition(" ")
            chassis = mac(0x0A, 1, place + 1)
            nic = bytes.fromhex(training.rails[rail].mac.replace(":", "")) if name == HOST else mac(0x0E, rail, place)
            found[port.name] = Neighbour(
                name, "Simulated host, Linux 6.8.0", HOSTS, chassis, nic, device, (10, 1, 0, place + 1)
            )
    for place, port in enumerate(leaf.uplinks):
        name, spine = port.alias.partition(" ")[0], place // 2 + 1
        spine_port = f"Ethernet1/{place % 2 + 1}"
        found[port.name] = Neighbour(
            name, "Simulated spine", SWITCHES, mac(0x06, spine), spine_port, "", (10, 255, 0, spine)
        )
    return found


def _pfc(index: int, port: SimulatedPort) -> dict[Oid, Typed]:
    """Return the PFC frames; all pauses of the model are of the lossless priority."""
    rows: dict[Oid, Typed] = {}
    for column, name in ((_PFC_SENT, "sent_pause_frames"), (_PFC_RECEIVED, "pause_frames")):
        for priority in PRIORITIES:
            frames = port.counters[name] if priority == LOSSLESS else 0
            rows[*column, index, priority] = Typed(COUNTER64, frames)
    return rows


def _text(text: str) -> Typed:
    return Typed(OCTET_STRING, text.encode())


def _states(index: int, port: SimulatedPort) -> dict[Oid, Typed]:
    speed = port.speed if port.up else 0
    return {
        (*_IF, 5, index): Typed(GAUGE32, min(speed, _LARGEST_GAUGE)),
        (*_IF, 7, index): Typed(INTEGER, _UP),
        (*_IF, 8, index): Typed(INTEGER, _UP if port.up else _DOWN),
        (*_IFX, 15, index): Typed(GAUGE32, speed // 10**6),
    }


def _traffic(index: int, port: SimulatedPort, direction: str, octets: Oid, discards: Oid) -> dict[Oid, Typed]:
    """Return the columns of one direction: four of 64 bits from `octets` on, and two of 32 bits from `discards` on."""
    values = (port.wire_bytes(direction), port.packets(direction, UNICAST), port.packets(direction, ["multicast"]), 0)
    rows = {(*octets[:-1], octets[-1] + place, index): Typed(COUNTER64, value) for place, value in enumerate(values)}
    discarded, errors = (port.counters[f"{direction}_{name}"] % 2**32 for name in ("discards", "errors"))
    return rows | {
        (*discards, index): Typed(COUNTER32, discarded),
        (*discards[:-1], discards[-1] + 1, index): Typed(COUNTER32, errors),
    }
