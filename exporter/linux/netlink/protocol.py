"""What all families of netlink share: messages, attributes, and a socket that asks the kernel.

Layouts: netlink(7), include/uapi/linux/netlink.h. All numbers are in the byte order of the machine. A request is
answered by messages of its own sequence number; a dump by several, and an end that says whether it is whole.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Self

MESSAGE = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""

ATTRIBUTE = struct.Struct("=HH")
"""nlattr: length with these four bytes, type."""

ERROR = 2
DONE = 3
REQUEST = 0x1
ACK = 0x4
DUMP_INTERRUPTED = 0x10
DUMP = 0x300

NESTED = 0x8000
"""Flag in an attribute's type; older kernels leave it out."""

TYPE_MASK = 0x3FFF

DATAGRAM = 64 * 1024
"""Bytes of the largest datagram of a dump: the kernel fills them up to 32 KiB."""

ATTEMPTS = 5
"""How often a dump is begun: things come and go while one runs, and each change may interrupt it."""

DRAIN_LIMIT = 10_000
"""Datagrams of a dump that was given up, to be read before the next request."""

MAX_ANSWERS = 100_000
"""Messages of one dump; what lists more is no list."""

SHARED = 2
"""Sockets of those that threads share: one may be held by a call that hangs."""

_U32 = struct.Struct("=I")
_S32 = struct.Struct("=i")


class NetlinkError(OSError):
    """The kernel refused a request; `errno` is its answer."""


class DumpInterrupted(NetlinkError):  # noqa: N818 - the name of the kernel's flag
    """Things changed while they were dumped: one may be missing or doubled, so the dump has to be repeated."""

    def __init__(self) -> None:
        super().__init__(errno.EINTR, "what was listed changed while it was read; read it again")


class Message(NamedTuple):
    """One message without its header, which is padded to four bytes."""

    kind: int
    flags: int
    sequence: int
    body: bytes


def message(kind: int, flags: int, sequence: int, body: bytes = b"") -> bytes:
    """Build a message."""
    return MESSAGE.pack(MESSAGE.size + len(body), kind, flags, sequence, 0) + body


def attribute(kind: int, payload: bytes) -> bytes:
    """Build an attribute, padded; a nested one has NESTED in its kind and attributes as its payload."""
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(payload), kind) + payload + bytes(-len(payload) & 3)


def attribute_u32(kind: int, value: int) -> bytes:
    """Build an attribute that holds one number of 32 bits."""
    return attribute(kind, _U32.pack(value))


def attribute_text(kind: int, value: str) -> bytes:
    """Build an attribute that holds a string, with the NUL that the kernel wants."""
    return attribute(kind, os.fsencode(value) + b"\0")


def attribute_device(kind: int, device: str) -> bytes:
    """Build an attribute that names a device.

    Raises:
        OSError: ENODEV for what is no name of a device; the kernel might cut it, and find another device.
    """
    if not 0 < len(os.fsencode(device)) < 16 or "\0" in device:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), device)
    return attribute_text(kind, device)


def messages(data: bytes) -> Iterator[Message]:
    """Take a datagram apart; what is cut or broken ends it."""
    offset, end = 0, len(data)
    while end - offset >= MESSAGE.size:
        length, kind, flags, sequence, _ = MESSAGE.unpack_from(data, offset)
        if length < MESSAGE.size or offset + length > end:
            return
        yield Message(kind, flags, sequence, data[offset + MESSAGE.size : offset + length])
        offset += length + (-length & 3)


def attributes(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """List attributes, type without flags and payload, in their order; what is cut or broken ends the list."""
    end = len(data)
    while end - start >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data, start)
        if length < ATTRIBUTE.size or start + length > end:
            return
        yield kind & TYPE_MASK, data[start + ATTRIBUTE.size : start + length]
        start += (length + 3) & -4


def number(payload: bytes | None) -> int | None:
    """Read an unsigned number of 1, 2, 4 or 8 bytes; None for none, or one of another size."""
    if payload is None or len(payload) not in {1, 2, 4, 8}:
        return None
    return int.from_bytes(payload, sys.byteorder)


def text(payload: bytes | None) -> str | None:
    """Read a string that ends at NUL; any byte is legal in a device's name, and two names must stay two."""
    if payload is None:
        return None
    return payload.partition(b"\0")[0].decode("utf-8", "backslashreplace")


