"""Facts from NCCL's logs: transports, errors, jobs, and bounds against hostile logs."""

import os
import shutil
import time
from pathlib import Path

import pytest

from exporter.core.definition import Context
from exporter.core.source import Host, is_exported
from exporter.core.vocabulary import check
from exporter.linux.tail import Tail
from exporter.nccl.debug_log import parse_line
from exporter.nccl.log_facts import Failover, RecoveryFailure, WatchdogStall
from exporter.sources.common.job_files import JobFileSearch
from exporter.sources.nccl_facts import log_repeats, log_state
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nccl_facts.log_process import LoggedProcess
from exporter.sources.nccl_facts.log_state import LogState
from exporter.sources.nccl_facts.metrics import (
    ADAPTERS,
    COUNTERS,
    EVENTS,
    FILES,
    LINES,
    PROBLEMS,
    TRANSPORT,
)
from exporter.sources.nccl_facts.options import NcclFactsOptions
from exporter.sources.nccl_facts.problems import PROBLEMS as KNOWN_PROBLEMS
from exporter.sources.nccl_facts.source import DEFINITION
from tests.helpers.paths import FIXTURES
from tests.helpers.samples import sample_path
from tests.nccl.network_failures import LIBFABRIC, RDMA, SOCKETS, WATCHDOG

FOLDER = FIXTURES / "nccl-facts"
ROCE = (FOLDER / "roce.log").read_bytes()
TROUBLE = (FOLDER / "trouble.log").read_bytes()
HOST = Host("gpu-001", Path("/sys"), Path("/nowhere"))


class Bench:
    """A source with a folder of logs, and its last reading."""

    def __init__(self, folder, **options):
        self.folder = folder
        chosen = {"logs": (str(folder),), "textfiles": (), **options}
        (self.source,) = DEFINITION.build(NcclFactsOptions(**chosen), Context(HOST))

    async def read(self):
        self.reading = await self.source.read()
        self.tables = {table.schema: table for table in self.reading.tables}

    def cells(self, schema, ending):
        table = self.tables.get(schema)
        if table is None or table.values(ending) is None:
            return {}
        return {
            key: value for key, value in zip(table.rows.keys, table.values(ending), strict=True) if value is not None
        }

    def counted(self, kind):
        (ending,) = COUNTERS[kind].metrics
        return self.cells(COUNTERS[kind], ending)

    def problems(self):
        return {key[2]: count for key, count in self.cells(PROBLEMS, "problem_processes").items()}

    def transport(self):
        names = TRANSPORT.metrics["transport_info"].extra
        return {
            key: {name: text for name, text in zip(names, about, strict=True) if text}
            for key, about in self.cells(TRANSPORT, "transport_info").items()
        }

    def lines(self):
        return {key[0]: count for key, count in self.cells(LINES, "log_lines_total").items() if count}

    def failures(self):
        return {(one.device, one.reason) for one in self.reading.failures}


@pytest.fixture
async def bench(tmp_path):
    """A source whose folder was empty at the start."""
    made = Bench(tmp_path)
    await made.read()
    yield made
    await made.source.close()


