"""What an Onyx switch puts into the field `data` of its JSON replies, made into values.  Pure: no I/O.

The same CLI tables come as JSON in five shapes, by release and command:

1. `{"Eth1/1": [{"Speed": "100 Gbps"}]}`, or an object in place of the list;
2. `[{"header": "Eth1/1", "MTU": "1500", "Rx": {"packets": "1"}}]`;
3. `[{"Eth1/1 (Po100)": [{"Remote port-id": "…"}, {"Remote chassis id": "…"}]}]`;
4. `{"Lines": ["", "No lldp remote information.", ""]}`: text; often the way to say "no rows", not an error;
5. `{"value": ["MSN2100"]}`, and `"Exception list": {"message": "N/A"}` beside real rows.

`normalise` brings them all to one: port name -> flat `{key: text}`, nested names joined by a blank (`Rx packets`).
Every number is text in there; `number`, `speed` and `state` read it.  A missing value is None, never 0.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from exporter.switch_api.http import excerpt
from exporter.switch_api.text_values import known, number, speed

SWITCH = ""
"""The name under which `normalise` keeps what belongs to no port."""

_MAX_DEPTH = 8
_MAX_PROBLEMS = 100
_MAX_PORTS = 4096  # several times what the largest switch has, with all its ports split
_PREFIXES = {"eth": "Eth", "ethernet": "Eth", "po": "Po", "mpo": "Mpo", "vlan": "Vlan ", "mgmt": "mgmt", "ib": "Ib"}
_PORT = re.compile(
    r"(?:interface )?(" + "|".join(sorted(_PREFIXES, key=len, reverse=True)) + r") ?([0-9]{1,4}(?:/[0-9]{1,4}){0,3})"
    r"(?: ?\([^()]{0,64}\))?",
    re.IGNORECASE,
)
T = TypeVar("T")


class OnyxShapeError(ValueError):
    """The data is in none of the known shapes; the text quotes its beginning."""


@dataclass(frozen=True, slots=True)
class PerPort(Generic[T]):
    """Values by port name, and what was lost on the way.

    `problems` holds one line for each malformed port or value, at most 100; none of them costs another port.
    `text` is what the switch said in words in place of rows (shape 4), often why there are none.
    """

    ports: dict[str, T]
    problems: tuple[str, ...] = ()
    text: str = ""


def port_name(text: str) -> str | None:
    """Give the one spelling of a port name (`Eth1/1 (Po100)`, `ethernet 1/1` -> `Eth1/1`), None if it names no port."""
    found = _PORT.fullmatch(text.strip())
    return _PREFIXES[found[1].lower()] + found[2] if found else None


def state(text: str | None) -> bool | None:
    """Read an operational state: True for `Up`, False for `Down`, with or without a remark after it.

    Raises:
        ValueError: the text is neither of them nor one of the words for "no value".
    """
    told = known(text)
    if told is None:
        return None
    match told.split()[0].lower():
        case "up":
            return True
        case "down":
            return False
    raise ValueError(f"{excerpt(told, 40)} is neither Up nor Down")


def normalise(data: object) -> PerPort[dict[str, str]]:
    """Bring any shape of `data` to flat texts by port; what belongs to no port stands under `SWITCH`.

    An object that is headed by something other than a port (`{"header": "TC-2", …}`) belongs to the port before it;
    its keys begin with that heading.

    Raises:
        OnyxShapeError: the data is no object, no list and no blank text.
    """
    rows = _Rows()
    if isinstance(data, dict):
        rows.take("data", data)
    elif isinstance(data, list):
        for index, entry in enumerate(data):
            rows.take(f"data[{index}]", entry)
    elif not (isinstance(data, str) and not data.strip()):
        raise OnyxShapeError(f"data of an unknown shape ({type(data).__name__}): {excerpt(data)}")
    return PerPort(rows.ports, tuple(rows.problems), rows.text)


@dataclass(slots=True)
class _Rows:
    """The rows found so far.  `current` is the port of the last heading in a list, whose sections may follow."""

    ports: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    text: str = ""
    current: str | None = None

    def problem(self, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(text)

    def take(self, place: str, entry: object) -> None:
        """Take one object of the top level."""
        if not isinstance(entry, dict):
            self.problem(f"{place}: not an object: {excerpt(entry)}")
        elif "header" in entry:
            self._headed(place, "header", entry)
        elif "Interface ethernet" in entry:
            self._headed(place, "Interface ethernet", entry)
        else:
            for key, value in entry.items():
                self._keyed(place, key, value)

    def _headed(self, place: str, head: str, entry: dict[str, object]) -> None:
        heading = entry[head]
        rest = {key: value for key, value in entry.items() if key != head}
        name = _heading_port(head, heading)
        if name is not None:
            self.current = name
            self._add(name, "", rest)
        elif head == "header" and isinstance(heading, str):
            self._add(self.current or SWITCH, heading, rest)
        else:
            # The sections that follow are of a port whose name is lost: not of the one before it.
            self.current = None
            self.problem(f"{place}: {head!r} names no port: {excerpt(heading)}")

    def _keyed(self, place: str, key: str, value: object) -> None:
        if key == "Lines":
            lines = value if isinstance(value, list) else [value]
            self.text = "\n".join(str(line) for line in lines if line is not None).strip()
        elif key == "Exception list":
            self._exceptions(value)
        elif (name := port_name(key)) is not None:
            if isinstance(value, dict | list):
                self._add(name, "", value)
            else:
                self.problem(f"{name}: neither an object nor a list: {excerpt(value)}")
        elif self.current is not None:
            self.problem(f"{place}: {excerpt(key, 40)} belongs to no port")
        else:
            self._add(SWITCH, key, value)

    def _exceptions(self, value: object) -> None:
        try:
            texts = [text for _, text in _leaves(value, "", 1)]
        except OnyxShapeError as error:
            texts = [str(error)]
        for text in texts:
            if known(text) is not None:
                self.problem(f"the switch reports an exception: {excerpt(text)}")

    def _add(self, name: str, prefix: str, value: object) -> None:
        if name not in self.ports and len(self.ports) >= _MAX_PORTS:
            self.problem(f"{name}: left out, as there are more than {_MAX_PORTS} ports")
            return
        row = self.ports.setdefault(name, {})
        try:
            for key, text in _leaves(value, prefix, 1):
                if row.setdefault(key, text) != text:
                    self.problem(f"{name or 'switch'}: {excerpt(key, 60)} comes twice; the first value is kept")
        except OnyxShapeError as error:
            self.problem(f"{name or 'switch'}: {error}")


def _heading_port(head: str, heading: object) -> str | None:
    if not isinstance(heading, str):
        return None
    return port_name(heading) or (port_name(f"Eth{heading.strip()}") if head == "Interface ethernet" else None)


def _leaves(value: object, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Give every text below a value with the names on the way to it; null is absent."""
    if depth > _MAX_DEPTH:
        raise OnyxShapeError(f"nested deeper than {_MAX_DEPTH} levels below {excerpt(prefix, 60)}")
    if isinstance(value, dict):
        header = value.get("header")
        if isinstance(header, str):
            prefix = f"{prefix} {header}".lstrip()
            value = {key: inner for key, inner in value.items() if key != "header"}
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix} {key}".lstrip(), depth + 1)
    elif isinstance(value, list):
        if scalars := [_scalar(inner) for inner in value if not isinstance(inner, dict | list | None)]:
            yield prefix, ", ".join(scalars)
        for inner in value:
            if isinstance(inner, dict | list):
                yield from _leaves(inner, prefix, depth + 1)
    elif value is not None:
        yield prefix, _scalar(value)


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one port since boot or since somebody cleared them; None where the release does not show one.

    Where each comes from, below `Rx` (receive) and `Tx` (transmit): `packets`, `bytes`, `error packets`,
    `discard packets`, `pause packets`, `fcs errors`, `symbol errors`, `hoq discard packets` (dropped at the head of
    a queue that could not be sent in time).
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
class PortState:
    """Whether a port is up, its speed in bits per second, and the text an operator gave it."""

    up: bool | None = None
    speed: int | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Congestion:
    """Packets that a port marked with "congestion experienced", over all its traffic classes."""

    ecn_marked_packets: int | None = None
    red_dropped_packets: Mapping[int, int] = field(default_factory=dict)
    """Dropped early, by traffic class; a class that neither marks nor drops early has no count."""


