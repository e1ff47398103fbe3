"""Parsers of the JSON output of Cisco NX-OS commands (NX-API) and of objects of its object store.  Pure: no I/O.

A table with one row is an object, with several a list; numbers are JSON numbers or text. A missing value is None,
never 0; a malformed value is skipped and reported as a problem.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    parse_speed,
    strip_placeholder,
)

COUNTERS: Mapping[str, str] = MappingProxyType(
    {
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
)
"""Key of `show interface` to the ending of its metric."""

TYPES: Mapping[str, str] = MappingProxyType({"ethernet": "6", "mgmt": "6", "port-channel": "161"})
"""Prefix of the name of an interface that is read, to its ifType; `eth_hw_desc` lists what the hardware supports."""

QUEUE_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "txBytes": "queue_transmit_bytes_total",
        "txPackets": "queue_transmit_packets_total",
        "randEcnMarkedPackets": "queue_ecn_marked_packets_total",
    }
)
"""Attribute of ipqosQueuingStats to the ending of its metric. Queue depths are skipped: no document has their unit."""

_QUEUE = re.compile(r"intf-\[([^\]]{1,64})\]/queCmap-\[[^\]]*?q-?(\d{1,2}|default)\]", re.ASCII)
_CAPABILITIES = MappingProxyType(
    {
        "B": "bridge",
        "R": "router",
        "T": "telephone",
        "C": "docsis",
        "W": "wlan",
        "P": "repeater",
        "S": "station",
        "O": "other",
    }
)
_ON_OFF = MappingProxyType({"on": True, "off": False})
_ABSENT_STATES = frozenset({"", "unknown"})
_UPTIME_UNITS = (("kern_uptm_days", 86400), ("kern_uptm_hrs", 3600), ("kern_uptm_mins", 60), ("kern_uptm_secs", 1))


@dataclass(frozen=True, slots=True)
class NxosVersion:
    """Output of `show version`; `uptime` is in seconds."""

    name: str = ""
    model: str = ""
    release: str = ""
    uptime: float | None = None


def parse_interfaces(body: object) -> PerPort[PortState]:
    """Parse `show interface`: the Ethernet, port channel and management interfaces.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, PortState] = {}
    problems: list[str] = []
    for row in _rows(body, "TABLE_interface", "ROW_interface"):
        name = json_text(row.get("interface"))
        kind = next((number for prefix, number in TYPES.items() if name.lower().startswith(prefix)), None)
        if kind is None or not admits(ports, len(ports), name, problems):
            continue
        port = ports[name] = PortState()
        for key, ending in COUNTERS.items():
            if key in row:
                value = json_counter(row[key])
                if value is None and strip_placeholder(str(row[key])) is not None:
                    problems.append(f"{name}: {key} is {excerpt(row[key], 40)}, not a counter of at most 64 bits")
                elif value is not None:
                    port.counters[ending] = value
        state, admin = json_text(row.get("state")).lower(), json_text(row.get("admin_state")).lower()
        port.up = None if state in _ABSENT_STATES else state in ("up", "connected")
        port.admin_up = None if admin in _ABSENT_STATES else admin == "up"
        port.speed = _link_speed(row)
        port.description, port.if_type = json_text(row.get("desc")), kind if "." not in name else "subinterface"
        autoneg = _ON_OFF.get(json_text(row.get("eth_autoneg")).lower())
        port.settings = PortSettings(mtu=parse_mtu(row.get("eth_mtu")), autoneg=autoneg)
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_pfc(body: object) -> PerPort[tuple[int | None, int | None]]:
    """Parse `show interface priority-flow-control`: frames (received, transmitted) by port, of all priorities together.

    Raises:
        ShapeError: the data is of another structure.
    """
    ports: dict[str, tuple[int | None, int | None]] = {}
    problems: list[str] = []
    for module in _rows(body, "TABLE_module", "ROW_module"):
        for row in _rows(module, "TABLE_pfc_interface", "ROW_pfc_interface"):
            name = json_text(row.get("if_name_str"))
            if name and admits(ports, len(ports), name, problems):
                ports[name] = (json_counter(row.get("rx-stats")), json_counter(row.get("tx-stats")))
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_neighbours(body: object) -> list[LldpNeighbour]:
    """Parse `show lldp neighbors detail`: all neighbours of all ports.

    Raises:
        ShapeError: the data is of another structure.
    """
    neighbours = []
    for row in _rows(body, "TABLE_nbor_detail", "ROW_nbor_detail"):
        chassis = normalise_identifier(json_text(row.get("chassis_id")))
        name, port = json_text(row.get("sys_name")), json_text(row.get("l_port_id"))
        if not port or not (chassis or strip_placeholder(name)):
            continue
        letters = re.findall("[A-Z]", json_text(row.get("enabled_capability")))
        addresses = (strip_placeholder(json_text(row.get(key))) for key in ("mgmt_addr", "mgmt_addr_ipv6"))
        neighbours.append(
            LldpNeighbour(
                port,
                chassis,
                normalise_identifier(json_text(row.get("port_id"))),
                strip_placeholder(name) or "",
                strip_placeholder(json_text(row.get("port_desc"))) or "",
                strip_placeholder(json_text(row.get("sys_desc"))) or "",
                frozenset(_CAPABILITIES[letter] for letter in letters if letter in _CAPABILITIES),
                tuple(address for address in addresses if address),
            )
        )
    return neighbours


