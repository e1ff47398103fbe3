"""Outputs of nccl-tests: tables of several releases and launchers, JSON, and rejected baselines."""

import json
from collections import Counter

import pytest

from exporter.nccl import nccl_tests
from exporter.nccl.decoding import FormatError
from exporter.nccl.nccl_tests import (
    MAX_TEXT,
    Baseline,
    BenchmarkRun,
    Measurement,
    Row,
    baseline,
    parse_json,
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
