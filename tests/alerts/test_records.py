"""Recording rules: their names, what they read, and where they can be evaluated; promtool shows their values."""

import re

import promql_parser as promql
import pytest
import yaml

from tests.helpers import promtool
from tests.helpers.paths import ROOT
from tests.helpers.promql import exported, selectors

ALERTS = ROOT / "alerts"


def records(name: str) -> dict[str, promql.Expr]:
    groups = yaml.safe_load((ALERTS / name).read_text())["groups"]
    return {rule["record"]: promql.parse(rule["expr"]) for group in groups for rule in group["rules"]}


RECORDS, JOINS = records("fabric-records.yml"), records("fabric-joins.yml")


def aggregations(expr: promql.Expr) -> list[set[str]]:
    found: list[set[str]] = []

    def note(node: promql.Expr) -> bool:
        if isinstance(node, promql.AggregateExpr):
            found.append(set(node.modifier.labels))
        return True

    promql.walk(expr, pre_visit=note)
    return found


def joined_by(expr: promql.Expr) -> list[set[str]]:
    found: list[set[str]] = []

    def note(node: promql.Expr) -> bool:
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            found.append(set(node.modifier.matching.labels))
        return True

    promql.walk(expr, pre_visit=note)
    return found


@pytest.mark.parametrize("name", [*RECORDS, *JOINS])
def test_names_are_level_metric_operation(name):
    level, metric, operation = re.fullmatch(r"([a-z_]+):(fabric_[a-z_]+):([a-z]+)", name).groups()
    counted = {one.removesuffix("_total").removesuffix("_ratio") for one in exported()}
    assert metric in exported().keys() | counted | {
        "fabric_switch_port",
        "fabric_nccl_ranks",
        "fabric_nic_paused_seconds",
    }
    assert level
    assert operation in {"rate", "avg", "max", "count", "info", "mac", "nic", "missing", "state", "seen"}


@pytest.mark.parametrize("name", RECORDS)
def test_a_shard_can_evaluate_what_it_scrapes(name):
    """All series that a record joins or sums are of one target, and it keeps the target."""
    names = {one.name for one in selectors(RECORDS[name])}
    assert names <= exported().keys() | RECORDS.keys()
    for labels in (*aggregations(RECORDS[name]), *joined_by(RECORDS[name])):
        assert labels >= {"job", "instance"}


@pytest.mark.parametrize("name", JOINS)
def test_joins_need_records_alone_and_no_target(name):
    """So that federation of the records is enough, and shards, which have other targets, can be joined."""
    assert {one.name for one in selectors(JOINS[name])} <= RECORDS.keys() | JOINS.keys()
    for labels in (*aggregations(JOINS[name]), *joined_by(JOINS[name])):
        assert not labels & {"job", "instance"}
        assert "fabric" in labels


def test_promtool_accepts_the_records(program):
    files = (ALERTS / "fabric-records.yml", ALERTS / "fabric-joins.yml")
    promtool.run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *files)
