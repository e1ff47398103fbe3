"""When a switch counted, which is not when it was asked: many agents answer from a cache for many seconds.

Where the switch has time stamps, these decide. Else a reading in which the bytes of all ports that were busy stand
still is one from the cache: it has the time of the reading before, so that no rate is 0 now and twice the truth next
time. That holds for a refresh and a half; a switch that stands still for longer has nothing to do.
"""

from collections.abc import Hashable, Mapping, Sequence

ASSUMED = 60.0
"""Seconds between refreshes of a switch of which nothing is known: the slowest cache that makers document."""

PATIENCE = 1.5
"""Refreshes for which counters that stand still are held to be not refreshed."""

FRESH = 10
"""Readings in a row that all brought something new, after which the refresh is no slower than the readings."""

BUSY = 1000
"""A port is busy that carried no less than this part of what the busiest one did: the polls themselves are traffic on
the management port, whose counters may be no part of the cache."""

TICKS = 100
"""Ticks of sysUpTime in a second."""

Octets = Mapping[Hashable, int]


class Refresh:
    """Watches the counters of one switch.

    Attributes:
        seen: Seconds between the last two refreshes, where readings in between found nothing new; None where they
            always did.
        unchanged: Readings that brought nothing new.
    """

    def __init__(self, documented: float | None = None) -> None:
        """Take the seconds between refreshes as the maker documents them."""
        self.seen: float | None = None
        self.unchanged = 0
        self._documented = documented
        self._octets: Octets = {}
        self._busy: Sequence[Hashable] = ()
        self._moved = 0.0  # time of the last reading that brought something new
        self._patience = PATIENCE * (ASSUMED if documented is None else documented)
        self._stood = False  # whether readings since then did not
        self._idle = False  # whether they stood for so long that nothing is to be counted
        self._fresh = 0  # readings in a row that brought something new
        self._stamps: dict[int, float] = {}

    def forget(self) -> None:
        """Begin anew: the switch restarted."""
        self._octets, self._busy, self._stamps = {}, (), {}
        self._stood = self._idle = False

    def by_octets(self, octets: Octets, now: float) -> float:
        """Give the time at which counters were read by the switch, as far as these counters of bytes tell.

        Args:
            octets: By port and direction.
            now: Time of this reading.
        """
        if self._stands(octets):
            self.unchanged += 1
            self._fresh = 0
            self._idle = self._idle or now - self._moved > self._patience
            self._stood = True
            return now if self._idle else self._moved
        if self._octets and not self._idle:
            self._note_refresh(now - self._moved)
        deltas = {key: count - self._octets.get(key, count) for key, count in octets.items()}
        least = max(max(deltas.values(), default=0) // BUSY, 1)
        self._busy = [key for key, delta in deltas.items() if delta >= least] or list(octets)
        self._octets, self._moved = octets, now
        self._stood = self._idle = False
        return now

    def by_stamps(self, stamps: Sequence[int | None], uptime: int, now: float) -> list[float]:
        """Give the time at which the counters of each row were read by the switch, as it says.

        Args:
            stamps: Of each row: sysUpTime in ticks; None where it does not say, which is now.
            uptime: sysUpTime in ticks.
            now: The time at which it was that.
        """
        known = self._stamps
        self._stamps = {
            stamp: known[stamp] if stamp in known else min(now, now - (uptime - stamp) / TICKS)
            for stamp in set(stamps)
            if stamp is not None
        }
        if known and self._stamps:
            if self._stamps.keys() <= known.keys():
                self.unchanged += 1
                self._stood = True
            elif self._stood:
                self.seen = (max(self._stamps) - max(known)) / TICKS
                self._stood = False
        return [now if stamp is None else self._stamps[stamp] for stamp in stamps]

    def _stands(self, octets: Octets) -> bool:
        known = self._octets
        return any(octets.get(key) for key in self._busy) and all(octets.get(key) == known[key] for key in self._busy)

    def _note_refresh(self, apart: float) -> None:
        """Take note that a reading brought something new, so many seconds after the last one that did."""
        if self._stood:
            self.seen = apart
        else:
            self._fresh += 1
            if self._fresh >= FRESH:
                self.seen = None
        known = [one for one in (self._documented, self.seen) if one is not None]
        self._patience = PATIENCE * max(known, default=apart if self._fresh >= FRESH else ASSUMED)
