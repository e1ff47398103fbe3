"""Stragglers: which rank the others wait for, and which ranks are late only because they waited themselves.

In a communicator a rank is a suspect if it came last more often than by chance, and cost enough time; if several are
equally late, each of them is last in some operations. With tensor, pipeline and data parallel groups in one job, the
group of a late rank is late in all its other groups: a rank that waits for a suspect about as long as it is late itself
is a victim, and so is one that is late in fewer groups than another, by less. The origins remain.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

from exporter.meaning.training.alignment import nodes_of, summed
from exporter.meaning.training.records import Job, Tick

WINDOWS = (8.0, 20.0, 60.0)
"""Seconds of evidence: short windows, to detect a new straggler soon, and a long one."""

MIN_LAST_SHARE = 0.55
"""Share of the decisive operations in which the same rank must come last."""

MAX_CHANCE = 1e-6
"""Maximum probability that this happens by chance: some thousands of ranks are tested each time."""

MIN_DECISIVE = 4
"""Minimum number of decisive operations: an evaluation or a checkpoint of one rank is one or two."""

MIN_LAST_TOGETHER = 8
"""Operations in which each of several ranks must come last for them to be suspects together, and …"""

MAX_TOGETHER_SHARE = 0.125
"""… share of a communicator's ranks, or of hosts, below which they are: stages of a pipeline are at least as many."""

MIN_LOSS = 0.04
"""Seconds late per second below which a rank is not reported."""

MIN_GROUP_RANKS = 3
"""Minimum number of equally late ranks of a group across hosts for the group itself to be slow."""

EQUALLY_LATE_SHARE = 0.4
"""Share of a rank's lateness that the median of the others must have for them to be equally late."""

HOSTS_SHARE = 0.5
"""Share of the lateness of all suspects that ranks of late hosts must have for the hosts to be reported."""

WAITED_SHARE = 0.5
"""Share of its lateness that a rank must have waited for another one to be its victim."""

VICTIM_SHARE = 0.7
"""Share of the strongest suspect's lateness below which others that are late with it count as its victims."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that the others wait for.

    Attributes:
        rank: Its name.
        loss: Seconds late per second, in the communicator with the highest value.
        strength: Sum of that over all communicators in which it is a suspect.
        last: Number of operations in which it came last, of `decisive` decisive ones.
        decisive: See last.
        inside: Whether it is late to ranks of its own host, without the network in between.
    """

    rank: str
    loss: float
    strength: float
    last: int = 0
    decisive: int = 0
    inside: bool = False


class _CommunicatorSuspect(NamedTuple):
    """A suspect of one communicator, and whether that is within one host."""

    rank: str
    communicator: str
    loss: float
    last: int
    decisive: int
    inside: bool


@dataclass(slots=True)
class Evidence:
    """Evidence of a job's communicators over one window.

    Attributes:
        seconds: Length of the window.
        ticks: Sum of the evidence of each communicator.
        scheduled: Communicators that show the pipeline schedule only, see `by_schedule`.
    """

    seconds: float
    ticks: dict[str, Tick] = field(default_factory=dict)
    scheduled: set[str] = field(default_factory=set)


def evidence(job: Job, now: float, window: float) -> Evidence:
    """Return the evidence of all communicators of a job over a window."""
    found = Evidence(max(min(window, now - job.since), 1.0))
    for name, communicator in job.communicators.items():
        if communicator.ticks:
            tick = summed(communicator.ticks, now - window)
            if tick.compared:
                found.ticks[name] = tick
    found.scheduled = by_schedule(job, found)
    return found


