"""GPUDirect RDMA: an interface for GPU memory, and an adapter near each GPU."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from exporter.preflight.facts import HostFacts, PciFacts
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown, warn

OPEN_MODULE = "Open Kernel Module"
"""In the version text of NVIDIA's open kernel module, which exports memory by DMA-BUF."""

DMABUF_RELEASE = (5, 12)
"""First Linux whose RDMA registers DMA-BUFs."""

PEER_MODULES = frozenset({"nvidia_peermem", "nv_peer_mem"})

_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})")

LOAD = (
    "modprobe nvidia_peermem after RDMA drivers that have its interface (DOCA, MLNX_OFED): jobs use it when they start"
    " again. Or use NVIDIA's open kernel module with Linux 5.12 or newer (DMA-BUF), for which the GPUs must be idle"
)


def _has_dmabuf_kernel(release: str) -> bool | None:
    found = _RELEASE.match(release)
    return None if found is None else (int(found[1]), int(found[2])) >= DMABUF_RELEASE


def _interface(facts: HostFacts) -> Iterator[Finding]:
    """Report a fault only where neither way can work: a missing peer-memory module alone is none."""
    kernel = facts.kernel
    if not facts.gpus or not facts.rdma_ports:
        return
    is_recent = _has_dmabuf_kernel(kernel.release)
    if kernel.peer_memory:
        yield ok(facts.host, "a peer-memory interface is registered")
    elif OPEN_MODULE in kernel.nvidia and is_recent:
        yield ok(facts.host, f"NVIDIA's open kernel module and Linux {kernel.release} have DMA-BUF")
    elif kernel.modules is not None and PEER_MODULES & kernel.modules:
        yield warn(
            facts.host,
            "the peer-memory module is loaded, but registered no interface with the RDMA drivers",
            "Rebuild the module for the RDMA drivers in use, and load in this order: nvidia, ib_core, nvidia_peermem;"
            " the GPUs must be idle",
        )
    elif kernel.nvidia and (OPEN_MODULE not in kernel.nvidia or is_recent is False):
        module = "an older Linux" if OPEN_MODULE in kernel.nvidia else "NVIDIA's closed kernel module"
        yield fail(
            facts.host,
            f"no peer-memory interface, and {module} without DMA-BUF: NCCL copies through the memory of the CPU",
            LOAD,
        )
    else:
        yield unknown(facts.host, "the driver of the GPUs is not visible; NCCL's log has GDRDMA where it is used")


def shared_bridges(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many entries two paths have in common, from the host bridge down; 1 is the host bridge alone."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _nearest_adapter(facts: HostFacts) -> Iterator[Finding]:
    """Judge the shortest way from each GPU to an RDMA device: below one bridge, one socket, or another socket."""
    devices = {one.device for one in facts.rdma_ports}
    adapters = [one for one in facts.functions if devices & set(one.devices) and not one.is_virtual]
    for gpu in facts.gpus:
        if not adapters:
            return
        if facts.kernel.is_guest:
            yield not_applicable(gpu.address, "a virtual machine shows no PCI switches")
            continue
        most = max(shared_bridges(gpu.path, one.path) for one in adapters)
        near = [one for one in adapters if shared_bridges(gpu.path, one.path) == most]
        yield _judge_nearest(gpu, near, adapters, most)


def _judge_nearest(gpu: PciFacts, near: Sequence[PciFacts], adapters: Sequence[PciFacts], shared: int) -> Finding:
    names = ", ".join(sorted({device for one in near for device in one.devices}))
    if shared > 1:
        return ok(gpu.address, f"shares a PCI bridge with {names}")
    same_socket = [one for one in adapters if one.numa_node is not None and one.numa_node == gpu.numa_node]
    if shared == 1 or same_socket:
        names = names if shared == 1 else ", ".join(sorted({name for one in same_socket for name in one.devices}))
        return warn(
            gpu.address,
            f"shares no PCI bridge with an adapter; {names} is on the same socket, and NCCL uses no GPUDirect that far"
            " by default",
            "Compare with the manual of the platform (on Grace NVLink-C2C serves); moving a card needs the host off. Do"
            " not raise NCCL_NET_GDR_LEVEL without a measurement",
        )
    if gpu.numa_node is None:
        return unknown(gpu.address, "the platform does not report NUMA nodes: see the topology in its manual")
    return warn(
        gpu.address,
        "all adapters are on other sockets, and NCCL uses no GPUDirect that far by default",
        "Move a card to a slot of this socket, with the host off, or bind the rank of this GPU to the nearest adapter",
    )


CHECKS = (
    Check(
        "gpudirect_interface", "GPU memory can be registered with RDMA", ("gpus", "rdma_ports", "kernel"), _interface
    ),
    Check(
        "gpu_adapter_distance",
        "Each GPU shares a PCI bridge with an adapter",
        ("gpus", "functions", "rdma_ports", "kernel"),
        _nearest_adapter,
    ),
)
