"""Faults of the simulated cluster: names and descriptions. A module of its own, so that `--help` imports no more."""

from types import MappingProxyType

FAULTS = MappingProxyType(
    {
        "degraded-link": "rail 3 of gpu-001 came up at 100 instead of 400 Gb/s, and all ranks wait for it",
        "link-down": "rail 6 of gpu-001 is down, the other seven carry its share",
        "flapping-link": "rail 1 of gpu-001 goes down every 20 s and comes up again",
        "missing-port": "rail 7 of gpu-001 fell off its PCIe bus: NIC and RDMA port are gone",
        "slow-pcie": "rail 5 of gpu-001 has half its PCIe lanes at half speed, so that it pauses leaf-02",
        "dirty-optic": "rail 2 of gpu-001 receives too little power on one lane and has to retransmit lost packets",
        "pause-storm": "leaf-02 pauses priority 3 of rail 4 of gpu-001 for most of the time",
        "imbalance": "rail 0 of gpu-001 carries one and a half times the traffic of each other rail",
        "straggler": "rank 5 is late in every collective",
        "switch-silent": "leaf-01 does not answer",
    }
)

RAILS = MappingProxyType(
    {
        "imbalance": 0,
        "flapping-link": 1,
        "dirty-optic": 2,
        "degraded-link": 3,
        "pause-storm": 4,
        "slow-pcie": 5,
        "link-down": 6,
        "missing-port": 7,
    }
)
"""The rail of a fault; the other faults are on none."""

LATE_RANK = 5
