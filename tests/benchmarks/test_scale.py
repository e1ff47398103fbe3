"""The measurements of docs/scale.md: the load that they make, the sizes that follow, each program in a small size."""

import re
import subprocess
import sys

import pytest

from benchmarks.detection.virtual_fabric import VirtualFabric
from benchmarks.large_job import LargeJob
from benchmarks.scale_sizes import NODE_SERIES, PORT_SERIES, Size, table
from exporter.nccl.batch_codec import decode, encode
from tests.helpers.paths import ROOT


def scale(*arguments: object) -> str:
    """Run the program, and return what it prints."""
    command = [sys.executable, "benchmarks/scale.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def found(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern finds in a text, which has one place for each of its groups."""
    match = re.search(pattern, text)
    assert match, text
    return [float(number.replace(",", "")) for number in match.groups()]


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


async def test_a_host_exports_as_many_series_as_are_computed_with(tmp_path):
    async with VirtualFabric(tmp_path) as fabric:
        counts = [len(scrape.pages["gpu-001"]) async for scrape in fabric.scrapes(range(30, 181, 30))]
    assert counts[-1] == pytest.approx(NODE_SERIES, rel=0.03)


def test_the_table_is_printed():
    assert scale("sizes", "--nodes", "64,3000") == table([64, 3000]) + "\n"


# --- the programs, in a small size


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_collectors_receive_all_that_is_published(program):
    program("mosquitto")
    printed = scale("collectors", "--nodes", 8, "--job-nodes", 4, "--collectors", 2, "--settling", 12, "--seconds", 16)
    operations, batches = found(r"2 collectors: ([\d,]+) operations and ([\d,.]+) batches", printed)
    assert operations == pytest.approx(8 * 8 * 20 / 4, rel=0.3)  # ranks, and operations of each in a second
    assert batches == pytest.approx(8 / 5, rel=0.5)  # a batch of each host in five seconds
    assert found(r"lost: (\d+); verdicts on (\d) jobs", printed) == [0, 2]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_pollers_share_the_switches():
    pytest.importorskip("gufo.snmp", reason="needs gufo_snmp")
    printed = scale("pollers", "--switches", 8, "--pollers", 2, "--seconds", 16)
    assert sum(found(r"2 pollers \((\d) \+ (\d) switches\)", printed)) == 8
    assert found(r"intervals missed: (\d+)", printed) == [0]
    assert found(r"([\d.]+) a port", printed) == [pytest.approx(PORT_SERIES, rel=0.02)]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_prometheus_evaluates_the_rules_on_copies_of_the_fabric(program):
    program("prometheus")
    printed = scale("prometheus", "--series", 10_000, "--divide", 15, "--scrapes", 24)
    hosts, ranks, series, stored = found(
        r"(\d+) hosts, \d+ switches, (\d+) ranks: ([\d,]+) series scraped, ([\d,]+) with", printed
    )
    assert (hosts, ranks) == (8, 64)
    assert 10_000 <= series < stored
    assert found(r"missed (\d+), failed (\d+)", printed)[1] == 0
