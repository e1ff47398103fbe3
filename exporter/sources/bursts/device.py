"""One RDMA device whose bytes are sampled: its ports, the few files of each that stay open, and a visit to it."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeAlias

from exporter.core.source import Failure
from exporter.core.table import LabelValues
from exporter.linux.cached_file import read_once, read_text
from exporter.linux.infiniband import parse_counter, port_numbers
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.common.counter_file import KeptFile
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.drivers import DRIVERS
from exporter.sources.rdma.files import choices
from exporter.sources.rdma.ports import choose
from exporter.sources.rdma.recognition import recognise
from exporter.sources.rdma.speed import LinkSpeed

Sample: TypeAlias = tuple[float, int, int, float]
"""Monotonic time, bytes received and transmitted, and bytes per second that the link can do."""

LINK_COMMANDS = 2
"""Firmware commands that a look at a port's link takes: one for its state, one for its rate."""

FACTS_KEPT = 60.0
"""Seconds after which it is found out again what a port is, and how fast, where only its network device tells."""


class ByteCounters(NamedTuple):
    """Where a port counts its bytes.

    Attributes:
        receive: Files whose values are added up.
        transmit: Likewise.
        factor: What makes bytes of their values.
        commands: Firmware commands that reading them takes.
        lifespan: File with the milliseconds for which the kernel keeps what it read; empty where it keeps nothing.
    """

    receive: tuple[str, ...]
    transmit: tuple[str, ...]
    factor: int = 1
    commands: int = 1
    lifespan: str = "hw_counters/lifespan"

    def files(self, folder: str) -> list[str]:
        """Give the paths of all files, those of `receive` first."""
        return [f"{folder}/{name}" for name in (*self.receive, *self.transmit)]

    def is_in(self, folder: str) -> bool:
        """Tell whether a port has all of them."""
        return all(map(os.path.exists, self.files(folder)))


PMA = ByteCounters(("counters/port_rcv_data",), ("counters/port_xmit_data",), factor=4, commands=2, lifespan="")
"""Wherever there is the folder: each file is a command of its own. It counts in words of four bytes."""

BY_DRIVER = ("efa", "erdma", "i40e", "ice", "ionic", "mana")
"""Drivers without that folder that count bytes: the first file read asks the device for the whole of `hw_counters/`.

hns3 and rdma_rxe count none.
"""

COARSE = frozenset({"bnxt_en"})
"""Drivers that are not sampled, whatever folders they have: what is read is older than a tick is long.

The device of bnxt_re writes its counters to memory once a second (drivers/infiniband/hw/bnxt_re/main.c,
update_period_ms). Of two such writes that fall into one tick and none into the next, a sample would make a burst that
never was.
"""


def byte_counters(driver: str) -> tuple[ByteCounters, ...]:
    """List the ways in which the ports of a driver may count bytes; the first that a port has is taken."""
    if driver in COARSE:
        return ()
    if driver not in BY_DRIVER:
        return (PMA,)
    ways = {way[0].cell.ending: way for way in choices(DRIVERS[driver].port)}
    pairs = zip(ways["receive_bytes_total"], ways["transmit_bytes_total"], strict=True)
    return (PMA, *(ByteCounters(received.files, sent.files) for received, sent in pairs))


class Visit(NamedTuple):
    """What one visit to a device gave.

    Attributes:
        epoch: Of the device; another one is another device.
        ports: Labels of its ports that can be sampled.
        samples: By port.
        failures: What could not be read.
        commands: Firmware commands that it took.
        seconds: Time that it took.
    """

    epoch: int
    ports: Sequence[LabelValues]
    samples: Mapping[LabelValues, Sample]
    failures: Sequence[Failure]
    commands: int
    seconds: float


