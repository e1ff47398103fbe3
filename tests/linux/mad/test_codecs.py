"""MAD codecs: bytes by hand from the layouts of the specification, and comparison with the decoder of libibmad."""

import ctypes
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.linux.mad import performance
from exporter.linux.mad import subnet as mad_subnet
from exporter.linux.mad.datagram import (
    MAD_SIZE,
    MAX_HOPS,
    PERMISSIVE_LID,
    Attribute,
    MadClass,
    Problem,
    Request,
    Route,
    decode,
    encode,
    result_of,
)

DATA = st.binary(min_size=192, max_size=192)
"""Any content of an attribute; attributes of subnet management use the first 64 bytes."""


AT_7 = Route(7)


def nothing(_tag, _answer):
    """Take an answer."""


def request(attribute, route=AT_7, **more):
    return Request("a", route, attribute, nothing, **more)


# --- requests: bytes by hand


def test_a_directed_route_request_has_header_m_key_and_initial_path_of_the_specification():
    request_ = request(Attribute.PORT_INFO, Route(PERMISSIVE_LID, bytes([1, 20, 3])), modifier=36)
    found = encode(request_, 0x01020304, m_key=0x1122334455667788)
    assert found[:24] == bytes.fromhex("018101010000000300000000010203040015000000000024")
    assert found[24:32] == bytes.fromhex("1122334455667788")
    assert found[32:36] == b"\xff\xff\xff\xff"  # both LIDs are permissive
    assert found[128:133] == bytes([0, 1, 20, 3, 0])  # the first hop is at 1
    assert not any(found[36:128])
    assert not any(found[132:])
    assert len(found) == MAD_SIZE == 256


def test_a_lid_routed_request_has_the_lid_routed_class_and_no_path():
    found = encode(request(Attribute.NODE_INFO), 5, m_key=9)
    assert found[:24] == bytes.fromhex("010101010000000000000000000000050011000000000000")
    assert found[24:32] == bytes.fromhex("0000000000000009")
    assert not any(found[32:])


def test_a_counter_request_has_port_select_and_no_m_key():
    found = encode(request(Attribute.PORT_COUNTERS_EXTENDED, port=33), 5, m_key=9)
    assert found[:24] == bytes.fromhex("01040101000000000000000000000005001d000000000000")
    assert found[65] == 33
    assert not any(found[24:65])
    assert not any(found[66:])


@pytest.mark.parametrize("attribute", Attribute)
@pytest.mark.parametrize("route", [Route(7), Route(PERMISSIVE_LID, b""), Route(PERMISSIVE_LID, b"\1\2")])
def test_every_request_is_a_get(attribute, route):
    assert encode(request(attribute, route), 1)[3] == 0x01


def test_a_directed_route_has_at_most_63_hops():
    assert encode(request(Attribute.NODE_INFO, Route(PERMISSIVE_LID, bytes(range(1, 64)))), 1)[129:192] == bytes(
        range(1, 64)
    )
    with pytest.raises(ValueError, match="64 links; the maximum is 63"):
        encode(request(Attribute.NODE_INFO, Route(PERMISSIVE_LID, bytes(MAX_HOPS + 1))), 1)


# --- replies


def replied(request_, data=b"", *, status=0, method=0x81, **changes):
    """Return the reply of a node to a request, with some bytes replaced, by offset."""
    found = bytearray(encode(request_, 0x0BADCAFE))
    found[3] = method
    struct.pack_into(">H", found, 4, status | (0x8000 if request_.mad_class is MadClass.DIRECTED_ROUTE else 0))
    found[64 : 64 + len(data)] = data
    for place, value in changes.items():
        found[int(place[1:])] = value
    return bytes(found)


BY_ROUTE = request(Attribute.NODE_INFO, Route(PERMISSIVE_LID, b"\1"))
BY_LID = request(Attribute.PORT_COUNTERS, port=1)


@pytest.mark.parametrize("request_", [BY_ROUTE, BY_LID])
def test_a_reply_with_status_0_gives_the_attribute(request_):
    reply = decode(replied(request_, b"abc"))
    assert reply.transaction == 0x0BADCAFE
    assert result_of(request_, reply)[:64] == b"abc" + bytes(61)


