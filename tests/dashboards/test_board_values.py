"""Values of the boards' queries: what is over is not red, what is gone is there, and panels about one thing agree."""

from pathlib import Path

import pytest
import yaml

from tests.dashboards.test_dashboards import PANELS, RDMA_PORTS, substituted
from tests.helpers import promtool
from tests.helpers.paths import ROOT

HOST = 'job="fabric",instance="gpu-001"'
PORT = f'{HOST},device="mlx5_0",port="1"'
SECOND = f'{HOST},device="mlx5_1",port="1"'
POLLER = 'job="fabric",instance="poller"'

INFO = {
    f'fabric_rdma_info{{{PORT},host="gpu-001",rail="0",netdev="eth0",mac="02:00:00:00:00:01"}}': "1x30",
    f"fabric_exporter_build_info{{{HOST}}}": "1x30",
}


def query(panel: str, title: str = "") -> str:
    """Return the query of a panel, or that of one of its columns."""
    one = PANELS[panel]
    names = one["transformations"][-1]["options"]["renameByName"] if title else {"Value #A": ""}
    (letter,) = [value.removeprefix("Value #") for value, name in names.items() if name == title]
    (target,) = [target for target in one["targets"] if target["refId"] == letter]
    return substituted(target["expr"])


def check(
    program: str,
    folder: Path,
    series: dict[str, str],
    expected: list[tuple[str, str, list]],
    rules: tuple[str, ...] = (),
) -> None:
    """See what queries return at a time, with a value of each series a minute and these groups of the rules: samples by
    labels.
    """
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"] if rules else []
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [one for one in groups if one["name"] in rules]}))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": time,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
            }
            for expr, time, samples in expected
        ],
    }
    (folder / "case.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]})
    )
    promtool.run(program, "test", "rules", folder / "case.yml")


ROW = '{rail="0",device="mlx5_0",port="1",netdev="eth0"}'


@pytest.mark.parametrize(
    ("column", "counter"),
    [
        ("Flaps", f"fabric_rdma_link_down_total{{{PORT}}}"),
        ("FEC lost", f'fabric_nic_fec_uncorrectable_blocks_total{{{HOST},device="eth0"}}'),
    ],
)
def test_what_ended_is_no_number_and_later_nothing(program, tmp_path, column, counter):
    """One event a minute until the tenth; a value of -1 is the grey word "ended"."""
    expr = query(RDMA_PORTS, column)
    expected = [(expr, time, [(ROW, value)]) for time, value in (("10m", 2), ("14m", -1), ("19m", -1))]
    check(program("promtool"), tmp_path, INFO | {counter: "0+1x10 10x20"}, [*expected, (expr, "25m", [])])


def test_a_link_that_is_down_has_no_rates(program, tmp_path):
    """Those of the last minutes are of the time before. One that is up has them."""
    series = INFO | {
        f'fabric_rdma_info{{{SECOND},host="gpu-001",rail="1",netdev="eth1",mac="02:00:00:00:00:02"}}': "1x30",
        f"fabric_rdma_link_up{{{PORT}}}": "1x10 0x20",
        f"fabric_rdma_link_up{{{SECOND}}}": "1x30",
    }
    for port, device in ((PORT, "eth0"), (SECOND, "eth1")):
        series[f"fabric_rdma_retransmission_ratio{{{port}}}"] = "0.5x30"
        for way in ("transmit", "receive"):
            series[f"fabric_rdma_{way}_utilization_ratio{{{port}}}"] = "0.5x30"
            series[f'device:fabric_nic_{way}_paused_seconds:rate{{{HOST},device="{device}"}}'] = "0.5x30"
    second = ROW.replace("0", "1", 2).replace("eth0", "eth1")
    expected = []
    for column in ("Transmit", "Receive", "Paused", "Pausing", "Retrans."):
        expr = query(RDMA_PORTS, column)
        expected += [(expr, "9m", [(ROW, 0.5), (second, 0.5)]), (expr, "12m", [(second, 0.5)])]
    check(program("promtool"), tmp_path, series, expected)


@pytest.mark.parametrize(("downs", "flapping"), [("0x10 1x20", 0), ("0x8 1x2 2x20", 1)])
def test_a_link_that_went_down_once_does_not_flap(program, tmp_path, downs, flapping):
    series = INFO | {f"fabric_rdma_link_down_total{{{PORT}}}": downs}
    expr = query("fabric-host-Links flapping")
    expected = [(expr, "12m", [("{}", flapping)]), (expr, "25m", [("{}", 0)])]
    check(program("promtool"), tmp_path, series, expected)


def test_what_ended_is_grey():
    found = 0
    for panel in PANELS.values():
        for override in panel["fieldConfig"]["overrides"]:
            properties = {one["id"]: one["value"] for one in override["properties"]}
            words = [one["options"].get("-1") for one in properties.get("mappings", ()) if one["type"] == "value"]
            if words and words[0] and words[0]["text"] == "ended":
                found += 1
                assert words[0]["color"] == "#8e949b"
                assert "thresholds" in properties, "what is now has the colour of its limits"
    assert found == 7


def test_an_adapter_that_is_gone_is_a_row_with_its_last_switch_port(program, tmp_path):
    """Where ports are missing; one that was replaced by another is forgotten."""
    info = f'fabric_rdma_info{{{SECOND},host="gpu-001",rail="1",netdev="eth1",mac="02:00:00:00:00:02"}}'
    seen = f"switch_port:fabric_link_info:seen{{{POLLER}"
    series = INFO | {
        info: "1x10 _x20",
        f"fabric_rdma_link_up{{{PORT}}}": "1x10 0x20",
        f"fabric_rdma_link_up{{{SECOND}}}": "1x10 _x20",
        f"host:fabric_rdma_ports_ready:missing{{{HOST}}}": "0x10 1x15 0x5",
        f'{seen},mac="02:00:00:00:00:01",switch="leaf-1",switch_port="7"}}': "600x30",
        f'{seen},mac="02:00:00:00:00:02",switch="leaf-2",switch_port="7"}}': "600x30",
    }
    link = query(RDMA_PORTS, "Link")
    place = substituted(PANELS[RDMA_PORTS]["targets"][-1]["expr"])
    second = ROW.replace("0", "1", 2).replace("eth0", "eth1").replace("mlx5_0", "mlx5_1")
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (link, "9m", [(ROW, 1), (second, 1)]),
            (link, "20m", [(ROW, 0), (second, -1)]),
            (link, "28m", [(ROW, 0)]),
            (
                place,
                "20m",
                [
                    (f'{ROW[:-1]},switch="leaf-1",switch_port="7"}}', 600),
                    (f'{second[:-1]},switch="leaf-2",switch_port="7"}}', 600),
                ],
            ),
        ],
    )


