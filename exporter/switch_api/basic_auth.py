"""Base of clients that send user and password with every request (HTTP Basic), so that there is no session.

A rejected request counts as a failed log-in, and no request is sent again before its backoff has expired. Until the
switch has accepted the password, only one request is sent at a time, so that a wrong password is sent once.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

import httpx

from exporter.switch_api.errors import LoginError
from exporter.switch_api.http import HttpClient
from exporter.switch_api.login_backoff import LoginBackoff

Result = TypeVar("Result")


class BasicAuthClient:
    """Client of one switch.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        username: a user with read access.
        password: its password; it is part of no text that this class makes.
        tls: from `tls_context`.
        timeout: seconds for one request, its response included.
        max_reply: largest response in bytes; that of all interfaces is the longest.
        clock: monotonic seconds, for the backoff after failed log-ins.

    Raises:
        ValueError: the address is invalid.
    """

    port: ClassVar[int | None] = None
    """TCP port where the address has none; None is the default of the scheme."""

    connections: ClassVar[int] = 1
    """Concurrent requests."""

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
        self._http = HttpClient(
            address,
            port=self.port,
            tls=tls,
            auth=(username, password),
            timeout=timeout,
            max_reply=max_reply,
            connections=self.connections,
        )
        self.address = self._http.address
        self._username = username
        self._password = password
        self._clock = clock
        self._backoff = LoginBackoff(self.address, clock)
        self._is_authenticated = False
        self._login_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base)!r})"

    def redacted_excerpt(self, value: object, limit: int = 120) -> str:
        """Return the beginning of a value from the switch, without the password."""
        return self._http.redacted_excerpt(value, limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _authenticate(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """Run a request, and record whether the switch accepts the password.

        Args:
            request: Calls `_login_accepted` where the switch accepts it, and raises the result of `_login_rejected`
                where it does not.

        Raises:
            LoginBackoffError: It was rejected a short while ago; nothing was sent.
        """
        if self._is_authenticated:
            return await request()
        async with self._login_lock:
            if self._is_authenticated:
                return await request()
            self._backoff.begin()
            try:
                return await request()
            except LoginError:
                raise
            except BaseException:
                if not self._is_authenticated:
                    self._backoff.not_sent()  # the switch neither accepted nor rejected the password
                raise

    def _login_accepted(self) -> None:
        """Record that the switch accepts the password."""
        self._is_authenticated = True
        self._backoff.succeeded()

    def _login_rejected(
        self, response: httpx.Response, body: bytes, remedy: str = "check user and password"
    ) -> LoginError:
        """Record that the switch rejects the password, and return the error to raise."""
        if self._is_authenticated:  # the password was changed, or the user's rights were
            self._is_authenticated = False
            self._backoff.begin()
        reason = f"{self.address}: HTTP {response.status_code}: {self._error_message(body)}; {remedy}"
        self._backoff.failed(reason)
        return LoginError(reason)

    def _error_message(self, body: bytes) -> str:
        """Return the error message of the switch."""
        return self.redacted_excerpt(body)
