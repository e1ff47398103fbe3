"""A simulated Arista switch: eAPI's JSON-RPC over answers by command, with HTTP Basic.

Whoever drives it changes `EapiSwitch.answers` and `EapiSwitch.faults` at any time; the next request shows it. A command
that has no answer ends its request, as on a real switch.
"""

import asyncio
import json
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
        texts: By command, where it is asked for as text.
        requests: Commands of each request.
        refused: Requests with a wrong user or password.
    """

    answers: dict[str, object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    username: str = "monitor"
    password: str = "monitor"
    faults: EapiFaults = field(default_factory=EapiFaults)
    requests: list[list[str]] = field(default_factory=list)
    refused: int = 0

    def run(self, commands: list[str], form: str = "json") -> dict[str, object]:
        """Give result or error of a request."""
        self.requests.append(commands)
        results: list[object] = []
        answers = self.answers
        if form == "text":
            answers = {command: {"output": shown} for command, shown in self.texts.items()}
        for place, command in enumerate(commands, start=1):
            code, message, words = self.faults.errors.get(command, (0, "", []))
            if command not in answers and not code:
                code, message, words = 1002, "invalid command", [f"Invalid input (at token 1: {command.split()[1]!r})"]
            if code:
                said = f"CLI command {place} of {len(commands)} {command!r} failed: {message}"
                return {"error": {"code": code, "message": said, "data": [*results, {"errors": words}]}}
            results.append(answers[command])
        return {"result": results}


class EapiSimulator(WebServer):
    """The web server of one simulated switch.

    Args:
        switch: The model that it shows.
        port: TCP port, 0 for a free one; `url` tells which.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: EapiSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_Application(switch), port=port, certificate=certificate)
        self.switch = switch


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
        if basic_login(request) != (switch.username, switch.password):
            switch.refused += 1
            return text(401, "Unable to authenticate user: Bad username/password combination")
        if switch.faults.html:
            return web_page()
        if request.method != "POST" or request.path != "/command-api":
            return text(404, "not found")
        call = json.loads(request.body)
        parameters = call["params"]
        answer = switch.run([one["cmd"] for one in parameters["cmds"]], parameters["format"])
        answer = {"jsonrpc": "2.0", "id": call["id"], **answer}
        return json_reply(answer)
