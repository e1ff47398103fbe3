"""States of ports: which ports are down, slow, paused, losing packets or full, since when, and by how much.

Each state has a rule in `state_rules`. It begins when both the mean over the rule's window and the last interval are
above the threshold, and ends when no interval was above it for a minute, so that a port near the threshold does not
flap. A port that is no longer read has no states, because whether they continue is unknown. A link is down only if it
was up before: ports that are not in use are not a state.

Times are those of the tables, monotonic; publishers convert them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from exporter.core.table import Column, LabelValues, Table
from exporter.core.vocabulary import EXPECTED_SPEED, SPEED
from exporter.meaning.ports.counter_meters import CounterMeter, Place, measured
from exporter.meaning.ports.state_rules import (
    LINK_DOWN,
    POWER_LOW,
    RULES,
    TOO_HOT,
    Form,
    PortRule,
)

CLEAR_SECONDS = 60.0
"""Seconds without an interval above the threshold after which a state ends."""

FORGET_SECONDS = 120.0
"""Seconds without a reading after which the states of a port are dropped."""

QUIET_SECONDS = 120.0
"""Seconds without an increase after which a state that counts them over a longer window is quiet."""

MAX_PORTS = 131_072
"""Rows of one kind whose ports are kept; those of further rows are parsed each time."""

IMMEDIATE_STATES = frozenset({LINK_DOWN, "link_degraded", "pcie_degraded"})
"""States that end at once: the port reports them directly, while others are derived from traffic."""

STRONGER_STATES = MappingProxyType({"paused_received": "pause_storm_received", "paused_sent": "pause_storm_sent"})
"""States that are left out while the stronger one is active."""


class PortLocation(NamedTuple):
    """Name of a host or switch (or GUID of a node), and its port.

    Ports of a host are `mlx5_0:1` for RDMA, as in NCCL, `ens1` for network devices, and PCI addresses.
    """

    name: str
    port: str


@dataclass(frozen=True, slots=True)
class PortState:
    """An active state.

    Attributes:
        kind: Kind, as in `state_rules`.
        port: The port.
        since: Time at which it began.
        number: Number of times that it began since the port was first read, from 1.
        value: A share, a count, a temperature; 0 or 1 for levels.
        detail: The priority or lane, if it is about one of several.
        job: The job whose log contains it; empty if it is measured on the port itself.
        quiet_since: Time of the last increase, if there was none for QUIET_SECONDS; None if it goes on.
    """

    kind: str
    port: PortLocation
    since: float
    number: int
    value: float
    detail: str = ""
    job: str = ""
    quiet_since: float | None = None


@dataclass(slots=True)
class StateHistory:
    """History of one state of one port.

    Attributes:
        active: Whether it is active.
        since: Time at which it began.
        above: Time at which it was last above the threshold.
        last: Time of the last increase, for those that count increases; else as above.
        read: Time of the last reading.
        number: Number of times that it began.
        value: Last value.
        detail: The priority or lane.
        was_up: For links that are down, whether they were up before.
    """

    read: float
    active: bool = False
    since: float = 0.0
    above: float = 0.0
    last: float = 0.0
    number: int = 0
    value: float = 0.0
    detail: str = ""
    was_up: bool = False


class RowPorts(dict[LabelValues, tuple[PortLocation, str]]):
    """The port of each row, and the text of its other labels; parsed when a row is first looked up.

    Args:
        names: Label names of the rows.
        host: Name of this host.
        known: Those of the last step: rows that one step does not look up are dropped with it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        host: str,
        known: Mapping[LabelValues, tuple[PortLocation, str]] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._names, self._host, self._known = names, host, known

    def __missing__(self, key: LabelValues) -> tuple[PortLocation, str]:
        """Return the port of a row, and keep it while there is room."""
        found = self._known.get(key) or _port(self._names, key, self._host)
        if len(self) < MAX_PORTS:
            self[key] = found
        return found

    def successor(self) -> "RowPorts":
        """Return the object for the next step, which knows what this step looked up."""
        self._known = {}
        return RowPorts(self._names, self._host, self)


