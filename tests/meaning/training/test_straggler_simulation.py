"""The verdicts on simulated jobs, whose truth is known: ranks that are slow are named, their victims and others not.

The simulation knows physics alone, and a fifth of its records is lost. A run is judged every two seconds, as a
collector does.
"""

from collections import defaultdict
from statistics import mean

import pytest

from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.bandwidth import Baseline
from exporter.meaning.training.records import Stream, Timing
from exporter.meaning.training.verdicts import (
    JobMemory,
    Verdict,
    judge,
)
from tests.helpers.job_simulation import (
    Layout,
    Pauses,
    Reporting,
    Restart,
    Simulation,
    scenario,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SINCE = 21.0
EVERY = 2.0
OF_ALL = {"AllGather", "ReduceScatter"}
SOON = 21.0
"""Seconds in which what begins must be named."""


def run(name, seed, *, layout=None, seconds=52.0, share=0.1, since=SINCE, restarts=(), **reporting):
    """Return the ground truth of a run, and its judgements with their times."""
    layout = layout or Layout(data=4)
    faults = scenario(name, layout, seed=seed, share=share, since=since, pauses=Pauses(5), restarts=restarts)
    made = Simulation(layout, faults, reporting=Reporting(**{"loss": 0.2, **reporting}), seed=seed)
    known, memory, judged = Collectives(), JobMemory(), []
    streams = defaultdict(list)
    for time, records in made.batches(seconds):
        for one in records:
            size = one.size_bytes * (one.n_ranks if one.kind in OF_ALL else 1)
            stream = Stream(
                one.job, one.communicator, one.kind, str(one.world_rank), one.n_ranks, one.nodes, one.host, one.n_ranks
            )
            streams[stream].append(Timing(one.sequence, size, one.duration_us))
        if time % EVERY:
            continue
        for stream, timings in streams.items():
            known.add(stream, timings, time)
        streams.clear()
        known.settle(time)
        if made.job in known.jobs:
            judged.append((time, judge(known.jobs[made.job], memory, time, Baseline())))
    return made.truths, judged, known


def named(judged):
    """Return when stragglers were reported, and which."""
    return [(time, {suspect.rank for suspect in one.ranks}) for time, one in judged if one.verdict is Verdict.STRAGGLER]


def test_slow_ranks_are_reported_soon_and_without_others():
    """Precision counts verdicts, recall runs; both must be 0.95."""
    right, found = [], []
    for seed in range(20):
        (truth,), judged, _ = run("rank", seed, since=SINCE + seed % 4 / 2)
        verdicts = named(judged)
        right += [ranks == {str(truth.world_rank)} for _, ranks in verdicts]
        found.append(bool(verdicts) and verdicts[0][0] - truth.since <= SOON)
        assert all(time >= truth.since for time, _ in verdicts), "nothing was wrong yet"
    assert mean(right) >= 0.95
    assert mean(found) >= 0.95


@pytest.mark.parametrize("name", ["control", "imbalance", "stage", "network", "network of a group", "nic"])
def test_no_straggler_without_slow_ranks(name):
    assert [named(run(name, seed)[1]) for seed in range(3)] == [[]] * 3


def test_a_thousand_ranks():
    layout = Layout()
    assert layout.ranks == 1024
    (truth,), judged, known = run("rank", 1, layout=layout, seconds=40.0)
    verdicts = named(judged)
    assert {frozenset(ranks) for _, ranks in verdicts} == {frozenset({str(truth.world_rank)})}
    assert verdicts[0][0] - truth.since <= SOON
    assert known.jobs["job"].dropped == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_host_is_among_the_reported(seed):
    (truth,), judged, _ = run("host", seed, seconds=60.0)
    hosts = [set(one.hosts) for _, one in judged if one.verdict is Verdict.STRAGGLER and one.hosts]
    assert hosts
    assert mean(truth.host in found for found in hosts) >= 0.95
    assert all(len(found) <= Layout().pipeline for found in hosts), "no more than the hosts of its pipeline"


@pytest.mark.parametrize("name", ["network", "nic"])
def test_a_slow_network_is_distinguished_from_slow_ranks(name):
    _, judged, _ = run(name, 1, seconds=60.0)
    verdicts = [one.verdict for _, one in judged]
    assert Verdict.NETWORK in verdicts
    assert verdicts[-1] is Verdict.NETWORK
    assert judged[-1][1].bandwidth == pytest.approx(1 / 4, rel=0.3), "transfers take four times as long"


def test_imbalanced_work_is_detected():
    _, judged, _ = run("imbalance", 1, seconds=70.0)
    assert judged[-1][1].verdict is Verdict.IMBALANCED


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_a_job_without_faults_has_no_alarm_and_is_fine(seed):
    """Until the steps are known, what its ranks wait for pauses of single ones may be near that of imbalanced work."""
    _, judged, _ = run("control", seed)
    assert {one.verdict for _, one in judged} <= {Verdict.UNKNOWN, Verdict.FINE, Verdict.IMBALANCED}
    assert {one.verdict for time, one in judged if time > 40.0} == {Verdict.FINE}


def test_the_group_of_a_hanging_rank_is_reported():
    (truth,), judged, _ = run("hang", 1, seconds=75.0)
    (verdict,) = {one.verdict for _, one in judged[-3:]}
    assert verdict is Verdict.HANG
    assert str(truth.world_rank) in {suspect.rank for suspect in judged[-1][1].ranks}
    assert truth.host in judged[-1][1].hosts


def test_after_a_restart_on_other_hosts_the_new_rank_is_reported():
    restart = Restart(45.0, shuffle=True)
    truths, judged, _ = run("rank", 2, seconds=110.0, restarts=[restart])
    assert truths
    for truth in truths:
        of_life = [ranks for time, ranks in named(judged) if truth.since + SOON <= time <= min(truth.until, 110.0)]
        assert of_life
        assert mean(ranks == {str(truth.world_rank)} for ranks in of_life) >= 0.95


def test_sampled_records_report_no_wrong_rank():
    """Inspector 2.28 to 2.29 records one operation per tick, a different one on each rank: no verdict is acceptable."""
    (truth,), judged, _ = run("rank", 1, sampled=True, loss=0.0)
    assert all(ranks == {str(truth.world_rank)} for _, ranks in named(judged))
