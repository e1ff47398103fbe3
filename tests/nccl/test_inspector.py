"""Files of NCCL Inspector, of every version: JSON lines and Prometheus text."""

import json
from collections import Counter

import pytest

from exporter.core.collectives import known_kind
from exporter.nccl.decoding import FormatError
from exporter.nccl.inspector import (
    MAX_LINE,
    DumpStats,
    Header,
    InspectorCollective,
    InspectorContext,
    Metadata,
    PointToPoint,
    parse_line,
)
from exporter.nccl.inspector_textfile import gpu_of_file, message_bounds, parse_textfile
from exporter.nccl.prometheus_text import MAX_TEXT, LineErrors
from exporter.nccl.prometheus_text import parse_line as parse_sample
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"


def lines(name):
    return [parse_line(line) for line in (FOLDER / name).read_bytes().splitlines()]


def metrics(name):
    lost = LineErrors()
    return list(parse_textfile((FOLDER / name).read_bytes(), lost)), lost.reasons


def test_oldest_lines_have_no_timing_source_and_verbose_lines_are_read_too():
    first, verbose = lines("inspector-v4.0-2.28.jsonl")
    assert first.header == Header("0x1f00", 3, 16, 2)
    assert first.metadata == Metadata("n1", 100)
    assert first.collective == InspectorCollective("AllReduce", 12, 8388608, 500)
    assert first.collective.timing_source == ""
    assert verbose.collective == InspectorCollective("ReduceScatter", 13, 1048576, 250, "kernel_gpu")


def test_2_30_has_point_to_point_records():
    send, alltoall = lines("inspector-v4.0-2.30.jsonl")
    assert send.header == Header("0x2f00", 0, 4, 4)
    assert send.collective is None
    assert send.point_to_point == PointToPoint("Send", 5, 2, 65536, 30, "kernel_gpu")
    assert alltoall.collective == InspectorCollective("AlltoAll", 1, 4096, 44, "collective_cpu")


def test_v4_2_has_drop_counts_algorithm_and_protocol():
    stats, ring = lines("inspector-v4.2.jsonl")
    assert stats.dump_stats == DumpStats(9, 1)
    assert stats.collective is None
    assert ring.collective == InspectorCollective("AllGather", 77, 2048, 19, "kernel_cpu", "Ring", "LL128")


def test_v4_3_lines_inherit_the_header_of_the_last_marker():
    context = InspectorContext()
    parsed = [(context.update(line).id, line) for line in lines("inspector-v4.3.jsonl")]
    assert [communicator for communicator, _ in parsed] == ["0x4f00"] * 4 + ["0x4f01"] * 2
    assert parsed[1][1].collective == InspectorCollective("AllReduce", 3, 1024, 10, "kernel_gpu")
    assert parsed[2][1].point_to_point == PointToPoint("Recv", 4, 0, 64, 11, "kernel_gpu")
    assert parsed[5][1].collective == InspectorCollective("AllReduce", 3, 1024, 12, "kernel_gpu")
    assert context.header == Header("0x4f01", 1, 2, 2)


def test_line_before_any_header_has_no_context():
    assert InspectorContext().update(lines("inspector-v4.3.jsonl")[1]) is None


def test_keys_of_forks_are_ignored():
    (line,) = lines("inspector-accl.jsonl")
    assert line.collective == InspectorCollective("AllReduce", 1, 4096, 70, "kernel_gpu")


@pytest.mark.parametrize(("written", "read"), [(61974.4, 61974), (100.5001, 101), (0.2, 1), (7.0, 7)])
def test_fractional_time_is_rounded_and_costs_no_line(written, read):
    for part, kind in (("coll", "AllReduce"), ("p2p", "Send")):
        record = {part: kind, f"{part}_sn": 7, f"{part}_msg_size_bytes": 1024, f"{part}_exec_time_us": written}
        record |= {"p2p_peer": 1} if part == "p2p" else {}
        line = parse_line(json.dumps({"header": GOOD["header"], f"{part}_perf": record}).encode())
        one = line.collective or line.point_to_point
        assert (one.microseconds, type(one.microseconds), one.sequence, line.header.id) == (read, int, 7, "0xab")


