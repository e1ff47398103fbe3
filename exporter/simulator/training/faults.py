"""Faults and events of a simulated job: what makes ranks, hosts, adapters or the network slow, and what only looks so.

Each has the seconds in which it is active. Faults are what a verdict should report; events are part of healthy jobs.
"""

from dataclasses import dataclass

from exporter.simulator.training.engine import NEVER


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Seconds in which something is active: from `since` to `until`, and of each `period` the first `on`."""

    since: float = 0.0
    until: float = NEVER
    on: float = NEVER
    period: float = NEVER

    def active(self, time: float) -> bool:
        """Return whether it is active at a time."""
        if not self.since <= time < self.until:
            return False
        return self.period == NEVER or (time - self.since) % self.period < self.on


@dataclass(frozen=True, kw_only=True)
class SlowRank(Interval):
    """A rank computes longer by a share; only in each n-th step if `every` is more than 1."""

    rank: int
    share: float
    every: int = 1


@dataclass(frozen=True, kw_only=True)
class SlowHost(Interval):
    """All ranks of a host compute longer by a share."""

    host: int
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowAdapter(Interval):
    """The adapter of one GPU of a host carries a share of its bandwidth; of each host if `host` is None: a rail.

    `variation` is the standard deviation of the logarithm of the share from one collective to the next.
    """

    place: int
    share: float
    host: int | None = None
    variation: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SlowNetwork(Interval):
    """All transfers between hosts have a share of the bandwidth."""

    share: float


@dataclass(frozen=True, kw_only=True)
class StoppedRank:
    """A rank that does not continue from a time on: its process hangs or ended."""

    rank: int
    at: float


@dataclass(frozen=True, kw_only=True)
class DeadAdapter:
    """The adapter of one GPU of a host transfers nothing from a time on."""

    host: int
    place: int
    at: float


@dataclass(frozen=True, kw_only=True)
class RotatingWork:
    """Another group of ranks has more work every few steps, as the experts of a layer that tokens prefer."""

    share: float
    steps: int = 3
    ranks: int = 1


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Some ranks wait for something else at the begin of each n-th step: data, a checkpoint, an evaluation.

    Attributes:
        seconds: Length.
        every: Steps from one to the next.
        ranks: The ranks; all if empty.
        first: Number of the first step.
    """

    seconds: float
    every: int
    ranks: tuple[int, ...] = ()
    first: int = 1


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """The first steps take longer by a factor on each rank, up to a maximum."""

    steps: int = 2
    factor: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Restart:
    """All processes end at a time and begin again after some seconds, with new communicators."""

    at: float
    pause: float = 20.0


Event = (
    SlowRank
    | SlowHost
    | SlowAdapter
    | SlowNetwork
    | StoppedRank
    | DeadAdapter
    | RotatingWork
    | Stall
    | Compilation
    | Restart
)
