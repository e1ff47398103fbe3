"""The HTTP server below the web surface: what is a request, in which order answers come, and how connections end."""

import asyncio
import itertools
import socket
from contextlib import asynccontextmanager

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.outputs import http_server as http
from exporter.outputs.http_server import Application, ConnectionStats, Server
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import MAX_HEAD_SIZE, RefusedError, RequestReader


class Echo(Application):
    """Answers with what it understood; `gate` holds back answers to /slow."""

    def __init__(self, max_body=0):
        self.max_body = max_body
        self.gate = asyncio.Event()
        self.requests = []
        self.over = []

    def answer(self, request):
        self.requests.append(request)
        return self.slowly(request) if request.path.startswith("/slow") else self.now(request)

    def now(self, request):
        if request.path == "/fails":
            raise LookupError("of the application")
        if request.path == "/large":
            return Reply(200, (), [b"x" * 300_000] * 100)
        return text(200, f"{request.method} {request.target} {request.body.decode('latin-1')}")

    async def slowly(self, request):
        await self.gate.wait()
        if request.path == "/slow/fails":
            raise LookupError("of the application")
        return self.now(request)

    def ended(self, request, status):
        self.over.append((request.path, status))


@asynccontextmanager
async def serving(app=None):
    server = Server(app or Echo(), ConnectionStats())
    sock = socket.create_server(("127.0.0.1", 0))
    server.listen(sock)
    try:
        yield server
    finally:
        await server.stop(5)


class Client:
    def __init__(self, server):
        self.address = server.sockets[0].getsockname()

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    def send(self, data):
        self.writer.write(data)

    async def answer(self, body=True):
        """Return the status and body of the next response, which has to be well formed."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")[:-2]
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert len(self.headers) == len(lines)
        content = await self.reader.readexactly(int(self.headers["content-length"])) if body else b""
        return int(first.split(" ")[1]), content.decode()

    async def ended(self):
        """Return whether the server closed, and sent nothing more."""
        return await self.reader.read() == b""


def head(line, *headers, host=True):
    return "".join(f"{one}\r\n" for one in (line, *(["Host: a"] if host else []), *headers, "")).encode()


GET = head("GET / HTTP/1.1")


async def until(condition):
    """Wait for something that nothing announces; the test's time-out is the bound."""
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.001)


