"""Which steps of which communicators count together."""

from exporter.meaning.training import pools
from exporter.meaning.training.laps import Lap, Laps
from exporter.meaning.training.records import Communicator, Job
from exporter.meaning.training.steps import Steps

NOW = 100.0


def job(*communicators):
    """Return a job of communicators of two ranks each, each on a host of its own."""
    found = Job(NOW, 0.0)
    for name in communicators:
        ranks = [f"{name}{number}" for number in range(2)]
        found.communicators[name] = Communicator(
            2, 1, 2, NOW, name, members=dict.fromkeys(ranks, NOW), highest={"AllReduce": 100}
        )
        found.hosts |= dict.fromkeys(ranks, name)
    return found


def laps(**numbers):
    """Return laps of communicators, in which the first rank of each costs one second."""
    known = Laps(Steps(seconds=1.0, counts={(name, "AllReduce"): 4 for name in numbers}))
    for name, found in numbers.items():
        known.done[name, "AllReduce"] = {number: Lap(NOW, {f"{name}0": 1e6}, 1e6, carried=False) for number in found}
    return known


def test_a_step_counts_when_all_communicators_of_a_pool_have_it():
    """The one that has not reported may be that of the rank for which all wait."""
    (pool,) = pools.update(job("a", "b"), laps(a=range(4, 9), b=range(4, 8)), pools.Pools(), 1.0, NOW).values()
    assert {number: set(costs) for number, (_, costs) in pool.laps.items()} == {
        key: {"a0", "b0"} for key in range(4, 8)
    }


def test_steps_that_come_later_are_added():
    state, known, one = pools.Pools(), laps(a=[4], b=[4]), job("a", "b")
    pools.update(one, known, state, 1.0, NOW)
    for name in ("a", "b"):
        known.done[name, "AllReduce"][5] = Lap(NOW, {f"{name}1": 2e6}, 2e6, carried=False)
        known.added.append((name, "AllReduce", 5))
    (pool,) = pools.update(one, known, state, 1.0, NOW).values()
    assert [(number, costs) for number, (_, costs) in sorted(pool.laps.items())] == [
        (4, {"a0": 1e6, "b0": 1e6}),
        (5, {"a1": 2e6, "b1": 2e6}),
    ]


def test_a_communicator_that_is_silent_has_no_part_in_the_job():
    one = job("a", "b")
    one.communicators["a"].last_seen = NOW - 60
    (pool,) = pools.update(one, laps(a=[4, 5], b=[4]), pools.Pools(), 1.0, NOW).values()
    assert pool.communicators == ["b"]
