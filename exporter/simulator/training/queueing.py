"""How long collectives were queued behind the one before, from the times at which a rank reached them.

The collectives of a communicator run one after the other on each rank, in the order in which it reached them, whatever
their kind. One that was reached before the previous one ended was queued until then:

    queued = max(0, previous end - start)
    end = max(start, previous end) + microseconds

Where the record of the previous one is lost, other ranks of the host show its end: all end at one moment, which the
clocks of two ranks give a difference that is the same for all collectives. If none has it, it is unknown, and so is the
end, within bounds: it is known again when a rank reaches one later than the lost ones can have lasted. A start at the
end of the previous one may be that of the kernel, which cannot be earlier, and does not show when the rank reached it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from exporter.simulator.training.records import Record

SAME_MICROSECONDS = 20.0
"""Distance of a start from the end of the previous collective up to which it may be that of the kernel."""

MAX_LOST = 16
"""Lost collectives that may be queued at a time, at most."""

MAX_ROUNDS = 4
"""Times that ranks show each other what they know, at most."""

MAX_ENDS = 4096
"""Latest collectives of a communicator of which the ends are stored: ranks report at different times."""

MIN_COMMON = 3
"""Ends known on a rank and on others from which on they correct the difference of its clock."""

_Key = tuple[str, str, int]
"""Job, communicator and rank."""

_Operation = tuple[str, int]
"""Kind and sequence number."""


class _Unplaced(NamedTuple):
    """A record of one rank, and what may have run just before it.

    Attributes:
        record: The record.
        slack: Microseconds that lost ones which may have run just before it can have lasted; 0 if there are none.
        more: The part of them that cannot have run before the previous record.
    """

    record: Record
    slack: float
    more: float


class _Ends(NamedTuple):
    """Ends on one rank, in microseconds of its clock.

    Attributes:
        own: Those of collectives.
        before: Those of the ones before collectives.
        previous: Which these are.
        seen: All collectives that are known.
    """

    own: dict[_Operation, float]
    before: dict[_Operation, float]
    previous: dict[_Operation, _Operation]
    seen: set[_Operation]


@dataclass(slots=True)
class _Stream:
    """The collectives of one rank in one communicator so far.

    Attributes:
        earliest: Earliest possible end of the last one, in microseconds of the clock of the rank.
        latest: Latest possible end of it.
        numbers: Next sequence number by kind.
    """

    earliest: float = -math.inf
    latest: float = -math.inf
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, given: _Unplaced, before: float | None = None) -> float | None:
        """Add a collective; return for how long it was queued, None if unknown.

        Args:
            given: Its record.
            before: End of the one before it, if other ranks show it.
        """
        start, took, slack = given.record.start or 0.0, given.record.microseconds or 0.0, given.slack
        if before is not None:
            self.earliest = self.latest = before
            slack = 0.0
        earliest, latest = self.earliest, self.latest
        if slack:
            latest = max(latest + given.more, start + slack, earliest + slack)
        elif start > latest + SAME_MICROSECONDS:
            self.earliest = self.latest = start + took
            return 0.0
        elif earliest == latest:
            queued = latest - start if start < latest - SAME_MICROSECONDS else None
            self.earliest = self.latest = took + (start if queued is None else latest)
            return queued
        self.earliest, self.latest = max(start, earliest) + took, latest + took
        return None


@dataclass(slots=True)
class _Common:
    """What the ranks of a communicator show each other, on a clock that is that of none in particular.

    Attributes:
        clocks: Differences of the clocks of ranks to it.
        ends: Ends of the latest collectives.
        before: Ends of those before the latest collectives, and …
        previous: … which these are.
    """

    clocks: dict[_Key, float] = field(default_factory=dict)
    ends: dict[_Operation, float] = field(default_factory=dict)
    before: dict[_Operation, float] = field(default_factory=dict)
    previous: dict[_Operation, _Operation] = field(default_factory=dict)

    def learn(self, known: Mapping[_Key, _Ends]) -> None:
        """Add what ranks show."""
        if not self.clocks:
            self.clocks[max(known, key=lambda key: len(known[key].own))] = 0.0
        self._add(self.ends, {key: known[key].own for key in known.keys() & self.clocks.keys()})
        for key, mine in known.items():
            apart = [mine.own[one] - self.ends[one] for one in mine.own.keys() & self.ends.keys()]
            if len(apart) >= MIN_COMMON or (apart and key not in self.clocks):
                self.clocks[key] = median(apart)
        self._add(self.before, {key: known[key].before for key in known.keys() & self.clocks.keys()})
        for mine in known.values():
            self.previous.update(mine.previous)
        _keep_latest(self.ends)
        _keep_latest(self.before)
        _keep_latest(self.previous)

    def _add(self, ends: dict[_Operation, float], found: Mapping[_Key, Mapping[_Operation, float]]) -> None:
        """Add the middle of the ends that ranks show."""
        shown: dict[_Operation, list[float]] = {}
        for key, of_rank in found.items():
            for one, end in of_rank.items():
                shown.setdefault(one, []).append(end - self.clocks[key])
        ends.update((one, median(of_one)) for one, of_one in shown.items())

    def shown(self, key: _Key, mine: _Ends) -> dict[_Operation, float]:
        """Return the ends before collectives of a rank, on its clock, where only others have the one before."""
        if key not in self.clocks:
            return {}
        return {
            one: self.before[one] + self.clocks[key]
            for one in mine.seen & self.before.keys() & self.previous.keys()
            if self.previous[one] not in mine.seen
        }


def _keep_latest(ends: dict[_Operation, float] | dict[_Operation, _Operation]) -> None:
    for one in list(ends)[: max(len(ends) - MAX_ENDS, 0)]:
        del ends[one]


class Queueing:
    """The collectives of all ranks, of which the ends of the last ones are stored."""

    def __init__(self) -> None:
        self._streams: dict[_Key, _Stream] = {}
        self._common: dict[tuple[str, str], _Common] = {}

    def queued(self, records: Sequence[Record]) -> list[float | None]:
        """Return the microseconds for which each was queued; None if unknown.

        Args:
            records: In any order, but for those of several kinds with one start; those of a later call come after them.
        """
        found: list[float | None] = [None] * len(records)
        places: dict[_Key, list[int]] = {}
        for place, one in enumerate(records):
            if one.microseconds is not None and one.start is not None:
                places.setdefault((one.job, one.communicator, one.rank), []).append(place)
        ordered: dict[_Key, list[int]] = {}
        of_communicators: dict[tuple[str, str], dict[_Key, list[_Unplaced | None]]] = {}
        for key, given in places.items():
            ordered[key] = _in_order(records, given)
            stream = self._streams.setdefault(key, _Stream())
            of_ranks = of_communicators.setdefault(key[:2], {})
            of_ranks[key] = _unplaced(stream, [records[place] for place in ordered[key]])
        for of_ranks in of_communicators.values():
            before = self._before(of_ranks)
            for key, unplaced in of_ranks.items():
                for place, next_one in zip(ordered[key], unplaced, strict=True):
                    if next_one is not None:
                        found[place] = self._streams[key].add(next_one, before[key].get(_operation(next_one)))
        return found

    def _before(self, streams: Mapping[_Key, Sequence[_Unplaced | None]]) -> dict[_Key, dict[_Operation, float]]:
        """Return the ends before collectives that ranks of a communicator show each other, on the clock of each."""
        common = self._common.setdefault(next(iter(streams))[:2], _Common())
        before: dict[_Key, dict[_Operation, float]] = {key: {} for key in streams}
        for _ in range(MAX_ROUNDS):
            known = {key: _ends(replace(self._streams[key]), given, before[key]) for key, given in streams.items()}
            common.learn(known)
            more = {key: common.shown(key, mine) for key, mine in known.items()}
            if sum(map(len, more.values())) <= sum(map(len, before.values())):
                break
            before = more
        return before


def _operation(one: _Unplaced) -> _Operation:
    return one.record.kind, one.record.sequence


def _ends(stream: _Stream, records: Iterable[_Unplaced | None], before: Mapping[_Operation, float]) -> _Ends:
    """Return what the records of one rank show of ends, and what others show it; the stream is changed."""
    found, last = _Ends({}, {}, {}, set()), None
    for one in records:
        if one is not None:
            this = _operation(one)
            found.seen.add(this)
            if last is not None and not one.slack:
                found.previous[this] = last
                if stream.earliest == stream.latest:
                    found.before[this] = stream.latest
            stream.add(one, before.get(this))
            if stream.earliest == stream.latest:
                found.own[this] = stream.latest
            last = this
    return found


def _in_order(records: Sequence[Record], places: Sequence[int]) -> list[int]:
    """Return the places of records in order of their starts, and those of one kind in order of their numbers."""
    by_start = sorted(places, key=lambda place: records[place].start or 0.0)
    by_number = sorted(places, key=lambda place: (records[place].start or 0.0, records[place].sequence))
    of_kinds: dict[str, list[int]] = {}
    for place in reversed(by_number):
        of_kinds.setdefault(records[place].kind, []).append(place)
    return [of_kinds[records[place].kind].pop() for place in by_start]


def _unplaced(stream: _Stream, records: Sequence[Record]) -> list[_Unplaced | None]:
    """Return records of one stream with what may be lost before each; None for one received before or out of order.

    Args:
        stream: The stream; its next numbers are changed.
        records: Records in order of their starts.
    """
    longest = max(one.microseconds or 0.0 for one in records)
    return [
        None if lost is None else _Unplaced(one, *(min(count, MAX_LOST) * longest for count in lost))
        for one, lost in zip(records, _lost_before(stream.numbers, records), strict=True)
    ]


def _lost_before(numbers: dict[str, int], records: Sequence[Record]) -> list[tuple[int, int] | None]:
    """Return how many lost collectives may have run just before each record, and how many of them not earlier.

    A lost one ran somewhere between the records of its kind before and after it.

    Args:
        numbers: Next sequence number by kind, which are changed.
        records: Records in order of their starts.

    Returns:
        None for a record that was received before, or follows later ones.
    """
    begin, end = [0] * (len(records) + 1), [0] * (len(records) + 1)
    late: set[int] = set()
    places: dict[str, int] = {}
    for place, one in enumerate(records):
        lost = one.sequence - numbers.get(one.kind, 0)
        if lost < 0:
            late.add(place)
            continue
        begin[places.get(one.kind, -1) + 1] += lost
        end[place + 1] += lost
        numbers[one.kind] = one.sequence + 1
        places[one.kind] = place
    found: list[tuple[int, int] | None] = []
    lost = 0
    for place in range(len(records)):
        lost += begin[place] - end[place]
        found.append(None if place in late else (lost, begin[place]))
    return found
