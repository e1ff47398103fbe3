"""Queueing disciplines (qdiscs) of network devices by rtnetlink: drops, backlog and rate limits of all devices.

Layouts: rtnetlink(7), include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h. They are read by one dump: the kernel
sends the answer to RTM_GETQDISC for one device to the multicast group, and to the requester only if it has joined it.

Only the root qdisc of a device is read. Where that is mq or mqprio, with a qdisc for each of the queues below it, the
kernel adds their statistics up.
"""

import socket
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from exporter.linux.netlink.messages import (
    NetlinkError,
    attributes,
    number,
    text,
)
from exporter.linux.netlink.netlink_socket import NetlinkSocket

_RTM_GETQDISC = 38
_RTM_GETTCLASS = 42
_MESSAGE = struct.Struct("=BxxxiIII")  # tcmsg: family, ifindex, handle, parent, info
_ROOT = 0xFFFFFFFF  # TC_H_ROOT as the parent

_KIND = 1
_OPTIONS = 2
_STATS2 = 7
_STATS_QUEUE = 3
_QUEUE = struct.Struct("=4xIIII")  # gnet_stats_queue: qlen (skipped), backlog, drops, requeues, overlimits

_RATE = struct.Struct("=8xI")  # tc_ratespec: cell size and the like (skipped), bytes per second
_RATE_OVERFLOW = 0xFFFFFFFF
"""Value of a 32-bit rate that does not fit; the kernel reports such a rate in a 64-bit attribute as well."""

_PARAMETERS = 1  # TCA_TBF_PARMS and TCA_HTB_PARMS alike
_TBF_RATE64 = 4
_HTB_CEIL64 = 7
_HTB_CEIL = 12
"""Offset of the ceiling in the parameters of an htb class, after its guaranteed rate."""

NO_QUEUE = "noqueue"
"""Kind of the qdisc of a device without a queue, such as a bridge: it has no statistics."""


@dataclass(frozen=True, slots=True)
class QueueingDiscipline:
    """The root qdisc of a device; None for what the kernel did not report.

    Attributes:
        kind: Its name: mq, fq, tbf …
        handle: Its number; a qdisc that replaces it usually has another one, and counts from 0.
        drops: Packets dropped. The counters have 32 bits.
        overlimits: Times that a packet was delayed by the rate limit.
        requeues: Packets put back into the queue because the device was busy.
        backlog_bytes: Bytes in the queue.
        rate_bytes_per_second: Its rate limit: of tbf its rate; of htb the ceiling of its only root class, None where
            there are several. Unclassified packets may bypass the limit of htb.
    """

    kind: str
    handle: int = 0
    drops: int | None = None
    overlimits: int | None = None
    requeues: int | None = None
    backlog_bytes: int | None = None
    rate_bytes_per_second: int | None = None


def parse_queueing_discipline(body: bytes, ifindexes: Collection[int]) -> tuple[int, QueueingDiscipline] | None:
    """Parse one RTM_NEWQDISC message; never raises, whatever it contains.

    Args:
        body: The message without the netlink header.
        ifindexes: Indexes of the selected devices; messages of others are skipped early.

    Returns:
        The index of the device, and the qdisc; None unless it is the root qdisc of a selected device.
    """
    if len(body) < _MESSAGE.size:
        return None
    _, index, handle, parent, _ = _MESSAGE.unpack_from(body)
    if parent != _ROOT or index not in ifindexes:
        return None
    found = dict(attributes(body, _MESSAGE.size))
    kind = text(found.get(_KIND))
    if not kind:
        return None
    if kind == NO_QUEUE:
        return index, QueueingDiscipline(kind, handle)
    backlog = drops = requeues = overlimits = None
    counters = dict(attributes(found.get(_STATS2, b""))).get(_STATS_QUEUE, b"")
    if len(counters) >= _QUEUE.size:
        backlog, drops, requeues, overlimits = _QUEUE.unpack_from(counters)
    rate = _parse_rate(found.get(_OPTIONS, b""), 0, _TBF_RATE64) if kind == "tbf" else None
    return index, QueueingDiscipline(kind, handle, drops, overlimits, requeues, backlog, rate)


def parse_htb_ceiling(bodies: Iterable[bytes]) -> int | None:
    """Parse the ceiling of the only root class of htb, in bytes per second, from all classes of one device."""
    roots = [body for body in bodies if len(body) >= _MESSAGE.size and _MESSAGE.unpack_from(body)[3] == _ROOT]
    if len(roots) != 1:
        return None
    found = dict(attributes(roots[0], _MESSAGE.size))
    return _parse_rate(found.get(_OPTIONS, b""), _HTB_CEIL, _HTB_CEIL64)


def _parse_rate(options: bytes, offset: int, kind64: int) -> int | None:
    """Parse a rate: the 32-bit one at `offset` of the parameters, or the 64-bit attribute where that overflows."""
    found = dict(attributes(options))
    parameters = found.get(_PARAMETERS, b"")
    rate32 = _RATE.unpack_from(parameters, offset)[0] if len(parameters) >= offset + _RATE.size else None
    rate64 = number(found.get(kind64)) if rate32 in {None, _RATE_OVERFLOW} else None
    return rate64 or rate32 or None


class QueueingDisciplineSocket:
    """Dumps the qdiscs; blocking, so it belongs in a worker thread, and one thread at a time.

    It stays in the network namespace of the thread that opened it.
    """

    def __init__(self) -> None:
        self._socket = NetlinkSocket(socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def read(self, ifindexes: Collection[int]) -> Mapping[int, QueueingDiscipline | OSError]:
        """Read the root qdiscs of these devices, by index, or why one is not known; some devices have none.

        Raises:
            OSError: The kernel refused, did not answer in time, or lists too many; EOPNOTSUPP if it has no qdiscs.
        """
        found: dict[int, QueueingDiscipline | OSError] = {}
        for body in self._dump(_RTM_GETQDISC, 0):
            parsed = parse_queueing_discipline(body, ifindexes)
            if parsed is not None:
                index, discipline = parsed
                found[index] = self._with_ceiling(index, discipline) if discipline.kind == "htb" else discipline
        return found

    def _with_ceiling(self, index: int, discipline: QueueingDiscipline) -> QueueingDiscipline | OSError:
        """Add the ceiling, which only the classes of htb have; the device may disappear between the two requests."""
        try:
            return replace(discipline, rate_bytes_per_second=parse_htb_ceiling(self._dump(_RTM_GETTCLASS, index)))
        except NetlinkError as error:
            return error

    def _dump(self, kind: int, index: int) -> list[bytes]:
        try:
            return self._socket.dump(kind, _MESSAGE.pack(socket.AF_UNSPEC, index, 0, 0, 0))
        except NetlinkError as error:
            raise NetlinkError(error.errno, f"rtnetlink: queueing disciplines: {error.strerror}") from None
