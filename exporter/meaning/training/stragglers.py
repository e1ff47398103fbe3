"""Blame: which rank do the others wait for, and which ranks are late only because they waited themselves.

In a communicator a rank is blamed when it came last so often that chance does not explain it, and the time it cost is
worth a word; where several are late alike, each is last in its turn. With tensor, pipeline and data groups in one job,
the group of a late rank comes late to all its other groups: a rank that waits for a blamed one about as long as it is
late itself is a victim, and so is one that is late in fewer groups than another, by less. What is left is where it
begins.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

from exporter.meaning.training.alignment import (
    Job,
    Tick,
    nodes_of,
    summed,
)

WINDOWS = (8.0, 20.0, 60.0)
"""Seconds of evidence that are judged: short ones, so that what begins is seen soon, and a long one."""

SHARE = 0.55
"""Share of the telling operations in which the same rank must come last."""

CHANCE = 1e-6
"""How likely the same may be by chance, at most: some thousands of ranks are judged each time."""

LEAST_TELLING = 4
"""Telling operations, at least: an evaluation or a checkpoint of one rank is one or two."""

LEAST_ALIKE = 8
"""Operations in which each of several ranks must come last for them to be blamed together, and …"""

FEW = 0.125
"""… share of a communicator's ranks, or of hosts, below which they are: stages of a pipeline are no less."""

LEAST_LOSS = 0.04
"""Seconds late in a second that are worth a word."""

LEAST_GROUP = 3
"""Ranks of a group over the network that are late alike, at least, for the group to be what is slow."""

ALIKE = 0.4
"""Share of a rank's lateness that the middle one of the others has where they are late alike."""

OF_HOSTS = 0.5
"""Share of what ranks are blamed for that must be of hosts' ranks for the hosts to be blamed."""

EXPLAINED = 0.5
"""Share of its lateness that a rank must have waited for another one to be its victim."""

WEAKER = 0.7
"""Share of the strongest rank's lateness below which others that are late with it are taken for its victims."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that is blamed.

    Attributes:
        rank: Which.
        loss: Seconds late in a second, in the communicator where that is most.
        strength: The same, of all communicators in which it is blamed.
        last: In how many operations it came last, of `telling` that told of any.
        telling: See last.
        inside: Whether it is blamed by ranks of its own host, where nothing of the network comes between.
    """

    rank: str
    loss: float
    strength: float
    last: int = 0
    telling: int = 0
    inside: bool = False


class _Found(NamedTuple):
    """A rank that is blamed in one communicator, and whether that is within one host."""

    rank: str
    communicator: str
    loss: float
    last: int
    telling: int
    inside: bool


@dataclass(slots=True)
class Evidence:
    """What a job's communicators say over one window.

    Attributes:
        seconds: Of the window.
        ticks: The evidence of each communicator, added up.
        scheduled: Communicators that tell of the schedule alone, see `by_schedule`.
    """

    seconds: float
    ticks: dict[str, Tick] = field(default_factory=dict)
    scheduled: set[str] = field(default_factory=set)


def evidence(job: Job, now: float, window: float) -> Evidence:
    """Add up what the communicators of a job say."""
    found = Evidence(max(min(window, now - job.since), 1.0))
    for name, communicator in job.communicators.items():
        if communicator.ticks:
            tick = summed(communicator.ticks, now - window)
            if tick.compared:
                found.ticks[name] = tick
    found.scheduled = by_schedule(job, found)
    return found


def suspects(job: Job, now: float, whole: Evidence) -> tuple[list[Suspect], list[str]]:
    """Name the ranks that a job waits for, the strongest first, and the hosts that are slow as a whole.

    Args:
        job: Whose.
        now: When.
        whole: The evidence of the longest window.
    """
    named: tuple[list[Suspect], list[str]] = [], []
    for window in WINDOWS:
        if named[0] and window != WINDOWS[-1]:
            continue
        found = _named(job, whole if window == WINDOWS[-1] else evidence(job, now, window))
        # What begins is seen soon in a short window; which others are late alike, for sure in the longest.
        if {one.rank for one in named[0]} < {one.rank for one in found[0]}:
            named = found
    return named


def _named(job: Job, told: Evidence) -> tuple[list[Suspect], list[str]]:
    """Name ranks and hosts by the evidence of one window."""
    found = origins(job, told)
    if any(one.inside for one in found):
        return [one for one in found if one.inside], []  # others are late because of these, by ways not seen
    hosts = late_hosts(job, told)
    of_hosts = sum(one.strength for one in found if job.hosts.get(one.rank) in hosts)
    if hosts and of_hosts >= OF_HOSTS * sum(one.strength for one in found):
        return _of_hosts(job, hosts, told), hosts
    return found, []