def test_a_job_that_is_slower_than_it_was_is_not_fine(program, tmp_path):
    """Since the last time that it was as fast; others since their verdict. The tiles count the rows of the table."""
    series = {}
    for job, ratios, verdict in (
        ("a", "1.02x4 1.21x25", "fine"),
        ("b", "1.02x30", "fine"),
        ("c", "1.3x30", "straggler"),
    ):
        of = f'job="fabric",instance="collector",train_job="{job}"'
        series[f'fabric_nccl_regression_ratio{{{of},measure="step_time"}}'] = ratios
        series[f"fabric_nccl_verdict_seconds{{{of}}}"] = "60x30"
        for one in ("fine", "straggler"):
            series[f'fabric_nccl_verdict{{{of},verdict="{one}"}}'] = f"{int(one == verdict)}x30"
    since = query("fabric-training-Verdicts", "Since")
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (
                since,
                "9m",
                [
                    ('{train_job="a",verdict="slower"}', 1000 * (4 * 60 + 30)),
                    ('{train_job="b",verdict="fine"}', 1000 * (9 - 1) * 60),
                    ('{train_job="c",verdict="straggler"}', 1000 * (9 - 1) * 60),
                ],
            ),
            (
                query(CAUSES, "Since"),
                "9m",
                [
                    ('{row="a",train_job="a",cause="its steps, not the network"}', 1000 * (4 * 60 + 30)),
                    ('{row="c",train_job="c",cause="its steps, not the network"}', 1000 * (9 - 1) * 60),
                ],
            ),
            (query("fabric-training-Slow, or with an alert"), "9m", [('{worst="no critical alert"}', 1)]),
            *((query(f"fabric-training-{title}"), "9m", [("{}", 1)]) for title in ("Fine", "Waiting for ranks")),
            *((query(f"fabric-training-{title}"), "9m", [("{}", 0)]) for title in ("Hanging", "Network-bound")),
        ],
    )


def test_a_job_that_an_alert_names_is_not_fine(program, tmp_path):
    """One on TCP has always been as slow, so that nothing in its timings shows it."""
    of = 'job="fabric",instance="collector",train_job="a"'
    on_tcp = {firing("critical", "cause", "FabricJobOnTcp", train_job="a", host=f"gpu-00{n}"): "120x30" for n in (1, 2)}
    ranks = {f'host:fabric_nccl_job:info{{host="gpu-00{n}",train_job="a"}}': "1x30" for n in (1, 2)}
    judged = {f'fabric_nccl_verdict{{{of},verdict="fine"}}': "1x30", f"fabric_nccl_verdict_seconds{{{of}}}": "60x30"}
    verdict, cause = 'train_job="a",verdict="critical_alert"', 'row="a/FabricJobOnTcp"'
    check(
        program("promtool"),
        tmp_path,
        on_tcp | ranks | judged,
        [
            (query("fabric-training-Verdicts", "Since"), "9m", [(f"{{{verdict}}}", 120_000)]),
            (
                f"0 * {detail('fabric-training-Verdicts', 'first_cause')}",
                "9m",
                [(f'{{{verdict},first_cause="FabricJobOnTcp all hosts"}}', 0)],
            ),
            (query("fabric-training-Fine"), "9m", [("{}", 0)]),
            (query("fabric-training-Slow, or with an alert"), "9m", [('{worst="critical alert"}', 1)]),
            (query(CAUSES, "Since"), "9m", [(f'{{{cause},train_job="a",cause="FabricJobOnTcp"}}', 120_000)]),
            (f"0 * {detail(CAUSES, 'place')}", "9m", [(f'{{{cause},place="all hosts"}}', 0)]),
            (detail(CAUSES, "host, device"), "9m", []),
        ],
    )


@pytest.mark.parametrize(
    ("severity", "verdict", "labels", "color"),
    [
        ("critical", "critical_alert", '{worst="critical alert"}', "red"),
        ("warning", "alert", '{worst="no critical alert"}', "orange"),
    ],
)
def test_a_job_with_a_critical_alert_is_red_and_one_with_a_warning_orange(
    program, tmp_path, severity, verdict, labels, color
):
    of = 'job="fabric",instance="collector",train_job="a"'
    series = {
        firing(severity, "cause", "FabricJobOnTcp", train_job="a", host="gpu-001"): "120x30",
        f'fabric_nccl_verdict{{{of},verdict="fine"}}': "1x30",
        f"fabric_nccl_verdict_seconds{{{of}}}": "60x30",
    }
    tile, verdicts = "fabric-training-Slow, or with an alert", "fabric-training-Verdicts"
    expected = [
        (query(verdicts, "Since"), "9m", [(f'{{train_job="a",verdict="{verdict}"}}', 120_000)]),
        (query(tile), "9m", [(labels, 1)]),
    ]
    check(program("promtool"), tmp_path, series, expected)
    assert colors_of(verdicts, "verdict")[verdict] == color
    field = PANELS[tile]["fieldConfig"]
    by_name = {
        override["matcher"]["options"]: one["value"]
        for override in field["overrides"]
        for one in override["properties"]
        if one["id"] == "thresholds"
    }
    drawn = by_name.get(labels.partition('"')[2].partition('"')[0], field["defaults"]["thresholds"])
    assert [step["color"] for step in drawn["steps"] if step["value"] == 1][-1] == color


def colors_of(panel: str, column: str) -> dict[str, str]:
    """Return the colours of the texts of a column."""
    return {
        text: look["color"]
        for override in PANELS[panel]["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == column
        for one in override["properties"]
        if one["id"] == "mappings"
        for mapping in one["value"]
        if mapping["type"] == "value"
        for text, look in mapping["options"].items()
    }


@pytest.mark.parametrize(("verdict", "shown"), [("hang", False), ("not_enough_data", False), ("straggler", True)])
def test_a_bandwidth_is_that_of_now(program, tmp_path, verdict, shown):
    """In a hang nothing is measured: the last value is old."""
    of = 'job="fabric",instance="collector",train_job="a"'
    series = {
        f'fabric_nccl_verdict{{{of},verdict="{verdict}"}}': "0x9 1x20",
        f'fabric_nccl_verdict{{{of},verdict="fine"}}': "1x9 0x20",
        f"fabric_nccl_network_ratio{{{of}}}": "0.9x30",
        f'fabric_nccl_bus_bandwidth_bytes_per_second{{{of},collective="AllReduce"}}': "4e10x30",
    }
    job = '{train_job="a"}'
    column = query("fabric-training-Verdicts", "Bandwidth, of expected")
    expected = [(column, "5m", [('{train_job="a",verdict="fine"}', 0.9)])]
    expected.append((column, "20m", [(f'{{train_job="a",verdict="{verdict}"}}', 0.9)] if shown else []))
    for expr, value in (
        (query("fabric-training-Bandwidth, of expected"), 0.9),
        (query("fabric-overview-Job bandwidth, of expected"), 0.9),
        (query("fabric-training-Bandwidth between nodes, of the expected one"), 0.9),
        (query("fabric-training-Bus bandwidth"), 4e10),
    ):
        expected += [(expr, "5m", [(job, value)]), (expr, "20m", [(job, value)] if shown else [])]
    check(program("promtool"), tmp_path, series, expected)


def test_words_of_causes_have_no_colour():
    """By default the lowest threshold is green, which "none found" must not be."""
    for panel, column in ((CAUSES, "cause"), ("fabric-training-Verdicts", "first_cause")):
        (steps,) = [
            one["value"]["steps"]
            for override in PANELS[panel]["fieldConfig"]["overrides"]
            if override["matcher"]["options"] == column
            for one in override["properties"]
            if one["id"] == "thresholds"
        ]
        assert [step["color"] for step in steps] == ["text"]


CAUSES = "fabric-training-Likely causes"


def detail(panel: str, labels: str) -> str:
    """Return the query of a table for labels of its rows, the last ones that it groups by."""
    exprs = [substituted(one["expr"]) for one in PANELS[panel]["targets"]]
    (found,) = [one for one in exprs if one.partition("max by (")[2].partition(")")[0].endswith(f", {labels}")]
    return found


def test_a_cause_that_several_hosts_have_alike_is_that_of_none(program, tmp_path):
    of = 'job="fabric",instance="collector",train_job="a"'
    cause = f'fabric_nccl_cause_confidence{{{of},port="",peer="",peer_port="",cause='
    series = {
        f'{cause}"tcp_only",name="gpu-001"}}': "0.9x30",
        f'{cause}"tcp_only",name="gpu-002"}}': "_x10 0.9x20",
        f'{cause}"adapters_unused",name="gpu-003"}}': "0.5x30",
        f'fabric_nccl_verdict{{{of},verdict="network_bound"}}': "1x30",
    }
    expr = detail("fabric-training-Verdicts", "first_cause")
    row = 'train_job="a",verdict="network_bound"'
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (f"0 * {expr}", "5m", [(f'{{{row},first_cause="tcp_only gpu-001"}}', 0)]),
            (f"0 * {expr}", "20m", [(f'{{{row},first_cause="tcp_only several places"}}', 0)]),
        ],
    )


