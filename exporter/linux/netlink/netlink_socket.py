"""Netlink sockets of all families: requests, dumps and notifications; the codecs of the families are in other modules.

A request is answered by messages of its own sequence number; a dump by several, and an NLMSG_DONE that reports whether
the dump is complete. Notifications are messages of multicast groups.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from exporter.linux.netlink.messages import (
    DONE,
    DUMP,
    DUMP_INTERRUPTED,
    ERROR,
    REQUEST,
    DumpInterrupted,
    Message,
    NetlinkError,
    message,
    messages,
)

MAX_DATAGRAM = 64 * 1024
"""Bytes of the largest datagram of a dump: the kernel fills them up to 32 KiB."""

MAX_DUMP_ATTEMPTS = 5
"""Attempts of a dump: objects are added and removed during one, and each change may interrupt it."""

MAX_DRAINED_DATAGRAMS = 10_000
"""Datagrams of an abandoned dump that are read before the next request."""

MAX_UNRELATED_DATAGRAMS = 10_000
"""Datagrams without an answer to the request that are received while waiting for one, each of which came in time."""

MAX_DUMP_MESSAGES = 100_000
"""Messages of one dump; a longer one is treated as an error."""

NOTIFICATION_BUFFER = 1024 * 1024
"""Bytes of the receive buffer for notifications; enough for a storm of a few hundred links."""

MAX_NOTIFICATION_DATAGRAMS = 256
"""Datagrams of notifications that one call receives; the rest makes the descriptor readable again."""

MAX_ERRNO = 4095

SHARED_SOCKETS = 2
"""Sockets that threads share: one may be held by a call that hangs."""

_SO_RCVBUFFORCE = 33
_S32 = struct.Struct("=i")


class NetlinkSocket:
    """A socket for requests or for notifications, one thread at a time.

    Requests block, so they belong in a worker thread; notifications never do. The socket stays in the network namespace
    of the thread that opened it.
    """

    def __init__(self, family: int, timeout: float = 5.0, groups: int = 0) -> None:
        """Open the socket.

        Args:
            family: Number of the netlink family.
            timeout: Seconds to wait for each datagram of an answer.
            groups: Mask of multicast groups; with it the socket is for notifications.

        Raises:
            OSError: The kernel lacks the family (EPROTONOSUPPORT), or refuses.
        """
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._sequence = 0
        self._unrelated = 0  # datagrams since the last request without an answer to it
        try:
            if groups:
                _subscribe(self._socket, groups)
            else:
                _set_receive_timeout(self._socket, timeout)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def request(self, kind: int, body: bytes) -> bytes:
        """Send a request for one object; return the body of the answer.

        Raises:
            NetlinkError: The kernel refused; errno is its code.
            TimeoutError: No answer in time.
        """
        sequence = self._send(kind, REQUEST, body)
        while True:
            for answer in self._receive(sequence):
                if answer.kind != ERROR:
                    return answer.body

    def dump(self, kind: int, body: bytes = b"") -> list[bytes]:
        """Request a dump; return the body of each message of it.

        Raises:
            DumpInterrupted: The listed objects changed during each attempt.
            NetlinkError: The kernel refused; errno is its code.
            TimeoutError: No answer in time.
        """
        for _ in range(MAX_DUMP_ATTEMPTS - 1):
            with suppress(DumpInterrupted):
                return self._dump(kind, body)
        return self._dump(kind, body)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are notifications."""
        return self._socket.fileno()

    def notifications(self) -> list[Message | None]:
        """Return the notifications received so far, in order; a large backlog takes several calls.

        None is in the place of those that the kernel dropped because the receive buffer was full.
        """
        found: list[Message | None] = []
        with suppress(BlockingIOError):
            for _ in range(MAX_NOTIFICATION_DATAGRAMS):
                try:
                    found += messages(self._receive_datagram())
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    found.append(None)
        return found

    def _dump(self, kind: int, body: bytes) -> list[bytes]:
        sequence = self._send(kind, REQUEST | DUMP, body)
        found: list[bytes] = []
        while True:
            for answer in self._receive(sequence):
                if answer.flags & DUMP_INTERRUPTED:
                    raise DumpInterrupted
                if answer.kind == DONE:
                    return found
                if len(found) >= MAX_DUMP_MESSAGES:
                    raise NetlinkError(errno.EOVERFLOW, f"netlink: a dump of more than {MAX_DUMP_MESSAGES} entries")
                found.append(answer.body)

    def _send(self, kind: int, flags: int, body: bytes) -> int:
        """Send a request with a new sequence number, after draining what an earlier request left unread."""
        self._drain()
        self._unrelated = 0
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self._socket.send(message(kind, flags, self._sequence, body))
        return self._sequence

    def _receive(self, sequence: int) -> Iterator[Message]:
        """Yield the messages of one datagram that answer the request of this sequence number.

        Raises:
            NetlinkError: One of them is an error.
        """
        try:
            data = self._receive_datagram()
        except BlockingIOError:
            raise TimeoutError(errno.ETIMEDOUT, "netlink: the kernel did not answer in time") from None
        answers = [answer for answer in messages(data) if answer.sequence == sequence]
        if not answers:
            self._unrelated += 1
            if self._unrelated > MAX_UNRELATED_DATAGRAMS:
                raise TimeoutError(errno.ETIMEDOUT, "netlink: only messages that answer no request of ours")
        for answer in answers:
            if answer.kind in {ERROR, DONE} and len(answer.body) >= _S32.size:
                code = _S32.unpack_from(answer.body)[0]
                if code < 0:
                    raise _error(-code)
            yield answer

    def _receive_datagram(self) -> bytes:
        """Receive a datagram of the kernel; one of a process is empty.

        Raises:
            BlockingIOError: There is none, or none in time.
        """
        data, (port, _) = self._socket.recvfrom(MAX_DATAGRAM)
        return data if port == 0 else b""

    def _drain(self) -> None:
        """Read and discard the rest of an abandoned dump: until then the kernel refuses the next one with EBUSY."""
        with suppress(BlockingIOError):
            for _ in range(MAX_DRAINED_DATAGRAMS):
                self._socket.recv(MAX_DATAGRAM, socket.MSG_DONTWAIT)


