"""What the files of `hw_counters/` mean, driver by driver: data, by the driver that a device is bound to."""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from exporter.sources.rdma.drivers.bnxt import BNXT
from exporter.sources.rdma.drivers.cloud import EFA, ERDMA, MANA
from exporter.sources.rdma.drivers.hns import HNS
from exporter.sources.rdma.drivers.intel import HFI1, IRDMA
from exporter.sources.rdma.drivers.ionic import IONIC
from exporter.sources.rdma.drivers.mlx4 import MLX4
from exporter.sources.rdma.drivers.mlx5 import MLX5
from exporter.sources.rdma.drivers.software import RXE
from exporter.sources.rdma.files import RdmaNames

DRIVERS: Mapping[str, RdmaNames] = {
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

UNKNOWN = RdmaNames()
"""What is known of any other driver: nothing beside the files of `counters/`."""


def recognised(name: str, hca_type: str, counters: Collection[str]) -> str:
    """Tell the driver of a device that does not say what it is bound to, as containers see it; empty for none known.

    Args:
        name: Name of the device, which anybody can change.
        hca_type: What it says it is; empty where it does not.
        counters: Names of its counters, which nobody can change.
    """
    for driver, known in DRIVERS.items():
        if known.signs and known.signs <= set(counters):
            return driver
    for driver, known in DRIVERS.items():
        if any(fnmatchcase(hca_type, pattern) for pattern in known.types):
            return driver
        if any(fnmatchcase(name, pattern) for pattern in known.devices):
            return driver
    return ""