def parse_version(body: object) -> NxosVersion:
    """Parse `show version`; what is missing is empty or None."""
    row = body if isinstance(body, dict) else {}
    parts = [(json_counter(row.get(key)), seconds) for key, seconds in _UPTIME_UNITS]
    uptime = (
        None if any(count is None for count, _ in parts) else sum((count or 0) * seconds for count, seconds in parts)
    )
    releases = (json_text(row.get(key)) for key in ("nxos_ver_str", "rr_sys_ver", "sys_ver_str"))
    release = next((text for text in releases if text), "")
    return NxosVersion(json_text(row.get("host_name")), json_text(row.get("chassis_id")), release, uptime)


def parse_queues(objects: Sequence[Mapping[str, Any]]) -> PerPort[dict[str, dict[str, int]]]:
    """Parse ipqosQueuingStats: counters of egress queues by port, as the object store spells it, and queue.

    The queue without a number is the default one, 0. Ingress queues are skipped.
    """
    ports: dict[str, dict[str, dict[str, int]]] = {}
    for attributes in objects:
        name = json_text(attributes.get("dn"))
        found = _QUEUE.search(name)
        if found is None or "/out/" not in name:
            continue
        queue = "0" if found[2] == "default" else str(int(found[2]))
        counters = {ending: json_counter(attributes.get(key)) for key, ending in QUEUE_COUNTERS.items()}
        values = {ending: count for ending, count in counters.items() if count is not None}
        if values:
            ports.setdefault(found[1], {})[queue] = values
    return PerPort(ports)


def _link_speed(row: Mapping[str, Any]) -> int | None:
    """Return the negotiated speed where it is reported, else the bandwidth, which is in kb/s."""
    text = json_text(row.get("eth_speed"))
    try:
        speed = parse_speed(text) if text and "auto" not in text else None
    except ValueError:
        speed = None
    bandwidth = json_counter(row.get("eth_bw"))
    return speed or (bandwidth * 1000 if bandwidth else None)


def _rows(body: object, table: str, row: str) -> Iterator[Mapping[str, Any]]:
    value = body.get(table) if isinstance(body, dict) else None
    tables = value if isinstance(value, list) else [value]
    rows: list[Any] = []
    for one in tables:
        entries = one.get(row) if isinstance(one, dict) else None
        if entries is None:
            raise ShapeError(f"no {table}.{row} in {excerpt(body)}")
        rows += entries if isinstance(entries, list) else [entries]
    return iter([one for one in rows if isinstance(one, dict)])
