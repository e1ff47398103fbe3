"""Configuration of the source `pci`."""

from exporter.config.units import Duration
from exporter.core.source import Options


class PciOptions(Options, frozen=True):
    """Configuration of `sources.pci`; include and exclude are PCI addresses."""

    interval: Duration = Duration(60.0)
