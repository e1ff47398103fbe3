"""Configuration of the source `lldp`."""

from exporter.config.units import Duration
from exporter.core.source import Options


class LldpOptions(Options, frozen=True):
    """Configuration of `sources.lldp`; include and exclude are names of devices.

    Attributes:
        folder: Folder in which systemd-networkd stores received frames.
        listen: Whether the exporter receives LLDP frames itself.
    """

    interval: Duration = Duration(30.0)
    folder: str = "/run/systemd/netif/lldp"
    listen: bool = False
