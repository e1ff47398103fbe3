"""Faults and events of a simulated job: what makes ranks, hosts, adapters or the network slow, and what only looks so.

Each has the time in which it is active. Faults are what a verdict should report; events are part of healthy jobs.
"""

from dataclasses import dataclass

from exporter.simulator.training.engine import NEVER


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Time in which something is active, in seconds: from `since` to `until`, in the first `on` of each `period`."""

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
    """A rank computes longer, by `share` of the usual time; only in every n-th step if `every` is n."""

    rank: int
    share: float
    every: int = 1


@dataclass(frozen=True, kw_only=True)
class SlowHost(Interval):
    """All ranks of a host compute longer, by `share` of the usual time."""

    host: int
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowAdapter(Interval):
    """The adapter of the GPU at `place` in a host has a share of its bandwidth; with `host` None in all hosts: a rail.

    `variation` is the standard deviation of the logarithm of the share from one collective to the next.
    """

    place: int
    share: float
    host: int | None = None
    variation: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SlowNetwork(Interval):
    """All transfers between hosts have only a share of the bandwidth."""

    share: float


@dataclass(frozen=True, kw_only=True)
class StoppedRank:
    """A rank that does not continue from a time on: its process hangs or ended."""

    rank: int
    at: float


@dataclass(frozen=True, kw_only=True)
class DeadAdapter:
    """The adapter of the GPU at `place` in a host transfers nothing from a time on."""

    host: int
    place: int
    at: float


@dataclass(frozen=True, kw_only=True)
class RotatingWork(Interval):
    """One group of ranks has more work, by `share`, and another one every few steps: as experts that tokens prefer.

    Attributes:
        share: Additional work of the group.
        steps: Steps for which it is the same group.
        ranks: Ranks of a group.
    """

    share: float
    steps: int = 3
    ranks: int = 1


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Some ranks wait at the beginning of every n-th step, not for each other but for data or a checkpoint.

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
