"""Conversion of the field `data` of Onyx's JSON replies to flat rows by port.  Pure: no I/O.

The same CLI tables come as JSON in five structures, by release and command:

1. `{"Eth1/1": [{"Speed": "100 Gbps"}]}`, or an object in place of the list;
2. `[{"header": "Eth1/1", "MTU": "1500", "Rx": {"packets": "1"}}]`;
3. `[{"Eth1/1 (Po100)": [{"Remote port-id": "…"}, {"Remote chassis id": "…"}]}]`;
4. `{"Lines": ["", "No lldp remote information.", ""]}`: text; often this means "no rows", not an error;
5. `{"value": ["MSN2100"]}`, and `"Exception list": {"message": "N/A"}` next to rows.

`flatten` converts them all to one: port name -> flat `{key: text}`, nested names joined by a blank (`Rx packets`).
All numbers are text there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.switch_api.port import MAX_PROBLEMS, PerPort, ShapeError, admits
from exporter.switch_api.text_values import excerpt, strip_placeholder

SWITCH = ""
"""The key of the values of the switch as a whole in the result of `flatten`."""

_MAX_DEPTH = 8
_PREFIXES = MappingProxyType(
    {"eth": "Eth", "ethernet": "Eth", "po": "Po", "mpo": "Mpo", "vlan": "Vlan ", "mgmt": "mgmt", "ib": "Ib"}
)
_PORT = re.compile(
    r"(?:interface )?(" + "|".join(sorted(_PREFIXES, key=len, reverse=True)) + r") ?([0-9]{1,4}(?:/[0-9]{1,4}){0,3})"
    r"(?: ?\([^()]{0,64}\))?",
    re.IGNORECASE,
)


def parse_port_name(text: str) -> str | None:
    """Return the canonical name of a port (`Eth1/1 (Po100)`, `ethernet 1/1` -> `Eth1/1`); None for any other text."""
    found = _PORT.fullmatch(text.strip())
    return _PREFIXES[found[1].lower()] + found[2] if found else None


def flatten(data: object) -> PerPort[dict[str, str]]:
    """Convert `data` of any structure to flat texts by port; values of the switch as a whole are under `SWITCH`.

    An object whose header is not a port (`{"header": "TC-2", …}`) belongs to the port before it; its keys begin with
    that header.

    Raises:
        ShapeError: the data is not an object, a list or blank text.
    """
    rows = _Rows()
    if isinstance(data, dict):
        rows.add("data", data)
    elif isinstance(data, list):
        for index, entry in enumerate(data):
            rows.add(f"data[{index}]", entry)
    elif not (isinstance(data, str) and not data.strip()):
        raise ShapeError(f"data of an unknown structure ({type(data).__name__}): {excerpt(data)}")
    return PerPort(rows.ports, tuple(rows.problems), rows.text)


@dataclass(slots=True)
class _Rows:
    """The rows so far.  `current` is the port of the last header in a list, whose sections may follow."""

    ports: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    text: str = ""
    current: str | None = None

    def add_problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)

    def add(self, place: str, entry: object) -> None:
        """Add one object of the top level."""
        if not isinstance(entry, dict):
            self.add_problem(f"{place}: not an object: {excerpt(entry)}")
        elif "header" in entry:
            self._add_with_header(place, "header", entry)
        elif "Interface ethernet" in entry:
            self._add_with_header(place, "Interface ethernet", entry)
        else:
            for key, value in entry.items():
                self._add_member(place, key, value)

    def _add_with_header(self, place: str, header_key: str, entry: dict[str, object]) -> None:
        header = entry[header_key]
        rest = {key: value for key, value in entry.items() if key != header_key}
        name = _header_port(header_key, header)
        if name is not None:
            self.current = name
            self._add_row(name, "", rest)
        elif header_key == "header" and isinstance(header, str):
            self._add_row(self.current or SWITCH, header, rest)
        else:
            # The sections that follow belong to a port without a name: not to the one before it.
            self.current = None
            self.add_problem(f"{place}: {header_key!r} names no port: {excerpt(header)}")

    def _add_member(self, place: str, key: str, value: object) -> None:
        if key == "Lines":
            lines = value if isinstance(value, list) else [value]
            self.text = "\n".join(str(line) for line in lines if line is not None).strip()
        elif key == "Exception list":
            self._add_exceptions(value)
        elif (name := parse_port_name(key)) is not None:
            if isinstance(value, dict | list):
                self._add_row(name, "", value)
            else:
                self.add_problem(f"{name}: neither an object nor a list: {excerpt(value)}")
        elif self.current is not None:
            self.add_problem(f"{place}: {excerpt(key, 40)} belongs to no port")
        else:
            self._add_row(SWITCH, key, value)

    def _add_exceptions(self, value: object) -> None:
        try:
            texts = [text for _, text in _leaf_texts(value, "", 1)]
        except ShapeError as error:
            texts = [str(error)]
        for text in texts:
            if strip_placeholder(text) is not None:
                self.add_problem(f"the switch reports an exception: {excerpt(text)}")

    def _add_row(self, name: str, prefix: str, value: object) -> None:
        if not admits(self.ports, len(self.ports), name, self.problems):
            return
        row = self.ports.setdefault(name, {})
        try:
            for key, text in _leaf_texts(value, prefix, 1):
                if row.setdefault(key, text) != text:
                    self.add_problem(f"{name or 'switch'}: {excerpt(key, 60)} is there twice; the first value is used")
        except ShapeError as error:
            self.add_problem(f"{name or 'switch'}: {error}")


def _header_port(header_key: str, header: object) -> str | None:
    if not isinstance(header, str):
        return None
    return parse_port_name(header) or (
        parse_port_name(f"Eth{header.strip()}") if header_key == "Interface ethernet" else None
    )


def _leaf_texts(value: object, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield all texts inside a value with the names on the path to them; null is absent."""
    if depth > _MAX_DEPTH:
        raise ShapeError(f"nested deeper than {_MAX_DEPTH} levels below {excerpt(prefix, 60)}")
    if isinstance(value, dict):
        header = value.get("header")
        if isinstance(header, str):
            prefix = f"{prefix} {header}".lstrip()
            value = {key: inner for key, inner in value.items() if key != "header"}
        for key, inner in value.items():
            yield from _leaf_texts(inner, f"{prefix} {key}".lstrip(), depth + 1)
    elif isinstance(value, list):
        if scalars := [_scalar(inner) for inner in value if not isinstance(inner, dict | list | None)]:
            yield prefix, ", ".join(scalars)
        for inner in value:
            if isinstance(inner, dict | list):
                yield from _leaf_texts(inner, prefix, depth + 1)
    elif value is not None:
        yield prefix, _scalar(value)


def _scalar(value: object) -> str:
    return value if isinstance(value, str) else str(value)
