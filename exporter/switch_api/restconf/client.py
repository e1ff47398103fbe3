"""Client of RESTCONF (RFC 8040) as implemented by SONiC: only GET requests, and only of a fixed list of paths.

The responses are parsed in `parser`.
"""

from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from exporter.switch_api.basic_auth import BasicAuthClient
from exporter.switch_api.errors import CommandError, InvalidResponseError, UnsupportedError
from exporter.switch_api.http import decode_json_async, decode_json_object, is_denied
from exporter.switch_api.text_values import excerpt

INTERFACES = "openconfig-interfaces:interfaces"
NEIGHBOURS = "openconfig-lldp:lldp/interfaces"
SYSTEM = "openconfig-system:system/state"
PATHS = (INTERFACES, NEIGHBOURS, SYSTEM)

_ROOT = "/restconf/data/"
_HEADERS = MappingProxyType({"Accept": "application/yang-data+json"})


class RestconfClient(BasicAuthClient):
    """Client of one switch, one request at a time."""

    async def get(self, path: str) -> object:
        """Return the data at a path.

        Raises:
            ValueError: the path is not one of PATHS; nothing was sent.
            UnsupportedError: the path does not exist.
            CommandError: the switch refused the request.
            SwitchApiError: one of its other subclasses.
        """
        if path not in PATHS:
            raise ValueError(f"{excerpt(path)} is not requested: it is not in the list of paths")
        return await self._authenticate(partial(self._get, path))

    async def _get(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + path, headers=_HEADERS)
        if is_denied(response):
            raise self._login_rejected(response, body)
        if response.has_redirect_location:
            where = self.redacted_excerpt(response.headers["Location"])
            raise InvalidResponseError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        if response.status_code == HTTPStatus.NOT_FOUND and decode_json_object(body) is None:
            text = self._http.describe_body(response, body)
            raise InvalidResponseError(f"{self.address}: {path}: {text}; is this RESTCONF?")
        value = await decode_json_async(body)
        if value is msgspec.UNSET:
            raise InvalidResponseError(f"{self.address}: {path}: {self._http.describe_body(response, body)}")
        self._login_accepted()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnsupportedError(self.address, path, self._error_message(body))
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._error_message(body)}")
        return value

    def _error_message(self, body: bytes) -> str:
        """Return the message of an error (RFC 8040, 7.1), else the beginning of the body."""
        value: Any = decode_json_object(body) or {}
        for key in ("ietf-restconf:errors", "error"):
            value = value.get(key) if isinstance(value, dict) else None
        error = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}
        return self.redacted_excerpt(error.get("error-message") or error.get("error-tag") or body)
