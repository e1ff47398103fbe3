"""Client of the JSON API of NVIDIA/Mellanox Onyx switches (MLNX-OS, HPE M-series).

The API is the switch's own web server: a log-in returns a session cookie, then every CLI command is a POST request of
`{"cmd": "show …"}` with the response `{"status": "OK", "executed_command": …, "status_message": "", "data": …}`.  The
switch must have `web https enable` and `json-gw enable`.  `data` is parsed in `parser` and `facts`.
"""

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from exporter.switch_api.errors import (
    CommandError,
    InvalidResponseError,
    LoginError,
    NotConnectedError,
    SwitchApiError,
)
from exporter.switch_api.http import HttpClient, decode_json_async, decode_json_object, is_denied
from exporter.switch_api.login_backoff import LoginBackoff
from exporter.switch_api.show_command import check_show_command
from exporter.switch_api.text_values import excerpt

logger = logging.getLogger(__name__)

_JSON_LOGIN = "/admin/launch?script=rh&template=json-request&action=json-login"
_JSON_LOGOUT = "/admin/launch?script=rh&template=json-request&action=json-logout"
_FORM_LOGIN = "/admin/launch?script=rh&template=login&action=login"
_COMMAND = "/admin/launch?script=json"

_SESSION_ERROR = re.compile(r"session|log(?:ged)?[ -]?in\b|authenticat", re.IGNORECASE)
_LOGOUT_TIMEOUT_SECONDS = 2.0


class _SessionExpiredError(Exception):
    """The response is that to a client without a valid session."""


class OnyxClient:
    """Client of one switch: one session, one command at a time.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        username: a user with the right to `show`; the role `monitor` is enough.
        password: its password; it is part of no text that this class makes.
        tls: from `tls_context`; share one among clients, since the default one, with the system's CAs, takes 0.9 MiB.
        timeout: seconds for one request, its response included; the switch itself gives up after 30.
        max_reply: largest response in bytes.
        clock: monotonic seconds, for the backoff after failed log-ins.

    Raises:
        ValueError: the address is invalid.
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
        self._http = HttpClient(address, (password,), tls=tls, timeout=timeout, max_reply=max_reply)
        self.address = self._http.address
        self._username = username
        self._password = password
        self._request_lock = asyncio.Lock()
        self._login_methods: tuple[Callable[[], Awaitable[str | None]], ...] = (self._json_login, self._form_login)
        self._backoff = LoginBackoff(self.address, clock)
        self._has_session = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"OnyxClient({str(self._http.base)!r})"

    async def show(self, command: str) -> object:
        """Run one `show` command and return the `data` of its reply.

        An expired session is renewed once.

        Raises:
            ValueError: the command is not a plain `show …`; nothing was sent.
            CommandError: the switch refused the command.
            SwitchApiError: one of its other subclasses.
        """
        check_show_command(command)
        async with self._request_lock:
            if self._is_closed:
                raise SwitchApiError(f"{self.address}: this client is closed")
            if self._has_session:
                with contextlib.suppress(_SessionExpiredError):
                    return await self._run(command)
                logger.debug("%s: the session has expired, logging in again", self.address)
            await self._log_in()
            try:
                return await self._run(command)
            except _SessionExpiredError as expired:
                self._backoff.failed(str(expired))
                raise LoginError(
                    f"{self.address}: a new session cannot run {command!r}: {expired}; "
                    "is 'json-gw enable' set and may this user run it?"
                ) from None

    def redacted_excerpt(self, value: object, limit: int = 120) -> str:
        """Return the beginning of a value from the switch, without the password."""
        return self._http.redacted_excerpt(value, limit)

    async def close(self) -> None:
        """Log out, since a switch has few sessions, and close the connection; never raises, takes at most 2 s."""
        self._is_closed = True
        try:
            async with asyncio.timeout(_LOGOUT_TIMEOUT_SECONDS), self._request_lock:
                if self._has_session:
                    self._has_session = False
                    await self._http.post(_JSON_LOGOUT, json={})
        except (TimeoutError, SwitchApiError) as error:
            logger.debug("%s: not logged out: %s", self.address, error)
        finally:
            await self._http.close()

    async def _run(self, command: str) -> object:
        response, body = await self._http.post(_COMMAND, json={"cmd": command, "execution_type": "sync"})
        reply = await decode_json_async(body)
        if not isinstance(reply, dict) or not self._http.has_cookie():
            self._has_session = False
            raise _SessionExpiredError(self._http.describe_body(response, body))
        if "results" in reply:
            reply = self._only_result(command, reply["results"])
        status = reply.get("status")
        if status != "OK":
            message = self._error_message(reply)
            if is_denied(response) or _SESSION_ERROR.search(message):
                self._has_session = False
                raise _SessionExpiredError(message)
        self._backoff.succeeded()
        if status != "OK":
            raise CommandError(self.address, command, message)
        if "data" not in reply:
            raise InvalidResponseError(
                f"{self.address}: {command!r}: the reply has no data: {self._http.redacted_excerpt(body)}"
            )
        return reply["data"]

    def _only_result(self, command: str, results: object) -> dict[str, Any]:
        if isinstance(results, list) and len(results) == 1 and isinstance(results[0], dict):
            return results[0]
        raise InvalidResponseError(f"{self.address}: {command!r}: not exactly one result: {excerpt(results)}")

    async def _log_in(self) -> None:
        self._backoff.begin()
        try:
            await self._try_logins()
        except NotConnectedError:
            self._backoff.not_sent()
            raise
        except SwitchApiError as error:
            self._backoff.failed(str(error))
            raise

    async def _try_logins(self) -> None:
        """Log in by JSON, or by the web form where the release has only that; what works is used from then on."""
        for login in self._login_methods:
            self._http.client.cookies.clear()
            refusal = await login()
            if refusal is None:
                self._login_methods = (login,)
                self._has_session = True
                return
        raise LoginError(
            f"{self.address}: log-in failed: {refusal}; check the password, and 'web https enable' and 'json-gw enable'"
        )

    async def _json_login(self) -> str | None:
        """Log in by JSON; return None on success, else a text: the release does not support this method."""
        credentials = {"username": self._username, "password": self._password}
        response, body = await self._http.post(_JSON_LOGIN, json=credentials)
        reply = decode_json_object(body)
        if reply is None or "status" not in reply:
            return self._http.describe_body(response, body)
        if reply["status"] != "OK":
            # The web form is not tried as well: that would be a second failure of the account.
            raise LoginError(f"{self.address}: log-in refused: {self._error_message(reply)}; check user and password")
        if not self._http.has_cookie():
            raise LoginError(f"{self.address}: the log-in was accepted but set no session cookie")
        return None

    async def _form_login(self) -> str | None:
        credentials = {"f_user_id": self._username, "f_password": self._password}
        response, body = await self._http.post(
            _FORM_LOGIN, data=credentials, is_complete=lambda: self._http.has_cookie("session")
        )
        # The response to a rejected log-in is the log-in page, with 200: only the cookie shows success.
        return (
            None
            if self._http.has_cookie("session")
            else f"no session cookie; {self._http.describe_body(response, body)}"
        )

    def _error_message(self, reply: dict[str, Any]) -> str:
        # status_msg at log-in, status_message for commands.
        message = reply.get("status_message") or reply.get("status_msg") or f"status {reply.get('status')!r}"
        return self._http.redacted_excerpt(message)
