"""Which network device belongs to an RDMA port, and whether that is an uplink or somebody's representor."""

import re
from pathlib import Path

from exporter.linux.cached_file import read_text
from exporter.linux.pci import netdev_of_port, pci_address

_UPLINK = re.compile(r"(p\d+)?")
"""phys_port_name of an uplink: `p0`, or none where the card is not switched; a representor's is `pf0vf3`."""

CARD_PORTS = 4
"""Ports that a card can have by itself. Those of higher numbers are behind its switch: their GIDs alone tell."""


def netdev_by_files(net: Path, device: Path, number: int, *, several: bool) -> str:
    """Name the network device of a port, where the kernel was not asked; empty where it is none, or not clear which.

    A GID's name is that of the network namespace that the device is used in, so it counts only where a network device
    of that name sits on the same card here.

    Args:
        net: /sys/class/net.
        device: Folder of the RDMA device.
        number: Number of the port.
        several: Whether the device has several ports, which may be on several PCI functions.
    """
    if several:
        named = read_text(device / "ports" / str(number) / "gid_attrs" / "ndevs" / "0")
        if named and "/" not in named and _same_card(net / named, device):
            return named
    name = netdev_of_port(device, number) if number <= CARD_PORTS else ""
    if name and several:
        told = read_text(device / "device" / "net" / name / "dev_port")
        if told != str(number - 1) and (told or number > 1):
            return ""
    return name


def is_uplink(net: Path, netdev: str) -> bool:
    """Tell a port of the card from one behind its switch; what has no network device here is not known to be either."""
    return not netdev or _UPLINK.fullmatch(read_text(net / netdev / "phys_port_name")) is not None


def _same_card(one: Path, other: Path) -> bool:
    """Tell whether two class devices are functions of one card."""
    slots = [pci_address(device).rpartition(".")[0] for device in (one, other)]
    return slots[0] == slots[1] != ""
