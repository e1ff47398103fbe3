"""The HTTP client against a server with scripted responses: bounds, redirects, secrets; and the backoff of log-ins."""

import asyncio
import base64
import contextlib
import gzip
import json
import traceback

import msgspec
import pytest

from exporter.switch_api import errors, http
from exporter.switch_api.login_backoff import LoginBackoff
from exporter.switch_api.tls import tls_context
from tests.helpers.clock import Clock

SECRET = 'p&ss "wörd"/1'


class ScriptedServer:
    """Responds to each request with the next bytes, and records the requests."""

    def __init__(self):
        self.responses = []
        self.requests = []
        self.hangs = False

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._writers = set()
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            writer.write(self.responses.pop(0))
            await writer.drain()
            if self.hangs:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def response(status=200, body=b"{}", *headers):
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def nothing(_):
    yield b""


def a_handshake_record_that_drips(_):
    yield b"\x16\x03\x03\x40\x00"  # a record of 16 KiB, the largest (RFC 8446, 5.1)
    for _ in range(16_000):
        yield b"\x00"


@pytest.mark.parametrize("says", [nothing, a_handshake_record_that_drips])
async def test_a_slow_or_broken_handshake_ends_in_time_and_sends_no_secret(says):
    """A switch whose processor is busy, or something other than a switch; others are not delayed by it."""
    received, tasks = [], []

    async def serve(reader, writer):
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            received.append(await reader.read(65536))
            for part in says(reader):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            received.append(await reader.read())
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{running.sockets[0].getsockname()[1]}"
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            await asyncio.sleep(0.02)
            beats += 1

    beating = asyncio.create_task(beat())
    context = tls_context(insecure=True)
    async with http.HttpClient(address, (SECRET,), auth=("admin", SECRET), tls=context, timeout=2.0) as client:
        async with asyncio.timeout(20):
            text = await failure(client.get("/"), errors.TransportError)
    beating.cancel()
    running.close()
    await asyncio.wait(tasks, timeout=20)
    assert address in text
    assert beats > 3
    assert len(received[0]) > 100  # a ClientHello
    assert not any(form.encode() in b"".join(received) for form in encoded_forms(SECRET))


@pytest.fixture
async def server():
    async with ScriptedServer() as running:
        yield running


@pytest.fixture
async def client(server):
    async with http.HttpClient(server.url, (SECRET,), timeout=5.0, max_reply=1000) as made:
        yield made


async def failure(request, kind):
    """Return the text of the error, after checking that its traceback does not contain the secret."""
    with pytest.raises(kind) as caught:
        await request
    text = "".join(traceback.format_exception(caught.value))
    assert not any(form in text for form in encoded_forms(SECRET))
    return str(caught.value)


def encoded_forms(secret):
    return [secret, json.dumps(secret)[1:-1], "p%26ss+%22w%C3%B6rd%22%2F1", "p%26ss%20%22w%C3%B6rd%22%2F1"]


async def test_sent_requests(server, client):
    server.responses = [response(), response()]
    assert (await client.get("/a?b=c", headers={"X-One": "1"}))[1] == b"{}"
    await client.post("/d", json={"cmd": "x"})
    get, post = server.requests
    assert get.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"\r\nX-One: 1\r\n" in get
    assert b"\r\nAccept-Encoding: identity\r\n" in get
    assert post.startswith(b"POST /d HTTP/1.1\r\n")
    assert post.endswith(b'{"cmd":"x"}')


async def test_basic_credentials_are_sent_with_each_request_and_redacted(server):
    async with http.HttpClient(server.url, auth=("monitor", SECRET)) as client:
        server.responses = [response(), response()]
        await client.get("/")
        await client.get("/")
        token = base64.b64encode(f"monitor:{SECRET}".encode())
        assert all(b"\r\nAuthorization: Basic " + token in request for request in server.requests)
        assert client.redacted_excerpt(f"you sent Basic {token.decode()}") == "'you sent Basic ***'"
        assert client.redacted_excerpt(f"you sent {SECRET}") == "'you sent ***'"
        assert SECRET not in repr(client)


