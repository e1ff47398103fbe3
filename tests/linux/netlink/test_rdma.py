import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.netlink import rdma as codec
from exporter.linux.netlink.rdma import QueuePair, RdmaDevice, RdmaPort

INDEX, NAME, PORT, FIRMWARE, GUID, STATE, PHYSICAL, NODE_TYPE = 1, 2, 3, 5, 6, 12, 13, 14
NDEV_INDEX, NDEV_NAME, KIND, PARENT = 50, 51, 99, 100
QP, QP_ENTRY, QP_NUMBER, QP_TYPE, QP_STATE, QP_PID, QP_MODULE = 19, 20, 21, 26, 27, 28, 29
COUNTERS, ENTRY, ENTRY_NAME, ENTRY_VALUE = 80, 81, 82, 83
NESTED = 0x8000


def attribute(kind, value):
    value = struct.pack("=I", value) if isinstance(value, int) else value
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def u8(value):
    return struct.pack("=B", value)


def u64(value):
    return struct.pack("=Q", value)


HANDLE = attribute(INDEX, 3) + attribute(NAME, b"mlx5_3\0")


def entry(name, value):
    return attribute(ENTRY | NESTED, attribute(ENTRY_NAME, name.encode() + b"\0") + attribute(ENTRY_VALUE, u64(value)))


def counters(*entries, handle=HANDLE):
    return handle + attribute(PORT, 1) + attribute(COUNTERS | NESTED, b"".join(entries))


def test_message_types_are_those_of_the_uapi_header():
    assert (codec.FAMILY, codec.GET_DEVICES, codec.GET_PORT) == (20, 0x1401, 0x1405)
    assert (codec.GET_QUEUE_PAIRS, codec.GET_STATISTICS) == (0x140A, 0x1411)


def test_requests_name_the_device_and_the_port():
    assert codec.device_request(7) == bytes.fromhex("0800 0100 07000000"), "written for a little-endian machine"
    assert codec.port_request(7, 2) == bytes.fromhex("0800 0100 07000000  0800 0300 02000000")


def test_every_field_of_a_device():
    body = (
        HANDLE
        + attribute(PORT, 2)
        + attribute(4, u64(0x1234))
        + attribute(FIRMWARE, b"28.39.1002\0")
        + attribute(GUID, u64(0x9C63C003001A2B3C))
        + attribute(7, u64(1))
        + attribute(NODE_TYPE, u8(1))
        + attribute(KIND, u8(1))
        + attribute(PARENT, b"mlx5_0\0")
    )
    expected = RdmaDevice(3, "mlx5_3", "9c63c003001a2b3c", 2, "smi", "mlx5_0", 1, "28.39.1002")
    assert codec.parse_device(body) == expected


def test_device_with_few_attributes():
    assert codec.parse_device(HANDLE + attribute(GUID, u64(0))) == RdmaDevice(3, "mlx5_3", None, 0)
    assert codec.parse_device(HANDLE + attribute(GUID, u64(0xAB))) == RdmaDevice(3, "mlx5_3", "00000000000000ab", 0)
    assert codec.parse_device(HANDLE + attribute(KIND, u8(9))) == RdmaDevice(3, "mlx5_3", None, 0, "unknown_9")


@pytest.mark.parametrize("body", [b"", attribute(INDEX, 3), attribute(NAME, b"mlx5_3\0"), HANDLE[:-4]])
def test_device_without_index_or_name_is_none(body):
    assert codec.parse_device(body) is None


def test_port_with_and_without_netdev():
    states = HANDLE + attribute(PORT, 1) + attribute(STATE, u8(4)) + attribute(PHYSICAL, u8(5))
    assert codec.parse_port(states) == RdmaPort(None, None, 4, 5)
    named = states + attribute(NDEV_INDEX, 12) + attribute(NDEV_NAME, b"rail3\0")
    assert codec.parse_port(named) == RdmaPort("rail3", 12, 4, 5)
    assert codec.parse_port(b"") == RdmaPort(None, None, None, None)


def test_counters_keep_their_order_and_all_64_bits():
    layout, values = codec.parse_statistics(counters(entry("rx_b", 2**64 - 1), entry("rx_a", 0), entry("rx_b", 7)))
    assert layout.names == ("rx_b", "rx_a", "rx_b")
    assert values == (2**64 - 1, 0, 7)


def test_nested_attributes_without_the_flag_of_newer_kernels():
    body = HANDLE + attribute(COUNTERS, entry("rx", 5))
    layout, values = codec.parse_statistics(body)
    assert (layout.names, values) == (("rx",), (5,))


def test_padding_before_a_value_is_skipped():
    padded = attribute(ENTRY, attribute(ENTRY_NAME, b"rx\0") + attribute(0, b"") + attribute(ENTRY_VALUE, u64(5)))
    layout, values = codec.parse_statistics(counters(padded, entry("tx", 6)))
    assert (layout.names, values) == (("rx", "tx"), (5, 6))


@pytest.mark.parametrize(
    "broken",
    [
        attribute(ENTRY, attribute(ENTRY_NAME, b"half\0")),
        attribute(ENTRY, attribute(ENTRY_VALUE, u64(9))),
        attribute(ENTRY, attribute(ENTRY_NAME, b"\0") + attribute(ENTRY_VALUE, u64(9))),
        attribute(ENTRY, attribute(ENTRY_NAME, b"narrow\0") + attribute(ENTRY_VALUE, 9)),
        attribute(ENTRY, b""),
        attribute(ENTRY + 9, attribute(ENTRY_NAME, b"other\0") + attribute(ENTRY_VALUE, u64(9))),
    ],
)
def test_malformed_counter_does_not_affect_others(broken):
    body = counters(entry("before", 1), broken, entry("after", 2))
    layout, values = codec.parse_statistics(body)
    assert (layout.names, values) == (("before", "after"), (1, 2))
    assert layout.values(body) == (1, 2)


