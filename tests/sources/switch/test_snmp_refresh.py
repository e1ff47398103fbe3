"""Refresh times of counters: agents with a cache, and agents with time stamps."""

import pytest

from exporter.sources.switch.readers.snmp.refresh import RefreshDetector


class Agent:
    """Ports that carry bytes all the time, shown by an agent that reads them once in so many seconds."""

    def __init__(self, every, *, ports=8):
        self.every = every
        self.ports = ports

    def octets(self, now):
        read = now - now % self.every if self.every else now
        counts = {("receive", port): int(read * 1e9) + port for port in range(1, self.ports)}
        return counts | {("receive", "mgmt"): int(now * 500)}  # the polls themselves, which no cache hides


def times_of(detector, agent, interval, polls):
    return [
        detector.time_by_octets(agent.octets(now), now) for now in (1000.0 + interval * poll for poll in range(polls))
    ]


def test_counters_that_always_change_have_the_time_of_their_reading():
    detector = RefreshDetector()
    assert times_of(detector, Agent(0), 15.0, 5) == [1000.0, 1015.0, 1030.0, 1045.0, 1060.0]
    assert (detector.period, detector.unchanged) == (None, 0)


def test_readings_from_a_cache_have_the_time_of_the_refresh():
    """A refresh every 50 s, polled every 10 s; before the first change no port is known to be busy."""
    detector = RefreshDetector()
    found = times_of(detector, Agent(50), 10.0, 12)
    assert found == [1000.0, 1010.0, 1020.0, 1030.0, 1040.0] + [1050.0] * 5 + [1100.0] * 2
    assert detector.period == 50.0
    assert detector.unchanged == 5


@pytest.mark.parametrize(("documented", "held"), [(None, 90.0), (10.0, 15.0), (60.0, 90.0)])
def test_a_switch_without_changes_for_one_and_a_half_refreshes_is_idle(documented, held):
    detector = RefreshDetector(documented)
    still = {("receive", 1): 1, ("receive", 2): 10**12}
    detector.time_by_octets({("receive", 1): 1, ("receive", 2): 10}, 1000.0)
    detector.time_by_octets(still, 1005.0)
    found = [detector.time_by_octets(still, 1005.0 + 5.0 * poll) for poll in range(1, 25)]
    number = int(held // 5)
    assert found[:number] == [1005.0] * number
    assert found[number:] == [1005.0 + 5.0 * poll for poll in range(number + 1, 25)]
    assert detector.time_by_octets({**still, ("receive", 2): 10**13}, 1200.0) == 1200.0
    assert detector.period is None, "an idle switch has no known refresh period"


def test_after_ten_changed_readings_a_switch_is_idle_at_the_second_unchanged_one():
    detector = RefreshDetector()
    times_of(detector, Agent(0), 15.0, 11)
    still = Agent(0).octets(1150.0)
    assert [detector.time_by_octets(still, 1150.0 + 15.0 * poll) for poll in range(1, 4)] == [1150.0, 1180.0, 1195.0]


def test_a_restart_resets_the_detector():
    detector = RefreshDetector()
    times_of(detector, Agent(50), 10.0, 3)
    detector.reset()
    assert detector.time_by_octets(Agent(50).octets(1030.0), 1030.0) == 1030.0


def test_a_switch_without_octets_has_the_time_of_each_reading():
    detector = RefreshDetector()
    assert [detector.time_by_octets({}, now) for now in (1.0, 2.0)] == [1.0, 2.0]
    zeros = RefreshDetector()
    assert [zeros.time_by_octets({("receive", 1): 0}, now) for now in (1.0, 2.0)] == [1.0, 2.0]


def test_time_stamps_of_the_switch_are_used():
    """Two chips; sysUpTime in hundredths of a second. A stamp that stays keeps its time to the last digit."""
    detector = RefreshDetector()
    assert detector.times_by_stamps([99_000, 98_500, None], 100_000, 5000.0) == [4990.0, 4985.0, 5000.0]
    assert detector.times_by_stamps([99_000, 98_500, None], 101_003, 5010.0) == [4990.0, 4985.0, 5010.0]
    assert detector.unchanged == 1
    assert detector.times_by_stamps([101_000, 98_500, None], 102_000, 5020.0) == [5010.0, 4985.0, 5020.0]
    assert detector.period == 20.0


def test_a_future_time_stamp_is_now():
    assert RefreshDetector().times_by_stamps([200_000], 100_000, 5000.0) == [5000.0]
