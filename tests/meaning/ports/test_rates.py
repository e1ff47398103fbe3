"""Rates, against simulated counters and against a model that handles one counter at a time."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    Kind,
    RowKeeper,
    Table,
)
from exporter.meaning.ports import counters, rates

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis without deadlines: a slow machine is not a failure."""

SCHEMA = vocabulary.schema(
    "fabric_test_",
    ("device",),
    [
        "receive_bytes_total",
        "transmit_bytes_total",
        "transmit_packets_total",
        "receive_errors_total",
        "receive_paused_seconds_total",
        "receive_pause_frames_total",
        "transmit_pause_frames_total",
        "ecn_marked_packets_total",
        vocabulary.SPEED,
        rates.RESETS,
    ],
)

SPEED_400G = 50e9
WIDTHS = [8, 16, 32, 48, 64]


class TableReader:
    """Passes tables of counters through `rates.step`, as a poller does."""

    def __init__(self, schema=SCHEMA):
        self.schema, self.keeper, self.state = schema, RowKeeper(("device",)), None

    def read(self, time, rows, *, epochs=None, speed=SPEED_400G, times=None, **columns):
        """Return values by ending, and the keys of saturated counters; `columns` are values, or (values, options)."""
        size = len(rows)
        table_columns = {}
        for ending, given_as in columns.items():
            values, options = given_as if isinstance(given_as, tuple) else (given_as, {})
            table_columns[ending] = Column(self.schema.metrics[ending], values, **options)
        if speed is not None:
            speeds = speed if isinstance(speed, list) else [speed] * size
            table_columns[vocabulary.SPEED] = Column(self.schema.metrics[vocabulary.SPEED], speeds)
        table = Table(self.schema, self.keeper.rows([(row,) for row in rows]), table_columns, time, epochs, times=times)
        self.state, tables = rates.step(self.state, table)
        out = {ending: list(column.values) for ending, column in tables[0].columns.items()}
        out["saturated"] = set(tables[1].rows.keys) if len(tables) > 1 else set()
        return out


def one(time, meter, value, ending="receive_bytes_total", **options):
    """Read one counter of one row: (exported, its rate, resets)."""
    speed = options.pop("speed", SPEED_400G)
    epochs = options.pop("epochs", None)
    out = meter.read(time, ["d"], epochs=epochs, speed=speed, **{ending: ([value], options)})
    rate = out.get(vocabulary.RATES.get(ending), [None])[0]
    return out[ending][0], rate, out[rates.RESETS][0]


@NO_DEADLINE
@given(
    st.sampled_from(WIDTHS),
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.floats(0, 0.499), st.floats(0.1, 1e4)), min_size=1, max_size=12),
)
def test_a_wrapping_counter_is_exported_extended_with_its_true_rate(width, start, steps):
    """The true count is known here; the device reports only its low bits."""
    meter, now, true = TableReader(), 0.0, start % (1 << width)
    assert one(now, meter, true, width=width, speed=1e30)[:2] == (true, None)
    for share, seconds in steps:
        passed = int(share * (1 << width))
        before, now, true = now, now + seconds, true + passed
        exported, rate, resets = one(now, meter, true % (1 << width), width=width, speed=1e30)
        assert exported == true
        assert rate == pytest.approx(passed / (now - before))
        assert resets == 0


COLUMNS = {
    "receive_bytes_total": {"width": 32, "factor": 4},
    "transmit_bytes_total": {"width": 64},
    "transmit_packets_total": {"width": 48},
    "receive_errors_total": {"width": 16, "saturates": True},
    "receive_paused_seconds_total": {"width": 32, "divisor": 1_000_000},
    "ecn_marked_packets_total": {"width": 8},
}


