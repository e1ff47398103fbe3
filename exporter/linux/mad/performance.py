"""Attributes of performance management (PMA): counters of a port, from bytes to raw numbers.

Each parser gets the bytes from the start of the attribute. PortXmitData and PortRcvData count octets divided by 4.
Layouts: InfiniBand Architecture Specification, volume 1, sections 16.1.3 and 16.1.4, with the annexes for RS-FEC and
64-bit error counters.
"""

import struct
from types import MappingProxyType
from typing import NamedTuple

OCTETS_PER_WORD = 4
"""Octets that data counters count as one."""

EXTENDED_WIDTH = 1 << 9
"""Bit of CapabilityMask: PortCountersExtended is supported, with all its counters."""

EXTENDED_WIDTH_NO_IETF = 1 << 10
"""Bit of CapabilityMask: PortCountersExtended is supported, without unicast and multicast packets."""

XMIT_WAIT = 1 << 12
"""Bit of CapabilityMask: PortXmitWait is supported."""

RS_FEC = 1 << 14
"""Bit of CapabilityMask: RS-FEC blocks are counted per port."""

EXTENDED_ERRORS = 1 << 1
"""Bit of CapabilityMask2: PortCountersExtended has the error counters of PortCounters too, in 64 bits."""

ERROR_COUNTER_BITS = MappingProxyType(
    {
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
)
"""Width of the error counters of PortCounters; all of them stop at their maximum."""

ERROR_COUNTERS = tuple(ERROR_COUNTER_BITS)
"""Order of parsed error counters."""

TRAFFIC_COUNTERS = (
    "transmit_words",
    "receive_words",
    "transmit_packets",
    "receive_packets",
    "transmit_unicast_packets",
    "receive_unicast_packets",
    "transmit_multicast_packets",
    "receive_multicast_packets",
)
"""Order of parsed traffic counters; PortCounters has the first four only."""

RECEIVE_ERROR_DETAILS = (
    "local_physical_errors",
    "malformed_packet_errors",
    "buffer_overrun_errors",
    "dlid_mapping_errors",
    "vl_mapping_errors",
    "looping_errors",
)
DISCARD_DETAILS = (
    "inactive_discards",
    "neighbor_mtu_discards",
    "lifetime_limit_discards",
    "hoq_lifetime_limit_discards",
)
"""Order of the counters of PortRcvErrorDetails and PortXmitDiscardDetails: 16 bits each, stopping at the maximum."""

_CLASS_PORT_INFO = struct.Struct(">BBHI")
_PORT_COUNTERS = struct.Struct(">xBHHBBHHHHBBBBHHIIIII")
_EXTENDED = struct.Struct(">8x8Q")
_EXTENDED_ERRORS = struct.Struct(">72x13Q")
_RCV_ERROR_DETAILS = struct.Struct(">4x6H")
_XMIT_DISCARD_DETAILS = struct.Struct(">4x4H")
_FEC_LANES = struct.Struct(">44x12I12I")
_RS_FEC_BLOCKS = struct.Struct(">140xII")
_DATA_SL = struct.Struct(">4x16I")


class PmaCapabilities(NamedTuple):
    """CapabilityMask and CapabilityMask2 of the ClassPortInfo of performance management."""

    mask: int
    mask_2: int

    @property
    def has_extended_counters(self) -> bool:
        """Whether PortCountersExtended is supported."""
        return bool(self.mask & (EXTENDED_WIDTH | EXTENDED_WIDTH_NO_IETF))

    @property
    def has_unicast_multicast(self) -> bool:
        """Whether PortCountersExtended counts unicast and multicast packets separately."""
        return bool(self.mask & EXTENDED_WIDTH)

    @property
    def has_extended_errors(self) -> bool:
        """Whether PortCountersExtended has 64-bit error counters."""
        return self.has_extended_counters and bool(self.mask_2 & EXTENDED_ERRORS)

    @property
    def has_xmit_wait(self) -> bool:
        """Whether PortXmitWait is supported."""
        return bool(self.mask & XMIT_WAIT)

    @property
    def has_rs_fec(self) -> bool:
        """Whether RS-FEC blocks are counted per port."""
        return bool(self.mask & RS_FEC)


def parse_class_port_info(data: bytes) -> PmaCapabilities:
    """Parse the capability masks of ClassPortInfo."""
    _, _, mask, mask_2 = _CLASS_PORT_INFO.unpack_from(data)
    return PmaCapabilities(mask, mask_2 >> 5)


def parse_port_counters(data: bytes) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Parse PortCounters: PortSelect, ERROR_COUNTERS, and the first four of TRAFFIC_COUNTERS."""
    (port, _, symbols, recovery, downed, received, remote, relay, discards, out, into, _, both, _, vl15, *traffic) = (
        _PORT_COUNTERS.unpack_from(data)
    )
    errors = (symbols, recovery, downed, received, remote, relay, discards, out, into, both >> 4, both & 15, vl15)
    return port, (*errors, traffic.pop()), tuple(traffic)


def parse_port_counters_extended(data: bytes) -> tuple[int, tuple[int, ...]]:
    """Parse PortCountersExtended: PortSelect and TRAFFIC_COUNTERS."""
    return data[1], _EXTENDED.unpack_from(data)


def parse_extended_errors(data: bytes) -> tuple[int, ...]:
    """Parse the 64-bit error counters of PortCountersExtended, in the order of ERROR_COUNTERS."""
    return _EXTENDED_ERRORS.unpack_from(data)


def parse_receive_error_details(data: bytes) -> tuple[int, ...]:
    """Parse PortRcvErrorDetails, in the order of RECEIVE_ERROR_DETAILS."""
    return _RCV_ERROR_DETAILS.unpack_from(data)


def parse_discard_details(data: bytes) -> tuple[int, ...]:
    """Parse PortXmitDiscardDetails, in the order of DISCARD_DETAILS."""
    return _XMIT_DISCARD_DETAILS.unpack_from(data)


def parse_fec_blocks(data: bytes, *, rs_fec: bool) -> tuple[int, int]:
    """Parse PortExtendedSpeedsCounters: corrected and uncorrectable FEC blocks of all lanes.

    Args:
        data: The attribute.
        rs_fec: Whether the link uses RS-FEC, whose blocks are counted per port; others are counted per lane.
    """
    if rs_fec:
        return _RS_FEC_BLOCKS.unpack_from(data)
    lanes = _FEC_LANES.unpack_from(data)
    return sum(lanes[:12]), sum(lanes[12:])


def parse_data_by_sl(data: bytes) -> tuple[int, ...]:
    """Parse PortXmitDataSL or PortRcvDataSL: octets divided by 4, of each of the 16 service levels."""
    return _DATA_SL.unpack_from(data)
