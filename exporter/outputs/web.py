"""The server: listening sockets, connections with deadlines, TLS, and an orderly stop.

HTTP/1.1 is uvicorn's protocol class on h11. uvicorn's own server is not used: it takes over the process's signals,
wakes ten times a second, and lets a connection that sends nothing stay for ever.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from exporter.outputs.webapp import DEFAULT_MAX_REQUESTS, Handlers, WebApp, WebStats

if TYPE_CHECKING:  # only with a web configuration file; YAML and bcrypt cost memory
    from exporter.outputs.webconfig import WebConfigFile
    from exporter.outputs.webtls import TlsListener

__all__ = ["Handlers", "ListenError", "WebServer", "WebStats", "parse_listen_address"]

log = logging.getLogger(__name__)
# What uvicorn would say about one client's bad request is counted, not logged.
_http_log = log.getChild("http")
_http_log.setLevel(logging.ERROR)

MAX_CONNECTIONS = 512
MAX_HEADER_SIZE = 16 * 1024
HANDSHAKE_TIMEOUT = 10.0
SHUTDOWN_TIMEOUT = 1.0
HEADER_TIMEOUT = 10.0
STALL_TIMEOUT = 30.0  # a client that takes nothing of its answer for so long
KEEP_ALIVE_TIMEOUT = 120  # longer than usual scrape intervals: a TLS handshake costs more than a scrape
_BACKLOG = 128


class ListenError(OSError):
    """An address cannot be listened on: the text names it, the reason and the remedy."""


def parse_listen_address(text: str) -> tuple[str, int]:
    """Split ":10315", "host:10315" or "[::1]:10315" into host and port; host "" means all addresses.

    Raises:
        ValueError: names the value and what it should look like.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or (":" in host) != bracketed or "/" in host:
        raise ValueError(f"--web.listen-address: {text!r}: write :PORT, HOST:PORT or [IPV6]:PORT")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"--web.listen-address: {text!r}: the port {port!r} is no number from 0 to 65535")
    return host, int(port)


class WebServer:
    """Serves `handlers` on all `addresses` (see parse_listen_address), by the web configuration file if there is one.

    Raises:
        WebConfigError: the web configuration, or a file it names, is wrong.
        ValueError: an address or the telemetry path is wrong.
    """

    def __init__(
        self,
        handlers: Handlers,
        addresses: Sequence[str],
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = DEFAULT_MAX_REQUESTS,
        config_file: Path | None = None,
    ) -> None:
        self._wanted = [(text, *parse_listen_address(text)) for text in addresses]
        security: WebConfigFile | None = None
        self.tls: TlsListener | None = None
        if config_file is not None:
            security, self.tls = _secure(config_file)
        self._app = WebApp(handlers, telemetry_path=telemetry_path, max_requests=max_requests, security=security)
        self.stats = self._app.stats
        self.config = uvicorn.Config(
            self._app,
            loop="none",
            http=H11Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            workers=1,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
            h11_max_incomplete_event_size=MAX_HEADER_SIZE,
        )
        self.state = ServerState()
        self._servers: list[asyncio.Server] = []
        self.all_closed = asyncio.Event()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Give (host, port) of every socket that is bound."""
        return [s.getsockname()[:2] for server in self._servers for s in server.sockets]

    async def start(self) -> None:
        """Bind every address, then accept connections; raise ListenError with nothing left open."""
        self.config.load()
        bound: list[socket.socket] = []
        try:
            for text, host, port in self._wanted:
                bound.append(await _bind(text, host, port))
        except ListenError:
            for sock in bound:
                sock.close()
            raise
        loop = asyncio.get_running_loop()
        for sock in bound:
            server = await loop.create_server(
                lambda: _Connection(self),
                sock=sock,
                backlog=_BACKLOG,
                ssl=self.tls.context if self.tls is not None else None,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self.tls is not None else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT if self.tls is not None else None,
            )
            self._servers.append(server)

    async def stop(self, grace: float) -> None:
        """Accept no more, finish the answers that are being sent within `grace` seconds, cut what is left."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        connections: set[_Connection] = self.state.connections  # type: ignore[assignment]  # all made in start
        self.all_closed.clear()
        for connection in list(connections):
            connection.shutdown()
        if connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.all_closed.wait(), grace)
        for connection in list(connections):
            connection.cut()
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._app.close()


def _secure(config_file: Path) -> "tuple[WebConfigFile, TlsListener | None]":
    from exporter.outputs.webconfig import WebConfigFile  # noqa: PLC0415 - YAML and bcrypt only where asked for
    from exporter.outputs.webtls import TlsListener  # noqa: PLC0415 - the same

    security = WebConfigFile(config_file)
    tls = security.current().tls
    return security, TlsListener(security, tls) if tls is not None else None


async def _bind(text: str, host: str, port: int) -> socket.socket:
    """Bind as Go's net.Listen does: all addresses of both families for "", else the host's first, IPv4 preferred."""
    try:
        if host in {"", "::"}:
            return _bind_all(port)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
        return _bind_one(_socket(family), address)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "the port is in use; stop what uses it, or choose another with --web.listen-address"
        elif error.errno in {errno.EACCES, errno.EPERM}:
            reason = "not permitted; ports below 1024 need CAP_NET_BIND_SERVICE, choose one above"
        raise ListenError(f"cannot listen on {text}: {reason}") from error


def _socket(family: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def _bind_all(port: int) -> socket.socket:
    try:
        sock = _socket(socket.AF_INET6)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bind_one(sock, ("::", port))
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return _bind_one(_socket(socket.AF_INET), ("0.0.0.0", port))  # noqa: S104 - asked for


def _bind_one(sock: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)  # not bind but listen finds some ports in use
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class _Connection(H11Protocol):
    """One connection, with the deadlines and bounds that uvicorn's protocol leaves out."""

    def __init__(self, server: WebServer) -> None:
        super().__init__(server.config, server.state, {})
        self.logger = _http_log
        self._web = server
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if len(self.connections) > MAX_CONNECTIONS:
            self._web.stats.refused_connections += 1
            transport.abort()
        elif tls is not None and self._web.tls is not None and not self._web.tls.admits(tls):
            self._web.stats.refused_client_names += 1
            transport.abort()
        else:
            self._arm(HEADER_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        answering = self._answering()
        if self._timer is None and not answering:
            self._arm(HEADER_TIMEOUT)  # the next request on a kept connection begins
        super().data_received(data)
        if self._answering() and not answering:
            self._disarm()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm(STALL_TIMEOUT)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.transport.is_closing():
            self._arm(STALL_TIMEOUT)
        else:
            self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._arm(STALL_TIMEOUT)  # closing waits for what is not sent yet

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.cut()
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if not self.connections:
            self._web.all_closed.set()

    def shutdown(self) -> None:
        with contextlib.suppress(h11.LocalProtocolError):
            super().shutdown()
        if not self._answering():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._web.stats.malformed_requests += 1
        if self._answering():
            # The request's body is malformed while its answer is under way: there is no second answer to give.
            self.cut()
        else:
            with contextlib.suppress(h11.LocalProtocolError):
                super().send_400_response(msg)
            self.transport.close()

    def cut(self) -> None:
        """End the connection now; whoever still writes to it writes into nothing."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._web.stats.timeouts += 1
        self.cut()
