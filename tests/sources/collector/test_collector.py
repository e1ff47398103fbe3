"""Timings from the table of a host to the table of a collector, through a real broker; discarded messages."""

import asyncio
import os
import pickle
import sys
from time import monotonic

import pytest

from exporter.config.errors import ConfigError
from exporter.config.schema import load
from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.core.supervision import Supervisor
from exporter.daemon.relay import Relay, batches
from exporter.daemon.sources import SECTIONS
from exporter.meaning.training.jobs import LABELS
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher
from exporter.mqtt.topics import batch_topic
from exporter.nccl.batch import (
    Batch,
    Operation,
    Progress,
    Stream,
)
from exporter.sources.collector import source as collector
from exporter.sources.collector.metrics import BATCHES, COLLECTOR
from exporter.sources.collector.options import CollectorOptions
from exporter.sources.collector.source import CollectorSource
from exporter.sources.nccl.metrics import STREAMS
from exporter.sources.nccl.streams import StreamTableBuilder
from tests.helpers.paths import ROOT
from tests.helpers.training_bench import datagram
from tests.mqtt.test_broker import raw_client, until

KEY = ("llm", "0xa1", "AllReduce", "17")
OPERATIONS = [(5, 1 << 20, 812.5, True), (6, 1 << 20, 90.0, None)]


def host_table(now=1.0):
    """Return the table of a host with two operations of one rank."""
    made = StreamTableBuilder()
    about = {"ranks": 32, "nodes": 4, "host": "gpu-2", "place": 1, "pid": 4711, "gpu": "0000:c8:00.0", "world_rank": 17}
    made.add(KEY, OPERATIONS, **about)
    return made.table(now)


async def read_until(source, look):
    """Read a collector until a reading satisfies a condition."""
    end = monotonic() + 30
    while True:
        reading = await source.read()
        tables = {table.schema: table for table in reading.tables}
        if STREAMS in tables and look(tables):
            return tables
        assert monotonic() < end
        await asyncio.sleep(0.05)


def number(tables, schema, ending, key=()):
    table = tables[schema]
    return table.columns[ending].values[table.rows.index[key]]


def test_streams_have_the_labels_that_meaning_reads():
    assert STREAMS.labels == LABELS


def test_a_table_is_converted_into_a_batch():
    ((batch),) = batches(host_table(), "gpu-2")
    assert batch.job == "llm"
    assert batch.streams == [
        (
            Stream("llm", "0xa1", "AllReduce", 1, 32, 4, 17, "gpu-2", 4711, "0000:c8:00.0"),
            [Operation(5, 1 << 20, 812.5, True), Operation(6, 1 << 20, 90.0, None)],
        )
    ]


async def test_timings_of_a_host_are_returned_by_the_collector(broker):
    options = broker().options()
    relay = Relay(options, "gpu-2", Supervisor())
    source = CollectorSource(CollectorOptions(slots="00-ff"), options, Supervisor())
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.subscribed)
        await relay.start()
        state, passed = relay.step(None, host_table())
        assert (state, passed) == (None, ()), "no verdict is computed on the host"
        tables = await read_until(source, lambda tables: len(tables[STREAMS].rows))
        table = tables[STREAMS]
        assert table.rows.keys == (KEY,)
        assert table.columns["operations"].values[0].taken == (
            Operation(5, 1 << 20, 812.5, True),
            Operation(6, 1 << 20, 90.0, None),
        )
        assert table.columns["stream_info"].values[0][:4] == ("32", "4", "gpu-2", "32"), "all ranks are expected"
        assert number(tables, COLLECTOR, "operations_total") == 2
        assert number(tables, BATCHES, "batches_total", ("accepted",)) == 1
        assert not len((await source.read()).tables[0].rows), "each is returned once"
        await until("the broker acknowledged it", lambda: relay.status().batches["sent"] == 1)
        assert relay.status().connected
    finally:
        await relay.stop()
        await source.close()


async def test_progress_of_a_rank_is_received_without_timings(broker):
    options = broker().options()
    relay = Relay(options, "gpu-2", Supervisor())
    source = CollectorSource(CollectorOptions(slots="00-ff"), options, Supervisor())
    made = StreamTableBuilder()
    about = {"ranks": 32, "nodes": 4, "host": "gpu-2", "place": 1, "pid": 4711, "world_rank": 17}
    made.add(KEY, [], progress=(8, 7), **about)
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.subscribed)
        await relay.start()
        relay.step(None, made.table(1.0))
        table = (await read_until(source, lambda tables: len(tables[STREAMS].rows)))[STREAMS]
        assert table.rows.keys == (KEY,)
        assert [table.columns[ending].values[0] for ending in ("begun", "ended")] == [8, 7]
        assert table.columns["operations"].values[0].taken == ()
    finally:
        await relay.stop()
        await source.close()


