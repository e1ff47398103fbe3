"""A simulated InfiniBand fabric within the process, for faults and link generations that ibsim does not simulate.

It replaces libibumad: requests are parsed from the bytes of datagrams, and replies are built from the layouts of the
specification, not by the code under test. Links may have any generation; nodes may be unresponsive, late, busy,
protected by an M_Key or faulty. It has its own clock, so waiting takes no time.
"""

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest

from exporter.core.source import Failure
from exporter.core.table import Value
from exporter.linux.mad import umad
from exporter.linux.mad import window as mad_window
from exporter.linux.mad.datagram import (
    Reply,
    Request,
    decode,
    encode,
)
from exporter.linux.mad.umad import LocalPort, UmadError
from exporter.meaning.ports import links, rates
from exporter.sources.ibfabric import counters, sweep, tables
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.source import IbFabricSource

SIZE, DATA = 256, 64
GET, GET_RESPONSE = 0x01, 0x81
UNSUPPORTED_ATTRIBUTE, BUSY, REDIRECT = 0x000C, 0x0001, 0x0002
HAS_EXTENDED_SPEEDS, HAS_MASK_2, IS_SM = 1 << 14, 1 << 15, 1 << 1
MELLANOX = 0x0002C9

WIDTH_CODES = {1: 1, 4: 2, 8: 4, 12: 8, 2: 16}
SPEED_CODES = {"SDR": 1, "DDR": 2, "QDR": 4, "FDR10": 4}
EXTENDED_CODES = {"FDR": 1, "EDR": 2, "HDR": 4, "NDR": 8}

NARROW = {
    "symbol_errors": 16,
    "link_error_recovery": 8,
    "link_down": 8,
    "receive_errors": 16,
    "receive_remote_physical_errors": 16,
    "receive_switch_relay_errors": 16,
    "transmit_discards": 16,
    "transmit_constraint_errors": 8,
    "receive_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "vl15_dropped": 16,
    "transmit_wait": 32,
}
TRAFFIC = (
    "transmit_words",
    "receive_words",
    "transmit_packets",
    "receive_packets",
    "transmit_unicast_packets",
    "receive_unicast_packets",
    "transmit_multicast_packets",
    "receive_multicast_packets",
)
RECEIVE_DETAILS = ("local_physical", "malformed", "buffer_overrun", "dlid_mapping", "vl_mapping", "looping")
DISCARD_DETAILS = ("inactive", "neighbor_mtu", "lifetime", "hoq_lifetime")


