"""Optical modules of the host's network devices: which are read, how often, and failures."""

import asyncio
import errno
import os
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporter.config import schema as config
from exporter.config.errors import ConfigError
from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls, Hardware
from exporter.core.source import Host, SourceError
from exporter.daemon import sources
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.optics import module_cage
from exporter.sources.optics import options as optics_options
from exporter.sources.optics.options import OpticsOptions
from exporter.sources.optics.source import DEFINITION, OpticsSource
from tests.helpers.fake_module_memory import (
    BIAS,
    POWER,
    FakeModuleMemory,
    cmis,
    sff8472,
    sff8636,
)
from tests.helpers.golden import compare, scraped
from tests.helpers.paths import FIXTURES

LONG = 60.0
SHORT = 0.3
"""Seconds after which a call is treated as hanging."""


def port(name, ifindex, **more):
    given = {"carrier": True, "parent_dev_name": f"0000:17:00.{ifindex}", "parent_dev_bus_name": "pci", **more}
    return NetworkLink(ifindex, name, **given)


class FakeModuleReader:
    """A reader of network devices: for each a module memory, an errno, or a function to call instead."""

    def __init__(self):
        self.devices, self.memories, self.asked = {}, {}, []
        self.drained = self.closed = 0
        self.broken = {}

    def add(self, link, memory):
        self.devices[link.name], self.memories[link.name] = link, memory
        return memory

    def open(self):
        return self

    def links(self):
        return list(self.devices.values())

    def unreadable_links(self):
        return self.broken

    def events(self):
        self.drained += 1
        return []

    def module_page(self, device, *, page, bank, offset, length, address=0x50):
        self.asked.append(device)
        memory = self.memories[device]
        if callable(memory):
            memory = memory()
        if isinstance(memory, int):
            raise OSError(memory, os.strerror(memory), device)
        return memory.read(page=page, bank=bank, offset=offset, length=length, address=address)

    def close(self):
        self.closed += 1


@pytest.fixture
def nics():
    return FakeModuleReader()


@asynccontextmanager
async def opened(reader, sysfs="/nowhere", hardware=None, **options):
    host = Host("gpu-1", Path(sysfs), Path("/nowhere"), hardware=hardware or Hardware())
    source = OpticsSource(OpticsOptions(**options), host, reader.open)
    try:
        yield source
    finally:
        await source.close()


def values_of(reading):
    """Return the values of each row, by ending without `module_`."""
    found = {}
    for table in reading.tables:
        for ending, column in table.columns.items():
            for key, value in zip(table.rows.keys, column.values, strict=True):
                if value is not None:
                    found.setdefault(" ".join(key), {})[ending.removeprefix("module_")] = value
    return found


def reasons(reading):
    return [(failure.device, failure.reason) for failure in reading.failures]


# Values.


async def test_identity_lanes_and_thresholds_of_a_module(nics):
    nics.add(port("eth0", 2), sff8472())
    async with opened(nics) as source:
        assert await source.applies()
        reading = await source.read()
    assert reading.failures == []
    assert values_of(reading) == {
        "eth0": {
            "info": ("SFP", "EXAMPLE", "EX-10G-SR", "EX0000000003", "A"),
            "temperature_celsius": 40.0,
            "voltage_volts": 3.3,
        },
        "eth0 1": {
            "lane_receive_power_watts": 0.5e-3,
            "lane_transmit_power_watts": 0.6e-3,
            "lane_bias_amperes": 6e-3,
        },
        **{
            f"eth0 {level}": {
                "threshold_temperature_celsius": temperature,
                "threshold_voltage_volts": voltage,
                "threshold_bias_amperes": bias,
                "threshold_transmit_power_watts": sent,
                "threshold_receive_power_watts": received,
            }
            for level, temperature, voltage, bias, sent, received in (
                ("high_alarm", 80, 3.6, 15e-3, 1.5e-3, 1.6e-3),
                ("low_alarm", -10, 3.0, 2e-3, 0.1e-3, 0.04e-3),
                ("high_warning", 70, 3.5, 12e-3, 1e-3, 1.1e-3),
                ("low_warning", 0, 3.1, 3e-3, 0.2e-3, 0.06e-3),
            )
        },
    }


async def test_module_of_a_port_that_is_down_is_read(nics):
    nics.add(port("eth0", 2, carrier=False), sff8636().put(0, 34, bytes(24)))
    async with opened(nics) as source:
        found = values_of(await source.read())
    assert found["eth0"]["info"][0] == "QSFP28"
    assert [found[f"eth0 {lane}"]["lane_receive_power_watts"] for lane in (1, 2, 3, 4)] == [0.0] * 4


