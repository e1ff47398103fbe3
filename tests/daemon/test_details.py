"""Details that are not exported: they are not read, and derived metrics do not depend on them."""

import errno
import os

import pytest

from exporter.linux.netlink.ethtool_netlink import LinkModes
from exporter.linux.netlink.rdma import RdmaDevice
from exporter.meaning.ports import congestion_ratios, rates
from exporter.sources.common.driver_statistics import DriverNames, Statistic, make_plan
from exporter.sources.common.host_ports import DERIVED_FROM, PortOptions
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
    source as nic,
)
from exporter.sources.rdma import (
    device as rdma_device,
)
from exporter.sources.rdma import (
    metrics as rdma_metrics,
)
from exporter.sources.rdma import (
    source as rdma,
)
from tests.helpers.fake_nic_reader import (
    MLX5,
    FakeNicReader,
    hardware,
    reasons,
    values_of,
)
from tests.helpers.fake_nic_reader import opened as opened_nics
from tests.helpers.rdma_trees import (
    Files,
    Netlink,
    make,
    opened,
    port_file,
    ports_of,
    rows_of,
    statistics,
)

SCHEMAS = (nic_metrics.SCHEMA, nic_metrics.PRIORITY, rdma_metrics.SCHEMA, rdma_metrics.DEVICE)

PMA = {
    "port_rcv_data": 10,
    "port_xmit_data": 11,
    "port_rcv_packets": 12,
    "port_xmit_packets": 13,
    "link_downed": 14,
    "unicast_rcv_packets": 20,
    "unicast_xmit_packets": 21,
    "multicast_rcv_packets": 22,
    "multicast_xmit_packets": 23,
    "port_rcv_switch_relay_errors": 24,
    "port_rcv_constraint_errors": 25,
    "port_xmit_constraint_errors": 26,
    "VL15_dropped": 27,
}
HW = {
    "np_cnp_sent": 15,
    "packet_seq_err": 16,
    "local_ack_timeout_err": 17,
    "roce_slow_restart": 30,
    "rx_dct_connect": 31,
    "req_cqe_flush_error": 32,
    "resp_remote_access_errors": 33,
}
DETAILS = {name for name, value in {**PMA, **HW}.items() if value >= 20}
"""Files whose metrics are details; those with values below 20 have metrics that are exported by default."""

SHOWN = {
    "receive_bytes_total": 40,
    "transmit_bytes_total": 44,
    "receive_packets_total": 12,
    "transmit_packets_total": 13,
    "link_down_total": 14,
    "cnp_sent_total": 15,
    "packet_sequence_errors_total": 16,
    "local_ack_timeouts_total": 17,
}
HIDDEN = {
    "receive_unicast_packets_total": 20,
    "transmit_unicast_packets_total": 21,
    "receive_multicast_packets_total": 22,
    "transmit_multicast_packets_total": 23,
    "receive_switch_relay_errors_total": 24,
    "receive_constraint_errors_total": 25,
    "transmit_constraint_errors_total": 26,
    "vl15_dropped_total": 27,
    "slow_restarts_total": 30,
    "receive_dct_connects_total": 31,
    "requester_flush_errors_total": 32,
    "responder_remote_access_errors_total": 33,
}
PORT = ("mlx5_0", "1")


@pytest.fixture
def tree(tmp_path):
    make(tmp_path, "mlx5_0", HW, pma=PMA, driver="mlx5_core")
    return tmp_path


@pytest.fixture
def reader():
    made = FakeNicReader()
    yield made
    os.close(made.reading)
    os.close(made.writing)


def paths(tree, names):
    return [port_file(tree, "mlx5_0", f"{'counters' if name in PMA else 'hw_counters'}/{name}") for name in names]


def counters_of(found):
    return {ending: value for ending, value in found[PORT].items() if ending.endswith("_total")}


# Details are not read.


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.prefix}{','.join(schema.labels)}")
def test_inputs_of_derived_metrics_are_always_read(schema):
    parts = {
        part
        for one in congestion_ratios.RATIOS
        for way in one.numerators
        for part in (one.packets, *way.counted, *way.optional)
    }
    unread = PortOptions(drop=("*",)).unread_endings(schema)
    assert unread
    assert not unread & (parts | DERIVED_FROM)
    assert not {ending for ending in unread if not schema.metrics[ending].detail}
    assert not PortOptions(keep=("*",)).unread_endings(schema)


@pytest.mark.parametrize(
    ("keep", "drop", "unread"),
    [
        ((), (), True),
        (("fabric_rdma_vl15_dropped_total",), (), False),
        (("*_dropped_*",), (), False),
        (("vl15_dropped_total", "fabric_rdma_vl15"), (), True),  # a pattern is of the whole name
        (("*",), ("*_dropped_total",), True),  # a dropped metric is not exported
    ],
)
def test_detail_is_read_if_exported(keep, drop, unread):
    options = PortOptions(keep=keep, drop=drop)
    assert ("vl15_dropped_total" in options.unread_endings(rdma_metrics.SCHEMA)) is unread


