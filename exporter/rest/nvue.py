"""Client of NVUE, the REST API of Cumulus Linux: GET alone, and only of the paths that are known here.

Every request carries user and password (HTTP Basic), so there is no session; a refused one is a failed log-in, and
nothing is asked again before the rest after it is over.  What the answers hold is the matter of `nvue_data`.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote

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

PORT = 8765

_ROOT = "/nvue_v1/"
_PATHS = re.compile(
    r"system|interface|platform/transceiver"
    r"|interface/[A-Za-z0-9_.:-]{1,64}/(?:counters/qos|qos/counters|lldp|transceiver)"
)


class UnknownPathError(CommandError):
    """The release does not know the path, or the port has nothing there."""


class NvueClient:
    """One switch.

    Args:
        address: host, `host:port` or a URL; https and port 8765 unless it says otherwise.
        username: a user with the right to look.
        password: its password; it appears in no text that this class makes.
        tls: from `tls_context`.
        timeout: seconds for one request, its answer included.
        max_reply: largest answer in bytes; that of all interfaces is the longest.
        connections: requests at a time.
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
        connections: int = 3,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = Http(
            address,
            (password,),
            port=PORT,
            tls=tls,
            auth=(username, password),
            timeout=timeout,
            max_reply=max_reply,
            connections=connections,
        )
        self.address = self._http.address
        self._logins = Logins(self.address, clock)
        self._is_known = False
        self._first = asyncio.Lock()

    def __repr__(self) -> str:
        return f"NvueClient({str(self._http.base)!r})"

    async def get(self, path: str) -> object:
        """Give what stands at a path, such as `interface/swp1/lldp`, as the switch has it now.

        Raises:
            ValueError: the path is none that is asked for; nothing was sent.
            UnknownPathError: there is nothing at the path.
            CommandError: the switch refused the request.
            RestError: one of its other kinds.
        """
        if not _PATHS.fullmatch(path):
            raise ValueError(f"{excerpt(path)} is not asked for")
        if self._is_known:
            return await self._ask(path)
        async with self._first:  # a password that is wrong is sent once
            if self._is_known:
                return await self._ask(path)
            self._logins.begin()
            try:
                return await self._ask(path)
            except LoginError:
                raise
            except BaseException:
                if not self._is_known:
                    self._logins.not_sent()  # nobody judged it
                raise

    def quoted(self, said: object, limit: int = 120) -> str:
        """Quote the switch, without the password."""
        return self._http.quoted(said, limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _ask(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + quote(path, safe="/"))
        if is_denied(response):
            raise self._denied(response.status_code, body)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:  # of the web server, before NVUE saw it
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        self._is_known = True
        self._logins.succeeded()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnknownPathError(self.address, path, self._message(body))
        if response.has_redirect_location:
            where = self.quoted(response.headers["Location"])
            raise ReplyError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        value = await decoded(body)
        if value is msgspec.UNSET:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._message(body)}")
        return value

    def _denied(self, status: int, body: bytes) -> RestError:
        if self._is_known:
            self._is_known = False
            self._logins.begin()
        if status == HTTPStatus.FORBIDDEN:
            reason = (
                f"{self.address}: HTTP 403: {self._message(body)}; a switch whose user cumulus still has its first"
                " password answers so: change it, or check what this user may do"
            )
        else:
            reason = f"{self.address}: HTTP {status}: {self._message(body)}; check user and password"
        self._logins.failed(reason)
        return LoginError(reason)

    def _message(self, body: bytes) -> str:
        """Give what the switch says of an error: `{"title": "Not Found", "detail": …}`, or else its beginning."""
        said = json_object(body)
        if said is None:
            return self.quoted(body)
        return self.quoted(said.get("detail") or said.get("title") or body)
