"""Parallelism of Megatron-LM: tensor, context, expert, data and pipeline groups in one job.

Ranks are numbered along the tensor groups first, then along context, data and pipeline groups. Collectives of tensor,
context and expert groups block the pass in which they are. Those of the data groups are at the end of a step, and so
are the AllReduce of tied embeddings between the first and the last stage, and the AllReduce of the norm of the
gradients among all ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from exporter.simulator.training.pipeline_schedule import schedule
from exporter.simulator.training.programs import (
    CommunicatorLayout,
    Compute,
    Instruction,
    Run,
    Start,
    Wait,
    grouped,
    nodes_of,
)

BACKWARD = 2.0
"""Seconds of a backward pass over those of a forward pass."""

OPTIMIZER = 0.03
"""Computing of the optimizer over that of all passes."""

TENSOR, CONTEXT, DATA, STAGE = range(4)


@dataclass(frozen=True)
class Megatron:
    """A job of Megatron-LM.

    Attributes:
        tensor: Size of the tensor groups.
        context: Size of the context groups.
        data: Size of the data groups.
        stages: Pipeline stages.
        micro_batches: Micro-batches of a step.
        chunks: Chunks of layers of each stage: more than one is the interleaved schedule.
        compute: Seconds of computing of one step on each rank, without the pipeline's bubble.
        tensor_collectives: Number of collectives of the tensor group in one pass.
        sequence_parallel: Whether the tensor group has AllGather and ReduceScatter instead of AllReduce.
        tied_embeddings: Whether the first and the last stage share the embedding.
        experts: Number of ranks of a data group that share the experts of a layer; 1 for a dense model.
        last_stage: Work of the last stage over that of the others.
        tensor_bytes: Bytes of a collective of the tensor group.
        activation_bytes: Bytes that one stage sends to the next.
        gradient_bytes: Bytes of the gradients of a rank.
        gpus_per_node: GPUs of each node.
    """

    tensor: int = 8
    context: int = 1
    data: int = 4
    stages: int = 1
    micro_batches: int = 8
    chunks: int = 1
    compute: float = 2.0
    tensor_collectives: int = 2
    sequence_parallel: bool = False
    tied_embeddings: bool = True
    experts: int = 1
    last_stage: float = 1.0
    tensor_bytes: int = 64 << 20
    activation_bytes: int = 8 << 20
    gradient_bytes: int = 1 << 30
    gpus_per_node: int = 8

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data * self.stages

    @cached_property
    def communicators(self) -> Sequence[CommunicatorLayout]:
        """All communicators; `_index` has their positions by name and member."""
        return [one for _, one in self._named]

    @cached_property
    def _named(self) -> list[tuple[str, CommunicatorLayout]]:
        sizes = (self.tensor, self.context, self.data, self.stages)
        dimensions = {"tensor": (TENSOR,), "context": (CONTEXT,), "data": (CONTEXT, DATA)}
        found = [
            (name, one)
            for name, along in dimensions.items()
            for one in grouped(self.ranks, sizes, along, self.gpus_per_node)
            if len(one.members) > 1
        ]
        everyone = tuple(range(self.ranks))
        found.append(("all", CommunicatorLayout(everyone, nodes_of(everyone, self.gpus_per_node))))
        columns = grouped(self.ranks, sizes, (STAGE,), self.gpus_per_node)
        if self.experts > 1:
            found += [("expert", one) for one in self._expert_groups(sizes)]
        if self.stages > 1:
            if self.tied_embeddings:
                found += [("embedding", self._part(one, 0, -1)) for one in columns]
            for stage in range(self.stages):
                found += [
                    (f"activations {stage}", self._part(one, stage, (stage + 1) % self.stages)) for one in columns
                ]
                found += [(f"gradients {stage}", self._part(one, stage, stage - 1)) for one in columns]
        return found

    def _expert_groups(self, sizes: Sequence[int]) -> list[CommunicatorLayout]:
        groups = []
        for one in grouped(self.ranks, sizes, (DATA,), self.gpus_per_node):
            for first in range(0, self.data, self.experts):
                members = one.members[first : first + self.experts]
                groups.append(CommunicatorLayout(members, nodes_of(members, self.gpus_per_node)))
        return groups

    def _part(self, column: CommunicatorLayout, *stages: int) -> CommunicatorLayout:
        members = tuple(column.members[stage] for stage in stages)
        return CommunicatorLayout(members, nodes_of(members, self.gpus_per_node))

    @cached_property
    def _index(self) -> dict[tuple[str, int], int]:
        """Indices of communicators by name and member; of a pair by name and its first member, which sends."""
        found = {}
        for index, (name, one) in enumerate(self._named):
            pair = name.startswith(("activations ", "gradients "))
            for member in one.members[:1] if pair else one.members:
                found[name, member] = index
        return found

    def program(self, rank: int, work: float) -> Sequence[Instruction]:
        """Return the instructions of one step."""
        stage = rank // (self.ranks // self.stages)
        order = schedule(self.stages, stage, self.micro_batches, self.chunks)
        weight = work * (self.last_stage if stage == self.stages - 1 else 1.0)
        forward = self.compute * weight / (len(order) / 2) / (1 + BACKWARD)
        program: list[Instruction] = []
        for one in order:
            program += self._received(rank, stage, one.chunk, forward=one.forward)
            program += self._computed(rank, forward if one.forward else forward * BACKWARD, forward=one.forward)
            program += self._sent(rank, stage, one.chunk, forward=one.forward)
        return [*program, *self._ended(rank, stage), Compute(self.compute * weight * OPTIMIZER)]

    def _received(self, rank: int, stage: int, chunk: int, *, forward: bool) -> list[Instruction]:
        """Return the wait for what the neighbouring stage sends; empty at the end of the pipeline where it begins."""
        if (stage, chunk) == ((0, 0) if forward else (self.stages - 1, self.chunks - 1)):
            return []
        column = self.ranks // self.stages
        name, sender = (
            ("activations", (stage - 1) % self.stages) if forward else ("gradients", (stage + 1) % self.stages)
        )
        return [
            Run(self._index[f"{name} {sender}", rank % column + sender * column], "SendRecv", self.activation_bytes)
        ]

    def _sent(self, rank: int, stage: int, chunk: int, *, forward: bool) -> list[Instruction]:
        """Return the sending to the neighbouring stage, which does not block."""
        if (stage, chunk) == ((self.stages - 1, self.chunks - 1) if forward else (0, 0)):
            return []
        name = "activations" if forward else "gradients"
        return [Start(self._index[f"{name} {stage}", rank], "SendRecv", self.activation_bytes)]

    def _computed(self, rank: int, seconds: float, *, forward: bool) -> list[Instruction]:
        """Return a pass with the collectives that block in it."""
        program: list[Instruction] = []
        for number in range(self.tensor_collectives):
            gather = (number % 2 == 0) == forward
            kind = ("AllGather" if gather else "ReduceScatter") if self.sequence_parallel else "AllReduce"
            size = self.tensor_bytes // (self.tensor if self.sequence_parallel else 1)
            if ("context", rank) in self._index:
                size_of_context = self.tensor_bytes // self.context
                context_kind = "AllGather" if forward else "ReduceScatter"
                program.append(Run(self._index["context", rank], context_kind, size_of_context))
            if ("expert", rank) in self._index:
                group = self._index["expert", rank]
                half = Compute(seconds / self.tensor_collectives / 2)
                program += [half, Run(group, "AlltoAll", self.tensor_bytes), half]
                program.append(Run(group, "AlltoAll", self.tensor_bytes))
            else:
                program.append(Compute(seconds / self.tensor_collectives))
            if ("tensor", rank) in self._index:
                program.append(Run(self._index["tensor", rank], kind, size))
        return program

    def _ended(self, rank: int, stage: int) -> list[Instruction]:
        """Return the end of a step: gradients, tied embeddings, norm of the gradients, parameters."""
        program: list[Instruction] = []
        data = self._index.get(("data", rank))
        part = self.gradient_bytes // (self.data * self.context)
        if data is not None:
            program.append(Run(data, "ReduceScatter", part))
        if ("embedding", rank) in self._index and stage in (0, self.stages - 1):
            program.append(Run(self._index["embedding", rank], "AllReduce", self.gradient_bytes // 4))
        program.append(Run(self._index["all", rank], "AllReduce", 4))
        if data is not None:
            program += [Start(data, "AllGather", part, "parameters"), Wait("parameters")]
        return program
