"""The client of SONiC's databases against servers whose replies are not those of a redis (RESP2 protocol spec)."""

import asyncio
import contextlib
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.switch_api.errors import (
    InvalidResponseError,
    LoginError,
    NotConnectedError,
    RefusedError,
    ResponseTimeoutError,
    SwitchApiError,
)
from exporter.switch_api.sonic_db.client import COUNTERS_DB, HashFields, SonicDbClient
from exporter.switch_api.sonic_db.resp import MAX_BYTES, ErrorReply, ReplyParser

REQUEST = [HashFields(b"COUNTERS:oid:0x1", ("a", "b"))]
FOREVER = 1 << 40
SELECTED = b"+OK\r\n"


class HostileRedis:
    """Replies to SELECT, and then to each command with the next script: bytes, or an iterator of them.

    Attributes:
        sent: Bytes that were sent, those of replies to SELECT included.
        connections: Number of connections.
        commands: What was received.
    """

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.sent = self.connections = 0
        self.commands = b""
        self._serving = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await asyncio.wait(self._serving, timeout=10)

    async def _serve(self, reader, writer):
        self._serving.add(asyncio.current_task())
        self.connections += 1
        self.writer = writer
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                self.commands += data
                script = SELECTED if b"SELECT" in data else self.scripts.pop(0) if self.scripts else b""
                for part in [script] if isinstance(script, bytes) else script:
                    writer.write(part)
                    self.sent += len(part)
                    await writer.drain()
                    if not isinstance(script, bytes):
                        await asyncio.sleep(0)
        writer.close()


@contextlib.asynccontextmanager
async def client_of(*scripts, seconds=20.0):
    async with HostileRedis(*scripts) as server:
        client = SonicDbClient(server.address, timeout=seconds)
        try:
            yield client, server
        finally:
            client.close()


def endless(beginning, part):
    yield beginning
    for _ in range(FOREVER // len(part)):
        yield part


@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param(endless(b"*2\r\n$5000000000\r\n", bytes(65536)), "a text of 5000000000 bytes", id="text"),
        pytest.param(endless(b"*1000000000\r\n", b"$1\r\nx\r\n" * 9000), "an array of 1000000000", id="array"),
        pytest.param(endless(b"+", b"x" * 65536), "a line of more than", id="line"),
        pytest.param(endless(b"", b"*1\r\n" * 16384), "an array within an array", id="nested"),
        pytest.param(b"*100000\r\n" + b"*1\r\n" * 100_000, "an array within an array", id="deeply nested"),
        pytest.param(b"*2\r\n:" + b"9" * 4000 + b"\r\n", "instead of a number", id="digits"),
        pytest.param(b"*2\r\n$" + "\u0663".encode() + b"\r\nabc\r\n", "instead of a number", id="other digits"),
        pytest.param(b"*-5\r\n", "an array of -5", id="negative array"),
        pytest.param(b"*2\r\n$-7\r\n", "a text of -7", id="negative text"),
        pytest.param(b"*2\r\n$1\r\nxyz\r\n", "does not end there", id="text longer than declared"),
        pytest.param(b"*2\r\n$1\r\nx\r\n$-1\r\n+more\r\n", "after the last reply", id="more replies than commands"),
        pytest.param(b"*3\r\n$1\r\nx\r\n$-1\r\n$-1\r\n", "3 items instead of 2 values", id="more values"),
        pytest.param(b"*1\r\n$1\r\nx\r\n", "1 items instead of 2 values", id="fewer values"),
        pytest.param(b"*2\r\n:5\r\n$1\r\nx\r\n", "instead of 2 values", id="a number as a value"),
        pytest.param(b"*2\r\n-ERR\r\n$1\r\nx\r\n", "instead of 2 values", id="an error as a value"),
        pytest.param(b"*-1\r\n", "None instead of 2 values", id="no array"),
        pytest.param(b":7\r\n", "7 instead of 2 values", id="a number"),
        pytest.param(b"+OK\r\n", "instead of 2 values", id="a status"),
        pytest.param(b"*0\r\n", "0 items instead of 2 values", id="an empty array"),
    ],
)
async def test_an_invalid_reply_is_an_error_that_costs_little(script, error):
    async with client_of(script) as (client, server):
        with pytest.raises(InvalidResponseError, match=error):
            await client.get_fields(COUNTERS_DB, REQUEST)
        assert server.sent < MAX_BYTES / 2  # what fits into the buffers of the sockets


