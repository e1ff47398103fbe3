"""GPU-seconds that jobs lose: the verdict's loss, over all ranks, for as long as the verdict names it."""

import pytest

from exporter.meaning.training import jobs, lost_time
from exporter.meaning.training.link_limits import HostLinks, Links
from exporter.meaning.training.lost_time import CAUSES, LostTime
from exporter.meaning.training.records import Communicator, Job, Tick, Traffic
from exporter.meaning.training.verdicts import Judgement, Suspect, Verdict
from tests.helpers.steady_job import MIB, Work
from tests.helpers.steady_job import Job as SteadyJob

FINE = Judgement(Verdict.FINE)


def job(*communicators):
    """Return a job of communicators given by their ranks."""
    made = {
        f"0x{place}": Communicator(len(ranks), 2, len(ranks), 100.0, "gpu-0", members=dict.fromkeys(ranks, 100.0))
        for place, ranks in enumerate(communicators)
    }
    return Job(100.0, 0.0, communicators=made)


def lost(of, *judgements, every=2.0):
    """Return what is lost after evaluations; the first one only marks the begin."""
    found = LostTime()
    for place, one in enumerate(judgements):
        lost_time.add(found, of, one, 0.5, 100.0 + every * place)
    return {cause.value: seconds for cause, seconds in found.seconds.items()}


NONE = {"hang": 0.0, "straggler": 0.0, "network_bound": 0.0, "imbalanced_work": 0.0}


def test_nothing_is_known_before_the_first_verdict():
    assert lost(job("0123"), *[Judgement(Verdict.UNKNOWN)] * 5) == {}
    assert lost(job("0123"), Judgement(Verdict.UNKNOWN), FINE, FINE) == NONE


def test_a_straggler_costs_its_loss_of_the_time_of_all_ranks():
    late = Judgement(Verdict.STRAGGLER, [Suspect("3", 0.25, 0.25)], loss=0.25)
    # Six ranks, two of which are in both communicators, for ten seconds.
    assert lost(job("0123", "2345"), FINE, *[late] * 5) == {**NONE, "straggler": pytest.approx(0.25 * 6 * 10)}


def test_all_time_of_a_hang_is_lost():
    hang = Judgement(Verdict.HANG, loss=1.0)
    assert lost(job("01234567"), FINE, hang, hang) == {**NONE, "hang": pytest.approx(8 * 4.0)}


def test_imbalanced_work_costs_what_the_median_rank_waits():
    uneven = Judgement(Verdict.IMBALANCED, loss=0.1)
    assert lost(job("0123"), FINE, uneven) == {**NONE, "imbalanced_work": pytest.approx(0.1 * 4 * 2)}


def test_each_cause_has_its_own_sum_and_unknown_time_is_not_counted():
    late, hang = Judgement(Verdict.STRAGGLER, loss=0.5), Judgement(Verdict.HANG, loss=1.0)
    found = lost(job("01"), FINE, late, Judgement(Verdict.UNKNOWN), hang, FINE)
    assert found == {**NONE, "straggler": pytest.approx(2.0), "hang": pytest.approx(4.0)}


def test_a_slow_network_costs_what_its_collectives_take_too_long():
    of = job("0123", "4567")
    for name, seconds in (("0x0", 1.0), ("0x1", 0.5)):
        for number in range(5):
            traffic = {("AllReduce", MIB): Traffic(MIB, seconds * 1e6)}
            of.communicators[name].add_tick(Tick(90.0 + 2 * number, bus=traffic))
    # The first is at half of the expected speed for half of the time, the second at a tenth for a quarter.
    slow = Judgement(Verdict.NETWORK, bandwidth=0.1, communicators={"0x0": 0.5, "0x1": 0.1, "gone": 0.01}, loss=0.9)
    assert lost(of, FINE, slow) == {**NONE, "network_bound": pytest.approx(0.25 * 8 * 2)}


def test_communicators_of_an_earlier_run_have_no_ranks():
    of = job("0123", "4567")
    of.communicators["0x0"].last_seen = 30.0
    assert lost(of, FINE, Judgement(Verdict.HANG, loss=1.0))["hang"] == 4 * 2.0


def test_a_process_that_was_stopped_counts_little_and_no_time_is_counted_twice():
    hang, found = Judgement(Verdict.HANG, loss=1.0), LostTime()
    for now in (100.0, 102.0, 102.0, 101.0, 3600.0):
        lost_time.add(found, job("0"), hang, 0.5, now)
    assert found.seconds[Verdict.HANG] == 2.0 + lost_time.MAX_SECONDS


def test_a_job_at_half_of_the_speed_of_its_links_loses_half_of_its_network_time():
    """Sums of 512 MiB between two hosts take 0.1 s of each second; the port of two ranks allows half of that."""
    links = Links(lambda _: HostLinks(2 * 512 * MIB / 0.05 / 0.8, 1), share=0.8)
    known = jobs.JobKnowledge(links=links)
    found = SteadyJob(step=lambda state, table: jobs.step(known, state, table), ports="mlx5_0:1")
    work = Work(step=1.0, network=0.1)
    found.works(work, 2)
    before = found.values["lost_gpu_seconds_total", "llm", "network_bound"]
    found.works(work, 2)
    grown = found.values["lost_gpu_seconds_total", "llm", "network_bound"] - before
    assert found.values["network_ratio", "llm"] == pytest.approx(0.5, rel=0.06)
    assert grown == pytest.approx(0.05 * 4 * 120, rel=0.15)


def test_each_cause_is_a_verdict():
    assert {one.value for one in CAUSES} == {one.value for one in Verdict} - {"fine", "not_enough_data"}
