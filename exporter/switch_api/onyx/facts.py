"""Parsers of Onyx's JSON replies about the switch: version, LLDP, and the lossless priorities.  Pure: no I/O."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.switch_api.neighbour import LldpNeighbour
from exporter.switch_api.onyx.tables import SWITCH, flatten, parse_port_name
from exporter.switch_api.port import MAX_PROBLEMS, PerPort, ShapeError
from exporter.switch_api.text_values import excerpt, normalise_identifier, strip_placeholder

_MAX_NEIGHBOURS = 8192
_UPTIME = re.compile(r"(?:(\d{1,6})d )?(?:(\d{1,2})h )?(?:(\d{1,2})m )?(\d{1,2}(?:\.\d{1,6})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class OnyxVersion:
    """Model, release, and uptime in seconds; what is not reported is empty, or None."""

    model: str = ""
    release: str = ""
    uptime: float | None = None


@dataclass(frozen=True, slots=True)
class OnyxLocalSystem:
    """System name, description and chassis identifier that the switch sends by LLDP."""

    name: str = ""
    description: str = ""
    chassis: str = ""


@dataclass(frozen=True, slots=True)
class OnyxFlowControl:
    """The lossless priorities of the switch, and whether PFC is in operation on each port."""

    lossless: frozenset[int]
    ports: Mapping[str, bool]


def parse_version(data: object) -> OnyxVersion:
    """Parse `show version`.

    Raises:
        ShapeError: it has no release.
    """
    values = _switch_values(data)
    release = " ".join(text for key in ("product name", "product release") if (text := values.get(key, "")))
    if not release:
        raise ShapeError(f"no release: {excerpt(data)}")
    return OnyxVersion(values.get("product model", ""), release, _parse_uptime(values.get("uptime", "")))


def parse_local(data: object) -> OnyxLocalSystem:
    """Parse `show lldp local`; all fields are empty where LLDP is disabled."""
    values = _switch_values(data)
    chassis = normalise_identifier(_value_by_suffix(values, "chassis id"))
    return OnyxLocalSystem(
        _value_by_suffix(values, "system name"), _value_by_suffix(values, "system description"), chassis
    )


def parse_lossless(data: object) -> frozenset[int]:
    """Parse the lossless priorities in `show dcb priority-flow-control`; the set is empty where PFC is disabled.

    Raises:
        ShapeError: it has no list of priorities.
    """
    values = _switch_values(data)
    listed = values.get("priority enabled list")
    if listed is None:
        if values.get("pfc", "").lower() == "disabled":
            return frozenset()
        raise ShapeError(f"no list of priorities: {excerpt(data)}")
    return frozenset(int(word) for word in re.findall(r"[0-9]+", listed) if word in {*"01234567"})


def parse_flow_control(data: object) -> OnyxFlowControl:
    """Parse `show dcb priority-flow-control`; a port whose state is not known is absent.

    Raises:
        ShapeError: it has no list of priorities.
    """
    lossless = parse_lossless(data)
    states = {
        name: next((text.strip().lower() for key, text in row.items() if key.lower() == "pfc oper"), "")
        for name, row in flatten(data).ports.items()
        if name.startswith("Eth")
    }
    return OnyxFlowControl(
        lossless, {name: state == "enabled" for name, state in states.items() if state in ("enabled", "disabled")}
    )


def parse_neighbours(data: object) -> PerPort[tuple[LldpNeighbour, ...]]:
    """Parse `show lldp interfaces ethernet remote` or `show lldp remote`; a port may have several neighbours.

    Raises:
        ShapeError: there are rows, and none of them is a port with a neighbour.
    """
    ports: dict[str, tuple[LldpNeighbour, ...]] = {}
    problems: list[str] = []
    entries = data if isinstance(data, list) else [data]
    text = ""
    for entry in entries[:_MAX_NEIGHBOURS]:
        if not isinstance(entry, dict):
            problems.append(f"not an object: {excerpt(entry)}")
            continue
        for key, value in _port_entries(entry):
            name = parse_port_name(key)
            if name is None:
                if key == "Lines":
                    text = flatten({key: value}).text
                continue
            neighbours = tuple(
                one for values in _neighbour_values(value) if (one := _parse_neighbour(name, values)) is not None
            )
            if neighbours:
                ports[name] = ports.get(name, ()) + neighbours
            else:
                problems.append(f"{name}: no neighbour among {excerpt(value)}")
    if problems and not ports:
        raise ShapeError(f"no neighbour of any port: {excerpt(data)}")
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]), text)


def _port_entries(entry: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield names and their values, also where the name is the value of `header`."""
    header = entry.get("header")
    if isinstance(header, str):
        yield header, {key: value for key, value in entry.items() if key != "header"}
    else:
        yield from entry.items()


def _neighbour_values(value: object) -> Iterator[dict[str, str]]:
    """Yield the values of each neighbour: one object, or several with one key each until a key occurs again."""
    current: dict[str, str] = {}
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            continue
        values = {_normalise_key(key): text for key, text in one.items() if isinstance(text, str)}
        if current.keys() & values.keys():
            yield current
            current = {}
        current |= values
    if current:
        yield current


def _normalise_key(key: str) -> str:
    """Return the canonical spelling of a key: `Remote port-id`, `Port ID` -> `port id`."""
    return key.lower().replace("-", " ").removeprefix("remote ").strip()


def _parse_neighbour(port: str, values: Mapping[str, str]) -> LldpNeighbour | None:
    chassis = normalise_identifier(values.get("chassis id") or values.get("device id"))
    name = strip_placeholder(values.get("system name")) or ""
    peer_port = normalise_identifier(values.get("port id"))
    if not (chassis or name or peer_port):
        return None
    addresses = (
        strip_placeholder(text) for key, text in values.items() if key.startswith("management address") and "." in text
    )
    return LldpNeighbour(
        port=port,
        chassis=chassis,
        peer_port=peer_port,
        name=name,
        port_description=strip_placeholder(values.get("port description")) or "",
        description=strip_placeholder(values.get("system description")) or "",
        addresses=tuple(address for address in addresses if address),
    )


def _switch_values(data: object) -> dict[str, str]:
    """Return the values that belong to no port, by key in lower case; placeholders are absent."""
    rows = flatten(data)
    values = {
        key.lower(): text
        for key, raw in rows.ports.get(SWITCH, {}).items()
        if (text := strip_placeholder(raw)) is not None
    }
    for line in rows.text.splitlines():
        key, colon, text = line.partition(":")
        if colon and strip_placeholder(text):
            values.setdefault(key.strip().lower(), text.strip())
    return values


def _value_by_suffix(values: Mapping[str, str], end: str) -> str:
    return next((text for key, text in values.items() if key == end or key.endswith(f" {end}")), "")


def _parse_uptime(text: str) -> float | None:
    found = _UPTIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
