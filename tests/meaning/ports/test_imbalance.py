"""Imbalance of peers and asymmetry of ports: only with traffic, and read during the whole window."""

import pytest

from exporter.core import vocabulary
from exporter.core.table import Column, Rows, Table
from exporter.meaning.ports import imbalance

ENDINGS = [
    "receive_bytes_per_second",
    "transmit_bytes_per_second",
    vocabulary.SPEED,
    "link_up",
    "link_expected_speed_bytes_per_second",
]
SCHEMA = vocabulary.schema("fabric_test_", ("device",), ENDINGS)
SPEED = 100.0
OWN_RAILS = vocabulary.schema("fabric_rdma_", ("device", "port"), ENDINGS)


class Watch:
    """Passes rails through imbalance every five seconds; the first read has no rates."""

    def __init__(self, kinds=("ib",) * 4):
        self.kinds, self.state, self.time = list(kinds), None, 1000.0

    def read(self, receive, transmit=None, *, ups=None, speeds=SPEED, names=None, seconds=5.0, kinds=None):
        self.time += seconds
        kinds = self.kinds if kinds is None else kinds
        size = len(receive)
        columns = {"receive_bytes_per_second": receive, "transmit_bytes_per_second": transmit or [50.0] * size}
        if speeds is not None:
            columns[vocabulary.SPEED] = [speeds] * size
        if ups is not None:
            columns["link_up"] = ups
        rows = Rows(("device",), [(name,) for name in names or [f"d{place}" for place in range(size)]], {})
        made = {ending: Column(SCHEMA.metrics[ending], values) for ending, values in columns.items()}
        table = Table(SCHEMA, rows, made, self.time, kinds=kinds[:size], part="p")
        self.state, tables = imbalance.step(self.state, table)
        assert {ending: tables[0].columns[ending] for ending in made} == made
        self.asymmetry = tables[0].values("asymmetry_ratio")
        self.deficits = {}
        if len(tables) == 1:
            return {}
        groups = tables[1]
        assert (groups.part, groups.time) == ("p", self.time)
        self.deficits = self._both(groups, "deficit")
        return self._both(groups, "imbalance")

    @staticmethod
    def _both(groups, what):
        ways = [groups.values(f"{way}_{what}_ratio") for way in ("receive", "transmit")]
        return {group: tuple(way[place] for way in ways) for place, (group,) in enumerate(groups.rows.keys)}

    def often(self, times, *args, **options):
        for _ in range(times):
            out = self.read(*args, **options)
        return out


def test_busiest_over_mean_minus_one():
    watch = Watch()
    assert watch.read([10.0, 10.0, 10.0, 30.0]) == {}  # how long that took is not known
    assert watch.read([10.0, 10.0, 10.0, 30.0]) == {"ib": (pytest.approx(30 / 15 - 1), pytest.approx(0.0))}


def test_the_window_is_a_minute_and_old_traffic_leaves_it():
    watch = Watch(("ib",) * 2)
    watch.often(2, [10.0, 30.0])
    ratio = watch.often(11, [20.0, 20.0])["ib"][0]
    assert ratio == pytest.approx(((30 + 11 * 20) / 12) / 20 - 1)
    assert watch.read([20.0, 20.0])["ib"][0] == pytest.approx(0.0)


def test_samples_weigh_by_their_length():
    watch = Watch(("ib",) * 2)
    watch.read([0.0, 0.0])
    watch.read([10.0, 30.0], seconds=10.0)
    ratio = watch.read([30.0, 10.0], seconds=30.0)["ib"][0]
    assert ratio == pytest.approx((10 * 10 + 30 * 30) / 40 / 20 - 1)


def test_no_imbalance_below_one_percent_of_the_speed():
    watch = Watch(("ib",) * 2)
    assert watch.often(2, [0.9, 1.0], [1.0, 1.0]) == {"ib": (None, pytest.approx(0.0))}
    assert Watch(("ib",) * 2).often(2, [0.0, 1.9], [0.0, 0.0]) == {}


def test_without_speeds_the_minimum_is_ten_megabytes_per_second():
    assert Watch(("ib",) * 2).often(2, [9e6, 9e6], [9e6, 12e6], speeds=None) == {
        "ib": (None, pytest.approx(12 / 10.5 - 1))
    }


