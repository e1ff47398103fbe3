"""From a link that came up too slow to a message: demo, Prometheus, Alertmanager and a webhook, all of them real.

The rules are those that are shipped but for one thing: so that a test need not take a quarter of an hour, the minutes
of their `for` are read as seconds.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import yaml

from tests.helpers.paths import ROOT
from tests.helpers.stack import (
    Prometheus,
    alertmanager,
    demo,
    own_folder,
    prometheus,
    receiver,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RULES = ROOT / "alerts" / "fabric.yml"
ROUTES = ROOT / "alerts" / "alertmanager.yml"
SOURCES = 9
"""Sources of the demo: RDMA and its bursts, NICs, PCI, optics, checks of the host, NCCL and two switches."""


class Watch(NamedTuple):
    """What watches a demo: Prometheus, and the alerts that came to the webhook."""

    prometheus: Prometheus
    received: list[dict]
    exporter: str


def quick_rules(folder: Path) -> Path:
    text, changed = re.subn(r"^( +for: \d+)m$", r"\1s", RULES.read_text(), flags=re.MULTILINE)
    assert changed == text.count("alert: ")
    path = folder / "fabric.yml"
    path.write_text(text)
    return path


def inhibitions() -> object:
    return yaml.safe_load(ROUTES.read_text())["inhibit_rules"]


@pytest.fixture
def watch(program) -> Iterator[Callable]:
    """Return a function that starts all programs for a demo with faults."""
    programs = program("prometheus"), program("prometheus-alertmanager")

    @contextmanager
    def start(*faults: str) -> Iterator[Watch]:
        received: list[dict] = []
        with (
            own_folder() as folder,
            demo(folder, faults) as exporter,
            receiver(lambda message: received.extend(message.content["alerts"])) as hook,
            alertmanager(programs[1], folder, hook, inhibit_rules=inhibitions()) as manager,
            prometheus(programs[0], folder, exporter, rules=quick_rules(folder), alerts=manager) as server,
        ):
            yield Watch(server, received, exporter)

    return start


def test_a_degraded_link_becomes_one_message_that_names_it(watch):
    with watch("degraded-link") as seen:
        until("the alert at the webhook", lambda: named(seen.received, "FabricLinkDegraded"))
        names = [(one["labels"]["alertname"], one["labels"]["layer"]) for one in seen.received]
        (alert,) = named(seen.received, "FabricLinkDegraded")
        firing = [one for one in seen.prometheus.get("/alerts")["alerts"] if one["state"] == "firing"]
    assert names == [("FabricLinkDegraded", "rdma")]
    assert len(firing) == 1
    assert alert["status"] == "firing"
    assert alert["labels"] == {
        "alertname": "FabricLinkDegraded",
        "severity": "warning",
        "layer": "rdma",
        "job": "fabric",
        "instance": seen.exporter,
        "device": "mlx5_3",
        "port": "1",
        "host": "gpu-001",
        "rail": "3",
        "netdev": "eth5",
    }
    assert alert["annotations"] == {
        "summary": "An RDMA port is slower than expected.",
        "description": (
            "Port 1 of mlx5_3 (rail 3) on host gpu-001 runs at 25% of its expected speed, and so does every job on this"
            " rail. Compare fabric_rdma_link_lanes with its siblings; then check the cable and the transceivers."
        ),
        "runbook_url": "docs/runbooks/FabricLinkDegraded.md",
    }


def named(alerts: list[dict], name: str) -> list[dict]:
    return [one for one in alerts if one["labels"]["alertname"] == name]


def test_a_healthy_cluster_is_silent(watch):
    """For longer than the longest `for`, counted from when every source was read and has rates."""
    longest = max(int(found) for found in re.findall(r"^ +for: (\d+)m$", RULES.read_text(), re.MULTILINE))
    with watch() as seen:
        own = seen.prometheus
        until("all sources read", lambda: own.number("sum(fabric_source_up)") == SOURCES)
        until("imbalance, made from rates", lambda: own.query("fabric_rdma_transmit_imbalance_ratio"))
        until("verdicts on ranks", lambda: own.query("fabric_nccl_straggler"))
        first = own.number("max(timestamp(fabric_source_up))")
        until(
            "the time of the slowest rule", lambda: own.number("max(timestamp(fabric_source_up))") > first + longest + 5
        )
        ever = own.query('count_over_time(ALERTS{alertstate="firing"}[10m])')
        now = own.get("/alerts")["alerts"]
        groups = {group["name"]: group["rules"] for group in own.get("/rules")["groups"]}
    rare = groups.pop("fabric-job-week")  # evaluated less often than this test takes
    health = [rule["health"] for rules in groups.values() for rule in rules]
    assert set(health) == {"ok"}
    assert {rule["health"] for rule in rare} <= {"ok", "unknown"}
    assert len(health) + len(rare) == len(re.findall("^ +- (?:alert|record): ", RULES.read_text(), re.MULTILINE))
    assert ever == []
    assert now == []
    assert seen.received == []


def test_the_inhibitions_mute_consequences_and_nothing_else(program):
    job = {"job": "fabric"}
    one, other = job | {"instance": "gpu-001:10315"}, job | {"instance": "gpu-002:10315"}
    third, fourth = job | {"instance": "gpu-003:10315"}, job | {"instance": "gpu-004:10315"}
    down = one | {"alertname": "FabricLinkDown", "layer": "rdma", "device": "mlx5_3", "netdev": "eth3"}
    slow = {"alertname": "FabricLinkDegraded", "layer": "rdma", "device": "mlx5_3", "netdev": "eth3"}
    muted = [
        one | {"alertname": "FabricPortsMissing", "layer": "rdma"},
        one | {"alertname": "FabricPauseShare", "layer": "nic", "device": "eth3", "netdev": "eth3"},
        one | {"alertname": "FabricRailImbalance", "layer": "rdma", "group": "Ethernet MT4129 MT_0000000838"},
        third | {"alertname": "FabricRailImbalance", "layer": "rdma", "group": "Ethernet MT4129 MT_0000000838"},
        other | {"alertname": "FabricSourceStale", "layer": "source", "source": "switch", "target": "leaf-01"},
    ]
    sent = [
        down,
        other | slow,
        other | {"alertname": "FabricPortsMissing", "layer": "rdma"},
        third | slow | {"layer": "nic", "device": "eth3"},
        third | {"alertname": "FabricPortsMissing", "layer": "rdma"},
        one | {"alertname": "FabricPauseShare", "layer": "nic", "device": "eth4", "netdev": "eth4"},
        one | {"alertname": "FabricLinkDown", "layer": "rdma", "device": "mlx5_9", "port": "1"},
        one | {"alertname": "FabricLinkDegraded", "layer": "rdma", "device": "mlx5_8", "port": "1"},
        one | {"alertname": "FabricSourceStale", "layer": "source", "source": "rdma"},
        other | {"alertname": "FabricSourceStale", "layer": "exporter"},
        fourth | {"alertname": "FabricRailImbalance", "layer": "rdma", "group": "Ethernet MT4129 MT_0000000838"},
    ]
    with (
        own_folder() as folder,
        receiver(lambda _: None) as hook,
        alertmanager(program("prometheus-alertmanager"), folder, hook, inhibit_rules=inhibitions()) as manager,
    ):
        alerts = f"http://{manager}/api/v2/alerts"
        assert httpx.post(alerts, json=[{"labels": labels} for labels in (*muted, *sent)]).is_success
        until("the inhibited alerts", lambda: len(httpx.get(alerts, params={"inhibited": "false"}).json()) == len(sent))
        found = httpx.get(alerts).json()
    inhibited = [alert["labels"] for alert in found if alert["status"]["inhibitedBy"]]
    assert sorted(map(sorted, map(dict.items, inhibited))) == sorted(map(sorted, map(dict.items, muted)))
