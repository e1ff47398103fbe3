"""Daemons of this program that are measured, as real processes: CPU, memory, series, and what a scrape costs."""

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import Scraper, cpu_seconds, resident_mebibytes, running

from exporter.daemon.sources import SOURCES
from exporter.simulator.monitoring.listening_ports import free_port

SCRAPES = 4
"""Scrapes of which the cost of one is the mean."""

REST = 2.5
"""Seconds between these, in which there is new data."""

TIMEOUT = 60.0
"""Seconds that a scrape may take here: Prometheus gives up after ten by default."""


class Page:
    """What a daemon exports.

    Attributes:
        text: The text.
        series: Number of series.
    """

    def __init__(self, text: str) -> None:
        """Take the text."""
        self.text = text
        self.series = sum(not line.startswith("#") for line in text.splitlines())

    def values(self, name: str, label: str = "") -> list[float]:
        """Return the values of a metric, of the series whose labels contain a text."""
        return [value for labels, value in self.labelled(name) if label in labels]

    def labelled(self, name: str) -> list[tuple[str, float]]:
        """Return the series of a metric: the text of their labels, and the value."""
        lines = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.text, re.MULTILINE)
        return [(labels, float(value)) for labels, value in lines]

    def value(self, name: str, label: str = "") -> float:
        """Return their sum."""
        return sum(self.values(name, label))


@dataclass(slots=True)
class Daemon:
    """A running daemon."""

    pid: int
    scraper: Scraper

    def page(self) -> Page:
        """Scrape it."""
        return Page(self.scraper.text())

    def resident(self) -> float:
        """Return its memory in MiB."""
        return resident_mebibytes(self.pid)

    def cpu(self) -> float:
        """Return its CPU seconds so far."""
        return cpu_seconds(self.pid)


@dataclass(frozen=True, slots=True)
class Scraped:
    """What one scrape costs.

    Attributes:
        seconds: CPU seconds of the daemon.
        longest: Seconds of the longest until it was received.
        series: Series.
        size: Bytes.
        compressed: Bytes after compression, as they are sent.
    """

    seconds: float
    longest: float
    series: int
    size: int
    compressed: int

    def __str__(self) -> str:
        """Return a text for people."""
        return (
            f"{self.seconds * 1e3:.0f} ms CPU, {self.longest:.2f} s at most, {self.series:,} series,"
            f" {self.size / 1e6:.2f} MB, {self.compressed / 1e6:.3f} MB compressed"
        )


@contextmanager
def daemons(configs: Sequence[Mapping[str, object]], folder: Path, *flags: Sequence[str]) -> Iterator[list[Daemon]]:
    """Run a daemon for each configuration, with its flags and without the sources of a host, until all are ready."""
    with ExitStack() as stack:
        made = []
        for number, config in enumerate(configs):
            path = folder / f"daemon-{number}.json"
            off = {one.name: {"enabled": False} for one in SOURCES if not one.section}
            path.write_text(json.dumps({**config, "sources": off}))
            port = free_port()
            words = [sys.executable, "-m", "exporter", "run", f"--config.file={path}"]
            words += [f"--web.listen-address=127.0.0.1:{port}", *(flags[number] if flags else ())]
            process = stack.enter_context(running(words))
            made.append(Daemon(process.pid, Scraper(port, timeout=TIMEOUT)))
        for one in made:
            one.scraper.wait(60.0)
        yield made


def scraped(daemon: Daemon) -> Scraped:
    """Measure scrapes beside as long a time without any."""
    began, before = time.monotonic(), daemon.cpu()
    time.sleep(REST * SCRAPES)
    between, idle_until = daemon.cpu(), time.monotonic()
    compressed, longest = 0, 0.0
    for _ in range(SCRAPES):
        asked = time.monotonic()
        compressed = daemon.scraper.scrape()
        longest = max(longest, time.monotonic() - asked)
        time.sleep(REST)
    used = daemon.cpu() - between - (between - before) * (time.monotonic() - idle_until) / (idle_until - began)
    page = daemon.page()
    return Scraped(max(0.0, used) / SCRAPES, longest, page.series, len(page.text), compressed)
