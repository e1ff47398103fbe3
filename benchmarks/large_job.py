"""What the hosts of a large job publish: tensor groups of the eight ranks of a host, data groups across hosts.

Times are made up from how late each rank is in each step, without simulating the job: what is measured is the work of
those who publish and receive.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from random import Random

from exporter.nccl.batch import Batch, Operation, Progress, Stream

GPUS = 8
"""Ranks of a host."""

STAGES = 8
"""Stages of the pipeline of a job that is large enough; smaller ones have two."""

STEP = 4.0
"""Seconds of a step, by default."""

TENSOR_OPERATIONS = 16
"""Operations of a tensor group in a step; with two of a data group, one of all ranks, and one between stages, a rank
has 20."""

OPERATIONS = TENSOR_OPERATIONS + 4

_STEPS = 64
"""Steps after which the same ranks are late again."""


class LargeJob:
    """One job.

    Args:
        name: Its name.
        hosts: Its hosts; a multiple of its stages.
        step: Seconds of a step.
        first: Number of its first host, in the names of hosts.
    """

    def __init__(self, name: str, hosts: int, step: float = STEP, first: int = 0) -> None:
        self.name, self.hosts = name, [f"gpu-{first + number:05}" for number in range(hosts)]
        self._step = step
        self._stages = STAGES if hosts % STAGES == 0 else 2
        if hosts % self._stages:
            raise ValueError(f"a job has an even number of hosts, not {hosts}")

    @cached_property
    def _late(self) -> Sequence[Sequence[float]]:
        """Microseconds by which each rank is late in each step."""
        chance = Random(1)
        return [[abs(chance.gauss(0, 300)) for _ in range(len(self.hosts) * GPUS)] for _ in range(_STEPS)]

    def batch(self, place: int, since: float, until: float, tick: int = 0) -> Batch:
        """Return what the host at a place publishes of the seconds of the job from one time until another."""
        streams = list(self._streams(place, since, until))
        progress = [Progress(one, found[-1].sequence + 1, found[-1].sequence + 1) for one, found in streams]
        return Batch(self.name, self.hosts[place], streams, progress=progress, tick=tick)

    def _streams(self, host: int, since: float, until: float) -> Iterator[tuple[Stream, list[Operation]]]:
        hosts, across = len(self.hosts), len(self.hosts) // self._stages
        stage, place = divmod(host, across)
        for gpu in range(GPUS):
            rank = host * GPUS + gpu
            parts = (
                (f"tensor{host}", "AllReduce", gpu, GPUS, 1, TENSOR_OPERATIONS, 64 << 20),
                (f"data{stage}-{gpu}", "ReduceScatter", place, across, across, 1, 1 << 30),
                (f"data{stage}-{gpu}", "AllGather", place, across, across, 1, 1 << 30),
                ("all", "AllReduce", rank, hosts * GPUS, hosts, 1, 4),
                (f"pair{stage // 2}-{place}-{gpu}", "SendRecv", stage % 2, 2, 2, 1, 8 << 20),
            )
            for name, kind, member, ranks, nodes, count, size in parts:
                numbers = range(int(since * count / self._step), int(until * count / self._step))
                if numbers:
                    stream = Stream(self.name, name, kind, member, ranks, nodes, rank, self.hosts[host], 1000 + gpu)
                    late = self._late
                    yield (
                        stream,
                        [Operation(n, size, 5000.0 - late[n // count % _STEPS][rank], True, 0.0) for n in numbers],
                    )
