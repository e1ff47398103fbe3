"""Parsers of the configuration of SONiC's ports in CONFIG_DB: values of redis hashes to settings.  Pure: no I/O.

CONFIG_DB is the whole configuration: what a port in it does not have is not configured. Older images write a reference
to another key in brackets, `[WRED_PROFILE|AZURE_LOSSLESS]`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from exporter.switch_api.port_settings import EcnThresholds, PortSettings
from exporter.switch_api.sonic_db.parser import PRIORITIES, FieldValues, parse_text

PORT_FIELDS = ("mtu", "speed", "autoneg", "fec")
"""Fields of PORT; the speed is in Mb/s."""

QOS_FIELDS = ("pfc_enable", "dscp_to_tc_map", "dot1p_to_tc_map")
"""Fields of PORT_QOS_MAP."""

WATCHDOG_FIELDS = ("detection_time", "action")
"""Fields of PFC_WD; without a detection time the watchdog is not started, without an action it drops."""

QUEUE_FIELDS = ("wred_profile",)
"""Fields of QUEUE."""

COLOURS = ("green", "yellow", "red")

PROFILE_FIELDS = (
    "ecn",
    *(
        field.format(colour)
        for colour in COLOURS
        for field in (
            "ecn_{}_min_threshold",
            "ecn_{}_max_threshold",
            "ecn_{}_mark_probability",
            "{}_min_threshold",
            "{}_max_threshold",
            "{}_drop_probability",
        )
    ),
)
"""Fields of WRED_PROFILE; thresholds are in bytes, probabilities in percent. Those of ECN are of newer images; without
them, packets are marked at the thresholds of drops."""

POOL_FIELDS = ("size",)
"""Fields of BUFFER_POOL in CONFIG_DB, and of BUFFER_POOL_TABLE in APPL_DB where the switch computes the size."""

POOLS = ("ingress_lossless_pool", "ingress_lossy_pool", "egress_lossless_pool", "egress_lossy_pool")
"""Names of the buffer pools in the templates of SONiC."""

QUEUES = 8
QUEUE_RANGES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        str(first) if first == last else f"{first}-{last}": tuple(map(str, range(first, last + 1)))
        for first in range(QUEUES)
        for last in range(first, QUEUES)
    }
)
"""Last part of a key of QUEUE, `3` or `3-4`, to its queues. Keys with several ports are not read."""

_FEC = MappingProxyType({"fc": "baser"})  # as ethtool names it
_ON_OFF = MappingProxyType({"on": True, "off": False, "1": True, "0": False})
_REFERENCE = re.compile(r"\[(?:[A-Z_]{1,64}\|)?([^|\[\]]{0,64})\]")


def parse_port(
    port: FieldValues | None,
    qos: FieldValues | None,
    global_qos: FieldValues | None,
    watchdog: FieldValues | None,
    ecn: Mapping[str, EcnThresholds],
) -> PortSettings:
    """Parse the fields of a port in PORT, PORT_QOS_MAP and PFC_WD; None is a key that cannot be read.

    Args:
        port: PORT_FIELDS; if it has none, the port is not configured here, and nothing is known.
        qos: QOS_FIELDS.
        global_qos: The same fields of the key `global`, which apply to ports without their own map.
        watchdog: WATCHDOG_FIELDS.
        ecn: Thresholds by queue.
    """
    mtu, speed, autoneg, fec = map(parse_text, port or [None] * len(PORT_FIELDS))
    if not (mtu or speed or autoneg or fec):
        return PortSettings()
    megabits = _number(speed)
    pfc, trust = _parse_qos(qos, global_qos)
    return PortSettings(
        mtu=_number(mtu),
        speed=None if not megabits else megabits * 10**6,
        autoneg=_ON_OFF.get(autoneg),
        fec=_FEC.get(fec, fec),
        pfc=pfc,
        trust=trust,
        pfc_watchdog="" if watchdog is None else _parse_watchdog(watchdog),
        ecn=ecn,
    )


def parse_reference(value: bytes | None) -> str:
    """Return the name in a reference, with or without brackets and table; "" where there is none."""
    text = parse_text(value)
    found = _REFERENCE.fullmatch(text)
    return found[1] if found else text


def parse_wred_profile(values: FieldValues) -> EcnThresholds | None:
    """Parse PROFILE_FIELDS; None for a profile that does not mark.

    Packets are green unless something colours them, so their thresholds are returned where green ones are marked.
    """
    texts = dict(zip(PROFILE_FIELDS, map(parse_text, values), strict=True))
    colour = next(_marked_colours(texts["ecn"]), None)
    if colour is None:
        return None
    own = [f"ecn_{colour}_min_threshold", f"ecn_{colour}_max_threshold", f"ecn_{colour}_mark_probability"]
    shared = [f"{colour}_min_threshold", f"{colour}_max_threshold", f"{colour}_drop_probability"]
    minimum, maximum, percent = (_number(texts[name]) for name in (own if any(map(texts.get, own)) else shared))
    return EcnThresholds(minimum, maximum, percent / 100 if percent is not None and percent <= 100 else None)


def parse_pool_size(value: bytes | None) -> int | None:
    """Parse the size of a buffer pool in bytes; None where it has none."""
    return _number(parse_text(value))


def _marked_colours(mode: str) -> Iterator[str]:
    """Return the colours that a mode such as `ecn_all` or `ecn_green_yellow` marks, green first."""
    words = mode.removeprefix("ecn_").split("_") if mode.startswith("ecn_") else []
    return (colour for colour in COLOURS if colour in words or "all" in words)


def _parse_qos(qos: FieldValues | None, global_qos: FieldValues | None) -> tuple[tuple[int, ...] | None, str]:
    """Return the priorities with PFC, and the trust mode."""
    if qos is None:
        return None, ""
    pfc, *maps = map(parse_text, qos)
    _, *global_maps = map(parse_text, global_qos or [None] * len(QOS_FIELDS))
    is_known = global_qos is not None or any(maps)
    trust = _parse_trust([own or other for own, other in zip(maps, global_maps, strict=True)])
    return _parse_priorities(pfc), trust if is_known else ""


def _parse_priorities(text: str) -> tuple[int, ...] | None:
    """Parse `3,4`; the empty text is no priority, and malformed text is None."""
    words = text.split(",") if text else []
    if not all(word.isascii() and word.isdecimal() and len(word) == 1 and int(word) < PRIORITIES for word in words):
        return None
    return tuple(sorted({int(word) for word in words}))


def _parse_trust(maps: Sequence[str]) -> str:
    """Return which fields of a packet are mapped, from the references of QOS_FIELDS."""
    dscp, pcp = (parse_reference(one.encode("utf-8", "surrogateescape")) for one in maps)
    if dscp and pcp:
        return "both"
    return "dscp" if dscp else "pcp" if pcp else "none"


def _parse_watchdog(values: FieldValues) -> str:
    detection, action = map(parse_text, values)
    return (action or "drop") if _number(detection) else "off"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None
