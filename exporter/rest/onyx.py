"""Client of the JSON API of NVIDIA/Mellanox Onyx switches (MLNX-OS, HPE M-series).

The API is the switch's own web server: one log-in gives a session cookie, then every CLI command is a POST of
`{"cmd": "show …"}` that answers `{"status": "OK", "executed_command": …, "status_message": "", "data": …}`.  The
switch must have `web https enable` and `json-gw enable`.  What `data` holds is the matter of `onyx_data`, whose
names are offered here too.
"""

import asyncio
import contextlib
import ipaddress
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import httpx
import msgspec

from exporter.rest.onyx_data import (
    SWITCH,
    Congestion,
    Counters,
    OnyxShapeError,
    PerPort,
    PortState,
    excerpt,
    normalise,
    number,
    parse_congestion_control,
    parse_counters,
    parse_description,
    port_name,
    speed,
    state,
)
from exporter.rest.tls import tls_context

__all__ = [
    "SWITCH",
    "Congestion",
    "Counters",
    "OnyxBackoffError",
    "OnyxClient",
    "OnyxCommandError",
    "OnyxError",
    "OnyxLoginError",
    "OnyxReplyError",
    "OnyxShapeError",
    "OnyxTimeoutError",
    "OnyxTransportError",
    "PerPort",
    "PortState",
    "normalise",
    "number",
    "parse_congestion_control",
    "parse_counters",
    "parse_description",
    "port_name",
    "speed",
    "state",
    "tls_context",
]

log = logging.getLogger(__name__)

_JSON_LOGIN = "/admin/launch?script=rh&template=json-request&action=json-login"
_JSON_LOGOUT = "/admin/launch?script=rh&template=json-request&action=json-logout"
_FORM_LOGIN = "/admin/launch?script=rh&template=login&action=login"
_COMMAND = "/admin/launch?script=json"

# No control characters, quotes, pipes or separators: what is sent can only be the one command that was checked.
_SHOW = re.compile(r"show [A-Za-z0-9 _./:,-]{1,200}")
_SESSION_WORDS = re.compile(r"session|log(?:ged)?[ -]?in\b|authenticat", re.IGNORECASE)
_MAX_REDIRECTS = 5
_FIRST_REST = 60.0
_LONGEST_REST = 3600.0
_LOGOUT_TIMEOUT = 2.0
_CONNECT_TIMEOUT = 10.0


class OnyxError(Exception):
    """Something failed between us and one switch; the text names the switch, what it said, and often the remedy."""


class OnyxTransportError(OnyxError):
    """No connection, no TLS, or the connection broke."""


class OnyxTimeoutError(OnyxTransportError):
    """No complete answer within the time for one command."""


class OnyxReplyError(OnyxError):
    """The answer is too large, not JSON, or not what the API promises."""


class OnyxCommandError(OnyxError):
    """The switch understood and refused: `status` is not OK.

    Attributes:
        command: the command as it was sent.
        message: what the switch said about it.
    """

    def __init__(self, address: str, command: str, message: str) -> None:
        super().__init__(f"{address}: {command!r} failed: {message}")
        self.command = command
        self.message = message


class OnyxLoginError(OnyxError):
    """The switch gave us no session, or none that it honours."""


