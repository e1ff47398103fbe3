"""MQTT with a real broker, mosquitto: what is offered arrives once, also when the broker goes away for a while."""

import asyncio
import gc
import hashlib
import pickle
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import product
from pathlib import Path
from time import monotonic

import aiomqtt
import pytest
import trustme
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from exporter.mqtt import connection, retained_state
from exporter.mqtt import publisher as publishing
from exporter.mqtt.connection import Backoff
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Buffer, Publisher, Waiting
from exporter.mqtt.states import encode as encode_state
from exporter.mqtt.states import state
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
"""Seconds in which what is waited for comes, on the busiest of machines."""

PORT = ("gpu-01", "mlx5_0:1")


class Broker:
    """A mosquitto on loopback that can be taken away and brought back, at the same port."""

    def __init__(self, path: str, folder: Path, lines: tuple[str, ...]):
        self.port = free_port()
        self._path, self._folder = path, folder
        self._config = folder / "mosquitto.conf"
        start = [f"listener {self.port} 127.0.0.1", "user root", "persistence false", "log_type all"]
        self._config.write_text("\n".join([*start, *lines]) + "\n")
        self.log = folder / "log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self._path, "-c", self._config], stdout=log, stderr=log)
        end = monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert monotonic() < end, self.log.read_text()

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def options(self, **other):
        return MqttOptions(broker=f"127.0.0.1:{self.port}", **other)


@pytest.fixture
def broker(program):
    """Give a function that starts a broker with lines of configuration."""
    path = program("mosquitto")
    with tempfile.TemporaryDirectory(prefix="fabric-test-") as name:
        started = []

        def start(*lines: str) -> Broker:
            folder = Path(name) / str(len(started))
            folder.mkdir()
            started.append(Broker(path, folder, lines or ("allow_anonymous true",)))
            started[-1].start()
            return started[-1]

        yield start
        for one in started:
            one.stop()


async def until(what, look):
    """Wait until something is so."""
    end = monotonic() + PATIENCE
    while not look():
        assert monotonic() < end, what
        await asyncio.sleep(0.02)


class Relay:
    """Stands between a client and the broker, and cuts their connections."""

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
        """End the connections that there are, without a word of MQTT."""
        for writer in self._writers:
            writer.close()

    def shut(self):
        """Let no other come either."""
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


def port(options):
    return options.address[1]


def quick():
    return Backoff(first=0.05, most=0.2)


@asynccontextmanager
async def published(options, host="gpu-01"):
    async with Publisher(options, host, quick()) as one:
        await until("connected", lambda: one.link.connected)
        yield one


@asynccontextmanager
async def collected(options, slots="00-ff", **other):
    """Give a collector that hears, and the list of the batches that it gave out."""
    got = []

    async def collect():
        async for batch in one.batches():
            got.append(batch)  # noqa: PERF401  # as they come

    async with Subscriber(options, slots, backoff=quick(), **other) as one:
        task = asyncio.create_task(collect())
        await until("heard", lambda: one.listening)
        try:
            yield one, got
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def batch(first, count=3, job="train-7", host="gpu-01", **other):
    stream = Stream(job, "0xc0ffee", "AllReduce", 0, 8, 1, 0, host, 4711)
    told = [Operation(number, 1024, 250.5, timed=True) for number in range(first, first + count)]
    return Batch(job, host, [(stream, told)], **other)


def numbers(got):
    return [one.sequence for batch in got for _, told in batch.streams for one in told]


@contextmanager
def nothing_open():
    """See that all sockets that are opened inside are closed again; what is unclosed fails the test when collected."""
    before = len(asyncio.all_tasks())
    yield
    gc.collect()
    assert len(asyncio.all_tasks()) == before


# --- batches


async def test_a_batch_arrives_as_it_was_offered(broker):
    options = broker().options()
    async with collected(options) as (subscriber, got), published(options) as publisher:
        publisher.offer(batch(5, dropped=7))
        publisher.offer(batch(8))
        await until("both", lambda: len(got) == 2 and publisher.sent == 2)
    first, second = got
    assert first.streams == batch(5).streams
    assert (first.job, first.host, first.dropped, first.tick, second.tick) == ("train-7", "gpu-01", 7, 0, 1)
    assert first.epoch == second.epoch
    assert first.sent > 1.7e9
    assert subscriber.refused == {}


