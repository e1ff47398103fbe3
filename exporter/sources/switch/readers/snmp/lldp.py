"""LLDP neighbours of a switch by LLDP-MIB and LLDP-V2-MIB.

Many agents implement these tables incorrectly: rows out of order, repeated rows, local port numbers that are not
interface indexes. Each row is processed independently of the others.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.core.source import Failure
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as SnmpValue
from exporter.snmp.client import SnmpClient
from exporter.snmp.exchange import Reason
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.text import failures_of, number_of, text_of
from exporter.switch_api.neighbour import LldpNeighbour

MAX_ROWS = 4096
"""Rows of one column, after which the agent is assumed to loop."""

_V1 = (1, 0, 8802, 1, 1, 2, 1)
_V2 = (1, 3, 111, 2, 802, 1, 1, 13, 1)

CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""Bits of LldpSystemCapabilitiesMap; the first is the highest bit of the first byte (IEEE 802.1AB)."""

_CHASSIS_MAC, _CHASSIS_ADDRESS = 4, 5
_PORT_MAC, _PORT_ADDRESS = 3, 4
_IPV4, _IPV6 = 1, 2
_MAX_CAPABILITY_BYTES = 4
"""Size of a capability map; a longer value is text."""


@dataclass(frozen=True, slots=True)
class LldpMib:
    """Identifiers and index layout of one of the two MIBs.

    Attributes:
        remote: Entry of the remote table.
        first: Its column of the chassis ID subtype; the other columns follow in the same order in both MIBs.
        addresses: Column of the table of management addresses; the address is in its index.
        chassis: Parent of the local chassis ID subtype (1) and chassis ID (2).
        local: Entry of the table of local ports.
        port: Position of the local port in an index of the remote table.
        length: Length of such an index.
        by_interface: Whether the local port is an interface index.
    """

    remote: Oid
    first: int
    addresses: Oid
    chassis: Oid
    local: Oid
    port: int
    length: int
    by_interface: bool

    def column(self, place: int) -> Oid:
        """Return a column of the remote table, counted from the chassis ID subtype."""
        return (*self.remote, self.first + place)


LLDP_MIB = LldpMib(
    (*_V1, 4, 1, 1), 4, (*_V1, 4, 2, 1, 3), (*_V1, 3), (*_V1, 3, 7, 1), port=1, length=3, by_interface=False
)
LLDP_V2_MIB = LldpMib(
    (*_V2, 4, 1, 1), 5, (*_V2, 4, 2, 1, 3), (*_V2, 3), (*_V2, 3, 7, 1), port=1, length=4, by_interface=True
)
"""Index of the remote table: time mark, local port, remote index; LLDP-V2-MIB: time mark, interface, destination MAC
address, remote index."""

CHASSIS_SUBTYPE, CHASSIS, PORT_SUBTYPE, PORT, PORT_DESCRIPTION, NAME, DESCRIPTION, _SUPPORTED, ENABLED = range(9)
READ = (CHASSIS_SUBTYPE, CHASSIS, PORT_SUBTYPE, PORT, PORT_DESCRIPTION, NAME, DESCRIPTION, ENABLED)


@dataclass(slots=True)
class LldpReading:
    """One reading of the neighbours.

    Attributes:
        neighbours: In the order of ports.
        chassis: Chassis ID of the switch itself; empty where it is missing.
        supported: Whether the switch has the tables, empty or not.
        failures: What could not be read.
        failed: Whether neighbours may be missing because of a failure.
    """

    neighbours: list[LldpNeighbour] = field(default_factory=list)
    chassis: str = ""
    supported: bool = False
    failures: list[Failure] = field(default_factory=list)
    failed: bool = False


async def read_neighbours(client: SnmpClient, inventory: Inventory) -> LldpReading:
    """Read the neighbours from LLDP-MIB, or from LLDP-V2-MIB if that has none.

    Raises:
        SnmpError: The switch does not respond.
    """
    reading = await _read(client, LLDP_MIB, inventory)
    if not reading.neighbours:
        second = await _read(client, LLDP_V2_MIB, inventory)
        second.failures = reading.failures + second.failures
        second.chassis = second.chassis or reading.chassis
        second.supported = second.supported or reading.supported
        second.failed = second.failed or reading.failed
        return second
    return reading


