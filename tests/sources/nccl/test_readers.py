"""Feeds of the source: the hook's socket, Flight Recorder dumps, CoMMA, xpu_timer."""

import asyncio
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporter.core.definition import Context
from exporter.core.source import SourceError
from exporter.linux import rewritten_files
from exporter.meaning.training import jobs as training
from exporter.meaning.training.verdicts import Verdict
from exporter.sources.common.job_files import JobFileSearch
from exporter.sources.nccl import metrics
from exporter.sources.nccl import source as nccl
from exporter.sources.nccl.metrics import COLLECTIVES, LOSSES, STEPS, STREAMS
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.nccl.readers import (
    comma,
    hook,
    xpu_timer,
)
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.samples import sample_path
from tests.helpers.training_bench import (
    Bench,
    append,
    bench,
    datagram,
    line,
    process,
    send,
)

FORMATS = FIXTURES / "nccl-formats"


# --- the hook


async def test_hook_datagrams_become_totals_and_operations(tmp_path):
    process(tmp_path / "proc", os.getpid(), inner=17)
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, datagram(), datagram(1, ops=[[0, "_allgather_base", 5, 100, 20, 49_000_000, "host"]]))
        await made.read()
        assert made.collectives() == {("123", "3", "AllReduce"): 1, ("123", "3", "AllGather"): 1}
        assert made.cells(COLLECTIVES, "collective_bytes_total") == {
            ("123", "3", "AllReduce"): 1048576,
            ("123", "3", "AllGather"): 1600,
        }
        assert made.operations() == {
            ("123", "a0a0a0a0a0a0a0a0", "AllReduce", "3"): ((41, 1048576, 350, 1),),
            ("123", "00ff00ff00ff00ff", "AllGather", "3"): ((5, 1600, 20),),
        }
        assert list(made.cells(STREAMS, "stream_info").values()) == [
            ("8", "1", "gpu-001", "", "1", "17", "0000:c8:00.0", "3", ""),
            ("16", "2", "gpu-001", "", "3", "17", "0000:c8:00.0", "3", ""),
        ]
        assert made.ranks() == {
            ("123", "3"): {
                "host": "gpu-001",
                "pid": "17",
                "ranks": "16",
                "nodes": "2",
                "gpu": "0000:c8:00.0",
                "host_pid": str(os.getpid()),
            }
        }
        assert made.counts(metrics.TIMING_DATAGRAMS, "datagrams_total") == {"accepted": 2}
        assert made.cells(metrics.TIMING_SENDERS, "senders") == {(): 1}


async def test_progress_is_reported_without_completions(tmp_path):
    """Also if the exporter was started during the stall."""
    async with bench(tmp_path, "socket") as made:
        counts = [[0, "AllReduce", 43, 42], [1, "Barrier", 1, 0], [1, "Send", 9, 8], [0, "all_reduce", 5, 5]]
        await send(made.socket, datagram(ops=[], counts=counts))
        await made.read()
        values = {
            ending: {key: cell for key, cell in made.cells(STREAMS, ending).items() if cell is not None}
            for ending in ("begun", "ended")
        }
        first, second = ("123", "00ff00ff00ff00ff"), ("123", "a0a0a0a0a0a0a0a0")
        streams = [(*first, "AllReduce", "3"), (*second, "Barrier", "3"), (*second, "Send", "3")]
        assert values == {
            "begun": dict(zip(streams, [43, 1, 9], strict=True)),
            "ended": dict(zip(streams, [42, 0, 8], strict=True)),
        }
        assert set(made.operations().values()) == {()}


async def test_hook_progress_is_used_with_inspector_timings(tmp_path):
    process(tmp_path / "proc", os.getpid(), inner=17)
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log", line())
        await send(made.socket, datagram(counts=[[0, "AllReduce", 43, 42]]))
        await made.read()
        assert [(key, len(taken)) for key, taken in made.operations().items()] == [
            (("123", "0x1", "AllReduce", "3"), 1),
            (("123", "00ff00ff00ff00ff", "AllReduce", "3"), 0),
        ]
        assert list(made.cells(STREAMS, "begun").values()) == [None, 43]
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"duplicate": 1}


