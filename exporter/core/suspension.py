"""How long the machine was suspended, in which no monotonic time passes but switches go on counting."""

import time

SHORTEST = 0.1
"""Seconds of a suspension; less is the time between the readings of two clocks."""


def suspended_seconds() -> float:
    """Return how long the machine has been suspended since it was booted (CLOCK_BOOTTIME of clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
