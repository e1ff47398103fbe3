"""Attributes of performance management: what a port counts. Bytes in, values out.

Each takes the bytes from the attribute's begin on and gives raw numbers; data is counted in words of four bytes.
Layouts: InfiniBand Architecture Specification, volume 1, §16.1.3, and annexes for Reed-Solomon and 64-bit errors.
"""

import struct
from typing import NamedTuple

WORD = 4
"""Bytes that the counters of data count as one."""

EXTENDED_WIDTH = 1 << 9
"""Bit of the capability mask: there is PortCountersExtended, with all its counters."""

EXTENDED_WIDTH_NO_CASTS = 1 << 10
"""Bit of the capability mask: there is PortCountersExtended, without unicast and multicast packets."""

TRANSMIT_WAIT = 1 << 12
"""Bit of the capability mask: PortXmitWait is counted."""

RS_FEC = 1 << 14
"""Bit of the capability mask: blocks of Reed-Solomon's forward error correction are counted."""

EXTENDED_ERRORS = 1 << 1
"""Bit of the second capability mask: PortCountersExtended has all of PortCounters too, in 64 bits."""

WIDTHS = {
    "symbol_errors": 16,
    "link_error_recovery": 8,
    "link_down": 8,
    "receive_errors": 16,
    "receive_remote_physical_errors": 16,
    "receive_switch_relay_errors": 16,
    "transmit_discards": 16,
    "transmit_constraint_errors": 8,
    "receive_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "vl15_dropped": 16,
    "transmit_wait": 32,
}
"""Bits of the error counters of PortCounters, all of which stick at their top."""

ERRORS = tuple(WIDTHS)
"""The order in which they are given."""

TRAFFIC = (
    "transmit_words",
    "receive_words",
    "transmit_packets",
    "receive_packets",
    "transmit_unicast_packets",
    "receive_unicast_packets",
    "transmit_multicast_packets",
    "receive_multicast_packets",
)
"""The order in which traffic is given; PortCounters has the first four alone."""

RECEIVE_ERRORS = (
    "local_physical_errors",
    "malformed_packet_errors",
    "buffer_overrun_errors",
    "dlid_mapping_errors",
    "vl_mapping_errors",
    "looping_errors",
)
DISCARDS = ("inactive_discards", "neighbor_mtu_discards", "lifetime_limit_discards", "hoq_lifetime_limit_discards")
"""Of PortRcvErrorDetails and PortXmitDiscardDetails: 16 bits each, which stick at their top."""

_CLASS = struct.Struct(">BBHI")
_COUNTERS = struct.Struct(">xBHHBBHHHHBBBBHHIIIII")
_EXTENDED = struct.Struct(">8x8Q")
_EXTENDED_ERRORS = struct.Struct(">72x13Q")
_SIX = struct.Struct(">4x6H")
_FOUR = struct.Struct(">4x4H")
_LANES = struct.Struct(">44x12I12I")
_BLOCKS = struct.Struct(">140xII")
_BY_SL = struct.Struct(">4x16I")


class Capabilities(NamedTuple):
    """What a node's performance management can do: the two masks of ClassPortInfo."""

    mask: int
    mask_2: int

    @property
    def has_extended(self) -> bool:
        """Tell whether there is PortCountersExtended."""
        return bool(self.mask & (EXTENDED_WIDTH | EXTENDED_WIDTH_NO_CASTS))

    @property
    def has_casts(self) -> bool:
        """Tell whether it tells unicast from multicast packets."""
        return bool(self.mask & EXTENDED_WIDTH)

    @property
    def has_extended_errors(self) -> bool:
        """Tell whether errors are there in 64 bits too."""
        return self.has_extended and bool(self.mask_2 & EXTENDED_ERRORS)

    @property
    def has_wait(self) -> bool:
        """Tell whether the time that a port could not send is counted."""
        return bool(self.mask & TRANSMIT_WAIT)

    @property
    def has_rs_fec(self) -> bool:
        """Tell whether blocks of Reed-Solomon are counted."""
        return bool(self.mask & RS_FEC)


def capabilities(data: bytes) -> Capabilities:
    """Read ClassPortInfo."""
    _, _, mask, mask_2 = _CLASS.unpack_from(data)
    return Capabilities(mask, mask_2 >> 5)


def port_counters(data: bytes) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Read PortCounters: the port it is of, its errors in the order of ERRORS, and the first four of TRAFFIC."""
    (port, _, symbols, recovery, downed, received, remote, relay, discards, out, into, _, both, _, vl15, *traffic) = (
        _COUNTERS.unpack_from(data)
    )
    errors = (symbols, recovery, downed, received, remote, relay, discards, out, into, both >> 4, both & 15, vl15)
    return port, (*errors, traffic.pop()), tuple(traffic)


def extended(data: bytes) -> tuple[int, tuple[int, ...]]:
    """Read PortCountersExtended: the port it is of, and TRAFFIC."""
    return data[1], _EXTENDED.unpack_from(data)


def extended_errors(data: bytes) -> tuple[int, ...]:
    """Read the errors of PortCountersExtended, in the order of ERRORS and of 64 bits."""
    return _EXTENDED_ERRORS.unpack_from(data)


def receive_error_details(data: bytes) -> tuple[int, ...]:
    """Read PortRcvErrorDetails, in the order of RECEIVE_ERRORS."""
    return _SIX.unpack_from(data)


def transmit_discard_details(data: bytes) -> tuple[int, ...]:
    """Read PortXmitDiscardDetails, in the order of DISCARDS."""
    return _FOUR.unpack_from(data)


def fec_blocks(data: bytes, *, reed_solomon: bool) -> tuple[int, int]:
    """Read PortExtendedSpeedsCounters: blocks that were corrected, and that could not be, of all lanes.

    Args:
        data: The attribute.
        reed_solomon: Whether that is what the link runs: its blocks are counted by the port, others by the lane.
    """
    if reed_solomon:
        return _BLOCKS.unpack_from(data)
    lanes = _LANES.unpack_from(data)
    return sum(lanes[:12]), sum(lanes[12:])


def words_by_sl(data: bytes) -> tuple[int, ...]:
    """Read PortXmitDataSL or PortRcvDataSL: words of each of the 16 service levels."""
    return _BY_SL.unpack_from(data)
