"""The client of NVUE against a simulated switch: paths, log-ins, errors, secrets, TLS."""

import asyncio
import hashlib
import logging
import ssl
import traceback

import pytest
import trustme

from exporter.switch_api import errors
from exporter.switch_api.nvue.client import NvueClient
from exporter.switch_api.tls import tls_context
from tests.helpers.clock import Clock
from tests.simulators.nvue import NvuePort, NvueSimulator, NvueSwitch

PASSWORD = "c0rrect-horse"


@pytest.fixture
def switch():
    return NvueSwitch(ports={"swp1": NvuePort(pfc={3: (1, 2)})}, password=PASSWORD)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def device(switch):
    async with NvueSimulator(switch) as running:
        yield running


@pytest.fixture
async def client(device, clock):
    made = NvueClient(device.url, "monitor", PASSWORD, clock=clock)
    yield made
    await made.close()


async def failure(client, path="interface", kind=errors.SwitchApiError):
    """Return the error of a request, after checking that its traceback does not contain the password."""
    with pytest.raises(kind) as caught:
        await client.get(path)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert client.address in str(caught.value)
    return caught.value


async def test_every_path(client, switch):
    assert (await client.get("system"))["hostname"] == "leaf01"
    assert "swp1" in await client.get("interface")
    assert "pfc-stats" in await client.get("interface/swp1/counters/qos")
    assert "neighbor" in await client.get("interface/swp1/lldp")
    assert switch.paths == ["system", "interface", "interface/swp1/counters/qos", "interface/swp1/lldp"]
    assert switch.refused == 0


@pytest.mark.parametrize(
    "path",
    ["", "/interface", "revision", "system/reboot", "interface/../system", "interface/swp1", "interface?rev=applied",
     "interface/swp1/counters/qos?x", "interface/a b/lldp", "interface/swp1/lldp\n", "interface/%2e%2e/lldp"],
)  # fmt: skip
async def test_no_other_path_is_requested(client, switch, path):
    with pytest.raises(ValueError, match="is not requested"):
        await client.get(path)
    assert (switch.paths, switch.refused) == ([], 0)


async def test_the_default_port_is_that_of_nvue():
    client = NvueClient("leaf01", "u", "p", tls=tls_context(insecure=True))
    assert repr(client) == "NvueClient('https://leaf01:8765')"
    await client.close()


async def test_a_wrong_password_is_sent_once_and_then_backs_off_longer_each_time(client, switch, clock):
    switch.password = "another"
    error = await failure(client, kind=errors.LoginError)
    assert "HTTP 401: 'Unauthorized'; check user and password" in str(error)
    for seconds in (60, 120, 240):
        clock.now += seconds - 1
        assert "so that the account is not locked" in str(await failure(client, kind=errors.LoginBackoffError))
        clock.now += 1
        assert not isinstance(await failure(client, kind=errors.LoginError), errors.LoginBackoffError)
    assert switch.refused == 4
    switch.password = PASSWORD
    clock.now += 480
    assert await client.get("system")
    switch.password = "rotated"
    assert not isinstance(await failure(client, kind=errors.LoginError), errors.LoginBackoffError)
    clock.now += 60
    switch.password = PASSWORD
    assert await client.get("system"), "backoff starts over after success"


async def test_concurrent_requests_send_a_wrong_password_once(client, switch):
    switch.password = "another"
    answers = await asyncio.gather(*(client.get("system") for _ in range(5)), return_exceptions=True)
    assert switch.refused == 1
    assert sorted(type(one).__name__ for one in answers) == ["LoginBackoffError"] * 4 + ["LoginError"]


async def test_concurrent_first_requests_with_the_right_password(client, switch):
    answers = await asyncio.gather(*(client.get("system") for _ in range(5)))
    assert [one["hostname"] for one in answers] == ["leaf01"] * 5


async def test_a_password_changed_on_the_switch_is_sent_once_more(client, switch):
    await client.get("system")
    switch.password = "rotated"
    await failure(client, kind=errors.LoginError)
    await failure(client, kind=errors.LoginBackoffError)
    assert switch.refused == 1


async def test_the_first_password_of_the_switch_is_named(client, switch):
    switch.faults.first_password = True
    error = await failure(client, kind=errors.LoginError)
    assert "HTTP 403" in str(error)
    assert "a switch whose user cumulus still has its first password responds so: change it" in str(error)


async def test_an_html_page_instead_of_json(client, switch):
    switch.faults.html = True
    error = await failure(client, kind=errors.InvalidResponseError)
    assert "interface: HTTP 200 with an HTML page instead of a result" in str(error)


async def test_a_redirect_is_not_followed_and_its_location_reported(client, switch):
    switch.faults.redirect = "https://leaf01/nvue_v1/interface"
    error = await failure(client, kind=errors.InvalidResponseError)
    assert "redirected to 'https://leaf01/nvue_v1/interface'; give the address in that form" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, errors.UnsupportedError),
        (400, errors.CommandError),
        (502, errors.InvalidResponseError),
        (503, errors.InvalidResponseError),
    ],
)
async def test_errors_of_one_path_are_no_failed_logins(client, switch, status, kind):
    switch.faults.errors["interface"] = status
    for _ in range(3):
        error = await failure(client, kind=kind)
        assert "Not today" in str(error)
    assert await client.get("system")


async def test_a_slow_or_large_response_is_no_failed_login(device, switch, clock):
    client = NvueClient(device.url, "monitor", PASSWORD, timeout=0.1, max_reply=2**16, clock=clock)
    switch.faults.delay = 3600.0
    for _ in range(2):
        await failure(client, kind=errors.ResponseTimeoutError)
    switch.faults.delay, switch.faults.huge = 0.0, 2**17
    client._http._timeout = 30.0
    assert "response of more than 65536 bytes" in str(await failure(client, kind=errors.InvalidResponseError))
    switch.faults.huge = 0
    assert await client.get("system")
    await client.close()


async def test_concurrent_requests_are_limited(device, switch):
    client = NvueClient(device.url, "monitor", PASSWORD)
    await client.get("system")
    switch.faults.delay = 0.05
    await asyncio.gather(*(client.get("system") for _ in range(8)))
    assert switch.max_concurrent == 3
    await client.close()


async def test_no_connection_is_no_failed_login(switch, clock):
    async with NvueSimulator(switch) as stopped:
        url = stopped.url
    client = NvueClient(url, "monitor", PASSWORD, clock=clock)
    for _ in range(3):
        assert "not connected" in str(await failure(client, kind=errors.NotConnectedError))
    await client.close()


async def test_the_password_is_in_no_text(client, switch, caplog):
    for logger in ("", "httpx"):
        caplog.set_level(logging.DEBUG, logger)
    await client.get("system")
    switch.password = "another"
    await failure(client)
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(client)


async def test_tls_by_ca_and_fingerprint_but_not_with_an_unknown_certificate(switch, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    path, ca_file = tmp_path / "switch.pem", tmp_path / "ca.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(ca_file)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())).hexdigest()
    async with NvueSimulator(switch, certificate=path) as running:
        for trusted in ({"ca_file": ca_file}, {"sha256": digest}, {"insecure": True}):
            client = NvueClient(running.url, "monitor", PASSWORD, tls=tls_context(**trusted))
            assert await client.get("system")
            await client.close()
        switch.paths.clear()
        for untrusted in ({}, {"sha256": "00" * 32}):
            client = NvueClient(running.url, "monitor", PASSWORD, tls=tls_context(**untrusted))
            error = await failure(client, kind=errors.TransportError)
            assert "ca_file or its fingerprint as sha256" in str(error)
            await client.close()
        assert switch.paths == []
