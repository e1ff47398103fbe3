"""The poller: when it reads, how long tables stay fresh, what it counts and what it logs."""

import asyncio
import contextlib
import logging

import pytest

from exporter.core import poller as module
from exporter.core import vocabulary
from exporter.core.clock import Clock
from exporter.core.poller import MAX_FAILURE_KINDS, Poller
from exporter.core.source import Failure, Reading, SourceError
from exporter.core.table import Column, RowKeeper, Table

SCHEMA = vocabulary.schema("fabric_test_", ("device",), ["link_up", "mtu_bytes"])
OTHER = vocabulary.schema("fabric_other_", ("device",), ["link_up"])
LONG = 60.0


def table(value=1, schema=SCHEMA, part=""):
    columns = {ending: Column(metric, [value]) for ending, metric in schema.metrics.items()}
    return Table(schema, RowKeeper(("device",)).rows([("d",)]), columns, 0.0, part=part)


GOOD = Reading([table()])


class FakeSource:
    """A source that returns scripted Readings, raises scripted errors, or hangs; the last answer is repeated."""

    name = "fake"
    target = ""

    def __init__(self, *answers, interval=LONG, applies=True, target="", changed=False):
        self.answers, self.interval, self.present, self.target = list(answers), interval, applies, target
        self.changed = asyncio.Event() if changed else None
        self.reads = self.applies_calls = self.closed = self.busy = 0
        self.times = []

    async def applies(self):
        self.applies_calls += 1
        if isinstance(self.present, Exception):
            raise self.present
        return self.present

    async def read(self):
        assert not self.busy, "read twice at once"
        self.reads += 1
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        if answer == "hang":
            self.busy = 1
            try:
                await asyncio.Event().wait()
            finally:
                self.busy = 0
        return answer

    async def close(self):
        self.closed += 1


class SetClock:
    """Clocks that tests set: `both` is what the poller is given."""

    def __init__(self):
        self.now = 1000.0
        self.both = Clock(lambda: self.now, lambda: 1.7e9)


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, "exporter.core.poller")

    def take():
        found = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return found

    return take


@contextlib.asynccontextmanager
async def running(poller):
    task = asyncio.create_task(poller.run())
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until(condition):
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110  # the state of the poller has no event
            await asyncio.sleep(0.001)


async def test_a_successful_read_is_recorded_with_its_time(clock, lines):
    poller = Poller(FakeSource(GOOD), clock=clock.both)
    assert not poller.first_read.is_set()
    assert (poller.status.up, poller.status.last_success) == (None, None)
    await poller.poll()
    assert poller.fresh_tables() == [*GOOD.tables]
    assert poller.first_read.is_set()
    assert (poller.status.up, poller.status.last_success, poller.status.reads, poller.status.reason) == (
        True,
        1.7e9,
        1,
        "",
    )
    assert poller.status.failures == {}
    assert poller.status.duration == 0.0
    assert lines() == []


async def test_an_absent_source_is_no_failure_and_is_checked_at_each_poll(lines):
    source = FakeSource(GOOD, applies=False)
    poller = Poller(source)
    await poller.poll()
    await poller.poll()
    assert (source.applies_calls, source.reads) == (2, 0)
    assert (poller.status.up, poller.status.failures, poller.fresh_tables(), lines()) == (None, {}, (), [])
    assert poller.first_read.is_set()
    source.present = True
    await poller.poll()
    await poller.poll()
    assert (poller.status.up, source.applies_calls, source.reads) == (True, 3, 2)


async def test_a_source_that_failed_and_then_disappeared_is_no_longer_down(lines):
    source = FakeSource(SourceError("refused", "x"))
    poller = Poller(source)
    await poller.poll()
    source.present = False
    await poller.poll()
    await poller.poll()
    assert (poller.status.up, poller.status.reason, poller.tables) == (None, "", ())
    assert lines()[1:] == [("INFO", "fake: nothing left to read")]


