"""What NX-OS answers by NX-API and its object store, made into values.  Pure: no I/O.

A table of one row is an object where one of several is a list; numbers are numbers or text. A missing value is None,
never 0; what is malformed costs itself and is told.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.switch_api.http import excerpt
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.port import Port, Read, ShapeError
from exporter.switch_api.text_values import (
    COUNTER_TOP,
    identity,
    known,
    speed,
)

COUNTERS: Mapping[str, str] = {
    "eth_inbytes": "receive_bytes_total",
    "eth_outbytes": "transmit_bytes_total",
    "eth_inpkts": "receive_packets_total",
    "eth_outpkts": "transmit_packets_total",
    "eth_inucast": "receive_unicast_packets_total",
    "eth_outucast": "transmit_unicast_packets_total",
    "eth_inmcast": "receive_multicast_packets_total",
    "eth_outmcast": "transmit_multicast_packets_total",
    "eth_inbcast": "receive_broadcast_packets_total",
    "eth_outbcast": "transmit_broadcast_packets_total",
    "eth_inerr": "receive_errors_total",
    "eth_outerr": "transmit_errors_total",
    "eth_indiscard": "receive_discards_total",
    "eth_outdiscard": "transmit_discards_total",
    "eth_inpause": "receive_pause_frames_total",
    "eth_outpause": "transmit_pause_frames_total",
    "eth_crc": "fcs_errors_total",
}
"""Key of `show interface` to the ending of its metric."""

TYPES: Mapping[str, str] = {"ethernet": "6", "mgmt": "6", "port-channel": "161"}
"""How the names of what is read begin, to the number of its ifType; `eth_hw_desc` is what its hardware could do."""

QUEUE_COUNTERS: Mapping[str, str] = {
    "txBytes": "queue_transmit_bytes_total",
    "txPackets": "queue_transmit_packets_total",
    "randEcnMarkedPackets": "queue_ecn_marked_packets_total",
}
"""Attribute of ipqosQueuingStats to the ending of its metric. Depths are left out: their unit is not documented."""

MOST_PORTS = 4096
MOST_PROBLEMS = 100

_QUEUE = re.compile(r"intf-\[([^\]]{1,64})\]/queCmap-\[[^\]]*?q-?(\d{1,2}|default)\]", re.ASCII)
_LETTERS = {
    "B": "bridge",
    "R": "router",
    "T": "telephone",
    "C": "docsis",
    "W": "wlan",
    "P": "repeater",
    "S": "station",
    "O": "other",
}
_ABSENT_STATES = frozenset({"", "unknown"})


@dataclass(frozen=True, slots=True)
class Version:
    """What the switch says of itself; `uptime` in seconds."""

    name: str = ""
    model: str = ""
    release: str = ""
    uptime: float | None = None


def parse_interfaces(body: object) -> Read:
    """Read `show interface`: a Port by name, of those that are Ethernet, bundles of it, or management.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, Port] = {}
    problems: list[str] = []
    for row in _rows(body, "TABLE_interface", "ROW_interface"):
        name = _text(row.get("interface"))
        kind = next((number for start, number in TYPES.items() if name.lower().startswith(start)), None)
        if kind is None or len(ports) >= MOST_PORTS:
            continue
        port = ports[name] = Port()
        for key, ending in COUNTERS.items():
            if key in row:
                value = _count(row[key])
                if value is None and known(str(row[key])) is not None:
                    problems.append(f"{name}: {key} is {excerpt(row[key], 40)}, no counter of at most 64 bits")
                elif value is not None:
                    port.counters[ending] = value
        state, admin = _text(row.get("state")).lower(), _text(row.get("admin_state")).lower()
        port.up = None if state in _ABSENT_STATES else state in ("up", "connected")
        port.admin_up = None if admin in _ABSENT_STATES else admin == "up"
        port.speed = _speed(row)
        port.description, port.kind = _text(row.get("desc")), kind if "." not in name else "subinterface"
    return Read(ports, tuple(problems[:MOST_PROBLEMS]))