def firing(severity: str, role: str, name: str, **labels: str) -> str:
    """Return the record of an alert."""
    job = labels.get("train_job", "")
    every = {"severity": severity, "role": role, "alertname": name} | labels
    every["row"] = f"{severity}/{role}/{name}/{job}"
    return (
        f"alert:fabric_active:since{{{','.join(f'{key}={chr(34)}{value}{chr(34)}' for key, value in every.items())}}}"
    )


def test_alerts_of_one_name_are_one_row_and_the_tiles_count_rows(program, tmp_path):
    ranks = {f'host:fabric_nccl_job:info{{host="gpu-00{number}",train_job="a"}}': "1x30" for number in (1, 2, 3)}
    on_tcp = {
        firing("critical", "cause", "FabricJobOnTcp", train_job="a", host=f"gpu-00{n}"): f"{n}x30" for n in (1, 2, 3)
    }
    unused = {
        firing("warning", "cause", "FabricJobAdaptersUnused", train_job="a", host=f"gpu-00{n}"): f"{10 + n}x30"
        for n in (1, 2)
    }
    one = firing("warning", "cause", "FabricLinkErrors", switch="leaf-4", port="7")
    down = {
        firing("warning", "cause", "FabricSwitchDown", switch=f"leaf-{n}"): f"{since}x30"
        for n, since in ((1, 10), (2, 11), (3, 9), (4, 12))
    }
    muted = firing("warning", "consequence", "FabricRailImbalance", host="gpu-001", rail="3")
    slow = {
        firing("warning", "pending", "FabricLinkDegraded", host=f"gpu-00{n}", rail=rail): f"{n}x30"
        for n, rail in ((1, "5"), (2, ""))
    }
    lost = {
        firing("warning", "pending", "FabricLinkErrors", host=f"gpu-00{n}", rail=str(rail)): f"{n}x30"
        for n in (2, 1)
        for rail in (3, 4)
    }
    panel = PANELS["fabric-overview-Alerts that fire or are pending"]
    by_label = {
        one["expr"].partition("max by (row, ")[2].partition(")")[0]: substituted(one["expr"])
        for one in panel["targets"]
    }
    labels = 'severity="critical",role="cause",alertname="FabricJobOnTcp",train_job="a"'
    tcp, pending = 'row="critical/cause/FabricJobOnTcp/a"', 'severity="warning pending",role="pending"'
    adapters = 'row="warning/cause/FabricJobAdaptersUnused/a"'
    silent = 'row="warning/cause/FabricSwitchDown/"'
    errors, imbalance = 'row="warning/cause/FabricLinkErrors/"', 'row="warning/consequence/FabricRailImbalance/"'
    since = query("fabric-overview-Alerts that fire or are pending", "since")
    check(
        program("promtool"),
        tmp_path,
        ranks | on_tcp | unused | down | slow | lost | {one: "9x30", muted: "9x30"},
        [
            (
                f"({since})  < 9000",
                "5m",
                [
                    (f"{{{tcp},{labels}}}", 1000),
                    (f'{{row="warning/pending/FabricLinkDegraded/",{pending},alertname="FabricLinkDegraded"}}', 1000),
                    (f'{{row="warning/pending/FabricLinkErrors/",{pending},alertname="FabricLinkErrors"}}', 1000),
                ],
            ),
            (f"0 * {by_label['host']}", "5m", [(f'{{{imbalance},host="gpu-001"}}', 0)]),
            (f"0 * {by_label['switch']}", "5m", [(f'{{{errors},switch="leaf-4"}}', 0)]),
            (
                f"0 * {by_label['place']}",
                "5m",
                [
                    (f'{{{tcp},place="all hosts"}}', 0),
                    (f'{{{adapters},place="gpu-001, gpu-002"}}', 0),
                    (f'{{{silent},place="leaf-3, leaf-1 and 2 more"}}', 0),
                    ('{row="warning/pending/FabricLinkDegraded/",place="gpu-001 rail 5, gpu-002"}', 0),
                    ('{row="warning/pending/FabricLinkErrors/",place="gpu-001, gpu-002"}', 0),
                ],
            ),
            (query("fabric-overview-Critical alerts"), "5m", [("{}", 1)]),
            (query("fabric-overview-Warnings"), "5m", [("{}", 4)]),
            (query("fabric-overview-Hidden"), "5m", [("{}", 1)]),
        ],
    )


def test_an_alert_on_a_rail_at_another_leaf_has_this_leaf_and_its_port(program, tmp_path):
    """From the alert, as Prometheus records it, to the cells of its row."""
    labels = (
        f'{HOST},host="gpu-001",alertname="FabricRailMiscabled",severity="warning",layer="rdma",device="eth7",rail="7",'
        'leaf="leaf-02",leaf_port="Ethernet1/3"'
    )
    series = {f'ALERTS{{{labels},alertstate="firing"}}': "1x9", f"ALERTS_FOR_STATE{{{labels}}}": "60x9"}
    targets = PANELS["fabric-overview-Alerts that fire or are pending"]["targets"]
    cells = {"host": "gpu-001", "rail": "7", "device": "eth7", "switch": "leaf-02", "port": "Ethernet1/3"}
    row = 'row="warning/cause/FabricRailMiscabled/"'
    expected = []
    for label, text in cells.items():
        (expr,) = [substituted(one["expr"]) for one in targets if f"(row, {label})" in one["expr"][:40]]
        expected.append((f"0 * ({expr})", "8m", [(f'{{{row},{label}="{text}"}}', 0)]))
    check(program("promtool"), tmp_path, series, expected, ("fabric-firing", "fabric-consequences"))


LOADED = {f"instance:fabric_exporter_build_info:info{{{HOST}}}": "1x30"}
AT_LEAF = {"host": "gpu-001", "rail": "3", "switch": "leaf-1", "port": "7"}


