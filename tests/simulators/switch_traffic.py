"""The ports of a simulated switch and their counters: RDMA in a lossless priority, with PFC frames and ECN marks.

A model without I/O and without a clock. Bytes follow from packets, all counters are integers, and the same seed and the
same calls give the same counters.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from exporter.simulator.ports import CounterSet

LOSSLESS: Final = 3
"""The priority of RDMA traffic."""

CNP_PRIORITY: Final = 6
"""The priority of congestion notification packets."""

RDMA_BYTES: Final = 4158
CNP_BYTES: Final = 78
MULTICAST_BYTES: Final = 204
BROADCAST_BYTES: Final = 64

STORM: Final = 0.6
"""Share of the time for which the neighbour pauses the port in a PFC storm."""

CALM: Final = 0.001
"""The same without a fault."""

PAUSE_MICROSECONDS: Final = 40
"""Duration of the pause of one PFC frame."""

FLAP_SECONDS: Final = 10.0
"""Seconds that a flapping port is up, and then down."""

WAYS: Final = ("receive", "transmit")


class SwitchPort:
    """One port.

    Attributes:
        name: Its name on the switch.
        number: From 1.
        uplink: Whether it is linked to a spine; otherwise to a host.
        alias: Its description by the operator.
        speed: Speed of the link in bits per second.
        up: Whether there is a link.
        last_change: Uptime in seconds when that last changed.
        counters: All its counters, in full width. Names end in the number of the priority or queue where there is
            one: `receive_pfc_frames_3`.
        levels: Depths of queues and buffers in bytes, by names of the same form.
    """

    def __init__(self, name: str, number: int, *, uplink: bool, alias: str, speed: int) -> None:
        """Create a port that is up, with all counters 0."""
        self.name, self.number, self.uplink, self.alias, self.speed = name, number, uplink, alias, speed
        self.up = True
        self.last_change = 0.0
        self.counters = CounterSet({})
        self.levels: dict[str, int] = {}
        self._names: set[str] = set()

    def add(self, name: str, amount: float) -> int:
        """Increase a counter; return the increase, which is an integer."""
        self._names.add(name)
        return self.counters.add(name, amount)

    def truth(self) -> Mapping[str, int]:
        """Return all counters that were increased, in full width."""
        return {name: self.counters[name] for name in sorted(self._names)}

    def restart(self, counters: Mapping[str, int]) -> None:
        """Reset all counters to these values."""
        self.counters = CounterSet(counters)
        self.levels.clear()
        self._names = set(counters)
        self.last_change = 0.0

    def carry(self, seconds: float, load: Mapping[str, float], storm: float) -> None:
        """Count the traffic of a period.

        Args:
            seconds: Length of the period.
            load: Share of the speed, by direction.
            storm: Share of the time for which the neighbour pauses the lossless priority.
        """
        if not self.up:
            return
        for way in WAYS:
            share = load[way] * (1 - storm) if way == "transmit" else load[way]
            self._carry_way(way, seconds, share)
        self._pause("receive", storm * seconds)
        self._pause("transmit", CALM * seconds)
        depth = round(2_000_000 * storm + 50_000 * load["transmit"])
        self.levels[f"queue_depth_{LOSSLESS}"] = depth
        highest = f"queue_highest_depth_{LOSSLESS}"
        self.levels[highest] = max(depth, self.levels.get(highest, 0))
        self.levels[f"ingress_depth_{LOSSLESS}"] = depth // 2

    def count_errors(self, seconds: float) -> None:
        """Count some errors and discards of each kind."""
        for name in ("fcs_errors", "symbol_errors"):
            self.add(name, 2 * seconds)
        self.add("receive_errors", 4 * seconds)
        self.add("transmit_errors", seconds)
        self.add("receive_discards", 3 * seconds)
        self.add(f"ingress_discards_{LOSSLESS}", seconds)

    def _carry_way(self, way: str, seconds: float, share: float) -> None:
        packets = self.add(f"{way}_rdma", share * self.speed / 8 / RDMA_BYTES * seconds)
        cnps = self.add(f"{way}_cnps", packets * 1e-5)
        multicast = self.add(f"{way}_multicast_packets", seconds / 2)
        broadcast = self.add(f"{way}_broadcast_packets", seconds / 5)
        self.add(f"{way}_unicast_packets", packets + cnps)
        ordinary = multicast * MULTICAST_BYTES + broadcast * BROADCAST_BYTES
        self.add(f"{way}_bytes", packets * RDMA_BYTES + cnps * CNP_BYTES + ordinary)
        if way == "receive":
            return
        for queue, count, size in (
            (LOSSLESS, packets, packets * RDMA_BYTES),
            (CNP_PRIORITY, cnps, cnps * CNP_BYTES),
            (0, multicast + broadcast, ordinary),
        ):
            self.add(f"queue_packets_{queue}", count)
            self.add(f"queue_bytes_{queue}", size)
        marked = self.add(f"queue_ecn_marked_{LOSSLESS}", packets * 2e-5)
        self.add("ecn_marked", marked)
        early = self.add("queue_early_discards_0", seconds / 4)
        full = self.add("queue_full_discards_0", seconds / 8)
        self.add("queue_discards_0", early + full)
        self.add("transmit_discards", early + full)

    def _pause(self, way: str, seconds: float) -> None:
        paused = self.add(f"{way}_pfc_microseconds_{LOSSLESS}", seconds * 1e6)
        frames = self.add(f"{way}_pfc_frames_{LOSSLESS}", paused / PAUSE_MICROSECONDS)
        self.add(f"{way}_pfc_frames", frames)


class Loads:
    """The load of each port, with small random changes."""

    def __init__(self, ports: Sequence[SwitchPort], seed: int) -> None:
        """Draw the load of each port."""
        self._chance = random.Random(seed)
        self._base = {port.number: {way: self._chance.uniform(0.3, 0.7) for way in WAYS} for port in ports}

    def of(self, port: SwitchPort) -> dict[str, float]:
        """Return the load of a port in the next period: shares of its speed, by direction."""
        return {way: base * self._chance.uniform(0.95, 1.0) for way, base in self._base[port.number].items()}
