"""Verdicts: what limits a training job.

Checked in this order, the first that applies is the verdict: hang (ranks wait in a collective that does not end, where
there was enough data before); not enough data; straggler (the others wait for the same ranks, and a slow network does
not cost several times as much); network-bound (even the last rank to start takes longer than the network should);
imbalanced work (the rank that is last changes); fine. A verdict replaces the current one only when it is formed several
times in a row, so that a job between two verdicts does not flap.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf

from exporter.meaning.training import hangs, losses, pools, stragglers
from exporter.meaning.training.alignment import SILENT_SECONDS
from exporter.meaning.training.bandwidth import (
    Baseline,
    BestBandwidth,
    Shape,
    bandwidth_shares,
    seconds_too_long,
)
from exporter.meaning.training.candidates import MIN_LAPS
from exporter.meaning.training.hangs import OperationHistory
from exporter.meaning.training.laps import Laps, fold
from exporter.meaning.training.longest import RecentTimes
from exporter.meaning.training.paces import Group
from exporter.meaning.training.pools import Pool, PoolName, Pools
from exporter.meaning.training.records import Job
from exporter.meaning.training.steps import is_live
from exporter.meaning.training.stragglers import Suspect

MIN_MATCHED_SHARE = 0.9
"""Share of the ranks of a job that must be seen in operations that could be compared."""

MIN_OPERATIONS = 8
"""Minimum number of compared operations in the long window."""

RECENT_SECONDS = 20.0
"""Seconds without a complete operation after which nothing is known any more, or …"""

RECENT_STEPS = 2.5
"""… this many steps, if that is longer."""

LONG_WINDOW = 60.0
"""Seconds of evidence for everything but stragglers, or …"""

MATCHED_STEPS = 4.0
"""… this many steps if they take longer."""


TIMES_TO_MOVE = 3
"""How often in a row other stragglers are found until they count as such."""

MOVING_SECONDS = 180.0
"""Seconds within which stragglers of which none is the same are imbalanced work."""

MIN_BANDWIDTH_SHARE = 0.6
"""Share of the expected bandwidth below which a job is network-bound."""

TIMES_THE_LOSS = 3.0
"""Times the loss to late ranks that a slow network must cost, at most, to be the verdict in place of them."""

MIN_WAITED_RATIO = 0.04
"""Seconds waited per second, by the median rank, from which on work is imbalanced if there is no straggler."""

TIMES_TO_RAISE = 2
"""Number of times in a row that a verdict must be formed to replace a better one …"""

TIMES_TO_CLEAR = 3
"""… and to replace a worse one."""


class Verdict(enum.Enum):
    """What limits a job."""

    UNKNOWN = "not_enough_data"
    HANG = "hang"
    STRAGGLER = "straggler"
    NETWORK = "network_bound"
    IMBALANCED = "imbalanced_work"
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its evidence.

    Attributes:
        verdict: The verdict.
        ranks: The ranks at fault, of a straggler or a hang.
        hosts: Hosts that are slow as a whole, of a straggler; the only host of the ranks, of a hang.
        compared: Number of operations compared in the window.
        matched: Share of the ranks of the job that were seen in them.
        loss: Seconds lost per second to the ranks at fault, or waited by the median rank.
        bandwidth: Share of the expected bandwidth of the slowest communicator; None if unknown.
        communicators: The same for each communicator between hosts, if the job is network-bound; 0 for each in which
            all ranks began a collective that does not end, if it hangs.
        arrivals: Share of the compared operations whose arrivals are known; None if unknown.
    """

    verdict: Verdict
    ranks: Sequence[Suspect] = ()
    hosts: Sequence[str] = ()
    compared: int = 0
    matched: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None
    communicators: Mapping[str, float] = field(default_factory=dict)
    arrivals: float | None = None


@dataclass(slots=True)
class JobMemory:
    """State of the verdicts on a job.

    Attributes:
        given: The current judgement.
        since: Time at which its verdict was first given.
        formed: The verdict formed last, its ranks, and how often in a row it was formed.
        was_enough: Whether there was enough data at some time: a job that hangs reports nothing more.
        operations: When operations were settled, and how far communicators were.
        laps: Steps of the job.
        pools: The same by the part that communicators have in the job.
        best: Highest bus bandwidth by kind, size, ranks and nodes.
        named: When ranks were last named as stragglers together, or would have been.
        suspected: The suspects of the last time, and how often in a row there were such.
        live: Communicators that had a part in the job.
        shortest: What was counted as a step, and seconds of the shortest one while the network was not slow.
        times: Times of its collectives in the last minute.
    """

    given: Judgement | None = None
    since: float = 0.0
    formed: tuple[Verdict, frozenset[str], int] = (Verdict.UNKNOWN, frozenset(), 0)
    was_enough: bool = False
    operations: OperationHistory = field(default_factory=OperationHistory)
    laps: Laps = field(default_factory=Laps)
    pools: Pools = field(default_factory=Pools)
    best: dict[Shape, BestBandwidth] = field(default_factory=dict)
    named: dict[frozenset[str], float] = field(default_factory=dict)
    suspected: tuple[frozenset[str], int] = (frozenset(), 0)
    live: set[str] = field(default_factory=set)
    shortest: tuple[Group | None, float] = (None, inf)
    times: RecentTimes = field(default_factory=RecentTimes)


