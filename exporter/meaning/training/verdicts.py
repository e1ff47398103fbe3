"""Verdicts: what holds up a job, or that nothing does, or that nobody can know.

They are formed in this order, and the first that fits is given: hang (operations of some ranks are missing and none
ends any more, where there was enough data once); not enough data; straggler (the others wait for the same ranks);
network-bound (even the last to come takes longer than the network should); imbalanced work (the rank that comes late
changes); fine. Another verdict takes the place of the one that stands only when it was formed several times in a row,
so that a job at the edge of two does not flap.
"""

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.core.collectives import AFTER_ALL, bus_factor
from exporter.meaning.training.alignment import (
    SILENCE,
    TOLD,
    Communicator,
    Job,
    Progress,
    nodes_of,
)
from exporter.meaning.training.stragglers import (
    WINDOWS,
    Evidence,
    Suspect,
    evidence,
    suspects,
)

LEAST_BYTES = 1 << 20
"""Size of an operation below which its bandwidth is latency."""

MATCHED = 0.9
"""Share of a job's ranks that must be seen in operations that could be compared."""

LEAST_OPERATIONS = 8
"""Operations that must have been compared in the long window."""

LONG = WINDOWS[-1]
"""Seconds of evidence that all but stragglers are judged by."""

FROZEN = 30.0
"""Seconds without any operation of a job after which it hangs, and …"""

FROZEN_GAPS = 10.0
"""… times the longest pause that it made while it ran: checkpoints and evaluations are no hangs; at most …"""

FROZEN_MORE = 120.0
"""… seconds more than that pause."""

LONG_WAIT = 120.0
"""Seconds that ranks must have waited in a collective for those to be named that did not begin it: one may be writing a
checkpoint."""

SNAPSHOT = 20.0
"""Seconds between two looks at how far communicators are, while a job runs: those that do the same are as far."""

SAME_WORK = 0.05
"""Share by which the numbers of communicators that do the same work may differ while the job runs."""

FEW = 0.25
"""Share of the communicators of one kind that may stand behind the others for their ranks to be named."""

SLOW = 0.6
"""Share of what the network should give below which a job is bound by it."""

RECENT = 30.0
"""Seconds of which the speed of transfers is judged, and …"""

LEAST_TICKS = 4
"""… ticks in which there must have been some."""

HISTORY_LEAST = 10
"""Ticks with traffic before a job's own history says what the network should give."""

IMBALANCED = 0.04
"""Seconds waited in a second, by the mean rank, from which on work is imbalanced where no rank is blamed."""

RAISE = 2
"""Times in a row that a verdict must be formed before it is given …"""

CLEAR = 3
"""… and before it gives way to one that is better."""


_NOT_BEGUN = Progress(0, 0, -math.inf, -math.inf)


class Verdict(enum.Enum):
    """What holds up a job."""

    UNKNOWN = "not_enough_data"
    HANG = "hang"
    STRAGGLER = "straggler"
    NETWORK = "network_bound"
    IMBALANCED = "imbalanced_work"
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the network should give, in bytes per second of bus bandwidth.

    Attributes:
        measured: By kind and size, from nccl-tests.
        theory: Of the links, where their speed is known.
    """

    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    theory: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with what it rests on.

    Attributes:
        verdict: What.
        ranks: Those that are to blame, of a straggler or a hang.
        hosts: Those that are slow as a whole, of a straggler; the only one of the ranks, of a hang.
        compared: Operations that were compared in the window.
        matched: Share of the job's ranks that were seen in them.
        loss: Seconds lost in a second to the ranks that are to blame, or waited by the mean rank.
        bandwidth: Share of what the network should give, to the slowest communicator; None where that is not known.
        communicators: The same of each communicator between hosts, where the network is what holds the job up.
    """

    verdict: Verdict
    ranks: Sequence[Suspect] = ()
    hosts: Sequence[str] = ()
    compared: int = 0
    matched: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None
    communicators: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """What is remembered of a job's verdicts.

    Attributes:
        given: The judgement that stands.
        since: When its verdict was given first.
        formed: The verdict that was formed last, how often in a row, and for which ranks.
        longest_pause: The longest time between ticks in which operations were settled, while it ran.
        settled: When an operation was settled last.
        was_enough: Whether there was enough data at some time: a job that hangs tells nothing more.
        history: By kind, size, ranks and nodes: the best bus bandwidth.
        looked: When it was looked last how far the communicators are.
        numbers: How far each was then, by name and kind, and …
        before: … at the look before.
    """

    given: Judgement | None = None
    since: float = 0.0
    formed: tuple[Verdict, frozenset[str], int] = (Verdict.UNKNOWN, frozenset(), 0)
    longest_pause: float = 0.0
    settled: float | None = None
    was_enough: bool = False
    history: dict[tuple[str, int, int, int], "Best"] = field(default_factory=dict)
    looked: float = float("-inf")
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    before: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Best:
    """The best bandwidth that was seen, and in how many ticks there was any."""

    value: float = 0.0
    ticks: int = 0


