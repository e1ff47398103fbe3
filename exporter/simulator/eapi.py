"""A simulated Arista switch: eAPI's JSON-RPC over answers by command, with HTTP Basic.

Whoever drives it changes `EapiSwitch.answers` and `EapiSwitch.faults` at any time; the next request shows it. A command
that has no answer ends its request, as on a real switch.
"""

import asyncio
import json
import socket
import ssl
from base64 import b64decode
from binascii import Error as NotBase64Error
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from exporter.outputs.http import Application, ConnectionStats, Server
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import Request

_JSON = ((b"content-type", b"application/json"),)
_PAGE = b"<!DOCTYPE html><html><body>It works.</body></html>"


@dataclass(slots=True)
class EapiFaults:
    """What goes wrong, until it is set back.

    Attributes:
        html: Every request is answered by a web page, with 200.
        delay: Seconds before an answer.
        errors: Code, message and words by command, of commands that fail.
    """

    html: bool = False
    delay: float = 0.0
    errors: dict[str, tuple[int, str, list[str]]] = field(default_factory=dict)


@dataclass(slots=True)
class EapiSwitch:
    """The model of a switch, and what its clients did so far.

    Attributes:
        answers: By command.
        requests: Commands of each request.
        refused: Requests with a wrong user or password.
    """

    answers: dict[str, object] = field(default_factory=dict)
    username: str = "monitor"
    password: str = "monitor"  # noqa: S105 - of a switch that does not exist
    faults: EapiFaults = field(default_factory=EapiFaults)
    requests: list[list[str]] = field(default_factory=list)
    refused: int = 0

    def run(self, commands: list[str]) -> dict[str, object]:
        """Give result or error of a request."""
        self.requests.append(commands)
        results: list[object] = []
        for place, command in enumerate(commands, start=1):
            code, message, words = self.faults.errors.get(command, (0, "", []))
            if command not in self.answers and not code:
                code, message, words = 1002, "invalid command", [f"Invalid input (at token 1: {command.split()[1]!r})"]
            if code:
                said = f"CLI command {place} of {len(commands)} {command!r} failed: {message}"
                return {"error": {"code": code, "message": said, "data": [*results, {"errors": words}]}}
            results.append(self.answers[command])
        return {"result": results}


class EapiSimulator:
    """The web server of one simulated switch on loopback; `async with` starts and stops it.

    Args:
        switch: the model that it shows.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: EapiSwitch, *, certificate: Path | None = None) -> None:
        self.switch = switch
        self._socket = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        tls = None
        if certificate is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate)
        self._server = Server(_Application(switch), ConnectionStats(), tls=tls)

    async def __aenter__(self) -> Self:
        await self._server.listen(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(1.0)
        self._socket.close()


class _Application(Application):
    """What the switch answers."""

    max_body = 1 << 16

    def __init__(self, switch: EapiSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Serve one request; a client that hangs up ends it."""
        await asyncio.sleep(self._switch.faults.delay)
        return self._reply(request)

    def _reply(self, request: Request) -> Reply:
        switch = self._switch
        if _login(request) != (switch.username, switch.password):
            switch.refused += 1
            return text(401, "Unable to authenticate user: Bad username/password combination")
        if switch.faults.html:
            return Reply(200, ((b"content-type", b"text/html"),), (_PAGE,))
        if request.method != "POST" or request.path != "/command-api":
            return text(404, "not found")
        call = json.loads(request.body)
        answer = {"jsonrpc": "2.0", "id": call["id"], **switch.run(call["params"]["cmds"])}
        return Reply(200, _JSON, (json.dumps(answer).encode(),))


def _login(request: Request) -> tuple[str, str] | None:
    scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
    try:
        user, _, password = b64decode(token, validate=True).decode().partition(":")
    except (NotBase64Error, UnicodeDecodeError):
        return None
    return (user, password) if scheme == b"Basic" else None
