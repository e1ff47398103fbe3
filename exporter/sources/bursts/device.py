"""One RDMA device whose byte counters are sampled: its ports, and the few files of each that stay open."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeAlias

from exporter.core.source import Failure
from exporter.core.table import LabelValues
from exporter.linux.cached_file import CachedFile, parse_counter, read_once, read_text
from exporter.linux.infiniband import port_numbers
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.bursts.byte_counters import ByteCounters, byte_counters
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.attributes import LinkSpeed, identify_driver
from exporter.sources.rdma.ports import select_ports

Sample: TypeAlias = tuple[float, int, int, float]
"""Monotonic time, bytes received, bytes transmitted, and the link's speed in bytes per second."""

LINK_COMMANDS = 2
"""Firmware commands to read the link of a port: one for its state, one for its rate."""

ATTRIBUTES_SECONDS = 60.0
"""Seconds after which the ports are selected again, and a link's speed is read again from its netdev."""


class DeviceSamples(NamedTuple):
    """Result of one tick of a device.

    Attributes:
        epoch: Changes when the device is re-created.
        ports: Labels of the ports that can be sampled.
        samples: By port.
        failures: What could not be read.
        commands: Firmware commands used.
        seconds: Time used.
    """

    epoch: int
    ports: Sequence[LabelValues]
    samples: Mapping[LabelValues, Sample]
    failures: Sequence[Failure]
    commands: int
    seconds: float


@dataclass(slots=True)
class SampledPort:
    """One port: its files, and the speed of its link while that is up."""

    key: LabelValues
    folder: str
    counters: ByteCounters
    files: Sequence[CachedFile]
    link: LinkSpeed = field(default_factory=LinkSpeed)
    speed: float | None = None
    link_came_up: bool = False

    def read_link(self, tick: float) -> Failure | None:
        """Read the state and speed of the link; return a failure if the kernel caches the counters for too long."""
        state, rate = (read_once(f"{self.folder}/{name}") or b"" for name in ("state", "rate"))
        link, was_down = self.link.parse(state, rate), self.speed is None
        self.speed = None if link is None else link.bytes_per_second
        self.link_came_up = was_down and self.speed is not None
        lifespan = f"{self.folder}/{self.counters.lifespan}"
        text = read_text(lifespan) if self.counters.lifespan else ""
        if not text.isdecimal() or int(text) <= tick * 1000 / 2:
            return None
        self.speed = None
        detail = f"{lifespan}: values are cached for {text} ms, too long for ticks of {tick:g} s; write 10 to it"
        return Failure(self.key[0], "stale", detail)

    def is_due(self, now: float) -> bool:
        """Return whether the port is to be sampled: its link is up, and no file is suspended."""
        came_up, self.link_came_up = self.link_came_up, False
        return self.speed is not None and not any(file.is_suspended(now, link_came_up=came_up) for file in self.files)

    def sample(self) -> Sample | None:
        """Read the counters; None if the device does not have one of them.

        Raises:
            OSError: As open and read do.
            ValueError: A file does not contain a number.
        """
        assert self.speed is not None  # noqa: S101  # it is due
        begin = monotonic()
        values = [parse_counter(file.read(begin)) for file in self.files]
        time = (begin + monotonic()) / 2
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        received, transmitted = known[: len(self.counters.receive)], known[len(self.counters.receive) :]
        factor = self.counters.factor
        return time, sum(received) * factor, sum(transmitted) * factor, self.speed

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()


class SampledDevice:
    """One device, sampled in a thread, by one call at a time.

    Args:
        folder: Its folder in /sys/class/infiniband.
        tick: Seconds between samples.
        reader: RDMA netlink, or recordings of it.
    """

    def __init__(self, folder: Path, tick: float, reader: RdmaReader) -> None:
        self._folder = folder
        self._net = folder.parent.parent / "net"
        self._reader = reader
        self._tick = tick
        self._epoch = 0
        self._selected_until = -inf
        self._numbers: Sequence[int] = ()
        self._netdevs: Mapping[int, str] = {}  # of the selected ports
        self._selection_failures: Sequence[Failure] = ()  # reported until the ports are selected again
        self._ports: dict[int, SampledPort] = {}

    def sample(self, *, read_links: bool) -> DeviceSamples:
        """Sample each port whose link is up; blocks.

        Args:
            read_links: Whether to list the ports and read their links before, which costs more than the samples.
        """
        begin = monotonic()
        failures: list[Failure] = []
        samples: dict[LabelValues, Sample] = {}
        commands = 0
        if read_links:
            try:
                commands = self._read_links(begin, failures)
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
        return DeviceSamples(self._epoch, ports, samples, failures, commands, monotonic() - begin)

    def close(self) -> None:
        """Close all files and forget the ports."""
        for port in self._ports.values():
            port.close()
        self._ports, self._selected_until = {}, -inf

    def _read_links(self, now: float, failures: list[Failure]) -> int:
        """List the ports and read the link of each; return the firmware commands used."""
        epoch = self._folder.stat().st_ino  # follows the link: another inode is another device
        if epoch != self._epoch:
            self.close()
            self._epoch = epoch
        numbers = port_numbers(self._folder)
        commands = 0
        if now >= self._selected_until or numbers != self._numbers:
            self._selected_until, self._numbers = now + ATTRIBUTES_SECONDS, numbers
            selection = select_ports(self._folder, self._net, numbers, self._reader)
            commands, self._netdevs = selection.port_requests, selection.netdevs
            self._selection_failures = selection.failures
            for removed in self._ports.keys() - self._netdevs.keys():
                self._ports.pop(removed).close()
            self._set_up_ports(self._netdevs)
        elif new := self._netdevs.keys() - self._ports.keys():
            self._set_up_ports(new)
        failures += self._selection_failures
        failures += [failure for port in self._ports.values() if (failure := port.read_link(self._tick)) is not None]
        return commands + LINK_COMMANDS * len(self._ports)

    def _set_up_ports(self, selected: Collection[int]) -> None:
        """Set up the selected ports; those without byte counters are left out."""
        driver = identify_driver(self._folder, self._numbers).recognised
        for number in sorted(selected):
            folder = f"{self._folder}/ports/{number}"
            port = self._ports.get(number)
            if port is None:
                counters = next((one for one in byte_counters(driver) if one.exist_in(folder)), None)
                if counters is None:
                    continue
                files = [CachedFile(path) for path in counters.files(folder)]
                port = self._ports[number] = SampledPort((self._folder.name, str(number)), folder, counters, files)
            netdev = self._netdevs[number]
            port.link.configure(driver, read_text(f"{folder}/link_layer"), self._net / netdev if netdev else None)
