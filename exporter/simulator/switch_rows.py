"""The rows of a simulated switch that seldom change: who it is, its interfaces, its neighbours, its optics."""

from typing import Final, NamedTuple

from exporter.simulator.switch_kinds import IF, IFX, Kind
from exporter.simulator.switch_traffic import SwitchPort
from exporter.snmp.ber import (
    GAUGE32,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    TIME_TICKS,
    Oid,
    Typed,
)

SYSTEM: Final = (1, 3, 6, 1, 2, 1, 1)
UPTIME: Final = (*SYSTEM, 3, 0)
IF_NUMBER: Final = (1, 3, 6, 1, 2, 1, 2, 1, 0)

ETHERNET: Final = 6
MTU: Final = 9216
LANES: Final = 4

_LLDP = (1, 0, 8802, 1, 1, 2, 1)
_LLDP_LOCAL, _LLDP_LOCAL_PORT = (*_LLDP, 3), (*_LLDP, 3, 7, 1)
_LLDP_REMOTE, _LLDP_ADDRESS = (*_LLDP, 4, 1, 1), (*_LLDP, 4, 2, 1)
_CHASSIS_MAC, _PORT_MAC, _PORT_NAME = 4, 3, 5
_IPV4, _BY_IFINDEX = 1, 2
_TIME_MARK, _FIRST = 0, 1
SWITCHES, HOSTS = b"\x28\x00", b"\x01\x00"
"""Capabilities of a neighbour: bridge and router, or station alone."""

_ENTITY = (1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1)
_SENSOR = (1, 3, 6, 1, 2, 1, 99, 1, 1, 1)
_CISCO_SENSOR = (1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1)
_JUNIPER_MODULE, _JUNIPER_LANE = ((1, 3, 6, 1, 4, 1, 2636, 3, 60, *tail) for tail in ((1, 1, 1, 1), (1, 2, 1, 1)))
_MODULE_CLASS, _CONTAINER_CLASS, _SENSOR_CLASS = 10, 9, 8
_VOLTS, _AMPERES, _WATTS, _CELSIUS, _DBM = 4, 5, 6, 8, 14
_UNITS, _MILLI = 9, 8
_OK = 1


class Neighbour(NamedTuple):
    """Who is at the other end of a port, as LLDP says it.

    Attributes:
        name: Its system name.
        description: Of itself.
        capabilities: `SWITCHES` or `HOSTS`.
        chassis: Its identity, a MAC address.
        port: Its port: a MAC address as bytes, or a name.
        port_description: What it says of its port.
        address: Its management address, the numbers of an IPv4 address.
    """

    name: str
    description: str
    capabilities: bytes
    chassis: bytes
    port: bytes | str
    port_description: str
    address: tuple[int, int, int, int]


class Sensor(NamedTuple):
    """One sensor of a module: what it is of, and its reading as ENTITY-SENSOR-MIB writes it.

    Attributes:
        place: Behind the module's index.
        title: Of what, as switches put it.
        kind, scale, precision, value: The reading is value * 10^(3 * (scale - 9)) / 10^precision of the kind's unit.
        laned: Whether each lane has one.
    """

    place: int
    title: str
    kind: int
    scale: int
    precision: int
    value: int
    laned: bool


SENSORS: Final = (
    Sensor(10, "Temperature", _CELSIUS, _UNITS, 1, 385, laned=False),
    Sensor(11, "Voltage", _VOLTS, _UNITS, 2, 331, laned=False),
    Sensor(20, "TX Power", _WATTS, _MILLI, 4, 11_220, laned=True),
    Sensor(30, "RX Power", _WATTS, _MILLI, 4, 8_912, laned=True),
    Sensor(40, "TX Bias", _AMPERES, _MILLI, 3, 65_400, laned=True),
)
"""38.5 degrees, 3.31 V, 1.122 mW out (0.5 dBm), 0.8912 mW in (-0.5 dBm), 65.4 mA; in the lanes behind the first a
little less light comes in."""

LESS_LIGHT: Final = 100
"""By which the received light of each lane is lower than that of the one before, in units of the sensor."""


def text(content: str) -> Typed:
    """Make a string."""
    return Typed(OCTET_STRING, content.encode())


def number(value: int) -> Typed:
    """Make an INTEGER."""
    return Typed(INTEGER, value)


