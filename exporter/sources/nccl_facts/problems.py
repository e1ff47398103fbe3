"""What it means that a process talks to the others in the way it does: the problems that NCCL's logs show, as data.

Each is a question to one process, whose answer is None where its log does not tell. None of them proves that a job is
slow: they are what people found behind jobs that were.
"""

from collections.abc import Callable
from typing import NamedTuple

from exporter.sources.nccl_facts.state import Process

SHORT_TIMEOUT = 18
"""Value of NCCL_IB_TIMEOUT that NCCL had as its default at first: with less, a loss or a flap ends the job."""


class Cause(NamedTuple):
    """One problem.

    Attributes:
        name: Label of it.
        meaning: What is so, to follow "processes".
        holds: Asks a process.
    """

    name: str
    meaning: str
    holds: Callable[[Process], bool | None]


def _setting(name: str, value: str) -> Callable[[Process], bool | None]:
    return lambda process: process.settings[name] == value if name in process.settings else None


def _mixed(process: Process) -> bool | None:
    return len({adapter.link for adapter in process.adapters}) > 1 if process.adapters else None


def _bonded(process: Process) -> bool | None:
    return any("bond" in adapter.device for adapter in process.adapters) if process.adapters else None


def _gdr(word: str) -> Callable[[Process], bool | None]:
    return lambda process: process.gdr == word if process.gdr else None


def _short_timeout(process: Process) -> bool | None:
    value = process.settings.get("NCCL_IB_TIMEOUT", "")
    return int(value) < SHORT_TIMEOUT if value.isascii() and value.isdigit() and len(value) <= 3 else None


def _gdr_forbidden(process: Process) -> bool | None:
    value = process.settings.get("NCCL_NET_GDR_LEVEL")
    return None if value is None else value in {"0", "LOC"}


CAUSES = (
    Cause("tcp", "that reach other nodes by TCP", lambda process: process.tcp),
    Cause(
        "no_adapter",
        "that found no RDMA device",
        lambda process: process.missing == "no_device" if process.missing or process.adapters else None,
    ),
    Cause(
        "no_libibverbs",
        "that lack libibverbs",
        lambda process: process.missing == "no_library" if process.missing or process.adapters else None,
    ),
    Cause(
        "provider_tcp",
        "whose libfabric chose a provider of TCP in the place of that of the adapter",
        lambda process: (
            process.provider.startswith("tcp") or "sockets" in process.provider if process.provider else None
        ),
    ),
    Cause("gdr_off", "without GPUDirect RDMA", _gdr("off")),
    Cause("gdr_partly", "with GPUDirect RDMA on some channels only", _gdr("partly")),
    Cause("gdr_too_far", "with a GPU too far from an adapter for GPUDirect RDMA", lambda process: process.too_far),
    Cause("gdr_forbidden", "whose NCCL_NET_GDR_LEVEL forbids GPUDirect RDMA", _gdr_forbidden),
    Cause("adapter_across_processor", "with a GPU that reaches no adapter but by a processor", lambda one: one.far),
    Cause("mixed_links", "that may use both InfiniBand and RoCE", _mixed),
    Cause("bonded_adapter", "that may use a bond, which is often that of the management network", _bonded),
    Cause("adapter_given_up", "that gave an adapter up and did not get it back", lambda one: bool(one.failed) or None),
    Cause("connection_establishment", "with enhanced connection establishment (ECE)", lambda process: process.ece),
    Cause(
        "memory_protection",
        "whose transfers failed for the protection of memory, as with PCIe ACS or an IOMMU",
        lambda process: process.protection_errors or None,
    ),
    Cause("short_timeout", "whose NCCL_IB_TIMEOUT is below 18, once the default", _short_timeout),
    Cause("ib_disabled", "with NCCL_IB_DISABLE", _setting("NCCL_IB_DISABLE", "1")),
    Cause("p2p_disabled", "with NCCL_P2P_DISABLE", _setting("NCCL_P2P_DISABLE", "1")),
    Cause("shm_disabled", "with NCCL_SHM_DISABLE", _setting("NCCL_SHM_DISABLE", "1")),
)
"""All problems that are looked for."""
