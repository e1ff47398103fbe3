"""Parsers of the JSON output of Arista EOS commands (eAPI).  Pure: no I/O.

Numbers are JSON numbers, except ECN marks by queue, which are text: `-` means that the queue is not counted.  A missing
value is None, never 0; a malformed value is skipped and reported as a problem.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.port import MAX_PROBLEMS, PerPort, PortState, ShapeError, admits
from exporter.switch_api.port_settings import PortSettings, parse_mtu
from exporter.switch_api.text_values import (
    excerpt,
    json_counter,
    json_text,
    normalise_identifier,
    strip_placeholder,
)
from exporter.switch_api.transceiver import Transceiver

COUNTERS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
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
)
"""Path in `interfaceCounters` to the ending of the metric."""

TYPES: Mapping[str, str] = MappingProxyType({"ethernet": "6", "loopback": "24", "portChannel": "161"})
"""`hardware` of an interface to the number of its ifType."""

PfcFrames = tuple[int | None, int | None]
"""Frames received and transmitted."""

_TRAFFIC_CLASS = re.compile(r"TC([0-9]{1,2})", re.ASCII)
_DROPS_LINE = re.compile(r"(Et|Ma)([0-9][0-9/]{0,30})((?:\s+[0-9]{1,20}){3})", re.ASCII)
_LONG_NAMES = MappingProxyType({"Et": "Ethernet", "Ma": "Management"})
_PRIORITY = re.compile(r"(?:priority|p)?([0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EosVersion:
    """Output of `show version`: `mac` is also the LLDP chassis identifier, `uptime` is in seconds."""

    model: str = ""
    release: str = ""
    mac: str = ""
    uptime: float | None = None


def parse_interfaces(data: object) -> PerPort[PortState]:
    """Parse `show interfaces`.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, PortState] = {}
    problems: list[str] = []
    for name, entry in _port_entries(data, "interfaces", problems):
        port = ports[name] = PortState()
        counters = _member(entry, "interfaceCounters")
        for path, ending in COUNTERS.items():
            value = _counter_or_problem(counters, path, name, problems)
            if value is not None:
                port.counters[ending] = value
        refreshed = _member(counters, "counterRefreshTime")
        port.refreshed = float(refreshed) if _is_number(refreshed) else None
        line_status = json_text(_member(entry, "lineProtocolStatus"))
        interface_status = json_text(_member(entry, "interfaceStatus"))
        port.up = line_status == "up" if line_status else None
        port.admin_up = interface_status not in ("disabled", "adminDown") if interface_status else None
        bandwidth = _member(entry, "bandwidth")
        port.speed = int(bandwidth) if _is_number(bandwidth) and bandwidth > 0 else None
        hardware = json_text(_member(entry, "hardware"))
        port.description, port.if_type = json_text(_member(entry, "description")), TYPES.get(hardware, hardware)
        port.settings = PortSettings(mtu=parse_mtu(_member(entry, "mtu")))
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_pfc(data: object) -> PerPort[dict[int | None, PfcFrames]]:
    """Parse `show priority-flow-control counters [detail]`: frames (received, transmitted) by port and priority.

    The sum over all priorities is under None. By priority they are at `interfaces.X.priorities.3.{rxFrames, txFrames}`,
    as other programs read them; no recording has them. So the structure is matched leniently: any object whose name is
    a priority, with one number whose name begins with `rx`, and one with `tx`.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, dict[int | None, PfcFrames]] = {}
    problems: list[str] = []
    container = "interfaces" if isinstance(_member(data, "interfaces"), dict) else "interfaceCounters"
    for name, entry in _port_entries(data, container, problems):
        frames: dict[int | None, PfcFrames] = {}
        received, transmitted = (_counter_or_problem(entry, (key,), name, problems) for key in ("rxFrames", "txFrames"))
        if received is not None or transmitted is not None:
            frames[None] = (received, transmitted)
        for priority, counters in _priority_entries(entry):
            frames[priority] = (_only_counter(counters, "rx"), _only_counter(counters, "tx"))
        ports[name] = frames
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_ecn(data: object) -> PerPort[dict[str, int | None]]:
    """Parse `show qos interfaces ecn counters queue`: marked packets by port and queue, None where not counted.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, dict[str, int | None]] = {}
    problems: list[str] = []
    for name, entry in _port_entries(data, "intfQueueCounters", problems):
        queues = _member(entry, "queueCounters")
        ports[name] = {}
        for queue, raw in queues.items() if isinstance(queues, dict) else ():
            value = json_counter(raw)
            if value is None and strip_placeholder(raw if isinstance(raw, str) else "x") is not None:
                problems.append(f"{name}: queue {excerpt(queue, 20)}: {excerpt(raw, 40)} is not a counter")
            elif str(queue).isdecimal():
                ports[name][str(queue)] = value
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_drops(data: object) -> PerPort[dict[str, int]]:
    """Parse `show interfaces counters queue detail`, or `… drops`: packets dropped by port and queue.

    The former has drop precedences of unicast and multicast queues, which are added up here. The latter is of hardware
    with virtual output queues (VOQ): drops at ingress and egress of a queue are different packets, and such hardware
    may count only one of them. Ranges of traffic classes (`TC0-2`) are skipped, since they belong to no single queue.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, dict[str, int]] = {}
    problems: list[str] = []
    sides = [side for key in ("egressQueueCounters", "ingressVoqCounters") if (side := _member(data, key)) is not None]
    for name, entry in chain.from_iterable(_port_entries(side, "interfaces", problems) for side in sides or [data]):
        queues = ports.setdefault(name, {})
        for path in (("ucastQueues",), ("mcastQueues",), ()):
            classes = _member(entry, *path, "trafficClasses")
            for label, counters in classes.items() if isinstance(classes, dict) else ():
                found = _TRAFFIC_CLASS.fullmatch(str(label))
                place = f"{name}: {label}"
                drops = [
                    _counter_or_problem(part, ("droppedPackets",), place, problems) for part in _drop_entries(counters)
                ]
                if found and drops and None not in drops:
                    queues[found[1]] = queues.get(found[1], 0) + sum(count for count in drops if count is not None)
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_drops_text(data: object) -> PerPort[int]:
    """Parse the text of `show interfaces counters queue`: packets dropped by port, in all of its egress queues.

    A line has the port and three numbers: drops at ingress, at egress of unicast, at egress of multicast.

    Raises:
        ShapeError: it has no such line.
    """
    text = _member(data, "output")
    ports: dict[str, int] = {}
    problems: list[str] = []
    for line in text.splitlines() if isinstance(text, str) else ():
        found = _DROPS_LINE.fullmatch(line.strip())
        if found and admits(ports, len(ports), _LONG_NAMES[found[1]] + found[2], problems):
            _, unicast, multicast = (int(number) for number in found[3].split())
            ports[_LONG_NAMES[found[1]] + found[2]] = unicast + multicast
    if not ports:
        raise ShapeError(f"no line of a port in {excerpt(text)}")
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_neighbours(data: object) -> list[LldpNeighbour]:
    """Parse `show lldp neighbors detail`: all neighbours of all ports.

    Raises:
        ShapeError: the data is of another structure.
    """
    neighbours = []
    for name, entry in _port_entries(data, "lldpNeighbors", []):
        entries = _member(entry, "lldpNeighborInfo")
        for one in entries if isinstance(entries, list) else ():
            neighbour = _parse_neighbour(name, one)
            if neighbour is not None:
                neighbours.append(neighbour)
    return neighbours


def parse_modules(data: object) -> PerPort[Transceiver]:
    """Parse `show interfaces transceiver [dom thresholds]`; a module without sensors has no entry.

    Without `dom thresholds` the output has one lane of each module.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, Transceiver] = {}
    problems: list[str] = []
    for name, entry in _port_entries(data, "interfaces", problems):
        parameters = _member(entry, "parameters")
        lanes = {key: _lane_values(entry, parameters, key) for key in ("rxPower", "txPower", "txBias")}
        module = Transceiver(
            _module_value(entry, parameters, "temperature"),
            _module_value(entry, parameters, "voltage"),
            lanes["rxPower"],
            lanes["txPower"],
            {lane: milliamperes / 1000 for lane, milliamperes in lanes["txBias"].items()},
        )
        if module != Transceiver():
            ports[name] = module
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_version(data: object) -> EosVersion:
    """Parse `show version`; what is missing is empty or None."""
    uptime = _member(data, "uptime")
    return EosVersion(
        json_text(_member(data, "modelName")),
        json_text(_member(data, "version")),
        normalise_identifier(json_text(_member(data, "systemMacAddress"))),
        float(uptime) if _is_number(uptime) else None,
    )


