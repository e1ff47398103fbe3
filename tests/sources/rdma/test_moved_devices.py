"""RDMA devices that leave the host in the exclusive mode of namespaces, by recorded answers of netlink."""

import errno
import json
import os
import shutil
from contextlib import asynccontextmanager

import pytest

from exporter.core.source import Host
from exporter.linux.rdma_reader import ReplayRdma
from exporter.sources.common.moved_devices import MovedDevices
from exporter.sources.rdma.metrics import SCHEMA
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.source import RdmaSource
from tests.helpers.fake_namespaces import FakeNamespaces
from tests.helpers.fake_nic_reader import hardware
from tests.helpers.rdma_trees import NoNetlink, make, rows_of

HW = {"out_of_sequence": 7, "np_cnp_sent": 8, "rx_write_requests": 9}
GUIDS = {"mlx5_0": "0200:c0ff:fe00:0001", "mlx5_1": "0200:c0ff:fe00:0002"}


def record(folder, name="mlx5_1", index=4, state=4, **counters):
    """Write the answers of netlink in the namespace."""
    place = folder / "rdma"
    place.mkdir(parents=True, exist_ok=True)
    recording = {
        "device": {"index": index, "node_guid": "0200c0fffe000002", "ports": 1, "firmware": "28.39.1002"},
        "ports": {"1": {"port": {"state": state, "physical_state": 5}, "statistics": {**HW, **counters}}},
    }
    (place / f"{name}.json").write_text(json.dumps(recording))


@asynccontextmanager
async def node(tmp_path, *, shared=False, devices=("mlx5_0", "mlx5_1"), **options):
    """Have a host with these RDMA devices, and a namespace with one that moved there, as far as `move` says so."""
    sysfs = tmp_path / "sys"
    (sysfs / "class" / "infiniband").mkdir(parents=True)
    for number, name in enumerate(devices):
        pci = f"0000:2{number}:00.0"
        make(sysfs, name, HW, pma={"port_rcv_data": 5}, driver="mlx5_core", pci=pci, guid=GUIDS[name])
    namespaces, moved = FakeNamespaces(), MovedDevices()
    namespaces.shares_rdma = shared
    pods = namespaces.source(moved, sysfs)
    rdma = RdmaSource(RdmaOptions(keep=("*",), **options), Host("gpu-1", sysfs, sysfs / "proc"), NoNetlink, moved)
    await pods.read()
    try:
        yield rdma, pods, namespaces, sysfs
    finally:
        await rdma.close()
        await pods.close()


def move(namespaces, sysfs, tmp_path, name="mlx5_1"):
    """Move a device to a new namespace, with the network device of its function."""
    shutil.rmtree(sysfs / "class" / "infiniband" / name, ignore_errors=True)
    one = namespaces.add("cni-1")
    one.cards.add(hardware("net1", 3, "0000:21:00.0"))
    folder = tmp_path / "recorded"
    record(folder, name)
    one.rdma = ReplayRdma(folder)
    return one, folder


async def ports(rdma):
    reading = await rdma.read()
    return rows_of(reading, SCHEMA), [(failure.device, failure.reason) for failure in reading.failures]


async def test_counters_and_identity_of_a_moved_device_remain(tmp_path):
    async with node(tmp_path) as (rdma, _, namespaces, sysfs):
        before, _ = await ports(rdma)
        _, folder = move(namespaces, sysfs, tmp_path)
        for extra in (0, 5):
            record(folder, out_of_sequence=7 + extra)
            found, failures = await ports(rdma)
            assert not failures
            assert found.keys() == before.keys() == {("mlx5_0", "1"), ("mlx5_1", "1")}
            row = found["mlx5_1", "1"]
            assert row["info"] == before["mlx5_1", "1"]["info"]
            assert (row["link_up"], row["port_state"], row["port_physical_state"]) == (1, 4, 5)
            assert row["cnp_sent_total"] == 8
            assert 7 + extra in row.values()
            assert "receive_bytes_total" not in row  # in files only
            assert "link_speed_bytes_per_second" not in row
        assert found["mlx5_0", "1"] == before["mlx5_0", "1"]


