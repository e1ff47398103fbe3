"""Cost of a timing at a collector: decoded from its batch, aligned with those of other ranks, and evaluated.

1,024 ranks on 128 hosts, ten collectives per second each, in groups of eight within a host and of 32 across hosts. No
other program does this, so the limit is absolute.
"""

import gc
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from exporter.meaning.training import jobs
from exporter.mqtt.dedup import Deduplicator
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.nccl.batch_codec import decode, encode
from exporter.sources.nccl.streams import StreamTableBuilder

from measure import Limit  # isort: skip

HOSTS, GPUS = 128, 8
RANKS = HOSTS * GPUS
ACROSS = 32
RATE = 10
"""Collectives per second and rank."""

TICK = 2
"""Seconds between batches, and between verdicts."""

MINUTES = 10
MIN_RATE = 50_000
"""Minimum timings per second of one core."""


def ticks(seconds: int) -> Iterator[tuple[float, list[bytes]]]:
    """Yield the batches of all hosts at each tick: eight of ten collectives within hosts, two across."""
    chance = random.Random(1)
    inside = across = 0
    for tick in range(seconds // TICK):
        parts = []
        count = RATE * TICK
        late = [chance.gauss(0, 300) for _ in range(RANKS)]
        for host in range(HOSTS):
            streams = []
            for gpu in range(GPUS):
                rank = host * GPUS + gpu
                name = f"gpu-{host:03}"
                group = gpu * (HOSTS // ACROSS) + host // ACROSS
                within = Stream("llm", f"0x{host:04x}", "AllReduce", gpu, GPUS, 1, rank, name, 1000 + gpu)
                over = Stream(
                    "llm", f"1x{group:04x}", "AllGather", host % ACROSS, ACROSS, ACROSS, rank, name, 1000 + gpu
                )
                streams.append((within, operations(chance, inside, count * 8 // 10, late[rank])))
                streams.append((over, operations(chance, across, count * 2 // 10, late[rank])))
            batch = Batch("llm", name, streams, sent=1.0, epoch=f"{host:016x}", tick=tick)
            parts += encode(batch)
        inside += count * 8 // 10
        across += count * 2 // 10
        yield float((tick + 1) * TICK), parts


def operations(chance: random.Random, first: int, count: int, late: float) -> list[Operation]:
    """Return operations of 64 MiB for which a rank was late (or early) by some microseconds."""
    return [Operation(first + one, 64 << 20, 5000 - late + chance.random() * 50, True) for one in range(count)]


def resident() -> float:
    """Return the resident set of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def run() -> list[Limit]:
    """Run the measurement."""
    step, deduplicator = partial(jobs.step, jobs.JobKnowledge()), Deduplicator()
    state: jobs.TrainingState | None = None
    taken, sent, reading, spent, sizes = 0, 0, 0.0, 0.0, []
    before = resident()
    for now, parts in ticks(MINUTES * 60):
        begun = time.process_time()
        builder = StreamTableBuilder()
        decoded = [decode(part) for part in parts]
        reading += time.process_time() - begun
        sent += sum(map(len, parts))
        for one in decoded:
            batch = deduplicator.filter_new(one)
            assert batch is not None
            for stream, found in batch.streams:
                key = (stream.job, stream.communicator, stream.kind, str(stream.world_rank))
                taken += len(found)
                ranks, nodes = stream.ranks, stream.nodes
                builder.add(key, found, ranks=ranks, nodes=nodes, host=stream.host, expected=ranks)
        state, _ = step(state, builder.table(now))
        spent += time.process_time() - begun
        if now % 60 == 0:
            gc.collect()
            sizes.append(resident() - before)
    print(
        f"{taken} timings of {RANKS} ranks in {MINUTES} simulated minutes: {taken / spent:,.0f} per second and core,"
        f" {spent / (MINUTES * 60):.3f} CPU s per second; memory by the minute"
        f" {', '.join(f'{size:.0f}' for size in sizes)} MiB"
    )
    print(f"on the wire {sent / taken:.1f} bytes per timing; one core decodes {taken / reading:,.0f} per second")
    growth = sizes[-1] - sizes[len(sizes) // 2]
    return [
        Limit("a timing, decoded, aligned and evaluated", "µs", spent / taken * 1e6, 1e6 / MIN_RATE),
        Limit("memory growth over the second half", "MiB", growth, 8.0),
    ]
