"""What the host knows of the devices below those of pods: its links, virtual functions and RDMA devices."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.pci import pci_function
from exporter.linux.rdma_reader import KernelRdma
from exporter.sources.pods.virtual_functions import Functions, find_functions

MAX_RDMA_DEVICES = 4096
"""RDMA devices that are looked at; a card has one for each of its functions."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """As of some time in the last minute, or of when a device in a pod last appeared.

    Attributes:
        links: The links of the host by index.
        functions: The virtual functions of its ports.
        rdma: Names of RDMA devices by PCI address, of several in their order.
        shares_rdma: Whether all namespaces see all RDMA devices; None if not known, as without RDMA.
    """

    links: Mapping[int, NetworkLink] = field(default_factory=lambda: MappingProxyType({}))
    functions: Functions = field(default_factory=lambda: Functions({}, {}))
    rdma: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    shares_rdma: bool | None = None

    def rdma_of(self, link: NetworkLink | None) -> str:
        """Return the RDMA devices of the PCI function of a link."""
        is_pci = link is not None and link.parent_dev_bus_name == "pci"
        return self.rdma.get(link.parent_dev_name or "", "") if link is not None and is_pci else ""


def read_host_facts(sysfs: Path, reader: NicReader, read_sharing: Callable[[], bool | None]) -> HostFacts:
    """Read them; blocks. `read_sharing` returns `shares_rdma`.

    Raises:
        OSError: The links cannot be read.
    """
    links = reader.links()
    found = HostFacts({one.ifindex: one for one in links}, find_functions(sysfs, links), _rdma_devices(sysfs))
    if not os.path.exists(sysfs / "class" / "infiniband"):  # noqa: PTH110  # the request would load modules
        return found
    with suppress(OSError):
        return replace(found, shares_rdma=read_sharing())
    return found


def read_rdma_sharing() -> bool | None:
    """Return whether all namespaces see all RDMA devices; blocks.

    Raises:
        OSError: The kernel has no RDMA, or refuses.
    """
    with closing(KernelRdma()) as reader:
        return reader.is_shared()


def _rdma_devices(sysfs: Path) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    try:
        devices = sorted((sysfs / "class" / "infiniband").iterdir())
    except OSError:
        return {}
    for device in devices[:MAX_RDMA_DEVICES]:
        function = pci_function(device)
        if function is not None:
            found.setdefault(function.name, []).append(device.name)
    return {address: ",".join(names) for address, names in found.items()}