async def test_a_device_that_returns_is_read_from_its_files_again(tmp_path):
    async with node(tmp_path) as (rdma, _, namespaces, sysfs):
        await ports(rdma)
        one, _ = move(namespaces, sysfs, tmp_path)
        await ports(rdma)
        namespaces.remove(one)
        make(sysfs, "mlx5_1", HW, pma={"port_rcv_data": 5}, driver="mlx5_core", guid=GUIDS["mlx5_1"])
        found, failures = await ports(rdma)
        assert not failures
        assert found["mlx5_1", "1"]["receive_bytes_total"] == 20


async def test_a_device_that_was_moved_before_the_start_is_recognised_by_its_counters(tmp_path):
    async with node(tmp_path, devices=("mlx5_0",)) as (rdma, pods, namespaces, sysfs):
        move(namespaces, sysfs, tmp_path)
        await pods.read()
        found, failures = await ports(rdma)
        assert not failures
        row = found["mlx5_1", "1"]
        assert row["cnp_sent_total"] == 8
        info = {name: text for name, text in row["info"].items() if text}
        assert info["node_guid"] == "0200c0fffe000002"
        assert (info["driver"], info["firmware"], info["host"]) == ("mlx5_core", "28.39.1002", "gpu-1")


async def test_a_host_whose_devices_are_all_in_pods_has_something_to_read(tmp_path):
    async with node(tmp_path, devices=()) as (rdma, pods, namespaces, sysfs):
        assert not await rdma.applies()
        move(namespaces, sysfs, tmp_path)
        await pods.read()
        assert await rdma.applies()


async def test_in_shared_mode_no_namespace_is_asked_for_rdma_devices(tmp_path):
    async with node(tmp_path, shared=True) as (rdma, pods, namespaces, sysfs):
        one, _ = move(namespaces, sysfs, tmp_path)
        await pods.read()
        found, _ = await ports(rdma)
        assert found.keys() == {("mlx5_0", "1")}
        assert all(namespace.rdma is None for namespace in pods._all.namespaces.values())
        assert one.opened == 1


async def test_excluded_device_is_not_read_in_a_namespace_either(tmp_path):
    async with node(tmp_path, exclude=("mlx5_1",)) as (rdma, pods, namespaces, sysfs):
        move(namespaces, sysfs, tmp_path)
        await pods.read()
        found, _ = await ports(rdma)
        assert found.keys() == {("mlx5_0", "1")}


async def test_a_port_that_fails_loses_no_other(tmp_path):
    async with node(tmp_path) as (rdma, _, namespaces, sysfs):
        await ports(rdma)
        one, _ = move(namespaces, sysfs, tmp_path)
        await ports(rdma)

        def fail(*_):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        one.rdma.port = fail
        found, failures = await ports(rdma)
        assert failures == [("mlx5_1", "einval")]
        assert found["mlx5_1", "1"]["cnp_sent_total"] == 8
        assert "link_up" not in found["mlx5_1", "1"]


@pytest.mark.parametrize("error", [errno.EPROTONOSUPPORT, errno.EPERM])
async def test_a_namespace_whose_rdma_devices_cannot_be_read_loses_only_them(tmp_path, error):
    async with node(tmp_path) as (rdma, pods, namespaces, sysfs):
        one, _ = move(namespaces, sysfs, tmp_path)
        one.rdma.devices = lambda: (_ for _ in ()).throw(OSError(error, os.strerror(error)))
        reading = await pods.read()
        assert [key for table in reading.tables for key in table.rows.keys if key[0] == "cni-1"]
        found, _ = await ports(rdma)
        assert found.keys() == {("mlx5_0", "1")}
