"""Queueing disciplines of network devices: their metrics, when they are read, and failures."""

import errno
import os
import threading

import pytest

from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.nic import (
    device as nic_device,
)
from exporter.sources.nic import (
    device_queries,
    queueing_query,
)
from exporter.sources.nic import (
    source as nic,
)
from tests.helpers.fake_nic_reader import (
    KERNEL,
    MLX5,
    FakeNicReader,
    RateCalculator,
    hardware,
    opened,
    raised,
    reasons,
    values_of,
)

CAPPED = QueueingDiscipline("tbf", 0x10000, 10, 11, 12, 13, 12_500_000)
ENDINGS = {
    "transmit_queue_drops_total": 10,
    "transmit_queue_overlimits_total": 11,
    "transmit_queue_requeues_total": 12,
    "transmit_queue_backlog_bytes": 13,
    "transmit_rate_limit_bytes_per_second": 12_500_000,
    "transmit_queue_info": {"kind": "tbf"},
}
DROPS = "transmit_queue_drops_total"


@pytest.fixture
def nics():
    made = FakeNicReader()
    for name, index in (("eth0", 2), ("eth1", 3)):
        made.add(hardware(name, index, stats=KERNEL), driver="r8169")
    made.queues = {2: CAPPED, 3: QueueingDiscipline("mq", 0, 0, 0, 0, 0), 99: CAPPED}
    yield made
    os.close(made.reading)
    os.close(made.writing)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(nic, device_queries, nic_device, queueing_query)


def asked(nics):
    return nics.calls.count(("queueing_disciplines", ""))


def queued(row):
    return {ending: value for ending, value in row.items() if ending in ENDINGS}


# Values.


async def test_rate_limited_and_unlimited_port(nics, clock):
    async with opened(nics) as source:
        for reads in (1, 2):
            clock.now += 5
            reading = await source.read()
            assert (reading.failures, asked(nics)) == ([], reads)
        found = values_of(reading.tables)
    assert queued(found["eth0"]) == ENDINGS
    assert queued(found["eth1"]) == {
        **dict.fromkeys(ENDINGS.keys() - {"transmit_rate_limit_bytes_per_second"}, 0),
        "transmit_queue_info": {"kind": "mq"},
    }
    assert found.keys() == {"eth0", "eth1"}


async def test_device_without_queue_or_answer_has_no_counters(nics):
    nics.queues = {2: QueueingDiscipline("noqueue")}
    async with opened(nics) as source:
        found = values_of((await source.read()).tables)
    assert queued(found["eth0"]) == {"transmit_queue_info": {"kind": "noqueue"}}
    assert queued(found["eth1"]) == {}


async def test_counters_wrap_at_32_bits_and_a_replaced_qdisc_does_not_reset_the_port(nics, clock):
    shown = RateCalculator()
    async with opened(nics) as source:

        async def row():
            clock.now += 5
            return shown(await source.read())["eth0"]

        nics.queues = {2: QueueingDiscipline("mq", 0, 2**32 - 5, 7, 7)}
        assert (await row())[DROPS] == 2**32 - 5
        nics.queues = {2: QueueingDiscipline("mq", 0, 3, 8, 8)}
        assert (await row())[DROPS] == 2**32 + 3
        nics.queues = {2: QueueingDiscipline("tbf", 0x10000, 9, 9, 9)}
        assert (await row())[DROPS] == 9, "it starts from 0, though the value is higher"
        nics.queues = {2: QueueingDiscipline("tbf", 0x20000, 1, 1, 1)}
        found = await row()
    assert (found[DROPS], found["resets_total"]) == (1, 0)


async def test_virtual_function_and_port_with_failed_statistics_have_queueing_metrics(nics):
    nics.add(hardware("sf0", 4, "mlx5_core.sf.2", stats=KERNEL))
    nics.devices["sf0"].parent_dev_bus_name = "auxiliary"
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.counts["eth2"] = raised(errno.EIO)
    nics.queues = dict.fromkeys((4, 5), CAPPED)
    async with opened(nics) as source:
        reading = await source.read()
    found = values_of(reading.tables)
    assert reasons(reading) == [("eth2", "eio")]
    assert queued(found["sf0"]) == queued(found["eth2"]) == ENDINGS
    assert nics.asked("sf0") == []


# Schedule.


