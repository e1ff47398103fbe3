"""Web server of a simulated switch API on loopback."""

import socket
import ssl
from pathlib import Path
from typing import Self

from exporter.outputs.http_server import Application, ConnectionStats, Server


class WebServer:
    """Web server of one simulated switch on loopback; `async with` starts and stops it.

    Args:
        application: Returns the responses.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, application: Application, *, port: int = 0, certificate: Path | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        tls = None
        if certificate is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate)
        self._server = Server(application, ConnectionStats(), tls=tls)

    async def __aenter__(self) -> Self:
        self._server.listen(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(1.0)
        self._socket.close()
