"""What real fabrics do now and then: LIDs handed out anew, managements that hang, GUIDs twice, questions dropped."""

import pytest

from exporter.sources.ibfabric.model import format_guid

FEC = (4, 0x1F)
"""Class and attribute of PortExtendedSpeedsCounters."""


def questions(node, what):
    return [one for one in node.asked if (one[1], one[17]) == what]


async def test_lids_that_are_handed_out_anew_are_seen_in_the_next_pass(fabric, swept):
    one = swept()
    await one.look()
    leaf, other = fabric.nodes[4:6]
    leaf.ports[1].counts["symbol_errors"] = 11
    other.ports[1].counts["symbol_errors"] = 22
    leaf.ports[0].lid, other.ports[0].lid = other.ports[0].lid, leaf.ports[0].lid
    await one.look()  # sees it
    seen = await one.look()
    assert seen.at("symbol_errors_total", leaf, 1) == 11
    assert seen.at("symbol_errors_total", other, 1) == 22


async def test_hosts_behind_a_leaf_whose_management_hangs_are_still_there(fabric, swept):
    one = swept(survey_interval=60.0)
    before = await one.look()
    leaf = fabric.nodes[5]
    leaf.silent = frozenset({1})
    seen = await one.look(seconds=120.0)  # a survey
    for host in (node for node in fabric.nodes[:4] if node.ports[1].peer.node is leaf):
        assert seen.at("node_up", host) == 1
        assert seen.at("port_responding", host, 1) == 1
        assert seen.at("link_info", host, 1) == before.at("link_info", host, 1)


async def test_of_two_nodes_with_one_guid_the_first_keeps_it_and_the_other_is_told(fabric, swept):
    first, second = fabric.nodes[1:3]
    second.guid = first.guid
    one = swept()
    seen = await one.look()
    again = await one.look()
    assert seen.at("link_info", first, 1) == again.at("link_info", first, 1), "its link does not swap ends"
    assert any("duplicate" in failure.detail or failure.reason == "peer_unresponsive" for failure in again.failures)


async def test_a_leaf_is_one_also_while_most_of_its_hosts_are_down(fabric, swept):
    one = swept()
    seen = await one.look()
    leaf = fabric.nodes[5]
    assert seen.at("node_info", leaf)[-1] == "leaf"
    for number in (1, 2):
        if leaf.ports[number].peer.node is not fabric.origin.node:
            fabric.unlink(leaf.ports[number])
    assert (await one.look()).at("node_info", leaf)[-1] == "leaf"


async def test_a_question_that_a_switch_drops_in_silence_is_put_to_one_port_twice_and_then_no_more(fabric, swept):
    leaf = fabric.nodes[4]
    leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == FEC else datagram
    one = swept(survey_interval=60.0)
    for _ in range(4):
        seen = await one.look(seconds=61.0)
        assert seen.at("port_responding", leaf, 1) == 1
    asked = questions(leaf, FEC)
    assert len({datagram[65] for datagram in asked}) == 1, "of one port"
    assert len(asked) == 6, "in two passes, with three tries each; surveys forget nothing of it"


async def test_one_answer_that_is_lost_takes_nothing_away_for_good(fabric, swept):
    leaf = fabric.nodes[4]
    one = swept()
    assert (await one.look()).at("fec_corrected_blocks_total", leaf, 1) is not None
    leaf.tamper = lambda datagram: None if (datagram[1], datagram[17]) == FEC else datagram
    seen = await one.look()
    assert "timeout" in {reason for device, reason in seen.reasons() if device == format_guid(leaf.guid)}, "it is told"
    leaf.tamper = None
    assert (await one.look()).at("fec_corrected_blocks_total", leaf, 1) is not None


@pytest.mark.parametrize("pattern", ["0x0000000000002001", "0000:0000:0000:2001", "0X0000000000002001", "*2001"])
async def test_guids_may_be_written_as_tools_write_them(fabric, swept, pattern):
    leaf = fabric.nodes[4]
    seen = await swept(exclude=(pattern,)).look()
    assert format_guid(leaf.guid) == "0000000000002001"
    assert seen.at("link_up", leaf, 1) is None
    assert seen.at("link_up", fabric.nodes[5], 1) == 1
