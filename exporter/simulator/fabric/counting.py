"""What the devices count: for each exchange at both ends of each link, and what does not depend on the job.

Names of counters are those of `exporter.simulator.ports`, which the simulated hosts and switches are filled from. An
adapter's `ecn_marked` counts marked packets that it received; that of a port of a switch those that it marked.
"""

from collections.abc import Mapping

from exporter.simulator.fabric.conditions import AdapterState, Conditions
from exporter.simulator.fabric.congestion import PAYLOAD, Exchange, HopTraffic
from exporter.simulator.fabric.topology import End, Topology
from exporter.simulator.ports import FEC_BLOCKS_A_BIT, FRAMES, SimulatedPort

TCP_PAYLOAD = FRAMES["bulk"].counted - 66
"""Bytes of data in a frame of TCP: it has headers of Ethernet, IP and TCP with timestamps."""

PAUSE_FRAME = 40
"""Duration of the pause of one frame, in microseconds."""

WRITE_PACKETS = 256
"""Packets of an RDMA write."""

CORRECTED_BITS, DARK = 20_000, 400
"""Bits per second corrected by FEC, and the factor of an end that receives too little light or damaged frames."""

TIMEOUTS = 0.25
"""Timeouts of a queue pair per second while nothing is acknowledged: a timeout is 4 s."""

KERNEL_PACKETS, MULTICAST_PACKETS = 3.0, 1 / 30
"""Packets per second of an adapter that are not of the job."""

Ports = Mapping[End, SimulatedPort]


def count_exchange(exchange: Exchange, moved: float, busy: float, ports: Ports, conditions: Conditions) -> None:
    """Count a part of an exchange.

    Args:
        exchange: The exchange.
        moved: Bytes that its ring moved in this part.
        busy: Seconds that this part took.
        ports: The ports of all devices.
        conditions: What is wrong.
    """
    kind, payload = ("rdma", PAYLOAD) if exchange.rdma else ("bulk", TCP_PAYLOAD)
    packets = moved / payload
    for (sender, receiver), traffic in exchange.hops.items():
        _count_hop(ports[sender], ports[receiver], traffic, kind, packets)
        # A storm goes on without traffic, and is counted there.
        state = conditions.adapter(receiver)
        pause(ports[sender], ports[receiver], (traffic.paused - state.storm) * busy)
        if is_slow(state):
            ports[receiver].counters.add("pci_overflows", 2 * busy)
    for (source, target), seen in exchange.connections.items():
        sent, received = ports[source].counters, ports[target].counters
        received.add("ecn_marked", seen.marked * packets)
        cnps = received.add("cnp_sent", seen.marked * packets)
        sent.add("cnp_handled" if conditions.adapter(source).reacts else "cnp_ignored", cnps)
        if exchange.rdma:
            received.add("write_requests", seen.arrived * packets / WRITE_PACKETS)
            sent.add("sequence_errors", received.add("out_of_sequence", seen.lost * packets))


def _count_hop(sender: SimulatedPort, receiver: SimulatedPort, traffic: HopTraffic, kind: str, packets: float) -> None:
    sent = sender.counters.add(f"transmit_{kind}", traffic.sent * packets)
    damaged = receiver.counters.add("receive_errors", traffic.damaged * packets)
    for name in ("symbol_errors", "fec_uncorrectable_blocks"):
        receiver.counters.add(name, damaged)
    receiver.counters.add(f"receive_{kind}", sent - damaged)
    sender.counters.add("transmit_discards", traffic.dropped * packets)
    sender.counters.add("ecn_marked", traffic.marked * packets)


def pause(sender: SimulatedPort, receiver: SimulatedPort, seconds: float) -> None:
    """Count pause frames by which a receiver stops a sender for some seconds, at both."""
    paused = sender.counters.add("paused_microseconds", seconds * 1e6)
    frames = sender.counters.add("pause_frames", paused / PAUSE_FRAME)
    sender.counters.add("pause_transitions", frames / 2)
    receiver.counters.add("sent_paused_microseconds", paused)
    receiver.counters.add("sent_pause_frames", frames)


def count_background(seconds: float, ports: Ports, topology: Topology, conditions: Conditions) -> None:
    """Count what does not depend on the job: other packets, corrected bits, and adapters that pause all the time."""
    for cable in topology.cables:
        state = conditions.cable(cable)
        if not state.up:
            continue
        lower, upper = ports[cable.lower], ports[cable.upper]
        _correct(lower, state.loss_down, seconds)
        _correct(upper, state.loss_up, seconds)
        if cable.lower.device in topology.hosts:
            _count_adapter(lower, upper, conditions.adapter(cable.lower), seconds)
        else:  # LLDP of the switches
            _count_packets(lower, upper, "multicast", MULTICAST_PACKETS * seconds)


def _correct(port: SimulatedPort, loss: float, seconds: float) -> None:
    """Count the bits that FEC corrected."""
    bits = CORRECTED_BITS * seconds * (DARK if loss else 1)
    port.counters.add("fec_corrected_blocks", FEC_BLOCKS_A_BIT * port.counters.add("fec_corrected_bits", bits))


def _count_packets(one: SimulatedPort, other: SimulatedPort, kind: str, packets: float) -> None:
    """Count packets that both ends of a link send."""
    for sender, receiver in ((one, other), (other, one)):
        receiver.counters.add(f"receive_{kind}", sender.counters.add(f"transmit_{kind}", packets))


def _count_adapter(adapter: SimulatedPort, leaf_port: SimulatedPort, state: AdapterState, seconds: float) -> None:
    for kind, rate in (("kernel", KERNEL_PACKETS), ("multicast", MULTICAST_PACKETS)):
        _count_packets(adapter, leaf_port, kind, rate * seconds)
    if state.storm:
        pause(leaf_port, adapter, state.storm * seconds)
        adapter.counters.add("pause_storm_warnings", seconds / 5)
    if is_slow(state):
        adapter.counters.add("pci_errors", seconds)


def is_slow(state: AdapterState) -> bool:
    """Return whether the PCIe link of an adapter is slow; one whose data is staged is not."""
    return not state.staged and state.memory_rate < AdapterState().memory_rate


def count_timeouts(seconds: float, ports: Ports, conditions: Conditions, topology: Topology) -> None:
    """Count timeouts of adapters that receive no acknowledgements: what they send is lost, or their link flaps."""
    for host in topology.hosts:
        for adapter in topology.adapters(host):
            cable = conditions.cable(topology.access(adapter))
            if not conditions.adapter(adapter).forwards or (cable.flaps and not cable.up):
                ports[adapter].counters.add("ack_timeouts", TIMEOUTS * seconds)
