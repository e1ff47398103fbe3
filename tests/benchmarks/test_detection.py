"""The measurement of docs/detection.md: what it writes for promtool, what it counts as right, and one short run."""

from itertools import islice, pairwise

import pytest

from benchmarks.detection.runs import AlertSeen, Evidence, Outcome, Plan, evidence_in, plans, run, scrape_times
from benchmarks.detection.shipped_rules import RecordedSeries, alerts_of, notation, parse_answers
from benchmarks.detection.table import false_alarms, found_in, tables
from benchmarks.detection.truth import ALERTS, SIGNS, Target, is_shown
from benchmarks.detection.virtual_fabric import Scrape
from exporter.daemon.sources import metrics
from exporter.simulator.fabric.fault_table import KINDS
from tests.alerts.test_alerts import ALERTS as SHIPPED


def test_each_fault_has_shipped_alerts():
    assert ALERTS.keys() == KINDS.keys()
    assert frozenset().union(*ALERTS.values()) <= SHIPPED


# --- what promtool reads and prints


def test_missing_scrapes_are_no_samples_and_a_series_that_ends_is_stale():
    assert notation({1: "5", 2: "6", 5: "7"}, [1, 2, 3, 5]) == "_x1 5 6 stale _x1 7"
    assert notation({3: "1"}, [1, 3]) == "_x1 _ _x1 1"


def test_series_have_the_labels_that_prometheus_attaches():
    series = RecordedSeries({"up", "fabric_a"}, 30)
    series.add(30.0, {"gpu-001": ['fabric_a{port="1"} 2', "fabric_b 3"], "poller": None})
    attached = 'job="fabric-exporter",instance="{}:10315",fabric="demo"'
    assert dict(series.input_series()) == {
        f'fabric_a{{{attached.format("gpu-001")},port="1"}}': "_x1 2",
        f"up{{{attached.format('gpu-001')}}}": "_x1 1",
        f"up{{{attached.format('poller')}}}": "_x1 0",
    }


PRINTED = """Unit Testing:  case.yml
  FAILED:
    expr: "min_over_time(timestamp(up)[600s:15s])", time: 9m45s,
        exp: {__name__="asked"} -1E+00
        got: {host="a, \\"b\\"", port="1"} 1.5E+01, {} 3E+01
    expr: "other", time: 1m,
        exp: {__name__="asked"} -1E+00
        got: nil
"""


def test_answers_of_promtool_are_read():
    assert parse_answers(PRINTED) == {
        "min_over_time(timestamp(up)[600s:15s])": {(("host", 'a, "b"'), ("port", "1")): 15.0, (): 30.0},
        "other": {},
    }


@pytest.mark.slow
def test_alerts_have_the_times_that_promtool_gives_them(program):
    series = RecordedSeries({"up", "fabric_collector_connected"}, 30)
    for place in range(1, 21):
        series.add(place * 30.0, {"collector": [f"fabric_collector_connected {int(place < 6)}"]})
    found = [one for one in alerts_of(series, program("promtool")) if one.labels["alertname"] != "FabricSourceStale"]
    (alert,) = found
    # max_over_time of 3 m: the last 1 is at 150 s, so that it is true from 360 s on, as the range includes its begin
    # in Prometheus 2; for 2 m.
    assert alert.labels["alertname"] == "FabricCollectorDisconnected"
    assert alert.true in {330.0, 360.0}
    assert alert.fired == alert.true + 120
    assert alert.last == 600.0


# --- runs


def test_each_round_has_every_fault_and_an_hour_without():
    first, second = list(islice(plans(1), 58))[:29], list(islice(plans(1), 58))[29:]
    assert [one.fault for one in first] == [one.fault for one in second] == [*KINDS, "healthy"]
    assert first == list(islice(plans(1), 29))
    assert {one.target for one in first} != {one.target for one in second}
    assert first[-1].faults == []
    assert first[-1].seconds == 3600.0


def test_scrapes_are_dense_after_the_onset():
    plan = Plan(1, "late-rank", "5", 310.0, 900.0)
    times = list(scrape_times(plan))
    assert [time for time in times if time <= 330] == [60.0, 120.0, 180.0, 240.0, 300.0, 330.0]
    assert {later - earlier for earlier, later in pairwise(times) if earlier >= 480} == {60.0}
    assert {later - earlier for earlier, later in pairwise(times) if 300 <= earlier < 480} == {30.0}


