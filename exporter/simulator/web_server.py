"""Web server of a simulated switch API on loopback, HTTP Basic, and common responses."""

import json
import socket
import ssl
from base64 import b64decode
from binascii import Error as NotBase64Error
from pathlib import Path
from typing import Self

from exporter.outputs.http_server import Application, ConnectionStats, Server
from exporter.outputs.reply import Reply
from exporter.outputs.request import Request

JSON = "application/json"


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
        await self._server.listen(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(1.0)
        self._socket.close()


def basic_credentials(request: Request) -> tuple[str, str] | None:
    """Return user and password of HTTP Basic; None where the request has none."""
    scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
    try:
        user, _, password = b64decode(token, validate=True).decode().partition(":")
    except (NotBase64Error, UnicodeDecodeError):
        return None
    return (user, password) if scheme == b"Basic" else None


def json_reply(
    value: object, status: int = 200, *headers: tuple[bytes, bytes], kind: str = JSON, padding: int = 0
) -> Reply:
    """Return a response with JSON of the media type `kind`, followed by `padding` bytes of white space."""
    body = json.dumps(value).encode() + b" " * padding
    return Reply(status, ((b"content-type", kind.encode()), *headers), (body,))


def web_page() -> Reply:
    """Return the response of a web server without the API."""
    body = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works.</body></html>"
    return Reply(200, ((b"content-type", b"text/html"),), (body,))
