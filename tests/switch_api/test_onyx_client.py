"""The client of Onyx against a simulated switch: sessions, faults, secrets, TLS."""

import asyncio
import hashlib
import logging
import ssl
import traceback

import pytest
import trustme

from exporter.simulator.onyx import (
    OnyxPort,
    OnyxSimulator,
    OnyxSwitch,
    OnyxTraffic,
)
from exporter.switch_api import errors
from exporter.switch_api.onyx import parser
from exporter.switch_api.onyx.client import OnyxClient
from exporter.switch_api.tls import tls_context
from tests.helpers.clock import Clock

COUNTERS = "show interfaces ethernet counters"
DESCRIPTION = "show interfaces ethernet description"
CONGESTION = "show interfaces ethernet congestion-control"
PASSWORD = "tr0ub4dor-and-3"


@pytest.fixture
def switch():
    return OnyxSwitch(
        ports={
            "Eth1/1": OnyxPort(
                receive=OnyxTraffic(packets=10, bytes=2**60, error_packets=1, discard_packets=2, pause_packets=3),
                transmit=OnyxTraffic(packets=20, bytes=2000),
                ecn_marked_packets=7,
            ),
            "Eth1/2/1": OnyxPort(up=False, speed="25G", receive=OnyxTraffic(bytes=None), ecn_marked_packets=None),
        },
        password=PASSWORD,
    )


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def device(switch):
    async with OnyxSimulator(switch) as running:
        yield running


@pytest.fixture
async def client(device, clock):
    made = OnyxClient(device.url, "monitor", PASSWORD, clock=clock)
    yield made
    await made.close()


async def failure(client, command=COUNTERS, kind=errors.SwitchApiError):
    """Return the error of a command, after checking that its traceback does not contain the password."""
    with pytest.raises(kind) as caught:
        await client.show(command)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    return caught.value


async def test_all_tables(client, switch):
    counters = parser.parse_counters(await client.show(COUNTERS))
    assert counters.ports["Eth1/1"] == parser.OnyxCounters(
        receive_packets=10,
        receive_bytes=2**60,
        receive_errors=1,
        receive_discards=2,
        receive_pause_frames=3,
        transmit_packets=20,
        transmit_bytes=2000,
        transmit_errors=0,
        transmit_discards=0,
        transmit_pause_frames=0,
    )
    assert counters.ports["Eth1/2/1"].receive_bytes is None
    assert counters.ports["Eth1/2/1"].receive_packets == 0
    states = parser.parse_description(await client.show(DESCRIPTION)).ports
    assert states == {
        "Eth1/1": parser.OnyxPortState(up=True, speed=10**11),
        "Eth1/2/1": parser.OnyxPortState(up=False, speed=25 * 10**9),
    }
    marks = parser.parse_congestion_control(await client.show(CONGESTION)).ports
    assert marks == {"Eth1/1": parser.OnyxCongestion(7), "Eth1/2/1": parser.OnyxCongestion(None)}
    assert switch.logins == ["json"]
    assert switch.commands == [COUNTERS, DESCRIPTION, CONGESTION]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("shape", ["object", "list"])
async def test_all_reply_structures_are_parsed_alike(client, switch, shape, several):
    switch.counters_shape, switch.several_results = shape, several
    parsed = parser.parse_counters(await client.show(COUNTERS))
    assert parsed.ports["Eth1/1"].receive_bytes == 2**60
    assert parsed.problems == ()


@pytest.mark.parametrize("shape", ["object", "list"])
async def test_one_malformed_port_affects_nothing_else(client, switch, shape):
    switch.counters_shape, switch.faults.malformed = shape, "Eth1/2/1"
    parsed = parser.parse_counters(await client.show(COUNTERS))
    assert set(parsed.ports) == {"Eth1/1"}
    assert len(parsed.problems) == 1
    assert "malformed" in parsed.problems[0]
    assert set(parser.parse_congestion_control(await client.show(CONGESTION)).ports) == {"Eth1/1"}


async def test_form_login_is_used_again_where_json_login_is_unsupported(client, switch):
    switch.faults.no_json_login = True
    await client.show(COUNTERS)
    switch.faults.no_json_login = False
    switch.sessions.clear()
    await client.show(COUNTERS)
    assert switch.logins == ["form", "form"]


async def test_an_expired_session_is_renewed_once(client, switch):
    await client.show(COUNTERS)
    switch.sessions.clear()
    assert parser.parse_counters(await client.show(COUNTERS)).ports
    assert switch.logins == ["json", "json"]


async def test_a_session_that_expires_after_every_command_causes_no_backoff(client, switch):
    for _ in range(4):
        await client.show(COUNTERS)
        switch.sessions.clear()
    assert len(switch.logins) == 4


