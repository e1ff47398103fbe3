"""BER against vectors written by hand from X.690 and RFC 3416, and what sloppy agents send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.snmp import ber
from exporter.snmp.errors import DecodeError

OIDS = st.one_of(
    st.just(()),
    st.builds(
        lambda first, second, rest: (first, second, *rest),
        st.integers(0, 1),
        st.integers(0, 39),
        st.lists(st.integers(0, 2**32 - 1), max_size=12),
    ),
    st.builds(lambda second, rest: (2, second, *rest), st.integers(0, 5000), st.lists(st.integers(0, 300), max_size=5)),
)


@pytest.mark.parametrize(
    ("oid", "encoded"),
    [
        ((1, 3, 6, 1, 2, 1, 1, 3, 0), "2b06010201010300"),
        ((1, 3, 6, 1, 4, 1, 33049), "2b0601040182821 9".replace(" ", "")),
        ((2, 999, 3), "883703"),  # X.690, 8.19.5
        ((0, 0), "00"),
        ((1, 3, 127, 128, 16383, 16384), "2b7f8100ff7f818000"),
        ((1, 3, 4294967295), "2b8fffffff7f"),
        ((), ""),
    ],
)
def test_object_identifiers_by_hand(oid, encoded):
    assert ber.encode_oid(oid).hex() == encoded
    assert ber.decode_oid(bytes.fromhex(encoded)) == oid


def test_padded_subidentifiers_are_accepted():
    assert ber.decode_oid(bytes.fromhex("2b800501")) == (1, 3, 5, 1)


def test_identifiers_above_the_maximum_length_are_rejected():
    longest = b"\x2b" + b"\x83\xff\xff\xff\x7f" * 127
    assert len(ber.decode_oid(longest)) == 129
    for content in (b"\x2b" + b"\x01" * 60_000, b"\x2b" + b"\xff" * 60_000 + b"\x01"):  # many numbers, a giant one
        with pytest.raises(DecodeError, match=r"identifier of 6000\d bytes"):
            ber.decode_oid(content)


def test_a_truncated_subidentifier_is_rejected():
    with pytest.raises(DecodeError, match="ends inside a number"):
        ber.decode_oid(bytes.fromhex("2b0681"))


@pytest.mark.parametrize("oid", [(1,), (3, 1), (1, 40), (1, 3, -1), (1, 3, 2**32)])
def test_identifiers_that_cannot_be_encoded(oid):
    with pytest.raises(ValueError):
        ber.encode_oid(oid)


@pytest.mark.parametrize(
    ("tag", "value", "encoded"),
    [
        (ber.INTEGER, 0, "020100"),
        (ber.INTEGER, 127, "02017f"),
        (ber.INTEGER, 128, "02020080"),
        (ber.INTEGER, -128, "020180"),
        (ber.INTEGER, -129, "0202ff7f"),
        (ber.INTEGER, -(2**31), "020480000000"),
        (ber.COUNTER32, 2**32 - 1, "410500ffffffff"),
        (ber.GAUGE32, 400000, "4203061a80"),
        (ber.TIME_TICKS, 0, "430100"),
        (ber.COUNTER64, 2**53 + 1, "460720000000000001"),
        (ber.COUNTER64, 2**64 - 1, "460900ffffffffffffffff"),
        (ber.OCTET_STRING, b"Eth1/1", "0406457468312f31"),
        (ber.OCTET_STRING, b"", "0400"),
        (ber.OCTET_STRING, b"x" * 200, "0481c8" + "78" * 200),
        (ber.OCTET_STRING, b"x" * 300, "0482012c" + "78" * 300),
        (ber.OBJECT_IDENTIFIER, (1, 3, 6), "06022b06"),
        (ber.IP_ADDRESS, b"\xc0\x00\x02\x01", "4004c0000201"),
        (ber.OPAQUE, b"\x9f\x78\x04\x3f\x80\x00\x00", "44079f78043f800000"),
        (ber.NULL, None, "0500"),
        (ber.NO_SUCH_OBJECT, None, "8000"),
        (ber.NO_SUCH_INSTANCE, None, "8100"),
        (ber.END_OF_MIB_VIEW, None, "8200"),
    ],
)
def test_values_by_hand(tag, value, encoded):
    data = bytes.fromhex(encoded)
    assert ber.encode_value(tag, value) == data
    read, start, end = ber.read_header(data, 0, len(data))
    assert (read, end) == (tag, len(data))
    assert ber.decode_value(tag, data[start:end]) == value


@pytest.mark.parametrize(
    ("tag", "content", "value"),
    [
        (ber.COUNTER64, "ffffffffffdf001c", 18446744073707388956),  # eight bytes with the top bit set
        (ber.COUNTER64, "00ffffffffffdf001c", 18446744073707388956),
        (ber.COUNTER64, "000000000000000000000005", 5),
        (ber.COUNTER32, "fffffffe", 4294967294),
        (ber.COUNTER32, "c8", 200),  # the leading zero left out: a small number, not a giant one
        (ber.GAUGE32, "0000000000000001", 1),
        (ber.INTEGER, "00000000000000ff", 255),
        (ber.INTEGER, "ffffffff", -1),
        (ber.UINTEGER32, "07", 7),
    ],
)
def test_numbers_with_invalid_padding_are_accepted(tag, content, value):
    assert ber.decode_value(tag, bytes.fromhex(content)) == value


@pytest.mark.parametrize(
    ("tag", "content"),
    [
        (ber.COUNTER32, ""),
        (ber.COUNTER32, "0100000000"),
        (ber.COUNTER64, "01ffffffffffffffff"),
        (ber.INTEGER, ""),
        (ber.INTEGER, "000000000000000001"),
        (ber.IP_ADDRESS, "c00002"),
        (ber.OBJECT_IDENTIFIER, "2b81"),
        (0x45, "00"),
    ],
)
def test_invalid_values_are_rejected(tag, content):
    with pytest.raises(DecodeError):
        ber.decode_value(tag, bytes.fromhex(content))


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (ber.COUNTER32, 2**32),
        (ber.COUNTER64, 2**64),
        (ber.COUNTER64, -1),
        (ber.INTEGER, 2**63),
        (ber.IP_ADDRESS, b"abc"),
        (ber.OCTET_STRING, 5),
        (ber.NULL, 0),
        (ber.MALFORMED, None),
    ],
)
def test_values_that_do_not_fit_their_type_are_rejected(tag, value):
    with pytest.raises(ValueError, match="cannot be"):
        ber.encode_value(tag, value)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("", "0 bytes are left"),
        ("30", "1 bytes are left"),
        ("3080", "indefinite"),
        ("3005aabb", "5 bytes announced, 2 are left"),
        ("3084ffffffff00", "4294967295 bytes announced"),
        ("3085ffffffffff00", "a length of 5 bytes"),
        ("308200", "a length of 2 bytes"),
        ("30ff", "a length of 127 bytes"),
    ],
)
def test_headers_with_wrong_lengths_are_rejected(data, what):
    raw = bytes.fromhex(data)
    with pytest.raises(DecodeError, match=what):
        ber.read_header(raw, 0, len(raw))


def test_a_padded_length_is_accepted():
    assert ber.read_header(bytes.fromhex("0485000000000141"), 0, 8) == (4, 7, 8)


@given(OIDS)
def test_identifiers_round_trip(oid):
    assert ber.decode_oid(ber.encode_oid(oid)) == oid


@given(OIDS, OIDS)
def test_identifiers_sort_by_numbers(one, other):
    assert (ber.decode_oid(ber.encode_oid(one)) < ber.decode_oid(ber.encode_oid(other))) == (one < other)


def test_encoded_identifiers_sort_differently():
    assert ber.encode_index((16383,)) > ber.encode_index((16384,))


@given(st.integers(0, 255), st.binary(max_size=40))
def test_any_content_decodes_or_raises_decode_error(tag, content):
    try:
        value = ber.decode_value(tag, content)
    except DecodeError:
        return
    if tag in ber.UNSIGNED_BYTES:
        assert 0 <= value < 2 ** (8 * ber.UNSIGNED_BYTES[tag])


@pytest.mark.parametrize("text", ["1.3.6.1.2.1", ".1.3.6.1.2.1"])
def test_text_of_an_identifier(text):
    assert ber.parse_oid(text) == (1, 3, 6, 1, 2, 1)
    assert ber.format_oid((1, 3, 6, 1, 2, 1)) == "1.3.6.1.2.1"


@pytest.mark.parametrize(
    "text", ["", ".", "1", "1..3", "1.3.ifDescr", "1.3.-6", "1.3.99999999999", "1.3.4294967296", "\u0661.\u0663"]
)
def test_invalid_identifier_texts_are_rejected(text):
    with pytest.raises(ValueError):
        ber.parse_oid(text)
