"""Blocking calls outside the event loop: they never overlap, and one that hangs does not affect the others."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from functools import partial

import pytest

from exporter.core import blocking
from exporter.core.blocking import BlockingCalls, Hardware, HungError

LONG = 60.0
"""A deadline that no test reaches."""

SHORT = 0.05


class HangingCall:
    """A call that hangs until `release` is set."""

    def __init__(self):
        self.started, self.release, self.done, self.calls = threading.Event(), threading.Event(), threading.Event(), 0

    def __call__(self):
        self.calls += 1
        self.started.set()
        self.release.wait(LONG)
        self.done.set()
        return "late"


@pytest.fixture
def hang():
    call = HangingCall()
    yield call
    call.release.set()


async def all_returned(calls):
    """Wait until all calls that hung have returned."""
    async with asyncio.timeout(LONG):
        while calls.hanging:  # noqa: ASYNC110  # a thread changes it, and has no event for it
            await asyncio.sleep(0.001)


async def started(call):
    async with asyncio.timeout(LONG):
        await asyncio.to_thread(call.started.wait, LONG)


async def test_results_are_by_name_and_exceptions_are_results():
    runner = BlockingCalls("t", LONG)
    fault = OSError(22, "Invalid argument")

    def fail():
        raise fault

    assert await runner.run([("a", lambda: 1), ("b", fail), ("c", lambda: None)]) == {
        "a": 1,
        "b": fault,
        "c": None,
    }
    assert await runner.run([]) == {}
    runner.close()


async def test_calls_never_overlap_and_keep_their_order_in_one_thread():
    runner, inside, seen, threads = BlockingCalls("t", LONG), threading.Lock(), [], set()

    def call(name):
        assert inside.acquire(blocking=False)
        seen.append(name)
        threads.add(threading.current_thread())
        inside.release()
        return name

    batches = [
        [(f"{batch}.{place}", lambda name=f"{batch}.{place}": call(name)) for place in range(20)] for batch in range(5)
    ]
    results = await asyncio.gather(*(runner.run(batch) for batch in batches))
    assert [list(result.values()) for result in results] == [[name for name, _ in batch] for batch in batches]
    assert seen == [name for batch in batches for name, _ in batch]
    assert len(threads) == 1
    assert next(iter(threads)).daemon
    runner.close()


async def test_a_call_that_hangs_delays_no_other_and_is_not_repeated(hang):
    runner, threads = BlockingCalls("t", SHORT), []

    def other():
        threads.append(threading.current_thread())
        return "fine"

    calls = [("first", other), ("bad", hang), ("last", other)]
    results = await runner.run(calls)
    assert (results["first"], results["last"]) == ("fine", "fine")
    assert isinstance(results["bad"], HungError)
    assert str(results["bad"]) == "bad: no answer within 0.05 s"
    assert runner.hanging == {"bad"}
    assert threads[0] is not threads[1]  # the rest ran in a new thread

    results = await runner.run(calls)
    assert str(results["bad"]) == "bad: an earlier call has not returned"
    assert results["last"] == "fine"
    assert hang.calls == 1

    hang.release.set()
    await all_returned(runner)
    assert await runner.run(calls) == {"first": "fine", "bad": "late", "last": "fine"}
    assert hang.calls == 2
    runner.close()


async def test_all_calls_that_hang_are_reported_and_a_batch_of_nothing_else_ends():
    runner, hangs = BlockingCalls("t", SHORT), {"a": HangingCall(), "b": HangingCall()}
    results = await runner.run(hangs.items())
    assert {name: type(result) for name, result in results.items()} == {"a": HungError, "b": HungError}
    assert runner.hanging == {"a", "b"}
    assert set(await runner.run(hangs.items())) == {"a", "b"}
    for hang in hangs.values():
        hang.release.set()
    await all_returned(runner)
    assert await runner.run(hangs.items()) == {"a": "late", "b": "late"}
    runner.close()


async def test_the_current_call_of_a_cancelled_batch_counts_as_hanging_and_the_rest_is_dropped(hang):
    runner, rest = BlockingCalls("t", LONG), HangingCall()
    task = asyncio.create_task(runner.run([("bad", hang), ("rest", rest)]))
    await started(hang)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runner.hanging == {"bad"}
    results = await runner.run([("bad", hang), ("other", lambda: 1)])
    assert isinstance(results["bad"], HungError)
    assert results["other"] == 1
    hang.release.set()
    await all_returned(runner)
    assert (await runner.run([("bad", hang)]))["bad"] == "late"
    assert (hang.calls, rest.calls) == (2, 0)
    runner.close()


async def test_waiting_for_the_lock_can_be_cancelled(hang):
    runner = BlockingCalls("t", LONG)
    first = asyncio.create_task(runner.run([("bad", hang)]))
    await started(hang)
    second = asyncio.create_task(runner.run([("other", lambda: 1)]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    hang.release.set()
    assert await first == {"bad": "late"}
    runner.close()


async def test_a_call_that_has_a_result_never_counts_as_hanging():
    """At the deadline, the thread may be between two calls; the first must not be treated as hanging for ever."""
    runner = BlockingCalls("t", SHORT)
    between, go, observed = threading.Event(), threading.Event(), []

    class LockBetweenCalls:
        """A lock whose holder is stopped right after it stored a result."""

        def __init__(self, lock, batch):
            self.lock, self.batch = lock, batch

        def __enter__(self):
            if threading.current_thread() is not threading.main_thread() and self.batch.results and not go.is_set():
                between.set()
                go.wait(LONG)
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()
            if threading.current_thread() is threading.main_thread() and between.is_set():
                observed.append(runner.hanging)
                go.set()

    submit = runner._submit

    def submit_watched(batch):
        if not isinstance(batch.lock, LockBetweenCalls):
            batch.lock = LockBetweenCalls(batch.lock, batch)
        submit(batch)

    runner._submit = submit_watched
    assert await runner.run([("a", lambda: 1), ("b", lambda: 2)]) == {"a": 1, "b": 2}
    assert observed
    assert not any(observed)
    assert not runner.hanging
    runner.close()


def test_a_call_may_return_after_its_event_loop_was_closed(hang):
    runner = BlockingCalls("t", LONG)

    async def leave():
        task = asyncio.create_task(runner.run([("bad", hang)]))
        await started(hang)
        assert not task.done()
        runner.close()

    asyncio.run(leave())
    hang.release.set()
    assert hang.done.wait(LONG)
    asyncio.run(all_returned(runner))

    async def again():
        return await runner.run([("bad", lambda: 3)])

    assert asyncio.run(again()) == {"bad": 3}
    runner.close()


async def test_close_ends_the_thread_without_waiting(hang):
    runner = BlockingCalls("closing", LONG)
    await runner.run([("a", lambda: 1)])
    thread = runner._worker
    runner.close()
    runner.close()
    await asyncio.to_thread(thread.join, LONG)
    assert not thread.is_alive()


async def test_calls_after_close_leave_no_thread():
    """A source may be closed while another one waits for its calls."""
    serial = BlockingCalls("closed-before", LONG)
    serial.close()
    assert (await serial.run([("a", threading.current_thread)]))["a"].name == "closed-before"
    threads = [one for one in threading.enumerate() if one.name == "closed-before"]
    for one in threads:
        one.join(5)
        assert not one.is_alive()


async def test_a_hanging_call_after_close_leaves_no_thread_that_waits(hang):
    serial = BlockingCalls("closed-before", SHORT)
    serial.close()
    results = await serial.run([("hangs", hang), ("next", lambda: 1)])
    assert isinstance(results["hangs"], HungError)
    assert results["next"] == 1
    hang.release.set()
    for one in threading.enumerate():
        if one.name == "closed-before":
            one.join(5)
            assert not one.is_alive()


def test_a_thread_that_hangs_does_not_keep_the_process_from_exiting():
    program = """