def test_evidence_is_read_from_the_page_of_the_collector():
    lines = [
        'fabric_nccl_verdict{train_job="demo",verdict="fine"} 0',
        'fabric_nccl_verdict{train_job="demo",verdict="straggler"} 1',
        'fabric_nccl_straggler{train_job="demo",rank="5"} 1',
        'fabric_nccl_cause_confidence{train_job="demo",cause="compute"} 0.3',
        'fabric_nccl_cause_confidence{train_job="demo",cause="link_down",name="gpu-001",port="mlx5_3:1"} 0.5',
    ]
    states = [("gpu-001", "mlx5_3:1", "link_down")]
    assert evidence_in(Plan(1, "late-rank", "5", 30.0, 90.0), Scrape(60.0, {"collector": lines}, states)) == Evidence(
        60.0,
        False,
        (("gpu-001", "mlx5_3:1", "link_down"),),
        "straggler",
        ("5",),
        (("link_down", "gpu-001", "mlx5_3:1", 0.5), ("compute", "", "", 0.3)),
    )


# --- what is right


@pytest.mark.parametrize(
    ("fault", "target", "labels", "right"),
    [
        ("link-down", "gpu-001/3", {"host": "gpu-001", "device": "mlx5_3", "netdev": "eth5", "rail": "3"}, True),
        ("link-down", "gpu-001/3", {"host": "gpu-001", "device": "mlx5_2", "netdev": "eth4", "rail": "2"}, False),
        ("link-down", "gpu-001/3", {"host": "gpu-001"}, True),  # of the host's ports
        ("link-down", "gpu-001/3", {"host": "gpu-002"}, False),
        ("link-down", "gpu-001/3", {"switch": "leaf-01", "port": "Ethernet1/7"}, True),  # its other end
        ("link-down", "gpu-001/3", {"switch": "leaf-01", "port": "Ethernet1/8"}, False),
        ("slow-pcie", "gpu-001/0", {"host": "gpu-001", "pci": "0000:18:00.0", "devices": "eth2,mlx5_0"}, True),
        ("degraded-link", "leaf-02/spine-02", {"switch": "spine-02", "port": "Ethernet1/2"}, True),
        ("degraded-link", "leaf-02/spine-02", {"switch": "spine-02", "port": "Ethernet1/1"}, False),
        ("one-spine", "spine-02", {"switch": "leaf-03"}, True),
        ("spine-gone", "spine-02", {"switch": "leaf-01", "port": "Ethernet1/10"}, True),
        ("short-pauses", "gpu-003", {"host": "gpu-003", "device": "eth4", "rail": "2"}, True),
        ("late-rank", "5", {"rank": "5"}, True),
        ("late-rank", "5", {"rank": "6"}, False),
        ("late-host", "gpu-002", {"rank": "8"}, True),
        ("tcp", "", {"host": "gpu-002", "train_job": "demo"}, True),
        ("hanging-process", "5", {"train_job": "demo"}, True),
    ],
)
def test_labels_name_the_target(fault, target, labels, right):
    assert Target(fault, target).is_named_by(labels) is right


def test_ports_of_onyx_have_short_names():
    target = Target("degraded-link", "leaf-02/spine-02")
    assert target.is_named_by({"switch": "leaf-02", "port": "Eth1/10"})
    assert target.is_cause("link_degraded", "leaf-02", "Eth1/10", ())
    assert not target.is_cause("link_degraded", "leaf-02", "Eth1/9", ())


@pytest.mark.parametrize(
    ("fault", "target", "pages", "shown"),
    [
        ("tcp", "", {"gpu-001": ['fabric_job_rdma_ratio{train_job="demo",host="gpu-001"} 0.01']}, True),
        ("tcp", "", {"gpu-001": ['fabric_job_rdma_ratio{train_job="demo",host="gpu-001"} 1.2']}, False),
        ("switch-silent", "leaf-02", {"poller": ['fabric_switch_up{switch="leaf-02",target="leaf-02"} 0']}, True),
        ("switch-silent", "leaf-02", {"poller": ['fabric_switch_up{switch="leaf-01",target="leaf-01"} 0']}, False),
        ("hanging-process", "5", {"collector": ['fabric_nccl_verdict{train_job="demo",verdict="hang"} 1']}, True),
        ("hanging-process", "5", {"collector": ['fabric_nccl_verdict{train_job="demo",verdict="fine"} 1']}, False),
        ("poller-gone", "", {"poller": None, "gpu-001": []}, True),
        ("late-rank", "5", {"collector": []}, False),
    ],
)
def test_metrics_show_a_fault(fault, target, pages, shown):
    assert is_shown(fault, target, pages) is shown


