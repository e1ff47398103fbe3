"""The devices of the simulated cluster: ports and their counters, the host's NICs, the leaf switches and their links.

All traffic is in frames of a few fixed sizes, so that bytes follow from packets, and counters are integers.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

HOST = "gpu-001"
PEERS = ("gpu-002", "gpu-003", "gpu-004")

RAIL_SPEED = 400_000_000_000
UPLINK_SPEED = 800_000_000_000
MANAGEMENT_SPEED = 25_000_000_000
"""Bits per second."""

DIRECTIONS = ("receive", "transmit")


class Frame(NamedTuple):
    """One kind of frame: its size on the wire, and the size that its endpoint counts, in bytes."""

    wire: int
    counted: int


FRAMES: Mapping[str, Frame] = MappingProxyType(
    {
        "rdma": Frame(wire=4158, counted=4112),
        "kernel": Frame(wire=94, counted=90),
        "bulk": Frame(wire=1518, counted=1514),
        "multicast": Frame(wire=204, counted=200),
    }
)
"""An RDMA port counts 4,096 bytes of data and the InfiniBand headers, the kernel a frame without its FCS."""

KERNEL = ("kernel", "bulk", "multicast")
"""The kinds of frames that the kernel counts."""

UNICAST = ("rdma", "kernel", "bulk")

FEC_BLOCKS_A_BIT = 0.9
"""Corrected FEC blocks per corrected bit: some blocks have two."""


class CounterSet:
    """Counters by name. They are integers; the fraction of an increase is added to the next one."""

    def __init__(self, start: Mapping[str, int]) -> None:
        self._values = dict(start)
        self._fractions: dict[str, float] = {}

    def __getitem__(self, name: str) -> int:
        """Return a counter, 0 where it was never increased."""
        return self._values.get(name, 0)

    def values(self) -> dict[str, int]:
        """Return all counters."""
        return dict(self._values)

    def add(self, name: str, amount: float) -> int:
        """Increase a counter; return the increase, which is an integer."""
        total = self._fractions.get(name, 0.0) + amount
        whole = int(total)
        self._fractions[name] = total - whole
        self._values[name] = self._values.get(name, 0) + whole
        return whole


@dataclass(slots=True)
class SimulatedPort:
    """One end of a link.

    Attributes:
        name: Name of the port on its device.
        alias: The other end; empty where no cable is plugged in.
        speed: Bits per second.
        up: Whether the link is up.
        counters: Packets by `<direction>_<kind of frame>`, and single events.
        changed: Time of the model at which the link went up or down last; 0 if it never did.
    """

    name: str
    alias: str
    speed: int
    up: bool
    counters: CounterSet
    changed: float = 0.0

    def packets(self, direction: str, kinds: Iterable[str] = tuple(FRAMES)) -> int:
        """Return the packets of some kinds of frames."""
        return sum(self.counters[f"{direction}_{kind}"] for kind in kinds)

    def wire_bytes(self, direction: str) -> int:
        """Return the bytes on the wire."""
        return sum(self.counters[f"{direction}_{kind}"] * frame.wire for kind, frame in FRAMES.items())

    def counted_bytes(self, direction: str, kinds: Iterable[str]) -> int:
        """Return the bytes of some kinds of frames as their endpoint counts them."""
        return sum(self.counters[f"{direction}_{kind}"] * FRAMES[kind].counted for kind in kinds)


class PcieSlot(NamedTuple):
    """A PCIe slot of the host.

    Attributes:
        bridges: The bridges above it, from the host bridge down.
        numa_node: Its NUMA node.
        gpu: The downstream port and the address of the GPU below the same PCIe switch; empty for none.
    """

    bridges: tuple[str, ...]
    numa_node: int
    gpu: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC of the host; a rail also has an RDMA device.

    Attributes:
        number: Number of the rail.
        device: Name of the RDMA device; empty where it has none.
        slot: Its PCIe slot.
        pci: PCI address.
        mac: MAC address.
        port: Its only port.
    """

    number: int
    device: str
    slot: PcieSlot
    pci: str
    mac: str
    port: SimulatedPort


class Host(Protocol):
    """What the files of a simulated host are written from."""

    @property
    def management(self) -> Nic:
        """Its management NIC."""

    @property
    def rails(self) -> Sequence[Nic]:
        """Its RDMA ports, by rail."""

    @property
    def uptime(self) -> float:
        """Seconds since its start."""

    def has_fault(self, fault: str, nic: Nic) -> bool:
        """Return whether a NIC has a fault that is seen in its files and not in its counters alone."""