def write(path, *parts, mode="ab"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(b"".join(parts))
    return path


def test_declared_metrics_follow_the_naming_rules():
    assert check([metric for schema in DEFINITION.schemas for metric in schema.metrics.values()]) == []
    assert all(is_exported(metric, (), ()) for schema in DEFINITION.schemas for metric in schema.metrics.values())


async def test_source_does_not_apply_without_files(tmp_path):
    made = Bench(tmp_path)
    assert not await made.source.applies()
    await made.read()
    assert (made.reading.tables, made.reading.failures) == ([], [])
    write(tmp_path / "any.log", b"x\n")
    assert await made.source.applies()
    await made.source.close()


async def test_transport_and_problems_of_a_log(bench):
    write(bench.folder / "llama" / "nccl.log", ROCE)
    await bench.read()
    assert bench.transport() == {
        ("llama", "gpu-001"): {
            "library": "NCCL",
            "version": "2.23.4",
            "network": "IB",
            "gdr": "partial",
            "sharp": "unused",
            "nvls": "used",
        }
    }
    assert bench.cells(TRANSPORT, "logged_processes") == {("llama", "gpu-001"): 2}
    assert bench.cells(ADAPTERS, "hca_info") == {
        ("llama", "gpu-001", "mlx5_0", "1"): ("RoCE", "yes", "on"),
        ("llama", "gpu-001", "mlx5_1", "1"): ("RoCE", "yes", "off"),
        ("llama", "gpu-001", "mlx5_bond_0", "1"): ("RoCE", "no", ""),
    }
    assert bench.problems() == {
        "tcp": 0,
        "no_adapter": 0,
        "no_libibverbs": 0,
        "gdr_off": 1,
        "gdr_partial": 0,
        "mixed_link_layers": 0,
        "bonded_adapter": 2,
        "short_timeout": 0,
    }
    assert bench.lines() == {"fact": 17, "other": 1}
    assert bench.cells(FILES, "log_files") == {(): 1}


async def test_errors_are_counted_with_flushed_completions_separate(bench):
    write(bench.folder / "llama" / "nccl.log", TROUBLE)
    await bench.read()
    host = ("llama", "gpu-001")
    assert bench.counted("port_events") == {
        (*host, "mlx5_1", "1", "port_error"): 2,
        (*host, "mlx5_1", "1", "port_active"): 1,
    }
    assert bench.counted("completion_errors") == {(*host, "mlx5_1", "retries_exceeded"): 1}
    assert bench.counted("unreachable_peers") == {("llama", "192.0.2.2"): 1}
    assert bench.counted("verbs_failures") == {(*host, "mlx5_1", "ibv_modify_qp", "timed_out"): 1}
    assert bench.counted("watchdog_timeouts") == {("llama", "AllReduce"): 1}
    assert bench.cells(EVENTS, "flushed_completions_total") == {host: 2}
    assert bench.cells(EVENTS, "failovers_total") == {host: 1}
    assert bench.cells(EVENTS, "recoveries_total") == {host: 0}
    assert bench.cells(TRANSPORT, "failed_adapters") == {host: 1}
    assert bench.problems()["adapter_failed"] == 1
    write(
        bench.folder / "llama" / "nccl.log",
        b"gpu-001:4101:4291 [1] NCCL INFO NET/IB: Device 1 has been recovered\n",
    )
    await bench.read()
    assert bench.cells(TRANSPORT, "failed_adapters") == {host: 0}
    assert bench.cells(EVENTS, "recoveries_total") == {host: 1}
    assert "adapter_failed" not in bench.problems()


async def test_failed_sockets_are_counted_by_host_and_connects_by_peer(bench):
    lines = [line for _, line, _ in SOCKETS] + ["h1:10:11 [2] misc/socket.cc:1 NCCL WARN Connect to a<1> failed : Odd"]
    write(bench.folder / "llama" / "nccl.log", "\n".join([*lines, ""]).encode())
    await bench.read()
    counts = {key[2:]: count for key, count in bench.counted("socket_failures").items()}
    assert {key[:2] for key in bench.counted("socket_failures")} == {("llama", "h1")}
    assert counts["connect", "refused", "failed"] == 3  # two with the peer, and "exceeded retries"
    assert counts["connect", "refused", "retried"] == 1
    assert counts["connect", "no_route", "retried"] == 2
    assert counts["connect", "other", "failed"] == 1
    assert counts["send", "broken_pipe", "failed"] == 1
    assert counts["interface", "", "failed"] == 7  # four of NCCL_SOCKET_IFNAME, three of NCCL_OOB_NET_IFNAME
    assert sum(counts.values()) == len(lines)
    assert bench.counted("connect_failures") == {
        ("llama", "192.0.2.4", "no_route"): 2,
        ("llama", "192.0.2.4", "refused"): 2,
        ("llama", "192.0.2.4", "aborted"): 1,
        ("llama", "192.0.2.4", "reset"): 1,
        ("llama", "192.0.2.4", "timed_out"): 1,
        ("llama", "fe80::1%eth0", "unreachable"): 1,
        ("llama", "n2.example.org", "address_unavailable"): 1,
        ("llama", "a", "other"): 1,
    }


async def test_failures_of_libfabric_are_counted_by_operation_and_error(bench):
    write(bench.folder / "llama" / "nccl.log", "\n".join([*(line for _, line, _ in LIBFABRIC), ""]).encode())
    await bench.read()
    counts = {key[2:]: count for key, count in bench.counted("libfabric_failures").items()}
    assert counts == {
        ("receive", "other"): 1,  # RC 21, "unknown error"
        ("receive", "unresponsive"): 1,
        ("send", "reset"): 1,
        ("send", "unreachable"): 1,
        ("request", "no_memory"): 1,
        ("request", "unresponsive"): 1,
        ("request", ""): 1,
        ("write", "receiver_not_ready"): 1,
        ("write", "reset"): 1,
        ("write", "unresponsive"): 1,
        ("connect", "unresponsive"): 1,
        ("connect", "no_route"): 1,
        ("completion_queue", "invalid_argument"): 1,
        ("post", "no_memory"): 1,
        ("memory", "invalid_argument"): 1,
        ("setup", "invalid_argument"): 1,
        ("setup", "no_device"): 1,
    }
    assert bench.counted("unreachable_peers") == {("llama", "fe80::2"): 2}


RAN = "Watchdog caught collective operation timeout: WorkNCCL({}) ran for {} milliseconds before timing out."
ENDED = "Process group watchdog thread terminated with exception: "
WORK = "SeqNum={}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000"


def timeouts(*lines, now=0.0, state=None):
    """Return how often time-outs are counted."""
    state = state or LogState()
    for line in lines:
        add_line(state, line, now)
    return sum(state.counts.get("watchdog_timeouts", {}).values())


def prefixed(rank, text, group_rank=None):
    return f"[rank{rank}]:[E626 06:24:45.9 ProcessGroupNCCL.cpp:6] [Rank {group_rank or rank}] {text}"


def test_timeout_of_the_watchdog_is_counted_once_however_often_it_is_printed():
    one = prefixed(3, RAN.format(WORK.format(8), 600020))
    again = "[rank3]:[E626 06:25:45.9 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] " + ENDED
    runtime = "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] " + ENDED
    text = "[Rank 3] " + RAN.format(WORK.format(8), 600020)
    later = "[Rank 3] " + RAN.format(WORK.format(8), 600120)
    assert timeouts(one, again + text, runtime + text, one) == 1
    assert timeouts(runtime + text, one, again + later) == 1
    assert timeouts(f"3: {one}", f"3: {runtime}{text}") == 1
    assert timeouts(one, one.replace("SeqNum=8", "SeqNum=9")) == 2
    assert timeouts(one, one.replace("ALLREDUCE", "ALLGATHER")) == 2  # of another group
    # the same rank and number in groups of two processes, and the end of one of them
    pair = [prefixed(rank, RAN.format(WORK.format(8), 600020), group_rank=1) for rank in (1, 3)]
    assert timeouts(*pair, runtime + text.replace("[Rank 3]", "[Rank 1]")) == 2
    # two launchers' tasks
    assert timeouts(f"0: {runtime}{text}", f"1: {runtime}{text}") == 2


def test_timeouts_without_sequence_number_are_the_same_if_they_ran_equally_long():
    old = "[E ProcessGroupNCCL.cpp:587] [Rank 3] "
    text = RAN.format("OpType=ALLREDUCE, Timeout(ms)=1800000", 1806986)
    assert timeouts(old + text, "terminate called\n  what():  [Rank 3] " + text) == 1
    assert timeouts(old + text, old + text.replace("1806986", "1806991")) == 2


def test_timeouts_of_the_history_and_of_restarts():
    state = LogState()
    line = prefixed(3, RAN.format(WORK.format(8), 600020))
    add_line(state, line, history=True)
    assert timeouts(line, now=5.0, state=state) == 0
    assert timeouts(line, now=599.0, state=state) == 0
    assert timeouts(line, now=599.0 + log_repeats.FORGET_SECONDS, state=state) == 1
    state.restart("/log")
    assert timeouts(line, now=1300.0, state=state) == 2
    state.retain([], ["j"])
    assert timeouts(line, now=1301.0, state=state) == 3


def test_memory_of_timeouts_is_bounded():
    repeats = log_repeats.WatchdogRepeats()

    def seen(path, rank, number):
        entry = parse_line(prefixed(rank, RAN.format(WORK.format(number), 600020), group_rank=1).encode())
        return repeats.is_repeat(path, entry, 0.0)

    for number in range(log_repeats.MAX_EVENTS + 10):
        assert not seen("/log", 1, number)
    assert len(repeats._logs["/log"]) == log_repeats.MAX_EVENTS
    assert seen("/log", 1, log_repeats.MAX_EVENTS)
    for rank in range(2, log_repeats.MAX_PROCESSES + 10):
        assert not seen("/log", rank, log_repeats.MAX_EVENTS)
    ((processes),) = [one.processes for one in repeats._logs["/log"].values() if len(one.processes) > 1]
    assert len(processes) == log_repeats.MAX_PROCESSES
    for log in range(log_repeats.MAX_LOGS + 10):
        assert not seen(f"/log-{log}", 1, 1)
    assert len(repeats._logs) == log_repeats.MAX_LOGS


async def test_stalled_watchdog_is_counted_once_by_process(bench):
    lines = [line for _, line, fact in WATCHDOG if isinstance(fact, WatchdogStall)]
    stuck = lines[0].encode()
    write(bench.folder / "llama" / "out.log", stuck + b"\n", stuck + b"\n", stuck.replace(b"ank7", b"ank6") + b"\n")
    await bench.read()
    assert bench.counted("watchdog_stalls") == {("llama",): 2}


async def test_nic_that_is_not_recovered_is_counted(bench):
    log = [line for _, line, fact in RDMA if isinstance(fact, Failover | RecoveryFailure)]
    write(bench.folder / "llama" / "nccl.log", "\n".join([*log, ""]).encode())
    await bench.read()
    assert bench.cells(EVENTS, "failovers_total") == {("llama", "h1"): 1}
    assert bench.cells(EVENTS, "recovery_failures_total") == {("llama", "h1"): 1}
    assert bench.cells(TRANSPORT, "failed_adapters") == {("llama", "h1"): 1}


async def test_history_updates_processes_and_is_not_counted(tmp_path):
    path = write(tmp_path / "llama" / "nccl.log", ROCE, TROUBLE, b"." * 99 + b"\n", b"noise\n" * 200_000)
    assert path.stat().st_size > 3 * nccl_facts.MAX_HEAD
    made = Bench(tmp_path)
    await made.read()
    assert made.transport()["llama", "gpu-001"]["network"] == "IB"
    assert made.counted("port_events") == {}
    assert made.cells(EVENTS, "flushed_completions_total") == {("llama", "gpu-001"): 0}
    assert made.lines() == {}
    write(path, TROUBLE)
    await made.read()
    assert sum(made.counted("port_events").values()) == 3
    await made.source.close()


async def test_job_is_named_by_the_path_not_the_content(tmp_path):
    line = b"gpu-001:%d:1 [0] NCCL INFO Using network IB\n"
    for place, path in enumerate(("jobs/a/nccl.log", "jobs/b/deep/nccl.log", "flat/slurm-77.out", "flat/x.log")):
        write(tmp_path / path, line % place)
    made = Bench(tmp_path, logs=(f"{tmp_path}/jobs/*", f"{tmp_path}/flat"))
    await made.read()
    assert {job for job, _ in made.transport()} == {"a", "b", "77", "unknown"}
    await made.source.close()
    made = Bench(tmp_path, logs=(f"{tmp_path}/jobs/*",), exclude=("b",))
    await made.read()
    assert {job for job, _ in made.transport()} == {"a"}
    await made.source.close()


async def test_state_of_a_job_is_removed_with_its_files(bench):
    write(bench.folder / "a" / "nccl.log", ROCE, TROUBLE)
    write(bench.folder / "b" / "nccl.log", TROUBLE)
    await bench.read()
    assert {key[0] for key in bench.counted("port_events")} == {"a", "b"}
    shutil.rmtree(bench.folder / "a")
    await bench.read()
    assert {key[0] for key in bench.counted("port_events")} == {"b"}
    assert {job for job, _ in bench.transport()} == {"b"}
    assert bench.cells(ADAPTERS, "hca_info") == {}


async def test_rewritten_log_drops_its_previous_processes(bench):
    path = write(bench.folder / "a" / "nccl.log", b"NCCL version 2.21.5+cuda12.4\n", ROCE)
    await bench.read()
    write(path, b"gpu-001:9:9 [0] NCCL INFO Using network Socket\n", mode="wb")
    await bench.read()
    assert bench.transport() == {("a", "gpu-001"): {"network": "Socket"}}
    assert bench.problems() == {"tcp": 1}


def add_line(state, text, now=0.0, history=False, job="j", path="/log"):
    entry = parse_line(text.encode())
    assert entry is not None, text
    state.add(job, path, entry, now, history=history)


def test_much_younger_processes_belong_to_a_restart():
    state = LogState()
    for pid in (1, 2):
        add_line(state, f"n1:{pid}:1 [0] NCCL INFO Using network IB", now=float(pid))
    add_line(state, "n1:3:1 [0] NCCL INFO Using network IB", now=300.0)
    assert set(state.groups["j", "/log", "n1"]) == {1, 2, 3}
    add_line(state, "n1:4:1 [0] NCCL INFO Using network Socket", now=610.0)
    assert set(state.groups["j", "/log", "n1"]) == {3, 4}


def process(*lines):
    state = LogState()
    for one in lines:
        add_line(state, one)
    (group,) = state.groups.values()
    (found,) = group.values()
    return found


CHANNEL = "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0"
SEND = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0"
RINGS = "n1:1:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0"
SHAPE = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes {} localRanks 8 localRank 0 MNNVL 0"


@pytest.mark.parametrize(
    ("lines", "gdr"),
    [
        ([CHANNEL + "/GDRDMA", SEND], "on"),
        ([CHANNEL, SEND + "/GDRDMA"], "off"),
        ([CHANNEL, CHANNEL + "/GDRDMA"], "partial"),
        ([SEND], "off"),
        ([RINGS], "off"),
        ([RINGS.replace("GDR 0", "GDR 1")], "on"),
        ([RINGS, SHAPE.format(1)], ""),  # within one node
        ([RINGS, SHAPE.format(2)], "off"),
        (["n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"], "off"),
        (
            ["n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"],
            "",
        ),  # only supported
        (["n1:1:2 [0] NCCL INFO Using network Socket", RINGS], ""),
    ],
)
def test_gdr_state_is_that_of_receiving_channels(lines, gdr):
    assert process(*lines).gdr == gdr


@pytest.mark.parametrize(
    ("name", "line", "holds"),
    [
        ("tcp", "n1:1:2 [0] NCCL INFO Using network Socket", True),
        ("tcp", "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0", True),
        ("tcp", "n1:1:2 [0] NCCL INFO Using network AWS Libfabric", False),
        ("no_adapter", "n1:1:2 [0] NCCL INFO NET/IB : No device found.", True),
        ("no_libibverbs", "n1:1:2 [0] NCCL INFO Failed to open libibverbs.so[.1]", True),
        ("provider_tcp", "n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm", True),
        ("provider_tcp", "n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa", False),
        ("gdr_off", CHANNEL, True),
        (
            "gdr_too_far",
            "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)",
            True,
        ),
        (
            "gdr_too_far",  # disabled for another reason
            "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 3 <= 4)",
            False,
        ),
        (
            "gdr_too_far",
            "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for GPU 81000 / HCA 1 (distance 6 <= 7), read 1",
            False,
        ),
        ("gdr_disabled", "n1:1:2 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to LOC", True),
        ("adapter_across_cpu", "n1:1:2 [0] NCCL INFO GPU/8F000 :NET/0 (6/24.0/SYS) NET/1 (5/12.0/PHB)", True),
        ("adapter_across_cpu", "n1:1:2 [0] NCCL INFO GPU/8F000 :NET/0 (6/24.0/SYS) NET/1 (4/24.0/PXB)", False),
        (
            "mixed_link_layers",
            "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/RoCE [RO]; OOB e:1<0>",
            True,
        ),
        ("bonded_adapter", "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_bond_0:1/RoCE [RO]; OOB e:1<0>", True),
        (
            "ece",
            "n1:1:2 [7] NCCL INFO NET/IB: IbDev 4 Port 1 qpn 3 set_ece={supported=1, vendor_id=0x15b3}",
            True,
        ),
        (
            "protection_errors",
            "n1:1:2 [1] NCCL WARN NET/IB : Got completion from peer n2<5> with error 4, vendor err 81 (Send)",
            True,
        ),
        ("short_timeout", "n1:1:2 [6] NCCL INFO NCCL_IB_TIMEOUT set by environment to 1.", True),
        ("ib_disabled", "n1:1:2 [6] NCCL INFO NCCL_IB_DISABLE set by environment to 1.", True),
        ("ib_disabled", "n1:1:2 [6] NCCL INFO NCCL_IB_DISABLE set by environment to 0.", False),
    ],
)
def test_problem_checks(name, line, holds):
    (problem,) = [one for one in KNOWN_PROBLEMS if one.name == name]
    assert problem.check(process(line)) is holds


SOCKET = "n1:1:2 [0] NCCL INFO Using network Socket"
NO_GDR = "n1:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"


@pytest.mark.parametrize(
    ("lines", "crosses", "problems"),
    [
        # NCCL selects a network, and looks for GPUDirect RDMA, in a job of one node too, which then uses neither.
        ([SOCKET, SHAPE.format(1)], False, set()),
        ([NO_GDR, SHAPE.format(1)], False, set()),
        ([SOCKET, SHAPE.format(1), SHAPE.format(2)], True, {"tcp"}),
        ([SOCKET, CHANNEL.replace("NET/IB", "NET/Socket")], True, {"tcp"}),
        ([NO_GDR, SHAPE.format(2)], True, {"gdr_off"}),
        ([SOCKET], None, {"tcp"}),
    ],
)
def test_a_network_is_a_problem_only_where_there_are_other_nodes(lines, crosses, problems):
    found = process(*lines)
    assert found.crosses_nodes is crosses
    assert {problem.name for problem in KNOWN_PROBLEMS if problem.check(found)} == problems


async def test_processes_with_other_nodes_and_the_age_of_logs(bench):
    path = write(bench.folder / "llama" / "nccl.log", ROCE)
    one = write(bench.folder / "small" / "nccl.log", f"{SOCKET}\n{SHAPE.format(1)}\n".encode())
    write(bench.folder / "old" / "nccl.log", f"{SOCKET}\n".encode())
    os.utime(path, (time.time() - 7200, time.time() - 7200))
    os.utime(one, (time.time() + 7200, time.time() + 7200))  # the clock of the file server is ahead
    await bench.read()
    assert bench.cells(TRANSPORT, "network_processes") == {("llama", "gpu-001"): 2, ("small", "n1"): 0}
    ages = {job: age for (job, _), age in bench.cells(TRANSPORT, "log_age_seconds").items()}
    assert ages["llama"] == pytest.approx(7200, abs=60)
    assert ages["small"] == 0
    assert 0 <= ages["old"] < 60
    write(path, b"step 2000\n")  # a line of the job itself
    await bench.read()
    assert bench.cells(TRANSPORT, "log_age_seconds")["llama", "gpu-001"] < 60


@pytest.mark.parametrize("problem", KNOWN_PROBLEMS, ids=lambda problem: problem.name)
def test_problems_of_a_process_without_facts_are_unknown(problem):
    assert problem.check(LoggedProcess("/log", "n1", 0.0)) is None


async def test_different_processes_of_a_host_are_mixed(bench):
    for pid, network in ((1, "IB"), (2, "Socket")):
        write(bench.folder / "a" / "x.log", b"n1:%d:1 [0] NCCL INFO Using network %s\n" % (pid, network.encode()))
    write(bench.folder / "a" / "x.log", b"NCCL version 2.21.5+cuda12.4\n")
    await bench.read()
    assert bench.transport() == {("a", "n1"): {"library": "NCCL", "version": "2.21.5", "network": "mixed"}}
    assert bench.problems() == {"tcp": 1}


async def test_merged_nics_are_all_used(bench):
    using = (
        b"n1:1:1 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [2]mlx5_2:1/IB [RO]; OOB e:1<0>\n"
    )
    write(bench.folder / "a" / "x.log", using)
    await bench.read()
    assert {key[2]: about[1] for key, about in bench.cells(ADAPTERS, "hca_info").items()} == dict.fromkeys(
        ("mlx5_0", "mlx5_1", "mlx5_2"), ""
    )
    write(bench.folder / "a" / "x.log", CHANNEL.replace("n1:1:2", "n1:1:1").encode() + b"/GDRDMA\n")
    await bench.read()
    assert {key[2]: about[1] for key, about in bench.cells(ADAPTERS, "hca_info").items()} == {
        "mlx5_0": "yes",
        "mlx5_1": "yes",
        "mlx5_2": "no",
    }


# --- hostile logs


def test_hosts_processes_jobs_and_rows_are_bounded_and_counted():
    state = LogState()
    for place in range(log_state.MAX_HOSTS + 5):
        add_line(state, f"h{place}:1:1 [0] NCCL INFO Using network IB")
    assert (len(state.groups), state.over_limit) == (log_state.MAX_HOSTS, 5)
    state = LogState()
    for pid in range(log_state.MAX_PROCESSES + 7):
        add_line(state, f"n1:{pid}:1 [0] NCCL INFO Using network IB")
    assert (sum(map(len, state.groups.values())), state.over_limit) == (log_state.MAX_PROCESSES, 7)
    state = LogState()
    for place in range(log_state.MAX_JOBS + 3):
        add_line(state, "n1:1:1 [0] NCCL INFO Using network IB", job=f"j{place}")
    assert (len(state.groups), state.over_limit) == (log_state.MAX_JOBS, 3)
    state = LogState()
    for place in range(log_state.MAX_COUNTED + 9):
        add_line(state, f"n1:1:1 [0] NCCL WARN NET/IB : mlx{place}:1 Got non-fatal async event: port error(10)")
    assert (len(state.counts["port_events"]), state.over_limit) == (log_state.MAX_COUNTED, 9)


def test_removed_hosts_free_their_slots():
    state = LogState()
    for place in range(log_state.MAX_HOSTS):
        add_line(state, f"h{place}:1:1 [0] NCCL INFO Using network IB", path=f"/{place}")
    state.retain(["/0"], ["j"])
    add_line(state, "late:1:1 [0] NCCL INFO Using network IB")
    assert (len(state.groups), state.over_limit) == (2, 0)


def test_tcp_channels_use_no_nic():
    found = process("n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0")
    assert (found.used, found.received, found.effective_network) == (set(), {}, "Socket")


@pytest.mark.parametrize("first", [0, 1])
def test_nvls_is_used_if_any_communicator_uses_it(first):
    lines = [
        "n1:1:2 [0] NCCL INFO Connected NVLS tree",
        "n1:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0",
    ]
    assert process(lines[first], lines[1 - first]).nvls == "used"
    assert process(lines[1]).nvls == "unavailable"


async def test_log_removed_between_listing_and_reading_is_not_a_failure(bench, monkeypatch):
    write(bench.folder / "a" / "x.log", ROCE)

    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Tail, "read", gone)
    await bench.read()
    assert bench.failures() == set()


