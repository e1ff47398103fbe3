"""LLDP frames encoded by hand after IEEE 802.1AB, networkd files, and the packet socket."""

import os
import socket
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.lldp import frames as lldp
from exporter.linux.lldp.frames import (
    Advertisement,
    LldpDecodeError,
    parse_frame,
    split_networkd_file,
)
from exporter.linux.lldp.packet_socket import LldpSocket

ETHERNET = bytes.fromhex("0180c200000eb8cef601020388cc")

SWITCH = ETHERNET + bytes.fromhex(
    "0207 04 444ca8000001"  # chassis: MAC address
    "040c 05 45746865726e6574312f31"  # port: name of the interface, Ethernet1/1
    "0602 0078"  # time to live: 120 s
    "0804 67707531"  # port description: gpu1
    "0a05 6c65616631"  # system name: leaf1
    "0c06 41726973 7461"  # system description: Arista
    "0e04 0014 0014"  # capabilities: bridge and router, both on
    "100c 05 01 c0000201 02 0000000a 00"  # management address: IPv4 192.0.2.1, interface 10, no OID
    "1018 11 02 20010db8000000000000000000000001 02 0000000a 00"  # IPv6 2001:db8::1
    "fe06 0080c2 01 000a"  # an organisation's own: VLAN 10
    "0000"
)

HOST = ETHERNET + bytes.fromhex(
    "0207 04 b8cef6010203"
    "0407 03 b8cef6010204"  # port: MAC address
    "0602 0078"
    "0e04 0080 0080"  # a station
    "0000"
)


def tlv(kind, content):
    return (kind << 9 | len(content)).to_bytes(2, "big") + content


def frame(*tlvs, mandatory=True):
    first = tlv(1, b"\x07c") + tlv(2, b"\x07p") + tlv(3, b"\x00\x78") if mandatory else b""
    return ETHERNET + first + b"".join(tlvs) + b"\0\0"


def test_frame_of_a_switch():
    assert parse_frame(SWITCH) == Advertisement(
        "44:4c:a8:00:00:01",
        "Ethernet1/1",
        120,
        "gpu1",
        "leaf1",
        "Arista",
        frozenset({"bridge", "router"}),
        ("192.0.2.1", "2001:db8::1"),
    )


def test_frame_of_nic_firmware():
    assert parse_frame(HOST) == Advertisement(
        "b8:ce:f6:01:02:03", "b8:ce:f6:01:02:04", 120, capabilities=frozenset({"station"})
    )


@pytest.mark.parametrize("padding", [b"", bytes(20), b"\xff" * 20])
def test_bytes_after_the_end_tlv_are_ignored(padding):
    assert parse_frame(HOST + padding) == parse_frame(HOST)


def test_end_tlv_is_optional():
    assert parse_frame(HOST[:-2]) == parse_frame(HOST)


@pytest.mark.parametrize(
    ("content", "chassis"),
    [
        (b"\x04" + bytes.fromhex("b8cef6010203"), "b8:ce:f6:01:02:03"),
        (b"\x04" + b"12345", "12345"),  # no MAC address
        (b"\x05\x01" + bytes([192, 0, 2, 7]), "192.0.2.7"),
        (b"\x05\x02" + bytes(15) + b"\1", "::1"),
        (b"\x07leaf 1", "leaf 1"),
        (b"\x01shelf\0", "shelf"),
        (b"\x07\xe9t\xe9", "\udce9t\udce9"),  # no UTF-8: shown as bytes where it is a label
    ],
)
def test_chassis_id_subtypes(content, chassis):
    made = ETHERNET + tlv(1, content) + tlv(2, b"\x05p") + tlv(3, b"\0\1")
    assert parse_frame(made).chassis == chassis


def test_first_of_a_repeated_tlv_is_used():
    assert parse_frame(frame(tlv(5, b"one"), tlv(5, b"two"))).name == "one"


