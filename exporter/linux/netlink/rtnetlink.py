"""Rtnetlink messages of links (RTM_NEWLINK, RTM_DELLINK): the request for all links, and the parser of its answer.

Layouts: netlink(7), rtnetlink(7), include/uapi/linux/{netlink,rtnetlink,if_link}.h. All numbers are in the byte order
of the machine. One dump replaces dozens of sysfs files per device, each of which would wait for the kernel's RTNL lock.
"""

import os
import struct
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.linux.netlink.messages import (
    ATTRIBUTE,
    DONE,
    DUMP,
    DUMP_INTERRUPTED,
    ERROR,
    MESSAGE,
    NESTED,
    REQUEST,
    TYPE_MASK,
    DumpInterrupted,
    NetlinkError,
    attribute_u32,
    message,
    text,
)

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, hardware type, index, flags, change mask
_U32 = struct.Struct("=I")
_S32 = struct.Struct("=i")

_RTM_NEWLINK = 16
_RTM_DELLINK = 17
_RTM_GETLINK = 18

_IFF_UP = 0x1
_IFF_LOWER_UP = 0x10000
_AF_UNSPEC = 0

_ADDRESS = 1
_IFNAME = 3
_MTU = 4
_LOWER = 5  # IFLA_LINK
_OPERSTATE = 16
_LINKINFO = 18
_STATS64 = 23
_EXT_MASK = 29
_CARRIER_CHANGES = 35
_LINK_NETNSID = 37
_PHYS_PORT_NAME = 38
_CARRIER_UP_COUNT = 47
_CARRIER_DOWN_COUNT = 48
_PERM_ADDRESS = 54
_PARENT_DEV_NAME = 56
_PARENT_DEV_BUS_NAME = 57
_INFO_KIND = 1


def _with_nested_flag(kinds: set[int]) -> frozenset[int]:
    return frozenset(kinds | {kind | NESTED for kind in kinds})


_READ_ATTRIBUTES = _with_nested_flag(
    {
        _ADDRESS,
        _IFNAME,
        _MTU,
        _LOWER,
        _OPERSTATE,
        _LINKINFO,
        _STATS64,
        _CARRIER_CHANGES,
        _LINK_NETNSID,
        _PHYS_PORT_NAME,
        _CARRIER_UP_COUNT,
        _CARRIER_DOWN_COUNT,
        _PERM_ADDRESS,
        _PARENT_DEV_NAME,
        _PARENT_DEV_BUS_NAME,
    }
)
_READ_INFO_ATTRIBUTES = _with_nested_flag({_INFO_KIND})

# RFC 2863, spelled as in /sys/class/net/*/operstate.
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")

# struct rtnl_link_stats64, in its order; it is shorter in older kernels and may be longer in newer ones.
LINK_STATS64 = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
    *("multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors"),
    *("tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler"),
    "rx_otherhost_dropped",
)


@dataclass(slots=True)
class NetworkLink:
    """One network device in its namespace; None for what the kernel did not report.

    `hardware` is the ARPHRD number (1 Ethernet, 32 InfiniBand, 772 loopback). `mac` is the permanent address if the
    device has one, since bonds overwrite the current one. `kind` is IFLA_INFO_KIND, "" for hardware and the loopback.
    `parent_dev_name` on `parent_dev_bus_name` is the parent device, such as 0000:17:00.0 on pci. `lower` is IFLA_LINK:
    the index of the lower network device (of a VLAN, of an InfiniBand partition) or of the peer; None for a device
    without one. `link_netnsid` is set when that device is in another network namespace: its id. The carrier counters
    have 32 bits. `stats` has the kernel's names (see `LINK_STATS64`); packets and bytes are those of the kernel's
    network stack, which exclude RDMA.
    """

    ifindex: int
    name: str
    hardware: int = 1
    admin_up: bool = False
    carrier: bool = False
    operstate: str | None = None
    mtu: int | None = None
    mac: str | None = None
    kind: str = ""
    parent_dev_name: str | None = None
    parent_dev_bus_name: str | None = None
    phys_port_name: str | None = None
    lower: int | None = None
    link_netnsid: int | None = None
    carrier_changes: int | None = None
    carrier_up_count: int | None = None
    carrier_down_count: int | None = None
    stats: dict[str, int] = field(default_factory=dict)


class LinkEvent(NamedTuple):
    """A change of one device, or ("overrun", None): the kernel dropped events, so that all links have to be read again.

    Events coalesce, and some have few attributes: they are a reason to read the link, not its state.
    """

    change: Literal["changed", "deleted", "overrun"]
    link: NetworkLink | None


@dataclass(slots=True)
class LinkMessages:
    """The messages of a datagram: events in order, whether a dump ended, count of truncated and malformed messages."""

    events: list[LinkEvent] = field(default_factory=list)
    done: bool = False
    malformed: int = 0


def encode_link_request(sequence: int) -> bytes:
    """Encode the RTM_GETLINK dump of all links with statistics, without the list of a port's virtual functions."""
    # An empty filter mask: neither RTEXT_FILTER_VF (1) nor RTEXT_FILTER_SKIP_STATS (8).
    body = _LINK.pack(_AF_UNSPEC, 0, 0, 0, 0) + attribute_u32(_EXT_MASK, 0)
    return message(_RTM_GETLINK, REQUEST | DUMP, sequence, body)


