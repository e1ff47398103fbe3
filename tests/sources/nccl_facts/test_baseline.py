"""Baselines of nccl-tests: accepted and rejected files, and expectations for sizes in between."""

import pytest

from exporter.config.errors import ConfigError, RuleError
from exporter.core.table import (
    Column,
    Rows,
    Samples,
    Table,
)
from exporter.daemon.loading import check, load_config
from exporter.meaning.training import jobs
from exporter.meaning.training.baseline import MAX_SIZE, baseline
from exporter.sources.nccl.baseline import load_baselines
from exporter.sources.nccl.metrics import STREAMS
from tests.helpers.paths import FIXTURES
from tests.helpers.samples import sample_path

FOLDER = FIXTURES / "nccl-formats"
MIB = 1 << 20


def table(rows, hosts=("n1", "n2"), name="all_reduce_perf", ranks=2):
    """Return an output of nccl-tests; rows are size and bus bandwidth in GB/s."""
    lines = [f"# Collective test starting: {name}"] if name else []
    for rank in range(ranks):
        host = hosts[rank % len(hosts)]
        lines.append(f"#  Rank {rank:2} Group  0 Pid {100 + rank} on {host} device  0 [0000:0f:00] NVIDIA H100")
    lines.append("#       size   count  type redop root time algbw busbw #wrong time algbw busbw #wrong")
    lines += [
        f" {size} {size // 4} float sum -1 100.0 {speed} {speed} 0 100.0 {speed} {speed} 0" for size, speed in rows
    ]
    return "\n".join([*lines, "# Out of bounds values : 0 OK", ""]).encode()


def test_text_and_json_runs_are_read(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "reduce.txt").write_bytes(table([(MIB, 10.5), (2 * MIB, 20)]))
    (tmp_path / "b" / "run.json").write_bytes((FOLDER / "tests-json-v3.json").read_bytes())
    text, written = load_baselines(["b/*.txt", str(tmp_path / "b" / "run.json")], tmp_path)
    assert text == {("AllReduce", MIB): 10.5e9, ("AllReduce", 2 * MIB): 20e9}
    assert written
    assert all(kind in {"AllReduce", "AllGather", "ReduceScatter"} for kind, _ in written)


def test_file_that_matches_several_patterns_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(table([(MIB, 10)]))
    assert len(load_baselines(["a.txt", "*.txt"], tmp_path)) == 1


def test_collective_may_be_in_the_file_name(tmp_path):
    (tmp_path / "all_gather-2nodes.txt").write_bytes(table([(MIB, 10)], name=None))
    assert load_baselines(["*.txt"], tmp_path) == [{("AllGather", MIB): 10e9}]
    (tmp_path / "all_gather-2nodes.txt").rename(tmp_path / "run.txt")
    with pytest.raises(ConfigError, match=r"run\.txt: not a baseline: the output does not name the collective"):
        load_baselines(["*.txt"], tmp_path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no row with a size"),
        (b"\x80\x04garbage", "no row with a size"),
        (b"{", "not a baseline"),
        (table([(MIB, 10)], ranks=1, hosts=("n1",)), "one rank alone"),
        (table([(MIB, 10)], hosts=("n1",)), "all ranks ran on one node"),
        (table([(MIB, 10)]) + b"n1: Test NCCL failure common.cu:303 'remote process exited'\n", "the test failed"),
        (table([(MIB, 0)]), "no bus bandwidth above 0"),
        ((FOLDER / "tests-twice.txt").read_bytes(), "ranks are listed twice"),
        ((FOLDER / "tests-wrong.txt").read_bytes(), "wrong"),
        (b"#  size  count  type  time:avg(us)\n", "nccom-test"),
    ],
)
def test_unusable_files_are_rejected_with_path_and_reason(tmp_path, data, why):
    (tmp_path / "all_reduce.txt").write_bytes(data)
    with pytest.raises(ConfigError, match=f"all_reduce\\.txt: .*{why}"):
        load_baselines(["all_reduce.txt"], tmp_path)


def test_several_runs_of_a_file_are_all_read_or_the_file_is_rejected(tmp_path):
    start = b"# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n"
    runs = [start + table([(MIB, 10)]), start + table([(MIB, 4)], name="all_gather_perf")]
    (tmp_path / "a.txt").write_bytes(b"".join(runs).replace(b" sum -1 100.0 4", b" none -1 100.0 4"))
    assert load_baselines(["a.txt"], tmp_path) == [{("AllReduce", MIB): 10e9, ("AllGather", MIB): 4e9}]
    (tmp_path / "a.txt").write_bytes(b"".join(runs) + start + table([(MIB, 90)], hosts=("n1",)))
    with pytest.raises(ConfigError, match="run 3 of 3: all ranks ran on one node"):
        load_baselines(["a.txt"], tmp_path)


def test_unreadable_files_are_rejected(tmp_path):
    with pytest.raises(RuleError, match=r"\[1\]: file not found: .*missing"):
        load_baselines(["none-*.txt", "missing.txt"], tmp_path)
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ConfigError, match=r"folder\.txt: cannot be read"):
        load_baselines(["folder.txt"], tmp_path)