def test_the_upper_half_of_the_transaction_id_is_ignored():
    datagram = bytearray(replied(BY_LID))
    datagram[8:12] = b"\x12\x34\x56\x78"
    assert decode(bytes(datagram)).transaction == 0x0BADCAFE


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (0x0001, Problem.BUSY),
        (0x0003, Problem.BUSY),
        (0x0002, Problem.REFUSED),  # redirected
        (0x0004, Problem.UNSUPPORTED),  # class or version
        (0x0008, Problem.UNSUPPORTED),  # method
        (0x000C, Problem.UNSUPPORTED),  # method and attribute
        (0x001C, Problem.REFUSED),  # a field has an invalid value
        (0x0100, Problem.REFUSED),  # of the class
    ],
)
@pytest.mark.parametrize("request_", [BY_ROUTE, BY_LID])
def test_each_status_gives_its_problem(request_, status, problem):
    assert result_of(request_, decode(replied(request_, status=status))) is problem


@pytest.mark.parametrize(
    "datagram",
    [
        replied(BY_LID, _17=0x13),  # another attribute
        replied(BY_LID, _1=0x01),  # another class
        replied(BY_LID, method=0x01),  # a Get
        replied(BY_LID, method=0x05),  # a trap
    ],
)
def test_a_reply_to_something_else_is_malformed(datagram):
    assert result_of(BY_LID, decode(datagram)) is Problem.MALFORMED


@given(st.binary(max_size=300))
def test_any_datagram_is_decoded_or_ignored(datagram):
    reply = decode(datagram)
    assert (reply is None) == (len(datagram) < MAD_SIZE or datagram[0] != 1)
    if reply is not None:
        answer = result_of(BY_LID, reply)
        assert isinstance(answer, Problem) or len(answer) >= 192


# --- attributes by hand, which libibmad does not know or names differently


def port_info(**places):
    data = bytearray(64)
    for place, value in places.items():
        data[int(place[1:])] = value
    return mad_subnet.parse_port_info(bytes(data))


EXTENDED = {"_22": 0x40}
"""Bit 14 of the capability mask: there are extended speeds."""


@pytest.mark.parametrize(
    ("places", "lanes", "generation", "gbits"),
    [
        ({"_31": 2, "_35": 0x10}, 4, "SDR", 10),
        ({"_31": 1, "_35": 0x20}, 1, "DDR", 5),
        ({"_31": 8, "_35": 0x40}, 12, "QDR", 120),
        ({"_31": 2, "_35": 0x40, "_62": 0x10, **EXTENDED}, 4, "FDR", 56),
        ({"_31": 2, "_35": 0x40, "_62": 0x20, **EXTENDED}, 4, "EDR", 100),
        ({"_31": 16, "_35": 0x40, "_62": 0x40, **EXTENDED}, 2, "HDR", 100),  # HDR100
        ({"_31": 2, "_35": 0x40, "_62": 0x40, **EXTENDED}, 4, "HDR", 200),
        ({"_31": 16, "_35": 0x40, "_62": 0x80, **EXTENDED}, 2, "NDR", 200),
        ({"_31": 2, "_35": 0x40, "_62": 0x80, **EXTENDED}, 4, "NDR", 400),
        ({"_31": 2, "_35": 0x40, "_56": 0x20, **EXTENDED}, 4, "XDR", 800),
        ({"_31": 4, "_35": 0x40, "_56": 0x20, **EXTENDED}, 8, "XDR", 1600),
        ({"_31": 2, "_35": 0x40, "_62": 0x80, "_56": 0x20}, 4, "QDR", 40),  # reserved without extended speeds
        ({"_31": 2, "_35": 0xF0}, 4, None, None),
        ({"_31": 3, "_35": 0x40}, None, "QDR", None),
        ({}, None, None, None),
    ],
)
def test_width_and_speed_of_a_link(places, lanes, generation, gbits):
    found = port_info(**places)
    assert (found.lanes, found.generation) == (lanes, generation)
    assert mad_subnet.link_speed(found.generation, found.lanes) == (None if gbits is None else gbits * 1e9 / 8)


