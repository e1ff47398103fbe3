"""The simulated cluster at rest: its ports and what they count, the host's NICs, the leaf switches, who is plugged in.

All traffic is in frames of a few fixed sizes, so that bytes follow from packets, and counters are whole numbers.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

HOST = "gpu-001"
PEERS = ("gpu-002", "gpu-003", "gpu-004")

RAIL_SPEED = 400_000_000_000
UPLINK_SPEED = 800_000_000_000
MANAGEMENT_SPEED = 25_000_000_000
"""Bits per second."""

WAYS = ("receive", "transmit")


class Frame(NamedTuple):
    """One kind of frame: its bytes on the wire, and those that its end counts as its own."""

    wire: int
    counted: int


FRAMES: Mapping[str, Frame] = {
    "rdma": Frame(wire=4158, counted=4112),
    "kernel": Frame(wire=94, counted=90),
    "bulk": Frame(wire=1518, counted=1514),
    "multicast": Frame(wire=204, counted=200),
}
"""An RDMA port counts 4,096 bytes of data and InfiniBand's headers, the kernel a frame without its check sequence."""

KERNEL = ("kernel", "bulk", "multicast")
"""The kinds that the kernel sees."""

UNICAST = ("rdma", "kernel", "bulk")

FEC_BLOCKS_A_BIT = 0.9
"""Blocks that forward error correction mends for each wrong bit: some have two."""


class Ledger:
    """Named counters: whole numbers, of which fractions wait for the next time."""

    def __init__(self, start: Mapping[str, int]) -> None:
        self._values = dict(start)
        self._rests: dict[str, float] = {}

    def __getitem__(self, name: str) -> int:
        """Give a counter, 0 where it never moved."""
        return self._values.get(name, 0)

    def add(self, name: str, amount: float) -> int:
        """Move a counter; give by how much it moved in the end."""
        total = self._rests.get(name, 0.0) + amount
        whole = int(total)
        self._rests[name] = total - whole
        self._values[name] = self._values.get(name, 0) + whole
        return whole


@dataclass(slots=True)
class Port:
    """One end of a link.

    Attributes:
        name: As its device spells it.
        alias: What is at the other end; empty where nothing is plugged in.
        speed: Bits per second.
        up: Whether there is a link.
        counters: Packets by `<way>_<kind of frame>`, and single events.
    """

    name: str
    alias: str
    speed: int
    up: bool
    counters: Ledger

    def packets(self, way: str, kinds: Iterable[str] = tuple(FRAMES)) -> int:
        """Count the packets of some kinds of frames."""
        return sum(self.counters[f"{way}_{kind}"] for kind in kinds)

    def wire_bytes(self, way: str) -> int:
        """Count all bytes on the wire."""
        return sum(self.counters[f"{way}_{kind}"] * frame.wire for kind, frame in FRAMES.items())

    def counted_bytes(self, way: str, kinds: Iterable[str]) -> int:
        """Count the bytes of some kinds of frames as their end does."""
        return sum(self.counters[f"{way}_{kind}"] * FRAMES[kind].counted for kind in kinds)


class Seat(NamedTuple):
    """A place for a NIC in the host.

    Attributes:
        way: What is above it, from the host's bridge down.
        numa_node: The processor's that it is at.
        gpu: The GPU beside it, below the same PCIe switch, and the port of the switch that the GPU is at; empty for
            none.
    """

    way: tuple[str, ...]
    numa_node: int
    gpu: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC of the host and where it sits; a rail has an RDMA device too.

    Attributes:
        number: Number of the rail.
        device: Name of the RDMA device; empty for the NIC that has none.
        seat: Where it sits in the host.
        pci: Its PCI address.
        mac: Its address.
        port: Its one port.
    """

    number: int
    device: str
    seat: Seat
    pci: str
    mac: str
    port: Port


@dataclass(slots=True)
class Leaf:
    """A leaf switch.

    Attributes:
        name: Its name.
        management: Its port out of band.
        hosts: Ports to hosts, by rail; the first of each rail leads to the host that is simulated.
        idle: Ports with nothing in them.
        uplinks: Ports to spines.
    """

    name: str
    management: Port
    hosts: dict[int, list[Port]] = field(default_factory=dict)
    idle: list[Port] = field(default_factory=list)
    uplinks: list[Port] = field(default_factory=list)

    @property
    def ports(self) -> list[Port]:
        """All ports that carry the job or could."""
        return [*(port for ports in self.hosts.values() for port in ports), *self.idle, *self.uplinks]


_BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
"""Of the eight rails, in the order of their PCI addresses, on eight roots as on the usual machines of this kind."""

RAILS_A_LEAF = 4


def rails(chance: random.Random) -> tuple[Nic, ...]:
    """Make the host's rails, with counters as after some days."""
    return tuple(_rail(chance, number, bus) for number, bus in enumerate(_BUSES))


