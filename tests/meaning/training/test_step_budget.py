"""The budget of a step, against numbers computed by hand from the model and the links."""

import re

import pytest

from exporter.config.schema import parse
from exporter.core import vocabulary
from exporter.daemon.sources import SECTIONS
from exporter.meaning.training.plans import plan_of
from exporter.meaning.training.records import Communicator, Job, Tick, Traffic
from exporter.meaning.training.step_budget import (
    CONFIGURED,
    MEASURED,
    Budget,
    Measured,
    Operation,
    Plan,
    StepMeter,
    budget,
    mfu,
    operations,
    over_links,
    sent,
    values,
)
from tests.helpers.paths import ROOT

GB = 1e9
LARGE = Plan(parameters=70 * GB, data_parallel=32, bandwidth=50 * GB, least_mfu=0.4)
"""70 billion parameters of two bytes are 140 GB; 400 Gb/s are 50 GB/s."""

ENDINGS = {**MEASURED, **CONFIGURED}


# --- what should be


def test_network_time_of_a_large_model_computed_by_hand():
    found = budget(LARGE)
    assert found.payload == 140 * GB
    assert found.traffic == pytest.approx(271.25 * GB)  # 140 * 2 * 31 / 32
    assert found.expected_network == pytest.approx(5.425)


def test_model_parallel_ranks_share_the_gradients():
    found = budget(Plan(70 * GB, 32, model_parallel=32, bandwidth=50 * GB))
    assert found.payload == 4.375 * GB  # 140 / 32
    assert found.expected_network == pytest.approx(0.16953125)  # 4.375 * 2 * 31 / 32 / 50


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("tf32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1)])
def test_gradients_have_the_bytes_of_their_precision(precision, size):
    assert operations(Plan(10.0, 4, precision=precision)) == (Operation("AllReduce", 10.0 * size),)


@pytest.mark.parametrize(
    ("sharding", "kinds", "traffic"),
    [
        (0, {"AllReduce": 1}, 2 * 200 * 3 / 4),
        (1, {"ReduceScatter": 1, "AllGather": 1}, 2 * 200 * 3 / 4),
        (2, {"ReduceScatter": 1, "AllGather": 1}, 2 * 200 * 3 / 4),
        (3, {"ReduceScatter": 1, "AllGather": 2}, 3 * 200 * 3 / 4),  # half as much again
    ],
)
def test_traffic_of_zero_stages_matches_the_paper(sharding, kinds, traffic):
    plan = Plan(100.0, 4, sharding=sharding)
    assert {one.kind: one.times for one in operations(plan)} == kinds
    assert over_links(plan) == traffic


@pytest.mark.parametrize(("sharding", "sizes"), [(0, 400), (1, 400 + 200), (2, 4 * 400 + 200), (3, 4 * 400 + 8 * 200)])
def test_gradients_in_full_precision_and_accumulation(sharding, sizes):
    plan = Plan(100.0, 4, sharding=sharding, gradient_precision="fp32", accumulation=4)
    assert sum(one.payload for one in operations(plan)) == sizes


@pytest.mark.parametrize(("algorithm", "factor"), [("ring", 1.75), ("tree", 2.0), ("sharp", 1.0)])
def test_traffic_of_a_rank_by_algorithm(algorithm, factor):
    assert sent(Operation("AllReduce", 1000.0), 8, algorithm) == 1000 * factor


def test_a_single_rank_sends_nothing():
    assert [sent(Operation("AllReduce", 1000.0), 1, one) for one in ("ring", "tree", "sharp")] == [0.0] * 3


@pytest.mark.parametrize(("algorithm", "traffic"), [("ring", 2 * 800 * 15 / 16 / 8), ("tree", 200), ("sharp", 100)])
def test_links_of_a_host_share_the_traffic_of_its_ranks(algorithm, traffic):
    # Two hosts of eight: eight rings, of an eighth of the data each, leave a host by a link each.
    assert over_links(Plan(800.0, 16, nodes=2, precision="fp8", algorithm=algorithm)) == pytest.approx(traffic)
    assert over_links(Plan(800.0, 8, nodes=1)) == 0.0


def test_a_job_without_data_parallelism_has_no_network_time():
    found = budget(Plan(70 * GB, 1, bandwidth=50 * GB), Measured(2.0, 0.0))
    assert (found.payload, found.traffic, found.expected_network) == (0.0, 0.0, 0.0)
    assert found.excess is None


# --- beside what is


def test_unknown_values_are_absent():
    found = budget(Plan(70 * GB, 32))
    assert (found.expected_network, found.measured, found.compute, found.utilization, found.mfu) == (None,) * 5
    assert found.excess is None
    exported = values(Plan(70 * GB, 32, least_mfu=0.4), found)
    known = {"model_operations_per_token": 420 * GB, "model_flops_utilization_wanted_ratio": 0.4}
    assert {ending: value for ending, value in exported.items() if value is not None} == known


def test_step_time_is_reported_if_network_time_is_unknown():
    found = budget(LARGE, Measured(step=20.0))
    assert (found.excess, found.compute, found.utilization) == (None, None, None)
    assert values(LARGE, found)["step_seconds"] == 20.0


def test_measured_and_expected_values():
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
        "model_flops_utilization_wanted_ratio": 0.4,
        "model_operations_per_token": 420 * GB,
        "peak_operations_per_second": None,
    }


