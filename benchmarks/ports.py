"""All sources of a host's ports, on nodes of 1, 8 and 64 of them: what one read of each costs, and the whole daemon.

NICs answer from objects in memory (see `MovingNic`), RDMA ports from files; both count the traffic of a job.
"""

import asyncio
import gc
import os
import socket
import struct
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import node
from measure import Figure, Limit, Scraper, cpu_seconds, resident_mebibytes, running
from node import MovingNic, Node, hw_counters

from exporter.config.units import Duration
from exporter.core.definition import SourceSteps
from exporter.core.poller import Poller, Step
from exporter.core.source import Host
from exporter.core.supervision import Supervisor
from exporter.daemon.pipeline import Expectation, steps
from exporter.linux.cached_file import COUNTER_SIZE, close_cached, open_cached, parse_counter
from exporter.linux.netlink import rdma as rdma_netlink
from exporter.linux.netlink.messages import attribute, attribute_u32
from exporter.linux.netlink.netlink_socket import NetlinkSocket
from exporter.linux.rdma_reader import KernelRdma
from exporter.outputs.text import Renderer
from exporter.simulator.monitoring.listening_ports import free_port
from exporter.sources.bursts.metrics import TICKS
from exporter.sources.bursts.options import BurstOptions
from exporter.sources.bursts.source import BurstSource
from exporter.sources.hostcheck.host_facts import NOTHING
from exporter.sources.hostcheck.options import HostcheckOptions
from exporter.sources.hostcheck.source import HostcheckSource
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from exporter.sources.pci.options import PciOptions
from exporter.sources.pci.source import PciSource
from exporter.sources.rdma.options import RdmaOptions
from exporter.sources.rdma.ports import rdma_reader
from exporter.sources.rdma.source import RdmaSource

COUNTS = (1, 8, 64)
BARRED = 8
"""Ports of the node that the bars are for."""

READS = 30
SECONDS = 15
"""Three reads of most sources, at their default intervals."""

SETTLING = 3.0
TICK, TICKING = 0.1, 2.0
SCRAPES = 20
ROUNDS = 300

DEVICE_INDEX, PORT_INDEX = 1, 3
COUNTERS, COUNTER, COUNTER_NAME, COUNTER_VALUE = 80, 81, 82, 83
"""Attributes of RDMA netlink."""

RTM_GETLINK = 18
LOOPBACK = struct.pack("=BxHiII", 0, 0, 1, 0, 0)
"""struct ifinfomsg of the device whose index is 1."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A figure without a bar, of some ports; a sum over ports is named as one."""

    name: str
    unit: str
    ours: float
    ports: int = 1

    def __str__(self) -> str:
        """Return a line."""
        each = f", {self.ours / self.ports:.3f} a port" if self.ports > 1 else ""
        return f"{self.name}: {self.ours:.2f} {self.unit}{each}"


def run() -> list[Figure | Limit | Cost]:
    """Measure nodes of all sizes."""
    found: list[Figure | Limit | Cost] = []
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as place:
            made = Node(Path(place), count)
            found += asyncio.run(_reads(made, count))
            found += asyncio.run(_ticks(made, count))
            found += _whole(Path(place), made, count)
    return [*found, _netlink()]


def _node(count: int) -> str:
    return f"{count} ports" if count > 1 else "1 port"


def _steps() -> list[Step]:
    """Return the meanings as the daemon applies them where nothing is expected."""
    return steps(Expectation(), SourceSteps())


async def _reads(made: Node, count: int) -> list[Cost]:
    """Read each source and apply the meanings, and print what came of it: the median of some, back to back."""
    host = Host("bench", made.sysfs, Path("/proc"))
    reader = MovingNic(made.recordings)
    pollers = [
        Poller(source, _steps())
        for source in (
            NicSource(NicOptions(), host, lambda: reader),
            RdmaSource(RdmaOptions(), host, partial(KernelRdma, host.procfs)),
            PciSource(PciOptions(), host),
            HostcheckSource(HostcheckOptions(), host, NOTHING, lambda: reader, partial(KernelRdma, host.procfs)),
        )
    ]
    renderer = Renderer(openmetrics=False)
    used: dict[str, list[float]] = {}
    series = 0
    for poller in pollers:
        await poller.poll()
    gc.collect()
    gc.freeze()  # as the daemon does
    for _ in range(READS):
        made.move()
        reader.move()
        for poller in pollers:
            began = time.process_time()
            await poller.poll()
            used.setdefault(f"{poller.source.name}, a read", []).append(time.process_time() - began)
        began = time.process_time()
        text = b"".join(renderer.render([table for poller in pollers for table in poller.fresh_tables()]))
        used.setdefault("printed after a read", []).append(time.process_time() - began)
        series = sum(not line.startswith(b"#") for line in text.splitlines())
    for poller in pollers:
        if poller.status.up is not True or poller.status.failures:
            raise RuntimeError(f"{poller.source.name}: {poller.status.reason or poller.status.failures}")
        await poller.source.close()
    gc.unfreeze()
    print(f"{_node(count)}: {series} series of nic, rdma, pci and hostcheck")
    return [Cost(f"{_node(count)}, {name}", "ms CPU", median(times) * 1e3, count) for name, times in used.items()]


