"""An LLDP neighbour of a port of a switch, whatever protocol reported it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """An LLDP neighbour of a port; texts as received, empty where the TLV is missing.

    Attributes:
        port: Label of the local port.
        chassis: Chassis ID: a MAC address as `aa:bb:cc:dd:ee:ff`, else text.
        peer_port: Port ID: a MAC address likewise, else text.
        name: System Name.
        port_description: Port Description.
        description: System Description.
        capabilities: Enabled capabilities, such as `bridge`, `router`, `station`.
        addresses: Management addresses.
    """

    port: str
    chassis: str = ""
    peer_port: str = ""
    name: str = ""
    port_description: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()
