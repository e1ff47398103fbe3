"""Hosts that publish the timings of their ranks to a broker, many in one process, each by its own connection.

    python benchmarks/scale_publishers.py '{"broker": 1883, "jobs": ["a", "b"], "nodes": 8, "step": 4, "seconds": 60}'

Each host publishes as the daemon of a host does, by the same class, once in INTERVAL; the jobs have `nodes` hosts each.
A line is printed now and then:

    [monotonic seconds, hosts connected, batches sent, batches dropped or refused, [operations of each job]]
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import NamedTuple

import msgspec
from large_job import LargeJob

from exporter.daemon.runtime import spend_less_on_garbage
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher

INTERVAL = 5.0
"""Seconds between two batches of a host: the default interval of the source `nccl`."""

REPORT = 0.2
"""Seconds between two lines."""

AT_ONCE = 32
"""Hosts that connect at a time."""


class Task(msgspec.Struct, forbid_unknown_fields=True):
    """What is published.

    Attributes:
        broker: Port of the broker on loopback.
        jobs: Names of the jobs.
        nodes: Hosts of each.
        step: Seconds of a step.
        seconds: Seconds for which they publish.
    """

    broker: int
    jobs: list[str]
    nodes: int
    step: float
    seconds: float


class Line(NamedTuple):
    """What has been published up to a time, in monotonic seconds."""

    time: float
    connected: int
    sent: int
    lost: int
    operations: list[int]


@dataclass(slots=True)
class _Host:
    job: int
    place: int
    publisher: Publisher
    reported: float = 0.0


class _Hosts:
    """All hosts of the task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._jobs = [
            LargeJob(name, task.nodes, task.step, number * task.nodes) for number, name in enumerate(task.jobs)
        ]
        options = MqttOptions(broker=f"127.0.0.1:{task.broker}")
        self._hosts = [
            _Host(number, place, Publisher(options, host))
            for number, job in enumerate(self._jobs)
            for place, host in enumerate(job.hosts)
        ]
        self._operations = [0] * len(self._jobs)

    async def run(self) -> None:
        """Connect all, then publish for some time."""
        async with AsyncExitStack() as stack:
            for number, host in enumerate(self._hosts, start=1):
                await stack.enter_async_context(host.publisher)
                while number - self.line().connected > AT_ONCE:  # noqa: ASYNC110  # a connection has no event
                    await asyncio.sleep(0.01)
            while self.line().connected < len(self._hosts):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            spend_less_on_garbage()  # as the daemon does
            reporting = asyncio.create_task(self._report())
            await self._publish()
            reporting.cancel()

    def line(self) -> Line:
        """Return what has been published."""
        publishers = [host.publisher for host in self._hosts]
        return Line(
            time.monotonic(),
            sum(one.status.connected for one in publishers),
            sum(one.sent for one in publishers),
            sum(one.dropped + one.refused + one.invalid for one in publishers),
            list(self._operations),
        )

    async def _report(self) -> None:
        while True:
            print(msgspec.json.encode(self.line()).decode(), flush=True)
            await asyncio.sleep(REPORT)

    async def _publish(self) -> None:
        """Let each host publish in its turn; one that is late publishes what has happened until then."""
        begun, count = time.monotonic(), len(self._hosts)
        due = [(INTERVAL * (1 + number / count), number) for number in range(count)]
        heapify(due)
        while (now := time.monotonic() - begun) < self._task.seconds:
            at, number = due[0]
            if at > now:
                await asyncio.sleep(at - now)
                continue
            self._publish_of(self._hosts[number], now)
            heapreplace(due, (at + INTERVAL, number))
            await asyncio.sleep(0)

    def _publish_of(self, host: _Host, now: float) -> None:
        batch = self._jobs[host.job].batch(host.place, host.reported, now)
        host.reported = now
        self._operations[host.job] += batch.operations()
        host.publisher.publish(batch)


if __name__ == "__main__":
    asyncio.run(_Hosts(msgspec.json.decode(sys.argv[1], type=Task)).run())
