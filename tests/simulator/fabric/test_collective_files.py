"""Files of NCCL Inspector from the model, as the exporter's decoder reads them."""

import json

from exporter.simulator.fabric.collective_files import CollectiveFiles
from exporter.simulator.fabric.model import FabricModel


def written(tmp_path, *faults, seconds=2.0):
    model = FabricModel(faults)
    files = CollectiveFiles(tmp_path, model.job, "gpu-001", range(8))
    files.write(model.advance(seconds))
    return model, files


def records(files):
    lines = [line for path in sorted(files.folder.iterdir()) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def by_collective(files, kind="ReduceScatter"):
    """Give the microseconds of each rank by the collective's number."""
    found = {}
    for one in records(files):
        if one["coll_perf"]["coll"] == kind:
            times = found.setdefault(one["coll_perf"]["coll_sn"], {})
            times[one["header"]["rank"]] = one["coll_perf"]["coll_exec_time_us"]
    return found


def test_each_rank_of_the_host_has_a_file_with_all_collectives(tmp_path):
    _, files = written(tmp_path)
    found = records(files)
    assert len(list(files.folder.iterdir())) == 8
    assert {(one["header"]["n_ranks"], one["header"]["nnodes"]) for one in found} == {(32, 4)}
    assert {len(times) for times in by_collective(files).values()} == {8}
    assert sorted(by_collective(files)) == list(range(len(by_collective(files))))
    bus = sorted(one["coll_perf"]["coll_busbw_gbs"] for one in found)
    # Eight adapters of 400 Gb/s, of which 98.5 % is data: 394 GB/s for the rank that starts last.
    assert 350 < bus[-1] < 420


def test_a_late_rank_has_the_shortest_times_and_the_others_wait_for_it(tmp_path):
    _, files = written(tmp_path, "late-rank:5")
    shortest = [min(times, key=times.get) for times in by_collective(files).values()]
    assert len(shortest) > 20
    assert shortest.count(5) > 0.8 * len(shortest)


def test_a_slow_link_makes_the_times_of_all_ranks_longer(tmp_path):
    def median(files):
        times = sorted(min(found.values()) for found in by_collective(files).values())
        return times[len(times) // 2]

    _, healthy = written(tmp_path / "healthy")
    _, slow = written(tmp_path / "slow", "degraded-link")
    assert 3 < median(slow) / median(healthy) < 4.2  # without the wait for ranks of other hosts it is 4


def test_a_job_that_begins_again_has_new_processes_and_communicators(tmp_path):
    model, files = written(tmp_path, "hanging-process:3@1s-2s")
    before = records(files)[0]
    files.write(model.advance(7.0))
    files.write(model.advance(1.0))
    after = records(files)
    assert len(list(files.folder.iterdir())) == 8
    assert {one["coll_perf"]["coll_sn"] for one in after} >= {0, 1}
    assert before["header"]["id"] not in {one["header"]["id"] for one in after}
    assert before["metadata"]["pid"] not in {one["metadata"]["pid"] for one in after}
