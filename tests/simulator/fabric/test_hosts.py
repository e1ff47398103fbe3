"""The files of a host of the fabric: they have what the model counts."""

import json

import pytest

from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.host import HostFiles


def made(tmp_path, *faults, name="gpu-002", seconds=0.0):
    """Give a model, the files of a host after some seconds, and the function that updates them."""
    model = FabricModel(faults)
    model.advance(seconds or 1e-6)
    files = HostFiles(tmp_path, FabricHost(model, name))
    files.create()
    return model, files


def counter(files, rail, name):
    return int((files.sysfs / "class" / "infiniband" / f"mlx5_{rail}" / "ports" / "1" / name).read_text())


def recorded(files, rail):
    return json.loads((files.recordings / f"eth{rail + 2}.json").read_text())


def test_the_files_have_the_counters_of_the_model(tmp_path):
    model, files = made(tmp_path, "marks-ignored:gpu-002", "hanging-link:gpu-002/5@2s", seconds=1.0)
    sent = counter(files, 3, "counters/port_xmit_data")
    ignored = counter(files, 3, "hw_counters/rp_cnp_ignored")
    model.advance(9.0)
    files.write()
    port = model.ports[model.topology.adapter("gpu-002", 3)]
    assert counter(files, 3, "counters/port_xmit_data") * 4 == port.counted_bytes("transmit", ["rdma"]) > sent * 4
    assert counter(files, 3, "hw_counters/rp_cnp_ignored") == port.counters["cnp_ignored"] > ignored > 0
    assert [counter(files, rail, "hw_counters/local_ack_timeout_err") for rail in range(8)] == [0] * 5 + [2, 0, 0]


def test_a_link_that_loses_frames_is_counted_by_the_sender_and_the_receiver(tmp_path):
    model, files = made(tmp_path / "one", "dirty-optic:gpu-002/2", seconds=1.0)
    sender = HostFiles(tmp_path / "other", FabricHost(model, "gpu-001"))
    sender.create()
    # A recording has what was sent to it before, too: only the model's errors are there since its start.
    lost = recorded(files, 2)["statistics"]["rx_crc_errors_phy"]
    assert lost > 0
    assert counter(sender, 2, "hw_counters/packet_seq_err") == lost
    assert counter(files, 3, "hw_counters/packet_seq_err") == 0


@pytest.mark.parametrize(
    ("fault", "reason", "module"),
    [("link-down:gpu-002/6", "no_cable", False), ("flapping-link:gpu-002/6", "cable_issue", True)],
)
def test_a_link_that_is_down_has_its_reason(tmp_path, fault, reason, module):
    _, files = made(tmp_path, fault)
    found = recorded(files, 6)
    assert found["link_state"] == {"up": False, "down_count": 1, "reason": reason}
    assert ("errno" not in found["module"]) == module
    state = files.sysfs / "class" / "infiniband" / "mlx5_6" / "ports" / "1" / "state"
    assert state.read_text().strip() == "1: DOWN"
    assert "reason" not in recorded(files, 5)["link_state"]


def test_a_degraded_link_has_its_rate_at_the_host(tmp_path):
    _, files = made(tmp_path, "degraded-link:gpu-002/1")
    rates = [(files.sysfs / "class/infiniband" / f"mlx5_{rail}" / "ports/1/rate").read_text() for rail in (0, 1)]
    assert [rate.strip() for rate in rates] == ["400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)"]


def test_a_missing_port_is_gone_and_comes_back(tmp_path):
    model, files = made(tmp_path, "missing-port:gpu-002/7@0-2s")
    device = files.sysfs / "class" / "infiniband" / "mlx5_7"
    assert not device.exists()
    model.advance(3.0)
    files.write()
    assert device.exists()


def test_a_slow_pcie_link_is_in_sysfs(tmp_path):
    _, files = made(tmp_path, "slow-pcie:gpu-002/5")
    found = [
        (files.sysfs / "class/infiniband" / f"mlx5_{rail}" / "device/current_link_width").read_text() for rail in (4, 5)
    ]
    assert [width.strip() for width in found] == ["16", "8"]


def test_all_adapters_of_all_hosts_have_different_addresses():
    model = FabricModel()
    hosts = [FabricHost(model, name) for name in model.topology.hosts]
    macs = [nic.mac for host in hosts for nic in (host.management, *host.rails)]
    assert len(set(macs)) == len(macs) == 4 * 9


def test_the_management_nic_counts_the_time_of_the_model():
    model = FabricModel()
    host = FabricHost(model, "gpu-004")
    before = host.management.port.packets("receive", ["bulk"])
    model.advance(0.5)
    host.count_management()
    host.count_management()
    assert host.management.port.packets("receive", ["bulk"]) == before + 12_000