def parse_pfc(body: object) -> Read:
    """Read `show interface priority-flow-control`: (received, sent) by port, of all priorities together.

    Raises:
        ShapeError: It is something else.
    """
    ports: dict[str, tuple[int | None, int | None]] = {}
    for module in _rows(body, "TABLE_module", "ROW_module"):
        for row in _rows(module, "TABLE_pfc_interface", "ROW_pfc_interface"):
            name = _text(row.get("if_name_str"))
            if name:
                ports[name] = (_count(row.get("rx-stats")), _count(row.get("tx-stats")))
    return Read(ports)


def parse_neighbours(body: object) -> list[Heard]:
    """Read `show lldp neighbors detail`: every neighbour of every port.

    Raises:
        ShapeError: It is something else.
    """
    found = []
    for row in _rows(body, "TABLE_nbor_detail", "ROW_nbor_detail"):
        chassis, name, port = (
            identity(_text(row.get("chassis_id"))),
            _text(row.get("sys_name")),
            _text(row.get("l_port_id")),
        )
        if not port or not (chassis or known(name)):
            continue
        letters = re.findall("[A-Z]", _text(row.get("enabled_capability")))
        addresses = (known(_text(row.get(key))) for key in ("mgmt_addr", "mgmt_addr_ipv6"))
        found.append(
            Heard(
                port,
                chassis,
                identity(_text(row.get("port_id"))),
                known(name) or "",
                known(_text(row.get("port_desc"))) or "",
                known(_text(row.get("sys_desc"))) or "",
                frozenset(_LETTERS[letter] for letter in letters if letter in _LETTERS),
                tuple(address for address in addresses if address),
            )
        )
    return found


def parse_version(body: object) -> Version:
    """Read `show version`."""
    row = body if isinstance(body, dict) else {}
    units = (("kern_uptm_days", 86400), ("kern_uptm_hrs", 3600), ("kern_uptm_mins", 60), ("kern_uptm_secs", 1))
    told = [(_count(row.get(key)), seconds) for key, seconds in units]
    uptime = None if any(count is None for count, _ in told) else sum((count or 0) * seconds for count, seconds in told)
    release = next((text for key in ("nxos_ver_str", "rr_sys_ver", "sys_ver_str") if (text := _text(row.get(key)))), "")
    return Version(_text(row.get("host_name")), _text(row.get("chassis_id")), release, uptime)


def parse_queues(objects: Sequence[Mapping[str, Any]]) -> Read:
    """Read ipqosQueuingStats: counters by port, as the object store spells it, and queue; those of what comes in not.

    The queue without a number is the default one, 0.
    """
    ports: dict[str, dict[str, dict[str, int]]] = {}
    for attributes in objects:
        place = _QUEUE.search(_text(attributes.get("dn")))
        if place is None or "/out/" not in _text(attributes.get("dn")):
            continue
        queue = "0" if place[2] == "default" else str(int(place[2]))
        counted = {ending: _count(attributes.get(key)) for key, ending in QUEUE_COUNTERS.items()}
        values = {ending: count for ending, count in counted.items() if count is not None}
        if values:
            ports.setdefault(place[1], {})[queue] = values
    return Read(ports)


def _speed(row: Mapping[str, Any]) -> int | None:
    """Read the speed: of the link where it is told, else the bandwidth in kb/s."""
    told = _text(row.get("eth_speed"))
    try:
        found = speed(told) if told and "auto" not in told else None
    except ValueError:
        found = None
    bandwidth = _count(row.get("eth_bw"))
    return found or (bandwidth * 1000 if bandwidth else None)


def _rows(body: object, table: str, row: str) -> Iterator[Mapping[str, Any]]:
    within = body.get(table) if isinstance(body, dict) else None
    tables = within if isinstance(within, list) else [within]
    found: list[Any] = []
    for one in tables:
        listed = one.get(row) if isinstance(one, dict) else None
        if listed is None:
            raise ShapeError(f"no {table}.{row} in {excerpt(body)}")
        found += listed if isinstance(listed, list) else [listed]
    return iter([one for one in found if isinstance(one, dict)])


def _count(told: object) -> int | None:
    if isinstance(told, str) and told.isascii() and told.isdecimal() and len(told) <= 20:
        told = int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= COUNTER_TOP else None


def _text(value: object) -> str:
    return value[:1024].strip() if isinstance(value, str) else ""