def parse_link_messages(data: bytes, sequence: int | None = None) -> LinkMessages:
    """Parse the messages of one datagram; with `sequence`, only those that answer that request.

    Raises:
        DumpInterrupted: A message has the flag that links changed during the dump.
        NetlinkError: The kernel answered with an error.
    """
    parsed = LinkMessages()
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < MESSAGE.size:
            parsed.malformed += 1
            break
        length, kind, flags, number, _ = MESSAGE.unpack_from(data, offset)
        stop = offset + length
        if length < MESSAGE.size or stop > end:
            parsed.malformed += 1
            break
        if sequence is None or number == sequence:
            if flags & DUMP_INTERRUPTED:
                raise DumpInterrupted
            _parse_message(parsed, kind, data, offset + MESSAGE.size, stop)
        offset = stop + (-length & 3)
    return parsed


def _parse_message(parsed: LinkMessages, kind: int, data: bytes, start: int, stop: int) -> None:
    if kind in (_RTM_NEWLINK, _RTM_DELLINK):
        if stop - start < _LINK.size:
            parsed.malformed += 1
            return
        # Bridges report ports that join and leave them in the same group, with their own family: such a RTM_DELLINK
        # means that the device left the bridge.
        if data[start] != _AF_UNSPEC:
            return
        link, complete = _parse_link(data, start, stop)
        parsed.malformed += not complete
        if link is not None:
            parsed.events.append(LinkEvent("changed" if kind == _RTM_NEWLINK else "deleted", link))
    elif kind in (DONE, ERROR):
        if stop - start >= _S32.size:
            code = _S32.unpack_from(data, start)[0]
            if code < 0:
                raise NetlinkError(-code, f"rtnetlink: {os.strerror(-code)}")
        elif kind == ERROR:
            parsed.malformed += 1
        parsed.done = parsed.done or kind == DONE


def _parse_link(data: bytes, start: int, stop: int) -> tuple[NetworkLink | None, bool]:
    """Parse one ifinfomsg with its attributes; a link without a name is None. False: an attribute is malformed."""
    _, hardware, ifindex, flags, _ = _LINK.unpack_from(data, start)
    found, complete = _parse_attributes(data, start + _LINK.size, stop, _READ_ATTRIBUTES)
    get = found.get
    name = text(get(_IFNAME))
    if not name:
        return None, False
    kind = ""
    info = get(_LINKINFO)
    if info is not None:
        inner, inner_complete = _parse_attributes(info, 0, len(info), _READ_INFO_ATTRIBUTES)
        complete = complete and inner_complete
        kind = text(inner.get(_INFO_KIND)) or ""
    state = get(_OPERSTATE)
    link = NetworkLink(
        ifindex,
        name,
        hardware,
        bool(flags & _IFF_UP),
        bool(flags & _IFF_LOWER_UP),
        _OPERSTATES[state[0]] if state and state[0] < len(_OPERSTATES) else None,
        _u32(get(_MTU)),
        (get(_PERM_ADDRESS) or get(_ADDRESS) or b"").hex(":") or None,
        kind,
        text(get(_PARENT_DEV_NAME)),
        text(get(_PARENT_DEV_BUS_NAME)),
        text(get(_PHYS_PORT_NAME)),
        _u32(get(_LOWER)) or None,  # 0 for a tunnel without a lower device
        _s32(get(_LINK_NETNSID)),
        _u32(get(_CARRIER_CHANGES)),
        _u32(get(_CARRIER_UP_COUNT)),
        _u32(get(_CARRIER_DOWN_COUNT)),
        _parse_stats64(get(_STATS64)),
    )
    return link, complete


def _parse_attributes(data: bytes, start: int, stop: int, wanted: frozenset[int]) -> tuple[dict[int, bytes], bool]:
    """Return the payloads of the wanted attributes, those before an error; False if the list is malformed.

    `start` is a multiple of four, since attributes are aligned. A link has some fifty attributes, so the loop does no
    more work than safety requires.
    """
    found: dict[int, bytes] = {}
    header = ATTRIBUTE.unpack_from
    try:
        while start < stop:
            length, kind = header(data, start)
            end = start + length
            # A length under four would never advance the loop. A header that crosses the end of the message fails
            # here too, as its attribute ends later still.
            if length < 4 or end > stop:
                return found, False
            if kind in wanted:
                found[kind & TYPE_MASK] = data[start + 4 : end]
            start = (end + 3) & -4
    except struct.error:  # a header crosses the end of the data
        return found, False
    return found, True


def _u32(value: bytes | None) -> int | None:
    return None if value is None or len(value) != 4 else int(_U32.unpack(value)[0])


def _s32(value: bytes | None) -> int | None:
    return None if value is None or len(value) != 4 else int(_S32.unpack(value)[0])


def _parse_stats64(value: bytes | None) -> dict[str, int]:
    if value is None:
        return {}
    count = min(len(value) // 8, len(LINK_STATS64))
    return dict(zip(LINK_STATS64, struct.unpack_from(f"={count}Q", value), strict=False))
