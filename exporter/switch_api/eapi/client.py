"""Client of Arista's eAPI: `show` commands as JSON-RPC over HTTP, with HTTP Basic.

Several commands go in one request, and one that fails ends it: the results before it are in the error, and the
commands after it are sent again.  A command that the release has only as text fails as an "unconverted command".
The results are parsed in `parser`.
"""

import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from exporter.switch_api.basic_auth import BasicAuthClient
from exporter.switch_api.errors import CommandError, InvalidResponseError, UnsupportedError
from exporter.switch_api.http import decode_json_async, is_denied
from exporter.switch_api.show_command import check_show_command

_PATH = "/command-api"
_REVISIONS = MappingProxyType({"show priority-flow-control counters": 3})
"""Revision of a command's output, where revision 1, which every release has, is in no document or recording."""

_TEXT_COMMANDS = frozenset({"show interfaces counters queue"})
"""Commands requested as text, since many releases have no JSON for them; the result is `{"output": …}` then."""

_UNCONVERTED = re.compile(r"unconverted|not (?:been )?converted|no json", re.IGNORECASE)
_FAILED_COMMAND = re.compile(r"CLI command (\d{1,3}) of \d{1,3}\b", re.ASCII)
_INVALID = re.compile(r"invalid (?:command|input)|incomplete|ambiguous|not supported|unavailable", re.IGNORECASE)
_UNSUPPORTED_CODES = (1000, 1002, 1003)


class EapiClient(BasicAuthClient):
    """Client of one switch, one request at a time."""

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Run commands, in as few requests as possible; return for each its result, or a CommandError.

        Raises:
            ValueError: one is not a plain `show …`; nothing was sent.
            SwitchApiError: one of its subclasses, where the switch does not respond at all.
        """
        for command in commands:
            check_show_command(command)
        results: list[object] = []
        is_batched = True
        while len(results) < len(commands):
            remaining = _of_one_format(commands[len(results) :])
            batch = remaining if is_batched else remaining[:1]
            batch_results = await self._authenticate(partial(self._run, batch))
            is_batched = is_batched and bool(batch_results)  # else one by one, which identifies the one that fails
            results += batch_results
        return results

    async def _run(self, commands: Sequence[str]) -> list[object]:
        """Run commands up to the first that fails; return nothing where the switch does not report which one it is."""
        calls = [{"cmd": command, "revision": _REVISIONS.get(command, 1)} for command in commands]
        output_format = "text" if commands[0] in _TEXT_COMMANDS else "json"
        parameters = {"version": 1, "cmds": calls, "format": output_format}
        call = {"jsonrpc": "2.0", "method": "runCmds", "params": parameters, "id": 1}
        response, body = await self._http.post(_PATH, json=call)
        if is_denied(response):
            raise self._login_rejected(response, body)
        reply = await decode_json_async(body)
        if not isinstance(reply, dict) or response.status_code != HTTPStatus.OK:
            hint = "; is 'management api http-commands' on?"
            raise InvalidResponseError(f"{self.address}: {self._http.describe_body(response, body)}{hint}")
        self._login_accepted()
        result = reply.get("result")
        if isinstance(result, list) and len(result) == len(commands):
            return result
        error = reply.get("error")
        if not isinstance(error, dict):
            raise InvalidResponseError(f"{self.address}: neither results nor an error: {self.redacted_excerpt(body)}")
        return self._results_up_to_error(commands, error)

    def _results_up_to_error(self, commands: Sequence[str], error: dict[str, Any]) -> list[object]:
        """Return the results before the command that failed, and the error of that one.

        The message has its number (`CLI command 2 of 3 …`), else the entry in place of its result: `{"errors": […]}`.
        """
        data = error.get("data")
        results = data if isinstance(data, list) else []
        marked = next(
            (index for index, entry in enumerate(results) if isinstance(entry, dict) and "errors" in entry), None
        )
        numbered = _FAILED_COMMAND.search(str(error.get("message")))
        index = int(numbered[1]) - 1 if numbered else marked
        if index is None or not 0 <= index < len(commands) or index > len(results):
            if len(commands) > 1:
                return []
            index = 0
        entry = results[index] if index < len(results) else None
        reasons = entry.get("errors") if isinstance(entry, dict) else None
        reason = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
        message = self.redacted_excerpt(reason or error.get("message") or error)
        text = f"{reason} {error.get('message')}"
        kind = CommandError
        if error.get("code") in _UNSUPPORTED_CODES and (_UNCONVERTED.search(text) or _INVALID.search(text)):
            kind = UnsupportedError
        return [*results[:index], kind(self.address, commands[index], message)]


def _of_one_format(commands: Sequence[str]) -> list[str]:
    """Return the first commands, up to the first one of the other output format."""
    is_text = commands[0] in _TEXT_COMMANDS
    return list(takewhile(lambda command: (command in _TEXT_COMMANDS) is is_text, commands))
