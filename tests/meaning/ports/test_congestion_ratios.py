"""Ratios of a RoCE port's packets, from counters that passed through rates as in the daemon."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.core import vocabulary
from exporter.core.table import Column, RowKeeper, Table
from exporter.core.vocabulary import counter
from exporter.meaning.ports import congestion_ratios, rates
from exporter.sources.switch.metrics import PORTS as SWITCH

OWN = [
    "packet_sequence_errors_total",
    "implied_nak_sequence_errors_total",
    "local_ack_timeouts_total",
    "rnr_nak_retries_total",
    "adaptive_retransmissions_total",
    "retransmitted_packets_total",
]
SCHEMA = vocabulary.schema(
    "fabric_test_",
    ("device",),
    [
        "receive_packets_total",
        "transmit_packets_total",
        "ecn_marked_packets_total",
        "cnp_sent_total",
        "cnp_handled_total",
        "cnp_received_total",
        "resets_total",
    ],
    {ending: counter("Events.") for ending in OWN},
    details=["cnp_handled_ratio"],
)


class Port:
    """Passes the counters of some ports through rates and ratios, every five seconds."""

    def __init__(self, rows=("d",)):
        self.rows, self.keeper, self.time = list(rows), RowKeeper(("device",)), 0.0
        self.before = self.state = None

    def read(self, *, epochs=None, width=64, **values):
        """Step; values are by the ending's name without `_total`, one or one a row; give the shares by their names."""
        self.time += 5.0
        columns = {}
        for name, value in values.items():
            cells = value if isinstance(value, list) else [value] * len(self.rows)
            columns[f"{name}_total"] = Column(SCHEMA.metrics[f"{name}_total"], cells, width)
        table = Table(SCHEMA, self.keeper.rows([(row,) for row in self.rows]), columns, self.time, epochs)
        self.before, (extended, *_) = rates.step(self.before, table)
        self.state, (out,) = congestion_ratios.step(self.state, extended)
        assert {ending: out.columns[ending] for ending in extended.columns} == extended.columns
        found = {ending.removesuffix("_ratio"): list(column.values) for ending, column in out.columns.items()}
        return {name: cells for name, cells in found.items() if f"{name}_ratio" in MADE}


MADE = {"ecn_marked_ratio", "cnp_sent_ratio", "cnp_handled_ratio", "retransmission_ratio"}


def test_each_ratio_uses_the_packets_of_its_direction():
    port = Port()
    base = {"receive_packets": 10**12, "transmit_packets": 7, "ecn_marked_packets": 5, "cnp_sent": 3, "cnp_handled": 1}
    assert port.read(**base) == {}  # what came before the first read is no interval
    rises = {"receive_packets": 10_000, "transmit_packets": 4000, "ecn_marked_packets": 500, "cnp_sent": 50}
    risen = {name: value + rises.get(name, 20) for name, value in base.items()}
    assert port.read(**risen) == {"ecn_marked": [0.05], "cnp_sent": [0.005], "cnp_handled": [0.005]}


def test_received_cnps_count_if_handled_ones_are_not_reported():
    port = Port("ab")
    port.read(transmit_packets=[0, 0], cnp_handled=[0, None], cnp_received=[0, 0])
    out = port.read(transmit_packets=[1000, 1000], cnp_handled=[5, None], cnp_received=[100, 20])
    assert out == {"cnp_handled": [0.005, 0.02]}


@pytest.mark.parametrize("end", ["cnp_handled_total", "cnp_received_total"])
def test_either_cnp_counter_identifies_a_roce_endpoint(end):
    schema = vocabulary.schema("fabric_test_", ("device",), ["transmit_packets_total", end])
    assert [metric.ending for metric in congestion_ratios.outputs(schema)] == ["cnp_handled_ratio"]


def test_retransmissions_are_the_sum_of_their_causes():
    port = Port()
    parts = {name.removesuffix("_total"): 0 for name in OWN[:5]}
    port.read(transmit_packets=0, **parts)
    risen = dict(zip(parts, [1, 2, 4, 8, 16], strict=True))
    assert port.read(transmit_packets=31_000, **risen) == {"retransmission": [0.001]}


def test_counted_retransmissions_are_used_if_present():
    port = Port()
    port.read(transmit_packets=0, retransmitted_packets=0, packet_sequence_errors=0, local_ack_timeouts=0)
    out = port.read(transmit_packets=1000, retransmitted_packets=5, packet_sequence_errors=100, local_ack_timeouts=100)
    assert out == {"retransmission": [0.005]}


def test_missing_optional_counters_are_left_out():
    port = Port()
    port.read(transmit_packets=0, packet_sequence_errors=0, local_ack_timeouts=0, rnr_nak_retries=0)
    out = port.read(transmit_packets=1000, packet_sequence_errors=1, local_ack_timeouts=2, rnr_nak_retries=4)
    assert out == {"retransmission": [0.007]}


@pytest.mark.parametrize("lacking", ["packet_sequence_errors", "local_ack_timeouts", "transmit_packets"])
def test_without_a_required_counter_there_is_no_ratio(lacking):
    values = {"transmit_packets": 0, "packet_sequence_errors": 0, "local_ack_timeouts": 0}
    del values[lacking]
    port = Port()
    port.read(**values)
    assert port.read(**{name: value + 5000 for name, value in values.items()}) == {}


@pytest.mark.parametrize(("packets", "share"), [(999, None), (1000, [0.01])])
def test_no_ratio_below_a_thousand_packets(packets, share):
    port = Port()
    port.read(receive_packets=0, ecn_marked_packets=0)
    assert port.read(receive_packets=packets, ecn_marked_packets=10).get("ecn_marked") == share


