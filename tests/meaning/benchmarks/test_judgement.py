"""Judgements of benchmarks: medians, pairs, sizes, marks of public checkers, latency, cliffs and baselines."""

import pytest

from exporter.meaning.benchmarks.baseline import network_baseline
from exporter.meaning.benchmarks.judgement import judge
from exporter.meaning.benchmarks.marks import Limits, marks
from exporter.meaning.benchmarks.results import Kind, Point, Run, Tool, Verdict, size_text

MIB, GIB = 1 << 20, 1 << 30
ONE_NODE = Kind(Tool.NCCL, "AllReduce", 8, 1, "float sum")
PAIR = Kind(Tool.NCCL, "AllReduce", 16, 2, "float sum")
WRITE = Kind(Tool.LATENCY, "RDMA_Write Latency", nodes=2, link="IB")


def run(nodes, value, kind=ONE_NODE, size=8 * GIB, **more):
    names = (nodes,) if isinstance(nodes, str) else tuple(sorted(nodes))
    values = value if isinstance(value, dict) else {Point(size): value}
    return Run("+".join(names), names, kind, values, **more)


def bad(runs, limits=None, **flags):
    """Return verdict, check and nodes of what is not fine."""
    found = judge(runs, limits or Limits(**flags))
    return [(one.verdict.value, one.check, "+".join(one.nodes)) for one in found.findings if one.verdict != "ok"]


# --- medians


@pytest.mark.parametrize(("value", "verdict"), [(89.9, "fail"), (90.0, None), (400.0, None)])
def test_below_nine_tenths_of_the_median_a_node_fails(value, verdict):
    runs = [run(f"n{number}", 100.0) for number in range(7)] + [run("odd", value)]
    assert bad(runs) == ([(verdict, "median", "odd")] if verdict else [])


@pytest.mark.parametrize(("others", "verdict"), [(1, "unknown"), (2, "warn"), (3, "warn"), (4, "fail")])
def test_a_median_convicts_from_five_and_is_a_note_from_three(others, verdict):
    found = bad([run("odd", 50.0), *(run(f"n{number}", 100.0) for number in range(others))])
    assert (verdict, "median", "odd") in found


def test_out_of_place_and_in_place_have_medians_of_their_own():
    out, inside = Point(GIB, "out of place"), Point(GIB, "in place")
    runs = [run(f"n{number}", {out: 100.0, inside: 200.0}) for number in range(5)]
    assert bad(runs) == []
    (first, *_) = judge([*runs, run("odd", {out: 100.0, inside: 100.0})], Limits()).findings
    assert (first.verdict, first.point, first.against, first.nodes) == ("fail", inside, 200.0, ("odd",))


@pytest.mark.parametrize(
    "change",
    [{"ranks": 7}, {"test": "AllGather"}, {"numbers": "half sum"}, {"version": "2.18.3"}, {"model": "NVIDIA A100"}],
)
def test_different_kinds_are_not_compared(change):
    runs = [run(f"n{number}", 100.0) for number in range(6)]
    found = bad([*runs, run("odd", 10.0, kind=ONE_NODE._replace(**change))])
    assert found == [("unknown" if "test" in change else "warn", "median", "odd")]


def test_how_a_node_differs_is_named():
    runs = [run(f"n{number}", 100.0) for number in range(6)]
    (first, *_) = judge([*runs, run("odd", 100.0, kind=ONE_NODE._replace(ranks=7))], Limits()).findings
    assert first.reason == "not comparable with 6 nodes: 7 ranks, and not 8"


def test_the_best_of_several_runs_counts_and_a_slow_one_is_a_warning():
    runs = [run(f"n{number}", 100.0) for number in range(6)]
    found = judge([*runs, run("n0", 60.0)], Limits()).findings
    assert [(one.verdict, one.nodes) for one in found if one.verdict != "ok"] == [("warn", ("n0",))]
    assert found[0].reason.startswith("1 of its 2 runs are slow")


# --- sizes


def test_large_sizes_are_judged_and_small_ones_are_not():
    runs = [run(f"n{number}", {Point(64 * MIB): 1.0 if number else 100.0, Point(GIB): 100.0}) for number in range(6)]
    found = judge(runs, Limits())
    assert [one.verdict for one in found.findings] == ["ok"] * 6
    assert found.groups[0].sizes == (GIB,)


