"""What the links of hosts allow a job, and that a job which is slow from its start is not its own measure."""

import pytest

from exporter.meaning.training import jobs
from exporter.meaning.training.alignment import Collectives
from exporter.meaning.training.bandwidth import Baseline, Shape
from exporter.meaning.training.link_limits import HostLinks, LinkLimits, Links, expected
from exporter.meaning.training.records import Stream, Timing
from exporter.meaning.training.step_budget import Plan
from tests.helpers.steady_job import MIB, Job, Work

FAST = 50e9
"""Bytes per second of a link of 400 Gb/s."""


def limits(members, links, per_rank=None):
    """Return the limit of communicators, given the host and nearest ports of each rank in them."""
    known, found = Collectives(), LinkLimits()
    for name, ranks in members.items():
        for rank, (host, ports) in ranks.items():
            known.add(
                Stream("j", name, "AllReduce", rank, len(ranks), 2, host, ports=ports), [Timing(0, MIB, 1.0)], 0.0
            )
    found.find(known.jobs["j"], links, per_rank, 0.0)
    return found.limits


def ranks(hosts, count, ports="mlx5_{}:1=ens{}"):
    return {f"{host}/{one}": (host, ports.format(one, one)) for host in hosts for one in range(count)}


def every_host(speed=FAST, rails=8):
    return Links(lambda host: HostLinks(speed, rails))


def test_eight_rails_allow_what_their_links_do_together():
    """400 GB/s on hosts with eight links of 400 Gb/s: 464 to 480 GB/s with NVLS and 360 to 390 without are measured."""
    world = ranks(["a", "b"], 8)
    rail = {name: where for name, where in world.items() if name.endswith("/3")}
    assert limits({"world": world, "rail": rail}, every_host()) == {"world": 8 * FAST, "rail": FAST}


def test_a_link_that_two_ranks_use_counts_in_halves():
    world = ranks(["a", "b"], 8, "mlx5_0:1") | ranks(["c"], 8)
    assert limits({"world": world}, every_host()) == {"world": FAST}
    assert limits({"world": ranks(["a", "b"], 8, "")}, every_host(rails=4)) == {"world": 4 * FAST}
    assert limits({"world": ranks(["a", "b"], 2, "mlx5_0:1,mlx5_1:1,mlx5_2:1")}, every_host(rails=2)) == {
        "world": 2 * FAST
    }
    assert limits({"world": ranks(["a", "b"], 1, "")}, every_host(rails=8)) == {"world": FAST}, "one rank, one link"


def test_the_slowest_host_decides_and_an_unknown_one_leaves_it_unknown():
    of = {"a": HostLinks(FAST, 8), "b": HostLinks(FAST / 2, 8)}
    assert limits({"world": ranks(["a", "b"], 8)}, Links(of.get)) == {"world": 4 * FAST}
    assert limits({"world": ranks(["a", "c"], 8), "ab": ranks(["a", "b"], 2)}, Links(of.get)) == {"ab": FAST}
    assert limits({"world": ranks(["a", "b"], 8)}, Links()) == {}
    assert limits({"world": ranks(["a", "b"], 8, "")}, Links(lambda _: HostLinks(FAST))) == {}


def test_the_plan_of_a_job_has_the_share_of_each_rank():
    assert limits({"world": ranks(["a", "b"], 8)}, Links(), per_rank=25e9) == {"world": 8 * 25e9}


@pytest.mark.parametrize(
    ("size", "lowest", "highest"),
    [(8 << 30, 300e9, 320e9), (256 * MIB, 250e9, 310e9), (MIB, 1e9, 15e9)],
)
def test_small_operations_are_expected_to_be_slower(size, lowest, highest):
    """Of two nodes of eight H100 and eight links of 400 Gb/s, as nccl-tests of such nodes have it at least."""
    assert lowest < expected(Shape("AllReduce", size, 16, 2), 8 * FAST, 0.8) < highest
    assert expected(Shape("Barrier", size, 16, 2), 8 * FAST, 0.8) is None


TCP = Work(step=1.0, network=0.3)
"""512 MiB in 0.3 s on two ranks: 1.8 GB/s, as over sockets."""


def job(known, **other):
    return Job(step=lambda state, table: jobs.step(known, state, table), ports="mlx5_0:1", **other)


def verdict(one):
    return next(key[2] for key, value in one.values.items() if key[0] == "verdict" and value == 1)


def test_a_job_that_starts_on_a_slow_network_is_bound_by_it_where_its_links_are_known():
    """Without the links it is its own best, and judged fine."""
    unknown = job(jobs.JobKnowledge())
    unknown.works(TCP, 4)
    assert (verdict(unknown), unknown.values["network_ratio", "llm"]) == ("fine", pytest.approx(1.0, abs=0.1))
    # Two ranks of a host share its port: 25 GB/s each, of which 0.8 are expected.
    known = job(jobs.JobKnowledge(links=every_host(rails=1)))
    known.works(TCP, 4)
    assert verdict(known) == "network_bound"
    assert known.values["network_ratio", "llm"] == pytest.approx(512 * MIB / 0.3 / (0.8 * 25e9), rel=0.06)
    planned = job(jobs.JobKnowledge(plans=[("*", Plan(1e9, 2, nodes=2, bandwidth=25e9))]))
    planned.works(TCP, 4)
    assert verdict(planned) == "network_bound"


def test_a_job_at_the_speed_of_its_links_is_fine_and_the_share_is_configured():
    fast = Work(step=0.5, network=512 * MIB / 20e9)
    known = job(jobs.JobKnowledge(links=every_host(rails=1)))
    known.works(fast, 4)
    assert verdict(known) == "fine"
    assert known.values["network_ratio", "llm"] == pytest.approx(1.0, rel=0.06)
    half = job(jobs.JobKnowledge(links=Links(lambda _: HostLinks(FAST, 1), share=0.1)))
    half.works(TCP, 2)
    assert half.values["network_ratio", "llm"] == pytest.approx(512 * MIB / 0.3 / (0.1 * 25e9), rel=0.1)


def test_what_was_measured_comes_first_and_the_own_best_still_counts():
    measured = Baseline({("AllReduce", 512 * MIB): 2e9})
    tcp = job(jobs.JobKnowledge(measured, every_host(rails=1)))
    tcp.works(TCP, 4)
    assert verdict(tcp) == "fine"
    better = job(jobs.JobKnowledge(links=every_host(speed=10e9, rails=1)))
    better.works(Work(network=512 * MIB / 20e9), 4)
    better.works(Work(network=512 * MIB / 9e9), 4)
    assert verdict(better) == "network_bound", "it was more than twice as fast, whatever its links allow"