def test_supported_widths_and_speeds_are_the_bits_of_the_masks():
    found = port_info(_30=0x1F, _32=0x70, _56=0x08, _62=0x0F, **EXTENDED)
    assert found.lanes_supported == {1, 2, 4, 8, 12}
    assert found.generations_supported == {"SDR", "DDR", "QDR", "FDR", "EDR", "HDR", "NDR", "XDR"}
    assert mad_subnet.fastest_generation(found.generations_supported) == "XDR"
    assert mad_subnet.fastest_generation(frozenset({"FDR10", "QDR"})) == "FDR10"
    assert mad_subnet.fastest_generation(frozenset()) is None
    assert port_info(_30=0x12, _32=0x10).generations_supported == {"SDR"}
    assert port_info(_30=0x12).lanes_supported == {4, 2}


def test_capability_mask_2_is_used_only_if_it_is_valid():
    assert port_info(_22=0x80, _60=0x12, _61=0x34).capabilities_2 == 0x1234
    assert port_info(_60=0x12, _61=0x34).capabilities_2 == 0


@pytest.mark.parametrize(
    ("state", "physical", "trained"),
    [(1, 2, False), (1, 4, False), (1, 5, True), (2, 0, True), (4, 5, True), (0, 0, False)],
)
def test_a_port_is_trained_when_its_link_is_up_whatever_its_logical_state(state, physical, trained):
    assert port_info(_32=state, _33=physical << 4).is_trained is trained


def test_fdr10_is_parsed_from_the_vendor_attribute():
    data = bytearray(64)
    assert mad_subnet.parse_vendor_port_info(bytes(data)) == (False, False)
    data[7] = 1
    assert mad_subnet.parse_vendor_port_info(bytes(data)) == (True, False)
    data[15] = 1
    assert mad_subnet.parse_vendor_port_info(bytes(data)) == (True, True)


def test_sm_info_by_hand():
    data = struct.pack(">QQIB", 0x0002C90300A1B2C3, 0, 123456, 0xE3) + bytes(43)
    assert mad_subnet.parse_sm_info(data) == (0x0002C90300A1B2C3, 123456, 14, 3)


def test_enhanced_port_0_of_switch_info():
    data = bytearray(64)
    assert mad_subnet.has_enhanced_port_0(bytes(data)) is False
    data[16] = 0x08
    assert mad_subnet.has_enhanced_port_0(bytes(data)) is True


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"leaf-01\0rest", "leaf-01"),
        (b"  MF0;leaf-01:MSB7800/U1   \0", "MF0;leaf-01:MSB7800/U1"),
        (b"Quantum  Mellanox\tTechnologies", "Quantum Mellanox Technologies"),
        (b"x" * 64 + b"y", "x" * 64),
        (b"", ""),
        (b"\xff\xfe", "\udcff\udcfe"),
    ],
)
def test_white_space_and_padding_of_a_description_are_removed(raw, text):
    assert mad_subnet.parse_node_description(raw.ljust(192, b"\0")[:192] if len(raw) < 64 else raw) == text


# --- comparison with libibmad


def number(text):
    """Parse a printed number; return other text unchanged."""
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdecimal() else text


@pytest.fixture(scope="session")
def libibmad():
    """Return a function that decodes bytes with libibmad: {name: value}."""
    try:
        library = ctypes.CDLL("libibmad.so.5")
    except OSError:
        pytest.skip("needs libibmad")

    def read(attribute, data):
        text = ctypes.create_string_buffer(1 << 15)
        getattr(library, f"mad_dump_{attribute}")(
            text, len(text), ctypes.create_string_buffer(data, len(data)), len(data)
        )
        lines = re.findall(r"^(\w+):\.*(.*)$", text.value.decode("latin-1"), re.MULTILINE)
        return {name: number(value) for name, value in lines}

    return read


ERROR_NAMES = (
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "PortRcvSwitchRelayErrors",
    "PortXmitDiscards",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "VL15Dropped",
    "PortXmitWait",
)
"""Names in libibmad, in the order of performance.ERROR_COUNTERS."""

TRAFFIC_NAMES = (
    "PortXmitData",
    "PortRcvData",
    "PortXmitPkts",
    "PortRcvPkts",
    "PortUnicastXmitPkts",
    "PortUnicastRcvPkts",
    "PortMulticastXmitPkts",
    "PortMulticastRcvPkts",
)


def named(expected, names):
    return tuple(expected[name] for name in names)