def test_without_large_sizes_the_largest_that_all_have_is_judged_and_named():
    sizes = {Point(MIB): 10.0, Point(64 * MIB): 100.0}
    found = judge([run(f"n{number}", sizes) for number in range(5)], Limits())
    assert found.groups[0].sizes == (64 * MIB,)
    assert "that is the largest size that all have; results are sure from 1 GiB, as by -e 8G" in found.groups[0].notes


def test_bandwidth_below_a_mebibyte_is_not_judged():
    assert bad([run(f"n{number}", 1.0 + number, size=65536) for number in range(5)]) == [
        ("unknown", "median", f"n{number}") for number in range(5)
    ]


def test_a_run_without_the_sizes_of_most_is_not_judged():
    whole = {Point(GIB): 100.0, Point(8 * GIB): 100.0}
    runs = [run(f"n{number}", whole) for number in range(6)]
    assert bad([*runs, run("short", {Point(GIB): 10.0})]) == [("unknown", "file", "short")]


def test_if_only_half_of_the_runs_have_a_size_all_are_judged_without_it():
    whole, part = {Point(GIB): 100.0, Point(8 * GIB): 100.0}, {Point(GIB): 100.0}
    found = judge([run(f"n{number}", whole if number % 2 else part) for number in range(6)], Limits())
    assert [one.verdict for one in found.findings] == ["ok"] * 6
    assert found.groups[0].sizes == (GIB,)


# --- pairs


def round_robin(count, slow=frozenset(), value=50.0):
    names = [f"n{number}" for number in range(count)]
    return [
        run((one, other), value if slow & {one, other} else 100.0, kind=PAIR)
        for place, one in enumerate(names)
        for other in names[place + 1 :]
    ]


def test_a_node_that_is_slow_with_all_partners_fails_alone():
    found = bad(round_robin(6, {"n4"}))
    assert [one for one in found if one[0] == "fail"] == [("fail", "node", "n4")]
    assert len(found) == 1 + 5


def test_two_slow_nodes_are_both_named():
    assert [one for one in bad(round_robin(8, {"n1", "n6"})) if one[0] == "fail"] == [
        ("fail", "node", "n1"),
        ("fail", "node", "n6"),
    ]


def test_a_node_that_was_tested_with_bad_partners_only_is_not_convicted():
    fine = round_robin(6)
    worse = [run(pair, 50.0, kind=PAIR) for pair in (("x", "y"), ("x", "z"), ("y", "n0"), ("z", "n1"))]
    named = {nodes for verdict, check, nodes in bad([*fine, *worse]) if check == "node"}
    assert named == {"y", "z"}


def test_a_pair_is_the_same_in_both_directions():
    runs = [*round_robin(4), run(("n1", "n0"), 99.0, kind=PAIR)]
    assert judge(runs, Limits()).groups[0].units.keys() == {
        *(("n0", "n1"), ("n0", "n2"), ("n0", "n3"), ("n1", "n2"), ("n1", "n3"), ("n2", "n3"))
    }
    assert bad(runs) == []


def test_the_end_that_is_fast_elsewhere_is_not_a_suspect():
    runs = [*round_robin(5), run(("n0", "x"), 50.0, kind=PAIR)]
    (first, *_) = judge(runs, Limits()).findings
    assert (first.verdict, first.nodes, first.remedy) == ("fail", ("n0", "x"), "test x with a known-good partner")


# --- marks


def mark_values(kind, size=8 * GIB, **limits):
    return [(one.warn / 1e9, one.fail / 1e9) for one in marks(kind, Point(size), Limits(**limits))]


@pytest.mark.parametrize(
    ("model", "size", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", GIB, [(228, 228), (240, 216)]),
        ("NVIDIA H100 80GB HBM3", 8 * GIB, [(460, 460), (360, 324)]),
        ("NVIDIA H100 80GB HBM3", GIB, [(360, 324)]),
        ("NVIDIA H200", 16 * GIB, [(431, 431), (360, 324)]),
        ("NVIDIA B200", 16 * GIB, [(720, 648)]),
        ("NVIDIA B300 SXM6 AC", 16 * GIB, [(800, 800), (720, 648)]),
        ("AMD Instinct MI300X", 16 * GIB, [(314, 314)]),
        ("NVIDIA H200 NVL", 16 * GIB, []),
        ("NVIDIA A100-PCIE-40GB", 16 * GIB, []),
        ("NVIDIA GB200", 16 * GIB, []),
        ("", 16 * GIB, []),
    ],
)
def test_marks_of_one_node(model, size, expected):
    """Pass marks of public checkers, and 80 % of NVLink (300, 450 and 900 GB/s)."""
    assert mark_values(ONE_NODE._replace(model=model), size) == [pytest.approx(one) for one in expected]