def test_removed_jobs_free_their_slots():
    state = LogState()
    for place in range(log_state.MAX_JOBS):
        add_line(state, "n1:1:1 [0] NCCL INFO Using network IB", job=f"j{place}", path=f"/{place}")
    state.retain(["/0"], ["j0"])
    add_line(state, "n1:1:1 [0] NCCL INFO Using network IB", job="late", path="/late")
    assert (len(state.groups), state.over_limit) == (2, 0)


def test_unknown_names_do_not_become_labels():
    state = LogState()
    for text in ("evil\\", "other"):
        add_line(state, f"n1:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: {text}(10)")
    add_line(state, "n1:1:1 [0] NCCL WARN Call to ibv_made_up failed with error something new")
    add_line(
        state, "n1:1:1 [0] NCCL WARN NET/IB : Got completion from peer n2<5> with status=99 opcode=0 len=0 vendor err 0"
    )
    assert list(state.counts["port_events"]) == [("j", "n1", "mlx5_0", "1", "other")]
    assert list(state.counts["verbs_failures"]) == [("j", "n1", "", "other", "other")]
    assert list(state.counts["completion_errors"]) == [("j", "n1", "", "other")]
    assert "unreachable_peers" not in state.counts


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("local catastrophic error", "device_fatal"),
        ("local work queue catastrophic error", "queue_pair_fatal"),
        ("local access violation work queue error", "queue_pair_access"),
        ("port error", "port_error"),
        ("port active(9)", "port_active"),
        ("GID table change", "gid_change"),
        ("P_Key change", "pkey_change"),
        ("LID change", "lid_change"),
        ("communication established", "other"),
    ],
)
def test_port_event_label_values(text, event):
    """The texts are those of libibverbs."""
    state = LogState()
    add_line(state, f"n1:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : {text}")
    assert list(state.counts["port_events"]) == [("j", "n1", "mlx5_0", "1", event)]


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (4, "local_protection"),
        (9, "remote_invalid_request"),
        (10, "remote_access"),
        (12, "retries_exceeded"),
        (13, "receiver_not_ready"),
    ],
)
def test_completion_status_label_values(status, name):
    state = LogState()
    add_line(state, f"n1:1:1 [0] NCCL WARN NET/IB : Got completion from peer n2<5> with status={status} opcode=0 len=0")
    assert list(state.counts["completion_errors"]) == [("j", "n1", "", name)]
    assert ("unreachable_peers" in state.counts) is (status == 12)


