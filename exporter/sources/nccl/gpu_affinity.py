"""Affinity of GPUs and RDMA devices by shared PCI bridges, and the names of RDMA ports."""

import os
import re
from contextlib import suppress
from pathlib import Path

from exporter.linux.cached_file import read_text
from exporter.linux.pci import (
    ADDRESS,
    pci_function,
    pci_sort_key,
    upstream_path,
)
from exporter.sources.pci.topology import nearest

MAX_GPUS = 64
"""GPUs of this host that are read."""

MAX_NETDEVS = 4
"""Network devices per RDMA device: that of the port, and some representors of virtual functions."""

_NAME = re.compile(r"[!-+\--<>-~]{1,128}", re.ASCII)
"""Names that can be part of a list: printable, without comma and equals sign."""

_UUID = re.compile(r"^GPU UUID:\s*(?:GPU-)?([0-9a-fA-F-]{8,40})\s*$", re.MULTILINE)


def pci_address_of(gpu: str, procfs: Path) -> str:
    """Return the PCI address of a GPU as sysfs writes it; a UUID is returned unchanged where the driver lists no GPU.

    Args:
        gpu: Address or UUID as a job reports it; may be empty.
        procfs: Root of procfs, where NVIDIA's driver has a folder for each GPU.
    """
    lower = gpu.lower()
    if ADDRESS.fullmatch(lower):
        domain, rest = lower.split(":", 1)
        return f"{int(domain, 16):04x}:{rest}"
    uuid = lower.removeprefix("gpu-")
    if not uuid:
        return ""
    with suppress(OSError):
        for place, folder in enumerate((procfs / "driver" / "nvidia" / "gpus").iterdir()):
            if place >= MAX_GPUS:
                break
            found = _UUID.search(read_text(folder / "information"))
            if found and found[1].lower() == uuid and ADDRESS.fullmatch(folder.name.lower()):
                return pci_address_of(folder.name, procfs)
    return gpu


def port_names(sysfs: Path, device: str) -> str:
    """Return the names of the first port of an RDMA device: NCCL's, network devices, and PCI address.

    Args:
        sysfs: Root of sysfs.
        device: RDMA device.

    Returns:
        The names separated by `=`, such as mlx5_0:1=ens1f0np0=0000:17:00.0.
    """
    folder = sysfs / "class" / "infiniband" / device
    found = [f"{device}:1"]
    with suppress(OSError):
        found += sorted(one.name for one in (folder / "device" / "net").iterdir())[:MAX_NETDEVS]
    place = pci_function(folder)
    found += [] if place is None else [place.name]
    return "=".join(one for one in found if _NAME.fullmatch(one))


def nearest_devices(sysfs: Path, gpu: str) -> list[str]:
    """Return the RDMA devices with the most PCI bridges in common with a GPU; empty where none has any.

    Virtual functions are omitted where the physical function is visible.

    Args:
        sysfs: Root of sysfs.
        gpu: PCI address of the GPU.
    """
    function = sysfs / "bus" / "pci" / "devices" / gpu
    if not ADDRESS.fullmatch(gpu) or not os.path.exists(function):  # noqa: PTH110  # it never raises
        return []
    ways = {}
    addresses = {}
    with suppress(OSError):
        for device in (sysfs / "class" / "infiniband").iterdir():
            place = pci_function(device)
            if place is not None and not os.path.lexists(place / "physfn"):
                ways[device.name], addresses[device.name] = upstream_path(place), place.name
    found = nearest(upstream_path(Path(os.path.realpath(function))), ways)
    return sorted(found, key=lambda name: pci_sort_key(addresses[name], name))
