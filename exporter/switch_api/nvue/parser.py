"""Parsers of the JSON of NVUE, the REST API of Cumulus Linux.  Pure: no I/O.

Releases nest the same groups differently (`{"operational": {"interface": {"swp1": …}}}`, or the bare group), a group
is an object by priority or a list with `"switch-priority"`, and a number is a number, `"1,234"` or `{"value": …}`.
The unit of PFC pause durations is in no document, so they are not read.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.port import MAX_PROBLEMS, PerPort, ShapeError, admits
from exporter.switch_api.port_settings import PortSettings, parse_mtu
from exporter.switch_api.text_values import (
    MAX_COUNTER,
    excerpt,
    normalise_identifier,
    parse_counter,
    parse_speed,
    strip_placeholder,
)

_MAX_DEPTH = 8
_PORT = re.compile(r"swp[0-9]{1,4}(?:s[0-9]{1,2})?", re.ASCII)
_UPTIME = re.compile(r"(?:(\d{1,6}) days?,? *)?(\d{1,3}):(\d{2}):(\d{2})(?:\.\d+)?", re.ASCII)
_ON_OFF = MappingProxyType({"on": True, "enabled": True, "off": False, "disabled": False})
_FEC = MappingProxyType({"rs": "rs", "baser": "baser", "off": "none", "auto": "auto"})
_SELECTORS = ("switch-priority", "traffic-class", "priority-group", "id")

PRIORITIES = 8
QUEUES = 16

QUEUE_COUNTERS = ("tx-frames", "tx-bytes", "ecn-marked-frames", "tx-uc-buffer-discards", "wred-discards")
PORT_COUNTERS = ("in-bytes", "in-pkts", "in-errors", "in-drops", "out-bytes", "out-pkts", "out-errors", "out-drops")
"""Keys of `link/stats`.  `carrier-transitions` counts link up and link down alike, so it is not read."""


@dataclass(frozen=True, slots=True)
class NvueSystem:
    """Host name, release, and uptime in seconds."""

    name: str = ""
    version: str = ""
    uptime: float | None = None


@dataclass(frozen=True, slots=True)
class NvueInterface:
    """One front panel port.

    Attributes:
        up: operational state.
        speed: bits per second.
        ifindex: ifIndex, as text.
        description: the configured description.
        counters: by the keys of PORT_COUNTERS; those that are not reported are absent.
        neighbours: by LLDP; None where this response has no LLDP data.
        settings: MTU, autonegotiation and FEC, as they are in operation.
    """

    up: bool | None = None
    speed: int | None = None
    ifindex: str = ""
    description: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    neighbours: tuple[LldpNeighbour, ...] | None = None
    settings: PortSettings = field(default_factory=PortSettings)


@dataclass(frozen=True, slots=True)
class NvueQos:
    """Counters of one port, by priority, queue or priority group, and by the key of NVUE; None: the group is absent.

    `ecn_marked` is the number of packets marked by the port, where it counts them as a whole.
    """

    priorities: Mapping[int, Mapping[str, int]] | None = None
    queues: Mapping[int, Mapping[str, int]] | None = None
    groups: Mapping[int, Mapping[str, int]] | None = None
    ecn_marked: int | None = None
    problems: tuple[str, ...] = ()


def parse_system(data: object) -> NvueSystem:
    """Parse `/system`.

    Raises:
        ShapeError: it is not an object.
    """
    system = _unwrap(data, "system")
    version = _text(system.get("build")) or _text(system.get("product-release"))
    return NvueSystem(_text(system.get("hostname")), version, _parse_uptime(system.get("uptime")))


def parse_interfaces(data: object) -> PerPort[NvueInterface]:
    """Parse `/interface`: all front panel ports; of a split port the ports that it is split into.

    Bonds and VLANs count the traffic of their members again, so they are skipped.

    Raises:
        ShapeError: it contains no interface.
    """
    interfaces = _unwrap(data, "interface")
    if not any(isinstance(entry, dict) and ("link" in entry or "type" in entry) for entry in interfaces.values()):
        raise ShapeError(f"no interface among {excerpt(data)}")
    ports: dict[str, NvueInterface] = {}
    problems: list[str] = []
    for name, entry in interfaces.items():
        if not _PORT.fullmatch(name):
            continue
        if not admits(ports, len(ports), name, problems):
            break
        if isinstance(entry, dict):
            ports[name] = _parse_interface(name, entry, problems)
        else:
            problems.append(f"{name}: not an object: {excerpt(entry)}")
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]))


def parse_qos(data: object) -> NvueQos:
    """Parse `/interface/<port>/counters/qos` or `…/qos/counters`.

    Raises:
        ShapeError: it is not an object.
    """
    if not isinstance(data, dict):
        raise ShapeError(f"not an object: {excerpt(data)}")
    problems: list[str] = []
    port = _find(data, "port-stats")
    ecn_marked = None
    if isinstance(port, dict):
        ecn_marked = _counters(port, ("ecn-marked-packets",), "port-stats", problems).get("ecn-marked-packets")
    return NvueQos(
        _parse_group(data, "pfc-stats", PRIORITIES, ("rx-pause-frames", "tx-pause-frames"), problems),
        _parse_group(data, "egress-queue-stats", QUEUES, QUEUE_COUNTERS, problems),
        _parse_group(data, "ingress-buffer-stats", PRIORITIES, ("rx-frames", "rx-buffer-discards"), problems),
        ecn_marked,
        tuple(problems[:MAX_PROBLEMS]),
    )


def parse_lldp(data: object, port: str) -> tuple[LldpNeighbour, ...]:
    """Parse `/interface/<port>/lldp`, an object with the neighbours by name.

    Raises:
        ShapeError: it is not an object.
    """
    if not isinstance(data, dict):
        raise ShapeError(f"not an object: {excerpt(data)}")
    entries = data.get("neighbor", {})
    if not isinstance(entries, dict):
        raise ShapeError(f"neighbor: not an object: {excerpt(entries)}")
    return tuple(_parse_neighbour(port, name, entry) for name, entry in entries.items() if isinstance(entry, dict))


def _unwrap(data: object, name: str) -> dict[str, object]:
    """Return the object inside `{"operational": {name: …}}`, or inside one or none of the two."""
    for wrapper in ("operational", name):
        if isinstance(data, dict) and isinstance(data.get(wrapper), dict):
            data = data[wrapper]
    if not isinstance(data, dict):
        raise ShapeError(f"not an object: {excerpt(data)}")
    return data


def _parse_interface(name: str, entry: Mapping[str, object], problems: list[str]) -> NvueInterface:
    link = entry.get("link")
    link = link if isinstance(link, dict) else {}
    stats = link.get("stats")
    speed = None
    try:
        speed = parse_speed(_text(link.get("speed")))
    except ValueError as error:
        problems.append(f"{name}: {error}")
    neighbours = None
    if "lldp" in entry:
        try:
            neighbours = parse_lldp(entry["lldp"], name)
        except ShapeError as error:
            problems.append(f"{name}: lldp: {error}")
    return NvueInterface(
        _parse_state(name, link, problems),
        speed,
        _text(entry.get("ifindex")),
        _text(entry.get("description")),
        _counters(stats, PORT_COUNTERS, name, problems) if isinstance(stats, dict) else {},
        neighbours,
        PortSettings(
            mtu=parse_mtu(link.get("mtu")),
            autoneg=_ON_OFF.get(_text(link.get("auto-negotiate"))),
            fec=_FEC.get(_text(link.get("fec")), ""),
        ),
    )


def _parse_state(name: str, link: Mapping[str, object], problems: list[str]) -> bool | None:
    """Parse the operational state: a text, or an object with the state as its only key."""
    state = link.get("oper-status", link.get("state"))
    word = next(iter(state), "") if isinstance(state, dict) else state
    if word in ("up", "down"):
        return word == "up"
    if word is not None and word != "":
        problems.append(f"{name}: state: {excerpt(word, 40)} is neither up nor down")
    return None


def _parse_group(
    data: object, name: str, size: int, keys: tuple[str, ...], problems: list[str]
) -> dict[int, dict[str, int]] | None:
    """Parse a group; None where it is absent.  Entries that have no number (`total`) are skipped."""
    group = _find(data, name)
    if group is None:
        return None
    if not isinstance(group, dict | list):
        problems.append(f"{name}: neither an object nor a list: {excerpt(group)}")
        return {}
    rows: dict[int, dict[str, int]] = {}
    for number, entry in _group_entries(group):
        if number is None or not number.isdecimal() or len(number) > 3 or int(number) >= size:
            continue
        if isinstance(entry, dict):
            rows[int(number)] = _counters(entry, keys, f"{name} {int(number)}", problems)
        else:
            problems.append(f"{name} {int(number)}: not an object: {excerpt(entry)}")
    return rows


def _group_entries(group: dict[str, object] | list[object]) -> Iterator[tuple[str | None, object]]:
    if isinstance(group, dict):
        yield from group.items()
        return
    for entry in group:
        if isinstance(entry, dict):
            yield next((str(entry[key]) for key in _SELECTORS if key in entry), None), entry


def _find(value: object, name: str, depth: int = 0) -> object | None:
    """Return the member of that name at any depth; None where there is none."""
    if depth > _MAX_DEPTH or not isinstance(value, dict):
        return None
    if name in value:
        inner: object = value[name]
        return inner
    return next((found for inner in value.values() if (found := _find(inner, name, depth + 1)) is not None), None)


def _counters(entry: Mapping[str, object], keys: tuple[str, ...], place: str, problems: list[str]) -> dict[str, int]:
    """Return counters by key; a malformed one is a problem, and absent like a missing one."""
    values: dict[str, int] = {}
    for key in keys:
        if key not in entry:
            continue
        try:
            value = _parse_number(entry[key])
        except ValueError as error:
            problems.append(f"{place}: {key}: {error}")
            continue
        if value is not None:
            values[key] = value
    return values


def _parse_number(value: object) -> int | None:
    """Parse a counter in any of its forms.

    Raises:
        ValueError: it is not a counter.
    """
    if isinstance(value, dict) and "value" in value:
        value = value["value"]
    if value is None:
        return None
    if isinstance(value, str):
        return parse_counter(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNTER:
        return value
    raise ValueError(f"{excerpt(value, 40)} is not a counter of at most 64 bits")


def _parse_neighbour(port: str, name: str, entry: Mapping[str, object]) -> LldpNeighbour:
    chassis, peer = (one if isinstance(one, dict) else {} for one in (entry.get("chassis"), entry.get("port")))
    capabilities = chassis.get("capability")
    return LldpNeighbour(
        port=port,
        chassis=normalise_identifier(_text(chassis.get("chassis-id"))),
        peer_port=normalise_identifier(_text(peer.get("name"))),
        name=_text(chassis.get("system-name")) or name,
        port_description=_text(peer.get("description")),
        description=_text(chassis.get("system-description")),
        capabilities=frozenset(
            word.removeprefix("is-").lower()
            for word, state in (capabilities.items() if isinstance(capabilities, dict) else ())
            if state not in ("off", False, None)
        ),
        addresses=tuple(dict.fromkeys(_management_addresses(chassis))),
    )


def _management_addresses(chassis: Mapping[str, object]) -> Iterator[str]:
    """Yield the management addresses: of the neighbour, or in newer releases of each of its interfaces."""
    entries = [chassis]
    interfaces = chassis.get("management-ifinfo")
    if isinstance(interfaces, dict):
        entries += [one for one in interfaces.values() if isinstance(one, dict)]
    for entry in entries:
        for version in ("4", "6"):
            if text := _text(entry.get(f"management-address-ipv{version}")):
                yield text


def _text(value: object) -> str:
    """Return a text or number as text; "" for a placeholder or anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return strip_placeholder(str(value)) or ""


def _parse_uptime(value: object) -> float | None:
    """Parse seconds, or `12 days, 3:04:05`."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if value >= 0 else None
    found = _UPTIME.fullmatch(str(value).strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
