"""MQTT with a real broker, mosquitto: batches are delivered once, also across restarts of the broker."""

import asyncio
import gc
import hashlib
import pickle
import re
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import product
from pathlib import Path
from time import monotonic

import pytest
import trustme
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from exporter.mqtt import connection, retained_state
from exporter.mqtt import publisher as publishing
from exporter.mqtt.client import Access, BrokerClient, BrokerError, ClientSettings
from exporter.mqtt.connection import Backoff, ConnectionStatus
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher, PublishQueue, QueuedMessage
from exporter.mqtt.states import encode as encode_state
from exporter.mqtt.states import make_state
from exporter.mqtt.subscriber import Subscriber
from exporter.mqtt.topics import (
    batch_topic,
    event_topic,
    host_topic,
    slot_of,
)
from exporter.nccl.batch import Batch, Operation, Stream
from exporter.nccl.batch_codec import decode, encode
from tests.helpers.paths import ROOT
from tests.helpers.stack import free_port

DOCUMENT = (ROOT / "docs" / "mqtt.md").read_text()
PATIENCE = 30.0
"""Seconds to wait for an event, on a busy machine."""

PORT = ("gpu-01", "mlx5_0:1")


async def until(what, look):
    """Wait until a condition is true."""
    end = monotonic() + PATIENCE
    while not look():
        assert monotonic() < end, what
        await asyncio.sleep(0.02)


