"""Settings that hosts publish, compared by a collector, through a real broker."""

import asyncio
import threading
from contextlib import AsyncExitStack
from time import monotonic

from exporter.core.supervision import Supervisor
from exporter.mqtt.publisher import Publisher
from exporter.sources.collector import source as collector
from exporter.sources.collector.fleet_settings import MAX_UNUSUAL, FleetSettingTables
from exporter.sources.collector.options import CollectorOptions
from exporter.sources.collector.source import CollectorSource

OF = "MT_0000000838, GPUs"


def rows(tables):
    """Return values by labels of each metric."""
    found = {}
    for table in tables:
        for ending, column in table.columns.items():
            found[ending] = dict(zip(table.rows.keys, column.values, strict=True))
    return found


def settings(mtu, kernel="6.8.0"):
    return ((OF, "MTU", mtu), (OF, "kernel", kernel))


async def test_the_host_that_differs_is_named_until_it_is_repaired(broker, monkeypatch):
    monkeypatch.setattr(collector, "COMPARE_INTERVAL", 0.05)
    options = broker().options()
    source = CollectorSource(CollectorOptions(slots="00-7f"), options, Supervisor())

    async def until(unusual, usual):
        end = monotonic() + 30
        while True:
            found = rows((await source.read()).tables)
            if found.get("unusual_setting_info", {}).keys() == unusual:
                assert found.get("usual_setting_ratio", {}) == usual
                assert found["setting_hosts"] == {(): 4}
                assert found["unlisted_settings"] == {(): 0}
                return
            assert monotonic() < end, found
            await asyncio.sleep(0.05)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(source.close)
        hosts = [await stack.enter_async_context(Publisher(options, f"gpu-{number}")) for number in range(4)]
        for host in hosts:
            host.set_settings(settings("9000"))
        hosts[2].set_settings(settings("1500", "5.15.0"))
        await until(
            {("gpu-2", OF, "MTU", "1500"), ("gpu-2", OF, "kernel", "5.15.0")},
            {(OF, "MTU", "9000"): 0.75, (OF, "kernel", "6.8.0"): 0.75},
        )
        hosts[2].set_settings(settings("9000", "5.15.0"))
        await until({("gpu-2", OF, "kernel", "5.15.0")}, {(OF, "kernel", "6.8.0"): 0.75})
        hosts[2].set_settings(settings("9000"))
        await until(set(), {})


async def test_settings_are_compared_once_a_minute(stopped_clock):
    clock, given = stopped_clock(collector), []

    class Subscriber:
        class Retained:
            @staticmethod
            def settings():
                given.append(1)
                return {}

        retained = Retained

    source = CollectorSource(CollectorOptions(slots="00-ff"), None, Supervisor())
    for seconds, number in ((0.0, 1), (10.0, 1), (50.0, 2), (59.0, 2)):
        clock.now += seconds
        await source._setting_tables(Subscriber)
        assert len(given) == number


async def test_a_long_comparison_delays_no_read_and_is_made_once(monkeypatch):
    """A read that takes longer than the interval would lose the timings that it has."""
    monkeypatch.setattr(collector, "COMPARE_INTERVAL", 0.0)
    ended, given = threading.Event(), []

    class Subscriber:
        class Retained:
            @staticmethod
            def settings():
                given.append(1)
                assert ended.wait(30)
                return {f"gpu-{number}": settings("9000") for number in range(5)}

        retained = Retained

    source = CollectorSource(CollectorOptions(slots="00-ff", interval=0.2), None, Supervisor())
    for _ in range(3):
        async with asyncio.timeout(5):
            assert await source._setting_tables(Subscriber) == []
    assert len(given) == 1
    ended.set()
    await source._comparison
    assert rows(await source._setting_tables(Subscriber))["setting_hosts"] == {(): 5}
    await source.close()


def test_hosts_with_many_unusual_values_hide_no_other_host():
    hosts = {f"gpu-{number:02}": settings("9000") for number in range(20)}
    hosts |= {f"a-{number}": tuple((OF, "MTU", str(value)) for value in range(128)) for number in range(8)}
    hosts["odd"] = settings("1500")
    found = rows(FleetSettingTables().tables(hosts, 1.0))
    assert ("odd", OF, "MTU", "1500") in found["unusual_setting_info"]
    assert len(found["unusual_setting_info"]) == 1000
    assert found["unlisted_settings"] == {(): 25}


def test_what_has_no_series_is_counted():
    hosts = {f"gpu-{number:04}": settings("9000") for number in range(3000)}
    hosts |= {f"odd-{number:04}": settings(str(number)) for number in range(MAX_UNUSUAL + 7)}
    found = rows(FleetSettingTables().tables(hosts, 1.0))
    assert len(found["unusual_setting_info"]) == 1000
    assert found["unlisted_settings"] == {(): 7}
    assert found["setting_hosts"] == {(): 4007}
    assert found["usual_setting_ratio"] == {(OF, "MTU", "9000"): 3000 / 4007}
