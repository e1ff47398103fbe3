"""What NVUE, the REST API of Cumulus Linux, tells of ports, made into values.  Pure: no I/O.

Releases nest the same groups differently (`{"operational": {"interface": {"swp1": …}}}`, or the bare group), a group
is an object by priority or a list with `"switch-priority"`, and a number is a number, `"1,234"` or `{"value": …}`.
How long PFC paused is told in a unit that no document states, so it is not read at all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter.switch_api.http import excerpt
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.text_values import (
    COUNTER_TOP,
    identity,
    known,
    number,
    speed,
)

_MAX_DEPTH = 8
_MAX_PROBLEMS = 100
_MAX_PORTS = 4096
_PORT = re.compile(r"swp[0-9]{1,4}(?:s[0-9]{1,2})?", re.ASCII)
_UPTIME = re.compile(r"(?:(\d{1,6}) days?,? *)?(\d{1,3}):(\d{2}):(\d{2})(?:\.\d+)?", re.ASCII)

PRIORITIES = 8
QUEUES = 16


class NvueShapeError(ValueError):
    """The data is in none of the known shapes; the text quotes its beginning."""


@dataclass(frozen=True, slots=True)
class System:
    """What the switch says of itself; `uptime` in seconds."""

    name: str = ""
    version: str = ""
    uptime: float | None = None


STATS = ("in-bytes", "in-pkts", "in-errors", "in-drops", "out-bytes", "out-pkts", "out-errors", "out-drops")
"""Keys of what a port has counted.  `carrier-transitions` beside them counts ups and downs alike: neither is told."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port of the front panel.

    Attributes:
        up: whether the link is.
        speed: bits per second.
        ifindex: number of the interface, as text.
        description: what an operator wrote to it.
        stats: counters by the keys of STATS; those that are not told are absent.
        neighbours: by LLDP; None where this answer does not speak of LLDP.
    """

    up: bool | None = None
    speed: int | None = None
    ifindex: str = ""
    description: str = ""
    stats: Mapping[str, int] = field(default_factory=dict)
    neighbours: tuple[Heard, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports by name, and one line for each thing that was malformed, at most 100."""

    ports: dict[str, Port]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Qos:
    """Counters of one port, by priority, queue or priority group, and by the key of NVUE; None: the group is absent.

    `marked` are the packets that the port marked, where it counts them as a whole.
    """

    priorities: Mapping[int, Mapping[str, int]] | None = None
    queues: Mapping[int, Mapping[str, int]] | None = None
    groups: Mapping[int, Mapping[str, int]] | None = None
    marked: int | None = None
    problems: tuple[str, ...] = ()


def parse_system(data: object) -> System:
    """Read `/system`: name, release and time since the start.

    Raises:
        NvueShapeError: it is no object.
    """
    told = _object(data, "system")
    version = _text(told.get("build")) or _text(told.get("product-release"))
    return System(_text(told.get("hostname")), version, _uptime(told.get("uptime")))


def parse_interfaces(data: object) -> Ports:
    """Read `/interface`: every port of the front panel, the ports that it was split into instead where it was.

    Bonds and VLANs repeat what their members count, so they are left out.

    Raises:
        NvueShapeError: there is not one interface.
    """
    interfaces = _object(data, "interface")
    if not any(isinstance(one, dict) and ("link" in one or "type" in one) for one in interfaces.values()):
        raise NvueShapeError(f"no interface among {excerpt(data)}")
    ports: dict[str, Port] = {}
    problems: list[str] = []
    for name, one in interfaces.items():
        if not _PORT.fullmatch(name):
            continue
        if len(ports) >= _MAX_PORTS:
            problems.append(f"{name}: left out, as there are more than {_MAX_PORTS} ports")
            break
        if isinstance(one, dict):
            ports[name] = _port(name, one, problems)
        else:
            problems.append(f"{name}: not an object: {excerpt(one)}")
    return Ports(ports, tuple(problems[:_MAX_PROBLEMS]))


def parse_qos(data: object) -> Qos:
    """Read `/interface/<port>/counters/qos` or `…/qos/counters`.

    Raises:
        NvueShapeError: it is no object.
    """
    if not isinstance(data, dict):
        raise NvueShapeError(f"not an object: {excerpt(data)}")
    problems: list[str] = []
    port = _found(data, "port-stats")
    marked = None
    if isinstance(port, dict):
        marked = _counters(port, ("ecn-marked-packets",), "port-stats", problems).get("ecn-marked-packets")
    return Qos(
        _group(data, "pfc-stats", PRIORITIES, ("rx-pause-frames", "tx-pause-frames"), problems),
        _group(data, "egress-queue-stats", QUEUES, _QUEUE_KEYS, problems),
        _group(data, "ingress-buffer-stats", PRIORITIES, ("rx-frames", "rx-buffer-discards"), problems),
        marked,
        tuple(problems[:_MAX_PROBLEMS]),
    )


def parse_lldp(data: object, port: str) -> tuple[Heard, ...]:
    """Read the neighbours of `/interface/<port>/lldp`, each under a name of its own.

    Raises:
        NvueShapeError: it is no object.
    """
    if not isinstance(data, dict):
        raise NvueShapeError(f"not an object: {excerpt(data)}")
    told = data.get("neighbor", {})
    if not isinstance(told, dict):
        raise NvueShapeError(f"neighbor: not an object: {excerpt(told)}")
    return tuple(_neighbour(port, name, one) for name, one in told.items() if isinstance(one, dict))


_QUEUE_KEYS = ("tx-frames", "tx-bytes", "ecn-marked-frames", "tx-uc-buffer-discards", "wred-discards")


