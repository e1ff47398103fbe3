"""A training job for tests, of a few gloo processes: one rank is late in each step.

Needs torch, torchrun's environment variables, and `fabric_timing.py` on the path; nothing else of the project.
"""

import os
import time

import fabric_timing
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

STEPS = 25
LATE = 2
SECONDS = 0.04


def main():
    """Run collectives of several kinds, in a communicator of all ranks and in one of each half."""
    fabric_timing.watch()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group(list(range(world))[half::2]) for half in (0, 1)]
    one, gathered = torch.ones(1000), torch.ones(1000 * world)
    compiled = torch.compile(reduced, backend="eager", fullgraph=True) if os.environ.get("COMPILE") else None
    for _ in range(STEPS):
        if rank == LATE:
            time.sleep(SECONDS)
        dist.all_reduce(one)
        dist.all_reduce(one, group=halves[rank % 2], async_op=True).wait()
        dist.all_gather_into_tensor(gathered, one)
        dist.broadcast(one, 0)
        if compiled is not None:
            compiled(one)
        fabric_timing.step(tokens=4096)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10, bias=False))
    if rank == 0:
        print(dist.all_reduce.fabric_timing.__name__)  # noqa: T201  # a test reads it
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    model(torch.ones(1, 10)).sum().backward()
    fabric_timing.flush()
    dist.destroy_process_group()


def reduced(tensor):
    """Reduce, to be compiled."""
    dist.all_reduce(tensor)
    return tensor * 2


main()
