"""RDMA ports from files: a tree of made-up devices of every kind, and every way in which its files can fail."""

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from exporter.core.source import SourceError
from exporter.linux import cached_file
from exporter.linux.cached_file import parse_counter
from exporter.linux.infiniband import (
    parse_guid,
    parse_netdev_speed,
    parse_numbered,
    parse_rate,
)
from exporter.meaning.ports import rates
from exporter.sources.rdma import (
    device as rdma_device,
)
from exporter.sources.rdma import (
    queue_pairs,
)
from exporter.sources.rdma import (
    source as rdma,
)
from exporter.sources.rdma.counter_files import PMA, counter_alternatives
from exporter.sources.rdma.drivers.mlx5 import MLX5
from exporter.sources.rdma.metrics import SCHEMA
from tests.helpers.paths import FIXTURES
from tests.helpers.rdma_trees import (
    OPENED,
    Files,
    make,
    netdev,
    opened,
    port_file,
    ports_of,
)

LONG = 60.0
TREE = FIXTURES / "sysfs"


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(rdma, rdma_device, queue_pairs)


@pytest.fixture
def files(monkeypatch):
    return Files(monkeypatch)


@pytest.fixture
def tree(tmp_path):
    copy = tmp_path / "sys"
    shutil.copytree(TREE, copy, symlinks=True)
    return copy


PORTS = {
    ("bnxt_re0", "1"),
    ("i40iw0", "1"),
    ("mlx4_0", "1"),
    ("mlx4_0", "2"),
    ("mlx5_0", "1"),
    ("mlx5_1", "1"),
    ("mlx5_2", "1"),
    ("mlx5_3", "1"),
    ("rdmap7s0", "1"),
}


# Parsers.

LANES = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
"""Gb/s of one lane as the kernel prints it."""


@pytest.mark.parametrize("width", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("generation", LANES)
def test_rates_of_all_generations_and_widths(generation, width):
    speed = LANES[generation] * width
    rate = parse_rate(f"{speed:g} Gb/sec ({width}X {generation})\n".encode())
    assert rate == (speed * 125_000_000, width, generation)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (b"2.5 Gb/sec (1X SDR)\n", (312_500_000, 1, "SDR")),
        (b"100 Gb/sec (2X HDR)", (12_500_000_000, 2, "HDR")),
        (b"100 Gb/sec (2X HDR100)", (12_500_000_000, 2, "HDR100")),
        (b"200 Gb/sec (2X NDR)", (25_000_000_000, 2, "NDR")),
        (b"800 Gb/sec (4X XDR)", (100_000_000_000, 4, "XDR")),
        (b"600 Gb/sec (12X HDR)", (75_000_000_000, 12, "HDR")),
        (b"10 Gb/sec (4X)\n", (1_250_000_000, 4, "")),
        (b"10 Gb/sec", (1_250_000_000, None, "")),
    ],
)
def test_rates_seen_in_practice(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"0 Gb/sec (4X NDR)",
        b"0 GB/sec",
        b"-1 Gb/sec (4X NDR)",
        b"garbage",
        b"\xff\xfe",
        b"400",
        b"1e3 Gb/sec (4X NDR)",
    ],
)
def test_not_a_rate(text):
    assert parse_rate(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"4: ACTIVE\n", 4), (b"5: LinkUp", 5), (b"1: DOWN", 1), (b"0: NOP", 0), (b"x", None), (b"", None)],
)
def test_parse_numbered(text, number):
    assert parse_numbered(text) == number


