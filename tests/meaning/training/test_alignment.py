"""Timings of ranks are matched to operations and counted as evidence."""

import math
import random
import sys

import pytest

from exporter.meaning.training import alignment
from exporter.meaning.training.alignment import Collectives, size_bucket
from exporter.meaning.training.records import (
    SETTLED_WINDOW,
    Arrivals,
    Communicator,
    Pending,
    RecentTraffic,
    SettledNumbers,
    Stream,
    Timing,
    Traffic,
)

MIB = 1 << 20


def stream(rank, *, job="llm", communicator="0xa", kind="AllReduce", ranks=4, nodes=2):
    return Stream(job, communicator, kind, str(rank), ranks, nodes, f"gpu-{rank}")


def take(known, times, now, *, number=1, size=MIB, **which):
    """Add one operation: microseconds by rank."""
    for rank, microseconds in times.items():
        known.add(stream(rank, **which), [Timing(number, size, microseconds)], now)


@pytest.fixture
def known():
    return Collectives()


def compared(known, since=0.0):
    """Return the number of operations that were compared after a time."""
    return sum(one.compared for one in known.jobs["llm"].communicators["0xa"].ticks if one.time > since)


def arrivals(known, kind="AllReduce"):
    """Return which ranks started the last operation late, the last one first."""
    return known.jobs["llm"].communicators["0xa"].arrivals[kind][-1]


def test_the_last_rank_has_the_shortest_time_and_the_others_waited(known):
    take(known, {0: 1000, 1: 1010, 2: 200, 3: 990}, 10.0)
    known.settle(10.0)
    assert compared(known) == 1
    assert arrivals(known) == Arrivals(1, MIB, 1.0, {"2": 800}, 10.0, 10.0)
    waits = known.jobs["llm"].waits
    assert waits.late == {"2": 800}  # after the middle one of 200, 990, 1000, 1010
    assert waits.waited == {"0": 800, "1": 810, "3": 790}
    assert known.jobs["llm"].matched == 1


def test_differences_within_noise_are_not_lateness(known):
    take(known, {0: 1000, 1: 1010, 2: 960, 3: 990}, 10.0)
    known.settle(10.0)
    assert (compared(known), known.jobs["llm"].waits.late, arrivals(known).late) == (1, {}, {})


def test_late_ranks_are_in_order_and_the_last_quarter_is_not_among_the_others(known):
    take(known, {0: 1000, 1: 1000, 2: 200, 3: 600, 4: 1000}, 10.0, ranks=5)
    known.settle(10.0)
    assert list(arrivals(known).late.items()) == [("2", 800), ("3", 400)]
    assert arrivals(known).others == 400  # of the rank between the median and the last quarter


def test_an_operation_waits_for_reporting_ranks_for_a_limited_time(known):
    take(known, {0: 1, 1: 1, 2: 1, 3: 1}, 10.0, number=1)
    known.settle(10.0)
    take(known, {0: 1000, 1: 1000, 3: 300}, 12.0, number=2)
    known.settle(12.0)
    assert known.jobs["llm"].partial == 0
    known.settle(12.0 + alignment.PATIENCE_SECONDS)
    assert (known.jobs["llm"].matched, known.jobs["llm"].partial, known.jobs["llm"].unmatched) == (1, 1, 0)
    assert arrivals(known) == Arrivals(2, MIB, 0.75, {"3": 700}, 0.0, 19.0)


def test_a_rank_that_reported_a_later_operation_is_not_waited_for(known):
    """Each rank reports in order: the record that is missing is lost."""
    take(known, {0: 1000, 1: 1000, 3: 300}, 10.0, number=1)
    take(known, {0: 1, 1: 1, 2: 1, 3: 1}, 10.0, number=2)
    known.settle(10.0)
    job = known.jobs["llm"]
    assert (job.matched, job.partial, job.pending) == (1, 1, 0)


def test_a_number_that_one_rank_alone_reports_does_not_hide_those_of_the_others(known):
    take(known, {0: 1, 1: 1, 2: 1, 3: 1}, 10.0, number=1)
    take(known, {2: 1}, 10.0, number=1 << 62)
    known.settle(10.0)
    communicator = known.jobs["llm"].communicators["0xa"]
    assert communicator.highest == {"AllReduce": 1}
    known.settle(10.0 + alignment.PATIENCE_SECONDS)
    take(known, {3: 1}, 18.0, number=1)
    assert (known.jobs["llm"].late, known.jobs["llm"].unmatched) == (1, 1)  # number 1 is known to be settled
    take(known, {0: 1, 1: 1, 2: 1, 3: 1}, 18.0, number=2)
    known.settle(18.0)
    assert communicator.highest == {"AllReduce": 2}


