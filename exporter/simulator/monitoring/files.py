"""Configurations of the programs that monitor the simulated fabric, as texts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from exporter.simulator.fabric.job import LAYER_BYTES, LAYERS

FABRIC = "demo"
"""Value of the external label `fabric`."""

BF16 = 2
"""Bytes of a parameter."""

TOKENS = 65536
"""Tokens of a step, with which GPUs of 989 TFLOP/s compute for somewhat less than half of the time."""


def broker(port: int) -> str:
    """Return the configuration of mosquitto: on loopback, for all, nothing stored."""
    return "".join(f"{line}\n" for line in (f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence false"))


def collector(address: str, hosts: int, ranks: int) -> str:
    """Return the configuration of a collector of all jobs, and of the budget of a step of the simulated one.

    Args:
        address: Address of the broker.
        hosts: Hosts of the job.
        ranks: Its ranks.
    """
    budget = {
        "parameters": LAYERS * LAYER_BYTES // BF16,
        "data_parallel": ranks,
        "nodes": hosts,
        "sharding": 3,
        "link_speed": "400Gb/s",
        "tokens_per_step": TOKENS,
        "peak_flops": "989T",
    }
    # A broker ends the connection of another client of the same host.
    config = {
        "host": "collector",
        "mqtt": {"broker": address},
        "collector": {"slots": "00-ff"},
        "jobs": {"*": budget},
    }
    return json.dumps(config, indent=1)


def prometheus(targets: Mapping[str, str], rules: Sequence[Path], alertmanager: str, interval: str) -> str:
    """Return the configuration of Prometheus.

    Args:
        targets: Addresses of exporters, by the name that is their label `instance`.
        rules: Rule files.
        alertmanager: Address of Alertmanager; empty where there is none.
        interval: Time between scrapes, and between evaluations.
    """
    static = [{"targets": [address], "labels": {"instance": name}} for name, address in targets.items()]
    config: dict[str, object] = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
            "external_labels": {"fabric": FABRIC},
        },
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "fabric", "static_configs": static}],
    }
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return json.dumps(config, indent=1)


def alertmanager(shipped: str, url: str) -> str:
    """Return a configuration with the routes and inhibitions of the shipped one, whose receivers are at a URL.

    Args:
        shipped: Text of `alerts/alertmanager.yml`.
        url: Each receiver sends to this URL and its own name; the one without settings sends nothing.
    """
    config = yaml.safe_load(shipped)
    config.pop("global", None)
    for receiver in config["receivers"]:
        if len(receiver) > 1:
            name = receiver["name"]
            receiver.clear()
            receiver |= {"name": name, "webhook_configs": [{"url": f"{url}/{name}", "send_resolved": True}]}
    return yaml.safe_dump(config, sort_keys=False)
