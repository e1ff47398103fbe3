"""HTTP to a switch, against a server that answers whatever a test tells it to: bounds, redirects, secrets, rests."""

import asyncio
import base64
import gzip
import json
import traceback

import msgspec
import pytest

from exporter.switch_api import http

SECRET = 'p&ss "wörd"/1'


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Server:
    """Answers each request with the bytes that come next, and keeps what it was sent."""

    def __init__(self):
        self.answers = []
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
            writer.write(self.answers.pop(0))
            await writer.drain()
            if self.hangs:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(status=200, body=b"{}", *headers):
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
async def server():
    async with Server() as running:
        yield running


@pytest.fixture
async def client(server):
    async with http.Http(server.url, (SECRET,), timeout=5.0, max_reply=1000) as made:
        yield made


async def failure(asked, kind):
    """Give the error, after a look that nothing of it tells the secret."""
    with pytest.raises(kind) as caught:
        await asked
    text = "".join(traceback.format_exception(caught.value))
    assert not any(form in text for form in forms(SECRET))
    return str(caught.value)


def forms(secret):
    return [secret, json.dumps(secret)[1:-1], "p%26ss+%22w%C3%B6rd%22%2F1", "p%26ss%20%22w%C3%B6rd%22%2F1"]


async def test_what_is_sent(server, client):
    server.answers = [answer(), answer()]
    assert (await client.get("/a?b=c", headers={"X-One": "1"}))[1] == b"{}"
    await client.post("/d", json={"cmd": "x"})
    get, post = server.requests
    assert get.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"\r\nX-One: 1\r\n" in get
    assert b"\r\nAccept-Encoding: identity\r\n" in get
    assert post.startswith(b"POST /d HTTP/1.1\r\n")
    assert post.endswith(b'{"cmd":"x"}')


async def test_user_and_password_of_basic_go_with_each_request_and_show_up_nowhere(server):
    async with http.Http(server.url, auth=("monitor", SECRET)) as client:
        server.answers = [answer(), answer()]
        await client.get("/")
        await client.get("/")
        token = base64.b64encode(f"monitor:{SECRET}".encode())
        assert all(b"\r\nAuthorization: Basic " + token in request for request in server.requests)
        assert client.quoted(f"you sent Basic {token.decode()}") == "'you sent Basic ***'"
        assert client.quoted(f"you sent {SECRET}") == "'you sent ***'"
        assert SECRET not in repr(client)


@pytest.mark.parametrize("form", forms(SECRET))
async def test_a_secret_is_hidden_in_every_form(server, client, form):
    assert client.quoted(f"bad {form}!") == "'bad ***!'"
    assert client.quoted(f"bad {form}!".encode()) == "'bad ***!'"
    assert client.quoted({"said": "x"}) == "\"{'said': 'x'}\""


async def test_what_is_quoted_is_one_short_printable_line(client):
    quoted = client.quoted("a\nb\x00\u2028" + "c" * 500)
    assert quoted.startswith(r"'a\nb\x00\u2028cccc")
    assert (len(quoted), quoted[-1]) == (121, "…")
    assert len(client.quoted("d" * 5000, 2000)) == 2001


async def test_an_answer_too_large_is_dropped_while_it_comes(server, client):
    server.answers = [answer(200, b"x" * 1000), answer(200, b"x" * 1001), b"HTTP/1.1 200 X\r\n\r\n" + b"y" * 10**6]
    assert len((await client.get("/"))[1]) == 1000
    for _ in range(2):
        text = await failure(client.get("/"), http.ReplyError)
        assert text == f"{client.address}: an answer of more than 1000 bytes was dropped"


async def test_a_compressed_answer_is_not_inflated(server, client):
    server.answers = [answer(200, gzip.compress(b"0" * 10**5), "content-encoding: gzip")]
    _, body = await client.get("/")
    assert len(body) < 1000
    assert http.json_value(body) is msgspec.UNSET


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc"])
async def test_an_answer_that_does_not_end_is_a_timeout(server, sent):
    server.answers, server.hangs = [sent], True
    async with http.Http(server.url, timeout=0.2) as client:
        text = await failure(client.get("/"), http.AnswerTimeoutError)
    assert text.endswith("no complete answer within 0.2 s")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc", b"SSH-2.0-OpenSSH\r\n\r\n"])
