"""States of ports: which of them are down, slow, paused, losing data or full, since when, and how much.

Each is formed by a rule of `port_rules` and begins when the mean over the rule's window and the last interval are both
above the threshold. It ends when no interval was above it for a minute, so that a port at the edge of two does not
flap. What cannot be read any more has no state: nobody knows whether it goes on. A link is down only if it was seen up:
ports that nobody uses are no state either.

Times are those of the tables, monotonic; who tells others turns them into their own.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp
from typing import NamedTuple

from exporter.core.table import Column, LabelValues, Table
from exporter.core.vocabulary import EXPECTED_SPEED, SPEED
from exporter.meaning.ports.state_rules import (
    EXPLAINED,
    LEAST_PACKETS,
    LINK_DOWN,
    POWER_LOW,
    RULES,
    TOO_HOT,
    Form,
    PortRule,
)

CLEAR = 60.0
"""Seconds without anything above the threshold after which a state ends."""

FORGET = 120.0
"""Seconds without a reading after which nothing is said of a port."""

LINKS = frozenset({LINK_DOWN, "link_degraded", "pcie_degraded"})
"""States that end as soon as the port says so: it knows, where others are told from traffic."""

STRONGER = {"paused_received": "pause_storm_received", "paused_sent": "pause_storm_sent"}
"""States that are left out where the stronger one is active."""


class Port(NamedTuple):
    """Where something is: the name of a host or switch (or the GUID of a node), and its port.

    Ports of a host are `mlx5_0:1` for RDMA, as NCCL spells them, `ens1` for network devices, and PCI addresses.
    """

    name: str
    port: str


@dataclass(frozen=True, slots=True)
class PortState:
    """A state that is active.

    Attributes:
        kind: Of `port_rules`.
        port: Where.
        since: When it began.
        number: How often it began since the port was first read, from 1.
        value: How much: a share, a count, a temperature; 0 or 1 of levels.
        detail: Which priority or lane, where one of several is meant.
        job: The job whose log tells it; empty where the port itself does.
    """

    kind: str
    port: Port
    since: float
    number: int
    value: float
    detail: str = ""
    job: str = ""


@dataclass(slots=True)
class Meter:
    """Counters of one row at its last reading, and what came of them.

    Attributes:
        time: Of the reading.
        counters: By ending.
        amount: What counted, fading with the window …
        base: … and what it is a share of.
        rises: When counters rose within the window, and by how much.
        explained: When a counter rose last that explains it.
    """

    time: float
    counters: dict[str, float]
    amount: float = 0.0
    base: float = 0.0
    rises: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    explained: float = float("-inf")


@dataclass(slots=True)
class Course:
    """How it went with one state of one port.

    Attributes:
        active: Whether it is.
        since: When it began.
        above: When it was last above the threshold.
        read: When it was last read.
        number: How often it began.
        value: How much.
        detail: Which priority or lane.
        was_up: Of links that are down, whether they were seen up.
    """

    read: float
    active: bool = False
    since: float = 0.0
    above: float = 0.0
    number: int = 0
    value: float = 0.0
    detail: str = ""
    was_up: bool = False


@dataclass(slots=True)
class Memory:
    """All that is remembered of ports. Changed in place: there may be a hundred thousand."""

    meters: dict[tuple[int, LabelValues], Meter] = field(default_factory=dict)
    courses: dict[tuple[Port, str], Course] = field(default_factory=dict)


class Reading(NamedTuple):
    """What one row says of one state: whether it is above the threshold, and the number."""

    port: Port
    kind: str
    time: float
    above: bool
    value: float
    detail: str = ""


def step(memory: Memory, tables: Iterable[Table], host: str, now: float) -> list[PortState]:
    """Take what was read of ports, and give the states that are active.

    Args:
        memory: Of the ports; changed.
        tables: Of any kind, after rates were made and links were judged; those without ports are passed over.
        host: The name of this host, whose devices' tables do not carry it.
        now: The tables' time.
    """
    tables = list(tables)
    for key, found in _strongest(_readings(memory, tables, host)).items():
        _follow(memory.courses, key, found)
    for key in [key for key, course in memory.courses.items() if now - course.read > FORGET]:
        del memory.courses[key]
    for place in [place for place, meter in memory.meters.items() if now - meter.time > FORGET]:
        del memory.meters[place]
    active = {key: course for key, course in memory.courses.items() if course.active}
    return [
        PortState(kind, port, course.since, course.number, course.value, course.detail)
        for (port, kind), course in active.items()
        if (port, STRONGER.get(kind, "")) not in active
    ]


def _strongest(readings: Iterable[Reading]) -> dict[tuple[Port, str], Reading]:
    """Keep of several rows of a port (priorities, lanes) the one that says most of a state."""
    kept: dict[tuple[Port, str], Reading] = {}
    for one in readings:
        before = kept.get((one.port, one.kind))
        sign = -1 if one.kind == POWER_LOW else 1
        if before is None or (one.above, sign * one.value) > (before.above, sign * before.value):
            kept[one.port, one.kind] = one
    return kept


def _follow(courses: dict[tuple[Port, str], Course], key: tuple[Port, str], found: Reading) -> None:
    """Let a state begin, go on or end."""
    course = courses.setdefault(key, Course(found.time))
    course.read = max(course.read, found.time)
    if key[1] == LINK_DOWN:
        course.was_up = course.was_up or not found.above
        if not course.was_up:
            return
    if found.above:
        if not course.active:
            course.active, course.since, course.number = True, found.time, course.number + 1
        course.above, course.value, course.detail = found.time, found.value, found.detail
    elif course.active and (key[1] in LINKS or found.time - course.above >= CLEAR):
        course.active = False


def _readings(memory: Memory, tables: Sequence[Table], host: str) -> Iterable[Reading]:
    for table in tables:
        for place, rule in enumerate(RULES):
            if rule.prefix == table.schema.prefix and any(way <= table.columns.keys() for way in map(set, rule.ways)):
                yield from _read(memory, place, rule, table, host)
    yield from _optics(tables, host)


def _read(memory: Memory, place: int, rule: PortRule, table: Table, host: str) -> Iterable[Reading]:
    """Give what a table says of one rule."""
    names = table.schema.labels
    off = table.numbers("admin_up") if rule.kind == LINK_DOWN else None
    for row, key in enumerate(table.rows.keys):
        found: tuple[bool, float] | None
        if off is not None and off[row] == 0:
            continue  # switched off by configuration
        time = table.times[row] if table.times is not None else table.time
        if rule.form is Form.LEVEL:
            value = _number(table, rule.ways[0][0], row)
            found = None if value is None else (value == rule.threshold, value)
        elif rule.form is Form.FILL:
            found = _counted(memory, (place, key), rule, _filled(table, rule, row), time)
        else:
            found = _counted(memory, (place, key), rule, _counters(table, rule, row), time)
        if found is not None:
            port, detail = _port(names, key, host)
            if found[0] or rule.kind == LINK_DOWN or (port, rule.kind) in memory.courses:
                yield Reading(port, rule.kind, time, *found, detail)


@lru_cache(maxsize=131_072)
def _port(names: tuple[str, ...], key: LabelValues, host: str) -> tuple[Port, str]:
    """Tell of which port a row is, and which of its parts."""
    labels = dict(zip(names, key, strict=True))
    name = labels.pop("switch", "") or labels.pop("guid", "") or host
    ends = [labels.pop(one) for one in ("device", "port", "pci") if one in labels]
    return Port(name, ":".join(ends)), " ".join(f"{label} {value}" for label, value in labels.items())


def _number(table: Table, ending: str, row: int) -> float | None:
    """Give a number as it is exported."""
    column: Column | None = table.columns.get(ending)
    value = None if column is None else column.values[row]
    if column is None or not isinstance(value, int | float):
        return None
    return value if column.factor == column.divisor == 1 else value * column.factor / column.divisor


def _counters(table: Table, rule: PortRule, row: int) -> dict[str, float]:
    """Give the counters of the first way that a row has, with those that they are set against; empty for none."""
    for way in rule.ways:
        found = {ending: value for ending in way if (value := _number(table, ending, row)) is not None}
        if len(found) == len(way):
            others = (rule.base, *rule.unless) if rule.base or rule.unless else ()
            return found | {one: value for one in others if (value := _number(table, one, row)) is not None}
    return {}


def _filled(table: Table, rule: PortRule, row: int) -> dict[str, float]:
    """Give how full a link is in its fuller direction, over what it can carry or is let; empty if unknown.

    What is expected of a link is less than its speed where a contract or a shaper holds it down.
    """
    limits = (rule.base,) if rule.base else (SPEED, EXPECTED_SPEED)
    speeds = [one for ending in limits if (one := _number(table, ending, row))]
    rates = [one for way in rule.ways if (one := _number(table, way[0], row)) is not None]
    return {"fill": max(rates) / min(speeds)} if speeds and rates else {}


def _counted(
    memory: Memory, place: tuple[int, LabelValues], rule: PortRule, counters: dict[str, float], time: float
) -> tuple[bool, float] | None:
    """Set counters against those of the last reading; None for the first, and where one is missing or began anew."""
    meter = memory.meters.get(place)
    if meter is None and counters:
        memory.meters[place] = Meter(time, counters)
    if meter is None or time <= meter.time:
        return None
    before, seconds = meter.counters, time - meter.time
    meter.counters, meter.time = counters, time
    if not counters:
        return None
    if rule.form is Form.FILL:
        return _faded(meter, rule, counters["fill"] * seconds, seconds, seconds)
    rises = {ending: value - before[ending] for ending, value in counters.items() if ending in before}
    if any(rises.get(ending, 0) > 0 for ending in rule.unless):
        meter.explained = time
    wanted = [rises.get(ending, -1) for ending in counters if ending not in (rule.base, *rule.unless)]
    if min(wanted) < 0:
        return None
    if rule.form is Form.RISE:
        return _risen(meter, rule, sum(wanted), time)
    return _shared(meter, rule, sum(wanted), rises.get(rule.base) if rule.base else seconds, seconds)


def _shared(
    meter: Meter, rule: PortRule, amount: float, base: float | None, seconds: float
) -> tuple[bool, float] | None:
    """Set what counters rose by against time or packets; None where they are of different things, or began anew."""
    if base is None or base < 0:
        return None
    if rule.form is Form.TIME:
        return _faded(meter, rule, amount, base, seconds)
    if amount > base:
        return None
    above, share = _faded(meter, rule, amount, base, seconds)
    explained = meter.time - meter.explained <= EXPLAINED
    return above and not explained and base >= LEAST_PACKETS * seconds, share


def _faded(meter: Meter, rule: PortRule, amount: float, base: float, seconds: float) -> tuple[bool, float]:
    """Add to a mean in which what is older than the window has faded; tell whether it and the last are above."""
    fade = exp(-seconds / rule.window)
    meter.amount, meter.base = meter.amount * fade + amount, meter.base * fade + base
    mean = meter.amount / meter.base if meter.base else 0.0
    return mean > rule.threshold and amount > rule.threshold * base, mean


def _risen(meter: Meter, rule: PortRule, rise: float, time: float) -> tuple[bool, float]:
    """Add up the rises within the window."""
    if rise:
        meter.rises.append((time, rise))
    while meter.rises and time - meter.rises[0][0] > rule.window:
        meter.rises.popleft()
    risen = sum(one for _, one in meter.rises)
    return risen >= rule.threshold and time - meter.explained > EXPLAINED, risen


def _optics(tables: Sequence[Table], host: str) -> Iterable[Reading]:
    """Set temperatures and powers of modules against the limits that they tell themselves."""
    limits: dict[tuple[str, str, str], float] = {}
    for table in tables:
        if table.schema.labels == ("device", "level"):
            for row, (device, level) in enumerate(table.rows.keys):
                for ending in table.columns:
                    value = _number(table, ending, row)
                    if value is not None:
                        limits[device, level, ending] = value
    for table in tables if limits else ():
        yield from _against(table, limits, host)


def _against(table: Table, limits: Mapping[tuple[str, str, str], float], host: str) -> Iterable[Reading]:
    for row, key in enumerate(table.rows.keys):
        heat = _number(table, "module_temperature_celsius", row)
        most = limits.get((key[0], "high_alarm", "module_threshold_temperature_celsius")) if key else None
        if heat is not None and most is not None:
            yield Reading(Port(host, key[0]), TOO_HOT, table.time, heat > most, heat)
        power = _number(table, "module_lane_receive_power_watts", row)
        least = limits.get((key[0], "low_alarm", "module_threshold_receive_power_watts")) if key else None
        if power is not None and least is not None and _number(table, "module_lane_bias_amperes", row):
            port, detail = _port(table.schema.labels, key, host)
            yield Reading(port, POWER_LOW, table.time, power < least, power, detail)
