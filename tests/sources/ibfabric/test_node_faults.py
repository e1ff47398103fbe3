"""Nodes that are unresponsive, late, busy, protected or faulty: each is reported, and delays or hides no other."""

import struct

import pytest

from exporter.core.source import SourceError
from exporter.linux.mad.datagram import Attribute
from exporter.sources.ibfabric.model import format_guid
from tests.helpers.fabric_simulation import BUSY, REDIRECT

UNRESPONSIVE_SECONDS = 3 * 0.5 + 0.05 + 0.1
"""Duration of three tries of an unresponsive node, with the backoff between them."""


def hosts_leaves_spine(fabric):
    """Return hosts, leaves and the spine."""
    return fabric.nodes[:4], fabric.nodes[4:6], fabric.nodes[6]


def other_ports(fabric, but):
    """Return all linked ports that are not at a node or linked to it."""
    found = [
        (node, number)
        for node in fabric.nodes
        for number, port in node.ports.items()
        if node is not but and port.peer is not None and port.peer.node is not but
    ]
    assert found
    return found


async def test_a_healthy_fabric_is_exported_link_by_link(fabric, make_sweeper):
    result = await make_sweeper().sweep()
    expected = {
        frozenset({(format_guid(node.guid), str(number)), (format_guid(port.peer.node.guid), str(port.peer.number))})
        for node in fabric.nodes
        for number, port in node.ports.items()
        if port.peer is not None
    }
    assert result.links() == expected
    assert len(expected) == 6
    assert not result.failures
    assert (result.sweep_value("switches"), result.sweep_value("adapters"), result.sweep_value("links")) == (3, 4, 6)
    assert result.sweep_value("info")[:2] == ("sweeping", "")


async def test_a_node_that_never_responded_is_an_unknown_peer(fabric, make_sweeper):
    hosts, leaves, _ = hosts_leaves_spine(fabric)
    hosts[3].stop_responding()
    result = await make_sweeper().sweep()
    assert result.value("link_info", leaves[1], 2) == ("", "", "", "4X", "HDR")
    assert result.value("link_up", leaves[1], 2) == 1
    assert result.value("node_up", hosts[3]) is None
    assert result.sweep_value("unanswered_links") == 1
    assert result.reasons() == [(format_guid(leaves[1].guid), "peer_unresponsive")]
    assert "leaf-2, port 2: the link is up, its peer does not respond" in result.failures[0].detail
    for node, number in other_ports(fabric, hosts[3]):
        assert result.value("port_responding", node, number) == 1
    assert result.sweep_value("duration_seconds") == pytest.approx(UNRESPONSIVE_SECONDS, abs=0.02)


async def test_an_unresponsive_node_is_reported_and_gets_one_try_in_later_sweeps(fabric, make_sweeper):
    hosts, _, _ = hosts_leaves_spine(fabric)
    sweeper = make_sweeper()
    await sweeper.sweep()
    hosts[3].stop_responding()
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[3], 1) == 0
    assert result.value("receive_bytes_total", hosts[3], 1) is None
    assert result.value("link_up", hosts[3], 1) == 1  # read from the leaf at the other end
    assert result.value("node_up", hosts[3]) == 1
    assert (format_guid(hosts[3].guid), "timeout") in result.reasons()
    assert result.sweep_value("duration_seconds") == pytest.approx(UNRESPONSIVE_SECONDS, abs=0.02)
    for node, number in other_ports(fabric, hosts[3]):
        assert result.value("port_responding", node, number) == 1
        assert result.value("receive_bytes_total", node, number) == 0
    result = await sweeper.sweep()
    assert result.sweep_value("duration_seconds") == pytest.approx(0.5, abs=0.02)
    hosts[3].silent = frozenset()
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[3], 1) == 1
    assert not result.failures


async def test_an_unresponsive_switch_is_reported_and_nodes_behind_it_are_still_counted(fabric, make_sweeper):
    hosts, leaves, spine = hosts_leaves_spine(fabric)
    sweeper = make_sweeper()
    await sweeper.sweep()
    spine.stop_responding()  # its management hangs; it still forwards
    result = await sweeper.sweep()
    assert [result.value("port_responding", spine, number) for number in (1, 2)] == [0, 0]
    assert result.value("port_responding", hosts[3], 1) == 1
    assert result.value("link_up", leaves[0], 3) == 1
    assert result.value("link_up", spine, 3) is None  # without a link there is no peer to read it from
    assert {device for device, _ in result.reasons()} == {format_guid(spine.guid)}
    assert result.sweep_value("duration_seconds") < 2 * UNRESPONSIVE_SECONDS


