"""A demo, a Prometheus that scrapes it and an Alertmanager, as real processes on loopback that end with the test."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

import httpx
import yaml

from exporter.simulator.monitoring.listening_ports import free_port

Answer = TypeVar("Answer")

PAUSE = 0.2
"""Seconds between looks at something that is waited for."""


def until(what: str, look: Callable[[], Answer | None], seconds: float = 40.0) -> Answer:
    """Look again and again until there is an answer; fail when there is none for too long."""
    end = monotonic() + seconds
    while True:
        answer = look()
        if answer:
            return answer
        assert monotonic() < end, f"not within {seconds:g} s: {what}"
        sleep(PAUSE)


class Message(NamedTuple):
    """A request at a receiver: its path, what it is allowed by, and its content."""

    path: str
    token: str | None
    content: dict[str, Any]


@contextmanager
def receiver(take: Callable[[Message], None]) -> Iterator[str]:
    """Serve whatever Alertmanager sends messages to; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            take(Message(self.path, self.headers["Authorization"], content))
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def own_folder() -> Iterator[Path]:
    """Return a folder that is removed after the block, unlike pytest's, which keeps those of the last runs."""
    with tempfile.TemporaryDirectory(prefix="fabric-test-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def process(log: Path, *command: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block, whatever happens there; its output goes to a file."""
    with log.open("wb") as out, subprocess.Popen([*map(str, command)], stdout=out, stderr=subprocess.STDOUT) as one:
        try:
            yield one
        finally:
            one.terminate()
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()


def answers(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers with success; fail at once when it ended."""

    def look() -> bool:
        assert running.poll() is None, log.read_text()
        try:
            return httpx.get(url).is_success
        except httpx.TransportError:
            return False

    until(url, look)


@contextmanager
def demo(folder: Path, faults: Sequence[str] = ()) -> Iterator[str]:
    """Run the demo; gives its address."""
    address, log = f"127.0.0.1:{free_port()}", folder / "demo.log"
    flags = [word for fault in faults for word in ("--demo.fault", fault)]
    flags += ["--web.listen-address", address, "--demo.directory", str(folder / "demo")]
    with process(log, sys.executable, "-m", "exporter", "demo", *flags) as running:
        answers(f"http://{address}/-/ready", running, log)
        yield address


@contextmanager
def alertmanager(program: str, folder: Path, hook: str, **settings: object) -> Iterator[str]:
    """Run an Alertmanager that sends all to a webhook, and at once; gives its address."""
    address, log = f"127.0.0.1:{free_port()}", folder / "alertmanager.log"
    config = {
        "route": {"receiver": "test", "group_by": ["..."], "group_wait": "1s", "group_interval": "1s"},
        "receivers": [{"name": "test", "webhook_configs": [{"url": hook}]}],
        **settings,
    }
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    flags = [
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with process(log, program, *flags) as running:
        answers(f"http://{address}/-/ready", running, log)
        yield address


@contextmanager
def prometheus(
    program: str, folder: Path, target: str, *, rules: Path | None = None, alerts: str | None = None
) -> Iterator["Prometheus"]:
    """Run a Prometheus that scrapes a target, and evaluates rules, each second."""
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    config: dict[str, object] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "fabric", "static_configs": [{"targets": [target]}]}],
    }
    if rules is not None:
        config["rule_files"] = [str(rules)]
    if alerts is not None:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alerts]}]}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    flags = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with process(log, program, *flags) as running, httpx.Client(base_url=f"http://{address}/api/v1") as client:
        answers(f"http://{address}/-/ready", running, log)
        yield Prometheus(client)


class Prometheus:
    """Asks a Prometheus."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def query(self, expr: str) -> list[dict]:
        """Return the samples of an instant query."""
        answer = self._client.post("/query", data={"query": expr}).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        return answer["data"]["result"]

    def number(self, expr: str) -> float:
        """Return the value of a query with one sample; 0 where there is none."""
        found = self.query(expr)
        return float(found[0]["value"][1]) if found else 0.0

    def get(self, path: str) -> dict:
        """Return the data of another endpoint."""
        return self._client.get(path).json()["data"]
