"""The records of alerts that fire, for boards: since when, as cause or consequence, and where."""

from pathlib import Path

import yaml

from tests.helpers import promtool
from tests.helpers.paths import ROOT

GROUPS = ("fabric-firing", "fabric-consequences")
BEGAN = 1_000

HOST = {"job": "fabric", "instance": "gpu-001:10315", "host": "gpu-001"}
JOB = {"train_job": "4711", "layer": "nccl"}
POLLER = {"job": "fabric", "instance": "poller:10315"}

FIRING = [
    (
        HOST | {"alertname": "FabricLinkDown", "severity": "critical", "layer": "rdma", "port": "1", "rail": "3"},
        {"role": "cause", "host": "gpu-001", "rail": "3"},
    ),
    (
        HOST | {"alertname": "FabricPortsMissing", "severity": "critical", "layer": "rdma"},
        {"role": "consequence", "host": "gpu-001"},
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

PENDING = HOST | {"alertname": "FabricLinkDegraded", "severity": "warning", "layer": "rdma"}
OF_JOB = {"train_job": "4711", "severity": "critical", "alertname": "FabricLinkDown", "host": "gpu-001"}
OF_INFO = HOST | {"train_job": "4712", "layer": "nccl", "alertname": "FabricJobPortFaulty", "severity": "info"}


def row(labels: dict[str, str], shown: dict[str, str]) -> str:
    """Return what alerts of one row of a board share."""
    return "/".join((labels["severity"], shown["role"], labels["alertname"], labels.get("train_job", "")))


def series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={chr(34)}{value}{chr(34)}' for label, value in labels.items())}}}"


def test_an_alert_that_fires_has_its_role_its_place_and_its_begin(program, tmp_path: Path):
    groups = yaml.safe_load((ROOT / "alerts" / "fabric.yml").read_text())["groups"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [one for one in groups if one["name"] in GROUPS]}))
    active = [*((labels, "firing") for labels, _ in FIRING), (PENDING, "pending"), (OF_INFO, "firing")]
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
        + [{"series": 'host:fabric_nccl_job:info{host="gpu-001",train_job="4711"}', "values": "1x9"}],
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
                    for labels, shown in FIRING
                ],
            },
            # Of the alerts that are causes, that about a port of a host of the job.
            {
                "expr": "train_job:fabric_firing:since",
                "eval_time": "8m",
                "exp_samples": [{"labels": series("train_job:fabric_firing:since", OF_JOB), "value": BEGAN}],
            },
        ],
    }
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "case.yml").write_text(yaml.safe_dump(content))
    promtool.run(program("promtool"), "test", "rules", tmp_path / "case.yml")
