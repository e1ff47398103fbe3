"""NCCL's logs of the simulated job: what each rank writes about its adapter and GPUDirect RDMA when it connects."""

from collections.abc import Mapping
from pathlib import Path

from exporter.simulator.fabric.collective_files import FIRST_PID
from exporter.simulator.fabric.model import FabricModel

FOLDER = "nccl-logs"


class JobLogs:
    """Writes the logs of all ranks; where GPUDirect RDMA is turned off, the ranks connect again without it."""

    def __init__(self, folders: Mapping[str, Path], model: FabricModel, job: str = "demo") -> None:
        """Args: folders: Folder of each host. model: The model. job: Name of the job."""
        self._model = model
        self._folders = {host: folder / FOLDER / job for host, folder in folders.items()}
        self._staged: dict[tuple[str, int], bool] = {}

    def write(self) -> None:
        """Write what is new."""
        for host, folder in self._folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            for gpu, adapter in enumerate(self._model.topology.adapters(host)):
                staged = self._model.conditions.adapter(adapter).staged
                if self._staged.get((host, gpu)) != staged:
                    self._staged[host, gpu] = staged
                    self._connect(folder, host, gpu, "" if staged else "/GDRDMA")

    def _connect(self, folder: Path, host: str, gpu: int, suffix: str) -> None:
        topology = self._model.topology
        rails, ranks = topology.shape.rails, len(topology.hosts) * topology.shape.rails
        rank = topology.hosts.index(host) * rails + gpu
        pid = FIRST_PID + 1000 * self._model.job.runs + rank
        devices = " ".join(f"[{rail}]mlx5_{rail}:1/RoCE" for rail in range(rails))
        before, after = (rank - rails) % ranks, (rank + rails) % ranks
        about = f"rank {rank} nRanks {ranks} nNodes {len(topology.hosts)} localRanks {rails} localRank {gpu} MNNVL 0"
        texts = [
            "NCCL version 2.23.4+cuda12.4",
            f"NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.1<0>",
            "Using network IB",
            f"comm 0x55aa10 {about}",
            f"Channel 00/0 : {before}[{gpu}] -> {rank}[{gpu}] [receive] via NET/IB/{gpu}{suffix}",
            f"Channel 00/0 : {rank}[{gpu}] -> {after}[{gpu}] [send] via NET/IB/{gpu}{suffix}",
        ]
        with (folder / f"{host}.{pid}.log").open("a", encoding="utf-8") as file:
            file.writelines(f"{host}:{pid}:{pid + 90} [{gpu}] NCCL INFO {text}\n" for text in texts)