def test_lateness_is_that_of_arrivals_where_they_are_known(known):
    """Three ranks had the operation queued behind the one before: durations show no difference to the last rank."""
    stream = [Stream("llm", "0xa", "AllReduce", str(rank), 4, 4, f"gpu-{rank}", 4) for rank in range(4)]
    for rank, queued in enumerate((900.0, 850.0, 0.0, 900.0)):
        known.add(stream[rank], [Timing(1, MIB, 100.0, 1.0, queued)], 10.0)
    known.settle(10.0)
    assert arrivals(known).late == {"2": 900.0}
    assert known.jobs["llm"].waits.waited == {}
    (tick,) = known.jobs["llm"].communicators["0xa"].ticks
    assert (tick.compared, tick.arrivals, tick.bus["AllReduce", MIB].microseconds) == (1, 1, 100.0)


def test_too_few_ranks_show_only_the_bandwidth(known):
    take(known, {0: 1, 1: 1, 2: 1, 3: 1}, 10.0, number=1)
    known.settle(10.0)
    take(known, {2: 500.0}, 12.0, number=2, size=4 * MIB)
    known.settle(20.0)
    assert known.jobs["llm"].unmatched == 1
    assert compared(known) == 1
    last = known.jobs["llm"].communicators["0xa"].ticks[-1]
    assert last.bus["AllReduce", 4 * MIB] == Traffic(4 * MIB, 500.0, [(4 * MIB / 500, 0.25)])


def test_a_late_record_opens_no_new_operation(known):
    take(known, {0: 1, 1: 1, 2: 1}, 10.0)
    known.settle(10.0 + alignment.PATIENCE_SECONDS)
    take(known, {3: 1}, 15.0)
    known.settle(60.0)
    job = known.jobs["llm"]
    assert (job.late, job.pending, job.matched + job.partial) == (1, 0, 1)


def test_jobs_communicators_kinds_and_numbers_are_separate(known):
    for which in ({"job": "a"}, {"job": "b"}, {"communicator": "0xb"}, {"kind": "AllGather"}, {"number": 7}):
        take(known, {0: 1000, 1: 100}, 10.0, ranks=2, **which)
    known.settle(10.0)
    assert [known.jobs[name].matched for name in ("a", "b", "llm")] == [1, 1, 3]


@pytest.mark.parametrize(
    ("which", "timing"),
    [
        ({"kind": "Broadcast"}, Timing(1, MIB, 5.0)),  # its ranks do not end together
        ({"ranks": 1}, Timing(1, MIB, 5.0)),
        ({}, Timing(1, MIB, 5.0, timed=0)),  # that of the host, not of the kernel
    ],
)
def test_times_not_measured_on_the_gpu_are_ignored(known, which, timing):
    known.add(stream(0, **which), [timing], 1.0)
    known.settle(100.0)
    communicators = [one for job in known.jobs.values() for one in job.communicators.values()]
    assert all(not any(one.pending.values()) and not one.ticks for one in communicators)


def test_pending_operations_are_bounded_for_each_job(known, monkeypatch):
    monkeypatch.setattr(alignment, "MAX_PENDING_JOB", 10)
    known.add(stream(0), [Timing(number, 1, 1.0) for number in range(25)], 1.0)
    known.add(stream(0, job="other"), [Timing(1, 1, 1.0)], 1.0)
    assert (known.jobs["llm"].pending, known.jobs["llm"].dropped) == (10, 15)
    assert known.jobs["other"].pending == 1


def test_the_number_of_jobs_is_bounded(known, monkeypatch):
    monkeypatch.setattr(alignment, "MAX_JOBS", 2)
    for name in "abc":
        known.add(stream(0, job=name), [Timing(1, 1, 1.0)], 1.0)
    assert set(known.jobs) == {"a", "b"}


def test_members_of_a_communicator_are_bounded_and_silent_ones_replaced(known):
    take(known, {0: 1, 1: 1}, 0.0, ranks=2)
    take(known, {2: 1}, 1.0, ranks=2)
    assert known.jobs["llm"].dropped == 1
    take(known, {0: 1, 2: 1}, 100.0, ranks=2, number=2)
    assert set(known.jobs["llm"].communicators["0xa"].members) == {"0", "2"}


def test_silent_jobs_and_communicators_are_dropped(known):
    take(known, {0: 1}, 0.0)
    take(known, {0: 1}, 500.0, communicator="0xb")
    known.settle(700.0)
    assert set(known.jobs["llm"].communicators) == {"0xb"}
    known.settle(1200.0)
    assert known.jobs == {}


