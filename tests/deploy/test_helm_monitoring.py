"""Rules, routes and dashboards in the Helm chart are those of alerts/ and dashboards/."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.charts import CHART, builder, engine, objects, objects_of, variant
from tests.helpers.kubernetes_objects import Manifest
from tests.helpers.paths import ROOT

ALERTS = ROOT / "alerts"
RULE_FILES = {"alerts": "fabric.yml", "records": "fabric-records.yml", "joins": "fabric-joins.yml"}
ALERTMANAGER = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())


def of_kind(name: str, kind: str) -> list[Manifest]:
    return [one for one in objects_of(name) if one["kind"] == kind]


def test_rules_are_those_of_alerts() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in of_kind("all", "PrometheusRule")}
    assert found == {
        f"fabric-exporter-{name}": yaml.safe_load((ALERTS / file).read_text()) for name, file in RULE_FILES.items()
    }


def test_rules_without_joins_have_runbooks_of_ones_own() -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in of_kind("monitoring", "PrometheusRule")}
    assert set(found) == {"fabric-exporter-alerts", "fabric-exporter-records"}
    rules = [rule for group in found["fabric-exporter-alerts"]["groups"] for rule in group["rules"]]
    shipped = yaml.safe_load((ALERTS / "fabric.yml").read_text())
    for group in shipped["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["annotations"]["runbook_url"] = "https://docs.example.net/" + rule["annotations"]["runbook_url"]
    assert rules == [rule for group in shipped["groups"] for rule in group["rules"]]


def test_labels_by_which_prometheus_selects_are_set() -> None:
    made = of_kind("all", "PrometheusRule")
    assert {one["metadata"]["labels"]["release"] for one in made} == {"kube-prometheus-stack"}
    assert of_kind("node-options", "PodMonitor")[0]["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_dashboards_are_those_of_the_project_with_the_label_of_the_sidecar() -> None:
    made = [one for one in of_kind("all", "ConfigMap") if "grafana_dashboard" in one["metadata"]["labels"]]
    found = {name: json.loads(text) for one in made for name, text in one["data"].items()}
    shipped = {path.name: json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json")}
    assert len(shipped) >= 5
    assert found == shipped
    assert {one["metadata"]["annotations"]["grafana_folder"] for one in made} == {"Fabric"}
    assert all(len(text) < 1_000_000 for one in made for text in one["data"].values())  # of a ConfigMap: 1 MiB
    namespaces = {one["metadata"]["namespace"] for one in of_kind("monitoring", "ConfigMap")}
    assert namespaces == {"grafana"}


@pytest.mark.parametrize(("folder", "values"), [("rules", "rules"), ("dashboards", "dashboards")])
def test_a_copy_without_what_the_links_lead_to_is_an_error(folder: str, values: str, tmp_path: Path) -> None:
    chart = tmp_path / CHART.name
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns(folder))
    with pytest.raises(engine().HelmRenderError, match=rf"files/{folder}/.*links were not followed"):
        objects({values: {"enabled": True}}, chart=chart)


# --- AlertmanagerConfig


def as_text(matcher: dict[str, str]) -> str:
    return f"{matcher['name']}{matcher['matchType']}{matcher['value']}"


def plain(matchers: list[str]) -> list[str]:
    return [re.sub(r'^(\w+) *([!=]~|!?=) *"?(.*?)"?$', r"\1\2\3", one) for one in matchers]


def made(name: str) -> dict[str, Any]:
    (one,) = of_kind(name, "AlertmanagerConfig")
    return one["spec"]


def test_routes_are_those_of_alerts() -> None:
    def shape(route: dict[str, Any], names: dict[str, str]) -> list[Any]:
        own = [
            route.get(names[key]) for key in ("receiver", "group_by", "group_wait", "group_interval", "repeat_interval")
        ]
        matchers = route.get("matchers", [])
        text = [as_text(one) for one in matchers] if names["group_by"] == "groupBy" else plain(matchers)
        return [*own, text, [shape(one, names) for one in route.get("routes", [])]]

    keys = ("receiver", "group_by", "group_wait", "group_interval", "repeat_interval")
    camel = dict(zip(keys, ("receiver", "groupBy", "groupWait", "groupInterval", "repeatInterval"), strict=True))
    assert shape(made("all")["route"], camel) == shape(ALERTMANAGER["route"], dict(zip(keys, keys, strict=True)))


def test_inhibitions_are_those_of_alerts() -> None:
    found = [
        (list(map(as_text, one["sourceMatch"])), list(map(as_text, one["targetMatch"])), one["equal"])
        for one in made("all")["inhibitRules"]
    ]
    assert len(found) > 20
    assert found == [
        (plain(one["source_matchers"]), plain(one["target_matchers"]), one["equal"])
        for one in ALERTMANAGER["inhibit_rules"]
    ]


def test_secrets_of_receivers_are_keys_of_one_secret() -> None:
    """The names are the files in the README of alerts/."""
    receivers = {one["name"]: one for one in made("all")["receivers"]}
    assert list(receivers) == [one["name"] for one in ALERTMANAGER["receivers"]]
    pager = receivers["pager"]["pagerdutyConfigs"][0]["routingKey"]
    ticket = receivers["ticket"]["webhookConfigs"][0]["httpConfig"]["authorization"]["credentials"]
    chat = receivers["chat"]["slackConfigs"][0]["apiURL"]
    assert {one["name"] for one in (pager, ticket, chat)} == {"fabric-exporter-alertmanager"}
    assert [one["key"] for one in (pager, ticket, chat)] == ["pager-key", "ticket-token", "chat-url"]
    assert all(f"| `{one['key']}` |" in (ALERTS / "README.md").read_text() for one in (pager, ticket, chat))
    assert receivers["pager"]["pagerdutyConfigs"][0]["url"] == ALERTMANAGER["global"]["pagerduty_url"]


def test_receivers_of_ones_own_replace_the_shipped_ones() -> None:
    own = variant("monitoring")["alertmanagerConfig"]["receivers"]
    assert made("monitoring")["receivers"] == own
    assert made("monitoring")["route"] == made("all")["route"]


def test_a_key_without_a_name_of_the_operator_is_an_error() -> None:
    convert = builder().alertmanager_config.converted
    with pytest.raises(KeyError, match="mute_time_intervals"):
        convert("route: {mute_time_intervals: [night]}\nreceivers: []\n")
    with pytest.raises(KeyError, match="smtp_from"):
        convert("global: {smtp_from: a}\nreceivers: []\n")


@pytest.mark.parametrize(
    ("text", "name", "operator", "value"),
    [
        ("severity = critical", "severity", "=", "critical"),
        ('alertname =~ "A|B.+"', "alertname", "=~", "A|B.+"),
        ('side !~ "a=b"', "side", "!~", "a=b"),
        ("side!=", "side", "!=", ""),
    ],
)
def test_matchers_are_parsed_as_alertmanager_does(text: str, name: str, operator: str, value: str) -> None:
    found = builder().alertmanager_config.matcher(text)
    assert (found["name"], found["matchType"], found["value"]) == (name, operator, value)


def test_promtool_accepts_the_spec_of_a_rule_as_a_file(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    rules = of_kind("all", "PrometheusRule")
    assert rules
    for one in rules:
        path.write_text(yaml.safe_dump(one["spec"]))
        done = subprocess.run(
            [program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
