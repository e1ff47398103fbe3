"""The boards: current, well formed by the rules of Grafana's dashboard-linter, and every query has data on a demo."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml

from exporter.core.table import Kind
from exporter.daemon.sources import metrics
from tests.helpers.demo_cluster import demo_cluster
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults, recorded, selectors
from tests.helpers.stack import Prometheus, own_folder, until

FOLDER = ROOT / "dashboards"

UNITS = {
    *("none", "short", "s", "bps", "Bps", "pps", "cps", "ops", "percentunit", "watt", "amp", "volt", "celsius"),
    *("si:T/s", "dateTimeAsIsoNoDateIfToday", "dateTimeFromNow", "suffix: rows"),
}
"""Units of Grafana (ids of `getValueFormats` in @grafana/data) that the boards use, and two made of words of ours."""

UNREACHED = 1_000_000
"""The limit for red of a share that is a warning at most."""

BOARDS: dict[str, dict[str, Any]] = {
    name: json.loads((FOLDER / f"{name}.json").read_text())
    for name in ("fabric-overview", "fabric-host", "fabric-switches", "fabric-infiniband", "fabric-training")
}
VARIABLES = {name: {one["name"]: one for one in board["templating"]["list"]} for name, board in BOARDS.items()}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def with_folded(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the rows and panels of a board, those of folded rows included."""
    return [one for panel in board["panels"] for one in (panel, *panel.get("panels", ()))]


PANELS = {
    f"{name}-{panel['title']}": panel
    for name, board in BOARDS.items()
    for panel in with_folded(board)
    if panel["type"] != "row"
}
TARGETS = {
    f"{name}-{target['refId']}": (panel, target) for name, panel in PANELS.items() for target in panel["targets"]
}


NOT_IN_DEMO = {
    "fabric-overview-Saturated counters-A": "none of 32 bits or less is full in two minutes",
    "fabric-switches-Least light received-A": "the simulated switches have no modules",
    "fabric-switches-Ports with faults-D": "they do not count blocks of FEC",
    "fabric-switches-FEC uncorrectable blocks-A": "they do not count blocks of FEC",
    "fabric-switches-Silent or restarted switches-B": "none restarts",
    "fabric-switches-Hosts that pause a switch (PFC)-B": "its hosts count the time",
    "fabric-switches-Switches that pause others (PFC)-A": "its switches count frames alone",
    "fabric-training-Verdicts-C": "it is compared with ten minutes",
    "fabric-training-Step-B": "the job of the cluster does not mark its steps",
    "fabric-training-Network of a step-A": "the cluster has no budget of its job",
    "fabric-training-Network of a step-B": "the cluster has no budget of its job",
    "fabric-training-Network time over its minimum-A": "the cluster has no budget of its job",
    "fabric-training-Compute share of a step, lower bound-A": "the cluster has no budget of its job",
    "fabric-training-Model FLOPs utilization (MFU), of the peak-A": "the cluster has no budget of its job",
    "fabric-training-Model FLOPs utilization (MFU), of the peak-B": "the cluster has no budget of its job",
    "fabric-training-Time for computation, lower bound-A": "the cluster has no budget of its job",
    "fabric-training-Timings lost at hosts-A": "none is lost",
    "fabric-training-Timings lost at hosts-B": "its timings are Inspector's",
}
"""Queries without data in the demo, and why."""

NOT_IN_DEMO |= {
    f"{panel}-{letter}": "no alert about it fires within two minutes"
    for panel in (
        "fabric-host-Alerts of this host and its jobs",
        "fabric-switches-Alerts of switches, of ports at them, and of exporters",
        "fabric-training-Alerts of jobs, their hosts and switches",
        "fabric-infiniband-Alerts of InfiniBand",
    )
    for letter in "ABCDEFG"
} | {
    f"fabric-overview-Alerts that fire or are pending-{letter}": "no alert of such a place is active within two minutes"
    for letter in "HI"
}

