"""Pools: communicators that have the same part in a job, and what late ranks cost them step by step.

Communicators of the same shape, kinds and counts have the same part: groups of tensor parallelism, or of data
parallelism. A pool is left out if it shows the schedule of the job only. A rank is charged with its own lateness only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.laps import KEPT_SECONDS, MAX_LAPS, Laps
from exporter.meaning.training.own_lateness import RecentCosts, waited_elsewhere
from exporter.meaning.training.records import Job
from exporter.meaning.training.steps import is_live

SAME_PLACE_SHARE = 0.75
"""Share of the communicators of a pool in which the same member is late where that is the schedule, and …"""

SAME_PLACE_LATENESS = 0.5
"""… share of the highest lateness of all that it has there."""

PoolName = tuple[int, int, tuple[tuple[str, int], ...]]
"""Ranks, nodes, and kinds with their operations of a step."""


@dataclass(slots=True)
class Pool:
    """Communicators that have the same part in a job.

    Attributes:
        communicators: Their names.
        inside: Whether they are within a node.
        parts: Kinds with their operations of a step.
        frequency: Operations of a step.
        laps: Time, and cost of each late rank, by number of the step, of which all communicators are known.
        added: The same, of which some are.
        known: First and last step that is known, by communicator and kind.
        waited: Microseconds that the median rank waited in the communicator with the highest value, by the same.
    """

    communicators: list[str] = field(default_factory=list)
    inside: bool = False
    parts: Sequence[tuple[str, int]] = ()
    frequency: int = 0
    laps: Mapping[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    added: dict[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    known: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    waited: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Pools:
    """Pools of a job, to which laps are added.

    Attributes:
        found: Pools by name.
        names: Name of the pool of each communicator.
        counts: Operations of a step by communicator and kind, from which the pools were made, and …
        revision: … that of the laps.
        costs: What late ranks cost recently, by communicator and kind, in a job that reports sends and receives.
    """

    found: dict[PoolName, Pool] = field(default_factory=dict)
    names: dict[str, PoolName] = field(default_factory=dict)
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    revision: int = 0
    costs: dict[tuple[str, str], RecentCosts] = field(default_factory=dict)


def update(job: Job, laps: Laps, known: Pools, seconds: float, now: float) -> dict[PoolName, Pool]:
    """Add new laps, and return the pools of a job, without those that show its schedule only.

    Args:
        job: The job.
        laps: Its laps.
        known: Pools of the last time.
        seconds: Seconds of a step.
        now: Current time.
    """
    counts = laps.steps.counts
    live = {name for (name, _), done in laps.done.items() if done and name in job.communicators}
    live = {name for name in live if is_live(job, name, seconds)}
    if laps.revision != known.revision or counts != known.counts or live != known.names.keys():
        known.revision, known.counts, known.found, known.names = laps.revision, counts, {}, {}
        known.costs.clear()
        for name in sorted(live):
            _join(job, known, name)
        added = [(name, kind, number) for (name, kind), done in laps.done.items() for number in done]
    else:
        added = laps.added
    own = _own_shares(job, laps, known, added, seconds, now)
    for name, kind, number in added:
        if name in known.names:
            highest, pool = job.communicators[name].highest, known.found[known.names[name]]
            _add(pool, laps, (name, kind, number), highest, own.get((name, kind), {}))
    laps.added = []
    for pool in known.found.values():
        for number in [one for one, (time, _) in pool.added.items() if now - time > KEPT_SECONDS]:
            del pool.added[number], pool.waited[number]
        for number in sorted(pool.added)[: max(len(pool.added) - MAX_LAPS, 0)]:
            del pool.added[number], pool.waited[number]
        parts = {(one, kind) for one in pool.communicators for kind, _ in pool.parts} - laps.unplaced
        since = max((pool.known.get(one, (0, -1))[0] for one in parts), default=0)
        until = min((pool.known.get(one, (0, -1))[1] for one in parts), default=-1)
        pool.laps = {number: lap for number, lap in pool.added.items() if since <= number <= until}
    return {name: pool for name, pool in known.found.items() if not _is_schedule(job, name, pool, known.found)}


def _join(job: Job, known: Pools, name: str) -> None:
    """Add a communicator to its pool."""
    communicator = job.communicators[name]
    nodes = nodes_of(job, communicator)
    parts = [(kind, known.counts[name, kind]) for kind in sorted(communicator.highest) if (name, kind) in known.counts]
    known.names[name] = communicator.ranks, nodes, tuple(parts)
    pool = known.found.setdefault(known.names[name], Pool(inside=nodes == 1))
    pool.communicators.append(name)
    pool.parts, pool.frequency = parts, sum(count for _, count in parts)


def _own_shares(
    job: Job, laps: Laps, known: Pools, added: Sequence[tuple[str, str, int]], seconds: float, now: float
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the share of lateness in the added laps that is a rank's own, by communicator and kind, if not all."""
    if not job.exchanges:
        return {}
    for name, kind, number in added:
        lap = laps.done[name, kind].get(number)
        if lap is not None and name in known.names:
            known.costs.setdefault((name, kind), RecentCosts()).add(lap.costs, lap.time)
    streams = {(name, kind) for name, kind, _ in added if (name, kind) in known.costs}
    waited = {
        name: waited_elsewhere(job, job.communicators[name], seconds, now) for name in {one for one, _ in streams}
    }
    return {stream: known.costs[stream].own_shares(waited[stream[0]]) for stream in streams}


def _add(pool: Pool, laps: Laps, place: tuple[str, str, int], kinds: Iterable[str], own: Mapping[str, float]) -> None:
    """Add a lap of a communicator and kind: kinds add up unless lateness is carried from one to the next."""
    name, kind, number = place
    lap = laps.done[name, kind].get(number)
    if lap is None:
        return
    first, last = pool.known.get((name, kind), (number, number))
    pool.known[name, kind] = min(number, first), max(number, last)
    time, costs = pool.added.get(number, (0.0, {}))
    for rank, lateness in lap.costs.items():
        cost = lateness * own.get(rank, 1.0)
        if cost > 0:
            before = costs.get(rank, 0.0)
            costs[rank] = max(before, cost) if lap.carried else before + cost
    pool.added[number] = (max(time, lap.time), costs)
    waited = 0.0
    for other in kinds:
        known = laps.done.get((name, other), {}).get(number)
        if known is not None:
            waited = max(waited, known.waited) if known.carried else waited + known.waited
    pool.waited[number] = max(waited, pool.waited.get(number, 0.0))


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
    """Return whether the same member of most communicators is late by as much: a slow host is late in its own ones."""
    totals: dict[str, float] = {}
    for _, costs in pool.laps.values():
        for rank, cost in costs.items():
            totals[rank] = totals.get(rank, 0.0) + cost
    least = SAME_PLACE_LATENESS * max(totals.values(), default=0.0)
    places = []
    for one in pool.communicators:
        members = sorted(job.communicators[one].members, key=rank_order)
        place = max(range(len(members)), key=lambda place: totals.get(members[place], 0.0))
        if totals.get(members[place], 0.0) >= least:
            places.append(place)
    return max(places.count(place) for place in set(places)) >= SAME_PLACE_SHARE * len(pool.communicators)


def rank_order(rank: str) -> tuple[int, str]:
    """Return a key that sorts ranks by number."""
    return (int(rank) if rank.isdigit() else 0, rank)
