"""Messages against datagrams written by hand, against pyasn1/pysnmp, and against garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder as pyasn1_decoder
from pyasn1.codec.ber import encoder as pyasn1_encoder
from pysnmp.proto import rfc1902, rfc1905
from pysnmp.proto.api import v2c

from exporter.snmp import ber
from exporter.snmp.ber import (
    Typed,
    decode_oid,
    encode_oid,
    encode_tlv,
    encode_value,
)
from exporter.snmp.errors import DecodeError
from exporter.snmp.message import (
    GET,
    GETBULK,
    RESPONSE,
    V1,
    V2C,
    decode_message,
    encode_message,
    encode_pdu,
    encode_varbind,
    status_name,
)

SYS_UP_TIME = (1, 3, 6, 1, 2, 1, 1, 3, 0)
IF_HC_IN = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)


def response(*varbinds, request_id=7):
    return encode_message(V2C, b"public", encode_pdu(RESPONSE, request_id, 0, 0, varbinds))


def variable(oid, tag, value):
    return encode_varbind(encode_oid(oid), encode_value(tag, value))


def test_get_by_hand():
    # SEQUENCE { version 1, "public", GetRequest { id 1, 0, 0, { { sysUpTime.0, NULL } } } }
    by_hand = bytes.fromhex(
        "3026 020101 04067075626c6963 a019 020101 020100 020100 300e 300c 06082b06010201010300 0500"
    )
    assert (
        encode_message(V2C, b"public", encode_pdu(GET, 1, 0, 0, [encode_varbind(encode_oid(SYS_UP_TIME))])) == by_hand
    )
    message = decode_message(by_hand)
    assert (message.version, message.community) == (V2C, b"public")
    assert message.pdu == (GET, 1, 0, 0, [(encode_oid(SYS_UP_TIME), ber.NULL, None)])


def test_getbulk_carries_repetitions_where_others_have_the_error_index():
    by_hand = bytes.fromhex("3025 020101 04067075626c6963 a518 02020100 020100 020128 300c 300a 06062b0601020103 0500")
    varbind = encode_varbind(encode_oid((1, 3, 6, 1, 2, 1, 3)))
    assert encode_message(V2C, b"public", encode_pdu(GETBULK, 256, 0, 40, [varbind])) == by_hand
    assert decode_message(by_hand).pdu[:4] == (GETBULK, 256, 0, 40)


def test_version_1_with_an_error():
    by_hand = bytes.fromhex(
        "3026 020100 04067075626c6963 a219 020105 020102 020101 300e 300c 06082b06010201010300 0500"
    )
    message = decode_message(by_hand)
    assert message.version == V1
    assert message.pdu[:4] == (RESPONSE, 5, 2, 1)
    assert status_name(2) == "noSuchName"
    assert status_name(99) == "error-status 99"


def test_response_by_hand_keeps_types():
    rows = bytes.fromhex(
        "3013 060b2b060102011f0101010601 4604 ffffffff"  # a Counter64 of four bytes with the top bit set
        "3010 060b2b060102011f0101010f01 4201 05"
        "300f 060b2b060102011f0101010101 0400"
        "3010 060a2b06010201020201 0801 0202ff7f"
    )
    with pytest.raises(DecodeError):  # half a header behind the last row
        decode_message(response(rows + b"\x30"))
    pdu = decode_message(response(rows)).pdu
    assert [(tag, value) for _, tag, value in pdu.varbinds] == [
        (ber.COUNTER64, 2**32 - 1),
        (ber.GAUGE32, 5),
        (ber.OCTET_STRING, b""),
        (ber.INTEGER, -129),
    ]


GOOD = variable((*IF_HC_IN, 1), ber.COUNTER64, 5)
LAST = variable((*IF_HC_IN, 3), ber.COUNTER64, 2**64 - 1)
NAME = encode_oid((*IF_HC_IN, 2))


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (encode_varbind(NAME, bytes.fromhex("4600")), NAME),  # no content
        (encode_varbind(NAME, bytes.fromhex("460a01000000000000000000")), NAME),  # above 2^64 - 1
        (encode_varbind(NAME, bytes.fromhex("9901ff")), NAME),  # an unknown type
        (encode_varbind(NAME, bytes.fromhex("0480")), NAME),  # indefinite
        (encode_varbind(NAME, bytes.fromhex("047f41")), NAME),  # longer than the variable
        (encode_varbind(NAME, b""), NAME),
        (encode_varbind(NAME + b"\x81", bytes.fromhex("460101")), b""),  # a name that ends inside a number
        (encode_tlv(0x31, NAME), b""),
        (encode_tlv(0x30, bytes.fromhex("020101 460101")), b""),
        (encode_tlv(0x30, b"\x06"), b""),
        (b"\x30\x00", b""),
    ],
)
def test_a_malformed_variable_affects_only_itself(bad, name):
    varbinds = decode_message(response(GOOD, bad, LAST)).pdu.varbinds
    assert varbinds[1] == (name, ber.MALFORMED, None)
    assert [varbinds[0][2], varbinds[2][2]] == [5, 2**64 - 1]
    assert decode_message(response(GOOD, bad)).pdu.varbinds[1] == (name, ber.MALFORMED, None)


def test_an_empty_identifier_is_accepted_as_name_and_as_value():
    pdu = decode_message(response(encode_varbind(b"", b"\x02\x01\x05"), encode_varbind(NAME, b"\x06\x00"))).pdu
    assert pdu.varbinds == [(b"", ber.INTEGER, 5), (NAME, ber.OBJECT_IDENTIFIER, ())]


def test_long_form_lengths_are_accepted_everywhere():
    padded = encode_tlv(0x30, b"\x06\x82\x00" + bytes((len(NAME),)) + NAME + bytes.fromhex("46840000000201ff"))
    long = variable((*IF_HC_IN, 3), ber.OCTET_STRING, b"y" * 700)
    varbinds = decode_message(response(padded, long)).pdu.varbinds
    assert varbinds[0] == (NAME, ber.COUNTER64, 511)
    assert varbinds[1][2] == b"y" * 700


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "0 bytes are left"),
        (b"GET / HTTP/1.1\r\n\r\n", "begins with a SEQUENCE|announced"),
        (bytes.fromhex("3080020101"), "indefinite"),
        (bytes.fromhex("3003020103"), "version 3"),
        (bytes.fromhex("3003020101"), "0 bytes are left"),
        (bytes.fromhex("3008020101 0201 05 a200"), "community"),
        (bytes.fromhex("3007020101 0400 ae00"), "PDU type 0xae"),
        (bytes.fromhex("3007020101 0400 a200"), "0 bytes are left"),
        (response(GOOD)[:-1], "announced"),
    ],
)
def test_datagrams_that_are_not_a_message_are_rejected(data, what):
    with pytest.raises(DecodeError, match=what):
        decode_message(data)


def test_nesting_is_not_followed():
    deep = b"\x05\x00"
    for _ in range(5000):
        deep = encode_tlv(0x30, deep)
    assert decode_message(response(encode_varbind(NAME, deep))).pdu.varbinds == [(NAME, ber.MALFORMED, None)]
    with pytest.raises(DecodeError):
        decode_message(deep)


VALUES = st.one_of(
    st.builds(Typed, st.just(ber.INTEGER), st.integers(-(2**31), 2**31 - 1)),
    st.builds(Typed, st.sampled_from([ber.COUNTER32, ber.GAUGE32, ber.TIME_TICKS]), st.integers(0, 2**32 - 1)),
    st.builds(Typed, st.just(ber.COUNTER64), st.integers(0, 2**64 - 1)),
    st.builds(Typed, st.sampled_from([ber.OCTET_STRING, ber.OPAQUE]), st.binary(max_size=300)),
    st.builds(Typed, st.just(ber.IP_ADDRESS), st.binary(min_size=4, max_size=4)),
    st.builds(Typed, st.just(ber.OBJECT_IDENTIFIER), st.just((1, 3, 6, 1, 4, 1, 30065, 1))),
    st.builds(Typed, st.sampled_from(sorted(ber.VALUELESS)), st.none()),
)
NAMES = st.lists(st.integers(0, 2**32 - 1), max_size=20).map(lambda tail: (1, 3, 6, 1, *tail))
ROWS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@given(ROWS, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40))
def test_messages_round_trip(rows, request_id, community):
    pdu = encode_pdu(RESPONSE, request_id, 0, 0, [variable(oid, *value) for oid, value in rows])
    message = decode_message(encode_message(V2C, community, pdu))
    assert message.community == community
    assert message.pdu.request_id == request_id
    assert [(decode_oid(oid), (tag, value)) for oid, tag, value in message.pdu.varbinds] == rows


_PYSNMP = {
    ber.INTEGER: rfc1902.Integer32,
    ber.COUNTER32: rfc1902.Counter32,
    ber.GAUGE32: rfc1902.Gauge32,
    ber.TIME_TICKS: rfc1902.TimeTicks,
    ber.COUNTER64: rfc1902.Counter64,
    ber.OCTET_STRING: rfc1902.OctetString,
    ber.OPAQUE: rfc1902.Opaque,
    ber.IP_ADDRESS: rfc1902.IpAddress,
    ber.OBJECT_IDENTIFIER: rfc1902.ObjectIdentifier,
}
_PYSNMP_VALUELESS = {
    ber.NULL: v2c.Null(""),
    ber.NO_SUCH_OBJECT: rfc1905.noSuchObject,
    ber.NO_SUCH_INSTANCE: rfc1905.noSuchInstance,
    ber.END_OF_MIB_VIEW: rfc1905.endOfMibView,
}


def _with_pysnmp(rows):
    pdu = v2c.ResponsePDU()
    v2c.apiPDU.set_defaults(pdu)
    v2c.apiPDU.set_request_id(pdu, 77)
    values = [
        (oid, _PYSNMP_VALUELESS[tag] if tag in _PYSNMP_VALUELESS else _PYSNMP[tag](value)) for oid, (tag, value) in rows
    ]
    v2c.apiPDU.set_varbinds(pdu, values)
    message = v2c.Message()
    v2c.apiMessage.set_defaults(message)
    v2c.apiMessage.set_community(message, b"public")
    v2c.apiMessage.set_pdu(message, pdu)
    return message


@given(ROWS)
def test_messages_are_interoperable_with_pysnmp(rows):
    theirs = pyasn1_encoder.encode(_with_pysnmp(rows))
    read = decode_message(theirs).pdu
    assert [(decode_oid(oid), (tag, value)) for oid, tag, value in read.varbinds] == rows

    ours = response(*(variable(oid, *value) for oid, value in rows), request_id=77)
    message, rest = pyasn1_decoder.decode(ours, asn1Spec=v2c.Message())
    assert not rest
    seen = v2c.apiPDU.get_varbinds(v2c.apiMessage.get_pdu(message))
    expected = v2c.apiPDU.get_varbinds(v2c.apiMessage.get_pdu(_with_pysnmp(rows)))
    assert [(tuple(oid), value) for oid, value in seen] == [(tuple(oid), value) for oid, value in expected]


@pytest.mark.parametrize("size", range(110, 140))
def test_lengths_of_a_variable_are_in_one_byte_as_long_as_they_can_be(size):
    name, value = bytes(size // 2), encode_tlv(ber.OCTET_STRING, bytes(size - size // 2))
    made = encode_varbind(name, value)
    assert made == encode_tlv(ber.SEQUENCE, encode_tlv(ber.OBJECT_IDENTIFIER, name) + value)


@given(st.binary(max_size=400))
def test_random_bytes_raise_decode_error(data):
    with pytest.raises(DecodeError):
        decode_message(data)


@given(ROWS, st.data())
def test_a_corrupted_message_decodes_or_raises_decode_error(rows, data):
    raw = bytearray(response(*(variable(oid, *value) for oid, value in rows)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for datagram in (bytes(raw), bytes(raw[:cut])):
        try:
            message = decode_message(datagram)
        except DecodeError:
            continue
        # Each variable took at least two bytes, so a datagram bounds the work; each name that is there can be decoded.
        assert len(message.pdu.varbinds) <= len(datagram) // 2
        for oid, tag, value in message.pdu.varbinds:
            decode_oid(oid)
            assert tag in ber.TAG_NAMES
            assert (value is None) == (tag in ber.VALUELESS or tag == ber.MALFORMED)
