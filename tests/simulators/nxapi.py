"""Simulated Nexus switch: NX-API's JSON-RPC over bodies by command, and the object store with its log-in.

`NxapiSwitch` may be changed at any time; the next request has the changes.
"""

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import Request
from exporter.simulator.web_server import WebServer
from tests.simulators.web import basic_credentials, json_reply, web_page

_CLASS = "/api/node/class/"


@dataclass(slots=True)
class NxapiFaults:
    """Injected faults, until they are reset.

    Attributes:
        html: The response to every request is a web page, with 200.
        delay: Seconds before a response.
        errors: By command, the message of its error.
        no_store: There is no object store.
        store_rejects_login: The object store rejects all log-ins.
        store_delay: Seconds before a response of the object store.
        no_read_access: The user may log in to the object store, but not read from it.
        rejection_status: Status with which the object store rejects a log-in.
        request_error: Message of one error for all commands of a request.
    """

    html: bool = False
    delay: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    no_store: bool = False
    store_rejects_login: bool = False
    store_delay: float = 0.0
    no_read_access: bool = False
    rejection_status: int = 401
    request_error: str = ""


@dataclass(slots=True)
class NxapiSwitch:
    """Model of a switch, and the requests of its clients so far.

    Attributes:
        bodies: By command; None is a command without output.
        objects: Attributes of the objects of each class.
        requests: Commands of each request.
        queries: Classes of the object store that were requested.
        logins: Log-ins to the object store, and `logouts`.
        refused: Requests with a wrong user or password.
    """

    bodies: dict[str, object] = field(default_factory=dict)
    objects: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    username: str = "monitor"
    password: str = "monitor"
    faults: NxapiFaults = field(default_factory=NxapiFaults)
    requests: list[list[str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    logins: int = 0
    logouts: int = 0
    refused: int = 0
    tokens: set[str] = field(default_factory=set)

    def expire_tokens(self) -> None:
        """End all sessions of the object store."""
        self.tokens.clear()

    def run(self, command: str) -> dict[str, object]:
        """Return result or error of a command."""
        message = self.faults.errors.get(command)
        if message is not None:
            return {"error": {"code": -32603, "message": "Internal error", "data": {"msg": message}}}
        if command not in self.bodies:
            data = {"msg": "% Invalid command\n"}
            return {"error": {"code": -32602, "message": "Invalid params", "data": data}}
        body = self.bodies[command]
        return {"result": None if body is None else {"body": body}}


class NxapiSimulator(WebServer):
    """Web server of one simulated switch.

    Args:
        switch: The model.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: NxapiSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_NxapiApplication(switch), port=port, certificate=certificate)
        self.switch = switch


class _NxapiApplication(Application):
    """The API of the switch."""

    max_body = 1 << 16

    def __init__(self, switch: NxapiSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Return the response to one request; a closed connection cancels it."""
        faults = self._switch.faults
        await asyncio.sleep(faults.delay + (faults.store_delay if request.path.startswith("/api/") else 0.0))
        return self._reply(request)

    def _reply(self, request: Request) -> Reply:
        switch = self._switch
        if switch.faults.html:
            return web_page()
        if request.path == "/ins" and request.method == "POST":
            return self._commands(request)
        if switch.faults.no_store or not request.path.startswith("/api/"):
            return text(404, "not found")
        return self._store(request)

    def _commands(self, request: Request) -> Reply:
        switch = self._switch
        if basic_credentials(request) != (switch.username, switch.password):
            switch.refused += 1
            return text(401, "Unauthorized")
        calls = json.loads(request.body)
        switch.requests.append([call["params"]["cmd"] for call in calls])
        if switch.faults.request_error:
            error = {"code": -32700, "message": switch.faults.request_error}
            return json_reply({"jsonrpc": "2.0", "error": error, "id": None}, 500)
        answers = [{"jsonrpc": "2.0", **switch.run(call["params"]["cmd"]), "id": call["id"]} for call in calls]
        return json_reply(answers[0] if len(answers) == 1 else answers)

    def _store(self, request: Request) -> Reply:
        switch = self._switch
        if request.path == "/api/aaaLogin.json":
            credentials = json.loads(request.body)["aaaUser"]["attributes"]
            is_valid = (credentials["name"], credentials["pwd"]) == (switch.username, switch.password)
            if not is_valid or switch.faults.store_rejects_login:
                switch.refused += 1
                return json_reply(_store_error("401", "Authentication failed"), switch.faults.rejection_status)
            switch.logins += 1
            token = secrets.token_urlsafe(16)
            switch.tokens.add(token)
            body = {"imdata": [{"aaaLogin": {"attributes": {"token": token, "refreshTimeoutSeconds": "600"}}}]}
            return json_reply(body, 200, (b"set-cookie", f"APIC-cookie={token}; Path=/".encode()))
        if request.path == "/api/aaaLogout.json":
            switch.logouts += 1
            return json_reply({"imdata": []})
        cookie = request.headers.get(b"cookie", b"").decode("latin-1")
        if switch.faults.no_read_access or not any(f"APIC-cookie={token}" in cookie for token in switch.tokens):
            return json_reply(_store_error("403", "Token was invalid (Error: Token timeout)"), 403)
        name = request.path.removeprefix(_CLASS).removesuffix(".json")
        switch.queries.append(name)
        if name not in switch.objects:
            return json_reply(_store_error("400", "unresolved class"), 400)
        objects = [{name: {"attributes": attributes}} for attributes in switch.objects[name]]
        return json_reply({"totalCount": str(len(objects)), "imdata": objects})


def _store_error(code: str, text: str) -> dict[str, object]:
    return {"imdata": [{"error": {"attributes": {"code": code, "text": text}}}]}