GOOD = {
    "metadata": {"hostname": "n1"},
    "header": {"id": "0xab", "rank": 1, "n_ranks": 4, "nnodes": 2},
    "coll_perf": {"coll": "AllReduce", "coll_sn": 7, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 100},
}


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("header", {"rank": 4}),
        ("header", {"rank": -1}),
        ("header", {"rank": "1"}),
        ("header", {"n_ranks": 0}),
        ("header", {"n_ranks": 1 << 40}),
        ("header", {"id": ""}),
        ("header", {"id": '0x1",gpu="7'}),
        ("header", {"id": "0x1\n"}),
        ("metadata", {"hostname": "n1\x00"}),
        ("metadata", {"hostname": "n1/../x"}),
        ("coll_perf", {"coll": ""}),
        ("header", {"id": "x" * 65}),
        ("coll_perf", {"coll_exec_time_us": 0}),
        ("coll_perf", {"coll_exec_time_us": -5}),
        ("coll_perf", {"coll_exec_time_us": 86_400_000_001}),
        ("coll_perf", {"coll_sn": -1}),
        ("coll_perf", {"coll_sn": 10**400}),
        ("coll_perf", {"coll_msg_size_bytes": 1 << 51}),
        ("coll_perf", {"coll": None}),
        ("coll_perf", {"coll": "x" * 65}),
    ],
)
def test_implausible_value_rejects_the_line(part, values):
    with pytest.raises(FormatError) as caught:
        parse_line(json.dumps({**GOOD, part: {**GOOD[part], **values}}).encode())
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b'{"header":NaN}',
        b"\x80\x04cos\nsystem\n.",
        b"\0" * 50,
        b'{"a":"\xff\xfe"',
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_invalid_json_is_malformed(line):
    with pytest.raises(FormatError) as caught:
        parse_line(line)
    assert caught.value.reason == "malformed"
    assert len(str(caught.value)) <= 200


def test_oversized_line_is_not_decoded():
    with pytest.raises(FormatError) as caught:
        parse_line(b'{"a":"' + b"x" * MAX_LINE + b'"}')
    assert caught.value.reason == "too_large"


def test_text_of_2_30_has_means_with_size_ranges():
    found, lost = metrics("nccl_inspector_metrics_GPU-1.prom")
    assert lost == Counter({"truncated": 1})
    bandwidth, time, empty, receive, total, dropped = found
    assert (bandwidth.metric, bandwidth.statistic, bandwidth.value) == ("bus_bandwidth", "mean", 90.5e9)
    assert (bandwidth.min_bytes, bandwidth.max_bytes) == (512 << 20, 513 << 20)
    assert (bandwidth.kind, bandwidth.n_ranks, bandwidth.n_nodes) == ("AllReduce", 16, 2)
    assert (bandwidth.gpu, bandwidth.node, bandwidth.job) == ("GPU3", "n1", "42")
    assert bandwidth.comm_name == 'DP "main" {0}'
    assert bandwidth.algorithm == "Ring_ll128"
    assert (bandwidth.comm_id, bandwidth.rank, bandwidth.sequence) == ("", None, None)
    assert (time.metric, time.value) == ("time", pytest.approx(0.011))
    assert (empty.kind, empty.value, empty.min_bytes, empty.max_bytes) == ("Recv", 0.0, 0, 0)
    assert (empty.job, empty.comm_name) == ("", "")
    assert (receive.metric, receive.value) == ("time", pytest.approx(12.5e-6))
    assert (receive.min_bytes, receive.max_bytes) == (1023 << 10, 1 << 20)
    assert (total.metric, total.statistic, total.value, total.kind) == ("collectives", "count", 9000, "")
    assert (dropped.metric, dropped.value) == ("collectives_dropped", 17)


def test_text_of_2_29_7_has_rank_and_sequence_number():
    (algorithm, bus, time), lost = metrics("inspector-2.29.7.prom")
    assert not lost
    assert (algorithm.metric, algorithm.value) == ("algorithm_bandwidth", 100.25e9)
    assert (bus.metric, bus.value) == ("bus_bandwidth", 175.4375e9)
    assert time.value == pytest.approx(0.021421)
    for one in (algorithm, bus, time):
        assert (one.comm_id, one.rank, one.sequence, one.n_ranks) == ("0xd1", 4, 228924, 8)
        assert (one.gpu, one.node, one.job) == ("GPU4", "n9", "7")
        # 1.995 and 2.005 GiB, by hand
        assert (one.min_bytes, one.max_bytes) == (2142114939, 2152852357)


