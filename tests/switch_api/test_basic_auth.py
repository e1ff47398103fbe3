"""Base of clients with HTTP Basic: password checks and backoff, also with concurrent requests."""

import asyncio

import httpx
import pytest

from exporter.switch_api.basic_auth import BasicAuthClient
from exporter.switch_api.errors import (
    LoginBackoffError,
    LoginError,
    TransportError,
)
from exporter.switch_api.login_backoff import MIN_BACKOFF_SECONDS
from tests.helpers.clock import Clock

PASSWORD = "tr0ub4dor-and-3"


@pytest.fixture
async def client():
    made = BasicAuthClient("http://192.0.2.1", "monitor", PASSWORD, clock=Clock())
    yield made
    await made.close()


async def accept(client):
    client._login_accepted()


async def reject(client):
    raise client._login_rejected(httpx.Response(401), f"who is {PASSWORD}?".encode())


async def test_backoff_reports_the_last_error_without_the_password(client):
    with pytest.raises(LoginError) as caught:
        await client._authenticate(lambda: reject(client))
    assert str(caught.value) == "192.0.2.1: HTTP 401: 'who is ***?'; check user and password"
    with pytest.raises(LoginBackoffError) as backoff:
        await client._authenticate(lambda: accept(client))
    assert "1 failed (last error: HTTP 401: 'who is ***?'; check user and password)" in str(backoff.value)
    client._clock.now += MIN_BACKOFF_SECONDS
    await client._authenticate(lambda: accept(client))
    await client._authenticate(lambda: accept(client))


async def test_a_request_that_waited_for_the_first_one_is_no_login(client):
    response_ready = asyncio.Event()

    async def first():
        await response_ready.wait()
        client._login_accepted()

    async def broken():
        raise TransportError("broken")

    waited = [asyncio.create_task(client._authenticate(one)) for one in (first, broken)]
    await asyncio.sleep(0)
    response_ready.set()
    assert [type(one) for one in await asyncio.gather(*waited, return_exceptions=True)] == [type(None), TransportError]
    with pytest.raises(LoginError) as caught:  # and no backoff after a failure that was no failed login
        await client._authenticate(lambda: reject(client))
    assert not isinstance(caught.value, LoginBackoffError)


async def test_a_wrong_password_is_sent_once_by_concurrent_requests(client):
    sent = []

    async def request():
        sent.append(1)
        await asyncio.sleep(0)
        await reject(client)

    errors = await asyncio.gather(*(client._authenticate(request) for _ in range(5)), return_exceptions=True)
    assert len(sent) == 1
    assert [type(one) for one in errors] == [LoginError, *[LoginBackoffError] * 4]