def test_evidence_covers_the_last_minute_and_at_least_twelve_sums(known):
    for now in range(0, 300, 5):
        take(known, {0: 1000, 1: 100}, float(now), number=now, ranks=2)
        known.settle(float(now))
    communicator = known.jobs["llm"].communicators["0xa"]
    assert [tick.time for tick in communicator.ticks] == [float(now) for now in range(235, 300, 5)]
    assert compared(known, 280.0) == 3
    assert communicator.bus == {("AllReduce", MIB): RecentTraffic(13, 13 * MIB, 1300.0)}
    for now in (320.0, 345.0):
        take(known, {0: 1000, 1: 100}, now, number=int(now), ranks=2)
        known.settle(now)
    assert [tick.time for tick in communicator.ticks][-3:] == [295.0, 320.0, 345.0]
    assert len(communicator.ticks) == alignment.HISTORY_TICKS + 1  # the oldest goes before the next one comes
    known.settle(345.0 + alignment.MAX_HISTORY_SECONDS)
    assert (len(communicator.ticks), len(communicator.bus)) == (1, 1)
    known.settle(346.0 + alignment.MAX_HISTORY_SECONDS)
    assert (len(communicator.ticks), communicator.bus) == (0, {})


def test_time_in_operations_between_two_ranks_decays(known):
    take(known, {0: 1000, 1: 100}, 10.0, ranks=2)
    for number in range(300):  # half of each second
        known.add(stream(0, kind="SendRecv", communicator="0xc", ranks=2), [Timing(number, MIB, 5e5)], 10.0 + number)
    exchanges = known.jobs["llm"].exchanges
    assert exchanges.keys() == {"0"}
    assert exchanges["0"].share(309.0) == pytest.approx(0.5, rel=0.03)
    assert exchanges["0"].share(329.0) == pytest.approx(0.5 / math.e, rel=0.03)


def test_a_rank_that_is_in_no_collective_has_no_time_in_exchanges(known):
    known.add(stream(7, kind="Send", ranks=2), [Timing(1, MIB, 5.0)], 1.0)
    known.add(stream(7, kind="Send", ranks=2), (), 1.0, (1, 0))
    assert known.jobs == {}


@pytest.mark.parametrize(("size", "bucket"), [(0, 1), (1, 1), (1023, 512), (1024, 1024), (1 << 40, 1 << 40)])
def test_sizes_are_put_into_buckets_of_powers_of_two(size, bucket):
    assert size_bucket(size) == bucket


def test_one_host_of_a_job_leaves_room_for_the_others(known, monkeypatch):
    monkeypatch.setattr(alignment, "MAX_PENDING_JOB", 40)
    monkeypatch.setattr(alignment, "MAX_HOST_COMMUNICATORS", 8)
    take(known, {0: 1, 1: 1}, 10.0)
    for number in range(100):
        take(known, {9: 1}, 10.0, communicator=f"0xe{number}", number=number)
        take(known, {9: 1}, 10.0, communicator="0xe0", number=1000 + number)
    take(known, {2: 1, 3: 1}, 10.0, communicator="0xb")
    job = known.jobs["llm"]
    assert job.pending < 40
    assert {"0xa", "0xb"} < set(job.communicators)
    assert len(job.communicators) == 2 + 8
    known.settle(20.0 + alignment.FORGET_SECONDS)
    assert known.jobs == {}
    assert (job.pending, job.opened.total, known._waiting.total, known._members.total) == (0, 0, 0, 0)


def test_a_dropped_communicator_leaves_its_room(known):
    take(known, {0: 1}, 0.0)
    take(known, {0: 1}, 500.0, communicator="0xb")
    known.settle(700.0)
    job = known.jobs["llm"]
    assert (job.opened.total, job.pending, known._members.total, known._waiting.total) == (1, 0, 1, 0)


def test_settled_numbers_take_the_same_memory_however_far_apart_they_are():
    numbers = SettledNumbers()
    for number in (*range(3000), (1 << 63) - 1):
        assert number not in numbers
        numbers.add(number)
        assert number in numbers
    assert sys.getsizeof(numbers._bits) < 200
    for number in range(1 << 40, (1 << 40) + 5000):
        numbers.add(number)
    assert (1 << 63) - 1 in numbers


def test_settled_numbers_match_a_set_within_their_window():
    chance, numbers, expected = random.Random(1), SettledNumbers(), set()
    for base in range(0, 5000, 10):
        number = base + chance.randrange(100)
        numbers.add(number)
        expected.add(number)
        highest = max(expected)
        recent = range(max(highest - SETTLED_WINDOW + 1, 0), highest + 10)
        assert [one in numbers for one in recent] == [one in expected for one in recent]


def test_operations_are_compared_by_arrivals_while_those_of_half_of_the_ranks_are_known():
    """Records of a quarter of the ranks are lost now and then: one operation must not be compared unlike the next."""
    communicator = Communicator(8, 2, 8, 0.0, "gpu-0")
    for number in range(200):
        times = {str(rank): 1000.0 for rank in range(8)}
        waits = {str(rank): 2000.0 for rank in range(4 + number % 5)}
        assert communicator.comparable(Pending(0.0, 1e6, "gpu-0", times, waits)) == waits
    few = [communicator.comparable(Pending(0.0, 1e6, "gpu-0", times, {"0": 2000.0, "1": 1.0})) for _ in range(50)]
    assert few == [times] * 50
    assert communicator.arrivals_known < 0.5, "arrivals have been unknown in most of the latest operations"
