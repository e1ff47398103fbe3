"""Blame: which rank do the others wait for, and which ranks are late only because they waited themselves.

In a communicator a rank is blamed when it came last so often that chance does not explain it, and the time it cost is
worth a word. With tensor, pipeline and data groups in one job, the group of a late rank comes late to all its other
groups: a rank that waits for a blamed one about as long as it is late itself is a victim, and so is one that is late in
fewer groups than another, by less. What is left is where it begins.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

from exporter.meaning.collectives import Job, Tick, nodes_of, summed

WINDOWS = (8.0, 20.0, 60.0)
"""Seconds of evidence that are judged: short ones, so that what begins is seen soon, and a long one."""

SHARE = 0.55
"""Share of the telling operations in which the same rank must come last."""

CHANCE = 1e-6
"""How likely the same may be by chance, at most: some thousands of ranks are judged each time."""

LEAST_TELLING = 4
"""Telling operations, at least: an evaluation or a checkpoint of one rank is one or two."""

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
    """

    seconds: float
    ticks: dict[str, Tick] = field(default_factory=dict)


def evidence(job: Job, now: float, window: float) -> Evidence:
    """Add up what the communicators of a job say."""
    found = Evidence(max(min(window, now - job.since), 1.0))
    for name, communicator in job.communicators.items():
        if communicator.ticks:
            tick = summed(communicator.ticks, now - window)
            if tick.compared:
                found.ticks[name] = tick
    return found


def suspects(job: Job, now: float, whole: Evidence) -> tuple[list[Suspect], list[str]]:
    """Name the ranks that a job waits for, the strongest first, and the hosts that are slow as a whole.

    Args:
        job: Whose.
        now: When.
        whole: The evidence of the longest window.
    """
    for window in WINDOWS:
        told = whole if window == WINDOWS[-1] else evidence(job, now, window)
        found = origins(job, told)
        if any(one.inside for one in found):
            return [one for one in found if one.inside], []  # others are late because of these, by ways not seen
        hosts = late_hosts(job, told)
        of_hosts = sum(one.strength for one in found if job.hosts.get(one.rank) in hosts)
        if hosts and of_hosts >= OF_HOSTS * sum(one.strength for one in found):
            return _of_hosts(job, hosts, told), hosts
        if found:
            return found, []
    return [], []


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
    names = finer(job, told)
    found = [
        one
        for name, tick in told.ticks.items()
        for one in _blamed(name, job, tick, told)
        if name in names or not any(one.rank in communicators[other].members for other in names)
    ]
    by_rank: dict[str, list[_Found]] = {}
    by_communicator: dict[str, _Found] = {}
    for one in found:
        by_rank.setdefault(one.rank, []).append(one)
        by_communicator[one.communicator] = one
    places: dict[str, list[str]] = {}
    for name in told.ticks:
        for rank in communicators[name].members:
            if rank in by_rank:
                places.setdefault(rank, []).append(name)
    groups = _slow_groups(job, told) if any(one.inside for one in found) else {}
    victims = {
        rank
        for rank, blames in by_rank.items()
        if _is_victim(rank, blames, [by_communicator[name] for name in places[rank] if name in by_communicator], told)
        or _is_of_a_slow_group(rank, blames, [groups[name] for name in places[rank] if name in groups])
    }
    left = [_suspect(rank, blames) for rank, blames in by_rank.items() if rank not in victims]
    left.sort(key=lambda one: (-one.strength, one.rank))
    return [one for one in left if one.strength >= WEAKER * left[0].strength]


def finer(job: Job, told: Evidence) -> set[str]:
    """Give the communicators of one host, and those with one rank of each host.

    In one of all ranks those that drain the pipeline last come last at each step, by the schedule: where there are
    finer ones, it tells nothing of ranks.
    """
    found = set()
    for name in told.ticks:
        communicator = job.communicators[name]
        hosts = {job.hosts.get(rank, "") for rank in communicator.members}
        if nodes_of(job, communicator) == 1 or len(hosts) == len(communicator.members):
            found.add(name)
    return found


def by_schedule(job: Job, told: Evidence) -> set[str]:
    """Give the communicators whose ranks are all in finer ones, so that they tell of the schedule alone."""
    fine = finer(job, told)
    there = {rank for name in fine for rank in job.communicators[name].members}
    return {name for name in told.ticks if name not in fine and there.issuperset(job.communicators[name].members)}


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


def late_hosts(job: Job, told: Evidence) -> list[str]:
    """Name the hosts whose ranks come last, each in its own communicators, more often than chance explains.

    A host that is slow as a whole has no rank that is late inside of it, and each of its ranks may be too seldom the
    last of its communicator to be blamed alone. The hosts of its pipeline come as late, where no messages between them
    are told of: then all of them are named.
    """
    last: Counter[str] = Counter()
    telling: Counter[str] = Counter()
    expected: dict[str, float] = {}
    late: dict[str, dict[str, float]] = {}
    idle = by_schedule(job, told)
    for name, tick in told.ticks.items():
        members = job.communicators[name].members
        places = {rank: job.hosts.get(rank, "") for rank in members}
        ranks_of = Counter(places.values())
        if tick.telling == 0 or len(ranks_of) < 2 or name in idle:
            continue
        for host, ranks in ranks_of.items():
            telling[host] += tick.telling
            expected[host] = expected.get(host, 0.0) + tick.telling * ranks / len(members)
        for rank, host in places.items():
            last[host] += tick.last.get(rank, 0)
            late.setdefault(host, {})[rank] = _share(tick.late.get(rank, 0.0), told)
    found = {}
    for host, of_ranks in late.items():
        loss = sum(of_ranks.values()) / len(of_ranks)
        if len(of_ranks) < 2 or loss < LEAST_LOSS or telling[host] < LEAST_TELLING:
            continue
        slowest = max(of_ranks, key=of_ranks.__getitem__)
        if _middle(one for rank, one in of_ranks.items() if rank != slowest) < ALIKE * of_ranks[slowest]:
            continue  # one of its ranks is late, not the host
        hits, tries = last[host], telling[host]
        if hits >= SHARE * tries and by_chance(hits, tries, expected[host] / tries) <= CHANCE:
            found[host] = loss
    most = max(found.values(), default=0.0)
    return sorted(host for host, loss in found.items() if loss >= WEAKER * most)


def _blamed(name: str, job: Job, tick: Tick, told: Evidence) -> Iterable[_Found]:
    """Blame at most one rank of a communicator."""
    if tick.telling < LEAST_TELLING:
        return
    communicator = job.communicators[name]
    rank = max(tick.last, key=tick.last.__getitem__)
    last = tick.last[rank]
    loss = _share(tick.late.get(rank, 0.0), told)
    members = max(len(communicator.members), 2)
    if last >= SHARE * tick.telling and loss >= LEAST_LOSS and by_chance(last, tick.telling, 1 / members) <= CHANCE:
        yield _Found(rank, name, loss, last, tick.telling, inside=nodes_of(job, communicator) == 1)


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