@pytest.mark.parametrize(
    ("text", "guid"),
    [
        (b"0200:C0FF:fe00:00a1\n", "0200c0fffe0000a1"),
        (b"0000:0000:0000:0000", None),
        (b"0200:c0ff:fe00", None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_parse_guid(text, guid):
    assert parse_guid(text) == guid


def test_parse_counter():
    assert parse_counter(b"18446744073709551614\n") == 2**64 - 2
    assert parse_counter(b"18446744073709551615\n") is None  # firmware does not have the counter
    assert parse_counter(b"0") == 0
    assert parse_counter(b"N/A (no PMA)\n") is None
    for text in (b"", b"-1", b"+1", b"1_000", b"0x10", b"1.5", b"9" * 64, b"\xff\xfe", "\u0663".encode(), b"1 2"):
        with pytest.raises(ValueError, match="not a number"):
            parse_counter(text)


# The whole tree.


async def test_every_port_of_the_tree_is_read_without_failures():
    async with opened(TREE) as source:
        assert await source.applies()
        found, failures = await ports_of(source)
    assert found.keys() == PORTS
    assert failures == []


async def test_an_infiniband_port():
    async with opened(TREE) as source:
        port = (await ports_of(source))[0]["mlx5_0", "1"]
    assert port.pop("info") == {
        "host": "gpu-1",
        "rail": "1",
        "pci": "0000:c1:00.0",
        "netdev": "",
        "mac": "",
        "node_guid": "0200c0fffe0000a1",
        "link_layer": "InfiniBand",
        "driver": "mlx5_core",
        "hca_type": "MT4129",
        "board_id": "TST_0000000001",
        "firmware": "28.99.1001",
    }
    expected = {
        "receive_bytes_total": 1_000_000_000_004,
        "transmit_bytes_total": 36_028_797_018_963_972,
        "receive_packets_total": 700_000_003,
        "transmit_packets_total": 800_000_005,
        "excessive_buffer_overrun_errors_total": 15,
        "link_down_total": 255,
        "transmit_wait_ticks_total": 4_294_967_295,
        "symbol_errors_total": 65_535,
        "out_of_sequence_total": 41,
        "cnp_sent_total": 4_294_967_296,
        "link_up": 1,
        "link_lanes": 4,
        "link_speed_bytes_per_second": 50_000_000_000,
        "port_state": 4,
        "port_physical_state": 5,
    }
    assert {ending: port[ending] for ending in expected} == expected
    assert all(value == 0 for ending, value in port.items() if ending not in expected)
    assert len(port) == 21 + 10 + 5
    assert not any("lifespan" in ending for ending in port)


async def test_port_that_is_down_has_counters_but_neither_speed_nor_lanes():
    async with opened(TREE) as source:
        port = (await ports_of(source))[0]["mlx5_1", "1"]
    assert (port["link_up"], port["port_state"], port["port_physical_state"], port["link_down_total"]) == (0, 1, 2, 7)
    assert not port.keys() & {"link_speed_bytes_per_second", "link_lanes"}


async def test_roce_port_has_congestion_counters_and_its_uplink():
    async with opened(TREE) as source:
        found, _ = await ports_of(source)
    port = found["mlx5_2", "1"]
    assert (port["receive_bytes_total"], port["transmit_bytes_total"]) == (52, 68)
    assert (port["ecn_marked_packets_total"], port["cnp_sent_total"], port["cnp_handled_total"]) == (1001, 501, 251)
    assert (port["info"]["netdev"], port["info"]["mac"]) == ("ens2f0np0", "02:00:00:00:00:a3")
    assert port["link_speed_bytes_per_second"] == 25_000_000_000


async def test_placeholder_rate_is_not_a_speed():
    async with opened(TREE) as source:
        found, _ = await ports_of(source)
    assert found["mlx5_3", "1"]["link_up"] == 1
    assert "link_speed_bytes_per_second" not in found["mlx5_3", "1"]
    assert found["mlx4_0", "1"]["link_speed_bytes_per_second"] == 5_000_000_000  # a real QDR link of InfiniBand
    assert found["mlx5_3", "1"]["info"]["node_guid"] == ""


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        (b"400000\n", 50_000_000_000),
        (b"40000", 5_000_000_000),
        (b"1", 125_000),
        (b"-1\n", None),
        (b"65535\n", None),
        (b"4294967295\n", None),
        (b"0", None),
        (b"10000000", None),
        (b"", None),
        (b"\xff", None),
        ("\u0661".encode(), None),
    ],
)
def test_parse_netdev_speed(text, speed):
    assert parse_netdev_speed(text) == speed


PLACEHOLDER = "40 Gb/sec (4X QDR)"


def ethernet_port(tree, device, driver, rate=PLACEHOLDER, *, state="4: ACTIVE", speed=None):
    """Create a RoCE port with its network device, which has a file `speed` if one is given."""
    make(tree, device, pma={"port_rcv_data": 1}, driver=driver)
    for name, text in {"rate": rate, "state": state}.items():
        port_file(tree, device, name).write_text(f"{text}\n")
    netdev(tree, "eth1")
    if speed is not None:
        (tree / "class" / "net" / "eth1" / "speed").write_text(f"{speed}\n")


async def speed_of(source, device):
    found, failures = await ports_of(source)
    assert failures == []
    port = found[device, "1"]
    return port.get("link_speed_bytes_per_second"), port.get("link_lanes")


@pytest.mark.parametrize("driver", ["bnxt_en", "mlx4_core", "ice", "ionic", "unheard_of"])
async def test_40_gigabits_of_other_drivers_than_mlx5_is_a_speed(tmp_path, driver):
    ethernet_port(tmp_path, "dev0", driver, speed=100_000)
    async with opened(tmp_path) as source:
        assert await speed_of(source, "dev0") == (5_000_000_000, 4)


async def test_40_gigabits_of_mlx5_on_infiniband_is_a_speed(tmp_path):
    make(tmp_path, "mlx5_0", pma={"port_rcv_data": 1}, driver="mlx5_core", layer="InfiniBand")
    port_file(tmp_path, "mlx5_0", "rate").write_text(f"{PLACEHOLDER}\n")
    async with opened(tmp_path) as source:
        assert await speed_of(source, "mlx5_0") == (5_000_000_000, 4)


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(100_000, 12_500_000_000), (40_000, 5_000_000_000), (-1, None), (65535, None), (4294967295, None), (None, None)],
)
@pytest.mark.parametrize("driver", ["mlx5_core", ""])
async def test_placeholder_rate_of_mlx5_is_replaced_by_the_netdev_speed(tmp_path, speed, expected, driver):
    """A virtual function of Azure shows 40 Gb/s for 100; without a driver the device is recognised by its name."""
    ethernet_port(tmp_path, "mlx5_0", "mlx5_core", speed=speed)
    if not driver:
        (tmp_path / "devices" / "pci0000:20" / "0000:21:00.0" / "uevent").unlink()
    async with opened(tmp_path) as source:
        assert await speed_of(source, "mlx5_0") == (expected, None)


async def test_netdev_speed_is_not_read_if_mlx5_shows_the_rate(tmp_path):
    ethernet_port(tmp_path, "mlx5_0", "mlx5_core", "100 Gb/sec (4X EDR)", speed=25_000)
    async with opened(tmp_path) as source:
        with OPENED.watch() as seen:
            assert await speed_of(source, "mlx5_0") == (12_500_000_000, 4)
    assert not [path for path in seen.paths if path.endswith("/speed")]


