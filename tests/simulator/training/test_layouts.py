"""Kinds of parallelism: schedules against published ones, sizes and members of groups, what a late rank costs."""

from collections import Counter

import pytest

from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import (
    Compilation,
    DeadAdapter,
    Restart,
    SlowAdapter,
    SlowHost,
    SlowRank,
    Stall,
    StoppedRank,
)
from exporter.simulator.training.hardware import Variation
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.pipeline_schedule import schedule
from exporter.simulator.training.programs import Compute
from exporter.simulator.training.records import Record, Reporting, decode_record, encode_record
from exporter.simulator.training.scenario import Scenario, simulate, true_loss

EVEN = Variation(gpus=0.0, work=0.0, transfers=0.0, pauses=0.0)

LAYOUTS = {
    "ddp": DistributedDataParallel(16, compute=0.5),
    "fsdp": FullyShardedDataParallel(16, compute=0.5, layers=8, layer_bytes=64 << 20),
    "1f1b": Megatron(tensor=4, data=2, stages=2, micro_batches=4, compute=1.0, gpus_per_node=4),
    "interleaved": Megatron(tensor=4, data=2, stages=2, micro_batches=4, chunks=2, compute=1.0, gpus_per_node=4),
    "sequence": Megatron(tensor=8, data=2, compute=1.0, sequence_parallel=True),
    "experts": Megatron(tensor=1, data=16, experts=8, micro_batches=2, compute=1.0),
    "context": Megatron(tensor=2, context=4, data=2, micro_batches=2, compute=1.0),
}


def test_one_forward_one_backward():
    """Figure 4 of Narayanan et al., Efficient Large-Scale Language Model Training (2021), with 4 stages."""
    names = [f"{'F' if one.forward else 'B'}{one.micro_batch + 1}" for one in schedule(4, 1, 8)]
    assert " ".join(names) == "F1 F2 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 B7 B8"
    assert [one.forward for one in schedule(4, 3, 8)] == [True, False] * 8, "the last stage has no warm-up"


def test_the_interleaved_schedule():
    """The same figure: the first of 4 stages with 2 chunks warms up with (4 - 1) * 2 + 4 passes."""
    passes = schedule(4, 0, 8, chunks=2)
    assert [(one.micro_batch, one.chunk) for one in passes[:10]] == [
        *((n, 0) for n in range(4)),
        *((n, 1) for n in range(4)),
        (4, 0),
        (5, 0),
    ]
    assert all(one.forward for one in passes[:10])
    assert Counter((one.forward, one.micro_batch, one.chunk) for one in passes).most_common(1)[0][1] == 1
    assert len(passes) == 2 * 8 * 2
    first_backward = next(one for one in passes if not one.forward)
    assert (first_backward.micro_batch, first_backward.chunk) == (0, 1)


def test_groups_of_a_grid():
    layout = LAYOUTS["1f1b"]
    members = {one.members: one.nodes for one in layout.communicators}
    assert members[0, 1, 2, 3] == 1
    assert members[0, 4] == 2, "data: the same place in each tensor group of a stage"
    assert members[0, 8] == 2, "embedding: the same place in the first and the last stage"
    assert members[tuple(range(16))] == 4


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_runs_and_all_ranks_do_the_same_number_of_operations(name):
    layout = LAYOUTS[name]
    found = simulate(Scenario(layout, 20.0, variation=EVEN))
    assert len(found.steps) >= 5
    before = [one for one in found.records if one.arrived < 18.0]  # all ranks have reported the same by then
    operations = {(one.communicator, one.kind, one.sequence) for one in found.records if one.arrived < 10.0}
    ranks = Counter((one.communicator, one.kind, one.sequence) for one in before)
    members = {one.communicator: one.ranks for one in found.records}
    assert operations
    assert {ranks[one] - members[one[0]] for one in operations} == {0}
    work = sum(one.seconds for one in layout.program(0, 1.0) if isinstance(one, Compute))
    assert work <= found.steps[-1] - found.steps[-2]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_late_rank_costs_about_as_much_as_it_is_late(name):
    loss = true_loss(Scenario(LAYOUTS[name], 60.0, [SlowRank(rank=3, share=0.2)], variation=EVEN))
    assert 0.08 < loss < 0.2 / 1.2, "of a step of computing, transfers and bubbles"


def test_a_slow_adapter_slows_the_groups_that_use_it():
    layout = LAYOUTS["sequence"]
    found = simulate(Scenario(layout, 20.0, [SlowAdapter(host=0, place=2, share=0.25)], variation=EVEN))
    shortest = {}
    for one in found.records:
        if one.kind == "ReduceScatter" and one.nodes == 2 and one.ranks == 2:
            key = one.communicator, one.sequence
            shortest[key] = min(shortest.get(key, 1e12), one.microseconds)
    slow = {one.communicator for one in found.records if one.rank == 2 and one.nodes == 2 and one.ranks == 2}
    took = {name: min(time for key, time in shortest.items() if key[0] == name) for name, _ in shortest}
    ratios = {name: took[name] / min(took.values()) for name in took}
    assert {name for name, ratio in ratios.items() if ratio > 2} == slow
    assert max(ratios.values()) == pytest.approx(4.0, rel=0.05)


def test_events_of_healthy_jobs_are_no_loss_by_faults():
    healthy = [Stall(seconds=1.0, every=10, ranks=(0,)), Compilation(steps=2), Restart(at=30.0)]
    assert true_loss(Scenario(LAYOUTS["ddp"], 20.0, healthy)) == 0.0
    found = simulate(Scenario(LAYOUTS["ddp"], 60.0, healthy, variation=EVEN))
    assert len({one.communicator for one in found.records}) == 2, "a restart has new communicators"
    assert not any(32 < step < 50 for step in found.steps)


def test_what_stops_is_reported_as_begun():
    for event, ranks in ((StoppedRank(rank=5, at=10.0), 15), (DeadAdapter(host=1, place=0, at=10.0), 16)):
        found = simulate(Scenario(LAYOUTS["ddp"], 60.0, [event], variation=EVEN))
        unfinished = [one for one in found.records if one.begun is not None and one.arrived > 30.0]
        first = min(one.sequence for one in unfinished)
        assert len({one.rank for one in unfinished if one.sequence == first}) == ranks
        assert found.steps[-1] < 11.5


def test_a_host_is_late_as_a_whole():
    found = simulate(Scenario(LAYOUTS["ddp"], 20.0, [SlowHost(host=1, share=0.5)], variation=EVEN))
    first = {one.rank: one.microseconds for one in found.records if one.sequence == 24}
    assert max(first[rank] for rank in range(8, 16)) < min(first[rank] for rank in range(8))


def test_records_are_lost_and_keep_their_form():
    whole = simulate(Scenario(LAYOUTS["ddp"], 20.0, variation=EVEN)).records
    part = simulate(Scenario(LAYOUTS["ddp"], 20.0, variation=EVEN, reporting=Reporting(loss=0.3))).records
    assert len(part) == pytest.approx(0.7 * len(whole), rel=0.1)
    assert [decode_record(encode_record(one)) for one in part[:50]] == part[:50]
    assert all(isinstance(one, Record) for one in part)
    assert [one.arrived for one in whole] == sorted(one.arrived for one in whole)
