"""Connections are bounded from accept on: handshakes, their deadlines, and errors of accept."""

import asyncio
import errno
import os
import resource
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from exporter.outputs import http_server as http
from exporter.outputs import listener
from exporter.outputs.http_server import Application, ConnectionStats, Server
from exporter.outputs.reply import text

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Ok(Application):
    def answer(self, request):
        return text(200, "ok")


@pytest.fixture(scope="module")
def contexts():
    """Contexts of the server and of a client that trusts it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


@asynccontextmanager
async def serving(tls=None, sock=None):
    server = Server(Ok(), ConnectionStats(), tls=tls)
    server.listen(sock or socket.create_server(("127.0.0.1", 0)))
    try:
        yield server
    finally:
        await server.stop(5)


async def until(condition):
    """Wait for something that nothing announces; the test's timeout is the bound."""
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.001)


async def connect(server):
    """Open a connection that sends nothing."""
    return await asyncio.open_connection(*server.sockets[0].getsockname())


async def get(reader, writer):
    writer.write(GET)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len("ok\n"))
    return head[:12]


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def closed(reader):
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_of_stalled_handshakes_the_oldest_make_room_and_established_connections_stay(monkeypatch, contexts):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 8)
    tls, trusting = contexts
    async with serving(tls) as server:
        address = server.sockets[0].getsockname()
        established = [await asyncio.open_connection(*address, ssl=trusting) for _ in range(6)]
        stalled = [await connect(server) for _ in range(20)]
        for reader, _ in stalled[:18]:
            assert await closed(reader)
        await until(lambda: server.stats.refused_connections == 18)
        assert len(server.listener.handshakes) == 2
        assert [await get(*one) for one in established] == [b"HTTP/1.1 200"] * 6
        one_more = await asyncio.open_connection(*address, ssl=trusting)
        assert await get(*one_more) == b"HTTP/1.1 200"
        assert await closed(stalled[18][0])
        assert len(server.listener.handshakes) + len(server.connections) == 8
        for _, writer in (*established, *stalled, one_more):
            writer.transport.abort()


async def test_established_and_stalled_connections_are_bounded_together(monkeypatch, contexts):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 8)
    tls, trusting = contexts
    async with serving(tls) as server:
        stalled = await connect(server)
        await until(lambda: server.listener.handshakes)
        address = server.sockets[0].getsockname()
        many = [await asyncio.open_connection(*address, ssl=trusting) for _ in range(8)]
        assert await closed(many[0][0])
        assert len(server.listener.handshakes) + len(server.connections) == 8
        assert server.stats.refused_connections == 1
        for _, writer in (stalled, *many):
            writer.transport.abort()


async def test_a_handshake_that_takes_too_long_is_a_timeout(monkeypatch, contexts):
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT", 0.05)
    async with serving(contexts[0]) as server:
        before = descriptors()
        reader, writer = await connect(server)
        assert await closed(reader)
        await until(lambda: not server.listener.handshakes)
        assert (server.stats.timeouts, server.stats.failed_handshakes) == (1, 0)
        writer.transport.abort()
        await until(lambda: descriptors() == before)


async def test_a_handshake_that_fails_is_counted_and_one_that_is_given_up_is_not(contexts):
    async with serving(contexts[0]) as server:
        reader, writer = await connect(server)
        writer.write(GET)
        await until(lambda: server.stats.failed_handshakes == 1)
        assert await closed(reader)
        writer.close()
        _, probe = await connect(server)
        await until(lambda: server.listener.handshakes)
        probe.close()
        await until(lambda: not server.listener.handshakes)
        assert server.stats == ConnectionStats(failed_handshakes=1)


async def test_stop_aborts_handshakes(contexts):
    async with serving(contexts[0]) as server:
        reader, writer = await connect(server)
        await until(lambda: server.listener.handshakes)
        await server.stop(60)
        assert await closed(reader)
        assert not server.listener.handshakes
        writer.close()


async def test_slow_readers_make_room_and_busy_connections_do_not(monkeypatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)
    gate = asyncio.Event()

    class Large(Application):
        def answer(self, request):
            return self.busy() if request.path == "/busy" else text(200, "x" * 4_000_000)

        async def busy(self):
            await gate.wait()
            return text(200, "ok")

    server = Server(Large(), ConnectionStats())
    server.listen(socket.create_server(("127.0.0.1", 0)))
    busy = await connect(server)
    busy[1].write(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
    slow = []
    for _ in range(9):
        _, writer = await connect(server)
        writer.transport.pause_reading()
        writer.write(GET * 10)
        await until(lambda: any(one._room for one in tuple(server.connections)[-1:]))
        slow.append(writer)
    assert len(server.connections) == 4
    assert server.stats.refused_connections == 6
    gate.set()
    assert await get(*busy) == b"HTTP/1.1 200"
    for writer in (busy[1], *slow):
        writer.transport.abort()
    await server.stop(5)


async def test_connections_lost_before_they_are_accepted_cost_no_others(caplog):
    errors = [errno.ECONNABORTED, errno.EPROTO, errno.EHOSTUNREACH, errno.EPERM]

    class Aborted(socket.socket):
        """A listening socket whose first accepts fail as accept(2) says."""

        def accept(self):
            if errors:
                raise OSError(errors.pop(), "of one connection")
            return super().accept()

    sock = Aborted()
    sock.bind(("127.0.0.1", 0))
    async with serving(sock=sock) as server:
        one = await connect(server)
        assert await get(*one) == b"HTTP/1.1 200"
        one[1].close()
    assert errors == []
    assert caplog.text == ""


async def test_clients_that_reset_while_they_are_queued_cost_no_others(contexts):
    sock = socket.create_server(("127.0.0.1", 0), backlog=50)
    for _ in range(20):
        client = socket.create_connection(sock.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    before = descriptors()
    async with serving(contexts[0], sock) as server:
        reader, writer = await asyncio.open_connection(*sock.getsockname(), ssl=contexts[1])
        assert await get(reader, writer) == b"HTTP/1.1 200"
        assert not server.listener.handshakes
        writer.transport.abort()
        await until(lambda: descriptors() == before)


async def test_without_descriptors_an_error_is_logged_once_and_the_connection_is_accepted_later(monkeypatch, caplog):
    monkeypatch.setattr(listener, "ACCEPT_PAUSE", 0.01)
    loop = asyncio.get_running_loop()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as server:
        with socket.socket() as client:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
            try:
                client.connect(server.sockets[0].getsockname())
                await until(lambda: caplog.records)
                await asyncio.sleep(0.05)  # for the next tries
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert caplog.messages == ["cannot accept connections, trying every second: Too many open files"]
            client.setblocking(False)
            await loop.sock_sendall(client, GET)
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
