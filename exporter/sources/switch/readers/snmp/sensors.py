"""Optical modules by SNMP: ENTITY-SENSOR-MIB, CISCO-ENTITY-SENSOR-MIB, and Juniper's JUNIPER-DOM-MIB.

The port and lane of a sensor are only in names, which are thousands of rows: names are read once an hour, sensors every
minute, and both only with `optics: true`.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from exporter.config.units import watts_of_dbm
from exporter.core.source import Failure
from exporter.snmp.ber import Oid
from exporter.snmp.client import SnmpClient
from exporter.sources.switch.merge import PartialTable, PartialTableBuilder
from exporter.sources.switch.metrics import LANES, MODULES
from exporter.sources.switch.readers.empty_cages import has_module, is_measured
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.sensor_locations import MAX_ENTITIES, SensorLocation, read_locations
from exporter.sources.switch.readers.snmp.text import failures_of, number_of

NAMES_MAX_AGE_SECONDS = 3600.0
"""Seconds after which the names of sensors are read again."""

SENSORS: Mapping[str, Oid] = MappingProxyType(
    {
        "entity": (1, 3, 6, 1, 2, 1, 99, 1, 1, 1),
        "cisco": (1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1),
        "sonic": (1, 3, 6, 1, 2, 1, 99, 1, 1, 1),
    }
)
"""Entries of the two sensor tables: type, scale, precision, value and status are columns 1 to 5 of both. SONiC has that
of ENTITY-SENSOR-MIB, and the interface in its index."""

_UNITS_COLUMN: Mapping[str, Oid] = MappingProxyType({mib: (*SENSORS[mib], 6) for mib in ("entity", "sonic")})
"""entPhySensorUnitsDisplay; the column of that number in Cisco's table is a time."""

_JUNOS = (1, 3, 6, 1, 4, 1, 2636, 3, 60, 1)
_JUNOS_MODULE, _JUNOS_LANE = (*_JUNOS, 1, 1, 1), (*_JUNOS, 2, 1, 1)

_OTHER, _VOLTS_AC, _VOLTS, _AMPERES, _WATTS, _CELSIUS, _DBM = 1, 3, 4, 5, 6, 8, 14
_DECIBELS = frozenset({"dbm", "db"})
_OK = 1
_UNITS = 9
"""EntitySensorDataScale of 1; each step is a factor of a thousand."""

_RECEIVE = re.compile(r"\b(rx|receive|input)", re.IGNORECASE)
_TRANSMIT = re.compile(r"\b(tx|transmit|output)", re.IGNORECASE)

TEMPERATURE, VOLTAGE = "module_temperature_celsius", "module_voltage_volts"
RECEIVED, SENT, BIAS = (
    "module_lane_receive_power_watts",
    "module_lane_transmit_power_watts",
    "module_lane_bias_amperes",
)

_ENDINGS = MappingProxyType({_CELSIUS: TEMPERATURE, _VOLTS: VOLTAGE, _VOLTS_AC: VOLTAGE, _AMPERES: BIAS})
_MEASURED = frozenset({*_ENDINGS, _WATTS, _DBM})
MAX_DBM = 100.0
"""Higher values are invalid, and may overflow in watts."""

_VALID_RANGES = MappingProxyType(
    {
        TEMPERATURE: (-100.0, 200.0),
        VOLTAGE: (0.0, 50.0),
        RECEIVED: (0.0, 1.0),
        SENT: (0.0, 1.0),
        BIAS: (0.0, 5.0),
    }
)
"""Range of values that a module can measure; others are invalid."""


class ModuleSensors:
    """The module sensors of one switch, from reading to reading."""

    def __init__(self, mib: str) -> None:
        """Store which tables the switch has: a key of SENSORS, or `junos`."""
        self._mib = mib
        self._locations: Mapping[Oid, SensorLocation] = {}
        self._names_read_at = float("-inf")
        self._modules, self._lanes = PartialTableBuilder(MODULES), PartialTableBuilder(LANES)

    async def read(
        self, client: SnmpClient, inventory: Inventory, now: float
    ) -> tuple[list[PartialTable], list[Failure]]:
        """Read all sensors.

        Raises:
            SnmpError: The switch does not respond.
        """
        if self._mib == "junos":
            found, failures = await _read_junos(client, inventory)
        else:
            failures = []
            if now - self._names_read_at >= NAMES_MAX_AGE_SECONDS:
                self._locations, failures = await read_locations(
                    client,
                    SENSORS[self._mib],
                    inventory,
                    sonic=self._mib == "sonic",
                    units=_UNITS_COLUMN.get(self._mib),
                )
                self._names_read_at = now
            found, more = await _read_values(client, SENSORS[self._mib], self._locations)
            failures += more
        empty = _empty_cages(found)
        for (port, lane), values in sorted(found.items(), key=lambda one: one[0]):
            if port in inventory.ports and port not in empty:
                name = inventory.ports[port]
                if lane and is_measured(values.get(BIAS), values.get(RECEIVED), values.get(SENT)):
                    self._lanes.row((name, str(lane)), values)
                elif not lane:
                    self._modules.row((name,), values)
        parts = [self._modules.part(now), self._lanes.part(now)]
        return [part for part in parts if part.keys], failures

    def reset(self) -> None:
        """Read the names again at the next reading: indexes may have changed."""
        self._names_read_at = float("-inf")


