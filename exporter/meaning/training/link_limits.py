"""What the links allow: the bus bandwidth that a communicator can have, from the links of its hosts.

A ring enters and leaves each host over the links of its ranks there. So its bus bandwidth is at most the sum of these
links, on the host where that is lowest. A link that several ranks of a job use counts in parts.

Operations take at least the time of their bytes at a share of that, which protocols leave, and that of their steps, one
after the other. So the expected bandwidth of small operations is lower.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.core.collectives import bus_factor
from exporter.meaning.training.bandwidth import Shape
from exporter.meaning.training.records import Job

SHARE = 0.8
"""Share of the speed of the links that large operations reach, unless the configuration has another."""

BETWEEN_SECONDS, INSIDE_SECONDS = 14e-6, 3.4e-6
"""Seconds of a step of a ring between hosts, and over NVLink inside one (hwLat of NCCL's tuning.cc, Ring, Simple)."""

FIND_SECONDS = 10.0
"""Seconds after which the limits of a job are found again: ranks may have moved."""


class HostLinks(NamedTuple):
    """Links of a host that carry jobs: the bytes per second of each, and their number; None if it is unknown."""

    speed: float
    rails: int | None = None


@dataclass(frozen=True, slots=True)
class Links:
    """What is known of the links of all hosts.

    Attributes:
        of_host: Returns the links of a host by its name; None if they are unknown.
        share: Share of their speed that large operations reach.
    """

    of_host: Callable[[str], HostLinks | None] = lambda _: None
    share: float = SHARE


@dataclass(slots=True)
class LinkLimits:
    """Limits of the communicators of one job.

    Attributes:
        limits: Bytes per second by communicator, where the links of all its hosts are known.
        found: Time at which they were found.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    found: float = float("-inf")

    def find(self, job: Job, links: Links, per_rank: float | None, now: float) -> None:
        """Find the limits, if it is time to.

        Args:
            job: The job.
            links: Links of hosts.
            per_rank: Configured bytes per second of each rank's share of its host's links; None if there are none.
            now: Current time.
        """
        if now - self.found >= FIND_SECONDS:
            self.found = now
            shares = rank_shares(job, links) if per_rank is None else dict.fromkeys(job.hosts, per_rank)
            limits = {name: _limit(job, members.members, shares) for name, members in job.communicators.items()}
            self.limits = {name: one for name, one in limits.items() if one is not None}


def rank_shares(job: Job, links: Links) -> dict[str, float]:
    """Return the bytes per second of each rank's share of its host's links; without ranks of which it is unknown.

    A rank uses the links nearest to its GPU, where they are known, and at most its part of the links of the host.
    """
    on_host = Counter(job.hosts.values())
    known = {host: links.of_host(host) for host in on_host}
    ports = {rank: [one.partition("=")[0] for one in job.ports.get(rank, "").split(",") if one] for rank in job.hosts}
    users = Counter((host, port) for rank, host in job.hosts.items() for port in ports[rank])
    shares: dict[str, float] = {}
    for rank, host in job.hosts.items():
        own = known[host]
        if own is None or not host:
            continue
        nearest = [sum(own.speed / users[host, port] for port in ports[rank])] if ports[rank] else []
        part = [own.speed * own.rails / on_host[host]] if own.rails else []
        if nearest or part:
            shares[rank] = min([*nearest, *part] if nearest else [own.speed, *part])
    return shares


def _limit(job: Job, members: Mapping[str, float], shares: Mapping[str, float]) -> float | None:
    """Return the sum of the shares of members on the host where it is lowest; None if that of one is unknown."""
    sums: dict[str, float] = {}
    for rank in members:
        share = shares.get(rank)
        if share is None:
            return None
        host = job.hosts[rank]
        sums[host] = sums.get(host, 0.0) + share
    return min(sums.values(), default=None)


def expected(shape: Shape, limit: float, share: float) -> float | None:
    """Return the bus bandwidth that collectives of a shape should have, in bytes per second; None without a factor.

    Args:
        shape: Their shape.
        limit: Bus bandwidth that the links allow.
        share: Share of it that large operations reach.
    """
    factor = bus_factor(shape.kind, shape.ranks)
    if factor is None:
        return None
    moved = shape.size * factor
    rounds = 2 if shape.kind == "AllReduce" else 1
    steps = rounds * (shape.nodes * BETWEEN_SECONDS + max(shape.ranks - shape.nodes, 0) * INSIDE_SECONDS)
    return moved / (moved / (share * limit) + steps)
