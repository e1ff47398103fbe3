"""Client of Arista's eAPI: `show` commands as JSON-RPC, with HTTP Basic.

Several commands go in one request, and one that fails ends it: what came before is in the error, and the rest is asked
again.  A command that the release has only as text says so ("unconverted command"), and is told as one that fails.
What the answers hold is the matter of `eapi_data`.
"""

import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from itertools import takewhile
from typing import Any

from exporter.switch_api.basic_auth import BasicClient
from exporter.switch_api.http import (
    CommandError,
    ReplyError,
    UnsupportedError,
    decoded,
    is_denied,
)
from exporter.switch_api.show_command import check_show

_PATH = "/command-api"
_REVISIONS = {"show priority-flow-control counters": 3}
"""Of the form of an answer, where the one that every release has, revision 1, is in no document or recording."""

_AS_TEXT = frozenset({"show interfaces counters queue"})
"""Commands that are asked for as a user sees them, since many releases have no other form; `{"output": …}` then."""

_UNCONVERTED = re.compile(r"unconverted|not (?:been )?converted|no json", re.IGNORECASE)
_FAILED = re.compile(r"CLI command (\d{1,3}) of \d{1,3}\b", re.ASCII)
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
            check_show(command)
        answers: list[object] = []
        together = True
        while len(answers) < len(commands):
            left = _of_one_form(commands[len(answers) :])
            found = await self._judged(partial(self._run, left if together else left[:1]))
            together = together and bool(found)  # one by one it is plain which one fails
            answers += found
        return answers

    async def _run(self, commands: Sequence[str]) -> list[object]:
        """Run commands up to the first that fails; of several give none where nobody says which one that is."""
        asked = [{"cmd": command, "revision": _REVISIONS.get(command, 1)} for command in commands]
        form = "text" if commands[0] in _AS_TEXT else "json"
        parameters = {"version": 1, "cmds": asked, "format": form}
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
        """Give what came before the command that failed, and the error for that one.

        The message says which one it is (`CLI command 2 of 3 …`), or else what came in its place: `{"errors": […]}`.
        """
        data = error.get("data")
        results = data if isinstance(data, list) else []
        marked = next((place for place, one in enumerate(results) if isinstance(one, dict) and "errors" in one), None)
        told = _FAILED.search(str(error.get("message")))
        place = int(told[1]) - 1 if told else marked
        if place is None or not 0 <= place < len(commands) or place > len(results):
            if len(commands) > 1:
                return []
            place = 0
        last = results[place] if place < len(results) else None
        said = last.get("errors") if isinstance(last, dict) else None
        words = ", ".join(map(str, said)) if isinstance(said, list) else ""
        message = self.quoted(words or error.get("message") or error)
        code, text = error.get("code"), f"{words} {error.get('message')}"
        kind = CommandError
        if code in (1000, 1002, 1003) and (_UNCONVERTED.search(text) or _INVALID.search(text)):
            kind = UnsupportedError
        return [*results[:place], kind(self.address, commands[place], message)]


def _of_one_form(commands: Sequence[str]) -> list[str]:
    """Give the first commands, as far as they can go in one request."""
    as_text = commands[0] in _AS_TEXT
    return list(takewhile(lambda command: (command in _AS_TEXT) is as_text, commands))
