"""Blocking calls in a thread, one at a time; a call that hangs delays the others by its deadline at most.

Calls into hardware block: reading a file of sysfs runs a firmware command, an ioctl takes a lock. They must not
overlap, so one thread makes them one after the other. A call that exceeds its deadline keeps that thread, a new thread
makes the remaining calls, and the call that hangs is not repeated before it has returned.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Result = TypeVar("Result")

MAX_HUNG = 32
"""Calls that may hang at a time, each of which occupies a thread; above it no call is made until one has returned."""


class HungError(Exception):
    """The call exceeded its deadline, or an earlier call of the same name has not returned yet."""


class _Batch(Generic[Result]):
    """Calls to be made one after the other by the thread that owns the batch."""

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
        """Mark all calls as made; called on the event loop."""
        self.done = True
        _wake(self.waiter)

    async def wait(self, seconds: float) -> None:
        """Wait until all calls are made, `seconds` at most."""
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
    """Thread that makes the calls of batches until it is stopped, or until it is replaced because a call hung.

    A daemon thread: one that hangs in the kernel must not keep the process from exiting.
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
        """Make the calls of a batch; return False if another thread has taken the batch over."""
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
            except Exception as error:  # noqa: BLE001  # what a call raises is its result
                result = error
            with batch.lock:
                if batch.owner is self:
                    batch.results[key] = result
                    batch.current = None  # together with the result, or the call would look like one that hangs
                    continue
            self._returned(key)  # it hung and has returned: it may be called again
            return False
        _notify_finished(batch)
        return True


def _notify_finished(batch: "_Batch[object]") -> None:
    """Wake the event loop, which may be closed when a call returns late."""
    try:
        batch.loop.call_soon_threadsafe(batch.finish)
    except RuntimeError:
        return


class Turns:
    """What the `BlockingCalls` of one set of devices share, so that their calls do not overlap; of one event loop.

    Attributes:
        lock: Held while calls are made; asyncio locks are fair.
        hanging: Names of the calls that hang.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.hanging: set[str] = set()

    def returned(self, name: str) -> None:
        """Note that a call that hung has returned: it may be called again."""
        self.hanging.discard(name)


class Hardware:
    """The turns of all hardware of a host, by a key of the hardware.

    They are kept while a `BlockingCalls` uses them or one of their calls hangs: a call that hangs is still known to the
    source that a reload of the configuration creates.
    """

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[Hashable, Turns] = WeakValueDictionary()

    def turns(self, key: Hashable) -> Turns:
        """Return the turns of the hardware of a key: all sources that access it get the same."""
        return self._turns.setdefault(key, Turns())


class BlockingCalls:
    """Makes blocking calls one after the other. One object for each set of devices whose calls must not overlap."""

    def __init__(self, name: str, deadline: float, turns: Turns | None = None) -> None:
        """Create the object; its thread starts with the first call.

        Args:
            name: Name of the threads.
            deadline: Seconds after which a call counts as hanging.
            turns: Those of the hardware behind the calls. Objects with the same turns, whether of several sources or
                from before and after a reload, make their calls one after the other and share the calls that hang. None
                for an object on its own.
        """
        self._name = name
        self._deadline = deadline
        self._worker: _Worker | None = None
        self._is_closed = False
        self._turns = turns or Turns()
        self._hanging = self._turns.hanging

    @property
    def hanging(self) -> frozenset[str]:
        """Names of the calls that hang at present."""
        return frozenset(self._hanging)

    async def run(self, calls: Iterable[tuple[str, Callable[[], Result]]]) -> dict[str, Result | Exception]:
        """Make calls one after the other.

        Args:
            calls: Names, which must be unique, and functions.

        Returns:
            By name, the value that the call returned or the exception that it raised; HungError for a call that hangs.
        """
        async with self._turns.lock:
            requested = list(calls)
            hung: dict[str, Result | Exception] = {
                key: HungError(f"{key}: an earlier call has not returned")
                for key, _ in requested
                if key in self._hanging
            }
            batch: _Batch[Result] = _Batch(
                [(key, call) for key, call in requested if key not in self._hanging], asyncio.get_running_loop()
            )
            self._drop_above_limit(batch, hung)
            if batch.calls:
                self._submit(batch)
                try:
                    await self._watch(batch, hung)
                except BaseException:
                    self._abandon(batch)
                    raise
            return {**batch.results, **hung}

    def close(self) -> None:
        """Let the thread end after its current batch; does not wait. The thread of a later call ends likewise."""
        self._is_closed = True
        self._let_end()

    def _let_end(self) -> None:
        if self._worker is not None:
            self._worker.put(None)
            self._worker = None

    def _submit(self, batch: _Batch[Result]) -> None:
        """Hand a batch to the thread, which is started if there is none."""
        if self._worker is None:
            self._worker = _Worker(self._name, self._turns.returned)  # the thread keeps the turns while a call hangs
            self._worker.start()
        batch.owner = self._worker
        self._worker.put(batch)  # type: ignore[arg-type]  # the thread does not use the type of results
        if self._is_closed:
            self._let_end()

    async def _watch(self, batch: _Batch[Result], hung: dict[str, Result | Exception]) -> None:
        """Wait for the batch, and take it away from a thread whose call hangs."""
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
                self._hanging.add(key)
            hung[key] = HungError(f"{key}: no answer within {self._deadline:g} s")
            self._worker = None
            self._drop_above_limit(batch, hung)
            if not batch.calls:
                return
            batch.current = None
            self._submit(batch)

    def _drop_above_limit(self, batch: _Batch[Result], hung: dict[str, Result | Exception]) -> None:
        """Skip the remaining calls once MAX_HUNG hang: what they share, a file system or a bus, does not respond."""
        if len(self._hanging) >= MAX_HUNG:
            hung |= {
                key: HungError(f"{key}: not called, because {len(self._hanging)} calls hang") for key, _ in batch.calls
            }
            batch.calls.clear()

    def _abandon(self, batch: _Batch[Result]) -> None:
        """Drop a batch whose waiter was cancelled; its thread ends after the current call."""
        with batch.lock:
            batch.calls.clear()
            if batch.current is not None and batch.owner is self._worker and self._worker is not None:
                self._hanging.add(batch.current[0])
                batch.owner = None
                self._worker = None
