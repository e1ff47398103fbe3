"""HTTP to a switch: bounded in time and size, errors in words that name the switch, and never a password among them.

Every API of a switch is asked through this: requests one at a time, redirects only where nothing can be given away,
answers up to a size, and a rest after failed log-ins, so that an account is not locked by a poller.
"""

import asyncio
import ipaddress
import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote, quote_plus

import httpx
import msgspec

from exporter.switch_api.tls import tls_context

MAX_REDIRECTS = 5
FIRST_REST = 60.0
LONGEST_REST = 3600.0
"""Seconds without a log-in after the first failed one, and at most: twice as long after each further one."""

CONNECT_TIMEOUT = 10.0

LONG = 2**18
"""Bytes of JSON from which on it is decoded beside the event loop: a millisecond's work."""


class RestError(Exception):
    """Something failed between us and one switch; the text names the switch, what it said, and often the remedy."""


class TransportError(RestError):
    """No connection, no TLS, or the connection broke."""


class NotConnectedError(TransportError):
    """Failed before anything could be sent."""


class AnswerTimeoutError(TransportError):
    """No complete answer within the time for one request."""


class ReplyError(RestError):
    """The answer is too large, not JSON, or not what the API promises."""


class CommandError(RestError):
    """The switch understood and refused one request; others may do.

    Attributes:
        command: the command or path as it was asked.
        message: what the switch said about it.
    """

    def __init__(self, address: str, command: str, message: str) -> None:
        super().__init__(f"{address}: {command!r} failed: {message}")
        self.command = command
        self.message = message


class UnsupportedError(CommandError):
    """The switch does not know the command or path, not in this form, or has nothing there."""


class LoginError(RestError):
    """The switch does not know us, or gave us no session that it honours."""


class BackoffError(LoginError):
    """Nothing was sent, since the last log-in failed a short while ago and repeating it may lock the account.

    Attributes:
        retry_after: seconds until the next log-in will be tried.
    """

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Logins:
    """Counts failed log-ins, and says how long to rest before the next.

    A log-in counts as failed from its beginning until `succeeded` is called: one that is cancelled half-way, or not
    answered, counts as well.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._failed = 0
        self._rest_until = float("-inf")
        self._last_failure = ""

    def begin(self) -> None:
        """Note that a password is about to be sent.

        Raises:
            BackoffError: It is too early; nothing must be sent.
        """
        rest = self._rest_until - self._clock()
        if self._failed and rest > 0:
            raise BackoffError(
                f"{self._address}: no log-in for another {rest:.0f} s after {self._failed} failed "
                f"(the last: {self._last_failure}), so that the account is not locked",
                rest,
            )
        self._rest_until = self._clock() + min(FIRST_REST * 2.0 ** min(self._failed, 10), LONGEST_REST)
        self._failed += 1
        self._last_failure = "not answered"

    def not_sent(self) -> None:
        """Take back the last `begin`: there was no connection, so no password went out."""
        self._failed = max(0, self._failed - 1)
        self._rest_until = float("-inf")  # it was over, or nothing would have begun

    def failed(self, reason: str) -> None:
        """Note why the last log-in failed, without the switch's address."""
        self._last_failure = reason.removeprefix(f"{self._address}: ")

    def succeeded(self) -> None:
        """Note that the switch serves us: the next failure is a first one."""
        self._failed = 0


