"""Programs of this version and the previous one, which does not know `queued`, read what the other one sends."""

import json

import pytest

from exporter.core.table import Samples
from exporter.meaning.training import jobs
from exporter.nccl import batch, batch_codec, datagram
from exporter.nccl.datagram_batch import batch_of
from exporter.nccl.decoding import FormatError
from exporter.sources.nccl.streams import StreamTableBuilder
from tests.fixtures.previous import batch as previous_batch
from tests.fixtures.previous import batch_codec as previous_codec
from tests.fixtures.previous import datagram as previous_datagram

ROW = [0, "AllReduce", 7, 4096, 250, 1_000_000, "gpu"]
"""A completed collective, in the previous version."""


def message(*rows):
    """Return a datagram with rows of operations."""
    values = {
        "v": 1,
        "n": 0,
        "pid": 17,
        "host": "gpu-01",
        "clock": [2_000_000, 1_748_030_377_000_000],
        "env": {},
        "rank": 3,
        "world": 8,
        "groups": [["00c0ffee00c0ffee", "dp", 3, 8, 1]],
        "ops": list(rows),
    }
    return json.dumps(values).encode()


def stream(module, **other):
    values = {
        "job": "llm",
        "communicator": "c1",
        "kind": "AllReduce",
        "rank": 3,
        "ranks": 8,
        "nodes": 1,
        "world_rank": 3,
        "host": "gpu-01",
        "pid": 17,
    }
    return module.Stream(**{**values, **other})


def sent(module, *streams):
    return module.Batch("llm", "gpu-01", list(streams), 1748030377.5, epoch="00c0ffee00c0ffee")


# --- datagrams


def test_previous_exporter_reads_the_operations_of_this_hook():
    (one,) = previous_datagram.parse_datagram(message([*ROW, 1200])).operations
    assert (one.kind, one.sequence, one.microseconds, one.timing) == ("AllReduce", 7, 250, "gpu")
    assert not hasattr(one, "queued")


def test_this_exporter_reads_the_operations_of_the_previous_hook():
    read = datagram.parse_datagram(message(ROW, [*ROW[:2], 8, *ROW[3:], 0], [*ROW[:2], 9, *ROW[3:], 1200, "later"]))
    assert [one.queued for one in read.operations] == [None, 0, 1200]
    ((_, found),) = batch_of(read, "llm").streams
    assert [(one.microseconds, one.timed, one.queued) for one in found] == [
        (250.0, True, None),
        (250.0, True, 0),
        (250.0, True, 1200),
    ]


@pytest.mark.parametrize("queued", [-1, 86_400_000_001, 1.5, "5", True, [5]])
def test_queueing_times_of_a_datagram_are_validated(queued):
    with pytest.raises(FormatError) as raised:
        datagram.parse_datagram(message([*ROW, queued]))
    assert raised.value.reason == "invalid"


# --- batches


def test_previous_collector_reads_the_batches_of_this_host():
    operations = [batch.Operation(number, 64, 100.5, timed=True, queued=10.0 * number) for number in range(5)]
    (data,) = batch_codec.encode(
        sent(batch, (stream(batch), operations), (stream(batch, kind="AllGather"), operations))
    )
    read = previous_codec.decode(data)
    expected = [previous_batch.Operation(number, 64, 100.5, timed=True) for number in range(5)]
    found = {key.kind: values for key, values in read.streams}
    assert (found["AllReduce"], found["AllGather"]) == (expected, expected)
    # The rest are kinds that it does not know, of which no collector judges anything.
    assert found.keys() == {"AllReduce", "AllGather", "AllReduce_queued", "AllGather_queued"}
    builder = StreamTableBuilder()
    for key, values in read.streams:
        builder.add_published(key, str(key.world_rank), [batch.Operation(*one) for one in values])
    state, _ = jobs.step(jobs.JobKnowledge(), None, builder.table(100.0))
    assert state.collectives.jobs["llm"].communicators["c1"].highest == {"AllReduce": 4, "AllGather": 4}


def test_this_collector_reads_the_batches_of_the_previous_host():
    operations = [previous_batch.Operation(number, 64, 100.5, timed=None) for number in range(5)]
    (data,) = previous_codec.encode(sent(previous_batch, (stream(previous_batch), operations)))
    ((key, found),) = batch_codec.decode(data).streams
    assert key == stream(batch)
    assert found == [batch.Operation(number, 64, 100.5, None, None) for number in range(5)]


def test_batches_without_queueing_times_are_those_of_the_previous_version():
    """Feeds that do not know them cost nothing more."""
    for timed in (True, False, None):
        values = [(3 * number, 64 << number % 3, 10.0 * number, timed) for number in range(1, 50)]
        (data,) = batch_codec.encode(sent(batch, (stream(batch), [batch.Operation(*one) for one in values])))
        (before,) = previous_codec.encode(
            sent(previous_batch, (stream(previous_batch), [previous_batch.Operation(*one) for one in values]))
        )
        assert data == before


def test_queueing_times_arrive_in_the_table_of_the_collector():
    read = datagram.parse_datagram(message(ROW, [*ROW[:2], 8, *ROW[3:6], "host", 0], [*ROW[:2], 9, *ROW[3:], 1200]))
    (data,) = batch_codec.encode(batch_of(read, "llm"))
    builder = StreamTableBuilder()
    for key, operations in batch_codec.decode(data).streams:
        builder.add_published(key, str(key.world_rank), operations)
    (samples,) = builder.table(5.0).values("operations")
    assert isinstance(samples, Samples)
    assert jobs.timings(samples) == [
        (7, 4096, 250.0, 1, None),
        (8, 4096, 250.0, None, 0.0),
        (9, 4096, 250.0, 1, 1200.0),
    ]
