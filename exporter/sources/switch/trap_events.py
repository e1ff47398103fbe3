"""What a trap is about: its event, and the port."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

OTHER = "other"
EVENTS = MappingProxyType(
    {
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 1): "cold_start",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 2): "warm_start",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 3): "link_down",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 4): "link_up",
        (1, 3, 6, 1, 6, 3, 1, 1, 5, 5): "authentication_failure",
        (1, 3, 6, 1, 2, 1, 47, 2, 0, 1): "inventory_changed",  # entConfigChange
        (1, 0, 8802, 1, 1, 2, 0, 0, 1): "neighbours_changed",  # lldpRemTablesChange
        (1, 3, 111, 2, 802, 1, 1, 13, 0, 0, 1): "neighbours_changed",  # lldpV2RemTablesChange
    }
)
"""Notifications to the value of the label `event` (SNMPv2-MIB, IF-MIB, ENTITY-MIB, LLDP-MIB, LLDP-V2-MIB)."""

POLLING_EVENTS = frozenset(EVENTS.values()) - {"authentication_failure"}
"""Events after which the switch is polled at once."""

_TRAP_OID = (1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0)  # snmpTrapOID
_PORT_NAMES = ((1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1), (1, 3, 6, 1, 2, 1, 2, 2, 1, 2))  # ifName, ifDescr
_MAX_NAME_BYTES = 256


def event_of(values: Mapping[tuple[int, ...], Any]) -> str:
    """Return the event of a trap with these variable bindings."""
    return EVENTS.get(tuple(values.get(_TRAP_OID, ())), OTHER)


def port_of(values: Mapping[tuple[int, ...], Any]) -> str:
    """Return the name of the port in a trap's variable bindings, empty if there is none."""
    for column in _PORT_NAMES:
        for name, value in values.items():
            if name[: len(column)] == column:
                return bytes(value)[:_MAX_NAME_BYTES].decode("utf-8", "surrogateescape")
    return ""