def _of_hosts(job: Job, hosts: Iterable[str], told: Evidence) -> list[Suspect]:
    """Blame all ranks of some hosts, each for what it is late where that is most."""
    found = []
    for rank, host in job.hosts.items():
        if host in hosts:
            loss = max((_share(tick.late.get(rank, 0.0), told) for tick in told.ticks.values()), default=0.0)
            found.append(Suspect(rank, loss, loss))
    return sorted(found, key=lambda one: (-one.strength, one.rank))


def origins(job: Job, told: Evidence) -> list[Suspect]:
    """Name the ranks where lateness begins, the strongest first."""
    communicators = job.communicators
    telling = {name: tick for name, tick in told.ticks.items() if name not in told.scheduled}
    found = [one for name, tick in telling.items() for one in _blamed(name, job, tick, told)]
    by_rank: dict[str, list[_Found]] = {}
    by_communicator: dict[str, list[_Found]] = {}
    for one in found:
        by_rank.setdefault(one.rank, []).append(one)
        by_communicator.setdefault(one.communicator, []).append(one)
    places: dict[str, list[str]] = {}
    for name in told.ticks:
        for rank in communicators[name].members:
            if rank in by_rank:
                places.setdefault(rank, []).append(name)
    groups = _slow_groups(job, told) if any(one.inside for one in found) else {}
    victims = {
        rank
        for rank, blames in by_rank.items()
        if _is_victim(rank, blames, [one for name in places[rank] for one in by_communicator.get(name, ())], told)
        or _is_of_a_slow_group(rank, blames, [groups[name] for name in places[rank] if name in groups])
    }
    left = [_suspect(rank, blames) for rank, blames in by_rank.items() if rank not in victims]
    left.sort(key=lambda one: (-one.strength, one.rank))
    return [one for one in left if one.strength >= WEAKER * left[0].strength]


def finer(job: Job, told: Evidence) -> set[str]:
    """Give the communicators of one host, those with one rank of each host, and those with one of each of the former.

    In one of all ranks those that drain the pipeline last come last at each step, by the schedule: where there are
    finer ones, it tells nothing of ranks.
    """
    communicators = job.communicators
    inside = {name for name in told.ticks if nodes_of(job, communicators[name]) == 1}
    of_rank: dict[str, list[str]] = {}
    for name in inside:
        for rank in communicators[name].members:
            of_rank.setdefault(rank, []).append(name)
    across = set()
    for name in told.ticks.keys() - inside:
        members = communicators[name].members
        hosts = {job.hosts.get(rank, "") for rank in members}
        groups = Counter(group for rank in members for group in of_rank.get(rank, ()))
        if len(hosts) == len(members) or (groups and max(groups.values()) == 1):
            across.add(name)
    return inside | across


def by_schedule(job: Job, told: Evidence) -> set[str]:
    """Give the communicators that tell of the schedule alone: all their ranks do as much, or more, in finer ones."""
    fine = finer(job, told)
    done: Counter[str] = Counter()
    for name in fine:
        for rank in job.communicators[name].members:
            done[rank] += told.ticks[name].compared
    return {
        name
        for name, tick in told.ticks.items()
        if name not in fine and all(done[rank] >= tick.compared for rank in job.communicators[name].members)
    }


def _slow_groups(job: Job, told: Evidence) -> dict[str, dict[str, float]]:
    """Give the groups over the network, with what each of their ranks is late within its own host."""
    late: dict[str, float] = {}
    groups = []
    for name, tick in told.ticks.items():
        nodes = nodes_of(job, job.communicators[name])
        if nodes == 1:
            for member, microseconds in tick.late.items():
                late[member] = max(late.get(member, 0.0), _share(microseconds, told))
        elif nodes > 1 and len(job.communicators[name].members) >= LEAST_GROUP:
            groups.append(name)
    return {name: {rank: late.get(rank, 0.0) for rank in job.communicators[name].members} for name in groups}


def _is_of_a_slow_group(rank: str, blames: Iterable[_Found], groups: Iterable[Mapping[str, float]]) -> bool:
    """Tell whether the ranks of one of its groups over the network are late alike, each within its own host.

    Then they all come late out of that group: its transfers take longer, and none of them is slow.
    """
    within = [one for one in blames if one.inside]
    if not within:
        return False
    loss = max(one.loss for one in within)
    return any(_middle(late for member, late in group.items() if member != rank) >= ALIKE * loss for group in groups)


@dataclass(slots=True)
class _Host:
    """What the communicators that span several hosts say of one of them.

    Attributes:
        last: Operations in which one of its ranks came last.
        telling: Operations that tell of any, by communicator.
        expected: Those in which chance would have one of its ranks come last.
        late: Seconds late in a second, by rank.
    """

    last: int = 0
    telling: dict[str, int] = field(default_factory=dict)
    expected: float = 0.0
    late: dict[str, float] = field(default_factory=dict)

    @property
    def tries(self) -> int:
        """Operations that tell of any."""
        return sum(self.telling.values())

    @property
    def loss(self) -> float:
        """Seconds late in a second, of its mean rank."""
        return sum(self.late.values()) / len(self.late)

    def is_late(self) -> bool:
        """Tell whether it is late as a whole, beyond chance; one late rank does not make a late host."""
        if len(self.late) < 2 or self.loss < LEAST_LOSS or self.tries < LEAST_TELLING:
            return False
        slowest = max(self.late, key=self.late.__getitem__)
        others = _middle(one for rank, one in self.late.items() if rank != slowest)
        by_luck = by_chance(self.last, self.tries, self.expected / self.tries)
        return others >= ALIKE * self.late[slowest] and by_luck <= CHANCE