async def test_lane_with_bias_and_no_light_is_exported_and_unused_lanes_are_not(nics):
    nics.add(port("eth0", 2), cmis(lanes=4).word(0x11, 186, 0))
    async with opened(nics) as source:
        found = values_of(await source.read())
    lanes = {key.split()[1] for key in found if key.startswith("eth0 ") and key[5:].isdigit()}
    assert lanes == {"1", "2", "3", "4"}
    assert found["eth0 1"]["lane_receive_power_watts"] == 0.0
    assert found["eth0 1"]["lane_bias_amperes"] == pytest.approx(50e-3)


async def test_module_fault_is_exported_only_if_the_state_is_known(nics):
    nics.add(port("eth0", 2), cmis())
    nics.add(port("eth1", 3), cmis().put(0, 3, b"\x0a"))
    nics.add(port("eth2", 4), sff8636())
    nics.add(port("eth3", 5), cmis().put(0, 3, b"\x00"))
    async with opened(nics) as source:
        found = values_of(await source.read())
    assert [found[f"eth{number}"].get("fault") for number in range(4)] == [0, 1, None, None]
    assert [found[f"eth{number}"].get("state_info") for number in range(4)] == [("ready",), ("fault",), None, None]


async def test_absent_values_have_no_columns(nics):
    nics.add(port("eth0", 2), cmis().put(0, 2, b"\x80"))
    async with opened(nics) as source:
        reading = await source.read()
    assert [list(table.columns) for table in reading.tables] == [["module_info"]]


def test_metric_names_are_valid():
    metrics = [metric for schema in DEFINITION.schemas for metric in schema.metrics.values()]
    assert vocabulary.check(metrics) == []
    assert all(metric.origins for metric in metrics)
    assert not any(metric.detail for metric in metrics)


# Selection of devices.


async def test_only_hardware_ports_are_read(nics, tmp_path):
    nics.add(port("eth0", 2), sff8472())
    virtual = tmp_path / "class" / "net" / "eth1" / "device"
    virtual.mkdir(parents=True)
    (virtual / "physfn").symlink_to("..")
    nics.add(port("eth1", 3), sff8472())
    nics.add(port("eth2", 4, phys_port_name="pf0vf3"), sff8472())
    nics.add(port("eth3", 5, kind="vlan"), sff8472())
    nics.add(port("eth4", 6, parent_dev_bus_name="auxiliary"), sff8472())
    nics.add(NetworkLink(7, "bond0", kind="bond"), sff8472())
    nics.add(NetworkLink(1, "lo"), sff8472())
    nics.add(port("eth5", 8), sff8472())
    guest = tmp_path / "class" / "net" / "eth6" / "device"
    guest.mkdir(parents=True)
    (guest / "vendor").write_text("0x15b3\n")
    (guest / "device").write_text("0x101e\n")
    nics.add(port("eth6", 9), sff8472())
    async with opened(nics, tmp_path, exclude=("eth5",)) as source:
        await source.read()
    assert set(nics.asked) == {"eth0"}


async def test_module_of_an_infiniband_port_is_read_through_its_ipoib_device(nics):
    nics.add(port("ib0", 2, hardware=32, kind="ipoib"), cmis())
    nics.add(port("ib0.8001", 3, hardware=32, kind="ipoib", lower=2), cmis())
    nics.add(port("ib1", 4, hardware=32, kind="ipoib"), errno.EOPNOTSUPP)  # as the driver in Linux answers
    async with opened(nics) as source:
        assert await source.applies()
        reading = await source.read()
    assert reading.failures == []
    assert values_of(reading)["ib0"]["info"][0] == "QSFP-DD"
    assert set(nics.asked) == {"ib0", "ib1"}


async def test_source_does_not_apply_without_ports(nics):
    nics.add(NetworkLink(1, "lo"), sff8472())
    async with opened(nics) as source:
        assert not await source.applies()
        assert (await source.read()).tables == []


# Schedule.


def test_source_is_disabled_by_default():
    assert not OpticsOptions().enabled
    assert OpticsOptions().interval == 60


def test_interval_under_a_minute_is_a_configuration_error():
    text = b"sources:\n  optics:\n    enabled: true\n    interval: 30s\n"
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "config.yml", [DEFINITION])
    assert "sources.optics" in str(caught.value)
    assert "60s or longer" in str(caught.value)
    options = config.parse(text.replace(b"30s", b"2m"), "config.yml", [DEFINITION]).sources["optics"]
    assert (options.enabled, options.interval) == (True, 120)


