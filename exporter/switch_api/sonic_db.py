"""What stands in the databases of SONiC, made into values.  Pure: hashes in, records out.

Names are those of SAI, in `COUNTERS:oid:…` of the counters database; a port's identifier is in the name maps.  Every
value is text; one that is missing or `N/A` is None, never 0.  Durations of pauses are read where their unit is in the
name alone: `…_PAUSE_DURATION` without one is the vendor's choice, and `EST_…` is an estimate of software.  Symbols that
forward error correction found wrong are not read: it mends them, and a link of 400 Gb/s has them all the time.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from exporter.switch_api.neighbour import Heard
from exporter.switch_api.text_values import COUNTER_TOP, identity, known

Hash: TypeAlias = Mapping[bytes, bytes]
"""A hash of redis, as it comes."""

PRIORITIES = 8

PORT_FIELDS: Mapping[str, str] = {
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
"""Field to the ending of its metric."""

PRIORITY_FIELDS: Mapping[str, str] = {
    "SAI_PORT_STAT_PFC_{}_RX_PKTS": "receive_pfc_frames_total",
    "SAI_PORT_STAT_PFC_{}_TX_PKTS": "transmit_pfc_frames_total",
    "SAI_PORT_STAT_PFC_{}_RX_PAUSE_DURATION_US": "receive_pfc_paused_seconds_total",
    "SAI_PORT_STAT_PFC_{}_TX_PAUSE_DURATION_US": "transmit_pfc_paused_seconds_total",
}
"""The same of each priority, whose number stands in the middle. Durations are in microseconds."""

QUEUE_FIELDS: Mapping[str, str] = {
    "SAI_QUEUE_STAT_BYTES": "queue_transmit_bytes_total",
    "SAI_QUEUE_STAT_PACKETS": "queue_transmit_packets_total",
    "SAI_QUEUE_STAT_DROPPED_PACKETS": "queue_full_discards_total",
    "SAI_QUEUE_STAT_WRED_DROPPED_PACKETS": "queue_early_discards_total",
    "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "queue_ecn_marked_packets_total",
    "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": "queue_depth_bytes",
    "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "queue_pfc_deadlocks_total",
}

QUEUE_WATERMARKS: Mapping[str, str] = {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "queue_highest_depth_bytes"}
"""Those of the periodic table, which the switch begins anew each minute; clearing others is somebody else's."""

GROUP_FIELDS: Mapping[str, str] = {
    "SAI_INGRESS_PRIORITY_GROUP_STAT_CURR_OCCUPANCY_BYTES": "priority_group_depth_bytes",
    "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "priority_group_discards_total",
}

GROUP_WATERMARKS: Mapping[str, str] = {
    "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "priority_group_highest_depth_bytes",
    "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "priority_group_highest_headroom_bytes",
}

PORT_TABLE = ("oper_status", "admin_status", "speed", "alias", "description")
"""Fields of PORT_TABLE in the application's database."""

LLDP_ENTRY = (
    "lldp_rem_chassis_id",
    "lldp_rem_port_id",
    "lldp_rem_sys_name",
    "lldp_rem_port_desc",
    "lldp_rem_sys_desc",
    "lldp_rem_sys_cap_enabled",
    "lldp_rem_man_addr",
)
"""Fields of LLDP_ENTRY_TABLE in the application's database; it has one neighbour a port."""

LANES = range(1, 9)

DOM_SENSOR = (
    "temperature",
    "voltage",
    *(form.format(lane) for lane in LANES for form in ("rx{}power", "tx{}power", "tx{}bias")),
)
"""Fields of TRANSCEIVER_DOM_SENSOR in the database of states."""

FLEX_GROUPS: Mapping[str, float] = {"PORT": 1.0, "QUEUE": 10.0, "PG_DROP": 10.0, "WRED_ECN_QUEUE": 10.0}
"""Groups of counters that are switched on one by one, with the seconds after which each is read by default."""

FLEX_COUNTER = ("FLEX_COUNTER_STATUS", "POLL_INTERVAL")
"""Fields of FLEX_COUNTER_TABLE in the configuration's database; the interval is in milliseconds."""

_OID = re.compile(rb"oid:0x[0-9a-f]{1,16}")
_PLACE = re.compile(r"([A-Za-z][\w./-]{0,63})[:|]([0-9]{1,3})", re.ASCII)
_CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""By bit of IEEE 802.1AB, the first is the highest."""

Splitter: TypeAlias = Callable[[str], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Names:
    """A name map: what is where in the counters database.

    Attributes:
        places: (port,) or (port, number) to the identifier.
        problems: Entries that make no sense, at most 20.
    """

    places: Mapping[tuple[str, ...], bytes]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """Counters of one thing by the ending of their metric; `problems` are values that are no numbers."""

    found: Mapping[str, int]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """How a port is; None and empty where the switch does not say. `speed` is in bits per second."""

    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    alias: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Dom:
    """What a module measures: celsius, volts, and by lane dBm and amperes."""

    temperature: float | None = None
    voltage: float | None = None
    receive_power: Mapping[int, float] = field(default_factory=dict)
    transmit_power: Mapping[int, float] = field(default_factory=dict)
    bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of counters: whether it is switched on, None where nothing says so, and seconds between its readings."""

    enabled: bool | None
    seconds: float


