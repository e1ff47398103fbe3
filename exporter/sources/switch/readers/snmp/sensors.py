"""Optical modules by SNMP: ENTITY-SENSOR-MIB, Cisco's older table of the same form, and Juniper's table by port.

Which sensor is of which port and lane is in names alone, and those are thousands of rows: they are read once an hour,
the sensors every minute, and both only where the configuration asks for modules.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.config.units import watts_of_dbm
from exporter.core.source import Failure
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as Wire
from exporter.snmp.client import SnmpClient
from exporter.sources.switch.merge import Part, PartBuilder
from exporter.sources.switch.metrics import LANES, MODULES
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.text import failures_of, number_of, text_of

NAMES_AGE = 3600.0
"""Seconds after which the names of sensors are read again."""

MAX_ENTITIES = 10_000
"""Rows of a column of names or sensors that are read."""

_ENTITY = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1)
_DESCRIPTION, _HOLDER, _NAME = (*_ENTITY, 2), (*_ENTITY, 4), (*_ENTITY, 7)
_ALIAS = (1, 3, 6, 1, 2, 1, 47, 1, 3, 2, 1, 2)
"""entAliasMappingIdentifier: the interface that a physical thing is, as the identifier of its row."""

SENSORS: Mapping[str, Oid] = {
    "entity": (1, 3, 6, 1, 2, 1, 99, 1, 1, 1),
    "cisco": (1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1),
}
"""Entries of the two tables of sensors: kind, scale, precision, value and state are columns 1 to 5 of both."""

_JUNOS = (1, 3, 6, 1, 4, 1, 2636, 3, 60, 1)
_JUNOS_MODULE, _JUNOS_LANE = (*_JUNOS, 1, 1, 1), (*_JUNOS, 2, 1, 1)

_VOLTS_AC, _VOLTS, _AMPERES, _WATTS, _CELSIUS, _DBM = 3, 4, 5, 6, 8, 14
_OK = 1
_UNITS = 9
"""The scale that is no scale; each step is a factor of a thousand."""

_HIGHEST_HOLDER = 8
"""Steps up from a sensor to what holds it, and so on, before that is taken to go round."""

_LANE = re.compile(r"\blane[\s-]*(\d{1,2})\b", re.IGNORECASE)
_RECEIVE = re.compile(r"\b(rx|receive|input)", re.IGNORECASE)
_TRANSMIT = re.compile(r"\b(tx|transmit|output)", re.IGNORECASE)

TEMPERATURE, VOLTAGE = "module_temperature_celsius", "module_voltage_volts"
RECEIVED, SENT, BIAS = (
    "module_lane_receive_power_watts",
    "module_lane_transmit_power_watts",
    "module_lane_bias_amperes",
)

_ENDINGS = {_CELSIUS: TEMPERATURE, _VOLTS: VOLTAGE, _VOLTS_AC: VOLTAGE, _AMPERES: BIAS}
_MEASURED = {*_ENDINGS, _WATTS, _DBM}
MOST_DBM = 100.0
"""What is more makes no sense, and might be no number in watts."""

_SENSIBLE = {
    TEMPERATURE: (-100.0, 200.0),
    VOLTAGE: (0.0, 50.0),
    RECEIVED: (0.0, 1.0),
    SENT: (0.0, 1.0),
    BIAS: (0.0, 5.0),
}
"""What a module can measure; beyond it, a sensor tells of something that went wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a sensor is of: the interface of its port, its lane (0 where there is none), and all that names it."""

    port: Oid
    lane: int
    title: str


class Modules:
    """The modules of one switch, from reading to reading."""

    def __init__(self, kind: str) -> None:
        """Take which tables it has: a key of SENSORS, or `junos`."""
        self._kind = kind
        self._places: Mapping[Oid, Place] = {}
        self._read = float("-inf")
        self._modules, self._lanes = PartBuilder(MODULES), PartBuilder(LANES)

    async def read(self, client: SnmpClient, inventory: Inventory, now: float) -> tuple[list[Part], list[Failure]]:
        """Read all sensors.

        Raises:
            SnmpError: The switch does not answer.
        """
        if self._kind == "junos":
            found, failures = await _junos(client, inventory)
        else:
            failures = []
            if now - self._read >= NAMES_AGE:
                self._places, failures = await _named(client, SENSORS[self._kind], inventory)
                self._read = now
            found, more = await _sensed(client, SENSORS[self._kind], self._places)
            failures += more
        for (port, lane), values in sorted(found.items(), key=lambda one: one[0]):
            if port in inventory.ports:
                name = inventory.ports[port]
                if lane:
                    self._lanes.row((name, str(lane)), values)
                else:
                    self._modules.row((name,), values)
        parts = [self._modules.part(now), self._lanes.part(now)]
        return [part for part in parts if part.keys], failures

    def forget(self) -> None:
        """Read the names again: indexes may have moved."""
        self._read = float("-inf")


Rows = dict[tuple[Oid, int], dict[str, float]]


async def _named(client: SnmpClient, table: Oid, inventory: Inventory) -> tuple[dict[Oid, Place], list[Failure]]:
    """Find the port and lane of each sensor."""
    columns = (_NAME, _DESCRIPTION, _HOLDER, _ALIAS)
    result = await client.walk([*columns, (*table, 1)], max_rows=MAX_ENTITIES)
    names, descriptions, holders, aliases = (result.columns[oid].rows for oid in columns)
    titles = {index: text_of(names.get(index)) or text_of(descriptions.get(index)) for index in {*names, *descriptions}}
    interfaces = {index[:1]: value[-1:] for index, value in aliases.items() if isinstance(value, tuple)}
    places: dict[Oid, Place] = {}
    for sensor in result.columns[(*table, 1)].rows:
        chain = _chain(sensor, holders)
        found = _port_of(chain, titles, interfaces, inventory)
        if found is not None:
            port, lane = found
            places[sensor] = Place(port, lane, titles.get(sensor, ""))
    return _from_one(places), failures_of(result)


def _chain(sensor: Oid, holders: Mapping[Oid, Wire]) -> list[Oid]:
    """Give a sensor, what holds it, what holds that, and so on."""
    chain = [sensor]
    while len(chain) < _HIGHEST_HOLDER and (holder := number_of(holders.get(chain[-1]))):
        chain.append((holder,))
    return chain


def _port_of(
    chain: list[Oid], titles: Mapping[Oid, str], interfaces: Mapping[Oid, Oid], inventory: Inventory
) -> tuple[Oid, int] | None:
    """Find the port and lane of a sensor: each in its own name, else in those of what holds it, or by its alias."""
    port: Oid = ()
    lane = -1
    for place in chain:
        title = titles.get(place, "")
        found = _LANE.search(title)
        if found and lane < 0:
            lane = int(found[1])
        if not port:
            port, of_name = _port_in(title, inventory)
            lane = of_name if lane < 0 else lane
            port = port or interfaces.get(place, ())
    return (port, lane) if port in inventory.ports else None


def _port_in(title: str, inventory: Inventory) -> tuple[Oid, int]:
    """Find a port's name among the words of a title, with a lane behind it as in `Ethernet0/1`, -1 where none is."""
    for word in title.split():
        name = canonical(word)
        if name.isdecimal():  # the number of anything
            continue
        if name in inventory.named:
            return inventory.named[name], -1
        head, _, lane = word.rpartition("/")
        if lane.isascii() and lane.isdecimal() and canonical(head) in inventory.named:
            return inventory.named[canonical(head)], int(lane)
    return (), -1