NOT_IN_DEMO |= {
    key: "the panel has no values in the demo"
    for key, (panel, target) in TARGETS.items()
    if target["legendFormat"].startswith("limit ") and f"{key[: key.rindex('-')]}-A" in NOT_IN_DEMO
}

IN_DEMO = {key: one for key, one in TARGETS.items() if "fabric_ib_" not in one[1]["expr"] and key not in NOT_IN_DEMO}
"""Queries that a demo has data for: it runs without its InfiniBand fabric, of which a machine can have one."""

DEMO_FAULTS = (
    "degraded-link:gpu-002/3",
    "pause-storm:gpu-003/5",
    "dirty-optic:gpu-004/2",
    "slow-pcie:gpu-004/6",
    "flapping-link:gpu-001/1",
    "link-down:gpu-001/6",
    "symbol-errors:gpu-003/6",
    "oversubscribed-leaf:leaf-01@65s-600s",
    "switch-silent:spine-04@20s-600s",
    "late-rank:9@0s-60s",
    "no-pfc@65s-600s",
)

every_board = pytest.mark.parametrize("name", BOARDS)
every_panel = pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
every_target = pytest.mark.parametrize(("panel", "target"), TARGETS.values(), ids=TARGETS)


RULES = ("fabric-records.yml", "fabric.yml")

OF_ALL_TARGETS = {"alert:fabric_active:since", "host:fabric_nccl_job:info", "host:fabric_nccl_straggler:count"} | {
    "train_job:fabric_firing:since"
}
"""Records without a job and an instance, as they are of alerts, or join series of hosts and collectors."""


@cache
def series() -> dict[str, set[str]]:
    """Return the series that can be queried, with their labels: metrics that are no details, parts of histograms."""
    groups = [group for name in RULES for group in yaml.safe_load((ROOT / "alerts" / name).read_text())["groups"]]
    known = exported() | recorded([rule for group in groups for rule in group["rules"]])
    for metric in metrics():
        labels = known[metric.name]
        if metric.detail:
            del known[metric.name]
        elif metric.kind is Kind.HISTOGRAM:
            del known[metric.name]
            known[f"{metric.name}_bucket"] = labels | {"le"}
            known[f"{metric.name}_count"] = labels
    return known


def substituted(expr: str) -> str:
    """Put values in the place of variables, as Grafana does with all jobs and instances selected."""
    every = {f"${name}": ".+" for name in ("job", "instance", "switch", "node_name", "train_job")}
    for name, value in {"$__rate_interval": "10s", "$host": "gpu-001", **every}.items():
        expr = expr.replace(name, value)
    assert "$" not in re.sub(r'"( and |rank )?\$1( \w+)?"', "", expr), expr
    return expr


def test_committed_dashboards_are_up_to_date():
    pytest.importorskip("grafana_foundation_sdk.builders", reason="needs grafana-foundation-sdk")
    shown = "import build, json; print(json.dumps({path.name: text for path, text in build.files().items()}))"
    for seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", shown],
            cwd=FOLDER,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert json.loads(made) == {path.name: path.read_text() for path in FOLDER.glob("*.json")}


@every_board
def test_dashboards_are_named_and_read_only(name):
    board = BOARDS[name]
    assert board["uid"] == name
    assert board["title"].lower().replace(" ", "-") == name
    assert board["editable"] is False
    assert board["graphTooltip"] == 1
    assert board["schemaVersion"] == 42
    assert "id" not in board
    assert "__inputs" not in board


def test_dashboards_link_to_each_other_and_keep_the_selection():
    assert BOARDS
    for board in BOARDS.values():
        (link,) = board["links"]
        assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
        assert "placement" not in link, "it is shown above the panels"
        assert all(set(link["tags"]) <= set(other["tags"]) for other in BOARDS.values())


LINKED = {
    "host": "fabric-host",
    "switch": "fabric-switches",
    "train_job": "fabric-training",
    "node_name": "fabric-infiniband",
}
"""Labels whose values have a board."""


