"""The source `pods` at 0, 100 and 1,000 namespaces with a macvlan device each.

CPU, memory, and what the host's own NICs cost beside it; seconds from the start of a pod to its first sample.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from measure import Figure, Limit, cpu_seconds, resident_mebibytes, running

from exporter.core.source import Host
from exporter.linux.nic_reader import KernelNic
from exporter.simulator.monitoring.listening_ports import free_port
from exporter.sources.common.moved_devices import MovedDevices
from exporter.sources.nic.options import NicOptions
from exporter.sources.nic.source import NicSource
from exporter.sources.pods.identity import IdentityPlaces, PodIdentities
from exporter.sources.pods.options import PodsOptions
from exporter.sources.pods.source import PodsSource, kernel_access

COUNTS = (0, 100, 1_000)
PARENT = "fabricbench2"
READS = 40
PAUSE = 0.1
SECONDS = 20
STARTS = 5

CONFIG = """
sources:
  pods: {enabled: PODS}
  nic: {software: [PARENT]}
  hostcheck: {enabled: false}
  nccl: {enabled: false}
""".replace("PARENT", PARENT)


def _ip() -> str:
    return shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "ip"


def _batch(lines: list[str]) -> bool:
    done = subprocess.run([_ip(), "-batch", "-"], input="\n".join(lines), text=True, capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def _namespaces(count: int) -> Iterator[bool]:
    """Have so many namespaces with a device each; False where they cannot be made."""
    names = [f"fabricbench-{number}" for number in range(count)]
    lines = [f"link add {PARENT} type veth peer name {PARENT}p", f"link set {PARENT} up"]
    for number, name in enumerate(names):
        lines += [
            f"netns add {name}",
            f"link add fb{number} link {PARENT} type macvlan mode bridge",
            f"link set fb{number} netns {name} name net1",
        ]
    made = _batch(lines)
    if not made:
        print("left out: pods needs iproute2, and root that may make network namespaces, veth and macvlan devices")
    try:
        yield made
    finally:
        _batch([f"netns del {name}" for name in names])
        _batch([f"link del {PARENT}"])


async def _reads(count: int) -> tuple[float, float, float]:
    """Return the CPU seconds of a read of the host's NICs alone, of one beside the pods, and of one of the pods."""
    host, shared = Host("host", Path("/sys"), Path("/proc")), MovedDevices()
    options = PodsOptions(enabled=True)
    alone, joined = (NicSource(NicOptions(software=(PARENT,)), host, KernelNic, one) for one in (None, shared))
    identities = PodIdentities(IdentityPlaces(logs=None, kubelet=None))
    pods = PodsSource(options, host, shared, identities, kernel_access(options, host))
    sources = (pods, alone, joined)
    try:
        reading = await pods.read()
        seen = sum(len(table.rows) for table in reading.tables if table.schema.labels == ("netns", "device"))
        if seen < count:
            raise RuntimeError(f"{seen} devices of pods, not {count}")
        taken = [[await _cpu(one) for one in sources] for _ in range(READS)]
        taken += [[await _cpu(one) for one in reversed(sources)][::-1] for _ in range(READS)]
        own, without, with_pods = (median(column) for column in zip(*taken, strict=True))
        return without, with_pods, own
    finally:
        for one in sources:
            await one.close()


async def _cpu(source: NicSource | PodsSource) -> float:
    """Return the CPU seconds of a read some time after the last one, whose code and data other work has displaced."""
    await asyncio.sleep(PAUSE)
    began = time.process_time()
    await source.read()
    return time.process_time() - began


@contextmanager
def _daemon(*, pods: bool) -> Iterator[tuple[int, int]]:
    """Run the exporter at default intervals; give its process and port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yml"
        file.write_text(CONFIG.replace("PODS", str(pods).lower()))
        flags = [f"--config.file={file}", f"--web.listen-address=127.0.0.1:{port}"]
        with running([sys.executable, "-m", "exporter", "run", *flags]) as process:
            _until(partial(_shows, port, "fabric_source_up"))
            yield process.pid, port


def _page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _shows(port: int, text: str) -> bool:
    return text in _page(port)


def _until(look: Callable[[], bool]) -> float:
    """Wait until a call returns something true; return the seconds that took."""
    began = time.monotonic()
    while not look():
        if time.monotonic() - began > 60:
            raise RuntimeError("not within a minute")
        time.sleep(0.02)
    return time.monotonic() - began


def _idle(*, pods: bool) -> tuple[float, float]:
    """Return the share of a processor, and the resident MiB, of a daemon that is not scraped."""
    with _daemon(pods=pods) as (pid, _):
        time.sleep(5)
        before, began = cpu_seconds(pid), time.monotonic()
        time.sleep(SECONDS)
        return (cpu_seconds(pid) - before) / (time.monotonic() - began), resident_mebibytes(pid)


def _first_sample() -> float:
    """Return the seconds from the start of a pod to its first sample: the highest of some starts."""
    taken = []
    with _daemon(pods=True) as (_, port):
        for number in range(STARTS):
            name = f"fabricbench-start-{number}"
            try:
                began = time.monotonic()
                _batch(
                    [
                        f"netns add {name}",
                        f"link add fbs link {PARENT} type macvlan",
                        f"link set fbs netns {name} name net1",
                    ]
                )
                _until(partial(_shows, port, f'receive_bytes_total{{netns="{name}",device="net1"}}'))
                taken.append(time.monotonic() - began)
            finally:
                _batch([f"netns del {name}"])
            time.sleep(1.7)
    return max(taken)


def run() -> Iterator[Figure | Limit]:
    """Measure at each number of namespaces."""
    for count in COUNTS:
        with _namespaces(count) as made:
            if not made:
                return
            alone, beside, own = asyncio.run(_reads(count))
            place = f"{count:,} namespaces"
            yield Figure(f"{place}: a read of the host's own NICs", "ms CPU", beside * 1e3, "alone", alone * 1e3, 1.1)
            yield Limit(f"{place}: a read of the pods", "ms CPU", own * 1e3, 2 + 0.15 * count)
            (share, memory), (base, base_memory) = _idle(pods=True), _idle(pods=False)
            yield Limit(f"{place}: processor, default intervals", "%", (share - base) * 100, 0.2 + 0.004 * count)
            yield Limit(f"{place}: resident memory more", "MiB", memory - base_memory, 4 + 0.012 * count)
            yield Limit(f"{place}: start of a pod to its first sample", "s", _first_sample(), 5)