@dataclass(frozen=True, slots=True)
class Pfc:
    """PFC frames of one priority of a port: received, by which the peer paused it, and transmitted."""

    receive_frames: int | None = None
    transmit_frames: int | None = None


_Reader = Callable[[str | None], object]
# Field of a record: the keys it may stand under, in lower case, and how its text is read.
_COUNTER_KEYS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "receive_packets": (("rx packets",), number),
    "receive_bytes": (("rx bytes",), number),
    "receive_errors": (("rx error packets",), number),
    "receive_discards": (("rx discard packets",), number),
    "receive_pause_frames": (("rx pause packets",), number),
    "receive_fcs_errors": (("rx fcs errors",), number),
    "receive_symbol_errors": (("rx symbol errors",), number),
    "transmit_packets": (("tx packets",), number),
    "transmit_bytes": (("tx bytes",), number),
    "transmit_errors": (("tx error packets",), number),
    "transmit_discards": (("tx discard packets",), number),
    "transmit_pause_frames": (("tx pause packets",), number),
    "transmit_hoq_discards": (("tx hoq discard packets",), number),
}
_STATE_KEYS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "up": (("operational state",), state),
    "speed": (("speed", "actual speed"), speed),
    "description": (("description",), known),
}
_CONGESTION_KEYS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "ecn_marked_packets": (("ecn marked packets",), number),
}
_PFC_KEYS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "receive_frames": (("rx pause packets",), number),
    "transmit_frames": (("tx pause packets",), number),
}
_RED = re.compile(r"TC-([0-9]{1,2}) RED dropped packets", re.ASCII | re.IGNORECASE)
_PAUSE_PACKETS = re.compile(r"([0-9]{1,20})\s+pause packets", re.ASCII)