def test_gaps_between_sizes_use_the_lower_neighbour():
    made = baseline([{("AllReduce", MIB): 10.0, ("AllReduce", 8 * MIB): 40.0, ("AllReduce", 16 * MIB): 30.0}])
    speeds = made.measured
    assert [speeds["AllReduce", size * MIB] for size in (1, 2, 4, 8, 16, 32)] == [10, 10, 10, 40, 30, 30]
    assert speeds["AllReduce", MAX_SIZE] == 30
    assert ("AllReduce", MIB // 2) not in speeds
    assert ("AllReduce", MAX_SIZE * 2) not in speeds


def test_bandwidth_cliff_between_measured_sizes():
    """A run that falls from 29.5 to 5.3 GB/s at 64 MiB, measured at every fourth power only."""
    speeds = baseline([{("AllReduce", 16 * MIB): 29.5e9, ("AllReduce", 64 * MIB): 5.3e9}]).measured
    assert [speeds["AllReduce", size * MIB] for size in (16, 32, 64, 128)] == [29.5e9, 5.3e9, 5.3e9, 5.3e9]


def test_best_run_and_lowest_size_of_a_bucket_are_used():
    runs = [{("AllReduce", 4 * MIB): 10.0, ("AllReduce", 6 * MIB): 30.0}, {("AllReduce", 4 * MIB): 12.0}]
    assert baseline(runs).measured["AllReduce", 4 * MIB] == 12.0
    assert baseline(runs[::-1]).measured["AllReduce", 4 * MIB] == 12.0


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "run-7.txt").write_bytes(table([(MIB, 10)]))
    (tmp_path / "newest.txt").symlink_to("run-7.txt")
    assert load_baselines(["newest.txt"], tmp_path) == [{("AllReduce", MIB): 10e9}]


@pytest.mark.parametrize(("reached", "verdict"), [(40e9, "network_bound"), (2e9, "fine")])
def test_network_verdict_uses_the_baseline(reached, verdict):
    """AllReduce of 1 MiB over two ranks in 500 microseconds: 2.1 GB/s on the bus."""
    made = baseline([{("AllReduce", MIB): reached}])
    state, tables = None, ()
    for tick in range(8):
        timings = [(tick * 30 + number, MIB, 500, 1) for number in range(30)]
        keys = [("j", "0x1", "AllReduce", str(rank)) for rank in range(2)]
        columns = {
            "operations": Column(STREAMS.metrics["operations"], [Samples(tuple(timings))] * 2),
            "stream_info": Column(
                STREAMS.metrics["stream_info"], [("2", "2", f"n{rank}", "", "") for rank in range(2)]
            ),
        }
        timings = Table(STREAMS, Rows(STREAMS.labels, keys, {}), columns, 5.0 * tick)
        state, tables = jobs.step(jobs.JobKnowledge(made), state, timings)
    found = {
        key[1]: one.columns["verdict"].values[place]
        for one in tables
        if "verdict" in one.columns
        for place, key in enumerate(one.rows.keys)
    }
    assert [name for name, holds in found.items() if holds] == [verdict]
    (ratio,) = [one.columns["network_ratio"].values[0] for one in tables if "network_ratio" in one.columns]
    assert ratio == pytest.approx(MIB / 500e-6 / reached)


def test_other_kinds_and_small_sizes_are_omitted():
    runs = [{("AllReduce", 1024): 1.0, ("SendRecv", MIB): 5.0, ("AllGather", MIB): 0.0}]
    assert baseline(runs).measured == {}
    assert baseline([]).measured == {}


@pytest.mark.parametrize(
    ("name", "size", "bandwidth"),
    [
        ("nccl-formats/tests-2026-all_reduce.txt", 4 << 30, 294.91e9),
        ("corpus/nccl/nccl-tests/oci-h100-2node-allreduce-nvls-464.txt", 16 << 30, 471e9),
    ],
)
def test_sample_runs_over_nodes_are_baselines(request, name, size, bandwidth):
    path = sample_path(request, name)
    (found,) = load_baselines([path.name], path.parent)
    assert baseline([found]).measured["AllReduce", size] == pytest.approx(bandwidth, rel=0.03)


@pytest.mark.parametrize(
    "name",
    [
        "nccl-formats/tests-twice.txt",
        "nccl-formats/tests-nccom.txt",
        "nccl-formats/tests-fork.json",
        "corpus/nccl/nccl-tests/2022-errorcol-nompi-duplicate-rank0.txt",
        "corpus/nccl/nccl-tests/aws-neuron-nccom-test.txt",
        "corpus/nccl/nccl-tests/meta-fork-json-pr318.txt",
    ],
)
def test_sample_outputs_that_are_not_baselines_are_rejected(request, name):
    path = sample_path(request, name)
    with pytest.raises(ConfigError, match="not a baseline"):
        load_baselines([path.name], path.parent)


def configured(tmp_path, text):
    path = tmp_path / "config.yml"
    path.write_text(text)
    return path


def test_baseline_paths_are_relative_to_the_configuration(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "all_reduce.txt").write_bytes(table([(MIB, 10)]))
    path = configured(tmp_path, "sources: {nccl: {baseline: ['runs/*.txt']}}\n")
    assert load_config(path).measured == [{("AllReduce", MIB): 10e9}]
    assert check(path, None)[0].startswith(f"{path}: valid")


def test_unusable_baseline_is_a_configuration_error(tmp_path):
    (tmp_path / "all_reduce.txt").write_bytes(table([(MIB, 10)], hosts=("n1",)))
    path = configured(tmp_path, "sources:\n  nccl:\n    baseline:\n      - all_reduce.txt\n")
    with pytest.raises(ConfigError, match=r"all_reduce\.txt: not a baseline: all ranks ran on one node"):
        check(path, None)
    (tmp_path / "all_reduce.txt").unlink()
    with pytest.raises(ConfigError, match=r"config\.yml:4: sources\.nccl\.baseline\[0\]: file not found"):
        check(path, None)