@pytest.mark.parametrize("form", encoded_forms(SECRET))
async def test_a_secret_is_redacted_in_every_encoding(server, client, form):
    assert client.redacted_excerpt(f"bad {form}!") == "'bad ***!'"
    assert client.redacted_excerpt(f"bad {form}!".encode()) == "'bad ***!'"
    assert client.redacted_excerpt({"key": "x"}) == "\"{'key': 'x'}\""


async def test_an_excerpt_is_one_short_printable_line(client):
    text = client.redacted_excerpt("a\nb\x00\u2028" + "c" * 500)
    assert text.startswith(r"'a\nb\x00\u2028cccc")
    assert (len(text), text[-1]) == (121, "…")
    assert len(client.redacted_excerpt("d" * 5000, 2000)) == 2001


async def test_a_large_response_is_discarded_while_it_is_read(server, client):
    server.responses = [
        response(200, b"x" * 1000),
        response(200, b"x" * 1001),
        b"HTTP/1.1 200 X\r\n\r\n" + b"y" * 10**6,
    ]
    assert len((await client.get("/"))[1]) == 1000
    for _ in range(2):
        text = await failure(client.get("/"), errors.InvalidResponseError)
        assert text == f"{client.address}: response of more than 1000 bytes discarded"


async def test_a_compressed_response_is_not_inflated(server, client):
    server.responses = [response(200, gzip.compress(b"0" * 10**5), "content-encoding: gzip")]
    _, body = await client.get("/")
    assert len(body) < 1000
    assert http.decode_json(body) is msgspec.UNSET


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc"])
async def test_an_incomplete_response_is_a_timeout(server, sent):
    server.responses, server.hangs = [sent], True
    async with http.HttpClient(server.url, timeout=0.2) as client:
        text = await failure(client.get("/"), errors.ResponseTimeoutError)
    assert text.endswith("no complete response within 0.2 s")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc", b"SSH-2.0-OpenSSH\r\n\r\n"])
async def test_a_closed_connection(server, client, sent):
    server.responses = [sent]
    assert "request failed" in await failure(client.get("/"), errors.TransportError)


async def test_only_the_beginning_of_an_error_is_read(server):
    server.responses = [response(500, b"e" * 10**6)]
    async with http.HttpClient(server.url, (SECRET,), timeout=5.0) as client:
        answer, body = await client.get("/")
    assert (answer.status_code, len(body)) == (500, 65_536)


async def test_a_redirect_keeps_method_and_body(server, client):
    server.responses = [response(302, b"", "location: /there?x=1"), response(200, b"done")]
    assert (await client.post("/here", data={"f_password": "x"}))[1] == b"done"
    assert server.requests[1].startswith(b"POST /there?x=1 ")
    assert server.requests[1].endswith(b"\r\n\r\nf_password=x")


async def test_redirects_end(server, client):
    server.responses = [response(302, b"", f"location: /{SECRET.replace('ö', 'o')}") for _ in range(6)]
    assert "more than 5 redirects" in await failure(client.post("/", json={}), errors.InvalidResponseError)
    assert len(server.requests) == 6


