"""HTTP client of one switch: bounded in time and size; errors name the switch and never contain a password.

Redirects are followed only where the credentials stay with the same server: its host and port, or its port of TLS.
"""

import asyncio
import ipaddress
import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote, quote_plus

import httpx
import msgspec

from exporter.switch_api.errors import InvalidResponseError, NotConnectedError, ResponseTimeoutError, TransportError
from exporter.switch_api.text_values import excerpt
from exporter.switch_api.tls import tls_context

MAX_REDIRECTS = 5
HTTPS_PORT = 443
CONNECT_TIMEOUT_SECONDS = 10.0

CONNECT_SHARE = 0.8
"""Share of the time of a request that the connection, and its TLS handshake, may take at most: where the whole time
ends a handshake first, its socket stays open until Python collects garbage.
"""

MAX_JSON_VALUES, MAX_JSON_CONTAINERS = 2**20, 2**17
"""Commas, and objects and lists, of one response: decoding blocks this program, threads or not, for a tenth of a
second with that many. All interfaces of the largest switch have a fifth of them."""

MAX_ERROR_REPLY = 2**16
"""Bytes that are read of a response without a result: a page of an error, a redirect."""

MAX_SECRET_LENGTH = 4096

MAX_INLINE_JSON_BYTES = 2**18
"""JSON of this size or more is decoded in a thread: it takes a millisecond or more."""