class TcpProxy:
    """A TCP proxy to the broker that closes connections on request."""

    def __init__(self, to: int):
        self.is_open = True
        self._to = to
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.shut()
        await self._server.wait_closed()
        await until("closed", lambda: not self._writers)

    def cut(self):
        """Close the open connections without an MQTT DISCONNECT."""
        for writer in self._writers:
            writer.close()

    def shut(self):
        """Close all connections and reject new ones."""
        self.is_open = False
        self.cut()

    async def _serve(self, reader, writer):
        if not self.is_open:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        for one in (writer, back):
            with suppress(OSError):
                await one.wait_closed()
        self._writers -= {writer, back}

    async def _pass(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@contextmanager
def raw_client(options):
    """Return a function that publishes any message, with paho's own thread; it blocks until the broker confirms."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect(*options.address)
    client.loop_start()

    def publish(topic, payload):
        client.publish(topic, payload, qos=1).wait_for_publish(PATIENCE)

    yield publish
    client.disconnect()
    client.loop_stop()


def quick():
    return Backoff(initial=0.05, maximum=0.2)


@asynccontextmanager
async def published(options, host="gpu-01"):
    async with Publisher(options, host, quick()) as one:
        await until("connected", lambda: one.status.connected)
        yield one


@asynccontextmanager
async def collected(options, slots="00-ff", **other):
    """Return a subscriber, and the list of the batches that it returned."""
    got = []

    async def collect():
        async for batch in one.batches():
            got.append(batch)  # noqa: PERF401  # as they come

    async with Subscriber(options, slots, backoff=quick(), **other) as one:
        task = asyncio.create_task(collect())
        await until("subscribed", lambda: one.subscribed)
        try:
            yield one, got
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def batch(first, count=3, job="train-7", host="gpu-01", **other):
    stream = Stream(job, "0xc0ffee", "AllReduce", 0, 8, 1, 0, host, 4711)
    operations = [Operation(number, 1024, 250.5, timed=True) for number in range(first, first + count)]
    return Batch(job, host, [(stream, operations)], **other)


def numbers(got):
    return [one.sequence for batch in got for _, operations in batch.streams for one in operations]


@contextmanager
def no_leaks():
    """Check that tasks are ended; unclosed sockets fail the test when they are collected."""
    before = len(asyncio.all_tasks())
    yield
    gc.collect()
    assert len(asyncio.all_tasks()) == before


# --- batches


async def test_a_batch_is_received_as_it_was_published(broker):
    options = broker().options()
    async with collected(options) as (subscriber, got), published(options) as publisher:
        publisher.publish(batch(5, dropped=7))
        publisher.publish(batch(8))
        await until("both", lambda: len(got) == 2 and publisher.sent == 2)
    first, second = got
    assert first.streams == batch(5).streams
    assert (first.job, first.host, first.dropped, first.tick, second.tick) == ("train-7", "gpu-01", 7, 0, 1)
    assert first.epoch == second.epoch
    assert first.sent > 1.7e9
    assert subscriber.refused == {}


async def test_publisher_and_subscriber_reconnect_when_the_broker_restarts(broker):
    """Lost batches are counted on both sides, and no batch is received twice."""
    one = broker()
    with no_leaks():
        async with collected(one.options()) as (subscriber, got), published(one.options()) as publisher:
            publisher._queue._max_messages = 10
            publisher.publish(batch(0))
            await until("the first", lambda: numbers(got) == [0, 1, 2])
            one.stop()
            await until("noticed", lambda: not publisher.status.connected and not subscriber.status.connected)
            for tick in range(1, 31):
                publisher.publish(batch(3 * tick))
            await until("tried", lambda: publisher.status.failures >= 3)
            assert publisher.queued[0] + publisher.dropped == 30
            assert len(publisher._queue) <= 10
            one.start()
            await until("the collector", lambda: subscriber.subscribed)
            await until("sent", lambda: publisher.queued == (0, 0) and publisher.sent > 1)
            publisher.publish(batch(93))
            await until("the last", lambda: numbers(got)[-1:] == [95])
            assert publisher.status.reconnects >= 1
            assert publisher.dropped == 20
    received = numbers(got)
    assert len(received) == len(set(received))
    missing = set(range(96)) - set(received)
    # the collector may have reconnected after the first queued batch was published
    assert len(missing) == 3 * subscriber.deduplicator.losses.batches
    assert subscriber.deduplicator.losses.batches >= 20
    assert set(range(3, 63)) <= missing
    assert subscriber.refused == {}


def minute(job, host, first, ticks=12):
    """Return the batches of a host with eight ranks in a minute: every 5 s, three kinds, ten operations per second."""
    for tick in range(ticks):
        streams = []
        for rank in range(8):
            for kind in ("AllReduce", "AllGather", "ReduceScatter"):
                stream = Stream(job, "0xa", kind, rank, 16, 2, rank, host, 100 + rank)
                numbers_of = range(first + 50 * tick, first + 50 * tick + 50)
                streams.append(
                    (stream, [Operation(number, 1 << 20, 500.0 + rank, timed=True) for number in numbers_of])
                )
        yield Batch(job, host, streams)


async def test_batches_of_a_minute_without_the_broker_are_delivered_later(broker):
    """Two jobs on two hosts: all batches of the outage are received once, under their own names."""
    one = broker()
    with no_leaks():
        async with (
            collected(one.options()) as (subscriber, got),
            TcpProxy(one.port) as proxy,
            published(MqttOptions(broker=f"127.0.0.1:{proxy.port}"), "gpu-01") as first,
            published(MqttOptions(broker=f"127.0.0.1:{proxy.port}"), "gpu-02") as second,
        ):
            hosts = {"gpu-01": first, "gpu-02": second}
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    publisher.publish(batch(0, job=job, host=host))
            await until("the first", lambda: len(got) == 4)
            proxy.shut()
            one.stop()
            await until("noticed", lambda: not any(each.status.connected for each in hosts.values()))
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    for one_batch in minute(job, host, 1000):
                        publisher.publish(one_batch)
            one.start()
            await until("the collector", lambda: subscriber.subscribed)
            proxy.is_open = True
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    for one_batch in minute(job, host, 1600, ticks=1):
                        publisher.publish(one_batch)
            await until("sent", lambda: all(each.queued == (0, 0) for each in hosts.values()))
            await until("the last", lambda: {(b.job, b.host) for b in got if b.tick == 13} == set(product("ab", hosts)))
            assert [each.dropped for each in hosts.values()] == [0, 0]
    received = [
        (b.job, b.host, stream.kind, stream.rank, operation.sequence)
        for b in got
        for stream, operations in b.streams
        for operation in operations
        if stream.communicator == "0xa"
    ]
    assert len(received) == len(set(received))
    assert len(received) == 2 * 2 * 8 * 3 * 50 * 13
    assert subscriber.deduplicator.losses.batches == 0
    assert all(stream.host == b.host and stream.job == b.job for b in got for stream, _ in b.streams)


async def test_unconfirmed_batches_are_sent_again_after_the_broker_hangs(broker, monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT", 0.5)
    one = broker()
    with no_leaks():
        async with collected(one.options()) as (subscriber, got), published(one.options()) as publisher:
            publisher.publish(batch(0))
            await until("the first", lambda: publisher.sent == 1)
            one.process.send_signal(signal.SIGSTOP)
            publisher.publish(batch(3))
            publisher.publish(batch(6))
            await until("left", lambda: publisher.status.failures >= 2)
            one.process.send_signal(signal.SIGCONT)
            await until("all", lambda: publisher.sent == 3 and len(got) == 3)
    assert numbers(got) == list(range(9))
    assert subscriber.deduplicator.losses.batches == 0


async def test_the_session_keeps_batches_while_a_collector_reconnects(broker):
    one = broker()
    async with (
        TcpProxy(one.port) as proxy,
        published(one.options()) as publisher,
        collected(MqttOptions(broker=f"127.0.0.1:{proxy.port}")) as (subscriber, got),
    ):
        publisher.publish(batch(0))
        await until("the first", lambda: len(got) == 1)
        proxy.shut()
        await until("cut", lambda: not subscriber.status.connected)
        publisher.publish(batch(3))
        await until("sent", lambda: publisher.sent == 2)
        assert len(got) == 1
        proxy.is_open = True
        await until("back", lambda: len(got) == 2)
    assert numbers(got) == list(range(6))
    assert subscriber.deduplicator.losses.batches == 0


async def test_repeated_disconnects_cause_no_loss_and_no_duplicates(broker):
    one = broker()
    async with (
        TcpProxy(one.port) as proxy,
        collected(one.options()) as (subscriber, got),
        published(MqttOptions(broker=f"127.0.0.1:{proxy.port}")) as publisher,
    ):
        for tick in range(60):
            publisher.publish(batch(3 * tick))
            if tick % 10 == 5:
                proxy.cut()
            await asyncio.sleep(0.01)
        await until("all", lambda: publisher.sent == 60 and len(got) == 60)
        assert publisher.status.reconnects >= 1
    assert numbers(got) == list(range(180))
    assert (subscriber.deduplicator.losses.batches, publisher.dropped) == (0, 0)


async def test_a_batch_too_large_for_the_broker_is_dropped_and_blocks_no_other(broker):
    one = broker("allow_anonymous true", "max_packet_size 2000")
    async with collected(one.options()) as (_, got), published(one.options()) as publisher:
        publisher.publish(batch(0, count=2000))
        publisher.publish(batch(2000))
        await until("the small one", lambda: numbers(got) == [2000, 2001, 2002])
        await until("both", lambda: (publisher.dropped, publisher.sent) == (1, 1))


async def test_a_state_with_an_invalid_name_is_omitted_and_affects_no_other(broker):
    options = broker().options()
    bad = [("gpu-01", ""), ("gpu-01", "a\nb"), ("", "p"), ("gpu-01", "x" * 300)]
    async with collected(options) as (subscriber, _), published(options) as publisher:
        publisher.set_states(
            [*((place, make_state("down", 1.0)) for place in bad), (PORT, make_state("down", 1.0, text="a\nb" * 300))]
        )
        await until("the good one", subscriber.retained.states)
        assert subscriber.retained.states().keys() == {(*PORT, "down")}
        assert publisher.omitted_states == 4
    assert subscriber.refused == {}


async def test_a_batch_sent_twice_is_returned_once(broker):
    """As after a lost PUBACK."""
    options = broker().options()
    async with collected(options) as (subscriber, got), published(options) as publisher:
        (data,) = encode(batch(0))
        for _ in range(2):
            publisher._queue.put(QueuedMessage(batch_topic("train-7", "gpu-01"), data, monotonic()))
        publisher._wakeup.set()
        await until("both", lambda: subscriber.deduplicator.losses.duplicate_batches == 1)
    assert numbers(got) == [0, 1, 2]


async def test_all_hosts_of_a_job_are_received_by_one_collector(broker):
    options = broker().options()
    jobs = [f"job-{number}" for number in range(24)]
    halves = {"00-7f": set(), "80-ff": set()}
    for job in jobs:
        halves["00-7f" if int(slot_of(job), 16) < 0x80 else "80-ff"].add(job)
    assert all(halves.values())
    async with (
        collected(options, "00-7f") as (_, low),
        collected(options, "80-ff") as (_, high),
        published(options, "gpu-01") as one,
        published(options, "gpu-02") as two,
    ):
        for job in jobs:
            one.publish(batch(0, job=job))
            two.publish(batch(0, job=job, host="gpu-02"))
        await until("all", lambda: len(low) + len(high) == 48)
    assert {each.job for each in low} == halves["00-7f"]
    assert {each.job for each in high} == halves["80-ff"]
    assert {each.host for each in low} == {"gpu-01", "gpu-02"}


async def test_a_slow_collector_drops_the_oldest_batches_and_counts_them(broker):
    options = broker().options()
    async with (
        Subscriber(options, backoff=quick(), max_queued_bytes=4000) as subscriber,
        published(options) as publisher,
    ):
        await until("subscribed", lambda: subscriber.subscribed)
        for tick in range(50):
            publisher.publish(batch(3 * tick))
        await until("all", lambda: publisher.sent == 50 and subscriber.dropped + subscriber.queued[0] == 50)
        count, size = subscriber.queued
        assert 0 < count < 20
        assert size <= 4000
        given = subscriber.batches()
        got = [await anext(given) for _ in range(count)]
        await given.aclose()
    assert numbers(got) == list(range(3 * (50 - count), 150)), "the newest stay"


async def test_hostile_messages_are_discarded_and_counted(broker):
    options = broker().options()
    (good,) = encode(batch(0))
    (other,) = encode(batch(0, job="train-8"))
    (elsewhere,) = encode(batch(0, host="gpu-02"))
    topic = batch_topic("train-7", "gpu-01")
    wrong_slot = topic.replace(f"/{slot_of('train-7')}/", "/00/")
    hostile = [
        (topic, pickle.dumps({"version": 1}), "invalid"),
        (topic, b"", "malformed"),
        (topic, b"\x91" * 1000, "invalid"),
        (topic, b"\x00" * (256 * 1024 + 1), "too_large"),
        (topic, other, "sender_mismatch"),
        (topic, elsewhere, "sender_mismatch"),
        (wrong_slot, good, "invalid_topic"),
        (event_topic("gpu-01", "p", "down"), b'{"version":1}', "invalid"),
        ("fabric/v1/hosts/a%0Ab", b"{}", "invalid_topic"),
    ]
    async with collected(options) as (subscriber, got):
        with raw_client(options) as attacker:
            for where, payload, _ in hostile:
                await asyncio.to_thread(attacker, where, payload)
            await asyncio.to_thread(attacker, topic, b"\x00" * 400_000)  # over the subscriber's Maximum Packet Size
        async with published(options) as publisher:
            publisher.publish(batch(0))
            await until("the good one", lambda: numbers(got) == [0, 1, 2])
    expected = {reason: [one for *_, one in hostile].count(reason) for *_, reason in hostile}
    assert dict(subscriber.refused) == expected
    assert subscriber.status.connects == 1
    assert subscriber.retained.states() == {}


# --- states and presence


async def test_active_states_are_retained_and_cleared_when_they_end(broker):
    options = broker().options()
    active = [(PORT, make_state("down", 1748030377.0, 2, text="no light"))]
    async with published(options) as publisher:
        publisher.set_states(active)
        async with collected(options) as (subscriber, _):
            key = (*PORT, "down")
            await until("the state", lambda: subscriber.retained.states().get(key) == active[0][1])
            await until("the host", lambda: "gpu-01" in subscriber.retained.hosts())
            up = subscriber.retained.hosts()["gpu-01"]
            assert (up.state, up.number) == ("up", 1)
            assert up.since > 1.7e9
            publisher.set_states([])
            await until("over", lambda: subscriber.retained.states() == {})
            publisher.set_states(active)
            await until("again", lambda: key in subscriber.retained.states())
            await publisher.__aexit__(None, None, None)
            await until("gone", lambda: subscriber.retained.hosts()["gpu-01"].state == "gone")
            assert subscriber.retained.states() == {}, "no daemon polls that port any more"
    async with collected(options) as (subscriber, _):
        await until("still gone", lambda: "gpu-01" in subscriber.retained.hosts())
        assert subscriber.retained.states() == {}


async def test_states_are_published_again_to_a_broker_that_lost_them(broker):
    one = broker()
    active = [
        (PORT, make_state("down", 1748030377.0)),
        (("leaf-1", "swp1"), make_state("errors", 1748030378.0, value=3.0)),
    ]
    async with published(one.options()) as publisher:
        publisher.set_states(active)
        await until("published", lambda: len(publisher._published) == 2)
        one.stop()
        await until("noticed", lambda: not publisher.status.connected)
        publisher.set_states(active[:1])
        one.start()
        async with collected(one.options()) as (subscriber, _):
            await until("published again", lambda: set(subscriber.retained.states()) == {(*PORT, "down")})
            await until("up", lambda: "gpu-01" in subscriber.retained.hosts())
            assert subscriber.retained.hosts()["gpu-01"].number >= 2


async def test_states_not_sent_again_after_an_outage_expire_in_the_collector(broker, monkeypatch):
    monkeypatch.setattr(retained_state, "SETTLE_SECONDS", 0.3)
    one = broker()
    async with collected(one.options()) as (subscriber, _):
        async with published(one.options()) as publisher:
            publisher.set_states([(PORT, make_state("down", 1.0))])
            await until("the state", subscriber.retained.states)
            one.stop()
            await until("noticed", lambda: not publisher.status.connected and not subscriber.status.connected)
        assert subscriber.retained.states(), "the broker is down, the state is still active"
        one.start()
        await until("over", lambda: not subscriber.retained.states() and not subscriber.retained.hosts())
        assert subscriber.subscribed


async def test_states_expire_at_the_broker_and_are_refreshed_before(broker, monkeypatch):
    """Expiry by the clock of the broker: with refreshes the states persist, without they expire."""
    monkeypatch.setattr(publishing.states, "EXPIRY", 4.0)
    monkeypatch.setattr(publishing.states, "REFRESH", 1.0)
    options = broker().options()
    refreshed = []
    async with published(options) as publisher:
        publisher.set_states([(PORT, make_state("down", 1.0))])
        on_received = Subscriber._on_received

        def spy(self, topic, payload):
            refreshed.append(topic)
            on_received(self, topic, payload)

        monkeypatch.setattr(Subscriber, "_on_received", spy)
        async with collected(options):
            for topic in (event_topic(*PORT, "down"), host_topic("gpu-01")):
                await until("refreshed", lambda topic=topic: refreshed.count(topic) >= 3)
        monkeypatch.setattr(publishing.states, "REFRESH", 1e9)
        publisher._wakeup.set()

        async def is_kept():
            """Return whether the broker sends the state to a new subscriber, before messages published later."""
            async with collected(options) as (subscriber, _):
                with raw_client(options) as publish:
                    state = encode_state(make_state("down", 1.0))
                    await asyncio.to_thread(publish, event_topic("marker", "p", "down"), state)
                await until("the marker", lambda: ("marker", "p", "down") in subscriber.retained.states())
                return (*PORT, "down") in subscriber.retained.states()

        end = monotonic() + PATIENCE
        while await is_kept():
            assert monotonic() < end


PUBLISHER_PROGRAM = """
import asyncio, sys
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher

async def main():
    async with Publisher(MqttOptions(broker=sys.argv[1]), "gpu-09"):
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_the_broker_publishes_the_will_of_a_killed_daemon(broker):
    options = broker().options()
    lone = await asyncio.create_subprocess_exec(sys.executable, "-c", PUBLISHER_PROGRAM, options.broker, cwd=ROOT)
    try:
        async with collected(options) as (subscriber, _):
            hosts = subscriber.retained.hosts
            await until("up", lambda: "gpu-09" in hosts() and hosts()["gpu-09"].state == "up")
            lone.kill()
            await until("gone", lambda: hosts()["gpu-09"].state == "gone")
    finally:
        with suppress(ProcessLookupError):
            lone.kill()
        await lone.wait()


# --- authentication and TLS


@pytest.fixture
def users(program, tmp_path):
    """Return a password file in which gpu-01, collector and switches have the password `right`."""
    users = tmp_path / "users"
    users.touch(0o600)
    for name in ("gpu-01", "collector", "switches"):
        subprocess.run([program("mosquitto_passwd"), "-b", users, name, "right"], check=True, capture_output=True)
    return users


async def test_the_password_is_read_at_each_connect(broker, users, tmp_path):
    one = broker("allow_anonymous false", f"password_file {users}")
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    with no_leaks():
        async with Publisher(one.options(username="gpu-01", password_file=str(secret)), "gpu-01", quick()) as publisher:
            await until("refused", lambda: publisher.status.failures >= 2)
            assert "uthori" in publisher.status.error
            assert "wrong" not in publisher.status.error
            secret.unlink()
            await until("missing", lambda: "cannot be read" in publisher.status.error)
            secret.write_text("right\n")
            await until("connected", lambda: publisher.status.connected)


async def test_a_host_may_publish_under_its_own_name_only_and_refused_batches_are_not_sent(broker, users, tmp_path):
    """With the ACL of the documentation."""
    (rights,) = re.findall(r"^```\n# /etc/mosquitto/acl\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    file = tmp_path / "acl"
    file.write_text(rights)
    one = broker("allow_anonymous false", f"password_file {users}", f"acl_file {file}")

    def options(user):
        secret = tmp_path / user
        secret.write_text("right")
        return one.options(username=user, password_file=str(secret))

    states = [(PORT, make_state("down", 1.0)), (("gpu-02", "mlx5_0:1"), make_state("down", 1.0))]
    async with collected(options("collector")) as (subscriber, got), published(options("gpu-01")) as publisher:
        publisher.publish(batch(0))
        publisher.publish(batch(0, host="gpu-02"))
        publisher.set_states(states)
        await until("all", lambda: (publisher.sent, publisher.refused, publisher.status.refused) == (1, 1, 2))
        await until("the state", subscriber.retained.states)
        publisher.publish(batch(3))
        await until("the last", lambda: len(got) == 2)
        assert {each.host for each in got} == {"gpu-01"}
        assert subscriber.retained.hosts().keys() == {"gpu-01"}
        assert subscriber.retained.states().keys() == {(*PORT, "down")}


async def test_collectors_and_pollers_may_publish_their_presence(broker, users, tmp_path, caplog):
    """With the ACL of the documentation, for any host name."""
    (rights,) = re.findall(r"^```\n# /etc/mosquitto/acl\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    (tmp_path / "acl").write_text(rights)
    one = broker("allow_anonymous false", f"password_file {users}", f"acl_file {tmp_path / 'acl'}")
    secret = tmp_path / "secret"
    secret.write_text("right")
    mine, poller, host = (
        one.options(username=user, password_file=str(secret)) for user in ("collector", "switches", "gpu-01")
    )
    async with collected(mine) as (subscriber, _), published(mine, "mgmt-1"), published(poller, "mgmt-2"):
        await until("both", lambda: subscriber.retained.hosts().keys() == {"mgmt-1", "mgmt-2"})
        assert not caplog.records
        async with published(host, "mgmt-3") as other:
            await until("refused", lambda: other.status.refused == 1)
        assert [one.getMessage() for one in caplog.records if "fabric/v1/hosts/mgmt-3" in one.getMessage()]


async def test_refused_subscriptions_are_an_error():
    class Refusing:
        async def subscribe(self, topics, options):
            return [ReasonCode(PacketTypes.SUBACK, identifier=0x87) for _ in topics]

    with pytest.raises(BrokerError, match="the broker refuses 2 of 2 topics: Not authorized"):
        await Subscriber(MqttOptions(broker="127.0.0.1:1"))._subscribe(Refusing())


@pytest.fixture
def authority(tmp_path):
    """Return the files of a CA, of a broker certificate and of a client certificate."""
    ca = trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key", "client_cert", "client_key")}
    ca.cert_pem.write_to_path(files["ca"])
    for prefix, made in (("", ca.issue_cert("127.0.0.1")), ("client_", ca.issue_cert("gpu-01"))):
        made.cert_chain_pems[0].write_to_path(files[f"{prefix}cert"])
        made.private_key_pem.write_to_path(files[f"{prefix}key"])
    return {name: str(file) for name, file in files.items()}


def pin(authority):
    shown = ssl.PEM_cert_to_DER_cert(Path(authority["cert"]).read_text())
    return hashlib.sha256(shown).hexdigest()


def tls_lines(authority, *more):
    keys = (("cafile", "ca"), ("certfile", "cert"), ("keyfile", "key"))
    return ("allow_anonymous true", *(f"{key} {authority[name]}" for key, name in keys), *more)


async def test_tls_accepts_by_ca_by_fingerprint_or_without_verification(broker, authority):
    one = broker(*tls_lines(authority))
    for trust in ({"ca_file": authority["ca"]}, {"sha256": pin(authority)}, {"insecure": True}):
        async with published(one.options(tls=True, **trust)) as publisher:
            publisher.publish(batch(0))
            await until("sent", lambda: publisher.sent == 1)


@pytest.mark.parametrize(
    ("trust", "error"),
    [({}, "certificate verify failed"), ({"sha256": "ab" * 32}, "not the pinned one"), ({"ca_file": "/no"}, "No such")],
)
async def test_tls_rejects_other_certificates(broker, authority, trust, error):
    one = broker(*tls_lines(authority))
    with no_leaks():
        async with Publisher(one.options(tls=True, **trust), "gpu-01", quick()) as publisher:
            await until("refused", lambda: publisher.status.failures >= 2)
            assert error in publisher.status.error
            assert publisher.status.connects == 0


async def test_tls_sends_the_client_certificate(broker, authority):
    one = broker(*tls_lines(authority, "require_certificate true"))
    trust = {"tls": True, "ca_file": authority["ca"]}
    async with Publisher(one.options(**trust), "gpu-01", quick()) as publisher:
        await until("refused", lambda: publisher.status.failures >= 2)
        assert publisher.status.connects == 0
    mine = {"cert_file": authority["client_cert"], "key_file": authority["client_key"]}
    async with published(one.options(**trust, **mine)):
        pass


async def test_messages_that_arrive_in_one_tls_record_are_all_received(authority):
    """The event loop sees the record once; what is decrypted already is not readable at the socket any more."""
    suback = bytes.fromhex("9004 0001 00 01")  # of Packet Identifier 1: Granted QoS 1
    publish = bytes.fromhex("3005 0001 61 00 78")  # topic a, no properties, payload x

    async def serve(reader, writer):
        await reader.read(1024)
        writer.write(bytes.fromhex("2003000000"))  # CONNACK: Success, no properties
        await reader.read(1024)
        writer.write(suback + 100 * publish)
        await reader.read()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority["cert"], authority["key"])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    got = []
    settings = ClientSettings("one", on_received=lambda *message: got.append(message))
    access = Access(server.sockets[0].getsockname(), context=ssl.create_default_context(cafile=authority["ca"]))
    client = BrokerClient(settings, access, timeout=10.0)
    await client.connect(clean_start=True)
    await client.subscribe(["a"], SubscribeOptions(qos=1))
    await until("all", lambda: len(got) == 100)
    assert set(got) == {("a", b"x")}
    client.close()
    server.close()
    await server.wait_closed()


# --- faulty brokers


async def test_a_broker_that_does_not_respond_blocks_no_caller(monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    taken = []

    async def be_silent(reader, writer):
        taken.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with no_leaks():
        async with Publisher(MqttOptions(broker=f"127.0.0.1:{port}"), "gpu-01", quick()) as publisher:
            await until("tried", lambda: publisher.status.failures >= 4)
            assert sum(not one.is_closing() for one in taken) <= 2, "abandoned connections are closed"
            for tick in range(10):
                publisher.publish(batch(tick))
            assert publisher.status.connects == 0
            assert publisher.queued[0] == 10
        await until("closed", lambda: all(one.is_closing() for one in taken))
    server.close()
    await server.wait_closed()


async def test_a_connection_closed_before_connack_fails_at_once():
    async with TcpProxy(1) as proxy:
        proxy.is_open = False
        async with Publisher(MqttOptions(broker=f"127.0.0.1:{proxy.port}"), "gpu-01", quick()) as publisher:
            await until("tried", lambda: publisher.status.failures >= 2)
            assert "closed the connection before CONNACK" in publisher.status.error


async def test_a_broker_that_reads_nothing_does_not_delay_the_end():
    """It accepts the connection, then its receive window closes: DISCONNECT cannot be sent."""

    async def accept_only(reader, writer):
        await reader.read(1024)
        writer.write(bytes.fromhex("2003000000"))  # CONNACK: Success, no properties
        await ended.wait()
        writer.transport.abort()

    ended = asyncio.Event()
    server = await asyncio.start_server(accept_only, "127.0.0.1", 0, limit=1024)
    client = BrokerClient(ClientSettings("one"), Access(server.sockets[0].getsockname()), timeout=0.5)
    await client.connect(clean_start=True)
    with pytest.raises(BrokerError, match=r"did not respond within 0\.5 s"):
        await client.publish_confirmed("a", bytes(64 << 20))
    client.close()
    assert client._client.socket() is None
    with pytest.raises(BrokerError):
        await client.publish_confirmed("a", b"")
    ended.set()
    server.close()
    await server.wait_closed()


async def test_the_reason_for_which_the_broker_ends_a_connection_is_reported(broker):
    options = broker("allow_anonymous true", "max_packet_size 2000").options()
    client = BrokerClient(ClientSettings("one"), Access(options.address), 10.0)
    await client.connect(clean_start=True)
    with pytest.raises(BrokerError, match="the broker ended the connection: Packet too large"):
        await client.publish_confirmed("a", bytes(4000))
    client.close()


@asynccontextmanager
async def connection_with_a_failing_handler(options, backoff):
    """Yield the status of a connection whose handler fails on the message that is published at each connect."""

    def fail(topic, payload):
        raise KeyError(topic)

    async def listen(client):
        await client.subscribe(["a"], SubscribeOptions(qos=1))
        await asyncio.to_thread(publish_one)
        await asyncio.Event().wait()

    def publish_one():
        with raw_client(options) as publish:
            publish("a", b"")

    status = ConnectionStatus()
    connecting = connection.keep_connected(options, ClientSettings("one", on_received=fail), status, backoff, listen)
    task = asyncio.create_task(connecting)
    try:
        yield status
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_error_of_the_handler_ends_the_connection_and_is_logged_with_its_traceback(broker, caplog):
    async with connection_with_a_failing_handler(broker().options(), quick()) as status:
        await until("failed", lambda: status.failures >= 2)
    (first, *_) = (one for one in caplog.records if one.levelname == "ERROR")
    assert first.exc_info[0] is KeyError


async def test_an_error_of_the_handler_is_the_reason_for_which_the_connection_ended(broker):
    never = Backoff(initial=3600, maximum=3600)
    async with connection_with_a_failing_handler(broker().options(), never) as status:
        await until("failed", lambda: status.failures == 1)
        assert status == ConnectionStatus(connected=False, connects=1, failures=1, error="KeyError('a')")


@pytest.mark.parametrize(("steady", "shortest"), [(0.0, True), (3600.0, False)])
async def test_the_backoff_is_reset_after_a_stable_connection(broker, monkeypatch, steady, shortest):
    monkeypatch.setattr(connection, "STABLE_SECONDS", steady)
    one = broker()
    backoff = Backoff(initial=0.01, maximum=0.2)
    async with TcpProxy(one.port) as proxy:
        options = MqttOptions(broker=f"127.0.0.1:{proxy.port}")
        async with Publisher(options, "gpu-01", backoff) as publisher:
            for times in range(1, 6):
                await until("connected", lambda times=times: publisher.status.connects == times)
                proxy.cut()
                await until("cut", lambda times=times: publisher.status.failures == times)
            await until("connected", lambda: publisher.status.connects == 6)
            assert (backoff.next() <= 0.02) is shortest


async def test_the_same_failure_is_logged_once(caplog):
    async with Publisher(MqttOptions(broker=f"127.0.0.1:{free_port()}"), "gpu-01", quick()) as publisher:
        await until("tried", lambda: publisher.status.failures >= 4)
    assert [one.levelname for one in caplog.records if "no connection" in one.message] == ["WARNING"]


# --- without a broker


def test_the_queue_keeps_the_newest_messages_and_counts_dropped_ones(stopped_clock):
    clock = stopped_clock(publishing)
    queue = PublishQueue(max_messages=3, max_bytes=100, expiry=60.0)

    def put(*payloads):
        for payload in payloads:
            queue.put(QueuedMessage("t", payload, clock.now))

    put(b"1", b"2", b"3", b"4")
    assert (len(queue), queue.bytes, queue.dropped) == (3, 3, 1)
    put(b"x" * 98)
    assert (len(queue), queue.bytes, queue.dropped) == (3, 100, 2)
    first = queue.get()
    assert first.payload == b"3"
    put(b"5")
    queue.requeue(first)
    assert queue.dropped == 3, "the queue was full"
    clock.now += 60.0
    put(b"6")
    assert queue.get().payload == b"6"
    assert (queue.get(), queue.bytes, len(queue)) == (None, 0, 0)
    assert queue.dropped == 6


def test_the_backoff_doubles_up_to_a_maximum_with_jitter():
    backoff = Backoff(initial=1.0, maximum=60.0)
    waits = [backoff.next() for _ in range(9)]
    for wait, whole in zip(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert whole / 2 <= wait <= whole
    assert len({round(Backoff().next(), 9) for _ in range(20)}) > 10
    backoff.reset()
    assert backoff.next() <= 1.0


async def test_batch_numbers_continue_per_job_and_restart_for_a_forgotten_one(monkeypatch):
    monkeypatch.setattr(publishing, "MAX_JOBS", 2)
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    for job in ("a", "b", "a", "c", "b"):
        publisher.publish(batch(0, job=job))
    waiting = []
    while message := publisher._queue.get():
        waiting.append(decode(message.payload))
    assert [(one.job, one.tick) for one in waiting] == [("a", 0), ("b", 0), ("a", 1), ("c", 0), ("b", 0)]
    assert waiting[0].epoch == waiting[2].epoch
    assert len({one.epoch for one in waiting}) == 4


async def test_a_split_batch_takes_several_numbers_and_each_host_has_its_own_sequence():
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    publisher.publish(batch(0, count=70_000))
    publisher.publish(batch(70_000))
    publisher.publish(batch(0, host="gpu-02"))
    ticks = []
    while message := publisher._queue.get():
        read = decode(message.payload)
        assert message.topic == batch_topic(read.job, read.host)
        ticks.append((read.host, read.tick))
    assert ticks == [("gpu-01", 0), ("gpu-01", 1), ("gpu-01", 2), ("gpu-02", 0)]


async def test_a_batch_that_cannot_be_encoded_is_counted_and_affects_no_other():
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    publisher.publish(batch(0, job="a\nb"))
    publisher.publish(batch(0))
    assert (publisher.invalid, publisher.queued[0]) == (1, 1)
