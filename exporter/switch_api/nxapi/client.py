"""Client of Cisco's NX-API: `show` commands as JSON-RPC, and the classes of the object store (DME) beside it.

Commands go with HTTP Basic, several in one request, and each has an answer or an error of its own. The object store
gives a token for a log-in, which ends after some minutes; a request that is refused logs in once more. What the answers
hold is the matter of `nxapi_data`.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx

from exporter.switch_api.basic_auth import BasicClient
from exporter.switch_api.http import (
    CommandError,
    LoginError,
    Logins,
    ReplyError,
    RestError,
    UnsupportedError,
    decoded,
    excerpt,
    is_denied,
    json_object,
)
from exporter.switch_api.show_command import check_show

CLASSES = ("ipqosQueuingStats",)
"""Classes of the object store that are asked for, and no others."""

_PATH = "/ins"
_LOGIN = "/api/aaaLogin.json"
_LOGOUT = "/api/aaaLogout.json"
_HEADERS = {"Content-Type": "application/json-rpc"}
_LOGOUT_TIMEOUT = 2.0
_INVALID = re.compile(
    r"invalid (?:command|number)|syntax error|incomplete|structured output unsupported", re.IGNORECASE
)


class NxapiClient(BasicClient):
    """One switch, one request at a time."""

    def __init__(self, address: str, username: str, password: str, **settings: Any) -> None:  # noqa: ANN401  # the base's
        """Take what a `BasicClient` takes."""
        super().__init__(address, username, password, **settings)
        self._store_logins = Logins(self.address, self._clock)
        self._has_token = False
        self._one_at_a_time = asyncio.Lock()

    async def show(self, commands: Sequence[str]) -> list[object]:
        """Run commands in one request; give for each its body, None where it printed nothing, or a CommandError.

        Raises:
            ValueError: one is not a plain `show …`; nothing was sent.
            RestError: one of its kinds, where the switch does not answer at all.
        """
        for command in commands:
            check_show(command)
        async with self._one_at_a_time:
            return await self._judged(partial(self._run, commands))

    async def objects(self, name: str) -> list[dict[str, Any]]:
        """Give the attributes of all objects of a class.

        Raises:
            ValueError: the class is none that is asked for; nothing was sent.
            UnsupportedError: the switch has no object store, or not this class.
            RestError: one of its other kinds.
        """
        if name not in CLASSES:
            raise ValueError(f"{excerpt(name)} is not asked for")
        async with self._one_at_a_time:
            response, body = await self._objects(f"/api/node/class/{name}.json")
        reply = await decoded(body)
        if not isinstance(reply, dict):
            raise ReplyError(f"{self.address}: {name}: {self._http.described(response, body)}")
        listed = reply.get("imdata")
        if response.status_code != HTTPStatus.OK or not isinstance(listed, list):
            raise UnsupportedError(self.address, name, f"HTTP {response.status_code}: {self.quoted(body)}")
        found = [
            one[name].get("attributes") for one in listed if isinstance(one, dict) and isinstance(one.get(name), dict)
        ]
        return [attributes for attributes in found if isinstance(attributes, dict)]

    async def close(self) -> None:
        """End the session of the object store, and close the connection; never raises, takes 2 s."""
        try:
            async with asyncio.timeout(_LOGOUT_TIMEOUT), self._one_at_a_time:
                if self._has_token:
                    self._has_token = False
                    await self._http.post(_LOGOUT, json={"aaaUser": {"attributes": {"name": self._username}}})
        except (TimeoutError, RestError):
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
            raise self._denied(response, body)
        reply = await decoded(body)
        listed: list[Any] = reply if isinstance(reply, list) else [reply]
        if not all(isinstance(one, dict) for one in listed):
            hint = "; is 'feature nxapi' on?"
            raise ReplyError(f"{self.address}: {self._http.described(response, body)}{hint}")
        self._served()
        by_number = {one.get("id"): one for one in listed}
        whole = reply if isinstance(reply, dict) and "error" in reply else None  # one error may stand for all calls
        return [self._answer(command, by_number.get(number, whole)) for number, command in enumerate(commands, start=1)]

    def _answer(self, command: str, reply: dict[str, Any] | None) -> object:
        if reply is None:
            return CommandError(self.address, command, "no answer among those of the request")
        if "error" not in reply:
            result = reply.get("result")
            return result.get("body") if isinstance(result, dict) else None
        error = reply["error"] if isinstance(reply["error"], dict) else {}
        data = error.get("data")
        words = data.get("msg") if isinstance(data, dict) else None
        message = self.quoted(str(words or error.get("message") or error).strip())
        kind = UnsupportedError if _INVALID.search(f"{words} {error.get('message')}") else CommandError
        return kind(self.address, command, message)

    async def _objects(self, path: str) -> tuple[httpx.Response, bytes]:
        """Fetch with a token. A log-in has succeeded where something is had by it: a right may be missing as well."""
        was_held = self._has_token
        if not was_held:
            await self._take_token()
        response, body = await self._http.get(path)
        if was_held and is_denied(response):  # a token ends after some minutes
            self._has_token = False
            await self._take_token()
            response, body = await self._http.get(path)
        if is_denied(response):
            self._has_token = False
            reason = f"{self.address}: {path}: a fresh token is refused: {self.quoted(body)}; may this user see it?"
            self._store_logins.failed(reason)
            raise LoginError(reason)
        self._store_logins.succeeded()
        return response, body

    async def _take_token(self) -> None:
        """Log in to the object store; the token is a cookie. One that is refused costs the store alone."""
        self._store_logins.begin()
        credentials = {"aaaUser": {"attributes": {"name": self._username, "pwd": self._password}}}
        try:
            response, body = await self._http.post(_LOGIN, json=credentials)
        except BaseException:  # nobody judged the password
            self._store_logins.not_sent()
            raise
        told = json_object(body)
        if is_denied(response) or _is_refusal(told):  # some releases refuse with 200 or 400
            reason = (
                f"{self.address}: {_LOGIN}: HTTP {response.status_code}: {self.quoted(body)}; check user and password"
            )
            self._store_logins.failed(reason)
            raise LoginError(reason)
        if response.status_code != HTTPStatus.OK or told is None:
            self._store_logins.succeeded()  # nobody judged the password: there is no object store
            raise UnsupportedError(self.address, _LOGIN, self._http.described(response, body))
        self._has_token = True


def _is_refusal(told: dict[str, Any] | None) -> bool:
    listed = (told or {}).get("imdata")
    return isinstance(listed, list) and any(isinstance(one, dict) and "error" in one for one in listed)
