"""What an Onyx switch says of itself, of its neighbours, and of which priorities pause.  Pure: no I/O."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.switch_api.http import excerpt
from exporter.switch_api.neighbour import Heard
from exporter.switch_api.onyx.parser import (
    SWITCH,
    OnyxShapeError,
    PerPort,
    normalise,
    port_name,
)
from exporter.switch_api.text_values import identity, known

_MAX_NEIGHBOURS = 8192
_UPTIME = re.compile(r"(?:(\d{1,6})d )?(?:(\d{1,2})h )?(?:(\d{1,2})m )?(\d{1,2}(?:\.\d{1,6})?)s", re.ASCII)


@dataclass(frozen=True, slots=True)
class Version:
    """Model and release, and seconds since the start; what is not told is empty, or None."""

    model: str = ""
    release: str = ""
    uptime: float | None = None


@dataclass(frozen=True, slots=True)
class Local:
    """Name, description and identity of the switch, as it tells them to its neighbours by LLDP."""

    name: str = ""
    description: str = ""
    chassis: str = ""


def parse_version(data: object) -> Version:
    """Read `show version`.

    Raises:
        OnyxShapeError: it names no release.
    """
    told = _of_switch(data)
    release = " ".join(text for key in ("product name", "product release") if (text := told.get(key, "")))
    if not release:
        raise OnyxShapeError(f"no release: {excerpt(data)}")
    return Version(told.get("product model", ""), release, _uptime(told.get("uptime", "")))


def parse_local(data: object) -> Local:
    """Read `show lldp local`; where LLDP is off it tells nothing."""
    told = _of_switch(data)
    chassis = identity(_ending(told, "chassis id"))
    return Local(_ending(told, "system name"), _ending(told, "system description"), chassis)


def parse_lossless(data: object) -> frozenset[int] | None:
    """Read from `show dcb priority-flow-control` which priorities pause; none at all where PFC is off.

    Raises:
        OnyxShapeError: it does not say.
    """
    told = _of_switch(data)
    listed = told.get("priority enabled list")
    if listed is None:
        if told.get("pfc", "").lower() == "disabled":
            return frozenset()
        raise OnyxShapeError(f"no list of priorities: {excerpt(data)}")
    return frozenset(int(word) for word in re.findall(r"[0-9]+", listed) if word in {*"01234567"})


def parse_neighbours(data: object) -> PerPort[tuple[Heard, ...]]:
    """Read `show lldp interfaces ethernet remote` or `show lldp remote`; a port may have several neighbours.

    Raises:
        OnyxShapeError: there are rows, and not one of them is a port with a neighbour.
    """
    ports: dict[str, tuple[Heard, ...]] = {}
    problems: list[str] = []
    entries = data if isinstance(data, list) else [data]
    said = ""
    for entry in entries[:_MAX_NEIGHBOURS]:
        if not isinstance(entry, dict):
            problems.append(f"not an object: {excerpt(entry)}")
            continue
        for key, value in _ports_of(entry):
            name = port_name(key)
            if name is None:
                if key == "Lines":
                    said = normalise({key: value}).text
                continue
            heard = tuple(one for told in _each(value) if (one := _heard(name, told)) is not None)
            if heard:
                ports[name] = ports.get(name, ()) + heard
            else:
                problems.append(f"{name}: no neighbour among {excerpt(value)}")
    if problems and not ports:
        raise OnyxShapeError(f"no neighbour of any port: {excerpt(data)}")
    return PerPort(ports, tuple(problems[:100]), said)


def _ports_of(entry: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Give names and what stands below them, also where the name is the value of `header`."""
    header = entry.get("header")
    if isinstance(header, str):
        yield header, {key: value for key, value in entry.items() if key != "header"}
    else:
        yield from entry.items()


def _each(value: object) -> Iterator[dict[str, str]]:
    """Give each neighbour of a port: an object, or several of one key each, of which the first comes again."""
    current: dict[str, str] = {}
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            continue
        told = {_word(key): text for key, text in one.items() if isinstance(text, str)}
        if current.keys() & told.keys():
            yield current
            current = {}
        current |= told
    if current:
        yield current


def _word(key: str) -> str:
    """Give the one spelling of a key: `Remote port-id`, `Port ID` -> `port id`."""
    return key.lower().replace("-", " ").removeprefix("remote ").strip()


def _heard(port: str, told: Mapping[str, str]) -> Heard | None:
    chassis = identity(told.get("chassis id") or told.get("device id"))
    name = known(told.get("system name")) or ""
    peer_port = identity(told.get("port id"))
    if not (chassis or name or peer_port):
        return None
    addresses = (known(text) for key, text in told.items() if key.startswith("management address") and "." in text)
    return Heard(
        port=port,
        chassis=chassis,
        peer_port=peer_port,
        name=name,
        port_description=known(told.get("port description")) or "",
        description=known(told.get("system description")) or "",
        addresses=tuple(address for address in addresses if address),
    )


def _of_switch(data: object) -> dict[str, str]:
    """Give what belongs to no port, keys in small letters; a word for "no value" is absent."""
    rows = normalise(data)
    told = {key.lower(): text for key, raw in rows.ports.get(SWITCH, {}).items() if (text := known(raw)) is not None}
    for line in rows.text.splitlines():
        key, colon, text = line.partition(":")
        if colon and known(text):
            told.setdefault(key.strip().lower(), text.strip())
    return told


def _ending(told: Mapping[str, str], end: str) -> str:
    return next((text for key, text in told.items() if key == end or key.endswith(f" {end}")), "")


def _uptime(text: str) -> float | None:
    found = _UPTIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
