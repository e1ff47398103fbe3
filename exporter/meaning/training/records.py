"""What is kept of the collectives of jobs: operations that wait for further ranks, and evidence of those settled.

Of some classes there are hundreds of thousands of objects. They are msgspec's, without garbage collection, which would
else traverse all of them again and again: they refer to no other objects in circles.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Any, NamedTuple, TypeAlias

import msgspec

from exporter.core.shares import Shares
from exporter.meaning.training.durations import Durations
from exporter.meaning.training.runs import Claims

SETTLED_WINDOW = 1024
"""Sequence numbers of one kind of which it is known whether they are settled, so that a late record opens no new
operation."""

MAX_SPEEDS = 64
"""Operations of one kind and size, settled at one time, whose speed is stored."""

MOST_ARRIVALS = 0.5
"""Share of the ranks whose arrivals must be known in …"""

USUAL_ARRIVALS = 0.8
"""… this share of the operations of a communicator, for arrivals to be compared."""

ARRIVALS_WEIGHT = 0.02
"""Weight of the latest operation in that."""

EXCHANGE_SECONDS = 20.0
"""Seconds after which time in operations between two ranks counts 1/e."""

_SETTLED_MASK = (1 << SETTLED_WINDOW) - 1


class Timing(NamedTuple):
    """One operation on one rank.

    Sequence number, size in bytes as nccl-tests counts it, duration, whether it was measured on the GPU (0: not), and
    for how long it waited behind the previous one of the communicator, between the arrival of the rank and the
    duration. Times are in microseconds; None if unknown.
    """

    sequence: int
    size: float
    microseconds: float
    timed: float | None = None
    queued: float | None = None


TimingValues: TypeAlias = tuple[Any, ...]
"""A Timing as a tuple; what is unknown may be left out at its end."""


class Stream(NamedTuple):
    """A rank in a communicator: the origin of timings.

    Attributes:
        job: Name of the job.
        communicator: Identifier of the communicator within the job.
        kind: AllReduce …
        rank: The process, by its name in the whole job.
        ranks: Number of ranks of the communicator.
        nodes: Number of nodes that the communicator spans; 0 if unknown.
        host: Host of the process.
        expected: Number of ranks of the communicator whose timings should arrive here; 0 if those that do suffice, as
            on one of its hosts.
        ports: Ports nearest to its GPU, each with all its names; empty if unknown.
    """

    job: str
    communicator: str
    kind: str
    rank: str
    ranks: int
    nodes: int = 0
    host: str = ""
    expected: int = 0
    ports: str = ""


class Pending(msgspec.Struct, gc=False):
    """An operation that waits for further ranks.

    Attributes:
        since: Time of the first timing.
        size: Bytes.
        host: Host of the first timing.
        times: Microseconds by rank.
        waits: Microseconds from the arrival of a rank to the end, by rank, where that is known.
    """

    since: float
    size: float
    host: str
    times: dict[str, float] = msgspec.field(default_factory=dict)
    waits: dict[str, float] = msgspec.field(default_factory=dict)


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Progress of a rank with one kind of operations.

    Attributes:
        begun: Number of operations begun.
        ended: Number of these that ended, as far as the rank has checked.
        reported: Time of the last report.
        since: Time of the first report with these numbers.
    """

    begun: int
    ended: int
    reported: float
    since: float


class Arrivals(msgspec.Struct, frozen=True, gc=False):
    """Which ranks started an operation late.

    Attributes:
        sequence: Sequence number.
        size: Bytes as nccl-tests counts them.
        share: Share of the known ranks that reported.
        late: Microseconds after the median rank, of the last ranks to start, the last one first.
        others: Mean lateness of the ranks between the median and the last quarter: how far ranks drift apart.
        time: Time at which the operation was settled.
    """

    sequence: int
    size: float
    share: float
    late: Mapping[str, float]
    others: float
    time: float


