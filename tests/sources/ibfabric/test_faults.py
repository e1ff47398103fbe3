"""Nodes that are silent, late, busy, protected or wrong: each costs its own time, is shown as such, and no other."""

import struct

import pytest

from exporter.core.source import SourceError
from exporter.linux.mad.datagram import Attribute
from exporter.sources.ibfabric.model import format_guid
from tests.helpers.fabric_simulation import BUSY, REDIRECT

OWN_TIME = 3 * 0.5 + 0.05 + 0.1
"""Seconds that three tries of a silent node last, with the rests between them."""


def nodes(fabric):
    """Give hosts, leaves and the spine."""
    return fabric.nodes[:4], fabric.nodes[4:6], fabric.nodes[6]


def others(fabric, but):
    """Give all ports of the fabric that are linked, but those of a node."""
    return [
        (node, number)
        for node in fabric.nodes
        for number, port in node.ports.items()
        if node is not but and port.peer is not None and port.peer.node is not but
    ]


async def test_a_fabric_that_is_well_is_told_link_by_link(fabric, swept):
    seen = await swept().look()
    expected = {
        frozenset({(format_guid(node.guid), str(number)), (format_guid(port.peer.node.guid), str(port.peer.number))})
        for node in fabric.nodes
        for number, port in node.ports.items()
        if port.peer is not None
    }
    assert seen.links() == expected
    assert len(expected) == 6
    assert not seen.failures
    assert (seen.sweep("switches"), seen.sweep("adapters"), seen.sweep("links")) == (3, 4, 6)
    assert seen.sweep("info")[:2] == ("sweeping", "")


async def test_a_node_that_was_never_heard_is_a_link_whose_peer_is_unknown(fabric, swept):
    hosts, leaves, _ = nodes(fabric)
    hosts[3].dead()
    seen = await swept().look()
    assert seen.at("link_info", leaves[1], 2) == ("", "", "", "4X", "HDR")
    assert seen.at("link_up", leaves[1], 2) == 1
    assert seen.at("node_up", hosts[3]) is None
    assert seen.sweep("unanswered_links") == 1
    assert seen.reasons() == [(format_guid(leaves[1].guid), "peer_unresponsive")]
    assert "leaf-2, port 2: the link is up, its peer does not respond" in seen.failures[0].detail
    for node, number in others(fabric, hosts[3]):
        assert seen.at("port_responding", node, number) == 1
    assert seen.sweep("duration_seconds") == pytest.approx(OWN_TIME, abs=0.02)


async def test_a_node_that_falls_silent_is_told_costs_its_own_time_once_and_one_try_later(fabric, swept):
    hosts, _, _ = nodes(fabric)
    one = swept()
    await one.look()
    hosts[3].dead()
    seen = await one.look()
    assert seen.at("port_responding", hosts[3], 1) == 0
    assert seen.at("receive_bytes_total", hosts[3], 1) is None
    assert seen.at("link_up", hosts[3], 1) == 1  # the leaf at the other end knows
    assert seen.at("node_up", hosts[3]) == 1
    assert (format_guid(hosts[3].guid), "timeout") in seen.reasons()
    assert seen.sweep("duration_seconds") == pytest.approx(OWN_TIME, abs=0.02)
    for node, number in others(fabric, hosts[3]):
        assert seen.at("port_responding", node, number) == 1
        assert seen.at("receive_bytes_total", node, number) == 0
    seen = await one.look()
    assert seen.sweep("duration_seconds") == pytest.approx(0.5, abs=0.02)
    hosts[3].silent = frozenset()
    seen = await one.look()
    assert seen.at("port_responding", hosts[3], 1) == 1
    assert not seen.failures


async def test_a_silent_switch_is_told_and_what_is_behind_it_is_still_counted(fabric, swept):
    hosts, leaves, spine = nodes(fabric)
    one = swept()
    await one.look()
    spine.dead()  # its management processor hangs; it forwards as before
    seen = await one.look()
    assert [seen.at("port_responding", spine, number) for number in (1, 2)] == [0, 0]
    assert seen.at("port_responding", hosts[3], 1) == 1
    assert seen.at("link_up", leaves[0], 3) == 1
    assert seen.at("link_up", spine, 3) is None  # of a port without a link nobody else knows
    assert {device for device, _ in seen.reasons()} == {format_guid(spine.guid)}
    assert seen.sweep("duration_seconds") < 2 * OWN_TIME


