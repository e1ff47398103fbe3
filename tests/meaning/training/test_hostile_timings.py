"""Timings that make no sense, through the real path: batches are encoded, decoded, filtered and judged.

The job itself is healthy, so that no rank or host may be named, and the network is not slow. It is judged on as well.
"""

import random

import pytest

from exporter.meaning.training import jobs
from exporter.meaning.training.verdicts import Verdict
from exporter.mqtt.dedup import Deduplicator
from exporter.nccl.batch import Batch, Operation, Progress, Stream
from exporter.nccl.batch_codec import decode, encode
from exporter.sources.nccl.streams import StreamTableBuilder

RANKS, PER_HOST = 8, 4
STEP, TRANSFER, INTERVAL = 0.5, 0.01, 2.0
ODD = 5
"""The rank whose reports make no sense."""

SINCE, SECONDS = 60.0, 150.0
DAY = 86_400e6
"""Microseconds of a day, the longest that a timing may be."""


def healthy():
    """Yield time, number of operations so far, and those of each rank since the last time: one AllReduce a step."""
    chance = random.Random(1)
    time, number, due = 0.0, 0, INTERVAL
    found = {rank: [] for rank in range(RANKS)}
    while time < SECONDS:
        ready = [STEP * chance.gauss(1, 0.004) for _ in range(RANKS)]
        end = max(ready) + TRANSFER
        for rank in range(RANKS):
            found[rank].append(Operation(number, 1 << 26, (end - ready[rank]) * 1e6, True, 0.0))
        time, number = time + end, number + 1
        if time >= due:
            yield due, number, found
            found, due = {rank: [] for rank in range(RANKS)}, due + INTERVAL


def judged(change, since=SINCE):
    """Return time, verdict and ranks over time; a change returns the rows of a rank for its usual one."""
    known, state, found = Deduplicator(), None, []
    for tick, (now, count, operations) in enumerate(healthy()):
        builder = StreamTableBuilder()
        by_host = {}
        for rank in range(RANKS):
            host = f"gpu-{rank // PER_HOST}"
            stream = Stream("llm", "0xa", "AllReduce", rank, RANKS, RANKS // PER_HOST, rank, host, 100 + rank)
            usual = (stream, operations[rank], (count, count))
            for row in [usual] if now < since else change(*usual):
                by_host.setdefault(row[0].host, []).append(row)
        for host, rows in by_host.items():
            progress = [Progress(stream, *counts) for stream, _, counts in rows]
            batch = Batch("llm", host, [row[:2] for row in rows], now, progress=progress, tick=tick)
            received = known.filter_new(decode(encode(batch)[0]))
            for stream, new in received.streams:
                builder.add_published(stream, str(stream.world_rank), new)
            for stream, *counts in received.progress:
                builder.add_published(stream, str(stream.world_rank), (), tuple(counts))
        state, _ = jobs.step(jobs.JobKnowledge(), state, builder.table(now))
        given = state.memories["llm"].given
        found.append((now, given.verdict, tuple(one.rank for one in given.ranks)))
    return found


def odd(change):
    """Return a change of the operations of one rank alone."""
    return lambda stream, found, counts: [
        (stream, [change(one) for one in found] if stream.rank == ODD else found, counts)
    ]


def ahead_once(number):
    """Return a change that adds one operation with a number to the report of a rank at one time."""

    def change(stream, found, counts):
        is_first = stream.rank == ODD and found[0].sequence * (STEP + TRANSFER) < SINCE
        return [(stream, [*found, Operation(number, 1 << 26, 1e5, True, 0.0)] if is_first else found, counts)]

    return change


CHANGES = {
    "a number far ahead": ahead_once(1 << 62),
    "a number of tomorrow": ahead_once(100_000),
    "numbers of another beginning": odd(lambda one: one._replace(sequence=one.sequence + 1000)),
    "numbers that went back": odd(lambda one: one._replace(sequence=one.sequence % 50)),
    "no time at all": odd(lambda one: one._replace(microseconds=0.0)),
    "a day each": odd(lambda one: one._replace(microseconds=DAY)),
    "queued for a day": odd(lambda one: one._replace(queued=DAY)),
    "queued known of each second one": lambda stream, found, counts: [
        (stream, [one._replace(queued=None if (one.sequence + stream.rank) % 2 else 0.0) for one in found], counts)
    ],
    "no bytes": odd(lambda one: one._replace(size=0)),
    "a petabyte": odd(lambda one: one._replace(size=1 << 50)),
    "another number of ranks": lambda stream, found, counts: [
        (stream._replace(ranks=32) if stream.rank == ODD else stream, found, counts)
    ],
    "two processes of one rank": lambda stream, found, counts: [
        (stream, found, counts),
        *([(stream._replace(host="gpu-9", pid=7), found, counts)] if stream.rank == ODD else []),
    ],
    "more ended than begun": lambda stream, found, counts: [(stream, found, (0, counts[1]))],
    "begun far ahead": lambda stream, found, counts: [
        (stream, found, (1 << 62, 1 << 61) if stream.rank == ODD else counts)
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_reports_of_one_rank_that_make_no_sense_give_no_verdict(name):
    found = judged(CHANGES[name])
    assert {verdict for _, verdict, _ in found} <= {Verdict.UNKNOWN, Verdict.FINE}
    assert found[-1][1] is Verdict.FINE


def test_a_job_that_starts_again_under_the_names_of_its_communicators_is_judged_on():
    """Without torch's store the hook derives names from the variables of the run, which a restart may keep."""
    begin = round(SINCE / (STEP + TRANSFER))

    def again(stream, found, counts):
        new = [one._replace(sequence=one.sequence - begin) for one in found if one.sequence >= begin]
        return [(stream._replace(pid=stream.pid + 1000), new, (counts[0] - begin, counts[1] - begin))]

    found = judged(again, since=SINCE + 2 * INTERVAL)
    after = [(verdict, ranks) for time, verdict, ranks in found if time > SINCE + 45]
    assert set(after) == {(Verdict.FINE, ())}


def test_without_the_reports_of_one_rank_of_eight_there_is_not_enough_data():
    """Fewer than nine tenths of the ranks; the last one may be that one."""
    found = judged(lambda stream, *row: [] if stream.rank == ODD else [(stream, *row)])
    assert {verdict for _, verdict, _ in found} == {Verdict.UNKNOWN, Verdict.FINE}
    assert found[-1][1] is Verdict.UNKNOWN


def test_a_job_of_one_rank_has_no_verdict():
    builder = StreamTableBuilder()
    stream = Stream("llm", "0xa", "AllReduce", 0, 1, 1, 0, "gpu-0", 1)
    builder.add_published(stream, "0", [Operation(number, 1 << 26, 100.0, True) for number in range(100)], (100, 100))
    state, tables = jobs.step(jobs.JobKnowledge(), None, builder.table(2.0))
    assert state.memories == {}
    assert tables == []