@pytest.mark.parametrize(
    ("name", "layer", "warnings"),
    [
        ("FabricLinkDown", "rdma", 0),
        ("FabricPortsMissing", "rdma", 0),
        ("FabricLinkDown", "pci", 1),
        ("FabricRetransmissions", "rdma", 1),
    ],
)
def test_a_link_that_is_down_at_both_ends_is_one_row_that_of_its_host(program, tmp_path, name, layer, warnings):
    """Another link of the same switch, and one without a host, keep theirs."""
    alerts = [
        firing("critical", "cause", name, layer=layer, **AT_LEAF),
        firing("warning", "cause", "FabricLinkDown", layer="switch", **AT_LEAF),
    ]
    uplink = firing("warning", "consequence", "FabricLinkDown", layer="switch", switch="leaf-1", port="31")
    number = query("fabric-overview-Warnings")
    check(
        program("promtool"),
        tmp_path,
        LOADED | dict.fromkeys(alerts, "9x30") | {uplink: "_x9 9x20"},
        [
            (query("fabric-overview-Critical alerts"), "5m", [("{}", 1)]),
            (number, "5m", [("{}", warnings)]),
            (number, "20m", [("{}", warnings + 1)]),
        ],
    )


@pytest.mark.parametrize(("board", "rows"), [("overview", 3), ("switches", 4), ("training", 4)])
def test_rows_that_do_not_fit_are_counted_and_none_if_all_fit(program, tmp_path, board, rows):
    expr = query(f"fabric-{board}-Hidden")
    many = {
        firing("warning", "cause", f"Fabric{number}", layer="switch", switch="leaf-1"): "_x9 9x20"
        for number in range(9)
    }
    check(program("promtool"), tmp_path, LOADED | many, [(expr, "5m", [("{}", 0)]), (expr, "20m", [("{}", rows)])])


@pytest.mark.parametrize(
    "board",
    [
        "overview-Alerts that fire or are pending",
        "host-Alerts of this host and its jobs",
        "training-Alerts of jobs, their hosts and switches",
    ],
)
def test_causes_come_before_consequences_and_of_each_critical_alerts_then_the_oldest(board):
    """Each of them by its words: critical and cause come first in the alphabet."""
    found = [(one["displayName"], one["desc"]) for one in PANELS[f"fabric-{board}"]["options"]["sortBy"]]
    assert found == [("role", False), ("severity", False), ("since", False)]


@pytest.mark.parametrize("panel", ["overview-Fullest uplink, of its speed", "switches-Fullest, of speed"])
def test_the_fullest_uplink_is_named_with_its_neighbour_if_that_is_known(program, tmp_path, panel):
    fullest = f"switch:fabric_uplink_utilization:max{{{POLLER},direction="
    series = {
        f'{fullest}"transmit",switch="leaf-1",port="31",peer="spine-1"}}': "0.7x10 0.3x20",
        f'{fullest}"receive",switch="leaf-2",port="32"}}': "0.5x30",
    }
    expr = query(f"fabric-{panel}")
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (expr, "5m", [('{switch="leaf-1",port="31",peer="spine-1"}', 0.7)]),
            (expr, "20m", [('{switch="leaf-2",port="32",peer="unknown"}', 0.5)]),
        ],
    )


def test_an_alert_of_a_job_has_its_first_cause_and_its_place(program, tmp_path):
    """Of a hang, which is of all hosts, the port; of a cause that two hosts have alike, neither.

    An alert about a port, or about how a job uses ports, is a cause itself. Of a job whose steps are slower, and whose
    network is not, these are it. A cause that is not likely, such as a flap that ended, is none.
    """

    def cause(job, name, port):
        labels = f'train_job="{job}",cause="ack_timeouts",name="{name}",port="{port}"'
        return f'fabric_nccl_cause_confidence{{job="fabric",instance="collector",{labels}}}'

    series = {
        firing("critical", "cause", "FabricJobHang", layer="nccl", train_job="a"): "9x30",
        firing("critical", "cause", "FabricJobHang", layer="nccl", train_job="b"): "9x30",
        firing("critical", "cause", "FabricLinkDown", layer="rdma", train_job="b", host="gpu-001"): "9x30",
        firing("warning", "cause", "FabricLinkErrors", switch="leaf-4", port="7"): "9x30",
        cause("a", "gpu-003", "mlx5_5:1"): "0.9x30",
        cause("a", "gpu-001", "mlx5_0:1"): "0.4x30",
        cause("b", "gpu-001", "mlx5_0:1"): "0.9x30",
        cause("b", "gpu-002", "mlx5_0:1"): "0.9x30",
        firing("warning", "cause", "FabricJobAdaptersUnused", layer="nccl", train_job="a", host="gpu-001"): "9x30",
        firing("warning", "consequence", "FabricJobNetworkBound", layer="nccl", train_job="e"): "9x30",
        cause("e", "gpu-002", "mlx5_4:1"): "0.16x30",
    }
    slower = "fabric_nccl_regression_ratio"
    for job, network in (("c", "1.01x30"), ("d", "1.3x30")):
        series[firing("warning", "cause", "FabricJobSlower", layer="nccl", train_job=job)] = "9x30"
        for measure, ratio in (("step_time", "1.3x30"), ("bus_bandwidth", network)):
            of = f'job="fabric",instance="collector",train_job="{job}",measure="{measure}"'
            series[f"{slower}{{{of}}}"] = ratio
    targets = PANELS["fabric-overview-Alerts that fire or are pending"]["targets"]
    (expr,) = [substituted(one["expr"]) for one in targets if "(row, first_cause)" in one["expr"]]
    row = 'row="critical/cause/FabricJobHang'
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (
                f"0 * {expr}",
                "5m",
                [
                    (f'{{{row}/a",first_cause="ack_timeouts gpu-003 mlx5_5:1"}}', 0),
                    (f'{{{row}/b",first_cause="ack_timeouts several places"}}', 0),
                    ('{row="warning/cause/FabricJobSlower/c",first_cause="its steps, not the network"}', 0),
                ],
            )
        ],
    )


def test_a_host_has_the_alerts_of_its_jobs_with_their_first_cause(program, tmp_path):
    """Those of whole jobs. One about another host of a job, or of a job elsewhere, is not among them."""
    of = 'job="fabric",instance="collector",train_job="a",cause="ack_timeouts",name="gpu-001",port="mlx5_2:1"'
    series = {
        firing("critical", "cause", "FabricJobHang", layer="nccl", train_job="a"): "9x30",
        firing("critical", "cause", "FabricJobHang", layer="nccl", train_job="b"): "9x30",
        firing("warning", "cause", "FabricStraggler", layer="nccl", train_job="a", host="gpu-002", rank="9"): "9x30",
        firing("warning", "cause", "FabricPauseShare", layer="nic", host="gpu-001", rail="1"): "8x30",
        'host:fabric_nccl_job:info{train_job="a",host="gpu-001"}': "1x30",
        'host:fabric_nccl_job:info{train_job="a",host="gpu-002"}': "1x30",
        'host:fabric_nccl_job:info{train_job="b",host="gpu-002"}': "1x30",
        f"fabric_nccl_cause_confidence{{{of}}}": "0.8x30",
    }
    targets = [substituted(one["expr"]) for one in PANELS["fabric-host-Alerts of this host and its jobs"]["targets"]]
    (since,) = (one for one in targets if "(row, severity" in one)
    (cause,) = (one for one in targets if "(row, first_cause)" in one)
    hang, pause = "critical/cause/FabricJobHang/a", "warning/cause/FabricPauseShare/"
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (f"group by (row) ({since})", "5m", [(f'{{row="{one}"}}', 1) for one in (hang, pause)]),
            (f"0 * {cause}", "5m", [(f'{{row="{hang}",first_cause="ack_timeouts gpu-001 mlx5_2:1"}}', 0)]),
        ],
    )