def test_many_new_processes_take_linear_time():
    entries = [parse_line(b"n1:%d:1 [0] NCCL INFO Using network IB" % pid) for pid in range(40_000)]
    state = LogState()
    begin = time.process_time()
    for entry in entries:
        state.add("j", "/log", entry, 0.0, history=False)
    assert time.process_time() - begin < 5  # quadratic time took a minute


async def test_oversized_lines_control_characters_and_links_are_harmless(bench):
    write(bench.folder / "a" / "huge.log", b"NCCL INFO Using network " + b"x" * 20_000 + b"\n", b"y" * (3 << 20), b"\n")
    write(bench.folder / "a" / "odd.log", b"n\x1b[31m1:7:7 [0] NCCL INFO Using network I\x00B\xff\n\xff\xfe\n")
    (bench.folder / "a" / "link.log").symlink_to("/etc/passwd")
    os.mkfifo(bench.folder / "a" / "pipe.log")
    for _ in range(4):
        await bench.read()
    assert bench.lines()["too_long"] == 2
    assert bench.cells(FILES, "log_files") == {(): 2}
    assert all("\x1b" not in text and "\0" not in text for key in bench.transport() for text in key)


async def test_search_for_text_files_that_fails_does_not_affect_logs(tmp_path, monkeypatch):
    write(tmp_path / "logs" / "a" / "x.log", ROCE)
    find = JobFileSearch.find

    def refuse(self, failures):
        if self.patterns[0].endswith("/texts"):
            raise OSError(5, "Input/output error")
        return find(self, failures)

    monkeypatch.setattr(JobFileSearch, "find", refuse)
    made = Bench(tmp_path, logs=(f"{tmp_path}/logs",), textfiles=(f"{tmp_path}/texts",))
    await made.read()
    assert made.failures() == {("", "unreadable")}
    assert {job for job, _ in made.transport()} == {"a"}
    await made.source.close()


