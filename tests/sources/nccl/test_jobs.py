"""Several jobs on a node, restarts, several feeds for one process, and hostile jobs."""

import json
import os
import tracemalloc
from functools import partial

import pytest

from exporter.core.poller import Poller
from exporter.linux.cgroup import owner_of
from exporter.meaning.ports import rates
from exporter.meaning.training import jobs
from exporter.simulator.inspector import InspectorJob
from exporter.sources.nccl import identity, metrics, processes
from exporter.sources.nccl import source as nccl
from exporter.sources.nccl.processes import ProcessRegistry
from exporter.sources.nccl.readers.feed import (
    CollectiveProgress,
    Membership,
    ProcessFacts,
    ProcessReport,
)
from tests.helpers.training_bench import (
    append,
    bench,
    datagram,
    line,
    process,
    send,
)

STEPS = (rates.step, partial(jobs.step, jobs.JobKnowledge()))


def lines_of(made):
    return made.counts(metrics.INSPECTOR_LINES, "lines_total")


def hook_datagram(sequence=0, *, pid=17, host="gpu-001", job="123", rank=3, number=0, **more):
    """Return a datagram with one collective of a process."""
    values = {"env": {"SLURM_JOB_ID": job}, "rank": rank, "ops": [[0, "AllReduce", sequence, 1024, 350, 1, "gpu"]]}
    return datagram(number, pid=pid, host=host, **{**values, **more})


# --- ranks


async def test_rank_in_the_environment_is_the_label(tmp_path):
    for pid in (11, 12):
        process(tmp_path / "proc", 900 + pid, inner=pid, environment={"RANK": str(40 + pid), "SLURM_JOB_ID": "77"})
    async with bench(tmp_path) as made:
        for pid in (11, 12, 13):
            append(tmp_path / "inspector" / f"h-pid{pid}.log", line(rank=pid - 10, comm="0xa"))
        await made.read()
        assert set(made.collectives()) == {
            ("77", "51", "AllReduce"),
            ("77", "52", "AllReduce"),
            ("unknown", "3", "AllReduce"),  # nothing is known about this one
        }
        assert made.ranks()["77", "51"]["host_pid"] == "911"


async def test_job_of_pods_has_the_common_part_of_their_names(tmp_path):
    pod = "1b2c3d4e-0000-4111-8222-33344455aabb"
    process(tmp_path / "proc", os.getpid(), inner=17, cgroup=f"/kubepods/burstable/pod{pod}/{'0a' * 32}")
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, hook_datagram(host="llama-worker-3", env={"TORCHELASTIC_RUN_ID": "none"}))
        await made.read()
        assert {key: facts["job_pod"] for key, facts in made.ranks().items()} == {("llama", "3"): pod}


async def test_rank_claimed_by_several_processes_is_ignored(tmp_path):
    """Processes started by one Slurm rank inherit its environment."""
    for pid in (11, 12):
        process(tmp_path / "proc", 900 + pid, inner=pid, environment={"SLURM_PROCID": "9"})
    async with bench(tmp_path) as made:
        for pid in (11, 12):
            append(tmp_path / "inspector" / "j" / f"h-pid{pid}.log", line(rank=pid, n_ranks=16))
        await made.read()
        assert set(made.ranks()) == {("j", "11"), ("j", "12")}


async def test_rewritten_file_may_be_of_another_rank_of_the_job(tmp_path):
    """A restarted pod has the same name, and its process the same PID."""
    one = process(tmp_path / "proc", 900, inner=1, environment={"RANK": "4", "SLURM_JOB_ID": "5"})
    path = tmp_path / "inspector" / "pod-a-pid1.log"
    async with bench(tmp_path) as made:
        append(path, line(rank=4), line(rank=4, sequence=1))
        await made.read()
        assert set(made.ranks()) == {("5", "4")}
        (one / "environ").write_bytes(b"RANK=6\0SLURM_JOB_ID=5\0")
        path.write_bytes(line(rank=6, comm="0xb"))
        await made.read()
        assert set(made.ranks()) == {("5", "6")}


async def test_facts_that_a_process_reports_later_are_updated(tmp_path):
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, hook_datagram(rank=None, env={"SLURM_JOB_ID": "123"}, gpu={}))
        await made.read()
        assert set(made.ranks()) == {("123", "3")}, "the rank in its largest communicator"
        await send(made.socket, hook_datagram(1, number=1, rank=11))
        await made.read()
        assert {key: facts["gpu"] for key, facts in made.ranks().items()} == {("123", "11"): "0000:c8:00.0"}
        assert made.collectives() == {("123", "11", "AllReduce"): 2}