@dataclass(slots=True)
class LeafSwitch:
    """A leaf switch.

    Attributes:
        name: System name.
        management: The management port.
        hosts: Ports to hosts, by rail; the first one of each rail is linked to the simulated host.
        idle: Ports without a cable.
        uplinks: Ports to spines.
    """

    name: str
    management: SimulatedPort
    hosts: dict[int, list[SimulatedPort]] = field(default_factory=dict)
    idle: list[SimulatedPort] = field(default_factory=list)
    uplinks: list[SimulatedPort] = field(default_factory=list)

    @property
    def ports(self) -> list[SimulatedPort]:
        """All ports but the management port."""
        return [*(port for ports in self.hosts.values() for port in ports), *self.idle, *self.uplinks]


_BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
"""PCI buses of the eight rails, on eight root ports as in usual servers with eight GPUs."""

RAILS_A_LEAF = 4


def rails(rng: random.Random) -> tuple[Nic, ...]:
    """Create the host's rails, with counters as after some days."""
    return tuple(_rail(rng, number, bus) for number, bus in enumerate(_BUSES))


def management(rng: random.Random) -> Nic:
    """Create the host's management NIC, which has no RDMA."""
    port = new_port(rng, "eth0", "", MANAGEMENT_SPEED, "bulk", "multicast")
    slot = PcieSlot(("pci0000:00", "0000:00:1c.0"), 0)
    return Nic(0, "", slot, "0000:04:00.0", "b4:96:91:00:10:01", port)


def leaf(rng: random.Random, name: str, prefix: str, first_rail: int) -> LeafSwitch:
    """Create a leaf for four rails of four hosts; `prefix` is the name of its ports without the number."""
    switch = LeafSwitch(name, new_port(rng, "mgmt0", "oob-sw-01", 1_000_000_000, "bulk"))
    for rail in range(first_rail, first_rail + RAILS_A_LEAF):
        switch.hosts[rail] = [
            new_port(rng, f"{prefix}{number}", f"{host} eth{rail + 2}", RAIL_SPEED, "rdma", "kernel", "multicast")
            for number, host in enumerate((HOST, *PEERS), start=1 + 4 * (rail - first_rail))
        ]
    switch.idle = [new_port(rng, f"{prefix}{number}", "", 0) for number in range(17, 25)]
    switch.uplinks = [
        new_port(rng, f"{prefix}{number}", f"spine-{(number - 23) // 2:02d} {name}", UPLINK_SPEED, "rdma")
        for number in range(25, 33)
    ]
    return switch


def _rail(rng: random.Random, number: int, bus: str) -> Nic:
    port = new_port(rng, f"eth{number + 2}", "", RAIL_SPEED, "rdma", "kernel", "multicast")
    for event, most in (("carrier_changes", 6), ("out_of_sequence", 200), ("fec_corrected_bits", 10**10)):
        port.counters.add(event, 2 * rng.randrange(1, most // 2))
    port.counters.add("fec_corrected_blocks", port.counters["fec_corrected_bits"] * FEC_BLOCKS_A_BIT)
    mac = f"a0:88:c2:00:10:{number + 8:02x}"
    return Nic(number, f"mlx5_{number}", _slot(number, int(bus, 16)), f"0000:{bus}:00.0", mac, port)


def _slot(number: int, bus: int) -> PcieSlot:
    """Return the slot of a rail: a root port, and a PCIe switch with downstream ports for the NIC and a GPU."""
    switch = (f"pci0000:{bus - 3:02x}", f"0000:{bus - 3:02x}:01.0", f"0000:{bus - 2:02x}:00.0")
    ports = tuple(f"0000:{bus - 1:02x}:{place:02x}.0" for place in (0, 1))
    return PcieSlot((*switch, ports[0]), number // RAILS_A_LEAF, (ports[1], f"0000:{bus + 1:02x}:00.0"))


def new_port(rng: random.Random, name: str, alias: str, speed: int, *kinds: str) -> SimulatedPort:
    """Create a port with the counters of some days of these kinds of frames; without any it is down."""
    start = {}
    for direction in DIRECTIONS:
        for kind in kinds:
            # RDMA: about ten petabytes, more than a float represents exactly.
            start[f"{direction}_{kind}"] = rng.randrange(
                *((23 * 10**11, 40 * 10**11) if kind == "rdma" else (10**6, 10**8))
            )
    return SimulatedPort(name, alias, speed, bool(kinds), CounterSet(start))
