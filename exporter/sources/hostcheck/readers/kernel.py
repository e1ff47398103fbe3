"""The kernel: release, modules, peer memory, NUMA, and frequency of the CPUs."""

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

from exporter.linux.cached_file import read_text
from exporter.linux.untrusted_files import read_untrusted
from exporter.preflight.facts import KernelFacts
from exporter.sources.common.cpu_lists import parse_cpu_list

PEER_MEMORY = (
    "kernel/mm/memory_peers/nv_mem/version",
    "kernel/mm/memory_peers/nv_mem_nc/version",
    "kernel/mm/memory_peers/amdkfd/version",
    "kernel/memory_peers/amdkfd/version",
    "memory_peers/amdkfd/version",
    "module/nvidia_peermem/version",
)
"""Files of sysfs of which NCCL and RCCL take any as a peer-memory interface."""

MAX_MODULES = 1 << 20
MAX_CPUINFO = 1 << 16
"""Bytes that are read of the lists of modules and CPUs."""

_CPU = re.compile(r"cpu\d{1,5}")

MAX_CPUS = 4096
"""CPUs whose governor is read."""


def read_kernel(sysfs: Path, procfs: Path) -> KernelFacts:
    """Read the facts; what cannot be read is unknown. Blocks."""
    settings = procfs / "sys" / "kernel"
    balancing = read_text(settings / "numa_balancing")
    policy = sysfs / "devices" / "system" / "cpu"
    return KernelFacts(
        release=read_text(settings / "osrelease"),
        modules=_modules(procfs),
        peer_memory=any(os.path.lexists(sysfs / file) for file in PEER_MEMORY),
        nvidia=read_text(procfs / "driver" / "nvidia" / "version"),
        numa_balancing=int(balancing) if balancing in {"0", "1", "2", "3"} else None,
        has_numa_balancing=os.path.lexists(settings / "numa_balancing") or not settings.is_dir(),
        numa_nodes=_numa_nodes(sysfs),
        governors=_governors(policy),
        governor_driver=read_text(policy / "cpu0" / "cpufreq" / "scaling_driver"),
        is_guest=_is_guest(procfs),
    )


def _modules(procfs: Path) -> frozenset[str] | None:
    try:
        data, _ = read_untrusted(str(procfs / "modules"), MAX_MODULES)
    except OSError:
        return None
    return frozenset(line.split()[0] for line in data.decode("ascii", "replace").splitlines() if line.strip())


def _numa_nodes(sysfs: Path) -> int | None:
    with suppress(ValueError):
        return len(parse_cpu_list(read_text(sysfs / "devices" / "system" / "node" / "has_cpu"))) or None
    return None


def _governors(folder: Path) -> dict[str, int] | None:
    """Count the CPUs by their governor; None if the CPUs cannot be listed, or the governor of one cannot be read."""
    try:
        names = [name for name in os.listdir(folder) if _CPU.fullmatch(name)]  # noqa: PTH208  # names alone
    except OSError:
        return None
    files = [folder / name / "cpufreq" / "scaling_governor" for name in names[:MAX_CPUS]]
    texts = {file: read_text(file) for file in files}
    if any(not text and os.path.lexists(file) for file, text in texts.items()):
        return None
    return dict(Counter(text for text in texts.values() if text))


def _is_guest(procfs: Path) -> bool | None:
    """Return whether CPUs have the flag `hypervisor`; None where /proc/cpuinfo shows no flags, as on Arm."""
    with suppress(OSError):
        data, _ = read_untrusted(str(procfs / "cpuinfo"), MAX_CPUINFO)
        for line in data.splitlines():
            if line.startswith(b"flags"):
                return b"hypervisor" in line.split()
    return None