async def test_the_broker_goes_away_and_comes_back(broker):
    """What was lost is counted, on both sides alike; nothing comes twice, and nothing is left."""
    one = broker()
    with nothing_open():
        async with collected(one.options()) as (subscriber, got), published(one.options()) as publisher:
            publisher._buffer._most = 10
            publisher.offer(batch(0))
            await until("the first", lambda: numbers(got) == [0, 1, 2])
            one.stop()
            await until("noticed", lambda: not publisher.link.connected and not subscriber.link.connected)
            for tick in range(1, 31):
                publisher.offer(batch(3 * tick))
            await until("tried", lambda: publisher.link.failures >= 3)
            assert publisher.waiting[0] + publisher.dropped == 30
            assert len(publisher._buffer) <= 10
            one.start()
            await until("the collector", lambda: subscriber.listening)
            await until("sent", lambda: publisher.waiting == (0, 0) and publisher.sent > 1)
            publisher.offer(batch(93))
            await until("the last", lambda: numbers(got)[-1:] == [95])
            assert publisher.link.reconnects >= 1
            assert publisher.dropped == 20
    told = numbers(got)
    assert len(told) == len(set(told))
    missing = set(range(96)) - set(told)
    # the collector may have come back a moment after the first of what waited was published
    assert len(missing) == 3 * subscriber.seen.losses.batches
    assert subscriber.seen.losses.batches >= 20
    assert set(range(3, 63)) <= missing
    assert subscriber.refused == {}


def minute(job, host, first, ticks=12):
    """Give what a node of eight ranks tells in a minute: each 5 s, of three kinds, ten operations a second."""
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


async def test_a_minute_without_the_broker_is_made_up_for(broker):
    """Two jobs of two hosts: all that they told meanwhile comes, once, under its own name."""
    one = broker()
    with nothing_open():
        async with (
            collected(one.options()) as (subscriber, got),
            Relay(one.port) as relay,
            published(MqttOptions(broker=f"127.0.0.1:{relay.port}"), "gpu-01") as first,
            published(MqttOptions(broker=f"127.0.0.1:{relay.port}"), "gpu-02") as second,
        ):
            hosts = {"gpu-01": first, "gpu-02": second}
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    publisher.offer(batch(0, job=job, host=host))
            await until("the first", lambda: len(got) == 4)
            relay.shut()
            one.stop()
            await until("noticed", lambda: not any(each.link.connected for each in hosts.values()))
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    for told in minute(job, host, 1000):
                        publisher.offer(told)
            one.start()
            await until("the collector", lambda: subscriber.listening)
            relay.is_open = True
            for host, publisher in hosts.items():
                for job in ("a", "b"):
                    for told in minute(job, host, 1600, ticks=1):
                        publisher.offer(told)
            await until("sent", lambda: all(each.waiting == (0, 0) for each in hosts.values()))
            await until("the last", lambda: {(b.job, b.host) for b in got if b.tick == 13} == set(product("ab", hosts)))
            assert [each.dropped for each in hosts.values()] == [0, 0]
    told = [
        (b.job, b.host, stream.kind, stream.rank, operation.sequence)
        for b in got
        for stream, operations in b.streams
        for operation in operations
        if stream.communicator == "0xa"
    ]
    assert len(told) == len(set(told))
    assert len(told) == 2 * 2 * 8 * 3 * 50 * 13
    assert subscriber.seen.losses.batches == 0
    assert all(stream.host == b.host and stream.job == b.job for b in got for stream, _ in b.streams)


