"""What the benchmarks share: CPU of processes by the scheduler's own accounting, peers started and ended, figures."""

import gzip
import http.client
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
"""What a Prometheus server asks for."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: ours and the peer's in the same unit, and the most that ours may be of the peer's."""

    name: str
    unit: str
    ours: float
    peer_name: str
    peer: float
    bar: float

    def __str__(self) -> str:
        """Return a line: both figures, their ratio, and whether that is within the bar."""
        ratio = self.ours / self.peer
        verdict = "met" if ratio <= self.bar else "NOT MET"
        return (
            f"{self.name}: {self.ours:.2f} {self.unit}, {self.peer_name} {self.peer:.2f} {self.unit}, "
            f"ratio {ratio:.3f} (bar {self.bar:.3f}: {verdict})"
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """One figure of ours against an absolute bar."""

    name: str
    unit: str
    ours: float
    bar: float

    def __str__(self) -> str:
        """Return a line: the figure and whether it is within the bar."""
        verdict = "met" if self.ours <= self.bar else "NOT MET"
        return f"{self.name}: {self.ours:.2f} {self.unit} (bar {self.bar:g}: {verdict})"


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, finer than the clock ticks of its stat file."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mebibytes(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peer(program: str) -> str | None:
    """Find a peer's program, or report that it is missing."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        print(f"left out: {program} is not installed")
    return found


@contextmanager
def running(command: Sequence[str], output: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process while it is needed."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Scraper:
    """Scrapes one exporter as Prometheus does: one kept connection, OpenMetrics, gzip."""

    def __init__(self, port: int, path: str = "/metrics", timeout: float = 10.0) -> None:
        """Take where to scrape, and for how many seconds to wait."""
        self._port, self._path = port, path
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def wait(self, seconds: float = 15.0) -> float:
        """Wait until it answers; return the seconds that took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            try:
                self.scrape()
            except (OSError, http.client.HTTPException, RuntimeError):
                self._connection.close()
                time.sleep(0.02)
            else:
                return time.monotonic() - began
        raise RuntimeError(f"port {self._port} does not answer within {seconds} s")

    def scrape(self) -> int:
        """Scrape once; return the bytes of the body."""
        return len(self._body())

    def text(self) -> str:
        """Scrape once; return the text."""
        return gzip.decompress(self._body()).decode()

    def _body(self) -> bytes:
        self._connection.request("GET", self._path, headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{self._path}: {answer.status} {answer.reason}")
        return body
