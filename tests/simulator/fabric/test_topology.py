"""How hosts, leaves and spines are cabled."""

from itertools import pairwise

import pytest

from exporter.simulator.fabric.topology import Shape, Topology

CLUSTER = Topology(Shape())


def test_two_pods_of_two_hosts_have_rails_0_to_3_on_one_leaf_and_4_to_7_on_the_other():
    leaves = [[CLUSTER.leaf_of(adapter) for adapter in CLUSTER.adapters(host)] for host in CLUSTER.hosts]
    first, second = ["leaf-01"] * 4 + ["leaf-02"] * 4, ["leaf-03"] * 4 + ["leaf-04"] * 4
    assert leaves == [first, first, second, second]
    assert CLUSTER.spines == ("spine-01", "spine-02", "spine-03", "spine-04")


def test_each_port_has_one_cable():
    ends = [end for cable in CLUSTER.cables for end in cable]
    assert len(CLUSTER.cables) == 4 * 8 + 4 * 4
    assert len(set(ends)) == len(ends)


def test_traffic_of_a_leaf_stays_there_and_all_other_goes_over_a_spine():
    def devices(one, other):
        hops = CLUSTER.path(CLUSTER.adapter(*one), CLUSTER.adapter(*other), "spine-03")
        assert all(before.receiver.device == after.sender.device for before, after in pairwise(hops))
        return [hops[0].sender.device, *(hop.receiver.device for hop in hops)]

    assert devices(("gpu-001", 2), ("gpu-002", 2)) == ["gpu-001", "leaf-01", "gpu-002"]
    assert devices(("gpu-002", 2), ("gpu-003", 2)) == ["gpu-002", "leaf-01", "spine-03", "leaf-03", "gpu-003"]
    assert devices(("gpu-001", 2), ("gpu-002", 6)) == ["gpu-001", "leaf-01", "spine-03", "leaf-02", "gpu-002"]


def test_the_hops_of_a_path_are_directions_of_cables():
    hops = CLUSTER.path(CLUSTER.adapter("gpu-002", 7), CLUSTER.adapter("gpu-003", 0), "spine-01")
    directions = {hop for cable in CLUSTER.cables for hop in (cable.up, cable.down)}
    assert len(hops) == 4
    assert set(hops) <= directions


def test_swapped_cables_exchange_their_ports_at_the_leaves():
    one, other = CLUSTER.adapter("gpu-001", 3), CLUSTER.adapter("gpu-001", 7)
    swapped = Topology(Shape(), frozenset({(one, other)}))
    assert [swapped.leaf_of(one), swapped.leaf_of(other)] == ["leaf-02", "leaf-01"]
    assert swapped.access(one).upper == CLUSTER.access(other).upper
    assert len(set(swapped.cables) - set(CLUSTER.cables)) == 2


@pytest.mark.parametrize("shape", [Shape(pods=3, hosts=4, rails=4, leaves=1, spines=2), Shape(pods=1, leaves=8)])
def test_sizes_are_parameters(shape):
    cluster = Topology(shape)
    ends = [end for cable in cluster.cables for end in cable]
    assert len(cluster.hosts) == shape.pods * shape.hosts
    assert len(cluster.cables) == shape.pods * (shape.hosts * shape.rails + shape.leaves * shape.spines)
    assert len(set(ends)) == len(ends)
