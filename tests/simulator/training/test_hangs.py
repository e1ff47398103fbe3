"""Hangs of simulated jobs of each kind of parallelism: the right rank is named, or none, whatever records are lost."""

import pytest

from benchmarks.verdicts import Replay
from exporter.meaning.training.verdicts import Verdict
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import DeadAdapter, Stall, StoppedRank
from exporter.simulator.training.islands import Islands
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.records import Reporting
from exporter.simulator.training.scenario import Scenario, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = FullyShardedDataParallel(16, layers=8)
LAYOUTS = {
    "ddp": DistributedDataParallel(16),
    "fsdp": SMALL,
    "1f1b": Megatron(tensor=8, data=2, stages=2, compute=3.0, micro_batches=4),
    "four stages": Megatron(tensor=2, data=2, stages=4, micro_batches=8),
    "interleaved": Megatron(tensor=4, data=2, stages=2, chunks=2, micro_batches=4, sequence_parallel=True),
    "experts": Megatron(tensor=1, data=32, experts=16, micro_batches=2),
    "context": Megatron(tensor=2, context=4, data=2, micro_batches=2),
    "islands": Islands([SMALL, SMALL]),
}
RANK = 5
BEGIN = 45.0


def hangs(records, seconds=240.0):
    """Return who is named in each verdict of a hang, and the time of the first."""
    found = [one for one in Replay().judgements(records, seconds) if one.judgement.verdict is Verdict.HANG]
    return [tuple(rank.rank for rank in one.judgement.ranks) for one in found], found[0].time if found else None


def records(layout, *events, loss=0.0, seed=1):
    return simulate(Scenario(LAYOUTS[layout], 240.0, events, reporting=Reporting(loss=loss), seed=seed)).records


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_that_stops_is_named(layout, seed):
    rank = (RANK + 7 * seed) % LAYOUTS[layout].ranks
    named, first = hangs(records(layout, StoppedRank(rank=rank, at=BEGIN + seed), seed=seed))
    assert set(named) <= {(), (str(rank),)}
    assert named.count((str(rank),)) >= 0.9 * len(named)
    assert BEGIN + 120 <= first <= BEGIN + 145


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_a_dead_adapter_all_wait_and_no_rank_is_named(layout):
    named, first = hangs(records(layout, DeadAdapter(host=0, place=RANK, at=BEGIN)))
    assert set(named) == {()}
    assert BEGIN + 120 <= first <= BEGIN + 145


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", ["stopped", "dead"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lost_records_name_no_other_rank(layout, fault, seed):
    rank = RANK + seed
    event = (
        StoppedRank(rank=rank, at=BEGIN)
        if fault == "stopped"
        else DeadAdapter(host=rank // 8, place=rank % 8, at=BEGIN)
    )
    named, first = hangs(records(layout, event, loss=0.3, seed=seed))
    assert set(named) <= {(), (str(rank),)}
    assert first <= BEGIN + 145


@pytest.mark.parametrize("fault", [StoppedRank(rank=RANK, at=BEGIN), DeadAdapter(host=0, place=RANK, at=BEGIN)])
@pytest.mark.parametrize("layout", ["1f1b", "four stages", "interleaved"])
def test_in_a_pipeline_without_records_of_sends_no_other_rank_is_named(layout, fault):
    found = [one for one in records(layout, fault) if one.kind != "SendRecv"]
    named, _ = hangs(found)
    assert named
    assert set(named) <= {(), (str(RANK),)}


@pytest.mark.parametrize("layout", ["fsdp", "1f1b", "islands"])
@pytest.mark.parametrize(
    "pause",
    [Stall(seconds=100.0, every=10**6, ranks=(0,), first=8), Stall(seconds=170.0, every=10**6, first=8)],
    ids=["one rank", "all ranks"],
)
def test_a_long_pause_is_no_hang(layout, pause):
    assert hangs(records(layout, pause)) == ([], None)
