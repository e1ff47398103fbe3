"""The server over real sockets: routes, limits, deadlines and the orderly stop."""

import asyncio
import gzip
import signal
import socket
import threading
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from exporter.config.errors import UserError
from exporter.outputs import http_server as http
from exporter.outputs import webapp
from exporter.outputs.negotiation import Format
from exporter.outputs.page import SourceStatus, page
from exporter.outputs.web import (
    Handlers,
    ListenError,
    WebServer,
    parse_listen_address,
)
from exporter.outputs.webapp import Renderings

METRICS = b"# HELP fabric_x Something.\n# TYPE fabric_x gauge\nfabric_x 1\n"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


class Daemon:
    """Replaces the daemon; a test can change the results of its handlers."""

    def __init__(self):
        self.reason = None
        self.reload_error = None
        self.renderings = 0
        self.body = [METRICS]
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()

    def metrics(self, chosen):
        self.renderings += 1
        self.started.set()
        self.gate.wait(60)
        yield from self.body
        if chosen is Format.OPENMETRICS:
            yield b"# EOF\n"

    async def reload(self):
        return self.reload_error

    def handlers(self):
        return Handlers(self.metrics, lambda: "<p>a page</p>", lambda: self.reason, self.reload)


@asynccontextmanager
async def serving(daemon, **options):
    server = WebServer(daemon.handlers(), ["127.0.0.1:0"], **options)
    await server.start()
    try:
        yield server
    finally:
        daemon.gate.set()
        await server.stop(5)


def client_of(server, **options):
    host, port = server.addresses[0]
    return httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=30, **options)


async def test_routes():
    daemon = Daemon()
    async with serving(daemon) as server, client_of(server) as client:
        root = await client.get("/")
        assert (root.status_code, root.text) == (200, "<p>a page</p>")
        assert root.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in root.headers["content-security-policy"]
        assert (await client.get("/-/healthy")).text == "healthy\n"
        assert (await client.get("/-/ready")).status_code == 200
        daemon.reason = "rdma: not read yet"
        ready = await client.get("/-/ready")
        assert (ready.status_code, ready.text) == (503, "not ready: rdma: not read yet\n")
        assert (await client.post("/-/reload")).status_code == 200
        assert (await client.put("/-/reload")).status_code == 200
        daemon.reload_error = "config.yml: sources.x: unknown"
        failed = await client.post("/-/reload")
        assert (failed.status_code, failed.text) == (500, "config.yml: sources.x: unknown\n")
        assert (await client.get("/nothing")).status_code == 404
        assert "server" not in root.headers
        assert root.headers["date"].endswith("GMT")
    assert server.stats.requests["other", 404] == 1
    assert server.stats.requests["/-/ready", 503] == 1
    assert server.stats.requests["/-/reload", 500] == 1


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", "/-/reload", "POST, PUT"), ("POST", "/metrics", "GET, HEAD"), ("DELETE", "/", "GET, HEAD")],
)
async def test_wrong_method(method, path, allow):
    async with serving(Daemon()) as server, client_of(server) as client:
        response = await client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allow)


async def test_metrics_formats_and_encodings():
    async with serving(Daemon()) as server, client_of(server) as client:
        plain = await client.get("/metrics", headers={"accept-encoding": "identity", "accept": ""})
        assert plain.content == METRICS
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert plain.headers["content-length"] == str(len(METRICS))
        assert "content-encoding" not in plain.headers

        request = client.build_request("GET", "/metrics", headers={"accept-encoding": "gzip", "accept": OPENMETRICS})
        response = await client.send(request, stream=True)
        raw = b"".join([part async for part in response.aiter_raw()])
        assert gzip.decompress(raw) == METRICS + b"# EOF\n"
        assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert response.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/nothing"])