def judge(job: Job, memory: JobMemory, now: float, baseline: Baseline) -> Judgement:
    """Form the verdict on a job, and return the current one."""
    _forget_previous_run(job, memory)
    fold(job, memory.laps, now)
    hangs.record(job, memory.operations)
    formed = replace(_formed(job, memory, now, baseline), arrivals=_arrivals(job, now))
    names = frozenset(one.rank for one in formed.ranks)
    verdict, ranks, times = memory.formed
    # Other ranks make another verdict, unless some are the same.
    same = formed.verdict is verdict and (not names or not ranks or bool(names & ranks))
    memory.formed = (formed.verdict, names, times + 1 if same else 1)
    current = memory.given
    if current is None or (current.verdict is formed.verdict and _same_ranks(current, formed)):
        if current is None:
            memory.since = now
        memory.given = formed
    elif memory.formed[2] >= _needed(current.verdict, formed.verdict):
        memory.given, memory.since = formed, now
    return memory.given if memory.given is not None else formed


def _forget_previous_run(job: Job, memory: JobMemory) -> None:
    """After a restart, of which no communicator existed before, forget all but the best bandwidth.

    Communicators without operations are those of another feed, as of dumps that are written when the job hangs.
    """
    seconds = memory.laps.steps.seconds
    live = {name for name, one in job.communicators.items() if one.reached and is_live(job, name, seconds)}
    if memory.live and live and not memory.live & live:
        fresh = JobMemory(best=memory.best)
        for one in fields(JobMemory):
            setattr(memory, one.name, getattr(fresh, one.name))
    memory.live = live or memory.live


def _arrivals(job: Job, now: float) -> float | None:
    """Return the share of the operations compared whose arrivals are known; None if none were compared."""
    ticks = [tick for one in job.communicators.values() for tick in one.ticks if now - tick.time <= LONG_WINDOW]
    compared = sum(tick.compared for tick in ticks)
    return sum(tick.arrivals for tick in ticks) / compared if compared else None


def _same_ranks(one: Judgement, other: Judgement) -> bool:
    ranks = {suspect.rank for suspect in one.ranks}
    return not ranks or bool(ranks & {suspect.rank for suspect in other.ranks})


def _needed(current: Verdict, formed: Verdict) -> int:
    """Return how often in a row a verdict must be formed to replace the current one."""
    if current is Verdict.UNKNOWN:
        return 1
    return TIMES_TO_RAISE if formed in (Verdict.HANG, Verdict.STRAGGLER, Verdict.NETWORK) else TIMES_TO_CLEAR


def _formed(job: Job, memory: JobMemory, now: float, baseline: Baseline) -> Judgement:
    """Form a verdict from the evidence; none on several runs of one name."""
    if job.claims.runs(now) > 1:
        return Judgement(Verdict.UNKNOWN)
    step = memory.laps.steps.seconds
    compared, matched = _matched(job, now, max(LONG_WINDOW, MATCHED_STEPS * (step or 0.0)))
    is_enough = compared >= MIN_OPERATIONS and matched >= MIN_MATCHED_SHARE
    memory.was_enough |= is_enough
    hang = hangs.hang(job, memory.operations, now) if memory.was_enough else None
    if hang is not None:
        stopped = [Suspect(rank, 1.0, 1.0) for rank in hang.ranks]
        hosts = sorted({job.hosts.get(rank, "") for rank in hang.ranks} - {""})
        dead = dict.fromkeys(hang.communicators, 0.0)
        return Judgement(
            Verdict.HANG, stopped, hosts if len(hosts) == 1 else (), compared, matched, 1.0, communicators=dead
        )
    shares = bandwidth_shares(job, memory.best, baseline, now)
    share = min(shares.values(), default=None)
    found = {} if step is None else pools.update(job, memory.laps, memory.pools, step, now)
    settled = memory.operations.settled
    known = Judgement(Verdict.UNKNOWN, compared=compared, matched=matched, bandwidth=share)
    if not is_enough or step is None or settled is None or now - settled > max(RECENT_SECONDS, RECENT_STEPS * step):
        return known
    return _of_steps(job, memory, found, known, shares, step, now)


