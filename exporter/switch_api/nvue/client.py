"""Client of NVUE, the REST API of Cumulus Linux: only GET requests, and only of a fixed list of paths.

The responses are parsed in `parser` and `modules`.
"""

import re
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from exporter.switch_api.basic_auth import BasicAuthClient
from exporter.switch_api.errors import CommandError, InvalidResponseError, UnsupportedError
from exporter.switch_api.http import decode_json_async, decode_json_object, is_denied
from exporter.switch_api.text_values import excerpt

_ROOT = "/nvue_v1/"
_FORBIDDEN = (
    "a switch whose user cumulus still has its first password responds so: change it, or check what this user may do"
)
_PATHS = re.compile(
    r"system|interface|platform/transceiver"
    r"|interface/[A-Za-z0-9_.:-]{1,64}/(?:counters/qos|qos/counters|lldp|transceiver)"
)


class NvueClient(BasicAuthClient):
    """Client of one switch, a few requests at a time."""

    port = 8765
    connections = 3  # the management CPU of a switch has few cores and other work to do

    async def get(self, path: str) -> object:
        """Return the operational data at a path, such as `interface/swp1/lldp`.

        Raises:
            ValueError: the path is not in the list; nothing was sent.
            UnsupportedError: the path does not exist.
            CommandError: the switch refused the request.
            SwitchApiError: one of its other subclasses.
        """
        if not _PATHS.fullmatch(path):
            raise ValueError(f"{excerpt(path)} is not requested: it is not in the list of paths")
        return await self._authenticate(partial(self._get, path))

    async def _get(self, path: str) -> object:
        response, body = await self._http.get(_ROOT + quote(path, safe="/"))
        if is_denied(response):
            if response.status_code == HTTPStatus.FORBIDDEN:
                raise self._login_rejected(response, body, _FORBIDDEN)
            raise self._login_rejected(response, body)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:  # of the web server in front of NVUE
            raise InvalidResponseError(f"{self.address}: {path}: {self._http.describe_body(response, body)}")
        self._login_accepted()
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UnsupportedError(self.address, path, self._error_message(body))
        if response.has_redirect_location:
            where = self.redacted_excerpt(response.headers["Location"])
            raise InvalidResponseError(f"{self.address}: {path}: redirected to {where}; give the address in that form")
        value = await decode_json_async(body)
        if value is msgspec.UNSET:
            raise InvalidResponseError(f"{self.address}: {path}: {self._http.describe_body(response, body)}")
        if response.status_code != HTTPStatus.OK:
            raise CommandError(self.address, path, f"HTTP {response.status_code}: {self._error_message(body)}")
        return value

    def _error_message(self, body: bytes) -> str:
        """Return the message of an error (`{"title": "Not Found", "detail": …}`), else the beginning of the body."""
        error = decode_json_object(body)
        if error is None:
            return self.redacted_excerpt(body)
        return self.redacted_excerpt(error.get("detail") or error.get("title") or body)