@dataclass(slots=True)
class Exchange:
    """How long a rank was in operations between two ranks, where it waits for other stages of a pipeline.

    Attributes:
        microseconds: Their time, of which older parts count less.
        time: Time of the last one.
        progress: Progress by communicator and kind, where it is reported.
    """

    microseconds: float = 0.0
    time: float = 0.0
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)

    def add(self, microseconds: float, now: float) -> None:
        """Add the time of operations."""
        self.microseconds = self.microseconds * exp((self.time - now) / EXCHANGE_SECONDS) + microseconds
        self.time = now

    def share(self, now: float) -> float:
        """Return the seconds per second in these operations."""
        return self.microseconds / 1e6 / EXCHANGE_SECONDS * exp((self.time - now) / EXCHANGE_SECONDS)


class Traffic(msgspec.Struct, gc=False):
    """Traffic of operations of one kind and size.

    Attributes:
        size: Bytes.
        microseconds: Shortest times of all operations.
        speeds: Bytes per microsecond of some operations, and the share of the ranks that reported each. If the time of
            the last rank to start is missing, an operation appears slower than it was.
        whole: Number of operations that all ranks of the communicator reported, …
        whole_microseconds: … their shortest times, …
        longest: … and the longest of these.
    """

    size: float = 0.0
    microseconds: float = 0.0
    speeds: list[tuple[float, float]] = msgspec.field(default_factory=list)
    whole: int = 0
    whole_microseconds: float = 0.0
    longest: float = 0.0

    def add(self, size: float, microseconds: float, share: float, *, whole: bool) -> None:
        """Add an operation that a share of the ranks reported that report here, or all ranks of the communicator."""
        self.size += size
        self.microseconds += microseconds
        if microseconds > 0 and len(self.speeds) < MAX_SPEEDS:
            self.speeds.append((size / microseconds, share))
        if whole:
            self.whole += 1
            self.whole_microseconds += microseconds
            self.longest = max(self.longest, microseconds)


@dataclass(slots=True)
class Tick:
    """Evidence from the operations of a communicator that were settled at one time.

    Attributes:
        time: The time.
        compared: Number of operations compared.
        arrivals: Number of these that were compared by the arrivals of ranks.
        bus: Traffic by kind and size.
    """

    time: float
    compared: int = 0
    arrivals: int = 0
    bus: dict[tuple[str, int], Traffic] = field(default_factory=dict)

    def traffic(self, kind: str, size: int) -> Traffic:
        """Return the traffic of one kind and size."""
        found = self.bus.get((kind, size))
        if found is None:
            found = self.bus[kind, size] = Traffic()
        return found


@dataclass(slots=True)
class RecentTraffic:
    """Sum of the traffic of one kind and size in some ticks.

    Attributes:
        ticks: Number of ticks.
        size: Bytes.
        microseconds: Shortest times of all operations.
    """

    ticks: int = 0
    size: float = 0.0
    microseconds: float = 0.0


@dataclass(slots=True)
class Waits:
    """Sums over operations, by rank.

    Attributes:
        waited: Microseconds that the rank waited for the last one.
        late: Microseconds that the rank started after the median rank.
    """

    waited: dict[str, float] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)


