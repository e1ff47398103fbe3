"""Verdicts on real jobs of several kinds of parallelism: torch's DDP, FSDP and a pipeline, with gloo.

Their processes sleep as if they computed, so that a busy machine of two cores runs them. The records of their hooks are
judged at the times at which they arrived, by the path of production from a host's table to the collector's verdict.
"""

from statistics import median

import pytest

from benchmarks.verdicts import Replay
from exporter.meaning.training.verdicts import Verdict
from tests.helpers.torch_jobs import run
from tests.hook.test_fabric_timing_torch import torch_python  # noqa: F401  # a fixture

pytestmark = [pytest.mark.job, pytest.mark.timeout(600)]

LAYOUTS = {"ddp": {"2"}, "fsdp": {"2"}, "pipeline": {"0", "2"}}
"""For each layout, the ranks that may be named if rank 2 is late: in a pipeline its replica, which waits for it."""

COMPUTE = 1.2
"""Seconds that a rank computes in a step, as in parallel_job.py."""

ALARMS = {Verdict.STRAGGLER, Verdict.NETWORK, Verdict.HANG}


async def judged(python, folder, layout, seconds, **fault):
    """Run a job; return time and judgement over time, and the seconds of a step. All ranks must have been seen."""
    found = await run(python, folder, layout, seconds, **fault)
    assert {one.rank for one in found.records} == {0, 1, 2, 3}
    return [(one.time, one.judgement) for one in Replay().judgements(found.records)], found.step_seconds


def named(given):
    """Return who is named as a straggler, each time."""
    return [{one.rank for one in found.ranks} for _, found in given if found.verdict is Verdict.STRAGGLER]


def stated_loss(given):
    """Return the loss by stragglers, the middle one."""
    return median(found.loss for _, found in given if found.verdict is Verdict.STRAGGLER)


def verdicts(given):
    return {found.verdict for _, found in given}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_two_healthy_minutes_give_no_alarm(torch_python, tmp_path, layout):  # noqa: F811
    given, _ = await judged(torch_python, tmp_path, layout, 125.0)
    assert verdicts(given) & ALARMS == set()
    assert given[-1][1].verdict in {Verdict.FINE, Verdict.IMBALANCED}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_rank_that_is_late_in_each_step_is_named(torch_python, tmp_path, layout):  # noqa: F811
    given, step = await judged(torch_python, tmp_path, layout, 90.0, LATE_RANK="2", LATE_SHARE="0.3")
    later = [one for one in given if one[0] > 45]
    assert verdicts(later) == {Verdict.STRAGGLER}
    assert all({"2"} <= ranks <= LAYOUTS[layout] for ranks in named(given))
    assert 1 / 2 < stated_loss(later) / (0.3 * COMPUTE / step) < 2


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_rank_that_is_late_in_each_fifth_step_is_named(torch_python, tmp_path, layout):  # noqa: F811
    given, step = await judged(torch_python, tmp_path, layout, 125.0, LATE_RANK="2", LATE_SHARE="1.0", LATE_EACH="5")
    assert verdicts(given) & ALARMS == {Verdict.STRAGGLER}
    assert all({"2"} <= ranks <= LAYOUTS[layout] for ranks in named(given))
    later = [one for one in given if one[0] > 80]
    assert len(named(later)) >= len(later) / 2
    assert 1 / 2 < stated_loss(later) / (1.0 * COMPUTE / 5 / step) < 2
