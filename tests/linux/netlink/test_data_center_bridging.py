"""Data Center Bridging: answers encoded by hand after include/uapi/linux/dcbnl.h."""

import errno
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink.data_center_bridging import (
    Dcb,
    DcbSocket,
    parse_dcb,
    parse_device_name,
)


def nla(kind, payload=b""):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def answer(*parts):
    return nla(1, b"rail0\0") + nla(13, b"".join(parts)) + nla(14, b"\x08")


def pfc(capacity, enabled):
    """Make struct ieee_pfc, whose counters are not read."""
    return nla(2, struct.pack("=BBBxHxx", capacity, enabled, 0, 0) + struct.pack("=16Q", *range(100, 116)))


def ets(bandwidth, classes, algorithms=(2,) * 8):
    """Make struct ieee_ets."""
    recommended = [99] * 24
    return nla(1, bytes([0, 8, 0, *bandwidth, *[77] * 8, *algorithms, *classes, *recommended]))


def apps(*entries):
    return nla(3, b"".join(nla(1, struct.pack("=BBH", *entry)) for entry in entries))


def test_dcb_of_a_roce_port():
    shares, classes = (10, 20, 30, 40, 0, 0, 0, 0), (0, 1, 2, 3, 4, 5, 6, 7)
    found = parse_dcb(answer(ets(shares, classes), pfc(8, 1 << 3 | 1 << 5), apps((5, 3, 26), (1, 6, 0x8915))))
    assert found == Dcb((3, 5), True, shares, classes)


def test_class_has_a_share_only_under_ets():
    found = parse_dcb(answer(ets((100, 0, 60, 40, 0, 0, 0, 7), range(8), (0, 1, 2, 2, 2, 255, 3, 254))))
    assert found.classes == ("strict", "credit", 60, 40, 0, "vendor", "unknown_3", "unknown_254")


def test_no_pfc_priority_differs_from_unknown():
    assert parse_dcb(answer(pfc(8, 0))) == Dcb(pfc=())
    assert parse_dcb(answer()) == Dcb()
    assert parse_dcb(nla(1, b"rail0\0")) == Dcb()
    assert parse_dcb(answer(pfc(8, 255))).pfc == tuple(range(8))


@pytest.mark.parametrize(
    ("entries", "there"),
    [([], False), ([(1, 3, 0x8906)], False), ([(4, 5, 5)], False), ([(1, 3, 0x8906), (5, 0, 46)], True)],
)
def test_dscp_application_entries(entries, there):
    assert parse_dcb(answer(apps(*entries))).dscp_rules is there


def test_truncated_structures_are_skipped():
    cut = nla(1, bytes(34)) + nla(2, b"\x08") + nla(3, nla(1, b"\x05"))
    assert parse_dcb(answer(cut)) == Dcb(dscp_rules=False)


def test_longer_structures_are_parsed():
    grown = nla(1, bytes([0, 8, 0, *[12] * 8, *[0] * 8, *[2] * 8, *[1] * 8]) + bytes(100)) + nla(
        2, b"\x04\x08" + bytes(200)
    )
    assert parse_dcb(answer(grown)) == Dcb((3,), None, (12,) * 8, (1,) * 8)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.tuples(st.integers(0, 15), st.binary(max_size=160)), max_size=4).map(
            lambda parts: answer(*(nla(kind, payload) for kind, payload in parts))
        ),
    )
)
def test_arbitrary_answers_raise_no_error(data):
    parse_dcb(data)
    parse_device_name(data)


# --- requests


@pytest.fixture
def dcb(monkeypatch):
    """Return a socket whose kernel records requests and answers for rail0."""
    with DcbSocket() as made:
        made.asked = []

        def request(kind, body):
            made.asked.append((kind, body.hex(" ")))
            return struct.pack("=BBH", 0, 21, 0) + answer(pfc(8, 8))

        monkeypatch.setattr(made._sockets, "request", request)
        yield made


@pytest.mark.skipif(sys.byteorder != "little", reason="needs a machine with the low byte first")
def test_request_bytes(dcb):
    assert dcb.dcb("rail0") == Dcb(pfc=(3,))
    assert dcb.asked == [(78, "00 15 00 00 0a 00 01 00 72 61 69 6c 30 00 00 00")]


def test_answer_of_another_device_is_rejected(dcb):
    with pytest.raises(OSError, match="of another device") as caught:
        dcb.dcb("rail1")
    assert (caught.value.errno, caught.value.filename) == (errno.ENODEV, "rail1")


def test_invalid_device_name_is_not_requested(dcb):
    with pytest.raises(OSError) as caught:
        dcb.dcb("x" * 16)
    assert (caught.value.errno, dcb.asked) == (errno.ENODEV, [])


def test_software_devices_do_not_support_dcb():
    with DcbSocket() as dcb:
        for device, number in (("lo", errno.EOPNOTSUPP), ("fabric-none", errno.ENODEV)):
            with pytest.raises(OSError, match="dcb IEEE_GET") as caught:
                dcb.dcb(device)
            assert (caught.value.errno, caught.value.filename) == (number, device)