def bus_bandwidth(kind: str, ranks: int, bytes_per_microsecond: float) -> float | None:
    """Give bytes per second on the bus; None for kinds without a factor."""
    factor = bus_factor(kind, ranks)
    return None if factor is None else bytes_per_microsecond * 1e6 * factor


def judge(job: Job, memory: Memory, now: float, baseline: Baseline) -> Judgement:
    """Form the verdict on a job, and give the one that stands."""
    told = evidence(job, now, LONG)
    _note(job, memory)
    formed = _formed(job, memory, told, now, baseline)
    names = frozenset(one.rank for one in formed.ranks)
    verdict, ranks, times = memory.formed
    # Another rank is another verdict; one more or less of the same is not.
    same = formed.verdict is verdict and (not names or not ranks or bool(names & ranks))
    memory.formed = (formed.verdict, names, times + 1 if same else 1)
    standing = memory.given
    if standing is None or (standing.verdict is formed.verdict and _akin(standing, formed)):
        if standing is None:
            memory.since = now
        memory.given = formed
    elif memory.formed[2] >= _needed(standing.verdict, formed.verdict):
        memory.given, memory.since = formed, now
    return memory.given if memory.given is not None else formed


def _akin(one: Judgement, other: Judgement) -> bool:
    ranks = {suspect.rank for suspect in one.ranks}
    return not ranks or bool(ranks & {suspect.rank for suspect in other.ranks})


def _needed(standing: Verdict, formed: Verdict) -> int:
    """Tell how often in a row a verdict must be formed to take the place of another."""
    if standing is Verdict.UNKNOWN:
        return 1
    return RAISE if formed in (Verdict.HANG, Verdict.STRAGGLER, Verdict.NETWORK) else CLEAR


def _note(job: Job, memory: Memory) -> None:
    """Note when operations were settled last, and the longest pause."""
    newest = max((one.ticks[-1].time for one in job.communicators.values() if one.ticks), default=None)
    if newest is None or newest == memory.settled:
        return
    if memory.settled is not None:
        memory.longest_pause = max(memory.longest_pause * 0.999, newest - memory.settled)
    memory.settled = newest
    if newest - memory.looked >= SNAPSHOT:
        memory.looked, memory.before, memory.numbers = newest, memory.numbers, _numbers(job)


def _numbers(job: Job) -> dict[tuple[str, str], int]:
    """Tell how far each communicator is with each kind of operation."""
    found: dict[tuple[str, str], int] = {}
    for name, communicator in job.communicators.items():
        for (kind, rank), number in communicator.reached.items():
            if rank in communicator.members:
                found[name, kind] = max(number, found.get((name, kind), number))
    return found


