"""Network devices of the host: which are read, their metrics, and failures."""

import asyncio
import errno
import os
import re
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.blocking import BlockingCalls
from exporter.core.source import Host, SourceError
from exporter.linux.ethtool_ioctl import DriverInfo, LinkSettings
from exporter.linux.netlink.ethtool_netlink import Pause
from exporter.linux.netlink.rtnetlink import LinkEvent, NetworkLink
from exporter.linux.nic_reader import KernelNic
from exporter.meaning.ports import links
from exporter.sources.nic import (
    device as nic_device,
)
from exporter.sources.nic import (
    device_queries,
)
from exporter.sources.nic import (
    metrics as nic_metrics,
)
from exporter.sources.nic import (
    origins as nic_origins,
)
from exporter.sources.nic import (
    source as nic,
)
from exporter.sources.nic.drivers import DRIVERS
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from tests.helpers.fake_nic_reader import (
    IOCTL_REQUESTS,
    KERNEL,
    MLX5,
    SPEED,
    FakeNicReader,
    RateCalculator,
    hardware,
    opened,
    pci_function,
    raised,
    reasons,
    values_of,
)

LONG = 60.0
SHORT = 0.3
"""Seconds after which a call is treated as hanging."""


@pytest.fixture
def nics():
    made = FakeNicReader()
    yield made
    os.close(made.reading)
    os.close(made.writing)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(nic, device_queries, nic_device)


# Values.


async def test_mlx5_port_has_wire_and_kernel_counters(nics):
    nics.add(hardware("eth2", 5, mtu=9000, mac="aa:bb:cc:00:00:01", carrier_changes=3, stats=KERNEL), statistics=MLX5)
    async with opened(nics) as source:
        assert await source.applies()
        reading = await source.read()
    assert reading.failures == []
    found = RateCalculator()(reading)
    info = found["eth2"].pop("info")
    assert info == {
        "host": "gpu-1",
        "rail": "",
        "pci": "0000:17:00.0",
        "mac": "aa:bb:cc:00:00:01",
        "driver": "mlx5_core",
        "firmware": "28.39",
        "phys_port_name": "",
        "traffic": "wire",
    }
    assert found == {
        "eth2": {
            "receive_bytes_total": 2**63 + 1,
            "transmit_bytes_total": 11,
            "receive_packets_total": 12,
            "transmit_packets_total": 13,
            "receive_paused_seconds_total": 2.5,
            "out_of_buffer_total": 14,
            "link_down_total": 15,
            "kernel_receive_bytes_total": 101,
            "kernel_transmit_bytes_total": 102,
            "kernel_receive_packets_total": 103,
            "kernel_transmit_packets_total": 104,
            "kernel_receive_errors_total": 105,
            "kernel_transmit_errors_total": 106,
            "kernel_receive_discards_total": 107,
            "kernel_transmit_discards_total": 108,
            "carrier_changes_total": 3,
            "mtu_bytes": 9000,
            "link_up": 1,
            "link_speed_bytes_per_second": 50e9,
            "resets_total": 0,
        },
        ("eth2", "3"): {"receive_pfc_frames_total": 16, "receive_pfc_paused_seconds_total": 0.75},
    }


async def test_unlisted_driver_has_kernel_counters(nics):
    nics.add(hardware("eth0", 2, stats=KERNEL, carrier_down_count=4), driver="r8169", statistics={"rx_bytes_phy": 1})
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["eth0"]
    assert row["info"]["traffic"] == "kernel"
    assert (row["receive_bytes_total"], row["transmit_packets_total"], row["link_down_total"]) == (101, 104, 4)
    assert "statistics" not in nics.asked("eth0")


async def test_virtio_has_its_own_drops_and_kernel_bytes(nics):
    statistics = {"rx0_drops": 1, "rx1_drops": 2, "rx_queue_0_packets": 9}
    nics.add(hardware("eth0", 2, "virtio2", stats=KERNEL), driver="virtio_net", statistics=statistics)
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["eth0"]
    assert (row["receive_discards_total"], row["receive_bytes_total"], row["info"]["traffic"]) == (3, 101, "kernel")


async def test_missing_link_attributes_are_absent(nics):
    nics.add(hardware("eth0", 2), driver="r8169")
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["eth0"]
    assert row.keys() == {"link_up", "link_speed_bytes_per_second", "info"}


@pytest.mark.parametrize(
    ("link", "up"),
    [
        ({"carrier": True, "operstate": "up"}, 1),
        ({"carrier": True, "operstate": "unknown"}, 1),
        ({"carrier": True, "operstate": None}, 1),
        ({"carrier": True, "operstate": "dormant"}, 0),
        ({"carrier": False, "operstate": "down"}, 0),
        ({"carrier": False, "operstate": "unknown"}, 0),
    ],
)
async def test_link_up_follows_carrier_and_operstate(nics, link, up):
    nics.add(replace(hardware("eth0", 2), **link))
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["eth0"]
    assert row["link_up"] == up
    assert ("link_speed_bytes_per_second" in row) == link["carrier"]


