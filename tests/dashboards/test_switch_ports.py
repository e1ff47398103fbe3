"""Queries of the boards on ports of switches: what bundles, sub-interfaces and VLANs repeat is in none of them."""

import re

import pytest
import yaml

from tests.dashboards.test_dashboards import TARGETS
from tests.helpers import promtool
from tests.helpers.promql import exported

ROWS = {
    "et-0/0/0": "physical",
    "et-0/0/0.0": "sub-interface",
    "ae0": "aggregate",
    "irb.10": "virtual",
    "em0": "management",
}
"""The rows of a switch; the first alone is a port of the fabric."""

OF_UPLINKS = frozenset({"fabric_switch_group_info", "fabric_switch_link_degraded"})
"""Metrics that only uplinks have."""


def ports_asked_for(expr):
    """Return the metrics of ports in a query, with their labels."""
    labels = exported()
    names = set(re.findall(r"(?<![:\w])fabric_switch_\w+", expr)) - {"fabric_switch_info"}
    if names & OF_UPLINKS:
        return {}
    if any(name.endswith("_pfc_frames_total") for name in names):  # which count where the time in pause does not
        names = {name for name in names if not name.endswith("_pfc_paused_seconds_total")}
    return {name: labels[name] for name in names if {"switch", "port"} <= labels[name]}


QUERIES = {key: target["expr"] for key, (_, target) in TARGETS.items() if ports_asked_for(target["expr"])}


def query(expr, job):
    """Put values in the place of variables, as Grafana does."""
    for name, value in {"$job": job, "$instance": ".+", "$switch": ".+", "$__rate_interval": "5m"}.items():
        expr = expr.replace(name, value)
    return f"({expr})"


def series(metrics):
    """Return the series of two exporters: one reads the port alone, the other all rows of the same switch."""
    for job, rows in (("port", list(ROWS)[:1]), ("all", list(ROWS))):
        for row in rows:
            shared = f'job="{job}",instance="poller",switch="leaf-01",port="{row}"'
            yield {"series": f'fabric_switch_info{{{shared},kind="{ROWS[row]}"}}', "values": "1x20"}
            yield {
                "series": f'fabric_link_info{{{shared},peer="gpu-001",peer_mac="02:00:00:00:00:01"}}',
                "values": "1x20",
            }
            for name, labels in metrics.items():
                more = ',priority="3"' if "priority" in labels else ""
                values = "0+600x20" if "_total" in name else "1x10 0x10" if name == "fabric_switch_link_up" else "1x20"
                yield {"series": f"{name}{{{shared}{more}}}", "values": values}


@pytest.mark.parametrize("expr", QUERIES.values(), ids=QUERIES)
def test_only_physical_ports_are_in_a_query(program, tmp_path, expr):
    port, every = query(expr, "port"), query(expr, "all")
    compared = [f"sum({port}) - sum({every})", f"count({port}) - count({every})"]
    tests = [{"expr": one, "eval_time": "15m", "exp_samples": [{"labels": "{}", "value": 0}]} for one in compared]
    case = {"interval": "1m", "input_series": list(series(ports_asked_for(expr))), "promql_expr_test": tests}
    path = tmp_path / "ports.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))
    promtool.run(program("promtool"), "test", "rules", path)
