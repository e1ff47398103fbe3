"""Known causes of slow or failing jobs that NCCL's logs show, as a table.

Each is a check of one process, which returns None where its log does not contain the answer. None of them proves that a
job is slow: they are causes that were found behind jobs that were.
"""

from collections.abc import Callable
from typing import NamedTuple

from exporter.sources.nccl_facts.log_process import LoggedProcess

MIN_IB_TIMEOUT = 18
"""An early default of NCCL_IB_TIMEOUT: with a lower value, packet loss or a link flap ends the job."""


class Problem(NamedTuple):
    """One known cause.

    Attributes:
        name: Label value.
        meaning: Relative clause that follows "processes" in the help text.
        check: Returns whether a process has the problem; None if unknown.
    """

    name: str
    meaning: str
    check: Callable[[LoggedProcess], bool | None]


def _setting(name: str, value: str) -> Callable[[LoggedProcess], bool | None]:
    return lambda process: process.settings[name] == value if name in process.settings else None


def _mixed(process: LoggedProcess) -> bool | None:
    return len({adapter.link for adapter in process.adapters}) > 1 if process.adapters else None


def _bonded(process: LoggedProcess) -> bool | None:
    return any("bond" in adapter.device for adapter in process.adapters) if process.adapters else None


def _gdr(value: str) -> Callable[[LoggedProcess], bool | None]:
    return lambda process: process.gdr == value if process.gdr else None


def _short_timeout(process: LoggedProcess) -> bool | None:
    value = process.settings.get("NCCL_IB_TIMEOUT", "")
    return int(value) < MIN_IB_TIMEOUT if value.isascii() and value.isdigit() and len(value) <= 3 else None


def _gdr_disabled(process: LoggedProcess) -> bool | None:
    value = process.settings.get("NCCL_NET_GDR_LEVEL")
    return None if value is None else value in {"0", "LOC"}


PROBLEMS = (
    Problem("tcp", "that use TCP between nodes", lambda process: process.tcp),
    Problem(
        "no_adapter",
        "that found no RDMA device",
        lambda process: process.missing == "no_device" if process.missing or process.adapters else None,
    ),
    Problem(
        "no_libibverbs",
        "without libibverbs",
        lambda process: process.missing == "no_library" if process.missing or process.adapters else None,
    ),
    Problem(
        "provider_tcp",
        "whose libfabric selected a TCP provider instead of that of the NIC",
        lambda process: (
            process.provider.startswith("tcp") or "sockets" in process.provider if process.provider else None
        ),
    ),
    Problem("gdr_off", "without GPUDirect RDMA", _gdr("off")),
    Problem("gdr_partial", "with GPUDirect RDMA on some channels only", _gdr("partial")),
    Problem("gdr_too_far", "with a GPU too far from its NIC for GPUDirect RDMA", lambda process: process.too_far),
    Problem("gdr_disabled", "whose NCCL_NET_GDR_LEVEL disables GPUDirect RDMA", _gdr_disabled),
    Problem("adapter_across_cpu", "with a GPU whose path to every NIC crosses a CPU", lambda one: one.crosses_cpu),
    Problem("mixed_link_layers", "that may use both InfiniBand and RoCE", _mixed),
    Problem("bonded_adapter", "that may use a bond, which is often that of the management network", _bonded),
    Problem("adapter_failed", "with a NIC that failed and did not recover", lambda one: bool(one.failed) or None),
    Problem("ece", "with enhanced connection establishment (ECE)", lambda process: process.ece),
    Problem(
        "protection_errors",
        "with local protection errors (IBV_WC_LOC_PROT_ERR), as caused by PCIe ACS or an IOMMU",
        lambda process: process.protection_errors or None,
    ),
    Problem("short_timeout", "whose NCCL_IB_TIMEOUT is below 18, an early default", _short_timeout),
    Problem("ib_disabled", "with NCCL_IB_DISABLE", _setting("NCCL_IB_DISABLE", "1")),
    Problem("p2p_disabled", "with NCCL_P2P_DISABLE", _setting("NCCL_P2P_DISABLE", "1")),
    Problem("shm_disabled", "with NCCL_SHM_DISABLE", _setting("NCCL_SHM_DISABLE", "1")),
)
"""All problems that are checked."""
