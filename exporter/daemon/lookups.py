"""Lookups of names: in threads of their own, so that slow name servers keep no other blocking call waiting.

The resolver cannot be cancelled: without an answer it blocks its thread for half a minute, also after what needed the
name has ended.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from exporter.config.addresses import Address, parse_numeric
from exporter.daemon.runtime import THREADS

MAX_THREADS = 32
"""Names that are looked up at a time."""

MAX_PROBED = 8
"""Names of probes among them: a flood of probes must leave threads to the polls in the background."""


class UnknownNameError(Exception):
    """A name that cannot be resolved."""


class LookupLoop(asyncio.SelectorEventLoop):
    """An event loop whose lookups have threads of their own, one for each name at a time; addresses need none.

    Attributes:
        threads: The threads; end them when the process ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix=f"{THREADS}-names")
        self._running: dict[tuple[object, ...], asyncio.Future[Any]] = {}

    async def getaddrinfo(
        self,
        host: Any,  # noqa: ANN401  # as its base
        port: Any,  # noqa: ANN401  # as its base
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002  # as its base
        proto: int = 0,
        flags: int = 0,
    ) -> Any:  # noqa: ANN401  # as its base
        """Resolve a name, as its base does."""
        if isinstance(host, str) and parse_numeric(host) is not None:
            return socket.getaddrinfo(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        key = (host, port, family, type, proto, flags)
        running = self._running.get(key)
        if running is None:
            running = self.run_in_executor(self.threads, partial(socket.getaddrinfo, *key))
            self._running[key] = running
            running.add_done_callback(partial(self._ended, key))
        return await asyncio.shield(running)

    def _ended(self, key: tuple[object, ...], running: asyncio.Future[Any]) -> None:
        del self._running[key]
        if not running.cancelled():
            running.exception()  # seen, also where what needed the name has ended


class Lookups:
    """The lookups of probes: few at a time, and one for each name, until the resolver has returned."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_PROBED)
        self._running: dict[str, asyncio.Task[list[Address]]] = {}

    async def lookup(self, host: str) -> list[Address]:
        """Return the addresses of a name, or the address that a text is.

        Raises:
            UnknownNameError: It has none.
        """
        numeric = parse_numeric(host)
        if numeric is not None:
            return [numeric]
        if host not in self._running:
            await self._turns.acquire()  # given up at the end of the probe
            if host in self._running:
                self._turns.release()
            else:
                self._start(host)
        return await asyncio.shield(self._running[host])

    def _start(self, host: str) -> None:
        task = self._running[host] = asyncio.create_task(_resolve(host))

        def end(_: asyncio.Task[list[Address]]) -> None:
            del self._running[host]
            self._turns.release()
            if not task.cancelled():
                task.exception()

        task.add_done_callback(end)


async def _resolve(host: str) -> list[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise UnknownNameError(f"the name {host!r} cannot be resolved: {error}") from None
    return [ipaddress.ip_address(address[0]) for *_, address in found]