@pytest.mark.parametrize(
    "broken",
    [tlv(7, b"\0"), tlv(8, b""), tlv(8, b"\x05\x01\xc0"), tlv(8, b"\x02\x01\x02"), tlv(127, b""), tlv(100, b"?" * 511)],
)
def test_malformed_optional_tlv_is_skipped(broken):
    found = parse_frame(frame(broken, tlv(5, b"leaf1")))
    assert (found.name, found.capabilities, found.addresses) == ("leaf1", frozenset(), ())


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (b"", "0 bytes"),
        (ETHERNET[:13], "13 bytes"),
        (ETHERNET[:12] + b"\x08\x00" + SWITCH[14:], "0x0800"),
        (ETHERNET, "does not begin"),
        (ETHERNET + b"\0\0", "does not begin"),
        (frame(tlv(5, b"x"), mandatory=False), "does not begin"),
        (ETHERNET + tlv(2, b"\x07p") + tlv(1, b"\x07c") + tlv(3, b"\0\1"), "does not begin"),
        (ETHERNET + tlv(1, b"\x07") + tlv(2, b"\x07p") + tlv(3, b"\0\1"), "empty"),
        (ETHERNET + tlv(1, b"\x07c") + tlv(2, b"\x07p") + tlv(3, b"\1"), "empty"),
        (SWITCH[:-3], "are left"),
        (HOST[:-1], "within a TLV"),
    ],
)
def test_invalid_frame_raises_with_the_reason(made, text):
    with pytest.raises(LldpDecodeError, match=text):
        parse_frame(made)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: ETHERNET + tail))
def test_arbitrary_bytes_raise_no_other_error(data):
    with suppress(LldpDecodeError):
        parse_frame(data)


@given(st.integers(14, len(SWITCH) - 1), st.integers(0, 255))
def test_corrupted_byte_raises_no_other_error(place, byte):
    with suppress(LldpDecodeError):
        parse_frame(SWITCH[:place] + bytes([byte]) + SWITCH[place + 1 :])


def networkd_file(*frames):
    return b"".join(len(one).to_bytes(8, "little") + one for one in frames)


def test_networkd_file_is_split_by_lengths():
    assert split_networkd_file(b"") == []
    assert split_networkd_file(networkd_file(SWITCH, HOST)) == [SWITCH, HOST]
    assert len(split_networkd_file(networkd_file(*[HOST] * 1000))) == lldp.MAX_FRAMES


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (networkd_file(HOST)[:-1], "are left"),
        (networkd_file(HOST) + b"\1", "within a length"),
        (b"\xff" * 8, "are left"),
        (bytes(8), "has 0 bytes"),
    ],
)
def test_truncated_networkd_file_raises_with_the_offset(content, text):
    with pytest.raises(LldpDecodeError, match=text):
        split_networkd_file(content)


@given(st.binary(max_size=100))
def test_arbitrary_networkd_file_raises_no_other_error(content):
    with suppress(LldpDecodeError):
        assert networkd_file(*split_networkd_file(content)) == content


@pytest.fixture
def pair(program):
    """Return the names of two connected veth devices."""
    ip = program("ip")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    left, right = (f"lt{end}{uuid.uuid4().hex[:8]}" for end in "ab")
    added = subprocess.run(
        [ip, "link", "add", left, "type", "veth", "peer", "name", right], capture_output=True, text=True, check=False
    )
    if added.returncode:
        pytest.skip(f"needs root that may make network devices: {added.stderr.strip()}")
    for name in (left, right):
        subprocess.run([ip, "link", "set", name, "up"], check=True)
    yield left, right
    subprocess.run([ip, "link", "del", left], check=True)


def send(device, data):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((device, 0))
        sock.send(data)


def joined(device):
    """Return whether a device joined the group, by the kernel's own list."""
    lines = Path("/proc/net/dev_mcast").read_text().splitlines()
    return any(line.split()[1] == device and line.split()[-1] == lldp.GROUP_ADDRESS.hex() for line in lines)


def test_socket_receives_incoming_frames_only(pair):
    left, right = pair
    sock = LldpSocket()
    try:
        assert sock.listen_on({socket.if_nametoindex(left): left}) == {}
        assert (joined(left), joined(right)) == (True, False)
        send(right, SWITCH)
        send(right, ETHERNET[:12] + b"\x08\x00" + bytes(50))  # something else
        send(left, HOST)
        received = {one for one in sock.receive() if one.device in pair}
        # The right device receives what the left one transmits without joining: veth devices accept all frames.
        assert (left, SWITCH) in received
        assert (left, HOST) not in received
        assert {data for _, data in received} <= {SWITCH, HOST}
        assert list(sock.receive()) == []
        sock.listen_on({})
        assert not joined(left)
    finally:
        sock.close()
    sock.close()


def test_removed_device_is_returned_as_an_error(pair):
    left, _ = pair
    sock = LldpSocket()
    try:
        failed = sock.listen_on({2**31 - 1: "gone", socket.if_nametoindex(left): left})
        assert failed.keys() == {"gone"}
        assert joined(left)
        assert sock.listen_on({}) == {}
    finally:
        sock.close()
