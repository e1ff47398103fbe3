"""The nccl source on Inspector files of a simulated job: totals, ranks, jobs, failures, bounds, and the verdicts."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.poller import Poller
from exporter.core.source import Host
from exporter.core.vocabulary import check
from exporter.linux.tail import FILE_BUDGET, MAX_LINE
from exporter.meaning.ports import rates
from exporter.meaning.training import jobs
from exporter.simulator.inspector import InspectorJob, SimulatedCollective
from exporter.sources.nccl import processes
from exporter.sources.nccl import source as nccl
from exporter.sources.nccl.metrics import COLLECTIVES, INSPECTOR_LINES, RANKS, STREAMS
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.nccl.readers import inspector
from exporter.sources.nccl.readers.feed import Membership, ProcessFacts, ProcessReport
from exporter.sources.nccl.source import DEFINITION
from tests.helpers.paths import FIXTURES
from tests.helpers.samples import sample_path

NOWHERE = Path("/nonexistent")
HOST = Host("gpu-001", NOWHERE, NOWHERE)
STEPS = (rates.step, partial(jobs.step, jobs.JobKnowledge()))


class Bench:
    """A source with a folder of Inspector files only, and its last reading."""

    def __init__(self, folder, **options):
        self.folder = folder
        (self.source,) = DEFINITION.build(NcclOptions(inspector=(str(folder),), socket=False, **options), Context(HOST))

    async def read(self):
        self.reading = await self.source.read()
        self.tables = {table.schema: table for table in self.reading.tables}
        return self.tables

    def cells(self, schema, ending):
        table = self.tables.get(schema)
        return {} if table is None else dict(zip(table.rows.keys, table.values(ending), strict=True))

    def ranks(self):
        """Return host, PID, ranks and nodes of each rank."""
        return {key: facts[:4] for key, facts in self.cells(RANKS, "rank_info").items()}

    def operations(self):
        """Return the operations of each stream."""
        return {key: samples.taken for key, samples in self.cells(STREAMS, "operations").items()}

    def outcomes(self):
        return {key[0]: count for key, count in self.cells(INSPECTOR_LINES, "lines_total").items() if count}

    def failures(self):
        return {(one.device, one.reason) for one in self.reading.failures}


@pytest.fixture
async def bench(tmp_path):
    """A source whose folder was empty at the start."""
    made = Bench(tmp_path)
    assert await made.source.applies()
    yield made
    await made.source.close()


def line(rank=0, n_ranks=8, comm="0x1", sequence=0, us=100, kind="AllReduce", size=1024, **more):
    header = {"id": comm, "rank": rank, "n_ranks": n_ranks, "nnodes": 1}
    coll = {"coll": kind, "coll_sn": sequence, "coll_msg_size_bytes": size, "coll_exec_time_us": us, **more}
    return json.dumps({"header": header, "metadata": {"pid": 1}, "coll_perf": coll}).encode() + b"\n"


def append(path, *lines):
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(lines))


async def test_totals_of_the_fixtures(bench):
    for name, pid in (("v4.0", 4711), ("v4.3", 88)):
        append(bench.folder / "job" / f"gpu-001-pid{pid}.log", (FIXTURES / "inspector" / f"{name}.log").read_bytes())
    await bench.read()
    assert bench.cells(COLLECTIVES, "collectives_total") == {
        ("job", "1", "AllReduce"): 1,
        ("job", "1", "AllGather"): 1,
        ("job", "1", "AlltoAll"): 1,
        ("job", "3", "ReduceScatter"): 2,
    }
    assert bench.cells(COLLECTIVES, "collective_duration_seconds_total") == {
        ("job", "1", "AllReduce"): 100,
        ("job", "1", "AllGather"): 250,
        ("job", "1", "AlltoAll"): 9,
        ("job", "3", "ReduceScatter"): 810,
    }
    assert bench.cells(COLLECTIVES, "collective_bytes_total") == {
        ("job", "1", "AllReduce"): 1048576,
        ("job", "1", "AllGather"): 4 * 2097152,
        ("job", "1", "AlltoAll"): 4096,
        ("job", "3", "ReduceScatter"): 2 * 8 * 1000000,
    }
    assert bench.ranks() == {("job", "1"): ("gpu-001", "4711", "4", "2"), ("job", "3"): ("gpu-001", "88", "8", "1")}
    assert bench.outcomes() == {"collective": 5, "point_to_point": 1, "marker": 1, "unknown": 1}
    assert bench.operations() == {
        ("job", "0x1a2b3c4d5e6f70", "AllReduce", "1"): ((7, 1048576, 100),),
        ("job", "0x1a2b3c4d5e6f70", "AllGather", "1"): ((0, 4 * 2097152, 250, 1),),
        ("job", "0x1a2b3c4d5e6f70", "AlltoAll", "1"): ((3, 4096, 9, 0),),
        ("job", "0xbeef", "ReduceScatter", "3"): ((12, 8000000, 400, 1), (13, 8000000, 410, 1)),
    }
    assert list(bench.cells(STREAMS, "stream_info").values()) == [
        *[("4", "2", "gpu-001", "", "1", "4711", "", "", "")] * 3,
        ("8", "1", "gpu-001", "", "3", "88", "", "", ""),
    ]
    assert bench.failures() == set()


@pytest.mark.parametrize(
    ("name", "totals"),
    [
        (
            "nccl-formats/inspector-v4.0-2.28.jsonl",
            {"AllReduce": ("3", 8388608, 500), "ReduceScatter": ("3", 16 * 1048576, 250)},
        ),
        (
            "corpus/nccl/inspector/sample-json-v2.31.2.jsonl",
            {"AllReduce": ("2", 17179869184, 61974), "ReduceScatter": ("4", 17179869184, 41057)},
        ),
    ],
)
async def test_sample_lines_are_counted(bench, request, name, totals):
    text = sample_path(request, name).read_bytes()
    append(bench.folder / "a" / "h-pid1.log", text.splitlines()[0] + b"\n")
    append(bench.folder / "b" / "h-pid2.log", text.splitlines()[1] + b"\n")
    await bench.read()
    keys = {kind: (job, totals[kind][0], kind) for job, kind in (("a", "AllReduce"), ("b", "ReduceScatter"))}
    assert bench.cells(COLLECTIVES, "collective_bytes_total") == {keys[kind]: totals[kind][1] for kind in totals}
    assert bench.cells(COLLECTIVES, "collective_duration_seconds_total") == {
        keys[kind]: totals[kind][2] for kind in totals
    }


async def test_partial_writes_are_counted_once(bench):
    job = InspectorJob(bench.folder, "77", ranks=2, seed=5)
    written = {}
    for number in range(12):
        written |= job.step(hold_back=37 * number)
        await bench.read()
    job.flush()
    await bench.read()
    for rank in (0, 1):
        for kind in ("AllReduce", "AllGather", "ReduceScatter"):
            times = [by_rank[rank] for (one, _), by_rank in written.items() if one == kind]
            key = ("77", str(rank), kind)
            assert bench.cells(COLLECTIVES, "collectives_total")[key] == len(times)
            assert bench.cells(COLLECTIVES, "collective_duration_seconds_total")[key] == sum(times)
    assert bench.outcomes() == {"collective": 2 * 12 * 4}


async def test_folder_names_are_job_names(bench):
    folders = ("nccl-inspector-123", "nccl-inspector-unknown-jobid", "llama", ".", "too/deep")
    for rank, folder in enumerate(folders):
        (bench.folder / folder).mkdir(parents=True, exist_ok=True)
        append(bench.folder / folder / "h-pid7.log", line(rank=rank))
    append(bench.folder / "llama" / "notes.txt", b"no log\n")
    await bench.read()
    assert set(bench.ranks()) == {("123", "0"), ("unknown", "1"), ("llama", "2"), ("unknown", "3")}
    assert bench.outcomes() == {"collective": 4}


async def test_folders_may_be_patterns(tmp_path):
    append(tmp_path / "nccl-inspector-5" / "h-pid1.log")
    made = Bench(tmp_path / "nccl-inspector-*")
    assert await made.source.applies()
    append(tmp_path / "nccl-inspector-5" / "h-pid1.log", line(rank=3))
    await made.read()
    assert set(made.ranks()) == {("5", "3")}
    await made.source.close()


async def test_excluded_jobs_are_not_opened(tmp_path):
    made = Bench(tmp_path, exclude=("secret*",))
    await made.source.applies()
    append(tmp_path / "secret-1" / "h-pid1.log", line())
    append(tmp_path / "open" / "h-pid1.log", line())
    await made.read()
    assert set(made.ranks()) == {("open", "0")}
    assert made.outcomes() == {"collective": 1}
    await made.source.close()


async def test_source_does_not_apply_without_a_folder(tmp_path):
    made = Bench(tmp_path / "absent")
    assert not await made.source.applies()
    (tmp_path / "absent").mkdir()
    append(tmp_path / "absent" / "h-pid1.log", line())
    assert await made.source.applies()
    await made.read()
    assert made.outcomes() == {"collective": 1}, "a file created after the start is new"
    await made.source.close()


async def test_history_is_used_for_identity_and_not_counted(tmp_path):
    path = tmp_path / "h-pid1.log"
    append(path, line(rank=500, n_ranks=1024, comm="0xb"), line(rank=3, n_ranks=8), b"broken\n")
    made = Bench(tmp_path)
    await made.source.applies()
    await made.read()
    assert made.ranks() == {}
    append(path, line(rank=3, n_ranks=8, us=9))
    await made.read()
    assert made.cells(COLLECTIVES, "collective_duration_seconds_total") == {("unknown", "500", "AllReduce"): 9}
    assert len(made.operations()) == 1
    assert made.outcomes() == {"collective": 1}
    await made.source.close()


async def test_rank_is_that_in_the_first_largest_communicator(bench):
    path = bench.folder / "h-pid1.log"
    append(path, line(rank=3, n_ranks=8))
    await bench.read()
    assert set(bench.ranks()) == {("unknown", "3")}
    append(path, line(rank=77, n_ranks=128, comm="0x2"), line(rank=5, n_ranks=128, comm="0x3"), line(rank=3))
    await bench.read()
    assert set(bench.ranks()) == {("unknown", "77")}
    append(path, line(rank=5, n_ranks=128, comm="0x3"))
    await bench.read()
    assert set(bench.ranks()) == {("unknown", "77")}
    assert bench.cells(COLLECTIVES, "collectives_total") == {("unknown", "77", "AllReduce"): 5}


async def test_two_processes_with_the_same_rank_get_different_labels(bench):
    for pid, comm in ((11, "0xa"), (12, "0xb")):
        append(bench.folder / "j" / f"h-pid{pid}.log", line(rank=2, comm=comm))
    await bench.read()
    assert set(bench.ranks()) == {("j", "2"), ("j", "2-12")}
    assert len(bench.operations()) == 2


async def test_restarted_process_takes_over_its_rank(bench):
    append(bench.folder / "j" / "h-pid11.log", line(rank=2), line(rank=2, sequence=1))
    await bench.read()
    append(bench.folder / "j" / "h-pid12.log", line(rank=2, comm="0xb"))
    await bench.read()
    assert {key: value[1] for key, value in bench.ranks().items()} == {("j", "2"): "12"}
    assert bench.cells(COLLECTIVES, "collectives_total") == {("j", "2", "AllReduce"): 1}
    append(bench.folder / "j" / "h-pid11.log", line(rank=2, sequence=2))  # it was slow, not gone
    await bench.read()
    assert {key: value[1] for key, value in bench.ranks().items()} == {("j", "2"): "11", ("j", "2-12"): "12"}


async def test_rewritten_file_adds_to_the_totals_and_may_have_another_rank(bench):
    path = bench.folder / "h-pid1.log"
    append(path, line(rank=2, n_ranks=64), line(rank=2, n_ranks=64, sequence=1))
    await bench.read()
    path.write_bytes(line(rank=9, n_ranks=32, comm="0x2"))
    await bench.read()
    assert bench.cells(COLLECTIVES, "collectives_total") == {("unknown", "9", "AllReduce"): 3}
    path.write_bytes(b'{"coll_perf":{"coll":"Reduce","coll_sn":1,"coll_msg_size_bytes":1,"coll_exec_time_us":1}}\n')
    await bench.read()
    assert bench.failures() == {("unknown", "no_header")}, "the header of the previous content does not apply"


async def test_ranks_expire_with_their_files_and_after_a_timeout(bench, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(nccl, "monotonic", lambda: now[0])
    gone, quiet = bench.folder / "j" / "h-pid1.log", bench.folder / "j" / "h-pid2.log"
    append(gone, line(rank=1))
    append(quiet, line(rank=2))
    await bench.read()
    assert set(bench.ranks()) == {("j", "1"), ("j", "2")}
    gone.unlink()
    now[0] += processes.EXPIRY_SECONDS - 1
    await bench.read()
    assert set(bench.ranks()) == {("j", "2")}
    assert bench.failures() == set()
    now[0] += 1
    await bench.read()
    assert bench.ranks() == {}
    append(quiet, line(rank=2))
    await bench.read()
    assert bench.cells(COLLECTIVES, "collectives_total") == {("j", "2", "AllReduce"): 1}


async def test_malformed_lines_are_skipped_and_reported_with_offset(bench):
    path = bench.folder / "j" / "h-pid1.log"
    headless = b'{"coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":1,"coll_exec_time_us":1}}\n'
    append(
        path,
        headless,
        line(),
        b"{broken\n",
        line(sequence=1),
        line(us=-4),
        b"x" * (MAX_LINE + 1) + b"\n",
        line(sequence=2),
    )
    append(bench.folder / "other" / "h-pid2.log", line(rank=5))
    await bench.read()
    assert bench.cells(COLLECTIVES, "collectives_total") == {("j", "0", "AllReduce"): 3, ("other", "5", "AllReduce"): 1}
    assert bench.outcomes() == {"collective": 4, "no_header": 1, "malformed": 1, "invalid": 1, "too_long": 1}
    details = {one.reason: one.detail for one in bench.reading.failures}
    assert bench.failures() == {("j", reason) for reason in ("no_header", "malformed", "invalid", "too_long")}
    assert f"{path}: at byte {len(headless) + len(line())}: " in details["malformed"]
    assert "coll_exec_time_us" in details["invalid"]
    assert "broken" not in details["malformed"], "content of files is not logged"


async def test_a_file_that_cannot_be_read_fails_alone(bench, monkeypatch):
    append(bench.folder / "a" / "h-pid1.log", line())
    append(bench.folder / "b" / "h-pid2.log", line())
    real = os.open

    def refuse(path, *rest, **more):
        if str(path).endswith("pid1.log"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    await bench.read()
    assert set(bench.ranks()) == {("b", "0")}
    assert bench.failures() == {("a", "eacces")}
    monkeypatch.undo()
    await bench.read()
    assert set(bench.ranks()) == {("a", "0"), ("b", "0")}, "nothing was lost"


async def test_links_and_fifos_below_the_folder_are_skipped(bench, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    append(outside / "h-pid1.log", line())
    (bench.folder / "linked").symlink_to(outside)
    (bench.folder / "h-pid2.log").symlink_to(outside / "h-pid1.log")
    (bench.folder / "loop").symlink_to(bench.folder)
    os.mkfifo(bench.folder / "h-pid3.log")
    await bench.read()
    assert bench.ranks() == {}
    assert bench.failures() == set()


async def test_jobs_and_processes_are_bounded_and_counted(bench):
    for number in range(processes.MAX_JOBS + 5):
        append(bench.folder / f"job{number:03}" / "h-pid1.log", line())
    for number in range(processes.MAX_PROCESSES + 3):
        append(bench.folder / "job000" / f"h-pid{number + 10}.log", line(rank=number, n_ranks=1000))
    await bench.read()
    assert len({job for job, _ in bench.ranks()}) == processes.MAX_JOBS
    assert len([1 for job, _ in bench.ranks() if job == "job000"]) == processes.MAX_PROCESSES
    assert bench.outcomes() == {"collective": processes.MAX_JOBS - 1 + processes.MAX_PROCESSES, "over_limit": 5 + 4}
    assert {reason for _, reason in bench.failures()} == {"over_limit"}


def test_invented_jobs_of_one_user_keep_no_other_out():
    registry, failures = processes.ProcessRegistry(), []

    def add(job, uid):
        report = ProcessReport(job, ProcessFacts(job, pid=1, uid=uid))
        report.add_collective("0x1", Membership(0, 2), "AllReduce", 0, 8, 5, timed=True)
        report.add_membership(Membership(0, 2))
        return registry.add("hook", report, 1.0, failures)

    registry.begin_poll()
    for number in range(processes.MAX_JOBS):
        add(f"invented-{number}", 1000)
    assert add("one more", 1000) == "over_limit"
    assert add("real", 2000).job == "real"
    registry.end_poll({}, 1.0)
    jobs = {one.job for one in registry.labelled()}
    assert "real" in jobs
    assert len(jobs) == processes.MAX_JOBS


async def test_rows_are_bounded_for_any_kinds_communicators_and_ranks(bench):
    lines = [
        line(kind=f"Kind{number}", comm=f"0x{number:x}", rank=number % 7, n_ranks=7 + number % 3, sequence=number)
        for number in range(20_000)
    ]
    append(bench.folder / "j" / "h-pid1.log", *lines)
    for _ in range(4):
        await bench.read()
    assert bench.cells(COLLECTIVES, "collectives_total") == {("j", "2", "other"): 20_000}
    assert bench.outcomes() == {"collective": 20_000}


async def test_poll_budget_is_bounded_and_the_next_poll_continues(bench, monkeypatch):
    monkeypatch.setattr(inspector, "POLL_BUDGET", 2 * FILE_BUDGET)
    count = 3 * FILE_BUDGET // 2 // len(line())
    for rank in range(3):
        append(bench.folder / "j" / f"h-pid{rank}.log", *[line(rank=rank)] * count)
    await bench.read()
    assert set(bench.ranks()) == {("j", "0"), ("j", "1")}
    await bench.read()
    assert ("j", "2") in bench.ranks(), "files that were not read come first"
    for _ in range(3):
        await bench.read()
    assert set(bench.cells(COLLECTIVES, "collectives_total").values()) == {count}


async def test_waits_of_a_simulated_job(bench):
    poller = Poller(bench.source, STEPS)
    await poller.poll()
    job = InspectorJob(bench.folder, "77", ranks=8, first_rank=8, n_ranks=16, n_nodes=2, seed=3)
    job.late = {11: 0.003}
    written = {}
    for _ in range(10):
        written |= job.step(hold_back=50)
    job.flush()
    await poller.poll()
    assert poller.status.failures == {}
    found = {
        (ending, *key): value
        for table in poller.tables
        for ending, column in table.columns.items()
        for key, value in zip(table.rows.keys, column.values, strict=True)
    }
    for rank in range(8, 16):
        times = [by_rank[rank] for (kind, _), by_rank in written.items() if kind == "AllGather"]
        key = ("77", str(rank))
        assert found["collective_duration_seconds_total", *key, "AllGather"] == pytest.approx(sum(times) / 1e6)
        wait = sum(by_rank[rank] - min(by_rank.values()) for by_rank in written.values())
        assert found["wait_seconds_total", *key] == pytest.approx(wait / 1e6)
    assert found["matched_collectives_total", "77"] == len(written)
    assert found["unmatched_collectives_total", "77"] == 0
    assert found["bus_bandwidth_bytes_per_second", "77", "AllReduce"] == pytest.approx(350e9, rel=0.05)
    assert not any(table.schema.internal for table in poller.tables)
    of_rank = [
        column.metric.name
        for table in poller.tables
        if "rank" in table.schema.labels
        for column in table.columns.values()
        for key, value in zip(table.rows.keys, column.values, strict=True)
        if key[:2] == ("77", "11") and value is not None
    ]
    assert 12 <= len(of_rank) <= 20, "a rank may cost 20 series"


async def test_restarted_rank_with_the_same_label_has_another_epoch(bench):
    poller = Poller(bench.source, STEPS)
    await poller.poll()
    epochs = []
    for number, pid in enumerate((11, 12)):
        append(bench.folder / "j" / f"h-pid{pid}.log", *[line(rank=2, us=50)] * (5 + 5 * number))
        await poller.poll()
        (table,) = [table for table in poller.tables if table.schema is COLLECTIVES]
        assert table.values("collectives_total") == [5 + 5 * number]
        epochs.append(table.epochs[0])
    assert epochs[0] != epochs[1]


def test_declared_metrics_follow_the_naming_rules():
    metrics = [metric for schema in DEFINITION.schemas for metric in schema.metrics.values()]
    for schema in DEFINITION.schemas:
        metrics += [*rates.outputs(schema), *jobs.outputs(schema)]
    assert check(metrics) == []
    assert all(
        metric.origins for schema in DEFINITION.schemas if not schema.internal for metric in schema.metrics.values()
    )


def test_simulated_job_is_deterministic(tmp_path):
    texts = []
    for folder in ("a", "b"):
        job = InspectorJob(
            tmp_path / folder, "1", ranks=3, seed=9, operations=(SimulatedCollective("AllReduce", 1 << 20),)
        )
        for _ in range(5):
            job.step(hold_back=10)
        texts.append([path.read_bytes() for path in sorted(job.folder.iterdir())])
        assert not any(text.endswith(b"\n") for text in texts[-1])
        job.flush()
        assert all(path.read_bytes().endswith(b"}\n") for path in job.folder.iterdir())
        job.end()
        assert not job.folder.exists()
    assert texts[0] == texts[1]
    assert len(texts[0]) == 3
