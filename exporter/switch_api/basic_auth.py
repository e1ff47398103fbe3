"""What clients share of which every request carries user and password (HTTP Basic): there is no session to keep.

A refused request is a failed log-in, and nothing is asked again before the rest after it is over. As long as nobody
knows whether the switch takes the password, one request is under way at a time: one that is wrong is sent once.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

import httpx

from exporter.switch_api.http import Http, LoginError, Logins

Answer = TypeVar("Answer")


class BasicClient:
    """One switch.

    Args:
        address: host, `host:port` or a URL; https unless it begins with `http://`.
        username: a user with the right to look.
        password: its password; it appears in no text that this class makes.
        tls: from `tls_context`.
        timeout: seconds for one request, its answer included.
        max_reply: largest answer in bytes; that of all interfaces is the longest.
        clock: monotonic seconds, for the rest after failed log-ins.

    Raises:
        ValueError: the address is none.
    """

    port: ClassVar[int | None] = None
    """TCP port of an address that names none; None is that of the scheme."""

    connections: ClassVar[int] = 1
    """Requests at a time."""

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
        self._logins = Logins(self.address, clock)
        self._is_known = False
        self._first = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base)!r})"

    def quoted(self, said: object, limit: int = 120) -> str:
        """Quote the switch, without the password."""
        return self._http.quoted(said, limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _judged(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a request, and keep account of whether the switch takes the password.

        Args:
            ask: Calls `_served` where the switch takes it, and raises what `_denied` gives where it does not.

        Raises:
            BackoffError: It was refused a short while ago; nothing was sent.
        """
        if self._is_known:
            return await ask()
        async with self._first:
            if self._is_known:
                return await ask()
            self._logins.begin()
            try:
                return await ask()
            except LoginError:
                raise
            except BaseException:
                if not self._is_known:
                    self._logins.not_sent()  # nobody judged the password
                raise

    def _served(self) -> None:
        """Note that the switch takes the password."""
        self._is_known = True
        self._logins.succeeded()

    def _denied(self, response: httpx.Response, body: bytes, remedy: str = "check user and password") -> LoginError:
        """Note that the switch refuses the password, and give the error that says so."""
        if self._is_known:  # it was changed, or this user's rights were
            self._is_known = False
            self._logins.begin()
        reason = f"{self.address}: HTTP {response.status_code}: {self._message(body)}; {remedy}"
        self._logins.failed(reason)
        return LoginError(reason)

    def _message(self, body: bytes) -> str:
        """Give what the switch says of an error."""
        return self.quoted(body)
