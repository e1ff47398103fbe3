"""Bursts: what is sampled when, its budgets, and devices that are slow, hang, or are removed."""

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from exporter.config.errors import ConfigError
from exporter.config.schema import parse
from exporter.config.units import Duration
from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls, Hardware, HungError
from exporter.core.definition import Context
from exporter.core.source import Host, SourceError
from exporter.core.supervision import Supervisor
from exporter.core.table import Column, RowKeeper, Table
from exporter.linux import cached_file
from exporter.linux.cached_file import COUNTER_SIZE, CachedFile
from exporter.linux.netlink.rdma import RdmaDevice, RdmaPort
from exporter.meaning.ports import bursts as meaning
from exporter.meaning.ports import rates
from exporter.sources.bursts import device as burst_device
from exporter.sources.bursts import source as bursts
from exporter.sources.bursts.metrics import SCHEMA, SKIPPED, TICKS
from exporter.sources.bursts.options import BurstOptions
from exporter.sources.bursts.source import BurstSource
from exporter.sources.rdma import ports as rdma_ports
from tests.helpers.rdma_trees import Netlink, NoNetlink

LONG = 60.0
SPEED = 50_000_000_000
"""Bytes a second of 400 Gb/s."""

RECEIVED, SENT = "counters/port_rcv_data", "counters/port_xmit_data"


class Tree:
    """A made-up /sys/class/infiniband."""

    def __init__(self, sysfs):
        self.sysfs = sysfs
        self.folder = sysfs / "class" / "infiniband"
        self.folder.mkdir(parents=True)

    def port(self, device, number=1):
        return self.folder / device / "ports" / str(number)

    def add(self, device, files=(RECEIVED, SENT), *, number=1, driver="", **texts):
        """Add a port that is up, with counters at 0."""
        if driver:
            self.write(self.folder / device / "device" / "uevent", f"DRIVER={driver}")
        texts = {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", **texts}
        for name, text in {**texts, **dict.fromkeys(files, "0")}.items():
            self.write(self.port(device, number) / name, text)

    def set(self, device, file, text, number=1):
        self.write(self.port(device, number) / file, text)

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


class Files:
    """Wraps os.pread of cached files: records what is read, and runs `before` for paths that contain its key."""

    def __init__(self, monkeypatch):
        self.read, self.before = [], {}
        self.pread = os.pread
        monkeypatch.setattr(os, "pread", self)

    def __call__(self, descriptor, size, offset):
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if size == COUNTER_SIZE:
            self.read.append(path)
            for part, act in self.before.items():
                if part in path:
                    act()
        return self.pread(descriptor, size, offset)

    def count(self, part):
        return sum(part in path for path in self.read)


class Ticks:
    """Replaces the sleep until a tick: the clock jumps from tick to tick, as far as a test advances it."""

    def __init__(self, clock, monkeypatch):
        self.clock, self.end, self.lags = clock, float("-inf"), {}
        self.go, self.there, self.dues = asyncio.Event(), asyncio.Event(), []
        monkeypatch.setattr(bursts, "_sleep_until", self.until)

    async def until(self, due):
        while due > self.end:
            self.there.set()
            self.go.clear()
            await self.go.wait()
        await asyncio.sleep(0)
        self.clock.now = max(self.clock.now, due) + self.lags.pop(due, 0.0)
        self.dues.append(due)

    async def advance(self, seconds):
        """Run all ticks that are due within this number of seconds from now."""
        self.end = self.clock.now + seconds
        self.there.clear()
        self.go.set()
        async with asyncio.timeout(LONG):
            await self.there.wait()
        self.clock.now = max(self.clock.now, self.end)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path / "sys")


@pytest.fixture
def files(monkeypatch):
    return Files(monkeypatch)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(bursts, burst_device)


@pytest.fixture
def ticks(clock, monkeypatch):
    return Ticks(clock, monkeypatch)


@contextlib.asynccontextmanager
async def opened(tree, reader=NoNetlink, hardware=None, **options):
    host = Host("gpu-1", tree.sysfs, tree.sysfs / "proc", hardware=hardware or Hardware())
    source = BurstSource(BurstOptions(**options), host, reader, Supervisor())
    try:
        yield source
    finally:
        await source.close()


def tick_counts(reading):
    """Return the ticks that were due, and those skipped by reason."""
    due, skipped = (table for table in reading.tables if not table.schema.internal)
    left_out = dict(
        zip([key[0] for key in skipped.rows.keys], skipped.values("burst_ticks_skipped_total"), strict=True)
    )
    return due.values("burst_ticks_total")[0], left_out


def samples_of(reading):
    """Return the samples by (device, port)."""
    return {
        key: list(value.taken)
        for table in reading.tables
        if table.schema is SCHEMA
        for key, value in zip(table.rows.keys, table.values(vocabulary.SAMPLES), strict=True)
    }


NONE_SKIPPED = {"late": 0, "budget": 0, "hung": 0}