@dataclass(slots=True)
class PortStateMemory:
    """State of all ports. Changed in place: there may be a hundred thousand."""

    meters: dict[Place, CounterMeter] = field(default_factory=dict)
    histories: dict[tuple[PortLocation, str], StateHistory] = field(default_factory=dict)
    ports: dict[tuple[tuple[str, ...], str], RowPorts] = field(default_factory=dict)

    def ports_of(self, names: tuple[str, ...], host: str) -> RowPorts:
        """Return the ports of rows with these label names."""
        return self.ports.setdefault((names, host), RowPorts(names, host))


class StateReading(NamedTuple):
    """Value of one state from one row, whether it is above the threshold, and the time of the last increase."""

    port: PortLocation
    kind: str
    time: float
    above: bool
    value: float
    detail: str = ""
    last: float | None = None


def step(memory: PortStateMemory, tables: Iterable[Table], host: str, now: float) -> list[PortState]:
    """Process the tables of ports and return the active states.

    Args:
        memory: State of this step; changed.
        tables: Tables of any kind, after `rates` and `links`; those without ports are skipped.
        host: Name of this host, which tables of its devices lack.
        now: Time of the tables.
    """
    tables = list(tables)
    memory.ports = {labels: ports.successor() for labels, ports in memory.ports.items() if ports}
    for key, found in _strongest(_readings(memory, tables, host)).items():
        _update_history(memory.histories, key, found)
    for key in [key for key, history in memory.histories.items() if now - history.read > FORGET_SECONDS]:
        del memory.histories[key]
    for place in [place for place, meter in memory.meters.items() if now - meter.time > FORGET_SECONDS]:
        del memory.meters[place]
    active = {key: history for key, history in memory.histories.items() if history.active}
    return [
        PortState(
            kind,
            port,
            history.since,
            history.number,
            history.value,
            history.detail,
            quiet_since=history.last if history.read - history.last >= QUIET_SECONDS else None,
        )
        for (port, kind), history in active.items()
        if (port, STRONGER_STATES.get(kind, "")) not in active
    ]


def _strongest(readings: Iterable[StateReading]) -> dict[tuple[PortLocation, str], StateReading]:
    """Return for each state of a port the row (priority, lane) with the strongest value."""
    strongest: dict[tuple[PortLocation, str], StateReading] = {}
    for one in readings:
        before = strongest.get((one.port, one.kind))
        sign = -1 if one.kind == POWER_LOW else 1
        if before is None or (one.above, sign * one.value) > (before.above, sign * before.value):
            strongest[one.port, one.kind] = one
    return strongest


def _update_history(
    histories: dict[tuple[PortLocation, str], StateHistory], key: tuple[PortLocation, str], found: StateReading
) -> None:
    """Begin, continue or end a state."""
    history = histories.setdefault(key, StateHistory(found.time))
    history.read = max(history.read, found.time)
    if key[1] == LINK_DOWN:
        history.was_up = history.was_up or not found.above
        if not history.was_up:
            return
    if found.above:
        if not history.active:
            history.active, history.since, history.number = True, found.time, history.number + 1
        history.above, history.value, history.detail = found.time, found.value, found.detail
        history.last = found.time if found.last is None else found.last
    elif history.active and (key[1] in IMMEDIATE_STATES or found.time - history.above >= CLEAR_SECONDS):
        history.active = False


def _readings(memory: PortStateMemory, tables: Sequence[Table], host: str) -> Iterable[StateReading]:
    for table in tables:
        for place, rule in enumerate(RULES):
            if rule.prefix == table.schema.prefix and any(way <= table.columns.keys() for way in map(set, rule.ways)):
                yield from _read(memory, place, rule, table, host)
    yield from _optics(memory, tables, host)


