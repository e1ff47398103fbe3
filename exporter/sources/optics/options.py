"""Configuration of the source `optics`."""

from exporter.config.units import Duration
from exporter.core.source import Options

MIN_INTERVAL_SECONDS = 60.0
"""A read of a module takes some hundred milliseconds of I2C transfers, during which some NICs delay packets."""


class OpticsOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.optics`; include and exclude are names of devices."""

    enabled: bool = False
    interval: Duration = Duration(MIN_INTERVAL_SECONDS)

    def __post_init__(self) -> None:
        """Validate the interval."""
        if self.interval < MIN_INTERVAL_SECONDS:
            raise ValueError(
                f"interval is {self.interval:g}s; reading modules can delay packets: set {MIN_INTERVAL_SECONDS:g}s or"
                " longer"
            )
        super().__post_init__()
