"""Virtual functions of a port, in the form of IFLA_VFINFO_LIST of include/uapi/linux/if_link.h."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from exporter.linux.netlink.virtual_functions import (
    MAX_FUNCTIONS,
    VirtualFunction,
    parse_virtual_functions,
    virtual_functions_request,
)

VFINFO_LIST, VF_INFO, VF_MAC, VF_VLAN, VF_STATS = 22, 1, 1, 2, 8
HEAD = struct.pack("=BxHiII", 0, 1, 4, 0x1003, 0)


def attribute(kind, payload):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def function(number, mac=b"\0" * 6, counters=None):
    fields = attribute(VF_MAC, struct.pack("=I32s", number, mac)) + attribute(
        VF_VLAN, struct.pack("=III", number, 0, 0)
    )
    if counters is not None:
        fields += attribute(VF_STATS, b"".join(attribute(kind, struct.pack("=Q", n)) for kind, n in counters.items()))
    return attribute(VF_INFO, fields)


def answer(*functions):
    return HEAD + attribute(3, b"ens1f0np0\0") + attribute(VFINFO_LIST, b"".join(functions))


def test_request_is_for_one_link_with_its_functions():
    assert virtual_functions_request(4) == struct.pack("=BxHiII", 0, 0, 4, 0, 0) + struct.pack("=HHI", 8, 29, 1)


def test_functions_have_their_numbers_addresses_and_counters():
    counters = {0: 1, 1: 2, 2: 3, 3: 2**63 + 1, 4: 5, 5: 6, 7: 7, 8: 8}
    found = parse_virtual_functions(answer(function(0), function(3, bytes.fromhex("0a0000000001"), counters)))
    assert found == [
        VirtualFunction(0, None, {}),
        VirtualFunction(
            3,
            "0a:00:00:00:00:01",
            {
                "rx_packets": 1,
                "tx_packets": 2,
                "rx_bytes": 3,
                "tx_bytes": 2**63 + 1,
                "rx_dropped": 7,
                "tx_dropped": 8,
            },
        ),
    ]


def test_link_without_functions_has_none():
    assert parse_virtual_functions(HEAD) == []


def test_too_many_functions_are_an_error():
    many = b"".join(
        attribute(VF_INFO, attribute(VF_MAC, struct.pack("=I6s", n, b""))) for n in range(MAX_FUNCTIONS + 1)
    )
    body = HEAD + struct.pack("=HH", 4, VFINFO_LIST) + many
    assert parse_virtual_functions(body) == []  # an attribute has 16 bits for its length: the kernel sends no such
    with pytest.raises(OSError, match="more than"):
        _parse_entries(many)


def _parse_entries(many):
    """Parse more entries than one attribute can have."""
    from exporter.linux.netlink import virtual_functions as module  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_FUNCTIONS", 3)
        return module.parse_virtual_functions(answer(many[: 4 * 20]))


@given(st.binary(max_size=200))
def test_whatever_is_received_is_parsed(data):
    parse_virtual_functions(HEAD + attribute(VFINFO_LIST, data))
    parse_virtual_functions(data)


def test_the_answers_of_these_tests_are_what_pyroute2_parses():
    """An independent parser finds the same in them."""
    counters = {0: 1, 1: 2, 2: 3, 3: 4, 7: 5, 8: 6}
    body = answer(function(0), function(3, bytes.fromhex("0a0000000001"), counters))
    theirs = ifinfmsg(struct.pack("=IHHII", 16 + len(body), 16, 0, 0, 0) + body)
    theirs.decode()
    entries = theirs.get_attr("IFLA_VFINFO_LIST").get_attrs("IFLA_VF_INFO")
    assert [one.get_attr("IFLA_VF_MAC")["vf"] for one in entries] == [0, 3]
    stats = entries[1].get_attr("IFLA_VF_STATS")
    names = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
    assert parse_virtual_functions(body)[1].stats == {
        name: stats.get_attr(f"IFLA_VF_STATS_{name.upper()}") for name in names
    }
