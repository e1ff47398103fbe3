"""The processes of the fabric's job on a host: their identities, and what procfs has about them and their GPUs."""

import os
import shutil
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.job import Job

FIRST_PID = 4000

PIDS_A_RUN = 1000


def pid(run: int, rank: int) -> int:
    """Return the process ID of a rank in a run of the job."""
    return FIRST_PID + PIDS_A_RUN * run + rank


def communicator_hash(run: int, communicator: int) -> str:
    """Return the hash of a communicator, which Inspector calls `id` and NCCL's log `commId`."""
    return f"0x{blake2b(f'{run} {communicator}'.encode(), digest_size=7).hexdigest()}"


class ProcessFiles:
    """Writes the part of procfs by which the exporter finds the rank and the GPU of a process."""

    def __init__(self, procfs: Path, job: Job, host: FabricHost, ranks: Sequence[int]) -> None:
        """Create the folders of the GPUs, as NVIDIA's driver does.

        Args:
            procfs: Directory in place of /proc.
            job: The job.
            host: The host.
            ranks: World ranks on the host, each with the GPU of a rail.

        Raises:
            OSError: A file cannot be written.
        """
        self._procfs, self._job, self._ranks = procfs, job, tuple(ranks)
        self._folders: list[Path] = []
        self._run = 0
        addresses = [nic.slot.gpu[1] if nic.slot.gpu else "" for nic in host.rails]
        self._gpus = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{host.name} {one}')}" for one in addresses]
        for address, gpu in zip(addresses, self._gpus, strict=True):
            folder = procfs / "driver" / "nvidia" / "gpus" / address
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t {gpu}\n")

    def write(self) -> None:
        """Replace the processes, where the job was started again.

        Raises:
            OSError: A file cannot be written.
        """
        run = self._job.runs
        if run == self._run:
            return
        for folder in self._folders:
            shutil.rmtree(folder)
        self._folders = [self._procfs / str(pid(run, rank)) for rank in self._ranks]
        self._run = run
        user = os.getuid()
        for folder, rank, gpu in zip(self._folders, self._ranks, self._gpus, strict=True):
            folder.mkdir()
            (folder / "status").write_text(
                f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\nNSpid:\t{folder.name}\n"
            )
            (folder / "environ").write_bytes(f"RANK={rank}\0CUDA_VISIBLE_DEVICES={gpu}\0".encode())
