"""RAS: conditions for polling, against a simulated service, and the comparison of two replies."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from exporter.config.errors import ConfigError
from exporter.config.units import Duration
from exporter.config.yaml_reader import parse
from exporter.nccl.ras import parse_report
from exporter.sources.nccl_facts import ras_poller
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nccl_facts.metrics import RAS_BEHIND, RAS_JOB, RAS_POLLS
from exporter.sources.nccl_facts.options import NcclFactsOptions, RasOptions
from exporter.sources.nccl_facts.ras_status import evaluate, listening_inodes
from tests.helpers.paths import FIXTURES
from tests.helpers.samples import sample_path
from tests.sources.nccl_facts.test_source import Bench, write

FOLDER = FIXTURES / "nccl-formats"
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class Service:
    """A simulated RAS service, which records the requests."""

    def __init__(self):
        self.answer = b""
        self.asked = []
        self.silent = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0

    async def serve(self, reader, writer):
        try:
            for wanted, reply in ((b"CLIENT PROTOCOL 2", b"SERVER PROTOCOL 2\n"), (b"SET FORMAT json", b"OK\n")):
                line = (await reader.readline()).strip()
                self.asked.append(line)
                assert line == wanted
                writer.write(reply)
            self.asked.append((await reader.readline()).strip())
            if self.silent:
                await asyncio.sleep(3600)
            await self.gate.wait()
            writer.write(self.answer)
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(host="127.0.0.1"):
    service = Service()
    server = await asyncio.start_server(service.serve, host, 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()


def sockets(procfs, port, *inodes):
    """Write /proc/net/tcp with sockets of these inodes that listen on a port."""
    rows = (f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 1000 0 {inode} 1\n" for inode in inodes)
    write(procfs / "net" / "tcp", (HEADER + "".join(rows)).encode(), mode="wb")


def report(counts, version="2.29.2", **status):
    """Return a reply: counts of AllReduce by rank, two ranks per host."""
    ranks = [
        {
            "rank": rank,
            "host": f"192.0.2.{rank // 2}",
            "pid": 100 + rank,
            "cuda_dev": rank % 2,
            "nvml_dev": rank % 2,
            "status": {"init_state": 0, "async_error": 0, **status},
            "collective_counts": {"AllReduce": count, "AllGather": 7},
        }
        for rank, count in enumerate(counts)
    ]
    communicator = {"hash": "0xc0ffee", "secondary_hash": "0x1:0x2", "size": len(ranks), "ranks": ranks}
    return json.dumps({"nccl_version": version, "communicators": [communicator]}).encode()


START = (
    b"gpu-001:4100:1 [0] NCCL INFO NCCL version 2.29.2+cuda13.0\n"
    b"gpu-001:4100:1 [0] NCCL INFO ncclCommInitRank comm 0x5 rank %d nranks 4 cudaDev 0 nvmlDev 0 busId 1c000 "
    b"commId 0xc0ffee - Init COMPLETE\n"
)


class RasBench(Bench):
    """A source that may poll the service, with a clock that the test sets."""

    def __init__(self, folder, service, clock, **ras):
        self.clock, self.procfs = clock, folder / "proc"
        self.service = service
        options = RasOptions(**{"enabled": True, "address": f"127.0.0.1:{service.port}", **ras})
        super().__init__(folder / "logs", ras=options)
        self.source._host = nccl_facts.Host("gpu-001", folder, self.procfs)

    async def ask(self, seconds=30.0):
        """Advance the clock, read, and wait for a running poll."""
        self.clock.now += seconds
        await self.read()
        task = self.source._ras._task
        if task is not None:
            await asyncio.wait([task])
            await self.read()

    def outcomes(self):
        return {key[0]: count for key, count in self.cells(RAS_POLLS, "polls_total").items() if count}

    def job(self, ending):
        return self.cells(RAS_JOB, ending)


@pytest.fixture
async def bench(tmp_path, stopped_clock):
    """A source whose job is old enough to be polled, with rank 0 on this host."""
    clock = stopped_clock(nccl_facts, ras_poller)
    async with serving() as service:
        made = RasBench(tmp_path, service, clock)
        sockets(made.procfs, service.port, 11)
        write(made.folder / "llama" / "nccl.log", START % 0)
        await made.read()
        clock.now += 300
        yield made
        await made.source.close()


async def test_ras_is_disabled_by_default(tmp_path):
    async with serving() as service:
        made = Bench(tmp_path)
        sockets(tmp_path / "proc", service.port, 11)
        assert not await made.source.applies()
        await made.read()
        assert (made.reading.tables, service.asked) == ([], [])
        await made.source.close()


async def test_ras_status_is_requested_as_json(bench):
    bench.service.answer = report([5, 5, 5, 5])
    await bench.ask()
    assert bench.service.asked == [b"CLIENT PROTOCOL 2", b"SET FORMAT json", b"STATUS"]
    assert bench.outcomes() == {"too_young": 1, "answered": 1}
    assert bench.job("communicators") == {("llama",): 1}
    assert bench.job("ranks") == {("llama",): 4}
    assert bench.job("missing_ranks") == {("llama",): 0}
    assert bench.job("ranks_behind") == {}  # a single reply is not sufficient
    assert bench.reading.failures == []


async def test_ranks_behind_are_exported_while_nothing_is_launched(bench):
    bench.service.answer = report([641, 640, 641, 641])
    await bench.ask()
    await bench.ask()
    assert bench.job("ranks_behind") == {("llama",): 1}
    assert bench.job("stalled_seconds") == {("llama",): 30.0}
    assert bench.cells(RAS_BEHIND, "rank_behind") == {("llama", "1", "192.0.2.0", "1"): 1}
    await bench.ask()
    assert bench.job("stalled_seconds") == {("llama",): 60.0}
    bench.service.answer = report([642, 641, 642, 642])
    await bench.ask()
    assert bench.job("ranks_behind") == {("llama",): 0}
    assert bench.job("stalled_seconds") == {("llama",): 0.0}
    assert bench.cells(RAS_BEHIND, "rank_behind") == {}


async def test_larger_group_may_be_behind():
    first = evaluate(parse_report(report([640, 640, 640, 641])), None, 0.0)
    second = evaluate(parse_report(report([640, 640, 640, 641])), first, 30.0)
    assert [row[0] for row in second.behind] == ["0", "1", "2"]
    first = evaluate(parse_report(report([640] * 4)), None, 0.0)
    second = evaluate(parse_report(report([640] * 4)), first, 30.0)
    assert (second.behind, second.values["ranks_behind"], second.values["stalled_seconds"]) == ((), 0, 30.0)
    other = evaluate(parse_report(report([640] * 3)), second, 60.0)  # other ranks: unknown
    assert (other.values["ranks_behind"], other.values["stalled_seconds"]) == (None, None)


def of_two_sizes(count):
    """Return a reply in which half of a large communicator is also in small ones, with other ranks."""
    large = json.loads(report([5] * count))
    small = json.loads(report([5] * (count // 2 - 1) + [4]))["communicators"][0]
    for place, rank in enumerate(small["ranks"]):
        rank |= {"host": large["communicators"][0]["ranks"][-1 - place]["host"], "pid": 100 + count - 1 - place}
    large["communicators"] = [{**small, "hash": "0x1"}, large["communicators"][0], {**small, "hash": "0x2"}]
    return parse_report(json.dumps(large).encode())


def test_ranks_behind_are_named_by_the_largest_communicator():
    made = evaluate(of_two_sizes(8), evaluate(of_two_sizes(8), None, 0.0), 30.0)
    assert [row[0] for row in made.behind] == ["4"]  # rank 3 of the small ones


def test_ranks_behind_are_bounded_and_counted():
    answer = parse_report(report([1] * 500 + [2]))
    made = evaluate(answer, evaluate(answer, None, 0.0), 30.0)
    assert (len(made.behind), made.values["ranks_behind"]) == (64, 500)


async def test_missing_ranks_in_the_invalid_json_of_2_28_7(bench):
    bench.service.answer = (FOLDER / "ras-2.28.7-no-comma.json").read_bytes()
    with pytest.raises(json.JSONDecodeError):
        json.loads(bench.service.answer)
    await bench.ask()
    key = ("unknown",)  # no log names its communicator
    assert bench.job("missing_ranks") == {key: 2}
    assert bench.job("dead_ranks") == {key: 1}
    assert bench.job("failed_ranks") == {key: 1}
    assert bench.job("partial") == {key: 1}
    assert bench.job("collection_seconds") == {key: 5.0}


async def test_job_that_initialises_a_communicator_counts_as_young(bench):
    bench.service.answer = report([5] * 4, init_state=7)
    await bench.ask()
    await bench.ask()
    assert bench.outcomes() == {"too_young": 2, "answered": 1}


async def test_initialisation_in_a_log_prevents_polling(bench):
    line = b"gpu-001:4100:1 [0] NCCL INFO comm 0x6 rank 0 nranks 2 cudaDev 0 busId 1c000 commId 0x2 - Init START\n"
    write(bench.folder / "llama" / "nccl.log", line)
    await bench.ask()
    assert (bench.service.asked, bench.outcomes()) == ([], {"too_young": 1, "initialising": 1})
    await bench.ask(2 * nccl_facts.INIT_COMPLETE_SECONDS)
    write(bench.folder / "llama" / "nccl.log", line.replace(b"START", b"COMPLETE"))
    bench.service.answer = report([5] * 4)
    await bench.ask()  # others may be initialising
    assert bench.outcomes() == {"too_young": 1, "initialising": 3}
    await bench.ask(nccl_facts.INIT_COMPLETE_SECONDS)
    assert bench.outcomes() == {"too_young": 1, "initialising": 3, "answered": 1}


async def test_rank_zero_of_every_job_must_be_here(bench):
    write(bench.folder / "other" / "nccl.log", (START % 1).replace(b"4100", b"5100").replace(b"nranks 4", b"nranks 2"))
    await bench.ask(120)
    assert bench.outcomes() == {"too_young": 1, "another_poller": 1}


async def test_initialisation_logged_before_the_start_is_ignored(tmp_path, stopped_clock):
    clock = stopped_clock(nccl_facts, ras_poller)
    async with serving() as service:
        made = RasBench(tmp_path, service, clock)
        service.answer = report([5] * 4)
        sockets(made.procfs, service.port, 11)
        write(made.folder / "llama" / "nccl.log", (START % 0).replace(b"COMPLETE", b"START"))
        await made.read()
        await made.ask(331)
        assert made.outcomes() == {"too_young": 1, "answered": 1}
        await made.source.close()


async def test_status_of_replaced_processes_is_discarded(bench):
    bench.service.answer = report([5] * 4)
    bench.service.gate.clear()
    bench.clock.now += 30
    await bench.read()
    sockets(bench.procfs, bench.service.port, 99)
    await bench.read()
    bench.service.gate.set()
    await asyncio.wait([bench.source._ras._task])
    await bench.read()
    assert bench.outcomes() == {"too_young": 1, "answered": 1}
    assert bench.job("ranks") == {}


async def test_new_listener_makes_the_job_young(bench):
    bench.service.answer = report([5] * 4)
    sockets(bench.procfs, bench.service.port, 11, 12)
    await bench.ask()
    assert bench.outcomes() == {"too_young": 2}
    sockets(bench.procfs, bench.service.port, 12)
    await bench.ask(300)
    assert bench.outcomes() == {"too_young": 2, "answered": 1}


async def test_status_is_removed_with_the_job(bench):
    bench.service.answer = report([5] * 4)
    await bench.ask()
    assert bench.job("ranks")
    sockets(bench.procfs, bench.service.port)
    await bench.ask()
    assert bench.job("ranks") == {}
    assert bench.outcomes() == {"too_young": 1, "answered": 1, "not_listening": 1}


async def test_poll_interval_is_respected(bench):
    bench.service.answer = report([5] * 4)
    await bench.ask()
    for _ in range(5):
        await bench.ask(5.0)
    assert bench.service.asked.count(b"STATUS") == 1
    await bench.ask(5.0)
    assert bench.service.asked.count(b"STATUS") == 2


@pytest.mark.parametrize(
    ("log", "options", "outcome"),
    [
        (START % 1, {}, "another_poller"),  # rank 0 runs elsewhere
        (START % 1, {"sole": True}, "answered"),
        (b"", {}, "version_unknown"),
        (b"", {"force": True}, "another_poller"),
        (b"", {"force": True, "sole": True}, "answered"),
        ((START % 0).replace(b"2.29.2", b"2.26.2"), {}, "version_crashes"),
        ((START % 0).replace(b"2.29.2", b"2.26.2"), {"force": True}, "answered"),
        ((START % 0).replace(b"gpu-001", b"gpu-002"), {}, "another_poller"),
        (START % 0 + b"NCCL version 2.30.7+cuda13.0\n", {}, "version_unknown"),  # two versions
        (START % 0 + (START % 1).replace(b"0x5", b"0x6").replace(b"nranks 4", b"nranks 8"), {}, "another_poller"),
    ],
)
async def test_ras_is_polled_only_if_safe(tmp_path, stopped_clock, log, options, outcome):
    clock = stopped_clock(nccl_facts, ras_poller)
    async with serving() as service:
        made = RasBench(tmp_path, service, clock, **options)
        service.answer = report([5] * 4)
        sockets(made.procfs, service.port, 11)
        write(made.folder / "llama" / "nccl.log", log)
        await made.read()
        before = made.outcomes().get(outcome, 0)
        await made.ask(331)
        assert made.outcomes()[outcome] == before + 1
        assert bool(service.asked) is (outcome == "answered")
        await made.source.close()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"", "invalid"),
        (b"garbage", "invalid"),
        (b"[" * 100_000, "invalid"),
        (b'{"nccl_version": 7}', "invalid"),
        (b"x" * (17 << 20), "invalid"),
        (report([5] * 4).replace(b'"size": 4', b'"size": 2'), "invalid"),
    ],
)
async def test_invalid_reply_means_unknown(bench, answer, outcome):
    bench.service.answer = answer
    await bench.ask()
    assert bench.outcomes() == {"too_young": 1, outcome: 1}
    assert bench.job("ranks") == {}
    assert bench.failures() == {("RAS", "unreachable")}


async def test_poll_times_out(bench, monkeypatch):
    monkeypatch.setattr(ras_poller, "TIMEOUT_SECONDS", 0.05)
    bench.service.silent = True
    await bench.ask()
    assert bench.outcomes() == {"too_young": 1, "timed_out": 1}


async def test_running_poll_does_not_block_and_is_cancelled(bench):
    bench.service.silent = True
    bench.clock.now += 30
    await bench.read()
    await bench.read()
    assert bench.source._ras._task is not None
    assert bench.transport()


async def test_old_status_is_no_longer_exported(bench):
    bench.service.answer = report([5] * 4)
    await bench.ask()
    bench.service.answer = b"garbage"
    await bench.ask()
    assert bench.job("answer_age_seconds") == {("llama",): 30.0}
    for _ in range(3):
        await bench.ask()
    assert bench.job("ranks") == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_localhost_is_tried_on_both_loopback_addresses(tmp_path, stopped_clock, host):
    clock = stopped_clock(nccl_facts, ras_poller)
    try:
        context = serving(host)
        service = await context.__aenter__()
    except OSError:
        pytest.skip("needs IPv6")
    made = RasBench(tmp_path, service, clock, address=f"localhost:{service.port}", force=True, sole=True)
    service.answer = report([5] * 4)
    sockets(made.procfs, service.port, 11)
    await made.read()
    await made.ask(331)
    assert made.outcomes() == {"too_young": 1, "answered": 1}
    await made.source.close()
    await context.__aexit__(None, None, None)


def test_listeners_are_read_from_proc_net_tcp():
    rows = (
        "   0: 00000000:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n"
        "   1: 0100007F:6D7C 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n"
        "   2: 0100007F:9999 0100007F:6D7C 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0\n"
        "garbage :6D7C\n"
    )
    six = "   0: 00000000000000000000000001000000:6D7C 0:0 0A 0:0 0:0 0 1000 0 4714 1\n"
    assert listening_inodes([HEADER + rows, HEADER + six], 28028) == {"4711", "4714"}
    assert listening_inodes([], 28028) == frozenset()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ras: {interval: 5s}", "interval"),
        ("ras: {address: localhost}", "address"),
        ("ras: {address: 'localhost:0'}", "address"),
        ("ras: {address: '[::1'}", "address"),
        ("ras: {address: '[localhost]:28028'}", "address"),
        ("ras: {address: '::1:28028'}", "address"),
        ("ras: {address: 'a..b:28028'}", "address"),
        ("ras: {adress: 'localhost:1'}", "adress"),
    ],
)
def test_invalid_ras_options_are_rejected(text, error):
    with pytest.raises(ConfigError, match=error):
        parse(text.encode(), "c.yml", NcclFactsOptions)


def test_defaults_of_ras_options():
    assert parse(b"ras: {enabled: true}", "c.yml", NcclFactsOptions).ras == RasOptions(
        enabled=True, interval=Duration(30.0)
    )
    assert RasOptions().endpoint == (("::1", "127.0.0.1"), 28028)
    assert RasOptions(address="[::1]:5").endpoint == (("::1",), 5)


@pytest.mark.parametrize(
    "names",
    [
        ("nccl-formats/ras-2.28.7-no-comma.json", "nccl-formats/ras-2.29.1-missing-rank.json"),
        (
            "corpus/nccl/ras/sample-status-2.28.9-INVALID-missing-comma.json",
            "corpus/nccl/ras/sample-status-2.29.1-missing-rank.json",
        ),
    ],
    ids=["own", "published"],
)
async def test_sample_replies_are_read(stopped_clock, tmp_path, request, names):
    clock = stopped_clock(nccl_facts, ras_poller)
    async with serving() as service:
        made = RasBench(tmp_path, service, clock, force=True, sole=True)
        sockets(made.procfs, service.port, 11)
        await made.read()
        clock.now += 300
        assert names
        for place, name in enumerate(names):
            service.answer = sample_path(request, name).read_bytes()
            await made.ask()
            assert made.outcomes()["answered"] == place + 1
            assert sum(made.job("missing_ranks").values()) > 0
            clock.now += 300  # a reply may contain a communicator that is being initialised
        await made.source.close()
