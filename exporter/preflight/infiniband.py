"""InfiniBand: ports that a subnet manager configured, and their partitions."""

from collections.abc import Iterator

from exporter.preflight.facts import HostFacts, RdmaPortFacts
from exporter.preflight.link_layers import INFINIBAND, of_known_layers
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown, warn

DISABLED, LINK_UP = 3, 5
"""PortPhysicalState of a port that is switched off, and of one whose link is up."""

NO_STATE = "sysfs does not show the state of the port"

FULL_MEMBER = 0x8000
"""Bit of a partition key: a full member; two limited members cannot communicate."""


def _ports(facts: HostFacts) -> list[RdmaPortFacts]:
    return [one for one in facts.rdma_ports if one.link_layer == INFINIBAND]


def _state(facts: HostFacts) -> Iterator[Finding]:
    for one in _ports(facts):
        if one.state is None or one.physical_state is None:
            yield unknown(one.name, NO_STATE)
        elif one.is_active:
            yield ok(one.name, "active")
        elif one.physical_state == LINK_UP and not one.sm_lid:
            yield fail(
                one.name,
                "the link is up, and no subnet manager configured the port",
                "Start or reach the subnet manager (opensm, UFM), or admit the GUID of the port there; a new sweep"
                " changes no other port",
            )
        elif one.physical_state == DISABLED:
            yield not_applicable(one.name, "the port is disabled")
        else:
            yield warn(
                one.name,
                f"not active (state {one.state}, physical state {one.physical_state})",
                "Check cable and peer where this port should be in use; a port without a cable needs nothing",
            )


def _subnet_manager(facts: HostFacts) -> Iterator[Finding]:
    """Compare the subnet managers of ports with one subnet prefix, as GID 0 has it."""
    active = [one for one in _ports(facts) if one.is_active]
    yield from (unknown(one.name, NO_STATE) for one in _ports(facts) if one.state is None)
    for one in active:
        prefix = _prefix(one)
        if one.sm_lid is None or prefix is None:
            yield unknown(one.name, "sysfs does not show the LID of the subnet manager, or the GID of the port")
            continue
        others = {other.sm_lid for other in active if _prefix(other) == prefix and other.sm_lid is not None}
        if len(others) == 1:
            yield ok(one.name, f"subnet manager at LID {one.sm_lid}")
        else:
            yield warn(
                one.name,
                f"subnet manager at LID {one.sm_lid}; ports with the same subnet prefix have {len(others)}",
                "If the rails are one fabric, find the second master (ib sweep of this exporter lists them). If they"
                " are several fabrics, give each a subnet prefix of its own; that restarts the fabric",
            )


def _prefix(port: RdmaPortFacts) -> bytes | None:
    return next((gid.address[:8] for gid in port.gids or () if gid.index == 0), None)


def _partition(facts: HostFacts) -> Iterator[Finding]:
    for one in _ports(facts):
        if one.state is None:
            yield unknown(one.name, NO_STATE)
        elif not one.is_active:
            yield not_applicable(one.name, "the port is not active")
        elif one.pkeys is None:
            yield unknown(one.name, "sysfs does not show the partition keys")
        elif any(key & FULL_MEMBER for key in one.pkeys):
            yield ok(one.name, "full member of " + ", ".join(f"0x{key:04x}" for key in one.pkeys if key & FULL_MEMBER))
        elif one.pkeys:
            keys = ", ".join(f"0x{key:04x}" for key in one.pkeys)
            yield warn(
                one.name,
                f"limited member of {keys} only: two limited members cannot communicate",
                "Make the port a full member in the partitions of the subnet manager; its connections are made again",
            )
        else:
            yield fail(
                one.name,
                "the port is a member of no partition",
                "Add the port to a partition of the subnet manager; its connections are made again",
            )


CHECKS = (
    Check("infiniband_port", "InfiniBand ports are active", ("rdma_ports",), of_known_layers(_state)),
    Check(
        "infiniband_subnet_manager",
        "Ports of one subnet have one subnet manager",
        ("rdma_ports",),
        of_known_layers(_subnet_manager),
    ),
    Check(
        "infiniband_partition", "Ports are full members of a partition", ("rdma_ports",), of_known_layers(_partition)
    ),
)