async def test_hook_progress_keeps_its_rank_after_inspector_times_out(tmp_path, monkeypatch):
    process(tmp_path / "proc", os.getpid(), inner=17)
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("exporter.sources.nccl.source.monotonic", lambda: clock.now)
    async with bench(tmp_path, "socket") as made:
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log", line())
        for number, seconds in enumerate((5, 60, 300, 640, 700)):
            clock.now = 1000.0 + seconds
            ended = {} if number == 0 else {"ops": []}
            await send(made.socket, datagram(number, counts=[[0, "AllReduce", 43, 42]], **ended))
            await made.read()
            values = {key: cell for key, cell in made.cells(STREAMS, "begun").items() if cell is not None}
            assert values == {("123", "00ff00ff00ff00ff", "AllReduce", "3"): 43}, seconds


async def test_hook_losses_and_missing_datagrams_are_counted_once(tmp_path):
    async with bench(tmp_path, "socket") as made:
        await send(
            made.socket, datagram(5, dropped=7), datagram(6, dropped=7, untimed=2), datagram(9, dropped=8, faults=1)
        )
        await made.read()
        assert made.counts(metrics.TIMING_LOSSES, "lost_total") == {
            "dropped": 1,
            "untimed": 2,
            "faults": 1,
            "missing": 2,
        }
        await send(made.socket, datagram(0, dropped=3))  # the PID was reused
        await made.read()
        assert made.counts(metrics.TIMING_LOSSES, "lost_total")["dropped"] == 4


async def test_marked_steps_are_counted_with_any_feed(tmp_path):
    async with bench(tmp_path, "socket") as made:
        await send(made.socket, datagram(steps=[[7, 1, 4096, 2.5e18], [8, 2, 4096, None]]))
        await made.read()
        await send(made.socket, datagram(1, ops=[], steps=[[9, 3, None, None]]))
        await made.read()
        rank = ("123", "3")
        assert made.cells(STEPS, "steps_total") == {rank: 3}
        assert made.cells(STEPS, "step_tokens_total") == {rank: 8192}
        assert made.cells(STEPS, "step_operations_total") == {rank: 2_500_000_000_000_000_000}
        append(tmp_path / "inspector" / "nccl-inspector-123" / "gpu-001-pid17.log", line())
        await made.read()
        await send(made.socket, datagram(2, steps=[[10, 4, None, None]]))
        await made.read()
        assert made.cells(STEPS, "steps_total") == {rank: 1}, "of the process of the preferred feed"
        assert made.cells(STEPS, "step_tokens_total") == {rank: None}


async def test_socket_is_not_opened_without_its_folder(tmp_path):
    made = Bench(tmp_path)
    (made.source,) = nccl.DEFINITION.build(
        NcclOptions(inspector=(str(tmp_path / "none"),), socket=str(tmp_path / "run" / "timing.sock")),
        Context(made.host),
    )
    assert not await made.source.applies()
    await made.read()
    assert (made.failures(), metrics.TIMING_DATAGRAMS in made.tables) == (set(), False)
    (tmp_path / "run").mkdir()
    assert await made.source.applies()
    await made.read()
    assert made.cells(metrics.TIMING_SENDERS, "senders") == {(): 0}
    await made.source.close()
    assert not made.socket.exists()


async def test_unwritable_folder_is_reported_only_if_configured(tmp_path, monkeypatch):
    made = Bench(tmp_path, "socket")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("exporter.sources.nccl.timing_socket._listen", refuse)
    await made.read()
    assert made.failures() == {("", "eio")}
    monkeypatch.setattr(hook, "TIMING_SOCKET", str(made.socket))
    await made.read()
    assert made.failures() == set()
    await made.source.close()


