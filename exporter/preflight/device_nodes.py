"""Character devices: without them programs find no RDMA device, and NCCL uses TCP."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from exporter.preflight.facts import HostFacts, Node
from exporter.preflight.results import Check, Finding, fail, ok, unknown, warn

WRONG: Mapping[Node, tuple[str, str]] = MappingProxyType(
    {
        Node.NOT_CREATED: (
            "the kernel has not created it",
            "Load the module {module}, also at boot; running programs have to start again to find it",
        ),
        Node.MISSING: (
            "the kernel has it, /dev/infiniband has not",
            (
                "In a container, pass its node (device plugin, --device); on the host, udevadm trigger"
                " --subsystem-match={subsystem} creates it. Running programs have to start again to find it"
            ),
        ),
        Node.DENIED: (
            "this user may not read and write it",
            "Give the node mode 0666 by a rule of udev (rdma-core has one), or add the user to its group",
        ),
    }
)
"""What was found, and what to do."""

MODULES: Mapping[str, str] = MappingProxyType({"uverbs": "ib_uverbs", "rdma_cm": "rdma_ucm"})
SUBSYSTEMS: Mapping[str, str] = MappingProxyType({"uverbs": "infiniband_verbs", "rdma_cm": "misc"})
"""Kernel modules of the nodes, and the subsystems of their events."""


def _nodes(facts: HostFacts) -> Iterator[Finding]:
    """A missing rdma_cm is no failure: NCCL does not use it, other libraries do."""
    devices = sorted({one.device for one in facts.rdma_ports})
    for device in devices:
        yield _judge(device, "uverbs", facts.device_nodes.verbs.get(device, Node.UNKNOWN), fail)
    if devices:
        yield _judge(facts.host, "rdma_cm", facts.device_nodes.connections, warn)


def _judge(name: str, kind: str, state: Node, wrong: Callable[[str, str, str], Finding]) -> Finding:
    if state is Node.PRESENT:
        return ok(name, f"{kind} is in /dev/infiniband")
    if state is Node.UNKNOWN:
        return unknown(name, f"whether programs can open {kind} is not known without their /dev: --path.dev")
    found, remedy = WRONG[state]
    return wrong(name, f"{kind}: {found}", remedy.format(module=MODULES[kind], subsystem=SUBSYSTEMS[kind]))


CHECKS = (Check("rdma_device_nodes", "Programs can open the RDMA devices", ("rdma_ports", "device_nodes"), _nodes),)
