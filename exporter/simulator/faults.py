"""What can be wrong with the simulated cluster: names, and what each does. Apart, so that `--help` loads no more."""

FAULTS = {
    "degraded-link": "rail 3 of gpu-001 came up at 100 instead of 400 Gb/s, and all ranks wait for it",
    "link-down": "rail 6 of gpu-001 is down, the other seven carry its share",
    "pause-storm": "leaf-02 pauses priority 3 of rail 4 of gpu-001 for most of the time",
    "imbalance": "rail 0 of gpu-001 carries half as much again as each other rail",
    "straggler": "rank 5 comes late to every collective",
    "switch-silent": "leaf-01 does not answer",
}

DEGRADED_RAIL = 3
DOWN_RAIL = 6
PAUSED_RAIL = 4
BUSY_RAIL = 0
LATE_RANK = 5
