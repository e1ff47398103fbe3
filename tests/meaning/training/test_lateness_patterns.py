"""Patterns of lateness: what is found in series whose steps are known."""

import random

import pytest

from exporter.meaning.training.patterns import find_pattern, is_passed_on, without_missing
from exporter.meaning.training.teeth import Lateness, Pattern, are_last_in_turns, find_teeth, is_growing, is_later_than


def series(period, steps, place, *, first=0, seed=1, rank=lambda step, chance: str(step % 7)):
    """Return lateness of the last rank and of the others, by sequence number, from that at each place of a step."""
    chance = random.Random(seed)
    found = {}
    for number in range(first, first + period * steps):
        step, at = divmod(number, period)
        top, others = place(step, at, chance)
        found[number] = Lateness(top, others, rank(step, chance))
    return found


def ramp(step, at, chance):
    """A pass that computes on: ranks drift apart until its end. How far varies from step to step."""
    pace = random.Random(step).uniform(0.6, 1.4)
    return 1000.0 * (at + 1) * pace + chance.uniform(0, 200), 150.0 * (at + 1) * pace + chance.uniform(0, 30)


def blocked(step, at, chance):
    """Collectives that block: lateness is that of one operation, and twice as much in the second half of a step."""
    return 95.0 * (1 + (at >= 16)) * chance.uniform(0.8, 1.2), 9.0 * (1 + 2 * (at >= 16)) * chance.uniform(0.8, 1.2)


