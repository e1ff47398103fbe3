"""How long collectives were queued: by hand, and in simulated jobs, whose ranks must agree on when each one ended."""

from collections import defaultdict

import pytest

from exporter.simulator.training import queueing
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import SlowNetwork
from exporter.simulator.training.queueing import Queueing
from exporter.simulator.training.records import Record, Reporting
from exporter.simulator.training.scenario import Scenario, simulate

MILLISECOND = 1000.0


def record(sequence, start, took, *, kind="AllReduce", rank=0, communicator="c"):
    """Return a record of a start and a duration in milliseconds."""
    begin = None if start is None else 5e8 + start * MILLISECOND
    duration = None if took is None else took * MILLISECOND
    return Record(1.0, "gpu-0", "llm", communicator, 8, 1, rank, kind, sequence, 64, duration, begin)


def queued(*records, parts=1):
    """Return the milliseconds in the queue, read in a number of parts."""
    known = Queueing()
    size = -(-len(records) // parts)
    found = [one for at in range(0, len(records), size) for one in known.queued(records[at : at + size])]
    return [None if one is None else pytest.approx(one / MILLISECOND, abs=1e-6) for one in found]


@pytest.mark.parametrize("parts", [1, 4])
def test_what_was_reached_before_the_end_of_the_one_before_was_queued_until_then(parts):
    # ends at 10; reached at 3, ends at 14; reached at 13.5, ends at 20; reached at 30
    records = record(0, 0, 10), record(1, 3, 4), record(2, 13.5, 6), record(3, 30, 5)
    assert queued(*records, parts=parts) == [0, 7, 0.5, 0]


def test_collectives_of_all_kinds_of_a_communicator_run_one_after_the_other():
    records = (
        record(0, 0, 10, kind="AllGather"),
        record(0, 2, 5, kind="ReduceScatter"),  # ends at 15
        record(1, 6, 4, kind="AllGather"),
        record(0, 7, 9, communicator="other"),
        record(0, 7, 9, rank=1),
    )
    expected = [0, 8, 9, 0, 0]
    assert queued(*records) == expected
    order = [3, 1, 4, 2, 0]
    assert queued(*(records[place] for place in order)) == [expected[place] for place in order], "in any order"


def test_those_that_were_reached_at_one_time_run_in_order_of_their_numbers():
    records = record(1, 0, 3), record(0, 0, 5, kind="AllGather"), record(0, 0, 10), record(2, 0, 1)
    assert queued(*records) == [15, 10, 0, 18]


def test_a_start_at_the_end_of_the_one_before_does_not_show_the_arrival():
    records = record(0, 0, 10), record(1, 10.01, 4), record(2, 14.005, 4), record(3, 25, 4)
    assert queued(*records) == [0, None, None, 0]


@pytest.mark.parametrize("of_kind", ["AllReduce", "AllGather"])
def test_after_a_lost_record_nothing_is_known_until_a_rank_is_late_enough(of_kind):
    records = [
        record(0, 0, 10),
        *([record(0, 0.5, 1, kind=of_kind)] if of_kind != "AllReduce" else []),
        record(1 if of_kind != "AllReduce" else 2, 12, 4),  # the lost one may have ended at any time
        record(2 if of_kind != "AllReduce" else 3, 15, 4),
        *([record(2, 15.5, 1, kind=of_kind)] if of_kind != "AllReduce" else []),
        record(3 if of_kind != "AllReduce" else 4, 60, 4),
        record(4 if of_kind != "AllReduce" else 5, 61, 4),
    ]
    assert queued(*records)[-2:] == [0, 3]
    assert queued(*records)[-4:-2] == [None, None]


def test_the_first_record_of_a_rank_that_is_not_its_first_one_is_unknown():
    assert queued(record(7, 0, 10), record(8, 2, 4), record(9, 100, 4), record(10, 101, 4)) == [None, None, 0, 3]


def test_records_without_a_start_or_an_end_and_those_received_twice_are_unknown():
    records = record(0, 0, 10), record(1, None, 4), record(0, 0, 10), record(1, 4, None)
    assert queued(*records) == [0, None, None, None]


DDP = DistributedDataParallel(8, compute=0.2, gpus_per_node=2)
FSDP = FullyShardedDataParallel(8, compute=0.5, layers=8, layer_bytes=64 << 20, gpus_per_node=2)


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize(("layout", "bandwidth"), [(DDP, 0.03), (FSDP, 0.1)], ids=["ddp", "fsdp"])
def test_arrival_queue_and_time_of_all_ranks_add_up_to_the_same_end(layout, bandwidth, loss):
    """Whatever the clock of each rank: its difference to that of the first one is the same for all collectives."""
    network, reporting = SlowNetwork(share=bandwidth, since=0.0), Reporting(loss=loss, end_noise=0.0)
    found = simulate(Scenario(layout, 12.0, [network], reporting=reporting, gpus_per_node=2)).records
    ends = defaultdict(dict)
    times = Queueing().queued(found)
    for one, waited in zip(found, times, strict=True):
        if waited is not None:
            ends[one.kind, one.sequence][one.rank] = one.start + waited + one.microseconds
    known = [one for one in times if one is not None]
    assert max(known) > 5 * MILLISECOND, "otherwise nothing was queued"
    assert len(known) > (0.8 if loss else 0.95) * len(found)
    offsets = defaultdict(list)
    for by_rank in ends.values():
        for rank in by_rank.keys() - {0} if 0 in by_rank else ():
            offsets[rank].append(by_rank[rank] - by_rank[0])
    assert set(offsets) == set(range(1, 8))
    assert min(map(len, offsets.values())) > 10
    assert max(max(values) - min(values) for values in offsets.values()) < 20.0


def test_only_the_latest_ends_are_stored(monkeypatch):
    """Ranks report at times of their own, so that what one shows may be gone when another one needs it."""
    monkeypatch.setattr(queueing, "MAX_ENDS", 8)
    found = simulate(Scenario(FSDP, 12.0, reporting=Reporting(loss=0.2), gpus_per_node=2)).records
    known = Queueing()
    times = [one for at in range(0, len(found), 50) for one in known.queued(found[at : at + 50])]
    assert len(times) == len(found)
    assert any(one is not None for one in times)
