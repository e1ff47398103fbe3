"""Turns at one resource that are shared among those who ask: one who asks often waits, and the others do not.

Who asks has one turn after each of the others had one. Where too many wait, the one with the most loses its newest.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FullError(Exception):
    """Too many are waiting, and none who asks has more waiting than this one."""


class FairQueue:
    """One turn at a time.

    Args:
        limit: Maximum number of those that wait, the one whose turn it is included.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # in the order of their next turns
        self._count = 0
        self._taken = False

    @asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a turn of `who`, which lasts as long as the block.

        Raises:
            FullError: Too many are waiting.
        """
        await self._wait(who)
        try:
            yield
        finally:
            self._taken = False
            self._give()

    async def _wait(self, who: Hashable) -> None:
        if self._count + self._taken >= self._limit:
            self._make_room(who)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._count += 1
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(who, turn)
            elif turn.exception() is None:  # it was given in the same iteration of the loop
                self._taken = False
                self._give()
            raise

    def _make_room(self, who: Hashable) -> None:
        most = max(self._waiting, key=lambda one: len(self._waiting[one]), default=who)
        if len(self._waiting.get(most, ())) <= len(self._waiting.get(who, ())) + 1:
            raise FullError
        newest = self._waiting[most][-1]
        self._remove(most, newest)
        if not newest.done():
            newest.set_exception(FullError())

    def _remove(self, who: Hashable, turn: "asyncio.Future[None]") -> None:
        """Remove one who waits; one that was cancelled may be removed already."""
        turns = self._waiting.get(who, ())
        if turn in turns:
            self._waiting[who].remove(turn)
            self._count -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    def _give(self) -> None:
        """Give the next turn."""
        while self._waiting and not self._taken:
            who, turns = next(iter(self._waiting.items()))
            turn = turns[0]
            self._remove(who, turn)
            if who in self._waiting:
                self._waiting[who] = self._waiting.pop(who)  # to the end
            if not turn.done():  # a task that is cancelled continues only later
                self._taken = True
                turn.set_result(None)
