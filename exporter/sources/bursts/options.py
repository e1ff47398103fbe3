"""The configuration of the source `bursts`."""

from typing import Annotated

import msgspec

from exporter.config.units import Duration
from exporter.core.source import Options

MIN_TICK = 0.1
"""Seconds: ten times as long as the kernel caches `hw_counters/` by default."""

MAX_TICKS = 600
"""Ticks in one interval, whose samples are kept until the source is read."""


class BurstOptions(Options, frozen=True):
    """Configuration of `sources.bursts`; include and exclude match names of devices.

    Attributes:
        tick: Time between samples; a burst of this length or longer is never missed.
        budget: Share of the time that reading may take, for all devices together.
        commands: Firmware commands per second, for all devices together.
    """

    tick: Duration = Duration(1.0)
    budget: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.01
    commands: Annotated[int, msgspec.Meta(ge=1)] = 200

    def __post_init__(self) -> None:
        """Check the tick against the interval.

        Raises:
            ValueError: The tick is too short, or the interval has too many or no ticks.
        """
        if self.tick < MIN_TICK:
            raise ValueError(f"tick: {self.tick:g} s is too short; the shortest is 100ms")
        if not 1 <= self.interval / self.tick <= MAX_TICKS:
            raise ValueError(
                f"tick: {self.tick:g} s does not go with an interval of {self.interval:g} s,"
                f" which holds from 1 to {MAX_TICKS} ticks"
            )
        super().__post_init__()
