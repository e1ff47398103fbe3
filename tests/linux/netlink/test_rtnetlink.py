import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink import messages
from exporter.linux.netlink.rtnetlink import (
    GET_LINKS,
    LINK_STATS64,
    LINKS_REQUEST,
    parse_link_events,
    parse_links,
)

NEWLINK, DELLINK, NEWADDR, DONE, ERROR = 16, 17, 20, 3, 2
ADDRESS, IFNAME, MTU, LOWER, OPERSTATE, LINKINFO, STATS64 = 1, 3, 4, 5, 16, 18, 23
CARRIER_CHANGES, PORT_NAME, DOWNS, PERM, PARENT, BUS = 35, 38, 48, 54, 56, 57
AF_BRIDGE = 7


def attribute(kind, value):
    value = struct.pack("=I", value) if isinstance(value, int) else value
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind, body, flags=0, sequence=7):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body + bytes(-len(body) % 4)


def link(*attributes, kind=NEWLINK, family=0, state=0, index=5, hardware=1, **header):
    return message(kind, struct.pack("=BxHiII", family, hardware, index, state, 0) + b"".join(attributes), **header)


def events(data):
    return parse_link_events(messages.messages(data))


def links(data):
    return parse_links(message.body for message in messages.messages(data))


def names(data):
    return [(event.change, event.link.name) for event in events(data)]


NAMED = attribute(IFNAME, b"eth0\0")


def test_request_for_all_links_with_statistics_without_virtual_functions():
    assert messages.message(GET_LINKS, 0x301, 9, LINKS_REQUEST) == bytes.fromhex(
        "28000000 1200 0103 09000000 00000000"  # 40 bytes, GETLINK, REQUEST | ROOT | MATCH, sequence 9, port 0
        "00 00 0000 00000000 00000000 00000000"  # every family and index
        "0800 1d00 00000000"  # EXT_MASK: neither VF nor SKIP_STATS
    ), "written for a little-endian machine"


def test_all_fields_of_a_link():
    data = link(
        attribute(IFNAME, b"ens3f0np0\0"),
        attribute(ADDRESS, bytes.fromhex("020000000001")),
        attribute(PERM, bytes.fromhex("b83fd2000001")),
        attribute(MTU, 9000),
        attribute(LOWER, 3),
        attribute(OPERSTATE, b"\x06"),
        attribute(LINKINFO | 0x8000, attribute(1, b"macvlan\0") + attribute(2, b"data")),
        attribute(STATS64, struct.pack("=25Q", *range(2**64 - 25, 2**64))),
        attribute(CARRIER_CHANGES, 5),
        attribute(DOWNS, 2),
        attribute(PORT_NAME, b"p0\0"),
        attribute(PARENT, b"0000:17:00.0\0"),
        attribute(BUS, b"pci\0"),
        attribute(999, b"of a newer kernel"),
        state=0x10003,
        hardware=32,
    )
    ((change, found),) = events(data)
    assert change == "changed"
    assert links(data) == [found]
    assert (found.ifindex, found.name, found.hardware) == (5, "ens3f0np0", 32)
    assert (found.admin_up, found.carrier, found.operstate, found.mtu) == (True, True, "up", 9000)
    assert found.mac == "b8:3f:d2:00:00:01", "a bond overwrites the other address"
    assert (found.kind, found.lower) == ("macvlan", 3)
    assert (found.carrier_changes, found.carrier_down_count) == (5, 2)
    assert found.phys_port_name == "p0"
    assert (found.parent_dev_name, found.parent_dev_bus_name) == ("0000:17:00.0", "pci")
    assert len(found.stats) == 25
    assert found.stats["rx_packets"] == 2**64 - 25
    assert found.stats["rx_otherhost_dropped"] == 2**64 - 1


def test_missing_attributes_are_none():
    found = links(link(NAMED))[0]
    assert found.stats == {}
    assert found.kind == ""
    for name in ("operstate", "mtu", "mac", "parent_dev_name", "phys_port_name"):
        assert getattr(found, name) is None, name
    for name in ("lower", "carrier_changes", "carrier_down_count", "parent_dev_bus_name"):
        assert getattr(found, name) is None, name
    assert (found.admin_up, found.carrier) == (False, False)


@pytest.mark.parametrize(("size", "known"), [(23, 23), (24, 24), (25, 25), (30, 25)])
def test_stats64_of_older_and_newer_kernels(size, known):
    stats = links(link(NAMED, attribute(STATS64, struct.pack(f"={size}Q", *range(size)))))[0].stats
    assert list(stats) == list(LINK_STATS64[:known])
    assert list(stats.values()) == list(range(known))


def test_address_is_used_without_a_permanent_address():
    assert links(link(NAMED, attribute(ADDRESS, b"\x02\0\0\0\0\x01")))[0].mac == "02:00:00:00:00:01"
    assert links(link(NAMED, attribute(ADDRESS, b"")))[0].mac is None
    infiniband = links(link(NAMED, attribute(ADDRESS, bytes(range(20)))))[0].mac
    assert infiniband.startswith("00:01:02:")
    assert len(infiniband) == 59


