"""Outputs of nccl-tests: tables of several releases and launchers, JSON, and rejected baselines."""

import json
from collections import Counter

import pytest

from exporter.nccl import nccl_tests
from exporter.nccl.benchmark import BenchmarkRun, Measurement, Row
from exporter.nccl.decoding import FormatError
from exporter.nccl.nccl_tests import (
    MAX_TEXT,
    Baseline,
    baseline,
    parse_json,
    parse_json_runs,
    parse_runs,
    parse_text,
    rejection_reason,
)
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"


def text(name):
    return parse_text((FOLDER / name).read_bytes())


def close(measure, microseconds, algorithm, bus, wrong):
    assert measure == Measurement(
        pytest.approx(microseconds / 1e6), pytest.approx(algorithm * 1e9), pytest.approx(bus * 1e9), wrong
    )


def test_current_table_format():
    run = text("tests-2026-all_reduce.txt")
    assert (run.collective, run.nccl_version) == ("AllReduce", "2.31.2")
    assert (run.n_ranks, run.n_nodes, run.hosts) == (4, 2, {"a1", "a2"})
    assert (run.out_of_bounds, run.average_bus_bandwidth) == (0, pytest.approx(108.79e9))
    assert [(row.size, row.count, row.type, row.redop) for row in run.rows] == [
        (0, 0, "float", "sum"),
        (1048576, 262144, "float", "sum"),
        (4294967296, 1073741824, "float", "sum"),
    ]
    close(run.rows[1].out_of_place, 50.0, 20.97, 31.46, 0)
    close(run.rows[1].in_place, 51.0, 20.56, 30.84, 0)
    close(run.rows[2].out_of_place, 21845, 196.61, 294.91, 0)
    assert (run.bad_rows, run.failures, run.foreign_column) == (0, [], False)
    assert baseline([run]) == {
        ("AllReduce", 1048576): Baseline(pytest.approx(31.46e9), 4, 2),
        ("AllReduce", 4294967296): Baseline(pytest.approx(294.91e9), 4, 2),
    }


def test_iteration_columns_and_trailing_timestamp():
    (row,) = text("tests-2026-iterations-stamped.txt").rows
    close(row.out_of_place, 100.0, 10.49, 5.24, 0)
    close(row.in_place, 101.0, 10.38, 5.19, None)


def test_older_tables_have_no_root_and_a_rounding_error_column():
    run = text("tests-2021-no-root.txt")
    (row,) = run.rows
    assert (row.size, row.redop) == (1048576, "sum")
    close(row.out_of_place, 104.9, 10.0, 10.0, None)
    close(row.in_place, 110.0, 9.53, 9.53, None)
    assert (run.n_ranks, run.n_nodes, run.collective) == (2, 2, None)
    with pytest.raises(FormatError, match="specify it"):
        baseline([run])
    assert baseline([run], "all_reduce") == {("AllReduce", 1048576): Baseline(10e9, 2, 2)}


def test_oldest_tables_have_no_redop_column():
    (row,) = text("tests-2020-no-redop.txt").rows
    assert (row.size, row.count, row.type, row.redop) == (1048576, 131072, "float", "")
    close(row.out_of_place, 1048.6, 1.0, 0.5, None)


def test_launcher_tags_before_and_within_rows_are_removed():
    run = text("tests-tagged.txt")
    assert (run.collective, run.n_ranks, run.n_nodes) == ("Broadcast", 2, 2)
    assert [row.size for row in run.rows] == [1048576, 2097152, 4194304]
    close(run.rows[0].out_of_place, 100.0, 10.49, 10.49, 0)
    close(run.rows[1].in_place, 201.0, 10.43, 10.43, 0)
    close(run.rows[2].in_place, 401.0, 10.46, 10.46, 0)
    assert run.bad_rows == 1


def test_replayed_trace_is_measured_in_place_only():
    run = parse_text(b"     1048576        262144     float     sum      -1    100.0   10.49   15.73      0\n")
    (row,) = run.rows
    assert row.out_of_place is None
    close(row.in_place, 100.0, 10.49, 15.73, 0)
    assert baseline([run], "AllReduce")["AllReduce", 1048576].bus_bandwidth == pytest.approx(15.73e9)


RUN = """# {tests} version 2.17.9-develop:4a65e8d {library}
# Collective test starting: {name}_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid    100 on         a1 device  0 [0x0f] NVIDIA H100
#  Rank  1 Group  0 Pid    200 on         {other} device  0 [0x0f] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float {redop:>7}      -1  100.0  10.49  {speed}  0    101.0  10.38  {speed}  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {speed}
#
"""


