"""A simulated Onyx switch: its web server, log-ins, sessions and JSON replies, over a model in memory.

Whoever drives it changes `OnyxSwitch.ports` and `OnyxSwitch.faults` at any time; the next command shows it.
"""

import asyncio
import json
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs

from exporter.outputs.http import Application, ConnectionStats, Server
from exporter.outputs.reply import Headers, Reply
from exporter.outputs.request import Request

_LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Log in</title></head><body><form>f_user_id</form></body></html>"
_HOME = b"/admin/launch?script=rh&template=home"
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

    max_body = 2**16

    def __init__(self, switch: OnyxSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Serve one request; a client that hangs up ends it."""
        path, query = request.path, request.query
        switch, faults = self._switch, self._switch.faults
        switch.requests += 1
        if faults.redirect is not None and "redirected" not in query:
            return _page(302, b"", (b"location", f"{faults.redirect}{path}?{query}&redirected=1".encode()))
        if request.method == "POST" and path == "/admin/launch":
            if "action=json-logout" not in query:
                await asyncio.sleep(faults.delay)
            return self._launch(request)
        return _page(200, _LOGIN_PAGE)

    def _launch(self, request: Request) -> Reply:
        query, switch, faults = request.query, self._switch, self._switch.faults
        if "action=json-logout" in query:
            switch.logouts += 1
            switch.sessions.discard(_session(request))
            return _json({"status": "OK", "status_msg": "Successfully logged-out"})
        if "action=json-login" in query and not faults.no_json_login:
            return self._json_login(request.body)
        if "template=login" in query:
            return self._form_login(request.body)
        if "script=json" in query and _session(request) in switch.sessions and not faults.html:
            command = json.loads(request.body)["cmd"]
            switch.commands.append(command)
            return _json(switch.answer(command), padding=faults.huge)
        return _page(200, _LOGIN_PAGE)

    def _json_login(self, body: bytes) -> Reply:
        self._switch.logins.append("json")
        given = json.loads(body)
        if (given["username"], given["password"]) != (self._switch.username, self._switch.password):
            # Quotes what it was given, as careless devices do: no client may pass that on.
            return _json({"status": "ERROR", "status_msg": f"Invalid password {given['password']}"})
        return _json({"status": "OK", "status_msg": "Successfully logged-in"}, self._new_session())

    def _form_login(self, body: bytes) -> Reply:
        self._switch.logins.append("form")
        given = parse_qs(body.decode("latin-1"))
        if (given.get("f_user_id"), given.get("f_password")) != ([self._switch.username], [self._switch.password]):
            return _page(200, _LOGIN_PAGE)
        return _page(302, b"", (b"location", _HOME), *self._new_session())

    def _new_session(self) -> Headers:
        token = secrets.token_hex(8)
        self._switch.sessions.add(token)
        return [(b"set-cookie", f"session={token}; Path=/; HttpOnly".encode())]


def _session(request: Request) -> str:
    pairs = (pair.strip().partition("=") for pair in request.headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return next((value for name, _, value in pairs if name == "session"), "")


def _json(reply: dict[str, Any], headers: Headers = (), *, padding: int = 0) -> Reply:
    chunks = -(-padding // len(_CHUNK))
    return Reply(
        200, ((b"content-type", b"application/json"), *headers), [_CHUNK] * chunks + [json.dumps(reply).encode()]
    )


def _page(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, ((b"content-type", b"text/html"), *headers), (body,))