class Model:
    """The rules, applied to one counter at a time."""

    def __init__(self):
        self.rows = {}

    def read(self, now, rows, epochs, speeds, columns, times):
        self.rows = {row: self.rows.get(row, {"epoch": None, "resets": 0, "last": {}}) for row in rows}
        expected = {}
        for place, row in enumerate(rows):
            memory, time = self.rows[row], times[place]
            readings = {ending: values[place] for ending, values in columns.items()}
            last = memory["last"]
            falls = sum(1 for name, new in readings.items() if new is not None and name in last and new < last[name][0])
            known = epochs[place] is not None and memory["epoch"] is not None
            restarted = falls > 1 or (known and epochs[place] != memory["epoch"])
            memory["epoch"] = memory["epoch"] if epochs[place] is None else epochs[place]
            if restarted:
                last.clear()
            reset = restarted
            for name, new in readings.items():
                expected[row, name] = expected[row, vocabulary.RATES.get(name)] = None
                if new is None:
                    continue
                offset, rate = 0, None
                if name in last:
                    old, then, offset, last_rate = last[name]
                    passed, offset = self.passed(name, new - old, time - then, speeds[place], offset)
                    reset = reset or passed is None
                    if passed is not None and time == then:  # the device has not counted since
                        rate = last_rate if now - time <= 600 else None
                        last[name] = (old, then, offset, rate)
                        expected[row, name] = self.scaled(name, new + offset)
                        expected[row, vocabulary.RATES.get(name)] = rate
                        continue
                    if passed is not None and time > then:
                        rate = self.scaled(name, passed) / Fraction(time - then)
                        most = (
                            1
                            if "seconds" in name
                            else Fraction(speeds[place] or 200e9) / (1 if "bytes" in name else 64)
                        )
                        rate = rate if rate <= 16 * most else None
                last[name] = (new, time, offset, rate)
                expected[row, name] = self.scaled(name, new + offset)
                if name in vocabulary.RATES:
                    expected[row, vocabulary.RATES[name]] = rate
            memory["resets"] += reset
            expected[row, rates.RESETS] = memory["resets"]
        return expected

    def passed(self, name, change, seconds, speed, offset):
        """Return the increase of a counter and its new offset, or (None, 0) for a reset."""
        if change >= 0:
            return change, offset
        column = COLUMNS[name]
        size = 1 << column["width"]
        change += size
        possible = 0 <= change < size // 2 and seconds > 0 and not column.get("saturates")
        if "seconds" in name:
            most = 1.0
        elif name == "ecn_marked_packets_total" or not speed:
            most, possible = None, possible and column["width"] <= 32
        else:
            most = speed if "bytes" in name else speed / 64
        if possible and (
            most is None or self.scaled(name, change) <= Fraction(most) * Fraction(seconds) * Fraction(5, 4)
        ):
            return change, offset + size
        return None, 0

    def scaled(self, name, value):
        return Fraction(value * COLUMNS[name].get("factor", 1), COLUMNS[name].get("divisor", 1))


def values_of(name):
    top = (1 << COLUMNS[name]["width"]) - 1
    return st.none() | st.integers(0, 2000) | st.integers(max(0, top - 2000), top) | st.integers(0, top)


@st.composite
def polls(draw):
    """Draw a history: rows appear and disappear in any order, clocks stop and go back, columns and values are missing.

    Rows may have times of their own, some of which do not advance.
    """
    now, history = 100.0, []
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([5.0, 5.0, 5.03125, 0.0, -3.0, 0.25, 86400.0]))
        rows = draw(st.permutations(["a", "b", "c"]))[: draw(st.integers(1, 3))]
        size = len(rows)
        epochs = draw(st.lists(st.sampled_from([None, 1, 1, 1, 2]), min_size=size, max_size=size))
        speeds = draw(st.lists(st.sampled_from([None, 0, 1000.0, SPEED_400G]), min_size=size, max_size=size))
        names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=2))
        columns = {name: draw(st.lists(values_of(name), min_size=size, max_size=size)) for name in names}
        if history and draw(st.booleans()):  # some columns do not change
            columns |= {
                name: values for name, values in history[-1][4].items() if len(values) == size and name in names[1:]
            }
        times = draw(st.none() | st.lists(st.sampled_from([now, now - 1.0, 90.0]), min_size=size, max_size=size))
        history.append((now, rows, epochs, speeds, columns, times))
    return history


def read_poll(meter, poll):
    now, rows, epochs, speeds, columns, times = poll
    given_as = {name: (values, COLUMNS[name]) for name, values in columns.items()}
    return meter.read(now, rows, epochs=epochs, speed=speeds, times=times, **given_as)


