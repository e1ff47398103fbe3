"""Who is named from the steps of a pool, and what that costs."""

import pytest

from exporter.meaning.training.candidates import WINDOWS, candidate
from exporter.meaning.training.laps import WARM_UP
from exporter.meaning.training.losses import loss_outside
from exporter.meaning.training.pools import Pool
from exporter.meaning.training.records import Communicator, Exchange, Job
from exporter.meaning.training.stragglers import suspects

MILLISECOND = 1000.0
STEP = 2.0
"""Seconds of a step."""


RUNNING = 100
"""Number of a step of a job that has been running for some time."""


def laps(*costs, first=RUNNING):
    """Return steps from their costs in milliseconds by name, of which the last one is complete now."""
    count = len(costs)
    return {
        first + number: (STEP * (number - count + 1), {name: cost * MILLISECOND for name, cost in one.items()})
        for number, one in enumerate(costs)
    }


def named(steps, members=128, window=WINDOWS[0], kept=()):
    found = candidate(steps, members, STEP, 0.0, window, kept)
    return None if found is None else set(found.names)


def test_a_rank_that_is_last_in_each_step_is_named_after_four():
    each = {"a": 200, "b": 20}
    assert [named(laps(*[each] * count)) for count in (3, 4)] == [None, {"a"}]


def test_a_pause_of_another_rank_is_no_evidence_against_it():
    steps = laps({"a": 200}, {"a": 200}, {"a": 200, "b": 2000}, {"a": 200}, {"a": 200}, {"a": 200})
    assert named(steps) == {"a"}


def test_pauses_of_other_ranks_in_the_past_do_not_outweigh_it():
    pauses = [{name: 2000} for name in "cdefghij"]
    assert named(laps(*pauses, *[{"a": 200}] * 6)) == {"a"}


def test_another_rank_that_was_last_for_several_steps_does():
    moved = [{"c": 250}] * 12
    assert named(laps(*moved, *[{"a": 200}] * 6)) is None


def test_a_rank_that_is_late_since_another_one_is_no_more_is_named_when_work_would_have_moved_on():
    steps = [laps({"c": 250}, {"c": 250}, *[{"a": 200}] * count) for count in (5, 10, 11, 12)]
    assert [named(one) for one in steps] == [None, None, None, {"a"}]


def test_a_pause_of_another_rank_in_the_step_before_delays_no_name():
    assert named(laps({"c": 250}, *[{"a": 200}] * 5)) == {"a"}


def test_work_that_moves_in_the_middle_of_a_step_is_that_of_both():
    """The first steps are those of c, one is in part that of c and in part that of a."""
    moved = [{"c": 460}, {"c": 178, "a": 222}, *[{"a": 450, "b": 30}] * 4]
    assert named(laps(*moved)) is None
    assert named(laps(*moved, *[{"a": 450, "b": 30}] * 8)) == {"a"}, "late for longer than work has moved in"


def test_of_a_job_that_has_just_begun_one_step_may_show_that_work_moves():
    steps = [{"c": 520, "b": 80}, *[{"a": 400, "b": 40}] * 5]
    assert named(laps(*steps, first=WARM_UP + 1)) is None
    assert named(laps(*steps)) == {"a"}, "else a pause is in one step alone"


BEFORE = {"noise": [{"c": 30}] * 2, "pause": [{"c": 2000}], "both": [{"a": 190, "b": 195}] * 2}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
def test_what_was_before_is_no_reason_to_wait_unless_another_one_was_as_late(before):
    assert named(laps(*before, *[{"a": 200, "b": 20}] * 8)) == {"a"}


def test_another_one_that_is_still_late_has_not_handed_its_work_over():
    steps = laps({"c": 100}, {"c": 100}, *[{"a": 250, "c": 100}] * 6)
    assert named(steps) == {"a"}


def test_a_rank_that_is_late_from_the_first_steps_on_is_named_like_any_other():
    assert named(laps(*[{"a": 200, "b": 20}] * 5, first=WARM_UP)) == {"a"}


@pytest.mark.parametrize(("members", "expected"), [(128, {"a"}), (4, None)])
def test_of_few_members_one_may_be_the_last_by_chance(members, expected):
    steps = laps({"a": 250}, {"a": 300}, {"a": 60, "b": 50}, {"a": 220}, {"a": 280})
    assert named(steps, members) == expected


def test_of_few_members_one_that_costs_the_same_each_time_is_named_sooner():
    steady = laps(*[{"a": 200, "b": 20}] * 5)
    assert [named(steady, members) for members in (4, 2)] == [{"a"}, None]


@pytest.mark.parametrize(("members", "steps"), [(4, 5), (2, 8)])
def test_one_of_few_members_is_named_after_as_many_steps_as_exclude_chance(members, steps):
    """Steps of 20 seconds: the window is shorter than one, and holds the latest ones. Before them nothing was wrong."""
    healthy, late = {"a": 3, "b": 4}, {"a": 200, "b": 20}

    def after(count):
        found = laps(*[healthy] * 3, *[late] * count)
        return {number: (time * 10, costs) for number, (time, costs) in found.items()}

    assert [named(after(count), members) for count in (steps - 1, steps)] == [None, {"a"}]


