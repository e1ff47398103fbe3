"""Lines of NCCL Inspector: exact values of every shape, and typed errors for all else."""

import json
from contextlib import suppress

import pytest
from conftest import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.inspector import (
    Collective,
    Header,
    LineError,
    Metadata,
    known_kind,
    parse_line,
    traffic_bytes,
)

GOOD = {
    "header": {"id": "0xab", "rank": 1, "n_ranks": 4, "nnodes": 2},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 100},
}


def changed(part, **values):
    return json.dumps({**GOOD, part: {**GOOD[part], **values}}).encode()


def test_every_shape_of_line_is_read_to_the_value():
    lines = [parse_line(line) for line in (FIXTURES / "inspector" / "v4.0.log").read_bytes().splitlines()]
    assert {line.header for line in lines} == {Header("0x1a2b3c4d5e6f70", 1, 4, 2)}
    assert {line.metadata for line in lines} == {Metadata("gpu-001", 4711)}
    assert [line.collective for line in lines] == [
        Collective("AllReduce", 7, 1048576, 100, ""),
        Collective("AllGather", 0, 2097152, 250, "kernel_gpu"),
        Collective("All2All", 3, 4096, 9, "collective_cpu"),
        None,
    ]
    assert [line.point_to_point is not None for line in lines] == [False, False, False, True]


def test_a_line_may_have_no_header_and_unknown_keys_are_passed_over():
    lines = [parse_line(line) for line in (FIXTURES / "inspector" / "v4.3.log").read_bytes().splitlines()]
    assert [line.header for line in lines] == [Header("0xbeef", 3, 8, 1), None, None, None]
    assert [line.collective for line in lines] == [
        None,
        Collective("ReduceScatter", 12, 1000000, 400, "kernel_gpu"),
        None,
        Collective("ReduceScatter", 13, 1000000, 410, "kernel_gpu"),
    ]


@pytest.mark.parametrize("version", ["2.28.3", "2.30.7", "2.31.2"])
def test_published_samples_are_read_to_the_value(corpus, version):
    text = (corpus / "nccl" / "inspector" / f"sample-json-v{version}.jsonl").read_bytes()
    first, second = (parse_line(line) for line in text.splitlines() if line.strip())
    assert first.header == Header("0x7f8c496ae9f661", 2, 8, 1)
    assert first.metadata == Metadata("example-hostname", 1639453)
    assert first.collective == Collective("AllReduce", 1407, 17179869184, 61974, "")
    assert second.header == Header("0xe62dedaa97644a", 4, 8, 1)
    assert second.metadata == Metadata("example-hostname", 438776)
    assert second.collective == Collective("ReduceScatter", 1231, 2147483648, 41057, "kernel_gpu")


@pytest.mark.parametrize("version", ["2.28.3", "2.30.7", "2.31.2"])
def test_the_size_agrees_with_the_bandwidth_that_the_file_itself_tells(corpus, version):
    text = (corpus / "nccl" / "inspector" / f"sample-json-v{version}.jsonl").read_bytes()
    for line in text.splitlines():
        if line.strip():
            told = json.loads(line)["coll_perf"]["coll_algobw_gbs"] * 1e9
            parsed = parse_line(line)
            one = parsed.collective
            size = traffic_bytes(known_kind(one.kind), one.message_bytes, parsed.header.n_ranks)
            assert size / (one.microseconds / 1e6) == pytest.approx(told, rel=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        changed("header", rank=4),
        changed("header", rank=-1),
        changed("header", rank="1"),
        changed("header", n_ranks=0),
        changed("header", n_ranks=1 << 21),
        changed("header", id=""),
        changed("header", id="x" * 65),
        changed("header", id=12),
        changed("coll_perf", coll_exec_time_us=0),
        changed("coll_perf", coll_exec_time_us=-5),
        changed("coll_perf", coll_exec_time_us=1e300),
        changed("coll_perf", coll_exec_time_us=10**12),
        changed("coll_perf", coll_exec_time_us=None),
        changed("coll_perf", coll_msg_size_bytes=-1),
        changed("coll_perf", coll_msg_size_bytes=1 << 60),
        changed("coll_perf", coll_sn=-1),
        changed("coll_perf", coll_sn=1 << 63),
        changed("coll_perf", coll="All\nReduce"),
        changed("coll_perf", coll='x"}'),
        changed("coll_perf", coll="x" * 33),
        b'{"header":{"id":"0xab","rank":1},"coll_perf":{}}',
        b"[]",
        b"null",
    ],
)
def test_wrong_types_and_unbelievable_values_are_invalid(line):
    with pytest.raises(LineError) as caught:
        parse_line(line)
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"nccl", b'{"header":', json.dumps(GOOD).encode()[:-1], b'{"x":' + b"[" * 100_000, b'{"x":"\\ud800"'],
)
def test_what_is_no_json_is_malformed(line):
    with pytest.raises(LineError) as caught:
        parse_line(line)
    assert caught.value.reason == "malformed"


@given(st.one_of(st.binary(max_size=300), st.integers(0, 160), st.tuples(st.integers(0, 160), st.binary(max_size=3))))
def test_no_line_raises_anything_else(change):
    good = json.dumps(GOOD).encode()
    if isinstance(change, bytes):
        line = change
    elif isinstance(change, int):
        line = good[:change]
    else:
        line = good[: change[0]] + change[1] + good[change[0] + 1 :]
    with suppress(LineError):
        parse_line(line)


def test_kinds_have_one_spelling_and_unknown_ones_one_name():
    assert [known_kind(kind) for kind in ("All2All", "AlltoAll", "AllReduce", "Nonsense")] == [
        "AlltoAll",
        "AlltoAll",
        "AllReduce",
        "other",
    ]