@pytest.mark.parametrize(
    ("fault", "reason", "text"),
    [
        (SourceError("auth", "leaf-1: wrong community"), "auth", "leaf-1: wrong community"),
        (TimeoutError("connect to 192.0.2.1"), "timeout", "connect to 192.0.2.1"),
        ("hang", "timeout", "no answer within 0.02 s"),
        (ZeroDivisionError("oops"), "internal", "ZeroDivisionError: oops"),
    ],
)
async def test_failed_reads_are_counted_each_time_and_logged_once(fault, reason, text, lines):
    source = FakeSource(fault)
    poller = Poller(source, deadline=0.02)
    for _ in range(3):
        await poller.poll()
    assert (poller.status.up, poller.status.reason) == (False, reason)
    assert poller.status.failures == {("", reason): 3}
    assert [line for line in lines() if line[0] == "WARNING"] == [
        ("WARNING", f"fake: cannot be read ({reason}): {text}")
    ]
    source.answers = [GOOD]
    await poller.poll()
    await poller.poll()
    assert lines() == [("INFO", "fake: is read again")]
    assert (poller.status.up, poller.status.reason) == (True, "")


async def test_another_reason_is_logged_again(lines):
    poller = Poller(FakeSource(SourceError("a", "1"), SourceError("b", "2"), SourceError("b", "3")))
    for _ in range(3):
        await poller.poll()
    assert [line[1] for line in lines()] == ["fake: cannot be read (a): 1", "fake: cannot be read (b): 2"]


async def test_an_error_in_this_program_is_logged_once_with_its_traceback(caplog):
    poller = Poller(FakeSource(ValueError("bad"), applies=True))
    await poller.poll()
    await poller.poll()
    traces = [record for record in caplog.records if record.exc_info]
    assert [record.levelname for record in traces] == ["ERROR"]
    assert traces[0].getMessage() == "fake: error in this program; other sources continue"


async def test_a_source_whose_applies_raises_has_failed():
    poller = Poller(FakeSource(GOOD, applies=OSError("x")))
    await poller.poll()
    assert (poller.status.up, poller.status.reason) == (False, "internal")


async def test_tables_are_stale_two_intervals_after_the_last_successful_read(clock):
    poller = Poller(FakeSource(GOOD, SourceError("x", "y"), interval=5.0), clock=clock.both)
    await poller.poll()
    clock.now += 10.0
    await poller.poll()
    assert poller.fresh_tables() == [*GOOD.tables]
    clock.now += 0.001
    assert poller.fresh_tables() == ()
    assert poller.status.last_success is not None


async def test_tables_that_take_long_to_derive_stay_fresh_as_much_longer(clock):
    def slow(state, table):
        clock.now += 8.0
        return state, [table]

    poller = Poller(FakeSource(GOOD, interval=5.0), [slow], steps_in_thread=True, clock=clock.both)
    await poller.poll()
    clock.now += 18.0
    assert poller.fresh_tables() != ()
    clock.now += 0.001
    assert poller.fresh_tables() == ()


async def test_partial_failures_are_counted_each_time_and_logged_when_they_begin_and_end(lines):
    bad = Failure("mlx5_1", "einval", "/sys/x: Invalid argument")
    reading = Reading([table()], [bad, bad])
    poller = Poller(FakeSource(reading, reading, Reading([table()], [Failure("mlx5_2", "enodev", "gone")]), GOOD))
    await poller.poll()
    await poller.poll()
    assert lines() == [("WARNING", "fake: mlx5_1 (einval): /sys/x: Invalid argument")]
    await poller.poll()
    assert lines() == [("WARNING", "fake: mlx5_2 (enodev): gone"), ("INFO", "fake: mlx5_1 (einval): ended")]
    await poller.poll()
    assert lines() == [("INFO", "fake: mlx5_2 (enodev): ended")]
    assert poller.status.failures == {("mlx5_1", "einval"): 4, ("mlx5_2", "enodev"): 1}
    assert poller.status.up is True


