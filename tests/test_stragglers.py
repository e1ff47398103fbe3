"""Stragglers on synthetic timelines: the late rank is named and its victims are not; all else blames nobody."""

import copy
import random

import pytest

from exporter.meaning import alignment, stragglers
from exporter.sources.nccl import OPERATIONS
from exporter.table import Column, Rows, Table
from exporter.vocabulary import check

FOOD = ("operation_duration", "operation_size", "operation_ranks", "operation_kernel_timed")


def table(time, records):
    """Make the internal table of ((job, communicator, kind, sequence, rank), (microseconds, size, ranks, timed))."""
    records = list(records)
    rows = Rows(OPERATIONS.labels, [(*key[:3], str(key[3]), str(key[4])) for key, _ in records], {})
    columns = {
        ending: Column(OPERATIONS.metrics[ending], [values[place] for _, values in records])
        for place, ending in enumerate(FOOD)
    }
    return Table(OPERATIONS, rows, columns, time)


def operation(sequence, durations, *, job="j", comm="0x1", kind="AllReduce", size=1 << 20, n_ranks=None, timed=1):
    n_ranks = n_ranks or max(len(durations), 2)
    return [((job, comm, kind, sequence, rank), (us, size, n_ranks, timed)) for rank, us in durations.items()]


def arrivals(late, transfer=1000):
    """Turn how late ranks come into their durations, by the rule that all end together."""
    last = max(late.values())
    return {rank: transfer + last - one for rank, one in late.items()}


def run(*steps, state=None):
    """Put (time, records) through and give the last values by metric and row."""
    out = ()
    for time, records in steps:
        state, out = stragglers.step(state, table(time, records))
    return state, values(out)


def values(tables):
    found = {}
    for one in tables:
        for ending, column in one.columns.items():
            for key, value in zip(one.rows.keys, column.values, strict=True):
                if value is not None:
                    found[ending, *key] = value
    return found


def verdicts(found):
    return {key[2]: value for key, value in found.items() if key[0] == "straggler"}


def many(count, late, **options):
    return [one for number in range(count) for one in operation(number, arrivals(late(number)), **options)]


def test_the_late_rank_is_named_and_its_victims_are_not():
    chance = random.Random(1)
    records = many(30, lambda _: {rank: chance.randrange(30) + (2000 if rank == 3 else 0) for rank in range(8)})
    _, found = run((100.0, records))
    assert verdicts(found) == {str(rank): int(rank == 3) for rank in range(8)}


def test_when_the_shortest_rotates_nobody_is_blamed():
    _, found = run((100.0, many(64, lambda number: {rank: 2000 * (rank == number % 8) for rank in range(8)})))
    assert verdicts(found) == dict.fromkeys(map(str, range(8)), 0)


def test_two_ranks_late_in_turn_blame_nobody():
    _, found = run((100.0, many(40, lambda number: {rank: 2000 * (rank == 2 + number % 2) for rank in range(8)})))
    assert set(verdicts(found).values()) == {0}


def test_ranks_that_are_the_shortest_together_blame_nobody():
    _, found = run((100.0, many(40, lambda _: {rank: 2000 * (rank in {2, 3}) for rank in range(8)})))
    assert set(verdicts(found).values()) == {0}


def test_a_network_that_is_slow_for_all_blames_nobody_and_shows_in_the_bandwidth():
    fast = [one for number in range(30) for one in operation(number, dict.fromkeys(range(8), 1000), size=1 << 30)]
    slow = [one for number in range(30) for one in operation(number, dict.fromkeys(range(8), 10_000), size=1 << 30)]
    key = ("bus_bandwidth_bytes_per_second", "j", "AllReduce")
    _, found = run((100.0, fast))
    assert found[key] == pytest.approx((1 << 30) / 1e-3 * 2 * 7 / 8)
    _, found = run((100.0, slow))
    assert set(verdicts(found).values()) == {0}
    assert found[key] == pytest.approx((1 << 30) / 1e-2 * 2 * 7 / 8)


def test_without_enough_data_there_is_no_verdict():
    late = lambda _: {rank: 2000 * (rank == 3) for rank in range(8)}  # noqa: E731
    state, found = run((100.0, many(19, late)))
    assert verdicts(found) == {}
    assert found["lateness_seconds_total", "j", "3"] == pytest.approx(19 * 0.002)
    _, found = run((105.0, operation(19, arrivals(late(0)))), state=state)
    assert verdicts(found)["3"] == 1


def test_a_verdict_ends_with_its_window():
    state, found = run((100.0, many(30, lambda _: {rank: 2000 * (rank == 3) for rank in range(8)})))
    assert verdicts(found)["3"] == 1
    even = [one for number in range(100, 130) for one in operation(number, dict.fromkeys(range(8), 1000))]
    _, found = run((130.0, even), (161.0, []), state=state)
    assert verdicts(found) == dict.fromkeys(map(str, range(8)), 0)


