"""Client of RESTCONF (RFC 8040) as SONiC has it: GET alone, and only of the paths that are known here.

What the answers hold is the matter of `restconf_data`.
"""

from functools import partial
from http import HTTPStatus
from typing import Any

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

INTERFACES = "openconfig-interfaces:interfaces"
NEIGHBOURS = "openconfig-lldp:lldp/interfaces"
SYSTEM = "openconfig-system:system/state"
PATHS = (INTERFACES, NEIGHBOURS, SYSTEM)

_ROOT = "/restconf/data/"
_HEADERS = {"Accept": "application/yang-data+json"}


class RestconfClient(BasicClient):
    """One switch, one request at a time."""

    async def get(self, path: str) -> object:
        """Give what stands at a path.

        Raises:
            ValueError: the path is none that is asked for; nothing was sent.
            UnsupportedError: there is nothing at the path.
            CommandError: the switch refused the request.
            RestError: one of its other kinds.
        """
        if path not in PATHS:
            raise ValueError(f"{excerpt(path)} is not asked for")
        return await self._judged(partial(self._ask, path))

    async def _ask(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + path, headers=_HEADERS)
        if is_denied(response):
            raise self._denied(response, body)
        if response.has_redirect_location:
            where = self.quoted(response.headers["Location"])
            raise ReplyError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        if response.status_code == HTTPStatus.NOT_FOUND and json_object(body) is None:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}; is this RESTCONF?")
        value = await decoded(body)
        if value is msgspec.UNSET:
            raise ReplyError(f"{self.address}: {path}: {self._http.described(response, body)}")
        self._served()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnsupportedError(self.address, path, self._message(body))
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._message(body)}")
        return value

    def _message(self, body: bytes) -> str:
        """Give what the switch says of an error (RFC 8040, 7.1), or else its beginning."""
        said: Any = json_object(body) or {}
        for step in ("ietf-restconf:errors", "error"):
            said = said.get(step) if isinstance(said, dict) else None
        first = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) else {}
        return self.quoted(first.get("error-message") or first.get("error-tag") or body)