@pytest.mark.parametrize(
    ("drop", "keep", "times"),
    [
        ((), (), 1),
        (("fabric_nic_transmit_queue_*", "fabric_nic_transmit_rate_limit_*"), ("*",), 0),
        (("*",), (), 0),
        (("fabric_nic_transmit_queue_[dob]*", "*_rate_limit_*"), (), 0),  # the rest are details
        (("fabric_nic_transmit_queue_[dob]*", "*_rate_limit_*"), ("*_queue_info",), 1),
        (("fabric_nic_transmit_queue_*",), (), 1),
    ],
)
async def test_qdiscs_are_read_only_if_exported(nics, drop, keep, times):
    async with opened(nics, drop=drop, keep=keep) as source:
        await source.read()
    assert asked(nics) == times


async def test_qdiscs_are_not_read_without_devices(nics):
    nics.devices.clear()
    async with opened(nics) as source:
        assert (await source.read()).failures == []
    assert asked(nics) == 0


@pytest.mark.parametrize(("took", "holds"), [(0.3, 30.0), (0.06, 6.0), (1.5, 60.0)])
async def test_slow_dump_is_cached_longer(nics, clock, took, holds):
    def slow():
        clock.now += took
        return {2: CAPPED}

    nics.queues = slow
    async with opened(nics) as source:

        async def times_at(seconds):
            clock.now = 5000 + seconds
            assert queued(values_of((await source.read()).tables)["eth0"]) == ENDINGS
            return asked(nics)

        assert [await times_at(one) for one in (0, holds / 2, holds - 0.1, holds + 0.1)] == [1, 1, 1, 2]
        nics.add(hardware("eth2", 5))
        assert await times_at(holds + 2) == 3, "a new device is read at once"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM])
async def test_refused_dump_is_no_failure_and_waits(nics, clock, number):
    nics.queues = raised(number)
    async with opened(nics) as source:
        for _ in range(3):
            reading = await source.read()
            assert (reading.failures, queued(values_of(reading.tables)["eth0"])) == ([], {})
            clock.now += 5
        assert asked(nics) == 1
        nics.queues = {2: CAPPED}
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS
        assert queued(values_of((await source.read()).tables)["eth0"]) == ENDINGS


# Failures.


async def test_failure_of_one_device_affects_no_other(nics):
    nics.queues[2] = raised(errno.ENODEV)
    async with opened(nics) as source:
        reading = await source.read()
    found = values_of(reading.tables)
    assert reasons(reading) == [("eth0", "enodev")]
    assert reading.failures[0].detail == "eth0: queueing disciplines: No such device"
    assert queued(found["eth0"]) == {}
    assert found["eth0"]["kernel_receive_bytes_total"] == KERNEL["rx_bytes"]
    assert found["eth1"][DROPS] == 0


async def test_failed_dump_affects_nothing_else_and_is_retried(nics):
    whole = nics.queues
    nics.queues = raised(errno.EOVERFLOW)
    async with opened(nics) as source:
        reading = await source.read()
        found = values_of(reading.tables)
        assert reasons(reading) == [("", "eoverflow")]
        assert reading.failures[0].detail.startswith("queueing disciplines: ")
        assert {name: queued(row) for name, row in found.items()} == {"eth0": {}, "eth1": {}}
        assert found["eth1"]["link_up"] == 1
        nics.queues = whole
        assert queued(values_of((await source.read()).tables)["eth0"]) == ENDINGS


async def test_hanging_dump_delays_no_device(nics, monkeypatch):
    release = threading.Event()
    nics.queues = lambda: release.wait(60) and {}
    monkeypatch.setattr(nic, "CALL_DEADLINE", 0.3)
    async with opened(nics) as source:
        try:
            for _ in range(2):
                reading = await source.read()
                assert reasons(reading) == [("", "timeout")]
                assert values_of(reading.tables)["eth0"]["link_up"] == 1
            assert asked(nics) == 1, "it is not read again while it hangs"
        finally:
            release.set()


# Software devices.


async def test_configured_software_devices_are_read(nics):
    nics.add(NetworkLink(7, "veth7", kind="veth", carrier=True, operstate="up", stats=KERNEL), driver="veth")
    nics.add(NetworkLink(8, "cali8", kind="veth", carrier=True), driver="veth")
    nics.add(NetworkLink(9, "veth9", kind="veth", carrier=True), driver="veth")
    nics.queues = dict.fromkeys((7, 8, 9), CAPPED)
    async with opened(nics, software=("veth*",), exclude=("veth9",)) as source:
        found = values_of((await source.read()).tables)
    assert found.keys() == {"eth0", "eth1", "veth7"}
    assert queued(found["veth7"]) == ENDINGS
    assert (found["veth7"]["info"]["traffic"], found["veth7"]["transmit_bytes_total"]) == ("kernel", KERNEL["tx_bytes"])
    assert nics.asked("cali8") == nics.asked("veth9") == []