# Selection of devices.

BOND = NetworkLink(9, "bond0", carrier=True, operstate="up", kind="bond", mtu=1500, stats=KERNEL, carrier_changes=2)
OTHERS = [
    NetworkLink(1, "lo", hardware=772, carrier=True),
    NetworkLink(3, "veth0", kind="veth", carrier=True, parent_dev_name="0000:17:00.0"),
    NetworkLink(4, "br0", kind="bridge", carrier=True),
    NetworkLink(6, "eth2.100", kind="vlan", carrier=True),
    NetworkLink(7, "dummy0", kind="dummy"),
    NetworkLink(8, "noparent", carrier=True),
    hardware("eth2_0", 11, phys_port_name="pf0vf0"),
    hardware("eth2_1", 12, phys_port_name="c1pf0vf12"),
    hardware("eth2_2", 13, phys_port_name="pf0sf88"),
]


async def test_software_devices_and_representors_are_not_read(nics):
    for link in OTHERS:
        nics.add(link)
    nics.add(hardware("eth2", 5, phys_port_name="p0"))
    async with opened(nics) as source:
        assert values_of((await source.read()).tables).keys() == {"eth2"}
    assert {device for _, device in nics.calls} == {"", "eth2"}


async def test_source_does_not_apply_without_hardware(nics):
    for link in OTHERS:
        nics.add(link)
    async with opened(nics) as source:
        assert not await source.applies()


async def test_bond_has_a_link_but_no_bytes(nics):
    nics.add(BOND, driver=None, speed=2 * SPEED)
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["bond0"]
    info = row.pop("info")
    assert (info["driver"], info["traffic"]) == ("", "")
    assert row == {
        "carrier_changes_total": 2,
        "mtu_bytes": 1500,
        "link_up": 1,
        "link_speed_bytes_per_second": 100e9,
    }
    assert nics.asked("bond0") == ["settings"]


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, {"eth0", "eth1", "rail0"}),
        ({"include": ("eth*",)}, {"eth0", "eth1"}),
        ({"exclude": ("eth1", "r*")}, {"eth0"}),
        ({"include": ("eth*",), "exclude": ("eth*",)}, set()),
    ],
)
async def test_excluded_devices_are_never_read(nics, options, read):
    for place, name in enumerate(("eth0", "eth1", "rail0")):
        nics.add(hardware(name, place + 2))
    async with opened(nics, **options) as source:
        assert values_of((await source.read()).tables).keys() == read
    assert {device for what, device in nics.calls if what not in {"links", "queueing_disciplines"}} == read


@pytest.mark.parametrize("enabled", [False, True])
async def test_statistics_of_virtual_functions_are_read_only_if_configured(nics, tmp_path, enabled):
    pci_function(tmp_path, "eth2")
    pci_function(tmp_path, "eth2v0", virtual=True)
    pci_function(tmp_path, "eth3", device="0x101e")  # as in a virtual machine, where no host's function is beside it
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    nics.add(hardware("eth2v0", 6, "0000:17:00.1", stats=KERNEL), statistics=dict.fromkeys(MLX5, 0))
    nics.add(replace(hardware("sf0", 7, "mlx5_core.sf.4"), parent_dev_bus_name="auxiliary", stats=KERNEL))
    nics.add(hardware("eth3", 8, "0000:18:00.0", stats=KERNEL), statistics=dict.fromkeys(MLX5, 0))
    async with opened(nics, tmp_path, virtual_functions=enabled) as source:
        found = values_of((await source.read()).tables)
    requests = ["driver", "statistics", "settings"]
    assert nics.asked("eth2") == requests
    assert nics.asked("eth2v0") == nics.asked("sf0") == nics.asked("eth3") == (requests if enabled else [])
    # Priorities, pauses and error correction are the port's, and asking for them blocks in the firmware's mailbox.
    assert {what for what, name in nics.calls if name in {"eth2v0", "eth3"}} <= {*IOCTL_REQUESTS, "link_modes"}
    # The counters of the port are 0 on a function without the right to them: never the bytes of this one.
    for name in ("eth2v0", "sf0", "eth3"):
        row = found[name]
        assert (row["receive_bytes_total"], row["info"]["traffic"], row["link_up"]) == (101, "kernel", 1)
        assert "receive_paused_seconds_total" not in row
        assert (name, "3") not in found
    for name in ("eth2v0", "eth3"):
        assert ("out_of_buffer_total" in found[name]) == enabled
        assert ("link_speed_bytes_per_second" in found[name]) == enabled


