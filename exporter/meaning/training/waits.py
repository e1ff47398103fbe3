"""Waits: in which collectives ranks wait and for whom, by the numbers of collectives that ranks began and ended.

These numbers only grow, so that a lost report delays what the next one shows, and is no evidence. What is not known is
left out: a rank that began fewer than have ended elsewhere reported that long ago, and one from whose host nothing
arrives may have begun more.

A rank at fault moves nowhere: it begins and ends nothing in any communicator. Where a member of a communicator moves,
as one that evaluates or that trains another part of the job, the others wait for its work, and nothing hangs.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from exporter.core.collectives import AFTER_ALL
from exporter.meaning.training.alignment import PROGRESS_VALID_SECONDS
from exporter.meaning.training.records import Communicator, Job, Progress

LONG_WAIT_SECONDS = 120.0
"""Seconds that ranks must have waited, more than the longest pause of their communicator: one may be writing a
checkpoint."""

MOVING_SECONDS = 60.0
"""Seconds since the last change of its numbers for which a rank moves."""

MAX_AHEAD_SHARE = 0.25
"""Maximum share of the ranks that are taken for those that began least, where all of them have begun more than ended: a
process is ahead of its GPU by a number of collectives that may vary."""

_NOT_BEGUN = Progress(0, 0, float("-inf"), float("-inf"))


class Wait(NamedTuple):
    """A collective that some ranks of a communicator began and that ended on none, by the last report of each.

    Attributes:
        communicator: The communicator.
        waiting: The ranks that began it.
        missing: Those that did not; empty if all did, or if that is not known.
        all_began: Whether all did.
        is_stuck: Whether one of them has waited for long, and not only a few of them do.
    """

    communicator: str
    waiting: frozenset[str]
    missing: frozenset[str]
    all_began: bool
    is_stuck: bool


class Hang(NamedTuple):
    """What hangs.

    Attributes:
        ranks: Ranks that did not begin what others wait in, and do not wait themselves; empty if unknown.
        communicators: Communicators in which all ranks began and nothing ends: the network is at fault.
    """

    ranks: Sequence[str] = ()
    communicators: Sequence[str] = ()


def find_hang(job: Job, pause: float, now: float) -> Hang | None:
    """Return what hangs, by the reports of what ranks began; None if nothing does.

    Args:
        job: The job.
        pause: The longest pause of the job so far, in seconds.
        now: Time.
    """
    idle = {
        name: one
        for name, one in job.communicators.items()
        if not one.ticks or now - one.ticks[-1].time > MOVING_SECONDS
    }
    found = [wait for name, communicator in idle.items() for wait in _waits(name, communicator, now)]
    between_stages = len(idle) == len(job.communicators) and any(
        _has_waited(one, LONG_WAIT_SECONDS + pause, now)
        for exchange in job.exchanges.values()
        for one in exchange.progress.values()
    )
    if not between_stages and not any(one.is_stuck for one in found):
        return None
    moving = _moving(job, now)
    stopped = [one for one in found if moving.isdisjoint(job.communicators[one.communicator].members)]
    if not any(one.is_stuck for one in stopped):
        return Hang() if between_stages and not moving else None
    ranks = _origins(job, stopped, {rank for one in found for rank in one.waiting}, now)
    dead = () if ranks else tuple(sorted({one.communicator for one in stopped if one.all_began}))
    return Hang(tuple(ranks), dead)


def _waits(name: str, communicator: Communicator, now: float) -> list[Wait]:
    """Return the collectives of a communicator in which ranks wait.

    Where ranks did not begin one kind, that is what the others wait for: a process checks what has ended when it begins
    the next collective, so that what all began may have ended.
    """
    kinds = sorted({kind for (kind, _), one in communicator.progress.items() if one.begun > one.ended})
    found = [wait for kind in kinds if (wait := _wait(name, communicator, kind, now)) is not None]
    return [wait for wait in found if wait.missing] or found


def _wait(name: str, communicator: Communicator, kind: str, now: float) -> Wait | None:
    """Return who waits for whom in one kind of collectives; None if no rank does.

    Only begun collectives are comparable: GPUs may have finished more than their ranks have checked, and ranks that
    wait have begun as many more as they could.
    """
    members = communicator.members
    reported = {rank: communicator.progress.get((kind, rank), _NOT_BEGUN) for rank in members}
    ended = max((one.ended for one in reported.values()), default=0) if kind in AFTER_ALL else 0
    known = {rank: one for rank, one in reported.items() if one.begun >= ended}
    waiting = frozenset(rank for rank, one in known.items() if one.begun > max(ended, one.ended))
    if not waiting:
        return None
    seconds = LONG_WAIT_SECONDS + communicator.longest_pause
    is_long = any(_has_waited(known[rank], seconds, now) for rank in waiting)
    least = min(one.begun for one in known.values())
    is_ahead = kind in AFTER_ALL and least > ended  # all that are known began it, some of them more
    ahead = frozenset(rank for rank in waiting if known[rank].begun > least)
    missing = frozenset(rank for rank, one in known.items() if one.begun == least)
    if ahead and len(missing) <= len(known) * (MAX_AHEAD_SHARE if is_ahead else 0.5):
        return Wait(name, ahead, missing, all_began=False, is_stuck=is_long)
    all_began = is_ahead and len(waiting) == len(members) >= communicator.ranks
    return Wait(name, waiting, frozenset(), all_began, is_long and len(waiting) > len(members) / 2)


def _has_waited(one: Progress, seconds: float, now: float) -> bool:
    """Return whether a rank has been in a collective for some seconds, and reports that it still is."""
    return one.begun > one.ended and now - one.reported <= PROGRESS_VALID_SECONDS and now - one.since >= seconds


def _moving(job: Job, now: float) -> set[str]:
    """Return the ranks that began or ended something recently; of communicators without progress, those that report."""
    found = set()
    for communicator in job.communicators.values():
        if communicator.progress:
            found |= _changed(((rank, one) for (_, rank), one in communicator.progress.items()), now)
        else:
            found |= {rank for rank, at in communicator.members.items() if now - at < MOVING_SECONDS}
    for rank, exchange in job.exchanges.items():
        found |= _changed(((rank, one) for one in exchange.progress.values()), now)
    return found


def _changed(progress: Iterable[tuple[str, Progress]], now: float) -> set[str]:
    return {rank for rank, one in progress if now - one.since < MOVING_SECONDS}


def _origins(job: Job, stopped: Sequence[Wait], waiting: AbstractSet[str], now: float) -> list[str]:
    """Return the ranks that others wait for and that wait for no other; empty if they cannot be known.

    A stage of a pipeline that waits for another one begins no collective either. Its operations between two ranks show
    it. Where these are not reported, ranks that no single communicator shows may be such stages.
    """
    missing = {rank for one in stopped for rank in one.missing} - waiting
    missing -= {
        rank for rank, one in job.exchanges.items() if any(each.begun > each.ended for each in one.progress.values())
    }
    reporting = _reporting_hosts(job, now)
    missing = {rank for rank in missing if job.hosts.get(rank) in reporting}
    return sorted(missing) if job.exchanges or any(missing <= one.missing for one in stopped) else []


def _reporting_hosts(job: Job, now: float) -> set[str]:
    """Return the hosts of which something arrives; on others silence does not show that a rank waits for nothing."""
    return {
        job.hosts.get(rank, "")
        for communicator in job.communicators.values()
        for rank, at in communicator.members.items()
        if now - at <= PROGRESS_VALID_SECONDS
    }