class SettledNumbers:
    """Which of the numbers up to the highest settled one are settled; those far below it are forgotten."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0  # bit n: the number `highest - n` is settled

    def add(self, number: int) -> None:
        """Add a number."""
        ahead = number - self._highest
        if ahead >= SETTLED_WINDOW:
            self._highest, self._bits = number, 1
        elif ahead > 0:
            self._highest, self._bits = number, ((self._bits << ahead) | 1) & _SETTLED_MASK
        elif -ahead < SETTLED_WINDOW:
            self._bits |= 1 << -ahead

    def __contains__(self, number: int) -> bool:
        """Return whether a number was settled and is not forgotten."""
        return number <= self._highest and self._bits >> (self._highest - number) & 1 == 1


@dataclass(slots=True)
class Communicator:
    """One communicator of a job.

    Attributes:
        ranks: Number of its ranks.
        nodes: Number of nodes that it spans; 0 if unknown.
        expected: Number of ranks whose timings should arrive; 0 if those that do suffice.
        last_seen: Time of the last timing or progress report.
        members: Ranks that reported, with the time of the last report of each.
        reached: Highest sequence number in the last report, by kind and rank.
        highest: Highest sequence number that two ranks reported, by kind; with one rank here, that of this one.
        progress: Progress by kind and rank, where it is reported.
        pending: Operations that wait, by kind, then by sequence number.
        settled: Sequence numbers settled recently, by kind.
        host: Host of the rank that reported first.
        places: Number of members by host.
        arrivals: Operations that were compared, by kind, until they are taken as evidence on steps.
        ticks: Sums of what was settled at one time.
        bus: Traffic in all ticks by kind and size.
        arrivals_known: Share of the operations whose arrivals are known of most ranks; older ones count less.
        longest_pause: Longest time in seconds between two of them; older ones count less.
    """

    ranks: int
    nodes: int
    expected: int
    last_seen: float
    host: str
    members: dict[str, float] = field(default_factory=dict)
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    pending: dict[str, dict[int, Pending]] = field(default_factory=dict)
    settled: dict[str, SettledNumbers] = field(default_factory=dict)
    arrivals: dict[str, deque[Arrivals]] = field(default_factory=dict)
    ticks: deque[Tick] = field(default_factory=deque)
    bus: dict[tuple[str, int], RecentTraffic] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    arrivals_known: float = 1.0
    longest_pause: float = 0.0

    def comparable(self, pending: Pending) -> dict[str, float]:
        """Return the microseconds of an operation that show who came late: those since arrivals, if most are known.

        Where arrivals are often unknown, all operations are compared by their times: one is not like the other.
        """
        known = len(pending.waits)
        is_known = known >= max(MOST_ARRIVALS * len(pending.times), 2)
        self.arrivals_known += (is_known - self.arrivals_known) * ARRIVALS_WEIGHT
        return pending.waits if is_known and self.arrivals_known >= USUAL_ARRIVALS else pending.times

    def began_again(self, since: float) -> bool:
        """Return whether all ranks that reported since a time are far below earlier numbers: it was restarted."""
        reached, members = self.reached, self.members
        return self.last_seen >= since and any(
            not any(at >= since and 2 * reached.get((kind, rank), highest) >= highest for rank, at in members.items())
            for kind, highest in self.highest.items()
        )

    def add_tick(self, tick: Tick) -> None:
        """Add the newest sums."""
        if self.ticks:
            self.longest_pause = max(self.longest_pause * 0.999, tick.time - self.ticks[-1].time)
        self.ticks.append(tick)
        for key, moved in tick.bus.items():
            recent = self.bus.setdefault(key, RecentTraffic())
            recent.ticks += 1
            recent.size += moved.size
            recent.microseconds += moved.microseconds

    def drop_tick(self) -> None:
        """Drop the oldest sums."""
        for key, moved in self.ticks.popleft().bus.items():
            recent = self.bus[key]
            recent.ticks -= 1
            recent.size -= moved.size
            recent.microseconds -= moved.microseconds
            if not recent.ticks:
                del self.bus[key]


@dataclass(slots=True)
class Job:
    """One job: communicators, hosts of ranks and the ports nearest to them, and counts of operations by outcome.

    Attributes:
        exchanges: Time in operations between two ranks, by rank.
        opened: Number of communicators by the host that reported them first.
        waiting: Number of operations that wait for further ranks, by the host whose timing was the first.
        claims: Ranks that came from several hosts.
        waits: For how long ranks waited and were late, until the sums are taken.
        durations: Distribution of the times of operations.
    """

    last_seen: float
    since: float
    communicators: dict[str, Communicator] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    opened: Shares[str] = field(default_factory=Shares)
    waiting: Shares[str] = field(default_factory=Shares)
    claims: Claims = field(default_factory=Claims)
    waits: Waits = field(default_factory=Waits)
    durations: Durations = field(default_factory=Durations)
    matched: int = 0
    partial: int = 0
    unmatched: int = 0
    dropped: int = 0
    late: int = 0

    @property
    def pending(self) -> int:
        """Number of operations that wait for further ranks."""
        return self.waiting.total