def ports(names: Hash) -> Names:
    """Read COUNTERS_PORT_NAME_MAP: keys `(port,)`."""
    return _names(names, lambda text: (text,))


def parts(names: Hash) -> Names:
    """Read COUNTERS_QUEUE_NAME_MAP or COUNTERS_PG_NAME_MAP, `Ethernet0:3`: keys `(port, number)`."""

    def split(text: str) -> tuple[str, ...] | None:
        found = _PLACE.fullmatch(text)
        return None if found is None else (found[1], found[2])

    return _names(names, split)


def counters(values: Iterable[bytes | None], endings: Iterable[str]) -> Values:
    """Read counters, each with the ending of its metric; what is not there has none."""
    found: dict[str, int] = {}
    problems: list[str] = []
    for value, ending in zip(values, endings, strict=True):
        if value is None:
            continue
        if value.isdigit() and len(value) <= 20 and (number := int(value)) <= COUNTER_TOP:
            found[ending] = number
        elif known(_text(value)) is not None:
            problems.append(f"{ending}: {value[:40]!r} is no counter of at most 64 bits")
    return Values(found, tuple(problems))


def state(values: Iterable[bytes | None]) -> State:
    """Read the fields PORT_TABLE of a port; its speed is in Mb/s there."""
    oper, admin, speed, alias, description = (None if value is None else known(_text(value)) for value in values)
    megabits = int(speed) if speed is not None and speed.isascii() and speed.isdecimal() and len(speed) < 10 else 0
    words = {"up": True, "down": False}
    return State(
        words.get((oper or "").lower()),
        words.get((admin or "").lower()),
        megabits * 10**6 or None,
        alias or "",
        description or "",
    )


def heard(port: str, values: Iterable[bytes | None]) -> Heard | None:
    """Read the fields LLDP_ENTRY of a port; None where nobody was heard."""
    texts = [text(value) for value in values]
    chassis, peer_port, name, port_description, description, capabilities, addresses = texts
    if not (chassis or name):
        return None
    listed = addresses.replace(";", ",").split(",")
    return Heard(
        port,
        identity(chassis),
        identity(peer_port),
        name,
        port_description,
        description,
        _capabilities(capabilities),
        tuple(address.strip() for address in listed if address.strip()),
    )


def dom(values: Iterable[bytes | None]) -> Dom | None:
    """Read the fields DOM_SENSOR of a port: dBm, mA, celsius and volts as text.

    None where there is no module that measures: without one the table says 0 volts, at which nothing would measure.
    """
    texts = {name: _text(value) for name, value in zip(DOM_SENSOR, values, strict=True) if value is not None}

    def each(form: str) -> dict[int, float]:
        read = {lane: _measured(texts.get(form.format(lane))) for lane in LANES}
        return {lane: value for lane, value in read.items() if value is not None}

    if not _measured(texts.get("voltage")):
        return None
    bias = {lane: milliamperes / 1000 for lane, milliamperes in each("tx{}bias").items()}
    return Dom(
        _measured(texts.get("temperature")), _measured(texts.get("voltage")), each("rx{}power"), each("tx{}power"), bias
    )


def text(value: bytes | None) -> str:
    """Read a text; empty where there is none."""
    return "" if value is None else known(_text(value)) or ""


def group(values: Iterable[bytes | None], default: float) -> Group:
    """Read the fields FLEX_COUNTER of a group; `default` is its interval in seconds where none is configured."""
    status, interval = ("" if value is None else _text(value) for value in values)
    said = interval.isascii() and interval.isdecimal() and len(interval) <= 8
    milliseconds = int(interval) if said else 0
    return Group({"enable": True, "disable": False}.get(status), milliseconds / 1000 or default)


def _names(names: Hash, split: Splitter) -> Names:
    places: dict[tuple[str, ...], bytes] = {}
    problems: list[str] = []
    for name, oid in sorted(names.items()):
        place = split(_text(name))
        if place is None or not _OID.fullmatch(oid):
            problems.append(f"{name[:60]!r} is at {oid[:40]!r}")
        else:
            places[place] = oid
    return Names(places, tuple(problems[:20]))


def _capabilities(text: str) -> frozenset[str]:
    """Read two bytes written as `28 00`."""
    try:
        bits = bytes.fromhex(text)[:1]
    except ValueError:
        return frozenset()
    return frozenset(word for place, word in enumerate(_CAPABILITIES) if bits and bits[0] & 0x80 >> place)


def _measured(text: str | None) -> float | None:
    """Read a measurement, `-2.5`, `-2.5dBm` or `N/A`; light of `-inf` is none to speak of."""
    found = re.fullmatch(r"\s*([+-]?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?|inf))\s*[A-Za-z]{0,8}\s*", text or "", re.ASCII)
    return None if found is None else float(found[1])


def _text(value: bytes) -> str:
    return value[:256].decode("utf-8", "surrogateescape")