@pytest.mark.parametrize("kind", [1, 4])
async def test_a_node_may_be_unresponsive_in_one_management_class_only(fabric, make_sweeper, kind):
    hosts, leaves, _ = hosts_leaves_spine(fabric)
    sweeper = make_sweeper()
    await sweeper.sweep()
    leaves[1].silent = frozenset({kind})
    result = await sweeper.sweep()
    assert result.value("link_up", leaves[1], 1) == 1
    assert result.value("port_responding", hosts[2], 1) == 1
    assert format_guid(leaves[1].guid) in {device for device, _ in result.reasons()}
    for node, number in other_ports(fabric, leaves[1]):
        assert result.value("port_responding", node, number) == 1


async def test_late_replies_cause_a_retry_and_are_unmatched(fabric, make_sweeper):
    hosts, _, _ = hosts_leaves_spine(fabric)
    sweeper = make_sweeper()
    await sweeper.sweep()
    hosts[2].late = 0.52
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[2], 1) in (0, 1)
    assert result.values["fabric_ib_sweep_datagrams_total"]["mlx5_0:1", "unmatched"] >= 1
    assert result.sweep_value("duration_seconds") < 2 * UNRESPONSIVE_SECONDS
    for node, number in other_ports(fabric, hosts[2]):
        assert result.value("port_responding", node, number) == 1
    hosts[2].late = 0.3
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[2], 1) == 1


async def test_requests_to_a_busy_node_are_retried(fabric, make_sweeper):
    hosts, _, _ = hosts_leaves_spine(fabric)
    sweeper = make_sweeper()
    await sweeper.sweep()
    hosts[2].busy = 3
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[2], 1) == 1
    assert not result.failures
    hosts[2].busy = 10**6
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[2], 1) == 0
    assert result.reasons() == [(format_guid(hosts[2].guid), "busy")]


def with_status(status):
    def tamper(datagram):
        return datagram[:4] + struct.pack(">H", status | datagram[4] << 8 & 0x8000) + datagram[6:]

    return tamper


def overwrite(place, data):
    return lambda datagram: datagram[:place] + data + datagram[place + len(data) :]


INVALID_REPLIES = {
    "another attribute": (overwrite(16, b"\x00\x77"), "malformed"),
    "another class": (overwrite(1, b"\x03"), "malformed"),
    "a request as reply": (overwrite(3, b"\x01"), "malformed"),
    "another transaction": (overwrite(12, b"\xde\xad\xbe\xef"), "timeout"),
    "truncated": (lambda datagram: datagram[:100], "timeout"),
    "garbage": (lambda _: b"\xa5" * 256, "timeout"),
    "another version": (overwrite(0, b"\x02"), "timeout"),
    "refused": (with_status(0x1C), "refused"),
    "redirected": (with_status(REDIRECT), "refused"),
    "always busy": (with_status(BUSY), "busy"),
}


@pytest.mark.parametrize("kind", INVALID_REPLIES)
@pytest.mark.parametrize("place", [2, 5, 6])  # a host, a leaf, the spine
async def test_a_node_with_invalid_replies_is_reported_and_all_others_are_counted(fabric, make_sweeper, kind, place):
    tamper, reason = INVALID_REPLIES[kind]
    faulty = fabric.nodes[place]
    sweeper = make_sweeper()
    await sweeper.sweep()
    faulty.tamper = tamper
    result = await sweeper.sweep()
    number = next(number for number, port in faulty.ports.items() if port.peer is not None)
    assert result.value("port_responding", faulty, number) == 0
    assert (format_guid(faulty.guid), reason) in result.reasons()
    assert {device for device, _ in result.reasons()} == {format_guid(faulty.guid)}
    for node, number in other_ports(fabric, faulty):
        assert result.value("port_responding", node, number) == 1
        assert result.value("link_up", node, number) == 1
    faulty.tamper = None
    result = await sweeper.sweep()
    assert not result.failures


@pytest.mark.parametrize("kind", INVALID_REPLIES)
@pytest.mark.parametrize("place", [2, 5, 6])
async def test_a_node_with_invalid_replies_from_the_start_hides_only_nodes_behind_it(fabric, make_sweeper, kind, place):
    faulty = fabric.nodes[place]
    faulty.tamper = INVALID_REPLIES[kind][0]
    result = await make_sweeper().sweep()
    assert result.failures
    assert {device for device, _ in result.reasons()} <= {format_guid(node.guid) for node in fabric.nodes[4:]}
    assert result.value("port_responding", fabric.nodes[4], 1) == 1
    assert result.value("port_responding", fabric.nodes[1], 1) == 1
    assert result.value("node_up", faulty) is None
    assert result.sweep_value("unanswered_links") == 1