def test_text_of_forks_has_more_statistics_and_labels():
    (count, total, high, slow), lost = metrics("inspector-fork-v5.5.prom")
    assert lost == Counter({"unknown": 1})
    assert (count.metric, count.statistic, count.value) == ("operations", "count", 200)
    assert (count.rank, count.world_rank, count.comm_id, count.timing_source) == (3, 11, "0xe1", "kernel_gpu")
    assert (count.min_bytes, count.max_bytes) == (1048576, 1048576)
    assert (total.metric, total.statistic, total.value) == ("time", "sum", pytest.approx(0.05))
    assert (high.statistic, high.value) == ("p99", pytest.approx(0.0009))
    assert (slow.statistic, slow.value, slow.sequence, slow.kind) == ("single", pytest.approx(0.007), 55, "Send")
    assert (slow.min_bytes, slow.max_bytes) == (1 << 20, 2 << 20)


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("0B", (0, 0)),
        ("1-2B", (1, 2)),
        ("134-135MB", (140509184, 141557760)),
        ("4-5GB", (4294967296, 5368709120)),
        ("1-2TB", (1099511627776, 2199023255552)),
        ("", None),
        ("5-4GB", None),
        ("4-5", None),
        ("-1GB", None),
        ("4-5gb", None),
        ("99999999-5GB", None),
        ("1.5-2GB", None),
    ],
)
def test_size_ranges_use_units_of_1024(text, bounds):
    assert message_bounds(text) == bounds


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'nccl_bus_bandwidth_gbs{gpu="a",gpu="b"} 1', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a"} nan', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a"} +Inf', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a"} -1', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a"} 1e300', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a"} twelve', "invalid"),
        (b'nccl_bus_bandwidth_gbs{gpu="a" 1', "malformed"),
        (b"nccl_bus_bandwidth_gbs{gpu=a} 1", "malformed"),
        (b'{gpu="a"} 1', "malformed"),
        (b"\xff\xfe\0\x01", "malformed"),
        (b'nccl_bus_bandwidth_gbs{gpu="' + b"x" * 9000 + b'"} 1', "too_large"),
        (b'nccl_bus_bandwidth_gbs{gpu="' + b"x" * 300 + b'"} 1', "too_large"),
    ],
)
def test_malformed_text_line_is_skipped(line, reason):
    lost = LineErrors()
    found = list(parse_textfile(line + b'\nnccl_bus_bandwidth_gbs{gpu="ok"} 2\n', lost))
    assert [one.gpu for one in found] == ["ok"]
    assert lost.reasons == Counter({reason: 1})


def test_communicator_name_cannot_override_another_label():
    lost = LineErrors()
    injected = b'nccl_bus_bandwidth_gbs{gpu="GPU0",comm_name="x",gpu="GPU7",n_nodes="2"} 1\n'
    assert list(parse_textfile(injected, lost)) == []
    assert lost.reasons == Counter({"invalid": 1})


def test_control_characters_are_removed_from_labels():
    lost = LineErrors()
    (found,) = parse_textfile(b'nccl_bus_bandwidth_gbs{gpu="a\x1b[2Jb\x00"} 1\n', lost)
    assert found.gpu == "a [2Jb "


@pytest.mark.parametrize("value", [b"NaN", b"inf", b"-Inf", b"1e999"])
def test_sample_values_must_be_finite(value):
    with pytest.raises(FormatError) as caught:
        parse_sample(b"name " + value)
    assert caught.value.reason == "invalid"


def test_oversized_file_is_rejected():
    with pytest.raises(FormatError) as caught:
        list(parse_textfile(b"\n" * (MAX_TEXT + 1), LineErrors()))
    assert caught.value.reason == "too_large"


def test_gpu_uuid_is_in_the_file_name():
    assert gpu_of_file("nccl_inspector_metrics_GPU-8f6b-11.prom") == "GPU-8f6b-11"
    assert gpu_of_file("nccl_inspector_metrics_../../x.prom") is None
    assert gpu_of_file("node.prom") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("All2All", "AlltoAll"),
        ("AlltoAll", "AlltoAll"),
        ("all_to_all", "AlltoAll"),
        ("_reduce_scatter_base", "ReduceScatter"),
        ("ALLREDUCE", "AllReduce"),
        ("all_gather_into_tensor_coalesced", "AllGather"),
        ("COALESCED", "other"),
        ('x",evil="1', "other"),
        ("a" * 100_000, "other"),
    ],
)
def test_kinds_are_normalised(name, kind):
    assert known_kind(name) == kind
