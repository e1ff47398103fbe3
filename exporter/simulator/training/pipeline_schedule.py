"""Schedules of pipeline parallelism as Megatron-LM runs them: one forward, one backward; plain or interleaved.

With interleaving each stage holds several chunks of layers, and a micro-batch passes all stages once for each chunk.
"""

from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of a micro-batch through a chunk of a stage."""

    forward: bool
    micro_batch: int
    chunk: int


def schedule(stages: int, stage: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """Return the passes of a stage in their order.

    Args:
        stages: Number of stages.
        stage: Number of the stage.
        micro_batches: Micro-batches of a step; with several chunks a multiple of the stages.
        chunks: Chunks of layers of each stage.
    """
    total = micro_batches * chunks
    if chunks == 1:
        warm_up = min(stages - stage - 1, total)
    else:
        warm_up = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    order = [_pass(stages, one, chunks, forward=True) for one in range(warm_up)]
    for one in range(total - warm_up):
        order.append(_pass(stages, warm_up + one, chunks, forward=True))
        order.append(_pass(stages, one, chunks, forward=False))
    return order + [_pass(stages, one, chunks, forward=False) for one in range(total - warm_up, total)]


def _pass(stages: int, number: int, chunks: int, *, forward: bool) -> Pass:
    """Return the pass with a number: the chunk changes after as many micro-batches as there are stages."""
    if chunks == 1:
        return Pass(forward, number, 0)
    group, place = divmod(number, stages * chunks)
    chunk, micro_batch = divmod(place, stages)
    return Pass(forward, group * stages + micro_batch, chunk if forward else chunks - 1 - chunk)