@pytest.mark.parametrize("kind", [1, 4])
async def test_a_node_may_be_silent_to_one_class_alone(fabric, swept, kind):
    hosts, leaves, _ = nodes(fabric)
    one = swept()
    await one.look()
    leaves[1].silent = frozenset({kind})
    seen = await one.look()
    assert seen.at("link_up", leaves[1], 1) == 1
    assert seen.at("port_responding", hosts[2], 1) == 1
    assert format_guid(leaves[1].guid) in {device for device, _ in seen.reasons()}
    for node, number in others(fabric, leaves[1]):
        assert seen.at("port_responding", node, number) == 1


async def test_a_late_node_costs_a_retry_and_its_late_answers_are_strays(fabric, swept):
    hosts, _, _ = nodes(fabric)
    one = swept()
    await one.look()
    hosts[2].late = 0.52
    seen = await one.look()
    assert seen.at("port_responding", hosts[2], 1) in (0, 1)
    assert seen.values["fabric_ib_sweep_datagrams_total"]["mlx5_0:1", "unmatched"] >= 1
    assert seen.sweep("duration_seconds") < 2 * OWN_TIME
    for node, number in others(fabric, hosts[2]):
        assert seen.at("port_responding", node, number) == 1
    hosts[2].late = 0.3
    seen = await one.look()
    assert seen.at("port_responding", hosts[2], 1) == 1


async def test_a_busy_node_answers_in_the_end(fabric, swept):
    hosts, _, _ = nodes(fabric)
    one = swept()
    await one.look()
    hosts[2].busy = 3
    seen = await one.look()
    assert seen.at("port_responding", hosts[2], 1) == 1
    assert not seen.failures
    hosts[2].busy = 10**6
    seen = await one.look()
    assert seen.at("port_responding", hosts[2], 1) == 0
    assert seen.reasons() == [(format_guid(hosts[2].guid), "busy")]


def with_status(status):
    def tamper(datagram):
        return datagram[:4] + struct.pack(">H", status | datagram[4] << 8 & 0x8000) + datagram[6:]

    return tamper


def put(place, data):
    return lambda datagram: datagram[:place] + data + datagram[place + len(data) :]


