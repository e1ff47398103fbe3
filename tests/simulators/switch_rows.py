"""Rows of a simulated switch that rarely change: system group, interfaces, optics."""

from typing import Final, NamedTuple

from exporter.snmp.ber import (
    GAUGE32,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Oid,
    Typed,
)
from tests.simulators.switch_kinds import IF, IFX, SwitchKind
from tests.simulators.switch_traffic import SwitchPort

SYSTEM: Final = (1, 3, 6, 1, 2, 1, 1)
UPTIME: Final = (*SYSTEM, 3, 0)
IF_NUMBER: Final = (1, 3, 6, 1, 2, 1, 2, 1, 0)

ETHERNET: Final = 6
MTU: Final = 9216
LANES: Final = 4

_ENTITY = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1)
_SENSOR = (1, 3, 6, 1, 2, 1, 99, 1, 1, 1)
_CISCO_SENSOR = (1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1)
_JUNIPER_MODULE, _JUNIPER_LANE = ((1, 3, 6, 1, 4, 1, 2636, 3, 60, *tail) for tail in ((1, 1, 1, 1), (1, 2, 1, 1)))
_MODULE_CLASS, _CONTAINER_CLASS, _SENSOR_CLASS = 10, 9, 8
_VOLTS, _AMPERES, _WATTS, _CELSIUS, _DBM = 4, 5, 6, 8, 14
_UNITS, _MILLI = 9, 8
_OK = 1


class Sensor(NamedTuple):
    """One sensor of a module, and its reading as in ENTITY-SENSOR-MIB.

    Attributes:
        place: Added to the module's index.
        title: What it measures, as switches write it.
        kind, scale, precision, value: The reading is value * 10^(3 * (scale - 9)) / 10^precision of the kind's unit.
        per_lane: Whether each lane has one.
    """

    place: int
    title: str
    kind: int
    scale: int
    precision: int
    value: int
    per_lane: bool


SENSORS: Final = (
    Sensor(10, "Temperature", _CELSIUS, _UNITS, 1, 385, per_lane=False),
    Sensor(11, "Voltage", _VOLTS, _UNITS, 2, 331, per_lane=False),
    Sensor(20, "TX Power", _WATTS, _MILLI, 4, 11_220, per_lane=True),
    Sensor(30, "RX Power", _WATTS, _MILLI, 4, 8_912, per_lane=True),
    Sensor(40, "TX Bias", _AMPERES, _MILLI, 3, 65_400, per_lane=True),
)
"""38.5 degrees, 3.31 V, 1.122 mW sent (0.5 dBm), 0.8912 mW received (-0.5 dBm), 65.4 mA; each further lane receives a
little less power."""

POWER_STEP: Final = 100
"""Difference of the received power between two lanes, in units of the sensor."""


def text(content: str) -> Typed:
    """Return an OCTET STRING."""
    return Typed(OCTET_STRING, content.encode())


def number(value: int) -> Typed:
    """Return an INTEGER."""
    return Typed(INTEGER, value)


def system(kind: SwitchKind, name: str, ports: int) -> dict[Oid, Typed]:
    """Return the system group, and ifNumber."""
    return {
        (*SYSTEM, 1, 0): text(kind.description),
        (*SYSTEM, 2, 0): Typed(OBJECT_IDENTIFIER, kind.object_id),
        (*SYSTEM, 4, 0): text("noc@example.com"),
        (*SYSTEM, 5, 0): text(name),
        (*SYSTEM, 6, 0): text("hall 2, row 1, rack 7"),
        (*SYSTEM, 7, 0): number(78),
        IF_NUMBER: number(ports),
    }


def interface(port: SwitchPort, index: int, extended: int) -> dict[Oid, Typed]:
    """Return the constant rows of a port in ifTable and ifXTable, at its index in each."""
    return {
        (*IF, 1, index): number(index),
        (*IF, 2, index): text(port.name),
        (*IF, 3, index): number(ETHERNET),
        (*IF, 4, index): number(MTU),
        (*IFX, 1, extended): text(port.name),
        (*IFX, 18, extended): text(port.alias),
        (*IFX, 19, extended): Typed(TIME_TICKS, 0),
    }


def optics(kind: SwitchKind, port: SwitchPort, index: int) -> dict[Oid, Typed]:
    """Return the readings of the module in a port, in the tables that this kind of switch has."""
    if kind.optics == "junos":
        return _junos_optics(index)
    if not kind.optics:
        return {}
    module = 300_000_000 + port.number * 1000 if kind.optics == "cisco" else 1_000_000_000 + port.number * 1000
    rows = _entity(module, f"Transceiver for {port.name}", 1, _MODULE_CLASS)
    for sensor in SENSORS:
        if not sensor.per_lane:
            rows |= _sensor(kind, module + sensor.place, module, sensor, f"for {port.name}", 0)
            continue
        for lane in range(1, LANES + 1):
            holder, ending = module, f"for {port.name}/{lane}"
            if kind.optics == "entity":  # the lane is an entity too, and not part of the sensors' names
                holder, ending = module + 100 * lane, f"for {port.name}"
                rows |= _entity(holder, f"Lane {lane - 1} for Xcvr for {port.name}", module, _CONTAINER_CLASS)
            elif kind.optics == "cisco":
                ending = f"for {port.name} Lane {lane}"
            rows |= _sensor(kind, holder + sensor.place + lane, holder, sensor, ending, lane - 1)
    return rows


def _entity(place: int, title: str, holder: int, kind: int) -> dict[Oid, Typed]:
    return {
        (*_ENTITY, 2, place): text(title),
        (*_ENTITY, 4, place): number(holder),
        (*_ENTITY, 5, place): number(kind),
        (*_ENTITY, 7, place): text(title),
    }


def _sensor(kind: SwitchKind, place: int, holder: int, sensor: Sensor, ending: str, lane: int) -> dict[Oid, Typed]:
    value = sensor.value - (POWER_STEP * lane if sensor.title == "RX Power" else 0)
    reading: tuple[int, ...] = (sensor.kind, sensor.scale, sensor.precision, value, _OK)
    table: Oid = _SENSOR
    title = f"DOM {sensor.title} Sensor {ending}"
    if kind.optics == "cisco":
        table, title = _CISCO_SENSOR, f"{ending.removeprefix('for ')} Transceiver {sensor.title} Sensor"
        if sensor.kind == _WATTS:  # tenths of a dBm
            reading = (_DBM, _UNITS, 1, (5 if sensor.title == "TX Power" else -5) - lane, _OK)
    rows = _entity(place, title, holder, _SENSOR_CLASS)
    return rows | {(*table, column, place): number(one) for column, one in enumerate(reading, start=1)}


def _junos_optics(index: int) -> dict[Oid, Typed]:
    """Return the rows of JUNIPER-DOM-MIB: hundredths of a dBm, microamperes, degrees, millivolts."""
    rows: dict[Oid, Typed] = {
        (*_JUNIPER_MODULE, 8, index): number(38),
        (*_JUNIPER_MODULE, 25, index): number(3310),
        (*_JUNIPER_MODULE, 30, index): Typed(GAUGE32, LANES),
    }
    for lane in range(LANES):
        rows |= {
            (*_JUNIPER_LANE, 6, index, lane): number(-50 - 5 * lane),
            (*_JUNIPER_LANE, 7, index, lane): number(65_400),
            (*_JUNIPER_LANE, 8, index, lane): number(50),
        }
    return rows