def _object(data: object, name: str) -> dict[str, object]:
    """Give the object, out of what it may be wrapped in."""
    for wrapper in ("operational", name):
        if isinstance(data, dict) and isinstance(data.get(wrapper), dict):
            data = data[wrapper]
    if not isinstance(data, dict):
        raise NvueShapeError(f"not an object: {excerpt(data)}")
    return data


def _port(name: str, one: Mapping[str, object], problems: list[str]) -> Port:
    link = one.get("link")
    link = link if isinstance(link, dict) else {}
    stats = link.get("stats")
    bits = None
    try:
        bits = speed(_text(link.get("speed")))
    except ValueError as error:
        problems.append(f"{name}: {error}")
    neighbours = None
    if "lldp" in one:
        try:
            neighbours = parse_lldp(one["lldp"], name)
        except NvueShapeError as error:
            problems.append(f"{name}: lldp: {error}")
    return Port(
        _up(name, link, problems),
        bits,
        _text(one.get("ifindex")),
        _text(one.get("description")),
        _counters(stats, STATS, name, problems) if isinstance(stats, dict) else {},
        neighbours,
    )


def _up(name: str, link: Mapping[str, object], problems: list[str]) -> bool | None:
    """Read the state: a text, or an object with the state as its one key."""
    told = link.get("oper-status", link.get("state"))
    word = next(iter(told), "") if isinstance(told, dict) else told
    if word in ("up", "down"):
        return word == "up"
    if word is not None and word != "":
        problems.append(f"{name}: state: {excerpt(word, 40)} is neither up nor down")
    return None


def _group(
    data: object, name: str, size: int, keys: tuple[str, ...], problems: list[str]
) -> dict[int, dict[str, int]] | None:
    """Read a group; None where it is absent.  What stands beside the numbers (`total`) is left alone."""
    group = _found(data, name)
    if group is None:
        return None
    if not isinstance(group, dict | list):
        problems.append(f"{name}: neither an object nor a list: {excerpt(group)}")
        return {}
    rows: dict[int, dict[str, int]] = {}
    for place, one in _members(group):
        if place is None or not place.isdecimal() or len(place) > 3 or int(place) >= size:
            continue
        if isinstance(one, dict):
            rows[int(place)] = _counters(one, keys, f"{name} {int(place)}", problems)
        else:
            problems.append(f"{name} {int(place)}: not an object: {excerpt(one)}")
    return rows


def _members(group: dict[str, object] | list[object]) -> Iterator[tuple[str | None, object]]:
    if isinstance(group, dict):
        yield from group.items()
        return
    for one in group:
        if isinstance(one, dict):
            selectors = ("switch-priority", "traffic-class", "priority-group", "id")
            yield next((str(one[key]) for key in selectors if key in one), None), one


def _found(value: object, name: str, depth: int = 0) -> object | None:
    """Find what stands under a name, wherever it is."""
    if depth > _MAX_DEPTH or not isinstance(value, dict):
        return None
    if name in value:
        inner: object = value[name]
        return inner
    return next((found for one in value.values() if (found := _found(one, name, depth + 1)) is not None), None)


def _counters(told: Mapping[str, object], keys: tuple[str, ...], place: str, problems: list[str]) -> dict[str, int]:
    """Read counters by key; one that is malformed is a problem, and absent like one that is not told."""
    values: dict[str, int] = {}
    for key in keys:
        if key not in told:
            continue
        try:
            value = _number(told[key])
        except ValueError as error:
            problems.append(f"{place}: {key}: {error}")
            continue
        if value is not None:
            values[key] = value
    return values


def _number(told: object) -> int | None:
    """Read a counter in any of its forms.

    Raises:
        ValueError: it is none.
    """
    if isinstance(told, dict) and "value" in told:
        told = told["value"]
    if told is None:
        return None
    if isinstance(told, str):
        return number(told)
    if isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= COUNTER_TOP:
        return told
    raise ValueError(f"{excerpt(told, 40)} is not a counter of at most 64 bits")


def _neighbour(port: str, name: str, told: Mapping[str, object]) -> Heard:
    chassis, peer = (one if isinstance(one, dict) else {} for one in (told.get("chassis"), told.get("port")))
    capabilities = chassis.get("capability")
    return Heard(
        port=port,
        chassis=identity(_text(chassis.get("chassis-id"))),
        peer_port=identity(_text(peer.get("name"))),
        name=_text(chassis.get("system-name")) or name,
        port_description=_text(peer.get("description")),
        description=_text(chassis.get("system-description")),
        capabilities=frozenset(
            word.removeprefix("is-").lower()
            for word, state in (capabilities.items() if isinstance(capabilities, dict) else ())
            if state not in ("off", False, None)
        ),
        addresses=tuple(dict.fromkeys(_addresses(chassis))),
    )


def _addresses(chassis: Mapping[str, object]) -> Iterator[str]:
    """Give the management addresses: of the neighbour, or in newer releases of each of its interfaces."""
    places = [chassis]
    interfaces = chassis.get("management-ifinfo")
    if isinstance(interfaces, dict):
        places += [one for one in interfaces.values() if isinstance(one, dict)]
    for place in places:
        for version in ("4", "6"):
            if text := _text(place.get(f"management-address-ipv{version}")):
                yield text


def _text(told: object) -> str:
    """Give a text or number as text, empty where it is neither or says that there is none."""
    if isinstance(told, bool) or not isinstance(told, str | int | float):
        return ""
    return known(str(told)) or ""


def _uptime(told: object) -> float | None:
    """Read seconds, or `12 days, 3:04:05`."""
    if isinstance(told, bool) or told is None:
        return None
    if isinstance(told, int | float):
        return float(told) if told >= 0 else None
    found = _UPTIME.fullmatch(str(told).strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
