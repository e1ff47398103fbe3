"""Verdicts on simulated jobs of each kind of parallelism, healthy and with a fault: right names, and the true loss."""

from statistics import median

import pytest

from benchmarks.verdicts import Replay
from exporter.meaning.training.verdicts import Verdict
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import Compilation, SlowHost, SlowNetwork, SlowRank, Stall, StoppedRank
from exporter.simulator.training.hardware import Variation
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.records import Reporting
from exporter.simulator.training.scenario import Scenario, simulate, true_loss

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LAYOUTS = {
    "ddp": DistributedDataParallel(32),
    "fsdp": FullyShardedDataParallel(32),
    "pipeline": Megatron(tensor=8, data=4, stages=2),
    "experts": Megatron(tensor=1, data=32, experts=16, micro_batches=2),
}
ALARMS = {Verdict.STRAGGLER, Verdict.NETWORK, Verdict.HANG}


def judged(scenario):
    """Return the verdicts over time, who is named with each, and the loss."""
    given = Replay().judgements(simulate(scenario).records, scenario.seconds)
    return [(one.time, one.judgement.verdict, names(one.judgement), one.judgement.loss) for one in given]


def names(found):
    is_host = found.verdict is Verdict.STRAGGLER and found.hosts
    return tuple(found.hosts) if is_host else tuple(one.rank for one in found.ranks)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("events", "options"),
    [
        ([], {"variation": Variation(gpus=0.015)}),
        ([], {"reporting": Reporting(loss=0.3)}),
        ([Compilation(steps=3, factor=8), Stall(seconds=5.0, every=40, ranks=(0,))], {}),
    ],
    ids=["GPUs differ", "records are lost", "compilation and checkpoints"],
)
def test_a_healthy_job_gives_no_alarm(layout, events, options):
    given = judged(Scenario(LAYOUTS[layout], 120.0, events, **options))
    assert [one for one in given if one[1] in ALARMS] == []
    assert given[-1][1] in {Verdict.FINE, Verdict.IMBALANCED}


@pytest.mark.parametrize(
    ("layout", "event", "named", "factor"),
    [
        ("ddp", SlowRank(rank=3, share=0.12), ("3",), 2),
        ("fsdp", SlowRank(rank=3, share=0.12), ("3",), 2),
        ("pipeline", SlowRank(rank=3, share=0.12), ("3",), 1.35),
        ("experts", SlowRank(rank=3, share=0.12), ("3",), 1.35),
        ("pipeline", SlowHost(host=1, share=0.15), ("gpu-001",), 1.35),
        ("experts", SlowHost(host=1, share=0.15), ("gpu-001",), 1.5),  # half of each group: the median may be of it
    ],
)
def test_a_late_rank_or_host_is_named_with_its_loss(layout, event, named, factor):
    scenario = Scenario(LAYOUTS[layout], 120.0, [event], reporting=Reporting(loss=0.05))
    stragglers = [one for one in judged(scenario) if one[1] is Verdict.STRAGGLER]
    assert {one[2] for one in stragglers if one[0] > 45} == {named}
    assert stragglers[-1][0] > 110
    assert 1 / factor < median(one[3] for one in stragglers) / true_loss(scenario) < factor


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slow_network_is_no_late_rank(layout):
    given = judged(Scenario(LAYOUTS[layout], 100.0, [SlowNetwork(share=0.4, since=40.0)]))
    assert {one[1] for one in given if one[1] in ALARMS} == {Verdict.NETWORK}
    assert min(one[0] for one in given if one[1] is Verdict.NETWORK) < 75


@pytest.mark.parametrize("layout", ["fsdp", "pipeline"])
def test_the_rank_that_stops_is_named_and_no_stage_that_waits_for_it(layout):
    given = judged(Scenario(LAYOUTS[layout], 240.0, [StoppedRank(rank=5, at=40.0)]))
    hangs = [one[2] for one in given if one[1] is Verdict.HANG]
    assert hangs[-1] == ("5",)
    assert hangs.count(("5",)) >= 0.9 * len(hangs)
    assert {one[1] for one in given if one[1] in ALARMS} == {Verdict.HANG}
