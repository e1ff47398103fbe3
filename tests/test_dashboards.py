"""The board: current, well formed by the rules of Grafana's dashboard-linter, and every query has data on the demo."""

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
from conftest import ROOT
from promql import exported, faults, selectors
from stack import demo, own_folder, prometheus, until

FOLDER = ROOT / "dashboards"
FAULTS = ("degraded-link", "link-down", "pause-storm", "straggler", "switch-silent")
"""With these at once there is something to see in the panels that show only faults."""

UNITS = {"short", "s", "bps", "Bps", "pps", "cps", "ops", "percentunit"}
"""Units of Grafana (ids of `getValueFormats` in @grafana/data) that the board uses."""

BOARD: dict[str, Any] = json.loads((FOLDER / "fabric-overview.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {one["name"]: one for one in BOARD["templating"]["list"]}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
every_target = pytest.mark.parametrize(
    ("panel", "target"), TARGETS, ids=[f"{panel['title']}-{target['refId']}" for panel, target in TARGETS]
)


def substituted(expr: str) -> str:
    """Put values in the place of variables, as Grafana does with all jobs and instances selected."""
    for name, value in (("$__rate_interval", "5s"), ("$job", ".+"), ("$instance", ".+")):
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def test_the_committed_board_is_what_the_builder_makes():
    pytest.importorskip("grafana_foundation_sdk.builders", reason="needs grafana-foundation-sdk")
    made = [
        subprocess.run(
            [sys.executable, "-c", "import build; print(build.render(), end='')"],
            cwd=FOLDER,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made == [(FOLDER / "fabric-overview.json").read_text()] * 2


def test_the_board_is_named_and_cannot_be_edited():
    assert BOARD["uid"] == "fabric-overview"
    assert BOARD["title"] == "Fabric overview"
    assert BOARD["editable"] is False
    assert BOARD["graphTooltip"] == 1
    assert BOARD["schemaVersion"] == 42
    assert "id" not in BOARD
    assert "__inputs" not in BOARD


def test_variables_follow_the_linter():
    """Rules template-datasource, -job, -instance, -label-promql and -on-time-change-reload."""
    assert VARIABLES.keys() == {"datasource", "job", "instance"}
    source = VARIABLES["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for name, label in (("job", "Job"), ("instance", "Instance")):
        one = VARIABLES[name]
        assert (one["type"], one["label"], one["datasource"]) == ("query", label, DATASOURCE)
        assert (one["multi"], one["includeAll"], one["allValue"], one["refresh"]) == (True, True, ".+", 2)
        selector, wanted = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()
        assert wanted == name
        assert faults(promql.parse(substituted(selector)), exported()) == []


@every_panel
def test_panels_follow_the_linter(panel):
    """Rules panel-datasource, -title-description, -units and -no-targets; only kinds that can be rendered apart."""
    assert panel["type"] in {"timeseries", "stat", "table", "bargauge"}
    assert panel["datasource"] == DATASOURCE
    assert panel["title"]
    assert re.fullmatch(r"[A-Z].*\.", panel["description"])
    units = {panel["fieldConfig"]["defaults"]["unit"]} | {
        one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "unit"
    }
    assert units <= UNITS
    assert panel["targets"]
    if panel["type"] == "timeseries":
        assert panel["options"]["legend"]["showLegend"] is True


def test_panels_have_their_own_ids_titles_and_places():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert sorted(set(ids)) == sorted(ids)
    titles = [panel["title"] for panel in BOARD["panels"]]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells


def test_columns_of_tables_are_those_of_their_queries():
    for panel in PANELS:
        if panel["type"] == "table":
            (arranged,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
            ids = [target["refId"] for target in panel["targets"]]
            values = {f"Value #{one}" for one in ids} if len(ids) > 1 else {"Value"}
            assert set(arranged["renameByName"]) == values
            named = set(arranged["renameByName"].values())
            assert {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]} == named


@every_target
def test_queries_follow_the_linter(panel, target):
    """Rules target-promql, -job, -instance, -rate-interval and -counter-agg; and what is asked for exists."""
    assert target["datasource"] == DATASOURCE
    expr = promql.parse(substituted(target["expr"]))
    assert faults(expr, exported()) == []
    for one in selectors(expr):
        assert {matcher.name for matcher in one.matchers.matchers} >= {"job", "instance"}, one.name
    counted = re.findall(r"(\w+\()?fabric_\w+_total\{[^}]*\}(\[[^]]*\])?", target["expr"])
    assert all(
        (function, window) in {("rate(", "[$__rate_interval]"), ("rate(", "[5m]"), ("increase(", "[1h]")}
        for function, window in counted
    )
    if panel["type"] == "timeseries":
        assert {window for _, window in counted} <= {"[$__rate_interval]"}
        assert target["range"] is True


@pytest.fixture(scope="module")
def answers(program) -> Iterator[dict[str, list[dict]]]:
    """Ask every query of a Prometheus that scrapes a demo with faults; an answer without a number is asked again."""
    found: dict[str, list[dict]] = {}
    with own_folder() as folder, demo(folder, FAULTS) as exporter:
        with prometheus(program("prometheus"), folder, exporter) as server:

            def all_answered() -> bool:
                for _, target in TARGETS:
                    expr = target["expr"]
                    if not found.get(expr):
                        samples = server.query(substituted(expr))
                        found[expr] = [one for one in samples if math.isfinite(float(one["value"][1]))]
                return all(found.values())

            with suppress(AssertionError):  # each query without data fails by itself
                until("data for every query", all_answered, 60.0)
        yield found


@every_target
def test_every_query_has_data_with_the_labels_of_its_legend(answers, panel, target):
    samples = answers[target["expr"]]
    assert samples, substituted(target["expr"])
    for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(name in one["metric"] for one in samples), name