def test_signs_are_metrics_that_exist():
    assert {one.metric for one in SIGNS.values()} - {"up"} <= {metric.name for metric in metrics()}
    assert SIGNS.keys() < KINDS.keys()


def test_a_cause_is_at_either_end_of_a_link():
    target = Target("link-down", "gpu-001/3")
    causes = [("gpu-001", "mlx5_3:1"), ("gpu-001", "eth5"), ("leaf-01", "Ethernet1/7")]
    assert all(target.is_cause("link_down", *cause, ()) for cause in causes)
    others = [("gpu-001", "mlx5_2:1"), ("", ""), ("leaf-01", "")]
    assert not any(target.is_cause("link_down", *cause, ()) for cause in others)


@pytest.mark.parametrize(
    ("fault", "target", "cause", "stragglers", "right"),
    [
        ("tcp", "", ("no_rdma", "gpu-003", ""), (), True),
        ("tcp", "", ("unknown", "", ""), (), False),
        ("gpudirect-off", "gpu-002", ("gdr_off", "gpu-002", ""), (), True),
        ("gpudirect-off", "gpu-002/3", ("gdr_off", "gpu-002", ""), (), True),
        ("gpudirect-off", "gpu-002/3", ("gdr_off", "gpu-001", ""), (), False),
        ("late-rank", "5", ("compute", "", ""), ("5",), True),
        ("late-rank", "5", ("compute", "", ""), ("5", "6"), False),
        ("late-rank", "5", ("compute", "", ""), (), False),
        ("late-host", "gpu-002", ("compute", "", ""), tuple(map(str, range(8, 16))), True),
        ("hanging-process", "5", ("process", "", ""), ("7",), False),
        ("rotating-late-rank", "", ("work", "", ""), (), True),
    ],
)
def test_a_cause_without_a_port_is_right_by_its_kind_and_its_ranks(fault, target, cause, stragglers, right):
    assert Target(fault, target).is_cause(*cause, stragglers) is right


def alert(name, true, fired, severity="warning", **labels):
    return AlertSeen({"alertname": name, "severity": severity, **labels}, true, fired, 900.0)


OUTCOME = Outcome(
    Plan(1, "degraded-link", "gpu-001/3", 300.0, 900.0),
    [
        alert("FabricLinkDegraded", 400.0, 700.0, host="gpu-001", rail="3"),
        alert("FabricLinkDegraded", 390.0, 690.0, host="gpu-001", rail="4"),
        alert("FabricJobPortFaulty", 380.0, 380.0, severity="info", host="gpu-002"),
        alert("FabricSwitchDown", 100.0, 220.0, switch="leaf-02"),
    ],
    [
        Evidence(60.0, False, (), "fine", (), ()),
        Evidence(
            360.0,
            False,
            (),
            "network_bound",
            (),
            (("slow", "leaf-01", "Ethernet1/1", 0.5), ("slow", "gpu-001", "eth5", 0.4)),
        ),
    ],
)


def test_what_a_run_shows():
    found = found_in(OUTCOME)
    assert (found.evidence, found.page, found.severity) == (60.0, 400.0, "warning")
    assert (found.right, found.elsewhere, found.causes, found.place) == (1, 1, True, 2)


def test_alerts_before_the_onset_are_false_alarms():
    assert false_alarms([OUTCOME]) == (300 / 3600, 0.0, {"FabricSwitchDown": 1})


def test_the_table_has_a_row_for_each_fault_that_was_simulated():
    text = tables([OUTCOME])
    assert "| degraded-link | 1 | 60 s (60 s) | 400 s (400 s) | warning | 100% | 50% | 0% |" in text
    assert "False alarms in 0.1 hours before faults and 0.0 hours without any: FabricSwitchDown (1)." in text
    assert "late-rank" not in text


@pytest.mark.slow
def test_a_late_rank_is_found_in_a_short_run(program):
    program("promtool")
    found = run(Plan(1, "late-rank", "5", 120.0, 300.0))
    assert any(one.stragglers == ("5",) for one in found.evidence)
    assert [one for one in found.alerts if one.fired is not None] == []
