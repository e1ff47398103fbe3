"""Configurations of the programs that monitor the simulated fabric, as texts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

FABRIC = "demo"
"""Value of the external label `fabric`."""


def broker(port: int) -> str:
    """Return the configuration of mosquitto: on loopback, for all, nothing stored."""
    return "".join(f"{line}\n" for line in (f"listener {port} 127.0.0.1", "allow_anonymous true", "persistence false"))


def collector(address: str) -> str:
    """Return the configuration of a collector of all jobs."""
    # A broker ends the connection of another client of the same host.
    config = {"host": "collector", "mqtt": {"broker": address}, "collector": {"slots": "00-ff"}}
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
