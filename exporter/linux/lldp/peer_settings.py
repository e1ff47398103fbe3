"""Parser of the settings of a port that its LLDP neighbour announces.

DCBX (IEEE 802.1Qaz, in IEEE 802.1Q annex D): ETS Configuration, ETS Recommendation, Priority-based Flow Control
Configuration and Application Priority; and Maximum Frame Size (IEEE 802.3 clause 79). All are organizationally specific
TLVs: three bytes of OUI, one of subtype, and the information. The older DCBX of converged enhanced Ethernet (CEE) has
other TLVs, which are not parsed.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from exporter.linux.netlink.data_center_bridging import transmission_selection

ORGANIZATIONALLY_SPECIFIC = 127
"""Type of these TLVs."""

SELECTORS = MappingProxyType({1: "ethertype", 2: "tcp", 3: "udp", 4: "any"})
"""Selector of an application entry to what its Protocol ID is: an EtherType, a port of TCP or SCTP, of UDP or DCCP, or
of any of these."""

MAX_APPLICATIONS = 32
"""Application entries that are kept, beside those of DSCPs; further ones are skipped."""

_OUI_8021, _OUI_8023 = bytes.fromhex("0080c2"), bytes.fromhex("00120f")
_ETS_CONFIGURATION, _ETS_RECOMMENDATION, _PFC, _APPLICATIONS = ((_OUI_8021, subtype) for subtype in (9, 10, 11, 12))
_MAX_FRAME = (_OUI_8023, 4)

_KEY_SIZE = 4  # OUI and subtype
_ETS_TABLES = struct.Struct(">xI8s8s")  # flags, priority assignment, bandwidth, transmission selection algorithm
_PFC_TABLES = struct.Struct(">BB")  # flags, priorities
_APPLICATION = struct.Struct(">BH")  # priority and selector, protocol
_U16 = struct.Struct(">H")

_WILLING = 0x80
_SELECTOR_DSCP = 5
_DSCPS = 64

_Tlvs: TypeAlias = dict[tuple[bytes, int], bytes]


@dataclass(frozen=True, slots=True)
class Ets:
    """Enhanced Transmission Selection.

    Attributes:
        classes: The transmission selection of each of 8 traffic classes, as in `Dcb`.
        priority_classes: The traffic class of each of 8 priorities.
    """

    classes: tuple[int | str, ...]
    priority_classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The settings that a neighbour announces; None and empty where its TLV is absent or malformed.

    Attributes:
        pfc: Its priorities with priority flow control.
        pfc_willing: Whether it takes over the priorities that this port announces.
        ets: Its ETS configuration.
        ets_willing: Whether it takes over the ETS that this port recommends.
        recommended_ets: The ETS that it recommends to this port.
        dscps: The priority of each DSCP that has an entry; None without the TLV.
        applications: (selector, protocol, priority) of the other entries; the selector is a value of SELECTORS.
        max_frame: Octets of the longest frame that it supports, MAC header and FCS included.
    """

    pfc: tuple[int, ...] | None = None
    pfc_willing: bool | None = None
    ets: Ets | None = None
    ets_willing: bool | None = None
    recommended_ets: Ets | None = None
    dscps: tuple[tuple[int, int], ...] | None = None
    applications: tuple[tuple[str, int, int], ...] | None = None
    max_frame: int | None = None


NO_SETTINGS = PeerSettings()
"""Those of a neighbour that announces none."""


def parse_peer_settings(contents: Iterable[bytes]) -> PeerSettings:
    """Parse the contents of organizationally specific TLVs, OUI included; never raises, whatever they contain.

    The first TLV of each subtype is used.
    """
    found: _Tlvs = {}
    for content in contents:
        if len(content) >= _KEY_SIZE:
            found.setdefault((content[:3], content[3]), content[_KEY_SIZE:])
    pfc, pfc_willing = _parse_pfc(found)
    ets_flags = found.get(_ETS_CONFIGURATION, b"")
    ets = _parse_ets(ets_flags)
    dscps, applications = _parse_applications(found)
    size = found.get(_MAX_FRAME, b"")
    return PeerSettings(
        pfc,
        pfc_willing,
        ets,
        None if ets is None else bool(ets_flags[0] & _WILLING),
        _parse_ets(found.get(_ETS_RECOMMENDATION, b"")),
        dscps,
        applications,
        _U16.unpack_from(size)[0] if len(size) >= _U16.size else None,
    )


def _parse_pfc(found: _Tlvs) -> tuple[tuple[int, ...] | None, bool | None]:
    """Return the priorities, of which bit 0 is the lowest, and whether the peer is willing."""
    content = found.get(_PFC, b"")
    if len(content) < _PFC_TABLES.size:
        return None, None
    flags, mask = _PFC_TABLES.unpack_from(content)
    return tuple(priority for priority in range(8) if mask >> priority & 1), bool(flags & _WILLING)


def _parse_ets(content: bytes) -> Ets | None:
    """Parse either of the TLVs of ETS; priority 0 is in the four highest bits of the priority assignment table."""
    if len(content) < _ETS_TABLES.size:
        return None
    assignment, shares, algorithms = _ETS_TABLES.unpack_from(content)
    return Ets(
        tuple(map(transmission_selection, shares, algorithms)),
        tuple(assignment >> shift & 0xF for shift in range(28, -1, -4)),
    )


def _parse_applications(
    found: _Tlvs,
) -> tuple[tuple[tuple[int, int], ...] | None, tuple[tuple[str, int, int], ...] | None]:
    """Return the priorities of DSCPs, sorted, and the other entries of the application table."""
    content = found.get(_APPLICATIONS, b"")
    if not content:
        return None, None
    dscps: dict[int, int] = {}
    others: dict[tuple[str, int, int], None] = {}
    whole = (len(content) - 1) // _APPLICATION.size * _APPLICATION.size
    for head, protocol in _APPLICATION.iter_unpack(content[1 : 1 + whole]):  # the first byte is reserved
        priority, selector = head >> 5, head & 0x07
        if selector == _SELECTOR_DSCP and protocol < _DSCPS:
            dscps.setdefault(protocol, priority)
        elif selector in SELECTORS and len(others) < MAX_APPLICATIONS:
            others[SELECTORS[selector], protocol, priority] = None
    return tuple(sorted(dscps.items())), tuple(others)
