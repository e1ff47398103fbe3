"""Neighbours of a switch by LLDP-MIB and LLDP-V2-MIB.

The tables are the worst that agents have: rows out of order, rows that come round again, indexes that are no interface
indexes. Each row is taken for itself, whatever becomes of the others.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.core.source import Failure
from exporter.snmp.ber import Oid
from exporter.snmp.ber import Value as Wire
from exporter.snmp.client import SnmpClient
from exporter.snmp.exchange import Reason
from exporter.sources.switch.merge import Neighbour
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp.inventory import Inventory
from exporter.sources.switch.readers.snmp.text import failures_of, number_of, text_of

MAX_ROWS = 4096
"""Rows of one column, after which an agent is taken to go round."""

_V1 = (1, 0, 8802, 1, 1, 2, 1)
_V2 = (1, 3, 111, 2, 802, 1, 1, 13, 1)

CAPABILITIES = ("other", "repeater", "bridge", "wlan", "router", "telephone", "docsis", "station")
"""Bits of a capability map, the first is the highest of the first byte (IEEE 802.1AB)."""

_CHASSIS_MAC, _CHASSIS_ADDRESS = 4, 5
_PORT_MAC, _PORT_ADDRESS = 3, 4
_IPV4, _IPV6 = 1, 2
_LONGEST_MAP = 4
"""Bytes of a capability map; what is longer is some text."""


@dataclass(frozen=True, slots=True)
class Mib:
    """Where one of the two MIBs has what is read, and where its indexes name the port.

    Attributes:
        remote: Entry of the table of neighbours.
        first: Column of the kind of the chassis' identity; the others come behind it in one order.
        addresses: Column of the table of their management addresses of which the index is all that counts.
        chassis: Above the kind of the switch's own identity, which is 1, and the identity, which is 2.
        local: Entry of the table of the switch's own ports.
        port: Place of the port in an index of neighbours.
        length: Numbers of such an index.
        by_interface: Whether a port is named by its interface index.
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
        """Give a column of the table of neighbours, counted from that of the kind of the chassis' identity."""
        return (*self.remote, self.first + place)


OLD = Mib((*_V1, 4, 1, 1), 4, (*_V1, 4, 2, 1, 3), (*_V1, 3), (*_V1, 3, 7, 1), port=1, length=3, by_interface=False)
NEW = Mib((*_V2, 4, 1, 1), 5, (*_V2, 4, 2, 1, 3), (*_V2, 3), (*_V2, 3, 7, 1), port=1, length=4, by_interface=True)
"""Index of neighbours: time mark, port, number; in the newer MIB time mark, interface, destination address, number."""

CHASSIS_KIND, CHASSIS, PORT_KIND, PORT, PORT_DESCRIPTION, NAME, DESCRIPTION, _SUPPORTED, ENABLED = range(9)
READ = (CHASSIS_KIND, CHASSIS, PORT_KIND, PORT, PORT_DESCRIPTION, NAME, DESCRIPTION, ENABLED)


@dataclass(slots=True)
class Found:
    """What a reading brought.

    Attributes:
        neighbours: In the order of ports.
        chassis: Identity of the switch itself; empty where it does not tell.
        known: Whether the switch has the tables, empty or not.
        failures: What could not be read.
        failed: Whether it could be that nothing was read for a failure.
    """

    neighbours: list[Neighbour] = field(default_factory=list)
    chassis: str = ""
    known: bool = False
    failures: list[Failure] = field(default_factory=list)
    failed: bool = False


async def neighbours(client: SnmpClient, inventory: Inventory) -> Found:
    """Read the neighbours: by the older MIB, and by the newer one where the older has nothing.

    Raises:
        SnmpError: The switch does not answer.
    """
    found = await _read(client, OLD, inventory)
    if not found.neighbours:
        newer = await _read(client, NEW, inventory)
        newer.failures = found.failures + newer.failures
        newer.chassis = newer.chassis or found.chassis
        newer.known = newer.known or found.known
        newer.failed = newer.failed or found.failed
        return newer
    return found