class OnyxBackoffError(OnyxLoginError):
    """Nothing was sent, since the last log-in failed a short while ago and repeating it may lock the account.

    Attributes:
        retry_after: seconds until the next log-in will be tried.
    """

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after


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
        self._base = _base_url(address)
        self.address = self._base.netloc.decode()
        self._username = username
        self._password = password
        self._timeout = timeout
        self._max_reply = max_reply
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._logins: tuple[Callable[[], Awaitable[str | None]], ...] = (self._json_login, self._form_login)
        self._has_session = False
        self._failed_logins = 0
        self._rest_until = 0.0
        self._last_failure = ""
        self._closed = False
        # No proxy and no .netrc: the password goes to the switch alone.  Compressed answers could not be bounded.
        self._http = httpx.AsyncClient(
            verify=tls if tls is not None else self._base.scheme == "http" or tls_context(),
            trust_env=False,
            headers={"Accept": "application/json, */*;q=0.1", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=1),
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT)),
        )

    def __repr__(self) -> str:
        return f"OnyxClient({str(self._base)!r})"

    async def show(self, command: str) -> object:
        """Run one `show` command and give the `data` of its reply, in whichever shape it came.

        A session that the switch has forgotten is renewed once.

        Raises:
            ValueError: the command is not a plain `show …`; nothing was sent.
            OnyxCommandError: the switch refused the command.
            OnyxError: one of its other kinds, for everything else that can go wrong.
        """
        if not _SHOW.fullmatch(command):
            raise ValueError(f"{excerpt(command)} is not sent: only plain commands that begin with 'show ' are")
        async with self._one_at_a_time:
            if self._closed:
                raise OnyxError(f"{self.address}: this client is closed")
            if self._has_session:
                with contextlib.suppress(_SessionLostError):
                    return await self._run(command)
                log.debug("%s: the session has ended, logging in again", self.address)
            await self._log_in()
            try:
                return await self._run(command)
            except _SessionLostError as lost:
                self._last_failure = str(lost)
                raise OnyxLoginError(
                    f"{self.address}: a fresh session does not answer {command!r}: {lost}; "
                    "is 'json-gw enable' set and may this user run it?"
                ) from None

    async def close(self) -> None:
        """End the session on the switch, which has few of them, and close the connection; never raises, takes 2 s."""
        self._closed = True
        try:
            async with asyncio.timeout(_LOGOUT_TIMEOUT), self._one_at_a_time:
                if self._has_session:
                    self._has_session = False
                    await self._post(_JSON_LOGOUT, json={})
        except (TimeoutError, OnyxError) as error:
            log.debug("%s: not logged out: %s", self.address, error)
        finally:
            await self._http.aclose()

    async def _run(self, command: str) -> object:
        response, body = await self._post(_COMMAND, json={"cmd": command, "execution_type": "sync"})
        reply = _json_object(body)
        if reply is None or not self._has_cookie():
            self._has_session = False
            raise _SessionLostError(self._described(response, body))
        if "results" in reply:
            reply = self._only_result(command, reply["results"])
        status = reply.get("status")
        if status != "OK":
            message = self._message(reply)
            if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or _SESSION_WORDS.search(
                message
            ):
                self._has_session = False
                raise _SessionLostError(message)
        self._failed_logins = 0
        if status != "OK":
            raise OnyxCommandError(self.address, command, message)
        if "data" not in reply:
            raise OnyxReplyError(f"{self.address}: {command!r}: a reply without data: {self._quoted(body)}")
        return reply["data"]

    def _only_result(self, command: str, results: object) -> dict[str, Any]:
        if isinstance(results, list) and len(results) == 1 and isinstance(results[0], dict):
            return results[0]
        raise OnyxReplyError(f"{self.address}: {command!r}: not the one result of one command: {excerpt(results)}")

    async def _log_in(self) -> None:
        rest = self._rest_until - self._clock()
        if self._failed_logins and rest > 0:
            raise OnyxBackoffError(
                f"{self.address}: no log-in for another {rest:.0f} s after {self._failed_logins} failed "
                f"(the last: {self._last_failure}), so that the account is not locked",
                rest,
            )
        # Counted as failed until a command is answered: a time-out or a cancellation half-way counts as well.
        before, self._failed_logins = self._failed_logins, self._failed_logins + 1
        self._last_failure = "not answered"
        self._rest_until = self._clock() + min(_FIRST_REST * 2.0 ** min(before, 10), _LONGEST_REST)
        try:
            await self._try_logins()
        except _NotConnectedError:
            self._failed_logins = before  # no password was sent
            raise
        except OnyxError as error:
            self._last_failure = str(error).removeprefix(f"{self.address}: ")
            raise

    async def _try_logins(self) -> None:
        """Log in the JSON way, or by the form of the web page where the release knows only that; keep what worked."""
        for login in self._logins:
            self._http.cookies.clear()
            refusal = await login()
            if refusal is None:
                self._logins = (login,)
                self._has_session = True
                return
        raise OnyxLoginError(
            f"{self.address}: no log-in: {refusal}; check the password, and 'web https enable' and 'json-gw enable'"
        )

    async def _json_login(self) -> str | None:
        """Log in; None is success.  A text means that this switch does not know this way."""
        credentials = {"username": self._username, "password": self._password}
        response, body = await self._post(_JSON_LOGIN, json=credentials)
        reply = _json_object(body)
        if reply is None or "status" not in reply:
            return self._described(response, body)
        if reply["status"] != "OK":
            # Never tried the other way too: that would be a second failure against the account.
            raise OnyxLoginError(f"{self.address}: log-in refused: {self._message(reply)}; check user and password")
        if not self._has_cookie():
            raise OnyxLoginError(f"{self.address}: the log-in was accepted but gave no session cookie")
        return None

    async def _form_login(self) -> str | None:
        credentials = {"f_user_id": self._username, "f_password": self._password}
        response, body = await self._post(_FORM_LOGIN, data=credentials, until_cookie="session")
        # A refused log-in is the log-in page once more, with 200: only the cookie tells.
        return None if self._has_cookie("session") else f"no session cookie; {self._described(response, body)}"

    def _has_cookie(self, name: str | None = None) -> bool:
        return any(cookie.value and name in (None, cookie.name) for cookie in self._http.cookies.jar)

    async def _post(
        self,
        path: str,
        *,
        json: dict[str, str] | None = None,
        data: dict[str, str] | None = None,
        until_cookie: str | None = None,
    ) -> tuple[httpx.Response, bytes]:
        """Post, following redirects with the same method and body, which browsers and httpx would turn into a GET."""
        url = self._base.join(path)
        for _ in range(_MAX_REDIRECTS + 1):
            response, body = await self._exchange(self._http.build_request("POST", url, json=json, data=data))
            arrived = not response.has_redirect_location or (until_cookie and self._has_cookie(until_cookie))
            if arrived:
                return response, body
            url = self._redirected(url, response.headers["Location"])
        raise OnyxReplyError(f"{self.address}: more than {_MAX_REDIRECTS} redirects, the last to {excerpt(str(url))}")

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where to post next; what is posted may be the password, so it stays on the host and on TLS."""
        try:
            target = url.join(location)
        except (httpx.InvalidURL, ValueError):
            raise OnyxReplyError(f"{self.address}: redirected to no URL: {excerpt(location)}") from None
        if target.host != url.host or target.scheme not in (url.scheme, "https") or target.userinfo:
            raise OnyxReplyError(
                f"{self.address}: not followed: a redirect away from the switch to {excerpt(location)}"
            )
        return target

    async def _exchange(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        # `from None`: httpx's errors carry the request, and with it the password.
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._http.send(request, stream=True)
                try:
                    return response, await self._bounded(response)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            hint = (
                "; give the switch's CA as ca_file or its fingerprint as sha256" if "certificate" in str(error) else ""
            )
            what = excerpt(str(error) or type(error).__name__, 300)
            raise _NotConnectedError(f"{self.address}: not connected: {what}{hint}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise OnyxTimeoutError(f"{self.address}: no complete answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = excerpt(str(error) or type(error).__name__, 300)
            raise OnyxTransportError(f"{self.address}: the exchange failed: {what}") from None

    async def _bounded(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_reply:
                raise OnyxReplyError(f"{self.address}: an answer of more than {self._max_reply} bytes was dropped")
        return bytes(body)

    def _message(self, reply: dict[str, Any]) -> str:
        # status_msg at log-in, status_message for commands.
        said = reply.get("status_message") or reply.get("status_msg") or f"status {reply.get('status')!r}"
        return self._quoted(said)

    def _described(self, response: httpx.Response, body: bytes) -> str:
        kind = "a page (HTML)" if body.lstrip()[:1] == b"<" else "no JSON"
        return f"HTTP {response.status_code} with {kind} in place of a reply: {self._quoted(body)}"

    def _quoted(self, said: object) -> str:
        """Quote the switch, which may quote us."""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        return excerpt(text.replace(self._password, "***") if self._password else text)


class _NotConnectedError(OnyxTransportError):
    """Failed before anything could be sent."""


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return reply if isinstance(reply, dict) else None


def _base_url(address: str) -> httpx.URL:
    """Make the URL of the switch; an address with a password in it is refused without quoting it."""
    text = address if "://" in address else f"https://{_bracketed(address)}"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise ValueError("address: not a host, host:port or URL") from None
    if url.userinfo:
        raise ValueError("address: user and password do not belong into the address")
    if url.scheme not in ("https", "http") or not url.host or url.path not in ("", "/") or url.query or url.fragment:
        raise ValueError(f"address: {excerpt(address)} is not a host, host:port, https:// or http:// address")
    return url


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
