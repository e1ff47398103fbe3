"""Estimates for sizing: what the network costs a training step at the rates of different technologies.

The bytes of a step are those of step_budget.py; what is computed here is arithmetic on them. Times assume that nothing
of the network is hidden behind computing, so shares of computing are lower bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Literal, NamedTuple

from exporter.meaning.training.step_budget import BYTES, Operation, sent

Model = Literal["payload", "ring", "tree", "sharp"]
"""What a GPU sends for the sum of gradients: their bytes, or those of an algorithm of AllReduce."""


class Technology(NamedTuple):
    """A link of a host and what large messages reach on it.

    Attributes:
        line: Bytes per second of the link.
        achievable: Bytes per second that large messages reach.
    """

    line: float
    achievable: float


def _gigabits(rate: float) -> float:
    return rate * 1e9 / 8


REACHED = 0.8
"""Share of a link that RDMA reaches with large messages, where no figure of its own is known."""

TECHNOLOGIES: Mapping[str, Technology] = MappingProxyType(
    {
        "1 GbE TCP": Technology(_gigabits(1), 110e6),
        "10 GbE TCP": Technology(_gigabits(10), 1.1e9),
        "25 GbE TCP": Technology(_gigabits(25), 2.8e9),
        "100 GbE TCP": Technology(_gigabits(100), 9e9),
        "100 GbE RoCE, EDR": Technology(_gigabits(100), 11e9),
        "200 GbE RoCE, HDR": Technology(_gigabits(200), _gigabits(200) * REACHED),
        "400 GbE RoCE, NDR": Technology(_gigabits(400), _gigabits(400) * REACHED),
        "800 GbE RoCE, XDR": Technology(_gigabits(800), _gigabits(800) * REACHED),
    }
)
"""Links by name. Rates of TCP and of 100 Gb/s are those that file transfers and RDMA tests reach."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """A job to size.

    Attributes:
        gradients: Bytes of the gradients that each rank has.
        ranks: Ranks that sum them.
        model: What each of them sends for that.
        links: Links of a host …
        ranks_per_host: … and the ranks that share them.
        oversubscription: Speed of all ports to hosts of a leaf over that of its uplinks.
        hierarchical: Whether the ranks of a host share the rings, so that each link carries its part of what a ring
            sends, as NCCL builds them; else each rank sends everything by itself.
        sent: Bytes that each rank sends between hosts in a step, where a running job has shown them.
    """

    gradients: float | None
    ranks: int
    model: Model = "ring"
    links: int = 8
    ranks_per_host: int = 8
    oversubscription: float = 1.0
    hierarchical: bool = False
    sent: float | None = None

    @property
    def hosts(self) -> int:
        """Hosts of the job."""
        return ceil(self.ranks / self.ranks_per_host)

    @property
    def traffic(self) -> float:
        """Bytes that each rank sends between hosts in a step.

        Raises:
            ValueError: Neither they nor the gradients are given.
        """
        if self.sent is not None:
            return self.sent
        if self.gradients is None:
            raise ValueError("neither the bytes that a rank sends nor those of its gradients are known")
        whole = self.gradients
        if self.model != "payload":
            whole = sent(Operation("AllReduce", self.gradients), self.ranks, self.model)
        return whole * self.hosts / self.ranks if self.hierarchical else whole

    def share(self, rate: float) -> float:
        """Return the bytes per second of a rank, by those of a link."""
        return rate * self.links / self.ranks_per_host / self.oversubscription


class Estimate(NamedTuple):
    """What a rate means for a job; None where that is not known.

    Attributes:
        rate: Bytes per second of a rank.
        network: Seconds of the network in a step.
        step: Seconds of a step.
        compute_share: Share of the step in which GPUs compute.
        training: Seconds of all steps.
    """

    rate: float
    network: float
    step: float | None = None
    compute_share: float | None = None
    training: float | None = None


def gradients_of(parameters: float, precision: str) -> float:
    """Return the bytes of gradients, by a key of step_budget.BYTES."""
    return parameters * BYTES[precision]


def estimate(sizing: Sizing, rate: float, compute: float | None = None, steps: int | None = None) -> Estimate:
    """Estimate a step.

    Args:
        sizing: The job.
        rate: Bytes per second of a rank.
        compute: Seconds of computing in a step; None if unknown.
        steps: Steps of the training; None if unknown.
    """
    network = sizing.traffic / rate
    step = None if compute is None else compute + network
    share = None if compute is None or step is None else compute / step
    training = None if step is None or steps is None else step * steps
    return Estimate(rate, network, step, share, training)


def needed_rate(sizing: Sizing, step: float) -> float:
    """Return the bytes per second that each rank needs to send the bytes of a step within a step of some seconds."""
    return sizing.traffic / step


class Clos(NamedTuple):
    """Switches of one network of leaves and spines.

    Attributes:
        leaves: Leaves, …
        aggregation: … switches between leaves and spines, 0 in a network of two levels, …
        spines: … and spines.
        networks: Equal networks, one for each rail.
    """

    leaves: int
    aggregation: int
    spines: int
    networks: int = 1

    @property
    def switches(self) -> int:
        """All switches."""
        return (self.leaves + self.aggregation + self.spines) * self.networks


def clos(ports: int, radix: int, oversubscription: float = 1.0, networks: int = 1) -> Clos:
    """Return the switches that connect so many ports of hosts, in each of some equal networks.

    One leaf is enough for as many ports as it has; two levels for as many leaves as a spine has ports. Three levels are
    pods of as many leaves as half of the ports of a switch, without oversubscription above the leaves.

    Raises:
        ValueError: Three levels are not enough.
    """
    if ports <= radix:
        return Clos(1, 0, 0, networks)
    half = max(radix // 2, 1)
    down = min(max(int(radix * oversubscription / (1 + oversubscription)), 1), radix - 1)
    up = radix - down
    leaves = ceil(ports / down)
    if leaves <= radix:
        return Clos(leaves, 0, ceil(leaves * up / radix), networks)
    pods = ceil(leaves / half)
    if pods > radix:
        raise ValueError(f"{ports} ports need more than three levels of switches of {radix} ports")
    aggregation = pods * up
    return Clos(leaves, aggregation, ceil(aggregation * half / radix), networks)
