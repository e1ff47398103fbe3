"""What the tests do in the guest: devices that come and go, traffic, and the exporter as a process of its own."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.stack import free_port, own_folder, process

SECONDS = 60.0
"""How long to wait for what has to come; the guest is emulated, on a machine that may be busy."""

ADDRESS = "10.9.0.1"
"""Address of the network device that carries SoftRoCE."""

SIMULATED = Path("/sys/bus/netdevsim")
NETWORK = Path("/sys/class/net")
RDMA = Path("/sys/class/infiniband")

CARDS = {"0000:01:00.0": "e1000e", "0000:02:00.0": "virtio-pci"}
"""Addresses of the cards of `run`, and their drivers."""


def run(*command: object) -> str:
    """Run a program that has to succeed; return its output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def json_of(*command: object) -> list[dict]:
    return json.loads(run(*command))


def lines_of(*command: object) -> dict[str, str]:
    """Run a program that prints lines `name: value`; of a name printed twice the last counts."""
    pairs = (line.partition(":") for line in run(*command).splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def until(what: str, look: Callable[[], object], seconds: float = SECONDS) -> object:
    """Look again and again until there is an answer."""
    end = monotonic() + seconds
    while not (answer := look()):
        assert monotonic() < end, f"not within {seconds:g} s: {what}"
        sleep(0.1)
    return answer


def number(path: Path) -> int:
    return int(path.read_text())


@contextmanager
def link(name: str, *arguments: object) -> Iterator[str]:
    """Have a network device while it is needed."""
    run("ip", "link", "add", name, *arguments)
    try:
        run("ip", "link", "set", name, "up")
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)


@contextmanager
def rdma(name: str, kind: str, netdev: str) -> Iterator[str]:
    """Have an RDMA device while it is needed."""
    run("rdma", "link", "add", name, "type", kind, "netdev", netdev)
    try:
        yield name
    finally:
        subprocess.run(["rdma", "link", "del", name], capture_output=True, check=False)


def put_driver(address: str, change: str) -> bool:
    """Let the driver of a card of CARDS have it (`bind`), or not (`unbind`); return whether it did."""
    try:
        (Path("/sys/bus/pci/drivers") / CARDS[address] / change).write_text(address)
    except OSError:
        return False
    return True


class Nic:
    """A simulated network card with two ports."""

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.folder = SIMULATED / f"devices/netdevsim{identity}"

    def plug(self) -> None:
        (SIMULATED / "new_device").write_text(f"{self.identity} 2")
        # Its ports are there when the write returns; their names are the kernel's to choose.
        assert len(self.ports) == 2

    def unplug(self) -> None:
        (SIMULATED / "del_device").write_text(f"{self.identity}")

    @property
    def ports(self) -> list[str]:
        """Return the names of its ports, in their order."""
        names = [entry.name for entry in (self.folder / "net").iterdir()]
        return sorted(names, key=lambda name: (NETWORK / name / "phys_port_name").read_text())

    def cable(self) -> None:
        """Connect its two ports; without a cable there is no carrier."""
        with Path("/proc/self/ns/net").open("rb") as namespace:
            one, other = (f"{namespace.fileno()}:{number(NETWORK / name / 'ifindex')}" for name in self.ports)
            (SIMULATED / "link_device").write_text(f"{one} {other}")
        for name in self.ports:
            run("ip", "link", "set", name, "up")


@contextmanager
def nic(identity: int) -> Iterator[Nic]:
    """Have a card, with its ports connected to each other, while it is needed."""
    one = Nic(identity)
    one.plug()
    try:
        one.cable()
        yield one
    finally:
        with suppress(OSError):
            one.unplug()


def address_index(device: str) -> int:
    """Find the entry of an RDMA device's address table that holds ADDRESS."""
    wanted = socket.inet_aton(ADDRESS).hex(":", 2)
    folder = RDMA / device / "ports/1/gids"
    found = [int(file.name) for file in folder.iterdir() if file.read_text().strip().endswith(f"ffff:{wanted}")]
    return min(found)


def send_over(device: str, program: str, sends: int, size: int) -> None:
    """Send from a device to itself by real verbs; returns when all is done and acknowledged."""
    port, place = free_port(), ("-d", device, "-x", str(address_index(device)))
    common = [program, *place, "-p", str(port), "-n", str(sends), "-s", str(size), "-m", "1024", "-e"]
    with subprocess.Popen(common, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            until("the server listens", lambda: server.poll() is not None or listens(port))
            run(*common, ADDRESS)
            assert server.wait(SECONDS) == 0, server.stderr.read()
        finally:
            server.kill()


def listens(port: int) -> bool:
    tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    return re.search(rf":{port:04X} 0+:0000 0A", tables) is not None


def hardware_counters(device: str) -> dict[str, int]:
    """Read the counters of port 1 as `cat` does."""
    folder = RDMA / device / "ports/1/hw_counters"
    return {file.name: number(file) for file in folder.iterdir() if file.name != "lifespan"}


class Page(NamedTuple):
    """One scrape."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value of those labels, among others; None where there is none."""
        found = [value for (one, has), value in self.samples.items() if one == name and labels.items() <= set(has)]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def info(self, name: str, **labels: str) -> dict[str, str]:
        """Return the labels of the one row that has these among them."""
        (found,) = [dict(has) for one, has in self.samples if one == name and labels.items() <= set(has)]
        return found

    def devices(self, prefix: str) -> set[str]:
        return {dict(has)["device"] for name, has in self.samples if name.startswith(prefix)}

    def names(self, prefix: str, **labels: str) -> set[str]:
        return {name for name, has in self.samples if name.startswith(prefix) and labels.items() <= set(has)}


class Exporter:
    """The exporter, running."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def scrape(self) -> Page:
        answer = self._client.get("/metrics").raise_for_status()
        found = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found, f"{key} is there twice"
                found[key] = sample.value
        return Page(found)

    def ready(self) -> bool:
        try:
            return self._client.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def until(self, what: str, look: Callable[[Page], object], seconds: float = SECONDS) -> Page:
        """Scrape again and again until the page is as wanted; return it."""
        last: list[Page] = []

        def again() -> bool:
            last[:] = [self.scrape()]
            return bool(look(last[0]))

        until(what, again, seconds)
        return last[0]


@contextmanager
def exporter(config: str, *more: str) -> Iterator[Exporter]:
    """Run the exporter while it is needed; it must exit by itself with status 0 after SIGTERM."""
    with own_folder() as folder:
        file, log, port = folder / "config.yml", folder / "log", free_port()
        file.write_text(config)
        flags = (f"--config.file={file}", f"--web.listen-address=127.0.0.1:{port}", *more)
        with (
            process(log, sys.executable, "-m", "exporter", "run", *flags) as one,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client,
        ):
            made = Exporter(client)
            until("the exporter is ready, or ended", lambda: made.ready() or one.poll() is not None)
            assert one.poll() is None, log.read_text()
            yield made
            one.terminate()
            assert one.wait(SECONDS) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