def parse_hostname(data: object) -> str:
    """Parse `show hostname`; "" where it has none."""
    return json_text(_member(data, "hostname"))


def _parse_neighbour(port: str, data: object) -> LldpNeighbour | None:
    chassis = normalise_identifier(json_text(_member(data, "chassisId")))
    name = json_text(_member(data, "systemName"))
    if not (chassis or name):
        return None
    interface, capabilities = _member(data, "neighborInterfaceInfo"), _member(data, "systemCapabilities")
    identifier = json_text(_member(interface, "interfaceId_v2")) or json_text(_member(interface, "interfaceId"))
    words = {"wlanAccessPoint": "wlan", "stationOnly": "station"}
    addresses = _member(data, "managementAddresses")
    return LldpNeighbour(
        port,
        chassis,
        normalise_identifier(identifier.strip('"')),
        name,
        json_text(_member(interface, "interfaceDescription")),
        json_text(_member(data, "systemDescription")),
        frozenset(
            words.get(word, word.lower())
            for word, enabled in (capabilities.items() if isinstance(capabilities, dict) else ())
            if enabled is True
        ),
        tuple(json_text(_member(one, "address")) for one in (addresses if isinstance(addresses, list) else ()) if one),
    )


def _lane_values(entry: object, parameters: object, key: str) -> dict[str, float]:
    """Return a measurement by lane; where only the port has one, as that of lane 1."""
    channels = _member(parameters, key, "channels")
    if isinstance(channels, dict):
        return {str(lane): float(v) for lane, v in channels.items() if str(lane).isdecimal() and _is_number(v)}
    value = _member(entry, key)
    return {"1": float(value)} if _is_number(value) else {}