class Clock:
    """A clock that advances while code sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += max(seconds, 1e-6)  # a sleep of 0 advances it too

    def install(self, patch: pytest.MonkeyPatch) -> "Clock":
        """Replace the clock of all modules that take part in sweeps."""
        for module in (mad_window, counters, sweep, tables):
            patch.setattr(module, "monotonic", self)
        patch.setattr(mad_window, "sleep", self.sleep)
        return self


@dataclass(eq=False)
class Port:
    """A port: its peer, its link and its counters."""

    node: "Node"
    number: int
    peer: "Port | None" = None
    lid: int = 0
    state: int = 1
    physical: int = 2
    lanes: int = 4
    generation: str = "HDR"
    supported_lanes: tuple[int, ...] = (1, 2, 4)
    supported_generations: tuple[str, ...] = ("SDR", "DDR", "QDR", "FDR", "EDR", "HDR")
    capabilities: int = 0
    capabilities_2: int = 0
    protect: int = 0
    fec_mode: int | None = None
    fec: tuple[int, int, int] = (0, 0, 0)  # RS-FEC blocks corrected and uncorrectable; corrected on lane 0
    counts: dict[str, int] = field(default_factory=dict)
    sent_by_sl: dict[int, int] = field(default_factory=dict)

    def info(self) -> bytes:
        """Encode PortInfo."""
        data = bytearray(64)
        mask = self.capabilities | HAS_MASK_2
        extended = sum(EXTENDED_CODES.get(one, 0) for one in self.supported_generations)
        struct.pack_into(">QHHI", data, 8, self.node.fabric.prefix, self.lid, self.node.fabric.sm_lid, mask)
        is_up = self.physical == 5
        active = EXTENDED_CODES.get(self.generation, 0)
        slow = SPEED_CODES.get(self.generation, 4)
        if extended or "XDR" in self.supported_generations:
            mask |= HAS_EXTENDED_SPEEDS
            struct.pack_into(">I", data, 20, mask)
            data[62] = (active if is_up else 0) << 4 | extended
            data[56] = (1 << 5 if is_up and self.generation == "XDR" else 0) | (
                1 << 3 if "XDR" in self.supported_generations else 0
            )
        data[28] = self.number
        data[30] = sum(WIDTH_CODES[one] for one in self.supported_lanes)
        data[31] = WIDTH_CODES[self.lanes] if is_up else 2
        supported = {SPEED_CODES[one] for one in self.supported_generations if one in SPEED_CODES}
        data[32] = sum(supported) << 4 | self.state
        data[33] = self.physical << 4 | 2
        data[34] = self.protect << 6
        data[35] = (slow if is_up else 1) << 4 | 1
        has_fec = any(one.fec_mode is not None for one in self.node.ports.values())
        struct.pack_into(">H", data, 60, self.capabilities_2 | (2 if has_fec else 0))
        if self.node.kind == 2 and self.number:  # the masks of a switch are valid at its port 0 only
            struct.pack_into(">I", data, 20, 0)
            struct.pack_into(">H", data, 60, 0)
        return bytes(data)

    def narrow(self, name: str) -> int:
        """Return a counter of PortCounters, which stops at its maximum."""
        return min(self.counts.get(name, 0), (1 << NARROW.get(name, 32)) - 1)


@dataclass(eq=False)
class Node:
    """A node and its faults."""

    fabric: "Simulation"
    guid: int
    kind: int
    description: bytes
    ports: dict[int, Port]
    vendor: int = MELLANOX
    mask: int = 1 << 9 | 1 << 12  # PortCountersExtended and PortXmitWait
    mask_2: int = 0
    enhanced_port_0: bool = False
    unsupported: frozenset[tuple[int, int]] = frozenset()  # management class and attribute
    silent: frozenset[int] = frozenset()  # classes without response: 1 subnet management, 4 performance
    late: float = 0.0
    busy: int = 0
    key: int = 0
    tamper: Callable[[bytes], bytes | None] | None = None
    requests: list[bytes] = field(default_factory=list)
    sm: tuple[int, int, int] | None = None  # activity, priority and state of a subnet manager at this node

    @property
    def lid_port(self) -> Port:
        return self.ports[min(self.ports)]

    def stop_responding(self) -> None:
        """Stop responding in all management classes."""
        self.silent = frozenset({1, 4})

    def subnet(self, attribute: int, modifier: int, arrived: int) -> bytes | None:
        """Encode an attribute of subnet management; None for one that is not supported."""
        data = bytearray(192)
        if attribute == 0x10:
            data[: len(self.description)] = self.description
        elif attribute == 0x11:
            count = max(self.ports)
            port_guid = self.guid if self.kind == 2 else self.guid + arrived
            struct.pack_into(
                ">BBBBQQQHHI", data, 0, 1, 1, self.kind, count, self.guid, self.guid, port_guid, 32, 54000, 7
            )
            struct.pack_into(">I", data, 36, arrived << 24 | self.vendor)
        elif attribute == 0x12 and self.kind == 2:
            data[16] = 8 if self.enhanced_port_0 else 0
        elif attribute == 0x15:
            port = self.ports.get(modifier or (0 if self.kind == 2 else arrived))
            if port is None:
                return None
            data[:64] = port.info()
        elif attribute == 0x20 and self.sm is not None:
            activity, priority, state = self.sm
            struct.pack_into(">QQIB", data, 0, self.guid + 1, 0, activity, priority << 4 | state)
        elif attribute == 0x33 and self.ports[modifier].fec_mode is not None:
            struct.pack_into(">IH", data, 0, 1, self.ports[modifier].fec_mode)
        elif attribute == 0xFF90 and self.vendor == MELLANOX:
            port = self.ports[modifier]
            data[7] = int("FDR10" in port.supported_generations)
            data[15] = int(port.generation == "FDR10")
        else:
            return None
        return bytes(data)

    def performance(self, attribute: int, number: int) -> bytes | None:
        """Encode an attribute of performance management; None for one that is not supported."""
        data = bytearray(192)
        if attribute == 1:
            struct.pack_into(">BBHI", data, 0, 1, 1, self.mask, self.mask_2 << 5 | 18)
            return bytes(data)
        port = self.ports.get(number)
        if port is None:
            return None
        data[1] = number
        if attribute in (0x12, 0x1D):
            return self._counters(attribute, port, data)
        counts = port.counts
        if attribute == 0x15:
            struct.pack_into(">6H", data, 4, *(counts.get(name, 0) for name in RECEIVE_DETAILS))
        elif attribute == 0x16:
            struct.pack_into(">4H", data, 4, *(counts.get(name, 0) for name in DISCARD_DETAILS))
        elif attribute == 0x1F:
            struct.pack_into(">I", data, 44 + 12, port.fec[2])
            struct.pack_into(">II", data, 140, *port.fec[:2])
        elif attribute == 0x36:
            struct.pack_into(">16I", data, 4, *(port.sent_by_sl.get(level, 0) for level in range(16)))
        elif attribute == 0x37:
            pass
        else:
            return None
        return bytes(data)

    def _counters(self, attribute: int, port: Port, data: bytearray) -> bytes | None:
        """Encode PortCounters or PortCountersExtended."""
        counts = port.counts
        if attribute == 0x12:
            first, rest = ("symbol_errors", "link_error_recovery", "link_down"), list(NARROW)[3:9]
            struct.pack_into(">HBB", data, 4, *map(port.narrow, first))
            struct.pack_into(">HHHHBB", data, 8, *map(port.narrow, rest))
            data[19] = port.narrow("local_link_integrity_errors") << 4 | port.narrow("excessive_buffer_overrun_errors")
            struct.pack_into(">H", data, 22, port.narrow("vl15_dropped"))
            struct.pack_into(">5I", data, 24, *map(port.narrow, (*TRAFFIC[:4], "transmit_wait")))
        elif self.mask & (1 << 9 | 1 << 10):
            struct.pack_into(">8Q", data, 8, *(counts.get(name, 0) for name in TRAFFIC))
            if self.mask_2 & 2:
                struct.pack_into(">13Q", data, 72, *(counts.get(name, 0) for name in NARROW))
        else:
            return None
        return bytes(data)


class Simulation:
    """A fabric, read from one of its ports; also the port opener and the endpoint of the code under test."""

    def __init__(self, clock: Clock) -> None:
        self.prefix = 0xFE80 << 48 | os.getpid()  # unique: the lock of a subnet is shared by all processes
        self.clock = clock
        self.nodes: list[Node] = []
        self.sm_lid = 1
        self.wire: list[bytes] = []
        self.origin: Port | None = None
        self.opened = self.closed = 0
        self.error: UmadError | None = None
        self.layer = True
        self.failing: OSError | None = None
        self.waits: Callable[[], None] = lambda: None
        self._coming: list[tuple[float, int, bytes]] = []

    def switch(self, guid: int, ports: int, description: str = "") -> Node:
        """Add a switch."""
        return self._add(Node(self, guid, 2, description.encode(), {}), range(ports + 1))

    def adapter(self, guid: int, description: str = "", ports: int = 1) -> Node:
        """Add an adapter."""
        return self._add(Node(self, guid, 1, description.encode(), {}), range(1, ports + 1))

    def _add(self, node: Node, numbers: range) -> Node:
        node.ports = {number: Port(node, number) for number in numbers}
        if node.kind == 2:
            node.ports[0].state, node.ports[0].physical = 4, 5
        self.nodes.append(node)
        return node

    def link(self, one: Node, one_port: int, other: Node, other_port: int, **properties: object) -> tuple[Port, Port]:
        """Plug in a cable; both its ends come up."""
        ends = one.ports[one_port], other.ports[other_port]
        for end in ends:
            self.unlink(end)
        for end, peer in zip(ends, reversed(ends), strict=True):
            end.peer, end.state, end.physical = peer, 4, 5
            for key, value in properties.items():
                setattr(end, key, value)
        return ends

    def unlink(self, end: Port) -> None:
        """Pull a cable."""
        for one in (end, end.peer):
            if one is not None:
                one.peer, one.state, one.physical = None, 1, 2

    def manage(self) -> None:
        """Assign LIDs as a subnet manager does, in the order in which nodes were added."""
        lid = 1
        for node in self.nodes:
            for port in [node.ports[0]] if node.kind == 2 else node.ports.values():
                port.lid, lid = lid, lid + 1

    # --- port opener

    def local(self, _choice: object) -> LocalPort:
        if self.error is not None:
            raise self.error
        assert self.origin is not None
        port = self.origin
        local = LocalPort(
            "mlx5_0",
            port.number,
            port.lid,
            self.sm_lid,
            port.state,
            self.layer,
            self.prefix,
            port.node.guid + port.number,
        )
        return umad.select_port([local], "", None)

    def open(self, _port: LocalPort) -> "Simulation":
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1

    # --- endpoint

    def send(self, request: Request, transaction: int, seconds: float, m_key: int = 0) -> None:
        assert seconds > 0
        if self.failing is not None:
            raise self.failing
        datagram = encode(request, transaction, m_key)
        lid = request.route.lid
        assert len(datagram) == SIZE
        assert datagram[3] == GET, "only Gets may be sent"
        self.wire.append(datagram)
        for answer, delay in self._answers(datagram, lid):
            heappush(self._coming, (self.clock.now + delay, len(self.wire), answer))

    def receive(self, seconds: float) -> Reply | None:
        self.waits()
        end = self.clock.now + seconds
        if self._coming and self._coming[0][0] <= end:
            at, _, datagram = heappop(self._coming)
            self.clock.now = max(self.clock.now, at)
            return decode(datagram)
        self.clock.sleep(seconds)
        return None

    def _answers(self, datagram: bytes, lid: int) -> list[tuple[bytes, float]]:
        mad_class = datagram[1]
        (attribute, _, modifier) = struct.unpack_from(">HHI", datagram, 16)
        by_route = mad_class == 0x81
        place = self._along(datagram[129 : 129 + datagram[7]]) if by_route else self._at(lid)
        if place is None:
            return []
        node, arrived = place
        node.requests.append(datagram)
        kind = 4 if mad_class == 4 else 1
        if kind in node.silent:
            return []
        if kind == 1 and node.lid_port.protect >= 2 and node.key != struct.unpack_from(">Q", datagram, 24)[0]:
            return []
        answer = bytearray(datagram)
        answer[3] = GET_RESPONSE
        status = 0x8000 if by_route else 0
        data: bytes | None = None
        if (kind, attribute) not in node.unsupported:
            data = (
                node.performance(attribute, datagram[DATA + 1])
                if kind == 4
                else node.subnet(attribute, modifier, arrived)
            )
        if node.busy:
            node.busy -= 1
            status |= BUSY
        elif data is None:
            status |= UNSUPPORTED_ATTRIBUTE
        else:
            answer[DATA : DATA + len(data)] = data
        struct.pack_into(">H", answer, 4, status)
        sent: bytes | None = bytes(answer)
        if node.tamper is not None:
            sent = node.tamper(bytes(answer))
        return [] if sent is None else [(sent, node.late + 20e-6)]

    def _along(self, path: bytes) -> tuple[Node, int] | None:
        """Follow a directed route: return the node at its end and its ingress port."""
        assert self.origin is not None
        node, arrived = self.origin.node, self.origin.number
        for hop, number in enumerate(path):
            port = node.ports.get(number)
            if hop and (node.kind != 2 or number == 0 or 1 in node.silent):
                return None  # through a node that does not forward
            if port is None or port.peer is None or port.physical != 5:
                return None
            node, arrived = port.peer.node, port.peer.number
        return node, arrived

    def _at(self, lid: int) -> tuple[Node, int] | None:
        """Find the node with a LID among the linked nodes."""
        assert self.origin is not None
        visited, queue = {id(self.origin.node)}, [(self.origin.node, self.origin.number)]
        for node, arrived in queue:
            own = node.ports[0] if node.kind == 2 else node.ports[arrived]
            if lid and own.lid == lid:
                return node, arrived
            for port in node.ports.values() if node.kind == 2 else (own,):
                if port.peer is not None and port.physical == 5 and id(port.peer.node) not in visited:
                    visited.add(id(port.peer.node))
                    queue.append((port.peer.node, port.peer.number))
        return None


def small(clock: Clock) -> Simulation:
    """Return two leaves with two hosts each and a spine, all 4X HDR, read from the first host, the subnet manager."""
    fabric = Simulation(clock)
    hosts = [fabric.adapter(0x1000 + 0x10 * number, f"gpu-{number} mlx5_0") for number in (1, 2, 3, 4)]
    leaves = [fabric.switch(0x2000 + number, 4, f"leaf-{number}") for number in (1, 2)]
    spine = fabric.switch(0x3001, 4, "spine-1")
    for place, host in enumerate(hosts):
        fabric.link(leaves[place // 2], place % 2 + 1, host, 1)
    for place, leaf in enumerate(leaves):
        fabric.link(leaf, 3, spine, place + 1)
    fabric.origin = hosts[0].ports[1]
    hosts[0].ports[1].capabilities |= IS_SM
    hosts[0].sm = (77, 14, 3)
    fabric.manage()
    return fabric


@dataclass
class SweepResult:
    """Result of one sweep: values by metric and labels, and failures."""

    values: Mapping[str, Mapping[tuple[str, ...], Value]]
    failures: Sequence[Failure]

    def value(self, name: str, node: Node, port: int | None = None, *more: str) -> Value | None:
        """Return a value of a node, or of one of its ports."""
        key = (f"{node.guid:016x}", *(() if port is None else (str(port),)), *more)
        return self.values.get(f"fabric_ib_{name}", {}).get(key)

    def sweep_value(self, name: str) -> Value:
        """Return a value about the sweep itself."""
        (value,) = self.values[f"fabric_ib_sweep_{name}"].values()
        return value

    def links(self) -> set[frozenset[tuple[str, str]]]:
        """Return the links, each as its two ends."""
        peers = self.values.get("fabric_ib_link_info", {})
        return {frozenset({key, (peer[0], peer[1])}) for key, peer in peers.items() if peer[0]}

    def reasons(self) -> list[tuple[str, str]]:
        """Return device and reason of each failure."""
        return [(failure.device, failure.reason) for failure in self.failures]


class SourceSweeper:
    """The source on a simulated fabric, followed by the steps that compute rates and link states."""

    STEPS = (rates.step, lambda state, table: links.step(None, None, state, table))

    def __init__(self, fabric: Simulation, **options: object) -> None:
        self.fabric = fabric
        self.source = IbFabricSource(IbFabricOptions(enabled=True, **options), PortChoice(), "poller", fabric)
        self._memory: dict[object, object] = {}

    async def sweep(self, seconds: float = 30.0) -> SweepResult:
        """Sweep some seconds after the last sweep."""
        self.fabric.clock.now += seconds
        reading = await self.source.read()
        made = list(reading.tables)
        for place, step in enumerate(self.STEPS):
            done = []
            for table in made:
                key = (place, table.schema, table.part)
                self._memory[key], out = step(self._memory.get(key), table)
                done += out
            made = done
        values: dict[str, dict[tuple[str, ...], Value]] = {}
        for table in made:
            for column in table.columns.values():
                rows = zip(table.rows.keys, column.values, strict=True)
                values.setdefault(column.metric.name, {}).update({key: one for key, one in rows if one is not None})
        return SweepResult(values, reading.failures)
