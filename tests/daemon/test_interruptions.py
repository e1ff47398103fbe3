"""The exporter as a process that is stopped, suspended, or whose time of day is stepped."""

import asyncio
import contextlib
import json
import re
import signal
from statistics import median
from time import monotonic, time

import httpx
import pytest

from exporter.simulator.host import HostFiles
from exporter.simulator.ports import HOST
from exporter.simulator.traffic import Training
from tests.daemon.test_daemon import Page
from tests.helpers.broker import Broker
from tests.helpers.daemon_process import Clocks, exporter, flags_of

LONG = 60.0
INTERVAL = 0.5
RATE = "fabric_rdma_receive_bytes_per_second"
PORT = {"device": "mlx5_0", "port": "1"}
WORDS_PER_SECOND = 25_000_000
"""Of port_rcv_data, words of four bytes: a quarter of a 400 Gb/s link would be 3,125,000,000 words."""


class Counter:
    """A counter file of the simulated host that rises evenly with real time, written in place."""

    def __init__(self, host):
        self._file = host.sysfs / "class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
        self._begun = monotonic()
        self.jump = 0.0

    async def run(self):
        while True:
            value = round((monotonic() - self._begun + self.jump) * WORDS_PER_SECOND)
            with self._file.open("r+b") as file:
                file.write(f"{value}".encode().ljust(24, b"\n"))
            await asyncio.sleep(0.02)


@pytest.fixture
def host(tmp_path):
    files = HostFiles(tmp_path / "host", Training(()))
    files.create()
    return files


@pytest.fixture
async def counter(host):
    made = Counter(host)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def running(folder, host, *, environment=None, **config):
    """Run the exporter on the simulated host, and yield it with a function that scrapes it."""
    only = {name: {"enabled": False} for name in ("nic", "pci", "lldp", "nccl", "nccl_facts", "bursts", "hostcheck")}
    sources = only | {"rdma": {"interval": f"{INTERVAL * 1000:.0f}ms"}} | config.pop("sources", {})
    file = folder / "config.yml"
    file.write_text(json.dumps({"host": HOST, "sources": sources, **config}))
    flags = [*flags_of(folder / "rest"), "--path.sysfs", host.sysfs]
    made = exporter(folder, file, *flags, environment=environment)
    process = await asyncio.to_thread(made.__enter__)
    try:
        async with httpx.AsyncClient(base_url=process.url, trust_env=False, timeout=LONG) as client:

            async def scrape():
                return Page((await client.get("/metrics")).text)

            process.client = client
            yield process, scrape
    finally:
        await asyncio.to_thread(made.__exit__, None, None, None)


async def until(scrape, condition, seconds=LONG):
    end = monotonic() + seconds
    while not condition(page := await scrape()):
        assert monotonic() < end, page.samples
        await asyncio.sleep(0.02)
    return page


def has_rate(page):
    return page.value(RATE, **PORT) is not None


def is_right(rate):
    """Return whether a rate is that of the counter: to a half, as the counter rises in steps on a busy machine."""
    return rate == pytest.approx(4 * WORDS_PER_SECOND, rel=0.5)


async def test_after_a_stop_nothing_old_is_served_and_rates_are_those_of_the_whole_time(tmp_path, host, counter):
    """Two minutes of SIGSTOP, on a smaller scale: five intervals and more."""
    async with running(tmp_path, host) as (process, scrape):
        await until(scrape, has_rate)
        begun, reads = monotonic(), (await scrape()).value("fabric_source_reads_total", source="rdma")
        process.process.send_signal(signal.SIGSTOP)
        asked = asyncio.create_task(scrape())  # it arrives while the process is stopped
        await asyncio.sleep(6 * INTERVAL)
        process.process.send_signal(signal.SIGCONT)
        page = await asked
        value = page.value(RATE, **PORT)
        assert value is None or is_right(value), "that of before the stop, or of a part of it"
        rates = []
        for _ in range(20):
            rates.append((await scrape()).value(RATE, **PORT))
            await asyncio.sleep(INTERVAL / 4)
        known = [rate for rate in rates if rate is not None]
        assert len(known) > 10
        assert is_right(median(known))
        assert max(known) < 5 * 4 * WORDS_PER_SECOND
        page = await scrape()
        most = (monotonic() - begun) / INTERVAL - 4
        assert page.value("fabric_source_reads_total", source="rdma") - reads < most, "the missed reads are not made up"
        assert page.value("fabric_source_overruns_total", source="rdma") >= 4
        assert page.value("fabric_exporter_event_loop_lag_seconds") > 2 * INTERVAL
        assert page.value("fabric_rdma_resets_total", **PORT) == 0


