"""What Arista's eAPI answers, made into values.  Pure: no I/O.

Numbers are numbers, but for marks by queue, which are text: `-` there means that the queue is not counted.  A missing
value is None, never 0; what is malformed costs itself and is told.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.rest.http import excerpt
from exporter.rest.lldp import Heard
from exporter.rest.texts import COUNTER_TOP, identity, known

COUNTERS: Mapping[tuple[str, ...], str] = {
    ("inOctets",): "receive_bytes_total",
    ("outOctets",): "transmit_bytes_total",
    ("inUcastPkts",): "receive_unicast_packets_total",
    ("outUcastPkts",): "transmit_unicast_packets_total",
    ("inMulticastPkts",): "receive_multicast_packets_total",
    ("outMulticastPkts",): "transmit_multicast_packets_total",
    ("inBroadcastPkts",): "receive_broadcast_packets_total",
    ("outBroadcastPkts",): "transmit_broadcast_packets_total",
    ("totalInErrors",): "receive_errors_total",
    ("totalOutErrors",): "transmit_errors_total",
    ("inDiscards",): "receive_discards_total",
    ("outDiscards",): "transmit_discards_total",
    ("inputErrorsDetail", "rxPause"): "receive_pause_frames_total",
    ("outputErrorsDetail", "txPause"): "transmit_pause_frames_total",
    ("inputErrorsDetail", "fcsErrors"): "fcs_errors_total",
    ("inputErrorsDetail", "symbolErrors"): "symbol_errors_total",
}
"""Where in `interfaceCounters` to the ending of the metric."""

MOST_PORTS = 4096
MOST_PROBLEMS = 100
PRIORITIES = 8

_CLASS = re.compile(r"TC([0-9]{1,2})", re.ASCII)
_PRIORITY = re.compile(r"(?:priority|p)?([0-7])", re.IGNORECASE)


@dataclass(slots=True)
class Port:
    """One interface. `speed` is in bits per second; `refreshed` is when the switch counted, by its own clock."""

    counters: dict[str, int] = field(default_factory=dict)
    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    refreshed: float | None = None
    description: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Something by port; `problems` are what was lost, a line each."""

    ports: Mapping[str, Any]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """What a module measures: celsius, volts, and by lane dBm and amperes."""

    temperature: float | None = None
    voltage: float | None = None
    receive_power: Mapping[str, float] = field(default_factory=dict)
    transmit_power: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)


class ShapeError(ValueError):
    """The answer is not that of the command."""


def parse_interfaces(data: object) -> Read:
    """Read `show interfaces`: a Port by name.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Port] = {}
    problems: list[str] = []
    for name, entry in _ports(data, "interfaces"):
        port = ports[name] = Port()
        counters = _at(entry, "interfaceCounters")
        for steps, ending in COUNTERS.items():
            told = _at(counters, *steps)
            if told is None:
                continue
            value = _count(told)
            if value is None:
                problems.append(f"{name}: {steps[-1]} is {excerpt(told, 40)}, no counter of at most 64 bits")
            else:
                port.counters[ending] = value
        refreshed = _at(counters, "counterRefreshTime")
        port.refreshed = float(refreshed) if _is_number(refreshed) else None
        line, status = _text(_at(entry, "lineProtocolStatus")), _text(_at(entry, "interfaceStatus"))
        port.up = line == "up" if line else None
        port.admin_up = status not in ("disabled", "adminDown") if status else None
        bandwidth = _at(entry, "bandwidth")
        port.speed = int(bandwidth) if _is_number(bandwidth) and bandwidth > 0 else None
        port.description, port.kind = _text(_at(entry, "description")), _text(_at(entry, "hardware"))
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_pfc(data: object) -> Read:
    """Read `show priority-flow-control counters [detail]`: (received, sent) by port and priority.

    The sum over all priorities is under None. By priority the keys are not published: what is read is any object whose
    name is a priority, with one number whose name begins with `rx`, and one with `tx`.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[int | None, tuple[int | None, int | None]]] = {}
    for name, entry in _ports(data, "interfaceCounters"):
        pairs: dict[int | None, tuple[int | None, int | None]] = {}
        received, sent = _count(_at(entry, "rxFrames")), _count(_at(entry, "txFrames"))
        if received is not None or sent is not None:
            pairs[None] = (received, sent)
        for priority, counted in _by_priority(entry):
            pairs[priority] = (_directed(counted, "rx"), _directed(counted, "tx"))
        ports[name] = pairs
    return Read(ports)


def parse_ecn(data: object) -> Read:
    """Read `show qos interfaces ecn counters queue`: marks by port and queue, None where they are not counted.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[str, int | None]] = {}
    problems: list[str] = []
    for name, entry in _ports(data, "intfQueueCounters"):
        queues = _at(entry, "queueCounters")
        ports[name] = {}
        for queue, told in queues.items() if isinstance(queues, dict) else ():
            value = _count(told)
            if value is None and known(told if isinstance(told, str) else "x") is not None:
                problems.append(f"{name}: queue {excerpt(queue, 20)}: {excerpt(told, 40)} is no counter")
            elif str(queue).isdecimal():
                ports[name][str(queue)] = value
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_drops(data: object) -> Read:
    """Read `show interfaces counters queue detail`: packets dropped by port and queue, all precedences together.

    Unicast and multicast of a traffic class are one queue here. Ranges (`TC0-2`) are left out: whose they are nobody
    says.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[str, int]] = {}
    for name, entry in _ports(_at(data, "egressQueueCounters"), "interfaces"):
        queues = ports[name] = {}
        for cast in ("ucastQueues", "mcastQueues"):
            classes = _at(entry, cast, "trafficClasses")
            for label, counted in classes.items() if isinstance(classes, dict) else ():
                found = _CLASS.fullmatch(str(label))
                precedences = _at(counted, "dropPrecedences")
                told = [_count(_at(one, "droppedPackets")) for one in _values(precedences)]
                if found and told and None not in told:
                    queues[found[1]] = queues.get(found[1], 0) + sum(one for one in told if one is not None)
    return Read(ports)


