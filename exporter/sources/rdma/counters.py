"""The counters of one RDMA port or device: from which file, or by RDMA netlink, each is read, and reading them.

On real hardware each file of `counters/` is one firmware command; one further command fills all of `hw_counters/`,
which RDMA netlink also returns in a single reply. The plan of a read is made when the device is scanned, and made again
after the driver refused a counter that can be read in another way.
"""

import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from exporter.core.source import Failure
from exporter.core.table import complete_sum
from exporter.linux.cached_file import (
    ABSENT,
    COUNTER_SIZE,
    COUNTERS_SHARE,
    RAW_SHARE,
    CachedFile,
    parse_counter,
)
from exporter.linux.ethtool_ioctl import Statistics
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.counter_files import (
    HW_COUNTERS,
    LIFESPAN,
    Alternatives,
    CounterFiles,
    CounterSpec,
)

MAX_RAW_COUNTERS = 1000
"""Counters of one port that are exported under the driver's own names; hfi1 has thousands."""

REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT})
"""Errors of a counter that the device does not have, as opposed to a read that failed this time."""

NETLINK_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of a kernel that has no counters by netlink: it is too old, or the port has none."""

NetlinkRead: TypeAlias = Callable[[], Statistics]


class CounterSelection(NamedTuple):
    """Which of the existing counters are read.

    Attributes:
        raw: Shell patterns of counters without a metric, by the driver's own name, that are read too.
        unread: Endings of metrics that are not exported, so that their counters are not read.
    """

    raw: Sequence[str] = ()
    unread: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How the counters of one port are read into one list of values.

    Attributes:
        layout: Specification of each counter, in the order of the values; behind them follow the values that only
            sums and `raw` need.
        positions: By file, the position of its value.
        sums: Positions of sums, each with the positions of its summands.
        raw: Names of the counters that are exported under the driver's own names, with their positions.
        size: Number of values.
    """

    layout: tuple[CounterSpec, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    sums: tuple[tuple[int, tuple[int, ...]], ...] = ()
    raw: tuple[tuple[str, int], ...] = ()
    size: int = 0

    def with_raw(self, names: Sequence[str]) -> "ReadPlan":
        """Return the plan with counters of `hw_counters/` added under the driver's own names."""
        raw = tuple((name, self.size + place) for place, name in enumerate(names))
        positions = {**self.positions, **{f"{HW_COUNTERS}/{name}": place for name, place in raw}}
        return replace(self, positions=positions, raw=raw, size=self.size + len(raw))


def make_plan(alternatives: Alternatives, has: Callable[[str], bool]) -> ReadPlan:
    """Choose for each counter the first way all of whose files a port has.

    A counter that the port does not have keeps its position, so that the ports of a driver share a table.

    Args:
        alternatives: For each counter the ways to read it.
        has: Returns whether the port has a file.
    """
    chosen = [_first_complete(ways, has) for ways in alternatives]
    layout = tuple(ways[0].spec if one is None else one.spec for ways, one in zip(alternatives, chosen, strict=True))
    positions: dict[str, int] = {}
    for place, one in enumerate(chosen):
        if one is not None and len(one.files) == 1:
            positions.setdefault(one.files[0], place)
    sums = []
    size = len(layout)
    for place, one in enumerate(chosen):
        if one is None or positions.get(one.files[0]) == place:
            continue
        for path in one.files:
            if path not in positions:
                positions[path], size = size, size + 1
        sums.append((place, tuple(positions[path] for path in one.files)))
    return ReadPlan(layout, positions, tuple(sums), size=size)


def has_alternative(alternatives: Alternatives, path: str, has: Callable[[str], bool]) -> bool:
    """Return whether a counter that is read from this file can be read in another way."""
    return any(
        path not in one.files and all(map(has, one.files))
        for ways in alternatives
        if any(path in one.files for one in ways)
        for one in ways
    )


def _first_complete(ways: Sequence[CounterFiles], has: Callable[[str], bool]) -> CounterFiles | None:
    return next((one for one in ways if all(map(has, one.files))), None)


class CounterReader:
    """Reads the counters of one port or device.

    Args:
        device: Name of the device, for failures.
        folder: Path of the port's or the device's folder.
        alternatives: For each counter the ways to read it.
        selection: Which counters are read.

    Attributes:
        alternatives: As given, including counters that are not selected.
        plan: The ways that are used, and the order of the values.
    """

    def __init__(self, device: str, folder: str, alternatives: Alternatives, selection: CounterSelection) -> None:
        self.alternatives, self.plan = alternatives, ReadPlan()
        self._selected = tuple(ways for ways in alternatives if ways[0].spec.ending not in selection.unread)
        self._device, self._folder, self._patterns = device, folder, selection.raw
        self._files: dict[str, CachedFile] = {}
        self._refused: set[str] = set()  # files replaced by an alternative
        self._is_plan_stale = True
        self._read_netlink: NetlinkRead | None = None  # None while all counters are read from files
        self._hw_names: Sequence[str] = ()  # names in `hw_counters/`, as far as they are needed
        self._netlink_failure: Failure | None = None  # reported until the next scan
        self._raw_failure: Failure | None = None
        self._fast: tuple[list[int], list[int], list[bytes]] | None = None  # positions, descriptors, last texts
        self._netlink_values: Sequence[int] | None = None  # of the last reply
        self._netlink_positions: list[tuple[int, int]] = []  # positions of values, and their indices in the reply
        self._values: list[int | None] = []

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files, self._fast = {}, None

    def scan(self, read_netlink: NetlinkRead | None = None, *, has_files: bool = True) -> None:
        """Find the counters that exist, and make the plan; a counter that does not exist is no failure.

        Args:
            read_netlink: Reads all of `hw_counters/` by netlink; used if it returns no fewer than there are files.
            has_files: Whether the device has files here: one in another namespace has none.
        """
        names = self._list_hw_counters() if read_netlink is not None or self._patterns else []
        self._read_netlink, self._hw_names, self._netlink_failure = None, names, None
        if read_netlink is not None and (names or not has_files):
            try:
                netlink_names = read_netlink().names
            except OSError as error:
                if error.errno not in NETLINK_UNSUPPORTED:
                    self._netlink_failure = self._failure_of_netlink(error)
            else:
                if len(netlink_names) >= len(names):
                    self._read_netlink, self._hw_names = read_netlink, netlink_names
        self._make_plan()

    def read(self, now: float, failures: list[Failure], *, link_came_up: bool = False) -> list[int | None]:
        """Read all counters; blocks. A counter that cannot be read is None, and does not affect others.

        Args:
            now: Monotonic seconds.
            failures: List to which failures are added.
            link_came_up: Whether the link has just come up, so that suspended files are read again.

        Returns:
            The values in the order of the plan: the same object as last time if nothing changed.
        """
        statistics = None if self._read_netlink is None else self._netlink_statistics(self._read_netlink)
        if self._is_plan_stale:
            self._make_plan()
        values = self._values
        if not self._read_all_files():
            self._read_each_file(now, failures, link_came_up=link_came_up)
        if statistics is not None and statistics.values != self._netlink_values:
            self._set_netlink_values(statistics.values)
        if self._values is not values:
            for place, parts in self.plan.sums:
                self._values[place] = complete_sum([self._values[part] for part in parts])
        failures += [failure for failure in (self._netlink_failure, self._raw_failure) if failure is not None]
        return self._values

    def _list_hw_counters(self) -> list[str]:
        try:
            names = os.listdir(f"{self._folder}/{HW_COUNTERS}")  # noqa: PTH208  # thousands of names on some devices
        except OSError:
            return []
        return sorted(name for name in names if name != LIFESPAN)

    def _failure_of_netlink(self, error: OSError) -> Failure:
        return failure_of(self._device, error, f"{self._folder}/{HW_COUNTERS} by RDMA netlink, read from files instead")

    def _make_plan(self) -> None:
        """Choose how to read each counter, and close the files that are not needed any more."""
        self.plan = make_plan(self._selected, self._has)
        if self._patterns:
            self.plan = self.plan.with_raw(self._raw_names(make_plan(self.alternatives, self._has)))
        by_netlink = self._read_netlink is not None
        positions = self.plan.positions
        paths = [path for path in positions if not (by_netlink and path.startswith(HW_COUNTERS))]
        for path in self._files.keys() - set(paths):
            self._files.pop(path).close()
        raw = {place for _, place in self.plan.raw}
        for path in paths:
            if path not in self._files:
                share = RAW_SHARE if positions[path] in raw else COUNTERS_SHARE
                self._files[path] = CachedFile(f"{self._folder}/{path}", share)
        # Backwards, so that of a name that occurs twice the first is used.
        indices = {f"{HW_COUNTERS}/{name}": index for index, name in reversed(list(enumerate(self._hw_names)))}
        self._netlink_positions = [
            (place, indices[path]) for path, place in positions.items() if path not in self._files
        ]
        self._values = [None] * self.plan.size
        self._netlink_values = self._fast = None
        self._is_plan_stale = False

    def _has(self, path: str) -> bool:
        """Return whether a file exists, or netlink returns the same counter."""
        if path in self._refused:
            return False
        folder, _, name = path.partition("/")
        if self._read_netlink is not None and folder == HW_COUNTERS:
            return name in self._hw_names
        return os.path.exists(f"{self._folder}/{path}")  # noqa: PTH110  # unlike Path's, it never raises

    def _raw_names(self, known: ReadPlan) -> list[str]:
        """Return the counters that match a pattern and have no metric, whether that metric is read or not."""
        names = [
            name
            for name in dict.fromkeys(self._hw_names)
            if f"{HW_COUNTERS}/{name}" not in known.positions
            and any(fnmatchcase(name, pattern) for pattern in self._patterns)
        ]
        self._raw_failure = None
        if len(names) > MAX_RAW_COUNTERS:
            limit = f"{self._folder}: {len(names)} counters match `raw`, the first {MAX_RAW_COUNTERS} are read"
            self._raw_failure = Failure(self._device, "too_many", f"{limit}; use patterns that match fewer")
        return names[:MAX_RAW_COUNTERS]

    def _read_all_files(self) -> bool:
        """Read all files in one loop; False if one fails, and they have to be read one by one.

        Most counters do not change: a text that did not change is not parsed again, and values none of which changed
        are the same object as last time.
        """
        if self._fast is None:
            return False
        positions, descriptors, texts = self._fast
        pread = os.pread
        try:
            found = [pread(descriptor, COUNTER_SIZE, 0) for descriptor in descriptors]
            if found != texts:
                values = list(self._values)
                for place, text, last in zip(positions, found, texts, strict=True):
                    if text != last:
                        values[place] = parse_counter(text)
                self._values, self._fast = values, (positions, descriptors, found)
        except (OSError, ValueError):
            self._fast = None
        return self._fast is not None

    def _read_each_file(self, now: float, failures: list[Failure], *, link_came_up: bool) -> None:
        """Read files one by one, and report those that fail."""
        values = list(self._values)
        texts: list[bytes] = []
        for path, file in self._files.items():
            place = self.plan.positions[path]
            values[place] = None
            if file.is_suspended(now, link_came_up=link_came_up):
                continue
            try:
                text = file.read(now)
                values[place] = parse_counter(text)
            except (OSError, ValueError) as error:
                failures.append(failure_of(self._device, error, file.path))
                if isinstance(error, OSError) and error.errno in REFUSALS:
                    self._use_alternative(path)
                continue
            texts.append(text)
            if values[place] is None:
                self._use_alternative(path)
        self._values = values
        if len(texts) == len(self._files):
            positions = [self.plan.positions[path] for path in self._files]
            self._fast = (positions, [file.descriptor for file in self._files.values()], texts)

    def _use_alternative(self, path: str) -> None:
        """Make the next read use another way to read a counter whose file has no value, if there is one."""
        if has_alternative(self._selected, path, self._has):
            self._refused.add(path)
            self._is_plan_stale = True

    def _netlink_statistics(self, read_netlink: NetlinkRead) -> Statistics | None:
        """Read by netlink; after an error files are read until the next scan."""
        try:
            statistics = read_netlink()
        except OSError as error:
            self._netlink_failure = self._failure_of_netlink(error)
            self._read_netlink, self._hw_names = None, self._list_hw_counters() if self._patterns else ()
            self._is_plan_stale = True
            return None
        if statistics.names is not self._hw_names:
            self._is_plan_stale = self._is_plan_stale or statistics.names != tuple(self._hw_names)
            self._hw_names = statistics.names
        return statistics

    def _set_netlink_values(self, reply: Sequence[int]) -> None:
        self._netlink_values = reply
        values = list(self._values)
        for place, index in self._netlink_positions:
            value = reply[index]
            values[place] = None if value == ABSENT else value
        self._values = values
