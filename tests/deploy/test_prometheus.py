"""The examples of Prometheus's configuration are valid, and name what the exporter and the rules have."""

import json
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.paths import ROOT
from tests.helpers.promql import exported

FOLDER = ROOT / "deploy" / "prometheus"
FILES = sorted(FOLDER.glob("*.yml"))

RULES = [
    rule
    for path in sorted((ROOT / "alerts").glob("fabric*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
RECORDS = {rule["record"] for rule in RULES if "record" in rule}

DETAILS = ("fabric_rdma_receive_bytes_total", "fabric_switch_transmit_bytes_total", "process_cpu_seconds_total")


def config(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yml").read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_promtool_accepts_the_file(path: Path, program: Callable[[str], str]) -> None:
    command = [program("promtool"), "check", "config", path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_file_is_in_the_readme() -> None:
    readme = (ROOT / "deploy" / "README.md").read_text()
    assert len(FILES) == 4
    assert [path.name for path in FILES if f"](prometheus/{path.name})" not in readme] == []


def test_probes_are_those_of_the_guide() -> None:
    guide = (ROOT / "docs" / "switches.md").read_text()
    (shown,) = re.findall(r"^```yaml\n# prometheus.yml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    polled, probed = yaml.safe_load(shown)["scrape_configs"]
    jobs = {job["job_name"]: job for job in config("switches")["scrape_configs"]}
    assert jobs.pop(polled["job_name"]) == polled
    own = jobs.pop(probed["job_name"])
    assert own["http_sd_configs"][0].pop("refresh_interval") == "1m"
    assert own == probed
    (single,) = jobs.values()
    assert single["metrics_path"] == "/probe"
    fabric = yaml.safe_load(re.findall(r"^```yaml\n# fabric.yml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)[0])
    assert set(single["params"]["module"]) <= set(fabric["probe"]["modules"])
    assert set(single["params"]["auth"]) <= set(fabric["probe"]["auths"])
    assert single["static_configs"][0]["targets"][0].startswith(fabric["probe"]["allow"][0].removesuffix("0/24"))


def test_a_shard_keeps_its_own_part_of_all_that_the_hash_can_be() -> None:
    made = config("sharded")
    (job,) = made["scrape_configs"]
    hashed, kept = (rule for rule in job["relabel_configs"] if "action" in rule)
    assert (hashed["action"], kept["action"]) == ("hashmod", "keep")
    assert kept["source_labels"] == [hashed["target_label"]]
    assert kept["regex"] == made["global"]["external_labels"]["shard"]
    assert int(kept["regex"]) < hashed["modulus"] == 3
    assert hashed["source_labels"] == ["fabric_part"], "an address would separate hosts that rules join"


def targets(program: Callable[[str], str], path: Path, job: str) -> list[dict[str, str]]:
    """Return the labels of the targets that Prometheus would scrape, after relabelling."""
    command = [program("promtool"), "check", "service-discovery", "--timeout=3s", path, job]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one["labels"] for one in json.loads(result.stdout) if one.get("labels")]


def test_each_part_of_the_fabric_is_scraped_by_one_server(tmp_path: Path, program: Callable[[str], str]) -> None:
    parts = {f"part-{number}": [f"gpu-{number}0{host}:10315" for host in range(3)] for number in range(1, 8)}
    groups = [{"targets": hosts, "labels": {"fabric_part": part}} for part, hosts in parts.items()]
    (tmp_path / "parts.yml").write_text(yaml.safe_dump(groups))
    text = (FOLDER / "sharded.yml").read_text().replace("/etc/prometheus/fabric/*.yml", f"{tmp_path}/parts.yml")
    assert text.count('"0"') == 2
    servers = {shard: tmp_path / f"{shard}.yml" for shard in "012"}
    for shard, path in servers.items():
        path.write_text(text.replace('"0"', f'"{shard}"'))
    with ThreadPoolExecutor(len(servers)) as threads:  # promtool always takes the whole timeout
        found = list(threads.map(lambda path: targets(program, path, "fabric"), servers.values()))
    scraped: dict[str, list[str]] = {}
    for shard, listed in zip(servers, found, strict=True):
        for labels in listed:
            scraped.setdefault(labels["instance"], []).append(shard)
    assert set(scraped) == {host.removesuffix(":10315") for hosts in parts.values() for host in hosts}
    assert [host for host, shards in scraped.items() if len(shards) != 1] == []
    by_part = [{scraped[host.removesuffix(":10315")][0] for host in hosts} for hosts in parts.values()]
    assert [shards for shards in by_part if len(shards) != 1] == []
    assert len(set.union(*by_part)) > 1


def test_a_single_switch_is_probed_by_the_poller(program: Callable[[str], str]) -> None:
    (labels,) = targets(program, FOLDER / "switches.yml", "fabric-switch-lab")
    assert {name: labels[name] for name in ("__address__", "__param_target", "instance", "__metrics_path__")} == {
        "__address__": "fabric-poller:10315",
        "__param_target": "198.51.100.7",
        "instance": "198.51.100.7",
        "__metrics_path__": "/probe",
    }


REMOTE_WRITE = config("remote-write")["remote_write"][0]["write_relabel_configs"]


def is_kept(name: str, alertstate: str = "") -> bool:
    """Apply the rules of remote-write.yml to a series, as Prometheus does: patterns match all of the joined labels."""
    series = {"__name__": name, "alertstate": alertstate}
    for rule in REMOTE_WRITE:
        value = ";".join(series[label] for label in rule["source_labels"])
        if (re.fullmatch(rule["regex"], value) is not None) != (rule["action"] == "keep"):
            return False
    return True


def test_every_name_that_is_kept_or_dropped_exists() -> None:
    known = {*exported(), *RECORDS}
    keep, *drops = REMOTE_WRITE
    for part in re.split(r"\|(?![^(]*\))", keep["regex"]):
        inside = re.fullmatch(r"([^(]*)\((.*)\)(.*)", part)
        for one in [f"{inside[1]}{middle}{inside[3]}" for middle in inside[2].split("|")] if inside else [part]:
            assert [name for name in known if re.fullmatch(one, name)], one
    levels = re.findall(r"\w+", drops[0]["regex"])
    assert levels == ["rank", "nic", "switch_port", "port"]
    assert [level for level in levels if not any(name.startswith(f"{level}:") for name in RECORDS)] == []


def test_remote_write_keeps_records_and_states_and_no_details() -> None:
    kept = {name for name in RECORDS if is_kept(name)}
    assert RECORDS - kept == {name for name in RECORDS if name.split(":")[0] in {"rank", "nic", "switch_port", "port"}}
    assert len(kept) > 30
    assert is_kept("ALERTS", "firing")
    assert not is_kept("ALERTS", "pending")
    for name in ("up", "fabric_nccl_verdict", "fabric_switch_up", "fabric_rdma_info", "fabric_ib_node_info"):
        assert is_kept(name), name
    assert set(DETAILS) <= set(exported())
    assert [name for name in DETAILS if is_kept(name)] == []
