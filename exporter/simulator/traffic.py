"""The traffic of a training job over eight rails, and how all that carries it counts it.

A model without I/O. The job computes, then its ranks exchange gradients in rings over all rails, and the step ends
when the slowest rail is done. Both ends of a link move by the same packets, so what one sent the other received. The
same seed and the same calls give the same counters.
"""

import random
from collections.abc import Iterable

from exporter.simulator import ports
from exporter.simulator.faults import BUSY_RAIL, DEGRADED_RAIL, DOWN_RAIL, FAULTS, PAUSED_RAIL
from exporter.simulator.ports import FRAMES, RAIL_SPEED, RAILS_A_LEAF, Nic

DEGRADED_SPEED = 100_000_000_000

COMPUTE = 4.0
"""Seconds that a step computes, about."""

STRAGGLER_DELAY = 1.0
"""Seconds that a late rank adds to a step."""

BURST_PACKETS = 40_000_000
"""Packets that a rail sends in the exchange of a step, about: 165 GB."""

EFFICIENCY = 0.9
"""Share of a link's speed that RDMA reaches."""

STORM = 0.6
"""Share of time that a rail stands still in a pause storm."""

PAUSE = 0.002
"""The same in an exchange when all is well."""

PAUSE_FRAME = 40
"""Microseconds that one pause frame stops a rail."""