@given(DATA)
def test_node_info_matches_libibmad(libibmad, data):
    expected, found = libibmad("nodeinfo", data), mad_subnet.parse_node_info(data)
    names = ("NumPorts", "SystemGuid", "Guid", "PortGuid", "DevId", "Revision", "LocalPort", "VendorId")
    assert found[1:] == named(expected, names)
    assert found.node_type == data[2]


@given(DATA)
def test_port_info_matches_libibmad(libibmad, data):
    expected, found = libibmad("portinfo", data[:64]), mad_subnet.parse_port_info(data)
    numbers = (found.lid, found.sm_lid, found.gid_prefix, found.capabilities, found.m_key_protect)
    assert numbers == named(expected, ("Lid", "SMLid", "GidPrefix", "CapMask", "ProtectBits"))
    assert found.capabilities_2 == (expected["CapabilityMask2"] if found.capabilities & 1 << 15 else 0)
    states = {0: "NoChange", 1: "Down", 2: "Initialize", 3: "Armed", 4: "Active"}
    assert expected["LinkState"] == states.get(found.state, f"?({found.state})")
    physical = ("NoChange", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery")
    names = dict(enumerate((*physical, "PhyTest")))
    assert expected["PhysLinkState"] == names.get(found.physical_state, f"?({found.physical_state})")


SPEED_NAMES = {"SDR": "2.5 Gbps", "DDR": "5.0 Gbps", "QDR": "10.0 Gbps"}
EXTENDED_NAMES = {"FDR": "14.0625 Gbps", "EDR": "25.78125 Gbps", "HDR": "53.125 Gbps", "NDR": "106.25 Gbps"}


def among(text, names):
    """Return the keys of the names in a list such as `2.5 Gbps or 5.0 Gbps`."""
    words = set(str(text).removesuffix(" (IBA extension)").split(" or "))
    return {key for key, name in names.items() if name in words}


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 31), st.integers(1, 7), st.sampled_from([1, 2, 4]))
def test_width_and_speeds_match_libibmad(libibmad, width, widths, speeds, speed):
    data = bytearray(64)
    data[30], data[31], data[32], data[35] = widths, width, speeds << 4, speed << 4
    expected, found = libibmad("portinfo", bytes(data)), mad_subnet.parse_port_info(bytes(data))
    lanes = {1: "1X", 2: "2X", 4: "4X", 8: "8X", 12: "12X"}
    assert lanes[found.lanes] == expected["LinkWidthActive"]
    assert found.lanes_supported == among(expected["LinkWidthSupported"], lanes)
    assert SPEED_NAMES[found.generation] == expected["LinkSpeedActive"]
    assert found.generations_supported == among(expected["LinkSpeedSupported"], SPEED_NAMES)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 15))
def test_extended_speeds_match_libibmad(libibmad, active, supported):
    data = bytearray(64)
    data[22], data[62] = 0x40, active << 4 | supported
    expected, found = libibmad("portinfo", bytes(data)), mad_subnet.parse_port_info(bytes(data))
    assert EXTENDED_NAMES[found.generation] == expected["LinkSpeedExtActive"]
    assert found.generations_supported == among(expected["LinkSpeedExtSupported"], EXTENDED_NAMES)


@given(DATA)
def test_switch_info_matches_libibmad(libibmad, data):
    expected, found = libibmad("switchinfo", data[:64]), mad_subnet.has_enhanced_port_0(data)
    assert found == bool(expected["EnhancedPort0"])


@given(DATA)
def test_fec_mode_matches_libibmad(libibmad, data):
    expected = libibmad("portinfo_ext", data[:64])
    assert mad_subnet.parse_fec_mode(data) == (expected["FECModeActive"] if expected["CapMask"] & 1 else None)


@given(DATA)
def test_fdr10_matches_libibmad(libibmad, data):
    expected = libibmad("mlnx_ext_port_info", data[:64])
    assert mad_subnet.parse_vendor_port_info(data) == (
        bool(expected["LinkSpeedSupported"] & 1),
        bool(expected["LinkSpeedActive"] & 1),
    )


@given(DATA)
def test_class_port_info_matches_libibmad(libibmad, data):
    expected = libibmad("classportinfo", data)
    assert performance.parse_class_port_info(data) == named(expected, ("CapabilityMask", "CapabilityMask2"))


