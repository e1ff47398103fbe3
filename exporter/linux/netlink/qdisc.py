"""What the queueing disciplines of network devices drop, hold back and cap: one request asks for those of all devices.

Layouts: rtnetlink(7), include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h. Asking for one device alone would not do:
the kernel tells that to everybody who listens for changes, and to the one who asked only if it listens too.

Only what is at a device's root is read. Where that is mq or mqprio, with a discipline for each of the queues below it,
the kernel itself adds those up.
"""

import socket
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from exporter.linux.netlink.protocol import (
    NetlinkError,
    Requests,
    attributes,
    number,
    text,
)

_RTM_GETQDISC = 38
_RTM_GETTCLASS = 42
_MESSAGE = struct.Struct("=BxxxiIII")  # tcmsg: family, index of the device, handle, parent, info
_ROOT = 0xFFFFFFFF  # TC_H_ROOT as the parent

_KIND = 1
_OPTIONS = 2
_STATS2 = 7
_STATS_QUEUE = 3
_QUEUE = struct.Struct("=4xIIII")  # gnet_stats_queue: packets and bytes that wait; dropped, requeued, over the limit

_RATE = struct.Struct("=8xI")  # tc_ratespec: the size of a cell and the like, bytes per second
_MOST_NARROW = 0xFFFFFFFF
"""What stands where a rate does not fit into 32 bits, and is told in 64 beside that."""

_PARAMETERS = 1  # TCA_TBF_PARMS and TCA_HTB_PARMS alike
_TBF_RATE64 = 4
_HTB_CEIL64 = 7
_HTB_CEIL = 12
"""Place of the ceiling in the parameters of a class of htb, behind its rate, which it is sure of."""

NO_QUEUE = "noqueue"
"""Kind of a device that keeps nothing waiting, such as a bridge: there is nothing to count."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """The discipline at the root of a device; what the kernel did not say is None.

    Attributes:
        kind: Its name: mq, fq, tbf …
        handle: Its number; another one that takes its place mostly has another, and counts from 0.
        drops: Packets dropped. The counts have 32 bits.
        overlimits: Times that a packet had to wait for the rate limit.
        requeues: Packets that the device did not take at once.
        backlog_bytes: Bytes that wait.
        rate_bytes_per_second: What it lets through at most: of tbf its rate; of htb the ceiling of its only class at
            the top, None where there are several. htb may let pass what belongs to no class.
    """

    kind: str
    handle: int = 0
    drops: int | None = None
    overlimits: int | None = None
    requeues: int | None = None
    backlog_bytes: int | None = None
    rate_bytes_per_second: int | None = None


def parse_queueing(body: bytes, wanted: Collection[int]) -> tuple[int, Queueing] | None:
    """Read one discipline, whatever its message holds; it never fails.

    Args:
        body: The message without netlink's header.
        wanted: Indexes of devices; messages of others cost next to nothing.

    Returns:
        The device's index, and the discipline; None where it is not the root of a device that is wanted.
    """
    if len(body) < _MESSAGE.size:
        return None
    _, index, handle, parent, _ = _MESSAGE.unpack_from(body)
    if parent != _ROOT or index not in wanted:
        return None
    found = dict(attributes(body, _MESSAGE.size))
    kind = text(found.get(_KIND))
    if not kind:
        return None
    if kind == NO_QUEUE:
        return index, Queueing(kind, handle)
    backlog = drops = requeues = overlimits = None
    counts = dict(attributes(found.get(_STATS2, b""))).get(_STATS_QUEUE, b"")
    if len(counts) >= _QUEUE.size:
        backlog, drops, requeues, overlimits = _QUEUE.unpack_from(counts)
    rate = _rate(found.get(_OPTIONS, b""), 0, _TBF_RATE64) if kind == "tbf" else None
    return index, Queueing(kind, handle, drops, overlimits, requeues, backlog, rate)


def parse_ceiling(bodies: Iterable[bytes]) -> int | None:
    """Read the ceiling of the only class at the top of htb, in bytes per second, from all classes of one device."""
    top = [body for body in bodies if len(body) >= _MESSAGE.size and _MESSAGE.unpack_from(body)[3] == _ROOT]
    if len(top) != 1:
        return None
    found = dict(attributes(top[0], _MESSAGE.size))
    return _rate(found.get(_OPTIONS, b""), _HTB_CEIL, _HTB_CEIL64)


def _rate(options: bytes, place: int, wide: int) -> int | None:
    """Read a rate: of 64 bits where it does not fit into the parameters, at whose `place` it is otherwise."""
    found = dict(attributes(options))
    parameters = found.get(_PARAMETERS, b"")
    narrow = _RATE.unpack_from(parameters, place)[0] if len(parameters) >= place + _RATE.size else None
    rate = number(found.get(wide)) if narrow in {None, _MOST_NARROW} else None
    return rate or narrow or None


class QueueingSocket:
    """Asks for the disciplines; blocking, so it belongs in a worker thread, and one thread at a time.

    It stays in the network namespace of the thread that made it.
    """

    def __init__(self) -> None:
        self._requests = Requests(socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; closing twice does no harm."""
        self._requests.close()

    def queueing(self, wanted: Collection[int]) -> Mapping[int, Queueing | OSError]:
        """Give the discipline of each of these devices, by index, or why it is not known; some have none.

        Raises:
            OSError: The kernel refused, did not answer in time, or lists too much; EOPNOTSUPP if it has no disciplines.
        """
        answers = self._dump(_RTM_GETQDISC, 0)
        found: dict[int, Queueing | OSError] = {}
        for one in answers:
            parsed = parse_queueing(one, wanted)
            if parsed is not None:
                index, queueing = parsed
                found[index] = self._with_ceiling(index, queueing) if queueing.kind == "htb" else queueing
        return found

    def _with_ceiling(self, index: int, queueing: Queueing) -> Queueing | OSError:
        """Add what only the classes of htb tell; a device may go in the meantime."""
        try:
            return replace(queueing, rate_bytes_per_second=parse_ceiling(self._dump(_RTM_GETTCLASS, index)))
        except NetlinkError as error:
            return error

    def _dump(self, kind: int, index: int) -> list[bytes]:
        try:
            return self._requests.dump(kind, _MESSAGE.pack(socket.AF_UNSPEC, index, 0, 0, 0))
        except NetlinkError as error:
            raise NetlinkError(error.errno, f"rtnetlink: queueing disciplines: {error.strerror}") from None
