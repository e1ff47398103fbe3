"""A real collector process at a real broker, a training job that publishes to it, and hostile publishers.

The job has four ranks on each of two hosts. Rank 3 computes for 20 ms longer than the others, ten times a second.
"""

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
from paho.mqtt import client as paho

from exporter.mqtt.topics import batch_topic
from exporter.nccl.batch import MAX_OPERATIONS, Batch, Operation, Stream
from exporter.nccl.batch_codec import encode
from tests.helpers.stack import free_port, process, until

TICK, STREAMS, FIRST = 4, 10, 4
"""Places of the number of a batch and of its streams, and of the first number of a stream, as in docs/mqtt.md."""

HOSTS, GPUS = 2, 4
JOB = "llm"
VERDICT = re.compile(rf'^fabric_nccl_verdict\{{train_job="{JOB}",verdict="straggler"\}} 1$', re.MULTILINE)


@contextmanager
def publishing(port):
    """Return a function that publishes without waiting, by paho's own thread; at the end all is delivered."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(1000)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    last = []

    def publish(topic, payload):
        last[:] = [client.publish(topic, payload, qos=1)]

    yield publish
    for one in last:
        one.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


class Collector:
    """The process, and what its pages show."""

    def __init__(self, address, running):
        self.address, self._running = address, running
        self.longest_stall = 0.0

    def page(self):
        return httpx.get(f"http://{self.address}/metrics", timeout=60).text

    def has_verdict(self):
        return VERDICT.search(self.page()) is not None

    def number(self, series):
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.page(), re.MULTILINE)
        return None if found is None else float(found[1])

    def memory(self):
        """Return the resident set in MiB."""
        return int(Path(f"/proc/{self._running.pid}/statm").read_text().split()[1]) * 4096 / 2**20


@contextmanager
def collector(folder, port) -> Iterator[Collector]:
    """Run a collector until the end of the block."""
    address = f"127.0.0.1:{free_port()}"
    config = folder / "collector.yml"
    config.write_text(f"mqtt: {{broker: '127.0.0.1:{port}'}}\ncollector: {{slots: 00-ff}}\n")
    flags = ["--config.file", config, "--web.listen-address", address]
    with process(folder / "collector.log", sys.executable, "-m", "exporter", *flags) as running:
        one = Collector(address, running)

        def is_connected():
            try:
                return one.number("fabric_collector_connected") == 1
            except httpx.TransportError:
                return False

        until("the collector is connected", is_connected)
        yield one


@contextmanager
def training_job(port):
    """Publish the timings of the job each second, until the end of the block."""
    ended = threading.Event()

    def run():
        with publishing(port) as publish:
            tick = 0
            while not ended.wait(1.0):
                for host in range(HOSTS):
                    batch = Batch(JOB, f"gpu-{host}", streams(host, tick), epoch=f"{host:016x}", tick=tick)
                    for part in encode(batch):
                        publish(batch_topic(JOB, f"gpu-{host}"), part)
                tick += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def streams(host, tick):
    """Return the timings of the ranks of a host in one second."""
    found = []
    for gpu in range(GPUS):
        rank = host * GPUS + gpu
        stream = Stream(JOB, "0xa", "AllReduce", rank, HOSTS * GPUS, HOSTS, rank, f"gpu-{host}", 100 + gpu)
        waited = 0 if rank == 3 else 20_000
        found.append(
            (stream, [Operation(10 * tick + one, 64 << 20, 5000.0 + waited + rank, True) for one in range(10)])
        )
    return found


def invent_jobs(port, count, host):
    """Publish one batch of each of many jobs that do not exist; `host` returns the host of each."""
    with publishing(port) as publish:
        for number in range(count):
            job, name = f"invented-{number}", host(number)
            ranks = [Stream(job, "0xb", "AllReduce", rank, 2, 1, rank, name, 7 + rank) for rank in range(2)]
            (payload,) = encode(Batch(job, name, [(one, [Operation(0, 8, 5.0, True)]) for one in ranks]))
            publish(batch_topic(job, name), payload)


def send_largest_batches(port, size, job="other"):
    """Publish valid batches of one host, each with as many operations as it may have; return their number."""
    stream = Stream(job, "0xb", "AllReduce", 0, 2, 1, 0, "evil", 7)
    operations = [Operation(one, 8, 5.0, True) for one in range(MAX_OPERATIONS)]
    (payload,) = encode(Batch(job, "evil", [(stream, operations)]))
    fields = msgspec.msgpack.decode(payload)
    sent = count = 0
    with publishing(port) as publish:
        while sent < size:
            fields[TICK] = count
            fields[STREAMS][0][FIRST] = count * MAX_OPERATIONS
            payload = msgspec.msgpack.encode(fields)
            publish(batch_topic(job, "evil"), payload)
            sent += len(payload)
            count += 1
    return count


@contextmanager
def watched(collector):
    """Watch a collector: yields a list of whether each page had the verdict; its longest stall and memory are kept."""
    ended, seen = threading.Event(), []
    collector.peak = 0.0

    def ping():
        with httpx.Client(timeout=60) as client:
            while not ended.wait(0.02):
                begun = time.monotonic()
                client.get(f"http://{collector.address}/-/healthy")
                collector.longest_stall = max(collector.longest_stall, time.monotonic() - begun)
                collector.peak = max(collector.peak, collector.memory())

    def look():
        while not ended.wait(0.5):
            seen.append(collector.has_verdict())

    threads = [threading.Thread(target=one) for one in (ping, look)]
    for one in threads:
        one.start()
    try:
        yield seen
    finally:
        ended.set()
        for one in threads:
            one.join()