def _formed(job: Job, memory: Memory, told: Evidence, now: float, baseline: Baseline) -> Judgement:
    """Form a verdict."""
    compared = sum(tick.compared for tick in told.ticks.values())
    matched = _matched(job, told, now)
    is_enough = compared >= LEAST_OPERATIONS and matched >= MATCHED
    memory.was_enough |= is_enough
    behind = _hanging(job, memory, now) if memory.was_enough else None
    if behind is not None:
        found = [Suspect(rank, 1.0, 1.0) for rank in behind]
        hosts = sorted({job.hosts.get(rank, "") for rank in behind} - {""})
        return Judgement(Verdict.HANG, found, hosts if len(hosts) == 1 else (), compared, matched, 1.0)
    shares = _bandwidths(job, memory, baseline, now)
    share = min(shares.values(), default=None)
    if not is_enough:
        return Judgement(Verdict.UNKNOWN, compared=compared, matched=matched, bandwidth=share)
    found, hosts = suspects(job, now, told)
    if found:
        return Judgement(Verdict.STRAGGLER, found, hosts, compared, matched, found[0].loss, share)
    waited = _waited(job, told)
    if share is not None and share < SLOW:
        return Judgement(Verdict.NETWORK, (), (), compared, matched, waited, share, shares)
    verdict = Verdict.IMBALANCED if waited >= IMBALANCED else Verdict.FINE
    return Judgement(verdict, (), (), compared, matched, waited, share)


def _hanging(job: Job, memory: Memory, now: float) -> list[str] | None:
    """Name the ranks with which a job that ran and stands still went no further; None where it does not stand still.

    Where ranks tell what they began, those are named that did not begin what others wait in. Elsewhere, what does not
    end is not recorded, so that the ranks of a communicator that hangs have told of as much; but of the
    communicators that do the same work, that with the least to tell is where it stands. A job that ended has told of as
    much everywhere: it does not hang.
    """
    pause = memory.longest_pause
    if memory.settled is None or now - memory.settled < max(FROZEN, min(FROZEN_GAPS * pause, pause + FROZEN_MORE)):
        return None
    if any(communicator.progress for communicator in job.communicators.values()):
        return _awaited(job, now) or None  # better evidence than which communicators told more before they fell silent
    behind: list[str] | None = None
    fewest = 1.0
    for names, missing in _compared(job, memory):
        if not missing:
            continue
        behind = [] if behind is None else behind
        most = max(missing.values())
        last = [name for name in names if missing.get(name) == most]
        share = len(last) / len(names)
        if share <= FEW and share < fewest:
            fewest = share
            behind = sorted({rank for name in last for rank in job.communicators[name].members})
    return behind


def _awaited(job: Job, now: float) -> list[str]:
    """Name the ranks that began least of what others have been waiting in, and that wait for nobody themselves.

    Only what is begun can be compared: GPUs may be done with more than what their ranks looked for, and those that wait
    have begun as much more as they could. Where all began the same, it is not known whether anything hangs.
    """
    behind: set[str] = set()
    waiting: set[str] = set()
    for communicator in job.communicators.values():
        for kind in {kind for kind, _ in communicator.progress}:
            told = {rank: communicator.progress.get((kind, rank), _NOT_BEGUN) for rank in communicator.members}
            over = max((one.ended for one in told.values()), default=0) if kind in AFTER_ALL else 0
            # Who began less than what is over said so long ago, or counts otherwise: nothing is known of it.
            known = {rank: one for rank, one in told.items() if one.begun >= over}
            least = min((one.begun for one in known.values()), default=0)
            outside = {rank for rank, one in known.items() if one.begun == least}
            inside = {
                rank
                for rank, one in known.items()
                if one.begun > max(least, one.ended) and now - one.told <= TOLD and now - one.since >= LONG_WAIT
            }
            if inside and len(outside) <= len(known) / 2:  # else it is those inside that do what nobody else does
                behind |= outside
                waiting |= inside
    return sorted(behind - waiting)


