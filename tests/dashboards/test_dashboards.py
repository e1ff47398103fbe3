"""The boards: current, well formed by the rules of Grafana's dashboard-linter, and every query has data on the demo."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import promql_parser as promql
import pytest
import yaml

from exporter.core.table import Kind
from exporter.daemon.sources import metrics
from exporter.simulator.faults import FAULTS
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults, selectors
from tests.helpers.stack import (
    demo,
    own_folder,
    prometheus,
    until,
)

FOLDER = ROOT / "dashboards"

UNITS = {
    *("none", "short", "s", "bps", "Bps", "pps", "cps", "ops", "percentunit", "watt", "amp", "volt", "celsius"),
    "si:T/s",
}
"""Units of Grafana (ids of `getValueFormats` in @grafana/data) that the boards use, and one made of a word of ours."""

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


def below(board: str, row: str) -> set[str]:
    """Return the keys of the panels of a row and of those below it."""
    panels = BOARDS[board]["panels"]
    (start,) = (place for place, panel in enumerate(panels) if (panel["type"], panel["title"]) == ("row", row))
    return {f"{board}-{panel['title']}" for panel in panels[start + 1 :]}


OF_ALL_RANKS = {
    f"fabric-training-{title}"
    for title in (
        "Step-B",
        "Network of a step-A",
        "Network time over its minimum-A",
        "Compute share of a step, lower bound-A",
        "Time for computation, lower bound-A",
        "Likely causes-A",
        "Longest collective over the mean-A",
    )
}
"""Metrics that a job marks itself, or that only collectors have."""

IN_DEMO = {
    key: one
    for key, one in TARGETS.items()
    if not key.startswith("fabric-infiniband-")
    and key.rpartition("-")[0] not in below("fabric-training", "Delivery of timings")
    and key not in OF_ALL_RANKS
}
"""The demo has no InfiniBand fabric, no broker, no collector and no logs of NCCL, and a quarter of the ranks of a job;
queries for those are only checked against the exported metrics."""

every_board = pytest.mark.parametrize("name", BOARDS)
every_panel = pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
every_target = pytest.mark.parametrize(("panel", "target"), TARGETS.values(), ids=TARGETS)


def series() -> dict[str, set[str]]:
    """Return the series that can be queried, with their labels: metrics that are no details, parts of histograms."""
    known = exported()
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
    for name, value in {"$__rate_interval": "5s", "$host": "gpu-001", **every}.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
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
    assert board["title"] == name.replace("-", " ").capitalize()
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


def test_every_host_name_of_the_overview_links_to_its_dashboard():
    """By the label of a bar, or the value of a cell; with the data source, the jobs and the time."""
    assert PANELS
    for key, panel in PANELS.items():
        bars = [link["url"] for link in panel["fieldConfig"]["defaults"].get("links", ())]
        cells = [
            link["url"]
            for override in panel["fieldConfig"]["overrides"]
            if override["matcher"]["options"] == "host"
            for one in override["properties"]
            for link in one["value"]
        ]
        named = "{{host}}" in panel["targets"][0]["legendFormat"]
        listed = panel["type"] == "table" and "host" in panel["transformations"][-1]["options"]["indexByName"]
        assert [named, listed] == [bool(bars), bool(cells)], key
        for url in bars + cells:
            board, _, query = url.removeprefix("/d/").partition("?")
            assert board in BOARDS
            given = "${__field.labels.host}" if bars else "${__value.raw}"
            rest = ["${datasource:queryparam}", "${job:queryparam}", "${__url_time_range}"]
            assert query.split("&") == [f"var-host={given}", *rest]
            assert {"host", "datasource", "job"} <= VARIABLES[board].keys()


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


def test_overview_has_one_row_that_is_not_collapsed():
    """A screen of 1080 lines has room for about 24 units below the browser's and Grafana's own bars."""
    first, *rest = BOARDS["fabric-overview"]["panels"]
    assert (first["type"], first["collapsed"]) == ("row", False)
    shown = [panel for panel in rest if panel["type"] != "row"]
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in shown) <= 24
    assert all(panel["collapsed"] and panel["panels"] for panel in rest if panel["type"] == "row")


@every_panel
def test_panels_follow_the_linter(panel):
    """Rules panel-datasource, -title-description, -units and -no-targets."""
    assert panel["type"] in {"timeseries", "stat", "table", "bargauge", "heatmap"}
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
    if panel["type"] == "bargauge" and of_all == "percentunit":
        assert panel["fieldConfig"]["defaults"]["max"] == 1, "else the highest share fills its bar, however low it is"


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
        if panel["type"] != "table":
            continue
        (arranged,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
        ids = [target["refId"] for target in panel["targets"]]
        values = {f"Value #{one}" for one in ids} if len(ids) > 1 else {"Value"}
        hidden = {name for name, is_hidden in arranged["excludeByName"].items() if is_hidden} - {"Time"}
        assert set(arranged.get("renameByName", ())) == values - hidden
        grouped = promql.parse(substituted(panel["targets"][0]["expr"])).modifier.labels
        assert set(arranged["indexByName"]) == {*grouped, *values} - hidden
        named = set(arranged.get("renameByName", {}).values())
        overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert overridden - {"host"} == named


LIMITS = {
    "fabric-overview-Pauses": ("FabricPauseStorm", "FabricPauseShare"),
    "fabric-overview-ECN marks": ("FabricCongestion",),
    "fabric-overview-Retransmissions": ("FabricRetransmissions",),
    "fabric-overview-Ports most paused by the network": ("FabricPauseShare",),
    "fabric-overview-Hosts that pause the network most": ("FabricPauseShare",),
    "fabric-overview-Hosts with an idle rail": ("FabricRailImbalance",),
    "fabric-overview-ECN-marked packets": ("FabricCongestion",),
    "fabric-host-Pauses by priority": ("FabricPauseStorm", "FabricPauseShare"),
    "fabric-host-Paused by the switch": ("FabricPauseStorm", "FabricPauseShare"),
    "fabric-host-Pausing the switch": ("FabricPauseStorm", "FabricPauseShare"),
    "fabric-host-ECN-marked packets received": ("FabricCongestion",),
    "fabric-host-Share retransmitted": ("FabricRetransmissions",),
    "fabric-host-Imbalance of ports": ("FabricRailImbalance", "FabricRailImbalance"),
    "fabric-switches-Fullest uplink": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Busiest uplink of a switch": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Fullest uplinks": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-switches-Most uneven uplinks": ("FabricUplinkImbalance",),
    "fabric-switches-Imbalance of uplinks": ("FabricUplinkImbalance",),
    "fabric-infiniband-Busiest uplink of a switch": ("leaf:fabric_uplink_overload:ratio",),
    "fabric-infiniband-Imbalance of uplinks": ("FabricUplinkImbalance",),
    "fabric-switches-ECN-marked packets transmitted": ("FabricCongestion",),
    "fabric-training-Batches lost": ("FabricTimingsLost",),
    "fabric-training-Batches not sent": ("FabricTimingsLost",),
}
"""Panels whose limits are those of alerts, or of series recorded for them: of the one for the bad value, and of the one
for the warning."""


@pytest.mark.parametrize(("key", "alerts"), LIMITS.items(), ids=LIMITS)
def test_limits_are_those_of_the_alerts(key, alerts):
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    steps = PANELS[key]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    drawn = [step["value"] for step in reversed(steps) if step["value"] is not None]
    assert alerts
    for alert, limit in zip(alerts, drawn, strict=False):
        exprs = [
            one["expr"] for group in groups for one in group["rules"] if alert in {one.get("alert"), one.get("record")}
        ]
        assert limit in [float(one) for expr in exprs for one in re.findall(r"> ([\d.]+)", expr)]


@every_target
def test_queries_follow_the_linter(panel, target):
    """Rules target-promql, -job, -instance, -rate-interval and -counter-agg; and what is asked for exists."""
    assert target["datasource"] == DATASOURCE
    expr = promql.parse(substituted(target["expr"]))
    assert faults(expr, series()) == []
    for one in selectors(expr):
        assert {matcher.name for matcher in one.matchers.matchers} >= {"job", "instance"}, one.name
    counted = re.findall(r"(\w+\()?fabric_\w+_(?:total|bucket|count)\{[^}]*\}(\[[^]]*\])?", target["expr"])
    assert set(counted) <= {("rate(", "[$__rate_interval]"), ("rate(", "[5m]"), ("increase(", "[1h]")}
    if panel["type"] in {"timeseries", "heatmap"}:
        assert {window for _, window in counted} <= {"[$__rate_interval]"}
        assert target["range"] is True
    if panel["type"] == "heatmap":
        assert (target["format"], target["legendFormat"]) == ("heatmap", "{{le}}")


@pytest.fixture(scope="module")
def answers(program) -> Iterator[dict[str, list[dict]]]:
    """Ask every query of a Prometheus that scrapes a demo with faults; an answer without a number is asked again."""
    found: dict[str, list[dict]] = {}
    with own_folder() as folder, demo(folder, FAULTS) as exporter:
        with prometheus(program("prometheus"), folder, exporter) as server:

            def all_answered() -> bool:
                for _, target in IN_DEMO.values():
                    expr = target["expr"]
                    if not found.get(expr):
                        samples = server.query(substituted(expr))
                        found[expr] = [one for one in samples if math.isfinite(float(one["value"][1]))]
                return all(found.values())

            with suppress(AssertionError):  # each query without data fails by itself
                until("data for every query", all_answered, 60.0)
        yield found


@pytest.mark.parametrize(("panel", "target"), IN_DEMO.values(), ids=IN_DEMO)
def test_every_query_returns_data_with_the_labels_of_its_legend(answers, panel, target):
    samples = answers[target["expr"]]
    assert samples, substituted(target["expr"])
    for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(name in one["metric"] for one in samples), name