async def test_each_sample_is_returned_once_with_its_own_time(tree, clock, ticks, files):
    tree.add("mlx5_0")
    tree.add("mlx5_1", rate="200 Gb/sec (4X HDR)")
    async with opened(tree) as source:
        assert not (await source.read()).tables
        begin = clock.now
        await ticks.advance(1)
        tree.set("mlx5_0", RECEIVED, 1000)
        tree.set("mlx5_0", SENT, 2**62)
        await ticks.advance(1)
        reading = await source.read()
        assert samples_of(reading) == {
            ("mlx5_0", "1"): [
                (begin, 0, 0, SPEED),
                (begin + 1, 0, 0, SPEED),
                (begin + 2, 4000, 2**64, SPEED),
            ],
            ("mlx5_1", "1"): [(begin + tick, 0, 0, SPEED / 2) for tick in range(3)],
        }
        assert tick_counts(reading) == (6, NONE_SKIPPED)
        assert (reading.failures, reading.tables[-1].time) == ([], clock.now)
        assert reading.tables[-1].epochs == [(tree.folder / f"mlx5_{n}").stat().st_ino for n in (0, 1)]
        await ticks.advance(1)
        assert samples_of(await source.read())["mlx5_0", "1"] == [(begin + 3, 4000, 2**64, SPEED)]
        assert samples_of(await source.read())["mlx5_0", "1"] == []


async def test_tick_reads_two_cached_files_and_no_excluded_device(tree, ticks, files, monkeypatch):
    tree.add("mlx5_0")
    tree.add("mlx5_9")
    opens = []
    monkeypatch.setattr(cached_file, "open_cached", lambda path, _: opens.append(path) or os.open(path, os.O_RDONLY))
    async with opened(tree, exclude=("mlx5_9",)) as source:
        await source.read()
        await ticks.advance(9)
        assert files.read == [str(tree.port("mlx5_0") / name) for name in (RECEIVED, SENT)] * 10
        assert opens == files.read[:2]


