"""A job against its own best ten minutes, in minutes of virtual time: what makes it slower, and what does not."""

import pytest

from exporter.meaning.training import past
from tests.helpers.steady_job import MIB, Job, Work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def settled():
    """Return what a job keeps after 12 minutes at its best."""
    job = Job()
    job.works(Work(), 12)
    return past.best_levels(job.state.pasts["llm"])


def continued(settled):
    """Return a job whose past is known."""
    job = Job()
    job.works(Work(), 1)
    past.restore(job.state.pasts["llm"], settled)
    return job


def test_nothing_is_compared_before_ten_minutes_of_the_same_work():
    job = Job()
    job.works(Work(), 8)
    assert job.regression == {}
    assert job.values["step_interval_seconds", "llm"] == pytest.approx(0.5, rel=0.05)
    job.works(Work(), 4)
    assert job.regression == pytest.approx({"step_time": 1.0, "bus_bandwidth": 1.0}, rel=0.05)


def test_a_job_that_is_21_percent_slower_shows_it_within_two_minutes():
    job = Job()
    job.works(Work(), 11)
    job.works(Work(step=0.605), 2)
    assert job.regression == pytest.approx({"step_time": 1.21, "bus_bandwidth": 1.0}, rel=0.04)
    job.works(Work(step=0.605), 20)
    assert job.regression["step_time"] == pytest.approx(1.21, rel=0.04), "its best is not that of the slow minutes"
    job.works(Work(), 3)
    assert job.regression["step_time"] == pytest.approx(1.0, rel=0.04)


def test_a_slower_network_shows_in_the_bandwidth_and_in_the_step(settled):
    job = continued(settled)
    job.works(Work(step=0.6, network=0.2), 3)
    assert job.regression == pytest.approx({"step_time": 1.2, "bus_bandwidth": 2.0}, rel=0.05)


def test_levels_are_speeds_that_can_be_checked(settled):
    """Four steps in two seconds; 2(n-1)/n of 512 MiB in 0.1 s on two ranks, as nccl-tests defines bus bandwidth."""
    (steps,) = [value for name, value in settled.items() if name.startswith("steps AllReduce 2 2 ")]
    assert steps == pytest.approx(2.0, rel=0.03)
    bandwidth = settled[f"bus_bandwidth AllReduce {512 * MIB} 2 2"]
    assert bandwidth == pytest.approx(512 * MIB / 0.1, rel=0.03)


@pytest.mark.parametrize("minutes", [0.5, 3])
def test_a_checkpoint_is_no_regression_of_ten_minutes(settled, minutes):
    job = continued(settled)
    job.pauses(minutes)
    if minutes > 1:
        assert job.regression.keys() <= {"bus_bandwidth"}, "a pause has no steps that could be compared"
    job.works(Work(), 4)
    assert job.regression == pytest.approx({"step_time": 1.0, "bus_bandwidth": 1.0}, rel=0.05)


def test_a_job_that_ends_is_not_slower(settled):
    job = continued(settled)
    job.pauses(9)
    assert job.peak.get("step_time", 0.0) < 1.5, "only until the pause is known to be one"
    assert "step_time" not in job.regression
    job.pauses(3)
    assert job.regression == {}


def test_an_evaluation_is_other_work(settled):
    job = continued(settled)
    job.works(Work(step=0.9, sums=0, inside=4), 8)
    assert job.regression.get("step_time") is None
    job.works(Work(), 4)
    assert job.regression["step_time"] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [Work(step=1.2, nodes=4), Work(step=1.2, inside=16), Work(step=1.2, size=1024 * MIB, network=0.2)],
    ids=["nodes", "micro-batches", "model"],
)
def test_a_restart_with_other_sizes_has_another_past(settled, other):
    job = continued(settled)
    job.pauses(2)
    job.restarts()
    job.works(other, 5)
    assert "step_time" not in job.regression
    job.works(other, 8)
    assert job.regression["step_time"] == pytest.approx(1.0, rel=0.05)


def test_a_restart_with_the_same_sizes_has_the_same_past(settled):
    job = continued(settled)
    job.pauses(2)
    job.restarts()
    job.works(Work(step=0.65), 6)
    assert job.regression["step_time"] == pytest.approx(1.3, rel=0.05)


def test_names_that_are_not_of_levels_are_ignored(settled):
    found = past.Past()
    past.restore(
        found, {"steps": 1.0, "steps AllReduce 1 2": 1.0, "bus_bandwidth AllReduce 1 2 3 4": 1.0, "x" * 999: 1.0}
    )
    past.restore(found, {"bus_bandwidth AllReduce 1 2 3": float("nan"), "bus_bandwidth AllReduce 1 2 4": -1.0})
    assert past.best_levels(found) == {}
    past.restore(found, settled)
    past.restore(found, {name: value / 2 for name, value in settled.items()})
    assert past.best_levels(found) == settled, "the higher of two counts"


def test_levels_of_one_job_are_bounded():
    found = past.Past()
    for size in range(1000):
        past.restore(found, {f"bus_bandwidth AllReduce {size} 2 2": 1e9})
    assert len(found.levels) == past.MAX_LEVELS
    assert "bus_bandwidth AllReduce 999 2 2" in past.best_levels(found)


def test_work_between_two_levels_is_always_compared_with_the_best():
    """Sizes are measured: once off by a third, and between the two levels afterwards."""
    one = past.Past()
    past.restore(one, {"steps AllReduce 2 2 9 1000": 2.0})
    assert one.level(past.Work("AllReduce", 2, 2, 9, 1300)).best is None
    assert [one.level(past.Work("AllReduce", 2, 2, 9, 1180)).best for _ in range(4)] == [2.0] * 4


def test_work_between_two_best_levels_is_compared_with_the_closest():
    one = past.Past()
    past.restore(one, {"steps AllReduce 2 2 9 1000": 2.0, "steps AllReduce 2 2 9 1300": 1.5})
    assert [one.level(past.Work("AllReduce", 2, 2, 9, size)).best for size in (1200, 1100, 1200)] == [1.5, 2.0, 1.5]