@pytest.mark.parametrize(("share", "verdict"), [(17, 0), (18, 1)])
def test_of_two_ranks_chance_could_favour_one_so_nine_of_ten_are_asked_for(share, verdict):
    _, found = run((100.0, many(20, lambda number: {0: 2000 * (number < share), 1: 2000 * (number >= share)})))
    assert verdicts(found) == {"0": verdict, "1": 0}


@pytest.mark.parametrize(("share", "verdict"), [(11, 0), (12, 1)])
def test_of_eight_ranks_six_of_ten_are_asked_for(share, verdict):
    late = lambda number: {rank: 2000 * (rank == (3 if number < share else number % 3)) for rank in range(8)}  # noqa: E731
    _, found = run((100.0, many(20, late)))
    assert verdicts(found)["3"] == verdict


@pytest.mark.parametrize(("spread", "verdict"), [(249, 0), (250, 1)])
def test_only_a_spread_of_a_fifth_tells_anything(spread, verdict):
    _, found = run((100.0, many(30, lambda _: {rank: spread * (rank == 3) for rank in range(8)})))
    assert verdicts(found)["3"] == verdict  # 1000 to 1249, and 1000 to 1250: (max - min) / max = 0.2


def test_the_noise_of_small_collectives_tells_nothing():
    records = [
        one
        for number in range(30)
        for one in operation(number, {rank: 20 if rank == 3 else 60 for rank in range(8)}, size=8192)
    ]
    _, found = run((100.0, records))
    assert verdicts(found)["3"] == 0
    assert not any(key[0] == "bus_bandwidth_bytes_per_second" for key in found), "small sizes have no bandwidth"


def test_who_is_late_in_one_group_because_it_waited_in_another_is_a_victim():
    """Two groups of four (0x1 and 0x2), and pairs across them: rank 3 delays its group, and that the other one."""
    records = []
    for number in range(30):
        records += operation(number, arrivals({rank: 2000 * (rank == 3) for rank in range(4)}), comm="0x1")
        records += operation(number, dict.fromkeys(range(4, 8), 1000), comm="0x2")
        for rank in range(4):
            records += operation(number, arrivals({rank: 2000, rank + 4: 0}), comm=f"0x1{rank}")
    _, found = run((100.0, records))
    assert verdicts(found) == {str(rank): int(rank == 3) for rank in range(8)}


def test_wait_and_lateness_are_what_another_way_of_reckoning_gives():
    chance = random.Random(2)
    ends = {}
    steps = []
    wait, lateness = dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 0)
    for number in range(200):
        starts = {rank: chance.randrange(5000) for rank in range(5)}
        ends[number] = max(starts.values()) + 700
        for rank, start in starts.items():
            wait[rank] += max(starts.values()) - start  # from the clock, not from durations
            lateness[rank] += start - min(starts.values())
        steps.append(
            (100.0 + number, operation(number, {rank: ends[number] - start for rank, start in starts.items()}))
        )
    _, found = run(*steps)
    for rank in range(5):
        assert found["wait_seconds_total", "j", str(rank)] == pytest.approx(wait[rank] / 1e6)
        assert found["lateness_seconds_total", "j", str(rank)] == pytest.approx(lateness[rank] / 1e6)
    assert found["matched_collectives_total", "j"] == 200


@pytest.mark.parametrize(("kind", "factor"), [("AllReduce", 1.75), ("AllGather", 0.875), ("ReduceScatter", 0.875)])
def test_bus_bandwidth_is_that_of_the_fastest_rank_weighted_by_size(kind, factor):
    records = operation(0, {0: 1000, 1: 9000}, kind=kind, size=10 << 20, n_ranks=8)
    records += operation(1, {0: 7000, 1: 3000}, kind=kind, size=50 << 20, n_ranks=8)
    _, found = run((100.0, records))
    assert found["bus_bandwidth_bytes_per_second", "j", kind] == pytest.approx((60 << 20) / 0.004 * factor)


def test_the_published_bus_bandwidth_is_met():
    _, found = run((100.0, []), (105.0, operation(0, {0: 61974, 1: 62000}, size=17179869184, n_ranks=8)))
    assert found["bus_bandwidth_bytes_per_second", "j", "AllReduce"] == pytest.approx(485.119099e9, rel=1e-6)


def test_a_collective_waits_for_the_other_ranks_and_is_then_given_up():
    state, _ = run((100.0, operation(0, {0: 1000, 1: 1000})))
    state, found = run((105.0, operation(1, {0: 1000})), (115.0, operation(1, {1: 1500})), state=state)
    assert found["matched_collectives_total", "j"] == 2
    assert found["wait_seconds_total", "j", "1"] == pytest.approx(0.0005)
    state, found = run((116.0, operation(2, {0: 1000})), (131.0, []), state=state)
    assert found["unmatched_collectives_total", "j"] == 0
    state, found = run((131.1, []), state=state)
    assert found["unmatched_collectives_total", "j"] == 1
    assert found["matched_collectives_total", "j"] == 2
    assert not state.collectives.pending


