"""One read of a network device with 7,000 statistics, as a NIC of many queues has, beside node_exporter's scrape."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from measure import Figure, Scraper, cpu_seconds, peer, running

from exporter.linux.nic_reader import KernelNic
from exporter.simulator.monitoring.listening_ports import free_port
from exporter.sources.common.driver_statistics import (
    DriverNames,
    Statistic,
    make_plan,
    sum_values,
)

QUEUES, STATISTICS, READS = 778, 7_000, 100

DEVICE, OTHER = "fabricbench0", "fabricbench1"

NAMES = DriverNames(
    (
        Statistic("receive_discards_total", ("rx_queue_#_drops",)),
        Statistic("kernel_receive_packets_total", ("rx_queue_#_xdp_packets",)),
        Statistic("kernel_receive_bytes_total", ("rx_queue_#_xdp_bytes",)),
    )
)
"""What is wanted of them: three metrics, each the sum of all queues; drivers that are read give fewer places."""


@contextmanager
def device() -> Iterator[bool]:
    """Have a virtual device with so many queues; False where that cannot be had."""
    ip = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    queues = ["numtxqueues", str(QUEUES), "numrxqueues", str(QUEUES)]
    command = [ip or "ip", "link", "add", DEVICE, *queues, "type", "veth", "peer", "name", OTHER, *queues]
    made = ip is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not made:
        print("left out: ethtool needs iproute2, and root that may make network devices")
    try:
        yield made
    finally:
        if made:
            subprocess.run([ip or "ip", "link", "del", DEVICE], check=True)


def _our_reads() -> float:
    """Read, and pick what is wanted; return the CPU seconds of one read after the first, which learns the names."""
    with closing(KernelNic()) as reader:
        names = reader.statistics(DEVICE).names
        if len(names) < STATISTICS:
            raise RuntimeError(f"{DEVICE} has {len(names)} statistics, not {STATISTICS}")
        places = make_plan(NAMES, names)
        began = time.process_time()
        for _ in range(READS):
            found = reader.statistics(DEVICE)
            if found.names is not names or len(sum_values(places.port, found.values)) != len(NAMES.port):
                raise RuntimeError("the names changed")
        return (time.process_time() - began) / READS


def _their_scrapes(program: str) -> float:
    """Return the CPU seconds of one scrape of the same device, which prints all of its statistics."""
    port = free_port()
    collectors = ("--collector.disable-defaults", "--collector.ethtool")
    chosen = f"--collector.ethtool.device-include=^{DEVICE}$"
    with running([program, *collectors, chosen, f"--web.listen-address=127.0.0.1:{port}"]) as process:
        scraper = Scraper(port)
        scraper.wait()
        before = cpu_seconds(process.pid)
        for _ in range(READS):
            scraper.scrape()
        return (cpu_seconds(process.pid) - before) / READS


def run() -> list[Figure]:
    """Measure both on one device."""
    program = peer("prometheus-node-exporter")
    if program is None:
        return []
    with device() as made:
        if not made:
            return []
        name = f"{STATISTICS:,} statistics of a NIC read, three sums of all queues taken"
        return [Figure(name, "ms CPU", _our_reads() * 1e3, "node_exporter", _their_scrapes(program) * 1e3, 0.05)]
