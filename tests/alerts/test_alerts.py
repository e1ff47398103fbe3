"""The alert rules: their form, that what they name exists, and that promtool proves each of them three ways."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import promql_parser as promql
import pytest
import yaml

from exporter.daemon.sources import metrics
from tests.helpers import promtool
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, faults, recorded, selectors

RULES, RECORDS = ROOT / "alerts" / "fabric.yml", ROOT / "alerts" / "fabric-records.yml"
TESTS = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
ALERTS = {
    "FabricCharacterDeviceMissing",
    "FabricCheckFailed",
    "FabricCnpsIgnored",
    "FabricCollectorDisconnected",
    "FabricCongestion",
    "FabricCongestionDiscards",
    "FabricCounterSaturated",
    "FabricFecUncorrectable",
    "FabricHostDrops",
    "FabricJobAdaptersUnused",
    "FabricJobCollectivesUneven",
    "FabricJobGpudirectOff",
    "FabricJobHang",
    "FabricJobImbalanced",
    "FabricJobMfuLow",
    "FabricJobNetworkBound",
    "FabricJobOnTcp",
    "FabricJobPortFaulty",
    "FabricJobSlower",
    "FabricJobSlowerThanLastWeek",
    "FabricJobUtilizationLow",
    "FabricJobUtilizationVeryLow",
    "FabricLinkDegraded",
    "FabricLinkDown",
    "FabricLinkErrors",
    "FabricLinkFlapping",
    "FabricLinkMoved",
    "FabricLinkNew",
    "FabricNodeGone",
    "FabricNodeSilent",
    "FabricOpticsReceivePowerLow",
    "FabricOpticsTooHot",
    "FabricOversubscription",
    "FabricPauseInTraffic",
    "FabricPauseOutlier",
    "FabricPauseShare",
    "FabricPauseStorm",
    "FabricPciDegraded",
    "FabricPeerUnanswered",
    "FabricPortsMissing",
    "FabricRailImbalance",
    "FabricRailMiscabled",
    "FabricRetransmissions",
    "FabricSettingDiffers",
    "FabricSourceStale",
    "FabricStraggler",
    "FabricSubnetManagerMissing",
    "FabricSubnetManagerSplit",
    "FabricSweepSlow",
    "FabricSwitchCountersStale",
    "FabricSwitchDown",
    "FabricSwitchRestarted",
    "FabricTimingsLost",
    "FabricUplinkImbalance",
    "FabricUplinkOverloaded",
    "FabricVersionDiffers",
}


@cache
def every_kind_of_rule() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for rule in every_kind_of_rule() if "alert" in rule]


@cache
def known() -> dict[str, set[str]]:
    """Return all series that the rules may use: those of the places of alerts are made of the records by port."""
    records = [rule for group in yaml.safe_load(RECORDS.read_text())["groups"] for rule in group["rules"]]
    return exported() | recorded([*every_kind_of_rule(), *records])


def identity(rule: Mapping[str, Any]) -> tuple[str, ...]:
    return (rule["alert"], rule["labels"]["layer"], rule["labels"].get("direction", ""), rule["labels"].get("side", ""))


def written(rule: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the labels of a rule that are made of others."""
    return {(name, value) for name, value in rule["labels"].items() if "{{" in value}


def measured(expr: str) -> str:
    """Return the first metric of an expression; for a recorded one, the first metric of the rule that records it."""
    made = {rule["record"]: rule["expr"] for rule in every_kind_of_rule() if "record" in rule}
    name = selectors(promql.parse(expr))[0].name
    return measured(made[name]) if name in made else name


@cache
def cases() -> list[dict[str, Any]]:
    return [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]


every_expression = pytest.mark.parametrize(
    "rule", every_kind_of_rule(), ids=lambda rule: rule.get("record") or "-".join(filter(None, identity(rule)))
)
every_rule = pytest.mark.parametrize("rule", rules(), ids=lambda rule: "-".join(filter(None, identity(rule))))


def test_promtool_accepts_the_rules(program):
    promtool.run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_promtool_proves_the_rules(program, tmp_path, path):
    promtool.prove(program("promtool"), path, tmp_path)


def test_each_symptom_has_rules_that_can_be_told_apart():
    assert {rule["alert"] for rule in rules()} == ALERTS
    assert len({identity(rule) for rule in rules()}) == len(rules())