async def test_a_broker_that_freezes_is_left_and_what_it_did_not_confirm_sent_again(broker, monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT", 0.5)
    one = broker()
    with nothing_open():
        async with collected(one.options()) as (subscriber, got), published(one.options()) as publisher:
            publisher.offer(batch(0))
            await until("the first", lambda: publisher.sent == 1)
            one.process.send_signal(signal.SIGSTOP)
            publisher.offer(batch(3))
            publisher.offer(batch(6))
            await until("left", lambda: publisher.link.failures >= 2)
            one.process.send_signal(signal.SIGCONT)
            await until("all", lambda: publisher.sent == 3 and len(got) == 3)
    assert numbers(got) == list(range(9))
    assert subscriber.seen.losses.batches == 0


async def test_what_comes_while_a_collector_is_away_for_a_moment_is_kept_for_it(broker):
    one = broker()
    async with (
        Relay(one.port) as relay,
        published(one.options()) as publisher,
        collected(MqttOptions(broker=f"127.0.0.1:{relay.port}")) as (subscriber, got),
    ):
        publisher.offer(batch(0))
        await until("the first", lambda: len(got) == 1)
        relay.shut()
        await until("cut", lambda: not subscriber.link.connected)
        publisher.offer(batch(3))
        await until("sent", lambda: publisher.sent == 2)
        assert len(got) == 1
        relay.is_open = True
        await until("back", lambda: len(got) == 2)
    assert numbers(got) == list(range(6))
    assert subscriber.seen.losses.batches == 0


async def test_a_connection_that_is_cut_again_and_again_loses_nothing_and_tells_nothing_twice(broker):
    one = broker()
    async with (
        Relay(one.port) as relay,
        collected(one.options()) as (subscriber, got),
        published(MqttOptions(broker=f"127.0.0.1:{relay.port}")) as publisher,
    ):
        for tick in range(60):
            publisher.offer(batch(3 * tick))
            if tick % 10 == 5:
                relay.cut()
            await asyncio.sleep(0.01)
        await until("all", lambda: publisher.sent == 60 and len(got) == 60)
        assert publisher.link.reconnects >= 1
    assert numbers(got) == list(range(180))
    assert (subscriber.seen.losses.batches, publisher.dropped) == (0, 0)


async def test_a_batch_that_the_broker_finds_too_large_is_dropped_and_holds_no_other_up(broker):
    one = broker("allow_anonymous true", "max_packet_size 2000")
    async with collected(one.options()) as (_, got), published(one.options()) as publisher:
        publisher.offer(batch(0, count=2000))
        publisher.offer(batch(2000))
        await until("the small one", lambda: numbers(got) == [2000, 2001, 2002])
        await until("both", lambda: (publisher.dropped, publisher.sent) == (1, 1))


async def test_a_state_of_a_port_without_a_name_harms_no_other(broker):
    options = broker().options()
    bad = [("gpu-01", ""), ("gpu-01", "a\nb"), ("", "p"), ("gpu-01", "x" * 300)]
    async with collected(options) as (subscriber, _), published(options) as publisher:
        publisher.show([*((place, state("down", 1.0)) for place in bad), (PORT, state("down", 1.0, text="a\nb" * 300))])
        await until("the good one", subscriber.board.states)
        assert subscriber.board.states().keys() == {(*PORT, "down")}
        assert publisher.left_out == 4
    assert subscriber.refused == {}


async def test_what_a_publisher_sends_again_is_given_out_once(broker):
    """A confirmation that was lost on the way."""
    options = broker().options()
    async with collected(options) as (subscriber, got), published(options) as publisher:
        (data,) = encode(batch(0))
        for _ in range(2):
            publisher._buffer.put(Waiting(batch_topic("train-7", "gpu-01"), data, monotonic()))
        publisher._news.set()
        await until("both", lambda: subscriber.seen.losses.duplicate_batches == 1)
    assert numbers(got) == [0, 1, 2]


async def test_collectors_share_the_slots_and_no_job_is_torn_apart(broker):
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
            one.offer(batch(0, job=job))
            two.offer(batch(0, job=job, host="gpu-02"))
        await until("all", lambda: len(low) + len(high) == 48)
    assert {each.job for each in low} == halves["00-7f"]
    assert {each.job for each in high} == halves["80-ff"]
    assert {each.host for each in low} == {"gpu-01", "gpu-02"}


async def test_a_collector_that_does_not_keep_up_counts_what_it_loses(broker):
    options = broker().options()
    async with (
        Subscriber(options, backoff=quick(), most_bytes=4000) as subscriber,
        published(options) as publisher,
    ):
        await until("heard", lambda: subscriber.listening)
        for tick in range(50):
            publisher.offer(batch(3 * tick))
        await until("all", lambda: publisher.sent == 50 and subscriber.dropped + subscriber.waiting[0] == 50)
        count, size = subscriber.waiting
        assert 0 < count < 20
        assert size <= 4000
        given = subscriber.batches()
        got = [await anext(given) for _ in range(count)]
        await given.aclose()
    assert numbers(got) == list(range(3 * (50 - count), 150)), "the newest stay"


async def test_what_is_hostile_is_refused_and_counted_and_harmless(broker):
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
        (topic, other, "sender"),
        (topic, elsewhere, "sender"),
        (wrong_slot, good, "topic"),
        (event_topic("gpu-01", "p", "down"), b'{"version":1}', "invalid"),
        ("fabric/v1/hosts/a%0Ab", b"{}", "topic"),
    ]
    async with collected(options) as (subscriber, got):
        async with aiomqtt.Client("127.0.0.1", port(options)) as attacker:
            for where, payload, _ in hostile:
                await attacker.publish(where, payload, qos=1)
            await attacker.publish(topic, b"\x00" * 400_000, qos=1)  # which the broker itself keeps back
        async with published(options) as publisher:
            publisher.offer(batch(0))
            await until("the good one", lambda: numbers(got) == [0, 1, 2])
    expected = {reason: [one for *_, one in hostile].count(reason) for *_, reason in hostile}
    assert dict(subscriber.refused) == expected
    assert subscriber.link.connects == 1
    assert subscriber.board.states() == {}


