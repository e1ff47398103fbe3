"""Client of Cisco's NX-API: `show` commands as JSON-RPC, and the classes of the object store (DME).

Commands use HTTP Basic, several in one request, and each has its own result or error. A log-in to the object store
returns a token, which expires after some minutes; a request that is rejected logs in once more. The results are parsed
in `parser`.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import httpx

from exporter.switch_api.basic_auth import BasicAuthClient
from exporter.switch_api.errors import (
    CommandError,
    InvalidResponseError,
    LoginError,
    SwitchApiError,
    UnsupportedError,
)
from exporter.switch_api.http import decode_json_async, decode_json_object, is_denied
from exporter.switch_api.login_backoff import LoginBackoff
from exporter.switch_api.show_command import check_show_command
from exporter.switch_api.text_values import excerpt

CLASSES = ("ipqosQueuingStats",)
"""The only classes of the object store that are requested."""

_PATH = "/ins"
_LOGIN = "/api/aaaLogin.json"
_LOGOUT = "/api/aaaLogout.json"
_HEADERS = MappingProxyType({"Content-Type": "application/json-rpc"})
_LOGOUT_TIMEOUT_SECONDS = 2.0
_INVALID = re.compile(
    r"invalid (?:command|number)|syntax error|incomplete|structured output unsupported", re.IGNORECASE
)


class NxapiClient(BasicAuthClient):
    """Client of one switch, one request at a time."""

    def __init__(self, address: str, username: str, password: str, **settings: Any) -> None:  # noqa: ANN401  # the base's
        """Make a client with the arguments of a `BasicAuthClient`."""
        super().__init__(address, username, password, **settings)
        self._store_backoff = LoginBackoff(self.address, self._clock)
        self._has_token = False
        self._request_lock = asyncio.Lock()

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Run commands in one request; return for each its body, None where it has no output, or a CommandError.

        Raises:
            ValueError: one is not a plain `show …`; nothing was sent.
            SwitchApiError: one of its subclasses, where the switch does not respond at all.
        """
        for command in commands:
            check_show_command(command)
        async with self._request_lock:
            return await self._authenticate(partial(self._run, commands))

    async def objects(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of all objects of a class.

        Raises:
            ValueError: the class is not one of CLASSES; nothing was sent.
            UnsupportedError: the switch has no object store, or not this class.
            SwitchApiError: one of its other subclasses.
        """
        if name not in CLASSES:
            raise ValueError(f"{excerpt(name)} is not requested: it is not in the list of classes")
        async with self._request_lock:
            response, body = await self._get_with_token(f"/api/node/class/{name}.json")
        reply = await decode_json_async(body)
        if not isinstance(reply, dict):
            raise InvalidResponseError(f"{self.address}: {name}: {self._http.describe_body(response, body)}")
        entries = reply.get("imdata")
        if response.status_code != HTTPStatus.OK or not isinstance(entries, list):
            raise UnsupportedError(self.address, name, f"HTTP {response.status_code}: {self.redacted_excerpt(body)}")
        attributes = [
            entry[name].get("attributes")
            for entry in entries
            if isinstance(entry, dict) and isinstance(entry.get(name), dict)
        ]
        return [one for one in attributes if isinstance(one, dict)]

    async def close(self) -> None:
        """Log out of the object store and close the connection; never raises, takes at most 2 s."""
        try:
            async with asyncio.timeout(_LOGOUT_TIMEOUT_SECONDS), self._request_lock:
                if self._has_token:
                    self._has_token = False
                    await self._http.post(_LOGOUT, json={"aaaUser": {"attributes": {"name": self._username}}})
        except (TimeoutError, SwitchApiError):
            pass
        finally:
            await self._http.close()

    async def _run(self, commands: Sequence[str]) -> list[object]:
        calls = [
            {"jsonrpc": "2.0", "method": "cli", "params": {"cmd": command, "version": 1}, "id": number}
            for number, command in enumerate(commands, start=1)
        ]
        response, body = await self._http.post(_PATH, json=calls, headers=_HEADERS)
        if is_denied(response):
            raise self._login_rejected(response, body)
        reply = await decode_json_async(body)
        replies: list[Any] = reply if isinstance(reply, list) else [reply]
        if not all(isinstance(one, dict) for one in replies):
            hint = "; is 'feature nxapi' on?"
            raise InvalidResponseError(f"{self.address}: {self._http.describe_body(response, body)}{hint}")
        self._login_accepted()
        by_id = {one.get("id"): one for one in replies}
        common = reply if isinstance(reply, dict) and "error" in reply else None  # one error may be for all calls
        return [self._result(command, by_id.get(number, common)) for number, command in enumerate(commands, start=1)]

    def _result(self, command: str, reply: dict[str, Any] | None) -> object:
        if reply is None:
            return CommandError(self.address, command, "the response has no result for it")
        if "error" not in reply:
            result = reply.get("result")
            return result.get("body") if isinstance(result, dict) else None
        error = reply["error"] if isinstance(reply["error"], dict) else {}
        data = error.get("data")
        reason = data.get("msg") if isinstance(data, dict) else None
        message = self.redacted_excerpt(str(reason or error.get("message") or error).strip())
        kind = UnsupportedError if _INVALID.search(f"{reason} {error.get('message')}") else CommandError
        return kind(self.address, command, message)

    async def _get_with_token(self, path: str) -> tuple[httpx.Response, bytes]:
        """Send a GET request with a token. Only a successful request proves the log-in: the user may have no rights."""
        had_token = self._has_token
        if not had_token:
            await self._log_in()
        response, body = await self._http.get(path)
        if had_token and is_denied(response):  # a token expires after some minutes
            self._has_token = False
            await self._log_in()
            response, body = await self._http.get(path)
        if is_denied(response):
            self._has_token = False
            reason = (
                f"{self.address}: {path}: a new token is rejected: {self.redacted_excerpt(body)}; may this user see it?"
            )
            self._store_backoff.failed(reason)
            raise LoginError(reason)
        self._store_backoff.succeeded()
        return response, body

    async def _log_in(self) -> None:
        """Log in to the object store; the token is a cookie. A rejection does not affect `show`."""
        self._store_backoff.begin()
        credentials = {"aaaUser": {"attributes": {"name": self._username, "pwd": self._password}}}
        try:
            response, body = await self._http.post(_LOGIN, json=credentials)
        except BaseException:  # the switch neither accepted nor rejected the password
            self._store_backoff.not_sent()
            raise
        reply = decode_json_object(body)
        if is_denied(response) or _is_login_error(reply):  # some releases reject with 200 or 400
            reason = (
                f"{self.address}: {_LOGIN}: HTTP {response.status_code}: {self.redacted_excerpt(body)}; "
                "check user and password"
            )
            self._store_backoff.failed(reason)
            raise LoginError(reason)
        if response.status_code != HTTPStatus.OK or reply is None:
            self._store_backoff.succeeded()  # the password was not checked: there is no object store
            raise UnsupportedError(self.address, _LOGIN, self._http.describe_body(response, body))
        self._has_token = True


def _is_login_error(reply: dict[str, Any] | None) -> bool:
    entries = (reply or {}).get("imdata")
    return isinstance(entries, list) and any(isinstance(entry, dict) and "error" in entry for entry in entries)
