"""Attributes of subnet management: what a node is, and how its ports and links are. Bytes in, values out.

Each takes the bytes from the attribute's begin on. Layouts: InfiniBand Architecture Specification, volume 1, §14.2.5,
with the extended speeds up to XDR.
"""

import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

CHANNEL_ADAPTER, SWITCH, ROUTER = 1, 2, 3
"""Types of nodes."""

DOWN, INIT, ARMED, ACTIVE, DEFERRED = 1, 2, 3, 4, 5
"""Logical states of ports."""

LINK_UP = 5
"""Physical state of a port whose link is trained."""

LANES: Mapping[int, int] = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
"""Lanes by the code of a link's width; several codes added up where widths are supported."""

GBITS_A_LANE: Mapping[str, float] = {
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
"""Speed of a lane by generation, from slow to fast, as the kernel's `rate` has it."""

_ORDER = tuple(GBITS_A_LANE)

_SPEEDS = {1: "SDR", 2: "DDR", 4: "QDR"}
_EXTENDED = {1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"}
_EXTENDED_2 = {1: "XDR"}

EXTENDED_GENERATIONS = frozenset({"FDR", "EDR", "HDR", "NDR", "XDR"})
"""Those with forward error correction, whose blocks are counted."""

REED_SOLOMON = 2
"""Mode of forward error correction from which on it is of Reed and Solomon."""

EXTENDED_SPEEDS = 1 << 14
"""Bit of PortInfo's capability mask: there are extended speeds."""

IS_SM = 1 << 1
"""Bit of PortInfo's capability mask: a subnet manager runs here."""

HAS_MASK_2 = 1 << 15
HAS_EXTENDED_INFO = 1 << 1
"""Bits of PortInfo's two capability masks: there is a second one; PortInfoExtended can be asked for."""

_NODE_INFO = struct.Struct(">BBBBQQQHHIB3s")
_PORT_INFO = struct.Struct(">QQHHIHHBBBBBBBBB")
_MORE_SPEEDS = struct.Struct(">HBx")
_SM_INFO = struct.Struct(">QQIB")
_VENDOR = struct.Struct(">3xB3xB3xB3xB")


class NodeInfo(NamedTuple):
    """What a node is.

    Attributes:
        kind: Its type.
        ports: Number of its physical ports.
        system_guid: Of the chassis, or of all planes of one adapter.
        guid: Of the node.
        port_guid: Of the port that answered.
        device: Number that its vendor gave the device.
        revision: Of the device.
        local_port: Number of the port that the question came in by.
        vendor: The vendor's number.
    """

    kind: int
    ports: int
    system_guid: int
    guid: int
    port_guid: int
    device: int
    revision: int
    local_port: int
    vendor: int


def node_info(data: bytes) -> NodeInfo:
    """Read NodeInfo."""
    _, _, kind, ports, system, guid, port_guid, _, device, revision, port, vendor = _NODE_INFO.unpack_from(data)
    return NodeInfo(kind, ports, system, guid, port_guid, device, revision, port, int.from_bytes(vendor))


def node_description(data: bytes) -> str:
    """Read NodeDescription, tidied: without the padding, and with one blank for each run of them."""
    text = data[:64].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    return " ".join(text.split())


Masks: TypeAlias = tuple[int, int]
"""Both masks of a port's capabilities."""

TRUSTING: Masks = (EXTENDED_SPEEDS | HAS_MASK_2, 0)
"""Those of a switch whose port 0 has not told them: what stands in the place of extended speeds is taken for such."""


class PortInfo(NamedTuple):
    """How a port is.

    Attributes:
        lid: Of the port; of a switch's port 0 that of the switch. 0 while it has none.
        sm_lid: Of the subnet manager that it obeys.
        gid_prefix: Of the subnet.
        capabilities: Mask, and `capabilities_2` the second one where the first says that there is one, else 0.
        state: Logical state.
        physical_state: Physical state.
        protect: Level of protection by the M_Key: from 2 on what comes without it is dropped in silence.
        lmc: Bits of the LID that choose a path.
        lanes: Of the link; None where unknown.
        generation: Of the link, a key of GBITS_A_LANE; None where unknown.
        lanes_supported: What the port can do.
        generations_supported: What the port can do.
    """

    lid: int
    sm_lid: int
    gid_prefix: int
    capabilities: int
    capabilities_2: int
    state: int
    physical_state: int
    protect: int
    lmc: int
    lanes: int | None
    generation: str | None
    lanes_supported: frozenset[int]
    generations_supported: frozenset[str]

    @property
    def is_trained(self) -> bool:
        """Tell whether there is somebody at the other end."""
        return self.physical_state == LINK_UP or self.state >= INIT


def port_info(data: bytes, masks: Masks | None = None) -> PortInfo:
    """Read PortInfo.

    Args:
        data: The attribute.
        masks: The masks of capabilities that hold for the port, where they do not stand in its own attribute: those of
            port 0 for the other ports of a switch.
    """
    _, prefix, lid, sm_lid, capabilities, *_, widths, width, b32, b33, b34, b35, _ = _PORT_INFO.unpack_from(data)
    capabilities_2, extended = _MORE_SPEEDS.unpack_from(data, 60)
    if masks is not None:
        capabilities, capabilities_2 = masks
    elif not capabilities & HAS_MASK_2:
        capabilities_2 = 0
    extended_2 = data[56]
    if not capabilities & EXTENDED_SPEEDS:
        extended = extended_2 = 0  # what stands there means nothing
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
        b34 & 7,
        LANES.get(width),
        active,
        _lanes(widths),
        _generations(b32 >> 4, extended & 15, extended_2 >> 3 & 3),
    )


@cache
def _generations(speeds: int, extended: int, extended_2: int) -> frozenset[str]:
    """Give the generations of the masks of what is supported; kept, as thousands of ports have the same."""
    masks = ((speeds, _SPEEDS), (extended, _EXTENDED), (extended_2, _EXTENDED_2))
    return frozenset(name for mask, codes in masks for code, name in codes.items() if mask & code)


@cache
def _lanes(mask: int) -> frozenset[int]:
    return frozenset(lanes for code, lanes in LANES.items() if mask & code)


def fdr10(data: bytes) -> tuple[bool, bool]:
    """Read Mellanox's VendorPortInfo: whether FDR10 is supported, and whether it is what the link runs at."""
    _, supported, _, active = _VENDOR.unpack_from(data)
    return bool(supported & 1), bool(active & 1)


def fec_mode(data: bytes) -> int | None:
    """Read the mode of forward error correction from PortInfoExtended: 0 none, 1 fire code, above that Reed-Solomon.

    None where the port does not tell.
    """
    capabilities, active = struct.unpack_from(">IH", data)
    return int(active) if capabilities & 1 else None


class SwitchInfo(NamedTuple):
    """What a switch is.

    Attributes:
        enhanced_port_0: Whether its port 0 is one like others, with counters.
        state_changed: Whether a port changed its state since the subnet manager last took note.
    """

    enhanced_port_0: bool
    state_changed: bool


def switch_info(data: bytes) -> SwitchInfo:
    """Read SwitchInfo."""
    return SwitchInfo(bool(data[16] & 0x08), bool(data[11] & 0x04))


class SmInfo(NamedTuple):
    """What a subnet manager says of itself.

    Attributes:
        guid: Of its port.
        activity: A count that rises while it is alive.
        priority: From 0 to 15; the highest is the master.
        state: 0 not active, 1 discovering, 2 standby, 3 master.
    """

    guid: int
    activity: int
    priority: int
    state: int


def sm_info(data: bytes) -> SmInfo:
    """Read SMInfo."""
    guid, _, activity, both = _SM_INFO.unpack_from(data)
    return SmInfo(guid, activity, both >> 4, both & 15)


def speed(generation: str | None, lanes: int | None) -> float | None:
    """Give bytes per second of a link; None where one of the two is unknown."""
    if generation is None or lanes is None:
        return None
    return GBITS_A_LANE[generation] * lanes * 1e9 / 8


def fastest(generations: frozenset[str]) -> str | None:
    """Give the fastest of some generations; None where there is none."""
    return max(generations, key=_ORDER.index, default=None)
