"""Tables of perftest: latency and bandwidth of released versions, ends, and what is rejected."""

import pytest

from exporter.nccl.decoding import FormatError
from exporter.nccl.perftest import MAX_TEXT, PerftestRow, is_perftest, parse_perftest
from tests.helpers.benchmark_outputs import bandwidth_table, latency_table, perftest_head

ROCE = ("192.0.2.45", "192.0.2.35")


def parsed(text):
    assert is_perftest(text.encode())
    return parse_perftest(text.encode())


def test_latency_over_infiniband():
    (run,) = parsed(latency_table((0x40, 0x6E), 0.95, p99=1.06))
    assert (run.test, run.link, run.ends) == ("RDMA_Write Latency", "IB", {"local": "LID 64", "remote": "LID 110"})
    assert run.rows == [PerftestRow(2, 1000, None, pytest.approx(0.95e-6), pytest.approx(1.06e-6))]
    assert (run.bad_rows, run.failures) == (0, [])


def test_ends_on_ethernet_are_the_addresses_in_their_gids():
    (run,) = parsed(latency_table(ROCE, 2.5, link="Ethernet"))
    assert run.ends == {"local": "192.0.2.45", "remote": "192.0.2.35"}


def test_ends_with_neither_lid_nor_gid_are_unknown():
    text = latency_table((0x40, 0x6E), 1.0).replace("LID 0x40", "LID 0000").replace("LID 0x6e", "LID 0000")
    (run,) = parsed(text)
    assert run.ends == {}


def test_a_gid_of_infiniband_is_no_other_name_of_the_port():
    gid = " GID: 254:128:00:00:00:00:00:00:148:109:174:03:00:80:07:120"
    (run,) = parsed(latency_table((7, 8), 1.0).replace(" remote address", f"{gid}\n remote address"))
    assert run.ends == {"local": "LID 7", "remote": "LID 8"}


def test_a_test_for_a_time_has_the_mean_only():
    text = perftest_head("RDMA_Read Latency", "IB", (1, 2)) + (
        " #bytes        #iterations       t_avg[usec]    tps average\n"
        " 2             1412325            1.77        565000.12\n"
    )
    (run,) = parsed(text)
    assert run.rows == [PerftestRow(2, 1412325, None, pytest.approx(1.77e-6), None)]


@pytest.mark.parametrize(
    ("unit", "shown", "rate"),
    [("Gb/sec", 392.11, 392.11e9 / 8), ("MB/sec", 23300.33, 23300.33 * 2**20), ("MiB/sec", 100.0, 100 * 2**20)],
)
def test_bandwidth_in_its_units(unit, shown, rate):
    """MB of perftest are 2^20 bytes: "Report Max/Average BW of test in Gbit/sec (instead of MiB/sec)"."""
    (run,) = parsed(bandwidth_table((1, 2), shown, unit=unit))
    assert [(row.size, row.bandwidth, row.latency) for row in run.rows] == [(65536, pytest.approx(rate), None)]


def test_titles_of_variants_and_several_tests_in_a_file():
    text = bandwidth_table((1, 2), 700, test="Send Bidirectional BW") + latency_table((1, 3), 1, test="Send Latency")
    assert [(run.test, len(run.rows), run.ends["remote"]) for run in parsed(text)] == [
        ("Send Bidirectional BW", 1, "LID 2"),
        ("Send Latency", 1, "LID 3"),
    ]


@pytest.mark.parametrize("shown", ["-3.12", "0.00", "nan", "inf", "1e400", "x"])
def test_results_that_are_not_above_zero_are_counted_and_skipped(shown):
    (run,) = parsed(latency_table((1, 2), 1.25).replace("1.25", shown))
    assert (run.rows, run.bad_rows) == ([], 1)


def test_failures_are_kept():
    text = perftest_head("RDMA_Write BW", "IB", (1, 2)) + " #bytes     #iterations\n Completion with error at client\n"
    (run,) = parsed(text)
    assert run.failures == ["Completion with error at client"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"test_info": {}}', "unsupported"),
        (b"{\ntest_info: {\ntest: RDMA_Write_Latency_Test,\n", "unsupported"),
        (b" #bytes #iterations\n 2 1000\n", "invalid"),
        (b" #bytes #iterations" + b" " * MAX_TEXT, "too_large"),
    ],
)
def test_what_is_rejected(data, reason):
    assert is_perftest(data)
    with pytest.raises(FormatError) as error:
        parse_perftest(data)
    assert error.value.reason == reason


def test_other_files_are_not_of_perftest():
    assert not is_perftest(b"#       size         count      type   redop\n")
