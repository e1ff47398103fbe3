"""Rows of LLDP-MIB: the local system, its ports, and a neighbour for each."""

from typing import NamedTuple

from exporter.snmp.ber import INTEGER, OCTET_STRING, Oid, Typed

_LLDP = (1, 0, 8802, 1, 1, 2, 1)
_LOCAL, _LOCAL_PORT = (*_LLDP, 3), (*_LLDP, 3, 7, 1)
_REMOTE, _ADDRESS = (*_LLDP, 4, 1, 1), (*_LLDP, 4, 2, 1)
_CHASSIS_MAC, _PORT_MAC, _PORT_NAME = 4, 3, 5
_IPV4, _BY_IFINDEX = 1, 2
_TIME_MARK, _FIRST = 0, 1
SWITCHES, HOSTS = b"\x28\x00", b"\x01\x00"
"""System capabilities of a neighbour: bridge and router, or station only."""


class Neighbour(NamedTuple):
    """An LLDP neighbour of a port.

    Attributes:
        name: System name.
        description: System description.
        capabilities: `SWITCHES` or `HOSTS`.
        chassis: Chassis ID, a MAC address.
        port: Port ID: a MAC address as bytes, or a name.
        port_description: Port description.
        address: Management address, the numbers of an IPv4 address.
    """

    name: str
    description: str
    capabilities: bytes
    chassis: bytes
    port: bytes | str
    port_description: str
    address: tuple[int, int, int, int]


def local_system(name: str, description: str, chassis: bytes) -> dict[Oid, Typed]:
    """Return the rows of the local system; the chassis ID is a MAC address."""
    return {
        (*_LOCAL, 1, 0): Typed(INTEGER, _CHASSIS_MAC),
        (*_LOCAL, 2, 0): Typed(OCTET_STRING, chassis),
        (*_LOCAL, 3, 0): _text(name),
        (*_LOCAL, 4, 0): _text(description),
    }


def port(name: str, alias: str, local: int, neighbour: Neighbour | None) -> dict[Oid, Typed]:
    """Return the rows of a port with the LLDP port number `local`, and of its neighbour."""
    rows: dict[Oid, Typed] = {
        (*_LOCAL_PORT, 2, local): Typed(INTEGER, _PORT_NAME),
        (*_LOCAL_PORT, 3, local): _text(name),
        (*_LOCAL_PORT, 4, local): _text(alias),
    }
    if neighbour is None:
        return rows
    values = (
        Typed(INTEGER, _CHASSIS_MAC),
        Typed(OCTET_STRING, neighbour.chassis),
        Typed(INTEGER, _PORT_MAC if isinstance(neighbour.port, bytes) else _PORT_NAME),
        Typed(OCTET_STRING, neighbour.port) if isinstance(neighbour.port, bytes) else _text(neighbour.port),
        _text(neighbour.port_description),
        _text(neighbour.name),
        _text(neighbour.description),
        Typed(OCTET_STRING, neighbour.capabilities),
        Typed(OCTET_STRING, neighbour.capabilities),
    )
    index = (_TIME_MARK, local, _FIRST)
    rows |= {(*_REMOTE, column, *index): value for column, value in enumerate(values, start=4)}
    address = (*index, _IPV4, len(neighbour.address), *neighbour.address)
    return rows | {
        (*_ADDRESS, 3, *address): Typed(INTEGER, _BY_IFINDEX),
        (*_ADDRESS, 4, *address): Typed(INTEGER, 1),
    }


def mac(*parts: int) -> bytes:
    """Return a locally administered MAC address of up to three numbers, the last one at its end."""
    head, *rest = parts
    return bytes((head, *(0 for _ in range(5 - 2 * len(rest))), *(byte for one in rest for byte in divmod(one, 256))))


def _text(content: str) -> Typed:
    return Typed(OCTET_STRING, content.encode())
