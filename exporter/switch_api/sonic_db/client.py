"""Client of the databases of SONiC (redis): only reading commands (HMGET, HLEN, HGETALL), several in one round trip."""

import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from exporter.switch_api.errors import (
    InvalidResponseError,
    LoginError,
    NotConnectedError,
    RefusedError,
    ResponseTimeoutError,
    SwitchApiError,
)
from exporter.switch_api.sonic_db.connection import Command, GreetingError, RedisConnection
from exporter.switch_api.sonic_db.resp import ErrorReply, NotRedisError, ProtocolError, Reply
from exporter.switch_api.text_values import excerpt

APPL_DB, COUNTERS_DB, CONFIG_DB, STATE_DB = 0, 2, 4, 6
"""Numbers of the databases."""

DEFAULT_PORT = 6379

MAX_BATCH = 500
"""Commands in one round trip: the event loop and the switch's redis have other work in between."""

_KEY_ERRORS = ("WRONGTYPE", "permissions to access")
"""Parts of the texts of errors that concern one key alone."""

_LOGIN_ERRORS = ("NOAUTH", "NOPERM", "WRONGPASS")
"""First words of errors that mean a rejected log-in."""

MAX_EXCERPT = 200
"""Characters quoted of a reply."""

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
        tls: settings of TLS; None for none.
        timeout: seconds for one round trip.
    """

    def __init__(
        self,
        address: str,
        username: str = "",
        password: str = "",
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 5.0,
    ) -> None:
        where = address if address.startswith("/") else split_host_port(address)
        login = [("AUTH", *([username] if username else []), password)] if username or password else []
        self._timeout = timeout
        self._connections = {
            database: RedisConnection(where, [*login, *([("SELECT", str(database))] if database else [])], tls, timeout)
            for database in (APPL_DB, COUNTERS_DB, CONFIG_DB, STATE_DB)
        }

    def close(self) -> None:
        """Close the connections."""
        for one in self._connections.values():
            one.close()

    async def get_fields(self, database: int, requests: Sequence[HashFields]) -> list[FieldValues | KeyRefusedError]:
        """Return the values of some fields of each hash (HMGET), or the error of that key.

        Raises:
            SwitchApiError: one of its subclasses; the database does not respond, or refuses all requests.
        """
        results: list[FieldValues | KeyRefusedError] = []
        for start in range(0, len(requests), MAX_BATCH):
            batch = requests[start : start + MAX_BATCH]
            replies = await self._request(database, [("HMGET", one.key, *one.fields) for one in batch])
            results += [_field_values(request, reply) for request, reply in zip(batch, replies, strict=True)]
        return results

    async def get_hash(
        self, database: int, key: str, max_entries: int, *, is_required: bool = False
    ) -> Mapping[bytes, bytes] | int:
        """Return a whole hash (HGETALL), or the number of its entries where there are more than `max_entries`.

        Raises:
            KeyRefusedError: the key is not a hash, or the user may not read it; unless it is required.
            SwitchApiError: one of its other subclasses.
        """
        error_of = _error if is_required else _key_error
        (size,) = await self._request(database, [("HLEN", key)])
        if isinstance(size, ErrorReply):
            raise error_of(size)
        if not isinstance(size, int):
            raise InvalidResponseError(f"HLEN {key}: {_excerpt(size)} instead of a number")
        if size > max_entries:
            return size
        (entries,) = await self._request(database, [("HGETALL", key)])
        if isinstance(entries, ErrorReply):
            raise error_of(entries)
        if not isinstance(entries, list) or len(entries) % 2:
            raise InvalidResponseError(f"HGETALL {key}: {_excerpt(entries)} instead of names and values")
        if len(entries) > 2 * max_entries:  # it has grown, or HLEN did not count it
            return len(entries) // 2
        texts = [one for one in entries if isinstance(one, bytes)]
        if len(texts) != len(entries):
            raise InvalidResponseError(f"HGETALL {key}: names or values that are no texts")
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def _request(self, database: int, commands: Sequence[Command]) -> list[Reply]:
        try:
            return await self._connections[database].request(commands)
        except GreetingError as error:
            raise _greeting_error(error) from None
        except TimeoutError:
            raise ResponseTimeoutError(f"no complete reply within {self._timeout:g} s") from None
        except NotRedisError as error:
            raise NotConnectedError(f"{error}; check the address") from None
        except ProtocolError as error:
            raise InvalidResponseError(str(error)) from None
        except (OSError, UnicodeError) as error:  # the latter from a host that cannot be a name
            raise NotConnectedError(str(error) or type(error).__name__) from None


def _field_values(request: HashFields, reply: Reply) -> FieldValues | KeyRefusedError:
    if isinstance(reply, ErrorReply):
        return _key_error(reply)
    values = [one for one in reply if one is None or isinstance(one, bytes)] if isinstance(reply, list) else []
    if not isinstance(reply, list) or not len(values) == len(reply) == len(request.fields):
        raise InvalidResponseError(
            f"HMGET {request.key.decode('utf-8', 'replace')}: {_excerpt(reply)} instead of {len(request.fields)} values"
        )
    return values


def _key_error(reply: ErrorReply) -> KeyRefusedError:
    """Return an error that concerns one key alone; any other one is raised."""
    if any(text in reply.text for text in _KEY_ERRORS):
        return KeyRefusedError(_printable(reply))
    raise _error(reply)


def _error(reply: ErrorReply) -> SwitchApiError:
    """Return the error of a reply that concerns all commands."""
    text = _printable(reply)
    if reply.text.startswith(_LOGIN_ERRORS):
        return LoginError(f"{text}; check user and password")
    if reply.text.startswith("LOADING"):
        return RefusedError("redis is loading its data set; it responds once this is complete")
    return RefusedError(text)


def _greeting_error(error: GreetingError) -> SwitchApiError:
    """Return the error of a connection whose AUTH or SELECT was refused; it never quotes the password."""
    answer = error.answer
    if not isinstance(answer, ErrorReply):
        return InvalidResponseError(f"{error.command}: {_excerpt(answer)} instead of OK")
    if error.command == "AUTH" and not answer.text.startswith("LOADING"):
        return LoginError(f"{_printable(answer)}; check user and password")
    return _error(answer)


def _printable(reply: ErrorReply) -> str:
    """Return the text of an error as one printable line."""
    return ascii(reply.text[:MAX_EXCERPT])[1:-1]


def _excerpt(reply: Reply) -> str:
    """Return a reply of another kind than expected, in short."""
    return f"{len(reply)} items" if isinstance(reply, list) else excerpt(reply, MAX_EXCERPT)


def split_host_port(address: str) -> tuple[str, int]:
    """Split host and port; an address without a valid port has that of redis."""
    try:
        return str(ipaddress.ip_address(address)), DEFAULT_PORT
    except ValueError:
        host, colon, port = address.rpartition(":")
        if colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
            return host.removeprefix("[").removesuffix("]"), int(port)
        return address, DEFAULT_PORT