async def test_netdev_speed_is_read_once_a_minute(tmp_path, clock):
    ethernet_port(tmp_path, "mlx5_0", "mlx5_core", speed=100_000)
    async with opened(tmp_path) as source:
        assert await speed_of(source, "mlx5_0") == (12_500_000_000, None)
        (tmp_path / "class" / "net" / "eth1" / "speed").write_text("50000\n")
        port_file(tmp_path, "mlx5_0", "phys_state").write_text("6: LinkErrorRecovery\n")  # the link is parsed again
        with OPENED.watch() as seen:
            for _ in range(11):
                clock.now += 5
                assert await speed_of(source, "mlx5_0") == (12_500_000_000, None)
        assert not [path for path in seen.paths if path.endswith("/speed")]
        clock.now += 5
        assert await speed_of(source, "mlx5_0") == (6_250_000_000, None)


async def test_netdev_speed_is_read_again_after_the_link_was_down(tmp_path):
    ethernet_port(tmp_path, "mlx5_0", "mlx5_core", speed=100_000)
    async with opened(tmp_path) as source:
        assert await speed_of(source, "mlx5_0") == (12_500_000_000, None)
        port_file(tmp_path, "mlx5_0", "state").write_text("1: DOWN\n")
        assert await speed_of(source, "mlx5_0") == (None, None)
        (tmp_path / "class" / "net" / "eth1" / "speed").write_text("50000\n")
        port_file(tmp_path, "mlx5_0", "state").write_text("4: ACTIVE\n")
        assert await speed_of(source, "mlx5_0") == (6_250_000_000, None)


async def test_both_ports_of_one_device():
    async with opened(TREE) as source:
        found, _ = await ports_of(source)
    assert (found["mlx4_0", "1"]["receive_bytes_total"], found["mlx4_0", "2"]["receive_bytes_total"]) == (84, 88)
    assert (found["mlx4_0", "1"]["link_down_total"], found["mlx4_0", "2"]["link_down_total"]) == (1, 2)
    assert found["mlx4_0", "2"]["link_speed_bytes_per_second"] == 2_500_000_000


async def test_device_without_counters_has_no_zeros():
    async with opened(TREE) as source:
        port = (await ports_of(source))[0]["i40iw0", "1"]
    assert port.keys() == {
        "info",
        "link_up",
        "link_speed_bytes_per_second",
        "link_lanes",
        "port_state",
        "port_physical_state",
    }


@pytest.mark.parametrize("width", [1, 2, 4, 8, 12])
async def test_data_counters_are_words_of_four_octets_at_any_width(tree, width):
    """36298026860928 words are 145192107443712 bytes; other exporters multiplied by the lanes too."""
    port_file(tree, "mlx5_0", "rate").write_text(f"{width * 100} Gb/sec ({width}X NDR)\n")
    port_file(tree, "mlx5_0", "counters/port_xmit_data").write_text("36298026860928\n")
    async with opened(tree) as source:
        assert (await ports_of(source))[0]["mlx5_0", "1"]["transmit_bytes_total"] == 145_192_107_443_712


async def test_saturated_counters_are_reported_and_do_not_wrap():
    async with opened(TREE) as source:
        tables = (await source.read()).tables
    stuck = {key for table in tables for made in rates.step(None, table)[1][1:] for key in made.rows.keys}
    assert stuck == {
        ("mlx5_0", "1", "excessive_buffer_overrun_errors"),
        ("mlx5_0", "1", "link_down"),
        ("mlx5_0", "1", "transmit_wait_ticks"),
        ("mlx5_0", "1", "symbol_errors"),
    }


def test_counter_widths_are_those_of_the_kernel():
    sizes = {
        choice.files[0].partition("/")[2]: (choice.spec.width, choice.spec.saturates)
        for ways in counter_alternatives(MLX5.port, PMA)
        for choice in ways
    }
    bits = {
        4: "local_link_integrity_errors excessive_buffer_overrun_errors",
        8: "link_error_recovery link_downed port_xmit_constraint_errors port_rcv_constraint_errors",
        16: "symbol_error port_rcv_errors port_rcv_remote_physical_errors port_rcv_switch_relay_errors"
        " port_xmit_discards VL15_dropped",
    }
    for width, names in bits.items():
        for name in names.split():
            assert sizes[name] == (width, True)
    assert sizes["port_xmit_wait"] == (32, True)
    assert sizes["port_xmit_data"] == sizes["np_cnp_sent"] == sizes["rx_icrc_encapsulated"] == (64, False)
    assert sizes["out_of_sequence"] == sizes["local_ack_timeout_err"] == (32, False)
    assert "lifespan" not in sizes


async def test_rails_follow_the_order_of_pci_addresses_within_a_kind():
    async with opened(TREE) as source:
        found, _ = await ports_of(source)
    rails = {key: row["info"]["rail"] for key, row in found.items()}
    assert (rails["mlx5_1", "1"], rails["mlx5_0", "1"]) == ("0", "1")  # 41:00.0 sorts before c1:00.0
    assert (rails["mlx5_2", "1"], rails["mlx5_3", "1"]) == ("0", "0")  # one chip on two boards: two kinds
    assert (rails["mlx4_0", "1"], rails["mlx4_0", "2"]) == ("0", "1")


async def test_rails_by_configuration():
    async with opened(TREE, rails={"mlx5_0": "a", "mlx5_1": "b"}) as source:
        found, _ = await ports_of(source)
    assert [found[device, "1"]["info"]["rail"] for device in ("mlx5_0", "mlx5_1", "mlx5_2")] == ["a", "b", "0"]


