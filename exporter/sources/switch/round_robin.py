"""Round-robin scheduling of requests: what does not fit into one poll is sent in the next, the longest due first."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from time import monotonic
from typing import Generic, TypeVar

Job = TypeVar("Job", bound=Hashable)


class RoundRobin(Generic[Job]):
    """Records when each request was sent last, and how long it took."""

    def __init__(self) -> None:
        self._started: dict[Job, float] = {}
        self._durations: dict[Job, float] = {}

    def due(self, intervals: Mapping[Job, float]) -> list[Job]:
        """Return the requests that are due, the longest overdue first; those never sent keep their order.

        Args:
            intervals: Seconds between two times that a request is sent; 0 for each poll. A request that is no longer
                listed is forgotten.
        """
        now = monotonic()
        self._started = {job: time for job, time in self._started.items() if job in intervals}
        self._durations = {job: time for job, time in self._durations.items() if job in intervals}
        due_at = {job: self._started.get(job, float("-inf")) + interval for job, interval in intervals.items()}
        return sorted((job for job in intervals if due_at[job] <= now), key=due_at.__getitem__)

    def expedite(self, job: Job) -> None:
        """Make a request due at the next poll, whatever its interval."""
        self._started.pop(job, None)

    async def run(
        self, jobs: Iterable[Job], send: Callable[[Job], Awaitable[None]], until: float, *, at_once: int = 1
    ) -> None:
        """Send requests as long as there is time for the response; the first one however long it takes.

        Args:
            jobs: Requests, in order.
            send: Sends one; an exception ends the round, since the switch would not respond to the others either.
            until: Monotonic seconds.
            at_once: Requests that may be in flight at the same time.
        """
        queue = iter(jobs)

        async def work(*, unconditionally: bool) -> None:
            for job in queue:
                started = monotonic()
                if started + (0.0 if unconditionally else self._durations.get(job, 0.0)) > until:
                    return
                unconditionally = False
                self._started[job] = started
                await send(job)
                self._durations[job] = monotonic() - started

        workers = [asyncio.create_task(work(unconditionally=number == 0)) for number in range(at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
