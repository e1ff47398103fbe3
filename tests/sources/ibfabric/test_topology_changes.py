"""Topology changes between sweeps: cables that are pulled, moved and swapped, nodes that leave and return."""

import pytest

from exporter.sources.ibfabric.model import format_guid
from exporter.sources.ibfabric.sweep import UNREACHABLE_SECONDS


def links_of(fabric):
    """Return the links of the simulated cables."""
    return {
        frozenset({(format_guid(node.guid), str(number)), (format_guid(port.peer.node.guid), str(port.peer.number))})
        for node in fabric.nodes
        for number, port in node.ports.items()
        if port.peer is not None
    }


def swap(fabric, one, one_port, other, other_port):
    """Swap two cables at their switches; LinkDownedCounter of all four ports increments."""
    ends = [one.ports[one_port], other.ports[other_port]]
    peers = [end.peer for end in ends]
    for end, peer in zip(ends, reversed(peers), strict=True):
        fabric.link(end.node, end.number, peer.node, peer.number)
        for port in (end, peer):
            port.counts["link_down"] = port.counts.get("link_down", 0) + 1


async def test_a_pulled_and_replugged_cable_is_detected_at_both_ends_in_the_next_sweep(fabric, make_sweeper):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.unlink(leaf.ports[2])
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert len(result.links()) == 5
    assert (result.value("link_up", leaf, 2), result.value("link_info", leaf, 2)) == (0, None)
    assert result.value("node_up", host) == 0
    assert result.sweep_value("adapters") == 3
    assert result.sweep_value("discoveries_total") == 1
    assert not result.failures
    fabric.link(leaf, 2, host, 1)
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert len(result.links()) == 6
    assert (result.value("node_up", host), result.value("link_up", host, 1)) == (1, 1)
    assert result.value("port_responding", host, 1) == 1
    assert result.sweep_value("discoveries_total") == 1


async def test_a_moved_host_is_found_at_its_new_port_and_counted_there(fabric, make_sweeper):
    host, old, new = fabric.nodes[3], fabric.nodes[5], fabric.nodes[4]
    host.ports[1].counts["receive_packets"] = 4711
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.link(new, 4, host, 1)
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert result.value("link_info", host, 1)[:2] == (format_guid(new.guid), "4")
    assert result.value("link_up", old, 2) == 0
    assert result.value("receive_packets_total", host, 1) == 4711
    assert not result.failures


@pytest.mark.parametrize("manage", [True, False])
async def test_swapped_host_cables_are_detected_by_link_downed_counters(fabric, make_sweeper, manage):
    leaf, far = fabric.nodes[4], fabric.nodes[5]
    here, there = fabric.nodes[1], fabric.nodes[2]
    for number, node in enumerate(fabric.nodes):
        for port in node.ports.values():
            port.counts["receive_packets"] = 100 + number
            port.lid = port.lid if manage else 0
    sweeper = make_sweeper()
    await sweeper.sweep()
    swap(fabric, leaf, 2, far, 1)
    for _ in range(2):
        result = await sweeper.sweep()
        if manage:
            assert result.links() == links_of(fabric)
            assert result.value("link_info", there, 1)[:2] == (format_guid(leaf.guid), "2")
            assert result.value("receive_packets_total", here, 1) == 101
            assert result.value("receive_packets_total", there, 1) == 102
            assert not result.failures
    assert result.sweep_value("discoveries_total") == 1
    result = await sweeper.sweep(700)
    assert result.links() == links_of(fabric)


@pytest.mark.parametrize("place", [(3, 1), (5, 2)])
async def test_a_link_downed_counter_of_one_end_does_not_change_the_topology(fabric, make_sweeper, place):
    node, number = fabric.nodes[place[0]], place[1]
    sweeper = make_sweeper()
    await sweeper.sweep()
    node.ports[number].counts["link_down"] = 1
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert all(result.value("node_up", node) == 1 for node in fabric.nodes)
    assert result.value("link_down_total", node, number) == 1


async def test_swapped_uplinks_are_detected(fabric, make_sweeper):
    leaf, far, spine = fabric.nodes[4:7]
    sweeper = make_sweeper()
    await sweeper.sweep()
    swap(fabric, spine, 1, spine, 2)
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert result.value("link_info", spine, 1)[0] == format_guid(far.guid)
    assert result.value("link_info", leaf, 3)[:2] == (format_guid(spine.guid), "2")