async def test_counters_with_another_port_select_are_discarded(fabric, make_sweeper):
    _, leaves, _ = hosts_leaves_spine(fabric)
    leaves[1].ports[1].counts["symbol_errors"] = 5
    leaves[1].tamper = lambda datagram: (
        overwrite(65, b"\x02")(datagram) if datagram[1] == 4 and datagram[17] != 1 else datagram
    )
    result = await make_sweeper().sweep()
    assert result.value("port_responding", leaves[1], 1) == 0
    assert result.value("symbol_errors_total", leaves[1], 1) is None
    assert result.value("port_responding", leaves[1], 2) == 1  # its own counters
    assert (format_guid(leaves[1].guid), "malformed") in result.reasons()


@pytest.mark.parametrize(
    ("attribute", "has_counters"),
    [
        (Attribute.NODE_DESCRIPTION, True),
        (Attribute.SWITCH_INFO, True),
        (Attribute.PORT_COUNTERS_EXTENDED, False),
        (Attribute.PORT_COUNTERS, False),
    ],
)
async def test_an_unsupported_attribute_affects_nothing_else(fabric, make_sweeper, attribute, has_counters):
    hosts, leaves, _ = hosts_leaves_spine(fabric)
    leaves[1].unsupported = frozenset({(4 if attribute.performance else 1, attribute.number)})
    result = await make_sweeper().sweep()
    assert result.value("port_responding", leaves[1], 1) == int(has_counters)
    assert result.value("link_up", leaves[1], 1) == 1
    assert result.value("link_info", hosts[2], 1)[0] == format_guid(leaves[1].guid)
    assert (format_guid(leaves[1].guid), "unsupported") in result.reasons()
    if attribute is Attribute.PORT_COUNTERS:
        assert result.value("receive_bytes_total", leaves[1], 1) == 0
        assert result.value("symbol_errors_total", leaves[1], 1) is None
    if attribute is Attribute.NODE_DESCRIPTION:
        assert result.value("link_info", hosts[2], 1)[2] == format_guid(leaves[1].guid)


async def test_an_adapter_whose_port_info_becomes_readable_later_is_counted(fabric, make_sweeper):
    hosts, leaves, _ = hosts_leaves_spine(fabric)
    hosts[2].unsupported = frozenset({(1, 0x15)})
    sweeper = make_sweeper()
    result = await sweeper.sweep()
    assert (format_guid(hosts[2].guid), "unsupported") in result.reasons()
    hosts[2].unsupported = frozenset()
    leaves[1].unsupported = frozenset({(1, 0x15)})  # so that the adapter is asked how the link is
    result = await sweeper.sweep()
    assert result.value("port_responding", hosts[2], 1) == 1


async def test_a_port_without_a_lid_is_reported_and_all_others_are_exported(fabric, make_sweeper):
    hosts, leaves, _ = hosts_leaves_spine(fabric)
    hosts[3].ports[1].lid = 0
    result = await make_sweeper().sweep()
    assert result.value("port_responding", hosts[3], 1) == 0
    assert result.value("link_up", hosts[3], 1) == 1
    assert result.value("port_responding", leaves[1], 2) == 1
    assert result.reasons() == [(format_guid(hosts[3].guid), "no_lid")]
    assert result.failures[0].detail == "gpu-4 mlx5_0, port 1: counters: no_lid"


async def test_a_fabric_without_a_subnet_manager_is_discovered_and_has_no_counters(fabric, make_sweeper):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.lid = 0
    fabric.sm_lid = 0
    result = await make_sweeper().sweep()
    assert len(result.links()) == 6
    assert {reason for _, reason in result.reasons()} == {"no_lid"}
    assert result.sweep_value("info")[2].endswith("-unmanaged")
    assert all(datagram[1] == 0x81 for datagram in fabric.wire)


# --- M_Key


@pytest.mark.parametrize("level", [2, 3])
async def test_a_fabric_protected_by_an_m_key_is_an_error_with_the_remedy(fabric, make_sweeper, level):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.protect = level
        node.key = 0xFEED
    fabric.nodes[0].key = 0  # the local node responds, with its protection level
    with pytest.raises(SourceError, match=rf"protected by an M_Key \(level {level}\); set m_key_file") as caught:
        await make_sweeper().sweep()
    assert caught.value.reason == "m_key"


