"""Verdicts on jobs of unusual shapes, from single collectives: which ranks are reported, and when none is.

Each operation is given by the lateness of its ranks; durations follow, as all ranks end together.
"""

import random

import pytest

from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.bandwidth import Baseline
from exporter.meaning.training.records import Stream, Timing
from exporter.meaning.training.verdicts import (
    JobMemory,
    Verdict,
    judge,
)

MIB = 1 << 20
TICK = 2.0


class Bench:
    """A job that is judged at each tick."""

    def __init__(self):
        self.known, self.memory, self.now = Collectives(), JobMemory(), 1000.0
        self.numbers = {}
        self.chance = random.Random(1)

    def does(self, communicator, members, late=None, *, nodes=2, size=64 * MIB, transfer=2000.0, spread=20.0):
        """Add an operation; `late` are microseconds by rank, in addition to random ones of all."""
        number = self.numbers[communicator] = self.numbers.get(communicator, -1) + 1
        came = {rank: self.chance.uniform(0, spread) + (late or {}).get(rank, 0.0) for rank in members}
        for rank in members:
            stream = Stream(
                "j", communicator, "AllReduce", str(rank), len(members), nodes, f"h{rank // 8}", len(members)
            )
            took = transfer + max(came.values()) - came[rank]
            self.known.add(stream, [Timing(number, size, took)], self.now)

    def judges(self):
        self.known.settle(self.now)
        given = judge(self.known.jobs["j"], self.memory, self.now, Baseline())
        self.now += TICK
        return given

    def runs(self, ticks, *work):
        for _ in range(ticks):
            for does in work:
                does()
            given = self.judges()
        return given

    def idle(self, seconds):
        """Judge without new timings; return the verdicts with the second in which each was first given."""
        began, seen = self.now, {}
        while self.now < began + seconds:
            at = self.now
            seen.setdefault(self.judges().verdict, at - began)
        return seen


def named(given):
    return given.verdict, sorted(int(one.rank) for one in given.ranks), list(given.hosts)


def world(bench, late, *, ranks=64, times=8, **options):
    return lambda: [bench.does("world", range(ranks), late, nodes=8, spread=400.0, **options) for _ in range(times)]


def test_a_slow_host_is_reported_if_one_communicator_has_all_ranks():
    bench = Bench()
    given = bench.runs(30, world(bench, dict.fromkeys(range(8, 16), 60_000.0)))
    assert named(given) == (Verdict.STRAGGLER, list(range(8, 16)), ["h1"])
    assert given.loss == pytest.approx(0.24, rel=0.1)  # 8 times 60 ms in 2 s


@pytest.mark.parametrize("milliseconds", [60.0, 200.0])
def test_one_late_rank_is_not_reported_as_a_late_host(milliseconds):
    bench = Bench()
    assert named(bench.runs(30, world(bench, {9: milliseconds * 1e3})))[1] == [9]


@pytest.mark.parametrize("ranks", [64, 24])
def test_two_equally_late_ranks_on_two_hosts_are_both_reported(ranks):
    bench = Bench()
    late = {1: 60_000.0, ranks - 1: 60_000.0}
    assert named(bench.runs(40, world(bench, late, ranks=ranks))) == (Verdict.STRAGGLER, sorted(late), [])


def test_two_equally_late_hosts_are_both_reported():
    bench = Bench()
    late = dict.fromkeys([*range(8, 16), *range(40, 48)], 60_000.0)
    given = bench.runs(40, world(bench, late, ranks=192))
    assert named(given) == (Verdict.STRAGGLER, sorted(late), ["h1", "h5"])


def test_stragglers_that_move_are_imbalanced_work_until_they_are_the_same_for_minutes():
    bench = Bench()
    first = world(bench, {9: 60_000.0})
    assert named(bench.runs(30, first)) == (Verdict.STRAGGLER, [9], [])
    second = world(bench, {20: 60_000.0})
    seen = [named(bench.runs(1, second)) for _ in range(85)]  # 170 s
    assert (Verdict.STRAGGLER, [20], []) not in seen
    assert seen[-1] == (Verdict.IMBALANCED, [], [])
    assert named(bench.runs(60, second)) == (Verdict.STRAGGLER, [20], [])