def _from_one(places: Mapping[Oid, Place]) -> dict[Oid, Place]:
    """Count the lanes of each port from 1; a sensor without one has 0 where a module has but one lane, and no port."""
    zeros = {place.port for place in places.values() if place.lane == 0}
    return {
        sensor: Place(place.port, place.lane + (place.port in zeros) if place.lane >= 0 else 0, place.title)
        for sensor, place in places.items()
    }


async def _sensed(client: SnmpClient, table: Oid, places: Mapping[Oid, Place]) -> tuple[Rows, list[Failure]]:
    """Read the sensors that have a place."""
    result = await client.walk([(*table, column) for column in range(1, 6)], max_rows=MAX_ENTITIES)
    kinds, scales, precisions, values, states = (result.columns[(*table, column)].rows for column in range(1, 6))
    found: Rows = {}
    for sensor, place in places.items():
        if states.get(sensor, _OK) != _OK:  # a switch that lacks the column says nothing against it
            continue
        numbers = [number_of(column.get(sensor)) for column in (kinds, scales, precisions, values)]
        told = metric_of(place.title, *numbers)
        if told is not None:
            ending, value = told
            lane = 0 if ending in (TEMPERATURE, VOLTAGE) else place.lane or 1
            found.setdefault((place.port, lane), {}).setdefault(ending, value)
    return found, failures_of(result)


