"""Rtnetlink messages of links (RTM_NEWLINK, RTM_DELLINK): the request for all links, and the parser of links.

Layouts: netlink(7), rtnetlink(7), include/uapi/linux/{netlink,rtnetlink,if_link}.h. All numbers are in the byte order
of the machine. One dump replaces dozens of sysfs files per device, each of which would wait for the kernel's RTNL lock.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from exporter.linux.netlink.messages import ATTRIBUTE, NESTED, TYPE_MASK, Message, attribute_u32, number, text

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, hardware type, index, flags, change mask

GET_LINKS = 18
"""RTM_GETLINK; a dump of it lists all links."""

LINK_GROUP = 1 << 0
"""The mask of RTNLGRP_LINK, whose number is 1: notifications of changed and deleted links."""

_CHANGES: Mapping[int, Literal["changed", "deleted"]] = MappingProxyType(
    {16: "changed", 17: "deleted"}
)  # RTM_NEWLINK, RTM_DELLINK

_IFF_UP = 0x1
_IFF_LOWER_UP = 0x10000
_AF_UNSPEC = 0

_ADDRESS = 1
_IFNAME = 3
_MTU = 4
_LOWER = 5  # IFLA_LINK
_OPERSTATE = 16
_LINKINFO = 18
_ALIAS = 20
_STATS64 = 23
_EXT_MASK = 29
_CARRIER_CHANGES = 35
_LOWER_NAMESPACE = 37  # IFLA_LINK_NETNSID
_PHYS_PORT_NAME = 38
_CARRIER_DOWN_COUNT = 48
_PERM_ADDRESS = 54
_PARENT_DEV_NAME = 56
_PARENT_DEV_BUS_NAME = 57
_INFO_KIND = 1
_INFO_DATA = 2
_IPOIB_PKEY = 1

# An empty filter mask: neither RTEXT_FILTER_VF (1) nor RTEXT_FILTER_SKIP_STATS (8).
LINKS_REQUEST = _LINK.pack(_AF_UNSPEC, 0, 0, 0, 0) + attribute_u32(_EXT_MASK, 0)
"""The body of GET_LINKS: all links with statistics, without the list of a port's virtual functions."""


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
        _ALIAS,
        _STATS64,
        _CARRIER_CHANGES,
        _LOWER_NAMESPACE,
        _PHYS_PORT_NAME,
        _CARRIER_DOWN_COUNT,
        _PERM_ADDRESS,
        _PARENT_DEV_NAME,
        _PARENT_DEV_BUS_NAME,
    }
)
_READ_INFO_ATTRIBUTES = _with_nested_flag({_INFO_KIND, _INFO_DATA})
_READ_IPOIB_ATTRIBUTES = _with_nested_flag({_IPOIB_PKEY})

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
    the index of the lower network device (of a VLAN, of an InfiniBand partition) or of the peer, which may be in
    another network namespace; None for a device without one. The carrier counters have 32 bits. `stats` has the
    kernel's names (see `LINK_STATS64`); packets and bytes are those of the kernel's network stack, which exclude RDMA.
    `lower_namespace` is the id of the namespace of `lower`, None for the device's own. `alias` is IFLA_IFALIAS.
    `partition` is the partition key of an IP over InfiniBand device.
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
    carrier_changes: int | None = None
    carrier_down_count: int | None = None
    stats: dict[str, int] = field(default_factory=dict)
    lower_namespace: int | None = None
    alias: str | None = None
    partition: int | None = None


class LinkEvent(NamedTuple):
    """A change of one device, or ("overrun", None): the kernel dropped events, so that all links have to be read again.

    Events coalesce, and some have few attributes: they are a reason to read the link, not its state.
    """

    change: Literal["changed", "deleted", "overrun"]
    link: NetworkLink | None


def parse_links(bodies: Iterable[bytes]) -> list[NetworkLink]:
    """Parse the messages of a dump of links, without their netlink headers; those without a name are skipped."""
    return [link for body in bodies if (link := _parse_link(body)) is not None]


def parse_link_events(notifications: Iterable[Message | None]) -> list[LinkEvent]:
    """Parse the notifications of LINK_GROUP, None for dropped ones; what is no change of a link is skipped."""
    found = []
    for notification in notifications:
        if notification is None:
            found.append(LinkEvent("overrun", None))
        elif notification.kind in _CHANGES and (link := _parse_link(notification.body)) is not None:
            found.append(LinkEvent(_CHANGES[notification.kind], link))
    return found


def _parse_link(body: bytes) -> NetworkLink | None:
    """Parse an ifinfomsg with its attributes, those before a malformed one; None without a name.

    Bridges report ports that join and leave them in the same group, with their own family: such an RTM_DELLINK
    means that the device left the bridge.
    """
    if len(body) < _LINK.size or body[0] != _AF_UNSPEC:
        return None
    _, hardware, ifindex, flags, _ = _LINK.unpack_from(body)
    get = _select_attributes(body, _LINK.size, _READ_ATTRIBUTES).get
    name = text(get(_IFNAME))
    if not name:
        return None
    info = _select_attributes(get(_LINKINFO) or b"", 0, _READ_INFO_ATTRIBUTES)
    kind = text(info.get(_INFO_KIND))
    state = get(_OPERSTATE)
    return NetworkLink(
        ifindex,
        name,
        hardware,
        bool(flags & _IFF_UP),
        bool(flags & _IFF_LOWER_UP),
        _OPERSTATES[state[0]] if state and state[0] < len(_OPERSTATES) else None,
        number(get(_MTU)),
        (get(_PERM_ADDRESS) or get(_ADDRESS) or b"").hex(":") or None,
        kind or "",
        text(get(_PARENT_DEV_NAME)),
        text(get(_PARENT_DEV_BUS_NAME)),
        text(get(_PHYS_PORT_NAME)),
        number(get(_LOWER)) or None,  # 0 for a tunnel without a lower device
        number(get(_CARRIER_CHANGES)),
        number(get(_CARRIER_DOWN_COUNT)),
        _parse_stats64(get(_STATS64)),
        number(get(_LOWER_NAMESPACE)),
        text(get(_ALIAS)),
        _parse_partition(info.get(_INFO_DATA)) if kind == "ipoib" else None,
    )


def _select_attributes(data: bytes, start: int, wanted: frozenset[int]) -> dict[int, bytes]:
    """Return the payloads of the wanted attributes, those before a malformed one.

    `start` is a multiple of four, since attributes are aligned. A link has some fifty attributes, so the loop does no
    more work than safety requires.
    """
    found: dict[int, bytes] = {}
    header, stop = ATTRIBUTE.unpack_from, len(data)
    try:
        while start < stop:
            length, kind = header(data, start)
            end = start + length
            if length < 4 or end > stop:  # a length under four would never advance the loop
                break
            if kind in wanted:
                found[kind & TYPE_MASK] = data[start + 4 : end]
            start = (end + 3) & -4
    except struct.error:  # a header crosses the end of the data
        pass
    return found


def _parse_partition(data: bytes | None) -> int | None:
    return number(_select_attributes(data or b"", 0, _READ_IPOIB_ATTRIBUTES).get(_IPOIB_PKEY))


def _parse_stats64(value: bytes | None) -> dict[str, int]:
    if value is None:
        return {}
    count = min(len(value) // 8, len(LINK_STATS64))
    return dict(zip(LINK_STATS64, struct.unpack_from(f"={count}Q", value), strict=False))
