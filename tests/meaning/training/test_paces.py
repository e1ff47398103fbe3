"""How many operations of a communicator make a step, from what hosts report at different times."""

from random import Random

import pytest

from exporter.meaning.training.paces import Counted, Pace, is_even, observe, of_a_step, whole_numbers
from exporter.meaning.training.records import Communicator, Job

LAYERS, CLOCK = ("0xa", "AllReduce"), ("0xb", "AllReduce")


def history(per_step, clock, period=1, *, interval=3.7, step=2.5, seconds=60.0):
    """Return how far a host was each few seconds: `clock` says how many operations of the clock a part of a step has.

    A step has `per_step` operations of the layers, and `period` of the clock.
    """
    seen = []
    for place in range(int(seconds / interval)):
        steps, part = divmod(place * interval / step, 1)
        seen.append({LAYERS: Pace(int((steps + part) * per_step), int(steps) * period + clock(part), "gpu-0")})
    return seen


def at_the_end(part):
    return 0


def bunched(part):
    return 5 if part > 0.8 else 0


def spread(part):
    return int(part * 5)


@pytest.mark.parametrize(("clock", "even"), [(bunched, False), (spread, True)])
def test_operations_of_the_clock_that_follow_each_other_are_of_one_step(clock, even):
    """Five of a step come together; those of five steps, of which one is late, come one by one."""
    assert is_even(history(160, clock, 5, step=12.5), [LAYERS], 5) is even


def test_reports_that_are_always_of_the_same_part_of_a_step_show_nothing():
    assert not is_even(history(160, spread, 5, interval=12.5, step=12.5), [LAYERS], 5)


def test_operations_of_a_step_are_those_of_one_host():
    (found,) = of_a_step(history(32, at_the_end), [LAYERS], 1).values()
    assert found.host == "gpu-0"
    assert abs(found.operations - 32) <= found.error < 2


@pytest.mark.parametrize("interval", [3.7, 4.3])
def test_few_long_steps_limit_the_operations_of_a_step(interval):
    """Four or five steps of 20 seconds: a part of one more would be several operations more."""
    for seconds in range(86, 120, 4):
        (found,) = of_a_step(
            history(32, at_the_end, interval=interval, step=20.0, seconds=seconds), [LAYERS], 1
        ).values()
        assert abs(found.operations - 32) <= found.error < 2.5
        assert whole_numbers({}, {LAYERS: found}, 4) == {LAYERS: 32}


def test_a_count_that_is_surely_of_no_whole_micro_batches_is_kept():
    assert whole_numbers({}, {LAYERS: Counted(34.0, 0.4)}, 4) == {LAYERS: 34}


def test_too_few_steps_of_one_host_are_not_counted():
    assert of_a_step(history(32, at_the_end, seconds=8.0), [LAYERS], 1) == {}


def test_a_host_reports_all_its_ranks_at_one_time():
    """The latest record of the clock of rank 0 was lost; the other host has reported one step less."""
    hosts = {"0": "gpu-0", "1": "gpu-0", "8": "gpu-1"}
    job = Job(0.0, 0.0, hosts=hosts)
    for (name, kind), reached in {LAYERS: [200, 203, 160], CLOCK: [5, 6, 4]}.items():
        members = dict.fromkeys(hosts, 0.0)
        numbers = dict(zip([(kind, rank) for rank in hosts], reached, strict=True))
        job.communicators[name] = Communicator(3, 2, 3, 0.0, "gpu-0", members=members, reached=numbers)
    assert observe(job, [LAYERS], [CLOCK]) == {LAYERS: Pace(200, 6, "gpu-0")}


def test_streams_with_the_same_work_have_the_same_number():
    chance = Random(1)
    exact = {(f"0x{host}", "AllReduce"): Counted(32 + chance.uniform(-3, 3), 3.2, f"gpu-{host}") for host in range(16)}
    more = {("0xf0", "AllReduce"): Counted(64.0, 3.2, "gpu-0")}
    assert whole_numbers({}, exact | more) == dict.fromkeys(exact, 32) | dict.fromkeys(more, 64)


@pytest.mark.parametrize(("hosts", "expected"), [(1, 35), (16, 32)])
def test_a_number_stays_the_same_while_it_may_be_right(hosts, expected):
    exact = {(f"0x{host}", "AllReduce"): Counted(32.1, 3.2, f"gpu-{host}") for host in range(hosts)}
    assert set(whole_numbers(dict.fromkeys(exact, 35), exact).values()) == {expected}