@pytest.mark.parametrize("form", [False, True])
async def test_a_wrong_password_backs_off_longer_each_time(client, switch, clock, form):
    switch.password, switch.faults.no_json_login = "another", form
    rejected = await failure(client, kind=errors.LoginError)
    assert ("check the password" if form else "log-in refused: 'Invalid password ***'") in str(rejected)
    assert client.address in str(rejected)
    for seconds in (60, 120, 240):
        clock.now += seconds - 1
        before = switch.requests
        backoff = await failure(client, kind=errors.LoginBackoffError)
        assert backoff.retry_after == 1
        assert "log-in suspended for another 1 s" in str(backoff)
        assert switch.requests == before
        clock.now += 1
        assert not isinstance(await failure(client, kind=errors.LoginError), errors.LoginBackoffError)
    assert len(switch.logins) == 4
    switch.password = PASSWORD
    clock.now += 480
    assert await client.show(COUNTERS)
    switch.sessions.clear()
    assert await client.show(COUNTERS), "backoff ends with the first success"


async def test_backoff_is_never_longer_than_an_hour(client, switch, clock):
    switch.password = "another"
    for _ in range(20):
        await failure(client)
        clock.now += 3600
    assert len(switch.logins) == 20


async def test_a_web_page_for_every_command_causes_one_login_then_backoff(client, switch):
    switch.faults.html = True
    error = await failure(client, kind=errors.LoginError)
    assert "a new session cannot run 'show interfaces ethernet counters': HTTP 200 with an HTML page" in str(error)
    assert "json-gw enable" in str(error)
    await failure(client, kind=errors.LoginBackoffError)
    assert switch.logins == ["json"]


async def test_a_refused_command_keeps_the_session(client, switch):
    error = await failure(client, "show interfaces ethernet counters everything", errors.CommandError)
    assert error.command == "show interfaces ethernet counters everything"
    assert "Unrecognized command" in error.message
    assert "Unrecognized command" in str(error)
    await client.show(COUNTERS)
    assert switch.logins == ["json"]


async def test_an_error_about_the_session_renews_it(client, switch):
    await client.show(COUNTERS)
    switch.faults.refuse = "Session has expired"
    await failure(client, kind=errors.LoginError)
    assert switch.logins == ["json", "json"]
    await failure(client, kind=errors.LoginBackoffError)


@pytest.mark.parametrize(
    "command",
    ["reload", "configure terminal", "show", "Show version", " show version", "show x\nreload", "show x; reload",
     "show x | include y", "show x\x00", "show " + "x" * 300, "no show version"],
)  # fmt: skip
async def test_other_commands_are_not_sent(client, switch, command):
    with pytest.raises(ValueError, match="is not sent: only plain commands that begin with 'show ' are"):
        await client.show(command)
    assert switch.requests == 0


async def test_redirects_keep_method_and_body(client, switch):
    switch.faults.redirect = ""
    assert parser.parse_counters(await client.show(COUNTERS)).ports
    assert switch.logins == ["json"]


async def test_a_redirect_to_another_host_is_sent_no_password(client, switch):
    async with OnyxSimulator(OnyxSwitch()) as other:
        switch.faults.redirect = other.url.replace("127.0.0.1", "localhost")
        error = await failure(client, kind=errors.InvalidResponseError)
        assert "a redirect away from the switch" in str(error)
        assert other.switch.requests == 0


async def test_a_slow_response_times_out_and_the_login_counts_as_failed(device, switch, clock):
    switch.faults.delay = 3600
    client = OnyxClient(device.url, "monitor", PASSWORD, timeout=0.05, clock=clock)
    error = await failure(client, kind=errors.ResponseTimeoutError)
    assert "no complete response within 0.05 s" in str(error)
    await failure(client, kind=errors.LoginBackoffError)
    await client.close()


async def test_a_cancelled_login_counts_as_failed(client, switch):
    switch.faults.delay = 3600
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.show(COUNTERS)
    await failure(client, kind=errors.LoginBackoffError)


async def test_a_large_response_is_discarded(device, switch, clock):
    client = OnyxClient(device.url, "monitor", PASSWORD, max_reply=2**20, clock=clock)
    switch.faults.huge = 2**22
    error = await failure(client, kind=errors.InvalidResponseError)
    assert "response of more than 1048576 bytes discarded" in str(error)
    switch.faults.huge = 2**19
    assert await client.show(COUNTERS)
    await client.close()


async def test_commands_go_one_at_a_time(client, switch):
    await asyncio.gather(*(client.show(COUNTERS) for _ in range(5)))
    assert switch.logins == ["json"]
    assert len(switch.commands) == 5


