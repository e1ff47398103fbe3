"""Supervision of tasks that run as long as the daemon: one that ends by an error is logged, counted, and started again.

A task that is cancelled by anything but its own `stop` ended by an error too, unless its end is expected. A
task that returns is complete.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.1
"""Seconds until the first restart; each further one waits twice as long."""

MAX_DELAY = 60.0
"""Seconds until any restart, at most; a task that has run this long is started again after FIRST_DELAY."""

Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class SupervisedTask:
    """A task that is started again when it ends by an error."""

    def __init__(self, name: str, run: Run, on_restart: Callable[[], None]) -> None:
        """Start the task.

        Args:
            name: Name of the task, for the log.
            run: Returns a new coroutine at each start.
            on_restart: Called at each restart.
        """
        self.name = name
        self._run = run
        self._on_restart = on_restart
        self._delay = FIRST_DELAY
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._started = monotonic()
        self._task = self._start()

    def _start(self) -> asyncio.Task[None]:
        self._started = monotonic()
        self._timer = None
        task = asyncio.get_running_loop().create_task(self._run(), name=self.name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:
            return
        if self._stopping:
            if not task.cancelled():
                logger.error("%s: error at its end", self.name, exc_info=task.exception())
            return
        if monotonic() - self._started >= MAX_DELAY:
            self._delay = FIRST_DELAY
        if task.cancelled():
            logger.error("%s: cancelled unexpectedly; starts again in %g s", self.name, self._delay)
        else:
            logger.error(
                "%s: ended by an error in this program; starts again in %g s",
                self.name,
                self._delay,
                exc_info=task.exception(),
            )
        self._timer = task.get_loop().call_later(self._delay, self._restart)
        self._delay = min(MAX_DELAY, 2 * self._delay)

    def _restart(self) -> None:
        self._on_restart()
        self._task = self._start()

    def expect_end(self) -> None:
        """Do not start the task again, also where another cancels it; it may go on until it returns or is stopped."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        """Cancel the task, and do not start it again."""
        self.expect_end()
        self._task.cancel()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the current run has ended, for a time; return whether it has."""
        await asyncio.wait([self._task], timeout=seconds)
        return self._task.done()

    async def stop(self, seconds: float | None = None) -> bool:
        """Cancel the task and wait until it has ended, for a time; return whether it has. An error is logged."""
        self.cancel()
        return await self.wait(seconds)


class Supervisor:
    """Starts supervised tasks, and counts their restarts.

    Attributes:
        restarts: Number of restarts by kind of task; 0 for a kind of which none was started again.
    """

    def __init__(self) -> None:
        self.restarts: dict[str, int] = {}

    def start(self, name: str, run: Run, kind: str = "") -> SupervisedTask:
        """Start a task that is started again when it ends by an error.

        Args:
            name: Name of the task.
            run: Returns a new coroutine at each start.
            kind: Kind of task under which restarts are counted, one of a small set; by default its name.
        """
        self.restarts.setdefault(kind or name, 0)
        return SupervisedTask(name, run, partial(self._count, kind or name))

    def _count(self, kind: str) -> None:
        self.restarts[kind] += 1