@given(DATA)
def test_port_counters_match_libibmad(libibmad, data):
    expected = libibmad("perfcounters", data)
    port, errors, traffic = performance.parse_port_counters(data)
    assert port == expected["PortSelect"]
    assert dict(zip(ERROR_NAMES, errors, strict=True)) == {name: expected[name] for name in ERROR_NAMES}
    assert traffic == named(expected, TRAFFIC_NAMES[:4])


@given(DATA)
def test_port_counters_extended_match_libibmad(libibmad, data):
    expected = libibmad("perfcounters_ext", data)
    assert performance.parse_port_counters_extended(data) == (expected["PortSelect"], named(expected, TRAFFIC_NAMES))
    errors = performance.parse_extended_errors(data)
    assert dict(zip(ERROR_NAMES, errors, strict=True)) == {name: expected[name] for name in ERROR_NAMES}


@given(DATA)
def test_error_and_discard_details_match_libibmad(libibmad, data):
    receive_errors = ("LocalPhysical", "MalformedPkt", "BufferOverrun", "DLIDMapping", "VLMapping", "Looping")
    expected = libibmad("perfcounters_rcv_err", data)
    assert performance.parse_receive_error_details(data) == named(
        expected, [f"Port{name}Errors" for name in receive_errors]
    )
    discards = ("Inactive", "NeighborMTU", "SwLifetimeLimit", "SwHOQLifetimeLimit")
    expected = libibmad("perfcounters_xmt_disc", data)
    assert performance.parse_discard_details(data) == named(expected, [f"Port{name}Discards" for name in discards])


@given(DATA)
def test_data_by_service_level_matches_libibmad(libibmad, data):
    found = performance.parse_data_by_sl(data)
    assert found == named(libibmad("perfcounters_xmt_sl", data), [f"XmtDataSL{level}" for level in range(16)])
    assert found == named(libibmad("perfcounters_rcv_sl", data), [f"RcvDataSL{level}" for level in range(16)])


@given(DATA)
def test_fec_blocks_match_libibmad(libibmad, data):
    expected = libibmad("port_ext_speeds_counters", data)
    by_lane = [
        sum(expected[f"FEC{kind}BlockCtrLane{lane}"] for lane in range(12)) for kind in ("Correctable", "Uncorrectable")
    ]
    assert performance.parse_fec_blocks(data, rs_fec=False) == tuple(by_lane)
    expected = libibmad("port_ext_speeds_counters_rsfec_active", data)
    names = ("PortFECCorrectableBlockCtr", "PortFECUncorrectableBlockCtr")
    assert performance.parse_fec_blocks(data, rs_fec=True) == named(expected, names)


# --- the encoded header, decoded by `mad_get_field` of libibmad with the numbers of its enumeration


@settings(max_examples=30)
@given(st.sampled_from(list(Attribute)), st.binary(max_size=MAX_HOPS), st.integers(1, 0xFFFFFFFF), st.integers(0, 255))
def test_the_encoded_header_matches_libibmad(libibmad, attribute, path, transaction, number):
    library = ctypes.CDLL("libibmad.so.5")
    library.mad_field_name.restype = ctypes.c_char_p
    library.mad_get_field64.restype = ctypes.c_uint64
    names = {library.mad_field_name(field): field for field in range(1, 45)}
    route = Route(7) if attribute.performance else Route(PERMISSIVE_LID, path)
    request_ = request(attribute, route, modifier=0 if attribute.performance else number, port=number)
    datagram = ctypes.create_string_buffer(encode(request_, transaction, m_key=1 << 63 | 5), MAD_SIZE)

    def field(name):
        return library.mad_get_field(datagram, 0, names[name]) & 0xFFFFFFFF

    assert (field(b"MadMethod"), field(b"MadClassVersion"), field(b"MadBaseVersion")) == (1, 1, 1)
    assert field(b"MadMgmtClass") == request_.mad_class
    assert field(b"MadAttr") == attribute.number
    assert field(b"MadModifier") == request_.modifier
    assert library.mad_get_field64(datagram, 0, names[b"MadTRID"]) == transaction
    if not attribute.performance:
        assert (field(b"DrSmpHopCnt"), field(b"DrSmpHopPtr")) == (len(path), 0)
        assert (field(b"DrSmpDLID"), field(b"DrSmpSLID")) == (0xFFFF, 0xFFFF)
        assert library.mad_get_field64(datagram, 0, names[b"MadMkey"]) == 1 << 63 | 5