async def test_a_rank_without_a_rank_in_the_job_is_named_by_host_and_process(broker):
    options = broker().options()
    source = CollectorSource(CollectorOptions(slots="00-ff", exclude=("other",)), options, Supervisor())
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.subscribed)
        async with Publisher(options, "gpu-9") as publisher:
            for job in ("other", "llm"):
                stream = Stream(job, "0x1", "AllReduce", 0, 2, None, None, "gpu-9", 88)
                publisher.publish(Batch(job, "gpu-9", [(stream, [Operation(0, 8, 5.0, None)])], dropped=3))
            tables = await read_until(source, lambda tables: len(tables[STREAMS].rows))
        assert tables[STREAMS].rows.keys == (("llm", "0x1", "AllReduce", "gpu-9/88"),)
        assert number(tables, COLLECTOR, "lost_operations_total") == 6
    finally:
        await source.close()


JOB = """
import fabric_timing, time
for _ in range(3):
    with fabric_timing.collective("AllReduce", group="g", size=1 << 20):
        time.sleep(0.01)
timing = fabric_timing.collective("Barrier")
timing.__enter__()
time.sleep(float("SECONDS"))
fabric_timing.flush()
"""
"""A rank that performs three collectives, and hangs in a fourth."""


async def test_a_job_that_publishes_itself_needs_no_exporter_on_its_hosts(broker):
    options = broker().options()
    source = CollectorSource(CollectorOptions(slots="00-ff"), options, Supervisor())
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "exporter" / "hook"),
        "FABRIC_TIMING_MQTT": options.broker,
        "FABRIC_TIMING_JOB": "llm 7",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
    }
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.subscribed)
        command = [sys.executable, "-c", JOB.replace("SECONDS", "4")]
        ranks = [
            await asyncio.create_subprocess_exec(*command, env={**environment, "RANK": str(rank)}) for rank in range(2)
        ]
        seen = {}

        def all_received(tables):
            table = tables[STREAMS]
            for place, key in enumerate(table.rows.keys):
                cells = {ending: column.values[place] for ending, column in table.columns.items()}
                received = seen.setdefault(key, {"operations": [], "progress": None})
                received["operations"] += cells["operations"].taken
                if cells["begun"] is not None:
                    received["progress"] = cells["begun"], cells["ended"]
            sums = [received for (_, _, kind, _), received in seen.items() if kind == "AllReduce"]
            stuck = [received for (_, _, kind, _), received in seen.items() if kind == "Barrier"]
            return sum(len(received["operations"]) for received in sums) >= 6 and len(stuck) == 2

        await read_until(source, all_received)
        assert {(job, kind, rank) for job, _, kind, rank in seen} == {
            ("llm 7", kind, rank) for kind in ("AllReduce", "Barrier") for rank in ("0", "1")
        }
        for (_, _, kind, _), received in seen.items():
            assert [one[:2] for one in received["operations"]] == [
                (n, 1 << 20) for n in range(3 * (kind == "AllReduce"))
            ]
            assert all(one[2] >= 10_000 for one in received["operations"])
            assert received["progress"] == ((1, 0) if kind == "Barrier" else (3, 3))
        assert source._subscriber.refused == {}
        for one in ranks:
            assert await one.wait() == 0
    finally:
        await source.close()


async def test_malformed_datagrams_and_those_of_another_host_are_discarded(broker):
    options = broker().options()
    source = CollectorSource(CollectorOptions(slots="00-ff"), options, Supervisor())
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.subscribed)
        topic = batch_topic("123", "gpu-001").replace("/nccl/", "/timing/")
        foreign = batch_topic("123", "gpu-002").replace("/nccl/", "/timing/")
        with raw_client(options) as publish:
            for where, what in (
                (topic, datagram()),
                (topic, datagram()),  # delivered twice
                (foreign, datagram(1)),
                (topic, pickle.dumps({})),
                (topic, datagram(2, host="a\nb")),
            ):
                await asyncio.to_thread(publish, where, what)
        tables = await read_until(source, lambda _: sum(source._subscriber.refused.values()) == 3)
        assert source._subscriber.refused == {"sender_mismatch": 1, "malformed": 1, "invalid": 1}
        assert source._subscriber.deduplicator.losses.duplicate_batches == 1
        assert tables
    finally:
        await source.close()


