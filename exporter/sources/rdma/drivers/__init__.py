"""The counters of `hw_counters/` of each driver, by the name of the driver that a device is bound to: data."""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from exporter.sources.rdma.counter_files import DriverCounters
from exporter.sources.rdma.drivers.bnxt import BNXT
from exporter.sources.rdma.drivers.cloud import EFA, ERDMA, MANA
from exporter.sources.rdma.drivers.hns import HNS
from exporter.sources.rdma.drivers.intel import HFI1, IRDMA
from exporter.sources.rdma.drivers.ionic import IONIC
from exporter.sources.rdma.drivers.mlx4 import MLX4
from exporter.sources.rdma.drivers.mlx5 import MLX5
from exporter.sources.rdma.drivers.software import RXE

DRIVERS: Mapping[str, DriverCounters] = MappingProxyType(
    {
        "mlx5_core": MLX5,
        "mlx4_core": MLX4,
        "bnxt_en": BNXT,
        "ice": IRDMA,
        "i40e": IRDMA,
        "ionic": IONIC,
        "efa": EFA,
        "mana": MANA,
        "erdma": ERDMA,
        "hns3": HNS,
        "hfi1": HFI1,
        "rdma_rxe": RXE,
    }
)

UNKNOWN = DriverCounters()
"""Counters of any other driver: none beside the files of `counters/`."""


def recognise_driver(name: str, hca_type: str, counters: Collection[str]) -> str:
    """Return the driver of a device whose binding is not visible, as in containers; empty if none is recognised.

    Args:
        name: Name of the device, which an administrator can change.
        hca_type: Content of the file of that name; empty if it does not exist.
        counters: Names of its `hw_counters/`, which only the driver determines.
    """
    for driver, known in DRIVERS.items():
        if known.unique_counters and known.unique_counters <= set(counters):
            return driver
    for driver, known in DRIVERS.items():
        if any(fnmatchcase(hca_type, pattern) for pattern in known.hca_types):
            return driver
        if any(fnmatchcase(name, pattern) for pattern in known.device_names):
            return driver
    return ""
