"""Results of parsers that are the same for all APIs: state and counters of a port, and values by port."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from exporter.switch_api.port_settings import PortSettings
from exporter.switch_api.text_values import excerpt

MAX_PORTS = 4096
"""Ports of one switch, however it is read; several times those of the largest one, with all its ports split."""

MAX_NAME_LENGTH = 255
"""Characters of the name of a port, as in ifName (RFC 2863, DisplayString)."""

TOO_MANY = f"skipped, as there are more than {MAX_PORTS} ports"

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
        settings: Its configuration, as far as it is in the same response.
    """

    counters: dict[str, int] = field(default_factory=dict)
    up: bool | None = None
    admin_up: bool | None = None
    speed: int | None = None
    index: str = ""
    description: str = ""
    if_type: str = ""
    refreshed: float | None = None
    settings: PortSettings = field(default_factory=PortSettings)


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


def admits(ports: Container[str], count: int, name: str, problems: list[str]) -> bool:
    """Return whether a port is one of those that are read; why not is the first problem, or one of its own.

    Args:
        ports: Those read so far, and
        count: their number.
        name: The name of the port.
        problems: What is reported.
    """
    if name in ports:
        return True
    if len(name) > MAX_NAME_LENGTH:
        problems.append(f"{excerpt(name, 40)}: skipped, as the name is longer than {MAX_NAME_LENGTH} characters")
        return False
    if count >= MAX_PORTS and not (problems and problems[0].endswith(TOO_MANY)):
        problems.insert(0, f"{name}: {TOO_MANY}")
    return count < MAX_PORTS


class ShapeError(ValueError):
    """The data has none of the known structures; the text quotes its beginning."""