HOSTS_WITH_FAULTS = "fabric-overview-Hosts with faults (paused, pausing: of time; retr.: of packets)"


def test_hosts_with_a_cause_are_above_those_with_consequences(program, tmp_path):
    """By the worst alert of each: a critical cause, another cause, what is pending, consequences alone."""
    order = [(one["displayName"], one["desc"]) for one in PANELS[HOSTS_WITH_FAULTS]["options"]["sortBy"]]
    assert order[0] == ("Alert", True)
    series = {
        firing("critical", "consequence", "FabricPauseStorm", host="gpu-001", rail="1"): "9x30",
        firing("critical", "cause", "FabricPauseStorm", host="gpu-003", rail="1"): "9x30",
        firing("warning", "cause", "FabricRetransmissions", host="gpu-003", rail="2"): "9x30",
        firing("warning", "cause", "FabricRetransmissions", host="gpu-002", rail="2"): "9x30",
        firing("warning", "consequence", "FabricPauseShare", host="gpu-002", rail="1"): "9x30",
        firing("warning", "cause", "FabricLinkErrors", switch="leaf-4", port="7"): "9x30",
        firing("warning", "pending", "FabricLinkDegraded", host="gpu-004", rail="3"): "12x30",
        firing("critical", "pending", "FabricLinkDown", host="gpu-004", rail="2"): "11x30",
    }
    expected = [('{host="gpu-001"}', 1), ('{host="gpu-002"}', 3), ('{host="gpu-003"}', 4), ('{host="gpu-004"}', 2)]
    since = [(f'{{host="gpu-00{number}"}}', time) for number, time in ((1, 9000), (2, 9000), (3, 9000), (4, 11000))]
    alert, begin = query(HOSTS_WITH_FAULTS, "Alert"), query(HOSTS_WITH_FAULTS, "Since")
    check(program("promtool"), tmp_path, series, [(alert, "5m", expected), (begin, "5m", since)])


def test_a_fine_job_with_a_low_bandwidth_is_not_fine_and_has_the_alert_of_its_hosts(program, tmp_path):
    """The critical one, else the oldest, and its host, or the names of hosts; one of the collector comes first."""
    series = {}
    for job, ratio in (("a", "0.76"), ("b", "0.81"), ("c", "0.7"), ("d", "0.5")):
        of = f'job="fabric",instance="collector",train_job="{job}"'
        series[f"fabric_nccl_network_ratio{{{of}}}"] = f"{ratio}x30"
        series[f'fabric_nccl_verdict{{{of},verdict="fine"}}'] = "1x30"
        series[f"fabric_nccl_verdict_seconds{{{of}}}"] = "60x30"
        for host, severity, name, since in (
            ("gpu-001", "warning", "FabricRetransmissions", 1000),
            ("gpu-002", "warning", "FabricRetransmissions", 1200),
            ("gpu-001", "warning", "FabricPciDegraded", 1100),
        ):
            alert = f'train_job="{job}",severity="{severity}",alertname="{name}",host="{host}"'
            series[f"train_job:fabric_firing:since{{{alert}}}"] = f"{since}x30"
    storm = 'train_job="c",severity="critical",alertname="FabricPauseStorm",host="gpu-003"'
    series[f"train_job:fabric_firing:since{{{storm}}}"] = "2000x30"
    cause = 'train_job="d",cause="retransmissions",name="gpu-009",port="",peer="",peer_port=""'
    series[f'fabric_nccl_cause_confidence{{job="fabric",instance="collector",{cause}}}'] = "0.7x30"
    row, verdicts = 'verdict="low_bandwidth"', "fabric-training-Verdicts"
    causes = detail(verdicts, "first_cause")
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (
                query(verdicts, "Bandwidth, of expected"),
                "5m",
                [
                    (f'{{train_job="a",{row}}}', 0.76),
                    ('{train_job="b",verdict="fine"}', 0.81),
                    (f'{{train_job="c",{row}}}', 0.7),
                    (f'{{train_job="d",{row}}}', 0.5),
                ],
            ),
            (
                f"0 * {causes}",
                "5m",
                [
                    (f'{{train_job="a",{row},first_cause="FabricRetransmissions gpu-001, gpu-002"}}', 0),
                    (f'{{train_job="c",{row},first_cause="FabricPauseStorm gpu-003"}}', 0),
                    (f'{{train_job="d",{row},first_cause="retransmissions gpu-009"}}', 0),
                ],
            ),
            (query("fabric-training-Bandwidth, of expected"), "5m", [('{train_job="d"}', 0.5)]),
            (query("fabric-training-Fine"), "5m", [("{}", 1)]),
        ],
    )


def test_each_cause_has_its_host_its_switch_port_and_the_begin_of_its_oldest_alert(program, tmp_path):
    """Of a port of a host, by its MAC address; of a switch, its own; of an uplink, with the switch at its other end.

    One that the collector found after the job was delayed began with the delay.
    """
    of = 'job="fabric",instance="collector",train_job="a"'

    def cause(kind, name, port, peer="", peer_port=""):
        labels = f'cause="{kind}",name="{name}",port="{port}",peer="{peer}",peer_port="{peer_port}"'
        return f"fabric_nccl_cause_confidence{{{of},{labels}}}"

    seen = f'switch_port:fabric_link_info:seen{{{POLLER},mac="02:00:00:00:00:01",switch="leaf-1",switch_port="7"}}'
    series = INFO | {
        seen: "600x30",
        f'fabric_switch_up{{{POLLER},switch="leaf-2",target="one"}}': "1x30",
        f'fabric_switch_up{{{POLLER},switch="spine-1",target="two"}}': "1x30",
        f'fabric_nccl_verdict{{{of},verdict="network_bound"}}': "1x30",
        f"fabric_nccl_verdict_seconds{{{of}}}": "_x5 0+60x25",
        cause("link_degraded", "gpu-001", "mlx5_0:1"): "_x5 0.9x25",
        cause("discards", "leaf-2", "9", "gpu-002", "mlx5_1"): "_x8 0.5x22",
        cause("link_full", "leaf-2", "30", "spine-1", "4"): "_x5 0.2x25",
        firing("warning", "cause", "FabricLinkDegraded", host="gpu-001", rail="0", layer="rdma"): "240x30",
        firing("warning", "cause", "FabricLinkDegraded", host="gpu-001", rail="1", layer="rdma"): "60x30",
    }
    row = {
        kind: f'row="a/{kind}/{port}"'
        for kind, port in (
            ("link_degraded", "gpu-001/mlx5_0:1"),
            ("discards", "leaf-2/9"),
            ("link_full", "leaf-2/30"),
        )
    }
    named = {kind: f'{one},train_job="a",cause="{kind}"' for kind, one in row.items()}
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (
                query(CAUSES, "Since"),
                "12m",
                [
                    (f"{{{named['link_degraded']}}}", 240_000),
                    (f"{{{named['discards']}}}", 300_000),
                    (f"{{{named['link_full']}}}", 300_000),
                ],
            ),
            (
                query(CAUSES, "Confidence"),
                "12m",
                [
                    (f"{{{named[kind]}}}", share)
                    for kind, share in (("link_degraded", 0.9), ("discards", 0.5), ("link_full", 0.2))
                ],
            ),
            (
                f"0 * {detail(CAUSES, 'host, device')}",
                "12m",
                [
                    (f'{{{row["link_degraded"]},host="gpu-001",device="mlx5_0"}}', 0),
                    (f'{{{row["discards"]},host="gpu-002",device="mlx5_1"}}', 0),
                ],
            ),
            (f"0 * {detail(CAUSES, 'rail')}", "12m", [(f'{{{row["link_degraded"]},rail="0"}}', 0)]),
            (
                f"0 * {detail(CAUSES, 'switch, switch_port')}",
                "12m",
                [
                    (f'{{{row["link_degraded"]},switch="leaf-1",switch_port="7"}}', 0),
                    (f'{{{row["discards"]},switch="leaf-2",switch_port="9"}}', 0),
                    (f'{{{row["link_full"]},switch="leaf-2",switch_port="30 to spine-1"}}', 0),
                ],
            ),
        ],
    )


