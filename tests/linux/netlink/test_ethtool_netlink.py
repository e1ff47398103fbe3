"""Ethtool netlink: answers encoded by hand after include/uapi/linux/ethtool_netlink.h."""

import errno
import os
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink import ethtool_netlink
from exporter.linux.netlink.ethtool_netlink import (
    EthtoolNetlink,
    Fec,
    LinkModes,
    LinkState,
    Pause,
    parse_device_name,
    parse_fec,
    parse_link_modes,
    parse_link_state,
    parse_module_page,
    parse_pause,
    parse_standard_statistics,
)

PARSERS = (
    parse_device_name,
    parse_fec,
    parse_link_modes,
    parse_link_state,
    parse_module_page,
    parse_pause,
    parse_standard_statistics,
)


def nla(kind, payload=b""):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def nest(kind, *inner):
    return nla(kind | 0x8000, b"".join(inner))


def u8(kind, value):
    return nla(kind, struct.pack("=B", value))


def u32(kind, value):
    return nla(kind, struct.pack("=I", value))


def u64(kind, *values):
    return nla(kind, struct.pack(f"={len(values)}Q", *values))


def bits(kind, value, mask, words=4):
    """Encode a compact bitset of words of 32 bits."""
    packed = [
        nla(part, b"".join(struct.pack("=I", one >> 32 * word & 0xFFFFFFFF) for word in range(words)))
        for part, one in ((4, value), (5, mask))
    ]
    return nest(kind, u32(2, 32 * words), *packed)


HEADER = nest(1, u32(1, 3), nla(2, b"rail0\0"))


# --- link modes


def test_link_modes_of_a_400g_link():
    modes = 1 << 85 | 1 << 69 | 1 << 62 | 1 << 39 | 1 << 6  # 400G over 4 and 8 lanes, 200G, 100G, autonegotiation
    answer = HEADER + u8(2, 1) + bits(3, 1 << 69, modes) + bits(4, 0, 0) + u32(5, 400_000) + u8(6, 1) + u32(9, 4)
    assert parse_link_modes(answer) == LinkModes(400_000_000_000, "full", True, 4, 400_000_000_000)


def test_link_slower_than_supported():
    answer = HEADER + u8(2, 0) + bits(3, 0, 1 << 69 | 1 << 39) + u32(5, 100_000) + u8(6, 0)
    assert parse_link_modes(answer) == LinkModes(100_000_000_000, "half", False, 4, 400_000_000_000)


def test_lanes_are_derived_only_if_all_modes_of_the_speed_agree():
    one_way, two_ways = bits(3, 0, 1 << 58 | 1 << 59 | 1 << 31), bits(3, 0, 1 << 58 | 1 << 37)
    assert parse_link_modes(one_way + u32(5, 100_000)).lanes == 2
    assert parse_link_modes(two_ways + u32(5, 100_000)).lanes is None
    assert parse_link_modes(two_ways + u32(5, 100_000) + u32(9, 4)).lanes == 4
    assert parse_link_modes(two_ways + u32(5, 100_000) + u32(9, 0)).lanes is None
    assert parse_link_modes(one_way + u32(5, 0xFFFFFFFF)).lanes is None
    assert parse_link_modes(one_way + u32(5, 50_000)).lanes is None


@pytest.mark.parametrize("speed", [0, 0xFFFF, 0xFFFFFFFF, 10_000_000])
def test_unknown_speed(speed):
    answer = HEADER + u8(2, 1) + u32(5, speed) + u8(6, 255)
    assert parse_link_modes(answer) == LinkModes(autoneg=True)


@pytest.mark.parametrize(
    ("modes", "speed", "lanes", "most"),
    [
        ({93, 117, 121, 122, 123}, 1_600_000, 8, 1_600_000),
        ({93, 117, 124}, 800_000, None, 1_600_000),
        ({93, 117, 120}, 800_000, None, 800_000),
        ({6, 93, 125}, 800_000, None, None),  # of a kernel that knows more: which may be faster, or of other lanes
        ({93, 300}, 800_000, None, None),
    ],
)
def test_modes_with_8_lanes_and_of_newer_kernels(modes, speed, lanes, most):
    found = parse_link_modes(bits(3, 0, sum(1 << mode for mode in modes), words=10) + u32(5, speed))
    assert (found.lanes, found.speed_bits_per_second) == (lanes, speed * 10**6)
    assert found.max_speed_bits_per_second == (most and most * 10**6)


