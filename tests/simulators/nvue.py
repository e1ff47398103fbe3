"""Simulated Cumulus switch: NVUE's GET paths over a model in memory, with HTTP Basic.

`NvueSwitch.ports` and `NvueSwitch.faults` may be changed at any time; the next request has the changes.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply
from exporter.outputs.request import Request
from exporter.simulator.web_server import WebServer
from tests.simulators.web import basic_credentials, json_reply, web_page

_PORT_PATH = re.compile(r"interface/([^/]+)/(.+)")


@dataclass(slots=True)
class NvueNeighbour:
    """The LLDP neighbour of a port."""

    chassis: str = "02:00:00:00:00:01"
    port: str = "eth0"
    name: str = "gpu-001"
    address: str = "192.0.2.1"
    capabilities: tuple[str, ...] = ("station",)


@dataclass(slots=True)
class NvuePort:
    """One front panel port.

    Attributes:
        stats: Counters of the link.
        pfc: PFC frames received and transmitted, by priority.
        queues: Counters of the egress queues, by queue and key.
        groups: Counters of the ingress buffer, by priority group and key.
        module: Data of the transceiver; None where there is none.
    """

    up: bool = True
    speed: str = "400G"
    description: str = ""
    stats: dict[str, int] = field(default_factory=dict)
    pfc: dict[int, tuple[int, int]] = field(default_factory=dict)
    queues: dict[int, dict[str, int]] = field(default_factory=dict)
    groups: dict[int, dict[str, int]] = field(default_factory=dict)
    neighbours: list[NvueNeighbour] = field(default_factory=list)
    module: dict[str, object] | None = None


@dataclass(slots=True)
class NvueFaults:
    """Injected faults, until they are reset.

    Attributes:
        html: The response to every request is a web page, with 200.
        first_password: The user `cumulus` still has its first password: every response is 403.
        delay: Seconds before a response.
        huge: Bytes of padding at the end of a response.
        malformed: This port is a text instead of an object, and its counters are texts instead of numbers.
        missing: Groups of counters that are absent.
        errors: By path, the status of its error.
        redirect: Location to which every request is redirected, with 301.
    """

    html: bool = False
    first_password: bool = False
    delay: float = 0.0
    huge: int = 0
    malformed: str | None = None
    missing: set[str] = field(default_factory=set)
    errors: dict[str, int] = field(default_factory=dict)
    redirect: str | None = None


@dataclass(slots=True)
class NvueSwitch:
    """Model of a switch, and the requests of its clients so far.

    Attributes:
        qos_path: Path of counters by priority: `counters/qos`, before release 5.5 `qos/counters`.
        shape: Structure of groups of counters: objects by priority, lists, or objects inside their parents.
        numbers: Form of numbers.
        shows_neighbours: Whether `/interface` has the neighbours of each port.
        max_concurrent: Largest number of concurrent requests so far.
        concurrent: Requests in progress.
        refused: Requests with a wrong user or password.
    """

    ports: dict[str, NvuePort] = field(default_factory=dict)
    hostname: str = "leaf01"
    build: str = "Cumulus Linux 5.9.1"
    uptime: int = 86400
    username: str = "monitor"
    password: str = "monitor"
    qos_path: Literal["counters/qos", "qos/counters"] = "counters/qos"
    shape: Literal["object", "list", "wrapped"] = "object"
    numbers: Literal["number", "text", "value"] = "number"
    shows_neighbours: bool = True
    faults: NvueFaults = field(default_factory=NvueFaults)
    paths: list[str] = field(default_factory=list)
    refused: int = 0
    max_concurrent: int = 0
    concurrent: int = 0

    def answer(self, path: str) -> object | None:
        """Return the data at a path below the root; None where there is none."""
        if path == "system":
            return {"hostname": self.hostname, "build": self.build, "uptime": self.uptime, "timezone": "Etc/UTC"}
        if path == "interface":
            ports: dict[str, object] = {name: self._interface(name, port) for name, port in self.ports.items()}
            bond = {"type": "bond", "link": {"state": {"up": {}}, "stats": {"in-bytes": 1}}}
            return {"eth0": {"type": "eth", "link": {"state": {"up": {}}}}, **ports, "bond1": bond}
        found = _PORT_PATH.fullmatch(path)
        port = self.ports.get(found[1]) if found else None
        if found is None or port is None:
            return None
        if found[2] == self.qos_path:
            return self._qos(found[1], port)
        if found[2] == "lldp":
            return _lldp(port)
        return port.module if found[2] == "transceiver" else None

    def _interface(self, name: str, port: NvuePort) -> object:
        if name == self.faults.malformed:
            return "malformed"
        link: dict[str, object] = {
            "mtu": 9216,
            "auto-negotiate": "on",
            "fec": "rs",
            "state": {"up" if port.up else "down": {}},
            "stats": dict(port.stats),
        }
        if port.up:
            link["speed"] = port.speed
        interface = {"type": "swp", "ifindex": 2 + list(self.ports).index(name), "link": link}
        if port.description:
            interface["description"] = port.description
        if self.shows_neighbours and port.neighbours:
            interface["lldp"] = _lldp(port)
        return interface

    def _qos(self, name: str, port: NvuePort) -> object:
        pfc = {
            priority: {
                "rx-pause-frames": received,
                "rx-pause-duration": 0,
                "tx-pause-frames": sent,
                "tx-pause-duration": 0,
            }
            for priority, (received, sent) in port.pfc.items()
        }
        groups: dict[str, object] = {
            "egress-queue-stats": self._group(name, "traffic-class", port.queues),
            "ingress-buffer-stats": self._group(name, "priority-group", port.groups),
            "pfc-stats": self._group(name, "switch-priority", pfc),
        }
        shown = {group: data for group, data in groups.items() if group not in self.faults.missing}
        return (
            {"operational": {"interface": {name: {"counters": {"qos": shown}}}}} if self.shape == "wrapped" else shown
        )

    def _group(self, name: str, selector: str, rows: Mapping[int, Mapping[str, int]]) -> object:
        entries = {
            number: {
                key: "malformed" if name == self.faults.malformed else self._number(value) for key, value in row.items()
            }
            for number, row in rows.items()
        }
        if self.shape == "list":
            return [{selector: number, **row} for number, row in entries.items()]
        return {**{str(number): row for number, row in entries.items()}, "total": {"rx-frames": 1}}

    def _number(self, value: int) -> object:
        return {"number": value, "text": f"{value:,}", "value": {"value": value}}[self.numbers]


def _lldp(port: NvuePort) -> dict[str, object]:
    return {
        "dcbx-pfc-tlv": "off",
        "neighbor": {
            one.name: {
                "age": "60",
                "chassis": {
                    "capability": {f"is-{word}": {} for word in one.capabilities},
                    "chassis-id": one.chassis,
                    "management-address-ipv4": one.address,
                    "system-description": "Simulated",
                    "system-name": one.name,
                },
                "port": {"description": "", "name": one.port, "ttl": 120, "type": "ifname"},
            }
            for one in port.neighbours
        },
    }


class NvueSimulator(WebServer):
    """Web server of one simulated switch.

    Args:
        switch: The model.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: NvueSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_NvueApplication(switch), port=port, certificate=certificate)
        self.switch = switch


