"""The port and lane of the sensors of ENTITY-MIB: by their names, by what contains them, or by their index.

The names are free text of the maker: `Te1/1/1 Transceiver Receive Power Sensor`, `DOM RX Power Sensor for Ethernet0/2`,
`0/0-PORT-22-Rx Lane 0 Power`, or `Channel 1` within `Port 1:49`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.core.source import Failure
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as SnmpValue
from exporter.snmp.client import SnmpClient
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.text import failures_of, number_of, text_of

MAX_ENTITIES = 10_000
"""Most rows of a column of names or sensors."""

MAX_TITLE = 255
"""Characters of a name that are read: the size of an SnmpAdminString."""

_ENTITY = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1)
_DESCRIPTION, _CONTAINED_IN, _NAME = (*_ENTITY, 2), (*_ENTITY, 4), (*_ENTITY, 7)
_ALIAS = (1, 3, 6, 1, 2, 1, 47, 1, 3, 2, 1, 2)
"""entAliasMappingIdentifier: the interface of a physical entity, as the identifier of its row in ifTable."""

_MAX_CONTAINERS = 8
"""Most steps from a sensor up through entPhysicalContainedIn, which may loop."""

_LANE = re.compile(
    r"(?<!port-)(?<!port )\b(?:lane|channel|chan|ch)[\s#:_-]{0,2}(\d{1,2})\b|\b[rt]x[\s_-]?(\d{1,2})(?=\b|power|bias)",
    re.IGNORECASE,
)
"""The lane in a name; no number of a port-channel is one."""

_CAGE = re.compile(r"\b(?:optics?|xcvr|transceiver|q?sfp|port)[\s-]?(\d{1,4}(?:[/:]\d{1,4}){1,5})\b", re.IGNORECASE)
"""The position of a cage, where its name has another word than the port's: `Optics0/0/0/22` is of `TenGigE0/0/0/22`."""

_SLOT_AND_PORT = re.compile(r"(\d{1,4}/\d{1,4})-PORT-(\d{1,4})\b")
"""The position of a cage of IOS XR, without the number of the port's module: `0/0-PORT-22` is of `TenGigE0/0/0/22`."""

_POSITION = re.compile(r"[A-Za-z -]{0,40}(\d{1,4}(?:[/:]\d{1,4}){1,5})")
_PARTS = re.compile(r"(?<=\d)-")
_PUNCTUATION = "(),;:[]"

_BEFORE_NUMBER = frozenset({"port", "interface", "ethernet", "for", "transceiver", "xcvr", "optics", "sfp", "qsfp"})
"""Words after which a number without letters, such as `1/1/2`, is a port; `Fan 1/2` and `PSU 1/1` are none."""

_SONIC_PORTS = range(1_000_000_000, 2_000_000_000)
"""Indexes of SONiC's entities of ports: 1, seven digits of the ifIndex, type of the sensor, lane; from 1, 0 without one
(sonic-snmpagent, physical_entity_sub_oid_generator.py)."""


@dataclass(frozen=True, slots=True)
class SensorLocation:
    """The interface of a sensor's port, its lane (0 if it has none), the sensor's name, and the unit beside it."""

    port: Oid
    lane: int
    title: str
    unit: str = ""


async def read_locations(
    client: SnmpClient, table: Oid, inventory: Inventory, *, sonic: bool = False, units: Oid | None = None
) -> tuple[dict[Oid, SensorLocation], list[Failure]]:
    """Read the port and lane of each sensor.

    Args:
        client: Client of the switch.
        table: Entry of the table of sensors.
        inventory: Its interfaces.
        sonic: Whether the indexes are those of SONiC, whose names may be of other ports: with standard interface names,
            a sensor for `Ethernet1/1` is of lane 1 of the port `Ethernet1`, and `Eth1/1` is another port.
        units: The column of the units of sensors, if there is one.

    Raises:
        SnmpError: The switch does not respond.
    """
    columns = (_NAME, _DESCRIPTION, _CONTAINED_IN, _ALIAS)
    result = await client.walk([*columns, (*table, 1), *([units] if units else [])], max_rows=MAX_ENTITIES)
    displayed = result.columns[units].rows if units else {}
    names, descriptions, containers, aliases = (result.columns[oid].rows for oid in columns)
    entities = _Entities(
        {index: _title(names.get(index)) or _title(descriptions.get(index)) for index in {*names, *descriptions}},
        containers,
        {index[:1]: value[-1:] for index, value in aliases.items() if isinstance(value, tuple)},
        PortNames(inventory),
    )
    sensors = result.columns[(*table, 1)].rows
    indexed = _sonic_locations(sensors, inventory) if sonic else {}
    locations: dict[Oid, SensorLocation] = {}
    for sensor in sensors:
        port, lane = indexed.get(sensor) or entities.port_and_lane(sensor)
        if port in inventory.ports:
            locations[sensor] = SensorLocation(
                port, lane, entities.titles.get(sensor, ""), _title(displayed.get(sensor))
            )
    return _number_lanes_from_one(locations), failures_of(result)


