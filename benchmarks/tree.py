"""A tree of /sys/class/infiniband in the shape of a host with eight InfiniBand ports and one of Ethernet: 450 files."""

import random
from pathlib import Path

from exporter.sources.rdma.counter_files import PMA
from exporter.sources.rdma.drivers.mlx5 import MLX5

ABSENT = ("np_", "rp_", "cc_", "rdma_", "req_transport_retries_exceeded", "req_rnr_retries_exceeded")
"""How counters begin that an InfiniBand port of an older kernel lacks."""


def make(folder: Path, seed: int = 1) -> int:
    """Write the tree below `folder`, to be given as `--path.sysfs`; return the number of files of ports."""
    draw = random.Random(seed)
    names = [name for one in MLX5.port for name in one.names]
    counters = [path for counter in PMA for path in counter.files]
    counters += [f"hw_counters/{name}" for name in names if not name.startswith(ABSENT)]
    written = 0
    for number in range(9):
        ethernet = number == 8
        device = folder / "class" / "infiniband" / ("mlx5_bond_0" if ethernet else f"mlx5_{number}")
        port = device / "ports" / "1"
        for name in ("counters", "hw_counters"):
            (port / name).mkdir(parents=True)
        texts = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "200 Gb/sec (2X NDR)" if ethernet else "400 Gb/sec (4X NDR)",
            "link_layer": "Ethernet" if ethernet else "InfiniBand",
            "hw_counters/lifespan": "10",
            **{path: str(draw.randrange(2**50 if path.endswith("_data") else 2**20)) for path in counters},
        }
        for path, text in texts.items():
            (port / path).write_text(f"{text}\n")
            written += not path.endswith("lifespan")  # a setting, which is not read
        for name, text in {"hca_type": "MT4129", "fw_ver": "28.41.1000", "board_id": "MT_0000000838"}.items():
            (device / name).write_text(f"{text}\n")
    return written