async def _read(client: SnmpClient, mib: LldpMib, inventory: Inventory) -> LldpReading:
    columns = [mib.column(number) for number in READ]
    local = [(*mib.local, number) for number in (3, 4)]
    own = [(*mib.chassis, number) for number in (1, 2)]
    result = await client.walk([*columns, *local, *own, mib.addresses], max_rows=MAX_ROWS, unordered=True)
    rows = {oid: column.rows for oid, column in result.columns.items()}
    reading = LldpReading(supported=any(rows[oid] for oid in (*columns, *local, *own)), failures=failures_of(result))
    subtype, chassis = (rows[oid].get((0,)) for oid in own)
    reading.chassis = identity(chassis, number_of(subtype), _CHASSIS_MAC, _CHASSIS_ADDRESS)
    reading.failed = any(one.reason is not Reason.NOT_INCREASING for one in result.problems)
    remote = {number: rows[mib.column(number)] for number in READ}
    ids, descriptions = (rows[oid] for oid in local)
    addresses = _addresses(rows[mib.addresses], mib)
    found: dict[tuple[str, ...], LldpNeighbour] = {}
    for index in sorted(set().union(*remote.values()), key=_port_order(mib)):
        if len(index) != mib.length:
            continue
        port = _local_port(mib, index[mib.port], ids, descriptions, inventory)
        if port in inventory.ports:
            cells = {number: column.get(index) for number, column in remote.items()}
            one = _neighbour(inventory.ports[port], cells, addresses.get(index, ()))
            found.setdefault((one.port, one.chassis, one.peer_port, one.name), one)  # a renewed row may be there twice
    reading.neighbours = list(found.values())
    return reading


def _port_order(mib: LldpMib) -> Callable[[Oid], tuple[Oid, int, Oid]]:
    """Return a sort key of indexes: by port, the newest row of a neighbour first."""
    return lambda index: (index[mib.port : mib.port + 1], -sum(index[:1]), index)


def _local_port(
    mib: LldpMib,
    number: int,
    ids: Mapping[Oid, SnmpValue],
    descriptions: Mapping[Oid, SnmpValue],
    inventory: Inventory,
) -> Oid:
    """Return the interface of a local port number; empty if it is not known.

    The number is an interface index on some switches, and not on others. So the local port ID and description are
    compared with interface names first; if neither matches, the number is an interface index only if the port ID is
    empty or the same number.
    """
    if mib.by_interface:
        return (number,)
    own, description = text_of(ids.get((number,))), text_of(descriptions.get((number,)))
    for text in (own, description):
        known = inventory.by_name if text.isdecimal() else inventory.by_name_or_alias  # an alias may be any number
        index = known.get(canonical(text)) if text else None
        if index is not None:
            return index
    return (number,) if own in ("", str(number)) else ()


def _neighbour(port: str, cells: Mapping[int, SnmpValue | None], addresses: Sequence[str]) -> LldpNeighbour:
    return LldpNeighbour(
        port,
        identity(cells[CHASSIS], number_of(cells[CHASSIS_SUBTYPE]), _CHASSIS_MAC, _CHASSIS_ADDRESS),
        identity(cells[PORT], number_of(cells[PORT_SUBTYPE]), _PORT_MAC, _PORT_ADDRESS),
        text_of(cells[NAME]),
        text_of(cells[PORT_DESCRIPTION]),
        text_of(cells[DESCRIPTION]),
        capabilities(cells[ENABLED]),
        tuple(addresses),
    )


def identity(value: SnmpValue | None, subtype: int | None, mac: int, address: int) -> str:
    """Format a chassis ID or port ID: MAC and network addresses in their usual notation, else text.

    Args:
        value: The ID as received.
        subtype: Its subtype.
        mac: The subtype of a MAC address.
        address: The subtype of a network address.
    """
    if not isinstance(value, bytes):
        return text_of(value)
    if subtype == mac and len(value) == 6:
        return value.hex(":")
    if subtype == address and len(value) > 1:
        return _network_address(value[0], value[1:])
    text = text_of(value)
    return text.lower() if subtype == mac else text  # some agents send MAC addresses as text


def capabilities(value: SnmpValue | None) -> frozenset[str]:
    """Return the enabled capabilities of a neighbour."""
    if not isinstance(value, bytes) or len(value) > _MAX_CAPABILITY_BYTES:
        return frozenset()
    return frozenset(name for place, name in enumerate(CAPABILITIES) if value[:1] and value[0] & 0x80 >> place)


def _addresses(cells: Mapping[Oid, SnmpValue], mib: LldpMib) -> dict[Oid, list[str]]:
    """Return management addresses, which are in the index after that of the neighbour: subtype, length, bytes."""
    found: dict[Oid, list[str]] = {}
    for index in cells:
        subtype, size, *numbers = index[mib.length :] if len(index) > mib.length + 2 else (0, -1)
        if size == len(numbers) and all(number < 256 for number in numbers):
            text = _network_address(subtype, bytes(numbers))
            if text and text not in (known := found.setdefault(index[: mib.length], [])):
                known.append(text)
    return found


def _network_address(family: int, content: bytes) -> str:
    """Format a network address of an IANA address family; other families than IP as hexadecimal with colons."""
    if (family, len(content)) in ((_IPV4, 4), (_IPV6, 16)):
        return str(ipaddress.ip_address(content))
    return content.hex(":")