def test_new_and_deleted_links():
    data = link(NAMED) + link(attribute(IFNAME, b"eth1\0"), kind=DELLINK)
    assert names(data) == [("changed", "eth0"), ("deleted", "eth1")]


def test_dropped_notifications_are_an_overrun_in_their_place():
    (message,) = messages.messages(link(NAMED))
    changes = [event.change for event in parse_link_events([message, None, message])]
    assert changes == ["changed", "overrun", "changed"]


def test_a_port_that_leaves_a_bridge_is_not_deleted():
    assert events(link(NAMED, kind=DELLINK, family=AF_BRIDGE)) == []
    assert links(link(NAMED, family=AF_BRIDGE)) == []


@pytest.mark.parametrize("kind", [ERROR, DONE, NEWADDR])
def test_messages_of_other_types_are_no_events(kind):
    assert names(link(NAMED, kind=kind) + link(NAMED)) == [("changed", "eth0")]


@pytest.mark.parametrize(
    "broken",
    [
        struct.pack("=HH", 0, MTU) + b"\x28\x23\0\0",
        struct.pack("=HH", 3, MTU),
        struct.pack("=HH", 400, MTU) + b"\x28\x23\0\0",
        b"\x08\0",
    ],
    ids=["length 0", "length 3", "beyond the message", "cut header"],
)
def test_malformed_attribute_affects_only_the_rest_of_its_link(broken):
    found = links(link(NAMED, attribute(LOWER, 4), broken) + link(attribute(IFNAME, b"eth1\0")))
    assert [one.name for one in found] == ["eth0", "eth1"]
    assert (found[0].lower, found[0].mtu) == (4, None)


def test_malformed_nested_attribute_affects_only_its_field():
    (found,) = links(link(NAMED, attribute(LINKINFO, bytes(8)), attribute(MTU, 1500)))
    assert (found.kind, found.mtu) == ("", 1500)


def test_number_of_unexpected_size_is_none():
    (found,) = links(link(NAMED, attribute(MTU, b"\x01\x02\x03"), attribute(OPERSTATE, b"\x63")))
    assert (found.mtu, found.operstate) == (None, None)


def test_tunnel_without_lower_device():
    assert links(link(NAMED, attribute(LOWER, 0)))[0].lower is None


def test_link_without_a_name_is_skipped():
    data = link(attribute(MTU, 1500)) + link(attribute(IFNAME, b"\0")) + link(NAMED)
    assert [one.name for one in links(data)] == ["eth0"]
    assert names(data) == [("changed", "eth0")]


def test_names_that_are_not_utf8_stay_different():
    data = link(attribute(IFNAME, b"\xff\0")) + link(attribute(IFNAME, b"\xfe\0"))
    assert [one.name for one in links(data)] == ["\\xff", "\\xfe"]


def test_truncated_message_is_skipped():
    assert parse_links([b"", bytes(15)]) == []
    assert names(message(NEWLINK, bytes(15)) + link(NAMED)) == [("changed", "eth0")]


BODIES = st.lists(
    st.tuples(st.sampled_from([*range(60), 0x8012]), st.binary(max_size=40) | st.just(NAMED[4:]), st.integers(-4, 4)),
    max_size=8,
).map(lambda parts: b"".join(struct.pack("=HH", max(0, 4 + len(v) + off), k) + v for k, v, off in parts))
MESSAGES = st.builds(
    lambda kind, body, flags, off: (
        struct.pack("=IHHII", max(0, 32 + len(body) + off), kind, flags, 7, 0) + bytes(16) + body
    ),
    st.sampled_from([NEWLINK, DELLINK, DONE, ERROR, 1, 99]),
    BODIES,
    st.sampled_from([0, 2, 0x10]),
    st.integers(-40, 8),
)


@given(st.binary(max_size=200) | st.lists(MESSAGES, max_size=4).map(b"".join))
def test_arbitrary_bytes_neither_raise_nor_hang_the_parser(data):
    found = events(data)
    assert len(found) <= len(data) // 16
    assert all(event.link.name for event in found)


def test_what_a_device_of_a_pod_has_beside():
    """IFLA_IFALIAS, IFLA_LINK_NETNSID, and IFLA_IPOIB_PKEY in the data of its kind."""
    alias, lower_namespace, data, pkey = 20, 37, 2, 1
    info = attribute(1, b"ipoib\0") + attribute(data, attribute(pkey, struct.pack("=H", 0x8001)))
    (found,) = links(link(NAMED, attribute(alias, b"ib0\0"), attribute(lower_namespace, 7), attribute(LINKINFO, info)))
    assert (found.alias, found.lower_namespace, found.partition) == ("ib0", 7, 0x8001)


def test_data_of_other_kinds_is_no_partition():
    info = attribute(1, b"macvlan\0") + attribute(2, attribute(1, struct.pack("=I", 4)))
    (found,) = links(link(NAMED, attribute(LINKINFO, info)))
    assert (found.kind, found.partition, found.alias, found.lower_namespace) == ("macvlan", None, None, None)
