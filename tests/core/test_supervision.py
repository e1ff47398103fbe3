"""Tasks that run as long as the daemon: what ends by an error is started again, counted and logged."""

import asyncio
import logging

import pytest

from exporter.core import supervision
from exporter.core.closing import close_all
from exporter.core.supervision import Supervisor

LONG = 30.0


@pytest.fixture
def supervisor(monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_DELAY", 0.01)
    return Supervisor()


def start(supervisor, name, run):
    return supervisor.start(name, run, kind="a kind")


async def until(condition):
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110  # the condition is on the state of a task
            await asyncio.sleep(0.001)


async def test_a_task_that_raises_is_started_again_and_logged_with_its_traceback(supervisor, caplog):
    runs = []

    async def run():
        runs.append(None)
        if len(runs) < 3:
            raise ZeroDivisionError("a bug")
        await asyncio.Event().wait()

    task = start(supervisor, "nic", run)
    await until(lambda: len(runs) == 3)
    assert supervisor.restarts == {"a kind": 2}
    assert caplog.text.count("ZeroDivisionError: a bug") == 2
    assert "Traceback" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert await task.stop()
    assert "error at its end" not in caplog.text


async def test_a_task_that_is_cancelled_by_another_is_started_again(supervisor, caplog):
    started = []

    async def run():
        started.append(asyncio.current_task())
        await asyncio.Event().wait()

    task = start(supervisor, "nic", run)
    await until(lambda: started)
    started[0].cancel()
    await until(lambda: len(started) == 2)
    assert supervisor.restarts == {"a kind": 1}
    assert "cancelled unexpectedly" in caplog.text
    await task.stop()
    assert len(started) == 2


async def test_a_task_that_returns_is_complete(supervisor):
    async def run():
        return None

    task = start(supervisor, "first reads", run)
    assert await task.wait()
    await asyncio.sleep(0.05)
    assert supervisor.restarts == {"a kind": 0}


async def test_delays_double_up_to_the_maximum(supervisor, caplog, monkeypatch):
    monkeypatch.setattr(supervision, "MAX_DELAY", 0.04)

    async def run():
        raise ValueError("a bug")

    task = start(supervisor, "nic", run)
    await until(lambda: supervisor.restarts["a kind"] == 4)
    await task.stop()
    delays = [record.args[1] for record in caplog.records[:4]]
    assert delays == [0.01, 0.02, 0.04, 0.04]


async def test_a_stop_between_two_runs_prevents_the_restart(supervisor, monkeypatch, caplog):
    monkeypatch.setattr(supervision, "FIRST_DELAY", 0.02)

    async def run():
        raise ValueError("a bug")

    task = start(supervisor, "nic", run)
    await task.wait()
    await task.stop()
    assert "error at its end" not in caplog.text  # it is logged already
    await asyncio.sleep(0.05)
    assert supervisor.restarts == {"a kind": 0}


async def test_an_error_at_the_end_is_logged(supervisor, caplog):
    async def run():
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cannot be closed")

    task = start(supervisor, "nic", run)
    await asyncio.sleep(0)
    await task.stop()
    assert "nic: error at its end" in caplog.text
    assert "cannot be closed" in caplog.text
    assert supervisor.restarts == {"a kind": 0}


async def test_a_task_that_ignores_its_end_is_not_waited_for_longer_than_asked(supervisor):
    go = asyncio.Event()

    async def run():
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    task = start(supervisor, "nic", run)
    await asyncio.sleep(0)
    assert not await task.stop(0.05)
    go.set()
    assert await task.wait(LONG)


async def test_an_object_that_cannot_be_closed_keeps_no_other_open(caplog):
    closed = []

    async def fail():
        raise OSError("no such device")

    async def close():
        closed.append("second")

    await close_all("switch leaf-1", [fail(), close()])
    assert closed == ["second"]
    assert "switch leaf-1: error while closing" in caplog.text
    assert "no such device" in caplog.text
