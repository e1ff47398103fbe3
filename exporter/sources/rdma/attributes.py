"""Attributes of an RDMA device that need more than one file: its driver, the netdevs of its ports, a link's speed."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.linux.cached_file import read_once, read_text
from exporter.linux.infiniband import (
    Rate,
    is_placeholder,
    parse_link_rate,
    parse_netdev_speed,
)
from exporter.linux.pci import class_device_driver, netdev_of_port, pci_address
from exporter.sources.rdma.counter_files import HW_COUNTERS
from exporter.sources.rdma.drivers import DRIVERS, recognise_driver

MAX_CARD_PORTS = 4
"""Physical ports of a card. Ports of higher numbers are behind its embedded switch: only their GIDs name a netdev."""

PLACEHOLDER_DRIVER = "mlx5_core"
"""The driver whose Ethernet ports show 40 Gb/s for a speed without a name; 40 Gb/s of any other is the speed."""

_UPLINK = re.compile(r"(p\d+)?")
"""phys_port_name of an uplink: `p0`, or empty without an embedded switch; a representor's is `pf0vf3`."""


class DriverIdentity(NamedTuple):
    """The driver of a device.

    Attributes:
        bound: Name of the driver that the device is bound to; empty if sysfs does not show it, as in containers.
        recognised: The key of DRIVERS whose counters the device has; empty if there is none.
    """

    bound: str
    recognised: str


def identify_driver(device: Path, numbers: Sequence[int]) -> DriverIdentity:
    """Identify the driver of a device, also if it is not shown, or the device is bound to an auxiliary driver.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.
        numbers: Its port numbers.
    """
    bound = class_device_driver(device)
    if bound in DRIVERS:
        return DriverIdentity(bound, bound)
    try:
        counters = os.listdir(device / "ports" / str(numbers[0]) / HW_COUNTERS)  # noqa: PTH208  # names alone
    except (OSError, IndexError):
        counters = []
    return DriverIdentity(bound, recognise_driver(device.name, read_text(device / "hca_type"), counters))


def netdev_from_files(net: Path, device: Path, number: int, *, multi_port: bool) -> str:
    """Return the netdev of a port by sysfs alone, without RDMA netlink; empty if there is none, or it is ambiguous.

    The netdev that `gid_attrs` names may be in another network namespace, so it is used only if a netdev of that name
    is on the same card here.

    Args:
        net: /sys/class/net.
        device: Folder of the RDMA device.
        number: Number of the port.
        multi_port: Whether the device has several ports, which may be on several PCI functions.
    """
    if multi_port:
        named = read_text(device / "ports" / str(number) / "gid_attrs" / "ndevs" / "0")
        if named and "/" not in named and _is_same_card(net / named, device):
            return named
    name = netdev_of_port(device, number) if number <= MAX_CARD_PORTS else ""
    if name and multi_port:
        dev_port = read_text(device / "device" / "net" / name / "dev_port")
        if dev_port != str(number - 1) and (dev_port or number > 1):
            return ""
    return name


def is_uplink(net: Path, netdev: str) -> bool:
    """Return whether a port may be an uplink: its netdev is no representor, or it has no netdev here."""
    return not netdev or _UPLINK.fullmatch(read_text(net / netdev / "phys_port_name")) is not None


def _is_same_card(one: Path, other: Path) -> bool:
    """Return whether two class devices are functions of one PCI device."""
    slots = [pci_address(device).rpartition(".")[0] for device in (one, other)]
    return slots[0] == slots[1] != ""


class LinkSpeed:
    """Speed of one port's link, from its `rate` or, for a placeholder, from its netdev.

    mlx5 shows 40 Gb/s for an Ethernet speed that it has no name for, such as that of a cloud's virtual functions. To
    read the netdev's speed takes the lock of all network devices of the host (rtnl), so the value is cached until
    `configure` is called again or the link goes down.
    """

    def __init__(self) -> None:
        self._netdev_file: Path | None = None
        self._may_be_placeholder = False
        self._is_cached = False
        self._cached: float | None = None

    def configure(self, driver: str, link_layer: str, netdev: Path | None) -> None:
        """Set the type of the port, and drop the cached speed.

        Args:
            driver: Key of DRIVERS.
            link_layer: Content of the file of that name.
            netdev: Folder of its network device; None if there is none in this network namespace.
        """
        self._may_be_placeholder = driver == PLACEHOLDER_DRIVER and link_layer == "Ethernet"
        self._netdev_file = None if netdev is None else netdev / "speed"
        self._is_cached = False

    def parse(self, state: bytes, rate: bytes) -> Rate | None:
        """Return the speed by the contents of `state` and `rate`; None while the link is down, or if it is unknown."""
        parsed = parse_link_rate(state, rate)
        if parsed is None or not self._may_be_placeholder or not is_placeholder(rate):
            self._is_cached = False  # the next link may have another speed
            return parsed
        if not self._is_cached:
            self._is_cached = True
            file = self._netdev_file
            self._cached = None if file is None else parse_netdev_speed(read_once(file) or b"")
        return None if self._cached is None else Rate(self._cached, None, "")
