"""The processes of training jobs on this host that tell their timings, and the ranks that they are known by.

The rank of a process is its rank in the job where anything tells that, else its rank in the largest communicator it
was seen in (the first seen of several that large). Where two processes of a job claim the same rank at the same time,
the later one is named `<rank>-<pid>`; ranks in the job that several claim at once are not believed, since processes
that one rank started have them all.

A process that two feeds tell of counts once, by the better one: Inspector, then the hook, then the Flight Recorder.
All ranks of a job have to be told by the same one, since each names communicators in its own way.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from exporter.core.source import Failure
from exporter.sources.nccl.readers.feed import (
    Facts,
    Membership,
    Said,
    Totals,
    Unused,
)

ORDER = ("inspector", "hook", "recorder")
"""Feeds that tell of processes, the best first."""

MAX_JOBS = 32
"""Jobs that are told apart on this host."""

MAX_PROCESSES = 128
"""Processes of one job on this host."""

SILENCE = 600.0
"""Seconds without a record after which a process is forgotten."""

VOICE = 60.0
"""Seconds without a record after which a worse feed is heard again on a process."""

Key = tuple[str, str]
"""Of a process: its feed, and what tells it from others there."""


@dataclass(slots=True)
class Process:
    """One process: its sums since it was first seen.

    Attributes:
        number: Tells it from every other process, also from one that had its rank before.
        feed: Which feed tells of it.
        facts: Who it is.
        first: Number of the poll that first brought a record of it.
        last: Number of the poll that last did.
        heard: Monotonic time of that poll.
        timed: The same of the last that brought times of collectives.
        largest: Where it is in the largest communicator it was seen in.
        totals: Its sums by kind.
        lost: Records that it lost itself, by what they were; None where it does not tell.
        steps: Steps of the training that it marked, with their tokens and floating-point operations.
        label: Its rank as it is exported; empty while another process has taken its place.
        silenced: Whether a better feed tells of it too.
        doubted: Whether others claim its rank of the job too, so that none of them is believed.
    """

    number: int
    feed: str
    facts: Facts
    first: int
    last: int
    heard: float
    largest: Membership
    totals: dict[str, Totals] = field(default_factory=dict)
    lost: Counter[str] | None = None
    steps: Counter[str] = field(default_factory=Counter)
    label: str = ""
    silenced: bool = False
    doubted: bool = False
    timed: float = float("-inf")

    @property
    def job(self) -> str:
        """Name of its job."""
        return self.facts.job


class Processes:
    """Keeps processes from poll to poll."""

    def __init__(self) -> None:
        self._found: dict[Key, Process] = {}
        self._polls = 0
        self._born = 0
        self._alike: dict[tuple[object, ...], list[Process]] = {}

    def begin(self) -> None:
        """Begin a poll."""
        self._polls += 1
        self._alike = {}
        for process in self._found.values():
            self._note(process)

    def __contains__(self, key: Key) -> bool:
        """Tell whether a process is known."""
        return key in self._found

    def take(self, feed: str, said: Said, now: float, failures: list[Failure]) -> Process | Unused | None:
        """Add what was said to its process, which is made where there is room; feeds come in their order.

        Returns:
            The process; why what was said is not used; None where it was of no collective.
        """
        process = self._found.get((feed, said.speaker))
        better = self._better(feed, said.facts, now - VOICE)
        if process is not None:
            _update(process, said)
        if better is not None:
            better.steps += said.steps
        elif process is not None:
            process.steps += said.steps
        if not said.totals and (not said.progress or self.timed(feed, said.facts) is not None):
            if process is not None and said.progress:
                process.silenced = True  # another feed tells times, and what this one says goes with them
            return None
        process = process or self._make(feed, said, now, failures)
        if process is None:
            return "over_limit"
        process.last, process.heard = self._polls, now  # also where nothing ended: it lives, and may wait for others
        process.silenced = better is not None
        process.timed = now if said.totals else process.timed
        if said.totals and better is None and (elder := self._better(feed, said.facts)) is not None:
            elder.silenced = True  # it told nothing for long, and this one takes its place
        if better is not None:
            better.facts.fill_in(process.facts)
            return "duplicate"
        for kind, totals in said.totals.items():
            process.totals.setdefault(kind, Totals()).add(totals)
        return process

    def timed(self, feed: str, facts: Facts) -> Process | None:
        """Give what another feed tells times of, of the same process; None where none does."""
        return next((one for one in self._twins(facts) if one.feed != feed and not one.silenced), None)

    def _better(self, feed: str, facts: Facts, since: float = float("-inf")) -> Process | None:
        """Give what a better feed tells of the same process, and told times of after a time; None where none does."""
        place = ORDER.index(feed)
        return next((one for one in self._twins(facts) if ORDER.index(one.feed) < place and one.timed > since), None)

    def _twins(self, facts: Facts) -> Iterator[Process]:
        """Give what feeds told times of, of the same process."""
        for key in _signs(facts):
            for other in self._alike.get(key, ()):
                if other.timed > float("-inf") and _are_one(facts, other.facts):
                    yield other

    def finish(self, gone: Mapping[str, set[str]], now: float) -> None:
        """Drop the processes that are gone or were silent for long, and name the others.

        Args:
            gone: By feed, what tells of nobody any more.
            now: Monotonic time.
        """
        self._found = {
            (feed, speaker): process
            for (feed, speaker), process in self._found.items()
            if speaker not in gone.get(feed, ()) and now - process.heard < SILENCE
        }
        _label(self._found.values())

    def named(self) -> list[Process]:
        """List the processes that are exported, in the order of their jobs and of when they were first seen."""
        found = (process for process in self._found.values() if process.label)
        return sorted(found, key=lambda one: (one.job, one.number))

    def _make(self, feed: str, said: Said, now: float, failures: list[Failure]) -> Process | None:
        jobs = Counter(process.job for process in self._found.values())
        job = said.facts.job
        if jobs[job] >= MAX_PROCESSES or (job not in jobs and len(jobs) >= MAX_JOBS):
            detail = f"{feed} {said.speaker}: more than {MAX_JOBS} jobs or {MAX_PROCESSES} processes of one; left out"
            failures.append(Failure(job if job in jobs else "", "over_limit", detail))
            return None
        assert said.largest is not None  # noqa: S101  # sums come of collectives, which have a communicator
        self._born += 1
        process = Process(self._born, feed, said.facts, self._polls, self._polls, now, said.largest)
        process.lost = Counter(said.lost) if said.lost else None
        process.steps = Counter(said.steps)
        self._found[feed, said.speaker] = process
        self._note(process)
        return process

    def _note(self, process: Process) -> None:
        for key in _signs(process.facts):
            self._alike.setdefault(key, []).append(process)


def _update(process: Process, said: Said) -> None:
    """Take over what is said beside collectives; what tells of a process and was begun anew may tell of another."""
    if said.largest is not None and (said.restarted or said.largest.ranks > process.largest.ranks):
        process.largest = said.largest
    if said.restarted or said.totals:
        process.facts = said.facts
    if said.lost:
        process.lost = (process.lost or Counter()) + said.lost


def _signs(facts: Facts) -> Iterable[tuple[object, ...]]:
    """List what the same process has in common in all feeds."""
    if facts.host_pid:
        yield "host", facts.host_pid
    if facts.pid:
        yield "inside", facts.host.split(".", 1)[0], facts.pid
    if facts.world_rank is not None:
        yield "rank", facts.job, facts.world_rank


def _are_one(one: Facts, other: Facts) -> bool:
    """Tell whether two feeds' facts, which have a sign in common, are of one process."""
    if one.host_pid and other.host_pid:
        return one.host_pid == other.host_pid
    if one.job != other.job and "unknown" not in {one.job, other.job}:
        return False
    return not one.pid or not other.pid or one.pid == other.pid