async def test_new_nodes_are_found_over_another_route_when_the_shortest_is_cut(fabric, make_sweeper):
    leaf, far = fabric.nodes[4:6]
    fabric.link(leaf, 4, far, 4)
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.unlink(leaf.ports[4])
    result = await sweeper.sweep()
    assert [result.value("node_up", node) for node in fabric.nodes] == [1] * 7
    newcomer = fabric.adapter(0x5001, "gpu-5 mlx5_0")
    newcomer.ports[1].lid = 90
    fabric.link(far, 4, newcomer, 1)
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert result.value("port_responding", newcomer, 1) == 1
    assert result.sweep_value("discoveries_total") == 1


async def test_a_disconnected_branch_is_unreachable_and_returns(fabric, make_sweeper):
    leaf, far, spine = fabric.nodes[4:7]
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.unlink(leaf.ports[3])
    result = await sweeper.sweep()
    assert [result.value("node_up", node) for node in fabric.nodes] == [1, 1, 0, 0, 1, 0, 0]
    assert len(result.links()) == 2
    assert result.value("port_responding", far, 1) is None
    fabric.link(leaf, 3, spine, 1)
    result = await sweeper.sweep()
    assert [result.value("node_up", node) for node in fabric.nodes] == [1] * 7
    assert result.links() == links_of(fabric)
    assert result.sweep_value("discoveries_total") == 1


async def test_an_unreachable_node_is_exported_for_an_hour(fabric, make_sweeper):
    host = fabric.nodes[3]
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.unlink(host.ports[1])
    await sweeper.sweep()
    for _ in range(17):
        result = await sweeper.sweep(UNREACHABLE_SECONDS / 18)
        assert result.value("node_up", host) == 0
    result = await sweeper.sweep(UNREACHABLE_SECONDS / 18)
    assert result.value("node_up", host) is None
    assert UNREACHABLE_SECONDS == 3600


async def test_a_new_switch_is_found_at_once_and_a_full_discovery_runs_at_its_interval(fabric, make_sweeper):
    spine = fabric.nodes[6]
    sweeper = make_sweeper(survey_interval=300.0)
    await sweeper.sweep()
    newcomer = fabric.switch(0x6001, 4, "leaf-3")
    inside = fabric.adapter(0x6101, "gpu-9 mlx5_0")
    fabric.link(spine, 3, newcomer, 3)
    fabric.link(newcomer, 1, inside, 1)
    newcomer.ports[0].lid, inside.ports[1].lid = 91, 92
    result = await sweeper.sweep()
    assert result.links() == links_of(fabric)
    assert result.value("port_responding", inside, 1) == 1
    assert result.value("node_info", newcomer)[-1] == "leaf"
    assert result.sweep_value("discoveries_total") == 1
    fabric.nodes[1].description = b"gpu-renamed mlx5_0"
    result = await sweeper.sweep()
    assert result.value("node_info", fabric.nodes[1])[0] == "gpu-2 mlx5_0"
    result = await sweeper.sweep(300)
    assert result.sweep_value("discoveries_total") == 2
    assert result.value("node_info", fabric.nodes[1])[0] == "gpu-renamed mlx5_0"


async def test_a_description_that_cannot_be_read_again_is_kept(fabric, make_sweeper):
    leaf = fabric.nodes[5]
    sweeper = make_sweeper()
    await sweeper.sweep()
    leaf.unsupported = frozenset({(1, 0x10)})
    result = await sweeper.sweep(700)
    assert result.sweep_value("discoveries_total") == 2
    assert result.value("node_info", leaf)[0] == "leaf-2"
    assert (format_guid(leaf.guid), "unsupported") in result.reasons()


@pytest.mark.parametrize("place", [3, 5])
async def test_a_node_that_gets_its_lid_later_is_counted_in_the_next_sweep(fabric, make_sweeper, place):
    node = fabric.nodes[place]
    port = node.lid_port
    lid, port.lid = port.lid, 0
    sweeper = make_sweeper()
    result = await sweeper.sweep()
    assert {reason for _, reason in result.reasons()} == {"no_lid"}
    port.lid = lid
    result = await sweeper.sweep()
    assert result.value("port_responding", node, 1) == 1
    assert not result.failures
    assert result.sweep_value("discoveries_total") == 1