@dataclass(slots=True)
class _Port:
    """One port: its files, and the speed of its link where that is up."""

    key: LabelValues
    folder: str
    counters: ByteCounters
    files: Sequence[KeptFile]
    link: LinkSpeed = field(default_factory=LinkSpeed)
    speed: float | None = None
    came_up: bool = False

    def look(self, tick: float) -> Failure | None:
        """See whether the link is up, and how fast; tell what keeps its counters from being sampled."""
        state, rate = (read_once(f"{self.folder}/{name}") or b"" for name in ("state", "rate"))
        link, was_down = self.link.of(state, rate), self.speed is None
        self.speed = None if link is None else link.bytes_per_second
        self.came_up = was_down and self.speed is not None
        lifespan = f"{self.folder}/{self.counters.lifespan}"
        text = read_text(lifespan) if self.counters.lifespan else ""
        if not text.isdecimal() or int(text) <= tick * 1000 / 2:
            return None
        self.speed = None
        detail = f"{lifespan}: values are kept for {text} ms, too long for ticks of {tick:g} s; write 10 to it"
        return Failure(self.key[0], "stale", detail)

    def is_due(self, now: float) -> bool:
        """Tell whether there is anything to sample: the link is up, and no file rests for having failed."""
        came_up, self.came_up = self.came_up, False
        return self.speed is not None and not any(file.rests(now, came_up=came_up) for file in self.files)

    def sample(self) -> Sample | None:
        """Read the counters; None where the device does not tell one.

        Raises:
            OSError: As open and read do.
            ValueError: There is no number in a file.
        """
        assert self.speed is not None  # noqa: S101  # it is due
        begin = monotonic()
        values = [parse_counter(file.read(begin)) for file in self.files]
        time = (begin + monotonic()) / 2
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        received, sent = known[: len(self.counters.receive)], known[len(self.counters.receive) :]
        factor = self.counters.factor
        return time, sum(received) * factor, sum(sent) * factor, self.speed

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()


class Device:
    """One device. It is visited in a thread, by one call at a time."""

    def __init__(self, folder: Path, tick: float, reader: RdmaReader) -> None:
        """Take its folder, how often it is visited in seconds, and what tells which of its ports are read."""
        self._folder = folder
        self._net = folder.parent.parent / "net"
        self._reader = reader
        self._tick = tick
        self._epoch = 0
        self._known_until = -inf
        self._numbers: Sequence[int] = ()
        self._netdevs: Mapping[int, str] = {}  # of the ports that are read
        self._standing: Sequence[Failure] = ()  # what is the matter until the ports are chosen again
        self._ports: dict[int, _Port] = {}

    def visit(self, *, look: bool) -> Visit:
        """Sample each port whose link is up; blocks.

        Args:
            look: Whether to look first which ports there are, and at their links, which costs more than the samples.
        """
        begin = monotonic()
        failures: list[Failure] = []
        samples: dict[LabelValues, Sample] = {}
        commands = 0
        if look:
            try:
                commands = self._look(begin, failures)
            except OSError as error:
                self.close()
                failures.append(failure_of(self._folder.name, error, self._folder))
        for port in self._ports.values():
            if port.is_due(begin):
                commands += port.counters.commands
                try:
                    sample = port.sample()
                except (OSError, ValueError) as error:
                    failures.append(failure_of(self._folder.name, error, port.folder))
                else:
                    samples |= {} if sample is None else {port.key: sample}
        ports = [port.key for port in self._ports.values()]
        return Visit(self._epoch, ports, samples, failures, commands, monotonic() - begin)

    def close(self) -> None:
        """Close all files and forget the ports."""
        for port in self._ports.values():
            port.close()
        self._ports, self._known_until = {}, -inf

    def _look(self, now: float, failures: list[Failure]) -> int:
        """Find the ports and look at the link of each; gives the firmware commands that it took."""
        epoch = self._folder.stat().st_ino  # follows the link: another inode is another device
        if epoch != self._epoch:
            self.close()
            self._epoch = epoch
        numbers = port_numbers(self._folder)
        commands = 0
        if now >= self._known_until or numbers != self._numbers:
            self._known_until, self._numbers = now + FACTS_KEPT, numbers
            chosen = choose(self._folder, self._net, numbers, self._reader)
            commands, self._netdevs, self._standing = chosen.asked, chosen.netdevs, chosen.failures
            for gone in self._ports.keys() - self._netdevs.keys():
                self._ports.pop(gone).close()
            self._learn(self._netdevs)
        elif fresh := self._netdevs.keys() - self._ports.keys():
            self._learn(fresh)
        failures += self._standing
        failures += [failure for port in self._ports.values() if (failure := port.look(self._tick)) is not None]
        return commands + LINK_COMMANDS * len(self._ports)

    def _learn(self, wanted: Collection[int]) -> None:
        """Find out what the wanted ports are; those that cannot be sampled are left out."""
        driver = recognise(self._folder, self._numbers).looks
        for number in sorted(wanted):
            folder = f"{self._folder}/ports/{number}"
            port = self._ports.get(number)
            if port is None:
                counters = next((one for one in byte_counters(driver) if one.is_in(folder)), None)
                if counters is None:
                    continue
                files = [KeptFile(path) for path in counters.files(folder)]
                port = self._ports[number] = _Port((self._folder.name, str(number)), folder, counters, files)
            netdev = self._netdevs[number]
            port.link.know(driver, read_text(f"{folder}/link_layer"), self._net / netdev if netdev else None)
