"""Parsers of the port tables in Onyx's JSON replies.  Pure: no I/O.

A missing value is None, never 0; a malformed value is skipped and reported as a problem.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from exporter.switch_api.onyx.tables import flatten, parse_port_name
from exporter.switch_api.port import MAX_PROBLEMS, PerPort, ShapeError
from exporter.switch_api.text_values import excerpt, parse_counter, parse_speed, strip_placeholder


def parse_oper_state(text: str | None) -> bool | None:
    """Parse an operational state: True for `Up`, False for `Down`, with or without a remark after it; None if absent.

    Raises:
        ValueError: the text is neither of them nor a placeholder.
    """
    stripped = strip_placeholder(text)
    if stripped is None:
        return None
    match stripped.split()[0].lower():
        case "up":
            return True
        case "down":
            return False
    raise ValueError(f"{excerpt(stripped, 40)} is neither Up nor Down")


@dataclass(frozen=True, slots=True)
class OnyxCounters:
    """Counters of one port since boot or since they were cleared; None where the release does not have one.

    Their keys below `Rx` (receive) and `Tx` (transmit) are `packets`, `bytes`, `error packets`, `discard packets`,
    `pause packets`, `fcs errors`, `symbol errors`, `hoq discard packets` (head-of-queue lifetime discards).
    """

    receive_packets: int | None = None
    receive_bytes: int | None = None
    receive_errors: int | None = None
    receive_discards: int | None = None
    receive_pause_frames: int | None = None
    receive_fcs_errors: int | None = None
    receive_symbol_errors: int | None = None
    transmit_packets: int | None = None
    transmit_bytes: int | None = None
    transmit_errors: int | None = None
    transmit_discards: int | None = None
    transmit_pause_frames: int | None = None
    transmit_hoq_discards: int | None = None


@dataclass(frozen=True, slots=True)
class OnyxPortState:
    """Operational state of a port, its speed in bits per second, and its configured description."""

    up: bool | None = None
    speed: int | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class OnyxCongestion:
    """Packets that a port marked with ECN "congestion experienced", over all its traffic classes."""

    ecn_marked_packets: int | None = None
    red_dropped_packets: Mapping[int, int] = field(default_factory=dict)
    """Packets dropped by RED, by traffic class; a class without RED and ECN has no counter."""


@dataclass(frozen=True, slots=True)
class OnyxPfc:
    """PFC frames of one priority of a port: received, with which the peer pauses it, and transmitted."""

    receive_frames: int | None = None
    transmit_frames: int | None = None


_Parse = Callable[[str | None], object]
_FieldKeys = Mapping[str, tuple[tuple[str, ...], _Parse]]
"""Field of a record: its possible keys, in lower case, and the parser of its text."""

_COUNTER_KEYS: _FieldKeys = MappingProxyType(
    {
        "receive_packets": (("rx packets",), parse_counter),
        "receive_bytes": (("rx bytes",), parse_counter),
        "receive_errors": (("rx error packets",), parse_counter),
        "receive_discards": (("rx discard packets",), parse_counter),
        "receive_pause_frames": (("rx pause packets",), parse_counter),
        "receive_fcs_errors": (("rx fcs errors",), parse_counter),
        "receive_symbol_errors": (("rx symbol errors",), parse_counter),
        "transmit_packets": (("tx packets",), parse_counter),
        "transmit_bytes": (("tx bytes",), parse_counter),
        "transmit_errors": (("tx error packets",), parse_counter),
        "transmit_discards": (("tx discard packets",), parse_counter),
        "transmit_pause_frames": (("tx pause packets",), parse_counter),
        "transmit_hoq_discards": (("tx hoq discard packets",), parse_counter),
    }
)
_STATE_KEYS: _FieldKeys = MappingProxyType(
    {
        "up": (("operational state",), parse_oper_state),
        "speed": (("speed", "actual speed"), parse_speed),
        "description": (("description",), strip_placeholder),
    }
)
_CONGESTION_KEYS: _FieldKeys = MappingProxyType(
    {
        "ecn_marked_packets": (("ecn marked packets",), parse_counter),
    }
)
_PFC_KEYS: _FieldKeys = MappingProxyType(
    {
        "receive_frames": (("rx pause packets",), parse_counter),
        "transmit_frames": (("tx pause packets",), parse_counter),
    }
)
_RED_DROPS = re.compile(r"TC-([0-9]{1,2}) RED dropped packets", re.ASCII | re.IGNORECASE)
_PAUSE_PACKETS = re.compile(r"([0-9]{1,20})\s+pause packets", re.ASCII)


def parse_counters(data: object) -> PerPort[OnyxCounters]:
    """Parse `show interfaces ethernet counters`, and `show interfaces ethernet`, which has the same tables.

    No public sample has the former in JSON; the keys are those of the latter, in all its known structures.

    Raises:
        ShapeError: there are rows, and none of them has a counter.
    """
    return _parse_records(flatten(data), data, OnyxCounters, _COUNTER_KEYS)


def parse_description(data: object) -> PerPort[OnyxPortState]:
    """Parse `show interfaces ethernet description` or `… status`.

    Raises:
        ShapeError: there are rows, and none of them has a state, a speed or a description.
    """
    return _parse_records(flatten(data), data, OnyxPortState, _STATE_KEYS)


def parse_congestion_control(data: object) -> PerPort[OnyxCongestion]:
    """Parse `show interfaces ethernet congestion-control`; marks are counted by port, drops by traffic class.

    Raises:
        ShapeError: there are rows, and none of them has the count of marked packets.
    """
    rows = flatten(data)
    records = _parse_records(rows, data, OnyxCongestion, _CONGESTION_KEYS)
    problems = list(records.problems)
    ports = {
        name: replace(port, red_dropped_packets=_parse_red_drops(name, rows.ports[name], problems))
        for name, port in records.ports.items()
    }
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]), records.text)


def _parse_red_drops(name: str, row: Mapping[str, str], problems: list[str]) -> dict[int, int]:
    drops: dict[int, int] = {}
    for key, text in row.items():
        found = _RED_DROPS.fullmatch(key)
        if found:
            try:
                value = parse_counter(text)
            except ValueError as error:
                problems.append(f"{name}: {key}: {error}")
                continue
            if value is not None:
                drops[int(found[1])] = value
    return drops


def parse_pfc(data: object) -> PerPort[OnyxPfc]:
    """Parse `show interfaces ethernet counters pfc prio N`.

    No public sample has it in JSON.  All structures are parsed where the keys end in `Rx pause packets` and
    `Tx pause packets`; in text the first count of `pause packets` below a port is of frames received, the second of
    frames transmitted.

    Raises:
        ShapeError: there are rows, and none of them has such a count.
    """
    rows = flatten(data)
    if not rows.ports and rows.text:
        return _parse_pfc_text(rows.text)
    return _parse_records(rows, data, OnyxPfc, _PFC_KEYS)


def _parse_pfc_text(text: str) -> PerPort[OnyxPfc]:
    ports: dict[str, OnyxPfc] = {}
    problems: list[str] = []
    for name, lines in _port_sections(text):
        counts = [found[1] for line in lines if (found := _PAUSE_PACKETS.search(line))]
        try:
            receive, transmit = map(parse_counter, counts)
            ports[name] = OnyxPfc(receive, transmit)
        except ValueError:
            problems.append(f"{name}: not two counts of pause packets: {excerpt(counts)}")
    if not ports and _PAUSE_PACKETS.search(text):
        raise ShapeError(f"counts of pause packets without names of ports: {excerpt(text)}")
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]), "" if ports else text)


def _port_sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each Ethernet port and the lines below it."""
    name, lines = "", list[str]()
    for line in text.splitlines():
        port = parse_port_name(line.strip().rstrip(":"))
        if port is None:
            lines.append(line)
            continue
        if name:
            yield name, lines
        name, lines = (port if port.startswith("Eth") else ""), []
    if name:
        yield name, lines


