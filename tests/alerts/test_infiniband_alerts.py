"""InfiniBand alerts and dashboard on a fabric simulated by `ibsim`, evaluated by a real Prometheus."""

import json
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.helpers.ibsim import fat_tree, simulator
from tests.helpers.paths import ROOT
from tests.helpers.stack import (
    answers,
    free_port,
    own_folder,
    process,
    prometheus,
    until,
)

pytestmark = pytest.mark.slow

EXPRS = {
    (rule["alert"], rule["labels"].get("side", "")): rule["expr"]
    for group in yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule and rule.get("labels", {}).get("layer") == "ib"
}
BOARD = json.loads((ROOT / "dashboards" / "fabric-infiniband.json").read_text())
MAY_BE_EMPTY = ("_imbalance_ratio", "_sm_priority", "fabric_ib_sm_state{", "_sweep_datagrams_total")
"""Queries that may have no data on an idle fabric whose subnet manager has ended."""

FAULTS = ("Missing nodes", "Ports with errors")
"""Tables of faults that this fabric does not have."""

ALERTS = ("Alerts of InfiniBand",)
"""Tables of alerts, whose rules this Prometheus does not load: it evaluates their expressions."""


@pytest.fixture(scope="module")
def fabric(program) -> Iterator[tuple]:
    """Run an exporter at a host of a fat tree with a saturated counter, and a Prometheus that scrapes it."""
    for name in ("ibsim", "opensm"):
        program(name)
    with own_folder() as folder, simulator(fat_tree(leaves=2, hosts=2, spines=1)) as simulated:
        simulated.opensm()
        simulated.set_counter("Leaf1", 3, "PortCounters.SymbolErrorCounter", 65535)
        off = {name: {"enabled": False} for name in ("rdma", "bursts", "nic", "pci", "nccl", "lldp", "hostcheck")}
        sources = {**off, "ibfabric": {"enabled": True, "interval": "5s"}}
        (folder / "exporter.yml").write_text(yaml.safe_dump({"sources": sources}))
        address = f"127.0.0.1:{free_port()}"
        own = [f"{key}={value}" for key, value in simulated.env().items() if key in {"LD_PRELOAD", "SIM_HOST"}]
        own += [f"IBSIM_SOCKNAME={simulated.folder.name}", f"PYTHONPATH={ROOT}"]
        flags = [f"--config.file={folder / 'exporter.yml'}", f"--web.listen-address={address}"]
        command = ["env", "-C", simulated.folder, *own, sys.executable, "-m", "exporter", "run", *flags]
        log = folder / "exporter.log"
        with process(log, *command) as running:
            answers(f"http://{address}/-/ready", running, log)
            with prometheus(program("prometheus"), folder, address) as server:
                until("a fabric", lambda: server.query("fabric_ib_link_degraded == 1"), 60.0)
                yield simulated, server


def test_each_degraded_link_is_one_alert(fabric):
    """All links of ibsim could be 12X QDR: two to adapters at each leaf, and one from each leaf upwards."""
    _, server = fabric
    wanted = {(f"Leaf{leaf}", port) for leaf in (1, 2) for port in ("1", "2", "3")}

    def degraded_links() -> list:
        found = server.query(EXPRS["FabricLinkDegraded", ""])
        return found if len(found) >= len(wanted) else []

    found = until("the links", degraded_links)
    assert sorted((one["metric"]["node_name"], one["metric"]["port"]) for one in found) == sorted(wanted)
    assert {one["metric"]["peer"] for one in found} == {"H1", "H2", "H3", "H4", "Spine1"}


def test_a_saturated_counter_and_a_missing_subnet_manager_are_alerts(fabric):
    _, server = fabric
    (one,) = until("the counter", lambda: server.query(EXPRS["FabricCounterSaturated", ""]))
    assert one["metric"]["node_name"] == "Leaf1"
    assert until("no manager", lambda: server.query(EXPRS["FabricSubnetManagerMissing", ""]))
    assert server.query(EXPRS["FabricSubnetManagerSplit", ""]) == []


@pytest.mark.parametrize("expr", EXPRS.values(), ids=map("-".join, EXPRS))
def test_every_rule_can_be_evaluated(fabric, expr):
    _, server = fabric
    server.query(expr)


def test_queries_of_the_dashboard_have_data(fabric):
    _, server = fabric
    until("a second pass", lambda: server.query("rate(fabric_ib_transmit_packets_total[30s])"))
    silent = []
    panels = [one for panel in BOARD["panels"] for one in (panel, *panel.get("panels", ()))]
    for panel in panels:
        for target in panel.get("targets", ()):
            expr = target["expr"].removesuffix(" > 0")  # what top lists leave out
            for name in ("job", "instance", "node_name"):
                expr = expr.replace(f"${name}", ".+")
            expr = expr.replace("$__rate_interval", "30s")
            if not any(word in expr for word in MAY_BE_EMPTY) and not server.query(expr):
                silent.append(panel["title"])
    assert set(silent) <= {*FAULTS, *ALERTS}
    assert len(panels) > 20