async def test_host_without_rdma(tmp_path):
    async with opened(tmp_path) as source:
        assert not await source.applies()
        assert await ports_of(source) == ({}, [])
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "infiniband").write_text("a file")
    async with opened(tmp_path) as source:
        assert await source.applies()  # a listing error is a failure, not the absence of devices
        with pytest.raises(SourceError, match="Not a directory") as caught:
            await source.read()
        assert caught.value.reason == "unreadable"


# Excluded devices are never opened, and nothing is ever written.


@pytest.mark.parametrize("options", [{"exclude": ("mlx5_[01]",)}, {"include": ("mlx5_2", "mlx4*")}])
async def test_excluded_devices_are_never_opened(options):
    async with opened(TREE, **options) as source:
        with OPENED.watch() as seen:
            assert await source.applies()
            found, failures = await ports_of(source)
    assert failures == []
    assert ("mlx5_0", "1") not in found
    assert ("mlx5_2", "1") in found
    assert any("mlx5_2" in path for path in seen.paths)
    assert not any("mlx5_0" in path or "mlx5_1" in path for path in seen.paths)


async def test_source_does_not_apply_if_all_devices_are_excluded():
    async with opened(TREE, exclude=("*",)) as source:
        assert not await source.applies()


async def test_files_are_opened_read_only_and_lifespan_never():
    async with opened(TREE) as source:
        with OPENED.watch() as seen:
            await source.read()
    assert len(seen.flags) > 100
    assert {flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC) for flags in seen.flags} == {os.O_RDONLY}
    assert not any("lifespan" in path for path in seen.paths)


# One bad file does not affect anything else.


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (errno.EINVAL, "einval"),
        (errno.ENODEV, "enodev"),
        (errno.EIO, "eio"),
        (errno.ETIMEDOUT, "etimedout"),
    ],
)
@pytest.mark.parametrize("path", ["counters/port_rcv_data", "rate", "hw_counters/out_of_sequence"])
async def test_unreadable_file_affects_only_its_own_metrics(files, answer, reason, path):
    async with opened(TREE) as source:
        before, _ = await ports_of(source)
        files.faults["read", f"mlx5_0/ports/1/{path}"] = answer
        found, failures = await ports_of(source)
    assert failures == [("mlx5_0", reason)]
    lost = before["mlx5_0", "1"].keys() - found["mlx5_0", "1"].keys()
    assert (
        lost
        == {
            "rate": {"link_speed_bytes_per_second", "link_lanes"},
            "counters/port_rcv_data": {"receive_bytes_total"},
            "hw_counters/out_of_sequence": {"out_of_sequence_total"},
        }[path]
    )
    for key in lost:
        del before["mlx5_0", "1"][key]
    assert found == before


async def test_file_without_permission_fails_at_each_read_until_it_can_be_opened(files):
    files.faults["open", "mlx5_0/ports/1/counters/port_rcv_data"] = errno.EACCES
    async with opened(TREE) as source:
        for _ in range(3):
            found, failures = await ports_of(source)
            assert failures == [("mlx5_0", "eacces")]
            assert "receive_bytes_total" not in found["mlx5_0", "1"]
            assert found["mlx5_2", "1"]["receive_bytes_total"] == 52
        files.faults.clear()
        found, failures = await ports_of(source)
    assert (failures, found["mlx5_0", "1"]["receive_bytes_total"]) == ([], 1_000_000_000_004)


def fifo(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def dangling(path):
    path.symlink_to("nowhere")


def writes(content):
    def write(path):
        path.write_bytes(content)

    return write


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fifo, "espipe"),
        (folder, "eisdir"),
        (dangling, None),
        (writes(b"\xff\xfe\x80"), "malformed"),
        (writes(b"1" * 2**20), "malformed"),
        (writes(b"x" * 2**20), "malformed"),
        (writes(b""), "malformed"),
        (writes(b"-5\n"), "malformed"),
    ],
)
async def test_counter_path_that_is_not_a_counter_file(tree, make, reason):
    path = port_file(tree, "mlx5_0", "counters/port_rcv_data")
    path.unlink()
    make(path)
    async with opened(TREE) as source:
        before, _ = await ports_of(source)
    async with opened(tree) as source:
        for _ in range(2):
            found, failures = await ports_of(source)
            assert failures == ([("mlx5_0", reason)] if reason else [])
            del before["mlx5_0", "1"]["receive_bytes_total"]
            assert found == before
            before["mlx5_0", "1"]["receive_bytes_total"] = 0


@pytest.mark.parametrize("content", [b"-5\n", b"9" * 64, b"x\n", b"", b"18446744073709551616\n"])
async def test_counter_file_that_becomes_malformed(tree, content):
    path = port_file(tree, "mlx5_0", "counters/port_rcv_data")
    async with opened(tree) as source:
        before, _ = await ports_of(source)
        await source.read()
        path.write_bytes(content)
        found, failures = await ports_of(source)
        assert failures == [("mlx5_0", "malformed")]
        assert before["mlx5_0", "1"].keys() - found["mlx5_0", "1"].keys() == {"receive_bytes_total"}
        path.write_bytes(b"250000000001\n")
        assert await ports_of(source) == (before, [])


@pytest.mark.parametrize("name", ["node_guid", "hca_type", "fw_ver", "board_id", "ports/1/link_layer"])
@pytest.mark.parametrize("make", [fifo, folder, dangling, writes(b"\xff\xfe"), writes(b"x" * 2**20)])
async def test_malformed_attribute_loses_no_port(tree, name, make):
    path = tree / "class" / "infiniband" / "mlx5_0" / name
    path.unlink()
    make(path)
    async with opened(tree) as source:
        found, failures = await ports_of(source)
    assert found.keys() == PORTS
    assert failures == []
    assert found["mlx5_0", "1"]["receive_bytes_total"] == 1_000_000_000_004


