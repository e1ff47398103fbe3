"""Client of the databases of SONiC (redis): only reading commands (HMGET, HLEN, HGETALL), several in one round trip.

The library is an optional dependency, so it is imported when a client connects.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from exporter.switch_api.errors import (
    LoginError,
    NotConnectedError,
    RefusedError,
    ResponseTimeoutError,
    SwitchApiError,
)

logger = logging.getLogger(__name__)

APPL_DB, COUNTERS_DB, CONFIG_DB, STATE_DB = 0, 2, 4, 6
"""Numbers of the databases."""

DEFAULT_PORT = 6379

MAX_BATCH = 500
"""Commands in one round trip: the event loop and the switch's redis have other work in between."""

_KEY_ERRORS = ("WRONGTYPE", "permissions to access")
"""Parts of the texts of errors that concern one key alone."""

_LOGIN_ERRORS = ("AuthenticationError", "NOAUTH", "NOPERM", "WRONGPASS", "invalid username-password", "authenticated")
"""Parts of the texts of errors, or names of their causes, that mean a rejected log-in."""

FieldValues: TypeAlias = Sequence[bytes | None]
"""Values of the requested fields of a hash, None for a field that it does not have."""


class HashFields(NamedTuple):
    """Some fields of a hash, for HMGET."""

    key: bytes
    fields: tuple[str, ...]


class KeyRefusedError(RefusedError):
    """The key is not a hash, or the user may not read it; other keys are not affected."""


class SonicDbClient:
    """Connections to the databases of one switch, one per database.

    Args:
        address: host, `host:port`, or the path of a Unix socket.
        username: "" for the default user.
        password: "" for none.
        tls: whether to use TLS, verified by `ca_file` or the system's CAs.
        ca_file: PEM file of the only CAs to trust.
        timeout: seconds for one round trip.

    Raises:
        ImportError: the redis library is not installed.
    """

    def __init__(
        self,
        address: str,
        username: str = "",
        password: str = "",
        *,
        tls: bool = False,
        ca_file: str | None = None,
        timeout: float = 5.0,
    ) -> None:
        import redis.asyncio  # noqa: PLC0415  # an extra
        import redis.exceptions  # noqa: PLC0415  # likewise
        from redis.asyncio.retry import Retry  # noqa: PLC0415  # likewise
        from redis.backoff import NoBackoff  # noqa: PLC0415  # likewise

        self._errors: Any = redis.exceptions
        where: dict[str, Any] = {"unix_socket_path": address}
        if not address.startswith("/"):
            host, port = split_host_port(address)
            where = {"host": host, "port": port, "ssl": tls}
            if tls:
                where |= {"ssl_ca_certs": ca_file, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        self._connections: dict[int, Any] = {
            database: redis.asyncio.Redis(
                **where,
                db=database,
                username=username or None,
                password=password or None,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                protocol=2,  # supported by every redis, also by that of an old SONiC
                single_connection_client=True,
                # A switch closes idle connections: a request is sent once more, at once.
                retry=Retry(NoBackoff(), 1, (redis.exceptions.ConnectionError,)),
            )
            for database in (APPL_DB, COUNTERS_DB, CONFIG_DB, STATE_DB)
        }

    async def close(self) -> None:
        """Close the connections."""
        for error in await asyncio.gather(
            *(one.aclose() for one in self._connections.values()), return_exceptions=True
        ):
            if isinstance(error, Exception):
                logger.error("error while closing a connection to the database", exc_info=error)

    async def get_fields(self, database: int, requests: Sequence[HashFields]) -> list[FieldValues | KeyRefusedError]:
        """Return the values of some fields of each hash (HMGET), or the error of that key.

        Raises:
            SwitchApiError: one of its subclasses; the database does not respond, or refuses all requests.
        """
        results: list[Any] = []
        try:
            for start in range(0, len(requests), MAX_BATCH):
                pipeline = self._connections[database].pipeline(transaction=False)
                for request in requests[start : start + MAX_BATCH]:
                    pipeline.hmget(request.key, request.fields)
                results += await pipeline.execute(raise_on_error=False)
        except (self._errors.RedisError, OSError) as error:
            raise self._translate(error) from None
        return [self._key_error(one) if isinstance(one, Exception) else one for one in results]

    async def get_hash(
        self, database: int, key: str, max_entries: int, *, is_required: bool = False
    ) -> Mapping[bytes, bytes] | int:
        """Return a whole hash (HGETALL), or the number of its entries where there are more than `max_entries`.

        Raises:
            KeyRefusedError: the key is not a hash, or the user may not read it; unless it is required.
            SwitchApiError: one of its other subclasses.
        """
        connection = self._connections[database]
        try:
            size: int = await connection.hlen(key)
            if size > max_entries:
                return size
            entries: Mapping[bytes, bytes] = await connection.hgetall(key)
        except self._errors.ResponseError as error:
            raise (self._translate(error) if is_required else self._key_error(error)) from None
        except (self._errors.RedisError, OSError) as error:
            raise self._translate(error) from None
        return entries

    def _key_error(self, error: Exception) -> KeyRefusedError:
        """Return an error that concerns one key alone; any other one is raised."""
        if any(text in str(error) for text in _KEY_ERRORS):
            return KeyRefusedError(str(error))
        if isinstance(error, self._errors.RedisError | OSError):
            raise self._translate(error) from None
        raise error

    def _translate(self, error: Exception) -> SwitchApiError:
        """Return the error of the library as one of this package."""
        text = str(error)
        cause = type(error.__cause__ or error.__context__).__name__
        if any(word in f"{text} {cause}" for word in _LOGIN_ERRORS):  # the library wraps it in several classes
            return LoginError(f"{text}; check user and password")
        if isinstance(error, self._errors.BusyLoadingError):
            return RefusedError("redis is loading its data set; it responds once this is complete")
        if isinstance(error, self._errors.TimeoutError):
            return ResponseTimeoutError(text or "no response in time")
        return RefusedError(text) if isinstance(error, self._errors.ResponseError) else NotConnectedError(text)


def split_host_port(address: str) -> tuple[str, int]:
    """Split host and port; an address without a valid port has that of redis."""
    try:
        return str(ipaddress.ip_address(address)), DEFAULT_PORT
    except ValueError:
        host, colon, port = address.rpartition(":")
        if colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
            return host.removeprefix("[").removesuffix("]"), int(port)
        return address, DEFAULT_PORT