def one_run(
    name, speed, *, redop="sum", other="a2", tests="nccl-tests", library="nccl-headers=22304 nccl-library=22304"
):
    text = RUN.format(name=name, speed=speed, redop=redop, other=other, tests=tests, library=library)
    return text + f"# Collective test concluded: {name}_perf\n"


def test_each_of_several_runs_in_a_file_is_read():
    text = one_run("all_reduce", 15.73) + one_run("all_gather", 9.5, redop="none") + one_run("all_reduce", 16.1)
    runs = parse_runs(text.encode())
    assert [(run.collective, run.n_ranks, run.n_nodes, len(run.rows)) for run in runs] == [
        ("AllReduce", 2, 2, 1),
        ("AllGather", 2, 2, 1),
        ("AllReduce", 2, 2, 1),
    ]
    assert {key: one.bus_bandwidth for key, one in baseline(runs).items()} == {
        ("AllReduce", 1048576): pytest.approx(16.1e9),
        ("AllGather", 1048576): pytest.approx(9.5e9),
    }


def test_several_runs_of_old_releases_and_launchers_are_read():
    """Up to 2.13 a run has no line with its collective; launchers put a tag before each line."""
    bare = "\n".join(line for line in one_run("all_reduce", 15.73).splitlines() if "tests version" not in line)
    bare = "\n".join(line for line in bare.splitlines() if "Collective test" not in line) + "\n"
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in (bare + bare).splitlines())
    for text in (bare + bare, tagged):
        runs = parse_runs(text.encode())
        assert [(run.collective, run.ranks.total(), len(run.rows)) for run in runs] == [(None, 2, 1), (None, 2, 1)]


@pytest.mark.parametrize("name", ["2020-no-redop", "2021-no-root", "2026-all_reduce", "tagged", "twice", "wrong"])
def test_one_run_is_not_divided(name):
    data = (FOLDER / f"tests-{name}.txt").read_bytes()
    assert parse_runs(data) == [parse_text(data)]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (one_run("all_gather", 9.5).replace("  0    101.0", "  3    101.0"), r"run 2 of 2: elements were wrong"),
        (one_run("all_reduce", 9.5, redop="none"), r"run 2 of 2: the rows are not of AllReduce"),
        (one_run("hypercube", 9.5), r"run 2 of 2: the output does not name the collective"),
        ("# nThread 1 nGpus 1 minBytes 8\na1: Test NCCL failure common.cu:303 'x'\n", r"run 2 of 2: the test failed"),
    ],
)
def test_reason_names_the_run_that_is_not_usable(second, why):
    with pytest.raises(FormatError, match=why):
        baseline(parse_runs((one_run("all_reduce", 15.73) + second).encode()))


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("nccl-headers=23102 nccl-library=23102", "2.31.2"),
        # rccl-tests 2.17.9 (src/common.cu)
        ("rccl-headers=22803 rccl-library=22707", "2.27.7"),
        # NCCL_VERSION_CODE up to 2.8 (src/nccl.h.in)
        ("nccl-headers=2804 nccl-library=2804", "2.8.4"),
    ],
)
def test_library_version(library, version):
    assert parse_text(one_run("all_reduce", 1.5, library=library).encode()).nccl_version == version


def test_version_line_of_rccl():
    """RCCL 2.22.3 (src/init.cc)."""
    assert parse_text(b"RCCL version : 2.22.3-HEAD:9ea1a08\n").nccl_version == "2.22.3"


def test_best_of_several_runs_is_used():
    rows = [Row(1024, 256, "float", "sum", Measurement(1e-5, speed, speed, 0), None) for speed in (3e9, 5e9, 4e9)]
    runs = [BenchmarkRun(collective="AllReduce", ranks=Counter(range(4)), hosts={"a"}, rows=[row]) for row in rows]
    assert baseline(runs) == {("AllReduce", 1024): Baseline(5e9, 4, 1)}
    assert baseline([]) == {}


def test_json_output_is_parsed_without_environment_and_arguments():
    run = parse_json((FOLDER / "tests-json-v3.json").read_bytes())
    assert (run.collective, run.nccl_version, run.n_ranks, run.n_nodes) == ("AllGather", "2.28.9", 2, 2)
    first, second = run.rows
    close(first.out_of_place, 50.0, 20.97, 10.49, 0)
    close(first.in_place, 40.0, 26.21, 13.11, None)
    assert second.out_of_place is None
    close(second.in_place, 90.0, 23.30, 11.65, 0)
    assert run.bad_rows == 1
    assert (run.out_of_bounds, run.average_bus_bandwidth, run.failures) == (0, pytest.approx(11.5e9), [])
    assert "hunter2" not in repr(run)
    assert "env" not in nccl_tests._Document.__struct_fields__, "not even decoded"
    assert baseline([run])["AllGather", 2097152] == Baseline(pytest.approx(11.65e9), 2, 2)


