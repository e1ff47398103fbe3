"""An HTTP/1.1 server for an `Application`: connections with deadlines and limits.

Why no server of a library: none has these limits. Tried with CPython 3.11 and 1,024 descriptors:

* uvicorn 0.54.0, hypercorn 0.18.0, granian 2.8.9 and aiohttp 3.14.5 do not count connections in their TLS handshake:
  1,100 stalled ones took all descriptors of each. Only hypercorn can limit the time of a handshake.
* With uvicorn, hypercorn and aiohttp, heads sent byte by byte and responses that were not read kept their connections
  for as long as was measured, 50 s. With httptools, uvicorn has no limit of a head: one of 64 MB was received, and took
  as much memory; of 1,000,000 requests sent ahead it kept 2 GB. Neither uvicorn nor hypercorn passes the certificate of
  a client to the application, which checks its names.
* The CPU time of a scrape was 1.3 to 1.6 times that of this server with uvicorn, 3.8 to 5.8 times with hypercorn,
  1.4 to 1.8 times with aiohttp.
* Only `aiohttp.web.Server` can be given accepted connections by its public interface. Behind our listener it needs our
  deadlines and limits of heads and readers as well, which is most of this file. It takes 12.5 MiB more memory than this
  server.

So connections and limits are ours; requests are parsed by a library (request.py), and TLS is asyncio's (listener.py).

A response that is ready at once needs no task and, where it is short, a single send. Each connection is in one of these
states:

* a request is expected or being received: it has to be complete within HEADER_TIMEOUT of its first byte;
* the application produces the response: without a time limit; data that the client sends in the meantime is buffered;
* the response is sent: the client has to read it, with no pause longer than STALL_TIMEOUT;
* idle: the connection is kept open for KEEP_ALIVE_TIMEOUT;
* closing: unsent data is sent first.
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

from exporter.outputs.listener import Listener
from exporter.outputs.reply import Headers, Reply, head_of, text
from exporter.outputs.request import MAX_HEAD_SIZE, RefusedError, Request, RequestReader

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
DESCRIPTORS_PER_CONNECTION = 8  # open files allowed to the process per connection; the sources need the others
HANDSHAKE_SHARE = 4  # of the connections, one in so many can be in its TLS handshake
HEADER_TIMEOUT = 10.0
STALL_TIMEOUT = 30.0  # maximum pause of a client in reading its response
KEEP_ALIVE_TIMEOUT = 120.0  # longer than usual scrape intervals: a TLS handshake costs more than a scrape
LINGER_TIMEOUT = 2.0
READ_SIZE = 32 * 1024


class Application:
    """The application of a server.

    Attributes:
        max_body: Bytes up to which bodies of requests are read. With 0 none is read, and the connection is closed after
            the response to a request that has one.
        max_connections: Connections that the server accepts; set by the server.
    """

    max_body = 0
    max_connections = MAX_CONNECTIONS

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        """Return the response, or an awaitable of it, which is cancelled when the client disconnects."""
        raise NotImplementedError

    def ended(self, request: Request, status: int | None) -> None:
        """Called once for each call of `answer` with the status sent; None where the client disconnected before."""

    def headers(self) -> Headers:
        """Return headers added to each response, names in lower case; they replace those of the same name."""
        return ()


@dataclass(slots=True)
class ConnectionStats:
    """Counters of connections."""

    refused_connections: int = 0
    refused_client_names: int = 0
    malformed_requests: int = 0
    timeouts: int = 0
    failed_handshakes: int = 0


class Server:
    """Serves `app` on sockets; `admits` accepts or rejects a client after the TLS handshake."""

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
        self.connections: dict[Connection, None] = {}  # since when each waits for its client: the longest first
        self.empty = asyncio.Event()
        self.buffer = memoryview(bytearray(READ_SIZE))
        self.max_connections = self.max_handshakes = MAX_CONNECTIONS
        self.listener = Listener(lambda: Connection(self), self._make_room, self._handshake_failed, tls)
        self._handshake_share = 1 if tls is None else HANDSHAKE_SHARE

    @property
    def sockets(self) -> list[socket.socket]:
        """The listening sockets."""
        return self.listener.sockets

    def listen(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket, which the server closes at its end."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.max_connections = min(MAX_CONNECTIONS, max(1, limit // DESCRIPTORS_PER_CONNECTION))
        self.app.max_connections = self.max_connections
        self.max_handshakes = max(1, self.max_connections // self._handshake_share)
        self.listener.listen(sock)

    async def stop(self, grace: float) -> None:
        """Stop accepting, finish responses in progress within `grace` seconds, then abort the remaining connections."""
        self.stopping = True
        await self.listener.close()
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), grace)
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_room(self) -> bool:
        """Return whether one more connection can be accepted.

        Another one is closed for it, so that abandoned and slow clients block no others: of too many handshakes the
        oldest, so that stalled ones close no established connection; else the one that waits for its client longest.
        """
        handshakes = len(self.listener.handshakes)
        if handshakes < self.max_handshakes and handshakes + len(self.connections) < self.max_connections:
            return True
        self.stats.refused_connections += 1
        if handshakes < self.max_handshakes:
            for connection in self.connections:
                if connection.waits_for_client:
                    connection.abort()
                    return True
        if handshakes:
            self.listener.abort_oldest()
        return handshakes > 0

    def _handshake_failed(self, error: OSError) -> None:
        if isinstance(error, ConnectionAbortedError):  # asyncio raises it at the timeout
            self.stats.timeouts += 1
        elif isinstance(error, ssl.SSLError):
            self.stats.failed_handshakes += 1


class Connection(asyncio.BufferedProtocol):
    """One connection: reads and answers one request at a time.

    All connections are read into one buffer of the server: asyncio's `Protocol` allocates 256 KiB for each read, which
    costs more than parsing the request.
    """

    def __init__(self, server: Server) -> None:
        self.task: asyncio.Task[None] | None = None  # produces or sends a response that is not ready at once
        self._server = server
        self._app = server.app
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(server.app.max_body)
        self._request: Request | None = None  # the request being answered
        self._last = False  # no request is read after this one
        self._room: asyncio.Future[None] | None = None  # done when the client has read what was sent
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._idle = False

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, unless the client's certificate is not allowed."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio guarantees it for a stream
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if isinstance(peer, tuple) else ""
        server = self._server
        server.listener.made(self)
        server.connections[self] = None
        server.empty.clear()
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None and server.admits is not None and not server.admits(tls):
            server.stats.refused_client_names += 1
            self.abort()
        else:
            self._expect_within(HEADER_TIMEOUT)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature is asyncio's
        """Return the buffer for received data."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process received data."""
        if self._last:
            return
        self._reader.received += self._server.buffer[:nbytes]
        if self._request is None and self._room is None:
            self._read()
        elif len(self._reader.received) > MAX_HEAD_SIZE:
            self._transport.pause_reading()  # a client that keeps sending while its request is answered

    def pause_writing(self) -> None:
        """Start the deadline for the client to read what was sent."""
        self._room = self._loop.create_future()
        self._expect_within(STALL_TIMEOUT)

    def resume_writing(self) -> None:
        """Continue sending."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None
        if self._request is not None:
            self._deadline = None
        elif not self._last:
            self._await_next()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """Release the connection; a response in progress is cancelled."""
        self._last = True
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()
        if self._request is not None:
            self._app.ended(self._request, None)
            self._request = None
        self._forget()

    # Called by the server.

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send a request, or to read a response."""
        return self._request is None or self._room is not None

    def finish(self) -> None:
        """Close after the response in progress, at once if there is none."""
        if self._request is None:
            self._end()

    def abort(self) -> None:
        """Close at once; unsent data is lost."""
        self._last = True
        if self.task is not None:
            self.task.cancel()
        self._transport.abort()
        self._forget()

    def _forget(self) -> None:
        self._server.connections.pop(self, None)
        if not self._server.connections:
            self._server.empty.set()

    # From request to response.

    def _read(self) -> None:
        """Answer the next request if it is complete."""
        if self._last or self._request is not None or self._room is not None:
            return
        try:
            request = self._reader.next_request()
        except RefusedError as refusal:
            self._refuse(refusal)
            return
        if request is not None:
            request.client = self._client
            self._answer(request)
        elif self._reader.begun:
            if self._idle:
                self._expect_within(HEADER_TIMEOUT)
            if self._reader.expects_continue():
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
            await asyncio.sleep(0)  # yields to other tasks, as writes to a fast client never wait
            if self._room is not None:
                await self._room
            self._transport.write(part)
        self.task = None
        self._answered(reply.status)

    def _send_first(self, reply: Reply) -> Sequence[bytes]:
        """Send the head and the first part of the body in one write, which is one send; return the other parts."""
        request, parts = self._request, reply.parts
        self._last = self._last or self._server.stopping
        connection = b""
        if self._last:
            connection = b"close"
        elif request is not None and b"connection" in request.headers:
            connection = b"keep-alive"  # required for clients of HTTP/1.0
        head = head_of(reply, self._app.headers(), connection)
        if not parts or (request is not None and request.method == "HEAD"):
            self._transport.write(head)
            return ()
        self._transport.write(head + parts[0])
        return parts[1:]

    def _answered(self, status: int) -> None:
        """Continue with the next request, or close."""
        request, self._request = self._request, None
        if request is not None:
            self._app.ended(request, status)
        if self._last or self._server.stopping:
            self._end(unread=request is not None and request.length != 0 and not self._app.max_body)
        elif self._room is None:
            self._await_next()

    def _await_next(self) -> None:
        """Wait for the next request."""
        self._expect_within(KEEP_ALIVE_TIMEOUT, idle=True)
        if self._reader.received:
            self._transport.resume_reading()
            self._loop.call_soon(self._read)  # yields to other connections between pipelined requests

    def _refuse(self, refusal: RefusedError) -> None:
        self._server.stats.malformed_requests += 1
        self._last = True
        self._send_first(text(refusal.status, str(refusal)))
        self._end(unread=True)

    def _end(self, *, unread: bool = False) -> None:
        """Close when all is sent; `unread` where the client may still be sending."""
        self._last = True
        unsent = self._transport.get_write_buffer_size() > 0
        if unread and self._transport.can_write_eof():
            # Closing a socket with unread data resets the connection, and may discard the response in transit.
            self._transport.resume_reading()
            self._transport.write_eof()
            self._expect_within(STALL_TIMEOUT if unsent else LINGER_TIMEOUT, idle=not unsent)
        else:
            self._transport.close()
            self._expect_within(STALL_TIMEOUT)

    # Deadlines. A timer that fires before the deadline is not replaced: it is started again when it fires.

    def _expect_within(self, seconds: float, *, idle: bool = False) -> None:
        self._idle = idle
        if self in self._server.connections:  # it is not once it is aborted
            self._server.connections[self] = self._server.connections.pop(self)
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        elif self._idle and not self._transport.get_write_buffer_size():
            self._transport.close()
        else:
            self._server.stats.timeouts += 1
            self.abort()


def _failure(request: Request, error: Exception) -> Reply:
    logger.error("%s %s failed", request.method, request.target, exc_info=error)
    return text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log")
