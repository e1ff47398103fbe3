"""Where a device of sysfs sits: its PCI address, its driver, and the network device that shares its port."""

import re
from pathlib import Path

from exporter.linux.kept import read_text

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_address(device: Path) -> str:
    """Give the PCI address of a class device, the nearest one above it on the bus; empty where there is none.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.
    """
    link = device / "device"
    if not link.exists():
        return ""
    return next((part for part in reversed(link.resolve().parts) if _ADDRESS.fullmatch(part)), "")


def driver(device: Path) -> str:
    """Give the name of the driver that a class device is bound to; empty where it is not told."""
    for line in read_text(device / "device" / "uevent").splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            return value
    return ""


def netdev_of_port(device: Path, port: int) -> str:
    """Name the network device of a port of an RDMA device, or empty where it is none, or not clear which.

    Several network devices of one function are told apart by dev_port (mlx4), then by phys_port_name: the uplink is
    `p0`, the others are representors.
    """
    folder = device / "device" / "net"
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ""
    if len(names) > 1:
        names = [name for name in names if read_text(folder / name / "dev_port") in {str(port - 1), ""}]
    if len(names) > 1:
        names = [name for name in names if re.fullmatch(r"p\d+", read_text(folder / name / "phys_port_name"))]
    return names[0] if len(names) == 1 else ""


def bus_order(address: str, name: str) -> tuple[object, ...]:
    """Give a key that sorts devices by PCI address, and those without one by the numbers in their names."""
    return (not address, address, [(len(part), part) for part in re.findall(r"\d+|\D+", name)])