class Http:
    """The connection to one switch.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        secrets: texts that must never show up in an error, even where the switch quotes them.
        port: where the address names none; None is that of the scheme.
        tls: from `tls_context`; share one among clients, since the default one, with the system's CAs, takes 0.9 MiB.
        auth: user and password of HTTP Basic, where the API has it.
        timeout: seconds for one request, its answer included.
        max_reply: largest answer in bytes.
        connections: requests at a time.

    Raises:
        ValueError: the address is none.
    """

    def __init__(
        self,
        address: str,
        secrets: tuple[str, ...] = (),
        *,
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float = 35.0,
        max_reply: int = 4 * 2**20,
        connections: int = 1,
    ) -> None:
        self.base = base_url(address, port)
        self.address = self.base.netloc.decode()
        self._secrets = _forms((*secrets, *([auth[1], _basic(*auth)] if auth is not None else ())))
        self._timeout = timeout
        self._max_reply = max_reply
        # No proxy and no .netrc: the password goes to the switch alone.  Compressed answers could not be bounded.
        self.client = httpx.AsyncClient(
            verify=tls if tls is not None else self.base.scheme == "http" or tls_context(),
            trust_env=False,
            auth=auth,
            headers={"Accept": "application/json, */*;q=0.1", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=connections),
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
        )

    def __repr__(self) -> str:
        return f"Http({str(self.base)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> tuple[httpx.Response, bytes]:
        """Ask for a path; redirects are answers like others."""
        return await self.exchange(self.client.build_request("GET", self.base.join(path), headers=headers))

    async def post(
        self,
        path: str,
        *,
        json: object = None,
        data: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        arrived: Callable[[], bool] = lambda: False,
    ) -> tuple[httpx.Response, bytes]:
        """Post, following redirects with the same method and body, which browsers and httpx would turn into a GET.

        Args:
            path: on the switch.
            json: what to send as JSON, or
            data: as a form.
            headers: to send beside the usual ones.
            arrived: tells that a redirect need not be followed, since its answer brought what was asked for.

        Raises:
            RestError: one of its kinds.
        """
        url = self.base.join(path)
        for _ in range(MAX_REDIRECTS + 1):
            request = self.client.build_request("POST", url, json=json, data=data, headers=headers)
            response, body = await self.exchange(request)
            if not response.has_redirect_location or arrived():
                return response, body
            url = self._redirected(url, response.headers["Location"])
        raise ReplyError(f"{self.address}: more than {MAX_REDIRECTS} redirects, the last to {self.quoted(url)}")

    async def exchange(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        """Send one request and read its whole answer.

        Raises:
            NotConnectedError: nothing could be sent.
            AnswerTimeoutError: no complete answer in time.
            TransportError: the connection broke.
            ReplyError: the answer is too large.
        """
        # `from None`: httpx's errors carry the request, and with it the password.
        try:
            async with asyncio.timeout(self._timeout):
                response = await self.client.send(request, stream=True)
                try:
                    return response, await self._bounded(response)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            hint = (
                "; give the switch's CA as ca_file or its fingerprint as sha256" if "certificate" in str(error) else ""
            )
            what = excerpt(str(error) or type(error).__name__, 300)
            raise NotConnectedError(f"{self.address}: not connected: {what}{hint}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise AnswerTimeoutError(f"{self.address}: no complete answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = excerpt(str(error) or type(error).__name__, 300)
            raise TransportError(f"{self.address}: the exchange failed: {what}") from None

    def has_cookie(self, name: str | None = None) -> bool:
        """Tell whether the switch gave us a cookie, of that name where one is given."""
        return any(cookie.value and name in (None, cookie.name) for cookie in self.client.cookies.jar)

    def described(self, response: httpx.Response, body: bytes) -> str:
        """Say what came in place of JSON."""
        kind = "a page (HTML)" if body.lstrip()[:1] == b"<" else "no JSON"
        return f"HTTP {response.status_code} with {kind} in place of a reply: {self.quoted(body)}"

    def quoted(self, said: object, limit: int = 120) -> str:
        """Quote the beginning of what the switch said, which may quote us."""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return excerpt(text, limit)

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where to post next; what is posted may be the password, so it stays on the host and on TLS."""
        try:
            target = url.join(location)
        except (httpx.InvalidURL, ValueError):
            raise ReplyError(f"{self.address}: redirected to no URL: {self.quoted(location)}") from None
        if target.host != url.host or target.scheme not in (url.scheme, "https") or target.userinfo:
            where = self.quoted(location)
            raise ReplyError(f"{self.address}: not followed: a redirect away from the switch to {where}")
        return target

    async def _bounded(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_reply:
                raise ReplyError(f"{self.address}: an answer of more than {self._max_reply} bytes was dropped")
        return bytes(body)


def json_value(body: bytes) -> object:
    """Decode JSON; what is none gives `msgspec.UNSET`, so that a caller can tell it from `null`."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.UNSET


async def decoded(body: bytes) -> object:
    """Decode JSON as `json_value` does; a long text off the loop, which has others to serve."""
    return json_value(body) if len(body) < LONG else await asyncio.to_thread(json_value, body)


def json_object(body: bytes) -> dict[str, Any] | None:
    """Decode JSON that should be an object; None for anything else."""
    value = json_value(body)
    return value if isinstance(value, dict) else None


def excerpt(value: object, limit: int = 120) -> str:
    """Give the beginning of a value as one printable line, for an error text."""
    text = ascii(value[: limit * 2] if isinstance(value, str | bytes) else value)
    return text if len(text) <= limit else text[:limit] + "…"


def is_denied(response: httpx.Response) -> bool:
    """Tell whether the switch says that it does not know us or that we may not."""
    return response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def base_url(address: str, port: int | None = None) -> httpx.URL:
    """Make the URL of a switch; an address with a password in it is refused without quoting it.

    Raises:
        ValueError: It is no host, `host:port`, or URL of http or https.
    """
    text = address if "://" in address else f"https://{_bracketed(address)}"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise ValueError("address: not a host, host:port or URL") from None
    if url.userinfo:
        raise ValueError("address: user and password do not belong into the address")
    if url.scheme not in ("https", "http") or not url.host or url.path not in ("", "/") or url.query or url.fragment:
        raise ValueError(f"address: {excerpt(address)} is not a host, host:port, https:// or http:// address")
    return url if port is None or url.port is not None else url.copy_with(port=port)


def _basic(username: str, password: str) -> str:
    """Give what stands for user and password in the header of HTTP Basic."""
    return b64encode(f"{username}:{password}".encode()).decode()


def _forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Give each secret as it is, and as it looks in JSON, in a form and in a URL; the longest first."""
    forms = {
        form
        for secret in secrets
        if secret
        for form in (secret, json.dumps(secret)[1:-1], quote_plus(secret), quote(secret, safe=""))
    }
    return tuple(sorted(forms, key=len, reverse=True))


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
