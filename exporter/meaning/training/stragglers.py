"""Stragglers: which ranks or hosts the others wait for, from the candidates of all pools.

A late rank makes its group late in all its other groups. So the finest pool in which a suspect explains the loss of the
others names it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from exporter.meaning.training.alignment import nodes_of
from exporter.meaning.training.candidates import WINDOWS, Candidate, candidate, won_without
from exporter.meaning.training.losses import Window, cost_of_latest, loss_outside, recent_steps
from exporter.meaning.training.pools import Pool, PoolName, rank_order
from exporter.meaning.training.records import Job

EXPLAINED_SHARE = 0.5
"""Share of the highest loss in coarser pools that a suspect of a finer pool must cost to be its origin."""

SAME_LOSS = 0.6
"""Loss by a host of one stage over that by a late host of another one, from which on either may be the origin."""

HOST_SHARE = 0.5
"""Loss by a host over that by ranks, from which on the host is named."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that the others wait for.

    Attributes:
        rank: Its name.
        loss: Seconds per second that it costs.
        strength: The same; the highest is named first.
        last: Number of steps in which it was the last, of `decisive`.
        decisive: See last.
        inside: Whether it is late to ranks of its own host, without the network in between.
    """

    rank: str
    loss: float
    strength: float
    last: int = 0
    decisive: int = 0
    inside: bool = False


HostLaps = Mapping[int, tuple[float, Mapping[str, float]]]
"""Time, and cost by host, by number of the step."""

Parts = Mapping[frozenset[str], HostLaps]
"""Parts of a pool by the hosts of their communicators."""


def suspects(
    job: Job, found: Mapping[PoolName, Pool], seconds: float, now: float, kept: Collection[frozenset[str]] = ()
) -> tuple[list[Suspect], list[str]]:
    """Return the ranks that a job waits for, and the hosts that are slow as a whole.

    Args:
        job: The job.
        found: Its pools.
        seconds: Seconds of a step.
        now: Current time.
        kept: The ranks, and the hosts, that are named now.
    """
    named: tuple[list[Suspect], list[str]] = [], []
    ordered = sorted(found.values(), key=lambda one: (-one.frequency, not one.inside))
    parts = [{} if pool.inside else _parts(job, pool) for pool in ordered]
    for window in WINDOWS:
        ranks, hosts = _named(job, ordered, parts, seconds, now, window, kept)
        # A short window detects a new straggler soon; only the longest shows reliably which others are equally late.
        if {one.rank for one in named[0]} < {one.rank for one in ranks}:
            named = ranks, hosts
    return named


def _named(
    job: Job,
    ordered: Sequence[Pool],
    parts: Sequence[Parts],
    seconds: float,
    now: float,
    window: Window,
    kept: Collection[frozenset[str]],
) -> tuple[list[Suspect], list[str]]:
    """Return ranks and hosts from the evidence of one window; `parts` are those of the pools."""
    candidates: list[tuple[Pool, Candidate, bool]] = []
    for pool, of_pool in zip(ordered, parts, strict=True):
        ranks = {rank for name in pool.communicators for rank in job.communicators[name].members}
        rank = candidate(pool.laps, len(ranks), seconds, now, window, kept)
        host = None if pool.inside else _late_host(job, of_pool, seconds, now, window, kept) or _as_host(job, rank)
        if not pool.inside:
            host, rank = (
                None if one is None or _is_passed_on(ordered, _ranks_of(job, one), one, seconds, now, window) else one
                for one in (host, rank)
            )
        if host is not None and _may_be_one_rank(job, ordered, host, seconds, now, _steps_of(host, window)):
            continue  # soon there is enough evidence on the rank
        if host is not None and (rank is None or host.loss >= HOST_SHARE * rank.loss):
            candidates.append((pool, host, True))
        elif rank is not None and not _may_be_fewer(job, ordered, pool, rank, seconds, now, _steps_of(rank, window)):
            candidates.append((pool, rank, False))
    most = max((one.loss for _, one, _ in candidates), default=0.0)
    for pool, one, is_host in candidates:
        if one.loss < EXPLAINED_SHARE * most:
            continue
        if is_host:
            ranks_of = [rank for rank, host in job.hosts.items() if host in one.names]
            stated = one._replace(loss=_loss_of_ranks(job, pool, one, frozenset(ranks_of), seconds, now, window))
            return [_suspect(rank, stated, pool) for rank in sorted(ranks_of, key=rank_order)], sorted(one.names)
        outside = loss_outside(job, one.names, pool, ordered, seconds, now, window) if pool.inside else one.loss
        stated = one._replace(loss=min(one.loss, outside))
        return [_suspect(rank, stated, pool) for rank in sorted(one.names, key=rank_order)], []
    return [], []


def _loss_of_ranks(
    job: Job, pool: Pool, host: Candidate, ranks: frozenset[str], seconds: float, now: float, window: Window
) -> float:
    """Return the seconds per second that the ranks of late hosts cost, at least what their middle ranks do."""
    laps = [pool.laps[number][1] for number in recent_steps(pool.laps, now, _steps_of(host, window))]
    members = [job.communicators[name].members.keys() for name in pool.communicators]
    won = won_without(laps, ranks, [one for one in members if not one.isdisjoint(ranks)], seconds)
    return min(max(won, host.loss), 1.0)


def _steps_of(one: Candidate, window: Window) -> Window:
    """Return a window with at least as many steps as a candidate: of few hosts they are more than of many ranks."""
    return window[0], max(window[1], one.laps)


def _suspect(rank: str, one: Candidate, pool: Pool) -> Suspect:
    return Suspect(rank, one.loss, one.loss, one.late, one.laps, pool.inside)


def _parts(job: Job, pool: Pool) -> Parts:
    """Return the parts of a pool: communicators on the same hosts; those of another stage are late with them."""
    ranks: dict[frozenset[str], set[str]] = {}
    for name in pool.communicators:
        members = job.communicators[name].members
        hosts = frozenset(job.hosts.get(rank, "") for rank in members)
        ranks.setdefault(hosts, set()).update(members)
    return {hosts: _by_host(job, pool, of_part) for hosts, of_part in ranks.items()}


def _late_host(
    job: Job, parts: Parts, seconds: float, now: float, window: Window, kept: Collection[frozenset[str]]
) -> Candidate | None:
    """Return the hosts that are late as a whole, by the part of the pool where they cost most."""
    found = [(candidate(laps, len(hosts), seconds, now, window, kept), hosts) for hosts, laps in parts.items()]
    most, of_part = max(found, key=lambda one: 0.0 if one[0] is None else one[0].loss, default=(None, frozenset()))
    if most is None or job.exchanges:
        return most
    others = [laps for hosts, laps in parts.items() if hosts != of_part]
    return most._replace(
        names=most.names.union(*(_late_with(most, parts[of_part], other, now, window) for other in others))
    )


def _late_with(one: Candidate, laps: HostLaps, others: HostLaps, now: float, window: Window) -> set[str]:
    """Return the host of another stage that is late with late hosts: nothing shows for which stage the others wait."""
    numbers = [
        number
        for number in recent_steps(laps, now, window)
        if cost_of_latest(laps[number][1], one.names) and number in others
    ]
    totals: dict[str, float] = {}
    for number in numbers:
        for host, cost in others[number][1].items():
            totals[host] = totals.get(host, 0.0) + cost
    latest = max(totals, key=totals.__getitem__, default="")
    same = SAME_LOSS * sum(cost_of_latest(laps[number][1], one.names) for number in numbers)
    return {latest} if totals and totals[latest] >= same else set()


def _as_host(job: Job, late: Candidate | None) -> Candidate | None:
    """Return late ranks as their host, if they are all those of one."""
    hosts = frozenset() if late is None else frozenset(job.hosts.get(rank, "") for rank in late.names)
    if late is None or len(hosts) > 1 or len(late.names) < 2:
        return None
    return late._replace(names=hosts) if late.names >= {r for r, host in job.hosts.items() if host in hosts} else None


def _may_be_one_rank(
    job: Job, found: Sequence[Pool], host: Candidate, seconds: float, now: float, window: Window
) -> bool:
    """Return whether a host may be late because of one of its ranks: that is so, or there is no evidence yet."""
    inside = [pool for pool in found if pool.inside]
    known = {name for pool in inside for name in pool.communicators}
    for name, communicator in job.communicators.items():
        if name in known or len(communicator.members) < 2 or nodes_of(job, communicator) != 1:
            continue
        is_here = any(job.hosts.get(rank) in host.names for rank in communicator.members)
        if is_here and any(tick.compared for tick in communicator.ticks):
            return True
    ranks = {rank for rank, of_host in job.hosts.items() if of_host in host.names}
    return any(_is_one_of(job, pool, ranks, host.loss, seconds, now, window) for pool in inside)


def _may_be_fewer(
    job: Job, found: Sequence[Pool], pool: Pool, late: Candidate, seconds: float, now: float, window: Window
) -> bool:
    """Return whether of several late ranks some may be late only because they wait for another one of them."""
    others = [one for one in found if one.inside and one is not pool]
    return len(late.names) > 1 and any(
        _is_one_of(job, one, late.names, late.loss, seconds, now, window) for one in others
    )


def _is_one_of(
    job: Job, inside: Pool, ranks: AbstractSet[str], loss: float, seconds: float, now: float, window: Window
) -> bool:
    """Return whether of ranks that are late together one is late within their own communicator by about as much.

    It may be another one in each step. The others are late because they wait for it.
    """
    recent = recent_steps(inside.laps, now, window)
    least = EXPLAINED_SHARE * loss * seconds * 1e6 * len(recent)
    for name in inside.communicators:
        members = job.communicators[name].members.keys()
        if len(members) < 2 or not members <= ranks:
            continue
        excess = 0.0
        for number in recent:
            costs = inside.laps[number][1]
            second, most = sorted(costs.get(rank, 0.0) for rank in members)[-2:]
            excess += most - second
        if excess >= least > 0:
            return True
    return False


def _ranks_of(job: Job, one: Candidate) -> frozenset[str]:
    """Return the ranks of a candidate: its names, or those of the hosts that these are."""
    return one.names | {rank for rank, host in job.hosts.items() if host in one.names}


def _is_passed_on(
    found: Sequence[Pool], ranks: AbstractSet[str], late: Candidate, seconds: float, now: float, window: Window
) -> bool:
    """Return whether lateness between hosts is that of other ranks within theirs, in each step perhaps another one.

    A late stage makes all stages of its pipeline late. One step alone is noise: it is the same rank in two in a row.
    """
    for pool in found:
        if not pool.inside:
            continue
        recent = recent_steps(pool.laps, now, _steps_of(late, window))
        lasts = [_last_of(pool.laps[number][1]) for number in recent]
        pairs = zip([None, *lasts], lasts, [*lasts[1:], None], strict=False)
        passed = sum(
            one.gain
            for before, one, after in pairs
            if one is not None
            and one.rank not in ranks
            and any(other is not None and other.rank == one.rank for other in (before, after))
        )
        if passed >= EXPLAINED_SHARE * late.loss * seconds * 1e6 * len(recent) > 0:
            return True
    return False


class _Last(NamedTuple):
    """The last rank of a step, and by how much it is later than the one before it, in microseconds."""

    rank: str
    gain: float


def _last_of(costs: Mapping[str, float]) -> _Last | None:
    ordered = sorted(costs, key=costs.__getitem__)
    if not ordered:
        return None
    return _Last(ordered[-1], costs[ordered[-1]] - (costs[ordered[-2]] if len(ordered) > 1 else 0.0))


def _by_host(job: Job, pool: Pool, ranks: Iterable[str]) -> dict[int, tuple[float, dict[str, float]]]:
    """Return laps with the cost of the middle rank of each host: one late rank does not make a late host."""
    of_host: dict[str, list[str]] = {}
    for rank in ranks:
        of_host.setdefault(job.hosts.get(rank, ""), []).append(rank)
    several = {host: members for host, members in of_host.items() if len(members) > 1}
    laps = {}
    for number, (time, costs) in pool.laps.items():
        late = {job.hosts.get(rank, "") for rank in costs}
        by_host = {}
        for host in late & several.keys():
            ordered = sorted(costs.get(rank, 0.0) for rank in several[host])
            by_host[host] = ordered[(len(ordered) - 1) // 2]
        laps[number] = (time, by_host)
    return laps
