"""The flows of a collective: rings over the hosts, one for each rail, whose queue pairs are hashed onto the spines.

A host sends to the next host of a ring over the adapters of one rail. The connection has many queue pairs, each a flow
of its own, which a leaf assigns to a spine by a hash of its addresses and ports (ECMP). No hash is perfectly even.
"""

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.simulator.fabric.conditions import Conditions
from exporter.simulator.fabric.topology import Cable, End, Hop, Topology

QUEUE_PAIRS = 128
"""Queue pairs of a connection: 16 channels with 8 each."""

HASH_VALUES = 1 << 16
"""Values of a second hash, which decides whether a flow goes to a favoured spine."""


class Flow(NamedTuple):
    """All queue pairs of a connection that take one way.

    Attributes:
        source: Adapter that sends.
        target: Adapter that receives.
        hops: The way.
        share: Bytes for each byte that a ring over all rails moves.
    """

    source: End
    target: End
    hops: tuple[Hop, ...]
    share: float


def flows(
    hosts: Sequence[str], rails: Sequence[int], topology: Topology, conditions: Conditions, seed: int
) -> list[Flow] | None:
    """Return the flows of a collective; None where some host cannot be reached.

    Args:
        hosts: The hosts of its ranks, in the order of the ring.
        rails: The rails nearest to the GPUs of its ranks on each host.
        topology: The cluster as it is cabled.
        conditions: What is wrong.
        seed: Seed of the numbers of queue pairs: another one for each run of the job.
    """
    found = []
    for rail in rails:
        for host, following in zip(hosts, (*hosts[1:], hosts[0]), strict=True):
            source = adapter_in_use(host, rail, topology, conditions)
            target = adapter_in_use(following, rail, topology, conditions)
            if source is None or target is None:
                return None
            ways = _ways(source, target, topology, conditions, f"{seed} {rail}")
            if not ways:
                return None
            total = sum(ways.values())
            found += [Flow(source, target, hops, pairs / total / len(rails)) for hops, pairs in ways.items()]
    return found


def adapter_in_use(host: str, rail: int, topology: Topology, conditions: Conditions) -> End | None:
    """Return the adapter that a rail's ring uses on a host: the next one that works; None if there is none."""
    adapters = topology.adapters(host)
    first = rail - rail % conditions.job.every
    for adapter in adapters[first :: conditions.job.every] + adapters[: first : conditions.job.every]:
        if usable(topology.access(adapter), conditions):
            return adapter
    return None


def usable(cable: Cable, conditions: Conditions) -> bool:
    """Return whether flows are sent over a link; they wait for one that flaps."""
    state = conditions.cable(cable)
    return state.up or state.flaps


def _ways(source: End, target: End, topology: Topology, conditions: Conditions, seed: str) -> Counter[tuple[Hop, ...]]:
    """Return the ways from one adapter to another, with the number of queue pairs that each has."""
    first, last = topology.leaf_of(source), topology.leaf_of(target)
    if first == last:
        return Counter({topology.path(source, target, ""): QUEUE_PAIRS})
    spines = [
        spine
        for spine in topology.spines
        if all(usable(topology.uplink(leaf, spine), conditions) for leaf in (first, last))
    ]
    if not spines:
        return Counter()
    favoured = {one: conditions.switch(one).favoured for one in spines if conditions.switch(one).favoured}
    chosen = Counter(_spine(value, spines, favoured) for value in _hashes(source, target, seed))
    return Counter({topology.path(source, target, spine): pairs for spine, pairs in chosen.items()})


def _hashes(source: End, target: End, seed: str) -> Iterable[int]:
    """Yield the hash of each queue pair; their numbers ascend, with gaps where another connection was made."""
    name = f"{source} {target} {seed}"
    chance = random.Random(name)
    number = chance.randrange(1 << 24)
    fixed = zlib.crc32(name.encode())
    for step in chance.choices((1, 1, 2), k=QUEUE_PAIRS):
        number += step
        yield zlib.crc32(number.to_bytes(4, "big"), fixed)


def _spine(value: int, spines: Sequence[str], favoured: dict[str, float]) -> str:
    """Return the spine of a hash; a favoured one gets its share before the rest is hashed onto all."""
    place = (value >> 16) / HASH_VALUES
    for spine, share in favoured.items():
        extra = (share - 1 / len(spines)) / (1 - 1 / len(spines)) if len(spines) > 1 else 0.0
        if place < extra:
            return spine
        place -= extra
    return spines[value % len(spines)]
