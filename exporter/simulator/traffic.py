"""The traffic of a training job over eight rails, and the counters of all devices that carry it.

A model without I/O. The job computes, then its ranks exchange gradients in rings over all rails, and the step ends with
the slowest rail. Both ends of a link count the same packets. The same seed and the same calls give the same counters.
"""

import random
from collections.abc import Iterable

from exporter.simulator import ports
from exporter.simulator.faults import FAULTS, RAILS
from exporter.simulator.ports import (
    FEC_BLOCKS_A_BIT,
    FRAMES,
    RAIL_SPEED,
    RAILS_A_LEAF,
    CounterSet,
    Nic,
    SimulatedPort,
)

DEGRADED_SPEED = 100_000_000_000

COMPUTE = 4.0
"""Mean computing time of a step, in seconds."""

STRAGGLER_DELAY = 1.0
"""Seconds that a late rank adds to a step."""

BURST_PACKETS = 40_000_000
"""Mean number of packets that a rail sends in the exchange of a step: 165 GB."""

EFFICIENCY = 0.9
"""Share of a link's speed that RDMA achieves."""

STORM = 0.6
"""Share of the time for which a rail is paused in a pause storm."""

PAUSE = 0.002
"""The same in an exchange without faults."""

PAUSE_FRAME = 40
"""Duration of the pause of one frame, in microseconds."""

FLAP_DOWN, FLAP_UP = 5.0, 15.0
"""Seconds that a flapping link is down, and up."""

SLOW_PCI_RATE = 107_000_000_000
"""Data rate of 8 lanes of 16 GT/s without the headers of TLPs, in bits per second."""

CORRECTED_BITS, CORRECTED_BITS_DIRTY = 20_000, 8_000_000
"""Bits per second corrected by FEC: one in 20 million, and one in 50,000 with too little received power."""

LOST, RESENDING = 2e-4, 0.15
"""Effects of too little received power: share of lost packets, and share of the time spent on retransmission."""