def _label(processes: Iterable[Process]) -> None:
    """Give each process its rank. One that fell silent before another with its rank came was replaced by that."""
    heard = [process for process in processes if not process.silenced]
    for process in processes:
        process.label, process.doubted = "", False
    claimed = _claims(heard, set())
    doubted = {
        one.number
        for claimants in claimed.values()
        if len(claimants) > 1
        for one in claimants
        if one.facts.world_rank is not None
    }
    for (_, rank), claimants in (_claims(heard, doubted) if doubted else claimed).items():
        taken: set[str] = set()
        for one in claimants:
            label = str(rank) if not taken else f"{rank}-{one.facts.pid}"
            one.doubted = one.number in doubted
            one.label = label if label not in taken else f"{rank}-{one.facts.pid}-{one.number}"
            taken.add(one.label)


def _claims(processes: Iterable[Process], doubted: set[int]) -> dict[tuple[str, int], list[Process]]:
    """Give the processes that claim each rank of each job now, in the order in which they were first seen."""
    claims: dict[tuple[str, int], list[Process]] = {}
    for one in processes:
        told = one.facts.world_rank
        rank = one.largest.rank if told is None or one.number in doubted else told
        claims.setdefault((one.job, rank), []).append(one)
    return {
        key: sorted((one for one in claimants if one.last >= newest), key=lambda one: one.number)
        for key, claimants in claims.items()
        for newest in [max(one.first for one in claimants)]
    }
