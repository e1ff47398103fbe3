"""NCCL's logs of the job's processes on a host of the fabric (NCCL_DEBUG=INFO, one NCCL_DEBUG_FILE a process).

Lines are those of NCCL 2.27 in its default subsystems, which a process writes when a communicator is created. Where a
fault changes how the job reaches the network, all files are written again, as a job that is started again does.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.simulator.fabric.conditions import JobState
from exporter.simulator.fabric.flows import adapter_in_use, usable
from exporter.simulator.fabric.hosts import FabricHost
from exporter.simulator.fabric.job_processes import communicator_hash, pid
from exporter.simulator.fabric.model import FabricModel

VERSION = "NCCL version 2.27.5+cuda12.9"

OTHER_GPUS = "P2P/CUMEM"
"""Transport between the GPUs of a host."""


class Reach(NamedTuple):
    """How a host's processes reach the network.

    Attributes:
        run: Run of the job.
        listed: Devices that NCCL may use, by its index; empty with TCP.
        used: For each rail, the device that its ring uses; empty with TCP.
        gdr: Whether GPUDirect RDMA is used.
    """

    run: int
    listed: tuple[str, ...]
    used: tuple[str, ...]
    gdr: bool


class NcclLogs:
    """Writes the logs of the ranks of one host."""

    def __init__(self, folder: Path, model: FabricModel, host: FabricHost, *, name: str = "demo") -> None:
        """Create the folder of the job.

        Args:
            folder: Folder of the logs of all jobs on the host.
            model: The model.
            host: The host.
            name: Name of the job.

        Raises:
            OSError: The folder cannot be created.
        """
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._model, self._host = model, host
        self._ranks = model.topology.ranks_of(host.name)
        self._written: tuple[int, JobState, bool] | None = None

    def write(self) -> None:
        """Write the logs, where the job was started again, or reaches the network in another way.

        A link that goes down while the job runs is in no log, as NCCL writes these lines only at its start.

        Raises:
            OSError: A file cannot be written.
        """
        job, conditions = self._model.job, self._model.conditions
        staged = any(conditions.adapter(one).staged for one in self._model.topology.adapters(self._host.name))
        state = job.runs, conditions.job, staged
        reach = None if state == self._written or job.hangs else self._reach(gdr=not staged)
        if reach is None:
            return
        old = {path.name for path in self.folder.iterdir()}
        for rank in self._ranks:
            name = f"nccl.{self._host.name}.{pid(job.runs, rank)}"
            # A file beside the old one: a reader sees that it is another.
            new = self.folder.parent.with_name(f"new.{name}")
            new.write_text("".join(f"{line}\n" for line in self._lines(rank, reach)), encoding="utf-8")
            new.replace(self.folder / name)
            old.discard(name)
        for name in old:
            (self.folder / name).unlink()
        self._written = state

    def _reach(self, *, gdr: bool) -> Reach | None:
        """Return how the processes reach the network now; None where a rank has no adapter."""
        conditions, cabling = self._model.conditions, self._model.cabling
        adapters = self._model.topology.adapters(self._host.name)
        if not conditions.job.rdma:
            return Reach(self._model.job.runs, (), (), gdr=False)
        devices = {adapter: nic.device for adapter, nic in zip(adapters, self._host.rails, strict=True)}
        listed = [one for one in adapters[:: conditions.job.every] if usable(cabling.access(one), conditions)]
        used = [adapter_in_use(self._host.name, rail, cabling, conditions) for rail in range(len(adapters))]
        if None in used:
            return None
        names = tuple(devices[one] for one in listed)
        return Reach(self._model.job.runs, names, tuple(devices[one] for one in used if one is not None), gdr=gdr)

    def _lines(self, rank: int, reach: Reach) -> Iterator[str]:
        local, process = rank - self._ranks[0], pid(reach.run, rank)
        prefix = f"{self._host.name}:{process}:{process + 60} [{local}] NCCL INFO "
        for text in (VERSION, *_network(reach), *self._communicators(rank, local, reach)):
            yield prefix + text

    def _communicators(self, rank: int, local: int, reach: Reach) -> Iterator[str]:
        _, gpu = self._host.rails[local].slot.gpu or ("", "0000:00:00.0")
        for number, layout in enumerate(self._model.job.layout.communicators):
            if rank not in layout.members:
                continue
            size, member = len(layout.members), layout.members.index(rank)
            address = f"0x{0x55D0C0000000 + 0x100000 * rank + 0x1000 * number:x}"
            here = [one for one in layout.members if one in self._ranks]
            init = (
                f"ncclCommInitRankConfig comm {address} rank {member} nranks {size} cudaDev {local} nvmlDev {local}"
                f" busId {_bus_id(gpu)} commId {communicator_hash(reach.run, number)} - Init "
            )
            yield init + "START"
            yield (
                f"comm {address} rank {member} nRanks {size} nNodes {layout.nodes} localRanks {len(here)}"
                f" localRank {here.index(rank)} MNNVL 0"
            )
            yield from self._channels(layout.members, member, local, reach, nodes=layout.nodes)
            yield f"Connected all rings, use ring PXN 0 GDR {int(reach.gdr)}"
            yield init + "COMPLETE"

    def _channels(self, members: Sequence[int], member: int, local: int, reach: Reach, *, nodes: int) -> Iterator[str]:
        """Yield the channels of a ring over the nodes, on the rail of this rank, and of one within the node."""
        size = len(members)
        step = size // nodes
        gpus = self._model.topology.shape.rails
        if nodes > 1:
            before, after = (member - step) % size, (member + step) % size
            via = _via(local, reach)
            yield f"Channel {local:02}/0 : {before}[{local}] -> {member}[{local}] [receive] via {via}"
            yield f"Channel {local:02}/0 : {member}[{local}] -> {after}[{local}] [send] via {via}"
        if step > 1:
            other = member - member % step + (member + 1) % step
            yield f"Channel {local:02}/0 : {member}[{local}] -> {other}[{(local + 1) % gpus}] via {OTHER_GPUS}"


def _network(reach: Reach) -> Iterator[str]:
    if not reach.listed:
        yield "NET/IB : No device found."
        yield "NET/IB : Using [RO]; OOB eth0:10.1.0.1<0>"
        yield "NET/Socket : Using [0]eth0:10.1.0.1<0>"
        yield "Using network Socket"
        return
    devices = " ".join(f"[{index}]{device}:1/RoCE" for index, device in enumerate(reach.listed))
    yield f"NET/IB : Using {devices} [RO]; OOB eth0:10.1.0.1<0>"
    yield "Using network IB"


def _via(rail: int, reach: Reach) -> str:
    if not reach.used:
        return "NET/Socket/0"
    return f"NET/IB/{reach.listed.index(reach.used[rail])}{'/GDRDMA' if reach.gdr else ''}"


def _bus_id(address: str) -> str:
    """Return a PCI address as NCCL writes it: hexadecimal, without separators and leading zeros."""
    return f"{int(address.replace(':', '').replace('.', ''), 16):x}"
