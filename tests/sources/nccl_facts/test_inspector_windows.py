"""Inspector's text files: minimum and maximum over GPUs, classes and sizes, and files that are not rewritten."""

import os
import time

import pytest

from exporter.sources.common import job_files
from exporter.sources.nccl_facts import inspector_windows
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nccl_facts.inspector_windows import class_of, size_label
from exporter.sources.nccl_facts.metrics import TEXT_LINES, TEXTFILES, WINDOWS
from tests.helpers.paths import FIXTURES
from tests.helpers.samples import sample_path
from tests.sources.nccl_facts.test_source import Bench

FOLDER = FIXTURES / "nccl-formats"
NOW = 1_800_000_000.0
LABELS = 'version="v5.1",slurm_job_id="42",node="n1",gpu="GPU0",comm_name="dp"'


@pytest.fixture
async def bench(tmp_path, monkeypatch):
    """A source with an empty folder, and a wall clock that the test sets."""
    monkeypatch.setattr(nccl_facts, "time", lambda: made.now)
    made = Bench(tmp_path, logs=(), textfiles=(str(tmp_path),))
    made.now = NOW
    yield made
    await made.source.close()


def put(path, *lines, age=0.0, data=None):
    """Write a file with the modification time of `age` seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if data is not None else "".join(f"{line}\n" for line in lines).encode())
    os.utime(path, (NOW - age, NOW - age))
    return path


def window(bandwidth, microseconds, size="512-513MB", ranks=16, nodes=2, kind="AllReduce"):
    labels = f'{LABELS},n_nodes="{nodes}",nranks="{ranks}",collective="{kind}",message_size="{size}"'
    return (
        f"nccl_bus_bandwidth_gbs{{{labels}}} {bandwidth}",
        f"nccl_collective_exec_time_microseconds{{{labels}}} {microseconds}",
    )


def file(folder, gpu):
    return folder / f"nccl_inspector_metrics_GPU-{gpu}.prom"


async def test_minimum_and_maximum_over_gpus_are_exported(bench):
    put(file(bench.folder / "llama", 1), *window(90.5, 11000))
    put(file(bench.folder / "llama", 2), *window(45.25, 22000))
    put(file(bench.folder / "llama", 3), *window(300, 900, ranks=8, nodes=1))
    await bench.read()
    row, inside = ("llama", "AllReduce", "512MiB", "mixed"), ("llama", "AllReduce", "512MiB", "one_node")
    assert bench.cells(WINDOWS, "shortest_seconds") == {row: pytest.approx(0.011), inside: pytest.approx(0.0009)}
    assert bench.cells(WINDOWS, "longest_seconds")[row] == pytest.approx(0.022)
    assert bench.cells(WINDOWS, "highest_bus_bandwidth_bytes_per_second")[row] == pytest.approx(90.5e9)
    assert bench.cells(WINDOWS, "lowest_bus_bandwidth_bytes_per_second")[row] == pytest.approx(45.25e9)
    assert bench.cells(WINDOWS, "gpus") == {row: 2, inside: 1}


async def test_sizes_are_those_of_nccl_tests(bench):
    put(file(bench.folder / "j", 1), *window(1, 1, size="64-65MB", kind="AllGather"))  # of each of 16 ranks
    await bench.read()
    assert list(bench.cells(WINDOWS, "gpus")) == [("j", "AllGather", "1GiB", "mixed")]


async def test_single_rank_communicators_are_skipped(bench):
    put(file(bench.folder / "j", 1), *window(0, 5, ranks=1, nodes=1))
    await bench.read()
    assert bench.cells(WINDOWS, "gpus") == {}
    assert bench.cells(TEXT_LINES, "lines_total")["skipped",] == 2


async def test_empty_messages_and_other_statistics_are_skipped(bench):
    put(file(bench.folder / "j", 1), *window(0, 5, size="0B"))
    put(file(bench.folder / "j", 2), data=(FOLDER / "inspector-fork-v5.5.prom").read_bytes() + b"\n")
    await bench.read()
    assert bench.cells(WINDOWS, "gpus") == {}


@pytest.mark.parametrize("newer", [1, 2])
async def test_age_of_a_gpu_is_that_of_its_newest_file(bench, newer):
    for place in (1, 2):
        put(file(bench.folder / f"j{place}", 7), *window(1, 1), age=10 if place == newer else 1000)
    await bench.read()
    assert bench.cells(TEXTFILES, "age_seconds") == {("GPU-7",): 10.0}


async def test_values_of_a_stale_file_expire_and_its_age_remains(bench):
    path = put(file(bench.folder / "j", 1), *window(90, 11000))
    await bench.read()
    assert bench.cells(TEXTFILES, "age_seconds") == {("GPU-1",): 0.0}
    bench.now += inspector_windows.STALE_SECONDS + 1
    await bench.read()
    assert bench.cells(WINDOWS, "gpus") == {}
    assert bench.cells(TEXTFILES, "age_seconds") == {("GPU-1",): inspector_windows.STALE_SECONDS + 1}
    bench.now += inspector_windows.MAX_AGE_SECONDS
    await bench.read()
    assert bench.cells(TEXTFILES, "age_seconds") == {}
    path.unlink()
    await bench.read()
    assert bench.reading.tables == []


async def test_file_from_the_future_is_not_exported(bench):
    put(file(bench.folder / "j", 1), *window(90, 11000), age=-3600)
    await bench.read()
    assert (bench.cells(WINDOWS, "gpus"), bench.cells(TEXTFILES, "age_seconds")) == ({}, {})


async def test_file_being_written_keeps_its_previous_values(bench):
    path = put(file(bench.folder / "j", 1), *window(90, 11000))
    await bench.read()
    for data in (b"", b"\n".join(one.encode() for one in window(10, 1000))):
        put(path, data=data, age=-1)
        await bench.read()
        assert list(bench.cells(WINDOWS, "longest_seconds").values()) == [pytest.approx(0.011)]
    put(path, *window(10, 1000), age=-1)
    await bench.read()
    assert list(bench.cells(WINDOWS, "longest_seconds").values()) == [pytest.approx(0.001)]


async def test_inspector_drop_counts_are_exported(bench):
    put(file(bench.folder / "j", 1), data=(FOLDER / "nccl_inspector_metrics_GPU-1.prom").read_bytes())
    await bench.read()
    assert bench.cells(TEXTFILES, "collectives_total") == {("GPU-1",): 9000}
    assert bench.cells(TEXTFILES, "collectives_dropped_total") == {("GPU-1",): 17}
    assert bench.cells(TEXT_LINES, "lines_total")["truncated",] == 1


async def test_per_operation_series_of_2_29_are_read(bench):
    put(file(bench.folder, 4), data=(FOLDER / "inspector-2.29.7.prom").read_bytes() + b"\n")
    await bench.read()
    row = ("7", "AllReduce", "2GiB", "one_node")  # only the file names the job
    assert bench.cells(WINDOWS, "shortest_seconds") == {row: pytest.approx(0.021421)}
    assert bench.cells(WINDOWS, "lowest_bus_bandwidth_bytes_per_second") == {row: pytest.approx(175.4375e9)}


async def test_job_is_named_by_the_folder_not_the_file(bench):
    put(file(bench.folder / "mine", 1), *window(90, 11000))
    put(file(bench.folder, 2), *window(90, 11000))
    await bench.read()
    assert {key[0] for key in bench.cells(WINDOWS, "gpus")} == {"mine", "42"}


async def test_rows_and_files_are_bounded_and_the_limit_is_reported(bench):
    sizes = [f"{place}-{place + 1}KB" for place in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)]
    for gpu in range(inspector_windows.MAX_JOBS + 2):
        lines = [line.replace('"42"', f'"{gpu}"') for size in sizes for line in window(1, 1, size=size)]
        put(file(bench.folder, gpu), *lines)
    await bench.read()
    assert len({key[0] for key in bench.cells(WINDOWS, "gpus")}) == inspector_windows.MAX_JOBS
    assert bench.failures() == {("", "over_limit")}
    for gpu in range(100, 100 + inspector_windows.MAX_FILES):
        put(file(bench.folder, gpu), *window(1, 1), age=-1)
    await bench.read()
    assert len(bench.cells(TEXTFILES, "age_seconds")) == inspector_windows.MAX_FILES


async def test_folders_with_too_many_entries_are_reported(bench, monkeypatch):
    monkeypatch.setattr(job_files, "MAX_ENTRIES", 2)
    for gpu in range(3):
        put(file(bench.folder / "llama", gpu), *window(90.5, 11000))
    await bench.read()
    assert bench.failures() == {("", "too_many_files")}
    assert len(bench.cells(TEXTFILES, "age_seconds")) == 2


async def test_hostile_files_are_harmless(bench):
    put(file(bench.folder / "j", 1), data=b"x" * (9 << 20))
    put(file(bench.folder / "j", 2), data=b'nccl_bus_bandwidth_gbs{gpu="' + b"\\" * 5000 + b"\n" * 1000)
    os.mkfifo(file(bench.folder / "j", 3))
    file(bench.folder / "j", 4).symlink_to("/etc/passwd")
    put(file(bench.folder / "j", 5), *window(90, 11000))
    begin = time.process_time()
    await bench.read()
    assert time.process_time() - begin < 5
    assert list(bench.cells(WINDOWS, "gpus").values()) == [1]
    assert bench.cells(TEXT_LINES, "lines_total")["too_large",] == 1


async def test_unreadable_file_fails_alone(bench, monkeypatch):
    put(file(bench.folder / "a", 1), *window(90, 11000))
    put(file(bench.folder / "b", 2), *window(90, 11000))
    read = nccl_facts.read_file

    def refused(path):
        if "/a/" in path:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(nccl_facts, "read_file", refused)
    await bench.read()
    assert bench.failures() == {("a", "eacces")}
    assert {key[0] for key in bench.cells(WINDOWS, "gpus")} == {"b"}


@pytest.mark.parametrize(
    ("size", "label"),
    [(0, "1B"), (1, "1B"), (1023, "512B"), (1024, "1KiB"), (3 << 20, "2MiB"), (1 << 30, "1GiB"), (1 << 50, "1PiB")],
)
def test_sizes_are_written_as_powers_of_two(size, label):
    assert size_label(size) == label


@pytest.mark.parametrize(
    ("ranks", "nodes", "name"),
    [(8, 1, "one_node"), (4, 4, "rail_only"), (16, 2, "mixed"), (None, 2, ""), (2, None, "")],
)
def test_communicator_classes(ranks, nodes, name):
    assert class_of(ranks, nodes) == name


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("nccl-formats/nccl_inspector_metrics_GPU-1.prom", 90.5e9),
        ("corpus/nccl/inspector/sample-prom-v2.30.7.prom", 678.263e9),
    ],
)
async def test_sample_files_are_read(bench, request, name, bandwidth):
    put(file(bench.folder / "j", 1), data=sample_path(request, name).read_bytes())
    await bench.read()
    assert pytest.approx(bandwidth) in bench.cells(WINDOWS, "highest_bus_bandwidth_bytes_per_second").values()