# Failures.


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENODEV, errno.EAGAIN])
async def test_failed_statistics_are_not_replaced_by_kernel_counters(nics, number):
    for name in ("eth2", "eth3"):
        nics.add(hardware(name, 5 + (name == "eth3"), stats=KERNEL), statistics=MLX5)
    nics.counts["eth2"] = raised(number)
    async with opened(nics) as source:
        reading = await source.read()
        assert reasons(reading) == [("eth2", errno.errorcode[number].lower())]
        found = values_of(reading.tables)
        assert found["eth3"]["receive_bytes_total"] == 2**63 + 1
        row = found["eth2"]
        wire = {"receive_bytes_total", "transmit_bytes_total", "receive_packets_total", "transmit_packets_total"}
        assert not wire & row.keys()
        assert (row["kernel_receive_bytes_total"], row["link_up"], row["info"]["traffic"]) == (101, 1, "wire")
        gone = number == errno.ENODEV  # no further query is sent then
        assert row.get("link_speed_bytes_per_second") == (None if gone else 50e9)
        nics.counts["eth2"] = MLX5
        assert values_of((await source.read()).tables)["eth2"]["receive_bytes_total"] == 2**63 + 1


async def test_driver_without_statistics_is_no_failure_and_not_read_again(nics):
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    nics.counts["eth2"] = raised(errno.EOPNOTSUPP)
    async with opened(nics) as source:
        for _ in range(3):
            reading = await source.read()
            assert reading.failures == []
            row = values_of(reading.tables)["eth2"]
            assert (row["receive_bytes_total"], row["info"]["traffic"]) == (101, "kernel")
    assert nics.asked("eth2").count("statistics") == 1


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL])
async def test_refused_link_settings_are_no_failure(nics, number):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.speeds["eth2"] = raised(number)
    async with opened(nics) as source:
        reading = await source.read()
    assert reading.failures == []
    row = values_of(reading.tables)["eth2"]
    assert "link_speed_bytes_per_second" not in row
    assert row["transmit_bytes_total"] == 11


