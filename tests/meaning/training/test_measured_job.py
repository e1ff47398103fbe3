"""A running job's own figures, from samples of exporters."""

from typing import NamedTuple

import pytest

from exporter.meaning.training.measured_job import MeasuredJob, measured_jobs


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def info(job, ranks="16", nodes="2"):
    return Sample("fabric_nccl_job_info", {"train_job": job, "ranks": ranks, "nodes": nodes}, 1.0)


def network_bytes(job, host, value):
    return Sample("fabric_job_network_bytes_per_second", {"train_job": job, "host": host}, value)


def seconds(job, metric, value):
    return Sample(f"fabric_nccl_step_{metric}", {"train_job": job}, value)


def test_bytes_of_a_rank_are_half_of_what_its_host_moves_in_a_step():
    """A host of 8 ranks that moves 160 GB/s both ways in steps of 0.5 s: 80 GB a step, 40 sent, 5 by each rank."""
    found = measured_jobs(
        [
            info("a"),
            network_bytes("a", "gpu-1", 160e9),
            network_bytes("a", "gpu-2", 160e9),
            seconds("a", "interval_seconds", 0.5),
            seconds("a", "network_seconds", 0.2),
        ]
    )
    assert found == {"a": MeasuredJob(16, 2, 0.5, 0.2, pytest.approx(5e9))}
    assert found["a"].compute == pytest.approx(0.3)


def test_the_interval_of_steps_comes_before_the_step_of_the_model():
    samples = [info("a"), seconds("a", "seconds", 0.7), seconds("a", "interval_seconds", 0.5)]
    assert measured_jobs(samples)["a"].step == 0.5
    assert measured_jobs(samples[:2])["a"].step == 0.7


def test_jobs_are_separate_and_what_is_missing_is_unknown():
    found = measured_jobs([info("a"), network_bytes("b", "gpu-1", 160e9), seconds("b", "interval_seconds", 1.0)])
    assert found == {
        "a": MeasuredJob(16, 2, None, None, None),
        "b": MeasuredJob(None, None, 1.0, None, None),
    }
    assert found["b"].compute is None


def test_a_network_time_above_the_step_leaves_no_computing():
    assert MeasuredJob(16, 2, 0.5, 0.6, 5e9).compute == 0.0


@pytest.mark.parametrize(("ranks", "nodes"), [("", ""), ("0", "0"), ("sixteen", "2"), ("²", "2")])
def test_sizes_that_are_not_numbers_are_unknown(ranks, nodes):
    assert measured_jobs([info("a", ranks, nodes)])["a"].ranks is None
