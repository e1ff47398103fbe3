"""One RDMA port: its open files, read again and again, each of which fails alone."""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.linux.infiniband import ACTIVE, parse_counter, parse_numbered, parse_rate
from exporter.linux.kept import COUNTER_SIZE, close_kept, open_kept
from exporter.source import Failure
from exporter.sources.failures import failure_of
from exporter.sources.rdma_files import STATES, CounterFile
from exporter.table import LabelValues

TRIES = 3
"""Times running that a file may answer EINVAL before it rests: each such read makes the kernel log a line."""

REST = 3600.0
"""Seconds that a file rests, unless its link comes up first."""


@dataclass(slots=True)
class _Kept:
    """One file of a port, which stays open: the place of its value, and how often running it answered EINVAL."""

    place: int
    path: str
    descriptor: int = -1
    refusals: int = 0
    rests_until: float = 0.0

    def read(self) -> bytes:
        """Read the file, opening it where it is not open; one whose device went is opened anew next time.

        Raises:
            OSError: As open and read do.
        """
        if self.descriptor < 0:
            self.descriptor = open_kept(self.path)
        try:
            return os.pread(self.descriptor, COUNTER_SIZE, 0)
        except OSError as error:
            if error.errno == errno.ENODEV:
                self.close()
            raise

    def rest(self, error: OSError, now: float) -> None:
        """Let the file rest that only ever answers EINVAL."""
        if error.errno == errno.EINVAL:
            self.refusals += 1
            if self.refusals >= TRIES:
                self.refusals, self.rests_until = 0, now + REST

    def close(self) -> None:
        """Close the file."""
        close_kept(self.descriptor)
        self.descriptor = -1


class PortReading(NamedTuple):
    """What one read of a port gave: its link, the values of its files in their order, and what failed."""

    port: "Port"
    link: Mapping[str, int | float | None]
    values: list[int | None]
    failures: list[Failure]
    time: float


@dataclass(slots=True)
class Port:
    """One port: what was found out about it, and its open files."""

    device: str
    number: int
    folder: Path
    files: tuple[CounterFile, ...]
    driver: str
    kind: str
    epoch: int
    facts: Mapping[str, str]
    states: list[_Kept] = field(default_factory=list)
    kept: list[_Kept] = field(default_factory=list)
    was_up: bool = False
    info: LabelValues | None = None

    _fast: tuple[list[int], list[int], list[bytes]] | None = None
    _values: list[int | None] = field(default_factory=list)
    _link: Mapping[str, int | float | None] = field(default_factory=dict)

    def close(self) -> None:
        """Close all files."""
        for one in (*self.states, *self.kept):
            one.close()
        self.states, self.kept, self._fast = [], [], None

    def take_over(self, before: "Port") -> None:
        """Go on with the open files of what was known of the same port."""
        self.states, self.kept, self.was_up = before.states, before.kept, before.was_up

    def find_files(self) -> None:
        """Find the files that are not known yet; those that are not there are no failure."""
        if not self.states:
            self.states = [_Kept(place, f"{self.folder}/{name}") for place, name in enumerate(STATES)]
        have = {one.place for one in self.kept}
        for place, file in enumerate(self.files):
            path = f"{self.folder}/{file.path}"
            if place not in have and os.path.exists(path):  # noqa: PTH110  # unlike Path's, it never raises
                self.kept.append(_Kept(place, path))
        self._fast = None

    def read(self) -> PortReading:
        """Read all files; blocks. What cannot be read is said in the reading and costs nothing else."""
        failures: list[Failure] = []
        now = monotonic()
        if not self._read_fast():
            states = [self._read_state(one, failures) for one in self.states]
            came_up = self._take_link(states)
            self._values = self._read_carefully(states, failures, now, came_up=came_up)
        return PortReading(self, self._link, self._values, failures, now)

    def _read_fast(self) -> bool:
        """Read all files in one go; False where one of them has to be looked at more closely.

        Most counters stand still: a text that did not change is not read as a number again, and values of which none
        changed are the very same object as last time.
        """
        if self._fast is None:
            return False
        places, descriptors, texts = self._fast
        pread = os.pread
        try:
            found = [pread(descriptor, COUNTER_SIZE, 0) for descriptor in descriptors]
            if found != texts:
                first = len(STATES)
                if found[:first] != texts[:first]:
                    self._take_link(found[:first])
                values = list(self._values)
                for place, text, was in zip(places, found[first:], texts[first:], strict=True):
                    if text != was:
                        values[place] = parse_counter(text)
                self._values, self._fast = values, (places, descriptors, found)
        except (OSError, ValueError):
            self._fast = None
        return self._fast is not None

    def _take_link(self, states: Sequence[bytes]) -> bool:
        """Read the texts of the link; tell whether it came up."""
        self._link = _link_of(*states, ethernet=self.facts["link_layer"] == "Ethernet")
        was_up, self.was_up = self.was_up, self._link["link_up"] == 1
        return self.was_up and not was_up

    def _read_carefully(
        self, states: Sequence[bytes], failures: list[Failure], now: float, *, came_up: bool
    ) -> list[int | None]:
        """Read counters one by one, noting what fails."""
        values: list[int | None] = [None] * len(self.files)
        texts: list[bytes] = []
        well = True
        for one in self.kept:
            if one.rests_until:
                if now < one.rests_until and not came_up:
                    well = False
                    continue
                one.rests_until = 0.0
            try:
                texts.append(one.read())
                values[one.place] = parse_counter(texts[-1])
            except (OSError, ValueError) as error:
                failures.append(failure_of(self.device, error, one.path))
                if isinstance(error, OSError):
                    one.rest(error, now)
            else:
                one.refusals = 0
                well = well and values[one.place] is not None
        if well and not failures:
            descriptors = [one.descriptor for one in (*self.states, *self.kept)]
            self._fast = ([one.place for one in self.kept], descriptors, [*states, *texts])
        return values

    def _read_state(self, one: _Kept, failures: list[Failure]) -> bytes:
        try:
            return one.read()
        except OSError as error:
            failures.append(failure_of(self.device, error, one.path))
            return b""


def _link_of(state: bytes, physical: bytes, rate: bytes, *, ethernet: bool) -> dict[str, int | float | None]:
    """Read the texts of a link; a speed that is only a placeholder is not told."""
    number = parse_numbered(state)
    speed = parse_rate(rate)
    up = None if number is None else int(number >= ACTIVE)
    if up != 1 or (ethernet and rate.startswith(b"40 Gb/sec (4X QDR)")):
        speed = None  # a down port shows the lowest rate there is; mlx5 shows 40G where it cannot name the speed
    return {
        "link_up": up,
        "link_speed_bytes_per_second": None if speed is None else speed.bytes_per_second,
        "link_lanes": None if speed is None else speed.lanes,
        "port_state": number,
        "port_physical_state": parse_numbered(physical),
    }