async def test_a_connection_that_breaks(server, client, sent):
    server.answers = [sent]
    assert "the exchange failed" in await failure(client.get("/"), http.TransportError)


async def test_a_redirect_keeps_method_and_body(server, client):
    server.answers = [answer(302, b"", "location: /there?x=1"), answer(200, b"done")]
    assert (await client.post("/here", data={"f_password": "x"}))[1] == b"done"
    assert server.requests[1].startswith(b"POST /there?x=1 ")
    assert server.requests[1].endswith(b"\r\n\r\nf_password=x")


async def test_redirects_end(server, client):
    server.answers = [answer(302, b"", f"location: /{SECRET.replace('ö', 'o')}") for _ in range(6)]
    assert "more than 5 redirects" in await failure(client.post("/", json={}), http.ReplyError)
    assert len(server.requests) == 6


@pytest.mark.parametrize("location", ["http://192.0.2.1/", "//192.0.2.1/", "ftp://127.0.0.1/", "http://u:p@127.0.0.1/"])
async def test_a_redirect_elsewhere_gets_nothing(server, client, location):
    server.answers = [answer(307, b"", f"location: {location}")]
    assert "a redirect away from the switch" in await failure(client.post("/", json={}), http.ReplyError)
    assert len(server.requests) == 1


async def test_a_redirect_may_go_from_plain_to_tls_but_not_back(client):
    assert str(client._redirected(client.base, "https://127.0.0.1/x")) == "https://127.0.0.1/x"
    with pytest.raises(http.ReplyError, match="away from the switch"):
        client._redirected(client.base.copy_with(scheme="https"), "http://127.0.0.1/x")


async def test_get_follows_no_redirect(server, client):
    server.answers = [answer(301, b"", "location: /there")]
    response, _ = await client.get("/here")
    assert (response.status_code, len(server.requests)) == (301, 1)


async def test_cookies_are_kept_and_told(server, client):
    assert not client.has_cookie()
    server.answers = [answer(200, b"{}", "set-cookie: session=abc; Path=/"), answer()]
    await client.get("/")
    assert client.has_cookie("session")
    assert client.has_cookie()
    assert not client.has_cookie("token")
    await client.get("/")
    assert b"\r\nCookie: session=abc\r\n" in server.requests[1]


async def test_nobody_listens():
    async with Server() as gone:
        url = gone.url
    async with http.Http(url) as client:
        assert "not connected" in await failure(client.get("/"), http.NotConnectedError)


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff", b"[" * 100000, b'{"a":1}x'])
def test_what_is_no_json(body):
    assert http.json_value(body) is msgspec.UNSET
    assert http.json_object(body) is None


async def test_what_is_json():
    assert http.json_value(b"null") is None
    assert http.json_object(b"[1]") is None
    assert http.json_object(b'{"a": 18446744073709551615}') == {"a": 2**64 - 1}
    long = b'{"a": "' + b"x" * 2**19 + b'"}'
    assert await http.decoded(long) == http.json_value(long)
    assert await http.decoded(b"<") is msgspec.UNSET


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
def test_the_port_of_an_api_is_that_where_the_address_names_none(address, port, base):
    assert str(http.base_url(address, port)) == base


def test_rests_double_up_to_an_hour_and_end_with_success():
    clock = Clock()
    logins = http.Logins("leaf", clock)
    for rest in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        logins.begin()
        logins.failed("leaf: refused")
        clock.now += rest - 1
        with pytest.raises(http.BackoffError, match=r"leaf: no log-in for another 1 s .*\(the last: refused\)"):
            logins.begin()
        clock.now += 1
    logins.begin()
    logins.succeeded()
    logins.begin()
    clock.now += 60
    logins.begin()


def test_what_was_not_sent_does_not_count():
    """Neither the first time, nor after failures: a switch that is away is asked again at once."""
    clock = Clock()
    logins = http.Logins("leaf", clock)
    logins.begin()
    logins.not_sent()
    logins.begin()
    logins.failed("refused")
    clock.now += 60
    for _ in range(3):
        logins.begin()
        logins.not_sent()
    logins.begin()
    with pytest.raises(http.BackoffError, match="after 2 failed"):
        logins.begin()
