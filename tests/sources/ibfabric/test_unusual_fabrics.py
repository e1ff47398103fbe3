"""Rare conditions of real fabrics: LIDs that change, management that hangs, duplicate GUIDs, dropped requests."""

import pytest

from exporter.sources.ibfabric.model import format_guid

FEC = (4, 0x1F)
"""Class and attribute of PortExtendedSpeedsCounters."""


def requests_of(node, what):
    return [one for one in node.requests if (one[1], one[17]) == what]


async def test_changed_lids_are_detected_in_the_next_sweep(fabric, make_sweeper):
    sweeper = make_sweeper()
    await sweeper.sweep()
    leaf, other = fabric.nodes[4:6]
    leaf.ports[1].counts["symbol_errors"] = 11
    other.ports[1].counts["symbol_errors"] = 22
    leaf.ports[0].lid, other.ports[0].lid = other.ports[0].lid, leaf.ports[0].lid
    await sweeper.sweep()  # detects the change
    result = await sweeper.sweep()
    assert result.value("symbol_errors_total", leaf, 1) == 11
    assert result.value("symbol_errors_total", other, 1) == 22


async def test_hosts_behind_a_leaf_whose_management_hangs_stay_up(fabric, make_sweeper):
    sweeper = make_sweeper(survey_interval=60.0)
    before = await sweeper.sweep()
    leaf = fabric.nodes[5]
    leaf.silent = frozenset({1})
    result = await sweeper.sweep(seconds=120.0)  # a discovery
    hosts = [node for node in fabric.nodes[:4] if node.ports[1].peer.node is leaf]
    assert len(hosts) == 2
    for host in hosts:
        assert result.value("node_up", host) == 1
        assert result.value("port_responding", host, 1) == 1
        assert result.value("link_info", host, 1) == before.value("link_info", host, 1)


async def test_the_first_node_keeps_a_duplicate_guid_and_the_second_is_reported(fabric, make_sweeper):
    first, second = fabric.nodes[1:3]
    second.guid = first.guid
    sweeper = make_sweeper()
    result = await sweeper.sweep()
    again = await sweeper.sweep()
    assert result.value("link_info", first, 1) == again.value("link_info", first, 1), "its link is stable"
    assert any("duplicate" in failure.detail or failure.reason == "peer_unresponsive" for failure in again.failures)


async def test_a_leaf_stays_a_leaf_while_most_of_its_hosts_are_down(fabric, make_sweeper):
    sweeper = make_sweeper()
    result = await sweeper.sweep()
    leaf = fabric.nodes[5]
    assert result.value("node_info", leaf)[-1] == "leaf"
    for number in (1, 2):
        if leaf.ports[number].peer.node is not fabric.origin.node:
            fabric.unlink(leaf.ports[number])
    assert (await sweeper.sweep()).value("node_info", leaf)[-1] == "leaf"


async def test_an_attribute_whose_requests_are_dropped_is_requested_from_one_port_in_two_sweeps(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == FEC else datagram
    sweeper = make_sweeper(survey_interval=60.0)
    for _ in range(4):
        result = await sweeper.sweep(seconds=61.0)
        assert result.value("port_responding", leaf, 1) == 1
    requests = requests_of(leaf, FEC)
    assert len({datagram[65] for datagram in requests}) == 1, "from one port"
    assert len(requests) == 6, "in two sweeps, with three tries each; kept by discoveries"


async def test_one_lost_reply_does_not_disable_an_attribute(fabric, make_sweeper):
    leaf = fabric.nodes[4]
    sweeper = make_sweeper()
    assert (await sweeper.sweep()).value("fec_corrected_blocks_total", leaf, 1) is not None
    leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == FEC else datagram
    result = await sweeper.sweep()
    assert (format_guid(leaf.guid), "timeout") in result.reasons()
    leaf.tamper = None
    assert (await sweeper.sweep()).value("fec_corrected_blocks_total", leaf, 1) is not None


@pytest.mark.parametrize("pattern", ["0x0000000000002001", "0000:0000:0000:2001", "0X0000000000002001", "*2001"])
async def test_guid_patterns_accept_the_notations_of_other_tools(fabric, make_sweeper, pattern):
    leaf = fabric.nodes[4]
    result = await make_sweeper(exclude=(pattern,)).sweep()
    assert format_guid(leaf.guid) == "0000000000002001"
    assert result.value("link_up", leaf, 1) is None
    assert result.value("link_up", fabric.nodes[5], 1) == 1
