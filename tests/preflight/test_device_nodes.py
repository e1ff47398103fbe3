"""Character devices of RDMA devices, as the host and its containers have them."""

import shutil

import pytest

from exporter.sources.hostcheck.readers import device_nodes
from tests.helpers.check_results import one, results_of, words
from tests.helpers.checked_host import ADAPTERS, CheckedHost


@pytest.fixture
def host(tmp_path):
    return CheckedHost(tmp_path)


def test_a_device_without_its_node_fails_and_names_no_other(host):
    (host.dev / "infiniband/uverbs1").unlink()
    assert one(host, "rdma_device_nodes", "mlx5_1")[0] == "fail"
    assert words(host, "rdma_device_nodes").count("ok") == 4, "three devices and rdma_cm"


def test_a_container_without_nodes_fails_and_a_missing_rdma_cm_alone_is_a_warning(host):
    (host.dev / "infiniband/rdma_cm").unlink()
    assert one(host, "rdma_device_nodes", "gpu-001")[0] == "warn", "NCCL does not use it"
    shutil.rmtree(host.dev / "infiniband")
    assert words(host, "rdma_device_nodes") == ["fail"] * 4 + ["warn"]


def test_a_kernel_without_the_module_is_named(host):
    shutil.rmtree(host.sysfs / "class/infiniband_verbs")
    (row,) = [row for row in results_of(host)["rdma_device_nodes"] if row[0] == "mlx5_0"]
    assert row[1] == "fail"
    assert "ib_uverbs" in row[3]


def test_a_node_that_the_user_may_not_open_fails(host, monkeypatch):
    monkeypatch.setattr(device_nodes.os, "access", lambda path, _: path.name != "uverbs2")
    assert one(host, "rdma_device_nodes", "mlx5_2") == ("fail", "uverbs: this user may not read and write it")
    assert words(host, "rdma_device_nodes").count("ok") == 4


def test_nodes_are_unknown_where_dev_is_not_and_not_applicable_without_rdma(host):
    host.dev = None
    assert set(words(host, "rdma_device_nodes")) == {"unknown"}
    for device in ADAPTERS:
        (host.sysfs / "class/infiniband" / device).unlink()
    assert words(host, "rdma_device_nodes") == ["not_applicable"]
