"""The records of alerts that are active, for boards: since when, as cause or consequence or pending, and where."""

from pathlib import Path

import yaml

from tests.helpers import promtool
from tests.helpers.paths import ROOT

GROUPS = ("fabric-firing", "fabric-consequences")
BEGAN = 1_000

HOST = {"job": "fabric", "instance": "gpu-001:10315", "host": "gpu-001"}
JOB = {"train_job": "4711", "layer": "nccl"}
OF_HOST = {"host": "gpu-001", "train_job": "4711"}
POLLER = {"job": "fabric", "instance": "poller:10315"}

ACTIVE = [
    (
        HOST
        | {"alertname": "FabricLinkDown", "severity": "critical", "layer": "rdma", "port": "1", "rail": "3"}
        | {"device": "mlx5_3", "netdev": "eth3"},
        {"role": "cause", "rail": "3", "device": "mlx5_3", "switch": "leaf-02", "port": "4"} | OF_HOST,
    ),
    # Without a switch port by LLDP, `port` is not that of the adapter.
    (
        HOST
        | {"alertname": "FabricLinkFlapping", "severity": "warning", "layer": "rdma", "port": "1", "rail": "7"}
        | {"device": "mlx5_7", "netdev": "eth7"},
        {"role": "cause", "rail": "7", "device": "mlx5_7"} | OF_HOST,
    ),
    # The ports that are lost: one is down and one is not there any more.
    (
        HOST | {"alertname": "FabricPortsMissing", "severity": "critical", "layer": "rdma"},
        {"role": "consequence", "rail": "3", "device": "mlx5_3", "switch": "leaf-02", "port": "4"} | OF_HOST,
    ),
    (
        HOST | {"alertname": "FabricPortsMissing", "severity": "critical", "layer": "rdma"},
        {"role": "consequence", "rail": "4", "device": "mlx5_4", "switch": "leaf-02", "port": "5"} | OF_HOST,
    ),
    (
        HOST | {"alertname": "FabricLinkDegraded", "severity": "warning", "layer": "nic", "netdev": "eth4"},
        {"role": "pending", "rail": "4", "device": "mlx5_4", "switch": "leaf-02", "port": "5"} | OF_HOST,
    ),
    (
        HOST | {"alertname": "FabricPciDegraded", "severity": "warning", "layer": "pci", "devices": "eth4,mlx5_4"},
        {"role": "cause", "rail": "4", "device": "mlx5_4", "switch": "leaf-02", "port": "5"} | OF_HOST,
    ),
    # The host behind the port of a switch.
    (
        POLLER
        | {
            "alertname": "FabricPauseStorm",
            "severity": "critical",
            "layer": "switch",
            "switch": "leaf-02",
            "port": "5",
        },
        {"role": "cause", "rail": "4", "device": "mlx5_4", "switch": "leaf-02", "port": "5"} | OF_HOST,
    ),
    # Alerts about cables have the other end: a leaf and its port, or the GUID of one of InfiniBand.
    (
        HOST
        | {"alertname": "FabricRailMiscabled", "severity": "warning", "layer": "rdma", "device": "eth6", "rail": "6"}
        | {"leaf": "leaf-12", "leaf_port": "Ethernet1/3"},
        {"role": "cause", "rail": "6", "device": "eth6", "switch": "leaf-12", "port": "Ethernet1/3"} | OF_HOST,
    ),
    (
        HOST
        | {"alertname": "FabricRailMiscabled", "severity": "warning", "layer": "rdma", "device": "mlx5_8", "rail": "8"}
        | {"leaf": "0xb83fd20300000001", "leaf_port": "3"},
        {"role": "cause", "rail": "8", "device": "mlx5_8"} | OF_HOST,
    ),
    # A host of another name: what is muted on one host is a cause on the other.
    (
        {"job": "fabric", "instance": "gpu-002:10315", "host": "gpu-002"}
        | {"alertname": "FabricPortsMissing", "severity": "critical", "layer": "rdma"},
        {"role": "cause", "host": "gpu-002"},
    ),
    (
        POLLER
        | {"alertname": "FabricLinkErrors", "severity": "warning", "layer": "switch", "switch": "leaf-04", "port": "7"},
        {"role": "cause", "switch": "leaf-04", "port": "7"},
    ),
    (JOB | {"alertname": "FabricJobHang", "severity": "critical"}, {"role": "cause", "place": "all hosts"}),
    (JOB | {"alertname": "FabricJobSlower", "severity": "warning"}, {"role": "consequence", "place": "all hosts"}),
    # Where the host of a rank is not known, that is not all hosts.
    (
        JOB | {"alertname": "FabricStraggler", "severity": "warning", "rank": "5"},
        {"role": "consequence", "rank": "5"},
    ),
    (
        POLLER | {"alertname": "FabricSourceStale", "severity": "critical", "layer": "exporter"},
        {"role": "cause", "place": "poller:10315"},
    ),
    (
        POLLER
        | {"alertname": "FabricNodeGone", "severity": "warning", "layer": "ib", "guid": "0x1", "node_name": "gpu-009"},
        {"role": "cause", "place": "gpu-009"},
    ),
    (
        POLLER | {"alertname": "FabricSwitchDown", "severity": "warning", "layer": "switch", "target": "10.0.0.4"},
        {"role": "consequence", "place": "10.0.0.4"},
    ),
]
"""Labels of alerts, and those of the record beside the name, the severity, the layer and the job."""

