"""alerts/alertmanager.yml: routes and inhibitions, by amtool and by an Alertmanager that pages a server of the test."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import httpx
import pytest
import yaml

from tests.helpers import promtool
from tests.helpers.paths import ROOT
from tests.helpers.stack import Message, answers, free_port, own_folder, process, receiver, until

CONFIG = ROOT / "alerts" / "alertmanager.yml"
SECRETS = "/etc/alertmanager/secrets/"
TICKETS = "https://tickets.example.net/alertmanager"
RECEIVERS = {"critical": "pager", "warning": "ticket", "info": "chat"}
RANK = {"info": 0, "warning": 1, "critical": 2}
FACTOR = 60


@cache
def rules() -> list[dict]:
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def inhibitions() -> list[dict]:
    return yaml.safe_load(CONFIG.read_text())["inhibit_rules"]


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    """Return whether static labels may match; one that a rule takes from series may have any value."""
    for matcher in matchers:
        name, sign, value = re.fullmatch(r'(\w+) (=~|!~|!=|=) "?([^"]+)"?', matcher).groups()
        if name in labels:
            equal = labels[name] == value if sign in {"=", "!="} else bool(re.fullmatch(value, labels[name]))
            if equal is sign.startswith("!"):
                return False
    return True


def labels_of(rule: dict) -> dict[str, str]:
    """Return the labels that are the same for all alerts of a rule; those of another rule of the alert are empty."""
    static = {name: value for name, value in rule["labels"].items() if "{{" not in value}
    return {"side": "", "direction": "", **static, "alertname": rule["alert"]}


def test_amtool_accepts_the_configuration(program):
    done = subprocess.run([program("amtool"), "check-config", CONFIG], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: "-".join(labels_of(rule).values()))
def test_every_alert_reaches_the_receiver_of_its_severity(program, rule):
    receiver = "none" if rule["alert"] == "FabricJobPortFaulty" else RECEIVERS[rule["labels"]["severity"]]
    flags = [f"--config.file={CONFIG}", f"--verify.receivers={receiver}"]
    labels = [f"{name}={value}" for name, value in labels_of(rule).items() if value]
    command = [program("amtool"), "config", "routes", "test", *flags, *labels, "fabric=pod-1", "train_job=4711"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_are_files_and_every_alert_has_a_group():
    config = yaml.safe_load(CONFIG.read_text())
    files = re.findall(r"^.*(?:_key_file|_url_file|credentials_file): (.*)$", CONFIG.read_text(), re.MULTILINE)
    assert len(files) == 3
    assert all(path.startswith(SECRETS) for path in files)
    assert not re.search(r"(routing_key|service_key|api_url|credentials|password|token): ", CONFIG.read_text())
    assert config["route"]["group_by"] == ["fabric", "train_job", "alertname"]


@pytest.mark.parametrize("one", inhibitions(), ids=lambda one: " ".join(one["source_matchers"]))
def test_an_inhibition_names_alerts_that_exist_and_mutes_nothing_that_is_worse(one):
    """A warning must not mute a page, but for the alert that represents a page."""
    sources = [rule for rule in rules() if matches(one["source_matchers"], labels_of(rule))]
    targets = [rule for rule in rules() if matches(one["target_matchers"], labels_of(rule))]
    assert sources
    assert targets
    assert one["equal"][0] == "fabric"
    named = set(re.findall(r"Fabric\w+", str(one)))
    assert named <= {rule["alert"] for rule in rules()} | {"FabricJob", "FabricJobUtilization"}
    worse = {
        (source["alert"], target["alert"])
        for source in sources
        for target in targets
        if RANK[source["labels"]["severity"]] < RANK[target["labels"]["severity"]]
        and source["alert"] not in {"FabricJobPortFaulty", target["alert"]}
    }
    assert worse == set()
    assert not [rule for rule in sources if rule in targets], "an alert that mutes itself mutes its siblings"


@contextmanager
def shipped_alertmanager(program: str, folder: Path, server: str) -> Iterator[Callable]:
    """Run an Alertmanager with the shipped configuration, its times divided; only addresses and folders differ."""
    command = [sys.executable, ROOT / "alerts" / "build.py", "--divide", str(FACTOR), "--output", folder]
    subprocess.run(command, check=True)
    for name, secret in (("pager-key", "k" * 32), ("ticket-token", "letmein"), ("chat-url", f"{server}/chat")):
        (folder / name).write_text(secret)
    text = (folder / "alertmanager.yml").read_text()
    for old, new in (
        (SECRETS, f"{folder}/"),
        ("https://events.pagerduty.com/v2/enqueue", f"{server}/pager"),
        (TICKETS, f"{server}/ticket"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "alertmanager.yml").write_text(text)
    address, log = f"127.0.0.1:{free_port()}", folder / "alertmanager.log"
    flags = [f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'data'}"]
    flags += [f"--web.listen-address={address}", "--cluster.listen-address="]
    with process(log, program, *flags) as running:
        answers(f"http://{address}/-/ready", running, log)

        def post(alerts: list[dict], *, ended: bool = False) -> None:
            ends = {"endsAt": datetime.now(UTC).isoformat()} if ended else {}
            made = [{"labels": one, "annotations": {"description": "What happened."}, **ends} for one in alerts]
            assert httpx.post(f"http://{address}/api/v2/alerts", json=made).is_success

        yield post


HOST = {"fabric": "pod-1", "job": "fabric", "instance": "gpu-001:10315", "host": "gpu-001"}
RDMA = HOST | {"layer": "rdma", "device": "mlx5_3", "port": "1", "rail": "3", "netdev": "eth3"}
NIC = HOST | {"layer": "nic", "device": "eth3", "rail": "3", "netdev": "eth3"}
JOB = {"fabric": "pod-1", "train_job": "4711", "layer": "nccl"}
CAUSE = RDMA | {"alertname": "FabricLinkDown", "severity": "critical"}
CONSEQUENCES = [
    HOST | {"alertname": "FabricPortsMissing", "severity": "critical", "layer": "rdma"},
    HOST | {"alertname": "FabricRailImbalance", "severity": "warning", "layer": "rdma", "direction": "receive"},
    RDMA | {"alertname": "FabricLinkFlapping", "severity": "warning"},
    NIC | {"alertname": "FabricPauseShare", "severity": "warning", "direction": "receive"},
    HOST | JOB | {"alertname": "FabricJobPortFaulty", "severity": "info"},
    JOB | {"alertname": "FabricJobHang", "severity": "critical"},
    JOB | {"alertname": "FabricJobUtilizationVeryLow", "severity": "critical"},
    HOST | JOB | {"alertname": "FabricStraggler", "severity": "warning", "rank": "5"},
    JOB | {"alertname": "FabricJobNetworkBound", "severity": "warning"},
    JOB | {"alertname": "FabricJobImbalanced", "severity": "info"},
]


@pytest.mark.parametrize("alerts", [[CAUSE, *CONSEQUENCES], [CAUSE], []], ids=["both", "cause", "none"])
def test_what_alertmanager_mutes_is_recorded_as_a_consequence(program, tmp_path, alerts):
    """The alerts that the tests below send to Alertmanager; FabricJobPortFaulty is sent to no one, and mutes others."""
    (expr,) = [
        rule["expr"]
        for group in yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule.get("record") == "alert:fabric_consequence:info"
    ]

    def series(labels: dict[str, str]) -> str:
        return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + ',alertstate="firing"}'

    muted = [one for one in alerts[1:] if one["alertname"] != "FabricJobPortFaulty"]
    case = {
        "interval": "1m",
        "input_series": [{"series": series(one), "values": "1x5"} for one in alerts],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "3m",
                "exp_samples": [{"labels": series(one), "value": 1} for one in muted],
            }
        ],
    }
    path = tmp_path / "muted.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))
    promtool.run(program("promtool"), "test", "rules", path)


def test_each_inhibition_rule_is_in_the_record_of_consequences():
    record = (ROOT / "alerts" / "fabric.yml").read_text().partition("- record: alert:fabric_consequence:info")[2]
    assert record.count(" and on (") == len(inhibitions()) > 30


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_cause_pages_once_and_resolves(program):
    """Consequences come first, as they may; a link of another host at the same time is a ticket, and only that."""
    received: list[Message] = []
    other = RDMA | {
        "alertname": "FabricLinkDegraded",
        "severity": "warning",
        "host": "gpu-002",
        "instance": "gpu-002:1",
    }
    with (
        own_folder() as folder,
        receiver(received.append) as server,
        shipped_alertmanager(program("prometheus-alertmanager"), folder, server) as post,
    ):
        post(CONSEQUENCES)
        post([CAUSE, other])
        until("the page", lambda: [one for one in received if one.path == "/pager"])
        until("the ticket", lambda: [one for one in received if one.path == "/ticket"])
        post([*CONSEQUENCES, CAUSE], ended=True)
        until("the end of the page", lambda: [one for one in received if one.content.get("event_action") == "resolve"])
        post([other], ended=True)
        until("the end of the ticket", lambda: [one for one in received if one.content.get("status") == "resolved"])
    pages = [one.content for one in received if one.path == "/pager"]
    assert [one["event_action"] for one in pages] == ["trigger", "resolve"]
    assert len({one["dedup_key"] for one in pages}) == 1
    assert {one["routing_key"] for one in pages} == {"k" * 32}
    assert pages[0]["payload"]["summary"] == "FabricLinkDown: What happened."
    tickets = [
        (one.token, [alert["labels"] for alert in one.content["alerts"]]) for one in received if one.path == "/ticket"
    ]
    assert tickets == [("Bearer letmein", [other])] * 2
    assert [one for one in received if one.path not in {"/pager", "/ticket"}] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_its_cause_each_consequence_is_sent(program):
    """What the test above mutes is muted by the cause, not by a route: alone, the worst of a job and a host page.

    A missing port mutes the imbalance of the rails.
    """
    received: list[Message] = []
    alone = [one for one in CONSEQUENCES if one["alertname"] not in {"FabricJobPortFaulty", "FabricJobHang"}]
    with (
        own_folder() as folder,
        receiver(received.append) as server,
        shipped_alertmanager(program("prometheus-alertmanager"), folder, server) as post,
    ):
        post(alone)
        until("two pages", lambda: len([one for one in received if one.path == "/pager"]) == 2)
        until("three tickets", lambda: len([one for one in received if one.path == "/ticket"]) == 3)
    pages = {one.content["payload"]["class"] for one in received if one.path == "/pager"}
    assert pages == {"FabricPortsMissing", "FabricJobUtilizationVeryLow"}
    tickets = {one.content["groupLabels"]["alertname"] for one in received if one.path == "/ticket"}
    assert tickets == {"FabricLinkFlapping", "FabricPauseShare", "FabricStraggler"}


POLLER = {"fabric": "pod-1", "job": "fabric", "instance": "poller:10315", "layer": "switch", "severity": "warning"}
UPLINK = POLLER | {"alertname": "FabricLinkDown", "side": "uplink", "group": "uplink", "port": "Ethernet1/31"}
ACCESS = POLLER | {"alertname": "FabricLinkDown", "target": "leaf-01", "switch": "leaf-01"}
AT_HOSTS = [
    CAUSE | {"peer": "gpu-001"},
    CONSEQUENCES[0] | {"host": "gpu-002", "instance": "gpu-002:10315", "peer": "gpu-002"},
]
FAR_ENDS = [
    POLLER | {"alertname": "FabricSwitchDown", "switch": "spine-01", "target": "spine-01", "peer": "spine-01"},
    *(UPLINK | {"switch": f"leaf-0{leaf}", "peer": "spine-01", "peer_port": f"Ethernet1/{leaf}"} for leaf in (1, 2)),
    *(ACCESS | {"port": f"Ethernet1/{host}", "peer": f"gpu-00{host}", "peer_port": "eth3"} for host in (1, 2)),
]
"""A spine with two leaves is gone, and links to two hosts that have alerts of their own are down."""
OTHERS = [
    UPLINK | {"switch": "leaf-03", "peer": "spine-02", "peer_port": "Ethernet1/3"},
    ACCESS | {"port": "Ethernet1/3", "peer": "gpu-003", "peer_port": "eth3"},
    ACCESS | {"port": "Ethernet1/4"},
]
"""Links to a spine and to a host without an alert of their own, and one whose neighbour is not known."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_down_with_a_switch_or_the_port_of_a_host_is_no_ticket_of_its_own(program):
    received: list[Message] = []
    with (
        own_folder() as folder,
        receiver(received.append) as server,
        shipped_alertmanager(program("prometheus-alertmanager"), folder, server) as post,
    ):
        post([*OTHERS, *AT_HOSTS, *FAR_ENDS])
        until("two tickets", lambda: len([one for one in received if one.path == "/ticket"]) == 2)
        until("a page", lambda: [one for one in received if one.path == "/pager"])
        # The causes are mended: what is down is no consequence any more.
        post([FAR_ENDS[0], *AT_HOSTS], ended=True)
        until("the end of the page", lambda: [one for one in received if one.content.get("event_action") == "resolve"])
        until("the ticket of all", lambda: len(tickets_of(received, "FabricLinkDown")) == 2)
    assert tickets_of(received, "FabricSwitchDown")[0] == {"spine-01"}
    assert tickets_of(received, "FabricLinkDown") == [
        {one.get("peer", "") for one in OTHERS},
        {one.get("peer", "") for one in [*OTHERS, *FAR_ENDS[1:]]},
    ]


def tickets_of(received: list[Message], name: str) -> list[set[str]]:
    """Return the peers of the alerts in each ticket about an alert."""
    return [
        {alert["labels"].get("peer", "") for alert in one.content["alerts"]}
        for one in received
        if one.path == "/ticket" and one.content["groupLabels"]["alertname"] == name
    ]