@pytest.mark.parametrize("period", [3, 12, 24, 300])
@pytest.mark.parametrize("first", [0, 7])
def test_a_ramp_is_found_with_its_period_and_where_it_begins(period, first):
    assert find_pattern(series(period, max(40 // period, 3) + 1, ramp, first=first)) == Pattern(period, 0)


def test_two_operations_are_no_ramp():
    """The second one is the later one also where they block, if more is computed before it."""
    assert find_teeth(series(2, 40, ramp), 2) is None


def test_passes_that_block_are_no_ramp():
    """Tensor parallelism: two operations of the forward pass, and two of the backward pass, each twice as long."""
    late = (900.0, 900.0, 1800.0, 1800.0)
    for period in (4, 8, 16):
        values = {n: Lateness(late[n % 4], late[n % 4] / 3, str(n * 7 % 5)) for n in range(320)}
        assert find_teeth(values, period) is None


def test_lateness_at_its_level_throughout_shows_no_step():
    """Of a step of 300 operations the last 260 begin when the last rank is there: the others differ by noise only."""
    values = {n: Lateness(9030.0 + n % 4, 64.0 + (n % 2) / 10, "11") for n in range(600)}
    assert find_teeth(values, 4) is None


def test_steps_in_which_a_late_rank_hides_the_ramp_do_not_change_the_period():
    def each_fifth(step, at, chance):
        return (100_000.0, 0.0) if step % 5 == 0 else ramp(step, at, chance)

    assert find_pattern(series(12, 60, each_fifth)) == Pattern(12, 0)


def test_a_late_rank_at_its_level_while_all_others_start_together_is_a_saw():
    def level(step, at, chance):
        others = ramp(step, at, chance)[1]
        return 50_000.0 * chance.uniform(0.95, 1.05), others if at < 3 else 0.0

    assert find_pattern(series(12, 40, level)).period == 12


@pytest.mark.parametrize("late", [0.0, 50_000.0])
def test_lateness_of_collectives_that_block_is_not_carried(late):
    def one(step, at, chance):
        top, others = blocked(step, at, chance)
        return top + late, others

    assert find_pattern(series(32, 32, one)) == Pattern(32, 0, ())


def test_lateness_that_another_rank_has_each_time_is_not_carried():
    ranks = [str(number) for number in range(8)]
    found = find_pattern(series(12, 40, ramp, rank=lambda step, chance: chance.choice(ranks)))
    assert found == Pattern(12, 0, ())


def test_a_reset_in_the_middle_of_a_step_is_found():
    """FSDP gathers in the forward and in the backward pass, which takes twice as long."""

    def passes(step, at, chance):
        top, others = ramp(step, at % 12, chance)
        return top * (1 + at // 12), others * (1 + at // 12)

    found = find_pattern(series(24, 40, passes))
    assert found in (Pattern(12, 0, (0,)), Pattern(24, 0, (0, 12)))
    assert find_teeth(series(24, 40, passes), 24) == Pattern(24, 0, (0, 12))


def test_noise_has_no_saw():
    def noise(step, at, chance):
        return chance.uniform(0, 1e5), chance.uniform(0, 1e4)

    assert [find_pattern(series(1, 600, noise, seed=seed)) for seed in range(20)] == [None] * 20


def test_of_two_ranks_one_that_is_late_each_time_has_no_saw():
    """No rank is between the median and the last one, so that nothing shows the others to start together."""

    def late(step, at, chance):
        return 1e5 * chance.uniform(0.97, 1.03), 0.0

    found = [find_pattern(series(1, 100, late, seed=seed, rank=lambda step, chance: "1")) for seed in range(50)]
    assert [one for one in found if one is not None and one.resets] == []


def test_lateness_of_a_single_operation_of_each_step_is_not_carried():
    def first(step, at, chance):
        return (577.0 if at == 0 else 20.0) * chance.uniform(0.9, 1.1), 5.0 * chance.uniform(0.9, 1.1)

    assert find_pattern(series(32, 32, first)) == Pattern(32, 0, ())


def test_lateness_is_passed_on_in_a_ramp_and_not_where_collectives_block():
    assert is_passed_on(series(300, 1, ramp))
    assert not is_passed_on(series(1, 80, lambda step, at, chance: (1e5, chance.uniform(0, 1e4))))
    assert not is_passed_on(series(1, 80, lambda step, at, chance: (1e5, 0.0)))


@pytest.mark.parametrize("seed", range(20))
def test_passes_that_block_are_no_ramp_where_steps_differ_in_how_late_ranks_are(seed):
    """Four micro-batches of a step, whose backward passes take twice as long; steps differ by a factor of e."""
    pace = random.Random(seed)
    steps = [pace.lognormvariate(0, 1) for _ in range(24)]
    late = (900.0, 900.0, 1800.0, 1800.0)
    values = {
        n: Lateness(late[n % 4] * steps[n // 16], late[n % 4] * steps[n // 16] / 3, str(n // 16 % 5))
        for n in range(384)
    }
    assert find_teeth(values, 4) is None


def test_lateness_grows_in_a_ramp_and_not_where_a_rank_begins_to_be_late():
    assert is_growing(series(40, 2, lambda step, at, chance: (4000.0 * (at + 1), chance.uniform(0, 1e4))))
    assert not is_growing(series(1, 80, lambda step, at, chance: (1e5 * (step > 40) + chance.uniform(0, 1e3), 0.0)))


def test_a_rank_that_is_later_than_an_operation_takes_is_late_from_the_one_before():
    """Buckets of 12 ms, behind which it is late by 100 to 200 ms; and operations that block for a step of 600 ms."""
    carried = series(40, 40, lambda step, at, chance: (1e5 + 2500.0 * at, 0.0))
    assert is_later_than(carried, 12e3)
    assert not is_later_than(carried, 600e3)
    paused = series(40, 40, lambda step, at, chance: (6e7 if step == 20 else 1e3, 0.0))
    assert not is_later_than(paused, 12e3), "a long pause of one step"


def test_ranks_that_are_last_in_turns_show_that_a_step_has_several_operations():
    turns = "11", "2", "11", "1", "2"
    assert are_last_in_turns(series(40, 10, ramp, rank=lambda step, chance: turns[step % 5]))
    assert not are_last_in_turns(series(1, 400, ramp, rank=lambda step, chance: str(chance.randrange(16))))


def test_a_rank_that_is_slow_for_a_while_is_not_last_in_turns_with_others():
    def rank(step, chance):
        return "3" if step % 160 < 40 else str(chance.randrange(16))

    assert not are_last_in_turns(series(1, 400, ramp, rank=rank))


def test_further_operations_that_the_others_begin_at_one_moment_are_queued_behind_the_first():
    def queued(step, at, chance):
        return (14_800.0, 330.0) if at == 0 else (5500.0 + chance.uniform(0, 50), chance.uniform(0, 3))

    def blocks(step, at, chance):
        return (14_800.0, 330.0) if at == 0 else (5500.0 + chance.uniform(0, 50), 120.0 + chance.uniform(0, 3))

    assert find_teeth(series(40, 12, queued, rank=lambda step, chance: "54"), 40) == Pattern(40, 0)
    assert find_teeth(series(40, 12, blocks, rank=lambda step, chance: "54"), 40) is None


@pytest.mark.parametrize("lost", [0.1, 0.15])
def test_operations_without_the_record_of_the_last_rank_do_not_hide_the_ramp(lost):
    """A rank that is late in each step is missing in some operations: then another one is last, by far less."""
    chance = random.Random(5)

    def late_by_more_and_more(step, at, chance):
        return 70_000.0 + 3400.0 * at * chance.uniform(0.95, 1.05), chance.uniform(1000, 7000)

    whole = series(40, 20, late_by_more_and_more, rank=lambda step, chance: "12")
    values = {}
    for number, one in whole.items():
        missing = chance.random() < lost
        late = chance.uniform(6000, 12_000) if missing else one.last
        values[number] = Lateness(late, one.others, chance.choice("2345") if missing else "12", whole=False)
    assert find_pattern(values) != Pattern(40, 0), "otherwise nothing was hidden"
    assert find_pattern(without_missing(values)) == Pattern(40, 0)


def test_an_operation_of_which_all_ranks_reported_is_kept():
    values = {n: Lateness(100.0 if n % 4 == 2 else 1000.0, 10.0, "2" if n % 4 == 2 else "12") for n in range(64)}
    assert without_missing(values) == values


def test_stages_of_a_pipeline_whose_places_have_forward_and_backward_passes_are_no_ramp():
    """Forward and backward passes of two operations each: half of the step is no period."""
    passes = (1, 1, 1, 2, 1, 2, 2, 2)
    late = [1000.0 * one for one in passes for _ in range(2)]
    chance = random.Random(3)
    steps = [chance.lognormvariate(0, 0.3) for _ in range(30)]
    values = {n: Lateness(late[n % 16] * steps[n // 16], 0.02 * late[n % 16], str(n // 16 % 3)) for n in range(480)}
    assert find_teeth(values, 8) is None
    assert find_teeth(values, 16) is None


def test_samples_of_operations_are_kept():
    """One operation in ten is recorded, on some ranks: nothing around one shows that a record is missing."""
    values = {10 * n: Lateness(100.0 * (n % 7), 10.0, str(n % 2), whole=False) for n in range(64)}
    assert without_missing(values) == values