def _of_steps(
    job: Job,
    memory: JobMemory,
    found: Mapping[PoolName, Pool],
    known: Judgement,
    shares: Mapping[str, float],
    step: float,
    now: float,
) -> Judgement:
    """Form a verdict from steps and bandwidths; nothing hangs, and there is enough data."""
    given = memory.given
    is_counted = any(len(pool.laps) >= MIN_LAPS for pool in found.values())
    if given is not None and given.verdict in (Verdict.STRAGGLER, Verdict.IMBALANCED) and not is_counted:
        return given  # the operations of a step are counted in another way since
    ranks, hosts = stragglers.suspects(job, found, step, now, _kept(given))
    names = frozenset(one.rank for one in ranks)
    is_slow = known.bandwidth is not None and known.bandwidth < MIN_BANDWIDTH_SHARE
    network = _network_loss(job, memory, shares, step, is_slow=is_slow)
    costs_less = bool(ranks) and network > TIMES_THE_LOSS * ranks[0].loss
    if ranks and not costs_less and not _is_slow_group(job, names, shares) and not _moves(memory, names, now):
        return replace(known, verdict=Verdict.STRAGGLER, ranks=ranks, hosts=hosts, loss=ranks[0].loss)
    waited = losses.waited(found, step, now)
    if is_slow:
        return replace(known, verdict=Verdict.NETWORK, loss=waited, communicators=shares)
    verdict = Verdict.IMBALANCED if ranks or waited >= MIN_WAITED_RATIO else Verdict.FINE
    return replace(known, verdict=verdict, loss=waited)


def _kept(given: Judgement | None) -> Collection[frozenset[str]]:
    """Return the ranks, and the hosts, that are named as stragglers now."""
    if given is None or given.verdict is not Verdict.STRAGGLER:
        return ()
    return (frozenset(one.rank for one in given.ranks), frozenset(given.hosts))


def _network_loss(job: Job, memory: JobMemory, shares: Mapping[str, float], step: float, *, is_slow: bool) -> float:
    """Return what a slow network costs, in seconds per second: what steps, and what collectives take too long at most.

    Computing may hide how long collectives take. Nothing is known of a job whose network was always slow.
    """
    clock, shortest = memory.shortest
    if clock != memory.laps.steps.clock:
        clock, shortest = memory.laps.steps.clock, inf
    if not is_slow:
        shortest = min(shortest, step)
    memory.shortest = clock, shortest
    return min(1 - shortest / step, seconds_too_long(job, shares)) if is_slow and shortest < step else 0.0


def _is_slow_group(job: Job, names: frozenset[str], shares: Mapping[str, float]) -> bool:
    """Return whether ranks are all those of a communicator whose transfers are slow: that makes them late elsewhere."""
    slow = (name for name, share in shares.items() if share < MIN_BANDWIDTH_SHARE and name in job.communicators)
    return len(names) > 1 and any(names == job.communicators[name].members.keys() for name in slow)


def _moves(memory: JobMemory, names: frozenset[str], now: float) -> bool:
    """Return whether other ranks were the stragglers some time ago: then work is imbalanced, and no rank is slow."""
    memory.named = {who: at for who, at in memory.named.items() if now - at <= MOVING_SECONDS}
    given = memory.given
    if given is not None and given.verdict is Verdict.STRAGGLER:
        memory.named[frozenset(one.rank for one in given.ranks)] = now
    before, times = memory.suspected
    memory.suspected = names, times + 1 if before & names else 1
    moves = any(not who & names for who in memory.named)
    if moves and memory.suspected[1] >= TIMES_TO_MOVE:
        memory.named[names] = now
    return moves


def _matched(job: Job, now: float, window: float) -> tuple[int, float]:
    """Return the operations that were compared, and the share of a job's ranks that were seen in them.

    Of each communicator the ranks count whose timings should arrive here.
    """
    compared = expected = seen = 0
    for communicator in job.communicators.values():
        if now - communicator.last_seen > SILENT_SECONDS or not communicator.reached:
            continue
        here = sum(tick.compared for tick in communicator.ticks if now - tick.time <= window)
        members = sum(now - at <= SILENT_SECONDS for at in communicator.members.values())
        if members < 2 and not communicator.expected:
            continue  # its other ranks are on other hosts, whose timings do not arrive here
        compared += here
        expected += communicator.expected or members
        if here:
            seen += min(members, communicator.expected or members)
    return compared, seen / expected if expected else 0.0
