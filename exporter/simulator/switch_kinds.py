"""How simulated switches of several makes differ: their names, their indexes, and in which tables they count what.

Where a table is and what its index is comes of the public MIBs. Of some tables no recording of a real switch is known
(CISCO-PFC-EXT, MELLANOX-QOS, JUNIPER-COS with traffic), so that their rows here are as the MIB says and no more.
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


class Shown(NamedTuple):
    """One column of a table, and what of a port it shows.

    Attributes:
        oid: The column.
        tag: The type of its values; counters run over where the type ends.
        what: Name of a counter or level of the port, `#` standing for a number; or the one number that all rows have.
        numbers: Priorities or queues that have a row each; None where the port has one row.
        first: What is added to the numbers in the index.
        before, after: Parts of the index between the port's and the number, and behind.
        divisor: Of the counter, into the unit of the column.
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
        """List the index behind the port's of each row of a port, and what it shows."""
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
class Kind:
    """A make of switches.

    Attributes:
        description: Its sysDescr.
        object_id: Its sysObjectID.
        port: How it spells its ports: `{n}` counts from 1, `{z}` from 0, `{lane}` four for each port from 0.
        index: The first ifIndex, and the step to the next.
        columns: What it counts beside IF-MIB.
        lldp_by_index: Whether LLDP's port numbers are ifIndex; else they count from 1.
        optics: The tables that optics are in: `entity`, `lanes`, `cisco`, `junos`; empty for none.
    """

    description: str
    object_id: Oid
    port: str
    index: tuple[int, int]
    columns: Sequence[Shown]
    lldp_by_index: bool = True
    optics: str = ""


STATES: Sequence[Shown] = (
    Shown((*IF, 5), GAUGE32, "speed"),
    Shown((*IF, 7), INTEGER, "admin_status"),
    Shown((*IF, 8), INTEGER, "oper_status"),
    Shown((*IF, 9), TIME_TICKS, "last_change"),
    Shown((*IFX, 15), GAUGE32, "speed_mega"),
)
"""What every switch shows at once, whatever its cache of counters does."""

_WAYS = (("receive", (*IFX, 6), (*IF, 10), (*IF, 13)), ("transmit", (*IFX, 10), (*IF, 16), (*IF, 19)))


def _one_after(oid: Oid, step: int) -> Oid:
    return (*oid[:-1], oid[-1] + step)


TRAFFIC: Sequence[Shown] = tuple(
    column
    for way, wide, narrow, discards in _WAYS
    for column in (
        Shown(wide, COUNTER64, f"{way}_bytes"),
        Shown(_one_after(wide, 1), COUNTER64, f"{way}_unicast_packets"),
        Shown(_one_after(wide, 2), COUNTER64, f"{way}_multicast_packets"),
        Shown(_one_after(wide, 3), COUNTER64, f"{way}_broadcast_packets"),
        Shown(narrow, COUNTER32, f"{way}_bytes"),
        Shown(discards, COUNTER32, f"{way}_discards"),
        Shown(_one_after(discards, 1), COUNTER32, f"{way}_errors"),
    )
)
"""IF-MIB, with octets in both widths."""

ETHER_LIKE: Sequence[Shown] = (
    Shown((*DOT3, 2, 1, 3), COUNTER32, "fcs_errors"),
    Shown((*DOT3, 2, 1, 18), COUNTER32, "symbol_errors"),
    Shown((*DOT3, 10, 1, 1), INTEGER, 1),
    Shown((*DOT3, 10, 1, 2), INTEGER, 1),
    Shown((*DOT3, 10, 1, 3), COUNTER32, "receive_pause_frames"),
    Shown((*DOT3, 10, 1, 4), COUNTER32, "transmit_pause_frames"),
    Shown((*DOT3, 10, 1, 5), COUNTER64, "receive_pause_frames"),
    Shown((*DOT3, 10, 1, 6), COUNTER64, "transmit_pause_frames"),
    Shown((*DOT3, 11, 1, 2), COUNTER64, "fcs_errors"),
    Shown((*DOT3, 11, 1, 6), COUNTER64, "symbol_errors"),
)

_IEEE_PFC = (1, 3, 111, 2, 802, 1, 1, 21, 1, 1, 1)
IEEE_PFC: Sequence[Shown] = (
    Shown((*_IEEE_PFC, 1), GAUGE32, 0),
    Shown((*_IEEE_PFC, 2), COUNTER32, "transmit_pfc_frames"),
    Shown((*_IEEE_PFC, 3), COUNTER32, "receive_pfc_frames"),
)
"""IEEE8021-PFC-MIB: one row a port. Requests are frames sent, indications received."""

