"""Conversion of times of a switch's clock to the monotonic clock of this process."""

from collections.abc import Sequence


class SwitchClock:
    """The offset between the clock of a switch and the monotonic clock.

    The switch's timestamps are never in the future, so the smallest difference seen is the best estimate of the offset.
    It starts over when the switch's clock was set back.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._newest = 0.0

    def to_monotonic(self, times: Sequence[float | None], now: float) -> list[float]:
        """Return each time of the switch in monotonic seconds; `now` for one that is None."""
        known = [time for time in times if time is not None]
        if not known:
            return [now] * len(times)
        newest = max(known)
        if newest < self._newest:
            self._offset = None
        self._newest = newest
        self._offset = now - newest if self._offset is None else min(self._offset, now - newest)
        return [now if time is None else time + self._offset for time in times]