@NO_DEADLINE
@given(polls())
def test_any_history_gives_the_results_of_the_model(history):
    meter, model = TableReader(), Model()
    for poll in history:
        now, rows, epochs, speeds, columns, times = poll
        out = read_poll(meter, poll)
        expected = model.read(now, rows, epochs, speeds, columns, times or [now] * len(rows))
        for (row, ending), value in expected.items():
            if ending is None:
                continue
            got = out.get(ending, [None] * len(rows))[rows.index(row)]
            assert (got is None) == (value is None), (row, ending)
            if value is not None:
                assert got == (
                    value if value.denominator == 1 and isinstance(got, int) else pytest.approx(float(value))
                )
        for rate_ending in vocabulary.RATES.values():
            assert all(rate is None or rate >= 0 for rate in out.get(rate_ending, ()))
        for way in ("receive", "transmit"):
            shares = out.get(f"{way}_utilization_ratio", [None] * len(rows))
            bytes_a_second = out.get(f"{way}_bytes_per_second", [None] * len(rows))
            for share, rate, speed in zip(shares, bytes_a_second, speeds, strict=True):
                assert share == (pytest.approx(rate / speed) if rate is not None and speed else None)
        saturated = {
            (row, "receive_errors")
            for row, value in zip(rows, columns.get("receive_errors_total", []), strict=False)
            if value == 65535
        }
        assert out["saturated"] == saturated


@NO_DEADLINE
@given(polls())
def test_fast_path_and_slow_path_agree(history):
    fast, slow = TableReader(), TableReader()
    results = [read_poll(fast, poll) for poll in history]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "unsteady_columns", lambda _before, _times, columns: columns)
        for poll, expected in zip(history, results, strict=True):
            out = read_poll(slow, poll)
            for ending in out.keys() | expected.keys():
                nothing = [None] * len(poll[1])
                assert out.get(ending, nothing) == expected.get(ending, nothing), ending


def test_steady_counters_take_the_fast_path(monkeypatch):
    def refuse(*_):
        raise AssertionError("slow")

    meter = TableReader()
    meter.read(0.0, ["a", "b"], receive_bytes_total=[1, 2])
    monkeypatch.setattr(counters, "advance_by_row", refuse)
    assert meter.read(4.0, ["a", "b"], receive_bytes_total=[9, 2])["receive_bytes_per_second"] == [2.0, 0.0]
    assert meter.read(8.0, ["a", "b"], receive_bytes_total=[9, 2])["receive_bytes_per_second"] == [0.0, 0.0]
    for now in (9.0, 10.0):  # the time of the counters, as the device reports it, did not advance
        out = meter.read(now, ["a", "b"], times=[8.0, 8.0], receive_bytes_total=[9, 2])
        assert out["receive_bytes_per_second"] == [0.0, 0.0]
    with pytest.raises(AssertionError, match="slow"):
        meter.read(12.0, ["a", "b"], receive_bytes_total=[None, 2])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_wrap_at_the_top_of_each_width(width):
    meter = TableReader()
    top = (1 << width) - 1
    one(0.0, meter, top - 10, width=width)
    assert one(5.0, meter, 14, width=width) == (top + 15, 5.0, 0)
    assert one(10.0, meter, 19, width=width) == (top + 20, 1.0, 0)


@pytest.mark.parametrize(
    ("before", "after", "options", "why"),
    [
        (200, 100, {"width": 8}, "156 of 256 is more than half the range"),
        (2**32 - 1, 2**31 - 1, {"width": 32, "speed": None}, "half the range, exactly"),
        (2**64 - 1000, 2**63, {"width": 64}, "no link carries 2^63 bytes"),
        (2**32 - 1000, 1000, {"width": 32, "speed": 100.0}, "2000 bytes in 5 s at 100 bytes/s"),
        (2**48 - 1, 0, {"width": 48, "speed": None}, "wide, and no speed to judge by"),
        (2**64 - 1, 0, {"width": 64, "speed": 0}, "wide, and a speed of nothing to judge by"),
        (65530, 3, {"width": 16, "saturates": True}, "a counter that sticks at its top never wraps"),
        (2**40, 5, {"width": 32}, "it was wider than its declared width"),
    ],
)
def test_a_fall_that_is_not_a_wrap_is_a_reset(before, after, options, why):
    meter = TableReader()
    one(0.0, meter, before, **options)
    assert one(5.0, meter, after, **options) == (after, None, 1), why
    assert one(10.0, meter, after + 50, **options) == (after + 50, 10.0, 1), "re-seeded"


def test_a_reset_drops_the_offset_of_earlier_wraps():
    meter = TableReader()
    one(0.0, meter, 2**32 - 1, width=32)
    assert one(1.0, meter, 9, width=32) == (2**32 + 9, 10.0, 0)
    assert one(2.0, meter, 2**31, width=32)[0] == 2**32 + 2**31
    assert one(3.0, meter, 7, width=32) == (7, None, 1), "2^31 + 7 is more than half of the range"


