"""Processes of the fabric's job in procfs, as the exporter looks them up."""

from exporter.core.source import Host
from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.job_processes import ProcessFiles, pid
from exporter.simulator.fabric.model import FabricModel
from exporter.simulator.host import HostFiles
from exporter.sources.nccl.process_lookup import look_up_processes
from exporter.sources.nccl.readers.feed import ProcessFacts


def test_rank_gpu_and_nearest_port_of_a_process_are_found(tmp_path):
    model = FabricModel(["hanging-process:19@1s-2s"])
    host = FabricHost(model, "gpu-002")
    files = HostFiles(tmp_path, host)
    files.create()
    processes = ProcessFiles(tmp_path / "proc", model.job, host, range(8, 16))
    processes.write()
    where = Host("gpu-002", files.sysfs, tmp_path / "proc")
    own = (tmp_path / "proc").stat().st_uid

    def found(run):
        asked = [ProcessFacts(job="demo", pid=pid(run, rank), uid=own) for rank in range(8, 16)]
        return look_up_processes(where, asked)

    assert [one.world_rank for one in found(1)] == list(range(8, 16))
    assert [one.nic for one in found(1)] == [f"mlx5_{rail}" for rail in range(8)]
    assert found(1)[7].gpu == "0000:dd:00.0"
    model.advance(10.0)
    processes.write()
    assert model.job.runs == 2
    assert [one.world_rank for one in found(1)] == [None] * 8
    assert [one.world_rank for one in found(2)] == list(range(8, 16))