@pytest.mark.parametrize(
    ("scripts", "error"),
    [
        ([b"$1\r\n5\r\n"], "HLEN K: .*instead of a number"),
        ([b"*-1\r\n"], "HLEN K: None instead of a number"),
        ([b":2\r\n", b":2\r\n"], "HGETALL K: 2 instead of names and values"),
        ([b":2\r\n", b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"], "HGETALL K: 3 items instead of names and values"),
        ([b":2\r\n", b"*2\r\n$1\r\na\r\n:1\r\n"], "HGETALL K: names or values that are no texts"),
        ([b":2\r\n", b"*2\r\n$1\r\na\r\n$-1\r\n"], "HGETALL K: names or values that are no texts"),
    ],
)
async def test_an_invalid_hash_is_an_error(scripts, error):
    async with client_of(*scripts) as (client, _):
        with pytest.raises(InvalidResponseError, match=error):
            await client.get_hash(COUNTERS_DB, "K", 10)


async def test_a_hash_that_is_larger_than_its_length_is_not_returned():
    async with client_of(b":1\r\n", b"*6\r\n" + b"$1\r\na\r\n" * 6) as (client, _):
        assert await client.get_hash(COUNTERS_DB, "K", 2) == 3


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"-NOAUTH Authentication required.", LoginError),
        (b"-LOADING Redis is loading the dataset in memory", RefusedError),
        (b"-ERR unknown command 'HMGET'", RefusedError),
        (b"HTTP/1.1 400 Bad Request", NotConnectedError),
        (b"SSH-2.0-OpenSSH_9.2", NotConnectedError),
    ],
)
async def test_errors_of_redis_and_other_servers(text, kind):
    async with client_of(text + b"\r\n") as (client, _):
        with pytest.raises(kind):
            await client.get_fields(COUNTERS_DB, REQUEST)


async def test_an_error_text_is_one_printable_line():
    async with client_of(b"-ERR \x1b[31m\xff\x00" + b"x" * 3000 + b"\r\n") as (client, _):
        with pytest.raises(RefusedError) as caught:
            await client.get_fields(COUNTERS_DB, REQUEST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


async def test_bytes_that_drip_do_not_extend_the_timeout():
    """Each read had the time limit of its own, so that a byte a second kept a poll for ever."""

    def drip():
        yield b"*2\r\n$60000\r\n"
        for _ in count():
            yield b"x"

    async with client_of(drip(), seconds=0.3) as (client, _):
        with pytest.raises(ResponseTimeoutError, match=r"within 0\.3 s"):
            await asyncio.wait_for(client.get_fields(COUNTERS_DB, REQUEST), 10)


async def test_a_reply_that_was_not_requested_is_not_taken_for_the_next_one():
    async with client_of(b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n", b"*2\r\n$1\r\n3\r\n$1\r\n4\r\n") as (client, server):
        assert await client.get_fields(COUNTERS_DB, REQUEST) == [[b"1", b"2"]]
        server.writer.write(b"*2\r\n$1\r\n8\r\n$1\r\n9\r\n")
        await server.writer.drain()
        await asyncio.sleep(0.05)
        assert await client.get_fields(COUNTERS_DB, REQUEST) == [[b"3", b"4"]]
        assert server.connections == 2


async def test_a_failed_round_trip_begins_with_a_new_connection():
    async with client_of(b"*2\r\n:5\r\n$1\r\nx\r\n*2", b"*2\r\n$1\r\n3\r\n$-1\r\n") as (client, server):
        with pytest.raises(SwitchApiError):
            await client.get_fields(COUNTERS_DB, REQUEST)
        assert await client.get_fields(COUNTERS_DB, REQUEST) == [[b"3", None]]
        assert server.connections == 2


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**64 - 1),
            st.binary(max_size=40),
            st.lists(st.one_of(st.none(), st.binary(max_size=10)), max_size=5),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 7),
)
def test_replies_in_any_pieces(replies, size):
    def encode(one):
        if isinstance(one, list):
            return b"*%d\r\n" % len(one) + b"".join(map(encode, one))
        if one is None:
            return b"$-1\r\n"
        return b":%d\r\n" % one if isinstance(one, int) else b"$%d\r\n%b\r\n" % (len(one), one)

    data = b"".join(map(encode, replies))
    parser = ReplyParser(len(replies))
    done = [parser.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert done == [False] * (len(done) - 1) + [True]
    assert parser.replies == replies


def test_errors_and_statuses():
    parser = ReplyParser(3)
    assert parser.feed(b"-ERR no\r\n+OK\r\n*1\r\n-ERR in it\r\n")
    assert parser.replies == [ErrorReply("ERR no"), b"OK", [ErrorReply("ERR in it")]]