import asyncio, threading
from exporter.core.blocking import BlockingCalls

async def main():
    runner = BlockingCalls("t", 0.05)
    print(await runner.run([("bad", threading.Event().wait), ("good", lambda: 1)]))
    runner.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert "'good': 1" in done.stdout
    assert "HungError" in done.stdout
    assert done.stderr == ""


async def test_the_number_of_hanging_calls_is_bounded(monkeypatch):
    monkeypatch.setattr(blocking, "MAX_HUNG", 2)
    runner, hangs = BlockingCalls("t", SHORT), [HangingCall() for _ in range(4)]
    calls = [(f"call {place}", hang) for place, hang in enumerate(hangs)]
    try:
        first = await runner.run(calls)
        assert [str(first[name]) for name, _ in calls] == [
            "call 0: no answer within 0.05 s",
            "call 1: no answer within 0.05 s",
            "call 2: not called, because 2 calls hang",
            "call 3: not called, because 2 calls hang",
        ]
        assert isinstance((await runner.run([("other", lambda: 1)]))["other"], HungError)
        assert [hang.calls for hang in hangs] == [1, 1, 0, 0]
    finally:
        for hang in hangs:
            hang.release.set()
    await all_returned(runner)
    assert await runner.run([("other", lambda: 1)]) == {"other": 1}
    runner.close()


