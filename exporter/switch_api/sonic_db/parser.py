"""Parsers of the databases of SONiC: values of redis hashes to records.  Pure: no I/O.

Names are those of SAI, in `COUNTERS:oid:…` of COUNTERS_DB; the object identifier of a port is in the name maps.  All
values are text; one that is missing or `N/A` is None, never 0.  Durations of pauses are read only where the name of the
field has their unit: that of `…_PAUSE_DURATION` is vendor specific, and `EST_…` is an estimate by software.  FEC symbol
errors are not read: they are corrected, and a healthy link of 400 Gb/s has them all the time.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.text_values import MAX_COUNTER, normalise_identifier, strip_placeholder
from exporter.switch_api.transceiver import Transceiver

RedisHash: TypeAlias = Mapping[bytes, bytes]
"""A hash of redis, not decoded."""

FieldValues: TypeAlias = Iterable[bytes | None]
"""Values of the requested fields of a hash, None for a field that it does not have."""

PRIORITIES = 8

PORT_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "SAI_PORT_STAT_IF_IN_OCTETS": "receive_bytes_total",
        "SAI_PORT_STAT_IF_OUT_OCTETS": "transmit_bytes_total",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "receive_unicast_packets_total",
        "SAI_PORT_STAT_IF_OUT_UCAST_PKTS": "transmit_unicast_packets_total",
        "SAI_PORT_STAT_IF_IN_MULTICAST_PKTS": "receive_multicast_packets_total",
        "SAI_PORT_STAT_IF_OUT_MULTICAST_PKTS": "transmit_multicast_packets_total",
        "SAI_PORT_STAT_IF_IN_BROADCAST_PKTS": "receive_broadcast_packets_total",
        "SAI_PORT_STAT_IF_OUT_BROADCAST_PKTS": "transmit_broadcast_packets_total",
        "SAI_PORT_STAT_IF_IN_ERRORS": "receive_errors_total",
        "SAI_PORT_STAT_IF_OUT_ERRORS": "transmit_errors_total",
        "SAI_PORT_STAT_IF_IN_DISCARDS": "receive_discards_total",
        "SAI_PORT_STAT_IF_OUT_DISCARDS": "transmit_discards_total",
        "SAI_PORT_STAT_PAUSE_RX_PKTS": "receive_pause_frames_total",
        "SAI_PORT_STAT_PAUSE_TX_PKTS": "transmit_pause_frames_total",
        "SAI_PORT_STAT_ETHER_STATS_CRC_ALIGN_ERRORS": "fcs_errors_total",
        "SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES": "fec_corrected_blocks_total",
        "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES": "fec_uncorrectable_blocks_total",
    }
)
"""Field to the ending of its metric."""

PRIORITY_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "SAI_PORT_STAT_PFC_{}_RX_PKTS": "receive_pfc_frames_total",
        "SAI_PORT_STAT_PFC_{}_TX_PKTS": "transmit_pfc_frames_total",
        "SAI_PORT_STAT_PFC_{}_RX_PAUSE_DURATION_US": "receive_pfc_paused_seconds_total",
        "SAI_PORT_STAT_PFC_{}_TX_PAUSE_DURATION_US": "transmit_pfc_paused_seconds_total",
    }
)
"""Field of each priority, with its number in place of the braces, to the ending. Durations are in microseconds."""

QUEUE_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "SAI_QUEUE_STAT_BYTES": "queue_transmit_bytes_total",
        "SAI_QUEUE_STAT_PACKETS": "queue_transmit_packets_total",
        "SAI_QUEUE_STAT_DROPPED_PACKETS": "queue_full_discards_total",
        "SAI_QUEUE_STAT_WRED_DROPPED_PACKETS": "queue_early_discards_total",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "queue_ecn_marked_packets_total",
        "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": "queue_depth_bytes",
        "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "queue_pfc_deadlocks_total",
    }
)

QUEUE_WATERMARKS: Mapping[str, str] = MappingProxyType(
    {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "queue_highest_depth_bytes"}
)
"""Of the table PERIODIC_WATERMARKS, which the switch resets each minute; other watermarks are reset by its users."""

PRIORITY_GROUP_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES": "priority_group_depth_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "priority_group_discards_total",
    }
)

PRIORITY_GROUP_WATERMARKS: Mapping[str, str] = MappingProxyType(
    {
        "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "priority_group_highest_depth_bytes",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "priority_group_highest_headroom_bytes",
    }
)

PORT_TABLE_FIELDS = ("oper_status", "admin_status", "speed", "alias", "description")
"""Fields of PORT_TABLE in APPL_DB; the speed is the configured one."""

OPERATIONAL_FIELDS = ("speed",)
"""Fields of PORT_TABLE in STATE_DB: the operational speed, which is 0 or absent while it is unknown."""

LLDP_ENTRY_FIELDS = (
    "lldp_rem_chassis_id",
    "lldp_rem_port_id",
    "lldp_rem_sys_name",
    "lldp_rem_port_desc",
    "lldp_rem_sys_desc",
    "lldp_rem_sys_cap_enabled",
    "lldp_rem_man_addr",
)
"""Fields of LLDP_ENTRY_TABLE in APPL_DB; it has one neighbour per port."""

LANES = range(1, 9)

DOM_SENSOR_FIELDS = (
    "temperature",
    "voltage",
    *(form.format(lane) for lane in LANES for form in ("rx{}power", "tx{}power", "tx{}bias")),
)
"""Fields of TRANSCEIVER_DOM_SENSOR in STATE_DB."""

FLEX_COUNTER_GROUPS: Mapping[str, float] = MappingProxyType(
    {"PORT": 1.0, "QUEUE": 10.0, "PG_DROP": 10.0, "WRED_ECN_QUEUE": 10.0}
)
"""Groups of counters that are enabled separately, with the default polling interval of each in seconds."""

FLEX_COUNTER_FIELDS = ("FLEX_COUNTER_STATUS", "POLL_INTERVAL")
"""Fields of FLEX_COUNTER_TABLE in CONFIG_DB; the interval is in milliseconds."""

MAX_NAME_PROBLEMS = 20

_OID = re.compile(rb"oid:0x[0-9a-f]{1,16}")
_NUMBERED_NAME = re.compile(r"([A-Za-z][\w./-]{0,63})[:|]([0-9]{1,3})", re.ASCII)
_MEASUREMENT = re.compile(r"\s{0,16}([+-]?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?|inf))\s{0,16}[A-Za-z]{0,8}\s{0,16}", re.ASCII)
_CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""By bit of IEEE 802.1AB, the most significant bit first."""