# --- states and presence


async def test_states_stand_at_the_broker_while_they_last(broker):
    options = broker().options()
    active = [(PORT, state("down", 1748030377.0, 2, text="no light"))]
    async with published(options) as publisher:
        publisher.show(active)
        async with collected(options) as (subscriber, _):
            key = (*PORT, "down")
            await until("the state", lambda: subscriber.board.states().get(key) == active[0][1])
            await until("the host", lambda: "gpu-01" in subscriber.board.hosts())
            up = subscriber.board.hosts()["gpu-01"]
            assert (up.state, up.number) == ("up", 1)
            assert up.since > 1.7e9
            publisher.show([])
            await until("over", lambda: subscriber.board.states() == {})
            publisher.show(active)
            await until("again", lambda: key in subscriber.board.states())
            await publisher.__aexit__(None, None, None)
            await until("gone", lambda: subscriber.board.hosts()["gpu-01"].state == "gone")
            assert subscriber.board.states() == {}, "nobody looks at that port any more"
    async with collected(options) as (subscriber, _):
        await until("still gone", lambda: "gpu-01" in subscriber.board.hosts())
        assert subscriber.board.states() == {}


async def test_a_broker_that_forgot_everything_is_told_again(broker):
    one = broker()
    active = [(PORT, state("down", 1748030377.0)), (("leaf-1", "swp1"), state("errors", 1748030378.0, value=3.0))]
    async with published(one.options()) as publisher:
        publisher.show(active)
        await until("told", lambda: len(publisher._told) == 2)
        one.stop()
        await until("noticed", lambda: not publisher.link.connected)
        publisher.show(active[:1])
        one.start()
        async with collected(one.options()) as (subscriber, _):
            await until("told again", lambda: set(subscriber.board.states()) == {(*PORT, "down")})
            await until("up", lambda: "gpu-01" in subscriber.board.hosts())
            assert subscriber.board.hosts()["gpu-01"].number >= 2


async def test_what_nobody_tells_again_after_an_outage_is_over_in_the_collector_too(broker, monkeypatch):
    monkeypatch.setattr(retained_state, "SETTLED", 0.3)
    one = broker()
    async with collected(one.options()) as (subscriber, _):
        async with published(one.options()) as publisher:
            publisher.show([(PORT, state("down", 1.0))])
            await until("the state", subscriber.board.states)
            one.stop()
            await until("noticed", lambda: not publisher.link.connected and not subscriber.link.connected)
        assert subscriber.board.states(), "the broker is away, and not the state"
        one.start()
        await until("over", lambda: not subscriber.board.states() and not subscriber.board.hosts())
        assert subscriber.listening


