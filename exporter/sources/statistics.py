"""Named 64-bit values of a device, to metrics: how drivers' names are declared, and the plan that picks by them.

`ethtool -S` and the counters of RDMA ports are both lists of names and values. All values arrive as 64-bit numbers;
the width is what the hardware behind them has. Names that are not declared are passed over: a NIC can have 20,000.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MICROSECONDS = 1_000_000
"""Divisor of what is counted in microseconds."""

ABSENT = 2**64 - 1
"""What firmware answers that could not fill a value."""


class Statistic(NamedTuple):
    """How one metric is read: a pattern of names whose values are added up, and how they become base units.

    In a name, `{p}` stands for the priority, one digit, and `#` for the number of a queue.
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
        priority: One value a port and priority.
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
        priority: Priority to ending to places.
    """

    port: dict[str, list[int]] = field(default_factory=dict)
    priority: dict[str, dict[str, list[int]]] = field(default_factory=dict)


_WILD = re.compile(r"\{p\}|#")


def _pattern(name: str) -> str:
    """Turn a declared name into a regular expression."""
    parts = re.split(r"(\{p\}|#)", name)
    return "".join({"{p}": "([0-7])", "#": "\\d+"}.get(part, re.escape(part)) for part in parts)


def plan(driver: DriverNames, names: Sequence[str]) -> Plan:
    """Find a driver's metrics in the names that a device has; a name that stands twice is taken once, the first.

    A metric of which the device lacks one of several fixed names is left out: part of a sum is no sum. Where several
    statistics are declared for one metric (names changed from one version of a driver to the next), the first counts
    that the device has.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    made = Plan()
    for statistic in driver.port:
        found = _places(statistic, places)
        if found:
            made.port.setdefault(statistic.ending, found)
    for statistic in driver.priority:
        pattern = re.compile("|".join(_pattern(name) for name in statistic.names))
        for name, place in places.items():
            match = pattern.fullmatch(name)
            if match:
                made.priority.setdefault(match[1], {}).setdefault(statistic.ending, []).append(place)
    return made


def _places(statistic: Statistic, places: Mapping[str, int]) -> list[int]:
    if not any(_WILD.search(name) for name in statistic.names):
        return [places[name] for name in statistic.names] if all(name in places for name in statistic.names) else []
    pattern = re.compile("|".join(_pattern(name) for name in statistic.names))
    return [place for name, place in places.items() if pattern.fullmatch(name)]


def picked(places: Mapping[str, Sequence[int]], values: Sequence[int]) -> dict[str, int]:
    """Add up the values at the places of each ending; a value of all ones is one that the device did not have."""
    return {
        ending: sum(found)
        for ending, where in places.items()
        if ABSENT not in (found := [values[place] for place in where])
    }
