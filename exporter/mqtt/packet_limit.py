"""Refusal of MQTT packets for which paho would allocate without a limit.

It reads a packet of any size, up to 256 MiB, before it calls back, and keeps messages with QoS 2 until they are
released. All our subscriptions have QoS 1, so a broker that keeps to the standard sends neither.

paho lets its user replace the socket by a TLS context only, so there is one for connections without TLS, too.
"""

import socket
import ssl
from functools import cached_property

MAX_PACKET_SIZE = 300 * 1024
"""Maximum Packet Size of MQTT, in bytes: the broker does not deliver larger messages; a larger packet is refused."""

_TYPE_AND_QOS = 0b1111_0110
_PUBLISH_QOS_2 = 0b0011_0100

READ_SIZE = 64 * 1024
"""Bytes read from the socket at a time; paho asks for the rest of a packet."""


class PacketRefusedError(Exception):
    """A packet is larger than the maximum, or a PUBLISH with QoS 2."""


class PacketHeaders:
    """Follows the fixed headers of packets in a stream of bytes (MQTT 5.0, section 2.1).

    Args:
        maximum: Largest Remaining Length in bytes.
    """

    def __init__(self, maximum: int = MAX_PACKET_SIZE) -> None:
        self._maximum = maximum
        self._length = 0  # Remaining Length, as far as it was received
        self._shift: int | None = None  # bits of it that were received; None before the first byte of a packet
        self._body_left = 0

    def feed(self, data: bytes) -> None:
        """Process received bytes, each once and in order.

        Raises:
            PacketRefusedError: A packet is refused; the connection has to be closed.
        """
        position = 0
        while position < len(data):
            if self._body_left:
                skipped = min(self._body_left, len(data) - position)
                self._body_left -= skipped
                position += skipped
            else:
                self._feed_header(data[position])
                position += 1

    def _feed_header(self, byte: int) -> None:
        if self._shift is None:  # type and flags
            if byte & _TYPE_AND_QOS == _PUBLISH_QOS_2:
                raise PacketRefusedError("the broker sent a message with QoS 2; the subscriptions have QoS 1")
            self._length = self._shift = 0
            return
        self._length |= (byte & 0x7F) << self._shift
        self._shift += 7
        if byte & 0x80:
            return
        if self._length > self._maximum:
            raise PacketRefusedError(
                f"the broker sent a packet of {self._length} bytes; the maximum is {self._maximum}"
            )
        self._body_left, self._shift = self._length, None


class LimitedSocket(socket.socket):
    """A socket whose `recv` raises PacketRefusedError at the header of a packet that is refused."""

    @cached_property
    def _headers(self) -> PacketHeaders:  # SSLSocket cannot have an __init__
        return PacketHeaders()

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read at most READ_SIZE bytes."""
        data = super().recv(min(size, READ_SIZE), flags)
        self._headers.feed(data)
        return data


class _TcpSocket(LimitedSocket):
    def do_handshake(self) -> None:
        """Do nothing; paho calls this for all sockets that it gets from a context."""


class _ContextWithoutTls(ssl.SSLContext):
    """A context whose sockets use plain TCP."""

    def wrap_socket(self, sock: socket.socket, *_: object, **__: object) -> _TcpSocket:  # type: ignore[override]
        return _TcpSocket(fileno=sock.detach())


def limiting_context(context: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return a context for paho whose sockets refuse such packets; for None, one without TLS."""
    if context is None:
        return _ContextWithoutTls(ssl.PROTOCOL_TLS_CLIENT)
    base = context.sslsocket_class
    if not issubclass(base, LimitedSocket):

        class LimitedTlsSocket(LimitedSocket, base):  # type: ignore[misc,valid-type]
            """The socket of the context, limited."""

        context.sslsocket_class = LimitedTlsSocket
    return context
