"""Which counters an RDMA port can have, the file of each, its width and unit: data.

The files of `counters/` are the same for every driver that has the folder. Their widths are those of the attributes of
the performance management agent (PMA) behind them (drivers/infiniband/core/sysfs.c): counters below 64 bits saturate,
and data counters count words of four octets. The files of `hw_counters/` are declared in `drivers`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from exporter.sources.common.driver_statistics import Statistic

LINK_FILES = ("state", "phys_state", "rate")
"""The files with the state of a port's link."""

COUNTERS = "counters"
HW_COUNTERS = "hw_counters"
"""The folders of counters."""

LIFESPAN = "lifespan"
"""File of `hw_counters/` that is a setting: the milliseconds for which the kernel caches these counters."""


class CounterSpec(NamedTuple):
    """The ending of a counter's metric, its width in bits, and how its value becomes a base unit."""

    ending: str
    width: int = 64
    saturates: bool = False
    factor: int = 1
    divisor: int = 1


class CounterFiles(NamedTuple):
    """One way to read a counter: files below the port's folder, whose values are added up."""

    spec: CounterSpec
    files: tuple[str, ...]


Alternatives: TypeAlias = tuple[tuple[CounterFiles, ...], ...]
"""For each counter the ways to read it; the first one whose files a port has is used."""


@dataclass(frozen=True, slots=True)
class DriverCounters:
    """The names of one driver's `hw_counters/`.

    Names change between versions of a driver: several statistics may be declared for one metric, and the first one
    that a port has is used.

    Attributes:
        port: Counters of a port.
        virtual: Counters of a port of a virtual function, if it also lists counters that stay 0; None for the same.
        iwarp: Further counters of a port of an iWARP device.
        device: Counters of the device as a whole.
        device_names: Shell patterns of the names of the driver's devices.
        hca_types: Shell patterns of their `hca_type`.
        unique_counters: Counters that together identify this driver; empty if there are none.
    """

    port: tuple[Statistic, ...] = ()
    virtual: tuple[Statistic, ...] | None = None
    iwarp: tuple[Statistic, ...] = ()
    device: tuple[Statistic, ...] = ()
    device_names: tuple[str, ...] = ()
    hca_types: tuple[str, ...] = ()
    unique_counters: frozenset[str] = frozenset()

    def port_counters(self, *, virtual: bool, iwarp: bool) -> tuple[Statistic, ...]:
        """Return the counters of a port, by the type of its device."""
        counters = self.port if self.virtual is None or not virtual else self.virtual
        return counters + self.iwarp if iwarp else counters


def _pma(ending: str, name: str, width: int = 64, *, factor: int = 1) -> CounterFiles:
    return CounterFiles(CounterSpec(ending, width, saturates=width < 64, factor=factor), (f"{COUNTERS}/{name}",))


PMA: tuple[CounterFiles, ...] = (
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


@lru_cache(maxsize=1024)
def counter_alternatives(statistics: tuple[Statistic, ...], standard: tuple[CounterFiles, ...] = ()) -> Alternatives:
    """Return the ways to read each counter: the standard's file first, then those of the driver in their order."""
    found: dict[str, list[CounterFiles]] = {one.spec.ending: [one] for one in standard}
    for statistic in statistics:
        spec = CounterSpec(statistic.ending, statistic.width, divisor=statistic.divisor)
        files = tuple(f"{HW_COUNTERS}/{name}" for name in statistic.names)
        found.setdefault(statistic.ending, []).append(CounterFiles(spec, files))
    return tuple(map(tuple, found.values()))


def origins(declared: Iterable[Sequence[CounterFiles]]) -> dict[str, tuple[str, ...]]:
    """Return for each ending the files that its values come from, for the documentation."""
    found: dict[str, dict[str, None]] = {}
    for alternatives in declared:
        for one in alternatives:
            found.setdefault(one.spec.ending, {}).update(dict.fromkeys(one.files))
    return {ending: tuple(files) for ending, files in found.items()}
