"""The simulated leaf switches by their protocols: one answers SNMP, the other is an Onyx with its JSON API."""

from exporter.simulator.onyx import OnyxPort, OnyxSwitch
from exporter.simulator.ports import UNICAST, Leaf, Port
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

_ETHERNET = 6
_UP, _DOWN = 1, 2
_LARGEST_GAUGE = 2**32 - 1
_MANAGEMENT_INDEX = 999001


def fill_agent(agent: SnmpAgent, leaf: Leaf, training: Training) -> None:
    """Give an agent all rows of a switch: the system group and the two tables of interfaces."""
    indexed = _indexed(leaf)
    rows: dict[Oid, Typed] = {
        (*_SYSTEM, 1, 0): _text("Simulated leaf switch of fabric-exporter's demo"),
        # 2.999 is the arc for examples: no vendor's.
        (*_SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, (2, 999, 1)),
        (*_SYSTEM, 4, 0): _text("demo@example.com"),
        (*_SYSTEM, 5, 0): _text(leaf.name),
        (*_SYSTEM, 6, 0): _text("row 1, rack 7"),
        _IF_NUMBER: Typed(INTEGER, len(indexed)),
    }
    for index, port in indexed.items():
        rows |= {
            (*_IF, 1, index): Typed(INTEGER, index),
            (*_IF, 2, index): _text(port.name),
            (*_IF, 3, index): Typed(INTEGER, _ETHERNET),
            (*_IFX, 1, index): _text(port.name),
            (*_IFX, 18, index): _text(port.alias),
        }
    agent.set_many(rows)
    update_agent(agent, leaf, training)


def update_agent(agent: SnmpAgent, leaf: Leaf, training: Training) -> None:
    """Bring an agent's states and counters to what the model says now, all at once."""
    rows: dict[Oid, Typed] = {(*_SYSTEM, 3, 0): Typed(TIME_TICKS, round(training.uptime * 100) % 2**32)}
    for index, port in _indexed(leaf).items():
        rows |= _states(index, port)
        # Where the columns of a direction stand: octets, then packets by cast; discards and errors.
        rows |= _traffic(index, port, "receive", (*_IFX, 6), (*_IF, 13))
        rows |= _traffic(index, port, "transmit", (*_IFX, 10), (*_IF, 19))
    agent.set_many(rows)
    agent.faults.silent = "switch-silent" in training.faults


def update_onyx(switch: OnyxSwitch, leaf: Leaf) -> None:
    """Bring an Onyx switch to what the model says now."""
    for port in leaf.ports:
        shown = switch.ports.setdefault(port.name, OnyxPort(description=port.alias or "N/A"))
        shown.up = port.up
        shown.speed = f"{port.speed // 10**9}G" if port.up else "Unknown"
        shown.ecn_marked_packets = port.counters["ecn_marked"]
        for way, traffic in (("receive", shown.receive), ("transmit", shown.transmit)):
            traffic.packets = port.packets(way)
            traffic.bytes = port.wire_bytes(way)
            traffic.error_packets = port.counters[f"{way}_errors"]
        shown.transmit.pause_packets = port.counters["sent_pause_frames"]
        shown.receive.pause_packets = port.counters["pause_frames"]


def _indexed(leaf: Leaf) -> dict[int, Port]:
    return {_MANAGEMENT_INDEX: leaf.management} | dict(enumerate(leaf.ports, start=1))


def _text(text: str) -> Typed:
    return Typed(OCTET_STRING, text.encode())


def _states(index: int, port: Port) -> dict[Oid, Typed]:
    speed = port.speed if port.up else 0
    return {
        (*_IF, 5, index): Typed(GAUGE32, min(speed, _LARGEST_GAUGE)),
        (*_IF, 7, index): Typed(INTEGER, _UP),
        (*_IF, 8, index): Typed(INTEGER, _UP if port.up else _DOWN),
        (*_IFX, 15, index): Typed(GAUGE32, speed // 10**6),
    }


def _traffic(index: int, port: Port, way: str, octets: Oid, discards: Oid) -> dict[Oid, Typed]:
    """Give the columns of one direction: four of 64 bits from `octets` on, and two of 32 bits from `discards` on."""
    values = (port.wire_bytes(way), port.packets(way, UNICAST), port.packets(way, ["multicast"]), 0)
    rows = {(*octets[:-1], octets[-1] + place, index): Typed(COUNTER64, value) for place, value in enumerate(values)}
    errors = port.counters[f"{way}_errors"] % 2**32
    return rows | {
        (*discards, index): Typed(COUNTER32, 0),
        (*discards[:-1], discards[-1] + 1, index): Typed(COUNTER32, errors),
    }