async def test_a_stop_reconnects_to_the_broker_and_publishes_no_state_again(tmp_path, host, counter, program):
    """The broker has dropped the connection meanwhile, as after one and a half keep-alives (MQTT 5.0, 3.1.2.10)."""
    broker = Broker(program("mosquitto"), tmp_path, ("allow_anonymous true",))
    broker.start()
    try:
        async with running(tmp_path, host, mqtt={"broker": f"127.0.0.1:{broker.port}"}) as (process, scrape):

            def is_connected(page):
                return page.value("fabric_exporter_mqtt_connected") == 1

            await until(scrape, is_connected)
            process.process.send_signal(signal.SIGSTOP)
            broker.stop()
            await asyncio.sleep(3 * INTERVAL)
            broker.start()
            process.process.send_signal(signal.SIGCONT)
            page = await until(scrape, lambda page: page.value("fabric_exporter_mqtt_reconnects_total") == 1)
            await until(scrape, is_connected)
            assert page.value("fabric_exporter_task_restarts_total", task="mqtt publisher") in (0, None)
            assert "Traceback" not in process.log
    finally:
        broker.stop()


@pytest.mark.parametrize("step", [3600, -3600])
async def test_steps_of_the_time_of_day_change_no_rate_and_no_age(tmp_path, host, counter, program, step):
    clocks = Clocks(program("cc"), tmp_path)
    slow = {"pci": {"interval": "60s"}}
    async with running(tmp_path, host, environment=clocks.environment, sources=slow) as (process, scrape):
        await until(scrape, has_rate)
        clocks.step(step)
        rates = []
        for _ in range(16):
            rates.append((await scrape()).value(RATE, **PORT))
            await asyncio.sleep(INTERVAL / 4)
        known = [rate for rate in rates if rate is not None]
        assert len(known) > 10, "no gap, other than that of a busy machine"
        assert is_right(median(known))
        assert max(known) < 20 * 4 * WORDS_PER_SECOND
        page = await scrape()
        assert page.value("fabric_source_last_success_timestamp_seconds", source="rdma") == pytest.approx(
            time() + step, abs=30
        )
        answer = await process.client.get("/")
        assert abs(parsed_date(answer.headers["date"]) - time() - step) < 30
        ages = re.findall(r"([\d.]+) (s|min|h) ago", answer.text)
        assert ages
        assert {unit for _, unit in ages} == {"s"}, "an age is not of the time of day"
        assert "Traceback" not in process.log


def parsed_date(text):
    from email.utils import parsedate_to_datetime  # noqa: PLC0415

    return parsedate_to_datetime(text).timestamp()


async def test_a_suspension_leaves_nothing_old_and_no_rate_of_unknown_time(tmp_path, host, counter, program):
    """CLOCK_MONOTONIC does not count it (clock_gettime(2)), but a switch has gone on counting."""
    clocks = Clocks(program("cc"), tmp_path)
    async with running(tmp_path, host, environment=clocks.environment) as (_, scrape):
        await until(scrape, has_rate)
        counter.jump += 10.0  # what passed in that time: 25 intervals, below 16 times what the link can carry
        clocks.suspend(10.0)
        seen = []
        for _ in range(24):
            page = await scrape()
            seen.append(page.value(RATE, **PORT))
            await asyncio.sleep(INTERVAL / 8)
        assert None in seen, "the tables of before the suspension, and those with a rate over it"
        known = [rate for rate in seen if rate is not None]
        assert is_right(median(known))
        assert max(known) < 5 * 4 * WORDS_PER_SECOND, "that over the suspension was 26 times as much"
        page = await scrape()
        assert page.value("fabric_rdma_resets_total", **PORT) == 0
        assert page.value("fabric_rdma_receive_bytes_total", **PORT) >= 10 * 4 * WORDS_PER_SECOND


async def test_a_read_only_temporary_folder_is_not_needed(tmp_path, host, counter, program):
    """With a file system where nothing can be written, as in a container with readOnlyRootFilesystem."""
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP", "HOME"), "/proc/nowhere")
    async with running(tmp_path, host, environment=places) as (process, scrape):
        await until(scrape, has_rate)
        assert (await process.client.post("/-/reload")).status_code == 200
        await until(scrape, has_rate)
        process.process.terminate()
        assert await asyncio.to_thread(process.process.wait, LONG) == 0
        assert "level=error" not in process.log
        assert "Traceback" not in process.log
