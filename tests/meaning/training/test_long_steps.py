"""Steps that take long, or have many small operations: what is known of them before there were many."""

from collections import deque
from random import Random
from statistics import median

import pytest

from benchmarks.verdicts import Replay
from exporter.meaning.training.connected import are_connected
from exporter.meaning.training.laps import Laps, fold
from exporter.meaning.training.levels import Placed, lateness_at_the_end, lateness_behind_the_first
from exporter.meaning.training.long_periods import find_long_period
from exporter.meaning.training.periods import find_period, normalised
from exporter.meaning.training.records import Arrivals, Communicator, Exchange, Job
from exporter.meaning.training.steps import Snapshot, Steps, update
from exporter.meaning.training.teeth import Lateness, Pattern, is_same_rank_last
from exporter.meaning.training.verdicts import Verdict
from exporter.simulator.training import faults
from exporter.simulator.training.data_parallel import FullyShardedDataParallel
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.records import Reporting
from exporter.simulator.training.scenario import Scenario, simulate, true_loss

PER_LAYER = 540.0
"""Microseconds by which a rank is later with each layer."""


def pass_of_layers(first, layers, rate, *, level, since=0.0):
    """Return lateness that grows with each layer up to its level."""
    late = [min(since + rate * (layer + 1), level) for layer in range(layers)]
    return [Placed(first + layer, one, one == level) for layer, one in enumerate(late)]


def two_passes():
    """A forward pass, and a backward pass in which twice as much is computed."""
    forward = pass_of_layers(1, 300, PER_LAYER, level=5400.0)
    return [*forward, *pass_of_layers(301, 300, PER_LAYER, level=10_800.0, since=5400.0)]


def test_lateness_is_continued_at_each_level():
    assert lateness_at_the_end(two_passes(), 600) == pytest.approx(600 * PER_LAYER, rel=0.05)


def test_a_pause_of_another_rank_within_a_pass_changes_little():
    row = two_passes()
    for place in range(450, 454):
        row[place] = Placed(place + 1, 2000.0 + PER_LAYER * (place - 450), together=False)
    assert lateness_at_the_end(row, 600) == pytest.approx(600 * PER_LAYER, rel=0.1)


def test_a_pause_of_a_rank_itself_is_no_rate():
    row = two_passes()
    for place in range(450, 460):
        row[place] = Placed(place + 1, 60_000.0, together=False)
    assert lateness_at_the_end(row, 600) < 600 * PER_LAYER + 60_000.0


def test_a_rank_that_is_not_the_last_costs_its_own_rate():
    """All ranks of a host are slow. While the others wait for the last one of them, the next one is late by a layer."""
    growing = pass_of_layers(1, 9, PER_LAYER, level=5400.0)
    row = [*growing, *(Placed(place, PER_LAYER, together=True) for place in range(10, 301))]
    assert lateness_at_the_end(row, 300) == pytest.approx(300 * PER_LAYER, rel=0.1)


def test_one_missing_record_is_neither_a_reset_nor_a_rise():
    row = two_passes()
    row[200] = Placed(201, 60.0, together=True)
    assert lateness_at_the_end(row, 600) == pytest.approx(600 * PER_LAYER, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_hundreds_of_operations_is_found_where_each_one_is_noise(seed):
    """Records are lost: which rank is the middle one, and the last one, is another one in each operation."""
    chance, values = Random(seed), {}
    for step in range(5):
        pace = chance.uniform(0.6, 1.4)
        for place in range(300):
            late = min(60.0 * (place + 1) * pace, 5000.0)
            last = late * (chance.uniform(0.3, 0.9) if chance.random() < 0.3 else 1.0)
            values[300 * step + place] = Lateness(last, late * chance.uniform(0.05, 0.3), str(step % 7))
    assert find_long_period(values) == 300


def test_two_pauses_are_no_period():
    row = [0.0] * 138
    for pause in (20, 66):
        row[pause : pause + 2] = [1.5, -1.5]
    assert find_period(normalised(row)) is None
    row[112:114] = [1.5, -1.5]
    assert find_period(normalised(row)) == 46


def test_operations_are_counted_again_when_their_pattern_is_found():
    """The first pattern was found too early. What was counted by it is of the steps of the right one."""
    group = ("AllReduce", 8, 1)
    communicator = Communicator(8, 1, 8, 30.0, "gpu-0", members={str(rank): 30.0 for rank in range(8)})
    communicator.highest["AllReduce"] = 99
    found = [Arrivals(number, 1e6, 1.0, {"3": 1000.0 * (number % 12 + 1)}, 10.0, number / 4) for number in range(100)]
    communicator.arrivals["AllReduce"] = deque(found[:96])
    job = Job(30.0, 0.0, communicators={"0xa": communicator})
    steps = Steps(deque([Snapshot(30.0, {}, {})]), group, seconds=3.0)
    laps = Laps(steps)
    for period in (5, 12):
        steps.counts, steps.carried = {("0xa", "AllReduce"): period}, {group: Pattern(period, 0)}
        fold(job, laps, 30.0)
        communicator.arrivals["AllReduce"].extend(found[96:])
    costs = {number: lap.costs["3"] for number, lap in laps.done["0xa", "AllReduce"].items()}
    assert costs == dict.fromkeys(range(3, 8), 12_000.0)
    assert laps.done["0xa", "AllReduce"][3].time == 47 / 4


def queued_behind_the_first(share, buckets, compute=300_000.0):
    """Return the lateness by which the others know a rank of DDP, how late it is at the end, and how long they compute.

    It computes longer by a share. It is late for the first bucket by that share of the forward pass and a bucket; the
    others, whose buckets are complete by then, start each further one when the one before has ended. Microseconds.
    """
    forward, bucket = compute / 3, compute * 2 / 3 / buckets
    row = [Placed(1, share * (forward + bucket), together=False)]
    row += [Placed(place, (1 + share) * bucket, together=True) for place in range(2, buckets + 1)]
    return row, share * compute, compute


@pytest.mark.parametrize(("share", "buckets"), [(0.12, 40), (0.4, 12), (0.4, 40)])
def test_what_is_queued_behind_the_first_operation_shows_how_late_a_rank_is_at_the_end(share, buckets):
    """Also if it is late in some steps only, of which the mean step is shorter than this one."""
    row, late, step = queued_behind_the_first(share, buckets)
    assert lateness_behind_the_first(row, buckets, step) == pytest.approx(late)
    some = [one for one in row if one.place == 1 or one.place % 3]
    assert lateness_behind_the_first(some, buckets, step) == pytest.approx(late), "of a part that is known"
    assert lateness_behind_the_first(row[1:], buckets, step) == 0.0, "the first one is not known"
    apart = [one._replace(together=False) for one in row]
    assert lateness_behind_the_first(apart, buckets, step) == 0.0, "each operation blocks"


def job_of(*groups, ranks=None):
    """Return a job with communicators of these ranks, of which each host has two."""
    job = Job(0.0, 0.0, hosts={str(rank): f"gpu-{rank // 2}" for rank in range(8)})
    for place, members in enumerate(groups):
        communicator = Communicator(ranks or len(members), 1, 0, 0.0, "gpu-0", members=dict.fromkeys(members, 0.0))
        job.communicators[f"0x{place}"] = communicator
    return job


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["01", "23"], False),
        (["01", "23", "02", "13"], True),
        (["01", "23", "45", "67", "02", "13", "46", "57"], True),
        (["01"], True),
    ],
    ids=["tensor groups", "with data groups", "two stages whose sends are not reported", "one host"],
)
def test_hosts_that_nothing_connects_have_communicators_that_were_not_seen_yet(groups, expected):
    job = job_of(*groups)
    assert are_connected(job, job.communicators) is expected