async def test_timings_over_the_limit_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(collector, "MAX_OPERATIONS", 3)
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"), Supervisor())
    stream = Stream("llm", "0x1", "AllReduce", 0, 2, None, 0, "gpu-9", 88)
    source._add_batch(Batch("llm", "gpu-9", [(stream, [Operation(one, 8, 5.0, None) for one in range(5)])]))
    assert (source._accepted, source._dropped) == (3, 2)


async def test_a_batch_that_does_not_fit_waits_for_the_next_read(monkeypatch):
    monkeypatch.setattr(collector, "MAX_OPERATIONS", 10)
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"), Supervisor())
    stream = Stream("llm", "0x1", "AllReduce", 0, 2, None, 0, "gpu-9", 88)

    class Subscriber:
        async def batches(self):
            for first in range(0, 40, 4):
                operations = [Operation(first + one, 8, 5.0, None) for one in range(4)]
                yield Batch("llm", "gpu-9", [(stream, operations)])

    receiving = asyncio.create_task(source._receive(Subscriber()))
    taken = []
    for _ in range(5):
        await asyncio.sleep(0)
        streams, source._streams, source._waiting = source._streams, StreamTableBuilder(), 0
        source._has_room.set()
        (operations,) = streams.table(1.0).values("operations")
        taken.append([one[0] for one in operations.taken])
        await asyncio.sleep(0)
    receiving.cancel()
    assert taken == [list(range(first, first + 8)) for first in range(0, 40, 8)]
    assert (source._accepted, source._dropped) == (40, 0)


def test_ranks_claimed_by_several_processes_are_named_by_host_and_process():
    """A restarted job has other communicators, whose ranks are not disputed."""
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"), Supervisor())

    def publish_from(communicator, host, pid):
        stream = Stream("llm", communicator, "AllReduce", 0, 2, None, 0, host, pid)
        source._add_batch(Batch("llm", host, [(stream, [Operation(0, 8, 5.0, None)])]))

    for _ in range(2):
        source._streams, source._claimants = StreamTableBuilder(), {}
        for one in (("0x1", "gpu-1", 7), ("0x1", "gpu-1", 8), ("0x2", "gpu-2", 9)):
            publish_from(*one)
    assert [key[1::2] for key in source._streams.table(1.0).rows.keys] == [
        ("0x1", "gpu-1/7"),
        ("0x1", "gpu-1/8"),
        ("0x2", "0"),
    ]


def test_progress_counts_towards_the_limit(monkeypatch):
    monkeypatch.setattr(collector, "MAX_OPERATIONS", 5 * collector.PROGRESS_COST)
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"), Supervisor())
    rows = [Progress(Stream("llm", f"{one:x}", "Barrier", 0, 2, None, 0, "gpu-9", 88), 1, 0) for one in range(100)]
    source._add_batch(Batch("llm", "gpu-9", [], progress=rows))
    assert len(source._streams.table(1.0).rows) == 5


async def test_reported_losses_never_decrease_and_are_limited():
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"), Supervisor())
    for dropped in (5, (1 << 63) - 1, 0):
        source._add_batch(Batch("llm", "gpu-9", [], dropped=dropped))
    assert list(source._lost.values()) == [1 << 40]


def configured(tmp_path, text):
    (tmp_path / "x.yml").write_text(text)
    return load(tmp_path / "x.yml", SECTIONS).sources


def test_without_slots_there_is_no_collector(tmp_path):
    sources = configured(tmp_path, "mqtt: {broker: 127.0.0.1}")
    context = Context(Host("h", tmp_path, tmp_path), sources)
    assert collector.DEFINITION.build(sources["collector"], context) == []


def test_slots_without_a_broker_are_an_error(tmp_path):
    sources = configured(tmp_path, "collector: {slots: 00-ff}")
    with pytest.raises(ValueError, match=r"set mqtt\.broker"):
        collector.DEFINITION.build(sources["collector"], Context(Host("h", tmp_path, tmp_path), sources))
    with pytest.raises(ConfigError, match="slots has '00-7g'"):
        configured(tmp_path, "collector: {slots: 00-7g}")
