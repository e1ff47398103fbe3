"""Questions that take turns: what does not fit into one poll is asked at the next, what waits longest first."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from time import monotonic
from typing import Generic, TypeVar

Job = TypeVar("Job", bound=Hashable)


class Rota(Generic[Job]):
    """Remembers when each question was asked last, and how long its answer took."""

    def __init__(self) -> None:
        self._asked: dict[Job, float] = {}
        self._took: dict[Job, float] = {}

    def due(self, paces: Mapping[Job, float]) -> list[Job]:
        """Give the questions that are due, the longest overdue first; among those never asked the order is kept.

        Args:
            paces: Seconds from one time that a question is asked to the next; 0 asks at each poll. A question that is
                not among them any more is forgotten.
        """
        now = monotonic()
        self._asked = {job: time for job, time in self._asked.items() if job in paces}
        self._took = {job: time for job, time in self._took.items() if job in paces}
        at = {job: self._asked.get(job, float("-inf")) + pace for job, pace in paces.items()}
        return sorted((job for job in paces if at[job] <= now), key=at.__getitem__)

    def hasten(self, job: Job) -> None:
        """Have a question asked at the next poll, whatever its pace."""
        self._asked.pop(job, None)

    async def run(
        self, jobs: Iterable[Job], ask: Callable[[Job], Awaitable[None]], until: float, *, at_once: int = 1
    ) -> None:
        """Ask one question after the other as long as there is time for its answer; the first however long it takes.

        Args:
            jobs: Questions, in order.
            ask: Asks one; what it raises ends the round, as nothing further would be answered.
            until: Monotonic seconds.
            at_once: Questions that may be under way at the same time.
        """
        queue = iter(jobs)

        async def work(*, has_to: bool) -> None:
            for job in queue:
                begun = monotonic()
                if begun + (0.0 if has_to else self._took.get(job, 0.0)) > until:
                    return
                has_to = False
                self._asked[job] = begun
                await ask(job)
                self._took[job] = monotonic() - begun

        workers = [asyncio.create_task(work(has_to=place == 0)) for place in range(at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
