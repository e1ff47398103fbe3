"""Verdicts on jobs from records of their collectives, over time: `python -m benchmarks.verdicts --records FILE`.

A file of records has a line of JSON for each collective on each rank (`Record` in
`exporter/simulator/training/records.py`), in order of arrival. They take the way that they take in production: hosts
read them into tables and publish batches, encoded; they are decoded, duplicates are dropped, ranks compared and jobs
judged. The broker and the limits on its messages are left out, and time is that of the records.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from exporter.core.collectives import JUDGED, algorithm_bytes, known_kind
from exporter.core.table import Table
from exporter.daemon.relay import batches
from exporter.meaning.training import jobs
from exporter.meaning.training.verdicts import Judgement, Verdict
from exporter.mqtt.dedup import Deduplicator
from exporter.nccl.batch import Batch
from exporter.nccl.batch_codec import decode, encode
from exporter.nccl.decoding import MAX_BYTES
from exporter.simulator.training.queueing import Queueing
from exporter.simulator.training.records import Record, decode_record
from exporter.sources.nccl.streams import StreamTableBuilder

HOST_INTERVAL = 5.0
"""Seconds between two reads of a host, the default of the source."""

COLLECTOR_INTERVAL = 2.0
"""Seconds between two judgements of a collector, its default."""

DELIVERY = 0.1
"""Seconds that a batch takes by the broker."""

MAX_PAUSE = 86_400.0
"""Seconds from one record to the next, at most: a longer pause is an error of the file."""


class Given(NamedTuple):
    """The verdict on a job at a time."""

    time: float
    job: str
    judgement: Judgement


@dataclass(slots=True)
class _Host:
    """A host: records that arrived since its last read, and the number of its next batch of each job."""

    name: str
    arrived: list[Record] = field(default_factory=list)
    ticks: dict[str, int] = field(default_factory=dict)


class Replay:
    """Hosts and a collector, driven by the times of records."""

    def __init__(self, known: jobs.JobKnowledge | None = None, seed: int = 1) -> None:
        """Create hosts at phases of their own, and a collector without state."""
        self._chance = Random(seed)
        self._hosts: dict[str, _Host] = {}
        self._due: list[tuple[float, str]] = []
        self._step = partial(jobs.step, known or jobs.JobKnowledge())
        self._deduplicator = Deduplicator()
        self._places: dict[tuple[str, str], dict[int, int]] = {}
        self._counts: dict[tuple[str, str, str, int], tuple[int, int]] = {}
        self._next: float | None = None
        self._streams = StreamTableBuilder()
        self._queueing = Queueing()
        self.state: jobs.TrainingState | None = None

    def judgements(self, records: Iterable[Record], seconds: float | None = None) -> Iterator[Given]:
        """Yield the verdicts on all jobs, each time the collector judges, until the last record or for some seconds."""
        for table in self.tables(records, seconds):
            yield from self._judge(table)

    def tables(self, records: Iterable[Record], seconds: float | None = None) -> Iterator[Table]:
        """Yield what the collector judges: at each of its intervals the timings that hosts published since the last."""
        last = 0.0
        for record in records:
            last = record.arrived
            if self._next is None:  # times may be those since 1970
                self._next = (last // COLLECTOR_INTERVAL + 1) * COLLECTOR_INTERVAL
            yield from self._until(last)
            host = self._hosts.get(record.host)
            if host is None:
                host = self._hosts[record.host] = _Host(record.host)
                heappush(self._due, (last + self._chance.random() * HOST_INTERVAL, record.host))
            host.arrived.append(record)
        yield from self._until(last if seconds is None else seconds)

    def _until(self, time: float) -> Iterator[Table]:
        """Let hosts publish up to a time, and yield what the collector judges."""
        while self._next is not None:
            due = self._due[0][0] + DELIVERY if self._due else time + 1
            if min(due, self._next) > time:
                return
            if due <= self._next:
                at, name = heappop(self._due)
                heappush(self._due, (at + HOST_INTERVAL, name))
                self._publish(self._hosts[name], at)
            else:
                streams, self._streams = self._streams, StreamTableBuilder()
                yield streams.table(self._next)
                self._next += COLLECTOR_INTERVAL

    def _publish(self, host: _Host, now: float) -> None:
        builder = StreamTableBuilder()
        for record, queued in zip(host.arrived, self._queueing.queued(host.arrived), strict=True):
            self._add(builder, record, queued)
        host.arrived.clear()
        for batch in batches(builder.table(now), host.name):
            number = host.ticks.get(batch.job, 0)
            parts = encode(Batch(batch.job, host.name, batch.streams, now, progress=batch.progress, tick=number))
            host.ticks[batch.job] = number + len(parts)
            for part in parts:
                self._receive(part)

    def _add(self, builder: StreamTableBuilder, record: Record, queued: float | None) -> None:
        kind = known_kind(record.kind)
        if kind not in JUDGED:
            return
        places = self._places.setdefault((record.job, record.communicator), {})
        operations = []
        stream = (record.job, record.communicator, kind, record.rank)
        begun, ended = self._counts.get(stream, (0, 0))
        if record.microseconds is None:
            begun = max(begun, record.begun or 0)
        else:
            begun, ended = max(begun, record.sequence + 1), max(ended, record.sequence + 1)
            size = algorithm_bytes(kind, record.bytes, record.ranks)
            operations.append((record.sequence, size, record.microseconds, True, queued))
        self._counts[stream] = begun, ended
        builder.add(
            (record.job, record.communicator, kind, str(record.rank)),
            operations,
            progress=(begun, ended),
            ranks=record.ranks,
            nodes=record.nodes or None,
            host=record.host,
            place=places.setdefault(record.rank, len(places) % record.ranks),
            pid=record.rank,
            world_rank=record.rank,
        )

    def _receive(self, part: bytes) -> None:
        batch = self._deduplicator.filter_new(decode(part))
        if batch is None:
            return
        for stream, operations in batch.streams:
            self._streams.add_published(stream, str(stream.world_rank), operations)
        for stream, begun, ended in batch.progress:
            self._streams.add_published(stream, str(stream.world_rank), (), (begun, ended))

    def _judge(self, table: Table) -> Iterator[Given]:
        self.state, _ = self._step(self.state, table)
        if self.state is None:
            return
        for name, memory in self.state.memories.items():
            if memory.given is not None:
                yield Given(table.time, name, memory.given)


def read_records(path: str) -> Iterator[Record]:
    """Yield the records of a file, or of standard input for `-`.

    Raises:
        ValueError: A line is not a record, or out of order; the text begins with its place.
        OSError: The file cannot be read.
    """
    latest: float | None = None
    with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                found = decode_record(line)
                _check(found, latest)
            except (msgspec.DecodeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            latest = found.arrived if latest is None else max(found.arrived, latest)
            yield found


def _check(record: Record, latest: float | None) -> None:
    """Check what the type of a record does not.

    Raises:
        ValueError: The record cannot be replayed.
    """
    size = algorithm_bytes(known_kind(record.kind), record.bytes, record.ranks)
    if size > MAX_BYTES:
        raise ValueError(f"bytes: {record.bytes} on each of {record.ranks} ranks are more than a petabyte")
    if latest is None:
        return
    if record.arrived < latest - HOST_INTERVAL:
        raise ValueError(f"arrived: {record.arrived} follows {latest}; sort the lines by their time of arrival")
    if record.arrived > latest + MAX_PAUSE:
        raise ValueError(f"arrived: {record.arrived} follows {latest}, more than a day; times are in seconds")


def describe(given: Given) -> str:
    """Return a line: time, job, verdict, who, seconds lost per second, share of the bandwidth."""
    one = given.judgement
    is_host = one.verdict is Verdict.STRAGGLER and bool(one.hosts)
    who = ", ".join(one.hosts if is_host else [suspect.rank for suspect in one.ranks])
    bandwidth = "" if one.bandwidth is None else f"{one.bandwidth:.2f}"
    return f"{given.time:9.1f}  {given.job:16} {one.verdict.value:16} {who:24} {one.loss:6.3f} {bandwidth:>6}"


def main(arguments: list[str]) -> int:
    """Print verdicts over time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", metavar="FILE", required=True, help="lines of JSON; - for standard input")
    parser.add_argument("--all", action="store_true", help="print each verdict, not only those that change")
    chosen = parser.parse_args(arguments)
    print(f"{'seconds':>9}  {'job':16} {'verdict':16} {'ranks or hosts':24} {'loss':>6} {'network':>6}")
    before: dict[str, str] = {}
    try:
        for given in Replay().judgements(read_records(chosen.records)):
            one = given.judgement
            now = f"{one.verdict} {sorted(suspect.rank for suspect in one.ranks)} {one.hosts}"
            if chosen.all or before.get(given.job) != now:
                print(describe(given))
            before[given.job] = now
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
