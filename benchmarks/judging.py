"""CPU and memory of judging training jobs: what a collector spends on the tables of timings that it has received.

Simulated jobs of each kind of parallelism that report more than 1,000 collectives a second, without a fault and with a
slow rank; the same jobs when they have become quiet; and one job of 16,384 ranks. `training` measures how they are
decoded. No other program does this, so the limits are absolute.
"""

import gc
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType

from exporter.core.table import Table
from exporter.daemon.runtime import spend_less_on_garbage
from exporter.meaning.training import jobs
from exporter.nccl.batch_codec import decode, encode
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import SlowRank
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.programs import Layout
from exporter.simulator.training.scenario import Scenario, simulate
from exporter.sources.nccl.streams import StreamTableBuilder

from large_job import GPUS, LargeJob  # isort: skip
from measure import Limit, resident_mebibytes  # isort: skip
from verdicts import COLLECTOR_INTERVAL, HOST_INTERVAL, Replay  # isort: skip

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "ddp": DistributedDataParallel(64),
        "fsdp": FullyShardedDataParallel(32),
        "megatron": Megatron(tensor=8, data=4, stages=2),
        "moe": Megatron(tensor=1, data=64, experts=16, micro_batches=4),
    }
)
"""Jobs of 32 to 64 ranks with more than 1,000 collectives a second."""

SLOW = SlowRank(rank=5, share=0.3)
SECONDS = 90.0
"""Seconds of a simulated job, and …"""

QUIET_SECONDS = 60.0
"""… of it afterwards, without a record."""

REPETITIONS = 3
"""Of which the fastest counts: others delay a measurement, and nothing makes it faster."""

MAX_RECORD = 6.0
"""Microseconds of a record, at most."""

MAX_QUIET = 1.0
"""Percent of a core for a job without records, at most."""

HOSTS = 2048
"""Hosts of the large job, whose ranks have five operations a second each."""

LARGE_SECONDS = 120
MAX_LARGE_SECONDS = 1.0
"""CPU seconds per second for the large job, at most, and …"""

MAX_LARGE_MEMORY = 1024.0
"""… MiB of the process."""


def run() -> list[Limit]:
    """Run all measurements."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    spend_less_on_garbage()  # as the daemon does
    return [*large(), *(limit for name, layout in LAYOUTS.items() for limit in _small(name, layout))]


def _small(name: str, layout: Layout) -> Iterator[Limit]:
    """Yield the figures of a simulated job."""
    for label, events in ((name, ()), (f"{name}, a slow rank", (SLOW,))):
        records = simulate(Scenario(layout, SECONDS, events)).records
        tables = list(Replay().tables(records))
        spent, quiet = zip(*(_spent(tables) for _ in range(REPETITIONS)), strict=True)
        rate = f"{len(records) / SECONDS:,.0f} records a second"
        yield Limit(f"a record of {label} ({rate})", "µs CPU", min(spent) / len(records) * 1e6, MAX_RECORD)
        yield Limit(f"{label}, quiet", "% of a core", min(quiet) / QUIET_SECONDS * 100, MAX_QUIET)


def _spent(tables: Sequence[Table]) -> tuple[float, float]:
    """Return the CPU seconds for tables, and for those of a quiet job that follow them."""
    state, spent = _judged(None, tables)
    count = int(QUIET_SECONDS / COLLECTOR_INTERVAL)
    times = (tables[-1].time + COLLECTOR_INTERVAL * number for number in range(1, count + 1))
    return spent, _judged(state, (StreamTableBuilder().table(one) for one in times))[1]


def _judged(state: jobs.TrainingState | None, tables: Iterable[Table]) -> tuple[jobs.TrainingState | None, float]:
    """Return the state after tables, and the CPU seconds for them."""
    known, spent = jobs.JobKnowledge(), 0.0
    gc.collect()
    for table in tables:
        begun = time.process_time()
        state, _ = jobs.step(known, state, table)
        spent += time.process_time() - begun
    return state, spent


def large() -> Iterator[Limit]:
    """Yield the figures of the large job."""
    known, state = jobs.JobKnowledge(), None
    decoding = judging = most = 0.0
    decoded = 0
    chance = Random(1)
    due = sorted((chance.random() * HOST_INTERVAL, host) for host in range(HOSTS))
    job = LargeJob("large", HOSTS)
    reported = [0.0] * HOSTS
    for tick in range(1, int(LARGE_SECONDS / COLLECTOR_INTERVAL) + 1):
        now = tick * COLLECTOR_INTERVAL
        builder = StreamTableBuilder()
        while due[0][0] <= now:
            at, host = due.pop(0)
            due.append((at + HOST_INTERVAL, host))
            parts = encode(job.batch(host, reported[host], at, tick))
            reported[host] = at
            begun = time.process_time()
            for one in map(decode, parts):
                for stream, operations in one.streams:
                    builder.add_published(stream, str(stream.world_rank), operations)
                    decoded += len(operations)
                for stream, *counts in one.progress:
                    builder.add_published(stream, str(stream.world_rank), (), (counts[0], counts[1]))
            decoding += time.process_time() - begun
        begun = time.process_time()
        table = builder.table(now)
        decoding += time.process_time() - begun
        del builder
        begun = time.process_time()
        state, _ = jobs.step(known, state, table)
        judging += time.process_time() - begun
        most = max(most, resident_mebibytes(os.getpid()))
    print(
        f"{HOSTS * GPUS} ranks, {decoded / LARGE_SECONDS:,.0f} records a second: {decoding / decoded * 1e6:.2f} µs a"
        f" record to decode them, {judging / decoded * 1e6:.2f} µs to judge them"
    )
    yield Limit("judging 16,384 ranks", "CPU s a second", judging / LARGE_SECONDS, MAX_LARGE_SECONDS)
    yield Limit("the same, decoded", "CPU s a second", (decoding + judging) / LARGE_SECONDS, MAX_LARGE_SECONDS)
    yield Limit("the same, resident at most", "MiB", most, MAX_LARGE_MEMORY)