def metric_of(
    title: str, kind: int | None, scale: int | None, precision: int | None, value: int | None
) -> tuple[str, float] | None:
    """Give the metric of a sensor and its value in base units; None where it is none of a module, or makes no sense.

    Args:
        title: Its name: received or sent light are told apart by it alone.
        kind: What it measures; watts and dBm are both in use.
        scale: Power of a thousand, 9 for none.
        precision: Decimal places of the value.
        value: What it reads.
    """
    if kind is None or scale is None or precision is None or value is None:
        return None
    if not (1 <= scale <= 17 and -9 <= precision <= 9):
        return None
    reading = value * 10.0 ** (3 * (scale - _UNITS) - precision)
    ending = _ENDINGS.get(kind) or _direction(title)
    if kind == _DBM:
        reading = watts_of_dbm(min(reading, MOST_DBM))
    return _sensible(ending, reading) if kind in _MEASURED and ending else None


def _direction(title: str) -> str:
    if _RECEIVE.search(title):
        return RECEIVED
    return SENT if _TRANSMIT.search(title) else ""


def _sensible(ending: str, value: float) -> tuple[str, float] | None:
    low, high = _SENSIBLE[ending]
    return (ending, value) if math.isfinite(value) and low <= value <= high else None


_JUNOS_MODULES = {8: (TEMPERATURE, 1.0), 25: (VOLTAGE, 1e-3)}
_JUNOS_LANES = {6: RECEIVED, 7: BIAS, 8: SENT}
_JUNOS_WHOLE = {5: RECEIVED, 6: BIAS, 7: SENT}
"""Columns of JUNIPER-DOM-MIB: hundredths of a dBm, microamperes, degrees, millivolts. The table of modules has the one
lane of modules that have no more."""


async def _junos(client: SnmpClient, inventory: Inventory) -> tuple[Rows, list[Failure]]:
    """Read Juniper's tables, which are by interface, and by interface and lane from 0."""
    modules: list[Oid] = [(*_JUNOS_MODULE, column) for column in (*_JUNOS_MODULES, *_JUNOS_WHOLE)]
    lanes: list[Oid] = [(*_JUNOS_LANE, column) for column in _JUNOS_LANES]
    result = await client.walk([*modules, *lanes], max_rows=MAX_ENTITIES)
    found: Rows = {}
    for oid in lanes:
        for index, value in result.columns[oid].rows.items():
            if len(index) == 2:
                _note(found, index[:1], index[1] + 1, _junos_light(_JUNOS_LANES[oid[-1]], number_of(value)))
    laned = {port for port, _ in found}
    for oid in modules:
        for port, value in result.columns[oid].rows.items():
            number = number_of(value)
            if oid[-1] in _JUNOS_MODULES:
                ending, factor = _JUNOS_MODULES[oid[-1]]
                _note(found, port, 0, None if number is None else _sensible(ending, number * factor))
            elif port not in laned:
                _note(found, port, 1, _junos_light(_JUNOS_WHOLE[oid[-1]], number))
    return {place: values for place, values in found.items() if place[0] in inventory.ports}, failures_of(result)


def _note(found: Rows, port: Oid, lane: int, told: tuple[str, float] | None) -> None:
    if told is not None:
        found.setdefault((port, lane), {})[told[0]] = told[1]


def _junos_light(ending: str, value: int | None) -> tuple[str, float] | None:
    if value is None:
        return None
    return _sensible(ending, value * 1e-6 if ending == BIAS else watts_of_dbm(min(value / 100, MOST_DBM)))
