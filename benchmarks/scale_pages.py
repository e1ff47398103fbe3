"""Pages of the simulated fabric, served as often as wanted under other names, as those of one large fabric.

`benchmarks/detection` makes them: 4 hosts of eight rails with a job of 32 ranks, 8 switches, their poller, a collector.
A copy has other names of hosts, switches and the job, and other MAC addresses and GUIDs, so that copies are joined with
nothing but themselves.
"""

import gzip
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from detection.virtual_fabric import VirtualFabric

INTERVAL = 15.0
"""Seconds of the model between two pages."""

START = 120.0
"""Seconds of the model until all is there that a fabric without faults exports."""

HOSTS, SWITCHES, RANKS = 4, 8, 32
"""Of one copy."""

RENAMED = (
    (b'"gpu-', b'"gpu-%d-'),
    (b'"leaf-', b'"leaf-%d-'),
    (b'"spine-', b'"spine-%d-'),
    (b'train_job="', b'train_job="%d-'),
    (b"a0:88:c2:", b"a%x:88:c2:"),
    (b"b4:96:91:", b"b%x:96:91:"),
    (b"a088c2", b"a%x88c2"),
)
"""What differs between copies, and by what it is replaced, with the number of the copy."""

Pages = Mapping[str, Sequence[bytes]]
"""Pages of each instance over time."""


async def recorded(count: int) -> Pages:
    """Return so many pages of each instance."""
    pages: dict[str, list[bytes]] = {}
    with TemporaryDirectory() as folder:
        async with VirtualFabric(Path(folder)) as fabric:
            times = [START + INTERVAL * number for number in range(-int(START / INTERVAL) + 1, count + 1)]
            async for scrape in fabric.scrapes(times):
                if scrape.time > START:
                    for instance, lines in scrape.pages.items():
                        pages.setdefault(instance, []).append("\n".join([*(lines or ()), ""]).encode())
    return pages


def copied(page: bytes, number: int) -> bytes:
    """Return a page as that of a copy."""
    for old, new in RENAMED:
        page = page.replace(old, new % number)
    return page


def targets(pages: Pages, copies: int) -> Iterator[tuple[str, str]]:
    """Yield instance and path of each target."""
    for number in range(copies):
        for instance in pages:
            yield f"{instance}-{number}", f"/{number}/{instance}"


class Server(ThreadingHTTPServer):
    """Serves the pages of all copies, of the time that has passed since the start."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, pages: Pages, interval: float) -> None:
        """Args: pages: The pages. interval: Seconds after which the next ones are served."""
        self._pages, self._interval, self._began = pages, interval, time.monotonic()
        super().__init__(("127.0.0.1", 0), _Handler)

    def page(self, path: str) -> bytes:
        """Return the page at a path, compressed."""
        _, number, instance = path.split("/")
        pages = self._pages[instance]
        place = int((time.monotonic() - self._began) / self._interval)
        return gzip.compress(copied(pages[min(place, len(pages) - 1)], int(number)), 1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a page."""
        assert isinstance(self.server, Server)
        body = self.server.page(self.path)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        """Log nothing."""


@contextmanager
def served(pages: Pages, interval: float) -> Iterator[int]:
    """Serve the pages; return the port."""
    with Server(pages, interval) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