async def _read(client: SnmpClient, mib: Mib, inventory: Inventory) -> Found:
    columns = [mib.column(place) for place in READ]
    local = [(*mib.local, place) for place in (3, 4)]
    own = [(*mib.chassis, place) for place in (1, 2)]
    result = await client.walk([*columns, *local, *own, mib.addresses], max_rows=MAX_ROWS, unordered=True)
    rows = {oid: column.rows for oid, column in result.columns.items()}
    found = Found(known=any(rows[oid] for oid in (*columns, *local, *own)), failures=failures_of(result))
    kind, chassis = (rows[oid].get((0,)) for oid in own)
    found.chassis = identity(chassis, number_of(kind), _CHASSIS_MAC, _CHASSIS_ADDRESS)
    found.failed = any(one.reason is not Reason.NOT_INCREASING for one in result.problems)
    remote = {place: rows[mib.column(place)] for place in READ}
    ids, descriptions = (rows[oid] for oid in local)
    addresses = _addresses(rows[mib.addresses], mib)
    made: dict[tuple[str, ...], Neighbour] = {}
    for index in sorted(set().union(*remote.values()), key=_by_port(mib)):
        if len(index) != mib.length:
            continue
        port = _local_port(mib, index[mib.port], ids, descriptions, inventory)
        if port in inventory.ports:
            cells = {place: column.get(index) for place, column in remote.items()}
            one = _neighbour(inventory.ports[port], cells, addresses.get(index, ()))
            made.setdefault((one.port, one.chassis, one.peer_port, one.name), one)  # a row that was renewed comes twice
    found.neighbours = list(made.values())
    return found


def _by_port(mib: Mib) -> Callable[[Oid], tuple[Oid, int, Oid]]:
    """Order indexes by port; of one neighbour's rows the newest comes first."""
    return lambda index: (index[mib.port : mib.port + 1], -sum(index[:1]), index)


def _local_port(
    mib: Mib, number: int, ids: Mapping[Oid, Wire], descriptions: Mapping[Oid, Wire], inventory: Inventory
) -> Oid:
    """Find the interface that LLDP means by a number of a port; empty where that is not known.

    The number is that of an interface on some switches, and some other one on others. So the port's own identity and
    description decide; where neither is a name that is known, the number is an interface only if the identity is
    silent or says just that number.
    """
    if mib.by_interface:
        return (number,)
    own, description = text_of(ids.get((number,))), text_of(descriptions.get((number,)))
    for text in (own, description):
        known = inventory.named if text.isdecimal() else inventory.joined  # an alias may be any number
        index = known.get(canonical(text)) if text else None
        if index is not None:
            return index
    return (number,) if own in ("", str(number)) else ()


def _neighbour(port: str, cells: Mapping[int, Wire | None], addresses: Sequence[str]) -> Neighbour:
    return Neighbour(
        port,
        identity(cells[CHASSIS], number_of(cells[CHASSIS_KIND]), _CHASSIS_MAC, _CHASSIS_ADDRESS),
        identity(cells[PORT], number_of(cells[PORT_KIND]), _PORT_MAC, _PORT_ADDRESS),
        text_of(cells[NAME]),
        text_of(cells[PORT_DESCRIPTION]),
        text_of(cells[DESCRIPTION]),
        capabilities(cells[ENABLED]),
        tuple(addresses),
    )


def identity(value: Wire | None, kind: int | None, mac: int, address: int) -> str:
    """Write the identity of a chassis or port: MAC and network addresses as they are usually written, else text.

    Args:
        value: As the agent sent it.
        kind: Its kind.
        mac: The kind that is a MAC address.
        address: The kind that is a network address.
    """
    if not isinstance(value, bytes):
        return text_of(value)
    if kind == mac and len(value) == 6:
        return value.hex(":")
    if kind == address and len(value) > 1:
        return _network_address(value[0], value[1:])
    text = text_of(value)
    return text.lower() if kind == mac else text  # some agents send it written out


def capabilities(value: Wire | None) -> frozenset[str]:
    """Read which capabilities a neighbour has switched on."""
    if not isinstance(value, bytes) or len(value) > _LONGEST_MAP:
        return frozenset()
    return frozenset(name for place, name in enumerate(CAPABILITIES) if value[:1] and value[0] & 0x80 >> place)


def _addresses(cells: Mapping[Oid, Wire], mib: Mib) -> dict[Oid, list[str]]:
    """Read management addresses, which are in the index: kind, length, bytes, behind the index of the neighbour."""
    found: dict[Oid, list[str]] = {}
    for index in cells:
        kind, size, *numbers = index[mib.length :] if len(index) > mib.length + 2 else (0, -1)
        if size == len(numbers) and all(number < 256 for number in numbers):
            text = _network_address(kind, bytes(numbers))
            if text and text not in (known := found.setdefault(index[: mib.length], [])):
                known.append(text)
    return found


def _network_address(kind: int, content: bytes) -> str:
    """Write a network address of an IANA address family; one that is no IP address as hexadecimal with colons."""
    if (kind, len(content)) in ((_IPV4, 4), (_IPV6, 16)):
        return str(ipaddress.ip_address(content))
    return content.hex(":")
