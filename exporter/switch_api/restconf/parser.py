"""Parsers of OpenConfig data that RESTCONF (RFC 8040) returns as JSON (RFC 7951).  Pure: no I/O.

Names have their module at the top level and where the module changes (`openconfig-if-ethernet:ethernet`); numbers of
64 bits are text.  A missing value is None, never 0; a malformed value is skipped and reported as a problem.
"""

import re
from collections.abc import Iterator, Mapping
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

COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        **{
            f"{prefix}-{leaf}": f"{direction}_{ending}_total"
            for prefix, direction in (("in", "receive"), ("out", "transmit"))
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
)
"""Leaf of `state/counters` to the ending of its metric."""

ETHERNET_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "in-mac-pause-frames": "receive_pause_frames_total",
        "out-mac-pause-frames": "transmit_pause_frames_total",
    }
)
"""Leaf of `ethernet/state/counters` to the ending of its metric."""

_TYPES = MappingProxyType(
    {
        "ethernetCsmacd": "6",
        "softwareLoopback": "24",
        "propVirtual": "53",
        "tunnel": "131",
        "l2vlan": "135",
        "l3ipvlan": "136",
        "ieee8023adLag": "161",
    }
)
"""Identity of iana-if-type to the number of IANA's ifType."""

_SPEED = re.compile(r"(?:[\w-]{1,64}:)?SPEED_([0-9]{1,5})(GB|MB)", re.ASCII)
_POWERS = MappingProxyType({"GB": 10**9, "MB": 10**6})
_OPER_STATUS = MappingProxyType(
    {"UP": True, "DOWN": False, "LOWER_LAYER_DOWN": False, "DORMANT": False, "NOT_PRESENT": False}
)
_ADMIN_STATUS = MappingProxyType({"UP": True, "DOWN": False})


def parse_interfaces(data: object) -> PerPort[PortState]:
    """Parse `openconfig-interfaces:interfaces`.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, PortState] = {}
    problems: list[str] = []
    for entry in _interface_entries(data):
        name = json_text(_at(entry, "name"))
        if not name:
            problems.append(f"an interface without a name: {excerpt(entry)}")
        elif admits(ports, len(ports), name, problems):
            ports[name] = _parse_interface(name, entry, problems)
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_neighbours(data: object) -> list[LldpNeighbour]:
    """Parse `openconfig-lldp:lldp/interfaces`: all neighbours of all ports.

    Raises:
        ShapeError: the data is of another structure.
    """
    neighbours = []
    for entry in _interface_entries(data):
        port = json_text(_at(entry, "name"))
        entries = _at(entry, "neighbors", "neighbor")
        for one in entries if isinstance(entries, list) else ():
            neighbour = _parse_neighbour(port, one)
            if port and neighbour is not None:
                neighbours.append(neighbour)
    return neighbours


def parse_hostname(data: object) -> str:
    """Parse `openconfig-system:system/state`; "" where it has no host name."""
    return json_text(_at(_member(data, "state"), "hostname"))


def _parse_interface(name: str, entry: object, problems: list[str]) -> PortState:
    port = PortState()
    state, ethernet = _at(entry, "state"), _at(entry, "ethernet", "state")
    for counters, endings in ((_at(state, "counters"), COUNTERS), (_at(ethernet, "counters"), ETHERNET_COUNTERS)):
        for leaf, ending in endings.items():
            raw = _at(counters, leaf)
            if raw is None:
                continue
            value = json_counter(raw)
            if value is None:
                problems.append(f"{name}: {leaf} is {excerpt(raw, 40)}, not a counter of at most 64 bits")
            else:
                port.counters[ending] = value
    port.up = _OPER_STATUS.get(json_text(_at(state, "oper-status")))
    port.admin_up = _ADMIN_STATUS.get(json_text(_at(state, "admin-status")))
    port.speed = _parse_speed(_at(ethernet, "port-speed"))
    configured = _parse_speed(_at(entry, "ethernet", "config", "port-speed"))
    port.settings = PortSettings(mtu=parse_mtu(_at(state, "mtu")), speed=configured)
    index = _at(state, "ifindex")
    port.index = str(index) if isinstance(index, int) else ""
    port.description = strip_placeholder(json_text(_at(state, "description"))) or ""
    kind = json_text(_at(state, "type")).rpartition(":")[2]
    port.if_type = _TYPES.get(kind, kind)
    return port


def _parse_speed(value: object) -> int | None:
    speed = _SPEED.fullmatch(json_text(value))
    return int(speed[1]) * _POWERS[speed[2]] if speed else None


def _parse_neighbour(port: str, data: object) -> LldpNeighbour | None:
    state = _at(data, "state")
    chassis, name = normalise_identifier(json_text(_at(state, "chassis-id"))), json_text(_at(state, "system-name"))
    if not (chassis or name):
        return None
    capabilities = _at(data, "capabilities", "capability")
    words = {
        json_text(_at(one, "name")).rpartition(":")[2].lower().replace("mac_", "").replace("_", "-")
        for one in (capabilities if isinstance(capabilities, list) else ())
        if _at(one, "state", "enabled") is True
    }
    addresses = json_text(_at(state, "management-address"))
    return LldpNeighbour(
        port,
        chassis,
        normalise_identifier(json_text(_at(state, "port-id"))),
        name,
        json_text(_at(state, "port-description")),
        json_text(_at(state, "system-description")),
        frozenset({"station" if word == "station-only" else word for word in words if word}),
        tuple(address for address in addresses.replace(",", " ").split() if address),
    )


def _interface_entries(data: object) -> Iterator[Any]:
    """Return the interfaces of a response: inside the container `interfaces`, or as a bare list."""
    container = _member(data, "interfaces")
    entries = _at(container, "interface") if isinstance(container, dict) else _member(data, "interface")
    if entries is None and container == {}:
        return iter(())
    if not isinstance(entries, list):
        raise ShapeError(f"not a list of interfaces: {excerpt(data)}")
    return iter(entries)


def _member(data: object, name: str) -> Any:  # noqa: ANN401  # any JSON
    """Return a member by its name, with or without a module prefix."""
    if isinstance(data, dict):
        for key, value in data.items():
            if str(key).rpartition(":")[2] == name:
                return value
    return None


def _at(data: object, *path: str) -> Any:  # noqa: ANN401  # any JSON
    for name in path:
        data = _member(data, name)
    return data
