"""Client of Arista's eAPI: `show` commands as JSON-RPC, with HTTP Basic.

Several commands go in one request, and one that fails ends it: what came before is in the error, and the rest is asked
again.  A command that the release has only as text says so ("unconverted command"), and is told as one that fails.
What the answers hold is the matter of `eapi_data`.
"""

import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from exporter.rest.basic import BasicClient
from exporter.rest.http import (
    CommandError,
    ReplyError,
    UnsupportedError,
    decoded,
    excerpt,
    is_denied,
)

_PATH = "/command-api"
# No control characters, quotes, pipes or separators: what is sent can only be the one command that was checked.
_SHOW = re.compile(r"show [A-Za-z0-9 _./:,-]{1,200}")
_UNCONVERTED = re.compile(r"unconverted|not (?:been )?converted|no json", re.IGNORECASE)
_INVALID = re.compile(r"invalid (?:command|input)|incomplete|ambiguous|not supported|unavailable", re.IGNORECASE)


class EapiClient(BasicClient):
    """One switch, one request at a time."""

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Run commands, in as few requests as it takes; give for each its answer, or a CommandError.

        Raises:
            ValueError: one is not a plain `show …`; nothing was sent.
            RestError: one of its kinds, where the switch does not answer at all.
        """
        for command in commands:
            if not _SHOW.fullmatch(command):
                raise ValueError(f"{excerpt(command)} is not sent: only plain commands that begin with 'show ' are")
        answers: list[object] = []
        while len(answers) < len(commands):
            answers += await self._judged(partial(self._run, commands[len(answers) :]))
        return answers

    async def _run(self, commands: Sequence[str]) -> list[object]:
        """Run commands up to the first that fails; give at least one answer."""
        parameters = {"version": 1, "cmds": list(commands), "format": "json"}
        call = {"jsonrpc": "2.0", "method": "runCmds", "params": parameters, "id": 1}
        response, body = await self._http.post(_PATH, json=call)
        if is_denied(response):
            raise self._denied(response, body)
        reply = await decoded(body)
        if not isinstance(reply, dict) or response.status_code != HTTPStatus.OK:
            hint = "; is 'management api http-commands' on?"
            raise ReplyError(f"{self.address}: {self._http.described(response, body)}{hint}")
        self._served()
        result = reply.get("result")
        if isinstance(result, list) and len(result) == len(commands):
            return result
        error = reply.get("error")
        if not isinstance(error, dict):
            raise ReplyError(f"{self.address}: neither results nor an error: {self.quoted(body)}")
        return self._up_to_error(commands, error)

    def _up_to_error(self, commands: Sequence[str], error: dict[str, Any]) -> list[object]:
        """Give what came before the command that failed, and the error for that one."""
        data = error.get("data")
        results = data if isinstance(data, list) else []
        place = max(0, min(len(results), len(commands)) - 1)
        last = results[place] if results else None
        said = last.get("errors") if isinstance(last, dict) else None
        words = ", ".join(map(str, said)) if isinstance(said, list) else ""
        message = self.quoted(words or error.get("message") or error)
        code, text = error.get("code"), f"{words} {error.get('message')}"
        kind = CommandError
        if code in (1000, 1002, 1003) and (_UNCONVERTED.search(text) or _INVALID.search(text)):
            kind = UnsupportedError
        return [*results[:place], kind(self.address, commands[place], message)]