def test_a_rank_that_died_is_not_waited_for_for_ever():
    state, _ = run((100.0, operation(0, {0: 1000, 1: 1000, 2: 1000})))
    _, found = run((161.0, operation(1, {0: 1000, 1: 1400})), state=state)
    assert found["matched_collectives_total", "j"] == 2
    assert found["wait_seconds_total", "j", "1"] == pytest.approx(0.0004)


def test_a_rank_alone_in_its_communicator_has_bandwidth_but_neither_wait_nor_verdict():
    _, found = run(*((100.0 + 5 * number, operation(number, {0: 1000}, n_ranks=16)) for number in range(30)))
    assert {key[0] for key in found} == {
        "bus_bandwidth_bytes_per_second",
        "matched_collectives_total",
        "unmatched_collectives_total",
        "dropped_collectives_total",
    }
    assert found["matched_collectives_total", "j"] == found["unmatched_collectives_total", "j"] == 0
    state, _ = run(*((1000.0 * number, operation(number, {0: 1000}, n_ranks=16)) for number in range(9)))
    assert len(state.collectives.pending) <= 1, "also where polls are far apart"


@pytest.mark.parametrize(
    "options", [{"kind": "Broadcast"}, {"kind": "AlltoAll"}, {"timed": 0}, {"n_ranks": 1}], ids=str
)
def test_times_that_do_not_end_together_or_are_not_the_kernels_are_left_out(options):
    _, found = run((100.0, many(30, lambda _: {rank: 2000 * (rank == 1) for rank in range(4)}, **options)))
    assert found == {}


def test_times_whose_source_is_not_told_count():
    _, found = run((100.0, many(30, lambda _: {rank: 2000 * (rank == 1) for rank in range(4)}, timed=None)))
    assert verdicts(found)["1"] == 1


def test_communicators_without_number_are_bounded_counted_and_hurt_no_other_job():
    chance = random.Random(3)
    hostile = [
        ((("bad", f"{chance.getrandbits(64):x}", "AllReduce", number, number % 500)), (1000, 1 << 20, 1000, 1))
        for number in range(100_000)
    ]
    state, _ = run((100.0, hostile))
    assert len(state.collectives.members) <= alignment.MAX_COMMUNICATORS
    _, found = run((101.0, many(30, lambda _: {rank: 2000 * (rank == 1) for rank in range(4)})), state=state)
    assert found["dropped_collectives_total", "bad"] == 100_000 - alignment.MAX_COMMUNICATORS
    assert found["straggler", "j", "1"] == 1


def test_sequence_numbers_ranks_and_jobs_without_number_are_bounded():
    records = [(("bad", "0x1", "AllReduce", number, number % 2), (1000, 1, 9, 1)) for number in range(30_000)]
    records += [(("wide", "0x1", "AllReduce", 0, number), (1000, 1, 1 << 20, 1)) for number in range(5000)]
    records += [((f"job{number}", "0x1", "AllReduce", 0, 0), (1000, 1, 9, 1)) for number in range(5000)]
    state, found = run((100.0, records))
    assert len(state.collectives.jobs) == alignment.MAX_JOBS
    assert len(state.collectives.pending) <= alignment.MAX_PENDING_JOB + alignment.MAX_JOBS
    assert found["dropped_collectives_total", "bad"] == 30_000 - alignment.MAX_PENDING_JOB
    assert found["dropped_collectives_total", "wide"] == 5000 - alignment.MAX_MEMBERS
    state, found = run((100.0 + alignment.FORGET + 1, []), state=state)
    assert found == {}
    assert not any((state.collectives.jobs, state.ranks, state.collectives.members, state.evidence, state.speeds))


def test_a_step_leaves_the_state_before_it_as_it_was():
    first, _ = stragglers.step(None, table(100.0, operation(0, {0: 1000, 1: 1100}) + operation(1, {0: 5})))
    before = copy.deepcopy(first)
    once = stragglers.step(first, table(105.0, operation(1, {1: 9})))
    assert first == before
    again = stragglers.step(first, table(105.0, operation(1, {1: 9})))
    assert once[0] == again[0]
    assert values(once[1]) == values(again[1])
    assert values(once[1])["matched_collectives_total", "j"] == 2


def test_other_tables_pass_and_the_internal_one_ends_here():
    food = table(100.0, operation(0, {0: 1000, 1: 1100}))
    _, out = stragglers.step(None, food)
    assert food not in out
    other = Table(out[0].schema, out[0].rows, out[0].columns, 100.0)
    assert stragglers.step(None, other) == (None, (other,))


def test_what_comes_out_is_declared():
    _, out = stragglers.step(None, table(100.0, operation(0, {0: 1000, 1: 1100})))
    declared = stragglers.outputs(OPERATIONS)
    assert {column.metric for one in out for column in one.columns.values()} == set(declared)
    assert check(declared) == []
    assert all(metric.origins for metric in declared)
    assert stragglers.outputs(out[0].schema) == []