class PortNames:
    """The ports that names of sensors refer to, by name and by position."""

    def __init__(self, inventory: Inventory) -> None:
        self._by_name = inventory.by_name
        named = ((inventory.ports[index], index) for index in inventory.ethernet)
        positions = [(tuple(re.split("[/:]", found[1])), index) for name, index in named if (found := _position(name))]
        self._by_position = _unique(positions)
        self._by_slot = _unique((numbers[:2] + numbers[3:], index) for numbers, index in positions if len(numbers) == 4)

    def find(self, title: str) -> tuple[Oid, int]:
        """Return the port that a title names, and the lane after it as in `Ethernet0/1`; empty and -1 without one."""
        cage = self._cage(title)
        if cage:
            return cage, -1
        words = title.split()
        for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
            if after and (found := self._by_name.get(canonical(f"{word} {after}"))):
                return found, -1
            if _may_be_port(word, before):
                for name, lane in _readings(word):
                    if found := self._by_name.get(canonical(name)):
                        return found, lane
        return (), -1

    def _cage(self, title: str) -> Oid:
        slot = _SLOT_AND_PORT.search(title)
        if slot:
            return self._by_slot.get((*slot[1].split("/"), slot[2]), ())
        cage = _CAGE.search(title)
        return self._by_position.get(tuple(re.split("[/:]", cage[1])), ()) if cage else ()


@dataclass(frozen=True, slots=True)
class _Entities:
    """The physical entities of a switch: titles, containers, and interfaces by entAliasMapping."""

    titles: Mapping[Oid, str]
    containers: Mapping[Oid, SnmpValue]
    interfaces: Mapping[Oid, Oid]
    ports: PortNames
    _found: dict[str, tuple[Oid, int]] = field(default_factory=dict)

    def port_and_lane(self, sensor: Oid) -> tuple[Oid, int]:
        """Return the port and lane of a sensor: from its own name, else the names or aliases of what contains it."""
        port: Oid = ()
        lane = -1
        for entity in self._containment(sensor):
            title = self.titles.get(entity, "")
            if lane < 0:
                lane = lane_in_title(title)
            if not port:
                port, lane_of_name = self._port_in(title)
                lane = lane_of_name if lane < 0 else lane
                port = port or self.interfaces.get(entity, ())
        return port, lane

    def _port_in(self, title: str) -> tuple[Oid, int]:
        if title not in self._found:  # many sensors have the same containers
            self._found[title] = self.ports.find(title)
        return self._found[title]

    def _containment(self, sensor: Oid) -> Sequence[Oid]:
        """Return a sensor, the entity that contains it, the entity that contains that, and so on."""
        chain = [sensor]
        while len(chain) < _MAX_CONTAINERS and (container := number_of(self.containers.get(chain[-1]))):
            chain.append((container,))
        return chain


def lane_in_title(title: str) -> int:
    """Return the lane that a title names, with the switch's own first number; -1 without one."""
    found = _LANE.search(title)
    return int(found[1] or found[2]) if found else -1


def _may_be_port(word: str, before: str) -> bool:
    """Return whether a word may name a port; one without letters depends on the word before it."""
    if word.isdecimal():
        return before.lower() == "port"
    return any(map(str.isalpha, word)) or not before or before.lower() in _BEFORE_NUMBER


def _readings(word: str) -> Iterator[tuple[str, int]]:
    """Return the names that a word may have for a port, each with a lane as in `Ethernet0/1`, or -1."""
    yield word, -1
    head, _, lane = word.rpartition("/")
    bare = word.strip(_PUNCTUATION)
    readings = [(head, int(lane))] if lane.isascii() and lane.isdecimal() else []
    readings += [(bare, -1), (_PARTS.split(bare, maxsplit=1)[0], -1)]  # `(Te0/1)`, `Te0/1-Rx`
    yield from ((name, number) for name, number in readings if not name.isdecimal())


def _title(value: SnmpValue | None) -> str:
    return text_of(value)[:MAX_TITLE]


def _position(name: str) -> re.Match[str] | None:
    return _POSITION.fullmatch(name)


def _unique(found: Iterable[tuple[tuple[str, ...], Oid]]) -> dict[tuple[str, ...], Oid]:
    """Return interfaces by position, without positions that two share."""
    known: dict[tuple[str, ...], Oid | None] = {}
    for position, index in found:
        known[position] = None if position in known else index
    return {position: index for position, index in known.items() if index is not None}


def _sonic_locations(sensors: Iterable[Oid], inventory: Inventory) -> dict[Oid, tuple[Oid, int]]:
    """Return the port and lane in each index of SONiC; none where no index has an interface of the switch."""
    found: dict[Oid, tuple[Oid, int]] = {
        sensor: ((sensor[0] % 1_000_000_000 // 100,), sensor[0] % 10 or -1)
        for sensor in sensors
        if len(sensor) == 1 and sensor[0] in _SONIC_PORTS
    }
    interfaces = inventory.ports.keys() | inventory.excluded
    return found if any(port in interfaces for port, _ in found.values()) else {}


def _number_lanes_from_one(locations: Mapping[Oid, SensorLocation]) -> dict[Oid, SensorLocation]:
    """Number the lanes of each port from 1; a sensor without a lane has 0."""
    from_zero = {one.port for one in locations.values() if one.lane == 0}
    return {
        sensor: replace(one, lane=one.lane + (one.port in from_zero) if one.lane >= 0 else 0)
        for sensor, one in locations.items()
    }
