"""A simulated Onyx switch: its web server, log-ins, sessions and JSON replies, over a model in memory.

Whoever drives it changes `OnyxSwitch.ports` and `OnyxSwitch.faults` at any time; the next command shows it.
"""

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs

import uvicorn

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]

_LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Log in</title></head><body><form>f_user_id</form></body></html>"
_HOME = "/admin/launch?script=rh&template=home"
_MAX_BODY = 2**16
_CHUNK = b" " * 2**16


@dataclass(slots=True)
class OnyxTraffic:
    """Totals of one direction of a port; None is shown as `N/A`."""

    packets: int | None = 0
    bytes: int | None = 0
    error_packets: int | None = 0
    discard_packets: int | None = 0
    pause_packets: int | None = 0


@dataclass(slots=True)
class OnyxPort:
    """One Ethernet port; `speed` is shown as it stands."""

    up: bool = True
    speed: str = "100G"
    description: str = "N/A"
    receive: OnyxTraffic = field(default_factory=OnyxTraffic)
    transmit: OnyxTraffic = field(default_factory=OnyxTraffic)
    ecn_marked_packets: int | None = 0


@dataclass(slots=True)
class OnyxFaults:
    """What goes wrong, until it is set back.

    Attributes:
        html: every command is answered by a web page.
        malformed: this port's rows are a text in place of an object.
        delay: seconds before a log-in or command is answered.
        huge: bytes of padding before the end of a reply.
        refuse: the `status_message` with which every command is refused.
        no_json_login: the release knows only the log-in by form.
        redirect: every request is redirected once, with 302, to this host (`http://…`; "" is the switch itself).
    """

    html: bool = False
    malformed: str | None = None
    delay: float = 0.0
    huge: int = 0
    refuse: str | None = None
    no_json_login: bool = False
    redirect: str | None = None


@dataclass(slots=True)
class OnyxSwitch:
    """The model of a switch, and what its clients did so far."""

    ports: dict[str, OnyxPort] = field(default_factory=dict)
    username: str = "monitor"
    password: str = "monitor"  # noqa: S105 - of a switch that does not exist
    counters_shape: Literal["object", "list"] = "object"
    several_results: bool = False
    faults: OnyxFaults = field(default_factory=OnyxFaults)
    sessions: set[str] = field(default_factory=set)
    requests: int = 0
    logins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    logouts: int = 0

    def expire_sessions(self) -> None:
        """Forget every session: commands are answered by the log-in page, with 200, until the next log-in."""
        self.sessions.clear()

    def answer(self, command: str) -> dict[str, Any]:
        """Give the reply to one command."""
        tables = {
            "show interfaces ethernet counters": self._counters,
            "show interfaces ethernet description": self._description,
            "show interfaces ethernet congestion-control": self._congestion_control,
        }
        reply: dict[str, Any] = {"executed_command": command, "status": "OK", "status_message": ""}
        refusal = self.faults.refuse or (None if command in tables else f'% Unrecognized command "{command}".')
        if refusal is None:
            reply["data"] = tables[command]()
        else:
            reply |= {"status": "ERROR", "status_message": refusal, "data": ""}
        return {"results": [reply]} if self.several_results else reply

    def _counters(self) -> object:
        if self.counters_shape == "list":
            return [
                {"header": name, "Rx": _totals(port.receive), "Tx": _totals(port.transmit)}
                if name != self.faults.malformed
                else "malformed"
                for name, port in self.ports.items()
            ]
        return self._by_port(lambda port: [{"Rx": [_totals(port.receive)]}, {"Tx": [_totals(port.transmit)]}])

    def _description(self) -> object:
        return self._by_port(
            lambda port: {
                "Operational state": "Up" if port.up else "Down",
                "Speed": port.speed,
                "Description": port.description,
            }
        )

    def _by_port(self, rows: Callable[[OnyxPort], object]) -> object:
        return {name: "malformed" if name == self.faults.malformed else rows(port) for name, port in self.ports.items()}

    def _congestion_control(self) -> object:
        rows: list[object] = []
        for name, port in self.ports.items():
            number = "malformed" if name == self.faults.malformed else name.removeprefix("Eth")
            rows.append({"Interface ethernet": number, "ECN marked packets": _shown(port.ecn_marked_packets)})
            rows.extend({"header": f"TC-{tc}", "Mode": "ECN" if tc == 3 else "none"} for tc in range(8))
        return rows