def test_a_network_that_is_busy_for_longer_than_a_step_leaves_no_negative_time():
    found = budget(LARGE, Measured(step=10.0, network=12.0))  # several communicators at a time
    assert (found.compute, found.utilization) == (0.0, 0.0)


TOKENS = Plan(70 * GB, 32, model_parallel=16, tokens_per_step=4e6, peak_flops=989e12, bandwidth=50 * GB)


def test_mfu_by_hand():
    # 6 * 70e9 * 4e6 in 8 s are 2.1e17 a second, over 512 GPUs of 989e12: 41.5 %.
    assert mfu(TOKENS, 8.0) == pytest.approx(0.41472, abs=1e-5)
    assert mfu(Plan(70 * GB, 32, tokens_per_step=1.0), 8.0) is None
    assert mfu(Plan(70 * GB, 32, peak_flops=1.0), 8.0) is None
    experts = Plan(70 * GB, 32, model_parallel=16, tokens_per_step=4e6, peak_flops=989e12, active_parameters=14 * GB)
    assert mfu(experts, 8.0) == pytest.approx(0.41472 / 5, abs=1e-5)


def test_mfu_is_a_lower_bound_of_utilization():
    hidden = budget(TOKENS, Measured(step=8.0, network=7.6))
    assert hidden.utilization == hidden.mfu == pytest.approx(0.41472, abs=1e-5)


# --- measuring


def job(*communicators, since=0.0):
    return Job(last_seen=60.0, since=since, communicators={str(place): one for place, one in enumerate(communicators)})


def communicator(ranks=4, nodes=4, reporting=0):
    return Communicator(
        ranks, nodes, 0, last_seen=60.0, host="gpu-0", members={str(rank): 60.0 for rank in range(reporting or ranks)}
    )


def run(plan, until, *work, of=None, every=2.0):
    """Measure every two seconds; `work` returns the traffic of each communicator at a time: (kind, bytes, seconds)."""
    communicators = of or [communicator() for _ in work]
    meter, found, now = StepMeter(plan), None, 0.0
    while now < until:
        now += every
        for one, does in zip(communicators, work, strict=True):
            one.last_seen = now
            for kind, size, seconds in does(now):
                one.ticks.append(Tick(now, bus={(kind, 1 << 20): Traffic(size, seconds * 1e6, 1.0)}))
        meter.add(job(*communicators), now)
        found = meter.measured(now)
    return found


PLAN = Plan(100.0, 4)
"""A step moves 200 bytes."""


def steady(kind="AllReduce", size=400.0, seconds=1.0):
    return lambda _: [(kind, size, seconds)]


def test_steps_are_derived_from_bytes_moved():
    assert run(PLAN, 60, steady()) == Measured(pytest.approx(1.0), pytest.approx(0.5))  # two steps in two seconds


@pytest.mark.parametrize("step", [4.0, 7.0, 13.0, 21.0, 25.0, 55.0])
def test_long_steps_are_measured_over_longer_windows(step):
    def work(now):
        return [("AllReduce", 200.0, 0.5)] if now % step < 2.0 else []

    found = run(PLAN, 700, work)
    assert found == Measured(pytest.approx(step, rel=0.06), pytest.approx(0.5))


def test_several_parts_of_the_model_are_one_step_whose_network_time_is_that_of_the_slowest():
    found = run(PLAN, 60, steady(seconds=1.0), steady(seconds=3.0))
    assert found == Measured(pytest.approx(1.0), pytest.approx(1.5))


def test_one_slow_group_of_eight_decides():
    """Seven groups take 0.1 s of each step, one 0.4 s: the mean of 0.14 s would be no reason to look at the network."""
    found = run(PLAN, 60, *[steady(seconds=0.2)] * 7, steady(seconds=0.8))
    assert found.network == pytest.approx(0.4)


@pytest.mark.parametrize(
    "beside", [("AllReduce", 8.0, 0.001), ("AllGather", 400.0, 1.0)], ids=["a sum of little", "another kind"]
)
def test_groups_of_equal_size_with_other_traffic_are_ignored(beside):
    assert run(PLAN, 60, steady(), lambda _: [beside]) == Measured(pytest.approx(1.0), pytest.approx(0.5))


def test_larger_groups_and_groups_within_hosts_are_ignored():
    others = [communicator(8, 8), communicator(4, 1)]
    found = run(PLAN, 60, steady(), steady(), steady(), of=[communicator(), *others])
    assert found == Measured(pytest.approx(1.0), pytest.approx(0.5))
    assert run(PLAN, 60, steady(), steady(), of=others) is None


