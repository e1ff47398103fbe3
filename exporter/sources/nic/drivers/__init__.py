"""Statistics of `ethtool -S` by driver: mapping of the driver's names to metrics. Drivers have their names in Linux.

Only the counters of a port are declared, each once: where a driver has the same counter twice (by class and by
priority, by queue and in total, for the port and for the function) one of them is read. Statistics of unknown unit are
not read.
"""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.sources.common.driver_statistics import DriverNames
from exporter.sources.nic.drivers.broadcom import BNXT, BNXT_VIRTUAL
from exporter.sources.nic.drivers.chelsio import CXGB4
from exporter.sources.nic.drivers.cloud import (
    ENA,
    GVE,
    MANA,
    VIRTIO,
)
from exporter.sources.nic.drivers.hisilicon import HNS3
from exporter.sources.nic.drivers.intel import (
    I40E,
    IAVF,
    ICE,
    IXGBE,
)
from exporter.sources.nic.drivers.mlx4 import MLX4
from exporter.sources.nic.drivers.mlx5 import MLX5, MLX5_INFINIBAND, MLX5_VIRTUAL
from exporter.sources.nic.drivers.pensando import IONIC, IONIC_VIRTUAL

DRIVERS: Mapping[str, DriverNames] = MappingProxyType(
    {
        "bnxt_en": BNXT,
        "cxgb4": CXGB4,
        "ena": ENA,
        "gve": GVE,
        "hns3": HNS3,
        "i40e": I40E,
        "iavf": IAVF,
        "ice": ICE,
        "ionic": IONIC,
        "ixgbe": IXGBE,
        "mana": MANA,
        "mlx4_en": MLX4,
        "mlx5_core": MLX5,
        "virtio_net": VIRTIO,
    }
)

VIRTUAL: Mapping[str, DriverNames] = MappingProxyType(
    {
        "bnxt_en": BNXT_VIRTUAL,
        "iavf": IAVF,
        "ionic": IONIC_VIRTUAL,
        "mlx5_core": MLX5_VIRTUAL,
    }
)
"""Those of virtual functions and subfunctions, which are read only if configured."""

INFINIBAND: Mapping[str, DriverNames] = MappingProxyType({"mlx5_core[ib_ipoib]": MLX5_INFINIBAND})
"""Those of InfiniBand ports, by the driver of their IPoIB device, if that is the card's own driver."""