def test_every_name_that_has_a_board_links_to_it():
    """By the value of a cell; with the data source, the jobs and the time."""
    rest = ["${datasource:queryparam}", "${job:queryparam}", "${__url_time_range}"]
    assert PANELS
    for key, panel in PANELS.items():
        if panel["type"] == "table":
            urls = {
                override["matcher"]["options"]: link["url"]
                for override in panel["fieldConfig"]["overrides"]
                for one in override["properties"]
                if one["id"] == "links"
                for link in one["value"]
            }
            shown = panel["transformations"][-1]["options"].get("indexByName") or {"host": 0}
            assert urls == {
                label: f"/d/{board}?" + "&".join([f"var-{label}=${{__value.raw}}", *rest])
                for label, board in LINKED.items()
                if label in shown
            }, key


def test_linked_boards_have_the_variable():
    assert LINKED
    for label, board in LINKED.items():
        assert {label, "datasource", "job"} <= VARIABLES[board].keys()


@every_board
def test_variables_follow_the_linter(name):
    """Rules template-datasource, -job, -instance, -label-promql and -on-time-change-reload."""
    variables = VARIABLES[name]
    source = variables["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for word, one in variables.items():
        if word == "datasource":
            continue
        assert (one["type"], one["label"], one["datasource"]) == (
            "query",
            word.replace("_", " ").capitalize(),
            DATASOURCE,
        )
        assert one["multi"] is one["includeAll"] is (word != "host")
        assert one["refresh"] == 2
        selector, wanted = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()
        assert wanted == word
        (selected,) = selectors(promql.parse(substituted(selector)))
        named = [selected.name] if selected.name else alternatives(selected)
        for metric in named:
            assert {wanted, *(matcher.name for matcher in selected.matchers.matchers)} - {"__name__"} <= series()[
                metric
            ]


def alternatives(selected: promql.VectorSelector) -> list[str]:
    """Give the metrics whose name a selector matches."""
    (pattern,) = (matcher.value for matcher in selected.matchers.matchers if matcher.name == "__name__")
    found = [name for name in series() if re.fullmatch(pattern, name)]
    assert found, pattern
    return found


def test_all_instances_on_the_overview_and_on_the_host_dashboard():
    """Without a value of its own, "All" names each instance that the variable has found for the host."""
    assert VARIABLES["fabric-overview"].keys() == {"datasource", "job", "instance"}
    assert VARIABLES["fabric-overview"]["instance"]["allValue"] == ".+"
    assert all(variables["job"]["allValue"] == ".+" for variables in VARIABLES.values())
    assert list(VARIABLES["fabric-host"]) == ["datasource", "job", "host", "instance"]
    assert "allValue" not in VARIABLES["fabric-host"]["instance"]
    assert 'host="$host"' in VARIABLES["fabric-host"]["instance"]["query"]


@every_board
def test_the_first_row_is_one_screen(name):
    """A screen of 900 lines has room for about 21 units of 38 lines below Grafana's own bars."""
    first, *rest = BOARDS[name]["panels"]
    assert (first["type"], first["collapsed"]) == ("row", False)
    shown = rest[: next(place for place, panel in enumerate(rest) if panel["type"] == "row")]
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) <= 21
    assert all(bool(panel["panels"]) == panel["collapsed"] for panel in rest if panel["type"] == "row")


def test_the_first_screen_of_the_overview_is_alerts_faults_and_trends():
    shown = [panel["type"] for panel in BOARDS["fabric-overview"]["panels"][1:20]]
    assert shown == ["stat"] * 15 + ["table"] * 2 + ["timeseries"] * 2
    assert sum(key.startswith("fabric-overview-") for key in PANELS) <= 51


def _steps(panel):
    return panel["fieldConfig"]["defaults"].get("thresholds", {"steps": ()})["steps"]


def colors_above(panel):
    """Return the colours of values above the lowest."""
    return {step["color"] for step in _steps(panel) if step["value"] not in {None, UNREACHED}}


