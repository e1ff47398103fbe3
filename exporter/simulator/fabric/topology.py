"""Hosts, leaves and spines, the cables between them, and the ways through them.

A cable is one link with two ends; a hop is one direction of it. Traffic between adapters on one leaf takes two hops,
all other traffic goes up to a spine and down again and takes four.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class End(NamedTuple):
    """A port: the name of its device, and its own name there."""

    device: str
    port: str


class Cable(NamedTuple):
    """A link: of an adapter and a leaf, or of a leaf and a spine, which is the upper one."""

    lower: End
    upper: End

    @property
    def up(self) -> "Hop":
        """The direction towards the spines."""
        return Hop(self.lower, self.upper)

    @property
    def down(self) -> "Hop":
        """The direction towards the hosts."""
        return Hop(self.upper, self.lower)


class Hop(NamedTuple):
    """One direction of a link."""

    sender: End
    receiver: End


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a cluster.

    Attributes:
        pods: Number of pods.
        hosts: Hosts of a pod.
        rails: Adapters of a host.
        leaves: Leaves of a pod, each with an equal part of the rails.
        spines: Number of spines; each leaf has one link to each.
        adapter_speed: Bits per second of the link of an adapter.
        uplink_speed: Bits per second of the link of a leaf and a spine.
    """

    pods: int = 2
    hosts: int = 2
    rails: int = 8
    leaves: int = 2
    spines: int = 4
    adapter_speed: int = 400_000_000_000
    uplink_speed: int = 800_000_000_000

    @property
    def rails_a_leaf(self) -> int:
        """Rails of a leaf."""
        return self.rails // self.leaves


@dataclass(frozen=True)
class Topology:
    """A cluster as it is cabled.

    Attributes:
        shape: Its sizes.
        swapped: Pairs of adapters of which each has the cable of the other.
    """

    shape: Shape
    swapped: frozenset[tuple[End, End]] = frozenset()

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts, pod by pod."""
        return tuple(f"gpu-{number:03}" for number in range(1, self.shape.pods * self.shape.hosts + 1))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the leaves, pod by pod."""
        return tuple(f"leaf-{number:02}" for number in range(1, self.shape.pods * self.shape.leaves + 1))

    @cached_property
    def spines(self) -> tuple[str, ...]:
        """Names of the spines."""
        return tuple(f"spine-{number:02}" for number in range(1, self.shape.spines + 1))

    @property
    def ranks(self) -> int:
        """Number of ranks of a job on all GPUs: each rail has one."""
        return len(self.hosts) * self.shape.rails

    def ranks_of(self, host: str) -> range:
        """Return the ranks of such a job on a host, by rail."""
        first = self.hosts.index(host) * self.shape.rails
        return range(first, first + self.shape.rails)

    def adapter(self, host: str, rail: int) -> End:
        """Return the port of an adapter."""
        return End(host, f"eth{rail + 2}")

    def adapters(self, host: str) -> tuple[End, ...]:
        """Return the ports of all adapters of a host, by rail."""
        return tuple(self.adapter(host, rail) for rail in range(self.shape.rails))

    def leaf_of(self, adapter: End) -> str:
        """Return the leaf that an adapter is cabled to."""
        return self._leaf_ports[adapter].device

    def access(self, adapter: End) -> Cable:
        """Return the cable of an adapter."""
        return Cable(adapter, self._leaf_ports[adapter])

    def uplink(self, leaf: str, spine: str) -> Cable:
        """Return the cable of a leaf and a spine."""
        first = self.shape.rails_a_leaf * self.shape.hosts + 1
        lower = End(leaf, f"Ethernet1/{first + self.spines.index(spine)}")
        return Cable(lower, End(spine, f"Ethernet1/{self.leaves.index(leaf) + 1}"))

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """All cables: those of adapters, then those of spines."""
        access = (self.access(adapter) for host in self.hosts for adapter in self.adapters(host))
        return (*access, *(self.uplink(leaf, spine) for leaf in self.leaves for spine in self.spines))

    def cables_of(self, device: str) -> tuple[Cable, ...]:
        """Return the cables of a device."""
        return tuple(cable for cable in self.cables if device in {cable.lower.device, cable.upper.device})

    def path(self, source: End, target: End, spine: str) -> tuple[Hop, ...]:
        """Return the hops from one adapter to another; the spine is used only where they are on two leaves."""
        up, down = self.access(source).up, self.access(target).down
        first, last = up.receiver.device, down.sender.device
        if first == last:
            return up, down
        return up, self.uplink(first, spine).up, self.uplink(last, spine).down, down

    @cached_property
    def _leaf_ports(self) -> dict[End, End]:
        """The port of a leaf of each adapter."""
        shape = self.shape
        ports = {}
        for place, host in enumerate(self.hosts):
            pod, in_pod = divmod(place, shape.hosts)
            for rail, adapter in enumerate(self.adapters(host)):
                which, in_leaf = divmod(rail, shape.rails_a_leaf)
                leaf = self.leaves[pod * shape.leaves + which]
                ports[adapter] = End(leaf, f"Ethernet1/{in_leaf * shape.hosts + in_pod + 1}")
        for one, other in self._swaps():
            ports[one], ports[other] = ports[other], ports[one]
        return ports

    def _swaps(self) -> Iterable[tuple[End, End]]:
        return sorted(self.swapped)