async def test_processes_are_looked_up_once_and_failures_are_harmless(tmp_path, monkeypatch):
    asked = []

    def look_up_processes(_host, newcomers):
        asked.append([one.pid for one in newcomers])
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(nccl, "look_up_processes", look_up_processes)
    async with bench(tmp_path) as made:
        for place in range(3):
            append(tmp_path / "inspector" / "j" / "h-pid7.log", line(rank=5, sequence=place))
            await made.read()
        assert made.collectives() == {("j", "5", "AllReduce"): 3}
        assert asked == [[7]]


async def test_lookups_per_poll_are_bounded(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(nccl, "look_up_processes", lambda _host, newcomers: asked.append(len(newcomers)) or newcomers)
    monkeypatch.setattr(nccl, "MAX_LOOKUPS", 5)
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, *(hook_datagram(job=f"made-up-{number}") for number in range(20)))
        await made.read()
        assert asked == [5]
        assert len(made.ranks()) == 20


# --- one process, two feeds


async def test_process_reported_by_two_feeds_is_counted_once_with_facts_of_both(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(nccl, "monotonic", lambda: now[0])
    path = tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log"
    async with bench(tmp_path, "socket") as made:
        append(path, line(rank=0, n_ranks=2))
        await send(made.socket, hook_datagram())
        await made.read()
        assert made.collectives() == {("123", "3", "AllReduce"): 1}
        assert list(made.operations()) == [("123", "0x1", "AllReduce", "3")]
        assert made.ranks()["123", "3"]["gpu"] == "0000:c8:00.0"
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"duplicate": 1}
        now[0] += processes.FEED_TIMEOUT_SECONDS + 1
        await send(made.socket, hook_datagram(1, number=1))  # Inspector timed out
        await made.read()
        assert [key[1] for key in made.operations()] == ["00ff00ff00ff00ff"]
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"duplicate": 1, "used": 1}


@pytest.mark.parametrize(("pid", "host", "job"), [(18, "gpu-001", "123"), (17, "other", "123"), (17, "gpu-001", "124")])
async def test_different_processes_are_not_merged(tmp_path, pid, host, job):
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log", line(rank=0, n_ranks=2))
        await send(made.socket, hook_datagram(pid=pid, host=host, job=job))
        await made.read()
        assert sum(made.collectives().values()) == 2
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"used": 1}


async def test_preferred_feed_takes_over_later_and_with_a_qualified_host_name(tmp_path):
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, hook_datagram())
        await made.read()
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001.example.net-pid17.log", line(comm="0x5"))
        await send(made.socket, hook_datagram(1, number=1))
        await made.read()
        assert [key[1] for key in made.operations()] == ["0x5"]
        assert made.collectives() == {("123", "3", "AllReduce"): 1}
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"used": 1, "duplicate": 1}


@pytest.mark.parametrize(("pid", "taken"), [(18, True), (17, False), (0, False)])
def test_process_that_took_over_a_rank_is_not_merged(pid, taken):
    """Neither process is visible on the host: the reported PIDs are all that is known."""
    found = processes.ProcessRegistry()
    found.begin_poll()
    for feed, number in (("inspector", 17), ("hook", pid)):
        report = ProcessReport(feed, ProcessFacts("j", pid=number, host=f"pod-{feed}", world_rank=3))
        report.add_membership(Membership(3, 8))
        report.add_collective("0x1", Membership(3, 8), "AllReduce", 1, 1024, 100, None)
        made = found.add(feed, report, 1000.0, [])
    assert (made == "duplicate") is not taken


async def test_processes_of_two_containers_may_have_the_same_pid(tmp_path):
    process(tmp_path / "proc", 900, inner=17)
    process(tmp_path / "proc", os.getpid(), inner=17, uid=1)
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log", line(comm="0x5"))
        await send(made.socket, hook_datagram())
        await made.read()
        assert {facts["host_pid"] for facts in made.ranks().values()} == {"900", str(os.getpid())}


