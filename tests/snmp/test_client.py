"""The client against the simulated agent over loopback, healthy and with each of its faults."""

import asyncio
import socket

import pytest

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.simulator.snmp_faults import SnmpFaults
from exporter.snmp import ber
from exporter.snmp.ber import Typed, encode_oid, encode_value
from exporter.snmp.client import SnmpClient, parse_address
from exporter.snmp.errors import SnmpTimeout, SnmpUnreachable
from exporter.snmp.exchange import Reason
from exporter.snmp.message import (
    RESPONSE,
    V1,
    V2C,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
)
from tests.helpers.snmp_agents import remove_below

IFX_TABLE = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
NAME, IN, OUT, SPEED = ((*IFX_TABLE, number) for number in (1, 6, 10, 15))
COLUMNS = [NAME, IN, OUT, SPEED]
UP_TIME = (1, 3, 6, 1, 2, 1, 1, 3, 0)
ROWS = {UP_TIME: Typed(ber.TIME_TICKS, 4711)}
for _port in range(1, 65):
    ROWS[*NAME, _port] = Typed(ber.OCTET_STRING, b"Eth1/%d" % _port)
    ROWS[*IN, _port] = Typed(ber.COUNTER64, 2**64 - _port)
    ROWS[*OUT, _port] = Typed(ber.COUNTER64, 2**53 + _port)
    ROWS[*SPEED, _port] = Typed(ber.GAUGE32, 400000)
SILENCE = {"timeout": 0.05, "retries": 1}  # for tests in which the agent must not respond


def expected(column):
    return {oid[len(column) :]: value.value for oid, value in ROWS.items() if oid[: len(column)] == column}


def rows(result):
    return {oid: column.rows for oid, column in result.columns.items()}


ALL = {column: expected(column) for column in COLUMNS}


@pytest.fixture
async def agent():
    async with SnmpAgent(ROWS) as running:
        running.address = "{}:{}".format(*await running.start())
        yield running


@pytest.fixture
async def client(agent):
    async with SnmpClient(agent.address, "public", timeout=20, deadline=60) as ready:
        yield ready


async def test_walk_and_get(agent, client):
    result = await client.walk(COLUMNS)
    assert rows(result) == ALL
    assert result.problems == []
    got = await client.get([UP_TIME, (*IN, 1), (*IN, 999)])
    assert got.values == {UP_TIME: Typed(ber.TIME_TICKS, 4711), (*IN, 1): Typed(ber.COUNTER64, 2**64 - 1)}
    assert got.problems == []
    assert agent.requests == client.counters.requests == client.counters.responses
    assert (
        client.counters.retries
        == client.counters.unmatched
        == client.counters.malformed
        == client.counters.mismatched
        == 0
    )


async def test_values_and_rows_change_while_the_agent_runs(agent, client):
    agent.set((*IN, 1), Typed(ber.COUNTER64, 1))
    agent.set_many({(*IN, 2): Typed(ber.COUNTER64, 2), (*IN, 70): Typed(ber.COUNTER64, 70)})
    agent.remove((*IN, 3))
    remove_below(agent, OUT)
    result = await client.walk([IN, OUT])
    wanted = expected(IN) | {(1,): 1, (2,): 2, (70,): 70}
    del wanted[3,]
    assert rows(result) == {IN: wanted, OUT: {}}
    with pytest.raises(ValueError):
        agent.set_many({(*IN, 1): Typed(ber.COUNTER64, 9), (*IN, 2): Typed(ber.COUNTER64, -1)})
    assert (await client.get([(*IN, 1)])).values[*IN, 1].value == 1


async def test_calls_at_the_same_time_wait_for_each_other(agent, client):
    agent.faults.delay = 0.01
    walked, got = await asyncio.gather(client.walk([NAME]), client.get([UP_TIME]))
    assert rows(walked) == {NAME: ALL[NAME]}
    assert got.values[UP_TIME].value == 4711
    assert client.counters.unmatched == 0


async def test_an_unresponsive_agent_does_not_delay_another(agent):
    asked = deafen(agent)
    async with SnmpAgent(ROWS) as healthy:
        address = "{}:{}".format(*await healthy.start())
        async with SnmpClient(agent.address, "public", timeout=100) as deaf, SnmpClient(address, "public") as other:
            silent = asyncio.create_task(deaf.walk(COLUMNS))
            await asked.wait()
            assert rows(await other.walk(COLUMNS)) == ALL
            assert not silent.done()
            silent.cancel()


async def test_an_unresponsive_agent_times_out(agent):
    agent.faults.silent = True
    async with SnmpClient(agent.address, "public", **SILENCE) as client:
        with pytest.raises(SnmpTimeout) as caught:
            await client.walk(COLUMNS)
    text = str(caught.value)
    assert agent.address in text
    assert "GETBULK 1.3.6.1.2.1.31.1.1.1.1" in text
    assert "public" not in text
    assert agent.requests == 4  # two tries, then one each for the halves: three questions in a row


