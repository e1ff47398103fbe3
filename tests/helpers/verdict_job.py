"""A training job for tests: each step computes for a while (it sleeps) and then sums some megabytes over all ranks.

Run by torchrun's environment variables with the file `fabric_timing.py` on the path; needs torch and nothing of ours.
LATE_RANK computes for LATE_SECONDS longer, STOPS_RANK for good after STOPS_AFTER steps; the file STOP ends the job.
"""

import os
import time
from pathlib import Path

import fabric_timing
import torch
import torch.distributed as dist

COMPUTE = 0.03
ELEMENTS = 256 * 1024
"""Of four bytes each: a MiB."""


def main():
    """Train nothing until the file is there; rank 0 looks, and tells the others in the sum."""
    fabric_timing.watch()
    dist.init_process_group("gloo")
    late = float(os.environ["LATE_SECONDS"]) if os.environ.get("LATE_RANK") == os.environ["RANK"] else 0.0
    steps = int(os.environ["STOPS_AFTER"]) if os.environ.get("STOPS_RANK") == os.environ["RANK"] else 0
    stop = Path(os.environ["STOP"])
    gradients = torch.zeros(ELEMENTS)
    while gradients[0] == 0:
        time.sleep(COMPUTE + late)
        steps -= 1
        while steps == 0 and not stop.exists():
            time.sleep(COMPUTE)
        gradients[0] = float(dist.get_rank() == 0 and stop.exists())
        dist.all_reduce(gradients)
        fabric_timing.step()
    fabric_timing.flush()
    dist.destroy_process_group()


main()
