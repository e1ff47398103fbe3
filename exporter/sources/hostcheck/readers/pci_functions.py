"""PCI functions of network and RDMA devices, and of GPUs, from sysfs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from exporter.linux.cached_file import read_once, read_text
from exporter.linux.pci import is_virtual_function, parse_link_lanes, parse_link_speed, upstream_bridge, upstream_path
from exporter.preflight.facts import PciFacts, PciLink
from exporter.sources.common.cpu_lists import parse_cpu_list
from exporter.sources.pci.topology import find_functions, find_gpus

Parsed = TypeVar("Parsed")

MAX_INTERRUPTS = 1024
"""Interrupts of one function that are read; mlx5 has one for each queue."""


class Roots(NamedTuple):
    """Mount points of sysfs and procfs."""

    sysfs: Path
    procfs: Path


def read_functions(roots: Roots) -> Sequence[PciFacts]:
    """Read the functions of network and RDMA devices; blocks.

    Raises:
        OSError: They cannot be listed.
    """
    functions = find_functions(roots.sysfs, lambda _: True)
    return [_read_function(roots, one.folder, tuple(one.devices)) for one in functions.values()]


def read_gpus(roots: Roots) -> Sequence[PciFacts]:
    """Read the functions of GPUs; blocks.

    Raises:
        OSError: They cannot be listed.
    """
    devices = roots.sysfs / "bus" / "pci" / "devices"
    folders = [Path(os.path.realpath(devices / address)) for address in sorted(find_gpus(roots.sysfs))]
    return [_read_function(roots, folder, ()) for folder in folders]


def _read_function(roots: Roots, folder: Path, devices: Sequence[str]) -> PciFacts:
    is_active = read_text(folder / "power" / "runtime_status") != "suspended"
    is_virtual = is_virtual_function(folder)
    return PciFacts(
        address=folder.name,
        devices=devices,
        path=tuple(upstream_path(folder)),
        link=_read_link(folder) if is_active and not is_virtual else PciLink(),
        numa_node=_numa_node(read_text(folder / "numa_node")),
        iommu=_iommu(folder),
        interrupts=_interrupts(roots, folder),
        is_virtual=is_virtual,
        is_active=is_active,
    )


def _read_link(folder: Path) -> PciLink:
    bridge = upstream_bridge(folder)
    return PciLink(
        speed=_parsed(folder / "current_link_speed", parse_link_speed),
        lanes=_parsed(folder / "current_link_width", parse_link_lanes),
        max_speed=_parsed(folder / "max_link_speed", parse_link_speed),
        max_lanes=_parsed(folder / "max_link_width", parse_link_lanes),
        bridge_speed=None if bridge is None else _parsed(bridge / "max_link_speed", parse_link_speed),
        bridge_lanes=None if bridge is None else _parsed(bridge / "max_link_width", parse_link_lanes),
    )


def _parsed(file: Path, parse: Callable[[bytes], Parsed | None]) -> Parsed | None:
    """Parse a file; None if it cannot be read or is malformed, which the source `pci` reports."""
    data = read_once(file)
    try:
        return None if data is None else parse(data)
    except ValueError:
        return None


def _numa_node(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _iommu(folder: Path) -> str | None:
    """Return the type of the IOMMU group; empty without one, None where the kernel (before 5.11) has no such file."""
    if not os.path.lexists(folder / "iommu_group"):
        return ""
    return read_text(folder / "iommu_group" / "type") or None


def _interrupts(roots: Roots, folder: Path) -> tuple[int, int] | None:
    """Count the message-signalled interrupts on CPUs near the function, and all whose CPUs are known."""
    try:
        numbers = sorted(os.listdir(folder / "msi_irqs"), key=len)[:MAX_INTERRUPTS]  # noqa: PTH208  # names alone
        near = parse_cpu_list(read_text(folder / "local_cpulist"))
    except (OSError, ValueError):
        return None
    local = total = 0
    for number in numbers:
        place = roots.procfs / "irq" / number
        text = read_text(place / "effective_affinity_list") or read_text(place / "smp_affinity_list")
        try:
            cpus = parse_cpu_list(text)
        except ValueError:
            continue
        if cpus:
            total += 1
            local += bool(cpus & near)
    return (local, total) if total or not numbers else None