WRONG = {
    "another attribute": (put(16, b"\x00\x77"), "malformed"),
    "another class": (put(1, b"\x03"), "malformed"),
    "no answer but a question": (put(3, b"\x01"), "malformed"),
    "another transaction": (put(12, b"\xde\xad\xbe\xef"), "timeout"),
    "truncated": (lambda datagram: datagram[:100], "timeout"),
    "garbage": (lambda _: b"\xa5" * 256, "timeout"),
    "another version": (put(0, b"\x02"), "timeout"),
    "refused": (with_status(0x1C), "refused"),
    "redirected": (with_status(REDIRECT), "refused"),
    "always busy": (with_status(BUSY), "busy"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("place", [2, 5, 6])  # a host, a leaf, the spine
async def test_a_node_that_answers_wrongly_is_told_and_all_others_are_counted(fabric, swept, kind, place):
    tamper, reason = WRONG[kind]
    wrong = fabric.nodes[place]
    one = swept()
    await one.look()
    wrong.tamper = tamper
    seen = await one.look()
    number = next(number for number, port in wrong.ports.items() if port.peer is not None)
    assert seen.at("port_responding", wrong, number) == 0
    assert (format_guid(wrong.guid), reason) in seen.reasons()
    assert {device for device, _ in seen.reasons()} == {format_guid(wrong.guid)}
    for node, number in others(fabric, wrong):
        assert seen.at("port_responding", node, number) == 1
        assert seen.at("link_up", node, number) == 1
    wrong.tamper = None
    seen = await one.look()
    assert not seen.failures


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("place", [2, 5, 6])
async def test_a_node_that_answers_wrongly_from_the_beginning_hides_none_that_can_be_reached_without_it(
    fabric, swept, kind, place
):
    wrong = fabric.nodes[place]
    wrong.tamper = WRONG[kind][0]
    seen = await swept().look()
    assert seen.failures
    assert {device for device, _ in seen.reasons()} <= {format_guid(node.guid) for node in fabric.nodes[4:]}
    assert seen.at("port_responding", fabric.nodes[4], 1) == 1
    assert seen.at("port_responding", fabric.nodes[1], 1) == 1
    assert seen.at("node_up", wrong) is None
    assert seen.sweep("unanswered_links") == 1


async def test_counters_of_another_port_are_not_taken_for_those_of_the_port(fabric, swept):
    _, leaves, _ = nodes(fabric)
    leaves[1].ports[1].counts["symbol_errors"] = 5
    leaves[1].tamper = lambda datagram: (
        put(65, b"\x02")(datagram) if datagram[1] == 4 and datagram[17] != 1 else datagram
    )
    seen = await swept().look()
    assert seen.at("port_responding", leaves[1], 1) == 0
    assert seen.at("symbol_errors_total", leaves[1], 1) is None
    assert seen.at("port_responding", leaves[1], 2) == 1  # that is the one it tells of
    assert (format_guid(leaves[1].guid), "malformed") in seen.reasons()


@pytest.mark.parametrize(
    ("attribute", "kept"),
    [
        (Attribute.NODE_DESCRIPTION, True),
        (Attribute.SWITCH_INFO, True),
        (Attribute.PORT_COUNTERS_EXTENDED, False),
        (Attribute.PORT_COUNTERS, False),
    ],
)
async def test_one_attribute_that_a_node_lacks_costs_that_alone(fabric, swept, attribute, kept):
    hosts, leaves, _ = nodes(fabric)
    leaves[1].lacks = frozenset({(4 if attribute.performance else 1, attribute.number)})
    seen = await swept().look()
    assert seen.at("port_responding", leaves[1], 1) == int(kept)
    assert seen.at("link_up", leaves[1], 1) == 1
    assert seen.at("link_info", hosts[2], 1)[0] == format_guid(leaves[1].guid)
    assert (format_guid(leaves[1].guid), "unsupported") in seen.reasons()
    if attribute is Attribute.PORT_COUNTERS:
        assert seen.at("receive_bytes_total", leaves[1], 1) == 0
        assert seen.at("symbol_errors_total", leaves[1], 1) is None
    if attribute is Attribute.NODE_DESCRIPTION:
        assert seen.at("link_info", hosts[2], 1)[2] == format_guid(leaves[1].guid)


async def test_an_adapter_that_tells_who_it_is_and_later_how_its_port_is(fabric, swept):
    hosts, leaves, _ = nodes(fabric)
    hosts[2].lacks = frozenset({(1, 0x15)})
    one = swept()
    seen = await one.look()
    assert (format_guid(hosts[2].guid), "unsupported") in seen.reasons()
    hosts[2].lacks = frozenset()
    leaves[1].lacks = frozenset({(1, 0x15)})  # so that the adapter is asked how the link is
    seen = await one.look()
    assert seen.at("port_responding", hosts[2], 1) == 1


async def test_a_port_without_a_lid_is_named_and_all_else_is_told(fabric, swept):
    hosts, leaves, _ = nodes(fabric)
    hosts[3].ports[1].lid = 0
    seen = await swept().look()
    assert seen.at("port_responding", hosts[3], 1) == 0
    assert seen.at("link_up", hosts[3], 1) == 1
    assert seen.at("port_responding", leaves[1], 2) == 1
    assert seen.reasons() == [(format_guid(hosts[3].guid), "no_lid")]
    assert seen.failures[0].detail == "gpu-4 mlx5_0, port 1: counters: no_lid"


async def test_a_fabric_without_a_manager_is_found_and_has_no_counters(fabric, swept):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.lid = 0
    fabric.sm_lid = 0
    seen = await swept().look()
    assert len(seen.links()) == 6
    assert {reason for _, reason in seen.reasons()} == {"no_lid"}
    assert seen.sweep("info")[2].endswith("-unmanaged")
    assert all(datagram[1] == 0x81 for datagram in fabric.wire)


# M_Key.


@pytest.mark.parametrize("level", [2, 3])
async def test_a_fabric_that_is_protected_is_named_with_the_remedy(fabric, swept, level):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.protect = level
        node.key = 0xFEED
    fabric.nodes[0].key = 0  # this host answers, and tells how it is protected
    with pytest.raises(SourceError, match=rf"protected by an M_Key \(level {level}\); set m_key_file") as told:
        await swept().look()
    assert told.value.reason == "m_key"


async def test_a_host_that_is_itself_protected_is_named_too(fabric, swept):
    for node in fabric.nodes:
        node.key = 0xFEED
        for port in node.ports.values():
            port.protect = 2
    with pytest.raises(SourceError, match=r"the local port does not respond.*M_Key; set m_key_file") as told:
        await swept().look()
    assert told.value.reason == "m_key"


async def test_nodes_behind_others_that_want_a_key_of_their_own_are_told_with_the_protection(fabric, swept):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.protect = 2
    spine = nodes(fabric)[2]
    spine.key = 0xFEED
    seen = await swept().look()
    told = [one.detail for one in seen.failures if one.reason == "peer_unresponsive"]
    assert len(told) == 1  # what lies behind the spine is not seen
    assert "port " in told[0]
    assert told[0].endswith(
        "its peer does not respond; the fabric is protected by an M_Key (level 2): the node may have another key"
    )


async def test_with_the_key_all_is_seen_and_the_key_is_read_from_its_file(fabric, swept, tmp_path):
    (tmp_path / "key").write_text("0x000000000000FEED\n")
    for node in fabric.nodes:
        node.key = 0xFEED
        for port in node.ports.values():
            port.protect = 3
    seen = await swept(m_key_file=str(tmp_path / "key")).look()
    assert len(seen.links()) == 6
    assert not seen.failures


@pytest.mark.parametrize("text", ["", "secret-key", "-1", "0x1ffffffffffffffff", "1.5"])
async def test_a_key_that_is_none_is_an_error_that_does_not_tell_it(swept, tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(SourceError) as told:
        await swept(m_key_file=str(path)).look()
    assert told.value.reason == "credentials"
    assert str(path) in str(told.value)
    assert not text or text not in str(told.value).replace(str(path), "")


async def test_a_link_that_is_up_to_a_dead_node_is_no_matter_of_keys_alone(fabric, swept):
    fabric.nodes[4].dead()
    with pytest.raises(SourceError, match="does not respond to management datagrams: an M_Key may protect it") as told:
        await swept().look()
    assert told.value.reason == "timeout"


async def test_where_the_own_link_is_down_nothing_is_said_of_any_other(fabric, swept):
    one = swept()
    before = await one.look()
    origin = fabric.origin
    peer = origin.peer
    fabric.unlink(origin)
    with pytest.raises(SourceError, match="has no link") as caught:
        await one.look()
    assert caught.value.reason == "link"
    fabric.link(origin.node, origin.number, peer.node, peer.number)
    after = await one.look()
    assert after.values["fabric_ib_node_up"] == before.values["fabric_ib_node_up"], "nobody was gone"


# Shapes of fabrics.


async def test_a_cable_from_a_switch_to_itself_is_one_link(fabric, swept):
    spine = fabric.nodes[6]
    fabric.link(spine, 3, spine, 4)
    seen = await swept().look()
    assert frozenset({(format_guid(spine.guid), "3"), (format_guid(spine.guid), "4")}) in seen.links()
    assert seen.sweep("links") == 7


async def test_a_plug_that_loops_a_port_back_is_one_link_with_itself(fabric, swept):
    spine = fabric.nodes[6]
    spine.ports[3].peer, spine.ports[3].state, spine.ports[3].physical = spine.ports[3], 2, 5
    one = swept()
    for _ in range(3):
        seen = await one.look()
        assert frozenset({(format_guid(spine.guid), "3")}) in seen.links()
        assert seen.sweep("links") == 7
        assert len(seen.links()) == 7


async def test_switches_in_a_ring_are_each_found_once(fabric, swept):
    _, leaves, _ = nodes(fabric)
    fabric.link(leaves[0], 4, leaves[1], 4)
    seen = await swept().look()
    assert len(seen.links()) == 7
    for node in fabric.nodes:
        descriptions = [one for one in node.asked if one[1] == 0x81 and one[17] == 0x10]
        assert len(descriptions) == 1
    assert seen.at("group_info", leaves[0], 4) == ("peer",)
    assert seen.at("group_info", leaves[0], 3) == ("uplink",)


async def test_two_nodes_of_one_guid_end_in_one_and_in_no_endless_search(fabric, swept):
    hosts, _, _ = nodes(fabric)
    hosts[3].guid = hosts[2].guid
    one = swept()
    for _ in range(4):
        before = len(fabric.wire)
        seen = await one.look()
        assert len(fabric.wire) - before < 250
        assert seen.at("port_responding", hosts[0], 1) == 1
        assert sum("mlx5_0" in row[0] for row in seen.values["fabric_ib_node_info"].values()) == 3


async def test_an_aggregation_node_is_no_host(fabric, swept):
    spine = fabric.nodes[6]
    inside = fabric.adapter(0x3F01, "Mellanox Technologies Aggregation Node")
    twin = fabric.adapter(0x3F02, "Mellanox Technologies Aggregation Node")
    fabric.link(spine, 4, inside, 1)
    fabric.link(fabric.nodes[5], 4, twin, 1)
    fabric.manage()
    seen = await swept().look()
    for node in (inside, twin):  # of one name: the GUID is the key
        assert seen.at("node_info", node)[:4] == ("Mellanox Technologies Aggregation Node", "aggregation", "", "")
    assert seen.sweep("adapters") == 4
    assert seen.at("group_info", spine, 4) is None
    assert seen.at("node_info", spine)[-1] == "spine"


async def test_ports_of_a_switch_in_split_mode_are_ports_of_two_lanes(fabric, swept):
    spine = fabric.nodes[6]
    half = fabric.adapter(0x4001, "gpu-9 mlx5_0")
    fabric.link(spine, 4, half, 1, lanes=2, can_lanes=(1, 2))
    spine.ports[3].physical, spine.ports[3].state = 3, 1  # the other half is disabled
    fabric.manage()
    seen = await swept().look()
    assert seen.at("link_info", spine, 4) == (format_guid(0x4001), "1", "gpu-9 mlx5_0", "2X", "HDR")
    assert seen.at("link_speed_bytes_per_second", spine, 4) == 100e9 / 8  # HDR100
    assert seen.at("link_expected_speed_bytes_per_second", spine, 4) == 100e9 / 8
    assert seen.at("link_degraded", spine, 4) == 0
    assert (seen.at("link_up", spine, 3), seen.at("port_physical_state", spine, 3)) == (0, 3)


async def test_the_second_port_of_an_adapter_is_of_another_subnet(fabric, swept):
    spine = fabric.nodes[6]
    double = fabric.adapter(0x4001, "gpu-9 mlx5_0", ports=2)
    fabric.link(spine, 4, double, 1)
    double.ports[2].state, double.ports[2].physical, double.ports[2].lid = 4, 5, 3
    fabric.nodes[6].ports[0].lid = 9
    double.ports[1].lid = 10
    seen = await swept().look()
    assert seen.at("port_responding", double, 1) == 1
    assert seen.at("link_up", double, 2) is None
    assert seen.at("port_responding", double, 2) is None


@pytest.mark.parametrize(
    "name",
    [
        b'MF0;"quoted\\":MQM8700/U1',
        b"SW 479 22 Infiniscale-IV",
        b"\xff\xfe",
        b"",
        b"x" * 64,
        b"two  blanks\nand a line",
    ],
)
async def test_any_description_is_borne(fabric, swept, name):
    spine = fabric.nodes[6]
    spine.description = name
    seen = await swept().look()
    told = " ".join(name.decode("utf-8", "surrogateescape").split())
    assert seen.at("node_info", spine)[0] == told
    assert seen.at("link_info", fabric.nodes[4], 3)[2] == (told or format_guid(spine.guid))
    assert not seen.failures


@pytest.mark.parametrize("physical", range(16))
@pytest.mark.parametrize("state", [0, 1, 6, 15])
async def test_any_state_of_a_port_is_told_as_it_is_and_one_that_is_down_has_no_speed(fabric, swept, state, physical):
    spine = fabric.nodes[6]
    spine.ports[4].state, spine.ports[4].physical = state, physical
    seen = await swept(retries=0).look()
    assert seen.at("port_state", spine, 4) == state
    assert seen.at("port_physical_state", spine, 4) == (physical or None)
    if state < 2 and physical != 5:
        assert seen.at("link_up", spine, 4) == 0
        assert seen.at("link_speed_bytes_per_second", spine, 4) is None
        assert seen.at("link_lanes", spine, 4) is None
    assert len(seen.links()) == 6
    assert all(seen.at("port_responding", node, number) == 1 for node, number in others(fabric, None))


@pytest.mark.parametrize("silent", [False, True])
async def test_nothing_but_gets_ever_leaves(fabric, swept, silent):
    if silent:
        fabric.nodes[5].dead()
    one = swept(service_levels=True)
    await one.look()
    await one.look()
    await one.look(700)
    assert {datagram[3] for datagram in fabric.wire} == {0x01}
    assert {datagram[1] for datagram in fabric.wire} == {0x01, 0x04, 0x81}
