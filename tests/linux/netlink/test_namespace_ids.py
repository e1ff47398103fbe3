"""Requests for ids of namespaces, and their answers, as include/uapi/linux/net_namespace.h has them."""

import struct

import pytest

from exporter.linux.netlink.namespace_ids import namespace_id_request, parse_namespace_id


def test_request_names_the_namespace_by_a_descriptor():
    assert namespace_id_request(9) == struct.pack("=BxxxHHI", 0, 8, 3, 9)


@pytest.mark.parametrize(("number", "parsed"), [(0, 0), (7, 7), (-1, None)])
def test_id_is_parsed_and_minus_one_is_none(number, parsed):
    assert parse_namespace_id(struct.pack("=BxxxHHi", 0, 8, 1, number)) == parsed


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 4, struct.pack("=BxxxHHh", 0, 6, 1, 3), struct.pack("=BxxxHH", 0, 99, 1)]
)
def test_malformed_answer_has_no_id(answer):
    assert parse_namespace_id(answer) is None
