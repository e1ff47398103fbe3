"""Each alert has a page that agrees with its rules, and what the pages name exists: metrics, panels, commands."""

import json
import re
from functools import cache
from typing import Any

import promql_parser as promql
import pytest
import yaml

from exporter.core.table import Kind
from exporter.daemon.sources import metrics
from tests.helpers import runbooks
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults, recorded
from tests.helpers.stack import demo, own_folder, prometheus, until

EVERY_RULE: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"] for rule in group["rules"]
]
RULES = [rule for rule in EVERY_RULE if "alert" in rule]
ALERTS = {rule["alert"] for rule in RULES}
PAGES = {path.stem: runbooks.parse(path.read_text()) for path in runbooks.paths()}
QUERIES = [(name, query) for name, page in PAGES.items() for query in runbooks.queries(page)]
OVERVIEW = (ROOT / "docs" / "alerts.md").read_text()
INDEX = (runbooks.FOLDER / "README.md").read_text()

every_page = pytest.mark.parametrize("name", PAGES)


def which(rule: dict[str, Any]) -> frozenset[str]:
    """Return the labels that distinguish the rules of an alert, as the pages write them."""
    labels = rule["labels"]
    return frozenset(f'{name}="{labels[name]}"' for name in ("layer", "direction", "side") if name in labels)


@cache
def series() -> dict[str, set[str]]:
    """Return what can be queried without `keep`: no details, the buckets of histograms, and what rules record."""
    known = exported()
    for metric in metrics():
        if metric.detail or metric.kind is Kind.HISTOGRAM:
            del known[metric.name]
        if metric.detail:
            known.pop(f"{metric.name}_bucket", None)
    return known | recorded(EVERY_RULE)


def panels() -> set[tuple[str, str, str]]:
    """Return file, dashboard and panel, those in folded rows included."""
    return {
        (path.name, board["title"], one["title"])
        for path in (ROOT / "dashboards").glob("*.json")
        for board in [json.loads(path.read_text())]
        for panel in board["panels"]
        for one in (panel, *panel.get("panels", ()))
        if one["type"] != "row"
    }


def test_each_alert_has_a_page_and_each_page_an_alert():
    assert PAGES.keys() == ALERTS
    assert {page.title: name for name, page in PAGES.items()} == {f"# {name}": name for name in ALERTS}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join((rule["alert"], *sorted(which(rule)))))
def test_runbook_urls_reach_a_document_of_the_alert(rule):
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / path).is_file()
    assert anchor == rule["alert"].lower() or path == f"docs/runbooks/{rule['alert']}.md"


@every_page
def test_sections_are_complete_and_in_order(name):
    page = PAGES[name]
    assert tuple(page.sections) == runbooks.SECTIONS
    assert all(len(text.split()) >= 5 for text in page.sections.values())


@every_page
def test_the_meaning_lists_the_rules_with_their_severities(name):
    _, *rows = runbooks.cells_of(PAGES[name].sections["Meaning"])
    listed = [(frozenset(runbooks.spans(labels)[0].split()), re.split(r"\W", text)[0]) for labels, _, text in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {(which(rule), rule["labels"]["severity"]) for rule in RULES if rule["alert"] == name}


@every_page
def test_each_cause_has_something_to_look_at(name):
    page = PAGES[name]
    assert runbooks.cells_of(page.sections["Distinguish the causes"])[0] == ["Cause", "Look at", "What you see"]
    assert len(page.causes) >= 2
    blind = [row.cause for row in page.causes if not (runbooks.spans(row.look) or runbooks.PANEL.search(row.look))]
    assert blind == []
    assert all(row.cause and row.seen for row in page.causes)


@every_page
def test_steps_are_ordered_and_name_the_effects_of_commands_that_change_something(name):
    steps = PAGES[name].steps
    assert steps
    assert [int(step.split(".")[0]) for step in steps] == list(range(1, len(steps) + 1))
    assert [step for step in steps if runbooks.changes(step) and "Side effect" not in step] == []


def test_commands_to_look_with_are_those_that_were_looked_up():
    used = {(command, name) for name, page in PAGES.items() for command in runbooks.commands(page)}
    assert {(command, name) for command, name in used if command not in runbooks.READS} == set()
    assert {command for command, _ in used} == runbooks.READS


@pytest.mark.parametrize(("name", "query"), QUERIES)
def test_queries_parse_and_name_metrics_and_labels_that_exist(name, query):
    assert faults(promql.parse(query), series()) == []


def test_most_pages_have_queries():
    assert len({name for name, _ in QUERIES}) >= len(PAGES) - 1


@every_page
def test_named_metrics_panels_and_alerts_exist(name):
    text = (runbooks.FOLDER / f"{name}.md").read_text()
    assert set(runbooks.METRIC.findall(text)) - exported().keys() - series().keys() == set()
    named = {(path.rpartition("/")[2], board, title) for board, title, path in runbooks.PANEL.findall(text)}
    assert named - panels() == set()
    assert text.count("/dashboards/") == len(runbooks.PANEL.findall(text)), "a panel is linked as [Board: Panel](file)"
    assert set(re.findall(r"\bFabric[A-Z]\w+", text)) <= ALERTS


def test_the_index_has_each_page_once():
    assert sorted(re.findall(r"\]\((\w+)\.md\)", INDEX)) == sorted(ALERTS)


def test_the_overview_lists_each_alert_with_its_layers_and_severities():
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| (.+?) \| (.+?) \|", OVERVIEW, re.MULTILINE)
    listed = {name: (set(runbooks.spans(layers)), set(severities.split(", "))) for name, layers, severities in rows}
    assert len(rows) == len(listed)
    assert listed == {
        name: (
            {rule["labels"]["layer"] for rule in RULES if rule["alert"] == name},
            {rule["labels"]["severity"] for rule in RULES if rule["alert"] == name},
        )
        for name in ALERTS
    }


@pytest.mark.slow
def test_every_query_can_be_evaluated_on_the_demo(program):
    """A join that matches several series of one port fails only where there are series."""
    with (
        own_folder() as folder,
        demo(folder) as address,
        prometheus(program("prometheus"), folder, address) as server,
    ):
        until("a job", lambda: server.query("fabric_nccl_rank_info and fabric_nccl_rank_info offset 5s"))
        assert len(QUERIES) > 100
        for _, query in QUERIES:
            server.query(runbooks.with_any(query))