async def test_malformed_devices_do_not_affect_others(tree):
    devices = tree / "class" / "infiniband"
    (devices / "a_file").write_text("x")
    (devices / "dangling").symlink_to("nowhere")
    (devices / "no_ports").mkdir()
    (devices / "empty_ports" / "ports").mkdir(parents=True)
    (devices / "odd_ports" / "ports" / "x").mkdir(parents=True)
    async with opened(tree) as source:
        found, failures = await ports_of(source)
    assert found.keys() == PORTS
    assert failures == [("a_file", "enotdir"), ("dangling", "enoent"), ("no_ports", "enoent")]


# Suspended files; devices that are added and removed.

REFUSED = "mlx5_0/ports/1/counters/port_rcv_data"


async def test_file_is_suspended_for_an_hour_after_three_consecutive_einval(files, clock):
    async with opened(TREE) as source:
        await source.read()
        files.faults["read", REFUSED] = errno.EINVAL
        for _ in range(3):
            assert (await ports_of(source))[1] == [("mlx5_0", "einval")]
        begun, tried = clock.now, files.count(REFUSED)
        for seconds in (0.0, 5.0, 61.0, 3599.9):  # also across rescans
            clock.now = begun + seconds
            assert (await ports_of(source))[1] == []
        assert files.count(REFUSED) == tried
        clock.now = begun + 3600.0
        assert (await ports_of(source))[1] == [("mlx5_0", "einval")]
        del files.faults["read", REFUSED]
        assert (await ports_of(source))[0]["mlx5_0", "1"]["receive_bytes_total"] == 1_000_000_000_004


async def test_einval_that_is_not_consecutive_does_not_suspend(files, clock):
    async with opened(TREE) as source:
        for fault in [errno.EINVAL, errno.EINVAL, None] * 3:
            files.faults = {("read", REFUSED): fault} if fault else {}
            assert (await ports_of(source))[1] == ([("mlx5_0", "einval")] if fault else [])


async def test_link_up_ends_a_suspension(files, clock, tree):
    async with opened(tree) as source:
        files.faults["read", REFUSED] = errno.EINVAL
        for _ in range(5):
            await source.read()
        files.faults.clear()
        assert "receive_bytes_total" not in (await ports_of(source))[0]["mlx5_0", "1"]
        state = port_file(tree, "mlx5_0", "state")
        state.write_text("1: DOWN\n")
        assert "receive_bytes_total" not in (await ports_of(source))[0]["mlx5_0", "1"]
        state.write_text("4: ACTIVE\n")
        assert (await ports_of(source))[0]["mlx5_0", "1"]["receive_bytes_total"] == 1_000_000_000_004


async def test_file_is_opened_again_after_enodev(files):
    async with opened(TREE) as source:
        await source.read()
        files.faults["read", REFUSED] = errno.ENODEV
        await source.read()
        files.faults.clear()
        files.opens.clear()
        found, failures = await ports_of(source)
        assert [path for path in files.opens if path.startswith(str(TREE))] == [
            str(port_file(TREE, "mlx5_0", "counters/port_rcv_data"))
        ]
    assert (found["mlx5_0", "1"]["receive_bytes_total"], failures) == (1_000_000_000_004, [])


async def test_files_stay_open_between_polls(files):
    async with opened(TREE) as source:
        await source.read()
        files.opens.clear()
        await source.read()
        assert not [path for path in files.opens if path.startswith(str(TREE))]


async def test_devices_vanish_reappear_and_are_renamed(tree):
    devices = tree / "class" / "infiniband"
    async with opened(tree) as source:
        await source.read()
        (devices / "mlx5_0").rename(tree / "away")
        found, failures = await ports_of(source)
        assert (found.keys(), failures) == (PORTS - {("mlx5_0", "1")}, [])
        (tree / "away").rename(devices / "ibp193s0")
        found, failures = await ports_of(source)
        assert (found.keys(), failures) == (PORTS - {("mlx5_0", "1")} | {("ibp193s0", "1")}, [])
        assert found["ibp193s0", "1"]["info"]["pci"] == "0000:c1:00.0"  # the address is the same
        (devices / "ibp193s0").rename(devices / "mlx5_0")
        assert (await ports_of(source))[0].keys() == PORTS


async def test_recreated_device_is_opened_again_with_a_new_epoch(tree, files, clock):
    device = tree / "class" / "infiniband" / "mlx5_0"

    def epoch(reading):
        return next(
            table.epochs[table.rows.index["mlx5_0", "1"]]
            for table in reading.tables
            if ("mlx5_0", "1") in table.rows.index
        )

    async with opened(tree) as source:
        files.faults["read", REFUSED] = errno.EINVAL
        for _ in range(4):
            first = epoch(await source.read())
        files.faults.clear()
        shutil.copytree(device, tree / "new", symlinks=True)
        device.rename(tree / "old")
        (tree / "new").rename(device)
        port_file(tree, "mlx5_0", "counters/port_rcv_data").write_text("2\n")
        (device / "fw_ver").write_text("2.0\n")
        found, failures = await ports_of(source)
        assert (found["mlx5_0", "1"]["receive_bytes_total"], failures) == (8, [])  # the suspension has ended too
        assert found["mlx5_0", "1"]["info"]["firmware"] == "2.0"
        assert epoch(await source.read()) != first