async def test_kinds_of_failures_are_bounded_and_all_failures_counted():
    many = [Failure(f"device {place}", "einval", "") for place in range(MAX_FAILURE_KINDS + 300)]
    poller = Poller(FakeSource(Reading([], many)))
    await poller.poll()
    await poller.poll()
    assert len(poller.status.failures) == MAX_FAILURE_KINDS + 1
    assert poller.status.failures["other", "einval"] == 600
    assert sum(poller.status.failures.values()) == 2 * len(many)


async def test_many_failures_at_once_are_few_log_lines(lines):
    many = [Failure(f"device {place:03}", "einval", "detail") for place in range(100)]
    poller = Poller(FakeSource(Reading([], many), Reading([])))
    await poller.poll()
    logged = lines()
    assert logged[0] == ("WARNING", "fake: device 000 (einval): detail")
    assert (len(logged), logged[-1]) == (module.MAX_LOGGED_FAILURES + 1, ("INFO", "fake: and 80 more failures"))
    await poller.poll()
    assert lines()[-1] == ("INFO", "fake: and 80 more ended")


async def test_steps_get_the_tables_of_the_step_before_and_keep_a_state_for_each_table():
    def count(state, one):
        return (state or 0) + 1, [one, table((state or 0) + 1, OTHER, part=one.part)] if one.schema is SCHEMA else [one]

    seen = []

    def watch(state, one):
        seen.append((state, one.schema.prefix, one.part))
        return (one.schema.prefix, one.part), [one]

    poller = Poller(FakeSource(Reading([table(part="a"), table(part="b")])), [count, watch])
    await poller.poll()
    assert [(one.schema.prefix, one.part) for one in poller.tables] == [
        ("fabric_test_", "a"),
        ("fabric_other_", "a"),
        ("fabric_test_", "b"),
        ("fabric_other_", "b"),
    ]
    await poller.poll()
    assert [one.values("link_up") for one in poller.tables] == [[1], [2], [1], [2]]
    assert all(state is None for state, *_ in seen[:4])
    assert all(state == tuple(rest) for state, *rest in seen[4:])


async def test_an_error_in_a_step_fails_that_read_only():
    faults = [RuntimeError("meaning"), None]

    def step(state, one):
        fault = faults.pop(0)
        if fault:
            raise fault
        return state, [one]

    poller = Poller(FakeSource(GOOD), [step])
    await poller.poll()
    assert (poller.status.up, poller.status.reason, poller.tables) == (False, "internal", ())
    await poller.poll()
    assert poller.status.up is True
    assert len(poller.tables) == 1


async def test_dropped_metrics_are_not_exported():
    poller = Poller(FakeSource(GOOD), drop=["fabric_test_mtu_*", "fabric_nothing"])
    await poller.poll()
    assert [list(one.columns) for one in poller.tables] == [["link_up"]]


DETAILED = vocabulary.schema(
    "fabric_fine_", ("device",), ["link_up", "mtu_bytes", "fcs_errors_total"], details=["mtu_bytes"]
)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["link_up", "fcs_errors_total"]),
        ({"keep": ["fabric_fine_mtu_bytes"]}, ["link_up", "mtu_bytes", "fcs_errors_total"]),
        ({"keep": ["fabric_other_*", "*_mtu_*"]}, ["link_up", "mtu_bytes", "fcs_errors_total"]),
        ({"keep": ["fabric_fine_link_*"]}, ["link_up", "fcs_errors_total"]),
        ({"keep": ["mtu_bytes"]}, ["link_up", "fcs_errors_total"]),  # a pattern must match the whole name
        ({"keep": ["*"], "drop": ["*_bytes"]}, ["link_up", "fcs_errors_total"]),  # drop takes precedence
        ({"keep": ["*"], "drop": ["*"]}, []),
    ],
)
async def test_details_are_exported_only_if_kept(options, left):
    poller = Poller(FakeSource(Reading([table(schema=DETAILED)])), **options)
    for _ in range(2):
        await poller.poll()
        assert [list(one.columns) for one in poller.tables] == [left]


