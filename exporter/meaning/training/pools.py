"""Pools: communicators that have the same part in a job, and what late ranks cost them step by step.

Communicators of the same shape, kinds and counts have the same part: groups of tensor parallelism, or of data
parallelism. A pool is left out if it shows the schedule of the job only. A rank is not charged with lateness that it
spent waiting for another stage of the pipeline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.laps import Lap, Laps
from exporter.meaning.training.records import Communicator, Job
from exporter.meaning.training.steps import is_live

SAME_PLACE_SHARE = 0.75
"""Share of the communicators of a pool in which the same member is late where that is the schedule."""

PoolName = tuple[int, int, tuple[tuple[str, int, int], ...]]
"""Ranks, nodes, and kinds with their operations of a step and their size."""


@dataclass(slots=True)
class Pool:
    """Communicators that have the same part in a job.

    Attributes:
        communicators: Their names.
        inside: Whether they are within a node.
        frequency: Operations of a step.
        laps: Time, and cost of each late rank, by number of the step.
        waited: Microseconds that the median rank waited in the communicator with the highest value, by the same.
    """

    communicators: list[str] = field(default_factory=list)
    inside: bool = False
    frequency: int = 0
    laps: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    waited: dict[int, float] = field(default_factory=dict)


def pools(job: Job, laps: Laps, seconds: float, now: float) -> dict[PoolName, Pool]:
    """Return the pools of a job, without those that show its schedule only.

    Args:
        job: The job.
        laps: Its laps.
        seconds: Seconds of a step.
        now: Current time.
    """
    kinds: dict[str, dict[str, dict[int, Lap]]] = {}
    for (name, kind), done in laps.done.items():
        if done and name in job.communicators and is_live(job, name, seconds):
            kinds.setdefault(name, {})[kind] = done
    found: dict[PoolName, Pool] = {}
    for name, by_kind in kinds.items():
        communicator = job.communicators[name]
        nodes = nodes_of(job, communicator)
        kinds_of = [kind for kind in communicator.highest if (name, kind) in laps.steps.counts]
        counts = tuple(sorted((kind, laps.steps.counts[name, kind], 0) for kind in kinds_of))
        pool = found.setdefault((communicator.ranks, nodes, counts), Pool(inside=nodes == 1))
        pool.communicators.append(name)
        pool.frequency = sum(count for _, count, _ in counts)
        _add(pool, by_kind, _waited_elsewhere(job, communicator, seconds, now))
    return {name: pool for name, pool in found.items() if not _is_schedule(job, name, pool, found)}


def _waited_elsewhere(job: Job, communicator: Communicator, seconds: float, now: float) -> dict[str, float]:
    """Return the microseconds of a step that members wait for other stages of a pipeline, above the median member.

    Who is late because another stage kept it waiting is not the origin.
    """
    shares = {rank: job.exchanges[rank].share(now) for rank in communicator.members if rank in job.exchanges}
    if len(shares) < len(communicator.members):
        return {}
    usual = median(shares.values())
    return {rank: (share - usual) * seconds * 1e6 for rank, share in shares.items() if share > usual}


def _add(pool: Pool, by_kind: Mapping[str, Mapping[int, Lap]], elsewhere: Mapping[str, float]) -> None:
    """Add the laps of one communicator: kinds add up unless lateness is carried from one to the next."""
    waited: dict[int, float] = {}
    for done in by_kind.values():
        for number, lap in done.items():
            so_far = waited.get(number, 0.0)
            waited[number] = max(so_far, lap.waited) if lap.carried else so_far + lap.waited
            time, costs = pool.laps.get(number, (0.0, {}))
            for rank, lateness in lap.costs.items():
                cost = lateness - elsewhere.get(rank, 0.0)
                if cost > 0:
                    before = costs.get(rank, 0.0)
                    costs[rank] = max(before, cost) if lap.carried else before + cost
            pool.laps[number] = (max(time, lap.time), costs)
    for number, microseconds in waited.items():
        pool.waited[number] = max(microseconds, pool.waited.get(number, 0.0))


def _is_schedule(job: Job, name: PoolName, pool: Pool, others: Mapping[PoolName, Pool]) -> bool:
    """Return whether a pool shows the schedule of the job only.

    That of all ranks shows who finishes the pipeline last, where there are finer ones between hosts, or stages; and so
    do groups between stages, as of tied embeddings, in which the same member is late everywhere.
    """
    if len(pool.communicators) == 1:
        finer = [
            one
            for other_name, other in others.items()
            if other_name[0] < name[0] and (job.exchanges or not other.inside)
            for one in other.communicators
        ]
        covered = {rank for one in finer for rank in job.communicators[one].members}
        if covered >= job.communicators[pool.communicators[0]].members.keys():
            return True
    if name[0] == 2 and not pool.inside and len(pool.communicators) > 1 and len(others) > 1:
        return _same_place(job, pool)
    return False


def _same_place(job: Job, pool: Pool) -> bool:
    """Return whether the same member of most communicators is late."""
    totals: dict[str, float] = {}
    for _, costs in pool.laps.values():
        for rank, cost in costs.items():
            totals[rank] = totals.get(rank, 0.0) + cost
    places = []
    for one in pool.communicators:
        members = sorted(job.communicators[one].members, key=rank_order)
        places.append(max(range(len(members)), key=lambda place: totals.get(members[place], 0.0)))
    return max(places.count(place) for place in set(places)) >= SAME_PLACE_SHARE * len(places)


def rank_order(rank: str) -> tuple[int, str]:
    """Return a key that sorts ranks by number."""
    return (int(rank) if rank.isdigit() else 0, rank)
