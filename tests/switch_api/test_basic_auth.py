"""What clients with HTTP Basic share: who judges the password, and what is sent while nobody has."""

import asyncio

import httpx
import pytest

from exporter.switch_api.basic_auth import BasicClient
from exporter.switch_api.http import (
    FIRST_REST,
    BackoffError,
    LoginError,
    TransportError,
)
from tests.helpers.clock import Clock

PASSWORD = "tr0ub4dor-and-3"


@pytest.fixture
async def client():
    made = BasicClient("http://192.0.2.1", "monitor", PASSWORD, clock=Clock())
    yield made
    await made.close()


async def serve(client):
    client._served()


async def refuse(client):
    raise client._denied(httpx.Response(401), f"who is {PASSWORD}?".encode())


async def test_a_rest_says_what_went_wrong_before_and_never_the_password(client):
    with pytest.raises(LoginError) as caught:
        await client._judged(lambda: refuse(client))
    assert str(caught.value) == "192.0.2.1: HTTP 401: 'who is ***?'; check user and password"
    with pytest.raises(BackoffError) as resting:
        await client._judged(lambda: serve(client))
    assert "1 failed (the last: HTTP 401: 'who is ***?'; check user and password)" in str(resting.value)
    client._clock.now += FIRST_REST
    await client._judged(lambda: serve(client))
    await client._judged(lambda: serve(client))


async def test_a_request_that_waited_for_the_first_one_is_no_log_in(client):
    gate = asyncio.Event()

    async def first():
        await gate.wait()
        client._served()

    async def broken():
        raise TransportError("broken")

    waited = [asyncio.create_task(client._judged(one)) for one in (first, broken)]
    await asyncio.sleep(0)
    gate.set()
    assert [type(one) for one in await asyncio.gather(*waited, return_exceptions=True)] == [type(None), TransportError]
    with pytest.raises(LoginError) as caught:  # and not a rest after a failure that was none
        await client._judged(lambda: refuse(client))
    assert not isinstance(caught.value, BackoffError)


async def test_a_wrong_password_is_sent_once_however_many_ask(client):
    sent = []

    async def ask():
        sent.append(1)
        await asyncio.sleep(0)
        await refuse(client)

    errors = await asyncio.gather(*(client._judged(ask) for _ in range(5)), return_exceptions=True)
    assert len(sent) == 1
    assert [type(one) for one in errors] == [LoginError, *[BackoffError] * 4]
