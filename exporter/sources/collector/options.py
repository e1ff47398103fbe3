"""Configuration of `collector`."""

from exporter.config.errors import RuleError
from exporter.config.units import Duration
from exporter.core.source import Options
from exporter.mqtt.topics import parse_slots


class CollectorOptions(Options, frozen=True, kw_only=True):
    """Configuration of `collector`; include and exclude are patterns of job names.

    Attributes:
        slots: Slots from 00 to ff that are subscribed to: ranges separated by commas; without it there is no
            collector. Collectors that share the load own different slots, which together are all.
    """

    interval: Duration = Duration(2.0)
    slots: str | None = None

    def __post_init__(self) -> None:
        """Check the slots.

        Raises:
            RuleError: They are invalid.
        """
        super().__post_init__()
        if self.slots is not None:
            try:
                parse_slots(self.slots)
            except ValueError as error:
                raise RuleError(["slots"], str(error)) from None
