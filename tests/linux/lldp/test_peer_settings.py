"""TLVs of DCBX (IEEE 802.1Qaz) and of the maximum frame size (IEEE 802.3), encoded by hand after the standards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.lldp.frames import parse_frame
from exporter.linux.lldp.peer_settings import MAX_APPLICATIONS, Ets, PeerSettings, parse_peer_settings
from tests.linux.lldp.test_frames import ETHERNET, HOST, SWITCH, frame, tlv

PFC_3 = bytes.fromhex("0080c2 0b 08 08")  # not willing, 8 classes; bit 3
ETS = bytes.fromhex(
    "0080c2 09 00"  # ETS Configuration: not willing, no credit based shaper, 8 classes (written as 0)
    "01 03 45 67"  # priority 0 in class 0, 1 in 1, 2 in 0, 3 in 3, 4 in 4 …
    "00 00 00 32 32 00 00 00"  # 50 % for each of the classes 3 and 4
    "00 01 ff 02 02 07 00 00"  # strict, credit based shaper, vendor, ETS, ETS, an algorithm not known, strict, strict
)
RECOMMENDED_ETS = bytes.fromhex("0080c2 0a 00 00000000 6400000000000000 0200000000000000")
APPLICATIONS = bytes.fromhex(
    "0080c2 0c 00"
    "c5 0030"  # priority 6, DSCP 48
    "65 001a"  # priority 3, DSCP 26
    "63 12b7"  # priority 3, UDP port 4791
    "61 8915"  # priority 3, EtherType 0x8915
    "82 0cbc"  # priority 4, TCP port 3260
)
MAX_FRAME = bytes.fromhex("00120f 04 2412")  # 9234 octets

LEAF_FRAME = SWITCH[:-2] + b"".join(tlv(127, one) for one in (PFC_3, ETS, APPLICATIONS, MAX_FRAME)) + SWITCH[-2:]
"""The frame of the switch, with its settings."""


def test_all_tlvs_of_a_frame():
    found = parse_frame(frame(*(tlv(127, one) for one in (PFC_3, ETS, RECOMMENDED_ETS, APPLICATIONS, MAX_FRAME))))
    assert found.settings == PeerSettings(
        pfc=(3,),
        pfc_willing=False,
        ets=Ets(("strict", "credit", "vendor", 50, 50, "unknown_7", "strict", "strict"), (0, 1, 0, 3, 4, 5, 6, 7)),
        ets_willing=False,
        recommended_ets=Ets((100, *["strict"] * 7), (0,) * 8),
        dscps=((26, 3), (48, 6)),
        applications=(("udp", 4791, 3), ("ethertype", 0x8915, 3), ("tcp", 3260, 4)),
        max_frame=9234,
    )


def test_a_frame_without_these_tlvs_has_no_settings():
    assert parse_frame(SWITCH).settings == parse_frame(HOST).settings == PeerSettings()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0080c2 0b 08 00", ((), False)),  # PFC on no priority
        ("0080c2 0b 88 18", ((3, 4), True)),  # willing
        ("0080c2 0b c4 81", ((0, 7), True)),  # willing, MACsec bypass, 4 classes
        ("0080c2 0b 08 08 ff", ((3,), False)),  # longer than the standard's
        ("0080c2 0b 08", (None, None)),
        ("0080c2 0b", (None, None)),
        ("00120f 0b 08 08", (None, None)),  # the same subtype of IEEE 802.3
        ("001b21 02 08 08", (None, None)),  # DCBX of converged enhanced Ethernet
    ],
)
def test_pfc(content, expected):
    found = parse_peer_settings([bytes.fromhex(content)])
    assert (found.pfc, found.pfc_willing) == expected


def test_willing_of_ets_is_the_highest_bit():
    willing = ETS[:4] + b"\x80" + ETS[5:]
    assert parse_peer_settings([willing]).ets_willing is True
    assert parse_peer_settings([willing]).ets == parse_peer_settings([ETS]).ets


@pytest.mark.parametrize("content", [ETS, RECOMMENDED_ETS, MAX_FRAME])
def test_a_truncated_tlv_is_absent(content):
    for size in range(len(content)):
        assert parse_peer_settings([content[:size]]) == PeerSettings()


def test_the_first_tlv_of_a_subtype_is_used():
    other = bytes.fromhex("0080c2 0b 08 ff")
    assert parse_peer_settings([PFC_3, other]).pfc == (3,)


def test_applications_are_bounded_and_an_incomplete_entry_is_skipped():
    head = bytes.fromhex("0080c2 0c 00")
    ports = b"".join(b"\x63" + number.to_bytes(2, "big") for number in range(150))
    found = parse_peer_settings([head + ports])
    assert (found.dscps, len(found.applications)) == ((), MAX_APPLICATIONS)
    found = parse_peer_settings([head + bytes.fromhex("65 001a c5 00")])
    assert (found.dscps, found.applications) == (((26, 3),), ())
    found = parse_peer_settings([head + bytes.fromhex("65 0040 60 0001 66 0001")])  # no DSCP, reserved selectors
    assert (found.dscps, found.applications) == ((), ())
    assert parse_peer_settings([head]).dscps == ()
    assert parse_peer_settings([head[:-1]]).dscps is None


@given(st.lists(st.binary(max_size=511), max_size=8), st.sampled_from([PFC_3, ETS, APPLICATIONS, MAX_FRAME]))
def test_arbitrary_contents_raise_no_error(contents, real):
    parse_peer_settings([*contents, *(real[:4] + one for one in contents)])


def test_settings_of_the_leaf_do_not_change_the_rest_of_its_frame():
    with_settings, without = parse_frame(LEAF_FRAME), parse_frame(SWITCH)
    assert LEAF_FRAME.startswith(ETHERNET)
    assert (with_settings.name, with_settings.addresses) == (without.name, without.addresses)