async def test_states_expire_at_the_broker_and_are_told_again_before(broker, monkeypatch):
    """Expiry by the broker's own clock: with a refresh they outlive it, without one they do not."""
    monkeypatch.setattr(publishing.states, "EXPIRY", 4.0)
    monkeypatch.setattr(publishing.states, "REFRESH", 1.0)
    options = broker().options()
    refreshed = []
    async with published(options) as publisher:
        publisher.show([(PORT, state("down", 1.0))])
        hear = Subscriber._hear

        def spy(self, topic, payload):
            refreshed.append(topic)
            hear(self, topic, payload)

        monkeypatch.setattr(Subscriber, "_hear", spy)
        async with collected(options):
            for topic in (event_topic(*PORT, "down"), host_topic("gpu-01")):
                await until("refreshed", lambda topic=topic: refreshed.count(topic) >= 3)
        monkeypatch.setattr(publishing.states, "REFRESH", 1e9)
        publisher._news.set()

        async def is_kept():
            """Tell whether the broker sends it to a newcomer, before what is published then."""
            async with collected(options) as (subscriber, _), aiomqtt.Client("127.0.0.1", port(options)) as marker:
                await marker.publish(event_topic("marker", "p", "down"), encode_state(state("down", 1.0)), qos=1)
                await until("the marker", lambda: ("marker", "p", "down") in subscriber.board.states())
                return (*PORT, "down") in subscriber.board.states()

        end = monotonic() + PATIENCE
        while await is_kept():
            assert monotonic() < end


