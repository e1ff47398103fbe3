"""One RDMA port: its link, what is counted of it, and what is known of it."""

import os
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.core.table import LabelValues
from exporter.linux.cached_file import COUNTER_SIZE
from exporter.linux.infiniband import ACTIVE, parse_numbered
from exporter.sources.common.counter_file import KeptFile
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.counters import Counters
from exporter.sources.rdma.files import STATES
from exporter.sources.rdma.speed import LinkSpeed


class PortReading(NamedTuple):
    """What one read of a port gave: its link, its counters in the order of their layout, and what failed."""

    port: "Port"
    link: Mapping[str, int | float | None]
    values: list[int | None]
    failures: list[Failure]
    time: float


class Port:
    """One port.

    Attributes:
        device: Name of its device.
        number: Its number there.
        epoch: Changes when its device is made anew.
        counters: What is counted of it.
        facts: What else is known of it, by the labels of its info.
        kind: The same for its siblings, the ports that it can be measured against.
        speed: How fast its link is.
        info: Values of the labels of its info; None until the ports of all devices were put in order.
    """

    def __init__(self, device: str, number: int, folder: str, epoch: int, counters: Counters) -> None:
        """Take where the port is."""
        self.device, self.number, self.epoch, self.counters = device, number, epoch, counters
        self.facts: Mapping[str, str] = {}
        self.kind = ""
        self.speed = LinkSpeed()
        self.info: LabelValues | None = None
        self._states = [KeptFile(f"{folder}/{name}") for name in STATES]
        self._texts: list[bytes] = []
        self._link: Mapping[str, int | float | None] = {}
        self._was_up = False

    def close(self) -> None:
        """Close all files."""
        for file in self._states:
            file.close()
        self._texts = []
        self.counters.close()

    def know(self, facts: Mapping[str, str], kind: str) -> None:
        """Take what was found out about the port."""
        self.facts, self.kind = facts, kind
        self._texts = []  # what its link is said to be may change with them

    def read(self) -> PortReading:
        """Read all; blocks. What cannot be read is said in the reading and costs nothing else."""
        failures: list[Failure] = []
        now = monotonic()
        came_up = self._read_link(failures, now)
        values = self.counters.read(now, failures, came_up=came_up)
        return PortReading(self, self._link, values, failures, now)

    def _read_link(self, failures: list[Failure], now: float) -> bool:
        """Read the link; tell whether it came up."""
        if self._texts:
            try:
                if [os.pread(file.descriptor, COUNTER_SIZE, 0) for file in self._states] == self._texts:
                    return False
            except OSError:
                self._texts = []
        before = len(failures)
        # `state` itself never rests: its change is what wakes the others.
        texts = [self._read_state(self._states[0], failures, now)]
        up = (parse_numbered(texts[0]) or 0) >= ACTIVE
        came_up, self._was_up = up and not self._was_up, up
        for file in self._states[1:]:
            resting = file.rests(now, came_up=came_up)
            texts.append(b"" if resting else self._read_state(file, failures, now))
        self._texts = texts if len(failures) == before and b"" not in texts else []
        self._link = self._link_of(*texts)
        return came_up

    def _link_of(self, state: bytes, physical: bytes, rate: bytes) -> dict[str, int | float | None]:
        """Read the texts of a link."""
        number = parse_numbered(state)
        speed = self.speed.of(state, rate)
        return {
            "link_up": None if number is None else int(number >= ACTIVE),
            "link_speed_bytes_per_second": None if speed is None else speed.bytes_per_second,
            "link_lanes": None if speed is None else speed.lanes,
            "port_state": number,
            "port_physical_state": parse_numbered(physical),
        }

    def _read_state(self, file: KeptFile, failures: list[Failure], now: float) -> bytes:
        try:
            return file.read(now)
        except OSError as error:
            failures.append(failure_of(self.device, error, file.path))
            return b""