async def test_the_deadline_ends_a_poll(agent):
    agent.faults.silent = True
    async with SnmpClient(agent.address, "public", timeout=50, deadline=0.05) as client:
        with pytest.raises(SnmpTimeout, match=r"the 0.05 s for the poll passed before a response to GETBULK"):
            await client.walk(COLUMNS)


async def test_a_target_that_stops_responding_loses_only_the_missing_columns(agent):
    agent.faults.silent_on = {SPEED}
    async with SnmpClient(agent.address, "public", **SILENCE) as client:
        result = await client.walk([NAME, SPEED])
    assert result.columns[NAME].rows == ALL[NAME]
    assert [(problem.oid, problem.reason) for problem in result.problems] == [(SPEED, Reason.TIMEOUT)]


async def test_a_closed_port_is_unreachable():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    async with SnmpClient(address, "public") as client:
        with pytest.raises(SnmpUnreachable, match="the port is closed, or there is no route to the host"):
            await client.walk(COLUMNS)


async def test_a_name_that_does_not_resolve(monkeypatch):
    async def refuse(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
    async with SnmpClient("leaf-01.invalid", "public") as client:
        with pytest.raises(SnmpUnreachable, match=r"leaf-01.invalid: .*Name or service not known"):
            await client.get([UP_TIME])


async def test_a_name_that_is_never_resolved(monkeypatch):
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *_, **__: asyncio.sleep(60))
    async with SnmpClient("leaf-01.invalid", "public", deadline=0.01) as client:
        with pytest.raises(SnmpTimeout, match=r"not resolved in 0.01 s"):
            await client.get([UP_TIME])


async def test_an_agent_that_restarts_is_polled_again(agent, client):
    await client.get([UP_TIME])
    host, port = agent.address.split(":")
    agent.close()
    await asyncio.sleep(0)  # the loop closes the socket at its next turn
    with pytest.raises(SnmpUnreachable):
        await client.get([UP_TIME])
    await agent.start(host, int(port))
    assert (await client.get([UP_TIME])).values[UP_TIME].value == 4711


def deafen(agent):
    """Stop responses until `del agent.answer`; return an event that the first request sets."""
    asked = asyncio.Event()

    def answer(_):
        asked.set()
        return []

    agent.answer = answer
    return asked


async def test_close_fails_a_pending_call(agent):
    asked = deafen(agent)
    async with SnmpClient(agent.address, "public", timeout=50) as client:
        waiting = asyncio.create_task(client.walk(COLUMNS))
        await asked.wait()
        client.close()
        with pytest.raises(SnmpUnreachable, match="socket was closed"):
            await waiting


async def test_a_cancelled_call_leaves_the_client_usable(agent, client):
    asked = deafen(agent)
    waiting = asyncio.create_task(client.walk(COLUMNS))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    del agent.answer
    assert rows(await client.walk(COLUMNS)) == ALL


@pytest.mark.parametrize(
    ("faults", "counted"),
    [
        (SnmpFaults(wrong_id_first=True), "unmatched"),
        (SnmpFaults(junk_first=True), "malformed"),
        (SnmpFaults(delay=0.001), None),
        (SnmpFaults(too_big_above=7), None),
        (SnmpFaults(truncate={(1, 3, 9): 1}), None),
    ],
)
async def test_faults_without_effect_on_the_result(agent, client, faults, counted):
    agent.faults = faults
    result = await client.walk(COLUMNS)
    assert rows(result) == ALL
    assert result.problems == []
    assert client.counters.retries == 0
    for name in ("unmatched", "malformed", "mismatched"):
        assert getattr(client.counters, name) == (client.counters.requests if name == counted else 0)


async def test_lost_datagrams_are_retried(agent):
    agent.faults.drop_every = 3
    async with SnmpClient(agent.address, "public", timeout=0.05, retries=3, deadline=60) as client:
        result = await client.walk(COLUMNS)
    assert rows(result) == ALL
    assert result.problems == []
    assert client.counters.retries > 0


async def test_a_loop_and_an_error_keep_the_rows_so_far(agent, client):
    agent.faults.loop.add(SPEED)
    agent.faults.gen_err.add(IN)
    agent.set((*IFX_TABLE, 2, 1), Typed(ber.COUNTER32, 0))  # so that NAME does not end where IN begins
    result = await client.walk(COLUMNS)
    assert rows(result) == ALL | {IN: {}}
    assert {problem.oid: problem.reason for problem in result.problems} == {
        IN: Reason.ERROR_STATUS,
        SPEED: Reason.NOT_INCREASING,
    }


