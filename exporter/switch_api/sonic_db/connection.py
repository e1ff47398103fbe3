"""One connection to redis: opened when it is used, and closed by anything but the replies that were requested."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import TypeAlias, cast

from exporter.switch_api.sonic_db.resp import ProtocolError, Reply, ReplyParser, encode_command

Command: TypeAlias = Sequence[str | bytes]


class _Replies(asyncio.Protocol):
    """Receives the replies to one round trip at a time."""

    def __init__(self) -> None:
        self.is_usable = True
        self._transport: asyncio.Transport | None = None
        self._parser = ReplyParser(0)
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionError(f"the connection was closed{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # a reply that was not requested would be taken for that to the next command
            self._end(ProtocolError("a reply that was not requested"))
            return
        try:
            if self._parser.feed(data) and not self._waiter.done():
                self._waiter.set_result(None)
        except ProtocolError as error:
            self._end(error)

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands, and return their replies.

        Raises:
            ConnectionError: The connection was closed.
            ProtocolError: The replies are invalid.
        """
        if self._transport is None or not self.is_usable:
            raise ConnectionError("the connection was closed")
        self._parser = ReplyParser(len(commands))
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(map(encode_command, commands)))
        try:
            await self._waiter
        except BaseException:
            self.close()  # what is still to come would be taken for the replies to the next commands
            raise
        finally:
            replies = self._parser.replies
            self._waiter, self._parser = None, ReplyParser(0)
        return replies

    def close(self) -> None:
        """Close the connection without waiting for the server."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: Exception) -> None:
        self.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class RedisConnection:
    """A connection to one database, for one caller at a time.

    Args:
        address: Path of a Unix socket, or host and port.
        greeting: Commands to send when it is opened, such as AUTH and SELECT.
        tls: The settings of TLS; None for none.
        timeout: Seconds for one round trip, and for the connection with its TLS handshake.
    """

    def __init__(
        self, address: str | tuple[str, int], greeting: Sequence[Command], tls: ssl.SSLContext | None, timeout: float
    ) -> None:
        self._address, self._greeting, self._tls, self._timeout = address, greeting, tls, timeout
        self._replies: _Replies | None = None

    async def request(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands in one round trip, and return their replies; once more if a connection that was open is closed.

        Raises:
            GreetingError: A command of the greeting was refused.
            OSError: There is no connection, or it was closed again; TimeoutError if there is no complete reply in time.
            ProtocolError: The replies are invalid.
        """
        try:
            return await self._request_once(commands)
        except TimeoutError:
            raise
        except ConnectionError:  # servers close idle connections
            return await self._request_once(commands)

    def close(self) -> None:
        """Close the connection; a later request opens another one."""
        if self._replies is not None:
            self._replies.close()
            self._replies = None

    async def _request_once(self, commands: Sequence[Command]) -> list[Reply]:
        if self._replies is None or not self._replies.is_usable:
            self._replies = await self._open()
        async with asyncio.timeout(self._timeout):
            return await self._replies.exchange(commands)

    async def _open(self) -> _Replies:
        loop = asyncio.get_running_loop()
        replies: _Replies | None = None
        try:
            async with asyncio.timeout(self._timeout):
                if isinstance(self._address, str):
                    _, replies = await loop.create_unix_connection(_Replies, self._address)
                else:
                    host, port = self._address
                    _, replies = await loop.create_connection(_Replies, host, port, ssl=self._tls)
                if self._greeting:
                    answers = await replies.exchange(self._greeting)
                    for command, answer in zip(self._greeting, answers, strict=True):
                        if answer != b"OK":
                            raise GreetingError(str(command[0]), answer)
        except BaseException:
            if replies is not None:
                replies.close()
            raise
        return replies


class GreetingError(Exception):
    """A command of the greeting was refused.

    Attributes:
        command: Its first word.
        answer: The reply.
    """

    def __init__(self, command: str, answer: Reply) -> None:
        super().__init__(command)
        self.command, self.answer = command, answer