def test_kept_port_details_are_not_kept_for_devices():
    options = PortOptions(keep=("fabric_rdma_device_*",))
    assert "receive_send_requests_total" in options.unread_endings(rdma_metrics.SCHEMA)
    assert "keep_alives_received_total" not in options.unread_endings(rdma_metrics.DEVICE)


# RDMA ports.


async def test_files_of_details_are_not_opened_by_default(tree, monkeypatch):
    files = Files(monkeypatch)
    async with opened(tree, keep=()) as source:
        for _ in range(2):
            found, failures = await ports_of(source)
            assert (counters_of(found), failures) == (SHOWN, [])
    assert not [path for path in files.opens + files.reads if path.rpartition("/")[2] in DETAILS]
    assert {path.rpartition("/")[2] for path in files.opens} >= {"port_rcv_data", "np_cnp_sent"}


def unlink(path):
    path.unlink()


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def nonsense(path):
    path.write_text("no number")


@pytest.mark.parametrize("spoil", [unlink, fifo, nonsense])
async def test_malformed_files_of_details_are_no_failure(tree, spoil):
    for path in paths(tree, DETAILS):
        spoil(path)
    async with opened(tree, keep=()) as source:
        found, failures = await ports_of(source)
    assert (counters_of(found), failures) == (SHOWN, [])


async def test_details_that_return_einval_are_no_failure_unless_kept(tree, monkeypatch):
    files = Files(monkeypatch)
    files.faults = {("read", f"/{name}"): errno.EINVAL for name in DETAILS}
    async with opened(tree, keep=()) as source:
        assert (await ports_of(source))[1] == []
    async with opened(tree, keep=("fabric_rdma_vl15_dropped_total",)) as source:
        assert (await ports_of(source))[1] == [("mlx5_0", "einval")]


@pytest.mark.parametrize(
    ("keep", "more"),
    [
        (("*",), HIDDEN),
        (
            ("*_receive_constraint_errors_total", "fabric_rdma_slow_*"),
            {"receive_constraint_errors_total": 25, "slow_restarts_total": 30},
        ),
    ],
)
async def test_kept_details_are_read(tree, keep, more):
    async with opened(tree, keep=keep) as source:
        found, failures = await ports_of(source)
    assert (counters_of(found), failures) == (SHOWN | more, [])


async def test_details_are_not_exported_from_netlink_statistics(tree):
    netlink = Netlink(RdmaDevice(0, "mlx5_0", "0200c0fffe000001", 1, ""))
    netlink.counters[0, 1] = statistics(**{name: value + 100 for name, value in HW.items()}, rdma_rx_bytes=9)
    more = {"cnp_sent_total": 115, "packet_sequence_errors_total": 116, "local_ack_timeouts_total": 117}
    more |= {"receive_optional_bytes_total": 9}
    async with opened(tree, netlink, keep=()) as source:
        found, failures = await ports_of(source)
    assert (counters_of(found), failures) == (SHOWN | more, [])


@pytest.mark.parametrize("keep", [(), ("*",)])
async def test_detail_is_not_raw(tree, keep):
    port_file(tree, "mlx5_0", "hw_counters/resp_something_new").write_text("7\n")
    async with opened(tree, keep=keep, raw=("*",)) as source:
        reading = await source.read()
    assert rows_of(reading, rdma_metrics.RAW) == {(*PORT, "resp_something_new"): {"raw": 7}}


async def test_fallback_of_a_refused_counter_is_read_by_default(tmp_path, monkeypatch):
    make(tmp_path, "mana_0", {"rx_bytes": 5, "rx_read_requests": 6}, pma=PMA, driver="mana")
    files = Files(monkeypatch)
    files.faults["read", "counters/port_rcv_data"] = errno.EINVAL
    async with opened(tmp_path, keep=()) as source:
        assert (await ports_of(source))[1] == [("mana_0", "einval")]
        found, failures = await ports_of(source)
    assert (found["mana_0", "1"]["receive_bytes_total"], failures) == (5, [])


@pytest.mark.parametrize(("keep", "more"), [((), {}), (("*",), {"keep_alives_received_total": 7})])
async def test_details_of_an_rdma_device(tmp_path, keep, more):
    whole = {"cmds_err": 1, "keep_alive_rcvd": 7}
    make(tmp_path, "rdmap7s0", {"tx_bytes": 5}, driver="efa", device_hw=whole)
    async with opened(tmp_path, keep=keep) as source:
        reading = await source.read()
    assert rows_of(reading, rdma_metrics.DEVICE) == {("rdmap7s0",): {"command_errors_total": 1, **more}}


# Network devices.

FINE = {
    "rx_bytes_phy": 1,
    "rx_buffer_passed_thres_phy": 2,
    "rx_prio3_pause": 3,
    "rx_prio3_bytes": 4,
    "rx_prio5_bytes": 5,
    "rx_err_lane_0_phy": 6,
}


