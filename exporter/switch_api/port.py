"""Results of parsers that are the same for all APIs: state and counters of a port, and values by port."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_PORTS = 4096
"""Ports of one response; several times those of the largest switch, with all its ports split."""

MAX_PROBLEMS = 100
"""Problems reported for one response."""

T = TypeVar("T")


@dataclass(slots=True)
class PortState:
    """State and counters of one port; what the switch does not report is None or empty.

    Attributes:
        counters: By the ending of their metric.
        up: Operational status.
        admin_up: Administrative status.
        speed: Bits per second.
        index: ifIndex.
        description: The configured description (ifAlias).
        if_type: The number of its ifType where that is known, else the word for it.
        refreshed: When the switch read the counters, seconds by its own clock.
    """

    counters: dict[str, int] = field(default_factory=dict)
    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    index: str = ""
    description: str = ""
    if_type: str = ""
    refreshed: float | None = None


@dataclass(frozen=True, slots=True)
class PerPort(Generic[T]):
    """Values by port name.

    Attributes:
        ports: The values.
        problems: One line for each malformed port or value, at most MAX_PROBLEMS; none of them affects another port.
        text: Text that the switch returned instead of rows, often the reason why there are none.
    """

    ports: Mapping[str, T]
    problems: tuple[str, ...] = ()
    text: str = ""


class ShapeError(ValueError):
    """The data has none of the known structures; the text quotes its beginning."""