def suspects(job: Job, now: float, whole: Evidence) -> tuple[list[Suspect], list[str]]:
    """Return the ranks that a job waits for, the strongest first, and the hosts that are slow as a whole.

    Args:
        job: The job.
        now: Current time.
        whole: Evidence of the longest window.
    """
    named: tuple[list[Suspect], list[str]] = [], []
    for window in WINDOWS:
        if named[0] and window != WINDOWS[-1]:
            continue
        found = _named(job, whole if window == WINDOWS[-1] else evidence(job, now, window))
        # A short window detects a new straggler soon; only the longest shows reliably which others are equally late.
        if {one.rank for one in named[0]} < {one.rank for one in found[0]}:
            named = found
    return named


def _named(job: Job, observed: Evidence) -> tuple[list[Suspect], list[str]]:
    """Return ranks and hosts from the evidence of one window."""
    found = origins(job, observed)
    if any(one.inside for one in found):
        return [one for one in found if one.inside], []  # others are late because of these, in ways not observed
    hosts = late_hosts(job, observed)
    of_hosts = sum(one.strength for one in found if job.hosts.get(one.rank) in hosts)
    if hosts and of_hosts >= HOSTS_SHARE * sum(one.strength for one in found):
        return _of_hosts(job, hosts, observed), hosts
    return found, []


def _of_hosts(job: Job, hosts: Iterable[str], observed: Evidence) -> list[Suspect]:
    """Return all ranks of some hosts as suspects, each with its highest lateness."""
    found = []
    for rank, host in job.hosts.items():
        if host in hosts:
            loss = max((_share(tick.late.get(rank, 0.0), observed) for tick in observed.ticks.values()), default=0.0)
            found.append(Suspect(rank, loss, loss))
    return sorted(found, key=lambda one: (-one.strength, one.rank))


def origins(job: Job, observed: Evidence) -> list[Suspect]:
    """Return the suspects in which lateness originates, the strongest first."""
    communicators = job.communicators
    decisive = {name: tick for name, tick in observed.ticks.items() if name not in observed.scheduled}
    found = [one for name, tick in decisive.items() for one in _suspects_of(name, job, tick, observed)]
    by_rank: dict[str, list[_CommunicatorSuspect]] = {}
    by_communicator: dict[str, list[_CommunicatorSuspect]] = {}
    for one in found:
        by_rank.setdefault(one.rank, []).append(one)
        by_communicator.setdefault(one.communicator, []).append(one)
    places: dict[str, list[str]] = {}
    for name in observed.ticks:
        for rank in communicators[name].members:
            if rank in by_rank:
                places.setdefault(rank, []).append(name)
    groups = _slow_groups(job, observed) if any(one.inside for one in found) else {}
    victims = {
        rank
        for rank, suspicions in by_rank.items()
        if _is_victim(
            rank, suspicions, [one for name in places[rank] for one in by_communicator.get(name, ())], observed
        )
        or _is_of_a_slow_group(rank, suspicions, [groups[name] for name in places[rank] if name in groups])
    }
    left = [_suspect(rank, suspicions) for rank, suspicions in by_rank.items() if rank not in victims]
    left.sort(key=lambda one: (-one.strength, one.rank))
    return [one for one in left if one.strength >= VICTIM_SHARE * left[0].strength]


def finer(job: Job, observed: Evidence) -> set[str]:
    """Return the communicators within one host, and those with one rank of each host or of each of the former.

    In a communicator of all ranks, those that finish the pipeline last come last at each step, by the schedule: where
    there are finer ones, it shows nothing about ranks.
    """
    communicators = job.communicators
    inside = {name for name in observed.ticks if nodes_of(job, communicators[name]) == 1}
    of_rank: dict[str, list[str]] = {}
    for name in inside:
        for rank in communicators[name].members:
            of_rank.setdefault(rank, []).append(name)
    across = set()
    for name in observed.ticks.keys() - inside:
        members = communicators[name].members
        hosts = {job.hosts.get(rank, "") for rank in members}
        groups = Counter(group for rank in members for group in of_rank.get(rank, ()))
        if len(hosts) == len(members) or (groups and max(groups.values()) == 1):
            across.add(name)
    return inside | across