async def test_head_has_headers_and_no_body(path):
    daemon = Daemon()
    async with serving(daemon) as server, client_of(server) as client:
        head, get = await client.head(path), await client.get(path)
        assert head.content == b""
        assert head.status_code == get.status_code
        assert head.headers["content-type"] == get.headers["content-type"]
        assert daemon.renderings == (1 if path == "/metrics" else 0)  # by the GET alone


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("chunk", [100, 250_000, 3_000_000])
async def test_large_body_arrives_whole(encoding, chunk):
    daemon = Daemon()
    daemon.body = [bytes([65 + n % 26]) * chunk for n in range(3_000_000 // chunk)]
    async with serving(daemon) as server, client_of(server) as client:
        response = await client.get("/metrics", headers={"accept-encoding": encoding})
        assert response.content == b"".join(daemon.body)


async def test_identical_requests_share_a_rendering_and_the_rest_is_refused():
    daemon = Daemon()
    daemon.gate.clear()
    async with serving(daemon, max_requests=2) as server, client_of(server) as client:
        waiting = [asyncio.ensure_future(client.get("/metrics")) for _ in range(2)]
        await until(lambda: server.stats.in_flight == 2)
        refused = await client.get("/metrics")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/-/healthy")).status_code == 200
        daemon.gate.set()
        assert [response.content for response in await asyncio.gather(*waiting)] == [METRICS] * 2
        assert daemon.renderings == 1
        assert (await client.get("/metrics")).status_code == 200
        assert server.stats.in_flight == 0


async def test_quick_renderings_are_made_on_the_loop_and_slow_ones_are_not(monkeypatch):
    daemon = Daemon()
    threads = []

    def metrics(chosen):
        threads.append(threading.current_thread() is threading.main_thread())
        return daemon.metrics(chosen)

    handlers = Handlers(metrics, lambda: "", lambda: None, daemon.reload)
    clock = iter([0, 0.0009, 10, 10.002, 20, 20.0009, 30, 30.0009, 40, 40.0009, 50, 50.0009])
    monkeypatch.setattr(webapp, "perf_counter", lambda: next(clock))
    renderings = Renderings(handlers.metrics)
    for gzip_ in (False, False, False, False, True, True):
        body = renderings.get(Format.TEXT, gzip_)
        if not isinstance(body, list):
            body = await body
        assert b"".join(body) == METRICS or gzip.decompress(b"".join(body)) == METRICS
        await until(lambda: not renderings._running)
    renderings.close()
    # The first; the second, which turns out slow; so the third is the thread's; the fourth; and so for the other kind.
    assert threads == [False, True, False, True, False, True]


async def test_a_rendering_is_never_made_beside_another():
    daemon = Daemon()
    renderings = Renderings(daemon.metrics)
    await renderings.get(Format.TEXT, gzip=False)
    renderings._inline.add((Format.TEXT, False))
    daemon.started.clear()
    daemon.gate.clear()
    first = renderings.get(Format.TEXT, gzip=True)
    await asyncio.to_thread(daemon.started.wait, 30)
    second = renderings.get(Format.TEXT, gzip=False)
    assert not isinstance(second, list)
    daemon.gate.set()
    assert gzip.decompress(b"".join(await first)) == b"".join(await second) == METRICS
    renderings.close()


async def test_a_reload_is_done_although_its_client_hangs_up():
    daemon = Daemon()
    going, done = asyncio.Event(), asyncio.Event()

    async def reload():
        await going.wait()
        done.set()

    daemon.reload = reload
    async with serving(daemon) as server:
        _, writer = await asyncio.open_connection(*server.addresses[0])
        writer.write(b"POST /-/reload HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: server.connections and server.connections[0].task)
        writer.close()
        await until(lambda: not server.connections)
        going.set()
        await done.wait()
        assert not server.stats.requests


async def test_failing_rendering_is_500_and_logged(caplog):
    daemon = Daemon()
    daemon.body = [None]
    async with serving(daemon) as server, client_of(server) as client:
        response = await client.get("/metrics")
        assert (response.status_code, response.text) == (500, "internal error; see the log\n")
    assert "GET /metrics failed" in caplog.text


async def test_answers_do_not_wait_for_acknowledgements():
    async with serving(Daemon()) as server, client_of(server) as client:
        await client.get("/metrics")
        (connection,) = server.connections
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("path", ["metrics", "/-/metrics"])
def test_wrong_telemetry_path(path):
    with pytest.raises(UserError) as raised:
        WebServer(Daemon().handlers(), [":0"], telemetry_path=path)
    assert str(raised.value) == f"--web.telemetry-path: {path!r}: start it with /, and not with /-/"


async def test_telemetry_path_is_an_option():
    async with serving(Daemon(), telemetry_path="/fabric") as server, client_of(server) as client:
        assert (await client.get("/fabric")).content == METRICS
        assert (await client.get("/metrics")).status_code == 404


async def until(condition):
    """Wait for a number to change that nothing announces; the test's time-out is the bound."""
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.001)


async def talk(server, data):
    """Send bytes, return all that is received until the server closes."""
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000, 431),
        (b"GET /" + b"a" * 20_000, 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: bogus\r\n\r\n", 400),
    ],
)
async def test_malformed_and_oversized_requests(request_, status, caplog):
    async with serving(Daemon()) as server:
        assert (await talk(server, request_)).startswith(b"HTTP/1.1 %d " % status)
        assert server.stats.malformed_requests == 1
    assert caplog.text == ""


