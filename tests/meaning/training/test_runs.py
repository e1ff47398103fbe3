"""Several jobs under one name: they are counted, and not judged, as long as they report together."""

import msgspec
import pytest

from benchmarks.verdicts import Replay
from exporter.meaning.training.runs import Claims
from exporter.meaning.training.verdicts import Verdict
from exporter.simulator.training.data_parallel import FullyShardedDataParallel
from exporter.simulator.training.faults import Restart
from exporter.simulator.training.scenario import Scenario, simulate

LAYOUT = FullyShardedDataParallel(8, compute=0.5, layers=4)


def runs(moves, now):
    """Return the number of runs after moves of a rank: (time, host)."""
    claims = Claims()
    for time, host in moves:
        claims.move("0", host, time)
    return claims.runs(now)


def test_a_rank_that_keeps_returning_to_hosts_is_of_several_runs():
    moves = [(5.0 * tick + place, f"gpu-{place}") for tick in range(4) for place in range(3)]
    assert [runs(moves[:count], 1 + moves[count - 1][0]) for count in (1, 3, 6, 12)] == [1, 1, 1, 3]
    assert runs(moves, 60.0) == 1, "they ended"


def test_a_restart_elsewhere_with_delayed_reports_is_one_run():
    assert runs([(100.0, "b"), (101.0, "a"), (101.0, "b"), (104.0, "a"), (105.0, "b")], 110.0) == 1
    assert runs([], 0.0) == 1


def judged(records, seconds):
    """Return the time, the verdict and the number of runs at each judgement."""
    replay = Replay()
    return [
        (one.time, one.judgement.verdict, replay.state.collectives.jobs["llm"].claims.runs(one.time))
        for one in replay.judgements(records, seconds)
    ]


def test_two_jobs_of_one_name_are_counted_and_not_judged():
    first = simulate(Scenario(LAYOUT, 200.0)).records
    second = [
        msgspec.structs.replace(one, arrived=one.arrived + 60, host="gpu-900")
        for one in simulate(Scenario(LAYOUT, 60.0, seed=2)).records
    ]
    given = judged(sorted(first + second, key=lambda one: one.arrived), 200.0)
    assert {found[1:] for found in given if 40 < found[0] < 60} == {(Verdict.FINE, 1)}
    assert {found[1:] for found in given if 85 < found[0] < 120} == {(Verdict.UNKNOWN, 2)}
    assert given[-1][1:] == (Verdict.FINE, 1)


def test_a_job_that_restarts_on_other_hosts_is_one_run():
    records = [
        msgspec.structs.replace(one, host="gpu-900") if one.arrived > 60 else one
        for one in simulate(Scenario(LAYOUT, 120.0, [Restart(at=59.0, pause=5.0)])).records
    ]
    assert {found[2] for found in judged(records, 120.0)} == {1}


@pytest.mark.parametrize("compute", [0.5, 3.0])
def test_a_job_that_stopped_is_fine_no_longer_than_what_is_recent(compute):
    """Hosts report each 5 seconds, 7 are waited for ranks, 20 are recent, and verdicts are of each 2 seconds."""
    layout = FullyShardedDataParallel(8, compute=compute, layers=4)
    given = judged(simulate(Scenario(layout, 90.0)).records, 180.0)
    assert given[-1][1] is Verdict.UNKNOWN
    assert 90 <= max(time for time, verdict, _ in given if verdict is Verdict.FINE) <= 90 + 5 + 7 + 20 + 2