@pytest.mark.parametrize(("missing", "left"), [("ecn_marked_packets", ["cnp_sent"]), ("receive_packets", [])])
def test_a_missing_counter_gives_no_ratio_in_this_read_and_the_next(missing, left):
    port = Port()
    names = ("receive_packets", "ecn_marked_packets", "cnp_sent")
    port.read(**dict.fromkeys(names, 0))
    assert list(port.read(**{**dict.fromkeys(names, 5000), missing: None})) == left
    assert list(port.read(**dict.fromkeys(names, 10_000))) == left
    assert port.read(**{name: 15_000 if name == "receive_packets" else 10_050 for name in names}) == {
        "ecn_marked": [0.01],
        "cnp_sent": [0.01],
    }


def test_an_optional_counter_that_fails_is_not_treated_as_lacking():
    port = Port()
    values = {"packet_sequence_errors": 0, "local_ack_timeouts": 0, "rnr_nak_retries": 0}
    port.read(transmit_packets=0, **values)
    for count in range(1, 5):
        assert port.read(transmit_packets=count * 5000, **{**values, "rnr_nak_retries": None}) == {}
    del values["rnr_nak_retries"]
    assert port.read(transmit_packets=25_000, **values) == {}


def test_a_counter_missing_on_one_port_does_not_affect_others():
    port = Port("ab")
    port.read(receive_packets=[0, 0], ecn_marked_packets=[0, None])
    assert port.read(receive_packets=[2000, 2000], ecn_marked_packets=[20, None]) == {"ecn_marked": [0.01, None]}


def test_a_reset_gives_no_ratio_in_that_interval():
    port = Port()
    port.read(receive_packets=10**6, ecn_marked_packets=10**6)
    assert port.read(receive_packets=10**6 + 5000, ecn_marked_packets=3) == {}
    assert port.read(receive_packets=10**6 + 10_000, ecn_marked_packets=53) == {"ecn_marked": [0.01]}


def test_a_re_created_port_gives_no_ratio_even_if_its_counters_rose():
    port = Port()
    port.read(receive_packets=1000, ecn_marked_packets=10, epochs=[1])
    assert port.read(receive_packets=9000, ecn_marked_packets=90, epochs=[2]) == {}
    assert port.read(receive_packets=10_000, ecn_marked_packets=100, epochs=[2]) == {"ecn_marked": [0.01]}


def test_a_wrapping_counter_gives_ratios():
    port = Port()
    port.read(width=32, transmit_packets=0, packet_sequence_errors=2**32 - 5, local_ack_timeouts=0)
    out = port.read(width=32, transmit_packets=10_000, packet_sequence_errors=5, local_ack_timeouts=0)
    assert out == {"retransmission": [0.001]}


def test_more_marks_than_packets_give_no_ratio():
    """On mlx5 the marks are of the port and the packets of one function: no ratio rather than 300 %."""
    port = Port()
    port.read(receive_packets=0, ecn_marked_packets=0)
    assert port.read(receive_packets=1000, ecn_marked_packets=3000) == {}
    assert port.read(receive_packets=2000, ecn_marked_packets=4000) == {"ecn_marked": [1.0]}


def test_rows_keep_their_counters_in_any_order_and_lose_them_when_gone():
    port = Port("abc")
    port.read(receive_packets=[0, 10**6, 0], ecn_marked_packets=[0, 0, 0])
    port.rows = ["b", "a"]
    out = port.read(receive_packets=[10**6 + 1000, 2000], ecn_marked_packets=[10, 40])
    assert out == {"ecn_marked": [0.01, 0.02]}
    port.rows = ["b", "a", "c"]
    out = port.read(receive_packets=[10**6 + 2000, 4000, 9000], ecn_marked_packets=[20, 80, 9])
    assert out == {"ecn_marked": [0.01, 0.02, None]}


def test_unchanged_counters_under_traffic_give_a_ratio_of_zero():
    port = Port()
    port.read(receive_packets=0, ecn_marked_packets=7)
    assert port.read(receive_packets=5000, ecn_marked_packets=7) == {"ecn_marked": [0.0]}
    assert port.read(receive_packets=5000, ecn_marked_packets=7) == {}


COUNTS = st.none() | st.integers(0, 5000)


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=12))
def test_any_history_matches_a_simple_model(history):
    """Increases of packets and marks; None is a failed read without increases."""
    port, packets, marks = Port(), 10**6, 10**6
    port.read(receive_packets=packets, ecn_marked_packets=marks)
    well = True
    for risen, marked in history:
        packets, marks = packets + (risen or 0), marks + (marked or 0)
        read = {
            "receive_packets": None if risen is None else packets,
            "ecn_marked_packets": None if marked is None else marks,
        }
        has_ratio = well and None not in (risen, marked) and risen >= 1000 and marked <= risen
        assert port.read(**read) == ({"ecn_marked": [marked / risen]} if has_ratio else {})
        well = None not in (risen, marked)


def test_outputs_are_declared_and_only_for_roce_endpoints():
    made = {metric.ending: metric.detail for metric in congestion_ratios.outputs(SCHEMA)}
    assert made == {
        "ecn_marked_ratio": False,
        "cnp_sent_ratio": True,
        "cnp_handled_ratio": True,  # as that schema asks
        "retransmission_ratio": False,
    }
    assert congestion_ratios.outputs(SWITCH) == []
    rows = RowKeeper(SWITCH.labels).rows([("leaf", "1")])
    endings = ("ecn_marked_packets_total", "receive_packets_total")
    table = Table(SWITCH, rows, {one: Column(SWITCH.metrics[one], [5]) for one in endings}, 0.0)
    assert congestion_ratios.step(None, table) == (None, (table,))
