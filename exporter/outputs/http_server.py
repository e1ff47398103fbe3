"""An HTTP/1.1 server: connections with deadlines and bounds, and the writing of answers.

It knows nothing of what is served: an `Application` makes the answers. An answer that is ready at once costs no task
and, where it is short, a single send. Each connection is in one of these states:

* a request is awaited or on its way: within HEADER_TIMEOUT of its first byte it has to be there whole;
* an answer is made: that takes as long as the application needs, and what the client sends meanwhile waits;
* an answer is sent: the client has to take it in, with no pause longer than STALL_TIMEOUT;
* nothing is to do: the connection is kept for KEEP_ALIVE_TIMEOUT;
* it ends: what is not sent yet is sent.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from exporter.outputs.reply import (
    Headers,
    Reply,
    head_of,
    text,
)
from exporter.outputs.request import (
    MAX_HEAD_SIZE,
    RefusedError,
    Request,
    RequestReader,
)

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
DESCRIPTORS_PER_CONNECTION = 8  # of those the process may have: connections leave the others to what is served
HANDSHAKE_TIMEOUT = 10.0
SHUTDOWN_TIMEOUT = 1.0
HEADER_TIMEOUT = 10.0
STALL_TIMEOUT = 30.0  # a client that takes nothing of its answer for so long
KEEP_ALIVE_TIMEOUT = 120.0  # longer than usual scrape intervals: a TLS handshake costs more than a scrape
LINGER_TIMEOUT = 2.0
BACKLOG = 512
READ_SIZE = 32 * 1024


class Application:
    """What a server serves. Of a request's body up to `max_body` bytes are read.

    With 0 no body is read, and the connection ends after the answer to a request that has one.
    """

    max_body = 0

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        """Give the answer, or, where it takes time, what to await; that is cancelled when the client hangs up."""
        raise NotImplementedError

    def ended(self, request: Request, status: int | None) -> None:
        """Learn, once for each call of `answer`, what was sent; None is what the client did not wait for."""

    def headers(self) -> Headers:
        """Give headers for every answer; they replace those of the same names, which are in lower case."""
        return ()


@dataclass(slots=True)
class ConnectionStats:
    """What happened to connections so far; all only grow."""

    refused_connections: int = 0
    refused_client_names: int = 0
    malformed_requests: int = 0
    timeouts: int = 0


class Server:
    """Serves `app` on the sockets that it is told to listen on; `admits` judges clients after the TLS handshake."""

    def __init__(
        self,
        app: Application,
        stats: ConnectionStats,
        *,
        tls: ssl.SSLContext | None = None,
        admits: Callable[[ssl.SSLObject], bool] | None = None,
    ) -> None:
        self.app = app
        self.stats = stats
        self.admits = admits
        self.stopping = False
        self.connections: dict[Connection, None] = {}  # in the order of their last answers, or of their coming
        self.empty = asyncio.Event()
        self.buffer = memoryview(bytearray(READ_SIZE))
        self.max_connections = MAX_CONNECTIONS
        self._tls = tls
        self._listeners: list[asyncio.Server] = []

    @property
    def sockets(self) -> list[socket.socket]:
        """Give the sockets that are listened on."""
        return [sock for listener in self._listeners for sock in listener.sockets]

    async def listen(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket, which is the server's from now on."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.max_connections = min(MAX_CONNECTIONS, max(1, limit // DESCRIPTORS_PER_CONNECTION))
        listener = await asyncio.get_running_loop().create_server(
            lambda: Connection(self),
            sock=sock,
            backlog=1,  # accepted at a time: asyncio logs as many tracebacks when there are no descriptors left
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self._tls is not None else None,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT if self._tls is not None else None,
        )
        sock.listen(BACKLOG)
        self._listeners.append(listener)

    async def stop(self, grace: float) -> None:
        """Accept no more, finish the answers that are being made or sent within `grace` seconds, cut what is left."""
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), grace)
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        for connection in tuple(self.connections):
            connection.cut()
        await asyncio.gather(*tasks, return_exceptions=True)


class Connection(asyncio.BufferedProtocol):
    """One connection: reads and answers one request at a time.

    All connections are read into the server's buffer, each as its turn comes: asyncio's other kind of protocol takes
    256 KiB anew for every read, which costs more than the parsing of the request.
    """

    def __init__(self, server: Server) -> None:
        self.task: asyncio.Task[None] | None = None  # makes or sends an answer that takes time
        self._server = server
        self._app = server.app
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(server.app.max_body)
        self._request: Request | None = None  # what is being answered
        self._last = False  # no request is read after this one
        self._room: asyncio.Future[None] | None = None  # what waits for the client to take in what was sent
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._idle = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections or the client's certificate is not for us."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream, as asyncio promises
        self._transport = transport
        server = self._server
        server.connections[self] = None
        server.empty.clear()
        if len(server.connections) > server.max_connections:
            # Who waits longest makes room: clients that forget their connections, or send slowly, keep nobody out.
            server.stats.refused_connections += 1
            next((one for one in server.connections if one.waits), self).cut()
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if self._last:
            return
        if server.stopping:
            server.stats.refused_connections += 1
            self.cut()
        elif tls is not None and server.admits is not None and not server.admits(tls):
            server.stats.refused_client_names += 1
            self.cut()
        else:
            self._expect_within(HEADER_TIMEOUT)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature is asyncio's
        """Give the place for what the client sent."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what the client sent."""
        if self._last:
            return
        self._reader.received += self._server.buffer[:nbytes]
        if self._request is None and self._room is None:
            self._read()
        elif len(self._reader.received) > MAX_HEAD_SIZE:
            self._transport.pause_reading()  # a client that sends on and on while it is being answered

    def pause_writing(self) -> None:
        """Wait for the client to take in what was sent."""
        self._room = self._loop.create_future()
        self._expect_within(STALL_TIMEOUT)

    def resume_writing(self) -> None:
        """Go on sending."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None
        if self._request is not None:
            self._deadline = None
        elif not self._last:
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """Drop everything; nobody waits for the answer any more."""
        self._last = True
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()
        if self._request is not None:
            self._app.ended(self._request, None)
            self._request = None
        self._server.connections.pop(self, None)
        if not self._server.connections:
            self._server.empty.set()

    # What the server calls.

    @property
    def waits(self) -> bool:
        """Tell whether no answer is being made or sent, so that nothing is lost when it is cut."""
        busy = self._last or self._request is not None or self._room is not None
        return not busy and not self._transport.get_write_buffer_size()

    def finish(self) -> None:
        """End after the answer that is being made or sent, at once if there is none."""
        if self._request is None:
            self._end()

    def cut(self) -> None:
        """End now; what was not sent is lost."""
        self._last = True
        if self.task is not None:
            self.task.cancel()
        self._transport.abort()

    # From request to answer.

    def _read(self) -> None:
        """Answer the next request if it is there whole."""
        if self._last or self._request is not None or self._room is not None:
            return
        try:
            request = self._reader.next_request()
        except RefusedError as refusal:
            self._refuse(refusal)
            return
        if request is not None:
            self._answer(request)
        elif self._reader.begun:
            if self._idle:
                self._expect_within(HEADER_TIMEOUT)
            if self._reader.wants_leave():
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, request: Request) -> None:
        self._request = request
        self._last = not request.keep_alive
        try:
            reply = self._app.answer(request)
        except Exception as error:  # noqa: BLE001 - logged in full
            reply = _failure(request, error)
        if isinstance(reply, Reply) and (reply.parts is None or len(reply.parts) <= 1):
            self._send_first(reply)
            self._answered(reply.status)
        else:
            self._deadline = None
            self.task = self._loop.create_task(self._answer_slowly(request, reply))

    async def _answer_slowly(self, request: Request, pending: Reply | Awaitable[Reply]) -> None:
        try:
            reply = pending if isinstance(pending, Reply) else await pending
        except Exception as error:  # noqa: BLE001 - logged in full
            reply = _failure(request, error)
        for part in self._send_first(reply):
            await asyncio.sleep(0)  # a fast client never makes this wait; others get their turn here
            if self._room is not None:
                await self._room
            self._transport.write(part)
        self.task = None
        self._answered(reply.status)

    def _send_first(self, reply: Reply) -> Sequence[bytes]:
        """Send the head and the first part of the body, together as each write is a send; give the other parts."""
        request, parts = self._request, reply.parts
        self._last = self._last or self._server.stopping
        connection = b""
        if self._last:
            connection = b"close"
        elif request is not None and b"connection" in request.headers:
            connection = b"keep-alive"  # clients of HTTP/1.0 ask, and want to hear
        head = head_of(reply, self._app.headers(), connection)
        if not parts or (request is not None and request.method == "HEAD"):
            self._transport.write(head)
            return ()
        self._transport.write(head + parts[0])
        return parts[1:]

    def _answered(self, status: int) -> None:
        """Go on to the next request, or end."""
        request, self._request = self._request, None
        if request is not None:
            self._app.ended(request, status)
        if self._last or self._server.stopping:
            self._end(unread=request is not None and request.length != 0 and not self._app.max_body)
        elif self._room is None:
            self._rest()

    def _rest(self) -> None:
        """Wait for the next request."""
        self._idle = True
        self._server.connections[self] = self._server.connections.pop(self, None)
        self._expect_within(KEEP_ALIVE_TIMEOUT, idle=True)
        if self._reader.received:
            self._transport.resume_reading()
            self._loop.call_soon(self._read)  # others get their turn between requests that were sent ahead

    def _refuse(self, refusal: RefusedError) -> None:
        self._server.stats.malformed_requests += 1
        self._last = True
        self._send_first(text(refusal.status, str(refusal)))
        self._end(unread=True)

    def _end(self, *, unread: bool = False) -> None:
        """End when all is sent; `unread` when the client may be sending still."""
        self._last = True
        unsent = self._transport.get_write_buffer_size() > 0
        if unread and self._transport.can_write_eof():
            # To close a socket with something unread resets it, and may destroy the answer on its way.
            self._transport.resume_reading()
            self._transport.write_eof()
            self._expect_within(STALL_TIMEOUT if unsent else LINGER_TIMEOUT, idle=not unsent)
        else:
            self._transport.close()
            self._expect_within(STALL_TIMEOUT)

    # Deadlines: the timer is left as it is where it fires before the deadline, and then looks again.

    def _expect_within(self, seconds: float, *, idle: bool = False) -> None:
        self._idle = idle
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look)
        elif self._idle and not self._transport.get_write_buffer_size():
            self._transport.close()
        else:
            self._server.stats.timeouts += 1
            self.cut()


def _failure(request: Request, error: Exception) -> Reply:
    log.error("%s %s failed", request.method, request.target, exc_info=error)
    return text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log tells more")
