"""What changes in a fabric between passes: cables pulled, plugged and swapped, nodes that go and come."""

import pytest

from exporter.sources.ibfabric.model import format_guid
from exporter.sources.ibfabric.sweep import UNREACHABLE_SECONDS


def links_of(fabric):
    """Give the links that there are, of what cables lead to."""
    return {
        frozenset({(format_guid(node.guid), str(number)), (format_guid(port.peer.node.guid), str(port.peer.number))})
        for node in fabric.nodes
        for number, port in node.ports.items()
        if port.peer is not None
    }


def swap(fabric, one, its, other, there):
    """Exchange two cables at their switches; the counters of all four ports say so."""
    ends = [one.ports[its], other.ports[there]]
    peers = [end.peer for end in ends]
    for end, peer in zip(ends, reversed(peers), strict=True):
        fabric.link(end.node, end.number, peer.node, peer.number)
        for port in (end, peer):
            port.counts["link_down"] = port.counts.get("link_down", 0) + 1


async def test_a_cable_that_was_pulled_and_plugged_again_is_seen_at_both_ends_in_the_next_pass(fabric, swept):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    one = swept()
    await one.look()
    fabric.unlink(leaf.ports[2])
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert len(seen.links()) == 5
    assert (seen.at("link_up", leaf, 2), seen.at("link_info", leaf, 2)) == (0, None)
    assert seen.at("node_up", host) == 0
    assert seen.sweep("adapters") == 3
    assert seen.sweep("discoveries_total") == 1
    assert not seen.failures
    fabric.link(leaf, 2, host, 1)
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert len(seen.links()) == 6
    assert (seen.at("node_up", host), seen.at("link_up", host, 1)) == (1, 1)
    assert seen.at("port_responding", host, 1) == 1
    assert seen.sweep("discoveries_total") == 1


async def test_a_host_that_was_plugged_in_elsewhere_is_at_its_new_place_and_counted_there(fabric, swept):
    host, old, new = fabric.nodes[3], fabric.nodes[5], fabric.nodes[4]
    host.ports[1].counts["receive_packets"] = 4711
    one = swept()
    await one.look()
    fabric.link(new, 4, host, 1)
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert seen.at("link_info", host, 1)[:2] == (format_guid(new.guid), "4")
    assert seen.at("link_up", old, 2) == 0
    assert seen.at("receive_packets_total", host, 1) == 4711
    assert not seen.failures


@pytest.mark.parametrize("manage", [True, False])
async def test_two_hosts_whose_cables_were_swapped_are_told_by_the_counter_of_links_that_went_down(
    fabric, swept, manage
):
    leaf, far = fabric.nodes[4], fabric.nodes[5]
    here, there = fabric.nodes[1], fabric.nodes[2]
    for number, node in enumerate(fabric.nodes):
        for port in node.ports.values():
            port.counts["receive_packets"] = 100 + number
            port.lid = port.lid if manage else 0
    one = swept()
    await one.look()
    swap(fabric, leaf, 2, far, 1)
    for _ in range(2):
        seen = await one.look()
        if manage:
            assert seen.links() == links_of(fabric)
            assert seen.at("link_info", there, 1)[:2] == (format_guid(leaf.guid), "2")
            assert seen.at("receive_packets_total", here, 1) == 101
            assert seen.at("receive_packets_total", there, 1) == 102
            assert not seen.failures
    assert seen.sweep("discoveries_total") == 1
    seen = await one.look(700)
    assert seen.links() == links_of(fabric)


@pytest.mark.parametrize("place", [(3, 1), (5, 2)])
async def test_a_link_that_only_one_end_says_went_down_is_the_same_as_before(fabric, swept, place):
    node, number = fabric.nodes[place[0]], place[1]
    one = swept()
    await one.look()
    node.ports[number].counts["link_down"] = 1
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert all(seen.at("node_up", node) == 1 for node in fabric.nodes)
    assert seen.at("link_down_total", node, number) == 1


async def test_swapped_uplinks_are_told_too(fabric, swept):
    leaf, far, spine = fabric.nodes[4:7]
    one = swept()
    await one.look()
    swap(fabric, spine, 1, spine, 2)
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert seen.at("link_info", spine, 1)[0] == format_guid(far.guid)
    assert seen.at("link_info", leaf, 3)[:2] == (format_guid(spine.guid), "2")