def test_members_with_link_down_are_left_out_and_one_member_is_not_a_group():
    watch = Watch(("ib",) * 3)
    assert watch.often(2, [10.0, 20.0, 0.0], ups=[1, 1, 0]) == {"ib": (pytest.approx(20 / 15 - 1), pytest.approx(0.0))}
    assert watch.read([10.0, 20.0, 0.0], ups=[1, 0, None]) == {}


def test_no_imbalance_while_a_member_lacks_its_rate():
    watch = Watch(("ib",) * 2)
    watch.often(3, [10.0, 20.0])
    assert watch.read([10.0, None]) == {}
    assert watch.often(1, [10.0, 20.0]) == {}  # it covers less time than the other
    assert watch.often(11, [10.0, 20.0])["ib"][0] == pytest.approx(20 / 15 - 1)


def test_a_new_member_suppresses_its_own_group_only():
    watch = Watch(("ib", "ib", "eth", "eth", "ib"))
    watch.often(4, [10.0, 20.0, 10.0, 10.0])
    assert watch.often(2, [10.0, 20.0, 10.0, 10.0, 99.0]).keys() == {"eth"}


def test_kinds_are_groups_and_rows_without_kind_have_none():
    watch = Watch(("ib", "eth", "ib", "eth", None))
    out = watch.often(2, [10.0, 40.0, 30.0, 40.0, 99.0])
    assert out == {"ib": (pytest.approx(0.5), pytest.approx(0.0)), "eth": (pytest.approx(0.0), pytest.approx(0.0))}


def test_rows_keep_their_samples_in_any_order_and_lose_them_when_gone():
    watch = Watch(("ib",) * 2)
    watch.often(2, [10.0, 30.0], names=["a", "b"])
    assert watch.read([30.0, 10.0], names=["b", "a"])["ib"][0] == pytest.approx(0.5)
    watch.read([10.0, 10.0], names=["a", "c"])
    assert set(watch.state.samples) == {("a",), ("c",)}


def test_a_clock_that_goes_back_gives_no_imbalance():
    watch = Watch(("ib",) * 2)
    watch.often(2, [10.0, 30.0])
    assert watch.read([10.0, 30.0], seconds=-2.0) == {}


def test_tables_without_kinds_or_rates_pass_unchanged():
    rows = Rows(("device",), [("a",), ("b",)], {})
    table = Table(SCHEMA, rows, {}, 0.0, kinds=["x", "x"])
    assert imbalance.step(None, table) == (None, (table,))
    assert imbalance.outputs(vocabulary.schema("fabric_o_", ("device",), ["receive_bytes_total"])) == []
    assert {metric.name for metric in imbalance.outputs(SCHEMA)} == {
        "fabric_test_receive_imbalance_ratio",
        "fabric_test_transmit_imbalance_ratio",
        "fabric_test_receive_deficit_ratio",
        "fabric_test_transmit_deficit_ratio",
        "fabric_test_asymmetry_ratio",
    }


# One idle rail.


def test_one_idle_rail_of_eight_is_an_imbalance_of_14_percent_and_a_deficit_of_one():
    watch = Watch(("ib",) * 8)
    out = watch.often(2, [50.0] * 7 + [0.0], [50.0] * 7 + [25.0])
    assert out["ib"] == (pytest.approx(8 / 7 - 1), pytest.approx(50 / 46.875 - 1))
    assert watch.deficits["ib"] == (pytest.approx(1.0), pytest.approx(1 - 25 / 46.875))


def test_a_balanced_group_has_no_deficit_and_an_idle_direction_none_at_all():
    watch = Watch(("ib",) * 4)
    watch.often(2, [0.1] * 4, [40.0] * 4)
    assert watch.deficits["ib"] == (None, pytest.approx(0.0))


# One port's directions.


@pytest.mark.parametrize(
    ("received", "sent", "ratio"),
    [(10.0, 10.0, 0.0), (30.0, 10.0, 0.5), (10.0, 30.0, -0.5), (40.0, 0.0, 1.0), (0.0, 40.0, -1.0)],
)
def test_asymmetry_is_received_minus_sent_over_their_sum(received, sent, ratio):
    watch = Watch(("ib",) * 2)
    watch.often(3, [received, 5.0], [sent, 5.0])
    assert watch.asymmetry == [pytest.approx(ratio), pytest.approx(0.0)]


def test_asymmetry_covers_the_window():
    watch = Watch(("ib",))
    watch.often(2, [30.0], [10.0])
    watch.often(11, [10.0], [10.0])
    assert watch.asymmetry == [pytest.approx(20 / (30 + 11 * 10 + 12 * 10))]
    watch.read([10.0], [10.0])
    assert watch.asymmetry == [pytest.approx(0.0)]


