"""NCCL's logs from the model, as the exporter's decoder reads them: formats are those of the decoder's own tests."""

import pytest

from exporter.nccl import log_facts as facts
from exporter.nccl.debug_log import ScanStats, scan
from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.fabric.nccl_logs import NcclLogs


def written(tmp_path, *faults, host="gpu-002", seconds=0.0):
    model = FabricModel(faults)
    logs = NcclLogs(tmp_path, model, FabricHost(model, host))
    if seconds:
        model.advance(seconds)
    logs.write()
    return model, logs


def facts_of(logs, kind, local=7):
    path = sorted(logs.folder.iterdir())[local]
    return [one.fact for one in scan(path.read_bytes(), ScanStats()) if isinstance(one.fact, kind)]


def test_each_process_has_a_log_with_its_rank_adapters_and_channels(tmp_path):
    _, logs = written(tmp_path)
    assert len(list(logs.folder.iterdir())) == 8
    (listed,) = facts_of(logs, facts.Adapters)
    assert [(one.index, one.device, one.link) for one in listed.adapters] == [
        (n, f"mlx5_{n}", "RoCE") for n in range(8)
    ]
    assert facts_of(logs, facts.Network) == [facts.Network("IB")]
    start, complete = facts_of(logs, facts.CommInit)
    assert (start.phase, complete.phase) == ("START", "COMPLETE")
    assert (start.rank, start.n_ranks, start.nvml_dev, start.bus_id) == (15, 32, 7, "0000:dd:00.0")
    (shape,) = facts_of(logs, facts.CommShape)
    assert (shape.n_ranks, shape.n_nodes) == (32, 4)
    received, sent, local = facts_of(logs, facts.Channel)
    assert (received.source, received.target, received.adapter, received.gdr) == (7, 15, 7, True)
    assert (sent.source, sent.target, sent.direction, sent.network) == (15, 23, "send", "IB")
    assert (local.transport, local.target) == ("P2P", 8)
    assert facts_of(logs, facts.RingSummary) == [facts.RingSummary(False, True)]


@pytest.mark.parametrize(
    ("fault", "network", "used", "gdr"),
    [
        ("tcp", "Socket", set(), False),
        ("half-adapters", "IB", {"mlx5_0", "mlx5_2", "mlx5_4", "mlx5_6"}, True),
        ("gpudirect-off", "IB", {f"mlx5_{n}" for n in range(8)}, False),
        ("missing-port:gpu-002/7", "IB", {f"mlx5_{n}" for n in range(7)}, True),
    ],
)
def test_a_fault_of_transport_is_in_the_logs(tmp_path, fault, network, used, gdr):
    _, logs = written(tmp_path, fault, seconds=1.0)
    found = set()
    for local in range(8):
        (listed,) = facts_of(logs, facts.Adapters, local)
        devices = {one.index: one.device for one in listed.adapters}
        channels = [one for one in facts_of(logs, facts.Channel, local) if one.transport == "NET"]
        assert {one.gdr for one in channels} == {gdr}
        found |= {devices[one.adapter] for one in channels if devices}
    assert found == used
    assert facts_of(logs, facts.Network) == [facts.Network(network)]
    assert facts_of(logs, facts.NoAdapters) == ([facts.NoAdapters("no_device")] if fault == "tcp" else [])


def test_logs_that_are_written_again_are_other_files(tmp_path):
    """A reader that continues at the end of a longer file would not see that its beginning changed."""
    model, logs = written(tmp_path, "gpudirect-off:gpu-002@0-5s")
    before = {path.name: path.stat().st_ino for path in logs.folder.iterdir()}
    model.advance(6.0)
    logs.write()
    after = {path.name: path.stat().st_ino for path in logs.folder.iterdir()}
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] == before[name]] == []
    assert facts_of(logs, facts.RingSummary) == [facts.RingSummary(False, True)]


def test_gpudirect_is_off_on_the_host_of_the_fault_alone(tmp_path):
    _, logs = written(tmp_path, "gpudirect-off:gpu-002", host="gpu-001")
    assert facts_of(logs, facts.RingSummary) == [facts.RingSummary(False, True)]


def test_a_link_that_goes_down_is_in_no_log_and_a_new_start_has_other_processes(tmp_path):
    model, logs = written(tmp_path, "link-down:gpu-002/6@5s-8s", "hanging-process:19@10s-12s")
    before = {path.name: path.read_bytes() for path in logs.folder.iterdir()}
    model.advance(6.0)
    logs.write()
    assert {path.name: path.read_bytes() for path in logs.folder.iterdir()} == before
    model.advance(5.0)
    assert model.job.hangs
    model.advance(10.0)
    logs.write()
    assert model.job.runs == 2
    assert len(list(logs.folder.iterdir())) == 8
    assert not before.keys() & {path.name for path in logs.folder.iterdir()}