async def test_long_target():
    async with serving(Daemon()) as server:
        answer = await talk(server, b"GET /?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 414 ")


async def test_a_request_body_is_not_awaited_and_ends_the_connection():
    async with serving(Daemon()) as server:
        head = b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
        answer = await talk(server, head + b"first bytes")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\nGET /-/hea"])
async def test_slow_request_is_cut(monkeypatch, sent):
    monkeypatch.setattr(http, "HEADER_TIMEOUT", 0.05)
    monkeypatch.setattr(http, "KEEP_ALIVE_TIMEOUT", 0.05)
    async with serving(Daemon()) as server:
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                await talk(server, sent)
        assert not server.connections


async def test_client_that_reads_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(http, "STALL_TIMEOUT", 0.05)
    daemon = Daemon()
    daemon.body = [b"x" * 1_000_000] * 30
    async with serving(daemon) as server:
        with socket.create_connection(server.addresses[0]) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(10):
                await until(lambda: server.stats.timeouts and not server.stats.in_flight)


async def test_of_too_many_connections_that_which_waits_longest_makes_room(monkeypatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    daemon = Daemon()
    async with serving(daemon) as server, client_of(server) as client:
        slow_reader, slow_writer = await asyncio.open_connection(*server.addresses[0])
        slow_writer.write(b"GET / HTTP/1.1\r\nHo")
        await until(lambda: len(server.connections) == 1)
        assert (await client.get("/-/healthy")).status_code == 200  # kept alive
        assert b"200 OK" in await talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert await slow_reader.read() == b""
        slow_writer.close()
        await until(lambda: len(server.connections) == 1)
        assert server.stats.refused_connections == 1


async def test_too_many_connections_that_are_all_being_answered(monkeypatch):
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    daemon = Daemon()
    daemon.gate.clear()
    async with serving(daemon) as server, client_of(server) as client:
        answer = asyncio.create_task(client.get("/metrics"))
        await until(lambda: server.stats.in_flight)
        try:
            refused = await talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        except ConnectionResetError:
            refused = b""
        assert refused == b""
        assert server.stats.refused_connections == 1
        daemon.gate.set()
        assert (await answer).status_code == 200


async def test_stop_finishes_the_running_answer_and_closes_idle_and_half_open_connections():
    daemon = Daemon()
    daemon.gate.clear()
    server = WebServer(daemon.handlers(), ["127.0.0.1:0"])
    await server.start()
    slow_loris = await asyncio.open_connection(*server.addresses[0])
    slow_loris[1].write(b"GET / HTTP/1.1\r\nHost")
    async with client_of(server) as client, client_of(server) as idle:
        await idle.get("/-/healthy")
        answer = asyncio.ensure_future(client.get("/metrics"))
        await asyncio.to_thread(daemon.started.wait, 30)
        address = server.addresses[0]
        stop = asyncio.ensure_future(server.stop(60))
        assert await slow_loris[0].read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        assert not stop.done()
        daemon.gate.set()
        assert (await answer).content == METRICS
        await stop
    slow_loris[1].close()
    await slow_loris[1].wait_closed()


async def test_stop_aborts_connections_after_the_grace_period(caplog):
    daemon = Daemon()
    daemon.gate.clear()
    async with serving(daemon) as server, client_of(server) as client:
        answer = asyncio.ensure_future(client.get("/metrics"))
        await asyncio.to_thread(daemon.started.wait, 30)
        await server.stop(0.01)
        with pytest.raises(httpx.TransportError):
            await answer
    assert caplog.text == ""


async def test_signals_stay_the_daemons():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with serving(Daemon()):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_port_in_use_is_one_clear_error_and_leaves_nothing_open():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = WebServer(Daemon().handlers(), ["127.0.0.1:0", f"127.0.0.1:{port}"])
        with pytest.raises(ListenError) as raised:
            await server.start()
        assert str(raised.value) == (
            f"cannot listen on 127.0.0.1:{port}: the port is in use; "
            "stop what uses it, or choose another with --web.listen-address"
        )
        assert server.addresses == []


async def test_wildcard_serves_both_families():
    if not socket.has_dualstack_ipv6():
        pytest.skip("needs IPv6")
    server = WebServer(Daemon().handlers(), [":0", "127.0.0.1:0"])
    await server.start()
    (_, port), (host, _) = server.addresses
    assert host == "127.0.0.1"
    for name in ("127.0.0.1", "[::1]"):
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{name}:{port}/-/healthy")).status_code == 200
    await server.stop(5)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (":10315", ("", 10315)),
        ("host:0", ("host", 0)),
        ("[::1]:10315", ("::1", 10315)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[10.0.0.1]:80", ("10.0.0.1", 80)),  # as manifests write an address of whichever family
    ],
)
def test_listen_address(text, parsed):
    assert parse_listen_address(text) == parsed