class Training:
    """The job, and everything that counts its traffic.

    Attributes:
        faults: What is wrong now; changed by `begin` and `end`.
        rails: The eight RDMA ports of the host.
        management: Its other NIC.
        leaves: The two switches; the first has rails 0 to 3, the second 4 to 7.
        uptime: Seconds since everything was switched on.
        steps: Steps of training that ended.
    """

    def __init__(self, faults: Iterable[str] = (), *, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self.faults: set[str] = set()
        self.rails = ports.rails(self._random)
        self.management = ports.management(self._random)
        self.leaves = (
            ports.leaf(self._random, "leaf-01", "Ethernet1/", 0),
            ports.leaf(self._random, "leaf-02", "Eth1/", RAILS_A_LEAF),
        )
        self.uptime = 6 * 86400.0 + self._random.randrange(86400)
        self.steps = 0
        self._leaf_ports = {rail: found for leaf in self.leaves for rail, found in leaf.hosts.items()}
        self._next_step()
        for fault in faults:
            self.begin(fault)

    def begin(self, fault: str) -> None:
        """Let something go wrong from now on.

        Raises:
            ValueError: It is no fault.
        """
        if fault not in FAULTS:
            raise ValueError(f"{fault!r} is no fault; known are {', '.join(FAULTS)}")
        self.faults.add(fault)
        self._set_links()

    def end(self, fault: str) -> None:
        """Put something right again."""
        self.faults.discard(fault)
        self._set_links()

    def leaf_port(self, rail: int) -> ports.Port:
        """Give the switch's end of a rail of the host."""
        return self._leaf_ports[rail][0]

    def bandwidth_share(self) -> float:
        """Give what collectives reach now, where 1 is what they reach when all rails are well."""
        bits = self._burst_packets * FRAMES["rdma"].wire * 8
        return bits / (RAIL_SPEED * EFFICIENCY) / self._burst_seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.uptime += seconds
        self._background(seconds)
        while seconds > 0:
            if self._compute_left > 0:
                spent = min(seconds, self._compute_left)
                self._compute_left -= spent
            else:
                whole = self._burst_seconds()
                spent = min(seconds, self._burst_left * whole)
                self._exchange(spent, spent / whole)
                self._burst_left -= spent / whole
                if self._burst_left < 1e-9:  # what floating point left over
                    self.steps += 1
                    self._next_step()
            seconds -= spent

    def _next_step(self) -> None:
        late = STRAGGLER_DELAY if "straggler" in self.faults else 0.0
        self._compute_left = COMPUTE * self._random.uniform(0.9, 1.1) + late
        self._burst_packets = BURST_PACKETS * self._random.uniform(0.95, 1.05)
        self._burst_left = 1.0
        self._shares = [self._random.uniform(0.99, 1.0) for _ in self.rails]

    def _set_links(self) -> None:
        """Bring both ends of each rail to what the faults say."""
        for rail in self.rails:
            port, other = rail.port, self.leaf_port(rail.number)
            up = not (rail.number == DOWN_RAIL and "link-down" in self.faults)
            slow = rail.number == DEGRADED_RAIL and "degraded-link" in self.faults
            speed = DEGRADED_SPEED if slow else RAIL_SPEED
            if port.speed != speed and port.up:  # a link comes up anew at another speed
                port.counters.add("carrier_changes", 2)
            if port.up != up:
                port.counters.add("carrier_changes", 1)
                port.counters.add("link_down", not up)
            port.up = other.up = up
            port.speed = other.speed = speed

    def _is_stormy(self, rail: Nic) -> bool:
        return rail.number == PAUSED_RAIL and "pause-storm" in self.faults

    def _weight(self, rail: Nic) -> float:
        """Give a rail's traffic, where 1 is an equal share of all of them."""
        if not rail.port.up:
            return 0.0
        weight = self._shares[rail.number] * len(self.rails) / sum(one.port.up for one in self.rails)
        if rail.port.speed < RAIL_SPEED:
            weight *= 0.5  # the library puts fewer channels on it
        return weight * 1.5 if rail.number == BUSY_RAIL and "imbalance" in self.faults else weight

    def _burst_seconds(self) -> float:
        """Give how long a whole exchange takes as things are now: as long as on the slowest rail."""
        bits = self._burst_packets * FRAMES["rdma"].wire * 8
        return max(
            bits * self._weight(rail) / (rail.port.speed * EFFICIENCY * (1 - STORM * self._is_stormy(rail)))
            for rail in self.rails
        )

    def _exchange(self, seconds: float, share: float) -> None:
        """Move a share of the step's exchange."""
        for rail in self.rails:
            packets = self._carry(rail, "rdma", self._burst_packets * self._weight(rail) * share)
            counters = rail.port.counters
            congestion = 100 if self._is_stormy(rail) else 1
            marked = counters.add("ecn_marked", packets * 2e-6 * congestion)
            self.leaf_port(rail.number).counters.add("ecn_marked", marked)
            counters.add("cnp_sent", marked)
            counters.add("cnp_handled", packets * 1.5e-6 * congestion)
            counters.add("write_requests", packets / 256)
            if rail.port.up and not self._is_stormy(rail):
                self._pause(rail, PAUSE * seconds)

    def _carry(self, rail: Nic, kind: str, amount: float) -> int:
        """Move packets over a rail, out and in, and over the ports of its leaf; the peers' rails carry the same."""
        sent = rail.port.counters.add(f"transmit_{kind}", amount)
        received = rail.port.counters.add(f"receive_{kind}", amount)
        hosts = self._leaf_ports[rail.number]
        for port in hosts:
            port.counters.add(f"receive_{kind}", sent)
            port.counters.add(f"transmit_{kind}", received)
        if kind == "rdma":
            uplinks = self.leaves[rail.number // RAILS_A_LEAF].uplinks
            for way, packets in (("transmit", sent), ("receive", received)):
                each, more = divmod(packets * len(hosts), len(uplinks))
                for place, port in enumerate(uplinks):
                    port.counters.add(f"{way}_rdma", each + (place < more))
        return sent

    def _pause(self, rail: Nic, seconds: float) -> None:
        """Have the leaf pause a rail."""
        counters = rail.port.counters
        paused = counters.add("paused_microseconds", seconds * 1e6)
        frames = counters.add("pause_frames", paused / PAUSE_FRAME)
        counters.add("pause_transitions", frames / 2)
        self.leaf_port(rail.number).counters.add("sent_pause_frames", frames)

    def _background(self, seconds: float) -> None:
        """Move what goes on whatever the job does."""
        for rail in self.rails:
            if not rail.port.up:
                continue
            self._carry(rail, "kernel", 3.0 * seconds)
            self._carry(rail, "multicast", seconds / 30)
            counters = rail.port.counters
            counters.add("fec_corrected_bits", 20_000 * seconds)
            counters.add("out_of_sequence", 0.02 * seconds)
            if rail.port.speed < RAIL_SPEED:
                counters.add("symbol_errors", 3 * seconds)
                self.leaf_port(rail.number).counters.add("receive_errors", seconds)
            if self._is_stormy(rail):
                self._pause(rail, STORM * seconds)
        for way, packets in (("receive", 24_000), ("transmit", 9_000)):
            self.management.port.counters.add(f"{way}_bulk", packets * seconds)
            for leaf in self.leaves:
                leaf.management.counters.add(f"{way}_bulk", packets / 1000 * seconds)
        self.management.port.counters.add("receive_multicast", seconds / 30)