async def test_attributes_are_read_again_at_each_rescan(tree, clock):
    async with opened(tree) as source:
        await source.read()
        (tree / "class" / "infiniband" / "mlx5_0" / "fw_ver").write_text("29.0\n")
        port_file(tree, "i40iw0", "counters/port_rcv_data").write_text("9\n")
        port_file(tree, "i40iw0", "hw_counters").mkdir()
        port_file(tree, "i40iw0", "hw_counters/cnpSent").write_text("3\n")
        clock.now += rdma.RESCAN_SECONDS - 1
        assert (await ports_of(source))[0]["mlx5_0", "1"]["info"]["firmware"] == "28.99.1001"
        clock.now += 1
        found, _ = await ports_of(source)
        assert found["mlx5_0", "1"]["info"]["firmware"] == "29.0"
        assert found["i40iw0", "1"]["receive_bytes_total"] == 36
        assert found["i40iw0", "1"]["cnp_sent_total"] == 3


async def test_no_descriptor_leaks(tree, monkeypatch):
    monkeypatch.setattr(rdma, "RESCAN_SECONDS", 0.0)
    devices = tree / "class" / "infiniband"
    (devices / "no_ports").mkdir()
    port_file(tree, "mlx5_1", "rate").unlink()

    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    at_first = count()
    async with opened(tree) as source:
        await source.read()
        in_use = count()
        assert in_use > at_first + 100
        for turn in range(50):
            if turn % 5 == 0:
                (devices / "mlx5_0").rename(tree / "away")
                await source.read()
                (tree / "away").rename(devices / "mlx5_0")
            if turn % 5 == 2:  # re-created between two polls
                shutil.copytree(devices / "mlx5_0", tree / "new", symlinks=True)
                (devices / "mlx5_0").rename(tree / f"old{turn}")
                (tree / "new").rename(devices / "mlx5_0")
            await source.read()
        assert count() == in_use
    assert count() == at_first


async def test_refused_rate_is_suspended_until_the_link_comes_up(files, clock, tree):
    """`rate` of an unplugged QSFP, and of every mana port, is EINVAL: state and counters are exported all the same."""
    files.faults["read", "mlx5_0/ports/1/rate"] = errno.EINVAL
    state = port_file(tree, "mlx5_0", "state")
    async with opened(tree) as source:
        for _ in range(3):
            found, failures = await ports_of(source)
            assert failures == [("mlx5_0", "einval")]
            assert (found["mlx5_0", "1"]["link_up"], found["mlx5_0", "1"]["port_physical_state"]) == (1, 5)
            assert found["mlx5_0", "1"]["receive_bytes_total"] == 1_000_000_000_004
        assert (await ports_of(source))[1] == []
        tried = files.count("mlx5_0/ports/1/rate")
        files.faults.clear()
        state.write_text("1: DOWN\n")
        assert (await ports_of(source))[0]["mlx5_0", "1"]["link_up"] == 0
        assert files.count("mlx5_0/ports/1/rate") == tried
        state.write_text("4: ACTIVE\n")
        found, failures = await ports_of(source)
    assert (found["mlx5_0", "1"]["link_speed_bytes_per_second"], failures) == (50_000_000_000, [])


async def test_refused_state_is_never_suspended(files, clock):
    files.faults["read", "mlx5_0/ports/1/state"] = errno.EINVAL
    async with opened(TREE) as source:
        for _ in range(6):
            found, failures = await ports_of(source)
            assert failures == [("mlx5_0", "einval")]
            assert "link_up" not in found["mlx5_0", "1"]
        files.faults.clear()
        assert (await ports_of(source))[0]["mlx5_0", "1"]["link_up"] == 1


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7])
async def test_every_physical_state_is_exported(tree, number):
    words = ["Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"]
    port_file(tree, "mlx5_0", "phys_state").write_text(f"{number}: {words[number - 1]}\n")
    async with opened(tree) as source:
        found, failures = await ports_of(source)
    assert (found["mlx5_0", "1"]["port_physical_state"], failures) == (number, [])


async def test_restricted_port_is_exported_without_counters(files, clock):
    """Each read of a counter makes the kernel log a line, so the reads end."""
    for folder in ("counters", "hw_counters"):
        for path in (TREE / "class/infiniband/mlx5_0/ports/1" / folder).iterdir():
            files.faults["read", f"mlx5_0/ports/1/{folder}/{path.name}"] = errno.EINVAL
    async with opened(TREE) as source:
        for _ in range(3):
            found, failures = await ports_of(source)
            assert set(failures) == {("mlx5_0", "einval")}
        found, failures = await ports_of(source)
        tried = len(files.reads)
        await source.read()
        again = [path for path in files.reads[tried:] if "mlx5_0" in path]
    assert (found["mlx5_0", "1"]["link_up"], "receive_bytes_total" in found["mlx5_0", "1"], failures) == (1, False, [])
    assert {path.rpartition("/")[2] for path in again} == {"state", "phys_state", "rate"}


async def test_port_added_and_removed(tree, clock):
    ports = tree / "class" / "infiniband" / "mlx5_0" / "ports"
    async with opened(tree) as source:
        await source.read()
        shutil.copytree(ports / "1", ports / "2")
        clock.now += rdma.RESCAN_SECONDS
        found, failures = await ports_of(source)
        assert (found.keys(), failures) == (PORTS | {("mlx5_0", "2")}, [])
        shutil.rmtree(ports / "2")
        clock.now += rdma.RESCAN_SECONDS
        found, failures = await ports_of(source)
        assert (found.keys(), failures) == (PORTS, [])