def test_what_does_not_report_here_connects_hosts_and_sends_between_stages_do_not():
    """A pipeline may have replicas, whose gradients are summed at the end of a step that has not ended yet."""
    seen_here, pipeline = job_of("01", "23", ranks=4), job_of("01", "23")
    pipeline.exchanges["0"] = Exchange()
    assert are_connected(seen_here, seen_here.communicators)
    assert not are_connected(pipeline, pipeline.communicators)


def test_an_operation_is_no_step_where_the_same_rank_is_the_last_in_several():
    def last(per_step, ranks, slow_from=120):
        lasts = [Random(number // per_step).randrange(ranks) for number in range(slow_from)]
        return {n: Lateness(1e3, 1e2, str(rank)) for n, rank in enumerate([*lasts, *[3] * (120 - slow_from)])}

    assert is_same_rank_last(last(12, 32))
    assert not any(is_same_rank_last(last(1, ranks)) for ranks in range(3, 33))
    assert not is_same_rank_last(last(1, 32, slow_from=60)), "a slow rank is the last in each step"


def test_operations_of_one_pass_alone_are_no_clock():
    """While a forward pass compiles there are AllGathers alone; then ReduceScatters begin, one to two of them."""
    job = job_of("01234567")
    known, steps = job.communicators["0x0"], Steps()
    known.ranks, known.nodes = 8, 1
    for now, gathers, scatters in ((4.0, 100, 0), (8.0, 200, 0), (12.0, 310, 5), (16.0, 400, 50), (20.0, 500, 100)):
        job.last_seen = known.last_seen = now
        known.highest = {"AllGather": gathers} | ({"ReduceScatter": scatters} if scatters else {})
        update(job, steps, now)
        assert steps.seconds is None


def judged(layout, seconds, *events, loss=0.0):
    scenario = Scenario(layout, seconds, events, reporting=Reporting(loss=loss, arrivals=True))
    given = Replay().judgements(simulate(scenario).records, seconds)
    return scenario, [(one.time, one.judgement) for one in given]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_late_rank_in_steps_of_hundreds_of_operations_is_named_after_some_steps(loss):
    layout = FullyShardedDataParallel(16, compute=4.0, layers=300, layer_bytes=40 << 20)
    scenario, given = judged(layout, 90.0, faults.SlowRank(rank=3, share=0.12, since=30.0), loss=loss)
    named = [(time, {one.rank for one in found.ranks}) for time, found in given if found.verdict is Verdict.STRAGGLER]
    assert named[0][0] <= 60.0
    assert all(ranks == {"3"} for _, ranks in named)
    stated = median(found.loss for _, found in given if found.verdict is Verdict.STRAGGLER)
    assert stated == pytest.approx(true_loss(scenario, 30.0), rel=1 / 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "event", [faults.Compilation(steps=3, factor=8), faults.RotatingWork(share=0.2, steps=5, ranks=1)]
)
def test_micro_batches_of_a_long_step_are_no_steps(event):
    """All of a step that compiles have the same rank as the last one; so have five steps of work that moves."""
    _, given = judged(Megatron(tensor=8, data=4, stages=1, compute=18.0), 260.0, event)
    assert Verdict.STRAGGLER not in {found.verdict for _, found in given}
