"""Search for the PCI functions of network and RDMA devices, and for the GPUs nearest to each."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.linux.cached_file import read_text
from exporter.linux.pci import pci_function, upstream_path
from exporter.sources.common.host_ports import is_representor

CLASSES = ("net", "infiniband")
"""Device classes of sysfs that are searched."""

GPU_CLASSES = MappingProxyType(
    {
        "0x10de": ("0x0300", "0x0302"),  # NVIDIA
        "0x1002": ("0x0300", "0x0380", "0x1200"),  # AMD
        "0x8086": ("0x0380",),  # Intel; its 0x0300 is the graphics of the CPU
        "0x1da3": ("0x1200",),  # Habana
    }
)
"""By vendor, the PCI classes of GPUs: VGA, 3D and display controllers, and processing accelerators."""


class PciFunction(NamedTuple):
    """A function: its sysfs folder, the names of its network and RDMA devices, the addresses of the nearest GPUs."""

    folder: Path
    devices: list[str]
    nearest_gpus: list[str]


def find_functions(sysfs: Path, is_selected: Callable[[str], bool]) -> dict[str, PciFunction]:
    """Find the PCI functions of network and RDMA devices, by address; blocks.

    Virtual functions are skipped where their physical function is visible: there may be hundreds, all behind its link.

    Args:
        sysfs: Root of sysfs.
        is_selected: Returns whether the function of an address may be read.

    Raises:
        OSError: A folder cannot be listed.
    """
    devices: dict[Path, list[Path]] = {}
    for name in CLASSES:
        for device in list_folder(sysfs / "class" / name):
            function = pci_function(device)
            if function is not None and is_selected(function.name):
                devices.setdefault(function, []).append(device)
    functions = sorted((one for one in devices if not os.path.lexists(one / "physfn")), key=lambda one: one.name)
    gpus = find_gpus(sysfs) if functions else {}
    return {
        one.name: PciFunction(one, _device_names(devices[one]), nearest(upstream_path(one), gpus)) for one in functions
    }


def list_folder(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder; none if it does not exist."""
    with suppress(FileNotFoundError):
        yield from folder.iterdir()


def _device_names(devices: Sequence[Path]) -> list[str]:
    """Return the names of the devices of one function, without representors: there may be hundreds."""
    net = [one for one in devices if one.parent.name == "net"]
    has_several = len(net) > 1  # older kernels take a lock to read phys_port_name, so it is not read of a single device
    representors = {one for one in net if has_several and is_representor(read_text(one / "phys_port_name"))}
    return sorted({one.name for one in devices if one not in representors})


def find_gpus(sysfs: Path) -> dict[str, list[str]]:
    """Return the bridges above each GPU, by its address."""
    return {
        function.name: upstream_path(Path(os.path.realpath(function)))
        for function in list_folder(sysfs / "bus" / "pci" / "devices")
        if read_text(function / "class")[: len("0x0300")] in GPU_CLASSES.get(read_text(function / "vendor"), ())
        and not os.path.lexists(function / "physfn")
    }


def nearest(bridges: Sequence[str], others: Mapping[str, Sequence[str]]) -> list[str]:
    """Return those that share the most bridges, counted from the host bridge down; none if no one shares any.

    Args:
        bridges: The bridges above one function, from the host bridge down.
        others: The bridges above each of the others, by address.
    """
    shared = {
        name: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(bridges, other, strict=False)))
        for name, other in others.items()
    }
    most = max(shared.values(), default=0)
    return sorted(name for name, count in shared.items() if count == most > 0)
