"""The simulated job against what must be so in a real one, and against small jobs worked out by hand."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median

import pytest

from tests.helpers.job_simulation import (
    NEVER,
    SCENARIOS,
    Fabric,
    Hang,
    Imbalance,
    Layout,
    Pauses,
    Reporting,
    Restart,
    Scenario,
    Simulation,
    SlowHost,
    SlowNetwork,
    SlowNic,
    SlowRank,
    SlowStage,
    Truth,
    Work,
    scenario,
    schedule,
)

SMALL = Layout(tensor=4, pipeline=2, data=4, gpus_per_host=4)
"""32 ranks on 8 hosts; the tensor group is the host."""
EXACT = {
    "work": Work(noise=0.0, launch_s=0.0),
    "fabric": Fabric(noise=0.0),
    "reporting": Reporting(end_noise_s=0.0),
}
"""Nothing by chance."""
PLAIN = Work(micro_batches=2, forward_s=1.0, backward_s=2.0, optimizer_s=0.0, noise=0.0, launch_s=0.0)
FREE = Fabric(inside=NEVER, between=NEVER, latency_s=0.0, noise=0.0)
"""A fabric that costs nothing."""


class Watched(Simulation):
    """Notes when each operation began at each rank and when it ended, which no record tells."""

    def __init__(self, *args, **more):
        self.operations = []
        super().__init__(*args, **more)

    def _write(self, group, kind, counted, places, arrivals, end, size=None):
        ranks = [group.ranks[place] for place in places]
        self.operations.append((group, kind, group.sequences[kind, counted], ranks, list(arrivals), end))
        super()._write(group, kind, counted, places, arrivals, end, size)


def run(*args, seconds=30.0, **more):
    simulation = Watched(*args, **more)
    return simulation, [record for _, batch in simulation.batches(seconds) for record in batch]


def by_operation(records):
    """Durations by operation and world rank."""
    found = defaultdict(dict)
    for one in records:
        found[one.communicator, one.kind, one.sequence][one.world_rank] = one.duration_us
    return found


def select(records, kind, nodes=None, n_ranks=None):
    return [
        one for one in records if one.kind == kind and nodes in (None, one.nodes) and n_ranks in (None, one.n_ranks)
    ]


def shortest(records):
    """Of each communicator, how often each world rank is the one with the shortest time, as shares."""
    counts = defaultdict(Counter)
    for (communicator, _, _), times in by_operation(records).items():
        counts[communicator][min(times, key=times.get)] += 1
    return {
        communicator: {rank: count / sum(counter.values()) for rank, count in counter.items()}
        for communicator, counter in counts.items()
    }


# Worked out by hand.


def test_one_forward_one_backward_of_two_stages_and_two_micro_batches():
    # stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7
    order = schedule(2, 2)
    assert [(forward, batch) for stage, forward, batch in order if stage == 0] == [
        (True, 0),
        (True, 1),
        (False, 0),
        (False, 1),
    ]
    assert [(forward, batch) for stage, forward, batch in order if stage == 1] == [
        (True, 0),
        (False, 0),
        (True, 1),
        (False, 1),
    ]
    assert Simulation(Layout(1, 2, 1, 1), work=PLAIN, fabric=FREE).step_s == 9.0


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (3, 4), (4, 8), (4, 2)])
def test_a_pipeline_that_waits_for_nothing_else_takes_micro_batches_and_stages_less_one(stages, micro_batches, name):
    work = replace(PLAIN, micro_batches=micro_batches, schedule=name)
    assert Simulation(Layout(1, stages, 1, 1), work=work, fabric=FREE).step_s == (micro_batches + stages - 1) * 3.0


def test_gpipe_does_all_forward_passes_first():
    assert [one for one in schedule(3, 2, "gpipe") if one[0] == 1] == [
        (1, True, 0),
        (1, True, 1),
        (1, False, 0),
        (1, False, 1),
    ]


def test_two_ranks_of_which_one_is_late():
    # 64 MiB, twice a half of it over the bus of 350 GB/s, and 20 us: 211.74 us. The step computes 1.35 s and moves
    # 16 * 211.74 us and 20 us for the norm: 1.35341 s. A tenth of that is 135.34 ms, of which a forward pass has
    # 0.055 / 1.35 = 5.514 ms.
    late = Scenario((SlowRank(rank=1, share=0.1),))
    simulation, records = run(Layout(2, 1, 1, 2), late, **EXACT, seconds=4.0)
    assert simulation.step_s == pytest.approx(1.35341, abs=1e-5)
    assert by_operation(records)[records[0].communicator, "AllReduce", 0] == {0: 5726, 1: 212}


def test_a_pass_of_several_parts_meets_after_each():
    work = replace(EXACT["work"], tensor_per_pass=2)
    simulation, _ = run(Layout(2, 1, 1, 2), **EXACT | {"work": work}, seconds=4.0)
    assert simulation.step_s == pytest.approx(1.35 + 32 * 211.74e-6 + 20e-6, abs=1e-5)
    passed = [one for one in simulation.operations if one[5] < simulation.step_s and len(one[3]) == 2]
    assert len(passed) == 2 * 16 + 1, "and once for the norm"


@pytest.mark.parametrize(
    ("sharded", "kinds", "size", "transfer"),
    [
        # 2 GiB in 2 buckets; of 4 ranks each hands in a quarter, and sends that to each of the 3 others
        (True, ["AllGather", "ReduceScatter"], 2**28, 20e-6 + 3 * 2**28 / 45e9),
        (False, ["AllReduce"], 2**30, 20e-6 + 2 * 3 / 4 * 2**30 / 45e9),
    ],
)
def test_sizes_and_transfers_of_the_data_groups(sharded, kinds, size, transfer):
    work = replace(EXACT["work"], sharded=sharded, grad_norm=False)
    _, records = run(Layout(1, 1, 4, 1), **EXACT | {"work": work}, seconds=5.0)
    assert sorted({one.kind for one in records}) == kinds
    assert {one.size_bytes for one in records} == {size}
    assert {one.duration_us for one in records} == {round(transfer * 1e6)}
    assert Counter(one.sequence for one in records if one.world_rank == 0 and one.kind == kinds[0])[1] == 1


def test_a_message_to_the_next_stage_ends_for_both_at_once():
    # F0 of stage 0 ends at 1 and moves for 0.5 s; stage 1 has waited since 0. Its F0 ends at 2.5, its B0 at 4.5, and
    # that moves until 5; stage 0 has waited for it since F1 ended at 2. F1 was sent at 2 and is taken from 4.5 on.
    work = replace(PLAIN, activation_bytes=5)
    slow = Fabric(inside=NEVER, between=10.0, latency_s=0.0, noise=0.0)
    reporting = Reporting(point_to_point=True, end_noise_s=0.0)
    _, records = run(Layout(1, 2, 1, 1), work=work, fabric=slow, reporting=reporting, seconds=8.0)
    seconds = {(one.world_rank, one.kind, one.sequence): one.duration_us / 1e6 for one in records}
    assert seconds[0, "Send", 0] == 0.5
    assert seconds[1, "Recv", 0] == 1.5
    assert seconds[1, "Send", 0] == 0.5
    assert seconds[0, "Recv", 0] == 3.0
    assert seconds[0, "Send", 1] == 3.0
    assert seconds[1, "Recv", 1] == 0.5
    assert {one.size_bytes for one in records if one.kind == "Send"} == {5}


def test_a_message_waits_for_the_one_before_it():
    # Messages move for 1.5 s: the first from 1 to 2.5, when the second begins; stage 1 takes that from 3.5 to 5, and
    # the third, begun at 5, from 6 to 7.5.
    work = replace(PLAIN, activation_bytes=15, micro_batches=3, schedule="gpipe")
    slow = Fabric(inside=NEVER, between=10.0, latency_s=0.0, noise=0.0)
    reporting = Reporting(point_to_point=True, end_noise_s=0.0)
    _, records = run(Layout(1, 2, 1, 1), work=work, fabric=slow, reporting=reporting, seconds=9.0)
    sends = {one.sequence: one.duration_us / 1e6 for one in records if one.kind == "Send" and one.world_rank == 0}
    assert sends == {0: 1.5, 1: 2.5, 2: 2.5}


def test_a_rank_that_sends_computes_on():
    work = replace(PLAIN, activation_bytes=5, micro_batches=3)
    slow = Fabric(inside=NEVER, between=10.0, latency_s=0.0, noise=0.0)
    simulation, _ = run(Layout(1, 2, 1, 1), work=work, fabric=slow, reporting=Reporting(point_to_point=True))
    sends = [one for one in simulation.operations if one[1] == "Send" and one[3] == [0]]
    assert [one[4] for one in sends[:2]] == [[1.0], [2.0]], "the first message is still under way at 2"


# What holds in every run (the late rank has the shortest time, and so on).


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_all_members_leave_together_and_no_rank_is_at_two_places(name):
    wrong = scenario(name, SMALL, since=5.0, pauses=Pauses(2), restarts=[Restart(14.0, 3.0, shuffle=True)])
    simulation, records = run(SMALL, wrong, reporting=Reporting(end_noise_s=0.0), seconds=25.0)
    times, free = by_operation(records), defaultdict(float)
    assert len(simulation.operations) > 500
    missing = 0
    for group, kind, sequence, ranks, arrivals, end in simulation.operations:
        recorded = times.get((group.communicator, kind, sequence), {})
        for rank, arrival in zip(ranks, arrivals, strict=True):
            assert free[rank] <= arrival <= end
            free[rank] = end
            if rank in recorded:
                assert arrival + recorded[rank] / 1e6 == pytest.approx(end, abs=0.6e-6)
            missing += rank not in recorded and end < 24.0
        late = max(zip(arrivals, ranks, strict=True))[1]
        if len(recorded) == len(ranks):
            assert recorded[late] == min(recorded.values()), "the last to come waits for nobody"
    assert missing < 0.05 * len(records), "only what was not written when the job was killed"
    assert missing > 0 or name == "hang"


def test_records_come_after_the_next_tick_of_their_ranks_clock():
    simulation = Watched(SMALL, reporting=Reporting(interval_s=0.5))
    ends, last = {}, 0.0
    for time, batch in simulation.batches(12.0):
        assert time == pytest.approx(last + 0.5)
        last = time
        ends |= {(one[0].communicator, one[1], one[2]): one[5] for one in simulation.operations}
        simulation.operations.clear()
        for one in batch:
            end = ends[one.communicator, one.kind, one.sequence]
            shift = simulation._shifts[one.world_rank]
            assert time - 1.0 <= end <= time
            assert end <= time - shift <= end + 0.5
    assert last == 12.0
    assert len(set(simulation._shifts)) == SMALL.ranks


def test_groups_ranks_hosts_and_sizes_of_a_thousand_ranks():
    layout = Layout()
    simulation = Simulation(layout)
    records = [record for _, batch in simulation.batches(4.0) for record in batch]
    assert layout.ranks == 1024
    groups = defaultdict(set)
    for one in records:
        groups[one.communicator].add((one.rank_in_comm, one.world_rank, one.host, one.gpu))
        assert one.host == f"gpu-{one.world_rank // 8:03}"
        assert one.gpu == one.world_rank % 8
        assert one.job == "job"
    shapes = Counter((one.n_ranks, one.nodes) for one in {one.communicator: one for one in records}.values())
    assert shapes == {(8, 1): 128, (32, 32): 32, (1024, 128): 1}
    for members in groups.values():
        assert [one[0] for one in sorted(members)] == list(range(len(members)))
        assert [one[1] for one in sorted(members)] == sorted(one[1] for one in members)
    data = next(sorted(one[1] for one in members) for members in groups.values() if len(members) == 32)
    assert {b - a for a, b in pairwise(data)} == {8}, "tensor counts first, then data"
    # 8 micro-batches forth and back, 2 buckets scattered and gathered, and the norm
    per_rank = Counter((one.kind, one.nodes) for one in records if one.world_rank == 77)
    assert per_rank["AllReduce", 1] >= 16
    assert per_rank["ReduceScatter", 32] == 2
    assert per_rank["AllReduce", 128] == 1
    assert simulation.truths == (Truth("fine"),)


def test_sequences_count_each_kind_of_each_communicator():
    _, records = run(SMALL)
    counts = defaultdict(set)
    for one in records:
        counts[one.communicator, one.kind, one.world_rank].add(one.sequence)
    assert all(found == set(range(len(found))) for found in counts.values())


def test_the_same_seed_makes_the_same_and_another_seed_another():
    wrong = scenario("rank", SMALL, since=5.0, pauses=Pauses(3))
    again = [run(SMALL, wrong, seed=seed, seconds=8.0)[1] for seed in (1, 1, 2)]
    assert again[0] == again[1]
    assert again[0] != again[2]
    assert not {one.communicator for one in again[0]} & {one.communicator for one in again[2]}


def test_a_fifth_is_lost_and_the_rest_is_as_if_nothing_were_lost():
    whole = set(run(SMALL, seconds=40.0)[1])
    simulation, records = run(SMALL, reporting=Reporting(loss=0.2), seconds=40.0)
    assert set(records) < whole
    assert simulation.made == len(whole)
    assert simulation.lost == len(whole) - len(records)
    assert 0.19 < simulation.lost / simulation.made < 0.21


def test_noise_is_of_the_logarithm_and_as_large_as_said():
    work, fabric = Work(noise=0.1, optimizer_s=0.0), Fabric(noise=0.1)
    simulation, _ = run(Layout(2, 1, 1, 2), work=work, fabric=fabric, seconds=400.0)
    lasting = [arrival - one[5] for one, following in pairwise(simulation.operations) for arrival in following[4]]
    forward = [one / 0.055 for one in lasting if 0.03 < one < 0.08]
    transfers = [(end - max(arrivals)) / 211.74e-6 for *_, arrivals, end in simulation.operations]
    for values in (sorted(forward), sorted(one for one in transfers if one > 0.3)):
        assert median(values) == pytest.approx(1.0, abs=0.01)
        assert values[round(0.8413 * len(values))] == pytest.approx(1.105, abs=0.01)
        assert values[round(0.9772 * len(values))] == pytest.approx(1.221, abs=0.02)


# What each scenario does.


def test_nobody_is_late_all_the_time_in_the_control_run():
    _, records = run(SMALL, seconds=60.0)
    tensor = shortest(select(records, "AllReduce", nodes=1))
    assert len(tensor) == 8
    assert max(max(shares.values()) for shares in tensor.values()) < 0.4


def test_a_slow_rank_is_the_shortest_of_its_tensor_group_and_its_replica_of_the_data_groups():
    wrong = Scenario((SlowRank(rank=22, share=0.1),))  # stage 1, replica 1, tensor 2
    simulation, records = run(SMALL, wrong, seconds=60.0)
    for shares in shortest(select(records, "AllReduce", nodes=1)).values():
        if 22 in shares:
            assert shares[22] > 0.9
        else:
            assert max(shares.values()) < 0.4
    scatters = shortest([one for one in select(records, "ReduceScatter") if one.sequence % 2 == 0])
    for shares in scatters.values():
        assert sum(share for rank, share in shares.items() if rank // 4 % 4 == 1) > 0.9, "followers are late with it"
    assert simulation.truths == (Truth("rank", 22, "gpu-005", 0.0, NEVER),)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_slow_rank_lengthens_the_step_by_its_share(share):
    wrong = Scenario((SlowRank(rank=0, share=share),))
    alone, piped = Simulation(Layout(4, 1, 2, 4), wrong, **EXACT), Simulation(SMALL, wrong, **EXACT)
    for simulation in (alone, piped):
        simulation._step()
    assert max(alone._free) / alone.step_s == pytest.approx(1 + share, abs=1e-3)
    assert 1 + 0.8 * share < max(piped._free) / piped.step_s < 1 + share, "some of it hides where the pipeline is idle"


def test_a_fault_begins_in_its_time_and_comes_by_turns():
    wrong = Scenario((SlowRank(20.0, until=60.0, on_s=10.0, period_s=20.0, rank=1, share=0.2),))
    simulation, _ = run(Layout(2, 1, 1, 2), wrong, **EXACT, seconds=80.0)
    for _, kind, _, _, arrivals, end in simulation.operations:
        if kind == "AllReduce" and end - max(arrivals) > 100e-6:
            late = arrivals[1] - arrivals[0] > 1e-6
            begun = arrivals[0] - 0.11
            if not any(edge - 0.15 < begun < edge + 0.15 for edge in (20, 30, 40, 50, 60)):
                assert late == (20 < begun < 30 or 40 < begun < 50), begun
    assert simulation.truths == (Truth("rank", 1, "gpu-000", 20.0, 60.0),)


def test_a_slow_host_has_no_late_rank_but_is_late():
    wrong = Scenario((SlowHost(host=5, share=0.1),))
    simulation, records = run(SMALL, wrong, seconds=60.0)
    assert max(max(shares.values()) for shares in shortest(select(records, "AllReduce", nodes=1)).values()) < 0.4
    first = [one for one in select(records, "ReduceScatter") if one.sequence % 2 == 0 and one.world_rank >= 16]
    for shares in shortest(first).values():
        assert sum(share for rank, share in shares.items() if rank // 4 == 5) > 0.9
    assert simulation.truths == (Truth("host", None, "gpu-005", 0.0, NEVER),)


@pytest.mark.parametrize(("slow", "mate"), [(5, 1), (1, 5)])
def test_messages_tell_which_stage_others_wait_for(slow, mate):
    wrong = Scenario((SlowHost(host=slow, share=0.2),))
    _, records = run(SMALL, wrong, reporting=Reporting(point_to_point=True), seconds=40.0)
    waits = defaultdict(list)
    for one in select(records, "Recv"):
        waits[int(one.host[4:])].append(one.duration_us)
    waits = {host: mean(times) for host, times in waits.items()}
    beside = {
        host: median(waits[other] for other in waits if other not in (1, 5) and other // 4 == host // 4)
        for host in (1, 5)
    }
    # hosts 1 and 5 are the two stages of a replica, and both are late for their data groups
    assert waits[mate] > 1.3 * beside[mate]
    assert waits[slow] < 0.95 * beside[slow]


def test_a_heavy_stage_makes_no_rank_late_in_its_groups():
    wrong = Scenario((SlowStage(stage=1, share=0.3),))
    simulation, records = run(SMALL, wrong, seconds=60.0)
    assert simulation.truths == (Truth("stage", since=0.0),)
    assert simulation.steps < 60.0 / simulation.step_s / 1.25
    groups = shortest([one for one in records if one.n_ranks < SMALL.ranks and one.kind != "AllGather"])
    assert max(max(shares.values()) for shares in groups.values()) < 0.6


def shortest_times(records):
    """Median over operations of the shortest time, by communicator."""
    found = defaultdict(list)
    for (communicator, _, _), times in by_operation(records).items():
        found[communicator].append(min(times.values()))
    return {communicator: median(times) for communicator, times in found.items()}


def test_a_slow_network_lengthens_the_time_of_all_and_names_nobody():
    clean = run(SMALL, seconds=40.0)[1]
    simulation, slow = run(SMALL, Scenario((SlowNetwork(factor=4.0),)), seconds=40.0)
    before, after = (shortest_times(select(one, "ReduceScatter")) for one in (clean, slow))
    assert median(after.values()) / median(before.values()) == pytest.approx(4.0, rel=0.05)
    inside = [shortest_times(select(one, "AllReduce", nodes=1)) for one in (clean, slow)]
    assert median(inside[1].values()) == pytest.approx(median(inside[0].values()), rel=0.05)
    assert max(max(shares.values()) for shares in shortest(select(slow, "AllReduce", nodes=1)).values()) < 0.4
    assert simulation.truths == (Truth("network", since=0.0),)


@pytest.mark.parametrize("fault", [SlowNetwork(factor=4.0, group=(2, 1)), SlowNic(rank=22, factor=4.0)])
def test_a_slow_ring_is_slow_for_all_its_members_and_no_other(fault):
    simulation, records = run(SMALL, Scenario((fault,)), seconds=40.0)
    scatters = select(records, "ReduceScatter")
    members = defaultdict(set)
    for one in scatters:
        members[one.communicator].add(one.world_rank)
    times = shortest_times(scatters)
    [slow] = [communicator for communicator, ranks in members.items() if 22 in ranks]
    normal = median(times.values())
    assert times.pop(slow) == pytest.approx(4.0 * normal, rel=0.1)
    assert max(times.values()) < 1.1 * normal
    second = [one for one in scatters if one.communicator == slow and one.sequence % 2 == 1]
    per_rank = {rank: mean(one.duration_us for one in second if one.world_rank == rank) for rank in members[slow]}
    assert max(per_rank.values()) < 1.01 * min(per_rank.values()), "nobody of the ring stands out"
    assert simulation.truths == (Truth("network", since=0.0),)


def test_unequal_work_makes_another_replica_late_each_time():
    simulation, records = run(SMALL, Scenario((Imbalance(noise=0.3),)), seconds=120.0)
    first = [one for one in select(records, "ReduceScatter") if one.sequence % 2 == 0]
    late = Counter(min(times, key=times.get) // 4 % 4 for times in by_operation(first).values())
    assert max(late.values()) < 0.5 * sum(late.values())
    waits = [max(times.values()) - min(times.values()) for times in by_operation(first).values()]
    assert median(waits) > 0.08 * simulation.step_s * 1e6
    assert simulation.truths == (Truth("imbalance", since=0.0),)


def test_a_pause_befalls_another_rank_every_few_steps():
    simulation, records = run(SMALL, Scenario(pauses=Pauses(2)), seconds=60.0)
    tensor = select(records, "AllReduce", nodes=1)
    late = [(min(times, key=times.get), max(times.values())) for times in by_operation(tensor).values()]
    late = [(rank, time) for rank, time in late if time > 90_000]
    assert simulation.steps // 2 - 2 <= len(late) <= simulation.steps // 2
    assert all(time < 560_000 for _, time in late)
    assert len({rank for rank, _ in late}) > len(late) / 2
    assert simulation.truths == (Truth("fine"),)


def test_a_job_of_which_a_rank_hangs_falls_silent_but_time_goes_on():
    simulation = Watched(SMALL, Scenario((Hang(10.0, rank=22),)))
    batches = list(simulation.batches(40.0))
    assert [time for time, _ in batches] == [float(second) for second in range(1, 41)]
    assert all(batch for _, batch in batches[3:10])
    assert not any(batch for _, batch in batches[14:])
    reached = Counter()
    for _, _, _, ranks, _, _ in simulation.operations:
        reached.update(ranks)
    ends = max(operation[5] for operation in simulation.operations)
    assert ends < 10.0 + 2 * simulation.step_s
    assert reached[22] == min(reached.values()), "nobody has ended fewer operations than the one that hangs"
    assert simulation.truths == (Truth("hang", 22, "gpu-005", 10.0, NEVER),)


def test_a_restart_brings_new_communicators_and_moves_what_is_wrong_with_its_host():
    wrong = Scenario((SlowRank(rank=22, share=0.1),), restarts=(Restart(20.0, 10.0, shuffle=True),))
    simulation, _ = run(SMALL, wrong, seed=1)
    batches = list(Simulation(SMALL, wrong, seed=1).batches(70.0))
    old = [record for time, batch in batches for record in batch if time <= 21.0]
    new = [record for time, batch in batches for record in batch if time > 21.0]
    assert not any(batch for time, batch in batches if 21.0 < time <= 30.0)
    assert not {one.communicator for one in old} & {one.communicator for one in new}
    assert {0} == {min(times) for times in sequences(new).values()} == {min(times) for times in sequences(old).values()}
    before, after = simulation.truths
    assert before == Truth("rank", 22, "gpu-005", 0.0, 20.0)
    assert after[3:] == (30.0, NEVER)
    assert after.host == before.host
    assert after.world_rank != before.world_rank
    assert after.world_rank % 4 == before.world_rank % 4
    [shares] = [one for one in shortest(select(new, "AllReduce", nodes=1)).values() if after.world_rank in one]
    assert shares[after.world_rank] > 0.9
    assert {one.host for one in new if one.world_rank == after.world_rank} == {"gpu-005"}


def sequences(records):
    found = defaultdict(list)
    for one in records:
        found[one.communicator, one.kind].append(one.sequence)
    return found


def test_what_was_not_written_when_the_job_was_killed_is_lost():
    simulation, records = run(SMALL, Scenario(restarts=(Restart(20.0),)), seconds=39.0)
    ended = sum(len(operation[3]) for operation in simulation.operations if operation[5] < 20.0)
    assert all(operation[5] < 20.0 for operation in simulation.operations)
    # half a tick of the job's life is lost on average
    assert 0.0 < 1 - len(records) / ended < 2 * 0.5 / 20.0


def test_a_replaced_host_takes_its_fault_with_it():
    wrong = Scenario((SlowHost(host=5, share=0.2),), restarts=(Restart(20.0, 5.0, replaced=(5,)),))
    simulation, records = run(SMALL, wrong, seconds=60.0)
    assert simulation.truths == (Truth("host", None, "gpu-005", 0.0, 20.0),)
    hosts = defaultdict(set)
    for one in records:
        hosts[one.world_rank].add(one.host)
    assert hosts[20] == {"gpu-005", "gpu-008"}
    assert hosts[16] == {"gpu-004"}
    communicators = {one.communicator for one in records if one.host == "gpu-008"}
    after = [one for one in select(records, "ReduceScatter") if one.communicator in communicators]
    assert max(max(shares.values()) for shares in shortest(after).values()) < 0.7


def test_an_inspector_that_samples_keeps_the_last_operation_of_each_communicator_and_tick():
    whole, simulation = Watched(SMALL), Simulation(SMALL, reporting=Reporting(sampled=True))
    differ = 0
    for (_, everything), (_, batch) in zip(whole.batches(30.0), simulation.batches(30.0), strict=True):
        ends = {(one[0].communicator, one[1], one[2]): one[5] for one in whole.operations}
        last = {}
        for one in everything:
            key = one.world_rank, one.communicator
            last[key] = max(last.get(key, (0.0, None)), (ends[one.communicator, one.kind, one.sequence], one))
        assert sorted(batch) == sorted(one for _, one in last.values())
        kept = defaultdict(set)
        for one in batch:
            kept[one.communicator].add((one.kind, one.sequence))
        differ += sum(len(found) > 1 for found in kept.values())
    assert differ > 30, "ranks dump at different times, so they keep different operations"
    assert simulation.made < whole.made / 2
    with pytest.raises(ValueError, match="no point-to-point"):
        Simulation(SMALL, reporting=Reporting(sampled=True, point_to_point=True))


def test_hosts_are_full():
    with pytest.raises(ValueError, match="12 ranks do not fill hosts of 8 GPUs"):
        Simulation(Layout(2, 2, 3))


def test_every_scenario_says_what_is_the_matter():
    found = {name: Simulation(Layout(), scenario(name, Layout(), seed=3)).truths[0] for name in SCENARIOS}
    assert {name: truth.kind for name, truth in found.items()} == {
        "control": "fine",
        "rank": "rank",
        "rank by turns": "rank",
        "host": "host",
        "stage": "stage",
        "network": "network",
        "network of a group": "network",
        "nic": "network",
        "imbalance": "imbalance",
        "hang": "hang",
    }
    assert {truth.since for name, truth in found.items() if name != "control"} == {60.0}
    assert found["rank"].host == f"gpu-{found['rank'].world_rank // 8:03}" == found["host"].host
