"""Links and link events from rtnetlink: one request reads every network device of a namespace.

Layouts: netlink(7), rtnetlink(7), include/uapi/linux/{netlink,rtnetlink,if_link}.h. All numbers are in the byte order
of the machine. One dump replaces dozens of sysfs files per device, each of which would wait for the kernel's RTNL lock.
"""

import errno
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from exporter.linux.netlink.protocol import (
    ATTEMPTS,
    ATTRIBUTE,
    DATAGRAM,
    DONE,
    DRAIN_LIMIT,
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
)

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, hardware type, index, flags, change mask
_U32 = struct.Struct("=I")
_S32 = struct.Struct("=i")

_RTM_NEWLINK = 16
_RTM_DELLINK = 17
_RTM_GETLINK = 18
_RTNLGRP_LINK_MASK = 1 << 0  # bind() takes a mask; the group's number is 1
_SO_RCVBUFFORCE = 33

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


def _with_nested(kinds: set[int]) -> frozenset[int]:
    return frozenset(kinds | {kind | NESTED for kind in kinds})


_WANTED = _with_nested(
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
_WANTED_OF_INFO = _with_nested({_INFO_KIND})

# RFC 2863, spelled as in /sys/class/net/*/operstate.
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")

# struct rtnl_link_stats64, in its order; older kernels end earlier, newer ones may go on.
STATISTICS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
    *("multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors"),
    *("tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler"),
    "rx_otherhost_dropped",
)

_RECEIVE_BUFFER = 1024 * 1024  # a storm of a few hundred events fits
_EVENTS_PER_READ = 256  # datagrams; what is left makes the descriptor readable again


