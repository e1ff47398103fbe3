"""Blocking calls off the loop, one at a time, of which none that hangs holds up the others.

Calls into hardware block: a file of sysfs runs a firmware command, an ioctl takes a lock. They do not overlap: one
thread makes them in turn. When a call outlives its deadline, it is left to that thread, a new thread goes on with the
rest, and the thing that hangs is not asked again until its call has come back.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Result = TypeVar("Result")

MAX_HUNG = 32
"""Calls of one set that may hang at a time, each of which holds a thread; then nothing is asked until one is back."""


class HungError(Exception):
    """The call outlived its deadline, or an earlier call for the same thing still has not come back."""


class _Batch(Generic[Result]):
    """Calls to be made in turn, by whichever thread owns the batch."""

    def __init__(self, calls: Iterable[tuple[str, Callable[[], Result]]], loop: asyncio.AbstractEventLoop) -> None:
        self.calls = deque(calls)
        self.results: dict[str, Result | Exception] = {}
        self.loop = loop
        self.done = False
        self.waiter: asyncio.Future[None] | None = None
        self.lock = threading.Lock()
        self.owner: _Worker | None = None
        self.current: tuple[str, float] | None = None

    def finish(self) -> None:
        """Note on the loop that all calls were made."""
        self.done = True
        _wake(self.waiter)

    async def wait(self, seconds: float) -> None:
        """Wait until all calls were made, or for so long."""
        if not self.done:
            self.waiter = self.loop.create_future()
            timer = self.loop.call_later(seconds, _wake, self.waiter)
            try:
                await self.waiter
            finally:
                timer.cancel()


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class _Worker(threading.Thread):
    """A thread that drains batches until it is told to stop, or until a call of its hung and it was replaced.

    It is a daemon thread: one that hangs in the kernel must not keep the process from ending.
    """

    def __init__(self, name: str, returned: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._returned = returned
        self._batches: SimpleQueue[_Batch[object] | None] = SimpleQueue()

    def put(self, batch: "_Batch[object] | None") -> None:
        self._batches.put(batch)

    def run(self) -> None:
        while True:
            batch = self._batches.get()
            if batch is None or not self._drain(batch):
                return

    def _drain(self, batch: "_Batch[object]") -> bool:
        """Make the calls of a batch; False when another thread took it over meanwhile."""
        while True:
            with batch.lock:
                if batch.owner is not self:
                    return False
                if not batch.calls:
                    break
                key, call = batch.calls.popleft()
                batch.current = (key, monotonic())
            result: object
            try:
                result = call()
            except Exception as error:  # noqa: BLE001  # whatever one call raises is that call's result
                result = error
            with batch.lock:
                if batch.owner is self:
                    batch.results[key] = result
                    batch.current = None  # with the result, or the call would still look like one that hangs
                    continue
            self._returned(key)  # it hung and came back: it may be asked again
            return False
        _tell(batch)
        return True


def _tell(batch: "_Batch[object]") -> None:
    """Wake the loop; it may be gone when a call comes back late."""
    try:
        batch.loop.call_soon_threadsafe(batch.finish)
    except RuntimeError:
        return


class _Place:
    """Where calls go: what hangs there, and the token of whoever makes calls there, one for each event loop.

    It outlives the objects that make the calls, as a call that hangs does.
    """

    def __init__(self) -> None:
        self.out: set[str] = set()
        self._tokens: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def token(self) -> asyncio.Lock:
        """Give the token of the running loop."""
        return self._tokens.setdefault(asyncio.get_running_loop(), asyncio.Lock())


_places: dict[Hashable, _Place] = {}


class Serial:
    """Makes blocking calls in turn. One object for each set of things whose calls must not overlap."""

    def __init__(self, name: str, deadline: float, place: Hashable = None) -> None:
        """Take how to make calls.

        Args:
            name: Name of the threads.
            deadline: Seconds after which a single call is given up.
            place: Where the calls go. Objects of one place, of several sources or of one that a reload made anew, make
                their calls in turn, and know of each other's calls that hang. None for an object on its own.
        """
        self._name = name
        self._deadline = deadline
        self._worker: _Worker | None = None
        self._place = _Place() if place is None else _places.setdefault(place, _Place())
        self._out = self._place.out

    @property
    def out(self) -> frozenset[str]:
        """What hangs at present."""
        return frozenset(self._out)

    async def run(self, calls: Iterable[tuple[str, Callable[[], Result]]]) -> dict[str, Result | Exception]:
        """Make calls in turn and give what each returned or raised.

        Args:
            calls: Name and function, names being unique.

        Returns:
            By name; HungError for what hangs.
        """
        async with self._place.token():
            asked = list(calls)
            hung: dict[str, Result | Exception] = {
                key: HungError(f"{key}: an earlier call has not come back") for key, _ in asked if key in self._out
            }
            batch: _Batch[Result] = _Batch(
                [(key, call) for key, call in asked if key not in self._out], asyncio.get_running_loop()
            )
            self._refuse_too_many(batch, hung)
            if batch.calls:
                self._give(batch)
                try:
                    await self._watch(batch, hung)
                except BaseException:
                    self._abandon(batch)
                    raise
            return {**batch.results, **hung}

    def close(self) -> None:
        """Let the thread end when its call is done; waits for nothing."""
        if self._worker is not None:
            self._worker.put(None)
            self._worker = None

    def _give(self, batch: _Batch[Result]) -> None:
        """Hand a batch to the thread, which is made when it is missing."""
        if self._worker is None:
            self._worker = _Worker(self._name, self._out.discard)
            self._worker.start()
        batch.owner = self._worker
        self._worker.put(batch)  # type: ignore[arg-type]  # the thread passes results on without looking

    async def _watch(self, batch: _Batch[Result], hung: dict[str, Result | Exception]) -> None:
        """Wait for the batch, and take it from a thread whose call hangs."""
        wait = self._deadline
        while True:
            await batch.wait(wait)
            if batch.done:
                return
            wait = self._deadline
            with batch.lock:
                if batch.current is None:
                    continue
                key, since = batch.current
                left = since + self._deadline - monotonic()
                if left > 0:
                    wait = left
                    continue
                batch.owner = None
                self._out.add(key)
            hung[key] = HungError(f"{key}: no answer within {self._deadline:g} s")
            self._worker = None
            self._refuse_too_many(batch, hung)
            if not batch.calls:
                return
            batch.current = None
            self._give(batch)

    def _refuse_too_many(self, batch: _Batch[Result], hung: dict[str, Result | Exception]) -> None:
        """Ask nothing more where so much hangs that what is behind it must be gone: a file system, a bus."""
        if len(self._out) >= MAX_HUNG:
            hung |= {key: HungError(f"{key}: not asked, as {len(self._out)} calls hang") for key, _ in batch.calls}
            batch.calls.clear()

    def _abandon(self, batch: _Batch[Result]) -> None:
        """Leave a batch whose waiter was cancelled: its thread ends after the call it is in."""
        with batch.lock:
            batch.calls.clear()
            if batch.current is not None and batch.owner is self._worker and self._worker is not None:
                self._out.add(batch.current[0])
                batch.owner = None
                self._worker = None
