"""The topology model: links in both directions, names of nodes, levels of switches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.mad.datagram import PERMISSIVE_LID, Problem, Route
from exporter.linux.mad.subnet import NodeInfo, PortInfo
from exporter.sources.ibfabric.model import (
    IbFabric,
    IbNode,
    LinkEnd,
    format_guid,
    format_width,
)


def node(guid, kind=2, description="", lids=()):
    made = IbNode(NodeInfo(kind, 4, guid, guid, guid, 0, 0, 0, 0), bytes([1, 2]), description)
    for number, lid in lids:
        made.ports[number] = port(lid)
    return made


def port(lid=0, *, state=4, lanes=4, generation="HDR", can=(4,), speeds=("HDR",)):
    return PortInfo(lid, 1, 0, 0, 0, state, 5, 0, lanes, generation, frozenset(can), frozenset(speeds))


LINK_ENDS = st.builds(LinkEnd, st.integers(1, 4), st.integers(1, 3))
STEPS = st.one_of(
    st.tuples(st.just("add_link"), LINK_ENDS, LINK_ENDS),
    st.tuples(st.just("remove_link"), LINK_ENDS),
    st.tuples(st.just("remove_nodes"), st.integers(1, 4)),
)


@given(st.lists(STEPS, max_size=40))
def test_after_any_changes_each_link_is_stored_in_both_directions(steps):
    fabric = IbFabric({guid: node(guid) for guid in range(1, 5)})
    for name, *what in steps:
        if name == "remove_nodes" and what[0] not in fabric.nodes:
            continue
        fabric.remove_nodes(what) if name == "remove_nodes" else getattr(fabric, name)(*what)
        assert all(fabric.peers[other] == one for one, other in fabric.peers.items())
        if name == "add_link":
            assert fabric.peers[what[0]] == what[1]
        if name == "remove_nodes":
            assert what[0] not in {end.guid for end in (*fabric.peers, *fabric.peers.values())}
            fabric.nodes[what[0]] = node(what[0])
    links = list(fabric.links())
    assert len({end for link in links for end in link}) == len(fabric.peers)
    assert all(one <= other for one, other in links)


def test_adding_a_link_clears_the_unanswered_port():
    fabric = IbFabric({1: node(1), 2: node(2)})
    fabric.unanswered[LinkEnd(1, 1)] = Problem.TIMEOUT
    fabric.add_link(LinkEnd(1, 1), LinkEnd(2, 1))
    assert not fabric.unanswered
    assert fabric.remove_link(LinkEnd(1, 1)) == LinkEnd(2, 1)
    assert fabric.remove_link(LinkEnd(1, 1)) is None


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("gpu-17 mlx5_0", ("gpu-17", "mlx5_0")),
        ("gpu-17.example.org HCA-1", ("gpu-17.example.org", "HCA-1")),
        ("gpu-17 ibp3s0f1", ("gpu-17", "ibp3s0f1")),
        ("gpu-17 rocep1s0", ("gpu-17", "rocep1s0")),
        ("MT4123 ConnectX6 Mellanox Technologies", ("", "")),
        ("gpu-17", ("", "")),
        ("", ("", "")),
        ("gpu-17 mlx5_0 and more", ("", "")),
    ],
)
def test_host_and_device_are_parsed_from_linux_node_descriptions(description, expected):
    assert node(1, 1, description).host_and_device == expected
    assert node(1, 2, description).host_and_device == ("", "")  # a switch has no host, whatever its description


@pytest.mark.parametrize(
    ("kind", "description", "expected"),
    [
        (1, "gpu-1 mlx5_0", "adapter"),
        (1, "Mellanox Technologies Aggregation Node", "aggregation"),
        (2, "Quantum", "switch"),
        (3, "", "router"),
        (9, "", "unknown"),
    ],
)
def test_the_kind_of_a_node(kind, description, expected):
    assert node(1, kind, description).kind == expected


@pytest.mark.parametrize(("lid", "found"), [(0, None), (1, 1), (0xBFFF, 0xBFFF), (0xC000, None), (0xFFFF, None)])
def test_routes_use_a_valid_lid_or_else_the_directed_route(lid, found):
    switch, adapter = node(1, 2, lids=[(0, lid)]), node(2, 1, lids=[(2, lid)])
    assert (switch.lid(3), adapter.lid(2), adapter.lid(1)) == (found, found, None)
    assert switch.route(3) == (Route(PERMISSIVE_LID, bytes([1, 2])) if found is None else Route(found))


def test_a_node_without_a_description_is_named_by_its_guid():
    assert node(0x2C9).name == format_guid(0x2C9) == "00000000000002c9"
    assert node(0x2C9, description="leaf-1").name == "leaf-1"


def tree(leaves, spines, hosts, cores=0):
    """Return a fat tree: hosts at each leaf, leaves at each spine, spines at each core."""
    fabric = IbFabric()

    def add(guid, kind):
        fabric.nodes[guid] = node(guid, kind)

    def link(one, one_port, other, other_port):
        fabric.add_link(LinkEnd(one, one_port), LinkEnd(other, other_port))

    for core in range(cores):
        add(900 + core, 2)
    for spine in range(spines):
        add(500 + spine, 2)
        for core in range(cores):
            link(500 + spine, 100 + core, 900 + core, spine + 1)
    for leaf in range(leaves):
        add(100 + leaf, 2)
        for spine in range(spines):
            link(100 + leaf, 100 + spine, 500 + spine, leaf + 1)
        for host in range(hosts):
            add(1000 + leaf * hosts + host, 1)
            link(100 + leaf, host + 1, 1000 + leaf * hosts + host, 1)
    return fabric


def test_levels_of_switches_count_from_the_adapters():
    levels = tree(4, 2, 4, cores=2).levels()
    assert [levels[guid] for guid in (100, 103, 500, 501, 900, 901)] == [0, 0, 1, 1, 2, 2]
    assert len(levels) == 8


def test_a_spine_with_a_few_adapters_is_still_a_spine():
    fabric = tree(8, 2, 8)
    fabric.nodes[2000] = node(2000, 1)
    fabric.add_link(LinkEnd(500, 40), LinkEnd(2000, 1))  # the host of the subnet manager
    fabric.nodes[2001] = node(2001, 1, "Mellanox Technologies Aggregation Node")
    fabric.add_link(LinkEnd(100, 41), LinkEnd(2001, 1))
    assert (fabric.levels()[500], fabric.levels()[100]) == (1, 0)


def test_switches_without_adapters_have_no_level():
    assert tree(2, 1, 0).levels() == {}
    assert IbFabric().levels() == {}


def test_common_capability_needs_both_ends():
    fabric = IbFabric({1: node(1), 2: node(2)})
    here, there = LinkEnd(1, 1), LinkEnd(2, 1)
    fabric.nodes[1].ports[1] = port(can=(1, 4, 8), speeds=("EDR", "HDR", "XDR"))
    assert fabric.common_capability(here) == (None, None)
    fabric.add_link(here, there)
    assert fabric.common_capability(here) == (None, None)
    fabric.nodes[2].ports[1] = port(can=(1, 2, 4), speeds=("EDR", "HDR", "NDR"))
    assert fabric.common_capability(here) == fabric.common_capability(there) == ("HDR", 4)
    assert fabric.expected_speed(here) == 25e9
    fabric.nodes[2].ports[1] = port(can=(12,), speeds=("SDR",))
    assert fabric.common_capability(here) == (None, None)
    assert fabric.expected_speed(here) is None


def test_only_an_active_link_has_a_speed():
    fabric = IbFabric({1: node(1)})
    for state, expected in ((1, None), (2, None), (3, None), (4, 25e9)):
        fabric.nodes[1].ports[1] = port(state=state)
        assert fabric.speed(LinkEnd(1, 1)) == expected
    assert fabric.speed(LinkEnd(1, 2)) is None
    assert fabric.speed(LinkEnd(7, 1)) is None
    assert (format_width(port(lanes=2)), format_width(port(lanes=None))) == ("2X", "")