@every_rule
def test_names_labels_and_annotations_keep_to_the_conventions(rule):
    assert re.fullmatch(r"Fabric([A-Z][a-z]+)+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert re.fullmatch(r"[A-Z][^{}]*\.", summary), "a static sentence"
    assert description.endswith((".", "{{ end }}"))
    assert "  " not in description
    assert "\n" not in description
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    assert re.fullmatch(r"\d+m", rule["for"])


PLACES = {
    "host": ({"host"},),
    "rdma": ({"host"},),
    "nic": ({"host", "device"},),
    "pci": ({"host", "pci"},),
    "switch": ({"switch"}, {"host", "device"}),
    "ib": ({"node_name"}, {"instance"}),
    "nccl": ({"train_job"}, {"instance"}),
    "collector": ({"instance"},),
    "source": ({"instance", "source"}, {"target", "device"}),
    "exporter": ({"instance"},),
    "prometheus": (set(),),
}
"""Labels by layer that say where: host, switch, node, job, or the exporter where nothing else is known."""

OF_PORTS = {"port": ("rdma", "switch", "ib"), "device": ("rdma", "nic")}
"""Labels that an alert about one port has, by layer."""


@every_rule
def test_every_alert_says_where(rule):
    """The text names the place, and promtool has seen the alert with these labels, which Alertmanager groups by."""
    text, layer = rule["annotations"]["description"], rule["labels"]["layer"]
    named = set(re.findall(r"\$labels\.(\w+)", text))
    fired = [
        set(alert["exp_labels"])
        for case in cases()
        for one in case.get("alert_rule_test", ())
        for alert in one["exp_alerts"]
        if one["alertname"] == rule["alert"] and rule["labels"].items() - alert["exp_labels"].items() <= written(rule)
    ]
    of_port = {name for name, layers in OF_PORTS.items() if layer in layers and name in set().union(*fired)}
    assert fired
    assert any(place | of_port <= named & labels for place in PLACES[layer] for labels in fired), (named, fired)


OF_TRANSPORT = {"FabricJobOnTcp", "FabricJobGpudirectOff", "FabricJobAdaptersUnused"}
"""Alerts of a job that are about a cause themselves."""


def test_alerts_about_the_verdict_on_a_job_have_its_first_cause_in_their_text_and_not_in_a_label():
    """A label that changes is another alert, which begins its `for` again."""
    of_jobs = {rule["alert"] for rule in rules() if re.match("FabricStraggler|FabricJob", rule["alert"])}
    with_cause = {
        rule["alert"] for rule in rules() if "fabric_nccl_cause_confidence" in rule["annotations"]["description"]
    }
    assert with_cause == of_jobs - OF_TRANSPORT - {"FabricJobPortFaulty"}
    asked = {one.name for rule in rules() for one in selectors(promql.parse(rule["expr"]))}
    assert "fabric_nccl_cause_confidence" not in asked


def test_imbalance_never_pages():
    imbalances = {"FabricRailImbalance", "FabricUplinkImbalance"}
    assert {rule["labels"]["severity"] for rule in rules() if rule["alert"] in imbalances} == {"warning"}


def test_recorded_series_are_named_by_their_level_and_operation_and_used_by_a_rule_or_a_dashboard():
    names = [rule["record"] for rule in every_kind_of_rule() if "record" in rule]
    assert [name for name in names if not re.fullmatch(r"[a-z_]+:fabric_[a-z_]+:[a-z]+", name)] == []
    asked = {one.name for rule in every_kind_of_rule() for one in selectors(promql.parse(rule["expr"]))}
    boards = "".join(path.read_text() for path in (ROOT / "dashboards").glob("fabric-*.json"))
    assert [name for name in set(names) - asked if name not in boards] == []


@every_expression
def test_what_a_rule_asks_for_exists(rule):
    assert faults(promql.parse(rule["expr"]), known()) == []


@every_expression
def test_what_a_rule_asks_for_is_exported_without_being_kept(rule):
    """An alert on what only some configurations export would silently never fire, or lack its guard."""
    details = {metric.name for metric in metrics() if metric.detail}
    assert [one.name for one in selectors(promql.parse(rule["expr"])) if one.name in details] == []


def test_report_56_no_rule_looks_at_one_priority_alone():
    """Which class is lossless is the network's choice: a rule that names 3 is blind to a storm on 4."""
    named = [
        matcher.name
        for rule in rules()
        for one in selectors(promql.parse(rule["expr"]))
        for matcher in one.matchers.matchers
    ]
    assert "priority" not in named
    asked = {one.name for rule in rules() for one in selectors(promql.parse(rule["expr"]))}
    assert {"fabric_nic_receive_pfc_paused_seconds_total", "fabric_nic_transmit_pfc_paused_seconds_total"} <= asked


SERIES = r"\b(?:[a-z_]+:)?fabric_[a-z_]+\b(?::[a-z]+\b)?"
"""Metrics, and series that rules record."""


def test_what_the_annotations_name_exists():
    named = set(re.findall(SERIES, " ".join(str(rule["annotations"]) for rule in rules())))
    assert named
    assert named <= known().keys()


def test_series_of_the_proofs_are_those_of_the_exporter():
    known = exported()
    optional = {"target", "netdev", "rail", "alias"}
    every = list(cases())
    assert every
    for case in every:
        for series in case["input_series"]:
            one = promql.parse(series["series"])
            names = {matcher.name for matcher in one.matchers.matchers}
            assert one.name in known, series["series"]
            assert names <= known[one.name], series["series"]
            missing = known[one.name] - names - optional
            assert not missing or one.name.endswith("_info"), f"{series['series']} lacks {missing}"


@every_rule
def test_the_proofs_show_a_rule_fire_resolve_and_stay_silent(rule):
    """Fires with its labels, is gone later in the same case, and there is another case where it never fires."""
    wanted = {"side": "", **{name: value for name, value in rule["labels"].items() if "{{" not in value}}
    main = measured(rule["expr"])
    fired = resolved = silent = False
    for case in cases():
        asserted = [one for one in case.get("alert_rule_test", ()) if one["alertname"] == rule["alert"]]
        fires = [
            any(wanted.items() <= {"side": "", **alert["exp_labels"]}.items() for alert in one["exp_alerts"])
            for one in asserted
        ]
        fired = fired or any(fires)
        resolved = resolved or (any(fires) and not fires[-1])
        feeds = any(series["series"].startswith(f"{main}{{") for series in case["input_series"])
        silent = silent or (feeds and bool(asserted) and not any(one["exp_alerts"] for one in asserted))
    assert (fired, resolved, silent) == (True, True, True)