async def test_a_new_subnet_manager_causes_a_discovery(fabric, make_sweeper):
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.sm_lid = 2  # the standby at the second host became master
    fabric.nodes[1].ports[1].capabilities |= 2
    fabric.nodes[1].sm = (1, 5, 3)
    fabric.nodes[0].sm = (78, 14, 2)
    result = await sweeper.sweep()
    assert result.sweep_value("discoveries_total") == 2
    assert (result.value("sm_state", fabric.nodes[0], 1), result.value("sm_state", fabric.nodes[1], 1)) == (2, 3)
    assert (result.value("sm_priority", fabric.nodes[1], 1), result.value("sm_activity_total", fabric.nodes[1], 1)) == (
        5,
        1,
    )
    assert result.sweep_value("info")[2].endswith(format_guid(fabric.nodes[1].guid + 1))


async def test_a_sweep_without_changes_polls_one_end_of_each_link(fabric, make_sweeper):
    sweeper = make_sweeper()
    await sweeper.sweep()
    before = len(fabric.wire)
    await sweeper.sweep()
    sent = fabric.wire[before:]
    ports = [(datagram[1], datagram[17]) for datagram in sent]
    of_ports = sum(attribute == 0x15 and kind != 4 for kind, attribute in ports)
    assert of_ports == 6 + 4 + 3 + 1  # links, ports without a link, LIDs of switches, the local port
    assert not [1 for kind, attribute in ports if (kind, attribute) == (0x81, 0x11)]  # no NodeInfo is read
    assert len(sent) == 14 + 12 * 3 + 1  # PortCounters, PortCountersExtended and FEC of 12 ports; SMInfo


async def test_a_link_that_comes_up_slower_is_degraded_at_both_ends(fabric, make_sweeper):
    host, leaf = fabric.nodes[3], fabric.nodes[5]
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.link(leaf, 2, host, 1, lanes=1, generation="EDR")
    result = await sweeper.sweep()
    for node, number in ((leaf, 2), (host, 1)):
        assert result.value("link_info", node, number)[3:] == ("1X", "EDR")
        assert result.value("link_speed_bytes_per_second", node, number) == 25e9 / 8
        assert result.value("link_expected_speed_bytes_per_second", node, number) == 200e9 / 8
        assert result.value("link_degraded", node, number) == 1
    assert result.value("link_degraded", leaf, 1) == 0


@pytest.mark.parametrize("place", [5, 6])
async def test_link_state_of_an_unresponsive_switch_is_read_from_the_peer(fabric, make_sweeper, place):
    leaf, spine = fabric.nodes[5:7]
    sweeper = make_sweeper()
    await sweeper.sweep()
    fabric.nodes[place].silent = frozenset({1})
    fabric.link(leaf, 3, spine, 2, lanes=1)
    result = await sweeper.sweep()
    assert result.value("link_info", leaf, 3)[3] == result.value("link_info", spine, 2)[3] == "1X"


# --- selection of nodes


async def test_only_switches_reads_no_counters_of_adapters(fabric, make_sweeper):
    result = await make_sweeper(only_switches=True).sweep()
    assert {row[0] for row in result.values["fabric_ib_port_responding"]} == {
        format_guid(node.guid) for node in fabric.nodes[4:]
    }
    assert result.value("link_info", fabric.nodes[4], 1)[2] == "gpu-1 mlx5_0"
    counters = [datagram for node in fabric.nodes[:4] for datagram in node.requests if datagram[1] == 4]
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
async def test_nodes_are_selected_by_guid_and_counters_of_others_are_not_read(fabric, make_sweeper, options, expected):
    result = await make_sweeper(**options).sweep()
    responding = {row[0] for row in result.values["fabric_ib_port_responding"]}
    assert responding == {format_guid(fabric.nodes[place].guid) for place in expected}
    read = {place for place, node in enumerate(fabric.nodes) if any(datagram[1] == 4 for datagram in node.requests)}
    assert read == set(expected)
    assert len(result.values["fabric_ib_node_info"]) == 7
