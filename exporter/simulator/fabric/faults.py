"""Faults of one run: parsed from the command line, when they are active, and the conditions that they make.

A fault is written `NAME[:TARGET][@START[-END]]`, such as `pause-storm:gpu-002/4@2m-5m`. Without a target it is where
the table has it, without a start it is there from the beginning, and without an end it stays.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from exporter.config.units import Duration
from exporter.simulator.fabric.conditions import (
    AdapterState,
    CableState,
    Conditions,
    JobState,
    MonitoringState,
    RankState,
    SwitchState,
    worst,
)
from exporter.simulator.fabric.fault_table import KINDS, Kind, Place
from exporter.simulator.fabric.topology import End, Topology

GRAMMAR = "NAME[:TARGET][@START[-END]]"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a place and time.

    Attributes:
        name: Name of its kind.
        target: Its target; empty for a fault without one.
        start: Second at which it begins.
        end: Second at which it ends; infinite if it stays.
    """

    name: str
    target: str = ""
    start: float = 0.0
    end: float = math.inf

    def __str__(self) -> str:
        """Return what is wrong, where and when."""
        end = "" if self.end == math.inf else f" to {self.end:g} s"
        target = f"{self.target} " if self.target else ""
        return f"{self.name}: {target}{self.kind.text}, from {self.start:g} s{end}"

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.name]

    def active(self, time: float) -> bool:
        """Return whether it is there at a time."""
        if not self.start <= time < self._last():
            return False
        return self.kind.period == math.inf or (time - self.start) % self.kind.period < self.kind.on

    def next_change(self, time: float) -> float:
        """Return the first time after `time` at which it begins, ends, comes or goes; infinite if there is none."""
        if time < self.start:
            return self.start
        if time >= self._last():
            return math.inf
        if self.kind.period == math.inf:
            return self._last()
        begun = self.start + (time - self.start) // self.kind.period * self.kind.period
        edges = (begun + self.kind.on, begun + self.kind.period)
        return min(self._last(), *(edge for edge in edges if edge > time))

    def _last(self) -> float:
        return min(self.end, self.start + self.kind.length)


def parse_fault(text: str, topology: Topology) -> Fault:
    """Parse a fault.

    Args:
        text: As `GRAMMAR` has it; times are durations such as 30s.
        topology: The cluster that it is to be in.

    Raises:
        ValueError: The name, target or time is invalid; the text has the valid ones.
    """
    where, at, times = text.partition("@")
    name, colon, target = where.partition(":")
    if name not in KINDS:
        raise ValueError(f"{text!r}: {name!r} is not a fault; expected {GRAMMAR} with one of {', '.join(KINDS)}")
    kind = KINDS[name]
    valid = targets(kind.place, topology)
    if not colon:
        target = kind.default
    if target not in (valid or [kind.default]):
        remedy = f"expected one of {', '.join(valid)}" if valid else f"leave out {':' + target!r}"
        raise ValueError(f"{text!r}: {name} is at {kind.place.value}; {remedy}")
    start, dash, end = times.partition("-")
    began = _seconds(start, text) if at else 0.0
    ended = _seconds(end, text) if dash else math.inf
    if ended <= began:
        raise ValueError(f"{text!r}: it ends at {end} and begins at {start}; expected an end after the start")
    return Fault(name, target, began, ended)


def _seconds(time: str, text: str) -> float:
    if time in {"0", "0s"}:
        return 0.0
    try:
        return Duration.parse(time)
    except ValueError as error:
        raise ValueError(f"{text!r}: time {time!r}: {error}") from None


def targets(place: Place, topology: Topology) -> tuple[str, ...]:
    """Return the valid targets of a kind of place; none for a fault without target."""
    rails = tuple(f"{host}/{rail}" for host in topology.hosts for rail in range(topology.shape.rails))
    uplinks = tuple(f"{leaf}/{spine}" for leaf in topology.leaves for spine in topology.spines)
    return {
        Place.LINK: rails + uplinks,
        Place.ADAPTER: topology.hosts + rails,
        Place.HOST: topology.hosts,
        Place.RANK: tuple(map(str, range(topology.ranks))),
        Place.LEAF: topology.leaves,
        Place.SPINE: topology.spines,
        Place.SWITCH: topology.leaves + topology.spines,
        Place.EVERYWHERE: (),
    }[place]