OF_JOB = {"train_job": "4711", "host": "gpu-001"}
CAUSES = [
    {"severity": "critical", "alertname": "FabricLinkDown"},
    {"severity": "warning", "alertname": "FabricLinkFlapping"},
    {"severity": "warning", "alertname": "FabricPciDegraded"},
    {"severity": "critical", "alertname": "FabricPauseStorm"},
    {"severity": "warning", "alertname": "FabricRailMiscabled"},
]
OF_INFO = HOST | {"train_job": "4712", "layer": "nccl", "alertname": "FabricJobPortFaulty", "severity": "info"}


def of_port(number: int) -> str:
    """Return the labels of an RDMA port of the host."""
    device = f'device="mlx5_{number}",port="1"'
    return f'job="fabric",instance="gpu-001:10315",{device},host="gpu-001",rail="{number}",netdev="eth{number}"'


def link_up(number: int) -> str:
    return f'fabric_rdma_link_up{{job="fabric",instance="gpu-001:10315",device="mlx5_{number}",port="1"}}'


PORTS = (
    {'host:fabric_nccl_job:info{host="gpu-001",train_job="4711"}': "1x9"}
    | {f'fabric_rdma_info{{{of_port(number)},mac="02:00:00:00:00:0{number}"}}': "1x9" for number in (2, 3)}
    | {f'port:fabric_rdma_info:mac{{{of_port(number)},mac="02:00:00:00:00:0{number}"}}': "1x9" for number in (2, 3)}
    | {
        f'fabric_rdma_info{{{of_port(4)},mac="02:00:00:00:00:04"}}': "1x2 _x7",
        f'port:fabric_rdma_info:mac{{{of_port(4)},mac="02:00:00:00:00:04"}}': "1x2 _x7",
        link_up(2): "1x9",
        link_up(3): "1x4 0x5",
        link_up(4): "1x2 _x7",
    }
    | {
        f'switch_port:fabric_link_info:seen{{job="fabric",instance="poller:10315",mac="02:00:00:00:00:0{number}",'
        f'switch="leaf-02",switch_port="{number + 1}"}}': "600x9"
        for number in (2, 3, 4)
    }
)
"""Series of three ports: one is up, one down, and one is not there any more."""


def row(labels: dict[str, str], shown: dict[str, str]) -> str:
    """Return what alerts of one row of a board share."""
    job = (labels | shown).get("train_job", "")
    return "/".join((labels["severity"], shown["role"], labels["alertname"], job))


def series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={chr(34)}{value}{chr(34)}' for label, value in labels.items())}}}"