async def test_statistics_of_details_are_not_read(reader):
    reader.add(hardware("eth0", 2, stats={"rx_bytes": 8, "rx_packets": 9}), statistics=FINE)
    async with opened_nics(reader, keep=(), raw=("*",)) as source:
        found = values_of((await source.read()).tables)
    del found["eth0"]["info"]
    assert found == {
        "eth0": {
            "receive_bytes_total": 1,
            "kernel_receive_bytes_total": 8,
            "link_speed_bytes_per_second": 50e9,
            "link_up": 1,
        },
        ("eth0", "3"): {"receive_pfc_frames_total": 3},  # of priority 5 nothing is left
        ("eth0", "rx_err_lane_0_phy"): {"raw": 6},
    }


async def test_kept_statistics_are_read(reader):
    reader.add(hardware("eth0", 2, stats={"rx_bytes": 8, "rx_packets": 9}), statistics=FINE)
    keep = ("fabric_nic_receive_priority_bytes_total", "fabric_nic_kernel_receive_packets_total")
    async with opened_nics(reader, keep=keep) as source:
        found = values_of((await source.read()).tables)
    assert found["eth0"]["kernel_receive_packets_total"] == 9
    assert "receive_buffer_threshold_total" not in found["eth0"]
    assert found["eth0", "3"] == {"receive_pfc_frames_total": 3, "receive_priority_bytes_total": 4}
    assert found["eth0", "5"] == {"receive_priority_bytes_total": 5}


async def test_details_of_an_unlisted_driver_are_not_exported(reader):
    reader.add(hardware("eth0", 2), driver="other")
    reader.more["standard_statistics", "eth0"] = {"OctetsReceivedOK": 1, "undersize": 2, "SymbolErrorDuringCarrier": 3}
    async with opened_nics(reader, keep=()) as source:
        found = values_of((await source.read()).tables)["eth0"]
    assert (found["receive_bytes_total"], found["symbol_errors_total"]) == (1, 3)
    assert "receive_undersize_packets_total" not in found


async def test_maximum_speed_is_read_for_the_expected_speed(reader, tmp_path):
    (tmp_path / "class" / "net" / "eth0" / "device" / "infiniband").mkdir(parents=True)
    reader.add(hardware("eth0", 2), statistics=MLX5)
    reader.more["link_modes", "eth0"] = LinkModes(200_000_000_000, max_speed_bits_per_second=400_000_000_000)
    async with opened_nics(reader, tmp_path, keep=()) as source:
        found = values_of((await source.read()).tables)["eth0"]
    assert found["link_max_speed_bytes_per_second"] == 50e9


def test_plan_without_unread_endings_keeps_sums_complete():
    names = DriverNames(
        (Statistic("a", ("x", "y")), Statistic("b", ("y",))),
        (Statistic("c", ("p{p}",)), Statistic("d", ("q{p}",))),
    )
    made = make_plan(names, ("x", "y", "p0", "q0", "q1")).without({"b", "d"})
    assert (made.port, made.priority) == ({"a": [0, 1]}, {"0": {"c": [2]}})


# Derived metrics.


RISES = {"packet_seq_err": 100, "local_ack_timeout_err": 50}


def meanings(readings):
    """Return rates and ratios of readings, without details."""
    states, made = {}, {}
    for reading in readings:
        made = {}
        for table in reading.tables:
            tables = [table]
            for place, step in enumerate((rates.step, congestion_ratios.step)):
                out = []
                for one in tables:
                    key = (place, one.schema, one.part)
                    states[key], more = step(states.get(key), one)
                    out += more
                tables = out
            for one in tables:
                for column in one.columns.values():
                    if not column.metric.detail:
                        made |= {
                            (column.metric.name, *key): value
                            for key, value in zip(one.rows.keys, column.values, strict=True)
                            if value is not None
                        }
    return made


async def test_derived_metrics_of_an_rdma_port_do_not_depend_on_details(tree, stopped_clock):
    clock, made, names = stopped_clock(rdma, rdma_device), [], [*PMA, *HW]
    for keep in ((), ("*",)):
        readings = []
        async with opened(tree, keep=keep) as source:
            for read in range(2):
                clock.now += 5
                for name, path in zip(names, paths(tree, names), strict=True):
                    path.write_text(f"{read * RISES.get(name, 10_000)}\n")
                readings.append(await source.read())
        made.append(meanings(readings))
    assert made[0] == made[1]
    assert made[0]["fabric_rdma_receive_bytes_per_second", *PORT] == 8000
    assert made[0]["fabric_rdma_retransmission_ratio", *PORT] == 0.015


async def test_derived_metrics_of_a_network_device_do_not_depend_on_details(reader, stopped_clock):
    clock, made = stopped_clock(nic, device_queries, nic_device), []
    for keep in ((), ("*",)):
        readings = []
        async with opened_nics(reader, keep=keep) as source:
            for rise in (0, 1_000_000):
                clock.now += 5
                counts = {name: value + rise for name, value in {**MLX5, **FINE}.items()}
                reader.add(hardware("eth0", 2, stats={"rx_bytes": rise, "rx_packets": rise}), statistics=counts)
                readings.append(await source.read())
                assert reasons(readings[-1]) == []
        made.append(meanings(readings))
    assert made[0] == made[1]
    assert made[0]["fabric_nic_receive_bytes_per_second", "eth0"] == 200_000
    assert made[0]["fabric_nic_receive_pfc_paused_ratio", "eth0", "3"] == 0.2
