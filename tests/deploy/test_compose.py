"""The stack of containers: valid for Compose, confined, and of files that its programs accept."""

import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from exporter import cli
from exporter.config.units import Duration
from exporter.simulator.fabric.topology import Shape, Topology
from tests.helpers import promtool
from tests.helpers.paths import ROOT
from tests.helpers.schemas import validate
from tests.helpers.stack import free_port, until

FOLDER = ROOT / "deploy" / "compose"
STACK = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
EACH = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = f"fabric-exporter:{VERSION}"

Program = Callable[[str], str]


def binds(service: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the files of the checkout that a service has, and where."""
    for one in service.get("volumes", ()):
        source, target, *options = one.split(":")
        if source.startswith("."):
            assert options == ["ro,z"], one
            yield (FOLDER / source).resolve(), target


def container(name: str, folder: Path) -> Path:
    """Copy the files of a service to a folder as they are in its container, and return the folder."""
    for source, target in binds(SERVICES[name]):
        copy = folder / target.removeprefix("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    return folder


def words(name: str) -> list[str]:
    """Return the arguments of a service whose command is one text, without variables."""
    command: str = SERVICES[name]["command"]
    return re.sub(r"\$\{\w+:-\}", "", command).split()


def test_the_file_is_valid_for_compose() -> None:
    validate("vendor.compose-spec", FOLDER / "compose.yaml")


# --- confinement


@EACH
def test_no_container_has_rights(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    rights = {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode", "userns_mode", "env_file", "secrets"}
    assert rights & set(service) == set()


@EACH
def test_ports_are_published_on_loopback_alone(service: dict[str, Any]) -> None:
    assert [one for one in service.get("ports", ()) if not one.startswith("127.0.0.1:")] == []


@EACH
def test_each_container_has_a_check_of_its_health(service: dict[str, Any]) -> None:
    assert service["healthcheck"]["test"][0] == "CMD"


def test_images_have_a_version_and_no_registry() -> None:
    """`owner/name:version` is of the registry that the reader has configured; a host would have a dot or a port."""
    images = {name: service["image"] for name, service in SERVICES.items()}
    assert images.pop("cluster") == images.pop("receiver") == OURS
    for image in images.values():
        found = re.fullmatch(r"\$\{[A-Z]+:-([a-z-]+(?:/[a-z-]+)?):v?\d+(\.\d+)+\}", image)
        assert found, image
    assert SERVICES["receiver"]["pull_policy"] == "never"
    assert (FOLDER / SERVICES["cluster"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVICES["cluster"]["build"]["dockerfile"]).is_file()


def test_what_changes_is_in_named_volumes() -> None:
    used = {one.partition(":")[0] for s in SERVICES.values() for one in s.get("volumes", ()) if one[0] not in "./"}
    assert used == set(STACK["volumes"]) == {"prometheus", "alertmanager", "grafana"}


@EACH
def test_files_exist(service: dict[str, Any]) -> None:
    assert [source for source, _ in binds(service) if not source.is_file()] == []


# --- the parts belong together


def test_prometheus_scrapes_every_exporter_of_the_cluster() -> None:
    flags = cli.parser().parse_args(words("cluster"))
    assert (flags.broker, flags.everywhere, flags.infiniband) == ("mosquitto:1883", True, False)
    names = [*Topology(Shape()).hosts, "poller", "collector"]
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    found = {one["labels"]["instance"]: one["targets"] for one in job["static_configs"]}
    assert found == {name: [f"cluster:{flags.first_port + i}"] for i, name in enumerate(names)}
    assert config["global"]["scrape_interval"] == config["global"]["evaluation_interval"] == flags.interval
    last = flags.first_port + len(names) - 1
    assert SERVICES["cluster"]["ports"] == [f"127.0.0.1:{flags.first_port}-{last}:{flags.first_port}-{last}"]
    poller = flags.first_port + names.index("poller")
    assert f"127.0.0.1:{poller}/-/ready" in SERVICES["cluster"]["healthcheck"]["test"][-1]


def test_every_host_in_a_file_is_a_service() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.iterdir() if path.suffix in {".yml", ".yaml"}}
    named = {host for text in texts.values() for host in re.findall(r"\b([a-z]+):(?:1883|9\d{3}|1\d{4})\b", text)}
    assert named == {"mosquitto", "cluster", "prometheus", "alertmanager", "receiver"}
    assert named <= set(SERVICES)


def test_prometheus_accepts_its_files(tmp_path: Path, program: Program) -> None:
    etc = container("prometheus", tmp_path) / "etc" / "prometheus"
    config = etc / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus", str(etc)))
    command = [program("promtool"), "check", "config", config]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 rule files found" in result.stdout
    rules = {path.name for path in (etc / "rules").iterdir()}
    assert rules == {path.name for path in (ROOT / "alerts").glob("fabric*.yml")}


def test_alertmanager_accepts_its_file(tmp_path: Path, program: Program) -> None:
    path = container("alertmanager", tmp_path) / "etc" / "alertmanager" / "alertmanager.yml"
    promtool.run(program("amtool"), "check-config", path)


def test_alertmanager_remembers_an_alert_for_longer_than_until_its_next_message() -> None:
    routes = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())["route"]
    longest = max(
        Duration.parse(one["repeat_interval"]) for one in [routes, *routes["routes"]] if "repeat_interval" in one
    )
    (retention,) = (word for word in SERVICES["alertmanager"]["command"] if word.startswith("--data.retention="))
    assert Duration.parse(retention.partition("=")[2]) > longest == 7 * 86_400


def test_routes_are_those_of_alerts_and_all_messages_are_printed() -> None:
    spec = importlib.util.spec_from_file_location("compose_build", FOLDER / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    text = (FOLDER / "alertmanager.yml").read_text()
    assert text == build.alertmanager(), "run `make docs`"
    made, shipped = yaml.safe_load(text), yaml.safe_load((ROOT / "alerts" / "alertmanager.yml").read_text())
    assert made["route"] == shipped["route"]
    assert made["inhibit_rules"] == shipped["inhibit_rules"]
    assert "global" not in made
    port = runpy.run_path(str(FOLDER / "print_alerts.py"))["PORT"]
    urls = {one["name"]: [hook["url"] for hook in one.get("webhook_configs", ())] for one in made["receivers"]}
    assert urls == {name: [f"http://receiver:{port}/{name}"] for name in ("pager", "ticket", "chat")} | {"none": []}


def test_the_broker_accepts_its_file(broker: Callable[..., Any]) -> None:
    lines = (FOLDER / "mosquitto.conf").read_text().splitlines()
    assert "listener 1883" in lines
    broker(*(line for line in lines if not line.startswith(("listener", "persistence"))))


def test_grafana_has_every_dashboard_where_it_looks_and_the_data_source_of_prometheus(tmp_path: Path) -> None:
    root = container("grafana", tmp_path)
    provisioning = root / "etc" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "fabric.yml").read_text())["providers"]
    found = {path.name for path in (root / provider["options"]["path"].removeprefix("/")).iterdir()}
    assert found == {path.name for path in (ROOT / "dashboards").glob("fabric-*.json")}
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (root / home.removeprefix("/")).is_file()
    (own,) = yaml.safe_load((provisioning / "datasources" / "fabric.yml").read_text())["datasources"]
    shipped_path = ROOT / "dashboards" / "provisioning" / "datasources" / "fabric.yml"
    (shipped,) = yaml.safe_load(shipped_path.read_text())["datasources"]
    interval = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["global"]["scrape_interval"]
    shipped |= {"url": "http://prometheus:9090", "jsonData": {**shipped["jsonData"], "timeInterval": interval}}
    assert own == shipped


def test_grafana_has_no_administrator_and_its_readers_change_nothing() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert [name for name in environment if "PASSWORD" in name] == []


# --- the receiver


def sent(url: str, message: dict[str, Any]) -> bool:
    try:
        return httpx.post(url, json=message).status_code == 200
    except httpx.TransportError:  # it does not listen yet
        return False


def test_the_receiver_prints_a_line_for_each_alert(tmp_path: Path) -> None:
    output = tmp_path / "out"
    script = container("receiver", tmp_path) / SERVICES["receiver"]["entrypoint"][1].removeprefix("/")
    own_port = "import sys, runpy; m = runpy.run_path(sys.argv[1]); m['main'].__globals__['PORT'] = int(sys.argv[2]);"
    own_port += " import asyncio; asyncio.run(m['main']())"
    port = free_port()
    alert = {
        "status": "firing",
        "labels": {"alertname": "FabricLinkDown", "severity": "critical", "host": "gpu-001"},
        "annotations": {"description": "Port 1 is down."},
        "fingerprint": "1",
    }
    with (
        output.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", own_port, script, str(port)], stdout=out, cwd=ROOT) as process,
    ):
        try:
            until(
                "the receiver",
                partial(sent, f"http://127.0.0.1:{port}/pager", {"receiver": "pager", "alerts": [alert]}),
            )
            line = until("a line", output.read_text)
            process.terminate()
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    assert re.fullmatch(r'\d\d:\d\d:\d\d pager  firing   FabricLinkDown\{host="gpu-001"\} Port 1 is down\.\n', line)