async def test_a_wrong_community_times_out(agent):
    async with SnmpClient(agent.address, "secret", **SILENCE) as client:
        with pytest.raises(SnmpTimeout, match="a wrong community is a possible cause too") as caught:
            await client.get([UP_TIME])
    assert "secret" not in str(caught.value)


class Scripted(asyncio.DatagramProtocol):
    """A peer that sends what a function makes of each request and its number."""

    def __init__(self, script):
        self.script = script
        self.ids = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.ids.append(decode_message(data).pdu.request_id)
        for reply in self.script(self.ids):
            self.transport.sendto(reply, addr)


def reply(request_id, *, community=b"public", version=V2C, kind=RESPONSE, ticks=1):
    varbind = encode_varbind(encode_oid(UP_TIME), encode_value(ber.TIME_TICKS, ticks))
    return encode_message(version, community, encode_pdu(kind, request_id, 0, 0, [varbind]))


async def ask(script, **options):
    transport, peer = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Scripted(script), local_addr=("127.0.0.1", 0)
    )
    address = "{}:{}".format(*transport.get_extra_info("sockname"))
    try:
        async with SnmpClient(address, "public", **options) as client:
            return await client.get([UP_TIME]), client.counters, peer.ids
    finally:
        transport.close()


async def test_a_late_response_to_the_first_try_is_accepted():
    result, counters, ids = await ask(lambda ids: [reply(ids[0])] if len(ids) == 2 else [], timeout=0.05)
    assert result.values[UP_TIME].value == 1
    assert counters.retries == 1
    assert counters.unmatched == 0
    assert len(set(ids)) == 2


async def test_a_duplicate_response_is_accepted_once():
    result, counters, _ = await ask(lambda ids: [reply(ids[0]), reply(ids[0], ticks=2)], timeout=20)
    assert result.values[UP_TIME].value == 1
    assert counters.responses == 1


async def test_other_datagrams_are_counted_and_ignored():
    def script(ids):
        (asked,) = ids
        return [
            reply(asked, community=b"other"),
            reply(asked, version=V1),
            reply(asked, kind=0xA0),
            reply(asked ^ 1),
            b"\x30",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            reply(asked, ticks=5),
        ]

    result, counters, _ = await ask(script, timeout=20)
    assert result.values[UP_TIME].value == 5
    assert (counters.mismatched, counters.malformed, counters.unmatched) == (2, 3, 1)


async def test_a_timeout_lists_the_rejected_datagrams():
    with pytest.raises(SnmpTimeout, match="datagrams rejected so far: 2 malformed"):
        await ask(lambda _: [b"SSH-2.0"], **SILENCE)


async def test_request_ids_start_at_random():
    firsts = {(await ask(lambda ids: [reply(ids[0])], timeout=20))[2][0] for _ in range(4)}
    assert len(firsts) > 1


async def test_over_ipv6():
    async with SnmpAgent(ROWS) as agent:
        try:
            host, port = await agent.start("::1")
        except OSError:
            pytest.skip("needs IPv6 on loopback")
        async with SnmpClient(f"[{host}]:{port}", "public", timeout=20) as client:
            assert rows(await client.walk(COLUMNS)) == ALL


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("192.0.2.1", ("192.0.2.1", 161)),
        ("192.0.2.1:1161", ("192.0.2.1", 1161)),
        ("leaf-01.example:161", ("leaf-01.example", 161)),
        ("2001:db8::1", ("2001:db8::1", 161)),
        ("[2001:db8::1]", ("2001:db8::1", 161)),
        ("[2001:db8::1]:1161", ("2001:db8::1", 1161)),
        ("fe80::1%eth0", ("fe80::1%eth0", 161)),
        ("leaf-01.example.:161", ("leaf-01.example.", 161)),
        (f"{'x' * 63}.example", (f"{'x' * 63}.example", 161)),
    ],
)
def test_addresses(text, parsed):
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text", ["", ":161", "leaf:", "leaf:0", "leaf:65536", "leaf:snmp", "[::1", "[::1]161", "[]:161", "leaf:-1"]
)
def test_invalid_addresses_are_rejected(text):
    with pytest.raises(ValueError, match="address"):
        SnmpClient(text, "public")


@pytest.mark.parametrize("host", ["leaf..example", ".example", ".", "x" * 64, "leaf\udcff"])
def test_a_host_that_cannot_be_a_name_is_rejected(host):
    with pytest.raises(ValueError, match="is not a host name; each part between dots has 1 to 63 characters"):
        SnmpClient(f"{host}:161", "public")


def test_the_simulated_agent_ignores_other_datagrams():
    agent = SnmpAgent(ROWS)
    assert agent.answer(b"not SNMP") == []
    assert agent.answer(reply(1)) == []
    assert agent.answer(reply(1, kind=0xA0, community=b"private")) == []
    assert len(agent.answer(reply(1, kind=0xA0))) == 1