async def test_a_device_that_is_gone_leaves_the_rails_of_others(tree, clock):
    def rails(found):
        return {key: row["info"]["rail"] for key, row in found.items()}

    async with opened(tree) as source:
        before = rails((await ports_of(source))[0])
        gone = next(key for key, rail in before.items() if rail == "0")
        assert len(set(before.values())) > 1
        shutil.rmtree(tree / "class" / "infiniband" / gone[0])
        clock.now += rdma.RESCAN_SECONDS
        found, _ = await ports_of(source)
    assert rails(found) == {key: rail for key, rail in before.items() if key[0] != gone[0]}


async def test_files_removed_between_reads_affect_only_their_own_metrics(tree, files):
    removed = ["counters/port_rcv_data", "counters/port_xmit_data", "hw_counters/out_of_sequence"]
    async with opened(tree) as source:
        before, _ = await ports_of(source)
        for path in removed:
            files.faults["read", f"mlx5_0/ports/1/{path}"] = errno.ENODEV
        found, failures = await ports_of(source)
        assert failures == [("mlx5_0", "enodev")] * 3
        for path in removed:
            port_file(tree, "mlx5_0", path).unlink()
        found, failures = await ports_of(source)
    assert failures == [("mlx5_0", "enoent")] * 3
    lost = {"receive_bytes_total", "transmit_bytes_total", "out_of_sequence_total"}
    assert before["mlx5_0", "1"].keys() - found["mlx5_0", "1"].keys() == lost
    assert found.keys() == PORTS


async def test_device_removed_during_a_read(tree, files):
    async with opened(tree) as source:
        await source.read()
        files.faults["read", "mlx5_0/ports/1/state"] = lambda: shutil.rmtree(tree / "class/infiniband/mlx5_0")
        files.faults["read", "mlx5_0/ports/1/rate"] = errno.ENODEV
        found, _ = await ports_of(source)
        assert found.keys() >= PORTS - {("mlx5_0", "1")}
        files.faults.clear()
        found, failures = await ports_of(source)
    assert (found.keys(), failures) == (PORTS - {("mlx5_0", "1")}, [])


async def test_details_are_not_exported_by_default():
    async with opened(TREE) as source:
        tables = (await source.read()).tables
    shown = {ending for table in tables for ending, column in table.columns.items() if not column.metric.detail}
    assert not shown & {"receive_unicast_packets_total", "vl15_dropped_total", "requester_flush_errors_total"}
    assert shown >= {"local_ack_timeouts_total", "out_of_sequence_total", "icrc_errors_total", "cnp_sent_total"}


def test_counters_of_errors_and_congestion_are_no_details():
    trouble = (
        "requester_completion_errors responder_completion_errors requester_transport_retries_exceeded"
        " local_ack_timeouts packet_sequence_errors out_of_sequence out_of_buffer rnr_nak_retries duplicate_requests"
        " icrc_errors adaptive_retransmissions ecn_marked_packets cnp_sent cnp_handled cnp_ignored"
        " retransmitted_packets"
    )
    assert not [one for one in trouble.split() if SCHEMA.metrics[f"{one}_total"].detail]


async def test_device_that_hangs_does_not_delay_others(files, monkeypatch):
    monkeypatch.setattr(rdma, "CALL_DEADLINE", 0.3)
    go, hung = threading.Event(), []

    def hang():
        hung.append(1)
        go.wait(LONG)

    async with opened(TREE) as source:
        await source.read()
        files.faults["read", "mlx5_0/ports/1/counters/link_downed"] = hang
        for _ in range(3):
            found, failures = await ports_of(source)
            assert found.keys() == PORTS - {("mlx5_0", "1")}
            assert failures == [("mlx5_0", "timeout")]
        assert len(hung) == 1  # it was not called again
        files.faults.clear()
        go.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
        found, failures = await ports_of(source)
        assert (found.keys(), failures) == (PORTS, [])
        assert found["mlx5_0", "1"]["info"]["rail"] == "1"


async def test_device_whose_first_scan_hung_gets_its_rail_afterwards(files, monkeypatch):
    monkeypatch.setattr(rdma, "CALL_DEADLINE", 0.3)
    go = threading.Event()
    files.faults["open", "mlx5_0/hca_type"] = lambda: go.wait(LONG) and None
    async with opened(TREE) as source:
        assert (await ports_of(source))[1] == [("mlx5_0", "timeout")]
        go.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
        found, failures = await ports_of(source)
    assert failures == []
    assert [found[device, "1"]["info"]["rail"] for device in ("mlx5_1", "mlx5_0")] == ["0", "1"]