def system(kind: Kind, name: str, ports: int) -> dict[Oid, Typed]:
    """Give the system group, and the number of interfaces."""
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
    """Give what ifTable and ifXTable say of a port whatever it does, at its index in the one and in the other."""
    return {
        (*IF, 1, index): number(index),
        (*IF, 2, index): text(port.name),
        (*IF, 3, index): number(ETHERNET),
        (*IF, 4, index): number(MTU),
        (*IFX, 1, extended): text(port.name),
        (*IFX, 18, extended): text(port.alias),
        (*IFX, 19, extended): Typed(TIME_TICKS, 0),
    }


def lldp_local(name: str, description: str, chassis: bytes) -> dict[Oid, Typed]:
    """Give what LLDP says of the switch itself; the chassis is a MAC address."""
    return {
        (*_LLDP_LOCAL, 1, 0): number(_CHASSIS_MAC),
        (*_LLDP_LOCAL, 2, 0): Typed(OCTET_STRING, chassis),
        (*_LLDP_LOCAL, 3, 0): text(name),
        (*_LLDP_LOCAL, 4, 0): text(description),
    }


def lldp_port(name: str, alias: str, local: int, neighbour: Neighbour | None) -> dict[Oid, Typed]:
    """Give what LLDP says of a port, whose number in LLDP is `local`, and of its neighbour."""
    rows: dict[Oid, Typed] = {
        (*_LLDP_LOCAL_PORT, 2, local): number(_PORT_NAME),
        (*_LLDP_LOCAL_PORT, 3, local): text(name),
        (*_LLDP_LOCAL_PORT, 4, local): text(alias),
    }
    if neighbour is None:
        return rows
    values = (
        number(_CHASSIS_MAC),
        Typed(OCTET_STRING, neighbour.chassis),
        number(_PORT_MAC if isinstance(neighbour.port, bytes) else _PORT_NAME),
        Typed(OCTET_STRING, neighbour.port) if isinstance(neighbour.port, bytes) else text(neighbour.port),
        text(neighbour.port_description),
        text(neighbour.name),
        text(neighbour.description),
        Typed(OCTET_STRING, neighbour.capabilities),
        Typed(OCTET_STRING, neighbour.capabilities),
    )
    index = (_TIME_MARK, local, _FIRST)
    rows |= {(*_LLDP_REMOTE, column, *index): value for column, value in enumerate(values, start=4)}
    where = (*index, _IPV4, len(neighbour.address), *neighbour.address)
    return rows | {(*_LLDP_ADDRESS, 3, *where): number(_BY_IFINDEX), (*_LLDP_ADDRESS, 4, *where): number(1)}


def optics(kind: Kind, port: SwitchPort, index: int) -> dict[Oid, Typed]:
    """Give what the module in a port measures, in the tables that this kind of switch has."""
    if kind.optics == "junos":
        return _junos_optics(index)
    if not kind.optics:
        return {}
    module = 300_000_000 + port.number * 1000 if kind.optics == "cisco" else 1_000_000_000 + port.number * 1000
    rows = _entity(module, f"Transceiver for {port.name}", 1, _MODULE_CLASS)
    for sensor in SENSORS:
        if not sensor.laned:
            rows |= _sensor(kind, module + sensor.place, module, sensor, f"for {port.name}", 0)
            continue
        for lane in range(1, LANES + 1):
            holder, ending = module, f"for {port.name}/{lane}"
            if kind.optics == "entity":  # the lane is an entity too, and the sensors' names do not have it
                holder, ending = module + 100 * lane, f"for {port.name}"
                rows |= _entity(holder, f"Lane {lane - 1} for Xcvr for {port.name}", module, _CONTAINER_CLASS)
            elif kind.optics == "cisco":
                ending = f"for {port.name} Lane {lane}"
            rows |= _sensor(kind, holder + sensor.place + lane, holder, sensor, ending, lane - 1)
    return rows


def mac(*parts: int) -> bytes:
    """Make a locally administered MAC address of up to six numbers: the last goes to its end."""
    head, *rest = parts
    return bytes((head, *(0 for _ in range(5 - 2 * len(rest))), *(byte for one in rest for byte in divmod(one, 256))))


def _entity(place: int, title: str, holder: int, kind: int) -> dict[Oid, Typed]:
    return {
        (*_ENTITY, 2, place): text(title),
        (*_ENTITY, 4, place): number(holder),
        (*_ENTITY, 5, place): number(kind),
        (*_ENTITY, 7, place): text(title),
    }


def _sensor(kind: Kind, place: int, holder: int, sensor: Sensor, ending: str, lane: int) -> dict[Oid, Typed]:
    value = sensor.value - (LESS_LIGHT * lane if sensor.title == "RX Power" else 0)
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
    """Give JUNIPER-DOM-MIB: hundredths of a dBm, microamperes, degrees, millivolts."""
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
