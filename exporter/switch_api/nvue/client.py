"""Client of NVUE, the REST API of Cumulus Linux: GET alone, and only of the paths that are known here.

What the answers hold is the matter of `nvue_data`.
"""

import re
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from exporter.switch_api.basic_auth import BasicClient
from exporter.switch_api.http import (
    CommandError,
    ReplyError,
    UnsupportedError,
    decoded,
    excerpt,
    is_denied,
    json_object,
)

_ROOT = "/nvue_v1/"
_FORBIDDEN = (
    "a switch whose user cumulus still has its first password answers so: change it, or check what this user may do"
)
_PATHS = re.compile(
    r"system|interface|platform/transceiver"
    r"|interface/[A-Za-z0-9_.:-]{1,64}/(?:counters/qos|qos/counters|lldp|transceiver)"
)


class NvueClient(BasicClient):
    """One switch, a few requests at a time."""

    port = 8765
    connections = 3  # its management has few cores, and more to do

    async def get(self, path: str) -> object:
        """Give what stands at a path, such as `interface/swp1/lldp`, as the switch has it now.

        Raises:
            ValueError: the path is none that is asked for; nothing was sent.
            UnsupportedError: there is nothing at the path.
            CommandError: the switch refused the request.
            RestError: one of its other kinds.
        """
        if not _PATHS.fullmatch(path):
            raise ValueError(f"{excerpt(path)} is not asked for")
        return await self._judged(partial(self._ask, path))

    async def _ask(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + quote(path, safe="/"))
        if is_denied(response):
            if response.status_code == HTTPStatus.FORBIDDEN:
                raise self._denied(response, body, _FORBIDDEN)
            raise self._denied(response, body)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:  # of the web server, before NVUE saw it
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        self._served()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnsupportedError(self.address, path, self._message(body))
        if response.has_redirect_location:
            where = self.quoted(response.headers["Location"])
            raise ReplyError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        value = await decoded(body)
        if value is msgspec.UNSET:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._message(body)}")
        return value

    def _message(self, body: bytes) -> str:
        """Give what the switch says of an error: `{"title": "Not Found", "detail": …}`, or else its beginning."""
        said = json_object(body)
        if said is None:
            return self.quoted(body)
        return self.quoted(said.get("detail") or said.get("title") or body)
