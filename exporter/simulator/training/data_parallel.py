"""Data parallelism: DDP and FSDP.

Gradients of all ranks are summed in buckets while the backward pass goes on (DDP), or parameters are gathered layer by
layer ahead of their use and gradients scattered behind it (FSDP, ZeRO stage 3).

Both wait for a collective only when its result is needed, so a late rank costs only the part of its lateness that is
left at that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from exporter.simulator.training.programs import (
    CommunicatorLayout,
    Compute,
    Instruction,
    Start,
    Wait,
    nodes_of,
)

FORWARD = 1 / 3
"""Share of the computing that is the forward pass."""

OPTIMIZER = 0.03
"""Computing of the optimizer over that of both passes."""


@dataclass(frozen=True)
class DistributedDataParallel:
    """DDP of PyTorch: one AllReduce for each bucket of gradients, started when the bucket is complete.

    Attributes:
        ranks: Number of ranks.
        compute: Seconds of computing of one step.
        buckets: Buckets of gradients.
        bucket_bytes: Bytes of a bucket.
        gpus_per_node: GPUs of each node.
    """

    ranks: int
    compute: float = 0.4
    buckets: int = 12
    bucket_bytes: int = 25 << 20
    gpus_per_node: int = 8

    @cached_property
    def communicators(self) -> Sequence[CommunicatorLayout]:
        """One of all ranks."""
        everyone = tuple(range(self.ranks))
        return [CommunicatorLayout(everyone, nodes_of(everyone, self.gpus_per_node))]

    def program(self, rank: int, work: float) -> Sequence[Instruction]:
        """Return the instructions of one step."""
        del rank
        seconds = self.compute * work
        program: list[Instruction] = [Compute(seconds * FORWARD)]
        for bucket in range(self.buckets):
            program.append(Compute(seconds * (1 - FORWARD) / self.buckets))
            program.append(Start(0, "AllReduce", self.bucket_bytes, f"bucket {bucket}"))
        program += [Wait(f"bucket {bucket}") for bucket in range(self.buckets)]
        program.append(Compute(seconds * OPTIMIZER))
        return program


@dataclass(frozen=True)
class FullyShardedDataParallel:
    """FSDP of PyTorch: AllGather of each layer's parameters one layer ahead, ReduceScatter of its gradients behind.

    Attributes:
        ranks: Number of ranks.
        compute: Seconds of computing of one step.
        layers: Layers.
        layer_bytes: Bytes of the parameters of a layer, of all ranks together.
        gpus_per_node: GPUs of each node.
    """

    ranks: int
    compute: float = 1.2
    layers: int = 24
    layer_bytes: int = 400 << 20
    gpus_per_node: int = 8

    @cached_property
    def communicators(self) -> Sequence[CommunicatorLayout]:
        """One of all ranks."""
        everyone = tuple(range(self.ranks))
        return [CommunicatorLayout(everyone, nodes_of(everyone, self.gpus_per_node))]

    def program(self, rank: int, work: float) -> Sequence[Instruction]:
        """Return the instructions of one step."""
        del rank
        part = self.layer_bytes // self.ranks
        seconds = self.compute * work
        forward = seconds * FORWARD / self.layers
        backward = seconds * (1 - FORWARD) / self.layers
        program: list[Instruction] = [Start(0, "AllGather", part, "forward 0")]
        for layer in range(self.layers):
            if layer + 1 < self.layers:
                program.append(Start(0, "AllGather", part, f"forward {layer + 1}"))
            program += [Wait(f"forward {layer}"), Compute(forward)]
        last = self.layers - 1
        program.append(Start(0, "AllGather", part, f"backward {last}"))
        for layer in range(last, -1, -1):
            if layer:
                program.append(Start(0, "AllGather", part, f"backward {layer - 1}"))
            program += [Wait(f"backward {layer}"), Compute(backward)]
            program.append(Start(0, "ReduceScatter", part, f"gradients {layer}"))
        program += [Wait(f"gradients {layer}") for layer in range(self.layers)]
        program.append(Compute(seconds * OPTIMIZER))
        return program
