"""What the strings of `ethtool -S` mean, driver by driver: data, and the plan that picks values by them.

Names are those of the drivers in Linux (mlx5: en_stats.c and its documentation; ice: ice_ethtool.c; virtio_net.c).
All values arrive as 64-bit numbers; the width is what the hardware behind them has. Names that are not listed are
passed over: a NIC can have 20,000.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MICROSECONDS = 1_000_000


class Statistic(NamedTuple):
    """How one metric is read: a pattern of names whose values are added up, and how they become base units.

    In a name, `{p}` stands for the priority, one digit, and `#` for the number of a queue.
    """

    ending: str
    names: tuple[str, ...]
    width: int = 64
    divisor: int = 1


def _both(ending: str, name: str, width: int = 64, divisor: int = 1) -> tuple[Statistic, Statistic]:
    """Declare a statistic for both directions; {way} in the name is rx or tx."""
    return (
        Statistic(f"receive_{ending}", (name.replace("{way}", "rx"),), width, divisor),
        Statistic(f"transmit_{ending}", (name.replace("{way}", "tx"),), width, divisor),
    )


@dataclass(frozen=True, slots=True)
class DriverNames:
    """The names of one driver.

    Attributes:
        port: One value a port.
        priority: One value a port and priority.
        wire: Whether it counts bytes and packets on the wire, RDMA included.
    """

    port: tuple[Statistic, ...]
    priority: tuple[Statistic, ...] = ()
    wire: bool = True


MLX5 = DriverNames(
    port=(
        *_both("bytes_total", "{way}_bytes_phy"),
        *_both("packets_total", "{way}_packets_phy"),
        *_both("discards_total", "{way}_discards_phy"),
        Statistic("transmit_errors_total", ("tx_errors_phy",)),
        *_both("pause_frames_total", "{way}_pause_ctrl_phy"),
        *_both("paused_seconds_total", "{way}_global_pause_duration", divisor=MICROSECONDS),
        Statistic("fcs_errors_total", ("rx_crc_errors_phy",)),
        Statistic("symbol_errors_total", ("rx_symbol_err_phy",)),
        Statistic("pcs_symbol_errors_total", ("rx_pcs_symbol_err_phy",)),
        Statistic("fec_corrected_errors_total", ("rx_corrected_bits_phy",)),
        Statistic("out_of_buffer_total", ("rx_out_of_buffer",), 32),
        Statistic("link_down_total", ("link_down_events_phy",), 32),
        Statistic("kernel_ecn_marked_packets_total", ("rx_ecn_mark",)),
        Statistic("receive_buffer_threshold_total", ("rx_buffer_passed_thres_phy",)),
        Statistic("transmit_pause_storm_warnings_total", ("tx_pause_storm_warning_events",)),
        Statistic("transmit_pause_storm_errors_total", ("tx_pause_storm_error_events",)),
        Statistic("pci_buffer_overflows_total", ("outbound_pci_buffer_overflow",)),
    ),
    priority=(
        *_both("pfc_frames_total", "{way}_prio{p}_pause"),
        *_both("pfc_paused_seconds_total", "{way}_prio{p}_pause_duration", divisor=MICROSECONDS),
        Statistic("receive_pfc_transitions_total", ("rx_prio{p}_pause_transition",)),
    ),
)

ICE = DriverNames(
    port=(
        *_both("bytes_total", "{way}_bytes.nic"),
        Statistic("receive_packets_total", ("rx_unicast.nic", "rx_multicast.nic", "rx_broadcast.nic")),
        Statistic("transmit_packets_total", ("tx_unicast.nic", "tx_multicast.nic", "tx_broadcast.nic")),
        Statistic("receive_discards_total", ("rx_dropped.nic",)),
        Statistic("transmit_discards_total", ("tx_dropped_link_down.nic",)),
        Statistic("transmit_errors_total", ("tx_errors.nic",)),
        Statistic("receive_pause_frames_total", ("link_xoff_rx.nic",)),
        Statistic("transmit_pause_frames_total", ("link_xoff_tx.nic",)),
        Statistic("fcs_errors_total", ("rx_crc_errors.nic",)),
    ),
    priority=_both("pfc_frames_total", "{way}_priority_{p}_xoff.nic"),
)

VIRTIO = DriverNames(
    port=(
        # Bytes and packets are the kernel's, which asks the same queues. Up to Linux 6.4 the names were rx_queue_#_…
        Statistic("receive_discards_total", ("rx#_drops", "rx_queue_#_drops")),
        Statistic("transmit_timeouts_total", ("tx#_tx_timeouts", "tx_queue_#_tx_timeouts")),
    ),
    wire=False,
)

MLX5_VIRTUAL = DriverNames(
    port=tuple(one for one in MLX5.port if one.ending in {"out_of_buffer_total", "kernel_ecn_marked_packets_total"}),
    wire=False,
)
"""A function without the right to the port's counters shows all of them as 0, which they are not."""

DRIVERS: Mapping[str, DriverNames] = {"mlx5_core": MLX5, "ice": ICE, "virtio_net": VIRTIO}

VIRTUAL: Mapping[str, DriverNames] = {"mlx5_core": MLX5_VIRTUAL}
"""The same of virtual functions and subfunctions, which are asked only where the configuration wants it."""


@dataclass(slots=True)
class Plan:
    """Where the values of a driver's metrics stand in one tuple of names.

    Attributes:
        port: Ending to places whose values are added up.
        priority: Priority to ending to places.
    """

    port: dict[str, list[int]] = field(default_factory=dict)
    priority: dict[str, dict[str, list[int]]] = field(default_factory=dict)


_WILD = re.compile(r"\{p\}|#")


def _pattern(name: str) -> str:
    """Turn a declared name into a regular expression."""
    parts = re.split(r"(\{p\}|#)", name)
    return "".join({"{p}": "([0-7])", "#": "\\d+"}.get(part, re.escape(part)) for part in parts)


def plan(driver: DriverNames, names: Sequence[str]) -> Plan:
    """Find a driver's metrics in the names that a device has; a name that stands twice is taken once, the first.

    A metric of which the device lacks one of several fixed names is left out: part of a sum is no sum.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    made = Plan()
    for statistic in driver.port:
        found = _places(statistic, places)
        if found:
            made.port[statistic.ending] = found
    for statistic in driver.priority:
        pattern = re.compile("|".join(_pattern(name) for name in statistic.names))
        for name, place in places.items():
            match = pattern.fullmatch(name)
            if match:
                made.priority.setdefault(match[1], {}).setdefault(statistic.ending, []).append(place)
    return made


def _places(statistic: Statistic, places: Mapping[str, int]) -> list[int]:
    if not any(_WILD.search(name) for name in statistic.names):
        return [places[name] for name in statistic.names] if all(name in places for name in statistic.names) else []
    pattern = re.compile("|".join(_pattern(name) for name in statistic.names))
    return [place for name, place in places.items() if pattern.fullmatch(name)]


def picked(places: Mapping[str, Sequence[int]], values: Sequence[int]) -> dict[str, int]:
    """Add up the values at the places of each ending; a value of all ones is one that the device did not have."""
    return {
        ending: sum(found)
        for ending, where in places.items()
        if ABSENT not in (found := [values[place] for place in where])
    }


ABSENT = 2**64 - 1
"""What firmware answers that could not fill a value."""