def _compared(job: Job, memory: Memory) -> Iterator[tuple[Sequence[str], Mapping[str, int]]]:
    """Give communicators that did the same work while the job ran, and how many operations some are behind since then.

    Of one shape are also some that do more by design, as those of the stage of a pipeline that has the loss: they were
    ahead before. Which do the same is seen from how far they were a while before the job stood still.
    """
    alike: dict[tuple[str, int, int], list[tuple[int, int, str]]] = {}
    stopped = memory.settled or 0.0
    for (name, kind), number in _numbers(job).items():
        communicator = job.communicators[name]
        before = memory.before.get((name, kind))
        if before is not None and stopped - communicator.heard <= SILENCE:  # others are of a run that is over
            key = (kind, communicator.ranks, nodes_of(job, communicator))
            alike.setdefault(key, []).append((before, number, name))
    for found in alike.values():
        found.sort()
        same: list[tuple[int, int, str]] = []
        for one in [*found, None]:
            if one is not None and (not same or one[0] <= same[0][0] * (1 + SAME_WORK) + 1):
                same.append(one)
                continue
            furthest = max(same, key=lambda other: other[1])
            yield (
                [name for _, _, name in same],
                {
                    name: furthest[1] - number
                    for before, number, name in same
                    if furthest[1] - number > 2 * max(furthest[0] - before, 0)
                },
            )
            same = [] if one is None else [one]


def _matched(job: Job, told: Evidence, now: float) -> float:
    """Give the share of a job's ranks that were seen in operations that could be compared.

    Of each communicator as many are wanted as should be heard of here.
    """
    wanted = seen = 0
    for name, communicator in job.communicators.items():
        if now - communicator.heard > SILENCE or not communicator.reached:
            continue
        members = sum(now - heard <= SILENCE for heard in communicator.members.values())
        if members < 2 and not communicator.expected:
            continue  # its other ranks are on other hosts, which nobody tells of here
        wanted += communicator.expected or members
        if name in told.ticks:
            seen += min(members, communicator.expected or members)
    return seen / wanted if wanted else 0.0


def _waited(job: Job, told: Evidence) -> float:
    """Give the seconds in a second that the mean rank waited, over the communicator where that is most.

    Where there are finer ones, that of all ranks is left out: in it those wait that are done with the pipeline first.
    """
    shares = [
        sum(told.ticks[name].waited.values()) / 1e6 / told.seconds / max(len(job.communicators[name].members), 1)
        for name in told.ticks.keys() - told.scheduled
    ]
    return min(max(shares, default=0.0), 1.0)


def _bandwidths(job: Job, memory: Memory, baseline: Baseline, now: float) -> dict[str, float]:
    """Give the share of what the network should give that each communicator of a job gets, of its slowest operations.

    One slow port slows all ranks of its ring alike, and other communicators of the job not at all.
    """
    speeds: dict[tuple[str, int, int, int], dict[str, float]] = {}
    for name, communicator in job.communicators.items():
        nodes = nodes_of(job, communicator)
        if nodes > 1:  # others are bound by what is inside a node
            for (kind, size), found in _best_of_ticks(communicator, now).items():
                speed = bus_bandwidth(kind, communicator.ranks, found)
                if speed is not None:
                    shape = (kind, size, communicator.ranks, nodes)
                    speeds.setdefault(shape, {})[name] = speed
    shares: dict[str, float] = {}
    for key, by_name in speeds.items():
        best = memory.history.setdefault(key, Best())
        best.ticks += 1
        best.value = max(best.value, sorted(by_name.values())[len(by_name) // 2])
        expected = baseline.measured.get(key[:2]) or baseline.theory
        if expected is None and best.ticks >= HISTORY_LEAST:
            expected = best.value
        if expected:
            for name, speed in by_name.items():
                shares[name] = min(shares.get(name, math.inf), speed / expected)
    return shares


def _best_of_ticks(communicator: Communicator, now: float) -> dict[tuple[str, int], float]:
    """Give by kind and size the middle one of the fastest operations of recent ticks, in bytes in a microsecond."""
    found: dict[tuple[str, int], list[float]] = {}
    for tick in communicator.ticks:
        if now - tick.time <= RECENT:
            for key, moved in tick.bus.items():
                if key[1] >= LEAST_BYTES and moved.best:
                    found.setdefault(key, []).append(moved.best)
    return {key: sorted(bests)[len(bests) // 2] for key, bests in found.items() if len(bests) >= LEAST_TICKS}