def test_highest_speed_is_that_of_supported_modes_not_of_advertised_or_unknown_ones():
    assert parse_link_modes(bits(3, 1 << 69, 1 << 31)).max_speed_bits_per_second == 25_000_000_000
    assert parse_link_modes(bits(3, 0, 1 << 120)).max_speed_bits_per_second == 800_000_000_000
    assert parse_link_modes(bits(3, 0, 1 << 250, words=8)).max_speed_bits_per_second is None
    assert parse_link_modes(bits(3, 0, 0)).max_speed_bits_per_second is None
    cut = nest(3, u32(2, 128), nla(5, struct.pack("=I", 1 << 31) + b"\xff\xff\xff"))
    assert parse_link_modes(cut).max_speed_bits_per_second == 25_000_000_000


# --- link state


def test_link_state_up():
    assert parse_link_state(HEADER + u8(2, 1)) == LinkState(up=True)


def test_link_state_down_with_reason():
    answer = HEADER + u8(2, 0) + u32(3, 1) + u8(5, 4) + u8(6, 2) + u32(7, 17)
    assert parse_link_state(answer) == LinkState(up=False, reason="no_cable", down_count=17)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (0, "autoneg"),
        (1, "link_training_failure"),
        (2, "link_logical_mismatch"),
        (3, "bad_signal_integrity"),
        (4, "no_cable"),
        (5, "cable_issue"),
        (6, "eeprom_issue"),
        (7, "calibration_failure"),
        (8, "power_budget_exceeded"),
        (9, "overheat"),
        (10, "module"),
        (11, "unknown_11"),
        (255, "unknown_255"),
    ],
)
def test_extended_link_states(number, reason):
    assert parse_link_state(u8(2, 0) + u8(5, number)).reason == reason


def test_missing_attributes_are_none():
    assert parse_link_state(HEADER) == LinkState()
    assert parse_link_modes(HEADER) == LinkModes()
    assert parse_pause(HEADER) == Pause()
    assert parse_fec(HEADER) == Fec()
    assert parse_standard_statistics(HEADER) == {}
    assert parse_module_page(HEADER) == b""
    assert parse_device_name(b"") is None


# --- pause


def test_pause_with_counters():
    answer = HEADER + u8(2, 0) + u8(3, 1) + u8(4, 0) + nest(5, u64(2, 7), u64(3, 2**64 - 2))
    assert parse_pause(answer) == Pause(False, True, False, receive_frames=2**64 - 2, transmit_frames=7)


def test_missing_pause_counters_are_none():
    assert parse_pause(u8(2, 1) + u8(3, 1) + u8(4, 1) + nest(5)) == Pause(True, True, True)
    assert parse_pause(nest(5, u64(2, 0))) == Pause(transmit_frames=0)


# --- forward error correction


@pytest.mark.parametrize(("bit", "word"), [(49, "none"), (50, "rs"), (51, "baser"), (74, "llrs"), (125, "unknown_125")])
def test_active_fec(bit, word):
    assert parse_fec(HEADER + bits(2, 0, 0) + u8(3, 1) + u32(4, bit)).active == word


def test_fec_counters_are_the_totals():
    statistics = nest(5, u64(2, 2**63, 3, 4), u64(3, 0), nla(4))
    assert parse_fec(u32(4, 50) + statistics) == Fec("rs", 2**63, 0, None)
    assert parse_fec(nest(5, nla(2), nla(3), u64(4, 12))) == Fec(corrected_bits=12)
    assert parse_fec(nest(5, nla(2, b"1234567"))) == Fec()


# --- statistics that standards define


def group(number, *statistics, unrelated=b""):
    return nest(4, u32(2, number), u32(3, 17 + number), unrelated, *(nest(4, u64(*one)) for one in statistics))


def test_standard_statistics_of_all_groups():
    histogram = nest(5, u32(7, 64), u32(8, 64), u64(9, 12345))
    answer = (
        nest(2, nla(2, b"rail0\0"))
        + group(0, (0, 11))
        + group(1, (0, 1), (3, 2**64 - 2), (4, 3), (6, 4), (12, 5), (19, 6), (21, 7))
        + group(2, (0, 8), (1, 9), (2, 10))
        + group(3, (0, 12), (1, 13), (2, 14), (3, 15), unrelated=histogram)
    )
    assert parse_standard_statistics(answer) == {
        "SymbolErrorDuringCarrier": 11,
        "FramesTransmittedOK": 1,
        "FramesReceivedOK": 2**64 - 2,
        "FrameCheckSequenceErrors": 3,
        "OctetsTransmittedOK": 4,
        "OctetsReceivedOK": 5,
        "InRangeLengthErrors": 6,
        "FrameTooLongErrors": 7,
        "MACControlFramesTransmitted": 8,
        "MACControlFramesReceived": 9,
        "UnsupportedOpcodesReceived": 10,
        "undersize": 12,
        "oversize": 13,
        "fragments": 14,
        "jabbers": 15,
    }