def test_of_a_job_whose_cause_a_collector_does_not_know_the_alerts_are_listed(program, tmp_path):
    """With the switch that an alert names; of those that only have the job's delay as their reason, none."""
    of = 'job="fabric",instance="collector",train_job="a"'
    series = {
        f'fabric_nccl_cause_confidence{{{of},cause="unknown"}}': "0x30",
        f'fabric_nccl_verdict{{{of},verdict="network_bound"}}': "1x30",
        f"fabric_nccl_verdict_seconds{{{of}}}": "0+60x30",
        firing("warning", "cause", "FabricOversubscription", train_job="a", switch="leaf-1", layer="switch"): "60x30",
        firing("warning", "cause", "FabricJobCollectivesUneven", train_job="a", place="all hosts"): "30x30",
    }
    row, verdicts = 'row="a/FabricOversubscription"', "fabric-training-Verdicts"
    expected = [
        (query(CAUSES, "Since"), "9m", [(f'{{{row},train_job="a",cause="FabricOversubscription"}}', 0)]),
        (query(CAUSES, "Confidence"), "9m", []),
        (f"0 * {detail(CAUSES, 'switch, switch_port')}", "9m", [(f'{{{row},switch="leaf-1"}}', 0)]),
        (
            f"0 * {detail(verdicts, 'first_cause')}",
            "9m",
            [('{train_job="a",verdict="network_bound",first_cause="FabricOversubscription leaf-1"}', 0)],
        ),
    ]
    check(program("promtool"), tmp_path, series, expected)


def test_an_alert_comes_before_a_cause_that_is_only_possible(program, tmp_path):
    """From 0.3 a cause is likely (docs/causes.md)."""
    series = {}
    for job, confidence in (("a", "0.12"), ("b", "0.3")):
        of = f'job="fabric",instance="collector",train_job="{job}"'
        series |= {
            f'fabric_nccl_cause_confidence{{{of},cause="link_full",name="h",port="m:1"}}': f"{confidence}x30",
            f'fabric_nccl_verdict{{{of},verdict="network_bound"}}': "1x30",
            f'train_job:fabric_firing:since{{train_job="{job}",severity="critical",alertname="Lost",host="h"}}': "9x30",
        }
    verdicts, row = detail("fabric-training-Verdicts", "first_cause"), 'verdict="network_bound",first_cause='
    expected = [(f'{{train_job="a",{row}"Lost h"}}', 0), (f'{{train_job="b",{row}"link_full h m:1"}}', 0)]
    hosts = [
        ('{row="a/Lost",host="h"}', 0),
        *((f'{{row="{job}/link_full/h/m:1",host="h",device="m"}}', 0) for job in "ab"),
    ]
    listed = f"0 * {detail(CAUSES, 'host, device')}"
    check(program("promtool"), tmp_path, series, [(f"0 * {verdicts}", "5m", expected), (listed, "5m", hosts)])


@pytest.mark.parametrize(
    ("collector", "text"), [(True, "none found, see the alerts"), (False, "unknown: no collector")]
)
def test_a_delayed_job_without_a_cause_is_a_row_that_says_so(program, tmp_path, collector, text):
    """A late rank is no matter of the ports of hosts: their alerts are not listed for it."""
    of = 'job="fabric",instance="one",train_job="a"'
    series = {
        f'fabric_nccl_verdict{{{of},verdict="straggler"}}': "1x30",
        f"fabric_nccl_verdict_seconds{{{of}}}": "0+60x30",
        'train_job:fabric_firing:since{train_job="a",severity="warning",alertname="FabricLinkErrors",host="h"}': "9x30",
        firing("warning", "cause", "FabricStraggler", train_job="a", host="h"): "9x30",
    }
    if collector:
        series['fabric_collector_connected{job="fabric",instance="one"}'] = "1x30"
    expected = [(query(CAUSES, "Since"), "9m", [(f'{{row="a",train_job="a",cause="{text}"}}', 0)])]
    check(program("promtool"), tmp_path, series, [*expected, (detail(CAUSES, "place"), "9m", [])])