def test_a_group_on_other_hosts_than_planned_is_measured():
    assert run(Plan(100.0, 4, nodes=2), 60, steady()).step == pytest.approx(1.0)


@pytest.mark.parametrize(("reporting", "network"), [(9, 0.5), (8, None), (1, None)])
def test_network_time_is_absent_if_ranks_are_missing(reporting, network):
    plan = Plan(1000.0, 10)  # a step moves 2,000 bytes
    found = run(plan, 60, steady(size=4000.0), of=[communicator(10, 10, reporting)])
    assert found == Measured(pytest.approx(1.0), None if network is None else pytest.approx(network))


def test_a_slower_step_is_measured_within_minutes():
    def work(now):
        return [("AllReduce", 200.0, 0.5)] if now <= 300 or now % 10 < 2.0 else []

    assert run(PLAN, 300, work).step == pytest.approx(2.0)
    assert run(PLAN, 500, work).step == pytest.approx(10.0, rel=0.1)


def test_too_few_steps_and_stopped_jobs_have_no_values():
    assert run(PLAN, 6, steady(size=200.0)) is None  # three steps, of which the first marks the begin
    assert run(PLAN, 8, steady(size=200.0)) == Measured(pytest.approx(2.0), pytest.approx(1.0))
    assert run(PLAN, 60) is None

    def stops(now):
        return [("AllReduce", 400.0, 1.0)] if now <= 100 else []

    assert run(PLAN, 158, stops).step == pytest.approx(1.0)
    assert run(PLAN, 164, stops) is None


@pytest.mark.parametrize("step", [20.0, 64.0, 80.0, 90.0, 120.0, 176.0])
@pytest.mark.parametrize("groups", [2, 8, 32])
def test_groups_with_the_same_work_at_different_times_are_one_step(step, groups):
    def work(place):
        return lambda now: [("AllReduce", 200.0, 0.5)] if (now - 2.0 * (place % 5)) % step < 2.0 else []

    found = run(PLAN, 1300, *(work(place) for place in range(groups)))
    assert found == Measured(pytest.approx(step, rel=0.03), pytest.approx(0.5))


@pytest.mark.parametrize("before", [600, 1200])
def test_an_ended_run_does_not_affect_the_next_of_the_same_name(before):
    meter, now, found = StepMeter(PLAN), 0.0, {}
    old, new = communicator(), communicator()
    while now < before + 300:
        now += 2.0
        one = old if now <= before else new
        one.last_seen = now
        one.ticks.append(Tick(now, bus={("AllReduce", 1): Traffic(200.0, 5e5, 1.0)}))
        meter.add(Job(now, 0.0, {"old": old, **({"new": new} if now > before else {})}), now)
        found[now] = meter.measured(now)
    assert found[before].step == pytest.approx(2.0)
    assert all(found[before + seconds].step == pytest.approx(2.0, rel=0.1) for seconds in range(70, 300, 10))


def test_samples_are_bounded():
    communicators = [communicator() for _ in range(300)]
    meter = StepMeter(PLAN)
    for number in range(2000):
        one = communicators[number % 300 if number < 300 else 0]
        one.ticks.append(Tick(float(number), bus={("AllReduce", 1): Traffic(200.0, 1.0, 1.0)}))
        meter.add(job(*communicators), float(number))
        assert len(meter.samples) <= 256
    assert max(map(len, meter.samples.values())) <= 601
    meter.add(job(), 3000.0)
    assert meter.samples == {}


# --- what is exported


def test_metrics_are_well_formed_and_all_have_values():
    schema = vocabulary.schema("fabric_nccl_", ("train_job",), own=ENDINGS)
    assert vocabulary.check(schema.metrics.values()) == []
    assert values(PLAN, Budget(1.0, 1.0)).keys() == ENDINGS.keys()


def test_the_example_of_the_documentation_is_correct():
    """The configuration is valid, and the numbers follow from it."""
    page = (ROOT / "docs" / "budget.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    def plan(text):
        return plan_of(parse(text.encode(), "budget.md", SECTIONS).jobs["llama-70b-*"])

    found = plan(example)
    assert (found.data_parallel, found.model_parallel, found.hosts, found.bandwidth) == (32, 16, 32, 50 * GB)
    assert f"{budget(found).expected_network:.3f} s" == "0.339 s"
    assert f"{budget(plan(example.replace('sharding: 0', 'sharding: 3'))).expected_network:.3f} s" == "0.509 s"
    for before, after in (("data_parallel: 32 ", "data_parallel: 512"), ("model_parallel: 16 ", "model_parallel: 1")):
        example = example.replace(before, after)
    found = budget(plan(example.replace("sharding: 0", "sharding: 3")))
    assert (f"{found.traffic / GB:.1f} GB", f"{found.expected_network:.2f} s") == ("52.4 GB", "1.05 s")
    for text in ("0.339 s", "0.509 s", "52.4 GB", "1.05 s", "16.95 GB"):
        assert text in page
    assert set(re.findall(r"^\| `fabric_nccl_(\w+)`", page, re.MULTILINE)) == ENDINGS.keys()