async def test_steps_get_details_that_are_not_exported():
    def step(state, one):
        return state, (one, table(one.numbers("mtu_bytes")[0] + 1, OTHER))

    poller = Poller(FakeSource(Reading([table(8, DETAILED)])), [step])
    await poller.poll()
    assert [one.values("link_up") for one in poller.tables] == [[8], [9]]


async def test_run_reads_at_each_tick_and_leaves_the_source_open():
    source = FakeSource(GOOD, interval=0.005)
    poller = Poller(source, deadline=LONG)
    async with running(poller):
        await until(lambda: source.reads >= 4)
    assert source.closed == 0


async def test_no_error_of_a_source_ends_the_poller():
    source = FakeSource(RuntimeError("a"), SourceError("b", "c"), "hang", GOOD, interval=0.01)
    poller = Poller(source)
    async with running(poller):
        await until(lambda: poller.status.up)
    assert poller.status.failures == {("", "internal"): 1, ("", "b"): 1, ("", "timeout"): 1}


async def test_missed_ticks_are_counted_and_skipped(clock, monkeypatch):
    due = []

    class Slow(FakeSource):
        async def read(self):
            clock.now += {2: 32.0, 3: 1.0}.get(self.reads + 1, 0.0)
            return await super().read()

    source = Slow(GOOD, interval=10.0)
    poller = Poller(source, deadline=LONG, clock=clock.both)
    stop = asyncio.Event()

    async def wait(at):
        due.append(at)
        if len(due) == 4:
            stop.set()
            await asyncio.Event().wait()
        clock.now = max(clock.now, at)

    monkeypatch.setattr(poller, "_wait", wait)
    async with running(poller):
        await asyncio.wait_for(stop.wait(), LONG)
    assert due == [1010.0, 1050.0, 1060.0, 1070.0]
    assert poller.status.overruns == 3


async def test_targets_that_start_together_are_spread_over_most_of_an_interval(clock, monkeypatch):
    first = {}
    for name in ("leaf-1", "leaf-2", "leaf-3", ""):
        poller = Poller(FakeSource(GOOD, interval=10.0, target=name), deadline=LONG, clock=clock.both)
        waited = asyncio.Event()

        async def wait(at, name=name, waited=waited):
            first[name] = at - clock.now
            waited.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(poller, "_wait", wait)
        async with running(poller):
            await asyncio.wait_for(waited.wait(), LONG)
    assert first.pop("") == 10.0
    assert len(set(first.values())) == 3
    assert all(1.0 <= seconds <= 10.0 for seconds in first.values())
    assert max(first.values()) - min(first.values()) > 2.0


async def test_a_change_is_read_at_once_with_a_minimum_gap(monkeypatch):
    slept = []
    sleep = asyncio.sleep

    async def watched(seconds):
        slept.append(seconds)
        await sleep(0)

    source = FakeSource(GOOD, changed=True)
    poller = Poller(source)
    async with running(poller):
        await until(lambda: source.reads == 1)
        monkeypatch.setattr(module.asyncio, "sleep", watched)
        for place in range(2, 5):
            source.changed.set()
            async with asyncio.timeout(LONG):
                while source.reads < place or source.changed.is_set():
                    await sleep(0)
        monkeypatch.undo()
    assert source.reads == 4
    assert len(slept) == 3
    assert all(0 < seconds <= module.MIN_GAP_SECONDS for seconds in slept[1:])


async def test_a_source_without_changes_is_read_at_each_tick():
    source = FakeSource(GOOD, interval=0.005, changed=True)
    async with running(Poller(source, deadline=LONG)):
        await until(lambda: source.reads >= 3)


async def test_a_cancelled_read_is_no_failure():
    source = FakeSource("hang")
    poller = Poller(source)
    async with running(poller):
        await until(lambda: source.busy)
    assert (poller.status.failures, source.busy, source.closed) == ({}, 0, 0)