async def test_a_local_port_protected_by_an_m_key_is_an_error_with_the_remedy(fabric, make_sweeper):
    for node in fabric.nodes:
        node.key = 0xFEED
        for port in node.ports.values():
            port.protect = 2
    with pytest.raises(SourceError, match=r"the local port does not respond.*M_Key; set m_key_file") as caught:
        await make_sweeper().sweep()
    assert caught.value.reason == "m_key"


async def test_nodes_with_another_m_key_are_reported_with_the_protection_level(fabric, make_sweeper):
    for node in fabric.nodes:
        for port in node.ports.values():
            port.protect = 2
    spine = hosts_leaves_spine(fabric)[2]
    spine.key = 0xFEED
    result = await make_sweeper().sweep()
    details = [one.detail for one in result.failures if one.reason == "peer_unresponsive"]
    assert len(details) == 1  # nodes behind the spine are not discovered
    assert "port " in details[0]
    assert details[0].endswith(
        "its peer does not respond; the fabric is protected by an M_Key (level 2): the node may have another key"
    )


async def test_with_the_m_key_from_its_file_the_whole_fabric_is_read(fabric, make_sweeper, tmp_path):
    (tmp_path / "key").write_text("0x000000000000FEED\n")
    for node in fabric.nodes:
        node.key = 0xFEED
        for port in node.ports.values():
            port.protect = 3
    result = await make_sweeper(m_key_file=str(tmp_path / "key")).sweep()
    assert len(result.links()) == 6
    assert not result.failures


