"""Attributes of subnet management (SMA): nodes, ports and subnet managers, from bytes to values.

Each parser gets the bytes from the start of the attribute. Layouts: InfiniBand Architecture Specification, volume 1,
section 14.2.5, with the extended speeds up to XDR.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

CHANNEL_ADAPTER, SWITCH, ROUTER = 1, 2, 3
"""NodeType."""

DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER = 1, 2, 3, 4, 5
"""PortState."""

LINK_UP = 5
"""PortPhysicalState of a port whose link is trained."""

LANES_BY_WIDTH: Mapping[int, int] = MappingProxyType({1: 1, 2: 4, 4: 8, 8: 12, 16: 2})
"""Lanes by the code of LinkWidthActive; LinkWidthSupported is a mask of these codes."""

LANE_GBITS: Mapping[str, float] = MappingProxyType(
    {
        "SDR": 2.5,
        "DDR": 5,
        "QDR": 10,
        "FDR10": 10,
        "FDR": 14,
        "EDR": 25,
        "HDR": 50,
        "NDR": 100,
        "XDR": 200,
    }
)
"""Speed of a lane in Gb/s by generation, slowest first, with the values of the kernel's `rate` attribute."""

_GENERATION_ORDER = tuple(LANE_GBITS)

_SPEEDS = MappingProxyType({1: "SDR", 2: "DDR", 4: "QDR"})
_EXTENDED = MappingProxyType({1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"})
_EXTENDED_2 = MappingProxyType({1: "XDR"})

EXTENDED_GENERATIONS = frozenset({"FDR", "EDR", "HDR", "NDR", "XDR"})
"""Generations with forward error correction, whose blocks are counted."""

MIN_RS_FEC_MODE = 2
"""FECModeActive from which on the mode is Reed-Solomon FEC."""

EXTENDED_SPEEDS = 1 << 14
"""Bit of PortInfo CapabilityMask: extended speeds are supported."""

IS_SM = 1 << 1
"""Bit of PortInfo CapabilityMask: a subnet manager runs at the port."""

HAS_CAPABILITY_MASK_2 = 1 << 15
HAS_EXTENDED_INFO = 1 << 1
"""Bits of PortInfo CapabilityMask and CapabilityMask2: CapabilityMask2 is valid; PortInfoExtended is supported."""

_NODE_INFO = struct.Struct(">BBBBQQQHHIB3s")
_PORT_INFO = struct.Struct(">QQHHIHHBBBBBBBBB")
_EXTENDED_SPEEDS = struct.Struct(">HBx")
_SM_INFO = struct.Struct(">QQIB")
_VENDOR_PORT_INFO = struct.Struct(">3xB3xB3xB3xB")


class NodeInfo(NamedTuple):
    """NodeInfo.

    Attributes:
        node_type: NodeType: CHANNEL_ADAPTER, SWITCH or ROUTER.
        num_ports: NumPorts, physical ports.
        system_guid: SystemImageGUID: of the chassis, or of all planes of one adapter.
        guid: NodeGUID.
        port_guid: PortGUID of the port that received the request.
        device: DeviceID.
        revision: Revision.
        local_port: LocalPortNum: the port that received the request.
        vendor: VendorID.
    """

    node_type: int
    num_ports: int
    system_guid: int
    guid: int
    port_guid: int
    device: int
    revision: int
    local_port: int
    vendor: int


def parse_node_info(data: bytes) -> NodeInfo:
    """Parse NodeInfo."""
    _, _, node_type, ports, system, guid, port_guid, _, device, revision, port, vendor = _NODE_INFO.unpack_from(data)
    return NodeInfo(node_type, ports, system, guid, port_guid, device, revision, port, int.from_bytes(vendor))


def parse_node_description(data: bytes) -> str:
    """Parse NodeDescription: without padding, each run of white space replaced by one space."""
    text = data[:64].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    return " ".join(text.split())


CapabilityMasks: TypeAlias = tuple[int, int]
"""CapabilityMask and CapabilityMask2."""

ASSUMED_MASKS: CapabilityMasks = (EXTENDED_SPEEDS | HAS_CAPABILITY_MASK_2, 0)
"""Masks of a switch whose port 0 was not read: extended speeds are assumed to be valid."""


class PortInfo(NamedTuple):
    """PortInfo.

    Attributes:
        lid: LID of the port; at port 0 of a switch that of the switch. 0 while none is assigned.
        sm_lid: MasterSMLID.
        gid_prefix: GidPrefix of the subnet.
        capabilities: CapabilityMask.
        capabilities_2: CapabilityMask2; 0 where it is not valid.
        state: PortState.
        physical_state: PortPhysicalState.
        m_key_protect: M_KeyProtectBits: from level 2 on requests without the M_Key are dropped without a response.
        lanes: LinkWidthActive in lanes; None where unknown.
        generation: Active speed, a key of LANE_GBITS; None where unknown.
        lanes_supported: LinkWidthSupported in lanes.
        generations_supported: Supported speeds.
    """

    lid: int
    sm_lid: int
    gid_prefix: int
    capabilities: int
    capabilities_2: int
    state: int
    physical_state: int
    m_key_protect: int
    lanes: int | None
    generation: str | None
    lanes_supported: frozenset[int]
    generations_supported: frozenset[str]

    @property
    def is_trained(self) -> bool:
        """Whether the physical link is up."""
        return self.physical_state == LINK_UP or self.state >= INIT


def parse_port_info(data: bytes, masks: CapabilityMasks | None = None) -> PortInfo:
    """Parse PortInfo.

    Args:
        data: The attribute.
        masks: Capability masks that apply to the port, where its own attribute has none: those of port 0 for the
            external ports of a switch.
    """
    _, prefix, lid, sm_lid, capabilities, *_, widths, width, b32, b33, b34, b35, _ = _PORT_INFO.unpack_from(data)
    capabilities_2, extended = _EXTENDED_SPEEDS.unpack_from(data, 60)
    if masks is not None:
        capabilities, capabilities_2 = masks
    elif not capabilities & HAS_CAPABILITY_MASK_2:
        capabilities_2 = 0
    extended_2 = data[56]
    if not capabilities & EXTENDED_SPEEDS:
        extended = extended_2 = 0  # the fields are reserved then
    codes = (extended_2 >> 5 & 3, extended >> 4, b35 >> 4)
    tables = (_EXTENDED_2, _EXTENDED, _SPEEDS)
    active = next((table.get(code) for code, table in zip(codes, tables, strict=True) if code), None)
    return PortInfo(
        lid,
        sm_lid,
        prefix,
        capabilities,
        capabilities_2,
        b32 & 15,
        b33 >> 4,
        b34 >> 6,
        LANES_BY_WIDTH.get(width),
        active,
        _lanes_in(widths),
        _generations_in(b32 >> 4, extended & 15, extended_2 >> 3 & 3),
    )


@lru_cache(maxsize=1024)  # as many as there are arguments of 4, 4 and 2 bits; thousands of ports have the same
def _generations_in(speeds: int, extended: int, extended_2: int) -> frozenset[str]:
    masks = ((speeds, _SPEEDS), (extended, _EXTENDED), (extended_2, _EXTENDED_2))
    return frozenset(name for mask, codes in masks for code, name in codes.items() if mask & code)


@lru_cache(maxsize=256)  # as many as a byte has values
def _lanes_in(mask: int) -> frozenset[int]:
    return frozenset(lanes for code, lanes in LANES_BY_WIDTH.items() if mask & code)


def parse_vendor_port_info(data: bytes) -> tuple[bool, bool]:
    """Parse Mellanox's vendor-specific ExtendedPortInfo: whether FDR10 is supported, and whether it is active."""
    _, supported, _, active = _VENDOR_PORT_INFO.unpack_from(data)
    return bool(supported & 1), bool(active & 1)


def parse_fec_mode(data: bytes) -> int | None:
    """Parse FECModeActive of PortInfoExtended: 0 no FEC, 1 Fire Code, above Reed-Solomon; None if unsupported."""
    capabilities, active = struct.unpack_from(">IH", data)
    return int(active) if capabilities & 1 else None


def has_enhanced_port_0(data: bytes) -> bool:
    """Parse EnhancedPort0 of SwitchInfo: whether port 0 has counters."""
    return bool(data[16] & 0x08)


class SmInfo(NamedTuple):
    """SMInfo.

    Attributes:
        guid: PortGUID of the subnet manager's port.
        activity: ActCount, which increments while the subnet manager is alive.
        priority: From 0 to 15; the subnet manager with the highest priority becomes master.
        state: SMState: 0 not active, 1 discovering, 2 standby, 3 master.
    """

    guid: int
    activity: int
    priority: int
    state: int


def parse_sm_info(data: bytes) -> SmInfo:
    """Parse SMInfo."""
    guid, _, activity, both = _SM_INFO.unpack_from(data)
    return SmInfo(guid, activity, both >> 4, both & 15)


def link_speed(generation: str | None, lanes: int | None) -> float | None:
    """Return the speed of a link in bytes per second; None where generation or width is unknown."""
    if generation is None or lanes is None:
        return None
    return LANE_GBITS[generation] * lanes * 1e9 / 8


def fastest_generation(generations: frozenset[str]) -> str | None:
    """Return the fastest of the given generations; None for an empty set."""
    return max(generations, key=_GENERATION_ORDER.index, default=None)
