"""Simulated Onyx switch: web server, log-ins, sessions and JSON replies, over a model in memory.

`OnyxSwitch.ports` and `OnyxSwitch.faults` may be changed at any time; the next command has the changes.
"""

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Headers, Reply
from exporter.outputs.request import Request
from exporter.simulator.web_server import WebServer

_LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Log in</title></head><body><form>f_user_id</form></body></html>"
_HOME = b"/admin/launch?script=rh&template=home"
_CHUNK = b" " * 2**16


@dataclass(slots=True)
class OnyxTraffic:
    """Counters of one direction of a port; None is printed as `N/A`."""

    packets: int | None = 0
    bytes: int | None = 0
    error_packets: int | None = 0
    discard_packets: int | None = 0
    pause_packets: int | None = 0


@dataclass(slots=True)
class OnyxNeighbour:
    """The LLDP neighbour of a port."""

    chassis: str = "02:00:00:00:00:01"
    port: str = "eth0"
    name: str = "N/A"
    description: str = "N/A"
    port_description: str = "N/A"


@dataclass(slots=True)
class OnyxPort:
    """One Ethernet port; `speed` is printed unchanged.

    Attributes:
        pfc: PFC frames received and transmitted, by priority.
        red_dropped_packets: Packets dropped by RED, by traffic class.
        neighbours: LLDP neighbours.
    """

    up: bool = True
    speed: str = "100G"
    description: str = "N/A"
    receive: OnyxTraffic = field(default_factory=OnyxTraffic)
    transmit: OnyxTraffic = field(default_factory=OnyxTraffic)
    ecn_marked_packets: int | None = 0
    pfc: dict[int, tuple[int, int]] = field(default_factory=dict)
    red_dropped_packets: dict[int, int] = field(default_factory=dict)
    neighbours: list[OnyxNeighbour] = field(default_factory=list)


@dataclass(slots=True)
class OnyxFaults:
    """Injected faults, until they are reset.

    Attributes:
        html: the response to every command is a web page.
        malformed: the rows of this port are a text instead of an object.
        delay: seconds before the response to a log-in or command.
        huge: bytes of padding before the end of a reply.
        refuse: the `status_message` with which every command is refused.
        unsupported: commands that this release does not support.
        replies: by command, the data to return instead of its own.
        no_json_login: the release supports only the log-in by web form.
        redirect: every request is redirected once, with 302, to this host (`http://…`; "" is the switch itself).
    """

    html: bool = False
    malformed: str | None = None
    delay: float = 0.0
    huge: int = 0
    refuse: str | None = None
    unsupported: set[str] = field(default_factory=set)
    replies: dict[str, object] = field(default_factory=dict)
    no_json_login: bool = False
    redirect: str | None = None


