"""Blocking calls in turn: none overlaps another, and one that hangs costs only itself."""

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from exporter.core import blocking as serial_module
from exporter.core.blocking import HungError, Serial

LONG = 60.0
"""A deadline that no test reaches."""

SHORT = 0.05


class Hang:
    """A call that hangs until it is let go."""

    def __init__(self):
        self.begun, self.go, self.done, self.calls = threading.Event(), threading.Event(), threading.Event(), 0

    def __call__(self):
        self.calls += 1
        self.begun.set()
        self.go.wait(LONG)
        self.done.set()
        return "late"


@pytest.fixture
def hang():
    call = Hang()
    yield call
    call.go.set()


async def back(serial):
    """Wait until what hung has come back."""
    async with asyncio.timeout(LONG):
        while serial.out:  # noqa: ASYNC110  # a thread changes it, and has no event for it
            await asyncio.sleep(0.001)


async def begun(call):
    async with asyncio.timeout(LONG):
        await asyncio.to_thread(call.begun.wait, LONG)


async def test_results_are_by_name_and_exceptions_are_results():
    serial = Serial("t", LONG)
    fault = OSError(22, "Invalid argument")

    def fail():
        raise fault

    assert await serial.run([("a", lambda: 1), ("b", fail), ("c", lambda: None)]) == {"a": 1, "b": fault, "c": None}
    assert await serial.run([]) == {}
    serial.close()


async def test_calls_never_overlap_and_keep_their_order_in_one_thread():
    serial, inside, seen, threads = Serial("t", LONG), threading.Lock(), [], set()

    def call(name):
        assert inside.acquire(blocking=False)
        seen.append(name)
        threads.add(threading.current_thread())
        inside.release()
        return name

    batches = [
        [(f"{batch}.{place}", lambda name=f"{batch}.{place}": call(name)) for place in range(20)] for batch in range(5)
    ]
    results = await asyncio.gather(*(serial.run(batch) for batch in batches))
    assert [list(result.values()) for result in results] == [[name for name, _ in batch] for batch in batches]
    assert seen == [name for batch in batches for name, _ in batch]
    assert len(threads) == 1
    assert next(iter(threads)).daemon
    serial.close()


async def test_rule_d_a_call_that_hangs_costs_only_itself_and_is_not_issued_again(hang):
    serial, threads = Serial("t", SHORT), []

    def other():
        threads.append(threading.current_thread())
        return "fine"

    calls = [("first", other), ("bad", hang), ("last", other)]
    results = await serial.run(calls)
    assert (results["first"], results["last"]) == ("fine", "fine")
    assert isinstance(results["bad"], HungError)
    assert str(results["bad"]) == "bad: no answer within 0.05 s"
    assert serial.out == {"bad"}
    assert threads[0] is not threads[1]  # the rest went on in a new thread

    results = await serial.run(calls)
    assert str(results["bad"]) == "bad: an earlier call has not come back"
    assert results["last"] == "fine"
    assert hang.calls == 1

    hang.go.set()
    await back(serial)
    assert await serial.run(calls) == {"first": "fine", "bad": "late", "last": "fine"}
    assert hang.calls == 2
    serial.close()


async def test_all_that_hang_are_told_and_a_batch_of_nothing_else_ends():
    serial, hangs = Serial("t", SHORT), {"a": Hang(), "b": Hang()}
    results = await serial.run(hangs.items())
    assert {name: type(result) for name, result in results.items()} == {"a": HungError, "b": HungError}
    assert serial.out == {"a", "b"}
    assert set(await serial.run(hangs.items())) == {"a", "b"}
    for hang in hangs.values():
        hang.go.set()
    await back(serial)
    assert await serial.run(hangs.items()) == {"a": "late", "b": "late"}
    serial.close()


async def test_a_cancelled_batch_leaves_its_call_out_and_drops_the_rest(hang):
    serial, rest = Serial("t", LONG), Hang()
    task = asyncio.create_task(serial.run([("bad", hang), ("rest", rest)]))
    await begun(hang)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert serial.out == {"bad"}
    results = await serial.run([("bad", hang), ("other", lambda: 1)])
    assert isinstance(results["bad"], HungError)
    assert results["other"] == 1
    hang.go.set()
    await back(serial)
    assert (await serial.run([("bad", hang)]))["bad"] == "late"
    assert (hang.calls, rest.calls) == (2, 0)
    serial.close()