SHAPE = "write :PORT, HOST:PORT or [IPV6]:PORT"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("10315", SHAPE),
        ("::1:10315", SHAPE),
        ("[host]:1", SHAPE),
        ("vsock://:10315", SHAPE),
        (":http", "the port 'http' is not a number from 0 to 65535"),
        (":65536", "the port '65536' is not a number from 0 to 65535"),
        ("host:", "the port '' is not a number from 0 to 65535"),
    ],
)
def test_wrong_listen_address(text, error):
    with pytest.raises(UserError) as raised:
        parse_listen_address(text)
    assert str(raised.value) == f"--web.listen-address: {text!r}: {error}"


def test_page_lists_the_sources_and_escapes_their_texts():
    text = page(
        name="fabric-exporter",
        version="1.2.3",
        telemetry_path="/metrics",
        sources=[
            SourceStatus("rdma", "", up=True, age=1.25, rows=8),
            SourceStatus(
                "switch",
                "<b>leaf",
                up=False,
                age=7200,
                rows=0,
                failures={"time<out": 3, "parse": 0},
                error="<b>no" + "n" * 999,
            ),
            SourceStatus("nccl", "", up=None, age=None, rows=0),
        ],
    )
    assert "version 1.2.3" in text
    assert '<td class="up">up</td><td class="n">1.2 s ago</td><td class="n">8</td><td>none</td>' in text
    why = "&lt;b&gt;no" + "n" * 395
    assert f'<td class="down">down<br><small>{why}</small></td><td class="n">2.0 h ago</td><td class="n">0</td>' in text
    assert "<td>time&lt;out: 3</td>" in text
    assert '<td class="">nothing found</td><td class="n">never</td>' in text
    assert "&lt;b&gt;leaf" in text
    assert "<b>" not in text
    assert "<script" not in text
    assert "//" not in text  # nothing from elsewhere