_ARISTA = (*_ENTERPRISES, 30065, 3)
ARISTA: Sequence[Shown] = (
    *ETHER_LIKE,
    *IEEE_PFC,
    Shown((*_ARISTA, 11, 1, 1, 1, 3), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    Shown((*_ARISTA, 11, 1, 1, 1, 4), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    Shown((*_ARISTA, 13, 1, 9, 1, 3), INTEGER, 1, PRIORITIES),
    Shown((*_ARISTA, 13, 1, 9, 1, 4), COUNTER64, "queue_ecn_marked_#", PRIORITIES),
    Shown((*_ARISTA, 6, 1, 1, 1, 3), COUNTER64, "ingress_discards_#", PRIORITIES),
    Shown((*_ARISTA, 6, 1, 2, 1, 4), COUNTER64, "queue_packets_#", PRIORITIES, after=(0,)),
    Shown((*_ARISTA, 6, 1, 2, 1, 5), COUNTER64, "queue_bytes_#", PRIORITIES, after=(0,)),
    Shown((*_ARISTA, 6, 1, 2, 1, 6), COUNTER64, "queue_discards_#", PRIORITIES, after=(0,)),
    Shown((*_ARISTA, 15, 1, 1, 1, 1), TIME_TICKS, "counted_at"),
)

_CISCO_PFC = (*_ENTERPRISES, 9, 9, 813, 1)
_CISCO_QOS = (*_ENTERPRISES, 9, 9, 580, 1, 5, 5, 1, 4)
CISCO_PFC: Sequence[Shown] = (
    Shown((*_CISCO_PFC, 2, 1, 2), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    Shown((*_CISCO_PFC, 2, 1, 3), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
)
SONIC: Sequence[Shown] = (
    *CISCO_PFC,
    # Of the sums by port SONiC shows priority 3 alone.
    Shown((*_CISCO_PFC, 1, 1, 1), COUNTER64, "transmit_pfc_frames_3"),
    Shown((*_CISCO_PFC, 1, 1, 2), COUNTER64, "receive_pfc_frames_3"),
    *(
        Shown(_CISCO_QOS, COUNTER64, what, PRIORITIES, first=1, before=(2,), after=(kind,))
        for kind, what in ((1, "queue_packets_#"), (2, "queue_bytes_#"), (5, "queue_discards_#"))
    ),
)
NXOS: Sequence[Shown] = (
    *ETHER_LIKE,
    *CISCO_PFC,
    Shown((*_CISCO_PFC, 1, 1, 1), COUNTER64, "transmit_pfc_frames"),
    Shown((*_CISCO_PFC, 1, 1, 2), COUNTER64, "receive_pfc_frames"),
    Shown((*_CISCO_PFC, 3, 1, 3), COUNTER64, 0, PRIORITIES),
    Shown((*_CISCO_PFC, 3, 1, 4), COUNTER64, 0, PRIORITIES),
    Shown((*_CISCO_PFC, 4, 1, 2), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES),
    Shown((*_CISCO_PFC, 4, 1, 3), COUNTER64, "transmit_pfc_microseconds_#", PRIORITIES),
)

_CUMULUS = (*_ENTERPRISES, 40310, 2)
CUMULUS: Sequence[Shown] = (
    Shown((*_CUMULUS, 2, 3, 1, 2), COUNTER64, "receive_pause_frames"),
    Shown((*_CUMULUS, 2, 3, 1, 3), COUNTER64, "transmit_pause_frames"),
    *(
        Shown((*_CUMULUS, 2, 3, 1, start + 2 * priority), COUNTER64, f"{way}_pfc_frames_{priority}")
        for priority in PRIORITIES
        for way, start in (("receive", 4), ("transmit", 5))
    ),
    Shown((*_CUMULUS, 1, 2, 1, 3), COUNTER64, "receive_discards"),
    Shown((*_CUMULUS, 1, 2, 1, 6), COUNTER64, "transmit_discards"),
)

_ONYX = (*_ENTERPRISES, 33049)
ONYX: Sequence[Shown] = (
    Shown((*_ONYX, 15, 1, 1, 1, 8), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 1, 1, 9), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES, divisor=1000),
    Shown((*_ONYX, 15, 1, 1, 1, 15), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 2, 1, 3), COUNTER64, "receive_pfc_frames_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 2, 1, 4), COUNTER64, "receive_pfc_microseconds_#", PRIORITIES, divisor=1000),
    Shown((*_ONYX, 15, 1, 2, 1, 5), COUNTER64, "transmit_pfc_frames_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 2, 1, 6), COUNTER64, "transmit_pfc_microseconds_#", PRIORITIES, divisor=1000),
    Shown((*_ONYX, 15, 1, 3, 1, 5), COUNTER64, "ingress_depth_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 3, 1, 6), COUNTER64, "ingress_discards_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 3, 1, 7), COUNTER64, 0, PRIORITIES),
    Shown((*_ONYX, 15, 1, 4, 1, 3), COUNTER64, "queue_packets_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 4, 1, 4), COUNTER64, "queue_bytes_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 4, 1, 6), COUNTER64, "queue_depth_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 4, 1, 8), COUNTER64, "queue_full_discards_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 4, 1, 9), COUNTER64, "queue_early_discards_#", PRIORITIES),
    Shown((*_ONYX, 15, 1, 5, 1, 2), COUNTER64, "receive_pause_frames"),
    Shown((*_ONYX, 15, 1, 5, 1, 3), COUNTER64, "transmit_pause_frames"),
    Shown((*_ONYX, 3, 1, 1, 1, 6), COUNTER64, "symbol_errors"),
    Shown((*_ONYX, 3, 1, 1, 1, 21), COUNTER64, "fcs_errors"),
)

_JUNIPER_COS = (*_ENTERPRISES, 2636, 3, 15, 4, 1)
JUNOS: Sequence[Shown] = (
    *ETHER_LIKE,
    Shown((*_JUNIPER_COS, 7), COUNTER64, "queue_packets_#", PRIORITIES),
    Shown((*_JUNIPER_COS, 9), COUNTER64, "queue_bytes_#", PRIORITIES),
    Shown((*_JUNIPER_COS, 11), COUNTER64, "queue_full_discards_#", PRIORITIES),
    Shown((*_JUNIPER_COS, 13), COUNTER64, "queue_early_discards_#", PRIORITIES),
    Shown((*_JUNIPER_COS, 58), COUNTER64, "queue_depth_#", PRIORITIES),
    Shown((*_JUNIPER_COS, 59), COUNTER64, "queue_highest_depth_#", PRIORITIES),
)

KINDS: Mapping[str, Kind] = {
    "generic": Kind(
        "Simulated switch",
        (2, 999, 1),  # the arc for examples: no vendor's
        "Ethernet1/{n}",
        (1, 1),
        (*ETHER_LIKE, *IEEE_PFC),
        lldp_by_index=False,
        optics="lanes",
    ),
    "arista": Kind(
        "Arista Networks EOS version 4.31.2F running on an Arista Networks DCS-7060X5-64S",
        (*_ENTERPRISES, 30065, 1, 3011, 7060, 64),
        "Ethernet{n}/1",
        (1, 4),
        ARISTA,
        optics="entity",
    ),
    "sonic": Kind(
        "SONiC Software Version: SONiC.202405.1 - HwSku: Simulated-64x400 - Distribution: Debian 12.5 - Kernel: 6.1.0",
        (*_ENTERPRISES, 8072, 3, 2, 10),
        "Ethernet{lane}",
        (1, 4),
        SONIC,
        optics="lanes",
    ),
    "cumulus": Kind(
        "Cumulus-Linux 5.9.2 (Linux Kernel 6.1.94-1+cl5.9.2u6)",
        (*_ENTERPRISES, 40310),
        "swp{n}",
        (3, 1),
        CUMULUS,
    ),
    "onyx": Kind(
        "Mellanox MSN4700,Onyx,SWv3.10.4302",
        (*_ENTERPRISES, 33049, 1, 1, 1, 4700),
        "Eth1/{n}",
        (1, 1),
        ONYX,
    ),
    "nxos": Kind(
        "Cisco NX-OS(tm) nxos64-cs.10.3.4a.M.bin, Software (nxos64-cs), Version 10.3(4a), RELEASE SOFTWARE",
        (*_ENTERPRISES, 9, 12, 3, 1, 3, 2495),
        "Ethernet1/{n}",
        (436207616, 4096),
        NXOS,
        optics="cisco",
    ),
    "junos": Kind(
        "Juniper Networks, Inc. qfx5230-64cd Ethernet Switch, kernel JUNOS 23.4R1, Build date: 2023-12-14",
        (*_ENTERPRISES, 2636, 1, 1, 1, 4, 82, 30),
        "et-0/0/{z}",
        (501, 1),
        JUNOS,
        optics="junos",
    ),
}
"""By name. Of Cumulus and Onyx the SNMP agents show no optics."""
