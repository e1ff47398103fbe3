"""Named 64-bit values of a device, to metrics: how drivers' names are declared, and the plan that picks by them.

`ethtool -S` and the counters of RDMA ports are both lists of names and values. All values arrive as 64-bit numbers;
the width is what the hardware behind them has. Names that are not declared are passed over: a NIC can have 20,000.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

MICROSECONDS = 1_000_000
"""Divisor of what is counted in microseconds."""

PERCENT = 100
"""Divisor of what is told in hundredths: shares are exported as ratios."""

ABSENT = 2**64 - 1
"""What firmware answers that could not fill a value."""

PRIORITIES = tuple("01234567")


class Statistic(NamedTuple):
    """How one metric is read: names whose values are added up, and how they become base units.

    In a name, `{p}` stands for the priority, one digit, and `#` for the number of a queue. Whether it is a counter or
    a gauge is said by the metric of that ending: drivers list both alike, and do not say which is which.
    """

    ending: str
    names: tuple[str, ...]
    width: int = 64
    divisor: int = 1


def both(ending: str, name: str, width: int = 64, divisor: int = 1) -> tuple[Statistic, Statistic]:
    """Declare a statistic for both directions; {way} in the name is rx or tx."""
    return (
        Statistic(f"receive_{ending}", (name.replace("{way}", "rx"),), width, divisor),
        Statistic(f"transmit_{ending}", (name.replace("{way}", "tx"),), width, divisor),
    )


@dataclass(frozen=True, slots=True)
class DriverNames:
    """The names of one driver.

    Attributes:
        port: One value a port.
        priority: One value a port and priority; a name without `{p}` counts all priorities together.
        wire: Whether it counts bytes and packets on the wire, RDMA included.
    """

    port: tuple[Statistic, ...]
    priority: tuple[Statistic, ...] = ()
    wire: bool = True


@dataclass(slots=True)
class Plan:
    """Where the values of a driver's metrics stand in one tuple of names.

    Attributes:
        port: Ending to places whose values are added up.
        priority: Priority, empty for all together, to ending to places.
    """

    port: dict[str, list[int]] = field(default_factory=dict)
    priority: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def without(self, unread: Collection[str]) -> "Plan":
        """Give the plan without some endings, and without priorities of which nothing is left."""

        def left(places: Mapping[str, list[int]]) -> dict[str, list[int]]:
            return {ending: where for ending, where in places.items() if ending not in unread}

        priority = {number: kept for number, places in self.priority.items() if (kept := left(places))}
        return Plan(left(self.port), priority)


def plan(driver: DriverNames, names: Sequence[str]) -> Plan:
    """Find a driver's metrics in the names that a device has; a name that stands twice is taken once, the first.

    A metric of which the device lacks one of several fixed names is left out: part of a sum is no sum. Where several
    statistics are declared for one metric (names changed from one version of a driver to the next), the first counts
    that the device has.
    """
    places = _first_places(names)
    made = Plan()
    for statistic in driver.port:
        if found := _places(statistic.names, places):
            made.port.setdefault(statistic.ending, found)
    for statistic in driver.priority:
        for priority, spelled in _by_priority(statistic.names).items():
            if found := _places(spelled, places):
                made.priority.setdefault(priority, {}).setdefault(statistic.ending, found)
    return made


def rest(mapped: Plan, names: Sequence[str], patterns: Sequence[str]) -> dict[str, int]:
    """Find the names that the plan does not use and one of the shell patterns fits, with the first place of each."""
    groups = [mapped.port, *mapped.priority.values()]
    used = {place for endings in groups for where in endings.values() for place in where}
    return {
        name: place
        for name, place in _first_places(names).items()
        if name and place not in used and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def picked(places: Mapping[str, Sequence[int]], values: Sequence[int]) -> dict[str, int]:
    """Add up the values at the places of each ending; a value of all ones is one that the device did not have."""
    found = {
        ending: values[where[0]] if len(where) == 1 else _sum([values[place] for place in where])
        for ending, where in places.items()
    }
    return {ending: value for ending, value in found.items() if value != ABSENT} if ABSENT in found.values() else found


def _sum(parts: Sequence[int]) -> int:
    return ABSENT if ABSENT in parts else sum(parts)


def _first_places(names: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places


def _by_priority(names: Sequence[str]) -> dict[str, list[str]]:
    """Spell names out for each priority; for none, the empty one, where they name none."""
    if not any("{p}" in name for name in names):
        return {"": list(names)}
    return {priority: [name.replace("{p}", priority) for name in names] for priority in PRIORITIES}


def _places(names: Sequence[str], places: Mapping[str, int]) -> list[int]:
    """Give the places of all names, or of whatever fits those with a queue's number in them."""
    if not any("#" in name for name in names):
        return [places[name] for name in names] if all(name in places for name in names) else []
    pattern = re.compile("|".join(r"\d+".join(map(re.escape, name.split("#"))) for name in names), re.ASCII)
    return [place for name, place in places.items() if pattern.fullmatch(name)]