@dataclass(slots=True)
class OnyxSwitch:
    """Model of a switch, and the requests of its clients so far.

    Attributes:
        counters_shape: structure of counters: ports as keys, or as headers of a list.
        pfc_shape: structure of PFC counters, of which no public sample is in JSON.
        lossless: lossless priorities.
        name: system name; not reported where empty.
        chassis: LLDP chassis ID, that by which its neighbours know it.
        uptime: seconds since its start.
    """

    name: str = ""
    chassis: str = "02:00:00:00:00:AA"
    uptime: float = 183_845.678
    model: str = "x86onie"
    release: str = "3.10.4206"
    lossless: tuple[int, ...] = (3,)
    pfc_shape: Literal["object", "text"] = "object"
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

    def answer(self, command: str) -> dict[str, Any]:
        """Return the reply to one command."""
        faults = self.faults
        data = None if command in faults.unsupported else faults.replies.get(command, self._data(command))
        reply: dict[str, Any] = {"executed_command": command, "status": "OK", "status_message": ""}
        refusal = faults.refuse or (None if data is not None else f'% Unrecognized command "{command}".')
        if refusal is None:
            reply["data"] = data
        else:
            reply |= {"status": "ERROR", "status_message": refusal, "data": ""}
        return {"results": [reply]} if self.several_results else reply

    def _data(self, command: str) -> object:
        """Return the data of a command; None for one that no release supports."""
        tables: dict[str, Callable[[], object]] = {
            "show interfaces ethernet counters": self._counters,
            "show interfaces ethernet description": self._description,
            "show interfaces ethernet congestion-control": self._congestion_control,
            "show dcb priority-flow-control": self._priority_flow_control,
            "show version": self._version,
            "show lldp local": self._local,
            "show lldp interfaces ethernet remote": self._neighbours,
            "show lldp remote": self._neighbours_old_release,
        }
        if command in tables:
            return tables[command]()
        head, _, priority = command.rpartition(" ")
        if head == "show interfaces ethernet counters pfc prio" and priority in {*"01234567"}:
            return self._pfc(int(priority))
        return None

    def _pfc(self, priority: int) -> object:
        counts = {name: port.pfc.get(priority, (0, 0)) for name, port in self.ports.items()}
        if self.pfc_shape == "text":
            lines = []
            for name, (received, sent) in counts.items():
                lines += [f"{name}:", "  Rx:", f"    {received}     pause packets", "    0     pause duration"]
                lines += ["  Tx:", f"    {sent}     pause packets", "    0     pause duration", ""]
            return {"Lines": lines}
        return {
            name: [
                {f"PFC {priority} Rx": [{"pause packets": str(received), "pause duration": "0"}]},
                {f"PFC {priority} Tx": [{"pause packets": str(sent), "pause duration": "0"}]},
            ]
            for name, (received, sent) in counts.items()
        }

    def _priority_flow_control(self) -> object:
        if not self.lossless:
            return [{"PFC": "disabled"}]
        listed = [" ".join(str(one) for one in range(8) if (one in self.lossless) is is_on) for is_on in (True, False)]
        switch = {"PFC": "enabled", "Priority Enabled List": listed[0], "Priority Disabled List": listed[1]}
        return [switch, *({name: [{"PFC admin": "Auto", "PFC oper": "Enabled"}]} for name in self.ports)]

    def _version(self) -> object:
        values = {"Product name": "Onyx", "Product release": self.release, "Product model": self.model}
        days, rest = divmod(self.uptime, 86_400)
        hours, rest = divmod(rest, 3600)
        minutes, seconds = divmod(rest, 60)
        return values | {"Uptime": f"{days:.0f}d {hours:.0f}h {minutes:.0f}m {seconds:.3f}s"}

    def _local(self) -> object:
        values = {"System Description": f"Simulated {self.model}", "Chassis id": self.chassis}
        if self.name:
            values["System Name"] = self.name
        return [{"LLDP": "enabled"}, {"header": "Local global configuration", **values}]

    def _neighbours(self) -> object:
        rows = [
            {f"{name} (Po1)": [{"Remote chassis id": one.chassis, "Remote port-id": one.port, **_name_values(one)}]}
            for name, port in self.ports.items()
            for one in port.neighbours
        ]
        return rows or {"Lines": ["", "No lldp remote information.", ""]}

    def _neighbours_old_release(self) -> object:
        return {
            name: [{"Device ID": one.chassis, "Port ID": one.port, "System Name": one.name} for one in port.neighbours]
            for name, port in self.ports.items()
            if port.neighbours
        }

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
            rows.append({"Interface ethernet": number, "ECN marked packets": _text(port.ecn_marked_packets)})
            for tc in range(8):
                drops = port.red_dropped_packets
                counted = {"Mode": "RED", "RED dropped packets": str(drops[tc])} if tc in drops else {"Mode": "none"}
                rows.append({"header": f"TC-{tc}", **counted})
        return rows


def _name_values(neighbour: OnyxNeighbour) -> dict[str, str]:
    return {
        "Remote system name": neighbour.name,
        "Remote system description": neighbour.description,
        "Remote port description": neighbour.port_description,
    }


def _text(value: int | None) -> str:
    return "N/A" if value is None else str(value)


def _totals(traffic: OnyxTraffic) -> dict[str, str]:
    return {
        "packets": _text(traffic.packets),
        "bytes": _text(traffic.bytes),
        "error packets": _text(traffic.error_packets),
        "discard packets": _text(traffic.discard_packets),
        "pause packets": _text(traffic.pause_packets),
    }


class OnyxSimulator(WebServer):
    """Web server of one simulated switch.

    Args:
        switch: The model.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: OnyxSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_OnyxApplication(switch), port=port, certificate=certificate)
        self.switch = switch


class _OnyxApplication(Application):
    """The JSON API and the log-in form."""

    max_body = 2**16

    def __init__(self, switch: OnyxSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Return the response to one request; a closed connection cancels it."""
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
            # Some devices quote the password: a client must not pass that on.
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
