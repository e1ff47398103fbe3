"""Real training jobs: processes of torch that talk by gloo, each as on a host of its own, and their hooks' records."""

import asyncio
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from exporter.simulator.training.records import Record, encode_record
from exporter.sources.nccl.timing_socket import TimingSocket
from tests.helpers.paths import ROOT, TESTS
from tests.helpers.stack import free_port

RANKS = 4
JOB = "job"

START_SECONDS = 300.0
"""Seconds that the start may take: processes import torch, which takes minutes on a busy machine."""


def environment(folder: Path, rank: int, port: int) -> dict[str, str]:
    """Return the environment of a rank, the only one of its host."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(folder),
        "FABRIC_TIMING_SOCKET": str(folder / "run" / "timing.sock"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(RANKS),
        "LOCAL_WORLD_SIZE": "1",
    }


@contextmanager
def running(python: str, folder: Path, layout: str, **fault: str):
    """Run the processes of a job until the end of the block; their output is in files of the folder."""
    (folder / "fabric_timing.py").write_text((ROOT / "exporter" / "hook" / "fabric_timing.py").read_text())
    command = [python, "-W", "ignore", str(TESTS / "helpers" / "parallel_job.py"), layout]
    port, processes = free_port(), []
    try:
        for rank in range(RANKS):
            with (folder / f"rank-{rank}.log").open("wb") as log:
                env = environment(folder, rank, port) | fault
                processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
        yield processes
    finally:
        for one in processes:
            one.kill()
            one.wait()


class Run(NamedTuple):
    """The records of a job in order of arrival, from time 0, and the mean seconds of a step."""

    records: list[Record]
    step_seconds: float


async def run(python: str, folder: Path, layout: str, seconds: float, **fault: str) -> Run:
    """Run a job for some seconds from its first record."""
    socket, found, first = TimingSocket(str(folder / "run" / "timing.sock")), [], None
    steps: dict[int, int] = {}
    await socket.open()
    try:
        with running(python, folder, layout, **fault) as processes:
            limit = monotonic() + START_SECONDS
            while (monotonic() - first < seconds) if found else (monotonic() < limit):
                await asyncio.sleep(0.1)
                ended = [rank for rank, one in enumerate(processes) if one.poll() is not None]
                assert not ended, (folder / f"rank-{ended[0]}.log").read_text()
                for one in await socket.take():
                    first = one.at if first is None else first
                    found += _records(one.datagram, one.at - first)
                    steps |= {step.number: step.at for step in one.datagram.steps if one.datagram.rank == 0}
    finally:
        await socket.close()
    assert found, f"no collective was timed within {START_SECONDS:g} s"
    (folder / "records.jsonl").write_bytes(b"".join(map(encode_record, found)))
    return Run(found, (steps[max(steps)] - steps[min(steps)]) / 1e6 / (max(steps) - min(steps)))


def _records(datagram, arrived: float):
    """Yield the records of a datagram; a rank is all that its host runs. On a CPU the times are those from arrivals."""
    for one in datagram.operations:
        place = _place(datagram, one.communicator, arrived)
        yield Record(*place, one.kind, one.sequence, one.message_bytes, one.microseconds)
    for one in datagram.counts:
        if one.begun > one.ended:
            place = _place(datagram, one.communicator, arrived)
            yield Record(*place, one.kind, one.begun - 1, 0, begun=one.begun)


def _place(datagram, communicator: int, arrived: float):
    group = datagram.groups[communicator]
    return (round(arrived, 6), f"gpu-{datagram.rank}", JOB, group.id, group.size, group.nodes, datagram.rank)