async def test_static_data_is_read_again_after_several_reads(nics):
    memory = nics.add(port("eth0", 2), cmis())
    async with opened(nics) as source:
        counts = []
        for _ in range(module_cage.STATIC_MAX_READS + 2):
            memory.asked.clear()
            found = values_of(await source.read())
            assert found["eth0 low_alarm"]["threshold_temperature_celsius"] == -10
            counts.append([page for _, page, _, _ in memory.asked])
    often = [0, 0, 0, 0, 0x11]  # start, mark, state, temperature and voltage, lanes
    seldom = [0, 0, 0, 1, 2, 0, 0, 0x11]
    assert counts == [seldom, *[often] * (module_cage.STATIC_MAX_READS - 1), seldom, often]


async def test_replaced_module_is_read_completely(nics):
    nics.add(port("eth0", 2), cmis())
    async with opened(nics) as source:
        await source.read()
        nics.memories["eth0"] = cmis().text(0, 166, 16, "EX9").text(0, 129, 16, "OTHER").words(2, 128, [90 * 256])
        found = values_of(await source.read())
        assert found["eth0"]["info"] == ("QSFP-DD", "OTHER", "EX-400G-DR4", "EX9", "B1")
        assert found["eth0 high_alarm"]["threshold_temperature_celsius"] == 90
        nics.memories["eth0"] = sff8636()
        found = values_of(await source.read())
        assert found["eth0"]["info"][0] == "QSFP28"


async def test_replugged_module_is_read_completely(nics):
    memory = nics.add(port("eth0", 2), cmis())
    async with opened(nics) as source:
        await source.read()
        nics.memories["eth0"] = errno.EINVAL
        assert values_of(await source.read()) == {}
        nics.memories["eth0"] = memory
        memory.asked.clear()
        assert len(values_of(await source.read())) == 13
        assert len(memory.asked) == 8


# Failures.


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENXIO])
async def test_port_without_a_module_has_no_rows(nics, number):
    nics.add(port("eth0", 2), number)
    nics.add(port("eth1", 3), sff8472())
    async with opened(nics) as source:
        reading = await source.read()
    assert reading.failures == []
    assert not any(key.startswith("eth0") for key in values_of(reading))
    assert "eth1" in values_of(reading)


async def test_i2c_error_is_an_empty_cage_only_without_carrier(nics):
    nics.add(port("eth0", 2, carrier=False), errno.EIO)
    nics.add(port("eth1", 3), errno.EIO)
    async with opened(nics) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth1", "eio")]
    assert reading.failures[0].detail == "eth1: module, address 0x50, page 00h, bytes 0 to 2: Input/output error"


@pytest.mark.parametrize("identifier", [0x00, 0xFF])
async def test_undriven_bus_is_an_empty_cage(nics, identifier):
    nics.add(port("eth0", 2), FakeModuleMemory(identifier))
    async with opened(nics) as source:
        reading = await source.read()
    assert (reading.tables, reading.failures) == ([], [])


async def test_unsupported_module_is_exported_by_its_identifier(nics):
    nics.add(port("eth0", 2), FakeModuleMemory(0x1C))
    async with opened(nics) as source:
        reading = await source.read()
    assert values_of(reading) == {"eth0": {"info": ("0x1c", "", "", "", "")}}
    assert reading.failures == []


async def test_missing_capability_is_one_failure_per_device(nics):
    nics.add(port("eth0", 2), errno.EPERM)
    nics.add(port("eth1", 3), errno.EPERM)
    async with opened(nics) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth0", "eperm"), ("eth1", "eperm")]
    assert "CAP_NET_ADMIN" in reading.failures[0].detail
    assert nics.asked == ["eth0", "eth1"]


async def test_implausible_values_are_dropped_with_a_failure(nics):
    nics.add(port("eth0", 2), sff8472().words(0, 96, [0, 2287, 99.168e-3 * BIAS, 5.7e-3 * POWER], 0x51))
    async with opened(nics) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth0", "implausible")]
    assert "voltage_volts, 0.2287" in reading.failures[0].detail
    assert values_of(reading) == {"eth0": {"info": ("SFP", "EXAMPLE", "EX-10G-SR", "EX0000000003", "A")}}


async def test_failed_page_affects_only_its_values_and_is_retried(nics):
    memory = nics.add(port("eth0", 2), cmis())
    memory.refused[0x50, 2] = errno.EIO
    async with opened(nics) as source:
        reading = await source.read()
        assert reasons(reading) == [("eth0", "eio")]
        assert "page 02h, bytes 128 to 199" in reading.failures[0].detail
        assert len(values_of(reading)) == 9
        memory.refused.clear()
        reading = await source.read()
        assert reading.failures == []
        assert len(values_of(reading)) == 13


