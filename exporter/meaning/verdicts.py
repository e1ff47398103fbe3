"""Verdicts: what holds up a job, or that nothing does, or that nobody can know.

They are formed in this order, and the first that fits is given: not enough data; hang (operations of some ranks are
missing and none ends any more); straggler (the others wait for the same ranks); network-bound (even the last to come
takes longer than the network should); imbalanced work (the rank that comes late changes); fine. Another verdict takes
the place of the one that stands only when it was formed several times in a row, so that a job at the edge of two does
not flap.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.meaning.blame import Evidence, Suspect, evidence, finer, suspects
from exporter.meaning.collectives import SILENCE, Communicator, Job

FACTORS = {"AllReduce": 2.0, "AllGather": 1.0, "ReduceScatter": 1.0}
"""Factor k of nccl-tests by kind: bus bandwidth = size / time * k * (n - 1) / n."""

LEAST_BYTES = 1 << 20
"""Size of an operation below which its bandwidth is latency."""

MATCHED = 0.9
"""Share of a job's ranks that must be seen in operations that could be compared."""

LEAST_OPERATIONS = 8
"""Operations that must have been compared in the long window."""

LONG = 60.0
"""Seconds of evidence that all but stragglers are judged by."""

FROZEN = 30.0
"""Seconds without any operation of a job after which it hangs, and …"""

FROZEN_GAPS = 10.0
"""… times the longest pause that it made while it ran: checkpoints and evaluations are no hangs."""

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


class Verdict(enum.Enum):
    """What holds up a job, in the order in which it is asked."""

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
        hosts: Those of which most ranks are.
        compared: Operations that were compared in the window.
        matched: Share of the job's ranks that were seen in them.
        loss: Seconds lost in a second to the ranks that are to blame, or waited by the mean rank.
        bandwidth: Share of what the network should give, to the slowest communicator; None where that is not known.
        communicators: The same of each communicator between hosts of which it is known.
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
        history: By class, kind and size: bus bandwidths of ticks, as a decaying best.
    """

    given: Judgement | None = None
    since: float = 0.0
    formed: tuple[Verdict, frozenset[str], int] = (Verdict.UNKNOWN, frozenset(), 0)
    longest_pause: float = 0.0
    settled: float | None = None
    was_enough: bool = False
    history: dict[tuple[str, int], "Best"] = field(default_factory=dict)


@dataclass(slots=True)
class Best:
    """The best bandwidth that was seen, and in how many ticks there was any."""

    value: float = 0.0
    ticks: int = 0


def spans_nodes(communicator: Communicator) -> bool:
    """Tell whether a communicator uses the network: others are bound by what is inside a node."""
    return communicator.nodes > 1


def bus_bandwidth(kind: str, ranks: int, bytes_per_microsecond: float) -> float | None:
    """Give bytes per second on the bus; None for kinds without a factor."""
    factor = FACTORS.get(kind)
    return None if factor is None else bytes_per_microsecond * 1e6 * factor * (ranks - 1) / ranks


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
    found, hosts = suspects(job, now)
    if found:
        return Judgement(Verdict.STRAGGLER, found, hosts, compared, matched, found[0].loss, share)
    waited = _waited(job, told)
    if share is not None and share < SLOW:
        return Judgement(Verdict.NETWORK, (), (), compared, matched, waited, share, shares)
    verdict = Verdict.IMBALANCED if waited >= IMBALANCED else Verdict.FINE
    return Judgement(verdict, (), (), compared, matched, waited, share)


def _hanging(job: Job, memory: Memory, now: float) -> list[str] | None:
    """Name the ranks with which a job that ran and stands still went no further; None where it does not stand still.

    What does not end is not recorded, so that the ranks of a communicator that hangs have told of as much; but of the
    communicators that do the same work, that with the least to tell is where it stands. A job that ended has told of as
    much everywhere: it does not hang.
    """
    if memory.settled is None or now - memory.settled < max(FROZEN, FROZEN_GAPS * memory.longest_pause):
        return None
    alike: dict[tuple[str, int, int], list[tuple[int, Communicator]]] = {}
    for communicator in job.communicators.values():
        reached: dict[str, int] = {}
        for (kind, rank), number in communicator.reached.items():
            if rank in communicator.members:
                reached[kind] = max(number, reached.get(kind, number))
        for kind, number in reached.items():
            key = (kind, communicator.ranks, communicator.nodes)
            alike.setdefault(key, []).append((number, communicator))
    behind: list[str] | None = None
    fewest = 1.0
    for found in alike.values():
        numbers = [number for number, _ in found]
        if min(numbers) == max(numbers):
            continue
        behind = [] if behind is None else behind
        last = [communicator for number, communicator in found if number == min(numbers)]
        share = len(last) / len(found)
        if share <= FEW and share < fewest:
            fewest = share
            behind = sorted({rank for communicator in last for rank in communicator.members})
    return behind


def _matched(job: Job, told: Evidence, now: float) -> float:
    """Give the share of a job's ranks that were seen in operations that could be compared.

    Of each communicator as many are wanted as should be heard of here.
    """
    wanted = seen = 0
    for name, communicator in job.communicators.items():
        if now - communicator.heard > SILENCE:
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
    names = finer(job, told) or told.ticks.keys()
    shares = [
        sum(told.ticks[name].waited.values()) / 1e6 / told.seconds / max(len(job.communicators[name].members), 1)
        for name in names
    ]
    return max(shares, default=0.0)


def _bandwidths(job: Job, memory: Memory, baseline: Baseline, now: float) -> dict[str, float]:
    """Give the share of what the network should give that each communicator of a job gets, of its slowest operations.

    One slow port slows all ranks of its ring alike, and other communicators of the job not at all.
    """
    speeds: dict[tuple[str, int], dict[str, float]] = {}
    for name, communicator in job.communicators.items():
        if communicator.nodes > 1:  # others are bound by what is inside a node
            for key, found in _best_of_ticks(communicator, now).items():
                speed = bus_bandwidth(key[0], communicator.ranks, found)
                if speed is not None:
                    speeds.setdefault(key, {})[name] = speed
    shares: dict[str, float] = {}
    for key, by_name in speeds.items():
        best = memory.history.setdefault(key, Best())
        best.ticks += 1
        best.value = max(best.value, sorted(by_name.values())[len(by_name) // 2])
        expected = baseline.measured.get(key) or baseline.theory
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