def test_of_a_job_without_a_known_cause_the_port_that_its_alerts_name_is_a_row_even_if_they_are_pending(
    program, tmp_path
):
    """Of a hang, or if a late rank is on the host; pending ones if none about a port fires, as in the job d."""
    port = {"host": "gpu-002", "rail": "1", "device": "mlx5_1", "switch": "leaf-01", "port": "Ethernet1/4"}
    series = {'fabric_collector_connected{job="fabric",instance="one"}': "1x30"}
    for job, verdict in (("a", "hang"), ("b", "straggler"), ("c", "straggler"), ("d", "hang")):
        of = f'job="fabric",instance="one",train_job="{job}"'
        series |= {
            f'fabric_nccl_verdict{{{of},verdict="{verdict}"}}': "1x30",
            f"fabric_nccl_verdict_seconds{{{of}}}": "0+60x30",
            firing("warning", "pending", "FabricLinkFlapping", **port, layer="rdma", train_job=job): "60x30",
        }
        if verdict == "straggler":
            host = "gpu-002" if job == "b" else "gpu-001"
            rank = f'train_job="{job}",rank="9"'
            series[f'fabric_nccl_straggler{{job="fabric",instance="one",{rank}}}'] = "1x30"
            series[f'fabric_nccl_rank_info{{job="fabric",instance="{host}",{rank},host="{host}"}}'] = "1x30"
    series[firing("critical", "cause", "FabricLinkDown", **port, layer="switch", train_job="d")] = "90x30"
    fires = 'train_job="d",severity="critical",alertname="FabricLinkDown",host="gpu-002"'
    series[f"train_job:fabric_firing:since{{{fires}}}"] = "90x30"
    named = [(job, "FabricLinkFlapping pending") for job in "ab"] + [("d", "FabricLinkDown")]
    rows = [(f'row="{job}/{cause}"', job, cause) for job, cause in named]
    begins = [(f'{{{row},train_job="{job}",cause="{cause}"}}', 0) for row, job, cause in rows]
    begins.append(('{row="c",train_job="c",cause="none found, see the alerts"}', 0))
    words = (("hang", "a"), ("straggler", "b"), ("hang", "d"))
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (query(CAUSES, "Since"), "9m", begins),
            *(
                (f"0 * {detail(CAUSES, labels)}", "9m", [(f"{{{row},{shown}}}", 0) for row, _, _ in rows])
                for labels, shown in (
                    ("host, device", 'host="gpu-002",device="mlx5_1"'),
                    ("rail", 'rail="1"'),
                    ("switch, switch_port", 'switch="leaf-01",switch_port="Ethernet1/4"'),
                )
            ),
            (
                f"0 * {detail('fabric-training-Verdicts', 'first_cause')}",
                "9m",
                [
                    (f'{{train_job="{job}",verdict="{verdict}",first_cause="{cause} gpu-002"}}', 0)
                    for (verdict, _), (job, cause) in zip(words, named, strict=True)
                ],
            ),
        ],
    )


def test_what_is_pending_is_dimmer_than_what_fires():
    found = 0
    for panel in PANELS:
        looks = colors_of(panel, "severity")
        if looks:
            found += 1
            assert (looks["critical"], looks["warning"]) == ("red", "orange")
            assert {looks["critical pending"], looks["warning pending"]} == {"#b07272", "#a58a66"}
            assert colors_of(panel, "role")["pending"] == "#8e949b"
    assert found == 5


def test_alerts_of_a_job_of_its_hosts_and_of_switches_are_listed_and_those_of_other_hosts_are_not(program, tmp_path):
    """The record has the job of a host. Without a broker no job has a verdict: that is listed too."""
    since = query("fabric-training-Alerts of jobs, their hosts and switches", "since")
    series = {
        firing("warning", "cause", "FabricLinkDegraded", train_job="a", host="gpu-001", rail="3"): "10x30",
        firing("warning", "cause", "FabricLinkErrors", host="gpu-009", rail="3"): "10x30",
        firing("warning", "cause", "FabricSwitchDown", switch="leaf-1"): "20x30",
        firing("warning", "cause", "FabricJobNetworkBound", train_job="a", place="all hosts"): "30x30",
        firing("warning", "cause", "FabricCollectorDisconnected", place="collector"): "40x30",
        firing("warning", "cause", "FabricSourceStale", place="gpu-009"): "40x30",
    }
    kind = 'severity="warning",role="cause"'
    expected = [
        (f'{{row="warning/cause/{name}/{job}",{kind},alertname="{name}"{more}}}', begin)
        for name, job, more, begin in (
            ("FabricLinkDegraded", "a", ',train_job="a"', 10_000),
            ("FabricSwitchDown", "", "", 20_000),
            ("FabricJobNetworkBound", "a", ',train_job="a"', 30_000),
            ("FabricCollectorDisconnected", "", "", 40_000),
        )
    ]
    check(program("promtool"), tmp_path, series, [(since, "5m", expected)])


def test_a_cause_that_is_no_port_has_its_ranks_and_their_host(program, tmp_path):
    """Two ranks of one host, the later one first; of work that moves, no rank."""
    of = 'job="fabric",instance="collector",train_job='
    series = {
        f'fabric_nccl_cause_confidence{{{of}"a",cause="compute"}}': "0.5x30",
        f'fabric_nccl_cause_confidence{{{of}"b",cause="work"}}': "0.7x30",
        f'fabric_nccl_cause_confidence{{{of}"c",cause="process"}}': "0.4x30",
    }
    for job, rank, host, loss in (("a", "9", "gpu-002", 0.1), ("a", "12", "gpu-002", 0.2), ("c", "3", "gpu-001", 1)):
        series[f'fabric_nccl_straggler{{{of}"{job}",rank="{rank}"}}'] = "1x30"
        series[f'fabric_nccl_straggler_loss_ratio{{{of}"{job}",rank="{rank}"}}'] = f"{loss}x30"
        known = f'job="fabric",instance="{host}",train_job="{job}",rank="{rank}",host="{host}"'
        series[f"fabric_nccl_rank_info{{{known}}}"] = "1x30"
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (
                f"0 * {detail(CAUSES, 'place')}",
                "5m",
                [
                    ('{row="a/compute//",place="rank 12, rank 9"}', 0),
                    ('{row="b/work//",place="changing ranks"}', 0),
                    ('{row="c/process//",place="rank 3"}', 0),
                ],
            ),
            (
                f"0 * {detail(CAUSES, 'host, device')}",
                "5m",
                [('{row="a/compute//",host="gpu-002"}', 0), ('{row="c/process//",host="gpu-001"}', 0)],
            ),
        ],
    )


def test_a_host_that_pauses_its_switch_is_a_host_with_a_fault(program, tmp_path):
    panel, host = "fabric-training-Hosts of jobs with faults", f'{HOST},host="gpu-001"'
    rank = 'fabric_nccl_rank_info{job="fabric",instance="gpu-001",train_job="a",rank="0",host="gpu-001"}'
    series = {
        rank: "1x30",
        f"host:fabric_nic_transmit_paused_seconds:max{{{host}}}": "0.6x30",
        f"host:fabric_nic_receive_paused_seconds:max{{{host}}}": "0x30",
        'host:fabric_nccl_job:info{host="gpu-001",train_job="a"}': "1x30",
        firing("warning", "consequence", "FabricPauseOutlier", host="gpu-001"): "10x30",
        firing("warning", "cause", "FabricPauseShare", host="gpu-001"): "20x30",
    }
    row = 'train_job="a",host="gpu-001"'
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (query(panel, "Pausing, of time"), "5m", [(f"{{{row}}}", 0.6)]),
            (query(panel, "Paused, of time"), "5m", []),
            (query(panel, "Since"), "5m", [(f"{{{row}}}", 20_000)]),
            (f"0 * {detail(panel, 'alert')}", "5m", [(f'{{{row},alert="FabricPauseShare"}}', 0)]),
        ],
    )


def test_a_switch_that_restarted_is_listed_for_15_minutes_and_a_new_one_is_not(program, tmp_path):
    """One that is silent has no uptime, and is since its alert is; a wrap of the 32 bits is no restart."""
    panel, up = "fabric-switches-Silent or restarted switches", 'fabric_switch_up{job="fabric",instance="poller"'
    uptime = f"fabric_switch_uptime_seconds{{{POLLER},switch="
    series = {
        f'{uptime}"spine-1"}}': "500000+60x60 _x2 60+60x60",
        f'{uptime}"spine-2"}}': "_x60 60+60x60",
        f'{uptime}"spine-3"}}': "42947000+0x60 60+60x60",
        f'{up},switch="spine-1",target="one"}}': "1x60 0x2 1x60",
        f'{up},switch="spine-2",target="two"}}': "1x120",
        firing("warning", "pending", "FabricSwitchDown", layer="switch", switch="spine-1"): "_x60 3600x2 _x60",
    }
    state, since = query(panel, "State"), query(panel, "Since")
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (state, "59m", []),
            (state, "62m", [('{switch="spine-1"}', 0)]),
            (state, "65m", [('{switch="spine-1"}', 1)]),
            (since, "62m", [('{switch="spine-1"}', 3_600_000)]),
            (since, "65m", [('{switch="spine-1"}', 1000 * (65 - 3) * 60)]),
            (state, "85m", []),
        ],
    )


