"""The execution of programs, against times that are computed by hand."""

import pytest

from exporter.simulator.training.engine import NEVER, Execution, Machine
from exporter.simulator.training.programs import CommunicatorLayout, Compute, Run, Start, Wait

TRANSFER = 0.5


def executed(programs, until=1e9, steps=1, work=None, transfer=TRANSFER):
    """Return the collectives of some steps by kind and sequence number, and the execution."""
    ranks = len(programs)
    machine = Machine(
        lambda rank, step, _: programs[rank] if step < steps else (),
        lambda rank, _, seconds: seconds * (work or [1.0] * ranks)[rank],
        lambda *_: transfer,
    )
    execution = Execution([CommunicatorLayout(tuple(range(ranks)), 1)], machine, ranks, 0.0)
    return {(one.kind, one.sequence): one for one in execution.run(until)}, execution


def test_all_ranks_of_a_blocking_collective_end_a_transfer_after_the_last_start():
    program = [Compute(1.0), Run(0, "AllReduce", 8), Compute(1.0)]
    found, execution = executed([program, program], work=[1.0, 1.25])
    assert found["AllReduce", 0].starts == {0: 1.0, 1: 1.25}
    assert found["AllReduce", 0].end == 1.75
    assert execution.steps == [2.75]


def test_computing_goes_on_until_the_program_waits():
    program = [Compute(1.0), Start(0, "AllReduce", 8, "a"), Compute(2.0), Wait("a"), Compute(1.0)]
    found, execution = executed([program, program], work=[1.0, 1.1])
    assert found["AllReduce", 0].end == pytest.approx(1.6), "the first rank waits for it while it computes"
    assert execution.steps == [pytest.approx(4.0)]


def test_collectives_of_a_communicator_run_one_after_the_other():
    program = [Start(0, "AllReduce", 8, "a"), Compute(0.1), Start(0, "AllReduce", 8, "b"), Wait("a"), Wait("b")]
    found, execution = executed([program, program], work=[1.0, 3.0])
    assert found["AllReduce", 0].end == 0.5
    assert found["AllReduce", 1].starts == {0: 0.5, 1: 0.5}, "both had it queued"
    assert found["AllReduce", 0].reached == {0: 0.0, 1: 0.0}
    assert found["AllReduce", 1].reached == pytest.approx({0: 0.1, 1: 0.3}), "when the programs were there"
    assert execution.steps == [1.0]


def test_lateness_is_carried_to_the_end_of_an_overlapped_pass_and_no_further():
    program = [*(one for n in range(3) for one in (Compute(1.0), Start(0, "AllReduce", 8, f"{n}")))]
    program += [Wait(f"{n}") for n in range(3)]
    found, _ = executed([program, program], steps=2, work=[1.0, 1.1], transfer=0.0)
    late = [found["AllReduce", n].starts[1] - found["AllReduce", n].starts[0] for n in range(6)]
    assert late == pytest.approx([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])


def test_a_rank_that_stops_leaves_collectives_open_that_others_began():
    program = [Compute(1.0), Run(0, "AllReduce", 8)]
    machine_stops = [1.0, NEVER]
    found, _ = executed([program, program], work=machine_stops)
    assert (found["AllReduce", 0].starts, found["AllReduce", 0].end) == ({0: 1.0}, NEVER)


def test_a_transfer_that_never_ends_leaves_what_all_ranks_began():
    program = [Compute(1.0), Run(0, "AllReduce", 8)]
    found, _ = executed([program, program], transfer=NEVER)
    assert (found["AllReduce", 0].starts, found["AllReduce", 0].end) == ({0: 1.0, 1: 1.0}, NEVER)


def test_processes_put_a_step_on_the_streams_while_the_gpu_works_on_the_one_before():
    program = [Compute(1.0), Run(0, "AllReduce", 8)]
    found, _ = executed([program, program], steps=3)
    assert [found["AllReduce", n].enqueued[0] for n in range(3)] == [0.0, 0.0, 1.5]
