"""Bursts: utilization from samples, counted in a histogram, and the highest of the last minute."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import parser

from exporter.core import vocabulary
from exporter.core.table import (
    Column,
    RowKeeper,
    Samples,
    Table,
)
from exporter.core.vocabulary import SAMPLES, gauge
from exporter.meaning.ports import bursts, rates
from exporter.outputs.text import Renderer

LABELS = ("device", "port")
FOOD = vocabulary.schema("fabric_rdma_", LABELS, own={SAMPLES: gauge("Samples.")}, internal=True)
SPEED = 100.0
A, B = ("mlx5_0", "1"), ("mlx5_1", "1")


class Port:
    """Samples of a port, from the share of its speed that it receives and sends in each tick."""

    def __init__(self, speed=SPEED):
        self.time, self.bytes, self.speed = 1000.0, [0, 0], speed

    def sample(self):
        return (self.time, *self.bytes, self.speed)

    def tick(self, receive, transmit=0.0, seconds=1.0):
        self.time += seconds
        self.bytes = [
            now + round(share * seconds * self.speed)
            for now, share in zip(self.bytes, (receive, transmit), strict=True)
        ]
        return self.sample()


def sample_table(rows, *, now=1000.0, epochs=None):
    values = [None if taken is None else Samples(tuple(taken)) for taken in rows.values()]
    columns = {SAMPLES: Column(FOOD.metrics[SAMPLES], values)}
    return Table(FOOD, RowKeeper(LABELS).rows(list(rows)), columns, now, epochs=epochs)


def run_step(state, table):
    """Return the new state, and values by row and ending."""
    state, (made,) = bursts.step(state, table)
    found = {
        key: {ending: column.values[place] for ending, column in made.columns.items()}
        for place, key in enumerate(made.rows.keys)
    }
    return state, found


def counts(row, way="receive"):
    return row[f"{way}_utilization_samples"].counts


def highest(row, way="receive"):
    return row[f"{way}_utilization_highest_ratio"]


def test_each_tick_is_counted_in_its_bucket_by_direction():
    port = Port()
    taken = [port.sample(), port.tick(0.5, 1.0), port.tick(0.51, 0), port.tick(0.8), port.tick(0.95), port.tick(0.96)]
    _, rows = run_step(None, sample_table({A: taken}, now=port.time))
    row = rows[A]
    assert row["receive_utilization_samples"].counts == (1, 3, 4, 5)  # up to 0.5, 0.8 and 0.95, and all
    assert row["receive_utilization_samples"].sum == pytest.approx(0.5 + 0.51 + 0.8 + 0.95 + 0.96)
    assert highest(row) == pytest.approx(0.96)
    assert counts(row, "transmit") == (4, 4, 4, 5)
    assert highest(row, "transmit") == pytest.approx(1.0)


def test_the_first_sample_of_a_table_follows_the_last_of_the_table_before():
    port = Port()
    state, rows = run_step(None, sample_table({A: [port.sample()]}))
    assert (counts(rows[A]), highest(rows[A])) == ((0, 0, 0, 0), None)
    state, rows = run_step(state, sample_table({A: [port.tick(0.9)]}))
    assert counts(rows[A]) == (0, 0, 1, 1)
    state, rows = run_step(state, sample_table({A: []}))
    state, rows = run_step(state, sample_table({A: None}))
    _, rows = run_step(state, sample_table({A: [port.tick(0.1)]}))
    assert counts(rows[A]) == (1, 1, 2, 2)


def test_a_burst_of_one_tick_is_visible_at_the_same_mean():
    """Both ports move the same bytes in five seconds; one does it in a single tick."""
    even, bursting = Port(), Port()
    taken = {
        A: [even.sample(), *(even.tick(0.2) for _ in range(5))],
        B: [bursting.sample(), *(bursting.tick(share) for share in (0, 0, 1.0, 0, 0))],
    }
    assert taken[A][-1][1] - taken[A][0][1] == taken[B][-1][1] - taken[B][0][1]
    _, rows = run_step(None, sample_table(taken, now=1005.0))
    assert counts(rows[A]) == (5, 5, 5, 5)
    assert counts(rows[B]) == (4, 4, 4, 5)
    assert (highest(rows[A]), highest(rows[B])) == (pytest.approx(0.2), pytest.approx(1.0))


def test_a_gap_is_measured_over_its_true_time_and_counted_once():
    port = Port()
    _, rows = run_step(None, sample_table({A: [port.sample(), port.tick(0.9, seconds=4.0)]}, now=port.time))
    assert counts(rows[A]) == (0, 0, 1, 1)
    assert highest(rows[A]) == pytest.approx(0.9)


def busy(row, way="receive"):
    return row[f"{way}_busy_seconds_total"]


def test_the_time_with_traffic_is_that_of_the_samples_that_moved_a_hundredth_of_the_speed():
    """A step of 450 ms that communicates for 150 ms, from 100 ms on, by ticks of 100 ms and of 50 ms.

    A tick that holds a part of the traffic counts whole: so the time is never less than the true one.
    """
    port = Port(speed=1e9)
    coarse = [port.sample(), *(port.tick(share, seconds=0.1) for share in (0, 1.0, 0.5, 0))]
    _, rows = run_step(None, sample_table({A: [*coarse, port.tick(0, seconds=0.05)]}, now=port.time))
    assert busy(rows[A]) == pytest.approx(0.2)
    port = Port(speed=1e9)
    fine = [port.sample(), *(port.tick(share, 0.009, seconds=0.05) for share in (0, 0, 1, 1, 1, 0, 0, 0, 0))]
    state, rows = run_step(None, sample_table({A: fine}, now=port.time))
    assert busy(rows[A]) == pytest.approx(0.15)
    assert busy(rows[A], "transmit") == 0  # control messages
    _, rows = run_step(state, sample_table({A: [port.tick(0.01, 0.011, seconds=0.3)]}, now=port.time))
    assert busy(rows[A]) == pytest.approx(0.45)  # skipped ticks: over their true time
    assert busy(rows[A], "transmit") == pytest.approx(0.3)


@pytest.mark.parametrize("fallen", [0, 1])
def test_if_one_counter_fell_the_sample_is_skipped_in_both_directions(fallen):
    port = Port()
    taken = [port.tick(0.5, 0.5), port.tick(0.5, 0.5)]
    port.bytes[fallen] = -100  # less than all of what the tick brings: who zeroes one counter zeroes the other
    taken += [port.tick(0.9, 0.9), port.tick(0.9, 0.9)]
    _, rows = run_step(None, sample_table({A: taken}, now=port.time))
    assert counts(rows[A])[-1] == counts(rows[A], "transmit")[-1] == 2


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_time_that_does_not_advance_is_skipped(seconds):
    port = Port()
    _, rows = run_step(None, sample_table({A: [port.tick(0.5), port.tick(0.5, seconds=seconds)]}, now=port.time))
    assert counts(rows[A]) == (0, 0, 0, 0)


def test_a_change_of_speed_or_device_skips_one_sample():
    port = Port()
    state, _ = run_step(None, sample_table({A: [port.sample(), port.tick(0.9)]}, epochs=[1]))
    port.speed = 200.0
    state, rows = run_step(state, sample_table({A: [port.tick(0.9), port.tick(0.9)]}, epochs=[1]))
    assert counts(rows[A]) == (0, 0, 2, 2)
    _, rows = run_step(state, sample_table({A: [port.tick(0.9), port.tick(0.9)]}, epochs=[2]))
    assert counts(rows[A]) == (0, 0, 3, 3)


def test_impossible_samples_are_dropped_in_their_direction_only():
    port = Port()
    taken = [port.sample(), port.tick(1.25, 0.1), port.tick(1.26, 0.1)]
    _, rows = run_step(None, sample_table({A: taken}, now=port.time))
    assert counts(rows[A]) == (0, 0, 0, 1)
    assert highest(rows[A]) == 1.25
    assert counts(rows[A], "transmit") == (2, 2, 2, 2)


def test_the_highest_is_that_of_the_last_minute():
    port, state, seen = Port(), None, []
    port_shares = [0.9, 0.3, *[0.1] * 70]
    for share in port_shares:
        state, rows = run_step(state, sample_table({A: [port.sample(), port.tick(share)]}, now=port.time))
        seen.append(highest(rows[A]))
    assert seen[:60] == [pytest.approx(0.9)] * 60
    assert seen[60:62] == [pytest.approx(0.3), pytest.approx(0.1)]
    state, rows = run_step(state, sample_table({A: []}, now=port.time + 59.9))
    assert highest(rows[A]) == pytest.approx(0.1)
    _, rows = run_step(state, sample_table({A: []}, now=port.time + 60.0))
    assert highest(rows[A]) is None
    assert counts(rows[A])[-1] == len(port_shares)  # what was counted stays


def test_a_row_that_returns_starts_again_and_others_continue():
    port, other = Port(), Port()
    state, rows = run_step(
        None, sample_table({A: [port.sample(), port.tick(0.9)], B: [other.sample(), other.tick(0.9)]})
    )
    state, rows = run_step(state, sample_table({B: [other.tick(0.9)]}))
    assert (rows.keys(), counts(rows[B])) == ({B}, (0, 0, 2, 2))
    _, rows = run_step(state, sample_table({A: [port.tick(0.9), port.tick(0.9)], B: []}))
    assert (counts(rows[A]), counts(rows[B])) == ((0, 0, 1, 1), (0, 0, 2, 2))


def test_the_previous_state_is_not_changed():
    port = Port()
    state, _ = run_step(None, sample_table({A: [port.sample(), port.tick(0.9)]}))
    before = copy.deepcopy(state)
    run_step(state, sample_table({A: [port.tick(0.5)]}))
    assert state == before


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200),  # bytes received and sent; the speed is 128 in a second, and times are exact
            st.integers(0, 200),
            st.sampled_from([0.125, 1.0, 4.0]),
            st.sampled_from(["", "", "", "fall", "speed"]),
            st.booleans(),  # whether a table ends here
        ),
        max_size=60,
    )
)
@settings(max_examples=200, deadline=None)
def test_the_histogram_matches_a_simple_model(ticks):
    time, received, sent, speed = 1000.0, 10**6, 10**6, 128.0
    taken, expected, state, before = [(time, received, sent, speed)], {"receive": [], "transmit": []}, None, 0
    for more, sending, seconds, event, handed_on in ticks:
        time += seconds
        received, sent = received - 1 if event == "fall" else received + more, sent + sending
        speed = 384.0 - speed if event == "speed" else speed
        taken.append((time, received, sent, speed))
        if not event:
            expected["receive"].append(more / seconds / speed)
            expected["transmit"].append(sending / seconds / speed)
        if handed_on:
            state, rows = run_step(state, sample_table({A: taken}, now=time))
            assert counts(rows[A])[-1] >= before
            taken, before = [], counts(rows[A])[-1]
    _, rows = run_step(state, sample_table({A: taken}, now=time))
    for way, shares in expected.items():
        possible = [share for share in shares if share <= 1.25]
        assert counts(rows[A], way) == tuple(sum(share <= bound for share in possible) for bound in (0.5, 0.8, 0.95, 2))
        assert rows[A][f"{way}_utilization_samples"].sum == pytest.approx(sum(possible))


def test_other_tables_pass_unchanged():
    plain = vocabulary.schema("fabric_t_", LABELS, ["link_up"])
    table = Table(plain, RowKeeper(LABELS).rows([A]), {"link_up": Column(plain.metrics["link_up"], [1])}, 0.0)
    exported = vocabulary.schema("fabric_t_", LABELS, own={SAMPLES: gauge("Not internal.")})
    for other in (table, Table(exported, table.rows, {SAMPLES: Column(exported.metrics[SAMPLES], [1])}, 0.0)):
        assert bursts.step(None, other) == (None, (other,))
        assert bursts.outputs(other.schema) == []
    assert (
        rates.step(None, sample_table({A: []}))[1][0].schema is FOOD
    )  # the meaning before this one lets samples through


def test_outputs_are_well_formed_and_parsed_by_prometheus_client():
    metrics = bursts.outputs(FOOD)
    assert {one.name for one in metrics} == {
        f"fabric_rdma_{way}_{what}"
        for way in ("receive", "transmit")
        for what in ("utilization_samples", "utilization_highest_ratio", "busy_seconds_total")
    }
    assert vocabulary.check(metrics) == []
    assert {one.buckets for one in metrics} == {(), (0.5, 0.8, 0.95)}
    port = Port()
    _, tables = bursts.step(None, sample_table({A: [port.sample(), port.tick(0.9)]}, now=port.time))
    text = b"".join(Renderer(openmetrics=False).render(tables)).decode()
    samples = [
        (sample.name, sample.labels.get("le"), sample.value)
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("fabric_rdma_receive_") and sample.labels["device"] == "mlx5_0"
    ]
    name = "fabric_rdma_receive_utilization_samples"
    assert sorted(samples, key=str) == sorted(
        [
            (f"{name}_bucket", "0.5", 0.0),
            (f"{name}_bucket", "0.8", 0.0),
            (f"{name}_bucket", "0.95", 1.0),
            (f"{name}_bucket", "+Inf", 1.0),
            (f"{name}_count", None, 1.0),
            (f"{name}_sum", None, 0.9),
            ("fabric_rdma_receive_utilization_highest_ratio", None, 0.9),
            ("fabric_rdma_receive_busy_seconds_total", None, 1.0),
        ],
        key=str,
    )


def test_details_stay_details():
    endings = ["receive_utilization_samples", "transmit_utilization_samples"]
    schema = vocabulary.schema("fabric_o_", LABELS, own={SAMPLES: gauge("S.")}, internal=True, details=endings)
    assert [one.ending for one in bursts.outputs(schema) if one.detail] == endings
