"""Rtnetlink sockets: one dumps all links of a network namespace, the other receives the events of its links."""

import errno
import socket
from contextlib import suppress
from typing import Self

from exporter.linux.netlink.messages import DumpInterrupted
from exporter.linux.netlink.netlink_socket import (
    MAX_DATAGRAM,
    MAX_DUMP_ATTEMPTS,
    drain,
    set_receive_timeout,
)
from exporter.linux.netlink.rtnetlink import (
    LinkEvent,
    NetworkLink,
    encode_link_request,
    parse_link_messages,
)

_RTNLGRP_LINK_MASK = 1 << 0  # bind() takes a mask; the group's number is 1
_SO_RCVBUFFORCE = 33

_RECEIVE_BUFFER = 1024 * 1024
"""Bytes; enough for a storm of a few hundred events."""

_MAX_DATAGRAMS_PER_READ = 256
"""Datagrams of events that one read receives; the rest makes the descriptor readable again."""


def _open_socket(groups: int) -> socket.socket:
    """Open a socket in the network namespace of the calling thread; the kernel assigns its port number."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        except PermissionError:  # without CAP_NET_ADMIN net.core.rmem_max limits it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        sock.bind((0, groups))
    except BaseException:
        sock.close()
        raise
    return sock


class _RtnetlinkSocket:
    """A socket for messages about links, as a context manager."""

    def __init__(self, groups: int) -> None:
        self.malformed = 0
        self._socket = _open_socket(groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()


class LinkDumpSocket(_RtnetlinkSocket):
    """Dumps all links; blocking, so it belongs in a worker thread, and one thread at a time.

    It stays in the network namespace of the thread that opened it. `malformed` counts truncated and malformed messages.
    `timeout`, in seconds, is for each datagram.
    """

    def __init__(self, timeout: float = 5.0) -> None:
        super().__init__(0)
        self._sequence = 0
        set_receive_timeout(self._socket, timeout)

    def dump(self) -> list[NetworkLink]:
        """Read all links of the namespace.

        Raises:
            DumpInterrupted: Links changed during each attempt.
            TimeoutError: The kernel did not answer in time.
            OSError: The kernel refused.
        """
        for _ in range(MAX_DUMP_ATTEMPTS - 1):
            with suppress(DumpInterrupted):
                return self._dump()
        return self._dump()

    def _dump(self) -> list[NetworkLink]:
        drain(self._socket)
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self._socket.send(encode_link_request(self._sequence))
        links: list[NetworkLink] = []
        while True:
            try:
                data, (port, _) = self._socket.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                raise TimeoutError(errno.ETIMEDOUT, "rtnetlink: the kernel did not list its links in time") from None
            if port != 0:  # sent by a process, not by the kernel
                continue
            messages = parse_link_messages(data, self._sequence)
            self.malformed += messages.malformed
            links += [event.link for event in messages.events if event.change == "changed" and event.link is not None]
            if messages.done:
                return links


class LinkEventSocket(_RtnetlinkSocket):
    """Receives the events of links; never blocks: its descriptor is readable when there are events.

    It stays in the network namespace of the thread that opened it.
    """

    def __init__(self) -> None:
        super().__init__(_RTNLGRP_LINK_MASK)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def read(self) -> list[LinkEvent]:
        """Return the events received so far, in order; a large backlog takes several calls."""
        events: list[LinkEvent] = []
        with suppress(BlockingIOError):
            for _ in range(_MAX_DATAGRAMS_PER_READ):
                try:
                    data, (port, _groups) = self._socket.recvfrom(MAX_DATAGRAM)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    events.append(LinkEvent("overrun", None))
                    continue
                if port == 0:
                    messages = parse_link_messages(data)
                    self.malformed += messages.malformed
                    events += messages.events
        return events
