"""How fast the link of an RDMA port is, where its own file may not say so.

mlx5 shows 40 Gb/s on Ethernet where it cannot name the speed, as of the virtual functions of a cloud: then the network
device of the port is asked. To read its speed takes the lock of all network devices of the host (rtnl), so it is kept
for a while.
"""

from pathlib import Path

from exporter.linux.cached_file import read_once
from exporter.linux.infiniband import (
    Rate,
    is_placeholder,
    parse_link_rate,
    parse_netdev_speed,
)

PLACEHOLDERS = "mlx5_core"
"""The driver whose Ethernet ports show it; 40 Gb/s of any other is what it says."""


class LinkSpeed:
    """Speed of one port's link."""

    def __init__(self) -> None:
        """Start as a port that says itself how fast it is."""
        self._file: Path | None = None
        self._is_doubtful = False
        self._is_asked = False
        self._kept: float | None = None

    def know(self, driver: str, link_layer: str, netdev: Path | None) -> None:
        """Take what the port is; what its network device told is forgotten.

        Args:
            driver: Name of its driver.
            link_layer: As the file of that name has it.
            netdev: Folder of its network device; None where none is seen.
        """
        self._is_doubtful = driver == PLACEHOLDERS and link_layer == "Ethernet"
        self._file = None if netdev is None else netdev / "speed"
        self._is_asked = False

    def of(self, state: bytes, rate: bytes) -> Rate | None:
        """Give the speed by the texts of the files `state` and `rate`; None while the link is down, or nobody knows."""
        told = parse_link_rate(state, rate)
        if told is None or not self._is_doubtful or not is_placeholder(rate):
            self._is_asked = False  # the next link may be another
            return told
        if not self._is_asked:
            self._is_asked = True
            self._kept = None if self._file is None else parse_netdev_speed(read_once(self._file) or b"")
        return None if self._kept is None else Rate(self._kept, None, "")