@pytest.mark.parametrize("body", [b"", HANDLE, counters(), HANDLE + b"\x01"])
def test_reply_without_counters(body):
    layout, values = codec.parse_statistics(body)
    assert (layout.names, values, layout.values(body)) == ((), (), ())


def test_layout_parses_a_reply_of_the_same_layout():
    layout, _ = codec.parse_statistics(counters(entry("rx", 1), entry("tx", 2)))
    assert layout.values(counters(entry("rx", 2**63), entry("tx", 0))) == (2**63, 0)


@pytest.mark.parametrize(
    "body",
    [
        counters(entry("rx", 1), entry("to", 2)),  # another name of the same length
        counters(entry("tx", 1), entry("rx", 2)),  # another order
        counters(entry("rx", 1), entry("tx", 2), entry("cnp", 3)),  # an optional counter was enabled
        counters(entry("rx", 1)),
        counters(entry("rx", 1), entry("tx", 2), handle=attribute(INDEX, 3) + attribute(NAME, b"mlx5_4\0")),  # renamed
        b"",
    ],
)
def test_layout_rejects_any_other_reply(body):
    layout, _ = codec.parse_statistics(counters(entry("rx", 1), entry("tx", 2)))
    assert layout.values(body) is None


def test_equal_names_are_the_same_object():
    layout, _ = codec.parse_statistics(counters(entry("rx", 1), entry("tx", 2)))
    other_device = counters(entry("rx", 8), entry("tx", 9), handle=attribute(INDEX, 4) + attribute(NAME, b"mlx5_10\0"))
    again, values = codec.parse_statistics(other_device, [layout])
    assert again.names is layout.names
    assert values == (8, 9)
    fewer, _ = codec.parse_statistics(counters(entry("rx", 1)), [layout, again])
    assert fewer.names == ("rx",)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
VALUES = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(NAMES, VALUES, VALUES), max_size=20))
def test_layout_returns_the_same_values_as_the_parser(rows):
    first = counters(*(entry(name, value) for name, value, _ in rows))
    second = counters(*(entry(name, value) for name, _, value in rows))
    layout, values = codec.parse_statistics(first)
    assert values == tuple(value for _, value, _ in rows)
    assert layout.values(second) == codec.parse_statistics(second)[1] == tuple(value for _, _, value in rows)


def queue_pair(*attributes):
    return attribute(QP_ENTRY | NESTED, attribute(QP_NUMBER, 77) + b"".join(attributes))


def test_queue_pairs_of_processes_and_of_the_kernel():
    body = HANDLE + attribute(
        QP | NESTED,
        queue_pair(attribute(QP_PID, 4242), attribute(QP_TYPE, u8(2)), attribute(QP_STATE, u8(3)))
        + queue_pair(attribute(QP_MODULE, b"ib_core\0"), attribute(QP_TYPE, u8(1)), attribute(QP_STATE, u8(6)))
        + queue_pair(attribute(QP_TYPE, u8(7)), attribute(QP_STATE, u8(200)))
        + queue_pair(),
    )
    assert [codec.parse_queue_pair(entry) for entry in codec.queue_pair_entries(body)] == [
        QueuePair(4242, "", "RC", "RTS"),
        QueuePair(None, "ib_core", "GSI", "ERR"),
        QueuePair(None, "", "unknown_7", "unknown_200"),
        QueuePair(None, "", "", ""),
    ]


# Numbers of include/rdma/ib_verbs.h with the words that rdma(8) prints.
@pytest.mark.parametrize(
    ("number", "word"),
    [
        (0, "SMI"),
        (1, "GSI"),
        (2, "RC"),
        (3, "UC"),
        (4, "UD"),
        (8, "RAW_PACKET"),
        (9, "XRC_INI"),
        (10, "XRC_TGT"),
        (255, "DRIVER"),
    ],
)
def test_types_of_queue_pairs(number, word):
    assert codec.parse_queue_pair(attribute(QP_TYPE, u8(number))).type == word


@pytest.mark.parametrize(("number", "word"), [*enumerate(["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"])])
def test_states_of_queue_pairs(number, word):
    assert codec.parse_queue_pair(attribute(QP_STATE, u8(number))).state == word


def mangled(body):
    """Return the body with a few bytes changed and truncated somewhere."""
    changes = st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=8)

    def change(drawn):
        places, end = drawn
        data = bytearray(body)
        for place, value in places:
            data[place] = value
        return bytes(data[:end])

    return st.tuples(changes, st.integers(0, len(body))).map(change)


WHOLE = (
    counters(entry("rx", 1), entry("tx", 2)) + attribute(QP, queue_pair(attribute(QP_PID, 1))) + attribute(KIND, b"")
)


@given(st.binary(max_size=200) | mangled(WHOLE))
def test_parsers_accept_any_bytes(body):
    layout, values = codec.parse_statistics(body)
    assert len(layout.names) == len(values) <= len(body) // 16
    assert layout.values(body) == values
    codec.parse_device(body)
    codec.parse_port(body)
    for one in codec.queue_pair_entries(body):
        codec.parse_queue_pair(one)


@pytest.mark.parametrize(("mode", "shared"), [(1, True), (0, False), (None, None)])
def test_mode_of_namespaces_is_parsed(mode, shared):
    """RDMA_NLDEV_SYS_ATTR_NETNS_MODE, as `rdma system show` prints it: netns shared, netns exclusive."""
    body = b"" if mode is None else attribute(66, u8(mode))
    assert codec.parse_is_shared(body) is shared
