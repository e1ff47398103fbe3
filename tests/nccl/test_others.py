"""Files of xpu_timer and CoMMA, and the arithmetic of bandwidths."""

from collections import Counter

import pytest

from exporter.core.collectives import (
    KINDS,
    algorithm_bytes,
    bus_factor,
    known_kind,
)
from exporter.nccl import comma
from exporter.nccl.decoding import FormatError
from exporter.nccl.prometheus_text import LineErrors
from exporter.nccl.xpu_timer import XpuTiming, parse_timings
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "nccl-formats"


def test_xpu_timer_times_bandwidths_and_hangs():
    lost = LineErrors()
    found = list(parse_timings((FOLDER / "xpu_timer.prom").read_bytes(), lost))
    of_job = {"rank": 9, "local_rank": 1, "job": "j", "pod": "p", "address": "10.0.0.1"}
    of_kernel = {"level": 3, "transport": "InterNode", "algorithm": "RING_LL"}
    assert found == [
        XpuTiming("time", "mean", pytest.approx(370e-6), "AllReduce", 3, 9, 1, "", "", "", "InterNode", "RING_LL"),
        XpuTiming("time", "p99", pytest.approx(1370e-6), "AllReduce", **of_kernel, **of_job),
        XpuTiming("bandwidth", "", 45.5e9, "AllGather", **of_kernel, **of_job),
        XpuTiming("hang", "", 1.0, "", level=None, transport="", algorithm="", **of_job),
    ]
    assert lost.reasons == Counter({"invalid": 1}), "the hang of no rank"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'XPU_TIMER_COMMON_HANG{rank="1"} 2', "invalid"),
        (b'XPU_TIMER_COMMON_HANG{rank="-1"} 1', "invalid"),
        (b'XPU_TIMER_COMMON_HANG{rank="9999999999"} 1', "invalid"),
        (b'XPU_TIMER_COLL_KERNEL_AVG_LATENCY{rank="1"} -5', "invalid"),
        (b'XPU_TIMER_COLL_KERNEL_BANDWIDTH{rank="1"} 1e30', "invalid"),
        (b"some_other_metric 1", "unknown"),
    ],
)
def test_implausible_xpu_timer_lines_are_counted(line, reason):
    lost = LineErrors()
    assert list(parse_timings(line + b"\n", lost)) == []
    assert lost.reasons == Counter({reason: 1})


def test_comma_uses_child_duration_not_enqueue_time():
    lost = Counter()
    first, second = comma.parse_events((FOLDER / "comma.json").read_bytes(), lost)
    assert lost == Counter({"other_category": 1, "invalid": 1})
    assert (first.kind, first.communicator, first.rank, first.sequence) == ("AllReduce", "0x58", 2, 57)
    assert (first.microseconds, first.arguments.size, first.pid) == (140, 4096, 169)
    assert (second.kind, second.microseconds) == ("ReduceScatter", None)


def test_truncated_comma_list_is_parsed_up_to_its_end():
    lost = Counter()
    (first,) = comma.parse_events((FOLDER / "comma-truncated.json").read_bytes(), lost)
    assert first.sequence == 57
    assert lost == Counter({"malformed": 1})


def test_oversized_comma_file_is_rejected(monkeypatch):
    monkeypatch.setattr(comma, "MAX_FILE", 10)
    with pytest.raises(FormatError) as caught:
        list(comma.parse_events(b"[" + b" " * 20, Counter()))
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize(
    ("kind", "n_ranks", "factor"),
    [
        ("AllReduce", 2, 1.0),
        ("AllReduce", 16, 1.875),
        ("AllGather", 8, 0.875),
        ("ReduceScatter", 8, 0.875),
        ("AlltoAll", 4, 0.75),
        ("Gather", 4, 0.75),
        ("Scatter", 4, 0.75),
        ("Broadcast", 64, 1.0),
        ("Reduce", 64, 1.0),
        ("SendRecv", 2, 1.0),
        ("AllReduce", 1, None),
        ("AllReduce", 0, None),
        ("Barrier", 8, None),
        ("other", 8, None),
    ],
)
def test_bus_factors_equal_those_of_nccl_tests(kind, n_ranks, factor):
    assert bus_factor(kind, n_ranks) == factor


def test_bandwidths_of_published_records():
    # what Inspector itself printed beside the time, and what nccl-tests printed
    assert algorithm_bytes("ReduceScatter", 2147483648, 8) / 41057e-6 == pytest.approx(418.439467e9)
    assert bus_factor("ReduceScatter", 8) * 8 * 2147483648 / 41057e-6 == pytest.approx(366.134533e9)
    assert bus_factor("AllReduce", 8) * 17179869184 / 61974e-6 == pytest.approx(485.119099e9)
    assert bus_factor("AllReduce", 16) * 17179869184 / 68359e-6 == pytest.approx(471.22e9, rel=1e-4)


def test_every_kind_maps_to_itself():
    assert [known_kind(kind) for kind in KINDS] == list(KINDS)
    assert len(KINDS) == 12
