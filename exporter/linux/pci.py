"""The PCI function of a sysfs device, its driver and its network devices, and the attributes of PCI functions.

Attributes of a function's link and errors are parsed as drivers/pci/pci-sysfs.c and drivers/pci/pcie/aer.c of Linux
print them: bytes in, values out.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from exporter.linux.cached_file import read_text

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""Address of a function: domain, bus, device and function."""

_ID = re.compile(r"0x[0-9a-f]{4}")

_SPEED = re.compile(rb"(\d{1,4}(?:\.\d{1,3})?) GT/s\b.*")

MAX_DIGITS = 20
"""Digits of 2^64 - 1; a longer number is not a count."""

MAX_LANES = 32
"""Lanes of the widest link; devices without the value return more (63, 255)."""

VIRTUAL_FUNCTIONS: Mapping[int, frozenset[int]] = MappingProxyType(
    {
        # Mellanox, NVIDIA: mlx4, mlx5 (101e is shared by all since ConnectX-6 Dx), BlueField.
        0x15B3: frozenset({0x1002, 0x1004, 0x1012, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3}),
        # Broadcom: bnxt, about half of them those for Hyper-V; bnx2x.
        0x14E4: frozenset(
            {0x1606, 0x1607, 0x1608, 0x1609, 0x16BD, 0x16C1, 0x16C2, 0x16C3, 0x16C4, 0x16C5, 0x16CB, 0x16D3}
        )
        | frozenset({0x16DC, 0x16E1, 0x16E5, 0x16E6, 0x1806, 0x1807, 0x1808, 0x1809, 0x1819, 0x181B, 0xD800})
        | frozenset({0x163F, 0x166F, 0x16A9, 0x16AD, 0x16AF}),
        # Intel: iavf; ixgbevf; igbvf.
        0x8086: frozenset({0x0DD5, 0x154C, 0x1571, 0x1889, 0x37CD, 0x37D9})
        | frozenset({0x10ED, 0x1515, 0x152E, 0x1530, 0x1564, 0x1565, 0x15A8, 0x15A9, 0x15B4, 0x15C5, 0x57AD})
        | frozenset({0x10CA, 0x1520, 0x152F, 0x1F44}),
        # Chelsio: cxgb4vf, the fourth to the sixth generation.
        0x1425: frozenset({*range(0x4800, 0x4900), *range(0x5800, 0x5900), *range(0x6800, 0x6900)}),
        # Pensando: ionic.
        0x1DD8: frozenset({0x1003}),
        # Huawei: hns3, without and with RDMA.
        0x19E5: frozenset({0xA22E, 0xA22F}),
    }
)
"""Device IDs of virtual functions by vendor ID, from the PCI ID database and the tables of Linux's drivers.

The devices that clouds offer to their guests (gve, ena, mana, virtio, idpf) are not included: the guest sees no other
function that has the port.
"""


def pci_function(device: Path) -> Path | None:
    """Return the folder of the PCI function of a class device, the nearest one above it; None if there is none.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.
    """
    link = device / "device"
    if not os.path.exists(link):  # noqa: PTH110  # unlike Path's, it never raises
        return None
    resolved = Path(os.path.realpath(link))
    return next((folder for folder in (resolved, *resolved.parents) if ADDRESS.fullmatch(folder.name)), None)


def pci_address(device: Path) -> str:
    """Return the PCI address of a class device's function; empty if there is none."""
    function = pci_function(device)
    return "" if function is None else function.name


def is_virtual_function(function: Path) -> bool:
    """Return whether a PCI function is a virtual one: by its `physfn` on the host, by its IDs in a virtual machine.

    Args:
        function: Its folder, or a link to it such as `/sys/class/net/eth0/device`.
    """
    if os.path.exists(function / "physfn"):  # noqa: PTH110  # likewise
        return True
    return _id(function / "device") in VIRTUAL_FUNCTIONS.get(_id(function / "vendor"), ())


def is_network_function(function: Path) -> bool:
    """Return whether a PCI function is a network device, or one of InfiniBand: class 02 of PCI.

    Args:
        function: Its folder, or a link to it.
    """
    return read_text(function / "class").startswith("0x02")


def _id(file: Path) -> int:
    """Read a vendor or device ID, such as `0x15b3`; -1 if it is missing or malformed."""
    text = read_text(file)
    return int(text, 16) if _ID.fullmatch(text) else -1


def upstream_bridge(function: Path) -> Path | None:
    """Return the folder of the PCI bridge directly above a function; None if it is directly below the host bridge.

    Args:
        function: Its folder, resolved.
    """
    return function.parent if ADDRESS.fullmatch(function.parent.name) else None


def upstream_path(function: Path) -> list[str]:
    """List the bridges above a PCI function, from the host bridge (`pci0000:16`) down.

    Args:
        function: Its folder, resolved.
    """
    above = []
    topmost = function
    while (bridge := upstream_bridge(topmost)) is not None:
        above.append(bridge.name)
        topmost = bridge
    return [topmost.parent.name, *reversed(above)]


def parse_link_speed(text: bytes) -> float | None:
    """Parse `current_link_speed` or `max_link_speed`, such as `32.0 GT/s PCIe`, to transfers per second.

    None for `Unknown`.

    Raises:
        ValueError: It is neither.
    """
    found = _SPEED.fullmatch(text.strip())
    if found:
        return float(found[1]) * 1e9 or None
    if text.startswith(b"Unknown"):
        return None
    raise ValueError(f"not a link speed: {text[:40]!r}")


def parse_link_lanes(text: bytes) -> int | None:
    """Parse `current_link_width` or `max_link_width`; None for a number of lanes that no link has.

    Raises:
        ValueError: It is not a number.
    """
    digits = text.strip()
    if not digits.isdigit() or len(digits) > len("255"):
        raise ValueError(f"not a number of lanes: {text[:40]!r}")
    lanes = int(digits)
    return lanes if 0 < lanes <= MAX_LANES else None


def parse_aer_errors(text: bytes) -> int:
    """Parse the number of errors of `aer_dev_correctable` and the like: its total, or else the sum of its lines.

    A line is a name, which may contain spaces, and a number.

    Raises:
        ValueError: A line is malformed, or there are no lines.
    """
    total, errors = None, 0
    for line in text.split(b"\n"):
        name, _, count = line.strip().rpartition(b" ")
        if not line.strip():
            continue
        if not name or not count.isdigit() or len(count) > MAX_DIGITS:
            raise ValueError(f"not a count of errors: {line[:40]!r}")
        if name.startswith(b"TOTAL_ERR_"):
            total = int(count)
        errors += int(count)
    if not text.strip():
        raise ValueError("no counts of errors")
    return errors if total is None else total


def class_device_driver(device: Path) -> str:
    """Return the name of the driver that a class device is bound to; empty if sysfs does not show it."""
    return bus_device_driver(device / "device")


def bus_device_driver(device: Path) -> str:
    """Return the name of the driver that a device of a bus is bound to; empty if sysfs does not show it."""
    for line in read_text(device / "uevent").splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            return value
    return ""


def netdev_of_port(device: Path, port: int) -> str:
    """Return the network device of a port of an RDMA device; empty if there is none, or it is ambiguous.

    Several network devices of one function are distinguished by dev_port (mlx4), then by phys_port_name: the uplink is
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


def pci_sort_key(address: str, name: str) -> tuple[object, ...]:
    """Return a key that sorts devices by PCI address, and those without one by the numbers in their names."""
    return (not address, address, [(len(part), part) for part in re.findall(r"\d+|\D+", name)])