class _NvueApplication(Application):
    """The API of the switch."""

    def __init__(self, switch: NvueSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Return the response to one request; a closed connection cancels it."""
        switch = self._switch
        switch.concurrent += 1
        switch.max_concurrent = max(switch.max_concurrent, switch.concurrent)
        try:
            await asyncio.sleep(switch.faults.delay)
            return self._reply(request)
        finally:
            switch.concurrent -= 1

    def _reply(self, request: Request) -> Reply:
        switch, faults = self._switch, self._switch.faults
        refusal = self._refusal(request)
        if refusal is not None:
            return _error(refusal, refusal.phrase)
        path = unquote(request.path.removeprefix("/nvue_v1/"))
        switch.paths.append(path)
        if faults.redirect is not None:
            return Reply(301, ((b"location", faults.redirect.encode()),), (b"",))
        if faults.html:
            return web_page()
        if path in faults.errors:
            return _error(HTTPStatus(faults.errors[path]), "Not today")
        data = switch.answer(path)
        if data is None:
            return _error(HTTPStatus.NOT_FOUND, "The requested item does not exist.")
        return json_reply(data, padding=faults.huge)

    def _refusal(self, request: Request) -> HTTPStatus | None:
        """Return the status with which a request is refused; None if it is not."""
        if request.method != "GET" or not request.path.startswith("/nvue_v1/"):
            return HTTPStatus.METHOD_NOT_ALLOWED
        if basic_credentials(request) != (self._switch.username, self._switch.password):
            self._switch.refused += 1
            return HTTPStatus.UNAUTHORIZED
        return HTTPStatus.FORBIDDEN if self._switch.faults.first_password else None


def _error(status: HTTPStatus, detail: str) -> Reply:
    return json_reply({"status": status.value, "title": status.phrase, "detail": detail}, status)
