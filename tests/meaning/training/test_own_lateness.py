"""How much of a rank's lateness is its own in a pipeline whose ranks report sends and receives."""

import pytest

from exporter.meaning.training import pools
from exporter.meaning.training.laps import Lap, Laps
from exporter.meaning.training.own_lateness import RecentCosts
from exporter.meaning.training.records import Communicator, Exchange, Job
from exporter.meaning.training.steps import Steps

STEP = 2.0
EVERY = 5
LATE = 1e6
"""Microseconds that rank 2 is late by in each fifth step; rank 0, of the stage before it, waits for it."""


def job():
    """Return a pipeline of two stages of two replicas each: ranks 0 and 1, 2 and 3."""
    found = Job(0.0, 0.0)
    for name, ranks in {"first": "01", "last": "23"}.items():
        members = dict.fromkeys(ranks, 0.0)
        found.communicators[name] = Communicator(2, 2, 2, 0.0, name, members=members, highest={"AllReduce": 100})
    found.hosts = {rank: f"gpu-00{rank}" for rank in "0123"}
    found.exchanges = {rank: Exchange() for rank in "0123"}
    return found


def played(steps):
    """Return costs of each step of the pool, after so many steps of which each fifth is late."""
    one, state = job(), pools.Pools()
    known = Laps(Steps(seconds=STEP, counts=dict.fromkeys([("first", "AllReduce"), ("last", "AllReduce")], 1)))
    known.done = {("first", "AllReduce"): {}, ("last", "AllReduce"): {}}
    found = {}
    for number in range(steps):
        now, is_late = number * STEP, number % EVERY == EVERY - 1
        for rank, exchange in one.exchanges.items():
            exchange.add(LATE if is_late and rank == "0" else 0.0, now)
        for name, rank in {"first": "0", "last": "2"}.items():
            known.done[name, "AllReduce"][number] = Lap(now, {rank: LATE if is_late else 0.0}, 0.0, carried=False)
            known.added.append((name, "AllReduce", number))
            one.communicators[name].last_seen = one.last_seen = now
        (pool,) = pools.update(one, known, state, STEP, now).values()
        found = {number: costs for number, (_, costs) in pool.laps.items()}
    return found


def test_a_rank_that_waits_for_a_late_stage_now_and_then_is_charged_with_a_small_part():
    """By its share of the time it would be discharged of a fifth of what it waited in a step that is late."""
    late = {number: costs for number, costs in played(60).items() if number % EVERY == EVERY - 1 and number > 20}
    assert late
    for costs in late.values():
        assert costs["2"] == pytest.approx(LATE)
        assert costs.get("0", 0.0) < 0.1 * LATE


def test_what_was_waited_is_taken_in_proportion():
    recent = RecentCosts()
    for time, cost in enumerate((0.0, 300.0, 0.0, 300.0)):
        recent.add({"0": cost, "1": 100.0}, time / 1e6)
    shares = recent.own_shares({"0": 50.0, "1": 200.0, "2": 10.0})
    assert shares == {"0": pytest.approx(2 / 3, rel=1e-3), "1": 0.0, "2": 0.0}


def test_older_steps_count_less():
    recent = RecentCosts()
    recent.add({"0": 1000.0}, 0.0)
    for number in range(60):
        recent.add({"0": 100.0}, 100.0 + number)
    assert recent.own_shares({"0": 50.0})["0"] == pytest.approx(0.5, rel=0.01)