def test_a_straggler_that_pauses_is_the_same_when_it_returns():
    bench = Bench()
    for _ in range(2):
        assert named(bench.runs(30, world(bench, {9: 60_000.0}))) == (Verdict.STRAGGLER, [9], [])
        assert named(bench.runs(30, world(bench, {})))[0] is Verdict.FINE


@pytest.mark.parametrize("stages", [4, 8])
def test_a_pipeline_stage_is_not_late_if_only_the_communicator_of_all_ranks_reports(stages):
    """It comes last by the schedule; with eight stages on eight hosts that equals a late host."""
    bench = Bench()
    size = 64 // stages
    late = dict.fromkeys(range(64 - size, 64), 40000.0)
    verdict, ranks, hosts = named(bench.runs(40, world(bench, late, size=4, times=2)))
    assert len(hosts) <= 1
    assert verdict is Verdict.IMBALANCED or set(ranks) <= set(late)
    assert stages == 8 or ranks == []


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_slow_host_is_reported_for_any_size_of_tensor_groups(size):
    bench = Bench()
    late = dict.fromkeys(range(8, 16), 60_000.0)

    def work():
        for group in range(64 // size):
            for _ in range(8):
                bench.does(f"tp{group}", range(size * group, size * group + size), nodes=1, size=MIB)
        for _ in range(4):
            for place in range(size):
                bench.does(f"dp{place}", range(place, 64, size), late, nodes=8)
        bench.does("world", range(64), late, nodes=8, size=4)

    assert named(bench.runs(40, work)) == (Verdict.STRAGGLER, list(range(8, 16)), ["h1"])


def test_small_groups_within_hosts_hide_no_straggler():
    bench = Bench()

    def work():
        world(bench, {9: 60_000.0})()
        for host in range(8):
            bench.does(f"h{host}", range(8 * host, 8 * host + 8), nodes=1, size=4)

    assert named(bench.runs(40, work)) == (Verdict.STRAGGLER, [9], [])


def test_work_is_imbalanced_if_a_third_of_the_ranks_is_equally_late():
    bench = Bench()
    given = bench.runs(40, world(bench, dict.fromkeys(range(0, 64, 3), 60_000.0)))
    assert named(given) == (Verdict.IMBALANCED, [], [])


def test_ranks_that_pause_alternately_are_not_stragglers():
    bench, chance = Bench(), random.Random(7)

    def work():
        for _ in range(8):
            bench.does("world", range(64), {chance.randrange(64): 60_000.0}, nodes=8, spread=400.0)

    assert named(bench.runs(40, work)) == (Verdict.IMBALANCED, [], [])


def test_an_evaluation_on_one_rank_is_not_a_straggler():
    """With a thousand ranks, two operations would be beyond chance."""
    bench = Bench()
    bench.runs(20, lambda: bench.does("world", range(1024), nodes=128))
    for seconds in (20.0, 6.0):
        bench.now += seconds
        bench.does("world", range(1024), {0: seconds * 1e6}, nodes=128, size=4)
        assert bench.judges().verdict is not Verdict.STRAGGLER
    assert all(bench.judges().verdict is not Verdict.STRAGGLER for _ in range(5))


def stages(bench, *, more):
    """Tensor groups of four pipeline stages, the last of which does more operations."""
    groups = [range(first, first + 8) for first in range(0, 64, 8)]

    def work():
        for place, members in enumerate(groups):
            for _ in range(10 + (more if place >= 6 else 0)):
                bench.does(f"tp{place}", members, nodes=1, size=MIB)

    return work


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_job_that_ended_does_not_hang_if_its_stages_do_different_work(more):
    bench = Bench()
    assert bench.runs(45, stages(bench, more=more)).verdict is Verdict.UNKNOWN, "what connects them is not known yet"
    assert Verdict.HANG not in bench.idle(500)


@pytest.mark.parametrize("more", [0, 3])
def test_a_group_behind_groups_of_the_same_work_is_reported(more):
    bench = Bench()
    bench.runs(45, stages(bench, more=more))
    for place in (0, 1, 2, 4, 5, 6, 7):
        bench.does(f"tp{place}", range(8 * place, 8 * place + 8), nodes=1, size=MIB)
    seen = bench.idle(60)
    assert 28 <= seen[Verdict.HANG] <= 36
    assert named(bench.judges()) == (Verdict.HANG, list(range(24, 32)), ["h3"])


class ReportingBench(Bench):
    """A job whose ranks report what they began while they live, without checking the end of the last."""

    def __init__(self, looked=0):
        super().__init__()
        self.begun, self.looked = {}, looked

    def does(self, communicator, members, *more, **options):
        super().does(communicator, members, *more, **options)
        for rank in members:
            self.begins(communicator, members, rank, ends=True)

    def begins(self, communicator, members, rank, kind="AllReduce", *, ends=False):
        begun, ended = self.begun.get((communicator, kind, rank), (0, 0, ()))[:2]
        self.begun[communicator, kind, rank] = (begun + 1, ended + ends, members)

    def judges(self, dead=()):
        for (communicator, kind, rank), (begun, ended, members) in self.begun.items():
            if rank not in dead:
                size = len(members)
                stream = Stream("j", communicator, kind, str(rank), size, 2, f"h{rank // 8}", size)
                self.known.add(stream, (), self.now, (begun, max(0, ended - self.looked)))
        return super().judges()


def test_the_rank_that_did_not_begin_a_collective_in_which_others_wait_is_reported():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(64):
        if rank != 11:
            bench.begins("world", range(64), rank)
    seen = bench.idle(150)
    assert 118 <= seen[Verdict.HANG] <= 128
    assert named(bench.judges()) == (Verdict.HANG, [11], ["h1"])
    assert bench.idle(1200).keys() == {Verdict.HANG}, "as long as ranks report it"


def test_a_dump_that_is_written_when_a_job_hangs_is_no_new_run_of_it():
    """The Flight Recorder has communicators of its own, and Inspector records nothing that does not end."""
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    bench.begun.clear()
    assert Verdict.HANG not in bench.idle(90)
    for rank in range(64):
        bench.begins("recorder-1", range(64), rank, ends=True)
        if rank != 11:
            bench.begins("recorder-1", range(64), rank)
    assert 118 <= bench.idle(150)[Verdict.HANG] <= 128
    assert named(bench.judges()) == (Verdict.HANG, [11], ["h1"])


def test_a_hang_in_a_kind_that_never_ran_before_is_detected():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(1, 64):
        bench.begins("world", range(64), rank, "AlltoAll")
    bench.idle(150)
    assert named(bench.judges())[:2] == (Verdict.HANG, [0])


def test_a_rank_that_waits_in_one_group_is_not_reported_for_another():
    bench = ReportingBench()
    tensor = {host: range(8 * host, 8 * host + 8) for host in range(4)}
    data = {place: range(place, 32, 8) for place in range(8)}

    def work():
        for host, members in tensor.items():
            bench.does(f"tp{host}", members, nodes=1, size=MIB)
        for place, members in data.items():
            bench.does(f"dp{place}", members)

    bench.runs(45, work)
    for host, members in tensor.items():
        for rank in members:
            if rank != 11:
                bench.begins(f"tp{host}", members, rank)
            if host != 1:  # those of host 1 wait for rank 11 …
                bench.begins(f"dp{rank % 8}", data[rank % 8], rank)  # … and all others for them
    bench.idle(150)
    assert named(bench.judges())[:2] == (Verdict.HANG, [11])


@pytest.mark.parametrize("looked", [0, 1])
def test_a_stopped_rank_is_reported_whatever_else_all_ranks_began(looked):
    """Sharded training: the last ReduceScatter has ended on the GPU, and no rank has checked."""
    bench = ReportingBench(looked)

    def work():
        world(bench, {})()
        for rank in range(64):
            bench.begins("world", range(64), rank, "ReduceScatter", ends=True)

    bench.runs(30, work)
    for rank in range(64):
        for _ in range(0 if rank == 3 else 1 if rank == 0 else 4):  # the others run ahead, one of them less
            bench.begins("world", range(64), rank)
    bench.idle(150)
    assert named(bench.judges())[:2] == (Verdict.HANG, [3])


def test_a_stage_that_waits_for_another_one_is_not_reported_as_stopped():
    """Two stages of two hosts each: rank 3 stops, so that host 2 waits for what host 0 would send."""
    bench = ReportingBench()
    tensor = {host: range(8 * host, 8 * host + 8) for host in range(4)}
    data = {rank: (rank, rank + 8) for rank in (*range(8), *range(16, 24))}
    pairs = {rank: (rank, rank + 16) for rank in range(16)}

    def work():
        for host, members in tensor.items():
            bench.does(f"tp{host}", members, nodes=1, size=MIB)
        for rank, members in data.items():
            bench.does(f"dp{rank}", members)
        for first, members in pairs.items():
            for rank in members:
                bench.begins(f"pp{first}", members, rank, "SendRecv", ends=True)

    bench.runs(45, work)
    for rank in (*range(3), *range(4, 8)):
        bench.begins("tp0", tensor[0], rank)
    for rank in range(16, 24):
        bench.begins(f"pp{rank - 16}", pairs[rank - 16], rank, "SendRecv")  # … and host 2 reaches no gradients
    for rank in (*range(8, 16), *range(24, 32)):
        bench.begins(f"dp{rank - 8}", data[rank - 8], rank)
    bench.idle(150)
    assert named(bench.judges())[:2] == (Verdict.HANG, [3])


def test_ranks_ahead_of_waiting_ranks_do_not_hide_a_hang():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(64):
        for _ in range({3: 0, 7: 3}.get(rank, 1)):
            bench.begins("world", range(64), rank)
    bench.idle(150)
    assert named(bench.judges())[:2] == (Verdict.HANG, [3])


def test_a_rank_that_stops_reporting_is_not_reported_as_stopped():
    bench = ReportingBench(looked=1)
    bench.runs(10, world(bench, {}))
    for _ in range(30):
        world(bench, {})()
        bench.judges(dead=[5])
    deaf = bench.begun.pop(("world", "AllReduce", 5))
    bench.idle(120)
    assert named(bench.judges())[1:] == ([], [])
    bench.begun["world", "AllReduce", 5] = (deaf[0] - 100, deaf[1] - 100, deaf[2])
    bench.idle(60)
    assert named(bench.judges())[1:] == ([], [])


def test_hosts_that_reconnect_one_after_another_do_not_hang():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    missed = 100
    bench.now += 50.0  # no timings arrived
    for key, (begun, ended, members) in list(bench.begun.items()):
        bench.begun[key] = (begun + missed + 1, ended + missed, members)
    seen = [bench.judges(dead=range(32, 64)).verdict for _ in range(6)]
    assert Verdict.HANG not in seen


@pytest.mark.parametrize(("seconds", "hangs"), [(100, False), (160, True)])
def test_a_barrier_may_take_as_long_as_a_checkpoint(seconds, hangs):
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(1, 64):
        bench.begins("world", range(64), rank, "Barrier")
    assert (Verdict.HANG in bench.idle(seconds)) is hangs


def test_a_job_that_ended_does_not_hang():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    assert Verdict.HANG not in bench.idle(300)


def test_a_job_in_which_all_began_the_same_and_nothing_ends_hangs_at_no_rank():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(64):
        bench.begins("world", range(64), rank)
    assert 118 <= bench.idle(150)[Verdict.HANG] <= 128
    given = bench.judges()
    assert (named(given), given.communicators) == ((Verdict.HANG, [], []), {"world": 0.0})


def test_a_job_that_was_killed_in_the_middle_does_not_hang():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(32):
        bench.begins("world", range(64), rank)
    bench.judges()
    assert all(bench.judges(dead=range(64)).verdict is not Verdict.HANG for _ in range(100))


def test_a_dead_rank_is_reported_while_the_others_wait():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    for rank in range(64):
        if rank != 40:
            bench.begins("world", range(64), rank)
    for _ in range(70):
        given = bench.judges(dead=[40])
    assert named(given) == (Verdict.HANG, [40], ["h5"])


def test_a_collective_that_only_one_rank_began_is_not_a_hang():
    bench = ReportingBench()
    bench.runs(30, world(bench, {}))
    bench.begins("world", range(64), 5)
    assert Verdict.HANG not in bench.idle(120)


def test_a_communicator_without_timings_is_not_missing():
    bench = ReportingBench()

    def work():
        world(bench, {})()
        for rank in range(64):
            bench.begins("other", range(64), rank, "Broadcast", ends=True)

    given = bench.runs(40, work)
    assert (given.verdict, given.matched) == (Verdict.FINE, 1.0)


def test_a_long_pause_in_the_past_delays_hang_detection_only_up_to_a_limit():
    bench = Bench()
    work = stages(bench, more=0)
    bench.runs(30, work)
    assert Verdict.HANG not in bench.idle(70)
    bench.runs(60, work)
    for place in range(7):
        bench.does(f"tp{place}", range(8 * place, 8 * place + 8), nodes=1, size=MIB)
    assert bench.idle(300)[Verdict.HANG] <= 200


@pytest.mark.parametrize("nodes", [1, 0])
def test_the_number_of_nodes_is_derived_from_hosts_if_not_reported(nodes):
    bench = Bench()

    def work():
        for host in range(4):
            for _ in range(8):
                bench.does(f"tp{host}", range(8 * host, 8 * host + 8), {11: 60_000.0}, nodes=nodes, size=MIB)
        for place in range(8):
            bench.does(f"dp{place}", range(place, 32, 8), {8 + place: 60_000.0}, nodes=4 * nodes)
        bench.does("world", range(32), {30: 90_000.0}, nodes=4 * nodes, size=4)

    assert named(bench.runs(30, work)) == (Verdict.STRAGGLER, [11], [])


@pytest.mark.parametrize("beside", [False, True])
def test_an_additional_small_group_does_not_hide_waiting(beside):
    bench = Bench()

    def work():
        for _ in range(8):
            bench.does("world", range(16), spread=100_000.0)
        if beside:
            bench.does("aside", [0, 8], size=4)

    given = bench.runs(30, work)
    assert given.verdict is Verdict.IMBALANCED
    assert given.loss == pytest.approx(8 * 0.044 / TICK, rel=0.15)  # the mean of 16 is 44 ms before the last of them


def test_expected_bandwidth_is_separate_for_each_shape_of_groups():
    bench = Bench()

    def work():
        for place in range(8):
            for _ in range(3):
                bench.does(f"small{place}", [place, place + 8], transfer=3000.0)
                bench.does(f"large{place}", range(place, 128, 8), nodes=16, transfer=10_500.0)

    given = bench.runs(30, work)
    assert given.verdict is Verdict.FINE
    assert given.bandwidth == pytest.approx(1.0, abs=0.05)


def test_ranks_that_are_gone_are_dropped(monkeypatch):
    monkeypatch.setattr("exporter.meaning.training.alignment.MAX_RANKS", 64)
    known = Collectives()
    for start in range(100):
        for rank in range(8):
            stream = Stream("j", "c", "AllReduce", f"h/{start}-{rank}", 8, 1, "h", 8)
            known.add(stream, [Timing(start, MIB, 10.0)], 100.0 * start)
        known.settle(100.0 * start)
    job = known.jobs["j"]
    assert len(job.communicators["c"].reached) == 8
    assert len(job.hosts) <= 64