def test_an_alert_that_fires_has_its_role_its_place_and_its_begin(program, tmp_path: Path):
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [one for one in groups if one["name"] in GROUPS]}))
    state = {"pending": "pending"}
    active = [(labels, state.get(shown["role"], "firing")) for labels, shown in ACTIVE] + [(OF_INFO, "firing")]
    kept = ("alertname", "severity", "layer", "train_job")
    case = {
        "interval": "1m",
        "input_series": [
            one
            for labels, state in active
            for one in (
                {"series": series("ALERTS", labels | {"alertstate": state}), "values": "1x9"},
                {"series": series("ALERTS_FOR_STATE", labels), "values": f"{BEGAN}x9"},
            )
        ]
        + [{"series": name, "values": values} for name, values in PORTS.items()],
        "promql_expr_test": [
            {
                "expr": "alert:fabric_active:since",
                "eval_time": "8m",
                "exp_samples": [
                    {
                        "labels": series(
                            "alert:fabric_active:since",
                            {name: labels[name] for name in kept if name in labels}
                            | shown
                            | {"row": row(labels, shown)},
                        ),
                        "value": BEGAN,
                    }
                    for labels, shown in ACTIVE
                ],
            },
            # Of the alerts that are causes, that about a port of a host of the job.
            {
                "expr": "train_job:fabric_firing:since",
                "eval_time": "8m",
                "exp_samples": [
                    {"labels": series("train_job:fabric_firing:since", OF_JOB | one), "value": BEGAN} for one in CAUSES
                ],
            },
        ],
    }
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(content))
    promtool.run(program("promtool"), "test", "rules", tmp_path / "case.yml")


def test_a_cause_is_as_old_as_its_effects_at_its_place_or_of_its_job(program, tmp_path: Path):
    """Of several causes the oldest; other places and jobs, and what is pending elsewhere, change nothing."""
    port = {"train_job": "a", "host": "gpu-002", "rail": "1", "switch": "leaf-01", "port": "4"}
    alerts = [
        # The count of flaps needs time, in which the job and the ports have their alerts.
        ("cause", "FabricLinkFlapping", port | {"layer": "rdma"}, 500, 300),
        ("cause", "FabricLinkDown", port | {"layer": "nic"}, 500, 300),
        ("consequence", "FabricJobHang", {"layer": "nccl", "train_job": "a"}, 300, 300),
        ("pending", "FabricLinkErrors", port | {"layer": "nic"}, 400, 400),
        ("pending", "FabricLinkErrors", {"layer": "nic", "train_job": "a", "host": "gpu-001", "rail": "0"}, 100, 100),
        # An older cause of the job explains what began later.
        ("cause", "FabricJobOnTcp", {"layer": "nccl", "train_job": "b", "host": "gpu-003"}, 200, 200),
        ("cause", "FabricPciDegraded", {"layer": "pci", "train_job": "b", "host": "gpu-003", "rail": "5"}, 900, 900),
        ("consequence", "FabricJobSlower", {"layer": "nccl", "train_job": "b"}, 600, 600),
        # Ports of switches without a host.
        ("cause", "FabricLinkDown", {"layer": "switch", "switch": "leaf-02", "port": "9"}, 800, 700),
        ("consequence", "FabricLinkFlapping", {"layer": "switch", "switch": "leaf-02", "port": "9"}, 700, 700),
        ("cause", "FabricLinkDown", {"layer": "switch", "switch": "leaf-02", "port": "8"}, 850, 850),
    ]
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    rules = [one for group in groups for one in group["rules"] if one.get("record") == "alert:fabric_active:since"]
    assert len(rules) == 1
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": rules}]}))
    named = [({"role": role, "alertname": name} | labels, own, begin) for role, name, labels, own, begin in alerts]
    case = {
        "interval": "1m",
        "input_series": [
            {"series": series("alert:fabric_located:since", labels), "values": f"{own}x9"} for labels, own, _ in named
        ],
        "promql_expr_test": [
            {
                "expr": "alert:fabric_active:since",
                "eval_time": "8m",
                "exp_samples": [
                    {"labels": series("alert:fabric_active:since", labels), "value": begin}
                    for labels, _, begin in named
                ],
            }
        ],
    }
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(content))
    promtool.run(program("promtool"), "test", "rules", tmp_path / "case.yml")
