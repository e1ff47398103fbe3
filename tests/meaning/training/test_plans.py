"""The plan of a job as it is configured, and as the step budget uses it: two types, since neither imports the other."""

from typing import get_args

import pytest

from exporter.config import jobs
from exporter.config.jobs import JobPlan
from exporter.meaning.training import step_budget
from exporter.meaning.training.plans import plan_of, ranks_of


def test_the_budget_has_a_number_for_each_configured_word():
    assert set(get_args(jobs.Precision)) == step_budget.BYTES.keys()
    assert set(get_args(jobs.Algorithm)) == {"ring", *step_budget.WHOLE}


def test_an_alert_on_utilization_is_configured_by_default():
    assert plan_of(JobPlan(parameters=7e9, data_parallel=16)).least_mfu == jobs.MIN_MFU


@pytest.mark.parametrize(
    ("nodes", "ranks_per_host", "hosts"), [(None, 8, 2), (None, 16, 1), (4, 8, 4)], ids=["8 a host", "16", "given"]
)
def test_hosts_of_a_group_follow_from_the_ranks(nodes, ranks_per_host, hosts):
    job = JobPlan(parameters=7e9, data_parallel=16, ranks_per_host=ranks_per_host, nodes=nodes)
    assert ranks_of(job) == 16
    assert plan_of(job).hosts == hosts


def test_the_bandwidth_of_a_rank_is_its_share_of_the_links():
    job = JobPlan(parameters=7e9, data_parallel=16, link_speed=50e9, links=4, ranks_per_host=8)
    assert plan_of(job).bandwidth == 25e9
    assert plan_of(JobPlan(parameters=7e9, data_parallel=16)).bandwidth is None