async def test_unreadable_log_fails_alone(bench, monkeypatch):
    write(bench.folder / "a" / "x.log", ROCE)
    write(bench.folder / "b" / "x.log", ROCE)
    read = Tail.read

    def refused(self, file, budget):
        if "/a/" in file.path:
            raise PermissionError(13, "Permission denied")
        return read(self, file, budget)

    monkeypatch.setattr(Tail, "read", refused)
    await bench.read()
    assert bench.failures() == {("a", "eacces")}
    assert {job for job, _ in bench.transport()} == {"b"}


async def test_inspector_files_are_not_read_as_logs(bench):
    write(bench.folder / "a" / "gpu-001-pid12.log", ROCE)
    write(bench.folder / "a" / "x.prom", ROCE)
    await bench.read()
    assert bench.reading.tables == []


# --- samples


@pytest.mark.parametrize("name", ["nccl-facts", "corpus/nccl/logs"])
async def test_sample_logs_are_read_without_failures(request, tmp_path, name):
    shutil.copytree(sample_path(request, name), tmp_path / "logs", ignore=shutil.ignore_patterns("*.rst"))
    made = Bench(tmp_path, logs=(f"{tmp_path}/logs/*.log",))
    await made.read()
    assert made.reading.tables
    assert made.reading.failures == []
    await made.source.close()