def parse_counters(data: object) -> PerPort[Counters]:
    """Read `show interfaces ethernet counters`, and `show interfaces ethernet`, which carries the same sub-tables.

    No public sample shows the first in JSON; the keys are those of the second, in every shape seen of that.

    Raises:
        OnyxShapeError: there are rows, and not one of them has a counter.
    """
    return _records(normalise(data), data, Counters, _COUNTER_KEYS)


def parse_description(data: object) -> PerPort[PortState]:
    """Read `show interfaces ethernet description` or `… status`.

    Raises:
        OnyxShapeError: there are rows, and not one of them has a state, a speed or a description.
    """
    return _records(normalise(data), data, PortState, _STATE_KEYS)


def parse_congestion_control(data: object) -> PerPort[Congestion]:
    """Read `show interfaces ethernet congestion-control`; marks are counted per port, drops per traffic class.

    Raises:
        OnyxShapeError: there are rows, and not one of them has the count of marked packets.
    """
    rows = normalise(data)
    read = _records(rows, data, Congestion, _CONGESTION_KEYS)
    problems = list(read.problems)
    ports = {
        name: replace(port, red_dropped_packets=_red_drops(name, rows.ports[name], problems))
        for name, port in read.ports.items()
    }
    return PerPort(ports, tuple(problems[:_MAX_PROBLEMS]), read.text)


def _red_drops(name: str, row: Mapping[str, str], problems: list[str]) -> dict[int, int]:
    drops: dict[int, int] = {}
    for key, text in row.items():
        found = _RED.fullmatch(key)
        if found:
            try:
                value = number(text)
            except ValueError as error:
                problems.append(f"{name}: {key}: {error}")
                continue
            if value is not None:
                drops[int(found[1])] = value
    return drops


def parse_pfc(data: object) -> PerPort[Pfc]:
    """Read `show interfaces ethernet counters pfc prio N`.

    No public sample shows it in JSON.  Any of the shapes is read where its keys end in `Rx pause packets` and
    `Tx pause packets`; of text the first count of `pause packets` below a port is of frames received, the second of
    frames transmitted.

    Raises:
        OnyxShapeError: there are rows, and not one of them has such a count.
    """
    rows = normalise(data)
    if not rows.ports and rows.text:
        return _pfc_text(rows.text)
    return _records(rows, data, Pfc, _PFC_KEYS)


def _pfc_text(text: str) -> PerPort[Pfc]:
    ports: dict[str, Pfc] = {}
    problems: list[str] = []
    for name, lines in _sections(text):
        counts = [found[1] for line in lines if (found := _PAUSE_PACKETS.search(line))]
        try:
            receive, transmit = map(number, counts)
            ports[name] = Pfc(receive, transmit)
        except ValueError:
            problems.append(f"{name}: not two counts of pause packets: {excerpt(counts)}")
    if not ports and _PAUSE_PACKETS.search(text):
        raise OnyxShapeError(f"counts of pause packets without the names of ports: {excerpt(text)}")
    return PerPort(ports, tuple(problems[:_MAX_PROBLEMS]), "" if ports else text)


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Give the lines below each line that is the name of an Ethernet port."""
    name, lines = "", list[str]()
    for line in text.splitlines():
        port = port_name(line.strip().rstrip(":"))
        if port is None:
            lines.append(line)
            continue
        if name:
            yield name, lines
        name, lines = (port if port.startswith("Eth") else ""), []
    if name:
        yield name, lines


R = TypeVar("R", Counters, PortState, Congestion, Pfc)


def _records(
    rows: PerPort[dict[str, str]], data: object, record: type[R], keys: dict[str, tuple[tuple[str, ...], _Reader]]
) -> PerPort[R]:
    """Make a record of each physical port; port channels repeat what their members count, so they are left out."""
    problems = list(rows.problems)
    ports: dict[str, R] = {}
    for name, row in rows.ports.items():
        if not name.startswith("Eth"):
            continue
        folded = {key.lower(): text for key, text in row.items()}
        if not any(_key(folded, wanted) for wanted, _ in keys.values()):
            problems.append(f"{name}: none of the expected keys among {excerpt(sorted(row), 100)}")
            continue
        ports[name] = record(**_values(name, folded, keys, problems))
    if rows.ports and not ports:
        wanted = ", ".join(keys)
        raise OnyxShapeError(f"data without any of {wanted} for any port: {excerpt(data)}")
    return PerPort(ports, tuple(problems[:_MAX_PROBLEMS]), rows.text)


def _key(folded: Mapping[str, str], wanted: tuple[str, ...]) -> str | None:
    """Give the key that is one of those wanted, or ends in one: what stands before it is a heading."""
    exact = next((key for key in wanted if key in folded), None)
    if exact is not None:
        return exact
    return next((key for key in folded for end in wanted if " " in end and key.endswith(f" {end}")), None)


def _values(
    name: str, folded: dict[str, str], keys: dict[str, tuple[tuple[str, ...], _Reader]], problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for target, (wanted, read) in keys.items():
        key = _key(folded, wanted)
        if key is None:
            continue
        try:
            values[target] = read(folded[key])
        except ValueError as error:
            problems.append(f"{name}: {key}: {error}")
    return values
