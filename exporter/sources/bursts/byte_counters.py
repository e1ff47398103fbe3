"""The files in which a port counts its bytes, by driver: data."""

import os
from typing import NamedTuple

from exporter.sources.rdma.counter_files import counter_alternatives
from exporter.sources.rdma.drivers import DRIVERS


class ByteCounters(NamedTuple):
    """Files of a port's byte counters.

    Attributes:
        receive: Files whose values are added up.
        transmit: Likewise.
        factor: Bytes per unit of the values.
        commands: Firmware commands that one read of all takes.
        lifespan: File with the milliseconds for which the kernel caches the values; empty if they are not cached.
    """

    receive: tuple[str, ...]
    transmit: tuple[str, ...]
    factor: int = 1
    commands: int = 1
    lifespan: str = "hw_counters/lifespan"

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files, those of `receive` first."""
        return [f"{folder}/{name}" for name in (*self.receive, *self.transmit)]

    def exist_in(self, folder: str) -> bool:
        """Return whether a port has all of the files."""
        return all(map(os.path.exists, self.files(folder)))


PMA = ByteCounters(("counters/port_rcv_data",), ("counters/port_xmit_data",), factor=4, commands=2, lifespan="")
"""Used by every port that has the folder: each file is a command of its own, and counts words of four octets."""

HW_COUNTER_DRIVERS = ("efa", "erdma", "i40e", "ice", "ionic", "mana")
"""Drivers without that folder that count bytes: the first file read fetches all of `hw_counters/` from the device.

hns3 and rdma_rxe have no byte counters.
"""

SLOW_DRIVERS = frozenset({"bnxt_en"})
"""Drivers that are not sampled, whatever folders they have: their values are older than a tick.

The device of bnxt_re writes its counters to memory once a second (drivers/infiniband/hw/bnxt_re/main.c,
update_period_ms). If two such writes fall into one tick and none into the next, the samples would show a burst that did
not happen.
"""


def byte_counters(driver: str) -> tuple[ByteCounters, ...]:
    """Return the byte counters that ports of a driver may have; the first ones that exist are used."""
    if driver in SLOW_DRIVERS:
        return ()
    if driver not in HW_COUNTER_DRIVERS:
        return (PMA,)
    alternatives = {ways[0].spec.ending: ways for ways in counter_alternatives(DRIVERS[driver].port)}
    pairs = zip(alternatives["receive_bytes_total"], alternatives["transmit_bytes_total"], strict=True)
    return (PMA, *(ByteCounters(received.files, transmitted.files) for received, transmitted in pairs))
