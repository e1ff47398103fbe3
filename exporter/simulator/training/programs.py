"""Programs of ranks: what a training process puts on the streams of its GPU in one step.

A rank computes on one stream. A collective is started from there and runs on the stream of its communicator, in the
order of the starts; computing goes on until the program waits for it. Whether waiting in a collective costs time is
therefore decided by where the program waits, not by the collective.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Compute(NamedTuple):
    """Compute for some seconds, as long as an undisturbed GPU takes."""

    seconds: float


class Start(NamedTuple):
    """Start a collective when the computing stream gets here.

    Attributes:
        communicator: Index of the communicator in the job.
        kind: NCCL's name of the operation.
        size: Bytes that one rank passes in.
        label: Name by which the program waits for it, unique within the step; empty if it never does.
    """

    communicator: int
    kind: str
    size: int
    label: str = ""


class Wait(NamedTuple):
    """Let the computing stream wait for the end of a collective."""

    label: str


class Run(NamedTuple):
    """Start a collective and wait for its end: a blocking one."""

    communicator: int
    kind: str
    size: int


Instruction = Compute | Start | Wait | Run


@dataclass(frozen=True, slots=True)
class CommunicatorLayout:
    """Members of a communicator, by world rank, and the number of nodes that they are on."""

    members: tuple[int, ...]
    nodes: int


class Layout(Protocol):
    """A kind of parallelism: the communicators of a job, and the program of each rank."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    def communicators(self) -> Sequence[CommunicatorLayout]:
        """The communicators; programs refer to them by index."""

    def program(self, rank: int, work: float) -> Sequence[Instruction]:
        """Return the instructions of one step.

        Args:
            rank: World rank.
            work: Factor of the work of this rank in this step, 1 for the usual amount.
        """


def nodes_of(members: Sequence[int], gpus_per_node: int) -> int:
    """Return the number of nodes of some world ranks, which fill one node after the other."""
    return len({rank // gpus_per_node for rank in members})


def grouped(
    ranks: int, sizes: Sequence[int], dimensions: Sequence[int], gpus_per_node: int
) -> list[CommunicatorLayout]:
    """Return the communicators along some dimensions of a grid of ranks.

    Args:
        ranks: Number of ranks: the product of all sizes.
        sizes: Size of each dimension, the one whose ranks are adjacent first.
        dimensions: Dimensions in which the members of one communicator differ.
        gpus_per_node: GPUs of each node.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(ranks):
        rest, place = rank, []
        for dimension, size in enumerate(sizes):
            rest, coordinate = divmod(rest, size)
            place.append(-1 if dimension in dimensions else coordinate)
        groups.setdefault(tuple(place), []).append(rank)
    return [CommunicatorLayout(tuple(found), nodes_of(found, gpus_per_node)) for found in groups.values()]
