"""Devices and shares of containers, as they are exported."""

from exporter.sources.pods.assigned_tables import AssignedTables
from exporter.sources.pods.model import PodOwner
from tests.helpers.fake_nic_reader import values_of

TRAINER = PodOwner("training", "worker-0", "0d9c", "trainer")


def test_devices_and_shares_of_containers():
    unnamed = PodOwner("training", "worker-1")
    tables = AssignedTables("gpu-1").make(
        {"0000:c0:01.3": TRAINER, "0000:c0:02.1": unnamed}, {("rdma/hca", TRAINER): 2}, 1.0
    )
    assert values_of(tables) == {
        ("0000:c0:01.3", "training", "worker-0", "trainer"): {"device_info": {"host": "gpu-1"}},
        ("0000:c0:02.1", "training", "worker-1", ""): {"device_info": {"host": "gpu-1"}},
        ("rdma/hca", "training", "worker-0", "trainer"): {"device_shares": 2},
    }


def test_without_any_there_is_no_table():
    assert AssignedTables("gpu-1").make({}, {}, 1.0) == []