def management(chance: random.Random) -> Nic:
    """Make the host's NIC for everything that is not RDMA."""
    port = _port(chance, "eth0", "", MANAGEMENT_SPEED, "bulk", "multicast")
    seat = Seat(("pci0000:00", "0000:00:1c.0"), 0)
    return Nic(0, "", seat, "0000:04:00.0", "b4:96:91:00:10:01", port)


def leaf(chance: random.Random, name: str, prefix: str, first_rail: int) -> Leaf:
    """Make a leaf for four rails of four hosts; `prefix` is how it spells its ports, up to their number."""
    made = Leaf(name, _port(chance, "mgmt0", "oob-sw-01", 1_000_000_000, "bulk"))
    for rail in range(first_rail, first_rail + RAILS_A_LEAF):
        made.hosts[rail] = [
            _port(chance, f"{prefix}{number}", f"{host} eth{rail + 2}", RAIL_SPEED, "rdma", "kernel", "multicast")
            for number, host in enumerate((HOST, *PEERS), start=1 + 4 * (rail - first_rail))
        ]
    made.idle = [_port(chance, f"{prefix}{number}", "", 0) for number in range(17, 25)]
    made.uplinks = [
        _port(chance, f"{prefix}{number}", f"spine-{(number - 23) // 2:02d} {name}", UPLINK_SPEED, "rdma")
        for number in range(25, 33)
    ]
    return made


def _rail(chance: random.Random, number: int, bus: str) -> Nic:
    port = _port(chance, f"eth{number + 2}", "", RAIL_SPEED, "rdma", "kernel", "multicast")
    for event, most in (("carrier_changes", 6), ("out_of_sequence", 200), ("fec_corrected_bits", 10**10)):
        port.counters.add(event, 2 * chance.randrange(1, most // 2))
    port.counters.add("fec_corrected_blocks", port.counters["fec_corrected_bits"] * FEC_BLOCKS_A_BIT)
    mac = f"a0:88:c2:00:10:{number + 8:02x}"
    return Nic(number, f"mlx5_{number}", _seat(number, int(bus, 16)), f"0000:{bus}:00.0", mac, port)


def _seat(number: int, bus: int) -> Seat:
    """Seat a rail beside a GPU: a root port, and a PCIe switch with a port for each of the two."""
    switch = (f"pci0000:{bus - 3:02x}", f"0000:{bus - 3:02x}:01.0", f"0000:{bus - 2:02x}:00.0")
    ports = tuple(f"0000:{bus - 1:02x}:{place:02x}.0" for place in (0, 1))
    return Seat((*switch, ports[0]), number // RAILS_A_LEAF, (ports[1], f"0000:{bus + 1:02x}:00.0"))


def _port(chance: random.Random, name: str, alias: str, speed: int, *kinds: str) -> Port:
    """Make a port that has carried these kinds of frames for some days; without any there is no link."""
    start = {}
    for way in WAYS:
        for kind in kinds:
            # RDMA of ten petabytes, which no float holds to the byte.
            start[f"{way}_{kind}"] = chance.randrange(
                *((23 * 10**11, 40 * 10**11) if kind == "rdma" else (10**6, 10**8))
            )
    return Port(name, alias, speed, bool(kinds), Ledger(start))
