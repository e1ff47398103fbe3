"""A neighbour by LLDP, as an API of a switch told of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heard:
    """Who is at the other end of a port; a text is empty where the switch told none.

    `capabilities` are words in small letters (`bridge`, `router`) of what the neighbour has switched on, where that is
    told.  MAC addresses are written `aa:bb:cc:dd:ee:ff`.
    """

    port: str
    chassis: str = ""
    peer_port: str = ""
    name: str = ""
    port_description: str = ""
    description: str = ""
    capabilities: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()
