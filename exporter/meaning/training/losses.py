"""What late ranks cost a job, as far as other pools than that in which they are late show it."""

from collections.abc import Iterable, Mapping
from statistics import median

from exporter.meaning.training.pools import Pool, PoolName
from exporter.meaning.training.records import Job

WAITED_SECONDS = 60.0
"""Seconds of which the waiting counts."""

MIN_STEPS = 4
"""Steps of a pool that show a loss."""

Window = tuple[float, int]
"""Seconds, and least number of steps."""


def recent_steps(laps: Mapping[int, tuple[float, Mapping[str, float]]], now: float, window: Window) -> list[int]:
    """Return the numbers of the steps in a window."""
    numbers = sorted(laps)
    return numbers[-max(sum(now - laps[number][0] <= window[0] for number in numbers), window[1]) :]


def loss_between(
    job: Job, ranks: Iterable[str], found: Iterable[Pool], seconds: float, now: float, window: Window
) -> float:
    """Return the seconds per second that the hosts of ranks cost in pools between hosts; 1 if none shows it.

    A rank may be late in its host, and its stage may have the time: that of a pipeline waits for others anyway.
    """
    hosts = {job.hosts.get(rank) for rank in ranks}
    shown = []
    for pool in found:
        if pool.inside or len(pool.laps) < MIN_STEPS:
            continue
        numbers = recent_steps(pool.laps, now, window)
        costs = [
            max((cost for rank, cost in pool.laps[number][1].items() if job.hosts.get(rank) in hosts), default=0.0)
            for number in numbers
        ]
        shown.append(sum(costs) / 1e6 / len(numbers) / seconds)
    return min(max(shown, default=1.0), 1.0)


def waited(found: Mapping[PoolName, Pool], seconds: float, now: float) -> float:
    """Return the share of time that the median rank waits for the last one, in the pool with the highest value."""
    shares = [0.0]
    for pool in found.values():
        recent = [pool.waited[number] for number, (time, _) in pool.laps.items() if now - time <= WAITED_SECONDS]
        if recent:
            shares.append(median(recent) / 1e6 / seconds)
    return min(max(shares), 1.0)
