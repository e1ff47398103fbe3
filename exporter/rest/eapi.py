"""Client of Arista's eAPI: `show` commands as JSON-RPC, with HTTP Basic.

Several commands go in one request, and one that fails ends it: what came before is in the error, and the rest is asked
again.  A command that the release has only as text says so ("unconverted command"), and is told as one that fails.
What the answers hold is the matter of `eapi_data`.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from exporter.rest.http import (
    CommandError,
    Http,
    LoginError,
    Logins,
    ReplyError,
    decoded,
    excerpt,
    is_denied,
)

_PATH = "/command-api"
# No control characters, quotes, pipes or separators: what is sent can only be the one command that was checked.
_SHOW = re.compile(r"show [A-Za-z0-9 _./:,-]{1,200}")
_UNCONVERTED = re.compile(r"unconverted|not (?:been )?converted|no json", re.IGNORECASE)
_INVALID = re.compile(r"invalid (?:command|input)|incomplete|ambiguous|not supported|unavailable", re.IGNORECASE)


class UnsupportedError(CommandError):
    """The release does not know the command, or not as JSON."""


class EapiClient:
    """One switch, one request at a time.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        username: a user with the right to `show`.
        password: its password; it appears in no text that this class makes.
        tls: from `tls_context`.
        timeout: seconds for one request, its answer included.
        max_reply: largest answer in bytes.
        clock: monotonic seconds, for the rest after failed log-ins.

    Raises:
        ValueError: the address is none.
    """

    def __init__(
        self,
        address: str,
        username: str,
        password: str,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 10.0,
        max_reply: int = 16 * 2**20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = Http(
            address, (password,), tls=tls, auth=(username, password), timeout=timeout, max_reply=max_reply
        )
        self.address = self._http.address
        self._logins = Logins(self.address, clock)
        self._is_known = False
        self._number = 0
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"EapiClient({str(self._http.base)!r})"

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
        async with self._one_at_a_time:
            while len(answers) < len(commands):
                answers += await self._known(commands[len(answers) :])
        return answers

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    async def _known(self, commands: Sequence[str]) -> list[object]:
        """Run commands, and keep account of whether the switch knows us."""
        if not self._is_known:
            self._logins.begin()
        try:
            return await self._run(commands)
        except LoginError:
            raise
        except BaseException:
            if not self._is_known:
                self._logins.not_sent()  # nobody judged the password
            raise

    async def _run(self, commands: Sequence[str]) -> list[object]:
        """Run commands up to the first that fails; give at least one answer."""
        self._number += 1
        parameters = {"version": 1, "cmds": list(commands), "format": "json"}
        call = {"jsonrpc": "2.0", "method": "runCmds", "params": parameters, "id": self._number}
        response, body = await self._http.post(_PATH, json=call)
        if is_denied(response):
            if self._is_known:
                self._is_known = False
                self._logins.begin()
            reason = f"{self.address}: HTTP {response.status_code}: {self._http.quoted(body)}; check user and password"
            self._logins.failed(reason)
            raise LoginError(reason)
        reply = await decoded(body)
        if not isinstance(reply, dict) or response.status_code != HTTPStatus.OK:
            hint = "; is 'management api http-commands' on?"
            raise ReplyError(f"{self.address}: {self._http.described(response, body)}{hint}")
        self._is_known = True
        self._logins.succeeded()
        result = reply.get("result")
        if isinstance(result, list) and len(result) == len(commands):
            return result
        error = reply.get("error")
        if not isinstance(error, dict):
            raise ReplyError(f"{self.address}: neither results nor an error: {self._http.quoted(body)}")
        return self._up_to_error(commands, error)

    def _up_to_error(self, commands: Sequence[str], error: dict[str, Any]) -> list[object]:
        """Give what came before the command that failed, and the error for that one."""
        data = error.get("data")
        results = data if isinstance(data, list) else []
        place = max(0, min(len(results), len(commands)) - 1)
        last = results[place] if results else None
        said = last.get("errors") if isinstance(last, dict) else None
        words = ", ".join(map(str, said)) if isinstance(said, list) else ""
        message = self._http.quoted(words or error.get("message") or error)
        code, text = error.get("code"), f"{words} {error.get('message')}"
        kind = CommandError
        if code in (1000, 1002, 1003) and (_UNCONVERTED.search(text) or _INVALID.search(text)):
            kind = UnsupportedError
        return [*results[:place], kind(self.address, commands[place], message)]
