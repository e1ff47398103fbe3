"""Client of RESTCONF (RFC 8040) as SONiC has it: GET alone, and only of the paths that are known here.

Every request carries user and password (HTTP Basic), so there is no session; a refused one is a failed log-in, and
nothing is asked again before the rest after it is over.  What the answers hold is the matter of `restconf_data`.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from exporter.rest.http import (
    CommandError,
    Http,
    LoginError,
    Logins,
    ReplyError,
    RestError,
    decoded,
    excerpt,
    is_denied,
    json_object,
)

INTERFACES = "openconfig-interfaces:interfaces"
NEIGHBOURS = "openconfig-lldp:lldp/interfaces"
SYSTEM = "openconfig-system:system/state"
PATHS = (INTERFACES, NEIGHBOURS, SYSTEM)

_ROOT = "/restconf/data/"
_HEADERS = {"Accept": "application/yang-data+json"}


class UnknownPathError(CommandError):
    """The switch does not know the path, or has nothing there."""


class RestconfClient:
    """One switch, one request at a time.

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
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"RestconfClient({str(self._http.base)!r})"

    async def get(self, path: str) -> object:
        """Give what stands at a path.

        Raises:
            ValueError: the path is none that is asked for; nothing was sent.
            UnknownPathError: there is nothing at the path.
            CommandError: the switch refused the request.
            RestError: one of its other kinds.
        """
        if path not in PATHS:
            raise ValueError(f"{excerpt(path)} is not asked for")
        async with self._one_at_a_time:
            if not self._is_known:
                self._logins.begin()
            try:
                return await self._ask(path)
            except LoginError:
                raise
            except BaseException:
                if not self._is_known:
                    self._logins.not_sent()  # nobody judged the password
                raise

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    async def _ask(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + path, headers=_HEADERS)
        if is_denied(response):
            if self._is_known:
                self._is_known = False
                self._logins.begin()
            reason = f"{self.address}: HTTP {response.status_code}: {self._message(body)}; check user and password"
            self._logins.failed(reason)
            raise LoginError(reason)
        if response.has_redirect_location:
            where = self._http.quoted(response.headers["Location"])
            raise ReplyError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        if response.status_code == HTTPStatus.NOT_FOUND and json_object(body) is None:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}; is this RESTCONF?")
        value = await decoded(body)
        if value is msgspec.UNSET:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        self._is_known = True
        self._logins.succeeded()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnknownPathError(self.address, path, self._message(body))
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._message(body)}")
        return value

    def _message(self, body: bytes) -> str:
        """Give what the switch says of an error (RFC 8040, 7.1), or else its beginning."""
        said: Any = json_object(body) or {}
        for step in ("ietf-restconf:errors", "error"):
            said = said.get(step) if isinstance(said, dict) else None
        first = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) else {}
        return self._http.quoted(first.get("error-message") or first.get("error-tag") or body)


__all__ = ["INTERFACES", "NEIGHBOURS", "PATHS", "SYSTEM", "RestError", "RestconfClient", "UnknownPathError"]
