"""A simulated Nexus switch: NX-API's JSON-RPC over bodies by command, and the object store with its log-in.

Whoever drives it changes `NxapiSwitch` at any time; the next request shows it.
"""

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import Request
from exporter.simulator.rest import (
    WebServer,
    basic_login,
    json_reply,
    web_page,
)

_CLASS = "/api/node/class/"


@dataclass(slots=True)
class NxapiFaults:
    """What goes wrong, until it is set back.

    Attributes:
        html: Every request is answered by a web page, with 200.
        delay: Seconds before an answer.
        errors: Message by command, of commands that fail.
        no_store: There is no object store.
        store_refuses: The object store lets nobody in.
        store_delay: Seconds before an answer of the object store.
        no_right: The user may log in to the object store, and see nothing of it.
        refusal: Status with which the object store refuses a log-in.
        whole: One error that stands for all commands of a request.
    """

    html: bool = False
    delay: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    no_store: bool = False
    store_refuses: bool = False
    store_delay: float = 0.0
    no_right: bool = False
    refusal: int = 401
    whole: str = ""


@dataclass(slots=True)
class NxapiSwitch:
    """The model of a switch, and what its clients did so far.

    Attributes:
        bodies: By command; None is a command that prints nothing.
        objects: Attributes of the objects of each class.
        requests: Commands of each request.
        logins: Log-ins to the object store, and `logouts`.
        refused: Requests with a wrong user or password.
    """

    bodies: dict[str, object] = field(default_factory=dict)
    objects: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    username: str = "monitor"
    password: str = "monitor"
    faults: NxapiFaults = field(default_factory=NxapiFaults)
    requests: list[list[str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    logins: int = 0
    logouts: int = 0
    refused: int = 0
    tokens: set[str] = field(default_factory=set)

    def expire_tokens(self) -> None:
        """End all sessions of the object store."""
        self.tokens.clear()

    def run(self, command: str) -> dict[str, object]:
        """Give result or error of a command."""
        message = self.faults.errors.get(command)
        if message is not None:
            return {"error": {"code": -32603, "message": "Internal error", "data": {"msg": message}}}
        if command not in self.bodies:
            data = {"msg": "% Invalid command\n"}
            return {"error": {"code": -32602, "message": "Invalid params", "data": data}}
        body = self.bodies[command]
        return {"result": None if body is None else {"body": body}}


class NxapiSimulator(WebServer):
    """The web server of one simulated switch.

    Args:
        switch: The model that it shows.
        port: TCP port, 0 for a free one; `url` tells which.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: NxapiSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_Application(switch), port=port, certificate=certificate)
        self.switch = switch


class _Application(Application):
    """What the switch answers."""

    max_body = 1 << 16

    def __init__(self, switch: NxapiSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Serve one request; a client that hangs up ends it."""
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
        if basic_login(request) != (switch.username, switch.password):
            switch.refused += 1
            return text(401, "Unauthorized")
        calls = json.loads(request.body)
        switch.requests.append([call["params"]["cmd"] for call in calls])
        if switch.faults.whole:
            error = {"code": -32700, "message": switch.faults.whole}
            return json_reply({"jsonrpc": "2.0", "error": error, "id": None}, 500)
        answers = [{"jsonrpc": "2.0", **switch.run(call["params"]["cmd"]), "id": call["id"]} for call in calls]
        return json_reply(answers[0] if len(answers) == 1 else answers)

    def _store(self, request: Request) -> Reply:
        switch = self._switch
        if request.path == "/api/aaaLogin.json":
            given = json.loads(request.body)["aaaUser"]["attributes"]
            known = (given["name"], given["pwd"]) == (switch.username, switch.password)
            if not known or switch.faults.store_refuses:
                switch.refused += 1
                return json_reply(_refusal("401", "Authentication failed"), switch.faults.refusal)
            switch.logins += 1
            token = secrets.token_urlsafe(16)
            switch.tokens.add(token)
            body = {"imdata": [{"aaaLogin": {"attributes": {"token": token, "refreshTimeoutSeconds": "600"}}}]}
            return json_reply(body, 200, (b"set-cookie", f"APIC-cookie={token}; Path=/".encode()))
        if request.path == "/api/aaaLogout.json":
            switch.logouts += 1
            return json_reply({"imdata": []})
        cookie = request.headers.get(b"cookie", b"").decode("latin-1")
        if switch.faults.no_right or not any(f"APIC-cookie={token}" in cookie for token in switch.tokens):
            return json_reply(_refusal("403", "Token was invalid (Error: Token timeout)"), 403)
        name = request.path.removeprefix(_CLASS).removesuffix(".json")
        switch.asked.append(name)
        if name not in switch.objects:
            return json_reply(_refusal("400", "unresolved class"), 400)
        listed = [{name: {"attributes": attributes}} for attributes in switch.objects[name]]
        return json_reply({"totalCount": str(len(listed)), "imdata": listed})


def _refusal(code: str, words: str) -> dict[str, object]:
    return {"imdata": [{"error": {"attributes": {"code": code, "text": words}}}]}