class HttpClient:
    """The connections to one switch.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        secrets: texts that must never be part of an error, even where the switch quotes them.
        port: used where the address has none; None is the default of the scheme.
        tls: from `tls_context`; share one among clients, since the default one, with the system's CAs, takes 0.9 MiB.
        auth: user and password of HTTP Basic, where the API uses it.
        timeout: seconds for one request, its response included.
        max_reply: largest response in bytes.
        connections: concurrent requests.

    Raises:
        ValueError: the address is invalid.
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
        self._secrets = _encoded_forms((*secrets, *([auth[1], _basic_credentials(*auth)] if auth is not None else ())))
        self._timeout = timeout
        self._max_reply = max_reply
        # No proxy and no .netrc: the password goes to the switch alone.  Compressed responses could not be bounded.
        self.client = httpx.AsyncClient(
            verify=tls if tls is not None else self.base.scheme == "http" or tls_context(),
            trust_env=False,
            auth=auth,
            headers={"Accept": "application/json, */*;q=0.1", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=connections),
            timeout=httpx.Timeout(timeout, connect=min(timeout * CONNECT_SHARE, CONNECT_TIMEOUT_SECONDS)),
        )

    def __repr__(self) -> str:
        return f"HttpClient({str(self.base)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> tuple[httpx.Response, bytes]:
        """Send a GET request and return response and body; redirects are returned, not followed."""
        return await self.send(self.client.build_request("GET", self.base.join(path), headers=headers))

    async def post(
        self,
        path: str,
        *,
        json: object = None,
        data: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> tuple[httpx.Response, bytes]:
        """Send a POST request; redirects are followed with the same method and body, where browsers switch to GET.

        Args:
            path: on the switch.
            json: body as JSON, or
            data: body as a form.
            headers: additional headers.
            is_complete: returns True where a redirect need not be followed, since its response already had the result.

        Raises:
            SwitchApiError: one of its subclasses.
        """
        url = self.base.join(path)
        for _ in range(MAX_REDIRECTS + 1):
            request = self.client.build_request("POST", url, json=json, data=data, headers=headers)
            response, body = await self.send(request)
            if not response.has_redirect_location or is_complete():
                return response, body
            url = self._redirect_target(url, response.headers["Location"])
        raise InvalidResponseError(
            f"{self.address}: more than {MAX_REDIRECTS} redirects, the last to {self.redacted_excerpt(url)}"
        )

    async def send(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        """Send one request and read the whole response.

        Raises:
            NotConnectedError: nothing was sent.
            ResponseTimeoutError: no complete response in time.
            TransportError: the connection was closed.
            InvalidResponseError: the response is too large.
        """
        # `from None`: httpx's errors carry the request, and with it the password.
        try:
            async with asyncio.timeout(self._timeout):
                response = await self.client.send(request, stream=True)
                try:
                    return response, await self._read_body(response)
                finally:
                    await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            hint = (
                "; give the switch's CA as ca_file or its fingerprint as sha256" if "certificate" in str(error) else ""
            )
            cause = excerpt(str(error) or type(error).__name__, 300)
            raise NotConnectedError(f"{self.address}: not connected: {cause}{hint}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise ResponseTimeoutError(f"{self.address}: no complete response within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            cause = excerpt(str(error) or type(error).__name__, 300)
            raise TransportError(f"{self.address}: request failed: {cause}") from None

    def has_cookie(self, name: str | None = None) -> bool:
        """Return whether the switch set a cookie, of that name where one is given."""
        return any(cookie.value and name in (None, cookie.name) for cookie in self.client.cookies.jar)

    def describe_body(self, response: httpx.Response, body: bytes) -> str:
        """Return a description of a response whose body is not the expected JSON."""
        kind = "an HTML page" if body[:256].lstrip()[:1] == b"<" else "a body other than JSON"
        if has_too_many_values(body):
            kind = f"more than {MAX_JSON_VALUES} values, or {MAX_JSON_CONTAINERS} objects and lists,"
        return f"HTTP {response.status_code} with {kind} instead of a result: {self.redacted_excerpt(body)}"

    def redacted_excerpt(self, value: object, limit: int = 120) -> str:
        """Return the beginning of a value from the switch, with our secrets replaced by `***`."""
        longest = limit + MAX_SECRET_LENGTH  # a secret may begin before the limit and end after it
        if isinstance(value, bytes):
            value = value[: longest * 4].decode(errors="replace")
        text = str(value)[:longest]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return excerpt(text, limit)

    def _redirect_target(self, url: httpx.URL, location: str) -> httpx.URL:
        """Return the next URL; header or body have the password, so the server must be the same, and TLS stay TLS.

        Another port of the host can be another program, of another user. From plain HTTP the usual port of TLS is
        allowed, as the password was sent in clear text before.
        """
        try:
            target = url.join(location)
        except (httpx.InvalidURL, ValueError):
            raise InvalidResponseError(
                f"{self.address}: redirected to an invalid URL: {self.redacted_excerpt(location)}"
            ) from None
        to_tls = (url.scheme, target.scheme, target.port or HTTPS_PORT) == ("http", "https", HTTPS_PORT)
        if target.host != url.host or target.userinfo or not (to_tls or _server(target) == _server(url)):
            where = self.redacted_excerpt(location)
            raise InvalidResponseError(f"{self.address}: a redirect away from the switch is not followed: {where}")
        return target

    async def _read_body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if response.status_code != HTTPStatus.OK and len(body) >= MAX_ERROR_REPLY:
                return bytes(body[:MAX_ERROR_REPLY])
            if len(body) > self._max_reply:
                raise InvalidResponseError(f"{self.address}: response of more than {self._max_reply} bytes discarded")
        return bytes(body)


def decode_json(body: bytes) -> object:
    """Decode JSON; return `msgspec.UNSET` for anything else, which differs from `null`, and for too many values."""
    if len(body) > MAX_INLINE_JSON_BYTES and has_too_many_values(body):
        return msgspec.UNSET
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.UNSET


def has_too_many_values(body: bytes) -> bool:
    """Return whether JSON has more values than a switch has; those inside texts are counted too."""
    return body.count(b",") > MAX_JSON_VALUES or body.count(b"[") + body.count(b"{") > MAX_JSON_CONTAINERS


async def decode_json_async(body: bytes) -> object:
    """Decode JSON like `decode_json`; a large body in a thread, so that the event loop is not blocked."""
    return decode_json(body) if len(body) < MAX_INLINE_JSON_BYTES else await asyncio.to_thread(decode_json, body)


def decode_json_object(body: bytes) -> dict[str, Any] | None:
    """Decode a small JSON object, such as an error or the result of a log-in; return None for anything else."""
    value = decode_json(body) if len(body) <= MAX_INLINE_JSON_BYTES else None
    return value if isinstance(value, dict) else None


def is_denied(response: httpx.Response) -> bool:
    """Return whether the status is 401 Unauthorized or 403 Forbidden."""
    return response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def base_url(address: str, port: int | None = None) -> httpx.URL:
    """Return the URL of a switch; an address that contains a password is rejected without quoting it.

    Raises:
        ValueError: it is not a host, `host:port`, or URL of http or https.
    """
    text = address if "://" in address else f"https://{_bracket_ipv6(address)}"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise ValueError("address: not a host, host:port or URL") from None
    if url.userinfo:
        raise ValueError("address: user and password do not belong into the address; set username and password")
    if url.scheme not in ("https", "http") or not url.host or url.path not in ("", "/") or url.query or url.fragment:
        raise ValueError(f"address: {excerpt(address)} is not a host, host:port, https:// or http:// address")
    return url if port is None or url.port is not None else url.copy_with(port=port)


def _server(url: httpx.URL) -> tuple[str, int | None]:
    """Return scheme and port of a URL; httpx has None for the usual port of a scheme."""
    return url.scheme, url.port


def _basic_credentials(username: str, password: str) -> str:
    return b64encode(f"{username}:{password}".encode()).decode()


def _encoded_forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Return each secret as it is and as encoded in JSON, in a form and in a URL; the longest first."""
    forms = {
        form
        for secret in secrets
        if secret
        for form in (secret, json.dumps(secret)[1:-1], quote_plus(secret), quote(secret, safe=""))
    }
    return tuple(sorted(forms, key=len, reverse=True))


def _bracket_ipv6(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