Rows = dict[tuple[Oid, int], dict[str, float]]
"""Values by ending, by interface and lane; lane 0 is the module."""


def _empty_cages(found: Rows) -> set[Oid]:
    """Return the interfaces whose cage has no module."""
    by_port: dict[Oid, dict[tuple[int, str], float]] = {}
    for (port, lane), values in found.items():
        by_port.setdefault(port, {}).update({(lane, ending): value for ending, value in values.items()})
    return {port for port, values in by_port.items() if not has_module(values.pop((0, VOLTAGE), None), values.values())}


async def _read_values(
    client: SnmpClient, table: Oid, locations: Mapping[Oid, SensorLocation]
) -> tuple[Rows, list[Failure]]:
    """Read the sensors that have a location."""
    result = await client.walk([(*table, column) for column in range(1, 6)], max_rows=MAX_ENTITIES)
    types, scales, precisions, values, states = (result.columns[(*table, column)].rows for column in range(1, 6))
    found: Rows = {}
    for sensor, location in locations.items():
        if states.get(sensor, _OK) != _OK:  # a missing column is treated as ok
            continue
        numbers = [number_of(column.get(sensor)) for column in (types, scales, precisions, values)]
        if numbers[0] == _OTHER and location.unit.lower() in _DECIBELS:  # ENTITY-SENSOR-MIB has no type for dBm
            numbers[0] = _DBM
        metric = metric_of(location.title, *numbers)
        if metric is not None:
            ending, value = metric
            lane = 0 if ending in (TEMPERATURE, VOLTAGE) else location.lane or 1
            found.setdefault((location.port, lane), {}).setdefault(ending, value)
    return found, failures_of(result)


def metric_of(
    title: str, sensor_type: int | None, scale: int | None, precision: int | None, value: int | None
) -> tuple[str, float] | None:
    """Return the metric of a sensor and its value in base units; None if it has no metric, or is invalid.

    Args:
        title: Its name, which distinguishes received from transmitted power.
        sensor_type: EntitySensorDataType; both watts and dBm are in use.
        scale: EntitySensorDataScale, 9 for units.
        precision: Decimal places of the value.
        value: The value.
    """
    if sensor_type is None or scale is None or precision is None or value is None:
        return None
    if not (1 <= scale <= 17 and -9 <= precision <= 9):
        return None
    reading = value * 10.0 ** (3 * (scale - _UNITS) - precision)
    ending = _ENDINGS.get(sensor_type) or _power_ending(title)
    if sensor_type == _DBM:
        reading = watts_of_dbm(min(reading, MAX_DBM))
    return _validated(ending, reading) if sensor_type in _MEASURED and ending else None


def _power_ending(title: str) -> str:
    if _RECEIVE.search(title):
        return RECEIVED
    return SENT if _TRANSMIT.search(title) else ""


def _validated(ending: str, value: float) -> tuple[str, float] | None:
    low, high = _VALID_RANGES[ending]
    return (ending, value) if math.isfinite(value) and low <= value <= high else None


_JUNOS_MODULES = MappingProxyType({8: (TEMPERATURE, 1.0), 25: (VOLTAGE, 1e-3)})
_JUNOS_LANES = MappingProxyType({6: RECEIVED, 7: BIAS, 8: SENT})
_JUNOS_SINGLE_LANE = MappingProxyType({5: RECEIVED, 6: BIAS, 7: SENT})
"""Columns of JUNIPER-DOM-MIB: hundredths of a dBm, microamperes, degrees, millivolts. The table of modules has the lane
of modules with a single one."""


async def _read_junos(client: SnmpClient, inventory: Inventory) -> tuple[Rows, list[Failure]]:
    """Read JUNIPER-DOM-MIB, whose tables are indexed by interface, and by interface and lane from 0."""
    modules: list[Oid] = [(*_JUNOS_MODULE, column) for column in (*_JUNOS_MODULES, *_JUNOS_SINGLE_LANE)]
    lanes: list[Oid] = [(*_JUNOS_LANE, column) for column in _JUNOS_LANES]
    result = await client.walk([*modules, *lanes], max_rows=MAX_ENTITIES)
    found: Rows = {}
    for oid in lanes:
        for index, value in result.columns[oid].rows.items():
            if len(index) == 2:
                _add(found, index[:1], index[1] + 1, _junos_metric(_JUNOS_LANES[oid[-1]], number_of(value)))
    with_lanes = {port for port, _ in found}
    for oid in modules:
        for port, value in result.columns[oid].rows.items():
            number = number_of(value)
            if oid[-1] in _JUNOS_MODULES:
                ending, factor = _JUNOS_MODULES[oid[-1]]
                _add(found, port, 0, None if number is None else _validated(ending, number * factor))
            elif port not in with_lanes:
                _add(found, port, 1, _junos_metric(_JUNOS_SINGLE_LANE[oid[-1]], number))
    return {row: values for row, values in found.items() if row[0] in inventory.ports}, failures_of(result)


def _add(found: Rows, port: Oid, lane: int, metric: tuple[str, float] | None) -> None:
    if metric is not None:
        found.setdefault((port, lane), {})[metric[0]] = metric[1]


def _junos_metric(ending: str, value: int | None) -> tuple[str, float] | None:
    if value is None:
        return None
    return _validated(ending, value * 1e-6 if ending == BIAS else watts_of_dbm(min(value / 100, MAX_DBM)))