def test_packet_wraps_are_bounded_by_the_smallest_frame():
    for speed, exported in ((6400.0, 2**32 + 99), (640.0, 99)):
        meter = TableReader()
        one(0.0, meter, 2**32 - 1, "transmit_packets_total", width=32, speed=speed)
        assert one(1.0, meter, 99, "transmit_packets_total", width=32, speed=speed)[0] == exported


def test_paused_time_is_bounded_by_elapsed_time():
    for seconds, exported in ((10, 2**32 + 999_999), (0.5, 999_999)):
        meter, ending, options = TableReader(), "receive_paused_seconds_total", {"width": 32, "divisor": 1_000_000}
        one(0.0, meter, 2**32 - 1, ending, **options)
        assert one(seconds, meter, 999_999, ending, **options)[0] == exported / 1_000_000


def test_two_counters_that_fall_together_are_a_restart_even_if_each_could_have_wrapped():
    meter = TableReader()
    options = {"width": 32}
    meter.read(
        0.0, ["a", "b"], receive_bytes_total=([2**32 - 1] * 2, options), transmit_bytes_total=([2**32 - 1, 0], options)
    )
    out = meter.read(5.0, ["a", "b"], receive_bytes_total=([9] * 2, options), transmit_bytes_total=([9, 5], options))
    assert out["receive_bytes_total"] == [9, 2**32 + 9]
    assert out["receive_bytes_per_second"] == [None, 2.0]
    assert out["transmit_bytes_per_second"] == [None, 1.0]
    assert out[rates.RESETS] == [1, 0]


def test_a_changed_epoch_is_a_restart_even_if_the_counter_rose():
    meter = TableReader()
    one(0.0, meter, 1000, epochs=["boot 1"])
    assert one(5.0, meter, 900_000, epochs=["boot 2"]) == (900_000, None, 1)
    assert one(10.0, meter, 900_005, epochs=["boot 2"]) == (900_005, 1.0, 1)


def test_a_missing_epoch_does_not_hide_a_restart():
    meter = TableReader()
    one(0.0, meter, 1000, epochs=["boot 1"])
    assert one(5.0, meter, 1005, epochs=[None]) == (1005, 1.0, 0)
    assert one(10.0, meter, 1010) == (1010, 1.0, 0)
    assert one(15.0, meter, 900_000, epochs=["boot 2"]) == (900_000, None, 1)


def test_a_column_that_was_missing_at_a_restart_is_not_measured_across_it():
    meter = TableReader()
    meter.read(0.0, ["d"], epochs=[1], receive_bytes_total=[100], transmit_bytes_total=[100])
    meter.read(5.0, ["d"], epochs=[2], transmit_bytes_total=[1])
    out = meter.read(10.0, ["d"], epochs=[2], receive_bytes_total=[600], transmit_bytes_total=[6])
    assert out["receive_bytes_per_second"] == [None]
    assert out["transmit_bytes_per_second"] == [1.0]


def test_a_clock_that_goes_back_gives_no_rate_and_loses_no_counts():
    meter = TableReader()
    one(100.0, meter, 1000)
    assert one(97.0, meter, 2000) == (2000, None, 0)
    assert one(107.0, meter, 2500) == (2500, 50.0, 0)