async def test_behind_a_switch_whose_shortest_way_is_cut_newcomers_are_found_by_another(fabric, swept):
    leaf, far = fabric.nodes[4:6]
    fabric.link(leaf, 4, far, 4)
    one = swept()
    await one.look()
    fabric.unlink(leaf.ports[4])
    seen = await one.look()
    assert [seen.at("node_up", node) for node in fabric.nodes] == [1] * 7
    newcomer = fabric.adapter(0x5001, "gpu-5 mlx5_0")
    newcomer.ports[1].lid = 90
    fabric.link(far, 4, newcomer, 1)
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert seen.at("port_responding", newcomer, 1) == 1
    assert seen.sweep("discoveries_total") == 1


async def test_a_whole_branch_that_is_cut_off_is_gone_and_comes_back(fabric, swept):
    leaf, far, spine = fabric.nodes[4:7]
    one = swept()
    await one.look()
    fabric.unlink(leaf.ports[3])
    seen = await one.look()
    assert [seen.at("node_up", node) for node in fabric.nodes] == [1, 1, 0, 0, 1, 0, 0]
    assert len(seen.links()) == 2
    assert seen.at("port_responding", far, 1) is None
    fabric.link(leaf, 3, spine, 1)
    seen = await one.look()
    assert [seen.at("node_up", node) for node in fabric.nodes] == [1] * 7
    assert seen.links() == links_of(fabric)
    assert seen.sweep("discoveries_total") == 1


async def test_a_node_that_is_gone_is_told_of_for_an_hour(fabric, swept):
    host = fabric.nodes[3]
    one = swept()
    await one.look()
    fabric.unlink(host.ports[1])
    await one.look()
    for _ in range(17):
        seen = await one.look(UNREACHABLE_SECONDS / 18)
        assert seen.at("node_up", host) == 0
    seen = await one.look(UNREACHABLE_SECONDS / 18)
    assert seen.at("node_up", host) is None
    assert UNREACHABLE_SECONDS == 3600


async def test_a_newcomer_is_found_at_once_and_all_is_asked_anew_only_now_and_then(fabric, swept):
    spine = fabric.nodes[6]
    one = swept(survey_interval=300.0)
    await one.look()
    newcomer = fabric.switch(0x6001, 4, "leaf-3")
    inside = fabric.adapter(0x6101, "gpu-9 mlx5_0")
    fabric.link(spine, 3, newcomer, 3)
    fabric.link(newcomer, 1, inside, 1)
    newcomer.ports[0].lid, inside.ports[1].lid = 91, 92
    seen = await one.look()
    assert seen.links() == links_of(fabric)
    assert seen.at("port_responding", inside, 1) == 1
    assert seen.at("node_info", newcomer)[-1] == "leaf"
    assert seen.sweep("discoveries_total") == 1
    fabric.nodes[1].description = b"gpu-renamed mlx5_0"
    seen = await one.look()
    assert seen.at("node_info", fabric.nodes[1])[0] == "gpu-2 mlx5_0"
    seen = await one.look(300)
    assert seen.sweep("discoveries_total") == 2
    assert seen.at("node_info", fabric.nodes[1])[0] == "gpu-renamed mlx5_0"


async def test_a_name_that_a_node_does_not_tell_again_is_kept(fabric, swept):
    leaf = fabric.nodes[5]
    one = swept()
    await one.look()
    leaf.lacks = frozenset({(1, 0x10)})
    seen = await one.look(700)
    assert seen.sweep("discoveries_total") == 2
    assert seen.at("node_info", leaf)[0] == "leaf-2"
    assert (format_guid(leaf.guid), "unsupported") in seen.reasons()


@pytest.mark.parametrize("place", [3, 5])
async def test_a_node_that_is_given_its_lid_later_is_counted_from_the_next_pass_on(fabric, swept, place):
    node = fabric.nodes[place]
    port = node.lid_port
    lid, port.lid = port.lid, 0
    one = swept()
    seen = await one.look()
    assert {reason for _, reason in seen.reasons()} == {"no_lid"}
    port.lid = lid
    seen = await one.look()
    assert seen.at("port_responding", node, 1) == 1
    assert not seen.failures
    assert seen.sweep("discoveries_total") == 1