async def test_waiting_for_ones_turn_can_be_cancelled(hang):
    serial = Serial("t", LONG)
    first = asyncio.create_task(serial.run([("bad", hang)]))
    await begun(hang)
    second = asyncio.create_task(serial.run([("other", lambda: 1)]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    hang.go.set()
    assert await first == {"bad": "late"}
    serial.close()


async def test_a_call_whose_result_is_in_is_never_taken_for_one_that_hangs():
    """At the deadline, the thread may stand between two calls; the one before must not stay out for ever."""
    serial = Serial("t", SHORT)
    between, go, looked = threading.Event(), threading.Event(), []

    class Between:
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
                looked.append(serial.out)
                go.set()

    give = serial._give

    def give_watched(batch):
        if not isinstance(batch.lock, Between):
            batch.lock = Between(batch.lock, batch)
        give(batch)

    serial._give = give_watched
    assert await serial.run([("a", lambda: 1), ("b", lambda: 2)]) == {"a": 1, "b": 2}
    assert looked
    assert not any(looked)
    assert not serial.out
    serial.close()


def test_a_call_that_comes_back_after_its_loop_was_closed_does_no_harm(hang):
    serial = Serial("t", LONG)

    async def leave():
        task = asyncio.create_task(serial.run([("bad", hang)]))
        await begun(hang)
        assert not task.done()
        serial.close()

    asyncio.run(leave())
    hang.go.set()
    assert hang.done.wait(LONG)
    asyncio.run(back(serial))

    async def again():
        return await serial.run([("bad", lambda: 3)])

    assert asyncio.run(again()) == {"bad": 3}
    serial.close()


async def test_close_ends_the_thread_and_waits_for_nothing(hang):
    serial = Serial("closing", LONG)
    await serial.run([("a", lambda: 1)])
    thread = serial._worker
    serial.close()
    serial.close()
    await asyncio.to_thread(thread.join, LONG)
    assert not thread.is_alive()


def test_a_thread_that_hangs_does_not_hold_up_the_end_of_the_process():
    program = """
import asyncio, threading
from exporter.core.blocking import Serial

async def main():
    serial = Serial("t", 0.05)
    print(await serial.run([("bad", threading.Event().wait), ("good", lambda: 1)]))
    serial.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert "'good': 1" in done.stdout
    assert "HungError" in done.stdout
    assert done.stderr == ""


async def test_calls_that_hang_are_bounded_and_asked_again_once_one_is_back(monkeypatch):
    monkeypatch.setattr(serial_module, "MAX_HUNG", 2)
    serial, hangs = Serial("t", SHORT), [Hang() for _ in range(4)]
    calls = [(f"call {place}", hang) for place, hang in enumerate(hangs)]
    try:
        first = await serial.run(calls)
        assert [str(first[name]) for name, _ in calls] == [
            "call 0: no answer within 0.05 s",
            "call 1: no answer within 0.05 s",
            "call 2: not asked, as 2 calls hang",
            "call 3: not asked, as 2 calls hang",
        ]
        assert isinstance((await serial.run([("other", lambda: 1)]))["other"], HungError)
        assert [hang.calls for hang in hangs] == [1, 1, 0, 0]
    finally:
        for hang in hangs:
            hang.go.set()
    await back(serial)
    assert await serial.run([("other", lambda: 1)]) == {"other": 1}
    serial.close()


async def test_what_hangs_is_known_to_the_next_object_of_the_place(hang):
    """A reload makes a new object; the call that hangs in the kernel is the same."""
    before, after, elsewhere = Serial("t", SHORT, "here"), Serial("t", SHORT, "here"), Serial("t", SHORT, "there")
    assert isinstance((await before.run([("a", hang)]))["a"], HungError)
    before.close()
    assert "has not come back" in str((await after.run([("a", hang)]))["a"])
    assert hang.calls == 1
    assert (await elsewhere.run([("a", lambda: 1)]))["a"] == 1
    hang.go.set()
    await back(after)
    assert (await after.run([("a", lambda: 2)]))["a"] == 2
    for serial in (after, elsewhere):
        serial.close()


async def test_objects_of_one_place_make_their_calls_in_turn():
    """Two sources that read the same devices: RDMA's and that of the bursts, for example."""
    inside, seen = threading.Lock(), []
    objects = [Serial(f"t{number}", LONG, "shared place") for number in range(2)]

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


@pytest.mark.parametrize("places", [("one place", "another"), (None, None)])
async def test_objects_of_different_places_do_not_wait_for_each_other(places):
    meet = threading.Barrier(2)
    first, second = (Serial("t", LONG, place) for place in places)
    done = await asyncio.gather(*(one.run([("a", partial(meet.wait, LONG))]) for one in (first, second)))
    assert {one["a"] for one in done} == {0, 1}, "neither came to the barrier without the other"
    for serial in (first, second):
        serial.close()


async def test_what_hangs_is_known_to_the_other_object_that_waited_for_its_turn(hang):
    first, second = Serial("t", SHORT, "busy place"), Serial("t", SHORT, "busy place")
    mine, others = await asyncio.gather(
        first.run([("bad", hang), ("good", lambda: 1)]), second.run([("bad", hang), ("other", lambda: 2)])
    )
    assert (str(mine["bad"]), mine["good"]) == ("bad: no answer within 0.05 s", 1)
    assert (str(others["bad"]), others["other"]) == ("bad: an earlier call has not come back", 2)
    assert hang.calls == 1
    assert first.out == second.out == {"bad"}
    hang.go.set()
    await back(second)
    assert first.out == frozenset()
    for serial in (first, second):
        serial.close()


def test_event_loops_do_not_clash_over_a_place():
    """Each has a token of its own: a lock that tasks of one loop waited for is none for those of another."""
    meet = threading.Barrier(2)

    async def contend():
        objects = [Serial("t", LONG, "place of loops") for _ in range(3)]
        calls = [[("a", partial(meet.wait, LONG))], [("b", lambda: 2)], [("c", lambda: 3)]]
        done = await asyncio.gather(*(one.run(batch) for one, batch in zip(objects, calls, strict=True)))
        for one in objects:
            one.close()
        return [value for result in done[1:] for value in result.values()]

    found = []
    loops = [threading.Thread(target=lambda: found.append(asyncio.run(contend()))) for _ in range(2)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(LONG)
    assert found == [[2, 3], [2, 3]]