def test_pauses_of_hosts_are_shares_of_time_by_the_best_counter_that_there_is(program, tmp_path):
    """The switch's time, the host's, or the frames: 1000 of them, of 65535 quanta, a second at 400 Gb/s are 8.4 %."""
    panel = "fabric-switches-Hosts that pause a switch (PFC)"
    series = {}
    for port, host in (("1", "gpu-001"), ("2", "gpu-002"), ("3", "gpu-003"), ("4", "gpu-004")):
        at, mac = f'{POLLER},switch="leaf-1",port="{port}"', f"02:00:00:00:00:0{port}"
        series |= {
            f'fabric_link_info{{{at},peer="{host}",peer_mac="{mac}"}}': "1x30",
            f"fabric_switch_link_speed_bytes_per_second{{{at}}}": "50000000000x30",
            f'fabric_switch_receive_pfc_frames_total{{{at},priority="3"}}': "0+60000x30" if port != "4" else "0+600x30",
        }
    series[f'fabric_switch_receive_pfc_paused_seconds_total{{{POLLER},switch="leaf-1",port="1",priority="3"}}'] = (
        "0+3x30"
    )
    nic, seen = 'job="fabric",instance="gpu-002",device="eth4"', "switch_port:fabric_link_info:seen"
    series |= {
        f'fabric_nic_info{{{nic},host="gpu-002",mac="02:00:00:00:00:02"}}': "1x30",
        f'device:fabric_nic_transmit_paused_seconds:rate{{{nic},host="gpu-002",rail="2"}}': "0.2x30",
        f'{seen}{{{POLLER},mac="02:00:00:00:00:02",switch="leaf-1",switch_port="2"}}': "9x30",
    }
    one, two, three = (f'{{peer="gpu-00{port}",switch="leaf-1",port="{port}"}}' for port in (1, 2, 3))
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (f"round({query(panel, 'Of time')}, 0.001)", "20m", [(one, 0.05), (two, 0.2)]),
            (f"round({query(panel, 'Of time, at most')}, 0.001)", "20m", [(three, 0.084)]),
        ],
    )


def test_batches_that_a_collector_accepts_are_not_lost(program, tmp_path):
    """One of eight is; a duplicate is no batch of its own."""
    batches = 'fabric_collector_batches_total{job="fabric",instance="collector",outcome='
    series = {
        f'{batches}"{outcome}"}}': f"0+{count}x30"
        for outcome, count in (("accepted", 7), ("lost", 1), ("duplicate", 9))
    }
    expr = f"round({query('fabric-training-Lost, of batches')}, 0.001)"
    check(program("promtool"), tmp_path, series, [(expr, "20m", [("{}", 0.125)])])


def test_a_switch_that_is_silent_alone_is_named(program, tmp_path):
    up = {"leaf-1": "1x60", "leaf-2": "1x9 0x50", "leaf-3": "1x19 0x40"}
    series = {f'fabric_switch_up{{{POLLER},switch="{switch}"}}': values for switch, values in up.items()}
    expr = query("fabric-overview-Switches silent")
    expected = {"5m": ("none", 0), "15m": ("leaf-2", 1), "25m": ("several", 2)}
    checks = [(expr, time, [(f'{{switch="{name}"}}', value)]) for time, (name, value) in expected.items()]
    check(program("promtool"), tmp_path, series, checks)


MOST_DROPS = "fabric-overview-Most drops"


def test_drops_without_pauses_have_a_hint_before_more_drops_elsewhere(program, tmp_path):
    """Few drops have no place; one that pauses drops most; the hint is for a switch at which nothing pauses.

    A job on TCP has drops without pauses.
    """

    def of(record: str, switch: str, values: str) -> dict[str, str]:
        return {f'switch:fabric_switch_{record}:rate{{{POLLER},switch="{switch}"}}': values}

    series = {
        **of("transmit_discards", "leaf-1", "0.2x9 40x50"),
        **of("transmit_discards", "leaf-2", "0.1x19 30x40"),
        firing("critical", "cause", "FabricJobOnTcp", train_job="a"): "_x39 9x20",
        **of("receive_pfc_frames", "leaf-1", "900x60"),
        **of("receive_pfc_frames", "leaf-2", "0x60"),
        f"host:fabric_nic_receive_discards:rate{{{HOST}}}": "0x60",
        f'host:fabric_rdma_info:info{{{HOST},host="gpu-001"}}': "1x60",
    }
    expr = query(MOST_DROPS)
    check(
        program("promtool"),
        tmp_path,
        series,
        [
            (expr, "5m", [('{place="no place"}', 0.2)]),
            (expr, "15m", [('{place="leaf-1"}', 40)]),
            (expr, "25m", [('{place="leaf-2: PFC off?",hint=": PFC off?"}', 30)]),
            (expr, "45m", [('{place="leaf-1"}', 40)]),
        ],
    )


def test_a_limit_is_a_dashed_line_with_its_value_in_the_legend():
    found = 0
    for key, panel in PANELS.items():
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {"steps": ()})["steps"]
        if panel["type"] != "timeseries" or len(steps) < 2:
            continue
        colors = {
            override["matcher"]["options"]: one["value"]["fixedColor"]
            for override in panel["fieldConfig"]["overrides"]
            for one in override["properties"]
            if one["id"] == "color"
        }
        drawn, named = {}, {}
        for legend, expr in ((one["legendFormat"], one["expr"]) for one in panel["targets"]):
            if legend.startswith("limit "):
                drawn[colors[legend]] = float(expr.rpartition(") + ")[2])
                number, percent, _ = legend.removeprefix("limit ").partition(" %")
                named[colors[legend]] = pytest.approx(float(number) / (100 if percent else 1))
        assert drawn == named == {one["color"]: one["value"] for one in steps if one["value"] is not None}, key
        found += 1
    assert found > 10


def test_a_limit_is_drawn_where_there_are_values(program, tmp_path):
    """Else a panel without series would not show the text that there are none."""
    marked = query_by_legend("fabric-host-ECN-marked, of packets received", "limit 10 %")
    series = INFO | {f"fabric_rdma_ecn_marked_ratio{{{PORT}}}": "0.01x10 _x20"}
    check(program("promtool"), tmp_path, series, [(marked, "5m", [("{}", 0.1)]), (marked, "20m", [])])


def query_by_legend(panel: str, legend: str) -> str:
    """Return the query of a panel with this legend."""
    (expr,) = [one["expr"] for one in PANELS[panel]["targets"] if one["legendFormat"] == legend]
    return substituted(expr)