def late_hosts(job: Job, told: Evidence) -> list[str]:
    """Name the hosts whose ranks come last, each in its own communicators, more often than chance explains.

    A host that is slow as a whole has no rank that is late inside of it, and each of its ranks may be too seldom the
    last of its communicator to be blamed alone. Several that are late alike are each last in their turn. The hosts of
    its pipeline come as late, where no messages between them are told of: then all of them are named.
    """
    hosts = _hosts(job, told)
    late = {name: host for name, host in hosts.items() if host.is_late()}
    most = max((host.loss for host in late.values()), default=0.0)
    alike = {name: host for name, host in late.items() if host.loss >= WEAKER * most}
    together: dict[str, int] = {}
    for host in alike.values():
        together |= host.telling
    last = sum(host.last for host in alike.values())
    if len(alike) < max(FEW * len(hosts), 2) and last >= SHARE * sum(together.values()):
        return sorted(alike)
    alone = {name: host for name, host in late.items() if host.last >= SHARE * host.tries}
    most = max((host.loss for host in alone.values()), default=0.0)
    return sorted(name for name, host in alone.items() if host.loss >= WEAKER * most)


def _hosts(job: Job, told: Evidence) -> dict[str, _Host]:
    """Gather what communicators that span several hosts say of each."""
    found: dict[str, _Host] = {}
    for name, tick in told.ticks.items():
        members = job.communicators[name].members
        places = {rank: job.hosts.get(rank, "") for rank in members}
        ranks_of = Counter(places.values())
        if tick.telling == 0 or len(ranks_of) < 2 or name in told.scheduled:
            continue
        for place, ranks in ranks_of.items():
            host = found.setdefault(place, _Host())
            host.telling[name] = tick.telling
            host.expected += tick.telling * ranks / len(members)
        for rank, place in places.items():
            host = found[place]
            host.last += tick.last.get(rank, 0)
            host.late[rank] = _share(tick.late.get(rank, 0.0), told)
    return found


def _blamed(name: str, job: Job, tick: Tick, told: Evidence) -> list[_Found]:
    """Blame the rank of a communicator that comes last, or several that do so in turns and are late alike."""
    if tick.telling < LEAST_TELLING:
        return []
    communicator = job.communicators[name]
    members = max(len(communicator.members), 2)
    inside = nodes_of(job, communicator) == 1
    often = [
        _Found(rank, name, _share(tick.late.get(rank, 0.0), told), last, tick.telling, inside)
        for rank, last in tick.last.items()
    ]
    often = [one for one in often if one.loss >= LEAST_LOSS and by_chance(one.last, one.telling, 1 / members) <= CHANCE]
    most = max((one.loss for one in often), default=0.0)
    alike = [one for one in often if one.last >= LEAST_ALIKE and one.loss >= WEAKER * most]
    if len(alike) < max(FEW * members, 2) and sum(one.last for one in alike) >= SHARE * tick.telling:
        return alike
    return [one for one in often if one.last >= SHARE * tick.telling]


def _share(microseconds: float, told: Evidence) -> float:
    """Give seconds in a second of the window; an operation may have begun before it."""
    return min(microseconds / 1e6 / told.seconds, 1.0)


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def by_chance(hits: int, tries: int, share: float) -> float:
    """Bound the chance of so many hits (Chernoff), where each try hits with a given chance."""
    rate = hits / tries
    if rate <= share:
        return 1.0
    distance = rate * log(rate / share)
    if rate < 1:
        distance += (1 - rate) * log((1 - rate) / (1 - share))
    return float(2.718281828459045 ** (-tries * distance))


def _is_victim(rank: str, blames: Iterable[_Found], others: Iterable[_Found], told: Evidence) -> bool:
    """Tell whether a rank waits for one that is blamed in its communicators about as long as it is late itself."""
    loss = max(one.loss for one in blames)
    return any(
        other.rank != rank and _share(told.ticks[other.communicator].waited.get(rank, 0.0), told) >= EXPLAINED * loss
        for other in others
    )


def _suspect(rank: str, blames: Iterable[_Found]) -> Suspect:
    ordered = sorted(blames, key=lambda one: -one.loss)
    most = ordered[0]
    inside = any(one.inside for one in ordered)
    return Suspect(rank, most.loss, sum(one.loss for one in ordered), most.last, most.telling, inside)
