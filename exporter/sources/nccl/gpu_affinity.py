"""Which RDMA devices a GPU sits nearest to, by the PCI bridges that they share, and what else these are called."""

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
"""GPUs of this host that are looked at."""

MAX_NETDEVS = 4
"""Network devices of an RDMA device: the port's own, and some representors of virtual functions."""

_NAME = re.compile(r"[!-+\--<>-~]{1,128}", re.ASCII)
"""Names that can stand in a list: printable, without comma and equals sign."""

_UUID = re.compile(r"^GPU UUID:\s*(?:GPU-)?([0-9a-fA-F-]{8,40})\s*$", re.MULTILINE)


def address_of(told: str, procfs: Path) -> str:
    """Give the PCI address of a GPU as sysfs writes it; a UUID stays one where the driver does not tell whose it is.

    Args:
        told: Address or UUID as a job tells it; may be empty.
        procfs: Root of procfs, where NVIDIA's driver has a folder for each GPU.
    """
    lower = told.lower()
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
                return address_of(folder.name, procfs)
    return told


def names_of(sysfs: Path, device: str) -> str:
    """Give the first port of an RDMA device as NCCL spells it, and its other names: network devices and PCI address.

    Args:
        sysfs: Root of sysfs.
        device: Name of the device.

    Returns:
        Them with `=` between, such as mlx5_0:1=ens1f0np0=0000:17:00.0.
    """
    folder = sysfs / "class" / "infiniband" / device
    found = [f"{device}:1"]
    with suppress(OSError):
        found += sorted(one.name for one in (folder / "device" / "net").iterdir())[:MAX_NETDEVS]
    place = pci_function(folder)
    found += [] if place is None else [place.name]
    return "=".join(one for one in found if _NAME.fullmatch(one))


def nics_near(sysfs: Path, gpu: str) -> list[str]:
    """Name the RDMA devices that share the longest way from the host with a GPU; none where nobody shares any.

    Virtual functions are left out where the function of their port is here too.

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