async def test_no_connection_is_no_failed_login(switch, clock):
    async with OnyxSimulator(switch) as stopped:
        url = stopped.url
    client = OnyxClient(url, "monitor", PASSWORD, clock=clock)
    for _ in range(2):
        error = await failure(client, kind=errors.TransportError)
        assert "not connected" in str(error)
    await client.close()


async def test_close_logs_out_once_and_refuses_further_commands(client, switch):
    await client.show(COUNTERS)
    await client.close()
    await client.close()
    assert switch.sessions == set()
    assert "closed" in str(await failure(client))


async def test_close_without_a_session_sends_nothing(client, switch):
    await client.close()
    assert switch.requests == 0


async def test_close_of_an_unreachable_switch(switch):
    async with OnyxSimulator(switch) as stopped:
        client = OnyxClient(stopped.url, "monitor", PASSWORD)
        await client.show(COUNTERS)
    await client.close()


async def test_the_password_is_in_no_text(client, switch, caplog):
    caplog.set_level(logging.DEBUG)
    await client.show(COUNTERS)
    switch.sessions.clear()
    await client.show(COUNTERS)
    switch.sessions.clear()
    switch.password = "another"
    await failure(client)
    assert any("session has expired" in record.message for record in caplog.records)
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(client)
    assert repr(client) == f"OnyxClient('http://{client.address}')"


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("192.0.2.1", "https://192.0.2.1"),
        ("leaf-01.example:8443", "https://leaf-01.example:8443"),
        ("2001:db8::1", "https://[2001:db8::1]"),
        ("http://[2001:db8::1]:80", "http://[2001:db8::1]"),
        ("https://leaf-01.example/", "https://leaf-01.example/"),
    ],
)
async def test_addresses(address, base):
    client = OnyxClient(address, "u", "p", tls=tls_context(insecure=True))
    assert repr(client) == f"OnyxClient({base!r})"
    await client.close()


@pytest.mark.parametrize("address", ["", "ftp://leaf", "https://leaf/admin", "leaf:port", "https://leaf?x=1"])
def test_invalid_addresses(address):
    with pytest.raises(ValueError, match="address: "):
        OnyxClient(address, "u", "p")


def test_a_password_in_the_address_is_rejected_without_quoting_it():
    with pytest.raises(ValueError, match="do not belong") as caught:
        OnyxClient(f"https://monitor:{PASSWORD}@leaf", "u", "p")
    assert PASSWORD not in str(caught.value)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue_cert("127.0.0.1")


@pytest.fixture
async def secure(switch, issued, tmp_path):
    path = tmp_path / "switch.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    async with OnyxSimulator(switch, certificate=path) as running:
        yield running


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def fingerprint(issued):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())).hexdigest()


async def show_counters(device, tls):
    client = OnyxClient(device.url, "monitor", PASSWORD, tls=tls)
    try:
        return await client.show(COUNTERS)
    finally:
        await client.close()


async def test_tls_by_ca_by_fingerprint_and_insecure(secure, ca_file, issued):
    assert await show_counters(secure, tls_context(ca_file=ca_file))
    digits = fingerprint(issued)
    assert await show_counters(secure, tls_context(sha256=digits))
    colons = ":".join(digits[i : i + 2] for i in range(0, 64, 2)).upper()
    assert await show_counters(secure, tls_context(sha256=colons))
    assert await show_counters(secure, tls_context(insecure=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [(None, "CERTIFICATE_VERIFY_FAILED"), ({}, "CERTIFICATE_VERIFY_FAILED"), ({"sha256": "00" * 32}, "not the pinned")],
)
async def test_nothing_is_sent_with_an_unknown_certificate(secure, switch, options, text):
    tls = None if options is None else tls_context(**options)
    client = OnyxClient(secure.url, "monitor", PASSWORD, tls=tls)
    error = await failure(client, kind=errors.TransportError)
    assert text in str(error)
    assert "ca_file or its fingerprint as sha256" in str(error)
    assert switch.requests == 0
    await client.close()


async def test_tls_checks_the_name_against_a_ca(switch, authority, ca_file, tmp_path):
    path = tmp_path / "other.pem"
    authority.issue_cert("other.example").private_key_and_cert_chain_pem.write_to_path(path)
    async with OnyxSimulator(switch, certificate=path) as running:
        client = OnyxClient(running.url, "monitor", PASSWORD, tls=tls_context(ca_file=ca_file))
        assert "IP address mismatch" in str(await failure(client, kind=errors.TransportError))
        await client.close()


def test_invalid_tls_options(ca_file, tmp_path):
    with pytest.raises(ValueError, match="exclude each other"):
        tls_context(ca_file=ca_file, insecure=True)
    with pytest.raises(ValueError, match="'abc' is not a fingerprint of 64 hexadecimal digits"):
        tls_context(sha256="abc")
    with pytest.raises(FileNotFoundError):
        tls_context(ca_file=tmp_path / "none.pem")