def held_open(tree):
    """List the files of the tree that this process holds open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(tree))]


@pytest.mark.parametrize("again", [False, True])
async def test_call_that_returns_after_close_closes_its_files(tree, files, monkeypatch, again):
    """Whether the device was known before, or is scanned for the first time."""
    monkeypatch.setattr(rdma, "CALL_DEADLINE", 0.3)
    go = threading.Event()
    async with opened(tree) as source:
        if again:
            await source.read()
            files.faults["read", "mlx5_0/ports/1/counters/link_downed"] = lambda: go.wait(LONG) and None
        else:
            files.faults["open", "mlx5_0/hca_type"] = lambda: go.wait(LONG) and None
        assert (await ports_of(source))[1] == [("mlx5_0", "timeout")]
        await source.close()
        assert all("mlx5_0" in path for path in held_open(tree))
        files.faults.clear()
        go.set()
        async with asyncio.timeout(LONG):
            while source._serial.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
                await asyncio.sleep(0.001)
    assert held_open(tree) == []


async def test_rows_are_the_same_objects_from_poll_to_poll():
    async with opened(TREE) as source:
        one, other = (await source.read()).tables, (await source.read()).tables
    assert all(before.rows is after.rows for before, after in zip(one, other, strict=True))
    assert '{device="mlx5_0",port="1"}' in {text for table in one for text in table.rows.texts}


async def test_port_folders_with_noncanonical_numbers_are_ignored(tree):
    ports = tree / "class" / "infiniband" / "mlx5_0" / "ports"
    for name in ("01", "\N{ARABIC-INDIC DIGIT ONE}"):
        shutil.copytree(ports / "1", ports / name)
    async with opened(tree) as source:
        found, failures = await ports_of(source)
    assert [port for device, port in found if device == "mlx5_0"] == ["1"]
    assert len(found) > 1
    assert failures == []


def test_cached_files_use_only_their_share_of_descriptors(tree, monkeypatch):
    path = tree / "class" / "infiniband" / "mlx5_0" / "ports" / "1" / "state"
    descriptor = cached_file.open_cached(path)
    os.close(descriptor)
    limit = int(descriptor / cached_file.DESCRIPTOR_SHARE)
    monkeypatch.setattr(cached_file.resource, "getrlimit", lambda _: (limit, limit))
    with pytest.raises(OSError, match="raise the limit") as caught:
        cached_file.open_cached(path)
    assert caught.value.errno == errno.EMFILE
    assert cached_file.read_once(path) == path.read_bytes()  # closed again at once, so it may
    monkeypatch.setattr(cached_file.resource, "getrlimit", lambda _: (2 * limit, 2 * limit))
    os.close(cached_file.open_cached(path))


async def test_counters_and_raw_counters_have_lower_descriptor_shares_than_link_files(tmp_path, monkeypatch):
    make(tmp_path, "mlx5_0", {"np_cnp_sent": 1, "odd": 2}, pma={"port_rcv_data": 3}, driver="mlx5_core")
    shares, open_file = {}, cached_file.open_cached

    def open_cached(path, share):
        shares[Path(path).name] = share
        return open_file(path, share)

    monkeypatch.setattr(cached_file, "open_cached", open_cached)
    async with opened(tmp_path, raw=("*",)) as source:
        assert (await ports_of(source))[1] == []
    links = dict.fromkeys(("state", "phys_state", "rate"), cached_file.DESCRIPTOR_SHARE)
    counters = dict.fromkeys(("np_cnp_sent", "port_rcv_data"), cached_file.COUNTERS_SHARE)
    assert shares == {**links, **counters, "odd": cached_file.RAW_SHARE}
    assert cached_file.DESCRIPTOR_SHARE > cached_file.COUNTERS_SHARE > cached_file.RAW_SHARE


@pytest.mark.parametrize("text", ["0 GB/sec\n", "0 Gb/sec (4X NDR)\n", "-1\n", "\n"])
async def test_rate_without_a_speed_is_absent_and_no_failure(tree, text):
    """`0 GB/sec` was an error that made other exporters lose the whole class."""
    port_file(tree, "mlx5_0", "rate").write_text(text)
    async with opened(tree) as source:
        found, failures = await ports_of(source)
    port = found["mlx5_0", "1"]
    assert (port["link_up"], port["receive_bytes_total"], failures) == (1, 1_000_000_000_004, [])
    assert not port.keys() & {"link_speed_bytes_per_second", "link_lanes"}


async def test_counter_without_pma_is_absent_and_no_failure(tree):
    """mlx4 and i40iw return a text for a missing counter; other counters are read."""
    async with opened(tree) as source:
        before, _ = await ports_of(source)
    port_file(tree, "mlx5_0", "counters/symbol_error").write_text("N/A (no PMA)\n")
    async with opened(tree) as source:
        for _ in range(2):
            found, failures = await ports_of(source)
            assert failures == []
            assert before["mlx5_0", "1"].keys() - found["mlx5_0", "1"].keys() == {"symbol_errors_total"}
            assert found["mlx5_0", "1"].items() <= before["mlx5_0", "1"].items()


@pytest.mark.parametrize("file", ["mlx5_0/node_guid", "mlx5_0/ports/1/link_layer", "mlx5_0/ports/1/state"])
async def test_device_renamed_during_a_scan_does_not_affect_others(tree, files, file):
    """Programs that assign persistent names do so just after the driver was loaded."""
    devices = tree / "class" / "infiniband"
    files.faults["open", file] = lambda: (devices / "mlx5_0").is_dir() and (devices / "mlx5_0").rename(devices / "late")
    async with opened(tree) as source:
        found, failures = await ports_of(source)
        assert found.keys() >= PORTS - {("mlx5_0", "1")}
        assert {device for device, _ in failures} <= {"mlx5_0"}
        found, failures = await ports_of(source)
    assert (found.keys(), failures) == (PORTS - {("mlx5_0", "1")} | {("late", "1")}, [])
    assert found["late", "1"]["receive_bytes_total"] == 1_000_000_000_004


async def test_dangling_links_are_one_failure_per_device(tmp_path):
    """A container with the class but without /sys/devices, to which it points."""
    devices = tmp_path / "class" / "infiniband"
    devices.mkdir(parents=True)
    for name in ("mlx5_0", "mlx5_1"):
        (devices / name).symlink_to(f"../../devices/pci0000:00/{name}")
    async with opened(tmp_path) as source:
        assert await source.applies()
        assert await ports_of(source) == ({}, [("mlx5_0", "enoent"), ("mlx5_1", "enoent")])
