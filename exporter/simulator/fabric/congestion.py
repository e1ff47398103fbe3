"""What happens on the links while flows are sent: rates, queues, ECN marks, pauses, drops and retransmissions.

A fluid model. Each adapter offers what its own link and memory allow. A port of a switch that is offered more than it
can send has a queue: it marks packets, and with PFC it pauses the links that feed the queue, up to the senders; without
PFC it drops. Pauses take capacity from the links that they stop, also for flows that go elsewhere. All ranks wait for
the slowest link, so the duration of a collective is that of the link which has the most to send for its capacity.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.simulator.fabric.conditions import AdapterState, Conditions
from exporter.simulator.fabric.flows import Flow
from exporter.simulator.fabric.topology import Cable, End, Hop, Topology
from exporter.simulator.ports import FRAMES

PAYLOAD = 4096
"""Bytes of data in a frame of RDMA."""

WIRE_BITS = FRAMES["rdma"].wire / PAYLOAD * 8
"""Bits on the wire for each byte of data."""

TCP_RATE = 40e9
"""Bits per second of TCP over one adapter: the processor copies all data."""

BURST = 0.002
"""Share of the time in which a queue is too long though its mean load is not: packets arrive in bursts."""

PUSHBACK = 0.2
"""Share of an overload that pauses stop where senders react to marks, which slows them for the rest of it."""

UNCHECKED = 10
"""Factor of the bursts of a sender that does not react."""

MARKS, OVERLOAD_MARKS = 2e-6, 4e-4
"""Share of marked packets at full load, and at an overload without limit."""

MARKS_UNCHECKED = 100
"""Factor of the marks of a sender that does not react."""

DROPS = 0.1
"""Share of the packets of a burst that are dropped without PFC."""

GO_BACK = 800
"""Packets that RDMA sends again for each lost one: all that were sent until the sender knows of the loss."""

IDLE_DEPTH, MARKING_DEPTH, PAUSING_DEPTH = 20_000, 300_000, 2_000_000
"""Bytes in a queue at full load, at which a switch marks all packets, and at which it pauses those who send to it."""


@dataclass(slots=True)
class HopTraffic:
    """Traffic over one direction of a link; amounts are for each byte that a ring over all rails moves.

    Attributes:
        sent: Bytes of data that are sent, with those that are sent again.
        dropped: Bytes that the sender drops, as its queue is full.
        damaged: Bytes that arrive damaged.
        marked: Bytes in packets that the sender marks.
        paused: Share of the time in which the receiver pauses the sender.
        queue: Bytes in the sender's queue.
    """

    sent: float = 0.0
    dropped: float = 0.0
    damaged: float = 0.0
    marked: float = 0.0
    paused: float = 0.0
    queue: float = 0.0


@dataclass(slots=True)
class ConnectionTraffic:
    """What the ends of a connection notice, for each byte that a ring over all rails moves.

    Attributes:
        arrived: Bytes that arrive.
        marked: Bytes in packets that arrive with a mark.
        lost: Bytes that do not arrive.
    """

    arrived: float = 0.0
    marked: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """How a collective is transferred.

    Attributes:
        rdma: Whether it is sent by RDMA.
        seconds_a_byte: Seconds for each byte that a ring over all rails moves.
        hops: Traffic of each hop.
        connections: What the ends notice, by sending and receiving adapter.
    """

    rdma: bool
    seconds_a_byte: float
    hops: Mapping[Hop, HopTraffic]
    connections: Mapping[tuple[End, End], ConnectionTraffic]


@dataclass(slots=True)
class _Link:
    """One direction of a link during an exchange.

    Attributes:
        stage: Its place on the way: from an adapter, to a spine, to a leaf, to an adapter.
        capacity: Bits per second that it can send; less what pauses take, once its receiver is done.
        offered: Bits per second that it would send if it could.
        unchecked: The part of these from adapters that do not react to marks.
        feeders: The hops that feed it.
        paused: Share of the time for which the receiver pauses it.
        damage: Share of the packets that arrive damaged.
        drops: Share of the packets that are dropped before it.
        marks: Share of the packets that are marked before it.
        queue: Bytes before it.
    """

    stage: int
    capacity: float
    damage: float
    offered: float = 0.0
    unchecked: float = 0.0
    feeders: set[Hop] = field(default_factory=set)
    paused: float = 0.0
    drops: float = 0.0
    marks: float = 0.0
    queue: float = 0.0


def exchange(flows: Sequence[Flow], topology: Topology, conditions: Conditions) -> Exchange:
    """Return how a collective with these flows is transferred."""
    links = _links(flows, topology, conditions)
    # Pauses act against the direction of the data: the last links first.
    for link in sorted(links.values(), key=lambda one: -one.stage):
        _congest(link, links, conditions)
    hops, connections = _carry(flows, links, rdma=conditions.job.rdma)
    of_links = max(hops[hop].sent * WIRE_BITS / link.capacity for hop, link in links.items())
    seconds = max(of_links, _seconds_in_memory(flows, conditions))
    return Exchange(conditions.job.rdma, seconds, hops, connections)


def _links(flows: Sequence[Flow], topology: Topology, conditions: Conditions) -> dict[Hop, _Link]:
    """Return the links that flows use, with what is offered to each."""
    links: dict[Hop, _Link] = {}
    shares = _shares(flows)
    for flow in flows:
        first = topology.access(flow.source)
        state = conditions.adapter(flow.source)
        line = topology.shape.adapter_speed * conditions.cable(first).speed
        rate = min(line, state.memory_rate, line if conditions.job.rdma else TCP_RATE)
        before: Hop | None = None
        for hop in flow.hops:
            link = links.get(hop)
            if link is None:
                link = links[hop] = _link(hop, topology, conditions)
            offered = rate * flow.share / shares[flow.source]
            link.offered += offered
            link.unchecked += 0.0 if state.reacts else offered
            if before is not None:
                link.feeders.add(before)
            before = hop
    for hop, link in links.items():
        if link.stage == _LAST:
            link.paused = _pause_of_adapter(conditions.adapter(hop.receiver), min(link.offered, link.capacity))
    return links


_FIRST, _LAST = 0, 3


def _link(hop: Hop, topology: Topology, conditions: Conditions) -> _Link:
    cable, upwards = _cable(hop, topology)
    state = conditions.cable(cable)
    access = cable.lower.device not in topology.leaves
    speed = topology.shape.adapter_speed if access else topology.shape.uplink_speed
    stage = (_FIRST if access else 1) if upwards else (_LAST if access else 2)
    return _Link(stage, speed * state.speed, state.loss_up if upwards else state.loss_down)


def _cable(hop: Hop, topology: Topology) -> tuple[Cable, bool]:
    """Return the cable of a hop, and whether the hop leads towards the spines."""
    upwards = hop.receiver.device in topology.spines or hop.sender.device in topology.hosts
    return (Cable(hop.sender, hop.receiver) if upwards else Cable(hop.receiver, hop.sender)), upwards


def _pause_of_adapter(state: AdapterState, arriving: float) -> float:
    """Return the share of the time for which an adapter pauses its leaf while packets arrive at some rate."""
    full = 0.0 if state.staged else max(0.0, 1 - state.memory_rate / arriving)
    return max(state.storm, state.pausing, full)


def _congest(link: _Link, links: Mapping[Hop, _Link], conditions: Conditions) -> None:
    """Find the queue before a link, and what its switch does about it."""
    link.capacity *= 1 - link.paused
    if link.stage == _FIRST:
        return  # the queue is in the memory of the host
    pressure = link.offered / link.capacity
    overload, load = max(0.0, 1 - 1 / pressure), min(1.0, pressure)
    unchecked = link.unchecked / link.offered
    burst = BURST * load * (1 + (UNCHECKED - 1) * unchecked)
    depth = MARKING_DEPTH + (PAUSING_DEPTH - MARKING_DEPTH) * unchecked
    link.queue = load * IDLE_DEPTH + overload * depth
    if conditions.job.rdma:
        link.marks = (MARKS * load + OVERLOAD_MARKS * overload) * (1 + (MARKS_UNCHECKED - 1) * unchecked)
    if not (conditions.job.rdma and conditions.job.lossless):
        link.drops = (burst + PUSHBACK * overload) * DROPS
        return
    stopped = burst + overload * (PUSHBACK + (1 - PUSHBACK) * unchecked)
    for feeder in link.feeders:
        links[feeder].paused = max(links[feeder].paused, stopped)


def _carry(
    flows: Iterable[Flow], links: Mapping[Hop, _Link], *, rdma: bool
) -> tuple[dict[Hop, HopTraffic], dict[tuple[End, End], ConnectionTraffic]]:
    """Send the flows over the links, with what has to be sent again."""
    hops = {hop: HopTraffic(paused=link.paused, queue=link.queue) for hop, link in links.items()}
    connections: dict[tuple[End, End], ConnectionTraffic] = defaultdict(ConnectionTraffic)
    for flow in flows:
        lost = sum(links[hop].drops + links[hop].damage for hop in flow.hops)
        begun = left = flow.share * (1 + lost * (GO_BACK if rdma else 1))
        ends = connections[flow.source, flow.target]
        for hop in flow.hops:
            link, traffic = links[hop], hops[hop]
            traffic.dropped += left * link.drops
            left -= left * link.drops
            traffic.sent += left
            traffic.marked += left * link.marks
            ends.marked += left * link.marks
            traffic.damaged += left * link.damage
            left -= left * link.damage
        ends.arrived += left
        ends.lost += begun - left
    return hops, dict(connections)


def _seconds_in_memory(flows: Sequence[Flow], conditions: Conditions) -> float:
    """Return the seconds for each byte that the slowest adapter needs to pass data from or to memory."""
    slowest = 0.0
    for turned in (flows, [flow._replace(source=flow.target) for flow in flows]):
        for adapter, share in _shares(turned).items():
            rate = conditions.adapter(adapter).memory_rate
            rate = rate if conditions.job.rdma else min(rate, TCP_RATE)
            slowest = max(slowest, share * WIRE_BITS / rate)
    return slowest


def _shares(flows: Iterable[Flow]) -> dict[End, float]:
    """Return the part of the bytes that each adapter sends."""
    shares: dict[End, float] = defaultdict(float)
    for flow in flows:
        shares[flow.source] += flow.share
    return shares