@pytest.mark.parametrize("text", ["", "secret-key", "-1", "0x1ffffffffffffffff", "1.5"])
async def test_an_invalid_m_key_is_an_error_that_does_not_contain_it(make_sweeper, tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        await make_sweeper(m_key_file=str(path)).sweep()
    assert caught.value.reason == "credentials"
    assert str(path) in str(caught.value)
    assert not text or text not in str(caught.value).replace(str(path), "")


async def test_an_unresponsive_first_node_is_a_timeout_that_may_be_an_m_key(fabric, make_sweeper):
    fabric.nodes[4].stop_responding()
    with pytest.raises(
        SourceError, match="does not respond to management datagrams: an M_Key may protect it"
    ) as caught:
        await make_sweeper().sweep()
    assert caught.value.reason == "timeout"


async def test_without_a_local_link_the_topology_is_kept(fabric, make_sweeper):
    sweeper = make_sweeper()
    before = await sweeper.sweep()
    origin = fabric.origin
    peer = origin.peer
    fabric.unlink(origin)
    with pytest.raises(SourceError, match="has no link") as caught:
        await sweeper.sweep()
    assert caught.value.reason == "link"
    fabric.link(origin.node, origin.number, peer.node, peer.number)
    after = await sweeper.sweep()
    assert after.values["fabric_ib_node_up"] == before.values["fabric_ib_node_up"], "no node was unreachable"


# --- shapes of fabrics


async def test_a_cable_from_a_switch_to_itself_is_one_link(fabric, make_sweeper):
    spine = fabric.nodes[6]
    fabric.link(spine, 3, spine, 4)
    result = await make_sweeper().sweep()
    assert frozenset({(format_guid(spine.guid), "3"), (format_guid(spine.guid), "4")}) in result.links()
    assert result.sweep_value("links") == 7


async def test_a_loopback_plug_is_one_link_of_a_port_with_itself(fabric, make_sweeper):
    spine = fabric.nodes[6]
    spine.ports[3].peer, spine.ports[3].state, spine.ports[3].physical = spine.ports[3], 2, 5
    sweeper = make_sweeper()
    for _ in range(3):
        result = await sweeper.sweep()
        assert frozenset({(format_guid(spine.guid), "3")}) in result.links()
        assert result.sweep_value("links") == 7
        assert len(result.links()) == 7


async def test_switches_in_a_ring_are_discovered_once(fabric, make_sweeper):
    _, leaves, _ = hosts_leaves_spine(fabric)
    fabric.link(leaves[0], 4, leaves[1], 4)
    result = await make_sweeper().sweep()
    assert len(result.links()) == 7
    for node in fabric.nodes:
        descriptions = [one for one in node.requests if one[1] == 0x81 and one[17] == 0x10]
        assert len(descriptions) == 1
    assert result.value("group_info", leaves[0], 4) == ("peer",)
    assert result.value("group_info", leaves[0], 3) == ("uplink",)


async def test_a_duplicate_guid_causes_no_endless_discovery(fabric, make_sweeper):
    hosts, _, _ = hosts_leaves_spine(fabric)
    hosts[3].guid = hosts[2].guid
    sweeper = make_sweeper()
    for _ in range(4):
        before = len(fabric.wire)
        result = await sweeper.sweep()
        assert len(fabric.wire) - before < 250
        assert result.value("port_responding", hosts[0], 1) == 1
        assert sum("mlx5_0" in row[0] for row in result.values["fabric_ib_node_info"].values()) == 3


async def test_an_aggregation_node_is_not_an_adapter(fabric, make_sweeper):
    spine = fabric.nodes[6]
    inside = fabric.adapter(0x3F01, "Mellanox Technologies Aggregation Node")
    twin = fabric.adapter(0x3F02, "Mellanox Technologies Aggregation Node")
    fabric.link(spine, 4, inside, 1)
    fabric.link(fabric.nodes[5], 4, twin, 1)
    fabric.manage()
    result = await make_sweeper().sweep()
    for node in (inside, twin):  # with the same description: the GUID is the key
        assert result.value("node_info", node)[:4] == ("Mellanox Technologies Aggregation Node", "aggregation", "", "")
    assert result.sweep_value("adapters") == 4
    assert result.value("group_info", spine, 4) is None
    assert result.value("node_info", spine)[-1] == "spine"


async def test_ports_of_a_switch_in_split_mode_have_two_lanes(fabric, make_sweeper):
    spine = fabric.nodes[6]
    half = fabric.adapter(0x4001, "gpu-9 mlx5_0")
    fabric.link(spine, 4, half, 1, lanes=2, supported_lanes=(1, 2))
    spine.ports[3].physical, spine.ports[3].state = 3, 1  # the other half is disabled
    fabric.manage()
    result = await make_sweeper().sweep()
    assert result.value("link_info", spine, 4) == (format_guid(0x4001), "1", "gpu-9 mlx5_0", "2X", "HDR")
    assert result.value("link_speed_bytes_per_second", spine, 4) == 100e9 / 8  # HDR100
    assert result.value("link_expected_speed_bytes_per_second", spine, 4) == 100e9 / 8
    assert result.value("link_degraded", spine, 4) == 0
    assert (result.value("link_up", spine, 3), result.value("port_physical_state", spine, 3)) == (0, 3)


async def test_the_second_port_of_an_adapter_may_be_in_another_subnet(fabric, make_sweeper):
    spine = fabric.nodes[6]
    double = fabric.adapter(0x4001, "gpu-9 mlx5_0", ports=2)
    fabric.link(spine, 4, double, 1)
    double.ports[2].state, double.ports[2].physical, double.ports[2].lid = 4, 5, 3
    fabric.nodes[6].ports[0].lid = 9
    double.ports[1].lid = 10
    result = await make_sweeper().sweep()
    assert result.value("port_responding", double, 1) == 1
    assert result.value("link_up", double, 2) is None
    assert result.value("port_responding", double, 2) is None


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
async def test_any_description_is_accepted(fabric, make_sweeper, name):
    spine = fabric.nodes[6]
    spine.description = name
    result = await make_sweeper().sweep()
    description = " ".join(name.decode("utf-8", "surrogateescape").split())
    assert result.value("node_info", spine)[0] == description
    assert result.value("link_info", fabric.nodes[4], 3)[2] == (description or format_guid(spine.guid))
    assert not result.failures


@pytest.mark.parametrize("physical", range(16))
@pytest.mark.parametrize("state", [0, 1, 6, 15])
async def test_any_port_state_is_exported_and_a_port_that_is_down_has_no_speed(fabric, make_sweeper, state, physical):
    spine = fabric.nodes[6]
    spine.ports[4].state, spine.ports[4].physical = state, physical
    result = await make_sweeper(retries=0).sweep()
    assert result.value("port_state", spine, 4) == state
    assert result.value("port_physical_state", spine, 4) == (physical or None)
    if state < 2 and physical != 5:
        assert result.value("link_up", spine, 4) == 0
        assert result.value("link_speed_bytes_per_second", spine, 4) is None
        assert result.value("link_lanes", spine, 4) is None
    assert len(result.links()) == 6
    assert all(result.value("port_responding", node, number) == 1 for node, number in other_ports(fabric, None))


@pytest.mark.parametrize("silent", [False, True])
async def test_all_requests_are_gets(fabric, make_sweeper, silent):
    if silent:
        fabric.nodes[5].stop_responding()
    sweeper = make_sweeper(service_levels=True)
    await sweeper.sweep()
    await sweeper.sweep()
    await sweeper.sweep(700)
    assert {datagram[3] for datagram in fabric.wire} == {0x01}
    assert {datagram[1] for datagram in fabric.wire} == {0x01, 0x04, 0x81}
