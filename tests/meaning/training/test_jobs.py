"""Tables of jobs, ranks and verdicts, made of the internal table of timings."""

import random
from functools import partial

import pytest

from exporter.core.table import (
    Column,
    Rows,
    Samples,
    Table,
)
from exporter.core.vocabulary import check
from exporter.meaning.training import alignment, jobs
from exporter.meaning.training.bandwidth import Baseline
from exporter.meaning.training.step_budget import Plan
from exporter.sources.nccl.metrics import STREAMS

MIB = 1 << 20


def table(time, records):
    """Return the internal table of ((job, communicator, kind, rank), sequence, size, microseconds, ranks, timed)."""
    streams, about = {}, {}
    for key, sequence, size, microseconds, ranks, timed in records:
        timing = (sequence, size, microseconds) if timed is None else (sequence, size, microseconds, timed)
        streams.setdefault(key, []).append(timing)
        about[key] = (str(ranks), "2", f"gpu-{key[3]}", "", "")
    columns = {
        "operations": Column(STREAMS.metrics["operations"], [Samples(tuple(one)) for one in streams.values()]),
        "stream_info": Column(STREAMS.metrics["stream_info"], list(about.values())),
    }
    return Table(STREAMS, Rows(STREAMS.labels, streams, {}), columns, time)


def operation(sequence, durations, *, job="j", comm="0x1", kind="AllReduce", size=MIB, n_ranks=None, timed=1):
    ranks = n_ranks or max(len(durations), 2)
    return [((job, comm, kind, str(rank)), sequence, size, us, ranks, timed) for rank, us in durations.items()]


def arrivals(late, transfer=1000):
    """Return durations from the lateness of ranks: all end together."""
    last = max(late.values())
    return {rank: transfer + last - one for rank, one in late.items()}


def run(*steps, state=None):
    """Process (time, records), and return the last values by metric and row."""
    out = ()
    for time, records in steps:
        state, out = jobs.step(jobs.JobKnowledge(), state, table(time, records))
    return state, values(out)


def values(tables):
    return {
        (ending, *key): value
        for one in tables
        for ending, column in one.columns.items()
        for key, value in zip(one.rows.keys, column.values, strict=True)
        if value is not None
    }


def stragglers(found):
    return {key[2]: value for key, value in found.items() if key[0] == "straggler"}


def verdict(found, job="j"):
    (name,) = (key[2] for key, value in found.items() if key[:2] == ("verdict", job) and value)
    return name


def many(count, late, *, first=0, **options):
    return [
        one for number in range(first, first + count) for one in operation(number, arrivals(late(number)), **options)
    ]


def ticks(count, late, *, each=30, **options):
    """Return steps of five seconds with a number of operations each."""
    return [(100.0 + 5 * tick, many(each, late, first=each * tick, **options)) for tick in range(count)]


def of_three(rank):
    return 20_000 * (rank == 3)


def test_the_late_rank_is_reported_and_its_victims_are_not():
    chance = random.Random(1)
    _, found = run(*ticks(9, lambda _: {rank: chance.randrange(30) + of_three(rank) for rank in range(8)}))
    assert stragglers(found) == {str(rank): int(rank == 3) for rank in range(8)}
    assert verdict(found) == "straggler"
    assert found["straggler_loss_ratio", "j", "3"] == pytest.approx(0.12, rel=0.3)  # 30 times 20 ms in 5 s


@pytest.mark.parametrize(
    "late",
    [
        lambda number: {rank: 20_000 * (rank == number % 8) for rank in range(8)},  # each in turn
        lambda number: {rank: 20_000 * (rank == 2 + number % 2) for rank in range(8)},  # two in turn
        lambda _: {rank: 20_000 * (rank in {2, 3}) for rank in range(8)},  # two together
        lambda _: dict.fromkeys(range(8), 0),
    ],
)
def test_no_straggler_if_no_single_rank_is_always_late(late):
    _, found = run(*ticks(9, late))
    assert set(stragglers(found).values()) == {0}


def test_little_lateness_is_not_a_straggler():
    _, found = run(*ticks(9, lambda _: {rank: 1000 * (rank == 3) for rank in range(8)}))  # 6 ms a second
    assert set(stragglers(found).values()) == {0}
    assert verdict(found) == "fine"


def test_one_bad_tick_does_not_change_the_verdict():
    _, found = run(
        *ticks(8, lambda _: dict.fromkeys(range(8), 0)),
        (140.0, many(30, lambda _: {r: of_three(r) for r in range(8)}, first=240)),
    )
    assert stragglers(found)["3"] == 0


