"""What the strings of `ethtool -S` mean, driver by driver: data, with the names of the drivers in Linux."""

from collections.abc import Mapping

from exporter.sources.nic_drivers.cloud import VIRTIO
from exporter.sources.nic_drivers.intel import ICE
from exporter.sources.nic_drivers.mlx5 import MLX5, MLX5_VIRTUAL
from exporter.sources.statistics import DriverNames

DRIVERS: Mapping[str, DriverNames] = {"mlx5_core": MLX5, "ice": ICE, "virtio_net": VIRTIO}

VIRTUAL: Mapping[str, DriverNames] = {"mlx5_core": MLX5_VIRTUAL}
"""The same of virtual functions and subfunctions, which are asked only where the configuration wants it."""
