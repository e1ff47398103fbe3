"""A broker, or what listens in its place, that violates MQTT: memory and time for it are bounded."""

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager, suppress
from time import monotonic

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from exporter.daemon import daemon
from exporter.mqtt import publisher as publishing
from exporter.mqtt.client import Access, BrokerClient, BrokerError, ClientSettings
from exporter.mqtt.connection import Backoff
from exporter.mqtt.options import MqttOptions
from exporter.mqtt.packet_limit import MAX_PACKET_SIZE, PacketHeaders, PacketRefusedError
from exporter.mqtt.publisher import Publisher

CONNACK = bytes.fromhex("2003000000")
"""Success, no properties."""

LARGEST_LENGTH = bytes.fromhex("ffffff7f")
"""Remaining Length 268,435,455, the largest of MQTT (5.0, section 1.5.5)."""

PATIENCE = 30.0
"""Seconds to wait for an event, on a busy machine."""


def variable_byte_integer(number):
    """MQTT 5.0, section 1.5.5."""
    encoded = bytearray()
    while True:
        number, digit = divmod(number, 128)
        encoded.append(digit | (128 if number else 0))
        if not number:
            return bytes(encoded)


def publish_packet(total):
    """Return a PUBLISH with topic a, of a total size in bytes."""
    start = bytes.fromhex("0001 61 00")  # topic, no properties
    sizes = range(total - 5, total - 1)
    body = next(size for size in sizes if 1 + len(variable_byte_integer(size)) + size == total)
    return b"\x30" + variable_byte_integer(body) + start + bytes(body - len(start))


async def until(what, look):
    """Wait until a condition is true."""
    end = monotonic() + PATIENCE
    while not look():
        assert monotonic() < end, what
        await asyncio.sleep(0.02)


@asynccontextmanager
async def broker_that_sends(packets, context=None):
    """Yield the port of a broker that sends CONNACK and these bytes, and then reads without a response."""

    async def serve(reader, writer):
        await reader.read(1024)
        writer.write(CONNACK + packets)
        with suppress(ConnectionError):  # the client closes without reading the rest
            while await reader.read(65536):
                pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture(params=["tcp", "tls"])
def contexts(request):
    """Return the TLS contexts of broker and client; None for TCP."""
    if request.param == "tcp":
        return None, None
    authority = trustme.CA()
    of_broker, of_client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(of_broker)
    authority.configure_trust(of_client)
    return of_broker, of_client


# --- size of packets


async def test_a_packet_above_the_maximum_ends_the_connection_before_it_is_read(contexts):
    of_broker, of_client = contexts
    received = []
    settings = ClientSettings("one", on_received=lambda _, payload: received.append(len(payload)))
    packets = publish_packet(MAX_PACKET_SIZE) + b"\x30" + LARGEST_LENGTH + bytes(100_000)
    async with broker_that_sends(packets, of_broker) as port:
        client = BrokerClient(settings, Access(("127.0.0.1", port), context=of_client), timeout=PATIENCE)
        try:
            await client.connect(clean_start=True)
            with pytest.raises(BrokerError, match="a packet of 268435455 bytes; the maximum is 307200"):
                await asyncio.wait_for(client.run_while_connected(asyncio.Event().wait()), PATIENCE)
        finally:
            client.close()
    assert received == [MAX_PACKET_SIZE - 8], "the largest one that is allowed arrives"


async def test_a_message_with_qos_2_ends_the_connection():
    """The subscriptions have QoS 1 (MQTT-3.8.4-8); paho would keep each until the broker releases it."""
    received = []
    settings = ClientSettings("one", on_received=lambda topic, payload: received.append((topic, payload)))
    qos_1, qos_2 = bytes.fromhex("3207 0001 61 0001 00 78"), bytes.fromhex("3407 0001 61 0002 00 79")
    async with broker_that_sends(qos_1 + qos_2 + qos_1) as port:
        client = BrokerClient(settings, Access(("127.0.0.1", port)), timeout=PATIENCE)
        try:
            await client.connect(clean_start=True)
            with pytest.raises(BrokerError, match="a message with QoS 2; the subscriptions have QoS 1"):
                await asyncio.wait_for(client.run_while_connected(asyncio.Event().wait()), PATIENCE)
        finally:
            client.close()
    assert received == [("a", b"x")]


async def test_a_connack_above_the_maximum_is_an_error_with_its_reason():
    async def serve(reader, writer):
        await reader.read(1024)
        writer.write(b"\x20" + LARGEST_LENGTH + bytes(1000))
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = BrokerClient(ClientSettings("one"), Access(server.sockets[0].getsockname()), timeout=PATIENCE)
    with pytest.raises(BrokerError, match="a packet of 268435455 bytes"):
        await client.connect(clean_start=True)
    client.close()
    server.close()
    await server.wait_closed()


async def test_a_publisher_reports_the_packet_above_the_maximum_and_connects_again(caplog):
    async with broker_that_sends(b"\x30" + LARGEST_LENGTH + bytes(1000)) as port:
        options = MqttOptions(broker=f"127.0.0.1:{port}")
        async with Publisher(options, "gpu-01", Backoff(initial=0.05, maximum=0.2)) as publisher:
            await until("refused", lambda: publisher.status.failures >= 2)
            assert "a packet of 268435455 bytes" in publisher.status.error
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@given(st.lists(st.integers(0, 1000), max_size=5), st.lists(st.integers(1, 300)), st.integers(1001, 268_435_455))
def test_the_first_packet_above_the_maximum_is_detected_however_the_bytes_arrive(allowed, cuts, refused):
    headers = PacketHeaders(1000)
    good = b"".join(b"\x30" + variable_byte_integer(size) + b"\xff" * size for size in allowed)
    while good:
        cut = cuts.pop() if cuts else len(good)
        headers.feed(good[:cut])
        good = good[cut:]
    *start, last = b"\x30" + variable_byte_integer(refused)
    for byte in start:
        headers.feed(bytes([byte]))
    with pytest.raises(PacketRefusedError, match=f"a packet of {refused} bytes; the maximum is 1000"):
        headers.feed(bytes([last]))
    with pytest.raises(PacketRefusedError):
        headers.feed(b"\0")


# --- end


def test_the_end_of_a_publisher_fits_in_the_stop_of_the_daemon():
    """Daemon.stop has half of its time for what it closes last."""
    assert publishing.SHUTDOWN_SECONDS < daemon.STOP_SECONDS / 2


async def test_a_cancellation_while_a_publisher_ends_is_not_reported_as_unexpected(monkeypatch, caplog):
    """asyncio.run cancels all tasks that have not ended; this broker acknowledges nothing, so there is one."""
    monkeypatch.setattr(publishing, "SHUTDOWN_SECONDS", PATIENCE)
    async with broker_that_sends(b"") as port:
        publisher = Publisher(MqttOptions(broker=f"127.0.0.1:{port}"), "gpu-01")
        await publisher.__aenter__()
        await until("connected", lambda: publisher.status.connected)
        closing = asyncio.create_task(publisher.__aexit__(None, None, None))
        await asyncio.sleep(0)
        (working,) = (one for one in asyncio.all_tasks() if one.get_name() == "mqtt publisher")
        working.cancel()
        await asyncio.wait_for(closing, PATIENCE)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
