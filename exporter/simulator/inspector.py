"""Simulated training job whose ranks on this host write the files of NCCL Inspector.

Each step computes and then runs its collectives. All ranks of a collective end together, and a rank that arrives late
has the shortest time, as in a real job. The same seed gives the same files.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

FACTORS = MappingProxyType({"AllReduce": 2.0, "AllGather": 1.0, "ReduceScatter": 1.0})
"""Factor k of nccl-tests by kind: bus bandwidth = size / time * k * (n - 1) / n."""


@dataclass(frozen=True, slots=True)
class SimulatedCollective:
    """One collective of a step: its kind, and the bytes that one rank passes in."""

    kind: str
    message_bytes: int


STEP = (
    SimulatedCollective("AllGather", 16 << 20),
    SimulatedCollective("AllGather", 16 << 20),
    SimulatedCollective("ReduceScatter", 16 << 20),
    SimulatedCollective("AllReduce", 64 << 20),
)
"""Collectives of one step of a sharded training."""


class InspectorProcess(NamedTuple):
    """A rank of a communicator, and its process."""

    communicator: str
    n_ranks: int
    n_nodes: int
    rank: int
    pid: int
    hostname: str


class InspectorTiming(NamedTuple):
    """The timing of a collective on one rank.

    Attributes:
        kind: Kind of the collective.
        sequence: Number among those of its kind in the communicator, from 0.
        message_bytes: Bytes that one rank passes in.
        size: Bytes of its algorithm bandwidth.
        factor: Bus bandwidth over algorithm bandwidth.
        microseconds: Its time on the rank.
    """

    kind: str
    sequence: int
    message_bytes: int
    size: int
    factor: float
    microseconds: int


def inspector_line(process: InspectorProcess, timing: InspectorTiming, written: int) -> bytes:
    """Return one record in the format of Inspector 2.30, written at a time in microseconds of the epoch."""
    bandwidth = timing.size / timing.microseconds / 1e3
    record = {
        "header": {
            "id": process.communicator,
            "rank": process.rank,
            "n_ranks": process.n_ranks,
            "nnodes": process.n_nodes,
            "comm_name": "unknown",
        },
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": written,
            "hostname": process.hostname,
            "pid": process.pid,
        },
        "coll_perf": {
            "coll": timing.kind,
            "coll_sn": timing.sequence,
            "coll_msg_size_bytes": timing.message_bytes,
            "coll_exec_time_us": timing.microseconds,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": round(bandwidth, 6),
            "coll_busbw_gbs": round(bandwidth * timing.factor, 6),
        },
    }
    return msgspec.json.encode(record) + b"\n"


@dataclass(slots=True)
class _SimulatedRank:
    """One process: rank in the communicator, PID, file, and what is not yet written to it."""

    rank: int
    pid: int
    path: Path
    unwritten: bytearray


class InspectorJob:
    """A job whose ranks on this host share one communicator with those of other hosts.

    Attributes:
        folder: Folder of its files.
        bus_bandwidth: Bytes per second of a collective without late ranks; may be changed between steps.
        late: Seconds by which ranks are late for every collective; may be changed between steps.
    """

    def __init__(
        self,
        folder: Path,
        job: str,
        ranks: int = 8,
        *,
        first_rank: int = 0,
        n_ranks: int | None = None,
        n_nodes: int = 1,
        hostname: str = "gpu-001",
        operations: Sequence[SimulatedCollective] = STEP,
        bus_bandwidth: float = 350e9,
        jitter: float = 20e-6,
        seed: int = 0,
    ) -> None:
        """Create the job's folder and files.

        Args:
            folder: Folder of Inspector's files; the job gets the folder `nccl-inspector-<job>` in it.
            job: Job name.
            ranks: Ranks on this host.
            first_rank: Rank of the first of them.
            n_ranks: Ranks of the communicator; by default those of this host.
            n_nodes: Nodes of the communicator.
            hostname: Host name as the job sees it.
            operations: Collectives of one step, in order.
            bus_bandwidth: Bytes per second of a collective without late ranks.
            jitter: Maximum random delay of a rank in seconds.
            seed: Seed of the random numbers and of the communicator's hash.
        """
        self.folder = folder / f"nccl-inspector-{job}"
        self.bus_bandwidth = bus_bandwidth
        self.late: dict[int, float] = {}
        self._hostname = hostname
        self._operations = tuple(operations)
        self._jitter = jitter
        self._n_ranks = first_rank + ranks if n_ranks is None else n_ranks
        self._n_nodes = n_nodes
        self._random = random.Random(seed)
        self._communicator = f"0x{self._random.getrandbits(56):x}"
        self._sequences: dict[str, int] = {}
        self._micros = 1_700_000_000_000_000
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ranks = [
            _SimulatedRank(
                first_rank + place, 4000 + place, self.folder / f"{hostname}-pid{4000 + place}.log", bytearray()
            )
            for place in range(ranks)
        ]
        for one in self._ranks:
            one.path.touch()

    def step(self, seconds: float = 1.0, *, hold_back: int = 0) -> Mapping[tuple[str, int], Mapping[int, int]]:
        """Run one training step and write its records.

        Args:
            seconds: Time that the step computes.
            hold_back: Bytes at the end of each file that are not written before the next step or flush, like a buffer
                that was flushed in the middle of a line.

        Returns:
            Recorded microseconds, by kind and sequence number, and by rank.
        """
        self._micros += round(seconds * 1e6)
        timings = {}
        for operation in self._operations:
            sequence = self._sequences[operation.kind] = self._sequences.get(operation.kind, -1) + 1
            timings[operation.kind, sequence] = self._run(operation, sequence)
        for one in self._ranks:
            end = max(0, len(one.unwritten) - hold_back)
            self._write(one, end)
        return timings

    def flush(self) -> None:
        """Write the bytes that were held back."""
        for one in self._ranks:
            self._write(one, len(one.unwritten))

    def end(self) -> None:
        """End the job and remove its files."""
        for one in self._ranks:
            one.path.unlink(missing_ok=True)
        self.folder.rmdir()

    def _run(self, operation: SimulatedCollective, sequence: int) -> dict[int, int]:
        """Run one collective: a rank's time is the transfer and the wait for the last rank to arrive."""
        size = operation.message_bytes * (1 if operation.kind == "AllReduce" else self._n_ranks)
        share = FACTORS[operation.kind] * (self._n_ranks - 1) / self._n_ranks
        transfer = size * share / self.bus_bandwidth
        arrivals = {
            one.rank: self.late.get(one.rank, 0.0) + self._random.uniform(0.0, self._jitter) for one in self._ranks
        }
        last = max(arrivals.values())
        self._micros += round((last + transfer) * 1e6)
        timings = {}
        for one in self._ranks:
            microseconds = max(1, round((transfer + last - arrivals[one.rank]) * 1e6))
            timings[one.rank] = microseconds
            one.unwritten += inspector_line(
                InspectorProcess(self._communicator, self._n_ranks, self._n_nodes, one.rank, one.pid, self._hostname),
                InspectorTiming(operation.kind, sequence, operation.message_bytes, size, share, microseconds),
                self._micros,
            )
        return timings

    @staticmethod
    def _write(one: _SimulatedRank, end: int) -> None:
        with one.path.open("ab") as file:
            file.write(one.unwritten[:end])
        del one.unwritten[:end]