KEPT = [
    (head("GET / HTTP/1.1"), None),
    (head("GET / HTTP/1.1", "Connection: keep-alive"), "keep-alive"),
    (head("GET / HTTP/1.0", "Connection: Keep-Alive", host=False), "keep-alive"),
    (head("GET / HTTP/1.1", "Content-Length: 0"), None),
]
CLOSED = [
    head("GET / HTTP/1.1", "Connection: close"),
    head("GET / HTTP/1.1", "Connection: foo, Close"),
    head("GET / HTTP/1.1", "Connection: foo", "Connection: close"),
    head("GET / HTTP/1.0", host=False),
    head("GET / HTTP/1.1", "Content-Length: 5"),
    head("GET / HTTP/1.1", "Transfer-Encoding: chunked"),
    head("POST / HTTP/1.1", "Content-Length: 5", "Expect: 100-continue"),
    head("GET / HTTP/1.1", "Connection: upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: a"),
    head("GET / HTTP/1.1", "Connection: upgrade", "Upgrade: websocket", "Content-Length: 5"),
    head("CONNECT a:1 HTTP/1.1"),
]
REFUSED = [
    (head("GET / HTTP/1.1", host=False), 400),
    (head("GET / HTTP/1.1", "Host: b"), 400),
    (head("GET / HTTP/1.0", "Host: b"), 400),
    (head("NONSENSE"), 400),
    (head("get / HTTP/1.1"), 400),
    (head("GET /\x01 HTTP/1.1"), 400),
    (head("GET /\xe9 HTTP/1.1"), 400),
    (head("GET nothing HTTP/1.1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
    (head("GET / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 2"), 400),
    (head("GET / HTTP/1.1", "Content-Length: 1, 1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: +1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: -1"), 400),
    (head("GET / HTTP/1.1", "Content-Length: 1_0"), 400),
    (head("GET / HTTP/1.1", "Content-Length: " + "9" * 30), 400),
    (head("GET / HTTP/1.1", "Content-Length:"), 400),
    (head("GET / HTTP/1.1", "Transfer-Encoding: bogus"), 400),
    (head("GET / HTTP/1.1", "Transfer-Encoding: chunked, gzip"), 400),
    (head("GET / HTTP/1.1", "X: a", " folded"), 400),
    (head("GET / HTTP/1.1", " X: a"), 400),
    (head("GET / HTTP/1.1", "X : a"), 400),
    (head("GET / HTTP/1.1", ": a"), 400),
    (head("GET / HTTP/1.1", "no colon"), 400),
    (head("GET / HTTP/1.1", "X: a\0b"), 400),
    (head("GET / HTTP/1.1", "X: a\rb"), 400),
    (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    (b"\x16\x03\x01\x02\x00\x01", 400),
    (b"HTTP/1.1 200 OK\r\n\r\n", 400),
    (head("GET /", host=False), 505),
    (head("GET / HTTP/0.9"), 505),
    (head("GET / HTTP/2.0"), 505),
    (head("GET / RTSP/1.0"), 505),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (head("GET /" + "a" * 8200 + " HTTP/1.1"), 414),
    (b"GET /" + b"a" * 17_000, 414),
    (head("GET / HTTP/1.1", "X: " + "a" * 17_000), 431),
    (b"GET / HTTP/1.1\r\nX: " + b"a" * 17_000, 431),
    (head("GET / HTTP/1.1", *["X: a"] * 100), 431),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "connection"), KEPT)
async def test_kept_connections(request_, connection):
    async with serving() as server, Client(server) as client:
        for _ in range(3):
            client.send(request_)
            assert await client.answer() == (200, "GET / \n")
            assert client.headers.get("connection") == connection
            assert client.headers["date"].endswith(" GMT")


@pytest.mark.parametrize("request_", CLOSED)
async def test_closed_connections(request_):
    async with serving() as server, Client(server) as client:
        client.send(request_ + b"hello")
        status, _ = await client.answer()
        assert (status, client.headers["connection"]) == (200, "close")
        client.writer.write_eof()
        assert await client.ended()
        assert len(server.app.requests) == 1


@pytest.mark.parametrize(("request_", "status"), REFUSED)
async def test_refused_requests(request_, status):
    async with serving() as server, Client(server) as client:
        client.send(request_)
        assert (await client.answer())[0] == status
        assert client.headers["connection"] == "close"
        client.writer.write_eof()
        assert await client.ended()
        assert (server.app.requests, server.stats.malformed_requests) == ([], 1)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a?b=/c?d", "/a", "b=/c?d"),
        ("/%61%20%c3%a9", "/a é", ""),
        ("http://other:1/a/b?c", "/a/b", "c"),
        ("http://other", "/", ""),
        ("/a?u=http://b", "/a", "u=http://b"),
        ("*", "*", ""),
    ],
)
async def test_targets(target, path, query):
    reader = RequestReader(0)
    reader.received = head(f"OPTIONS {target} HTTP/1.1")
    request = reader.next_request()
    assert (request.method, request.target, request.path, request.query) == ("OPTIONS", target, path, query)


def test_headers_are_joined_and_stripped():
    reader = RequestReader(0)
    reader.received = head("GET / HTTP/1.1", "X:  a \t", "x: b")
    assert reader.next_request().headers == {b"host": b"a", b"x": b"a,b"}


async def test_head_has_no_body():
    async with serving() as server, Client(server) as client:
        client.send(head("HEAD / HTTP/1.1") + head("HEAD /large HTTP/1.1") + GET)
        assert await client.answer(body=False) == (200, "")
        assert client.headers["content-length"] == str(len("HEAD / \n"))
        assert await client.answer(body=False) == (200, "")
        assert client.headers["content-length"] == "30000000"
        assert await client.answer() == (200, "GET / \n")


async def test_requests_sent_ahead_are_answered_in_order():
    async with serving() as server, Client(server) as client:
        paths = [f"/{'slow' if n % 3 else ''}{n}" for n in range(1000)]
        client.send(b"\r\n".join(head(f"GET {path} HTTP/1.1") for path in paths))
        await until(lambda: server.app.requests[-1:] and server.app.requests[-1].path == "/slow1")
        assert [await client.answer() for _ in paths[:1]] == [(200, "GET /0 \n")]
        assert len(server.app.requests) == 2
        server.app.gate.set()
        assert [await client.answer() for _ in paths[1:]] == [(200, f"GET {path} \n") for path in paths[1:]]
        assert server.app.over == [(path, 200) for path in paths]