def test_json_errors_do_not_leak_the_environment():
    data = (FOLDER / "tests-json-v3.json").read_bytes()
    for broken in (
        data[:-200],
        data.replace(b'"version":3', b'"version":"x"'),
        data.replace(b'"results":[', b'"results":[['),
    ):
        with pytest.raises(FormatError) as caught:
            parse_json(broken)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_json_outputs_written_one_after_the_other_are_all_read():
    data = (FOLDER / "tests-json-v3.json").read_bytes()
    other = data.replace(b"all_gather", b"all_reduce").replace(b"hunter2", b'}{\\"a}{')
    assert other != data
    assert [run.collective for run in parse_json_runs(data + b"\n" + other + data)] == [
        "AllGather",
        "AllReduce",
        "AllGather",
    ]
    assert len(parse_json_runs(data)) == 1
    with pytest.raises(FormatError, match="malformed"):
        parse_json_runs(data + b"\n{}")


@pytest.mark.parametrize(
    ("name", "why"),
    [("tests-wrong.txt", "wrong"), ("tests-twice.txt", "listed twice")],
)
def test_unusable_run_is_rejected(name, why):
    with pytest.raises(FormatError, match=why) as caught:
        baseline([text(name)])
    assert caught.value.reason == "refused"


MEASUREMENT = Measurement(1e-5, 1e9, 1e9, 0)
ROW = Row(1024, 256, "float", "sum", MEASUREMENT, None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"ranks": Counter([0])}, "one rank alone"),
        ({"ranks": Counter([0, 1, 1])}, "listed twice"),
        ({"failures": ["x: Test failure"]}, "failed"),
        ({"out_of_bounds": 3}, "3 values"),
        ({"foreign_column": True}, "column"),
        ({"rows": []}, "no row"),
        ({"rows": [Row(1024, 256, "float", "sum", None, None)]}, "no bus bandwidth"),
        ({"rows": [Row(1024, 256, "float", "sum", Measurement(1e-5, 1e9, 0.0, 0), None)]}, "no bus bandwidth"),
        ({"rows": [ROW, Row(1024, 256, "float", "sum", None, Measurement(1e-5, 1e9, 1e9, 2))]}, "elements"),
    ],
)
def test_rejection_reasons(changes, why):
    run = BenchmarkRun(
        **{"collective": "AllReduce", "ranks": Counter([0, 1]), "hosts": {"a"}, "rows": [ROW], **changes}
    )
    found = rejection_reason(run, "AllReduce")
    assert (found is None) if why is None else (why in found)


def test_failed_tests_and_outputs_of_other_programs():
    run = parse_text(
        b"n: Test NCCL failure common.cu:303 'remote process exited'\n .. n pid 5: Test failure common.cu:401\n"
    )
    assert run.failures == [
        "n: Test NCCL failure common.cu:303 'remote process exited'",
        ".. n pid 5: Test failure common.cu:401",
    ]
    for data in (
        b"    size(B)    count(elems)    type    time:avg(us)\n",
        b'{"identifier": "nccl-tests structured output"}',
    ):
        with pytest.raises(FormatError) as caught:
            parse_text(data)
        assert caught.value.reason == "unsupported"
    with pytest.raises(FormatError) as caught:
        parse_text(b"\n" * (MAX_TEXT + 1))
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize(
    "row",
    [
        "99999999999999999999 1 float sum -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0",
        "1024 256 float sum -1 nan 1.0 1.0 0 1.0 1.0 1.0 0",
        "1024 256 float sum -1 1.0 inf 1.0 0 1.0 1.0 1.0 0",
        "1024 256 float sum -1 1.0 1.0 -1.0 0 1.0 1.0 1.0 0",
        "1024 256 float sum -1 1.0 1.0 1.0 -1 1.0 1.0 1.0 0",
        "1024 256 float sum -1 1.0 1.0 1.0 x 1.0 1.0 1.0 0",
        "1024 256 fl\u00f6at sum -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0",
        "1024 256 float",
        "1024",
        "1" * 4000 + " 2 float",
        "1024 256 float sum -1 1.0 1.0 1.0 0 1.0 1.0",
    ],
)
def test_malformed_row_is_skipped(row):
    run = parse_text(f"{row}\n1024 256 float sum -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0\n".encode())
    assert (len(run.rows), run.bad_rows) == (1, 1)


def test_json_of_other_programs_is_rejected():
    for value, reason in (
        (b"[1]", "invalid"),
        (b"{}", "invalid"),
        (b"", "malformed"),
        (json.dumps({"version": 3}).encode(), "invalid"),
    ):
        with pytest.raises(FormatError) as caught:
            parse_json(value)
        assert caught.value.reason == reason