def _shown(value: int | None) -> str:
    return "N/A" if value is None else str(value)


def _totals(traffic: OnyxTraffic) -> dict[str, str]:
    return {
        "packets": _shown(traffic.packets),
        "bytes": _shown(traffic.bytes),
        "error packets": _shown(traffic.error_packets),
        "discard packets": _shown(traffic.discard_packets),
        "pause packets": _shown(traffic.pause_packets),
    }


class OnyxSimulator:
    """The web server of one simulated switch on loopback; `async with` starts and stops it.

    Args:
        switch: the model that it shows.
        port: TCP port, 0 for a free one; `url` tells which.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: OnyxSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        self.switch = switch
        self._socket = socket.create_server(("127.0.0.1", port))
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = _Server(
            uvicorn.Config(
                self._application,
                interface="asgi3",
                proxy_headers=False,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                ssl_certfile=certificate,
                timeout_graceful_shutdown=1,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # The socket listens already: who connects before the server runs waits in its queue.
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._socket.close()

    async def _application(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        body = await _body(receive)
        query = scope["query_string"].decode("latin-1")
        switch, faults = self.switch, self.switch.faults
        switch.requests += 1
        if faults.redirect is not None and "redirected" not in query:
            await _respond(send, 302, b"", [("location", f"{faults.redirect}{scope['path']}?{query}&redirected=1")])
        elif scope["method"] != "POST" or scope["path"] != "/admin/launch":
            await _respond(send, 200, _LOGIN_PAGE)
        elif "action=json-logout" in query:
            switch.logouts += 1
            switch.sessions.discard(_session(scope))
            await _json(send, {"status": "OK", "status_msg": "Successfully logged-out"})
        elif await _gone_within(faults.delay, receive):
            return
        elif "action=json-login" in query and not faults.no_json_login:
            await self._json_login(body, send)
        elif "template=login" in query:
            await self._form_login(body, send)
        elif "script=json" in query and _session(scope) in switch.sessions and not faults.html:
            command = json.loads(body)["cmd"]
            switch.commands.append(command)
            await _json(send, switch.answer(command), faults.huge)
        else:
            await _respond(send, 200, _LOGIN_PAGE)

    async def _json_login(self, body: bytes, send: _Send) -> None:
        self.switch.logins.append("json")
        given = json.loads(body)
        if (given["username"], given["password"]) != (self.switch.username, self.switch.password):
            # Quotes what it was given, as careless devices do: no client may pass that on.
            await _json(send, {"status": "ERROR", "status_msg": f"Invalid password {given['password']}"})
        else:
            reply = {"status": "OK", "status_msg": "Successfully logged-in"}
            await _respond(send, 200, json.dumps(reply).encode(), self._new_session())

    async def _form_login(self, body: bytes, send: _Send) -> None:
        self.switch.logins.append("form")
        given = parse_qs(body.decode("latin-1"))
        if (given.get("f_user_id"), given.get("f_password")) != ([self.switch.username], [self.switch.password]):
            await _respond(send, 200, _LOGIN_PAGE)
        else:
            await _respond(send, 302, b"", [("location", _HOME), *self._new_session()])

    def _new_session(self) -> list[tuple[str, str]]:
        token = secrets.token_hex(8)
        self.switch.sessions.add(token)
        return [("set-cookie", f"session={token}; Path=/; HttpOnly")]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the program that this server runs in."""
        yield


async def _body(receive: _Receive) -> bytes:
    body = b""
    while len(body) <= _MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body


async def _gone_within(seconds: float, receive: _Receive) -> bool:
    """Wait; True as soon as the client hangs up."""
    if not seconds:
        return False
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


def _session(scope: _Message) -> str:
    cookies = next((value for name, value in scope["headers"] if name == b"cookie"), b"").decode("latin-1")
    pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
    return next((value for name, _, value in pairs if name == "session"), "")


async def _json(send: _Send, reply: dict[str, Any], padding: int = 0) -> None:
    await _start(send, 200, "application/json", [])
    for _ in range(0, padding, len(_CHUNK)):
        await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


async def _respond(send: _Send, status: int, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
    await _start(send, status, "text/html", headers or [])
    await send({"type": "http.response.body", "body": body})


async def _start(send: _Send, status: int, kind: str, headers: list[tuple[str, str]]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in [("content-type", kind), *headers]]
    await send({"type": "http.response.start", "status": status, "headers": raw})