async def test_a_malformed_request_sent_ahead_is_refused_in_its_turn():
    async with serving() as server, Client(server) as client:
        client.send(head("GET /slow HTTP/1.1") + head("NONSENSE") + GET)
        await until(lambda: server.app.requests)
        server.app.gate.set()
        assert [(await client.answer())[0] for _ in range(2)] == [200, 400]
        client.writer.write_eof()
        assert await client.ended()


async def test_a_client_that_sends_on_and_on_is_not_listened_to():
    async with serving() as server, Client(server) as client:
        client.send(head("GET /slow HTTP/1.1"))
        await until(lambda: server.app.requests)
        (connection,) = server.connections
        client.send(GET * 300_000)
        await until(lambda: not connection._transport.is_reading())
        assert len(connection._reader.received) <= MAX_HEAD_SIZE + http.READ_SIZE
        server.app.gate.set()
        for _ in range(2):
            assert (await client.answer())[0] == 200
        client.writer.transport.abort()


async def test_bodies_are_read_up_to_max_body():
    async with serving(Echo(max_body=10)) as server, Client(server) as client:
        first = head("POST /1 HTTP/1.1", "Content-Length: 10") + b"0123456789"
        client.send(first + head("POST /slow HTTP/1.1", "Content-Length: 3") + b"ab")
        assert await client.answer() == (200, "POST /1 0123456789\n")
        assert len(server.app.requests) == 1
        server.app.gate.set()
        client.send(b"c" + GET)
        assert await client.answer() == (200, "POST /slow abc\n")
        assert await client.answer() == (200, "GET / \n")
        client.send(head("POST /2 HTTP/1.1", "Content-Length: 3", "Expect: 100-Continue"))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"ab")
        client.send(b"c")
        assert await client.answer() == (200, "POST /2 abc\n")


@pytest.mark.parametrize(
    ("header", "status"), [("Content-Length: 11", 413), ("Transfer-Encoding: chunked", 411)]
)  # fmt: skip
async def test_bodies_that_are_too_long_or_of_unknown_length(header, status):
    async with serving(Echo(max_body=10)) as server, Client(server) as client:
        client.send(head("POST / HTTP/1.1", header))
        assert (await client.answer())[0] == status


async def test_an_answer_outlives_a_body_that_is_still_being_sent():
    async with serving() as server, Client(server) as client:
        client.send(head("POST / HTTP/1.1", "Content-Length: 5000000") + b"x" * 5_000_000)
        assert await client.answer() == (200, "POST / \n")
        await client.writer.drain()
        client.writer.write_eof()
        assert await client.ended()


async def test_a_client_that_never_ends_its_body_is_closed(monkeypatch):
    monkeypatch.setattr(http, "LINGER_TIMEOUT", 0.05)
    async with serving() as server, Client(server) as client:
        client.send(head("POST / HTTP/1.1", "Content-Length: 5"))
        assert (await client.answer())[0] == 200
        await until(lambda: not server.connections)
        assert server.stats.timeouts == 0


async def test_an_idle_connection_is_closed_and_not_counted(monkeypatch):
    monkeypatch.setattr(http, "KEEP_ALIVE_TIMEOUT", 0.05)
    async with serving() as server, Client(server) as client:
        client.send(GET)
        assert (await client.answer())[0] == 200
        assert await client.ended()
        assert server.stats.timeouts == 0


@pytest.mark.parametrize("sent", [b"", b"GET /", GET + b"GET /", head("POST / HTTP/1.1", "Content-Length: 5") + b"a"])
async def test_a_request_that_does_not_get_whole_is_cut_and_counted(sent, monkeypatch):
    monkeypatch.setattr(http, "HEADER_TIMEOUT", 0.05)
    async with serving(Echo(max_body=10)) as server, Client(server) as client:
        client.send(sent)
        await until(lambda: server.stats.timeouts == 1 and not server.connections)


async def test_dripping_does_not_extend_the_deadline(monkeypatch):
    monkeypatch.setattr(http, "HEADER_TIMEOUT", 0.2)
    async with serving() as server, Client(server) as client:
        client.send(GET)
        assert (await client.answer())[0] == 200
        while not server.stats.timeouts:
            client.send(b"G")
            await asyncio.sleep(0.02)


