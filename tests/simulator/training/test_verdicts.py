"""Simulated jobs, judged as records are in production, by `python -m benchmarks.verdicts`."""

import subprocess
import sys

import pytest

from exporter.simulator.training.data_parallel import FullyShardedDataParallel
from exporter.simulator.training.faults import SlowNetwork, SlowRank, StoppedRank
from exporter.simulator.training.hardware import Variation
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.records import encode_record
from exporter.simulator.training.scenario import Scenario, simulate, true_loss
from tests.helpers.paths import ROOT

EVEN = Variation(gpus=0.002, work=0.002, transfers=0.02, pauses=0.0)
LAYOUT = Megatron(tensor=8, data=4, compute=1.0)
COMMAND = [sys.executable, "-m", "benchmarks.verdicts", "--records"]


def judged(*events, seconds=90.0, layout=LAYOUT):
    """Return the lines of the program: seconds, verdict, and who is named."""
    found = simulate(Scenario(layout, seconds, events, variation=EVEN))
    records = b"".join(map(encode_record, found.records))
    done = subprocess.run([*COMMAND, "-"], input=records, capture_output=True, check=True, cwd=ROOT)
    header, *lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert header[:3] == ["seconds", "job", "verdict"]
    return [(float(line[0]), line[2], line[3]) for line in lines]


def test_a_late_rank_of_a_job_that_blocks_is_named_soon_after_it_begins():
    lines = judged(SlowRank(rank=11, share=0.2, since=40.0))
    assert {verdict for seconds, verdict, _ in lines if seconds <= 40} <= {"not_enough_data", "fine"}
    assert [(verdict, who) for seconds, verdict, who in lines if seconds > 40] == [("straggler", "11")]
    assert lines[-1][0] <= 60


@pytest.mark.parametrize(
    ("layout", "late", "verdict"),
    [
        (LAYOUT, 0.03, "network_bound"),
        (LAYOUT, 1.0, "straggler"),
        (FullyShardedDataParallel(32), 0.04, "straggler"),
    ],
    ids=["network", "rank", "network behind computing"],
)
def test_the_verdict_is_what_costs_more(layout, late, verdict):
    """Of a slow network and a late rank that begin together."""
    network, rank = SlowNetwork(share=0.25, since=40.0), SlowRank(rank=11, share=late, since=40.0)
    cost, other = (true_loss(Scenario(layout, 120.0, [one], variation=EVEN), 40.0) for one in (network, rank))
    assert (cost > 3 * other) is (verdict == "network_bound"), "by counting steps with and without the fault"
    assert judged(network, rank, seconds=120.0, layout=layout)[-1][1] == verdict


def test_a_stopped_rank_of_a_job_is_named():
    lines = judged(StoppedRank(rank=11, at=60.0), seconds=260.0)
    assert lines[-1][1:] == ("hang", "11")


def test_a_line_that_is_no_record_is_an_error_that_names_it():
    done = subprocess.run([*COMMAND, "-"], input=b'{"arrived": 1}\n', capture_output=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout.decode().count("\n")) == (1, 1)
    assert done.stderr.decode() == "-:1: Object missing required field `host`\n"


@pytest.mark.parametrize("arguments", [[], ["--records", "nothing/there"]])
def test_wrong_arguments_are_errors(arguments):
    done = subprocess.run([*COMMAND[:3], *arguments], capture_output=True, check=False, cwd=ROOT)
    assert done.returncode in {1, 2}
    assert b"Traceback" not in done.stderr