async def test_module_with_unreadable_identity_is_not_exported(nics):
    memory = nics.add(port("eth0", 2), cmis())
    async with opened(nics) as source:
        await source.read()
        memory.refused[0x50, 0] = errno.EIO
        reading = await source.read()
        assert (reading.tables, reasons(reading)) == ([], [("eth0", "eio")])
        memory.refused.clear()
        assert len(values_of(await source.read())) == 13


async def test_missing_page_is_no_failure(nics):
    nics.add(port("eth0", 2), cmis()).refused[0x50, 2] = errno.EINVAL
    async with opened(nics) as source:
        reading = await source.read()
    assert reading.failures == []
    assert len(values_of(reading)) == 9


async def test_hanging_module_affects_no_other_and_is_not_read_again(nics, monkeypatch):
    release, calls = threading.Event(), []

    def hang():
        calls.append(1)
        release.wait(LONG)
        return sff8472()

    nics.add(port("eth0", 2), hang)
    nics.add(port("eth1", 3), sff8472())
    async with opened(nics) as source:
        monkeypatch.setattr(source, "_serial", BlockingCalls("optics", SHORT))
        for _ in range(2):
            reading = await source.read()
            assert reasons(reading) == [("eth0", "timeout")]
            assert "eth1" in values_of(reading)
        assert len(calls) == 1
        release.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # nothing else shows that the call returned
                await asyncio.sleep(0.01)
        assert "eth0" in values_of(await source.read())


async def test_other_sources_are_served_between_two_devices(nics):
    loop, begun, waits, turns = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []
    memory = sff8472()

    def first():
        loop.call_soon_threadsafe(begun.set)
        waits.wait(LONG)
        return memory

    nics.add(port("eth0", 2), first)
    nics.add(port("eth1", 3), sff8472())
    hardware = Hardware()
    other = BlockingCalls("nic", LONG, hardware.turns(("nic", None)))
    async with opened(nics, hardware=hardware) as source:
        read = asyncio.create_task(source.read())
        await begun.wait()
        turn = asyncio.create_task(other.run([("other", lambda: turns.append(set(nics.asked)))]))
        await asyncio.sleep(0)
        waits.set()
        await asyncio.gather(read, turn)
    other.close()
    assert turns == [{"eth0"}]
    assert set(nics.asked) == {"eth0", "eth1"}


async def test_failed_link_dump_fails_the_read(nics):
    def refuse():
        raise OSError(errno.ENOBUFS, "no room")

    nics.links = refuse
    async with opened(nics) as source:
        with pytest.raises(SourceError, match="no room"):
            await source.read()


async def test_unreadable_link_is_a_failure_of_its_device(nics):
    nics.add(port("eth0", 2), sff8472())
    nics.broken = {"eth1": OSError(errno.EBADMSG, "no recording"), "eth2": OSError(errno.EBADMSG, "no recording")}
    async with opened(nics, exclude=("eth2",)) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth1", "ebadmsg")]
    assert "eth0" in values_of(reading)


async def test_cache_of_recreated_or_removed_devices_is_dropped(nics):
    memory = nics.add(port("eth0", 2), cmis())
    async with opened(nics) as source:
        await source.read()
        nics.devices["eth0"] = port("eth0", 9)
        memory.asked.clear()
        await source.read()
        assert len(memory.asked) == 8
        del nics.devices["eth0"]
        await source.read()
        assert source._cages == {}


async def test_unused_events_are_drained_and_the_reader_is_closed(nics):
    nics.add(port("eth0", 2), sff8472())
    async with opened(nics) as source:
        await source.close()
        assert nics.closed == 0
        await source.read()
        await source.read()
        assert nics.drained == 2
    assert nics.closed == 1


# The daemon.


@asynccontextmanager
async def scrape(tmp_path, monkeypatch):
    """Run a daemon that reads recordings of modules, more often than the configuration allows."""
    monkeypatch.setattr(optics_options, "MIN_INTERVAL_SECONDS", 0.1)
    others = [definition for definition in sources.SOURCES if definition.name != "optics"]
    monkeypatch.setattr(sources, "SOURCES", (*others, DEFINITION))
    lines = [f"  {one.name}: {{enabled: false}}" for one in others if not one.section]
    path = tmp_path / "config.yml"
    path.write_text("\n".join(["host: gpu-001", "sources:", *lines, "  optics: {enabled: true, interval: 100ms}", ""]))
    replay = FIXTURES / "optics"
    async with scraped(path, sysfs=tmp_path, procfs=tmp_path, nic_replay=replay) as scraper:
        yield scraper


async def test_scrape_matches_the_golden_file(tmp_path, monkeypatch):
    async with scrape(tmp_path, monkeypatch) as scraper:
        compare("optics", await scraper.settled())
