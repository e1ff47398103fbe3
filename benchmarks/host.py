"""The ports of one host: read and scraped once a second beside node_exporter, and on its own at default intervals."""

import sys
import tempfile
import time
from pathlib import Path

import tree
from measure import Figure, Limit, Scraper, cpu_seconds, peer, resident_mebibytes, running

from exporter.simulator.monitoring.listening_ports import free_port

SECONDS = 60

EVERY_SECOND = "\n  ".join(
    [
        "sources:",
        'rdma: {interval: 1s, keep: ["*"]}',
        *(f"{name}: {{enabled: false}}" for name in ("bursts", "nic", "pci", "nccl")),
    ]
)
"""What the peer does too, and nothing else: every file is read, and every value is exported."""


def _ours(folder: Path, port: int, *flags: str) -> list[str]:
    address = f"--web.listen-address=127.0.0.1:{port}"
    return [sys.executable, "-m", "exporter", "run", address, f"--path.sysfs={folder}", "--log.level=error", *flags]


def run() -> list[Figure | Limit]:
    """Measure both on one tree."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        print(f"tree of {tree.make(folder)} files, 9 ports")
        return [*_beside_node_exporter(folder), *_alone(folder)]


def _beside_node_exporter(folder: Path) -> list[Figure]:
    program = peer("prometheus-node-exporter")
    if program is None:
        return []
    config = folder / "config.yml"
    config.write_text(EVERY_SECOND)
    mine, theirs = free_port(), free_port()
    collectors = ("--collector.disable-defaults", "--collector.infiniband")
    command = [program, *collectors, f"--path.sysfs={folder}", f"--web.listen-address=127.0.0.1:{theirs}"]
    with running(_ours(folder, mine, f"--config.file={config}")) as a, running(command) as b:
        scrapers = [Scraper(mine), Scraper(theirs)]
        for scraper in scrapers:
            scraper.wait()
        time.sleep(2)
        before = [cpu_seconds(a.pid), cpu_seconds(b.pid)]
        began = time.monotonic()
        for second in range(1, SECONDS + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            for scraper in scrapers:
                scraper.scrape()
        used = [cpu_seconds(a.pid) - before[0], cpu_seconds(b.pid) - before[1]]
    per_second = [1e3 * seconds / SECONDS for seconds in used]
    name = f"450 files read and scraped once a second for {SECONDS} s"
    return [Figure(name, "ms CPU a second", per_second[0], "node_exporter", per_second[1], 1 / 3)]


def _alone(folder: Path) -> list[Limit]:
    """Run the node role at default intervals with no scraper."""
    port = free_port()
    with running(_ours(folder, port)) as process:
        ready = Scraper(port, "/-/ready").wait()
        time.sleep(5)
        before = cpu_seconds(process.pid)
        time.sleep(SECONDS)
        share = (cpu_seconds(process.pid) - before) / SECONDS
        memory = resident_mebibytes(process.pid)
    return [
        Limit("node role at default intervals", "% of a core", share * 100, 1.0),
        Limit("node role, resident memory", "MiB", memory, 55.0),
        Limit("node role, ready after", "s", ready, 2.0),
    ]