@dataclass(slots=True)
class Link:
    """One network device, as its namespace sees it; what the kernel did not say is None.

    `hardware` is the ARPHRD number (1 Ethernet, 32 InfiniBand, 772 loopback). `mac` is the permanent address if the
    device has one, since bonds overwrite the other. `kind` is "" for what no software made (and for the loopback).
    `parent_dev_name` on `parent_dev_bus_name` is the device below, such as 0000:17:00.0 on pci. `lower` is the index
    of the network device below (of a VLAN, of a partition of InfiniBand) or of the peer; what is its own lowest has
    none. `link_netnsid` is set when that one is in another namespace, whose index it then is. The carrier counts are
    32 bits wide. `stats` has the kernel's names (see `STATISTICS`); packets and bytes are what the kernel's stack saw,
    which excludes RDMA.
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


class Event(NamedTuple):
    """A change of one device, or ("lost", None): the kernel dropped events and everything has to be read again.

    Events coalesce, and some carry few attributes: take them as the hint to read, not as the state.
    """

    change: Literal["changed", "deleted", "lost"]
    link: Link | None


@dataclass(slots=True)
class Batch:
    """What some bytes from rtnetlink held: events in order, whether a dump ended, messages that were cut or broken."""

    events: list[Event] = field(default_factory=list)
    done: bool = False
    malformed: int = 0


def link_request(sequence: int) -> bytes:
    """Build the request for all links with statistics, but without what each virtual function of a port adds."""
    # An empty filter mask: neither RTEXT_FILTER_VF (1) nor RTEXT_FILTER_SKIP_STATS (8).
    body = _LINK.pack(_AF_UNSPEC, 0, 0, 0, 0) + attribute_u32(_EXT_MASK, 0)
    return message(_RTM_GETLINK, REQUEST | DUMP, sequence, body)


def parse_links(data: bytes, sequence: int | None = None) -> Batch:
    """Read the messages of one datagram; with `sequence`, only those that answer that request.

    Raises:
        DumpInterrupted: a message says that devices changed while they were dumped.
        NetlinkError: the kernel answers with an error.
    """
    batch = Batch()
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < MESSAGE.size:
            batch.malformed += 1
            break
        length, kind, flags, number, _ = MESSAGE.unpack_from(data, offset)
        stop = offset + length
        if length < MESSAGE.size or stop > end:
            batch.malformed += 1
            break
        if sequence is None or number == sequence:
            if flags & DUMP_INTERRUPTED:
                raise DumpInterrupted
            _read_message(batch, kind, data, offset + MESSAGE.size, stop)
        offset = stop + (-length & 3)
    return batch


def _read_message(batch: Batch, kind: int, data: bytes, start: int, stop: int) -> None:
    if kind in (_RTM_NEWLINK, _RTM_DELLINK):
        if stop - start < _LINK.size:
            batch.malformed += 1
            return
        # Bridges announce their ports' arrival and departure in the same group, under their own family:
        # such a "deleted" means that the device left the bridge.
        if data[start] != _AF_UNSPEC:
            return
        link, complete = _parse_link(data, start, stop)
        batch.malformed += not complete
        if link is not None:
            batch.events.append(Event("changed" if kind == _RTM_NEWLINK else "deleted", link))
    elif kind in (DONE, ERROR):
        if stop - start >= _S32.size:
            code = _S32.unpack_from(data, start)[0]
            if code < 0:
                raise NetlinkError(-code, f"rtnetlink: {os.strerror(-code)}")
        elif kind == ERROR:
            batch.malformed += 1
        batch.done = batch.done or kind == DONE


def _parse_link(data: bytes, start: int, stop: int) -> tuple[Link | None, bool]:
    """Read one ifinfomsg with its attributes; without a name there is no link. False: something was cut or broken."""
    _, hardware, ifindex, flags, _ = _LINK.unpack_from(data, start)
    found, complete = _attributes(data, start + _LINK.size, stop, _WANTED)
    get = found.get
    name = _text(get(_IFNAME))
    if not name:
        return None, False
    kind = ""
    info = get(_LINKINFO)
    if info is not None:
        inner, inner_complete = _attributes(info, 0, len(info), _WANTED_OF_INFO)
        complete = complete and inner_complete
        kind = _text(inner.get(_INFO_KIND)) or ""
    state = get(_OPERSTATE)
    link = Link(
        ifindex,
        name,
        hardware,
        bool(flags & _IFF_UP),
        bool(flags & _IFF_LOWER_UP),
        _OPERSTATES[state[0]] if state and state[0] < len(_OPERSTATES) else None,
        _u32(get(_MTU)),
        (get(_PERM_ADDRESS) or get(_ADDRESS) or b"").hex(":") or None,
        kind,
        _text(get(_PARENT_DEV_NAME)),
        _text(get(_PARENT_DEV_BUS_NAME)),
        _text(get(_PHYS_PORT_NAME)),
        _u32(get(_LOWER)) or None,  # a tunnel over no device in particular says 0
        _s32(get(_LINK_NETNSID)),
        _u32(get(_CARRIER_CHANGES)),
        _u32(get(_CARRIER_UP_COUNT)),
        _u32(get(_CARRIER_DOWN_COUNT)),
        _statistics(get(_STATS64)),
    )
    return link, complete


def _attributes(data: bytes, start: int, stop: int, wanted: frozenset[int]) -> tuple[dict[int, bytes], bool]:
    """Collect the payloads of the wanted attributes; False when the list is broken: what came before it counts.

    `start` is a multiple of four, since attributes are aligned. A device has some fifty attributes: the loop does the
    least that is safe for each.
    """
    found: dict[int, bytes] = {}
    header = ATTRIBUTE.unpack_from
    try:
        while start < stop:
            length, kind = header(data, start)
            end = start + length
            # A length under four would hold the loop in its place for ever. A header that begins before the end of
            # the message and reaches over it fails here too, as its attribute ends still later.
            if length < 4 or end > stop:
                return found, False
            if kind in wanted:
                found[kind & TYPE_MASK] = data[start + 4 : end]
            start = (end + 3) & -4
    except struct.error:  # a header reaches over the end of the data
        return found, False
    return found, True


def _text(value: bytes | None) -> str | None:
    """Read a string that ends at NUL; any byte is legal in a device's name, and two names must stay two."""
    if value is None:
        return None
    return value.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _u32(value: bytes | None) -> int | None:
    return None if value is None or len(value) != 4 else int(_U32.unpack(value)[0])


