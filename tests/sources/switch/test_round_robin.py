"""Round-robin scheduling: the order of requests, and the effect of an error on the others."""

import asyncio

import pytest

from exporter.sources.switch import round_robin as round_robin_module
from exporter.sources.switch.round_robin import RoundRobin


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(round_robin_module)


async def round_of(round_robin, clock, paces, seconds, *, takes=1.0):
    """Send the due requests, each taking a while; return those sent."""
    asked = []

    async def ask(job):
        asked.append(job)
        clock.now += takes

    await round_robin.run(round_robin.due(paces), ask, clock.now + seconds)
    return asked


async def test_all_requests_are_sent_in_order_if_there_is_time(clock):
    assert await round_of(RoundRobin(), clock, dict.fromkeys("abc", 0.0), 10) == ["a", "b", "c"]


async def test_the_longest_overdue_request_is_next(clock):
    round_robin = RoundRobin()
    paces = dict.fromkeys("abcde", 0.0)
    polls = [await round_of(round_robin, clock, paces, 2.5) for _ in range(5)]
    assert polls[0] == ["a", "b", "c"], "their durations are not known yet"
    assert polls[1:] == [["d", "e"], ["a", "b"], ["c", "d"], ["e", "a"]]


async def test_a_long_interval_is_kept_and_then_due(clock):
    round_robin = RoundRobin()
    paces = {"a": 0.0, "b": 0.0, "slow": 100.0}
    await round_of(round_robin, clock, paces, 10)
    assert await round_of(round_robin, clock, paces, 10) == ["a", "b"]
    clock.now += 100
    assert set(await round_of(round_robin, clock, paces, 10)) == {"a", "b", "slow"}


async def test_requests_of_each_poll_do_not_starve_slow_ones(clock):
    round_robin = RoundRobin()
    paces = {**dict.fromkeys("abcdef", 0.0), "slow": 20.0}
    asked = []
    for _ in range(20):
        asked += await round_of(round_robin, clock, paces, 2.0)
        clock.now += 3
    assert asked.count("slow") >= 3


async def test_the_first_request_is_sent_however_long_it_takes_unless_time_is_over(clock):
    round_robin = RoundRobin()
    for _ in range(2):
        assert await round_of(round_robin, clock, {"a": 0.0}, 1.0, takes=50.0) == ["a"]
    assert await round_of(round_robin, clock, {"a": 0.0}, -1.0) == []


async def test_a_request_can_be_expedited_and_is_forgotten_when_removed(clock):
    round_robin = RoundRobin()
    await round_of(round_robin, clock, {"a": 100.0, "b": 100.0}, 10)
    round_robin.expedite("a")
    assert round_robin.due({"a": 100.0, "b": 100.0}) == ["a"]
    round_robin.due({"a": 100.0})
    assert round_robin.due({"a": 100.0, "b": 100.0}) == ["a", "b"]


async def test_several_requests_in_flight():
    round_robin, under_way, most = RoundRobin(), 0, 0

    async def ask(_):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await round_robin.run(range(10), ask, float("inf"), at_once=3)
    assert most == 3


async def test_an_error_ends_the_round_and_leaves_nothing_running():
    round_robin, begun, ended = RoundRobin(), [], []

    async def ask(job):
        begun.append(job)
        if job == 1:
            raise ValueError("the switch is gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job)

    with pytest.raises(ValueError, match="the switch is gone"):
        await round_robin.run(range(10), ask, float("inf"), at_once=3)
    assert set(begun) <= {0, 1, 2}
    assert set(ended) == set(begun) - {1}


async def test_a_round_that_is_cancelled_leaves_nothing_running():
    round_robin, ended = RoundRobin(), []

    async def ask(job):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job)

    running = asyncio.create_task(round_robin.run(range(10), ask, float("inf"), at_once=2))
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(ended) == [0, 1]