@pytest.mark.parametrize("hosts", [("gpu-0", "gpu-1"), ("gpu-0", "gpu-0")], ids=["between hosts", "in one host"])
def test_a_rank_costs_no_more_than_its_replica_shows_to_others(hosts):
    """In a pipeline a stage may have time: its rank is late in its pair by 200 ms, the step by 50 ms."""
    job = Job(0.0, 0.0, hosts={rank: hosts[rank in "cd"] for rank in "abcd"})
    for name in ("ab", "cd", "ac", "bd"):
        job.communicators[name] = Communicator(2, 0, 0, 0.0, "gpu-0", members=dict.fromkeys(name, 0.0))
    pairs = Pool(["ab", "cd"], inside=True, laps=laps(*[{"a": 200}] * 6))
    replicas = Pool(["ac", "bd"], laps=laps(*[{"a": 50, "b": 50, "c": 10}] * 6))
    window = WINDOWS[0]
    assert loss_outside(job, {"a"}, pairs, [pairs, replicas], STEP, 0.0, window) == pytest.approx(0.05 / STEP)
    assert loss_outside(job, {"a"}, pairs, [pairs], STEP, 0.0, window) == 1.0


@pytest.mark.parametrize(("cost", "expected"), [(41, {"a"}), (36, None), (29, None)])
def test_a_suspect_costs_a_fiftieth_of_the_time(cost, expected):
    """Of steps of 2 s."""
    assert named(laps(*[{"a": cost}] * 6)) == expected


@pytest.mark.parametrize(("cost", "expected"), [(36, {"a"}), (29, None)])
def test_a_name_that_is_given_is_kept_while_noise_may_explain_what_it_costs_less(cost, expected):
    assert named(laps(*[{"a": cost}] * 6), kept=[frozenset("a")]) == expected
    assert named(laps(*[{"a": cost}] * 6), kept=[frozenset("b"), frozenset("ab")]) is None, "it is another name"


def hosts_named(inside, between, count=10):
    """Return the hosts that are named in a pipeline of two stages and two replicas, of two ranks a host."""
    hosts = {"a0": "A", "a1": "A", "b0": "B", "b1": "B", "c0": "C", "c1": "C", "d0": "D", "d1": "D"}
    within = {f"in {host}": [rank for rank in hosts if hosts[rank] == host] for host in "ABCD"}
    across = {
        f"data {one}{two}{place}": [f"{one}{place}", f"{two}{place}"] for one, two in ("ab", "cd") for place in "01"
    }
    job = Job(0.0, 0.0, hosts=hosts, exchanges={rank: Exchange() for rank in hosts})
    for name, ranks in {**within, **across}.items():
        nodes = 1 if name in within else 2
        job.communicators[name] = Communicator(
            len(ranks), nodes, 0, 0.0, hosts[ranks[0]], members=dict.fromkeys(ranks, 0.0)
        )
    found = {
        "inside": Pool(list(within), inside=True, frequency=32, laps=laps(*inside)),
        "between": Pool(list(across), frequency=2, laps=laps(*between)),
    }
    ranks, named_hosts = suspects(job, found, STEP, 0.0)
    return named_hosts, {one.rank for one in ranks}


WAITS = [{"d0": 150, "d1": 150}] * 10
"""D waits for a stage of its replica, which shows as lateness to C, the same stage of the other one."""


def test_a_host_that_waits_for_a_stage_whose_work_moves_is_not_named():
    assert hosts_named([{"b0": 400}] * 5 + [{"b1": 400}] * 5, WAITS) == ([], set())


def test_noise_within_other_hosts_does_not_hide_a_slow_host():
    """Another rank is the last in each step, by as much."""
    noise = [{rank: 200} for rank in ["a0", "b0", "c0", "b1", "a1", "c1", "a0", "b0", "c0", "b1"]]
    assert hosts_named(noise, WAITS) == (["D"], {"d0", "d1"})
    assert hosts_named([{}] * 10, WAITS) == (["D"], {"d0", "d1"})


def test_ranks_of_a_slow_host_that_are_late_within_it_do_not_hide_it():
    assert hosts_named([{"b0": 20}] * 10, WAITS) == (["D"], {"d0", "d1"}), "too little to be the cause"


def test_a_slow_host_costs_what_its_last_rank_costs():
    """Another of its ranks is the last in each step; that most of them are late makes it the host."""
    hosts = {f"{host}{place}": host for host in "abcdefgh" for place in range(4)}
    job = Job(0.0, 0.0, hosts=hosts)
    job.communicators["all"] = Communicator(32, 8, 0, 0.0, "a", members=dict.fromkeys(hosts, 0.0))
    steps = [{f"c{place}": 200 + 40 * ((place + number) % 4) for place in range(4)} for number in range(10)]
    found = {"all": Pool(["all"], frequency=4, laps=laps(*[one | {"a0": 20} for one in steps]))}
    ranks, named_hosts = suspects(job, found, STEP, 0.0)
    assert named_hosts == ["c"]
    assert [one.loss for one in ranks] == [pytest.approx((320 - 20) / 1000 / STEP)] * 4


def test_of_a_slow_host_in_several_communicators_the_middle_one_counts():
    """Each of its ranks is in a group of its own with those of other hosts: all show the same delay, with noise."""
    hosts = {f"{host}{place}": host for host in "abcdefgh" for place in range(3)}
    job = Job(0.0, 0.0, hosts=hosts)
    for place in range(3):
        members = {f"{host}{place}": 0.0 for host in "abcdefgh"}
        job.communicators[f"data {place}"] = Communicator(8, 8, 0, 0.0, "a", members=members)
    found = {"all": Pool(list(job.communicators), frequency=1, laps=laps(*[{"c0": 190, "c1": 200, "c2": 290}] * 10))}
    ranks, named_hosts = suspects(job, found, STEP, 0.0)
    assert named_hosts == ["c"]
    assert [one.loss for one in ranks] == [pytest.approx(0.2 / STEP)] * 3