def _read(memory: PortStateMemory, place: int, rule: PortRule, table: Table, host: str) -> Iterable[StateReading]:
    """Yield the readings of one rule from a table."""
    ports = memory.ports_of(table.schema.labels, host)
    off = table.numbers("admin_up") if rule.kind == LINK_DOWN else None
    for row, key in enumerate(table.rows.keys):
        found: tuple[bool, float] | None
        if off is not None and off[row] == 0:
            continue  # administratively down
        time = table.times[row] if table.times is not None else table.time
        if rule.form in (Form.LEVEL, Form.ABOVE):
            value = _number(table, rule.ways[0][0], row)
            is_met = value == rule.threshold if rule.form is Form.LEVEL else (value or 0.0) > rule.threshold
            found = None if value is None else (is_met, value)
        elif rule.form is Form.FILL:
            found = measured(memory.meters, (place, key), rule, _utilization(table, rule, row), time)
        else:
            found = measured(memory.meters, (place, key), rule, _counters(table, rule, row), time)
        if found is not None:
            port, detail = ports[key]
            if found[0] or rule.kind == LINK_DOWN or (port, rule.kind) in memory.histories:
                last = memory.meters[place, key].last_rise if rule.form is Form.RISE else None
                yield StateReading(port, rule.kind, time, *found, detail, last)


def _port(names: tuple[str, ...], key: LabelValues, host: str) -> tuple[PortLocation, str]:
    """Return the port of a row, and the text of its other labels."""
    labels = dict(zip(names, key, strict=True))
    name = labels.pop("switch", "") or labels.pop("guid", "") or host
    ends = [labels.pop(one) for one in ("device", "port", "pci") if one in labels]
    return PortLocation(name, ":".join(ends)), " ".join(f"{label} {value}" for label, value in labels.items())


def _number(table: Table, ending: str, row: int) -> float | None:
    """Return a value in base units, as exported."""
    column: Column | None = table.columns.get(ending)
    value = None if column is None else column.values[row]
    if column is None or not isinstance(value, int | float):
        return None
    return value if column.factor == column.divisor == 1 else value * column.factor / column.divisor


def _counters(table: Table, rule: PortRule, row: int) -> dict[str, float]:
    """Return the counters of the first set that a row has, with those of `base` and `unless`; empty for none."""
    for way in rule.ways:
        found = {ending: value for ending in way if (value := _number(table, ending, row)) is not None}
        if len(found) == len(way):
            others = (rule.base, *rule.unless) if rule.base or rule.unless else ()
            return found | {one: value for one in others if (value := _number(table, one, row)) is not None}
    return {}


def _utilization(table: Table, rule: PortRule, row: int) -> dict[str, float]:
    """Return the utilization of a link in its busier direction; empty if unknown, or if its speed is not believed.

    The limit is the link speed or the expected speed, which is lower where a contract or a shaper limits the traffic.
    """
    if not rule.base and table.ceilings is not None and table.ceilings[row] is not None:
        return {}
    limits = (rule.base,) if rule.base else (SPEED, EXPECTED_SPEED)
    speeds = [one for ending in limits if (one := _number(table, ending, row))]
    rates = [one for way in rule.ways if (one := _number(table, way[0], row)) is not None]
    return {"fill": max(rates) / min(speeds)} if speeds and rates else {}


def _optics(memory: PortStateMemory, tables: Sequence[Table], host: str) -> Iterable[StateReading]:
    """Compare temperatures and powers of modules with the alarm thresholds of the modules."""
    limits: dict[tuple[str, str, str], float] = {}
    for table in tables:
        if table.schema.labels == ("device", "level"):
            for row, (device, level) in enumerate(table.rows.keys):
                for ending in table.columns:
                    value = _number(table, ending, row)
                    if value is not None:
                        limits[device, level, ending] = value
    for table in tables if limits else ():
        yield from _module_readings(memory, table, limits, host)


def _module_readings(
    memory: PortStateMemory, table: Table, limits: Mapping[tuple[str, str, str], float], host: str
) -> Iterable[StateReading]:
    ports = memory.ports_of(table.schema.labels, host)
    for row, key in enumerate(table.rows.keys):
        heat = _number(table, "module_temperature_celsius", row)
        most = limits.get((key[0], "high_alarm", "module_threshold_temperature_celsius")) if key else None
        if heat is not None and most is not None:
            yield StateReading(PortLocation(host, key[0]), TOO_HOT, table.time, heat > most, heat)
        power = _number(table, "module_lane_receive_power_watts", row)
        least = limits.get((key[0], "low_alarm", "module_threshold_receive_power_watts")) if key else None
        if power is not None and least is not None and _number(table, "module_lane_bias_amperes", row):
            port, detail = ports[key]
            yield StateReading(port, POWER_LOW, table.time, power < least, power, detail)
