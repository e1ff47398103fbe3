"""What late ranks cost a job, as far as other pools than that in which they are late show it."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
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


def cost_of_latest(costs: Mapping[str, float], names: AbstractSet[str]) -> float:
    """Return the cost of the latest of the names in a step."""
    return max([costs[name] for name in names if name in costs], default=0.0)


def loss_outside(
    job: Job, ranks: Collection[str], own: Pool, found: Sequence[Pool], seconds: float, now: float, window: Window
) -> float:
    """Return the seconds per second that ranks, and those that wait for them, cost others; 1 if no pool shows it.

    A rank may be late in its own communicator, and its stage may have the time: that of a pipeline waits for others
    anyway.

    Args:
        job: The job.
        ranks: The late ranks.
        own: The pool in which they are.
        found: All pools.
        seconds: Seconds of a step.
        now: Current time.
        window: Seconds, and least number of steps.
    """
    members = {name: job.communicators[name].members.keys() for pool in found for name in pool.communicators}
    waiting = {rank for name in own.communicators if not members[name].isdisjoint(ranks) for rank in members[name]}
    shown = []
    for pool in found:
        of_pool = [members[name] for name in pool.communicators]
        if len(pool.laps) < MIN_STEPS or not any(not waiting.isdisjoint(one) and one - waiting for one in of_pool):
            continue
        numbers = recent_steps(pool.laps, now, window)
        costs = [cost_of_latest(pool.laps[number][1], waiting) for number in numbers]
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