async def test_a_new_subnet_manager_lets_all_be_looked_for_anew(fabric, swept):
    one = swept()
    await one.look()
    fabric.sm_lid = 2  # standby took over: it is at the second host
    fabric.nodes[1].ports[1].capabilities |= 2
    fabric.nodes[1].sm = (1, 5, 3)
    fabric.nodes[0].sm = (78, 14, 2)
    seen = await one.look()
    assert seen.sweep("discoveries_total") == 2
    assert (seen.at("sm_state", fabric.nodes[0], 1), seen.at("sm_state", fabric.nodes[1], 1)) == (2, 3)
    assert (seen.at("sm_priority", fabric.nodes[1], 1), seen.at("sm_activity_total", fabric.nodes[1], 1)) == (5, 1)
    assert seen.sweep("info")[2].endswith(format_guid(fabric.nodes[1].guid + 1))


async def test_a_pass_that_nothing_changed_in_asks_each_link_at_one_end_alone(fabric, swept):
    one = swept()
    await one.look()
    before = len(fabric.wire)
    await one.look()
    asked = fabric.wire[before:]
    ports = [(datagram[1], datagram[17]) for datagram in asked]
    of_ports = sum(attribute == 0x15 and kind != 4 for kind, attribute in ports)
    assert of_ports == 6 + 4 + 3 + 1  # links, free ports, LIDs of switches, our own
    assert not [1 for kind, attribute in ports if (kind, attribute) == (0x81, 0x11)]  # nobody is asked who it is
    assert len(asked) == 14 + 12 * 3 + 1  # counters, extended ones and error correction of 12 ports; the manager


async def test_a_link_that_comes_up_slower_is_told_at_both_ends(fabric, swept):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    one = swept()
    await one.look()
    fabric.link(leaf, 2, host, 1, lanes=1, generation="EDR")
    seen = await one.look()
    for node, number in ((leaf, 2), (host, 1)):
        assert seen.at("link_info", node, number)[3:] == ("1X", "EDR")
        assert seen.at("link_speed_bytes_per_second", node, number) == 25e9 / 8
        assert seen.at("link_expected_speed_bytes_per_second", node, number) == 200e9 / 8
        assert seen.at("link_degraded", node, number) == 1
    assert seen.at("link_degraded", leaf, 1) == 0


@pytest.mark.parametrize("place", [5, 6])
async def test_how_a_link_is_between_a_silent_switch_and_another_is_told_by_the_other(fabric, swept, place):
    leaf, spine = fabric.nodes[5:7]
    one = swept()
    await one.look()
    fabric.nodes[place].silent = frozenset({1})
    fabric.link(leaf, 3, spine, 2, lanes=1)
    seen = await one.look()
    assert seen.at("link_info", leaf, 3)[3] == seen.at("link_info", spine, 2)[3] == "1X"


# Who is looked at.


async def test_only_switches_leaves_adapters_alone(fabric, swept):
    seen = await swept(only_switches=True).look()
    assert {row[0] for row in seen.values["fabric_ib_port_responding"]} == {
        format_guid(node.guid) for node in fabric.nodes[4:]
    }
    assert seen.at("link_info", fabric.nodes[4], 1)[2] == "gpu-1 mlx5_0"
    counters = [datagram for node in fabric.nodes[:4] for datagram in node.asked if datagram[1] == 4]
    assert not counters


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": ("0000000000002*",)}, [4, 5]),
        ({"exclude": ("*2001", "*3001")}, [0, 1, 2, 3, 5]),
        ({"include": ("*2*",), "exclude": ("*2002",)}, [1, 4]),
        ({"include": ("*2*",), "only_switches": True}, [4, 5]),
    ],
)
async def test_nodes_are_chosen_by_guid_and_those_that_are_not_are_not_asked_what_they_count(
    fabric, swept, options, expected
):
    seen = await swept(**options).look()
    told = {row[0] for row in seen.values["fabric_ib_port_responding"]}
    assert told == {format_guid(fabric.nodes[place].guid) for place in expected}
    asked = {place for place, node in enumerate(fabric.nodes) if any(datagram[1] == 4 for datagram in node.asked)}
    assert asked == set(expected)
    assert len(seen.values["fabric_ib_node_info"]) == 7
