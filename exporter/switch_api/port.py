"""An interface as any API of a switch tells it: what all readers of JSON give, whatever its shape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Port:
    """One interface; what the switch does not say is None or empty.

    Attributes:
        counters: By the ending of their metric.
        up: Whether it has a link.
        admin_up: Whether it is meant to have one.
        speed: Bits per second.
        index: Its ifIndex.
        description: What somebody wrote of it.
        kind: The number of its ifType where that is known, else the word for it.
        refreshed: When the switch counted, seconds by its own clock.
    """

    counters: dict[str, int] = field(default_factory=dict)
    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    index: str = ""
    description: str = ""
    kind: str = ""
    refreshed: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Something by port; `problems` are what was lost, a line each."""

    ports: Mapping[str, Any]
    problems: tuple[str, ...] = ()


class ShapeError(ValueError):
    """The answer is not what was asked for."""
