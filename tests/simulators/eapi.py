"""Simulated Arista switch: eAPI's JSON-RPC over results by command, with HTTP Basic.

`EapiSwitch.answers` and `EapiSwitch.faults` may be changed at any time; the next request has the changes. A command
without a result ends its request, as on a real switch.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import Request
from exporter.simulator.web_server import WebServer
from tests.simulators.web import basic_credentials, json_reply, web_page


@dataclass(slots=True)
class EapiFaults:
    """Injected faults, until they are reset.

    Attributes:
        html: The response to every request is a web page, with 200.
        delay: Seconds before a response.
        errors: By command: code, message and reasons of its error.
    """

    html: bool = False
    delay: float = 0.0
    errors: dict[str, tuple[int, str, list[str]]] = field(default_factory=dict)


@dataclass(slots=True)
class EapiSwitch:
    """Model of a switch, and the requests of its clients so far.

    Attributes:
        answers: Results by command.
        texts: Output by command, where it is requested as text.
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

    def run(self, commands: list[str], output_format: str = "json") -> dict[str, object]:
        """Return result or error of a request."""
        self.requests.append(commands)
        results: list[object] = []
        answers = self.answers
        if output_format == "text":
            answers = {command: {"output": text} for command, text in self.texts.items()}
        for number, command in enumerate(commands, start=1):
            code, message, reasons = self.faults.errors.get(command, (0, "", []))
            if command not in answers and not code:
                code, message, reasons = (
                    1002,
                    "invalid command",
                    [f"Invalid input (at token 1: {command.split()[1]!r})"],
                )
            if code:
                text = f"CLI command {number} of {len(commands)} {command!r} failed: {message}"
                return {"error": {"code": code, "message": text, "data": [*results, {"errors": reasons}]}}
            results.append(answers[command])
        return {"result": results}


class EapiSimulator(WebServer):
    """Web server of one simulated switch.

    Args:
        switch: The model.
        port: TCP port, 0 for a free one; see `url`.
        certificate: PEM file of key and chain, for https.
    """

    def __init__(self, switch: EapiSwitch, *, port: int = 0, certificate: Path | None = None) -> None:
        super().__init__(_EapiApplication(switch), port=port, certificate=certificate)
        self.switch = switch


class _EapiApplication(Application):
    """The API of the switch."""

    max_body = 1 << 16

    def __init__(self, switch: EapiSwitch) -> None:
        self._switch = switch

    async def answer(self, request: Request) -> Reply:
        """Return the response to one request; a closed connection cancels it."""
        await asyncio.sleep(self._switch.faults.delay)
        return self._reply(request)

    def _reply(self, request: Request) -> Reply:
        switch = self._switch
        if basic_credentials(request) != (switch.username, switch.password):
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
