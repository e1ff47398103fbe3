"""The counters of one RDMA port, or of one device: read from files that stay open, or all at once by netlink.

Each file of `counters/` is one firmware command on real hardware; all of `hw_counters/` together are another. Which
of the ways to read a counter is taken is decided when the files are looked for, and again when one is refused.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from exporter.core.source import Failure
from exporter.linux.cached_file import COUNTER_SIZE
from exporter.linux.ethtool_ioctl import Statistics
from exporter.linux.infiniband import ABSENT, parse_counter
from exporter.sources.common.counter_file import COUNTERS_SHARE, RAW_SHARE, KeptFile
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.files import HW_COUNTERS, LIFESPAN, Choices
from exporter.sources.rdma.plan import Plan, has_other, plan

MAX_RAW = 1000
"""Counters of one port that are exported under the driver's own names; hfi1 has thousands."""

REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT})
"""What the kernel answers for a counter that it cannot tell, rather than could not tell this time."""

UNTOLD = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""What the kernel answers where it cannot tell counters by netlink at all: it is too old, or there are none."""

Ask: TypeAlias = Callable[[], Statistics]


class Wanted(NamedTuple):
    """Which counters are read of all that there are.

    Attributes:
        raw: Shell patterns: counters without a metric are read where one fits the name that the driver gives them.
        unread: Endings of metrics that nobody is shown, so that their counters are not read.
    """

    raw: Sequence[str] = ()
    unread: Collection[str] = ()


class Counters:
    """What is counted of one port or device.

    Attributes:
        choices: For each counter the ways to read it, whether it is read or not.
        plan: Which of them are taken, and what the values are.
    """

    def __init__(self, device: str, folder: str, choices: Choices, wanted: Wanted) -> None:
        """Take what to look for.

        Args:
            device: Whom failures concern.
            folder: Path of the port's or the device's folder.
            choices: For each counter the ways to read it.
            wanted: Which of them are read, and which beside them.
        """
        self.choices, self.plan = choices, Plan()
        self._ways = tuple(ways for ways in choices if ways[0].cell.ending not in wanted.unread)
        self._device, self._folder, self._patterns = device, folder, wanted.raw
        self._files: dict[str, KeptFile] = {}
        self._refused: set[str] = set()  # what makes way for another file
        self._is_stale = True  # whether there is another plan to be made
        self._ask: Ask | None = None  # None while all is read from files
        self._names: Sequence[str] = ()  # of `hw_counters/`, as far as they matter
        self._not_told: Failure | None = None  # until it is looked for again
        self._too_many: Failure | None = None
        self._fast: tuple[list[int], list[int], list[bytes]] | None = None  # places, descriptors, last texts
        self._told: Sequence[int] | None = None  # all that the kernel told last
        self._where: list[tuple[int, int]] = []  # places of values, and where they stand in what the kernel tells
        self._values: list[int | None] = []

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files, self._fast = {}, None

    def find(self, ask: Ask | None = None) -> None:
        """Look for what is not known yet; what is not there is no failure.

        Args:
            ask: Asks the kernel for all of `hw_counters/` at once; it is taken where it tells as much as the files do.
        """
        names = self._listed() if ask is not None or self._patterns else []
        self._ask, self._names, self._not_told = None, names, None
        if ask is not None and names:
            try:
                told = ask().names
            except OSError as error:
                if error.errno not in UNTOLD:
                    self._not_told = self._failure(error)
            else:
                if len(told) >= len(names):
                    self._ask, self._names = ask, told
        self._make_plan()

    def read(self, now: float, failures: list[Failure], *, came_up: bool = False) -> list[int | None]:
        """Read all; blocks. What cannot be read is added to the failures and costs nothing else.

        Args:
            now: Monotonic seconds.
            failures: Takes what could not be read.
            came_up: Whether the link has just come up, so that what was refused is worth another try.

        Returns:
            The values of the plan: the very same object as last time where nothing changed.
        """
        told = None if self._ask is None else self._statistics(self._ask)
        if self._is_stale:
            self._make_plan()
        values = self._values
        if not self._read_fast():
            self._read_carefully(now, failures, came_up=came_up)
        if told is not None and told.values != self._told:
            self._take(told.values)
        if self._values is not values:
            for place, parts in self.plan.sums:
                found = [self._values[part] for part in parts]
                self._values[place] = None if None in found else sum(filter(None, found))
        failures += [failure for failure in (self._not_told, self._too_many) if failure is not None]
        return self._values

    def _listed(self) -> list[str]:
        """List the counters of `hw_counters/`."""
        try:
            names = os.listdir(f"{self._folder}/{HW_COUNTERS}")  # noqa: PTH208  # thousands of names on some devices
        except OSError:
            return []
        return sorted(name for name in names if name != LIFESPAN)

    def _failure(self, error: OSError) -> Failure:
        return failure_of(self._device, error, f"{self._folder}/{HW_COUNTERS} by RDMA netlink, read as files instead")

    def _make_plan(self) -> None:
        """Choose how to read each counter; files that are not needed any more are closed."""
        self.plan = plan(self._ways, self._has)
        if self._patterns:
            self.plan = self.plan.with_raw(self._raw(plan(self.choices, self._has)))
        asked = self._ask is not None
        places = self.plan.places
        paths = [path for path in places if not (asked and path.startswith(HW_COUNTERS))]
        for path in self._files.keys() - set(paths):
            self._files.pop(path).close()
        raw = {place for _, place in self.plan.raw}
        for path in paths:
            if path not in self._files:
                share = RAW_SHARE if places[path] in raw else COUNTERS_SHARE
                self._files[path] = KeptFile(f"{self._folder}/{path}", share)
        # Backwards, so that of a name that stands twice the first is taken.
        told = {f"{HW_COUNTERS}/{name}": place for place, name in reversed(list(enumerate(self._names)))}
        self._where = [(place, told[path]) for path, place in places.items() if path not in self._files]
        self._values = [None] * self.plan.size
        self._told = self._fast = None
        self._is_stale = False

    def _has(self, path: str) -> bool:
        """Tell whether a file is there, or netlink tells the same."""
        if path in self._refused:
            return False
        folder, _, name = path.partition("/")
        if self._ask is not None and folder == HW_COUNTERS:
            return name in self._names
        return os.path.exists(f"{self._folder}/{path}")  # noqa: PTH110  # unlike Path's, it never raises

    def _raw(self, known: Plan) -> list[str]:
        """Choose what is read under the driver's own names: what fits a pattern and has no metric, read or not."""
        wanted = [
            name
            for name in dict.fromkeys(self._names)
            if f"{HW_COUNTERS}/{name}" not in known.places
            and any(fnmatchcase(name, pattern) for pattern in self._patterns)
        ]
        self._too_many = None
        if len(wanted) > MAX_RAW:
            detail = f"{self._folder}: {len(wanted)} counters fit `raw`, the first {MAX_RAW} are read; name fewer"
            self._too_many = Failure(self._device, "too_many", detail)
        return wanted[:MAX_RAW]

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
                values = list(self._values)
                for place, text, was in zip(places, found, texts, strict=True):
                    if text != was:
                        values[place] = parse_counter(text)
                self._values, self._fast = values, (places, descriptors, found)
        except (OSError, ValueError):
            self._fast = None
        return self._fast is not None

    def _read_carefully(self, now: float, failures: list[Failure], *, came_up: bool) -> None:
        """Read files one by one, noting what fails."""
        values = list(self._values)
        texts: list[bytes] = []
        for path, file in self._files.items():
            place = self.plan.places[path]
            values[place] = None
            if file.rests(now, came_up=came_up):
                continue
            try:
                text = file.read(now)
                values[place] = parse_counter(text)
            except (OSError, ValueError) as error:
                failures.append(failure_of(self._device, error, file.path))
                if isinstance(error, OSError) and error.errno in REFUSALS:
                    self._make_way(path)
                continue
            texts.append(text)
            if values[place] is None:
                self._make_way(path)
        self._values = values
        if len(texts) == len(self._files):
            places = [self.plan.places[path] for path in self._files]
            self._fast = (places, [file.descriptor for file in self._files.values()], texts)

    def _make_way(self, path: str) -> None:
        """Have the next read take what the device has in the place of a counter that it does not tell."""
        if has_other(self._ways, path, self._has):
            self._refused.add(path)
            self._is_stale = True

    def _statistics(self, ask: Ask) -> Statistics | None:
        """Ask the kernel; where it refuses, files are read until it is asked again."""
        try:
            told = ask()
        except OSError as error:
            self._not_told = self._failure(error)
            self._ask, self._names = None, self._listed() if self._patterns else ()
            self._is_stale = True
            return None
        if told.names is not self._names:
            self._is_stale = self._is_stale or told.names != tuple(self._names)
            self._names = told.names
        return told

    def _take(self, told: Sequence[int]) -> None:
        """Take the kernel's values."""
        self._told = told
        values = list(self._values)
        for place, where in self._where:
            value = told[where]
            values[place] = None if value == ABSENT else value
        self._values = values
