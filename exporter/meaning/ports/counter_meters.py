"""Meters of counters: what a counter, or the share of two, has been over the window of a rule of port states."""

from collections import deque
from dataclasses import dataclass, field
from math import exp

from exporter.core.table import LabelValues
from exporter.meaning.ports.state_rules import EXPLAINED_SECONDS, MIN_PACKETS_PER_SECOND, Form, PortRule

Place = tuple[int, LabelValues]
"""Number of a rule, and the labels of a row."""


@dataclass(slots=True)
class CounterMeter:
    """Counters of one row at its last reading, and the values computed from them.

    Attributes:
        time: Time of the reading.
        counters: Values by ending.
        amount: Numerator of the mean, with exponential decay over the window.
        base: Denominator of the mean, likewise.
        rises: Times and amounts of increases within the window.
        explained: Last time at which a counter that explains the state increased.
    """

    time: float
    counters: dict[str, float]
    amount: float = 0.0
    base: float = 0.0
    rises: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    explained: float = float("-inf")

    @property
    def last_rise(self) -> float:
        """Time of the last increase within the window, or of the reading if there is none."""
        return self.rises[-1][0] if self.rises else self.time


def measured(
    meters: dict[Place, CounterMeter], place: Place, rule: PortRule, counters: dict[str, float], time: float
) -> tuple[bool, float] | None:
    """Compare counters with those of the last reading.

    Args:
        meters: Those of all places; one of a new place is added.
        place: The rule and the row.
        rule: The rule of the state.
        counters: Values by ending; empty if the row has none.
        time: Time of the reading.

    Returns:
        Whether it is above the threshold, and the value; None for the first reading, and if a counter is missing or
        was reset.
    """
    meter = meters.get(place)
    if meter is None and counters:
        meters[place] = CounterMeter(time, counters)
    if meter is None or time <= meter.time:
        return None
    before, seconds = meter.counters, time - meter.time
    meter.counters, meter.time = counters, time
    if not counters:
        return None
    if rule.form is Form.FILL:
        return _decayed_mean(meter, rule, counters["fill"] * seconds, seconds, seconds)
    rises = {ending: value - before[ending] for ending, value in counters.items() if ending in before}
    if any(rises.get(ending, 0) > 0 for ending in rule.unless):
        meter.explained = time
    wanted = [rises.get(ending, -1) for ending in counters if ending not in (rule.base, *rule.unless)]
    if min(wanted) < 0:
        return None
    if rule.form is Form.RISE:
        return _increase_in_window(meter, rule, sum(wanted), time)
    return _share(meter, rule, sum(wanted), rises.get(rule.base) if rule.base else seconds, seconds)


def _share(
    meter: CounterMeter, rule: PortRule, amount: float, base: float | None, seconds: float
) -> tuple[bool, float] | None:
    """Return the share of time or packets; None if the counters cover different things, or were reset."""
    if base is None or base < 0:
        return None
    if rule.form is Form.TIME:
        return _decayed_mean(meter, rule, amount, base, seconds)
    if amount > base:
        return None
    above, share = _decayed_mean(meter, rule, amount, base, seconds)
    explained = meter.time - meter.explained <= EXPLAINED_SECONDS
    return above and not explained and base >= MIN_PACKETS_PER_SECOND * seconds, share


def _decayed_mean(
    meter: CounterMeter, rule: PortRule, amount: float, base: float, seconds: float
) -> tuple[bool, float]:
    """Add to a mean with exponential decay.

    Return whether it and the last interval are above the threshold, and the mean.
    """
    decay = exp(-seconds / rule.window)
    meter.amount, meter.base = meter.amount * decay + amount, meter.base * decay + base
    mean = meter.amount / meter.base if meter.base else 0.0
    return mean > rule.threshold and amount > rule.threshold * base, mean


def _increase_in_window(meter: CounterMeter, rule: PortRule, rise: float, time: float) -> tuple[bool, float]:
    """Return whether the increases within the window reach the threshold, and their sum."""
    if rise:
        meter.rises.append((time, rise))
    while meter.rises and time - meter.rises[0][0] > rule.window:
        meter.rises.popleft()
    risen = sum(one for _, one in meter.rises)
    return risen >= rule.threshold and time - meter.explained > EXPLAINED_SECONDS, risen