def test_marks_of_one_node_are_for_eight_gpus():
    assert mark_values(ONE_NODE._replace(model="NVIDIA H200", ranks=4)) == []


@pytest.mark.parametrize(
    ("model", "gigabits", "ranks", "nodes", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 400, 16, 2, [320, 440]),
        ("NVIDIA H100 80GB HBM3", 200, 16, 2, [160]),
        ("NVIDIA A100-SXM4-80GB", 200, 16, 2, [160, 185]),
        ("AMD Instinct MI300X", 400, 16, 2, [320, 350]),
        ("NVIDIA GB10", 200, 2, 2, [20]),
    ],
)
def test_marks_between_nodes(model, gigabits, ranks, nodes, expected):
    kind = Kind(Tool.NCCL, "AllReduce", ranks, nodes, model=model)
    line = gigabits * 1e9 / 8
    found = mark_values(kind, 16 * GIB, line=line, achievable=0.8 * line)
    assert [warn for warn, _ in found] == [pytest.approx(one, rel=0.01) for one in expected]
    assert found[0][1] == pytest.approx(0.9 * found[0][0])
    assert mark_values(kind, 16 * GIB) == []  # unknown links


def test_what_links_allow_depends_on_the_size():
    """An AllReduce of 1 MiB takes at least its 2 (n - 1) steps: of 16 ranks on 2 nodes 2 (2 · 14 + 14 · 3.4) µs."""
    (small, _) = mark_values(PAIR, MIB, line=50e9, achievable=40e9)[0]
    seconds = MIB * 1.875 / 320e9 + 2 * (2 * 14e-6 + 14 * 3.4e-6)
    assert small == pytest.approx(MIB * 1.875 / seconds / 1e9)


@pytest.mark.parametrize("test", ["AlltoAll", "SendRecv", "Broadcast", ""])
def test_other_collectives_have_no_mark_of_links(test):
    assert mark_values(PAIR._replace(test=test), line=50e9, achievable=40e9) == []


def test_a_mark_of_ones_own_replaces_the_others():
    kind = ONE_NODE._replace(model="NVIDIA H200")
    assert mark_values(kind, own=300e9) == [(300, 300)]


@pytest.mark.parametrize(("gigabits", "mark"), [(100, 96), (200, 192), (400, 384)])
def test_marks_of_ib_write_bw(gigabits, mark):
    kind = Kind(Tool.LINK, "RDMA_Write BW")
    line = gigabits * 1e9 / 8
    assert mark_values(kind, 65536, line=line) == [pytest.approx((mark / 8, 0.9 * mark / 8))]
    assert mark_values(kind._replace(test="RDMA_Write Bidirectional BW"), 65536, line=line) == []


def test_a_uniformly_slow_fleet_fails_by_its_mark_and_is_noted_without_one():
    slow = [run(f"n{number}", 200e9, kind=ONE_NODE._replace(model="NVIDIA H200")) for number in range(6)]
    assert {verdict for verdict, *_ in bad(slow)} == {"fail"}
    unknown = judge([run(f"n{number}", 200e9) for number in range(6)], Limits())
    assert "if all are equally slow, that is not found" in unknown.groups[0].notes[-1]


# --- latency


@pytest.mark.parametrize(
    ("test", "link", "microseconds", "verdict"),
    [
        ("RDMA_Write Latency", "IB", 0.95, None),
        ("RDMA_Write Latency", "IB", 1.6, "warn"),
        ("RDMA_Write Latency", "Ethernet", 4.9, None),
        ("RDMA_Write Latency", "Ethernet", 5.1, "warn"),
        ("RDMA_Write Latency", "Ethernet", 9.1, "fail"),
        ("RDMA_Read Latency", "IB", 1.9, None),
        ("RDMA_Read Latency", "IB", 6.1, "fail"),
        ("Send Latency", "IB", 2.0, "warn"),
        ("Atomic Latency", "IB", 7.0, "unknown"),
    ],
)
def test_latency_bands(test, link, microseconds, verdict):
    """Write up to 5 µs (9 on GB200), read below 6 µs; usual are 1 µs on InfiniBand and 5 µs on RoCE."""
    kind = Kind(Tool.LATENCY, test, nodes=2, link=link)
    assert [one[0] for one in bad([run(("a", "b"), microseconds * 1e-6, kind=kind, size=2)])] == (
        [verdict] if verdict else []
    )


