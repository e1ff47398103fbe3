"""Ports whose link layer cannot be read: they may be InfiniBand or Ethernet, so checks of both are unknown for them."""

from collections.abc import Callable, Iterable, Iterator

from exporter.preflight.facts import HostFacts
from exporter.preflight.results import Finding, unknown

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"


def of_known_layers(judge: Callable[[HostFacts], Iterable[Finding]]) -> Callable[[HostFacts], Iterator[Finding]]:
    """Return a check that also has an unknown result for each port whose link layer cannot be read."""

    def judged(facts: HostFacts) -> Iterator[Finding]:
        yield from judge(facts)
        for one in facts.rdma_ports:
            if one.link_layer not in {INFINIBAND, ETHERNET}:
                yield unknown(one.name, "sysfs does not show whether the port is InfiniBand or Ethernet")

    return judged