def by_schedule(job: Job, observed: Evidence) -> set[str]:
    """Return the communicators that show the schedule only: all their ranks do as much, or more, in finer ones."""
    fine = finer(job, observed)
    done: Counter[str] = Counter()
    for name in fine:
        for rank in job.communicators[name].members:
            done[rank] += observed.ticks[name].compared
    return {
        name
        for name, tick in observed.ticks.items()
        if name not in fine and all(done[rank] >= tick.compared for rank in job.communicators[name].members)
    }


def _slow_groups(job: Job, observed: Evidence) -> dict[str, dict[str, float]]:
    """Return the groups across hosts, with the lateness of each of their ranks within its own host."""
    late: dict[str, float] = {}
    groups = []
    for name, tick in observed.ticks.items():
        nodes = nodes_of(job, job.communicators[name])
        if nodes == 1:
            for member, microseconds in tick.late.items():
                late[member] = max(late.get(member, 0.0), _share(microseconds, observed))
        elif nodes > 1 and len(job.communicators[name].members) >= MIN_GROUP_RANKS:
            groups.append(name)
    return {name: {rank: late.get(rank, 0.0) for rank in job.communicators[name].members} for name in groups}


def _is_of_a_slow_group(
    rank: str, suspicions: Iterable[_CommunicatorSuspect], groups: Iterable[Mapping[str, float]]
) -> bool:
    """Return whether the ranks of one of its groups across hosts are equally late, each within its own host.

    Then they all leave that group late: its transfers take longer, and none of the ranks is slow.
    """
    within = [one for one in suspicions if one.inside]
    if not within:
        return False
    loss = max(one.loss for one in within)
    return any(
        _median(late for member, late in group.items() if member != rank) >= EQUALLY_LATE_SHARE * loss
        for group in groups
    )


@dataclass(slots=True)
class _Host:
    """Evidence about one host from the communicators that span several.

    Attributes:
        last: Operations in which one of its ranks came last.
        decisive: Decisive operations, by communicator.
        expected: Operations in which one of its ranks would come last by chance.
        late: Seconds late per second, by rank.
    """

    last: int = 0
    decisive: dict[str, int] = field(default_factory=dict)
    expected: float = 0.0
    late: dict[str, float] = field(default_factory=dict)

    @property
    def tries(self) -> int:
        """Number of decisive operations."""
        return sum(self.decisive.values())

    @property
    def loss(self) -> float:
        """Seconds late per second of its mean rank."""
        return sum(self.late.values()) / len(self.late)

    def is_late(self) -> bool:
        """Return whether the host is late as a whole, beyond chance; one late rank does not make a late host."""
        if len(self.late) < 2 or self.loss < MIN_LOSS or self.tries < MIN_DECISIVE:
            return False
        slowest = max(self.late, key=self.late.__getitem__)
        others = _median(one for rank, one in self.late.items() if rank != slowest)
        by_luck = by_chance(self.last, self.tries, self.expected / self.tries)
        return others >= EQUALLY_LATE_SHARE * self.late[slowest] and by_luck <= MAX_CHANCE


def late_hosts(job: Job, observed: Evidence) -> list[str]:
    """Return the hosts whose ranks come last, each in its own communicators, more often than by chance.

    A host that is slow as a whole has no rank that is late within it, and each of its ranks may too seldom be the last
    of its communicator to be a suspect alone. Several equally late hosts are each last in some operations. The hosts of
    the same pipeline are equally late if messages between them are not reported: then all of them are returned.
    """
    hosts = _hosts(job, observed)
    late = {name: host for name, host in hosts.items() if host.is_late()}
    most = max((host.loss for host in late.values()), default=0.0)
    alike = {name: host for name, host in late.items() if host.loss >= VICTIM_SHARE * most}
    together: dict[str, int] = {}
    for host in alike.values():
        together |= host.decisive
    last = sum(host.last for host in alike.values())
    if len(alike) < max(MAX_TOGETHER_SHARE * len(hosts), 2) and last >= MIN_LAST_SHARE * sum(together.values()):
        return sorted(alike)
    alone = {name: host for name, host in late.items() if host.last >= MIN_LAST_SHARE * host.tries}
    most = max((host.loss for host in alone.values()), default=0.0)
    return sorted(name for name, host in alone.items() if host.loss >= VICTIM_SHARE * most)