def test_a_verdict_ends_when_its_cause_ends():
    state, found = run(*ticks(9, lambda _: {rank: of_three(rank) for rank in range(8)}))
    assert stragglers(found)["3"] == 1
    even = [
        (145.0 + 5 * tick, many(30, lambda _: dict.fromkeys(range(8), 0), first=1000 + 30 * tick)) for tick in range(20)
    ]
    _, found = run(*even, state=state)
    assert set(stragglers(found).values()) == {0}


def test_a_rank_late_in_one_group_because_it_waited_in_another_is_a_victim():
    """Two groups of four (0x1 and 0x2), and pairs across them: rank 3 delays its group, and that the other one."""
    steps = []
    for tick in range(9):
        records = []
        for number in range(30 * tick, 30 * tick + 30):
            records += operation(number, arrivals({rank: of_three(rank) for rank in range(4)}), comm="0x1")
            records += operation(number, dict.fromkeys(range(4, 8), 1000), comm="0x2")
            for rank in range(4):
                records += operation(number, arrivals({rank: 20_000, rank + 4: 0}), comm=f"0x1{rank}")
        steps.append((100.0 + 5 * tick, records))
    _, found = run(*steps)
    assert stragglers(found) == {str(rank): int(rank == 3) for rank in range(8)}


def test_without_enough_data_there_is_no_verdict():
    _, found = run((100.0, many(5, lambda _: {rank: of_three(rank) for rank in range(8)})))
    assert stragglers(found) == {}
    assert verdict(found) == "not_enough_data"


def test_missing_expected_ranks_leave_the_verdict_unknown():
    def expecting(made):
        about = [(*one[:3], one[0], "") for one in made.columns["stream_info"].values]
        return made.with_columns([Column(STREAMS.metrics["stream_info"], about)])

    state = None
    for time, records in ticks(9, lambda _: {rank: of_three(rank) for rank in range(8)}, n_ranks=16):
        state, out = jobs.step(jobs.JobKnowledge(), state, expecting(table(time, records)))
    assert verdict(values(out)) == "not_enough_data"
    assert values(out)["matched_ranks_ratio", "j"] == 0.5


def test_groups_with_one_local_rank_do_not_prevent_a_verdict():
    """A host without a collector sees its whole tensor group, and one rank of each data group."""
    steps = [
        (time, records + [one for rank in range(8) for one in operation(tick, {rank: 900}, comm=f"0x2{rank}")])
        for tick, (time, records) in enumerate(ticks(9, lambda _: {rank: of_three(rank) for rank in range(8)}))
    ]
    _, found = run(*steps)
    assert verdict(found) == "straggler"
    assert found["matched_ranks_ratio", "j"] == 1.0


def test_wait_matches_an_independent_computation():
    chance = random.Random(2)
    steps, wait = [], dict.fromkeys(range(5), 0)
    for number in range(200):
        starts = {rank: chance.randrange(5000) for rank in range(5)}
        last = max(starts.values())
        for rank, start in starts.items():
            wait[rank] += last - start  # from the clock, not from durations
        steps.append((100.0 + number, operation(number, {rank: last + 700 - start for rank, start in starts.items()})))
    _, found = run(*steps)
    for rank in range(5):
        assert found["wait_seconds_total", "j", str(rank)] == pytest.approx(wait[rank] / 1e6)
    assert found["matched_collectives_total", "j"] == 200


@pytest.mark.parametrize(("kind", "factor"), [("AllReduce", 1.75), ("AllGather", 0.875), ("ReduceScatter", 0.875)])
def test_bus_bandwidth_is_that_of_the_last_rank_weighted_by_time(kind, factor):
    records = operation(0, {0: 1000, 1: 9000}, kind=kind, size=10 * MIB, n_ranks=8)
    records += operation(1, {0: 7000, 1: 3000}, kind=kind, size=50 * MIB, n_ranks=8)
    _, found = run((100.0, records))
    assert found["bus_bandwidth_bytes_per_second", "j", kind] == pytest.approx(60 * MIB / 0.004 * factor)


def test_a_published_bus_bandwidth_is_reproduced():
    _, found = run((105.0, operation(0, {0: 61974, 1: 62000}, size=17179869184, n_ranks=8)))
    assert found["bus_bandwidth_bytes_per_second", "j", "AllReduce"] == pytest.approx(485.119099e9, rel=1e-6)


def test_a_baseline_sets_the_expected_bandwidth():
    measured = {("AllReduce", 4 * MIB): 100e9}
    state = None
    for tick in range(12):
        records = [
            one
            for number in range(5 * tick, 5 * tick + 5)
            for one in operation(number, dict.fromkeys(range(4), 209.7152), size=4 * MIB)
        ]
        state, out = jobs.step(jobs.JobKnowledge(Baseline(measured)), state, table(100.0 + 5 * tick, records))
    found = values(out)
    assert found["network_ratio", "j"] == pytest.approx(0.3)  # 4 MiB in 209.7 µs times 2 * 3 / 4 are 30 GB/s
    assert verdict(found) == "network_bound"