class Requests:
    """A socket that asks the kernel; blocking, so it belongs in a worker thread, and one thread at a time.

    It stays in the network namespace of the thread that made it.
    """

    def __init__(self, family: int, timeout: float = 5.0) -> None:
        """Open the socket.

        Args:
            family: Number of the netlink family.
            timeout: Seconds to wait for each datagram.

        Raises:
            OSError: The kernel lacks the family (EPROTONOSUPPORT), or refuses.
        """
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._sequence = 0
        # The kernel's own timer: Python's would wait in poll() before each of a dump's datagrams.
        timer = struct.pack("@ll", *divmod(int(timeout * 1e6), 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; closing twice does no harm."""
        self._socket.close()

    def ask(self, kind: int, body: bytes) -> bytes:
        """Ask for one thing; give the body of the answer.

        Raises:
            NetlinkError: The kernel refused; its errno says why.
            TimeoutError: It did not answer in time.
        """
        sequence = self._send(kind, REQUEST, body)
        while True:
            for answer in self._receive(sequence):
                if answer.kind != ERROR:
                    return answer.body

    def dump(self, kind: int, body: bytes = b"") -> list[bytes]:
        """Ask for a list; give the body of each answer.

        Raises:
            DumpInterrupted: What is listed kept changing through all attempts.
            NetlinkError: The kernel refused; its errno says why.
            TimeoutError: It did not answer in time.
        """
        for _ in range(ATTEMPTS - 1):
            with suppress(DumpInterrupted):
                return self._dump(kind, body)
        return self._dump(kind, body)

    def _dump(self, kind: int, body: bytes) -> list[bytes]:
        sequence = self._send(kind, REQUEST | DUMP, body)
        found: list[bytes] = []
        while True:
            for answer in self._receive(sequence):
                if answer.flags & DUMP_INTERRUPTED:
                    raise DumpInterrupted
                if answer.kind == DONE:
                    return found
                if len(found) >= MAX_ANSWERS:
                    raise NetlinkError(errno.EOVERFLOW, f"netlink: a list of more than {MAX_ANSWERS} entries")
                found.append(answer.body)

    def _send(self, kind: int, flags: int, body: bytes) -> int:
        """Send a request under a new number, after reading to its end what an earlier one left unread."""
        with suppress(BlockingIOError):
            for _ in range(DRAIN_LIMIT):
                self._socket.recv(DATAGRAM, socket.MSG_DONTWAIT)
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        self._socket.send(message(kind, flags, self._sequence, body))
        return self._sequence

    def _receive(self, sequence: int) -> Iterator[Message]:
        """Give the messages of one datagram that answer a request.

        Raises:
            NetlinkError: One of them is an error.
        """
        try:
            data, (port, _) = self._socket.recvfrom(DATAGRAM)
        except BlockingIOError:
            raise TimeoutError(errno.ETIMEDOUT, "netlink: the kernel did not answer in time") from None
        if port != 0:  # from a process, not from the kernel
            return
        for answer in messages(data):
            if answer.sequence != sequence:
                continue
            if answer.kind in {ERROR, DONE} and len(answer.body) >= _S32.size:
                code = _S32.unpack_from(answer.body)[0]
                if code < 0:
                    raise NetlinkError(-code, os.strerror(-code))
            yield answer


class SharedRequests:
    """Asks by whichever socket is free, so that a call that hangs holds up no other and takes no other's answer.

    All sockets are opened at once: they stay in the network namespace of the thread that makes this object. A family
    that the kernel lacks, or that this process may not use, is refused at each request, not at the start.
    """

    def __init__(self, family: int) -> None:
        """Open the sockets.

        Raises:
            OSError: There is no room for more sockets.
        """
        self._free: list[Requests] = []
        self._closed = False
        self._refusal = 0
        try:
            for _ in range(SHARED):
                self._free.append(Requests(family))
        except OSError as error:
            self.close()
            if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                raise
            self._refusal = errno.EOPNOTSUPP if error.errno == errno.EPROTONOSUPPORT else error.errno or errno.EIO

    def close(self) -> None:
        """Close the sockets, one that is in use when its answer has come; closing twice does no harm."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def ask(self, kind: int, body: bytes) -> bytes:
        """See Requests; EBUSY when all sockets wait for answers."""
        if self._refusal:
            raise OSError(self._refusal, f"netlink: {os.strerror(self._refusal)}")
        if self._closed:
            raise OSError(errno.EBADF, "netlink: closed")
        try:
            requests = self._free.pop()
        except IndexError:
            raise OSError(errno.EBUSY, "netlink: earlier calls have not come back") from None
        try:
            return requests.ask(kind, body)
        finally:
            self._free.append(requests)
            if self._closed:
                self.close()
