"""The budget of a step, against numbers worked out by hand from the model and the links."""

import re

import pytest
from conftest import ROOT

from exporter import vocabulary
from exporter.config import parse
from exporter.daemon import SECTIONS
from exporter.meaning.budget import (
    ENDINGS,
    Budget,
    Measured,
    Operation,
    Plan,
    budget,
    measure,
    mfu,
    operations,
    over_links,
    sent,
    values,
)
from exporter.meaning.collectives import Communicator, Job, Moved, Tick

GB = 1e9
LARGE = Plan(parameters=70 * GB, data_parallel=32, bandwidth=50 * GB)
"""70 thousand million parameters in two bytes are 140 GB; 400 Gb/s are 50 GB/s."""


def test_gradients_of_a_large_model_take_what_is_worked_out_by_hand():
    found = budget(LARGE)
    assert found.payload == 140 * GB
    assert found.traffic == pytest.approx(271.25 * GB)  # 140 * 2 * 31 / 32
    assert found.expected_network == pytest.approx(5.425)


def test_ranks_that_share_a_copy_of_the_model_share_its_gradients():
    found = budget(Plan(70 * GB, 32, model_parallel=32, bandwidth=50 * GB))
    assert found.payload == 4.375 * GB  # 140 / 32
    assert found.expected_network == pytest.approx(0.16953125)  # 4.375 * 2 * 31 / 32 / 50


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("tf32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1)])
def test_gradients_have_the_bytes_of_their_precision(precision, size):
    assert operations(Plan(10.0, 4, precision=precision)) == (Operation("AllReduce", 10.0 * size),)


@pytest.mark.parametrize(
    ("sharding", "kinds", "traffic"),
    [
        (0, ["AllReduce"], 2 * 200 * 3 / 4),
        (1, ["ReduceScatter", "AllGather"], 2 * 200 * 3 / 4),
        (2, ["ReduceScatter", "AllGather"], 2 * 200 * 3 / 4),
        (3, ["ReduceScatter", "AllGather", "AllGather"], 3 * 200 * 3 / 4),  # half as much again
    ],
)
def test_stages_of_zero_move_what_their_paper_says(sharding, kinds, traffic):
    plan = Plan(100.0, 4, sharding=sharding)
    assert [one.kind for one in operations(plan)] == kinds
    assert over_links(plan) == traffic


@pytest.mark.parametrize(("algorithm", "factor"), [("ring", 1.75), ("tree", 2.0), ("sharp", 1.0)])
def test_traffic_of_a_rank_by_algorithm(algorithm, factor):
    assert sent(Operation("AllReduce", 1000.0), 8, algorithm) == 1000 * factor


def test_a_single_rank_sends_nothing():
    assert [sent(Operation("AllReduce", 1000.0), 1, one) for one in ("ring", "tree", "sharp")] == [0.0] * 3


def test_ranks_of_one_host_add_up_before_the_network():
    # Two hosts of eight: reduced within the host, each rank's eighth goes over the link once each way: 2 * S/8 * 1/2.
    assert over_links(Plan(800.0, 16, nodes=2, precision="fp8")) == pytest.approx(100.0)
    assert over_links(Plan(800.0, 8, nodes=1)) == 0.0


def test_a_single_copy_of_the_model_needs_no_network():
    found = budget(Plan(70 * GB, 1, bandwidth=50 * GB), Measured(2.0, 0.0))
    assert (found.payload, found.traffic, found.expected_network) == (0.0, 0.0, 0.0)
    assert found.excess is None


def test_what_is_not_known_is_absent():
    found = budget(Plan(70 * GB, 32))
    assert (found.expected_network, found.measured, found.compute, found.utilization, found.mfu) == (None,) * 5
    assert found.excess is None
    told = values(Plan(70 * GB, 32), found)
    assert [ending for ending, value in told.items() if value is not None] == ["model_operations_per_token"]


def test_of_a_step_whose_network_is_not_known_the_time_is_told():
    found = budget(LARGE, Measured(step=20.0))
    assert (found.excess, found.compute, found.utilization) == (None, None, None)
    assert values(LARGE, found)["step_seconds"] == 20.0


def test_measured_stands_beside_expected():
    found = budget(LARGE, Measured(step=20.0, network=10.85))
    assert found.excess == pytest.approx(2.0)
    assert found.compute == pytest.approx(9.15)
    assert found.utilization == pytest.approx(0.4575)
    assert values(LARGE, found) == {
        "step_seconds": 20.0,
        "step_network_expected_seconds": pytest.approx(5.425),
        "step_network_seconds": 10.85,
        "step_network_excess_ratio": pytest.approx(2.0),
        "step_exposed_compute_seconds": pytest.approx(9.15),
        "step_utilization_least_ratio": pytest.approx(0.4575),
        "model_flops_utilization_ratio": None,
        "model_operations_per_token": 420 * GB,
        "peak_operations_per_second": None,
    }


def test_a_network_that_is_busy_for_longer_than_a_step_leaves_no_negative_time():
    found = budget(LARGE, Measured(step=10.0, network=12.0))  # several communicators at a time
    assert found.compute == 0.0
    assert found.utilization == 0.0


def test_mfu_by_hand():
    # 6 * 70e9 * 500e3 = 2.1e17 a second, over 512 GPUs of 989e12: 41.5 %.
    plan = Plan(70 * GB, 32, model_parallel=16, tokens_per_second=500e3, peak_flops=989e12)
    assert mfu(plan) == pytest.approx(0.41472, abs=1e-5)
    assert mfu(Plan(70 * GB, 32, tokens_per_second=1.0)) is None
    assert mfu(Plan(70 * GB, 32, peak_flops=1.0)) is None


def job(*communicators, since=0.0):
    return Job(heard=60.0, since=since, communicators={str(place): one for place, one in enumerate(communicators)})


def communicator(ranks, nodes, *moved, heard=0):
    """Make one with ticks of (time, kind, bytes, seconds), of whose ranks some are heard, or all."""
    found = Communicator(ranks, nodes, 0, heard=60.0, members={str(rank): 60.0 for rank in range(heard or ranks)})
    for time, kind, size, seconds in moved:
        found.ticks.append(Tick(time, bus={(kind, 1 << 20): Moved(size, seconds * 1e6, 1.0)}))
    return found


PLAN = Plan(100.0, 4)
"""A step moves 200 bytes."""


def test_steps_are_told_by_the_bytes_that_were_moved():
    ticks = [(float(time), "AllReduce", 400.0, 1.5) for time in range(3, 61, 3)]
    # 20 ticks of two steps in a minute: a step each 1.5 s, of which the network has 0.75 s.
    assert measure(PLAN, job(communicator(4, 4, *ticks)), 60.0) == Measured(pytest.approx(1.5), pytest.approx(0.75))


@pytest.mark.parametrize(("heard", "network"), [(9, 0.75), (8, None), (1, None)])
def test_where_ranks_are_missing_the_time_of_the_network_may_be_waiting(heard, network):
    plan = Plan(1000.0, 10)  # a step moves 2,000 bytes
    ticks = [(float(time), "AllReduce", 4000.0, 1.5) for time in range(3, 61, 3)]
    found = measure(plan, job(communicator(10, 10, *ticks, heard=heard)), 60.0)
    assert found == Measured(pytest.approx(1.5), None if network is None else pytest.approx(network))


def test_a_young_job_is_measured_since_it_began():
    ticks = [(float(time), "AllReduce", 400.0, 1.5) for time in range(33, 61, 3)]
    found = measure(PLAN, job(communicator(4, 4, *ticks), since=30.0), 60.0)
    assert found == Measured(pytest.approx(1.5), pytest.approx(0.75))


def test_several_parts_of_the_model_count_as_one_step():
    fast, slow = ([(float(time), "AllReduce", 400.0, took) for time in range(3, 61, 3)] for took in (0.5, 1.5))
    found = measure(PLAN, job(communicator(4, 4, *fast), communicator(4, 4, *slow)), 60.0)
    assert found == Measured(pytest.approx(1.5), pytest.approx(0.5))


def test_other_groups_and_other_kinds_are_no_part_of_it():
    ticks = [(float(time), "AllReduce", 400.0, 1.5) for time in range(3, 61, 3)]
    others = [(float(time), "AllGather", 400.0, 1.5) for time in range(3, 61, 3)]
    within, larger = communicator(4, 1, *ticks), communicator(8, 4, *ticks)
    found = measure(PLAN, job(communicator(4, 4, *ticks, *others), within, larger), 60.0)
    assert found == Measured(pytest.approx(1.5), pytest.approx(0.75))
    assert measure(PLAN, job(within, larger, communicator(4, 4, *others)), 60.0) is None


def test_too_few_steps_tell_nothing():
    assert measure(PLAN, job(communicator(4, 4, (59.0, "AllReduce", 599.0, 1.0))), 60.0) is None
    assert measure(PLAN, job(communicator(4, 4, (59.0, "AllReduce", 600.0, 1.0))), 60.0) is not None
    assert measure(PLAN, job(), 60.0) is None


def test_what_is_older_than_the_window_does_not_count():
    old = [(float(time), "AllReduce", 400.0, 1.5) for time in range(3, 61, 3)]
    assert measure(PLAN, job(communicator(4, 4, *old)), 200.0) is None


def test_endings_are_good_metrics_and_all_are_filled():
    schema = vocabulary.schema("fabric_nccl_", ("train_job",), own=ENDINGS)
    assert vocabulary.check(schema.metrics.values()) == []
    assert values(PLAN, Budget(1.0, 1.0)).keys() == ENDINGS.keys()


def test_the_example_of_the_page_is_what_it_says():
    """A configuration that is good, and numbers that come of it."""
    page = (ROOT / "docs" / "budget.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    plan = parse(example.encode(), "budget.md", SECTIONS).jobs["llama-70b-*"].plan()
    assert (plan.data_parallel, plan.model_parallel, plan.bandwidth) == (32, 16, 50 * GB)
    assert budget(plan).expected_network == pytest.approx(140 / 16 * 2 * 31 / 32 / 50)
    assert mfu(plan) == pytest.approx(0.41472, abs=1e-5)
    assert set(re.findall(r"^\| `fabric_nccl_(\w+)`", page, re.MULTILINE)) == ENDINGS.keys()