async def test_time_that_an_answer_takes_is_not_the_clients(monkeypatch):
    monkeypatch.setattr(http, "HEADER_TIMEOUT", 0.02)
    async with serving() as server, Client(server) as client:
        client.send(head("GET /slow HTTP/1.1"))
        await until(lambda: server.app.requests)
        (connection,) = server.connections
        await until(lambda: connection._timer is None)
        server.app.gate.set()
        assert (await client.answer())[0] == 200
        assert server.stats.timeouts == 0


async def test_a_client_that_hangs_up_ends_its_answer():
    async with serving() as server:
        async with Client(server) as client:
            client.send(head("GET /slow HTTP/1.1"))
            await until(lambda: server.app.requests)
            (connection,) = server.connections
            task = connection.task
        await until(lambda: not server.connections)
        await until(task.done)
        assert task.cancelled()
        assert server.app.over == [("/slow", None)]


@pytest.mark.parametrize("path", ["/fails", "/slow/fails"])
async def test_a_failing_application_is_500_and_logged(path, caplog):
    async with serving() as server, Client(server) as client:
        server.app.gate.set()
        client.send(head(f"GET {path} HTTP/1.1") + GET)
        assert await client.answer() == (500, "internal error; see the log\n")
        assert (await client.answer())[0] == 200
        assert server.app.over == [(path, 500), ("/", 200)]
    assert f"GET {path} failed" in caplog.text
    assert "LookupError: of the application" in caplog.text


async def test_a_small_answer_is_one_send_and_takes_no_task_and_no_timer(monkeypatch):
    async with serving() as server, Client(server) as client:
        client.send(GET)
        await client.answer()
        (connection,) = server.connections
        sent = []
        write = connection._transport.write
        monkeypatch.setattr(connection._transport, "write", lambda data: sent.append(data) or write(data))
        timer, tasks = connection._timer, asyncio.all_tasks()
        for _ in range(5):
            client.send(GET)
            await client.answer()
        assert len(sent) == 5
        assert connection._timer is timer
        assert asyncio.all_tasks() == tasks


async def test_a_large_answer_waits_for_its_reader():
    async with serving() as server, Client(server) as client:
        client.send(head("GET /large HTTP/1.1") + GET)
        await until(lambda: server.connections)
        (connection,) = server.connections
        await until(lambda: connection._room is not None)
        assert connection._transport.get_write_buffer_size() < 700_000
        status, body = await client.answer()
        assert (status, len(body)) == (200, 30_000_000)
        assert await client.answer() == (200, "GET / \n")


async def test_stop_finishes_answers_that_are_being_sent_and_ends_the_rest():
    async with serving() as server, Client(server) as client, Client(server) as lingering, Client(server) as idle:
        lingering.send(head("POST / HTTP/1.1", "Content-Length: 5"))
        assert (await lingering.answer())[0] == 200
        idle.send(GET)
        assert (await idle.answer())[0] == 200
        client.send(head("GET /large HTTP/1.1") + GET)
        await until(lambda: any(connection._room for connection in server.connections))
        stop = asyncio.ensure_future(server.stop(60))
        assert await idle.ended()
        assert await lingering.ended()
        await until(lambda: len(server.connections) == 1)
        status, body = await client.answer()
        assert (status, len(body)) == (200, 30_000_000)
        assert await client.ended()  # the pipelined request is left to be sent again
        await stop
        assert ("/large", 200) in server.app.over


class Wire(asyncio.Transport):
    """Takes what a connection writes; nothing goes anywhere."""

    def __init__(self):
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data):
        assert not self.closed
        self.sent += data

    def close(self):
        self.closed = True

    abort = close

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return 0

    def can_write_eof(self):
        return False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def exchange(pieces, max_body=0):
    """Return the responses to bytes that arrive in these pieces, and whether the server closed."""
    server = Server(Echo(max_body), ConnectionStats())
    connection = http.Connection(server)
    wire = Wire()
    connection.connection_made(wire)
    for piece in pieces:
        if not wire.closed:
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        await asyncio.sleep(0)
    while connection._reader.begun and not wire.closed:
        before = len(wire.sent), connection._reader.received
        for _ in range(3):
            await asyncio.sleep(0)
        if before == (len(wire.sent), connection._reader.received):
            break
    connection.connection_lost(None)
    return wire.sent, wire.closed, server