@pytest.mark.parametrize(
    ("name", "transport", "problems"),
    [
        ("nccl-facts/mixed-links.log", {}, {"mixed_link_layers"}),
        ("nccl-facts/socket.log", {"version": "2.10.3", "network": "Socket"}, {"tcp", "no_libibverbs"}),
        ("nccl-facts/gdr-off.log", {"network": "IB", "gdr": "off", "nvls": "used"}, {"gdr_off", "protection_errors"}),
        ("nccl-facts/efa-gdr.log", {"version": "2.23.4", "gdr": "on", "network": "AWS Libfabric"}, set()),
        ("nccl-facts/efa-tcp.log", {"provider": "tcp;ofi_rxm"}, {"provider_tcp"}),
        ("nccl-facts/no-device.log", {"version": "2.27.5"}, {"no_adapter"}),
        ("corpus/nccl/logs/03-*.log", {}, {"mixed_link_layers"}),
        ("corpus/nccl/logs/08-*.log", {"network": "Socket"}, {"tcp", "no_libibverbs"}),
        ("corpus/nccl/logs/21-*.log", {"network": "IB", "gdr": "off"}, {"gdr_off"}),
        ("corpus/nccl/logs/22-*.log", {"version": "2.23.4", "gdr": "on", "network": "AWS Libfabric"}, set()),
        ("corpus/nccl/logs/23-*.log", {"provider": "tcp;ofi_rxm"}, {"provider_tcp"}),
        ("corpus/nccl/logs/24-*.log", {"gdr": "off", "nvls": "used"}, {"gdr_off"}),
        ("corpus/nccl/logs/29-*.log", {"version": "2.27.5"}, {"no_adapter"}),
        ("corpus/nccl/logs/32-*.log", {"gdr": "off"}, {"gdr_off"}),
    ],
)
async def test_sample_logs_show_the_known_problems(request, tmp_path, name, transport, problems):
    pattern = sample_path(request, name)
    (path,) = pattern.parent.glob(pattern.name)
    shutil.copy(path, tmp_path)
    made = Bench(tmp_path)
    await made.read()
    labels = {word: text for about in made.transport().values() for word, text in about.items()}
    assert transport.items() <= labels.items()
    assert problems <= {name for name, count in made.problems().items() if count}
    await made.source.close()