def test_a_row_whose_time_does_not_advance_keeps_its_rates():
    """Of the two ports the second has a cache of 60 s: 6000 bytes a minute are 100 a second, never 0 and never 400."""
    meter, seen = TableReader(), []
    for poll in range(9):
        now = 15.0 * poll
        counted = [now, now // 60 * 60]
        out = meter.read(
            now, ["a", "b"], times=counted, speed=1000.0, receive_bytes_total=[int(100 * time) for time in counted]
        )
        assert out["receive_bytes_total"] == [100 * time for time in counted]
        seen.append((out.get("receive_bytes_per_second"), out.get("receive_utilization_ratio")))
    assert seen[0] == (None, None)
    assert seen[1:4] == [([100.0, None], [0.1, None])] * 3  # not known yet
    assert seen[4:] == [([100.0, 100.0], [0.1, 0.1])] * 5


@pytest.mark.parametrize("others", [[], ["b"]])
def test_an_increase_without_an_advance_of_time_is_part_of_the_next_rate(others):
    meter, rows = TableReader(), ["a", *others]

    def read(now, counted, value):
        times = [counted, *(now for _ in others)]
        return meter.read(now, rows, times=times, receive_bytes_total=[value] * len(rows))

    read(0.0, 0.0, 1000)
    read(10.0, 10.0, 1100)
    out = read(20.0, 10.0, 1600)
    assert (out["receive_bytes_total"][0], out["receive_bytes_per_second"][0]) == (1600, 10.0)
    out = read(30.0, 30.0, 2100)
    assert (out["receive_bytes_total"][0], out["receive_bytes_per_second"][0]) == (2100, 50.0)


def test_the_same_column_object_read_again_has_a_rate_of_zero():
    """Sources hand in the very same column where nothing changed."""
    keeper, state, seen = RowKeeper(SCHEMA.labels), None, []
    first, second = (Column(SCHEMA.metrics["receive_bytes_total"], [value]) for value in (100, 300))
    for now, counted, column in (
        (0.0, 0.0, first),
        (10.0, 0.0, second),  # which was counted late
        (20.0, 20.0, second),
        (30.0, 30.0, second),
    ):
        table = Table(SCHEMA, keeper.rows([("a",)]), {"receive_bytes_total": column}, now, times=[counted])
        state, (out,) = rates.step(state, table)
        seen.append((out.values("receive_bytes_total"), out.values("receive_bytes_per_second")))
    assert seen == [([100], None), ([300], [None]), ([300], [10.0]), ([300], [0.0])]


@pytest.mark.parametrize("others", [[], ["b"]])
def test_a_restart_is_detected_while_time_does_not_advance(others):
    meter, rows = TableReader(), ["a", *others]
    for now, epoch, value in ((0.0, 1, 1000), (10.0, 1, 2000)):
        meter.read(now, rows, epochs=[epoch] * len(rows), receive_bytes_total=[value] * len(rows))
    times = [10.0, *(20.0 for _ in others)]
    out = meter.read(20.0, rows, times=times, epochs=[2] * len(rows), receive_bytes_total=[3000] * len(rows))
    assert (out["receive_bytes_per_second"][0], out[rates.RESETS][0]) == (None, 1)
    out = meter.read(20.0, rows, times=times, epochs=[2] * len(rows), receive_bytes_total=[5] * len(rows))
    assert (out["receive_bytes_total"][0], out["receive_bytes_per_second"][0], out[rates.RESETS][0]) == (5, None, 2)


@pytest.mark.parametrize("others", [[], ["b"]])
def test_a_held_rate_survives_a_missing_value_for_a_limited_time(others):
    meter, rows = TableReader(), ["a", *others]

    def read(now, counted, value):
        times = [counted, *(now for _ in others)]
        out = meter.read(now, rows, times=times, receive_bytes_total=[value] * len(rows))
        return out.get("receive_bytes_per_second", [None])[0]

    read(0.0, 0.0, 0)
    assert read(10.0, 10.0, 50) == 5.0
    assert read(20.0, 10.0, None) is None
    assert read(30.0, 10.0, 50) == 5.0
    assert read(610.0, 10.0, 50) == 5.0
    assert read(611.0, 10.0, 50) is None, "a time stamp that never moves"
    assert read(620.0, 620.0, 6150) == 10.0


def test_counters_above_2_to_53_are_exact():
    meter = TableReader()
    one(0.0, meter, 2**62 + 1, factor=4)
    assert one(1.0, meter, 2**62 + 2, factor=4) == (2**64 + 8, 4.0, 0)


def test_utilization_is_absent_for_unknown_speeds():
    meter = TableReader()
    for time in (0.0, 1.0):
        out = meter.read(time, ["a", "b", "c"], speed=[None, 0, 100.0], receive_bytes_total=[int(time * 50)] * 3)
    assert out["receive_utilization_ratio"] == [None, None, 0.5]
    assert out["receive_bytes_per_second"] == [50.0] * 3
    assert "receive_utilization_ratio" not in meter.read(
        2.0, ["a", "b", "c"], speed=None, receive_bytes_total=[100] * 3
    )


def test_saturated_counters_are_listed():
    meter = TableReader()
    sticks = {"width": 16, "saturates": True}
    out = meter.read(
        0.0, ["a", "b"], receive_errors_total=([65535, 65534], sticks), receive_bytes_total=([65535, 0], {"width": 16})
    )
    assert out["saturated"] == {("a", "receive_errors")}


# What users of other exporters report (negative rates after a reboot, frozen caches, spikes …): each with its input.


def test_after_a_reboot_there_is_no_negative_rate_and_a_new_baseline():
    meter = TableReader()
    seen = [one(10.0 * place, meter, value, width=64) for place, value in enumerate([9_000_000, 9_000_100, 40, 90])]
    assert [rate for _, rate, _ in seen] == [None, 10.0, None, 5.0]
    assert [exported for exported, _, _ in seen] == [9_000_000, 9_000_100, 40, 90]


def test_a_reset_of_a_64_bit_counter_gives_no_absurd_rate_and_no_frozen_one():
    meter = TableReader()
    one(0.0, meter, 18_000_000_000_000_000_000)
    for place in range(1, 5):
        _, rate, resets = one(place * 60.0, meter, place * 600)
        assert rate == (None if place == 1 else 10.0)
        assert resets == 1


def test_a_wrap_must_be_possible_on_the_link():
    for speed, rate in ((125_000_000.0, 100.0), (1.0, None)):
        meter = TableReader()
        one(0.0, meter, 4_294_967_295, width=32, speed=speed)
        assert one(10.0, meter, 999, width=32, speed=speed)[1] == rate


def test_an_increase_that_no_link_can_carry_has_no_rate():
    meter = TableReader()
    one(0.0, meter, 10**15, speed=50e9)
    assert one(5.0, meter, 0, speed=50e9)[1] is None  # a device that reports 0 while it recovers
    value, rate, resets = one(10.0, meter, 10**15 + 5, speed=50e9)
    assert (value, rate, resets) == (10**15 + 5, None, 1)
    assert one(15.0, meter, 10**15 + 25e9 + 5, speed=50e9)[1] == 5e9
    # A switch may report a configured bandwidth.
    assert one(20.0, meter, 10**15 + 75e9 + 5, speed=1e9)[1] == 10e9


def test_each_counter_has_its_own_width():
    meter = TableReader()
    q_counter = {"width": 32}
    for time, value in ((0.0, 4_294_967_290), (5.0, 4)):
        out = meter.read(time, ["d"], receive_bytes_total=[value], ecn_marked_packets_total=([value], q_counter))
    assert out["ecn_marked_packets_total"] == [4]  # both fell: a restart
    meter = TableReader()
    for time, wide, narrow in ((0.0, 10, 4_294_967_290), (5.0, 11, 4)):
        out = meter.read(time, ["d"], receive_bytes_total=[wide], ecn_marked_packets_total=([narrow], q_counter))
    assert out["ecn_marked_packets_total"] == [4_294_967_300]


def test_a_32_bit_counter_that_wraps_within_minutes_is_extended():
    meter, rate = TableReader(), 10_000_000
    for time in range(0, 1000, 5):
        exported, _, resets = one(float(time), meter, time * rate % 2**32, ending="ecn_marked_packets_total", width=32)
        assert (exported, resets) == (time * rate, 0)


def test_large_values_are_compared_as_integers():
    meter = TableReader()
    one(0.0, meter, 9_007_199_254_740_992)
    assert one(1.0, meter, 9_007_199_254_740_993) == (9_007_199_254_740_993, 1.0, 0)
    assert one(2.0, meter, 9_007_199_254_740_992)[1:] == (None, 1)


def test_a_64_bit_counter_that_falls_is_not_treated_as_wrapped():
    meter = TableReader()
    one(0.0, meter, 5_000_000)
    assert one(0.1, meter, 1_000) == (1_000, None, 1)


def test_a_failed_read_is_not_zero():
    """carrier_changes 5000, (read failed), 5002: two transitions, and neither a fall nor thousands of flaps."""
    schema = vocabulary.schema("fabric_test_", ("device",), ["link_down_total", rates.RESETS])
    meter = TableReader(schema)
    seen = [
        meter.read(time, ["swp1", "swp2"], speed=None, link_down_total=values)
        for time, values in enumerate([[5000, 41], [None, 41], [5002, 41], [0, 0]])
    ]
    assert [out["link_down_total"] for out in seen] == [[5000, 41], [None, 41], [5002, 41], [0, 0]]
    assert seen[2][rates.RESETS] == [0, 0]
    assert seen[3][rates.RESETS] == [1, 1]  # a true 0 is legal


def test_each_counter_has_its_own_baseline():
    meter = TableReader()
    meter.read(0.0, ["d"], receive_bytes_total=[0], receive_pause_frames_total=[7])
    assert meter.read(5.0, ["d"], receive_bytes_total=[50])["receive_bytes_per_second"] == [10.0]
    assert meter.read(10.0, ["d"], receive_pause_frames_total=[9]).get("receive_bytes_per_second") is None
    out = meter.read(15.0, ["d"], receive_bytes_total=[250], receive_pause_frames_total=[9])
    assert out["receive_bytes_per_second"] == [20.0]  # over the 10 s since it was read last


def test_a_row_that_returns_has_a_new_baseline_and_no_reset():
    meter = TableReader()
    meter.read(0.0, ["a", "b"], receive_bytes_total=[100, 100])
    meter.read(5.0, ["a"], receive_bytes_total=[150])
    out = meter.read(10.0, ["b", "a"], receive_bytes_total=[10, 250])
    assert out["receive_bytes_per_second"] == [None, 20.0]
    assert out["receive_bytes_total"] == [10, 250]
    assert out[rates.RESETS] == [0, 0]


def test_a_missing_value_is_absent_and_the_next_rate_spans_the_gap():
    meter = TableReader()
    one(0.0, meter, 0)
    assert one(5.0, meter, None) == (None, None, 0)
    assert one(20.0, meter, 100) == (100, 5.0, 0)


def test_rates_divide_by_the_measured_time():
    meter = TableReader()
    one(0.0, meter, 0)
    assert one(4.75, meter, 475)[1] == 100.0
    assert one(11.75, meter, 1175)[1] == 100.0


def test_tables_without_counters_and_internal_tables_pass_unchanged():
    table = Table(
        SCHEMA,
        RowKeeper(("device",)).rows([("d",)]),
        {vocabulary.SPEED: Column(SCHEMA.metrics[vocabulary.SPEED], [1])},
        0.0,
    )
    assert rates.step(None, table) == (None, (table,))
    internal = vocabulary.schema("x_", ("device",), ["receive_bytes_total"], internal=True)
    table = Table(
        internal, table.rows, {"receive_bytes_total": Column(internal.metrics["receive_bytes_total"], [1])}, 0.0
    )
    assert rates.step(None, table) == (None, (table,))
    assert rates.outputs(internal) == []


def test_outputs_declare_all_columns_of_step():
    meter = TableReader()
    columns = {name: ([65535], options) for name, options in COLUMNS.items()}
    for time in (0.0, 1.0):
        table = Table(
            SCHEMA,
            meter.keeper.rows([("d",)]),
            {
                **{
                    name: Column(SCHEMA.metrics[name], values, **options) for name, (values, options) in columns.items()
                },
                vocabulary.SPEED: Column(SCHEMA.metrics[vocabulary.SPEED], [1.0]),
            },
            time,
        )
        meter.state, tables = rates.step(meter.state, table)
    made = {column.metric.name: column.metric for one in tables for column in one.columns.values()}
    declared = {metric.name: metric for metric in rates.outputs(SCHEMA)}
    assert declared.keys() - made.keys() <= {
        f"fabric_test_{ending}" for name, ending in vocabulary.RATES.items() if name not in COLUMNS
    }
    own = {metric.name for metric in SCHEMA.metrics.values()}
    for name in made.keys() - own:
        assert (made[name].help, made[name].labels, made[name].kind) == (
            declared[name].help,
            declared[name].labels,
            declared[name].kind,
        )
    assert made["fabric_test_receive_bytes_total"].kind is Kind.COUNTER


def test_rows_with_different_times_have_their_own_intervals():
    """A device hung between the two: the second was read two seconds late, and its rate must not be."""
    schema = vocabulary.schema("fabric_test_", ("row",), ["receive_packets_total"])
    keeper = RowKeeper(schema.labels)

    def read(time, values, times=None):
        column = Column(schema.metrics["receive_packets_total"], values)
        return Table(schema, keeper.rows([("a",), ("b",)]), {"receive_packets_total": column}, time, times=times)

    state = None
    seen = []
    for table in (
        read(0.0, [0, 0]),
        read(10.0, [100, 120], times=[10.0, 12.0]),
        read(20.0, [200, 200]),
        read(30.0, [300, 300]),
    ):
        state, (out,) = rates.step(state, table)
        seen.append(out.values("receive_packets_per_second"))
    assert seen == [None, [10.0, 10.0], [10.0, 10.0], [10.0, 10.0]]
