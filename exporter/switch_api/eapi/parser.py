"""What Arista's eAPI answers, made into values.  Pure: no I/O.

Numbers are numbers, but for marks by queue, which are text: `-` there means that the queue is not counted.  A missing
value is None, never 0; what is malformed costs itself and is told.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from exporter.switch_api.http import excerpt
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.port import Port, Read, ShapeError
from exporter.switch_api.text_values import COUNTER_TOP, identity, known

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

TYPES: Mapping[str, str] = {"ethernet": "6", "loopback": "24", "portChannel": "161"}
"""Word for the hardware of an interface to the number of its ifType."""

MOST_PORTS = 4096
MOST_PROBLEMS = 100
PRIORITIES = 8

_CLASS = re.compile(r"TC([0-9]{1,2})", re.ASCII)
_DROPS_LINE = re.compile(r"(Et|Ma)([0-9][0-9/]{0,30})((?:\s+[0-9]{1,20}){3})", re.ASCII)
_WORDS = {"Et": "Ethernet", "Ma": "Management"}
_PRIORITY = re.compile(r"(?:priority|p)?([0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Module:
    """What a module measures: celsius, volts, and by lane dBm and amperes."""

    temperature: float | None = None
    voltage: float | None = None
    receive_power: Mapping[str, float] = field(default_factory=dict)
    transmit_power: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Version:
    """What the switch says of itself: `mac` is its identity in LLDP too, `uptime` in seconds."""

    model: str = ""
    release: str = ""
    mac: str = ""
    uptime: float | None = None


def parse_interfaces(data: object) -> Read:
    """Read `show interfaces`: a Port by name.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Port] = {}
    problems: list[str] = []
    for name, entry in _ports(data, "interfaces", problems):
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
        hardware = _text(_at(entry, "hardware"))
        port.description, port.kind = _text(_at(entry, "description")), TYPES.get(hardware, hardware)
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_pfc(data: object) -> Read:
    """Read `show priority-flow-control counters [detail]`: (received, sent) by port and priority.

    The sum over all priorities is under None. By priority it is `interfaces.X.priorities.3.{rxFrames, txFrames}`, as
    programs of others read it; no recording shows it. So it is read with some tolerance: any object whose name is a
    priority, with one number whose name begins with `rx`, and one with `tx`.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[int | None, tuple[int | None, int | None]]] = {}
    problems: list[str] = []
    container = "interfaces" if isinstance(_at(data, "interfaces"), dict) else "interfaceCounters"
    for name, entry in _ports(data, container, problems):
        pairs: dict[int | None, tuple[int | None, int | None]] = {}
        received, sent = (_counted(entry, key, name, problems) for key in ("rxFrames", "txFrames"))
        if received is not None or sent is not None:
            pairs[None] = (received, sent)
        for priority, counted in _by_priority(entry):
            pairs[priority] = (_directed(counted, "rx"), _directed(counted, "tx"))
        ports[name] = pairs
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_ecn(data: object) -> Read:
    """Read `show qos interfaces ecn counters queue`: marks by port and queue, None where they are not counted.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[str, int | None]] = {}
    problems: list[str] = []
    for name, entry in _ports(data, "intfQueueCounters", problems):
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
    """Read `show interfaces counters queue detail`, or `… drops`: packets dropped by port and queue.

    The former has drop precedences of unicast and multicast, which are one queue here. The latter is of hardware with
    virtual output queues: drops at both ends of a queue, which are different packets; such hardware may tell of the
    one end alone. Ranges (`TC0-2`) are left out: whose they are nobody says.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, dict[str, int]] = {}
    problems: list[str] = []
    ends = [told for key in ("egressQueueCounters", "ingressVoqCounters") if (told := _at(data, key)) is not None]
    for name, entry in chain.from_iterable(_ports(end, "interfaces", problems) for end in ends or [data]):
        queues = ports.setdefault(name, {})
        for classes in (_at(entry, *steps, "trafficClasses") for steps in (("ucastQueues",), ("mcastQueues",), ())):
            for label, counted in classes.items() if isinstance(classes, dict) else ():
                found = _CLASS.fullmatch(str(label))
                told = [_counted(one, "droppedPackets", f"{name}: {label}", problems) for one in _places(counted)]
                if found and told and None not in told:
                    queues[found[1]] = queues.get(found[1], 0) + sum(one for one in told if one is not None)
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_drops_text(data: object) -> Read:
    """Read the text of `show interfaces counters queue`: packets dropped by port, in all of its egress queues.

    A line has the port and three numbers: dropped at ingress, at egress of unicast, at egress of multicast.

    Raises:
        ShapeError: It has no such line.
    """
    text = _at(data, "output")
    ports: dict[str, int] = {}
    for line in text.splitlines() if isinstance(text, str) else ():
        found = _DROPS_LINE.fullmatch(line.strip())
        if found and len(ports) < MOST_PORTS:
            _, unicast, multicast = (int(number) for number in found[3].split())
            ports[_WORDS[found[1]] + found[2]] = unicast + multicast
    if not ports:
        raise ShapeError(f"no line of a port in {excerpt(text)}")
    return Read(ports)


def parse_neighbours(data: object) -> list[Heard]:
    """Read `show lldp neighbors detail`: every neighbour of every port.

    Raises:
        ShapeError: It is something else.
    """
    found = []
    for name, entry in _ports(data, "lldpNeighbors", []):
        listed = _at(entry, "lldpNeighborInfo")
        for one in listed if isinstance(listed, list) else ():
            heard = _heard(name, one)
            if heard is not None:
                found.append(heard)
    return found


def parse_modules(data: object) -> Read:
    """Read `show interfaces transceiver [dom thresholds]`: a Module by name; without sensors there is none.

    Without `dom thresholds` an interface tells of one lane alone.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Module] = {}
    problems: list[str] = []
    for name, entry in _ports(data, "interfaces", problems):
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
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_version(data: object) -> Version:
    """Read `show version`."""
    uptime = _at(data, "uptime")
    return Version(
        _text(_at(data, "modelName")),
        _text(_at(data, "version")),
        identity(_text(_at(data, "systemMacAddress"))),
        float(uptime) if _is_number(uptime) else None,
    )


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


def _places(counted: object) -> list[object]:
    """Give the places of a traffic class where packets are dropped: its precedences, both its ends, or itself."""
    if _at(counted, "droppedPackets") is not None:
        return [counted]
    sums = (_at(counted, end, "countersSum") for end in ("ingressVoqCounters", "egressQueueCounters"))
    return [*_values(_at(counted, "dropPrecedences")), *(one for one in sums if one is not None)]


def _ports(data: object, container: str, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Give what is an object, and note what is none."""
    within = _at(data, container)
    if not isinstance(within, dict):
        raise ShapeError(f"no {container} in {excerpt(data)}")
    for name, entry in list(within.items())[:MOST_PORTS]:
        if isinstance(entry, dict):
            yield str(name), entry
        else:
            problems.append(f"{name}: not an object: {excerpt(entry, 40)}")


def _counted(entry: object, key: str, place: str, problems: list[str]) -> int | None:
    """Read a counter; one that is malformed is noted, and absent like one that is not told."""
    told = _at(entry, key)
    value = _count(told)
    if value is None and told is not None:
        problems.append(f"{place}: {key} is {excerpt(told, 40)}, no counter of at most 64 bits")
    return value


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