def _hosts(job: Job, observed: Evidence) -> dict[str, _Host]:
    """Return the evidence about each host from communicators that span several."""
    found: dict[str, _Host] = {}
    for name, tick in observed.ticks.items():
        members = job.communicators[name].members
        places = {rank: job.hosts.get(rank, "") for rank in members}
        ranks_of = Counter(places.values())
        if tick.decisive == 0 or len(ranks_of) < 2 or name in observed.scheduled:
            continue
        for place, ranks in ranks_of.items():
            host = found.setdefault(place, _Host())
            host.decisive[name] = tick.decisive
            host.expected += tick.decisive * ranks / len(members)
        for rank, place in places.items():
            host = found[place]
            host.last += tick.last.get(rank, 0)
            host.late[rank] = _share(tick.late.get(rank, 0.0), observed)
    return found


def _suspects_of(name: str, job: Job, tick: Tick, observed: Evidence) -> list[_CommunicatorSuspect]:
    """Return the rank of a communicator that comes last, or several that are equally late."""
    if tick.decisive < MIN_DECISIVE:
        return []
    communicator = job.communicators[name]
    members = max(len(communicator.members), 2)
    inside = nodes_of(job, communicator) == 1
    often = [
        _CommunicatorSuspect(rank, name, _share(tick.late.get(rank, 0.0), observed), last, tick.decisive, inside)
        for rank, last in tick.last.items()
    ]
    often = [
        one for one in often if one.loss >= MIN_LOSS and by_chance(one.last, one.decisive, 1 / members) <= MAX_CHANCE
    ]
    most = max((one.loss for one in often), default=0.0)
    alike = [one for one in often if one.last >= MIN_LAST_TOGETHER and one.loss >= VICTIM_SHARE * most]
    if (
        len(alike) < max(MAX_TOGETHER_SHARE * members, 2)
        and sum(one.last for one in alike) >= MIN_LAST_SHARE * tick.decisive
    ):
        return alike
    return [one for one in often if one.last >= MIN_LAST_SHARE * tick.decisive]


def _share(microseconds: float, observed: Evidence) -> float:
    """Return seconds per second of the window; at most 1, as an operation may have begun before it."""
    return min(microseconds / 1e6 / observed.seconds, 1.0)


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def by_chance(hits: int, tries: int, share: float) -> float:
    """Return an upper bound (Chernoff) of the probability of so many hits, each with the given probability."""
    rate = hits / tries
    if rate <= share:
        return 1.0
    distance = rate * log(rate / share)
    if rate < 1:
        distance += (1 - rate) * log((1 - rate) / (1 - share))
    return float(2.718281828459045 ** (-tries * distance))


def _is_victim(
    rank: str, suspicions: Iterable[_CommunicatorSuspect], others: Iterable[_CommunicatorSuspect], observed: Evidence
) -> bool:
    """Return whether a rank waits for a suspect of its communicators about as long as it is late itself."""
    loss = max(one.loss for one in suspicions)
    return any(
        other.rank != rank
        and _share(observed.ticks[other.communicator].waited.get(rank, 0.0), observed) >= WAITED_SHARE * loss
        for other in others
    )


def _suspect(rank: str, suspicions: Iterable[_CommunicatorSuspect]) -> Suspect:
    ordered = sorted(suspicions, key=lambda one: -one.loss)
    most = ordered[0]
    inside = any(one.inside for one in ordered)
    return Suspect(rank, most.loss, sum(one.loss for one in ordered), most.last, most.decisive, inside)
