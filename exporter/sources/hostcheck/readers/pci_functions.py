"""PCI functions of network and RDMA devices, and of GPUs, from sysfs."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from exporter.linux.cached_file import read_once, read_text
from exporter.linux.pci import is_virtual_function, parse_link_lanes, parse_link_speed, upstream_bridge, upstream_path
from exporter.linux.pci_config import PciConfig, read_pci_config
from exporter.preflight.facts import PciFacts, PciLink, PciRequests
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
    config_of = cache(_read_config)  # functions share bridges
    return [_read_function(roots, one.folder, tuple(one.devices), config_of) for one in functions.values()]


def read_gpus(roots: Roots) -> Sequence[PciFacts]:
    """Read the functions of GPUs; blocks.

    Raises:
        OSError: They cannot be listed.
    """
    devices = roots.sysfs / "bus" / "pci" / "devices"
    folders = [Path(os.path.realpath(devices / address)) for address in sorted(find_gpus(roots.sysfs))]
    config_of = cache(_read_config)
    return [_read_function(roots, folder, (), config_of) for folder in folders]


def _is_active(folder: Path) -> bool:
    return read_text(folder / "power" / "runtime_status") != "suspended"


def _read_config(folder: Path) -> PciConfig | None:
    """Read the configuration space; None if it cannot be read, or the function is suspended, which reading ends."""
    return read_pci_config(folder / "config") if _is_active(folder) else None


def _read_function(
    roots: Roots, folder: Path, devices: Sequence[str], config_of: Callable[[Path], PciConfig | None]
) -> PciFacts:
    is_active, is_virtual = _is_active(folder), is_virtual_function(folder)
    return PciFacts(
        address=folder.name,
        model=_model(folder),
        devices=devices,
        path=tuple(upstream_path(folder)),
        redirects=_redirects(folder, config_of),
        requests=None if is_virtual else _requests(config_of(folder)),
        link=_read_link(folder) if is_active and not is_virtual else PciLink(),
        numa_node=_numa_node(read_text(folder / "numa_node")),
        iommu=_iommu(folder),
        interrupts=_interrupts(roots, folder),
        is_virtual=is_virtual,
        is_active=is_active,
    )


def _model(folder: Path) -> str:
    ids = [read_text(folder / name).removeprefix("0x")[:4] for name in ("vendor", "device")]
    return ":".join(ids) if all(ids) else ""


def _redirects(folder: Path, config_of: Callable[[Path], PciConfig | None]) -> Mapping[str, Sequence[str] | None]:
    found = {}
    while (bridge := upstream_bridge(folder)) is not None:
        config = config_of(bridge)
        found[bridge.name] = None if config is None else config.redirects
        folder = bridge
    return found


def _requests(config: PciConfig | None) -> PciRequests | None:
    if (
        config is None
        or config.max_read_request is None
        or config.max_payload is None
        or config.relaxed_ordering is None
    ):
        return None
    return PciRequests(
        max_read_request=config.max_read_request,
        max_payload=config.max_payload,
        relaxed_ordering=config.relaxed_ordering,
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