def _s32(value: bytes | None) -> int | None:
    return None if value is None or len(value) != 4 else int(_S32.unpack(value)[0])


def _statistics(value: bytes | None) -> dict[str, int]:
    if value is None:
        return {}
    count = min(len(value) // 8, len(STATISTICS))
    return dict(zip(STATISTICS, struct.unpack_from(f"={count}Q", value), strict=False))


def _open(groups: int) -> socket.socket:
    """Open a socket in the namespace of the calling thread, under a port number of the kernel's choice."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        except PermissionError:  # without CAP_NET_ADMIN net.core.rmem_max caps it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        sock.bind((0, groups))
    except BaseException:
        sock.close()
        raise
    return sock


class _NetlinkSocket:
    """A socket for messages about links, which ends with its `with` block."""

    def __init__(self, groups: int) -> None:
        self.malformed = 0
        self._socket = _open(groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; closing twice does no harm."""
        self._socket.close()


class LinkSocket(_NetlinkSocket):
    """Reads all links; blocking, so it belongs in a worker thread, and one thread at a time.

    It stays in the network namespace of the thread that made it. `malformed` counts messages that were cut or broken.
    `timeout`, in seconds, is for each datagram.
    """

    def __init__(self, timeout: float = 5.0) -> None:
        super().__init__(0)
        self._sequence = 0
        # The kernel's own timer: Python's would wait in poll() before each of a dump's datagrams.
        timer = struct.pack("@ll", *divmod(int(timeout * 1e6), 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timer)

    def dump(self) -> list[Link]:
        """Read every link of the namespace.

        Raises:
            DumpInterrupted: devices kept changing through all attempts.
            TimeoutError: the kernel did not answer in time.
            OSError: the kernel refused.
        """
        for _ in range(ATTEMPTS - 1):
            with suppress(DumpInterrupted):
                return self._dump()
        return self._dump()

    def _dump(self) -> list[Link]:
        self._drain()
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self._socket.send(link_request(self._sequence))
        links: list[Link] = []
        while True:
            try:
                data, (port, _) = self._socket.recvfrom(DATAGRAM)
            except BlockingIOError:
                raise TimeoutError(errno.ETIMEDOUT, "rtnetlink: the kernel did not list its links in time") from None
            if port != 0:  # from a process, not from the kernel
                continue
            batch = parse_links(data, self._sequence)
            self.malformed += batch.malformed
            links += [event.link for event in batch.events if event.change == "changed" and event.link is not None]
            if batch.done:
                return links

    def _drain(self) -> None:
        """Read to its end what an earlier dump left: until then the kernel refuses the next one with EBUSY."""
        with suppress(BlockingIOError):
            for _ in range(DRAIN_LIMIT):
                self._socket.recv(DATAGRAM, socket.MSG_DONTWAIT)


class EventSocket(_NetlinkSocket):
    """Hears of links that appear, change or go; never blocks, its descriptor is readable when there is news.

    It stays in the network namespace of the thread that made it.
    """

    def __init__(self) -> None:
        super().__init__(_RTNLGRP_LINK_MASK)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Give the descriptor to wait on."""
        return self._socket.fileno()

    def read(self) -> list[Event]:
        """Take the events that have arrived, in order; a flood is taken in several calls."""
        events: list[Event] = []
        with suppress(BlockingIOError):
            for _ in range(_EVENTS_PER_READ):
                try:
                    data, (port, _groups) = self._socket.recvfrom(DATAGRAM)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    events.append(Event("lost", None))
                    continue
                if port == 0:
                    batch = parse_links(data)
                    self.malformed += batch.malformed
                    events += batch.events
        return events