def answers(data):
    """Return the statuses of answers, read by another parser."""
    client = h11.Connection(h11.CLIENT)
    statuses = []
    while data:
        client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        event = client.next_event()
        while isinstance(event, h11.InformationalResponse):
            event = client.next_event()
        if event is h11.NEED_DATA:  # expects a body that was not sent
            break
        statuses.append(event.status_code)
        while not isinstance(client.next_event(), h11.EndOfMessage):
            pass
        data, _ = client.trailing_data
        client = h11.Connection(h11.CLIENT)
    return statuses


def cut(data, places):
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


FRAGMENTS = st.sampled_from(
    [GET, *(one for one, _ in KEPT), *CLOSED, *(one for one, _ in REFUSED if len(one) < 200),
     b"GET ", b"POST ", b"/", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: a\r\n", b"Content-Length: 3\r\n", b"abc",
     b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"\r\n", b"\n", b"\0",
     b"3\r\nabc\r\n0\r\n\r\n"]
)  # fmt: skip
STREAMS = st.lists(FRAGMENTS | st.binary(max_size=20), max_size=12).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=30), st.sampled_from([0, 2, 100]))
def test_any_bytes_in_any_pieces(data, places, max_body):
    whole, whole_closed, server = asyncio.run(exchange([data], max_body))
    split, split_closed, _ = asyncio.run(exchange(cut(data, places), max_body))
    statuses = answers(split)
    assert set(statuses) <= {200, 400, 411, 413, 505}
    assert all(status == 200 for status in statuses[:-1])
    assert answers(whole) == statuses
    assert whole_closed == split_closed
    assert len(server.app.requests) == statuses.count(200)
    if statuses[-1:] and statuses[-1] != 200:
        assert split_closed


# Where h11 is laxer, or silent until it is too late, and we are right to differ.
DIFFERENT = {
    head("GET / HTTP/1.1", "X: a", " folded"): "obsolete folding may be refused (RFC 9112, section 5.2)",
    b"GET / HTTP/1.1\nHost: a\n\n": "bare line feeds are where parsers disagree",
    b"GET / HTTP/1.1\r\nHost: a\n\r\n": "the same",
    b"GET / HTTP/1.1\r\nHost: a\r\n\n": "the same",
    head("GET / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"): "smuggling (RFC 9112, section 6.1)",
    head("GET / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 1"): "smuggling",
    head("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"): "may be refused (RFC 9112, section 6.3)",
    head("GET / HTTP/1.1", "Content-Length: 1, 1"): "the same",
    head("get / HTTP/1.1"): "methods are case-sensitive, and this one is unknown",
    head("GET nothing HTTP/1.1"): "no form of target",
    head("GET / HTTP/1.1", " X: a"): "the same",
    head("GET / HTTP/1.1", "X: " + "a" * 17_000): "h11 bounds what is incomplete alone",
    head("GET / HTTP/1.1", *["X: a"] * 100): "h11 bounds bytes alone",
}


@pytest.mark.parametrize("request_", [*(one for one, _ in KEPT), *CLOSED, *(one for one, _ in REFUSED)])
def test_another_parser_judges_alike(request_):
    theirs = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_SIZE)
    theirs.receive_data(request_)
    try:
        event = theirs.next_event()
        good = isinstance(event, h11.Request) and event.http_version in {b"1.0", b"1.1"} and len(event.target) <= 8192
    except h11.RemoteProtocolError:
        good = False
    reader = RequestReader(0)
    reader.received = request_
    try:
        request = reader.next_request()
    except RefusedError:
        assert good == (request_ in DIFFERENT)
        return
    assert good
    assert request_ not in DIFFERENT
    assert (request.method.encode(), request.target.encode()) == (event.method, event.target)
    assert request.headers.keys() == {name for name, _ in event.headers}


async def test_connections_leave_descriptors_for_the_application(monkeypatch):
    monkeypatch.setattr(http.resource, "getrlimit", lambda _: (64, 64))
    async with serving() as server:
        assert server.max_connections == 8
    monkeypatch.setattr(http.resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    async with serving() as server:
        assert server.max_connections == http.MAX_CONNECTIONS