async def test_only_active_links_of_known_speed_are_sampled(tree, ticks, files):
    tree.add("mlx5_0")
    tree.add("mlx5_1", state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    tree.add("mlx5_2", link_layer="Ethernet", rate="40 Gb/sec (4X QDR)")
    tree.add("mlx5_3", rate="0")
    tree.add("mlx5_4", files=["hw_counters/out_of_buffer"])
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(2)
        assert samples_of(await source.read()).keys() == {("mlx5_0", "1")}
        tree.set("mlx5_0", "state", "1: DOWN")
        tree.set("mlx5_1", "state", "4: ACTIVE")
        await ticks.advance(2)
        reading = await source.read()
        assert {key: len(samples) for key, samples in samples_of(reading).items()} == {
            ("mlx5_0", "1"): 0,  # its row remains, and with it the counts derived from it
            ("mlx5_1", "1"): 2,
        }
        assert (reading.failures, tick_counts(reading)) == ([], (25, NONE_SKIPPED))


IONIC = [f"hw_counters/{way}_rdma_{cast}_bytes" for way in ("rx", "tx") for cast in ("ucast", "mcast")]


SAMPLED = {
    "efa": (["rx_bytes"], ["tx_bytes"]),
    "erdma": (["rx_bytes_cnt"], ["tx_bytes_cnt"]),
    "erdma, Alibaba's own": (["hw_rx_bytes_cnt"], ["hw_tx_bytes_cnt"]),
    "i40e": (["ip4InOctets", "ip6InOctets"], ["ip4OutOctets", "ip6OutOctets"]),
    "ice": (["ip4InOctets", "ip6InOctets"], ["ip4OutOctets", "ip6OutOctets"]),
    "ionic": (["rx_rdma_ucast_bytes", "rx_rdma_mcast_bytes"], ["tx_rdma_ucast_bytes", "tx_rdma_mcast_bytes"]),
    "mana": (["rx_bytes"], ["tx_bytes"]),
}
"""Files of `hw_counters/`, as the drivers name them."""


@pytest.mark.parametrize("case", SAMPLED)
async def test_hw_counters_are_sampled_with_one_command_per_port(tree, ticks, files, case):
    received, sent = ([f"hw_counters/{name}" for name in names] for names in SAMPLED[case])
    tree.add("dev0", files=[*received, *sent, "hw_counters/rx_drops"], driver=case.partition(",")[0])
    for power, name in enumerate((*received, *sent)):
        tree.set("dev0", name, 10**power)
    device = burst_device.SampledDevice(tree.folder / "dev0", 1.0, NoNetlink())
    device.sample(read_links=True)
    visit = device.sample(read_links=False)
    device.close()
    ((_, *counted_bytes, _),) = visit.samples.values()
    assert (counted_bytes, visit.commands) == ([1, 10] if len(received) == 1 else [11, 1100], 1)
    assert {Path(path).name for path in files.read} == {name.rpartition("/")[2] for name in (*received, *sent)}


@pytest.mark.parametrize("driver", ["hns3", "rdma_rxe", "unknown_driver"])
async def test_drivers_without_byte_counters_are_not_sampled(tree, ticks, driver):
    tree.add("dev0", files=["hw_counters/rx_pkt", "hw_counters/rcvd_pkts", "hw_counters/rx_bytes"], driver=driver)
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        reading = await source.read()
    assert (samples_of(reading), reading.failures) == ({}, [])


@pytest.mark.parametrize("driver", ["bnxt_en", ""])
async def test_bnxt_is_not_sampled_by_standard_counters_either(tree, ticks, files, driver):
    """Newer kernels have the folder for it, with the same values that its device writes once a second."""
    signs = ["hw_counters/rx_roce_discards", "hw_counters/max_retry_exceeded"]
    tree.add("rocep1s0", files=[RECEIVED, SENT, *signs], driver=driver)
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        assert (samples_of(await source.read()), files.read) == ({}, [])


async def test_driver_on_an_auxiliary_bus_is_recognised_by_its_counters(tree, ticks):
    tree.add("rocep9s0", files=[*IONIC, "hw_counters/resp_rx_outouf_seq"], driver="ionic_rdma.rdma")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(0)
        assert [key for key, _ in samples_of(await source.read())] == ["rocep9s0"]


def test_placeholder_rate_of_mlx5_is_replaced_by_the_netdev_speed(tree, clock):
    tree.add("mlx5_0", link_layer="Ethernet", rate="40 Gb/sec (4X QDR)")
    tree.write(tree.folder / "mlx5_0" / "device" / "net" / "eth0" / "dev_port", 0)
    device = burst_device.SampledDevice(tree.folder / "mlx5_0", 1.0, NoNetlink())

    def speeds(*, netdev=None, later=0):
        clock.now += later
        if netdev is not None:
            tree.write(tree.folder.parent / "net" / "eth0" / "speed", netdev)
        return [sample[3] for sample in device.sample(read_links=True).samples.values()]

    assert speeds(netdev=100_000) == [12_500_000_000]
    assert speeds(netdev=50_000, later=59) == [12_500_000_000]
    assert speeds(later=1) == [6_250_000_000]
    tree.set("mlx5_0", "state", "1: DOWN")
    assert speeds(netdev=25_000) == []
    tree.set("mlx5_0", "state", "4: ACTIVE")
    assert speeds() == [3_125_000_000]
    assert speeds(netdev=-1, later=60) == []
    assert speeds(netdev=100_000, later=59) == []
    assert speeds(later=1) == [12_500_000_000]
    device.close()


@pytest.mark.parametrize("driver", ["mlx4_core", "ice"])
async def test_40_gigabits_of_other_drivers_than_mlx5_is_a_speed(tree, ticks, driver):
    tree.add("dev0", driver=driver, link_layer="Ethernet", rate="40 Gb/sec (4X QDR)")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(0)
        assert [sample[3] for sample in samples_of(await source.read())["dev0", "1"]] == [5_000_000_000]


async def test_ports_without_standard_counters_are_sampled_by_hw_counters(tree, ticks, files):
    tree.add("rdmap0s6", files=["hw_counters/rx_bytes", "hw_counters/tx_bytes"], driver="efa")
    tree.add("rocep9s0", files=IONIC, driver="ionic")
    tree.add("rocep9s1", files=IONIC, driver="ionic")
    tree.add("bnxt_re0", files=["hw_counters/rx_bytes", "hw_counters/tx_bytes"], driver="bnxt_en")
    tree.set("rdmap0s6", "hw_counters/rx_bytes", 5)
    tree.set("rdmap0s6", "hw_counters/tx_bytes", 6)
    for value, name in enumerate(IONIC):
        tree.set("rocep9s0", name, 10**value)
        tree.set("rocep9s1", name, 10**value if value else 2**64 - 1)  # the firmware does not have the counter
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(0)
        found = {
            key[0]: [sample[1:3] for sample in samples] for key, samples in samples_of(await source.read()).items()
        }
        assert found == {"rdmap0s6": [(5, 6)], "rocep9s0": [(11, 1100)]}
        assert files.count("bnxt_re0") == 0


async def test_counters_cached_for_more_than_half_a_tick_are_not_sampled(tree, ticks, files):
    for name, lifespan in (("a", 50), ("b", 51)):
        tree.add(name, files=["hw_counters/rx_bytes", "hw_counters/tx_bytes"], driver="efa")
        tree.set(name, "hw_counters/lifespan", lifespan)
    async with opened(tree, tick=Duration(0.1)) as source:
        await source.read()
        await ticks.advance(1)
        reading = await source.read()
        assert [key for key, _ in samples_of(reading)] == ["a"]
        place = tree.port("b") / "hw_counters" / "lifespan"
        assert [(one.device, one.reason, one.detail) for one in reading.failures] == [
            ("b", "stale", f"{place}: values are cached for 51 ms, too long for ticks of 0.1 s; write 10 to it")
        ]


async def test_burst_of_one_tick_is_detected_at_the_same_mean_rate(tree, ticks, clock):
    """Both ports receive the same bytes between two reads, one of them in a single tick, at 96 % of its speed."""
    words = SPEED // 4 * 96 // 100
    tree.add("even")
    tree.add("burst")
    means, moved = {}, {"even": 0, "burst": 0}
    async with opened(tree) as source:
        state, known = None, None
        await source.read()
        await ticks.advance(0)
        for _ in range(2):  # the first table is the baseline of the second
            for second in range(5):
                moved = {"even": moved["even"] + words // 5, "burst": moved["burst"] + (second == 2) * words}
                for device, value in moved.items():
                    tree.set(device, RECEIVED, value)
                await ticks.advance(1)
            plain = vocabulary.schema("fabric_t_", ("device",), ["receive_bytes_total"])
            total = Column(plain.metrics["receive_bytes_total"], [*moved.values()], factor=4)
            table = Table(plain, RowKeeper(("device",)).rows([(one,) for one in moved]), {"b": total}, clock.now)
            known, (rated,) = rates.step(known, table)
            means = dict(zip(moved, rated.values("receive_bytes_per_second") or [], strict=False))
            for one in (await source.read()).tables:
                if one.schema is SCHEMA:
                    state, (made,) = meaning.step(state, one)
    assert means["even"] == means["burst"] == pytest.approx(0.96 * SPEED / 5)
    counts = {
        key[0]: value.counts
        for key, value in zip(made.rows.keys, made.values("receive_utilization_samples"), strict=True)
    }
    assert counts == {"even": (10, 10, 10, 10), "burst": (8, 8, 8, 10)}


async def test_late_ticks_are_skipped_and_counted(tree, ticks, clock):
    tree.add("mlx5_0")
    tree.add("mlx5_1")
    async with opened(tree) as source:
        await source.read()
        begin = clock.now
        ticks.lags = {begin + 2: 0.5, begin + 4: 2.7, begin + 9: 0.6}
        await ticks.advance(11)
        reading = await source.read()
        times = [sample[0] - begin for sample in samples_of(reading)["mlx5_0", "1"]]
        # At 6.7 the ticks of 4, 5 and 6 are more than half a tick late; that of 7 is next.
        assert times == [0, 1, 2.5, 3, 7, 8, 10, 11]
        assert tick_counts(reading) == (24, {**NONE_SKIPPED, "late": 8})


async def test_long_tick_does_not_shift_the_following_ticks(tree, ticks, clock, files):
    tree.add("mlx5_0")
    files.before[RECEIVED] = lambda: setattr(clock, "now", clock.now + 1.3)
    async with opened(tree, budget=1.0) as source:
        await source.read()
        begin = clock.now
        await ticks.advance(6)
        times = [sample[0] - begin for sample in samples_of(await source.read())["mlx5_0", "1"]]
        assert times == [pytest.approx(even + 0.65) for even in (0, 1.3, 3, 4.3, 6)]


async def test_time_budget_skips_only_ticks_of_the_slow_device(tree, ticks, clock, files):
    """50 ms per file; its half of the budget of 2 % is 10 ms per second, so it may be read every tenth tick."""
    tree.add("quick")
    tree.add("slow")
    spent = []

    def take_long():
        clock.now += 0.05
        spent.append((clock.now, 0.05))

    files.before["slow"] = take_long
    async with opened(tree, budget=0.02) as source:
        begin, samples = clock.now, {"quick": 0, "slow": 0}
        await source.read()
        for _ in range(60):
            await ticks.advance(5)
            reading = await source.read()
            for key, found in samples_of(reading).items():
                samples[key[0]] += len(found)
            elapsed = clock.now - begin
            assert sum(cost for _, cost in spent) <= 0.01 * (elapsed + bursts.TIME_BURST_SECONDS) + 0.1
        due, skipped = tick_counts(reading)
        assert samples["quick"] == 301
        assert samples["slow"] == pytest.approx(0.01 * (300 + bursts.TIME_BURST_SECONDS) / 0.1, abs=1)
        assert (due, skipped) == (602, {**NONE_SKIPPED, "budget": 301 - samples["slow"]})


async def test_one_slow_response_among_fast_ones_skips_no_tick(tree, ticks, clock, files):
    tree.add("mlx5_0")
    answers = iter([0.5])
    files.before[RECEIVED] = lambda: setattr(clock, "now", clock.now + next(answers, 0.0))
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(20)
        assert tick_counts(await source.read()) == (21, NONE_SKIPPED)


async def test_firmware_commands_stay_within_their_budget(tree, ticks, files, clock):
    """Eight ports at ten ticks per second would take 160 commands per second; 100 are allowed."""
    for number in range(8):
        tree.add(f"mlx5_{number}")
    async with opened(tree, tick=Duration(0.1), commands=100) as source:
        begin = clock.now
        link_commands = 0
        await source.read()
        for _ in range(12):
            await ticks.advance(5)
            reading = await source.read()
            link_commands += 16
            used = len(files.read) + link_commands
            assert used <= 100 * (clock.now - begin + bursts.COMMANDS_BURST_SECONDS) + 8 * 4
        assert used >= 0.97 * 100 * 60
        due, skipped = tick_counts(reading)
        assert due == 8 * 601
        assert skipped == {**NONE_SKIPPED, "budget": due - len(files.read) // 2}


@pytest.mark.parametrize(("ports", "tick", "is_enough"), [(8, 0.1, True), (80, 1.0, True), (90, 1.0, False)])
async def test_default_command_budget_is_enough_for_this_number_of_ports(tree, ticks, ports, tick, is_enough):
    for number in range(ports):
        tree.add(f"mlx5_{number}")
    async with opened(tree, tick=Duration(tick)) as source:
        await source.read()
        for _ in range(6):
            await ticks.advance(5)
            reading = await source.read()
        due, skipped = tick_counts(reading)
    assert due == ports * (30 / tick + 1)
    assert (skipped == NONE_SKIPPED) == is_enough


async def test_devices_without_byte_counters_have_no_share_of_the_budgets(tree, ticks, files):
    tree.add("mlx5_0")
    for number in range(4):
        tree.add(f"irdma{number}", files=["hw_counters/ip4InOctets"])
    async with opened(tree, tick=Duration(0.1), commands=21) as source:  # 20 for the samples, and two every 5 s
        await source.read()
        for _ in range(6):
            await ticks.advance(5)
            reading = await source.read()
        assert tick_counts(reading) == (5 * 301, NONE_SKIPPED)


class Hang:
    """Hangs until `go` is set."""

    def __init__(self):
        self.go, self.calls = threading.Event(), 0

    def __call__(self):
        self.calls += 1
        self.go.wait(LONG)


@pytest.fixture
def hang():
    made = Hang()
    yield made
    made.go.set()


async def test_device_that_hangs_is_called_once_and_does_not_affect_others(
    tree, ticks, files, hang, monkeypatch, clock
):
    monkeypatch.setattr(bursts, "CALL_DEADLINE", 0.5)  # long enough for the good one on a busy machine
    tree.add("good")
    tree.add("stuck")
    files.before["stuck"] = hang
    hardware = Hardware()
    async with opened(tree, hardware=hardware) as source:
        await source.read()
        await ticks.advance(4)
        reading = await source.read()
        assert len(samples_of(reading)["good", "1"]) == 5
        assert tick_counts(reading) == (10, {**NONE_SKIPPED, "hung": 5})
        assert [(one.device, one.reason) for one in reading.failures] == [("stuck", "timeout")]
        other = BlockingCalls("rdma", LONG, hardware.turns(tree.folder))  # as in the source `rdma`
        assert isinstance((await other.run([("stuck", hang)]))["stuck"], HungError)
        other.close()
        assert hang.calls == 1

        files.before.clear()
        hang.go.set()
        async with asyncio.timeout(LONG):
            while other.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
        await ticks.advance(1)
        reading = await source.read()
        assert len(samples_of(reading)["stuck", "1"]) == 1
        assert reading.failures == []


async def hung_calls_returned(source):
    """Wait until no call hangs."""
    async with asyncio.timeout(LONG):
        while source._serial.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
            await asyncio.sleep(0.001)


def held_open(tree):
    """List the files of the tree that this process holds open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return sorted(path for path in found if path.startswith(str(tree.folder)))


async def test_call_that_returns_after_close_closes_its_files(tree, ticks, files, hang, monkeypatch):
    monkeypatch.setattr(bursts, "CALL_DEADLINE", 0.2)
    tree.add("good")
    tree.add("stuck")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        assert len(held_open(tree)) == 4
        files.before["stuck"] = hang
        await ticks.advance(1)
        await source.close()
        assert [Path(path).name for path in held_open(tree)] == ["port_rcv_data", "port_xmit_data"]  # of the stuck one
        hang.go.set()
        await hung_calls_returned(source)
        assert held_open(tree) == []


async def test_call_cancelled_by_close_closes_its_files(tree, ticks, files, hang):
    tree.add("slow")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(0)
        files.before["slow"] = hang
        source._task.cancel()
        ticks.end = float("inf")
        visit = asyncio.create_task(source._tick())
        async with asyncio.timeout(LONG):
            while not hang.calls:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
        visit.cancel()
        await source.close()
        assert len(held_open(tree)) == 2
        hang.go.set()
        await hung_calls_returned(source)
        assert held_open(tree) == []


async def test_time_of_a_hung_call_is_charged_to_its_device(tree, ticks, files, hang, monkeypatch):
    monkeypatch.setattr(bursts, "CALL_DEADLINE", 0.05)
    monkeypatch.setattr(bursts, "TIME_BURST_SECONDS", 0.0)
    tree.add("stuck")
    files.before["stuck"] = hang
    async with opened(tree, budget=0.01) as source:
        await source.read()
        await ticks.advance(4)
        assert tick_counts(await source.read()) == (5, {**NONE_SKIPPED, "hung": 1, "budget": 4})
        await ticks.advance(1)
        assert tick_counts(await source.read())[1]["hung"] == 2  # five seconds of budget pay for 0.05 s


async def test_failing_file_affects_only_its_port_and_is_suspended(tree, ticks, files, clock):
    tree.add("mlx5_0")
    tree.add("mlx5_0", number=2)
    tree.add("mlx5_1")

    def refuse():
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    files.before[f"ports/2/{SENT}"] = refuse
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(9)
        reading = await source.read()
        assert {key: len(samples) for key, samples in samples_of(reading).items()} == {
            ("mlx5_0", "1"): 10,
            ("mlx5_1", "1"): 10,
        }
        assert [(one.device, one.reason) for one in reading.failures] == [("mlx5_0", "einval")]
        assert files.count(f"ports/2/{SENT}") == cached_file.MAX_REFUSALS  # the kernel logs a line for each
        await ticks.advance(1)
        assert (await source.read()).failures == []

        tree.set("mlx5_0", "state", "1: DOWN", number=2)
        await ticks.advance(1)
        await source.read()
        tree.set("mlx5_0", "state", "4: ACTIVE", number=2)
        files.before.clear()
        await ticks.advance(1)
        assert len(samples_of(await source.read())["mlx5_0", "2"]) == 1  # it came up, which ends the suspension


async def test_only_consecutive_refusals_suspend_a_file(tree, ticks, files):
    tree.add("mlx5_0")
    answers = iter([1, 1, 0, 1, 1, 0, 0])

    def refuse():
        if next(answers, 0):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    files.before[RECEIVED] = refuse
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(6)
        assert len(samples_of(await source.read())["mlx5_0", "1"]) == 3


async def test_removed_port_is_dropped_and_each_port_occurs_once(tree, ticks, files, monkeypatch):
    tree.add("mlx4_0")
    tree.add("mlx4_0", number=2)
    tree.add("mlx4_0", number="02")
    tree.add("mlx4_0", number="x")
    closed, close = [], CachedFile.close

    def close_one(file):
        closed.append(file.path)
        close(file)

    monkeypatch.setattr(CachedFile, "close", close_one)
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        assert samples_of(await source.read()).keys() == {("mlx4_0", "1"), ("mlx4_0", "2")}
        shutil.rmtree(tree.port("mlx4_0", 2))
        await ticks.advance(1)
        reading = await source.read()
        assert (samples_of(reading).keys(), reading.failures) == ({("mlx4_0", "1")}, [])
        assert closed == [str(tree.port("mlx4_0", 2) / name) for name in (RECEIVED, SENT)]


async def test_suspension_ends_after_an_hour(tree, ticks, files, clock):
    tree.add("mlx5_0")

    def refuse():
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    files.before[RECEIVED] = refuse
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(3)
        files.before.clear()
        ticks.lags = {clock.now + 1: cached_file.SUSPENSION_SECONDS - 5}
        await ticks.advance(3)
        assert samples_of(await source.read()) == {}
        await ticks.advance(3)
        assert samples_of(await source.read()).keys() == {("mlx5_0", "1")}


async def test_malformed_counter_is_a_failure_and_na_is_not(tree, ticks, files):
    tree.add("odd")
    tree.set("odd", RECEIVED, "-5")
    tree.add("none")
    tree.set("none", RECEIVED, "N/A (no PMA)")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(5)
        reading = await source.read()
        assert samples_of(reading) == {}
        assert [(one.device, one.reason) for one in reading.failures] == [("odd", "malformed")]
        assert str(tree.port("odd")) in reading.failures[0].detail


async def test_removed_device_is_dropped_and_its_successor_has_another_epoch(tree, ticks, files):
    tree.add("mlx5_0")
    tree.add("mlx5_1")

    def raise_enodev():
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        first = (await source.read()).tables[-1]
        (tree.folder / "mlx5_1").rename(tree.sysfs / "old")  # keeps its inode in use, so that the next has another
        files.before["sys/old"] = raise_enodev
        await ticks.advance(1)
        reading = await source.read()
        assert samples_of(reading).keys() == {("mlx5_0", "1")}
        tree.add("mlx5_1")
        await ticks.advance(1)
        second = (await source.read()).tables[-1]
        assert first.rows.keys == second.rows.keys
        assert first.epochs[0] == second.epochs[0]
        assert first.epochs[1] != second.epochs[1]


async def test_device_recreated_between_reads_has_another_epoch(tree, ticks, files):
    tree.add("mlx5_0")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        first = (await source.read()).tables[-1]
        (tree.folder / "mlx5_0").rename(tree.sysfs / "old")
        tree.add("mlx5_0")
        tree.set("mlx5_0", RECEIVED, 1)
        await ticks.advance(1)
        reading = await source.read()
        assert reading.tables[-1].epochs != first.epochs
        assert [sample[1] for sample in samples_of(reading)["mlx5_0", "1"]] == [4]


async def test_file_is_opened_again_after_enodev(tree, ticks, files, monkeypatch):
    tree.add("mlx5_0")
    answers = iter([errno.ENODEV])

    def once():
        number = next(answers, None)
        if number is not None:
            raise OSError(number, os.strerror(number))

    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        files.before[SENT] = once
        await ticks.advance(2)
        reading = await source.read()
        assert len(samples_of(reading)["mlx5_0", "1"]) == 3
        assert [one.reason for one in reading.failures] == ["enodev"]


async def test_file_that_cannot_be_opened_is_a_failure_and_retried(tree, ticks, files, monkeypatch):
    tree.add("mlx5_0")
    answers = iter([errno.EMFILE] * 2)

    def open_one(path, _):
        number = next(answers, None) if path.endswith(SENT) else None
        if number is not None:
            raise OSError(number, "too many files are open; raise the limit")
        return os.open(path, os.O_RDONLY)

    monkeypatch.setattr(cached_file, "open_cached", open_one)
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(4)
        reading = await source.read()
        assert [(one.device, one.reason) for one in reading.failures] == [("mlx5_0", "emfile")]
        assert len(samples_of(reading)["mlx5_0", "1"]) == 3


async def test_listing_error_fails_the_read_until_it_ends(tree, ticks, monkeypatch):
    tree.add("mlx5_0")
    listdir = os.listdir
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        await source.read()

        def refuse(path):
            if path == tree.folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return listdir(path)

        monkeypatch.setattr(bursts.os, "listdir", refuse)
        assert await source.applies()  # a listing error is reported by `read`
        await ticks.advance(1)
        with pytest.raises(SourceError, match="Permission denied") as caught:
            await source.read()
        assert caught.value.reason == "unreadable"
        monkeypatch.setattr(bursts.os, "listdir", listdir)
        await ticks.advance(1)
        assert len(samples_of(await source.read())["mlx5_0", "1"]) == 2  # the ticks continued all the time


async def test_source_applies_if_a_device_is_selected(tree):
    async with opened(tree, exclude=("mlx5_bond_*",)) as source:
        assert not await source.applies()
        tree.add("mlx5_bond_0")
        assert not await source.applies()
        tree.add("mlx5_0")
        assert await source.applies()
        shutil.rmtree(tree.folder)
        assert not await source.applies()


async def test_no_tables_after_all_devices_are_removed(tree, ticks):
    tree.add("mlx5_0")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        assert (await source.read()).tables
        shutil.rmtree(tree.folder / "mlx5_0")
        await ticks.advance(1)
        assert not (await source.read()).tables


async def test_error_that_ends_the_ticks_is_logged_and_they_are_restarted(tree, ticks, monkeypatch, caplog):
    tree.add("mlx5_0")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        monkeypatch.setattr(source, "_add_samples", lambda *_: 1 // 0)
        ticks.end += 1
        ticks.go.set()
        first = source._task._task
        async with asyncio.timeout(LONG):
            await asyncio.wait([first])
        monkeypatch.undo()
        await source.read()
        async with asyncio.timeout(LONG):
            while source._task._task is first:  # noqa: ASYNC110  # its restart is what is waited for
                await asyncio.sleep(0.01)
    assert "ZeroDivisionError" in caplog.text


async def test_samples_that_are_not_read_are_limited(tree, ticks, monkeypatch):
    monkeypatch.setattr(bursts, "MAX_TICKS", 5)
    tree.add("mlx5_0")
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(30)
        samples = samples_of(await source.read())["mlx5_0", "1"]
        assert len(samples) == 10
        assert samples[-1][0] == ticks.clock.now


async def test_close_ends_the_ticks_and_closes_the_files(tree, ticks, monkeypatch):
    tree.add("mlx5_0")
    opens, closed = [], []

    def open_one(path, _):
        opens.append(os.open(path, os.O_RDONLY))
        return opens[-1]

    def close_one(file):
        closed.append(file.descriptor)
        os.close(file.descriptor)
        file.descriptor = -1

    monkeypatch.setattr(cached_file, "open_cached", open_one)
    monkeypatch.setattr(CachedFile, "close", close_one)
    async with opened(tree) as source:
        await source.read()
        await ticks.advance(1)
        task = source._task
        await source.close()
        assert task._task.cancelled()
        assert sorted(closed) == sorted(opens)
        assert len(opens) == 2
    assert not [one for one in asyncio.all_tasks() if one.get_name() == "bursts: ticks"]


async def test_sleep_until_does_not_sleep_for_a_time_in_the_past(clock, monkeypatch):
    waits = []

    async def note(seconds):
        waits.append(seconds)

    monkeypatch.setattr(bursts.asyncio, "sleep", note)
    await bursts._sleep_until(clock.now + 0.25)
    await bursts._sleep_until(clock.now - 3)
    assert waits == [0.25, 0.0]


def options(text):
    return parse(f"sources: {{bursts: {text}}}".encode(), "c.yml", [bursts.DEFINITION]).sources["bursts"]


def test_the_configuration_has_a_tick_and_two_budgets():
    assert options("{}") == BurstOptions()
    assert (BurstOptions().tick, BurstOptions().budget, BurstOptions().commands) == (1.0, 0.01, 200)
    made = options("{interval: 1m, tick: 100ms, budget: 0.05, commands: 200, exclude: [mlx5_9]}")
    assert (made.interval, made.tick, made.budget, made.commands) == (60.0, 0.1, 0.05, 200)
    assert [
        source.name for source in bursts.DEFINITION.build(made, Context(Host("h", Path("/sys"), Path("/proc"))))
    ] == ["bursts"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{tick: 50ms}", "tick: 0.05 s is too short; the shortest is 100ms"),
        ("{tick: 10s}", "tick: 10 s does not go with an interval of 5 s, which holds from 1 to 600 ticks"),
        ("{interval: 61s, tick: 100ms}", "tick: 0.1 s does not go with an interval of 61 s"),
        ("{budget: 0}", "budget"),
        ("{budget: 1.5}", "budget"),
        ("{commands: 0}", "commands"),
    ],
)
def test_invalid_options_are_reported(text, error):
    with pytest.raises(ConfigError) as caught:
        options(text)
    assert error in str(caught.value)
    assert "sources.bursts" in str(caught.value)


def test_metric_names_are_valid():
    metrics = [one for schema in (TICKS, SKIPPED) for one in schema.metrics.values()]
    assert vocabulary.check([*metrics, *meaning.outputs(SCHEMA)]) == []
    assert len(meaning.outputs(SCHEMA)) == 6


# The sampled ports are those that the source `rdma` reads.

GUID = "0200c0fffe000001"


def netlink_with(tree, device="mlx5_0", kind=""):
    """Return netlink that lists a device of the tree."""
    tree.write(tree.folder / device / "node_guid", "0200:c0ff:fe00:0001")
    return Netlink(RdmaDevice(0, device, GUID, 1, kind))


async def test_ports_of_a_device_are_limited_and_the_excess_is_reported(tree, ticks, files, clock):
    for number in range(1, 1001):
        tree.add("mlx5_0", number=number)
    async with opened(tree, commands=10_000) as source:
        await source.read()
        await ticks.advance(0)
        for _ in range(2):
            await ticks.advance(5)
            reading = await source.read()
            assert samples_of(reading).keys() == {("mlx5_0", str(number)) for number in range(1, 9)}
            assert [(one.device, one.reason) for one in reading.failures] == [("mlx5_0", "too_many")]
        assert not files.count("/ports/9/")
        for number in range(3, 1001):
            shutil.rmtree(tree.port("mlx5_0", number))
        await ticks.advance(1)
        await ticks.advance(1)
        reading = await source.read()
        assert samples_of(reading).keys() == {("mlx5_0", "1"), ("mlx5_0", "2")}
        await ticks.advance(1)
        assert (await source.read()).failures == []
    assert rdma_ports.MAX_PORTS == 8


async def test_representor_ports_are_not_sampled(tree, ticks, files):
    netlink = netlink_with(tree)
    for number in range(1, 5):
        tree.add("mlx5_0", number=number, link_layer="Ethernet")
        netdev = "rail0" if number == 1 else f"rail0vf{number}"
        tree.write(tree.sysfs / "class" / "net" / netdev / "phys_port_name", "p0" if number == 1 else f"pf0vf{number}")
        netlink.ports[0, number] = RdmaPort(netdev, number, 4, 5)
    async with opened(tree, netlink) as source:
        await source.read()
        await ticks.advance(1)
        reading = await source.read()
    assert (samples_of(reading).keys(), reading.failures) == ({("mlx5_0", "1")}, [])
    assert not files.count("/ports/2/")


async def test_planes_of_another_port_are_not_sampled(tree, ticks, files):
    tree.add("mlx5_0")
    tree.add("smi0")
    async with opened(tree, netlink_with(tree, "smi0", "smi")) as source:
        await source.read()
        await ticks.advance(1)
        reading = await source.read()
    assert (samples_of(reading).keys(), reading.failures) == ({("mlx5_0", "1")}, [])
    assert not files.count("smi0")


async def test_ports_of_a_recreated_device_are_selected_again_at_once(tree, ticks):
    tree.add("mlx5_0")
    netlink = netlink_with(tree)
    async with opened(tree, netlink) as source:
        await source.read()
        await ticks.advance(1)
        assert samples_of(await source.read()).keys() == {("mlx5_0", "1")}
        (tree.folder / "mlx5_0").rename(tree.sysfs / "away")
        tree.add("mlx5_0")
        netlink.listed = netlink_with(tree, kind="smi").listed
        await ticks.advance(1)
        await ticks.advance(1)
        assert samples_of(await source.read()) == {}


async def test_netlink_requests_are_charged_as_commands(tree, ticks, clock):
    netlink = netlink_with(tree)
    for number in (1, 2):
        tree.add("mlx5_0", number=number, link_layer="Ethernet")
    device = burst_device.SampledDevice(tree.folder / "mlx5_0", 1.0, netlink)
    # One per port for netlink, two to read its link, two for its samples.
    assert [device.sample(read_links=True).commands for _ in range(2)] == [2 * (1 + 2 + 2), 2 * (2 + 2)]
    clock.now += burst_device.ATTRIBUTES_SECONDS
    assert device.sample(read_links=True).commands == 2 * (1 + 2 + 2)
    device.close()


async def test_files_are_used_if_netlink_fails_and_the_failure_is_reported(tree, ticks):
    netlink = netlink_with(tree)
    netlink.listed = OSError(errno.EIO, "no")
    tree.add("mlx5_0")
    async with opened(tree, netlink) as source:
        await source.read()
        await ticks.advance(1)
        reading = await source.read()
    assert samples_of(reading).keys() == {("mlx5_0", "1")}
    assert [(one.device, one.reason) for one in reading.failures] == [("mlx5_0", "eio")]
