"""Jobs whose parts do not wait for each other: replicas that exchange parameters every few hours, actors and learners.

Each part is a layout of its own; ranks are numbered part by part, and the parts have no communicator in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from exporter.simulator.training.programs import CommunicatorLayout, Compute, Instruction, Layout, Wait, nodes_of


@dataclass(frozen=True)
class Islands:
    """Several layouts in one job.

    Attributes:
        parts: The layouts; each fills whole nodes.
        gpus_per_node: GPUs of each node.
    """

    parts: Sequence[Layout]
    gpus_per_node: int = 8

    @property
    def ranks(self) -> int:
        """Number of ranks of all parts."""
        return sum(one.ranks for one in self.parts)

    @cached_property
    def communicators(self) -> Sequence[CommunicatorLayout]:
        """The communicators of all parts, one part after the other."""
        found = []
        first = 0
        for part in self.parts:
            for one in part.communicators:
                members = tuple(first + member for member in one.members)
                found.append(CommunicatorLayout(members, nodes_of(members, self.gpus_per_node)))
            first += part.ranks
        return found

    def program(self, rank: int, work: float) -> Sequence[Instruction]:
        """Return the instructions of one step of the rank's part."""
        before = 0
        for part in self.parts:
            if rank < part.ranks:
                return [_moved(one, before) for one in part.program(rank, work)]
            rank -= part.ranks
            before += len(part.communicators)
        raise ValueError(f"rank is {rank} above the last one")


def _moved(instruction: Instruction, before: int) -> Instruction:
    """Return an instruction with the index of its communicator among those of all parts."""
    if isinstance(instruction, Compute | Wait):
        return instruction
    return instruction._replace(communicator=instruction.communicator + before)