async def test_removed_socket_is_recreated(tmp_path):
    async with bench(tmp_path, "socket") as made:
        made.socket.unlink()
        await made.read()
        await send(made.socket, datagram())
        await made.read()
        assert made.counts(metrics.TIMING_DATAGRAMS, "datagrams_total") == {"accepted": 1}


async def test_socket_in_use_is_reported_and_other_feeds_work(tmp_path):
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "run" / "timing.sock"))
        made = Bench(tmp_path, "socket")
        await made.read()
        append(tmp_path / "inspector" / "h-pid1.log", line())
        await made.read()
        assert made.collectives() == {("unknown", "0", "AllReduce"): 1}
        assert made.failures() == {("", "in_use")}
        (failure,) = made.reading.failures
        assert "another exporter is listening" in failure.detail
    await made.read()
    assert made.failures() == set()
    await made.source.close()


@pytest.mark.parametrize("place", [True, "relative.sock", ""])
def test_invalid_socket_path_is_rejected(place):
    with pytest.raises(ValueError, match="absolute path, or false"):
        NcclOptions(socket=place)


async def test_excluded_job_is_not_exported_from_any_feed(tmp_path):
    async with bench(tmp_path, "socket", exclude=("12*",)) as made:
        await send(made.socket, datagram())
        await made.read()
        assert (made.collectives(), made.operations()) == ({}, {})
        assert made.counts(metrics.TIMING_COLLECTIVES, "collectives_total") == {"excluded": 1}


JOB = """
import sys
import fabric_timing
for _ in range(5):
    with fabric_timing.collective("AllReduce", group="g", size=1 << 20, rank=2, ranks=8):
        pass
fabric_timing.flush()
print("sent", flush=True)
sys.stdin.read()
"""


