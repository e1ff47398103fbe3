"""A training job for tests: DDP, FSDP or a pipeline of torch with gloo, whose layers sleep as if they computed.

Needs torch, torchrun's environment variables, and `fabric_timing.py` on the path; nothing else of the project. The
argument is one of LAYOUTS. LATE_RANK takes LATE_SHARE longer for all that it computes, in each LATE_EACH-th step. It
runs until it is ended.
"""

import os
import sys
import time
from random import Random

import fabric_timing
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH = 256
"""Elements of four bytes; a layer has the square of it, 256 KiB: too little for a verdict on the network, which is the
memory of this machine and as slow as it is busy."""

LAYERS = 6
FORWARD, BACKWARD = 0.06, 0.14
"""Seconds of a layer: long, for a machine that is busy delays processes by some hundredths of a second."""

NOISE = 0.02
"""By how much these differ, from layer to layer and rank to rank: standard deviation, as a share."""

STAGES, MICRO_BATCHES = 2, 4


class Pace:
    """How long this rank computes."""

    def __init__(self):
        """Read the fault from the environment."""
        self._chance = Random(os.environ["RANK"])
        self._is_late = os.environ.get("LATE_RANK") == os.environ["RANK"]
        self._share = float(os.environ.get("LATE_SHARE", "0"))
        self._each = int(os.environ.get("LATE_EACH", "1"))
        self._overslept = 0.0
        self.step = 0

    def compute(self, seconds):
        """Sleep for about this long; longer in the late steps of the late rank.

        A busy machine wakes a process late. That is made up for by the next sleep: the fault is the only late rank.
        """
        late = self._share if self._is_late and self.step % self._each == 0 else 0.0
        wanted = seconds * (1 + late) * self._chance.gauss(1.0, NOISE)
        asked = max(0.0, wanted - self._overslept)
        began = time.monotonic()
        time.sleep(asked)
        self._overslept = time.monotonic() - began - asked


class Computing(torch.autograd.Function):
    """The identity, which takes time in both passes."""

    @staticmethod
    def forward(context, values, pace, share):
        """Sleep."""
        context.pace, context.share = pace, share
        pace.compute(share * FORWARD)
        return values.view_as(values)

    @staticmethod
    def backward(context, gradients):
        """Sleep."""
        context.pace.compute(context.share * BACKWARD)
        return gradients, None, None


class Layer(torch.nn.Module):
    """A linear layer that takes time before its gradients are ready."""

    def __init__(self, pace, share=1.0):
        """Create the layer; `share` is that of the time of a layer."""
        super().__init__()
        self._pace, self._share = pace, share
        self.linear = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, values):
        """Compute."""
        return Computing.apply(self.linear(values), self._pace, self._share)


def ddp(pace):
    """Return a step of DistributedDataParallel, each layer a bucket that is reduced while the pass continues."""
    model = DistributedDataParallel(torch.nn.Sequential(*(Layer(pace) for _ in range(LAYERS))), bucket_cap_mb=0.25)
    if "COMM_HOOK" not in os.environ:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    return lambda: model(torch.ones(1, WIDTH)).sum().backward()


def fsdp(pace):
    """Return a step of FSDP: layers are gathered before they are used, and gradients reduced after each."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = [fully_shard(Layer(pace), mesh=mesh) for _ in range(LAYERS)]
    model = fully_shard(torch.nn.Sequential(*layers), mesh=mesh)
    return lambda: model(torch.ones(1, WIDTH)).sum().backward()


def pipeline(pace):
    """Return a step of a pipeline with replicas: all forward passes, then all backward passes, then gradients."""
    rank, replicas = dist.get_rank(), dist.get_world_size() // STAGES
    stage, replica = divmod(rank, replicas)
    columns = [dist.new_group([one * replicas + other for one in range(STAGES)]) for other in range(replicas)]
    rows = [dist.new_group([one * replicas + other for other in range(replicas)]) for one in range(STAGES)]
    column, row = columns[replica], rows[stage]
    before = rank - replicas if stage else None
    after = rank + replicas if stage < STAGES - 1 else None
    layers = torch.nn.Sequential(*(Layer(pace, 1 / MICRO_BATCHES) for _ in range(LAYERS)))

    def step():
        passes = []
        for _ in range(MICRO_BATCHES):
            values = torch.ones(1, WIDTH, requires_grad=True)
            if before is not None:
                dist.recv(values.data, before, group=column)
            result = layers(values)
            if after is not None:
                dist.send(result.detach(), after, group=column)
            passes.append((values, result))
        for values, result in passes:
            gradients = torch.ones(1, WIDTH)
            if after is not None:
                dist.recv(gradients, after, group=column)
            result.backward(gradients)
            if before is not None:
                dist.send(values.grad, before, group=column)
        for one in layers.parameters():
            dist.all_reduce(one.grad, group=row)

    return step


LAYOUTS = {"ddp": ddp, "fsdp": fsdp, "pipeline": pipeline}


def main():
    """Run steps for ever."""
    fabric_timing.watch()
    dist.init_process_group("gloo")
    pace = Pace()
    step = LAYOUTS[sys.argv[1]](pace)
    while True:
        step()
        pace.step += 1
        fabric_timing.step()


main()
