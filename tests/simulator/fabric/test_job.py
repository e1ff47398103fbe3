"""The job on the fabric: steps, waits for links that come back, and hangs with their restarts."""

import pytest

from exporter.simulator.fabric.faults import Plan, parse_fault
from exporter.simulator.fabric.job import RESTART, Job
from exporter.simulator.fabric.topology import Shape, Topology
from exporter.simulator.training.data_parallel import DistributedDataParallel
from exporter.simulator.training.megatron import Megatron

CLUSTER = Topology(Shape())


def job(*faults, layout=None):
    return Job(Plan([parse_fault(fault, CLUSTER) for fault in faults], CLUSTER), layout)


def run(one, seconds, since=0.0):
    """Run from change to change, as a model does; return the collectives."""
    found, time = [], since
    while time < seconds:
        until = min(seconds, one._plan.next_change(time))
        found += one.run(time, until)
        time = until
    return found


def test_transfers_are_as_long_as_their_collectives():
    one = job()
    ended = run(one, 2.0)
    took = sorted(found.end - max(found.starts.values()) for found in ended)
    assert len(ended) == len(one.transfers) > 100
    assert sorted(found.end - found.begin for found in one.transfers) == pytest.approx(took)


def test_a_ring_moves_the_bytes_of_the_collective():
    one = job(layout=DistributedDataParallel(32, compute=0.2, buckets=2, bucket_bytes=64 << 20))
    run(one, 1.0)
    # AllReduce, nccl-tests doc/PERFORMANCE.md: 2 (n - 1) / n bytes for each byte.
    assert {found.moved for found in one.transfers} == {2 * 31 / 32 * (64 << 20)}


def test_a_flapping_link_delays_what_needs_it_until_it_is_up():
    one = job("flapping-link@2s")
    run(one, 9.0)
    begun = [found.begin for found in one.transfers]
    assert not [begin for begin in begun if 2.1 < begin < 7.0]
    assert 7.0 in begun
    steps = [later - earlier for earlier, later in zip(one.steps, one.steps[1:], strict=False)]
    assert 5.0 < max(steps) < 6.0
    assert not one.hangs


@pytest.mark.parametrize(
    "fault", ["hanging-process:19@2s-8s", "hanging-link:gpu-004/2@2s-8s", "missing-port:gpu-004@2s-8s"]
)
def test_a_job_that_hangs_begins_again_after_what_made_it_hang(fault):
    one = job(fault)
    run(one, 6.0)
    assert one.hangs
    before = len(one.steps)
    assert before in {3, 4, 5}
    assert max(one.steps) < 3.0
    run(one, 20.0, since=6.0)
    assert not one.hangs
    assert one.runs == 2
    begun_again = one.steps[before:]
    assert begun_again[0] > 8.0 + RESTART
    assert len(begun_again) > 10


def test_a_job_that_hangs_by_one_fault_does_not_begin_again_at_the_end_of_another():
    one = job("hanging-process:19@2s", "tcp@4s-6s")
    run(one, 10.0)
    assert one.hangs
    assert one.runs == 1


def test_a_job_without_collectives_between_hosts_does_not_use_the_fabric():
    layout = DistributedDataParallel(8, compute=0.2, buckets=2)
    one = job("half-adapters", layout=layout)
    run(one, 1.0)
    assert one.transfers == []
    assert one.steps


def test_other_kinds_of_parallelism_run_on_the_fabric():
    one = job(layout=Megatron(tensor=8, stages=2, data=2))
    run(one, 5.0)
    assert len(one.steps) > 1
    hosts = {frozenset(end.device for ends in found.exchange.connections for end in ends) for found in one.transfers}
    assert {frozenset({"gpu-001", "gpu-002"}), frozenset({"gpu-003", "gpu-004"})} < hosts  # the data groups of a stage
