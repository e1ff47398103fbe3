"""Timings on their way from a host's table to a collector's, through a real broker, and what is refused on it."""

import asyncio
from time import monotonic

import pytest
from test_mqtt_broker import broker, until  # noqa: F401  # a fixture

from exporter.config import load
from exporter.daemon import SECTIONS
from exporter.document import ConfigError
from exporter.meaning.jobs import LABELS
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.relay import Relay, batches
from exporter.source import Host
from exporter.sources import collector
from exporter.sources.collector import CollectorOptions, CollectorSource
from exporter.sources.training.streams import STREAMS, Streams

KEY = ("llm", "0xa1", "AllReduce", "17")
OPERATIONS = [(5, 1 << 20, 812.5, True), (6, 1 << 20, 90.0, None)]


def heard(now=1.0):
    """Make the table of a host that heard two operations of one rank."""
    made = Streams()
    about = {"ranks": 32, "nodes": 4, "host": "gpu-2", "place": 1, "pid": 4711, "gpu": "0000:c8:00.0", "world_rank": 17}
    made.add(KEY, OPERATIONS, **about)
    return made.table(now)


async def read_until(source, look):
    """Read a collector until a reading is as wanted."""
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


def test_streams_are_what_meaning_takes():
    assert STREAMS.labels == LABELS


def test_a_table_becomes_a_batch_with_all_that_is_known():
    ((batch),) = batches(heard(), "gpu-2")
    assert batch.job == "llm"
    assert batch.streams == [
        (
            Stream("llm", "0xa1", "AllReduce", 1, 32, 4, 17, "gpu-2", 4711, "0000:c8:00.0"),
            [Operation(5, 1 << 20, 812.5, True), Operation(6, 1 << 20, 90.0, None)],
        )
    ]


async def test_what_a_host_hears_is_what_the_collector_tells_of_it(broker):  # noqa: F811
    options = broker().options()
    relay = Relay(options, "gpu-2")
    source = CollectorSource(CollectorOptions(slots="00-ff"), options)
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.listening)
        await relay.start()
        state, passed = relay.step(None, heard())
        assert (state, passed) == (None, ()), "nobody judges them on the host as well"
        tables = await read_until(source, lambda tables: len(tables[STREAMS].rows))
        table = tables[STREAMS]
        assert table.rows.keys == (KEY,)
        assert table.columns["operations"].values[0].taken == ((5, 1 << 20, 812.5, 1), (6, 1 << 20, 90.0))
        assert table.columns["stream_info"].values[0][:4] == ("32", "4", "gpu-2", "32"), "all its ranks are expected"
        assert number(tables, collector.STATE, "operations_total") == 2
        assert number(tables, collector.BATCHES, "batches_total", ("taken",)) == 1
        assert not len((await source.read()).tables[0].rows), "each is told once"
        names = {column.metric.name for one in relay.tables() for column in one.columns.values()}
        assert "fabric_exporter_mqtt_batches_total" in names
    finally:
        await relay.stop()
        await source.close()


async def test_how_far_a_rank_is_reaches_the_collector_without_a_single_timing(broker):  # noqa: F811
    options = broker().options()
    relay = Relay(options, "gpu-2")
    source = CollectorSource(CollectorOptions(slots="00-ff"), options)
    made = Streams()
    about = {"ranks": 32, "nodes": 4, "host": "gpu-2", "place": 1, "pid": 4711, "world_rank": 17}
    made.add(KEY, [], progress=(8, 7), **about)
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.listening)
        await relay.start()
        relay.step(None, made.table(1.0))
        table = (await read_until(source, lambda tables: len(tables[STREAMS].rows)))[STREAMS]
        assert table.rows.keys == (KEY,)
        assert [table.columns[ending].values[0] for ending in ("begun", "ended")] == [8, 7]
        assert table.columns["operations"].values[0].taken == ()
    finally:
        await relay.stop()
        await source.close()


async def test_a_rank_whose_place_in_the_job_is_unknown_goes_by_host_and_process(broker):  # noqa: F811
    options = broker().options()
    source = CollectorSource(CollectorOptions(slots="00-ff", exclude=("other",)), options)
    try:
        await source.read()
        await until("the collector listens", lambda: source._subscriber.listening)
        async with Publisher(options, "gpu-9") as publisher:
            for job in ("other", "llm"):
                stream = Stream(job, "0x1", "AllReduce", 0, 2, None, None, "gpu-9", 88)
                publisher.offer(Batch(job, "gpu-9", [(stream, [Operation(0, 8, 5.0, None)])], dropped=3))
            tables = await read_until(source, lambda tables: len(tables[STREAMS].rows))
        assert tables[STREAMS].rows.keys == (("llm", "0x1", "AllReduce", "gpu-9/88"),)
        assert number(tables, collector.STATE, "lost_operations_total") == 6
    finally:
        await source.close()


async def test_too_many_timings_are_counted_and_left_out(monkeypatch):
    monkeypatch.setattr(collector, "MAX_OPERATIONS", 3)
    source = CollectorSource(CollectorOptions(slots="00-ff"), MqttOptions(broker="127.0.0.1"))
    stream = Stream("llm", "0x1", "AllReduce", 0, 2, None, 0, "gpu-9", 88)
    source._take(Batch("llm", "gpu-9", [(stream, [Operation(one, 8, 5.0, None) for one in range(5)])]))
    assert (source._taken, source._dropped) == (3, 2)


def configured(tmp_path, text):
    (tmp_path / "x.yml").write_text(text)
    return load(tmp_path / "x.yml", SECTIONS).sources


def test_without_slots_there_is_no_collector(tmp_path):
    sources = configured(tmp_path, "mqtt: {broker: 127.0.0.1}")
    assert collector.build(sources["collector"], sources["mqtt"]) == []
    assert collector.DEFINITION.build(sources["collector"], Host("h", tmp_path, tmp_path)) == []


def test_slots_without_a_broker_are_an_error(tmp_path):
    sources = configured(tmp_path, "collector: {slots: 00-ff}")
    with pytest.raises(ValueError, match=r"give mqtt\.broker"):
        collector.build(sources["collector"], sources["mqtt"])
    with pytest.raises(ConfigError, match="slots has '00-7g'"):
        configured(tmp_path, "collector: {slots: 00-7g}")