async def test_flight_recorder_dump_is_not_counted_in_addition_to_the_hook(tmp_path):
    entry = {"record_id": 1, "pg_id": 0, "collective_seq_id": 1, "profiling_name": "nccl:all_reduce"}
    entry |= {"duration_ms": 1.0, "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "completed"}
    values = {"version": "2.10", "pg_config": {"0": {"name": "0", "ranks": "[3, 4]"}}, "entries": [entry]}
    async with bench(tmp_path, "socket", "recorder") as made:
        (tmp_path / "recorder" / "nccl-inspector-123").mkdir()
        (tmp_path / "recorder" / "nccl-inspector-123" / "trace_3").write_text(json.dumps(values))
        await made.read()
        await send(made.socket, hook_datagram())
        await made.read()
        assert made.collectives() == {("123", "3", "AllReduce"): 1}


# --- jobs


async def test_two_jobs_with_the_same_communicator_hash_are_kept_separate(tmp_path):
    async with bench(tmp_path, "socket") as made:
        poller = Poller(made.source, STEPS)
        one = InspectorJob(tmp_path / "inspector", "71", ranks=4, seed=3)
        two = InspectorJob(tmp_path / "inspector", "72", ranks=4, seed=3)  # the same seed: the same ids
        one.late = {2: 0.005}
        for _ in range(12):
            one.step()
            two.step()
        await poller.poll()
        found = {
            (ending, *key): value
            for table in poller.tables
            for ending, column in table.columns.items()
            for key, value in zip(table.rows.keys, column.values, strict=True)
        }
        # The others wait for the late rank, in one job only: 5 ms in each of 48 operations.
        waits = {job: [found["wait_seconds_total", job, rank] for rank in "0123"] for job in ("71", "72")}
        assert [rank for rank, wait in enumerate(waits["71"]) if wait < 0.2] == [2]
        assert max(waits["72"]) < 0.2
        assert found["matched_collectives_total", "71"] == found["matched_collectives_total", "72"] == 48


async def test_job_that_ends_is_removed_and_the_other_continues(tmp_path):
    async with bench(tmp_path) as made:
        one = InspectorJob(tmp_path / "inspector", "71", ranks=2, seed=3)
        two = InspectorJob(tmp_path / "inspector", "72", ranks=2, seed=4)
        one.step(hold_back=30)  # its last line is truncated
        two.step()
        await made.read()
        assert {job for job, _ in made.ranks()} == {"71", "72"}
        one.end()
        two.step()
        await made.read()
        assert {job for job, _ in made.ranks()} == {"72"}
        assert made.failures() == set()
        assert set(made.collectives().values()) == {2, 4}  # AllGather comes twice in a step


async def test_files_of_a_finished_job_are_not_exported(tmp_path):
    dead = InspectorJob(tmp_path / "inspector", "70", ranks=8, seed=1)
    for _ in range(5):
        dead.step()
    async with bench(tmp_path, "socket") as made:
        await made.read()
        assert (made.ranks(), made.operations(), lines_of(made)) == ({}, {}, {})
        assert made.cells(metrics.INSPECTOR_FILES, "files") == {(): 8}


async def test_clock_steps_have_no_effect(tmp_path):
    path = tmp_path / "inspector" / "j" / "h-pid1.log"
    async with bench(tmp_path, "socket") as made:
        for place, wall in enumerate((1_790_000_000, 5, 4_000_000_000, 1_790_000_001)):
            meta = {"pid": 1, "dump_timestamp_us": wall * 1_000_000}
            append(path, line(sequence=place, metadata=meta))
            os.utime(path, (wall, wall))
            await send(made.socket, hook_datagram(place, number=place, clock=[50_000_000 + place, wall * 1_000_000]))
            await made.read()
            taken = {key[0]: samples for key, samples in made.operations().items()}
            assert taken == {"j": ((place, 1024, 100),), "123": ((place, 1024, 350, 1),)}
        assert set(made.collectives().values()) == {4}
        assert made.failures() == set()


# --- hostile jobs


async def test_job_name_that_contradicts_the_control_group_is_rejected(tmp_path):
    slurm = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3"
    assert owner_of(f"0::{slurm}\n").job == "4711"
    process(tmp_path / "proc", os.getpid(), inner=17, cgroup=slurm)
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, hook_datagram(job="123"), hook_datagram(job="4711"))
        await made.read()
        assert set(made.ranks()) == {("4711", "3")}
        assert made.counts(metrics.TIMING_DATAGRAMS, "datagrams_total") == {"accepted": 1, "job_mismatch": 1}


async def test_hostile_job_names_do_not_inject_lines(tmp_path):
    odd = 'evil"} 1\nfabric_nccl_straggler{train_job="x'
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / odd / "h-pid1.log", line())
        append(tmp_path / "inspector" / ("n" * 250) / "h-pid2.log", line())
        await send(made.socket, datagram(env={"FABRIC_TIMING_JOB": odd}), datagram(host=odd))
        await made.read()
        assert {len(job) for job, _ in made.ranks()} == {len(odd), identity.MAX_NAME}
        texts = [text for table in made.reading.tables for text in table.rows.texts]
        assert not any("\n" in text for text in texts)
        assert made.counts(metrics.TIMING_DATAGRAMS, "datagrams_total") == {"invalid": 2}


