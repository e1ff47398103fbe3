"""Simulated SONiC switch: RESTCONF's GET paths over a model in memory, with HTTP Basic.

`RestconfSwitch.ports` and `RestconfSwitch.faults` may be changed at any time; the next request has the changes.
"""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply
from exporter.outputs.request import Request
from exporter.simulator.web_server import WebServer
from tests.simulators.web import basic_credentials, json_reply, web_page

_ROOT = "/restconf/data/"
_KIND = "application/yang-data+json"


@dataclass(slots=True)
class RestconfPort:
    """One port: its counters by leaf, and the leaves of its neighbour's state."""

    up: bool = True
    speed: str = "SPEED_400GB"
    description: str = ""
    counters: dict[str, object] = field(default_factory=dict)
    neighbour: dict[str, object] | None = None
    capabilities: tuple[str, ...] = ("MAC_BRIDGE", "ROUTER")


@dataclass(slots=True)
class RestconfFaults:
    """Injected faults, until they are reset.

    Attributes:
        html: The response to every request is a web page, with 200.
        delay: Seconds before a response.
        malformed: The counters of this port are objects instead of numbers.
        errors: By path, the status of its error.
    """

    html: bool = False
    delay: float = 0.0
    malformed: str | None = None
    errors: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RestconfSwitch:
    """Model of a switch, and the requests of its clients so far."""

    ports: dict[str, RestconfPort] = field(default_factory=dict)
    hostname: str = "leaf-r"
    username: str = "monitor"
    password: str = "monitor"
    faults: RestconfFaults = field(default_factory=RestconfFaults)
    paths: list[str] = field(default_factory=list)
    refused: int = 0

    def answer(self, path: str) -> object | None:
        """Return the data at a path below the root; None where there is none."""
        match path:
            case "openconfig-interfaces:interfaces":
                interfaces = [self._interface(number, *one) for number, one in enumerate(self.ports.items(), start=1)]
                return {"openconfig-interfaces:interfaces": {"interface": interfaces}}
            case "openconfig-lldp:lldp/interfaces":
                interfaces = [_neighbours(*one) for one in self.ports.items()]
                return {"openconfig-lldp:interfaces": {"interface": interfaces}}
            case "openconfig-system:system/state":
                return {"openconfig-system:state": {"hostname": self.hostname}}
        return None

    def _interface(self, number: int, name: str, port: RestconfPort) -> dict[str, object]:
        is_malformed = name == self.faults.malformed
        counters = {leaf: {"value": value} if is_malformed else str(value) for leaf, value in port.counters.items()}
        state = {
            "admin-status": "UP",
            "oper-status": "UP" if port.up else "DOWN",
            "counters": counters,
            "ifindex": number,
            "mtu": 9100,
            "name": name,
            "description": port.description,
        }
        speed = {"port-speed": f"openconfig-if-ethernet:{port.speed}"}
        return {"name": name, "state": state, "openconfig-if-ethernet:ethernet": {"config": speed, "state": speed}}


class RestconfSimulator(WebServer):
    """Web server of one simulated switch.

    Args:
        switch: The model.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: RestconfSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_RestconfApplication(switch), port=port, certificate=certificate)
        self.switch = switch


class _RestconfApplication(Application):
    """The API of the switch."""

    def __init__(self, switch: RestconfSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Return the response to one request; a closed connection cancels it."""
        await asyncio.sleep(self._switch.faults.delay)
        return self._reply(request)

    def _reply(self, request: Request) -> Reply:
        switch = self._switch
        if basic_credentials(request) != (switch.username, switch.password):
            switch.refused += 1
            return _error(HTTPStatus.UNAUTHORIZED, "access-denied", "Authentication failed")
        path = request.path.removeprefix(_ROOT)
        switch.paths.append(path)
        if switch.faults.html:
            return web_page()
        if path in switch.faults.errors:
            return _error(HTTPStatus(switch.faults.errors[path]), "operation-failed", "Not today")
        data = switch.answer(path) if request.path.startswith(_ROOT) and request.method == "GET" else None
        if data is None:
            return _error(HTTPStatus.NOT_FOUND, "invalid-value", "Resource not found")
        return json_reply(data, kind=_KIND)


def _neighbours(name: str, port: RestconfPort) -> dict[str, object]:
    if port.neighbour is None:
        return {"name": name}
    capabilities = [
        {"name": f"openconfig-lldp-types:{word}", "state": {"enabled": True, "name": f"openconfig-lldp-types:{word}"}}
        for word in port.capabilities
    ]
    neighbour = {"id": "1", "state": port.neighbour, "capabilities": {"capability": capabilities}}
    return {"name": name, "neighbors": {"neighbor": [neighbour]}}


def _error(status: HTTPStatus, tag: str, message: str) -> Reply:
    errors = {"error": [{"error-type": "application", "error-tag": tag, "error-message": message}]}
    return json_reply({"ietf-restconf:errors": errors}, status, kind=_KIND)