@pytest.mark.parametrize(("microseconds", "verdict"), [(0.9, None), (1.15, None), (1.25, "warn"), (1.7, "fail")])
def test_latency_of_a_pair_against_the_median(microseconds, verdict):
    runs = [run((f"a{number}", f"b{number}"), 0.8e-6, kind=WRITE, size=2) for number in range(5)]
    found = judge([*runs, run(("a", "b"), microseconds * 1e-6, kind=WRITE, size=2)], Limits())
    assert [one.verdict for one in found.findings if one.check == "median" and one.verdict != "ok"] == (
        [verdict] if verdict else []
    )


def test_latency_is_judged_at_the_smallest_size():
    runs = [run((f"a{number}", f"b{number}"), {Point(2): 0.8e-6, Point(MIB): 30e-6}, kind=WRITE) for number in range(5)]
    assert judge(runs, Limits()).groups[0].sizes == (2,)
    assert bad(runs) == []


def test_a_high_tail_is_a_warning():
    assert bad([run(("a", "b"), 0.8e-6, kind=WRITE, size=2, tail=4.3e-6)]) == [("warn", "tail", "a+b")]
    assert bad([run(("a", "b"), 0.8e-6, kind=WRITE, size=2, tail=4.1e-6)]) == []


# --- cliffs, wrong results


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({8: 16.2, 16: 24.1, 32: 29.5, 64: 5.27, 1024: 5.3}, Verdict.FAIL),
        ({8: 10.0, 64: 20.0, 128: 13.0, 1024: 20.0}, Verdict.WARN),
        ({8: 10.0, 64: 20.0, 128: 15.0, 1024: 20.0}, None),
        ({1: 40.0, 2: 5.0, 8: 10.0, 1024: 20.0}, None),
    ],
)
def test_cliffs_by_size(values, verdict):
    """The first is of nccl#1453: 29.5 GB/s at 32 MiB, 5.27 at 64 MiB. Below 4 MiB protocols change."""
    found = judge([run("a", {Point(size * MIB): value for size, value in values.items()})], Limits())
    cliffs = [one for one in found.findings if one.check == "cliff"]
    assert [one.verdict for one in cliffs] == ([verdict] if verdict else [])
    assert not cliffs or cliffs[0].point.size == (64 if verdict is Verdict.FAIL else 128) * MIB


def test_failed_and_refused_runs_are_in_no_median():
    runs = [run(f"n{number}", 100.0) for number in range(4)]
    wrong = [run("wrong", 1000.0, failed="7 values were wrong"), run("bad", 1000.0, refused="one rank alone")]
    assert bad([*runs, *wrong]) == [("fail", "result", "wrong"), ("unknown", "file", "bad")]
    assert len(judge([*runs, *wrong], Limits()).groups[0].units) == 4


def test_findings_are_sorted_from_the_worst():
    runs = [run(f"n{number}", 100.0) for number in range(5)] + [run("slow", 10.0), run("bad", 1.0, refused="no")]
    assert [one.verdict for one in judge(runs, Limits()).findings] == ["fail", "unknown", *["ok"] * 5]


# --- baseline


def test_the_baseline_is_the_median_over_the_most_nodes():
    four = PAIR._replace(ranks=32, nodes=4)
    runs = [run(("a", "b"), 440.0, kind=PAIR)]
    runs += [run((f"{number}", "b", "c", "d"), value, kind=four) for number, value in enumerate((370.0, 377.0, 382.0))]
    assert network_baseline(runs, ()) == {("AllReduce", 8 * GIB): (377.0, 32, 4)}
    assert network_baseline(runs, {runs[1].source}) == {("AllReduce", 8 * GIB): (379.5, 32, 4)}


def test_the_baseline_has_results_out_of_place_and_none_of_one_node():
    values = {Point(GIB, "in place"): 90.0, Point(GIB, "out of place"): 80.0, Point(2 * GIB, "in place"): 95.0}
    runs = [run(("a", "b"), values, kind=PAIR), run("a", 470.0)]
    assert network_baseline(runs, ()) == {("AllReduce", GIB): (80.0, 16, 2), ("AllReduce", 2 * GIB): (95.0, 16, 2)}


@pytest.mark.parametrize(
    ("size", "text"), [(8 * GIB, "8 GiB"), (64 * MIB, "64 MiB"), (4096, "4 KiB"), (12000000, "12000000 B"), (2, "2 B")]
)
def test_sizes_are_shown_in_their_units(size, text):
    assert size_text(size) == text
