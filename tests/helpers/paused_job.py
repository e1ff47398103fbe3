"""A job of the simulated fabric that does nothing at some times: before its start, in checkpoints, after its end."""

from collections.abc import Iterable

from exporter.simulator.fabric.job import Job, Transfer
from exporter.simulator.training.engine import Ended


class PausedJob:
    """A job whose clock is stopped in pauses; it takes the place of `FabricModel.job`.

    Attributes:
        transfers: Transfers between hosts that were begun, for the reader to remove.
        unfinished: Nothing hangs in a pause.
    """

    unfinished: tuple[Ended, ...] = ()

    def __init__(self, job: Job, pauses: Iterable[tuple[float, float]]) -> None:
        """Args: job: The job. pauses: Begin and end of each pause, in their order."""
        self.transfers: list[Transfer] = []
        self.layout, self.steps = job.layout, job.steps
        self._job, self._pauses = job, tuple(pauses)

    @property
    def runs(self) -> int:
        return self._job.runs

    def run(self, since: float, until: float) -> list[Ended]:
        found: list[Ended] = []
        for begin, end, late in self._working(since, until):
            found += [_later(one, late) for one in self._job.run(begin - late, end - late)]
            begun, self._job.transfers = self._job.transfers, []
            self.transfers += [one._replace(begin=one.begin + late, end=one.end + late) for one in begun]
        return found

    def _working(self, since: float, until: float) -> Iterable[tuple[float, float, float]]:
        """Yield the parts of a period without pauses, with the seconds of all pauses before."""
        late, begin = 0.0, since
        for first, last in self._pauses:
            if begin < min(first, until):
                yield begin, min(first, until), late
            begin, late = max(begin, last), late + last - first
        if begin < until:
            yield begin, until, late


def _later(one: Ended, seconds: float) -> Ended:
    def moved(times: dict[int, float]) -> dict[int, float]:
        return {rank: time + seconds for rank, time in times.items()}

    return one._replace(
        starts=moved(one.starts), end=one.end + seconds, enqueued=moved(one.enqueued), reached=moved(one.reached)
    )
