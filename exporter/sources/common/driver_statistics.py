"""Drivers' statistics to metrics: how their names are declared, and the plan that finds the declared ones in a list.

`ethtool -S` and the counters of RDMA ports are both lists of names and values. All values are read as 64-bit numbers;
the width is that of the hardware counter. Names that are not declared are skipped: a NIC can have 20,000.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from exporter.linux.cached_file import ABSENT

MICROSECONDS = 1_000_000
"""Divisor of values in microseconds."""

PERCENT = 100
"""Divisor of values in per cent: shares are exported as ratios."""

PRIORITIES = tuple("01234567")


class Statistic(NamedTuple):
    """How one metric is read: names whose values are added up, and how they become base units.

    In a name, `{p}` is the priority, one digit, and `#` the number of a queue. Whether the value is a counter or a
    gauge is declared with the metric of that ending, since drivers list both without distinction.
    """

    ending: str
    names: tuple[str, ...]
    width: int = 64
    divisor: int = 1


def both(ending: str, name: str, width: int = 64, divisor: int = 1) -> tuple[Statistic, Statistic]:
    """Return the statistics of both directions; {way} in the name becomes rx or tx."""
    return (
        Statistic(f"receive_{ending}", (name.replace("{way}", "rx"),), width, divisor),
        Statistic(f"transmit_{ending}", (name.replace("{way}", "tx"),), width, divisor),
    )


@dataclass(frozen=True, slots=True)
class DriverNames:
    """The names of one driver.

    Attributes:
        port: Statistics of a port.
        priority: Statistics of a priority of a port; a name without `{p}` counts all priorities together.
        wire: Whether bytes and packets are counted on the wire, RDMA included.
    """

    port: tuple[Statistic, ...]
    priority: tuple[Statistic, ...] = ()
    wire: bool = True


@dataclass(slots=True)
class StatisticsPlan:
    """Indices of the values of a driver's metrics in the list of a device's statistics.

    Attributes:
        port: By ending, the indices whose values are added up.
        priority: The same by priority, which is empty for all priorities together.
    """

    port: dict[str, list[int]] = field(default_factory=dict)
    priority: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def without(self, unread: Collection[str]) -> "StatisticsPlan":
        """Return the plan without some endings, and without priorities that have no endings left."""

        def remaining(indices: Mapping[str, list[int]]) -> dict[str, list[int]]:
            return {ending: one for ending, one in indices.items() if ending not in unread}

        priority = {number: left for number, indices in self.priority.items() if (left := remaining(indices))}
        return StatisticsPlan(remaining(self.port), priority)


def make_plan(driver: DriverNames, names: Sequence[str]) -> StatisticsPlan:
    """Find a driver's metrics in the names of a device; of a name that occurs twice the first is used.

    A metric is absent if the device lacks one of its fixed names, since a part of a sum is not the sum. If several
    statistics are declared for one metric (names change between versions of a driver), the first one that the device
    has is used.
    """
    indices = _first_indices(names)
    plan = StatisticsPlan()
    for statistic in driver.port:
        if found := _find_names(statistic.names, indices):
            plan.port.setdefault(statistic.ending, found)
    for statistic in driver.priority:
        for priority, spelled in _by_priority(statistic.names).items():
            if found := _find_names(spelled, indices):
                plan.priority.setdefault(priority, {}).setdefault(statistic.ending, found)
    return plan


def unmapped(plan: StatisticsPlan, names: Sequence[str], patterns: Sequence[str]) -> dict[str, int]:
    """Return the names that match a shell pattern and that the plan does not use, with the first index of each."""
    groups = [plan.port, *plan.priority.values()]
    used = {index for endings in groups for indices in endings.values() for index in indices}
    return {
        name: index
        for name, index in _first_indices(names).items()
        if name and index not in used and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def sum_values(indices: Mapping[str, Sequence[int]], values: Sequence[int]) -> dict[str, int]:
    """Add up the values at the indices of each ending; endings with a value that is ABSENT are left out."""
    found = {
        ending: values[one[0]] if len(one) == 1 else _sum([values[index] for index in one])
        for ending, one in indices.items()
    }
    return {ending: value for ending, value in found.items() if value != ABSENT} if ABSENT in found.values() else found


def _sum(parts: Sequence[int]) -> int:
    return ABSENT if ABSENT in parts else sum(parts)


def _first_indices(names: Sequence[str]) -> dict[str, int]:
    indices: dict[str, int] = {}
    for index, name in enumerate(names):
        indices.setdefault(name, index)
    return indices


def _by_priority(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names for each priority; the priority is empty if the names contain no `{p}`."""
    if not any("{p}" in name for name in names):
        return {"": list(names)}
    return {priority: [name.replace("{p}", priority) for name in names] for priority in PRIORITIES}


def _find_names(names: Sequence[str], indices: Mapping[str, int]) -> list[int]:
    """Return the indices of all names, or of every name that matches those with a queue's number; else none."""
    if not any("#" in name for name in names):
        return [indices[name] for name in names] if all(name in indices for name in names) else []
    pattern = queue_pattern(names)
    return [index for name, index in indices.items() if pattern.fullmatch(name)]


def queue_pattern(names: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of names with the number of a queue in place of each `#`."""
    return re.compile("|".join(r"\d{1,5}".join(map(re.escape, name.split("#"))) for name in names), re.ASCII)
