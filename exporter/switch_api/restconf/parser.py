"""What RESTCONF answers of OpenConfig's models, made into values.  Pure: no I/O.

Names carry their module at the top level and where the module changes (`openconfig-if-ethernet:ethernet`); numbers of
64 bits are text.  A missing value is None, never 0; what is malformed costs itself and is told.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.switch_api.http import excerpt
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.port import Port, Read, ShapeError
from exporter.switch_api.text_values import COUNTER_TOP, identity, known

COUNTERS: Mapping[str, str] = {
    **{
        f"{way}-{leaf}": f"{words}_{ending}_total"
        for way, words in (("in", "receive"), ("out", "transmit"))
        for leaf, ending in (
            ("octets", "bytes"),
            ("pkts", "packets"),
            ("unicast-pkts", "unicast_packets"),
            ("multicast-pkts", "multicast_packets"),
            ("broadcast-pkts", "broadcast_packets"),
            ("errors", "errors"),
            ("discards", "discards"),
        )
    },
    "in-fcs-errors": "fcs_errors_total",
}
"""Leaf of `state/counters` to the ending of its metric."""

ETHERNET_COUNTERS: Mapping[str, str] = {
    "in-mac-pause-frames": "receive_pause_frames_total",
    "out-mac-pause-frames": "transmit_pause_frames_total",
}
"""The same of the Ethernet part."""

MOST_PORTS = 4096
MOST_PROBLEMS = 100

_TYPES = {
    "ethernetCsmacd": "6",
    "softwareLoopback": "24",
    "propVirtual": "53",
    "tunnel": "131",
    "l2vlan": "135",
    "l3ipvlan": "136",
    "ieee8023adLag": "161",
}
"""Types of interfaces that a switch has, by name, as numbers of IANA's ifType."""

_SPEED = re.compile(r"(?:[\w-]+:)?SPEED_([0-9]{1,5})(GB|MB)", re.ASCII)
_POWERS = {"GB": 10**9, "MB": 10**6}


def parse_interfaces(data: object) -> Read:
    """Read `openconfig-interfaces:interfaces`.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Port] = {}
    problems: list[str] = []
    for entry in _entries(data, "interfaces"):
        name = _text(_at(entry, "name"))
        if not name:
            problems.append(f"an interface without a name: {excerpt(entry)}")
        elif len(ports) < MOST_PORTS:
            ports[name] = _port(name, entry, problems)
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_neighbours(data: object) -> list[Heard]:
    """Read `openconfig-lldp:lldp/interfaces`: every neighbour of every port.

    Raises:
        ShapeError: It is something else.
    """
    found = []
    for entry in _entries(data, "interfaces"):
        port = _text(_at(entry, "name"))
        neighbours = _at(entry, "neighbors", "neighbor")
        for one in neighbours if isinstance(neighbours, list) else ():
            heard = _heard(port, one)
            if port and heard is not None:
                found.append(heard)
    return found


def parse_hostname(data: object) -> str:
    """Read `openconfig-system:system/state`; empty where it has no name."""
    return _text(_at(_member(data, "state"), "hostname"))


def _port(name: str, entry: object, problems: list[str]) -> Port:
    port = Port()
    state, ethernet = _at(entry, "state"), _at(entry, "ethernet", "state")
    for counters, endings in ((_at(state, "counters"), COUNTERS), (_at(ethernet, "counters"), ETHERNET_COUNTERS)):
        for leaf, ending in endings.items():
            told = _at(counters, leaf)
            if told is None:
                continue
            value = _counter(told)
            if value is None:
                problems.append(f"{name}: {leaf} is {excerpt(told, 40)}, no counter of at most 64 bits")
            else:
                port.counters[ending] = value
    words = {"UP": True, "DOWN": False, "LOWER_LAYER_DOWN": False, "DORMANT": False, "NOT_PRESENT": False}
    port.up = words.get(_text(_at(state, "oper-status")))
    port.admin_up = {"UP": True, "DOWN": False}.get(_text(_at(state, "admin-status")))
    speed = _SPEED.fullmatch(_text(_at(ethernet, "port-speed")))
    port.speed = int(speed[1]) * _POWERS[speed[2]] if speed else None
    index = _at(state, "ifindex")
    port.index = str(index) if isinstance(index, int) else ""
    port.description = known(_text(_at(state, "description"))) or ""
    kind = _text(_at(state, "type")).rpartition(":")[2]
    port.kind = _TYPES.get(kind, kind)
    return port


def _heard(port: str, neighbour: object) -> Heard | None:
    state = _at(neighbour, "state")
    chassis, name = identity(_text(_at(state, "chassis-id"))), _text(_at(state, "system-name"))
    if not (chassis or name):
        return None
    listed = _at(neighbour, "capabilities", "capability")
    words = {
        _text(_at(one, "name")).rpartition(":")[2].lower().replace("mac_", "").replace("_", "-")
        for one in (listed if isinstance(listed, list) else ())
        if _at(one, "state", "enabled") is True
    }
    address = _text(_at(state, "management-address"))
    return Heard(
        port,
        chassis,
        identity(_text(_at(state, "port-id"))),
        name,
        _text(_at(state, "port-description")),
        _text(_at(state, "system-description")),
        frozenset({"station" if word == "station-only" else word for word in words if word}),
        tuple(part for part in address.replace(",", " ").split() if part),
    )


def _counter(told: object) -> int | None:
    if isinstance(told, str) and told.isascii() and told.isdecimal() and len(told) <= 20:
        told = int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= COUNTER_TOP else None


def _entries(data: object, container: str) -> Iterator[Any]:
    """Give the interfaces of an answer: within their container, or as a list of their own."""
    within = _member(data, container)
    listed = _at(within, "interface") if isinstance(within, dict) else _member(data, "interface")
    if listed is None and within == {}:
        return iter(())
    if not isinstance(listed, list):
        raise ShapeError(f"not a list of interfaces: {excerpt(data)}")
    return iter(listed)


def _member(data: object, name: str) -> Any:  # noqa: ANN401  # any JSON
    """Give a member whatever module stands before its name."""
    if isinstance(data, dict):
        for key, value in data.items():
            if str(key).rpartition(":")[2] == name:
                return value
    return None


def _at(data: object, *steps: str) -> Any:  # noqa: ANN401  # any JSON
    for step in steps:
        data = _member(data, step)
    return data


def _text(value: object) -> str:
    return value[:1024].strip() if isinstance(value, str) else ""
