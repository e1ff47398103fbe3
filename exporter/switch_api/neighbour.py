"""An LLDP neighbour as reported by an API of a switch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """The system at the other end of a port; a text is empty where the switch reports none.

    `capabilities` are the enabled system capabilities in lower case (`bridge`, `router`), where they are reported.  MAC
    addresses are written `aa:bb:cc:dd:ee:ff`.
    """

    port: str
    chassis: str = ""
    peer_port: str = ""
    name: str = ""
    port_description: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()