async def test_a_hanging_call_is_known_to_the_next_object_of_the_key(hang):
    """A reload creates a new object; the call still hangs in the kernel."""
    hardware = Hardware()
    before, after, elsewhere = (BlockingCalls("t", SHORT, hardware.turns(key)) for key in ("here", "here", "there"))
    assert isinstance((await before.run([("a", hang)]))["a"], HungError)
    before.close()
    assert "has not returned" in str((await after.run([("a", hang)]))["a"])
    assert hang.calls == 1
    assert (await elsewhere.run([("a", lambda: 1)]))["a"] == 1
    hang.release.set()
    await all_returned(after)
    assert (await after.run([("a", lambda: 2)]))["a"] == 2
    for runner in (after, elsewhere):
        runner.close()


async def test_calls_of_objects_of_one_key_never_overlap():
    """Two sources may read the same devices, as `rdma` and `bursts` do."""
    inside, seen, hardware = threading.Lock(), [], Hardware()
    objects = [BlockingCalls(f"t{number}", LONG, hardware.turns("shared key")) for number in range(2)]

    def call(name):
        assert inside.acquire(blocking=False), "two calls at once"
        seen.append(name)
        inside.release()

    batches = [[(f"{batch}.{place}", partial(call, f"{batch}.{place}")) for place in range(20)] for batch in range(6)]
    results = await asyncio.gather(*(objects[batch % 2].run(calls) for batch, calls in enumerate(batches)))
    assert [set(one.values()) for one in results] == [{None}] * 6
    assert seen == [name for batch in batches for name, _ in batch]
    objects[0].close()
    assert await objects[1].run([("a", lambda: 1)]) == {"a": 1}
    objects[1].close()


@pytest.mark.parametrize("keys", [("one key", "another"), None])
async def test_objects_of_different_keys_do_not_wait_for_each_other(keys):
    meet, hardware = threading.Barrier(2), Hardware()
    first, second = (BlockingCalls("t", LONG, keys and hardware.turns(keys[place])) for place in range(2))
    done = await asyncio.gather(*(one.run([("a", partial(meet.wait, LONG))]) for one in (first, second)))
    assert {one["a"] for one in done} == {0, 1}, "neither passes the barrier without the other"
    for runner in (first, second):
        runner.close()


async def test_a_hanging_call_is_known_to_another_object_that_waited_for_the_lock(hang):
    hardware = Hardware()
    first, second = (BlockingCalls("t", SHORT, hardware.turns("busy key")) for _ in range(2))
    mine, others = await asyncio.gather(
        first.run([("bad", hang), ("good", lambda: 1)]), second.run([("bad", hang), ("other", lambda: 2)])
    )
    assert (str(mine["bad"]), mine["good"]) == ("bad: no answer within 0.05 s", 1)
    assert (str(others["bad"]), others["other"]) == ("bad: an earlier call has not returned", 2)
    assert hang.calls == 1
    assert first.hanging == second.hanging == {"bad"}
    hang.release.set()
    await all_returned(second)
    assert first.hanging == frozenset()
    for runner in (first, second):
        runner.close()


async def test_turns_are_kept_while_a_call_hangs_and_no_longer(hang):
    """A source may be gone for a while: `enabled: false`, and after another reload enabled again."""
    hardware = Hardware()
    before = BlockingCalls("t", SHORT, hardware.turns("here"))
    assert isinstance((await before.run([("a", hang)]))["a"], HungError)
    before.close()
    kept = weakref.ref(hardware.turns("here"))
    del before
    gc.collect()
    after = BlockingCalls("t", SHORT, hardware.turns("here"))
    assert hardware.turns("here") is kept()
    assert "has not returned" in str((await after.run([("a", hang)]))["a"])
    hang.release.set()
    await all_returned(after)
    after.close()
    del after
    async with asyncio.timeout(LONG):
        while kept() is not None:
            await asyncio.sleep(0.001)
            gc.collect()
    assert hardware.turns("here").hanging == set()