async def test_job_with_the_hook_is_exported_with_rank_and_name(tmp_path):
    async with bench(tmp_path, "socket", procfs=Path("/proc")) as made:
        environment = {**os.environ, "FABRIC_TIMING_SOCKET": str(made.socket), "RANK": "9", "WORLD_SIZE": "16"}
        environment |= {"TORCHELASTIC_RUN_ID": "llama-7b", "PYTHONPATH": str(ROOT / "exporter" / "hook")}
        environment.pop("SLURM_JOB_ID", None)
        job = await asyncio.create_subprocess_exec(
            sys.executable, "-c", JOB, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert await job.stdout.readline() == b"sent\n"
        await asyncio.sleep(0)
        await made.read()
        await job.communicate(b"")
        assert made.collectives() == {("llama-7b", "9", "AllReduce"): 5}
        facts = made.ranks()["llama-7b", "9"]
        assert (facts["pid"], facts["host_pid"], facts["ranks"]) == (str(job.pid), str(job.pid), "8")


@pytest.mark.parametrize(("expiry", "missing"), [(hook.EXPIRY_SECONDS, 3), (0.0, 0)], ids=["tracked", "expired"])
async def test_datagram_numbers_of_a_process_expire(tmp_path, monkeypatch, expiry, missing):
    monkeypatch.setattr(hook, "EXPIRY_SECONDS", expiry)
    async with bench(tmp_path, "socket") as made:
        for number in (5, 9):
            await send(made.socket, datagram(number))
            await made.read()
        assert made.cells(metrics.TIMING_LOSSES, "lost_total")["missing",] == missing


# --- Inspector


async def test_records_dropped_by_inspector_are_counted_by_rank(tmp_path):
    async with bench(tmp_path) as made:
        stats = {
            "coll_records": 1,
            "coll_dropped_since_last_dump": 5,
            "p2p_records": 0,
            "p2p_dropped_since_last_dump": 2,
        }
        append(tmp_path / "inspector" / "j" / "h-pid1.log", line(dump_stats=stats), line(sequence=1, dump_stats=stats))
        append(tmp_path / "inspector" / "j" / "h-pid2.log", line(rank=1))
        await made.read()
        assert made.cells(LOSSES, "dropped_collectives_total") == {("j", "0"): 10}
        assert made.cells(LOSSES, "dropped_point_to_point_total") == {("j", "0"): 4}
        append(tmp_path / "inspector" / "j" / "h-pid1.log", line(sequence=2, dump_stats=stats))
        await made.read()
        assert made.cells(LOSSES, "dropped_collectives_total") == {("j", "0"): 15}


async def test_records_dropped_before_the_start_are_not_counted(tmp_path):
    path = tmp_path / "inspector" / "j" / "h-pid1.log"
    stats = {"coll_records": 1, "coll_dropped_since_last_dump": 5}
    path.parent.mkdir(parents=True)
    path.write_bytes(line(dump_stats=stats))
    async with bench(tmp_path) as made:
        append(path, line(sequence=1, dump_stats=stats))
        await made.read()
        assert made.cells(LOSSES, "dropped_collectives_total") == {("j", "0"): 5}


# --- PyTorch's Flight Recorder


def dump(*entries, ranks="[0, 1]", group="0"):
    """Return a dump of synthetic entries in the newest schema."""
    rows = [
        {
            "record_id": number,
            "pg_id": int(group),
            "process_group": [group, "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_700_000_000_000_000_000,
            "duration_ms": 1.5,
            "input_sizes": [[256, 1024]],
            "input_dtypes": ["Float"],
            "output_sizes": [[256, 1024]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "is_p2p": False,
            **changes,
        }
        for number, changes in enumerate(entries, 1)
    ]
    values = {
        "version": "2.10",
        "pg_config": {group: {"name": group, "desc": "default_pg", "ranks": ranks}},
        "entries": rows,
    }
    return json.dumps(values).encode()


async def settled(made):
    """Read twice: a dump is read when two consecutive polls find it unchanged."""
    await made.read()
    await made.read()


def entries_of(made):
    return made.counts(metrics.RECORDER_ENTRIES, "entries_total")


async def test_timed_entries_of_a_dump_become_totals_and_operations(tmp_path):
    async with bench(tmp_path, "recorder") as made:
        folder = tmp_path / "recorder" / "llama"
        folder.mkdir()
        values = dump(
            {},
            {"profiling_name": "nccl:_reduce_scatter_base", "duration_ms": 0.5},
            {"profiling_name": "nccl:_all_gather_base"},
            {"duration_ms": None},
            {"is_p2p": True, "profiling_name": "nccl:send 0->1"},
            {"state": "started", "duration_ms": None},
            {"input_dtypes": ["Odd"]},
            ranks="[4, 9, 11, 12]",
        )
        (folder / "nccl_trace_rank_9").write_bytes(values)
        await settled(made)
        size = 256 * 1024 * 4
        assert made.cells(COLLECTIVES, "collective_bytes_total") == {
            ("llama", "9", "AllReduce"): size,
            ("llama", "9", "ReduceScatter"): size,  # the input of one rank is the whole of it
            ("llama", "9", "AllGather"): 4 * size,
        }
        taken = {key[2]: (key[3], value) for key, value in made.operations().items()}
        assert taken == {
            "AllReduce": ("9", ((1, size, 1500, 1),)),
            "ReduceScatter": ("9", ((2, size, 500, 1),)),
            "AllGather": ("9", ((3, 4 * size, 1500, 1),)),
        }
        assert entries_of(made) == {
            "collective": 3,
            "untimed": 1,
            "point_to_point": 1,
            "unfinished": 1,
            "incomplete": 1,
        }
        assert made.ranks() == {("llama", "9"): {"host": "gpu-001", "ranks": "4"}}


async def test_ranks_of_one_group_share_a_communicator(tmp_path):
    async with bench(tmp_path, "recorder") as made:
        for rank, ranks in ((0, "[0, 1]"), (1, "[0, 1]"), (2, "[2, 3]")):
            (tmp_path / "recorder" / f"comm_lib_trace_rank_{rank}.json").write_bytes(dump({}, ranks=ranks))
        await settled(made)
        names = {rank: communicator for _, communicator, _, rank in made.operations()}
        assert names["0"] == names["1"] != names["2"]


async def test_dump_of_a_rank_outside_its_groups_is_incomplete(tmp_path):
    async with bench(tmp_path, "recorder") as made:
        (tmp_path / "recorder" / "trace_7").write_bytes(dump({}, {}, ranks="[0, 1]"))
        (tmp_path / "recorder" / "trace_8").write_bytes(dump({}, ranks="of eight"))
        await settled(made)
        assert (made.collectives(), entries_of(made)) == ({}, {"incomplete": 3})


async def test_later_dump_adds_only_new_completions(tmp_path):
    path = tmp_path / "recorder" / "trace_3"
    async with bench(tmp_path, "recorder") as made:
        path.write_bytes(dump({}, {"state": "started", "duration_ms": None}, {}, ranks="[3, 4]"))
        await settled(made)
        assert made.collectives() == {("unknown", "3", "AllReduce"): 2}
        path.write_bytes(dump({}, {}, {}, {}, ranks="[3, 4]"))
        await settled(made)
        assert made.collectives() == {("unknown", "3", "AllReduce"): 4}
        path.write_bytes(dump({}, {}, ranks="[3, 4]"))  # of a restarted process
        await settled(made)
        assert made.collectives() == {("unknown", "3", "AllReduce"): 6}


async def test_dump_from_before_the_start_is_not_read(tmp_path):
    (tmp_path / "recorder").mkdir()
    path = tmp_path / "recorder" / "trace_0"
    path.write_bytes(dump({}))
    async with bench(tmp_path, "recorder") as made:
        await settled(made)
        assert made.collectives() == {}
        path.write_bytes(dump({}, {}))
        await settled(made)
        assert made.collectives() == {("unknown", "0", "AllReduce"): 2}


async def test_dump_is_not_read_while_it_is_written(tmp_path):
    path = tmp_path / "recorder" / "trace_0"
    whole = dump({}, {})
    async with bench(tmp_path, "recorder") as made:
        for end in (100, 200, len(whole)):
            path.write_bytes(whole[:end])
            await made.read()
            assert made.collectives() == {}
        await made.read()
        assert made.collectives() == {("unknown", "0", "AllReduce"): 2}
        assert made.failures() == set()


def stuck_dump(ranks, ended, *, began, enqueued):
    """Return the dump of a rank with some collectives that ended, and perhaps one that did not."""
    entries = [{} for _ in range(ended)]
    if began:
        entries.append({"state": "started", "duration_ms": None, "time_created_ns": int(enqueued * 1e9)})
    return dump(*entries, ranks=ranks)


async def test_dumps_of_a_job_that_hangs_show_who_did_not_begin(tmp_path):
    """Of four ranks, rank 2 did not begin the 21st collective, in which the others have waited for ten minutes."""
    async with bench(tmp_path, "recorder") as made:
        for rank in range(4):
            path = tmp_path / "recorder" / f"trace_{rank}"
            path.write_bytes(stuck_dump("[0, 1, 2, 3]", 20, began=rank != 2, enqueued=time.time() - 600))
        await settled(made)
        state, now = None, 0.0
        while now < 170.0:
            state, _ = training.step(training.JobKnowledge(), state, replace(made.tables[metrics.STREAMS], time=now))
            await made.read()
            now += 5.0
        begun = {key[3]: count for key, count in made.cells(metrics.STREAMS, "begun").items()}
        assert begun == {"0": 21, "1": 21, "2": 20, "3": 21}
        assert set(made.cells(metrics.STREAMS, "ended").values()) == {20}
        given = state.memories["unknown"].given
        assert (given.verdict, [one.rank for one in given.ranks]) == (Verdict.HANG, ["2"])


async def test_a_dump_of_a_job_that_runs_is_reported_once(tmp_path):
    async with bench(tmp_path, "recorder") as made:
        path = tmp_path / "recorder" / "trace_0"
        path.write_bytes(stuck_dump("[0, 1]", 20, began=True, enqueued=time.time() - 2))
        await settled(made)
        assert list(made.cells(metrics.STREAMS, "begun").values()) == [21]
        await made.read()
        assert made.cells(metrics.STREAMS, "begun") == {}


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("ran",))


async def test_pickle_is_rejected_counted_and_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with bench(tmp_path, "recorder") as made:
        for protocol in (0, 2, 5):
            (tmp_path / "recorder" / f"nccl_trace_rank_{protocol}").write_bytes(pickle.dumps(Evil(), protocol))
        (tmp_path / "recorder" / "nccl_trace_rank_1").write_bytes(dump({}))
        await settled(made)
        assert made.counts(metrics.RECORDER_DUMPS, "dumps_total") == {"accepted": 1, "pickle": 3}
        assert ("unknown", "pickle") in made.failures()
        assert "_dump_nccl_trace_json" in next(one.detail for one in made.reading.failures if one.reason == "pickle")
        await made.read()
        assert made.failures() == set(), "reported once, not at each poll"
    assert not (tmp_path / "ran").exists()


async def test_malformed_dumps_are_counted_and_others_read(tmp_path, monkeypatch):
    monkeypatch.setattr(rewritten_files, "POLL_BUDGET", 20_000)
    folder = tmp_path / "recorder"
    async with bench(tmp_path, "recorder") as made:
        (folder / "trace_1").write_bytes(b"{" * 5000)
        (folder / "trace_2").write_bytes(b'{"version": 2.5}')
        (folder / "trace_3").write_bytes(b" " * 30_000)
        (folder / "trace_4").write_bytes(dump({"duration_ms": -1}, {}, ranks="[4, 5]"))
        (folder / "trace_5").symlink_to(folder / "trace_4")
        os.mkfifo(folder / "trace_6")
        (folder / "notes").write_bytes(b"no dump")
        await made.read()
        await made.read()
        assert made.counts(metrics.RECORDER_DUMPS, "dumps_total") == {
            "accepted": 1,
            "malformed": 1,
            "invalid": 1,
            "unreadable": 1,
        }
        assert entries_of(made) == {"invalid": 1, "collective": 1}
        assert {reason for _, reason in made.failures()} == {"malformed", "invalid", "efbig"}


@pytest.mark.parametrize(
    "name", ["nccl-formats/recorder-2.5.json", "corpus/nccl/pytorch/sample-flight-recorder-2.5.json"]
)
async def test_sample_dumps_are_accepted(tmp_path, request, name):
    async with bench(tmp_path, "recorder") as made:
        data = sample_path(request, name).read_bytes()
        (tmp_path / "recorder" / "nccl_trace_rank_0").write_bytes(data)
        await settled(made)
        assert made.counts(metrics.RECORDER_DUMPS, "dumps_total") == {"accepted": 1}
        assert sum(entries_of(made).values()) == len(json.loads(data)["entries"])


# --- CoMMA


async def test_comma_provides_totals_without_operations(tmp_path):
    async with bench(tmp_path, "comma") as made:
        append(tmp_path / "comma" / "latency-169.txt", (FORMATS / "comma.json").read_bytes())
        await made.read()
        assert made.cells(metrics.COMMA_COLLECTIVES, "collectives_total") == {("unknown", "AllReduce"): 1}
        assert made.cells(metrics.COMMA_COLLECTIVES, "collective_duration_seconds_total") == {
            ("unknown", "AllReduce"): 140
        }
        assert made.counts(metrics.COMMA_OBJECTS, "objects_total") == {
            "collective": 1,
            "untimed": 1,
            "other_category": 1,
            "invalid": 1,
        }
        assert (made.operations(), made.failures()) == ({}, set())


async def test_comma_history_is_not_counted(tmp_path):
    path = tmp_path / "comma" / "j" / "latency-1.txt"
    first, second = (FORMATS / "comma.json").read_bytes().splitlines(keepends=True)[:2]
    path.parent.mkdir(parents=True)
    path.write_bytes(first + second)
    async with bench(tmp_path, "comma") as made:
        await made.read()
        append(path, second)
        await made.read()
        assert made.cells(metrics.COMMA_COLLECTIVES, "collectives_total") == {("j", "AllReduce"): 1}


async def test_jobs_of_comma_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(comma, "MAX_JOBS", 2)
    event = (FORMATS / "comma.json").read_bytes().splitlines(keepends=True)[1]
    async with bench(tmp_path, "comma") as made:
        for job in "abcd":
            append(tmp_path / "comma" / job / "x.txt", event)
        await made.read()
        assert len(made.cells(metrics.COMMA_COLLECTIVES, "collectives_total")) == 2
        assert made.counts(metrics.COMMA_OBJECTS, "objects_total") == {"collective": 2, "over_limit": 2}


async def test_totals_of_comma_expire_so_that_new_jobs_have_room(tmp_path, monkeypatch):
    monkeypatch.setattr(comma, "MAX_JOBS", 2)
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(comma, "monotonic", lambda: clock.now)
    event = (FORMATS / "comma.json").read_bytes().splitlines(keepends=True)[1]

    def jobs():
        return {job for job, _ in made.cells(metrics.COMMA_COLLECTIVES, "collectives_total")}

    async with bench(tmp_path, "comma") as made:
        for job in "ab":
            append(tmp_path / "comma" / job / "x.txt", event)
        await made.read()
        assert jobs() == {"a", "b"}
        (tmp_path / "comma" / "a" / "x.txt").unlink()
        append(tmp_path / "comma" / "c" / "x.txt", event)
        await made.read()
        assert jobs() == {"b", "c"}, "files of a were removed"
        clock.now += comma.EXPIRY_SECONDS
        append(tmp_path / "comma" / "c" / "x.txt", event)
        append(tmp_path / "comma" / "d" / "x.txt", event)
        await made.read()
        assert jobs() == {"c", "d"}, "b wrote nothing for long; its file remains"
        assert made.counts(metrics.COMMA_OBJECTS, "objects_total") == {"collective": 5}


# --- xpu_timer


async def test_xpu_timer_provides_statistics_and_hangs(tmp_path):
    async with bench(tmp_path, "xpu_timer") as made:
        (tmp_path / "xpu_timer" / "metric_9").write_bytes(
            (FORMATS / "xpu_timer.prom").read_bytes()
            + b'XPU_TIMER_COLL_KERNEL_MAX_LATENCY{job_name="j",level="1",operation="AllGather",rank="9"} 700\n'
            + b'XPU_TIMER_COLL_KERNEL_MAX_LATENCY{job_name="j",level="2",operation="AllGather",rank="9"} 900\n'
            + b'XPU_TIMER_COLL_KERNEL_MIN_LATENCY{job_name="j",level="1",operation="AllGather",rank="9"} 20\n'
        )
        await made.read()
        kind = ("j", "9", "AllGather")
        assert made.cells(metrics.XPU_COLLECTIVES, "collective_longest_seconds") == {kind: pytest.approx(900e-6)}
        assert made.cells(metrics.XPU_COLLECTIVES, "collective_shortest_seconds") == {kind: pytest.approx(20e-6)}
        assert made.cells(metrics.XPU_COLLECTIVES, "highest_bytes_per_second") == {kind: pytest.approx(45.5e9)}
        assert made.cells(metrics.XPU_RANKS, "hang") == {("j", "9"): 1}
        assert made.counts(metrics.XPU_LINES, "lost_lines_total") == {"invalid": 1}


async def test_stale_xpu_timer_values_expire(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(xpu_timer, "monotonic", lambda: now[0])
    path = tmp_path / "xpu_timer" / "metric_9"
    path.parent.mkdir()
    path.write_bytes((FORMATS / "xpu_timer.prom").read_bytes())
    async with bench(tmp_path, "xpu_timer") as made:
        assert made.cells(metrics.XPU_RANKS, "hang") == {}, "from before the start"
        path.write_bytes((FORMATS / "xpu_timer.prom").read_bytes() + b"# rewritten\n")
        await made.read()
        assert made.cells(metrics.XPU_RANKS, "hang") == {("j", "9"): 1}
        now[0] += xpu_timer.STALE_SECONDS
        await made.read()
        assert made.cells(metrics.XPU_RANKS, "hang") == {}


async def test_xpu_timer_file_cannot_claim_another_job_than_its_folder(tmp_path):
    async with bench(tmp_path, "xpu_timer", exclude=("hidden",)) as made:
        for folder, job in (("a", "b"), (".", "b"), (".", "hidden")):
            (tmp_path / "xpu_timer" / folder).mkdir(exist_ok=True)
            (tmp_path / "xpu_timer" / folder / f"of_{job}").write_text(
                f'XPU_TIMER_COMMON_HANG{{job_name="{job}",rank="0"}} 1\n'
            )
        await made.read()
        assert set(made.cells(metrics.XPU_RANKS, "hang")) == {("a", "0"), ("b", "0")}


async def test_rows_of_xpu_timer_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(xpu_timer, "MAX_ROWS", 10)
    async with bench(tmp_path, "xpu_timer") as made:
        for name in "ab":
            rows = b"".join(b'XPU_TIMER_COMMON_HANG{job_name="%d",rank="9"} 0\n' % number for number in range(50))
            (tmp_path / "xpu_timer" / name).write_bytes(rows)
        await made.read()
        assert len(made.cells(metrics.XPU_RANKS, "hang")) == 10
        assert made.counts(metrics.XPU_LINES, "lost_lines_total") == {"over_limit": 90}, (
            "of each file, and its rows where there is no room"
        )


@pytest.mark.parametrize(
    "names",
    [
        ("nccl-formats/xpu_timer-running.prom", "nccl-formats/xpu_timer-some-hang.prom"),
        (
            "corpus/nccl/other/xpu_timer-normal-xpu_timer_metric_0.prom",
            "corpus/nccl/other/xpu_timer-hang-xpu_timer_metric_all.prom",
        ),
    ],
    ids=["own", "published"],
)
async def test_sample_scrapes_of_xpu_timer_are_read(tmp_path, request, names):
    async with bench(tmp_path, "xpu_timer") as made:
        for name in names:
            path = sample_path(request, name)
            (tmp_path / "xpu_timer" / path.name).write_bytes(path.read_bytes())
        await made.read()
        assert max(made.cells(metrics.XPU_RANKS, "hang").values()) == 1
        assert made.failures() == set()


# --- several feeds


def refuse_search(monkeypatch, folder):
    """Let the search in one folder fail."""
    find = JobFileSearch.find

    def refuse(self, failures):
        if self.patterns[0].endswith(f"/{folder}"):
            raise OSError(5, "Input/output error")
        return find(self, failures)

    monkeypatch.setattr(JobFileSearch, "find", refuse)


async def test_feed_fails_alone(tmp_path, monkeypatch):
    async with bench(tmp_path, "socket", "recorder", "comma", "xpu_timer") as made:
        refuse_search(monkeypatch, "recorder")
        append(tmp_path / "inspector" / "h-pid1.log", line())
        await send(made.socket, datagram())
        await made.read()
        assert made.collectives() == {("unknown", "0", "AllReduce"): 1, ("123", "3", "AllReduce"): 1}
        assert made.failures() == {("recorder", "unreadable")}


def refuse(*_):
    raise OSError(5, "Input/output error")


async def test_source_fails_if_its_only_feed_fails(tmp_path, monkeypatch):
    async with bench(tmp_path) as made:
        refuse_search(monkeypatch, "inspector")
        with pytest.raises(SourceError, match="Input/output error"):
            await made.read()