async def _ticks(made: Node, count: int) -> list[Cost]:
    """Sample bursts for a while, much faster than by default, and hand over once."""
    options = BurstOptions(interval=Duration(TICKING), tick=Duration(TICK), budget=1.0, commands=10**6)
    host = Host("bench", made.sysfs, Path("/proc"))
    poller = Poller(BurstSource(options, host, rdma_reader(host), Supervisor()), _steps())
    await poller.poll()
    began = time.process_time()
    await asyncio.sleep(TICKING)
    await poller.poll()
    used = time.process_time() - began
    ticked = [table.values("burst_ticks_total") for table in poller.tables if table.schema is TICKS]
    await poller.source.close()
    if not ticked or not ticked[0] or not isinstance(ticked[0][0], int):
        raise RuntimeError(f"no ticks: {poller.status.reason}")
    ticks = ticked[0][0] / count
    name = f"{_node(count)}, bursts, a tick with its share of the handing over"
    return [Cost(name, "ms CPU", used / ticks * 1e3, count)]


def _whole(folder: Path, made: Node, count: int) -> list[Limit | Cost]:
    """Run the daemon with all that is on by default."""
    port = free_port()
    with running([sys.executable, node.__file__, str(folder), str(port)]) as process:
        ready = Scraper(port, "/-/ready").wait()
        scraper = Scraper(port)
        time.sleep(SETTLING)
        began, before = time.monotonic(), cpu_seconds(process.pid)
        for second in range(1, SECONDS + 1):
            made.move()
            time.sleep(max(0.0, began + second - time.monotonic()))
        share = (cpu_seconds(process.pid) - before) / SECONDS * 100
        memory = resident_mebibytes(process.pid)
        _check(port)
        scraper.scrape()
        before = cpu_seconds(process.pid)
        for _ in range(SCRAPES):
            scraper.scrape()
        scrape = (cpu_seconds(process.pid) - before) / SCRAPES * 1e3
    rows = [
        (f"{_node(count)}, all at default intervals", "% of a core", share, 1.0),
        (f"{_node(count)}, resident memory", "MiB", memory, 55.0),
        (f"{_node(count)}, ready after", "s", ready, 2.0),
    ]
    scraped = Cost(f"{_node(count)}, a scrape that follows another", "ms CPU", scrape)
    if count == BARRED:
        return [*(Limit(*row) for row in rows), scraped]
    return [*(Cost(name, unit, ours) for name, unit, ours, _ in rows), scraped]


def _check(port: int) -> None:
    """See that all sources of ports are read: what fails is cheap."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    down = [name for name in ("rdma", "bursts", "nic", "pci") if f'fabric_source_up{{source="{name}"}} 1' not in lines]
    if down:
        raise RuntimeError(f"not read: {', '.join(down)}")


def _netlink() -> Figure:
    """Ask for the counters of a port by netlink, and read them from files that stay open.

    There is no device here: the request goes to rtnetlink, for the loopback device, whose answer is as long.
    """
    names = hw_counters()
    answers = [_answer(names, read) for read in range(2)]
    layout, _ = rdma_netlink.parse_statistics(answers[0])
    if layout.values(answers[1]) != tuple(range(1, 1 + 2 * len(names), 2)):
        raise RuntimeError("the answer was not read")
    requests = NetlinkSocket(socket.NETLINK_ROUTE)
    codec = _fastest(lambda: layout.values(answers[1]))
    exchange = _fastest(lambda: requests.request(RTM_GETLINK, LOOPBACK))
    requests.close()
    with tempfile.TemporaryDirectory() as place:
        port = Node(Path(place), 1).folders[0]
        descriptors = [open_cached(port / "hw_counters" / name) for name in names]
        reads = _fastest(lambda: [parse_counter(os.pread(one, COUNTER_SIZE, 0)) for one in descriptors])
        for descriptor in descriptors:
            close_cached(descriptor)
    name = f"{len(names)} counters of a port by netlink, {codec * 1e6:.1f} µs of it the codec"
    return Figure(name, "µs CPU", (codec + exchange) * 1e6, "as many files", reads * 1e6, 1.0)


def _answer(names: list[str], read: int) -> bytes:
    """Make an answer of the kernel's form to GET_STATISTICS."""
    entries = [
        attribute(COUNTER_NAME, name.encode() + b"\0")
        + attribute(COUNTER_VALUE, (read + 2 * place).to_bytes(8, sys.byteorder))
        for place, name in enumerate(names)
    ]
    counters = attribute(COUNTERS, b"".join(attribute(COUNTER, entry) for entry in entries))
    return attribute_u32(DEVICE_INDEX, 0) + attribute_u32(PORT_INDEX, 1) + counters


def _fastest(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of some calls."""
    found = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        call()
        found.append(time.thread_time() - began)
    return min(found)