@pytest.mark.parametrize("location", ["http://192.0.2.1/", "//192.0.2.1/", "ftp://127.0.0.1/", "http://u:p@127.0.0.1/"])
async def test_a_redirect_to_another_host_is_not_followed(server, client, location):
    server.responses = [response(307, b"", f"location: {location}")]
    assert "a redirect away from the switch is not followed" in await failure(
        client.post("/", json={}), errors.InvalidResponseError
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_another_port_of_the_same_host_is_sent_no_password(server, scheme):
    async with ScriptedServer() as other, http.HttpClient(server.url, auth=("reader", SECRET), timeout=5.0) as client:
        location = other.url.replace("http", scheme)
        server.responses, other.responses = [response(307, b"", f"location: {location}/")], [response()]
        assert "a redirect away from the switch is not followed" in await failure(
            client.post("/", data={"password": SECRET}), errors.InvalidResponseError
        )
    assert len(server.requests) == 1
    assert not other.requests


@pytest.mark.parametrize(
    ("base", "location", "is_followed"),
    [
        ("http://a:80/", "http://a/x", True),
        ("http://a/", "https://a:443/x", True),
        ("http://a:8080/", "https://a/x", True),
        ("http://a/", "https://a:8443/x", False),
        ("http://a:8443/", "https://a:8443/x", False),
        ("https://a/", "https://a:443/x", True),
        ("https://a/", "https://a:4443/x", False),
        ("https://a:4443/", "https://a/x", False),
        ("https://a/", "http://a:443/x", False),
        ("https://a/", "http://a/x", False),
        ("https://a/", "https://a.example/x", False),
        ("https://a/", "https://a@b/x", False),
        ("https://[::1]/", "https://[::ffff:127.0.0.1]/x", False),
    ],
)
async def test_the_server_of_a_redirect_is_scheme_host_and_port(base, location, is_followed):
    async with http.HttpClient(base) as client:
        if is_followed:
            assert client._redirect_target(client.base, location).path == "/x"
        else:
            with pytest.raises(errors.InvalidResponseError, match="away from the switch"):
                client._redirect_target(client.base, location)


async def test_a_redirect_may_go_from_plain_to_tls_but_not_back(client):
    assert str(client._redirect_target(client.base, "https://127.0.0.1/x")) == "https://127.0.0.1/x"
    with pytest.raises(errors.InvalidResponseError, match="away from the switch"):
        client._redirect_target(client.base.copy_with(scheme="https"), "http://127.0.0.1/x")


async def test_get_follows_no_redirect(server, client):
    server.responses = [response(301, b"", "location: /there")]
    redirect, _ = await client.get("/here")
    assert (redirect.status_code, len(server.requests)) == (301, 1)


async def test_cookies_are_stored(server, client):
    assert not client.has_cookie()
    server.responses = [response(200, b"{}", "set-cookie: session=abc; Path=/"), response()]
    await client.get("/")
    assert client.has_cookie("session")
    assert client.has_cookie()
    assert not client.has_cookie("token")
    await client.get("/")
    assert b"\r\nCookie: session=abc\r\n" in server.requests[1]


async def test_connection_refused():
    async with ScriptedServer() as stopped:
        url = stopped.url
    async with http.HttpClient(url) as client:
        assert "not connected" in await failure(client.get("/"), errors.NotConnectedError)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff", b"[" * 100000, b'{"a":1}x'])
def test_decode_json_of_invalid_json(body):
    assert http.decode_json(body) is msgspec.UNSET
    assert http.decode_json_object(body) is None


async def test_decode_json():
    assert http.decode_json(b"null") is None
    assert http.decode_json_object(b"[1]") is None
    assert http.decode_json_object(b'{"a": 18446744073709551615}') == {"a": 2**64 - 1}
    long = b'{"a": "' + b"x" * 2**19 + b'"}'
    assert await http.decode_json_async(long) == http.decode_json(long)
    assert await http.decode_json_async(b"<") is msgspec.UNSET


@pytest.mark.parametrize(
    ("address", "port", "base"),
    [
        ("leaf-01", None, "https://leaf-01"),
        ("leaf-01", 8765, "https://leaf-01:8765"),
        ("leaf-01:9000", 8765, "https://leaf-01:9000"),
        ("http://leaf-01", 8765, "http://leaf-01:8765"),
        ("2001:db8::1", 8765, "https://[2001:db8::1]:8765"),
    ],
)
def test_the_default_port_of_an_api(address, port, base):
    assert str(http.base_url(address, port)) == base


def test_backoff_doubles_up_to_an_hour_and_ends_with_success():
    clock = Clock()
    backoff = LoginBackoff("leaf", clock)
    for seconds in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        backoff.begin()
        backoff.failed("leaf: refused")
        clock.now += seconds - 1
        with pytest.raises(
            errors.LoginBackoffError, match=r"leaf: log-in suspended for another 1 s .*\(last error: refused\)"
        ):
            backoff.begin()
        clock.now += 1
    backoff.begin()
    backoff.succeeded()
    backoff.begin()
    clock.now += 60
    backoff.begin()


def test_an_unsent_password_does_not_count():
    """Neither the first time, nor after failures: an unreachable switch is tried again at once."""
    clock = Clock()
    backoff = LoginBackoff("leaf", clock)
    backoff.begin()
    backoff.not_sent()
    backoff.begin()
    backoff.failed("refused")
    clock.now += 60
    for _ in range(3):
        backoff.begin()
        backoff.not_sent()
    backoff.begin()
    with pytest.raises(errors.LoginBackoffError, match="after 2 failed"):
        backoff.begin()