def test_full_utilization_is_not_a_fault():
    """Training fills links; only uplinks that are full are judged, since others wait for them.

    A number is orange at most: a full uplink is an alert only while others have room.
    """
    judged = {
        key
        for key, panel in PANELS.items()
        if "utilization" in panel["targets"][0]["expr"] and "red" in colors_above(panel)
    }
    assert judged == {
        "fabric-switches-Busiest uplink of a switch, of speed",
        "fabric-switches-Fullest uplinks",
        "fabric-infiniband-Busiest uplink of a switch, of its speed",
    }


def test_nothing_reads_as_good_that_is_absent():
    """A number without a value has a grey text of its own; a table and a list have a text for no rows."""
    assert PANELS
    for key, panel in PANELS.items():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["type"] == "heatmap" or defaults["noValue"] not in {"", "none"} or key in NO_ROWS, key
        if panel["type"] == "stat":
            (mapping,) = defaults["mappings"]
            assert mapping["options"]["match"] == "null+nan"
            assert (mapping["options"]["result"]["text"], mapping["options"]["result"]["color"]) == (
                defaults["noValue"],
                "#4b5157",
            )


NO_ROWS = {
    key
    for key, panel in PANELS.items()
    if panel["type"] == "table" and panel["fieldConfig"]["defaults"]["noValue"] == "none"
}
"""Tables that always have rows."""


def test_axes_do_not_magnify_zeros():
    assert PANELS
    for panel in PANELS.values():
        if panel["type"] == "timeseries":
            defaults = panel["fieldConfig"]["defaults"]
            bounded = "max" in defaults or "axisSoftMax" in defaults["custom"]
            assert bounded or defaults["unit"] in {"bps", "Bps", "s", "watt", "celsius", "short"}, panel["title"]
            assert defaults["custom"]["fillOpacity"] == 0


def test_tables_are_sorted_and_their_columns_narrow():
    assert PANELS
    for key, panel in PANELS.items():
        if panel["type"] == "table":
            assert panel["fieldConfig"]["defaults"]["custom"]["minWidth"] <= 80
            columns = panel["transformations"][-1]["options"]
            shown = {*columns.get("indexByName", ()), *columns.get("renameByName", {}).values()}
            sorts = [one["displayName"] for one in panel["options"].get("sortBy", ())]
            assert set(sorts) <= shown, key
            assert sorts or key in UNSORTED, key


UNSORTED = {key for key, panel in PANELS.items() if panel["type"] == "table" and not panel["options"].get("sortBy")}


@every_panel
def test_panels_follow_the_linter(panel):
    """Rules panel-datasource, -title-description, -units and -no-targets."""
    assert panel["type"] in {"timeseries", "stat", "table", "heatmap"}
    assert panel["datasource"] == DATASOURCE
    assert panel["title"]
    assert re.fullmatch(r"[A-Z].*\.", panel["description"])
    of_all = panel["fieldConfig"]["defaults"].get("unit")
    assert (of_all is None) == (panel["type"] == "table"), "that of a table would apply to labels: job 4707 is 4.71 K"
    units = ({of_all} - {None}) | {
        one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "unit"
    }
    assert units <= UNITS
    assert panel["targets"]
    if panel["type"] == "timeseries":
        assert panel["options"]["legend"]["showLegend"] is True


def test_bars_of_shares_are_drawn_against_the_whole():
    """Else the highest share fills its bar, however low it is."""
    found = 0
    assert PANELS
    for panel in PANELS.values():
        for override in panel["fieldConfig"]["overrides"]:
            properties = {one["id"]: one["value"] for one in override["properties"]}
            if properties.get("custom.cellOptions", {}).get("type") == "gauge":
                found += 1
                assert properties["min"] == 0
                assert ("max" in properties) == (properties["unit"] == "percentunit")
                assert properties.get("max", 1) == 1
    assert found > 10


@every_board
def test_panels_have_unique_ids_titles_and_positions(name):
    panels = with_folded(BOARDS[name])
    ids = [panel["id"] for panel in panels]
    assert ids == list(range(1, len(panels) + 1))
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
    for y in {y for _, y in taken}:
        assert len({x for x, line in taken if line == y}) == 24, f"a gap in line {y}"