def test_unknown_standard_statistics_are_skipped():
    answer = group(4, (0, 1)) + group(1, (22, 1), (0, 5)) + group(0) + nest(4, nest(4, u64(0, 3)))
    assert parse_standard_statistics(answer) == {"FramesTransmittedOK": 5}


# --- hostile bytes

trees = st.recursive(
    st.binary(max_size=20),
    lambda inner: st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), inner).map(lambda one: nla(one[0] | one[1] << 15, one[2])),
        max_size=6,
    ).map(b"".join),
    max_leaves=20,
)


@given(st.one_of(st.binary(max_size=300), trees))
def test_arbitrary_answers_raise_no_error(data):
    for parse in PARSERS:
        parse(data)


# --- requests


class FakeFamily:
    """A kernel that records requests, and answers them."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def request(self, command, body):
        self.asked.append((command, body.hex(" ")))
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    def close(self):
        pass


@pytest.fixture
def fake_kernel(monkeypatch):
    def make(answer):
        family = FakeFamily(answer)
        monkeypatch.setattr(ethtool_netlink, "GenericNetlinkFamily", lambda name: family if name == "ethtool" else None)
        return EthtoolNetlink(), family

    return make


@pytest.mark.skipif(sys.byteorder != "little", reason="needs a machine with the low byte first")
@pytest.mark.parametrize(
    ("request_name", "command", "flags"),
    [("link_modes", 4, 1), ("link_state", 6, 1), ("pause", 21, 5), ("fec", 29, 5)],
)
def test_request_bytes(fake_kernel, request_name, command, flags):
    netlink, family = fake_kernel(HEADER)
    getattr(netlink, request_name)("rail0")
    device = "0a 00 02 00 72 61 69 6c 30 00 00 00"
    assert family.asked == [(command, f"18 00 01 80 {device} 08 00 03 00 0{flags} 00 00 00")]


@pytest.mark.skipif(sys.byteorder != "little", reason="needs a machine with the low byte first")
def test_stats_request_has_all_groups(fake_kernel):
    netlink, family = fake_kernel(nest(2, nla(2, b"eth0\0")) + group(0, (0, 1)))
    assert netlink.standard_statistics("eth0") == {"SymbolErrorDuringCarrier": 1}
    header = "18 00 02 80 09 00 02 00 65 74 68 30 00 00 00 00 08 00 03 00 01 00 00 00"
    groups = "18 00 03 80 04 00 01 00 08 00 02 00 04 00 00 00 08 00 04 00 0f 00 00 00"
    assert family.asked == [(32, f"{header} {groups}")]


@pytest.mark.skipif(sys.byteorder != "little", reason="needs a machine with the low byte first")
def test_module_eeprom_request(fake_kernel):
    netlink, family = fake_kernel(HEADER + nla(7, b"\x18\x50"))
    assert netlink.module_page("rail0", page=0x11, bank=1, offset=154, length=2, address=0x51) == b"\x18\x50"
    ((command, body),) = family.asked
    assert command == 31
    ranges = "08 00 02 00 9a 00 00 00 08 00 03 00 02 00 00 00"
    assert body.endswith(f"{ranges} 05 00 04 00 11 00 00 00 05 00 05 00 01 00 00 00 05 00 06 00 51 00 00 00")


@pytest.mark.parametrize("data", [b"", b"\x18", b"\x18\x50\x00"])
def test_module_eeprom_answer_of_another_length_is_an_error(fake_kernel, data):
    netlink, _ = fake_kernel(HEADER + nla(7, data))
    with pytest.raises(OSError, match=f"{len(data)} bytes instead of 2") as caught:
        netlink.module_page("rail0", page=0, bank=0, offset=0, length=2)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "rail0")


def test_errors_contain_command_and_device(fake_kernel):
    netlink, _ = fake_kernel(OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)))
    with pytest.raises(OSError) as caught:
        netlink.fec("rail0")
    assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, "rail0")
    assert caught.value.strerror == "ethtool FEC: Operation not supported"


def test_answer_of_another_device_is_rejected(fake_kernel):
    netlink, _ = fake_kernel(HEADER + u8(2, 1))
    assert netlink.link_state("rail0").up is True
    with pytest.raises(OSError, match="of another device") as caught:
        netlink.link_state("rail1")
    assert (caught.value.errno, caught.value.filename) == (errno.ENODEV, "rail1")


@pytest.mark.parametrize("name", ["", "x" * 16, "a\0b"])
def test_invalid_device_name_is_not_requested(fake_kernel, name):
    netlink, family = fake_kernel(HEADER)
    with pytest.raises(OSError) as caught:
        netlink.pause(name)
    assert (caught.value.errno, family.asked) == (errno.ENODEV, [])
