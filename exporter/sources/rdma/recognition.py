"""Which driver an RDMA device has: the one that it is bound to, or the one that it looks to have."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.linux.cached_file import read_text
from exporter.linux.pci import driver
from exporter.sources.rdma.drivers import DRIVERS, recognised
from exporter.sources.rdma.files import HW_COUNTERS


class Driver(NamedTuple):
    """What is known of a device's driver.

    Attributes:
        bound: Its name, by the bus; empty where that is not told, as in containers.
        looks: The key of DRIVERS that fits the device; empty where there is none.
    """

    bound: str
    looks: str


def recognise(device: Path, numbers: Sequence[int]) -> Driver:
    """Tell the driver of a device, also of one that does not say it, or is bound to something in between.

    Args:
        device: Path such as `/sys/class/infiniband/mlx5_0`.
        numbers: Its ports.
    """
    bound = driver(device)
    if bound in DRIVERS:
        return Driver(bound, bound)
    try:
        counters = os.listdir(device / "ports" / str(numbers[0]) / HW_COUNTERS)  # noqa: PTH208  # names alone
    except (OSError, IndexError):
        counters = []
    return Driver(bound, recognised(device.name, read_text(device / "hca_type"), counters))