def test_small_sizes_have_no_bandwidth():
    _, found = run((100.0, operation(0, {0: 20, 1: 60}, size=8192)))
    assert not any(key[0] == "bus_bandwidth_bytes_per_second" for key in found)


def test_silent_ranks_and_jobs_are_dropped():
    state, _ = run(*ticks(2, lambda _: {rank: of_three(rank) for rank in range(8)}))
    state, found = run((105.0 + alignment.FORGET_SECONDS + 1, []), state=state)
    assert found == {}
    assert not any((state.collectives.jobs, state.ranks, state.memories))


def test_a_flood_of_jobs_does_not_affect_others():
    hostile = [((f"bad{number}", "0x1", "AllReduce", "0"), 0, MIB, 1000, 9, 1) for number in range(5000)]
    state, _ = run((100.0, many(30, lambda _: {rank: of_three(rank) for rank in range(4)})))
    state, _ = run((101.0, hostile), state=state)
    assert len(state.collectives.jobs) == alignment.MAX_JOBS
    _, found = run(
        *(
            (102.0 + 5 * tick, many(30, lambda _: {r: of_three(r) for r in range(4)}, first=100 + 30 * tick))
            for tick in range(9)
        ),
        state=state,
    )
    assert found["straggler", "j", "3"] == 1


def test_other_tables_pass_and_the_internal_table_is_replaced():
    food = table(100.0, operation(0, {0: 1000, 1: 1100}))
    step = partial(jobs.step, jobs.JobKnowledge())
    _, out = step(None, food)
    assert food not in out
    assert step(None, out[0]) == (None, (out[0],))


def test_outputs_declare_all_columns_of_step():
    _, out = jobs.step(jobs.JobKnowledge(), None, table(100.0, operation(0, {0: 1000, 1: 1100})))
    declared = jobs.outputs(STREAMS)
    assert {column.metric for one in out for column in one.columns.values()} <= set(declared)
    assert check(declared) == []
    assert all(metric.origins for metric in declared)
    assert jobs.outputs(out[0].schema) == []


# --- budgets of steps

PLAN = Plan(parameters=2 * MIB, data_parallel=4, nodes=2, bandwidth=1e9, tokens_per_step=2.5e6, peak_flops=1e13)
"""Gradients of 4 MiB: a ring of four sends one and a half times as much; two links of a host have half of it each."""


def test_step_budget_of_a_planned_job():
    known, state, out = jobs.JobKnowledge(plans=[("llama-*", PLAN), ("*", Plan(1.0, 2))]), None, ()
    for tick in range(1, 13):  # two steps in five seconds, of an AllReduce of 12.5 ms each
        records = [
            one
            for step in (2 * tick, 2 * tick + 1)
            for one in operation(step, dict.fromkeys(range(4), 12_500), job="llama-7b", size=4 * MIB)
        ]
        state, out = jobs.step(known, state, table(5.0 * tick, records))
    found = values(out)
    assert found["step_seconds", "llama-7b"] == pytest.approx(2.5)
    assert found["step_network_seconds", "llama-7b"] == pytest.approx(12.5e-3)
    assert found["step_network_expected_seconds", "llama-7b"] == pytest.approx(3.145728e-3)
    assert found["step_network_excess_ratio", "llama-7b"] == pytest.approx(12.5 / 3.145728)
    assert found["step_exposed_compute_seconds", "llama-7b"] == pytest.approx(2.4875)
    assert found["step_utilization_least_ratio", "llama-7b"] == pytest.approx(0.995)
    assert found["model_flops_utilization_ratio", "llama-7b"] == pytest.approx(0.3145728)  # 6 * 2 Mi * 1e6 / 4e13


def test_measurements_of_a_job_are_dropped_with_it():
    known = jobs.JobKnowledge(plans=[("*", PLAN)])
    state, _ = jobs.step(known, None, table(100.0, operation(0, dict.fromkeys(range(4), 1000))))
    assert set(state.meters) == {"j"}
    state, _ = jobs.step(known, state, table(101.0 + alignment.FORGET_SECONDS, []))
    assert state.meters == {}


def test_jobs_without_a_plan_have_no_step_budget():
    known = jobs.JobKnowledge(plans=[("llama-*", PLAN)])
    _, out = jobs.step(known, None, table(100.0, operation(0, {0: 1000, 1: 1100})))
    assert not [one for one in out if "step_seconds" in one.columns]
