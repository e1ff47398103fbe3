"""Accepts connections and performs their TLS handshakes, both bounded from accept on.

asyncio's own server reports a connection after its handshake: until then nothing counts it, and nothing can close it.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
SHUTDOWN_TIMEOUT = 1.0
BACKLOG = 512
ACCEPT_PAUSE = 1.0  # after an error that is not of one connection, such as no descriptors

_OF_ONE_CONNECTION = frozenset(
    {
        errno.ECONNABORTED,
        errno.ENETDOWN,
        errno.EPROTO,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.EPERM,
    }
)
"""Errors of a connection that was lost before it was accepted (accept(2), "Error handling")."""


class Listener:
    """Accepts connections on sockets; those in their TLS handshake are in `handshakes`, which start with the oldest.

    Args:
        protocol: Creates the protocol of a connection, which calls `made` once its handshake is complete.
        has_room: Called for each accepted connection, which is closed at once where it returns False.
        failed: Called with the error of a handshake that failed or took longer than HANDSHAKE_TIMEOUT.
        tls: The context of TLS; None for plain connections, whose handshake is that of TCP and already complete.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        has_room: Callable[[], bool],
        failed: Callable[[OSError], None],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.handshakes: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}
        self.sockets: list[socket.socket] = []
        self._protocol = protocol
        self._has_room = has_room
        self._failed = failed
        self._tls = tls
        self._failing = False
        self._retry: asyncio.TimerHandle | None = None

    def listen(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket, which is closed by `close`."""
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self.sockets.append(sock)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    async def close(self) -> None:
        """Stop accepting, and abort handshakes."""
        if self._retry is not None:
            self._retry.cancel()
        for sock in self.sockets:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        self.sockets.clear()
        tasks = list(self.handshakes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abort_oldest(self) -> None:
        """Abort the handshake that started first."""
        self.handshakes.pop(next(iter(self.handshakes))).cancel()

    def made(self, protocol: asyncio.BaseProtocol) -> None:
        """The handshake of a connection is complete: it is no longer counted here."""
        self.handshakes.pop(protocol, None)

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection: the event loop calls again if more are queued, after what else is to be done."""
        try:
            sock, _ = listening.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in _OF_ONE_CONNECTION:
                self._pause(error)
            return
        self._failing = False
        self._start(sock)

    def _pause(self, error: OSError) -> None:
        if not self._failing:
            logger.error("cannot accept connections, trying every second: %s", error.strerror)
        self._failing = True
        loop = asyncio.get_running_loop()
        for sock in self.sockets:
            loop.remove_reader(sock)
        self._retry = loop.call_later(ACCEPT_PAUSE, self._resume)

    def _resume(self) -> None:
        for sock in self.sockets:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _start(self, sock: socket.socket) -> None:
        if not self._has_room():
            sock.close()
            return
        protocol = self._protocol()
        task = asyncio.get_running_loop().create_task(self._connect(sock, protocol))
        self.handshakes[protocol] = task

        def end(_: asyncio.Task[None]) -> None:
            if self.handshakes.pop(protocol, None) is not None or task.cancelled():
                sock.close()  # asyncio leaves it open where its transport was never made

        task.add_done_callback(end)

    async def _connect(self, sock: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        secure = self._tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if secure else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT if secure else None,
            )
        except OSError as error:  # those of OpenSSL included
            self._failed(error)
