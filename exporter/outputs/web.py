"""The web server: the application on its listening sockets, with the web configuration file."""

import asyncio
import errno
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.config.addresses import is_ip_address
from exporter.config.errors import UserError
from exporter.outputs.http_server import Connection, Server
from exporter.outputs.listener import BACKLOG
from exporter.outputs.webapp import (
    DEFAULT_MAX_REQUESTS,
    Handlers,
    ProbeAnswer,
    ProbeRequest,
    WebApp,
    WebStats,
)

if TYPE_CHECKING:  # only with a web configuration file; YAML and bcrypt cost memory
    from exporter.outputs.webconfig import WebConfigFile
    from exporter.outputs.webtls import TlsListener

__all__ = ["Handlers", "ListenError", "ProbeAnswer", "ProbeRequest", "WebServer", "WebStats", "parse_listen_address"]


class ListenError(UserError):
    """An address cannot be listened on; the text names it, the reason and the remedy."""


def parse_listen_address(text: str) -> tuple[str, int]:
    """Split ":10315", "host:10315" or "[::1]:10315" into host and port; host "" means all addresses.

    Raises:
        UserError: The text is malformed.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:  # an address of either family: manifests have `[$(HOST_IP)]:10315`
        host = host[1:-1]
    if not colon or (":" in host and not bracketed) or "/" in host or (bracketed and not is_ip_address(host)):
        raise UserError(f"--web.listen-address: {text!r}: write :PORT, HOST:PORT or [IPV6]:PORT")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UserError(f"--web.listen-address: {text!r}: the port {port!r} is not a number from 0 to 65535")
    return host, int(port)


class WebServer:
    """Serves `handlers` on all `addresses` (see parse_listen_address), with the web configuration file if there is one.

    Sockets that already listen are served in place of addresses.

    Raises:
        WebConfigError: The web configuration, or a file it names, is invalid.
        UserError: An address or the telemetry path is invalid.
    """

    def __init__(
        self,
        handlers: Handlers,
        addresses: Sequence[str],
        *,
        telemetry_path: str = "/metrics",
        max_requests: int = DEFAULT_MAX_REQUESTS,
        config_file: Path | None = None,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        self._given = sockets
        self._addresses = [(text, *parse_listen_address(text)) for text in addresses]
        security: WebConfigFile | None = None
        self.tls: TlsListener | None = None
        if config_file is not None:
            security, self.tls = _secure(config_file)
        self._app = WebApp(handlers, telemetry_path=telemetry_path, max_requests=max_requests, security=security)
        self.stats = self._app.stats
        self._server = (
            Server(self._app, self.stats)
            if self.tls is None
            else Server(self._app, self.stats, tls=self.tls.context, admits=self.tls.admits)
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each bound socket."""
        return [sock.getsockname()[:2] for sock in self._server.sockets]

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections."""
        return tuple(self._server.connections)

    async def start(self) -> None:
        """Bind every address, then accept connections.

        Raises:
            ListenError: An address cannot be bound; all sockets are closed.
        """
        bound: list[socket.socket] = list(self._given)
        try:
            for text, host, port in () if self._given else self._addresses:
                bound.append(await _bind(text, host, port))
        except ListenError:
            for sock in bound:
                sock.close()
            raise
        for sock in bound:
            self._server.listen(sock)

    async def stop(self, grace: float) -> None:
        """Stop accepting, finish responses in progress within `grace` seconds, then abort the remaining connections."""
        await self._server.stop(grace)
        self._app.close()


def _secure(config_file: Path) -> "tuple[WebConfigFile, TlsListener | None]":
    from exporter.outputs.webconfig import WebConfigFile  # noqa: PLC0415 - YAML and bcrypt only where configured
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
    except UnicodeError:
        raise ListenError(
            f"cannot listen on {text}: the host name is malformed; its labels have 1 to 63 characters each"
        ) from None


def _socket(family: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each response waits 40 ms for an ACK.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def _bind_all(port: int) -> socket.socket:
    try:
        sock = _socket(socket.AF_INET6)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bind_one(sock, ("::", port))
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return _bind_one(_socket(socket.AF_INET), ("0.0.0.0", port))  # noqa: S104 - as configured


def _bind_one(sock: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)  # some ports in use are found by listen, not by bind
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
