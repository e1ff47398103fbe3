"""Detects when a switch refreshed its counters: many agents respond from a cache for many seconds.

Time stamps of the switch are used if it has them. Otherwise a reading in which the octets of all busy ports are
unchanged is one from the cache: it has the time of the reading before, so that a rate is not 0 now and twice the real
one next time. That holds for one and a half refresh periods; if counters are unchanged for longer, the switch is idle.
"""

from collections.abc import Hashable, Mapping, Sequence

DEFAULT_REFRESH_SECONDS = 60.0
"""Assumed seconds between refreshes of a switch: the slowest cache that vendors document."""

IDLE_AFTER_REFRESHES = 1.5
"""Refresh periods without a change after which the switch is considered idle."""

MIN_CHANGED_READINGS = 10
"""Readings in a row with new values, after which the refresh period is at most the interval of the readings."""

BUSY_DIVISOR = 1000
"""A port is busy if it carried at least this fraction of the busiest one's octets: the polls themselves are traffic on
the management port, whose counters may not be cached."""

TICKS = 100
"""Ticks of sysUpTime in a second."""

Octets = Mapping[Hashable, int]


class RefreshDetector:
    """Observes the counters of one switch.

    Attributes:
        period: Seconds between the last two refreshes, if readings in between were unchanged; None if every reading
            had new values.
        unchanged: Readings without new values.
    """

    def __init__(self, documented: float | None = None) -> None:
        """Store the seconds between refreshes as documented by the vendor."""
        self.period: float | None = None
        self.unchanged = 0
        self._documented = documented
        self._octets: Octets = {}
        self._busy: Sequence[Hashable] = ()
        self._changed_at = 0.0  # time of the last reading with new values
        self._idle_after = IDLE_AFTER_REFRESHES * (DEFAULT_REFRESH_SECONDS if documented is None else documented)
        self._had_unchanged = False  # whether there were unchanged readings since then
        self._idle = False
        self._changed_readings = 0  # in a row
        self._stamps: dict[int, float] = {}

    def reset(self) -> None:
        """Discard the last reading: the switch restarted."""
        self._octets, self._busy, self._stamps = {}, (), {}
        self._had_unchanged = self._idle = False

    def time_by_octets(self, octets: Octets, now: float) -> float:
        """Return the time at which the switch refreshed its counters, from its counters of octets.

        Args:
            octets: By port and direction.
            now: Time of this reading.
        """
        if self._is_unchanged(octets):
            self.unchanged += 1
            self._changed_readings = 0
            self._idle = self._idle or now - self._changed_at > self._idle_after
            self._had_unchanged = True
            return now if self._idle else self._changed_at
        if self._octets and not self._idle:
            self._on_refresh(now - self._changed_at)
        deltas = {key: count - self._octets.get(key, count) for key, count in octets.items()}
        least = max(max(deltas.values(), default=0) // BUSY_DIVISOR, 1)
        self._busy = [key for key, delta in deltas.items() if delta >= least] or list(octets)
        self._octets, self._changed_at = octets, now
        self._had_unchanged = self._idle = False
        return now

    def times_by_stamps(self, stamps: Sequence[int | None], uptime: int, now: float) -> list[float]:
        """Return the time at which the switch refreshed the counters of each row, from its time stamps.

        Args:
            stamps: Of each row: sysUpTime in ticks; None is now.
            uptime: sysUpTime in ticks.
            now: The time of that sysUpTime.
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
                self._had_unchanged = True
            elif self._had_unchanged:
                self.period = (max(self._stamps) - max(known)) / TICKS
                self._had_unchanged = False
        return [now if stamp is None else self._stamps[stamp] for stamp in stamps]

    def _is_unchanged(self, octets: Octets) -> bool:
        known = self._octets
        return any(octets.get(key) for key in self._busy) and all(octets.get(key) == known[key] for key in self._busy)

    def _on_refresh(self, elapsed: float) -> None:
        """Update the period after a reading with new values, `elapsed` seconds after the last such reading."""
        if self._had_unchanged:
            self.period = elapsed
        else:
            self._changed_readings += 1
            if self._changed_readings >= MIN_CHANGED_READINGS:
                self.period = None
        known = [one for one in (self._documented, self.period) if one is not None]
        default = elapsed if self._changed_readings >= MIN_CHANGED_READINGS else DEFAULT_REFRESH_SECONDS
        self._idle_after = IDLE_AFTER_REFRESHES * max(known, default=default)
