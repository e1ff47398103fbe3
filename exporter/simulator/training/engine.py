"""Execution of the programs of all ranks: when each collective starts on each rank, and when it ends.

A collective starts on a rank when the program has reached it and the stream of its communicator is free. It ends on all
ranks together, a transfer time after the last one started it. That is all that makes ranks wait for each other.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.simulator.training.programs import CommunicatorLayout, Compute, Instruction, Run, Start, Wait

NEVER = math.inf


class Ended(NamedTuple):
    """A collective that ended, or never will.

    Attributes:
        communicator: Index of the communicator.
        kind: Kind of the operation.
        sequence: Number among those of its kind in the communicator, from 0.
        size: Bytes that one rank passes in.
        starts: Time at which it started, by rank; without those that never started it.
        end: Time at which it ended, or NEVER.
        enqueued: Time at which the process of each rank put it on the stream.
        reached: Time at which the program of each rank reached it: that of its start, unless it was queued.
    """

    communicator: int
    kind: str
    sequence: int
    size: int
    starts: dict[int, float]
    end: float
    enqueued: dict[int, float]
    reached: dict[int, float]


@dataclass(frozen=True, slots=True)
class Machine:
    """Programs and how long their parts take, on the hardware of this run.

    Attributes:
        program: Returns the program of a rank for a step, by rank, step and time at which it begins; an empty one ends
            the rank.
        compute: Returns the seconds that computing takes, by rank, time and undisturbed seconds; NEVER for a rank that
            hangs.
        transfer: Returns the seconds from the last start of a collective to its end, by communicator, kind, size and
            time; NEVER where the network is gone.
    """

    program: Callable[[int, int, float], Sequence[Instruction]]
    compute: Callable[[int, float, float], float]
    transfer: Callable[[int, str, int, float], float]


@dataclass(slots=True, eq=False)
class _Operation:
    communicator: int
    kind: str
    sequence: int
    size: int
    missing: int
    starts: dict[int, float] = field(default_factory=dict)
    enqueued: dict[int, float] = field(default_factory=dict)
    reached: dict[int, float] = field(default_factory=dict)
    end: float | None = None


@dataclass(slots=True)
class _Stream:
    """Stream of a communicator on one rank.

    Attributes:
        running: The collective that runs.
        queued: Those behind it.
        free: Time at which the last one ended.
        begun: Number of collectives started, by kind.
    """

    running: _Operation | None = None
    queued: deque[_Operation] = field(default_factory=deque)
    free: float = 0.0
    begun: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Rank:
    """Place of a rank in its program.

    Attributes:
        time: Time of the computing stream.
        step: Number of steps done.
        step_began: Time at which the step began.
        enqueued: Time at which the process put the step on the streams: it is one step ahead of the GPU.
        labels: Collectives of this step by label; the one of a `Run` that was reached has an empty label.
        awaits: The collective that the program waits for.
    """

    number: int
    program: Sequence[Instruction] = ()
    position: int = 0
    time: float = 0.0
    step: int = 0
    step_began: float = 0.0
    enqueued: float = 0.0
    labels: dict[str, _Operation] = field(default_factory=dict)
    awaits: _Operation | None = None


class Execution:
    """Runs the programs of all ranks of a job.

    Attributes:
        steps: Times at which rank 0 completed each step.
    """

    def __init__(self, communicators: Sequence[CommunicatorLayout], machine: Machine, ranks: int, begin: float) -> None:
        """Create an execution in which nothing has run.

        Args:
            communicators: Communicators of the job.
            machine: Programs and how long their parts take.
            ranks: Number of ranks.
            begin: Time at which all ranks begin.
        """
        self.steps: list[float] = []
        self._communicators, self._machine = communicators, machine
        self._ranks = [_Rank(number, time=begin, step_began=begin, enqueued=begin) for number in range(ranks)]
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._open: dict[tuple[int, str, int], _Operation] = {}
        self._done: list[_Operation] = []

    def run(self, until: float) -> Iterator[Ended]:
        """Yield collectives as they end, up to a time; then those that did not end, with the end NEVER."""
        ready = list(self._ranks)
        while ready:
            waiting = []
            for rank in ready:
                self._advance(rank, until)
            done, self._done = self._done, []
            yield from map(_ended, done)
            for operation in done:
                for number in operation.starts:
                    rank = self._ranks[number]
                    if rank.awaits is operation:
                        rank.awaits = None
                        waiting.append(rank)
            ready = waiting
        yield from map(_ended, self._open.values())

    def _advance(self, rank: _Rank, until: float) -> None:
        """Run a rank until it waits for a collective that has not ended, or the time is over."""
        while rank.time < until:
            if rank.position >= len(rank.program):
                if not self._next_step(rank):
                    return
                continue
            instruction = rank.program[rank.position]
            if type(instruction) is Compute:
                rank.time += self._machine.compute(rank.number, rank.time, instruction.seconds)
            elif type(instruction) is Start:
                operation = self._start(rank, instruction.communicator, instruction.kind, instruction.size)
                if instruction.label:
                    rank.labels[instruction.label] = operation
            else:
                operation = self._awaited(rank, instruction)
                if operation.end is None:
                    rank.awaits = operation
                    return
                rank.time = max(rank.time, operation.end)
                rank.labels.pop("", None)
            rank.position += 1

    def _awaited(self, rank: _Rank, instruction: Instruction) -> _Operation:
        """Return the collective that an instruction waits for; one that blocks is started when it is first reached."""
        if type(instruction) is Run:
            operation = rank.labels.get("")
            if operation is None:
                operation = self._start(rank, instruction.communicator, instruction.kind, instruction.size)
                rank.labels[""] = operation
            return operation
        assert type(instruction) is Wait  # noqa: S101  # the other kinds were handled
        return rank.labels[instruction.label]

    def _next_step(self, rank: _Rank) -> bool:
        if rank.program:
            rank.step += 1
            rank.enqueued = rank.step_began
            if rank.number == 0:
                self.steps.append(rank.time)
        rank.step_began = rank.time
        rank.program = self._machine.program(rank.number, rank.step, rank.time)
        rank.position = 0
        rank.labels.clear()
        return bool(rank.program)

    def _start(self, rank: _Rank, communicator: int, kind: str, size: int) -> _Operation:
        stream = self._streams.get((rank.number, communicator))
        if stream is None:
            stream = self._streams[rank.number, communicator] = _Stream()
        sequence = stream.begun.get(kind, 0)
        stream.begun[kind] = sequence + 1
        operation = self._open.get((communicator, kind, sequence))
        if operation is None:
            members = len(self._communicators[communicator].members)
            operation = self._open[communicator, kind, sequence] = _Operation(
                communicator, kind, sequence, size, members
            )
        operation.enqueued[rank.number] = rank.enqueued
        operation.reached[rank.number] = rank.time
        if stream.running is None:
            stream.running = operation
            self._begin(operation, rank.number, max(rank.time, stream.free))
        else:
            stream.queued.append(operation)
        return operation

    def _begin(self, operation: _Operation, number: int, time: float) -> None:
        """Let a collective start on a rank; on the last of its ranks, end it, and let those behind it start."""
        todo = [(operation, number, time)]
        while todo:
            operation, number, time = todo.pop()
            operation.starts[number] = time
            operation.missing -= 1
            if operation.missing:
                continue
            last = max(operation.starts.values())
            took = self._machine.transfer(operation.communicator, operation.kind, operation.size, last)
            if took == NEVER:
                continue
            operation.end = last + took
            del self._open[operation.communicator, operation.kind, operation.sequence]
            self._done.append(operation)
            for member in operation.starts:
                stream = self._streams[member, operation.communicator]
                stream.free, stream.running = operation.end, None
                if stream.queued:
                    behind = stream.running = stream.queued.popleft()
                    todo.append((behind, member, max(behind.reached[member], operation.end)))


def _ended(operation: _Operation) -> Ended:
    end = NEVER if operation.end is None else operation.end
    return Ended(
        operation.communicator,
        operation.kind,
        operation.sequence,
        operation.size,
        operation.starts,
        end,
        operation.enqueued,
        operation.reached,
    )
