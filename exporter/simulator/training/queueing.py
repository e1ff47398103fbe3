"""How long collectives were queued behind the one before, from the times at which a rank reached them.

The collectives of a communicator run one after the other on each rank, in the order in which it reached them, whatever
their kind. One that was reached before the previous one ended was queued until then:

    queued = max(0, previous end - start)
    end = max(start, previous end) + microseconds

Where the previous one may be a lost record, that is unknown, and so is the end, within bounds: it is known again when a
rank reaches one later than the lost ones can have lasted. A start at the end of the previous one may be that of the
kernel, which cannot be earlier, and does not show when the rank reached it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from exporter.simulator.training.records import Record

SAME_MICROSECONDS = 20.0
"""Distance of a start from the end of the previous collective up to which it may be that of the kernel."""

MAX_LOST = 16
"""Lost collectives that may be queued at a time, at most."""

_Key = tuple[str, str, int]
"""Job, communicator and rank."""


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

    def add(self, start: float, took: float, slack: float, more: float) -> float | None:
        """Add a collective; return for how long it was queued, None if unknown.

        Args:
            start: Its start.
            took: Its microseconds.
            slack: Microseconds that lost ones which may have run just before it can have lasted; 0 if there are none.
            more: The part of them that cannot have run before the last one.
        """
        earliest, latest = self.earliest, self.latest
        if slack:
            latest = max(latest + more, start + slack, earliest + slack)
        elif start > latest + SAME_MICROSECONDS:
            self.earliest = self.latest = start + took
            return 0.0
        elif earliest == latest:
            queued = latest - start if start < latest - SAME_MICROSECONDS else None
            self.earliest = self.latest = took + (start if queued is None else latest)
            return queued
        self.earliest, self.latest = max(start, earliest) + took, latest + took
        return None


class Queueing:
    """The collectives of all ranks, of which the ends of the last ones are stored."""

    def __init__(self) -> None:
        self._streams: dict[_Key, _Stream] = {}

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
        for key, given in places.items():
            own = _in_order(records, given)
            stream = self._streams.setdefault(key, _Stream())
            for place, queued in zip(own, _queued(stream, [records[place] for place in own]), strict=True):
                found[place] = queued
        return found


def _in_order(records: Sequence[Record], places: Sequence[int]) -> list[int]:
    """Return the places of records in order of their starts, and those of one kind in order of their numbers."""
    by_start = sorted(places, key=lambda place: records[place].start or 0.0)
    by_number = sorted(places, key=lambda place: (records[place].start or 0.0, records[place].sequence))
    of_kinds: dict[str, list[int]] = {}
    for place in reversed(by_number):
        of_kinds.setdefault(records[place].kind, []).append(place)
    return [of_kinds[records[place].kind].pop() for place in by_start]


def _queued(stream: _Stream, records: Sequence[Record]) -> Iterator[float | None]:
    """Yield for how long each record of one stream was queued; they are in order of their starts."""
    longest = max(one.microseconds or 0.0 for one in records)
    for one, lost in zip(records, _lost_before(stream.numbers, records), strict=True):
        if one.start is None or one.microseconds is None or lost is None:
            yield None
        else:
            slack, more = (min(count, MAX_LOST) * longest for count in lost)
            yield stream.add(one.start, one.microseconds, slack, more)


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