LONE = """
import asyncio, sys
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.publisher import Publisher

async def main():
    async with Publisher(MqttOptions(broker=sys.argv[1]), "gpu-09"):
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_daemon_that_dies_leaves_its_last_will(broker):
    options = broker().options()
    lone = await asyncio.create_subprocess_exec(sys.executable, "-c", LONE, options.broker, cwd=ROOT)
    try:
        async with collected(options) as (subscriber, _):
            hosts = subscriber.board.hosts
            await until("up", lambda: "gpu-09" in hosts() and hosts()["gpu-09"].state == "up")
            lone.kill()
            await until("gone", lambda: hosts()["gpu-09"].state == "gone")
    finally:
        with suppress(ProcessLookupError):
            lone.kill()
        await lone.wait()


# --- who may


@pytest.fixture
def users(program, tmp_path):
    """Give a file of passwords in which gpu-01, collector and switches have `right`."""
    users = tmp_path / "users"
    users.touch(0o600)
    for name in ("gpu-01", "collector", "switches"):
        subprocess.run([program("mosquitto_passwd"), "-b", users, name, "right"], check=True, capture_output=True)
    return users


async def test_a_password_is_read_anew_at_each_connect(broker, users, tmp_path):
    one = broker("allow_anonymous false", f"password_file {users}")
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    with nothing_open():
        async with Publisher(one.options(username="gpu-01", password_file=str(secret)), "gpu-01", quick()) as publisher:
            await until("refused", lambda: publisher.link.failures >= 2)
            assert "uthori" in publisher.link.error
            assert "wrong" not in publisher.link.error
            secret.unlink()
            await until("missing", lambda: "cannot be read" in publisher.link.error)
            secret.write_text("right\n")
            await until("connected", lambda: publisher.link.connected)


async def test_a_host_may_speak_for_itself_alone_and_what_is_refused_does_not_count_as_sent(broker, users, tmp_path):
    """With the rights that the documentation gives."""
    (rights,) = re.findall(r"^```\n# /etc/mosquitto/acl\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    file = tmp_path / "acl"
    file.write_text(rights)
    one = broker("allow_anonymous false", f"password_file {users}", f"acl_file {file}")

    def options(user):
        secret = tmp_path / user
        secret.write_text("right")
        return one.options(username=user, password_file=str(secret))

    states = [(PORT, state("down", 1.0)), (("gpu-02", "mlx5_0:1"), state("down", 1.0))]
    async with collected(options("collector")) as (subscriber, got), published(options("gpu-01")) as publisher:
        publisher.offer(batch(0))
        publisher.offer(batch(0, host="gpu-02"))
        publisher.show(states)
        await until("all", lambda: (publisher.sent, publisher.refused, publisher.link.refused) == (1, 1, 2))
        await until("the state", subscriber.board.states)
        publisher.offer(batch(3))
        await until("the last", lambda: len(got) == 2)
        assert {each.host for each in got} == {"gpu-01"}
        assert subscriber.board.hosts().keys() == {"gpu-01"}
        assert subscriber.board.states().keys() == {(*PORT, "down")}


async def test_hosts_of_collectors_and_pollers_may_tell_that_they_are_there(broker, users, tmp_path, caplog):
    """With the rights that the documentation gives, whatever their hosts are called."""
    (rights,) = re.findall(r"^```\n# /etc/mosquitto/acl\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    (tmp_path / "acl").write_text(rights)
    one = broker("allow_anonymous false", f"password_file {users}", f"acl_file {tmp_path / 'acl'}")
    secret = tmp_path / "secret"
    secret.write_text("right")
    mine, poller, host = (
        one.options(username=user, password_file=str(secret)) for user in ("collector", "switches", "gpu-01")
    )
    async with collected(mine) as (subscriber, _), published(mine, "mgmt-1"), published(poller, "mgmt-2"):
        await until("both", lambda: subscriber.board.hosts().keys() == {"mgmt-1", "mgmt-2"})
        assert not caplog.records
        async with published(host, "mgmt-3") as other:
            await until("refused", lambda: other.link.refused == 1)
        assert [one.getMessage() for one in caplog.records if "fabric/v1/hosts/mgmt-3" in one.getMessage()]


async def test_a_collector_that_may_not_subscribe_says_so():
    class Refusing:
        async def subscribe(self, topics):
            return [ReasonCode(PacketTypes.SUBACK, identifier=0x87) for _ in topics]

    with pytest.raises(aiomqtt.MqttError, match="the broker refuses 2 of 2 topics: Not authorized"):
        await Subscriber(MqttOptions(broker="127.0.0.1:1"))._listen(Refusing())


@pytest.fixture
def authority(tmp_path):
    """Give an authority, and the files of a broker's certificate and of a client's."""
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


async def test_tls_trusts_by_authority_or_fingerprint_or_not_at_all(broker, authority):
    one = broker(*tls_lines(authority))
    for trust in ({"ca_file": authority["ca"]}, {"sha256": pin(authority)}, {"insecure": True}):
        async with published(one.options(tls=True, **trust)) as publisher:
            publisher.offer(batch(0))
            await until("sent", lambda: publisher.sent == 1)


@pytest.mark.parametrize(
    ("trust", "told"),
    [({}, "certificate verify failed"), ({"sha256": "ab" * 32}, "not the pinned one"), ({"ca_file": "/no"}, "No such")],
)
async def test_tls_trusts_no_other(broker, authority, trust, told):
    one = broker(*tls_lines(authority))
    with nothing_open():
        async with Publisher(one.options(tls=True, **trust), "gpu-01", quick()) as publisher:
            await until("refused", lambda: publisher.link.failures >= 2)
            assert told in publisher.link.error
            assert publisher.link.connects == 0


async def test_tls_shows_a_certificate_where_one_is_asked_for(broker, authority):
    one = broker(*tls_lines(authority, "require_certificate true"))
    trust = {"tls": True, "ca_file": authority["ca"]}
    async with Publisher(one.options(**trust), "gpu-01", quick()) as publisher:
        await until("refused", lambda: publisher.link.failures >= 2)
        assert publisher.link.connects == 0
    mine = {"cert_file": authority["client_cert"], "key_file": authority["client_key"]}
    async with published(one.options(**trust, **mine)):
        pass


# --- brokers that are none


async def test_a_broker_that_says_nothing_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    taken = []

    async def be_silent(reader, writer):
        taken.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with nothing_open():
        async with Publisher(MqttOptions(broker=f"127.0.0.1:{port}"), "gpu-01", quick()) as publisher:
            await until("tried", lambda: publisher.link.failures >= 4)
            assert sum(not one.is_closing() for one in taken) <= 2, "those that were given up are closed"
            for tick in range(10):
                publisher.offer(batch(tick))
            assert publisher.link.connects == 0
            assert publisher.waiting[0] == 10
        await until("closed", lambda: all(one.is_closing() for one in taken))
    server.close()
    await server.wait_closed()


async def test_a_broker_that_hangs_up_is_known_for_it_at_once():
    async with Relay(1) as relay:
        relay.is_open = False
        async with Publisher(MqttOptions(broker=f"127.0.0.1:{relay.port}"), "gpu-01", quick()) as publisher:
            await until("tried", lambda: publisher.link.failures >= 2)
            assert "ended the connection before it answered" in publisher.link.error


@pytest.mark.parametrize(("steady", "shortest"), [(0.0, True), (3600.0, False)])
async def test_waits_begin_anew_after_a_connection_that_lasted(broker, monkeypatch, steady, shortest):
    monkeypatch.setattr(connection, "STEADY", steady)
    one = broker()
    backoff = Backoff(first=0.01, most=0.2)
    async with Relay(one.port) as relay:
        options = MqttOptions(broker=f"127.0.0.1:{relay.port}")
        async with Publisher(options, "gpu-01", backoff) as publisher:
            for times in range(1, 6):
                await until("connected", lambda times=times: publisher.link.connects == times)
                relay.cut()
                await until("cut", lambda times=times: publisher.link.failures == times)
            await until("connected", lambda: publisher.link.connects == 6)
            assert (backoff.next() <= 0.02) is shortest


async def test_the_same_failure_is_logged_once(caplog):
    async with Publisher(MqttOptions(broker=f"127.0.0.1:{free_port()}"), "gpu-01", quick()) as publisher:
        await until("tried", lambda: publisher.link.failures >= 4)
    assert [one.levelname for one in caplog.records if "no connection" in one.message] == ["WARNING"]


# --- without a broker


def test_the_buffer_keeps_the_newest_within_bounds_and_counts_the_rest(stopped_clock):
    clock = stopped_clock(publishing)
    buffer = Buffer(most=3, most_bytes=100, expiry=60.0)

    def put(*payloads):
        for payload in payloads:
            buffer.put(Waiting("t", payload, clock.now))

    put(b"1", b"2", b"3", b"4")
    assert (len(buffer), buffer.bytes, buffer.dropped) == (3, 3, 1)
    put(b"x" * 98)
    assert (len(buffer), buffer.bytes, buffer.dropped) == (3, 100, 2)
    first = buffer.take()
    assert first.payload == b"3"
    put(b"5")
    buffer.put_back(first)
    assert buffer.dropped == 3, "its place was taken meanwhile"
    clock.now += 60.0
    put(b"6")
    assert buffer.take().payload == b"6"
    assert (buffer.take(), buffer.bytes, len(buffer)) == (None, 0, 0)
    assert buffer.dropped == 6


def test_waits_double_up_to_a_bound_and_differ_by_chance():
    backoff = Backoff(first=1.0, most=60.0)
    waits = [backoff.next() for _ in range(9)]
    for wait, whole in zip(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert whole / 2 <= wait <= whole
    assert len({round(Backoff().next(), 9) for _ in range(20)}) > 10
    backoff.reset()
    assert backoff.next() <= 1.0


async def test_numbers_go_on_for_each_job_and_begin_anew_for_one_that_was_forgotten(monkeypatch):
    monkeypatch.setattr(publishing, "MAX_JOBS", 2)
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    for job in ("a", "b", "a", "c", "b"):
        publisher.offer(batch(0, job=job))
    waiting = []
    while message := publisher._buffer.take():
        waiting.append(decode(message.payload))
    assert [(one.job, one.tick) for one in waiting] == [("a", 0), ("b", 0), ("a", 1), ("c", 0), ("b", 0)]
    assert waiting[0].epoch == waiting[2].epoch
    assert len({one.epoch for one in waiting}) == 4


async def test_a_batch_that_is_split_takes_as_many_numbers_and_another_host_has_its_own():
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    publisher.offer(batch(0, count=70_000))
    publisher.offer(batch(70_000))
    publisher.offer(batch(0, host="gpu-02"))
    ticks = []
    while message := publisher._buffer.take():
        read = decode(message.payload)
        assert message.topic == batch_topic(read.job, read.host)
        ticks.append((read.host, read.tick))
    assert ticks == [("gpu-01", 0), ("gpu-01", 1), ("gpu-01", 2), ("gpu-02", 0)]


async def test_a_batch_that_cannot_be_written_is_counted_and_harms_no_other():
    publisher = Publisher(MqttOptions(broker="127.0.0.1:1"), "gpu-01")
    publisher.offer(batch(0, job="a\nb"))
    publisher.offer(batch(0))
    assert (publisher.invalid, publisher.waiting[0]) == (1, 1)
