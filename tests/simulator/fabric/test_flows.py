"""The flows of a collective, and how evenly a hash puts them on the spines."""

from collections import defaultdict

import pytest

from exporter.simulator.fabric.faults import Plan, parse_fault
from exporter.simulator.fabric.flows import flows
from exporter.simulator.fabric.topology import Shape, Topology

CLUSTER = Topology(Shape())


def ring(*faults, rails=range(8), hosts=CLUSTER.hosts, seed=1):
    plan = Plan([parse_fault(fault, CLUSTER) for fault in faults], CLUSTER)
    return flows(hosts, tuple(rails), plan.cabling(0.0), plan.conditions(0.0), seed)


def loads(found):
    """Give the part of a ring's bytes that each hop has."""
    sums = defaultdict(float)
    for flow in found:
        for hop in flow.hops:
            sums[hop] += flow.share
    return sums


def uplink_shares(found, leaf, way):
    of = loads(found)
    hops = [getattr(CLUSTER.uplink(leaf, spine), way) for spine in CLUSTER.spines]
    total = sum(of.get(hop, 0.0) for hop in hops)
    return [of.get(hop, 0.0) / total for hop in hops]


def test_each_adapter_sends_and_receives_the_same_part():
    of = loads(ring())
    access = [CLUSTER.access(adapter) for host in CLUSTER.hosts for adapter in CLUSTER.adapters(host)]
    assert len(access) == 32
    assert [of[hop] for cable in access for hop in (cable.up, cable.down)] == pytest.approx([1 / 8] * 64)


def test_two_of_four_connections_of_a_rail_cross_the_spines():
    crossing = [flow for flow in ring() if len(flow.hops) == 4]
    assert sum(flow.share for flow in crossing) == pytest.approx(2)  # of 4, the hosts of a ring
    assert {(flow.source.device, flow.target.device) for flow in crossing} == {
        ("gpu-002", "gpu-003"),
        ("gpu-004", "gpu-001"),
    }


def test_a_healthy_hash_is_almost_even_and_never_perfectly():
    runs = [ring(seed=seed) for seed in range(40)]
    shares = [uplink_shares(found, leaf, way) for found in runs for leaf in CLUSTER.leaves for way in ("up", "down")]
    worst = [max(one) * 4 for one in shares]
    assert max(worst) < 1.15
    assert sum(worst) / len(worst) > 1.02


def test_another_run_of_the_job_is_hashed_otherwise_and_the_same_one_is_not():
    assert ring(seed=1) == ring(seed=1)
    assert uplink_shares(ring(seed=1), "leaf-01", "up") != uplink_shares(ring(seed=2), "leaf-01", "up")


def test_a_bad_hash_gives_one_spine_three_times_the_flows_of_the_others():
    shares = uplink_shares(ring("one-spine:spine-03"), "leaf-02", "up")
    assert shares[2] == pytest.approx(0.5, abs=0.05)
    assert [one for place, one in enumerate(shares) if place != 2] == pytest.approx([1 / 6] * 3, abs=0.05)


def test_without_a_spine_the_others_get_its_flows():
    shares = uplink_shares(ring("spine-gone:spine-01"), "leaf-04", "down")
    assert shares[0] == 0
    assert shares[1:] == pytest.approx([1 / 3] * 3, abs=0.08)


def test_a_leaf_avoids_only_the_spine_whose_link_is_down_at_either_end():
    found = ring("link-down:leaf-01/spine-02")
    assert uplink_shares(found, "leaf-01", "up")[1] == 0
    assert uplink_shares(found, "leaf-03", "up")[1] == 0  # its flows go to leaf-01
    assert uplink_shares(found, "leaf-02", "up")[1] > 0.2


def test_next_to_an_adapter_that_is_down_another_has_twice_the_bytes():
    of = loads(ring("link-down:gpu-001/6"))
    sent = [of.get(CLUSTER.access(adapter).up, 0.0) * 8 for adapter in CLUSTER.adapters("gpu-001")]
    assert sent == pytest.approx([1, 1, 1, 1, 1, 1, 0, 2])


def test_half_of_the_adapters_have_all_bytes():
    of = loads(ring("half-adapters"))
    sent = [of.get(CLUSTER.access(adapter).up, 0.0) * 8 for adapter in CLUSTER.adapters("gpu-003")]
    assert sent == pytest.approx([2, 0] * 4)


def test_a_swapped_rail_crosses_the_spines_within_its_pod():
    found = [flow for flow in ring("rail-swapped:gpu-002/3") if flow.source == CLUSTER.adapter("gpu-001", 3)]
    assert {len(flow.hops) for flow in found} == {4}
    assert {(flow.hops[0].receiver.device, flow.hops[-1].sender.device) for flow in found} == {("leaf-01", "leaf-02")}


def test_a_collective_of_some_rails_and_hosts_uses_these_alone():
    found = ring(rails=[5], hosts=("gpu-001", "gpu-004"))
    assert {flow.source for flow in found} == {CLUSTER.adapter("gpu-001", 5), CLUSTER.adapter("gpu-004", 5)}
    assert sum(flow.share for flow in found) == pytest.approx(2)


def test_no_flow_reaches_a_host_without_adapters():
    assert ring("missing-port:gpu-002") is None
    assert ring(*(f"spine-gone:spine-0{number}" for number in range(1, 5))) is None