def _error(number: int) -> NetlinkError:
    """Return the error of a code; one above the kernel's largest (include/linux/err.h) is no errno."""
    if number > MAX_ERRNO:
        return NetlinkError(errno.EPROTO, f"netlink: error {number}")
    return NetlinkError(number, os.strerror(number))


def _set_receive_timeout(sock: socket.socket, seconds: float) -> None:
    """Set the kernel's receive timer; Python's own timeout would call poll() before each datagram of a dump."""
    timer = struct.pack("@ll", *divmod(int(seconds * 1e6), 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timer)


def _subscribe(sock: socket.socket, groups: int) -> None:
    """Receive the notifications of these groups, in a large buffer, without waiting for any."""
    sock.setblocking(False)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, NOTIFICATION_BUFFER)
    except PermissionError:  # without CAP_NET_ADMIN net.core.rmem_max limits it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NOTIFICATION_BUFFER)
    sock.bind((0, groups))


class SharedNetlinkSockets:
    """A pool of sockets of one family: a request that hangs blocks no other, and none receives the answer of another.

    All sockets are opened at once: they stay in the network namespace of the thread that makes this object. A family
    that the kernel lacks, or that this process may not use, fails each request, not the constructor.
    """

    def __init__(self, family: int) -> None:
        """Open the sockets.

        Raises:
            OSError: This process or host has no resources for more sockets.
        """
        self._idle: list[NetlinkSocket] = []
        self._closed = False
        self._refusal = 0
        try:
            for _ in range(SHARED_SOCKETS):
                self._idle.append(NetlinkSocket(family))
        except OSError as error:
            self.close()
            if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                raise
            self._refusal = errno.EOPNOTSUPP if error.errno == errno.EPROTONOSUPPORT else error.errno or errno.EIO

    def close(self) -> None:
        """Close the sockets, those in use when their request returns; idempotent."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def request(self, kind: int, body: bytes) -> bytes:
        """Send a request; see NetlinkSocket.

        Raises:
            OSError: EBUSY if all sockets wait for answers, EBADF after `close`, or why the family cannot be used.
        """
        if self._refusal:
            raise OSError(self._refusal, f"netlink: {os.strerror(self._refusal)}")
        if self._closed:
            raise OSError(errno.EBADF, "netlink: closed")
        try:
            sock = self._idle.pop()
        except IndexError:
            raise OSError(errno.EBUSY, "netlink: earlier requests have not returned") from None
        try:
            return sock.request(kind, body)
        finally:
            self._idle.append(sock)
            if self._closed:
                self.close()