class Training:
    """The job, and all devices that count its traffic.

    Attributes:
        faults: Current faults; changed by `begin` and `end`.
        rails: The eight RDMA ports of the host.
        management: Its management NIC.
        leaves: The two switches; the first has rails 0 to 3, the second 4 to 7.
        uptime: Seconds since all devices were started.
        steps: Completed steps of training.
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
        self._flapped, self._until_flap = False, 0.0
        self._next_step()
        for fault in faults:
            self.begin(fault)

    def begin(self, fault: str) -> None:
        """Start a fault.

        Raises:
            ValueError: The fault is unknown.
        """
        if fault not in FAULTS:
            raise ValueError(f"{fault!r} is not a fault; known are {', '.join(FAULTS)}")
        if fault == "flapping-link" and fault not in self.faults:
            self._flapped, self._until_flap = True, FLAP_DOWN
        self.faults.add(fault)
        self._set_links()

    def end(self, fault: str) -> None:
        """End a fault."""
        if fault == "missing-port" and fault in self.faults:
            self.rails[RAILS[fault]].port.counters = CounterSet({})  # a NIC that is added again counts from 0
        self.faults.discard(fault)
        self._set_links()

    def has_fault(self, fault: str, nic: Nic) -> bool:
        """Return whether a fault is active on this NIC."""
        return fault in self.faults and nic is self.rails[RAILS[fault]]

    def leaf_port(self, rail: int) -> SimulatedPort:
        """Return the switch port of a rail of the host."""
        return self._leaf_ports[rail][0]

    def bandwidth_share(self) -> float:
        """Return the bandwidth of collectives, as a share of that without faults."""
        bits = self._burst_packets * FRAMES["rdma"].wire * 8
        return bits / (RAIL_SPEED * EFFICIENCY) / self._burst_seconds()

    def advance(self, seconds: float) -> None:
        """Advance the model."""
        self.uptime += seconds
        while seconds > 0:
            spent = min(seconds, self._until_flap) if "flapping-link" in self.faults else seconds
            self._work(spent)
            seconds -= spent
            self._flap(spent)

    def _work(self, seconds: float) -> None:
        """Compute and exchange for a period in which links do not change."""
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
                if self._burst_left < 1e-9:  # the rounding error of floats
                    self.steps += 1
                    self._next_step()
            seconds -= spent

    def _flap(self, seconds: float) -> None:
        """Change the state of a flapping link when its period ends."""
        self._until_flap -= seconds
        if "flapping-link" in self.faults and self._until_flap <= 0:
            self._flapped = not self._flapped
            self._until_flap = FLAP_DOWN if self._flapped else FLAP_UP
            self._set_links()

    def _next_step(self) -> None:
        late = STRAGGLER_DELAY if "straggler" in self.faults else 0.0
        self._compute_left = COMPUTE * self._random.uniform(0.9, 1.1) + late
        self._burst_packets = BURST_PACKETS * self._random.uniform(0.95, 1.05)
        self._burst_left = 1.0
        self._shares = [self._random.uniform(0.99, 1.0) for _ in self.rails]

    def _set_links(self) -> None:
        """Set state and speed of both ends of each rail according to the faults."""
        for rail in self.rails:
            port, other = rail.port, self.leaf_port(rail.number)
            flapped = self._flapped and self.has_fault("flapping-link", rail)
            up = not (flapped or self.has_fault("link-down", rail) or self.has_fault("missing-port", rail))
            speed = DEGRADED_SPEED if self.has_fault("degraded-link", rail) else RAIL_SPEED
            if port.speed != speed and port.up:  # a change of speed takes the link down and up
                port.counters.add("carrier_changes", 2)
                other.changed = self.uptime
            if port.up != up:
                port.counters.add("carrier_changes", 1)
                port.counters.add("link_down", not up)
                other.changed = self.uptime
            port.up = other.up = up
            port.speed = other.speed = speed

    def _weight(self, rail: Nic) -> float:
        """Return a rail's share of the traffic, where 1 is the mean."""
        if not rail.port.up:
            return 0.0
        weight = self._shares[rail.number] * len(self.rails) / sum(one.port.up for one in self.rails)
        if rail.port.speed < RAIL_SPEED:
            weight *= 0.5  # NCCL assigns fewer channels to it
        return weight * 1.5 if self.has_fault("imbalance", rail) else weight

    def _rate(self, rail: Nic) -> float:
        """Return the data rate of a rail in an exchange, in bits per second."""
        rate = rail.port.speed * EFFICIENCY
        if self.has_fault("pause-storm", rail):
            rate *= 1 - STORM
        if self.has_fault("dirty-optic", rail):
            rate *= 1 - RESENDING
        return min(rate, SLOW_PCI_RATE) if self.has_fault("slow-pcie", rail) else rate

    def _burst_seconds(self) -> float:
        """Return the duration of an exchange, which is that of the slowest rail."""
        bits = self._burst_packets * FRAMES["rdma"].wire * 8
        return max(bits * self._weight(rail) / self._rate(rail) for rail in self.rails)

    def _exchange(self, seconds: float, share: float) -> None:
        """Count the traffic of a share of the step's exchange."""
        for rail in self.rails:
            packets = self._forward(rail, "rdma", self._burst_packets * self._weight(rail) * share)
            if not rail.port.up:
                continue
            counters, leaf_port = rail.port.counters, self.leaf_port(rail.number)
            in_storm, slow = self.has_fault("pause-storm", rail), self.has_fault("slow-pcie", rail)
            congestion = 100 if in_storm or slow else 1
            marked = counters.add("ecn_marked", packets * 2e-6 * congestion)
            leaf_port.counters.add("ecn_marked", marked)
            counters.add("cnp_sent", marked)
            counters.add("cnp_handled", packets * 1.5e-6 * congestion)
            counters.add("write_requests", packets / 256)
            if not in_storm:
                _pause(rail.port, leaf_port, PAUSE * seconds)
            if slow:
                _pause(leaf_port, rail.port, (1 - SLOW_PCI_RATE / (rail.port.speed * EFFICIENCY)) * seconds)
                counters.add("pause_storm_warnings", seconds / 5)
                counters.add("pci_overflows", 2 * seconds)
            if self.has_fault("dirty-optic", rail):
                self._drop(rail, packets * LOST)

    def _drop(self, rail: Nic, packets: float) -> None:
        """Count packets lost in both directions; the other counters of packets do not include them."""
        lost = rail.port.counters.add("fec_uncorrectable_blocks", packets)
        rail.port.counters.add("symbol_errors", lost)
        for name in ("out_of_sequence", "sequence_errors"):
            rail.port.counters.add(name, lost)
        self.leaf_port(rail.number).counters.add("receive_errors", lost)

    def _forward(self, rail: Nic, kind: str, amount: float) -> int:
        """Count packets of a rail in both directions and at the ports of its leaf; the peers have the same traffic."""
        sent = rail.port.counters.add(f"transmit_{kind}", amount)
        received = rail.port.counters.add(f"receive_{kind}", amount)
        hosts = self._leaf_ports[rail.number]
        for port in hosts:
            port.counters.add(f"receive_{kind}", sent)
            port.counters.add(f"transmit_{kind}", received)
        if kind == "rdma":
            uplinks = self.leaves[rail.number // RAILS_A_LEAF].uplinks
            for direction, packets in (("transmit", sent), ("receive", received)):
                each, more = divmod(packets * len(hosts), len(uplinks))
                for place, port in enumerate(uplinks):
                    port.counters.add(f"{direction}_rdma", each + (place < more))
        return sent

    def _background(self, seconds: float) -> None:
        """Count the traffic and the errors that do not depend on the job."""
        for rail in self.rails:
            if not rail.port.up:
                continue
            self._forward(rail, "kernel", 3.0 * seconds)
            self._forward(rail, "multicast", seconds / 30)
            counters = rail.port.counters
            corrected = CORRECTED_BITS_DIRTY if self.has_fault("dirty-optic", rail) else CORRECTED_BITS
            counters.add(
                "fec_corrected_blocks", FEC_BLOCKS_A_BIT * counters.add("fec_corrected_bits", corrected * seconds)
            )
            for name in ("out_of_sequence", "sequence_errors"):
                counters.add(name, 0.02 * seconds)
            if self.has_fault("slow-pcie", rail):
                counters.add("pci_errors", seconds)
            if rail.port.speed < RAIL_SPEED:
                counters.add("symbol_errors", 3 * seconds)
                self.leaf_port(rail.number).counters.add("receive_errors", seconds)
            if self.has_fault("pause-storm", rail):
                _pause(rail.port, self.leaf_port(rail.number), STORM * seconds)
        for direction, packets in (("receive", 24_000), ("transmit", 9_000)):
            self.management.port.counters.add(f"{direction}_bulk", packets * seconds)
            for leaf in self.leaves:
                leaf.management.counters.add(f"{direction}_bulk", packets / 1000 * seconds)
        self.management.port.counters.add("receive_multicast", seconds / 30)


def _pause(port: SimulatedPort, sender: SimulatedPort, seconds: float) -> None:
    """Count pause frames that one end of a link sends to the other."""
    paused = port.counters.add("paused_microseconds", seconds * 1e6)
    frames = port.counters.add("pause_frames", paused / PAUSE_FRAME)
    port.counters.add("pause_transitions", frames / 2)
    sender.counters.add("sent_paused_microseconds", paused)
    sender.counters.add("sent_pause_frames", frames)