def test_table_columns_are_those_of_the_queries():
    assert PANELS
    for panel in PANELS.values():
        if panel["type"] != "table" or panel["transformations"][0]["id"] == "groupingToMatrix":
            continue
        (arranged,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
        ids = [target["refId"] for target in panel["targets"]]
        values = {f"Value #{one}" for one in ids} if len(ids) > 1 else {"Value"}
        hidden = {name for name, is_hidden in arranged["excludeByName"].items() if is_hidden} - {"Time"}
        named_by = [re.search(r"(?:max|sum|min) by \(([^)]*)\)", one["expr"])[1] for one in panel["targets"]]
        more = set(", ".join(named_by).split(", "))
        assert set(arranged.get("renameByName", ())) == values - hidden
        grouped = re.search(r"(?:max|sum|min) by \(([^)]*)\)", panel["targets"][0]["expr"])[1].split(", ")
        assert set(arranged["indexByName"]) == {*grouped, *more, *values} - hidden
        named = set(arranged.get("renameByName", {}).values())
        overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert overridden - set(arranged.get("indexByName", ())) - {"/.*/"} == named


LIMITS = {
    "fabric-overview-Pauses (PFC, 802.3x), of time": ("FabricPauseShare", "FabricPauseInTraffic"),
    "fabric-overview-Retransmissions, of packets": ("FabricRetransmissions",),
    "fabric-overview-Most retransmissions": ("FabricRetransmissions",),
    "fabric-overview-Ports most paused by their switch (PFC, 802.3x)": ("FabricPauseShare",),
    "fabric-overview-Hosts that pause their switch most (PFC, 802.3x)": ("FabricPauseShare",),
    "fabric-overview-Hosts with an idle rail": ("FabricRailImbalance",),
    "fabric-overview-Fullest uplink, of its speed": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-overview-ECN-marked, of packets received, by rail": ("FabricCongestion",),
    "fabric-host-Pausing, of time": ("FabricPauseShare",),
    "fabric-host-Pauses by priority (PFC), of time": ("FabricPauseShare", "FabricPauseInTraffic"),
    "fabric-host-Paused by the switch (PFC, 802.3x), of time": ("FabricPauseShare", "FabricPauseInTraffic"),
    "fabric-host-Pausing the switch (PFC, 802.3x), of time": ("FabricPauseShare", "FabricPauseInTraffic"),
    "fabric-host-ECN-marked, of packets received": ("FabricCongestion",),
    "fabric-host-Retransmissions, of packets": ("FabricRetransmissions",),
    "fabric-host-Imbalance of ports, over the mean": ("FabricRailImbalance", "FabricRailImbalance"),
    "fabric-switches-Fullest, of speed": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Busiest uplink of a switch, of speed": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Fullest uplinks": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Imbalance of uplinks, over the mean": ("FabricUplinkImbalance",),
    "fabric-infiniband-Busiest uplink of a switch, of its speed": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-infiniband-Imbalance of uplinks, over the mean": ("FabricUplinkImbalance",),
    "fabric-switches-ECN-marked packets transmitted": ("FabricCongestion",),
    "fabric-training-Lost, of batches": ("FabricTimingsLost",),
    "fabric-training-Not sent, of batches": ("FabricTimingsLost",),
}
"""Panels whose limits are those of alerts, or of series recorded for them: of the one for the bad value, and of the one
for the warning."""


@pytest.mark.parametrize(("key", "alerts"), LIMITS.items(), ids=LIMITS)
def test_limits_are_those_of_the_alerts(key, alerts):
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    steps = PANELS[key]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    drawn = [step["value"] for step in reversed(steps) if step["value"] not in {None, UNREACHED}]
    assert alerts
    for alert, limit in zip(alerts, drawn, strict=False):
        exprs = [
            one["expr"] for group in groups for one in group["rules"] if alert in {one.get("alert"), one.get("record")}
        ]
        assert limit in [float(one) for expr in exprs for one in re.findall(r"> ([\d.]+)", expr)]


RDMA_PORTS = "fabric-host-RDMA ports (paused, pausing: of time; retrans.: of packets; transmit, receive: of speed)"

LIMITS_OF_COLUMNS = {
    ("fabric-overview-Hosts with faults (paused, pausing: of time; retr.: of packets)", "Paused"): (
        "pause_outlier",
        "pause_share",
    ),
    ("fabric-overview-Hosts with faults (paused, pausing: of time; retr.: of packets)", "Pausing"): (
        "pause_outlier",
        "pause_share",
    ),
    ("fabric-overview-Jobs on hosts with faults", "Paused, of time"): ("pause_outlier", "pause_share"),
    ("fabric-overview-Jobs on hosts with faults", "Pausing, of time"): ("pause_outlier", "pause_share"),
    (RDMA_PORTS, "Paused"): ("pause_outlier", "pause_share"),
    (RDMA_PORTS, "Pausing"): ("pause_outlier", "pause_share"),
    ("fabric-switches-Hosts that pause a switch (PFC)", "Of time"): ("pause_outlier", "pause_share"),
    ("fabric-switches-Switches that pause others (PFC)", "Of time"): ("pause_outlier", "pause_share"),
    ("fabric-switches-Hosts that pause a switch (PFC)", "Of time, at most"): ("pause_outlier", "pause_share"),
    ("fabric-switches-Switches that pause others (PFC)", "Of time, at most"): ("pause_outlier", "pause_share"),
    ("fabric-training-Hosts of jobs with faults", "Paused, of time"): ("pause_outlier", "pause_share"),
}
"""Columns of shares of time in pause, and sections of thresholds, for a warning and for what is bad."""


@pytest.mark.parametrize(("key", "sections"), LIMITS_OF_COLUMNS.items())
def test_limits_of_pauses_are_thresholds_of_alerts(key, sections):
    panel, column = key
    known = yaml.safe_load((ROOT / "alerts" / "thresholds.yml").read_text())
    (drawn,) = [
        [step["value"] for step in one["value"]["steps"]]
        for override in PANELS[panel]["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == column
        for one in override["properties"]
        if one["id"] == "thresholds"
    ]
    assert drawn == [None, *(known[one]["share"] for one in sections)]


def test_switches_have_restarted_by_the_limits_of_the_alert():
    known = yaml.safe_load((ROOT / "alerts" / "thresholds.yml").read_text())["switch_restarted"]
    (expr,) = [
        one["expr"]
        for one in PANELS["fabric-switches-Silent or restarted switches"]["targets"]
        if "time()" in one["expr"]
    ]
    minutes = [int(number) // 60 for number in re.findall(r"[<>] (\d+)", expr)[:2]]
    assert [f"{one}m" for one in minutes] == [known["since"], known["before"]]


BASE = re.compile(
    r"\bof (the |its |all |own |a )?(speed|time|packets|ticks|batches|ranks|expected|mean|peak|step)\b"
    r"|of the expected one|over (the |own )?(mean|best)|below the mean",
    re.IGNORECASE,
)
"""What a share is of, in the title of a panel or of a column."""

NO_BASE = {
    ("fabric-training-Likely causes", "Confidence"): "a confidence is no share of anything",
}


def shares():
    """Yield the panel and the title of each panel and each column of a share."""
    for key, panel in PANELS.items():
        if panel["fieldConfig"]["defaults"].get("unit") == "percentunit":
            yield key, ""
        for override in panel["fieldConfig"]["overrides"]:
            if {"id": "unit", "value": "percentunit"} in override["properties"]:
                yield key, override["matcher"]["options"]


@pytest.mark.parametrize(("key", "column"), list(shares()))
def test_titles_of_shares_name_what_they_are_shares_of(key, column):
    """Else 108 % may be that of anything; a panel of several columns may have all of them in its title."""
    title = PANELS[key]["title"]
    explained = re.findall(r"([\w., ]+): of", title)
    in_title = column and column.lower() in ", ".join(explained)
    assert in_title or (key, column) in NO_BASE or BASE.search(column or title)


@every_target
def test_queries_follow_the_linter(panel, target):
    """Rules target-promql, -job, -instance, -rate-interval and -counter-agg; and what is asked for exists."""
    assert target["datasource"] == DATASOURCE
    expr = promql.parse(substituted(target["expr"]))
    assert faults(expr, series()) == []
    for one in selectors(expr):
        if one.name not in OF_ALL_TARGETS:
            assert {matcher.name for matcher in one.matchers.matchers} >= {"job", "instance"}, one.name
    counted = re.findall(r"(\w+\()?fabric_\w+_(?:total|bucket|count)\{[^}]*\}(\[[^]]*\])?", target["expr"])
    assert set(counted) <= {
        ("rate(", "[$__rate_interval]"),
        ("rate(", "[2m]"),
        ("rate(", "[5m]"),
        ("rate(", "[10m]"),
        ("increase(", "[2m]"),
        ("increase(", "[10m]"),
        ("increase(", "[1h]"),
    }
    if panel["type"] in {"timeseries", "heatmap"}:
        assert {window for _, window in counted} <= {"[$__rate_interval]"}
        assert target["range"] is True
    if panel["type"] == "heatmap":
        assert (target["format"], target["legendFormat"]) == ("heatmap", "{{le}}")


@pytest.fixture(scope="module")
def server(program) -> Iterator[Prometheus]:
    """Run a demo with faults; gives its Prometheus."""
    for name in ("mosquitto", "prometheus"):
        program(name)
    with own_folder() as folder, demo_cluster(folder, ["--interval", "2s", "--no-infiniband"], DEMO_FAULTS) as demo:
        address = until("the address of Prometheus", lambda: re.search(r"Prometheus +(http\S+)/", demo.errors), 90.0)[1]
        with httpx.Client(base_url=f"{address}/api/v1", timeout=30) as client:
            yield Prometheus(client)


@pytest.fixture(scope="module")
def answers(server) -> dict[str, list[dict]]:
    """Ask every query; an answer without a number is asked again."""
    found: dict[str, list[dict]] = {}

    def all_answered() -> bool:
        for _, target in IN_DEMO.values():
            expr = without_filter(target["expr"])
            if not found.get(expr):
                samples = server.query(substituted(expr))
                found[expr] = [one for one in samples if math.isfinite(float(one["value"][1]))]
        return all(found.values())

    with suppress(AssertionError):  # each query without data fails by itself
        until("data for every query", all_answered, 110.0)
    return found


def without_filter(expr: str) -> str:
    """Return a query with series that are 0, which panels of rare events and top lists leave out."""
    return expr.removesuffix(" > 0")


@pytest.mark.parametrize(("panel", "target"), IN_DEMO.values(), ids=IN_DEMO)
def test_every_query_returns_data_with_the_labels_of_its_legend(answers, panel, target):
    samples = answers[without_filter(target["expr"])]
    assert samples, substituted(target["expr"])
    for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(name in one["metric"] for one in samples), name


HOSTS = tuple(f"gpu-{number:03}" for number in range(1, 5))

FIRST_SCREEN = {
    f"{panel['title']}-{target['refId']}": target
    for panel in BOARDS["fabric-overview"]["panels"]
    for target in panel.get("targets", ())
}


@pytest.mark.usefixtures("answers")  # all series are there
@pytest.mark.parametrize("target", FIRST_SCREEN.values(), ids=FIRST_SCREEN)
def test_a_query_of_the_first_screen_reads_ten_series_of_a_host_at_most(server, target):
    """That is 10,000 of 1,000 hosts of eight ports: what needs more is recorded."""
    read = dict.fromkeys(HOSTS, 0)
    for name in {str(one).partition(" offset ")[0] for one in selectors(promql.parse(substituted(target["expr"])))}:
        for one in server.query(f"count by (instance) ({name})"):
            if one["metric"].get("instance") in read:
                read[one["metric"]["instance"]] += int(one["value"][1])
    assert sorted(read.values())[len(read) // 2] <= 10, read