R = TypeVar("R", OnyxCounters, OnyxPortState, OnyxCongestion, OnyxPfc)


def _parse_records(rows: PerPort[dict[str, str]], data: object, record: type[R], keys: _FieldKeys) -> PerPort[R]:
    """Return a record of each physical port; port channels count the traffic of their members again and are skipped."""
    problems = list(rows.problems)
    ports: dict[str, R] = {}
    for name, row in rows.ports.items():
        if not name.startswith("Eth"):
            continue
        lower_case = {key.lower(): text for key, text in row.items()}
        if not any(_matching_key(lower_case, names) for names, _ in keys.values()):
            problems.append(f"{name}: none of the expected keys among {excerpt(sorted(row), 100)}")
            continue
        ports[name] = record(**_parse_fields(name, lower_case, keys, problems))
    if rows.ports and not ports:
        expected = ", ".join(keys)
        raise ShapeError(f"data without any of {expected} for any port: {excerpt(data)}")
    return PerPort(ports, tuple(problems[:MAX_PROBLEMS]), rows.text)


def _matching_key(lower_case: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return the key that is one of the names, or ends in one: the text before it is a header."""
    exact = next((key for key in names if key in lower_case), None)
    if exact is not None:
        return exact
    return next((key for key in lower_case for end in names if " " in end and key.endswith(f" {end}")), None)


def _parse_fields(name: str, lower_case: dict[str, str], keys: _FieldKeys, problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for target, (names, parse) in keys.items():
        key = _matching_key(lower_case, names)
        if key is None:
            continue
        try:
            values[target] = parse(lower_case[key])
        except ValueError as error:
            problems.append(f"{name}: {key}: {error}")
    return values
