"""Dumps of the Flight Recorder from the model, as the exporter's decoder reads them."""

import time

import pytest

from exporter.nccl.flight_recorder import parse_dump
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.recorder_dumps import EVERY, RecorderDumps
from exporter.sources.nccl.readers.recorder_progress import waited


def dumps_after(folder, fault, seconds, host="gpu-003"):
    """Run the model with a fault from 5 s on; return the dumps of a host by rank."""
    model = FabricModel([fault])
    ranks = model.topology.ranks_of(host)
    written = RecorderDumps(folder, model.job, ranks)
    for _ in range(round(seconds)):
        written.write(model.advance(1.0), model.time)
    paths = {rank: written.folder / f"nccl_trace_rank_{rank}.json" for rank in ranks}
    return {rank: parse_dump(path.read_bytes()) for rank, path in paths.items() if path.exists()}


def states(dump, since):
    """Return the states of collectives by number, from one on."""
    return {one.sequence: one.state for one in dump.entries if one.sequence >= since}


def last(dump):
    """Return number and state of the last collective."""
    return max(states(dump, 0).items())


@pytest.mark.parametrize("fault", ["late-rank:5", "hanging-process:19@5s-30s"])
def test_a_job_that_runs_writes_none(tmp_path, fault):
    assert dumps_after(tmp_path, fault, 2 * EVERY) == {}


def test_a_process_that_hangs_has_begun_less_than_the_ranks_that_wait(tmp_path):
    dumps = dumps_after(tmp_path, "hanging-process:19@5s", EVERY + 15)
    assert sorted(dumps) == list(range(16, 24))
    assert {one.bad for one in dumps.values()} == {0}
    own, state = last(dumps[19])
    assert state == "completed"
    others = [states(dump, own + 1) for rank, dump in dumps.items() if rank != 19]
    assert others == [{own + 1: "started", own + 2: "scheduled"}] * 7, "FSDP gathers a layer ahead"


def test_with_a_link_that_hangs_all_have_begun_the_same(tmp_path):
    dumps = dumps_after(tmp_path, "hanging-link:gpu-004/2@5s", EVERY + 15)
    (number,) = {last(dump)[0] for dump in dumps.values()}
    assert {states(dump, number - 1)[number - 1] for dump in dumps.values()} == {"started"}


def test_a_dump_shows_how_long_the_ranks_have_waited(tmp_path):
    dumps = dumps_after(tmp_path, "hanging-process:19@5s", EVERY + 6)
    assert waited(dumps[16].entries, time.time()) == pytest.approx(EVERY, abs=5)
    assert waited(dumps[19].entries, time.time()) == 0
