"""Simulated switches of several makers: names and indexes of their ports, and the tables of their counters.

OIDs and indexes are those of the public MIBs. Of some tables no recording of a real switch is known (CISCO-PFC-EXT,
MELLANOX-QOS, JUNIPER-COS with traffic); their rows follow the MIB only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from exporter.snmp.ber import (
    COUNTER32,
    COUNTER64,
    GAUGE32,
    INTEGER,
    TIME_TICKS,
    Oid,
)

PRIORITIES: Final = range(8)

_MIB2 = (1, 3, 6, 1, 2, 1)
_ENTERPRISES = (1, 3, 6, 1, 4, 1)

IF: Final = (*_MIB2, 2, 2, 1)
IFX: Final = (*_MIB2, 31, 1, 1, 1)
DOT3: Final = (*_MIB2, 10, 7)


class TableColumn(NamedTuple):
    """One column of a table, and the counter of a port that it shows.

    Attributes:
        oid: The column.
        tag: The type of its values; counters wrap at its end.
        what: Name of a counter or level of the port, with `#` for a number; or a constant.
        numbers: Priorities or queues with a row each; None where the port has one row.
        first: Added to the numbers in the index.
        before, after: Parts of the index between the port's and the number, and after it.
        divisor: Divisor of the counter for the unit of the column.
    """

    oid: Oid
    tag: int
    what: str | int
    numbers: Sequence[int] | None = None
    first: int = 0
    before: Oid = ()
    after: Oid = ()
    divisor: int = 1

    def rows(self) -> list[tuple[Oid, str | int]]:
        """Return the index after that of the port, and the shown counter, for each row of a port."""
        if self.numbers is None:
            return [((*self.before, *self.after), self.what)]
        return [
            (
                (*self.before, number + self.first, *self.after),
                self.what.replace("#", str(number)) if isinstance(self.what, str) else self.what,
            )
            for number in self.numbers
        ]


@dataclass(frozen=True, slots=True)
class SwitchKind:
    """A kind of switch.

    Attributes:
        description: Its sysDescr.
        object_id: Its sysObjectID.
        port: Names of its ports: `{n}` counts from 1, `{z}` from 0, `{lane}` by four from 0.
        index: The first ifIndex, and the step to the next.
        columns: Its counters besides IF-MIB.
        lldp_by_index: Whether LLDP port numbers are ifIndex; otherwise they count from 1.
        optics: The tables of optics: `entity`, `lanes`, `cisco`, `junos`; empty for none.
    """

    description: str
    object_id: Oid
    port: str
    index: tuple[int, int]
    columns: Sequence[TableColumn]
    lldp_by_index: bool = True
    optics: str = ""


STATES: Sequence[TableColumn] = (
    TableColumn((*IF, 5), GAUGE32, "speed"),
    TableColumn((*IF, 7), INTEGER, "admin_status"),
    TableColumn((*IF, 8), INTEGER, "oper_status"),
    TableColumn((*IF, 9), TIME_TICKS, "last_change"),
    TableColumn((*IFX, 15), GAUGE32, "speed_mega"),
)
"""Columns that each agent updates at once, whatever its cache of counters does."""

_WAYS = (("receive", (*IFX, 6), (*IF, 10), (*IF, 13)), ("transmit", (*IFX, 10), (*IF, 16), (*IF, 19)))


def _one_after(oid: Oid, step: int) -> Oid:
    return (*oid[:-1], oid[-1] + step)


TRAFFIC: Sequence[TableColumn] = tuple(
    column
    for way, wide, narrow, discards in _WAYS
    for column in (
        TableColumn(wide, COUNTER64, f"{way}_bytes"),
        TableColumn(_one_after(wide, 1), COUNTER64, f"{way}_unicast_packets"),
        TableColumn(_one_after(wide, 2), COUNTER64, f"{way}_multicast_packets"),
        TableColumn(_one_after(wide, 3), COUNTER64, f"{way}_broadcast_packets"),
        TableColumn(narrow, COUNTER32, f"{way}_bytes"),
        TableColumn(discards, COUNTER32, f"{way}_discards"),
        TableColumn(_one_after(discards, 1), COUNTER32, f"{way}_errors"),
    )
)
"""IF-MIB, with octets in both widths."""

ETHER_LIKE: Sequence[TableColumn] = (
    TableColumn((*DOT3, 2, 1, 3), COUNTER32, "fcs_errors"),
    TableColumn((*DOT3, 2, 1, 18), COUNTER32, "symbol_errors"),
    TableColumn((*DOT3, 10, 1, 1), INTEGER, 1),
    TableColumn((*DOT3, 10, 1, 2), INTEGER, 1),
    TableColumn((*DOT3, 10, 1, 3), COUNTER32, "receive_pause_frames"),
    TableColumn((*DOT3, 10, 1, 4), COUNTER32, "transmit_pause_frames"),
    TableColumn((*DOT3, 10, 1, 5), COUNTER64, "receive_pause_frames"),
    TableColumn((*DOT3, 10, 1, 6), COUNTER64, "transmit_pause_frames"),
    TableColumn((*DOT3, 11, 1, 2), COUNTER64, "fcs_errors"),
    TableColumn((*DOT3, 11, 1, 6), COUNTER64, "symbol_errors"),
)

_IEEE_PFC = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1)
IEEE_PFC: Sequence[TableColumn] = (
    TableColumn((*_IEEE_PFC, 1), GAUGE32, 0),
    TableColumn((*_IEEE_PFC, 2), COUNTER32, "transmit_pfc_frames"),
    TableColumn((*_IEEE_PFC, 3), COUNTER32, "receive_pfc_frames"),
)
"""IEEE8021-PFC-MIB: one row a port. Requests are frames sent, indications received."""

_ARISTA = (*_ENTERPRISES, 30065, 3)
ARISTA: Sequence[TableColumn] = (
    *ETHER_LIKE,
    *IEEE_PFC,
    TableColumn((*_ARISTA, 11, 1, 1, 1, 3), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    TableColumn((*_ARISTA, 11, 1, 1, 1, 4), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    TableColumn((*_ARISTA, 13, 1, 9, 1, 3), INTEGER, 1, PRIORITIES),
    TableColumn((*_ARISTA, 13, 1, 9, 1, 4), COUNTER64, "queue_ecn_marked_#", PRIORITIES),
    TableColumn((*_ARISTA, 6, 1, 1, 1, 3), COUNTER64, "ingress_discards_#", PRIORITIES),
    TableColumn((*_ARISTA, 6, 1, 2, 1, 4), COUNTER64, "queue_packets_#", PRIORITIES, after=(0,)),
    TableColumn((*_ARISTA, 6, 1, 2, 1, 5), COUNTER64, "queue_bytes_#", PRIORITIES, after=(0,)),
    TableColumn((*_ARISTA, 6, 1, 2, 1, 6), COUNTER64, "queue_discards_#", PRIORITIES, after=(0,)),
    TableColumn((*_ARISTA, 15, 1, 1, 1, 1), TIME_TICKS, "counted_at"),
)

_CISCO_PFC = (*_ENTERPRISES, 9, 9, 813, 1)
_CISCO_QOS = (*_ENTERPRISES, 9, 9, 580, 1, 5, 5, 1, 4)
CISCO_PFC: Sequence[TableColumn] = (
    TableColumn((*_CISCO_PFC, 2, 1, 2), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    TableColumn((*_CISCO_PFC, 2, 1, 3), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
)
SONIC: Sequence[TableColumn] = (
    *CISCO_PFC,
    # In the columns by port SONiC shows priority 3 only.
    TableColumn((*_CISCO_PFC, 1, 1, 1), COUNTER64, "transmit_pfc_frames_3"),
    TableColumn((*_CISCO_PFC, 1, 1, 2), COUNTER64, "receive_pfc_frames_3"),
    *(
        TableColumn(_CISCO_QOS, COUNTER64, what, PRIORITIES, first=1, before=(2,), after=(kind,))
        for kind, what in ((1, "queue_packets_#"), (2, "queue_bytes_#"), (5, "queue_discards_#"))
    ),
)
NXOS: Sequence[TableColumn] = (
    *ETHER_LIKE,
    *CISCO_PFC,
    TableColumn((*_CISCO_PFC, 1, 1, 1), COUNTER64, "transmit_pfc_frames"),
    TableColumn((*_CISCO_PFC, 1, 1, 2), COUNTER64, "receive_pfc_frames"),
    TableColumn((*_CISCO_PFC, 3, 1, 3), COUNTER64, 0, PRIORITIES),
    TableColumn((*_CISCO_PFC, 3, 1, 4), COUNTER64, 0, PRIORITIES),
    TableColumn((*_CISCO_PFC, 4, 1, 2), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES),
    TableColumn((*_CISCO_PFC, 4, 1, 3), COUNTER64, "transmit_pfc_microseconds_#", PRIORITIES),
)

_CUMULUS = (*_ENTERPRISES, 40310, 2)
CUMULUS: Sequence[TableColumn] = (
    TableColumn((*_CUMULUS, 2, 3, 1, 2), COUNTER64, "receive_pause_frames"),
    TableColumn((*_CUMULUS, 2, 3, 1, 3), COUNTER64, "transmit_pause_frames"),
    *(
        TableColumn((*_CUMULUS, 2, 3, 1, start + 2 * priority), COUNTER64, f"{way}_pfc_frames_{priority}")
        for priority in PRIORITIES
        for way, start in (("receive", 4), ("transmit", 5))
    ),
    TableColumn((*_CUMULUS, 1, 2, 1, 3), COUNTER64, "receive_discards"),
    TableColumn((*_CUMULUS, 1, 2, 1, 6), COUNTER64, "transmit_discards"),
)

_ONYX = (*_ENTERPRISES, 33049)
ONYX: Sequence[TableColumn] = (
    TableColumn((*_ONYX, 15, 1, 1, 1, 8), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 1, 1, 9), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES, divisor=1000),
    TableColumn((*_ONYX, 15, 1, 1, 1, 15), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 2, 1, 3), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 2, 1, 4), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES, divisor=1000),
    TableColumn((*_ONYX, 15, 1, 2, 1, 5), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 2, 1, 6), COUNTER64, "transmit_pfc_microseconds_#", PRIORITIES, divisor=1000),
    TableColumn((*_ONYX, 15, 1, 3, 1, 5), COUNTER64, "ingress_depth_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 3, 1, 6), COUNTER64, "ingress_discards_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 3, 1, 7), COUNTER64, 0, PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 4, 1, 3), COUNTER64, "queue_packets_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 4, 1, 4), COUNTER64, "queue_bytes_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 4, 1, 6), COUNTER64, "queue_depth_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 4, 1, 8), COUNTER64, "queue_full_discards_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 4, 1, 9), COUNTER64, "queue_early_discards_#", PRIORITIES),
    TableColumn((*_ONYX, 15, 1, 5, 1, 2), COUNTER64, "receive_pause_frames"),
    TableColumn((*_ONYX, 15, 1, 5, 1, 3), COUNTER64, "transmit_pause_frames"),
    TableColumn((*_ONYX, 3, 1, 1, 1, 6), COUNTER64, "symbol_errors"),
    TableColumn((*_ONYX, 3, 1, 1, 1, 21), COUNTER64, "fcs_errors"),
)

_JUNIPER_COS = (*_ENTERPRISES, 2636, 3, 15, 4, 1)
JUNOS: Sequence[TableColumn] = (
    *ETHER_LIKE,
    TableColumn((*_JUNIPER_COS, 7), COUNTER64, "queue_packets_#", PRIORITIES),
    TableColumn((*_JUNIPER_COS, 9), COUNTER64, "queue_bytes_#", PRIORITIES),
    TableColumn((*_JUNIPER_COS, 11), COUNTER64, "queue_full_discards_#", PRIORITIES),
    TableColumn((*_JUNIPER_COS, 13), COUNTER64, "queue_early_discards_#", PRIORITIES),
    TableColumn((*_JUNIPER_COS, 58), COUNTER64, "queue_depth_#", PRIORITIES),
    TableColumn((*_JUNIPER_COS, 59), COUNTER64, "queue_highest_depth_#", PRIORITIES),
)

KINDS: Mapping[str, SwitchKind] = {
    "generic": SwitchKind(
        "Simulated switch",
        (2, 999, 1),  # the arc for examples
        "Ethernet1/{n}",
        (1, 1),
        (*ETHER_LIKE, *IEEE_PFC),
        lldp_by_index=False,
        optics="lanes",
    ),
    "arista": SwitchKind(
        "Arista Networks EOS version 4.31.2F running on an Arista Networks DCS-7060X5-64S",
        (*_ENTERPRISES, 30065, 1, 3011, 7060, 64),
        "Ethernet{n}/1",
        (1, 4),
        ARISTA,
        optics="entity",
    ),
    "sonic": SwitchKind(
        "SONiC Software Version: SONiC.202405.1 - HwSku: Simulated-64x400 - Distribution: Debian 12.5 - Kernel: 6.1.0",
        (*_ENTERPRISES, 8072, 3, 2, 10),
        "Ethernet{lane}",
        (1, 4),
        SONIC,
        optics="lanes",
    ),
    "cumulus": SwitchKind(
        "Cumulus-Linux 5.9.2 (Linux Kernel 6.1.94-1+cl5.9.2u6)",
        (*_ENTERPRISES, 40310),
        "swp{n}",
        (3, 1),
        CUMULUS,
    ),
    "onyx": SwitchKind(
        "Mellanox MSN4700,Onyx,SWv3.10.4302",
        (*_ENTERPRISES, 33049, 1, 1, 1, 4700),
        "Eth1/{n}",
        (1, 1),
        ONYX,
    ),
    "nxos": SwitchKind(
        "Cisco NX-OS(tm) nxos64-cs.10.3.4a.M.bin, Software (nxos64-cs), Version 10.3(4a), RELEASE SOFTWARE",
        (*_ENTERPRISES, 9, 12, 3, 1, 3, 2495),
        "Ethernet1/{n}",
        (436207616, 4096),
        NXOS,
        optics="cisco",
    ),
    "junos": SwitchKind(
        "Juniper Networks, Inc. qfx5230-64cd Ethernet Switch, kernel JUNOS 23.4R1, Build date: 2023-12-14",
        (*_ENTERPRISES, 2636, 1, 1, 1, 4, 82, 30),
        "et-0/0/{z}",
        (501, 1),
        JUNOS,
        optics="junos",
    ),
}
"""By name. The SNMP agents of Cumulus and Onyx have no optics."""
