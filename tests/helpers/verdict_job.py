"""A training job for tests: each step sleeps, as if it computed, and then sums a megabyte over all ranks.

Needs torch, torchrun's environment variables, and `fabric_timing.py` on the path; nothing else of the project.
LATE_RANK sleeps LATE_SECONDS longer, STOPS_RANK stops after STOPS_AFTER steps; the file STOP ends the job.
"""

import os
import time
from pathlib import Path

import fabric_timing
import torch
import torch.distributed as dist

COMPUTE = 0.03
ELEMENTS = 256 * 1024
"""Elements of four bytes: a MiB."""


def main():
    """Run steps until the file exists; rank 0 checks, and the others read it from the sum."""
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