def parse_neighbours(data: object) -> list[Heard]:
    """Read `show lldp neighbors detail`: every neighbour of every port.

    Raises:
        ShapeError: It is something else.
    """
    found = []
    for name, entry in _ports(data, "lldpNeighbors"):
        listed = _at(entry, "lldpNeighborInfo")
        for one in listed if isinstance(listed, list) else ():
            heard = _heard(name, one)
            if heard is not None:
                found.append(heard)
    return found


def parse_modules(data: object) -> Read:
    """Read `show interfaces transceiver`, and the form of `… detail`: a Module by name; without sensors there is none.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Module] = {}
    for name, entry in _ports(data, "interfaces"):
        parameters = _at(entry, "parameters")
        lanes = {what: _lanes(entry, parameters, what) for what in ("rxPower", "txPower", "txBias")}
        module = Module(
            _one(entry, parameters, "temperature"),
            _one(entry, parameters, "voltage"),
            lanes["rxPower"],
            lanes["txPower"],
            {lane: milliamperes / 1000 for lane, milliamperes in lanes["txBias"].items()},
        )
        if module != Module():
            ports[name] = module
    return Read(ports)


def parse_version(data: object) -> tuple[str, str, float | None]:
    """Read `show version`: model, release, seconds of uptime."""
    uptime = _at(data, "uptime")
    return _text(_at(data, "modelName")), _text(_at(data, "version")), float(uptime) if _is_number(uptime) else None


def parse_hostname(data: object) -> str:
    """Read `show hostname`."""
    return _text(_at(data, "hostname"))


def _heard(port: str, neighbour: object) -> Heard | None:
    chassis, name = identity(_text(_at(neighbour, "chassisId"))), _text(_at(neighbour, "systemName"))
    if not (chassis or name):
        return None
    interface, capabilities = _at(neighbour, "neighborInterfaceInfo"), _at(neighbour, "systemCapabilities")
    identifier = _text(_at(interface, "interfaceId_v2")) or _text(_at(interface, "interfaceId")).strip('"')
    words = {"wlanAccessPoint": "wlan", "stationOnly": "station"}
    addresses = _at(neighbour, "managementAddresses")
    return Heard(
        port,
        chassis,
        identity(identifier),
        name,
        _text(_at(interface, "interfaceDescription")),
        _text(_at(neighbour, "systemDescription")),
        frozenset(
            words.get(word, word.lower())
            for word, enabled in (capabilities.items() if isinstance(capabilities, dict) else ())
            if enabled is True
        ),
        tuple(_text(_at(one, "address")) for one in (addresses if isinstance(addresses, list) else ()) if one),
    )


def _lanes(entry: object, parameters: object, what: str) -> dict[str, float]:
    """Give a measurement by lane; where there is one for the port alone, it is of lane 1."""
    channels = _at(parameters, what, "channels")
    if isinstance(channels, dict):
        return {str(lane): float(v) for lane, v in channels.items() if str(lane).isdecimal() and _is_number(v)}
    value = _at(entry, what)
    return {"1": float(value)} if _is_number(value) else {}


def _one(entry: object, parameters: object, what: str) -> float | None:
    told = [value for value in _values(_at(parameters, what, "channels")) if _is_number(value)]
    value = told[0] if told else _at(entry, what)
    return float(value) if _is_number(value) else None


def _by_priority(entry: object) -> Iterator[tuple[int, object]]:
    """Find what is headed by a priority: directly, or one level below."""
    for name, value in entry.items() if isinstance(entry, dict) else ():
        found = _PRIORITY.fullmatch(str(name))
        if found and isinstance(value, dict):
            yield int(found[1]), value
        elif isinstance(value, dict):
            for below, inner in value.items():
                found = _PRIORITY.fullmatch(str(below))
                if found and isinstance(inner, dict):
                    yield int(found[1]), inner


def _directed(counted: object, way: str) -> int | None:
    told = [
        _count(value)
        for name, value in (counted.items() if isinstance(counted, dict) else ())
        if str(name).lower().startswith(way)
    ]
    return told[0] if len(told) == 1 else None  # of two nobody knows which is meant


def _ports(data: object, container: str) -> Iterator[tuple[str, Any]]:
    within = _at(data, container)
    if not isinstance(within, dict):
        raise ShapeError(f"no {container} in {excerpt(data)}")
    return iter([(str(name), entry) for name, entry in within.items() if isinstance(entry, dict)][:MOST_PORTS])


def _count(told: object) -> int | None:
    if isinstance(told, str) and told.isascii() and told.isdecimal() and len(told) <= 20:
        told = int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= COUNTER_TOP else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(data: object) -> list[Any]:
    return list(data.values()) if isinstance(data, dict) else []


def _at(data: object, *steps: str) -> Any:  # noqa: ANN401  # any JSON
    for step in steps:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def _text(value: object) -> str:
    return value[:1024].strip() if isinstance(value, str) else ""
