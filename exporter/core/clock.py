"""The clocks of a program, for what must not read them itself: simulations let them advance faster than real time."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """The clocks of a program.

    Attributes:
        monotonic: Returns seconds for intervals and ages; times of tables are of this clock.
        unix: Returns Unix time, which is exported and published.
    """

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time


REAL_TIME = Clock()
"""The clocks of the machine."""
