"""Which counters an RDMA port can have, where each is read, and how wide it is: data.

Files of `counters/` are the same for every driver that has the folder. Their widths are those of the PMA attributes
behind them (drivers/infiniband/core/sysfs.c), where counters under 64 bits stick at their top; words of four bytes
become bytes. Those of `hw_counters/` are each driver's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

from exporter.sources.common.driver_statistics import Statistic

STATES = ("state", "phys_state", "rate")
"""The files that tell of a port's link."""

COUNTERS = "counters"
HW_COUNTERS = "hw_counters"
"""The folders of counters."""

LIFESPAN = "lifespan"
"""The file of `hw_counters/` that is a setting: for how many milliseconds the kernel keeps what it read."""


class Cell(NamedTuple):
    """What is known of a counter's values: the ending of its metric, its width, and how it becomes a base unit."""

    ending: str
    width: int = 64
    saturates: bool = False
    factor: int = 1
    divisor: int = 1


class Choice(NamedTuple):
    """One way to read a counter: files, below the folder of the port, whose values are added up."""

    cell: Cell
    files: tuple[str, ...]


Choices: TypeAlias = tuple[tuple[Choice, ...], ...]
"""For each counter the ways to read it, of which the first counts that a port has."""


@dataclass(frozen=True, slots=True)
class RdmaNames:
    """The names of one driver's `hw_counters/`.

    Where several statistics are declared for one metric, the first counts that a port has: names change from one
    version of a driver to the next.

    Attributes:
        port: Those of a port.
        virtual: Those of a port of a virtual function, where it has names whose values stay 0; None for the same.
        iwarp: Those that a port of an iWARP device has beside.
        device: Those of a device as a whole.
        devices: Shell patterns of the names that devices of the driver have.
        types: Shell patterns of their `hca_type`.
        signs: Counters that only this driver has, all of them; empty where there are none.
    """

    port: tuple[Statistic, ...] = ()
    virtual: tuple[Statistic, ...] | None = None
    iwarp: tuple[Statistic, ...] = ()
    device: tuple[Statistic, ...] = ()
    devices: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    signs: frozenset[str] = frozenset()

    def of_port(self, *, virtual: bool, iwarp: bool) -> tuple[Statistic, ...]:
        """Give those of a port, by what its device is."""
        names = self.port if self.virtual is None or not virtual else self.virtual
        return names + self.iwarp if iwarp else names


def _pma(ending: str, name: str, width: int = 64, *, factor: int = 1) -> Choice:
    return Choice(Cell(ending, width, saturates=width < 64, factor=factor), (f"{COUNTERS}/{name}",))


PMA: tuple[Choice, ...] = (
    _pma("receive_bytes_total", "port_rcv_data", factor=4),
    _pma("transmit_bytes_total", "port_xmit_data", factor=4),
    _pma("receive_packets_total", "port_rcv_packets"),
    _pma("transmit_packets_total", "port_xmit_packets"),
    _pma("receive_unicast_packets_total", "unicast_rcv_packets"),
    _pma("transmit_unicast_packets_total", "unicast_xmit_packets"),
    _pma("receive_multicast_packets_total", "multicast_rcv_packets"),
    _pma("transmit_multicast_packets_total", "multicast_xmit_packets"),
    _pma("receive_errors_total", "port_rcv_errors", 16),
    _pma("receive_remote_physical_errors_total", "port_rcv_remote_physical_errors", 16),
    _pma("receive_switch_relay_errors_total", "port_rcv_switch_relay_errors", 16),
    _pma("receive_constraint_errors_total", "port_rcv_constraint_errors", 8),
    _pma("transmit_constraint_errors_total", "port_xmit_constraint_errors", 8),
    _pma("transmit_discards_total", "port_xmit_discards", 16),
    _pma("transmit_wait_ticks_total", "port_xmit_wait", 32),
    _pma("symbol_errors_total", "symbol_error", 16),
    _pma("link_down_total", "link_downed", 8),
    _pma("link_error_recovery_total", "link_error_recovery", 8),
    _pma("local_link_integrity_errors_total", "local_link_integrity_errors", 4),
    _pma("excessive_buffer_overrun_errors_total", "excessive_buffer_overrun_errors", 4),
    _pma("vl15_dropped_total", "VL15_dropped", 16),
)
"""The files of `counters/`."""


@cache
def choices(statistics: tuple[Statistic, ...], standard: tuple[Choice, ...] = ()) -> Choices:
    """Join the ways to read each counter: the standard one first, then those of the driver in their order."""
    found: dict[str, list[Choice]] = {choice.cell.ending: [choice] for choice in standard}
    for one in statistics:
        cell = Cell(one.ending, one.width, divisor=one.divisor)
        files = tuple(f"{HW_COUNTERS}/{name}" for name in one.names)
        found.setdefault(one.ending, []).append(Choice(cell, files))
    return tuple(map(tuple, found.values()))


def origins(declared: Iterable[Sequence[Choice]]) -> dict[str, list[str]]:
    """List by ending the files that its values come from, for the documentation."""
    found: dict[str, dict[str, None]] = {}
    for ways in declared:
        for choice in ways:
            found.setdefault(choice.cell.ending, {}).update(dict.fromkeys(choice.files))
    return {ending: list(files) for ending, files in found.items()}
