"""The measurements of docs/scale.md: the load that they make, and the sizes that follow."""

import pytest

from benchmarks.detection.virtual_fabric import VirtualFabric
from benchmarks.large_job import LargeJob
from benchmarks.scale_sizes import BATCH_BYTES, NODE_SERIES, OPERATIONS, POLL, PUBLISH, Size
from exporter.nccl.batch_codec import decode, encode
from exporter.sources.nccl.options import NcclOptions
from exporter.sources.switch import targets

# --- the load


def test_ranks_of_a_large_job_publish_twenty_operations_a_step_once_each():
    job = LargeJob("llm", 16, step=4.0)
    seen: list[tuple[object, ...]] = []
    for since in range(0, 20, 5):
        (batch,) = (decode(part) for part in encode(job.batch(3, since, since + 5)))
        seen += [(s.world_rank, s.communicator, s.kind, one.sequence) for s, of in batch.streams for one in of]
    assert len(seen) == len(set(seen)) == 8 * 5 * 20  # ranks of a host, steps in 20 seconds, operations of a step
    assert {rank for rank, *_ in seen} == set(range(24, 32))


def test_each_rank_of_a_communicator_has_another_place_in_it():
    job = LargeJob("llm", 16)
    places = [
        (stream.communicator, stream.kind, stream.rank, stream.ranks)
        for host in range(16)
        for stream, _ in job.batch(host, 0, 8).streams
    ]
    assert len(places) == len(set(places))
    members = {}
    for communicator, kind, place, ranks in places:
        members.setdefault((communicator, kind, ranks), set()).add(place)
    assert all(found == set(range(ranks)) for (_, _, ranks), found in members.items())


# --- the sizes


def test_switches_are_those_of_fabrics_without_oversubscription():
    # Two levels: as many ports down as up, so 1.5 switches of 64 ports for each 32 rails; three levels: 2.5.
    assert [Size(nodes).switches for nodes in (4, 256, 257, 1024)] == [2, 96, 161, 640]


def test_twice_the_nodes_need_twice_the_series():
    assert sum(Size(2000).series) == pytest.approx(2 * sum(Size(1000).series), rel=0.001)


def test_a_batch_has_as_many_bytes_as_are_computed_with():
    (payload,) = encode(LargeJob("job-0-1", 128, step=20 / OPERATIONS).batch(0, 10.0, 10.0 + PUBLISH))
    assert len(payload) == pytest.approx(BATCH_BYTES, rel=0.05)


def test_intervals_are_the_defaults():
    assert (NcclOptions().interval, targets.INTERVAL) == (PUBLISH, POLL)


async def test_a_host_exports_as_many_series_as_are_computed_with(tmp_path):
    async with VirtualFabric(tmp_path) as fabric:
        counts = [len(scrape.pages["gpu-001"]) async for scrape in fabric.scrapes(range(30, 181, 30))]
    assert counts[-1] == pytest.approx(NODE_SERIES, rel=0.03)