def _module_value(entry: object, parameters: object, key: str) -> float | None:
    channels = [value for value in _values(_member(parameters, key, "channels")) if _is_number(value)]
    value = channels[0] if channels else _member(entry, key)
    return float(value) if _is_number(value) else None


def _priority_entries(entry: object) -> Iterator[tuple[int, object]]:
    """Yield the objects whose key is a priority: members of the entry, or members of those."""
    for name, value in entry.items() if isinstance(entry, dict) else ():
        found = _PRIORITY.fullmatch(str(name))
        if found and isinstance(value, dict):
            yield int(found[1]), value
        elif isinstance(value, dict):
            for key, inner in value.items():
                found = _PRIORITY.fullmatch(str(key))
                if found and isinstance(inner, dict):
                    yield int(found[1]), inner


def _only_counter(counters: object, prefix: str) -> int | None:
    """Return the counter whose name begins with a prefix; None where several do."""
    values = [
        json_counter(value)
        for name, value in (counters.items() if isinstance(counters, dict) else ())
        if str(name).lower().startswith(prefix)
    ]
    return values[0] if len(values) == 1 else None


def _drop_entries(counters: object) -> list[object]:
    """Return the objects of a traffic class that count drops: itself, its drop precedences, its ingress and egress."""
    if _member(counters, "droppedPackets") is not None:
        return [counters]
    sums = (_member(counters, side, "countersSum") for side in ("ingressVoqCounters", "egressQueueCounters"))
    return [*_values(_member(counters, "dropPrecedences")), *(one for one in sums if one is not None)]


def _port_entries(data: object, container: str, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the ports whose entry is an object; the others are problems."""
    entries = _member(data, container)
    if not isinstance(entries, dict):
        raise ShapeError(f"no {container} in {excerpt(data)}")
    for count, (name, entry) in enumerate(entries.items()):
        if not admits((), count, str(name), problems):
            continue
        if isinstance(entry, dict):
            yield str(name), entry
        else:
            problems.append(f"{name}: not an object: {excerpt(entry, 40)}")


def _counter_or_problem(data: object, path: tuple[str, ...], place: str, problems: list[str]) -> int | None:
    """Return a counter; a malformed one is a problem, and None like a missing one."""
    raw = _member(data, *path)
    value = json_counter(raw)
    if value is None and raw is not None:
        problems.append(f"{place}: {path[-1]} is {excerpt(raw, 40)}, not a counter of at most 64 bits")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(data: object) -> list[Any]:
    return list(data.values()) if isinstance(data, dict) else []


def _member(data: object, *path: str) -> Any:  # noqa: ANN401  # any JSON
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data
