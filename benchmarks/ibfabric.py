"""A sweep of an InfiniBand fabric, beside Debian's `ibqueryerrors` and `perfquery`; the fabric is simulated by `ibsim`.

Ours reads data and errors of every port, and the state of every link; `ibqueryerrors` discovers the fabric at each
run, reads the errors of every port, and data of those alone that have errors. All ask the same simulator, one after the
other; the ceiling of datagrams a second, which the peers lack, is off.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from exporter.linux.mad import umad
from exporter.linux.mad.window import RequestLimits, RequestWindow
from exporter.sources.ibfabric.sweep import CounterSelection, Sweeper
from exporter.sources.ibfabric.tables import FabricTables

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package tests, and for this file run as a program

from measure import Figure, Limit, peer  # isort: skip
from tests.helpers.ibsim import Simulator, fat_tree, simulator

NETS = {108: (6, 18, 6), 1008: (56, 18, 18)}
"""By the number of adapters: leaves, adapters of each, spines."""

SWEEPS = 7
PEER_RUNS = 5
SAMPLE = 20
"""Ports that perfquery is run for."""

ERRORS = ("ibqueryerrors", "--data", "--details", "--report-port", "--switch", "--ca")


class Ours(NamedTuple):
    """Cost of sweeps: wall and CPU seconds, ports and datagrams of one sweep, and MiB of the process."""

    discovery: float
    wall: float
    cpu: float
    tables: float
    ports: int
    datagrams: int
    resident: float


def sweeps() -> None:
    """Sweep from this host of the fabric, and print the cost."""
    local = umad.select_port(umad.local_ports(), "", None)
    port = umad.UmadPort(local.device, local.number)
    window = RequestWindow(port, RequestLimits(per_second=1e9))
    sweeper, tables = Sweeper(window, CounterSelection(), 1e9), FabricTables(CounterSelection())
    begun = time.perf_counter()
    sweeper.discover()
    discovered = time.perf_counter() - begun
    sweeper.sweep(local)  # the first also reads ClassPortInfo
    walls, cpus, made = [], [], []
    for _ in range(SWEEPS):
        sent, begun, used = window.counts.sent, time.perf_counter(), time.process_time()
        result = sweeper.sweep(local)
        walls.append(time.perf_counter() - begun)
        cpus.append(time.process_time() - used)
        begun = time.perf_counter()
        tables.make(result)
        made.append(time.perf_counter() - begun)
        datagrams = window.counts.sent - sent
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    ours = Ours(
        discovered,
        statistics.median(walls),
        statistics.median(cpus),
        statistics.median(made),
        len(result.counts),
        datagrams,
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )
    print(json.dumps(ours._asdict()))


def run() -> list[Figure | Limit]:
    """Measure at both sizes."""
    if not all([peer("ibsim"), peer("opensm"), peer("ibqueryerrors"), peer("perfquery")]):
        return []
    found: dict[int, Ours] = {}
    figures: list[Figure | Limit] = []
    for adapters, (leaves, hosts, spines) in NETS.items():
        with simulator(fat_tree(leaves, hosts, spines)) as fabric, fabric.manager():
            fabric.set_counter("Leaf1", 2, "PortCounters.SymbolErrorCounter", 77)
            fabric.set_counter("H3", 1, "PortCounters.PortRcvErrors", 78)
            ours = found[adapters] = Ours(**json.loads(fabric.run(sys.executable, Path(__file__).resolve())))
            errors = statistics.median(_timed(fabric, *ERRORS) for _ in range(PEER_RUNS))
            discover = statistics.median(_timed(fabric, "ibnetdiscover") for _ in range(PEER_RUNS))
            lid = fabric.discover().lid("Leaf1")
            one = statistics.median(_timed(fabric, "perfquery", "-x", lid, port % 18 + 1) for port in range(SAMPLE))
        print(
            f"{adapters} adapters, {ours.ports} ports: a sweep of {ours.datagrams} datagrams {ours.wall * 1e3:.0f} ms,"
            f" {ours.cpu * 1e3:.0f} ms of CPU, {ours.wall / ours.datagrams * 1e6:.0f} µs a datagram; its tables"
            f" {ours.tables * 1e3:.0f} ms; a discovery {ours.discovery * 1e3:.0f} ms; resident {ours.resident:.0f} MiB"
        )
        name = f"{adapters} adapters"
        figures += [
            Figure(f"{name}: one sweep", "ms", ours.wall * 1e3, "ibqueryerrors", errors * 1e3, 1 / 3),
            Figure(f"{name}: a discovery", "ms", ours.discovery * 1e3, "ibnetdiscover", discover * 1e3, 2),
            Figure(f"{name}: one port", "ms", ours.wall / ours.ports * 1e3, "perfquery", one * 1e3, 1 / 50),
        ]
    small, large = found.values()
    print(
        f"growth from {small.ports} to {large.ports} ports, x {large.ports / small.ports:.1f}: CPU of a sweep"
        f" x {large.cpu / small.cpu:.1f}, memory {small.resident:.0f} to {large.resident:.0f} MiB"
    )
    return figures


def _timed(fabric: Simulator, *command: object) -> float:
    """Run a program at a host of the fabric; return its seconds."""
    begun = time.perf_counter()
    subprocess.run(
        [*map(str, command)],
        check=False,  # ibqueryerrors ends with 1 where there are errors
        env=fabric.env(),
        cwd=fabric.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    return time.perf_counter() - begun


if __name__ == "__main__":
    sweeps()
