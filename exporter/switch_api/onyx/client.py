"""Client of the JSON API of NVIDIA/Mellanox Onyx switches (MLNX-OS, HPE M-series).

The API is the switch's own web server: one log-in gives a session cookie, then every CLI command is a POST of
`{"cmd": "show …"}` that answers `{"status": "OK", "executed_command": …, "status_message": "", "data": …}`.  The
switch must have `web https enable` and `json-gw enable`.  What `data` holds is the matter of `onyx_data`.
"""

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from exporter.switch_api.http import (
    CommandError,
    Http,
    LoginError,
    Logins,
    NotConnectedError,
    ReplyError,
    RestError,
    decoded,
    excerpt,
    is_denied,
    json_object,
)
from exporter.switch_api.show_command import check_show

log = logging.getLogger(__name__)

_JSON_LOGIN = "/admin/launch?script=rh&template=json-request&action=json-login"
_JSON_LOGOUT = "/admin/launch?script=rh&template=json-request&action=json-logout"
_FORM_LOGIN = "/admin/launch?script=rh&template=login&action=login"
_COMMAND = "/admin/launch?script=json"

_SESSION_WORDS = re.compile(r"session|log(?:ged)?[ -]?in\b|authenticat", re.IGNORECASE)
_LOGOUT_TIMEOUT = 2.0


class _SessionLostError(Exception):
    """The answer is one that a switch gives to a client it does not know (any more)."""


class OnyxClient:
    """One switch, one session, one command at a time.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        username: a user with the right to `show`; the role `monitor` is enough.
        password: its password; it appears in no text that this class makes.
        tls: from `tls_context`; share one among clients, since the default one, with the system's CAs, takes 0.9 MiB.
        timeout: seconds for one request, its answer included; a switch gives up on its own after 30.
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
        timeout: float = 35.0,
        max_reply: int = 4 * 2**20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = Http(address, (password,), tls=tls, timeout=timeout, max_reply=max_reply)
        self.address = self._http.address
        self._username = username
        self._password = password
        self._one_at_a_time = asyncio.Lock()
        self._ways: tuple[Callable[[], Awaitable[str | None]], ...] = (self._json_login, self._form_login)
        self._logins = Logins(self.address, clock)
        self._has_session = False
        self._closed = False

    def __repr__(self) -> str:
        return f"OnyxClient({str(self._http.base)!r})"

    async def show(self, command: str) -> object:
        """Run one `show` command and give the `data` of its reply, in whichever shape it came.

        A session that the switch has forgotten is renewed once.

        Raises:
            ValueError: the command is not a plain `show …`; nothing was sent.
            CommandError: the switch refused the command.
            RestError: one of its other kinds, for everything else that can go wrong.
        """
        check_show(command)
        async with self._one_at_a_time:
            if self._closed:
                raise RestError(f"{self.address}: this client is closed")
            if self._has_session:
                with contextlib.suppress(_SessionLostError):
                    return await self._run(command)
                log.debug("%s: the session has ended, logging in again", self.address)
            await self._log_in()
            try:
                return await self._run(command)
            except _SessionLostError as lost:
                self._logins.failed(str(lost))
                raise LoginError(
                    f"{self.address}: a fresh session does not answer {command!r}: {lost}; "
                    "is 'json-gw enable' set and may this user run it?"
                ) from None

    def quoted(self, said: object, limit: int = 120) -> str:
        """Quote the switch, without the password."""
        return self._http.quoted(said, limit)

    async def close(self) -> None:
        """End the session on the switch, which has few of them, and close the connection; never raises, takes 2 s."""
        self._closed = True
        try:
            async with asyncio.timeout(_LOGOUT_TIMEOUT), self._one_at_a_time:
                if self._has_session:
                    self._has_session = False
                    await self._http.post(_JSON_LOGOUT, json={})
        except (TimeoutError, RestError) as error:
            log.debug("%s: not logged out: %s", self.address, error)
        finally:
            await self._http.close()

    async def _run(self, command: str) -> object:
        response, body = await self._http.post(_COMMAND, json={"cmd": command, "execution_type": "sync"})
        reply = await decoded(body)
        if not isinstance(reply, dict) or not self._http.has_cookie():
            self._has_session = False
            raise _SessionLostError(self._http.described(response, body))
        if "results" in reply:
            reply = self._only_result(command, reply["results"])
        status = reply.get("status")
        if status != "OK":
            message = self._message(reply)
            if is_denied(response) or _SESSION_WORDS.search(message):
                self._has_session = False
                raise _SessionLostError(message)
        self._logins.succeeded()
        if status != "OK":
            raise CommandError(self.address, command, message)
        if "data" not in reply:
            raise ReplyError(f"{self.address}: {command!r}: a reply without data: {self._http.quoted(body)}")
        return reply["data"]

    def _only_result(self, command: str, results: object) -> dict[str, Any]:
        if isinstance(results, list) and len(results) == 1 and isinstance(results[0], dict):
            return results[0]
        raise ReplyError(f"{self.address}: {command!r}: not the one result of one command: {excerpt(results)}")

    async def _log_in(self) -> None:
        self._logins.begin()
        try:
            await self._try_logins()
        except NotConnectedError:
            self._logins.not_sent()
            raise
        except RestError as error:
            self._logins.failed(str(error))
            raise

    async def _try_logins(self) -> None:
        """Log in the JSON way, or by the form of the web page where the release knows only that; keep what worked."""
        for login in self._ways:
            self._http.client.cookies.clear()
            refusal = await login()
            if refusal is None:
                self._ways = (login,)
                self._has_session = True
                return
        raise LoginError(
            f"{self.address}: no log-in: {refusal}; check the password, and 'web https enable' and 'json-gw enable'"
        )

    async def _json_login(self) -> str | None:
        """Log in; None is success.  A text means that this switch does not know this way."""
        credentials = {"username": self._username, "password": self._password}
        response, body = await self._http.post(_JSON_LOGIN, json=credentials)
        reply = json_object(body)
        if reply is None or "status" not in reply:
            return self._http.described(response, body)
        if reply["status"] != "OK":
            # Never tried the other way too: that would be a second failure against the account.
            raise LoginError(f"{self.address}: log-in refused: {self._message(reply)}; check user and password")
        if not self._http.has_cookie():
            raise LoginError(f"{self.address}: the log-in was accepted but gave no session cookie")
        return None

    async def _form_login(self) -> str | None:
        credentials = {"f_user_id": self._username, "f_password": self._password}
        response, body = await self._http.post(
            _FORM_LOGIN, data=credentials, arrived=lambda: self._http.has_cookie("session")
        )
        # A refused log-in is the log-in page once more, with 200: only the cookie tells.
        return (
            None if self._http.has_cookie("session") else f"no session cookie; {self._http.described(response, body)}"
        )

    def _message(self, reply: dict[str, Any]) -> str:
        # status_msg at log-in, status_message for commands.
        said = reply.get("status_message") or reply.get("status_msg") or f"status {reply.get('status')!r}"
        return self._http.quoted(said)