_STATUS = MappingProxyType({"up": True, "down": False})


@dataclass(frozen=True, slots=True)
class NameMap:
    """A name map of COUNTERS_DB: the object identifier of each port, queue or priority group.

    Attributes:
        oids: (port,) or (port, number) to the object identifier.
        problems: Malformed entries, at most MAX_NAME_PROBLEMS.
    """

    oids: Mapping[tuple[str, ...], bytes]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterValues:
    """Counters of one object by the ending of their metric; `problems` are the values that are not counters."""

    counters: Mapping[str, int]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PortTableEntry:
    """State of a port; None and empty where it is not reported. `speed` is in bits per second."""

    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    alias: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class FlexCounterGroup:
    """A group of counters: whether it is enabled, None where it is not configured, and its polling interval."""

    enabled: bool | None
    interval_seconds: float


def parse_port_names(names: RedisHash) -> NameMap:
    """Parse COUNTERS_PORT_NAME_MAP: keys `(port,)`."""
    return _parse_name_map(names, lambda text: (text,))


def parse_numbered_names(names: RedisHash) -> NameMap:
    """Parse COUNTERS_QUEUE_NAME_MAP or COUNTERS_PG_NAME_MAP (`Ethernet0:3`): keys `(port, number)`."""

    def split(text: str) -> tuple[str, ...] | None:
        found = _NUMBERED_NAME.fullmatch(text)
        return None if found is None else (found[1], found[2])

    return _parse_name_map(names, split)


def parse_counters(values: FieldValues, endings: Iterable[str]) -> CounterValues:
    """Parse counters, each with the ending of its metric; a missing one is absent."""
    counters: dict[str, int] = {}
    problems: list[str] = []
    for value, ending in zip(values, endings, strict=True):
        if value is None:
            continue
        if value.isdigit() and len(value) <= 20 and (number := int(value)) <= MAX_COUNTER:
            counters[ending] = number
        elif strip_placeholder(_decode(value)) is not None:
            problems.append(f"{ending}: {value[:40]!r} is not a counter of at most 64 bits")
    return CounterValues(counters, tuple(problems))