def test_asymmetry_needs_traffic_and_no_siblings():
    """The minimum is a hundredth of the port's speed, for the mean of both directions."""
    watch = Watch(("ib", None, "eth"))
    watch.often(2, [1.9, 2.1, 0.0], [0.0, 0.0, 0.0])
    assert watch.asymmetry == [None, pytest.approx(1.0), None]
    watch.often(13, [0.0] * 3, [0.0] * 3)
    assert watch.asymmetry is None


def test_asymmetry_without_a_speed_has_a_minimum_in_bytes():
    watch = Watch(("ib",) * 2)
    watch.often(2, [19e6, 21e6], [0.0, 0.0], speeds=None)
    assert watch.asymmetry == [None, pytest.approx(1.0)]


def test_asymmetry_starts_again_after_a_missing_rate():
    watch = Watch(("ib",))
    watch.often(3, [40.0], [0.0])
    watch.read([None], [0.0])
    assert watch.asymmetry is None
    watch.often(1, [20.0], [20.0])
    assert watch.asymmetry == [pytest.approx(0.0)]


def test_asymmetry_is_exported_by_default_only_for_ports_whose_directions_should_balance():
    (rdma,) = [one for one in imbalance.outputs(OWN_RAILS) if one.ending == "asymmetry_ratio"]
    (other,) = [one for one in imbalance.outputs(SCHEMA) if one.ending == "asymmetry_ratio"]
    assert (rdma.detail, other.detail) == (False, True)


SWITCH = vocabulary.schema("fabric_switch_", ("switch", "port"), ENDINGS)


class Switch:
    """Passes the uplinks of a switch through imbalance; each row has the time of its counters."""

    def __init__(self):
        self.state = None
        self.keys = [("leaf1", "p1"), ("leaf1", "p2")]

    def read(self, time, counted, sent, received=(50.0, 50.0)):
        columns = {
            "receive_bytes_per_second": received,
            "transmit_bytes_per_second": sent,
            vocabulary.SPEED: [SPEED] * 2,
        }
        made = {ending: Column(SWITCH.metrics[ending], values) for ending, values in columns.items()}
        table = Table(SWITCH, Rows(SWITCH.labels, self.keys, {}), made, time, kinds=["uplink"] * 2, times=counted)
        self.state, tables = imbalance.step(self.state, table)
        return tables[1:]


def test_a_group_of_a_switch_has_the_label_of_the_switch():
    switch = Switch()
    switch.read(0.0, [0.0, 0.0], [10.0, 30.0])
    (groups,) = switch.read(15.0, [15.0, 15.0], [10.0, 30.0])
    assert groups.schema.labels == ("switch", "group")
    assert groups.rows.keys == (("leaf1", "uplink"),)
    assert groups.values("transmit_imbalance_ratio") == [pytest.approx(0.5)]


def test_a_row_without_a_new_reading_is_not_a_new_sample():
    """The same reading four times is one sample, and the window continues."""
    switch = Switch()
    for poll in range(13):
        counted = poll * 15.0 // 60 * 60
        sent = [30.0, 10.0] if counted % 120 else [10.0, 10.0]
        out = switch.read(poll * 15.0, [counted] * 2, sent)
    assert {len(samples) for samples in switch.state.samples.values()} == {2}
    assert out[0].values("transmit_imbalance_ratio") == [pytest.approx(0.5)]


def test_the_same_table_again_changes_nothing():
    switch = Switch()
    for time in (0.0, 15.0, 30.0):
        switch.read(time, None, [10.0, 30.0])
    before = switch.state.samples
    (groups,) = switch.read(30.0, None, [10.0, 30.0])
    assert switch.state.samples == before
    assert groups.values("transmit_imbalance_ratio") == [pytest.approx(0.5)]


def test_members_read_at_different_times_are_compared():
    """Each chip of a switch refreshes on its own: windows of 60 and 100 s are both complete."""
    switch = Switch()
    for time, counted in ((0.0, [0.0, 0.0]), (61.0, [60.0, 61.0]), (100.0, [60.0, 100.0]), (121.0, [120.0, 100.0])):
        out = switch.read(time, counted, [10.0, 30.0])
    assert out[0].values("transmit_imbalance_ratio") == [pytest.approx(0.5)]