async def test_failed_link_settings_are_a_failure_and_retried(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.speeds["eth2"] = raised(errno.EIO)
    async with opened(nics) as source:
        assert reasons(await source.read()) == [("eth2", "eio")]
        nics.speeds["eth2"] = LinkSettings(SPEED)
        reading = await source.read()
    assert reading.failures == []
    assert values_of(reading.tables)["eth2"]["link_speed_bytes_per_second"] == 50e9


@pytest.mark.parametrize("known", [True, False], ids=["driver in sysfs", "driver unknown"])
async def test_unreadable_driver_info(nics, tmp_path, known):
    if known:
        pci_function(tmp_path, "eth2")
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    nics.drivers["eth2"] = raised(errno.EIO)
    async with opened(nics, tmp_path) as source:
        reading = await source.read()
        assert reasons(reading) == [("eth2", "eio")]
        row = values_of(reading.tables)["eth2"]
        assert row.get("receive_bytes_total") == (2**63 + 1 if known else None)
        assert row["kernel_receive_bytes_total"] == 101
        nics.drivers["eth2"] = DriverInfo("mlx5_core", "", "28.39")
        row = values_of((await source.read()).tables)["eth2"]
    assert (row["receive_bytes_total"], row["info"]["firmware"]) == (2**63 + 1, "28.39")


async def test_malformed_answer_affects_only_its_device(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.add(hardware("eth3", 6), statistics=MLX5)
    nics.counts["eth2"] = ValueError("cut off")
    async with opened(nics) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth2", "malformed")]
    assert "receive_bytes_total" not in values_of(reading.tables)["eth2"]
    assert values_of(reading.tables)["eth3"]["transmit_bytes_total"] == 11


async def test_unreadable_link_is_a_failure_of_its_device(nics):
    nics.unread = {name: OSError(errno.EBADMSG, "link: no number", name) for name in ("eth8", "other")}
    async with opened(nics, include=("eth*",)) as source:
        assert await source.applies(), "there is something, and it is broken"
        nics.add(hardware("eth2", 5), statistics=MLX5)
        reading = await source.read()
        assert reasons(reading) == [("eth8", "ebadmsg")]
        assert values_of(reading.tables).keys() == {"eth2", ("eth2", "3")}
        nics.unread = {}
        assert (await source.read()).failures == []


async def test_failed_link_dump_fails_the_source(nics, monkeypatch):
    async with opened(nics) as source:
        monkeypatch.setattr(nics, "links", lambda: nics.answer("links", "", raised(errno.EPERM)))
        with pytest.raises(SourceError, match=r"rtnetlink: .*Operation not permitted") as caught:
            await source.read()
    assert caught.value.reason == "unreadable"


async def test_failed_opening_of_sockets_is_retried(nics):
    answers = [raised(errno.EMFILE), nics]

    def opening():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    nics.add(hardware("eth2", 5))
    source = NicSource(NicOptions(), Host("", Path("/nowhere"), Path("/nowhere")), opening)
    with pytest.raises(SourceError, match=r"rtnetlink: .*Too many open files"):
        await source.applies()
    assert await source.applies()
    await source.close()


# What hangs.


@pytest.fixture
def hang():
    """Return a function that hangs until the test ends, with an event for its first call."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def call():
        begun.release()
        assert release.wait(LONG)
        return raised(errno.EIO)

    call.begun, call.release = begun, release
    yield call
    release.set()


@pytest.mark.parametrize("what", ["drivers", "speeds", "counts"])
async def test_hanging_call_delays_no_other_and_is_not_repeated(nics, tmp_path, hang, monkeypatch, what):
    for place, name in enumerate(("eth2", "eth3", "eth4")):
        pci_function(tmp_path, name)
        nics.add(hardware(name, 5 + place, f"0000:1{place}:00.0", stats=KERNEL), statistics=MLX5)
    getattr(nics, what)["eth3"] = hang
    called = {"drivers": "driver", "speeds": "settings", "counts": "statistics"}[what]
    async with opened(nics, tmp_path) as source:
        monkeypatch.setattr(source, "_serial", BlockingCalls("nic", SHORT))
        for place in range(3):
            reading = await source.read()
            assert reasons(reading) == [("eth3", "timeout")]
            found = values_of(reading.tables)
            assert nics.asked("eth4").count("statistics") == place + 1
            assert [found[name]["transmit_bytes_total"] for name in ("eth2", "eth4")] == [11, 11]
            assert "receive_bytes_total" not in found["eth3"]
            assert found["eth3"]["link_up"] == 1
            assert [found[name]["info"]["rail"] for name in ("eth2", "eth3", "eth4")] == ["0", "1", "2"]
            assert found["eth3"]["info"]["traffic"] == "wire"
            assert {table.part for table in reading.tables} == {"mlx5_core"}
        assert nics.asked("eth3").count(called) == 1
        async with asyncio.timeout(LONG):
            await source.close()  # while it hangs
    assert nics.closed == 1
    assert source._serial.hanging == {"eth3"}


async def test_unknown_device_that_hangs_has_no_kernel_bytes(nics, hang, monkeypatch):
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    nics.drivers["eth2"] = hang
    async with opened(nics) as source:
        monkeypatch.setattr(source, "_serial", BlockingCalls("nic", SHORT))
        row = values_of((await source.read()).tables)["eth2"]
    assert "receive_bytes_total" not in row
    assert (row["kernel_receive_bytes_total"], row["info"]["traffic"]) == (101, "")


async def test_device_is_read_again_after_a_hang(nics, hang, monkeypatch):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.counts["eth2"] = hang
    async with opened(nics) as source:
        monkeypatch.setattr(source, "_serial", BlockingCalls("nic", SHORT))
        assert reasons(await source.read()) == [("eth2", "timeout")]
        nics.counts["eth2"] = MLX5
        hang.release.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # a thread empties it, which has no event
                await asyncio.sleep(0.001)
        reading = await source.read()
    assert reading.failures == []
    assert values_of(reading.tables)["eth2"]["transmit_bytes_total"] == 11


async def test_hanging_link_dump_is_a_timeout_and_not_repeated(nics, hang, monkeypatch):
    async with opened(nics) as source:
        monkeypatch.setattr(source, "_serial", BlockingCalls("nic", SHORT))
        monkeypatch.setattr(nics, "links", lambda: nics.answer("links", "", hang))
        for _ in range(3):
            with pytest.raises(SourceError, match="rtnetlink: ") as caught:
                await source.read()
            assert caught.value.reason == "timeout"
    assert nics.asked("") == ["links"]


async def test_rates_behind_a_slow_device_use_their_own_read_time(nics, clock):
    """Otherwise its rate would be too high, and too low at the next read."""

    def slow():
        clock.now += 2.0
        return {"rx_bytes_phy": 5_000}

    for place, name in enumerate(("eth2", "eth3", "eth4")):
        nics.add(hardware(name, 5 + place, stats=KERNEL), statistics={"rx_bytes_phy": 0, "rx_prio3_pause_duration": 0})
    nics.add(hardware("eth0", 20, stats=KERNEL), driver="r8169")
    meaning = RateCalculator()
    async with opened(nics) as source:
        meaning(await source.read())
        clock.now += 5.0
        nics.counts |= {
            "eth2": {"rx_bytes_phy": 5_000},
            "eth3": slow,
            "eth4": {"rx_bytes_phy": 7_000, "rx_prio3_pause_duration": 3_500_000},
        }
        nics.devices["eth0"] = replace(nics.devices["eth0"], stats=KERNEL | {"rx_bytes": 101 + 5_000})
        found = meaning(await source.read())
        rate = "receive_bytes_per_second"
        assert [found[name][rate] for name in ("eth0", "eth2", "eth3", "eth4")] == [1000.0] * 4
        assert found["eth4", "3"]["receive_pfc_paused_ratio"] == 0.5
        clock.now += 3.0  # five seconds after the links were read the last time
        nics.counts |= {
            "eth2": {"rx_bytes_phy": 10_000},
            "eth3": {"rx_bytes_phy": 10_000},
            "eth4": {"rx_bytes_phy": 10_000},
        }
        found = meaning(await source.read())
        assert [found[name][rate] for name in ("eth2", "eth3", "eth4")] == [1000.0] * 3


# Speed.


async def test_link_settings_are_read_after_link_changes_and_when_too_old(nics, clock):
    nics.add(hardware("eth2", 5, carrier_changes=1), statistics=MLX5)
    async with opened(nics) as source:

        async def asked():
            nics.calls.clear()
            row = values_of((await source.read()).tables)["eth2"]
            return row.get("link_speed_bytes_per_second"), [one for one in nics.asked("eth2") if one != "statistics"]

        assert await asked() == (50e9, ["driver", "settings"])
        nics.speeds["eth2"] = LinkSettings(SPEED // 4)
        assert await asked() == (50e9, [])
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS
        assert await asked() == (12.5e9, ["settings"])
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier_changes=3)
        assert await asked() == (12.5e9, ["driver", "settings"])
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier=False, operstate="down", carrier_changes=4)
        assert await asked() == (None, ["driver"])
        assert await asked() == (None, [])
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier=True, operstate="up", carrier_changes=5)
        assert await asked() == (12.5e9, ["driver", "settings"])
        nics.speeds["eth2"] = LinkSettings(None)
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS
        assert await asked() == (None, ["settings"])


# Rates.


async def test_counters_of_32_bits_wrap_and_those_of_64_do_not(nics, clock):
    nics.add(hardware("eth2", 5), statistics={"rx_out_of_buffer": 2**32 - 10, "rx_bytes_phy": 1000})
    meaning = RateCalculator()
    async with opened(nics) as source:
        meaning(await source.read())
        clock.now += 5
        nics.counts["eth2"] = {"rx_out_of_buffer": 5, "rx_bytes_phy": 6000}
        row = meaning(await source.read())["eth2"]
    assert (row["out_of_buffer_total"], row["resets_total"]) == (2**32 + 5, 0)
    assert row["receive_bytes_per_second"] == 1000.0
    assert row["receive_utilization_ratio"] == 1000 / 50e9


async def test_recreated_device_has_another_epoch(nics, clock):
    nics.add(hardware("eth2", 5), statistics={"rx_bytes_phy": 1000})
    meaning = RateCalculator()
    async with opened(nics) as source:
        meaning(await source.read())
        nics.add(hardware("eth2", 77), statistics={"rx_bytes_phy": 9000})
        clock.now += 5
        row = meaning(await source.read())["eth2"]
        assert (row["receive_bytes_total"], row["resets_total"]) == (9000, 1)
        assert "receive_bytes_per_second" not in row
        clock.now += 5
        nics.counts["eth2"] = {"rx_bytes_phy": 9500}
        row = meaning(await source.read())["eth2"]
        assert (row["receive_bytes_per_second"], row["resets_total"]) == (100.0, 1)
    assert nics.forgotten == ["eth2", "eth2"]


async def test_another_device_with_the_same_name_is_identified_again(nics):
    """Two names are swapped between two reads: what one driver refused, the other may support."""
    nics.add(hardware("eth0", 5, stats=KERNEL), driver="mlx5_core")
    nics.counts["eth0"] = raised(errno.EOPNOTSUPP)
    nics.add(hardware("eth1", 6, "0000:18:00.0", stats=KERNEL), statistics=MLX5)
    async with opened(nics) as source:
        await source.read()
        nics.devices = {
            "eth0": hardware("eth0", 6, "0000:18:00.0", stats=KERNEL),
            "eth1": hardware("eth1", 5, stats=KERNEL),
        }
        nics.counts = {"eth0": MLX5, "eth1": raised(errno.EOPNOTSUPP)}
        found = values_of((await source.read()).tables)
    assert (found["eth0"]["receive_bytes_total"], found["eth1"]["receive_bytes_total"]) == (2**63 + 1, 101)


async def test_devices_are_added_removed_and_renamed(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    async with opened(nics) as source:
        assert values_of((await source.read()).tables).keys() == {"eth2", ("eth2", "3")}
        nics.add(hardware("eth3", 6), statistics={"tx_bytes_phy": 3})
        assert values_of((await source.read()).tables).keys() == {"eth2", ("eth2", "3"), "eth3"}
        nics.add(hardware("rail0", 5), statistics=MLX5)
        del nics.devices["eth2"]
        assert values_of((await source.read()).tables).keys() == {"rail0", ("rail0", "3"), "eth3"}
        assert "eth2" in nics.forgotten
        nics.devices.clear()
        assert (await source.read()).tables == []


async def test_pfc_moved_to_another_priority_changes_the_statistics(nics):
    before = {"rx_bytes_phy": 5, "rx_prio3_pause": 100, "tx_prio3_pause": 200}
    nics.add(hardware("eth2", 5), statistics=before)
    async with opened(nics) as source:
        found = values_of((await source.read()).tables)
        assert found["eth2", "3"] == {"receive_pfc_frames_total": 100, "transmit_pfc_frames_total": 200}
        nics.counts["eth2"] = {"tx_prio4_pause": 7, "rx_bytes_phy": 6, "rx_prio4_pause": 8}
        found = values_of((await source.read()).tables)
        assert found["eth2", "4"] == {"receive_pfc_frames_total": 8, "transmit_pfc_frames_total": 7}
        assert ("eth2", "3") not in found
        assert found["eth2"]["receive_bytes_total"] == 6
        nics.counts["eth2"] = {"rx_bytes_phy": 7}
        found = values_of((await source.read()).tables)
        assert found.keys() == {"eth2"}


# Rails.


async def test_rails_are_numbered_by_pci_address_among_devices_of_one_kind(nics, tmp_path):
    devices = {
        "eth9": ("0000:19:00.0", "0x1021"),
        "eth1": ("0000:c0:00.0", "0x1021"),
        "eth5": ("0000:5e:00.0", "0x1021"),
        "mgmt": ("0000:04:00.0", "0x101d"),
    }
    for place, (name, (pci, model)) in enumerate(devices.items()):
        pci_function(tmp_path, name, device=model)
        nics.add(hardware(name, place + 2, pci))
    nics.add(hardware("plain", 20, "0000:01:00.0"), driver="r8169")
    async with opened(nics, tmp_path, rails={"eth5": "7", "plain": "x"}) as source:
        (rows, *others) = (await source.read()).tables
    found = values_of([rows, *others])
    rails = {name: found[name]["info"]["rail"] for name in found}
    assert rails == {"eth9": "0", "eth5": "7", "eth1": "2", "mgmt": "0", "plain": "x"}
    kinds = dict(zip([key[0] for key in rows.rows.keys], rows.kinds, strict=True))
    assert kinds == {
        "eth9": "mlx5_core 15b3:1021",
        "eth1": "mlx5_core 15b3:1021",
        "eth5": "mlx5_core 15b3:1021",
        "mgmt": "mlx5_core 15b3:101d",
    }
    assert others[0].kinds == [None]


# Events.


async def send_events(source, nics, *events):
    """Send events and return whether the source requests a read."""
    source.changed.clear()
    nics.send(*events)
    async with asyncio.timeout(LONG):
        while nics.waiting:  # noqa: ASYNC110  # the loop takes them
            await asyncio.sleep(0)
    return source.changed.is_set()


async def test_event_of_a_selected_link_requests_a_read(nics):
    eth2 = hardware("eth2", 5)
    nics.add(eth2)
    async with opened(nics, exclude=("eth9",)) as source:
        await source.read()
        bare = NetworkLink(5, "eth2")  # events carry few attributes
        assert await send_events(source, nics, LinkEvent("changed", bare))
        assert await send_events(source, nics, LinkEvent("deleted", bare))
        assert await send_events(source, nics, LinkEvent("changed", hardware("eth7", 30)))
        assert await send_events(source, nics, LinkEvent("overrun", None))
        for other in (*OTHERS, hardware("eth9", 31)):
            assert not await send_events(source, nics, LinkEvent("changed", other))
        assert await send_events(source, nics, LinkEvent("changed", OTHERS[0]), LinkEvent("changed", eth2))
    nics.send(LinkEvent("changed", eth2))
    await asyncio.sleep(0)
    assert nics.waiting, "no events are received after the close"


async def test_close_is_idempotent(nics):
    async with opened(nics) as source:
        await source.close()
        assert nics.closed == 0
        await source.applies()
        await source.close()
    assert (nics.closed, nics.opened) == (1, 1)


# The kernel of this machine.


@pytest.fixture
def veth(program):
    """Return the name of a veth device, and the path of `ip`."""
    ip, name = program("ip"), f"t{os.getpid()}"
    made = subprocess.run([ip, "link", "add", name, "type", "veth"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs the right to make network devices")
    yield name, ip
    subprocess.run([ip, "link", "delete", name], check=True)


async def test_kernel_event_of_a_selected_link_requests_a_read(veth, monkeypatch):
    name, ip = veth
    host = Host("", Path("/sys"), Path("/proc"))
    ours, others = NicSource(NicOptions(), host, KernelNic), NicSource(NicOptions(), host, KernelNic)
    monkeypatch.setattr(ours, "_is_selected", lambda link: link.name == name)
    try:
        await others.applies()
        assert await ours.applies()
        assert not ours.changed.is_set()
        await asyncio.to_thread(subprocess.run, [ip, "link", "set", name, "mtu", "1400"], check=True)
        async with asyncio.timeout(LONG):
            await ours.changed.wait()
        assert values_of((await ours.read()).tables)[name]["mtu_bytes"] == 1400
        assert not others.changed.is_set()
    finally:
        await ours.close()
        await others.close()


def hardware_here():
    return [path.parent.name for path in sorted(Path("/sys/class/net").glob("*/device"))]


async def test_devices_of_this_machine_match_sysfs():
    names = hardware_here()
    if not names:
        pytest.skip("needs a network device with hardware behind it")
    options = NicOptions(keep=("*",))
    source = NicSource(options, Host(socket.gethostname(), Path("/sys"), Path("/proc")), KernelNic)
    before, after = {}, {}

    def read_sysfs(into):
        for name in names:
            folder = Path("/sys/class/net") / name
            for ending, file in nic_origins.KERNEL.items():
                into[name, ending] = int((folder / "statistics" / file).read_text())

    try:
        assert await source.applies()
        read_sysfs(before)
        reading = await source.read()
        read_sysfs(after)
    finally:
        await source.close()
    assert reading.failures == []
    found = values_of(reading.tables)
    assert set(names) <= found.keys()
    for (name, ending), value in before.items():
        assert value <= found[name][ending] <= after[name, ending]
    for name in names:
        folder = Path("/sys/class/net") / name
        row = found[name]
        assert row["mtu_bytes"] == int((folder / "mtu").read_text())
        assert row["info"]["mac"] == (folder / "address").read_text().strip()
        assert row["info"]["driver"] == (folder / "device" / "driver").resolve().name
        assert row["link_up"] == int((folder / "operstate").read_text().strip() in {"up", "unknown"})
        assert row["carrier_changes_total"] == int((folder / "carrier_changes").read_text())


async def test_ratio_above_one_is_absent(nics, tmp_path):
    pci_function(tmp_path, "eth2")
    nics.add(hardware("eth2", 2), statistics={"outbound_pci_stalled_rd": 101, "outbound_pci_stalled_wr": 100})
    async with opened(nics, tmp_path) as source:
        found = values_of((await source.read()).tables)["eth2"]
    assert (found.get("pci_read_stalled_ratio"), found["pci_write_stalled_ratio"]) == (None, 1.0)


# InfiniBand.

OVER_INFINIBAND = "mlx5_core[ib_ipoib]"
HEALTH = {
    "rx_pcs_symbol_err_phy": 31,
    "rx_corrected_bits_phy": 32,
    "link_down_events_phy": 33,
    "total_success_recovery_phy": 34,
    "outbound_pci_buffer_overflow": 35,
    "outbound_pci_stalled_wr": 36,
    "module_high_temp": 37,
}
OF_TRAFFIC = re.compile(
    r"((receive|transmit)_.*|rdma_.*|fcs_errors_total|symbol_errors_total|out_of_buffer_total|.*(pause|pfc|priority).*)"
)
"""Endings of traffic, which an InfiniBand port has as an RDMA port."""


def traffic_endings(row):
    return {ending for ending in row if OF_TRAFFIC.fullmatch(ending)}


@pytest.mark.parametrize("driver", [OVER_INFINIBAND, "ib_ipoib", "mlx5_core", None])
@pytest.mark.parametrize("virtual", [False, True])
async def test_ipoib_device_has_no_port_traffic(nics, tmp_path, driver, virtual):
    """IPoIB traffic is a part of what the RDMA port counts: a sum of bytes by host must not count it twice."""
    infiniband = {"hardware": 32, "stats": KERNEL, "carrier_down_count": 5}
    for name, ifindex, kind in (("ib0", 4, "ipoib"), ("ib1", 6, "")):  # the second does not report its kind
        pci_function(tmp_path, name, virtual=virtual)
        nics.add(hardware(name, ifindex, kind=kind, **infiniband), driver=driver, statistics=MLX5 | HEALTH, speed=None)
        nics.more["standard_statistics", name] = {"OctetsReceivedOK": 9, "FrameCheckSequenceErrors": 9}
        nics.more["pause", name] = Pause(receive_frames=9, transmit_frames=9)
    nics.add(hardware("ib0.8001", 7, kind="ipoib", lower=4, **infiniband), driver=driver)
    nics.add(hardware("eth2", 5), statistics=MLX5)
    for enabled in (False, True):
        async with opened(nics, tmp_path, virtual_functions=enabled) as source:
            reading = await source.read()
        assert reading.failures == []
        found = RateCalculator()(reading)
        assert found.keys() == {"ib0", "ib1", "eth2", ("eth2", "3")}
        assert len(traffic_endings(found["eth2"])) > 5
        for name in ("ib0", "ib1"):
            assert traffic_endings(found[name]) == set()
            has_statistics = driver == OVER_INFINIBAND and not virtual
            assert ("module_overheats_total" in found[name]) is has_statistics, (
                "of a function they are 0, which they are not"
            )
            assert found[name]["info"]["traffic"] == ""
            assert found[name]["kernel_receive_bytes_total"] == 101
            assert found[name]["link_up"] == 1


async def test_infiniband_port_has_link_pcie_and_module_counters(nics):
    nics.add(
        hardware("ib0", 4, hardware=32, kind="ipoib", mtu=4092, carrier_changes=2, stats=KERNEL),
        driver=OVER_INFINIBAND,
        statistics=MLX5 | HEALTH,
    )
    async with opened(nics) as source:
        reading = await source.read()
    assert reading.failures == []
    row = values_of(reading.tables)["ib0"]
    assert row.pop("info")["driver"] == OVER_INFINIBAND
    assert row == {
        "pcs_symbol_errors_total": 31,
        "fec_corrected_errors_total": 32,
        "link_down_total": 33,
        "link_error_recovery_total": 34,
        "pci_buffer_overflows_total": 35,
        "pci_write_stalled_ratio": 0.36,
        "module_overheats_total": 37,
        "link_speed_bytes_per_second": 50e9,
        "link_up": 1,
        "mtu_bytes": 4092,
        "carrier_changes_total": 2,
        **{ending: KERNEL[name] for ending, name in nic_origins.KERNEL.items()},
    }


async def test_infiniband_port_of_ib_ipoib_has_its_link_only(nics):
    nics.add(
        hardware("ib0", 4, hardware=32, kind="ipoib", stats=KERNEL, carrier_down_count=5),
        driver="ib_ipoib",
        statistics=HEALTH | {"rx_packets": 1},
    )
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["ib0"]
    assert row.keys() == {"info", "link_up", "link_down_total", "link_speed_bytes_per_second", *nic_origins.KERNEL}
    assert row["link_down_total"] == 5
    assert "statistics" not in nics.asked("ib0")


@pytest.mark.parametrize(("what", "driver"), [("drivers", ""), ("counts", OVER_INFINIBAND)])
async def test_infiniband_port_that_fails_has_no_ipoib_bytes(nics, tmp_path, what, driver):
    """sysfs has the card's driver, which may not be the one of the device: until that is known, nothing is exported."""
    pci_function(tmp_path, "ib0")
    link = hardware("ib0", 4, hardware=32, kind="ipoib", stats=KERNEL, carrier_down_count=5)
    nics.add(link, driver=OVER_INFINIBAND, statistics=MLX5)
    getattr(nics, what)["ib0"] = raised(errno.EIO)
    async with opened(nics, tmp_path) as source:
        reading = await source.read()
    assert reasons(reading) == [("ib0", "eio")]
    row = values_of(reading.tables)["ib0"]
    assert traffic_endings(row) == set()
    assert "link_down_total" not in row
    assert (row["kernel_receive_bytes_total"], row["info"]["driver"], row["info"]["traffic"]) == (101, driver, "")


async def test_infiniband_ports_are_siblings_with_rails(nics, tmp_path):
    for place in range(8):
        name, pci = f"ib{place}", f"0000:{0xF - place:02x}:00.0"
        pci_function(tmp_path, name)
        nics.add(hardware(name, 10 + place, pci, hardware=32, kind="ipoib"), driver=OVER_INFINIBAND, statistics=HEALTH)
    nics.speeds["ib3"] = LinkSettings(SPEED // 2)
    async with opened(nics, tmp_path) as source:
        (table,) = (await source.read()).tables
    found = values_of([table])
    assert [found[f"ib{place}"]["info"]["rail"] for place in range(8)] == list("76543210")
    assert set(table.kinds) == {f"{OVER_INFINIBAND} 15b3:1021"}
    _, (judged,) = links.step(None, None, None, table)
    degraded = {
        key[0]: value for key, value in zip(table.rows.keys, judged.columns["link_degraded"].values, strict=True)
    }
    assert degraded == {f"ib{place}": int(place == 3) for place in range(8)}


async def test_infiniband_port_exports_a_subset_of_an_ethernet_port(nics):
    """The series budget of a node is computed with eight Ethernet ports."""
    every = dict.fromkeys((name for one in DRIVERS["mlx5_core"].port for name in one.names), 1)
    nics.add(hardware("ib0", 4, hardware=32, kind="ipoib", stats=KERNEL), driver=OVER_INFINIBAND, statistics=every)
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=every)
    async with opened(nics, keep=()) as source:
        found = RateCalculator()(await source.read())
    shown = {
        name: {ending for ending in found[name] if not nic_metrics.SCHEMA.metrics[ending].detail}
        for name in ("ib0", "eth2")
    }
    assert shown["ib0"] < shown["eth2"]
    assert shown["ib0"] == {
        "info",
        "link_up",
        "link_speed_bytes_per_second",
        "link_down_total",
        "pci_buffer_overflows_total",
        "kernel_receive_bytes_total",
        "kernel_transmit_bytes_total",
        "kernel_receive_discards_total",
        "kernel_transmit_discards_total",
        "resets_total",
    }