def parse_port_table(values: FieldValues, operational: FieldValues = (None,)) -> PortTableEntry:
    """Parse the fields PORT_TABLE_FIELDS of a port, and its OPERATIONAL_FIELDS, whose speed takes precedence."""
    oper, admin, configured, alias, description = (_text(value) for value in values)
    (speed,) = (_text(value) for value in operational)
    return PortTableEntry(
        _STATUS.get((oper or "").lower()),
        _STATUS.get((admin or "").lower()),
        _speed(speed) or _speed(configured),
        alias or "",
        description or "",
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else strip_placeholder(_decode(value))


def _speed(text: str | None) -> int | None:
    """Return a speed in bits per second, from Mb/s; None where it is 0, absent or malformed."""
    megabits = int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return megabits * 10**6 or None


def parse_neighbour(port: str, values: FieldValues) -> LldpNeighbour | None:
    """Parse the fields LLDP_ENTRY_FIELDS of a port; None where it has no neighbour."""
    texts = [parse_text(value) for value in values]
    chassis, peer_port, name, port_description, description, capabilities, addresses = texts
    if not (chassis or name):
        return None
    return LldpNeighbour(
        port,
        normalise_identifier(chassis),
        normalise_identifier(peer_port),
        name,
        port_description,
        description,
        parse_capabilities(capabilities),
        tuple(address.strip() for address in addresses.replace(";", ",").split(",") if address.strip()),
    )


def parse_dom_sensor(values: FieldValues) -> Transceiver | None:
    """Parse the fields DOM_SENSOR_FIELDS of a port: dBm, mA, degrees Celsius and volts as text.

    None where there is no module with sensors: the table has 0 volts then, with which no sensor works.
    """
    texts = {name: _decode(value) for name, value in zip(DOM_SENSOR_FIELDS, values, strict=True) if value is not None}

    def by_lane(form: str) -> dict[str, float]:
        lanes = {str(lane): parse_measurement(texts.get(form.format(lane))) for lane in LANES}
        return {lane: value for lane, value in lanes.items() if value is not None}

    voltage = parse_measurement(texts.get("voltage"))
    if not voltage:
        return None
    return Transceiver(
        parse_measurement(texts.get("temperature")),
        voltage,
        by_lane("rx{}power"),
        by_lane("tx{}power"),
        {lane: milliamperes / 1000 for lane, milliamperes in by_lane("tx{}bias").items()},
    )


def parse_text(value: bytes | None) -> str:
    """Decode a text; "" for a missing value or a placeholder."""
    return "" if value is None else strip_placeholder(_decode(value)) or ""


def parse_flex_counter_group(values: FieldValues, default_seconds: float) -> FlexCounterGroup:
    """Parse the fields FLEX_COUNTER_FIELDS of a group; `default_seconds` is used where no interval is configured."""
    status, interval = ("" if value is None else _decode(value) for value in values)
    is_number = interval.isascii() and interval.isdecimal() and len(interval) <= 8
    milliseconds = int(interval) if is_number else 0
    return FlexCounterGroup({"enable": True, "disable": False}.get(status), milliseconds / 1000 or default_seconds)


def parse_capabilities(text: str) -> frozenset[str]:
    """Parse two bytes of capabilities written as `28 00`."""
    try:
        bits = bytes.fromhex(text)[:1]
    except ValueError:
        return frozenset()
    return frozenset(word for shift, word in enumerate(_CAPABILITIES) if bits and bits[0] & 0x80 >> shift)


def parse_measurement(text: str | None) -> float | None:
    """Parse `-2.5`, `-2.5dBm` or `-inf`, which is no light; None for anything else, such as `N/A`."""
    found = _MEASUREMENT.fullmatch(text or "")
    return None if found is None else float(found[1])


def _parse_name_map(names: RedisHash, split: Callable[[str], tuple[str, ...] | None]) -> NameMap:
    oids: dict[tuple[str, ...], bytes] = {}
    problems: list[str] = []
    for name, oid in sorted(names.items()):
        key = split(_decode(name))
        if key is None or not _OID.fullmatch(oid):
            problems.append(f"malformed entry {name[:60]!r}: {oid[:40]!r}")
        else:
            oids[key] = oid
    return NameMap(oids, tuple(problems[:MAX_NAME_PROBLEMS]))


def _decode(value: bytes) -> str:
    return value[:256].decode("utf-8", "surrogateescape")
