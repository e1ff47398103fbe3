"""What the sources of this host's ports do alike: how rails are numbered, and when rows were read apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.linux.pci import bus_order
from exporter.source import Options

APART = 0.05
"""Seconds between the first and the last row's reading from which each has a time of its own: one before it hung."""


class PortOptions(Options, frozen=True):
    """Configuration of a source of ports; include and exclude are names of devices.

    Attributes:
        rails: Rail of each device, for nodes where the order of the PCI addresses does not tell.
    """

    rails: dict[str, str] = {}  # noqa: RUF012  # msgspec copies mutable defaults


class Seat(NamedTuple):
    """Where a port sits: its siblings are those of its kind; `number` is that of the port in its device."""

    kind: str | None
    pci: str
    device: str
    number: int = 0


def number_rails(seats: Sequence[Seat], configured: Mapping[str, str]) -> list[str]:
    """Give the rail of each port.

    Args:
        seats: The ports.
        configured: Rails by device, which win.

    Returns:
        The place of each among the ports of its kind in the order of their PCI addresses, from 0; empty for a port of
        no kind.
    """
    rails = [""] * len(seats)
    counted: Counter[str] = Counter()
    order = sorted(
        range(len(seats)),
        key=lambda place: (bus_order(seats[place].pci, seats[place].device), seats[place].number),
    )
    for place in order:
        seat = seats[place]
        if seat.kind is not None:
            rails[place] = str(counted[seat.kind])
            counted[seat.kind] += 1
        rails[place] = configured.get(seat.device, rails[place])
    return rails


def own_times(time: float, times: Sequence[float]) -> Sequence[float] | None:
    """Give the time of each row's reading where some came long after the table's own `time`; else None."""
    return times if max(times) - time > APART else None
