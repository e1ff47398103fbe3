"""Turns: shared among those who ask, bounded, and never lost when one who waits gives up."""

import asyncio
from random import Random

import pytest

from exporter.outputs.fair_queue import FairQueue, FullError


class Log:
    """Takes turns, and records whose they were; each lasts until `proceed` is called."""

    def __init__(self, limit=100):
        self.queue = FairQueue(limit)
        self.turns = []
        self.most = 0
        self._now = 0

    async def take(self, who, seconds=0.0):
        async with self.queue.turn(who):
            self._now += 1
            self.most = max(self.most, self._now)
            self.turns.append(who)
            await asyncio.sleep(seconds)
            self._now -= 1


async def test_one_who_asks_often_delays_another_by_one_turn():
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(log.take("flood"))
        await asyncio.sleep(0)
        tasks.create_task(log.take("other"))
    assert log.turns.index("other") <= 3
    assert (len(log.turns), log.most) == (11, 1)


async def test_turns_alternate_and_keep_their_order():
    log = Log()
    async with asyncio.TaskGroup() as tasks:
        for who in "aaabbc":
            tasks.create_task(log.take(who))
    assert "".join(log.turns) in ("aabcab", "abcaba")


async def test_where_too_many_wait_the_one_with_the_most_loses_its_newest():
    log = Log(limit=4)
    async with asyncio.TaskGroup() as tasks:
        flood = [tasks.create_task(settle(log, "flood", 0.01)) for _ in range(6)]
        await asyncio.sleep(0)
        other = tasks.create_task(settle(log, "other"))
    assert other.result() is None
    assert [isinstance(one.result(), FullError) for one in flood] == [False, False, False, True, True, True]


async def settle(log, *asked):
    try:
        await log.take(*asked)
    except FullError as error:
        return error
    return None


async def test_a_limit_of_one_is_the_turn_itself():
    log = Log(limit=1)
    first = asyncio.create_task(log.take("a"))
    await asyncio.sleep(0)
    with pytest.raises(FullError):
        await log.take("b")
    await first
    await log.take("b")
    assert log.turns == ["a", "b"]


@pytest.mark.parametrize("seed", range(20))
async def test_no_turn_is_lost_when_those_who_wait_give_up(seed):
    random = Random(seed)
    log = Log(limit=20)
    tasks = [asyncio.create_task(settle(log, random.choice("abc"), random.choice((0, 0.001)))) for _ in range(40)]
    for task in tasks:
        if random.random() < 0.5:
            task.cancel()
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(5):
        await log.take("last")
    assert log.turns[-1] == "last"
