"""Configuration of the source `hostcheck`."""

from exporter.config.units import Duration
from exporter.core.source import Options


class HostcheckOptions(Options, frozen=True):
    """Configuration of `sources.hostcheck`; include and exclude are names of checks."""

    interval: Duration = Duration(240.0)