async def test_hostile_lines_and_datagrams_are_rejected_and_counted(tmp_path):
    deep = b'{"odd":' + b"[" * 100_000 + b"\n"
    wrong = [
        line(rank=9, n_ranks=8),
        line(us="1"),
        line(size=1 << 60),
        line(sequence=-1),
        line(comm="0x1\n"),
        line(us=10**30),
        b'{"header":{"id":"0x1","rank":0,"n_ranks":true}}\n',
    ]
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / "h-pid1.log", deep, *wrong, b"\x80\x05.\n", line())
        await send(
            made.socket,
            b"[" * 8000,
            b"\x80\x05.",
            b"x" * 8193,
            hook_datagram(rank="3"),
            hook_datagram(v=2),
            hook_datagram(),
        )
        await made.read()
        assert made.collectives() == {("unknown", "0", "AllReduce"): 1, ("123", "3", "AllReduce"): 1}
        assert lines_of(made) == {"malformed": 2, "invalid": len(wrong), "collective": 1}
        assert made.counts(metrics.TIMING_DATAGRAMS, "datagrams_total") == {
            "accepted": 1,
            "malformed": 1,
            "too_large": 1,
            "invalid": 2,
            "unsupported_version": 1,
        }


async def test_processes_of_one_sender_are_bounded(tmp_path):
    async with bench(tmp_path, "socket") as made:
        for job in range(processes.MAX_JOBS + 8):
            await send(made.socket, hook_datagram(job=str(job)))
        await made.read()
        assert len(made.ranks()) == processes.MAX_JOBS
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {
            "used": processes.MAX_JOBS,
            "over_limit": 8,
        }
        assert {reason for _, reason in made.failures()} == {"over_limit"}


async def test_memory_is_constant_over_many_jobs(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(nccl, "monotonic", lambda: now[0])
    async with bench(tmp_path) as made:
        sizes = []
        tracemalloc.start()
        try:
            for number in range(60):
                job = InspectorJob(tmp_path / "inspector", f"job-{number}", ranks=4, seed=number)
                job.step()
                await made.read()
                assert len(made.ranks()) == 4
                job.end()
                now[0] += 60
                await made.read()
                assert made.ranks() == {}
                if number in {20, 59}:
                    sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert sizes[1] < sizes[0] + 100_000
    assert made.cells(metrics.COLLECTIVES, "collectives_total") == {}


# --- one process, several feeds


class Polls:
    """A registry over polls, each with the reports of feeds about the same process."""

    def __init__(self):
        self.known = ProcessRegistry()

    def __call__(self, now, **report):
        self.known.begin_poll()
        taken = {}
        for feed, times in report.items():
            facts = ProcessFacts("j", pid=17, host="gpu-1", host_pid=900, world_rank=3)
            one = ProcessReport(f"{feed}-17", facts)
            member = Membership(3, 8, 1)
            one.add_membership(member)
            one.progress["c", "AllReduce"] = CollectiveProgress(member, 9, 8)
            for number in range(times):
                one.add_collective("c", member, "AllReduce", number, 8, 5, True)
            taken[feed] = self.known.add(feed, one, now, [])
        self.known.end_poll({}, now)
        return {feed: getattr(process, "label", process) for feed, process in taken.items()}

    def labels(self):
        return [one.label for one in self.known.labelled()]


def test_progress_alone_does_not_supersede_another_feed():
    polls = Polls()
    assert polls(1.0, hook=0) == {"hook": "3"}
    assert polls(2.0, hook=0, recorder=5)["recorder"] in {"3", "3-17"}
    assert polls(3.0, hook=0, recorder=5) == {"hook": None, "recorder": "3"}
    assert polls.labels() == ["3"]


def test_feed_that_takes_over_after_a_timeout_gets_the_rank():
    polls = Polls()
    assert polls(1.0, inspector=5, hook=5) == {"inspector": "3", "hook": "duplicate"}
    assert polls(50.0, hook=5) == {"hook": "duplicate"}
    assert polls(70.0, hook=5) == {"hook": "3"}
    assert polls.labels() == ["3"]
    assert polls(71.0, inspector=5, hook=5) == {"inspector": "3", "hook": "duplicate"}
    assert polls.labels() == ["3"]