class Plan:
    """All faults of a run, and the conditions at each time."""

    def __init__(self, faults: Iterable[Fault], topology: Topology) -> None:
        """Args: faults: The faults. topology: The cluster as it is meant to be cabled."""
        self.faults = tuple(faults)
        self.topology = topology
        self._conditions: dict[tuple[Fault, ...], Conditions] = {}
        self._cabled: dict[frozenset[tuple[End, End]], Topology] = {frozenset(): topology}

    def active(self, time: float) -> tuple[Fault, ...]:
        """Return the faults that are there at a time."""
        return tuple(fault for fault in self.faults if fault.active(time))

    def conditions(self, time: float) -> Conditions:
        """Return the conditions at a time; the same object while they do not change."""
        active = self.active(time)
        if active not in self._conditions:
            self._conditions[active] = conditions(active, self.topology)
        return self._conditions[active]

    def cabling(self, time: float) -> Topology:
        """Return the cluster as it is cabled at a time; the same object while that does not change."""
        shape = self.topology.shape
        swapped = set()
        for adapter, state in self.conditions(time).adapters.items():
            if state.swapped:
                rails = self.topology.adapters(adapter.device)
                other = rails[(rails.index(adapter) + shape.rails_a_leaf) % shape.rails]
                swapped.add((min(adapter, other), max(adapter, other)))  # once, also where both have the fault
        key = frozenset(swapped)
        if key not in self._cabled:
            self._cabled[key] = Topology(shape, key)
        return self._cabled[key]

    def next_change(self, time: float) -> float:
        """Return the first time after `time` at which conditions change; infinite if they stay."""
        return min((fault.next_change(time) for fault in self.faults), default=math.inf)


_Key = TypeVar("_Key")
_State = TypeVar("_State", CableState, AdapterState, SwitchState, RankState)


def conditions(active: Sequence[Fault], topology: Topology) -> Conditions:
    """Return the conditions that some faults make together.

    Args:
        active: The faults that are there.
        topology: The cluster as it is meant to be cabled.
    """
    cables: dict[End, CableState] = {}
    adapters: dict[End, AdapterState] = {}
    switches: dict[str, SwitchState] = {}
    ranks: dict[int, RankState] = {}
    job, monitoring = JobState(), MonitoringState()
    for fault in active:
        match fault.kind.state:
            case CableState() as state:
                _add(cables, _lower_ends(fault, topology), state)
            case AdapterState() as state:
                _add(adapters, _adapters(fault.target, topology), state)
            case SwitchState() as state:
                _add(switches, [fault.target], state)
            case RankState() as state:
                _add(ranks, ranks_of(fault, topology), state)
            case JobState() as state:
                job = worst(job, state)
            case MonitoringState() as state:
                monitoring = worst(monitoring, state)
    return Conditions(cables, adapters, switches, ranks, job, monitoring)


def _add(states: dict[_Key, _State], keys: Iterable[_Key], state: _State) -> None:
    for key in keys:
        states[key] = worst(states[key], state) if key in states else state


def _adapters(target: str, topology: Topology) -> Sequence[End]:
    host, slash, rail = target.partition("/")
    return [topology.adapter(host, int(rail))] if slash else topology.adapters(host)


def _lower_ends(fault: Fault, topology: Topology) -> Sequence[End]:
    device, _, other = fault.target.partition("/")
    if device in topology.hosts:
        return _adapters(fault.target, topology)
    return [topology.uplink(device, spine).lower for spine in topology.spines if not other or spine == other]


def ranks_of(fault: Fault, topology: Topology) -> range:
    """Return the ranks that a fault of ranks is at: one, or those of a host."""
    if fault.kind.place is Place.RANK:
        return range(int(fault.target), int(fault.target) + 1)
    return topology.ranks_of(fault.target)
